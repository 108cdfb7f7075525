// Decides what may lie on the device within the memory limit: the arena, scratch memory, the ring buffer of streamed
// weights, and the resident weights.
#ifndef SUMI_DEVICE_MEMORY_SHARE_H
#define SUMI_DEVICE_MEMORY_SHARE_H
#include "device/stock.h"
#include "plan/runner.h"

// Measures what a plan needs under a memory limit (0: none). Reads only `plan` and `scratch_bytes` of the record, which
// need not be in the stock. The pinned bytes are those of weights, to which the runner adds its own.
sumi_result sumi_device_measure_need(const sumi_device_stock* stock, const sumi_device_plan* record,
                                     uint64_t memory_limit, sumi_device_need* out_need, sumi_error* error);
// Decides which weights of the plan are resident under the current memory limit.
sumi_result sumi_device_divide_plan(sumi_device_stock* stock, sumi_device_plan* record, sumi_error* error);
bool sumi_device_needs_pinned_copies(const sumi_device_plan* record);
// Frees the pinned copies of a plan's weights once all of its weights are resident. Frees at least one piece, and more
// until the time is over, because unpinning takes the caller's time, as pinning does. Plans that stream weights make
// their pinned copies again.
void sumi_device_drop_pinned_copies(sumi_device_stock* stock, sumi_device_plan* record, uint64_t until_ns);
// Evicts weights of other plans, and frees other memory, until the plan's missing memory fits into the limit. Nothing
// may be running.
sumi_result sumi_device_make_fit(sumi_device_stock* stock, sumi_device_plan* record, sumi_error* error);
// Nothing may be running.
void sumi_device_release_ring(sumi_device_stock* stock);
sumi_result sumi_device_reserve_ring(sumi_device_stock* stock, const sumi_device_plan* record, sumi_error* error);
// Makes the arena and scratch memory large enough for the plan. On failure the block that should have grown may have
// been freed. Nothing may be running.
sumi_result sumi_device_reserve_blocks(sumi_device_stock* stock, sumi_device_plan* record, sumi_error* error);
void sumi_device_release_blocks(sumi_device_stock* stock); // Nothing may be running.
void sumi_device_set_memory_limit(sumi_device_stock* stock, uint64_t bytes);
// Evicts weights, and if that is not enough frees the ring buffer, until the memory held fits into the limit. Call
// sumi_device_release_blocks first.
void sumi_device_trim(sumi_device_stock* stock);
// Evicts weights that the plan (NULL: none) does not use: those that no step reads, or all if there are none of these.
// False: there was nothing to evict. Nothing may be running.
bool sumi_device_evict(sumi_device_stock* stock, const sumi_device_plan* record);
#endif
