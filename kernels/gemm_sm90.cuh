// The pipeline of the Hopper GEMM and convolution kernels: persistent, warp-specialised, TMA and wgmma, in clusters of
// two blocks. The accumulator layout of wgmma is drawn in hopper.cuh.
//
//   block = 384 threads: warpgroup 0 is the producer, one thread of which issues all copies; warpgroups 1 and 2 are the
//   consumers, each of which multiplies 64 * WM rows x BN columns. (With NC consumers: 128 * (1 + NC) threads.)
//
//      global --TMA--> stage 0..ST-1 [A: BM rows x 128 B | B: BN rows x 128 B] --wgmma--> registers
//                                                                                            | epilogue in float
//      global <--TMA-- staging memory (one per consumer warpgroup, bf16)  <--stmatrix--------+
//
// A stage holds one k-block: 128 bytes of k (64 bf16, or 128 e4m3 or int8) of both operands. The two blocks of a
// cluster compute two tiles that share one operand. Each block loads half of the shared operand's tile and multicasts
// it to both blocks. That saves a third of the L2 traffic (with B shared: 32 KiB per k-block of a 128 x 256 tile
// instead of 48).
//
// The mbarriers and their invariants
//   full[s]      The data of stage s is complete: 1 arrival (the block's own producer, which announces STAGE bytes) and
//                the bytes. The peer's multicast may arrive before the announcement. Then the count of pending bytes is
//                negative for a while; the phase cannot end before the arrival.
//   empty[s]     Stage s may be overwritten. 2 * NC arrivals: all consumers of both blocks, because a producer writes
//                the stage in both blocks. (Ping-pong: 2 arrivals, since one consumer of each block uses the stage.)
//   residual[w]  The residual of consumer w is in its staging memory. 1 arrival for each phase of its epilogue.
// No block exits before its peer is done (cluster_sync at the end), because the peer writes to its shared memory and
// arrives at its barriers.
//
// Layout of the dynamic shared memory (byte offsets OFF_* of sumi_tile)
//   0         ST stages                            OFF_VEC   VBUFS buffers: bias, gate, column scales, row scales
//   OFF_C     staging memory of NC consumers       OFF_BAR   full[ST], empty[ST], residual[NC], 8 bytes each
#pragma once
#include "gemm.h"
#include "hopper.cuh"

// The constants of a kernel. PP: ping-pong: each of the two consumers has its own tile of 64 * WM x BN, and they take
// turns in the main loop, so that the epilogue of one overlaps the products of the other. Without ping-pong the NC
// consumers share a tile of 64 * WM * NC rows. A tile is stored in PH phases, and in each phase as SLABS slabs of SW
// columns; a slab is one TMA store.
template <int WM_, int BN_, int ST_, int PH_, int SW_, int EPILOGUE_, int OP_, int PP_ = 0, int NC_ = 2>
struct sumi_tile {
    static constexpr int PP = PP_, VBUFS = PP ? 4 : 2, NC = NC_;
    static constexpr int WM = WM_, BN = BN_, ST = ST_;
    static constexpr int EPILOGUE = EPILOGUE_, OP = OP_; // EPILOGUE: SUMI_EPILOGUE_*, OP: SUMI_OPERANDS_*
    typedef typename sumi_sum<OP>::type sum;
    static constexpr int PH = PH_; // how often a tile fills the staging memory
    // Columns of a slab. 64 columns (128 bytes) use the 128-byte swizzle; other widths are not swizzled.
    static constexpr int SW = SW_;
    static constexpr int BM = (PP ? 1 : NC) * 64 * WM;
    static constexpr u32 A_BYTES = BM * 128, B_BYTES = BN * 128, STAGE = A_BYTES + B_BYTES;
    static constexpr int OUT_N = (EPILOGUE & SUMI_EPILOGUE_SWIGLU) ? BN / 2 : BN;
    static constexpr int SLABS = OUT_N < SW * PH ? 1 : OUT_N / SW / PH; // slabs per phase
    // Columns from the start of one phase to the start of the next. Where PH phases do not divide the columns evenly,
    // the phases overlap, and the columns in the overlap are stored twice.
    static constexpr int STEP = PH > 1 ? (OUT_N - SLABS * SW) / (PH - 1) : 0;
    static constexpr bool OVERLAPS = OUT_N != SLABS * SW * PH;
    static constexpr u32 SLAB_BYTES = WM * 64 * SW * 2, STAGING = SLABS * SLAB_BYTES;
    static constexpr bool SWZ = SW == 64;
    // float vectors of BN columns that the epilogue reads: bias, gate, column scales
    static constexpr int VECS = ((EPILOGUE & SUMI_EPILOGUE_BIAS) ? 1 : 0) + ((EPILOGUE & SUMI_EPILOGUE_GATE) ? 1 : 0)
                              + ((EPILOGUE & SUMI_EPILOGUE_SCALE) ? 1 : 0);
    static constexpr u32 OFF_C = ST * STAGE, OFF_VEC = OFF_C + NC * STAGING,
                         VEC_BYTES = VECS * BN * 4 + ((EPILOGUE & SUMI_EPILOGUE_SCALE) ? BM * 4 : 0),
                         OFF_BAR = OFF_VEC + VBUFS * VEC_BYTES;
    static constexpr u32 SMEM = OFF_BAR + (2 * ST + NC) * 8; // dynamic shared memory of the launch, in bytes
    static_assert(OUT_N == SLABS * SW + STEP * (PH - 1) && STEP <= SLABS * SW && STEP % 16 == 0 && SW % 16 == 0
                      && BN % 16 == 0,
                  "slabs");
    static_assert(!(OVERLAPS && (EPILOGUE & SUMI_EPILOGUE_RESIDUAL)),
                  "a residual that y overwrites would be read after its first store");
    static_assert(!PP || NC == 2, "two take turns");
    static_assert(SMEM <= 232448, "shared memory"); // 227 KiB, the most that a block may have on 9.0
};

// Registers per thread: a multiprocessor has 65536. With two consumers all 384 threads start with 168; then the
// producer keeps 56 and consumers get 224: 128 * 56 + 256 * 224 = 64512. With three consumers 512 threads start with
// 128; then 128 * 56 + 384 * 152 = 65536.
#define SUMI_REGS_PRODUCER() asm volatile("setmaxnreg.dec.sync.aligned.u32 56;")
#define SUMI_REGS_CONSUMER() asm volatile("setmaxnreg.inc.sync.aligned.u32 224;")
#define SUMI_REGS_CONSUMER3() asm volatile("setmaxnreg.inc.sync.aligned.u32 152;")

// The address of the dynamic shared memory. The swizzles are functions of address bits, so it must be 1024-byte
// aligned. It is when the kernel has no static shared memory.
SUMI_DEVICE u32 smem_base()
{
    extern __shared__ __align__(1024) unsigned char raw[];
    u32 b = smem_addr(raw);
    if (b & 1023) __trap();
    return b;
}

// Initialises the mbarriers. All threads of both blocks call it.
template <class T> SUMI_DEVICE void barriers_init(u32 base)
{
    if (threadIdx.x == 0) {
        for (int s = 0; s < T::ST; s++) {
            mbarrier_init(base + T::OFF_BAR + 8 * s, 1);
            mbarrier_init(base + T::OFF_BAR + 8 * (T::ST + s), T::PP ? 2 : 2 * T::NC);
        }
        for (int w = 0; w < T::NC; w++) mbarrier_init(base + T::OFF_BAR + 16 * T::ST + 8 * w, 1);
        FENCE_MBARRIER_INIT();
    }
    // The peer arrives at these barriers too, so both blocks wait.
    cluster_sync();
}

// The main loop of consumer warpgroup wg: multiplies kblocks stages into acc. `stage` and `phase` are the next stage
// and the parity of its full barrier, and are advanced. One wgmma group stays in flight, so a stage is released one
// k-block after it was read. halfway() is called once, in the middle of the loop, while products run. There the caller
// fetches the residual: by then the stores of the previous tile have read the staging memory (to wait for them at the
// start of the loop cost 1-2 %). The divisions for the tile's coordinates are hidden there too.
template <class T, class F>
SUMI_DEVICE void mainloop(typename T::sum (&acc)[T::WM][T::BN / 2], u32 base, int wg, int kblocks, int& stage,
                          u32& phase, F&& halfway)
{
    const u32 full = base + T::OFF_BAR, empty = full + 8 * T::ST;
    const u32 a0 = wg_desc_lo(base + (T::PP ? 0 : wg * 64 * T::WM * 128)), b0 = wg_desc_lo(base + T::A_BYTES);
    const int t = threadIdx.x & 127;
    int prev = 0;
    // Ping-pong: wait for this consumer's turn. Named barrier 3 gives consumer 0 its turn, barrier 4 consumer 1. 256:
    // this warpgroup waits, and the other consumer arrives.
    if (T::PP) {
        if (wg == 0) asm volatile("bar.sync 3, 256;" ::: "memory");
        else asm volatile("bar.sync 4, 256;" ::: "memory");
    }
    for (int kb = 0; kb < kblocks; kb++) {
        mbarrier_wait(full + 8 * stage, phase);
        const u32 a = a0 + stage * (T::STAGE >> 4), b = b0 + stage * (T::STAGE >> 4);
        WG_FENCE();
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int i = 0; i < T::WM; i++)
                wgmma_t<T::BN, T::OP>::mma(acc[i], wg_desc(a + i * 512 + k * 2), wg_desc(b + k * 2), kb | k);
        WG_COMMIT();
        if (kb > 0) {
            WG_WAIT(1);
            // Releases the stage: thread 0 to block 0 of the cluster, thread 1 to block 1.
            if (t < 2) mbarrier_arrive_cluster(empty + 8 * prev, t);
        }
        if (kb == kblocks / 2) halfway();
        prev = stage;
        if (++stage == T::ST) {
            stage = 0;
            phase ^= 1;
        }
    }
    // Ping-pong: all wgmma of this tile are issued, and it is the other consumer's turn.
    if (T::PP) {
        if (wg == 0) asm volatile("bar.arrive 4, 256;" ::: "memory");
        else asm volatile("bar.arrive 3, 256;" ::: "memory");
    }
    WG_WAIT(0);
    if (t < 2) mbarrier_arrive_cluster(empty + 8 * prev, t);
}

// The bias, gate, column scales and row scales of a tile. The producer copies them into shared memory together with the
// tile's first stage, and they signal the full barrier of that stage. There are two buffers, and tiles alternate
// between them. With kblocks >= ST no buffer is overwritten too early: before the producer fills the buffer of tile i
// again, for tile i + 2, it waits for a stage of tile i + 1 to be released, and by then all consumers have finished
// tile i. In ping-pong the epilogue of tile i overlaps the main loop of tile i + 1; there three buffers would be
// enough, and four are used, a power of two.
template <class T> SUMI_DEVICE u32 vecs_bytes(int cols, int rows)
{
    return T::VECS * cols * 4 + ((T::EPILOGUE & SUMI_EPILOGUE_SCALE) ? rows * 4 : 0);
}
template <class T>
SUMI_DEVICE void vecs_load(u32 dst, u32 bar, const float* bias, const float* gate, const float* col_scale,
                           const float* row_scale, int col0, int cols, int row0, int rows)
{
    u32 d = dst;
    if (T::EPILOGUE & SUMI_EPILOGUE_BIAS) {
        bulk_load(d, bias + col0, cols * 4, bar);
        d += T::BN * 4;
    }
    if (T::EPILOGUE & SUMI_EPILOGUE_GATE) {
        bulk_load(d, gate + col0, cols * 4, bar);
        d += T::BN * 4;
    }
    if (T::EPILOGUE & SUMI_EPILOGUE_SCALE) {
        bulk_load(d, col_scale + col0, cols * 4, bar);
        d += T::BN * 4;
        bulk_load(d, row_scale + row0, rows * 4, bar);
    }
}
// Loads from shared memory. They are not volatile, so that the compiler may issue them early. after_sync() keeps them
// behind the barrier that makes the data visible: it is volatile, and the address of the loads depends on its result.
SUMI_DEVICE float2 lds2(u32 a)
{
    float2 v;
    asm("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(a));
    return v;
}
SUMI_DEVICE float lds1(u32 a)
{
    float v;
    asm("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(a));
    return v;
}
SUMI_DEVICE u32 after_sync(u32 a)
{
    u32 r;
    asm volatile("mov.b32 %0, %1;" : "=r"(r) : "r"(a) : "memory");
    return r;
}

// The epilogue of consumer warpgroup wg: accumulators -> float epilogue -> bf16 in the staging memory -> TMA stores.
//   vbuf, count  the buffer of the tile's vectors; how many tiles this warpgroup has finished before
//   store        store(slab address, first column of the slab in the tile's output) issues one TMA store
//   each         each(64-row block, 8-column output group, float[4]) sees the thread's four results before rounding
//   fetch        fetch(phase) copies a phase's residual to the staging memory; phase 0 was fetched in the main loop
// A thread's accumulators: acc[i][4 j .. 4 j + 3] are group j of 8 columns (drawn in hopper.cuh).
template <class T, class S, class E, class F>
SUMI_DEVICE void epilogue(typename T::sum (&acc)[T::WM][T::BN / 2], u32 base, int wg, int vbuf, int count, S&& store,
                          E&& each, F&& fetch)
{
    const int t = threadIdx.x & 127, lane = t & 31, warp = uniform(t >> 5);
    const u32 stg = base + T::OFF_C + wg * T::STAGING;
    // CH: chunks of 16 columns in a phase; CG: chunks of the residual that are read ahead. KG, KS: the place of the
    // gate and of the column scales among the vectors.
    constexpr int CH = T::SLABS * T::SW / 16, CG = 4;
    constexpr int KG = (T::EPILOGUE & SUMI_EPILOGUE_BIAS) ? 1 : 0,
                  KS = KG + ((T::EPILOGUE & SUMI_EPILOGUE_GATE) ? 1 : 0);
#pragma unroll
    for (int ph = 0; ph < T::PH; ph++) {
        if (warp == 0 && elect_one()) {
            if (!(T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL)) TMA_STORE_WAIT_READ();
            else if (ph) fetch(ph);
        }
        // The stores of the phase before have read the staging memory: all warps may write it.
        wg_sync<T::NC>(wg);
        if (T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL)
            mbarrier_wait(base + T::OFF_BAR + 16 * T::ST + 8 * wg, (count * T::PH + ph) & 1);
        const u32 vec = after_sync(base + T::OFF_VEC + vbuf * T::VEC_BYTES), vb = vec + (lane & 3) * 8,
                  sb = after_sync(stg);
#pragma unroll
        for (int i = 0; i < T::WM; i++) {
            const int row = i * 64 + warp * 16 + (lane & 15);
            // The address that this lane gives stmatrix or ldmatrix for chunk c: row lane & 15 of the warp's 16 rows,
            // and columns 0..7 of the chunk in lanes 0..15, columns 8..15 in lanes 16..31.
            auto at = [&](int c) {
                const int col = c * 16 + (lane >> 4) * 8, in = col % T::SW;
                return sb + (col / T::SW) * T::SLAB_BYTES + row * T::SW * 2
                     + (T::SWZ ? ((in * 2) ^ ((row & 7) << 4)) : in * 2);
            };
            float rs[2]; // the scales of the lane's rows r and r + 8
            if (T::EPILOGUE & SUMI_EPILOGUE_SCALE) {
                const u32 r =
                    vec + T::VECS * T::BN * 4 + ((T::PP ? 0 : wg * 64 * T::WM) + i * 64 + warp * 16 + (lane >> 2)) * 4;
                rs[0] = lds1(r);
                rs[1] = lds1(r + 32);
            }
            // The residual, read CG chunks before the results overwrite the chunk.
            u32 ahead[CG][4];
#pragma unroll
            for (int c = 0; c < CG && c < CH; c++)
                if (T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL)
                    load_matrix_x4(at(c), ahead[c][0], ahead[c][1], ahead[c][2], ahead[c][3]);
#pragma unroll
            for (int c = 0; c < CH; c++) { // 16 output columns, one stmatrix.x4
                const u32 ad = at(c);
                u32 out[4], res[4];
                if (T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) {
#pragma unroll
                    for (int e = 0; e < 4; e++) res[e] = ahead[c % CG][e];
                    if (c + CG < CH)
                        load_matrix_x4(at(c + CG), ahead[c % CG][0], ahead[c % CG][1], ahead[c % CG][2],
                                       ahead[c % CG][3]);
                }
#pragma unroll
                for (int b = 0; b < 2; b++) {                   // two 8-column output groups
                    const int o = ph * T::STEP / 8 + c * 2 + b; // output group in the tile
                    float x[2][4];
#pragma unroll
                    for (int g = 0; g < ((T::EPILOGUE & SUMI_EPILOGUE_SWIGLU) ? 2 : 1); g++) {
                        const int j = (T::EPILOGUE & SUMI_EPILOGUE_SWIGLU) ? 2 * o + g : o;
#pragma unroll
                        for (int e = 0; e < 4; e++) x[g][e] = (float)acc[i][4 * j + e];
                        if (T::EPILOGUE & SUMI_EPILOGUE_SCALE) {
                            const float2 s = lds2(vb + (KS * T::BN + j * 8) * 4);
                            x[g][0] *= s.x * rs[0];
                            x[g][1] *= s.y * rs[0];
                            x[g][2] *= s.x * rs[1];
                            x[g][3] *= s.y * rs[1];
                        }
                        if (T::EPILOGUE & SUMI_EPILOGUE_BIAS) {
                            const float2 s = lds2(vb + j * 32);
                            x[g][0] += s.x;
                            x[g][1] += s.y;
                            x[g][2] += s.x;
                            x[g][3] += s.y;
                        }
                    }
                    if (T::EPILOGUE & SUMI_EPILOGUE_GELU)
#pragma unroll
                        for (int e = 0; e < 4; e++) x[0][e] = gelu_tanh(x[0][e]);
                    if (T::EPILOGUE & SUMI_EPILOGUE_SWIGLU)
#pragma unroll
                        for (int e = 0; e < 4; e++) x[0][e] = silu(x[0][e]) * x[1][e];
                    if (T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) {
                        const float2 g = (T::EPILOGUE & SUMI_EPILOGUE_GATE) ? lds2(vb + (KG * T::BN + o * 8) * 4)
                                                                            : make_float2(1.f, 1.f);
                        x[0][0] = fmaf(g.x, x[0][0], bf16_low(res[2 * b]));
                        x[0][1] = fmaf(g.y, x[0][1], bf16_high(res[2 * b]));
                        x[0][2] = fmaf(g.x, x[0][2], bf16_low(res[2 * b + 1]));
                        x[0][3] = fmaf(g.y, x[0][3], bf16_high(res[2 * b + 1]));
                    }
                    each(i, o, x[0]);
                    out[2 * b] = pack_bf16(x[0][0], x[0][1]);
                    out[2 * b + 1] = pack_bf16(x[0][2], x[0][3]);
                }
                store_matrix_x4(ad, out[0], out[1], out[2], out[3]);
            }
        }
        // Every thread's stmatrix must be visible to TMA, and all warps be done, before one thread issues the stores.
        FENCE_PROXY_ASYNC();
        wg_sync<T::NC>(wg);
        if (warp == 0 && elect_one()) {
#pragma unroll
            for (int sl = 0; sl < T::SLABS; sl++) store(stg + sl * T::SLAB_BYTES, ph * T::STEP + sl * T::SW);
            TMA_STORE_COMMIT();
        }
    }
}

// ---- GEMM: y[m, n] = epilogue(x[m, k] w[n, k]^T) --------------------------------------------------------------------
// A block's tile: row m and column n, in tiles. share_a: the cluster shares A, otherwise B. idle: the tile is computed
// but not stored.
struct sumi_pair {
    int m, n;
    bool share_a, idle;
};

// The tile of block `rank` for work item p, in a grid of tm x tn tiles. An item is a pair of tiles, normally one above
// the other (sharing B). The pairs of rows form groups of `group`; within a group all rows of a column come first, then
// the next column, so that the group's rows of x stay in L2 while all of w is read. When tm is odd, the last row is
// divided into pairs side by side (sharing A). If tn is odd too, both blocks compute the last tile of that row and one
// stores it. Each side-by-side pair comes directly after the last group's pairs of the same two columns, because its
// weights would otherwise be read from memory again.
SUMI_DEVICE sumi_pair pair_of(int p, int tm, int tn, int group, int rank)
{
    // pm: pairs of rows. last: the index of the last group. whole: the number of items before the last group.
    sumi_pair r;
    const int pm = tm >> 1, last = pm > 0 ? (pm - 1) / group : 0, whole = last * group * tn;
    const bool is_last = p >= whole;
    const int first = is_last ? last * group : p / (group * tn) * group, rows = is_last ? pm - first : group;
    int q = p - first * tn, n0 = 0;
    if (is_last && (tm & 1)) {
        // items of two columns: their pairs of rows and one pair side by side
        const int items = 2 * rows + 1;
        n0 = q / items * 2;
        q -= n0 / 2 * items;
        if (q == rows * min(2, tn - n0)) {
            r.m = tm - 1;
            r.n = min(n0 + rank, tn - 1);
            r.share_a = true;
            r.idle = n0 + rank >= tn;
            return r;
        }
    }
    const int column = rows > 0 ? q / rows : 0;
    r.m = (first + q - column * rows) * 2 + rank;
    r.n = n0 + column;
    r.share_a = false;
    r.idle = false;
    return r;
}

// The kernel. Tensor maps: mx of x, mw of w, my of y, mr of the residual. The grid is even and may be
// smaller than twice the number of items: cluster c computes items c, c + grid / 2, c + grid, ...
template <class T>
SUMI_DEVICE void gemm(const sumi_tmap& mx, const sumi_tmap& mw, const sumi_tmap& my, const sumi_tmap& mr,
                      const sumi_gemm_sm90_args& ar)
{
    const u32 base = smem_base(), rank = cluster_rank();
    const int wg = uniform(threadIdx.x >> 7) - 1;
    const int tm = (ar.m + T::BM - 1) / T::BM, tn = (ar.n + T::BN - 1) / T::BN,
              pairs = (tm >> 1) * tn + ((tm & 1) ? (tn + 1) / 2 : 0);
    constexpr int KE = T::OP == SUMI_OPERANDS_BF16 ? 64 : 128; // elements in 128 bytes of k
    const int kblocks = max((ar.k + KE - 1) / KE, T::ST);      // TMA fills zeros beyond k. At least ST: see vecs_load.
    int stage = 0;
    u32 phase = 0;
    barriers_init<T>(base);
    if (wg < 0) {
        SUMI_REGS_PRODUCER();
        if (uniform(threadIdx.x >> 5) == 0 && elect_one()) {
            const u32 full = base + T::OFF_BAR, empty = full + 8 * T::ST;
            const int step = gridDim.x >> 1;
            int vbuf = 0;
            // The gate is a row of a step table. The kernel reads the counter itself, so that a launch captured in a
            // CUDA graph is right for every step.
            const float* gate =
                (T::EPILOGUE & SUMI_EPILOGUE_GATE)
                    ? (const float*)ar.gate + (long long)*(const int*)ar.counter * ar.gate_stride + ar.gate_column
                    : nullptr;
            sumi_pair next = pair_of(blockIdx.x >> 1, tm, tn, ar.group, rank);
            for (int p = blockIdx.x >> 1; p < pairs; p += step, vbuf = (vbuf + 1) & (T::VBUFS - 1)) {
                const sumi_pair w = next;
                const int m0 = w.m * T::BM, n0 = w.n * T::BN;
                for (int kb = 0; kb < kblocks; kb++) {
                    const u32 a = base + stage * T::STAGE, b = a + T::A_BYTES, bar = full + 8 * stage;
                    const int x = kb * KE;
                    mbarrier_wait(empty + 8 * stage, phase ^ 1); // ^ 1: in the first round the stages are empty
                    if (T::VEC_BYTES && kb == 0) {
                        const int cols = min(T::BN, ar.n - n0), rows = min(T::BM, (ar.m - m0 + 3) & ~3);
                        mbarrier_expect(bar, T::STAGE + vecs_bytes<T>(cols, rows));
                        vecs_load<T>(base + T::OFF_VEC + vbuf * T::VEC_BYTES, bar, (const float*)ar.bias, gate,
                                     (const float*)ar.col_scale, (const float*)ar.row_scale, n0, cols, m0, rows);
                    } else mbarrier_expect(bar, T::STAGE);
                    if (!w.share_a) {
                        tma_load_2d_multicast(b + rank * (T::B_BYTES / 2), &mw, bar, x, n0 + rank * (T::BN / 2), 3);
                        tma_load_2d(a, &mx, bar, x, m0);
                        tma_load_2d(a + T::A_BYTES / 2, &mx, bar, x, m0 + T::BM / 2);
                    } else {
                        tma_load_2d_multicast(a + rank * (T::A_BYTES / 2), &mx, bar, x, m0 + rank * (T::BM / 2), 3);
                        tma_load_2d(b, &mw, bar, x, n0);
                        tma_load_2d(b + T::B_BYTES / 2, &mw, bar, x, n0 + T::BN / 2);
                    }
                    // The divisions for the next tile, while the copies of this k-block are in flight. The empty asm
                    // keeps the compiler from moving them.
                    if (kb == 0) {
                        next = pair_of(p + step, tm, tn, ar.group, rank);
                        asm volatile("" : "+r"(next.m), "+r"(next.n));
                    }
                    if (++stage == T::ST) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
            }
        }
    } else {
        if (T::NC == 3) SUMI_REGS_CONSUMER3();
        else SUMI_REGS_CONSUMER();
        const int warp = uniform((threadIdx.x & 127) >> 5), step = gridDim.x >> 1;
        int tile = 0, count = 0;
        typename T::sum acc[T::WM][T::BN / 2];
        // Ping-pong: consumer 0 has the first turn, so consumer 1 gives it. Consumer 1 begins with the cluster's second
        // tile, whose first stage follows the kblocks stages of the first tile.
        if (T::PP && wg == 1) {
            asm volatile("bar.arrive 3, 256;" ::: "memory");
            tile = 1;
            stage = kblocks % T::ST;
            phase = kblocks / T::ST & 1;
        }
        for (int p = (blockIdx.x >> 1) + tile * step; p < pairs; p += (T::PP ? 2 : 1) * step, count++) {
            int row0, out0, row_store;
            auto fetch = [&](int ph) {
                const u32 bar = base + T::OFF_BAR + 16 * T::ST + 8 * wg, stg = base + T::OFF_C + wg * T::STAGING;
                TMA_STORE_WAIT_READ();
                mbarrier_expect(bar, T::STAGING);
#pragma unroll
                for (int sl = 0; sl < T::SLABS; sl++)
                    tma_load_2d(stg + sl * T::SLAB_BYTES, &mr, bar, out0 + ph * T::STEP + sl * T::SW, row0);
            };
            mainloop<T>(acc, base, wg, kblocks, stage, phase, [&] {
                const sumi_pair w = pair_of(p, tm, tn, ar.group, rank);
                row0 = w.m * T::BM + (T::PP ? 0 : wg * 64 * T::WM);
                out0 = w.n * T::OUT_N;
                // Of a tile that both blocks compute, the idle block's store goes past the last row, where TMA drops
                // it. (With a branch around the store ptxas 13.0 omits, in some kernels, the move of a coordinate into
                // its uniform register.)
                row_store = w.idle ? 1 << 30 : row0;
                asm volatile("" : "+r"(row0), "+r"(out0), "+r"(row_store));
                if ((T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) && warp == 0 && elect_one()) fetch(0);
            });
            epilogue<T>(
                acc, base, wg, tile & (T::VBUFS - 1), count,
                [&](u32 src, int col) { tma_store_2d(&my, src, out0 + col, row_store); }, [](int, int, float*) {},
                fetch);
            tile += T::PP ? 2 : 1;
            // Ping-pong: skip the stages of the other consumer's tile.
            if (T::PP) {
                stage += kblocks;
                phase ^= stage / T::ST & 1;
                stage %= T::ST;
            }
        }
        if (warp == 0 && elect_one()) TMA_STORE_WAIT(); // the block exits only after its stores
    }
    cluster_sync(); // the peer no longer writes to this block's shared memory or arrives at its barriers
}

// Define a kernel PREFIX_epilogue_tile from a row of the lists in gemm.h: with two consumers, and with three.
#define SUMI_GEMM_KERNEL_2(PREFIX, OP, epilogue, tile, EPILOGUE, WM, BN, ST, PH, SW, PP)                               \
    namespace {                                                                                                        \
    typedef sumi_tile<WM, BN, ST, PH, SW, EPILOGUE, OP, PP> t_##epilogue##_##tile;                                     \
    }                                                                                                                  \
    static_assert(t_##epilogue##_##tile::SMEM == SUMI_GEMM_SM90_SHARED(EPILOGUE, WM, BN, ST, PH, PP),                  \
                  "the launcher's shared memory");                                                                     \
    SUMI_GEMM_KERNEL(PREFIX##_##epilogue##_##tile, t_##epilogue##_##tile)
#define SUMI_GEMM_KERNEL_3(PREFIX, OP, epilogue, tile, EPILOGUE, BN, ST, PH, SW)                                       \
    namespace {                                                                                                        \
    typedef sumi_tile<1, BN, ST, PH, SW, EPILOGUE, OP, 0, 3> t_##epilogue##_##tile;                                    \
    }                                                                                                                  \
    static_assert(t_##epilogue##_##tile::SMEM == SUMI_GEMM_SM90_SHARED_3(EPILOGUE, BN, ST, SW),                        \
                  "the launcher's shared memory");                                                                     \
    SUMI_GEMM_KERNEL(PREFIX##_##epilogue##_##tile, t_##epilogue##_##tile)
#define SUMI_GEMM_KERNEL(name, T)                                                                                      \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128 * (1 + T::NC), 1)                       \
        name(const __grid_constant__ sumi_tmap mx, const __grid_constant__ sumi_tmap mw,                               \
             const __grid_constant__ sumi_tmap my, const __grid_constant__ sumi_tmap mr,                               \
             const __grid_constant__ sumi_gemm_sm90_args ar)                                                           \
    {                                                                                                                  \
        gemm<T>(mx, mw, my, mr, ar);                                                                                   \
    }
