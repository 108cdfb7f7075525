// The types of stored.h, eight elements at a time. The layouts stand in src/base/dtype.c, and so does why the results are
// its results bit for bit: a product of a scale and an integer is exact, so that there is one rounding, of the sum.
//
//   stored<TYPE> chunk(bytes, i);       256 elements of a row, or a row's last; i: e % 32 of all e that follow
//   chunk.floats(e, v);                 v: elements e to e + 7; e is a multiple of 8
//
// The chunk's first byte is aligned as the chunk's length is, at most to 16 bytes. What all of a thread's elements share
// is read when the chunk is made. `e / 32` should be known to the compiler where speed matters.
#pragma once
#include "common.cuh"
#include "stored.h"
#include <cuda_fp16.h>

// ---- Reading bytes --------------------------------------------------------------------------------------------------

SUMI_DEVICE float stored_half(const uint8_t* p) { return __half2float(__ushort_as_half(*(const unsigned short*)p)); }
// Four and eight bytes at an address that is a multiple of ALIGN.
template <int ALIGN> SUMI_DEVICE uint32_t stored_word(const uint8_t* p)
{
    if (ALIGN >= 4) return *(const uint32_t*)p;
    return (uint32_t) * (const unsigned short*)p | (uint32_t) * (const unsigned short*)(p + 2) << 16;
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

// ---- Bytes to floats ------------------------------------------------------------------------------------------------

// Byte i of w, less BIAS: as the last digits of 2^23, which needs no conversion.
template <int BIAS> SUMI_DEVICE float stored_integer(uint32_t w, int i)
{
    return __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7440u + (uint32_t)i)) - (8388608.0f + BIAS);
}
template <int BIAS> SUMI_DEVICE void stored_products(const uint32_t (&q)[2], float factor, float (&v)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = factor * stored_integer<BIAS>(q[i / 4], i % 4);
}
SUMI_DEVICE void stored_sums(const uint32_t (&q)[2], float factor, float offset, float (&v)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = fmaf(factor, stored_integer<0>(q[i / 4], i % 4), offset);
}
// Bits 0 to 3 of b, one to a byte, each `at` bits up.
SUMI_DEVICE uint32_t stored_bits(uint32_t b, int at) { return ((b & 15u) * 0x00204081u & 0x01010101u) << at; }
// Nibbles of bytes: the low ones, or the high ones when shift is 4.
SUMI_DEVICE void stored_nibbles(const uint32_t (&w)[2], int shift, uint32_t (&q)[2])
{
    q[0] = w[0] >> shift & 0x0f0f0f0fu, q[1] = w[1] >> shift & 0x0f0f0f0fu;
}
// The values that the IQ4 types' codes stand for, 128 more than they are. Four codes in the nibbles of 16 bits.
SUMI_DEVICE uint32_t stored_iq4(uint32_t codes)
{
    const uint32_t at = codes & 0x7777u, high = codes >> 1 & 0x4444u;
    // -127 -104 -83 -65   -49 -35 -22 -10   1 13 25 38   53 69 89 113
    const uint32_t a = __byte_perm(0x3f2d1801u, 0x766a5d4fu, at), b = __byte_perm(0xa6998d81u, 0xf1d9c5b5u, at);
    return __byte_perm(a, b, 0x3210u | high);
}
// w: eight bytes of codes; q: the values of the low nibbles, or of the high ones.
SUMI_DEVICE void stored_iq4_values(const uint32_t (&w)[2], bool is_high, uint32_t (&q)[2])
{
    const uint32_t pick = is_high ? 0x7531u : 0x6420u;
#pragma unroll
    for (int i = 0; i < 2; i++) q[i] = __byte_perm(stored_iq4(w[i] & 0xffffu), stored_iq4(w[i] >> 16), pick);
}

// ---- Types ----------------------------------------------------------------------------------------------------------

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
template <int TYPE> struct stored;

template <> struct stored<STORED_q8_0> {
    const uint8_t* p;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), i(i_) {}
    SUMI_DEVICE void floats(int e, float (&v)[8]) const
    {
        const uint8_t* block = p + e / 32 * 34;
        uint32_t q[2];
        stored_words<2>(block + 2 + i, q);
        q[0] ^= 0x80808080u, q[1] ^= 0x80808080u; // from -128 on
        stored_products<128>(q, stored_half(block), v);
    }
};

// The types of 32 elements with nibbles: FIFTH bits and an offset (HAS_MINIMUM) or none.
template <int BYTES, bool HAS_MINIMUM, bool HAS_FIFTH> struct stored_nibble_blocks {
    const uint8_t* p;
    int i;
    SUMI_DEVICE stored_nibble_blocks(const uint8_t* chunk, int i_) : p(chunk), i(i_) {}
    SUMI_DEVICE void floats(int e, float (&v)[8]) const
    {
        const uint8_t* block = p + e / 32 * BYTES;
        constexpr int FIFTH = HAS_MINIMUM ? 4 : 2, NIBBLES = FIFTH + (HAS_FIFTH ? 4 : 0);
        uint32_t w[2], q[2];
        stored_words<2>(block + NIBBLES + i % 16, w);
        stored_nibbles(w, i / 16 * 4, q);
        if (HAS_FIFTH) {
            const uint32_t high = stored_word<2>(block + FIFTH) >> i;
            q[0] |= stored_bits(high, 4), q[1] |= stored_bits(high >> 4, 4);
        }
        if (HAS_MINIMUM) stored_sums(q, stored_half(block), stored_half(block + 2), v);
        else stored_products<HAS_FIFTH ? 16 : 8>(q, stored_half(block), v);
    }
};
template <> struct stored<STORED_q4_0> : stored_nibble_blocks<18, false, false> {
    using stored_nibble_blocks::stored_nibble_blocks;
};
template <> struct stored<STORED_q4_1> : stored_nibble_blocks<20, true, false> {
    using stored_nibble_blocks::stored_nibble_blocks;
};
template <> struct stored<STORED_q5_0> : stored_nibble_blocks<22, false, true> {
    using stored_nibble_blocks::stored_nibble_blocks;
};
template <> struct stored<STORED_q5_1> : stored_nibble_blocks<24, true, true> {
    using stored_nibble_blocks::stored_nibble_blocks;
};

template <> struct stored<STORED_q2_k> {
    const uint8_t* p;
    float d, minimum;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_)
        : p(chunk), d(stored_half(chunk + 80)), minimum(stored_half(chunk + 82)), i(i_)
    {
    }
    SUMI_DEVICE void floats(int e, float (&v)[8]) const
    {
        const int run = e / 32, shift = run % 4 * 2;
        uint32_t q[2];
        stored_words<4>(p + 16 + run / 4 * 32 + i, q);
        q[0] = q[0] >> shift & 0x03030303u, q[1] = q[1] >> shift & 0x03030303u;
        const uint32_t packed = p[run * 2 + i / 16];
        stored_sums(q, d * stored_integer<0>(packed & 15u, 0), -(minimum * stored_integer<0>(packed >> 4, 0)), v);
    }
};

template <> struct stored<STORED_q3_k> {
    const uint8_t* p;
    uint32_t third[2], low[2], high; // of the elements; of the scales
    float d;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), d(stored_half(chunk + 108)), i(i_)
    {
        stored_words<2>(chunk + i, third);
        stored_words<2>(chunk + 96, low);
        high = stored_word<2>(chunk + 104);
    }
    SUMI_DEVICE void floats(int e, float (&v)[8]) const
    {
        const int run = e / 32, shift = run % 4 * 2, s = run * 2 + i / 16;
        uint32_t q[2];
        stored_words<2>(p + 32 + run / 4 * 32 + i, q);
#pragma unroll
        for (int h = 0; h < 2; h++) q[h] = (q[h] >> shift & 0x03030303u) | (third[h] >> run & 0x01010101u) << 2;
        const uint32_t nibble = (s % 8 < 4 ? low[0] : low[1]) >> (s % 4 * 8 + s / 8 * 4) & 15u,
                       pair = high >> (s % 4 * 8 + s / 4 * 2) & 3u;
        stored_products<4>(q, d * stored_integer<32>(nibble | pair << 4, 0), v);
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
template <> struct stored<STORED_q4_k> {
    const uint8_t* p;
    stored_k_scales scales;
    SUMI_DEVICE stored(const uint8_t* chunk, int i) : p(chunk + 16 + i), scales(chunk) {}
    SUMI_DEVICE void floats(int e, float (&v)[8]) const
    {
        const int group = e / 32;
        uint32_t w[2], q[2];
        float factor, offset;
        stored_words<8>(p + group / 2 * 32, w);
        stored_nibbles(w, group % 2 * 4, q);
        scales.of(group, &factor, &offset);
        stored_sums(q, factor, offset, v);
    }
};
template <> struct stored<STORED_q5_k> {
    const uint8_t* p;
    stored_k_scales scales;
    uint32_t fifth[2];
    SUMI_DEVICE stored(const uint8_t* chunk, int i) : p(chunk + 48 + i), scales(chunk)
    {
        stored_words<8>(chunk + 16 + i, fifth);
    }
    SUMI_DEVICE void floats(int e, float (&v)[8]) const
    {
        const int group = e / 32;
        uint32_t w[2], q[2];
        float factor, offset;
        stored_words<8>(p + group / 2 * 32, w);
        stored_nibbles(w, group % 2 * 4, q);
#pragma unroll
        for (int h = 0; h < 2; h++) q[h] |= (fifth[h] >> group & 0x01010101u) << 4;
        scales.of(group, &factor, &offset);
        stored_sums(q, factor, offset, v);
    }
};

template <> struct stored<STORED_q6_k> {
    const uint8_t* p;
    float d;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), d(stored_half(chunk + 208)), i(i_) {}
    SUMI_DEVICE void floats(int e, float (&v)[8]) const
    {
        const int run = e / 32, half = run / 4, r = run % 4;
        uint32_t w[2], high[2], q[2];
        stored_words<2>(p + half * 64 + r % 2 * 32 + i, w);
        stored_words<2>(p + 128 + half * 32 + i, high);
        stored_nibbles(w, r / 2 * 4, q);
#pragma unroll
        for (int h = 0; h < 2; h++) q[h] |= (high[h] >> (2 * r) & 0x03030303u) << 4;
        const uint32_t scale = p[192 + run * 2 + i / 16];
        stored_products<32>(q, d * stored_integer<128>(scale ^ 0x80u, 0), v);
    }
};

template <> struct stored<STORED_iq4_nl> {
    const uint8_t* p;
    int i;
    SUMI_DEVICE stored(const uint8_t* chunk, int i_) : p(chunk), i(i_) {}
    SUMI_DEVICE void floats(int e, float (&v)[8]) const
    {
        const uint8_t* block = p + e / 32 * 18;
        uint32_t w[2], q[2];
        stored_words<2>(block + 2 + i % 16, w);
        stored_iq4_values(w, i >= 16, q);
        stored_products<128>(q, stored_half(block), v);
    }
};
template <> struct stored<STORED_iq4_xs> {
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
    SUMI_DEVICE void floats(int e, float (&v)[8]) const
    {
        const int group = e / 32;
        uint32_t w[2], q[2];
        stored_words<8>(p + group * 16 + i % 16, w);
        stored_iq4_values(w, i >= 16, q);
        const uint32_t scale = (low >> (4 * group) & 15u) | (high >> (2 * group) & 3u) << 4;
        stored_products<128>(q, d * stored_integer<32>(scale, 0), v);
    }
};

// Small floats. The exponent and the mantissa move to their places in a float, or in a half, and one factor corrects the
// exponent's bias: exact, for subnormal numbers too.
template <> struct stored<STORED_e4m3> {
    const uint8_t* p;
    SUMI_DEVICE stored(const uint8_t* chunk, int) : p(chunk) {}
    SUMI_DEVICE void floats(int e, float (&v)[8]) const
    {
        uint32_t w[2];
        stored_words<8>(p + e, w);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t b = w[i / 4] >> (i % 4 * 8), magnitude = b & 0x7fu;
            v[i] = __uint_as_float(magnitude << 20 | (b & 0x80u) << 24) * 0x1p120f;
            if (magnitude == 0x7fu) v[i] = __uint_as_float(0x7fc00000u);
        }
    }
};
template <> struct stored<STORED_e5m2> {
    const uint8_t* p;
    SUMI_DEVICE stored(const uint8_t* chunk, int) : p(chunk) {}
    SUMI_DEVICE void floats(int e, float (&v)[8]) const
    {
        uint32_t w[2];
        stored_words<8>(p + e, w);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = __half2float(__ushort_as_half((unsigned short)(w[i / 4] >> (i % 4 * 8) << 8)));
    }
};

// Eight elements as bfloat16. scale: fp8 files' own, 1 for the others.
template <int TYPE> SUMI_DEVICE uint4 stored_bf16(const stored<TYPE>& chunk, int e, float scale)
{
    float v[8];
    chunk.floats(e, v);
    if (TYPE == STORED_e4m3 || TYPE == STORED_e5m2) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] *= scale;
    }
    return make_uint4(pack2_bf16(v[0], v[1]), pack2_bf16(v[2], v[3]), pack2_bf16(v[4], v[5]), pack2_bf16(v[6], v[7]));
}
