// Exchange within the four lanes of a quad, which hold neighbouring columns of an m16n8 (or m64nN) accumulator.
#pragma once
#include <stdint.h>

// 4x4 transpose of words: lane i's word j becomes lane j's word i. Lane i then holds 16 consecutive bytes of the i-th
// of four 8-column groups. All lanes of the warp take part.
__device__ __forceinline__ void quad_transpose(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, int lane)
{
    const bool odd = lane & 1, high = lane & 2;
    uint32_t x = __shfl_xor_sync(~0u, odd ? a : b, 1), y = __shfl_xor_sync(~0u, odd ? c : d, 1);
    if (odd) a = x, c = y;
    else b = x, d = y;
    x = __shfl_xor_sync(~0u, high ? a : c, 2);
    y = __shfl_xor_sync(~0u, high ? b : d, 2);
    if (high) a = x, b = y;
    else c = x, d = y;
}
