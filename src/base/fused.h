// x * y + z with one rounding, as references have it where bits matter. C's fmaf is meant to do that, but MinGW-w64's
// rounds the product too.
#ifndef SUMI_BASE_FUSED_H
#define SUMI_BASE_FUSED_H
#include <math.h>
#include <stdint.h>
#include <string.h>

// By way of double, which holds the product exactly. The sum is rounded to odd there: where it is not exact, its last
// bit is made 1, so that it lies on no boundary of float and the second rounding sees on which side of each the true
// value is (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
static inline float sumi_fmaf_by_double(float x, float y, float z)
{
    const double product = (double)x * (double)y;
    double sum = product + (double)z;
    const double added = sum - product, lost = (product - (sum - added)) + ((double)z - added);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if ((lost > 0.0 || lost < 0.0) && (bits & 1) == 0) { // false for infinities and NaN, whose `lost` is NaN
        if ((lost > 0.0) == (sum > 0.0)) bits++;
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
