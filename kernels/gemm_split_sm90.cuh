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
// tile that both blocks compute (see block_tile_of), the idle block takes part in the copies only: a second arrival
// would end the count early.
#pragma once
#include "gemm_epilogue.cuh"
#include "gemm_sm90.cuh"

// The members that barriers_init, mainloop and operands_load read, and the split's own.
template <int OPERANDS_, int TILE_COLUMNS_, int STAGES_> struct sumi_split_tile {
    static constexpr int PING_PONG = 0, CONSUMERS = 2, M64_TILES = 1, OPERANDS = OPERANDS_, TILE_ROWS = 128,
                         TILE_COLUMNS = TILE_COLUMNS_, STAGES = STAGES_;
    static constexpr int K_BLOCK = OPERANDS == SUMI_OPERANDS_BF16 ? 64 : 128; // elements in 128 bytes of k
    static constexpr u32 A_BYTES = TILE_ROWS * 128, B_BYTES = TILE_COLUMNS * 128, STAGE_BYTES = A_BYTES + B_BYTES,
                         BARRIERS_OFFSET = STAGES * STAGE_BYTES;
    static constexpr u32 FLAGS_OFFSET = BARRIERS_OFFSET + (2 * STAGES + CONSUMERS) * 8; // a u32 for each consumer
    static constexpr u32 SHARED_BYTES = FLAGS_OFFSET + CONSUMERS * 4;
    static constexpr int THREAD_SUMS = TILE_COLUMNS / 2;
    typedef typename sumi_sum<OPERANDS>::type sum;
    static_assert(SHARED_BYTES <= 232448, "shared memory");
};

// Writes this warpgroup's partial sum, that of range `k_range` of its tile's k. True for the last to arrive, whose acc
// then holds the sum of all. All 128 threads call it.
template <class T>
SUMI_DEVICE bool add_partial_sums(typename T::sum (&acc)[1][T::THREAD_SUMS], u32 smem, int consumer,
                                  const sumi_gemm_split_args& args, long long tile, int k_range)
{
    typedef sumi_four<typename T::sum> four;
    typedef typename four::type vector; // four sums of a thread
    constexpr int VECTORS = T::THREAD_SUMS / 4;
    const int thread = threadIdx.x & 127; // of the warpgroup
    // vector [tile][range of k][consumer][VECTORS][thread]
    const long long pitch = 2 * 128 * VECTORS; // vectors of a partial sum
    vector* partial_sums = (vector*)args.partial_sums + tile * args.split * pitch + consumer * 128 * VECTORS + thread;
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
        __stcg(partial_sums + k_range * pitch + v * 128,
               four::of(acc[0][4 * v], acc[0][4 * v + 1], acc[0][4 * v + 2], acc[0][4 * v + 3]));
    __threadfence();
    // Every thread's sums are visible before the arrival.
    consumer_sync(consumer);
    const u32 flag = smem + T::FLAGS_OFFSET + 4 * consumer;
    u32* arrivals = (u32*)args.arrivals + tile * 2 + consumer;
    if (thread == 0) {
        const u32 arrived_before = atomicAdd(arrivals, 1u);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(flag), "r"(arrived_before) : "memory");
    }
    consumer_sync(consumer);
    u32 arrived_before;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(arrived_before) : "r"(flag) : "memory");
    // All have read the flag before the next item writes it.
    consumer_sync(consumer);
    if (arrived_before != (u32)args.split - 1) return false;
    __threadfence();
#pragma unroll
    for (int i = 0; i < T::THREAD_SUMS; i++) acc[0][i] = 0;
    // Two partial sums at a time, as far as registers allow: each read that waits for another costs a round trip. BATCH:
    // vectors of a partial sum whose reads are in flight.
    constexpr int BATCH = VECTORS <= 16 ? VECTORS : 4;
    for (int range = 0; range < args.split; range += 2) {
        const bool has_second = range + 1 < args.split;
#pragma unroll
        for (int batch = 0; batch < VECTORS; batch += BATCH) {
            vector first[BATCH], second[BATCH];
#pragma unroll
            for (int v = 0; v < BATCH; v++) first[v] = __ldcg(partial_sums + range * pitch + (batch + v) * 128);
#pragma unroll
            for (int v = 0; v < BATCH; v++)
                second[v] =
                    has_second ? __ldcg(partial_sums + (range + 1) * pitch + (batch + v) * 128) : four::of(0, 0, 0, 0);
#pragma unroll
            for (int v = 0; v < BATCH; v++) {
                const int i = 4 * (batch + v);
                acc[0][i] = acc[0][i] + first[v].x + second[v].x;
                acc[0][i + 1] = acc[0][i + 1] + first[v].y + second[v].y;
                acc[0][i + 2] = acc[0][i + 2] + first[v].z + second[v].z;
                acc[0][i + 3] = acc[0][i + 3] + first[v].w + second[v].w;
            }
        }
    }
    if (thread == 0) *arrivals = 0;
    return true;
}

template <class T, bool SWIGLU>
SUMI_DEVICE void gemm_split(const sumi_tensor_map& x_map, const sumi_tensor_map& w_map,
                            const sumi_gemm_split_args& args)
{
    const u32 smem = smem_base(), rank = cluster_rank();
    const int consumer = uniform(threadIdx.x >> 7) - 1; // -1: the producer
    const int tiles_m = (args.m + T::TILE_ROWS - 1) / T::TILE_ROWS,
              tiles_n = (args.n + T::TILE_COLUMNS - 1) / T::TILE_COLUMNS,
              items = block_tile_items(tiles_m, tiles_n) * args.split;
    // split <= k_blocks: no range of k is empty.
    const int k_blocks = (args.k + T::K_BLOCK - 1) / T::K_BLOCK, clusters = gridDim.x >> 1;
    int stage = 0;
    u32 parity = 0;
    barriers_init<T>(smem);
    if (consumer < 0) {
        SUMI_REGISTERS_PRODUCER();
        if (uniform(threadIdx.x >> 5) == 0 && elect_one()) {
            const u32 full = smem + T::BARRIERS_OFFSET, empty = full + 8 * T::STAGES;
            for (int item = blockIdx.x >> 1; item < items; item += clusters) {
                const sumi_block_tile tile = block_tile_of(item / args.split, tiles_m, tiles_n, args.group, rank);
                const int k_range = item % args.split, m0 = tile.m * T::TILE_ROWS, n0 = tile.n * T::TILE_COLUMNS,
                          k_block_end = (int)((long long)k_blocks * (k_range + 1) / args.split);
                for (int k_block = (int)((long long)k_blocks * k_range / args.split); k_block < k_block_end;
                     k_block++) {
                    const u32 a = smem + stage * T::STAGE_BYTES, b = a + T::A_BYTES, barrier = full + 8 * stage;
                    const int k0 = k_block * T::K_BLOCK;
                    mbarrier_wait(empty + 8 * stage, parity ^ 1);
                    mbarrier_expect(barrier, T::STAGE_BYTES);
                    operands_load<T>(x_map, w_map, a, b, barrier, tile.shares_a, rank, k0, m0, n0);
                    if (++stage == T::STAGES) {
                        stage = 0;
                        parity ^= 1;
                    }
                }
            }
        }
    } else {
        SUMI_REGISTERS_2_CONSUMERS();
        typename T::sum acc[1][T::THREAD_SUMS];
        for (int item = blockIdx.x >> 1; item < items; item += clusters) {
            const sumi_block_tile tile = block_tile_of(item / args.split, tiles_m, tiles_n, args.group, rank);
            const int k_range = item % args.split, count = (int)((long long)k_blocks * (k_range + 1) / args.split)
                                                         - (int)((long long)k_blocks * k_range / args.split);
            mainloop<T>(acc, smem, consumer, count, stage, parity, [] {});
            if (tile.is_idle) continue;
            if (args.split > 1
                && !add_partial_sums<T>(acc, smem, consumer, args, (long long)tile.m * tiles_n + tile.n, k_range))
                continue;
            const int warp = (threadIdx.x & 127) >> 5;
            epilogue_tile<1, T::TILE_COLUMNS / 8, SWIGLU, T::OPERANDS != SUMI_OPERANDS_BF16>(
                args.epilogue, args.m, args.n, tile.m * T::TILE_ROWS + consumer * 64 + warp * 16,
                tile.n * T::TILE_COLUMNS, [&](int, int j, int e) { return (float)acc[0][4 * j + e]; });
        }
    }
    // The peer no longer writes to this block's shared memory or arrives at its barriers.
    cluster_sync();
}

// NAME_any_<columns> and NAME_swiglu_<columns>
#define SUMI_GEMM_SPLIT_KERNEL(NAME, OPERANDS, columns, STAGES)                                                        \
    namespace {                                                                                                        \
    typedef sumi_split_tile<OPERANDS, columns, STAGES> tile_##columns;                                                 \
    }                                                                                                                  \
    static_assert(tile_##columns::SHARED_BYTES == SUMI_GEMM_SPLIT_SHARED(columns, STAGES),                             \
                  "the launcher's shared memory");                                                                     \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1) NAME##_any_##columns(               \
        const __grid_constant__ sumi_tensor_map x_map, const __grid_constant__ sumi_tensor_map w_map,                  \
        const __grid_constant__ sumi_gemm_split_args args)                                                             \
    {                                                                                                                  \
        gemm_split<tile_##columns, false>(x_map, w_map, args);                                                         \
    }                                                                                                                  \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1) NAME##_swiglu_##columns(            \
        const __grid_constant__ sumi_tensor_map x_map, const __grid_constant__ sumi_tensor_map w_map,                  \
        const __grid_constant__ sumi_gemm_split_args args)                                                             \
    {                                                                                                                  \
        gemm_split<tile_##columns, true>(x_map, w_map, args);                                                          \
    }
