// Sums and sums of squares per group of channels of a convolution's output, for a GroupNorm of 32 groups. A warp adds
// its pixels in the epilogue, lane by lane, then over its lanes. Atomics are not used, so equal inputs give equal bits.
#pragma once
#include "hopper.cuh"

// One step of a sum over lanes. It adds each of v[0 .. COUNT) over the two lanes that differ in bit LANE_BIT, and
// divides the values between them: the lane with the bit keeps the upper half, the other lane the lower half, in
// v[0 .. COUNT / 2). Steps for bits 16, 8, 4, 2 and 1 sum 32 values over the warp with 31 shuffles instead of 160. Lane
// l then has sum l.
template <int COUNT, int LANE_BIT> SUMI_DEVICE void reduce_step(float* v, int lane)
{
#pragma unroll
    for (int k = 0; k < COUNT / 2; k++) {
        const bool keeps_upper = lane & LANE_BIT;
        const float sent = keeps_upper ? v[k] : v[k + COUNT / 2], kept = keeps_upper ? v[k + COUNT / 2] : v[k];
        v[k] = kept + __shfl_xor_sync(~0u, sent, LANE_BIT);
    }
}

// GROUP_CHANNELS: channels per group, 4, 8 or 16; 0: nothing is summed. Sums of a tile of COLUMNS columns in the
// accumulator layout of wgmma (hopper.cuh), of which a lane has two columns of every block of eight. With 4 channels
// per group the lane's columns belong to one of the block's two groups, so a lane has one pair of sums per block.
template <int COLUMNS, int GROUP_CHANNELS> struct conv_sums {
    static constexpr int COUNT = GROUP_CHANNELS == 0 ? 1 : GROUP_CHANNELS == 16 ? COLUMNS / 8 : COLUMNS / 4;
    float v[COUNT];
    SUMI_DEVICE conv_sums()
    {
#pragma unroll
        for (int k = 0; k < COUNT; k++) v[k] = 0.f;
    }
    // Values of two rows (pixels) in a block of eight columns. inside_0, inside_1: 1 if the pixel lies in the image,
    // otherwise 0.
    SUMI_DEVICE void add(int column_block, const float* value, float inside_0, float inside_1)
    {
        const int k = GROUP_CHANNELS == 16 ? column_block / 2 : column_block;
        v[2 * k] += inside_0 * (value[0] + value[1]) + inside_1 * (value[2] + value[3]);
        v[2 * k + 1] += inside_0 * (value[0] * value[0] + value[1] * value[1])
                      + inside_1 * (value[2] * value[2] + value[3] * value[3]);
    }
    // Adds over the warp and writes the sums to entry[32 groups][2], which begins with the image's first group. Bits 4,
    // 3 and 2 of the lane number select pixels, bits 1 and 0 columns.
    SUMI_DEVICE void store(float* entry, int n0, int lane, bool stores)
    {
        float* out = entry + n0 / (GROUP_CHANNELS ? GROUP_CHANNELS : 1) * 2;
        reduce_step<COUNT, 16>(v, lane);
        reduce_step<COUNT / 2, 8>(v, lane);
        reduce_step<COUNT / 4, 4>(v, lane);
        if (GROUP_CHANNELS == 4) { // bit 1 of the lane says which of the two groups of an 8-column block it has
            static_assert(GROUP_CHANNELS != 4 || COLUMNS == 128, "one block of columns for each value of four bits");
            reduce_step<COUNT / 8, 1>(v, lane);
            const int column_block = (lane >> 4 & 1) * 8 + (lane >> 3 & 1) * 4 + (lane >> 2 & 1) * 2 + (lane & 1);
            if (stores) *(float2*)(out + (2 * column_block + (lane >> 1 & 1)) * 2) = make_float2(v[0], v[1]);
            return;
        }
        reduce_step<COUNT / 8, 2>(v, lane);
        if (COUNT == 16) { // the two lanes of a pair have the same sum
            v[0] += __shfl_xor_sync(~0u, v[0], 1);
            if (stores && !(lane & 1)) out[lane >> 1] = v[0];
            return;
        }
        reduce_step<COUNT / 16, 1>(v, lane);
        if (!stores) return;
        if (COUNT == 64) *(float2*)(out + lane * 2) = make_float2(v[0], v[1]);
        else out[lane] = v[0];
    }
};
