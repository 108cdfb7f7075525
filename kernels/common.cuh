// What all kernels share: types, bfloat16, per-step rows, sums over warps and blocks.
#pragma once
#include "step.h"
#include <cuda_bf16.h>
#include <stdint.h>

typedef __nv_bfloat16 bf16;
#define SUMI_DEVICE __device__ __forceinline__

// One element of either type, as a float.
SUMI_DEVICE float value_of(bf16 v) { return __bfloat162float(v); }
SUMI_DEVICE float value_of(float v) { return v; }
SUMI_DEVICE void set(bf16& to, float v) { to = __float2bfloat16_rn(v); }
SUMI_DEVICE void set(float& to, float v) { to = v; }

// Element i of the row that the counter selects; the table's own type.
SUMI_DEVICE float step_at(const sumi_step& step, int32_t counter, int i)
{
    const int64_t at = (int64_t)counter * step.stride + step.column + i;
    return step.is_float ? ((const float*)step.table)[at] : __bfloat162float(((const bf16*)step.table)[at]);
}

// 16 bytes at a time: 8 bf16 <-> 8 floats.
SUMI_DEVICE void load8(const bf16* from, float (&v)[8])
{
    const uint4 raw = *(const uint4*)from;
    const uint32_t w[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(w[i] << 16);
        v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
}
SUMI_DEVICE uint32_t pack2_bf16(float low, float high)
{
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(const uint32_t*)&v;
}
// To global memory, in one piece: an assignment through a uint4* is what the compiler may take apart, and in some
// kernels it made four stores of 4 bytes, 16 apart, of it.
SUMI_DEVICE void store16(void* to, const uint4& v)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
SUMI_DEVICE void store8(bf16* to, const float (&v)[8])
{
    store16(to,
            make_uint4(pack2_bf16(v[0], v[1]), pack2_bf16(v[2], v[3]), pack2_bf16(v[4], v[5]), pack2_bf16(v[6], v[7])));
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
// Over a block of up to 1024 threads, in the same order every time; every thread gets it. `shared`: 32 floats, free for
// the next use after it returns.
SUMI_DEVICE float block_sum(float v, float* shared)
{
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
    __syncthreads();
    float sum = 0.0f;
    for (int w = 0; w < (int)(blockDim.x >> 5); w++) sum += shared[w];
    __syncthreads();
    return sum;
}
