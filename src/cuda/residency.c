#include "cuda/residency.h"
#include "base/assert.h"
#include "base/platform.h"
#include "cuda/balance.h"
#include "cuda/state.h"
#include "cuda/stored.h"
#include "kernels/upload.h"
#include <string.h>

#define SLOT_BYTES (1u << 20) // pinning a megabyte takes about a millisecond of the caller's frame
#define SLOT_COUNT 32
#define FEWEST_SLOTS 4
#define SMALLEST_SLOT (64ull << 10)
#define SLAB_BYTES (256ull << 20)
#define BATCH_BYTES (8u << 20) // enough for all workers to be worth waking
#define MOST_PIECES 256
#define ITEM_BYTES (256u << 10)                                           // what one worker copies at a time
#define MOST_ITEMS (MOST_PIECES + BATCH_BYTES / ITEM_BYTES + MOST_PIECES) // every piece may end in a short item
// of one thread that copies from the page cache: bounds a batch by the caller's budget
#define SLOWEST_BYTES_PER_US 2048

// ---- Forms ----------------------------------------------------------------------------------------------------------

static int32_t round_to(int32_t value, int32_t multiple) { return (value + multiple - 1) / multiple * multiple; }
static bool is_8bit_form(sumi_cuda_form form) { return sumi_cuda_form_operands(form) != SUMI_CUDA_BF16; }
static bool is_gated_form(sumi_cuda_form form)
{
    return form == SUMI_CUDA_FORM_GATED || form == SUMI_CUDA_FORM_GATED_FP8 || form == SUMI_CUDA_FORM_GATED_INT8;
}
static bool is_stored_form(sumi_cuda_form form) { return form == SUMI_CUDA_FORM_STORED || form == SUMI_CUDA_FORM_INT4; }

static int32_t form_pitch(const sumi_weight* weight, sumi_cuda_form form)
{
    if (is_8bit_form(form)) return sumi_cuda_8bit_pitch(sumi_cuda_form_operands(form), weight->cols);
    if (is_stored_form(form)) return weight->cols;
    switch (form) {
    case SUMI_CUDA_FORM_VECTOR:
    case SUMI_CUDA_FORM_VECTOR_BALANCED: return round_to(weight->rows * weight->cols, 8);
    case SUMI_CUDA_FORM_CONV:
    case SUMI_CUDA_FORM_CONV_UP: return round_to(weight->cols / SUMI_UPLOAD_TAPS, 8);
    default: return round_to(weight->cols, 8);
    }
}

static uint64_t scales_at(const sumi_weight* weight, sumi_cuda_form form) // 8-bit forms
{
    return ((uint64_t)weight->rows * (uint64_t)form_pitch(weight, form) + 255) / 256 * 256;
}

// The norm by whose weight a form is balanced (balance.h); NULL: it is not.
static const sumi_weight* balance_of(const sumi_weight* weight, sumi_cuda_form form)
{
    if (form == SUMI_CUDA_FORM_VECTOR_BALANCED) return weight;
    return sumi_cuda_form_operands(form) == SUMI_CUDA_INT8 ? weight->balance : NULL;
}
// What travels in front of a form's first rows: its balance.
static uint64_t balance_bytes(const sumi_weight* weight, sumi_cuda_form form)
{
    return balance_of(weight, form) != NULL ? ((uint64_t)weight->cols * sizeof(float) + 255) / 256 * 256 : 0;
}

static uint64_t balance_at(const sumi_weight* weight, sumi_cuda_form form) // or the end, of forms that have none
{
    SUMI_ASSERT(weight->rows >= 1 && weight->cols >= 1 && (int)form >= 0 && form < SUMI_CUDA_FORM_COUNT);
    const uint64_t rows = (uint64_t)weight->rows, pitch = (uint64_t)form_pitch(weight, form);
    uint64_t bytes;
    switch (form) {
    case SUMI_CUDA_FORM_VECTOR:
    case SUMI_CUDA_FORM_VECTOR_BALANCED: bytes = pitch * 4; break;
    case SUMI_CUDA_FORM_CONV: bytes = rows * SUMI_UPLOAD_TAPS * pitch * 2; break;
    case SUMI_CUDA_FORM_CONV_UP: bytes = 4 * rows * 4 * pitch * 2; break;
    case SUMI_CUDA_FORM_STORED:
    case SUMI_CUDA_FORM_INT4: bytes = sumi_cuda_stored_bytes(weight, form); break;
    default: bytes = is_8bit_form(form) ? scales_at(weight, form) + rows * 4 : rows * pitch * 2; break;
    }
    return (bytes + 15) / 16 * 16;
}

uint64_t sumi_cuda_form_bytes(const sumi_weight* weight, sumi_cuda_form form)
{
    return (balance_at(weight, form) + balance_bytes(weight, form) + 511) / 512 * 512;
}

sumi_cuda_weight sumi_cuda_place_at(CUdeviceptr address, const sumi_weight* weight, sumi_cuda_form form)
{
    return (sumi_cuda_weight){.data = address,
                              .scales = is_8bit_form(form) ? address + scales_at(weight, form) : 0,
                              .balance = balance_of(weight, form) != NULL ? address + balance_at(weight, form) : 0,
                              .pitch = form_pitch(weight, form)};
}

// Of forms that the host makes.
static uint64_t made_row_bytes(const sumi_weight* weight, sumi_cuda_form form)
{
    return form == SUMI_CUDA_FORM_STORED ? sumi_dtype_bytes(weight->parts[0].dtype, (uint64_t)weight->cols)
                                         : (uint64_t)weight->cols * 2;
}

// else: bytes as any
uint64_t sumi_cuda_image_row_bytes(const sumi_weight* weight, sumi_cuda_form form)
{
    return sumi_cuda_host_makes(weight, form) ? made_row_bytes(weight, form) : 1024;
}

// Whether the form has the part's elements as the file has them.
static bool keeps_bytes(const sumi_weight* weight, sumi_cuda_form form, const sumi_weight_part* part)
{
    const bool is_bf16 = weight->change == NULL && part->dtype == SUMI_DTYPE_BF16 && part->scale == 1.0f
                      && sumi_weight_part_is_straight(part);
    return form == SUMI_CUDA_FORM_STORED
        || (is_bf16 && (form == SUMI_CUDA_FORM_MATRIX || form == SUMI_CUDA_FORM_GATED));
}

// The parts of the form STORED lie one behind the other when they are of one type and their rows are whole 16 bytes, as
// the pieces of pinned memory want them too.
bool sumi_cuda_host_makes(const sumi_weight* weight, sumi_cuda_form form)
{
    bool is_made = form == SUMI_CUDA_FORM_STORED ? made_row_bytes(weight, form) % 16 == 0
                                                 : (form == SUMI_CUDA_FORM_MATRIX || form == SUMI_CUDA_FORM_GATED)
                                                       && weight->cols % 8 == 0 && sumi_weight_is_dense(weight);
    for (int32_t p = 0; p < weight->part_count && is_made; p++) {
        const sumi_weight_part* part = &weight->parts[p];
        is_made = (weight->change != NULL || keeps_bytes(weight, form, part))
               && (form != SUMI_CUDA_FORM_STORED || part->dtype == weight->parts[0].dtype);
    }
    return is_made;
}

// ---- What there is --------------------------------------------------------------------------------------------------

void sumi_cuda_weights_init(sumi_cuda_weights* weights, sumi_heap* heap, sumi_workers* workers,
                            const sumi_cuda_device* device, sumi_cuda_memory* memory, sumi_cuda_modules* modules)
{
    memset(weights, 0, sizeof *weights);
    weights->heap = heap;
    weights->workers = workers;
    weights->device = device;
    weights->memory = memory;
    weights->modules = modules;
    sumi_cuda_mapped_init(&weights->mapped, heap, device);
}

size_t sumi_cuda_form_slot(const sumi_weight* weight, sumi_cuda_form form, size_t size)
{
    SUMI_ASSERT(size > 0 && (size & (size - 1)) == 0);
    uint64_t h = ((uint64_t)(uintptr_t)weight >> 4) + (uint64_t)form * 0x9e3779b97f4a7c15ull;
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull;
    return (size_t)(h ^ h >> 32) & (size - 1);
}

static void table_insert(sumi_cuda_weights* weights, int32_t index)
{
    SUMI_ASSERT(index >= 0 && (size_t)index < weights->resident_count && weights->residents[index].weight != NULL);
    SUMI_ASSERT(2 * weights->used_count <= weights->table_size);
    const sumi_cuda_resident* resident = &weights->residents[index];
    size_t at = sumi_cuda_form_slot(resident->weight, resident->form, weights->table_size);
    while (weights->table[at] != 0) at = (at + 1) & (weights->table_size - 1);
    weights->table[at] = index + 1;
}

static void table_fill(sumi_cuda_weights* weights)
{
    for (size_t i = 0; i < weights->table_size; i++) weights->table[i] = 0;
    for (size_t i = 0; i < weights->resident_count; i++) {
        if (weights->residents[i].weight != NULL) table_insert(weights, (int32_t)i);
    }
}

static int32_t table_find(const sumi_cuda_weights* weights, const sumi_weight* weight, sumi_cuda_form form)
{
    if (weights->table_size == 0) return -1;
    for (size_t at = sumi_cuda_form_slot(weight, form, weights->table_size); weights->table[at] != 0;
         at = (at + 1) & (weights->table_size - 1)) {
        const int32_t index = weights->table[at] - 1;
        if (weights->residents[index].weight == weight && weights->residents[index].form == form) return index;
    }
    return -1;
}

const sumi_cuda_resident* sumi_cuda_weights_find(const sumi_cuda_weights* weights, const sumi_weight* weight,
                                                 sumi_cuda_form form)
{
    const int32_t index = table_find(weights, weight, form);
    return index >= 0 ? &weights->residents[index] : NULL;
}

sumi_result sumi_cuda_weights_want(sumi_cuda_weights* weights, const sumi_weight* weight, sumi_cuda_form form,
                                   bool is_adapter, int32_t* out_index, sumi_error* error)
{
    SUMI_ASSERT(weight != NULL && weight->part_count >= 1 && weight->part_count <= SUMI_WEIGHT_MAX_PARTS);
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
    weights->residents[index] = (sumi_cuda_resident){.weight = weight,
                                                     .form = form,
                                                     .is_adapter = is_adapter,
                                                     .slab = -1,
                                                     .bytes = sumi_cuda_form_bytes(weight, form)};
    weights->used_count++;
    table_insert(weights, (int32_t)index);
    *out_index = (int32_t)index;
    return SUMI_OK;
}

void sumi_cuda_weights_forget(sumi_cuda_weights* weights, const sumi_weight* weight)
{
    SUMI_ASSERT(weights->upload == NULL && weight != NULL);
    bool is_any = false;
    for (int form = 0; form < SUMI_CUDA_FORM_COUNT; form++) {
        const int32_t index = table_find(weights, weight, (sumi_cuda_form)form);
        if (index < 0) continue;
        sumi_cuda_resident* resident = &weights->residents[index];
        SUMI_ASSERT(resident->slab < (int32_t)weights->slab_count);
        SUMI_ASSERT(resident->slab < 0 || weights->slabs[resident->slab].resident_count > 0);
        if (resident->slab >= 0 && --weights->slabs[resident->slab].resident_count == 0)
            sumi_cuda_release(weights->memory, &weights->slabs[resident->slab].block);
        sumi_cuda_weights_drop_image(weights, resident);
        *resident = (sumi_cuda_resident){.weight = NULL, .slab = -1};
        SUMI_ASSERT(weights->used_count > 0);
        weights->used_count--;
        is_any = true;
        table_fill(weights); // a hole would end searches early; a model that goes has a few hundred weights
    }
    if (is_any && weights->used_count == 0) { // the last model
        sumi_free(weights->heap, weights->residents);
        sumi_free(weights->heap, weights->table);
        sumi_free(weights->heap, weights->slabs);
        weights->residents = NULL, weights->resident_count = weights->resident_capacity = 0;
        weights->table = NULL, weights->table_size = 0;
        weights->slabs = NULL, weights->slab_count = weights->slab_capacity = 0;
    }
}

// ---- Room -----------------------------------------------------------------------------------------------------------

// What the choice of a slab depends on, in one pass: there may be a thousand of them.
static void look_at_slabs(sumi_cuda_weights* weights, uint64_t serial)
{
    for (size_t s = 0; s < weights->slab_count; s++) {
        weights->slabs[s].has_listed = weights->slabs[s].has_others = false;
        weights->slabs[s].newest = 0;
    }
    for (size_t i = 0; i < weights->resident_count; i++) {
        const sumi_cuda_resident* resident = &weights->residents[i];
        if (resident->weight == NULL || resident->slab < 0) continue;
        SUMI_ASSERT((size_t)resident->slab < weights->slab_count);
        sumi_cuda_slab* slab = &weights->slabs[resident->slab];
        if (resident->listed == serial) slab->has_listed = true;
        else slab->has_others = true;
        slab->newest = resident->listed > slab->newest ? resident->listed : slab->newest;
    }
}

static bool leaves_before(const sumi_cuda_slab* a, const sumi_cuda_slab* b)
{
    if (a->has_listed != b->has_listed) return !a->has_listed;
    if (a->in_steps != b->in_steps) return !a->in_steps;
    return a->newest < b->newest;
}

// A slab goes as a whole: what is still wanted of it comes again.
bool sumi_cuda_weights_evict(sumi_cuda_weights* weights, uint64_t serial, bool takes_all)
{
    int32_t victim = -1;
    look_at_slabs(weights, serial);
    for (size_t s = 0; s < weights->slab_count; s++) {
        const sumi_cuda_slab* slab = &weights->slabs[s];
        if (slab->block.address == 0 || !slab->has_others) continue;
        if (!takes_all && (slab->has_listed || slab->in_steps)) continue;
        if (victim < 0 || leaves_before(slab, &weights->slabs[victim])) victim = (int32_t)s;
    }
    if (victim < 0) return false;
    for (size_t i = 0; i < weights->resident_count; i++) {
        sumi_cuda_resident* resident = &weights->residents[i];
        if (resident->weight == NULL || resident->slab != victim) continue;
        resident->place = (sumi_cuda_weight){.data = 0};
        resident->slab = -1;
        resident->rows_sent = 0;
    }
    weights->slabs[victim].resident_count = 0;
    sumi_cuda_release(weights->memory, &weights->slabs[victim].block);
    return true;
}

static bool goes_alone(const sumi_cuda_weights* weights, const sumi_cuda_resident* resident)
{
    return weights->places_alone && !sumi_cuda_is_vector(resident->form);
}

// A slab for list[from], which has no place yet, and for those after it that fit: a slab holds weights of models or of
// adapters, and weights that steps read or others.
static bool goes_along(const sumi_cuda_weights* weights, const sumi_cuda_resident* first,
                       const sumi_cuda_resident* other)
{
    return other->place.data == 0 && other->is_adapter == first->is_adapter && other->in_steps == first->in_steps
        && goes_alone(weights, other) == goes_alone(weights, first);
}

static sumi_result place_more(sumi_cuda_weights* weights, const int32_t* list, int32_t from, int32_t count,
                              sumi_error* error)
{
    SUMI_ASSERT(from >= 0 && from < count && weights->residents[list[from]].place.data == 0);
    size_t index = 0;
    while (index < weights->slab_count && weights->slabs[index].block.address != 0) index++;
    if (index == weights->slab_count)
        SUMI_TRY(sumi_grow(weights->heap, (void**)&weights->slabs, &weights->slab_capacity, weights->slab_count + 1,
                           sizeof *weights->slabs, error));
    const sumi_cuda_resident first = weights->residents[list[from]];
    sumi_cuda_slab slab = {.in_steps = first.in_steps};
    int32_t end = from;
    for (uint64_t limit = goes_alone(weights, &first) ? first.bytes : SLAB_BYTES;;) {
        uint64_t bytes = 0;
        for (end = from; end < count; end++) {
            const sumi_cuda_resident* resident = &weights->residents[list[end]];
            if (!goes_along(weights, &first, resident)) continue;
            if (bytes > 0 && bytes + resident->bytes > limit) break;
            bytes += resident->bytes;
        }
        sumi_error none = {SUMI_OK, {0}};
        const sumi_result result =
            sumi_cuda_allocate(weights->memory, bytes, SUMI_MEMORY_WEIGHTS, "the model's weights", &slab.block, &none);
        if (result == SUMI_OK) break;
        if (result != SUMI_OUT_OF_DEVICE_MEMORY || bytes <= first.bytes)
            return sumi_fail(error, result, "%s", none.text);
        limit = bytes / 2; // the end of the memory is near: smaller slabs find it
    }
    CUdeviceptr at = slab.block.address;
    SUMI_ASSERT(at % 512 == 0);
    for (int32_t i = from; i < end; i++) {
        sumi_cuda_resident* resident = &weights->residents[list[i]];
        if (!goes_along(weights, &first, resident)) continue;
        resident->place = sumi_cuda_place_at(at, resident->weight, resident->form);
        resident->slab = (int32_t)index;
        at += resident->bytes;
        slab.resident_count++;
        SUMI_ASSERT(at <= slab.block.address + slab.block.bytes);
    }
    weights->slabs[index] = slab;
    if (index == weights->slab_count) weights->slab_count++;
    return SUMI_OK;
}

// ---- Slots ----------------------------------------------------------------------------------------------------------

// Rows of one part in a slot.
typedef struct piece {
    int32_t resident, part, row_begin, row_count; // rows of the stack
    uint64_t begin;                               // of the form's balance, before the first rows; without one: offset
    uint64_t offset, bytes;
    bool is_direct; // the file's bytes are the form's bytes
    int32_t type;   // SUMI_UPLOAD_*
} piece;

// What one worker does at a time: copies bytes, or gathers rows that lie in chunks, or makes floats of rows, or a balance.
typedef struct item {
    const sumi_weight* weight; // NULL: bytes
    bool as_is;                // rows keep the type that they have in the file
    bool is_balance;           // of `weight`, a norm's
    const unsigned char* from;
    unsigned char* to;
    uint64_t bytes;
    int32_t row_begin, row_count;
} item;

// pieces: of the newest batch
typedef struct slot {
    sumi_cuda_block pinned, raw;
    CUevent event;
    bool is_busy;
    int32_t piece_begin, piece_end;
} slot;

// Slots 0 .. made are there, one more per call while they are too few: pinning one is as long as a call may take.
typedef struct sumi_cuda_upload {
    slot slots[SLOT_COUNT];
    int32_t slot_count, made, next; // slot_count: at most
    uint64_t slot_bytes;
    bool converts;
    bool may_pin;        // in this call
    const int32_t* list; // that slots were sized for
    piece pieces[MOST_PIECES];
    int32_t piece_count;
    item items[MOST_ITEMS];
    int32_t item_count;
    uint64_t used; // of the slot that is being filled
} sumi_cuda_upload;

// Whether a part travels in its own type, as which it stays or which the device converts; else the host makes floats.
static bool keeps_type(const sumi_weight* weight, sumi_cuda_form form, const sumi_weight_part* part, int32_t* out_type)
{
    *out_type = SUMI_UPLOAD_F32;
    if (form == SUMI_CUDA_FORM_STORED) return true;
    switch (weight->change == NULL && sumi_weight_part_is_straight(part) ? part->dtype : SUMI_DTYPE_NONE) {
    case SUMI_DTYPE_F32: return true;
    case SUMI_DTYPE_F16: *out_type = SUMI_UPLOAD_F16; return true;
    case SUMI_DTYPE_BF16: *out_type = SUMI_UPLOAD_BF16; return true;
    case SUMI_DTYPE_F8_E4M3: *out_type = SUMI_UPLOAD_E4M3; return true;
    case SUMI_DTYPE_F8_E5M2: *out_type = SUMI_UPLOAD_E5M2; return true;
    default: return false; // block types, int8, the rare others, sums with a change
    }
}

static uint64_t row_bytes_of(const sumi_weight* weight, sumi_cuda_form form, const sumi_weight_part* part)
{
    int32_t type;
    return keeps_type(weight, form, part, &type) ? sumi_dtype_bytes(part->dtype, (uint64_t)weight->cols)
                                                 : (uint64_t)weight->cols * 4;
}

static bool is_direct(const sumi_cuda_resident* resident, const sumi_weight_part* part)
{
    return !is_gated_form(resident->form) && keeps_bytes(resident->weight, resident->form, part)
        && resident->place.pitch == resident->weight->cols;
}

static void free_slot(sumi_cuda_weights* weights, slot* s)
{
    SUMI_ASSERT(!s->is_busy || s->event != NULL);
    if (s->event != NULL) weights->device->driver.cuEventDestroy(s->event);
    sumi_cuda_release(weights->memory, &s->pinned);
    sumi_cuda_release(weights->memory, &s->raw);
    *s = (slot){.event = NULL};
}

static void close_upload(sumi_cuda_weights* weights)
{
    sumi_cuda_upload* upload = weights->upload;
    if (upload == NULL) return;
    // after a failure slots may be in use that no event tells of
    if (upload->made > 0) weights->device->driver.cuStreamSynchronize(weights->device->copy);
    while (upload->made > 0) free_slot(weights, &upload->slots[--upload->made]);
    sumi_free(weights->heap, upload);
    weights->upload = NULL;
}

void sumi_cuda_weights_settle(sumi_cuda_weights* weights) { close_upload(weights); }

void sumi_cuda_way_add(sumi_cuda_way* way, const sumi_weight* weight, sumi_cuda_form form)
{
    for (int32_t p = 0; p < weight->part_count; p++) {
        const sumi_weight_part* part = &weight->parts[p];
        const uint64_t row = row_bytes_of(weight, form, part), first_row = row + balance_bytes(weight, form);
        way->largest_row = first_row > way->largest_row ? first_row : way->largest_row;
        way->total += row * (uint64_t)part->rows + 256 + balance_bytes(weight, form);
        way->converts =
            way->converts || is_gated_form(form) || !keeps_bytes(weight, form, part) || weight->cols % 8 != 0;
    }
}

// Slots as large and as many as what is missing needs: an adapter of a few megabytes does not pin 32.
// In proportion, too, an eighth of it: they must not take the memory that a small model needs for itself.
static uint64_t slot_bytes_of(const sumi_cuda_way* way)
{
    SUMI_ASSERT(way->total > 0);
    uint64_t bytes = way->total > 32 * SMALLEST_SLOT ? way->total / 32
                   : way->total > SMALLEST_SLOT      ? SMALLEST_SLOT
                                                     : way->total;
    bytes = bytes < SLOT_BYTES ? (bytes + 4095) / 4096 * 4096 : SLOT_BYTES;
    return bytes < way->largest_row ? (way->largest_row + 4095) / 4096 * 4096 : bytes;
}
static int32_t slot_count_of(const sumi_cuda_way* way, uint64_t slot_bytes)
{
    SUMI_ASSERT(slot_bytes > 0);
    const uint64_t count = way->total / 8 / slot_bytes;
    return way->total <= slot_bytes ? 1
         : count < FEWEST_SLOTS     ? FEWEST_SLOTS
         : count < SLOT_COUNT       ? (int32_t)count
                                    : SLOT_COUNT;
}
uint64_t sumi_cuda_way_bytes(const sumi_cuda_way* way)
{
    const uint64_t bytes = slot_bytes_of(way);
    return way->converts ? bytes * (uint64_t)slot_count_of(way, bytes) : 0;
}

static sumi_result make_slot(sumi_cuda_weights* weights, sumi_error* error)
{
    sumi_cuda_upload* upload = weights->upload;
    slot* s = &upload->slots[upload->made++]; // half-made ones are freed, too
    SUMI_CU(&weights->device->driver, cuEventCreate(&s->event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
            "making an event");
    SUMI_TRY(sumi_cuda_allocate(weights->memory, upload->slot_bytes, SUMI_MEMORY_STAGING,
                                "the way of weights to the device", &s->pinned, error));
    return upload->converts ? sumi_cuda_allocate(weights->memory, upload->slot_bytes, SUMI_MEMORY_WEIGHTS,
                                                 "the conversion of weights", &s->raw, error)
                            : SUMI_OK;
}

static sumi_result open_upload(sumi_cuda_weights* weights, const int32_t* list, int32_t from, int32_t count,
                               sumi_error* error)
{
    SUMI_ASSERT(weights->upload == NULL && from >= 0 && from < count);
    sumi_cuda_way way = {0, 0, false};
    for (int32_t i = from; i < count; i++) {
        const sumi_cuda_resident* resident = &weights->residents[list[i]];
        if (resident->rows_sent < resident->weight->rows) sumi_cuda_way_add(&way, resident->weight, resident->form);
    }
    sumi_cuda_upload* upload = sumi_alloc_zero(weights->heap, sizeof *upload);
    if (upload == NULL) return sumi_out_of_memory(error, sizeof *upload, "the way of weights to the device");
    weights->upload = upload;
    upload->list = list;
    upload->slot_bytes = slot_bytes_of(&way);
    upload->slot_count = slot_count_of(&way, upload->slot_bytes);
    upload->converts = way.converts;
    SUMI_ASSERT(upload->slot_count >= 1 && upload->slot_count <= SLOT_COUNT && upload->slot_bytes >= way.largest_row);
    return SUMI_OK;
}

// ---- Filling a slot -------------------------------------------------------------------------------------------------

static void run_items(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    SUMI_ASSERT(begin >= 0 && begin <= end);
    (void)worker_index;
    const item* items = context;
    for (int32_t i = begin; i < end; i++) {
        const item* it = &items[i];
        if (it->weight == NULL) memcpy(it->to, it->from, (size_t)it->bytes);
        else if (it->is_balance) sumi_cuda_balance(it->weight, (float*)(void*)it->to);
        else if (it->as_is) sumi_weight_copy_rows(it->weight, it->row_begin, it->row_count, it->to);
        else sumi_weight_to_float(it->weight, it->row_begin, it->row_count, (float*)(void*)it->to, it->weight->cols);
    }
}

static void add_items(sumi_cuda_upload* upload, const sumi_weight* weight, sumi_cuda_form form, const piece* p,
                      int32_t part_begin, unsigned char* slot_memory)
{
    SUMI_ASSERT(upload->item_count >= 0 && p->row_count > 0 && p->row_begin >= part_begin);
    const sumi_weight_part* part = &weight->parts[p->part];
    unsigned char* to = slot_memory + p->offset;
    int32_t type;
    const bool as_is = keeps_type(weight, form, part, &type);
    const uint64_t row_bytes = row_bytes_of(weight, form, part);
    if (as_is && part->chunk == 0) {
        const unsigned char* from =
            (const unsigned char*)part->data + row_bytes * (uint64_t)(p->row_begin - part_begin);
        for (uint64_t done = 0; done < p->bytes; done += ITEM_BYTES) {
            upload->items[upload->item_count++] =
                (item){.from = from + done,
                       .to = to + done,
                       .bytes = p->bytes - done < ITEM_BYTES ? p->bytes - done : ITEM_BYTES};
            SUMI_ASSERT(upload->item_count <= (int32_t)MOST_ITEMS);
        }
        return;
    }
    const int32_t step = row_bytes >= ITEM_BYTES ? 1 : (int32_t)(ITEM_BYTES / row_bytes);
    for (int32_t r = 0; r < p->row_count; r += step) {
        const int32_t rows = p->row_count - r < step ? p->row_count - r : step;
        upload->items[upload->item_count++] = (item){.weight = weight,
                                                     .as_is = as_is,
                                                     .to = to + row_bytes * (uint64_t)r,
                                                     .row_begin = p->row_begin + r,
                                                     .row_count = rows};
        SUMI_ASSERT(upload->item_count <= (int32_t)MOST_ITEMS);
    }
}

// How many items the rows of a piece make at most: see add_items.
static int32_t item_bound(uint64_t bytes, uint64_t row_bytes)
{
    // whole rows of floats; bytes need fewer
    const uint64_t per_item = row_bytes >= ITEM_BYTES ? ITEM_BYTES : ITEM_BYTES / row_bytes * row_bytes;
    return (int32_t)((bytes + per_item - 1) / per_item);
}

// The next rows of a resident as a piece of the slot; false when they do not fit any more.
static bool add_piece(sumi_cuda_weights* weights, int32_t index, unsigned char* slot_memory)
{
    SUMI_ASSERT(weights->upload->piece_count >= 0 && weights->upload->piece_count <= MOST_PIECES);
    SUMI_ASSERT(weights->residents[index].rows_sent < weights->residents[index].weight->rows);
    sumi_cuda_upload* upload = weights->upload;
    sumi_cuda_resident* resident = &weights->residents[index];
    const sumi_weight* weight = resident->weight;
    int32_t p = 0, part_begin = 0;
    while (p + 1 < weight->part_count && resident->rows_sent >= part_begin + weight->parts[p].rows)
        part_begin += weight->parts[p++].rows;
    const sumi_weight_part* part = &weight->parts[p];
    const uint64_t row_bytes = row_bytes_of(weight, resident->form, part), begin = (upload->used + 255) / 256 * 256,
                   offset = begin + (resident->rows_sent == 0 ? balance_bytes(weight, resident->form) : 0);
    const int32_t rows_left = part_begin + part->rows - resident->rows_sent;
    uint64_t rows = offset < upload->slot_bytes ? (upload->slot_bytes - offset) / row_bytes : 0;
    if (rows > (uint64_t)rows_left) rows = (uint64_t)rows_left;
    if (rows == 0 || upload->piece_count == MOST_PIECES
        || upload->item_count + item_bound(rows * row_bytes, row_bytes) + 1 > (int32_t)MOST_ITEMS)
        return false;
    piece* it = &upload->pieces[upload->piece_count++];
    *it = (piece){.resident = index,
                  .part = p,
                  .row_begin = resident->rows_sent,
                  .row_count = (int32_t)rows,
                  .begin = begin,
                  .offset = offset,
                  .bytes = rows * row_bytes};
    it->is_direct = is_direct(resident, part);
    (void)keeps_type(weight, resident->form, part, &it->type);
    if (begin < offset)
        upload->items[upload->item_count++] =
            (item){.weight = balance_of(weight, resident->form), .is_balance = true, .to = slot_memory + begin};
    add_items(upload, weight, resident->form, it, part_begin, slot_memory);
    upload->used = offset + it->bytes;
    SUMI_ASSERT(upload->used <= upload->slot_bytes);
    resident->rows_sent += (int32_t)rows;
    SUMI_ASSERT(resident->rows_sent <= weight->rows);
    return true;
}

// ---- Sending it -----------------------------------------------------------------------------------------------------

static sumi_result convert_piece(sumi_cuda_weights* weights, const piece* p, CUdeviceptr raw, sumi_error* error)
{
    SUMI_ASSERT(raw != 0 && p->row_count > 0 && p->row_begin >= 0);
    const sumi_cuda_resident* resident = &weights->residents[p->resident];
    const sumi_weight_part* part = &resident->weight->parts[p->part];
    int32_t type;
    sumi_upload_args args = {.from = raw + p->offset,
                             .to = resident->place.data,
                             .scales = resident->place.scales,
                             .balance = resident->place.balance,
                             .type = p->type,
                             .row_begin = p->row_begin,
                             .row_count = p->row_count,
                             .stack_rows = resident->weight->rows,
                             .cols = resident->weight->cols,
                             .pitch = resident->place.pitch,
                             .is_gated = is_gated_form(resident->form),
                             // the host's floats have it in them
                             .scale = keeps_type(resident->weight, resident->form, part, &type) ? part->scale : 1.0f};
    const char* name = "sumi_upload_rows";
    uint32_t blocks = (uint32_t)p->row_count;
    switch (resident->form) {
    case SUMI_CUDA_FORM_VECTOR:
    case SUMI_CUDA_FORM_VECTOR_BALANCED:
        name = "sumi_upload_vector";
        blocks = (uint32_t)((resident->place.pitch + SUMI_UPLOAD_THREADS - 1) / SUMI_UPLOAD_THREADS);
        break;
    case SUMI_CUDA_FORM_CONV: name = "sumi_upload_conv"; break;
    case SUMI_CUDA_FORM_CONV_UP: name = "sumi_upload_conv_up"; break;
    case SUMI_CUDA_FORM_MATRIX_FP8:
    case SUMI_CUDA_FORM_GATED_FP8: name = "sumi_upload_rows_fp8"; break;
    case SUMI_CUDA_FORM_MATRIX_INT8:
    case SUMI_CUDA_FORM_GATED_INT8: name = "sumi_upload_rows_int8"; break;
    case SUMI_CUDA_FORM_INT4: name = "sumi_upload_rows_int4"; break;
    default: break;
    }
    CUfunction function;
    SUMI_TRY(sumi_cuda_kernel(weights->modules, name, 0, &function, error));
    if (p->begin < p->offset) // the rows' kernels read it
        SUMI_CU(&weights->device->driver,
                cuMemcpyDtoDAsync(resident->place.balance, raw + p->begin,
                                  (size_t)resident->weight->cols * sizeof(float), weights->device->copy),
                "copying weights on the device");
    void* params[] = {&args};
    SUMI_CU(&weights->device->driver,
            cuLaunchKernel(function, blocks, 1, 1, SUMI_UPLOAD_THREADS, 1, 1, 0, weights->device->copy, params, NULL),
            name);
    return SUMI_OK;
}

// Where the bytes of a piece go that are not converted.
static CUdeviceptr direct_place(const sumi_cuda_resident* resident, const piece* p)
{
    const sumi_cuda_weight* place = &resident->place;
    if (resident->form != SUMI_CUDA_FORM_STORED)
        return place->data + (uint64_t)p->row_begin * (uint64_t)place->pitch * 2;
    sumi_cuda_stored_part parts[SUMI_WEIGHT_MAX_PARTS];
    uint64_t row = (uint64_t)p->row_begin;
    (void)sumi_cuda_stored_parts(resident->weight, resident->form, parts);
    for (int32_t i = 0; i < p->part; i++) row -= (uint64_t)parts[i].rows;
    return place->data + parts[p->part].offset + row * parts[p->part].row_bytes;
}

static sumi_result send_slot(sumi_cuda_weights* weights, slot* s, sumi_error* error)
{
    SUMI_ASSERT(!s->is_busy && s->piece_begin <= s->piece_end && s->piece_end <= weights->upload->piece_count);
    const sumi_cuda_upload* upload = weights->upload;
    const sumi_cuda_driver* driver = &weights->device->driver;
    const CUstream stream = weights->device->copy;
    const unsigned char* pinned = sumi_cuda_host(&s->pinned);
    for (int32_t i = s->piece_begin; i < s->piece_end;) {
        const piece* p = &upload->pieces[i];
        if (p->is_direct) {
            SUMI_CU(driver,
                    cuMemcpyHtoDAsync(direct_place(&weights->residents[p->resident], p), pinned + p->offset,
                                      (size_t)p->bytes, stream),
                    "copying weights to the device");
            i++;
            continue;
        }
        uint64_t end = p->offset; // neighbours that are converted travel together
        int32_t next = i;
        for (; next < s->piece_end && !upload->pieces[next].is_direct; next++)
            end = upload->pieces[next].offset + upload->pieces[next].bytes;
        SUMI_CU(driver,
                cuMemcpyHtoDAsync(s->raw.address + p->begin, pinned + p->begin, (size_t)(end - p->begin), stream),
                "copying weights to the device");
        for (; i < next; i++) SUMI_TRY(convert_piece(weights, &upload->pieces[i], s->raw.address, error));
    }
    SUMI_CU(driver, cuEventRecord(s->event, stream), "copying weights to the device");
    s->is_busy = true;
    return SUMI_OK;
}

static sumi_result wait_for_slot(const sumi_cuda_weights* weights, slot* s, sumi_error* error)
{
    CUresult result = s->is_busy ? weights->device->driver.cuEventSynchronize(s->event) : CUDA_SUCCESS;
    s->is_busy = false;
    return result == CUDA_SUCCESS
             ? SUMI_OK
             : sumi_cuda_failure(&weights->device->driver, result, "copying weights to the device", error);
}

static bool may_make_slot(const sumi_cuda_upload* upload)
{
    return upload->may_pin && upload->next == upload->made && upload->made < upload->slot_count;
}

// The next slot, free.
static sumi_result take_slot(sumi_cuda_weights* weights, uint64_t until_ns, slot** out_slot, sumi_error* error)
{
    sumi_cuda_upload* upload = weights->upload;
    if (may_make_slot(upload)) {
        SUMI_TRY(make_slot(weights, error));
        upload->may_pin = sumi_clock_ns() < until_ns;
    }
    if (upload->next == upload->made) upload->next = 0;
    *out_slot = &upload->slots[upload->next++];
    SUMI_ASSERT(upload->next <= upload->made && upload->made <= upload->slot_count);
    return wait_for_slot(weights, *out_slot, error);
}

// Rows of list[*cursor ..) until the slot is full.
static sumi_result fill_slot(sumi_cuda_weights* weights, slot* s, const int32_t* list, int32_t count, int32_t* cursor,
                             sumi_error* error)
{
    SUMI_ASSERT(!s->is_busy && *cursor >= 0 && *cursor <= count);
    sumi_cuda_upload* upload = weights->upload;
    s->piece_begin = s->piece_end = upload->piece_count;
    upload->used = 0;
    for (; *cursor < count; ++*cursor) {
        const sumi_cuda_resident* resident = &weights->residents[list[*cursor]];
        if (resident->place.data == 0) SUMI_TRY(place_more(weights, list, *cursor, count, error));
        while (resident->rows_sent < resident->weight->rows
               && add_piece(weights, list[*cursor], sumi_cuda_host(&s->pinned)))
            continue;
        if (resident->rows_sent < resident->weight->rows) break;
    }
    s->piece_end = upload->piece_count;
    return SUMI_OK;
}

// One batch: slots that the workers fill together, from list[*cursor] on. Half of all slots at most, so that the device
// copies the others meanwhile.
static sumi_result send_batch(sumi_cuda_weights* weights, const int32_t* list, int32_t count, int32_t* cursor,
                              uint64_t until_ns, uint32_t budget_us, sumi_error* error)
{
    SUMI_ASSERT(weights->upload != NULL && *cursor >= 0 && *cursor < count);
    sumi_cuda_upload* upload = weights->upload;
    slot* batch[SLOT_COUNT];
    uint64_t most = (uint64_t)budget_us * SLOWEST_BYTES_PER_US * (uint64_t)sumi_workers_count(weights->workers);
    most = (most < BATCH_BYTES ? most : BATCH_BYTES) / upload->slot_bytes;
    upload->piece_count = upload->item_count = 0;
    sumi_result result = SUMI_OK;
    const bool could_pin = upload->may_pin;
    int32_t at = *cursor, taken = 0;
    for (bool is_more = true; is_more && result == SUMI_OK;) {
        SUMI_ASSERT(taken < SLOT_COUNT);
        result = take_slot(weights, until_ns, &batch[taken], error);
        if (result == SUMI_OK) result = fill_slot(weights, batch[taken], list, count, &at, error);
        // nothing left, or no more room for pieces
        if (result != SUMI_OK || batch[taken]->piece_begin == batch[taken]->piece_end) break;
        taken++;
        const bool has_room =
            2 * (taken + 1) <= upload->made || (2 * (taken + 1) <= upload->slot_count && may_make_slot(upload));
        // pinning has taken the time that there was
        is_more = has_room && (uint64_t)taken < most && upload->may_pin == could_pin;
    }
    if (result == SUMI_OK && taken == 0 && at == *cursor) // never, or this would be called for ever
        result = sumi_fail(error, SUMI_INTERNAL, "a row of a weight does not fit the way to the device");
    if (result == SUMI_OK && taken > 0)
        sumi_parallel(weights->workers, upload->item_count, 1, run_items, upload->items);
    for (int32_t i = 0; i < taken && result == SUMI_OK; i++) result = send_slot(weights, batch[i], error);
    if (result != SUMI_OK) { // what did not go has to go again
        for (int32_t i = upload->piece_count - 1; i >= 0; i--)
            weights->residents[upload->pieces[i].resident].rows_sent = upload->pieces[i].row_begin;
        return result;
    }
    *cursor = at;
    return SUMI_OK;
}

// Slot by slot while there is time, one at least: unpinning takes the caller's time, too.
static sumi_result finish_upload(sumi_cuda_weights* weights, uint64_t until_ns, bool* out_done, sumi_error* error)
{
    sumi_cuda_upload* upload = weights->upload;
    *out_done = false;
    for (bool is_first = true; upload != NULL && upload->made > 0; is_first = false) {
        slot* s = &upload->slots[upload->made - 1];
        if (sumi_clock_ns() >= until_ns) {
            const CUresult state =
                is_first && s->is_busy ? weights->device->driver.cuEventQuery(s->event) : CUDA_SUCCESS;
            if (!is_first || state == CUDA_ERROR_NOT_READY) return SUMI_OK;
            if (state != CUDA_SUCCESS)
                return sumi_cuda_failure(&weights->device->driver, state, "copying weights to the device", error);
        }
        SUMI_TRY(wait_for_slot(weights, s, error));
        free_slot(weights, s);
        upload->made--;
        upload->next = 0;
    }
    close_upload(weights);
    *out_done = true;
    return SUMI_OK;
}

sumi_result sumi_cuda_weights_send(sumi_cuda_weights* weights, const int32_t* list, int32_t count, int32_t* cursor,
                                   uint64_t until_ns, uint32_t budget_us, bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(*cursor >= 0 && *cursor <= count);
    *out_done = false;
    while (*cursor < count
           && weights->residents[list[*cursor]].rows_sent >= weights->residents[list[*cursor]].weight->rows)
        ++*cursor;
    if (*cursor < count && weights->upload != NULL && weights->upload->list != list) { // another plan's, left half-way
        bool is_over = false;
        SUMI_TRY(finish_upload(weights, until_ns, &is_over, error));
        if (!is_over) return SUMI_OK;
    }
    sumi_result result =
        *cursor < count && weights->upload == NULL ? open_upload(weights, list, *cursor, count, error) : SUMI_OK;
    if (weights->upload != NULL) weights->upload->may_pin = true;
    while (result == SUMI_OK && *cursor < count) {
        result = send_batch(weights, list, count, cursor, until_ns, budget_us, error);
        if (result == SUMI_OK && sumi_clock_ns() >= until_ns) return SUMI_OK;
    }
    if (result != SUMI_OK) {
        close_upload(weights);
        return result;
    }
    return finish_upload(weights, until_ns, out_done, error);
}

// ---- Weights that do not stay ---------------------------------------------------------------------------------------

sumi_result sumi_cuda_weights_pass(sumi_cuda_weights* weights, const int32_t* list, int32_t count, int32_t at,
                                   CUdeviceptr place, sumi_error* error)
{
    SUMI_ASSERT(at >= 0 && at < count && place != 0);
    sumi_cuda_resident* resident = &weights->residents[list[at]];
    const sumi_cuda_driver* driver = &weights->device->driver;
    // a plan with more room has left it here
    if (resident->place.data != 0 && resident->rows_sent >= resident->weight->rows) {
        SUMI_CU(driver, cuMemcpyDtoDAsync(place, resident->place.data, (size_t)resident->bytes, weights->device->copy),
                "copying weights on the device");
        return SUMI_OK;
    }
    if (weights->upload != NULL && weights->upload->list != list) close_upload(weights);
    sumi_result result = weights->upload == NULL ? open_upload(weights, list, 0, count, error) : SUMI_OK;
    const sumi_cuda_weight stays = resident->place;
    const int32_t rows_there = resident->rows_sent;
    resident->place = sumi_cuda_place_at(place, resident->weight, resident->form);
    resident->rows_sent = 0;
    if (weights->upload != NULL) weights->upload->may_pin = true;
    for (int32_t cursor = at; result == SUMI_OK && cursor <= at;)
        result = send_batch(weights, list, at + 1, &cursor, 0, UINT32_MAX, error);
    resident->place = stays;
    resident->rows_sent = rows_there;
    if (result != SUMI_OK) close_upload(weights);
    return result;
}

typedef struct image_rows {
    const sumi_weight* weight;
    bool is_gated;
    int32_t begin;
    uint64_t row_bytes;
    const sumi_cuda_pinned* to;
} image_rows;

// One row with the weight's change, rounded.
static void sum_row(const sumi_weight* weight, int32_t row, uint16_t* to)
{
    enum { PIECE = 256 };
    float values[PIECE];
    for (int32_t c = 0; c < weight->cols; c += PIECE) {
        const int32_t count = weight->cols - c < PIECE ? weight->cols - c : PIECE;
        sumi_weight_block_to_float(weight, (sumi_weight_block){row, 1, c, count}, values, PIECE);
        sumi_floats_to_bf16(values, to + c, (size_t)count);
    }
}

static void copy_rows(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const image_rows* rows = context;
    const sumi_weight* weight = rows->weight;
    int32_t part = 0, part_begin = 0;
    for (int32_t r = rows->begin + begin; r < rows->begin + end; r++) {
        while (r >= part_begin + weight->parts[part].rows) part_begin += weight->parts[part++].rows;
        const int32_t half = weight->rows / 2, in = r < half ? r : r - half;
        // as upload_row in kernels/upload.cuh
        const int64_t row = rows->is_gated ? (int64_t)(in / 8) * 16 + (r < half ? 0 : 8) + in % 8 : r;
        uint64_t bytes = rows->row_bytes; // a piece holds whole rows
        unsigned char* to = sumi_cuda_pinned_at(rows->to, (uint64_t)row * rows->row_bytes, &bytes);
        if (weight->change != NULL) sum_row(weight, r, (uint16_t*)(void*)to);
        else
            memcpy(to, (const unsigned char*)weight->parts[part].data + (uint64_t)(r - part_begin) * rows->row_bytes,
                   (size_t)rows->row_bytes);
    }
}

void sumi_cuda_weights_copy_image(sumi_cuda_weights* weights, int32_t index, int32_t* row, uint32_t budget_us)
{
    SUMI_ASSERT(sumi_cuda_host_makes(weights->residents[index].weight, weights->residents[index].form));
    SUMI_ASSERT(*row >= 0 && *row < weights->residents[index].weight->rows && !weights->residents[index].has_image);
    sumi_cuda_resident* resident = &weights->residents[index];
    const sumi_weight* weight = resident->weight;
    image_rows rows = {weight, is_gated_form(resident->form), *row, made_row_bytes(weight, resident->form),
                       &resident->image};
    uint64_t limit =
        (uint64_t)budget_us * SLOWEST_BYTES_PER_US * (uint64_t)sumi_workers_count(weights->workers) / rows.row_bytes;
    limit = limit < (1u << 20) / rows.row_bytes + 1 ? (1u << 20) / rows.row_bytes + 1 : limit;
    const int32_t count = (uint64_t)(weight->rows - *row) < limit ? weight->rows - *row : (int32_t)limit;
    sumi_parallel(weights->workers, count, (int32_t)(ITEM_BYTES / rows.row_bytes) + 1, copy_rows, &rows);
    *row += count;
    if (*row >= weight->rows) resident->has_image = true;
}

bool sumi_cuda_streams_mapped(const sumi_cuda_weights* weights, const sumi_weight* weight, sumi_cuda_form form)
{
    return sumi_cuda_host_makes(weight, form) && sumi_cuda_mapped_holds(&weights->mapped, weight);
}

void sumi_cuda_weights_drop_image(sumi_cuda_weights* weights, sumi_cuda_resident* resident)
{
    sumi_cuda_mapped_unlock(&weights->mapped, resident->weight, &resident->chunks, INT32_MAX);
    sumi_cuda_unpin(weights->heap, weights->memory, &resident->image);
    resident->has_image = false;
}

sumi_result sumi_cuda_weights_copy_out(const sumi_cuda_weights* weights, const sumi_cuda_resident* resident,
                                       CUdeviceptr to, sumi_error* error)
{
    SUMI_ASSERT(resident->has_image && to != 0);
    if (resident->chunks > 0)
        return sumi_cuda_mapped_copy(&weights->mapped, resident->weight, is_gated_form(resident->form), to, error);
    for (uint64_t done = 0, bytes; done < resident->bytes; done += bytes) {
        bytes = resident->bytes - done;
        const unsigned char* from = sumi_cuda_pinned_at(&resident->image, done, &bytes);
        SUMI_CU(&weights->device->driver, cuMemcpyHtoDAsync(to + done, from, (size_t)bytes, weights->device->copy),
                "streaming weights");
    }
    return SUMI_OK;
}

void sumi_cuda_weights_close(sumi_cuda_weights* weights)
{
    if (weights->heap == NULL) return;
    close_upload(weights);
    for (size_t i = 0; i < weights->resident_count; i++) {
        if (weights->residents[i].weight != NULL) sumi_cuda_weights_drop_image(weights, &weights->residents[i]);
    }
    sumi_cuda_mapped_close(&weights->mapped);
    for (size_t i = 0; i < weights->slab_count; i++) sumi_cuda_release(weights->memory, &weights->slabs[i].block);
    sumi_free(weights->heap, weights->residents);
    sumi_free(weights->heap, weights->table);
    sumi_free(weights->heap, weights->slabs);
    memset(weights, 0, sizeof *weights);
}
