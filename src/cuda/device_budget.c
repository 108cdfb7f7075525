#include "cuda/device_budget.h"
#include "base/assert.h"
#include "base/platform.h"
#include "cuda/device.h"
#include "cuda/device_memory.h"
#include "cuda/failure.h"
#include "cuda/graphs.h"
#include "cuda/mapped.h"
#include "cuda/plan_records.h"
#include "cuda/residency.h"
#include "cuda/state.h"
#include "cuda/streaming.h"
#include "cuda/transfers.h"
#include "cuda/upload.h"
#include <string.h>

static uint64_t bytes_without_weights(const sumi_cuda* cuda, const sumi_plan* plan, uint64_t scratch)
{
    return cuda->fixed.bytes + sumi_cuda_block_bytes(plan->arena_bytes) + sumi_cuda_block_bytes(scratch);
}
static uint64_t budget_of_weights(uint64_t budget, uint64_t bytes_without_weights)
{
    return budget == 0 ? UINT64_MAX : budget > bytes_without_weights ? budget - bytes_without_weights : 0;
}

sumi_result sumi_cuda_runner_need(const sumi_runner* runner, const sumi_plan* plan, uint64_t budget,
                                  sumi_device_need* out_need, sumi_error* error)
{
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    const uint64_t other_bytes = bytes_without_weights(cuda, plan, sumi_cuda_runner_scratch_bytes(runner, plan));
    sumi_cuda_division division;
    SUMI_TRY(sumi_cuda_divide(&cuda->weights, plan, budget_of_weights(budget, other_bytes), &division, error));
    sumi_free(cuda->heap, division.entries);
    *out_need =
        (sumi_device_need){.weight_bytes = division.resident_bytes + division.ring_bytes + division.staging_bytes,
                           .streamed_bytes = division.streamed_bytes};
    out_need->device_bytes = other_bytes + out_need->weight_bytes;
    SUMI_ASSERT(out_need->device_bytes >= other_bytes);
    out_need->fits = budget == 0 || (division.fits && out_need->device_bytes <= budget);
    out_need->pinned_bytes =
        sumi_cuda_pinned_bytes(plan) + division.streamed_bytes - division.mapped_bytes + division.pinned_bytes;
    return SUMI_OK;
}

sumi_result sumi_cuda_divide_plan(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error)
{
    if (record->has_weights && record->division_budget == cuda->budget) return SUMI_OK;
    sumi_cuda_weights* weights = &cuda->weights;
    sumi_cuda_division* division = &record->division;
    if (record->has_weights) sumi_cuda_settle(cuda);
    sumi_cuda_forget_division(cuda, record);
    SUMI_TRY(sumi_cuda_divide(
        weights, record->plan,
        budget_of_weights(cuda->budget, bytes_without_weights(cuda, record->plan, record->scratch_bytes)), division,
        error));
    record->weights = sumi_alloc_array(cuda->heap, (size_t)division->count + 1, sizeof *record->weights);
    sumi_result result = record->weights == NULL ? sumi_out_of_memory(
                             error, (size_t)division->count * sizeof *record->weights, "the list of a plan's weights")
                                                 : SUMI_OK;
    for (int32_t i = 0; i < division->count && result == SUMI_OK; i++) {
        sumi_cuda_division_entry* entry = &division->entries[i];
        result =
            sumi_cuda_weights_add(weights, entry->weight, entry->form, entry->is_adapter, &entry->weight_index, error);
        if (result != SUMI_OK) break;
        if (entry->in_steps) weights->residents[entry->weight_index].in_steps = true;
        if (entry->residence == SUMI_CUDA_WEIGHT_RESIDENT)
            record->weights[record->weight_count++] = entry->weight_index;
    }
    if (result == SUMI_OK && !division->fits)
        result = sumi_fail(error, SUMI_BUDGET_TOO_SMALL,
                           "%.1f MB on the device do not hold this job, even with its weights streamed",
                           1e-6 * (double)cuda->budget);
    if (result == SUMI_OK && division->streams) result = sumi_cuda_streaming_create(cuda, record, error);
    sumi_free(cuda->heap, division->entries);
    division->entries = NULL;
    if (result != SUMI_OK) {
        sumi_cuda_forget_division(cuda, record);
        return result;
    }
    record->has_weights = true;
    record->division_budget = cuda->budget;
    return SUMI_OK;
}

bool sumi_cuda_needs_pinned_copies(const sumi_cuda_plan* record) { return record->division.streams; }

void sumi_cuda_drop_pinned_copies(sumi_cuda* cuda, sumi_cuda_plan* record, uint64_t until_ns)
{
    bool is_first = true;
    for (; !sumi_cuda_needs_pinned_copies(record) && record->unpinned_count < record->weight_count;
         record->unpinned_count++) {
        sumi_cuda_resident* resident = &cuda->weights.residents[record->weights[record->unpinned_count]];
        if (resident->pinned_copy.pieces == NULL && resident->chunks == 0) continue;
        if (is_first) sumi_cuda_settle(cuda);
        for (size_t p = 0; p < cuda->plan_count && resident->has_pinned_copy; p++) {
            sumi_cuda_weight_streaming* streaming = cuda->plans[p]->streaming;
            if (streaming != NULL) streaming->pinned_cursor = streaming->pinned_row = 0;
        }
        resident->has_pinned_copy = false;
        for (; resident->chunks > 0 || resident->pinned_copy.made > 0; is_first = false) {
            if (!is_first && sumi_clock_ns() >= until_ns) return;
            if (resident->chunks > 0)
                sumi_cuda_mapped_unlock(&cuda->weights.mapped, resident->weight, &resident->chunks, 1);
            else sumi_cuda_release(&cuda->memory, &resident->pinned_copy.pieces[--resident->pinned_copy.made]);
        }
        sumi_cuda_weights_drop_pinned_copy(&cuda->weights, resident);
    }
}

// Called after weights were evicted: plans that need them will upload them again before they run.
static void reset_evicted_weights(sumi_cuda* cuda)
{
    for (size_t p = 0; p < cuda->plan_count; p++) {
        sumi_cuda_plan* record = cuda->plans[p];
        bool has_evicted = false;
        for (int32_t i = 0; i < record->weight_count && !has_evicted; i++)
            has_evicted = cuda->weights.residents[record->weights[i]].on_device.data == 0;
        if (has_evicted) sumi_cuda_drop_graphs(cuda, record);
        record->weight_cursor = 0;
        record->fits_budget = false;
    }
}

static uint64_t missing_bytes(uint64_t requested_bytes, const sumi_cuda_block* block)
{
    return requested_bytes > block->bytes ? requested_bytes - block->bytes : 0;
}

static void release_larger(sumi_cuda* cuda, sumi_cuda_block* block, uint64_t requested_bytes, bool* io_is_any)
{
    SUMI_ASSERT(cuda->flight_count == 0);
    if (block->address == 0 || block->bytes <= requested_bytes) return;
    sumi_cuda_release(&cuda->memory, block);
    *io_is_any = true;
}

sumi_result sumi_cuda_make_fit(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error)
{
    SUMI_ASSERT(record->has_weights);
    if (cuda->budget == 0 || record->fits_budget) return SUMI_OK;
    const uint64_t arena_bytes = sumi_cuda_block_bytes(record->plan->arena_bytes),
                   scratch_bytes = sumi_cuda_block_bytes(record->scratch_bytes),
                   ring_bytes = record->division.ring_bytes;
    sumi_cuda_weights* weights = &cuda->weights;
    const uint64_t serial = ++weights->list_serial;
    bool is_idle = false, has_evicted = false;
    sumi_result result = SUMI_OK;
    sumi_cuda_weights_settle(weights); // memory for conversions is then counted once only
    for (int32_t i = 0; i < record->weight_count; i++) weights->residents[record->weights[i]].list_serial = serial;
    // one slab is evicted each time, at the end the large blocks
    for (size_t tries = weights->slab_count + 2;; tries--) {
        uint64_t total_missing_bytes = record->division.staging_bytes + missing_bytes(arena_bytes, &cuda->arena)
                                     + missing_bytes(scratch_bytes, &cuda->scratch)
                                     + missing_bytes(ring_bytes, &cuda->weight_ring);
        for (int32_t i = 0; i < record->weight_count; i++) {
            const sumi_cuda_resident* resident = &weights->residents[record->weights[i]];
            total_missing_bytes += resident->on_device.data == 0 ? resident->bytes : 0;
        }
        if (sumi_cuda_held_bytes(&cuda->memory) + total_missing_bytes <= cuda->budget) break;
        if (!is_idle) sumi_cuda_settle(cuda);
        is_idle = true;
        if (tries > 0 && sumi_cuda_weights_evict(weights, serial, true)) {
            has_evicted = true;
            continue;
        }
        bool is_any = false;
        release_larger(cuda, &cuda->weight_ring, ring_bytes, &is_any);
        release_larger(cuda, &cuda->arena, arena_bytes, &is_any);
        release_larger(cuda, &cuda->scratch, scratch_bytes, &is_any);
        if (is_any) sumi_cuda_drop_all_graphs(cuda);
        if (is_any && tries > 0) continue;
        result = sumi_fail(error, SUMI_BUDGET_TOO_SMALL,
                           "%.1f MB on the device do not hold this job: %.1f MB are held, %.1f MB are missing",
                           1e-6 * (double)cuda->budget, 1e-6 * (double)sumi_cuda_held_bytes(&cuda->memory),
                           1e-6 * (double)total_missing_bytes);
        break;
    }
    if (has_evicted) reset_evicted_weights(cuda);
    SUMI_TRY(result);
    for (size_t p = 0; p < cuda->plan_count; p++) cuda->plans[p]->fits_budget = false; // this plan takes the memory
    record->fits_budget = true;
    return SUMI_OK;
}

void sumi_cuda_release_ring(sumi_cuda* cuda)
{
    if (cuda->weight_ring.address == 0) return;
    SUMI_ASSERT(cuda->flight_count == 0);
    sumi_cuda_settle(cuda);
    for (size_t p = 0; p < cuda->plan_count; p++) {
        if (cuda->plans[p]->streaming != NULL) sumi_cuda_drop_graphs(cuda, cuda->plans[p]);
    }
    sumi_cuda_release(&cuda->memory, &cuda->weight_ring);
}

sumi_result sumi_cuda_reserve_ring(sumi_cuda* cuda, const sumi_cuda_plan* record, sumi_error* error)
{
    if (record->division.ring_bytes <= cuda->weight_ring.bytes) return SUMI_OK;
    sumi_cuda_release_ring(cuda);
    return sumi_cuda_allocate(&cuda->memory, record->division.ring_bytes, SUMI_MEMORY_WEIGHTS, "streamed weights",
                              &cuda->weight_ring, error);
}

void sumi_cuda_runner_set_budget(sumi_runner* runner, uint64_t bytes)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    for (size_t p = 0; p < cuda->plan_count && cuda->budget != bytes; p++) cuda->plans[p]->fits_budget = false;
    cuda->budget = bytes;
}

// Allocates the new block first. If there is no memory for both, frees the old block and tries again. If that fails
// too, there is no block, and a later call may succeed.
static sumi_result grow_block(sumi_cuda* cuda, sumi_cuda_block* block, uint64_t bytes, const char* what,
                              sumi_error* error)
{
    if (bytes == 0 || block->bytes >= bytes) return SUMI_OK;
    SUMI_ASSERT(cuda->flight_count == 0); // the device may be using the old block
    sumi_cuda_block larger;
    if (cuda->budget != 0 && block->address != 0) { // both blocks together may exceed the budget
        sumi_cuda_release(&cuda->memory, block);
        sumi_cuda_drop_all_graphs(cuda);
    }
    sumi_error first = {0};
    if (sumi_cuda_allocate(&cuda->memory, bytes, SUMI_MEMORY_ARENA, what, &larger, &first) == SUMI_OK) {
        sumi_cuda_release_behind(&cuda->memory, block, cuda->device.compute);
        cuda->has_late_frees = true;
    } else {
        if (block->address == 0 || first.result != SUMI_OUT_OF_DEVICE_MEMORY) return sumi_fail_with(error, &first);
        sumi_cuda_release(&cuda->memory, block);
        sumi_cuda_drop_all_graphs(cuda);
        if (cuda->has_late_frees) sumi_cuda_settle(cuda);
        SUMI_TRY(sumi_cuda_allocate(&cuda->memory, bytes, SUMI_MEMORY_ARENA, what, &larger, error));
    }
    *block = larger;
    sumi_cuda_drop_all_graphs(cuda);
    return SUMI_OK;
}

static sumi_result reserve_plan(sumi_cuda* cuda, const sumi_plan* plan, sumi_error* error)
{
    sumi_cuda_plan* record;
    SUMI_TRY(sumi_cuda_take_plan(cuda, plan, &record, error));
    SUMI_TRY(sumi_cuda_divide_plan(cuda, record, error));
    sumi_result result = sumi_cuda_make_mirrors(cuda, record, error);
    if (result != SUMI_OK) {
        sumi_cuda_drop_mirrors(cuda, record);
        return result;
    }
    SUMI_TRY(sumi_cuda_make_constants(cuda, record, error));
    SUMI_TRY(sumi_cuda_make_fit(cuda, record, error));
    if (cuda->scratch.bytes < record->scratch_bytes || cuda->arena.bytes < plan->arena_bytes) sumi_cuda_settle(cuda);
    SUMI_TRY(grow_block(cuda, &cuda->scratch, record->scratch_bytes, "the kernels' scratch memory", error));
    SUMI_TRY(grow_block(cuda, &cuda->arena, plan->arena_bytes, "the arena", error));
    record->is_reserved = true;
    return SUMI_OK;
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
    sumi_cuda_settle(cuda);
    sumi_cuda_drop_all_graphs(cuda);
    sumi_cuda_release(&cuda->memory, &cuda->arena);
    sumi_cuda_release(&cuda->memory, &cuda->scratch);
    while (cuda->page_count > 0) sumi_cuda_release(&cuda->memory, &cuda->pages[--cuda->page_count]);
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
    if (cuda->budget == 0 || sumi_cuda_held_bytes(&cuda->memory) <= cuda->budget
        || !sumi_cuda_enter_quietly(cuda, &scope))
        return;
    sumi_cuda_release_memory(cuda);
    while (sumi_cuda_held_bytes(&cuda->memory) > cuda->budget
           && sumi_cuda_weights_evict(&cuda->weights, UINT64_MAX, true))
        continue;
    if (sumi_cuda_held_bytes(&cuda->memory) > cuda->budget) sumi_cuda_release_ring(cuda);
    reset_evicted_weights(cuda);
    sumi_cuda_leave(&cuda->device, &scope);
}

bool sumi_cuda_runner_evict(sumi_runner* runner, const sumi_plan* plan)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    const sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    sumi_cuda_weights* weights = &cuda->weights;
    sumi_cuda_scope scope;
    if (!sumi_cuda_enter_quietly(cuda, &scope)) return false;
    sumi_cuda_settle(cuda);
    const uint64_t serial = ++weights->list_serial;
    for (int32_t i = 0; record != NULL && i < record->weight_count; i++)
        weights->residents[record->weights[i]].list_serial = serial;
    const bool takes_all = !sumi_cuda_weights_evict(weights, serial, false);
    const bool is_any = !takes_all || sumi_cuda_weights_evict(weights, serial, true);
    while (is_any && sumi_cuda_weights_evict(weights, serial, takes_all)) continue;
    if (is_any) reset_evicted_weights(cuda);
    sumi_cuda_leave(&cuda->device, &scope);
    return is_any;
}

bool sumi_cuda_query_free_bytes(sumi_cuda* cuda, uint64_t* out_free_bytes)
{
    size_t free_bytes = 0, total_bytes = 0;
    if (cuda->device.driver.cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS) return false;
    const uint64_t counted_bytes = free_bytes + sumi_cuda_held_bytes(&cuda->memory);
    atomic_store(&cuda->uncounted_bytes, counted_bytes < total_bytes ? total_bytes - counted_bytes : 0);
    *out_free_bytes = free_bytes;
    return true;
}

void sumi_cuda_runner_capacity(sumi_runner* runner, sumi_device_capacity* out_capacity)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_memory* memory = &cuda->memory;
    sumi_cuda_scope scope;
    *out_capacity = (sumi_device_capacity){.held_bytes = sumi_cuda_held_bytes(memory)};
    out_capacity->failed_held_bytes = memory->failed_held_bytes;
    out_capacity->failed_request_bytes = memory->failed_request_bytes;
    memory->failed_held_bytes = memory->failed_request_bytes = 0;
    if (memory->allocator.allocate != NULL || !sumi_cuda_enter_quietly(cuda, &scope)) return;
    if (cuda->has_late_frees && cuda->flight_count == 0) sumi_cuda_settle(cuda);
    out_capacity->is_known = sumi_cuda_query_free_bytes(cuda, &out_capacity->free_bytes);
    sumi_cuda_leave(&cuda->device, &scope);
}

void sumi_cuda_runner_held_bytes(const sumi_runner* runner, uint64_t out_bytes[4])
{
    const sumi_cuda_memory* memory = &((const sumi_cuda*)runner)->memory;
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
