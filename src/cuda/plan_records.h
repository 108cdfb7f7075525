// The runner's record of each plan, from the first `reserve` or `prepare` to `release_plan`.
#ifndef SUMI_CUDA_PLAN_RECORDS_H
#define SUMI_CUDA_PLAN_RECORDS_H
#include "cuda/state.h"

uint64_t sumi_cuda_runner_scratch_bytes(const sumi_runner* runner, const sumi_plan* plan);
sumi_cuda_plan* sumi_cuda_find_plan(sumi_cuda* cuda, const sumi_plan* plan);
void sumi_cuda_free_record(sumi_cuda* cuda, sumi_cuda_plan* record);
// Returns the record of a plan, and makes it if the plan is new.
sumi_result sumi_cuda_take_plan(sumi_cuda* cuda, const sumi_plan* plan, sumi_cuda_plan** out_record, sumi_error* error);
void sumi_cuda_runner_release_plan(sumi_runner* runner, const sumi_plan* plan);
void sumi_cuda_runner_release_weights(sumi_runner* runner, const sumi_weight* const* weights, size_t count);
#endif
