// What rows.cu, norms.cu, rows_fp8.cu and rows_int8.cu share: loads and stores, and norms of whole rows with bf16,
// float, e4m3 or rotated int8 output.
//
// A block processes one row at a time. It has as many warps as are needed to give each lane three chunks of 8 columns
// (SUMI_ROW_THREADS_OF). Chunk j of thread t begins at column 8 (t + j * threads), so every load of a warp reads 512
// consecutive bytes. The widths of the transformers, 2304, 3072 and 3840, are 3, 4 and 5 warps without an idle lane.
//
//   columns      0 .. 7    8 .. 15   ...   8 threads - 8 ..   | 8 threads ..   ...   | 16 threads ..   ...
//   thread       0         1         ...   threads - 1        | 0              ...   | 0               ...
//   chunk        0         0         ...   0                  | 1              ...   | 2               ...
//
//   memory --cp.async--> ring buffer of SUMI_ROW_STAGES rows in shared memory --> floats in registers --> memory
//
// Instructions cost these kernels as much time as bytes. An earlier kernel used 256 threads with two chunks each. It
// left a quarter of its lanes idle at 3072 columns and 44 % at 2304. It also converted a row from bf16 four times, with
// integer instructions at half the rate of float ones: 3280 warp instructions for a row of 3072 columns to e4m3. 132
// multiprocessors need at least 15 us to issue these for 4096 rows, where the bytes take 9 us. This kernel needs 1670
// instructions: a row is converted once, and mean, factor and shift are applied to the floats in place.
//
// A thread reads only those chunks from the ring buffer that it copied there itself, so the ring buffer needs no
// barrier. It also needs no registers, and keeps two rows of every block in flight while a third one is processed: 4
// blocks with rows of 6 KB have 48 KB in flight on a multiprocessor, where 4.3 TB/s * 700 ns = 23 KB per multiprocessor
// are needed. More warps per row make each reduction slower. With one warp per row there would not be enough registers
// for w, scale and shift, which stay in registers while a block goes through its rows with the grid's stride.
//
// The loads of the first rows are issued before those of w and scale, because the latter must wait for the counter
// where a table has a row per step. These kernels last 10 to 20 us, so each such wait is a few per cent. Rows are
// processed from the last to the first: the previous op left its last rows in L2, and the next op begins with the first
// rows. The order of the sums depends on the columns only, never on the grid or the range of rows.
#pragma once
#include "common.cuh"
#include "rotate.cuh"
#include "rows.h"

SUMI_DEVICE float load_element(uint64_t data, int32_t is_float, int64_t index)
{
    return is_float ? ((const float*)data)[index] : __bfloat162float(((const bf16*)data)[index]);
}
SUMI_DEVICE void store_element(uint64_t data, int32_t is_float, int64_t index, float v)
{
    if (is_float) ((float*)data)[index] = v;
    else ((bf16*)data)[index] = __float2bfloat16(v);
}

// An exp that overflows gives 1 / inf = 0.
SUMI_DEVICE float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// Reads eight consecutive floats, 16 bytes at a time where the address is 16-byte aligned.
SUMI_DEVICE void load8_float(const float* from, float (&v)[8])
{
    if (((uint64_t)from & 15) == 0) {
        const float4 low = ((const float4*)from)[0], high = ((const float4*)from)[1];
        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = from[i];
    }
}
// Elements column .. column + 7 of row `counter` of a step table.
SUMI_DEVICE void load8_step(const sumi_step& step, int32_t counter, int column, float (&v)[8])
{
    if (step.is_float) {
        load8_float((const float*)step.table + (int64_t)counter * step.stride + step.column + column, v);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = step_element(step, counter, column + i);
    }
}
// Eight bf16 in 16 bytes, to floats and back.
SUMI_DEVICE void unpack8(const uint4& raw, float (&v)[8])
{
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(words[i] << 16);
        v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
}
SUMI_DEVICE uint4 pack8(const float (&v)[8])
{
    return make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}

// Stores 16 bytes to global memory if is_stored, without a branch. A branch for each of several stores, with its own
// addresses, was a quarter of a row's instructions. IS_STREAMED: the data is not read again soon, so L2 evicts it
// first.
template <bool IS_STREAMED = false> SUMI_DEVICE void store16_if(bool is_stored, void* to, const uint4& v)
{
    const uint64_t address = (uint64_t)__cvta_generic_to_global(to);
    if (IS_STREAMED)
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0;\n@p st.global.cs.v4.b32 [%1], {%2, %3, %4, %5}; }"
                     :
                     : "r"((int)is_stored), "l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                     : "memory");
    else
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0;\n@p st.global.v4.b32 [%1], {%2, %3, %4, %5}; }"
                     :
                     : "r"((int)is_stored), "l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                     : "memory");
}

// Sums and maxima over a block. Two sets of the warps' results are used alternately. A thread can overwrite a set only
// after a barrier that all threads pass after reading it, so one barrier per reduction is enough. Entries of warps that
// the block does not have are zero. Maxima are of non-negative floats, which have the order of their bits, with NaN
// above all others.
constexpr int ROW_MAX_WARPS = 12; // largest number of warps per block
struct row_reduction {
    float* warp_results; // [2 sets][ROW_MAX_WARPS], 16-byte aligned, in shared memory
    int set_index;       // which set the next reduction uses
    SUMI_DEVICE explicit row_reduction(float* memory) : warp_results(memory), set_index(0)
    {
        if (threadIdx.x < 2 * ROW_MAX_WARPS && threadIdx.x % ROW_MAX_WARPS >= blockDim.x / 32)
            memory[threadIdx.x] = 0.0f;
    }
    template <bool IS_MAX> SUMI_DEVICE float reduce(float v)
    {
        float* results = warp_results + set_index * ROW_MAX_WARPS;
        set_index ^= 1;
        v = IS_MAX ? __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(v))) : warp_sum(v);
        if ((threadIdx.x & 31) == 0) results[threadIdx.x >> 5] = v;
        __syncthreads();
        const auto larger = [](float a, float b) {
            return __uint_as_float(::max(__float_as_uint(a), __float_as_uint(b)));
        };
        const auto reduce_four = [&](int i) { // of warps 4 i .. 4 i + 3
            const float4 four = ((const float4*)results)[i];
            return IS_MAX ? larger(larger(four.x, four.y), larger(four.z, four.w))
                          : (four.x + four.y) + (four.z + four.w);
        };
        v = reduce_four(0);
        if (blockDim.x > 128)
            v = IS_MAX ? larger(v, larger(reduce_four(1), reduce_four(2))) : v + (reduce_four(1) + reduce_four(2));
        return v;
    }
    SUMI_DEVICE float sum(float v) { return reduce<false>(v); }
    SUMI_DEVICE float max(float v) { return reduce<true>(v); }
};

// The scale of an e4m3 row, from its largest magnitude. A row of zeros gets a tiny scale, so that 0 / scale is 0.
SUMI_DEVICE float e4m3_scale(float largest) { return fmaxf(largest, 1e-12f) / 448.0f; }

#ifdef SUMI_ROWS_FP8
// Converts two floats to e4m3. Values saturate at 448, because e4m3 has no infinity. NaN stays NaN.
SUMI_DEVICE uint32_t pack2_e4m3(float low, float high)
{
    uint16_t v;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(v) : "f"(high), "f"(low));
    return v;
}
SUMI_DEVICE uint2 pack8_e4m3(const float (&v)[8], float factor)
{
    return make_uint2(pack2_e4m3(v[0] * factor, v[1] * factor) | pack2_e4m3(v[2] * factor, v[3] * factor) << 16,
                      pack2_e4m3(v[4] * factor, v[5] * factor) | pack2_e4m3(v[6] * factor, v[7] * factor) << 16);
}
SUMI_DEVICE void store_e4m3(uint8_t* to, float v) { *to = (uint8_t)pack2_e4m3(v, 0.0f); }
#else
// Never called: only rows_fp8.cu writes e4m3 rows.
SUMI_DEVICE uint2 pack8_e4m3(const float (&)[8], float) { return make_uint2(0, 0); }
SUMI_DEVICE void store_e4m3(uint8_t*, float) {}
#endif

// ---- Rows in flight -------------------------------------------------------------------------------------------------
constexpr int ROW_CHUNKS = SUMI_ROW_CHUNKS, ROW_STAGES = SUMI_ROW_STAGES;

// The ring buffer [stage][matrix][chunk][thread] of 16-byte chunks, and which chunks of a row a thread has. Pointers to
// rows in global memory point to the thread's first column; its chunk number `chunk` lies offset(chunk) elements
// further.
struct row_ring {
    uint32_t base;    // shared-memory address of this thread's chunk 0 of matrix 0 in stage 0
    int columns_left; // from this thread's first column to the end of the row
    int matrices;
    SUMI_DEVICE row_ring(uint4* memory, int cols, int matrix_count)
        : base((uint32_t)__cvta_generic_to_shared(memory + threadIdx.x)), columns_left(cols - column(0)),
          matrices(matrix_count)
    {
        // chunks past the row's end are zeros and stay zeros: nothing is copied there
        for (int i = 0; i < ROW_STAGES * matrices * ROW_CHUNKS; i++)
            if (!has_chunk(i % ROW_CHUNKS)) memory[i * blockDim.x + threadIdx.x] = make_uint4(0, 0, 0, 0);
    }
    SUMI_DEVICE int offset(int chunk) const { return 8 * chunk * (int)blockDim.x; }
    SUMI_DEVICE int column(int chunk) const { return 8 * (int)threadIdx.x + offset(chunk); }
    SUMI_DEVICE bool has_chunk(int chunk) const { return offset(chunk) < columns_left; }
    SUMI_DEVICE uint32_t chunk_address(int stage, int matrix, int chunk) const
    {
        return base + 16 * blockDim.x * (uint32_t)((stage * matrices + matrix) * ROW_CHUNKS + chunk);
    }
    // Copies the thread's chunks of a row to a stage, without a branch per chunk. It has no L2 cache hint: with
    // createpolicy's evict_first policy an H200 rejected the copy as an illegal instruction.
    SUMI_DEVICE void fetch(const bf16* row, int stage, int matrix) const
    {
#pragma unroll
        for (int j = 0; j < ROW_CHUNKS; j++) {
            const uint64_t from = (uint64_t)__cvta_generic_to_global(row + offset(j));
            asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0;\n"
                         "@p cp.async.cg.shared.global [%1], [%2], 16; }"
                         :
                         : "r"((int)has_chunk(j)), "r"(chunk_address(stage, matrix, j)), "l"(from)
                         : "memory");
        }
    }
    // Closes the group of copies of one stage. It is called even where nothing was copied, because wait() counts
    // groups.
    SUMI_DEVICE void commit() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
    SUMI_DEVICE void wait() const { asm volatile("cp.async.wait_group %0;" ::"n"(ROW_STAGES - 1) : "memory"); }
    SUMI_DEVICE void read(int stage, int matrix, float (&v)[ROW_CHUNKS][8]) const
    {
#pragma unroll
        for (int j = 0; j < ROW_CHUNKS; j++) {
            uint4 raw;
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
                         : "r"(chunk_address(stage, matrix, j))
                         : "memory");
            unpack8(raw, v[j]);
        }
    }
    template <bool IS_STREAMED> SUMI_DEVICE void store(bf16* row, int chunk, const uint4& v) const
    {
        store16_if<IS_STREAMED>(has_chunk(chunk), row + offset(chunk), v);
    }
    SUMI_DEVICE void store(uint8_t* row, int chunk, const uint2& v) const
    {
        const uint64_t to = (uint64_t)__cvta_generic_to_global(row + offset(chunk));
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0;\n@p st.global.v2.b32 [%1], {%2, %3}; }"
                     :
                     : "r"((int)has_chunk(chunk)), "l"(to), "r"(v.x), "r"(v.y)
                     : "memory");
    }
};

// This thread's elements of a vector of floats (w = 0: ones) and of a row of a step table (no table: `default_value`).
// The values are loaded and not used here, so that all loads are in flight together.
SUMI_DEVICE void load_vector(uint64_t w, const row_ring& ring, float (&v)[ROW_CHUNKS][8])
{
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[j][i] = 1.0f;
        if (w != 0 && ring.has_chunk(j)) load8_float((const float*)w + ring.column(j), v[j]);
    }
}
SUMI_DEVICE void load_step_row(const sumi_step& step, int32_t counter, float default_value, const row_ring& ring,
                               float (&v)[ROW_CHUNKS][8])
{
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[j][i] = default_value;
        if (step.table != 0 && ring.has_chunk(j)) load8_step(step, counter, ring.column(j), v[j]);
    }
}
// w = (w + addend) * step
SUMI_DEVICE void add_and_multiply(float (&w)[ROW_CHUNKS][8], float addend, const float (&step)[ROW_CHUNKS][8])
{
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
#pragma unroll
        for (int i = 0; i < 8; i++) w[j][i] = (w[j][i] + addend) * step[j][i];
    }
}
// Sum of squares of a thread's columns. Each chunk has its own sum, so that the chunks need not wait for each other.
SUMI_DEVICE float sum_of_squares(const float (&v)[ROW_CHUNKS][8])
{
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
        float chunk_squares = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) chunk_squares = fmaf(v[j][i], v[j][i], chunk_squares);
        squares += chunk_squares;
    }
    return squares;
}

// Writes a row of floats as rotated int8, with its scale. Chunks past the row's end are zeros. The row's length in
// memory is a multiple of the rotation's blocks of 256 columns; a warp holds one such block per chunk.
SUMI_DEVICE void store_rotated(row_reduction& reduction, const row_ring& ring, int cols, uint8_t* to, float* scales,
                               int row, float (&v)[ROW_CHUNKS][8])
{
    const sumi_rotation rotation;
    float largest = 0.0f;
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
        rotation.rotate(v[j]);
        largest = max_magnitude(largest, v[j]);
    }
    largest = reduction.max(largest);
    const float inverse = 127.0f / fmaxf(largest, 1e-30f);
    if (threadIdx.x == 0) scales[row] = rotated_scale(largest);
    const int first_column = 8 * (int)(threadIdx.x & ~31u); // of this warp's block of 256
    uint8_t* destination = to + (int64_t)row * SUMI_ROTATED_COLS(cols) + first_column + rotation.column();
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
        const uint2 packed = rotation.pack(v[j], inverse);
        if (first_column + ring.offset(j) < cols) *(uint2*)(destination + ring.offset(j)) = packed;
    }
}

// ---- norm_modulate, norm_gate_add, norm_pair ------------------------------------------------------------------------
// One row, in place: v = norm(v) * factor + shift, written to row y_row of y. Columns past the end are zeros, with
// factor 1 and shift 0. load_shift(j, shift) returns the shifts of chunk j. after_sums() is called after the barriers
// of the sums.
template <int OPERANDS, class LoadShift, class AfterSums>
SUMI_DEVICE void modulate_row(const sumi_norm_modulate_args& args, row_reduction& reduction, const row_ring& ring,
                              int y_row, float (&v)[ROW_CHUNKS][8], const float (&factor)[ROW_CHUNKS][8],
                              const LoadShift& load_shift, const AfterSums& after_sums)
{
    const float per_column = 1.0f / (float)args.cols;
    if (args.is_layer) { // the mean first: E[x^2] - mean^2 would lose the variance of rows with a large mean
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < ROW_CHUNKS; j++)
            sum += ((v[j][0] + v[j][1]) + (v[j][2] + v[j][3])) + ((v[j][4] + v[j][5]) + (v[j][6] + v[j][7]));
        const float mean = __fmul_rn(reduction.sum(sum), per_column);
#pragma unroll
        for (int j = 0; j < ROW_CHUNKS; j++) {
            const float subtrahend = ring.has_chunk(j) ? mean : 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) v[j][i] -= subtrahend;
        }
    }
    const float rstd = rsqrtf(fmaf(reduction.sum(sum_of_squares(v)), per_column, args.eps));
    after_sums();
    constexpr bool IS_BF16 = OPERANDS == SUMI_OPERANDS_BF16, IS_E4M3 = OPERANDS == SUMI_OPERANDS_E4M3;
    const int64_t y_index = (int64_t)y_row * args.cols + ring.column(0);
    float largest = 0.0f;
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
        float shift[8];
        load_shift(j, shift);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[j][i] = fmaf(v[j][i] * rstd, factor[j][i], shift[i]);
            if (IS_E4M3) largest = fmaxf(largest, fabsf(v[j][i]));
        }
        if (IS_BF16) ring.store<false>((bf16*)args.y.data + y_index, j, pack8(v[j]));
    }
    if (IS_BF16) return;
    if (OPERANDS == SUMI_OPERANDS_INT8) {
        store_rotated(reduction, ring, args.cols, (uint8_t*)args.y.data, (float*)args.y_scales, y_row, v);
        return;
    }
    const float scale = e4m3_scale(reduction.max(largest)), inverse = 1.0f / scale;
    if (threadIdx.x == 0) ((float*)args.y_scales)[y_row] = scale;
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) ring.store((uint8_t*)args.y.data + y_index, j, pack8_e4m3(v[j], inverse));
}

// One row: x += factor * rms(b), rounded to bf16 and written to `to`. x then holds the rounded values as floats.
template <bool IS_STREAMED>
SUMI_DEVICE void gate_add_row(const sumi_norm_gate_add_args& args, row_reduction& reduction, const row_ring& ring,
                              const float (&b)[ROW_CHUNKS][8], const float (&factor)[ROW_CHUNKS][8],
                              float (&x)[ROW_CHUNKS][8], bf16* to)
{
    const float inverse_rms = rsqrtf(fmaf(reduction.sum(sum_of_squares(b)), 1.0f / (float)args.cols, args.eps));
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
#pragma unroll
        for (int i = 0; i < 8; i++) x[j][i] = fmaf(b[j][i] * inverse_rms, factor[j][i], x[j][i]);
        const uint4 packed = pack8(x[j]);
        unpack8(packed, x[j]);
        ring.store<IS_STREAMED>(to, j, packed);
    }
}

// The counter, if a table has a row per step. Otherwise nothing waits for it.
SUMI_DEVICE int32_t read_counter(uint64_t counter, int32_t strides)
{
    return strides != 0 ? *(const int32_t*)counter : 0;
}

// y = norm(x) * factor + shift, with factor = w * scale. For bf16 rows of a multiple of 8 columns.
template <int OPERANDS> SUMI_DEVICE void norm_modulate(const sumi_norm_modulate_args& args)
{
    extern __shared__ uint4 memory[];
    __shared__ __align__(16) float warp_results[2 * ROW_MAX_WARPS];
    row_reduction reduction(warp_results);
    const row_ring ring(memory, args.cols, 1);
    const int row_stride = (int)gridDim.x;
    const bf16* x = (const bf16*)args.x.data + (int64_t)args.x_row * args.cols + ring.column(0);
    const auto fetch = [&](int row, int stage) {
        if (row >= args.row_begin) ring.fetch(x + (int64_t)row * args.cols, stage, 0);
        ring.commit();
    };
    int row = args.row_end - 1 - (int)blockIdx.x;
#pragma unroll
    for (int stage = 0; stage < ROW_STAGES; stage++) fetch(row - stage * row_stride, stage);
    const int32_t counter = read_counter(args.counter, args.scale.stride | args.shift.stride);
    float factor[ROW_CHUNKS][8], shift[ROW_CHUNKS][8];
    {
        float scale[ROW_CHUNKS][8];
        load_vector(args.w, ring, factor);
        load_step_row(args.scale, counter, 1.0f, ring, scale);
        load_step_row(args.shift, counter, 0.0f, ring, shift);
        add_and_multiply(factor, args.w != 0 && args.plus_one ? 1.0f : 0.0f, scale);
    }
    for (int stage = 0; row >= args.row_begin; row -= row_stride, stage = stage + 1 == ROW_STAGES ? 0 : stage + 1) {
        float v[ROW_CHUNKS][8];
        ring.wait();
        ring.read(stage, 0, v);
        modulate_row<OPERANDS>(
            args, reduction, ring, args.y_row + row, v, factor,
            [&](int j, float(&chunk_shift)[8]) {
#pragma unroll
                for (int i = 0; i < 8; i++) chunk_shift[i] = shift[j][i];
            },
            [&] { fetch(row - ROW_STAGES * row_stride, stage); });
    }
}

// norm_gate_add followed by the norm_modulate that reads its result: x and b are read once, x and y are written. It
// calls the same functions on the same rounded x, so the bits are those of the two kernels. L2 evicts x first: the next
// product reads y, and x is read again only after two or three products. No released model has a shift here. So the
// shift is read again for every row: keeping 24 registers of zeros would cost a block per multiprocessor.
template <int OPERANDS> SUMI_DEVICE void norm_pair(const sumi_norm_pair_args& args)
{
    extern __shared__ uint4 memory[];
    __shared__ __align__(16) float warp_results[2 * ROW_MAX_WARPS];
    row_reduction reduction(warp_results);
    const int cols = args.add.cols, row_begin = args.add.row_begin;
    const row_ring ring(memory, cols, 2);
    const int row_stride = (int)gridDim.x;
    bf16* x = (bf16*)args.add.x.data + (int64_t)args.add.x_row * cols + ring.column(0);
    const bf16* b = (const bf16*)args.add.b.data + (int64_t)args.add.b_row * cols + ring.column(0);
    const auto fetch = [&](int row, int stage) {
        if (row >= row_begin) {
            ring.fetch(b + (int64_t)row * cols, stage, 0);
            ring.fetch(x + (int64_t)row * cols, stage, 1);
        }
        ring.commit();
    };
    int row = args.add.row_end - 1 - (int)blockIdx.x;
#pragma unroll
    for (int stage = 0; stage < ROW_STAGES; stage++) fetch(row - stage * row_stride, stage);
    const int32_t counter =
        read_counter(args.add.counter, args.add.gate.stride | args.norm.scale.stride | args.norm.shift.stride);
    float add_factor[ROW_CHUNKS][8], norm_factor[ROW_CHUNKS][8];
    {
        float gate[ROW_CHUNKS][8], scale[ROW_CHUNKS][8];
        load_vector(args.add.w, ring, add_factor);
        load_vector(args.norm.w, ring, norm_factor);
        load_step_row(args.add.gate, counter, 1.0f, ring, gate);
        load_step_row(args.norm.scale, counter, 1.0f, ring, scale);
        add_and_multiply(add_factor, 0.0f, gate);
        add_and_multiply(norm_factor, args.norm.w != 0 && args.norm.plus_one ? 1.0f : 0.0f, scale);
    }
    for (int stage = 0; row >= row_begin; row -= row_stride, stage = stage + 1 == ROW_STAGES ? 0 : stage + 1) {
        float v[ROW_CHUNKS][8];
        ring.wait();
        {
            float branch[ROW_CHUNKS][8];
            ring.read(stage, 0, branch);
            ring.read(stage, 1, v);
            gate_add_row<true>(args.add, reduction, ring, branch, add_factor, v, x + (int64_t)row * cols);
        }
        modulate_row<OPERANDS>(
            args.norm, reduction, ring, args.norm.y_row + row, v, norm_factor,
            [&](int j, float(&shift)[8]) {
#pragma unroll
                for (int i = 0; i < 8; i++) shift[i] = 0.0f;
                if (args.norm.shift.table != 0 && ring.has_chunk(j))
                    load8_step(args.norm.shift, counter, ring.column(j), shift);
            },
            [&] { fetch(row - ROW_STAGES * row_stride, stage); });
    }
}

// Writes a row as rotated int8, by a block of SUMI_ROWS_THREADS, from eight columns at a time: load(c, v) returns
// columns c .. c + 7, with zeros past the end. Columns past CHUNKS chunks per thread are loaded and rotated twice.
template <class Load>
SUMI_DEVICE void quantize_rotated(row_reduction& reduction, int cols, uint8_t* to, float* scales, int64_t row,
                                  const Load& load)
{
    constexpr int CHUNKS = 2;
    const sumi_rotation rotation;
    const int pitch = SUMI_ROTATED_COLS(cols), first_column = 8 * (int)threadIdx.x,
              column_stride = 8 * SUMI_ROWS_THREADS; // from one chunk of a thread to its next one
    float chunks[CHUNKS][8], largest = 0.0f;
    const auto load_and_rotate = [&](int c, float(&v)[8]) {
        load(c, v);
        rotation.rotate(v);
    };
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) { // a warp's chunks are one block of the rotation
#pragma unroll
        for (int i = 0; i < 8; i++) chunks[j][i] = 0.0f;
        if (first_column + j * column_stride < pitch) load_and_rotate(first_column + j * column_stride, chunks[j]);
        largest = max_magnitude(largest, chunks[j]);
    }
    for (int c = first_column + CHUNKS * column_stride; c < pitch; c += column_stride) {
        float v[8];
        load_and_rotate(c, v);
        largest = max_magnitude(largest, v);
    }
    largest = reduction.max(largest);
    const float inverse = 127.0f / fmaxf(largest, 1e-30f);
    if (threadIdx.x == 0) scales[row] = rotated_scale(largest);
    uint8_t* destination = to + row * pitch + (first_column & ~255) + rotation.column();
#pragma unroll
    for (int j = 0; j < CHUNKS; j++)
        if (first_column + j * column_stride < pitch)
            *(uint2*)(destination + j * column_stride) = rotation.pack(chunks[j], inverse);
    for (int c = first_column + CHUNKS * column_stride; c < pitch; c += column_stride) {
        float v[8];
        load_and_rotate(c, v);
        *(uint2*)(destination + (c - first_column)) = rotation.pack(v, inverse);
    }
}

// The same for any width and element type: a block per row, which reads the row two to four times (all but the first
// time from L1 or L2).
template <int OPERANDS> SUMI_DEVICE void norm_modulate_any(const sumi_norm_modulate_args& args)
{
    __shared__ __align__(16) float warp_results[2 * ROW_MAX_WARPS];
    row_reduction reduction(warp_results);
    const int32_t counter = *(const int32_t*)args.counter;
    for (int64_t row = args.row_begin + (int64_t)blockIdx.x; row < args.row_end; row += gridDim.x) {
        const int64_t x_index = (args.x_row + row) * args.cols, y_index = (args.y_row + row) * args.cols;
        float mean = 0.0f, squares = 0.0f;
        if (args.is_layer) {
            float sum = 0.0f;
            for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS)
                sum += load_element(args.x.data, args.x.is_float, x_index + c);
            mean = reduction.sum(sum) / (float)args.cols;
        }
        for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS) {
            const float deviation = load_element(args.x.data, args.x.is_float, x_index + c) - mean;
            squares = fmaf(deviation, deviation, squares);
        }
        const float rstd = 1.0f / sqrtf(reduction.sum(squares) / (float)args.cols + args.eps);
        const auto value = [&](int c) {
            float v = (load_element(args.x.data, args.x.is_float, x_index + c) - mean) * rstd;
            if (args.w != 0) v *= ((const float*)args.w)[c] + (args.plus_one ? 1.0f : 0.0f);
            if (args.scale.table != 0) v *= step_element(args.scale, counter, c);
            return args.shift.table != 0 ? v + step_element(args.shift, counter, c) : v;
        };
        if (OPERANDS == SUMI_OPERANDS_BF16) {
            for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS)
                store_element(args.y.data, args.y.is_float, y_index + c, value(c));
        } else if (OPERANDS == SUMI_OPERANDS_INT8) {
            quantize_rotated(reduction, args.cols, (uint8_t*)args.y.data, (float*)args.y_scales, args.y_row + row,
                             [&](int c, float(&v)[8]) {
#pragma unroll
                                 for (int i = 0; i < 8; i++) v[i] = c + i < args.cols ? value(c + i) : 0.0f;
                             });
        } else {
            float largest = 0.0f;
            for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS) largest = fmaxf(largest, fabsf(value(c)));
            const float scale = e4m3_scale(reduction.max(largest)), inverse = 1.0f / scale;
            if (threadIdx.x == 0) ((float*)args.y_scales)[args.y_row + row] = scale;
            for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS)
                store_e4m3((uint8_t*)args.y.data + y_index + c, value(c) * inverse);
        }
    }
}

// Block SUMI_ROW_THREADS_OF(cols), dynamic shared memory SUMI_ROW_SHARED_BYTES, any grid. MAX_THREADS and MIN_BLOCKS,
// the launch bounds, set the registers per thread.
#define SUMI_ROW_KERNEL(NAME, MAX_THREADS, MIN_BLOCKS, ARGS, CALL)                                                     \
    extern "C" __global__ void __launch_bounds__(MAX_THREADS, MIN_BLOCKS) NAME(const __grid_constant__ ARGS args)      \
    {                                                                                                                  \
        CALL;                                                                                                          \
    }
