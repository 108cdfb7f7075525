// y[m][n] = epilogue(x[m][k] w[n][k]^T) for few rows of x, with w in its file's own type:
// sumi_gemm_stored_<type>_<rows>. epilogue: sumi_gemm_epilogue in gemm.h. The types and struct are in stored.h.
//   x   [m][ldx] bf16, row-major, rows 16-byte aligned; k a multiple of 64
//   w   [n][row_bytes], up to four stacked tensors of one type      y  [m][ldy] bf16 or float; swiglu: [m][n / 2]
//   grid (ceil(n / 64), ceil(m / rows), split)      block 128      shared dynamic, SUMI_GEMM_STORED_SHARED
// For text encoders, modulation and the text rows of a denoiser. Bound by reading w, which is most of the cost of such
// a product; 4-bit weights have a quarter of the bytes of bf16. On an H200, whose memory is fast relative to its
// arithmetic, unpacking costs more than reading (tests/bench.md). For products of many rows, unpack.cu unpacks w first.
//
//   w is the 16-row operand A of mma.m16n8k16 and x the 8-row operand B (drawn in portable_sm80.cuh). w is unpacked
//   from shared memory into the registers of the lane that needs it. The order of k does not matter to a product, as
//   long as both operands have the same. So lane q of a quad takes 8 consecutive elements of each 32, which are the
//   fragments of two products, and reads x in the same order, 16 bytes at a time (in the code r is lane_row and q
//   lane_in_quad):
//
//     k of a group of 32        0 .. 7 | 8 .. 15 | 16 .. 23 | 24 .. 31
//     held by lane of the quad  q = 0  | q = 1   | q = 2    | q = 3
//
//     the lane's 8 elements     0, 1      2, 3      4, 5      6, 7
//     first product             a0, b0    a2, b1
//     second product                                a0, b0    a2, b1        (a1 and a3: the same, of row r + 8 of w)
//
//   A block has 64 rows of w and `rows` rows of x; warp i has rows 16 i .. 16 i + 15 of w and all rows of x. cp.async
//   fills two ring buffers: x in k-blocks of 64 elements, w in chunks of 256 elements of k. With split > 1 the k range
//   of each block of a tile is a number of whole chunks. At the end the sums are transposed through shared memory, and
//   the block that arrives last adds the partial sums of its tile in the order of k.
#include "portable_sm80.cuh"
#include "stored.cuh"
#include "stored_epilogue.cuh"

// The constants of a kernel. A tile is X_ROWS rows of x and W_ROWS rows of w.
template <int TYPE, int X_ROWS_, int X_SLOTS_, int W_SLOTS_> struct stored_tile {
    enum {
        X_ROWS = X_ROWS_,
        X_SLOTS = X_SLOTS_, // of the ring buffer of x
        W_SLOTS = W_SLOTS_, // of the ring buffer of w
        W_ROWS = SUMI_GEMM_STORED_COLS,
        THREADS = SUMI_GEMM_STORED_THREADS,
        X_GROUPS = X_ROWS / 8,                                      // of 8 rows of x: accumulators of a warp
        CHUNK_BYTES = stored_layout<TYPE>::BYTES,                   // of one row
        W_PITCH = SUMI_GEMM_STORED_PITCH(CHUNK_BYTES),              // bytes from row to row in a slot of w
        CHUNK_UNITS = SUMI_GEMM_STORED_ROW_BYTES(CHUNK_BYTES) / 16, // 16-byte units that are copied of a row's chunk
        X_SLOT_BYTES = X_ROWS * 128,
        W_SLOT_BYTES = W_ROWS * W_PITCH,
        SUMS_PITCH = W_ROWS + 4 // floats from row to row of the transposed sums
    };
    static_assert(X_SLOTS <= 5, "a chunk of w is there when its first k-block of x is");
    static_assert(W_PITCH % 16 == 0 && (W_PITCH % 128 == 32 || W_PITCH % 128 == 96), "banks");
};

// The first byte of a row of w, and its scale.
struct stored_row {
    const uint8_t* address;
    float scale;
    uint32_t reserved;
};
// The row of w for a column of the product. With is_gated the file has all gate rows of w, then all up rows, and the
// product has 8 of each in turn. swiglu needs is_gated.
SUMI_DEVICE stored_row stored_row_of(const sumi_gemm_stored_args& args, int column)
{
    int row = min(column, args.n - 1);
    if (args.is_gated) row = (row >> 4) * 8 + (row & 7) + (row & 8 ? args.n / 2 : 0);
    int tensor_begin = 0, tensor = 0;
    while (tensor < SUMI_GEMM_STORED_TENSORS - 1 && row >= args.end[tensor]) tensor_begin = args.end[tensor++];
    return {(const uint8_t*)args.from[tensor] + (int64_t)(row - tensor_begin) * args.row_bytes, args.scale[tensor], 0};
}

// Copies w and x into ring slots, by all threads of the block.
template <class T> struct stored_loader {
    const sumi_gemm_stored_args& args;
    const stored_row* rows;
    uint32_t smem;
    int m0;
    // Chunk `chunk` of all 64 rows to slot `slot`. A copy begins at the 16-byte boundary at or before the row's chunk.
    // Beyond the row's end zeros are written.
    SUMI_DEVICE void fetch_w(int chunk, int slot) const
    {
        const uint32_t to = smem + T::X_SLOTS * T::X_SLOT_BYTES + slot * T::W_SLOT_BYTES;
        const int bytes_left = args.row_bytes - chunk * T::CHUNK_BYTES,
                  bytes = bytes_left < T::CHUNK_BYTES ? bytes_left : T::CHUNK_BYTES;
        for (int i = (int)threadIdx.x; i < T::W_ROWS * T::CHUNK_UNITS; i += T::THREADS) {
            const int row = i / T::CHUNK_UNITS, unit = i % T::CHUNK_UNITS;
            const uint8_t* chunk_address = rows[row].address + chunk * T::CHUNK_BYTES;
            const int bytes_before = (int)((uint64_t)chunk_address & 15u);
            copy_async_16(to + row * T::W_PITCH + unit * 16, chunk_address - bytes_before + unit * 16,
                          unit * 16 < bytes_before + bytes ? 16 : 0);
        }
    }
    // K-block `k_block` (64 elements) of all rows of x to slot `slot`. The 16-byte unit u is stored as unit u of even
    // rows and as unit u ^ 4 of odd rows, so that the units that eight lanes read at once are in different banks.
    SUMI_DEVICE void fetch_x(int k_block, int slot) const
    {
        const uint32_t to = smem + slot * T::X_SLOT_BYTES;
#pragma unroll
        for (int i = 0; i < T::X_ROWS * 8 / T::THREADS; i++) {
            const int copy = (int)threadIdx.x + i * T::THREADS, row = copy / 8, unit = copy % 8;
            const u16* from =
                (const u16*)args.x + (int64_t)min(m0 + row, args.m - 1) * args.ldx + k_block * 64 + unit * 8;
            copy_async_16(to + row * 128 + ((unit ^ ((row & 1) << 2)) << 4), from, 16);
        }
    }
};

template <int TYPE, class T> SUMI_DEVICE void gemm_stored(const sumi_gemm_stored_args& args)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ stored_row rows[T::W_ROWS];
    __shared__ uint32_t is_last;
    const int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31, lane_row = lane >> 2, lane_in_quad = lane & 3;
    const int n0 = (int)blockIdx.x * T::W_ROWS, m0 = (int)blockIdx.y * T::X_ROWS, chunks = (args.k + 255) / 256;
    const int chunk_begin = (int)((int64_t)chunks * blockIdx.z / args.split),
              chunk_end = (int)((int64_t)chunks * (blockIdx.z + 1) / args.split);
    const int k_block_begin = chunk_begin * 4, k_block_end = min(chunk_end * 4, args.k / 64); // of 64 elements
    for (int i = (int)threadIdx.x; i < T::W_ROWS; i += T::THREADS) rows[i] = stored_row_of(args, n0 + i);
    __syncthreads(); // `rows` is complete
    const stored_loader<T> load = {args, rows, (uint32_t)__cvta_generic_to_shared(shared), m0};
    const float scale[2] = {rows[warp * 16 + lane_row].scale, rows[warp * 16 + lane_row + 8].scale};

    // Fetches a k-block of x and closes the group of copies. A chunk of w that was fetched just before is in the same
    // group.
    const auto fetch_x = [&](int k_block) {
        if (k_block < k_block_end) load.fetch_x(k_block, (k_block - k_block_begin) % T::X_SLOTS);
        copy_async_commit();
    };
#pragma unroll
    for (int slot = 0; slot < T::W_SLOTS - 1; slot++) {
        if (chunk_begin + slot < chunk_end) load.fetch_w(chunk_begin + slot, slot);
    }
#pragma unroll
    for (int slot = 0; slot < T::X_SLOTS - 1; slot++) fetch_x(k_block_begin + slot);
    float acc[T::X_GROUPS][4];
#pragma unroll
    for (int j = 0; j < T::X_GROUPS; j++) acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0.0f;

    int x_slot = 0, w_slot = 0;
    for (int chunk = chunk_begin; chunk < chunk_end; chunk++) {
        const uint8_t* w =
            shared + T::X_SLOTS * T::X_SLOT_BYTES + w_slot * T::W_SLOT_BYTES + (warp * 16 + lane_row) * T::W_PITCH;
        const uint8_t* const row_chunks[2] = {
            w + ((uint32_t)(uint64_t)(rows[warp * 16 + lane_row].address + chunk * T::CHUNK_BYTES) & 15u),
            w + 8 * T::W_PITCH
                + ((uint32_t)(uint64_t)(rows[warp * 16 + lane_row + 8].address + chunk * T::CHUNK_BYTES) & 15u)};
        copy_async_wait<T::X_SLOTS - 2>();
        __syncthreads(); // this chunk of w and its first k-block of x are complete; the last ones are read
        const stored<TYPE> upper(row_chunks[0], 8 * lane_in_quad), lower(row_chunks[1], 8 * lane_in_quad);
#pragma unroll
        for (int i = 0; i < 4; i++) { // the k-blocks of the chunk
            const int k_block = chunk * 4 + i;
            if (k_block >= k_block_end) break;
            if (i > 0) {
                copy_async_wait<T::X_SLOTS - 2>();
                __syncthreads(); // this k-block of x is complete; all warps are done with the one before
            }
            // The copies go to the ring slots that all warps have read before the barrier.
            if (i == 0 && chunk + T::W_SLOTS - 1 < chunk_end)
                load.fetch_w(chunk + T::W_SLOTS - 1, w_slot == 0 ? T::W_SLOTS - 1 : w_slot - 1);
            fetch_x(k_block + T::X_SLOTS - 1);
            const uint8_t* x = shared + x_slot * T::X_SLOT_BYTES;
            x_slot = x_slot + 1 == T::X_SLOTS ? 0 : x_slot + 1;
#pragma unroll
            for (int half = 0; half < 2; half++) { // of the k-block: a group of 32 elements
                const uint4 w_upper = stored_bf16(upper, i * 2 + half, scale[0]),
                            w_lower = stored_bf16(lower, i * 2 + half, scale[1]);
                const uint32_t a_first[4] = {w_upper.x, w_lower.x, w_upper.y, w_lower.y},
                               a_second[4] = {w_upper.z, w_lower.z, w_upper.w, w_lower.w};
#pragma unroll
                for (int j = 0; j < T::X_GROUPS; j++) {
                    // The unit half * 4 + lane_in_quad, where fetch_x() has stored it.
                    const uint4 b = *(const uint4*)(x + (j * 8 + lane_row) * 128
                                                    + (((half * 4 + lane_in_quad) ^ ((lane_row & 1) << 2)) << 4));
                    mma<SUMI_OPERANDS_BF16>(acc[j], a_first, b.x, b.y);
                    mma<SUMI_OPERANDS_BF16>(acc[j], a_second, b.z, b.w);
                }
            }
        }
        w_slot = w_slot + 1 == T::W_SLOTS ? 0 : w_slot + 1;
    }
    copy_async_wait<0>();
    __syncthreads(); // no copy is in flight and no warp reads the ring buffers: the sums overwrite them

    // The sums, transposed to [row of x][row of w].
    float* sums = (float*)shared;
#pragma unroll
    for (int j = 0; j < T::X_GROUPS; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[(j * 8 + 2 * lane_in_quad + (i & 1)) * T::SUMS_PITCH + warp * 16 + lane_row + (i >> 1) * 8] =
                acc[j][i];
    __syncthreads(); // all sums are written
    if (args.split > 1) {
        const int tile = (int)(blockIdx.x + gridDim.x * blockIdx.y);
        // Counts of float4: of a partial sum, and of one of its rows. In memory a partial sum has no gaps between rows.
        constexpr int VECTORS = T::X_ROWS * T::W_ROWS / 4, ROW_VECTORS = T::W_ROWS / 4;
        // __stcg and __ldcg bypass L1, which is not coherent between multiprocessors.
        float4* const partial_sums = (float4*)args.partial_sums + (int64_t)tile * args.split * VECTORS;
        for (int i = (int)threadIdx.x; i < VECTORS; i += T::THREADS)
            __stcg(partial_sums + (int64_t)blockIdx.z * VECTORS + i,
                   *(const float4*)(sums + i / ROW_VECTORS * T::SUMS_PITCH + i % ROW_VECTORS * 4));
        __threadfence(); // this thread's values of the partial sum are visible to all blocks
        __syncthreads(); // every thread's values are
        if (threadIdx.x == 0) is_last = atomicAdd((uint32_t*)args.arrivals + tile, 1u) == (uint32_t)args.split - 1;
        __syncthreads(); // is_last is written
        if (!is_last) return;
        __threadfence(); // no partial sum is read before the counter was
        for (int i = (int)threadIdx.x; i < VECTORS; i += T::THREADS) {
            float4 sum = __ldcg(partial_sums + i);
            for (int k_range = 1; k_range < args.split; k_range++) {
                const float4 v = __ldcg(partial_sums + (int64_t)k_range * VECTORS + i);
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
            *(float4*)(sums + i / ROW_VECTORS * T::SUMS_PITCH + i % ROW_VECTORS * 4) = sum;
        }
        if (threadIdx.x == 0) ((uint32_t*)args.arrivals)[tile] = 0;
        __syncthreads(); // the added sums are written
    }

    // Each thread finishes two neighbouring columns of several rows: `column` and `column` + 1 of the block's columns,
    // which begin at column out_n0 of the result. threads_per_row: threads with columns of one row; row_step: rows that
    // the block finishes at once. Each call below finishes ROWS_AT_ONCE rows of the thread. epilogue_tile() instead
    // made these kernels twice as large, and few rows leave little to write.
    const epilogue_activation activation = epilogue_activation_of(args.swiglu ? 0 : args.epilogue.activation);
    const int threads_per_row = T::W_ROWS / (args.swiglu ? 4 : 2), row_step = T::THREADS / threads_per_row,
              out_n = args.swiglu ? args.n / 2 : args.n, column = (int)threadIdx.x % threads_per_row * 2,
              out_n0 = args.swiglu ? n0 / 2 : n0;
    if (out_n0 + column >= out_n) return;
    const stored_columns columns =
        stored_columns_of(args.epilogue, epilogue_gate_row(args.epilogue), out_n, out_n0 + column, args.swiglu != 0);
    constexpr int ROWS_AT_ONCE = 4;
    const int row_end = min(T::X_ROWS, args.m - m0);
#pragma unroll 1
    for (int row = (int)threadIdx.x / threads_per_row; row < row_end; row += ROWS_AT_ONCE * row_step)
        stored_epilogue<ROWS_AT_ONCE>(
            args.epilogue, activation, columns, out_n - out_n0 - column, m0 + row_end, m0 + row, row_step, [&](int i) {
                // with SwiGLU 8 columns of the gate, then 8 columns of up
                const float* sums_of_row = sums + min(row + i * row_step, T::X_ROWS - 1) * T::SUMS_PITCH
                                         + (args.swiglu ? column / 8 * 16 + column % 8 : column);
                const float2 gate = *(const float2*)sums_of_row,
                             up = *(const float2*)(sums_of_row + (args.swiglu ? 8 : 0));
                return args.swiglu ? make_float2(epilogue_swiglu(gate.x, up.x), epilogue_swiglu(gate.y, up.y)) : gate;
            });
}

#define DEFINE_KERNEL(name, number, X_ROWS, X_SLOTS, W_SLOTS)                                                          \
    extern "C" __global__ void __launch_bounds__(SUMI_GEMM_STORED_THREADS)                                             \
        sumi_gemm_stored_##name##_##X_ROWS(const __grid_constant__ sumi_gemm_stored_args args)                         \
    {                                                                                                                  \
        gemm_stored<number, stored_tile<number, X_ROWS, X_SLOTS, W_SLOTS>>(args);                                      \
    }
// The tiles of SUMI_GEMM_STORED_TILES. number, bytes: as in SUMI_STORED_TYPES.
#define DEFINE_TYPE(name, number, bytes) DEFINE_KERNEL(name, number, 16, 4, 3) DEFINE_KERNEL(name, number, 64, 4, 3)
SUMI_STORED_TYPES(DEFINE_TYPE)
