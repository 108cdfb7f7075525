// The runner's functions for device memory (plan/runner.h).
#ifndef SUMI_CUDA_RUNNER_MEMORY_H
#define SUMI_CUDA_RUNNER_MEMORY_H
#include "cuda/state.h"

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
