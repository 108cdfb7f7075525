#include "models/adapter_layers.h"
#include "base/assert.h"
#include "base/memory.h"
#include <math.h>
#include <string.h>

// A tensor with its place in the order of modules.
typedef struct entry {
    const sumi_tensor* tensor;
    sumi_adapter_name name;
} entry;

typedef struct reader {
    sumi_adapter_layers* out;
    const char* path;
    const sumi_adapter_config* configs; // of all components
    const sumi_adapter_config* config;  // of the component of the module that is read
    sumi_error* error;
} reader;

static int compare_entries(const void* a, const void* b)
{
    const entry *x = a, *y = b;
    const size_t bytes = x->name.module_bytes < y->name.module_bytes ? x->name.module_bytes : y->name.module_bytes;
    const int order = memcmp(x->tensor->name, y->tensor->name, bytes);
    if (order != 0) return order;
    if (x->name.module_bytes != y->name.module_bytes) return x->name.module_bytes < y->name.module_bytes ? -1 : 1;
    return strcmp(x->tensor->name, y->tensor->name);
}

void sumi_adapter_add_unknown(sumi_adapter_layers* layers, const char* name)
{
    if (layers->unknown_count < SUMI_ADAPTER_SHOWN_NAMES) layers->unknown_names[layers->unknown_count] = name;
    layers->unknown_count++;
}

bool sumi_adapter_matrix_shape(const sumi_tensor* tensor, int32_t* rows, int32_t* cols)
{
    bool is_good = tensor->rank >= 2;
    for (int32_t i = 0; i < tensor->rank; i++)
        is_good = is_good && tensor->shape[i] >= 1 && tensor->shape[i] <= INT32_MAX && (i < 2 || tensor->shape[i] == 1);
    if (is_good) {
        *rows = (int32_t)tensor->shape[0];
        *cols = (int32_t)tensor->shape[1];
    }
    return is_good;
}

// ---- Tensors --------------------------------------------------------------------------------------------------------

static sumi_result check_type(const reader* r, const sumi_tensor* tensor)
{
    switch (tensor->dtype) {
    case SUMI_DTYPE_F64:
    case SUMI_DTYPE_F32:
    case SUMI_DTYPE_F16:
    case SUMI_DTYPE_BF16:
    case SUMI_DTYPE_F8_E4M3:
    case SUMI_DTYPE_F8_E5M2: return SUMI_OK;
    default:
        return sumi_fail(r->error, SUMI_NOT_SUPPORTED,
                         "%s: %s has the type %s; adapters are stored as F32, F16, BF16, F8_E4M3 or F8_E5M2", r->path,
                         tensor->name, sumi_dtype_get(tensor->dtype)->name);
    }
}

static sumi_result check_values(const sumi_tensor* tensor, const char* path, sumi_error* error)
{
    enum { PIECE = 1024 };
    float values[PIECE];
    uint64_t count = 1;
    for (int32_t i = 0; i < tensor->rank; i++) count *= (uint64_t)tensor->shape[i];
    for (uint64_t at = 0; at < count; at += PIECE) {
        const size_t piece = count - at < PIECE ? (size_t)(count - at) : PIECE;
        const unsigned char* data = tensor->data;
        sumi_dtype_to_float(tensor->dtype, data + sumi_dtype_bytes(tensor->dtype, at), values, piece);
        for (size_t i = 0; i < piece; i++) {
            if (!isfinite(values[i])) {
                return sumi_fail(error, SUMI_FILE_MALFORMED,
                                 "%s: %s holds NaN or infinity (value %llu); the adapter's training failed or the file "
                                 "is damaged: use another one",
                                 path, tensor->name, (unsigned long long)(at + i));
            }
        }
    }
    return SUMI_OK;
}

// alpha may be infinite where it does not count.
sumi_result sumi_adapter_layer_check(const sumi_adapter_layer* layer, const char* path, sumi_error* error)
{
    for (int32_t i = 0; i < SUMI_PART_COUNT; i++) {
        if (layer->parts[i] != NULL && i != SUMI_PART_ALPHA) SUMI_TRY(check_values(layer->parts[i], path, error));
    }
    return SUMI_OK;
}

// Keeps a tensor as a part of its module. Some files have a part twice, under two names.
static sumi_result set_part(const reader* r, sumi_adapter_layer* layer, const entry* e)
{
    const sumi_tensor **part = &layer->parts[e->name.part], *old = *part, *tensor = e->tensor;
    if (e->name.part != SUMI_PART_ALPHA) SUMI_TRY(check_type(r, tensor));
    if (old != NULL
        && (old->dtype != tensor->dtype || old->bytes != tensor->bytes
            || memcmp(old->data, tensor->data, (size_t)tensor->bytes) != 0)) {
        return sumi_fail(r->error, SUMI_NOT_SUPPORTED,
                         "%s: %s and %s are two different changes of one layer; use a file with one of them", r->path,
                         old->name, tensor->name);
    }
    *part = tensor;
    return SUMI_OK;
}

// ---- Modules --------------------------------------------------------------------------------------------------------

static bool has_part(const sumi_adapter_layer* layer, sumi_adapter_part part) { return layer->parts[part] != NULL; }

static const sumi_tensor* first_part(const sumi_adapter_layer* layer, sumi_adapter_part begin, sumi_adapter_part last)
{
    for (int32_t i = begin; i <= (int32_t)last; i++) {
        if (layer->parts[i] != NULL) return layer->parts[i];
    }
    return NULL;
}

static sumi_result fail_missing(const reader* r, const sumi_tensor* tensor, sumi_adapter_part missing)
{
    return sumi_fail(r->error, SUMI_TENSOR_MISSING, "%s: %s has no partner ending in %s; the file is incomplete",
                     r->path, tensor->name, sumi_adapter_part_text(missing));
}

static sumi_result check_parts(const reader* r, const sumi_adapter_layer* layer, sumi_adapter_part begin,
                               sumi_adapter_part last)
{
    const sumi_tensor* first = first_part(layer, begin, last);
    for (int32_t i = begin; i <= (int32_t)last; i++) {
        if (!has_part(layer, (sumi_adapter_part)i)) return fail_missing(r, first, (sumi_adapter_part)i);
    }
    return SUMI_OK;
}

// Returns alpha / rank of a module. alpha is in its tensor if there is one, otherwise in the config; without either the
// result is 1.
static sumi_result read_scale(const reader* r, sumi_adapter_layer* layer, double rank)
{
    SUMI_ASSERT(rank > 0);
    const double config_alpha = sumi_adapter_config_alpha(r->config, layer->module, layer->module_bytes);
    double scale = config_alpha < 0           ? 1.0
                 : r->config->rank_stabilised ? config_alpha / sqrt(rank)
                                              : config_alpha / rank;
    const sumi_tensor* alpha = layer->parts[SUMI_PART_ALPHA];
    if (alpha != NULL) {
        float stored = 0.0f;
        uint64_t count = 1;
        for (int32_t i = 0; i < alpha->rank; i++) count *= alpha->shape[i] == 1 ? 1u : 2u;
        if (count != 1 || !sumi_dtype_is_number(alpha->dtype) || sumi_dtype_get(alpha->dtype)->block != 1)
            return sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: %s is not a single number", r->path, alpha->name);
        sumi_dtype_to_float(alpha->dtype, alpha->data, &stored, 1);
        scale = (double)stored / rank;
    }
    layer->scale = (float)scale;
    return isfinite(layer->scale) ? SUMI_OK
                                  : sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: the alpha of %.*s is not finite",
                                              r->path, (int)layer->module_bytes, layer->module);
}

static sumi_result fail_factors(const reader* r, const sumi_tensor* a, const sumi_tensor* b)
{
    return sumi_fail(
        r->error, SUMI_TENSOR_MISMATCH,
        "%s: %s [%lld, %lld] and %s [%lld, %lld] are no matrices that can be multiplied; the file is damaged", r->path,
        a->name, a->rank > 0 ? (long long)a->shape[0] : 0, a->rank > 1 ? (long long)a->shape[1] : 0, b->name,
        b->rank > 0 ? (long long)b->shape[0] : 0, b->rank > 1 ? (long long)b->shape[1] : 0);
}

// Reads the inner size of a product of two parts.
static sumi_result read_rank(const reader* r, const sumi_adapter_layer* layer, sumi_adapter_part up_part,
                             sumi_adapter_part down_part, int32_t* out_rank)
{
    const sumi_tensor *up = layer->parts[up_part], *down = layer->parts[down_part];
    int32_t out = 0, in = 0, up_rank = 0;
    if (!sumi_adapter_matrix_shape(up, &out, &up_rank) || !sumi_adapter_matrix_shape(down, out_rank, &in)
        || up_rank != *out_rank)
        return fail_factors(r, up, down);
    return SUMI_OK;
}

static sumi_result read_lora(const reader* r, sumi_adapter_layer* layer)
{
    SUMI_TRY(check_parts(r, layer, SUMI_PART_DOWN, SUMI_PART_UP));
    SUMI_TRY(read_rank(r, layer, SUMI_PART_UP, SUMI_PART_DOWN, &layer->rank));
    SUMI_TRY(sumi_adapter_config_check_rank(r->config, layer->module, layer->module_bytes, layer->rank, r->error));
    if (r->config->uses_dora && !has_part(layer, SUMI_PART_MAGNITUDE)) {
        return sumi_fail(
            r->error, SUMI_TENSOR_MISSING,
            "%s: %s is of a DoRA (use_dora in %s), but its magnitude (.lora_magnitude_vector, .dora_scale) is "
            "missing; the file is incomplete",
            r->path, layer->parts[SUMI_PART_DOWN]->name, r->config->path);
    }
    return read_scale(r, layer, layer->rank);
}

static sumi_result read_loha(const reader* r, sumi_adapter_layer* layer)
{
    int32_t other = 0;
    SUMI_TRY(check_parts(r, layer, SUMI_PART_LOHA_1_UP, SUMI_PART_LOHA_2_DOWN));
    SUMI_TRY(read_rank(r, layer, SUMI_PART_LOHA_2_UP, SUMI_PART_LOHA_2_DOWN, &other));
    SUMI_TRY(read_rank(r, layer, SUMI_PART_LOHA_1_UP, SUMI_PART_LOHA_1_DOWN, &layer->rank));
    return read_scale(r, layer, layer->rank);
}

// The scale of LoKr is alpha / r of a factor that is a product, the second one if both are; 1 if both factors are
// stored in full, whatever alpha is. PEFT scales these too.
static sumi_result read_lokr(const reader* r, sumi_adapter_layer* layer)
{
    static const sumi_adapter_part s_factors[2][3] = {{SUMI_PART_LOKR_1, SUMI_PART_LOKR_1_UP, SUMI_PART_LOKR_1_DOWN},
                                                      {SUMI_PART_LOKR_2, SUMI_PART_LOKR_2_UP, SUMI_PART_LOKR_2_DOWN}};
    for (int32_t i = 0; i < 2; i++) {
        const sumi_adapter_part *f = s_factors[i], full = f[0];
        const bool has_full = has_part(layer, full), has_up = has_part(layer, f[1]), has_down = has_part(layer, f[2]);
        if (has_full ? has_up || has_down : !has_up || !has_down) {
            return sumi_fail(r->error, SUMI_TENSOR_MISSING,
                             "%s: %.*s needs either %s or both %s and %s; the file is incomplete", r->path,
                             (int)layer->module_bytes, layer->module, sumi_adapter_part_text(full),
                             sumi_adapter_part_text(f[1]), sumi_adapter_part_text(f[2]));
        }
        int32_t rows, cols;
        if (!has_full) SUMI_TRY(read_rank(r, layer, f[1], f[2], &layer->rank));
        else if (!sumi_adapter_matrix_shape(layer->parts[full], &rows, &cols))
            return fail_factors(r, layer->parts[full], layer->parts[full]);
    }
    const double config_rank = sumi_adapter_config_rank(r->config, layer->module, layer->module_bytes);
    if (layer->rank > 0) return read_scale(r, layer, layer->rank);
    return r->config->scales_whole_factors && config_rank > 0 ? read_scale(r, layer, config_rank) : SUMI_OK;
}

// Finds out what a module's tensors are together.
static sumi_result read_module(const reader* r, sumi_adapter_layer* layer)
{
    const sumi_tensor* lora = first_part(layer, SUMI_PART_DOWN, SUMI_PART_UP_BIAS);
    const sumi_tensor* found[] = {lora, first_part(layer, SUMI_PART_LOHA_1_UP, SUMI_PART_LOHA_2_DOWN),
                                  first_part(layer, SUMI_PART_LOKR_1, SUMI_PART_LOKR_2_DOWN),
                                  layer->parts[SUMI_PART_DIFF], layer->parts[SUMI_PART_NORM]};
    static const sumi_adapter_kind s_kinds[] = {SUMI_ADAPTER_LORA, SUMI_ADAPTER_LOHA, SUMI_ADAPTER_LOKR,
                                                SUMI_ADAPTER_DIFF, SUMI_ADAPTER_NONE};
    const sumi_tensor* first = NULL;
    layer->scale = 1.0f;
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        if (found[i] == NULL) continue;
        if (first != NULL) {
            return sumi_fail(r->error, SUMI_NOT_SUPPORTED,
                             "%s: %s and %s are two different changes of one layer; use a file with one of them",
                             r->path, first->name, found[i]->name);
        }
        first = found[i];
        layer->kind = s_kinds[i];
    }
    const sumi_tensor* magnitude = layer->parts[SUMI_PART_MAGNITUDE];
    if (magnitude != NULL && layer->kind == SUMI_ADAPTER_NONE) return fail_missing(r, magnitude, SUMI_PART_DOWN);
    switch (layer->kind) {
    case SUMI_ADAPTER_LORA: return read_lora(r, layer);
    case SUMI_ADAPTER_LOHA: return read_loha(r, layer);
    case SUMI_ADAPTER_LOKR: return read_lokr(r, layer);
    default: return SUMI_OK;
    }
}

// ---- The file -------------------------------------------------------------------------------------------------------

static bool is_same_module(const entry* a, const entry* b)
{
    return a->name.module_bytes == b->name.module_bytes
        && memcmp(a->tensor->name, b->tensor->name, a->name.module_bytes) == 0;
}

// Whether a tensor holds one matrix of the last layer for each step. A 1x1 convolution of that name has sides of 1.
static bool has_one_per_step(const sumi_tensor* tensor)
{
    return tensor->rank == 3 && tensor->shape[0] > 1 && tensor->shape[1] > 1 && tensor->shape[2] > 1
        && strstr(tensor->name, "proj_out") != NULL;
}

static sumi_result fail_per_step(const reader* r, const sumi_tensor* tensor)
{
    const long long steps = (long long)tensor->shape[0];
    return sumi_fail(r->error, SUMI_NOT_SUPPORTED,
                     "%s: %s [%lld, %lld, %lld] is a matrix for each of %lld steps, as in Fun-Acc of Qwen-Image-2.1, "
                     "which is not supported; use a LoRA for few steps, or Qwen-Image-2.1-Turbo",
                     r->path, tensor->name, steps, (long long)tensor->shape[1], (long long)tensor->shape[2], steps);
}

// Reads the entries of one module.
static sumi_result add_module(reader* r, const entry* entries, size_t count)
{
    sumi_adapter_layers* out = r->out;
    sumi_adapter_layer layer = {.module = entries->tensor->name, .module_bytes = entries->name.module_bytes};
    layer.encoder = sumi_adapter_encoder(layer.module, layer.module_bytes);
    r->config = sumi_adapter_config_of(r->configs, layer.encoder);
    bool is_alone = true; // an alpha of nothing
    for (size_t i = 0; i < count; i++) {
        const entry* e = &entries[i];
        if (has_one_per_step(e->tensor)) return fail_per_step(r, e->tensor);
        if (e->name.part == SUMI_PART_UNKNOWN) {
            sumi_adapter_add_unknown(out, e->tensor->name);
            return SUMI_OK;
        }
        if (e->name.part == SUMI_PART_REFUSED) {
            return sumi_fail(r->error, SUMI_NOT_SUPPORTED,
                             "%s: tensor %s belongs to %s, which is not supported; LoRA, LoHa, LoKr, DoRA and full "
                             "differences of linear layers and norms are",
                             r->path, e->tensor->name, e->name.kind);
        }
        is_alone = is_alone && e->name.part == SUMI_PART_ALPHA;
        SUMI_TRY(set_part(r, &layer, e));
    }
    if (is_alone) {
        sumi_adapter_add_unknown(out, entries->tensor->name);
        return SUMI_OK;
    }
    SUMI_TRY(read_module(r, &layer));
    if (layer.encoder != 0 && out->text_count++ == 0) out->text_name = entries->tensor->name;
    SUMI_TRY(sumi_grow(out->heap, (void**)&out->layers, &out->capacity, out->count + 1, sizeof *out->layers, r->error));
    out->layers[out->count++] = layer;
    return SUMI_OK;
}

sumi_result sumi_adapter_layers_read(sumi_adapter_layers* out, const char* path, const sumi_tensor_set* set,
                                     const sumi_adapter_config configs[SUMI_ADAPTER_CONFIGS], sumi_error* error)
{
    SUMI_ASSERT(out->heap != NULL && out->layers == NULL && out->count == 0);
    sumi_heap* heap = out->heap;
    if (set->count == 0) return SUMI_OK;
    entry* entries = sumi_alloc_array(heap, set->count, sizeof *entries);
    if (entries == NULL) return sumi_out_of_memory(error, set->count * sizeof *entries, "the names of an adapter");
    for (size_t i = 0; i < set->count; i++)
        entries[i] = (entry){&set->tensors[i], sumi_adapter_read_name(set->tensors[i].name)};
    sumi_sort(entries, set->count, sizeof *entries, compare_entries);
    reader r = {out, path, configs, configs, error};
    sumi_result result = SUMI_OK;
    for (size_t begin = 0, end; begin < set->count && result == SUMI_OK; begin = end) {
        for (end = begin + 1; end < set->count && is_same_module(&entries[begin], &entries[end]);) end++;
        result = add_module(&r, entries + begin, end - begin);
    }
    sumi_free(heap, entries);
    return result;
}

void sumi_adapter_layers_close(sumi_adapter_layers* layers)
{
    if (layers->heap != NULL) sumi_free(layers->heap, layers->layers);
    *layers = (sumi_adapter_layers){0};
}
