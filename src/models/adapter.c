// Adapter files: a low-rank change per layer, under the names of whichever program trained them.
//
//   key  =  [prefix] module [.default] suffix      transformer.  layers.0.attention.to_q  .lora_A.weight      PEFT, diffusers
//                                                  diffusion_model.  layers.0.attention.qkv  .lora_down.weight   ComfyUI, ai-toolkit
//                                                  lora_unet_  layers_0_attention_to_q  .alpha                   kohya, musubi
//
// Scales: alpha / rank, with .alpha where the file has it, else as adapter_config.h says.
//
// Every key must belong to a layer of the model: a file of which half is silently dropped is worse than one that is
// refused.
#include "base/assert.h"
#include "base/sort.h"
#include "models/adapter_config.h"
#include "models/network_state.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_NAMES 3

struct sumi_adapter_file {
    sumi_heap* heap;
    char* path; // of the tensors
    sumi_tensor_set set;
    sumi_adapter_config config;
    sumi_delta* deltas;
    size_t delta_count, delta_capacity;
    sumi_adapter adapter;
};

static const char* const s_suffixes[][2] = {{".lora_A.weight", ".lora_B.weight"},
                                            {".lora_down.weight", ".lora_up.weight"},
                                            {".lora.down.weight", ".lora.up.weight"},
                                            {".lora_A.default.weight", ".lora_B.default.weight"},
                                            {".lora_down.default.weight", ".lora_up.default.weight"},
                                            {".lora_linear_layer.down.weight", ".lora_linear_layer.up.weight"}};
#define SUFFIX_COUNT (sizeof s_suffixes / sizeof *s_suffixes)

static bool ends_with(const char* text, const char* suffix)
{
    size_t length = strlen(text), tail = strlen(suffix);
    return length > tail && strcmp(text + length - tail, suffix) == 0;
}

// ---- Layers ---------------------------------------------------------------------------------------------------------

// The layer that a module path means, NULL when there is none.
static const sumi_adapter_target* find_target(const sumi_network* network, const char* module, size_t bytes)
{
    static const char* const prefixes[] = {"base_model.model.", "transformer.", "model.diffusion_model.",
                                           "diffusion_model.",  "lora_unet_",   "lycoris_"};
    for (bool stripped = true; stripped;) {
        stripped = false;
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
            size_t length = strlen(prefixes[i]);
            if (bytes > length && memcmp(module, prefixes[i], length) == 0) {
                module += length;
                bytes -= length;
                stripped = true;
            }
        }
    }
    char folded[SUMI_NAME_BYTES];
    if (!sumi_fold_path(module, bytes, folded, sizeof folded)) { return NULL; }
    for (size_t i = 0; i < network->weights.target_count; i++) {
        if (strcmp(network->weights.targets[i].path, folded) == 0) { return &network->weights.targets[i]; }
    }
    return NULL;
}

// Rows and columns of a factor: two dimensions, or four with a 1x1 kernel.
static bool factor_shape(const sumi_tensor* tensor, int32_t* rows, int32_t* cols)
{
    bool is_good = tensor->rank >= 2;
    for (int32_t i = 0; i < tensor->rank; i++) {
        is_good = is_good && tensor->shape[i] >= 1 && tensor->shape[i] <= INT32_MAX && (i < 2 || tensor->shape[i] == 1);
    }
    if (is_good) {
        *rows = (int32_t)tensor->shape[0];
        *cols = (int32_t)tensor->shape[1];
    }
    return is_good;
}

static sumi_weight factor(const sumi_tensor* tensor, int32_t rows, int32_t cols)
{
    SUMI_ASSERT(rows >= 1 && cols >= 1 && tensor->data != NULL);
    const sumi_weight_part part = {.data = tensor->data,
                                   .dtype = tensor->dtype,
                                   .rows = rows,
                                   .scale = 1.0f,
                                   .mapping = tensor->mapping,
                                   .mapping_bytes = tensor->mapping_bytes};
    return (sumi_weight){
        .name = tensor->name, .rows = rows, .cols = cols, .part_count = 1, .parts = {part}, .index = -1};
}

static bool is_plain_float(sumi_dtype dtype)
{
    return dtype == SUMI_DTYPE_F32 || dtype == SUMI_DTYPE_F16 || dtype == SUMI_DTYPE_BF16 || dtype == SUMI_DTYPE_F64;
}

// alpha / rank of a module: by its tensor where there is one, else by the config; 1 when nothing says it.
static sumi_result read_scale(const sumi_adapter_file* file, const sumi_tensor* alpha, const char* module,
                              size_t module_bytes, int32_t rank, float* out_scale, sumi_error* error)
{
    SUMI_ASSERT(rank >= 1);
    double said = sumi_adapter_config_alpha(&file->config, module, module_bytes);
    double scale = said < 0 ? 1.0 : file->config.rank_stabilised ? said / sqrt((double)rank) : said / rank;
    if (alpha != NULL) {
        float stored = 0.0f;
        uint64_t count = 1;
        for (int32_t i = 0; i < alpha->rank; i++) { count *= alpha->shape[i] == 1 ? 1u : 2u; }
        if (count != 1 || !sumi_dtype_is_number(alpha->dtype) || sumi_dtype_get(alpha->dtype)->block != 1) {
            return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: %s is not a single number", file->path, alpha->name);
        }
        sumi_dtype_to_float(alpha->dtype, alpha->data, &stored, 1);
        scale = (double)stored / rank;
    }
    *out_scale = (float)scale;
    return isfinite(*out_scale) ? SUMI_OK
                                : sumi_fail(error, SUMI_FILE_MALFORMED, "%s: the alpha of %.*s is not finite",
                                            file->path, (int)module_bytes, module);
}

// Takes down, up and alpha of one module. `module_bytes` of down's name are the module path with its prefix.
static sumi_result add_delta(sumi_adapter_file* file, const sumi_adapter_target* target, const sumi_tensor* down,
                             const sumi_tensor* up, const sumi_tensor* alpha, size_t module_bytes, sumi_error* error)
{
    const char* path = file->path;
    SUMI_ASSERT(target->weight_index >= 0 && target->rows >= 1 && target->cols >= 1);
    SUMI_ASSERT(module_bytes <= strlen(down->name));
    int32_t rank = 0, in = 0, out = 0, up_rank = 0;
    if (!factor_shape(down, &rank, &in) || !factor_shape(up, &out, &up_rank) || up_rank != rank || in != target->cols
        || out != target->rows) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s: %s and %s are [%lld, %lld] and [%lld, %lld], the layer needs [r, %d] and [%d, r]; the "
                         "adapter is of another model",
                         path, down->name, up->name, down->rank > 0 ? (long long)down->shape[0] : 0,
                         down->rank > 1 ? (long long)down->shape[1] : 0, up->rank > 0 ? (long long)up->shape[0] : 0,
                         up->rank > 1 ? (long long)up->shape[1] : 0, (int)target->cols, (int)target->rows);
    }
    if (!is_plain_float(down->dtype) || !is_plain_float(up->dtype)) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: %s has the type %s; adapters are stored as F32, F16 or BF16",
                         path, down->name, sumi_dtype_get(is_plain_float(down->dtype) ? up->dtype : down->dtype)->name);
    }
    for (size_t i = 0; i < file->delta_count; i++) {
        const sumi_delta* other = &file->deltas[i];
        if (other->weight_index == target->weight_index && other->row_begin == target->row_begin
            && other->up.rows == out) {
            return SUMI_OK; // some files carry a layer twice, under two names
        }
    }
    SUMI_TRY(sumi_adapter_config_check_rank(&file->config, down->name, module_bytes, rank, error));
    float scale = 0.0f;
    SUMI_TRY(read_scale(file, alpha, down->name, module_bytes, rank, &scale, error));
    SUMI_TRY(sumi_grow(file->heap, (void**)&file->deltas, &file->delta_capacity, file->delta_count + 1,
                       sizeof *file->deltas, error));
    file->deltas[file->delta_count++] =
        (sumi_delta){target->weight_index, target->row_begin, scale, factor(down, rank, in), factor(up, out, rank)};
    return SUMI_OK;
}

// ---- The file -------------------------------------------------------------------------------------------------------

// LoHa, LoKr, DoRA and others that are not one product of two matrices.
static bool is_other_method(const char* name)
{
    static const char* const marks[] = {".hada_",  ".lokr_",    "dora_scale",   "lora_magnitude_vector",
                                        ".oft_",   ".lora_mid", ".lora_B.bias", ".lora_B.default.bias",
                                        ".diff_b", ".glora",    ".boft"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (strstr(name, marks[i]) != NULL) { return true; }
    }
    return ends_with(name, ".diff") || ends_with(name, ".on_input");
}

typedef struct unmatched {
    char text[256];
    size_t used;
    int32_t count;
} unmatched;

static void note_unmatched(unmatched* list, const char* name)
{
    if (list->count++ < SHOWN_NAMES && list->used < sizeof list->text) {
        int written =
            snprintf(list->text + list->used, sizeof list->text - list->used, "%s%s", list->used > 0 ? ", " : "", name);
        list->used += written > 0 ? (size_t)written : 0;
    }
}

// name's module with `suffix` instead of its own last `tail` bytes.
static const sumi_tensor* find_sibling(const sumi_adapter_file* file, const char* name, size_t module_bytes,
                                       const char* suffix)
{
    char other[2 * SUMI_NAME_BYTES];
    int length = snprintf(other, sizeof other, "%.*s%s", (int)module_bytes, name, suffix);
    return module_bytes < sizeof other && length >= 0 && (size_t)length < sizeof other
             ? sumi_tensor_find(&file->set, other)
             : NULL;
}

static sumi_result read_tensor(sumi_adapter_file* file, const sumi_network* network, const sumi_tensor* tensor,
                               unmatched* list, sumi_error* error)
{
    const char *name = tensor->name, *path = file->path;
    if (is_other_method(name)) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s: tensor %s belongs to another kind of adapter (LoHa, LoKr, DoRA or full weights); only "
                         "LoRA is supported",
                         path, name);
    }
    for (size_t i = 0; i < SUFFIX_COUNT; i++) {
        if (ends_with(name, s_suffixes[i][0])) {
            size_t module_bytes = strlen(name) - strlen(s_suffixes[i][0]);
            const sumi_tensor* up = find_sibling(file, name, module_bytes, s_suffixes[i][1]);
            const sumi_adapter_target* target = find_target(network, name, module_bytes);
            if (target == NULL) {
                note_unmatched(list, name);
                return SUMI_OK;
            }
            if (up == NULL) {
                return sumi_fail(error, SUMI_TENSOR_MISSING,
                                 "%s: %s has no partner ending in %s; the file is incomplete", path, name,
                                 s_suffixes[i][1]);
            }
            return add_delta(file, target, tensor, up, find_sibling(file, name, module_bytes, ".alpha"), module_bytes,
                             error);
        }
        if (ends_with(name, s_suffixes[i][1])) {
            if (find_sibling(file, name, strlen(name) - strlen(s_suffixes[i][1]), s_suffixes[i][0]) == NULL) {
                return sumi_fail(error, SUMI_TENSOR_MISSING,
                                 "%s: %s has no partner ending in %s; the file is incomplete", path, name,
                                 s_suffixes[i][0]);
            }
            return SUMI_OK; // read with its partner
        }
    }
    if (ends_with(name, ".alpha")) {
        for (size_t i = 0; i < SUFFIX_COUNT; i++) {
            if (find_sibling(file, name, strlen(name) - strlen(".alpha"), s_suffixes[i][0]) != NULL) { return SUMI_OK; }
        }
    }
    note_unmatched(list, name);
    return SUMI_OK;
}

static int compare_deltas(const void* a, const void* b)
{
    const sumi_delta *x = a, *y = b;
    if (x->weight_index != y->weight_index) { return x->weight_index < y->weight_index ? -1 : 1; }
    return x->row_begin != y->row_begin ? (x->row_begin < y->row_begin ? -1 : 1)
                                        : (x->up.rows > y->up.rows) - (x->up.rows < y->up.rows);
}

// Where a file has both a fused change of q, k and v and the single ones, they are the same change twice: the single
// ones stay.
static void drop_doubled(sumi_adapter_file* file, const sumi_network* network)
{
    for (size_t i = 0; i < file->delta_count; i++) {
        sumi_delta* delta = &file->deltas[i];
        SUMI_ASSERT(delta->weight_index >= 0 && (size_t)delta->weight_index < network->weights.count);
        const sumi_weight* weight = network->weights.weights[delta->weight_index];
        SUMI_ASSERT(delta->row_begin >= -1 && delta->up.rows <= weight->rows);
        int32_t single_rows = 0;
        for (size_t k = 0; k < file->delta_count; k++) {
            bool is_single =
                file->deltas[k].weight_index == delta->weight_index && file->deltas[k].up.rows < weight->rows;
            single_rows += is_single ? file->deltas[k].up.rows : 0;
        }
        if (delta->up.rows == weight->rows && single_rows >= weight->rows) { delta->row_begin = -1; }
    }
    size_t kept = 0;
    for (size_t i = 0; i < file->delta_count; i++) {
        if (file->deltas[i].row_begin >= 0) { file->deltas[kept++] = file->deltas[i]; }
    }
    file->delta_count = kept;
}

// The file itself, or the one in the folder that PEFT or diffusers saved. The host's file callbacks know files only: what
// does not open as one is taken for a folder.
static sumi_result find_file(sumi_adapter_file* file, const sumi_files* files, const char* path, sumi_error* error)
{
    static const char* const names[] = {"adapter_model.safetensors", "pytorch_lora_weights.safetensors"};
    const size_t bytes = strlen(path) + 64;
    file->path = sumi_alloc(file->heap, bytes);
    if (file->path == NULL) { return sumi_out_of_memory(error, bytes, "a file name"); }
    snprintf(file->path, bytes, "%s", path);
    if (sumi_file_exists(files, path)) { return SUMI_OK; }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        SUMI_ASSERT(strlen(names[i]) + 2 <= 64);
        sumi_path_join(file->path, bytes, path, names[i]);
        if (sumi_file_exists(files, file->path)) { return SUMI_OK; }
    }
    return sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: no such file, and no folder with %s or %s", path, names[0],
                     names[1]);
}

static sumi_result read_file(sumi_adapter_file* file, const sumi_files* files, const sumi_network* network,
                             const char* given, sumi_error* error)
{
    SUMI_TRY(find_file(file, files, given, error));
    const char* path = file->path;
    SUMI_TRY(sumi_tensor_set_open(&file->set, path, error));
    SUMI_TRY(sumi_adapter_config_read(&file->config, file->heap, files, &file->set, path, error));
    unmatched list = {.count = 0};
    for (size_t i = 0; i < file->set.count; i++) {
        SUMI_TRY(read_tensor(file, network, &file->set.tensors[i], &list, error));
    }
    if (list.count > 0 || file->delta_count == 0) {
        return sumi_fail(error, SUMI_LORA_NO_MATCH,
                         "%s: %d of %zu tensors belong to no layer of this %s model%s%s%s; the adapter is of another "
                         "model or format",
                         path, (int)list.count, file->set.count, network->info.family, list.count > 0 ? " (" : "",
                         list.text, list.count > 0 ? list.count > SHOWN_NAMES ? " ...)" : ")" : "");
    }
    drop_doubled(file, network);
    sumi_sort(file->deltas, file->delta_count, sizeof *file->deltas, compare_deltas);
    file->adapter = (sumi_adapter){file->deltas, (int32_t)file->delta_count};
    sumi_adapter_config_close(&file->config);
    return SUMI_OK;
}

sumi_result sumi_adapter_open(sumi_heap* heap, const sumi_files* files, const sumi_network* network, const char* path,
                              sumi_error* error, sumi_adapter_file** out_file)
{
    SUMI_ASSERT(network->is_open);
    *out_file = NULL;
    sumi_adapter_file* file = sumi_alloc_zero(heap, sizeof *file);
    if (file == NULL) { return sumi_out_of_memory(error, sizeof *file, "an adapter"); }
    file->heap = heap;
    sumi_tensor_set_init(&file->set, heap, files);
    sumi_result result = read_file(file, files, network, path, error);
    if (result != SUMI_OK) {
        sumi_adapter_close(file);
        return result;
    }
    *out_file = file;
    return SUMI_OK;
}

void sumi_adapter_close(sumi_adapter_file* file)
{
    if (file != NULL) {
        sumi_free(file->heap, file->deltas);
        sumi_adapter_config_close(&file->config);
        sumi_free(file->heap, file->path);
        sumi_tensor_set_close(&file->set);
        sumi_free(file->heap, file);
    }
}

const sumi_adapter* sumi_adapter_get(const sumi_adapter_file* file) { return &file->adapter; }
