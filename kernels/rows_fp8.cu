// Rows to e4m3 with one float scale per row, (largest magnitude) / 448, either in the kernel that computes them
// (norm_modulate) or in a separate one (quantize_rows); and q and k of attention to e4m3 without scales. Built for
// compute_89: older devices cannot convert to e4m3. Scales are per row because activations of diffusion transformers
// have outlier rows and columns. Launches: rows.h.
#define SUMI_ROWS_FP8
#include "qk_norm.cuh"
#include "rows.cuh"

// y = e4m3(norm(x) * w * scale + shift), see norm_modulate in norms.cu.
SUMI_ROW_KERNEL(sumi_norm_modulate_fp8_rows, SUMI_NORM_FP8_LIMIT, 1, sumi_norm_modulate_args,
                norm_modulate<SUMI_OPERANDS_E4M3>(args))
SUMI_ROW_KERNEL(sumi_norm_modulate_fp8_any, SUMI_ROWS_THREADS, 4, sumi_norm_modulate_args,
                norm_modulate_any<SUMI_OPERANDS_E4M3>(args))
SUMI_ROW_KERNEL(sumi_norm_pair_fp8_rows, SUMI_NORM_LIMIT, 1, sumi_norm_pair_args, norm_pair<SUMI_OPERANDS_E4M3>(args))

// q and k of heads of 96 or 128 channels, normed, rotated and written as e4m3 in place (qk_norm.cuh).
SUMI_ROW_KERNEL(sumi_qk_norm_rope_fp8_pairs_16, SUMI_ROWS_THREADS, 3, sumi_qk_norm_rope_args,
                (qk_norm_rope<16, false, true>(args)))
SUMI_ROW_KERNEL(sumi_qk_norm_rope_fp8_halves_16, SUMI_ROWS_THREADS, 2, sumi_qk_norm_rope_args,
                (qk_norm_rope<16, true, true>(args)))

// y[r] = e4m3(k[r]) | v[r], the kept keys and values of attention in e4m3 (attention.h), with x[r] = k[r] | v[r]
//   x  bf16, heads of 128 channels   y  the same, but a head of k has its e4m3 in the first 128 of its 256 bytes; the
//   other bytes of it stay
//   block 256, any grid; a block processes one row at a time
// Without a scale, as qk_norm_rope writes e4m3, but k was rounded to bf16 before. One value in 16 then lies halfway
// between two of e4m3; rounded to even, as many go up as down.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_copy_kept_fp8(const __grid_constant__ sumi_copy_columns_args args)
{
    constexpr int HEAD_CHUNKS = 16; // chunks of 16 bytes, of bf16
    const int chunks = (int)(args.row_bytes / 16), k_chunks = chunks / 2;
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const uint4* x = (const uint4*)(args.x + row * args.x_pitch);
        uint4* y = (uint4*)(args.y + row * args.y_pitch);
        for (int i = threadIdx.x; i < chunks; i += SUMI_ROWS_THREADS) {
            if (i < k_chunks) {
                float v[8];
                unpack8(x[i], v);
                ((uint2*)(y + i / HEAD_CHUNKS * HEAD_CHUNKS))[i % HEAD_CHUNKS] = pack8_e4m3(v, 1.0f);
            } else y[i] = x[i];
        }
    }
}

// y[r] = e4m3(x[r] / scales[r])
//   x  [rows][ldx] bf16   y  [rows][cols] e4m3   scales  [rows] float
//   block 256, any grid; a block processes one row at a time
// Bound by bytes. Up to 10240 columns (the widest rows of the transformers) stay in registers between the maximum and
// the conversion. Columns past these are read a second time.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS, 4)
    sumi_quantize_rows(const __grid_constant__ sumi_quantize_rows_args args)
{
    constexpr int CHUNKS = 5;
    __shared__ __align__(16) float warp_results[2 * ROW_MAX_WARPS];
    row_reduction reduction(warp_results);
    const bool is_vector = ((args.x | (uint64_t)(args.ldx * 2)) & 15) == 0 && ((args.y | (uint64_t)args.cols) & 7) == 0;
    const int chunk_count = is_vector ? args.cols >> 3 : 0;
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const bf16* x = (const bf16*)args.x + row * args.ldx;
        uint8_t* y = (uint8_t*)args.y + row * args.cols;
        uint4 chunks[CHUNKS];
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            const int chunk = threadIdx.x + j * SUMI_ROWS_THREADS;
            chunks[j] = make_uint4(0, 0, 0, 0);
            if (chunk < chunk_count) chunks[j] = ((const uint4*)x)[chunk];
        }
        float largest = 0.0f;
        const auto include = [&](const uint4& packed) {
            float v[8];
            unpack8(packed, v);
#pragma unroll
            for (int i = 0; i < 8; i++) largest = fmaxf(largest, fabsf(v[i]));
        };
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) include(chunks[j]); // chunks past the end are zeros
        for (int chunk = CHUNKS * SUMI_ROWS_THREADS + threadIdx.x; chunk < chunk_count; chunk += SUMI_ROWS_THREADS)
            include(((const uint4*)x)[chunk]);
        for (int c = 8 * chunk_count + threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS)
            largest = fmaxf(largest, fabsf(__bfloat162float(x[c])));
        const float scale = e4m3_scale(reduction.max(largest)), inverse = 1.0f / scale;
        if (threadIdx.x == 0) ((float*)args.scales)[row] = scale;
        const auto write = [&](const uint4& packed, int chunk) {
            float v[8];
            unpack8(packed, v);
            *(uint2*)(y + 8 * chunk) = pack8_e4m3(v, inverse);
        };
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            const int chunk = threadIdx.x + j * SUMI_ROWS_THREADS;
            if (chunk < chunk_count) write(chunks[j], chunk);
        }
        for (int chunk = CHUNKS * SUMI_ROWS_THREADS + threadIdx.x; chunk < chunk_count; chunk += SUMI_ROWS_THREADS)
            write(((const uint4*)x)[chunk], chunk);
        for (int c = 8 * chunk_count + threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS)
            store_e4m3(y + c, __bfloat162float(x[c]) * inverse);
    }
}
