// A runner runs plans: there is one kind of runner per backend, and the engine knows backends only through this table
// of functions. A plan is written for one runner: sumi_runner_begin_plan.
//
// The CPU backend does the work inside `run`. A GPU backend submits the slice in `run`, and the slice ends later.
// Slices end in the order in which they were submitted, and the engine calls `collect` to learn of each.
//
//  load .. load | prepare .. prepare, reserve | start, write .. write | run, start_read, run, run, ..    | read .. read
//  kernels        weights, graphs      arena    inputs                  collect: the oldest slice's end  | results
#ifndef SUMI_PLAN_RUNNER_H
#define SUMI_PLAN_RUNNER_H
#include "plan/plan.h"

typedef struct sumi_runner sumi_runner;

// What a plan needs on a GPU if at most a given number of bytes may be held there.
typedef struct sumi_device_need {
    // All bytes on the device. If `fits`, at most the budget.
    uint64_t device_bytes;
    // Part of `device`: resident weights, the ring buffer for streamed weights, and staging for conversions during
    // uploads.
    uint64_t weight_bytes;
    uint64_t pinned_bytes;   // bytes of pinned host memory, streamed weights included
    uint64_t streamed_bytes; // bytes of weights that are copied from pinned host memory for each use
    bool fits;
} sumi_device_need;

// The memory of the device: how much sumi holds, and how much is free.
typedef struct sumi_device_capacity {
    uint64_t held_bytes, free_bytes; // held: by sumi; free: according to the driver, 0 if unknown
    // Whether `free` is known. False: the device memory comes from an allocator of the host program, which cannot be
    // asked.
    bool is_known;
    // The newest allocation that failed since the last call: bytes that sumi held at that time, bytes that were
    // refused. 0: no allocation has failed.
    uint64_t failed_held_bytes, failed_request_bytes;
} sumi_device_capacity;

typedef struct sumi_device_properties {
    uint64_t held_bytes[4];   // bytes that sumi holds now, for each sumi_memory_kind
    uint64_t device_bytes;    // the device's whole memory
    uint64_t uncounted_bytes; // bytes neither free nor held by sumi when the driver was last asked
    int32_t capability, driver;
    uint8_t uuid[16], luid[8]; // zero: unknown
} sumi_device_properties;

// A picture that is copied to device memory of the host program, or into another value.
typedef struct sumi_publication {
    sumi_value value; // element BYTE, or ACTIVATION for RGB32F; rows are pixels, 3 columns
    uint64_t first_pixel;
    int32_t width, height;
    sumi_format format;
    // Destination: linear device memory of the same context. 0: the destination is `into`, from byte into_offset on.
    // `into` may not be `value`.
    uint64_t address;
    sumi_value into;
    uint64_t into_offset;
    // Bytes from one row to the next in the destination, modulo 2^64: rows may go towards lower addresses.
    uint64_t row_bytes;
    struct CUevent_st* event;           // recorded after the copy; NULL: none
    const struct sumi_imported* import; // the import whose memory `address` is; NULL: memory of the host program
} sumi_publication;

// The time of a slice on the device, from the start of its first op to the end of its last op.
typedef struct sumi_slice_time {
    double us;
    // If has_delay: how long an empty kernel right before the slice has waited for a place on the device. A few
    // microseconds, or longer beside kernels of the host program.
    double delay_us;
    bool has_delay;
    bool has_waits; // the slice has waited for streamed weights, so its own work took less time than `us`
} sumi_slice_time;

// Memory or a semaphore of a graphics API that was imported (src/cuda/imports.c). All members but `address` are the
// runner's.
typedef struct sumi_imported {
    // Linear device memory of sumi, in which the image for the external is written first. 0: a semaphore.
    uint64_t address;
    uint64_t bytes;
    uint64_t pitch;        // bytes from row to row in it
    int32_t width, height; // pixels
    sumi_format format;
    uint64_t staging, staging_bytes; // pinned host memory for previews; 0: none
    bool staging_is_registered;
    void* stream;                  // copies into the external run here
    void* copied;                  // an event, recorded after each copy
    bool has_copied;               // it was recorded
    void* resource;                // of OpenGL, of D3D11_TEXTURE: mapped for each copy
    void *memory, *levels, *array; // of other APIs; `array` for images, `mapped` for rows
    uint64_t mapping;              // the address of the whole memory that the rows lie in
    uint64_t mapped, row_bytes;
    void* semaphore;
    sumi_external_kind kind;
} sumi_imported;

// A copy into an external.
typedef struct sumi_import_copy {
    sumi_imported* to;
    // The image as it lies at to->staging, rows tightly packed: a preview. False: at to->address.
    bool from_staging;
    const sumi_imported *wait, *signal; // semaphores; NULL: none
    uint64_t wait_value, signal_value;
} sumi_import_copy;

typedef void sumi_kernel_callback(const char* name, uint64_t use_count, void* user_data);

typedef struct sumi_runner_functions {
    void (*destroy)(sumi_runner* runner);
    const char* (*name)(const sumi_runner* runner);   // "cpu"
    const char* (*device)(const sumi_runner* runner); // "CPU, AVX-512, 2 threads"
    sumi_rates (*rates)(const sumi_runner* runner);   // for slicing; measured at creation, or refined later
    uint64_t (*element_bytes)(const sumi_runner* runner, sumi_element element);
    // Bytes that the backend needs beside the arena to run this plan (packing buffers, memory per worker). They are
    // included in the memory figures that sumi reports.
    uint64_t (*scratch_bytes)(const sumi_runner* runner, const sumi_plan* plan);
    // Makes the arena and the scratch memory large enough for the plan. Fails with an out-of-memory result; then the
    // block that should have grown may have been freed. Call only while no slice is in flight.
    sumi_result (*reserve)(sumi_runner* runner, const sumi_plan* plan, sumi_error* error);
    // Frees the arena and the scratch memory. Call only while no slice is in flight.
    void (*release)(sumi_runner* runner);
    // Begins a new run: writes the plan's constants. The inputs are written afterwards.
    void (*start)(sumi_runner* runner, const sumi_plan* plan);
    // Writes to a bound value. `data` is copied and may be freed at once.
    void (*write)(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, const void* data,
                  uint64_t bytes);
    // Reads a value. On a GPU: what it held at the last call of `start_read`; everything submitted before that call
    // must have been reported by `collect`. On the CPU: what it holds now.
    void (*read)(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, void* into,
                 uint64_t bytes);
    // Runs one slice with the given counter. The CPU returns after the work is done, a GPU after submitting it.
    sumi_result (*run)(sumi_runner* runner, const sumi_plan* plan, const sumi_slice* slice, int32_t counter,
                       sumi_error* error);
    bool (*idle)(sumi_runner* runner); // whether everything that was submitted has ended
    sumi_plan_arrange* arrange;        // see plan.h; reads only what does not change after the runner's creation

    // ---- NULL on the CPU --------------------------------------------------------------------------------------------
    // Does the next piece of loading kernels, once per runner. Any thread may call, but no other function may run at
    // the same time. May take seconds.
    sumi_result (*load)(sumi_runner* runner, bool* out_done, float* out_progress, sumi_error* error);
    // Whether the calls of `prepare` from now on are in updates with a budget. False at first.
    void (*pace)(sumi_runner* runner, bool is_paced);
    // How many images of kernels the driver is compiling now, and how many of them are done. 0: none. While there are
    // some, `prepare` waits for them and has nothing to do.
    int32_t (*compiling)(const sumi_runner* runner, int32_t* out_done);
    // Does the next piece, of about budget_us of this thread's time, of preparing a plan: copies its weights to the
    // device and, after `reserve` was called for the plan, makes its graphs. *out_done: nothing is left to do. Cheap if
    // everything is prepared.
    sumi_result (*prepare)(sumi_runner* runner, const sumi_plan* plan, uint32_t budget_us, bool* out_done,
                           float* out_progress, sumi_error* error);
    // Whether `reserve`, `prepare` and a new run would find everything prepared. If so, they wait for nothing, move
    // nothing and free nothing, and may be called while slices of another run are in flight.
    bool (*is_ready)(const sumi_runner* runner, const sumi_plan* plan);
    // Computes the plan's need within a budget (0: no limit). May be called while any other function runs; so may
    // `rates`, `scratch_bytes` and `arrange`.
    sumi_result (*need)(const sumi_runner* runner, const sumi_plan* plan, uint64_t budget, sumi_device_need* out_need,
                        sumi_error* error);
    // set_budget: sets the most device bytes to hold from now on (0: no limit). Plans that are prepared and reserved
    // later keep within the budget; for that, weights are streamed and weights of other plans are evicted. Call only
    // while no slice is in flight. trim: frees at once whatever exceeds the budget.
    void (*set_budget)(sumi_runner* runner, uint64_t bytes);
    void (*trim)(sumi_runner* runner);
    // Evicts memory that the plan does not use, after arena and scratch were released: weights of other plans, first
    // those that no step reads, and in a further call the rest. Returns false if nothing was left to evict. Call only
    // while no slice is in flight.
    bool (*evict)(sumi_runner* runner, const sumi_plan* plan);
    void (*capacity)(sumi_runner* runner, sumi_device_capacity* out_capacity); // the device's memory now
    // The plan will be freed: frees its graphs. Call only while none of its slices is in flight.
    void (*release_plan)(sumi_runner* runner, const sumi_plan* plan);
    // The weights will be freed: removes them from the device. Call only while nothing that uses them is in flight.
    void (*release_weights)(sumi_runner* runner, const sumi_weight* const* weights, size_t count);
    // Whether slices that are submitted from now on measure how long an empty kernel waits before them. False at first.
    void (*measure_delay)(sumi_runner* runner, bool enabled);
    // Reports the slices that have ended of those that were submitted and not yet reported, the oldest first, at most
    // `capacity`. Returns how many; 0 if the oldest still runs, or if there is none.
    int32_t (*collect)(sumi_runner* runner, sumi_slice_time* out_times, int32_t capacity);
    // The state of the device after submissions: SUMI_OK, SUMI_DEVICE_LOST or SUMI_INTERNAL.
    sumi_result (*health)(sumi_runner* runner, sumi_error* error);
    // The number of slices that were submitted and not yet reported. The engine submits at most SUMI_RUNNER_DEPTH.
    int32_t (*pending)(const sumi_runner* runner);
    // Blocks until at least this many of the oldest unreported slices (or all, if there are fewer) have ended. Each
    // time the thread sleeps and wakes costs CPU time.
    void (*wait)(sumi_runner* runner, int32_t slices);
    // Copies a bound value to where `read` finds it, after all slices submitted so far. At most one read of a value
    // may be pending.
    sumi_result (*start_read)(sumi_runner* runner, const sumi_plan* plan, sumi_value value, sumi_error* error);
    // Writes a picture to its destination, after all slices submitted so far.
    sumi_result (*publish)(sumi_runner* runner, const sumi_plan* plan, const sumi_publication* picture,
                           sumi_error* error);
    // Imports memory or a semaphore as the desc says, whose members the engine has checked, and allocates the memory in
    // which an image is written first. No other function may run at the same time. On failure *out_import is zeroed.
    sumi_result (*import)(sumi_runner* runner, const sumi_import_desc* desc, sumi_imported* out_import,
                          sumi_error* error);
    // Waits for the copies into the external. Accepts semaphores, which have none.
    void (*finish_import)(sumi_runner* runner, const sumi_imported* import);
    // Accepts a zeroed import. Nothing may be writing to its memory. Waits for the copies into it.
    void (*release_import)(sumi_runner* runner, sumi_imported* import);
    // Whether a copy into the external has not ended.
    bool (*is_copying)(sumi_runner* runner, const sumi_imported* import);
    // Puts the copy between its wait and its signal into the external's stream, without waiting. May be called while
    // any other function runs, but not for the same import.
    sumi_result (*copy_to_import)(sumi_runner* runner, const sumi_import_copy* copy, sumi_error* error);
    // Blocks until everything that was submitted has ended, copies and publications included.
    void (*wait_all)(sumi_runner* runner);
    void (*properties)(const sumi_runner* runner,
                       sumi_device_properties* out_properties);           // for sumi_engine_info; any thread
    void (*held_bytes)(const sumi_runner* runner, uint64_t out_bytes[4]); // by sumi_memory_kind; any thread
    // For tests: lists every kernel that is built for this device, and how often it was looked up for a launch. A
    // launch into a graph counts twice, because the kernel is also looked up before the capture.
    void (*list_kernels)(const sumi_runner* runner, sumi_kernel_callback* seen, void* user_data);
} sumi_runner_functions;

#define SUMI_RUNNER_DEPTH 64

struct sumi_runner {
    const sumi_runner_functions* functions;
};

// Calls sumi_plan_begin with the runner's activation size, and sets the runner's `arrange`.
void sumi_runner_begin_plan(const sumi_runner* runner, sumi_plan* plan, sumi_heap* heap);
#endif
