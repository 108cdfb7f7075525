#include "plan/weight.h"
#include "base/assert.h"
#include "base/rotation.h"
#include <string.h>

uint64_t sumi_weight_bytes(const sumi_weight* weight)
{
    SUMI_ASSERT(weight->tensor_count >= 0 && weight->tensor_count <= SUMI_WEIGHT_MAX_TENSORS);
    uint64_t bytes = 0;
    for (int32_t p = 0; p < weight->tensor_count; p++) {
        const sumi_stacked_tensor* tensor = &weight->tensors[p];
        bytes += sumi_dtype_bytes(tensor->dtype, (uint64_t)tensor->rows * (uint64_t)weight->cols)
               + (tensor->row_scales != NULL ? (uint64_t)tensor->rows * sizeof(float) : 0)
               + (tensor->decoding != NULL ? sumi_decoding_bytes(tensor->decoding, tensor->rows, weight->cols) : 0);
    }
    if (weight->change != NULL) {
        const sumi_stacked_tensor *down = &weight->change->down, *up = &weight->change->up;
        bytes += sumi_dtype_bytes(down->dtype, (uint64_t)down->rows * (uint64_t)weight->cols)
               + sumi_dtype_bytes(up->dtype, (uint64_t)up->rows * (uint64_t)down->rows);
    }
    return bytes;
}

bool sumi_weight_is_dense(const sumi_weight* weight)
{
    bool is_dense = true;
    for (int32_t p = 0; p < weight->tensor_count; p++) is_dense = is_dense && weight->tensors[p].chunk == 0;
    return is_dense;
}

// Moves the beginning of a stacked tensor to row `row`.
static bool skip_rows(sumi_stacked_tensor* tensor, int32_t cols, int32_t row, sumi_decoding* decoding)
{
    const uint64_t elements = (uint64_t)row * (uint64_t)cols;
    if (elements % (uint64_t)sumi_dtype_get(tensor->dtype)->block != 0) return false;
    tensor->data = (const unsigned char*)tensor->data + sumi_dtype_bytes(tensor->dtype, elements);
    if (tensor->row_scales != NULL)
        tensor->row_scales = (const unsigned char*)tensor->row_scales + (size_t)row * sizeof(float);
    if (tensor->decoding == NULL) return true;
    *decoding = *tensor->decoding;
    tensor->decoding = decoding;
    if (decoding->scales == NULL) return true;
    if (row % decoding->block_rows != 0) return false;
    decoding->first_block_row += row / decoding->block_rows;
    return true;
}

bool sumi_weight_take_rows(const sumi_weight* weight, int32_t begin, int32_t count, sumi_weight* out,
                           sumi_decoding decodings[SUMI_WEIGHT_MAX_TENSORS])
{
    SUMI_ASSERT(begin >= 0 && count >= 1 && begin <= weight->rows - count);
    SUMI_ASSERT(weight->change == NULL && sumi_weight_is_dense(weight));
    *out = *weight;
    out->rows = count;
    out->tensor_count = 0;
    for (int32_t p = 0, first = 0; p < weight->tensor_count; first += weight->tensors[p++].rows) {
        sumi_stacked_tensor tensor = weight->tensors[p];
        const int32_t from = begin > first ? begin - first : 0,
                      to = begin + count - first < tensor.rows ? begin + count - first : tensor.rows;
        if (from >= to) continue;
        if (!skip_rows(&tensor, weight->cols, from, &decodings[out->tensor_count])) return false;
        tensor.rows = to - from;
        out->tensors[out->tensor_count++] = tensor;
    }
    return true;
}

// The address of element `index` of a stacked tensor, counted as if the tensor were dense. The element must begin a row
// or a chunk.
static const unsigned char* element_address(const sumi_stacked_tensor* tensor, uint64_t index)
{
    SUMI_ASSERT(tensor->chunk >= 0 && (tensor->chunk == 0 || index % (uint64_t)tensor->chunk == 0));
    SUMI_ASSERT(tensor->chunk == 0
                || (tensor->chunk_stride >= tensor->chunk && sumi_dtype_get(tensor->dtype)->block == 1));
    uint64_t stored_index =
        tensor->chunk == 0 ? index : index / (uint64_t)tensor->chunk * (uint64_t)tensor->chunk_stride;
    return (const unsigned char*)tensor->data + sumi_dtype_bytes(tensor->dtype, stored_index);
}

void sumi_weight_copy_rows(const sumi_weight* weight, int32_t begin, int32_t count, void* into)
{
    SUMI_ASSERT(begin >= 0 && count >= 1 && begin + count <= weight->rows && weight->change == NULL);
    const sumi_stacked_tensor* tensor = weight->tensors;
    for (; begin >= tensor->rows; tensor++) begin -= tensor->rows;
    SUMI_ASSERT(begin + count <= tensor->rows);
    uint64_t cols = (uint64_t)weight->cols,
             step = tensor->chunk == 0 ? cols * (uint64_t)count : (uint64_t)tensor->chunk,
             step_bytes = sumi_dtype_bytes(tensor->dtype, step);
    unsigned char* to = into;
    for (uint64_t done = 0; done < cols * (uint64_t)count; done += step, to += step_bytes)
        memcpy(to, element_address(tensor, cols * (uint64_t)begin + done), (size_t)step_bytes);
}

// The factor of all elements of a row.
static float scale_of(const sumi_stacked_tensor* tensor, int32_t row)
{
    SUMI_ASSERT(row >= 0 && row < tensor->rows);
    if (tensor->row_scales == NULL) return tensor->scale;
    float scale;
    memcpy(&scale, (const unsigned char*)tensor->row_scales + (size_t)row * sizeof scale, sizeof scale);
    return scale * tensor->scale;
}

// Converts elements [begin, begin + count) of a factor of a change.
static void factor_to_float(const sumi_stacked_tensor* factor, uint64_t begin, float* into, int32_t count)
{
    sumi_dtype_to_float(factor->dtype, element_address(factor, begin), into, (size_t)count);
    for (int32_t i = 0; factor->scale != 1.0f && i < count; i++) into[i] *= factor->scale;
}

// Adds up @ down to a block. The columns are processed in pieces, so that a piece of a row of `down` is converted once
// for all rows of the block. Every element is summed in the order of the rank, so its bits do not depend on the block.
static void add_change(const sumi_weight* weight, sumi_weight_block block, float* into, int32_t stride)
{
    enum { PIECE = 256 };
    const sumi_stacked_tensor *down = &weight->change->down, *up = &weight->change->up;
    const int32_t rank = down->rows;
    SUMI_ASSERT(rank >= 1 && up->rows == weight->rows && down->chunk == 0 && up->chunk == 0);
    SUMI_ASSERT(sumi_stacked_tensor_is_plain(down) && sumi_stacked_tensor_is_plain(up));
    SUMI_ASSERT(weight->cols % sumi_dtype_get(down->dtype)->block == 0 && sumi_dtype_get(up->dtype)->block == 1);
    for (int32_t begin = 0; begin < block.cols; begin += PIECE) {
        const int32_t count = block.cols - begin < PIECE ? block.cols - begin : PIECE;
        for (int32_t k = 0; k < rank; k++) {
            float values[PIECE], up_value;
            factor_to_float(down, (uint64_t)k * (uint64_t)weight->cols + (uint64_t)(block.column + begin), values,
                            count);
            for (int32_t r = 0; r < block.rows; r++) {
                float* row = into + (size_t)r * (size_t)stride + begin;
                factor_to_float(up, (uint64_t)(block.row + r) * (uint64_t)rank + (uint64_t)k, &up_value, 1);
                for (int32_t c = 0; c < count; c++) row[c] += up_value * values[c];
            }
        }
    }
}

void sumi_weight_block_to_float(const sumi_weight* weight, sumi_weight_block block, float* into, int32_t stride)
{
    SUMI_ASSERT(block.row >= 0 && block.rows >= 0 && block.row <= weight->rows - block.rows);
    SUMI_ASSERT(block.column >= 0 && block.cols >= 0 && block.column <= weight->cols - block.cols);
    SUMI_ASSERT(block.column % 256 == 0 && (stride >= block.cols || block.rows <= 1));
    int32_t first = 0; // row of the weight where the stacked tensor begins
    for (int32_t p = 0; p < weight->tensor_count; p++) {
        const sumi_stacked_tensor* tensor = &weight->tensors[p];
        int32_t from = block.row > first ? block.row : first;
        int32_t to = block.row + block.rows < first + tensor->rows ? block.row + block.rows : first + tensor->rows;
        int32_t step = tensor->chunk == 0 ? block.cols : tensor->chunk;
        SUMI_ASSERT(tensor->chunk == 0 || block.cols == weight->cols);
        for (int32_t r = from; r < to; r++) {
            float* row = into + (size_t)(r - block.row) * (size_t)stride;
            uint64_t element = (uint64_t)weight->cols * (uint64_t)(r - first) + (uint64_t)block.column;
            for (int32_t c = 0; c < block.cols; c += step) {
                const unsigned char* source = element_address(tensor, element + (uint64_t)c);
                const sumi_decoding_span span = {tensor->dtype, source, r - first, block.column + c, step};
                if (tensor->decoding != NULL) sumi_decode(tensor->decoding, &span, row + c);
                else sumi_dtype_to_float(tensor->dtype, source, row + c, (size_t)step);
            }
            if (tensor->rotation != 0) sumi_rotate(row, (size_t)block.cols, tensor->rotation);
            const float scale = scale_of(tensor, r - first);
            for (int32_t c = 0; scale != 1.0f && c < block.cols; c++) row[c] *= scale;
            if (tensor->decoding != NULL) sumi_decode_columns(tensor->decoding, block.column, block.cols, row);
        }
        first += tensor->rows;
    }
    if (weight->change != NULL) add_change(weight, block, into, stride);
}

void sumi_weight_to_float(const sumi_weight* weight, int32_t begin, int32_t count, float* into, int32_t stride)
{
    sumi_weight_block_to_float(weight, (sumi_weight_block){begin, count, 0, weight->cols}, into, stride);
}
