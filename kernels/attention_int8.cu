// softmax(q k^T * scale) v with q k^T in int8 and P v in bf16 (SageAttention, Zhang et al. 2024), for compute
// capability 8.0 and newer: head dims 64, 96 and 128, grouped-query heads, sequences of one or two spans, not causal.
// attention.h has the shapes, attention_forward_sm80.cuh the code.
//
//   sumi_attention_pack_keys_*   k to int8, with a scale per tile of 64 keys
//   sumi_attention_int8_*        q to int8 in registers, with a scale per row; S in int32; then as in attention.cu
//
// Tensor cores multiply int8 at twice the rate of bf16, those of GeForce at four times the rate of bf16 with float
// sums. A constant that is added to all keys of a head changes no probability. So the mean of 32 keys of the sequence,
// evenly spaced, is taken from each key before it is rounded: channels in which all keys are alike do not decide the
// scale.
//
// Off by 1.0e-2 to 1.5e-2 in norm on random data, where bf16 is by 4e-3. One H200, 4224 tokens: 30 heads of 128 take
// 817 us with the packing of k, 856 in bf16; 24 heads of 96 448 us, 506 in bf16. There the tensor cores are not what
// bounds mma.sync; a GeForce, on which they are, was not measured. Tried and slower: 64 keys per tile for dim 128 (834
// us).
#include "attention_forward_sm80.cuh"

#define ATTENTION_KERNEL(NAME, HEAD_DIM, TILE_KEYS, BLOCKS_PER_MULTIPROCESSOR)                                         \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS_PER_MULTIPROCESSOR)                                       \
        NAME(const __grid_constant__ sumi_attention_args args)                                                         \
    {                                                                                                                  \
        attention<HEAD_DIM, TILE_KEYS, 4, 1, 2, HEAD_DIM / 32, NOT_CAUSAL, true>(args);                                \
    }
ATTENTION_KERNEL(sumi_attention_int8_d128, 128, 32, 2)
ATTENTION_KERNEL(sumi_attention_int8_d96, 96, 32, 2)
ATTENTION_KERNEL(sumi_attention_int8_d64, 64, 64, 2)

// k of one key head and SUMI_ATTENTION_INT8_KEYS tokens as int8, see attention.h. Bound by bytes. A thread has 16
// channels of a token at a time.
template <int HEAD_DIM> SUMI_DEVICE void pack_keys(const sumi_attention_pack_keys_args& args)
{
    constexpr int KEYS = SUMI_ATTENTION_INT8_KEYS, THREADS = SUMI_ATTENTION_PACK_KEYS_THREADS, SAMPLES = 32,
                  ROW_ITEMS = HEAD_DIM / 16, ITEMS = KEYS * ROW_ITEMS / THREADS;
    static_assert(KEYS * ROW_ITEMS % THREADS == 0 && HEAD_DIM <= THREADS, "items");
    __shared__ float mean[HEAD_DIM], warp_largest[THREADS / 32];
    const int head = args.head_begin + blockIdx.y;
    const int64_t tile = (int64_t)head * args.tile_count + args.first_tile + blockIdx.x;
    const u16* keys = (const u16*)args.qkv + (int64_t)args.begin * args.pitch + args.k_column + head * HEAD_DIM;
    const auto row_of_token = [&](int token) {
        return keys + (int64_t)(token + (token >= args.first_span_tokens ? args.second_span_offset : 0)) * args.pitch;
    };
    if (threadIdx.x < HEAD_DIM) { // all tiles of a sequence take the same samples, in the same order
        float sum = 0.f;
#pragma unroll 8
        for (int sample = 0; sample < SAMPLES; sample++)
            sum += bf16_low(row_of_token((int)((int64_t)sample * args.keys / SAMPLES))[threadIdx.x]);
        mean[threadIdx.x] = sum * (1.f / SAMPLES);
    }
    __syncthreads();
    float values[ITEMS][16], largest = 1e-12f;
#pragma unroll
    for (int item = 0; item < ITEMS; item++) {
        const int index = item * THREADS + threadIdx.x, token = blockIdx.x * KEYS + index / ROW_ITEMS,
                  first_channel = index % ROW_ITEMS * 16;
        uint4 words[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
        if (token < args.keys) {
            const uint4* from = (const uint4*)(row_of_token(token) + first_channel);
            words[0] = from[0], words[1] = from[1];
        }
        const u32 pairs[8] = {words[0].x, words[0].y, words[0].z, words[0].w,
                              words[1].x, words[1].y, words[1].z, words[1].w};
#pragma unroll
        for (int channel = 0; channel < 16; channel++) { // keys past the end are zeros
            const u32 pair = pairs[channel / 2];
            const float value = channel & 1 ? bf16_high(pair) : bf16_low(pair);
            values[item][channel] = token < args.keys ? value - mean[first_channel + channel] : 0.f;
            largest = fmaxf(largest, fabsf(values[item][channel]));
        }
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, mask));
    if ((threadIdx.x & 31) == 0) warp_largest[threadIdx.x >> 5] = largest;
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < THREADS / 32; warp++) largest = fmaxf(largest, warp_largest[warp]);
    const float factor = 127.f / largest;
    if (threadIdx.x == 0) ((float*)args.scales)[tile] = largest * (1.f / 127.f);
    uint4* to = (uint4*)(args.packed + tile * KEYS * HEAD_DIM);
#pragma unroll
    for (int item = 0; item < ITEMS; item++) {
        const float(&from)[16] = values[item];
        u32 words[4]; // channels 2 word, 2 word + 1, 2 word + 8, 2 word + 9: the order of quantize_queries
#pragma unroll
        for (int word = 0; word < 4; word++)
            words[word] = pack_int8(from[2 * word] * factor, from[2 * word + 1] * factor, from[2 * word + 8] * factor,
                                    from[2 * word + 9] * factor);
        to[item * THREADS + threadIdx.x] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

#define PACK_KERNEL(HEAD_DIM)                                                                                          \
    extern "C" __global__ void __launch_bounds__(SUMI_ATTENTION_PACK_KEYS_THREADS)                                     \
        sumi_attention_pack_keys_d##HEAD_DIM(const __grid_constant__ sumi_attention_pack_keys_args args)               \
    {                                                                                                                  \
        pack_keys<HEAD_DIM>(args);                                                                                     \
    }
PACK_KERNEL(128)
PACK_KERNEL(96)
PACK_KERNEL(64)
