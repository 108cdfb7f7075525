// y[m][n] = finish(x[m][k] w[n][k]^T) for few rows of x, with w in its file's own type: sumi_gemm_stored_<type>_<rows>.
// finish: sumi_gemm_finish in gemm.h. The types and struct are in stored.h.
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
#include "stored_finish.cuh"

// The constants of a kernel. XS, WS: ring slots of x and of w. NT: accumulators of a warp. BYTES: of a chunk. PIECES:
// 16-byte pieces of a row's chunk. X_STAGE, W_STAGE: bytes of a ring slot.
template <int TYPE, int ROWS_, int XS_, int WS_> struct stored_tile {
    enum {
        ROWS = ROWS_,
        XS = XS_,
        WS = WS_,
        COLS = SUMI_GEMM_STORED_COLS,
        THREADS = SUMI_GEMM_STORED_THREADS,
        NT = ROWS / 8,
        BYTES = stored_layout<TYPE>::BYTES,
        PITCH = SUMI_GEMM_STORED_PITCH(BYTES),
        PIECES = SUMI_GEMM_STORED_NEED(BYTES) / 16,
        X_STAGE = ROWS * 128,
        W_STAGE = COLS * PITCH,
        SUMS = COLS + 4 // floats from row to row of the transposed sums
    };
    static_assert(XS <= 5, "a stage of w is there when its first stage of x is");
    static_assert(PITCH % 16 == 0 && (PITCH % 128 == 32 || PITCH % 128 == 96), "banks");
};

// The first byte of a row of w, and its scale.
struct stored_row {
    const uint8_t* from;
    float scale;
    uint32_t reserved;
};
// Row v of the product's n columns; with is_gated the row of w that is interleaved to place v.
SUMI_DEVICE stored_row stored_row_of(const sumi_gemm_stored_args& a, int v)
{
    int row = min(v, a.n - 1);
    if (a.is_gated) row = (row >> 4) * 8 + (row & 7) + (row & 8 ? a.n / 2 : 0);
    int begin = 0, part = 0;
    while (part < SUMI_GEMM_STORED_PARTS - 1 && row >= a.end[part]) begin = a.end[part++];
    return {(const uint8_t*)a.from[part] + (int64_t)(row - begin) * a.row_bytes, a.scale[part], 0};
}

// Copies w and x into ring slots, by all threads of the block.
template <class T> struct stored_loader {
    const sumi_gemm_stored_args& a;
    const stored_row* rows;
    uint32_t smem;
    int m0;
    // Chunk `chunk` of all 64 rows to slot `stage`. A copy begins at the 16-byte boundary at or before the row's chunk.
    // Beyond the row's end zeros are written.
    SUMI_DEVICE void fetch_w(int chunk, int stage) const
    {
        const uint32_t to = smem + T::XS * T::X_STAGE + stage * T::W_STAGE;
        const int left = a.row_bytes - chunk * T::BYTES, bytes = left < T::BYTES ? left : T::BYTES;
        for (int i = (int)threadIdx.x; i < T::COLS * T::PIECES; i += T::THREADS) {
            const int row = i / T::PIECES, piece = i % T::PIECES;
            const uint8_t* from = rows[row].from + chunk * T::BYTES;
            const int before = (int)((uint64_t)from & 15u);
            cp16(to + row * T::PITCH + piece * 16, from - before + piece * 16, piece * 16 < before + bytes ? 16 : 0);
        }
    }
    // K-block `block` (64 elements) of all rows of x to slot `stage`. The 16-byte unit c is at place c of even rows and
    // at place c ^ 4 of odd rows, so that the units that eight lanes read at once are in different banks.
    SUMI_DEVICE void fetch_x(int block, int stage) const
    {
        const uint32_t to = smem + stage * T::X_STAGE;
#pragma unroll
        for (int i = 0; i < T::ROWS * 8 / T::THREADS; i++) {
            const int at = (int)threadIdx.x + i * T::THREADS, row = at / 8, c = at % 8;
            const u16* from = (const u16*)a.x + (int64_t)min(m0 + row, a.m - 1) * a.ldx + block * 64 + c * 8;
            cp16(to + row * 128 + ((c ^ ((row & 1) << 2)) << 4), from, 16);
        }
    }
};

template <int TYPE, class T> SUMI_DEVICE void gemm_stored(const sumi_gemm_stored_args& a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ stored_row rows[T::COLS];
    __shared__ uint32_t is_last;
    const int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31, r = lane >> 2, q = lane & 3;
    const int n0 = (int)blockIdx.x * T::COLS, m0 = (int)blockIdx.y * T::ROWS, chunks = (a.k + 255) / 256;
    const int c0 = (int)((int64_t)chunks * blockIdx.z / a.split),
              c1 = (int)((int64_t)chunks * (blockIdx.z + 1) / a.split);
    const int b0 = c0 * 4, b1 = min(c1 * 4, a.k / 64); // k-blocks of 64 elements
    for (int i = (int)threadIdx.x; i < T::COLS; i += T::THREADS) rows[i] = stored_row_of(a, n0 + i);
    __syncthreads(); // `rows` is complete
    const stored_loader<T> load = {a, rows, (uint32_t)__cvta_generic_to_shared(shared), m0};
    const float scale[2] = {rows[warp * 16 + r].scale, rows[warp * 16 + r + 8].scale};

    // Fetches k-block b of x and closes the group of copies. A chunk of w that was fetched just before is in the same
    // group.
    const auto fetch = [&](int b) {
        if (b < b1) load.fetch_x(b, (b - b0) % T::XS);
        cp_commit();
    };
#pragma unroll
    for (int s = 0; s < T::WS - 1; s++) {
        if (c0 + s < c1) load.fetch_w(c0 + s, s);
    }
#pragma unroll
    for (int s = 0; s < T::XS - 1; s++) fetch(b0 + s);
    float acc[T::NT][4];
#pragma unroll
    for (int j = 0; j < T::NT; j++) acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0.0f;

    int x_stage = 0, w_stage = 0;
    for (int chunk = c0; chunk < c1; chunk++) {
        const uint8_t* w = shared + T::XS * T::X_STAGE + w_stage * T::W_STAGE + (warp * 16 + r) * T::PITCH;
        const uint8_t* const mine[2] = {
            w + ((uint32_t)(uint64_t)(rows[warp * 16 + r].from + chunk * T::BYTES) & 15u),
            w + 8 * T::PITCH + ((uint32_t)(uint64_t)(rows[warp * 16 + r + 8].from + chunk * T::BYTES) & 15u)};
        cp_wait<T::XS - 2>();
        __syncthreads(); // this chunk of w and its first k-block of x are complete; the last ones are read
        const stored<TYPE> upper(mine[0], 8 * q), lower(mine[1], 8 * q);
#pragma unroll
        for (int part = 0; part < 4; part++) {
            const int b = chunk * 4 + part;
            if (b >= b1) break;
            if (part > 0) {
                cp_wait<T::XS - 2>();
                __syncthreads(); // k-block b of x is complete; all warps are done with the one before
            }
            // The copies go to the ring slots that all warps have read before the barrier.
            if (part == 0 && chunk + T::WS - 1 < c1)
                load.fetch_w(chunk + T::WS - 1, w_stage == 0 ? T::WS - 1 : w_stage - 1);
            fetch(b + T::XS - 1);
            const uint8_t* x = shared + x_stage * T::X_STAGE;
            x_stage = x_stage + 1 == T::XS ? 0 : x_stage + 1;
#pragma unroll
            for (int g = 0; g < 2; g++) {
                const uint4 u = stored_bf16(upper, part * 2 + g, scale[0]),
                            v = stored_bf16(lower, part * 2 + g, scale[1]);
                const uint32_t first[4] = {u.x, v.x, u.y, v.y}, second[4] = {u.z, v.z, u.w, v.w};
#pragma unroll
                for (int j = 0; j < T::NT; j++) {
                    const uint4 y = *(const uint4*)(x + (j * 8 + r) * 128 + (((g * 4 + q) ^ ((r & 1) << 2)) << 4));
                    mma<SUMI_OPERANDS_BF16>(acc[j], first, y.x, y.y);
                    mma<SUMI_OPERANDS_BF16>(acc[j], second, y.z, y.w);
                }
            }
        }
        w_stage = w_stage + 1 == T::WS ? 0 : w_stage + 1;
    }
    cp_wait<0>();
    __syncthreads(); // no copy is in flight and no warp reads the ring buffers: the sums overwrite them

    // The sums, transposed to [row of x][row of w].
    float* sums = (float*)shared;
#pragma unroll
    for (int j = 0; j < T::NT; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[(j * 8 + 2 * q + (i & 1)) * T::SUMS + warp * 16 + r + (i >> 1) * 8] = acc[j][i];
    __syncthreads(); // all sums are written
    if (a.split > 1) {
        const int tile = (int)(blockIdx.x + gridDim.x * blockIdx.y);
        constexpr int COUNT = T::ROWS * T::COLS / 4; // float4 of a partial sum
        // __stcg and __ldcg bypass L1, which is not coherent between multiprocessors.
        float4* const parts = (float4*)a.parts + (int64_t)tile * a.split * COUNT;
        for (int i = (int)threadIdx.x; i < COUNT; i += T::THREADS)
            __stcg(parts + (int64_t)blockIdx.z * COUNT + i,
                   *(const float4*)(sums + i / (T::COLS / 4) * T::SUMS + i % (T::COLS / 4) * 4));
        __threadfence(); // this thread's part of the partial sum is visible to all blocks
        __syncthreads(); // every thread's part is
        if (threadIdx.x == 0) is_last = atomicAdd((uint32_t*)a.arrivals + tile, 1u) == (uint32_t)a.split - 1;
        __syncthreads(); // is_last is written
        if (!is_last) return;
        __threadfence(); // no partial sum is read before the counter was
        for (int i = (int)threadIdx.x; i < COUNT; i += T::THREADS) {
            float4 sum = __ldcg(parts + i);
            for (int s = 1; s < a.split; s++) {
                const float4 v = __ldcg(parts + (int64_t)s * COUNT + i);
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
            *(float4*)(sums + i / (T::COLS / 4) * T::SUMS + i % (T::COLS / 4) * 4) = sum;
        }
        if (threadIdx.x == 0) ((uint32_t*)a.arrivals)[tile] = 0;
        __syncthreads(); // the added sums are written
    }

    // Each thread finishes two neighbouring columns of several rows. finish_tile() instead made these kernels twice as
    // large, and few rows leave little to write.
    const finish_activation act = finish_activation_of(a.swiglu ? 0 : a.finish.activation);
    const int pairs = T::COLS / (a.swiglu ? 4 : 2), step = T::THREADS / pairs, out_n = a.swiglu ? a.n / 2 : a.n,
              c = (int)threadIdx.x % pairs * 2, n1 = a.swiglu ? n0 / 2 : n0;
    if (n1 + c >= out_n) return;
    const stored_columns columns = stored_columns_of(a.finish, finish_gate_row(a.finish), out_n, n1 + c, a.swiglu != 0);
    constexpr int AT_ONCE = 4;
    const int end_row = min(T::ROWS, a.m - m0);
#pragma unroll 1
    for (int row = (int)threadIdx.x / pairs; row < end_row; row += AT_ONCE * step)
        stored_finish<AT_ONCE>(a.finish, act, columns, out_n - n1 - c, m0 + end_row, m0 + row, step, [&](int i) {
            const float* its = sums + min(row + i * step, T::ROWS - 1) * T::SUMS + (a.swiglu ? c / 8 * 16 + c % 8 : c);
            const float2 first = *(const float2*)its, second = *(const float2*)(its + (a.swiglu ? 8 : 0));
            return a.swiglu ? make_float2(finish_swiglu(first.x, second.x), finish_swiglu(first.y, second.y)) : first;
        });
}

#define KERNEL(name, number, ROWS, XS, WS)                                                                             \
    extern "C" __global__ void __launch_bounds__(SUMI_GEMM_STORED_THREADS)                                             \
        sumi_gemm_stored_##name##_##ROWS(const __grid_constant__ sumi_gemm_stored_args a)                              \
    {                                                                                                                  \
        gemm_stored<number, stored_tile<number, ROWS, XS, WS>>(a);                                                     \
    }
#define TYPE(name, number, bytes) KERNEL(name, number, 16, 4, 3) KERNEL(name, number, 64, 4, 3)
SUMI_STORED_TYPES(TYPE)
