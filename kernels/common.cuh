// Device functions that all kernels share: bfloat16 conversion, rows of step tables, 16-byte loads and stores, and
// sums and maxima over a warp or a block.
#pragma once
#include "device.cuh"
#include "step.h"
#include <cuda_bf16.h>
#include <stdint.h>

typedef __nv_bfloat16 bf16;

// Read and write one element, bf16 or float, as a float. assign() rounds to nearest even.
SUMI_DEVICE float to_float(bf16 v) { return __bfloat162float(v); }
SUMI_DEVICE float to_float(float v) { return v; }
SUMI_DEVICE void assign(bf16& to, float v) { to = __float2bfloat16_rn(v); }
SUMI_DEVICE void assign(float& to, float v) { to = v; }

// Element i of row `counter` of a step table (step.h), converted from the table's type to float.
SUMI_DEVICE float step_element(const sumi_step& step, int32_t counter, int i)
{
    const int64_t index = (int64_t)counter * step.stride + step.column + i;
    return step.is_float ? ((const float*)step.table)[index] : __bfloat162float(((const bf16*)step.table)[index]);
}

// Reads 8 consecutive bf16 with one 16-byte load. `from` is 16-byte aligned. A bf16 is the upper half of a float, so
// conversion is a shift for the even element of each word and a mask for the odd one.
SUMI_DEVICE void load8(const bf16* from, float (&v)[8])
{
    const uint4 raw = *(const uint4*)from;
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(words[i] << 16);
        v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
}
// Stores 16 bytes to global memory with one instruction. The compiler may split an assignment through a uint4*: in some
// kernels it emitted four 4-byte stores, whose addresses in neighbouring lanes are 16 bytes apart.
SUMI_DEVICE void store16(void* to, const uint4& v)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
SUMI_DEVICE void store8(bf16* to, const float (&v)[8])
{
    store16(to, make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])));
}

SUMI_DEVICE float warp_sum(float v)
{
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) v += __shfl_xor_sync(~0u, v, mask);
    return v;
}
SUMI_DEVICE float warp_max(float v)
{
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, mask));
    return v;
}
// The sum of v over a block of up to 1024 threads, returned to every thread. The order of addition is fixed, so equal
// inputs give equal bits. All threads of the block call it. `shared`: 32 floats, one per warp.
SUMI_DEVICE float block_sum(float v, float* shared)
{
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
    __syncthreads(); // all warp sums are written
    float sum = 0.0f;
    for (int w = 0; w < (int)(blockDim.x >> 5); w++) sum += shared[w];
    __syncthreads(); // all threads have read the warp sums; the caller may reuse `shared` at once
    return sum;
}
