// y[m][n] = epilogue(sum over k of x[m][k] * w[n][k]), as gemm_stored.cu computes it, on Hopper and for up to a few
// hundred rows of x, with w in its file's own type: sumi_gemm_stored_sm90_<type>_<rows>. The epilogue is described at
// sumi_gemm_epilogue in gemm.h: bias, activation or SwiGLU, scale, gate, residual.
//   x, w, y  as in gemm_stored.cu; x_map: a tensor map of x, boxes {64, rows}, 128-byte swizzle
//   grid     (blocks, ceil(m / rows)); blocks: 1 .. the number of chunks (below), or args.cluster * ceil(n / W_ROWS) in
//            clusters
//   block    SUMI_GEMM_STORED_SM90_THREADS: two or three warpgroups with 64 rows of w each, and one of which a single
//            thread copies x by TMA
//   shared   dynamic, SUMI_GEMM_STORED_SM90_SHARED; static, 2560 bytes per warp
// Bound by unpacking and by the tensor cores together (tests/bench.md has their cycles).
//
//   The weights are wgmma's first operand, which may come from registers: each lane unpacks its own elements there,
//   while the tensor cores multiply the ones before. x is the second operand, in shared memory. The sums
//   are distributed as hopper.cuh draws the accumulator, and the 64 rows of w in the same manner: warp i of a warpgroup
//   has rows 16 i .. 16 i + 15, and lane 4 r + q has rows r and r + 8 of these (in the code r is lane_row and q
//   lane_in_quad). Of each 16 elements of k the lane holds elements 2 q, 2 q + 1, 2 q + 8, 2 q + 9.
//
//   A tile is W_ROWS rows of w (64 for each warpgroup) and X_ROWS rows of x. So the accumulators are [row of w][row of
//   x], and a row of w is a column of y; with SwiGLU two rows of w give one column. The work of a tile is a sequence of
//   chunks: 256 elements of k each, which are four k-blocks of 64. All chunks of all tiles, tile by tile and each along
//   k, form one list, and every block takes an equal range of it, whatever the number of tiles is. No range is
//   empty, because there are no more blocks than chunks: the tile's counter relies on that. A block that does only some
//   chunks of a tile writes its partial sum to memory as float. The block that arrives last at a tile's counter adds
//   the partial sums in the order of the list.
//
//     tile       0           1           2           3
//     chunks     |-----------|-----------|-----------|
//     blocks     0       1       2       3       4
//
//   With few tiles of many chunks there would be many partial sums for a tile, and one block would add all of them. In
//   that case the blocks of a cluster share the chunks of one tile instead (args.cluster > 1). Each block finishes some
//   of the rows of x: it receives the partial sums of these rows from the other blocks, through shared memory, and adds
//   them.
//
//   There are two kinds of ring buffers. A slot of the block's ring buffer of x holds one k-block. Each warp copies the
//   16 rows of w that it unpacks into a ring buffer of its own, whose slots hold a chunk. So the warps of a block wait
//   for common data only for x.
#include "hopper.cuh"
#include "stored.cuh"
#include "stored_epilogue.cuh"

// The constants of a kernel, which has WARPGROUPS warpgroups that unpack.
template <int TYPE, int X_ROWS_, int WARPGROUPS, int X_SLOTS_> struct stored_sm90_tile {
    enum {
        X_ROWS = X_ROWS_,
        X_SLOTS = X_SLOTS_,     // of the ring buffer of x
        WARPS = 4 * WARPGROUPS, // that unpack
        W_ROWS = 64 * WARPGROUPS,
        // Per thread of the unpacking warps. With the 24 of the TMA warpgroup they fit the 65536 of a multiprocessor.
        REGISTERS = WARPGROUPS == 3 ? 160 : 240,
        CHUNK_BYTES = stored_layout<TYPE>::BYTES,                                          // of one row
        W_SLOTS = SUMI_GEMM_STORED_SM90_W_SLOTS(CHUNK_BYTES, X_ROWS, WARPGROUPS, X_SLOTS), // of a warp's ring buffer
        // Every row's chunks begin at multiples of 16 bytes. The host calls the kernel for such a type only if
        // row_bytes is a multiple of 16; the tensors' addresses always are.
        CHUNKS_ARE_ALIGNED = CHUNK_BYTES % 16 == 0,
        // k is a multiple of 256.
        ROWS_END_AT_CHUNKS = TYPE >= STORED_q2_k && TYPE <= STORED_q6_k || TYPE == STORED_iq4_xs,
        W_PITCH = SUMI_GEMM_STORED_SM90_PITCH(CHUNK_BYTES), // bytes from row to row in a slot of w
        X_SLOT_BYTES = X_ROWS * 128,
        W_SLOT_BYTES = 16 * W_PITCH,
        BARRIERS_OFFSET = X_SLOTS * X_SLOT_BYTES + WARPS * W_SLOTS * W_SLOT_BYTES // the ring buffers come before
    };
    // What a slot holds beyond a row's end is then always whole fields of an earlier chunk, or zeros.
    static_assert(ROWS_END_AT_CHUNKS || CHUNKS_ARE_ALIGNED, "a short chunk begins where the earlier ones began");
    static_assert(BARRIERS_OFFSET + 8 * (2 * X_SLOTS + WARPS * W_SLOTS)
                      <= SUMI_GEMM_STORED_SM90_SHARED(CHUNK_BYTES, X_ROWS, WARPGROUPS, X_SLOTS),
                  "the launcher's shared memory");
};

// d[64 x N] = a[64 x 16] b[N x 16]^T + (accumulates ? d : 0), bf16: a in registers, b in shared memory by its
// descriptor.
// COUNT: sums of a thread. A0 .. A3, B, P: the asm operand numbers of a, b and accumulates. The lists of sums are those
// of hopper.cuh.
template <int N> struct wgmma_registers;
#define WGMMA(N, COUNT, A0, A1, A2, A3, B, P)                                                                          \
    template <> struct wgmma_registers<N> {                                                                            \
        static SUMI_DEVICE void mma(float (&d)[COUNT], const u32 (&a)[4], u64 b, int accumulates)                      \
        {                                                                                                              \
            asm volatile("{.reg .pred p; setp.ne.b32 p,%" #P ",0; "                                                    \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 "                                   \
                         "{" SUMI_ASM_REGISTERS_##COUNT "},{%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "},%" #B ",p,1,1,0;}"    \
                         : SUMI_ASM_OUTPUTS_##COUNT("+f", d)                                                           \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulates));                      \
        }                                                                                                              \
    };
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
SUMI_DEVICE void gemm_stored_sm90(const sumi_tensor_map& x_map, const sumi_gemm_stored_args& args)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    // Each warp's [row of x][row of w]. The pitch of 20 floats avoids bank conflicts.
    __shared__ __align__(16) float transposed[T::WARPS][32][20];
    __shared__ uint32_t is_last;
    const u32 smem = smem_addr(shared), full = smem + T::BARRIERS_OFFSET, empty = full + 8 * T::X_SLOTS;
    const int warp = uniform((int)threadIdx.x >> 5), lane = (int)threadIdx.x & 31;
    // Barriers. full, empty: a slot of x is complete, or may be overwritten. w_full: this warp's slots of w are
    // complete. A warp needs no barrier to overwrite its own slots: see fetch_w().
    const u32 w_full = empty + 8 * (T::X_SLOTS + warp * T::W_SLOTS);
    // The chunks of a tile, and of all tiles, which is the length of the list. m0: the first row of x.
    const int chunks = (args.k + 255) / 256, tiles = (args.n + T::W_ROWS - 1) / T::W_ROWS, list_length = tiles * chunks,
              m0 = (int)blockIdx.y * T::X_ROWS, blocks = (int)gridDim.x, block = (int)blockIdx.x;
    const bool is_clustered = args.cluster > 1;
    const int rank = is_clustered ? (int)cluster_rank() : 0, cluster_tile = is_clustered ? block / args.cluster : 0;
    // This block's range of the list.
    const int list_begin = is_clustered ? cluster_tile * chunks + chunks * rank / args.cluster
                                        : (int)((int64_t)list_length * block / blocks),
              list_end = is_clustered ? cluster_tile * chunks + chunks * (rank + 1) / args.cluster
                                      : (int)((int64_t)list_length * (block + 1) / blocks);
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
        int slot = 0, parity = 0;
        for (int list_index = list_begin; list_index < list_end; list_index++) {
            const int chunk = list_index % chunks;
            for (int k_block = 0; k_block < 4; k_block++) {
                // parity ^ 1: the wait is for the phase before. In the first round none was, and the wait ends at once.
                mbarrier_wait(empty + 8 * slot, parity ^ 1);
                mbarrier_expect(full + 8 * slot, T::X_SLOT_BYTES);
                tma_load_2d(smem + slot * T::X_SLOT_BYTES, &x_map, full + 8 * slot, chunk * 256 + k_block * 64, m0);
                if (++slot == T::X_SLOTS) slot = 0, parity ^= 1;
            }
        }
        return;
    }
    constexpr int register_count = T::REGISTERS, threads = T::WARPS * 32;
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(register_count));

    const int lane_row = lane >> 2, lane_in_quad = lane & 3;
    // The first byte of row `row_of_warp` of the warp's 16 rows of a tile, and its scale. Rows beyond n read the last
    // row. With args.is_gated the file has all gate rows of w, then all up rows, and the product has 8 of each in turn:
    // then a lane of the epilogue has both sums of a SwiGLU pair. args.swiglu needs args.is_gated. Without args.swiglu
    // the columns of y are in that order, for an activation that follows as an op of its own.
    const auto row_of = [&](int tile, int row_of_warp, float* scale) {
        int row = min(tile * T::W_ROWS + warp * 16 + row_of_warp, args.n - 1);
        if (args.is_gated) row = (row >> 4) * 8 + (row & 7) + (row & 8 ? args.n / 2 : 0);
        int tensor_begin = 0, tensor = 0;
        while (tensor < SUMI_GEMM_STORED_TENSORS - 1 && row >= args.end[tensor]) tensor_begin = args.end[tensor++];
        *scale = args.scale[tensor];
        return (const uint8_t*)args.from[tensor] + (int64_t)(row - tensor_begin) * args.row_bytes;
    };
    uint8_t* const ring = shared + T::X_SLOTS * T::X_SLOT_BYTES + warp * T::W_SLOTS * T::W_SLOT_BYTES;
    const u32 ring_smem = smem_addr(ring);
    if (!T::ROWS_END_AT_CHUNKS && args.k % 256 != 0) {
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
            const u32 bytes =
                          (u32)(bytes_before + min(T::CHUNK_BYTES, args.row_bytes - next_chunk * T::CHUNK_BYTES) + 15)
                          / 16 * 16,
                      barrier = w_full + 8 * next_slot;
            mbarrier_expect(barrier, bytes);
            bulk_load(ring_smem + next_slot * T::W_SLOT_BYTES + lane * T::W_PITCH, chunk_address - bytes_before, bytes,
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
    int slot = 0, parity = 0, w_slot = 0, w_parity = 0, last_slot = -1;
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
        const u32 address_low[2] = {(u32)(uint64_t)row_of(tile, lane_row, &scale[0]),
                                    (u32)(uint64_t)row_of(tile, lane_row + 8, &scale[1])};
#pragma unroll
        for (int i = 0; i < T::X_ROWS / 2; i++) acc[i] = 0.0f;
#pragma unroll 1
        for (int chunk = chunk_begin; chunk < chunk_end; chunk++) {
            mbarrier_wait(w_full + 8 * w_slot, w_parity);
            __syncwarp(); // all lanes have read the chunk before
            const uint8_t* w = ring + w_slot * T::W_SLOT_BYTES + lane_row * T::W_PITCH;
            if (++w_slot == T::W_SLOTS) w_slot = 0, w_parity ^= 1;
            const u32 shift[2] = {T::CHUNKS_ARE_ALIGNED ? 0u : (address_low[0] + (u32)(chunk * T::CHUNK_BYTES)) & 15u,
                                  T::CHUNKS_ARE_ALIGNED ? 0u : (address_low[1] + (u32)(chunk * T::CHUNK_BYTES)) & 15u};
            const stored<TYPE, true> upper(w + shift[0], 2 * lane_in_quad),
                lower(w + 8 * T::W_PITCH + shift[1], 2 * lane_in_quad);
            // W_SLOTS - 1 chunks are copied ahead, so this overwrites the slot of the chunk before. No lane reads that
            // slot any more: a lane has read all of a chunk when it comes to the __syncwarp() of the next. `upper` and
            // `lower` point into the slot of this chunk, which the next fetch_w() may overwrite at the earliest.
            fetch_w();
            // Two sets of registers: wgmma reads one set while the lane unpacks into the other. Each set has wgmma's
            // four registers for each of the four k-steps (16 elements) of a k-block.
            u32 registers[2][4][4];
#pragma unroll
            for (int k_block = 0; k_block < 4; k_block++) {
                u32(&operands)[4][4] = registers[k_block & 1];
#pragma unroll
                for (int half = 0; half < 2; half++) { // two k-steps: of each row the lane unpacks 8 elements
                    const uint4 u = stored_bf16(upper, 2 * k_block + half, scale[0]),
                                v = stored_bf16(lower, 2 * k_block + half, scale[1]);
                    u32(&step_0)[4] = operands[2 * half], (&step_1)[4] = operands[2 * half + 1];
                    step_0[0] = u.x, step_0[1] = v.x, step_0[2] = u.y, step_0[3] = v.y;
                    step_1[0] = u.z, step_1[1] = v.z, step_1[2] = u.w, step_1[3] = v.w;
                }
                mbarrier_wait(full + 8 * slot, parity);
                WGMMA_FENCE();
                const u32 x = wgmma_descriptor_low(smem + slot * T::X_SLOT_BYTES);
#pragma unroll
                for (int k_step = 0; k_step < 4; k_step++) // 32 bytes of k, in units of 16 bytes
                    wgmma_registers<T::X_ROWS>::mma(acc, operands[k_step], wgmma_descriptor(x + k_step * 2), 1);
                WGMMA_COMMIT();
                WGMMA_WAIT(1);
                release_x_slot();
                last_slot = slot;
                if (++slot == T::X_SLOTS) slot = 0, parity ^= 1;
            }
        }
        WGMMA_WAIT(0);
        release_x_slot();
        last_slot = -1;

        // The end of the block's share of a tile. The warp finishes up to 32 rows of x at a time, transposed through
        // its own memory `transposed`: then a lane has two neighbouring columns of y, which are two rows of w.
        // lanes_per_row: lanes with columns of one row of x; row_step: rows that the warp's lanes finish at once.
        // lane_column: the lane's first column, counted from the warp's first, n0. n: columns of the result.
        const epilogue_activation activation = epilogue_activation_of(args.swiglu ? 0 : args.epilogue.activation);
        const int lanes_per_row = args.swiglu ? 4 : 8, row_step = 32 / lanes_per_row,
                  lane_column = lane % lanes_per_row * 2, n = args.swiglu ? args.n / 2 : args.n,
                  n0 = (tile * T::W_ROWS + warp * 16) / (args.swiglu ? 2 : 1);
        const stored_columns columns =
            stored_columns_of(args.epilogue, epilogue_gate_row(args.epilogue), n, n0 + lane_column, args.swiglu != 0);
        // Writes value i & 3 of one accumulator group (8 rows of x) to group `group` of the 32 rows: columns of the
        // accumulator, which hopper.cuh draws, are rows here.
        const auto transpose_value = [&](int i, int group, float value) {
            transposed[warp][group * 8 + 2 * lane_in_quad + (i & 1)][lane_row + (i >> 1 & 1) * 8] = value;
        };
        // Groups of 8 rows of x. A thread has four sums of each, one float4.
        constexpr int X_GROUPS = T::X_ROWS / 8;
        const int max_groups = (X_GROUPS + args.cluster - 1) / args.cluster; // that a block of the cluster finishes
        int group_begin = 0, group_end = X_GROUPS;
        if (is_clustered) { // block b finishes groups X_GROUPS b / cluster .. X_GROUPS (b + 1) / cluster - 1
            group_begin = X_GROUPS * rank / args.cluster, group_end = X_GROUPS * (rank + 1) / args.cluster;
            // All blocks are done with their ring buffers and barriers, which the sums overwrite: a cluster has one
            // tile. cluster_sync() does not wait for threads that have exited, as those of the TMA warpgroup.
            cluster_sync();
            // The block that finishes group i, and its groups.
            int finisher = 0, finisher_begin = 0, finisher_end = X_GROUPS / args.cluster;
#pragma unroll
            for (int i = 0; i < X_GROUPS; i++) {
                if (i == finisher_end)
                    finisher++, finisher_begin = i, finisher_end = X_GROUPS * (finisher + 1) / args.cluster;
                if (m0 + 8 * i < args.m) // float4 [rank of the sender][group of the finisher][thread]
                    store_cluster(smem + (((rank * max_groups + i - finisher_begin) * threads + (int)threadIdx.x) << 4),
                                  finisher, make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]));
            }
            cluster_sync(); // all partial sums have arrived
        }

        const bool has_all_chunks = is_clustered || (chunk_begin == 0 && chunk_end == chunks);
        bool finishes = has_all_chunks;
        if (!has_all_chunks) {
            // This thread's partial sums in block `other_block`. Each block has memory for two partial sums: 0 is of
            // its first tile and 1 of its last. It does all chunks of the tiles between them.
            const auto partial_sum_of = [&](int other_block) {
                const int index = (int)((int64_t)list_length * other_block / blocks) / chunks == tile ? 0 : 1;
                return (float4*)args.partial_sums
                     + (((int64_t)blockIdx.y * blocks + other_block) * 2 + index) * X_GROUPS * threads + threadIdx.x;
            };
            // The block that does a chunk of the list. Block b begins at chunk floor(list_length * b / blocks).
            const auto block_of = [&](int64_t index) { return (int)(((index + 1) * blocks - 1) / list_length); };
            uint32_t* const arrivals = (uint32_t*)args.arrivals + (int64_t)blockIdx.y * tiles + tile;
            float4* const partial_sum = partial_sum_of(block);
#pragma unroll
            for (int i = 0; i < X_GROUPS; i++) {
                if (m0 + 8 * i < args.m)
                    __stcg(partial_sum + i * threads,
                           make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]));
            }
            const int first_block = block_of((int64_t)tile * chunks),
                      last_block = block_of(((int64_t)tile + 1) * chunks - 1);
            // Named barrier 1 holds the unpacking warps only: the TMA warpgroup has left the kernel or still copies.
            __threadfence();                                           // this thread's sums are visible to all blocks
            asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); // every thread's sums are
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
                            m0 + 8 * i < args.m ? __ldcg(other_sum + i * threads) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                        acc[4 * i] += v.x, acc[4 * i + 1] += v.y, acc[4 * i + 2] += v.z, acc[4 * i + 3] += v.w;
                    }
                }
                if (threadIdx.x == 0) *arrivals = 0;
            }
            asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); // all have read is_last
        }
        if (!finishes) continue;
#pragma unroll 1
        for (int i = group_begin; i < group_end && m0 + 8 * i < args.m; i += 4) { // four groups: 32 rows of x
            if (is_clustered) {
                for (int j = 0; j < 4 && i + j < group_end; j++) {
                    // the sums that the blocks of the cluster have sent, max_groups of each
                    const float4* received = (const float4*)shared + (i + j - group_begin) * threads + threadIdx.x;
                    float4 sum = *received;
                    for (int sender = 1; sender < args.cluster; sender++) {
                        const float4 v = received[sender * max_groups * threads];
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
            const int row = m0 + 8 * i, row_end = min(args.m, m0 + 8 * group_end);
            // Each call finishes four rows of the lane: local_row + j * row_step of the 32, for j = 0 .. 3.
#pragma unroll 1
            for (int local_row = lane / lanes_per_row;
                 local_row < 32 && row + local_row < row_end && n0 + lane_column < n; local_row += 4 * row_step)
                stored_epilogue<4>(
                    args.epilogue, activation, columns, n - n0 - lane_column, row_end, row + local_row, row_step,
                    [&](int j) {
                        const float* sums = transposed[warp][local_row + j * row_step] + lane_column;
                        // with SwiGLU 8 rows of the gate, then 8 rows of up
                        const float2 gate = *(const float2*)sums, up = *(const float2*)(sums + (args.swiglu ? 8 : 0));
                        return args.swiglu ? make_float2(epilogue_swiglu(gate.x, up.x), epilogue_swiglu(gate.y, up.y))
                                           : gate;
                    });
            __syncwarp(); // `transposed` is read and may be overwritten
        }
    }
}

// The tiles of SUMI_GEMM_STORED_SM90_TILES. A thread has X_ROWS / 2 sums. The 128 sums of 256 rows do not fit the 160
// registers that a thread has with three warpgroups, so that tile has two; its slots of x are 32 KiB, so it has three.
#define DEFINE_KERNEL(name, number, X_ROWS, WARPGROUPS, X_SLOTS)                                                       \
    extern "C" __global__ void __launch_bounds__(SUMI_GEMM_STORED_SM90_THREADS(WARPGROUPS), 1)                         \
        sumi_gemm_stored_sm90_##name##_##X_ROWS(const __grid_constant__ sumi_tensor_map x_map,                         \
                                                const __grid_constant__ sumi_gemm_stored_args args)                    \
    {                                                                                                                  \
        gemm_stored_sm90<number, stored_sm90_tile<number, X_ROWS, WARPGROUPS, X_SLOTS>>(x_map, args);                  \
    }
// number, bytes: as in SUMI_STORED_TYPES.
#define DEFINE_TYPE(name, number, bytes)                                                                               \
    DEFINE_KERNEL(name, number, 64, 3, 5) DEFINE_KERNEL(name, number, 128, 3, 5) DEFINE_KERNEL(name, number, 256, 2, 3)
SUMI_STORED_SM90_TYPES(DEFINE_TYPE)
