// What the tensor cores multiply, and what they add in. The sums of int8 are exact: 127 * 127 * k stays below 2^31 up to
// k = 133144.
#pragma once
enum { SUMI_OPERANDS_BF16, SUMI_OPERANDS_E4M3, SUMI_OPERANDS_INT8 };
template <int OPERANDS> struct sumi_sum {
    typedef float type;
};
template <> struct sumi_sum<SUMI_OPERANDS_INT8> {
    typedef int type;
};
