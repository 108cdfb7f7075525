// The epilogue of the products of few rows (gemm_stored.cu, gemm_stored_sm90.cu): a lane finishes two neighbouring
// columns of several rows. So bias, gate and column numbers are read once per lane, and the residuals of all its rows
// are read before anything is written.
#pragma once
#include "gemm_epilogue.cuh"

// What the epilogue needs of a lane's two columns.
struct stored_columns {
    float bias[2], factor[2];
    int column[2]; // columns of y; neighbours where epilogue.is_aligned
};
// For columns c and c + 1 of the result, which has n columns; c and c + 1 may lie beyond it. c is even. is_swiglu: the
// result has half the product's columns, and neither bias nor factor.
SUMI_DEVICE stored_columns stored_columns_of(const sumi_gemm_epilogue& epilogue, int64_t gate_row, int n, int c,
                                             bool is_swiglu)
{
    stored_columns columns;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const bool is_plain = is_swiglu || c + i >= n;
        columns.bias[i] = !is_plain && epilogue.bias ? ((const float*)epilogue.bias)[c + i] : 0.0f;
        columns.factor[i] = is_plain      ? 1.0f
                          : epilogue.gate ? epilogue.scale * epilogue_gate(epilogue, gate_row, c + i)
                                          : epilogue.scale;
        columns.column[i] = is_plain ? epilogue.column + c + i : epilogue_column(epilogue, c + i);
    }
    return columns;
}
// Finishes COUNT rows: row, row + row_step, ...; rows from m on are skipped. width: how many of the two columns exist,
// 1 or more. sums_of(i): the two sums of row `row + i * row_step`, or with SwiGLU the two gated values.
template <int COUNT, class F>
SUMI_DEVICE void stored_epilogue(const sumi_gemm_epilogue& epilogue, const epilogue_activation& activation,
                                 const stored_columns& columns, int width, int m, int row, int row_step, F&& sums_of)
{
    const int64_t row_index = (int64_t)row * epilogue.ldy, row_stride = (int64_t)row_step * epilogue.ldy;
    if (!epilogue.is_aligned) { // rare, so the code is short rather than fast
#pragma unroll 1
        for (int i = 0; i < COUNT && row + i * row_step < m; i++) {
            const float2 sums = sums_of(i);
#pragma unroll 1
            for (int c = 0; c < width && c < 2; c++) {
                const float v = epilogue_activate(activation, (c == 0 ? sums.x : sums.y)
                                                                  + (c == 0 ? columns.bias[0] : columns.bias[1]));
                epilogue_store(epilogue, row + i * row_step, c == 0 ? columns.column[0] : columns.column[1],
                               v * (c == 0 ? columns.factor[0] : columns.factor[1]));
            }
        }
        return;
    }
    float v[2 * COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float2 sums = sums_of(i);
        v[2 * i] = sums.x + columns.bias[0], v[2 * i + 1] = sums.y + columns.bias[1];
    }
    epilogue_activate_all(activation, v);
    const int64_t index = row_index + columns.column[0];
    __nv_bfloat162* const y = (__nv_bfloat162*)((bf16*)epilogue.y + index);
    const __nv_bfloat162* const residuals = (const __nv_bfloat162*)((const bf16*)epilogue.residual + index);
    float2 residual[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        residual[i] = make_float2(0.0f, 0.0f);
        if (epilogue.residual && row + i * row_step < m)
            residual[i] = __bfloat1622float2(residuals[i * (row_stride / 2)]);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (row + i * row_step < m)
            y[i * (row_stride / 2)] = __floats2bfloat162_rn(fmaf(v[2 * i], columns.factor[0], residual[i].x),
                                                            fmaf(v[2 * i + 1], columns.factor[1], residual[i].y));
    }
}
