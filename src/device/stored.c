#include "device/stored.h"
#include "base/assert.h"
#include "device/form.h"
#include "kernels/stored.h"
#include <string.h>

// By the type numbers of kernels/stored.h.
static const sumi_dtype s_dtypes[] = {SUMI_DTYPE_Q8_0,    SUMI_DTYPE_Q4_0,   SUMI_DTYPE_Q4_1,   SUMI_DTYPE_Q5_0,
                                      SUMI_DTYPE_Q5_1,    SUMI_DTYPE_Q2_K,   SUMI_DTYPE_Q3_K,   SUMI_DTYPE_Q4_K,
                                      SUMI_DTYPE_Q5_K,    SUMI_DTYPE_Q6_K,   SUMI_DTYPE_IQ4_NL, SUMI_DTYPE_IQ4_XS,
                                      SUMI_DTYPE_F8_E4M3, SUMI_DTYPE_F8_E5M2};

enum {
    FILE_TYPES = sizeof s_dtypes / sizeof *s_dtypes,
    // Types that no file has: number, elements of a block, bytes of a block.
    NVFP4 = 14,
    NVFP4_BLOCK = 32,
    NVFP4_BYTES = 18,
    E4M3B = 15,
    E4M3B_BLOCK = 256,
    E4M3B_FACTORS = 4,
    E4M3B_BYTES = E4M3B_FACTORS * 4 + E4M3B_BLOCK
};
_Static_assert(FILE_TYPES == NVFP4 && SUMI_STORED_TYPE_COUNT == E4M3B + 1, "the numbers of kernels/stored.h");

int32_t sumi_device_stored_type(sumi_dtype dtype)
{
    for (int32_t i = 0; i < FILE_TYPES; i++) {
        if (s_dtypes[i] == dtype) return i;
    }
    return -1;
}

// Pairs of e2m1 with an e4m3 factor for each 16 of a row.
static bool is_nvfp4(const sumi_weight* weight, const sumi_stacked_tensor* tensor)
{
    static const float s_e2m1[SUMI_CODE_COUNT] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                  -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    const sumi_decoding* d = tensor->decoding;
    return d != NULL && d->has_codes && memcmp(d->codes, s_e2m1, sizeof s_e2m1) == 0 && d->scales != NULL
        && d->scale_dtype == SUMI_DTYPE_F8_E4M3 && d->block_rows == 1 && d->block_cols == 16 && !d->is_rounded
        && d->column_scales == NULL && tensor->row_scales == NULL && weight->cols % NVFP4_BLOCK == 0;
}

// e4m3 with factors of rows, or of blocks of columns that a factor for each 64 columns can repeat.
static bool is_e4m3b(const sumi_weight* weight, const sumi_stacked_tensor* tensor)
{
    enum { COLS = E4M3B_BLOCK / E4M3B_FACTORS };
    const sumi_decoding* d = tensor->decoding;
    if (tensor->dtype != SUMI_DTYPE_F8_E4M3 || weight->cols % E4M3B_BLOCK != 0) return false;
    if (d == NULL) return tensor->row_scales != NULL;
    return d->scales != NULL && !d->is_rounded && d->column_scales == NULL && tensor->row_scales == NULL
        && (d->block_cols % COLS == 0 || d->block_cols >= weight->cols);
}

int32_t sumi_device_stored_tensor_type(const sumi_weight* weight, const sumi_stacked_tensor* tensor)
{
    SUMI_ASSERT(weight->change == NULL);
    if (tensor->rotation != 0 || tensor->chunk != 0 || weight->cols % 32 != 0) return -1;
    if (sumi_stacked_tensor_is_plain(tensor))
        return weight->cols % sumi_dtype_get(tensor->dtype)->block == 0 ? sumi_device_stored_type(tensor->dtype) : -1;
    return is_nvfp4(weight, tensor) ? NVFP4 : is_e4m3b(weight, tensor) ? E4M3B : -1;
}

bool sumi_device_stored_is_packed(const sumi_weight* weight, const sumi_stacked_tensor* tensor)
{
    return weight->change == NULL && sumi_device_stored_tensor_type(weight, tensor) >= FILE_TYPES;
}

static uint64_t packed_row_bytes(int32_t type, int32_t cols)
{
    return type == NVFP4 ? (uint64_t)cols / NVFP4_BLOCK * NVFP4_BYTES : (uint64_t)cols / E4M3B_BLOCK * E4M3B_BYTES;
}

uint64_t sumi_device_stored_row_bytes(const sumi_weight* weight, const sumi_stacked_tensor* tensor)
{
    const int32_t type = sumi_device_stored_tensor_type(weight, tensor);
    return type < FILE_TYPES ? sumi_dtype_bytes(tensor->dtype, (uint64_t)weight->cols)
                             : packed_row_bytes(type, weight->cols);
}

int32_t sumi_device_stored_tensors(const sumi_weight* weight, sumi_device_form form,
                                   sumi_device_stored_tensor* out_tensors)
{
    SUMI_ASSERT(form == SUMI_DEVICE_FORM_STORED || form == SUMI_DEVICE_FORM_INT4);
    if (!sumi_device_traits(form)->keeps_bytes) {
        out_tensors[0] = (sumi_device_stored_tensor){0, sumi_dtype_bytes(SUMI_DTYPE_IQ4_NL, (uint64_t)weight->cols),
                                                     sumi_device_stored_type(SUMI_DTYPE_IQ4_NL), weight->rows, 1.0f};
        return 1;
    }
    uint64_t offset = 0;
    for (int32_t p = 0; p < weight->tensor_count; p++) {
        const sumi_stacked_tensor* tensor = &weight->tensors[p];
        const int32_t type = sumi_device_stored_tensor_type(weight, tensor);
        const uint64_t row_bytes = sumi_device_stored_row_bytes(weight, tensor);
        // factors of rows are packed with that of the tensor
        const float scale = tensor->row_scales == NULL ? tensor->scale : 1.0f;
        out_tensors[p] = (sumi_device_stored_tensor){offset, row_bytes, type, tensor->rows, scale};
        offset = (offset + row_bytes * (uint64_t)tensor->rows + 15) / 16 * 16;
    }
    return weight->tensor_count;
}

uint64_t sumi_device_stored_bytes(const sumi_weight* weight, sumi_device_form form)
{
    sumi_device_stored_tensor tensors[SUMI_WEIGHT_MAX_TENSORS];
    const int32_t count = sumi_device_stored_tensors(weight, form, tensors);
    uint64_t end = 0;
    for (int32_t p = 0; p < count; p++) end = tensors[p].offset + tensors[p].row_bytes * (uint64_t)tensors[p].rows;
    return end + 16;
}

// ---- Packing --------------------------------------------------------------------------------------------------------

// Of 16 columns: the first of a pair, and the second.
static int32_t first_code(const sumi_decoding* d, unsigned char pair) { return d->high_first ? pair >> 4 : pair & 15; }
static int32_t second_code(const sumi_decoding* d, unsigned char pair) { return d->high_first ? pair & 15 : pair >> 4; }

static void pack_nvfp4(const sumi_weight* weight, const sumi_stacked_tensor* tensor, int32_t row, unsigned char* into)
{
    const sumi_decoding* d = tensor->decoding;
    const unsigned char* from =
        (const unsigned char*)tensor->data + sumi_dtype_bytes(tensor->dtype, (uint64_t)row * (uint64_t)weight->cols);
    for (int32_t block = 0; block < weight->cols / NVFP4_BLOCK; block++, from += 16, into += NVFP4_BYTES) {
        memcpy(into, sumi_decoding_scale_at(d, row, 2 * block), 1);
        memcpy(into + 1, sumi_decoding_scale_at(d, row, 2 * block + 1), 1);
        for (int32_t i = 0; i < 8; i++) { // pairs of the first 16 columns, and of the last
            into[2 + 2 * i] = (unsigned char)(first_code(d, from[i]) | first_code(d, from[8 + i]) << 4);
            into[3 + 2 * i] = (unsigned char)(second_code(d, from[i]) | second_code(d, from[8 + i]) << 4);
        }
    }
}

// The factor of a row from `column` on.
static float factor_of(const sumi_stacked_tensor* tensor, int32_t row, int32_t column)
{
    const sumi_decoding* d = tensor->decoding;
    float factor;
    if (d == NULL) {
        memcpy(&factor, (const unsigned char*)tensor->row_scales + (size_t)row * sizeof factor, sizeof factor);
        return factor * tensor->scale;
    }
    sumi_dtype_to_float(d->scale_dtype, sumi_decoding_scale_at(d, row / d->block_rows, column / d->block_cols), &factor,
                        1);
    return factor;
}

static void pack_e4m3b(const sumi_weight* weight, const sumi_stacked_tensor* tensor, int32_t row, unsigned char* into)
{
    const unsigned char* from = (const unsigned char*)tensor->data + (uint64_t)row * (uint64_t)weight->cols;
    for (int32_t c = 0; c < weight->cols; c += E4M3B_BLOCK, into += E4M3B_BYTES) {
        float factors[E4M3B_FACTORS];
        for (int32_t i = 0; i < E4M3B_FACTORS; i++)
            factors[i] = factor_of(tensor, row, c + i * (E4M3B_BLOCK / E4M3B_FACTORS));
        memcpy(into, factors, sizeof factors);
        memcpy(into + sizeof factors, from + c, E4M3B_BLOCK);
    }
}

void sumi_device_stored_pack(const sumi_weight* weight, int32_t begin, int32_t count, unsigned char* into)
{
    SUMI_ASSERT(begin >= 0 && count >= 1 && begin + count <= weight->rows && weight->change == NULL);
    const sumi_stacked_tensor* tensor = weight->tensors;
    for (; begin >= tensor->rows; tensor++) begin -= tensor->rows;
    SUMI_ASSERT(begin + count <= tensor->rows && sumi_device_stored_is_packed(weight, tensor));
    const int32_t type = sumi_device_stored_tensor_type(weight, tensor);
    for (int32_t row = begin; row < begin + count; row++, into += packed_row_bytes(type, weight->cols)) {
        if (type == NVFP4) pack_nvfp4(weight, tensor, row, into);
        else pack_e4m3b(weight, tensor, row, into);
    }
}
