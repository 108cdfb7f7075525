// Values between the host and the device, through pinned memory: what the host writes goes through a ring, what it reads is
// fetched to a place of its own, behind an event.
#ifndef SUMI_CUDA_TRANSFERS_H
#define SUMI_CUDA_TRANSFERS_H
#include "cuda/state.h"

// Where each bound value that some op writes is copied to when it is fetched, and the event behind the copy.
sumi_result sumi_cuda_make_mirrors(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error);
void sumi_cuda_drop_mirrors(sumi_cuda* cuda, sumi_cuda_plan* record);
// A pinned copy of the constants: they never change, so `start` only has to say "copy".
sumi_result sumi_cuda_make_constants(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error);
// Bytes of pinned memory that a plan takes here.
uint64_t sumi_cuda_pinned_bytes(const sumi_plan* plan);
// To their places in the arena, when a run begins.
void sumi_cuda_copy_constants(sumi_cuda* cuda, const sumi_cuda_plan* record);
// Whether there is pinned memory for the ring and the record's mirrors.
bool sumi_cuda_has_pages(const sumi_cuda* cuda, const sumi_cuda_plan* record);
// One page, and more while there is time.
sumi_result sumi_cuda_make_pages(sumi_cuda* cuda, const sumi_cuda_plan* record, uint64_t until_ns, sumi_error* error);
void sumi_cuda_runner_write(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset,
                            const void* data, uint64_t bytes);
sumi_result sumi_cuda_runner_fetch(sumi_runner* runner, const sumi_plan* plan, sumi_value value, sumi_error* error);
void sumi_cuda_runner_read(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, void* into,
                           uint64_t bytes);
#endif
