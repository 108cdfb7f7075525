// Unpacks weights of the types of stored.h, eight elements at a time. src/base/dtype.c describes the layouts, and the
// results here equal its results bit for bit: a product of a scale and a code is exact in float, so there is only one
// rounding, that of the sum.
//
//   stored<TYPE> chunk(bytes, i);       a chunk: 256 elements of a row, or the rest of a row after its last whole chunk
//   chunk.floats(group, v);             v: eight of the elements 32 * group .. 32 * group + 31 of the chunk
//
// i says which eight elements of each group of 32:
//   IS_SPREAD false   i .. i + 7; i is 0, 8, 16 or 24
//   IS_SPREAD true    i, i + 1, i + 8, i + 9, i + 16, i + 17, i + 24, i + 25 with i = 2 * (lane & 3): the elements that
//                     a lane holds of two consecutive A fragments of 16 elements of k (portable_sm80.cuh)
//
// `bytes` is aligned to the largest power of 2, up to 16, that divides the length of a whole chunk (ALIGN). The
// constructor reads what all of a thread's elements share. `group` should be a compile-time constant where speed
// matters. d is the half-precision scale of a quantisation block; a code is the integer stored for an element.
#pragma once
#include "common.cuh"
#include "stored.h"
#include <cuda_fp16.h>

enum stored_type {
#define ENUMERATOR(name, number, bytes) STORED_##name = number,
    SUMI_STORED_TYPES(ENUMERATOR)
#undef ENUMERATOR
};
template <int TYPE> struct stored_layout;
#define DEFINE_LAYOUT(name, number, bytes)                                                                             \
    template <> struct stored_layout<number> {                                                                         \
        enum { BYTES = bytes, ALIGN = bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 2 };            \
    };
SUMI_STORED_TYPES(DEFINE_LAYOUT)
#undef DEFINE_LAYOUT
template <int TYPE, bool IS_SPREAD = false> struct stored;

// ---- Reading bytes --------------------------------------------------------------------------------------------------

SUMI_DEVICE float stored_half(const uint8_t* p) { return __half2float(__ushort_as_half(*(const unsigned short*)p)); }
SUMI_DEVICE uint32_t stored_pair(const uint8_t* p) { return *(const unsigned short*)p; }
// Reads four or eight bytes at an address that is a multiple of ALIGN.
template <int ALIGN> SUMI_DEVICE uint32_t stored_word(const uint8_t* p)
{
    return ALIGN >= 4 ? *(const uint32_t*)p : stored_pair(p) | stored_pair(p + 2) << 16;
}
template <int ALIGN> SUMI_DEVICE void stored_words(const uint8_t* p, uint32_t (&w)[2])
{
    if (ALIGN >= 8) {
        const uint2 v = *(const uint2*)p;
        w[0] = v.x, w[1] = v.y;
    } else {
        w[0] = stored_word<ALIGN>(p), w[1] = stored_word<ALIGN>(p + 4);
    }
}
// The two low bytes of `bytes`, one in each 16-bit half of the result.
SUMI_DEVICE uint32_t stored_apart(uint32_t bytes) { return __byte_perm(bytes, 0, 0x4140); }
// Of the 32 bytes at p, one per element, those of the thread's eight elements. q[k]: elements 2 k and 2 k + 1 of the
// eight, one byte in each 16-bit half.
template <int ALIGN, bool IS_SPREAD> SUMI_DEVICE void stored_bytes(const uint8_t* p, int i, uint32_t (&q)[4])
{
    if (IS_SPREAD) {
#pragma unroll
        for (int k = 0; k < 4; k++) q[k] = stored_apart(stored_pair(p + i + 8 * k));
    } else {
        uint32_t w[2];
        stored_words<ALIGN>(p + i, w);
#pragma unroll
        for (int k = 0; k < 4; k++) q[k] = __byte_perm(w[k / 2], 0, k % 2 == 0 ? 0x4140 : 0x4342);
    }
}

// ---- Integers to floats ---------------------------------------------------------------------------------------------
// A half-precision number whose 16 bits are an integer n below 1024 is subnormal and has the value n * 2^-24. So two
// integers, one in each half of a word, become two floats in two instructions. An integer that is s bits further up
// needs no shift: it is multiplied by a factor that is 2^s times smaller. All these factors are powers of two, so the
// result is exact.

#define STORED_ONE 0x1p24f // multiplies the factor of integers that are in the lowest bits

// The integers in the two halves of w, less BIAS, times 2^-24.
template <int BIAS> SUMI_DEVICE float2 stored_floats(uint32_t w)
{
    __half2 pair = *(const __half2*)&w;
    if (BIAS != 0) {
        const uint32_t bias = BIAS * 0x00010001u;
        pair = __hsub2(pair, *(const __half2*)&bias);
    }
    return __half22float2(pair);
}
// v[first + 2 k], v[first + 2 k + 1] = factor * 2^-24 * (((half of q[k]) & MASK) - BIAS), for COUNT words. IS_OPERAND
// false: a zero has the sign of the factor, as the definition in dtype.c gives it. IS_OPERAND true: one instruction
// less; a zero is positive, which makes no difference in the sum of a matrix product.
template <int MASK, int BIAS, int COUNT, bool IS_OPERAND>
SUMI_DEVICE void stored_products(const uint32_t* q, float factor, float (&v)[8], int first)
{
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        const float2 f = stored_floats < IS_OPERAND ? 0 : BIAS > (MASK == 255 ? q[k] : q[k] & MASK * 0x00010001u);
        const float offset = factor * (BIAS / -STORED_ONE); // exact
        v[first + 2 * k] = IS_OPERAND ? fmaf(factor, f.x, offset) : factor * f.x;
        v[first + 2 * k + 1] = IS_OPERAND ? fmaf(factor, f.y, offset) : factor * f.y;
    }
}
// The same for formats with an offset: factor * 2^-24 * (half of (q[k] & mask)) + offset.
template <int COUNT>
SUMI_DEVICE void stored_sums(const uint32_t* q, uint32_t mask, float factor, float offset, float (&v)[8], int first)
{
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        const float2 f = stored_floats<0>(q[k] & mask);
        v[first + 2 * k] = fmaf(factor, f.x, offset), v[first + 2 * k + 1] = fmaf(factor, f.y, offset);
    }
}
// Byte i of w, less BIAS, as a float: the byte becomes the lowest mantissa bits of 2^23.
template <int BIAS> SUMI_DEVICE float stored_integer(uint32_t w, int i)
{
    return __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7440u + (uint32_t)i)) - (8388608.0f + BIAS);
}

// The codes of a quantisation block of 32 elements that are the nibbles of the 16 bytes at p: low nibbles are the first
// 16 elements, high nibbles the last 16. q: as in stored_bytes(), the codes in the lowest four bits of each half; the
// bits above them are undefined. When IS_SPREAD, the codes of q[2] and q[3] are four bits further up.
template <int ALIGN, bool IS_SPREAD> SUMI_DEVICE void stored_nibbles(const uint8_t* p, int i, uint32_t (&q)[4])
{
    if (IS_SPREAD) {
        q[0] = q[2] = stored_apart(stored_pair(p + i));
        q[1] = q[3] = stored_apart(stored_pair(p + i + 8));
    } else {
        uint32_t w[2];
        stored_words<ALIGN>(p + i % 16, w);
        const int shift = i >= 16 ? 4 : 0;
#pragma unroll
        for (int k = 0; k < 4; k++) q[k] = __byte_perm(w[k / 2] >> shift, 0, k % 2 == 0 ? 0x4140 : 0x4342);
    }
}
// The codebook values of the IQ4 types for four codes in the low 16 bits, each as a byte with 128 added.
SUMI_DEVICE uint32_t stored_iq4(uint32_t codes)
{
    const uint32_t indices = codes & 0x7777u, high = codes >> 1 & 0x4444u;
    // -127 -104 -83 -65   -49 -35 -22 -10   1 13 25 38   53 69 89 113
    const uint32_t a = __byte_perm(0x3f2d1801u, 0x766a5d4fu, indices),
                   b = __byte_perm(0xa6998d81u, 0xf1d9c5b5u, indices);
    return __byte_perm(a, b, 0x3210u | high);
}
// stored_nibbles() for the IQ4 types: q has the codebook values, with 128 added.
template <int ALIGN, bool IS_SPREAD> SUMI_DEVICE void stored_iq4_values(const uint8_t* p, int i, uint32_t (&q)[4])
{
    uint32_t w[2];
    if (IS_SPREAD) w[0] = stored_pair(p + i) | stored_pair(p + i + 8) << 16;
    else stored_words<ALIGN>(p + i % 16, w);
    const bool is_high = !IS_SPREAD && i >= 16;
#pragma unroll
    for (int k = 0; k < (IS_SPREAD ? 2 : 4); k++) { // `four`: of two bytes low, high, low, high nibble
        const uint32_t four =
            IS_SPREAD ? stored_iq4(w[0] >> (16 * k) & 0xffffu) : stored_iq4(w[k / 2] >> (k % 2 * 16) & 0xffffu);
        if (IS_SPREAD) q[k] = four & 0x00ff00ffu, q[k + 2] = four >> 8 & 0x00ff00ffu;
        else q[k] = four >> (is_high ? 8 : 0) & 0x00ff00ffu;
    }
}

// ---- Types of 32 elements -------------------------------------------------------------------------------------------

template <bool IS_SPREAD> struct stored<STORED_q8_0, IS_SPREAD> {
    const uint8_t* p;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), i(i_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const uint8_t* block = p + group * 34;
        uint32_t q[4];
        stored_bytes<2, IS_SPREAD>(block + 2, i, q);
#pragma unroll
        for (int k = 0; k < 4; k++) q[k] ^= 0x00800080u; // signed bytes to unsigned: 128 is added
        stored_products<255, 128, 4, IS_SPREAD>(q, stored_half(block) * STORED_ONE, v, 0);
    }
};

// Q4_0, Q4_1, Q5_0, Q5_1: codes of four bits, with HAS_FIFTH of five, in blocks of BYTES bytes. HAS_MINIMUM: value = d
// * code + minimum; otherwise d * (code - 8) or d * (code - 16). FIFTH, CODES: where these bits begin in a block.
template <int BYTES, bool HAS_MINIMUM, bool HAS_FIFTH, bool IS_SPREAD> struct stored_blocks {
    const uint8_t* p;
    int i;
    SUMI_DEVICE stored_blocks(const uint8_t* chunk, int i_) : p(chunk), i(i_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const uint8_t* block = p + group * BYTES;
        constexpr int FIFTH = HAS_MINIMUM ? 4 : 2, CODES = FIFTH + (HAS_FIFTH ? 4 : 0);
        const float factor = stored_half(block) * STORED_ONE, offset = HAS_MINIMUM ? stored_half(block + 2) : 0.0f;
        uint32_t q[4];
        stored_nibbles<2, IS_SPREAD>(block + CODES, i, q);
        if (HAS_FIFTH) {
            const uint32_t high = stored_word<2>(block + FIFTH) >> i;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                // The fifth bits of two elements, moved to bit 4 of each half.
                const uint32_t two = (high >> (IS_SPREAD ? 8 * k : 2 * k) & 3u) * 0x00080010u & 0x00100010u;
                q[k] = (q[k] >> (IS_SPREAD && k >= 2 ? 4 : 0) & 0x000f000fu) | two;
            }
            if (HAS_MINIMUM) stored_sums<4>(q, 0x001f001fu, factor, offset, v, 0);
            else stored_products<255, 16, 4, IS_SPREAD>(q, factor, v, 0);
        } else if (HAS_MINIMUM) {
            stored_sums<2>(q, 0x000f000fu, factor, offset, v, 0);
            if (IS_SPREAD) stored_sums<2>(q + 2, 0x00f000f0u, factor * 0.0625f, offset, v, 4);
            else stored_sums<2>(q + 2, 0x000f000fu, factor, offset, v, 4);
        } else {
            stored_products<15, 8, 2, IS_SPREAD>(q, factor, v, 0);
            if (IS_SPREAD) stored_products<240, 128, 2, IS_SPREAD>(q + 2, factor * 0.0625f, v, 4);
            else stored_products<15, 8, 2, IS_SPREAD>(q + 2, factor, v, 4);
        }
    }
};
#define BLOCKS(TYPE, BYTES, HAS_MINIMUM, HAS_FIFTH)                                                                    \
    template <bool IS_SPREAD>                                                                                          \
    struct stored<TYPE, IS_SPREAD> : stored_blocks<BYTES, HAS_MINIMUM, HAS_FIFTH, IS_SPREAD> {                         \
        using stored_blocks<BYTES, HAS_MINIMUM, HAS_FIFTH, IS_SPREAD>::stored_blocks;                                  \
    };
BLOCKS(STORED_q4_0, 18, false, false)
BLOCKS(STORED_q4_1, 20, true, false)
BLOCKS(STORED_q5_0, 22, false, true)
BLOCKS(STORED_q5_1, 24, true, true)
#undef BLOCKS

template <bool IS_SPREAD> struct stored<STORED_iq4_nl, IS_SPREAD> {
    const uint8_t* p;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), i(i_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const uint8_t* block = p + group * 18;
        uint32_t q[4];
        stored_iq4_values<2, IS_SPREAD>(block + 2, i, q);
        stored_products<255, 128, 4, IS_SPREAD>(q, stored_half(block) * STORED_ONE, v, 0);
    }
};

// ---- Types of 256 elements ------------------------------------------------------------------------------------------

// The index of the scale, of 16 elements each, of a thread's first four elements (h = 0) or last four (h = 1).
template <bool IS_SPREAD> SUMI_DEVICE int stored_sixteenth(int group, int i, int h)
{
    return group * 2 + (IS_SPREAD ? h : i / 16);
}

template <bool IS_SPREAD> struct stored<STORED_q2_k, IS_SPREAD> {
    const uint8_t* p;
    float d, minimum; // times 2^24
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_)
        : p(chunk), d(stored_half(chunk + 80) * STORED_ONE), minimum(stored_half(chunk + 82) * STORED_ONE), i(i_)
    {
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t q[4];
        stored_bytes<4, IS_SPREAD>(p + 16 + group / 4 * 32, i, q);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t packed = p[stored_sixteenth<IS_SPREAD>(group, i, h)];
            const float2 both = stored_floats<0>((packed & 15u) | (packed & 240u) << 12);
            // d has a factor of 2^24 and the scale one of 2^-24, which cancel. The codes have a factor of 2^-24 and are
            // two bits further up in each group of four, which 2^(24 - 2 * (group % 4)) cancels.
            const float factor = d * both.x * __uint_as_float((127u + 24 - group % 4 * 2) << 23);
            stored_sums<2>(q + 2 * h, 0x00030003u << (group % 4 * 2), factor, -(minimum * both.y), v, 4 * h);
        }
    }
};

template <bool IS_SPREAD> struct stored<STORED_q3_k, IS_SPREAD> {
    const uint8_t* p;
    uint32_t third[4], low[2], high; // third: the third bits of the codes; low, high: bits of the scales
    float d;                         // times 2^24
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), d(stored_half(chunk + 108) * STORED_ONE), i(i_)
    {
        stored_bytes<2, IS_SPREAD>(chunk, i, third);
        stored_words<2>(chunk + 96, low);
        high = stored_word<2>(chunk + 104);
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t q[4];
        stored_bytes<2, IS_SPREAD>(p + 32 + group / 4 * 32, i, q);
#pragma unroll
        for (int k = 0; k < 4; k++)
            q[k] = (q[k] >> (group % 4 * 2) & 0x00030003u) | (third[k] >> group & 0x00010001u) << 2;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int s = stored_sixteenth<IS_SPREAD>(group, i, h);
            const uint32_t nibble = (s % 8 < 4 ? low[0] : low[1]) >> (s % 4 * 8 + s / 8 * 4) & 15u,
                           pair = high >> (s % 4 * 8 + s / 4 * 2) & 3u;
            stored_products<255, 4, 2, IS_SPREAD>(q + 2 * h, d * stored_integer<32>(nibble | pair << 4, 0), v, 4 * h);
        }
    }
};

// The first 16 bytes of a chunk of Q4_K and Q5_K: d, minimum, and the 6-bit scales and minima of 8 groups.
struct stored_k_scales {
    float d, minimum; // times 2^24; minimum with its sign changed
    uint32_t s[3];    // the packed scales and minima
    SUMI_DEVICE explicit stored_k_scales(const uint8_t* chunk)
    {
        const uint4 head = *(const uint4*)chunk;
        d = __half2float(__ushort_as_half((unsigned short)head.x)) * STORED_ONE;
        minimum = -__half2float(__ushort_as_half((unsigned short)(head.x >> 16))) * STORED_ONE;
        s[0] = head.y, s[1] = head.z, s[2] = head.w;
    }
    // The factor and offset of a group, for codes that are `shift` bits up (0 or 4).
    SUMI_DEVICE void of(int group, int shift, float* factor, float* offset) const
    {
        // These words hold the scales and minima of four groups. A thread that unpacks several of the four computes
        // them once.
        const uint32_t scales = group < 4 ? s[0] & 0x3f3f3f3fu : (s[2] & 0x0f0f0f0fu) | (s[0] >> 2 & 0x30303030u),
                       minima = group < 4 ? s[1] & 0x3f3f3f3fu : (s[2] >> 4 & 0x0f0f0f0fu) | (s[1] >> 2 & 0x30303030u);
        const int byte = group % 4; // of both words; one goes into each half
        const float2 both = stored_floats<0>(__byte_perm(scales, minima, byte + (byte + 4) * 256) & 0x00ff00ffu);
        *factor = (shift == 0 ? d * STORED_ONE : d * (STORED_ONE / 16)) * both.x;
        *offset = minimum * both.y;
    }
};
template <bool IS_SPREAD> struct stored<STORED_q4_k, IS_SPREAD> {
    const uint8_t* p;
    stored_k_scales scales;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk + 16), scales(chunk), i(i_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const int shift = group % 2 * 4; // odd groups are the high nibbles
        uint32_t q[4];
        float factor, offset;
        stored_bytes<8, IS_SPREAD>(p + group / 2 * 32, i, q);
        scales.of(group, shift, &factor, &offset);
        stored_sums<4>(q, 0x000f000fu << shift, factor, offset, v, 0);
    }
};
template <bool IS_SPREAD> struct stored<STORED_q5_k, IS_SPREAD> {
    const uint8_t* p;
    stored_k_scales scales;
    uint32_t fifth[4];
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk + 48), scales(chunk), i(i_)
    {
        stored_bytes<8, IS_SPREAD>(chunk + 16, i, fifth);
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const int shift = group % 2 * 4; // odd groups are the high nibbles; the fifth bit goes above the code
        uint32_t q[4];
        float factor, offset;
        stored_bytes<8, IS_SPREAD>(p + group / 2 * 32, i, q);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint32_t bit = 0x00100010u << shift, fifth_bit = group < 4 + shift ? fifth[k] << (4 + shift - group)
                                                                                     : fifth[k] >> (group - 4 - shift);
            q[k] = (q[k] & ~bit) | (fifth_bit & bit);
        }
        scales.of(group, shift, &factor, &offset);
        stored_sums<4>(q, 0x001f001fu << shift, factor, offset, v, 0);
    }
};

template <bool IS_SPREAD> struct stored<STORED_q6_k, IS_SPREAD> {
    const uint8_t* p;
    float d; // times 2^48: codes and scales have a factor of 2^-24 each
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_)
        : p(chunk), d(stored_half(chunk + 208) * STORED_ONE * STORED_ONE), i(i_)
    {
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const int half = group / 4, r = group % 4;
        uint32_t q[4], high[4];
        stored_bytes<2, IS_SPREAD>(p + half * 64 + r % 2 * 32, i, q);
        stored_bytes<2, IS_SPREAD>(p + 128 + half * 32, i, high);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint32_t two = 2 * r < 4 ? high[k] << (4 - 2 * r) : high[k] >> (2 * r - 4);
            q[k] = (q[k] >> (r / 2 * 4) & 0x000f000fu) | (two & 0x00300030u);
        }
        const float2 scales = stored_floats<128>(stored_apart(stored_pair(p + 192 + 2 * group)) ^ 0x00800080u);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float scale = IS_SPREAD ? (h == 0 ? scales.x : scales.y) : i < 16 ? scales.x : scales.y;
            stored_products<255, 32, 2, IS_SPREAD>(q + 2 * h, d * scale, v, 4 * h);
        }
    }
};

template <bool IS_SPREAD> struct stored<STORED_iq4_xs, IS_SPREAD> {
    const uint8_t* p;
    uint32_t low, high;
    float d;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk + 8), i(i_)
    {
        uint32_t head[2];
        stored_words<8>(chunk, head);
        d = __half2float(__ushort_as_half((unsigned short)head[0])) * STORED_ONE;
        high = head[0] >> 16, low = head[1];
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t q[4];
        stored_iq4_values<8, IS_SPREAD>(p + group * 16, i, q);
        const uint32_t scale = (low >> (4 * group) & 15u) | (high >> (2 * group) & 3u) << 4;
        stored_products<255, 128, 4, IS_SPREAD>(q, d * stored_integer<32>(scale, 0), v, 0);
    }
};

// ---- Small floats ---------------------------------------------------------------------------------------------------

template <bool IS_SPREAD> struct stored<STORED_e4m3, IS_SPREAD> {
    const uint8_t* p;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), i(i_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
#if __CUDA_ARCH__ >= 890
        uint32_t bytes[2];
        if (!IS_SPREAD) stored_words<8>(p + group * 32 + i, bytes);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint32_t two =
                IS_SPREAD ? stored_pair(p + group * 32 + i + 8 * k) : bytes[k / 2] >> (k % 2 * 16) & 0xffffu;
            uint32_t w;
            asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(w) : "h"((unsigned short)two));
            const float2 f = __half22float2(*(const __half2*)&w);
            v[2 * k] = f.x, v[2 * k + 1] = f.y;
        }
#else
        // Exponent and mantissa move to their places in a half-precision number, and a factor of 256 corrects the bias
        // of the exponent. This is exact, also for subnormal numbers. 127: NaN.
        uint32_t q[4];
        stored_bytes<8, IS_SPREAD>(p + group * 32, i, q);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint32_t magnitude = q[k] & 0x007f007fu, w = magnitude << 7 | (q[k] << 8 & 0x80008000u);
            const float2 f = __half22float2(*(const __half2*)&w);
            v[2 * k] = (magnitude & 127u) == 127u ? __uint_as_float(0x7fc00000u) : f.x * 256.0f;
            v[2 * k + 1] = magnitude >> 16 == 127u ? __uint_as_float(0x7fc00000u) : f.y * 256.0f;
        }
#endif
    }
};
template <bool IS_SPREAD> struct stored<STORED_e5m2, IS_SPREAD> {
    const uint8_t* p;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), i(i_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t q[4];
        stored_bytes<8, IS_SPREAD>(p + group * 32, i, q);
#pragma unroll
        for (int k = 0; k < 4; k++) { // an e5m2 is the upper byte of a half-precision number
            const uint32_t w = q[k] << 8;
            const float2 f = __half22float2(*(const __half2*)&w);
            v[2 * k] = f.x, v[2 * k + 1] = f.y;
        }
    }
};

// Eight elements of a group as bf16, two in each word. scale: of fp8 files, used for e4m3 and e5m2 only.
template <int TYPE, bool IS_SPREAD>
SUMI_DEVICE uint4 stored_bf16(const stored<TYPE, IS_SPREAD>& chunk, int group, float scale)
{
    float v[8];
    chunk.floats(group, v);
    if (TYPE == STORED_e4m3 || TYPE == STORED_e5m2) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] *= scale;
    }
    return make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}
