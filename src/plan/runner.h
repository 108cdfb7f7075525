// What runs a plan: one runner per backend. The engine knows backends only through this table. A plan is written for
// the runner that will run it: sumi_runner_begin_plan.
//
// A processor does the work inside `run`. A GPU only takes it: slices are submitted in order and finish later, in the
// same order, and the engine asks `finished` for each.
//
//   load .. load | prepare .. prepare, reserve | start, write .. write | run, fetch, run, run, fetch ..      | read .. read
//   kernels        weights, graphs      arena    inputs                  finished <- oldest of them, its time | what was fetched
#ifndef SUMI_PLAN_RUNNER_H
#define SUMI_PLAN_RUNNER_H
#include "plan/plan.h"

typedef struct sumi_runner sumi_runner;

// What a plan needs of a GPU on which at most so many bytes may be held.
typedef struct sumi_device_need {
    uint64_t device; // bytes on the device, of everything: never more than the budget when it fits
    // of them: weights that stay there, the room that others pass through, the room for conversions while they arrive
    uint64_t weights;
    uint64_t pinned;   // host memory, streamed weights included
    uint64_t streamed; // bytes of weights that come from pinned memory whenever they are used
    bool fits;
} sumi_device_need;

// What there is on a device beside a plan's need.
typedef struct sumi_device_room {
    uint64_t held, free;               // by us; by nobody, as the driver says: 0 when it does not
    bool is_known;                     // it does. False: the memory is a host's allocator's, which cannot be asked
    uint64_t short_held, short_wanted; // when the newest allocation failed: held, refused; 0: none since the last call
} sumi_device_room;

typedef struct sumi_device_facts {
    uint64_t held[4];   // by sumi_memory_kind, now
    uint64_t bytes;     // of the device
    uint64_t uncounted; // neither free nor held by us, when the driver was asked last
    int32_t capability, driver;
} sumi_device_facts;

// A picture for memory of the host's on the device, or for another value.
typedef struct sumi_publication {
    sumi_value value; // BYTE, for RGB32F ACTIVATION: rows are pixels, 3 columns
    uint64_t first_pixel;
    int32_t width, height;
    sumi_format format;
    // linear device memory of the same context; 0: at `into_offset` in `into`, which may not be `value`
    uint64_t address;
    sumi_value into;
    uint64_t into_offset;
    uint64_t row_bytes;       // added from row to row, modulo 2^64: rows may go towards lower addresses
    struct CUevent_st* event; // recorded behind it; NULL: none
} sumi_publication;

// A slice's time on the device, from the begin of its first op to the end of its last. has_waits: it waited for
// streamed weights in between, so that its own work took less.
typedef struct sumi_slice_time {
    double us;
    bool has_waits;
} sumi_slice_time;

// address: linear memory of ours for its picture
typedef struct sumi_import {
    void* resource;
    uint64_t address, bytes;
} sumi_import;

typedef void sumi_kernel_seen(const char* name, uint64_t use_count, void* user_data);

typedef struct sumi_runner_functions {
    void (*destroy)(sumi_runner* runner);
    const char* (*name)(const sumi_runner* runner);   // "cpu"
    const char* (*device)(const sumi_runner* runner); // "x86-64 AVX-512, 2 threads"
    sumi_rates (*rates)(const sumi_runner* runner);   // for slicing; measured once at creation or refined
    uint64_t (*element_bytes)(const sumi_runner* runner, sumi_element element);
    // Extra bytes the backend needs beside the arena to run this plan (packing buffers, per worker): part of the exact
    // memory answer.
    uint64_t (*scratch_bytes)(const sumi_runner* runner, const sumi_plan* plan);
    // Makes arena and scratch large enough for the plan. Fails with an out-of-memory result; of what was there, the
    // block that was to grow may be gone. Nothing runs.
    sumi_result (*reserve)(sumi_runner* runner, const sumi_plan* plan, sumi_error* error);
    void (*release)(sumi_runner* runner);                      // gives arena and scratch back; nothing runs
    void (*start)(sumi_runner* runner, const sumi_plan* plan); // a new run: constants are written, bound inputs not yet
    // `data` may go right after
    void (*write)(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, const void* data,
                  uint64_t bytes);
    // What the value held when `fetch` was called last (a GPU), or holds now (the processor). Everything submitted
    // before that fetch has been reported by `finished`.
    void (*read)(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, void* into,
                 uint64_t bytes);
    // Runs one slice with the given counter. The processor returns when it is done; a GPU after submitting.
    sumi_result (*run)(sumi_runner* runner, const sumi_plan* plan, const sumi_slice* slice, int32_t counter,
                       sumi_error* error);
    bool (*idle)(sumi_runner* runner); // everything submitted has finished

    // ---- NULL on the processor --------------------------------------------------------------------------------------
    sumi_plan_arrange* arrange; // see plan.h; reads what is known since the runner was created
    // Once per runner: the next piece of loading kernels. Any thread without any other call beside it; may take
    // seconds.
    sumi_result (*load)(sumi_runner* runner, bool* out_done, float* out_progress, sumi_error* error);
    // The next piece (about budget_us of this thread's time) of what a plan needs before it can run: its weights on the
    // device, and, once `reserve` was called for it, its graphs. *out_done when nothing is left. Cheap when everything
    // is there.
    sumi_result (*prepare)(sumi_runner* runner, const sumi_plan* plan, uint32_t budget_us, bool* out_done,
                           float* out_progress, sumi_error* error);
    // Whether `reserve`, `prepare` and a new run would find everything there: then they wait for nothing, move nothing
    // and free nothing, and may be called while another run's slices are in flight.
    bool (*is_ready)(const sumi_runner* runner, const sumi_plan* plan);
    // budget 0: no limit. Beside any other call, as `rates`, `scratch_bytes` and `arrange`
    sumi_result (*need)(const sumi_runner* runner, const sumi_plan* plan, uint64_t budget, sumi_device_need* out_need,
                        sumi_error* error);
    // The most device bytes to hold from now on (0: no limit). Plans that are prepared and reserved later keep to it,
    // and take from others what they need for that: weights are streamed, those of other plans go. Nothing runs. `trim`
    // gives back at once what is above it.
    void (*set_budget)(sumi_runner* runner, uint64_t bytes);
    void (*trim)(sumi_runner* runner);
    // Takes off the device what the plan does not use: weights of others, first those that no step reads, in another
    // call the rest. False when there is nothing. Nothing runs, and arena and scratch were given back.
    bool (*evict)(sumi_runner* runner, const sumi_plan* plan);
    void (*room)(sumi_runner* runner, sumi_device_room* out_room);   // now
    void (*forget_plan)(sumi_runner* runner, const sumi_plan* plan); // it goes: graphs; nothing of it runs
    // they go; nothing that uses them runs
    void (*forget_weights)(sumi_runner* runner, const sumi_weight* const* weights, size_t count);
    // Reports the oldest slice that was submitted and not yet reported: false while it runs, or when there is none.
    bool (*finished)(sumi_runner* runner, sumi_slice_time* out_time);
    // After submitting: SUMI_OK while the device is well. SUMI_DEVICE_LOST, SUMI_INTERNAL.
    sumi_result (*health)(sumi_runner* runner, sumi_error* error);
    // slices submitted and not yet reported; the engine submits at most SUMI_RUNNER_DEPTH
    int32_t (*pending)(const sumi_runner* runner);
    // blocks until that many of the oldest unreported slices (or all there are) have finished, perhaps more of them;
    // each sleep and waking costs the host time
    void (*wait)(sumi_runner* runner, int32_t slices);
    // Copies a bound value to where `read` finds it, after the slices submitted so far. At most one fetch of a value
    // may be unread.
    sumi_result (*fetch)(sumi_runner* runner, const sumi_plan* plan, sumi_value value, sumi_error* error);
    // Writes a picture there, after the slices submitted so far.
    sumi_result (*publish)(sumi_runner* runner, const sumi_plan* plan, const sumi_publication* picture,
                           sumi_error* error);
    // A texture of the host's and the memory in which a picture waits for it. Not while anything else is called; the
    // host's graphics context is current.
    sumi_result (*import_gl)(sumi_runner* runner, uint32_t texture, uint32_t target, int32_t width, int32_t height,
                             sumi_import* out_import, sumi_error* error);
    // accepts a zeroed one; nothing writes to its memory
    void (*release_import)(sumi_runner* runner, sumi_import* import);
    // Copies what lies in its memory into the texture, in order with the graphics' own work, without waiting. Beside
    // any other call.
    sumi_result (*show)(sumi_runner* runner, const sumi_import* import, int32_t width, int32_t height,
                        sumi_error* error);
    // blocks until all that was submitted is over, copies and publications too
    void (*settle)(sumi_runner* runner);
    void (*facts)(const sumi_runner* runner, sumi_device_facts* out_facts); // for sumi_engine_info; any thread
    bool (*has_cublaslt)(const sumi_runner* runner);                        // likewise
    // Every kernel that is made for this device, and how often it was looked up for a launch (for one into a graph
    // twice: before the capture too). For tests.
    void (*list_kernels)(const sumi_runner* runner, sumi_kernel_seen* seen, void* user_data);
} sumi_runner_functions;

#define SUMI_RUNNER_DEPTH 64

struct sumi_runner {
    const sumi_runner_functions* functions;
};

// sumi_plan_begin for a plan that this runner will run: with its elements, and arranged by it.
void sumi_runner_begin_plan(const sumi_runner* runner, sumi_plan* plan, sumi_heap* heap);
#endif
