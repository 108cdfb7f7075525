#include "device/streaming.h"
#include "base/assert.h"
#include "base/platform.h"
#include "device/choose_forms.h"
#include "device/form.h"
#include "device/mapped.h"
#include "device/pinned.h"
#include "device/pinned_copies.h"
#include "device/residency.h"
#include "device/stock.h"
#include "device/upload.h"
#include "device/weight_forms.h"
#include <string.h>

// Times the largest streamed weight. Three allow one weight in use, one being copied, and one waiting; more would leave
// fewer weights resident.
#define RING_MULTIPLE 3
#define RING_STEP 512 // bytes; sizes and offsets in the ring buffer are multiples, as copies want them aligned
// A use in a step counts this many times as much as any other use. Other sections repeat less often than that.
#define STEP_USE_WEIGHT 64.0

// ---- Division -------------------------------------------------------------------------------------------------------

// Lists every form of every weight once, in the order of first use.
static sumi_result list_entries(const sumi_device_weights* weights, const sumi_plan* plan,
                                sumi_device_division* division, sumi_error* error)
{
    SUMI_ASSERT(division->entries == NULL && division->count == 0);
    const sumi_weight* weight;
    sumi_device_form form;
    size_t uses = 0, slot_count = 64, capacity = 0;
    for (size_t i = 0; i < plan->op_count; i++) {
        for (int32_t k = 0; sumi_device_op_weight(plan, (int32_t)i, k, &weight, &form); k++) uses++;
    }
    while (slot_count < 2 * uses) slot_count *= 2;
    int32_t* slots = sumi_alloc_zero(weights->heap, slot_count * sizeof *slots); // of a hash table: index + 1
    if (slots == NULL)
        return sumi_out_of_memory(error, slot_count * sizeof *slots, "the hash table of a plan's weights");
    sumi_result result = SUMI_OK;
    for (size_t i = 0; i < plan->op_count && result == SUMI_OK; i++) {
        const sumi_op* op = &plan->ops[i];
        for (int32_t k = 0; sumi_device_op_weight(plan, (int32_t)i, k, &weight, &form); k++) {
            size_t hash_slot = sumi_device_form_hash(weight, form, slot_count);
            while (slots[hash_slot] != 0
                   && (division->entries[slots[hash_slot] - 1].weight != weight
                       || division->entries[slots[hash_slot] - 1].form != form))
                hash_slot = (hash_slot + 1) & (slot_count - 1);
            if (slots[hash_slot] == 0) {
                result = sumi_grow(weights->heap, (void**)&division->entries, &capacity, (size_t)division->count + 1,
                                   sizeof *division->entries, error);
                if (result != SUMI_OK) break;
                division->entries[division->count++] =
                    (sumi_device_division_entry){.weight = weight,
                                                 .form = form,
                                                 .is_adapter = sumi_device_is_adapter_op(plan, i),
                                                 // kernels read rows of a table in the form that its file has
                                                 .is_table = sumi_device_form_is_made_on_cpu(weight, form),
                                                 .bytes = sumi_device_form_bytes(weight, form),
                                                 .weight_index = -1};
                slots[hash_slot] = division->count;
            }
            sumi_device_division_entry* entry = &division->entries[slots[hash_slot] - 1];
            entry->is_table = entry->is_table && op->kind == SUMI_OP_EMBED_ROWS;
            // Uses in steps count more than all others, however few steps there are: the same weights should be
            // resident for jobs with any number of steps.
            const bool is_step = plan->sections[op->section].kind == SUMI_SECTION_DENOISE;
            entry->in_steps = entry->in_steps || is_step;
            entry->use_weight += plan->sections[op->section].repeat * (is_step ? STEP_USE_WEIGHT : 1.0);
        }
    }
    sumi_free(weights->heap, slots);
    return result;
}

// Order of weights that are used equally often. The resident ones should be spread over the model, so that the copies
// of the others are spread over time, and nearly the same weights should be resident if a little more or less memory is
// free. Multiples of the golden ratio do both.
static uint32_t spread_key(const sumi_weight* weight) { return (uint32_t)weight->index * 2654435769u; }

static bool is_resident_before(const sumi_device_division_entry* a, const sumi_device_division_entry* b)
{
    if (a->use_weight > b->use_weight) return true;
    if (a->use_weight < b->use_weight) return false;
    return spread_key(a->weight) < spread_key(b->weight);
}

// The weights that may be streamed, either those of steps or all others.
typedef struct movable_weights {
    uint64_t bytes, largest;
} movable_weights;

static uint64_t clamp(uint64_t value, uint64_t min_value, uint64_t max_value)
{
    return value < min_value ? min_value : value > max_value ? max_value : value;
}

// Bytes of the ring buffer. It must hold the largest streamed weight once. Copies of weights that are streamed in every
// step should overlap with work, so the ring buffer then holds several such weights. If all weights of steps can be
// resident, they are, and the ring buffer gets at most the rest: the other weights are copied once per run or once per
// picture, and it is better to wait for some of these copies than to repeat copies in every step.
static uint64_t ring_bytes(const movable_weights* steps, const movable_weights* others, uint64_t free_bytes)
{
    if (steps->bytes == 0 || steps->bytes + others->largest <= free_bytes) {
        const uint64_t ring = clamp((free_bytes - steps->bytes) / RING_STEP * RING_STEP, others->largest,
                                    RING_MULTIPLE * others->largest);
        return ring > others->bytes ? others->bytes : ring;
    }
    const uint64_t min_bytes = steps->largest > others->largest ? steps->largest : others->largest;
    const uint64_t max_bytes = clamp(RING_MULTIPLE * steps->largest, min_bytes, steps->bytes + others->bytes);
    return clamp(free_bytes / RING_STEP * RING_STEP, min_bytes, max_bytes);
}

static sumi_result divide(const sumi_device_weights* weights, const sumi_plan* plan, uint64_t device_bytes,
                          sumi_device_division* division, sumi_error* error)
{
    SUMI_ASSERT(division->resident_bytes == 0 && division->streamed_bytes == 0);
    uint64_t all_bytes = 0, vector_bytes = 0;
    movable_weights steps = {0, 0}, others = {0, 0};
    sumi_device_staging staging = {0, 0, false};
    for (int32_t i = 0; i < division->count; i++) {
        all_bytes += division->entries[i].bytes;
        sumi_device_staging_add(&staging, division->entries[i].weight, division->entries[i].form);
    }
    division->resident_bytes = all_bytes;
    division->fits = true;
    if (device_bytes == UINT64_MAX) return SUMI_OK;
    division->staging_bytes = sumi_device_staging_bytes(&staging);
    if (all_bytes + division->staging_bytes <= device_bytes && !plan->weight_options.streams_weights) return SUMI_OK;

    division->streams = true;
    // The movable weights, first those that should be resident.
    int32_t* order = sumi_alloc_array(weights->heap, (size_t)division->count + 1, sizeof *order);
    if (order == NULL)
        return sumi_out_of_memory(error, (size_t)division->count * sizeof *order, "the order of a plan's weights");
    int32_t count = 0;
    for (int32_t i = 0; i < division->count; i++) {
        sumi_device_division_entry* entry = &division->entries[i];
        if (entry->is_table) {
            entry->residence = SUMI_DEVICE_WEIGHT_PINNED;
            division->pinned_bytes +=
                entry->bytes
                + sumi_device_pinned_list_bytes(entry->bytes, sumi_device_pinned_row_bytes(entry->weight, entry->form));
        } else if (sumi_device_traits(entry->form)->is_vector) { // a few kilobytes each: not worth a separate copy
            vector_bytes += entry->bytes;
        } else {
            movable_weights* sum = entry->in_steps ? &steps : &others;
            sum->largest = entry->bytes > sum->largest ? entry->bytes : sum->largest;
            sum->bytes += entry->bytes;
            int32_t position = count++; // insertion sort
            for (; position > 0 && is_resident_before(entry, &division->entries[order[position - 1]]); position--)
                order[position] = order[position - 1];
            order[position] = i;
        }
    }
    const uint64_t fixed_bytes = vector_bytes + division->staging_bytes,
                   free_bytes = device_bytes > fixed_bytes ? device_bytes - fixed_bytes : 0;
    uint64_t ring = ring_bytes(&steps, &others, free_bytes);
    // Without the tables, which are in pinned memory, everything may fit.
    if (fixed_bytes + steps.bytes + others.bytes <= device_bytes && !plan->weight_options.streams_weights) ring = 0;
    division->fits = fixed_bytes + ring <= device_bytes;
    uint64_t bytes_left = division->fits && !plan->weight_options.streams_weights ? free_bytes - ring : 0;
    division->resident_bytes = vector_bytes;
    for (int32_t k = 0; k < count; k++) {
        sumi_device_division_entry* entry = &division->entries[order[k]];
        SUMI_ASSERT(order[k] >= 0 && order[k] < division->count);
        if (entry->bytes <= bytes_left) {
            entry->residence = SUMI_DEVICE_WEIGHT_RESIDENT;
            bytes_left -= entry->bytes;
            division->resident_bytes += entry->bytes;
        } else {
            entry->residence = SUMI_DEVICE_WEIGHT_STREAMED;
            division->streamed_bytes += entry->bytes;
            if (sumi_device_streams_mapped(weights, entry->weight, entry->form)) division->mapped_bytes += entry->bytes;
        }
    }
    division->ring_bytes = division->streamed_bytes > 0 ? ring : 0;
    SUMI_ASSERT(!division->fits
                || division->resident_bytes + division->staging_bytes + division->ring_bytes <= device_bytes);
    sumi_free(weights->heap, order);
    return SUMI_OK;
}

sumi_result sumi_device_divide(const sumi_device_weights* weights, const sumi_plan* plan, uint64_t device_bytes,
                               sumi_device_division* out_division, sumi_error* error)
{
    memset(out_division, 0, sizeof *out_division);
    sumi_result result = list_entries(weights, plan, out_division, error);
    if (result == SUMI_OK) result = divide(weights, plan, device_bytes, out_division, error);
    if (result == SUMI_OK) return SUMI_OK;
    sumi_free(weights->heap, out_division->entries);
    memset(out_division, 0, sizeof *out_division);
    return result;
}

// ---- Loads ----------------------------------------------------------------------------------------------------------

void sumi_device_streaming_destroy(sumi_device_stock* stock, sumi_device_plan* record)
{
    sumi_device_weight_streaming* streaming = record->streaming;
    if (streaming == NULL) return;
    sumi_device_port* port = stock->port;
    for (int32_t i = 0; streaming->loads != NULL && i < streaming->load_count; i++) {
        if (streaming->loads[i].filled != NULL) port->functions->destroy_event(port, streaming->loads[i].filled);
        if (streaming->loads[i].freed != NULL) port->functions->destroy_event(port, streaming->loads[i].freed);
    }
    if (streaming->begun != NULL) port->functions->destroy_event(port, streaming->begun);
    sumi_free(stock->heap, streaming->op_loads);
    sumi_free(stock->heap, streaming->section_loads);
    sumi_free(stock->heap, streaming->loads);
    sumi_free(stock->heap, streaming->list.indices);
    sumi_free(stock->heap, streaming->history);
    sumi_free(stock->heap, streaming);
    record->streaming = NULL;
}

// entry_numbers: for each weight of the runner the index of its entry in the division + 1; 0: it has none.
static const sumi_device_division_entry* entry_of(const sumi_device_division* division, const int32_t* entry_numbers,
                                                  size_t weight_count, int32_t weight_index)
{
    return weight_index >= 0 && (size_t)weight_index < weight_count && entry_numbers[weight_index] > 0
             ? &division->entries[entry_numbers[weight_index] - 1]
             : NULL;
}

// Computes the load of each op. Addresses in the ring buffer follow each other.
static void place_loads(const sumi_device_weights* weights, const sumi_device_plan* record,
                        const int32_t* entry_numbers)
{
    const sumi_plan* plan = record->plan;
    sumi_device_weight_streaming* streaming = record->streaming;
    uint64_t offset = 0;
    for (size_t s = 0; s < plan->section_count; s++) {
        streaming->section_loads[s] = streaming->load_count;
        for (int32_t i = plan->sections[s].op_begin; i < plan->sections[s].op_end; i++) {
            const sumi_weight* weight;
            sumi_device_form form;
            streaming->op_loads[i] = -1;
            for (int32_t k = 0; sumi_device_op_weight(plan, i, k, &weight, &form); k++) {
                const sumi_device_resident* resident = sumi_device_weights_find(weights, weight, form);
                const int32_t index = (int32_t)(resident - weights->residents);
                const sumi_device_division_entry* entry =
                    entry_of(&record->division, entry_numbers, weights->resident_count, index);
                // an op has at most one streamed weight; its other weights are vectors
                if (entry == NULL || entry->residence != SUMI_DEVICE_WEIGHT_STREAMED) continue;
                sumi_device_load* newest = streaming->load_count > streaming->section_loads[s]
                                             ? &streaming->loads[streaming->load_count - 1]
                                             : NULL;
                if (newest == NULL || newest->weight_index != index) {
                    if (offset + entry->bytes > streaming->ring_bytes) offset = 0;
                    newest = &streaming->loads[streaming->load_count++];
                    *newest = (sumi_device_load){.weight_index = index, .offset = offset, .bytes = entry->bytes};
                    int32_t listed = 0;
                    while (listed + 1 < streaming->list.count && streaming->list.indices[listed] != index) listed++;
                    newest->list_index = listed;
                    offset += entry->bytes;
                }
                newest->op_last = i;
                streaming->op_loads[i] = streaming->load_count - 1;
            }
        }
    }
    streaming->section_loads[plan->section_count] = streaming->load_count;
}

static sumi_result make(sumi_device_stock* stock, const sumi_device_plan* record, int32_t* entry_numbers,
                        sumi_error* error)
{
    const sumi_plan* plan = record->plan;
    const sumi_device_division* division = &record->division;
    sumi_device_weight_streaming* streaming = record->streaming;
    SUMI_ASSERT(streaming->loads == NULL && streaming->list.indices == NULL);
    sumi_device_port* port = stock->port;
    sumi_heap* heap = stock->heap;
    streaming->ring_bytes = division->ring_bytes;
    streaming->op_loads = sumi_alloc_array(heap, plan->op_count, sizeof *streaming->op_loads);
    streaming->section_loads = sumi_alloc_array(heap, plan->section_count + 1, sizeof *streaming->section_loads);
    streaming->loads = sumi_alloc_zero(heap, (plan->op_count + 1) * sizeof *streaming->loads);
    streaming->list.indices = sumi_alloc_array(heap, (size_t)division->count + 1, sizeof *streaming->list.indices);
    if (streaming->op_loads == NULL || streaming->section_loads == NULL || streaming->loads == NULL
        || streaming->list.indices == NULL)
        return sumi_out_of_memory(error, plan->op_count * sizeof *streaming->loads, "the list of streamed weights");
    for (int32_t i = 0; i < division->count; i++) {
        SUMI_ASSERT(division->entries[i].weight_index >= 0); // known to the runner's weights
        entry_numbers[division->entries[i].weight_index] = i + 1;
        if (division->entries[i].residence != SUMI_DEVICE_WEIGHT_RESIDENT)
            streaming->list.indices[streaming->list.count++] = division->entries[i].weight_index;
    }
    place_loads(&stock->weights, record, entry_numbers);
    SUMI_ASSERT(streaming->load_count >= 0 && (size_t)streaming->load_count <= plan->op_count);
    streaming->history_size = 2 * streaming->load_count + 8;
    streaming->history = sumi_alloc_array(heap, (size_t)streaming->history_size, sizeof *streaming->history);
    if (streaming->history == NULL)
        return sumi_out_of_memory(error, (size_t)streaming->history_size * sizeof *streaming->history,
                                  "the list of streamed weights");
    for (int32_t i = 0; i < streaming->load_count; i++) {
        SUMI_TRY(port->functions->make_event(port, false, &streaming->loads[i].filled, error));
        SUMI_TRY(port->functions->make_event(port, false, &streaming->loads[i].freed, error));
    }
    return port->functions->make_event(port, false, &streaming->begun, error);
}

sumi_result sumi_device_streaming_create(sumi_device_stock* stock, sumi_device_plan* record, sumi_error* error)
{
    sumi_device_streaming_destroy(stock, record);
    int32_t* entry_numbers = sumi_alloc_zero(stock->heap, (stock->weights.resident_count + 1) * sizeof *entry_numbers);
    record->streaming = sumi_alloc_zero(stock->heap, sizeof *record->streaming);
    sumi_result result = entry_numbers == NULL || record->streaming == NULL
                           ? sumi_out_of_memory(error, sizeof *record->streaming, "the list of streamed weights")
                           : SUMI_OK;
    if (result == SUMI_OK) result = make(stock, record, entry_numbers, error);
    sumi_free(stock->heap, entry_numbers);
    if (result != SUMI_OK) sumi_device_streaming_destroy(stock, record);
    return result;
}

bool sumi_device_streaming_find_weight(const sumi_device_stock* stock, const sumi_device_plan* record, int32_t op_index,
                                       const sumi_device_resident* resident, sumi_device_weight* out_place)
{
    SUMI_ASSERT(op_index >= 0 && (size_t)op_index < record->plan->op_count);
    const sumi_device_weight_streaming* streaming = record->streaming;
    if (streaming == NULL) return false;
    const int32_t load = streaming->op_loads[op_index], index = (int32_t)(resident - stock->weights.residents);
    if (load >= 0 && streaming->loads[load].weight_index == index) {
        *out_place = sumi_device_weight_at(stock->weight_ring.address + streaming->loads[load].offset, resident->weight,
                                           resident->form);
        return true;
    }
    if (record->plan->ops[op_index].kind != SUMI_OP_EMBED_ROWS || !resident->has_pinned_copy) return false;
    for (int32_t i = 0; i < streaming->list.count; i++) {
        if (streaming->list.indices[i] != index) continue;
        *out_place = sumi_device_weight_at(resident->pinned_copy.list.address, resident->weight, resident->form);
        out_place->piece_rows = resident->pinned_copy.piece_rows;
        return true;
    }
    return false;
}

// ---- Pinned copies --------------------------------------------------------------------------------------------------

// Makes a pinned copy of a form that only the device can make: the weight is uploaded and converted into the ring
// buffer, and copied back from there.
static sumi_result make_copy_on_device(sumi_device_stock* stock, const sumi_device_weight_streaming* streaming,
                                       sumi_device_resident* resident, sumi_error* error)
{
    SUMI_ASSERT(stock->weight_ring.bytes >= resident->bytes && !resident->has_pinned_copy);
    sumi_device_port* port = stock->port;
    SUMI_TRY(sumi_device_weights_upload_to(&stock->weights, &streaming->list, stock->weight_ring.address, error));
    for (uint64_t done = 0, piece; done < resident->bytes; done += piece) {
        piece = resident->bytes - done;
        unsigned char* to = sumi_device_pinned_at(&resident->pinned_copy, done, &piece);
        const sumi_device_copy copy = {sumi_device_address(to), stock->weight_ring.address + done, piece,
                                       "copying weights from the device"};
        SUMI_TRY(port->functions->copy_out(port, &copy, error));
    }
    SUMI_TRY(port->functions->wait_for_copies(port, "copying weights from the device", error));
    resident->has_pinned_copy = true;
    return SUMI_OK;
}

// Whether the weight is copied to the ring buffer; tables are not.
static bool is_streamed(const sumi_device_weight_streaming* streaming, int32_t resident)
{
    bool is_any = false;
    for (int32_t i = 0; i < streaming->load_count && !is_any; i++)
        is_any = streaming->loads[i].weight_index == resident;
    return is_any;
}

// Makes the next piece of the pinned copy of the weight at the cursor. *out_done: the copy is complete, or pinned
// memory has run out; the weight is then read from its file at each use.
static sumi_result make_pinned_copy(sumi_device_stock* stock, sumi_device_weight_streaming* streaming,
                                    sumi_device_budget budget, bool* out_done, sumi_error* error)
{
    const int32_t index = streaming->list.indices[streaming->list.cursor];
    const bool is_table = !is_streamed(streaming, index);
    sumi_device_resident* resident = &stock->weights.residents[index];
    const bool is_made_on_cpu = sumi_device_form_is_made_on_cpu(resident->weight, resident->form);
    if (!sumi_device_has_pinned(&resident->pinned_copy, is_table)) {
        const sumi_device_pinned_size size = {resident->bytes,
                                              sumi_device_pinned_row_bytes(resident->weight, resident->form), is_table};
        sumi_error failure = {0};
        bool is_pinned = false;
        const sumi_result result = sumi_device_pin(stock->heap, &stock->memory, &size, budget.until_ns,
                                                   &resident->pinned_copy, &is_pinned, &failure);
        // Pinned memory for a part of the weight is of no use.
        if (result != SUMI_OK && !resident->has_pinned_copy)
            sumi_device_weights_drop_pinned_copy(&stock->weights, resident);
        if (result != SUMI_OK && result != SUMI_OUT_OF_HOST_MEMORY) return sumi_fail_with(error, &failure);
        if (result != SUMI_OK && is_table) { // a table can be nowhere else
            return sumi_fail(error, result, "%s; or raise memory_budget_bytes so that weights need not be streamed",
                             failure.text);
        }
        *out_done = result != SUMI_OK;
        if (!is_pinned) return SUMI_OK;
    }
    if (!resident->has_pinned_copy && is_made_on_cpu)
        sumi_device_weights_fill_pinned_copy(&stock->weights, index, &streaming->pinned_row, budget.us);
    else if (!resident->has_pinned_copy) SUMI_TRY(make_copy_on_device(stock, streaming, resident, error));
    *out_done = resident->has_pinned_copy;
    return SUMI_OK;
}

// Makes the next piece of the source of the streamed weight at the cursor: its file's mapping, page-locked, or its
// pinned copy.
static sumi_result make_source(sumi_device_stock* stock, sumi_device_weight_streaming* streaming,
                               sumi_device_budget budget, bool* out_done, sumi_error* error)
{
    const int32_t index = streaming->list.indices[streaming->list.cursor];
    sumi_device_weights* weights = &stock->weights;
    sumi_device_resident* resident = &weights->residents[index];
    const bool is_table = !is_streamed(streaming, index);
    *out_done = resident->has_pinned_copy && (!is_table || sumi_device_has_pinned(&resident->pinned_copy, true));
    if (*out_done) return SUMI_OK;
    if (!is_table && resident->pinned_copy.pieces == NULL
        && sumi_device_streams_mapped(weights, resident->weight, resident->form)) {
        SUMI_TRY(sumi_device_mapped_lock(&weights->mapped, resident->weight, &resident->chunks, budget.until_ns,
                                         out_done, error));
        resident->has_pinned_copy = *out_done;
        if (weights->mapped.is_supported) return SUMI_OK;
    }
    // The device refused to lock the mapping, or the weight is a table, whose rows must be readable one by one.
    if (resident->chunks > 0) sumi_device_weights_drop_pinned_copy(weights, resident);
    return make_pinned_copy(stock, streaming, budget, out_done, error);
}

sumi_result sumi_device_make_pinned_copies(sumi_device_stock* stock, sumi_device_plan* record,
                                           sumi_device_budget budget, bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(record->streaming != NULL && record->streaming->list.cursor <= record->streaming->list.count);
    sumi_device_weight_streaming* streaming = record->streaming;
    while (streaming->list.cursor < streaming->list.count) {
        bool is_over = false;
        SUMI_TRY(make_source(stock, streaming, budget, &is_over, error));
        if (is_over) {
            streaming->list.cursor++;
            streaming->pinned_row = 0;
        }
        if (sumi_clock_ns() >= budget.until_ns) break;
    }
    *out_done = streaming->list.cursor >= streaming->list.count;
    if (*out_done) sumi_device_weights_settle(&stock->weights); // frees the buffers
    return SUMI_OK;
}

// ---- Segments -------------------------------------------------------------------------------------------------------

// A segment waits for its load before its first op, and frees the load's memory after its last op. It ends where the
// next load begins, or where ops without a load follow the last use. So copying and computing overlap op by op, however
// long slices are. (Tried: segments that fill a third of the ring buffer. An image of 1024x1024 under 10 GB then took
// 1.19 times as long as with resident weights, with slices of 2 ms, on an H200.)
bool sumi_device_next_segment(const sumi_device_plan* record, const sumi_slice* slice, sumi_slice* segment)
{
    const sumi_device_weight_streaming* streaming = record->streaming;
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
    // Whole ops. For one op the range has its length; for several it is not read.
    *segment = (sumi_slice){.op_begin = begin,
                            .op_end = end,
                            .range_begin = 0,
                            .range_end = record->plan->ops[begin].range_count,
                            .predicted_us = slice->predicted_us};
    return true;
}

// The loads of a segment are [*first, *last]: one, or several where consecutive segments were not cut. False: none.
static bool loads_of(const sumi_device_weight_streaming* streaming, const sumi_slice* segment, int32_t* first,
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

static bool has_loads(const sumi_device_weight_streaming* streaming, int32_t section)
{
    return streaming->section_loads[section] < streaming->section_loads[section + 1];
}

// The next position, if no more alternatives run. After an iteration of an alternative, its main section continues.
static void advance(const sumi_device_weight_streaming* streaming, const sumi_plan* plan, sumi_device_load_position* at)
{
    SUMI_ASSERT(at->load >= 0 && at->load < streaming->load_count && (size_t)at->section < plan->section_count);
    if (++at->load < streaming->section_loads[at->section + 1]) return;
    if (plan->sections[at->section].is_alternative && has_loads(streaming, at->section - 1)) at->section--;
    at->load = streaming->section_loads[at->section];
    if (++at->iteration < plan->sections[at->section].repeat) return;
    at->iteration = 0;
    do at->section++;
    while ((size_t)at->section < plan->section_count
           && (plan->sections[at->section].is_alternative || !has_loads(streaming, at->section)));
    at->load = streaming->section_loads[at->section];
}

// Moves the positions forward to a later iteration of the section that they are in: the iterations between were left
// out, or alternatives ran without loads in their place. The loads in the ring buffer are the same ones. False: the
// loads after this iteration have already begun.
static bool skip_iterations(sumi_device_weight_streaming* streaming, const sumi_plan* plan,
                            sumi_device_load_position here)
{
    const int32_t count = here.iteration - streaming->next_used.iteration;
    if (here.section != streaming->next_used.section || here.load != streaming->next_used.load || count < 0
        || streaming->next_issued.section != here.section
        || streaming->next_issued.iteration + count >= plan->sections[here.section].repeat)
        return false;
    streaming->next_used.iteration += count;
    streaming->next_issued.iteration += count;
    return true;
}

static bool is_same_place(sumi_device_load_position a, sumi_device_load_position b)
{
    return a.section == b.section && a.iteration == b.iteration && a.load == b.load;
}

// Begins again with an empty ring buffer: the copies wait for all work that was submitted before.
static sumi_result restart_at(sumi_device_stock* stock, sumi_device_weight_streaming* streaming,
                              sumi_device_load_position at, sumi_error* error)
{
    SUMI_ASSERT(streaming->begun != NULL);
    sumi_device_port* port = stock->port;
    SUMI_TRY(port->functions->record(port, streaming->begun, SUMI_DEVICE_STREAM_COMPUTE, "ordering streamed weights",
                                     error));
    SUMI_TRY(
        port->functions->order(port, SUMI_DEVICE_STREAM_COPIES, streaming->begun, "ordering streamed weights", error));
    streaming->issued = streaming->used = 0;
    streaming->next_issued = streaming->next_used = at;
    return SUMI_OK;
}

static int32_t load_at(const sumi_device_weight_streaming* streaming, uint64_t number)
{
    return streaming->history[number % (uint64_t)streaming->history_size];
}
static bool overlap(const sumi_device_load* a, const sumi_device_load* b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

// The event after which the memory of this load in the ring buffer is free; NULL: it is free already.
static sumi_device_event* freed_before(const sumi_device_weight_streaming* streaming, const sumi_device_load* load)
{
    // Loads of the plan come again and again, so the last load_count loads have every offset once; the history is
    // longer.
    const uint64_t searched = (uint64_t)streaming->load_count,
                   oldest = streaming->used > searched ? streaming->used - searched : 0;
    for (uint64_t n = streaming->used; n-- > oldest;) {
        const sumi_device_load* before = &streaming->loads[load_at(streaming, n)];
        if (overlap(before, load)) return streaming->loads[before->freed_with].freed;
    }
    // Still older loads ended before the oldest one examined: waiting for that one is enough.
    return oldest > 0 ? streaming->loads[streaming->loads[load_at(streaming, oldest)].freed_with].freed : NULL;
}

// Starts the next load. *out_started false: its memory still has an earlier load that is needed.
static sumi_result issue(sumi_device_stock* stock, const sumi_device_plan* record, bool* out_started, sumi_error* error)
{
    SUMI_ASSERT(record->streaming->next_issued.load >= 0
                && record->streaming->next_issued.load < record->streaming->load_count);
    sumi_device_weight_streaming* streaming = record->streaming;
    sumi_device_port* port = stock->port;
    const sumi_device_load* load = &streaming->loads[streaming->next_issued.load];
    *out_started = false;
    for (uint64_t n = streaming->used; n < streaming->issued; n++) {
        if (overlap(&streaming->loads[load_at(streaming, n)], load)) return SUMI_OK;
    }
    sumi_device_event* freed = freed_before(streaming, load);
    if (freed != NULL)
        SUMI_TRY(port->functions->order(port, SUMI_DEVICE_STREAM_COPIES, freed, "ordering streamed weights", error));
    const sumi_device_resident* resident = &stock->weights.residents[load->weight_index];
    const uint64_t to = stock->weight_ring.address + load->offset;
    SUMI_ASSERT(load->offset + load->bytes <= stock->weight_ring.bytes && load->offset % RING_STEP == 0);
    const sumi_device_list list = {streaming->list.indices, streaming->list.count, load->list_index};
    if (resident->has_pinned_copy) SUMI_TRY(sumi_device_weights_copy_out(&stock->weights, resident, to, error));
    else SUMI_TRY(sumi_device_weights_upload_to(&stock->weights, &list, to, error));
    SUMI_TRY(port->functions->record(port, load->filled, SUMI_DEVICE_STREAM_COPIES, "streaming weights", error));
    streaming->history[streaming->issued++ % (uint64_t)streaming->history_size] = streaming->next_issued.load;
    advance(streaming, record->plan, &streaming->next_issued);
    *out_started = true;
    return SUMI_OK;
}

sumi_result sumi_device_streaming_start_loads(sumi_device_stock* stock, sumi_device_plan* record, sumi_error* error)
{
    const sumi_device_weight_streaming* streaming = record->streaming;
    if (streaming == NULL) return SUMI_OK;
    for (bool has_room = true; has_room && (size_t)streaming->next_issued.section < record->plan->section_count
                               && streaming->next_issued.load < streaming->load_count;) {
        const int32_t resident = streaming->loads[streaming->next_issued.load].weight_index;
        // the weight is uploaded from its file, which takes the caller's time, so not earlier than necessary
        if (!stock->weights.residents[resident].has_pinned_copy) break;
        SUMI_TRY(issue(stock, record, &has_room, error));
    }
    return SUMI_OK;
}

sumi_result sumi_device_streaming_begin_run(sumi_device_stock* stock, sumi_device_plan* record, sumi_error* error)
{
    sumi_device_weight_streaming* streaming = record->streaming;
    if (streaming == NULL) return SUMI_OK;
    sumi_device_load_position first = {0, 0, 0};
    while ((size_t)first.section < record->plan->section_count && streaming->section_loads[first.section + 1] == 0)
        first.section++;
    SUMI_TRY(restart_at(stock, streaming, first, error));
    return sumi_device_streaming_start_loads(stock, record, error);
}

sumi_result sumi_device_streaming_begin_segment(sumi_device_stock* stock, sumi_device_plan* record,
                                                const sumi_slice* segment, int32_t counter, bool* out_waits,
                                                sumi_error* error)
{
    sumi_device_weight_streaming* streaming = record->streaming;
    int32_t first, last;
    *out_waits = false;
    if (streaming == NULL || !loads_of(streaming, segment, &first, &last)) return SUMI_OK;
    const sumi_section* section = &record->plan->sections[record->plan->ops[segment->op_begin].section];
    const int32_t iteration = counter - section->first_counter;
    const sumi_device_load_position here = {(int32_t)(section - record->plan->sections),
                                            iteration < 0 || iteration >= section->repeat ? 0 : iteration, first};
    // Tests may run slices in another order than the engine, or a counter that the section does not have.
    // An alternative runs, or iterations were left out.
    if (!is_same_place(here, streaming->next_used) && !skip_iterations(streaming, record->plan, here))
        SUMI_TRY(restart_at(stock, streaming, here, error));
    for (const uint64_t needed = streaming->used + (uint64_t)(last - first) + 1; streaming->issued < needed;) {
        bool is_started = false;
        SUMI_TRY(issue(stock, record, &is_started, error));
        if (!is_started)
            return sumi_fail(error, SUMI_INTERNAL,
                             "%s: the streamed weights of this segment do not fit into the ring buffer",
                             record->plan->ops[segment->op_begin].label);
    }
    // copies arrive in order
    SUMI_TRY(stock->port->functions->order(stock->port, SUMI_DEVICE_STREAM_COMPUTE, streaming->loads[last].filled,
                                           "waiting for streamed weights", error));
    *out_waits = true;
    return SUMI_OK;
}

sumi_result sumi_device_streaming_end_segment(sumi_device_stock* stock, sumi_device_plan* record,
                                              const sumi_slice* segment, sumi_error* error)
{
    sumi_device_weight_streaming* streaming = record->streaming;
    int32_t first, last;
    if (streaming == NULL || !loads_of(streaming, segment, &first, &last)) return SUMI_OK;
    const int32_t op_last = segment->op_end - 1;
    const bool ends_op =
        segment->op_end > segment->op_begin + 1 || segment->range_end >= record->plan->ops[op_last].range_count;
    if (streaming->loads[last].op_last > op_last || !ends_op) last--; // an op after this one still uses it
    if (last < first) return SUMI_OK;
    SUMI_TRY(stock->port->functions->record(stock->port, streaming->loads[last].freed, SUMI_DEVICE_STREAM_COMPUTE,
                                            "ordering streamed weights", error));
    for (int32_t i = first; i <= last; i++) {
        streaming->loads[i].freed_with = last;
        streaming->used++;
        advance(streaming, record->plan, &streaming->next_used);
    }
    return SUMI_OK;
}
