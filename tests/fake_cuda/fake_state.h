// What the parts of the fake driver share. One lock is held inside every entry.
#ifndef SUMI_FAKE_STATE_H
#define SUMI_FAKE_STATE_H
#include "fake_cuda.h"
#include <cuda.h>
#include <stddef.h>

// As SYSTEM_PRINTF of samples/shared/system.h.
#if defined(__MINGW32__) && !defined(__clang__)
#define FAKE_PRINTF __attribute__((format(gnu_printf, 1, 2)))
#else
#define FAKE_PRINTF __attribute__((format(printf, 1, 2)))
#endif

typedef enum fake_kind {
    FAKE_CONTEXT,
    FAKE_STREAM,
    FAKE_EVENT,
    FAKE_MODULE,
    FAKE_GRAPH,
    FAKE_EXEC,
    FAKE_DEVICE_BLOCK,
    FAKE_PINNED_BLOCK,
    FAKE_LOCKED_BLOCK /* read-only memory of the caller's, page-locked */,
    FAKE_RESOURCE,
    FAKE_MAPPED_BLOCK /* memory of the host program's graphics API */,
    FAKE_EXTERNAL_MEMORY,
    FAKE_LEVELS,
    FAKE_ARRAY,
    FAKE_SEMAPHORE,
    FAKE_LINK,
    FAKE_KIND_COUNT
} fake_kind;

// First member of everything alive; a handle is its address.
typedef struct fake_object {
    struct fake_object *previous, *next;
    struct fake_object* next_in_bucket;
    fake_kind kind;
    int number; // of its kind, from 1 on, in the order in which they were made
} fake_object;

typedef struct fake_context {
    fake_object object;
    int device, retained;
    bool is_primary;
} fake_context;
// registered: the caller's memory
typedef struct fake_block {
    fake_object object;
    unsigned char* memory;
    size_t bytes;
    bool is_registered;
} fake_block;

// Of cuLinkCreate: what it was given, which is what it makes.
typedef struct fake_link {
    fake_object object;
    void* data;
    size_t bytes;
} fake_link;

#define FAKE_MOST_PARAMETERS 32
typedef struct fake_function {
    char name[160];
    struct fake_module* module;
    int parameter_count, parameter_bytes[FAKE_MOST_PARAMETERS];
    unsigned max_threads, cluster[3], static_shared, opted_in; // max_threads 0: not said
} fake_function;
typedef struct fake_module {
    fake_object object;
    bool has_text;
    int function_count, capacity;
    fake_function** functions;
} fake_module;

typedef enum fake_node_kind {
    FAKE_KERNEL,
    FAKE_COPY,
    FAKE_SET8,
    FAKE_SET32,
    FAKE_RECORD,
    FAKE_WAIT,
    FAKE_WAIT_SHARED,
    FAKE_SIGNAL_SHARED,
    FAKE_FREE
} fake_node_kind;
typedef struct fake_node {
    struct fake_node* next;
    fake_node_kind kind;
    char name[160]; // KERNEL
    unsigned grid[3], block[3];
    // KERNEL: its parameters. COPY from pageable memory: the bytes as they were
    unsigned char* data;
    size_t data_bytes;
    unsigned char *to, *from; // COPY, SET
    size_t bytes;
    unsigned value;
    struct fake_event* event;   // RECORD, WAIT
    struct fake_shared* shared; // WAIT_SHARED, SIGNAL_SHARED; their value is `ticket`
    uint64_t ticket;            // of the record meant
    bool has_key;               // of a keyed mutex: the ticket is its key
} fake_node;
typedef struct fake_list {
    fake_node *first, *last;
} fake_list;

#define FAKE_MOST_TEXTURES 8
#define FAKE_FROM_TEXTURE 2 // value of a copy whose source is no memory of CUDA's; 1: whose destination is not
// of the host program's OpenGL; name: of a real one
typedef struct fake_texture {
    unsigned char* pixels;
    int width, height, registered;
    unsigned name;
    int pixel_bytes; // 4 or 8
    bool is_buffer;
    bool is_depth; // GL_R32F
} fake_texture;
// also its CUarray
typedef struct fake_resource {
    fake_object object;
    fake_texture* texture;
    bool is_mapped, is_direct3d;
} fake_resource;

#define FAKE_MOST_SHARED 64
// Memory or a semaphore of Vulkan or Direct3D, as both sides see it.
typedef struct fake_shared {
    bool is_used, is_dedicated;
    int type;                // of a CUDA handle
    unsigned long long file; // what its file descriptors are of; 0: it has none
    int descriptor;          // the first of them
    void* handle;            // of Windows; NULL: it was not asked for
    unsigned char* memory;   // NULL: a semaphore
    size_t bytes;
    uint64_t value;
    int imports;
    bool is_attachment; // an image was mapped with the flag of color attachments
} fake_shared;
// What CUDA makes of it: FAKE_EXTERNAL_MEMORY, FAKE_SEMAPHORE; FAKE_LEVELS and FAKE_ARRAY with the image at `offset`.
typedef struct fake_import {
    fake_object object;
    fake_shared* shared;
    bool is_dedicated; // memory of one resource
    size_t offset;
    int width, height, pixel_bytes, children;
    struct fake_import* parent;
} fake_import;

typedef struct fake_graph {
    fake_object object;
    fake_list nodes;
} fake_graph; // also an instantiated one
typedef struct fake_stream {
    fake_object object;
    fake_context* context;
    fake_list queue;     // submitted and not done
    fake_graph* capture; // being made, or NULL
    bool is_hosts_capture, is_spoilt;
    int queries_left;
    uint64_t busy_until_ns; // kernels that take time
} fake_stream;
typedef struct fake_event {
    fake_object object;
    bool has_time, wakes, is_done, is_captured;
    int queries_left;
    uint64_t ticket;      // of the newest record; 0: never
    uint64_t done_ticket; // of the newest record that was reached
    fake_stream* stream;  // of it
    double ms;            // on the fake device's clock
    uint64_t ready_ns;    // when its stream gets there
} fake_event;

typedef struct fake_entry {
    const char* name;
    int version;
    void (*function)(void);
    uint64_t calls;
} fake_entry;
extern fake_entry fake_entries[];
extern const int fake_entry_count;
// of another library, as a call that needs the context; leave with fake_unlock, whatever it says
CUresult fake_enter_library(const char* name);

#define FAKE_BUCKETS 1024
#define FAKE_MOST_TARGETS 200
typedef struct fake_world {
    // settings
    int device_count, capability, multiprocessors, driver_version, newest_ptx, complete_after, fill_byte, pin_us,
        kernel_us, call_ns;
    bool old_lookup, takes_binaries, is_lost, refuses_graphs, locks_read_only, has_linker;
    int links_allowed; // negative: all
    const char* lacking;
    uint64_t byte_limit, device_bytes, context_keeps, module_keeps, graph_keeps;
    const char* fail_name;
    int fail_nth, fail_code, fail_allocation;
    bool has_failed, has_failed_allocation;
    // counts
    int violations, launch_count, graph_launch_count, wake_count, graph_pieces;
    int images[2][FAKE_MOST_TARGETS]; // modules loaded of PTX and of machine code, by their target
    uint64_t allocation_count, launch_hash, pinning_us;
    char last_kernel[160];
    void (*on_launch)(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data);
    void* launch_user;
    void (*on_signal)(int shared, void* user_data);
    void* signal_user;
    void (*on_call)(const char* line, void* user_data);
    void* call_user;
    int made_count[FAKE_KIND_COUNT];
    // the device
    double clock_ms, host_ends_ms; // host_ends_ms: of the newest kernel of the host program
    double delay_ms;               // of each empty kernel
    const fake_clock* clock;       // NULL: the system's
    const double* kernel_ms;       // NULL: all alike
    int kernel_ms_count, kernel_ms_next;
    uint64_t last_ticket;
    int host_captures;
    fake_texture textures[FAKE_MOST_TEXTURES];
    fake_shared shared[FAKE_MOST_SHARED];
    fake_context* primary[4];
    fake_object* alive;
    fake_object* buckets[FAKE_BUCKETS]; // the same by address
    fake_block** blocks;                // the same that are blocks, sorted by their memory
    int block_count, block_capacity;
    long alive_count[FAKE_KIND_COUNT];
    uint64_t block_bytes, device_block_bytes;
    struct {
        unsigned char* memory;
        size_t bytes;
    } freed[256]; // the newest
    int freed_count;
} fake_world;
extern fake_world fake;

uint64_t fake_now_ns(void);
void fake_pass_ns(uint64_t ns);
void fake_lock(void);
void fake_unlock(void);
void fake_violation(const char* format, ...) FAKE_PRINTF;

void* fake_make(size_t bytes, fake_kind kind); // zeroed
bool fake_is_alive(const void* handle, fake_kind kind);
void fake_unmake(void* handle);
void fake_free_block(fake_block* block);
// of memory that the caller allocated, and frees
fake_block* fake_make_block(fake_kind kind, unsigned char* memory, size_t bytes);

// The block in which all of [memory, memory + bytes) lies; NULL: none.
fake_block* fake_find_block(const void* memory, size_t bytes);

fake_node* fake_new_node(fake_node_kind kind);
void fake_append(fake_list* list, fake_node* node);
void fake_copy_nodes(fake_list* to, const fake_list* from);
void fake_free_nodes(fake_list* list);
// into its capture, or its queue; the stream takes the node over
void fake_submit(fake_stream* stream, fake_node* node);
void fake_submit_again(fake_stream* stream, fake_node* node); // of a graph: not for the log
void fake_drain(fake_stream* stream);     // up to a wait for a shared semaphore that was not signalled
void fake_drain_event(fake_event* event); // does what is before its newest record
void fake_drain_all(void);

// The log of calls (fake_log.c), if the test wants one. Between fake_log_call and fake_log_result the others add to the
// lines of the call.
void fake_log_call(const char* name);
void fake_log_result(CUresult result);
void fake_log_add(const char* format, ...) FAKE_PRINTF;
void fake_log_object(const char* before, const void* handle); // that is alive
void fake_log_handle(const void* handle, fake_kind kind);     // that may be dead or of another kind
void fake_log_address(const void* memory);
void fake_log_node(const fake_node* node, bool is_captured);

// PTX: the functions of a module. False: newer than the driver, or no PTX.
bool fake_read_ptx(fake_module* module, const char* text, int newest);
#endif
