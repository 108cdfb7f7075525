// The runner of one GPU: how a run proceeds. It uses state.h, transfers.h and memory_share.h.
//
//   compute stream   [write ..] [counter] e slice e slice e  [fetch] f  [counter] e slice e ..
//
//   e: a timed event at the end of each slice, and before one that does not directly follow another; f: one event per
//   value that is fetched
//
// All work of a run goes into the compute stream, in order, so nothing else needs to be ordered. Outputs are read
// through pinned memory, after an event; inputs are written through a pinned ring buffer. Between `start` and the last
// `read` nothing is allocated, and the caller waits only for a full ring buffer, in `wait`, and in a `read` of a value
// whose copy has not ended.
//
// A call that cannot report a failure (write, read, collect) keeps it in `failure` for the next call that can. A lost
// device stays lost, and then nothing is in flight.
#include "cuda/cuda.h"
#include "base/assert.h"
#include "base/platform.h"
#include "cuda/arrange.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/graphs.h"
#include "cuda/modules.h"
#include "cuda/state.h"
#include "cuda/transfers.h"
#include "device/device_memory.h"
#include "device/memory_share.h"
#include "device/residency.h"
#include "device/streaming.h"
#include "device/upload.h"
#include "interop/interop.h"
#include "kernels/upload.h"
#include <stdio.h>
#include <string.h>

// ---- Before a run ---------------------------------------------------------------------------------------------------

// In the first cuMemFreeAsync of a context the driver makes its memory pool, which takes 7 to 12 ms of the CPU; the
// next ones take microseconds (H100, driver 580). The first picture would pay for this in a frame of the host program.
static void free_first(const sumi_cuda* cuda)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUdeviceptr address;
    if (driver->cuMemFreeAsync != NULL && cuda->stock.memory.allocator.allocate == NULL
        && driver->cuMemAlloc(&address, 1) == CUDA_SUCCESS
        && driver->cuMemFreeAsync(address, cuda->device.copy) != CUDA_SUCCESS)
        driver->cuMemFree(address);
}

// Launches a kernel once, because the driver does some of its initialisation at the first launch, and has memory for
// graphs of it.
static sumi_result launch_first(sumi_cuda* cuda, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    SUMI_TRY(sumi_cuda_kernel(cuda->modules, "sumi_empty", 0, &cuda->empty_kernel, error));
    SUMI_CU(
        driver,
        cuLaunchKernel(cuda->empty_kernel, 1, 1, 1, SUMI_CUDA_EMPTY_THREADS, 1, 1, 0, cuda->device.copy, NULL, NULL),
        "a first launch");
    if (!cuda->options.without_graphs) sumi_cuda_reserve_graphs(&cuda->device, cuda->empty_kernel);
    free_first(cuda);
    const CUresult ended = driver->cuStreamSynchronize(cuda->device.copy);
    return ended == CUDA_SUCCESS ? SUMI_OK : sumi_cuda_failure(driver, ended, "a first launch", error);
}

#define KERNELS_PER_STEP 16

static sumi_result load_modules(sumi_cuda* cuda, float* out_progress, sumi_error* error)
{
    bool is_last = false;
    SUMI_TRY(sumi_cuda_modules_step(cuda->modules, &is_last, out_progress, error));
    if (is_last) sumi_cuda_modules_ready_step(cuda->modules, KERNELS_PER_STEP, &is_last);
    if (!is_last) return SUMI_OK;
    SUMI_TRY(launch_first(cuda, error));
    uint64_t free_bytes;
    (void)sumi_cuda_query_free_bytes(cuda, &free_bytes);
    cuda->is_loaded = true;
    return SUMI_OK;
}

static sumi_result cuda_load(sumi_runner* runner, bool* out_done, float* out_progress, sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    sumi_result result = SUMI_OK;
    if (!cuda->is_loaded) {
        SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
        result = load_modules(cuda, out_progress, error);
        sumi_cuda_leave(&cuda->device, &scope);
    }
    if (cuda->is_loaded) *out_progress = 1.0f;
    *out_done = cuda->is_loaded;
    return result; // not noted in `failure`, because this runs beside other calls
}

static bool has_kernels(const sumi_cuda* cuda, const sumi_cuda_plan* record)
{
    return record->has_kernels || !sumi_cuda_modules_wait(cuda->modules);
}

// Has the driver compile the kernels that the plan needs; done when has_kernels says so.
static sumi_result get_kernels(sumi_cuda* cuda, sumi_cuda_plan* record, uint64_t until_ns, sumi_error* error)
{
    bool is_done = (size_t)record->walked_ops == record->held.plan->op_count;
    if (!is_done) SUMI_TRY(sumi_cuda_find_kernels(cuda, record, until_ns, &is_done, error));
    if (!is_done) return SUMI_OK;
    const sumi_result result = sumi_cuda_modules_compile(cuda->modules, &record->has_kernels, error);
    if (result != SUMI_OK) record->walked_ops = 0; // what failed is to be noted again
    return result;
}

static void cuda_pace(sumi_runner* runner, bool is_paced) { ((sumi_cuda*)runner)->stock.weights.is_paced = is_paced; }

static int32_t cuda_compiling(const sumi_runner* runner, int32_t* out_done)
{
    return sumi_cuda_modules_compiling(((const sumi_cuda*)runner)->modules, out_done);
}

static bool is_ready(const sumi_cuda* cuda, const sumi_cuda_plan* record)
{
    if (record == NULL || !record->held.is_reserved || !record->held.has_weights
        || record->held.division_limit != cuda->stock.memory_limit)
        return false;
    if (cuda->stock.memory_limit == 0 ? cuda->stock.weight_ring.address != 0 : !record->held.fits_limit) return false;
    if (record->held.list.cursor < record->held.list.count
        || record->held.division.ring_bytes > cuda->stock.weight_ring.bytes)
        return false;
    if (record->held.streaming != NULL && record->held.streaming->list.cursor < record->held.streaming->list.count)
        return false;
    if (!sumi_device_needs_pinned_copies(&record->held) && record->held.unpinned_count < record->held.list.count)
        return false;
    if (cuda->stock.scratch.bytes < record->held.scratch_bytes
        || cuda->stock.arena.bytes < record->held.plan->arena_bytes || !sumi_cuda_has_pages(cuda, record)
        || cuda->stock.weights.upload != NULL || !has_kernels(cuda, record))
        return false;
    return sumi_cuda_has_graphs(cuda, record);
}

static sumi_result prepare(sumi_cuda* cuda, const sumi_plan* plan, uint32_t budget_us, bool* out_done,
                           float* out_progress, sumi_error* error)
{
    const uint64_t until = sumi_clock_ns() + (uint64_t)budget_us * 1000;
    const sumi_device_budget budget = {until, budget_us};
    *out_done = false;
    if (!cuda->is_loaded) return sumi_fail(error, SUMI_INTERNAL, "a plan is prepared before the kernels are loaded");
    sumi_cuda_plan* record;
    SUMI_TRY(sumi_cuda_take_plan(cuda, plan, &record, error));
    SUMI_TRY(sumi_device_divide_plan(&cuda->stock, &record->held, error));
    SUMI_TRY(sumi_device_make_fit(&cuda->stock, &record->held, error));
    SUMI_TRY(sumi_device_reserve_ring(&cuda->stock, &record->held, error));
    SUMI_ASSERT(cuda->stock.memory_limit != 0 || cuda->stock.weight_ring.address == 0 || cuda->flight_count == 0);
    if (cuda->stock.memory_limit == 0) sumi_device_release_ring(&cuda->stock); // nothing is streamed any more
    cuda->stock.weights.uses_single_slabs = record->held.division.streams;
    bool has_all = false;
    const bool sends = record->held.list.cursor < record->held.list.count || cuda->stock.weights.upload != NULL;
    SUMI_TRY(sumi_device_weights_upload(&cuda->stock.weights, &record->held.list, budget, &has_all, error));
    const int32_t others = record->held.streaming != NULL ? record->held.streaming->list.count : 0,
                  made = others > 0 ? record->held.streaming->list.cursor : 0;
    const float sent = record->held.list.count + others > 0
                         ? (float)(record->held.list.cursor + made) / (float)(record->held.list.count + others)
                         : 1.0f;
    *out_progress = 0.95f * sent;
    // the next step does one piece, even if little time is left
    if (!has_all || (sends && sumi_clock_ns() >= until)) return SUMI_OK;
    if (record->held.streaming != NULL && record->held.streaming->list.cursor < record->held.streaming->list.count) {
        if (cuda->flight_count > 0) return SUMI_OK; // a slice in flight may use the ring buffer
        SUMI_TRY(sumi_device_make_pinned_copies(&cuda->stock, &record->held, budget, &has_all, error));
        if (!has_all || sumi_clock_ns() >= until) return SUMI_OK;
    }
    if (!sumi_device_needs_pinned_copies(&record->held) && record->held.unpinned_count < record->held.list.count) {
        if (cuda->flight_count > 0) return SUMI_OK; // the weights may be in use
        sumi_device_drop_pinned_copies(&cuda->stock, &record->held, until);
        if (record->held.unpinned_count < record->held.list.count || sumi_clock_ns() >= until) return SUMI_OK;
    }
    if (!record->held.is_reserved) {
        *out_done = true;
        *out_progress = 1.0f;
        return SUMI_OK;
    }
    if (is_ready(cuda, record)) {
        *out_done = true;
        *out_progress = 1.0f;
        return SUMI_OK;
    }
    if (!sumi_cuda_has_pages(cuda, record)) {
        SUMI_TRY(sumi_cuda_make_pages(cuda, record, until, error));
        return SUMI_OK;
    }
    if (!has_kernels(cuda, record)) return get_kernels(cuda, record, until, error);
    if (cuda->flight_count > 0) return SUMI_OK; // graphs are made while nothing runs
    SUMI_TRY(sumi_cuda_make_graphs(cuda, record, until, out_done, error));
    uint64_t free_bytes;
    if (*out_done) (void)sumi_cuda_query_free_bytes(cuda, &free_bytes);
    *out_progress = *out_done ? 1.0f : 0.95f + 0.05f * sumi_cuda_graphed_share(cuda, record);
    return SUMI_OK;
}

static bool cuda_is_ready(const sumi_runner* runner, const sumi_plan* plan)
{
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    const sumi_cuda_plan* record = NULL;
    for (size_t i = 0; i < cuda->stock.plan_count && record == NULL; i++)
        record = cuda->stock.plans[i]->plan == plan ? sumi_cuda_plan_at(cuda, i) : NULL;
    return is_ready(cuda, record) && record->ops == plan->ops && record->op_count == plan->op_count;
}

static sumi_result cuda_prepare(sumi_runner* runner, const sumi_plan* plan, uint32_t budget_us, bool* out_done,
                                float* out_progress, sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    *out_done = false;
    // any other failure belongs to an earlier run; `start` forgets it
    if (cuda->failure.result == SUMI_DEVICE_LOST) return sumi_cuda_report_failure(cuda, error);
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = prepare(cuda, plan, budget_us, out_done, out_progress, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return sumi_cuda_note_result(cuda, result, error);
}

static uint64_t cuda_arena_serial(const sumi_runner* runner) { return ((const sumi_cuda*)runner)->stock.arena_serial; }

static void cuda_start(sumi_runner* runner, const sumi_plan* plan)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    if (cuda->failure.result != SUMI_DEVICE_LOST) cuda->failure = (sumi_error){0};
    if (record == NULL || !record->held.is_reserved || !sumi_cuda_has_pages(cuda, record)) {
        (void)sumi_fail(&cuda->failure, SUMI_INTERNAL, "a plan is started that was not prepared and reserved");
        return;
    }
    if (!sumi_cuda_enter_quietly(cuda, &scope)) return;
    cuda->current = record;
    cuda->has_counter = cuda->is_end_newest = false;
    for (int32_t i = 0; i < record->mirror_count; i++) record->mirrors[i].is_pending = false;
    sumi_cuda_copy_constants(cuda, record);
    sumi_error error = {0};
    if (sumi_cuda_note_result(cuda, sumi_device_streaming_begin_run(&cuda->stock, &record->held, &error), &error)
            != SUMI_OK
        && cuda->failure.result == SUMI_OK)
        cuda->failure = error;
    sumi_cuda_leave(&cuda->device, &scope);
}

// ---- Running --------------------------------------------------------------------------------------------------------

static sumi_result measure_delay(sumi_cuda* cuda, const sumi_cuda_flight* flight, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const CUstream stream = cuda->device.compute;
    SUMI_CU(driver, cuEventRecord(flight->arrival, stream), "timing a slice");
    SUMI_CU(driver, cuLaunchKernel(cuda->empty_kernel, 1, 1, 1, SUMI_CUDA_EMPTY_THREADS, 1, 1, 0, stream, NULL, NULL),
            "timing a slice");
    return SUMI_OK;
}

static void cuda_measure_delay(sumi_runner* runner, bool enabled) { ((sumi_cuda*)runner)->measures_delay = enabled; }

// A slice that directly follows another begins at its end, which saves an event. If the device has become idle between
// them, the time contains that gap, which is at most the time of a submission. In short slices, such as a profile's, it
// would be a large part. In a stream of the host program there may be other commands in between.
#define LEAST_FOLLOWING_US 50.0f

// What is submitted at once: a slice, or groups of slices in a row.
typedef struct submission {
    const sumi_slice* slices;
    int32_t count, counter;
} submission;

static sumi_result launch_slice(sumi_cuda* cuda, sumi_cuda_plan* record, const sumi_slice* slice,
                                const sumi_slice* segment, sumi_error* error)
{
    const CUgraphExec graph = sumi_cuda_graph_of(record, slice, segment);
    if (graph == NULL) return sumi_cuda_launch_slice(cuda, record, segment, cuda->device.compute, error);
    SUMI_CU(&cuda->device.driver, cuGraphLaunch(graph, cuda->device.compute), "launching a slice");
    return SUMI_OK;
}

static sumi_result launch_groups(sumi_cuda* cuda, sumi_cuda_plan* record, const submission* work, sumi_error* error)
{
    for (int32_t i = 0, count; i < work->count; i += count) {
        const sumi_slice* first = &work->slices[i];
        count = first->group_count > 1 && first->group_count <= work->count - i ? first->group_count : 1;
        const CUgraphExec graph = count > 1 ? sumi_cuda_graph_of_group(record, first) : NULL;
        if (graph != NULL) {
            SUMI_CU(&cuda->device.driver, cuGraphLaunch(graph, cuda->device.compute), "launching slices");
            continue;
        }
        for (int32_t k = 0; k < count; k++) SUMI_TRY(launch_slice(cuda, record, &first[k], &first[k], error));
    }
    return SUMI_OK;
}

static sumi_result run_slices(sumi_cuda* cuda, sumi_cuda_plan* record, const submission* work, sumi_error* error)
{
    const sumi_slice* slice = work->slices;
    const int32_t counter = work->counter;
    SUMI_ASSERT(work->count == 1 || record->held.streaming == NULL);
    SUMI_ASSERT(counter >= 0 && cuda->flight_count < SUMI_RUNNER_DEPTH);
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const CUstream stream = cuda->device.compute;
    cuda->current = record;
    bool follows = cuda->is_end_newest && cuda->flight_count > 0 && cuda->device.owns_compute;
    cuda->is_end_newest = false;
    if (!cuda->has_counter || cuda->counter != counter) {
        SUMI_CU(
            driver,
            cuMemsetD32Async(cuda->fixed.address + SUMI_CUDA_ARRIVALS * sizeof(uint32_t), (unsigned)counter, 1, stream),
            "setting the step");
        cuda->has_counter = true;
        cuda->counter = counter;
        follows = false;
    }
    sumi_cuda_flight* flight = sumi_cuda_flight_at(cuda, cuda->flight_count);
    flight->has_waits = false;
    flight->measures_delay = cuda->measures_delay && cuda->device.owns_compute;
    // Streamed weights are waited for before the slice.
    follows = follows && record->held.streaming == NULL && slice->predicted_us >= LEAST_FOLLOWING_US
           && !flight->measures_delay;
    flight->from = follows ? sumi_cuda_flight_at(cuda, cuda->flight_count - 1)->end : flight->begin;
    bool is_first = true;
    for (sumi_slice segment = {0}; sumi_device_next_segment(&record->held, slice, &segment); is_first = false) {
        bool waits = false;
        SUMI_TRY(sumi_device_streaming_begin_segment(&cuda->stock, &record->held, &segment, counter, &waits, error));
        if (is_first && flight->measures_delay) SUMI_TRY(measure_delay(cuda, flight, error));
        if (is_first && !follows) SUMI_CU(driver, cuEventRecord(flight->begin, stream), "timing a slice");
        if (!is_first) flight->has_waits = flight->has_waits || waits;
        if (work->count > 1) SUMI_TRY(launch_groups(cuda, record, work, error));
        else SUMI_TRY(launch_slice(cuda, record, slice, &segment, error));
        SUMI_TRY(sumi_device_streaming_end_segment(&cuda->stock, &record->held, &segment, error));
    }
    SUMI_CU(driver, cuEventRecord(flight->end, stream), "timing a slice");
    flight->last_fetch = -1;
    flight->plan = record;
    cuda->flight_count++;
    cuda->is_end_newest = true;
    return sumi_device_streaming_start_loads(&cuda->stock, &record->held, error);
}

static sumi_result submit(sumi_cuda* cuda, const sumi_plan* plan, const submission* work, sumi_error* error)
{
    sumi_cuda_scope scope;
    sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    SUMI_TRY(sumi_cuda_report_failure(cuda, error));
    if (record == NULL || !record->held.is_reserved || !record->held.has_weights)
        return sumi_fail(error, SUMI_INTERNAL, "a plan runs that was not prepared and reserved");
    if (cuda->flight_count == SUMI_RUNNER_DEPTH)
        return sumi_fail(error, SUMI_INTERNAL, "%d slices are in flight: no more fit", SUMI_RUNNER_DEPTH);
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = run_slices(cuda, record, work, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return sumi_cuda_note_result(cuda, result, error);
}

static sumi_result cuda_run(sumi_runner* runner, const sumi_plan* plan, const sumi_slice* slice, int32_t counter,
                            sumi_error* error)
{
    return submit((sumi_cuda*)runner, plan, &(submission){slice, 1, counter}, error);
}

static sumi_result cuda_run_groups(sumi_runner* runner, const sumi_plan* plan, const sumi_slice_groups* groups,
                                   int32_t counter, sumi_error* error)
{
    return submit((sumi_cuda*)runner, plan, &(submission){groups->slices, groups->count, counter}, error);
}

// Whether an event has passed. A failed query counts as false, and the failure is kept.
static bool has_passed(sumi_cuda* cuda, CUevent event)
{
    const CUresult state = cuda->device.driver.cuEventQuery(event);
    if (state != CUDA_ERROR_NOT_READY) sumi_cuda_lose_device(cuda, state);
    return state == CUDA_SUCCESS;
}

// Whether a slice has ended, and its time, which is 0 if it is not known. The time alone would answer both questions,
// but asking for the time of events that have not passed is an error to compute-sanitizer, which people run over whole
// programs. The copies after a slice count as part of it: once the slice is reported, their values can be read.
static bool is_over(sumi_cuda* cuda, const sumi_cuda_flight* flight, bool has_ended, sumi_slice_time* out_time)
{
    SUMI_ASSERT(flight->plan != NULL && flight->last_fetch < flight->plan->mirror_count);
    float ms = 0.0f, delay_ms = 0.0f;
    if (!has_ended && !has_passed(cuda, flight->end)) return false;
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUresult timed = driver->cuEventElapsedTime(&ms, flight->from, flight->end);
    if (timed == CUDA_SUCCESS && flight->measures_delay)
        timed = driver->cuEventElapsedTime(&delay_ms, flight->arrival, flight->begin);
    if (timed != CUDA_SUCCESS) {
        sumi_cuda_note_failure(cuda, timed, "timing a slice");
        if (cuda->flight_count == 0) return false; // the device is lost
        ms = 0.0f;
    }
    *out_time = (sumi_slice_time){.us = 1000.0 * (double)ms,
                                  .delay_us = 1000.0 * (double)delay_ms,
                                  .has_delay = flight->measures_delay,
                                  .has_waits = flight->has_waits};
    return flight->last_fetch < 0 || has_passed(cuda, flight->plan->mirrors[flight->last_fetch].event);
}

static int32_t cuda_finished(sumi_runner* runner, sumi_slice_time* out_times, int32_t capacity)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    SUMI_ASSERT(capacity >= 1);
    if (cuda->flight_count == 0 || !sumi_cuda_enter_quietly(cuda, &scope)) return 0;
    int32_t count = 0;
    // At the beginning of a frame many are in flight, and usually all have ended: then a single query for the newest is
    // enough.
    const bool have_all_ended =
        cuda->flight_count > 2 && has_passed(cuda, sumi_cuda_flight_at(cuda, cuda->flight_count - 1)->end);
    // with a lost device nothing is in flight
    while (count < capacity && cuda->flight_count > 0
           && is_over(cuda, sumi_cuda_flight_at(cuda, 0), have_all_ended, &out_times[count])) {
        cuda->flight_first = (cuda->flight_first + 1) % SUMI_CUDA_FLIGHTS;
        cuda->flight_count--;
        count++;
    }
    sumi_cuda_leave(&cuda->device, &scope);
    return count;
}

static int32_t cuda_pending(const sumi_runner* runner) { return (int32_t)((const sumi_cuda*)runner)->flight_count; }

static void cuda_wait(sumi_runner* runner, int32_t slices)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    const sumi_cuda_driver* driver = &cuda->device.driver;
    sumi_cuda_scope scope;
    if (cuda->flight_count == 0 || !sumi_cuda_enter_quietly(cuda, &scope)) return;
    if (cuda->wait_event != NULL) {
        // otherwise the other way to wait for everything detects whether the device is lost
        const bool is_recorded = driver->cuEventRecord(cuda->wait_event, cuda->device.compute) == CUDA_SUCCESS;
        sumi_cuda_lose_device(cuda, is_recorded ? driver->cuEventSynchronize(cuda->wait_event)
                                                : driver->cuStreamSynchronize(cuda->device.compute));
    } else {
        const uint32_t slice_count = slices < 1 ? 1 : (uint32_t)slices;
        const sumi_cuda_flight* flight =
            sumi_cuda_flight_at(cuda, (slice_count < cuda->flight_count ? slice_count : cuda->flight_count) - 1);
        sumi_cuda_lose_device(cuda, driver->cuEventSynchronize(flight->end));
        if (cuda->flight_count > 0 && flight->last_fetch >= 0)
            sumi_cuda_lose_device(cuda, driver->cuEventSynchronize(flight->plan->mirrors[flight->last_fetch].event));
    }
    sumi_cuda_leave(&cuda->device, &scope);
}

static bool cuda_idle(sumi_runner* runner)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (cuda->failure.result == SUMI_DEVICE_LOST) return true;
    if (!sumi_cuda_enter_quietly(cuda, &scope)) return true;
    bool is_idle = true;
    for (uint32_t i = 0; i < cuda->flight_count && is_idle; i++)
        is_idle = has_passed(cuda, sumi_cuda_flight_at(cuda, i)->end);
    for (int32_t i = 0; cuda->current != NULL && i < cuda->current->mirror_count && is_idle; i++) {
        if (cuda->current->mirrors[i].is_pending) is_idle = has_passed(cuda, cuda->current->mirrors[i].event);
    }
    sumi_cuda_leave(&cuda->device, &scope);
    return is_idle || cuda->failure.result == SUMI_DEVICE_LOST;
}

static sumi_result cuda_health(sumi_runner* runner, sumi_error* error)
{
    return sumi_cuda_report_failure((const sumi_cuda*)runner, error);
}

static sumi_result cuda_publish(sumi_runner* runner, const sumi_plan* plan, const sumi_publication* picture,
                                sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    SUMI_TRY(sumi_cuda_report_failure(cuda, error));
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    cuda->is_end_newest = false;
    sumi_result result = sumi_cuda_publish(cuda, plan, picture, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return sumi_cuda_note_result(cuda, result, error);
}

static sumi_result cuda_write_depth(sumi_runner* runner, const sumi_plan* plan, const sumi_depth_input* input,
                                    sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    SUMI_TRY(sumi_cuda_report_failure(cuda, error));
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    cuda->is_end_newest = false;
    sumi_result result = sumi_cuda_write_depth(cuda, plan, input, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return sumi_cuda_note_result(cuda, result, error);
}

static sumi_result cuda_import(sumi_runner* runner, const sumi_import_desc* desc, sumi_imported* out_import,
                               sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    *out_import = (sumi_imported){.kind = SUMI_EXTERNAL_NONE};
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = sumi_cuda_import(cuda, desc, out_import, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return sumi_cuda_note_result(cuda, result, error);
}

static void cuda_finish_import(sumi_runner* runner, const sumi_imported* import)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (!sumi_cuda_enter_quietly(cuda, &scope)) return;
    sumi_cuda_finish_import(cuda, import);
    sumi_cuda_leave(&cuda->device, &scope);
}

static void cuda_release_import(sumi_runner* runner, sumi_imported* import)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    // outside of a lost context the driver refuses every call, and the host program's memory is still released
    const bool is_inside = sumi_cuda_enter_quietly(cuda, &scope);
    sumi_cuda_release_import(cuda, import);
    if (is_inside) sumi_cuda_leave(&cuda->device, &scope);
}

// These two are called beside the thread that runs slices, so they touch no state that changes and keep no failure.
static bool cuda_is_copying(sumi_runner* runner, const sumi_imported* import)
{
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (sumi_cuda_enter(&cuda->device, &scope, NULL) != SUMI_OK) return false;
    const bool is_copying = sumi_cuda_is_copying(cuda, import);
    sumi_cuda_leave(&cuda->device, &scope);
    return is_copying;
}

static sumi_result cuda_copy_to_import(sumi_runner* runner, const sumi_import_copy* copy, sumi_error* error)
{
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    sumi_cuda_scope scope;
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = sumi_cuda_copy_to_import(cuda, copy, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return result;
}

static void cuda_settle(sumi_runner* runner)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (cuda->failure.result == SUMI_DEVICE_LOST || !sumi_cuda_enter_quietly(cuda, &scope)) return;
    sumi_cuda_settle(cuda);
    sumi_cuda_leave(&cuda->device, &scope);
}

// ---- The object -----------------------------------------------------------------------------------------------------

static const char* cuda_name(const sumi_runner* runner)
{
    (void)runner;
    return "cuda";
}
static void cuda_list_kernels(const sumi_runner* runner, sumi_kernel_callback* seen, void* user_data)
{
    sumi_cuda_list_kernels(((const sumi_cuda*)runner)->modules, seen, user_data);
}
static const char* cuda_device(const sumi_runner* runner) { return ((const sumi_cuda*)runner)->device.name; }
static sumi_rates cuda_rates(const sumi_runner* runner) { return ((const sumi_cuda*)runner)->rates; }
static void cuda_arrange(const sumi_runner* runner, sumi_plan* plan)
{
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    sumi_cuda_arrange(&cuda->device, !cuda->options.without_hopper, plan);
}
static uint64_t cuda_element_bytes(const sumi_runner* runner, sumi_element element)
{
    (void)runner;
    return element == SUMI_ELEMENT_ACTIVATION ? 2 : element == SUMI_ELEMENT_BYTE ? 1 : 4;
}

static void destroy_inside(sumi_cuda* cuda)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    sumi_cuda_settle(cuda);
    while (cuda->stock.plan_count > 0) sumi_cuda_free_record(cuda, sumi_cuda_plan_at(cuda, cuda->stock.plan_count - 1));
    sumi_cuda_release_memory(cuda);
    sumi_device_release(&cuda->stock.memory, &cuda->stock.weight_ring);
    sumi_device_weights_close(&cuda->stock.weights);
    sumi_device_release(&cuda->stock.memory, &cuda->fixed);
    for (int32_t i = 0; i < SUMI_CUDA_FLIGHTS; i++) {
        if (cuda->flights[i].arrival != NULL) driver->cuEventDestroy(cuda->flights[i].arrival);
        if (cuda->flights[i].begin != NULL) driver->cuEventDestroy(cuda->flights[i].begin);
        if (cuda->flights[i].end != NULL) driver->cuEventDestroy(cuda->flights[i].end);
    }
    if (cuda->wait_event != NULL) driver->cuEventDestroy(cuda->wait_event);
    for (int32_t i = 0; i < SUMI_CUDA_WRITES; i++) {
        if (cuda->writes[i].event != NULL) driver->cuEventDestroy(cuda->writes[i].event);
    }
    sumi_cuda_destroy_dropped_graphs(cuda);
    if (cuda->capture != NULL) driver->cuStreamDestroy(cuda->capture);
}

static void cuda_destroy(sumi_runner* runner)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    if (cuda == NULL) return;
    sumi_cuda_scope scope;
    // outside of a lost context the driver refuses every call, and everything of the host program is still released
    const bool is_inside = sumi_cuda_enter_quietly(cuda, &scope);
    destroy_inside(cuda);
    sumi_cuda_modules_destroy(cuda->modules);
    if (is_inside) sumi_cuda_leave(&cuda->device, &scope);
    sumi_free(cuda->heap, cuda->stock.plans);
    sumi_free(cuda->heap, cuda->pages);
    sumi_free(cuda->heap, cuda->page_blocks);
    sumi_cuda_device_close(&cuda->device);
    sumi_free(cuda->heap, cuda);
}

static const sumi_runner_functions s_functions = {.destroy = cuda_destroy,
                                                  .name = cuda_name,
                                                  .device = cuda_device,
                                                  .rates = cuda_rates,
                                                  .properties = sumi_cuda_runner_properties,
                                                  .held_bytes = sumi_cuda_runner_held_bytes,
                                                  .list_kernels = cuda_list_kernels,
                                                  .element_bytes = cuda_element_bytes,
                                                  .arrange = cuda_arrange,
                                                  .scratch_bytes = sumi_cuda_runner_scratch_bytes,
                                                  .need = sumi_cuda_runner_need,
                                                  .release_plan = sumi_cuda_runner_release_plan,
                                                  .load = cuda_load,
                                                  .pace = cuda_pace,
                                                  .compiling = cuda_compiling,
                                                  .prepare = cuda_prepare,
                                                  .is_ready = cuda_is_ready,
                                                  .set_memory_limit = sumi_cuda_runner_set_memory_limit,
                                                  .trim = sumi_cuda_runner_trim,
                                                  .evict = sumi_cuda_runner_evict,
                                                  .capacity = sumi_cuda_runner_capacity,
                                                  .reserve = sumi_cuda_runner_reserve,
                                                  .release = sumi_cuda_runner_release,
                                                  .release_weights = sumi_cuda_runner_release_weights,
                                                  .arena_serial = cuda_arena_serial,
                                                  .start = cuda_start,
                                                  .write = sumi_cuda_runner_write,
                                                  .read = sumi_cuda_runner_read,
                                                  .run = cuda_run};

static const sumi_async_functions s_async = {.run_groups = cuda_run_groups,
                                             .measure_delay = cuda_measure_delay,
                                             .collect = cuda_finished,
                                             .pending = cuda_pending,
                                             .wait = cuda_wait,
                                             .wait_all = cuda_settle,
                                             .idle = cuda_idle,
                                             .health = cuda_health,
                                             .start_read = sumi_cuda_runner_fetch,
                                             .publish = cuda_publish,
                                             .write_depth = cuda_write_depth};

static const sumi_interop_functions s_interop = {.import = cuda_import,
                                                 .finish_import = cuda_finish_import,
                                                 .release_import = cuda_release_import,
                                                 .is_copying = cuda_is_copying,
                                                 .copy_to_import = cuda_copy_to_import};

// A first guess, a share of the peak rates of the tensor cores and of the memory. The engine measures, and corrects it
// for each kind of op.
static sumi_rates guess_rates(const sumi_cuda_device* device)
{
    int core_khz = 0, memory_khz = 0, bus_bits = 0;
    const sumi_cuda_driver* driver = &device->driver;
    if (driver->cuDeviceGetAttribute(&core_khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device->device) != CUDA_SUCCESS
        || core_khz <= 0)
        core_khz = 1500000;
    if (driver->cuDeviceGetAttribute(&memory_khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device->device) != CUDA_SUCCESS
        || memory_khz <= 0)
        memory_khz = 5000000;
    if (driver->cuDeviceGetAttribute(&bus_bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device->device)
            != CUDA_SUCCESS
        || bus_bits <= 0)
        bus_bits = 256;
    return (sumi_rates){.flops_per_us =
                            0.70 * device->multiprocessors * sumi_cuda_flops_per_clock(device) * core_khz * 1e-3,
                        .bytes_per_us = 0.75 * 2.0 * memory_khz * 1e-3 * bus_bits / 8.0, // two transfers per clock
                        .op_us = 3.0};
}

// An event that a thread can sleep on wakes a thread of the driver whenever it passes, whether anyone waits or not: 45
// us of CPU time (H200) per slice or copy. The engine sleeps by predictions and seldom waits. So slices and copies have
// no such events, and a thread that waits records one after everything that was submitted. Exceptions: systems with coarse sleeps, and
// streams of the host program, where work that the host program has submitted after a slice may itself wait for the
// host program.
static sumi_result make_events(sumi_cuda* cuda, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const bool sleeps_for_all = cuda->device.owns_compute && sumi_sleep_slack_us() < 1000;
    for (int32_t i = 0; i < SUMI_CUDA_FLIGHTS; i++) {
        SUMI_CU(driver, cuEventCreate(&cuda->flights[i].arrival, CU_EVENT_DEFAULT), "making an event");
        SUMI_CU(driver, cuEventCreate(&cuda->flights[i].begin, CU_EVENT_DEFAULT), "making an event");
        SUMI_CU(driver,
                cuEventCreate(&cuda->flights[i].end, sleeps_for_all ? CU_EVENT_DEFAULT : CU_EVENT_BLOCKING_SYNC),
                "making an event");
    }
    if (sleeps_for_all)
        SUMI_CU(driver, cuEventCreate(&cuda->wait_event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
                "making an event");
    for (int32_t i = 0; i < SUMI_CUDA_WRITES; i++) {
        SUMI_CU(driver, cuEventCreate(&cuda->writes[i].event, sumi_cuda_copy_event_flags(cuda)), "making an event");
    }
    return SUMI_OK;
}

static sumi_result create_inside(sumi_cuda* cuda, sumi_workers* workers, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    SUMI_TRY(sumi_cuda_modules_create(cuda->heap, &cuda->device, sumi_cuda_images, sumi_cuda_image_count, error,
                                      &cuda->modules));
    cuda->port.modules = cuda->modules;
    sumi_device_weights_init(&cuda->stock.weights, cuda->heap, workers, &cuda->port.port, &cuda->stock.memory);
    SUMI_TRY(make_events(cuda, error));
    SUMI_CU(driver, cuStreamCreateWithPriority(&cuda->capture, CU_STREAM_NON_BLOCKING, 0),
            "making a stream for graphs");
    SUMI_TRY(sumi_device_allocate(&cuda->stock.memory, SUMI_CUDA_ARRIVALS * sizeof(uint32_t) + 64, SUMI_MEMORY_ARENA,
                                  "counters", &cuda->fixed, error));
    cuda->stock.fixed_bytes = cuda->fixed.bytes;
    SUMI_CU(driver, cuMemsetD32Async(cuda->fixed.address, 0, SUMI_CUDA_ARRIVALS + 16, cuda->device.compute),
            "clearing counters");
    uint64_t free_bytes;
    (void)sumi_cuda_query_free_bytes(cuda, &free_bytes);
    return SUMI_OK;
}

sumi_result sumi_cuda_create(sumi_heap* heap, sumi_workers* workers, const sumi_engine_desc* desc,
                             const sumi_cuda_options* options, sumi_error* error, sumi_runner** out_runner)
{
    *out_runner = NULL;
    sumi_cuda* cuda = sumi_alloc_zero(heap, sizeof *cuda);
    if (cuda == NULL) return sumi_out_of_memory(error, sizeof *cuda, "the CUDA backend");
    cuda->runner =
        (sumi_runner){.functions = &s_functions,
                      .async = &s_async,
                      .interop = &s_interop,
                      .traits = {.has_device = true, .has_memory = true, .needs_preparing = true, .has_formats = true}};
    cuda->heap = heap;
    if (options != NULL) cuda->options = *options;
#if defined(SUMI_WITHOUT_HOPPER)
    cuda->options.without_hopper = true; // kernel_images.c has no kernels for Hopper in this build
#endif
    sumi_result result = sumi_cuda_device_open(&cuda->device, desc, error);
    if (result != SUMI_OK) {
        sumi_free(heap, cuda);
        return result;
    }
    sumi_cuda_port_init(&cuda->port, &cuda->device, cuda);
    sumi_device_stock_init(&cuda->stock, heap, &cuda->port.port, desc->device_allocator);
    sumi_cuda_scope scope;
    result = sumi_cuda_enter(&cuda->device, &scope, error);
    if (result == SUMI_OK) {
        cuda->rates = guess_rates(&cuda->device);
        result = create_inside(cuda, workers, error);
        sumi_cuda_leave(&cuda->device, &scope);
    }
    if (result != SUMI_OK) {
        cuda_destroy(&cuda->runner);
        return result;
    }
    *out_runner = &cuda->runner;
    return SUMI_OK;
}
