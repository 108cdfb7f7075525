// The pipeline of the Hopper GEMM and convolution kernels (conv_sm90.cu): persistent, warp-specialised, TMA and wgmma,
// in clusters of two blocks. The accumulator layout of wgmma is drawn in hopper.cuh. In y = x w^T operand A is x, whose
// rows are the rows of y, and operand B is w, whose rows are the columns of y.
//
//   block = 384 threads: warpgroup 0 is the producer, one thread of which issues all copies; warpgroups 1 and 2 are the
//   consumers, numbered 0 and 1. Each multiplies 64 * M64_TILES rows x TILE_COLUMNS columns. (With more than two
//   consumers: 128 * (1 + CONSUMERS) threads.)
//
//      global --TMA--> stage [A: TILE_ROWS x 128 B | B: TILE_COLUMNS x 128 B], one of STAGES --wgmma--> registers
//                                                                                            | epilogue in float
//      global <--TMA-- staging memory (one per consumer warpgroup, bf16)  <--stmatrix--------+
//
// A stage holds one k-block: 128 bytes of k (64 bf16, or 128 e4m3 or int8) of both operands. The two blocks of a
// cluster compute two tiles that share one operand. Each block loads half of the shared operand's tile and multicasts
// it to both blocks. That saves a third of the L2 traffic (with B shared: 32 KiB per k-block of a 128 x 256 tile
// instead of 48).
//
// The mbarriers and their invariants
//   full[stage]         The data of the stage is complete: 1 arrival (the block's own producer, which announces
//                       STAGE_BYTES bytes) and the bytes. The peer's multicast may arrive before the announcement. Then
//                       the count of pending bytes is negative for a while; the phase cannot end before the arrival.
//   empty[stage]        The stage may be overwritten. 2 * CONSUMERS arrivals: all consumers of both blocks, because a
//                       producer writes the stage in both blocks. (Ping-pong: 2 arrivals, since one consumer of each
//                       block uses the stage.)
//   residual[consumer]  The residual of the consumer is in its staging memory. 1 arrival for each store pass.
// No block exits before its peer is done (cluster_sync at the end), because the peer writes to its shared memory and
// arrives at its barriers.
//
// TMA stores belong to the thread that issues them: only that thread can wait for them. elect_one() chooses the same
// lane of a converged warp every time, and warp 0 of a consumer issues and waits, so it is the same thread.
//
// Layout of the dynamic shared memory (offsets in bytes, members of sumi_tile)
//   0                the stages
//   STAGING_OFFSET   staging memory of the consumers
//   VECTORS_OFFSET   VECTOR_BUFFERS buffers: bias, gate, column scales, row scales
//   BARRIERS_OFFSET  full[STAGES], empty[STAGES], residual[CONSUMERS], 8 bytes each
#pragma once
#include "gemm_epilogue.cuh"
#include "hopper.cuh"

// The constants of a kernel. PING_PONG: each of the two consumers has its own tile of 64 * M64_TILES rows, and they
// take turns in the main loop, so that the epilogue of one overlaps the products of the other. Without ping-pong the
// CONSUMERS consumers share a tile of 64 * M64_TILES * CONSUMERS rows. A tile is stored in STORE_PASSES passes, and in
// each as SLABS slabs of SLAB_COLUMNS columns; a slab is one TMA store.
template <int M64_TILES_, int TILE_COLUMNS_, int STAGES_, int STORE_PASSES_, int SLAB_COLUMNS_, int EPILOGUE_,
          int OPERANDS_, int PING_PONG_ = 0, int CONSUMERS_ = 2, int HALVES_ = 0>
struct sumi_tile {
    static constexpr int HALVES = HALVES_;
    static constexpr int PING_PONG = PING_PONG_, VECTOR_BUFFERS = PING_PONG ? 4 : 2, CONSUMERS = CONSUMERS_;
    static constexpr int M64_TILES = M64_TILES_; // wgmma tiles of 64 rows that a consumer has
    static constexpr int TILE_COLUMNS = TILE_COLUMNS_, STAGES = STAGES_;
    static constexpr int EPILOGUE = EPILOGUE_, OPERANDS = OPERANDS_; // SUMI_EPILOGUE_*, SUMI_OPERANDS_*
    typedef typename sumi_sum<OPERANDS>::type sum;
    static constexpr int STORE_PASSES = STORE_PASSES_; // how often a tile fills the staging memory
    // 64 columns (128 bytes) use the 128-byte swizzle; other widths are not swizzled.
    static constexpr int SLAB_COLUMNS = SLAB_COLUMNS_;
    static constexpr bool IS_SWIZZLED = SLAB_COLUMNS == 64;
    static constexpr int TILE_ROWS = (PING_PONG ? 1 : CONSUMERS) * 64 * M64_TILES;
    static constexpr u32 A_BYTES = TILE_ROWS * 128, B_BYTES = TILE_COLUMNS * 128, STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr int OUT_COLUMNS = (EPILOGUE & SUMI_EPILOGUE_SWIGLU) ? TILE_COLUMNS / 2 : TILE_COLUMNS; // of y
    // Slabs of a pass.
    static constexpr int SLABS =
        OUT_COLUMNS < SLAB_COLUMNS * STORE_PASSES ? 1 : OUT_COLUMNS / SLAB_COLUMNS / STORE_PASSES;
    // Columns from the start of one pass to the start of the next. Where the passes do not divide the columns evenly,
    // they overlap, and the columns in the overlap are stored twice.
    static constexpr int PASS_STRIDE = STORE_PASSES > 1 ? (OUT_COLUMNS - SLABS * SLAB_COLUMNS) / (STORE_PASSES - 1) : 0;
    static constexpr bool PASSES_OVERLAP = OUT_COLUMNS != SLABS * SLAB_COLUMNS * STORE_PASSES;
    static constexpr u32 SLAB_BYTES = M64_TILES * 64 * SLAB_COLUMNS * 2, STAGING_BYTES = SLABS * SLAB_BYTES;
    // float vectors of TILE_COLUMNS columns that the epilogue reads: bias, gate, column scales
    static constexpr int VECTORS = ((EPILOGUE & SUMI_EPILOGUE_BIAS) ? 1 : 0) + ((EPILOGUE & SUMI_EPILOGUE_GATE) ? 1 : 0)
                                 + ((EPILOGUE & SUMI_EPILOGUE_SCALE) ? 1 : 0);
    static constexpr int VECTOR_PITCH = TILE_COLUMNS; // floats from one vector to the next
    static constexpr u32 STAGING_OFFSET = STAGES * STAGE_BYTES,
                         VECTORS_OFFSET = STAGING_OFFSET + CONSUMERS * STAGING_BYTES,
                         VECTORS_BYTES =
                             VECTORS * TILE_COLUMNS * 4 + ((EPILOGUE & SUMI_EPILOGUE_SCALE) ? TILE_ROWS * 4 : 0),
                         BARRIERS_OFFSET = VECTORS_OFFSET + VECTOR_BUFFERS * VECTORS_BYTES;
    static constexpr u32 SHARED_BYTES = BARRIERS_OFFSET + (2 * STAGES + CONSUMERS) * 8; // dynamic
    static_assert(OUT_COLUMNS == SLABS * SLAB_COLUMNS + PASS_STRIDE * (STORE_PASSES - 1)
                      && PASS_STRIDE <= SLABS * SLAB_COLUMNS && PASS_STRIDE % 16 == 0 && SLAB_COLUMNS % 16 == 0
                      && TILE_COLUMNS % 16 == 0,
                  "slabs");
    static_assert(!(PASSES_OVERLAP && (EPILOGUE & SUMI_EPILOGUE_RESIDUAL)),
                  "a residual that y overwrites would be read after its first store");
    static_assert(!PING_PONG || CONSUMERS == 2, "two take turns");
    static_assert(SHARED_BYTES <= 232448, "shared memory"); // 227 KiB, the most that a block may have on 9.0
    static_assert(!HALVES || (!PING_PONG && !(EPILOGUE & SUMI_EPILOGUE_RESIDUAL)),
                  "halves: the residual's barrier counts the passes of whole tiles");
};

// Half of a tile, TILE_COLUMNS / 2 columns of it, in the same stages and staging memory. A stage's B is its first half.
template <class T> struct sumi_half_tile : T {
    static constexpr int TILE_COLUMNS = T::TILE_COLUMNS / 2, OUT_COLUMNS = T::OUT_COLUMNS / 2;
    static constexpr int SLABS = OUT_COLUMNS / T::SLAB_COLUMNS < T::SLABS ? OUT_COLUMNS / T::SLAB_COLUMNS : T::SLABS;
    static constexpr int STORE_PASSES = (OUT_COLUMNS + SLABS * T::SLAB_COLUMNS - 1) / (SLABS * T::SLAB_COLUMNS);
    static constexpr int PASS_STRIDE = STORE_PASSES > 1 ? (OUT_COLUMNS - SLABS * T::SLAB_COLUMNS) / (STORE_PASSES - 1)
                                                        : 0;
    static constexpr u32 EXPECTED_BYTES = T::A_BYTES + T::B_BYTES / 2; // of a stage
    static_assert(OUT_COLUMNS == SLABS * T::SLAB_COLUMNS + PASS_STRIDE * (STORE_PASSES - 1) && PASS_STRIDE % 16 == 0
                      && SLABS >= 1,
                  "slabs");
};

// Registers per thread: a multiprocessor has 65536. With two consumers all 384 threads start with 168; then the
// producer keeps 56 and consumers get 224: 128 * 56 + 256 * 224 = 64512. With three consumers 512 threads start with
// 128; then 128 * 56 + 384 * 152 = 65536.
#define SUMI_REGISTERS_PRODUCER() asm volatile("setmaxnreg.dec.sync.aligned.u32 56;")
#define SUMI_REGISTERS_2_CONSUMERS() asm volatile("setmaxnreg.inc.sync.aligned.u32 224;")
#define SUMI_REGISTERS_3_CONSUMERS() asm volatile("setmaxnreg.inc.sync.aligned.u32 152;")

// The address of the dynamic shared memory. The swizzles are functions of address bits, so it must be 1024-byte
// aligned. It is when the kernel has no static shared memory.
SUMI_DEVICE u32 smem_base()
{
    extern __shared__ __align__(1024) unsigned char raw[];
    const u32 smem = smem_addr(raw);
    if (smem & 1023) __trap();
    return smem;
}

// The mbarrier residual[consumer], which follows all full and empty barriers.
template <class T> SUMI_DEVICE u32 residual_barrier(u32 smem, int consumer)
{
    return smem + T::BARRIERS_OFFSET + 16 * T::STAGES + 8 * consumer;
}
// Initialises the mbarriers. All threads of both blocks call it.
template <class T> SUMI_DEVICE void barriers_init(u32 smem)
{
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < T::STAGES; stage++) {
            mbarrier_init(smem + T::BARRIERS_OFFSET + 8 * stage, 1);
            mbarrier_init(smem + T::BARRIERS_OFFSET + 8 * (T::STAGES + stage), T::PING_PONG ? 2 : 2 * T::CONSUMERS);
        }
        for (int consumer = 0; consumer < T::CONSUMERS; consumer++)
            mbarrier_init(residual_barrier<T>(smem, consumer), 1);
        FENCE_MBARRIER_INIT();
    }
    // The peer arrives at these barriers too, so both blocks wait.
    cluster_sync();
}

// The main loop of a consumer warpgroup: multiplies k_blocks stages into acc. `stage` and `parity` are the next stage
// and the parity of its full barrier, and are advanced. One wgmma group stays in flight, so a stage is released one
// k-block after it was read. halfway() is called once, in the middle of the loop, while products run. There the caller
// fetches the residual: by then the stores of the previous tile have read the staging memory (to wait for them at the
// start of the loop cost 1-2 %). The divisions for the tile's coordinates are hidden there too.
template <class T, class F>
SUMI_DEVICE void mainloop(typename T::sum (&acc)[T::M64_TILES][T::TILE_COLUMNS / 2], u32 smem, int consumer,
                          int k_blocks, int& stage, u32& parity, F&& halfway)
{
    const u32 full = smem + T::BARRIERS_OFFSET, empty = full + 8 * T::STAGES;
    // Low words of the descriptors of stage 0: this consumer's rows of A, and B.
    const u32 a_low = wgmma_descriptor_low(smem + (T::PING_PONG ? 0 : consumer * 64 * T::M64_TILES * 128)),
              b_low = wgmma_descriptor_low(smem + T::A_BYTES);
    const int thread = threadIdx.x & 127; // of the warpgroup
    int previous_stage = 0;
    // Ping-pong: wait for this consumer's turn. Named barrier 3 gives consumer 0 its turn, barrier 4 consumer 1. 256:
    // this warpgroup waits, and the other consumer arrives. The arrival after the block's last tile finds nobody
    // waiting and ends with the block.
    if (T::PING_PONG) {
        if (consumer == 0) asm volatile("bar.sync 3, 256;" ::: "memory");
        else asm volatile("bar.sync 4, 256;" ::: "memory");
    }
    for (int k_block = 0; k_block < k_blocks; k_block++) {
        mbarrier_wait(full + 8 * stage, parity);
        // Descriptors count units of 16 bytes: 512 is 64 rows of 128 bytes, 2 is a k-step of 32 bytes. The tile's first
        // k-step overwrites acc.
        const u32 a = a_low + stage * (T::STAGE_BYTES >> 4), b = b_low + stage * (T::STAGE_BYTES >> 4);
        WGMMA_FENCE();
#pragma unroll
        for (int k_step = 0; k_step < 4; k_step++)
#pragma unroll
            for (int i = 0; i < T::M64_TILES; i++)
                wgmma_shared<T::TILE_COLUMNS, T::OPERANDS>::mma(acc[i], wgmma_descriptor(a + i * 512 + k_step * 2),
                                                                wgmma_descriptor(b + k_step * 2), k_block | k_step);
        WGMMA_COMMIT();
        if (k_block > 0) {
            WGMMA_WAIT(1);
            // Releases the stage: thread 0 to block 0 of the cluster, thread 1 to block 1.
            if (thread < 2) mbarrier_arrive_cluster(empty + 8 * previous_stage, thread);
        }
        if (k_block == k_blocks / 2) halfway();
        previous_stage = stage;
        if (++stage == T::STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    // Ping-pong: all wgmma of this tile are issued, and it is the other consumer's turn.
    if (T::PING_PONG) {
        if (consumer == 0) asm volatile("bar.arrive 4, 256;" ::: "memory");
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
// A half can lie beyond the last column, and then has columns == 0.
template <class T> SUMI_DEVICE u32 vectors_bytes(int columns, int rows)
{
    return T::VECTORS * columns * 4 + ((T::EPILOGUE & SUMI_EPILOGUE_SCALE) ? rows * 4 : 0);
}
// n0, m0: the first column and row of the tile.
template <class T>
SUMI_DEVICE void vectors_load(u32 dst, u32 barrier, const float* bias, const float* gate, const float* col_scale,
                              const float* row_scale, int n0, int columns, int m0, int rows)
{
    if ((T::EPILOGUE & SUMI_EPILOGUE_BIAS) && (!T::HALVES || columns > 0)) {
        bulk_load(dst, bias + n0, columns * 4, barrier);
        dst += T::VECTOR_PITCH * 4;
    }
    if (T::EPILOGUE & SUMI_EPILOGUE_GATE) {
        bulk_load(dst, gate + n0, columns * 4, barrier);
        dst += T::VECTOR_PITCH * 4;
    }
    if (T::EPILOGUE & SUMI_EPILOGUE_SCALE) {
        if (!T::HALVES || columns > 0) bulk_load(dst, col_scale + n0, columns * 4, barrier);
        dst += T::VECTOR_PITCH * 4;
        bulk_load(dst, row_scale + m0, rows * 4, barrier);
    }
}
// Loads from shared memory. They are not volatile, so that the compiler may issue them early. after_sync() keeps them
// behind the barrier that makes the data visible: it is volatile, and the address of the loads depends on its result.
SUMI_DEVICE float2 load_shared_float2(u32 address)
{
    float2 v;
    asm("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address));
    return v;
}
SUMI_DEVICE float load_shared_float(u32 address)
{
    float v;
    asm("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address));
    return v;
}
SUMI_DEVICE u32 after_sync(u32 address)
{
    u32 r;
    asm volatile("mov.b32 %0, %1;" : "=r"(r) : "r"(address) : "memory");
    return r;
}

// The epilogue of a consumer warpgroup: accumulators -> float epilogue -> bf16 in the staging memory -> TMA stores.
//   vector_buffer   the buffer of the tile's vectors
//   finished_tiles  how many tiles this warpgroup has finished before
//   store_slab      store_slab(slab address, first column of the slab in the tile's output) issues one TMA store
//   on_results      on_results(m64_tile, 8-column output group, float[4]) sees the thread's four results
//                   before rounding
//   fetch_residual  fetch_residual(pass) copies a pass's residual to the staging memory; that of pass 0 was fetched in
//                   the main loop
// A thread's accumulators: acc[m64_tile][4 j .. 4 j + 3] are group j of 8 columns (drawn in hopper.cuh).
template <class T, class S, class R, class F>
SUMI_DEVICE void epilogue(typename T::sum (&acc)[T::M64_TILES][T::TILE_COLUMNS / 2], u32 smem, int consumer,
                          int vector_buffer, int finished_tiles, S&& store_slab, R&& on_results, F&& fetch_residual)
{
    const int thread = threadIdx.x & 127, lane = thread & 31, warp = uniform(thread >> 5);
    const u32 staging = smem + T::STAGING_OFFSET + consumer * T::STAGING_BYTES;
    constexpr bool IS_SWIGLU = T::EPILOGUE & SUMI_EPILOGUE_SWIGLU;
    // Chunks of 16 columns in a pass, and chunks of the residual that are read ahead: four take 16 registers, which
    // are too many beside 192 accumulators.
    constexpr int CHUNKS = T::SLABS * T::SLAB_COLUMNS / 16, CHUNKS_AHEAD = T::M64_TILES * T::TILE_COLUMNS > 256 ? 2 : 4;
    // The indices of the gate and of the column scales among the vectors. The bias is the first.
    constexpr int GATE_VECTOR = (T::EPILOGUE & SUMI_EPILOGUE_BIAS) ? 1 : 0,
                  COL_SCALE_VECTOR = GATE_VECTOR + ((T::EPILOGUE & SUMI_EPILOGUE_GATE) ? 1 : 0);
#pragma unroll
    for (int pass = 0; pass < T::STORE_PASSES; pass++) {
        if (warp == 0 && elect_one()) {
            if (!(T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL)) TMA_STORE_WAIT_READ();
            else if (pass) fetch_residual(pass);
        }
        // The stores of the pass before have read the staging memory: all warps may write it.
        consumer_sync<T::CONSUMERS>(consumer);
        if (T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL)
            mbarrier_wait(residual_barrier<T>(smem, consumer), (finished_tiles * T::STORE_PASSES + pass) & 1);
        // Of each group of 8 columns the lane has columns 2 (lane & 3) and + 1: 8 bytes of a vector.
        const u32 vectors = after_sync(smem + T::VECTORS_OFFSET + vector_buffer * T::VECTORS_BYTES),
                  lane_vectors = vectors + (lane & 3) * 8, slabs = after_sync(staging);
#pragma unroll
        for (int m64_tile = 0; m64_tile < T::M64_TILES; m64_tile++) {
            const int row = m64_tile * 64 + warp * 16 + (lane & 15);
            // The address that this lane gives stmatrix or ldmatrix for a chunk: row lane & 15 of the warp's 16 rows,
            // and columns 0..7 of the chunk in lanes 0..15, columns 8..15 in lanes 16..31. The swizzle exchanges the
            // 16-byte units of a 128-byte row: unit u of a row is at u ^ (row & 7).
            auto chunk_address = [&](int chunk) {
                const int column = chunk * 16 + (lane >> 4) * 8, slab_column = column % T::SLAB_COLUMNS;
                return slabs + (column / T::SLAB_COLUMNS) * T::SLAB_BYTES + row * T::SLAB_COLUMNS * 2
                     + (T::IS_SWIZZLED ? ((slab_column * 2) ^ ((row & 7) << 4)) : slab_column * 2);
            };
            float row_scale[2]; // of the lane's rows, lane >> 2 and (lane >> 2) + 8 of the warp's 16
            if (T::EPILOGUE & SUMI_EPILOGUE_SCALE) {
                const u32 address =
                    vectors + T::VECTORS * T::VECTOR_PITCH * 4
                    + ((T::PING_PONG ? 0 : consumer * 64 * T::M64_TILES) + m64_tile * 64 + warp * 16 + (lane >> 2)) * 4;
                row_scale[0] = load_shared_float(address);
                row_scale[1] = load_shared_float(address + 32);
            }
            // The residual, read CHUNKS_AHEAD chunks before the results overwrite the chunk.
            u32 residual_ahead[CHUNKS_AHEAD][4];
            auto load_residual = [&](int chunk) {
                u32(&to)[4] = residual_ahead[chunk % CHUNKS_AHEAD];
                load_matrix_x4(chunk_address(chunk), to[0], to[1], to[2], to[3]);
            };
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS_AHEAD && chunk < CHUNKS; chunk++)
                if (T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) load_residual(chunk);
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++) { // 16 output columns, one stmatrix.x4
                const u32 address = chunk_address(chunk);
                u32 out[4], residual[4];
                if (T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) {
#pragma unroll
                    for (int e = 0; e < 4; e++) residual[e] = residual_ahead[chunk % CHUNKS_AHEAD][e];
                    if (chunk + CHUNKS_AHEAD < CHUNKS) load_residual(chunk + CHUNKS_AHEAD);
                }
#pragma unroll
                for (int half = 0; half < 2; half++) { // of the chunk: an output group of 8 columns
                    const int out_group = pass * T::PASS_STRIDE / 8 + chunk * 2 + half; // in the tile
                    float v[2][4]; // SwiGLU: the gate's and up's accumulator group; otherwise the first only
#pragma unroll
                    for (int g = 0; g < (IS_SWIGLU ? 2 : 1); g++) {
                        const int group = IS_SWIGLU ? 2 * out_group + g : out_group; // of the accumulators
#pragma unroll
                        for (int e = 0; e < 4; e++) v[g][e] = (float)acc[m64_tile][4 * group + e];
                        if (T::EPILOGUE & SUMI_EPILOGUE_SCALE) {
                            const float2 col_scale =
                                load_shared_float2(lane_vectors + (COL_SCALE_VECTOR * T::VECTOR_PITCH + group * 8) * 4);
                            v[g][0] *= col_scale.x * row_scale[0];
                            v[g][1] *= col_scale.y * row_scale[0];
                            v[g][2] *= col_scale.x * row_scale[1];
                            v[g][3] *= col_scale.y * row_scale[1];
                        }
                        if (T::EPILOGUE & SUMI_EPILOGUE_BIAS) {
                            const float2 bias = load_shared_float2(lane_vectors + group * 32);
                            v[g][0] += bias.x;
                            v[g][1] += bias.y;
                            v[g][2] += bias.x;
                            v[g][3] += bias.y;
                        }
                    }
                    if (T::EPILOGUE & SUMI_EPILOGUE_GELU)
#pragma unroll
                        for (int e = 0; e < 4; e++) v[0][e] = gelu_tanh(v[0][e]);
                    if (T::EPILOGUE & SUMI_EPILOGUE_GELU_ERF)
#pragma unroll
                        for (int e = 0; e < 4; e++) v[0][e] = epilogue_gelu_erf(v[0][e]);
                    if (IS_SWIGLU)
#pragma unroll
                        for (int e = 0; e < 4; e++) v[0][e] = silu(v[0][e]) * v[1][e];
                    if (T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) {
                        const float2 gate =
                            (T::EPILOGUE & SUMI_EPILOGUE_GATE)
                                ? load_shared_float2(lane_vectors + (GATE_VECTOR * T::VECTOR_PITCH + out_group * 8) * 4)
                                : make_float2(1.f, 1.f);
                        v[0][0] = fmaf(gate.x, v[0][0], bf16_low(residual[2 * half]));
                        v[0][1] = fmaf(gate.y, v[0][1], bf16_high(residual[2 * half]));
                        v[0][2] = fmaf(gate.x, v[0][2], bf16_low(residual[2 * half + 1]));
                        v[0][3] = fmaf(gate.y, v[0][3], bf16_high(residual[2 * half + 1]));
                    }
                    on_results(m64_tile, out_group, v[0]);
                    out[2 * half] = pack_bf16(v[0][0], v[0][1]);
                    out[2 * half + 1] = pack_bf16(v[0][2], v[0][3]);
                }
                store_matrix_x4(address, out[0], out[1], out[2], out[3]);
            }
        }
        // Every thread's stmatrix must be visible to TMA, and all warps be done, before one thread issues the stores.
        FENCE_PROXY_ASYNC();
        consumer_sync<T::CONSUMERS>(consumer);
        if (warp == 0 && elect_one()) {
#pragma unroll
            for (int slab = 0; slab < T::SLABS; slab++)
                store_slab(staging + slab * T::SLAB_BYTES, pass * T::PASS_STRIDE + slab * T::SLAB_COLUMNS);
            TMA_STORE_COMMIT();
        }
    }
}

// ---- GEMM: y[m, n] = epilogue(x[m, k] w[n, k]^T) --------------------------------------------------------------------
// The tile that a block computes for a work item, at coordinates (m, n) counted in tiles. shares_a: the cluster shares
// A, otherwise B. is_idle: the tile is computed but not stored.
struct sumi_block_tile {
    int m, n;
    bool shares_a, is_idle;
};

// The tile of block `rank` for a work item, in a grid of tiles_m x tiles_n tiles. An item is a pair of tiles, normally
// one above the other (sharing B). The pairs of tile rows form groups of `group`; within a group all rows of a column
// come first, then the next column, so that the group's rows of x stay in L2 while all of w is read. When tiles_m is
// odd, the last tile row is divided into pairs side by side (sharing A). If tiles_n is odd too, both blocks compute the
// last tile of that row and one stores it. Each side-by-side pair comes directly after the last group's pairs of the
// same two columns, because its weights would otherwise be read from memory again.
//
//   items of 5 x 3 tiles (tiles_m x tiles_n), group 1:      0 1 2
//                                                           0 1 2
//                                                           3 4 6      items 3, 4, 5: two columns of the last group
//                                                           3 4 6      items 6, 7: its last column
//                                                           5 5 7
SUMI_DEVICE sumi_block_tile block_tile_of(int item, int tiles_m, int tiles_n, int group, int rank)
{
    sumi_block_tile tile;
    const int row_pairs = tiles_m >> 1, last_group = row_pairs > 0 ? (row_pairs - 1) / group : 0,
              items_before_last_group = last_group * group * tiles_n;
    const bool is_in_last_group = item >= items_before_last_group;
    // The group's first pair of rows, and how many it has.
    const int first_pair = is_in_last_group ? last_group * group : item / (group * tiles_n) * group,
              pairs = is_in_last_group ? row_pairs - first_pair : group;
    // The item's index in the group, later counted from column n0 on.
    int index = item - first_pair * tiles_n, n0 = 0;
    if (is_in_last_group && (tiles_m & 1)) {
        // items of two columns: their pairs of rows and one pair side by side
        const int items = 2 * pairs + 1;
        n0 = index / items * 2;
        index -= n0 / 2 * items;
        if (index == pairs * min(2, tiles_n - n0)) {
            tile.m = tiles_m - 1;
            tile.n = min(n0 + rank, tiles_n - 1);
            tile.shares_a = true;
            tile.is_idle = n0 + rank >= tiles_n;
            return tile;
        }
    }
    const int column = pairs > 0 ? index / pairs : 0;
    tile.m = (first_pair + index - column * pairs) * 2 + rank;
    tile.n = n0 + column;
    tile.shares_a = false;
    tile.is_idle = false;
    return tile;
}

// The number of work items.
SUMI_DEVICE int block_tile_items(int tiles_m, int tiles_n)
{
    return (tiles_m >> 1) * tiles_n + ((tiles_m & 1) ? (tiles_n + 1) / 2 : 0);
}

// The tile of block `rank` for item number `item`, where the items from whole_items on are halves of items. half: 0 or 1
// for such a one, otherwise -1.
template <class T>
SUMI_DEVICE sumi_block_tile block_tile_or_half(int item, int whole_items, int tiles_m, int tiles_n, int group, int rank,
                                               int& half)
{
    const int index = item - whole_items;
    half = T::HALVES && index >= 0 ? index & 1 : -1;
    return block_tile_of(half < 0 ? item : whole_items + (index >> 1), tiles_m, tiles_n, group, rank);
}

// Copies this block's part of one k-block into the stage with operands a and b: its half of the shared operand to both
// blocks (mask 3), and its own operand whole, in two boxes, because the boxes of a map have the size of a half. k0: the
// first element of k.
template <class T>
SUMI_DEVICE void operands_load(const sumi_tensor_map& x_map, const sumi_tensor_map& w_map, u32 a, u32 b, u32 barrier,
                               bool shares_a, u32 rank, int k0, int m0, int n0)
{
    if (!shares_a) {
        tma_load_2d_multicast(b + rank * (T::B_BYTES / 2), &w_map, barrier, k0, n0 + rank * (T::TILE_COLUMNS / 2), 3);
        tma_load_2d(a, &x_map, barrier, k0, m0);
        tma_load_2d(a + T::A_BYTES / 2, &x_map, barrier, k0, m0 + T::TILE_ROWS / 2);
    } else {
        tma_load_2d_multicast(a + rank * (T::A_BYTES / 2), &x_map, barrier, k0, m0 + rank * (T::TILE_ROWS / 2), 3);
        tma_load_2d(b, &w_map, barrier, k0, n0);
        tma_load_2d(b + T::B_BYTES / 2, &w_map, barrier, k0, n0 + T::TILE_COLUMNS / 2);
    }
}

// The same for half a tile, whose rows of w are one box. A shared box is copied by the two blocks in turns.
template <class T>
SUMI_DEVICE void operands_load_half(const sumi_tensor_map& x_map, const sumi_tensor_map& w_map, u32 a, u32 b,
                                    u32 barrier, bool shares_a, u32 rank, int k0, int m0, int n0, bool has_turn)
{
    if (!shares_a) {
        if (has_turn) tma_load_2d_multicast(b, &w_map, barrier, k0, n0, 3);
        tma_load_2d(a, &x_map, barrier, k0, m0);
        tma_load_2d(a + T::A_BYTES / 2, &x_map, barrier, k0, m0 + T::TILE_ROWS / 2);
    } else {
        tma_load_2d_multicast(a + rank * (T::A_BYTES / 2), &x_map, barrier, k0, m0 + rank * (T::TILE_ROWS / 2), 3);
        tma_load_2d(b, &w_map, barrier, k0, n0);
    }
}

struct sumi_gemm_pair_maps {
    sumi_tensor_map x[2], w[2], y[2], residual[2];
};

// The kernel. gemm.h has the requirements of its arguments: n a multiple of 8, k rows of 16 bytes, row scales readable
// up to a multiple of 4 rows, a gate only together with a residual. The grid is even and may be smaller than twice the
// number of items: cluster c computes items c, c + clusters, c + 2 clusters, ...
// IS_PAIR: two products with the same n, k and epilogue, whose items follow each other. A product of few rows then fills
// the last round of a large one.
struct sumi_product {
    const sumi_tensor_map *x, *w, *y, *residual;
    const sumi_gemm_sm90_args* args;
};
template <class T, bool IS_PAIR> SUMI_DEVICE void gemm(const sumi_product& first, const sumi_product& second)
{
    static_assert(!IS_PAIR || !T::HALVES, "items of both products are whole");
    const sumi_gemm_sm90_args& args = *first.args;
    const u32 smem = smem_base(), rank = cluster_rank();
    const int consumer = uniform(threadIdx.x >> 7) - 1; // -1: the producer
    const int tiles_m = (args.m + T::TILE_ROWS - 1) / T::TILE_ROWS,
              tiles_n = (args.n + T::TILE_COLUMNS - 1) / T::TILE_COLUMNS,
              all_items = block_tile_items(tiles_m, tiles_n),
              first_items = T::HALVES ? 2 * all_items - args.whole_items : all_items,
              second_tiles_m = IS_PAIR ? (second.args->m + T::TILE_ROWS - 1) / T::TILE_ROWS : 0,
              items = first_items + (IS_PAIR ? block_tile_items(second_tiles_m, tiles_n) : 0);
    const auto is_in_second = [&](int item) { return IS_PAIR && item >= first_items; };
    const auto of_item = [&](int item, auto sumi_product::*member) {
        return is_in_second(item) ? second.*member : first.*member;
    };
    const auto tile_of = [&](int item, int& half) {
        if (!is_in_second(item))
            return block_tile_or_half<T>(item, args.whole_items, tiles_m, tiles_n, args.group, rank, half);
        half = -1;
        return block_tile_of(item - first_items, second_tiles_m, tiles_n, second.args->group, rank);
    };
    constexpr int K_BLOCK = T::OPERANDS == SUMI_OPERANDS_BF16 ? 64 : 128; // elements in 128 bytes of k
    // TMA fills zeros beyond k. At least STAGES: see vectors_load.
    const int k_blocks = max((args.k + K_BLOCK - 1) / K_BLOCK, T::STAGES);
    int stage = 0;
    u32 parity = 0;
    barriers_init<T>(smem);
    if (consumer < 0) {
        SUMI_REGISTERS_PRODUCER();
        if (uniform(threadIdx.x >> 5) == 0 && elect_one()) {
            const u32 full = smem + T::BARRIERS_OFFSET, empty = full + 8 * T::STAGES;
            const int clusters = gridDim.x >> 1;
            int vector_buffer = 0;
            // The gate is a row of a step table. The kernel reads the counter itself, so that a launch captured in a
            // CUDA graph is right for every step.
            const auto gate_of = [](const sumi_gemm_sm90_args& of) {
                return (T::EPILOGUE & SUMI_EPILOGUE_GATE)
                         ? (const float*)of.gate + (long long)*(const int*)of.counter * of.gate_stride + of.gate_column
                         : nullptr;
            };
            const float *first_gate = gate_of(args), *second_gate = IS_PAIR ? gate_of(*second.args) : nullptr;
            int next_half;
            sumi_block_tile next_tile = tile_of(blockIdx.x >> 1, next_half);
            for (int item = blockIdx.x >> 1; item < items;
                 item += clusters, vector_buffer = (vector_buffer + 1) & (T::VECTOR_BUFFERS - 1)) {
                const sumi_block_tile tile = next_tile;
                const sumi_tensor_map &x = *of_item(item, &sumi_product::x), &w = *of_item(item, &sumi_product::w);
                const sumi_gemm_sm90_args& its = *of_item(item, &sumi_product::args);
                const bool is_half = T::HALVES && next_half >= 0;
                const int m0 = tile.m * T::TILE_ROWS,
                          n0 = tile.n * T::TILE_COLUMNS + (is_half ? next_half * (T::TILE_COLUMNS / 2) : 0),
                          tile_columns = is_half ? T::TILE_COLUMNS / 2 : T::TILE_COLUMNS;
                const u32 stage_bytes = is_half ? T::A_BYTES + T::B_BYTES / 2 : T::STAGE_BYTES;
                for (int k_block = 0; k_block < k_blocks; k_block++) {
                    const u32 a = smem + stage * T::STAGE_BYTES, b = a + T::A_BYTES, barrier = full + 8 * stage;
                    const int k0 = k_block * K_BLOCK;
                    mbarrier_wait(empty + 8 * stage, parity ^ 1); // ^ 1: in the first round the stages are empty
                    if (T::VECTORS_BYTES && k_block == 0) {
                        const int columns = T::HALVES ? max(min(tile_columns, args.n - n0), 0)
                                                      : min(T::TILE_COLUMNS, args.n - n0),
                                  rows = min(T::TILE_ROWS, (its.m - m0 + 3) & ~3);
                        mbarrier_expect(barrier, stage_bytes + vectors_bytes<T>(columns, rows));
                        vectors_load<T>(smem + T::VECTORS_OFFSET + vector_buffer * T::VECTORS_BYTES, barrier,
                                        (const float*)its.bias, is_in_second(item) ? second_gate : first_gate,
                                        (const float*)its.col_scale, (const float*)its.row_scale, n0, columns, m0,
                                        rows);
                    } else mbarrier_expect(barrier, stage_bytes);
                    if (is_half)
                        operands_load_half<T>(x, w, a, b, barrier, tile.shares_a, rank, k0, m0, n0,
                                              (k_block & 1) == (int)rank);
                    else operands_load<T>(x, w, a, b, barrier, tile.shares_a, rank, k0, m0, n0);
                    // The divisions for the next tile, while the copies of this k-block are in flight. The empty asm
                    // keeps the compiler from moving them.
                    if (k_block == 0) {
                        next_tile = tile_of(item + clusters, next_half);
                        asm volatile("" : "+r"(next_tile.m), "+r"(next_tile.n));
                    }
                    if (++stage == T::STAGES) {
                        stage = 0;
                        parity ^= 1;
                    }
                }
            }
        }
    } else {
        if (T::CONSUMERS == 3) SUMI_REGISTERS_3_CONSUMERS();
        else SUMI_REGISTERS_2_CONSUMERS();
        const int warp = uniform((threadIdx.x & 127) >> 5), clusters = gridDim.x >> 1;
        // The number of the next tile among those of this block, and how many this consumer has finished.
        int tile_index = 0, finished_tiles = 0;
        typename T::sum acc[T::M64_TILES][T::TILE_COLUMNS / 2];
        // Ping-pong: consumer 0 has the first turn, so consumer 1 gives it. Consumer 1 begins with the cluster's second
        // tile, whose first stage follows the k_blocks stages of the first tile.
        if (T::PING_PONG && consumer == 1) {
            asm volatile("bar.arrive 3, 256;" ::: "memory");
            tile_index = 1;
            stage = k_blocks % T::STAGES;
            parity = k_blocks / T::STAGES & 1;
        }
        for (int item = (blockIdx.x >> 1) + tile_index * clusters; item < items;
             item += (T::PING_PONG ? 2 : 1) * clusters, finished_tiles++) {
            // The consumer's first row, the first column of its output, and the row where it is stored.
            int row0, column0, store_row;
            auto fetch_residual = [&](int pass) {
                const u32 barrier = residual_barrier<T>(smem, consumer),
                          staging = smem + T::STAGING_OFFSET + consumer * T::STAGING_BYTES;
                TMA_STORE_WAIT_READ();
                mbarrier_expect(barrier, T::STAGING_BYTES);
#pragma unroll
                for (int slab = 0; slab < T::SLABS; slab++)
                    tma_load_2d(staging + slab * T::SLAB_BYTES, of_item(item, &sumi_product::residual), barrier,
                                column0 + pass * T::PASS_STRIDE + slab * T::SLAB_COLUMNS, row0);
            };
            auto find_tile = [&](int half_columns) {
                int half;
                const sumi_block_tile tile = tile_of(item, half);
                row0 = tile.m * T::TILE_ROWS + (T::PING_PONG ? 0 : consumer * 64 * T::M64_TILES);
                column0 = tile.n * T::OUT_COLUMNS + (T::HALVES ? half * half_columns : 0);
                // Of a tile that both blocks compute, the idle block's store goes past the last row, where TMA drops
                // it. (With a branch around the store ptxas 13.0 omits, in some kernels, the move of a coordinate into
                // its uniform register.)
                store_row = tile.is_idle ? 1 << 30 : row0;
                asm volatile("" : "+r"(row0), "+r"(column0), "+r"(store_row));
                if ((T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) && warp == 0 && elect_one()) fetch_residual(0);
            };
            auto store_slab = [&](u32 slab, int column) {
                tma_store_2d(of_item(item, &sumi_product::y), slab, column0 + column, store_row);
            };
            const int vector_buffer = tile_index & (T::VECTOR_BUFFERS - 1);
            bool is_half = false;
            if constexpr (T::HALVES) {
                is_half = item >= args.whole_items;
                if (is_half) {
                    typedef sumi_half_tile<T> H;
                    typename T::sum half_acc[H::M64_TILES][H::TILE_COLUMNS / 2];
                    mainloop<H>(half_acc, smem, consumer, k_blocks, stage, parity, [&] { find_tile(H::OUT_COLUMNS); });
                    epilogue<H>(
                        half_acc, smem, consumer, vector_buffer, finished_tiles, store_slab, [](int, int, float*) {},
                        fetch_residual);
                }
            }
            if (!is_half) {
                mainloop<T>(acc, smem, consumer, k_blocks, stage, parity, [&] { find_tile(0); });
                epilogue<T>(
                    acc, smem, consumer, vector_buffer, finished_tiles, store_slab, [](int, int, float*) {},
                    fetch_residual);
            }
            tile_index += T::PING_PONG ? 2 : 1;
            // Ping-pong: skip the stages of the other consumer's tile.
            if (T::PING_PONG) {
                stage += k_blocks;
                parity ^= stage / T::STAGES & 1;
                stage %= T::STAGES;
            }
        }
        if (warp == 0 && elect_one()) TMA_STORE_WAIT(); // the block exits only after its stores
    }
    cluster_sync(); // the peer no longer writes to this block's shared memory or arrives at its barriers
}

// Define a kernel PREFIX_epilogue_tile from a row of the lists in gemm.h: with two consumers, and with three.
#define SUMI_GEMM_KERNEL_2(PREFIX, OPERANDS, HALVES, epilogue, tile, EPILOGUE, M64_TILES, TILE_COLUMNS, STAGES,        \
                           STORE_PASSES, SLAB_COLUMNS, PING_PONG)                                                      \
    namespace {                                                                                                        \
    typedef sumi_tile<M64_TILES, TILE_COLUMNS, STAGES, STORE_PASSES, SLAB_COLUMNS, EPILOGUE, OPERANDS, PING_PONG, 2,   \
                      HALVES>                                                                                          \
        tile_##epilogue##_##tile;                                                                                      \
    }                                                                                                                  \
    static_assert(tile_##epilogue##_##tile::SHARED_BYTES                                                               \
                      == SUMI_GEMM_SM90_SHARED(EPILOGUE, M64_TILES, TILE_COLUMNS, STAGES, STORE_PASSES, PING_PONG),    \
                  "the launcher's shared memory");                                                                     \
    SUMI_GEMM_KERNEL(PREFIX##_##epilogue##_##tile, tile_##epilogue##_##tile)
#define SUMI_GEMM_KERNEL_3(PREFIX, OPERANDS, HALVES, epilogue, tile, EPILOGUE, TILE_COLUMNS, STAGES, STORE_PASSES,     \
                           SLAB_COLUMNS)                                                                               \
    namespace {                                                                                                        \
    typedef sumi_tile<1, TILE_COLUMNS, STAGES, STORE_PASSES, SLAB_COLUMNS, EPILOGUE, OPERANDS, 0, 3, HALVES>           \
        tile_##epilogue##_##tile;                                                                                      \
    }                                                                                                                  \
    static_assert(tile_##epilogue##_##tile::SHARED_BYTES                                                               \
                      == SUMI_GEMM_SM90_SHARED_3(EPILOGUE, TILE_COLUMNS, STAGES, SLAB_COLUMNS),                        \
                  "the launcher's shared memory");                                                                     \
    SUMI_GEMM_KERNEL(PREFIX##_##epilogue##_##tile, tile_##epilogue##_##tile)
#define SUMI_GEMM_KERNEL(name, T)                                                                                      \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128 * (1 + T::CONSUMERS), 1)                \
        name(const __grid_constant__ sumi_tensor_map x_map, const __grid_constant__ sumi_tensor_map w_map,             \
             const __grid_constant__ sumi_tensor_map y_map, const __grid_constant__ sumi_tensor_map residual_map,      \
             const __grid_constant__ sumi_gemm_sm90_args args)                                                         \
    {                                                                                                                  \
        const sumi_product product = {&x_map, &w_map, &y_map, &residual_map, &args};                                   \
        gemm<T, false>(product, product);                                                                              \
    }
#define SUMI_GEMM_PAIR_KERNEL(name, T)                                                                                 \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)                                     \
        name(const __grid_constant__ sumi_gemm_pair_maps maps, const __grid_constant__ sumi_gemm_sm90_args first,      \
             const __grid_constant__ sumi_gemm_sm90_args second)                                                       \
    {                                                                                                                  \
        gemm<T, true>({&maps.x[0], &maps.w[0], &maps.y[0], &maps.residual[0], &first},                                 \
                      {&maps.x[1], &maps.w[1], &maps.y[1], &maps.residual[1], &second});                               \
    }
