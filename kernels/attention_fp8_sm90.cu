// softmax(q k^T * scale) v on Hopper with operands in e4m3 and float sums: head dims 96 and 128, grouped-query heads,
// sequences of one or two spans, the first of which may lie in a matrix of kept keys. attention.h has the shapes,
// attention_forward_sm90.cuh the code.
//
//   sumi_qk_norm_rope_fp8_*          q and k, normed and rotated, to e4m3 without a scale (qk_norm.cuh)
//   sumi_copy_kept_fp8               k and v from q, k and v in bf16 to kept ones: k as e4m3, v as it is (rows_fp8.cu)
//   sumi_attention_value_means       the mean of each channel of v
//   sumi_attention_pack_values_*     v less the means to e4m3, transposed, with a power of two per tile of 128 keys
//   sumi_attention_sm90_fp8_*        S = q k^T (e4m3) -> softmax (float) -> P in e4m3 -> O += P v (e4m3)
//
// A row of q or k has 128 bytes in shared memory. Of a head of 96 the last 32 are zeros, and no product reads them.
//
// wgmma takes operands of 8 bits K-major only, so v has to be transposed: the keys of a channel are one row of a tile.
// The kernel that does it writes a tile as it lies in shared memory, and a bulk copy without a tensor map reads it. The
// probabilities are in 1 .. 2^-10 times a power of two, where e4m3 is normal; what is below counts as nothing beside
// the largest one. On random data the result is off by 4e-2 to 5.5e-2 in norm: q, k, P and v are off by 2.5e-2 each.
//
// MEANS. wgmma cuts every product of e4m3 off 13 bits below the sum that it is added to. Where a channel of v is not
// near 0 on average, the sum over 16384 keys is so much larger than each product that 0.19 of the result was lost (0.07
// at 4096 keys). So its mean is subtracted from each channel of v, and added to the result, where all probabilities add
// up to 1 (SageAttention2, Zhang et al. 2024, smooths v likewise). Whatever is subtracted is added, so the mean of 1024
// keys or more is good enough.
//
// One value of bf16 in 16 lies halfway between two of e4m3. Rounded to even, as many go up as down. Once a mean has been
// subtracted, all of a channel go the same way, and the sum over many keys is off: by 1.2 times the error of all that is
// rounded for 4224 keys, by 1.8 times for 16384 (computed, normal q, k and v). So the 16 bits that bf16 lacks beside a
// float are as if at random, which is far below what rounding to e4m3 does. They make values larger, by 0.72 / 256 on
// average where all mantissas are equally likely on a logarithmic scale; a factor takes that back.
//
// PARTS. For 64 queries, 128 keys and 128 channels the tensor cores of a multiprocessor take 512 cycles for both
// products. Its special function units take the same 512 for the exponentials, and the rest of the softmax comes on
// top. While a warpgroup computed all maxima of a tile, then its softmax, then P v, the tensor cores had only the other
// warpgroups to work for. With a tile's keys in two or four parts P v of a part runs beside the softmax of the next
// part, in the same warpgroup. The maxima of a part cannot be known before the exponentials, so they are checked
// afterwards (attention_forward_sm90.cuh). Four parts leave the kernel with three consumers enough registers for heads
// of 128 (its spill of 8 bytes is once per tile of queries, outside the loop over keys); with two consumers, and for
// heads of 96, two parts are faster.
//
// One H200, us, with the packing of v; before: one part, maxima first, tiles of 192 rows.
//
//   tokens x heads of dim      bf16    before     now
//   24904 x 24 of 128          9796      9265    7078
//   4224 x 30 of 128            373       341     286
//   1152 x 30 of 128           40.9      35.5    35.0
//   1280 x 24 of 128           34.6      36.3    31.0    tiles of 128 rows
//   4352 x 24 (8) of 96         309      none     212
//   1280 x 24 (8) of 96        36.1      none    28.0
//
// Tried, and slower: every second, fourth or eighth exponential on the FMA units (1.02 to 1.22 times; every eighth one
// with tiles of 128 rows 0.99 for 1280 tokens, which is not worth the code), a fourth stage (1.02 times for long
// sequences, 0.98 for 4224 tokens), four parts for heads of 96 (1.08 times), checked maxima in one part (1.09 times), q
// in registers with tiles of 128 rows (0.99 to 1.03 times). For heads of 96 tiles of 128 rows are 1.18 times slower for
// 4352 tokens and 0.99 for 1280: not worth another kernel. Wrong: sums of P by the tensor cores, from a row of ones
// beside v. The result is off by 0.06 more at 4097 tokens and by 0.49 at 24904, because products are cut off (MEANS).
#include "attention_forward_sm90.cuh"

#define E4M3_KERNEL(NAME, HEAD_DIM, CONSUMERS, STAGES, PARTS)                                                          \
    extern "C" __global__ void __launch_bounds__(128 * (CONSUMERS + 1), 1)                                             \
        NAME(const __grid_constant__ sumi_attention_sm90_maps maps,                                                    \
             const __grid_constant__ sumi_attention_sm90_shape shape,                                                  \
             const __grid_constant__ sumi_attention_fp8_values values)                                                 \
    {                                                                                                                  \
        attention_sm90<SUMI_OPERANDS_E4M3, HEAD_DIM, CONSUMERS, STAGES, false, 0, false, PARTS>::run(maps, shape,      \
                                                                                                     &values);         \
    }
//               name, HEAD_DIM, CONSUMERS, STAGES, PARTS
E4M3_KERNEL(sumi_attention_sm90_fp8_d128, 128, 3, 3, 4)
E4M3_KERNEL(sumi_attention_sm90_fp8_d128_c2, 128, 2, 4, 2)
E4M3_KERNEL(sumi_attention_sm90_fp8_d96, 96, 3, 3, 2)

// 32 bits, as if at random: Knuth's multiplicative hash of both, mixed.
SUMI_DEVICE u32 hash_of(int key, int channel)
{
    const u32 hash = ((u32)key * 0x9E3779B1u ^ (u32)channel * 0x85EBCA6Bu) * 0xC2B2AE35u;
    return hash ^ hash >> 15;
}

// The means of 16 channels of one key head over the keys of a sequence, or over 1024 to 2047 of them: one of each
// `stride` neighbours, any of which may be it, because an image repeats itself from row to row. Two threads read 32 bytes
// of a row. The order of the additions depends on the number of keys alone. With registers for two blocks ptxas issues
// the loads of four keys at once; for more blocks it would wait for each.
extern "C" __global__ void __launch_bounds__(SUMI_ATTENTION_MEANS_THREADS, 2)
    sumi_attention_value_means(const __grid_constant__ sumi_attention_pack_args args)
{
    constexpr int CHANNELS = 16, ROWS = SUMI_ATTENTION_MEANS_THREADS / 2, WARPS = SUMI_ATTENTION_MEANS_THREADS / 32;
    __shared__ float warp_sums[WARPS][CHANNELS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, half = lane & 1;
    const int channel = ((args.head_begin + blockIdx.y) * gridDim.x + blockIdx.x) * CHANNELS; // of all key heads
    const int keys = args.keys[0] + args.keys[1], stride = max(1, keys / 1024), samples = keys / stride;
    float sums[8] = {};
#pragma unroll 4
    for (int sample = threadIdx.x >> 1; sample < samples; sample += ROWS) {
        const int key = sample * stride + (int)__umulhi(hash_of(sample, 0), (u32)stride);
        const int span = key >= args.keys[0], row = span ? key - args.keys[0] : key;
        const u16* values = (const u16*)args.v[span] + channel + 8 * half;
        const uint4 words = *(const uint4*)(values + (int64_t)row * args.pitch[span]);
        const u32 pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int word = 0; word < 4; word++) {
            sums[2 * word] += bf16_low(pairs[word]);
            sums[2 * word + 1] += bf16_high(pairs[word]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int mask = 16; mask > 1; mask >>= 1) sums[i] += __shfl_xor_sync(~0u, sums[i], mask);
        if (lane < 2) warp_sums[warp][8 * half + i] = sums[i];
    }
    __syncthreads();
    if (threadIdx.x >= CHANNELS) return;
    float sum = 0.f;
#pragma unroll
    for (int other = 0; other < WARPS; other++) sum += warp_sums[other][threadIdx.x];
    ((float*)args.values.means)[channel + threadIdx.x] = sum / (float)samples;
}

// v of one key head and 128 tokens, less its means, as a tile of e4m3, see attention.h. Bound by bytes. A thread has two
// items of 4 keys x 8 channels, which become 8 words of the tile: one per channel, with the keys that are neighbours
// there. Lanes are arranged so that two neighbours read 32 bytes of a row:
//
//   item of a lane       channels 8 octet .. 8 octet + 7           octet = 2 warp + (lane & 1)
//                        keys 16 group + 2 quarter + 0, 1, 8, 9    quarter = lane >> 1 & 3,
//                                                                  group = 4 item + (lane >> 3)
//   word of a channel    byte 128 channel + 16 (group ^ (channel & 7)) + 4 quarter of the tile: the 128-byte swizzle
template <int TILE_CHANNELS> SUMI_DEVICE void pack_values(const sumi_attention_pack_args& args)
{
    constexpr int ITEMS = 2, THREADS = SUMI_ATTENTION_PACK_THREADS(TILE_CHANNELS), WARPS = THREADS / 32,
                  TILE_KEYS = 128, TILE_BYTES = SUMI_ATTENTION_FP8_TILE_BYTES(TILE_CHANNELS);
    __shared__ __align__(16) u32 tile[TILE_BYTES / 4];
    __shared__ float warp_largest[WARPS];
    const int head = args.head_begin + blockIdx.y, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int octet = 2 * warp + (lane & 1), quarter = lane >> 1 & 3, channel = head * TILE_CHANNELS + 8 * octet;
    const int first_span_tiles = (args.keys[0] + TILE_KEYS - 1) / TILE_KEYS, span = (int)blockIdx.x >= first_span_tiles,
              first_key = ((int)blockIdx.x - (span ? first_span_tiles : 0)) * TILE_KEYS,
              key_count = args.keys[span] - first_key;
    const int64_t tile_index = (int64_t)head * args.values.tile_count + args.first_tile + blockIdx.x;
    const int pitch = args.pitch[span]; // 128 rows have fewer than 2^31 elements
    const u16* first_row = (const u16*)args.v[span] + (int64_t)first_key * pitch + channel;
    const float4 *means = (const float4*)((const float*)args.values.means + channel), low = means[0], high = means[1];
    const float mean[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    float values[ITEMS][4][8]; // of each key of an item, 8 channels
    float largest = 0.f;
#pragma unroll
    for (int item = 0; item < ITEMS; item++) {
#pragma unroll
        for (int row = 0; row < 4; row++) {
            const int key = 16 * (4 * item + (lane >> 3)) + 2 * quarter + (row & 1) + 8 * (row >> 1);
            uint4 words = make_uint4(0, 0, 0, 0);
            if (key < key_count) words = *(const uint4*)(first_row + key * pitch);
            const u32 pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
            for (int i = 0; i < 8; i++) {
                // The value in the upper half, bits of the hash in the lower one.
                const u32 hash = hash_of(first_key + key, 4 * octet + (i >> 1)),
                          bits = __byte_perm(pairs[i >> 1], hash, i & 1 ? 0x3276 : 0x1054);
                const float value = fmaf(__uint_as_float(bits), 1.f - 0.7213f / 256.f, -mean[i]);
                values[item][row][i] = key < key_count ? value : 0.f; // keys past the end are zeros
                largest = fmaxf(largest, fabsf(values[item][row][i]));
            }
        }
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, mask));
    if (lane == 0) warp_largest[warp] = largest;
    __syncthreads();
#pragma unroll
    for (int other = 0; other < WARPS; other++) largest = fmaxf(largest, warp_largest[other]);
    // The least power of two with largest / 2^exponent <= 448 = 1.75 * 2^8. The bounds keep sums of tiles finite.
    const u32 bits = __float_as_uint(largest);
    const int exponent = max(-59, min(59, (int)(bits >> 23) - 127 - 8 + ((bits & 0x7FFFFF) > 0x600000)));
    const float inverse = __uint_as_float((u32)(127 - exponent) << 23);
    if (threadIdx.x == 0) ((float*)args.values.exponents)[tile_index] = (float)exponent;
#pragma unroll
    for (int item = 0; item < ITEMS; item++) {
        const int group = 4 * item + (lane >> 3);
        const float(&keys)[4][8] = values[item];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            tile[(8 * octet + i) * 32 + (group ^ i) * 4 + quarter] =
                pack_e4m3(keys[0][i] * inverse, keys[1][i] * inverse, keys[2][i] * inverse, keys[3][i] * inverse);
        }
    }
    __syncthreads();
    uint4* to = (uint4*)(args.values.tiles + tile_index * TILE_BYTES);
#pragma unroll
    for (int i = threadIdx.x; i < TILE_BYTES / 16; i += THREADS) to[i] = ((const uint4*)tile)[i];
}
#define PACK_KERNEL(NAME, CHANNELS)                                                                                    \
    extern "C" __global__ void __launch_bounds__(SUMI_ATTENTION_PACK_THREADS(CHANNELS))                                \
        NAME(const __grid_constant__ sumi_attention_pack_args args)                                                    \
    {                                                                                                                  \
        pack_values<CHANNELS>(args);                                                                                   \
    }
PACK_KERNEL(sumi_attention_pack_values_d128, 128)
PACK_KERNEL(sumi_attention_pack_values_d96, 96)
