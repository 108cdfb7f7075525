#include "cuda/streaming.h"
#include "base/assert.h"
#include "base/platform.h"
#include "cuda/arrange.h"
#include "cuda/driver.h"
#include "cuda/form.h"
#include "cuda/mapped.h"
#include "cuda/pinned.h"
#include "cuda/pinned_copies.h"
#include "cuda/residency.h"
#include "cuda/state.h"
#include "cuda/upload.h"
#include "cuda/weight_forms.h"
#include <string.h>

// Times the largest streamed weight. Three allow one weight in use, one being copied, and one waiting; more would leave
// fewer weights resident.
#define RING_MULTIPLE 3
#define RING_STEP 512 // bytes; device memory is counted in this unit

// ---- Division -------------------------------------------------------------------------------------------------------

// Lists every form of every weight once, in the order of first use.
static sumi_result list_shares(const sumi_cuda_weights* weights, const sumi_plan* plan, sumi_cuda_division* division,
                               sumi_error* error)
{
    SUMI_ASSERT(division->shares == NULL && division->count == 0);
    const sumi_weight* weight;
    sumi_cuda_form form;
    size_t uses = 0, size = 64, capacity = 0;
    for (size_t i = 0; i < plan->op_count; i++) {
        for (int32_t k = 0; sumi_cuda_op_weight(plan, (int32_t)i, k, &weight, &form); k++) uses++;
    }
    while (size < 2 * uses) size *= 2;
    int32_t* table = sumi_alloc_zero(weights->heap, size * sizeof *table); // index + 1
    if (table == NULL) return sumi_out_of_memory(error, size * sizeof *table, "the list of a plan's weights");
    sumi_result result = SUMI_OK;
    for (size_t i = 0; i < plan->op_count && result == SUMI_OK; i++) {
        const sumi_op* op = &plan->ops[i];
        for (int32_t k = 0; sumi_cuda_op_weight(plan, (int32_t)i, k, &weight, &form); k++) {
            size_t position = sumi_cuda_form_hash(weight, form, size);
            while (table[position] != 0
                   && (division->shares[table[position] - 1].weight != weight
                       || division->shares[table[position] - 1].form != form))
                position = (position + 1) & (size - 1);
            if (table[position] == 0) {
                result = sumi_grow(weights->heap, (void**)&division->shares, &capacity, (size_t)division->count + 1,
                                   sizeof *division->shares, error);
                if (result != SUMI_OK) break;
                division->shares[division->count++] =
                    (sumi_cuda_weight_share){.weight = weight,
                                             .form = form,
                                             .is_adapter = sumi_cuda_is_adapter_op(plan, i),
                                             .is_table = sumi_cuda_form_is_made_on_cpu(weight, form),
                                             .bytes = sumi_cuda_form_bytes(weight, form),
                                             .resident = -1};
                table[position] = division->count;
            }
            sumi_cuda_weight_share* share = &division->shares[table[position] - 1];
            share->is_table = share->is_table && op->kind == SUMI_OP_EMBED_ROWS;
            // Uses in steps count more than all others, however few steps there are: the same weights should be
            // resident for jobs with any number of steps.
            const bool is_step = plan->sections[op->section].kind == SUMI_SECTION_DENOISE;
            share->in_steps = share->in_steps || is_step;
            share->uses += plan->sections[op->section].repeat * (is_step ? 64.0 : 1.0);
        }
    }
    sumi_free(weights->heap, table);
    return result;
}

// Order of weights that are used equally often. The resident ones should be spread over the model, so that the copies
// of the others are spread over time, and nearly the same weights should be resident if a little more or less memory is
// free. Multiples of the golden ratio do both.
static uint32_t spread_key(const sumi_weight* weight) { return (uint32_t)weight->index * 2654435769u; }

static bool is_resident_before(const sumi_cuda_weight_share* a, const sumi_cuda_weight_share* b)
{
    if (a->uses > b->uses) return true;
    if (a->uses < b->uses) return false;
    return spread_key(a->weight) < spread_key(b->weight);
}

// The weights that may be streamed, either those of steps or all others.
typedef struct movable_weights {
    uint64_t bytes, largest;
} movable_weights;

static uint64_t clamp(uint64_t value, uint64_t min, uint64_t max)
{
    return value < min ? min : value > max ? max : value;
}

// Bytes of the ring buffer. It must hold the largest streamed weight once. Copies of what is streamed in every step
// should overlap with work, so the ring buffer then holds several such weights. If all weights of steps can be
// resident, they are, and the ring buffer gets at most what they leave: the other weights are copied once per run or
// once per picture, and it is better to wait for some of these copies than to repeat copies in every step.
static uint64_t ring_bytes(const movable_weights* steps, const movable_weights* others, uint64_t available_bytes)
{
    if (steps->bytes == 0 || steps->bytes + others->largest <= available_bytes) {
        const uint64_t ring = clamp((available_bytes - steps->bytes) / RING_STEP * RING_STEP, others->largest,
                                    RING_MULTIPLE * others->largest);
        return ring > others->bytes ? others->bytes : ring;
    }
    const uint64_t min_bytes = steps->largest > others->largest ? steps->largest : others->largest;
    const uint64_t max_bytes = clamp(RING_MULTIPLE * steps->largest, min_bytes, steps->bytes + others->bytes);
    return clamp(available_bytes / RING_STEP * RING_STEP, min_bytes, max_bytes);
}

static sumi_result divide(const sumi_cuda_weights* weights, const sumi_plan* plan, uint64_t budget,
                          sumi_cuda_division* division, sumi_error* error)
{
    SUMI_ASSERT(division->resident_bytes == 0 && division->streamed_bytes == 0);
    uint64_t all_bytes = 0, vector_bytes = 0;
    movable_weights steps = {0, 0}, others = {0, 0};
    sumi_cuda_staging staging = {0, 0, false};
    for (int32_t i = 0; i < division->count; i++) {
        all_bytes += division->shares[i].bytes;
        sumi_cuda_staging_add(&staging, division->shares[i].weight, division->shares[i].form);
    }
    division->resident_bytes = all_bytes;
    division->fits = true;
    if (budget == UINT64_MAX) return SUMI_OK;
    division->staging_bytes = sumi_cuda_staging_bytes(&staging);
    if (all_bytes + division->staging_bytes <= budget && !plan->weight_options.streams_weights) return SUMI_OK;

    division->streams = true;
    int32_t* order = sumi_alloc_array(weights->heap, (size_t)division->count + 1, sizeof *order);
    if (order == NULL)
        return sumi_out_of_memory(error, (size_t)division->count * sizeof *order, "the list of a plan's weights");
    int32_t count = 0;
    for (int32_t i = 0; i < division->count; i++) {
        sumi_cuda_weight_share* share = &division->shares[i];
        if (share->is_table) {
            share->residence = SUMI_CUDA_WEIGHT_PINNED;
            division->pinned_bytes +=
                share->bytes
                + sumi_cuda_pinned_list_bytes(share->bytes, sumi_cuda_pinned_row_bytes(share->weight, share->form));
        } else if (sumi_cuda_is_vector(share->form)) { // a few kilobytes each: not worth a copy of their own
            vector_bytes += share->bytes;
        } else {
            movable_weights* group = share->in_steps ? &steps : &others;
            group->largest = share->bytes > group->largest ? share->bytes : group->largest;
            group->bytes += share->bytes;
            int32_t position = count++;
            for (; position > 0 && is_resident_before(share, &division->shares[order[position - 1]]); position--)
                order[position] = order[position - 1];
            order[position] = i;
        }
    }
    const uint64_t available_bytes =
        budget > vector_bytes + division->staging_bytes ? budget - vector_bytes - division->staging_bytes : 0;
    uint64_t ring = ring_bytes(&steps, &others, available_bytes);
    // everything fits while the tables are in pinned memory
    if (vector_bytes + division->staging_bytes + steps.bytes + others.bytes <= budget
        && !plan->weight_options.streams_weights)
        ring = 0;
    division->fits = vector_bytes + division->staging_bytes + ring <= budget;
    uint64_t remaining_bytes = division->fits && !plan->weight_options.streams_weights ? available_bytes - ring : 0;
    division->resident_bytes = vector_bytes;
    for (int32_t k = 0; k < count; k++) {
        sumi_cuda_weight_share* share = &division->shares[order[k]];
        SUMI_ASSERT(order[k] >= 0 && order[k] < division->count);
        share->residence = share->bytes <= remaining_bytes ? SUMI_CUDA_WEIGHT_RESIDENT : SUMI_CUDA_WEIGHT_STREAMED;
        if (share->residence == SUMI_CUDA_WEIGHT_RESIDENT)
            remaining_bytes -= share->bytes, division->resident_bytes += share->bytes;
        else
            division->streamed_bytes += share->bytes,
                division->mapped_bytes +=
                sumi_cuda_streams_mapped(weights, share->weight, share->form) ? share->bytes : 0;
    }
    division->ring_bytes = division->streamed_bytes > 0 ? ring : 0;
    SUMI_ASSERT(!division->fits || division->resident_bytes + division->staging_bytes + division->ring_bytes <= budget);
    sumi_free(weights->heap, order);
    return SUMI_OK;
}

sumi_result sumi_cuda_divide(const sumi_cuda_weights* weights, const sumi_plan* plan, uint64_t budget,
                             sumi_cuda_division* out_division, sumi_error* error)
{
    memset(out_division, 0, sizeof *out_division);
    sumi_result result = list_shares(weights, plan, out_division, error);
    if (result == SUMI_OK) result = divide(weights, plan, budget, out_division, error);
    if (result == SUMI_OK) return SUMI_OK;
    sumi_free(weights->heap, out_division->shares);
    memset(out_division, 0, sizeof *out_division);
    return result;
}

// ---- Loads ----------------------------------------------------------------------------------------------------------

void sumi_cuda_streaming_destroy(sumi_cuda* cuda, sumi_cuda_plan* record)
{
    sumi_cuda_weight_streaming* streaming = record->streaming;
    if (streaming == NULL) return;
    const sumi_cuda_driver* driver = &cuda->device.driver;
    for (int32_t i = 0; streaming->loads != NULL && i < streaming->load_count; i++) {
        if (streaming->loads[i].filled != NULL) driver->cuEventDestroy(streaming->loads[i].filled);
        if (streaming->loads[i].freed != NULL) driver->cuEventDestroy(streaming->loads[i].freed);
    }
    if (streaming->begun != NULL) driver->cuEventDestroy(streaming->begun);
    sumi_free(cuda->heap, streaming->op_loads);
    sumi_free(cuda->heap, streaming->section_loads);
    sumi_free(cuda->heap, streaming->loads);
    sumi_free(cuda->heap, streaming->list);
    sumi_free(cuda->heap, streaming->history);
    sumi_free(cuda->heap, streaming);
    record->streaming = NULL;
}

static const sumi_cuda_weight_share* share_of(const sumi_cuda_division* division, const int32_t* by_resident,
                                              size_t resident_count, int32_t resident)
{
    return resident >= 0 && (size_t)resident < resident_count && by_resident[resident] > 0
             ? &division->shares[by_resident[resident] - 1]
             : NULL;
}

// Computes the load of each op. Addresses in the ring buffer follow each other.
static void assign_ring_offsets(const sumi_cuda* cuda, const sumi_plan* plan, const sumi_cuda_division* division,
                                const int32_t* by_resident, sumi_cuda_weight_streaming* streaming)
{
    const sumi_cuda_weights* weights = &cuda->weights;
    uint64_t offset = 0;
    for (size_t s = 0; s < plan->section_count; s++) {
        streaming->section_loads[s] = streaming->load_count;
        for (int32_t i = plan->sections[s].op_begin; i < plan->sections[s].op_end; i++) {
            const sumi_weight* weight;
            sumi_cuda_form form;
            streaming->op_loads[i] = -1;
            for (int32_t k = 0; sumi_cuda_op_weight(plan, i, k, &weight, &form); k++) {
                const sumi_cuda_resident* resident = sumi_cuda_weights_find(weights, weight, form);
                const int32_t index = (int32_t)(resident - weights->residents);
                const sumi_cuda_weight_share* share = share_of(division, by_resident, weights->resident_count, index);
                // an op has at most one streamed weight; its other weights are vectors
                if (share == NULL || share->residence != SUMI_CUDA_WEIGHT_STREAMED) continue;
                sumi_cuda_load* newest = streaming->load_count > streaming->section_loads[s]
                                           ? &streaming->loads[streaming->load_count - 1]
                                           : NULL;
                if (newest == NULL || newest->resident != index) {
                    if (offset + share->bytes > streaming->ring_bytes) offset = 0;
                    newest = &streaming->loads[streaming->load_count++];
                    *newest = (sumi_cuda_load){.resident = index, .offset = offset, .bytes = share->bytes};
                    int32_t listed = 0;
                    while (listed + 1 < streaming->list_count && streaming->list[listed] != index) listed++;
                    newest->list_index = listed;
                    offset += share->bytes;
                }
                newest->op_last = i;
                streaming->op_loads[i] = streaming->load_count - 1;
            }
        }
    }
    streaming->section_loads[plan->section_count] = streaming->load_count;
}

static sumi_result make(sumi_cuda* cuda, const sumi_plan* plan, const sumi_cuda_division* division,
                        int32_t* by_resident, sumi_cuda_weight_streaming* streaming, sumi_error* error)
{
    SUMI_ASSERT(streaming->loads == NULL && streaming->list == NULL);
    const sumi_cuda_driver* driver = &cuda->device.driver;
    sumi_heap* heap = cuda->heap;
    streaming->ring_bytes = division->ring_bytes;
    streaming->op_loads = sumi_alloc_array(heap, plan->op_count, sizeof *streaming->op_loads);
    streaming->section_loads = sumi_alloc_array(heap, plan->section_count + 1, sizeof *streaming->section_loads);
    streaming->loads = sumi_alloc_zero(heap, (plan->op_count + 1) * sizeof *streaming->loads);
    streaming->list = sumi_alloc_array(heap, (size_t)division->count + 1, sizeof *streaming->list);
    if (streaming->op_loads == NULL || streaming->section_loads == NULL || streaming->loads == NULL
        || streaming->list == NULL)
        return sumi_out_of_memory(error, plan->op_count * sizeof *streaming->loads, "the list of streamed weights");
    for (int32_t i = 0; i < division->count; i++) {
        SUMI_ASSERT(division->shares[i].resident >= 0); // known to the runner's weights
        by_resident[division->shares[i].resident] = i + 1;
        if (division->shares[i].residence != SUMI_CUDA_WEIGHT_RESIDENT)
            streaming->list[streaming->list_count++] = division->shares[i].resident;
    }
    assign_ring_offsets(cuda, plan, division, by_resident, streaming);
    SUMI_ASSERT(streaming->load_count >= 0 && (size_t)streaming->load_count <= plan->op_count);
    streaming->history_size = 2 * streaming->load_count + 8;
    streaming->history = sumi_alloc_array(heap, (size_t)streaming->history_size, sizeof *streaming->history);
    if (streaming->history == NULL)
        return sumi_out_of_memory(error, (size_t)streaming->history_size * sizeof *streaming->history,
                                  "the list of streamed weights");
    for (int32_t i = 0; i < streaming->load_count; i++) {
        SUMI_CU(driver, cuEventCreate(&streaming->loads[i].filled, CU_EVENT_DISABLE_TIMING), "making an event");
        SUMI_CU(driver, cuEventCreate(&streaming->loads[i].freed, CU_EVENT_DISABLE_TIMING), "making an event");
    }
    SUMI_CU(driver, cuEventCreate(&streaming->begun, CU_EVENT_DISABLE_TIMING), "making an event");
    return SUMI_OK;
}

sumi_result sumi_cuda_streaming_create(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error)
{
    sumi_cuda_streaming_destroy(cuda, record);
    int32_t* by_resident = sumi_alloc_zero(cuda->heap, (cuda->weights.resident_count + 1) * sizeof *by_resident);
    record->streaming = sumi_alloc_zero(cuda->heap, sizeof *record->streaming);
    sumi_result result = by_resident == NULL || record->streaming == NULL
                           ? sumi_out_of_memory(error, sizeof *record->streaming, "the list of streamed weights")
                           : SUMI_OK;
    if (result == SUMI_OK) result = make(cuda, record->plan, &record->division, by_resident, record->streaming, error);
    sumi_free(cuda->heap, by_resident);
    if (result != SUMI_OK) sumi_cuda_streaming_destroy(cuda, record);
    return result;
}

bool sumi_cuda_streaming_find_weight(const sumi_cuda* cuda, const sumi_cuda_plan* record, int32_t op_index,
                                     const sumi_cuda_resident* resident, sumi_cuda_weight* out_weight)
{
    SUMI_ASSERT(op_index >= 0 && (size_t)op_index < record->plan->op_count);
    const sumi_cuda_weight_streaming* streaming = record->streaming;
    if (streaming == NULL) return false;
    const int32_t load = streaming->op_loads[op_index], index = (int32_t)(resident - cuda->weights.residents);
    if (load >= 0 && streaming->loads[load].resident == index) {
        *out_weight = sumi_cuda_weight_at(cuda->weight_ring.address + streaming->loads[load].offset, resident->weight,
                                          resident->form);
        return true;
    }
    if (record->plan->ops[op_index].kind != SUMI_OP_EMBED_ROWS || !resident->has_pinned_copy) return false;
    for (int32_t i = 0; i < streaming->list_count; i++) {
        if (streaming->list[i] != index) continue;
        *out_weight = sumi_cuda_weight_at(resident->pinned_copy.list.address, resident->weight, resident->form);
        out_weight->piece_rows = resident->pinned_copy.piece_rows;
        return true;
    }
    return false;
}

// ---- Pinned copies --------------------------------------------------------------------------------------------------

// Makes a pinned copy through the ring buffer: what the device has to convert is copied back from there.
static sumi_result make_copy_on_device(sumi_cuda* cuda, const sumi_cuda_weight_streaming* streaming,
                                       sumi_cuda_resident* resident, sumi_error* error)
{
    SUMI_ASSERT(cuda->weight_ring.bytes >= resident->bytes && !resident->has_pinned_copy);
    const sumi_cuda_driver* driver = &cuda->device.driver;
    SUMI_TRY(sumi_cuda_weights_upload_to(&cuda->weights, streaming->list, streaming->list_count,
                                         streaming->pinned_cursor, cuda->weight_ring.address, error));
    for (uint64_t done = 0, piece; done < resident->bytes; done += piece) {
        piece = resident->bytes - done;
        unsigned char* to = sumi_cuda_pinned_at(&resident->pinned_copy, done, &piece);
        SUMI_CU(driver, cuMemcpyDtoHAsync(to, cuda->weight_ring.address + done, (size_t)piece, cuda->device.copy),
                "copying weights from the device");
    }
    CUresult result = driver->cuStreamSynchronize(cuda->device.copy);
    if (result != CUDA_SUCCESS) return sumi_cuda_failure(driver, result, "copying weights from the device", error);
    resident->has_pinned_copy = true;
    return SUMI_OK;
}

// Whether the weight is copied to the ring buffer; tables are not.
static bool is_streamed(const sumi_cuda_weight_streaming* streaming, int32_t resident)
{
    bool is_any = false;
    for (int32_t i = 0; i < streaming->load_count && !is_any; i++) is_any = streaming->loads[i].resident == resident;
    return is_any;
}

// Makes the next piece of a weight's pinned copy. *out_done also if there is no pinned memory; the weight is then read
// from its file at each use.
static sumi_result make_pinned_copy(sumi_cuda* cuda, sumi_cuda_weight_streaming* streaming, int32_t index,
                                    bool is_table, uint64_t until_ns, uint32_t budget_us, bool* out_done,
                                    sumi_error* error)
{
    sumi_cuda_resident* resident = &cuda->weights.residents[index];
    const bool is_made_on_cpu = sumi_cuda_form_is_made_on_cpu(resident->weight, resident->form);
    if (!sumi_cuda_has_pinned(&resident->pinned_copy, is_table)) {
        const uint64_t row_bytes = sumi_cuda_pinned_row_bytes(resident->weight, resident->form);
        sumi_error none = {0};
        bool is_pinned = false;
        const sumi_result result = sumi_cuda_pin(cuda->heap, &cuda->memory, resident->bytes, row_bytes, is_table,
                                                 until_ns, &resident->pinned_copy, &is_pinned, &none);
        // a part of the copy is of no use
        if (result != SUMI_OK && !resident->has_pinned_copy)
            sumi_cuda_weights_drop_pinned_copy(&cuda->weights, resident);
        if (result != SUMI_OK && result != SUMI_OUT_OF_HOST_MEMORY) return sumi_fail_with(error, &none);
        if (result != SUMI_OK && is_table) { // a table can be nowhere else
            return sumi_fail(error, result, "%s; or raise memory_budget_bytes so that weights need not be streamed",
                             none.text);
        }
        *out_done = result != SUMI_OK;
        if (!is_pinned) return SUMI_OK;
    }
    if (!resident->has_pinned_copy && is_made_on_cpu)
        sumi_cuda_weights_fill_pinned_copy(&cuda->weights, index, &streaming->pinned_row, budget_us);
    else if (!resident->has_pinned_copy) SUMI_TRY(make_copy_on_device(cuda, streaming, resident, error));
    *out_done = resident->has_pinned_copy;
    return SUMI_OK;
}

// Makes the next piece of the source of a streamed weight: its file's mapping, page-locked, or its pinned copy.
static sumi_result make_source(sumi_cuda* cuda, sumi_cuda_weight_streaming* streaming, int32_t index, uint64_t until_ns,
                               uint32_t budget_us, bool* out_done, sumi_error* error)
{
    sumi_cuda_weights* weights = &cuda->weights;
    sumi_cuda_resident* resident = &weights->residents[index];
    const bool is_table = !is_streamed(streaming, index);
    *out_done = resident->has_pinned_copy && (!is_table || sumi_cuda_has_pinned(&resident->pinned_copy, true));
    if (*out_done) return SUMI_OK;
    if (!is_table && resident->pinned_copy.pieces == NULL
        && sumi_cuda_streams_mapped(weights, resident->weight, resident->form)) {
        SUMI_TRY(
            sumi_cuda_mapped_lock(&weights->mapped, resident->weight, &resident->chunks, until_ns, out_done, error));
        resident->has_pinned_copy = *out_done;
        if (weights->mapped.is_supported) return SUMI_OK;
    }
    // the driver refused to lock all of them, or single rows must be readable
    if (resident->chunks > 0) sumi_cuda_weights_drop_pinned_copy(weights, resident);
    return make_pinned_copy(cuda, streaming, index, is_table, until_ns, budget_us, out_done, error);
}

sumi_result sumi_cuda_make_pinned_copies(sumi_cuda* cuda, sumi_cuda_plan* record, uint64_t until_ns, uint32_t budget_us,
                                         bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(record->streaming != NULL && record->streaming->pinned_cursor <= record->streaming->list_count);
    sumi_cuda_weight_streaming* streaming = record->streaming;
    while (streaming->pinned_cursor < streaming->list_count) {
        bool is_over = false;
        SUMI_TRY(make_source(cuda, streaming, streaming->list[streaming->pinned_cursor], until_ns, budget_us, &is_over,
                             error));
        if (is_over) {
            streaming->pinned_cursor++;
            streaming->pinned_row = 0;
        }
        if (sumi_clock_ns() >= until_ns) break;
    }
    *out_done = streaming->pinned_cursor >= streaming->list_count;
    if (*out_done) sumi_cuda_weights_settle(&cuda->weights); // frees the buffers
    return SUMI_OK;
}

// ---- Segments -------------------------------------------------------------------------------------------------------

// A segment waits for its load before its first op, and frees the load's memory after its last op. So it has one load
// and no op that does not need it, and copying and computing overlap op by op, however long slices are. When a segment
// filled a third of the ring buffer, a picture of 1024x1024 under 10 GB took 1.19 times as long as with resident
// weights, with slices of 2 ms (H200).
bool sumi_cuda_next_segment(const sumi_cuda_plan* record, const sumi_slice* slice, sumi_slice* segment)
{
    const sumi_cuda_weight_streaming* streaming = record->streaming;
    const int32_t begin = segment->op_end == 0 ? slice->op_begin : segment->op_end;
    if (begin >= slice->op_end) return false;
    *segment = *slice;
    if (streaming == NULL || slice->op_end == slice->op_begin + 1) return true;
    const int32_t load = streaming->op_loads[begin];
    int32_t end = begin + 1;
    while (end < slice->op_end
           && (streaming->op_loads[end] == load
               || (load >= 0 && streaming->op_loads[end] < 0 && end <= streaming->loads[load].op_last)))
        end++;
    *segment = (sumi_slice){begin, end, 0, record->plan->ops[begin].range_count, slice->predicted_us};
    return true;
}

// The loads of a segment are [*first, *last]. False: it has none.
static bool loads_of(const sumi_cuda_weight_streaming* streaming, const sumi_slice* segment, int32_t* first,
                     int32_t* last)
{
    SUMI_ASSERT(segment->op_begin < segment->op_end);
    *first = *last = -1;
    for (int32_t i = segment->op_begin; i < segment->op_end; i++) {
        const int32_t load = streaming->op_loads[i];
        if (load < 0) continue;
        if (*first < 0) *first = load;
        *last = load;
    }
    return *first >= 0;
}

// ---- A run ----------------------------------------------------------------------------------------------------------

static void advance(const sumi_cuda_weight_streaming* streaming, const sumi_plan* plan,
                    sumi_cuda_load_position* position)
{
    SUMI_ASSERT(position->load >= 0 && position->load < streaming->load_count
                && (size_t)position->section < plan->section_count);
    if (++position->load < streaming->section_loads[position->section + 1]) return;
    position->load = streaming->section_loads[position->section];
    if (++position->iteration < plan->sections[position->section].repeat) return;
    position->iteration = 0;
    do position->section++;
    while ((size_t)position->section < plan->section_count
           && streaming->section_loads[position->section] == streaming->section_loads[position->section + 1]);
    position->load = streaming->section_loads[position->section];
}

static bool are_positions_equal(sumi_cuda_load_position a, sumi_cuda_load_position b)
{
    return a.section == b.section && a.iteration == b.iteration && a.load == b.load;
}

// Begins again with an empty ring buffer: the copies wait for all work that was submitted before.
static sumi_result restart_from(sumi_cuda* cuda, sumi_cuda_weight_streaming* streaming,
                                sumi_cuda_load_position position, sumi_error* error)
{
    SUMI_ASSERT(streaming->begun != NULL);
    const sumi_cuda_driver* driver = &cuda->device.driver;
    SUMI_CU(driver, cuEventRecord(streaming->begun, cuda->device.compute), "ordering streamed weights");
    SUMI_CU(driver, cuStreamWaitEvent(cuda->device.copy, streaming->begun, 0), "ordering streamed weights");
    streaming->issued = streaming->used = 0;
    streaming->next_issued = streaming->next_used = position;
    return SUMI_OK;
}

static int32_t load_number(const sumi_cuda_weight_streaming* streaming, uint64_t number)
{
    return streaming->history[number % (uint64_t)streaming->history_size];
}
static bool overlap(const sumi_cuda_load* a, const sumi_cuda_load* b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

// The event after which the memory of this load in the ring buffer is free; NULL: it is free already.
static CUevent freed_before(const sumi_cuda_weight_streaming* streaming, const sumi_cuda_load* load)
{
    const uint64_t history_count = (uint64_t)streaming->load_count,
                   oldest = streaming->used > history_count ? streaming->used - history_count : 0;
    for (uint64_t n = streaming->used; n-- > oldest;) {
        const sumi_cuda_load* older_load = &streaming->loads[load_number(streaming, n)];
        if (overlap(older_load, load)) return streaming->loads[older_load->freed_with].freed;
    }
    // loads that are not in the history are older
    return oldest > 0 ? streaming->loads[streaming->loads[load_number(streaming, oldest)].freed_with].freed : NULL;
}

// Starts the next load. *out_started false: its memory still has an earlier load that is needed.
static sumi_result issue(sumi_cuda* cuda, const sumi_cuda_plan* record, bool* out_started, sumi_error* error)
{
    SUMI_ASSERT(record->streaming->next_issued.load >= 0
                && record->streaming->next_issued.load < record->streaming->load_count);
    sumi_cuda_weight_streaming* streaming = record->streaming;
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const sumi_cuda_load* load = &streaming->loads[streaming->next_issued.load];
    *out_started = false;
    for (uint64_t n = streaming->used; n < streaming->issued; n++) {
        if (overlap(&streaming->loads[load_number(streaming, n)], load)) return SUMI_OK;
    }
    const CUevent freed = freed_before(streaming, load);
    if (freed != NULL) SUMI_CU(driver, cuStreamWaitEvent(cuda->device.copy, freed, 0), "ordering streamed weights");
    const sumi_cuda_resident* resident = &cuda->weights.residents[load->resident];
    const CUdeviceptr to = cuda->weight_ring.address + load->offset;
    SUMI_ASSERT(load->offset + load->bytes <= cuda->weight_ring.bytes && load->offset % 512 == 0);
    if (resident->has_pinned_copy) SUMI_TRY(sumi_cuda_weights_copy_out(&cuda->weights, resident, to, error));
    else
        SUMI_TRY(sumi_cuda_weights_upload_to(&cuda->weights, streaming->list, streaming->list_count, load->list_index,
                                             to, error));
    SUMI_CU(driver, cuEventRecord(load->filled, cuda->device.copy), "streaming weights");
    streaming->history[streaming->issued++ % (uint64_t)streaming->history_size] = streaming->next_issued.load;
    advance(streaming, record->plan, &streaming->next_issued);
    *out_started = true;
    return SUMI_OK;
}

sumi_result sumi_cuda_streaming_start_loads(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error)
{
    const sumi_cuda_weight_streaming* streaming = record->streaming;
    if (streaming == NULL) return SUMI_OK;
    for (bool is_started = true; is_started && (size_t)streaming->next_issued.section < record->plan->section_count
                                 && streaming->next_issued.load < streaming->load_count;) {
        const int32_t resident = streaming->loads[streaming->next_issued.load].resident;
        // the weight is uploaded from its file, which takes the caller's time, so not earlier than necessary
        if (!cuda->weights.residents[resident].has_pinned_copy) break;
        SUMI_TRY(issue(cuda, record, &is_started, error));
    }
    return SUMI_OK;
}

sumi_result sumi_cuda_streaming_begin_run(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error)
{
    sumi_cuda_weight_streaming* streaming = record->streaming;
    if (streaming == NULL) return SUMI_OK;
    sumi_cuda_load_position first = {0, 0, 0};
    while ((size_t)first.section < record->plan->section_count && streaming->section_loads[first.section + 1] == 0)
        first.section++;
    SUMI_TRY(restart_from(cuda, streaming, first, error));
    return sumi_cuda_streaming_start_loads(cuda, record, error);
}

sumi_result sumi_cuda_streaming_begin_segment(sumi_cuda* cuda, sumi_cuda_plan* record, const sumi_slice* segment,
                                              int32_t counter, bool* out_waits, sumi_error* error)
{
    sumi_cuda_weight_streaming* streaming = record->streaming;
    int32_t first, last;
    *out_waits = false;
    if (streaming == NULL || !loads_of(streaming, segment, &first, &last)) return SUMI_OK;
    const sumi_section* section = &record->plan->sections[record->plan->ops[segment->op_begin].section];
    const int32_t iteration = counter - section->first_counter;
    const sumi_cuda_load_position position = {(int32_t)(section - record->plan->sections),
                                              iteration < 0 || iteration >= section->repeat ? 0 : iteration, first};
    // slices are run in another order than the engine's
    if (!are_positions_equal(position, streaming->next_used)) SUMI_TRY(restart_from(cuda, streaming, position, error));
    for (const uint64_t needed = streaming->used + (uint64_t)(last - first) + 1; streaming->issued < needed;) {
        bool is_started = false;
        SUMI_TRY(issue(cuda, record, &is_started, error));
        if (!is_started)
            return sumi_fail(error, SUMI_INTERNAL,
                             "%s: the streamed weights of this segment do not fit into the ring buffer",
                             record->plan->ops[segment->op_begin].label);
    }
    // copies arrive in order
    SUMI_CU(&cuda->device.driver, cuStreamWaitEvent(cuda->device.compute, streaming->loads[last].filled, 0),
            "waiting for streamed weights");
    *out_waits = true;
    return SUMI_OK;
}

sumi_result sumi_cuda_streaming_end_segment(sumi_cuda* cuda, sumi_cuda_plan* record, const sumi_slice* segment,
                                            sumi_error* error)
{
    sumi_cuda_weight_streaming* streaming = record->streaming;
    int32_t first, last;
    if (streaming == NULL || !loads_of(streaming, segment, &first, &last)) return SUMI_OK;
    const int32_t op_last = segment->op_end - 1;
    const bool ends_op =
        segment->op_end > segment->op_begin + 1 || segment->range_end >= record->plan->ops[op_last].range_count;
    if (streaming->loads[last].op_last > op_last || !ends_op) last--; // an op after this one still uses it
    if (last < first) return SUMI_OK;
    SUMI_CU(&cuda->device.driver, cuEventRecord(streaming->loads[last].freed, cuda->device.compute),
            "ordering streamed weights");
    for (int32_t i = first; i <= last; i++) {
        streaming->loads[i].freed_with = last;
        streaming->used++;
        advance(streaming, record->plan, &streaming->next_used);
    }
    return SUMI_OK;
}
