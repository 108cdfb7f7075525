// Device memory within the budget: the arena, scratch, the ring buffer of streamed weights, and which weights are
// resident.
#ifndef SUMI_CUDA_DEVICE_BUDGET_H
#define SUMI_CUDA_DEVICE_BUDGET_H
#include "cuda/state.h"

sumi_result sumi_cuda_runner_need(const sumi_runner* runner, const sumi_plan* plan, uint64_t budget,
                                  sumi_device_need* out_need, sumi_error* error);
// Decides which weights of the plan are resident under the present budget.
sumi_result sumi_cuda_divide_plan(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error);
bool sumi_cuda_needs_pinned_copies(const sumi_cuda_plan* record);
// Frees the pinned copies of a plan's weights once all of its weights are resident. Frees one piece at least, and more
// until the time is over, because unpinning takes the caller's time as pinning does. Plans that stream weights make
// their pinned copies again.
void sumi_cuda_drop_pinned_copies(sumi_cuda* cuda, sumi_cuda_plan* record, uint64_t until_ns);
// Evicts weights of other plans, and frees other memory, until what the plan lacks fits into the budget. Nothing may be
// running.
sumi_result sumi_cuda_make_fit(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error);
void sumi_cuda_release_ring(sumi_cuda* cuda);
sumi_result sumi_cuda_reserve_ring(sumi_cuda* cuda, const sumi_cuda_plan* record, sumi_error* error);
void sumi_cuda_runner_set_budget(sumi_runner* runner, uint64_t bytes);
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
