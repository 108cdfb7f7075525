// The end of a product of few rows: a lane has values of one column, so that what belongs to the column is read once, and
// residuals are read together before anything is written.
#pragma once
#include "gemm_finish.cuh"

struct stored_column {
    float bias, factor;
    int at; // of y
};
// Column c of the product, or of the gated one; c may lie outside.
SUMI_DEVICE stored_column stored_column_of(const sumi_gemm_finish& f, int64_t gate_row, int n, int c, bool is_gated)
{
    if (is_gated || c >= n) return {0.0f, 1.0f, f.column + c};
    return {f.bias ? ((const float*)f.bias)[c] : 0.0f, f.gate ? f.scale * finish_gate(f, gate_row, c) : f.scale,
            finish_column(f, c)};
}
// COUNT rows from `row` on, `step` apart, of which those below m are there. value(i): the sum, or what was gated.
template <int COUNT, class F>
SUMI_DEVICE void stored_finish(const sumi_gemm_finish& f, const finish_activation& act, const stored_column& column,
                               int m, int row, int step, F&& value)
{
    float residual[COUNT], v[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) v[i] = value(i) + column.bias;
    finish_activate_all(act, v);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const int64_t at = (int64_t)(row + i * step) * f.ldy + column.at;
        residual[i] = 0.0f;
        if (f.residual && row + i * step < m)
            residual[i] = f.is_float ? ((const float*)f.residual)[at] : __bfloat162float(((const bf16*)f.residual)[at]);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (row + i * step >= m) continue;
        const int64_t at = (int64_t)(row + i * step) * f.ldy + column.at;
        const float sum = fmaf(v[i], column.factor, residual[i]);
        if (f.is_float) ((float*)f.y)[at] = sum;
        else ((bf16*)f.y)[at] = __float2bfloat16(sum);
    }
}
