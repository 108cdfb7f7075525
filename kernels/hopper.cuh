// PTX instructions of Hopper (sm_90a) that the GEMM, convolution and attention kernels share: mbarriers, TMA copies,
// clusters, wgmma. Each function here is one instruction or a few. gemm_sm90.cuh explains the order in which the
// kernels use them. Shared-memory addresses (u32) are in the shared window, as smem_addr() returns them.
//
// The accumulator of wgmma m64nN, D[64 x N], lies in the registers of one warpgroup (128 threads = warps 0..3). Warp w
// holds rows 16 w .. 16 w + 15. Within the warp, lane = 4 r + q (r = lane >> 2 = 0..7, q = lane & 3 = 0..3) holds, for
// each group j of 8 columns, four values in d[4 j .. 4 j + 3]:
//
//     columns 8 j +         0    1    2    3    4    5    6    7
//     row 16 w + r         d0   d1 | d0   d1 | d0   d1 | d0   d1
//     row 16 w + r + 8     d2   d3 | d2   d3 | d2   d3 | d2   d3
//     held by lane           4 r   | 4 r + 1 | 4 r + 2 | 4 r + 3
//
// Here d0 .. d3 stand for d[4 j] .. d[4 j + 3]. In (row, column): d0 is (r, 2 q), d1 (r, 2 q + 1), d2 (r + 8, 2 q) and
// d3 (r + 8, 2 q + 1).
#pragma once
#include "operands.cuh"
// The 128 bytes of a CUtensorMap (a TMA descriptor), passed to kernels by value as __grid_constant__.
struct __align__(64) sumi_tensor_map { u64 opaque[16]; };

SUMI_DEVICE u32 smem_addr(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// ---- mbarriers (64-bit objects in shared memory) --------------------------------------------------------------------
// A phase of an mbarrier ends when `count` arrivals have happened and all announced bytes have been copied. Phases are
// numbered from 0; waiters name the parity (0 or 1) of the phase for whose end they wait.
SUMI_DEVICE void mbarrier_init(u32 barrier, u32 count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// Arrives once and announces `bytes` of copies that signal this barrier.
SUMI_DEVICE void mbarrier_expect(u32 barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrives at the barrier at the same shared-memory offset in block `rank` of the cluster; `rank` may be the caller's
// own block. The .release.cluster form is left out on purpose: it costs a GPU-wide memory barrier per arrival
// (MEMBAR.ALL.GPU in SASS), a fifth of the GEMM's speed. The release is not needed: the arrival orders finished wgmma
// reads before later TMA writes, and both belong to the async proxy.
SUMI_DEVICE void mbarrier_arrive_cluster(u32 barrier, u32 rank)
{
    asm volatile(
        "{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [r];}" ::"r"(barrier),
        "r"(rank)
        : "memory");
}
// Blocks the thread until the phase of this parity is complete. try_wait suspends the thread in hardware, so the loop
// needs no sleep.
SUMI_DEVICE void mbarrier_wait(u32 barrier, u32 parity)
{
    u32 ok;
    do
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0,1,0,p;}"
                     : "=r"(ok)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    while (!ok);
}

// ---- TMA: global <-> shared tiles described by a tensor map ---------------------------------------------------------
// x, y, ... are the element coordinates of the box's first element, innermost dimension first. Loads write zeros for
// elements outside the tensor and still count their bytes; stores drop them. A load signals `barrier` with the box's
// bytes.
SUMI_DEVICE void tma_load_2d(u32 dst, const sumi_tensor_map* map, u32 barrier, int x, int y)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4}], [%2];" ::
            "r"(dst),
        "l"(map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}
// Loads one box into the same shared-memory offset of every block of the cluster whose bit is set in `mask` (bit =
// rank), and signals the barrier at the same offset in each of these blocks.
SUMI_DEVICE void tma_load_2d_multicast(u32 dst, const sumi_tensor_map* map, u32 barrier, int x, int y,
                                       unsigned short mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3,%4}], [%2], %5;" ::"r"(dst),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(mask)
                 : "memory");
}
// Copies `bytes` consecutive bytes from global to shared memory without a tensor map. `bytes` is a multiple of 16; both
// addresses are 16-byte aligned.
SUMI_DEVICE void bulk_load(u32 dst, const void* src, u32 bytes, u32 barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(barrier)
                 : "memory");
}
SUMI_DEVICE void tma_load_4d(u32 dst, const sumi_tensor_map* map, u32 barrier, int c, int x, int y, int n)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3,%4,%5,%6}], [%2];" ::"r"(dst),
                 "l"(map), "r"(barrier), "r"(c), "r"(x), "r"(y), "r"(n)
                 : "memory");
}
SUMI_DEVICE void tma_load_5d(u32 dst, const sumi_tensor_map* map, u32 barrier, int c, int parity_x, int x, int parity_y,
                             int y)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3,%4,%5,%6,%7}], [%2];" ::"r"(dst),
                 "l"(map), "r"(barrier), "r"(c), "r"(parity_x), "r"(x), "r"(parity_y), "r"(y)
                 : "memory");
}
SUMI_DEVICE void tma_store_2d(const sumi_tensor_map* map, u32 src, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2,%3}], [%1];" ::"l"(map), "r"(src),
                 "r"(x), "r"(y)
                 : "memory");
}
SUMI_DEVICE void tma_store_5d(const sumi_tensor_map* map, u32 src, int c, int parity_x, int x, int parity_y, int y)
{
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2,%3,%4,%5,%6}], [%1];" ::"l"(map),
                 "r"(src), "r"(c), "r"(parity_x), "r"(x), "r"(parity_y), "r"(y)
                 : "memory");
}
#define TMA_STORE_COMMIT() asm volatile("cp.async.bulk.commit_group;" ::: "memory")
// Waits until all committed stores have read their shared memory: it may be overwritten.
#define TMA_STORE_WAIT_READ() asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory")
// Waits until all committed stores have written their data.
#define TMA_STORE_WAIT() asm volatile("cp.async.bulk.wait_group 0;" ::: "memory")

// True in one lane of a converged warp. ptxas knows that a branch on elect.sync leaves one thread; it does not know
// this of `lane == 0`, and then wraps every TMA instruction in a loop over possibly different operands, which makes the
// producer the bottleneck.
SUMI_DEVICE bool elect_one()
{
    u32 p;
    asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0,1,0,p;}" : "=r"(p));
    return p;
}
// Returns v of lane 0. It tells ptxas that the value is the same in all lanes of the warp.
SUMI_DEVICE int uniform(int v) { return __shfl_sync(~0u, v, 0); }

// ---- clusters, named barriers, registers ----------------------------------------------------------------------------
SUMI_DEVICE u32 cluster_rank()
{
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
SUMI_DEVICE void cluster_sync() { asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory"); }
// Makes initialised mbarriers visible to the other blocks of the cluster. A cluster_sync() must follow.
#define FENCE_MBARRIER_INIT() asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory")
// Orders ordinary stores to shared memory before later reads by TMA or wgmma (the async proxy).
#define FENCE_PROXY_ASYNC() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
// Waits for the 128 threads of a consumer warpgroup, by named barrier 1 + consumer. The barrier ids are immediates: an
// id in a register makes ptxas reserve all sixteen barriers. CONSUMERS: the number of consumer warpgroups of the
// kernel. Ping-pong kernels use barriers 3 and 4 for another purpose (mainloop in gemm_sm90.cuh); they have two
// consumers, so barrier 3 is free for the third consumer elsewhere.
template <int CONSUMERS = 2> SUMI_DEVICE void consumer_sync(int consumer)
{
    if (consumer == 0) asm volatile("bar.sync 1, 128;" ::: "memory");
    else if (CONSUMERS == 2 || consumer == 1) asm volatile("bar.sync 2, 128;" ::: "memory");
    else asm volatile("bar.sync 3, 128;" ::: "memory");
}

// ---- fragments ------------------------------------------------------------------------------------------------------
// A word holds two bf16; the lower column is in the lower half. store_matrix_x4 and load_matrix_x4 move four 8x8
// matrices of 16-bit elements: lanes 8 i .. 8 i + 7 give the addresses of the eight 16-byte rows of matrix i, and
// register i of lane 4 r + q holds elements 2 q and 2 q + 1 of row r of matrix i.
SUMI_DEVICE void store_matrix_x4(u32 address, u32 a, u32 b, u32 c, u32 d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}
SUMI_DEVICE void load_matrix_x4(u32 address, u32& a, u32& b, u32& c, u32& d)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address));
}

// ---- wgmma ----------------------------------------------------------------------------------------------------------
// The matrix descriptor of an operand in shared memory: K-major rows of 128 bytes (64 bf16, or 128 e4m3 or int8), in
// the 128-byte swizzle (layout type 1, bits 62..63), groups of 8 rows 1024 bytes apart (the stride offset, in units of
// 16 bytes from bit 32 on). This layout ignores the leading offset (1, at bit 16). Tile bases are 1024-byte aligned.
// The next k-step inside a row is 32 bytes further (16 bf16, or 32 e4m3 or int8): 2 is added to the descriptor's low
// word.
//
// The low word holds address / 16 in bits 0..13. Shared memory ends below 2^18, so adding an offset inside shared
// memory to the low word never carries into bit 16.
SUMI_DEVICE u32 wgmma_descriptor_low(u32 address) { return (address & 0x3FFFF) >> 4 | 1 << 16; }
SUMI_DEVICE u64 wgmma_descriptor(u32 low) { return (u64)(1u << 30 | 1024 >> 4) << 32 | low; }
// WGMMA_FENCE orders register accesses before the wgmma that follow; WGMMA_COMMIT closes a group of wgmma;
// WGMMA_WAIT(n) waits until at most n groups are in flight.
#define WGMMA_FENCE() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define WGMMA_COMMIT() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WGMMA_WAIT(n) asm volatile("wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
// SUMI_ASM_REGISTERS_<n>: the names of n accumulator registers in the asm text. SUMI_ASM_OUTPUTS_<n>: their operand
// list.
#define SUMI_ASM_REGISTERS_32                                                                                          \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"  \
    "30,%31"
#define SUMI_ASM_REGISTERS_40 SUMI_ASM_REGISTERS_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define SUMI_ASM_REGISTERS_48 SUMI_ASM_REGISTERS_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define SUMI_ASM_REGISTERS_56 SUMI_ASM_REGISTERS_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define SUMI_ASM_REGISTERS_64                                                                                          \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"  \
    "30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%" \
    "58,%59,%60,%61,%62,%63"
#define SUMI_ASM_REGISTERS_72 SUMI_ASM_REGISTERS_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define SUMI_ASM_REGISTERS_80 SUMI_ASM_REGISTERS_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define SUMI_ASM_REGISTERS_88 SUMI_ASM_REGISTERS_80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define SUMI_ASM_REGISTERS_96                                                                                          \
    SUMI_ASM_REGISTERS_64                                                                                              \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%"           \
    "89,%90,%91,%92,%93,%94,%95"
#define SUMI_ASM_REGISTERS_104 SUMI_ASM_REGISTERS_96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define SUMI_ASM_REGISTERS_112 SUMI_ASM_REGISTERS_104 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define SUMI_ASM_REGISTERS_120 SUMI_ASM_REGISTERS_112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define SUMI_ASM_REGISTERS_128 SUMI_ASM_REGISTERS_120 ",%120,%121,%122,%123,%124,%125,%126,%127"
// C: the asm constraint of an accumulator register, "+f" for float or "+r" for int.
#define SUMI_ASM_OUTPUTS_8_FROM(C, d, i)                                                                               \
    C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3]), C(d[i + 4]), C(d[i + 5]), C(d[i + 6]), C(d[i + 7])
#define SUMI_ASM_OUTPUTS_32_FROM(C, d, i)                                                                              \
    SUMI_ASM_OUTPUTS_8_FROM(C, d, i), SUMI_ASM_OUTPUTS_8_FROM(C, d, i + 8), SUMI_ASM_OUTPUTS_8_FROM(C, d, i + 16),     \
        SUMI_ASM_OUTPUTS_8_FROM(C, d, i + 24)
#define SUMI_ASM_OUTPUTS_32(C, d) SUMI_ASM_OUTPUTS_32_FROM(C, d, 0)
#define SUMI_ASM_OUTPUTS_40(C, d) SUMI_ASM_OUTPUTS_32(C, d), SUMI_ASM_OUTPUTS_8_FROM(C, d, 32)
#define SUMI_ASM_OUTPUTS_48(C, d) SUMI_ASM_OUTPUTS_40(C, d), SUMI_ASM_OUTPUTS_8_FROM(C, d, 40)
#define SUMI_ASM_OUTPUTS_56(C, d) SUMI_ASM_OUTPUTS_48(C, d), SUMI_ASM_OUTPUTS_8_FROM(C, d, 48)
#define SUMI_ASM_OUTPUTS_64(C, d) SUMI_ASM_OUTPUTS_32_FROM(C, d, 0), SUMI_ASM_OUTPUTS_32_FROM(C, d, 32)
#define SUMI_ASM_OUTPUTS_72(C, d) SUMI_ASM_OUTPUTS_64(C, d), SUMI_ASM_OUTPUTS_8_FROM(C, d, 64)
#define SUMI_ASM_OUTPUTS_80(C, d)                                                                                      \
    SUMI_ASM_OUTPUTS_64(C, d), SUMI_ASM_OUTPUTS_8_FROM(C, d, 64), SUMI_ASM_OUTPUTS_8_FROM(C, d, 72)
#define SUMI_ASM_OUTPUTS_88(C, d) SUMI_ASM_OUTPUTS_80(C, d), SUMI_ASM_OUTPUTS_8_FROM(C, d, 80)
#define SUMI_ASM_OUTPUTS_96(C, d) SUMI_ASM_OUTPUTS_64(C, d), SUMI_ASM_OUTPUTS_32_FROM(C, d, 64)
#define SUMI_ASM_OUTPUTS_104(C, d) SUMI_ASM_OUTPUTS_96(C, d), SUMI_ASM_OUTPUTS_8_FROM(C, d, 96)
#define SUMI_ASM_OUTPUTS_112(C, d) SUMI_ASM_OUTPUTS_104(C, d), SUMI_ASM_OUTPUTS_8_FROM(C, d, 104)
#define SUMI_ASM_OUTPUTS_120(C, d) SUMI_ASM_OUTPUTS_112(C, d), SUMI_ASM_OUTPUTS_8_FROM(C, d, 112)
#define SUMI_ASM_OUTPUTS_128(C, d) SUMI_ASM_OUTPUTS_120(C, d), SUMI_ASM_OUTPUTS_8_FROM(C, d, 120)

// d[64 x N] = A[64 x 32 bytes of k] B[N x 32 bytes of k]^T + (accumulates ? d : 0), by one warpgroup; a and b are
// descriptors. accumulates == 0 overwrites d, so the accumulators need not be zeroed first.
// COUNT: accumulators of a thread. A, B, P: the asm operand numbers of a, b and accumulates. SIGNS: the immediates that
// the instruction takes behind the predicate: scale-a and scale-b (1: not negated), and for bf16 the two transpose
// flags (0: K-major).
template <int N, int OPERANDS> struct wgmma_shared;
#define SUMI_WGMMA_OF(N, COUNT, A, B, P, OPERANDS, SUM, CONSTRAINT, TYPES, SIGNS)                                      \
    template <> struct wgmma_shared<N, OPERANDS> {                                                                     \
        static SUMI_DEVICE void mma(SUM (&d)[COUNT], u64 a, u64 b, int accumulates)                                    \
        {                                                                                                              \
            asm volatile("{.reg .pred p; setp.ne.b32 p,%" #P ",0; wgmma.mma_async.sync.aligned.m64n" #N TYPES          \
                         " {" SUMI_ASM_REGISTERS_##COUNT "},%" #A ",%" #B ",p" SIGNS ";}"                              \
                         : SUMI_ASM_OUTPUTS_##COUNT(CONSTRAINT, d)                                                     \
                         : "l"(a), "l"(b), "r"(accumulates));                                                          \
        }                                                                                                              \
    };
#define SUMI_WGMMA(N, COUNT, A, B, P)                                                                                  \
    SUMI_WGMMA_OF(N, COUNT, A, B, P, SUMI_OPERANDS_BF16, float, "+f", "k16.f32.bf16.bf16", ",1,1,0,0")                 \
    SUMI_WGMMA_OF(N, COUNT, A, B, P, SUMI_OPERANDS_E4M3, float, "+f", "k32.f32.e4m3.e4m3", ",1,1")
// The int8 instruction has no scale-a and scale-b, and above N = 32 takes only multiples of 16.
#define SUMI_WGMMA_INT8(N, COUNT, A, B, P)                                                                             \
    SUMI_WGMMA_OF(N, COUNT, A, B, P, SUMI_OPERANDS_INT8, int, "+r", "k32.s32.s8.s8", "")
SUMI_WGMMA(64, 32, 32, 33, 34)
SUMI_WGMMA(80, 40, 40, 41, 42)
SUMI_WGMMA(96, 48, 48, 49, 50)
SUMI_WGMMA(112, 56, 56, 57, 58)
SUMI_WGMMA(128, 64, 64, 65, 66)
SUMI_WGMMA(144, 72, 72, 73, 74)
SUMI_WGMMA(160, 80, 80, 81, 82)
SUMI_WGMMA(176, 88, 88, 89, 90)
SUMI_WGMMA(192, 96, 96, 97, 98)
SUMI_WGMMA(208, 104, 104, 105, 106)
SUMI_WGMMA(224, 112, 112, 113, 114)
SUMI_WGMMA(240, 120, 120, 121, 122)
SUMI_WGMMA(256, 128, 128, 129, 130)
SUMI_WGMMA_INT8(64, 32, 32, 33, 34)
SUMI_WGMMA_INT8(80, 40, 40, 41, 42)
SUMI_WGMMA_INT8(96, 48, 48, 49, 50)
SUMI_WGMMA_INT8(112, 56, 56, 57, 58)
SUMI_WGMMA_INT8(128, 64, 64, 65, 66)
SUMI_WGMMA_INT8(160, 80, 80, 81, 82)
SUMI_WGMMA_INT8(176, 88, 88, 89, 90)
SUMI_WGMMA_INT8(192, 96, 96, 97, 98)
SUMI_WGMMA_INT8(208, 104, 104, 105, 106)
SUMI_WGMMA_INT8(224, 112, 112, 113, 114)
SUMI_WGMMA_INT8(240, 120, 120, 121, 122)
SUMI_WGMMA_INT8(256, 128, 128, 129, 130)
