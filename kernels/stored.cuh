// Unpacks weights of the types of stored.h, eight elements at a time. src/base/dtype.c describes the layouts, and the
// results here equal its results bit for bit: a product of a scale and a code is exact in float, so there is only one
// rounding, that of the sum.
//
//   stored<TYPE> chunk(bytes, element);   a chunk: 256 elements of a row, or the rest of a row after its last whole one
//   chunk.floats(group, v);               v: eight of the elements 32 * group .. 32 * group + 31 of the chunk
//
// `element` is the first of the thread's eight elements of each group of 32. With e = element these are
//   IS_SPREAD false   e .. e + 7; e is 0, 8, 16 or 24
//   IS_SPREAD true    e, e + 1, e + 8, e + 9, e + 16, e + 17, e + 24, e + 25 with e = 2 * (lane & 3): the elements that
//                     a lane holds of two consecutive A fragments of 16 elements of k (portable_sm80.cuh)
//
// `bytes` is aligned to the largest power of 2, up to 16, that divides the length of a whole chunk (ALIGN). The
// constructor reads what all of a thread's elements share. `group` should be a compile-time constant where speed
// matters. block_scale is the half-precision scale of a quantisation block, d in dtype.c. A code is the integer stored
// for an element.
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

SUMI_DEVICE float stored_read_half(const uint8_t* from)
{
    return __half2float(__ushort_as_half(*(const unsigned short*)from));
}
SUMI_DEVICE uint32_t stored_read_u16(const uint8_t* from) { return *(const unsigned short*)from; }
// Reads four or eight bytes at an address that is a multiple of ALIGN.
template <int ALIGN> SUMI_DEVICE uint32_t stored_read_u32(const uint8_t* from)
{
    return ALIGN >= 4 ? *(const uint32_t*)from : stored_read_u16(from) | stored_read_u16(from + 2) << 16;
}
template <int ALIGN> SUMI_DEVICE void stored_read_u32x2(const uint8_t* from, uint32_t (&words)[2])
{
    if (ALIGN >= 8) {
        const uint2 v = *(const uint2*)from;
        words[0] = v.x, words[1] = v.y;
    } else {
        words[0] = stored_read_u32<ALIGN>(from), words[1] = stored_read_u32<ALIGN>(from + 4);
    }
}
// The two low bytes of a word, one in each 16-bit half of the result.
SUMI_DEVICE uint32_t stored_widen_bytes(uint32_t two_bytes) { return __byte_perm(two_bytes, 0, 0x4140); }
// Of the 32 bytes at `from`, one per element, those of the thread's eight elements. codes[i]: elements 2 i and 2 i + 1
// of the eight, one byte in each 16-bit half.
template <int ALIGN, bool IS_SPREAD>
SUMI_DEVICE void stored_read_bytes(const uint8_t* from, int element, uint32_t (&codes)[4])
{
    if (IS_SPREAD) {
#pragma unroll
        for (int i = 0; i < 4; i++) codes[i] = stored_widen_bytes(stored_read_u16(from + element + 8 * i));
    } else {
        uint32_t words[2];
        stored_read_u32x2<ALIGN>(from + element, words);
#pragma unroll
        for (int i = 0; i < 4; i++) codes[i] = __byte_perm(words[i / 2], 0, i % 2 == 0 ? 0x4140 : 0x4342);
    }
}

// ---- Integers to floats ---------------------------------------------------------------------------------------------
// A half-precision number whose 16 bits are an integer n below 1024 is subnormal and has the value n * 2^-24. So two
// integers, one in each half of a word, become two floats in two instructions. An integer that is s bits further up
// needs no shift: it is multiplied by a factor that is 2^s times smaller. All these factors are powers of two, so the
// result is exact.

#define STORED_2_POW_24 0x1p24f // multiplies the factor of integers that are in the lowest bits

// The integers in the two halves of a word, less BIAS, times 2^-24.
template <int BIAS> SUMI_DEVICE float2 stored_halves_to_floats(uint32_t word)
{
    __half2 pair = *(const __half2*)&word;
    if (BIAS != 0) {
        const uint32_t bias = BIAS * 0x00010001u;
        pair = __hsub2(pair, *(const __half2*)&bias);
    }
    return __half22float2(pair);
}
// v[first + 2 i], v[first + 2 i + 1] = factor * 2^-24 * (((half of codes[i]) & MASK) - BIAS), for COUNT words.
// IS_OPERAND false: a zero has the sign of the factor, as the definition in dtype.c gives it. IS_OPERAND true: one
// instruction less; a zero is positive, which makes no difference in the sum of a matrix product.
template <int MASK, int BIAS, int COUNT, bool IS_OPERAND>
SUMI_DEVICE void stored_scale_codes(const uint32_t* codes, float factor, float (&v)[8], int first)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float2 pair =
            stored_halves_to_floats < IS_OPERAND ? 0 : BIAS > (MASK == 255 ? codes[i] : codes[i] & MASK * 0x00010001u);
        const float offset = factor * (BIAS / -STORED_2_POW_24); // exact
        v[first + 2 * i] = IS_OPERAND ? fmaf(factor, pair.x, offset) : factor * pair.x;
        v[first + 2 * i + 1] = IS_OPERAND ? fmaf(factor, pair.y, offset) : factor * pair.y;
    }
}
// The same for formats with an offset: factor * 2^-24 * (half of (codes[i] & mask)) + offset.
template <int COUNT>
SUMI_DEVICE void stored_scale_and_offset(const uint32_t* codes, uint32_t mask, float factor, float offset,
                                         float (&v)[8], int first)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float2 pair = stored_halves_to_floats<0>(codes[i] & mask);
        v[first + 2 * i] = fmaf(factor, pair.x, offset), v[first + 2 * i + 1] = fmaf(factor, pair.y, offset);
    }
}
// Byte `byte` of a word, less BIAS, as a float: the byte becomes the lowest mantissa bits of 2^23.
template <int BIAS> SUMI_DEVICE float stored_byte_to_float(uint32_t word, int byte)
{
    return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440u + (uint32_t)byte)) - (8388608.0f + BIAS);
}

// The codes of a quantisation block of 32 elements that are the nibbles of the 16 bytes at `from`: low nibbles are the
// first 16 elements, high nibbles the last 16. codes: as in stored_read_bytes(), the codes in the lowest four bits of
// each half; the bits above them are undefined. When IS_SPREAD, the codes in codes[2] and codes[3] are four bits
// further up.
template <int ALIGN, bool IS_SPREAD>
SUMI_DEVICE void stored_read_nibbles(const uint8_t* from, int element, uint32_t (&codes)[4])
{
    if (IS_SPREAD) {
        codes[0] = codes[2] = stored_widen_bytes(stored_read_u16(from + element));
        codes[1] = codes[3] = stored_widen_bytes(stored_read_u16(from + element + 8));
    } else {
        uint32_t words[2];
        stored_read_u32x2<ALIGN>(from + element % 16, words);
        const int shift = element >= 16 ? 4 : 0;
#pragma unroll
        for (int i = 0; i < 4; i++) codes[i] = __byte_perm(words[i / 2] >> shift, 0, i % 2 == 0 ? 0x4140 : 0x4342);
    }
}
// The codebook values of the IQ4 types for four codes in the low 16 bits, each as a byte with 128 added.
SUMI_DEVICE uint32_t stored_iq4_codebook(uint32_t codes)
{
    const uint32_t indices = codes & 0x7777u, high = codes >> 1 & 0x4444u;
    // -127 -104 -83 -65   -49 -35 -22 -10   1 13 25 38   53 69 89 113
    const uint32_t a = __byte_perm(0x3f2d1801u, 0x766a5d4fu, indices),
                   b = __byte_perm(0xa6998d81u, 0xf1d9c5b5u, indices);
    return __byte_perm(a, b, 0x3210u | high);
}
// stored_read_nibbles() for the IQ4 types: `codes` has the codebook values, with 128 added.
template <int ALIGN, bool IS_SPREAD>
SUMI_DEVICE void stored_read_iq4(const uint8_t* from, int element, uint32_t (&codes)[4])
{
    uint32_t words[2];
    if (IS_SPREAD) words[0] = stored_read_u16(from + element) | stored_read_u16(from + element + 8) << 16;
    else stored_read_u32x2<ALIGN>(from + element % 16, words);
    const bool is_high = !IS_SPREAD && element >= 16;
#pragma unroll
    for (int i = 0; i < (IS_SPREAD ? 2 : 4); i++) {
        // The values of the nibbles of two bytes: low, high, low, high.
        const uint32_t values = IS_SPREAD ? stored_iq4_codebook(words[0] >> (16 * i) & 0xffffu)
                                          : stored_iq4_codebook(words[i / 2] >> (i % 2 * 16) & 0xffffu);
        if (IS_SPREAD) codes[i] = values & 0x00ff00ffu, codes[i + 2] = values >> 8 & 0x00ff00ffu;
        else codes[i] = values >> (is_high ? 8 : 0) & 0x00ff00ffu;
    }
}

// ---- Types of 32 elements -------------------------------------------------------------------------------------------

template <bool IS_SPREAD> struct stored<STORED_q8_0, IS_SPREAD> {
    const uint8_t* bytes;
    int element;
    SUMI_DEVICE stored(const uint8_t* chunk, int element_) : bytes(chunk), element(element_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const uint8_t* block = bytes + group * 34;
        uint32_t codes[4];
        stored_read_bytes<2, IS_SPREAD>(block + 2, element, codes);
#pragma unroll
        for (int i = 0; i < 4; i++) codes[i] ^= 0x00800080u; // signed bytes to unsigned: 128 is added
        stored_scale_codes<255, 128, 4, IS_SPREAD>(codes, stored_read_half(block) * STORED_2_POW_24, v, 0);
    }
};

// Q4_0, Q4_1, Q5_0, Q5_1: codes of four bits, with HAS_FIFTH of five, in blocks of BLOCK_BYTES bytes. HAS_MINIMUM:
// value = block_scale * code + minimum; otherwise block_scale * (code - 8) or block_scale * (code - 16).
template <int BLOCK_BYTES, bool HAS_MINIMUM, bool HAS_FIFTH, bool IS_SPREAD> struct stored_blocks {
    const uint8_t* bytes;
    int element;
    SUMI_DEVICE stored_blocks(const uint8_t* chunk, int element_) : bytes(chunk), element(element_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const uint8_t* block = bytes + group * BLOCK_BYTES;
        constexpr int FIFTH_BITS_OFFSET = HAS_MINIMUM ? 4 : 2, CODES_OFFSET = FIFTH_BITS_OFFSET + (HAS_FIFTH ? 4 : 0);
        const float factor = stored_read_half(block) * STORED_2_POW_24,
                    offset = HAS_MINIMUM ? stored_read_half(block + 2) : 0.0f;
        uint32_t codes[4];
        stored_read_nibbles<2, IS_SPREAD>(block + CODES_OFFSET, element, codes);
        if (HAS_FIFTH) {
            const uint32_t fifth_bits = stored_read_u32<2>(block + FIFTH_BITS_OFFSET) >> element;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                // The fifth bits of two elements, moved to bit 4 of each half.
                const uint32_t bits = (fifth_bits >> (IS_SPREAD ? 8 * i : 2 * i) & 3u) * 0x00080010u & 0x00100010u;
                codes[i] = (codes[i] >> (IS_SPREAD && i >= 2 ? 4 : 0) & 0x000f000fu) | bits;
            }
            if (HAS_MINIMUM) stored_scale_and_offset<4>(codes, 0x001f001fu, factor, offset, v, 0);
            else stored_scale_codes<255, 16, 4, IS_SPREAD>(codes, factor, v, 0);
        } else if (HAS_MINIMUM) {
            stored_scale_and_offset<2>(codes, 0x000f000fu, factor, offset, v, 0);
            if (IS_SPREAD) stored_scale_and_offset<2>(codes + 2, 0x00f000f0u, factor * 0.0625f, offset, v, 4);
            else stored_scale_and_offset<2>(codes + 2, 0x000f000fu, factor, offset, v, 4);
        } else {
            stored_scale_codes<15, 8, 2, IS_SPREAD>(codes, factor, v, 0);
            if (IS_SPREAD) stored_scale_codes<240, 128, 2, IS_SPREAD>(codes + 2, factor * 0.0625f, v, 4);
            else stored_scale_codes<15, 8, 2, IS_SPREAD>(codes + 2, factor, v, 4);
        }
    }
};
#define BLOCKS(TYPE, BLOCK_BYTES, HAS_MINIMUM, HAS_FIFTH)                                                              \
    template <bool IS_SPREAD>                                                                                          \
    struct stored<TYPE, IS_SPREAD> : stored_blocks<BLOCK_BYTES, HAS_MINIMUM, HAS_FIFTH, IS_SPREAD> {                   \
        using stored_blocks<BLOCK_BYTES, HAS_MINIMUM, HAS_FIFTH, IS_SPREAD>::stored_blocks;                            \
    };
BLOCKS(STORED_q4_0, 18, false, false)
BLOCKS(STORED_q4_1, 20, true, false)
BLOCKS(STORED_q5_0, 22, false, true)
BLOCKS(STORED_q5_1, 24, true, true)
#undef BLOCKS

template <bool IS_SPREAD> struct stored<STORED_iq4_nl, IS_SPREAD> {
    const uint8_t* bytes;
    int element;
    SUMI_DEVICE stored(const uint8_t* chunk, int element_) : bytes(chunk), element(element_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const uint8_t* block = bytes + group * 18;
        uint32_t codes[4];
        stored_read_iq4<2, IS_SPREAD>(block + 2, element, codes);
        stored_scale_codes<255, 128, 4, IS_SPREAD>(codes, stored_read_half(block) * STORED_2_POW_24, v, 0);
    }
};

// ---- Types of 256 elements ------------------------------------------------------------------------------------------

// A scale belongs to 16 elements. The index of the scale of a thread's first four elements (four = 0) or last four
// (four = 1).
template <bool IS_SPREAD> SUMI_DEVICE int stored_scale_index(int group, int element, int four)
{
    return group * 2 + (IS_SPREAD ? four : element / 16);
}

template <bool IS_SPREAD> struct stored<STORED_q2_k, IS_SPREAD> {
    const uint8_t* bytes;
    float block_scale, block_minimum; // times 2^24
    int element;
    SUMI_DEVICE stored(const uint8_t* chunk, int element_)
        : bytes(chunk), block_scale(stored_read_half(chunk + 80) * STORED_2_POW_24),
          block_minimum(stored_read_half(chunk + 82) * STORED_2_POW_24), element(element_)
    {
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t codes[4];
        stored_read_bytes<4, IS_SPREAD>(bytes + 16 + group / 4 * 32, element, codes);
#pragma unroll
        for (int four = 0; four < 2; four++) {
            const uint32_t packed = bytes[stored_scale_index<IS_SPREAD>(group, element, four)];
            // The scale and the minimum, as integers.
            const float2 integers = stored_halves_to_floats<0>((packed & 15u) | (packed & 240u) << 12);
            // block_scale has a factor of 2^24 and the scale one of 2^-24, which cancel. The codes have a factor of
            // 2^-24 and are two bits further up in each group of four, which 2^(24 - 2 * (group % 4)) cancels.
            const float factor = block_scale * integers.x * __uint_as_float((127u + 24 - group % 4 * 2) << 23);
            stored_scale_and_offset<2>(codes + 2 * four, 0x00030003u << (group % 4 * 2), factor,
                                       -(block_minimum * integers.y), v, 4 * four);
        }
    }
};

template <bool IS_SPREAD> struct stored<STORED_q3_k, IS_SPREAD> {
    const uint8_t* bytes;
    uint32_t third_bits[4];              // of the codes
    uint32_t scales_low[2], scales_high; // the low four and the high two bits of the scales
    float block_scale;                   // times 2^24
    int element;
    SUMI_DEVICE stored(const uint8_t* chunk, int element_)
        : bytes(chunk), block_scale(stored_read_half(chunk + 108) * STORED_2_POW_24), element(element_)
    {
        stored_read_bytes<2, IS_SPREAD>(chunk, element, third_bits);
        stored_read_u32x2<2>(chunk + 96, scales_low);
        scales_high = stored_read_u32<2>(chunk + 104);
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t codes[4];
        stored_read_bytes<2, IS_SPREAD>(bytes + 32 + group / 4 * 32, element, codes);
#pragma unroll
        for (int i = 0; i < 4; i++)
            codes[i] = (codes[i] >> (group % 4 * 2) & 0x00030003u) | (third_bits[i] >> group & 0x00010001u) << 2;
#pragma unroll
        for (int four = 0; four < 2; four++) {
            const int index = stored_scale_index<IS_SPREAD>(group, element, four);
            // Low bits: the low nibbles of the 8 bytes, then their high nibbles. High bits: bits 0 and 1 of the 4
            // bytes, then bits 2 and 3, and so on.
            const uint32_t word = index % 8 < 4 ? scales_low[0] : scales_low[1],
                           low = word >> (index % 4 * 8 + index / 8 * 4) & 15u,
                           high = scales_high >> (index % 4 * 8 + index / 4 * 2) & 3u;
            stored_scale_codes<255, 4, 2, IS_SPREAD>(
                codes + 2 * four, block_scale * stored_byte_to_float<32>(low | high << 4, 0), v, 4 * four);
        }
    }
};

// The first 16 bytes of a chunk of Q4_K and Q5_K: block_scale, block_minimum, and the 6-bit scales and minima of 8
// groups.
struct stored_k_scales {
    float block_scale, block_minimum; // times 2^24; block_minimum with its sign changed
    uint32_t packed[3];               // scales and minima
    SUMI_DEVICE explicit stored_k_scales(const uint8_t* chunk)
    {
        const uint4 words = *(const uint4*)chunk;
        block_scale = __half2float(__ushort_as_half((unsigned short)words.x)) * STORED_2_POW_24;
        block_minimum = -__half2float(__ushort_as_half((unsigned short)(words.x >> 16))) * STORED_2_POW_24;
        packed[0] = words.y, packed[1] = words.z, packed[2] = words.w;
    }
    // The factor and offset of a group, for codes that are `shift` bits up (0 or 4).
    SUMI_DEVICE void factor_and_offset(int group, int shift, float* factor, float* offset) const
    {
        // These words hold the scales and minima of four groups. A thread that unpacks several of the four computes
        // them once.
        const uint32_t scales = group < 4 ? packed[0] & 0x3f3f3f3fu
                                          : (packed[2] & 0x0f0f0f0fu) | (packed[0] >> 2 & 0x30303030u),
                       minima = group < 4 ? packed[1] & 0x3f3f3f3fu
                                          : (packed[2] >> 4 & 0x0f0f0f0fu) | (packed[1] >> 2 & 0x30303030u);
        const int byte = group % 4; // of both words; one goes into each half
        // The scale and the minimum, as integers.
        const float2 integers =
            stored_halves_to_floats<0>(__byte_perm(scales, minima, byte + (byte + 4) * 256) & 0x00ff00ffu);
        *factor = (shift == 0 ? block_scale * STORED_2_POW_24 : block_scale * (STORED_2_POW_24 / 16)) * integers.x;
        *offset = block_minimum * integers.y;
    }
};
template <bool IS_SPREAD> struct stored<STORED_q4_k, IS_SPREAD> {
    const uint8_t* bytes;
    stored_k_scales scales;
    int element;
    SUMI_DEVICE stored(const uint8_t* chunk, int element_) : bytes(chunk + 16), scales(chunk), element(element_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const int shift = group % 2 * 4; // odd groups are the high nibbles
        uint32_t codes[4];
        float factor, offset;
        stored_read_bytes<8, IS_SPREAD>(bytes + group / 2 * 32, element, codes);
        scales.factor_and_offset(group, shift, &factor, &offset);
        stored_scale_and_offset<4>(codes, 0x000f000fu << shift, factor, offset, v, 0);
    }
};
template <bool IS_SPREAD> struct stored<STORED_q5_k, IS_SPREAD> {
    const uint8_t* bytes;
    stored_k_scales scales;
    uint32_t fifth_bits[4];
    int element;
    SUMI_DEVICE stored(const uint8_t* chunk, int element_) : bytes(chunk + 48), scales(chunk), element(element_)
    {
        stored_read_bytes<8, IS_SPREAD>(chunk + 16, element, fifth_bits);
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const int shift = group % 2 * 4; // odd groups are the high nibbles; the fifth bit goes above the code
        uint32_t codes[4];
        float factor, offset;
        stored_read_bytes<8, IS_SPREAD>(bytes + group / 2 * 32, element, codes);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t mask = 0x00100010u << shift, bits = group < 4 + shift ? fifth_bits[i] << (4 + shift - group)
                                                                                 : fifth_bits[i] >> (group - 4 - shift);
            codes[i] = (codes[i] & ~mask) | (bits & mask);
        }
        scales.factor_and_offset(group, shift, &factor, &offset);
        stored_scale_and_offset<4>(codes, 0x001f001fu << shift, factor, offset, v, 0);
    }
};

template <bool IS_SPREAD> struct stored<STORED_q6_k, IS_SPREAD> {
    const uint8_t* bytes;
    float block_scale; // times 2^48: codes and scales have a factor of 2^-24 each
    int element;
    SUMI_DEVICE stored(const uint8_t* chunk, int element_)
        : bytes(chunk), block_scale(stored_read_half(chunk + 208) * STORED_2_POW_24 * STORED_2_POW_24),
          element(element_)
    {
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const int half = group / 4, group_in_half = group % 4; // of the chunk
        uint32_t codes[4], high_bits[4];
        stored_read_bytes<2, IS_SPREAD>(bytes + half * 64 + group_in_half % 2 * 32, element, codes);
        stored_read_bytes<2, IS_SPREAD>(bytes + 128 + half * 32, element, high_bits);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            // Both high bits of two codes, moved to bits 4 and 5 of each half.
            const uint32_t bits = 2 * group_in_half < 4 ? high_bits[i] << (4 - 2 * group_in_half)
                                                        : high_bits[i] >> (2 * group_in_half - 4);
            codes[i] = (codes[i] >> (group_in_half / 2 * 4) & 0x000f000fu) | (bits & 0x00300030u);
        }
        const float2 scales =
            stored_halves_to_floats<128>(stored_widen_bytes(stored_read_u16(bytes + 192 + 2 * group)) ^ 0x00800080u);
#pragma unroll
        for (int four = 0; four < 2; four++) {
            const float scale = IS_SPREAD ? (four == 0 ? scales.x : scales.y) : element < 16 ? scales.x : scales.y;
            stored_scale_codes<255, 32, 2, IS_SPREAD>(codes + 2 * four, block_scale * scale, v, 4 * four);
        }
    }
};

template <bool IS_SPREAD> struct stored<STORED_iq4_xs, IS_SPREAD> {
    const uint8_t* bytes;
    uint32_t scales_low, scales_high; // the low four and the high two bits of the scales
    float block_scale;                // times 2^24
    int element;
    SUMI_DEVICE stored(const uint8_t* chunk, int element_) : bytes(chunk + 8), element(element_)
    {
        uint32_t words[2];
        stored_read_u32x2<8>(chunk, words);
        block_scale = __half2float(__ushort_as_half((unsigned short)words[0])) * STORED_2_POW_24;
        scales_high = words[0] >> 16, scales_low = words[1];
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t codes[4];
        stored_read_iq4<8, IS_SPREAD>(bytes + group * 16, element, codes);
        const uint32_t scale = (scales_low >> (4 * group) & 15u) | (scales_high >> (2 * group) & 3u) << 4;
        stored_scale_codes<255, 128, 4, IS_SPREAD>(codes, block_scale * stored_byte_to_float<32>(scale, 0), v, 0);
    }
};

// ---- Small floats ---------------------------------------------------------------------------------------------------

template <bool IS_SPREAD> struct stored<STORED_e4m3, IS_SPREAD> {
    const uint8_t* bytes;
    int element;
    SUMI_DEVICE stored(const uint8_t* chunk, int element_) : bytes(chunk), element(element_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
#if __CUDA_ARCH__ >= 890
        uint32_t words[2];
        if (!IS_SPREAD) stored_read_u32x2<8>(bytes + group * 32 + element, words);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t codes = IS_SPREAD ? stored_read_u16(bytes + group * 32 + element + 8 * i)
                                             : words[i / 2] >> (i % 2 * 16) & 0xffffu;
            uint32_t halves;
            asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)codes));
            const float2 pair = __half22float2(*(const __half2*)&halves);
            v[2 * i] = pair.x, v[2 * i + 1] = pair.y;
        }
#else
        // Exponent and mantissa move to their places in a half-precision number, and a factor of 256 corrects the bias
        // of the exponent. This is exact, also for subnormal numbers. 127: NaN.
        uint32_t codes[4];
        stored_read_bytes<8, IS_SPREAD>(bytes + group * 32, element, codes);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t magnitude = codes[i] & 0x007f007fu, halves = magnitude << 7 | (codes[i] << 8 & 0x80008000u);
            const float2 pair = __half22float2(*(const __half2*)&halves);
            v[2 * i] = (magnitude & 127u) == 127u ? __uint_as_float(0x7fc00000u) : pair.x * 256.0f;
            v[2 * i + 1] = magnitude >> 16 == 127u ? __uint_as_float(0x7fc00000u) : pair.y * 256.0f;
        }
#endif
    }
};
template <bool IS_SPREAD> struct stored<STORED_e5m2, IS_SPREAD> {
    const uint8_t* bytes;
    int element;
    SUMI_DEVICE stored(const uint8_t* chunk, int element_) : bytes(chunk), element(element_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t codes[4];
        stored_read_bytes<8, IS_SPREAD>(bytes + group * 32, element, codes);
#pragma unroll
        for (int i = 0; i < 4; i++) { // an e5m2 is the upper byte of a half-precision number
            const uint32_t halves = codes[i] << 8;
            const float2 pair = __half22float2(*(const __half2*)&halves);
            v[2 * i] = pair.x, v[2 * i + 1] = pair.y;
        }
    }
};

// ---- Elements with factors from another place of the file (stored.h) ------------------------------------------------

// The e4m3 numbers in the two low bytes.
SUMI_DEVICE float2 stored_e4m3_pair(uint32_t two_bytes)
{
#if __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)two_bytes));
    return __half22float2(*(const __half2*)&halves);
#else
    const uint32_t codes = stored_widen_bytes(two_bytes), magnitude = codes & 0x007f007fu, // as stored<STORED_e4m3>
        halves = magnitude << 7 | (codes << 8 & 0x80008000u);
    const float2 pair = __half22float2(*(const __half2*)&halves);
    return make_float2((magnitude & 127u) == 127u ? __uint_as_float(0x7fc00000u) : pair.x * 256.0f,
                       magnitude >> 16 == 127u ? __uint_as_float(0x7fc00000u) : pair.y * 256.0f);
#endif
}
// v[first + 2 i], v[first + 2 i + 1] = factor * the e2m1 numbers in bits SHIFT .. SHIFT + 3 of the halves of codes[i],
// for COUNT words; factor is 2^14 times too large. Exponent and mantissa of an e2m1 move to the upper bits of the
// mantissa and the lower bits of the exponent of a half-precision number, which is then 2^-14 of it, also where it is
// subnormal.
template <int SHIFT, int COUNT>
SUMI_DEVICE void stored_scale_e2m1(const uint32_t* codes, float factor, float (&v)[8], int first)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const uint32_t halves =
            (codes[i] & 0x00070007u << SHIFT) << (9 - SHIFT) | (codes[i] & 0x00080008u << SHIFT) << (12 - SHIFT);
        const float2 pair = __half22float2(*(const __half2*)&halves);
        v[first + 2 * i] = factor * pair.x, v[first + 2 * i + 1] = factor * pair.y;
    }
}
template <bool IS_SPREAD> struct stored<STORED_nvfp4, IS_SPREAD> {
    const uint8_t* bytes;
    int element;
    SUMI_DEVICE stored(const uint8_t* chunk, int element_) : bytes(chunk), element(element_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const uint8_t* block = bytes + group * 18;
        const float2 factors = stored_e4m3_pair(stored_read_u16(block));
        uint32_t codes[4];
        stored_read_nibbles<2, IS_SPREAD>(block + 2, element, codes);
        if (IS_SPREAD) {
            stored_scale_e2m1<0, 2>(codes, factors.x * 0x1p14f, v, 0);
            stored_scale_e2m1<4, 2>(codes + 2, factors.y * 0x1p14f, v, 4);
        } else {
            stored_scale_e2m1<0, 4>(codes, (element < 16 ? factors.x : factors.y) * 0x1p14f, v, 0);
        }
    }
};
template <bool IS_SPREAD> struct stored<STORED_e4m3b, IS_SPREAD> {
    const uint8_t* bytes;
    int element;
    SUMI_DEVICE stored(const uint8_t* chunk, int element_) : bytes(chunk), element(element_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const float factor = ((const float*)bytes)[group / 2];
        stored<STORED_e4m3, IS_SPREAD>(bytes + 16, element).floats(group, v);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] *= factor;
    }
};

// Eight elements of a group as bf16, two in each word. scale: of files of fp8 and nvfp4, used for their types only.
template <int TYPE, bool IS_SPREAD>
SUMI_DEVICE uint4 stored_bf16(const stored<TYPE, IS_SPREAD>& chunk, int group, float scale)
{
    float v[8];
    chunk.floats(group, v);
    if (TYPE >= STORED_e4m3) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] *= scale;
    }
    return make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}
