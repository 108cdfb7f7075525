// y[m][n] = finish(x[m][k] w[n][k]^T) for few rows of x, with w as its file has it: sumi_gemm_stored_<type>_<rows>. For
// text encoders, modulation and the text's rows of a denoiser, where reading w is most of what a product costs: of
// 4-bit weights there is a quarter to be read. On an H200, whose memory is fast for its arithmetic, unpacking costs
// more than reading (tests/bench.md). Products of many rows unpack w first (unpack.cu).
//
//   w is the 16-row operand of mma.m16n8k16, unpacked from shared memory into registers, where a lane needs it: the order
//   of k does not matter to a product, so lane q of four takes 8 consecutive elements of 32 for two products, and reads
//   x in the same order, 16 bytes at a time.
//
//     k of a group of 32     0 1 2 3 4 5 6 7 | 8 .. 15 | 16 .. 23 | 24 .. 31
//     lane q                 0               | 1       | 2        | 3
//     product, slot          0a0a 0b0b 1a1a 1b1b          a: k 2q, 2q + 1 of the instruction; b: 2q + 8, 2q + 9
//
//   grid (ceil(n / 64), ceil(m / rows), split)      block 128      shared SUMI_GEMM_STORED_SHARED
//   Warp i has rows 16 i to 16 i + 15 of the block's 64 of w, and all of its rows of x. Rings of cp.async: x in stages of
//   64 elements of k, w in stages of 256. k is a multiple of 64; parts of k (split) are whole stages of w.
//   Sums leave through shared memory, where they are turned; parts of k are added in order by the block that comes last.
#include "portable_sm80.cuh"
#include "stored.cuh"
#include "stored_finish.cuh"

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
        SUMS = COLS + 4 // floats from row to row
    };
    static_assert(XS <= 5, "a stage of w is there when its first stage of x is");
    static_assert(PITCH % 16 == 0 && (PITCH % 128 == 32 || PITCH % 128 == 96), "banks");
};

// Where a block's row of w begins, and its factor.
struct stored_row {
    const uint8_t* from;
    float scale;
    uint32_t reserved;
};
SUMI_DEVICE stored_row stored_row_of(const sumi_gemm_stored_args& a, int v)
{
    int row = min(v, a.n - 1);
    if (a.is_gated) row = (row >> 4) * 8 + (row & 7) + (row & 8 ? a.n / 2 : 0);
    int begin = 0, part = 0;
    while (part < SUMI_GEMM_STORED_PARTS - 1 && row >= a.end[part]) begin = a.end[part++];
    return {(const uint8_t*)a.from[part] + (int64_t)(row - begin) * a.row_bytes, a.scale[part], 0};
}

template <class T> struct stored_loader {
    const sumi_gemm_stored_args& a;
    const stored_row* rows;
    uint32_t smem;
    int m0;
    // chunk: 256 elements of k; past a row's end nothing is read
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
    // Chunk c of row r, 8 elements, lies at c ^ 4 (r % 2): what eight lanes read at once is in different banks.
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
    const int b0 = c0 * 4, b1 = min(c1 * 4, a.k / 64); // blocks of 64
    for (int i = (int)threadIdx.x; i < T::COLS; i += T::THREADS) rows[i] = stored_row_of(a, n0 + i);
    __syncthreads();
    const stored_loader<T> load = {a, rows, (uint32_t)__cvta_generic_to_shared(shared), m0};
    const float scale[2] = {rows[warp * 16 + r].scale, rows[warp * 16 + r + 8].scale};

    // Of one group: stage j of x, and the stage of w that begins WS - 1 stages ahead of it.
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
        __syncthreads();
        const stored<TYPE> upper(mine[0], 8 * q), lower(mine[1], 8 * q);
#pragma unroll
        for (int part = 0; part < 4; part++) {
            const int b = chunk * 4 + part;
            if (b >= b1) break;
            if (part > 0) {
                cp_wait<T::XS - 2>();
                __syncthreads();
            }
            // what the barrier has freed
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
    __syncthreads();

    // Turned: [rows of x][rows of w].
    float* sums = (float*)shared;
#pragma unroll
    for (int j = 0; j < T::NT; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[(j * 8 + 2 * q + (i & 1)) * T::SUMS + warp * 16 + r + (i >> 1) * 8] = acc[j][i];
    __syncthreads();
    if (a.split > 1) {
        const int tile = (int)(blockIdx.x + gridDim.x * blockIdx.y);
        constexpr int COUNT = T::ROWS * T::COLS / 4; // of 16 bytes
        float4* const parts = (float4*)a.parts + (int64_t)tile * a.split * COUNT;
        for (int i = (int)threadIdx.x; i < COUNT; i += T::THREADS)
            __stcg(parts + (int64_t)blockIdx.z * COUNT + i,
                   *(const float4*)(sums + i / (T::COLS / 4) * T::SUMS + i % (T::COLS / 4) * 4));
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) is_last = atomicAdd((uint32_t*)a.arrivals + tile, 1u) == (uint32_t)a.split - 1;
        __syncthreads();
        if (!is_last) return;
        __threadfence();
        for (int i = (int)threadIdx.x; i < COUNT; i += T::THREADS) {
            float4 sum = __ldcg(parts + i);
            for (int s = 1; s < a.split; s++) {
                const float4 v = __ldcg(parts + (int64_t)s * COUNT + i);
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
            *(float4*)(sums + i / (T::COLS / 4) * T::SUMS + i % (T::COLS / 4) * 4) = sum;
        }
        if (threadIdx.x == 0) ((uint32_t*)a.arrivals)[tile] = 0;
        __syncthreads();
    }

    // The epilogue of tiles (finish_tile) made these kernels twice as large; few rows leave little to write.
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
