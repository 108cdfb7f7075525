// A runner runs plans: there is one kind of runner per backend, and the engine knows backends only through sumi_runner:
//
//   traits      what the backend is and has; no decision of the engine depends on a missing function
//   functions   what every backend does: plans, memory, preparing, running
//   async       slices after `run`; every backend has it too (plan/async.h)
//   interop     imports of the host program's graphics API (interop/interop.h); NULL: this backend imports nothing
//
// A plan is written for one runner: sumi_runner_begin_plan.
//
// The CPU backend does the work inside `run`. A GPU backend submits the slice in `run`, and the slice ends later.
//
//  load .. load | prepare .. prepare, reserve | start, write .. write | run, start_read, run, run, ..    | read .. read
//  kernels        weights, graphs      arena    inputs                  collect: the oldest slice's end  | results
//
// Every function of `functions` and `async` exists in every backend. One that has nothing to do in a backend returns at
// once, as if it had been done. Unless a member says otherwise, only one thread at a time calls (in the engine it holds
// the pump lock), and the call does not wait for the device. After a lost device (SUMI_DEVICE_LOST) nothing is in
// flight, and every function that may fail does so with this result. async->health reports failures in functions that
// return none.
#ifndef SUMI_PLAN_RUNNER_H
#define SUMI_PLAN_RUNNER_H
#include "plan/async.h"
#include "plan/plan.h"

// The need of a plan if at most a given number of bytes may be held on the device. On the CPU: device_bytes and `fits`
// for arena and scratch memory.
typedef struct sumi_device_need {
    // All bytes on the device. If `fits`, at most the memory limit.
    uint64_t device_bytes;
    // Part of device_bytes: resident weights, the ring buffer for streamed weights, and staging for conversions during
    // uploads.
    uint64_t weight_bytes;
    uint64_t pinned_bytes;   // bytes of pinned host memory, streamed weights included
    uint64_t streamed_bytes; // bytes of weights that are copied from pinned host memory for each use
    bool fits;
} sumi_device_need;

// The memory of the device: how much sumi holds, and how much is free.
typedef struct sumi_device_capacity {
    uint64_t held_bytes, free_bytes; // held: by sumi; free: according to the driver, 0 if unknown
    // Whether free_bytes is known. False: the device memory comes from an allocator of the host program, which cannot
    // be asked.
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

typedef void sumi_kernel_callback(const char* name, uint64_t use_count, void* user_data);

// The properties of a backend. Constant from the runner's creation; any thread may read them.
typedef struct sumi_runner_traits {
    // Slices run on a device, beside the thread that submits them: `run` returns before the slice ends, many can be in
    // flight, and `collect` reports their times. False: `run` returns at the slice's end, may be given a part of a
    // slice, and its caller measures the time.
    bool has_device;
    // The device has its own memory. Weights are copied to it, and may be streamed and evicted; memory limits
    // count them beside arena and scratch memory; `held_bytes` and `capacity` return the sums; pictures can be written to memory
    // of the host program there. False: weights are read where their file is mapped, and the engine itself counts arena
    // and scratch memory.
    bool has_memory;
    // A plan runs only after `load`, and after `prepare` has said that nothing is left to do; weights are prepared
    // while a model loads. False: both have nothing to do.
    bool needs_preparing;
    // The host program may choose formats of weights and attention (sumi_model_desc). False: weights are read as they
    // are stored, and all arithmetic is in float32.
    bool has_formats;
} sumi_runner_traits;

typedef struct sumi_runner_functions {
    // ---- The object -------------------------------------------------------------------------------------------------
    // Frees the runner and everything of it. Accepts NULL. Blocks until everything that was submitted has ended.
    void (*destroy)(sumi_runner* runner);
    // "cpu". The text is static. Any thread.
    const char* (*name)(const sumi_runner* runner);
    // "CPU, AVX-512, 2 threads". The text lives as long as the runner. Any thread.
    const char* (*device)(const sumi_runner* runner);
    // Speeds for slicing: measured at creation, or guessed from the device's properties. Any thread, also while any
    // other function runs.
    sumi_rates (*rates)(const sumi_runner* runner);
    // What the device is, for sumi_engine_info. Without has_memory everything is 0. Any thread, also while any other
    // function runs.
    void (*properties)(const sumi_runner* runner, sumi_device_properties* out_properties);
    // Bytes that the runner holds on the device, by sumi_memory_kind, for every poll of a job. Without has_memory they
    // are 0. Any thread, also while any other function runs.
    void (*held_bytes)(const sumi_runner* runner, uint64_t out_bytes[4]);
    // For tests: lists every kernel that is built for this device, and how often it was looked up for a launch. A
    // launch into a graph counts twice, because the kernel is also looked up before the capture. The CPU lists none.
    void (*list_kernels)(const sumi_runner* runner, sumi_kernel_callback* seen, void* user_data);

    // ---- Plans ------------------------------------------------------------------------------------------------------
    // Bytes of an element in the arena. Any thread.
    uint64_t (*element_bytes)(const sumi_runner* runner, sumi_element element);
    // See plan.h; reads only data that does not change after the runner's creation. Any thread, also while any other
    // function runs.
    sumi_plan_arrange* arrange;
    // Bytes that the backend needs beside the arena to run this plan (packing buffers, memory per worker). They are
    // included in the memory figures that sumi reports. Any thread, also while any other function runs.
    uint64_t (*scratch_bytes)(const sumi_runner* runner, const sumi_plan* plan);
    // Computes the plan's need within a memory limit (0: none). Not fitting does not count as a failure. Any thread,
    // also while any other function runs. Fails with SUMI_OUT_OF_HOST_MEMORY.
    sumi_result (*need)(const sumi_runner* runner, const sumi_plan* plan, uint64_t memory_limit,
                        sumi_device_need* out_need, sumi_error* error);
    // The plan will be freed: frees its graphs, and waits for copies of its constants. Accepts plans that it does not
    // know. Call only while none of its slices is in flight.
    void (*release_plan)(sumi_runner* runner, const sumi_plan* plan);

    // ---- Preparing --------------------------------------------------------------------------------------------------
    // Does the next piece of loading kernels, once per runner. Any thread may call it, but no other function may run at
    // the same time, except those that any thread may call. May take seconds. *out_done: nothing is left to do. Fails
    // with an out-of-memory result, SUMI_DRIVER_TOO_OLD, SUMI_DEVICE_LOST or SUMI_INTERNAL; another call tries again.
    sumi_result (*load)(sumi_runner* runner, bool* out_done, float* out_progress, sumi_error* error);
    // Whether calls of `prepare` are in updates with a budget from now on. False at first.
    void (*pace)(sumi_runner* runner, bool is_paced);
    // How many images of kernels the driver is compiling now, and how many of them are done. 0: none. While there are
    // some, `prepare` waits for them and has nothing to do.
    int32_t (*compiling)(const sumi_runner* runner, int32_t* out_done);
    // Does the next piece, of about budget_us of this thread's time, of preparing a plan: copies its weights to the
    // device and, after `reserve` was called for the plan, makes its graphs. *out_done: nothing is left to do. Cheap if
    // everything is prepared. May wait for copies when a memory limit makes it move weights. Fails with an
    // out-of-memory result or with SUMI_BUDGET_TOO_SMALL (weights that cannot be evicted leave less than the plan
    // needs), after which the plan may be prepared again; or as `load` does.
    sumi_result (*prepare)(sumi_runner* runner, const sumi_plan* plan, uint32_t budget_us, bool* out_done,
                           float* out_progress, sumi_error* error);
    // Whether `reserve`, `prepare` and a new run would find everything prepared. If so, they wait for nothing, move
    // nothing and free nothing, and may be called while slices of another run are in flight.
    bool (*is_ready)(const sumi_runner* runner, const sumi_plan* plan);

    // ---- Memory -----------------------------------------------------------------------------------------------------
    // Sets the most device bytes to hold from now on (0: no limit). Plans that are prepared and reserved later keep
    // within the limit; for that, weights are streamed and weights of other plans are evicted. Call only while no
    // slice is in flight.
    void (*set_memory_limit)(sumi_runner* runner, uint64_t bytes);
    // Frees at once whatever exceeds the limit, and waits for the copies into it. Call only while no slice is in
    // flight.
    void (*trim)(sumi_runner* runner);
    // Evicts memory that the plan does not use, after arena and scratch were released: weights of other plans, first
    // those that no step reads, and in a further call the rest. Returns false if nothing was left to evict. Waits for
    // copies into it. Call only while no slice is in flight.
    bool (*evict)(sumi_runner* runner, const sumi_plan* plan);
    // The device's memory now; asks the driver. Without has_memory nothing is known, and everything is 0.
    void (*capacity)(sumi_runner* runner, sumi_device_capacity* out_capacity);
    // Makes the arena and the scratch memory large enough for the plan. Fails with an out-of-memory result; then the
    // block that should have grown may have been freed. Waits for copies if it frees a block. Call only while no slice
    // is in flight.
    sumi_result (*reserve)(sumi_runner* runner, const sumi_plan* plan, sumi_error* error);
    // Frees the arena and the scratch memory, and waits for copies into them. Call only while no slice is in flight.
    void (*release)(sumi_runner* runner);
    // The weights will be freed: removes them from the device, and waits for copies into them. Accepts weights that it
    // does not know. Call only while nothing that uses them is in flight.
    void (*release_weights)(sumi_runner* runner, const sumi_weight* const* weights, size_t count);

    // ---- Running ----------------------------------------------------------------------------------------------------
    // A number that changes whenever the arena may have lost what it holds, other than by runs and writes. 0: always.
    uint64_t (*arena_serial)(const sumi_runner* runner);
    // Begins a new run: writes the plan's constants. The inputs are written afterwards. Call only for a plan that was
    // prepared and reserved. Forgets a failure of the run before, but not a lost device.
    void (*start)(sumi_runner* runner, const sumi_plan* plan);
    // Writes to a bound value, after all slices submitted so far. `data` is copied and may be freed at once. Blocks
    // only while the runner's buffer for inputs is full of copies that wait for slices.
    void (*write)(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, const void* data,
                  uint64_t bytes);
    // Reads a value. With has_device: its content at the last call of `start_read`; blocks unless `collect` has
    // reported everything submitted before that call. Without: its content now. After a read other threads may read the
    // same value at the same time, until the next call of another function.
    void (*read)(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, void* into,
                 uint64_t bytes);
    // Runs one slice with the given counter. With has_device it returns after submitting the slice, and at most
    // SUMI_RUNNER_DEPTH slices may be pending; without, after the work is done. Fails with SUMI_DEVICE_LOST or
    // SUMI_INTERNAL on a device, and with the result of an op on the CPU.
    sumi_result (*run)(sumi_runner* runner, const sumi_plan* plan, const sumi_slice* slice, int32_t counter,
                       sumi_error* error);
} sumi_runner_functions;

struct sumi_runner {
    const sumi_runner_functions* functions;
    const sumi_async_functions* async;
    const struct sumi_interop_functions* interop; // NULL: the backend imports nothing
    sumi_runner_traits traits;
};

// Calls sumi_plan_begin with the runner's activation size, and sets the runner's `arrange`.
static inline void sumi_runner_begin_plan(const sumi_runner* runner, sumi_plan* plan, sumi_heap* heap)
{
    sumi_plan_begin(plan, heap, (int32_t)runner->functions->element_bytes(runner, SUMI_ELEMENT_ACTIVATION));
    plan->arrange = runner->functions->arrange;
    plan->runner = runner;
}
#endif
