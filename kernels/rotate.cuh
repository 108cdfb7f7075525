// Rotation of a row in blocks of 256 columns, and its rounding to int8 with one float scale per row. A few channels
// (columns) of activations and weights are far larger than the others. The rotation spreads their magnitude over the
// 256 columns of their block, so that one scale fits all columns (QuaRot, Ashkboos et al. 2024):
//
//   R = H4 (x) H4 (x) H4 (x) H4      H4 = 1/2 [1 1 1 -1; 1 1 -1 1; 1 -1 1 1; -1 1 1 1]      (x): Kronecker product
//
// R is symmetric and orthogonal, so (R x) . (R w) = x . w. It is the regular Hadamard matrix of ComfyUI's int8_convrot
// files, whose weights are stored rotated by R. scale = max |R x| / 127, and the stored value is R x / scale, rounded.
// Columns up to the next multiple of 256 are zero before the rotation, in both operands.
//
// One warp rotates one block of 256 columns by two products of 16 x 16 matrices on the tensor cores (four mma.sync). A
// butterfly between the lanes takes four times as many instructions. H4 is Sylvester's Hadamard matrix,
// S4[i][j] = (-1)^popcount(i & j), with the signs of row 3 and column 3 changed and rows 1 and 2 exchanged. So R x is,
// in this order: a change of signs, S256 = S16 (x) S16, a change of signs, and a permutation of the columns. With the
// block seen as a matrix X[k][n] of 16 x 16, S256 x is S16 X S16. Any four of the eight bits of a column may be the
// index k. They are chosen so that the 8 consecutive columns of a lane are its fragment of the operand (layout of the
// fragments: portable_sm80.cuh):
//
//     bit of the column   7        6        5        4        3        2                   1            0
//     where it is         lane b4  lane b3  lane b2  lane b1  lane b0  half of word x[c]   x[0..1] or   even or odd c:
//                                                                      (v[c] or v[c + 4])  x[2..3]      product 0 or 1
//     bit of X's index    n 2      n 1      n 0      k 2      k 1      k 0                 k 3          n 3
//
// The operands are bf16. So the input is rounded to bf16, as an activation is anyway, and the result of the first
// product is rounded to bf16 once more. The relative error of that is 1.1e-3; rounding to int8 adds 1.2e-2.
#pragma once
#include "portable_sm80.cuh"

// What a lane needs for the rotation of one block. Before rotate() the lane's v[i] is column 8 * lane + i of the block.
// After rotate(), v[4 b + j] (b = 0..1, j = 0..3) is a column whose bits 7..0 are
//
//     lane b0, lane b1, lane b4, b, lane b2, lane b3, j (two bits)
//
// Lanes that differ in bit 3 hold the two halves of 8 consecutive columns. pack() exchanges b with that bit, so that
// each lane then holds columns column() .. column() + 7.
struct sumi_rotation {
    // The lane's fragment of S16 as an A operand: a0 = a1 = a2 = {S16[r][2 q], S16[r][2 q + 1]} with r = lane >> 2 and
    // q = lane & 3, as two bf16 of 1 or -1. a3 has both signs changed. S16 is symmetric: the same word serves as B
    // operand.
    u32 matrix;
    // Sign bits that are flipped in each word x[c] before the products. x[3] is flipped once more.
    u32 before;
    // Signs applied after the products: after[0] to v[0..2], after[1] to v[4..6]. v[3] and v[7] get the opposite sign.
    float after[2];
    u32 lane;
    SUMI_DEVICE sumi_rotation() : lane(threadIdx.x & 31)
    {
        const u32 l = lane, l0 = l & 1, l1 = l >> 1 & 1, l2 = l >> 2 & 1, l3 = l >> 3 & 1, l4 = l >> 4;
        // plus: two bf16 of 1.0. low: 1 where S16[r][2 q] is -1.
        const u32 plus = 0x3f803f80u, low = (l3 & l0) ^ (l4 & l1), sign = (l1 & l2) ^ (l3 & l4);
        matrix = plus ^ (low << 15) ^ ((low ^ l2) << 31);
        before = sign << 15 ^ (sign ^ l0) << 31;
        after[0] = (l3 & l2) ^ (l1 & l0) ? -1.0f : 1.0f;
        after[1] = l4 ? -after[0] : after[0];
    }
    // v = 16 R v, up to the signs that pack() applies, in the column order given above. All lanes of the warp call it.
    SUMI_DEVICE void rotate(float (&v)[8]) const
    {
        const u32 a[4] = {matrix, matrix, matrix, matrix ^ 0x80008000u};
        u32 x[4]; // x[c]: columns c and c + 4 of the lane's eight
#pragma unroll
        for (int c = 0; c < 4; c++) x[c] = pack_bf16(v[c], v[c + 4]) ^ before;
        x[3] ^= 0x80008000u;
        // d = S16 X, d[p]: columns n = 8 p .. 8 p + 7. y = d S16, y[p]: columns 8 p .. 8 p + 7. The accumulators d have
        // the layout of the A operand b of the second product, so no exchange between lanes is needed.
        float d[2][4] = {}, y[2][4] = {};
        mma<SUMI_OPERANDS_BF16>(d[0], a, x[0], x[2]);
        mma<SUMI_OPERANDS_BF16>(d[1], a, x[1], x[3]);
        const u32 b[4] = {pack_bf16(d[0][0], d[0][1]), pack_bf16(d[0][2], d[0][3]), pack_bf16(d[1][0], d[1][1]),
                          pack_bf16(d[1][2], d[1][3])};
        mma<SUMI_OPERANDS_BF16>(y[0], b, matrix, matrix);
        mma<SUMI_OPERANDS_BF16>(y[1], b, matrix, matrix ^ 0x80008000u);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = y[i >> 1 & 1][(i & 1) * 2 + (i >> 2)];
    }
    // The column, in the block, of the first of the eight values that pack() returns. A multiple of 8.
    SUMI_DEVICE int column() const { return (int)((lane & 0x1cu) << 1 | (lane & 2u) << 5 | (lane & 1u) << 7); }
    // v * factor with the signs applied, rounded to nearest even, as eight int8: columns column() .. column() + 7. The
    // caller's factor keeps the results in -127 .. 127. All lanes of the warp call it.
    SUMI_DEVICE uint2 pack(const float (&v)[8], float factor) const
    {
        u32 word[2];
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const float f = factor * after[b];
            // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves the integer in the lowest byte.
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

// The maximum of `largest` and |v[i]|. NaN and infinity propagate: the scale of such a row is NaN or infinite, and so
// are the products of the row, instead of looking like valid numbers.
SUMI_DEVICE float max_of(float largest, const float (&v)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++) asm("max.NaN.f32 %0, %0, %1;" : "+f"(largest) : "f"(fabsf(v[i])));
    return largest;
}
// The scale of a row whose values 16 R v have the largest magnitude `largest`. A row of zeros gets a tiny scale instead
// of 0, so that its inverse is finite and 0 * inverse is 0.
SUMI_DEVICE float rotated_scale(float largest) { return (largest < 1e-30f ? 1e-30f : largest) / (16.0f * 127.0f); }
