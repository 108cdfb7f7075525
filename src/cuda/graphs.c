// A graph for each slice, so that a slice is one launch of some microseconds of CPU time, however many kernels it has.
// A graph serves every step, seed and schedule: everything that changes is in device memory and is found by the
// counter. The addresses of arena, scratch and weights are constants of the graphs, so graphs are freed when one of
// these addresses changes. A slice whose streamed weights do not fit into the ring buffer together has a graph for each
// segment.
//
// The driver takes the memory of graphs in pieces for about 42 graphs each (5.6 MB), and before it takes one it waits
// for everything that runs in the context (H100 and H200, driver 580): beside a host program whose kernels take 10 ms of
// every frame, an update then takes 10 ms. It keeps the memory of freed graphs for new ones. The number of graphs
// matters far more than the number of their nodes. So as many graphs as all plans together may have are made and freed
// while the kernels are loaded; when that many exist, the remaining slices are launched op by op.
//
// Graphs are captured on a separate stream, in thread-local mode, so that CUDA calls of the host program's other
// threads neither break the capture nor fail because of it. Before its capture a slice is walked once without
// launching, so that all its kernels are loaded; the first use of a kernel inside a capture may break the capture.
#include "cuda/graphs.h"
#include "base/assert.h"
#include "base/platform.h"
#include "cuda/driver.h"
#include "cuda/launch.h"
#include "cuda/state.h"
#include "device/streaming.h"
#include <string.h>

static sumi_result launch_op(sumi_cuda* cuda, const sumi_cuda_plan* record, const sumi_slice* slice, int32_t op_index,
                             CUstream stream, sumi_error* error)
{
    SUMI_ASSERT(op_index >= slice->op_begin && op_index < slice->op_end && cuda->current == record);
    const sumi_plan* plan = record->held.plan;
    const sumi_op* op = &plan->ops[op_index];
    const bool is_part = slice->op_end == slice->op_begin + 1;
    SUMI_ASSERT(!is_part || slice->range_begin >= 0);
    sumi_cuda_run run = {.cuda = cuda,
                         .device = &cuda->device,
                         .modules = cuda->modules,
                         .plan = plan,
                         .op = op,
                         .op_index = op_index,
                         .arena = cuda->stock.arena.address,
                         .scratch = cuda->stock.scratch.address,
                         .arrivals = cuda->fixed.address,
                         .counter = cuda->fixed.address + SUMI_CUDA_ARRIVALS * sizeof(uint32_t),
                         .stream = stream,
                         .range_begin = is_part ? slice->range_begin : 0,
                         .range_end =
                             is_part && slice->range_end < op->range_count ? slice->range_end : op->range_count,
                         .slice = slice,
                         .allows_hopper = cuda->device.capability == 90 && !cuda->options.without_hopper,
                         .error = error};
    if (run.range_begin >= run.range_end) return SUMI_OK;
    if (sumi_cuda_ops[op->kind].run == NULL)
        return sumi_fail(error, SUMI_INTERNAL, "the CUDA backend has no op %s", sumi_op_name(op->kind));
    return sumi_cuda_ops[op->kind].run(&run);
}

sumi_result sumi_cuda_launch_slice(sumi_cuda* cuda, sumi_cuda_plan* record, const sumi_slice* slice, CUstream stream,
                                   sumi_error* error)
{
    SUMI_ASSERT(slice->op_begin >= 0 && slice->op_begin < slice->op_end);
    SUMI_ASSERT((size_t)slice->op_end <= record->held.plan->op_count);
    cuda->current = record;
    for (int32_t i = slice->op_begin; i < slice->op_end; i++)
        SUMI_TRY(launch_op(cuda, record, slice, i, stream, error));
    return SUMI_OK;
}

sumi_result sumi_cuda_find_kernels(sumi_cuda* cuda, sumi_cuda_plan* record, uint64_t until_ns, bool* out_done,
                                   sumi_error* error)
{
    SUMI_ASSERT(record->held.is_reserved && !cuda->is_dry_run);
    const sumi_plan* plan = record->held.plan;
    sumi_result result = SUMI_OK;
    cuda->current = record;
    cuda->is_dry_run = true;
    sumi_cuda_modules_note_wanted(cuda->modules, true);
    for (bool is_late = false; (size_t)record->walked_ops < plan->op_count && !is_late && result == SUMI_OK;
         record->walked_ops++) {
        const int32_t op = record->walked_ops;
        const sumi_slice whole = {.op_begin = op, .op_end = op + 1, .range_end = plan->ops[op].range_count};
        result = launch_op(cuda, record, &whole, op, cuda->capture, error);
        is_late = sumi_clock_ns() >= until_ns;
    }
    sumi_cuda_modules_note_wanted(cuda->modules, false);
    cuda->is_dry_run = false;
    *out_done = (size_t)record->walked_ops == plan->op_count;
    return result;
}

// What a graph holds: a group of slices, or a segment of a slice, which is then the only one.
typedef struct captured {
    const sumi_slice *slices, *segment;
    int32_t count;
} captured;

static sumi_result launch_captured(sumi_cuda* cuda, sumi_cuda_plan* record, const captured* work, sumi_error* error)
{
    if (work->count == 1) return sumi_cuda_launch_slice(cuda, record, work->segment, cuda->capture, error);
    for (int32_t i = 0; i < work->count; i++)
        SUMI_TRY(sumi_cuda_launch_slice(cuda, record, &work->slices[i], cuda->capture, error));
    return SUMI_OK;
}

// Captures the work. *out_refused: the driver refused, and the slices must be launched op by op.
static sumi_result capture(sumi_cuda* cuda, sumi_cuda_plan* record, const captured* work, CUgraphExec* out_exec,
                           sumi_error* error)
{
    SUMI_ASSERT(!cuda->is_dry_run && cuda->capture != NULL && !record->without_graphs);
    const sumi_cuda_driver* driver = &cuda->device.driver;
    *out_exec = NULL;
    cuda->is_dry_run = true;
    sumi_result result = launch_captured(cuda, record, work, error);
    cuda->is_dry_run = false;
    if (result != SUMI_OK) return result;
    record->without_graphs =
        driver->cuStreamBeginCapture(cuda->capture, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != CUDA_SUCCESS;
    if (record->without_graphs) return SUMI_OK;
    result = launch_captured(cuda, record, work, error);
    CUgraph graph = NULL;
    CUresult ended = driver->cuStreamEndCapture(cuda->capture, &graph);
    if (result == SUMI_OK && ended == CUDA_SUCCESS) ended = driver->cuGraphInstantiateWithFlags(out_exec, graph, 0);
    if (result == SUMI_OK && ended == CUDA_SUCCESS) ended = driver->cuGraphUpload(*out_exec, cuda->device.compute);
    if (graph != NULL) driver->cuGraphDestroy(graph);
    record->without_graphs = result == SUMI_OK && ended != CUDA_SUCCESS;
    if ((result != SUMI_OK || record->without_graphs) && *out_exec != NULL) {
        driver->cuGraphExecDestroy(*out_exec);
        *out_exec = NULL;
    }
    if (!record->without_graphs) return result;
    return sumi_cuda_loses_context(ended) ? sumi_cuda_failure(driver, ended, "making a graph", error) : SUMI_OK;
}

static bool is_same_work(const sumi_slice* a, const sumi_slice* b)
{
    return a->op_begin == b->op_begin && a->op_end == b->op_end
        && (a->op_end != a->op_begin + 1 || (a->range_begin == b->range_begin && a->range_end == b->range_end));
}

static bool is_of(const sumi_cuda_graph* graph, const sumi_slice* slices)
{
    return is_same_work(&graph->slice, slices) && is_same_work(&graph->last, &slices[graph->slice_count - 1]);
}

// Whether the graphs belong to the current slices.
static bool is_current(const sumi_cuda_graphs* graphs, const sumi_plan* plan)
{
    const int32_t count = (int32_t)plan->slice_count;
    for (int32_t i = 0; i < graphs->count; i++) {
        const sumi_cuda_graph* graph = &graphs->list[i];
        if (graph->slice_index + graph->slice_count > count || !is_of(graph, &plan->slices[graph->slice_index]))
            return false;
    }
    return graphs->graphed_slices <= count;
}

// Whether the graphs of groups belong to the current groups: they change when slices take longer than they were planned
// to (sumi_plan_group_slices).
static bool has_current_groups(const sumi_cuda_plan* record)
{
    const sumi_cuda_graphs* graphs = &record->group_graphs;
    if (!is_current(graphs, record->held.plan)) return false;
    bool have_changed = false;
    for (int32_t i = 0; i < graphs->count; i++) {
        const int32_t count = record->held.plan->slices[graphs->list[i].slice_index].group_count;
        have_changed = have_changed || graphs->list[i].slice_count != (count > 1 ? count : 1);
    }
    return !have_changed;
}

// Groups are for calls without a budget, and not for plans that stream weights.
static bool needs_groups(const sumi_cuda* cuda, const sumi_cuda_plan* record)
{
    return !cuda->stock.weights.is_paced && record->held.streaming == NULL;
}

bool sumi_cuda_has_graphs(const sumi_cuda* cuda, const sumi_cuda_plan* record)
{
    if (cuda->options.without_graphs || record->without_graphs) return true;
    const bool are_groups = needs_groups(cuda, record);
    const sumi_cuda_graphs* graphs = are_groups ? &record->group_graphs : &record->graphs;
    return (graphs->has_most || graphs->graphed_slices == (int32_t)record->held.plan->slice_count)
        && (!are_groups || has_current_groups(record));
}

float sumi_cuda_graphed_share(const sumi_cuda* cuda, const sumi_cuda_plan* record)
{
    const sumi_cuda_graphs* graphs = needs_groups(cuda, record) ? &record->group_graphs : &record->graphs;
    return (float)graphs->graphed_slices / (float)record->held.plan->slice_count;
}

static int32_t max_graphs(const sumi_cuda* cuda)
{
    return cuda->options.max_graphs > 0 ? cuda->options.max_graphs : SUMI_CUDA_MAX_GRAPHS;
}

static int32_t count_graphs(const sumi_cuda* cuda)
{
    int32_t count = 0;
    for (size_t i = 0; i < cuda->stock.plan_count; i++)
        count += sumi_cuda_plan_at(cuda, i)->graphs.count + sumi_cuda_plan_at(cuda, i)->group_graphs.count;
    return count;
}

static bool repeats_slices(const sumi_plan* plan)
{
    bool repeats = false;
    for (size_t i = 0; i < plan->section_count; i++) repeats = repeats || plan->sections[i].repeat > 1;
    return repeats;
}

static void destroy_dropped_graph(sumi_cuda* cuda)
{
    cuda->device.driver.cuGraphExecDestroy(cuda->dropped_graphs[--cuda->dropped_count]);
}

static void drop_graphs(sumi_cuda* cuda, sumi_cuda_graphs* graphs)
{
    const size_t count = cuda->dropped_count + (size_t)graphs->count;
    sumi_error ignored = {0};
    const bool keeps = sumi_grow(cuda->heap, (void**)&cuda->dropped_graphs, &cuda->dropped_capacity, count,
                                 sizeof *cuda->dropped_graphs, &ignored)
                    == SUMI_OK;
    for (int32_t i = 0; i < graphs->count; i++) {
        if (keeps) cuda->dropped_graphs[cuda->dropped_count++] = graphs->list[i].exec;
        else cuda->device.driver.cuGraphExecDestroy(graphs->list[i].exec);
    }
    graphs->count = graphs->graphed_slices = 0;
    graphs->has_most = false;
}

// Makes room for another graph if it can. The plan's own graphs that are not needed now go first. A plan that launches
// its slices in every step takes the place of other plans.
static bool make_room(sumi_cuda* cuda, sumi_cuda_plan* record)
{
    const int32_t most = max_graphs(cuda);
    if (count_graphs(cuda) >= most)
        drop_graphs(cuda, needs_groups(cuda, record) ? &record->graphs : &record->group_graphs);
    for (size_t i = 0; i < cuda->stock.plan_count && count_graphs(cuda) >= most && repeats_slices(record->held.plan);
         i++) {
        if (sumi_cuda_plan_at(cuda, i) != record) sumi_cuda_drop_graphs(cuda, sumi_cuda_plan_at(cuda, i));
    }
    const int32_t count = count_graphs(cuda);
    if (count >= most) return false;
    while (cuda->dropped_count > 0 && count + (int32_t)cuda->dropped_count >= most) destroy_dropped_graph(cuda);
    return true;
}

static sumi_result add_graph(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_cuda_graphs* graphs, const captured* work,
                             sumi_error* error)
{
    graphs->has_most = !make_room(cuda, record);
    if (graphs->has_most) return SUMI_OK;
    CUgraphExec exec;
    SUMI_TRY(capture(cuda, record, work, &exec, error));
    if (record->without_graphs) return SUMI_OK;
    SUMI_ASSERT(graphs->count < graphs->capacity);
    graphs->list[graphs->count++] = (sumi_cuda_graph){.exec = exec,
                                                      .slice = work->slices[0],
                                                      .last = work->slices[work->count - 1],
                                                      .segment = *work->segment,
                                                      .slice_index = graphs->graphed_slices,
                                                      .slice_count = work->count};
    return SUMI_OK;
}

// Captures the next group, or the segments of the next slice that have no graph yet.
static sumi_result capture_next(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_cuda_graphs* graphs, sumi_error* error)
{
    const sumi_slice* slice = &record->held.plan->slices[graphs->graphed_slices];
    const int32_t count = graphs == &record->group_graphs && slice->group_count > 1 ? slice->group_count : 1;
    if (count > 1) {
        SUMI_TRY(add_graph(cuda, record, graphs, &(captured){slice, slice, count}, error));
        if (graphs->has_most || record->without_graphs) return SUMI_OK;
    }
    // After a failure half-way through a slice, segments that already have a graph are not captured again.
    sumi_slice segment = graphs->count > 0 && graphs->list[graphs->count - 1].slice_index == graphs->graphed_slices
                           ? graphs->list[graphs->count - 1].segment
                           : (sumi_slice){0};
    while (count == 1 && sumi_device_next_segment(&record->held, slice, &segment)) {
        SUMI_TRY(add_graph(cuda, record, graphs, &(captured){slice, &segment, 1}, error));
        if (graphs->has_most || record->without_graphs) return SUMI_OK;
    }
    graphs->graphed_slices += count;
    return SUMI_OK;
}

sumi_result sumi_cuda_make_graphs(sumi_cuda* cuda, sumi_cuda_plan* record, uint64_t until_ns, bool* out_done,
                                  sumi_error* error)
{
    SUMI_ASSERT(cuda->flight_count == 0 && record->held.is_reserved);
    const sumi_plan* plan = record->held.plan;
    if (!is_current(&record->graphs, plan) || !is_current(&record->group_graphs, plan))
        sumi_cuda_drop_graphs(cuda, record);
    if (!has_current_groups(record)) drop_graphs(cuda, &record->group_graphs);
    sumi_cuda_graphs* graphs = needs_groups(cuda, record) ? &record->group_graphs : &record->graphs;
    // slices are cut only before and after loads
    const int32_t segment_count =
        (int32_t)plan->slice_count + (record->held.streaming != NULL ? 2 * record->held.streaming->load_count : 0);
    const int32_t capacity = segment_count < max_graphs(cuda) ? segment_count : max_graphs(cuda);
    *out_done = sumi_cuda_has_graphs(cuda, record);
    if (*out_done) return SUMI_OK;
    if (graphs->capacity < capacity) {
        sumi_cuda_graph* list = sumi_alloc_array(cuda->heap, (size_t)capacity, sizeof *list);
        if (list == NULL) return sumi_out_of_memory(error, (size_t)capacity * sizeof *list, "the graphs of a plan");
        drop_graphs(cuda, graphs);
        sumi_free(cuda->heap, graphs->list);
        graphs->list = list;
        graphs->capacity = capacity;
    }
    while (!*out_done) {
        SUMI_TRY(capture_next(cuda, record, graphs, error));
        if (record->without_graphs) {
            sumi_cuda_drop_graphs(cuda, record);
            record->without_graphs = true;
        }
        *out_done = sumi_cuda_has_graphs(cuda, record);
        if (sumi_clock_ns() >= until_ns) break;
    }
    return SUMI_OK;
}

#define RESERVED_NODES 8 // most graphs have fewer

static CUgraph capture_reserve(const sumi_cuda_driver* driver, CUstream stream, CUfunction empty_kernel)
{
    CUgraph graph = NULL;
    if (driver->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != CUDA_SUCCESS) return NULL;
    for (int32_t i = 0; i < RESERVED_NODES; i++)
        (void)driver->cuLaunchKernel(empty_kernel, 1, 1, 1, SUMI_CUDA_EMPTY_THREADS, 1, 1, 0, stream, NULL, NULL);
    return driver->cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS ? graph : NULL;
}

void sumi_cuda_reserve_graphs(const sumi_cuda_device* device, CUfunction empty_kernel)
{
    const sumi_cuda_driver* driver = &device->driver;
    CUstream stream;
    if (driver->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS) return;
    CUgraph graph = capture_reserve(driver, stream, empty_kernel);
    CUgraphExec execs[SUMI_CUDA_MAX_GRAPHS];
    int32_t count = 0;
    while (graph != NULL && count < SUMI_CUDA_MAX_GRAPHS
           && driver->cuGraphInstantiateWithFlags(&execs[count], graph, 0) == CUDA_SUCCESS)
        count++;
    while (count > 0) driver->cuGraphExecDestroy(execs[--count]);
    if (graph != NULL) driver->cuGraphDestroy(graph);
    driver->cuStreamDestroy(stream);
}

void sumi_cuda_drop_graphs(sumi_cuda* cuda, sumi_cuda_plan* record)
{
    drop_graphs(cuda, &record->graphs);
    drop_graphs(cuda, &record->group_graphs);
    record->without_graphs = false;
}

void sumi_cuda_destroy_dropped_graphs(sumi_cuda* cuda)
{
    while (cuda->dropped_count > 0) destroy_dropped_graph(cuda);
    sumi_free(cuda->heap, cuda->dropped_graphs);
    cuda->dropped_graphs = NULL;
    cuda->dropped_capacity = 0;
}

// The first graph of a slice, or the first one after it.
static int32_t find_first(const sumi_cuda_graphs* graphs, int32_t index)
{
    int32_t low = 0, high = graphs->count;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (graphs->list[middle].slice_index < index) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The index of a slice in the plan's list. -1: it is not there.
static int32_t index_of(const sumi_cuda_plan* record, const sumi_slice* slice)
{
    const uintptr_t first_address = (uintptr_t)record->held.plan->slices, address = (uintptr_t)slice;
    if (address < first_address) return -1;
    const size_t index = (address - first_address) / sizeof *slice;
    return index < record->held.plan->slice_count ? (int32_t)index : -1;
}

// A slice that is in no group has its graph among those of groups too.
CUgraphExec sumi_cuda_graph_of(const sumi_cuda_plan* record, const sumi_slice* slice, const sumi_slice* segment)
{
    const sumi_cuda_graphs* both[2] = {&record->graphs, &record->group_graphs};
    const int32_t index = index_of(record, slice);
    for (int32_t k = 0; k < 2 && index >= 0; k++) {
        for (int32_t i = find_first(both[k], index); i < both[k]->count; i++) {
            const sumi_cuda_graph* graph = &both[k]->list[i];
            if (graph->slice_index != index || graph->slice_count > 1) break;
            if (is_same_work(&graph->slice, slice) && is_same_work(&graph->segment, segment)) return graph->exec;
        }
    }
    return NULL;
}

CUgraphExec sumi_cuda_graph_of_group(const sumi_cuda_plan* record, const sumi_slice* first)
{
    const sumi_cuda_graphs* graphs = &record->group_graphs;
    const int32_t index = index_of(record, first), i = index >= 0 ? find_first(graphs, index) : graphs->count;
    if (i >= graphs->count || record->held.streaming != NULL) return NULL;
    const sumi_cuda_graph* graph = &graphs->list[i];
    const bool is_its = graph->slice_index == index && graph->slice_count == first->group_count && is_of(graph, first);
    return is_its ? graph->exec : NULL;
}
