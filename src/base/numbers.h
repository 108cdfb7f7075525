// Arithmetic that C leaves to its implementations, or does not have.
#ifndef SUMI_BASE_NUMBERS_H
#define SUMI_BASE_NUMBERS_H
#include <math.h>
#include <stdint.h>
#include <string.h>

// ---- Sizes and counts. No function overflows if twice its result fits its type.

static inline int32_t sumi_min_int(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t sumi_max_int(int32_t a, int32_t b) { return a > b ? a : b; }
static inline int64_t sumi_min_int64(int64_t a, int64_t b) { return a < b ? a : b; }

// Requires a >= 0 and b > 0. Rounds up.
static inline int32_t sumi_divide_up(int32_t a, int32_t b) { return (a + b - 1) / b; }
// Rounds value up to a multiple of `multiple`.
static inline int32_t sumi_round_up(int32_t value, int32_t multiple)
{
    return sumi_divide_up(value, multiple) * multiple;
}
static inline uint64_t sumi_align(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

// ---- A float32 and its bits

static inline float sumi_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t sumi_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// ---- Fused multiply-add

// x * y + z with one rounding, for places where the reference uses fused multiply-add and the bits matter. C's fmaf
// should do this, but MinGW-w64's fmaf rounds the product too.

// Computes in double, which holds the product exactly. The sum in double is rounded to odd: if it is inexact, its last
// bit is set to 1. The sum then never lies exactly between two floats, so the rounding to float goes to the correct
// side (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
static inline float sumi_fmaf_by_double(float x, float y, float z)
{
    const double product = (double)x * (double)y;
    double sum = product + (double)z;
    const double addend = sum - product, sum_error = (product - (sum - addend)) + ((double)z - addend);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    // false for infinities and NaN, for which `sum_error` is NaN
    if ((sum_error > 0.0 || sum_error < 0.0) && (bits & 1) == 0) {
        if ((sum_error > 0.0) == (sum > 0.0)) bits++;
        else bits--;
        memcpy(&sum, &bits, sizeof sum);
    }
    return (float)sum;
}

static inline float sumi_fmaf(float x, float y, float z)
{
#if defined(__MINGW32__)
    return sumi_fmaf_by_double(x, y, z);
#else
    return fmaf(x, y, z);
#endif
}
#endif
