#include "device/residency.h"
#include "base/assert.h"
#include "device/device_memory.h"
#include "device/form.h"
#include "device/mapped.h"
#include "device/pinned.h"
#include "device/weight_forms.h"
#include <string.h>

#define SLAB_BYTES (256ull << 20)

// ---- What there is --------------------------------------------------------------------------------------------------

void sumi_device_weights_init(sumi_device_weights* weights, sumi_heap* heap, sumi_workers* workers,
                              sumi_device_port* port, sumi_device_memory* memory)
{
    memset(weights, 0, sizeof *weights);
    weights->heap = heap;
    weights->workers = workers;
    weights->port = port;
    weights->memory = memory;
    sumi_device_mapped_init(&weights->mapped, heap, port);
}

size_t sumi_device_form_hash(const sumi_weight* weight, sumi_device_form form, size_t size)
{
    SUMI_ASSERT(size > 0 && (size & (size - 1)) == 0);
    uint64_t h = ((uint64_t)(uintptr_t)weight >> 4) + (uint64_t)form * 0x9e3779b97f4a7c15ull;
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull;
    return (size_t)(h ^ h >> 32) & (size - 1);
}

static void table_insert(sumi_device_weights* weights, int32_t index)
{
    SUMI_ASSERT(index >= 0 && (size_t)index < weights->resident_count && weights->residents[index].weight != NULL);
    SUMI_ASSERT(2 * weights->used_count <= weights->table_size);
    const sumi_device_resident* resident = &weights->residents[index];
    size_t position = sumi_device_form_hash(resident->weight, resident->form, weights->table_size);
    while (weights->table[position] != 0) position = (position + 1) & (weights->table_size - 1);
    weights->table[position] = index + 1;
}

static void table_fill(sumi_device_weights* weights)
{
    for (size_t i = 0; i < weights->table_size; i++) weights->table[i] = 0;
    for (size_t i = 0; i < weights->resident_count; i++) {
        if (weights->residents[i].weight != NULL) table_insert(weights, (int32_t)i);
    }
}

static int32_t table_find(const sumi_device_weights* weights, const sumi_weight* weight, sumi_device_form form)
{
    if (weights->table_size == 0) return -1;
    for (size_t position = sumi_device_form_hash(weight, form, weights->table_size); weights->table[position] != 0;
         position = (position + 1) & (weights->table_size - 1)) {
        const int32_t index = weights->table[position] - 1;
        if (weights->residents[index].weight == weight && weights->residents[index].form == form) return index;
    }
    return -1;
}

const sumi_device_resident* sumi_device_weights_find(const sumi_device_weights* weights, const sumi_weight* weight,
                                                     sumi_device_form form)
{
    const int32_t index = table_find(weights, weight, form);
    return index >= 0 ? &weights->residents[index] : NULL;
}

sumi_result sumi_device_weights_add(sumi_device_weights* weights, const sumi_weight* weight, sumi_device_form form,
                                    bool is_adapter, int32_t* out_index, sumi_error* error)
{
    SUMI_ASSERT(weight != NULL && weight->tensor_count >= 1 && weight->tensor_count <= SUMI_WEIGHT_MAX_TENSORS);
    *out_index = table_find(weights, weight, form);
    if (*out_index >= 0) return SUMI_OK;
    if (2 * (weights->used_count + 1) > weights->table_size) {
        const size_t size = weights->table_size == 0 ? 1024 : 2 * weights->table_size;
        int32_t* table = sumi_alloc_array(weights->heap, size, sizeof *table);
        if (table == NULL) return sumi_out_of_memory(error, size * sizeof *table, "the list of weights on the device");
        sumi_free(weights->heap, weights->table);
        weights->table = table;
        weights->table_size = size;
        table_fill(weights);
    }
    size_t index = weights->resident_count;
    if (weights->used_count < weights->resident_count) {
        for (index = 0; weights->residents[index].weight != NULL; index++) continue;
        SUMI_ASSERT(index < weights->resident_count);
    } else {
        SUMI_TRY(sumi_grow(weights->heap, (void**)&weights->residents, &weights->resident_capacity,
                           weights->resident_count + 1, sizeof *weights->residents, error));
        weights->resident_count++;
    }
    weights->residents[index] = (sumi_device_resident){.weight = weight,
                                                       .form = form,
                                                       .is_adapter = is_adapter,
                                                       .slab = -1,
                                                       .bytes = sumi_device_form_bytes(weight, form)};
    weights->used_count++;
    table_insert(weights, (int32_t)index);
    *out_index = (int32_t)index;
    return SUMI_OK;
}

void sumi_device_weights_drop_pinned_copy(sumi_device_weights* weights, sumi_device_resident* resident)
{
    sumi_device_mapped_unlock(&weights->mapped, resident->weight, &resident->chunks, INT32_MAX);
    sumi_device_unpin(weights->heap, weights->memory, &resident->pinned_copy);
    resident->has_pinned_copy = false;
}

void sumi_device_weights_release(sumi_device_weights* weights, const sumi_weight* weight)
{
    SUMI_ASSERT(weights->upload == NULL && weight != NULL);
    bool is_any = false;
    for (int form = 0; form < SUMI_DEVICE_FORM_COUNT; form++) {
        const int32_t index = table_find(weights, weight, (sumi_device_form)form);
        if (index < 0) continue;
        sumi_device_resident* resident = &weights->residents[index];
        SUMI_ASSERT(resident->slab < (int32_t)weights->slab_count);
        SUMI_ASSERT(resident->slab < 0 || weights->slabs[resident->slab].resident_count > 0);
        if (resident->slab >= 0 && --weights->slabs[resident->slab].resident_count == 0)
            sumi_device_release(weights->memory, &weights->slabs[resident->slab].block);
        sumi_device_weights_drop_pinned_copy(weights, resident);
        *resident = (sumi_device_resident){.weight = NULL, .slab = -1};
        SUMI_ASSERT(weights->used_count > 0);
        weights->used_count--;
        is_any = true;
        // The hash table is filled again, because a hole would end searches early. A closed model has a few hundred
        // weights.
        table_fill(weights);
    }
    if (is_any && weights->used_count == 0) { // the last model was closed
        sumi_free(weights->heap, weights->residents);
        sumi_free(weights->heap, weights->table);
        sumi_free(weights->heap, weights->slabs);
        weights->residents = NULL, weights->resident_count = weights->resident_capacity = 0;
        weights->table = NULL, weights->table_size = 0;
        weights->slabs = NULL, weights->slab_count = weights->slab_capacity = 0;
    }
}

// ---- Room -----------------------------------------------------------------------------------------------------------

// Collects in one pass the data on which the choice of a slab depends. There may be a thousand slabs.
static void survey_slabs(sumi_device_weights* weights, uint64_t serial)
{
    for (size_t s = 0; s < weights->slab_count; s++) {
        weights->slabs[s].has_listed = weights->slabs[s].has_others = false;
        weights->slabs[s].newest = 0;
    }
    for (size_t i = 0; i < weights->resident_count; i++) {
        const sumi_device_resident* resident = &weights->residents[i];
        if (resident->weight == NULL || resident->slab < 0) continue;
        SUMI_ASSERT((size_t)resident->slab < weights->slab_count);
        sumi_device_slab* slab = &weights->slabs[resident->slab];
        if (resident->list_serial == serial) slab->has_listed = true;
        else slab->has_others = true;
        slab->newest = resident->list_serial > slab->newest ? resident->list_serial : slab->newest;
    }
}

static bool is_evicted_before(const sumi_device_slab* a, const sumi_device_slab* b)
{
    if (a->has_listed != b->has_listed) return !a->has_listed;
    if (a->in_steps != b->in_steps) return !a->in_steps;
    return a->newest < b->newest;
}

// A slab is evicted as a whole. Weights in it that are still needed are uploaded again.
bool sumi_device_weights_evict(sumi_device_weights* weights, uint64_t serial, bool takes_all)
{
    int32_t victim = -1;
    survey_slabs(weights, serial);
    for (size_t s = 0; s < weights->slab_count; s++) {
        const sumi_device_slab* slab = &weights->slabs[s];
        if (slab->block.address == 0 || !slab->has_others) continue;
        if (!takes_all && (slab->has_listed || slab->in_steps)) continue;
        if (victim < 0 || is_evicted_before(slab, &weights->slabs[victim])) victim = (int32_t)s;
    }
    if (victim < 0) return false;
    for (size_t i = 0; i < weights->resident_count; i++) {
        sumi_device_resident* resident = &weights->residents[i];
        if (resident->weight == NULL || resident->slab != victim) continue;
        resident->on_device = (sumi_device_weight){.data = 0};
        resident->slab = -1;
        resident->rows_sent = 0;
    }
    weights->slabs[victim].resident_count = 0;
    sumi_device_release(weights->memory, &weights->slabs[victim].block);
    return true;
}

static bool has_single_slab(const sumi_device_weights* weights, const sumi_device_resident* resident)
{
    return weights->uses_single_slabs && !sumi_device_traits(resident->form)->is_vector;
}

// Whether a weight can lie in the same slab as `first`: both are weights of one model, of one control net, or of
// adapters, and steps read both or neither.
static bool shares_slab(const sumi_device_weights* weights, const sumi_device_resident* first,
                        const sumi_device_resident* resident)
{
    return resident->on_device.data == 0 && resident->is_adapter == first->is_adapter
        && resident->weight->owner == first->weight->owner && resident->in_steps == first->in_steps
        && has_single_slab(weights, resident) == has_single_slab(weights, first);
}

sumi_result sumi_device_weights_allocate(sumi_device_weights* weights, const sumi_device_list* list, sumi_error* error)
{
    const int32_t from = list->cursor;
    SUMI_ASSERT(from >= 0 && from < list->count && weights->residents[list->indices[from]].on_device.data == 0);
    size_t index = 0;
    while (index < weights->slab_count && weights->slabs[index].block.address != 0) index++;
    if (index == weights->slab_count)
        SUMI_TRY(sumi_grow(weights->heap, (void**)&weights->slabs, &weights->slab_capacity, weights->slab_count + 1,
                           sizeof *weights->slabs, error));
    const sumi_device_resident first = weights->residents[list->indices[from]];
    sumi_device_slab slab = {.in_steps = first.in_steps};
    int32_t end = from;
    for (uint64_t limit = has_single_slab(weights, &first) ? first.bytes : SLAB_BYTES;;) {
        uint64_t bytes = 0;
        for (end = from; end < list->count; end++) {
            const sumi_device_resident* resident = &weights->residents[list->indices[end]];
            if (!shares_slab(weights, &first, resident)) continue;
            if (bytes > 0 && bytes + resident->bytes > limit) break;
            bytes += resident->bytes;
        }
        sumi_error none = {0};
        const sumi_result result = sumi_device_allocate(weights->memory, bytes, SUMI_MEMORY_WEIGHTS,
                                                        "the model's weights", &slab.block, &none);
        if (result == SUMI_OK) break;
        if (result != SUMI_OUT_OF_DEVICE_MEMORY || bytes <= first.bytes) return sumi_fail_with(error, &none);
        limit = bytes / 2; // the memory is nearly used up: smaller slabs may still fit
    }
    uint64_t address = slab.block.address;
    SUMI_ASSERT(address % 512 == 0);
    for (int32_t i = from; i < end; i++) {
        sumi_device_resident* resident = &weights->residents[list->indices[i]];
        if (!shares_slab(weights, &first, resident)) continue;
        resident->on_device = sumi_device_weight_at(address, resident->weight, resident->form);
        resident->slab = (int32_t)index;
        address += resident->bytes;
        slab.resident_count++;
        SUMI_ASSERT(address <= slab.block.address + slab.block.bytes);
    }
    weights->slabs[index] = slab;
    if (index == weights->slab_count) weights->slab_count++;
    return SUMI_OK;
}

void sumi_device_weights_close(sumi_device_weights* weights)
{
    if (weights->heap == NULL) return;
    SUMI_ASSERT(weights->upload == NULL);
    for (size_t i = 0; i < weights->resident_count; i++) {
        if (weights->residents[i].weight != NULL) sumi_device_weights_drop_pinned_copy(weights, &weights->residents[i]);
    }
    sumi_device_mapped_close(&weights->mapped);
    for (size_t i = 0; i < weights->slab_count; i++) sumi_device_release(weights->memory, &weights->slabs[i].block);
    sumi_free(weights->heap, weights->residents);
    sumi_free(weights->heap, weights->table);
    sumi_free(weights->heap, weights->slabs);
    memset(weights, 0, sizeof *weights);
}
