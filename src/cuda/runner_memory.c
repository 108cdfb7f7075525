#include "base/assert.h"
#include "cuda/device.h"
#include "cuda/state.h"
#include "cuda/transfers.h"
#include "device/memory_share.h"
#include <string.h>

sumi_result sumi_cuda_runner_need(const sumi_runner* runner, const sumi_plan* plan, uint64_t memory_limit,
                                  sumi_device_need* out_need, sumi_error* error)
{
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    const sumi_device_plan measured = {.plan = plan, .scratch_bytes = sumi_cuda_runner_scratch_bytes(runner, plan)};
    SUMI_TRY(sumi_device_measure_need(&cuda->stock, &measured, memory_limit, out_need, error));
    out_need->pinned_bytes += sumi_cuda_pinned_bytes(plan);
    return SUMI_OK;
}

void sumi_cuda_runner_set_memory_limit(sumi_runner* runner, uint64_t bytes)
{
    sumi_device_set_memory_limit(&((sumi_cuda*)runner)->stock, bytes);
}

static sumi_result reserve_plan(sumi_cuda* cuda, const sumi_plan* plan, sumi_error* error)
{
    sumi_cuda_plan* record;
    SUMI_TRY(sumi_cuda_take_plan(cuda, plan, &record, error));
    SUMI_TRY(sumi_device_divide_plan(&cuda->stock, &record->held, error));
    sumi_result result = sumi_cuda_make_mirrors(cuda, record, error);
    if (result != SUMI_OK) {
        sumi_cuda_drop_mirrors(cuda, record);
        return result;
    }
    SUMI_TRY(sumi_cuda_make_constants(cuda, record, error));
    SUMI_TRY(sumi_device_make_fit(&cuda->stock, &record->held, error));
    // the device may be using the blocks that are to grow
    SUMI_ASSERT(
        cuda->flight_count == 0
        || (cuda->stock.scratch.bytes >= record->held.scratch_bytes && cuda->stock.arena.bytes >= plan->arena_bytes));
    return sumi_device_reserve_blocks(&cuda->stock, &record->held, error);
}

sumi_result sumi_cuda_runner_reserve(sumi_runner* runner, const sumi_plan* plan, sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = reserve_plan(cuda, plan, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return sumi_cuda_note_result(cuda, result, error);
}

void sumi_cuda_release_memory(sumi_cuda* cuda)
{
    SUMI_ASSERT(cuda->flight_count == 0);
    sumi_device_release_blocks(&cuda->stock);
    while (cuda->page_block_count > 0)
        sumi_device_release(&cuda->stock.memory, &cuda->page_blocks[--cuda->page_block_count]);
    cuda->ring_count = cuda->page_count = 0;
    cuda->ring_offset = 0;
}

void sumi_cuda_runner_release(sumi_runner* runner)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (!sumi_cuda_enter_quietly(cuda, &scope)) return;
    sumi_cuda_release_memory(cuda);
    sumi_cuda_leave(&cuda->device, &scope);
}

void sumi_cuda_runner_trim(sumi_runner* runner)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (cuda->stock.memory_limit == 0 || sumi_device_held_bytes(&cuda->stock.memory) <= cuda->stock.memory_limit
        || !sumi_cuda_enter_quietly(cuda, &scope))
        return;
    sumi_cuda_release_memory(cuda);
    sumi_device_trim(&cuda->stock);
    sumi_cuda_leave(&cuda->device, &scope);
}

bool sumi_cuda_runner_evict(sumi_runner* runner, const sumi_plan* plan)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    const sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    sumi_cuda_scope scope;
    if (!sumi_cuda_enter_quietly(cuda, &scope)) return false;
    const bool is_any = sumi_device_evict(&cuda->stock, record != NULL ? &record->held : NULL);
    sumi_cuda_leave(&cuda->device, &scope);
    return is_any;
}

bool sumi_cuda_query_free_bytes(sumi_cuda* cuda, uint64_t* out_free_bytes)
{
    sumi_device_port* port = cuda->stock.memory.port;
    uint64_t free_bytes = 0, total_bytes = 0;
    if (!port->functions->count_free(port, &free_bytes, &total_bytes)) return false;
    const uint64_t counted_bytes = free_bytes + sumi_device_held_bytes(&cuda->stock.memory);
    atomic_store(&cuda->uncounted_bytes, counted_bytes < total_bytes ? total_bytes - counted_bytes : 0);
    *out_free_bytes = free_bytes;
    return true;
}

void sumi_cuda_runner_capacity(sumi_runner* runner, sumi_device_capacity* out_capacity)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_device_memory* memory = &cuda->stock.memory;
    sumi_cuda_scope scope;
    *out_capacity = (sumi_device_capacity){.held_bytes = sumi_device_held_bytes(memory)};
    out_capacity->failed_held_bytes = memory->failed_held_bytes;
    out_capacity->failed_request_bytes = memory->failed_request_bytes;
    memory->failed_held_bytes = memory->failed_request_bytes = 0;
    if (memory->allocator.allocate != NULL || !sumi_cuda_enter_quietly(cuda, &scope)) return;
    if (cuda->stock.has_late_frees && cuda->flight_count == 0) sumi_cuda_settle(cuda);
    out_capacity->is_known = sumi_cuda_query_free_bytes(cuda, &out_capacity->free_bytes);
    sumi_cuda_leave(&cuda->device, &scope);
}

void sumi_cuda_runner_held_bytes(const sumi_runner* runner, uint64_t out_bytes[4])
{
    const sumi_device_memory* memory = &((const sumi_cuda*)runner)->stock.memory;
    for (int kind = 0; kind < 4; kind++) out_bytes[kind] = atomic_load(&memory->held_bytes[kind]);
}

void sumi_cuda_runner_properties(const sumi_runner* runner, sumi_device_properties* out_properties)
{
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    *out_properties = (sumi_device_properties){.device_bytes = cuda->device.bytes,
                                               .uncounted_bytes = atomic_load(&cuda->uncounted_bytes),
                                               .capability = cuda->device.capability,
                                               .driver = cuda->device.driver.version};
    memcpy(out_properties->uuid, cuda->device.uuid, sizeof out_properties->uuid);
    memcpy(out_properties->luid, cuda->device.luid, sizeof out_properties->luid);
    sumi_cuda_runner_held_bytes(runner, out_properties->held_bytes);
}
