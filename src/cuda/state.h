// The state of the runner.
#ifndef SUMI_CUDA_STATE_H
#define SUMI_CUDA_STATE_H
#include "cuda/cuda.h"
#include "cuda/port_cuda.h"
#include "device/stock.h"

#define SUMI_CUDA_ARRIVALS 65536 // counters of kernels that share k (launch.h)

// The place in pinned memory to which a bound value that the engine reads is copied: an offset in `pages`.
typedef struct sumi_cuda_mirror {
    sumi_value value;
    uint64_t offset;
    CUevent event;
    bool is_pending;
} sumi_cuda_mirror;

// Pinned memory is used in pages of this size, and allocated one by one in frames of the host program: pinning a
// megabyte takes about a millisecond. Elsewhere up to four are allocated at once, in 0.6 of the time per page (H200).
#define SUMI_CUDA_PAGE (1u << 20)
#define SUMI_CUDA_MOST_PAGES 4
#define SUMI_CUDA_RING_PAGES 4 // the largest ring buffer of inputs

// The graph of a group of slices, of a slice, or of a segment of a slice. A segment is the whole slice, except for plans
// that stream weights. The slices are as captured.
typedef struct sumi_cuda_graph {
    CUgraphExec exec;
    sumi_slice slice, last, segment; // of a group: its first and last slice, and the first slice again
    int32_t slice_index, slice_count;
} sumi_cuda_graph;

// Graphs of a plan, in the order of the slices.
typedef struct sumi_cuda_graphs {
    sumi_cuda_graph* list;
    int32_t count, capacity;
    int32_t graphed_slices; // slices [0, graphed_slices) have their graphs
    bool has_most;          // the slices after them get none (SUMI_CUDA_MAX_GRAPHS)
} sumi_cuda_graphs;

// The runner's record of a plan, from its first `reserve` or `prepare` to `release_plan`.
typedef struct sumi_cuda_plan {
    sumi_device_plan held; // first, because the room `device` knows this part of the record only
    const sumi_op* ops;
    size_t op_count;             // used to notice another plan at the same address
    size_t ring_pages;           // of the ring buffer, for its inputs
    uint64_t mirror_end;         // end of its mirrors in `pages`
    sumi_device_block constants; // pinned memory with all constants, each at a multiple of 64 bytes
    sumi_cuda_mirror* mirrors;
    int32_t mirror_count;
    // Of slices, which calls with a budget submit one by one, and of groups. Each is made when it is first needed.
    sumi_cuda_graphs graphs, group_graphs;
    int32_t walked_ops;  // ops [0, walked_ops) have their kernels' images noted (modules.h)
    bool has_kernels;    // all their images are loaded
    bool without_graphs; // the driver failed to make graphs
} sumi_cuda_plan;

typedef struct sumi_cuda_flight {
    CUevent arrival;    // if measures_delay: before the empty kernel that `begin` follows
    CUevent begin, end; // `begin` is recorded after the wait for the weights of the first op
    CUevent from;       // where the slice's time begins: `begin`, or `end` of the slice before it
    bool has_waits;     // the slice waits for weights of a later op
    bool measures_delay;
    int32_t last_fetch; // index of the mirror that was copied last after this slice; -1: none
    const sumi_cuda_plan* plan;
} sumi_cuda_flight;

#define SUMI_CUDA_FLIGHTS (SUMI_RUNNER_DEPTH + 1)
#define SUMI_CUDA_WRITES 32 // copies of bound inputs that may be in flight

typedef struct sumi_cuda_write {
    CUevent event;
    uint64_t begin, end;
} sumi_cuda_write;

typedef struct sumi_cuda {
    sumi_runner runner; // first, because the engine has a pointer to it
    sumi_heap* heap;
    sumi_cuda_options options;
    sumi_cuda_device device;
    sumi_cuda_port port;
    sumi_device_stock stock; // its plans are the first members of sumi_cuda_plan (sumi_cuda_plan_at)
    sumi_cuda_modules* modules;
    bool is_loaded;
    CUfunction empty_kernel; // once is_loaded
    bool measures_delay;     // of the slices that are submitted from now on
    sumi_rates rates;
    sumi_device_block fixed; // arrivals, then the counter
    // Pages of pinned memory, and the blocks in which they lie: the ring buffer of inputs, and the mirrors of one plan
    // at a time.
    unsigned char* ring[SUMI_CUDA_RING_PAGES];
    unsigned char** pages;
    sumi_device_block* page_blocks;
    size_t ring_count, page_count, page_capacity, page_block_count, page_block_capacity;
    // device memory that is neither free nor allocated by sumi (sumi_device_properties)
    atomic_uint_fast64_t uncounted_bytes;
    // Graphs that no plan uses any more, to be destroyed one by one (graphs.h).
    CUgraphExec* dropped_graphs;
    size_t dropped_count, dropped_capacity;
    // Graphs are captured in this stream. Nothing else runs in it.
    CUstream capture;
    // sumi_cuda_launch looks up the kernel and launches nothing. The first use of a kernel inside a capture could break
    // it.
    bool is_dry_run;
    sumi_cuda_plan* current; // the plan of the launchers, and the plan that was found last

    bool has_counter;
    int32_t counter; // value of the counter in device memory
    // One more than may be in flight: the oldest may need the end of the one before it.
    sumi_cuda_flight flights[SUMI_CUDA_FLIGHTS];
    uint32_t flight_first, flight_count; // slices, or groups of them, in flight that were not reported yet
    // The newest command in the compute stream is the end of the newest slice, so the next slice begins there.
    bool is_end_newest;
    // Recorded if somebody waits for everything. NULL: the ends of the slices and of copies can be waited for.
    CUevent wait_event;
    sumi_cuda_write writes[SUMI_CUDA_WRITES];
    uint32_t write_first, write_count;
    uint64_t ring_offset;
    sumi_error failure; // the first failure of a call that could not report it; a lost device stays here
} sumi_cuda;

static inline sumi_cuda_plan* sumi_cuda_plan_at(const sumi_cuda* cuda, size_t index)
{
    return (sumi_cuda_plan*)cuda->stock.plans[index];
}

// The slices in flight; index 0 is the oldest.
static inline sumi_cuda_flight* sumi_cuda_flight_at(sumi_cuda* cuda, uint32_t index)
{
    return &cuda->flights[(cuda->flight_first + index) % SUMI_CUDA_FLIGHTS];
}

// ---- Plans (plan_records.c)

// The runner's record of each plan, from the first `reserve` or `prepare` to `release_plan`.

uint64_t sumi_cuda_runner_scratch_bytes(const sumi_runner* runner, const sumi_plan* plan);
sumi_cuda_plan* sumi_cuda_find_plan(sumi_cuda* cuda, const sumi_plan* plan);
void sumi_cuda_free_record(sumi_cuda* cuda, sumi_cuda_plan* record);
// Returns the record of a plan, and makes it if the plan is new.
sumi_result sumi_cuda_take_plan(sumi_cuda* cuda, const sumi_plan* plan, sumi_cuda_plan** out_record, sumi_error* error);
void sumi_cuda_runner_release_plan(sumi_runner* runner, const sumi_plan* plan);
void sumi_cuda_runner_release_weights(sumi_runner* runner, const sumi_weight* const* weights, size_t count);

// The flags of events after copies: those that a thread can sleep on cost more (cuda.c), and wait_event replaces them.
static inline unsigned sumi_cuda_copy_event_flags(const sumi_cuda* cuda)
{
    return (cuda->wait_event != NULL ? CU_EVENT_DEFAULT : CU_EVENT_BLOCKING_SYNC) | CU_EVENT_DISABLE_TIMING;
}

// ---- Failures in calls that cannot report them, and waiting for the device (failure.c)

// Notes the failure of a driver call, to be reported later. After a lost device nothing is in flight any more.
void sumi_cuda_note_failure(sumi_cuda* cuda, CUresult result, const char* what);
// Called when the query of an event fails: the device is lost, and the ends of slices in flight will not be reported.
void sumi_cuda_lose_device(sumi_cuda* cuda, CUresult result);
// Returns the failure that was noted, if any.
sumi_result sumi_cuda_report_failure(const sumi_cuda* cuda, sumi_error* error);
// Returns `result`, and remembers a lost device.
sumi_result sumi_cuda_note_result(sumi_cuda* cuda, sumi_result result, const sumi_error* error);
// Enters the context, in functions that cannot report a failure.
bool sumi_cuda_enter_quietly(sumi_cuda* cuda, sumi_cuda_scope* out_scope);
// Waits until an event of the compute stream has passed. Where wait_event is, a thread that has to wait sleeps until
// everything that was submitted has ended.
void sumi_cuda_wait_for_event(sumi_cuda* cuda, CUevent event, const char* what);
// Waits until both streams have ended. sumi_device_settle does more, and calls it.
void sumi_cuda_wait_for_streams(sumi_cuda* cuda);
// Waits until the device has finished. Called before memory is freed: no slice may be running then, but copies may
// still be in flight.
void sumi_cuda_settle(sumi_cuda* cuda);

// ---- The runner's functions for device memory (plan/runner.h; runner_memory.c)

sumi_result sumi_cuda_runner_need(const sumi_runner* runner, const sumi_plan* plan, uint64_t memory_limit,
                                  sumi_device_need* out_need, sumi_error* error);
void sumi_cuda_runner_set_memory_limit(sumi_runner* runner, uint64_t bytes);
sumi_result sumi_cuda_runner_reserve(sumi_runner* runner, const sumi_plan* plan, sumi_error* error);
void sumi_cuda_release_memory(sumi_cuda* cuda);
void sumi_cuda_runner_release(sumi_runner* runner);
void sumi_cuda_runner_trim(sumi_runner* runner);
bool sumi_cuda_runner_evict(sumi_runner* runner, const sumi_plan* plan);
// Asks the driver how much memory is free, and notes how much is neither free nor allocated by sumi. Called whenever
// the driver's own memory has grown. The context must be current.
bool sumi_cuda_query_free_bytes(sumi_cuda* cuda, uint64_t* out_free_bytes);
void sumi_cuda_runner_capacity(sumi_runner* runner, sumi_device_capacity* out_capacity);
void sumi_cuda_runner_held_bytes(const sumi_runner* runner, uint64_t out_bytes[4]);
void sumi_cuda_runner_properties(const sumi_runner* runner, sumi_device_properties* out_properties);
#endif
