// Slices after sumi_runner_functions.run: how the engine learns of their ends, waits for them, and gets values and
// pictures after them. Every backend has every function. The CPU never has anything in flight: `run` returns at a
// slice's end, so its functions return at once.
//
// Slices end in the order in which they were submitted. Work submitted here (start_read, publish) comes after all
// slices that were submitted before it.
//
//      run, start_read, run, run, ..     collect, collect, ..            read
//      |                                 |                               |
//      pending: 1 .. SUMI_RUNNER_DEPTH   the oldest slices have ended    the value as it was at its start_read
#ifndef SUMI_PLAN_ASYNC_H
#define SUMI_PLAN_ASYNC_H
#include "plan/plan.h"

typedef struct sumi_runner sumi_runner; // plan/runner.h

// The most slices that may be pending.
#define SUMI_RUNNER_DEPTH 64

// The time of a slice on the device, from the start of its first op to the end of its last op.
typedef struct sumi_slice_time {
    double us;
    // If has_delay: how long an empty kernel right before the slice has waited for a place on the device. A few
    // microseconds, or longer beside kernels of the host program.
    double delay_us;
    bool has_delay;
    bool has_waits; // the slice has waited for streamed weights, so its own work took less time than `us`
} sumi_slice_time;

// A picture that is copied to device memory of the host program, or into another value.
typedef struct sumi_publication {
    sumi_value value; // element BYTE, or ACTIVATION for formats of floats; rows are pixels, 3 or 4 columns
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
    struct CUevent_st* event; // recorded after the copy; NULL: none
    // The import whose memory `address` is (interop/interop.h); NULL: memory of the host program.
    const struct sumi_imported* import;
} sumi_publication;

// A control picture that is made of a depth buffer in memory of the host program.
typedef struct sumi_depth_input {
    sumi_value value; // element BYTE; rows are pixels, 3 columns
    int32_t width, height;
    // The import that has the depth (interop/interop.h); interop->copy_to_import was called. The picture is also copied
    // to its `staging`, which grows here: a later control picture overwrites it.
    struct sumi_imported* import;
    const sumi_depth* depth;
    bool is_inverse; // greys are linear in 1 / distance: SUMI_STRETCH_INVERSE of pictures/depth.h
} sumi_depth_input;

// Slices in a row, of one section. Those that are a whole group (sumi_slice.group_count) are one graph on a GPU.
typedef struct sumi_slice_groups {
    const sumi_slice* slices;
    int32_t count; // of slices
} sumi_slice_groups;

// All are called by one thread at a time, the one that calls sumi_runner_functions.run.
typedef struct sumi_async_functions {
    // Runs these slices as sumi_runner_functions.run does one slice. Together they are pending, and their end and time
    // are reported, as if they were one slice. For plans that stream no weights. Never called for the CPU.
    sumi_result (*run_groups)(sumi_runner* runner, const sumi_plan* plan, const sumi_slice_groups* groups,
                              int32_t counter, sumi_error* error);
    // Whether slices that are submitted from now on measure how long an empty kernel waits before them. False at first.
    // Does not block. On the CPU nothing is measured.
    void (*measure_delay)(sumi_runner* runner, bool enabled);
    // Reports submitted slices that have ended and were not reported yet, the oldest first, at most `capacity`, which
    // is at least 1. Returns how many; 0 if the oldest still runs, or if there is none. Does not block. Work submitted
    // after a reported slice and before the next one has ended too. The CPU reports none: the caller of `run` knows
    // their ends and measures their times. A lost device reports nothing any more; if a time cannot be measured, 0 us
    // is reported.
    int32_t (*collect)(sumi_runner* runner, sumi_slice_time* out_times, int32_t capacity);
    // The number of slices that were submitted and not yet reported, SUMI_RUNNER_DEPTH at most. Does not block. 0 on
    // the CPU and for a lost device.
    int32_t (*pending)(const sumi_runner* runner);
    // Blocks until at least this many of the oldest unreported slices (or all, if there are fewer) have ended; returns
    // at once if there are none. Reports none of them. Each time the thread sleeps and wakes costs CPU time. If the
    // device is lost meanwhile, it returns, and `health` says so.
    void (*wait)(sumi_runner* runner, int32_t slices);
    // Blocks until everything that was submitted has ended, copies and publications included. Slices stay unreported.
    void (*wait_all)(sumi_runner* runner);
    // Whether everything that was submitted has ended, without copies into imports. True if the device is lost. Does
    // not block.
    bool (*idle)(sumi_runner* runner);
    // The state after submissions, and after calls that report no failure themselves: SUMI_OK, or SUMI_DEVICE_LOST,
    // which stays, or SUMI_INTERNAL until the next `start`. Does not block. SUMI_OK on the CPU.
    sumi_result (*health)(sumi_runner* runner, sumi_error* error);
    // Copies a bound value for `read`, after all slices submitted so far. At most one read of a value may
    // be pending. Does not block. Fails with SUMI_INTERNAL if the value is not bound or no op writes it, and with
    // SUMI_DEVICE_LOST. The CPU copies nothing: `read` finds the value itself.
    sumi_result (*start_read)(sumi_runner* runner, const sumi_plan* plan, sumi_value value, sumi_error* error);
    // Writes a picture to its destination, after all slices submitted so far. Does not block. Fails with
    // SUMI_DEVICE_LOST or SUMI_INTERNAL; always, with SUMI_NOT_SUPPORTED, without sumi_runner_traits.has_memory.
    sumi_result (*publish)(sumi_runner* runner, const sumi_plan* plan, const sumi_publication* picture,
                           sumi_error* error);
    // Writes a control picture to a bound value, after all slices submitted so far and the copy of the depth. Blocks
    // only while the import's `staging` grows. Fails with SUMI_OUT_OF_HOST_MEMORY or as `publish` does.
    sumi_result (*write_depth)(sumi_runner* runner, const sumi_plan* plan, const sumi_depth_input* input,
                               sumi_error* error);
} sumi_async_functions;
#endif
