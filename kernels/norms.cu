// Norms of the rows of token matrices: RMS norm and layer norm with modulation, with SiLU, or with a gated residual,
// and the RMS norm of q and k heads with rotary embedding. Storage is bf16 or float, arithmetic float. All kernels are
// bound by bytes. The row of a step table (modulation) is found from the counter in device memory, so a launch captured
// in a graph is right for every step.
//   every kernel: block 256 (SUMI_ROWS_THREADS), static shared memory, but for sumi_norm_*_rows (rows.cuh).
//   Arguments: rows.h. Any grid, unless the kernel says otherwise.
#include "qk_norm.cuh"
#include "rows.cuh"

// ---- norm_modulate, norm_silu, norm_gate_add, norm_pair -------------------------------------------------------------
// y[y_row + r] = norm(x[x_row + r]) * w * scale + shift
//   x, y [..][cols]   w [cols] float   scale, shift: rows of step tables   w, scale and shift are optional
// RMS norm or layer norm. sumi_norm_modulate_rows: bf16 in and out, cols a multiple of 8 up to SUMI_ROW_MAX_COLS.
// _any: all other cases.
SUMI_ROW_KERNEL(sumi_norm_modulate_rows, SUMI_NORM_LIMIT, 1, sumi_norm_modulate_args,
                norm_modulate<SUMI_OPERANDS_BF16>(args))
SUMI_ROW_KERNEL(sumi_norm_modulate_any, SUMI_ROWS_THREADS, 4, sumi_norm_modulate_args,
                norm_modulate_any<SUMI_OPERANDS_BF16>(args))

// y = silu(norm(x) * w), for pixels of an image. Rows have few columns, so a warp processes several. LANES lanes of a
// warp hold a row, each with CHUNKS chunks of 8 columns: chunk j of a lane begins at column 8 (lane + j LANES). A group
// of LANES lanes goes through rows with the grid's stride, and the loads of its next row are in flight while it reduces
// this one. y may be x. The order of the sums depends on the columns only.
template <int LANES> SUMI_DEVICE float group_sum(float v)
{
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) v += __shfl_xor_sync(~0u, v, mask);
    return v;
}
template <int LANES, int CHUNKS> SUMI_DEVICE void norm_silu(const sumi_norm_modulate_args& args)
{
    constexpr int GROUPS = SUMI_ROWS_THREADS / LANES;
    const int lane = threadIdx.x % LANES, chunks = args.cols >> 3;
    const int64_t row_stride = (int64_t)gridDim.x * GROUPS;
    const float per_column = 1.0f / (float)args.cols;
    int64_t row = args.row_end - 1 - (int64_t)blockIdx.x * GROUPS - threadIdx.x / LANES;
    const bf16* x = (const bf16*)args.x.data + (int64_t)args.x_row * args.cols;
    bf16* y = (bf16*)args.y.data + (int64_t)args.y_row * args.cols;
    uint4 raw[CHUNKS], next[CHUNKS]; // the chunks of this row and of the next one
    const auto load_next = [&](int64_t next_row) {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            const int chunk = lane + j * LANES;
            next[j] = make_uint4(0, 0, 0, 0);
            if (next_row >= args.row_begin && chunk < chunks)
                next[j] = ((const uint4*)(x + next_row * args.cols))[chunk];
        }
    };
    load_next(row);
    float factor[CHUNKS][8];
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        const int chunk = lane + j * LANES;
#pragma unroll
        for (int i = 0; i < 8; i++) factor[j][i] = 1.0f;
        if (args.w != 0 && chunk < chunks) load8_float((const float*)args.w + 8 * chunk, factor[j]);
#pragma unroll
        for (int i = 0; i < 8; i++) factor[j][i] += args.w != 0 && args.plus_one ? 1.0f : 0.0f;
    }
    // The groups of a warp have neighbouring rows. All of them go on while one has a row left, because shuffles need
    // all lanes.
    while (__any_sync(~0u, row >= args.row_begin)) {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) raw[j] = next[j];
        load_next(row - row_stride);
        float mean = 0.0f, squares = 0.0f, v[8];
        if (args.is_layer) {
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < CHUNKS; j++) {
                unpack8(raw[j], v); // chunks past the end are zeros
#pragma unroll
                for (int i = 0; i < 8; i++) sum += v[i];
            }
            mean = __fmul_rn(group_sum<LANES>(sum), per_column);
        }
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            unpack8(raw[j], v);
            if (lane + j * LANES < chunks) {
#pragma unroll
                for (int i = 0; i < 8; i++) squares = fmaf(v[i] - mean, v[i] - mean, squares);
            }
        }
        const float rstd = rsqrtf(fmaf(group_sum<LANES>(squares), per_column, args.eps));
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            const int chunk = lane + j * LANES;
            unpack8(raw[j], v);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v[i] = (v[i] - mean) * rstd * factor[j][i];
                v[i] *= sigmoid(v[i]);
            }
            if (row >= args.row_begin && chunk < chunks) store8(y + row * args.cols + 8 * chunk, v);
        }
        row -= row_stride;
    }
}
#define SUMI_NORM_SILU(MAX_COLS, MIN_BLOCKS, LANES, CHUNKS)                                                            \
    extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS, MIN_BLOCKS)                                        \
        sumi_norm_silu_##MAX_COLS(const __grid_constant__ sumi_norm_modulate_args args)                                \
    {                                                                                                                  \
        norm_silu<LANES, CHUNKS>(args);                                                                                \
    }
// sumi_norm_silu_<N>: bf16 in and out, cols a multiple of 8 up to N. _any: all other cases. Without scale and shift.
SUMI_NORM_SILU(128, 4, 16, 1)
SUMI_NORM_SILU(256, 4, 32, 1)
SUMI_NORM_SILU(512, 3, 32, 2)
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS, 4)
    sumi_norm_silu_any(const __grid_constant__ sumi_norm_modulate_args args)
{
    __shared__ __align__(16) float warp_results[2 * ROW_MAX_WARPS];
    row_reduction reduction(warp_results);
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
        for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS) {
            float v = (load_element(args.x.data, args.x.is_float, x_index + c) - mean) * rstd;
            if (args.w != 0) v *= ((const float*)args.w)[c] + (args.plus_one ? 1.0f : 0.0f);
            store_element(args.y.data, args.y.is_float, y_index + c, v * sigmoid(v));
        }
    }
}

// x[x_row + r] += gate * (rms(b[b_row + r]) * w), in place   x, b [..][cols]
//   w [cols] float, gate: a row of a step table; both are optional. factor = w * gate.
// sumi_norm_gate_add_rows: bf16, cols a multiple of 8 up to SUMI_ROW_MAX_COLS. _any: all other cases.
SUMI_DEVICE void norm_gate_add(const sumi_norm_gate_add_args& args)
{
    extern __shared__ uint4 memory[];
    __shared__ __align__(16) float warp_results[2 * ROW_MAX_WARPS];
    row_reduction reduction(warp_results);
    const row_ring ring(memory, args.cols, 2);
    const int row_stride = (int)gridDim.x;
    bf16* x = (bf16*)args.x.data + (int64_t)args.x_row * args.cols + ring.column(0);
    const bf16* b = (const bf16*)args.b.data + (int64_t)args.b_row * args.cols + ring.column(0);
    const auto fetch = [&](int row, int stage) {
        if (row >= args.row_begin) {
            ring.fetch(b + (int64_t)row * args.cols, stage, 0);
            ring.fetch(x + (int64_t)row * args.cols, stage, 1);
        }
        ring.commit();
    };
    int row = args.row_end - 1 - (int)blockIdx.x;
#pragma unroll
    for (int stage = 0; stage < ROW_STAGES; stage++) fetch(row - stage * row_stride, stage);
    const int32_t counter = read_counter(args.counter, args.gate.stride);
    float factor[ROW_CHUNKS][8], gate[ROW_CHUNKS][8];
    load_vector(args.w, ring, factor);
    load_step_row(args.gate, counter, 1.0f, ring, gate);
    add_and_multiply(factor, 0.0f, gate);
    for (int stage = 0; row >= args.row_begin; row -= row_stride, stage = stage + 1 == ROW_STAGES ? 0 : stage + 1) {
        float branch[ROW_CHUNKS][8], v[ROW_CHUNKS][8];
        ring.wait();
        ring.read(stage, 0, branch);
        ring.read(stage, 1, v);
        gate_add_row<false>(args, reduction, ring, branch, factor, v, x + (int64_t)row * args.cols);
        fetch(row - ROW_STAGES * row_stride, stage);
    }
}
SUMI_ROW_KERNEL(sumi_norm_gate_add_rows, SUMI_NORM_LIMIT, 1, sumi_norm_gate_add_args, norm_gate_add(args))

// norm_gate_add and then norm_modulate (norm_pair in rows.cuh): bf16 in and out, cols a multiple of 8 up to
// SUMI_NORM_PAIR_MAX_COLS.
SUMI_ROW_KERNEL(sumi_norm_pair_rows, SUMI_NORM_LIMIT, 1, sumi_norm_pair_args, norm_pair<SUMI_OPERANDS_BF16>(args))

extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_norm_gate_add_any(const __grid_constant__ sumi_norm_gate_add_args args)
{
    __shared__ __align__(16) float warp_results[2 * ROW_MAX_WARPS];
    row_reduction reduction(warp_results);
    const int32_t counter = *(const int32_t*)args.counter;
    for (int64_t row = args.row_begin + (int64_t)blockIdx.x; row < args.row_end; row += gridDim.x) {
        const int64_t x_index = (args.x_row + row) * args.cols, b_index = (args.b_row + row) * args.cols;
        float squares = 0.0f;
        for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS) {
            const float v = load_element(args.b.data, args.b.is_float, b_index + c);
            squares = fmaf(v, v, squares);
        }
        const float inverse_rms = 1.0f / sqrtf(reduction.sum(squares) / (float)args.cols + args.eps);
        for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS) {
            float v = load_element(args.b.data, args.b.is_float, b_index + c) * inverse_rms;
            if (args.w != 0) v *= ((const float*)args.w)[c];
            if (args.gate.table != 0) v *= step_element(args.gate, counter, c);
            store_element(args.x.data, args.x.is_float, x_index + c,
                          load_element(args.x.data, args.x.is_float, x_index + c) + v);
        }
    }
}

// ---- qk_norm_rope ---------------------------------------------------------------------------------------------------
// In place, bf16 (qk_norm.cuh).
#define QK_NORM_ROPE(LANES)                                                                                            \
    SUMI_ROW_KERNEL(sumi_qk_norm_rope_pairs_##LANES, SUMI_ROWS_THREADS, 3, sumi_qk_norm_rope_args,                     \
                    (qk_norm_rope<LANES, false, false>(args)))                                                         \
    SUMI_ROW_KERNEL(sumi_qk_norm_rope_halves_##LANES, SUMI_ROWS_THREADS, 2, sumi_qk_norm_rope_args,                    \
                    (qk_norm_rope<LANES, true, false>(args)))
QK_NORM_ROPE(4)
QK_NORM_ROPE(8)
QK_NORM_ROPE(16)
QK_NORM_ROPE(32)

// The same for any head size and element type: a warp per head. A lane has whole pairs (without rotation: single
// columns), so no element is overwritten before it is read.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_qk_norm_rope_any(const __grid_constant__ sumi_qk_norm_rope_args args)
{
    constexpr int WARPS = SUMI_ROWS_THREADS / 32;
    const int lane = threadIdx.x & 31, heads = args.q_heads + args.kv_heads, pairs = args.rope != 0 ? args.dim / 2 : 0;
    const int pair_stride = args.is_halves ? 1 : 2, partner_offset = args.is_halves ? args.dim / 2 : 1; // in columns
    for (int64_t row = args.row_begin + (int64_t)blockIdx.x; row < args.row_end; row += gridDim.x) {
        for (int head = threadIdx.x >> 5; head < heads; head += WARPS) {
            const int64_t x_index = (args.x_row + row) * args.pitch + (int64_t)head * args.dim;
            const float* w = (const float*)(head < args.q_heads ? args.q_w : args.k_w);
            float squares = 0.0f;
            for (int c = lane; c < args.dim; c += 32) {
                const float v = load_element(args.x.data, args.x.is_float, x_index + c);
                squares = fmaf(v, v, squares);
            }
            const float inverse_rms =
                w != nullptr ? 1.0f / sqrtf(warp_sum(squares) / (float)args.dim + args.eps) : 1.0f;
            __syncwarp(); // all lanes have read the head before a lane writes
            const auto normed = [&](int c) {
                return load_element(args.x.data, args.x.is_float, x_index + c) * inverse_rms
                     * (w != nullptr ? w[c] : 1.0f);
            };
            for (int k = lane; k < pairs; k += 32) {
                const float cosine = ((const float*)args.rope)[(args.rope_row + row) * args.dim + 2 * k],
                            sine = ((const float*)args.rope)[(args.rope_row + row) * args.dim + 2 * k + 1];
                const float first = normed(k * pair_stride), second = normed(k * pair_stride + partner_offset);
                store_element(args.x.data, args.x.is_float, x_index + k * pair_stride, first * cosine - second * sine);
                store_element(args.x.data, args.x.is_float, x_index + k * pair_stride + partner_offset,
                              second * cosine + first * sine);
            }
            for (int c = 2 * pairs + lane; c < args.dim; c += 32)
                store_element(args.x.data, args.x.is_float, x_index + c, normed(c));
        }
    }
}
