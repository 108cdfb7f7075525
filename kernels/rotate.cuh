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
    // The lane's fragment of S16 as an A operand: a0 = a1 = a2 = {S16[row][column], S16[row][column + 1]} with row =
    // lane >> 2 and column = 2 (lane & 3), as two bf16 of 1 or -1. a3 has both signs changed. S16 is symmetric: the
    // same word serves as B operand.
    u32 s16;
    // Sign bits that are flipped in each word x[c] before the products. x[3] has both flipped once more.
    u32 input_signs;
    // Signs applied after the products: output_signs[0] to v[0..2], [1] to v[4..6]. v[3] and v[7] get the opposite
    // sign.
    float output_signs[2];
    u32 lane;
    SUMI_DEVICE sumi_rotation() : lane(threadIdx.x & 31)
    {
        const u32 bits = lane; // b0 .. b4 of the drawing
        const u32 b0 = bits & 1, b1 = bits >> 1 & 1, b2 = bits >> 2 & 1, b3 = bits >> 3 & 1, b4 = bits >> 4;
        // is_negative: 1 where S16[row][column] is -1. S16[row][column + 1] has the opposite sign in odd rows.
        // low_sign: the sign bit for the lower half of x[c].
        const u32 two_ones = 0x3f803f80u, is_negative = (b3 & b0) ^ (b4 & b1), low_sign = (b1 & b2) ^ (b3 & b4);
        s16 = two_ones ^ (is_negative << 15) ^ ((is_negative ^ b2) << 31);
        input_signs = low_sign << 15 ^ (low_sign ^ b0) << 31;
        output_signs[0] = (b3 & b2) ^ (b1 & b0) ? -1.0f : 1.0f;
        output_signs[1] = b4 ? -output_signs[0] : output_signs[0];
    }
    // v = 16 R v, up to the signs that pack() applies, in the column order given above. All lanes of the warp call it.
    SUMI_DEVICE void rotate(float (&v)[8]) const
    {
        const u32 s16_fragment[4] = {s16, s16, s16, s16 ^ 0x80008000u};
        u32 x[4]; // x[c]: columns c and c + 4 of the lane's eight
#pragma unroll
        for (int c = 0; c < 4; c++) x[c] = pack_bf16(v[c], v[c + 4]) ^ input_signs;
        x[3] ^= 0x80008000u;
        // First S16 X, then y = (S16 X) S16, each in two halves: [0] has columns 0..7, [1] columns 8..15. The
        // accumulators of the first product have the layout of the A operand of the second, so no exchange between
        // lanes is needed.
        float s16_x[2][4] = {}, y[2][4] = {};
        mma<SUMI_OPERANDS_BF16>(s16_x[0], s16_fragment, x[0], x[2]);
        mma<SUMI_OPERANDS_BF16>(s16_x[1], s16_fragment, x[1], x[3]);
        const u32 s16_x_fragment[4] = {pack_bf16(s16_x[0][0], s16_x[0][1]), pack_bf16(s16_x[0][2], s16_x[0][3]),
                                       pack_bf16(s16_x[1][0], s16_x[1][1]), pack_bf16(s16_x[1][2], s16_x[1][3])};
        mma<SUMI_OPERANDS_BF16>(y[0], s16_x_fragment, s16, s16);
        mma<SUMI_OPERANDS_BF16>(y[1], s16_x_fragment, s16, s16 ^ 0x80008000u);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = y[i >> 1 & 1][(i & 1) * 2 + (i >> 2)];
    }
    // The column, in the block, of the first of the eight values that pack() returns. A multiple of 8.
    SUMI_DEVICE int column() const { return (int)((lane & 0x1cu) << 1 | (lane & 2u) << 5 | (lane & 1u) << 7); }
    // v * factor with the signs applied, rounded to nearest even, as eight int8: columns column() .. column() + 7. The
    // caller's factor keeps the results in -127 .. 127. All lanes of the warp call it.
    SUMI_DEVICE uint2 pack(const float (&v)[8], float factor) const
    {
        u32 words[2];
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const float signed_factor = factor * output_signs[b];
            // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves the integer in the lowest byte.
            const float magic = 12582912.0f;
            u32 rounded[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                rounded[j] = __float_as_uint(fmaf(v[4 * b + j], j == 3 ? -signed_factor : signed_factor, magic));
            words[b] = __byte_perm(__byte_perm(rounded[0], rounded[1], 0x0040),
                                   __byte_perm(rounded[2], rounded[3], 0x0040), 0x5410);
        }
        const bool is_second = lane & 8u;
        const u32 received = __shfl_xor_sync(~0u, is_second ? words[0] : words[1], 8);
        return is_second ? make_uint2(received, words[1]) : make_uint2(words[0], received);
    }
};

// The maximum of `largest` and |v[i]|. NaN and infinity propagate: the scale of such a row is NaN or infinite, and so
// are the products of the row, instead of looking like valid numbers.
SUMI_DEVICE float max_magnitude(float largest, const float (&v)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++) asm("max.NaN.f32 %0, %0, %1;" : "+f"(largest) : "f"(fabsf(v[i])));
    return largest;
}
// The scale of a row whose values 16 R v have the largest magnitude `largest`. A row of zeros gets a tiny scale instead
// of 0, so that its inverse is finite and 0 * inverse is 0.
SUMI_DEVICE float rotated_scale(float largest) { return (largest < 1e-30f ? 1e-30f : largest) / (16.0f * 127.0f); }
