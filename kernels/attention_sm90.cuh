// PTX instructions that the attention kernels of Hopper need besides those of hopper.cuh: 3-D TMA copies, named
// barriers, and wgmma with its first operand in registers. PTX 8.0, sm_90a.
#pragma once
#include "attention.h"
#include "hopper.cuh"

// ---- barriers -------------------------------------------------------------------------------------------------------
// Arrives once at an mbarrier of this block.
SUMI_DEVICE void mbarrier_arrive(u32 barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Waits for THREADS threads (whole warpgroups) at named barrier ID. The id must be an immediate: with an id in a
// register ptxas reserves all sixteen barriers.
template <int ID, int THREADS> SUMI_DEVICE void named_sync()
{
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(THREADS) : "memory");
}
// cluster_sync() of hopper.cuh by whole warps: the instructions with .aligned need converged threads. Writes of either
// block before it are visible to the other block after it.
SUMI_DEVICE void cluster_sync_aligned()
{
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Change the number of registers per thread of the calling warpgroup to COUNT: the producer releases registers, which
// the consumers take.
template <int COUNT> SUMI_DEVICE void fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> SUMI_DEVICE void more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- TMA copies. The maps are 3-D {channels of a slab, rows, slabs}; `row` and `slab` are the box's first ones ------
SUMI_DEVICE void tma_load_3d(u32 dst, const sumi_attention_map* map, u32 barrier, int row, int slab)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3,%4,%5}], [%2];" ::"r"(dst),
                 "l"(map), "r"(barrier), "r"(0), "r"(row), "r"(slab)
                 : "memory");
}
// Loads one box into both blocks of a cluster of two, at the same shared-memory offset, and signals each block's own
// barrier.
SUMI_DEVICE void tma_load_3d_pair(u32 dst, const sumi_attention_map* map, u32 barrier, int row, int slab)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3,%4,%5}], [%2], %6;" ::"r"(dst),
                 "l"(map), "r"(barrier), "r"(0), "r"(row), "r"(slab), "h"((unsigned short)3)
                 : "memory");
}
SUMI_DEVICE void tma_store_3d(const sumi_attention_map* map, u32 src, int row, int slab)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2,%3,%4}], [%1];" ::"l"(map), "r"(src),
                 "r"(0), "r"(row), "r"(slab)
                 : "memory");
}
SUMI_DEVICE void prefetch_map(const sumi_attention_map* map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------
// 2^x computed by the FMA units, for a share of the exponentials that would otherwise wait for the special function
// unit. Relative error 1e-4, which is less than that of bf16.
SUMI_DEVICE float exp2_polynomial(float x)
{
    x = fmaxf(x, -100.f);
    // the low bits of t are the nearest integer to x; f is in [-0.5, 0.5]
    const float t = x + 12582912.f, f = x - (t - 12582912.f);
    const float y = fmaf(fmaf(fmaf(f, 0.055171669f, 0.242611122f), f, 0.693260985f), f, 0.999928074f);
    return __int_as_float(__float_as_int(y) + (__float_as_int(t) << 23));
}

// Converts four floats to e4m3, the first one in the lowest byte. Values saturate at 448, NaN stays NaN.
SUMI_DEVICE u32 pack_e4m3(float a, float b, float c, float d)
{
    unsigned short low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return (u32)low | (u32)high << 16;
}

// ---- wgmma ----------------------------------------------------------------------------------------------------------
// The matrix descriptor of an operand, as in hopper.cuh, but for other swizzles and for N-major operands too. The low
// word holds the address and the leading byte offset, the high word the stride byte offset and the layout type. The
// address and the offsets are in units of 16 bytes. LAYOUT 1, 2 or 3: the 128-byte, 64-byte or 32-byte swizzle. A step
// along the operand is one 32-bit addition of (bytes of the step) / 16 to the low word. A k-step of q and k stays
// inside a slab as long as the slab lasts.
//
//   q, k      K-major   leading offset: ignored     stride offset: 8 rows       k-step: + 32 bytes
//   v, bf16   N-major   leading offset: one slab    stride offset: 8 keys       k-step of 16 keys: + 16 rows
//   v, e4m3   K-major   leading offset: ignored     stride offset: 8 channels   k-step of 32 keys: + 32 bytes
SUMI_DEVICE u32 wgmma_descriptor_low(u32 address, u32 leading_bytes)
{
    return (address & 0x3FFFF) >> 4 | (leading_bytes >> 4) << 16;
}
template <int LAYOUT, int STRIDE_BYTES> SUMI_DEVICE u64 wgmma_swizzled_descriptor(u32 low)
{
    return (u64)low | (u64)((u32)STRIDE_BYTES >> 4 | (u32)LAYOUT << 30) << 32;
}
// Hides a value from the compiler, so that descriptors are recomputed where they are used. If the compiler kept them in
// registers, registers would spill.
SUMI_DEVICE u32 opaque(u32 x)
{
    asm volatile("" : "+r"(x));
    return x;
}
// Keeps the compiler from moving accesses to these registers across an asynchronous wgmma.
template <int N> SUMI_DEVICE void warpgroup_fence_operand(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// d[64 x N] = a[64 x 32 bytes of k] b + (accumulates ? d : 0), by one warpgroup, float sums. `a` is in registers: of
// each warp's 16 rows the A fragment of mma.sync (portable_sm80.cuh). b is the descriptor of an operand in shared
// memory, N-major for bf16 and K-major for e4m3. COUNT: accumulators of a thread. A0 .. A3, B, P: the asm operand
// numbers of a, b and accumulates. SIGNS: the immediates scale-a, scale-b (1: not negated), and for bf16 the transpose
// flag of b.
template <int N, int OPERANDS> struct wgmma_registers;
#define ATTENTION_WGMMA_OF(N, COUNT, A0, A1, A2, A3, B, P, OPERANDS, TYPES, SIGNS)                                     \
    template <> struct wgmma_registers<N, OPERANDS> {                                                                  \
        static SUMI_DEVICE void mma(float (&d)[COUNT], const u32* a, u64 b, int accumulates)                           \
        {                                                                                                              \
            asm volatile("{.reg .pred p; setp.ne.b32 p,%" #P ",0; wgmma.mma_async.sync.aligned.m64n" #N TYPES          \
                         " {" SUMI_ASM_REGISTERS_##COUNT "},{%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "},%" #B ",p" SIGNS     \
                                                         ";}"                                                          \
                         : SUMI_ASM_OUTPUTS_##COUNT("+f", d)                                                           \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulates));                      \
        }                                                                                                              \
    };
#define ATTENTION_WGMMA(N, COUNT, A0, A1, A2, A3, B, P)                                                                \
    ATTENTION_WGMMA_OF(N, COUNT, A0, A1, A2, A3, B, P, SUMI_OPERANDS_BF16, "k16.f32.bf16.bf16", ",1,1,1")
ATTENTION_WGMMA(64, 32, 32, 33, 34, 35, 36, 37)
ATTENTION_WGMMA(80, 40, 40, 41, 42, 43, 44, 45)
ATTENTION_WGMMA(96, 48, 48, 49, 50, 51, 52, 53)
ATTENTION_WGMMA(128, 64, 64, 65, 66, 67, 68, 69)
ATTENTION_WGMMA(192, 96, 96, 97, 98, 99, 100, 101)
ATTENTION_WGMMA(256, 128, 128, 129, 130, 131, 132, 133)
#define ATTENTION_WGMMA_E4M3(N, COUNT, A0, A1, A2, A3, B, P)                                                           \
    ATTENTION_WGMMA_OF(N, COUNT, A0, A1, A2, A3, B, P, SUMI_OPERANDS_E4M3, "k32.f32.e4m3.e4m3", ",1,1")
ATTENTION_WGMMA_E4M3(96, 48, 48, 49, 50, 51, 52, 53)
ATTENTION_WGMMA_E4M3(128, 64, 64, 65, 66, 67, 68, 69)
