#include "device/memory_share.h"
#include "base/assert.h"
#include "base/platform.h"
#include "device/device_memory.h"
#include "device/mapped.h"
#include "device/residency.h"
#include "device/stock.h"
#include "device/streaming.h"
#include "device/upload.h"

static uint64_t bytes_without_weights(const sumi_device_stock* stock, const sumi_plan* plan, uint64_t scratch)
{
    return stock->fixed_bytes + sumi_device_block_bytes(plan->arena_bytes) + sumi_device_block_bytes(scratch);
}
static uint64_t limit_of_weights(uint64_t memory_limit, uint64_t bytes_without_weights)
{
    return memory_limit == 0                    ? UINT64_MAX
         : memory_limit > bytes_without_weights ? memory_limit - bytes_without_weights
                                                : 0;
}

sumi_result sumi_device_measure_need(const sumi_device_stock* stock, const sumi_device_plan* record,
                                     uint64_t memory_limit, sumi_device_need* out_need, sumi_error* error)
{
    const sumi_plan* plan = record->plan;
    const uint64_t other_bytes = bytes_without_weights(stock, plan, record->scratch_bytes);
    sumi_device_division division;
    SUMI_TRY(sumi_device_divide(&stock->weights, plan, limit_of_weights(memory_limit, other_bytes), &division, error));
    sumi_free(stock->heap, division.entries);
    *out_need =
        (sumi_device_need){.weight_bytes = division.resident_bytes + division.ring_bytes + division.staging_bytes,
                           .pinned_bytes = division.streamed_bytes - division.mapped_bytes + division.pinned_bytes,
                           .streamed_bytes = division.streamed_bytes};
    out_need->device_bytes = other_bytes + out_need->weight_bytes;
    SUMI_ASSERT(out_need->device_bytes >= other_bytes);
    out_need->fits = memory_limit == 0 || (division.fits && out_need->device_bytes <= memory_limit);
    return SUMI_OK;
}

sumi_result sumi_device_divide_plan(sumi_device_stock* stock, sumi_device_plan* record, sumi_error* error)
{
    if (record->has_weights && record->division_limit == stock->memory_limit) return SUMI_OK;
    sumi_device_weights* weights = &stock->weights;
    sumi_device_division* division = &record->division;
    if (record->has_weights) sumi_device_settle(stock);
    sumi_device_drop_division(stock, record);
    SUMI_TRY(sumi_device_divide(
        weights, record->plan,
        limit_of_weights(stock->memory_limit, bytes_without_weights(stock, record->plan, record->scratch_bytes)),
        division, error));
    record->list.indices = sumi_alloc_array(stock->heap, (size_t)division->count + 1, sizeof *record->list.indices);
    sumi_result result = record->list.indices == NULL
                           ? sumi_out_of_memory(error, (size_t)division->count * sizeof *record->list.indices,
                                                "the list of a plan's weights")
                           : SUMI_OK;
    for (int32_t i = 0; i < division->count && result == SUMI_OK; i++) {
        sumi_device_division_entry* entry = &division->entries[i];
        result = sumi_device_weights_add(weights, entry->weight, entry->form, entry->is_adapter, &entry->weight_index,
                                         error);
        if (result != SUMI_OK) break;
        if (entry->in_steps) weights->residents[entry->weight_index].in_steps = true;
        if (entry->residence == SUMI_DEVICE_WEIGHT_RESIDENT)
            record->list.indices[record->list.count++] = entry->weight_index;
    }
    if (result == SUMI_OK && !division->fits)
        result = sumi_fail(error, SUMI_BUDGET_TOO_SMALL,
                           "%.1f MB on the device are too little for this job, even with streamed weights",
                           1e-6 * (double)stock->memory_limit);
    if (result == SUMI_OK && division->streams) result = sumi_device_streaming_create(stock, record, error);
    sumi_free(stock->heap, division->entries);
    division->entries = NULL;
    if (result != SUMI_OK) {
        sumi_device_drop_division(stock, record);
        return result;
    }
    record->has_weights = true;
    record->division_limit = stock->memory_limit;
    return SUMI_OK;
}

bool sumi_device_needs_pinned_copies(const sumi_device_plan* record) { return record->division.streams; }

void sumi_device_drop_pinned_copies(sumi_device_stock* stock, sumi_device_plan* record, uint64_t until_ns)
{
    bool is_first = true;
    for (; !sumi_device_needs_pinned_copies(record) && record->unpinned_count < record->list.count;
         record->unpinned_count++) {
        sumi_device_resident* resident = &stock->weights.residents[record->list.indices[record->unpinned_count]];
        if (resident->pinned_copy.pieces == NULL && resident->chunks == 0) continue;
        if (is_first) sumi_device_settle(stock);
        for (size_t p = 0; p < stock->plan_count && resident->has_pinned_copy; p++) {
            sumi_device_weight_streaming* streaming = stock->plans[p]->streaming;
            if (streaming != NULL) streaming->list.cursor = streaming->pinned_row = 0;
        }
        resident->has_pinned_copy = false;
        for (; resident->chunks > 0 || resident->pinned_copy.made > 0; is_first = false) {
            if (!is_first && sumi_clock_ns() >= until_ns) return;
            if (resident->chunks > 0)
                sumi_device_mapped_unlock(&stock->weights.mapped, resident->weight, &resident->chunks, 1);
            else sumi_device_release(&stock->memory, &resident->pinned_copy.pieces[--resident->pinned_copy.made]);
        }
        sumi_device_weights_drop_pinned_copy(&stock->weights, resident);
    }
}

// Called after weights were evicted: plans that need them will upload them again before they run.
static void reset_evicted_weights(sumi_device_stock* stock)
{
    for (size_t p = 0; p < stock->plan_count; p++) {
        sumi_device_plan* record = stock->plans[p];
        bool has_evicted = false;
        for (int32_t i = 0; i < record->list.count && !has_evicted; i++)
            has_evicted = stock->weights.residents[record->list.indices[i]].on_device.data == 0;
        if (has_evicted) stock->port->functions->drop_recordings(stock->port, record);
        record->list.cursor = 0;
        record->fits_limit = false;
    }
}

static uint64_t missing_bytes(uint64_t requested_bytes, const sumi_device_block* block)
{
    return requested_bytes > block->bytes ? requested_bytes - block->bytes : 0;
}

static void release_larger(sumi_device_stock* stock, sumi_device_block* block, uint64_t requested_bytes,
                           bool* io_is_any)
{
    if (block->address == 0 || block->bytes <= requested_bytes) return;
    sumi_device_release(&stock->memory, block);
    *io_is_any = true;
}

sumi_result sumi_device_make_fit(sumi_device_stock* stock, sumi_device_plan* record, sumi_error* error)
{
    SUMI_ASSERT(record->has_weights);
    if (stock->memory_limit == 0 || record->fits_limit) return SUMI_OK;
    const uint64_t arena_bytes = sumi_device_block_bytes(record->plan->arena_bytes),
                   scratch_bytes = sumi_device_block_bytes(record->scratch_bytes),
                   ring_bytes = record->division.ring_bytes;
    sumi_device_weights* weights = &stock->weights;
    const uint64_t serial = ++weights->list_serial;
    bool is_idle = false, has_evicted = false;
    sumi_result result = SUMI_OK;
    sumi_device_weights_settle(weights); // memory for conversions is then counted once only
    for (int32_t i = 0; i < record->list.count; i++) weights->residents[record->list.indices[i]].list_serial = serial;
    // one slab is evicted each time, at the end the large blocks
    for (size_t tries = weights->slab_count + 2;; tries--) {
        uint64_t total_missing_bytes = record->division.staging_bytes + missing_bytes(arena_bytes, &stock->arena)
                                     + missing_bytes(scratch_bytes, &stock->scratch)
                                     + missing_bytes(ring_bytes, &stock->weight_ring);
        for (int32_t i = 0; i < record->list.count; i++) {
            const sumi_device_resident* resident = &weights->residents[record->list.indices[i]];
            total_missing_bytes += resident->on_device.data == 0 ? resident->bytes : 0;
        }
        if (sumi_device_held_bytes(&stock->memory) + total_missing_bytes <= stock->memory_limit) break;
        if (!is_idle) sumi_device_settle(stock);
        is_idle = true;
        if (tries > 0 && sumi_device_weights_evict(weights, serial, true)) {
            has_evicted = true;
            continue;
        }
        bool is_any = false;
        release_larger(stock, &stock->weight_ring, ring_bytes, &is_any);
        release_larger(stock, &stock->arena, arena_bytes, &is_any);
        release_larger(stock, &stock->scratch, scratch_bytes, &is_any);
        if (is_any) sumi_device_drop_all_recordings(stock);
        if (is_any && tries > 0) continue;
        result = sumi_fail(error, SUMI_BUDGET_TOO_SMALL,
                           "%.1f MB on the device are too little for this job: %.1f MB are held, %.1f MB are missing",
                           1e-6 * (double)stock->memory_limit, 1e-6 * (double)sumi_device_held_bytes(&stock->memory),
                           1e-6 * (double)total_missing_bytes);
        break;
    }
    if (has_evicted) reset_evicted_weights(stock);
    SUMI_TRY(result);
    for (size_t p = 0; p < stock->plan_count; p++) stock->plans[p]->fits_limit = false; // this plan takes the memory
    record->fits_limit = true;
    return SUMI_OK;
}

void sumi_device_release_ring(sumi_device_stock* stock)
{
    if (stock->weight_ring.address == 0) return;
    sumi_device_settle(stock);
    for (size_t p = 0; p < stock->plan_count; p++) {
        if (stock->plans[p]->streaming != NULL) stock->port->functions->drop_recordings(stock->port, stock->plans[p]);
    }
    sumi_device_release(&stock->memory, &stock->weight_ring);
}

sumi_result sumi_device_reserve_ring(sumi_device_stock* stock, const sumi_device_plan* record, sumi_error* error)
{
    if (record->division.ring_bytes <= stock->weight_ring.bytes) return SUMI_OK;
    sumi_device_release_ring(stock);
    return sumi_device_allocate(&stock->memory, record->division.ring_bytes, SUMI_MEMORY_WEIGHTS, "streamed weights",
                                &stock->weight_ring, error);
}

void sumi_device_set_memory_limit(sumi_device_stock* stock, uint64_t bytes)
{
    for (size_t p = 0; p < stock->plan_count && stock->memory_limit != bytes; p++) stock->plans[p]->fits_limit = false;
    stock->memory_limit = bytes;
}

// Allocates the new block first. If memory does not suffice for both, frees the old block and tries again. If that
// fails too, neither exists, and a later call may succeed.
static sumi_result grow_block(sumi_device_stock* stock, sumi_device_block* block, uint64_t bytes, const char* what,
                              sumi_error* error)
{
    if (bytes == 0 || block->bytes >= bytes) return SUMI_OK;
    sumi_device_block larger;
    if (stock->memory_limit != 0 && block->address != 0) { // both blocks together may exceed the limit
        sumi_device_release(&stock->memory, block);
        sumi_device_drop_all_recordings(stock);
    }
    sumi_error first = {0};
    if (sumi_device_allocate(&stock->memory, bytes, SUMI_MEMORY_ARENA, what, &larger, &first) == SUMI_OK) {
        sumi_device_release_behind(&stock->memory, block);
        stock->has_late_frees = true;
    } else {
        if (block->address == 0 || first.result != SUMI_OUT_OF_DEVICE_MEMORY) return sumi_fail_with(error, &first);
        sumi_device_release(&stock->memory, block);
        sumi_device_drop_all_recordings(stock);
        if (stock->has_late_frees) sumi_device_settle(stock);
        SUMI_TRY(sumi_device_allocate(&stock->memory, bytes, SUMI_MEMORY_ARENA, what, &larger, error));
    }
    *block = larger;
    sumi_device_drop_all_recordings(stock);
    return SUMI_OK;
}

sumi_result sumi_device_reserve_blocks(sumi_device_stock* stock, sumi_device_plan* record, sumi_error* error)
{
    const uint64_t arena_bytes = record->plan->arena_bytes, scratch_bytes = record->scratch_bytes;
    if (stock->scratch.bytes < scratch_bytes || stock->arena.bytes < arena_bytes) sumi_device_settle(stock);
    SUMI_TRY(grow_block(stock, &stock->scratch, scratch_bytes, "the kernels' scratch memory", error));
    SUMI_TRY(grow_block(stock, &stock->arena, arena_bytes, "the arena", error));
    record->is_reserved = true;
    return SUMI_OK;
}

void sumi_device_release_blocks(sumi_device_stock* stock)
{
    sumi_device_settle(stock);
    sumi_device_drop_all_recordings(stock);
    sumi_device_release(&stock->memory, &stock->arena);
    sumi_device_release(&stock->memory, &stock->scratch);
}

void sumi_device_trim(sumi_device_stock* stock)
{
    while (sumi_device_held_bytes(&stock->memory) > stock->memory_limit
           && sumi_device_weights_evict(&stock->weights, UINT64_MAX, true))
        continue;
    if (sumi_device_held_bytes(&stock->memory) > stock->memory_limit) sumi_device_release_ring(stock);
    reset_evicted_weights(stock);
}

bool sumi_device_evict(sumi_device_stock* stock, const sumi_device_plan* record)
{
    sumi_device_weights* weights = &stock->weights;
    sumi_device_settle(stock);
    const uint64_t serial = ++weights->list_serial;
    for (int32_t i = 0; record != NULL && i < record->list.count; i++)
        weights->residents[record->list.indices[i]].list_serial = serial;
    const bool takes_all = !sumi_device_weights_evict(weights, serial, false);
    const bool is_any = !takes_all || sumi_device_weights_evict(weights, serial, true);
    while (is_any && sumi_device_weights_evict(weights, serial, takes_all)) continue;
    if (is_any) reset_evicted_weights(stock);
    return is_any;
}
