#include "plan/weight.h"
#include "base/assert.h"
#include "base/rotation.h"
#include <string.h>

uint64_t sumi_weight_bytes(const sumi_weight* weight)
{
    SUMI_ASSERT(weight->tensor_count >= 0 && weight->tensor_count <= SUMI_WEIGHT_MAX_TENSORS);
    uint64_t bytes = 0;
    for (int32_t p = 0; p < weight->tensor_count; p++) {
        const sumi_stacked_tensor* part = &weight->tensors[p];
        bytes += sumi_dtype_bytes(part->dtype, (uint64_t)part->rows * (uint64_t)weight->cols)
               + (part->row_scales != NULL ? (uint64_t)part->rows * sizeof(float) : 0);
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
    for (int32_t p = 0; p < weight->tensor_count; p++) { is_dense = is_dense && weight->tensors[p].chunk == 0; }
    return is_dense;
}

// The address of element `at` of a stacked tensor, counted as if the tensor were dense. The element must begin a row or
// a chunk.
static const unsigned char* part_address(const sumi_stacked_tensor* part, uint64_t at)
{
    SUMI_ASSERT(part->chunk >= 0 && (part->chunk == 0 || at % (uint64_t)part->chunk == 0));
    SUMI_ASSERT(part->chunk == 0 || (part->chunk_stride >= part->chunk && sumi_dtype_get(part->dtype)->block == 1));
    uint64_t element = part->chunk == 0 ? at : at / (uint64_t)part->chunk * (uint64_t)part->chunk_stride;
    return (const unsigned char*)part->data + sumi_dtype_bytes(part->dtype, element);
}

void sumi_weight_copy_rows(const sumi_weight* weight, int32_t begin, int32_t count, void* into)
{
    SUMI_ASSERT(begin >= 0 && count >= 1 && begin + count <= weight->rows && weight->change == NULL);
    const sumi_stacked_tensor* part = weight->tensors;
    for (; begin >= part->rows; part++) { begin -= part->rows; }
    SUMI_ASSERT(begin + count <= part->rows);
    uint64_t cols = (uint64_t)weight->cols, step = part->chunk == 0 ? cols * (uint64_t)count : (uint64_t)part->chunk,
             step_bytes = sumi_dtype_bytes(part->dtype, step);
    unsigned char* to = into;
    for (uint64_t done = 0; done < cols * (uint64_t)count; done += step, to += step_bytes) {
        memcpy(to, part_address(part, cols * (uint64_t)begin + done), (size_t)step_bytes);
    }
}

// The factor of all elements of a row.
static float scale_of(const sumi_stacked_tensor* part, int32_t row)
{
    SUMI_ASSERT(row >= 0 && row < part->rows);
    if (part->row_scales == NULL) { return part->scale; }
    float scale;
    memcpy(&scale, (const unsigned char*)part->row_scales + (size_t)row * sizeof scale, sizeof scale);
    return scale * part->scale;
}

// Converts elements [at, at + count) of a factor of a change.
static void factor_to_float(const sumi_stacked_tensor* factor, uint64_t at, float* into, int32_t count)
{
    sumi_dtype_to_float(factor->dtype, part_address(factor, at), into, (size_t)count);
    for (int32_t i = 0; factor->scale != 1.0f && i < count; i++) { into[i] *= factor->scale; }
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
            float values[PIECE], left;
            factor_to_float(down, (uint64_t)k * (uint64_t)weight->cols + (uint64_t)(block.column + begin), values,
                            count);
            for (int32_t r = 0; r < block.rows; r++) {
                float* row = into + (size_t)r * (size_t)stride + begin;
                factor_to_float(up, (uint64_t)(block.row + r) * (uint64_t)rank + (uint64_t)k, &left, 1);
                for (int32_t c = 0; c < count; c++) { row[c] += left * values[c]; }
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
        const sumi_stacked_tensor* part = &weight->tensors[p];
        int32_t from = block.row > first ? block.row : first;
        int32_t to = block.row + block.rows < first + part->rows ? block.row + block.rows : first + part->rows;
        int32_t step = part->chunk == 0 ? block.cols : part->chunk;
        SUMI_ASSERT(part->chunk == 0 || block.cols == weight->cols);
        for (int32_t r = from; r < to; r++) {
            float* row = into + (size_t)(r - block.row) * (size_t)stride;
            uint64_t at = (uint64_t)weight->cols * (uint64_t)(r - first) + (uint64_t)block.column;
            for (int32_t c = 0; c < block.cols; c += step) {
                sumi_dtype_to_float(part->dtype, part_address(part, at + (uint64_t)c), row + c, (size_t)step);
            }
            if (part->rotation != 0) { sumi_rotate(row, (size_t)block.cols, part->rotation); }
            const float scale = scale_of(part, r - first);
            for (int32_t c = 0; scale != 1.0f && c < block.cols; c++) { row[c] *= scale; }
        }
        first += part->rows;
    }
    if (weight->change != NULL) { add_change(weight, block, into, stride); }
}

void sumi_weight_to_float(const sumi_weight* weight, int32_t begin, int32_t count, float* into, int32_t stride)
{
    sumi_weight_block_to_float(weight, (sumi_weight_block){begin, count, 0, weight->cols}, into, stride);
}
