// The epilogue of the products of few rows (gemm_stored.cu, gemm_stored_sm90.cu): a lane finishes two neighbouring
// columns of several rows. So bias, gate and column numbers are read once per lane, and the residuals of all its rows
// are read before anything is written.
#pragma once
#include "gemm_epilogue.cuh"

// What the epilogue needs of a lane's two columns.
struct stored_columns {
    float bias[2], factor[2];
    int column[2]; // columns of y; neighbours where f.is_aligned
};
// For columns c and c + 1 of the result (of the n / 2 results with SwiGLU, is_gated). n: the number of columns of the
// result; c and c + 1 may lie beyond it. c is even.
SUMI_DEVICE stored_columns stored_columns_of(const sumi_gemm_epilogue& f, int64_t gate_row, int n, int c, bool is_gated)
{
    stored_columns r;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const bool is_plain = is_gated || c + i >= n;
        r.bias[i] = !is_plain && f.bias ? ((const float*)f.bias)[c + i] : 0.0f;
        r.factor[i] = is_plain ? 1.0f : f.gate ? f.scale * epilogue_gate(f, gate_row, c + i) : f.scale;
        r.column[i] = is_plain ? f.column + c + i : epilogue_column(f, c + i);
    }
    return r;
}
// Finishes COUNT rows: row, row + row_step, ...; rows from m on are skipped. width: how many of the two columns exist,
// 1 or more. value(i): the two sums of row `row + i * row_step`, or with SwiGLU the two gated values.
template <int COUNT, class F>
SUMI_DEVICE void stored_epilogue(const sumi_gemm_epilogue& f, const epilogue_activation& act,
                                 const stored_columns& columns, int width, int m, int row, int row_step, F&& value)
{
    const int64_t row_index = (int64_t)row * f.ldy, stride = (int64_t)row_step * f.ldy;
    if (!f.is_aligned) { // rare, so the code is short rather than fast
#pragma unroll 1
        for (int i = 0; i < COUNT && row + i * row_step < m; i++) {
            const float2 sums = value(i);
#pragma unroll 1
            for (int c = 0; c < width && c < 2; c++) {
                const float v =
                    epilogue_activate(act, (c == 0 ? sums.x : sums.y) + (c == 0 ? columns.bias[0] : columns.bias[1]));
                epilogue_store(f, row + i * row_step, c == 0 ? columns.column[0] : columns.column[1],
                               v * (c == 0 ? columns.factor[0] : columns.factor[1]));
            }
        }
        return;
    }
    float v[2 * COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float2 sums = value(i);
        v[2 * i] = sums.x + columns.bias[0], v[2 * i + 1] = sums.y + columns.bias[1];
    }
    epilogue_activate_all(act, v);
    const int64_t index = row_index + columns.column[0];
    __nv_bfloat162* const y = (__nv_bfloat162*)((bf16*)f.y + index);
    const __nv_bfloat162* const residuals = (const __nv_bfloat162*)((const bf16*)f.residual + index);
    float2 residual[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        residual[i] = make_float2(0.0f, 0.0f);
        if (f.residual && row + i * row_step < m) residual[i] = __bfloat1622float2(residuals[i * (stride / 2)]);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (row + i * row_step < m)
            y[i * (stride / 2)] = __floats2bfloat162_rn(fmaf(v[2 * i], columns.factor[0], residual[i].x),
                                                        fmaf(v[2 * i + 1], columns.factor[1], residual[i].y));
    }
}
