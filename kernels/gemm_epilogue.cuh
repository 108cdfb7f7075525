// The epilogue that sumi_gemm_epilogue (gemm.h) describes: bias, activation, scale, gate and residual chosen at run
// time, bf16 or float results, any alignment. It serves the products for which no epilogue is compiled. All branches on
// the struct go the same direction in a whole launch. The accumulator layout of a tile is drawn in portable_sm80.cuh
// (mma.sync m16n8) and hopper.cuh (wgmma m64nN).
#pragma once
#include "common.cuh"
#include "gemm.h"
#include "quads.cuh"

// The column of y for column c of the product. With epilogue.half: columns of [gate | up], interleaved by 8.
SUMI_DEVICE int epilogue_column(const sumi_gemm_epilogue& epilogue, int c)
{
    c += epilogue.column;
    if (epilogue.half > 0) {
        const int is_up = c >= epilogue.half, column_of_half = c - (is_up ? epilogue.half : 0);
        c = (column_of_half >> 3) * 16 + is_up * 8 + (column_of_half & 7);
    }
    return c;
}

// An activation as two coefficients, instead of a branch for each: SiLU, GELU (tanh form) and QuickGELU are
// x * sigmoid(x (a + b x^2)); tanh is 2 * sigmoid(2 x) - 1; only GELU with erf is computed differently. The parameter
// `activation` is a sumi_activation (src/plan/ops.h). 1.59576912 is 2 sqrt(2 / pi).
struct epilogue_activation {
    float a, b;
    int kind; // 0: none, 1: x * sigmoid, 2: 2 * sigmoid - 1, 3: erf
};
SUMI_DEVICE epilogue_activation epilogue_activation_of(int activation)
{
    epilogue_activation result = {1.0f, 0.0f, 1};
    if (activation == 0) result.kind = 0;
    if (activation == 2) result.a = 1.59576912f, result.b = 0.044715f * 1.59576912f;
    if (activation == 3) result.kind = 3;
    if (activation == 4) result.a = 1.702f;
    if (activation == 5) result.a = 2.0f, result.kind = 2;
    return result;
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
SUMI_DEVICE float epilogue_by_sigmoid(const epilogue_activation& activation, float x) // kinds 1 and 2
{
    const float s = epilogue_sigmoid(x * fmaf(activation.b * x, x, activation.a));
    return activation.kind == 2 ? fmaf(2.0f, s, -1.0f) : x * s;
}
SUMI_DEVICE float epilogue_activate(const epilogue_activation& activation, float x)
{
    if (activation.kind == 0) return x;
    return activation.kind == 3 ? epilogue_gelu_erf(x) : epilogue_by_sigmoid(activation, x);
}
// The gate of column c. gate_row is epilogue_gate_row()'s result: the index of the row's first element in the step
// table.
SUMI_DEVICE float epilogue_gate(const sumi_gemm_epilogue& epilogue, int64_t gate_row, int c)
{
    const int64_t index = gate_row + c;
    return epilogue.gate_is_float ? ((const float*)epilogue.gate)[index]
                                  : __bfloat162float(((const bf16*)epilogue.gate)[index]);
}
SUMI_DEVICE int64_t epilogue_gate_row(const sumi_gemm_epilogue& epilogue)
{
    return epilogue.gate == 0
             ? 0
             : (int64_t) * (const int32_t*)epilogue.counter * epilogue.gate_stride + epilogue.gate_column;
}

// factor[i][e] = scale * gate of column first_column + 8 i + e of the product: the two columns that a lane holds of
// each of GROUPS groups of 8 columns. All gates are read before one is used. With the branch on their type inside the
// loop the kernel waited for every read: 32 round trips one after another for a tile of 128 columns.
template <int GROUPS>
SUMI_DEVICE void epilogue_factors(const sumi_gemm_epilogue& epilogue, int64_t gate_row, int n, int first_column,
                                  float (&factor)[GROUPS][2])
{
#pragma unroll
    for (int i = 0; i < GROUPS * 2; i++) factor[i / 2][i % 2] = 1.0f;
    if (epilogue.gate && epilogue.gate_is_float) {
#pragma unroll
        for (int i = 0; i < GROUPS * 2; i++) {
            const int column = first_column + i / 2 * 8 + i % 2;
            if (column < n) factor[i / 2][i % 2] = ((const float*)epilogue.gate)[gate_row + column];
        }
    } else if (epilogue.gate) {
        bf16 gate[GROUPS * 2] = {};
#pragma unroll
        for (int i = 0; i < GROUPS * 2; i++) {
            const int column = first_column + i / 2 * 8 + i % 2;
            if (column < n) gate[i] = ((const bf16*)epilogue.gate)[gate_row + column];
        }
#pragma unroll
        for (int i = 0; i < GROUPS * 2; i++) factor[i / 2][i % 2] = __bfloat162float(gate[i]);
    }
#pragma unroll
    for (int i = 0; i < GROUPS * 2; i++) factor[i / 2][i % 2] *= epilogue.scale;
}

// Adds the residual to one finished value v, rounds the sum and stores it in column `column` of y.
SUMI_DEVICE void epilogue_store(const sumi_gemm_epilogue& epilogue, int row, int column, float v)
{
    const int64_t index = (int64_t)row * epilogue.ldy + column;
    if (epilogue.is_float) {
        ((float*)epilogue.y)[index] = epilogue.residual ? ((const float*)epilogue.residual)[index] + v : v;
    } else {
        ((bf16*)epilogue.y)[index] =
            __float2bfloat16(epilogue.residual ? __bfloat162float(((const bf16*)epilogue.residual)[index]) + v : v);
    }
}

// Finishes one sum v of column c of the product. For kernels that do not finish whole tensor-core tiles. activation and
// gate_row come from epilogue_activation_of() and epilogue_gate_row(), once per launch.
SUMI_DEVICE void epilogue_element(const sumi_gemm_epilogue& epilogue, const epilogue_activation& activation,
                                  int64_t gate_row, int row, int c, float v)
{
    if (epilogue.bias) v += ((const float*)epilogue.bias)[c];
    v = epilogue_activate(activation, v) * epilogue.scale;
    if (epilogue.gate) v *= epilogue_gate(epilogue, gate_row, c);
    epilogue_store(epilogue, row, epilogue_column(epilogue, c), v);
}
// SwiGLU: silu(gate) * up, from a gate row of w and the matching up row. c: the column among the n / 2 results.
SUMI_DEVICE float epilogue_swiglu(float gate, float up) { return gate * epilogue_sigmoid(gate) * up; }
SUMI_DEVICE void epilogue_element_swiglu(const sumi_gemm_epilogue& epilogue, int row, int c, float gate, float up)
{
    epilogue_store(epilogue, row, epilogue.column + c, epilogue_swiglu(gate, up));
}

// epilogue_tile (below) for the most frequent case: aligned bf16, no activation, no row or column scales. It is
// separate because the general case is long and full of branches: on an H200 a tile of 128 x 128 took 10 us longer with
// the general case than with a compiled epilogue.
template <int M16_TILES, int N8_GROUPS, class F>
SUMI_DEVICE void epilogue_plain_tile(const sumi_gemm_epilogue& epilogue, int m, int n, int m0, int n0, F&& sum)
{
    // Counts of 8-column groups. ROUND_GROUPS: groups stored together, with 4 as 16 bytes per lane. GROUPS_AHEAD:
    // groups whose residual is read before the first of them is finished.
    constexpr int ROUND_GROUPS = N8_GROUPS % 4 == 0 ? 4 : 2,
                  GROUPS_AHEAD = M16_TILES * N8_GROUPS <= 16 ? N8_GROUPS : ROUND_GROUPS;
    static_assert(N8_GROUPS % ROUND_GROUPS == 0, "whole rounds");
    const int lane = threadIdx.x & 31, lane_in_quad = lane & 3;
    const int64_t gate_row = epilogue_gate_row(epilogue);
#pragma unroll
    for (int first = 0; first < N8_GROUPS; first += GROUPS_AHEAD) {
        uint32_t residual[M16_TILES][2][GROUPS_AHEAD]; // two bf16 each, or 0
#pragma unroll
        for (int i = 0; i < M16_TILES; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) { // of the 16 rows
                const int row = m0 + i * 16 + half * 8 + (lane >> 2);
                const bf16* from = (const bf16*)epilogue.residual + (int64_t)row * epilogue.ldy;
#pragma unroll
                for (int j = 0; j < GROUPS_AHEAD; j++) {
                    const int c = n0 + (first + j) * 8 + lane_in_quad * 2;
                    residual[i][half][j] = epilogue.residual && row < m && c < n
                                             ? *(const uint32_t*)(from + epilogue_column(epilogue, c))
                                             : 0u;
                }
            }
#pragma unroll
        for (int group = 0; group < GROUPS_AHEAD; group += ROUND_GROUPS) { // the first of a round
            float bias[ROUND_GROUPS][2], factor[ROUND_GROUPS][2];
#pragma unroll
            for (int j = 0; j < ROUND_GROUPS; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int c = n0 + (first + group + j) * 8 + lane_in_quad * 2 + e;
                    bias[j][e] = epilogue.bias && c < n ? ((const float*)epilogue.bias)[c] : 0.0f;
                }
            epilogue_factors(epilogue, gate_row, n, n0 + (first + group) * 8 + lane_in_quad * 2, factor);
#pragma unroll
            for (int i = 0; i < M16_TILES; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int row = m0 + i * 16 + half * 8 + (lane >> 2), round_n0 = n0 + (first + group) * 8;
                    uint32_t out[ROUND_GROUPS]; // two columns of y each
#pragma unroll
                    for (int j = 0; j < ROUND_GROUPS; j++) {
                        const uint32_t base = residual[i][half][group + j];
                        out[j] = pack_bf16(fmaf(sum(i, first + group + j, half * 2) + bias[j][0], factor[j][0],
                                                __uint_as_float(base << 16)),
                                           fmaf(sum(i, first + group + j, half * 2 + 1) + bias[j][1], factor[j][1],
                                                __uint_as_float(base & 0xffff0000u)));
                    }
                    bf16* to = (bf16*)epilogue.y + (int64_t)row * epilogue.ldy;
                    if (ROUND_GROUPS == 4) {
                        quad_transpose(out[0], out[1], out[2 % ROUND_GROUPS], out[3 % ROUND_GROUPS], lane);
                        const int c = round_n0 + lane_in_quad * 8;
                        if (row < m && c < n)
                            store16(to + epilogue_column(epilogue, c),
                                    make_uint4(out[0], out[1], out[2 % ROUND_GROUPS], out[3 % ROUND_GROUPS]));
                    } else {
#pragma unroll
                        for (int j = 0; j < ROUND_GROUPS; j++) {
                            const int c = round_n0 + j * 8 + lane_in_quad * 2;
                            if (row < m && c < n) *(uint32_t*)(to + epilogue_column(epilogue, c)) = out[j];
                        }
                    }
                }
        }
    }
}

// epilogue_activate() of all of v, with one branch on the kind. Four values at a time: eight need more registers than
// the main loop. The loop always works on v[0..3] and then rotates the array by four, because a loop that is not
// unrolled cannot index registers.
template <int COUNT> SUMI_DEVICE void epilogue_activate_all(const epilogue_activation& activation, float (&v)[COUNT])
{
    constexpr int BATCH = COUNT < 4 ? COUNT : 4;
    if (activation.kind == 0) return;
#pragma unroll 1
    for (int begin = 0; begin < COUNT; begin += BATCH) {
        float batch[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) batch[i] = v[i];
        if (activation.kind == 3) {
#pragma unroll
            for (int i = 0; i < BATCH; i++) batch[i] = epilogue_gelu_erf(batch[i]);
        } else {
#pragma unroll
            for (int i = 0; i < BATCH; i++) batch[i] = epilogue_by_sigmoid(activation, batch[i]);
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) v[i] = i + BATCH < COUNT ? v[(i + BATCH) % COUNT] : batch[i + BATCH - COUNT];
    }
}

// Stores a lane's values of one row without assuming alignment: two columns of each of GROUPS groups of 8. T: the type
// of y. out_n: the columns of the result. All residuals are read before the first store, since a read between two
// stores waits for a round trip.
template <int GROUPS, class T>
SUMI_DEVICE void epilogue_store_unaligned(const sumi_gemm_epilogue& epilogue, int row, int first_column, int out_n,
                                          float (&v)[GROUPS * 2])
{
    const int64_t row_index = (int64_t)row * epilogue.ldy;
    if (epilogue.residual) {
        T residual[GROUPS * 2] = {};
#pragma unroll
        for (int i = 0; i < GROUPS * 2; i++) {
            const int c = first_column + i / 2 * 8 + i % 2;
            if (c < out_n) residual[i] = ((const T*)epilogue.residual)[row_index + epilogue_column(epilogue, c)];
        }
#pragma unroll
        for (int i = 0; i < GROUPS * 2; i++) v[i] = to_float(residual[i]) + v[i];
    }
#pragma unroll
    for (int i = 0; i < GROUPS * 2; i++) {
        const int c = first_column + i / 2 * 8 + i % 2;
        if (c < out_n) assign(((T*)epilogue.y)[row_index + epilogue_column(epilogue, c)], v[i]);
    }
}

// Finishes a warp's tile of M16_TILES * 16 rows from m0 on and N8_GROUPS * 8 columns from n0 on, of a product of m rows
// and n columns. All lanes of the warp call it.
//   sum(i, j, e)  the lane's value e (0..3) of the m16n8 accumulator of rows 16 i .. 16 i + 15 and columns
//                 8 j .. 8 j + 7: row lane / 4 for e < 2, else lane / 4 + 8; column lane % 4 * 2 + e % 2
//   SWIGLU        two groups of 8 columns (gate, up) give one group of y; no bias, gate or residual
//   SCALED        there may be row and column scales
// Aligned results are transposed within quads, so that every lane stores 16 bytes. Residuals are read before the
// arithmetic, since a read between two stores waits for a round trip.
//
// Apart from the plain case the work is a loop over rounds; a round is 8 rows of OUT_GROUPS output groups. The loops
// are not unrolled: unrolled they were up to sixteen times the code and took two thirds of ptxas's time for all
// kernels. The sums are in registers, which such a loop cannot index, so a switch copies the sums of the current round.
// Registers are scarce, because the values of the main loop are live as well. Three measures reduced their number: two
// nested loops need fewer than one loop over everything; with one pair of row groups (M16_TILES == 1) the inner loop is
// better unrolled by 2; empty asm statements keep the compiler from computing cheap values of a round early and holding
// them in registers.
template <int M16_TILES, int N8_GROUPS, bool SWIGLU, bool SCALED, class F>
SUMI_DEVICE void epilogue_tile(const sumi_gemm_epilogue& epilogue, int m, int n, int m0, int n0, F&& sum)
{
    // GROUPS_PER_OUT: accumulator groups that give one output group. ACC_GROUPS: of a round.
    constexpr int GROUPS_PER_OUT = SWIGLU ? 2 : 1,
                  OUT_GROUPS = N8_GROUPS / GROUPS_PER_OUT % 4 == 0 ? 4
                             : N8_GROUPS / GROUPS_PER_OUT % 2 == 0 ? 2
                                                                   : 1,
                  ACC_GROUPS = OUT_GROUPS * GROUPS_PER_OUT;
    constexpr int ROW_GROUPS = M16_TILES * 2, ROUNDS = N8_GROUPS / ACC_GROUPS * ROW_GROUPS; // row groups: of 8 rows
    // The residuals of all rows are read at the start of a column group. Kernels without scales do not need that: a
    // product with an aligned residual takes the plain case there, unless it has an activation.
    constexpr bool READS_AHEAD = SCALED && !SWIGLU;
    static_assert(ROUNDS <= 16, "the switch");
    if (!SWIGLU && epilogue.is_aligned && epilogue.activation == 0
        && (!SCALED || (epilogue.row_scale == 0 && epilogue.col_scale == 0)))
        return epilogue_plain_tile<M16_TILES, N8_GROUPS>(epilogue, m, n, m0, n0, sum);
    int lane = threadIdx.x & 31;
    asm volatile("" : "+r"(lane)); // values derived from lane are not computed before the main loop
    const int lane_in_quad = lane & 3, out_n = n / GROUPS_PER_OUT;
    const epilogue_activation activation = epilogue_activation_of(epilogue.activation);
    const int64_t gate_row = SWIGLU ? 0 : epilogue_gate_row(epilogue);
    const bool has_aligned_residual = !SWIGLU && epilogue.is_aligned && epilogue.residual;
    // to[j]: two bf16 of the residual for group j of a round, or 0
    const auto read_residual = [&](uint32_t(&to)[OUT_GROUPS], int row_group, int round_n0) {
        const int row = m0 + row_group * 8 + (lane >> 2);
#pragma unroll
        for (int j = 0; j < OUT_GROUPS; j++) to[j] = 0u;
        if (has_aligned_residual && row < m) {
#pragma unroll
            for (int j = 0; j < OUT_GROUPS; j++) {
                const int c = round_n0 + j * 8 + lane_in_quad * 2;
                if (c < n)
                    to[j] = *(const uint32_t*)((const bf16*)epilogue.residual + (int64_t)row * epilogue.ldy
                                               + epilogue_column(epilogue, c));
            }
        }
    };
#pragma unroll 1
    for (int group = 0; group < N8_GROUPS; group += ACC_GROUPS) {
        const int round_n0 = n0 + group * 8;
        float bias[ACC_GROUPS][2], factor[ACC_GROUPS][2], col_scale[ACC_GROUPS][2];
        uint32_t residual[READS_AHEAD ? ROW_GROUPS : 1][OUT_GROUPS];
#pragma unroll
        for (int j = 0; j < ACC_GROUPS; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int c = round_n0 + j * 8 + lane_in_quad * 2 + e;
                if (SCALED)
                    col_scale[j][e] = epilogue.col_scale && c < n ? ((const float*)epilogue.col_scale)[c] : 1.0f;
                if (!SWIGLU) bias[j][e] = epilogue.bias && c < n ? ((const float*)epilogue.bias)[c] : 0.0f;
            }
        }
        if (!SWIGLU) epilogue_factors(epilogue, gate_row, n, round_n0 + lane_in_quad * 2, factor);
        if (READS_AHEAD) {
#pragma unroll
            for (int row_group = 0; row_group < ROW_GROUPS; row_group++)
                read_residual(residual[row_group], row_group, round_n0);
        }
#pragma unroll M16_TILES == 1 ? 2 : 1
        for (int row_group = 0; row_group < ROW_GROUPS; row_group++) { // 8 rows, from m0 + row_group * 8 on
            float sums[ACC_GROUPS * 2], v[OUT_GROUPS * 2];
            uint32_t base[OUT_GROUPS]; // two bf16 of the residual per group
            // Copies the sums of round = group / ACC_GROUPS * ROW_GROUPS + row_group. Row groups 2 i and 2 i + 1 are
            // the halves of accumulators i. `round` is a constant in each case of the switch.
            const auto copy_sums = [&](int round) {
#pragma unroll
                for (int j = 0; j < ACC_GROUPS; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        sums[j * 2 + e] =
                            sum(round / 2 % M16_TILES, round / ROW_GROUPS * ACC_GROUPS + j, round % 2 * 2 + e);
#pragma unroll
                for (int j = 0; j < OUT_GROUPS && READS_AHEAD; j++) base[j] = residual[round % ROW_GROUPS][j];
            };
            if (!READS_AHEAD) read_residual(base, row_group, round_n0);
// clang-format off
#define COPY_SUMS(round) case round: if (round < ROUNDS) copy_sums(round); break;
            switch (group / ACC_GROUPS * ROW_GROUPS + row_group) {
                COPY_SUMS(0) COPY_SUMS(1) COPY_SUMS(2) COPY_SUMS(3)
                COPY_SUMS(4) COPY_SUMS(5) COPY_SUMS(6) COPY_SUMS(7)
                COPY_SUMS(8) COPY_SUMS(9) COPY_SUMS(10) COPY_SUMS(11)
                COPY_SUMS(12) COPY_SUMS(13) COPY_SUMS(14) COPY_SUMS(15)
            }
// clang-format on
#undef COPY_SUMS
            // out_n0: the round's first column of y, before epilogue_column.
            const int row = m0 + row_group * 8 + (lane >> 2), out_n0 = round_n0 / GROUPS_PER_OUT;
            const float row_scale =
                SCALED && epilogue.row_scale && row < m ? ((const float*)epilogue.row_scale)[row] : 1.0f;
            if (SCALED) {
#pragma unroll
                for (int j = 0; j < ACC_GROUPS * 2; j++) sums[j] *= row_scale;
            }
            if (SWIGLU) {
#pragma unroll
                for (int j = 0; j < OUT_GROUPS * 2; j++) {
                    // The index in sums of the gate's column, and of up's, a group further.
                    const int gate_index = j / 2 * GROUPS_PER_OUT * 2 + j % 2,
                              up_index = gate_index + GROUPS_PER_OUT * 2 - 2;
                    const float gate = SCALED ? sums[gate_index] * col_scale[gate_index / 2][j % 2] : sums[gate_index],
                                up = SCALED ? sums[up_index] * col_scale[up_index / 2][j % 2] : sums[up_index];
                    v[j] = __fmul_rn(gate * epilogue_sigmoid(gate), up);
                }
            } else {
#pragma unroll
                for (int j = 0; j < OUT_GROUPS * 2; j++)
                    v[j] = SCALED ? fmaf(sums[j], col_scale[j / 2][j % 2], bias[j / 2][j % 2])
                                  : sums[j] + bias[j / 2][j % 2];
                epilogue_activate_all(activation, v);
#pragma unroll
                // __fmul_rn: the product is rounded and not contracted with the residual's addition
                for (int j = 0; j < OUT_GROUPS * 2; j++) v[j] = __fmul_rn(v[j], factor[j / 2][j % 2]);
            }
            if (epilogue.is_aligned) {
                uint32_t out[OUT_GROUPS]; // two columns of y each
#pragma unroll
                for (int j = 0; j < OUT_GROUPS; j++)
                    out[j] = pack_bf16(v[j * 2] + __uint_as_float(base[j] << 16),
                                       v[j * 2 + 1] + __uint_as_float(base[j] & 0xffff0000u));
                if (OUT_GROUPS == 4) {
                    quad_transpose(out[0], out[1 % OUT_GROUPS], out[2 % OUT_GROUPS], out[3 % OUT_GROUPS], lane);
                    const int c = out_n0 + lane_in_quad * 8;
                    if (row < m && c < out_n)
                        store16((bf16*)epilogue.y + (int64_t)row * epilogue.ldy + epilogue_column(epilogue, c),
                                make_uint4(out[0], out[1 % OUT_GROUPS], out[2 % OUT_GROUPS], out[3 % OUT_GROUPS]));
                } else {
#pragma unroll
                    for (int j = 0; j < OUT_GROUPS; j++) {
                        const int c = out_n0 + j * 8 + lane_in_quad * 2;
                        if (row < m && c < out_n)
                            *(uint32_t*)((bf16*)epilogue.y + (int64_t)row * epilogue.ldy
                                         + epilogue_column(epilogue, c)) = out[j];
                    }
                }
            } else if (row < m) {
                int c = out_n0 + lane_in_quad * 2;
                asm volatile("" : "+r"(c)); // the eight addresses in y are not computed before the loop
                if (epilogue.is_float) epilogue_store_unaligned<OUT_GROUPS, float>(epilogue, row, c, out_n, v);
                else epilogue_store_unaligned<OUT_GROUPS, bf16>(epilogue, row, c, out_n, v);
            }
        }
    }
}
