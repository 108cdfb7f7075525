// The epilogue that sumi_gemm_epilogue (gemm.h) describes: bias, activation, scale, gate and residual chosen at run
// time, bf16 or float results, any alignment. It serves the products for which no epilogue is compiled. All branches on
// the struct go the same direction in a whole launch. The accumulator layout of a tile is drawn in portable_sm80.cuh
// (mma.sync m16n8) and hopper.cuh (wgmma m64nN).
#pragma once
#include "common.cuh"
#include "gemm.h"
#include "quads.cuh"

// The column of y for column c of the product. With f.half: columns of [gate | up], interleaved by 8.
SUMI_DEVICE int epilogue_column(const sumi_gemm_epilogue& f, int c)
{
    c += f.column;
    if (f.half > 0) {
        const int second = c >= f.half, within = c - (second ? f.half : 0);
        c = (within >> 3) * 16 + second * 8 + (within & 7);
    }
    return c;
}

// An activation as two coefficients, instead of a branch for each: SiLU, GELU (tanh form) and QuickGELU are
// x * sigmoid(x (a + b x^2)); tanh is 2 * sigmoid(2 x) - 1; only GELU with erf is computed differently. The parameter
// `activation` is a sumi_activation (src/plan/ops.h). 1.59576912 is 2 sqrt(2 / pi).
struct epilogue_activation {
    float a, b;
    int kind;
}; // kind 0: none, 1: x * sigmoid, 2: 2 * sigmoid - 1, 3: erf
SUMI_DEVICE epilogue_activation epilogue_activation_of(int activation)
{
    epilogue_activation r = {1.0f, 0.0f, 1};
    if (activation == 0) r.kind = 0;
    if (activation == 2) r.a = 1.59576912f, r.b = 0.044715f * 1.59576912f;
    if (activation == 3) r.kind = 3;
    if (activation == 4) r.a = 1.702f;
    if (activation == 5) r.a = 2.0f, r.kind = 2;
    return r;
}
SUMI_DEVICE float epilogue_sigmoid(float u) { return __fdividef(1.0f, 1.0f + __expf(-u)); }
// x * Phi(x), with erfc by Abramowitz and Stegun 7.1.26: absolute error 1.5e-7, a fifth of erff's instructions.
SUMI_DEVICE float epilogue_gelu_erf(float x)
{
    const float z = fabsf(x) * 0.707106781f, t = __fdividef(1.0f, fmaf(0.3275911f, z, 1.0f));
    const float p =
        t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f), 0.254829592f);
    const float tail = 0.5f * p * __expf(-z * z);
    return x * (x < 0.0f ? tail : 1.0f - tail);
}
SUMI_DEVICE float epilogue_by_sigmoid(const epilogue_activation& act, float x) // kinds 1 and 2
{
    const float s = epilogue_sigmoid(x * fmaf(act.b * x, x, act.a));
    return act.kind == 2 ? fmaf(2.0f, s, -1.0f) : x * s;
}
SUMI_DEVICE float epilogue_activate(const epilogue_activation& act, float x)
{
    if (act.kind == 0) return x;
    return act.kind == 3 ? epilogue_gelu_erf(x) : epilogue_by_sigmoid(act, x);
}
// The gate of column c. gate_row is epilogue_gate_row()'s result: the index of the row's first element in the step
// table.
SUMI_DEVICE float epilogue_gate(const sumi_gemm_epilogue& f, int64_t gate_row, int c)
{
    const int64_t index = gate_row + c;
    return f.gate_is_float ? ((const float*)f.gate)[index] : __bfloat162float(((const bf16*)f.gate)[index]);
}
SUMI_DEVICE int64_t epilogue_gate_row(const sumi_gemm_epilogue& f)
{
    return f.gate == 0 ? 0 : (int64_t) * (const int32_t*)f.counter * f.gate_stride + f.gate_column;
}

// factor[i][e] = scale * gate of column c + 8 i + e of the product: the two columns that a lane holds of each of N
// groups of 8 columns; c is its first. All gates are read before one is used. With the branch on their type inside the
// loop the kernel waited for every read: 32 round trips one after another for a tile of 128 columns.
template <int N>
SUMI_DEVICE void epilogue_factors(const sumi_gemm_epilogue& f, int64_t gate_row, int n, int c, float (&factor)[N][2])
{
#pragma unroll
    for (int i = 0; i < N * 2; i++) factor[i / 2][i % 2] = 1.0f;
    if (f.gate && f.gate_is_float) {
#pragma unroll
        for (int i = 0; i < N * 2; i++) {
            const int column = c + i / 2 * 8 + i % 2;
            if (column < n) factor[i / 2][i % 2] = ((const float*)f.gate)[gate_row + column];
        }
    } else if (f.gate) {
        bf16 gate[N * 2] = {};
#pragma unroll
        for (int i = 0; i < N * 2; i++) {
            const int column = c + i / 2 * 8 + i % 2;
            if (column < n) gate[i] = ((const bf16*)f.gate)[gate_row + column];
        }
#pragma unroll
        for (int i = 0; i < N * 2; i++) factor[i / 2][i % 2] = __bfloat162float(gate[i]);
    }
#pragma unroll
    for (int i = 0; i < N * 2; i++) factor[i / 2][i % 2] *= f.scale;
}

// Adds the residual to one finished value v, rounds the sum and stores it in column `column` of y.
SUMI_DEVICE void epilogue_store(const sumi_gemm_epilogue& f, int row, int column, float v)
{
    const int64_t i = (int64_t)row * f.ldy + column;
    if (f.is_float) {
        ((float*)f.y)[i] = f.residual ? ((const float*)f.residual)[i] + v : v;
    } else {
        ((bf16*)f.y)[i] = __float2bfloat16(f.residual ? __bfloat162float(((const bf16*)f.residual)[i]) + v : v);
    }
}

// Finishes one sum v of column c of the product. For kernels that do not finish whole tensor-core tiles. act and
// gate_row come from epilogue_activation_of() and epilogue_gate_row(), once per launch.
SUMI_DEVICE void epilogue_one(const sumi_gemm_epilogue& f, const epilogue_activation& act, int64_t gate_row, int row,
                              int c, float v)
{
    if (f.bias) v += ((const float*)f.bias)[c];
    v = epilogue_activate(act, v) * f.scale;
    if (f.gate) v *= epilogue_gate(f, gate_row, c);
    epilogue_store(f, row, epilogue_column(f, c), v);
}
// SwiGLU: silu(a) * b, a from a gate row of w and b from the matching up row. c: the column among the n / 2 results.
SUMI_DEVICE float epilogue_swiglu(float a, float b) { return a * epilogue_sigmoid(a) * b; }
SUMI_DEVICE void epilogue_one_swiglu(const sumi_gemm_epilogue& f, int row, int c, float a, float b)
{
    epilogue_store(f, row, f.column + c, epilogue_swiglu(a, b));
}

// epilogue_tile (below) for the most frequent case: aligned bf16, no activation, no row or column scales. It is
// separate because the general case is long and full of branches: on an H200 a tile of 128 x 128 took 10 us longer with
// the general case than with a compiled epilogue.
template <int MT, int NT, class F>
SUMI_DEVICE void epilogue_plain_tile(const sumi_gemm_epilogue& f, int m, int n, int m0, int n0, F&& sum)
{
    // Counts of 8-column groups. G: groups stored together, with 4 as 16 bytes per lane. AHEAD: groups whose residual
    // is read before the first of them is finished.
    constexpr int G = NT % 4 == 0 ? 4 : 2, AHEAD = MT * NT <= 16 ? NT : G;
    static_assert(NT % G == 0, "whole rounds");
    const int lane = threadIdx.x & 31, q = lane & 3;
    const int64_t gate_row = epilogue_gate_row(f);
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
                    residual[i][h][j] =
                        f.residual && row < m && c < n ? *(const uint32_t*)(from + epilogue_column(f, c)) : 0u;
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
                }
            epilogue_factors(f, gate_row, n, n0 + (first + g) * 8 + q * 2, factor);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int row = m0 + i * 16 + h * 8 + (lane >> 2), c0 = n0 + (first + g) * 8;
                    uint32_t o[G];
#pragma unroll
                    for (int j = 0; j < G; j++) {
                        const uint32_t r = residual[i][h][g + j];
                        o[j] = pack_bf16(
                            fmaf(sum(i, first + g + j, h * 2) + bias[j][0], factor[j][0], __uint_as_float(r << 16)),
                            fmaf(sum(i, first + g + j, h * 2 + 1) + bias[j][1], factor[j][1],
                                 __uint_as_float(r & 0xffff0000u)));
                    }
                    bf16* to = (bf16*)f.y + (int64_t)row * f.ldy;
                    if (G == 4) {
                        quad_transpose(o[0], o[1], o[2 % G], o[3 % G], lane);
                        const int c = c0 + q * 8;
                        if (row < m && c < n)
                            store16(to + epilogue_column(f, c), make_uint4(o[0], o[1], o[2 % G], o[3 % G]));
                    } else {
#pragma unroll
                        for (int j = 0; j < G; j++) {
                            const int c = c0 + j * 8 + q * 2;
                            if (row < m && c < n) *(uint32_t*)(to + epilogue_column(f, c)) = o[j];
                        }
                    }
                }
        }
    }
}

// epilogue_activate() of all of v, with one branch on the kind. Four values at a time: eight need more registers than
// the main loop. The loop always works on v[0..3] and then rotates the array by four, because a loop that is not
// unrolled cannot index registers.
template <int N> SUMI_DEVICE void epilogue_activate_all(const epilogue_activation& act, float (&v)[N])
{
    constexpr int PART = N < 4 ? N : 4;
    if (act.kind == 0) return;
#pragma unroll 1
    for (int part = 0; part < N; part += PART) {
        float now[PART];
#pragma unroll
        for (int i = 0; i < PART; i++) now[i] = v[i];
        if (act.kind == 3) {
#pragma unroll
            for (int i = 0; i < PART; i++) now[i] = epilogue_gelu_erf(now[i]);
        } else {
#pragma unroll
            for (int i = 0; i < PART; i++) now[i] = epilogue_by_sigmoid(act, now[i]);
        }
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = i + PART < N ? v[(i + PART) % N] : now[i + PART - N];
    }
}

// Stores a lane's values of one row without assuming alignment: two columns of each of G groups of 8; c0 is the first.
// T: the type of y. All residuals are read before the first store, since a read between two stores waits for a round
// trip.
template <int G, class T>
SUMI_DEVICE void epilogue_store_each(const sumi_gemm_epilogue& f, int row, int c0, int outputs, float (&v)[G * 2])
{
    const int64_t from = (int64_t)row * f.ldy;
    if (f.residual) {
        T r[G * 2] = {};
#pragma unroll
        for (int i = 0; i < G * 2; i++) {
            const int c = c0 + i / 2 * 8 + i % 2;
            if (c < outputs) r[i] = ((const T*)f.residual)[from + epilogue_column(f, c)];
        }
#pragma unroll
        for (int i = 0; i < G * 2; i++) v[i] = to_float(r[i]) + v[i];
    }
#pragma unroll
    for (int i = 0; i < G * 2; i++) {
        const int c = c0 + i / 2 * 8 + i % 2;
        if (c < outputs) assign(((T*)f.y)[from + epilogue_column(f, c)], v[i]);
    }
}

// Finishes a warp's tile of MT * 16 rows from m0 on and NT * 8 columns from n0 on, of a product of m rows and n
// columns. All lanes of the warp call it.
//   sum(i, j, e)  the lane's value e (0..3) of the m16n8 accumulator of rows 16 i .. 16 i + 15 and columns
//                 8 j .. 8 j + 7: row lane / 4 for e < 2, else lane / 4 + 8; column lane % 4 * 2 + e % 2
//   SWIGLU        two groups of 8 columns (gate, up) give one group of y; no bias, gate or residual
//   SCALED        there may be row and column scales
// Aligned results are transposed within quads, so that every lane stores 16 bytes. Residuals are read before the
// arithmetic, since a read between two stores waits for a round trip.
//
// Apart from the plain case the work is a loop over rounds; a round is 8 rows of G output groups. The loops are not
// unrolled: unrolled they were up to sixteen times the code and took two thirds of ptxas's time for all kernels. The
// sums are in registers, which such a loop cannot index, so a switch copies the sums of the current round. Registers
// are scarce, because the values of the main loop are live as well. Three measures reduced their number: two nested
// loops need fewer than one loop over everything; with one pair of row groups (MT == 1) the inner loop is better
// unrolled by 2; empty asm statements keep the compiler from computing cheap values of a round early and holding them
// in registers.
template <int MT, int NT, bool SWIGLU, bool SCALED, class F>
SUMI_DEVICE void epilogue_tile(const sumi_gemm_epilogue& f, int m, int n, int m0, int n0, F&& sum)
{
    // W: accumulator groups per output group; G: output groups per round
    constexpr int W = SWIGLU ? 2 : 1, G = NT / W % 4 == 0 ? 4 : NT / W % 2 == 0 ? 2 : 1;
    constexpr int ROUNDS = NT / (G * W) * MT * 2;
    // AHEAD: the residuals of all rows are read at the start of a column group. Kernels without scales do not need
    // that: a product with an aligned residual takes the plain case there, unless it has an activation.
    constexpr bool AHEAD = SCALED && !SWIGLU;
    static_assert(ROUNDS <= 16, "the switch");
    if (!SWIGLU && f.is_aligned && f.activation == 0 && (!SCALED || (f.row_scale == 0 && f.col_scale == 0)))
        return epilogue_plain_tile<MT, NT>(f, m, n, m0, n0, sum);
    int lane = threadIdx.x & 31;
    asm volatile("" : "+r"(lane)); // values derived from lane are not computed before the main loop
    const int q = lane & 3, outputs = n / W;
    const epilogue_activation act = epilogue_activation_of(f.activation);
    const int64_t gate_row = SWIGLU ? 0 : epilogue_gate_row(f);
    const bool has_aligned_residual = !SWIGLU && f.is_aligned && f.residual;
    const auto read = [&](uint32_t(&to)[G], int h, int n1) { // two bf16 of the residual per group of a round, or 0
        const int row = m0 + h * 8 + (lane >> 2);
#pragma unroll
        for (int j = 0; j < G; j++) to[j] = 0u;
        if (has_aligned_residual && row < m) {
#pragma unroll
            for (int j = 0; j < G; j++) {
                const int c = n1 + j * 8 + q * 2;
                if (c < n)
                    to[j] = *(const uint32_t*)((const bf16*)f.residual + (int64_t)row * f.ldy + epilogue_column(f, c));
            }
        }
    };
#pragma unroll 1
    for (int g = 0; g < NT; g += G * W) {
        const int n1 = n0 + g * 8;
        float bias[G * W][2], factor[G * W][2], scale[G * W][2];
        uint32_t residual[AHEAD ? MT * 2 : 1][G];
#pragma unroll
        for (int j = 0; j < G * W; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int c = n1 + j * 8 + q * 2 + e;
                if (SCALED) scale[j][e] = f.col_scale && c < n ? ((const float*)f.col_scale)[c] : 1.0f;
                if (!SWIGLU) bias[j][e] = f.bias && c < n ? ((const float*)f.bias)[c] : 0.0f;
            }
        }
        if (!SWIGLU) epilogue_factors(f, gate_row, n, n1 + q * 2, factor);
        if (AHEAD) {
#pragma unroll
            for (int h = 0; h < MT * 2; h++) read(residual[h], h, n1);
        }
#pragma unroll MT == 1 ? 2 : 1
        for (int h = 0; h < MT * 2; h++) { // rows m0 + h * 8 to m0 + h * 8 + 7
            float s[G * W * 2], v[G * 2];
            uint32_t base[G]; // two bf16 of the residual per group
            // Copies the sums of round r = (column group) * MT * 2 + h; r is a constant in each case of the switch.
            const auto take = [&](int r) {
#pragma unroll
                for (int j = 0; j < G * W; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) s[j * 2 + e] = sum(r / 2 % MT, r / (MT * 2) * G * W + j, r % 2 * 2 + e);
#pragma unroll
                for (int j = 0; j < G && AHEAD; j++) base[j] = residual[r % (MT * 2)][j];
            };
            if (!AHEAD) read(base, h, n1);
// clang-format off
#define TAKE(r) case r: if (r < ROUNDS) take(r); break;
            switch (g / (G * W) * (MT * 2) + h) {
                TAKE(0) TAKE(1) TAKE(2) TAKE(3) TAKE(4) TAKE(5) TAKE(6) TAKE(7)
                TAKE(8) TAKE(9) TAKE(10) TAKE(11) TAKE(12) TAKE(13) TAKE(14) TAKE(15)
            }
// clang-format on
#undef TAKE
            const int row = m0 + h * 8 + (lane >> 2), c0 = n1 / W; // c0: column of y, before epilogue_column
            const float row_scale = SCALED && f.row_scale && row < m ? ((const float*)f.row_scale)[row] : 1.0f;
            if (SCALED) {
#pragma unroll
                for (int j = 0; j < G * W * 2; j++) s[j] *= row_scale;
            }
            if (SWIGLU) {
#pragma unroll
                for (int j = 0; j < G * 2; j++) {
                    const int gate = j / 2 * W * 2 + j % 2; // the gate column's index in s
                    const float a = SCALED ? s[gate] * scale[gate / 2][j % 2] : s[gate],
                                b = SCALED ? s[gate + W * 2 - 2] * scale[gate / 2 + W - 1][j % 2] : s[gate + W * 2 - 2];
                    v[j] = __fmul_rn(a * epilogue_sigmoid(a), b);
                }
            } else {
#pragma unroll
                for (int j = 0; j < G * 2; j++)
                    v[j] = SCALED ? fmaf(s[j], scale[j / 2][j % 2], bias[j / 2][j % 2]) : s[j] + bias[j / 2][j % 2];
                epilogue_activate_all(act, v);
#pragma unroll
                // __fmul_rn: the product is rounded and not contracted with the residual's addition
                for (int j = 0; j < G * 2; j++) v[j] = __fmul_rn(v[j], factor[j / 2][j % 2]);
            }
            if (f.is_aligned) {
                uint32_t o[G];
#pragma unroll
                for (int j = 0; j < G; j++)
                    o[j] = pack_bf16(v[j * 2] + __uint_as_float(base[j] << 16),
                                     v[j * 2 + 1] + __uint_as_float(base[j] & 0xffff0000u));
                if (G == 4) {
                    quad_transpose(o[0], o[1 % G], o[2 % G], o[3 % G], lane);
                    const int c = c0 + q * 8;
                    if (row < m && c < outputs)
                        store16((bf16*)f.y + (int64_t)row * f.ldy + epilogue_column(f, c),
                                make_uint4(o[0], o[1 % G], o[2 % G], o[3 % G]));
                } else {
#pragma unroll
                    for (int j = 0; j < G; j++) {
                        const int c = c0 + j * 8 + q * 2;
                        if (row < m && c < outputs)
                            *(uint32_t*)((bf16*)f.y + (int64_t)row * f.ldy + epilogue_column(f, c)) = o[j];
                    }
                }
            } else if (row < m) {
                int c = c0 + q * 2;
                asm volatile("" : "+r"(c)); // the eight addresses in y are not computed before the loop
                if (f.is_float) epilogue_store_each<G, float>(f, row, c, outputs, v);
                else epilogue_store_each<G, bf16>(f, row, c, outputs, v);
            }
        }
    }
}
