// The pipeline of the Hopper GEMM and convolution kernels: persistent, warp-specialised, TMA and wgmma, in clusters of
// two blocks. The accumulator layout of wgmma is drawn in hopper.cuh.
//
//   block = 384 threads: warpgroup 0 is the producer, one thread of which issues all copies; warpgroups 1 and 2 are the
//   consumers, each of which multiplies 64 * ROW_BLOCKS rows x TILE_COLUMNS columns. (With another number of consumers:
//   128 * (1 + CONSUMERS) threads.)
//
//      global --TMA--> stage 0 .. STAGES - 1 [A: TILE_ROWS x 128 B | B: TILE_COLUMNS x 128 B] --wgmma--> registers
//                                                                                           | epilogue in float
//      global <--TMA-- staging memory (one per consumer warpgroup, bf16)  <--stmatrix-------+
//
// A stage holds one k-block: 128 bytes of k (64 bf16, or 128 e4m3 or int8) of both operands. The two blocks of a
// cluster compute two tiles that share one operand. Each block loads half of the shared operand's tile and multicasts
// it to both blocks. That saves a third of the L2 traffic (with B shared: 32 KiB per k-block of a 128 x 256 tile
// instead of 48).
//
// The mbarriers and their invariants
//   full[s]      The data of stage s is complete: 1 arrival (the block's own producer, which announces STAGE_BYTES) and
//                the bytes. The peer's multicast may arrive before the announcement. Then the count of pending bytes is
//                negative for a while; the phase cannot end before the arrival.
//   empty[s]     Stage s may be overwritten. 2 * CONSUMERS arrivals: all consumers of both blocks, because a producer
//                writes the stage in both blocks. (Ping-pong: 2 arrivals, since one consumer of each block uses the
//                stage.)
//   residual[w]  The residual of consumer w is in its staging memory. 1 arrival for each pass of its epilogue.
// No block exits before its peer is done (cluster_sync at the end), because the peer writes to its shared memory and
// arrives at its barriers.
//
// Layout of the dynamic shared memory (byte offsets, members of sumi_tile)
//   0                 STAGES stages
//   STAGING_OFFSET    staging memory of CONSUMERS consumers
//   VECTORS_OFFSET    VECTOR_BUFFERS buffers: bias, gate, column scales, row scales
//   BARRIERS_OFFSET   full[STAGES], empty[STAGES], residual[CONSUMERS], 8 bytes each
#pragma once
#include "gemm.h"
#include "hopper.cuh"

// The constants of a kernel. PING_PONG: each of the two consumers has its own tile of 64 * ROW_BLOCKS x TILE_COLUMNS,
// and they take turns in the main loop, so that the epilogue of one overlaps the products of the other. Without
// ping-pong the CONSUMERS consumers share a tile of 64 * ROW_BLOCKS * CONSUMERS rows. A tile is stored in PASSES
// passes, and in each pass as SLABS slabs of SLAB_COLUMNS columns; a slab is one TMA store.
template <int ROW_BLOCKS_, int TILE_COLUMNS_, int STAGES_, int PASSES_, int SLAB_COLUMNS_, int EPILOGUE_, int OPERANDS_,
          int PING_PONG_ = 0, int CONSUMERS_ = 2>
struct sumi_tile {
    static constexpr int PING_PONG = PING_PONG_, VECTOR_BUFFERS = PING_PONG ? 4 : 2, CONSUMERS = CONSUMERS_;
    static constexpr int ROW_BLOCKS = ROW_BLOCKS_, TILE_COLUMNS = TILE_COLUMNS_, STAGES = STAGES_;
    static constexpr int EPILOGUE = EPILOGUE_,
                         OPERANDS = OPERANDS_; // SUMI_EPILOGUE_*, SUMI_OPERANDS_*
    typedef typename sumi_sum<OPERANDS>::type sum;
    static constexpr int PASSES = PASSES_; // how often a tile fills the staging memory
    // Columns of a slab. 64 columns (128 bytes) use the 128-byte swizzle; other widths are not swizzled.
    static constexpr int SLAB_COLUMNS = SLAB_COLUMNS_;
    static constexpr int TILE_ROWS = (PING_PONG ? 1 : CONSUMERS) * 64 * ROW_BLOCKS;
    static constexpr u32 A_BYTES = TILE_ROWS * 128, B_BYTES = TILE_COLUMNS * 128, STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr int OUT_COLUMNS = (EPILOGUE & SUMI_EPILOGUE_SWIGLU) ? TILE_COLUMNS / 2 : TILE_COLUMNS;
    static constexpr int SLABS =
        OUT_COLUMNS < SLAB_COLUMNS * PASSES ? 1 : OUT_COLUMNS / SLAB_COLUMNS / PASSES; // slabs per pass
    // Columns from the start of one pass to the start of the next. Where PASSES passes do not divide the columns
    // evenly, the passes overlap, and the columns in the overlap are stored twice.
    static constexpr int PASS_STEP = PASSES > 1 ? (OUT_COLUMNS - SLABS * SLAB_COLUMNS) / (PASSES - 1) : 0;
    static constexpr bool OVERLAPS = OUT_COLUMNS != SLABS * SLAB_COLUMNS * PASSES;
    static constexpr u32 SLAB_BYTES = ROW_BLOCKS * 64 * SLAB_COLUMNS * 2, STAGING_BYTES = SLABS * SLAB_BYTES;
    static constexpr bool IS_SWIZZLED = SLAB_COLUMNS == 64;
    // float vectors of TILE_COLUMNS columns that the epilogue reads: bias, gate, column scales
    static constexpr int VECTORS = ((EPILOGUE & SUMI_EPILOGUE_BIAS) ? 1 : 0) + ((EPILOGUE & SUMI_EPILOGUE_GATE) ? 1 : 0)
                                 + ((EPILOGUE & SUMI_EPILOGUE_SCALE) ? 1 : 0);
    static constexpr u32 STAGING_OFFSET = STAGES * STAGE_BYTES,
                         VECTORS_OFFSET = STAGING_OFFSET + CONSUMERS * STAGING_BYTES,
                         VECTOR_BYTES =
                             VECTORS * TILE_COLUMNS * 4 + ((EPILOGUE & SUMI_EPILOGUE_SCALE) ? TILE_ROWS * 4 : 0),
                         BARRIERS_OFFSET = VECTORS_OFFSET + VECTOR_BUFFERS * VECTOR_BYTES;
    static constexpr u32 SHARED_BYTES =
        BARRIERS_OFFSET + (2 * STAGES + CONSUMERS) * 8; // dynamic shared memory of the launch, in bytes
    static_assert(OUT_COLUMNS == SLABS * SLAB_COLUMNS + PASS_STEP * (PASSES - 1) && PASS_STEP <= SLABS * SLAB_COLUMNS
                      && PASS_STEP % 16 == 0 && SLAB_COLUMNS % 16 == 0 && TILE_COLUMNS % 16 == 0,
                  "slabs");
    static_assert(!(OVERLAPS && (EPILOGUE & SUMI_EPILOGUE_RESIDUAL)),
                  "a residual that y overwrites would be read after its first store");
    static_assert(!PING_PONG || CONSUMERS == 2, "two take turns");
    static_assert(SHARED_BYTES <= 232448, "shared memory"); // 227 KiB, the most that a block may have on 9.0
};

// Registers per thread: a multiprocessor has 65536. With two consumers all 384 threads start with 168; then the
// producer keeps 56 and consumers get 224: 128 * 56 + 256 * 224 = 64512. With three consumers 512 threads start with
// 128; then 128 * 56 + 384 * 152 = 65536.
#define SUMI_REGISTERS_PRODUCER() asm volatile("setmaxnreg.dec.sync.aligned.u32 56;")
#define SUMI_REGISTERS_CONSUMER() asm volatile("setmaxnreg.inc.sync.aligned.u32 224;")
#define SUMI_REGISTERS_CONSUMER_OF_3() asm volatile("setmaxnreg.inc.sync.aligned.u32 152;")

// The address of the dynamic shared memory. The swizzles are functions of address bits, so it must be 1024-byte
// aligned. It is when the kernel has no static shared memory.
SUMI_DEVICE u32 shared_base()
{
    extern __shared__ __align__(1024) unsigned char raw[];
    u32 b = shared_address(raw);
    if (b & 1023) __trap();
    return b;
}

// Initialises the mbarriers. All threads of both blocks call it.
template <class TILE> SUMI_DEVICE void barriers_init(u32 base)
{
    if (threadIdx.x == 0) {
        for (int s = 0; s < TILE::STAGES; s++) {
            mbarrier_init(base + TILE::BARRIERS_OFFSET + 8 * s, 1);
            mbarrier_init(base + TILE::BARRIERS_OFFSET + 8 * (TILE::STAGES + s),
                          TILE::PING_PONG ? 2 : 2 * TILE::CONSUMERS);
        }
        for (int w = 0; w < TILE::CONSUMERS; w++)
            mbarrier_init(base + TILE::BARRIERS_OFFSET + 16 * TILE::STAGES + 8 * w, 1);
        FENCE_MBARRIER_INIT();
    }
    // The peer arrives at these barriers too, so both blocks wait.
    cluster_sync();
}

// The main loop of a consumer warpgroup: multiplies k_blocks stages into acc. `stage` and `phase` are the next stage
// and the parity of its full barrier, and are advanced. One wgmma group stays in flight, so a stage is released one
// k-block after it was read. halfway() is called once, in the middle of the loop, while products run. There the caller
// fetches the residual: by then the stores of the previous tile have read the staging memory (to wait for them at the
// start of the loop cost 1-2 %). The divisions for the tile's coordinates are hidden there too.
template <class TILE, class HALFWAY>
SUMI_DEVICE void mainloop(typename TILE::sum (&acc)[TILE::ROW_BLOCKS][TILE::TILE_COLUMNS / 2], u32 base, int warpgroup,
                          int k_blocks, int& stage, u32& phase, HALFWAY&& halfway)
{
    const u32 full = base + TILE::BARRIERS_OFFSET, empty = full + 8 * TILE::STAGES;
    const u32 first_a = matrix_descriptor_low(base + (TILE::PING_PONG ? 0 : warpgroup * 64 * TILE::ROW_BLOCKS * 128)),
              first_b = matrix_descriptor_low(base + TILE::A_BYTES);
    const int thread = threadIdx.x & 127;
    int previous_stage = 0;
    // Ping-pong: wait for this consumer's turn. Named barrier 3 gives consumer 0 its turn, barrier 4 consumer 1. 256:
    // this warpgroup waits, and the other consumer arrives.
    if (TILE::PING_PONG) {
        if (warpgroup == 0) asm volatile("bar.sync 3, 256;" ::: "memory");
        else asm volatile("bar.sync 4, 256;" ::: "memory");
    }
    for (int k_block = 0; k_block < k_blocks; k_block++) {
        mbarrier_wait(full + 8 * stage, phase);
        const u32 a = first_a + stage * (TILE::STAGE_BYTES >> 4), b = first_b + stage * (TILE::STAGE_BYTES >> 4);
        WGMMA_FENCE();
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int i = 0; i < TILE::ROW_BLOCKS; i++)
                wgmma<TILE::TILE_COLUMNS, TILE::OPERANDS>::mma(acc[i], matrix_descriptor(a + i * 512 + k * 2),
                                                               matrix_descriptor(b + k * 2), k_block | k);
        WGMMA_COMMIT();
        if (k_block > 0) {
            WGMMA_WAIT(1);
            // Releases the stage: thread 0 to block 0 of the cluster, thread 1 to block 1.
            if (thread < 2) mbarrier_arrive_cluster(empty + 8 * previous_stage, thread);
        }
        if (k_block == k_blocks / 2) halfway();
        previous_stage = stage;
        if (++stage == TILE::STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
    // Ping-pong: all wgmma of this tile are issued, and it is the other consumer's turn.
    if (TILE::PING_PONG) {
        if (warpgroup == 0) asm volatile("bar.arrive 4, 256;" ::: "memory");
        else asm volatile("bar.arrive 3, 256;" ::: "memory");
    }
    WGMMA_WAIT(0);
    if (thread < 2) mbarrier_arrive_cluster(empty + 8 * previous_stage, thread);
}

// The bias, gate, column scales and row scales of a tile. The producer copies them into shared memory together with the
// tile's first stage, and they signal the full barrier of that stage. There are two buffers, and tiles alternate
// between them. With k_blocks >= STAGES no buffer is overwritten too early: before the producer fills the buffer of
// tile i again, for tile i + 2, it waits for a stage of tile i + 1 to be released, and by then all consumers have
// finished tile i. In ping-pong the epilogue of tile i overlaps the main loop of tile i + 1; there three buffers would
// be enough, and four are used, a power of two.
template <class TILE> SUMI_DEVICE u32 vectors_bytes(int columns, int rows)
{
    return TILE::VECTORS * columns * 4 + ((TILE::EPILOGUE & SUMI_EPILOGUE_SCALE) ? rows * 4 : 0);
}
template <class TILE>
SUMI_DEVICE void vectors_load(u32 dst, u32 barrier, const float* bias, const float* gate, const float* col_scale,
                              const float* row_scale, int first_column, int columns, int first_row, int rows)
{
    u32 address = dst;
    if (TILE::EPILOGUE & SUMI_EPILOGUE_BIAS) {
        bulk_load(address, bias + first_column, columns * 4, barrier);
        address += TILE::TILE_COLUMNS * 4;
    }
    if (TILE::EPILOGUE & SUMI_EPILOGUE_GATE) {
        bulk_load(address, gate + first_column, columns * 4, barrier);
        address += TILE::TILE_COLUMNS * 4;
    }
    if (TILE::EPILOGUE & SUMI_EPILOGUE_SCALE) {
        bulk_load(address, col_scale + first_column, columns * 4, barrier);
        address += TILE::TILE_COLUMNS * 4;
        bulk_load(address, row_scale + first_row, rows * 4, barrier);
    }
}
// Loads from shared memory. They are not volatile, so that the compiler may issue them early. after_sync() keeps them
// behind the barrier that makes the data visible: it is volatile, and the address of the loads depends on its result.
SUMI_DEVICE float2 load_shared_float2(u32 a)
{
    float2 v;
    asm("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(a));
    return v;
}
SUMI_DEVICE float load_shared_float(u32 a)
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

// The epilogue of a consumer warpgroup: accumulators -> float epilogue -> bf16 in the staging memory -> TMA stores.
//   vector_buffer, count   the buffer of the tile's vectors; how many tiles this warpgroup has finished before
//   store        store(slab address, first column of the slab in the tile's output) issues one TMA store
//   each         each(64-row block, 8-column output group, float[4]) sees the thread's four results before rounding
//   fetch        fetch(pass) copies a pass's residual to the staging memory; pass 0 was fetched in the main loop
// A thread's accumulators: acc[i][4 j .. 4 j + 3] are group j of 8 columns (drawn in hopper.cuh).
template <class TILE, class STORE, class EACH, class FETCH>
SUMI_DEVICE void epilogue(typename TILE::sum (&acc)[TILE::ROW_BLOCKS][TILE::TILE_COLUMNS / 2], u32 base, int warpgroup,
                          int vector_buffer, int count, STORE&& store, EACH&& each, FETCH&& fetch)
{
    const int thread = threadIdx.x & 127, lane = thread & 31, warp = uniform(thread >> 5);
    const u32 staging = base + TILE::STAGING_OFFSET + warpgroup * TILE::STAGING_BYTES;
    // Chunks are of 16 columns: those of a pass, and those of the residual that are read ahead. GATE_VECTOR and
    // SCALE_VECTOR are the indices of the gate and of the column scales among the vectors.
    constexpr int CHUNKS = TILE::SLABS * TILE::SLAB_COLUMNS / 16, CHUNKS_AHEAD = 4;
    constexpr int GATE_VECTOR = (TILE::EPILOGUE & SUMI_EPILOGUE_BIAS) ? 1 : 0,
                  SCALE_VECTOR = GATE_VECTOR + ((TILE::EPILOGUE & SUMI_EPILOGUE_GATE) ? 1 : 0);
#pragma unroll
    for (int pass = 0; pass < TILE::PASSES; pass++) {
        if (warp == 0 && elect_one()) {
            if (!(TILE::EPILOGUE & SUMI_EPILOGUE_RESIDUAL)) TMA_STORE_WAIT_READ();
            else if (pass) fetch(pass);
        }
        // The stores of the pass before have read the staging memory: all warps may write it.
        warpgroup_sync<TILE::CONSUMERS>(warpgroup);
        if (TILE::EPILOGUE & SUMI_EPILOGUE_RESIDUAL)
            mbarrier_wait(base + TILE::BARRIERS_OFFSET + 16 * TILE::STAGES + 8 * warpgroup,
                          (count * TILE::PASSES + pass) & 1);
        const u32 vectors = after_sync(base + TILE::VECTORS_OFFSET + vector_buffer * TILE::VECTOR_BYTES),
                  lane_vectors = vectors + (lane & 3) * 8, synced_staging = after_sync(staging);
#pragma unroll
        for (int i = 0; i < TILE::ROW_BLOCKS; i++) {
            const int row = i * 64 + warp * 16 + (lane & 15);
            // The address that this lane gives stmatrix or ldmatrix for a chunk: row lane & 15 of the warp's 16 rows,
            // and columns 0..7 of the chunk in lanes 0..15, columns 8..15 in lanes 16..31.
            auto chunk_address = [&](int chunk) {
                const int column = chunk * 16 + (lane >> 4) * 8, slab_column = column % TILE::SLAB_COLUMNS;
                return synced_staging + (column / TILE::SLAB_COLUMNS) * TILE::SLAB_BYTES + row * TILE::SLAB_COLUMNS * 2
                     + (TILE::IS_SWIZZLED ? ((slab_column * 2) ^ ((row & 7) << 4)) : slab_column * 2);
            };
            float row_scales[2]; // the scales of the lane's rows r and r + 8
            if (TILE::EPILOGUE & SUMI_EPILOGUE_SCALE) {
                const u32 scale_address =
                    vectors + TILE::VECTORS * TILE::TILE_COLUMNS * 4
                    + ((TILE::PING_PONG ? 0 : warpgroup * 64 * TILE::ROW_BLOCKS) + i * 64 + warp * 16 + (lane >> 2))
                          * 4;
                row_scales[0] = load_shared_float(scale_address);
                row_scales[1] = load_shared_float(scale_address + 32);
            }
            // The residual, read CHUNKS_AHEAD chunks before the results overwrite the chunk.
            u32 ahead[CHUNKS_AHEAD][4];
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS_AHEAD && chunk < CHUNKS; chunk++)
                if (TILE::EPILOGUE & SUMI_EPILOGUE_RESIDUAL)
                    load_matrix_x4(chunk_address(chunk), ahead[chunk][0], ahead[chunk][1], ahead[chunk][2],
                                   ahead[chunk][3]);
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++) { // 16 output columns, one stmatrix.x4
                const u32 address = chunk_address(chunk);
                u32 out[4], residual[4];
                if (TILE::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) {
#pragma unroll
                    for (int e = 0; e < 4; e++) residual[e] = ahead[chunk % CHUNKS_AHEAD][e];
                    if (chunk + CHUNKS_AHEAD < CHUNKS)
                        load_matrix_x4(chunk_address(chunk + CHUNKS_AHEAD), ahead[chunk % CHUNKS_AHEAD][0],
                                       ahead[chunk % CHUNKS_AHEAD][1], ahead[chunk % CHUNKS_AHEAD][2],
                                       ahead[chunk % CHUNKS_AHEAD][3]);
                }
#pragma unroll
                for (int half = 0; half < 2; half++) {                                   // two 8-column output groups
                    const int out_group = pass * TILE::PASS_STEP / 8 + chunk * 2 + half; // output group in the tile
                    float values[2][4]; // of the group; with SwiGLU of the gate and of up
#pragma unroll
                    for (int factor = 0; factor < ((TILE::EPILOGUE & SUMI_EPILOGUE_SWIGLU) ? 2 : 1); factor++) {
                        const int group = (TILE::EPILOGUE & SUMI_EPILOGUE_SWIGLU) ? 2 * out_group + factor : out_group;
#pragma unroll
                        for (int e = 0; e < 4; e++) values[factor][e] = (float)acc[i][4 * group + e];
                        if (TILE::EPILOGUE & SUMI_EPILOGUE_SCALE) {
                            const float2 scale =
                                load_shared_float2(lane_vectors + (SCALE_VECTOR * TILE::TILE_COLUMNS + group * 8) * 4);
                            values[factor][0] *= scale.x * row_scales[0];
                            values[factor][1] *= scale.y * row_scales[0];
                            values[factor][2] *= scale.x * row_scales[1];
                            values[factor][3] *= scale.y * row_scales[1];
                        }
                        if (TILE::EPILOGUE & SUMI_EPILOGUE_BIAS) {
                            const float2 bias = load_shared_float2(lane_vectors + group * 32);
                            values[factor][0] += bias.x;
                            values[factor][1] += bias.y;
                            values[factor][2] += bias.x;
                            values[factor][3] += bias.y;
                        }
                    }
                    if (TILE::EPILOGUE & SUMI_EPILOGUE_GELU)
#pragma unroll
                        for (int e = 0; e < 4; e++) values[0][e] = gelu_tanh(values[0][e]);
                    if (TILE::EPILOGUE & SUMI_EPILOGUE_SWIGLU)
#pragma unroll
                        for (int e = 0; e < 4; e++) values[0][e] = silu(values[0][e]) * values[1][e];
                    if (TILE::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) {
                        const float2 gate = (TILE::EPILOGUE & SUMI_EPILOGUE_GATE) ? load_shared_float2(
                                                lane_vectors + (GATE_VECTOR * TILE::TILE_COLUMNS + out_group * 8) * 4)
                                                                                  : make_float2(1.f, 1.f);
                        values[0][0] = fmaf(gate.x, values[0][0], bf16_low(residual[2 * half]));
                        values[0][1] = fmaf(gate.y, values[0][1], bf16_high(residual[2 * half]));
                        values[0][2] = fmaf(gate.x, values[0][2], bf16_low(residual[2 * half + 1]));
                        values[0][3] = fmaf(gate.y, values[0][3], bf16_high(residual[2 * half + 1]));
                    }
                    each(i, out_group, values[0]);
                    out[2 * half] = pack_bf16(values[0][0], values[0][1]);
                    out[2 * half + 1] = pack_bf16(values[0][2], values[0][3]);
                }
                store_matrix_x4(address, out[0], out[1], out[2], out[3]);
            }
        }
        // Every thread's stmatrix must be visible to TMA, and all warps be done, before one thread issues the stores.
        FENCE_PROXY_ASYNC();
        warpgroup_sync<TILE::CONSUMERS>(warpgroup);
        if (warp == 0 && elect_one()) {
#pragma unroll
            for (int slab = 0; slab < TILE::SLABS; slab++)
                store(staging + slab * TILE::SLAB_BYTES, pass * TILE::PASS_STEP + slab * TILE::SLAB_COLUMNS);
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

// The tile of block `rank` for a work item, in a grid of row_tiles x column_tiles tiles. An item is a pair of tiles,
// normally one above the other (sharing B). The pairs of rows form groups of `group`; within a group all rows of a
// column come first, then the next column, so that the group's rows of x stay in L2 while all of w is read. When
// row_tiles is odd, the last row is divided into pairs side by side (sharing A). If column_tiles is odd too, both
// blocks compute the last tile of that row and one stores it. Each side-by-side pair comes directly after the last
// group's pairs of the same two columns, because its weights would otherwise be read from memory again.
SUMI_DEVICE sumi_pair pair_of(int item, int row_tiles, int column_tiles, int group, int rank)
{
    // last: the index of the last group. whole: the number of items before the last group.
    sumi_pair pair;
    const int row_pairs = row_tiles >> 1, last = row_pairs > 0 ? (row_pairs - 1) / group : 0,
              whole = last * group * column_tiles;
    const bool is_last = item >= whole;
    const int first = is_last ? last * group : item / (group * column_tiles) * group,
              rows = is_last ? row_pairs - first : group;
    int position = item - first * column_tiles, first_column = 0;
    if (is_last && (row_tiles & 1)) {
        // items of two columns: their pairs of rows and one pair side by side
        const int items = 2 * rows + 1;
        first_column = position / items * 2;
        position -= first_column / 2 * items;
        if (position == rows * min(2, column_tiles - first_column)) {
            pair.m = row_tiles - 1;
            pair.n = min(first_column + rank, column_tiles - 1);
            pair.share_a = true;
            pair.idle = first_column + rank >= column_tiles;
            return pair;
        }
    }
    const int column = rows > 0 ? position / rows : 0;
    pair.m = (first + position - column * rows) * 2 + rank;
    pair.n = first_column + column;
    pair.share_a = false;
    pair.idle = false;
    return pair;
}

// The kernel. The grid is even and may be smaller than twice the number of items: cluster c computes items c,
// c + grid / 2, c + grid, ...
template <class TILE>
SUMI_DEVICE void gemm(const sumi_tensor_map& x_map, const sumi_tensor_map& w_map, const sumi_tensor_map& y_map,
                      const sumi_tensor_map& residual_map, const sumi_gemm_sm90_args& args)
{
    const u32 base = shared_base(), rank = cluster_rank();
    const int warpgroup = uniform(threadIdx.x >> 7) - 1;
    const int row_tiles = (args.m + TILE::TILE_ROWS - 1) / TILE::TILE_ROWS,
              column_tiles = (args.n + TILE::TILE_COLUMNS - 1) / TILE::TILE_COLUMNS,
              pairs = (row_tiles >> 1) * column_tiles + ((row_tiles & 1) ? (column_tiles + 1) / 2 : 0);
    constexpr int BLOCK_K = TILE::OPERANDS == SUMI_OPERANDS_BF16 ? 64 : 128; // elements in 128 bytes of k
    const int k_blocks = max((args.k + BLOCK_K - 1) / BLOCK_K,
                             TILE::STAGES); // TMA fills zeros beyond k. At least STAGES: see vectors_load.
    int stage = 0;
    u32 phase = 0;
    barriers_init<TILE>(base);
    if (warpgroup < 0) {
        SUMI_REGISTERS_PRODUCER();
        if (uniform(threadIdx.x >> 5) == 0 && elect_one()) {
            const u32 full = base + TILE::BARRIERS_OFFSET, empty = full + 8 * TILE::STAGES;
            const int step = gridDim.x >> 1;
            int vector_buffer = 0;
            // The gate is a row of a step table. The kernel reads the counter itself, so that a launch captured in a
            // CUDA graph is right for every step.
            const float* gate = (TILE::EPILOGUE & SUMI_EPILOGUE_GATE)
                                  ? (const float*)args.gate + (long long)*(const int*)args.counter * args.gate_stride
                                        + args.gate_column
                                  : nullptr;
            sumi_pair next = pair_of(blockIdx.x >> 1, row_tiles, column_tiles, args.group, rank);
            for (int item = blockIdx.x >> 1; item < pairs;
                 item += step, vector_buffer = (vector_buffer + 1) & (TILE::VECTOR_BUFFERS - 1)) {
                const sumi_pair pair = next;
                const int first_row = pair.m * TILE::TILE_ROWS, first_column = pair.n * TILE::TILE_COLUMNS;
                for (int k_block = 0; k_block < k_blocks; k_block++) {
                    const u32 a = base + stage * TILE::STAGE_BYTES, b = a + TILE::A_BYTES, barrier = full + 8 * stage;
                    const int k = k_block * BLOCK_K;
                    mbarrier_wait(empty + 8 * stage, phase ^ 1); // ^ 1: in the first round the stages are empty
                    if (TILE::VECTOR_BYTES && k_block == 0) {
                        const int columns = min(TILE::TILE_COLUMNS, args.n - first_column),
                                  rows = min(TILE::TILE_ROWS, (args.m - first_row + 3) & ~3);
                        mbarrier_expect(barrier, TILE::STAGE_BYTES + vectors_bytes<TILE>(columns, rows));
                        vectors_load<TILE>(base + TILE::VECTORS_OFFSET + vector_buffer * TILE::VECTOR_BYTES, barrier,
                                           (const float*)args.bias, gate, (const float*)args.col_scale,
                                           (const float*)args.row_scale, first_column, columns, first_row, rows);
                    } else mbarrier_expect(barrier, TILE::STAGE_BYTES);
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
                    // The divisions for the next tile, while the copies of this k-block are in flight. The empty asm
                    // keeps the compiler from moving them.
                    if (k_block == 0) {
                        next = pair_of(item + step, row_tiles, column_tiles, args.group, rank);
                        asm volatile("" : "+r"(next.m), "+r"(next.n));
                    }
                    if (++stage == TILE::STAGES) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
            }
        }
    } else {
        if (TILE::CONSUMERS == 3) SUMI_REGISTERS_CONSUMER_OF_3();
        else SUMI_REGISTERS_CONSUMER();
        const int warp = uniform((threadIdx.x & 127) >> 5), step = gridDim.x >> 1;
        int tile = 0, count = 0;
        typename TILE::sum acc[TILE::ROW_BLOCKS][TILE::TILE_COLUMNS / 2];
        // Ping-pong: consumer 0 has the first turn, so consumer 1 gives it. Consumer 1 begins with the cluster's second
        // tile, whose first stage follows the k_blocks stages of the first tile.
        if (TILE::PING_PONG && warpgroup == 1) {
            asm volatile("bar.arrive 3, 256;" ::: "memory");
            tile = 1;
            stage = k_blocks % TILE::STAGES;
            phase = k_blocks / TILE::STAGES & 1;
        }
        for (int item = (blockIdx.x >> 1) + tile * step; item < pairs;
             item += (TILE::PING_PONG ? 2 : 1) * step, count++) {
            int group_row, out_column, store_row;
            auto fetch = [&](int pass) {
                const u32 barrier = base + TILE::BARRIERS_OFFSET + 16 * TILE::STAGES + 8 * warpgroup,
                          staging = base + TILE::STAGING_OFFSET + warpgroup * TILE::STAGING_BYTES;
                TMA_STORE_WAIT_READ();
                mbarrier_expect(barrier, TILE::STAGING_BYTES);
#pragma unroll
                for (int slab = 0; slab < TILE::SLABS; slab++)
                    tma_load_2d(staging + slab * TILE::SLAB_BYTES, &residual_map, barrier,
                                out_column + pass * TILE::PASS_STEP + slab * TILE::SLAB_COLUMNS, group_row);
            };
            mainloop<TILE>(acc, base, warpgroup, k_blocks, stage, phase, [&] {
                const sumi_pair pair = pair_of(item, row_tiles, column_tiles, args.group, rank);
                group_row = pair.m * TILE::TILE_ROWS + (TILE::PING_PONG ? 0 : warpgroup * 64 * TILE::ROW_BLOCKS);
                out_column = pair.n * TILE::OUT_COLUMNS;
                // Of a tile that both blocks compute, the idle block's store goes past the last row, where TMA drops
                // it. (With a branch around the store ptxas 13.0 omits, in some kernels, the move of a coordinate into
                // its uniform register.)
                store_row = pair.idle ? 1 << 30 : group_row;
                asm volatile("" : "+r"(group_row), "+r"(out_column), "+r"(store_row));
                if ((TILE::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) && warp == 0 && elect_one()) fetch(0);
            });
            epilogue<TILE>(
                acc, base, warpgroup, tile & (TILE::VECTOR_BUFFERS - 1), count,
                [&](u32 source, int column) { tma_store_2d(&y_map, source, out_column + column, store_row); },
                [](int, int, float*) {}, fetch);
            tile += TILE::PING_PONG ? 2 : 1;
            // Ping-pong: skip the stages of the other consumer's tile.
            if (TILE::PING_PONG) {
                stage += k_blocks;
                phase ^= stage / TILE::STAGES & 1;
                stage %= TILE::STAGES;
            }
        }
        if (warp == 0 && elect_one()) TMA_STORE_WAIT(); // the block exits only after its stores
    }
    cluster_sync(); // the peer no longer writes to this block's shared memory or arrives at its barriers
}

// Define a kernel PREFIX_epilogue_tile from a row of the lists in gemm.h: with two consumers, and with three.
#define SUMI_GEMM_KERNEL_2(PREFIX, OPERANDS, epilogue, tile, EPILOGUE, ROW_BLOCKS, TILE_COLUMNS, STAGES, PASSES,       \
                           SLAB_COLUMNS, PING_PONG)                                                                    \
    namespace {                                                                                                        \
    typedef sumi_tile<ROW_BLOCKS, TILE_COLUMNS, STAGES, PASSES, SLAB_COLUMNS, EPILOGUE, OPERANDS, PING_PONG>           \
        tile_##epilogue##_##tile;                                                                                      \
    }                                                                                                                  \
    static_assert(tile_##epilogue##_##tile::SHARED_BYTES                                                               \
                      == SUMI_GEMM_SM90_SHARED(EPILOGUE, ROW_BLOCKS, TILE_COLUMNS, STAGES, PASSES, PING_PONG),         \
                  "the launcher's shared memory");                                                                     \
    SUMI_GEMM_KERNEL(PREFIX##_##epilogue##_##tile, tile_##epilogue##_##tile)
#define SUMI_GEMM_KERNEL_3(PREFIX, OPERANDS, epilogue, tile, EPILOGUE, TILE_COLUMNS, STAGES, PASSES, SLAB_COLUMNS)     \
    namespace {                                                                                                        \
    typedef sumi_tile<1, TILE_COLUMNS, STAGES, PASSES, SLAB_COLUMNS, EPILOGUE, OPERANDS, 0, 3>                         \
        tile_##epilogue##_##tile;                                                                                      \
    }                                                                                                                  \
    static_assert(tile_##epilogue##_##tile::SHARED_BYTES                                                               \
                      == SUMI_GEMM_SM90_SHARED_3(EPILOGUE, TILE_COLUMNS, STAGES, SLAB_COLUMNS),                        \
                  "the launcher's shared memory");                                                                     \
    SUMI_GEMM_KERNEL(PREFIX##_##epilogue##_##tile, tile_##epilogue##_##tile)
#define SUMI_GEMM_KERNEL(name, TILE)                                                                                   \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128 * (1 + TILE::CONSUMERS), 1)             \
        name(const __grid_constant__ sumi_tensor_map x_map, const __grid_constant__ sumi_tensor_map w_map,             \
             const __grid_constant__ sumi_tensor_map y_map, const __grid_constant__ sumi_tensor_map residual_map,      \
             const __grid_constant__ sumi_gemm_sm90_args args)                                                         \
    {                                                                                                                  \
        gemm<TILE>(x_map, w_map, y_map, residual_map, args);                                                           \
    }
