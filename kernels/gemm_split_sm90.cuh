// y[m][n] = epilogue(x[m][k] w[n][k]^T) for few rows (text encoders, adapters) on the pipeline of gemm_sm90.cuh. Blocks
// can share the k of a tile, and the epilogue is chosen at run time.
//   x [m][k], w [n][k]  bf16 or int8, rows 16-byte aligned: k a multiple of 8 for bf16, of 16 for int8; any m, n
//   y                   as sumi_gemm_epilogue says; swiglu: n a multiple of 16, y [m][n / 2]
//   grid                a number of multiprocessors, even, at most 2 * pairs * split
//   block               384, in clusters of 2 (a property of the kernel)
//   boxes of the maps   x {128 bytes, 64}, w {128 bytes, TILE_COLUMNS / 2}, 128-byte swizzle
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

template <int OPERANDS_, int TILE_COLUMNS_, int STAGES_>
struct sumi_split_tile { // the members that barriers_init and mainloop read
    static constexpr int PING_PONG = 0, CONSUMERS = 2, ROW_BLOCKS = 1, OPERANDS = OPERANDS_, TILE_ROWS = 128,
                         TILE_COLUMNS = TILE_COLUMNS_, STAGES = STAGES_;
    static constexpr int BLOCK_K = OPERANDS == SUMI_OPERANDS_BF16 ? 64 : 128; // elements of a k-block
    static constexpr u32 A_BYTES = TILE_ROWS * 128, B_BYTES = TILE_COLUMNS * 128, STAGE_BYTES = A_BYTES + B_BYTES,
                         BARRIERS_OFFSET = STAGES * STAGE_BYTES, FLAG_OFFSET = BARRIERS_OFFSET + (2 * STAGES + 2) * 8,
                         SHARED_BYTES = FLAG_OFFSET + 8;
    static constexpr int VALUES = TILE_COLUMNS / 2; // sums of a thread
    typedef typename sumi_sum<OPERANDS>::type sum;
    static_assert(SHARED_BYTES <= 232448, "shared memory");
};

// Writes this warpgroup's partial sum, number `index` of its tile. True for the last to arrive, whose acc then holds
// the sum of all. All 128 threads call it.
template <class TILE>
SUMI_DEVICE bool join(typename TILE::sum (&acc)[1][TILE::VALUES], u32 base, int warpgroup,
                      const sumi_gemm_split_args& args, long long tile, int index)
{
    typedef sumi_four<typename TILE::sum> four;
    typedef typename four::type vector;
    const int thread = threadIdx.x & 127;
    const long long pitch = 2 * 128 * (TILE::VALUES / 4); // vectors of a partial sum
    vector* partial_sums =
        (vector*)args.partial_sums + tile * args.split * pitch + warpgroup * 128 * (TILE::VALUES / 4) + thread;
#pragma unroll
    for (int v = 0; v < TILE::VALUES / 4; v++)
        __stcg(partial_sums + index * pitch + v * 128,
               four::of(acc[0][4 * v], acc[0][4 * v + 1], acc[0][4 * v + 2], acc[0][4 * v + 3]));
    __threadfence();
    // Every thread's sums are visible before the arrival.
    warpgroup_sync(warpgroup);
    const u32 flag = base + TILE::FLAG_OFFSET + 4 * warpgroup;
    u32* arrivals = (u32*)args.arrivals + tile * 2 + warpgroup;
    if (thread == 0) {
        const u32 before = atomicAdd(arrivals, 1u);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(flag), "r"(before) : "memory");
    }
    warpgroup_sync(warpgroup);
    u32 before;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(before) : "r"(flag) : "memory");
    // All have read the flag before the next item writes it.
    warpgroup_sync(warpgroup);
    if (before != (u32)args.split - 1) return false;
    __threadfence();
#pragma unroll
    for (int v = 0; v < TILE::VALUES; v++) acc[0][v] = 0;
    // Two partial sums at a time, as far as registers allow: each read that waits for another costs a round trip.
    constexpr int BATCH = TILE::VALUES <= 64 ? 16 : 4; // vectors of a partial sum whose reads are in flight
    for (int range = 0; range < args.split; range += 2) {
        const bool has_second = range + 1 < args.split;
#pragma unroll
        for (int first = 0; first < TILE::VALUES / 4; first += BATCH) {
            vector sums[2][BATCH];
#pragma unroll
            for (int v = 0; v < BATCH; v++) sums[0][v] = __ldcg(partial_sums + range * pitch + (first + v) * 128);
#pragma unroll
            for (int v = 0; v < BATCH; v++)
                sums[1][v] =
                    has_second ? __ldcg(partial_sums + (range + 1) * pitch + (first + v) * 128) : four::of(0, 0, 0, 0);
#pragma unroll
            for (int v = 0; v < BATCH; v++) {
                const int element = 4 * (first + v);
                acc[0][element] = acc[0][element] + sums[0][v].x + sums[1][v].x;
                acc[0][element + 1] = acc[0][element + 1] + sums[0][v].y + sums[1][v].y;
                acc[0][element + 2] = acc[0][element + 2] + sums[0][v].z + sums[1][v].z;
                acc[0][element + 3] = acc[0][element + 3] + sums[0][v].w + sums[1][v].w;
            }
        }
    }
    if (thread == 0) *arrivals = 0;
    return true;
}

template <class TILE, bool SWIGLU>
SUMI_DEVICE void gemm_split(const sumi_tensor_map& x_map, const sumi_tensor_map& w_map,
                            const sumi_gemm_split_args& args)
{
    const u32 base = shared_base(), rank = cluster_rank();
    const int warpgroup = uniform(threadIdx.x >> 7) - 1;
    const int row_tiles = (args.m + TILE::TILE_ROWS - 1) / TILE::TILE_ROWS,
              column_tiles = (args.n + TILE::TILE_COLUMNS - 1) / TILE::TILE_COLUMNS,
              items = ((row_tiles >> 1) * column_tiles + ((row_tiles & 1) ? (column_tiles + 1) / 2 : 0)) * args.split;
    const int k_blocks = (args.k + TILE::BLOCK_K - 1) / TILE::BLOCK_K,
              step = gridDim.x >> 1; // split <= k_blocks: no range of k is empty
    int stage = 0;
    u32 phase = 0;
    barriers_init<TILE>(base);
    if (warpgroup < 0) {
        SUMI_REGISTERS_PRODUCER();
        if (uniform(threadIdx.x >> 5) == 0 && elect_one()) {
            const u32 full = base + TILE::BARRIERS_OFFSET, empty = full + 8 * TILE::STAGES;
            for (int item = blockIdx.x >> 1; item < items; item += step) {
                const sumi_pair pair = pair_of(item / args.split, row_tiles, column_tiles, args.group, rank);
                const int range = item % args.split, first_row = pair.m * TILE::TILE_ROWS,
                          first_column = pair.n * TILE::TILE_COLUMNS,
                          end = (int)((long long)k_blocks * (range + 1) / args.split);
                for (int k_block = (int)((long long)k_blocks * range / args.split); k_block < end; k_block++) {
                    const u32 a = base + stage * TILE::STAGE_BYTES, b = a + TILE::A_BYTES, barrier = full + 8 * stage;
                    const int k = k_block * TILE::BLOCK_K;
                    mbarrier_wait(empty + 8 * stage, phase ^ 1);
                    mbarrier_expect(barrier, TILE::STAGE_BYTES);
                    if (!pair.share_a) {
                        tma_load_2d_multicast(b + rank * (TILE::B_BYTES / 2), &w_map, barrier, k,
                                              first_column + rank * (TILE::TILE_COLUMNS / 2), 3);
                        tma_load_2d(a, &x_map, barrier, k, first_row);
                        tma_load_2d(a + TILE::A_BYTES / 2, &x_map, barrier, k, first_row + TILE::TILE_ROWS / 2);
                    } else {
                        tma_load_2d_multicast(a + rank * (TILE::A_BYTES / 2), &x_map, barrier, k,
                                              first_row + rank * (TILE::TILE_ROWS / 2), 3);
                        tma_load_2d(b, &w_map, barrier, k, first_column);
                        tma_load_2d(b + TILE::B_BYTES / 2, &w_map, barrier, k, first_column + TILE::TILE_COLUMNS / 2);
                    }
                    if (++stage == TILE::STAGES) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
            }
        }
    } else {
        SUMI_REGISTERS_CONSUMER();
        typename TILE::sum acc[1][TILE::VALUES];
        for (int item = blockIdx.x >> 1; item < items; item += step) {
            const sumi_pair pair = pair_of(item / args.split, row_tiles, column_tiles, args.group, rank);
            const int range = item % args.split, count = (int)((long long)k_blocks * (range + 1) / args.split)
                                                       - (int)((long long)k_blocks * range / args.split);
            mainloop<TILE>(acc, base, warpgroup, count, stage, phase, [] {});
            if (pair.idle) continue;
            if (args.split > 1
                && !join<TILE>(acc, base, warpgroup, args, (long long)pair.m * column_tiles + pair.n, range))
                continue;
            const int warp = (threadIdx.x & 127) >> 5;
            epilogue_tile<1, TILE::TILE_COLUMNS / 8, SWIGLU, TILE::OPERANDS != SUMI_OPERANDS_BF16>(
                args.epilogue, args.m, args.n, pair.m * TILE::TILE_ROWS + warpgroup * 64 + warp * 16,
                pair.n * TILE::TILE_COLUMNS, [&](int, int j, int e) { return (float)acc[0][4 * j + e]; });
        }
    }
    // The peer no longer writes to this block's shared memory or arrives at its barriers.
    cluster_sync();
}

// NAME_any_<COLUMNS> and NAME_swiglu_<COLUMNS>
#define SUMI_GEMM_SPLIT_KERNEL(NAME, OPERANDS, COLUMNS, STAGES)                                                        \
    namespace {                                                                                                        \
    typedef sumi_split_tile<OPERANDS, COLUMNS, STAGES> tile_##COLUMNS;                                                 \
    }                                                                                                                  \
    static_assert(tile_##COLUMNS::SHARED_BYTES == SUMI_GEMM_SPLIT_SHARED(COLUMNS, STAGES),                             \
                  "the launcher's shared memory");                                                                     \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1) NAME##_any_##COLUMNS(               \
        const __grid_constant__ sumi_tensor_map x_map, const __grid_constant__ sumi_tensor_map w_map,                  \
        const __grid_constant__ sumi_gemm_split_args args)                                                             \
    {                                                                                                                  \
        gemm_split<tile_##COLUMNS, false>(x_map, w_map, args);                                                         \
    }                                                                                                                  \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1) NAME##_swiglu_##COLUMNS(            \
        const __grid_constant__ sumi_tensor_map x_map, const __grid_constant__ sumi_tensor_map w_map,                  \
        const __grid_constant__ sumi_gemm_split_args args)                                                             \
    {                                                                                                                  \
        gemm_split<tile_##COLUMNS, true>(x_map, w_map, args);                                                          \
    }
