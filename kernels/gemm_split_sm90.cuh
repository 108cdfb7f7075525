// y[m][n] = epilogue(x[m][k] w[n][k]^T) for few rows (text encoders, adapters) on the pipeline of gemm_sm90.cuh. Blocks
// can share the k of a tile, and the epilogue is chosen at run time.
//   x [m][k], w [n][k]  bf16 or int8, rows 16-byte aligned: k a multiple of 8 for bf16, of 16 for int8; any m, n
//   y                   as sumi_gemm_epilogue says; swiglu: n a multiple of 16, y [m][n / 2]
//   grid                a number of multiprocessors, even, at most 2 * pairs * split
//   block               384, in clusters of 2 (a property of the kernel)
//   boxes of the maps   x {128 bytes, 64}, w {128 bytes, BN / 2}, 128-byte swizzle
//
// TMA writes zeros for rows past m, which cost no memory traffic. A tile of 128 rows multiplies a k-block of weights
// faster than memory delivers it. So below about 150 rows only the bytes of the weights count, and there is no smaller
// tile. Split k spreads these bytes over all multiprocessors.
//
// Split k: a work item is a pair of tiles and a range of k. Each consumer warpgroup writes its sums, four per thread at
// a time. The sums of int8 are exact integers, which are scaled when all partial sums have been added. The warpgroup
// that arrives last at a tile's counter adds all partial sums in the order of k, so the result does not depend on which
// one is last, and computes the epilogue. No block waits for another, so blocks need not run at the same time. Of a
// tile that both blocks compute (see pair_of), the idle block takes part in the copies only: a second arrival would end
// the count early.
#pragma once
#include "gemm_epilogue.cuh"
#include "gemm_sm90.cuh"

template <int OP_, int BN_, int ST_> struct sumi_split_tile { // the members that barriers_init and mainloop read
    static constexpr int PP = 0, NC = 2, WM = 1, OP = OP_, BM = 128, BN = BN_, ST = ST_;
    static constexpr int BK = OP == SUMI_OPERANDS_BF16 ? 64 : 128; // elements of a k-block
    static constexpr u32 A_BYTES = BM * 128, B_BYTES = BN * 128, STAGE = A_BYTES + B_BYTES, OFF_BAR = ST * STAGE,
                         OFF_FLAG = OFF_BAR + (2 * ST + 2) * 8, SMEM = OFF_FLAG + 8;
    static constexpr int VALUES = BN / 2; // sums of a thread
    typedef typename sumi_sum<OP>::type sum;
    static_assert(SMEM <= 232448, "shared memory");
};

// Writes this warpgroup's partial sum, number `index` of its tile. True for the last to arrive, whose acc then holds
// the sum of all. All 128 threads call it.
template <class T>
SUMI_DEVICE bool join(typename T::sum (&acc)[1][T::VALUES], u32 base, int wg, const sumi_gemm_split_args& ar,
                      long long tile, int index)
{
    typedef sumi_four<typename T::sum> four;
    typedef typename four::type vector;
    const int t = threadIdx.x & 127;
    const long long pitch = 2 * 128 * (T::VALUES / 4); // vectors of a partial sum
    vector* partial_sums = (vector*)ar.partial_sums + tile * ar.split * pitch + wg * 128 * (T::VALUES / 4) + t;
#pragma unroll
    for (int v = 0; v < T::VALUES / 4; v++)
        __stcg(partial_sums + index * pitch + v * 128,
               four::of(acc[0][4 * v], acc[0][4 * v + 1], acc[0][4 * v + 2], acc[0][4 * v + 3]));
    __threadfence();
    // Every thread's sums are visible before the arrival.
    wg_sync(wg);
    const u32 flag = base + T::OFF_FLAG + 4 * wg;
    u32* arrivals = (u32*)ar.arrivals + tile * 2 + wg;
    if (t == 0) {
        const u32 before = atomicAdd(arrivals, 1u);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(flag), "r"(before) : "memory");
    }
    wg_sync(wg);
    u32 before;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(before) : "r"(flag) : "memory");
    // All have read the flag before the next item writes it.
    wg_sync(wg);
    if (before != (u32)ar.split - 1) return false;
    __threadfence();
#pragma unroll
    for (int v = 0; v < T::VALUES; v++) acc[0][v] = 0;
    // Two partial sums at a time, as far as registers allow: each read that waits for another costs a round trip.
    constexpr int BATCH = T::VALUES <= 64 ? 16 : 4; // vectors of a partial sum whose reads are in flight
    for (int s = 0; s < ar.split; s += 2) {
        const bool has_second = s + 1 < ar.split;
#pragma unroll
        for (int b = 0; b < T::VALUES / 4; b += BATCH) {
            vector p[2][BATCH];
#pragma unroll
            for (int v = 0; v < BATCH; v++) p[0][v] = __ldcg(partial_sums + s * pitch + (b + v) * 128);
#pragma unroll
            for (int v = 0; v < BATCH; v++)
                p[1][v] = has_second ? __ldcg(partial_sums + (s + 1) * pitch + (b + v) * 128) : four::of(0, 0, 0, 0);
#pragma unroll
            for (int v = 0; v < BATCH; v++) {
                const int e = 4 * (b + v);
                acc[0][e] = acc[0][e] + p[0][v].x + p[1][v].x;
                acc[0][e + 1] = acc[0][e + 1] + p[0][v].y + p[1][v].y;
                acc[0][e + 2] = acc[0][e + 2] + p[0][v].z + p[1][v].z;
                acc[0][e + 3] = acc[0][e + 3] + p[0][v].w + p[1][v].w;
            }
        }
    }
    if (t == 0) *arrivals = 0;
    return true;
}

template <class T, bool SWIGLU>
SUMI_DEVICE void gemm_split(const sumi_tmap& mx, const sumi_tmap& mw, const sumi_gemm_split_args& ar)
{
    const u32 base = smem_base(), rank = cluster_rank();
    const int wg = uniform(threadIdx.x >> 7) - 1;
    const int tm = (ar.m + T::BM - 1) / T::BM, tn = (ar.n + T::BN - 1) / T::BN,
              items = ((tm >> 1) * tn + ((tm & 1) ? (tn + 1) / 2 : 0)) * ar.split;
    const int kblocks = (ar.k + T::BK - 1) / T::BK, step = gridDim.x >> 1; // split <= kblocks: no range of k is empty
    int stage = 0;
    u32 phase = 0;
    barriers_init<T>(base);
    if (wg < 0) {
        SUMI_REGS_PRODUCER();
        if (uniform(threadIdx.x >> 5) == 0 && elect_one()) {
            const u32 full = base + T::OFF_BAR, empty = full + 8 * T::ST;
            for (int p = blockIdx.x >> 1; p < items; p += step) {
                const sumi_pair w = pair_of(p / ar.split, tm, tn, ar.group, rank);
                const int s = p % ar.split, m0 = w.m * T::BM, n0 = w.n * T::BN,
                          end = (int)((long long)kblocks * (s + 1) / ar.split);
                for (int kb = (int)((long long)kblocks * s / ar.split); kb < end; kb++) {
                    const u32 a = base + stage * T::STAGE, b = a + T::A_BYTES, bar = full + 8 * stage;
                    const int x = kb * T::BK;
                    mbarrier_wait(empty + 8 * stage, phase ^ 1);
                    mbarrier_expect(bar, T::STAGE);
                    if (!w.share_a) {
                        tma_load_2d_multicast(b + rank * (T::B_BYTES / 2), &mw, bar, x, n0 + rank * (T::BN / 2), 3);
                        tma_load_2d(a, &mx, bar, x, m0);
                        tma_load_2d(a + T::A_BYTES / 2, &mx, bar, x, m0 + T::BM / 2);
                    } else {
                        tma_load_2d_multicast(a + rank * (T::A_BYTES / 2), &mx, bar, x, m0 + rank * (T::BM / 2), 3);
                        tma_load_2d(b, &mw, bar, x, n0);
                        tma_load_2d(b + T::B_BYTES / 2, &mw, bar, x, n0 + T::BN / 2);
                    }
                    if (++stage == T::ST) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
            }
        }
    } else {
        SUMI_REGS_CONSUMER();
        typename T::sum acc[1][T::VALUES];
        for (int p = blockIdx.x >> 1; p < items; p += step) {
            const sumi_pair w = pair_of(p / ar.split, tm, tn, ar.group, rank);
            const int s = p % ar.split,
                      count = (int)((long long)kblocks * (s + 1) / ar.split) - (int)((long long)kblocks * s / ar.split);
            mainloop<T>(acc, base, wg, count, stage, phase, [] {});
            if (w.idle) continue;
            if (ar.split > 1 && !join<T>(acc, base, wg, ar, (long long)w.m * tn + w.n, s)) continue;
            const int warp = (threadIdx.x & 127) >> 5;
            epilogue_tile<1, T::BN / 8, SWIGLU, T::OP != SUMI_OPERANDS_BF16>(
                ar.epilogue, ar.m, ar.n, w.m * T::BM + wg * 64 + warp * 16, w.n * T::BN,
                [&](int, int j, int e) { return (float)acc[0][4 * j + e]; });
        }
    }
    // The peer no longer writes to this block's shared memory or arrives at its barriers.
    cluster_sync();
}

// NAME_any_<bn> and NAME_swiglu_<bn>
#define SUMI_GEMM_SPLIT_KERNEL(NAME, OP, bn, ST)                                                                       \
    namespace {                                                                                                        \
    typedef sumi_split_tile<OP, bn, ST> t_##bn;                                                                        \
    }                                                                                                                  \
    static_assert(t_##bn::SMEM == SUMI_GEMM_SPLIT_SHARED(bn, ST), "the launcher's shared memory");                     \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)                                     \
        NAME##_any_##bn(const __grid_constant__ sumi_tmap mx, const __grid_constant__ sumi_tmap mw,                    \
                        const __grid_constant__ sumi_gemm_split_args ar)                                               \
    {                                                                                                                  \
        gemm_split<t_##bn, false>(mx, mw, ar);                                                                         \
    }                                                                                                                  \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)                                     \
        NAME##_swiglu_##bn(const __grid_constant__ sumi_tmap mx, const __grid_constant__ sumi_tmap mw,                 \
                           const __grid_constant__ sumi_gemm_split_args ar)                                            \
    {                                                                                                                  \
        gemm_split<t_##bn, true>(mx, mw, ar);                                                                          \
    }
