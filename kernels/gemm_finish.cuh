// sumi_gemm_finish carried out: bias, activation, scale, gate and residual chosen at run time, bf16 or float results, any alignment. One such epilogue serves the
// products that have no epilogue compiled for them; the branches are the same for a whole launch.
#pragma once
#include "common.cuh"
#include "gemm.h"
#include "quads.cuh"

// Column of y for column c of the product.
SUMI_DEVICE int finish_column(const sumi_gemm_finish& f, int c)
{
    c += f.column;
    if (f.half > 0) {
        const int second = c >= f.half, within = c - (second ? f.half : 0);
        c = (within >> 3) * 16 + second * 8 + (within & 7);
    }
    return c;
}

// All activations but GELU with erf are x * sigmoid(x (a + b x^2)), or 2 sigmoid(2 x) - 1 for tanh: coefficients instead of a branch for each.
// The numbers are those of sumi_activation.
struct finish_activation { float a, b; int kind; }; // kind 0: none, 1: x * sigmoid, 2: 2 * sigmoid - 1, 3: erf
SUMI_DEVICE finish_activation finish_activation_of(int activation)
{
    finish_activation r = {1.0f, 0.0f, 1};
    if (activation == 0) r.kind = 0;
    if (activation == 2) r.a = 1.59576912f, r.b = 0.044715f * 1.59576912f;
    if (activation == 3) r.kind = 3;
    if (activation == 4) r.a = 1.702f;
    if (activation == 5) r.a = 2.0f, r.kind = 2;
    return r;
}
SUMI_DEVICE float finish_sigmoid(float u) { return __fdividef(1.0f, 1.0f + __expf(-u)); }
SUMI_DEVICE float finish_activate(const finish_activation& act, float x)
{
    if (act.kind == 0) return x;
    if (act.kind == 3) { // erfc by Abramowitz and Stegun 7.1.26: absolute error 1.5e-7, a fifth of erff's instructions
        const float z = fabsf(x) * 0.707106781f, t = __fdividef(1.0f, fmaf(0.3275911f, z, 1.0f));
        const float p = t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f), 0.254829592f);
        const float tail = 0.5f * p * __expf(-z * z);
        return x * (x < 0.0f ? tail : 1.0f - tail);
    }
    const float s = finish_sigmoid(x * fmaf(act.b * x, x, act.a));
    return act.kind == 2 ? fmaf(2.0f, s, -1.0f) : x * s;
}
SUMI_DEVICE float finish_gate(const sumi_gemm_finish& f, int64_t gate_row, int c)
{
    const int64_t at = gate_row + c;
    return f.gate_is_float ? ((const float*)f.gate)[at] : __bfloat162float(((const bf16*)f.gate)[at]);
}
SUMI_DEVICE int64_t finish_gate_row(const sumi_gemm_finish& f)
{
    return f.gate == 0 ? 0 : (int64_t) * (const int32_t*)f.counter * f.gate_stride + f.gate_column;
}

// One finished value (column c of the product, column `at` of y): the residual, rounding, the store.
SUMI_DEVICE void finish_store(const sumi_gemm_finish& f, int row, int at, float v)
{
    const int64_t i = (int64_t)row * f.ldy + at;
    if (f.is_float) {
        ((float*)f.y)[i] = f.residual ? ((const float*)f.residual)[i] + v : v;
    } else {
        ((bf16*)f.y)[i] = __float2bfloat16(f.residual ? __bfloat162float(((const bf16*)f.residual)[i]) + v : v);
    }
}

// One sum from shared memory or a register, for the kernels whose epilogue is not on tiles of the tensor cores. act and gate_row are the launch's.
SUMI_DEVICE void finish_one(const sumi_gemm_finish& f, const finish_activation& act, int64_t gate_row, int row, int c, float v)
{
    if (f.bias) v += ((const float*)f.bias)[c];
    v = finish_activate(act, v) * f.scale;
    if (f.gate) v *= finish_gate(f, gate_row, c);
    finish_store(f, row, finish_column(f, c), v);
}
SUMI_DEVICE void finish_one_swiglu(const sumi_gemm_finish& f, int row, int c, float a, float b) { finish_store(f, row, f.column + c, a * finish_sigmoid(a) * b); }

// finish_tile for what most products ask: aligned bf16, no activation, no scales of rows and columns. Code of its own, for the general case is long and full of branches: on an H200
// a tile of 128 x 128 took 10 us longer with it than with an epilogue fixed when it was compiled.
template <int MT, int NT, class F> SUMI_DEVICE void finish_plain_tile(const sumi_gemm_finish& f, int m, int n, int m0, int n0, F&& sum)
{
    constexpr int G = NT % 4 == 0 ? 4 : 2, AHEAD = MT * NT <= 16 ? NT : G; // groups of 8 columns: stored in one round; of which the residual is read at once
    static_assert(NT % G == 0, "whole rounds");
    const int lane = threadIdx.x & 31, q = lane & 3;
    const int64_t gate_row = finish_gate_row(f);
#pragma unroll
    for (int first = 0; first < NT; first += AHEAD) {
        uint32_t residual[MT][2][AHEAD];
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = m0 + i * 16 + h * 8 + (lane >> 2);
                const bf16* from = (const bf16*)f.residual + (int64_t)row * f.ldy;
#pragma unroll
                for (int j = 0; j < AHEAD; j++) {
                    const int c = n0 + (first + j) * 8 + q * 2;
                    residual[i][h][j] = f.residual && row < m && c < n ? *(const uint32_t*)(from + finish_column(f, c)) : 0u;
                }
            }
#pragma unroll
        for (int g = 0; g < AHEAD; g += G) {
            float bias[G][2], factor[G][2];
#pragma unroll
            for (int j = 0; j < G; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int c = n0 + (first + g + j) * 8 + q * 2 + e;
                    bias[j][e] = f.bias && c < n ? ((const float*)f.bias)[c] : 0.0f;
                    factor[j][e] = f.gate && c < n ? f.scale * finish_gate(f, gate_row, c) : f.scale;
                }
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int row = m0 + i * 16 + h * 8 + (lane >> 2), c0 = n0 + (first + g) * 8;
                    uint32_t o[G];
#pragma unroll
                    for (int j = 0; j < G; j++) {
                        const uint32_t r = residual[i][h][g + j];
                        o[j] = pack2_bf16(fmaf(sum(i, first + g + j, h * 2) + bias[j][0], factor[j][0], __uint_as_float(r << 16)),
                                          fmaf(sum(i, first + g + j, h * 2 + 1) + bias[j][1], factor[j][1], __uint_as_float(r & 0xffff0000u)));
                    }
                    bf16* to = (bf16*)f.y + (int64_t)row * f.ldy;
                    if (G == 4) {
                        quad_transpose(o[0], o[1], o[2 % G], o[3 % G], lane);
                        const int c = c0 + q * 8;
                        if (row < m && c < n) store16(to + finish_column(f, c), make_uint4(o[0], o[1], o[2 % G], o[3 % G]));
                    } else {
#pragma unroll
                        for (int j = 0; j < G; j++) {
                            const int c = c0 + j * 8 + q * 2;
                            if (row < m && c < n) *(uint32_t*)(to + finish_column(f, c)) = o[j];
                        }
                    }
                }
        }
    }
}

// A warp's tile of MT * 16 rows from m0 and NT * 8 columns from n0. sum(i, j, e): the lane's e-th value of the m16n8 accumulator (i, j), rows lane / 4 (e < 2) and lane / 4 + 8,
// columns lane % 4 * 2 and the next. Aligned results are transposed in quads so that every lane stores 16 bytes; residuals are read ahead of the arithmetic, since a read
// between two stores waits for a round trip. SWIGLU: pairs of 8-column groups (gate, up) give one; no bias, gate or residual.
template <int MT, int NT, bool SWIGLU, class F>
SUMI_DEVICE void finish_tile(const sumi_gemm_finish& f, int m, int n, int m0, int n0, F&& sum)
{
    constexpr int W = SWIGLU ? 2 : 1, G = NT / W % 4 == 0 ? 4 : NT / W % 2 == 0 ? 2 : 1; // accumulators per output group; output groups per round
    const int lane = threadIdx.x & 31, q = lane & 3, outputs = n / W;
    if (!SWIGLU && f.is_aligned && f.activation == 0 && f.row_scale == 0 && f.col_scale == 0) return finish_plain_tile<MT, NT>(f, m, n, m0, n0, sum);
    const finish_activation act = finish_activation_of(f.activation);
    const int64_t gate_row = SWIGLU ? 0 : finish_gate_row(f);
#pragma unroll
    for (int g = 0; g < NT; g += G * W) {
        float bias[G * W][2], factor[G * W][2], scale[G * W][2];
        uint32_t residual[MT][2][G];
#pragma unroll
        for (int j = 0; j < G * W; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int c = n0 + (g + j) * 8 + q * 2 + e;
                scale[j][e] = f.col_scale && c < n ? ((const float*)f.col_scale)[c] : 1.0f;
                if (!SWIGLU) {
                    bias[j][e] = f.bias && c < n ? ((const float*)f.bias)[c] : 0.0f;
                    factor[j][e] = f.gate && c < n ? f.scale * finish_gate(f, gate_row, c) : f.scale;
                }
            }
        }
        if (!SWIGLU && f.is_aligned && f.residual) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int j = 0; j < G; j++) {
                        const int row = m0 + i * 16 + h * 8 + (lane >> 2), c = n0 + (g + j) * 8 + q * 2;
                        residual[i][h][j] = row < m && c < n ? *(const uint32_t*)((const bf16*)f.residual + (int64_t)row * f.ldy + finish_column(f, c)) : 0u;
                    }
        } else {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int j = 0; j < G; j++) residual[i][h][j] = 0u;
        }
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = m0 + i * 16 + h * 8 + (lane >> 2);
                const float row_scale = f.row_scale && row < m ? ((const float*)f.row_scale)[row] : 1.0f;
                float v[G][2];
#pragma unroll
                for (int j = 0; j < G; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        if (SWIGLU) {
                            const float a = sum(i, g + j * W, h * 2 + e) * row_scale * scale[j * W][e];
                            const float b = sum(i, g + j * W + W - 1, h * 2 + e) * row_scale * scale[j * W + W - 1][e];
                            v[j][e] = a * finish_sigmoid(a) * b;
                        } else {
                            v[j][e] = finish_activate(act, fmaf(sum(i, g + j, h * 2 + e) * row_scale, scale[j][e], bias[j][e])) * factor[j][e];
                        }
                    }
                const int c0 = (n0 + g * 8) / W; // first output column of the round
                if (f.is_aligned) {
                    uint32_t o[G];
#pragma unroll
                    for (int j = 0; j < G; j++) {
                        const uint32_t r = residual[i][h][j];
                        o[j] = pack2_bf16(v[j][0] + __uint_as_float(r << 16), v[j][1] + __uint_as_float(r & 0xffff0000u));
                    }
                    if (G == 4) {
                        quad_transpose(o[0], o[1 % G], o[2 % G], o[3 % G], lane);
                        const int c = c0 + q * 8;
                        if (row < m && c < outputs) store16((bf16*)f.y + (int64_t)row * f.ldy + finish_column(f, c), make_uint4(o[0], o[1 % G], o[2 % G], o[3 % G]));
                    } else {
#pragma unroll
                        for (int j = 0; j < G; j++) {
                            const int c = c0 + j * 8 + q * 2;
                            if (row < m && c < outputs) *(uint32_t*)((bf16*)f.y + (int64_t)row * f.ldy + finish_column(f, c)) = o[j];
                        }
                    }
                } else if (row < m) {
#pragma unroll
                    for (int j = 0; j < G; j++)
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                            const int c = c0 + j * 8 + q * 2 + e;
                            if (c < outputs) finish_store(f, row, finish_column(f, c), v[j][e]);
                        }
                }
            }
    }
}
