// Adapter files: a change of weights for each layer, low-rank or a Kronecker product, named as by the program that
// trained them.
//
//   key  =  [prefix] module [.default] suffix      transformer.  layers.0.attention.to_q  .lora_A.weight      PEFT, diffusers
//                                                  diffusion_model.  layers.0.attention.qkv  .lora_down.weight   ComfyUI, ai-toolkit
//                                                  lora_unet_  layers_0_attention_to_q  .alpha                   kohya, musubi
//                                                  lycoris_  layers_0_attention_qkv  .lokr_w1                    LyCORIS
//                                                  lycoris_  layers_0_attention_norm1  .w_norm
//
// Scales: alpha / rank, with .alpha where the file has it, else as adapter_config.h says.
//
// Every key must belong to a layer of the model. A file whose keys belong only in part is refused, because silently
// dropping the rest would change the result.
#include "base/assert.h"
#include "base/memory.h"
#include "models/adapter_config.h"
#include "models/network_state.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_NAMES 3
// A Kronecker product is stored as a low-rank change if the rank is at most this fraction (1 / LOW_RANK_SHARE) of the
// layer's smaller side.
#define LOW_RANK_SHARE 4

struct sumi_adapter_file {
    sumi_heap* heap;
    char* path; // of the file that holds the tensors
    sumi_tensor_set set;
    sumi_adapter_config config;
    sumi_delta* deltas;
    size_t delta_count, delta_capacity;
    float** blocks; // memory of factors computed from those in the file
    size_t block_count, block_capacity;
    sumi_adapter adapter;
};

static const char* const s_suffixes[][2] = {{".lora_A.weight", ".lora_B.weight"},
                                            {".lora_down.weight", ".lora_up.weight"},
                                            {".lora.down.weight", ".lora.up.weight"},
                                            {".lora_A.default.weight", ".lora_B.default.weight"},
                                            {".lora_down.default.weight", ".lora_up.default.weight"},
                                            {".lora_linear_layer.down.weight", ".lora_linear_layer.up.weight"}};
#define SUFFIX_COUNT (sizeof s_suffixes / sizeof *s_suffixes)

static bool has_suffix(const char* text, const char* suffix)
{
    size_t length = strlen(text), tail = strlen(suffix);
    return length > tail && strcmp(text + length - tail, suffix) == 0;
}

// ---- Layers ---------------------------------------------------------------------------------------------------------

// Finds the layer, or with is_vector the norm, that a module path names. NULL: there is none.
static const sumi_adapter_target* find_target(const sumi_network* network, const char* module, size_t bytes,
                                              bool is_vector)
{
    static const char* const s_prefixes[] = {"base_model.model.", "transformer.", "model.diffusion_model.",
                                             "diffusion_model.",  "lora_unet_",   "lycoris_"};
    for (bool stripped = true; stripped;) {
        stripped = false;
        for (size_t i = 0; i < sizeof s_prefixes / sizeof *s_prefixes; i++) {
            size_t length = strlen(s_prefixes[i]);
            if (bytes > length && memcmp(module, s_prefixes[i], length) == 0) {
                module += length;
                bytes -= length;
                stripped = true;
            }
        }
    }
    char folded[SUMI_NAME_BYTES];
    if (!sumi_fold_path(module, bytes, folded, sizeof folded)) return NULL;
    for (size_t i = 0; i < network->weights.target_count; i++) {
        const sumi_adapter_target* target = &network->weights.targets[i];
        if (target->is_vector == is_vector && strcmp(target->path, folded) == 0) return target;
    }
    return NULL;
}

// Rows and columns of a factor, which has two dimensions, or four with a 1x1 kernel.
static bool factor_shape(const sumi_tensor* tensor, int32_t* rows, int32_t* cols)
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

static sumi_weight factor(const sumi_tensor* tensor, int32_t rows, int32_t cols)
{
    SUMI_ASSERT(rows >= 1 && cols >= 1 && tensor->data != NULL);
    const sumi_stacked_tensor stacked = {.data = tensor->data,
                                         .dtype = tensor->dtype,
                                         .rows = rows,
                                         .scale = 1.0f,
                                         .mapping = tensor->mapping,
                                         .mapping_bytes = tensor->mapping_bytes};
    return (sumi_weight){
        .name = tensor->name, .rows = rows, .cols = cols, .tensor_count = 1, .tensors = {stacked}, .index = -1};
}

static bool is_plain_float(sumi_dtype dtype)
{
    return dtype == SUMI_DTYPE_F32 || dtype == SUMI_DTYPE_F16 || dtype == SUMI_DTYPE_BF16 || dtype == SUMI_DTYPE_F64;
}

// Finds the tensor with the same module and `suffix` in place of the last `tail` bytes of the name.
static const sumi_tensor* find_sibling(const sumi_adapter_file* file, const char* name, size_t module_bytes,
                                       const char* suffix)
{
    char sibling[2 * SUMI_NAME_BYTES];
    int length = snprintf(sibling, sizeof sibling, "%.*s%s", (int)module_bytes, name, suffix);
    return module_bytes < sizeof sibling && length >= 0 && (size_t)length < sizeof sibling
             ? sumi_tensor_find(&file->set, sibling)
             : NULL;
}

// Returns alpha / rank of a module. alpha is in its tensor if there is one, otherwise in the config; without either the
// result is 1.
static sumi_result read_scale(const sumi_adapter_file* file, const sumi_tensor* alpha, const char* module,
                              size_t module_bytes, int32_t rank, float* out_scale, sumi_error* error)
{
    SUMI_ASSERT(rank >= 1);
    double config_alpha = sumi_adapter_config_alpha(&file->config, module, module_bytes);
    double scale = config_alpha < 0             ? 1.0
                 : file->config.rank_stabilised ? config_alpha / sqrt((double)rank)
                                                : config_alpha / rank;
    if (alpha != NULL) {
        float stored = 0.0f;
        uint64_t count = 1;
        for (int32_t i = 0; i < alpha->rank; i++) count *= alpha->shape[i] == 1 ? 1u : 2u;
        if (count != 1 || !sumi_dtype_is_number(alpha->dtype) || sumi_dtype_get(alpha->dtype)->block != 1)
            return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: %s is not a single number", file->path, alpha->name);
        sumi_dtype_to_float(alpha->dtype, alpha->data, &stored, 1);
        scale = (double)stored / rank;
    }
    *out_scale = (float)scale;
    return isfinite(*out_scale) ? SUMI_OK
                                : sumi_fail(error, SUMI_FILE_MALFORMED, "%s: the alpha of %.*s is not finite",
                                            file->path, (int)module_bytes, module);
}

// Whether these rows have a change already: some files contain a layer twice, under two names.
static bool has_target(const sumi_adapter_file* file, const sumi_adapter_target* target)
{
    bool found = false;
    for (size_t i = 0; i < file->delta_count; i++) {
        const sumi_delta* delta = &file->deltas[i];
        found = found
             || (delta->weight_index == target->weight_index && delta->row_begin == target->row_begin
                 && sumi_delta_rows(delta) == target->rows);
    }
    return found;
}

static sumi_result add_delta(sumi_adapter_file* file, sumi_delta delta, sumi_error* error)
{
    SUMI_TRY(sumi_grow(file->heap, (void**)&file->deltas, &file->delta_capacity, file->delta_count + 1,
                       sizeof *file->deltas, error));
    file->deltas[file->delta_count++] = delta;
    return SUMI_OK;
}

// Adds the change of one module from its down, up and alpha. The first `module_bytes` of down's name are the module
// path with its prefix.
static sumi_result add_target_delta(sumi_adapter_file* file, const sumi_adapter_target* target, const sumi_tensor* down,
                                    const sumi_tensor* up, const sumi_tensor* alpha, size_t module_bytes,
                                    sumi_error* error)
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
    if (has_target(file, target)) return SUMI_OK;
    SUMI_TRY(sumi_adapter_config_check_rank(&file->config, down->name, module_bytes, rank, error));
    float scale = 0.0f;
    SUMI_TRY(read_scale(file, alpha, down->name, module_bytes, rank, &scale, error));
    return add_delta(file,
                     (sumi_delta){.weight_index = target->weight_index,
                                  .row_begin = target->row_begin,
                                  .scale = scale,
                                  .down = factor(down, rank, in),
                                  .up = factor(up, out, rank)},
                     error);
}

// ---- LoKr -----------------------------------------------------------------------------------------------------------
//
// The change of a layer is a Kronecker product, W1 (x) W2 with [a, c] (x) [b, d] = [a b, c d]. Each factor is stored
// in full or as a product of two matrices of an inner size r:
//
//     MODULE.lokr_w1 [a, c]   or   MODULE.lokr_w1_a [a, r], MODULE.lokr_w1_b [r, c]        MODULE.lokr_w2 likewise
//
// The scale is alpha / r, and 1 if both factors are stored in full, whatever alpha is.
// (L1 R1) (x) (L2 R2) = (L1 (x) L2) (R1 (x) R2) is a low-rank change of rank r1 r2, where a full factor counts as the
// product of itself and a unit matrix of its smaller side.

// One of the two factors.
typedef struct kronecker_factor {
    const sumi_tensor *full, *left, *right; // either `full`, or `left` and `right`
    int32_t rows, cols;
    int32_t inner; // inner size of left and right; of a full factor its smaller side
} kronecker_factor;

static sumi_result find_factor(const sumi_adapter_file* file, const char* name, size_t module_bytes, int32_t which,
                               kronecker_factor* out, sumi_error* error)
{
    static const char* const s_factor_suffixes[2][3] = {{".lokr_w1", ".lokr_w1_a", ".lokr_w1_b"},
                                                        {".lokr_w2", ".lokr_w2_a", ".lokr_w2_b"}};
    const char* const* suffix = s_factor_suffixes[which];
    *out = (kronecker_factor){.full = find_sibling(file, name, module_bytes, suffix[0]),
                              .left = find_sibling(file, name, module_bytes, suffix[1]),
                              .right = find_sibling(file, name, module_bytes, suffix[2])};
    if (out->full != NULL ? out->left != NULL || out->right != NULL : out->left == NULL || out->right == NULL) {
        return sumi_fail(error, SUMI_TENSOR_MISSING,
                         "%s: %.*s needs either %s or both %s and %s; the file is incomplete", file->path,
                         (int)module_bytes, name, suffix[0], suffix[1], suffix[2]);
    }
    int32_t inner = 0;
    const sumi_tensor* tensors[3] = {out->full, out->left, out->right};
    bool is_good = out->full != NULL ? factor_shape(out->full, &out->rows, &out->cols)
                                     : factor_shape(out->left, &out->rows, &out->inner)
                                           && factor_shape(out->right, &inner, &out->cols) && inner == out->inner;
    if (out->full != NULL) out->inner = out->rows < out->cols ? out->rows : out->cols;
    if (!is_good) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s: the factors of %.*s%s are not matrices that can be multiplied", file->path,
                         (int)module_bytes, name, suffix[0]);
    }
    for (int32_t i = 0; i < 3; i++) {
        if (tensors[i] != NULL && !is_plain_float(tensors[i]->dtype)) {
            return sumi_fail(error, SUMI_NOT_SUPPORTED,
                             "%s: %s has the type %s; adapters are stored as F32, F16 or BF16", file->path,
                             tensors[i]->name, sumi_dtype_get(tensors[i]->dtype)->name);
        }
    }
    return SUMI_OK;
}

// Returns memory for a matrix of floats that lives as long as the file; NULL after a failure.
static float* reserve_floats(sumi_adapter_file* file, int32_t rows, int32_t cols, sumi_error* error)
{
    if (sumi_grow(file->heap, (void**)&file->blocks, &file->block_capacity, file->block_count + 1, sizeof *file->blocks,
                  error)
        != SUMI_OK)
        return NULL;
    const size_t count = (size_t)rows * (size_t)cols;
    float* block = sumi_alloc_array(file->heap, count, sizeof *block);
    if (block == NULL) {
        sumi_out_of_memory(error, count * sizeof *block, "the factors of an adapter");
        return NULL;
    }
    return file->blocks[file->block_count++] = block;
}

static sumi_weight float_factor(const char* name, const float* data, int32_t rows, int32_t cols)
{
    return (sumi_weight){.name = name,
                         .rows = rows,
                         .cols = cols,
                         .tensor_count = 1,
                         .tensors = {{.data = data, .dtype = SUMI_DTYPE_F32, .rows = rows, .scale = 1.0f}},
                         .index = -1};
}

// The left or right matrix of a factor. For a full factor the one on its smaller side is the unit matrix.
typedef struct half_factor {
    const sumi_tensor* tensor; // NULL: the unit matrix
    int32_t rows, cols;
} half_factor;

static half_factor left_of(const kronecker_factor* f)
{
    const sumi_tensor* tensor = f->full == NULL ? f->left : f->inner == f->cols ? f->full : NULL;
    return (half_factor){tensor, f->rows, f->inner};
}

static half_factor right_of(const kronecker_factor* f)
{
    const sumi_tensor* tensor = f->full == NULL ? f->right : f->inner == f->cols ? NULL : f->full;
    return (half_factor){tensor, f->inner, f->cols};
}

static size_t half_values(const half_factor* half) { return (size_t)half->rows * (size_t)half->cols; }

// Writes the elements from `into` on. Returns the address after them.
static float* write_half(const half_factor* half, float* into)
{
    if (half->tensor != NULL) {
        sumi_dtype_to_float(half->tensor->dtype, half->tensor->data, into, half_values(half));
    } else {
        for (int32_t r = 0; r < half->rows; r++) {
            for (int32_t c = 0; c < half->cols; c++) into[(size_t)r * (size_t)half->cols + (size_t)c] = r == c;
        }
    }
    return into + half_values(half);
}

// The Kronecker product of a [a_rows, a_cols] and b [b_rows, b_cols].
static void multiply_kronecker(const half_factor* a_half, const float* a, const half_factor* b_half, const float* b,
                               float* into)
{
    const size_t a_cols = (size_t)a_half->cols, b_cols = (size_t)b_half->cols;
    for (size_t i = 0; i < (size_t)a_half->rows; i++) {
        for (size_t l = 0; l < (size_t)b_half->rows; l++) {
            for (size_t j = 0; j < a_cols; j++) {
                for (size_t k = 0; k < b_cols; k++) *into++ = a[i * a_cols + j] * b[l * b_cols + k];
            }
        }
    }
}

// Stores the product as a low-rank change: up = L1 (x) L2, down = R1 (x) R2.
static sumi_result add_low_rank(sumi_adapter_file* file, sumi_delta delta, const kronecker_factor* w1,
                                const kronecker_factor* w2, sumi_error* error)
{
    const half_factor l1 = left_of(w1), l2 = left_of(w2), r1 = right_of(w1), r2 = right_of(w2);
    const int32_t rank = w1->inner * w2->inner, out = w1->rows * w2->rows, in = w1->cols * w2->cols;
    const char* name = (w2->full != NULL ? w2->full : w2->left)->name;
    float *up = reserve_floats(file, out, rank, error), *down = NULL;
    if (up != NULL) down = reserve_floats(file, rank, in, error);
    if (down == NULL) return SUMI_OUT_OF_HOST_MEMORY;
    const size_t count = half_values(&l1) + half_values(&l2) + half_values(&r1) + half_values(&r2);
    float* floats = sumi_alloc_array(file->heap, count, sizeof *floats);
    if (floats == NULL) return sumi_out_of_memory(error, count * sizeof *floats, "the factors of an adapter");
    float *l2_floats = write_half(&l1, floats), *r1_floats = write_half(&l2, l2_floats),
          *r2_floats = write_half(&r1, r1_floats);
    write_half(&r2, r2_floats);
    multiply_kronecker(&l1, floats, &l2, l2_floats, up);
    multiply_kronecker(&r1, r1_floats, &r2, r2_floats, down);
    sumi_free(file->heap, floats);
    delta.up = float_factor(name, up, out, rank);
    delta.down = float_factor(name, down, rank, in);
    return add_delta(file, delta, error);
}

// Returns a factor as it is in the file, or multiplied out.
static sumi_result load_factor(sumi_adapter_file* file, const kronecker_factor* f, sumi_weight* out, sumi_error* error)
{
    if (f->full != NULL) {
        *out = factor(f->full, f->rows, f->cols);
        return SUMI_OK;
    }
    const half_factor left = left_of(f), right = right_of(f);
    const size_t count = half_values(&left) + half_values(&right);
    float* product = reserve_floats(file, f->rows, f->cols, error);
    if (product == NULL) return SUMI_OUT_OF_HOST_MEMORY;
    float* floats = sumi_alloc_array(file->heap, count, sizeof *floats);
    if (floats == NULL) return sumi_out_of_memory(error, count * sizeof *floats, "the factors of an adapter");
    const float* second = write_half(&left, floats);
    write_half(&right, floats + half_values(&left));
    const size_t rows = (size_t)f->rows, cols = (size_t)f->cols, inner = (size_t)f->inner;
    memset(product, 0, rows * cols * sizeof *product);
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < inner; k++) {
            for (size_t j = 0; j < cols; j++) product[i * cols + j] += floats[i * inner + k] * second[k * cols + j];
        }
    }
    sumi_free(file->heap, floats);
    *out = float_factor(f->left->name, product, f->rows, f->cols);
    return SUMI_OK;
}

static sumi_result add_factors(sumi_adapter_file* file, sumi_delta delta, const kronecker_factor* w1,
                               const kronecker_factor* w2, sumi_error* error)
{
    delta.kind = SUMI_DELTA_KRONECKER;
    SUMI_TRY(load_factor(file, w1, &delta.up, error));
    SUMI_TRY(load_factor(file, w2, &delta.down, error));
    return add_delta(file, delta, error);
}

static sumi_result add_target_kronecker(sumi_adapter_file* file, const sumi_adapter_target* target, const char* name,
                                        size_t module_bytes, sumi_error* error)
{
    kronecker_factor w1, w2;
    SUMI_TRY(find_factor(file, name, module_bytes, 0, &w1, error));
    SUMI_TRY(find_factor(file, name, module_bytes, 1, &w2, error));
    if ((int64_t)w1.rows * w2.rows != target->rows || (int64_t)w1.cols * w2.cols != target->cols) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s: the factors of %.*s are [%d, %d] and [%d, %d], the layer is [%d, %d]; the adapter is of "
                         "another model",
                         file->path, (int)module_bytes, name, (int)w1.rows, (int)w1.cols, (int)w2.rows, (int)w2.cols,
                         (int)target->rows, (int)target->cols);
    }
    if (has_target(file, target)) return SUMI_OK;
    sumi_delta delta = {.weight_index = target->weight_index, .row_begin = target->row_begin, .scale = 1.0f};
    const kronecker_factor* ranked = w2.full == NULL ? &w2 : &w1;
    if (ranked->full == NULL) {
        if (w1.full == NULL && w1.inner != w2.inner && w2.full == NULL) {
            return sumi_fail(error, SUMI_TENSOR_MISMATCH, "%s: the factors of %.*s have the ranks %d and %d, not one",
                             file->path, (int)module_bytes, name, (int)w1.inner, (int)w2.inner);
        }
        SUMI_TRY(read_scale(file, find_sibling(file, name, module_bytes, ".alpha"), name, module_bytes, ranked->inner,
                            &delta.scale, error));
    }
    const int32_t smaller = target->rows < target->cols ? target->rows : target->cols;
    if ((int64_t)w1.inner * w2.inner <= smaller / LOW_RANK_SHARE) return add_low_rank(file, delta, &w1, &w2, error);
    return add_factors(file, delta, &w1, &w2, error);
}

// ---- Norms ----------------------------------------------------------------------------------------------------------

// MODULE.w_norm is added to the weight of a norm.
static sumi_result add_vector(sumi_adapter_file* file, const sumi_adapter_target* target, const sumi_tensor* tensor,
                              sumi_error* error)
{
    int64_t count = 1;
    bool is_good = tensor->rank >= 1;
    for (int32_t i = 0; i < tensor->rank; i++) {
        is_good = is_good && (count == 1 || tensor->shape[i] == 1);
        count = count == 1 ? tensor->shape[i] : count;
    }
    if (!is_good || count != target->cols) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s: %s has %lld values, the norm has %d; the adapter is of another model", file->path,
                         tensor->name, (long long)count, (int)target->cols);
    }
    if (!is_plain_float(tensor->dtype)) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: %s has the type %s; adapters are stored as F32, F16 or BF16",
                         file->path, tensor->name, sumi_dtype_get(tensor->dtype)->name);
    }
    if (has_target(file, target)) return SUMI_OK;
    return add_delta(file,
                     (sumi_delta){.weight_index = target->weight_index,
                                  .scale = 1.0f,
                                  .up = factor(tensor, target->cols, 1),
                                  .kind = SUMI_DELTA_VECTOR},
                     error);
}

// Whether a name ends like a tensor of LoKr. If so, *out_module_bytes is the length of the part before that.
static bool is_kronecker(const char* name, size_t* out_module_bytes)
{
    static const char* const s_factor_endings[] = {".lokr_w1", ".lokr_w1_a", ".lokr_w1_b",
                                                   ".lokr_w2", ".lokr_w2_a", ".lokr_w2_b"};
    for (size_t i = 0; i < sizeof s_factor_endings / sizeof *s_factor_endings; i++) {
        if (has_suffix(name, s_factor_endings[i])) {
            *out_module_bytes = strlen(name) - strlen(s_factor_endings[i]);
            return true;
        }
    }
    return false;
}

// ---- The file -------------------------------------------------------------------------------------------------------

// Methods that are neither a product of two matrices nor a Kronecker product: LoHa, DoRA, LoKr of convolutions and
// others.
static bool is_other_method(const char* name)
{
    static const char* const s_marks[] = {".hada_",  ".lokr_t2",  "dora_scale",   "lora_magnitude_vector",
                                          ".oft_",   ".lora_mid", ".lora_B.bias", ".lora_B.default.bias",
                                          ".diff_b", ".glora",    ".boft"};
    for (size_t i = 0; i < sizeof s_marks / sizeof *s_marks; i++) {
        if (strstr(name, s_marks[i]) != NULL) return true;
    }
    return has_suffix(name, ".diff") || has_suffix(name, ".on_input");
}

typedef struct unmatched_names {
    char text[256];
    size_t used;
    int32_t count;
} unmatched_names;

static void add_unmatched(unmatched_names* list, const char* name)
{
    if (list->count++ < SHOWN_NAMES && list->used < sizeof list->text) {
        int written =
            snprintf(list->text + list->used, sizeof list->text - list->used, "%s%s", list->used > 0 ? ", " : "", name);
        list->used += written > 0 ? (size_t)written : 0;
    }
}

static sumi_result read_adapter_tensor(sumi_adapter_file* file, const sumi_network* network, const sumi_tensor* tensor,
                                       unmatched_names* list, sumi_error* error)
{
    const char *name = tensor->name, *path = file->path;
    size_t kronecker_bytes = 0;
    const bool has_kronecker = is_kronecker(name, &kronecker_bytes);
    if (is_other_method(name) || (has_kronecker && find_sibling(file, name, kronecker_bytes, ".lokr_t2") != NULL)) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s: tensor %s belongs to another kind of adapter (LoHa, DoRA, LoKr of a convolution or full "
                         "weights); LoRA and LoKr of linear layers are supported",
                         path, name);
    }
    for (size_t i = 0; i < SUFFIX_COUNT; i++) {
        if (has_suffix(name, s_suffixes[i][0])) {
            size_t module_bytes = strlen(name) - strlen(s_suffixes[i][0]);
            const sumi_tensor* up = find_sibling(file, name, module_bytes, s_suffixes[i][1]);
            const sumi_adapter_target* target = find_target(network, name, module_bytes, false);
            if (target == NULL) {
                add_unmatched(list, name);
                return SUMI_OK;
            }
            if (up == NULL) {
                return sumi_fail(error, SUMI_TENSOR_MISSING,
                                 "%s: %s has no partner ending in %s; the file is incomplete", path, name,
                                 s_suffixes[i][1]);
            }
            return add_target_delta(file, target, tensor, up, find_sibling(file, name, module_bytes, ".alpha"),
                                    module_bytes, error);
        }
        if (has_suffix(name, s_suffixes[i][1])) {
            if (find_sibling(file, name, strlen(name) - strlen(s_suffixes[i][1]), s_suffixes[i][0]) == NULL) {
                return sumi_fail(error, SUMI_TENSOR_MISSING,
                                 "%s: %s has no partner ending in %s; the file is incomplete", path, name,
                                 s_suffixes[i][0]);
            }
            return SUMI_OK; // read together with its partner
        }
    }
    if (has_suffix(name, ".w_norm")) {
        const sumi_adapter_target* target = find_target(network, name, strlen(name) - strlen(".w_norm"), true);
        if (target != NULL) return add_vector(file, target, tensor, error);
        add_unmatched(list, name);
        return SUMI_OK;
    }
    if (has_suffix(name, ".b_norm")) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s: tensor %s changes the bias of a norm; only changes of norms' weights are supported", path,
                         name);
    }
    if (has_kronecker) {
        const sumi_adapter_target* target = find_target(network, name, kronecker_bytes, false);
        if (target != NULL) return add_target_kronecker(file, target, name, kronecker_bytes, error);
        add_unmatched(list, name);
        return SUMI_OK;
    }
    if (has_suffix(name, ".alpha")) {
        size_t module_bytes = strlen(name) - strlen(".alpha");
        if (find_sibling(file, name, module_bytes, ".lokr_w1") != NULL
            || find_sibling(file, name, module_bytes, ".lokr_w1_a") != NULL)
            return SUMI_OK;
        for (size_t i = 0; i < SUFFIX_COUNT; i++) {
            if (find_sibling(file, name, module_bytes, s_suffixes[i][0]) != NULL) return SUMI_OK;
        }
    }
    add_unmatched(list, name);
    return SUMI_OK;
}

static int compare_deltas(const void* a, const void* b)
{
    const sumi_delta *x = a, *y = b;
    if (x->weight_index != y->weight_index) return x->weight_index < y->weight_index ? -1 : 1;
    return x->row_begin != y->row_begin
             ? (x->row_begin < y->row_begin ? -1 : 1)
             : (sumi_delta_rows(x) > sumi_delta_rows(y)) - (sumi_delta_rows(x) < sumi_delta_rows(y));
}

// If a file has a fused change of q, k and v and also single ones, these are the same change twice, and the fused one
// is dropped.
static void drop_doubled(sumi_adapter_file* file, const sumi_network* network)
{
    for (size_t i = 0; i < file->delta_count; i++) {
        sumi_delta* delta = &file->deltas[i];
        SUMI_ASSERT(delta->weight_index >= 0 && (size_t)delta->weight_index < network->weights.count);
        const sumi_weight* weight = network->weights.weights[delta->weight_index];
        SUMI_ASSERT(delta->row_begin >= -1 && sumi_delta_rows(delta) <= weight->rows);
        int32_t single_rows = 0;
        for (size_t k = 0; k < file->delta_count; k++) {
            bool is_single =
                file->deltas[k].weight_index == delta->weight_index && sumi_delta_rows(&file->deltas[k]) < weight->rows;
            single_rows += is_single ? sumi_delta_rows(&file->deltas[k]) : 0;
        }
        if (sumi_delta_rows(delta) == weight->rows && single_rows >= weight->rows) delta->row_begin = -1;
    }
    size_t kept_count = 0;
    for (size_t i = 0; i < file->delta_count; i++) {
        if (file->deltas[i].row_begin >= 0) file->deltas[kept_count++] = file->deltas[i];
    }
    file->delta_count = kept_count;
}

// Finds the file: `path` itself, or the file in the folder that PEFT or diffusers saved.
static sumi_result find_file(sumi_adapter_file* file, const sumi_files* files, const char* path, sumi_error* error)
{
    static const char* const s_names[] = {"adapter_model.safetensors", "pytorch_lora_weights.safetensors"};
    const size_t bytes = strlen(path) + 64;
    file->path = sumi_alloc(file->heap, bytes);
    if (file->path == NULL) return sumi_out_of_memory(error, bytes, "a file name");
    snprintf(file->path, bytes, "%s", path);
    if (!sumi_file_is_folder(files, path)) return SUMI_OK;
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        SUMI_ASSERT(strlen(s_names[i]) + 2 <= 64);
        sumi_path_join(file->path, bytes, path, s_names[i]);
        if (sumi_file_exists(files, file->path)) return SUMI_OK;
    }
    return sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: no such file, and no folder with %s or %s", path, s_names[0],
                     s_names[1]);
}

static sumi_result read_file(sumi_adapter_file* file, const sumi_files* files, const sumi_network* network,
                             const char* requested_path, sumi_error* error)
{
    SUMI_TRY(find_file(file, files, requested_path, error));
    const char* path = file->path;
    SUMI_TRY(sumi_tensor_set_open(&file->set, path, error));
    SUMI_TRY(sumi_adapter_config_read(&file->config, file->heap, files, &file->set, path, error));
    unmatched_names list = {.count = 0};
    for (size_t i = 0; i < file->set.count; i++)
        SUMI_TRY(read_adapter_tensor(file, network, &file->set.tensors[i], &list, error));
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
    if (file == NULL) return sumi_out_of_memory(error, sizeof *file, "an adapter");
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
        for (size_t i = 0; i < file->block_count; i++) sumi_free(file->heap, file->blocks[i]);
        sumi_free(file->heap, file->blocks);
        sumi_free(file->heap, file->deltas);
        sumi_adapter_config_close(&file->config);
        sumi_free(file->heap, file->path);
        sumi_tensor_set_close(&file->set);
        sumi_free(file->heap, file);
    }
}

const sumi_adapter* sumi_adapter_get(const sumi_adapter_file* file) { return &file->adapter; }
