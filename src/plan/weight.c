#include "plan/weight.h"
#include <string.h>

uint64_t sumi_weight_bytes(const sumi_weight* weight)
{
    uint64_t bytes = 0;
    for (int32_t p = 0; p < weight->part_count; p++) {
        bytes += sumi_dtype_bytes(weight->parts[p].dtype, (uint64_t)weight->parts[p].rows * (uint64_t)weight->cols);
    }
    return bytes;
}

void sumi_weight_to_float(const sumi_weight* weight, int32_t begin, int32_t count, float* into, int32_t stride)
{
    int32_t first = 0; // row of the stack where the part begins
    for (int32_t p = 0; p < weight->part_count; p++) {
        const sumi_weight_part* part = &weight->parts[p];
        int32_t from = begin > first ? begin : first;
        int32_t to = begin + count < first + part->rows ? begin + count : first + part->rows;
        uint64_t row_bytes = sumi_dtype_bytes(part->dtype, (uint64_t)weight->cols);
        for (int32_t r = from; r < to; r++) {
            float* row = into + (size_t)(r - begin) * (size_t)stride;
            sumi_dtype_to_float(part->dtype, (const unsigned char*)part->data + row_bytes * (uint64_t)(r - first), row,
                                (size_t)weight->cols);
            if (part->scale != 1.0f) {
                for (int32_t c = 0; c < weight->cols; c++) { row[c] *= part->scale; }
            }
        }
        first += part->rows;
    }
}

void sumi_weight_merged_row(const sumi_weight* weight, const sumi_adapter_use* uses, int32_t use_count, int32_t row,
                            float* into)
{
    sumi_weight_to_float(weight, row, 1, into, weight->cols);
    for (int32_t u = 0; u < use_count; u++) {
        for (int32_t d = 0; d < uses[u].adapter->delta_count; d++) {
            const sumi_delta* delta = &uses[u].adapter->deltas[d];
            int32_t local = row - delta->row_begin;
            if (delta->weight_index != weight->index || local < 0 || local >= delta->up.rows) { continue; }
            int32_t rank = delta->down.rows;
            float factor = uses[u].scale * delta->scale;
            uint64_t up_row = sumi_dtype_bytes(delta->up.parts[0].dtype, (uint64_t)rank);
            uint64_t down_row = sumi_dtype_bytes(delta->down.parts[0].dtype, (uint64_t)weight->cols);
            for (int32_t k = 0; k < rank; k++) {
                float up, down;
                const sumi_weight_part* up_part = &delta->up.parts[0];
                const sumi_weight_part* down_part = &delta->down.parts[0];
                uint64_t up_size = sumi_dtype_bytes(up_part->dtype, 1),
                         down_size = sumi_dtype_bytes(down_part->dtype, 1);
                sumi_dtype_to_float(
                    up_part->dtype,
                    (const unsigned char*)up_part->data + up_row * (uint64_t)local + up_size * (uint64_t)k, &up, 1);
                for (int32_t c = 0; c < weight->cols; c++) {
                    sumi_dtype_to_float(down_part->dtype,
                                        (const unsigned char*)down_part->data + down_row * (uint64_t)k
                                            + down_size * (uint64_t)c,
                                        &down, 1);
                    into[c] += factor * up * down;
                }
            }
        }
    }
}
