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
//   fragments of two products, and reads x in the same order, 16 bytes at a time:
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

// The constants of a kernel. X_ROWS, W_ROWS: of a block's tile. X_SLOTS, W_SLOTS: of the ring buffers. NT: accumulators
// of a warp. CHUNK_BYTES: of a row's chunk. PITCH: bytes from row to row in a slot of w. PIECES: 16-byte pieces of a
// row's chunk.
template <int TYPE, int ROWS, int X_SLOTS_, int W_SLOTS_> struct stored_tile {
    enum {
        X_ROWS = ROWS,
        X_SLOTS = X_SLOTS_,
        W_SLOTS = W_SLOTS_,
        W_ROWS = SUMI_GEMM_STORED_COLS,
        THREADS = SUMI_GEMM_STORED_THREADS,
        NT = X_ROWS / 8,
        CHUNK_BYTES = stored_layout<TYPE>::BYTES,
        PITCH = SUMI_GEMM_STORED_PITCH(CHUNK_BYTES),
        PIECES = SUMI_GEMM_STORED_NEED(CHUNK_BYTES) / 16,
        X_SLOT_BYTES = X_ROWS * 128,
        W_SLOT_BYTES = W_ROWS * PITCH,
        SUMS_PITCH = W_ROWS + 4 // floats from row to row of the transposed sums
    };
    static_assert(X_SLOTS <= 5, "a chunk of w is there when its first k-block of x is");
    static_assert(PITCH % 16 == 0 && (PITCH % 128 == 32 || PITCH % 128 == 96), "banks");
};

// The first byte of a row of w, and its scale.
struct stored_row {
    const uint8_t* address;
    float scale;
    uint32_t reserved;
};
// The row of w for column v of the product. With is_gated the file has all gate rows of w, then all up rows, and the
// product has 8 of each in turn. swiglu needs is_gated.
SUMI_DEVICE stored_row stored_row_of(const sumi_gemm_stored_args& a, int v)
{
    int row = min(v, a.n - 1);
    if (a.is_gated) row = (row >> 4) * 8 + (row & 7) + (row & 8 ? a.n / 2 : 0);
    int tensor_begin = 0, tensor = 0;
    while (tensor < SUMI_GEMM_STORED_TENSORS - 1 && row >= a.end[tensor]) tensor_begin = a.end[tensor++];
    return {(const uint8_t*)a.from[tensor] + (int64_t)(row - tensor_begin) * a.row_bytes, a.scale[tensor], 0};
}

// Copies w and x into ring slots, by all threads of the block.
template <class T> struct stored_loader {
    const sumi_gemm_stored_args& a;
    const stored_row* rows;
    uint32_t smem;
    int m0;
    // Chunk `chunk` of all 64 rows to slot `slot`. A copy begins at the 16-byte boundary at or before the row's chunk.
    // Beyond the row's end zeros are written.
    SUMI_DEVICE void fetch_w(int chunk, int slot) const
    {
        const uint32_t to = smem + T::X_SLOTS * T::X_SLOT_BYTES + slot * T::W_SLOT_BYTES;
        const int left = a.row_bytes - chunk * T::CHUNK_BYTES, bytes = left < T::CHUNK_BYTES ? left : T::CHUNK_BYTES;
        for (int i = (int)threadIdx.x; i < T::W_ROWS * T::PIECES; i += T::THREADS) {
            const int row = i / T::PIECES, piece = i % T::PIECES;
            const uint8_t* chunk_address = rows[row].address + chunk * T::CHUNK_BYTES;
            const int bytes_before = (int)((uint64_t)chunk_address & 15u);
            copy_async_16(to + row * T::PITCH + piece * 16, chunk_address - bytes_before + piece * 16,
                          piece * 16 < bytes_before + bytes ? 16 : 0);
        }
    }
    // K-block `block` (64 elements) of all rows of x to slot `slot`. The 16-byte unit c is at place c of even rows and
    // at place c ^ 4 of odd rows, so that the units that eight lanes read at once are in different banks.
    SUMI_DEVICE void fetch_x(int block, int slot) const
    {
        const uint32_t to = smem + slot * T::X_SLOT_BYTES;
#pragma unroll
        for (int i = 0; i < T::X_ROWS * 8 / T::THREADS; i++) {
            const int unit = (int)threadIdx.x + i * T::THREADS, row = unit / 8, c = unit % 8;
            const u16* from = (const u16*)a.x + (int64_t)min(m0 + row, a.m - 1) * a.ldx + block * 64 + c * 8;
            copy_async_16(to + row * 128 + ((c ^ ((row & 1) << 2)) << 4), from, 16);
        }
    }
};

template <int TYPE, class T> SUMI_DEVICE void gemm_stored(const sumi_gemm_stored_args& a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ stored_row rows[T::W_ROWS];
    __shared__ uint32_t is_last;
    const int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31, r = lane >> 2, q = lane & 3;
    const int n0 = (int)blockIdx.x * T::W_ROWS, m0 = (int)blockIdx.y * T::X_ROWS, chunks = (a.k + 255) / 256;
    const int c0 = (int)((int64_t)chunks * blockIdx.z / a.split),
              c1 = (int)((int64_t)chunks * (blockIdx.z + 1) / a.split);
    const int b0 = c0 * 4, b1 = min(c1 * 4, a.k / 64); // k-blocks of 64 elements
    for (int i = (int)threadIdx.x; i < T::W_ROWS; i += T::THREADS) rows[i] = stored_row_of(a, n0 + i);
    __syncthreads(); // `rows` is complete
    const stored_loader<T> load = {a, rows, (uint32_t)__cvta_generic_to_shared(shared), m0};
    const float scale[2] = {rows[warp * 16 + r].scale, rows[warp * 16 + r + 8].scale};

    // Fetches k-block b of x and closes the group of copies. A chunk of w that was fetched just before is in the same
    // group.
    const auto fetch = [&](int b) {
        if (b < b1) load.fetch_x(b, (b - b0) % T::X_SLOTS);
        copy_async_commit();
    };
#pragma unroll
    for (int s = 0; s < T::W_SLOTS - 1; s++) {
        if (c0 + s < c1) load.fetch_w(c0 + s, s);
    }
#pragma unroll
    for (int s = 0; s < T::X_SLOTS - 1; s++) fetch(b0 + s);
    float acc[T::NT][4];
#pragma unroll
    for (int j = 0; j < T::NT; j++) acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0.0f;

    int x_slot = 0, w_slot = 0;
    for (int chunk = c0; chunk < c1; chunk++) {
        const uint8_t* w =
            shared + T::X_SLOTS * T::X_SLOT_BYTES + w_slot * T::W_SLOT_BYTES + (warp * 16 + r) * T::PITCH;
        const uint8_t* const row_chunks[2] = {
            w + ((uint32_t)(uint64_t)(rows[warp * 16 + r].address + chunk * T::CHUNK_BYTES) & 15u),
            w + 8 * T::PITCH + ((uint32_t)(uint64_t)(rows[warp * 16 + r + 8].address + chunk * T::CHUNK_BYTES) & 15u)};
        copy_async_wait<T::X_SLOTS - 2>();
        __syncthreads(); // this chunk of w and its first k-block of x are complete; the last ones are read
        const stored<TYPE> upper(row_chunks[0], 8 * q), lower(row_chunks[1], 8 * q);
#pragma unroll
        for (int k_block = 0; k_block < 4; k_block++) {
            const int b = chunk * 4 + k_block;
            if (b >= b1) break;
            if (k_block > 0) {
                copy_async_wait<T::X_SLOTS - 2>();
                __syncthreads(); // k-block b of x is complete; all warps are done with the one before
            }
            // The copies go to the ring slots that all warps have read before the barrier.
            if (k_block == 0 && chunk + T::W_SLOTS - 1 < c1)
                load.fetch_w(chunk + T::W_SLOTS - 1, w_slot == 0 ? T::W_SLOTS - 1 : w_slot - 1);
            fetch(b + T::X_SLOTS - 1);
            const uint8_t* x = shared + x_slot * T::X_SLOT_BYTES;
            x_slot = x_slot + 1 == T::X_SLOTS ? 0 : x_slot + 1;
#pragma unroll
            for (int g = 0; g < 2; g++) {
                const uint4 u = stored_bf16(upper, k_block * 2 + g, scale[0]),
                            v = stored_bf16(lower, k_block * 2 + g, scale[1]);
                const uint32_t operand_0[4] = {u.x, v.x, u.y, v.y}, operand_1[4] = {u.z, v.z, u.w, v.w};
#pragma unroll
                for (int j = 0; j < T::NT; j++) {
                    const uint4 y = *(const uint4*)(x + (j * 8 + r) * 128 + (((g * 4 + q) ^ ((r & 1) << 2)) << 4));
                    mma<SUMI_OPERANDS_BF16>(acc[j], operand_0, y.x, y.y);
                    mma<SUMI_OPERANDS_BF16>(acc[j], operand_1, y.z, y.w);
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
    for (int j = 0; j < T::NT; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[(j * 8 + 2 * q + (i & 1)) * T::SUMS_PITCH + warp * 16 + r + (i >> 1) * 8] = acc[j][i];
    __syncthreads(); // all sums are written
    if (a.split > 1) {
        const int tile = (int)(blockIdx.x + gridDim.x * blockIdx.y);
        constexpr int COUNT = T::X_ROWS * T::W_ROWS / 4; // float4 of a partial sum
        // __stcg and __ldcg bypass L1, which is not coherent between multiprocessors.
        float4* const partial_sums = (float4*)a.partial_sums + (int64_t)tile * a.split * COUNT;
        for (int i = (int)threadIdx.x; i < COUNT; i += T::THREADS)
            __stcg(partial_sums + (int64_t)blockIdx.z * COUNT + i,
                   *(const float4*)(sums + i / (T::W_ROWS / 4) * T::SUMS_PITCH + i % (T::W_ROWS / 4) * 4));
        __threadfence(); // this thread's part of the partial sum is visible to all blocks
        __syncthreads(); // every thread's part is
        if (threadIdx.x == 0) is_last = atomicAdd((uint32_t*)a.arrivals + tile, 1u) == (uint32_t)a.split - 1;
        __syncthreads(); // is_last is written
        if (!is_last) return;
        __threadfence(); // no partial sum is read before the counter was
        for (int i = (int)threadIdx.x; i < COUNT; i += T::THREADS) {
            float4 sum = __ldcg(partial_sums + i);
            for (int s = 1; s < a.split; s++) {
                const float4 v = __ldcg(partial_sums + (int64_t)s * COUNT + i);
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
            *(float4*)(sums + i / (T::W_ROWS / 4) * T::SUMS_PITCH + i % (T::W_ROWS / 4) * 4) = sum;
        }
        if (threadIdx.x == 0) ((uint32_t*)a.arrivals)[tile] = 0;
        __syncthreads(); // the added sums are written
    }

    // Each thread finishes two neighbouring columns of several rows: c and c + 1 of the block's columns, which begin at
    // column n1 of the result. threads_per_row: threads with columns of one row; row_step: rows that the block finishes
    // at once. Each call below finishes AT_ONCE rows of the thread. epilogue_tile() instead made these kernels twice as
    // large, and few rows leave little to write.
    const epilogue_activation act = epilogue_activation_of(a.swiglu ? 0 : a.epilogue.activation);
    const int threads_per_row = T::W_ROWS / (a.swiglu ? 4 : 2), row_step = T::THREADS / threads_per_row,
              out_n = a.swiglu ? a.n / 2 : a.n, c = (int)threadIdx.x % threads_per_row * 2, n1 = a.swiglu ? n0 / 2 : n0;
    if (n1 + c >= out_n) return;
    const stored_columns columns =
        stored_columns_of(a.epilogue, epilogue_gate_row(a.epilogue), out_n, n1 + c, a.swiglu != 0);
    constexpr int AT_ONCE = 4;
    const int row_end = min(T::X_ROWS, a.m - m0);
#pragma unroll 1
    for (int row = (int)threadIdx.x / threads_per_row; row < row_end; row += AT_ONCE * row_step)
        stored_epilogue<AT_ONCE>(
            a.epilogue, act, columns, out_n - n1 - c, m0 + row_end, m0 + row, row_step, [&](int i) {
                // with SwiGLU 8 columns of the gate, then 8 columns of up
                const float* sums_of_row =
                    sums + min(row + i * row_step, T::X_ROWS - 1) * T::SUMS_PITCH + (a.swiglu ? c / 8 * 16 + c % 8 : c);
                const float2 gate = *(const float2*)sums_of_row,
                             up = *(const float2*)(sums_of_row + (a.swiglu ? 8 : 0));
                return a.swiglu ? make_float2(epilogue_swiglu(gate.x, up.x), epilogue_swiglu(gate.y, up.y)) : gate;
            });
}

#define DEFINE_KERNEL(name, number, ROWS, X_SLOTS, W_SLOTS)                                                            \
    extern "C" __global__ void __launch_bounds__(SUMI_GEMM_STORED_THREADS)                                             \
        sumi_gemm_stored_##name##_##ROWS(const __grid_constant__ sumi_gemm_stored_args a)                              \
    {                                                                                                                  \
        gemm_stored<number, stored_tile<number, ROWS, X_SLOTS, W_SLOTS>>(a);                                           \
    }
// The tiles of SUMI_GEMM_STORED_TILES. number, bytes: as in SUMI_STORED_TYPES.
#define DEFINE_TYPE(name, number, bytes) DEFINE_KERNEL(name, number, 16, 4, 3) DEFINE_KERNEL(name, number, 64, 4, 3)
SUMI_STORED_TYPES(DEFINE_TYPE)
