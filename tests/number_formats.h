// Floats as half, e4m3 (e4m3fn: no infinity) and e5m2, to write test files, and back. The library only reads these
// formats. test_dtype.c and golden_run compare them with PyTorch's.
#ifndef SUMI_TESTS_NUMBER_FORMATS_H
#define SUMI_TESTS_NUMBER_FORMATS_H
#include "base/assert.h"
#include "base/dtype.h"
#include "base/numbers.h"

// Rounds the magnitude of a finite float to nearest even in a small format with `mantissa` stored bits whose smallest
// normal number is 2^lowest. Returns the code, which numbers the magnitudes of the format in ascending order. The code
// has no upper limit: callers handle overflow.
static inline uint32_t round_to_small(uint32_t magnitude, int32_t mantissa, int32_t lowest)
{
    SUMI_ASSERT(magnitude < 0x7f800000u);
    SUMI_ASSERT(mantissa >= 1 && mantissa <= 10 && lowest <= 0);
    const int32_t exponent = (int32_t)(magnitude >> 23) - 127;
    if (magnitude >> 23 == 0) {
        return 0; // float subnormals are far below half of the smallest step of any small format
    }
    uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    int32_t shift = 23 - mantissa;
    uint32_t code = 0;
    if (exponent < lowest) {
        shift += lowest - exponent;
        if (shift > 25) return 0;
    } else {
        // the leading one of the significand adds 1 to the exponent field
        code = (uint32_t)(exponent - lowest) << mantissa;
    }
    const uint32_t half = 1u << (shift - 1);
    SUMI_ASSERT(shift >= 13 && shift <= 25);
    const uint32_t rest = significand & ((half << 1) - 1);
    significand >>= shift;
    significand += rest > half || (rest == half && (significand & 1u));
    return code + significand;
}

// Rounds to nearest even.
static inline uint16_t float_to_f16(float value)
{
    const uint32_t bits = sumi_bits_of_float(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (magnitude > 0x7f800000u) return sign | 0x7e00;
    if (magnitude == 0x7f800000u) return sign | 0x7c00;
    const uint32_t code = round_to_small(magnitude, 10, -14);
    return (uint16_t)(sign | (code > 0x7c00u ? 0x7c00u : code));
}

// `largest` is the code of the largest finite number for e4m3 and of infinity for e5m2. Larger magnitudes get this
// code.
static inline uint8_t float_to_8bit(float value, int32_t mantissa_bits, int32_t lowest_exponent, uint32_t largest)
{
    const uint32_t bits = sumi_bits_of_float(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint8_t sign = (uint8_t)(bits >> 24 & 0x80u);
    if (magnitude > 0x7f800000u) return sign | 0x7f;
    const uint32_t code =
        magnitude == 0x7f800000u ? largest : round_to_small(magnitude, mantissa_bits, lowest_exponent);
    return (uint8_t)(sign | (code > largest ? largest : code));
}

// Rounds to nearest even and saturates to +-448, as PyTorch 2.13 and newer.
static inline uint8_t float_to_e4m3(float value) { return float_to_8bit(value, 3, -6, 0x7eu); }

// Rounds to nearest even; overflows to infinity.
static inline uint8_t float_to_e5m2(float value) { return float_to_8bit(value, 2, -14, 0x7cu); }

static inline float e4m3_to_float(uint8_t bits)
{
    float value;
    sumi_dtype_to_float(SUMI_DTYPE_F8_E4M3, &bits, &value, 1);
    return value;
}

static inline float e5m2_to_float(uint8_t bits)
{
    float value;
    sumi_dtype_to_float(SUMI_DTYPE_F8_E5M2, &bits, &value, 1);
    return value;
}
#endif
