// x * y + z with one rounding, for places where the reference uses fused multiply-add and the bits matter. C's fmaf
// should do this, but MinGW-w64's fmaf rounds the product too.
#ifndef SUMI_BASE_FUSED_H
#define SUMI_BASE_FUSED_H
#include <math.h>
#include <stdint.h>
#include <string.h>

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
