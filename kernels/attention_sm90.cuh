// PTX instructions that the attention kernels of Hopper need besides those of hopper.cuh: 3-D TMA copies,
// named barriers, and wgmma with its first operand in registers. PTX 8.0, sm_90a.
#pragma once
#include "attention.h"
#include "hopper.cuh"

#define ATTENTION_DEVICE static __device__ __forceinline__

// ---- barriers -------------------------------------------------------------------------------------------------------
// Arrives once at an mbarrier of this block.
ATTENTION_DEVICE void mbarrier_arrive(u32 bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// Waits for THREADS threads (whole warpgroups) at named barrier ID. The id must be an immediate: with an id in a
// register ptxas reserves all sixteen barriers.
template <int ID, int THREADS> ATTENTION_DEVICE void named_sync()
{
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(THREADS) : "memory");
}
// Waits for both blocks of the cluster. Writes of either block before it are visible to the other block after it.
ATTENTION_DEVICE void pair_sync()
{
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Change the number of registers per thread of the calling warpgroup: released by the producer, taken by the consumers.
template <int COUNT> ATTENTION_DEVICE void fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> ATTENTION_DEVICE void more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- TMA copies. The maps are 3-D {channels of a slab, rows, slabs}; `row` and `slab` are the box's first ones ------
ATTENTION_DEVICE void tensor_load(u32 to, const sumi_attention_map* map, u32 bar, int row, int slab)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3,%4,%5}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(0), "r"(row), "r"(slab)
                 : "memory");
}
// Loads one box into both blocks of a cluster of two, at the same shared-memory offset, and signals each block's own
// barrier.
ATTENTION_DEVICE void tensor_load_pair(u32 to, const sumi_attention_map* map, u32 bar, int row, int slab)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3,%4,%5}], [%2], %6;" ::"r"(to),
                 "l"(map), "r"(bar), "r"(0), "r"(row), "r"(slab), "h"((unsigned short)3)
                 : "memory");
}
ATTENTION_DEVICE void tensor_store(const sumi_attention_map* map, u32 from, int row, int slab)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2,%3,%4}], [%1];" ::"l"(map), "r"(from),
                 "r"(0), "r"(row), "r"(slab)
                 : "memory");
}
ATTENTION_DEVICE void prefetch_map(const sumi_attention_map* map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------
ATTENTION_DEVICE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// 2^x computed by the FMA units, for a share of the exponentials that would otherwise wait for the special function
// unit. Relative error 1e-4, which is less than that of bf16.
ATTENTION_DEVICE float exp2_polynomial(float x)
{
    x = fmaxf(x, -100.f);
    // the low bits of t are the nearest integer to x; f is in [-0.5, 0.5]
    const float t = x + 12582912.f, f = x - (t - 12582912.f);
    const float y = fmaf(fmaf(fmaf(f, 0.055171669f, 0.242611122f), f, 0.693260985f), f, 0.999928074f);
    return __int_as_float(__float_as_int(y) + (__float_as_int(t) << 23));
}

// Converts four floats to e4m3, the first one in the lowest byte. Values saturate at 448, NaN stays NaN.
ATTENTION_DEVICE u32 pack_e4m3(float a, float b, float c, float d)
{
    unsigned short low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    return (u32)low | (u32)high << 16;
}

// ---- wgmma ----------------------------------------------------------------------------------------------------------
// A matrix descriptor: the address, and the leading and stride byte offsets, in units of 16 bytes; layout type 1, 2 or
// 3: the 128-byte, 64-byte or 32-byte swizzle. The low 32 bits are kept separately, so a step along the operand is one
// 32-bit addition of (bytes of the step) / 16. A k-step of q and k stays inside a slab as long as the slab lasts.
//
//   q, k   K-major   leading offset: ignored       stride offset: 8 rows    k-step of 16 channels: + 32 bytes
//   v      N-major   leading offset: one slab      stride offset: 8 keys    k-step of 16 keys: + 16 rows
ATTENTION_DEVICE u32 descriptor_low(u32 address, u32 leading)
{
    return (address & 0x3FFFF) >> 4 | (leading >> 4) << 16;
}
template <int LAYOUT, int STRIDE> ATTENTION_DEVICE u64 descriptor(u32 low)
{
    return (u64)low | (u64)((u32)STRIDE >> 4 | (u32)LAYOUT << 30) << 32;
}
// Hides a value from the compiler, so that descriptors are recomputed where they are used. If the compiler kept them in
// registers, registers would spill.
ATTENTION_DEVICE u32 opaque(u32 x)
{
    asm volatile("" : "+r"(x));
    return x;
}
ATTENTION_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ATTENTION_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> ATTENTION_DEVICE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Keeps the compiler from moving accesses to these registers across an asynchronous wgmma.
template <int N> ATTENTION_DEVICE void hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// wgmma, by one warpgroup: d[64 x N] = a[64 x 16] b + (add ? d : 0), float sums. The accumulator d is drawn at the top
// of hopper.cuh. ss: both operands are in shared memory, K-major. rs: `a` is in registers (the A fragment of m16n8k16
// of each warp's 16 rows, see portable_sm80.cuh), and b is N-major in shared memory. _e4m3: the same of e4m3 with 32
// instead of 16 in k; b is K-major, and a in registers is the A fragment of m16n8k32.
template <int N> struct attention_wgmma;
#define ATTENTION_C8(d, i)                                                                                             \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7])
#define ATTENTION_C16(d, i) ATTENTION_C8(d, i), ATTENTION_C8(d, i + 8)
#define ATTENTION_C32(d, i) ATTENTION_C16(d, i), ATTENTION_C16(d, i + 16)
#define ATTENTION_C64(d, i) ATTENTION_C32(d, i), ATTENTION_C32(d, i + 32)
#define ATTENTION_R32                                                                                                  \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"  \
    "30,%31"
#define ATTENTION_R40 ATTENTION_R32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define ATTENTION_R48 ATTENTION_R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define ATTENTION_R64 ATTENTION_R48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define ATTENTION_R96                                                                                                  \
    ATTENTION_R64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%" \
                  "88,%89,%90,%91,%92,%93,%94,%95"
#define ATTENTION_R128                                                                                                 \
    ATTENTION_R96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%" \
                  "116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define ATTENTION_WGMMA(N, REGISTERS, COUNT, OUT, P0, P1, P2, P3, P4, P5)                                              \
    template <> struct attention_wgmma<N> {                                                                            \
        ATTENTION_DEVICE void ss(float (&d)[COUNT], u64 a, u64 b, int add)                                             \
        {                                                                                                              \
            asm volatile("{.reg .pred p; setp.ne.b32 p," P2 ",0; wgmma.mma_async.sync.aligned.m64n" #N                 \
                         "k16.f32.bf16.bf16 {" REGISTERS "}," P0 "," P1 ",p,1,1,0,0;}"                                 \
                         : OUT                                                                                         \
                         : "l"(a), "l"(b), "r"(add));                                                                  \
        }                                                                                                              \
        ATTENTION_DEVICE void ss_e4m3(float (&d)[COUNT], u64 a, u64 b, int add)                                        \
        {                                                                                                              \
            asm volatile("{.reg .pred p; setp.ne.b32 p," P2 ",0; wgmma.mma_async.sync.aligned.m64n" #N                 \
                         "k32.f32.e4m3.e4m3 {" REGISTERS "}," P0 "," P1 ",p,1,1;}"                                     \
                         : OUT                                                                                         \
                         : "l"(a), "l"(b), "r"(add));                                                                  \
        }                                                                                                              \
        ATTENTION_DEVICE void rs_e4m3(float (&d)[COUNT], const u32* a, u64 b, int add)                                 \
        {                                                                                                              \
            asm volatile("{.reg .pred p; setp.ne.b32 p," P5 ",0; wgmma.mma_async.sync.aligned.m64n" #N                 \
                         "k32.f32.e4m3.e4m3 {" REGISTERS "},{" P0 "," P1 "," P2 "," P3 "}," P4 ",p,1,1;}"              \
                         : OUT                                                                                         \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                              \
        }                                                                                                              \
        ATTENTION_DEVICE void rs(float (&d)[COUNT], const u32* a, u64 b, int add)                                      \
        {                                                                                                              \
            asm volatile("{.reg .pred p; setp.ne.b32 p," P5 ",0; wgmma.mma_async.sync.aligned.m64n" #N                 \
                         "k16.f32.bf16.bf16 {" REGISTERS "},{" P0 "," P1 "," P2 "," P3 "}," P4 ",p,1,1,1;}"            \
                         : OUT                                                                                         \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                              \
        }                                                                                                              \
    };
#define ATTENTION_OUT64 ATTENTION_C32(d, 0)
ATTENTION_WGMMA(64, ATTENTION_R32, 32, ATTENTION_OUT64, "%32", "%33", "%34", "%35", "%36", "%37")
#define ATTENTION_OUT80 ATTENTION_C32(d, 0), ATTENTION_C8(d, 32)
ATTENTION_WGMMA(80, ATTENTION_R40, 40, ATTENTION_OUT80, "%40", "%41", "%42", "%43", "%44", "%45")
#define ATTENTION_OUT96 ATTENTION_C32(d, 0), ATTENTION_C16(d, 32)
ATTENTION_WGMMA(96, ATTENTION_R48, 48, ATTENTION_OUT96, "%48", "%49", "%50", "%51", "%52", "%53")
#define ATTENTION_OUT128 ATTENTION_C64(d, 0)
ATTENTION_WGMMA(128, ATTENTION_R64, 64, ATTENTION_OUT128, "%64", "%65", "%66", "%67", "%68", "%69")
#define ATTENTION_OUT192 ATTENTION_C64(d, 0), ATTENTION_C32(d, 64)
ATTENTION_WGMMA(192, ATTENTION_R96, 96, ATTENTION_OUT192, "%96", "%97", "%98", "%99", "%100", "%101")
#define ATTENTION_OUT256 ATTENTION_C64(d, 0), ATTENTION_C64(d, 64)
ATTENTION_WGMMA(256, ATTENTION_R128, 128, ATTENTION_OUT256, "%128", "%129", "%130", "%131", "%132", "%133")
