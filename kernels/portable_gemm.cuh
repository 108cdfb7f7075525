// The pipeline of the portable GEMM: y = epilogue(x w^T), both operands row-major with k contiguous; bf16 or e4m3 with
// float accumulators, or int8 with int accumulators. conv.cu uses its main loop with a loader of its own.
//
//   A block computes a tile of TILE_ROWS x TILE_COLUMNS, each warp WARP_ROWS x WARP_COLUMNS of it. A k-block is
//   K_BLOCK_BYTES bytes of k (64 or 128). cp.async fills a ring buffer of STAGES stages in shared memory. A stage holds
//   one k-block of TILE_ROWS rows of x, then of TILE_COLUMNS rows of w, swizzled (swizzled_offset). ldmatrix reads
//   fragments of 32 bytes of k (a k-step) into one of two sets of registers, while the tensor cores multiply the
//   fragments of the other set. portable_sm80.cuh draws the fragments; its q is lane_in_quad here.
//
//      global --cp.async--> one of STAGES --ldmatrix--> x_fragments[2], w_fragments[2] --mma.sync--> acc --> epilogue
#pragma once
#include "gemm_epilogue.cuh"
#include "portable_sm80.cuh"

// 128 bytes, passed by value: the beginning of sumi_gemm_portable_args (gemm.h).
struct sumi_gemm_args {
    const void *x, *w;
    u16* y;
    const u16* residual;
    const float *bias, *gate, *row_scale, *col_scale;
    // Split k: partial sums [tiles][split][TILE_ROWS * TILE_COLUMNS]; counters [tiles], zero before and after the
    // launch.
    void* partial_sums;
    u32* arrivals;
    int m, n, k, ldx, ldw, ldy, ldr, group; // pitches in elements; group: tile rows walked together
    int split, reserved[3];                 // split: blocks that share a tile's k (grid.y)
};
struct sumi_gemm_any_epilogue_args {
    sumi_gemm_args gemm;
    sumi_gemm_epilogue epilogue;
};
static_assert(sizeof(sumi_gemm_args) == 128 && sizeof(sumi_gemm_any_epilogue_args) == sizeof(sumi_gemm_portable_args),
              "the launcher's struct");

// The constants of a kernel. The first seven are the numbers of a line in SUMI_GEMM_PORTABLE_TILES (gemm.h).
template <int TILE_ROWS_, int TILE_COLUMNS_, int K_BLOCK_BYTES_, int STAGES_, int WARP_ROWS_, int WARP_COLUMNS_,
          int MIN_BLOCKS_, int EPILOGUE_, int OPERANDS_, bool SPLITS_K_>
struct sumi_portable_tile {
    enum {
        TILE_ROWS = TILE_ROWS_,
        TILE_COLUMNS = TILE_COLUMNS_,
        K_BLOCK_BYTES = K_BLOCK_BYTES_,
        STAGES = STAGES_,
        WARP_ROWS = WARP_ROWS_,
        WARP_COLUMNS = WARP_COLUMNS_,
        MIN_BLOCKS = MIN_BLOCKS_, // that are to fit on a multiprocessor
        EPILOGUE = EPILOGUE_,     // SUMI_EPILOGUE_*
        OPERANDS = OPERANDS_,     // SUMI_OPERANDS_*
        SPLITS_K = SPLITS_K_,
        WARPS_M = TILE_ROWS / WARP_ROWS,
        WARPS_N = TILE_COLUMNS / WARP_COLUMNS,
        THREADS = WARPS_M * WARPS_N * 32,
        M16_TILES = WARP_ROWS / 16,   // of a warp: its accumulators of 16 rows x 8 columns, from top to bottom
        N8_GROUPS = WARP_COLUMNS / 8, // of a warp: its accumulators from left to right
        K_STEPS = K_BLOCK_BYTES / 32, // of a k-block
        ROW_CHUNKS = K_BLOCK_BYTES / 16,
        ELEMENT_BYTES = OPERANDS == SUMI_OPERANDS_BF16 ? 2 : 1,
        COPY_ROWS = THREADS / ROW_CHUNKS, // rows of a stage that one cp.async of every thread fills
        X_COPIES = TILE_ROWS / COPY_ROWS, // cp.async of a thread for the rows of x in a stage
        W_COPIES = TILE_COLUMNS / COPY_ROWS,
        STAGE_BYTES = (TILE_ROWS + TILE_COLUMNS) * K_BLOCK_BYTES,
        SHARED_BYTES = STAGES * STAGE_BYTES
    };
    typedef typename sumi_sum<OPERANDS>::type sum;
    static_assert(TILE_ROWS % COPY_ROWS == 0 && TILE_COLUMNS % COPY_ROWS == 0 && COPY_ROWS % 8 == 0
                      && N8_GROUPS % 2 == 0 && M16_TILES * N8_GROUPS <= 32 && K_STEPS % 2 == 0,
                  "tile");
};

// Copies k-blocks of both operands into stages. A thread copies the same chunk of every COPY_ROWS-th row. Rows past the
// end of x or w read the last row, and their results are dropped. Elements past the end of k are zero.
template <class T> struct sumi_loader {
    const u8 *x, *w;                                  // the next k-block of row 0
    u32 x_offset[T::X_COPIES], w_offset[T::W_COPIES]; // of the thread's chunks, in 16-byte chunks
    u32 dst;                                          // the thread's first chunk in stage 0
    int chunk, chunks; // the thread's chunk of the next k-block, counted from the start of k; the chunks of k
    SUMI_DEVICE sumi_loader(const sumi_gemm_args& args, int m0, int n0, u32 smem, int first_k_block)
    {
        const int row = threadIdx.x / T::ROW_CHUNKS;
        chunk = threadIdx.x % T::ROW_CHUNKS;
        dst = smem + swizzled_offset<T::K_BLOCK_BYTES>(row, chunk);
        x = (const u8*)args.x;
        w = (const u8*)args.w;
        const int chunk_elements = 16 / T::ELEMENT_BYTES;
        chunks = (args.k + chunk_elements - 1) / chunk_elements;
#pragma unroll
        for (int i = 0; i < T::X_COPIES; i++)
            x_offset[i] = (u32)min(m0 + row + i * T::COPY_ROWS, args.m - 1) * (u32)(args.ldx / chunk_elements) + chunk;
#pragma unroll
        for (int i = 0; i < T::W_COPIES; i++)
            w_offset[i] = (u32)min(n0 + row + i * T::COPY_ROWS, args.n - 1) * (u32)(args.ldw / chunk_elements) + chunk;
        chunk += first_k_block * T::ROW_CHUNKS;
        x += (u64)first_k_block * T::K_BLOCK_BYTES;
        w += (u64)first_k_block * T::K_BLOCK_BYTES;
    }
    SUMI_DEVICE void fetch(int stage)
    { // each call copies the next k-block
        const u32 x_dst = dst + stage * T::STAGE_BYTES;
        const int bytes = chunk < chunks ? 16 : 0;
#pragma unroll
        for (int i = 0; i < T::X_COPIES; i++)
            copy_async_16(x_dst + i * T::COPY_ROWS * T::K_BLOCK_BYTES, x + ((u64)x_offset[i] << 4), bytes);
#pragma unroll
        for (int i = 0; i < T::W_COPIES; i++)
            copy_async_16(x_dst + (T::TILE_ROWS + i * T::COPY_ROWS) * T::K_BLOCK_BYTES, w + ((u64)w_offset[i] << 4),
                          bytes);
        chunk += T::ROW_CHUNKS;
        x += T::K_BLOCK_BYTES;
        w += T::K_BLOCK_BYTES;
    }
};

// acc = the product of k_blocks k-blocks, for the warp whose tile begins at row warp_m and column warp_n of the block's
// tile. All threads of the block call it.
template <class T>
SUMI_DEVICE void sumi_mainloop(sumi_loader<T>& load, typename T::sum (&acc)[T::M16_TILES][T::N8_GROUPS][4], u32 smem,
                               int k_blocks, int warp_m, int warp_n)
{
    const int lane = threadIdx.x & 31;
    u32 x_fragments[2][T::M16_TILES][4], w_fragments[2][T::N8_GROUPS / 2][4];
    // The row addresses that this lane gives ldmatrix, for k-step 0 of stage 0 (chunk 0 or 1 of a row):
    //   lanes             0..7    8..15   16..23  24..31
    //   x: row of 16      0..7    8..15   0..7    8..15
    //      chunk          0       0       1       1
    //      register       a0      a1      a2      a3
    //   w: row of 16      0..7    0..7    8..15   8..15
    //      chunk          0       1       0       1
    //      register       b0      b1      b0      b1          rows 0..7: accumulator group 2 j, rows 8..15: 2 j + 1
    const u32 x_address = smem + swizzled_offset<T::K_BLOCK_BYTES>(warp_m + (lane & 15), lane >> 4),
              w_address = smem + T::TILE_ROWS * T::K_BLOCK_BYTES
                        + swizzled_offset<T::K_BLOCK_BYTES>(warp_n + (lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
#pragma unroll
    for (int stage = 0; stage < T::STAGES - 1; stage++) {
        if (stage < k_blocks) load.fetch(stage);
        copy_async_commit();
    }
#pragma unroll
    for (int i = 0; i < T::M16_TILES; i++)
#pragma unroll
        for (int j = 0; j < T::N8_GROUPS; j++) acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0;
    // set: of registers, 0 or 1.
    auto load_fragments = [&](int set, u32 stage_offset, int k_step) {
#pragma unroll
        for (int i = 0; i < T::M16_TILES; i++)
            load_matrix_x4(x_fragments[set][i], swizzled_step<T::K_BLOCK_BYTES>(x_address + stage_offset, k_step)
                                                    + i * 16 * T::K_BLOCK_BYTES);
#pragma unroll
        for (int j = 0; j < T::N8_GROUPS / 2; j++)
            load_matrix_x4(w_fragments[set][j], swizzled_step<T::K_BLOCK_BYTES>(w_address + stage_offset, k_step)
                                                    + j * 16 * T::K_BLOCK_BYTES);
    };
    auto multiply = [&](int set) {
#pragma unroll
        for (int i = 0; i < T::M16_TILES; i++)
#pragma unroll
            for (int j = 0; j < T::N8_GROUPS; j++) {
                // Every second row of accumulators runs backwards, so that each product shares a fragment with the one
                // before. w_fragments[set][group / 2] holds b0, b1 of the even group, then of the odd one.
                const int group = i & 1 ? T::N8_GROUPS - 1 - j : j;
                const u32(&b)[4] = w_fragments[set][group / 2];
                mma<T::OPERANDS>(acc[i][group], x_fragments[set][i], b[group % 2 * 2], b[group % 2 * 2 + 1]);
            }
    };
    int read_stage = 0, write_stage = T::STAGES - 1;
    // Fetches k-block k_block + STAGES - 1. A group is committed even when there is nothing left to fetch, so that
    // copy_async_wait counts.
    auto fetch_ahead = [&](int k_block) {
        if (k_block + T::STAGES - 1 < k_blocks) load.fetch(write_stage);
        copy_async_commit();
        write_stage = write_stage + 1 == T::STAGES ? 0 : write_stage + 1;
    };
    copy_async_wait<T::STAGES - 2>();
    __syncthreads(); // stage 0 is complete
    load_fragments(0, 0, 0);
    for (int k_block = 0; k_block < k_blocks; k_block++) {
#pragma unroll
        for (int k_step = 0; k_step < T::K_STEPS; k_step++) {
            // The next stage is complete after this barrier. All warps have also read the last fragments of the current
            // stage, so fetch_ahead() may overwrite it.
            if (k_step == T::K_STEPS - 1) {
                copy_async_wait<T::STAGES - 2>();
                __syncthreads();
                read_stage = read_stage + 1 == T::STAGES ? 0 : read_stage + 1;
                load_fragments((k_step + 1) & 1, read_stage * T::STAGE_BYTES, 0);
            } else load_fragments((k_step + 1) & 1, read_stage * T::STAGE_BYTES, k_step + 1);
            if (k_step == 0) fetch_ahead(k_block);
            multiply(k_step & 1);
        }
    }
    copy_async_wait<0>(); // no copy is in flight: the caller may use the shared memory after its next barrier
}

// Finishes and stores the warp's tile, from row m0 and column n0 of the product on, with the epilogue T::EPILOGUE. It
// works in rounds of OUT_GROUPS groups of 8 columns of y. Four groups are transposed within quads, so that each lane
// stores 16 bytes.
template <class T>
SUMI_DEVICE void sumi_epilogue(const sumi_gemm_args& args, typename T::sum (&acc)[T::M16_TILES][T::N8_GROUPS][4],
                               int m0, int n0)
{
    // GROUPS_PER_OUT: accumulator groups that give one group of y (SwiGLU: gate and up). ACC_GROUPS: of a round.
    constexpr int GROUPS_PER_OUT = T::EPILOGUE & SUMI_EPILOGUE_SWIGLU ? 2 : 1,
                  OUT_GROUPS = T::N8_GROUPS / GROUPS_PER_OUT % 4 == 0 ? 4
                             : T::N8_GROUPS / GROUPS_PER_OUT % 2 == 0 ? 2
                                                                      : 1,
                  ACC_GROUPS = OUT_GROUPS * GROUPS_PER_OUT;
    const int lane = threadIdx.x & 31, lane_in_quad = lane & 3;
#pragma unroll
    for (int group = 0; group < T::N8_GROUPS; group += ACC_GROUPS) {
        u32 residual[T::M16_TILES][2][OUT_GROUPS]; // two columns each
        float bias[ACC_GROUPS][2], gate[ACC_GROUPS][2], col_scale[ACC_GROUPS][2];
        (void)residual;
        (void)bias;
        (void)gate;
        (void)col_scale;
#pragma unroll
        for (int j = 0; j < ACC_GROUPS; j++) {
            const int column = n0 + (group + j) * 8 + lane_in_quad * 2;
            const bool exists = column < args.n;
            if (T::EPILOGUE & SUMI_EPILOGUE_BIAS)
                bias[j][0] = exists ? args.bias[column] : 0.f, bias[j][1] = exists ? args.bias[column + 1] : 0.f;
            if (T::EPILOGUE & SUMI_EPILOGUE_GATE)
                gate[j][0] = exists ? args.gate[column] : 0.f, gate[j][1] = exists ? args.gate[column + 1] : 0.f;
            if (T::EPILOGUE & SUMI_EPILOGUE_SCALE)
                col_scale[j][0] = exists ? args.col_scale[column] : 0.f,
                col_scale[j][1] = exists ? args.col_scale[column + 1] : 0.f;
        }
        long long rows[T::M16_TILES][2]; // the lane's rows of y, -1 past the end
#pragma unroll
        for (int i = 0; i < T::M16_TILES; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) { // of the 16 rows
                const int m = m0 + i * 16 + half * 8 + (lane >> 2);
                const long long row = m;
                rows[i][half] = m < args.m ? row : -1;
                if (T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL)
#pragma unroll
                    for (int j = 0; j < OUT_GROUPS; j++) {
                        const int column = n0 + (group + j) * 8 + lane_in_quad * 2;
                        residual[i][half][j] =
                            m < args.m && column < args.n ? *(const u32*)(args.residual + row * args.ldr + column) : 0u;
                    }
            }
#pragma unroll
        for (int i = 0; i < T::M16_TILES; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 out[OUT_GROUPS]; // two columns of y each
                const int m = m0 + i * 16 + half * 8 + (lane >> 2);
                float row_scale = 1.f;
                if (T::EPILOGUE & SUMI_EPILOGUE_SCALE) row_scale = m < args.m ? args.row_scale[m] : 0.f;
#pragma unroll
                for (int j = 0; j < OUT_GROUPS; j++) {
                    float values[GROUPS_PER_OUT][2];
#pragma unroll
                    for (int g = 0; g < GROUPS_PER_OUT; g++)
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                            const int acc_group = j * GROUPS_PER_OUT + g; // of the round
                            float v = (float)acc[i][group + acc_group][half * 2 + e];
                            if (T::EPILOGUE & SUMI_EPILOGUE_SCALE) v *= row_scale * col_scale[acc_group][e];
                            if (T::EPILOGUE & SUMI_EPILOGUE_BIAS) v += bias[acc_group][e];
                            if (T::EPILOGUE & SUMI_EPILOGUE_GELU) v = gelu_tanh(v);
                            if (T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) {
                                const float base = e ? bf16_high(residual[i][half][j]) : bf16_low(residual[i][half][j]);
                                v = T::EPILOGUE & SUMI_EPILOGUE_GATE ? fmaf(gate[acc_group][e], v, base) : base + v;
                            }
                            values[g][e] = v;
                        }
                    // values[GROUPS_PER_OUT - 1]: up
                    out[j] = GROUPS_PER_OUT == 2 ? pack_bf16(silu(values[0][0]) * values[GROUPS_PER_OUT - 1][0],
                                                             silu(values[0][1]) * values[GROUPS_PER_OUT - 1][1])
                                                 : pack_bf16(values[0][0], values[0][1]);
                }
                // The columns of y, and the first one of this round.
                const int out_n = args.n / GROUPS_PER_OUT, out_n0 = n0 / GROUPS_PER_OUT + group / GROUPS_PER_OUT * 8;
                if (OUT_GROUPS == 4) {
                    quad_transpose(out[0], out[1 % OUT_GROUPS], out[2 % OUT_GROUPS], out[3 % OUT_GROUPS], lane);
                    const int column = out_n0 + lane_in_quad * 8;
                    if (rows[i][half] >= 0 && column < out_n)
                        *(uint4*)(args.y + rows[i][half] * args.ldy + column) =
                            make_uint4(out[0], out[1 % OUT_GROUPS], out[2 % OUT_GROUPS], out[3 % OUT_GROUPS]);
                } else {
#pragma unroll
                    for (int j = 0; j < OUT_GROUPS; j++)
                        if (rows[i][half] >= 0 && out_n0 + j * 8 < out_n)
                            *(u32*)(args.y + rows[i][half] * args.ldy + out_n0 + j * 8 + lane_in_quad * 2) = out[j];
                }
            }
    }
}

// The kernel. Tiles are numbered in groups of `group` tile rows: within a group all rows of a column come first, then
// the next column, so that the rows of x of a group stay in L2 while all of w is read. With `group` 2, blockIdx.x of
// 3 x 4 tiles:
//
//     group 0   tile row 0   0  2  4  6
//               tile row 1   1  3  5  7
//     group 1   tile row 2   8  9 10 11       (the last group may have fewer rows)
template <class T>
SUMI_DEVICE void sumi_gemm_body(const sumi_gemm_args& args, const sumi_gemm_epilogue* epilogue = nullptr)
{
    extern __shared__ __align__(128) u8 shared[];
    const u32 smem = (u32)__cvta_generic_to_shared(shared);
    const int tiles_m = (args.m + T::TILE_ROWS - 1) / T::TILE_ROWS,
              tiles_n = (args.n + T::TILE_COLUMNS - 1) / T::TILE_COLUMNS, group_tiles = args.group * tiles_n,
              first_tile_row = blockIdx.x / group_tiles * args.group,
              group_rows = min(args.group, tiles_m - first_tile_row), tile_in_group = blockIdx.x % group_tiles;
    const int m0 = (first_tile_row + tile_in_group % group_rows) * T::TILE_ROWS,
              n0 = tile_in_group / group_rows * T::TILE_COLUMNS;
    const int warp = threadIdx.x >> 5, warp_m = warp % T::WARPS_M * T::WARP_ROWS,
              warp_n = warp / T::WARPS_M * T::WARP_COLUMNS;
    int k_blocks = (args.k * T::ELEMENT_BYTES + T::K_BLOCK_BYTES - 1) / T::K_BLOCK_BYTES, first_k_block = 0;
    if (T::SPLITS_K) {
        const int k_range = blockIdx.y;
        first_k_block = (int)((long long)k_blocks * k_range / args.split);
        k_blocks = (int)((long long)k_blocks * (k_range + 1) / args.split) - first_k_block;
    }
    typename T::sum acc[T::M16_TILES][T::N8_GROUPS][4];
    {
        sumi_loader<T> load(args, m0, n0, smem, first_k_block);
        sumi_mainloop<T>(load, acc, smem, k_blocks, warp_m, warp_n);
    }
    // Split k: every block writes its partial sum, and the block that arrives last at the tile's counter adds all of
    // them in the order of k. __stcg and __ldcg bypass L1, which is not coherent between multiprocessors.
    if constexpr (T::SPLITS_K != 0)
        if (args.split > 1) {
            typedef sumi_four<typename T::sum> four;
            typedef typename four::type vector; // the four sums of one accumulator
            constexpr int ACCUMULATORS = T::M16_TILES * T::N8_GROUPS;
            // vector [tile][range of k][accumulator][thread]; pitch: vectors of a partial sum
            vector* partial_sums =
                (vector*)args.partial_sums + ((u64)blockIdx.x * args.split * ACCUMULATORS) * T::THREADS + threadIdx.x;
            const u64 pitch = (u64)ACCUMULATORS * T::THREADS;
#pragma unroll
            for (int i = 0; i < ACCUMULATORS; i++) {
                typename T::sum(&sums)[4] = acc[i / T::N8_GROUPS][i % T::N8_GROUPS];
                __stcg(partial_sums + blockIdx.y * pitch + i * T::THREADS,
                       four::of(sums[0], sums[1], sums[2], sums[3]));
            }
            __threadfence(); // this thread's values of the partial sum are visible to all blocks
            __syncthreads(); // every thread's values are; the stages in `shared` are no longer read
            u32* arrived_before = (u32*)shared;
            if (threadIdx.x == 0) *arrived_before = atomicAdd(args.arrivals + blockIdx.x, 1u);
            __syncthreads(); // *arrived_before is written
            if (*arrived_before != (u32)args.split - 1) return;
            __threadfence(); // no partial sum is read before the counter was
#pragma unroll
            for (int i = 0; i < ACCUMULATORS; i++) {
                typename T::sum(&sums)[4] = acc[i / T::N8_GROUPS][i % T::N8_GROUPS];
                sums[0] = sums[1] = sums[2] = sums[3] = 0;
            }
#pragma unroll ACCUMULATORS <= 4 ? 4 : ACCUMULATORS <= 8 ? 2 : 1
            for (int k_range = 0; k_range < args.split; k_range++)
#pragma unroll
                for (int i = 0; i < ACCUMULATORS; i++) {
                    const vector v = __ldcg(partial_sums + k_range * pitch + i * T::THREADS);
                    typename T::sum(&sums)[4] = acc[i / T::N8_GROUPS][i % T::N8_GROUPS];
                    sums[0] += v.x;
                    sums[1] += v.y;
                    sums[2] += v.z;
                    sums[3] += v.w;
                }
            if (threadIdx.x == 0) args.arrivals[blockIdx.x] = 0;
        }
    if constexpr ((T::EPILOGUE & SUMI_EPILOGUE_ANY) != 0)
        epilogue_tile<T::M16_TILES, T::N8_GROUPS, (T::EPILOGUE & SUMI_EPILOGUE_SWIGLU) != 0,
                      T::OPERANDS != SUMI_OPERANDS_BF16>(*epilogue, args.m, args.n, m0 + warp_m, n0 + warp_n,
                                                         [&](int i, int j, int e) { return (float)acc[i][j][e]; });
    else sumi_epilogue<T>(args, acc, m0 + warp_m, n0 + warp_n);
}
// Defines a kernel `name`; the arguments are those of sumi_portable_tile.
#define SUMI_GEMM_PORTABLE(name, ...)                                                                                  \
    namespace {                                                                                                        \
    typedef sumi_portable_tile<__VA_ARGS__> tile_##name;                                                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(tile_##name::THREADS, tile_##name::MIN_BLOCKS)                        \
        name(const __grid_constant__ sumi_gemm_args args)                                                              \
    {                                                                                                                  \
        sumi_gemm_body<tile_##name>(args);                                                                             \
    }
// The same for SUMI_EPILOGUE_ANY: the epilogue is read from the launch's sumi_gemm_epilogue.
#define SUMI_GEMM_PORTABLE_ANY(name, ...)                                                                              \
    namespace {                                                                                                        \
    typedef sumi_portable_tile<__VA_ARGS__> tile_##name;                                                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(tile_##name::THREADS, tile_##name::MIN_BLOCKS)                        \
        name(const __grid_constant__ sumi_gemm_any_epilogue_args args)                                                 \
    {                                                                                                                  \
        sumi_gemm_body<tile_##name>(args.gemm, &args.epilogue);                                                        \
    }
