// CUDA graphs of slices.
#ifndef SUMI_CUDA_GRAPHS_H
#define SUMI_CUDA_GRAPHS_H
#include "cuda/state.h"

#define SUMI_CUDA_EMPTY_THREADS 32 // kernels/empty.cu

// Launches a slice op by op.
sumi_result sumi_cuda_launch_slice(sumi_cuda* cuda, sumi_cuda_plan* record, const sumi_slice* slice, CUstream stream,
                                   sumi_error* error);
// Notes the images of the plan's kernels (modules.h), op by op until the time is over. *out_done: of all ops.
sumi_result sumi_cuda_find_kernels(sumi_cuda* cuda, sumi_cuda_plan* record, uint64_t until_ns, bool* out_done,
                                   sumi_error* error);
// The most graphs that all plans have together. Slices beyond them are launched op by op: an image of 1024 x 1024 in
// slices of 500 us has about 400.
#define SUMI_CUDA_MAX_GRAPHS 320
// Captures graphs of slices until the time is over. Nothing may be running.
sumi_result sumi_cuda_make_graphs(sumi_cuda* cuda, sumi_cuda_plan* record, uint64_t until_ns, bool* out_done,
                                  sumi_error* error);
// Whether the plan has all the graphs that it gets: those of groups, or those of slices while calls have a budget.
bool sumi_cuda_has_graphs(const sumi_cuda* cuda, const sumi_cuda_plan* record);
// Makes SUMI_CUDA_MAX_GRAPHS graphs of the empty kernel and frees them, so that the driver has the memory for them. A
// failure is left to the graphs of plans. Uses no stream of the engine's: other calls may run beside this one. The
// context must be current.
void sumi_cuda_reserve_graphs(const sumi_cuda_device* device, CUfunction empty_kernel);
// The plan has no graphs any more. Destroying 320 of them took 4 ms of one update (H100), so they are kept and
// destroyed one by one when there must be room for others. Nothing may be running.
void sumi_cuda_drop_graphs(sumi_cuda* cuda, sumi_cuda_plan* record);
void sumi_cuda_destroy_dropped_graphs(sumi_cuda* cuda); // all of them, before the context is left for good
// The share of the plan's slices that have these graphs.
float sumi_cuda_graphed_share(const sumi_cuda* cuda, const sumi_cuda_plan* record);
// The graph of a segment of a slice. NULL: launch it op by op.
CUgraphExec sumi_cuda_graph_of(const sumi_cuda_plan* record, const sumi_slice* slice, const sumi_slice* segment);
// The graph of the group that begins with this slice. NULL: launch its slices one by one.
CUgraphExec sumi_cuda_graph_of_group(const sumi_cuda_plan* record, const sumi_slice* first);
#endif
