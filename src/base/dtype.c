// Element types and their conversion to float.
//
// Every matrix product of the CPU backend converts rows of BF16, F16 and F32 weights with sumi_dtype_to_float. These
// loops are therefore written so that the compiler vectorises them: loads and stores are memcpy of a fixed size
// (sources are unaligned), selects replace branches, and the only table is the codebook of the IQ4 types.
//
// Two rules hold for every conversion:
// 1. No float operation reads or produces a subnormal float on the way to a normal result. Host programs switch on
// flush-to-zero, and half-precision subnormals must survive it.
// 2. Every product of a block format is exact in float (24 bits), so fused multiply-add changes no bit. Widths in bits:
//     Q4_K  d (11 bits) * scale (6) * q (4) = 21 bits     Q5_K 22 bits     Q6_K  11 + 7 + 6 = 24 bits
//     Q2_K  11 + 4 + 2 = 17 bits     Q3_K  11 + 6 + 3 = 20 bits     IQ4_XS  11 + 6 + 7 = 24 bits
// Only the final sum rounds, as in the reference dequantisers.
#include "base/dtype.h"
#include "base/assert.h"
#include "base/numbers.h"
#include <string.h>

static const sumi_dtype_info s_dtypes[SUMI_DTYPE_COUNT] = {
    [SUMI_DTYPE_NONE] = {"NONE", 1, 0},
    [SUMI_DTYPE_F64] = {"F64", 1, 8},
    [SUMI_DTYPE_F32] = {"F32", 1, 4},
    [SUMI_DTYPE_F16] = {"F16", 1, 2},
    [SUMI_DTYPE_BF16] = {"BF16", 1, 2},
    [SUMI_DTYPE_F8_E4M3] = {"F8_E4M3", 1, 1},
    [SUMI_DTYPE_F8_E5M2] = {"F8_E5M2", 1, 1},
    [SUMI_DTYPE_I64] = {"I64", 1, 8},
    [SUMI_DTYPE_I32] = {"I32", 1, 4},
    [SUMI_DTYPE_I16] = {"I16", 1, 2},
    [SUMI_DTYPE_I8] = {"I8", 1, 1},
    [SUMI_DTYPE_U64] = {"U64", 1, 8},
    [SUMI_DTYPE_U32] = {"U32", 1, 4},
    [SUMI_DTYPE_U16] = {"U16", 1, 2},
    [SUMI_DTYPE_U8] = {"U8", 1, 1},
    [SUMI_DTYPE_BOOL] = {"BOOL", 1, 1},
    [SUMI_DTYPE_F8_E8M0] = {"F8_E8M0", 1, 1},
    [SUMI_DTYPE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 1, 1},
    [SUMI_DTYPE_F6_E2M3] = {"F6_E2M3", 4, 3},
    [SUMI_DTYPE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 1, 1},
    [SUMI_DTYPE_F6_E3M2] = {"F6_E3M2", 4, 3},
    [SUMI_DTYPE_F4] = {"F4", 2, 1},
    [SUMI_DTYPE_C64] = {"C64", 1, 8},
    [SUMI_DTYPE_UNKNOWN] = {"UNKNOWN", 1, 1},
    [SUMI_DTYPE_Q8_1] = {"Q8_1", 32, 36},
    [SUMI_DTYPE_Q8_K] = {"Q8_K", 256, 292},
    [SUMI_DTYPE_IQ2_XXS] = {"IQ2_XXS", 256, 66},
    [SUMI_DTYPE_IQ2_XS] = {"IQ2_XS", 256, 74},
    [SUMI_DTYPE_IQ3_XXS] = {"IQ3_XXS", 256, 98},
    [SUMI_DTYPE_IQ1_S] = {"IQ1_S", 256, 50},
    [SUMI_DTYPE_IQ3_S] = {"IQ3_S", 256, 110},
    [SUMI_DTYPE_IQ2_S] = {"IQ2_S", 256, 82},
    [SUMI_DTYPE_IQ1_M] = {"IQ1_M", 256, 56},
    [SUMI_DTYPE_TQ1_0] = {"TQ1_0", 256, 54},
    [SUMI_DTYPE_TQ2_0] = {"TQ2_0", 256, 66},
    [SUMI_DTYPE_MXFP4] = {"MXFP4", 32, 17},
    [SUMI_DTYPE_NVFP4] = {"NVFP4", 64, 36},
    [SUMI_DTYPE_CODES4] = {"CODES4", 2, 1},
    [SUMI_DTYPE_Q4_0] = {"Q4_0", 32, 18},
    [SUMI_DTYPE_Q4_1] = {"Q4_1", 32, 20},
    [SUMI_DTYPE_Q5_0] = {"Q5_0", 32, 22},
    [SUMI_DTYPE_Q5_1] = {"Q5_1", 32, 24},
    [SUMI_DTYPE_Q8_0] = {"Q8_0", 32, 34},
    [SUMI_DTYPE_Q2_K] = {"Q2_K", 256, 84},
    [SUMI_DTYPE_Q3_K] = {"Q3_K", 256, 110},
    [SUMI_DTYPE_Q4_K] = {"Q4_K", 256, 144},
    [SUMI_DTYPE_Q5_K] = {"Q5_K", 256, 176},
    [SUMI_DTYPE_Q6_K] = {"Q6_K", 256, 210},
    [SUMI_DTYPE_IQ4_NL] = {"IQ4_NL", 32, 18},
    [SUMI_DTYPE_IQ4_XS] = {"IQ4_XS", 256, 136},
};

const sumi_dtype_info* sumi_dtype_get(sumi_dtype dtype)
{
    return &s_dtypes[(unsigned)dtype < SUMI_DTYPE_COUNT ? dtype : SUMI_DTYPE_NONE];
}

uint64_t sumi_dtype_bytes(sumi_dtype dtype, uint64_t count)
{
    const sumi_dtype_info* info = sumi_dtype_get(dtype);
    SUMI_ASSERT(count % (uint64_t)info->block == 0);
    return count / (uint64_t)info->block * (uint64_t)info->block_bytes;
}

bool sumi_dtype_is_number(sumi_dtype dtype)
{
    return (unsigned)dtype < SUMI_DTYPE_COUNT && dtype != SUMI_DTYPE_NONE
        && (dtype < SUMI_DTYPE_F8_E4M3FNUZ || dtype >= SUMI_DTYPE_CODES4);
}

bool sumi_dtype_is_foreign_block(sumi_dtype dtype) { return dtype > SUMI_DTYPE_UNKNOWN && dtype < SUMI_DTYPE_CODES4; }

// ---- One value ------------------------------------------------------------------------------------------------------

// Selects with masks: gcc compiles `c ? x : y` to a branch when x contains a float operation, and then does not
// vectorise the loop.
static inline uint32_t select_bits(bool first, uint32_t if_first, uint32_t otherwise)
{
    const uint32_t mask = 0u - (uint32_t)first;
    return (if_first & mask) | (otherwise & ~mask);
}

static inline float bf16_to_float(uint16_t bits) { return sumi_float_of_bits((uint32_t)bits << 16); }

// Moves exponent and mantissa to their float positions and corrects the exponent bias: +112 for normal numbers, +224
// for infinity and NaN. A subnormal half m * 2^-24 is computed as (1.m * 2^-14) - 2^-14; both operands and the result
// are normal floats.
static inline float f16_to_float(uint16_t bits)
{
    const uint32_t moved = (uint32_t)(bits & 0x7fff) << 13;
    const uint32_t exponent = moved & (0x7c00u << 13);
    const uint32_t normal = moved + (112u << 23) + (exponent == (0x7c00u << 13) ? 112u << 23 : 0u);
    const uint32_t subnormal =
        sumi_bits_of_float(sumi_float_of_bits(moved + (113u << 23)) - sumi_float_of_bits(113u << 23));
    return sumi_float_of_bits(select_bits(exponent == 0, subnormal, normal) | (uint32_t)(bits & 0x8000) << 16);
}

// e4m3fn: exponent bias 7, no infinity. Only the code with all exponent and mantissa bits set is NaN.
static inline float e4m3_to_float(uint8_t bits)
{
    const uint32_t magnitude = bits & 0x7fu;
    const uint32_t normal = (magnitude << 20) + (120u << 23);
    const uint32_t subnormal = sumi_bits_of_float((float)(int32_t)magnitude * 0x1p-9f);
    uint32_t value = select_bits(magnitude < 8, subnormal, normal);
    value = select_bits(magnitude == 0x7f, 0x7fc00000u, value);
    return sumi_float_of_bits(value | (uint32_t)(bits & 0x80) << 24);
}

// An e5m2 byte is the upper byte of a half.
static inline float e5m2_to_float(uint8_t bits) { return f16_to_float((uint16_t)(bits << 8)); }

// 2^(bits - 127); 255 is NaN. 0 would be a subnormal float: it becomes the smallest normal one, twice as much, which no
// weight can tell from zero either.
static inline float e8m0_to_float(uint8_t bits)
{
    return sumi_float_of_bits(bits == 0 ? 1u << 23 : bits == 255 ? 0x7fc00000u : (uint32_t)bits << 23);
}

float sumi_bf16_to_float(uint16_t bits) { return bf16_to_float(bits); }

float sumi_f16_to_float(uint16_t bits) { return f16_to_float(bits); }

uint16_t sumi_float_to_f16(float value)
{
    const uint32_t bits = sumi_bits_of_float(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); // 65520 and above round to infinity
    if (magnitude < 0x38800000u) { // below 2^-14: multiples of 2^-24; adding 0.5 rounds to them
        const float sum = sumi_float_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (sumi_bits_of_float(sum) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

// Has no branch, so that the compiler vectorises the loop of sumi_floats_to_bf16.
static inline uint16_t float_to_bf16(float value)
{
    const uint32_t bits = sumi_bits_of_float(value), rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded); // PyTorch writes every NaN as 0x7fc0
}

uint16_t sumi_float_to_bf16(float value) { return float_to_bf16(value); }

void sumi_floats_to_bf16(const float* restrict source, uint16_t* restrict into, size_t count)
{
    SUMI_ASSERT(count == 0 || (source != NULL && into != NULL));
    for (size_t i = 0; i < count; i++) into[i] = float_to_bf16(source[i]);
}

// ---- Plain rows -----------------------------------------------------------------------------------------------------

static void bf16_row(const unsigned char* restrict source, float* restrict into, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, source + 2 * i, sizeof bits);
        into[i] = bf16_to_float(bits);
    }
}

static void f16_row(const unsigned char* restrict source, float* restrict into, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, source + 2 * i, sizeof bits);
        into[i] = f16_to_float(bits);
    }
}

static void e4m3_row(const unsigned char* restrict source, float* restrict into, size_t count)
{
    for (size_t i = 0; i < count; i++) into[i] = e4m3_to_float(source[i]);
}

static void e5m2_row(const unsigned char* restrict source, float* restrict into, size_t count)
{
    for (size_t i = 0; i < count; i++) into[i] = e5m2_to_float(source[i]);
}

#define PLAIN_ROW(name, type)                                                                                          \
    static void name(const unsigned char* restrict source, float* restrict into, size_t count)                         \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            type value;                                                                                                \
            memcpy(&value, source + i * sizeof value, sizeof value);                                                   \
            into[i] = (float)value;                                                                                    \
        }                                                                                                              \
    }
PLAIN_ROW(f64_row, double)
PLAIN_ROW(i64_row, int64_t)
PLAIN_ROW(i32_row, int32_t)
PLAIN_ROW(i16_row, int16_t)
PLAIN_ROW(i8_row, int8_t)
PLAIN_ROW(u64_row, uint64_t)
PLAIN_ROW(u32_row, uint32_t)
PLAIN_ROW(u16_row, uint16_t)
PLAIN_ROW(u8_row, uint8_t)

static void bool_row(const unsigned char* restrict source, float* restrict into, size_t count)
{
    for (size_t i = 0; i < count; i++) into[i] = source[i] != 0 ? 1.0f : 0.0f;
}

static void e8m0_row(const unsigned char* restrict source, float* restrict into, size_t count)
{
    for (size_t i = 0; i < count; i++) into[i] = e8m0_to_float(source[i]);
}

static void codes4_row(const unsigned char* restrict source, float* restrict into, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        into[2 * i] = (float)(source[i] & 15);
        into[2 * i + 1] = (float)(source[i] >> 4);
    }
}

// ---- Block formats of GGUF ------------------------------------------------------------------------------------------
// A block of 32 values begins with the half-precision factor d, followed by the half-precision offset m in Q4_1 and
// Q5_1. Nibbles: the low ones are the first 16 values, the high ones the last 16.
//     Q8_0  d, 32 signed bytes                            d * q
//     Q4_0  d, 16 bytes of nibbles                        d * (q - 8)
//     Q4_1  d, m, 16 bytes of nibbles                     d * q + m
//     Q5_0  d, 32 fifth bits, 16 bytes of nibbles         d * (q - 16)
//     Q5_1  d, m, 32 fifth bits, 16 bytes of nibbles      d * q + m

static inline float half_at(const unsigned char* source)
{
    uint16_t bits;
    memcpy(&bits, source, sizeof bits);
    return f16_to_float(bits);
}

static void q8_0_block(const unsigned char* restrict block, float* restrict into)
{
    const float d = half_at(block);
    for (int32_t i = 0; i < 32; i++) into[i] = d * (float)(int8_t)block[2 + i];
}

static void q4_0_block(const unsigned char* restrict block, float* restrict into)
{
    const float d = half_at(block);
    for (int32_t i = 0; i < 16; i++) {
        into[i] = d * (float)((block[2 + i] & 15) - 8);
        into[16 + i] = d * (float)((block[2 + i] >> 4) - 8);
    }
}

static void q4_1_block(const unsigned char* restrict block, float* restrict into)
{
    const float d = half_at(block), m = half_at(block + 2);
    for (int32_t i = 0; i < 16; i++) {
        into[i] = d * (float)(block[4 + i] & 15) + m;
        into[16 + i] = d * (float)(block[4 + i] >> 4) + m;
    }
}

static inline uint32_t fifth_bits(const unsigned char* source)
{
    uint32_t bits;
    memcpy(&bits, source, sizeof bits);
    return bits;
}

static void q5_0_block(const unsigned char* restrict block, float* restrict into)
{
    const float d = half_at(block);
    const uint32_t high = fifth_bits(block + 2);
    for (int32_t i = 0; i < 16; i++) {
        into[i] = d * (float)((block[6 + i] & 15) + (int32_t)(high >> i & 1) * 16 - 16);
        into[16 + i] = d * (float)((block[6 + i] >> 4) + (int32_t)(high >> (16 + i) & 1) * 16 - 16);
    }
}

static void q5_1_block(const unsigned char* restrict block, float* restrict into)
{
    const float d = half_at(block), m = half_at(block + 2);
    const uint32_t high = fifth_bits(block + 4);
    for (int32_t i = 0; i < 16; i++) {
        into[i] = d * (float)((block[8 + i] & 15) + (int32_t)(high >> i & 1) * 16) + m;
        into[16 + i] = d * (float)((block[8 + i] >> 4) + (int32_t)(high >> (16 + i) & 1) * 16) + m;
    }
}

// Q2_K holds 256 values in eight runs of 32: 16 bytes, each with the scale (low nibble) and the minimum (high nibble)
// of 16 values, then 64 bytes of bit pairs, d, dmin. Four runs share 32 bytes of bit pairs: run r of the four has bit
// pair r of each byte.
static void q2_k_block(const unsigned char* restrict block, float* restrict into)
{
    const float d = half_at(block + 80), d_minimum = half_at(block + 82);
    for (int32_t run = 0; run < 8; run++) {
        const unsigned char* pairs = block + 16 + run / 4 * 32;
        const int32_t shift = run % 4 * 2;
        for (int32_t group = 0; group < 2; group++) {
            const unsigned char packed = block[run * 2 + group];
            const float factor = d * (float)(packed & 15), offset = d_minimum * (float)(packed >> 4);
            for (int32_t i = group * 16; i < group * 16 + 16; i++)
                into[run * 32 + i] = factor * (float)(pairs[i] >> shift & 3) - offset;
        }
    }
}

// Q3_K: 32 bytes of third bits (bit r of byte i belongs to value i of run r), 64 bytes of bit pairs laid out as in
// Q2_K, 12 bytes with 16 scales of 6 bits that are stored with an offset of 32, d. Scale s has its low 4 bits in a
// nibble of byte s % 8 and its upper two bits in byte 8 + s % 4.
static void q3_k_block(const unsigned char* restrict block, float* restrict into)
{
    const float d = half_at(block + 108);
    const unsigned char* packed = block + 96;
    for (int32_t run = 0; run < 8; run++) {
        const unsigned char* pairs = block + 32 + run / 4 * 32;
        const int32_t shift = run % 4 * 2;
        for (int32_t group = 0; group < 2; group++) {
            const int32_t s = run * 2 + group;
            const int32_t scale = (packed[s % 8] >> (s / 8 * 4) & 15) | (packed[8 + s % 4] >> (s / 4 * 2) & 3) << 4;
            const float factor = d * (float)(scale - 32);
            for (int32_t i = group * 16; i < group * 16 + 16; i++)
                into[run * 32 + i] = factor * (float)(((pairs[i] >> shift & 3) | (block[i] >> run & 1) << 2) - 4);
        }
    }
}

// The eight scales and eight minima of Q4_K and Q5_K, of 6 bits each, share twelve bytes. The scales of groups 0..3 are
// the low 6 bits of bytes 0..3, their minima those of bytes 4..7. Groups 4..7 have the low 4 bits of both in the
// nibbles of bytes 8..11 and the upper 2 bits in the top bits of bytes 0..7.
static void group_scale(const unsigned char* packed, int32_t group, float* scale, float* minimum)
{
    SUMI_ASSERT(group >= 0 && group < 8);
    if (group < 4) {
        *scale = (float)(packed[group] & 63);
        *minimum = (float)(packed[group + 4] & 63);
    } else {
        *scale = (float)((packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4);
        *minimum = (float)((packed[group + 4] >> 4) | (packed[group] >> 6) << 4);
    }
}

// Q4_K holds 256 values in 8 groups of 32: d, dmin, 12 bytes of scales and minima, 4 x 32 bytes of nibbles. Each 32
// bytes hold one group in the low nibbles and the next group in the high ones.
static void q4_k_block(const unsigned char* restrict block, float* restrict into)
{
    const float d = half_at(block), d_minimum = half_at(block + 2);
    for (int32_t group = 0; group < 8; group++) {
        float scale, minimum;
        group_scale(block + 4, group, &scale, &minimum);
        const unsigned char* nibbles = block + 16 + group / 2 * 32;
        const float factor = d * scale, offset = d_minimum * minimum;
        const int32_t shift = group % 2 * 4;
        for (int32_t i = 0; i < 32; i++) into[group * 32 + i] = factor * (float)(nibbles[i] >> shift & 15) - offset;
    }
}

// Q5_K: as Q4_K, with 32 bytes of fifth bits before the nibbles. Bit g of byte i belongs to value i of group g.
static void q5_k_block(const unsigned char* restrict block, float* restrict into)
{
    const float d = half_at(block), d_minimum = half_at(block + 2);
    const unsigned char* high = block + 16;
    for (int32_t group = 0; group < 8; group++) {
        float scale, minimum;
        group_scale(block + 4, group, &scale, &minimum);
        const unsigned char* nibbles = block + 48 + group / 2 * 32;
        const float factor = d * scale, offset = d_minimum * minimum;
        const int32_t shift = group % 2 * 4;
        for (int32_t i = 0; i < 32; i++)
            into[group * 32 + i] = factor * (float)((nibbles[i] >> shift & 15) | (high[i] >> group & 1) << 4) - offset;
    }
}

// Q6_K holds 256 values in two halves of 128, each of four runs of 32: 128 bytes of nibbles, 64 bytes of upper bit
// pairs, 16 signed scales (one per 16 values), d. Runs 0 and 1 of a half are the low nibbles of its 64 bytes, runs 2
// and 3 the high nibbles. Run r has bit pair r.
static void q6_k_block(const unsigned char* restrict block, float* restrict into)
{
    const float d = half_at(block + 208);
    for (int32_t run = 0; run < 8; run++) {
        const int32_t half = run / 4, r = run % 4;
        const unsigned char* low = block + half * 64 + r % 2 * 32;
        const unsigned char* high = block + 128 + half * 32;
        const unsigned char* scales = block + 192 + run * 2;
        for (int32_t group = 0; group < 2; group++) {
            const float factor = d * (float)(int8_t)scales[group];
            for (int32_t i = group * 16; i < group * 16 + 16; i++) {
                const int32_t q = ((low[i] >> (r / 2 * 4)) & 15) | (high[i] >> (2 * r) & 3) << 4;
                into[run * 32 + i] = factor * (float)(q - 32);
            }
        }
    }
}

// The values of the sixteen 4-bit codes of the IQ4 types. They follow no formula, so they are a table of 64 bytes,
// which stays in the L1 cache. Table look-ups do not vectorise, so the multiplications are a separate loop, which does.
// A tree of selects on vectors of bytes was 30 to 50 % slower.
static const float s_iq4_values[16] = {-127.0f, -104.0f, -83.0f, -65.0f, -49.0f, -35.0f, -22.0f, -10.0f,
                                       1.0f,    13.0f,   25.0f,  38.0f,  53.0f,  69.0f,  89.0f,  113.0f};

static inline void iq4_values(const unsigned char* restrict nibbles, float factor, float* restrict into)
{
    float values[32];
    for (int32_t i = 0; i < 16; i++) {
        values[i] = s_iq4_values[nibbles[i] & 15];
        values[16 + i] = s_iq4_values[nibbles[i] >> 4];
    }
    for (int32_t i = 0; i < 32; i++) into[i] = factor * values[i];
}

// IQ4_NL, 32 values: d, 16 bytes of nibbles laid out as in Q4_0.
static void iq4_nl_block(const unsigned char* restrict block, float* restrict into)
{
    iq4_values(block + 2, half_at(block), into);
}

// IQ4_XS holds 256 values in eight groups of 32: d, 2 bytes with the upper two bits of eight 6-bit scales, 4 bytes with
// their low nibbles, 16 bytes of nibbles for each group. Scales are stored with an offset of 32.
static void iq4_xs_block(const unsigned char* restrict block, float* restrict into)
{
    const float d = half_at(block);
    for (int32_t group = 0; group < 8; group++) {
        const int32_t high = block[2 + group / 4] >> (group % 4 * 2) & 3;
        const int32_t scale = (block[4 + group / 2] >> (group % 2 * 4) & 15) | high << 4;
        iq4_values(block + 8 + group * 16, d * (float)(scale - 32), into + group * 32);
    }
}

typedef void block_function(const unsigned char* restrict block, float* restrict into);

static void blocks(block_function* function, sumi_dtype dtype, const unsigned char* source, float* into, size_t count)
{
    const size_t block = (size_t)s_dtypes[dtype].block, bytes = (size_t)s_dtypes[dtype].block_bytes;
    SUMI_ASSERT(block > 1 && count % block == 0);
    for (size_t i = 0; i < count / block; i++) function(source + i * bytes, into + i * block);
}

void sumi_dtype_to_float(sumi_dtype dtype, const void* source, float* into, size_t count)
{
    SUMI_ASSERT(sumi_dtype_is_number(dtype));
    SUMI_ASSERT(count == 0 || (source != NULL && into != NULL));
    switch (dtype) {
    case SUMI_DTYPE_F64: f64_row(source, into, count); break;
    case SUMI_DTYPE_F32:
        if (count > 0) memcpy(into, source, count * sizeof *into);
        break;
    case SUMI_DTYPE_F16: f16_row(source, into, count); break;
    case SUMI_DTYPE_BF16: bf16_row(source, into, count); break;
    case SUMI_DTYPE_F8_E4M3: e4m3_row(source, into, count); break;
    case SUMI_DTYPE_F8_E5M2: e5m2_row(source, into, count); break;
    case SUMI_DTYPE_I64: i64_row(source, into, count); break;
    case SUMI_DTYPE_I32: i32_row(source, into, count); break;
    case SUMI_DTYPE_I16: i16_row(source, into, count); break;
    case SUMI_DTYPE_I8: i8_row(source, into, count); break;
    case SUMI_DTYPE_U64: u64_row(source, into, count); break;
    case SUMI_DTYPE_U32: u32_row(source, into, count); break;
    case SUMI_DTYPE_U16: u16_row(source, into, count); break;
    case SUMI_DTYPE_U8: u8_row(source, into, count); break;
    case SUMI_DTYPE_BOOL: bool_row(source, into, count); break;
    case SUMI_DTYPE_F8_E8M0: e8m0_row(source, into, count); break;
    case SUMI_DTYPE_CODES4: codes4_row(source, into, count); break;
    case SUMI_DTYPE_Q4_0: blocks(q4_0_block, dtype, source, into, count); break;
    case SUMI_DTYPE_Q4_1: blocks(q4_1_block, dtype, source, into, count); break;
    case SUMI_DTYPE_Q5_0: blocks(q5_0_block, dtype, source, into, count); break;
    case SUMI_DTYPE_Q5_1: blocks(q5_1_block, dtype, source, into, count); break;
    case SUMI_DTYPE_Q8_0: blocks(q8_0_block, dtype, source, into, count); break;
    case SUMI_DTYPE_Q2_K: blocks(q2_k_block, dtype, source, into, count); break;
    case SUMI_DTYPE_Q3_K: blocks(q3_k_block, dtype, source, into, count); break;
    case SUMI_DTYPE_Q4_K: blocks(q4_k_block, dtype, source, into, count); break;
    case SUMI_DTYPE_Q5_K: blocks(q5_k_block, dtype, source, into, count); break;
    case SUMI_DTYPE_Q6_K: blocks(q6_k_block, dtype, source, into, count); break;
    case SUMI_DTYPE_IQ4_NL: blocks(iq4_nl_block, dtype, source, into, count); break;
    case SUMI_DTYPE_IQ4_XS: blocks(iq4_xs_block, dtype, source, into, count); break;
    case SUMI_DTYPE_F8_E4M3FNUZ:
    case SUMI_DTYPE_F8_E5M2FNUZ:
    case SUMI_DTYPE_F6_E2M3:
    case SUMI_DTYPE_F6_E3M2:
    case SUMI_DTYPE_F4:
    case SUMI_DTYPE_C64:
    case SUMI_DTYPE_UNKNOWN:
    case SUMI_DTYPE_Q8_1:
    case SUMI_DTYPE_Q8_K:
    case SUMI_DTYPE_IQ2_XXS:
    case SUMI_DTYPE_IQ2_XS:
    case SUMI_DTYPE_IQ3_XXS:
    case SUMI_DTYPE_IQ1_S:
    case SUMI_DTYPE_IQ3_S:
    case SUMI_DTYPE_IQ2_S:
    case SUMI_DTYPE_IQ1_M:
    case SUMI_DTYPE_TQ1_0:
    case SUMI_DTYPE_TQ2_0:
    case SUMI_DTYPE_MXFP4:
    case SUMI_DTYPE_NVFP4:
    case SUMI_DTYPE_NONE:
    case SUMI_DTYPE_COUNT: break;
    }
}
