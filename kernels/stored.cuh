// The types of stored.h, eight elements at a time. The layouts stand in src/base/dtype.c, and so does why the results are
// its results bit for bit: a product of a scale and an integer is exact, so that there is one rounding, of the sum.
//
//   stored<TYPE> chunk(bytes, i);       256 elements of a row, or a row's last
//   chunk.floats(group, v);             v: eight of the elements 32 * group to 32 * group + 31
//
// Which eight: i to i + 7, i a multiple of 8. Or, as the lanes of a matrix product want them (IS_SPREAD), i is twice the
// lane's place among four, and they are i, i + 1, i + 8, i + 9, i + 16, i + 17, i + 24, i + 25.
//
// The chunk's first byte is aligned as the chunk's length is, at most to 16 bytes. What all of a thread's elements share
// is read when the chunk is made. `group` should be known to the compiler where speed matters.
#pragma once
#include "common.cuh"
#include "stored.h"
#include <cuda_fp16.h>

enum stored_type {
#define TYPE(name, number, bytes) STORED_##name = number,
    SUMI_STORED_TYPES(TYPE)
#undef TYPE
};
template <int TYPE> struct stored_layout;
#define TYPE(name, number, bytes)                                                                                      \
    template <> struct stored_layout<number> {                                                                         \
        enum { BYTES = bytes, ALIGN = bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 2 };            \
    };
SUMI_STORED_TYPES(TYPE)
#undef TYPE
template <int TYPE, bool IS_SPREAD = false> struct stored;

// ---- Reading bytes --------------------------------------------------------------------------------------------------

SUMI_DEVICE float stored_half(const uint8_t* p) { return __half2float(__ushort_as_half(*(const unsigned short*)p)); }
SUMI_DEVICE uint32_t stored_pair(const uint8_t* p) { return *(const unsigned short*)p; }
// Four and eight bytes at an address that is a multiple of ALIGN.
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
// Of 32 bytes at p, one for each element, those of the thread's eight.
template <int ALIGN, bool IS_SPREAD> SUMI_DEVICE void stored_bytes(const uint8_t* p, int i, uint32_t (&w)[2])
{
    if (!IS_SPREAD) return stored_words<ALIGN>(p + i, w);
    w[0] = stored_pair(p + i) | stored_pair(p + i + 8) << 16;
    w[1] = stored_pair(p + i + 16) | stored_pair(p + i + 24) << 16;
}

// ---- Bytes to floats ------------------------------------------------------------------------------------------------

// Byte i of w, less BIAS: as the last digits of 2^23, which needs no conversion.
template <int BIAS> SUMI_DEVICE float stored_integer(uint32_t w, int i)
{
    return __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7440u + (uint32_t)i)) - (8388608.0f + BIAS);
}
// Four of them, times a factor, to v[first] and on.
template <int BIAS> SUMI_DEVICE void stored_products(uint32_t q, float factor, float (&v)[8], int first)
{
#pragma unroll
    for (int i = 0; i < 4; i++) v[first + i] = factor * stored_integer<BIAS>(q, i);
}
template <int BIAS> SUMI_DEVICE void stored_products(const uint32_t (&q)[2], float factor, float (&v)[8])
{
    stored_products<BIAS>(q[0], factor, v, 0);
    stored_products<BIAS>(q[1], factor, v, 4);
}
// The same plus an offset.
SUMI_DEVICE void stored_sums(uint32_t q, float factor, float offset, float (&v)[8], int first)
{
#pragma unroll
    for (int i = 0; i < 4; i++) v[first + i] = fmaf(factor, stored_integer<0>(q, i), offset);
}
SUMI_DEVICE void stored_sums(const uint32_t (&q)[2], float factor, float offset, float (&v)[8])
{
    stored_sums(q[0], factor, offset, v, 0);
    stored_sums(q[1], factor, offset, v, 4);
}
// Bits 0 to 3 of b, one to a byte, each four bits up.
SUMI_DEVICE uint32_t stored_fifth(uint32_t b) { return ((b & 15u) * 0x00204081u & 0x01010101u) << 4; }
// Nibbles of bytes: the low ones, or the high ones when shift is 4.
SUMI_DEVICE void stored_nibbles(const uint32_t (&w)[2], int shift, uint32_t (&q)[2])
{
    q[0] = w[0] >> shift & 0x0f0f0f0fu, q[1] = w[1] >> shift & 0x0f0f0f0fu;
}
// The values that the IQ4 types' codes stand for, 128 more than they are: of four codes in the nibbles of 16 bits.
SUMI_DEVICE uint32_t stored_iq4(uint32_t codes)
{
    const uint32_t at = codes & 0x7777u, high = codes >> 1 & 0x4444u;
    // -127 -104 -83 -65   -49 -35 -22 -10   1 13 25 38   53 69 89 113
    const uint32_t a = __byte_perm(0x3f2d1801u, 0x766a5d4fu, at), b = __byte_perm(0xa6998d81u, 0xf1d9c5b5u, at);
    return __byte_perm(a, b, 0x3210u | high);
}
// Blocks of 32 elements whose codes are the nibbles of 16 bytes at p: the low ones are the first 16 elements'. q: codes, or
// what stored_iq4 makes of them.
template <int ALIGN, bool IS_SPREAD, bool IS_IQ4>
SUMI_DEVICE void stored_codes(const uint8_t* p, int i, uint32_t (&q)[2])
{
    uint32_t w[2];
    if (IS_SPREAD) w[0] = w[1] = stored_pair(p + i) | stored_pair(p + i + 8) << 16; // both halves are in these bytes
    else stored_words<ALIGN>(p + i % 16, w);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const bool is_high = IS_SPREAD ? h == 1 : i >= 16;
        if (IS_IQ4) q[h] = __byte_perm(stored_iq4(w[h] & 0xffffu), stored_iq4(w[h] >> 16), is_high ? 0x7531u : 0x6420u);
        else q[h] = w[h] >> (is_high ? 4 : 0) & 0x0f0f0f0fu;
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
        uint32_t q[2];
        stored_bytes<2, IS_SPREAD>(block + 2, i, q);
        q[0] ^= 0x80808080u, q[1] ^= 0x80808080u; // from -128 on
        stored_products<128>(q, stored_half(block), v);
    }
};

// Codes of four bits and perhaps a fifth, with an offset or around the middle.
template <int BYTES, bool HAS_MINIMUM, bool HAS_FIFTH, bool IS_SPREAD> struct stored_blocks {
    const uint8_t* p;
    int i;
    SUMI_DEVICE stored_blocks(const uint8_t* chunk, int i_) : p(chunk), i(i_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const uint8_t* block = p + group * BYTES;
        constexpr int FIFTH = HAS_MINIMUM ? 4 : 2, CODES = FIFTH + (HAS_FIFTH ? 4 : 0);
        uint32_t q[2];
        stored_codes<2, IS_SPREAD, false>(block + CODES, i, q);
        if (HAS_FIFTH) {
            const uint32_t high = stored_word<2>(block + FIFTH) >> i;
            q[0] |= stored_fifth(IS_SPREAD ? (high & 3u) | (high >> 6 & 12u) : high);
            q[1] |= stored_fifth(IS_SPREAD ? (high >> 16 & 3u) | (high >> 22 & 12u) : high >> 4);
        }
        if (HAS_MINIMUM) stored_sums(q, stored_half(block), stored_half(block + 2), v);
        else stored_products<HAS_FIFTH ? 16 : 8>(q, stored_half(block), v);
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
        uint32_t q[2];
        stored_codes<2, IS_SPREAD, true>(block + 2, i, q);
        stored_products<128>(q, stored_half(block), v);
    }
};

// ---- Types of 256 elements ------------------------------------------------------------------------------------------

// The scale of 16 elements that a thread's first four (h 0) or last four belong to.
template <bool IS_SPREAD> SUMI_DEVICE int stored_sixteenth(int group, int i, int h)
{
    return group * 2 + (IS_SPREAD ? h : i / 16);
}

template <bool IS_SPREAD> struct stored<STORED_q2_k, IS_SPREAD> {
    const uint8_t* p;
    float d, minimum;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_)
        : p(chunk), d(stored_half(chunk + 80)), minimum(stored_half(chunk + 82)), i(i_)
    {
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t q[2];
        stored_bytes<4, IS_SPREAD>(p + 16 + group / 4 * 32, i, q);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t packed = p[stored_sixteenth<IS_SPREAD>(group, i, h)];
            stored_sums(q[h] >> (group % 4 * 2) & 0x03030303u, d * stored_integer<0>(packed & 15u, 0),
                        -(minimum * stored_integer<0>(packed >> 4, 0)), v, 4 * h);
        }
    }
};

template <bool IS_SPREAD> struct stored<STORED_q3_k, IS_SPREAD> {
    const uint8_t* p;
    uint32_t third[2], low[2], high; // of the elements; of the scales
    float d;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), d(stored_half(chunk + 108)), i(i_)
    {
        stored_bytes<2, IS_SPREAD>(chunk, i, third);
        stored_words<2>(chunk + 96, low);
        high = stored_word<2>(chunk + 104);
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t q[2];
        stored_bytes<2, IS_SPREAD>(p + 32 + group / 4 * 32, i, q);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int s = stored_sixteenth<IS_SPREAD>(group, i, h);
            const uint32_t nibble = (s % 8 < 4 ? low[0] : low[1]) >> (s % 4 * 8 + s / 8 * 4) & 15u,
                           pair = high >> (s % 4 * 8 + s / 4 * 2) & 3u;
            stored_products<4>((q[h] >> (group % 4 * 2) & 0x03030303u) | (third[h] >> group & 0x01010101u) << 2,
                               d * stored_integer<32>(nibble | pair << 4, 0), v, 4 * h);
        }
    }
};

// What Q4_K and Q5_K have in common: the first 16 bytes.
struct stored_k_scales {
    float d, minimum;
    uint32_t s[3];
    SUMI_DEVICE explicit stored_k_scales(const uint8_t* chunk)
    {
        const uint4 head = *(const uint4*)chunk;
        d = __half2float(__ushort_as_half((unsigned short)head.x));
        minimum = __half2float(__ushort_as_half((unsigned short)(head.x >> 16)));
        s[0] = head.y, s[1] = head.z, s[2] = head.w;
    }
    SUMI_DEVICE void of(int group, float* factor, float* offset) const
    {
        const int at = group % 4 * 8;
        const uint32_t a = s[0] >> at, b = s[1] >> at, c = s[2] >> at;
        const uint32_t scale = group < 4 ? a & 63u : (c & 15u) | (a >> 2 & 0x30u),
                       least = group < 4 ? b & 63u : (c >> 4 & 15u) | (b >> 2 & 0x30u);
        *factor = d * stored_integer<0>(scale, 0);
        *offset = -(minimum * stored_integer<0>(least, 0));
    }
};
template <bool IS_SPREAD> struct stored<STORED_q4_k, IS_SPREAD> {
    const uint8_t* p;
    stored_k_scales scales;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk + 16), scales(chunk), i(i_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t w[2], q[2];
        float factor, offset;
        stored_bytes<8, IS_SPREAD>(p + group / 2 * 32, i, w);
        stored_nibbles(w, group % 2 * 4, q);
        scales.of(group, &factor, &offset);
        stored_sums(q, factor, offset, v);
    }
};
template <bool IS_SPREAD> struct stored<STORED_q5_k, IS_SPREAD> {
    const uint8_t* p;
    stored_k_scales scales;
    uint32_t fifth[2];
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk + 48), scales(chunk), i(i_)
    {
        stored_bytes<8, IS_SPREAD>(chunk + 16, i, fifth);
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t w[2], q[2];
        float factor, offset;
        stored_bytes<8, IS_SPREAD>(p + group / 2 * 32, i, w);
        stored_nibbles(w, group % 2 * 4, q);
#pragma unroll
        for (int h = 0; h < 2; h++) q[h] |= (fifth[h] >> group & 0x01010101u) << 4;
        scales.of(group, &factor, &offset);
        stored_sums(q, factor, offset, v);
    }
};

template <bool IS_SPREAD> struct stored<STORED_q6_k, IS_SPREAD> {
    const uint8_t* p;
    float d;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), d(stored_half(chunk + 208)), i(i_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        const int half = group / 4, r = group % 4;
        uint32_t w[2], high[2], q[2];
        stored_bytes<2, IS_SPREAD>(p + half * 64 + r % 2 * 32, i, w);
        stored_bytes<2, IS_SPREAD>(p + 128 + half * 32, i, high);
        stored_nibbles(w, r / 2 * 4, q);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t scale = p[192 + stored_sixteenth<IS_SPREAD>(group, i, h)];
            stored_products<32>(q[h] | (high[h] >> (2 * r) & 0x03030303u) << 4,
                                d * stored_integer<128>(scale ^ 0x80u, 0), v, 4 * h);
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
        d = __half2float(__ushort_as_half((unsigned short)head[0]));
        high = head[0] >> 16, low = head[1];
    }
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t q[2];
        stored_codes<8, IS_SPREAD, true>(p + group * 16, i, q);
        const uint32_t scale = (low >> (4 * group) & 15u) | (high >> (2 * group) & 3u) << 4;
        stored_products<128>(q, d * stored_integer<32>(scale, 0), v);
    }
};

// ---- Small floats ---------------------------------------------------------------------------------------------------
// The exponent and the mantissa move to their places in a float, or in a half, and one factor corrects the exponent's
// bias: exact, for subnormal numbers too.

template <bool IS_SPREAD> struct stored<STORED_e4m3, IS_SPREAD> {
    const uint8_t* p;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), i(i_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t w[2];
        stored_bytes<8, IS_SPREAD>(p + group * 32, i, w);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const uint32_t b = w[k / 4] >> (k % 4 * 8), magnitude = b & 0x7fu;
            v[k] = __uint_as_float(magnitude << 20 | (b & 0x80u) << 24) * 0x1p120f;
            if (magnitude == 0x7fu) v[k] = __uint_as_float(0x7fc00000u);
        }
    }
};
template <bool IS_SPREAD> struct stored<STORED_e5m2, IS_SPREAD> {
    const uint8_t* p;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), i(i_) {}
    SUMI_DEVICE void floats(int group, float (&v)[8]) const
    {
        uint32_t w[2];
        stored_bytes<8, IS_SPREAD>(p + group * 32, i, w);
#pragma unroll
        for (int k = 0; k < 8; k++)
            v[k] = __half2float(__ushort_as_half((unsigned short)(w[k / 4] >> (k % 4 * 8) << 8)));
    }
};

// Eight elements as bfloat16. scale: fp8 files' own, 1 for the others.
template <int TYPE, bool IS_SPREAD>
SUMI_DEVICE uint4 stored_bf16(const stored<TYPE, IS_SPREAD>& chunk, int group, float scale)
{
    float v[8];
    chunk.floats(group, v);
    if (TYPE == STORED_e4m3 || TYPE == STORED_e5m2) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] *= scale;
    }
    return make_uint4(pack2_bf16(v[0], v[1]), pack2_bf16(v[2], v[3]), pack2_bf16(v[4], v[5]), pack2_bf16(v[6], v[7]));
}
