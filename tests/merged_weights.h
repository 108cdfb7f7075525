// The reference of adapters: weights with the changes added, as merging would. The library never merges; its products
// add the changes while they run.
#ifndef SUMI_TESTS_MERGED_WEIGHTS_H
#define SUMI_TESTS_MERGED_WEIGHTS_H
#include "base/assert.h"
#include "plan/weight.h"

// Element [row, col] of a factor of an adapter's change, which is a weight of one tensor.
static inline float delta_element(const sumi_weight* factor, int32_t row, int32_t col)
{
    SUMI_ASSERT(factor->tensor_count == 1 && row < factor->rows && col < factor->cols);
    const sumi_stacked_tensor* part = &factor->tensors[0];
    const uint64_t at = (uint64_t)row * (uint64_t)factor->cols + (uint64_t)col;
    float value;
    sumi_dtype_to_float(part->dtype, (const unsigned char*)part->data + sumi_dtype_bytes(part->dtype, at), &value, 1);
    return value;
}

// Adds row `row` of an adapter's change, times `factor`, to `into`.
static inline void add_delta_row(const sumi_delta* delta, int32_t row, int32_t cols, float factor, float* into)
{
    const sumi_weight *up = &delta->up, *down = &delta->down;
    switch (delta->kind) {
    case SUMI_DELTA_VECTOR:
        SUMI_ASSERT(up->rows == cols && up->cols == 1);
        for (int32_t c = 0; c < cols; c++) into[c] += factor * delta_element(up, c, 0);
        break;
    case SUMI_DELTA_KRONECKER:
        SUMI_ASSERT(up->cols * down->cols == cols);
        for (int32_t j = 0; j < up->cols; j++) {
            const float left = factor * delta_element(up, row / down->rows, j);
            for (int32_t k = 0; k < down->cols; k++)
                into[j * down->cols + k] += left * delta_element(down, row % down->rows, k);
        }
        break;
    case SUMI_DELTA_WHOLE: {
        float values[4096];
        SUMI_ASSERT(up->cols == cols && cols <= 4096);
        sumi_weight_to_float(up, row, 1, values, cols);
        for (int32_t c = 0; c < cols; c++) into[c] += factor * values[c];
        break;
    }
    case SUMI_DELTA_BIAS: break; // no change of the matrix
    case SUMI_DELTA_LOW_RANK:
        SUMI_ASSERT(up->cols == down->rows && down->cols == cols);
        for (int32_t k = 0; k < down->rows; k++) {
            const float left = factor * delta_element(up, row, k);
            for (int32_t c = 0; c < cols; c++) into[c] += left * delta_element(down, k, c);
        }
        break;
    }
}

// Row `row` of W + the sum of all changes, in float.
static inline void merged_row(const sumi_weight* weight, const sumi_adapter_use* uses, int32_t use_count, int32_t row,
                              float* into)
{
    SUMI_ASSERT(row >= 0 && row < weight->rows);
    sumi_weight_to_float(weight, row, 1, into, weight->cols);
    for (int32_t u = 0; u < use_count; u++) {
        for (int32_t d = 0; d < uses[u].adapter->delta_count; d++) {
            const sumi_delta* delta = &uses[u].adapter->deltas[d];
            int32_t local = row - delta->row_begin;
            if (delta->weight_index != weight->index || local < 0 || local >= sumi_delta_rows(delta)) continue;
            add_delta_row(delta, local, weight->cols, uses[u].scale * delta->scale, into);
        }
    }
}
#endif
