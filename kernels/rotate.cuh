// Rows to int8 with one float scale per row, rotated first. The rotation spreads what a few channels have more than the
// others over blocks of 256 columns, so that one scale fits all of them (QuaRot, Ashkboos et al. 2024):
//
//   R = H4 (x) H4 (x) H4 (x) H4,   H4 = 1/2 [1 1 1 -1; 1 1 -1 1; 1 -1 1 1; -1 1 1 1]     symmetric, orthogonal: (R x) . (R w) = x . w
//
// the regular Hadamard matrix of ComfyUI's int8_convrot files, whose weights lie rotated by it. scale = max |R x| / 127,
// and what is stored is R x / scale, rounded. Columns up to the next multiple of 256 are zeros before the rotation, in
// both operands.
//
// A warp rotates a block by four products of 16 x 16 matrices, for a butterfly between the lanes costs four times as many
// instructions. H4 is the Hadamard matrix of Sylvester, S4[i][j] = (-1)^popcount(i & j), with the sign of column 3 and
// row 3 changed and rows 1 and 2 exchanged. So R x is: signs, S256 = S16 (x) S16, signs, and another place for each value.
// Seen as a matrix X[k][n] of 16 x 16 a block becomes S16 X S16. Which four of the eight bits of a column are k is free,
// and chosen so that a lane's 8 consecutive columns are its part of the operand. The operands are bf16: what is rotated is
// rounded as an activation is anyway, and once more between both products, 1.1e-3 beside the 1.2e-2 of int8.
#pragma once
#include "portable_sm80.cuh"

// Where the eight values of a lane, columns 8 * lane + i of the block, are after the rotation: value 4 b + i is column
// rotated_column(lane) + 4 + i behind an exchange of b, see pack_rotated. Signs of this lane's values.
struct sumi_rotation {
    u32 matrix;     // the lane's part of S16, two of its signs
    u32 before;     // signs of the lane's packed values before the products
    float after[2]; // signs behind them, of values 0..3 and of 4..7; values 3 and 7 have the other one
    u32 lane;
    SUMI_DEV sumi_rotation() : lane(threadIdx.x & 31)
    {
        const u32 l = lane, l0 = l & 1, l1 = l >> 1 & 1, l2 = l >> 2 & 1, l3 = l >> 3 & 1, l4 = l >> 4;
        const u32 plus = 0x3f803f80u, low = (l3 & l0) ^ (l4 & l1), sign = (l1 & l2) ^ (l3 & l4);
        matrix = plus ^ (low << 15) ^ ((low ^ l2) << 31);
        before = sign << 15 ^ (sign ^ l0) << 31;
        after[0] = (l3 & l2) ^ (l1 & l0) ? -1.0f : 1.0f;
        after[1] = l4 ? -after[0] : after[0];
    }
    // v = 16 R v, in the order that pack_rotated expects; all lanes of the warp. Columns are pairs (c, c + 4) here.
    SUMI_DEV void rotate(float (&v)[8]) const
    {
        const u32 a[4] = {matrix, matrix, matrix, matrix ^ 0x80008000u};
        u32 x[4]; // of columns c and c + 4
#pragma unroll
        for (int c = 0; c < 4; c++) x[c] = pack2(v[c], v[c + 4]) ^ before;
        x[3] ^= 0x80008000u;
        float d[2][4] = {}, y[2][4] = {};
        mma<SUMI_OPERANDS_BF16>(d[0], a, x[0], x[2]);
        mma<SUMI_OPERANDS_BF16>(d[1], a, x[1], x[3]);
        const u32 b[4] = {pack2(d[0][0], d[0][1]), pack2(d[0][2], d[0][3]), pack2(d[1][0], d[1][1]),
                          pack2(d[1][2], d[1][3])};
        mma<SUMI_OPERANDS_BF16>(y[0], b, matrix, matrix);
        mma<SUMI_OPERANDS_BF16>(y[1], b, matrix, matrix ^ 0x80008000u);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = y[i >> 1 & 1][(i & 1) * 2 + (i >> 2)];
    }
    // The column of the block that the first of the eight packed values has.
    SUMI_DEV int column() const { return (int)((lane & 0x1cu) << 1 | (lane & 2u) << 5 | (lane & 1u) << 7); }
    // v[i] * factor, rounded to -127 .. 127, of columns column() .. column() + 7; all lanes of the warp.
    SUMI_DEV uint2 pack(const float (&v)[8], float factor) const
    {
        u32 word[2];
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const float f = factor * after[b];
            // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low byte.
            const float magic = 12582912.0f;
            u32 q[4];
#pragma unroll
            for (int i = 0; i < 4; i++) q[i] = __float_as_uint(fmaf(v[4 * b + i], i == 3 ? -f : f, magic));
            word[b] = __byte_perm(__byte_perm(q[0], q[1], 0x0040), __byte_perm(q[2], q[3], 0x0040), 0x5410);
        }
        const bool is_second = lane & 8u;
        const u32 got = __shfl_xor_sync(~0u, is_second ? word[0] : word[1], 8);
        return is_second ? make_uint2(got, word[1]) : make_uint2(word[0], got);
    }
};

// The largest magnitude, NaN and infinity included: a row that has one gets a scale that shows in the product.
SUMI_DEV float most_of(float most, const float (&v)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++) asm("max.NaN.f32 %0, %0, %1;" : "+f"(most) : "f"(fabsf(v[i])));
    return most;
}
// of 16 R v; a row of zeros gets a tiny one, so that 0 * inverse is 0
SUMI_DEV float rotated_scale(float most) { return (most < 1e-30f ? 1e-30f : most) / (16.0f * 127.0f); }
