// What every kernel may use, and no CUDA header is needed for: short names of integers, pairs of bf16 in a word,
// exponentials and activations.
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define SUMI_DEVICE __device__ __forceinline__

// Two floats to two bf16 in a word, rounded to nearest even, `low` in the lower half; and back.
SUMI_DEVICE u32 pack_bf16(float low, float high)
{
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
SUMI_DEVICE float bf16_low(u32 v) { return __uint_as_float(v << 16); }
SUMI_DEVICE float bf16_high(u32 v) { return __uint_as_float(v & 0xffff0000u); }

// 2^x, approximate; subnormal numbers are flushed to zero.
SUMI_DEVICE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// tanh, approximate.
SUMI_DEVICE float tanh_fast(float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// GELU in its tanh form: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
SUMI_DEVICE float gelu_tanh(float x)
{
    const float h = 0.5f * x;
    return fmaf(h, tanh_fast(x * fmaf(0.0356774081f, x * x, 0.7978845608f)), h);
}
// x * sigmoid(x), by sigmoid(x) = (1 + tanh(x / 2)) / 2.
SUMI_DEVICE float silu(float x)
{
    const float h = 0.5f * x;
    return fmaf(h, tanh_fast(h), h);
}
