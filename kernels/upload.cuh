// Reads an element of a piece of a weight, and computes to which row of the destination a row goes. For the upload*.cu
// files.
#pragma once
#include "common.cuh"
#include "upload.h"
#include <cuda_fp16.h>

// The value of an 8-bit float. Exact, with the rules of src/base/dtype.c. On 8.0 the conversions of cuda_fp8.h are the
// bit operations that it uses on CPUs; these two functions are as short.
SUMI_DEVICE float e5m2_value(uint32_t bits) { return __half2float(__ushort_as_half((unsigned short)(bits << 8))); }
// e4m3: 4 exponent bits with bias 7 and 3 mantissa bits; below 8 the magnitude is subnormal, in units of 2^-9; 0x7f is
// NaN.
SUMI_DEVICE float e4m3_value(uint32_t bits)
{
    const uint32_t magnitude = bits & 0x7f;
    float v = __uint_as_float((magnitude << 20) + (120u << 23));
    if (magnitude < 8) v = (float)magnitude * 0x1p-9f;
    if (magnitude == 0x7f) v = __uint_as_float(0x7fc00000u);
    return (bits & 0x80) ? -v : v;
}

// Element i of the piece, as a float, times the tensor's scale.
SUMI_DEVICE float upload_element(const sumi_upload_args& args, int64_t i)
{
    float v;
    switch (args.type) {
    case SUMI_UPLOAD_F32: v = ((const float*)args.from)[i]; break;
    case SUMI_UPLOAD_F16: v = __half2float(((const __half*)args.from)[i]); break;
    case SUMI_UPLOAD_BF16: v = __bfloat162float(((const bf16*)args.from)[i]); break;
    case SUMI_UPLOAD_E4M3: v = e4m3_value(((const uint8_t*)args.from)[i]); break;
    default: v = e5m2_value(((const uint8_t*)args.from)[i]); break;
    }
    return v * args.scale; // the scale is 1 except for fp8 files, and multiplying by 1 is exact
}

// The row of the destination for a row of the stack. Gated: gate 0..7, up 0..7, gate 8..15, ...: then one thread of a
// matrix product holds both sums of a SwiGLU pair.
SUMI_DEVICE int64_t upload_row(const sumi_upload_args& args, int row)
{
    if (!args.is_gated) return row;
    const int half = args.stack_rows / 2, row_of_half = row < half ? row : row - half;
    return (int64_t)(row_of_half / 8) * 16 + (row < half ? 0 : 8) + row_of_half % 8;
}

// The larger one; NaN if one of them is NaN. fmaxf would pass over it, and the scale of the row would say nothing of it.
SUMI_DEVICE float max_or_nan(float a, float b)
{
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
}
