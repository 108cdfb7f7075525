// y[m, n] = finish(x[m, k] w[n, k]^T) for few rows on the pipeline of gemm_sm90.cuh, where k may be shared among the
// blocks of a cluster, and tiles side by side may share x. The kernels are in gemm_few_sm90.cu (bf16) and
// gemm_few_fp8_sm90.cu (e4m3).
//   x [m][k], w [n][k]    rows 16-byte aligned; any m; n a multiple of 8; e4m3: row_scale [m], col_scale [n]
//   y, residual           as sumi_gemm_finish says, aligned
//   grid                  pairs of tiles * 2 * PARTS, WIDE: fours of tiles * 4      block 384
//   cluster               2 * PARTS, WIDE: 4 (in the kernel)
//   boxes                 x {128 bytes, 64}, w {128 bytes, BN/2}, 128-byte swizzle      shared SUMI_GEMM_FEW_SHARED
// Nothing here has been measured yet; what is said of time follows from bytes and clocks.
//
// Why: 256 rows of a product leave two rows of tiles. Without shared k there are too few tiles for the multiprocessors;
// with parts that go through global memory (gemm_split_sm90.cu) the block that comes last reads all of them by itself.
//
//   cluster = PARTS pairs of blocks. Pair p multiplies its part of k for two tiles, one above the other, which share w.
//
//      rank 2p     upper tile, part p of k  --+
//      rank 2p+1   lower tile, part p of k    |   the blocks of a tile exchange sums: block p receives columns
//                                             +-> [p, p + 1) * BN / PARTS from all PARTS blocks, adds them in the order
//                                                 of k, and finishes them
//
// The exchange goes through distributed shared memory and lies over the stages, so the blocks of the cluster meet twice:
// when the last has read its stages, and when the last has stored its sums. They run at the same time, therefore waiting
// is allowed here. The result does not depend on who is early.
//
// WIDE: two pairs of tiles side by side instead of parts. Rank bit 0 is the row of tiles, bit 1 the column. Each block
// loads half of its x and half of its w, both for two blocks: 20 KiB from L2 in a k-block of 128 x 192 instead of 28.
// All tiles of a round read x at the same time, therefore those bytes count as much as the products: 28 KiB in the
// 0.44 us that 128 x 192 takes at 1.75 GHz are 8 TB/s of 128 multiprocessors.
//
// Each weight is read once or twice, mostly from memory and not from L2, and a stage waits for it longer than for x:
// the producer asks for the weights of DEPTH more k-blocks, into the L2 cache alone, and another warp asks for the
// first ones before the barriers are ready.
//
// A cluster does one pair of tiles and ends; further clusters start where multiprocessors become free. Bias, gate and
// scales of the columns are read before the main loop and the residual in its middle. What is absent adds zero or
// multiplies by one, so there is one kernel for all common epilogues: the branches are few and the same for a launch.
#pragma once
#include "gemm_sm90.cuh"

template <int BN_, int PARTS_, int WIDE_, int ST_, int FP8_>
struct sumi_few_tile { // what barriers_init and mainloop ask of a tile
    static constexpr int PP = 0, NC = 2, WM = 1, FP8 = FP8_, BM = 128, BN = BN_, ST = ST_, PARTS = PARTS_;
    static constexpr int WIDE = WIDE_, CLUSTER = 2 * PARTS << WIDE, SHARERS = 2 + WIDE;
    static constexpr int KE = FP8 ? 128 : 64; // elements in 128 bytes of k
    static constexpr int SHARE = BN / PARTS;  // columns that a block finishes
    static constexpr int GROUPS = SHARE / 8;  // of 8 columns: four sums of a thread
    static constexpr int DEPTH = 6;           // k-blocks of weights on their way to the L2 cache
    static constexpr u32 A_BYTES = BM * 128, B_BYTES = BN * 128, STAGE = A_BYTES + B_BYTES, OFF_VEC = ST * STAGE,
                         OFF_ROW = OFF_VEC + 3 * SHARE * 4, OFF_BAR = OFF_ROW + BM * 4,
                         SMEM = OFF_BAR + (2 * ST + 2) * 8;
    static_assert(BN % (8 * PARTS) == 0 && SHARE <= 256 && OFF_BAR % 8 == 0, "columns");
    static_assert(!WIDE || PARTS == 1, "the ranks of a wide cluster have no bits for parts");
    static_assert(PARTS == 1 || BM * BN * 4 <= ST * STAGE, "the exchange lies over the stages");
    static_assert(SMEM <= 232448, "shared memory");
};

__device__ __forceinline__ void sts1(u32 a, float v)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(a), "f"(v) : "memory");
}

// Every block's sums of part p's columns to the block of part p; v holds this block's own columns when it ends. All
// threads of the cluster meet the barriers: exchange_idle() is for those that have no sums.
template <class T, class F>
__device__ __forceinline__ void exchange(float (&acc)[1][T::BN / 2], float (&v)[4 * T::GROUPS], u32 base, int wg,
                                         u32 rank, F&& between)
{
    // of this thread, from part `from`: float4 (from * 2 + wg) * GROUPS + group, 128 threads each
    const u32 mine = base + (wg * T::GROUPS * 128 + (threadIdx.x & 127)) * 16;
    constexpr u32 PART_BYTES = 2 * T::GROUPS * 128 * 16;
    // no stage of the cluster is read any more
    cluster_arrive_relaxed();
    cluster_wait();
    u32 at[T::PARTS];
#pragma unroll
    for (int to = 0; to < T::PARTS; to++)
        at[to] = cluster_address(mine + (rank >> 1) * PART_BYTES, 2 * to + (rank & 1));
#pragma unroll
    for (int g = 0; g < T::GROUPS; g++)
#pragma unroll
        for (int to = 0; to < T::PARTS; to++) { // one after another, so that no block is everybody's target at a time
            const float* sums = acc[0] + (to * T::GROUPS + g) * 4;
            cluster_store4(at[to] + g * 128 * 16, sums[0], sums[1], sums[2], sums[3]);
        }
    cluster_arrive();
    between();
    cluster_wait();
#pragma unroll
    for (int from = 0; from < T::PARTS; from++)
#pragma unroll
        for (int g = 0; g < T::GROUPS; g++) {
            float4 s;
            asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                         : "=f"(s.x), "=f"(s.y), "=f"(s.z), "=f"(s.w)
                         : "r"(mine + from * PART_BYTES + g * 128 * 16)
                         : "memory");
            v[4 * g] = from == 0 ? s.x : v[4 * g] + s.x;
            v[4 * g + 1] = from == 0 ? s.y : v[4 * g + 1] + s.y;
            v[4 * g + 2] = from == 0 ? s.z : v[4 * g + 2] + s.z;
            v[4 * g + 3] = from == 0 ? s.w : v[4 * g + 3] + s.w;
        }
}
__device__ __forceinline__ void exchange_idle()
{
    cluster_arrive_relaxed();
    cluster_wait();
    cluster_arrive();
    cluster_wait();
}

// The sums of this thread's GROUPS times 8 columns -> y. Layout as of the accumulators (gemm_sm90.cuh). res: two bf16
// of the residual, rows `row` and `row` + 8 of each group; zeros where there is none.
template <class T>
__device__ __forceinline__ void few_finish(const sumi_gemm_finish& f, const float (&v)[4 * T::GROUPS],
                                           const u32 (&res)[T::GROUPS][2], u32 base, int wg, int row, int rows, int col,
                                           int cols)
{
    const int lane = threadIdx.x & 31, in = row & 127; // row of the tile
    const u32 vec = after_sync(base + T::OFF_VEC) + (lane & 3) * 8;
    const bool has_gelu = f.activation != 0;
    float scale[2] = {1.f, 1.f};
    if (T::FP8) {
        const u32 r = after_sync(base + T::OFF_ROW) + in * 4;
        scale[0] = lds1(r);
        scale[1] = lds1(r + 32);
    }
    u32* y0 = (u32*)((u64)f.y + 2 * ((u64)row * f.ldy + f.column + col));
    u32* y1 = (u32*)((u64)y0 + 16 * (u64)f.ldy);
#pragma unroll
    for (int g = 0; g < T::GROUPS; g++) {
        const float2 bias = lds2(vec + g * 32), gate = lds2(vec + T::SHARE * 4 + g * 32);
        float x[4] = {v[4 * g], v[4 * g + 1], v[4 * g + 2], v[4 * g + 3]};
        if (T::FP8) {
            const float2 s = lds2(vec + 2 * T::SHARE * 4 + g * 32);
            x[0] *= s.x * scale[0];
            x[1] *= s.y * scale[0];
            x[2] *= s.x * scale[1];
            x[3] *= s.y * scale[1];
        }
        x[0] += bias.x;
        x[1] += bias.y;
        x[2] += bias.x;
        x[3] += bias.y;
        if (has_gelu) {
#pragma unroll
            for (int e = 0; e < 4; e++) x[e] = gelu_tanh(x[e]);
        }
        x[0] = fmaf(gate.x, x[0], bf16_lo(res[g][0]));
        x[1] = fmaf(gate.y, x[1], bf16_hi(res[g][0]));
        x[2] = fmaf(gate.x, x[2], bf16_lo(res[g][1]));
        x[3] = fmaf(gate.y, x[3], bf16_hi(res[g][1]));
        if (col + g * 8 < cols) {
            if (row < rows) y0[g * 4] = pack_bf16(x[0], x[1]);
            if (row + 8 < rows) y1[g * 4] = pack_bf16(x[2], x[3]);
        }
    }
}

template <class T>
__device__ __forceinline__ void gemm_few(const sumi_tmap& mx, const sumi_tmap& mw, const sumi_gemm_few_args& ar)
{
    const u32 base = smem_base(), rank = cluster_rank(), half = rank & 1, side = rank >> 1 & 1;
    const int wg = uniform(threadIdx.x >> 7) - 1, part = T::PARTS > 1 ? uniform(rank >> 1) : 0;
    const int tm = (ar.m + T::BM - 1) / T::BM, tn = (ar.n + T::BN - 1) / T::BN, item = blockIdx.x / T::CLUSTER;
    const int kblocks = (ar.k + T::KE - 1) / T::KE; // PARTS of them at least: no part is empty
    const int begin = kblocks * part / T::PARTS, end = kblocks * (part + 1) / T::PARTS;
    sumi_pair w;
    if (T::WIDE) { // past the last row or column of tiles TMA fills zeros, and nothing is stored
        const int pairs = (tm + 1) / 2;
        w.m = item % pairs * 2 + half;
        w.n = item / pairs * 2 + side;
        w.share_a = w.idle = false;
    } else w = pair_of(item, tm, tn, ar.group, half);
    const int m0 = w.m * T::BM, n0 = w.n * T::BN;
    if (threadIdx.x == 0) {
        prefetch_tmap(&mx);
        prefetch_tmap(&mw);
    }
    // The first weights come from memory while the cluster meets.
    if (uniform(threadIdx.x >> 5) == 1 && elect_one()) {
#pragma unroll 1
        for (int kb = begin; kb < min(end, begin + T::ST); kb++)
            tma_prefetch_2d(&mw, kb * T::KE, n0 + half * (T::BN / 2));
    }
    barriers_init<T>(base, T::SHARERS);
    if (wg < 0) {
        SUMI_REGS_PRODUCER();
        if (uniform(threadIdx.x >> 5) == 0 && elect_one()) {
            const u32 full = base + T::OFF_BAR, empty = full + 8 * T::ST;
            const unsigned short both = 3 << (2 * part);
            int stage = 0, asked = begin + T::ST;
            u32 phase = 0;
            for (int kb = begin; kb < end; kb++) {
                const u32 a = base + stage * T::STAGE, b = a + T::A_BYTES, bar = full + 8 * stage;
                const int x = kb * T::KE;
                mb_wait(empty + 8 * stage, phase ^ 1); // ^1: the first round finds the stages empty
                mb_expect(bar, T::STAGE);
                if (T::WIDE) { // x for those of this row, w for those of this column
                    tma_load_2d_multicast(b + half * (T::B_BYTES / 2), &mw, bar, x, n0 + half * (T::BN / 2),
                                          3 << (2 * side));
                    tma_load_2d_multicast(a + side * (T::A_BYTES / 2), &mx, bar, x, m0 + side * (T::BM / 2), 5 << half);
                } else if (!w.share_a) {
                    tma_load_2d_multicast(b + half * (T::B_BYTES / 2), &mw, bar, x, n0 + half * (T::BN / 2), both);
                    tma_load_2d(a, &mx, bar, x, m0);
                    tma_load_2d(a + T::A_BYTES / 2, &mx, bar, x, m0 + T::BM / 2);
                } else {
                    tma_load_2d_multicast(a + half * (T::A_BYTES / 2), &mx, bar, x, m0 + half * (T::BM / 2), both);
                    tma_load_2d(b, &mw, bar, x, n0);
                    tma_load_2d(b + T::B_BYTES / 2, &mw, bar, x, n0 + T::BN / 2);
                }
                // not before all stages are on their way, which are needed sooner
                for (; kb - begin >= T::ST - 1 && asked < min(end, kb + 1 + T::DEPTH); asked++) {
#pragma unroll 1
                    for (int h = w.share_a ? 0 : half; h <= (w.share_a ? 1 : (int)half); h++)
                        tma_prefetch_2d(&mw, asked * T::KE, n0 + h * (T::BN / 2));
                }
                if (++stage == T::ST) {
                    stage = 0;
                    phase ^= 1;
                }
            }
        }
        __syncwarp(); // the copying lane comes late, and a warp arrives as a whole
        if (T::PARTS > 1) exchange_idle();
    } else {
        SUMI_REGS_CONSUMER();
        const sumi_gemm_finish& f = ar.finish;
        const int t = threadIdx.x & 127, lane = t & 31, warp = t >> 5;
        const int row = m0 + wg * 64 + warp * 16 + (lane >> 2), first = n0 + part * T::SHARE,
                  col = first + (lane & 3) * 2;
        const int rows = w.idle ? 0 : ar.m; // a tile computed twice is stored once
        // One column of the vectors for each thread of both warpgroups, one row's scale as well. They reach shared
        // memory after the main loop, under which they come.
        const int mine = threadIdx.x - 128, c = first + mine;
        const bool has_column = mine < T::SHARE && c < ar.n;
        float bias = 0.f, gate = 1.f, col_scale = 1.f, row_scale = 1.f;
        if (has_column) {
            if (f.bias) bias = ((const float*)f.bias)[c];
            if (f.gate)
                gate = ((const float*)f.gate)[(long long)*(const int*)f.counter * f.gate_stride + f.gate_column + c];
            if (T::FP8) col_scale = ((const float*)f.col_scale)[c];
        }
        if (T::FP8 && mine < T::BM && m0 + mine < ar.m) row_scale = ((const float*)f.row_scale)[m0 + mine];
        float acc[1][T::BN / 2], v[4 * T::GROUPS];
        u32 res[T::GROUPS][2];
        int stage = 0;
        u32 phase = 0;
        mainloop<T>(
            acc, base, wg, end - begin, stage, phase,
            [&] {
#pragma unroll
                for (int g = 0; g < T::GROUPS; g++) {
                    res[g][0] = res[g][1] = 0u;
                    if (f.residual && col + g * 8 < ar.n) {
                        const u64 at = (u64)f.residual + 2 * ((u64)row * f.ldy + f.column + col + g * 8);
                        if (row < rows) res[g][0] = *(const u32*)at;
                        if (row + 8 < rows) res[g][1] = *(const u32*)(at + 16 * (u64)f.ldy);
                    }
                }
            },
            rank, T::SHARERS);
        const auto share_vectors = [&] {
            if (mine < T::SHARE) {
                const u32 at = base + T::OFF_VEC + mine * 4;
                sts1(at, bias);
                sts1(at + T::SHARE * 4, gate);
                sts1(at + 2 * T::SHARE * 4, col_scale);
            }
            if (T::FP8 && mine < T::BM) sts1(base + T::OFF_ROW + mine * 4, row_scale);
            asm volatile("bar.sync 3, 256;" ::: "memory"); // both consumers
        };
        if (T::PARTS > 1) exchange<T>(acc, v, base, wg, rank, share_vectors);
        else {
            share_vectors();
#pragma unroll
            for (int i = 0; i < T::BN / 2 && T::PARTS == 1; i++) v[i % (4 * T::GROUPS)] = acc[0][i];
        }
        few_finish<T>(f, v, res, base, wg, row, rows, col, ar.n);
    }
    // With parts nobody reaches for a peer after the exchange.
    if (T::PARTS == 1) cluster_sync();
}

#define SUMI_FEW_KERNEL(tile, bn, PARTS, WIDE, ST, type, FP8)                                                          \
    namespace {                                                                                                        \
    typedef sumi_few_tile<bn, PARTS, WIDE, ST, FP8> t_##tile;                                                          \
    }                                                                                                                  \
    static_assert(t_##tile::SMEM == SUMI_GEMM_FEW_SHARED(bn, PARTS, ST), "the launcher's shared memory");              \
    extern "C" __global__ void __cluster_dims__(t_##tile::CLUSTER, 1, 1) __launch_bounds__(384, 1)                     \
        sumi_gemm_few_##type##_##tile(const __grid_constant__ sumi_tmap mx, const __grid_constant__ sumi_tmap mw,      \
                                      const __grid_constant__ sumi_gemm_few_args ar)                                   \
    {                                                                                                                  \
        gemm_few<t_##tile>(mx, mw, ar);                                                                                \
    }
