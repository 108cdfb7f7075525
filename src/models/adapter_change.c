#include "models/adapter_change.h"
#include "base/assert.h"
#include <math.h>
#include <string.h>

// A Kronecker product is stored as a low-rank change if the rank is at most this fraction (1 / LOW_RANK_SHARE) of the
// layer's smaller side.
#define LOW_RANK_SHARE 4

// ---- Memory ---------------------------------------------------------------------------------------------------------

void* sumi_adapter_memory_reserve(sumi_adapter_memory* memory, size_t count, size_t element_bytes, sumi_error* error)
{
    if (sumi_grow(memory->heap, (void**)&memory->blocks, &memory->capacity, memory->count + 1, sizeof *memory->blocks,
                  error)
        != SUMI_OK)
        return NULL;
    void* block = sumi_alloc_array(memory->heap, count, element_bytes);
    if (block == NULL) {
        sumi_out_of_memory(error, count * element_bytes, "the factors of an adapter");
        return NULL;
    }
    return memory->blocks[memory->count++] = block;
}

void sumi_adapter_memory_close(sumi_adapter_memory* memory)
{
    for (size_t i = 0; i < memory->count; i++) sumi_free(memory->heap, memory->blocks[i]);
    if (memory->heap != NULL) sumi_free(memory->heap, memory->blocks);
    *memory = (sumi_adapter_memory){0};
}

// ---- Factors --------------------------------------------------------------------------------------------------------

static sumi_weight matrix(const char* name, const void* data, sumi_dtype dtype, int32_t rows, int32_t cols)
{
    return (sumi_weight){.name = name,
                         .rows = rows,
                         .cols = cols,
                         .tensor_count = 1,
                         .tensors = {{.data = data, .dtype = dtype, .rows = rows, .scale = 1.0f}},
                         .index = -1};
}

// A tensor as a weight with the rows and columns of `out`. It stays where it lies; values of 8 bits become bfloat16,
// which holds all of them.
static sumi_result factor(sumi_adapter_memory* memory, const sumi_tensor* tensor, sumi_weight* out, sumi_error* error)
{
    const int32_t rows = out->rows, cols = out->cols;
    SUMI_ASSERT(rows >= 1 && cols >= 1 && tensor->data != NULL);
    *out = matrix(tensor->name, tensor->data, tensor->dtype, rows, cols);
    out->tensors[0].mapping = tensor->mapping;
    out->tensors[0].mapping_bytes = tensor->mapping_bytes;
    if (tensor->dtype != SUMI_DTYPE_F8_E4M3 && tensor->dtype != SUMI_DTYPE_F8_E5M2) return SUMI_OK;
    const size_t count = (size_t)rows * (size_t)cols;
    uint16_t* values = sumi_adapter_memory_reserve(memory, count, sizeof *values, error);
    if (values == NULL) return SUMI_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < count; i++) {
        float value;
        sumi_dtype_to_float(tensor->dtype, (const unsigned char*)tensor->data + i, &value, 1);
        values[i] = sumi_float_to_bf16(value);
    }
    *out = matrix(tensor->name, values, SUMI_DTYPE_BF16, rows, cols);
    return SUMI_OK;
}

static void shape_of(const sumi_tensor* tensor, int32_t* rows, int32_t* cols)
{
    if (!sumi_adapter_matrix_shape(tensor, rows, cols)) *rows = *cols = 0; // adapter_layers.c has refused it
}

static void add_change(sumi_change_list* list, sumi_delta delta)
{
    SUMI_ASSERT(list->count < (int32_t)(sizeof list->deltas / sizeof *list->deltas));
    list->deltas[list->count++] = delta;
}

static sumi_delta change_of(const sumi_adapter_place* place, sumi_delta_kind kind, float scale)
{
    return (sumi_delta){.weight_index = place->target->weight_index,
                        .row_begin = place->target->row_begin,
                        .scale = scale,
                        .kind = kind};
}

static sumi_result fail_shape(const sumi_adapter_place* place, const sumi_tensor* first, const sumi_tensor* second,
                              const int64_t shape[2], sumi_error* error)
{
    return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                     "%s: %s%s%s change a matrix [%lld, %lld], the layer is [%d, %d]; the adapter is of another model",
                     place->path, first->name, second != NULL ? " and " : "", second != NULL ? second->name : "",
                     (long long)shape[0], (long long)shape[1], (int)place->target->rows, (int)place->target->cols);
}

// ---- LoRA -----------------------------------------------------------------------------------------------------------

static sumi_result change_lora(const sumi_adapter_place* place, const sumi_adapter_layer* layer, sumi_change_list* out,
                               sumi_error* error)
{
    const sumi_tensor *down = layer->parts[SUMI_PART_DOWN], *up = layer->parts[SUMI_PART_UP];
    int32_t rank, in, rows, up_rank;
    shape_of(down, &rank, &in);
    shape_of(up, &rows, &up_rank);
    if (in != place->target->cols || rows != place->target->rows) {
        return sumi_fail(
            error, SUMI_TENSOR_MISMATCH,
            "%s: %s and %s are [%d, %d] and [%d, %d], the layer needs [r, %d] and [%d, r]; the adapter is of "
            "another model",
            place->path, down->name, up->name, (int)rank, (int)in, (int)rows, (int)up_rank, (int)place->target->cols,
            (int)place->target->rows);
    }
    sumi_delta delta = change_of(place, SUMI_DELTA_LOW_RANK, layer->scale);
    delta.down = (sumi_weight){.rows = rank, .cols = in};
    SUMI_TRY(factor(place->memory, down, &delta.down, error));
    delta.up = (sumi_weight){.rows = rows, .cols = rank};
    SUMI_TRY(factor(place->memory, up, &delta.up, error));
    add_change(out, delta);
    return SUMI_OK;
}

// ---- LoKr -----------------------------------------------------------------------------------------------------------
//
// The change of a layer is a Kronecker product, W1 (x) W2 with [a, c] (x) [b, d] = [a b, c d]. Each factor is stored
// in full or as a product of two matrices of an inner size r:
//
//     MODULE.lokr_w1 [a, c]   or   MODULE.lokr_w1_a [a, r], MODULE.lokr_w1_b [r, c]        MODULE.lokr_w2 likewise
//
// (L1 R1) (x) (L2 R2) = (L1 (x) L2) (R1 (x) R2) is a low-rank change of rank r1 r2, where a full factor is the product
// of itself and a unit matrix of its smaller side.

// One of the two factors.
typedef struct kronecker_factor {
    const sumi_tensor *full, *left, *right; // either `full`, or `left` and `right`
    int32_t rows, cols;
    int32_t inner; // inner size of left and right; of a full factor its smaller side
} kronecker_factor;

static kronecker_factor factor_of(const sumi_adapter_layer* layer, sumi_adapter_part full, sumi_adapter_part left,
                                  sumi_adapter_part right)
{
    kronecker_factor f = {.full = layer->parts[full], .left = layer->parts[left], .right = layer->parts[right]};
    int32_t inner;
    if (f.full != NULL) {
        shape_of(f.full, &f.rows, &f.cols);
        f.inner = f.rows < f.cols ? f.rows : f.cols;
    } else {
        shape_of(f.left, &f.rows, &f.inner);
        shape_of(f.right, &inner, &f.cols);
    }
    return f;
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

// Makes the product a low-rank change: up = L1 (x) L2, down = R1 (x) R2.
static sumi_result multiply_halves(sumi_adapter_memory* memory, const kronecker_factor* w1, const kronecker_factor* w2,
                                   sumi_delta* delta, sumi_error* error)
{
    const half_factor l1 = left_of(w1), l2 = left_of(w2), r1 = right_of(w1), r2 = right_of(w2);
    const int32_t rank = w1->inner * w2->inner, out = w1->rows * w2->rows, in = w1->cols * w2->cols;
    const char* name = (w2->full != NULL ? w2->full : w2->left)->name;
    float *up = sumi_adapter_memory_reserve(memory, (size_t)out * (size_t)rank, sizeof *up, error), *down = NULL;
    if (up != NULL) down = sumi_adapter_memory_reserve(memory, (size_t)rank * (size_t)in, sizeof *down, error);
    if (down == NULL) return SUMI_OUT_OF_HOST_MEMORY;
    const size_t count = half_values(&l1) + half_values(&l2) + half_values(&r1) + half_values(&r2);
    float* floats = sumi_alloc_array(memory->heap, count, sizeof *floats);
    if (floats == NULL) return sumi_out_of_memory(error, count * sizeof *floats, "the factors of an adapter");
    float *l2_floats = write_half(&l1, floats), *r1_floats = write_half(&l2, l2_floats),
          *r2_floats = write_half(&r1, r1_floats);
    write_half(&r2, r2_floats);
    multiply_kronecker(&l1, floats, &l2, l2_floats, up);
    multiply_kronecker(&r1, r1_floats, &r2, r2_floats, down);
    sumi_free(memory->heap, floats);
    delta->up = matrix(name, up, SUMI_DTYPE_F32, out, rank);
    delta->down = matrix(name, down, SUMI_DTYPE_F32, rank, in);
    return SUMI_OK;
}

// Returns a factor as it is in the file, or multiplied out.
static sumi_result load_factor(sumi_adapter_memory* memory, const kronecker_factor* f, sumi_weight* out,
                               sumi_error* error)
{
    *out = (sumi_weight){.rows = f->rows, .cols = f->cols};
    if (f->full != NULL) return factor(memory, f->full, out, error);
    const half_factor left = left_of(f), right = right_of(f);
    const size_t count = half_values(&left) + half_values(&right);
    float* product = sumi_adapter_memory_reserve(memory, (size_t)f->rows * (size_t)f->cols, sizeof *product, error);
    if (product == NULL) return SUMI_OUT_OF_HOST_MEMORY;
    float* floats = sumi_alloc_array(memory->heap, count, sizeof *floats);
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
    sumi_free(memory->heap, floats);
    *out = matrix(f->left->name, product, SUMI_DTYPE_F32, f->rows, f->cols);
    return SUMI_OK;
}

static sumi_result change_lokr(const sumi_adapter_place* place, const sumi_adapter_layer* layer, sumi_change_list* out,
                               sumi_error* error)
{
    const sumi_adapter_target* target = place->target;
    const kronecker_factor w1 = factor_of(layer, SUMI_PART_LOKR_1, SUMI_PART_LOKR_1_UP, SUMI_PART_LOKR_1_DOWN),
                           w2 = factor_of(layer, SUMI_PART_LOKR_2, SUMI_PART_LOKR_2_UP, SUMI_PART_LOKR_2_DOWN);
    if ((int64_t)w1.rows * w2.rows != target->rows || (int64_t)w1.cols * w2.cols != target->cols) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s: the factors of %.*s are [%d, %d] and [%d, %d], the layer is [%d, %d]; the adapter is of "
                         "another model",
                         place->path, (int)layer->module_bytes, layer->module, (int)w1.rows, (int)w1.cols, (int)w2.rows,
                         (int)w2.cols, (int)target->rows, (int)target->cols);
    }
    const int32_t smaller = target->rows < target->cols ? target->rows : target->cols;
    const bool is_low_rank = (int64_t)w1.inner * w2.inner <= smaller / LOW_RANK_SHARE;
    sumi_delta delta = change_of(place, is_low_rank ? SUMI_DELTA_LOW_RANK : SUMI_DELTA_KRONECKER, layer->scale);
    if (is_low_rank) {
        SUMI_TRY(multiply_halves(place->memory, &w1, &w2, &delta, error));
    } else {
        SUMI_TRY(load_factor(place->memory, &w1, &delta.up, error));
        SUMI_TRY(load_factor(place->memory, &w2, &delta.down, error));
    }
    add_change(out, delta);
    return SUMI_OK;
}

// ---- LoHa -----------------------------------------------------------------------------------------------------------
//
// (A1 B1) * (A2 B2), element by element, is U V with the rank r1 r2:
//
//     U[i, k1 r2 + k2] = A1[i, k1] A2[i, k2]        V[k1 r2 + k2, j] = B1[k1, j] B2[k2, j]

typedef struct loha_factors {
    const char* name;
    float *up[2], *down[2];
    int32_t rank[2], rows, cols;
} loha_factors;

// U and V.
static void multiply_pairs(const loha_factors* f, float* up, float* down)
{
    const size_t r1 = (size_t)f->rank[0], r2 = (size_t)f->rank[1], cols = (size_t)f->cols;
    for (size_t i = 0; i < (size_t)f->rows; i++) {
        for (size_t k = 0; k < r1 * r2; k++) *up++ = f->up[0][i * r1 + k / r2] * f->up[1][i * r2 + k % r2];
    }
    for (size_t k = 0; k < r1 * r2; k++) {
        for (size_t j = 0; j < cols; j++) *down++ = f->down[0][k / r2 * cols + j] * f->down[1][k % r2 * cols + j];
    }
}

// The whole matrix in bfloat16. `products` has two rows.
static void multiply_elements(const loha_factors* f, float* products, uint16_t* into)
{
    const size_t cols = (size_t)f->cols;
    for (size_t i = 0; i < (size_t)f->rows; i++) {
        memset(products, 0, 2 * cols * sizeof *products);
        for (size_t w = 0; w < 2; w++) {
            for (size_t k = 0; k < (size_t)f->rank[w]; k++) {
                const float left = f->up[w][i * (size_t)f->rank[w] + k];
                for (size_t j = 0; j < cols; j++) products[w * cols + j] += left * f->down[w][k * cols + j];
            }
        }
        for (size_t j = 0; j < cols; j++) *into++ = sumi_float_to_bf16(products[j] * products[cols + j]);
    }
}

static sumi_result make_loha(sumi_adapter_memory* memory, const loha_factors* f, float* products, sumi_delta* delta,
                             sumi_error* error)
{
    const int64_t rank = (int64_t)f->rank[0] * f->rank[1];
    const size_t rows = (size_t)f->rows, cols = (size_t)f->cols;
    const int64_t values = (int64_t)f->rows * f->cols;
    if (rank >= values || rank * (f->rows + f->cols) > values) {
        uint16_t* whole = sumi_adapter_memory_reserve(memory, rows * cols, sizeof *whole, error);
        if (whole == NULL) return SUMI_OUT_OF_HOST_MEMORY;
        multiply_elements(f, products, whole);
        delta->kind = SUMI_DELTA_WHOLE;
        delta->up = matrix(f->name, whole, SUMI_DTYPE_BF16, f->rows, f->cols);
        return SUMI_OK;
    }
    float *up = sumi_adapter_memory_reserve(memory, rows * (size_t)rank, sizeof *up, error), *down = NULL;
    if (up != NULL) down = sumi_adapter_memory_reserve(memory, (size_t)rank * cols, sizeof *down, error);
    if (down == NULL) return SUMI_OUT_OF_HOST_MEMORY;
    multiply_pairs(f, up, down);
    delta->up = matrix(f->name, up, SUMI_DTYPE_F32, f->rows, (int32_t)rank);
    delta->down = matrix(f->name, down, SUMI_DTYPE_F32, (int32_t)rank, f->cols);
    return SUMI_OK;
}

static sumi_result change_loha(const sumi_adapter_place* place, const sumi_adapter_layer* layer, sumi_change_list* out,
                               sumi_error* error)
{
    const sumi_tensor* tensors[4] = {layer->parts[SUMI_PART_LOHA_1_UP], layer->parts[SUMI_PART_LOHA_2_UP],
                                     layer->parts[SUMI_PART_LOHA_1_DOWN], layer->parts[SUMI_PART_LOHA_2_DOWN]};
    loha_factors f = {.name = tensors[0]->name, .rows = place->target->rows, .cols = place->target->cols};
    size_t count = 2 * (size_t)f.cols;
    for (int32_t w = 0; w < 2; w++) {
        int32_t rows, cols;
        shape_of(tensors[w], &rows, &f.rank[w]);
        shape_of(tensors[2 + w], &f.rank[w], &cols);
        if (rows != f.rows || cols != f.cols)
            return fail_shape(place, tensors[w], tensors[2 + w], (const int64_t[]){rows, cols}, error);
        count += (size_t)f.rank[w] * ((size_t)rows + (size_t)cols);
    }
    float* floats = sumi_alloc_array(place->memory->heap, count, sizeof *floats);
    if (floats == NULL) return sumi_out_of_memory(error, count * sizeof *floats, "the factors of an adapter");
    float* at = floats + 2 * (size_t)f.cols;
    for (int32_t i = 0; i < 4; i++) {
        const size_t values = (size_t)f.rank[i % 2] * (size_t)(i < 2 ? f.rows : f.cols);
        *(i < 2 ? &f.up[i] : &f.down[i - 2]) = at;
        sumi_dtype_to_float(tensors[i]->dtype, tensors[i]->data, at, values);
        at += values;
    }
    sumi_delta delta = change_of(place, SUMI_DELTA_LOW_RANK, layer->scale);
    const sumi_result result = make_loha(place->memory, &f, floats, &delta, error);
    sumi_free(place->memory->heap, floats);
    if (result == SUMI_OK) add_change(out, delta);
    return result;
}

// ---- Whole differences ----------------------------------------------------------------------------------------------

// Programs that write the difference of two models also write it where the weights are equal.
static bool is_zero(const sumi_tensor* tensor)
{
    const unsigned char* data = tensor->data;
    for (uint64_t i = 0; i < tensor->bytes; i++) {
        if ((data[i] & 0x7f) != 0) return false; // -0 in any type
    }
    return true;
}

static sumi_result change_whole(const sumi_adapter_place* place, const sumi_adapter_layer* layer, sumi_change_list* out,
                                sumi_error* error)
{
    const sumi_tensor* diff = layer->parts[SUMI_PART_DIFF];
    int32_t rows = 0, cols = 0;
    if (!sumi_adapter_matrix_shape(diff, &rows, &cols) || rows != place->target->rows || cols != place->target->cols)
        return fail_shape(place, diff, NULL,
                          (const int64_t[]){diff->rank > 0 ? diff->shape[0] : 0, diff->rank > 1 ? diff->shape[1] : 0},
                          error);
    if (is_zero(diff) && layer->parts[SUMI_PART_MAGNITUDE] == NULL) return SUMI_OK;
    sumi_delta delta = change_of(place, SUMI_DELTA_WHOLE, 1.0f);
    delta.up = (sumi_weight){.rows = rows, .cols = cols};
    SUMI_TRY(factor(place->memory, diff, &delta.up, error));
    add_change(out, delta);
    return SUMI_OK;
}

// A tensor of `count` values whose dimensions are 1 but for one.
static sumi_result check_vector(const sumi_adapter_place* place, const sumi_tensor* tensor, int32_t needed,
                                const char* what, sumi_error* error)
{
    int64_t count = 1;
    bool is_good = tensor->rank >= 1;
    for (int32_t i = 0; i < tensor->rank; i++) {
        is_good = is_good && (count == 1 || tensor->shape[i] == 1);
        count = count == 1 ? tensor->shape[i] : count;
    }
    if (is_good && count == needed) return SUMI_OK;
    return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                     "%s: %s has %lld values, the %s has %d; the adapter is of another model", place->path,
                     tensor->name, (long long)count, what, (int)needed);
}

static sumi_result add_vector(const sumi_adapter_place* place, const sumi_tensor* tensor, sumi_delta delta,
                              sumi_change_list* out, sumi_error* error)
{
    const bool is_bias = delta.kind == SUMI_DELTA_BIAS;
    const int32_t count = is_bias ? place->target->rows : place->target->cols;
    SUMI_TRY(check_vector(place, tensor, count, is_bias ? "layer's bias" : "norm", error));
    if (is_zero(tensor)) return SUMI_OK;
    delta.up = (sumi_weight){.rows = count, .cols = 1};
    SUMI_TRY(factor(place->memory, tensor, &delta.up, error));
    add_change(out, delta);
    return SUMI_OK;
}

sumi_result sumi_adapter_change_bias(const sumi_adapter_place* place, const sumi_adapter_layer* layer,
                                     sumi_change_list* out, sumi_error* error)
{
    const sumi_tensor *diff = layer->parts[SUMI_PART_BIAS_DIFF], *up_bias = layer->parts[SUMI_PART_UP_BIAS];
    if (diff != NULL) SUMI_TRY(add_vector(place, diff, change_of(place, SUMI_DELTA_BIAS, 1.0f), out, error));
    if (up_bias != NULL)
        SUMI_TRY(add_vector(place, up_bias, change_of(place, SUMI_DELTA_BIAS, layer->scale), out, error));
    return SUMI_OK;
}

sumi_result sumi_adapter_change_norm(const sumi_adapter_place* place, const sumi_adapter_layer* layer,
                                     sumi_change_list* out, sumi_error* error)
{
    const sumi_tensor *diff = layer->parts[SUMI_PART_DIFF], *norm = layer->parts[SUMI_PART_NORM];
    for (sumi_adapter_part part = SUMI_PART_BIAS_DIFF; part <= SUMI_PART_NORM_BIAS; part++) {
        const sumi_tensor* bias = part == SUMI_PART_NORM ? NULL : layer->parts[part];
        if (bias != NULL && !is_zero(bias)) {
            return sumi_fail(error, SUMI_NOT_SUPPORTED,
                             "%s: tensor %s changes the bias of a norm; changes of norms' weights alone are supported",
                             place->path, bias->name);
        }
    }
    const sumi_tensor* tensor = norm != NULL ? norm : diff;
    return tensor == NULL ? SUMI_OK : add_vector(place, tensor, change_of(place, SUMI_DELTA_VECTOR, 1.0f), out, error);
}

// ---- Rows of a change -----------------------------------------------------------------------------------------------

// The factors of a change as floats.
typedef struct change_floats {
    const sumi_delta* delta;
    float *up, *down, *block;
} change_floats;

static sumi_result open_floats(sumi_heap* heap, const sumi_delta* delta, change_floats* out, sumi_error* error)
{
    const sumi_weight *up = &delta->up, *down = &delta->down;
    const size_t up_count = delta->kind == SUMI_DELTA_WHOLE ? (size_t)up->cols : (size_t)up->rows * (size_t)up->cols,
                 count = up_count + (size_t)down->rows * (size_t)down->cols;
    *out = (change_floats){.delta = delta, .block = sumi_alloc_array(heap, count, sizeof(float))};
    if (out->block == NULL) return sumi_out_of_memory(error, count * sizeof(float), "the factors of an adapter");
    out->up = out->block;
    out->down = out->block + up_count;
    if (delta->kind != SUMI_DELTA_WHOLE) sumi_weight_to_float(up, 0, up->rows, out->up, up->cols);
    if (down->rows > 0) sumi_weight_to_float(down, 0, down->rows, out->down, down->cols);
    return SUMI_OK;
}

// Adds row `row` of the change of a matrix, times its scale, to `into`.
static void add_row(const change_floats* f, int32_t row, float* into)
{
    const sumi_weight *up = &f->delta->up, *down = &f->delta->down;
    const size_t up_cols = (size_t)up->cols, cols = (size_t)down->cols;
    const float scale = f->delta->scale;
    switch (f->delta->kind) {
    case SUMI_DELTA_LOW_RANK:
        for (size_t k = 0; k < up_cols; k++) {
            const float left = scale * f->up[(size_t)row * up_cols + k];
            for (size_t c = 0; c < cols; c++) into[c] += left * f->down[k * cols + c];
        }
        break;
    case SUMI_DELTA_KRONECKER:
        for (size_t j = 0; j < up_cols; j++) {
            const float left = scale * f->up[(size_t)(row / down->rows) * up_cols + j];
            const float* right = f->down + (size_t)(row % down->rows) * cols;
            for (size_t k = 0; k < cols; k++) into[j * cols + k] += left * right[k];
        }
        break;
    case SUMI_DELTA_WHOLE:
        sumi_weight_to_float(up, row, 1, f->up, up->cols);
        for (size_t c = 0; c < up_cols; c++) into[c] += scale * f->up[c];
        break;
    case SUMI_DELTA_BIAS:
    case SUMI_DELTA_VECTOR: SUMI_ASSERT(!"a change of a matrix"); break;
    }
}

// ---- DoRA -----------------------------------------------------------------------------------------------------------

// What the computation of one layer needs.
typedef struct decomposition {
    const sumi_adapter_place* place;
    const sumi_adapter_layer* layer;
    change_floats change;
    float *magnitude, *row;
    double* sums; // of the squares of columns; then m / norm
} decomposition;

// Row `row` of W, and of W + C.
static void read_rows(const decomposition* d, int32_t row, float* weight, float* changed)
{
    const int32_t cols = d->place->target->cols;
    sumi_weight_to_float(d->place->weight, d->place->target->row_begin + row, 1, weight, cols);
    memcpy(changed, weight, (size_t)cols * sizeof *changed);
    add_row(&d->change, row, changed);
}

// m / |row|; a row of zeros stays one.
static double factor_of_norm(float magnitude, double sum_of_squares)
{
    return sum_of_squares > 0 ? (double)magnitude / sqrt(sum_of_squares) : 1.0;
}

static double sum_of_squares(const float* row, int32_t cols)
{
    double sum = 0;
    for (int32_t c = 0; c < cols; c++) sum += (double)row[c] * (double)row[c];
    return sum;
}

// The rows of the place with other factors: the stacked tensors that have the rows, where they lie. row_scales: the
// factors, which are multiplied by the weight's. False: the rows cannot be told apart.
static bool view_rows(const sumi_adapter_place* place, float* row_scales, sumi_weight* out,
                      sumi_decoding decodings[SUMI_WEIGHT_MAX_TENSORS])
{
    const sumi_weight* weight = place->weight;
    if (weight->change != NULL || !sumi_weight_is_dense(weight)
        || !sumi_weight_take_rows(weight, place->target->row_begin, place->target->rows, out, decodings))
        return false;
    out->balance = NULL;
    out->index = -1;
    out->keeps_precision = false;
    for (int32_t p = 0, row = 0; p < out->tensor_count; row += out->tensors[p++].rows) {
        sumi_stacked_tensor* tensor = &out->tensors[p];
        for (int32_t r = 0; r < tensor->rows && tensor->row_scales != NULL; r++) {
            float old;
            memcpy(&old, (const unsigned char*)tensor->row_scales + (size_t)r * sizeof old, sizeof old);
            row_scales[row + r] *= old;
        }
        tensor->row_scales = row_scales + row;
    }
    return true;
}

// By outputs: (g - 1) W + g C, as two changes.
static sumi_result scale_outputs(const decomposition* d, const sumi_delta* change, sumi_change_list* out,
                                 sumi_error* error)
{
    const int32_t rows = d->place->target->rows, cols = d->place->target->cols, rank = change->up.cols;
    float *scales = sumi_adapter_memory_reserve(d->place->memory, (size_t)rows, sizeof *scales, error), *up = NULL;
    if (scales != NULL)
        up = sumi_adapter_memory_reserve(d->place->memory, (size_t)rows * (size_t)rank, sizeof *up, error);
    if (up == NULL) return SUMI_OUT_OF_HOST_MEMORY;
    for (int32_t r = 0; r < rows; r++) {
        read_rows(d, r, d->row, d->row + cols);
        const double g = factor_of_norm(d->magnitude[r], sum_of_squares(d->row + cols, cols));
        scales[r] = (float)(g - 1.0);
        for (int32_t k = 0; k < rank; k++) {
            const size_t at = (size_t)r * (size_t)rank + (size_t)k;
            up[at] = (float)(g * (double)d->change.up[at]);
        }
    }
    sumi_delta of_weight = change_of(d->place, SUMI_DELTA_WHOLE, 1.0f), of_change = *change;
    of_change.up = matrix(change->up.name, up, SUMI_DTYPE_F32, rows, rank);
    sumi_decoding* decodings =
        sumi_adapter_memory_reserve(d->place->memory, SUMI_WEIGHT_MAX_TENSORS, sizeof *decodings, error);
    if (decodings == NULL) return SUMI_OUT_OF_HOST_MEMORY;
    // can_scale_outputs() has tried it
    if (!view_rows(d->place, scales, &of_weight.up, decodings)) return SUMI_INTERNAL;
    add_change(out, of_weight);
    add_change(out, of_change);
    return SUMI_OK;
}

static bool can_scale_outputs(const sumi_adapter_place* place, const sumi_delta* change, float* row_scales)
{
    sumi_weight ignored;
    sumi_decoding decodings[SUMI_WEIGHT_MAX_TENSORS];
    return change->kind == SUMI_DELTA_LOW_RANK && view_rows(place, row_scales, &ignored, decodings);
}

// Any other case: the difference from W as a whole matrix in bfloat16.
static sumi_result decompose_whole(const decomposition* d, bool is_by_input, sumi_change_list* out, sumi_error* error)
{
    const int32_t rows = d->place->target->rows, cols = d->place->target->cols;
    float *weight = d->row, *changed = d->row + cols;
    uint16_t* whole = sumi_adapter_memory_reserve(d->place->memory, (size_t)rows * (size_t)cols, sizeof *whole, error);
    if (whole == NULL) return SUMI_OUT_OF_HOST_MEMORY;
    for (int32_t r = 0; r < rows && is_by_input; r++) {
        read_rows(d, r, weight, changed);
        for (int32_t c = 0; c < cols; c++) d->sums[c] += (double)changed[c] * (double)changed[c];
    }
    for (int32_t c = 0; c < cols && is_by_input; c++) d->sums[c] = factor_of_norm(d->magnitude[c], d->sums[c]);
    for (int32_t r = 0; r < rows; r++) {
        read_rows(d, r, weight, changed);
        const double row_factor = is_by_input ? 1.0 : factor_of_norm(d->magnitude[r], sum_of_squares(changed, cols));
        for (int32_t c = 0; c < cols; c++) {
            const double g = is_by_input ? d->sums[c] : row_factor;
            whole[(size_t)r * (size_t)cols + (size_t)c] =
                sumi_float_to_bf16((float)(g * (double)changed[c] - (double)weight[c]));
        }
    }
    sumi_delta delta = change_of(d->place, SUMI_DELTA_WHOLE, 1.0f);
    delta.up = matrix(d->layer->parts[SUMI_PART_MAGNITUDE]->name, whole, SUMI_DTYPE_BF16, rows, cols);
    add_change(out, delta);
    return SUMI_OK;
}

// Whether a magnitude is one for each input: [1, in]. PEFT and ai-toolkit have one for each output, [out]; LyCORIS and
// OneTrainer either, [out, 1] or [1, in].
static sumi_result read_axis(const sumi_adapter_place* place, const sumi_tensor* magnitude, bool* out_is_by_input,
                             sumi_error* error)
{
    const int32_t rows = place->target->rows, cols = place->target->cols;
    int64_t count = 1;
    for (int32_t i = 0; i < magnitude->rank; i++) count *= magnitude->shape[i];
    const bool is_row = magnitude->rank >= 2 && magnitude->shape[0] == 1 && magnitude->shape[1] == count,
               is_column = magnitude->rank >= 1 && magnitude->shape[0] == count,
               names_outputs = strstr(magnitude->name, ".lora_magnitude") != NULL;
    *out_is_by_input = is_row && count == cols && (count != rows || !names_outputs);
    if (*out_is_by_input || ((is_row || is_column) && count == rows)) return SUMI_OK;
    return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                     "%s: %s has %lld values, the layer has %d outputs and %d inputs; the DoRA is of another model",
                     place->path, magnitude->name, (long long)count, (int)rows, (int)cols);
}

// Replaces the change C by the difference of m (W + C) / |W + C| from W.
static sumi_result decompose(const sumi_adapter_place* place, const sumi_adapter_layer* layer, sumi_change_list* list,
                             sumi_error* error)
{
    const sumi_tensor* magnitude = layer->parts[SUMI_PART_MAGNITUDE];
    const sumi_delta change = list->deltas[0];
    const int32_t rows = place->target->rows, cols = place->target->cols;
    const size_t longer = (size_t)(rows > cols ? rows : cols);
    bool is_by_input;
    SUMI_ASSERT(list->count == 1);
    SUMI_TRY(read_axis(place, magnitude, &is_by_input, error));
    list->count = 0;
    decomposition d = {.place = place, .layer = layer};
    SUMI_TRY(open_floats(place->memory->heap, &change, &d.change, error));
    const size_t bytes = (size_t)cols * sizeof *d.sums + (2 * longer + 2 * (size_t)cols) * sizeof *d.row;
    d.sums = sumi_alloc_zero(place->memory->heap, bytes);
    sumi_result result = SUMI_OUT_OF_HOST_MEMORY;
    if (d.sums == NULL) {
        sumi_out_of_memory(error, bytes, "the norms of an adapter");
    } else {
        d.magnitude = (float*)(d.sums + cols);
        d.row = d.magnitude + 2 * longer;
        sumi_dtype_to_float(magnitude->dtype, magnitude->data, d.magnitude, (size_t)(is_by_input ? cols : rows));
        result = !is_by_input && can_scale_outputs(place, &change, d.magnitude + longer)
                   ? scale_outputs(&d, &change, list, error)
                   : decompose_whole(&d, is_by_input, list, error);
    }
    sumi_free(place->memory->heap, d.sums);
    sumi_free(place->memory->heap, d.change.block);
    return result;
}

sumi_result sumi_adapter_change_matrix(const sumi_adapter_place* place, const sumi_adapter_layer* layer,
                                       sumi_change_list* out, sumi_error* error)
{
    out->count = 0;
    switch (layer->kind) {
    case SUMI_ADAPTER_NONE: return SUMI_OK;
    case SUMI_ADAPTER_LORA: SUMI_TRY(change_lora(place, layer, out, error)); break;
    case SUMI_ADAPTER_LOHA: SUMI_TRY(change_loha(place, layer, out, error)); break;
    case SUMI_ADAPTER_LOKR: SUMI_TRY(change_lokr(place, layer, out, error)); break;
    case SUMI_ADAPTER_DIFF: SUMI_TRY(change_whole(place, layer, out, error)); break;
    }
    return layer->parts[SUMI_PART_MAGNITUDE] != NULL ? decompose(place, layer, out, error) : SUMI_OK;
}

// ---- Comparing ------------------------------------------------------------------------------------------------------

// The product of a change with a vector, added to `into`. Changes of vectors and biases are their own product.
static sumi_result add_product(sumi_heap* heap, const sumi_delta* delta, double* into, sumi_error* error)
{
    const sumi_weight *up = &delta->up, *down = &delta->down;
    const bool is_vector = delta->kind == SUMI_DELTA_VECTOR || delta->kind == SUMI_DELTA_BIAS;
    const int32_t rows = is_vector ? up->rows : sumi_delta_rows(delta),
                  cols = is_vector                           ? 1
                       : delta->kind == SUMI_DELTA_WHOLE     ? up->cols
                       : delta->kind == SUMI_DELTA_KRONECKER ? up->cols * down->cols
                                                             : down->cols;
    const size_t count = (size_t)cols + (size_t)up->cols;
    change_floats f = {0};
    double* sums = sumi_alloc_array(heap, (size_t)up->cols, sizeof *sums);
    float* row = sumi_alloc_array(heap, count, sizeof *row);
    sumi_result result = SUMI_OUT_OF_HOST_MEMORY;
    if (sums == NULL || row == NULL) sumi_out_of_memory(error, count * sizeof *row, "comparing changes");
    else result = open_floats(heap, delta, &f, error);
    uint32_t state = 1;
    float* vector = row;
    for (int32_t c = 0; c < cols && result == SUMI_OK; c++) {
        state = state * 1664525u + 1013904223u;
        vector[c] = is_vector || (state >> 31) != 0 ? 1.0f : -1.0f;
    }
    if (result == SUMI_OK && delta->kind == SUMI_DELTA_LOW_RANK) {
        for (int32_t k = 0; k < down->rows; k++) {
            sums[k] = 0;
            for (int32_t c = 0; c < cols; c++)
                sums[k] += (double)f.down[(size_t)k * (size_t)cols + (size_t)c] * (double)vector[c];
        }
        for (int32_t r = 0; r < rows; r++) {
            for (int32_t k = 0; k < up->cols; k++)
                into[r] += (double)delta->scale * (double)f.up[(size_t)r * (size_t)up->cols + (size_t)k] * sums[k];
        }
    } else if (result == SUMI_OK && is_vector) {
        for (int32_t r = 0; r < rows; r++) into[r] += (double)delta->scale * (double)f.up[r];
    } else if (result == SUMI_OK) {
        float* changed = sumi_alloc_array(heap, (size_t)cols, sizeof *changed);
        if (changed == NULL) result = sumi_out_of_memory(error, (size_t)cols * sizeof *changed, "comparing changes");
        for (int32_t r = 0; r < rows && result == SUMI_OK; r++) {
            memset(changed, 0, (size_t)cols * sizeof *changed);
            add_row(&f, r, changed);
            for (int32_t c = 0; c < cols; c++) into[r] += (double)changed[c] * (double)vector[c];
        }
        sumi_free(heap, changed);
    }
    sumi_free(heap, f.block);
    sumi_free(heap, row);
    sumi_free(heap, sums);
    return result;
}

sumi_result sumi_adapter_changes_differ(sumi_heap* heap, sumi_change_range a, sumi_change_range b, bool* out_differ,
                                        sumi_error* error)
{
    *out_differ = a.count == 0 || b.count == 0;
    if (*out_differ) return SUMI_OK;
    const size_t rows = (size_t)(a.deltas->kind == SUMI_DELTA_VECTOR ? a.deltas->up.rows : sumi_delta_rows(a.deltas));
    double* products = sumi_alloc_zero(heap, 2 * rows * sizeof *products);
    if (products == NULL) return sumi_out_of_memory(error, 2 * rows * sizeof *products, "comparing changes");
    sumi_result result = SUMI_OK;
    for (int32_t i = 0; i < a.count && result == SUMI_OK; i++)
        result = add_product(heap, &a.deltas[i], products, error);
    for (int32_t i = 0; i < b.count && result == SUMI_OK; i++)
        result = add_product(heap, &b.deltas[i], products + rows, error);
    double difference = 0, sum = 0;
    for (size_t r = 0; r < rows; r++) {
        const double x = products[r], y = products[rows + r];
        difference += (x - y) * (x - y);
        sum += x * x + y * y;
    }
    // 1 % of the larger one: factors that were rounded to bfloat16 in two ways differ by less
    *out_differ = difference > 5e-5 * sum;
    sumi_free(heap, products);
    return result;
}
