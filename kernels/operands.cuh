// The operand types of a matrix product on the tensor cores, and the type of its accumulators: float for bf16 and e4m3,
// int for int8. An int sum is exact: 127 * 127 * k stays below 2^31 for k up to 133144.
#pragma once
#include "device.cuh"
enum { SUMI_OPERANDS_BF16, SUMI_OPERANDS_E4M3, SUMI_OPERANDS_INT8 };
template <int OPERANDS> struct sumi_sum {
    typedef float type;
};
template <> struct sumi_sum<SUMI_OPERANDS_INT8> {
    typedef int type;
};

// Four sums, as one access to memory.
template <class SUM> struct sumi_four;
template <> struct sumi_four<float> {
    typedef float4 type;
    static SUMI_DEVICE float4 of(float a, float b, float c, float d) { return make_float4(a, b, c, d); }
};
template <> struct sumi_four<int> {
    typedef int4 type;
    static SUMI_DEVICE int4 of(int a, int b, int c, int d) { return make_int4(a, b, c, d); }
};
