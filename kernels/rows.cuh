// What rows.cu, rows_fp8.cu and rows_int8.cu share: norms of whole rows, with bf16, float, e4m3 or rotated int8 output.
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

SUMI_DEVICE float load_element(uint64_t data, int32_t is_float, int64_t at)
{
    return is_float ? ((const float*)data)[at] : __bfloat162float(((const bf16*)data)[at]);
}
SUMI_DEVICE void store_element(uint64_t data, int32_t is_float, int64_t at, float v)
{
    if (is_float) ((float*)data)[at] = v;
    else ((bf16*)data)[at] = __float2bfloat16(v);
}

// Reads eight consecutive floats, 16 bytes at a time where the address is 16-byte aligned.
SUMI_DEVICE void load8_float(const float* from, float (&v)[8])
{
    if (((uint64_t)from & 15) == 0) {
        const float4 a = ((const float4*)from)[0], b = ((const float4*)from)[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = from[i];
    }
}
SUMI_DEVICE void load8_step(const sumi_step& step, int32_t counter, int at, float (&v)[8])
{
    if (step.is_float) {
        load8_float((const float*)step.table + (int64_t)counter * step.stride + step.column + at, v);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = step_at(step, counter, at + i);
    }
}
SUMI_DEVICE void unpack8(const uint4& raw, float (&v)[8])
{
    const uint32_t w[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(w[i] << 16);
        v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
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
    const uint64_t at = (uint64_t)__cvta_generic_to_global(to);
    if (IS_STREAMED)
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0;\n@p st.global.cs.v4.b32 [%1], {%2, %3, %4, %5}; }"
                     :
                     : "r"((int)is_stored), "l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                     : "memory");
    else
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0;\n@p st.global.v4.b32 [%1], {%2, %3, %4, %5}; }"
                     :
                     : "r"((int)is_stored), "l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                     : "memory");
}

// Sums and maxima over a block. Two sets of partial results are used alternately. A thread can overwrite a set only
// after a barrier that all threads pass after reading it, so one barrier per reduction is enough. Entries of warps that
// the block does not have are zero. Maxima are of non-negative floats, which have the order of their bits, with NaN
// above all others.
constexpr int ROW_WARPS = 12; // largest number of warps per block
struct row_block {
    float* shared; // [2][ROW_WARPS], 16-byte aligned
    int turn;
    SUMI_DEVICE explicit row_block(float* memory) : shared(memory), turn(0)
    {
        if (threadIdx.x < 2 * ROW_WARPS && threadIdx.x % ROW_WARPS >= blockDim.x / 32) memory[threadIdx.x] = 0.0f;
    }
    template <bool IS_MAX> SUMI_DEVICE float reduce(float v)
    {
        float* at = shared + turn * ROW_WARPS;
        turn ^= 1;
        v = IS_MAX ? __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(v))) : warp_sum(v);
        if ((threadIdx.x & 31) == 0) at[threadIdx.x >> 5] = v;
        __syncthreads();
        const auto larger = [](float a, float b) {
            return __uint_as_float(::max(__float_as_uint(a), __float_as_uint(b)));
        };
        const auto four = [&](int i) {
            const float4 w = ((const float4*)at)[i];
            return IS_MAX ? larger(larger(w.x, w.y), larger(w.z, w.w)) : (w.x + w.y) + (w.z + w.w);
        };
        v = four(0);
        if (blockDim.x > 128) v = IS_MAX ? larger(v, larger(four(1), four(2))) : v + (four(1) + four(2));
        return v;
    }
    SUMI_DEVICE float sum(float v) { return reduce<false>(v); }
    SUMI_DEVICE float max(float v) { return reduce<true>(v); }
};

// The scale of an e4m3 row, from its largest magnitude. A row of zeros gets a tiny scale, so that 0 / scale is 0.
SUMI_DEVICE float e4m3_scale(float most) { return fmaxf(most, 1e-12f) / 448.0f; }

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
// rows in global memory point to the thread's first column; its chunk j lies offset(j) elements further.
struct row_ring {
    uint32_t at; // shared-memory address of this thread's chunk 0 in stage 0
    int left;    // columns from this thread's first column to the end of the row
    int matrices;
    SUMI_DEVICE row_ring(uint4* memory, int cols, int matrix_count)
        : at((uint32_t)__cvta_generic_to_shared(memory + threadIdx.x)), left(cols - column(0)), matrices(matrix_count)
    {
        // chunks past the row's end are zeros and stay zeros: nothing is copied there
        for (int i = 0; i < ROW_STAGES * matrices * ROW_CHUNKS; i++)
            if (!has(i % ROW_CHUNKS)) memory[i * blockDim.x + threadIdx.x] = make_uint4(0, 0, 0, 0);
    }
    SUMI_DEVICE int offset(int j) const { return 8 * j * (int)blockDim.x; }
    SUMI_DEVICE int column(int j) const { return 8 * (int)threadIdx.x + offset(j); }
    SUMI_DEVICE bool has(int j) const { return offset(j) < left; }
    SUMI_DEVICE uint32_t place(int stage, int matrix, int j) const
    {
        return at + 16 * blockDim.x * (uint32_t)((stage * matrices + matrix) * ROW_CHUNKS + j);
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
                         : "r"((int)has(j)), "r"(place(stage, matrix, j)), "l"(from)
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
                         : "r"(place(stage, matrix, j))
                         : "memory");
            unpack8(raw, v[j]);
        }
    }
    template <bool IS_STREAMED> SUMI_DEVICE void store(bf16* row, int j, const uint4& v) const
    {
        store16_if<IS_STREAMED>(has(j), row + offset(j), v);
    }
    SUMI_DEVICE void store(uint8_t* row, int j, const uint2& v) const
    {
        const uint64_t to = (uint64_t)__cvta_generic_to_global(row + offset(j));
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0;\n@p st.global.v2.b32 [%1], {%2, %3}; }"
                     :
                     : "r"((int)has(j)), "l"(to), "r"(v.x), "r"(v.y)
                     : "memory");
    }
};

// This thread's elements of a vector of floats (w = 0: ones) and of a row of a step table (no table: `otherwise`). The
// values are loaded and not used here, so that all loads are in flight together.
SUMI_DEVICE void load_vector(uint64_t w, const row_ring& ring, float (&v)[ROW_CHUNKS][8])
{
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[j][i] = 1.0f;
        if (w != 0 && ring.has(j)) load8_float((const float*)w + ring.column(j), v[j]);
    }
}
SUMI_DEVICE void load_steps(const sumi_step& step, int32_t counter, float otherwise, const row_ring& ring,
                            float (&v)[ROW_CHUNKS][8])
{
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[j][i] = otherwise;
        if (step.table != 0 && ring.has(j)) load8_step(step, counter, ring.column(j), v[j]);
    }
}
// factor = (w + more) * step
SUMI_DEVICE void multiply(float (&factor)[ROW_CHUNKS][8], float more, const float (&step)[ROW_CHUNKS][8])
{
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
#pragma unroll
        for (int i = 0; i < 8; i++) factor[j][i] = (factor[j][i] + more) * step[j][i];
    }
}
// Sum of squares of a thread's columns. Each chunk has its own sum, so that the chunks need not wait for each other.
SUMI_DEVICE float squares_of(const float (&v)[ROW_CHUNKS][8])
{
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
        float own = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) own = fmaf(v[j][i], v[j][i], own);
        squares += own;
    }
    return squares;
}

// Writes a row of floats as rotated int8, with its scale. Chunks past the row's end are zeros. The row's length in
// memory is a multiple of the rotation's blocks of 256 columns; a warp holds one such block per chunk.
SUMI_DEVICE void store_rotated(row_block& block, const row_ring& ring, int cols, uint8_t* to, float* scales, int row,
                               float (&v)[ROW_CHUNKS][8])
{
    const sumi_rotation rotation;
    float most = 0.0f;
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
        rotation.rotate(v[j]);
        most = max_of(most, v[j]);
    }
    most = block.max(most);
    const float inverse = 127.0f / fmaxf(most, 1e-30f);
    if (threadIdx.x == 0) scales[row] = rotated_scale(most);
    const int first = 8 * (int)(threadIdx.x & ~31u); // first column of this warp's block of 256
    uint8_t* at = to + (int64_t)row * SUMI_ROTATED_COLS(cols) + first + rotation.column();
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
        const uint2 packed = rotation.pack(v[j], inverse);
        if (first + ring.offset(j) < cols) *(uint2*)(at + ring.offset(j)) = packed;
    }
}

// ---- norm_modulate, norm_gate_add, norm_pair ------------------------------------------------------------------------
// One row, in place: v = norm(v) * factor + shift, written to row y_row of y. Columns past the end are zeros, with
// factor 1 and shift 0. shift_of(j, shift) returns the shifts of chunk j. then() is called after the barriers of the
// sums.
template <int OPERANDS, class SHIFT, class THEN>
SUMI_DEVICE void modulate_row(const sumi_norm_modulate_args& a, row_block& block, const row_ring& ring, int y_row,
                              float (&v)[ROW_CHUNKS][8], const float (&factor)[ROW_CHUNKS][8], const SHIFT& shift_of,
                              const THEN& then)
{
    const float per_column = 1.0f / (float)a.cols;
    if (a.is_layer) { // the mean first: E[x^2] - mean^2 would lose the variance of rows with a large mean
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < ROW_CHUNKS; j++)
            sum += ((v[j][0] + v[j][1]) + (v[j][2] + v[j][3])) + ((v[j][4] + v[j][5]) + (v[j][6] + v[j][7]));
        const float mean = __fmul_rn(block.sum(sum), per_column);
#pragma unroll
        for (int j = 0; j < ROW_CHUNKS; j++) {
            const float off = ring.has(j) ? mean : 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) v[j][i] -= off;
        }
    }
    const float rstd = rsqrtf(fmaf(block.sum(squares_of(v)), per_column, a.eps));
    then();
    constexpr bool IS_BF16 = OPERANDS == SUMI_OPERANDS_BF16, IS_E4M3 = OPERANDS == SUMI_OPERANDS_E4M3;
    const int64_t y = (int64_t)y_row * a.cols + ring.column(0);
    float most = 0.0f;
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
        float shift[8];
        shift_of(j, shift);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[j][i] = fmaf(v[j][i] * rstd, factor[j][i], shift[i]);
            if (IS_E4M3) most = fmaxf(most, fabsf(v[j][i]));
        }
        if (IS_BF16) ring.store<false>((bf16*)a.y.data + y, j, pack8(v[j]));
    }
    if (IS_BF16) return;
    if (OPERANDS == SUMI_OPERANDS_INT8) {
        store_rotated(block, ring, a.cols, (uint8_t*)a.y.data, (float*)a.y_scales, y_row, v);
        return;
    }
    const float scale = e4m3_scale(block.max(most)), inverse = 1.0f / scale;
    if (threadIdx.x == 0) ((float*)a.y_scales)[y_row] = scale;
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) ring.store((uint8_t*)a.y.data + y, j, pack8_e4m3(v[j], inverse));
}

// One row: x += factor * rms(b), rounded to bf16 and written to `to`. x then holds the rounded values as floats.
template <bool IS_STREAMED>
SUMI_DEVICE void gate_add_row(const sumi_norm_gate_add_args& a, row_block& block, const row_ring& ring,
                              const float (&b)[ROW_CHUNKS][8], const float (&factor)[ROW_CHUNKS][8],
                              float (&x)[ROW_CHUNKS][8], bf16* to)
{
    const float rms = rsqrtf(fmaf(block.sum(squares_of(b)), 1.0f / (float)a.cols, a.eps));
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++) {
#pragma unroll
        for (int i = 0; i < 8; i++) x[j][i] = fmaf(b[j][i] * rms, factor[j][i], x[j][i]);
        const uint4 packed = pack8(x[j]);
        unpack8(packed, x[j]);
        ring.store<IS_STREAMED>(to, j, packed);
    }
}

// The counter, if a table has a row per step. Otherwise nothing waits for it.
SUMI_DEVICE int32_t counter_of(uint64_t counter, int32_t strides)
{
    return strides != 0 ? *(const int32_t*)counter : 0;
}

// y = norm(x) * factor + shift, with factor = w * scale. For bf16 rows of a multiple of 8 columns.
template <int OPERANDS> SUMI_DEVICE void norm_modulate(const sumi_norm_modulate_args& a)
{
    extern __shared__ uint4 memory[];
    __shared__ __align__(16) float partial[2 * ROW_WARPS];
    row_block block(partial);
    const row_ring ring(memory, a.cols, 1);
    const int stride = (int)gridDim.x;
    const bf16* x = (const bf16*)a.x.data + (int64_t)a.x_row * a.cols + ring.column(0);
    const auto fetch = [&](int row, int stage) {
        if (row >= a.row_begin) ring.fetch(x + (int64_t)row * a.cols, stage, 0);
        ring.commit();
    };
    int r = a.row_end - 1 - (int)blockIdx.x;
#pragma unroll
    for (int s = 0; s < ROW_STAGES; s++) fetch(r - s * stride, s);
    const int32_t counter = counter_of(a.counter, a.scale.stride | a.shift.stride);
    float factor[ROW_CHUNKS][8], shift[ROW_CHUNKS][8];
    {
        float scale[ROW_CHUNKS][8];
        load_vector(a.w, ring, factor);
        load_steps(a.scale, counter, 1.0f, ring, scale);
        load_steps(a.shift, counter, 0.0f, ring, shift);
        multiply(factor, a.w != 0 && a.plus_one ? 1.0f : 0.0f, scale);
    }
    for (int stage = 0; r >= a.row_begin; r -= stride, stage = stage + 1 == ROW_STAGES ? 0 : stage + 1) {
        float v[ROW_CHUNKS][8];
        ring.wait();
        ring.read(stage, 0, v);
        modulate_row<OPERANDS>(
            a, block, ring, a.y_row + r, v, factor,
            [&](int j, float(&to)[8]) {
#pragma unroll
                for (int i = 0; i < 8; i++) to[i] = shift[j][i];
            },
            [&] { fetch(r - ROW_STAGES * stride, stage); });
    }
}

// norm_gate_add followed by the norm_modulate that reads its result: x and b are read once, x and y are written. It
// calls the same functions on the same rounded x, so the bits are those of the two kernels. L2 evicts x first: the next
// product reads y, and x is read again only after two or three products. No released model has a shift here. So the
// shift is read again for every row: keeping 24 registers of zeros would cost a block per multiprocessor.
template <int OPERANDS> SUMI_DEVICE void norm_pair(const sumi_norm_pair_args& a)
{
    extern __shared__ uint4 memory[];
    __shared__ __align__(16) float partial[2 * ROW_WARPS];
    row_block block(partial);
    const int cols = a.add.cols, row_begin = a.add.row_begin;
    const row_ring ring(memory, cols, 2);
    const int stride = (int)gridDim.x;
    bf16* x = (bf16*)a.add.x.data + (int64_t)a.add.x_row * cols + ring.column(0);
    const bf16* b = (const bf16*)a.add.b.data + (int64_t)a.add.b_row * cols + ring.column(0);
    const auto fetch = [&](int row, int stage) {
        if (row >= row_begin) {
            ring.fetch(b + (int64_t)row * cols, stage, 0);
            ring.fetch(x + (int64_t)row * cols, stage, 1);
        }
        ring.commit();
    };
    int r = a.add.row_end - 1 - (int)blockIdx.x;
#pragma unroll
    for (int s = 0; s < ROW_STAGES; s++) fetch(r - s * stride, s);
    const int32_t counter = counter_of(a.add.counter, a.add.gate.stride | a.norm.scale.stride | a.norm.shift.stride);
    float add[ROW_CHUNKS][8], factor[ROW_CHUNKS][8];
    {
        float gate[ROW_CHUNKS][8], scale[ROW_CHUNKS][8];
        load_vector(a.add.w, ring, add);
        load_vector(a.norm.w, ring, factor);
        load_steps(a.add.gate, counter, 1.0f, ring, gate);
        load_steps(a.norm.scale, counter, 1.0f, ring, scale);
        multiply(add, 0.0f, gate);
        multiply(factor, a.norm.w != 0 && a.norm.plus_one ? 1.0f : 0.0f, scale);
    }
    for (int stage = 0; r >= row_begin; r -= stride, stage = stage + 1 == ROW_STAGES ? 0 : stage + 1) {
        float v[ROW_CHUNKS][8];
        ring.wait();
        {
            float branch[ROW_CHUNKS][8];
            ring.read(stage, 0, branch);
            ring.read(stage, 1, v);
            gate_add_row<true>(a.add, block, ring, branch, add, v, x + (int64_t)r * cols);
        }
        modulate_row<OPERANDS>(
            a.norm, block, ring, a.norm.y_row + r, v, factor,
            [&](int j, float(&to)[8]) {
#pragma unroll
                for (int i = 0; i < 8; i++) to[i] = 0.0f;
                if (a.norm.shift.table != 0 && ring.has(j)) load8_step(a.norm.shift, counter, ring.column(j), to);
            },
            [&] { fetch(r - ROW_STAGES * stride, stage); });
    }
}

// Writes a row as rotated int8, by a block of SUMI_ROWS_THREADS, from eight columns at a time: load(c, v) returns
// columns c .. c + 7, with zeros past the end. Columns past CHUNKS chunks per thread are loaded and rotated twice.
template <class LOAD>
SUMI_DEVICE void quantize_rotated(row_block& group, int cols, uint8_t* to, float* scales, int64_t row, const LOAD& load)
{
    constexpr int CHUNKS = 2;
    const sumi_rotation rotation;
    const int pitch = SUMI_ROTATED_COLS(cols), c0 = 8 * (int)threadIdx.x, step = 8 * SUMI_ROWS_THREADS;
    float kept[CHUNKS][8], most = 0.0f;
    const auto rotated = [&](int c, float(&v)[8]) {
        load(c, v);
        rotation.rotate(v);
    };
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) { // a warp's chunks are one block of the rotation
#pragma unroll
        for (int i = 0; i < 8; i++) kept[j][i] = 0.0f;
        if (c0 + j * step < pitch) rotated(c0 + j * step, kept[j]);
        most = max_of(most, kept[j]);
    }
    for (int c = c0 + CHUNKS * step; c < pitch; c += step) {
        float v[8];
        rotated(c, v);
        most = max_of(most, v);
    }
    most = group.max(most);
    const float inverse = 127.0f / fmaxf(most, 1e-30f);
    if (threadIdx.x == 0) scales[row] = rotated_scale(most);
    uint8_t* at = to + row * pitch + (c0 & ~255) + rotation.column();
#pragma unroll
    for (int j = 0; j < CHUNKS; j++)
        if (c0 + j * step < pitch) *(uint2*)(at + j * step) = rotation.pack(kept[j], inverse);
    for (int c = c0 + CHUNKS * step; c < pitch; c += step) {
        float v[8];
        rotated(c, v);
        *(uint2*)(at + (c - c0)) = rotation.pack(v, inverse);
    }
}

// The same for any width and element type: a block per row, which reads the row two to four times (all but the first
// time from L1 or L2).
template <int OPERANDS> SUMI_DEVICE void norm_modulate_any(const sumi_norm_modulate_args& a)
{
    __shared__ __align__(16) float partial[2 * ROW_WARPS];
    row_block group(partial);
    const int32_t counter = *(const int32_t*)a.counter;
    for (int64_t r = a.row_begin + (int64_t)blockIdx.x; r < a.row_end; r += gridDim.x) {
        const int64_t x = (a.x_row + r) * a.cols, y = (a.y_row + r) * a.cols;
        float mean = 0.0f, squares = 0.0f;
        if (a.is_layer) {
            float sum = 0.0f;
            for (int c = threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS)
                sum += load_element(a.x.data, a.x.is_float, x + c);
            mean = group.sum(sum) / (float)a.cols;
        }
        for (int c = threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS) {
            const float d = load_element(a.x.data, a.x.is_float, x + c) - mean;
            squares = fmaf(d, d, squares);
        }
        const float rstd = 1.0f / sqrtf(group.sum(squares) / (float)a.cols + a.eps);
        const auto value = [&](int c) {
            float v = (load_element(a.x.data, a.x.is_float, x + c) - mean) * rstd;
            if (a.w != 0) v *= ((const float*)a.w)[c] + (a.plus_one ? 1.0f : 0.0f);
            if (a.scale.table != 0) v *= step_at(a.scale, counter, c);
            return a.shift.table != 0 ? v + step_at(a.shift, counter, c) : v;
        };
        if (OPERANDS == SUMI_OPERANDS_BF16) {
            for (int c = threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS)
                store_element(a.y.data, a.y.is_float, y + c, value(c));
        } else if (OPERANDS == SUMI_OPERANDS_INT8) {
            quantize_rotated(group, a.cols, (uint8_t*)a.y.data, (float*)a.y_scales, a.y_row + r,
                             [&](int c, float(&v)[8]) {
#pragma unroll
                                 for (int i = 0; i < 8; i++) v[i] = c + i < a.cols ? value(c + i) : 0.0f;
                             });
        } else {
            float most = 0.0f;
            for (int c = threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS) most = fmaxf(most, fabsf(value(c)));
            const float scale = e4m3_scale(group.max(most)), inverse = 1.0f / scale;
            if (threadIdx.x == 0) ((float*)a.y_scales)[a.y_row + r] = scale;
            for (int c = threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS)
                store_e4m3((uint8_t*)a.y.data + y + c, value(c) * inverse);
        }
    }
}

// Block SUMI_ROW_THREADS_OF(cols), dynamic shared memory SUMI_ROW_SHARED_BYTES, any grid. LIMIT: the launch bound in
// threads, which sets the registers per thread.
#define SUMI_ROW_KERNEL(NAME, LIMIT, BLOCKS, ARGS, CALL)                                                               \
    extern "C" __global__ void __launch_bounds__(LIMIT, BLOCKS) NAME(const __grid_constant__ ARGS args) { CALL; }
