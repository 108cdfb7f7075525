// What rows.cu and rows_fp8.cu share: norms of whole rows, with bf16, float or e4m3 output.
//
// A row belongs to a group of lanes: a warp up to 1024 columns, a block of 256 threads above. Each lane keeps CHUNKS
// chunks of 8 columns in registers, chunk j of lane l at column 8 (l + j lanes): every load and store of a warp is 512
// consecutive bytes. Groups walk over rows with the grid's stride, so that w * scale and shift are read once per group
// (not 30 KB of L1 per 7.5 KB row) and the next row's loads are in flight while this one is reduced. The first row's
// loads go out before those of w and scale, which wait for the counter: these kernels last 20 microseconds, so each
// such wait is a few per cent. Rows are walked from the last to the first: the op before left its last rows in L2, and
// the op behind begins with the first ones.
// The order of the sums follows from the columns alone, never from the grid or the range of rows.
#pragma once
#include "common.cuh"
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

// Eight floats of a vector; 16 bytes at a time where it is aligned.
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
    return make_uint4(pack2_bf16(v[0], v[1]), pack2_bf16(v[2], v[3]), pack2_bf16(v[4], v[5]), pack2_bf16(v[6], v[7]));
}

// Sums and maxima over the group that owns a row. WARPS 1: a warp. WARPS 8: the block, with two sets of partial results
// in turn: a thread can write the next but one only after a barrier that all threads pass after reading these, so one
// barrier per reduction is enough.
template <int WARPS> struct row_group {
    float* shared; // [2][WARPS]
    int turn;
    template <bool IS_MAX> SUMI_DEVICE float reduce(float v)
    {
        v = IS_MAX ? warp_max(v) : warp_sum(v);
        if (WARPS == 1) return v;
        float* at = shared + turn * WARPS;
        turn ^= 1;
        if ((threadIdx.x & 31) == 0) at[threadIdx.x >> 5] = v;
        __syncthreads();
        v = at[0];
#pragma unroll
        for (int w = 1; w < WARPS; w++) v = IS_MAX ? fmaxf(v, at[w]) : v + at[w];
        return v;
    }
    SUMI_DEVICE float sum(float v) { return reduce<false>(v); }
    SUMI_DEVICE float max(float v) { return reduce<true>(v); }
};

// The scale of an e4m3 row from its largest magnitude. A row of zeros gets a tiny one, so that 0 / scale is 0.
SUMI_DEVICE float e4m3_scale(float most) { return fmaxf(most, 1e-12f) / 448.0f; }

#ifdef SUMI_ROWS_FP8
// Two floats to e4m3, saturating at 448: e4m3 has no infinity. NaN stays NaN.
SUMI_DEVICE uint32_t pack2_e4m3(float low, float high)
{
    uint16_t v;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(v) : "f"(high), "f"(low));
    return v;
}
SUMI_DEVICE void store8_e4m3(uint8_t* to, const float (&v)[8], float factor)
{
    *(uint2*)to = make_uint2(pack2_e4m3(v[0] * factor, v[1] * factor) | pack2_e4m3(v[2] * factor, v[3] * factor) << 16,
                             pack2_e4m3(v[4] * factor, v[5] * factor) | pack2_e4m3(v[6] * factor, v[7] * factor) << 16);
}
SUMI_DEVICE void store_e4m3(uint8_t* to, float v) { *to = (uint8_t)pack2_e4m3(v, 0.0f); }
#else
// never called: e4m3 rows are written by rows_fp8.cu
SUMI_DEVICE void store8_e4m3(uint8_t*, const float (&)[8], float) {}
SUMI_DEVICE void store_e4m3(uint8_t*, float) {}
#endif

// IS_STREAMED: it is not read again soon, and gives way to what is.
template <int WARPS, int CHUNKS, bool IS_STREAMED = false>
SUMI_DEVICE void load_row(const bf16* row, int chunks, uint4 (&raw)[CHUNKS])
{
    const int lane = threadIdx.x % (32 * WARPS);
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        const int chunk = lane + j * 32 * WARPS;
        raw[j] = make_uint4(0, 0, 0, 0);
        if (chunk < chunks) raw[j] = IS_STREAMED ? __ldcs((const uint4*)row + chunk) : ((const uint4*)row)[chunk];
    }
}

// The part of a vector of floats (0: ones), and of a row of a step table (none: `otherwise`), that belongs to a lane's
// chunks. Loaded and not touched: all go out together.
template <int WARPS, int CHUNKS> SUMI_DEVICE void load_vector(uint64_t w, int chunks, float (&v)[CHUNKS][8])
{
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        const int chunk = threadIdx.x % (32 * WARPS) + j * 32 * WARPS;
#pragma unroll
        for (int i = 0; i < 8; i++) v[j][i] = 1.0f;
        if (w != 0 && chunk < chunks) load8_float((const float*)w + 8 * chunk, v[j]);
    }
}
template <int WARPS, int CHUNKS>
SUMI_DEVICE void load_steps(const sumi_step& step, int32_t counter, float otherwise, int chunks, float (&v)[CHUNKS][8])
{
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        const int chunk = threadIdx.x % (32 * WARPS) + j * 32 * WARPS;
#pragma unroll
        for (int i = 0; i < 8; i++) v[j][i] = otherwise;
        if (step.table != 0 && chunk < chunks) load8_step(step, counter, 8 * chunk, v[j]);
    }
}
// factor = (w + more) * step
template <int CHUNKS> SUMI_DEVICE void multiply(float (&factor)[CHUNKS][8], float more, const float (&step)[CHUNKS][8])
{
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
#pragma unroll
        for (int i = 0; i < 8; i++) factor[j][i] = (factor[j][i] + more) * step[j][i];
    }
}

// One row: y = norm(x) * factor + shift. y_row: its row in y.
template <int WARPS, int CHUNKS, bool IS_FP8>
SUMI_DEVICE void modulate_row(const sumi_norm_modulate_args& a, row_group<WARPS>& group, int64_t y_row,
                              const uint4 (&raw)[CHUNKS], const float (&factor)[CHUNKS][8],
                              const float (&shift)[CHUNKS][8])
{
    constexpr int LANES = 32 * WARPS;
    const int lane = threadIdx.x % LANES, chunks = a.cols >> 3;
    const float per_column = 1.0f / (float)a.cols;
    float mean = 0.0f, squares = 0.0f;
    if (a.is_layer) { // the mean first: E[x^2] - mean^2 loses the variance of rows with a large mean
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            float v[8];
            unpack8(raw[j], v); // chunks beyond the end are zero
#pragma unroll
            for (int i = 0; i < 8; i++) sum += v[i];
        }
        mean = __fmul_rn(group.sum(sum), per_column);
    }
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        float v[8];
        unpack8(raw[j], v);
        if (lane + j * LANES < chunks) {
#pragma unroll
            for (int i = 0; i < 8; i++) squares = fmaf(v[i] - mean, v[i] - mean, squares);
        }
    }
    const float rstd = rsqrtf(fmaf(group.sum(squares), per_column, a.eps));
    const auto value = [&](int j, float(&v)[8]) {
        unpack8(raw[j], v);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = fmaf((v[i] - mean) * rstd, factor[j][i], shift[j][i]);
    };
    float scale = 1.0f, inverse = 1.0f, v[8];
    if (IS_FP8) {
        float most = 0.0f;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            value(j, v);
#pragma unroll
            for (int i = 0; i < 8; i++) most = lane + j * LANES < chunks ? fmaxf(most, fabsf(v[i])) : most;
        }
        scale = e4m3_scale(group.max(most));
        inverse = 1.0f / scale;
        if (lane == 0) ((float*)a.y_scales)[y_row] = scale;
    }
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        const int chunk = lane + j * LANES;
        const int64_t at = y_row * a.cols + 8 * chunk;
        value(j, v); // a second time for e4m3: cheaper than the registers to keep it
        if (chunk >= chunks) continue;
        if (IS_FP8) store8_e4m3((uint8_t*)a.y.data + at, v, inverse);
        else store8((bf16*)a.y.data + at, v);
    }
}

// y = norm(x) * factor + shift, factor = w * scale. bf16 rows of a multiple of 8 columns, at most 256 WARPS CHUNKS.
template <int WARPS, int CHUNKS, bool IS_FP8> SUMI_DEVICE void norm_modulate(const sumi_norm_modulate_args& a)
{
    constexpr int LANES = 32 * WARPS, GROUPS = SUMI_ROWS_THREADS / LANES;
    __shared__ float shared[2 * WARPS];
    row_group<WARPS> group = {shared, 0};
    const int chunks = a.cols >> 3;
    const int64_t stride = (int64_t)gridDim.x * GROUPS;
    int64_t r = a.row_end - 1 - (int64_t)blockIdx.x * GROUPS - threadIdx.x / LANES;
    const bf16* x = (const bf16*)a.x.data + (int64_t)a.x_row * a.cols;
    uint4 next[CHUNKS];
    if (r >= a.row_begin) load_row<WARPS, CHUNKS>(x + r * a.cols, chunks, next);
    const int32_t counter = *(const int32_t*)a.counter;
    float factor[CHUNKS][8], scale[CHUNKS][8], shift[CHUNKS][8];
    load_vector<WARPS>(a.w, chunks, factor);
    load_steps<WARPS>(a.scale, counter, 1.0f, chunks, scale);
    load_steps<WARPS>(a.shift, counter, 0.0f, chunks, shift);
    multiply(factor, a.w != 0 && a.plus_one ? 1.0f : 0.0f, scale);
    for (; r >= a.row_begin; r -= stride) {
        uint4 raw[CHUNKS];
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) raw[j] = next[j];
        if (r - stride >= a.row_begin) load_row<WARPS, CHUNKS>(x + (r - stride) * a.cols, chunks, next);
        modulate_row<WARPS, CHUNKS, IS_FP8>(a, group, a.y_row + r, raw, factor, shift);
    }
}

// One row, in registers: x += factor * rms(b), rounded. Chunks beyond the end are zero and stay so.
template <int WARPS, int CHUNKS>
SUMI_DEVICE void gate_add_row(const sumi_norm_gate_add_args& a, row_group<WARPS>& group, const uint4 (&b)[CHUNKS],
                              const float (&factor)[CHUNKS][8], uint4 (&x)[CHUNKS])
{
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        float v[8];
        unpack8(b[j], v);
#pragma unroll
        for (int i = 0; i < 8; i++) squares = fmaf(v[i], v[i], squares);
    }
    const float rms = rsqrtf(fmaf(group.sum(squares), 1.0f / (float)a.cols, a.eps));
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        float v[8], to[8];
        unpack8(b[j], v);
        unpack8(x[j], to);
#pragma unroll
        for (int i = 0; i < 8; i++) to[i] = fmaf(v[i] * rms, factor[j][i], to[i]);
        x[j] = pack8(to);
    }
}

// norm_gate_add and the norm_modulate behind it that reads what it wrote: x and b are read once, x and y written. The
// same functions on the same rounded x, so the bits of the two kernels. x goes out of L2 first: the product behind
// reads y, and x is wanted again only after two or three products.
template <int WARPS, int CHUNKS, bool IS_FP8> SUMI_DEVICE void norm_pair(const sumi_norm_pair_args& a)
{
    constexpr int LANES = 32 * WARPS, GROUPS = SUMI_ROWS_THREADS / LANES;
    __shared__ float shared[2 * WARPS];
    row_group<WARPS> group = {shared, 0};
    const int lane = threadIdx.x % LANES, cols = a.add.cols, chunks = cols >> 3, row_begin = a.add.row_begin;
    const int64_t stride = (int64_t)gridDim.x * GROUPS;
    int64_t r = a.add.row_end - 1 - (int64_t)blockIdx.x * GROUPS - threadIdx.x / LANES;
    bf16* x = (bf16*)a.add.x.data + (int64_t)a.add.x_row * cols;
    const bf16* b = (const bf16*)a.add.b.data + (int64_t)a.add.b_row * cols;
    uint4 next_x[CHUNKS], next_b[CHUNKS];
    if (r >= row_begin) {
        load_row<WARPS, CHUNKS, true>(b + r * cols, chunks, next_b);
        load_row<WARPS, CHUNKS, true>(x + r * cols, chunks, next_x);
    }
    const int32_t counter = *(const int32_t*)a.add.counter;
    float add[CHUNKS][8], factor[CHUNKS][8], shift[CHUNKS][8];
    {
        float gate[CHUNKS][8], scale[CHUNKS][8];
        load_vector<WARPS>(a.add.w, chunks, add);
        load_vector<WARPS>(a.norm.w, chunks, factor);
        load_steps<WARPS>(a.add.gate, counter, 1.0f, chunks, gate);
        load_steps<WARPS>(a.norm.scale, counter, 1.0f, chunks, scale);
        load_steps<WARPS>(a.norm.shift, counter, 0.0f, chunks, shift);
        multiply(add, 0.0f, gate);
        multiply(factor, a.norm.w != 0 && a.norm.plus_one ? 1.0f : 0.0f, scale);
    }
    for (; r >= row_begin; r -= stride) {
        uint4 raw_x[CHUNKS], raw_b[CHUNKS];
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) raw_x[j] = next_x[j], raw_b[j] = next_b[j];
        if (r - stride >= row_begin) {
            load_row<WARPS, CHUNKS, true>(b + (r - stride) * cols, chunks, next_b);
            load_row<WARPS, CHUNKS, true>(x + (r - stride) * cols, chunks, next_x);
        }
        gate_add_row<WARPS, CHUNKS>(a.add, group, raw_b, add, raw_x);
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            if (lane + j * LANES < chunks) __stcs((uint4*)(x + r * cols) + lane + j * LANES, raw_x[j]);
        }
        modulate_row<WARPS, CHUNKS, IS_FP8>(a.norm, group, a.norm.y_row + r, raw_x, factor, shift);
    }
}

// The same for any width and element: a block a row, which it reads two to four times (all but the first from L1 or
// L2).
template <bool IS_FP8> SUMI_DEVICE void norm_modulate_any(const sumi_norm_modulate_args& a)
{
    __shared__ float shared[2 * SUMI_ROWS_THREADS / 32];
    row_group<SUMI_ROWS_THREADS / 32> group = {shared, 0};
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
        if (!IS_FP8) {
            for (int c = threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS)
                store_element(a.y.data, a.y.is_float, y + c, value(c));
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

// The kernels by the most columns they take; BODY(WARPS, CHUNKS) is the call, WIDE the blocks per multiprocessor that
// four chunks per lane leave registers for.
#define SUMI_ROW_KERNEL(NAME, COLS, BLOCKS, ARGS, CALL)                                                                \
    extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS, BLOCKS)                                            \
        NAME##_##COLS(const __grid_constant__ ARGS args)                                                               \
    {                                                                                                                  \
        CALL;                                                                                                          \
    }
#define SUMI_ROW_KERNELS(NAME, ARGS, BODY, WIDE)                                                                       \
    SUMI_ROW_KERNEL(NAME, 256, 4, ARGS, BODY(1, 1))                                                                    \
    SUMI_ROW_KERNEL(NAME, 512, 3, ARGS, BODY(1, 2))                                                                    \
    SUMI_ROW_KERNEL(NAME, 1024, WIDE, ARGS, BODY(1, 4))                                                                \
    SUMI_ROW_KERNEL(NAME, 2048, 4, ARGS, BODY(8, 1))                                                                   \
    SUMI_ROW_KERNEL(NAME, 4096, 3, ARGS, BODY(8, 2))                                                                   \
    SUMI_ROW_KERNEL(NAME, 8192, WIDE, ARGS, BODY(8, 4))

// norm_pair: registers for three vectors and two rows, now and next.
#define SUMI_NORM_PAIR_KERNELS(NAME, IS_FP8)                                                                           \
    SUMI_ROW_KERNEL(NAME, 256, 3, sumi_norm_pair_args, (norm_pair<1, 1, IS_FP8>(args)))                                \
    SUMI_ROW_KERNEL(NAME, 512, 2, sumi_norm_pair_args, (norm_pair<1, 2, IS_FP8>(args)))                                \
    SUMI_ROW_KERNEL(NAME, 1024, 1, sumi_norm_pair_args, (norm_pair<1, 4, IS_FP8>(args)))                               \
    SUMI_ROW_KERNEL(NAME, 2048, 3, sumi_norm_pair_args, (norm_pair<8, 1, IS_FP8>(args)))                               \
    SUMI_ROW_KERNEL(NAME, 4096, 2, sumi_norm_pair_args, (norm_pair<8, 2, IS_FP8>(args)))
