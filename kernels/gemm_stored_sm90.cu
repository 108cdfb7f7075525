// y[m][n] = epilogue(sum over k of x[m][k] * w[n][k]), as gemm_stored.cu computes it, on Hopper and for up to a few
// hundred rows of x, with w in its file's own type: sumi_gemm_stored_sm90_<type>_<rows>. The epilogue is described at
// sumi_gemm_epilogue in gemm.h: bias, activation or SwiGLU, scale, gate, residual.
//   x, w, y  as in gemm_stored.cu; map_x: a tensor map of x, boxes {64, rows}, 128-byte swizzle
//   grid     (blocks, ceil(m / rows)); blocks: 1 .. the number of chunks (below), or a.cluster * ceil(n / W_ROWS) in
//            clusters
//   block    SUMI_GEMM_STORED_SM90_THREADS: two or three warpgroups with 64 rows of w each, and one of which a single
//            thread copies x by TMA
//   shared   dynamic, SUMI_GEMM_STORED_SM90_SHARED; static, 2560 bytes per warp
// Bound by unpacking and by the tensor cores together (tests/bench.md has their cycles).
//
//   The weights are wgmma's first operand, which may come from registers: each lane unpacks its own elements there,
//   while the tensor cores multiply the ones before. x is the second operand, in shared memory. The sums
//   are distributed as hopper.cuh draws the accumulator, and the 64 rows of w in the same manner: warp i of a warpgroup
//   has rows 16 i .. 16 i + 15, and lane 4 r + q has rows r and r + 8 of these. Of each 16 elements of k the lane holds
//   elements 2 q, 2 q + 1, 2 q + 8, 2 q + 9.
//
//   A tile is W_ROWS rows of w (64 for each warpgroup) and X_ROWS rows of x. So the accumulators are [row of w][row of
//   x], and a row of w is a column of y; with SwiGLU two rows of w give one column. The work of a tile is a sequence of
//   chunks: 256 elements of k each, which are four k-blocks of 64. All chunks of all tiles, tile by tile and each along
//   k, form one list, and every block takes an equal stretch of it, whatever the number of tiles is. No stretch is
//   empty, because there are no more blocks than chunks: the tile's counter relies on that. A block that does only some
//   chunks of a tile writes its partial sum to memory as float. The block that arrives last at a tile's counter adds
//   the partial sums in the order of the list.
//
//     tile       0           1           2           3
//     chunks     |-----------|-----------|-----------|
//     blocks     0       1       2       3       4
//
//   With few tiles of many chunks there would be many partial sums for a tile, and one block would add all of them.
//   In that case the blocks of a cluster share the chunks of one tile instead (a.cluster > 1). Each block finishes some
//   of the rows of x: it receives the partial sums of these rows from the other blocks, through shared memory, and adds
//   them.
//
//   There are two kinds of ring buffers. A slot of the block's ring buffer of x holds one k-block. Each warp copies the
//   16 rows of w that it unpacks into a ring buffer of its own, whose slots hold a chunk. So the warps of a block wait
//   for common data only for x.
#include "hopper.cuh"
#include "stored.cuh"
#include "stored_epilogue.cuh"

// The constants of a kernel. X_SLOTS, W_SLOTS: of the ring buffers. WARPS: that unpack. REGISTERS: per thread of these
// warps; with the 24 of the TMA warpgroup they fit the 65536 of a multiprocessor. CHUNK_BYTES: of a row's chunk. PITCH:
// bytes from row to row in a slot of w. W_SLOT_BYTES: of one warp's slot. BARRIERS_OFFSET: bytes of all ring buffers,
// which the mbarriers follow.
template <int TYPE, int ROWS, int GROUPS, int X_SLOTS_> struct stored_sm90_tile {
    enum {
        X_ROWS = ROWS,
        X_SLOTS = X_SLOTS_,
        WARPS = 4 * GROUPS,
        W_ROWS = 64 * GROUPS,
        REGISTERS = GROUPS == 3 ? 160 : 240,
        CHUNK_BYTES = stored_layout<TYPE>::BYTES,
        W_SLOTS = SUMI_GEMM_STORED_SM90_W_SLOTS(CHUNK_BYTES, ROWS, GROUPS, X_SLOTS),
        // Every row's chunks begin at multiples of 16 bytes. The host calls the kernel for such a type only if
        // row_bytes is a multiple of 16; the tensors' addresses always are.
        CHUNKS_ARE_ALIGNED = CHUNK_BYTES % 16 == 0,
        // k is a multiple of 256.
        ROWS_END_AT_CHUNKS = TYPE >= STORED_q2_k && TYPE <= STORED_q6_k || TYPE == STORED_iq4_xs,
        PITCH = SUMI_GEMM_STORED_SM90_PITCH(CHUNK_BYTES),
        X_SLOT_BYTES = X_ROWS * 128,
        W_SLOT_BYTES = 16 * PITCH,
        BARRIERS_OFFSET = X_SLOTS * X_SLOT_BYTES + WARPS * W_SLOTS * W_SLOT_BYTES
    };
    // What a slot holds beyond a row's end is then always whole fields of an earlier chunk, or zeros.
    static_assert(ROWS_END_AT_CHUNKS || CHUNKS_ARE_ALIGNED, "a short chunk begins where the earlier ones began");
    static_assert(BARRIERS_OFFSET + 8 * (2 * X_SLOTS + WARPS * W_SLOTS)
                      <= SUMI_GEMM_STORED_SM90_SHARED(CHUNK_BYTES, ROWS, GROUPS, X_SLOTS),
                  "the launcher's shared memory");
};

// d[64 x N] = a[64 x 16] b[N x 16]^T + (acc ? d : 0), bf16: a in registers, b by its descriptor in shared memory.
template <int N> struct wgmma_registers;
// SUMI_D<n>, SUMI_R<n>: operand lists and register names of asm statements (hopper.cuh). SUMI_D32 has a third
// parameter, the first register.
#define STORED_D32(C, d) SUMI_D32(C, d, 0)
#define STORED_D64(C, d) SUMI_D64(C, d)
#define STORED_D128(C, d) SUMI_D128(C, d)
#define WGMMA(N, R, A0, A1, A2, A3, IB, IP)                                                                            \
    template <> struct wgmma_registers<N> {                                                                            \
        static __device__ __forceinline__ void mma(float (&d)[R], const u32 (&a)[4], u64 b, int acc)                   \
        {                                                                                                              \
            asm volatile("{.reg .pred p; setp.ne.b32 p,%" #IP ",0; wgmma.mma_async.sync.aligned.m64n" #N               \
                         "k16.f32.bf16.bf16 {" SUMI_R##R "},{%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "},%" #IB ",p,1,1,0;}"  \
                         : STORED_D##R("+f", d)                                                                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(acc));                              \
        }                                                                                                              \
    };
#define SUMI_R32                                                                                                       \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"  \
    "30,%31"
WGMMA(64, 32, 32, 33, 34, 35, 36, 37)
WGMMA(128, 64, 64, 65, 66, 67, 68, 69)
WGMMA(256, 128, 128, 129, 130, 131, 132, 133)

// Stores v at the shared-memory address `address` of block `rank` of the cluster.
SUMI_DEVICE void store_cluster(u32 address, int rank, float4 v)
{
    asm volatile(
        "{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; st.shared::cluster.v4.f32 [r], {%2,%3,%4,%5};}" ::"r"(
            address),
        "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
        : "memory");
}

template <int TYPE, class T>
SUMI_DEVICE void gemm_stored_sm90(const sumi_tensor_map& map_x, const sumi_gemm_stored_args& a)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    // Each warp's [row of x][row of w]. The pitch of 20 floats avoids bank conflicts.
    __shared__ __align__(16) float transposed[T::WARPS][32][20];
    __shared__ uint32_t is_last;
    const u32 smem = shared_address(shared), full = smem + T::BARRIERS_OFFSET, empty = full + 8 * T::X_SLOTS;
    const int warp = uniform((int)threadIdx.x >> 5), lane = (int)threadIdx.x & 31;
    // Barriers. full, empty: a slot of x is complete, or may be overwritten. w_full: this warp's slots of w are
    // complete. A warp needs no barrier to overwrite its own slots: see fetch_w().
    const u32 w_full = empty + 8 * (T::X_SLOTS + warp * T::W_SLOTS);
    // chunks: of a tile. chunk_total: of all tiles, the length of the list. list_begin, list_end: this block's stretch
    // of the list.
    const int chunks = (a.k + 255) / 256, tiles = (a.n + T::W_ROWS - 1) / T::W_ROWS, chunk_total = tiles * chunks,
              m0 = (int)blockIdx.y * T::X_ROWS, blocks = (int)gridDim.x, block = (int)blockIdx.x;
    const bool is_clustered = a.cluster > 1;
    const int rank = is_clustered ? (int)cluster_rank() : 0, cluster_tile = is_clustered ? block / a.cluster : 0;
    const int list_begin = is_clustered ? cluster_tile * chunks + chunks * rank / a.cluster
                                        : (int)((int64_t)chunk_total * block / blocks),
              list_end = is_clustered ? cluster_tile * chunks + chunks * (rank + 1) / a.cluster
                                      : (int)((int64_t)chunk_total * (block + 1) / blocks);
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::X_SLOTS; i++) {
            mbarrier_init(full + 8 * i, 1);         // the thread that copies x
            mbarrier_init(empty + 8 * i, T::WARPS); // a lane of each unpacking warp
        }
        // the 16 lanes that copy a row each
        for (int i = 0; i < T::WARPS * T::W_SLOTS; i++) mbarrier_init(empty + 8 * (T::X_SLOTS + i), 16);
        FENCE_MBARRIER_INIT();
    }
    __syncthreads(); // the barriers are initialised

    if (warp >= T::WARPS) { // copies x; TMA writes zeros beyond the end of k
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (warp != T::WARPS || !elect_one()) return;
        int slot = 0, phase = 0;
        for (int list_index = list_begin; list_index < list_end; list_index++) {
            const int chunk = list_index % chunks;
            for (int b = 0; b < 4; b++) {
                // phase ^ 1: the wait is for the phase before. In the first round none was, and the wait ends at once.
                mbarrier_wait(empty + 8 * slot, phase ^ 1);
                mbarrier_expect(full + 8 * slot, T::X_SLOT_BYTES);
                tma_load_2d(smem + slot * T::X_SLOT_BYTES, &map_x, full + 8 * slot, chunk * 256 + b * 64, m0);
                if (++slot == T::X_SLOTS) slot = 0, phase ^= 1;
            }
        }
        return;
    }
    constexpr int registers = T::REGISTERS, threads = T::WARPS * 32;
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));

    const int r = lane >> 2, q = lane & 3;
    // The first byte of row `row_of_warp` of the warp's 16 rows of a tile, and its scale. Rows beyond n read the last
    // row. With a.is_gated the file has all gate rows of w, then all up rows, and the product has 8 of each in turn:
    // then a lane of the epilogue has both sums of a SwiGLU pair. a.swiglu needs a.is_gated. Without a.swiglu the
    // columns of y are in that order, for an activation that follows as an op of its own.
    const auto row_of = [&](int tile, int row_of_warp, float* scale) {
        int row = min(tile * T::W_ROWS + warp * 16 + row_of_warp, a.n - 1);
        if (a.is_gated) row = (row >> 4) * 8 + (row & 7) + (row & 8 ? a.n / 2 : 0);
        int tensor_begin = 0, tensor = 0;
        while (tensor < SUMI_GEMM_STORED_TENSORS - 1 && row >= a.end[tensor]) tensor_begin = a.end[tensor++];
        *scale = a.scale[tensor];
        return (const uint8_t*)a.from[tensor] + (int64_t)(row - tensor_begin) * a.row_bytes;
    };
    uint8_t* const ring = shared + T::X_SLOTS * T::X_SLOT_BYTES + warp * T::W_SLOTS * T::W_SLOT_BYTES;
    const u32 ring_smem = shared_address(ring);
    if (!T::ROWS_END_AT_CHUNKS && a.k % 256 != 0) {
        // Beyond a row's end x is zero. w is then what the slot holds: weights of an earlier chunk, or these zeros. It
        // must be finite, because NaN and infinity times zero are NaN.
        for (int i = lane; i < T::W_SLOTS * T::W_SLOT_BYTES / 16; i += 32)
            *(uint4*)(ring + i * 16) = make_uint4(0, 0, 0, 0);
        FENCE_PROXY_ASYNC();
        __syncwarp();
    }
    // Copies the next chunk of the warp's 16 rows, one row for each of 16 lanes: all 16-byte units that the row's chunk
    // lies in. These may begin up to 14 bytes in front of the chunk and end as much after it; both is memory of the
    // weight (sumi_gemm_stored_args). next_index, next_slot, next_chunk: its place in the list, in the ring buffer and
    // in the tile.
    int next_index = list_begin, next_slot = 0, next_chunk = list_begin % chunks;
    const uint8_t* row_address = nullptr;
    float unused;
    const auto fetch_w = [&] {
        if (next_index >= list_end) return;
        if (lane < 16) {
            if (next_chunk == 0 || next_index == list_begin) row_address = row_of(next_index / chunks, lane, &unused);
            const uint8_t* chunk_address = row_address + (int64_t)next_chunk * T::CHUNK_BYTES;
            const int bytes_before = T::CHUNKS_ARE_ALIGNED ? 0 : (int)((uint64_t)chunk_address & 15u);
            const u32 bytes = (u32)(bytes_before + min(T::CHUNK_BYTES, a.row_bytes - next_chunk * T::CHUNK_BYTES) + 15)
                            / 16 * 16,
                      barrier = w_full + 8 * next_slot;
            mbarrier_expect(barrier, bytes);
            bulk_load(ring_smem + next_slot * T::W_SLOT_BYTES + lane * T::PITCH, chunk_address - bytes_before, bytes,
                      barrier);
        }
        next_index++;
        next_chunk = next_chunk + 1 == chunks ? 0 : next_chunk + 1;
        next_slot = next_slot + 1 == T::W_SLOTS ? 0 : next_slot + 1;
    };
#pragma unroll
    for (int i = 0; i < T::W_SLOTS - 1; i++) fetch_w();

    float acc[T::X_ROWS / 2];
    // The slots that are read next, and the parities of their barriers. last_slot: the slot of x whose products may
    // still be in flight, -1: none. release_x_slot() releases it once its products are done.
    int slot = 0, phase = 0, w_slot = 0, w_phase = 0, last_slot = -1;
    const auto release_x_slot = [&] {
        if (last_slot >= 0 && lane == 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + 8 * last_slot) : "memory");
    };
    for (int list_index = list_begin; list_index < list_end;) {
        const int tile = list_index / chunks, chunk_begin = list_index % chunks,
                  chunk_end = min(chunks, chunk_begin + list_end - list_index);
        list_index += chunk_end - chunk_begin;
        float scale[2];
        // Low address bits of the lane's two rows: without CHUNKS_ARE_ALIGNED they say where a row begins in its first
        // 16 bytes.
        const u32 low[2] = {(u32)(uint64_t)row_of(tile, r, &scale[0]), (u32)(uint64_t)row_of(tile, r + 8, &scale[1])};
#pragma unroll
        for (int i = 0; i < T::X_ROWS / 2; i++) acc[i] = 0.0f;
#pragma unroll 1
        for (int chunk = chunk_begin; chunk < chunk_end; chunk++) {
            mbarrier_wait(w_full + 8 * w_slot, w_phase);
            __syncwarp(); // all lanes have read the chunk before
            const uint8_t* w = ring + w_slot * T::W_SLOT_BYTES + r * T::PITCH;
            if (++w_slot == T::W_SLOTS) w_slot = 0, w_phase ^= 1;
            const u32 shift[2] = {T::CHUNKS_ARE_ALIGNED ? 0u : (low[0] + (u32)(chunk * T::CHUNK_BYTES)) & 15u,
                                  T::CHUNKS_ARE_ALIGNED ? 0u : (low[1] + (u32)(chunk * T::CHUNK_BYTES)) & 15u};
            const stored<TYPE, true> upper(w + shift[0], 2 * q), lower(w + 8 * T::PITCH + shift[1], 2 * q);
            // W_SLOTS - 1 chunks are copied ahead, so this overwrites the slot of the chunk before. No lane reads that
            // slot any more: a lane has read all of a chunk when it comes to the __syncwarp() of the next. `upper` and
            // `lower` point into the slot of this chunk, which the next fetch_w() may overwrite at the earliest.
            fetch_w();
            // Two sets of registers: wgmma reads one set while the lane unpacks into the other.
            u32 operands[2][4][4];
#pragma unroll
            for (int b = 0; b < 4; b++) {
#pragma unroll
                for (int g = 0; g < 2; g++) {
                    const uint4 u = stored_bf16(upper, 2 * b + g, scale[0]),
                                v = stored_bf16(lower, 2 * b + g, scale[1]);
                    // the operands of 16 elements of k each
                    u32(&operand_0)[4] = operands[b & 1][2 * g], (&operand_1)[4] = operands[b & 1][2 * g + 1];
                    operand_0[0] = u.x, operand_0[1] = v.x, operand_0[2] = u.y, operand_0[3] = v.y;
                    operand_1[0] = u.z, operand_1[1] = v.z, operand_1[2] = u.w, operand_1[3] = v.w;
                }
                mbarrier_wait(full + 8 * slot, phase);
                WGMMA_FENCE();
                const u32 x = matrix_descriptor_low(smem + slot * T::X_SLOT_BYTES);
#pragma unroll
                for (int p = 0; p < 4; p++)
                    wgmma_registers<T::X_ROWS>::mma(acc, operands[b & 1][p], matrix_descriptor(x + p * 2), 1);
                WGMMA_COMMIT();
                WGMMA_WAIT(1);
                release_x_slot();
                last_slot = slot;
                if (++slot == T::X_SLOTS) slot = 0, phase ^= 1;
            }
        }
        WGMMA_WAIT(0);
        release_x_slot();
        last_slot = -1;

        // The end of the block's share of a tile. The warp finishes up to 32 rows of x at a time, transposed through
        // its own memory `transposed`: then a lane has two neighbouring columns of y, which are two rows of w.
        // lanes_per_row: lanes with columns of one row of x; row_step: rows that the warp's lanes finish at once.
        // c: the lane's first column, counted from the warp's first, n0. n: columns of the result.
        const epilogue_activation act = epilogue_activation_of(a.swiglu ? 0 : a.epilogue.activation);
        const int lanes_per_row = a.swiglu ? 4 : 8, row_step = 32 / lanes_per_row, c = lane % lanes_per_row * 2,
                  n = a.swiglu ? a.n / 2 : a.n, n0 = (tile * T::W_ROWS + warp * 16) / (a.swiglu ? 2 : 1);
        const stored_columns columns =
            stored_columns_of(a.epilogue, epilogue_gate_row(a.epilogue), n, n0 + c, a.swiglu != 0);
        // Writes value i & 3 of one accumulator group (8 rows of x) to group `group` of the 32 rows.
        const auto transpose_value = [&](int i, int group, float value) {
            transposed[warp][group * 8 + 2 * q + (i & 1)][r + (i >> 1 & 1) * 8] = value;
        };
        // Groups of 8 rows of x. A thread has four sums of each, one float4.
        constexpr int X_GROUPS = T::X_ROWS / 8;
        const int max_groups = (X_GROUPS + a.cluster - 1) / a.cluster; // that a block of the cluster finishes
        int group_begin = 0, group_end = X_GROUPS;
        if (is_clustered) { // block b finishes groups X_GROUPS b / cluster .. X_GROUPS (b + 1) / cluster - 1
            group_begin = X_GROUPS * rank / a.cluster, group_end = X_GROUPS * (rank + 1) / a.cluster;
            // All blocks are done with their ring buffers and barriers, which the sums overwrite: a cluster has one
            // tile. cluster_sync() does not wait for threads that have exited, as those of the TMA warpgroup.
            cluster_sync();
            int to = 0, to_begin = 0, to_end = X_GROUPS / a.cluster; // the block that finishes group i, and its groups
#pragma unroll
            for (int i = 0; i < X_GROUPS; i++) {
                if (i == to_end) to++, to_begin = i, to_end = X_GROUPS * (to + 1) / a.cluster;
                if (m0 + 8 * i < a.m)
                    store_cluster(smem + (((rank * max_groups + i - to_begin) * threads + (int)threadIdx.x) << 4), to,
                                  make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]));
            }
            cluster_sync(); // all partial sums have arrived
        }

        const bool has_all_chunks = is_clustered || (chunk_begin == 0 && chunk_end == chunks);
        bool finishes = has_all_chunks;
        if (!has_all_chunks) {
            // This thread's partial sums in block `other_block`. Each block has memory for two partial sums: 0 is of
            // its first tile and 1 of its last. It does all chunks of the tiles between them.
            const auto partial_sum_of = [&](int other_block) {
                const int which = (int)((int64_t)chunk_total * other_block / blocks) / chunks == tile ? 0 : 1;
                return (float4*)a.partial_sums
                     + (((int64_t)blockIdx.y * blocks + other_block) * 2 + which) * X_GROUPS * threads + threadIdx.x;
            };
            // The block that does a chunk of the list. Block b begins at chunk floor(chunk_total * b / blocks).
            const auto block_of = [&](int64_t index) { return (int)(((index + 1) * blocks - 1) / chunk_total); };
            uint32_t* const arrivals = (uint32_t*)a.arrivals + (int64_t)blockIdx.y * tiles + tile;
            float4* const partial_sum = partial_sum_of(block);
#pragma unroll
            for (int i = 0; i < X_GROUPS; i++) {
                if (m0 + 8 * i < a.m)
                    __stcg(partial_sum + i * threads,
                           make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]));
            }
            const int first_block = block_of((int64_t)tile * chunks),
                      last_block = block_of(((int64_t)tile + 1) * chunks - 1);
            // Named barrier 1 holds the unpacking warps only: the TMA warpgroup has left the kernel or still copies.
            __threadfence(); // this thread's part of the partial sum is visible to all blocks
            asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); // every thread's part is
            if (threadIdx.x == 0) is_last = atomicAdd(arrivals, 1u) == (uint32_t)(last_block - first_block);
            asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); // is_last is written
            finishes = is_last != 0;
            if (finishes) {
                __threadfence(); // no partial sum is read before the counter was
#pragma unroll
                for (int i = 0; i < T::X_ROWS / 2; i++) acc[i] = 0.0f;
#pragma unroll T::X_ROWS <= 64 ? 2 : 1
                for (int other_block = first_block; other_block <= last_block; other_block++) {
                    const float4* other_sum = partial_sum_of(other_block);
#pragma unroll
                    for (int i = 0; i < X_GROUPS; i++) {
                        const float4 v =
                            m0 + 8 * i < a.m ? __ldcg(other_sum + i * threads) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                        acc[4 * i] += v.x, acc[4 * i + 1] += v.y, acc[4 * i + 2] += v.z, acc[4 * i + 3] += v.w;
                    }
                }
                if (threadIdx.x == 0) *arrivals = 0;
            }
            asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); // all have read is_last
        }
        if (!finishes) continue;
#pragma unroll 1
        for (int i = group_begin; i < group_end && m0 + 8 * i < a.m; i += 4) { // four groups: 32 rows of x
            if (is_clustered) {
                for (int j = 0; j < 4 && i + j < group_end; j++) {
                    // the sums that the blocks of the cluster have sent, max_groups of each
                    const float4* received = (const float4*)shared + (i + j - group_begin) * threads + threadIdx.x;
                    float4 sum = *received;
                    for (int b = 1; b < a.cluster; b++) {
                        const float4 v = received[b * max_groups * threads];
                        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
                    }
                    transpose_value(0, j, sum.x), transpose_value(1, j, sum.y);
                    transpose_value(2, j, sum.z), transpose_value(3, j, sum.w);
                }
            } else {
                // A loop that is not unrolled cannot index registers, and the unrolled outer loop is several times the
                // code. So this inner loop is unrolled and selects the registers by comparison.
#pragma unroll
                for (int k = 0; k < X_GROUPS; k += 4) {
                    if (k != i) continue;
#pragma unroll
                    for (int j = 0; j < 16; j++) transpose_value(j, j / 4, acc[4 * k + j]);
                }
            }
            __syncwarp(); // `transposed` is written
            const int row = m0 + 8 * i, row_end = min(a.m, m0 + 8 * group_end);
            // Each call finishes four rows of the lane: local_row + j * row_step of the 32, for j = 0 .. 3.
#pragma unroll 1
            for (int local_row = lane / lanes_per_row; local_row < 32 && row + local_row < row_end && n0 + c < n;
                 local_row += 4 * row_step)
                stored_epilogue<4>(
                    a.epilogue, act, columns, n - n0 - c, row_end, row + local_row, row_step, [&](int j) {
                        const float* sums = transposed[warp][local_row + j * row_step] + c;
                        // with SwiGLU 8 rows of the gate, then 8 rows of up
                        const float2 gate = *(const float2*)sums, up = *(const float2*)(sums + (a.swiglu ? 8 : 0));
                        return a.swiglu ? make_float2(epilogue_swiglu(gate.x, up.x), epilogue_swiglu(gate.y, up.y))
                                        : gate;
                    });
            __syncwarp(); // `transposed` is read and may be overwritten
        }
    }
}

// The tiles of SUMI_GEMM_STORED_SM90_TILES. A thread has ROWS / 2 sums. The 128 sums of 256 rows do not fit the 160
// registers that a thread has with three warpgroups, so that tile has two; its slots of x are 32 KiB, so it has three.
#define DEFINE_KERNEL(name, number, ROWS, GROUPS, X_SLOTS)                                                             \
    extern "C" __global__ void __launch_bounds__(SUMI_GEMM_STORED_SM90_THREADS(GROUPS), 1)                             \
        sumi_gemm_stored_sm90_##name##_##ROWS(const __grid_constant__ sumi_tensor_map map_x,                           \
                                              const __grid_constant__ sumi_gemm_stored_args a)                         \
    {                                                                                                                  \
        gemm_stored_sm90<number, stored_sm90_tile<number, ROWS, GROUPS, X_SLOTS>>(map_x, a);                           \
    }
// number, bytes: as in SUMI_STORED_TYPES.
#define DEFINE_TYPE(name, number, bytes)                                                                               \
    DEFINE_KERNEL(name, number, 64, 3, 5) DEFINE_KERNEL(name, number, 128, 3, 5) DEFINE_KERNEL(name, number, 256, 2, 3)
SUMI_STORED_SM90_TYPES(DEFINE_TYPE)
