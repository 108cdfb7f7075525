// Exchange of values within a quad (four consecutive lanes). In an m16n8 or m64nN accumulator the lanes of a quad hold
// the same row, and two neighbouring columns each of every 8-column group.
#pragma once
#include "device.cuh"
#include <stdint.h>

// Transposes a 4x4 matrix of 32-bit words across the quad: word j of lane i becomes word i of lane j. A word holds two
// bf16 columns of one row, and words a, b, c, d belong to 8-column groups 0, 1, 2, 3. `lane` is the lane's index in the
// warp. All lanes of the warp call it.
//
//     before, word:       a      b      c      d            after, word:      a      b      c      d
//     lane 0 of quad    g0.01  g1.01  g2.01  g3.01          lane 0          g0.01  g0.23  g0.45  g0.67
//     lane 1            g0.23  g1.23  g2.23  g3.23          lane 1          g1.01  g1.23  g1.45  g1.67
//     lane 2            g0.45  g1.45  g2.45  g3.45          lane 2          g2.01  g2.23  g2.45  g2.67
//     lane 3            g0.67  g1.67  g2.67  g3.67          lane 3          g3.01  g3.23  g3.45  g3.67
//
// (g1.23: columns 2 and 3 of group 1.) Each lane then holds the 16 consecutive bytes of one group and can store them at
// once.
//
// It takes two exchanges: one word of each pair of groups with the lane that differs in bit 0, then two words with the
// lane that differs in bit 1.
SUMI_DEVICE void quad_transpose(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, int lane)
{
    const bool is_odd = lane & 1, is_upper = lane & 2;
    uint32_t first = __shfl_xor_sync(~0u, is_odd ? a : b, 1), second = __shfl_xor_sync(~0u, is_odd ? c : d, 1);
    if (is_odd) a = first, c = second;
    else b = first, d = second;
    first = __shfl_xor_sync(~0u, is_upper ? a : c, 2);
    second = __shfl_xor_sync(~0u, is_upper ? b : d, 2);
    if (is_upper) a = first, b = second;
    else c = first, d = second;
}
