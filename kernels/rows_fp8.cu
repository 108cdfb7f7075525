// Rows to e4m3 with one float scale per row, (largest magnitude) / 448, either in the kernel that computes them
// (norm_modulate) or in a separate one (quantize_rows). Built for compute_89: older devices cannot convert to e4m3.
// Scales are per row because activations of diffusion transformers have outlier rows and columns. Launches: rows.h.
#define SUMI_ROWS_FP8
#include "rows.cuh"

// y = e4m3(norm(x) * w * scale + shift), see norm_modulate in rows.cu.
SUMI_ROW_KERNEL(sumi_norm_modulate_fp8_rows, SUMI_NORM_FP8_LIMIT, 1, sumi_norm_modulate_args,
                norm_modulate<SUMI_OPERANDS_E4M3>(args))
SUMI_ROW_KERNEL(sumi_norm_modulate_fp8_any, SUMI_ROWS_THREADS, 4, sumi_norm_modulate_args,
                norm_modulate_any<SUMI_OPERANDS_E4M3>(args))
SUMI_ROW_KERNEL(sumi_norm_pair_fp8_rows, SUMI_NORM_LIMIT, 1, sumi_norm_pair_args, norm_pair<SUMI_OPERANDS_E4M3>(args))

// y[r] = e4m3(x[r] / scales[r])
//   x  [rows][ldx] bf16   y  [rows][cols] e4m3   scales  [rows] float
//   block 256, any grid; a block processes one row at a time
// Bound by bytes. Up to 10240 columns (the widest rows of the transformers) stay in registers between the maximum and
// the conversion. Columns past these are read a second time.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS, 4)
    sumi_quantize_rows(const __grid_constant__ sumi_quantize_rows_args a)
{
    constexpr int CHUNKS = 5;
    __shared__ __align__(16) float partial[2 * ROW_WARPS];
    row_block group(partial);
    const bool is_vector = ((a.x | (uint64_t)(a.ldx * 2)) & 15) == 0 && ((a.y | (uint64_t)a.cols) & 7) == 0;
    const int chunks = is_vector ? a.cols >> 3 : 0;
    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const bf16* x = (const bf16*)a.x + r * a.ldx;
        uint8_t* y = (uint8_t*)a.y + r * a.cols;
        uint4 raw[CHUNKS];
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            const int c = threadIdx.x + j * SUMI_ROWS_THREADS;
            raw[j] = make_uint4(0, 0, 0, 0);
            if (c < chunks) raw[j] = ((const uint4*)x)[c];
        }
        float most = 0.0f;
        const auto look = [&](const uint4& chunk) {
            float v[8];
            unpack8(chunk, v);
#pragma unroll
            for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(v[i]));
        };
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) look(raw[j]); // chunks past the end are zeros
        for (int c = CHUNKS * SUMI_ROWS_THREADS + threadIdx.x; c < chunks; c += SUMI_ROWS_THREADS)
            look(((const uint4*)x)[c]);
        for (int c = 8 * chunks + threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS)
            most = fmaxf(most, fabsf(__bfloat162float(x[c])));
        const float scale = e4m3_scale(group.max(most)), inverse = 1.0f / scale;
        if (threadIdx.x == 0) ((float*)a.scales)[r] = scale;
        const auto write = [&](const uint4& chunk, int c) {
            float v[8];
            unpack8(chunk, v);
            *(uint2*)(y + 8 * c) = pack8_e4m3(v, inverse);
        };
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            const int c = threadIdx.x + j * SUMI_ROWS_THREADS;
            if (c < chunks) write(raw[j], c);
        }
        for (int c = CHUNKS * SUMI_ROWS_THREADS + threadIdx.x; c < chunks; c += SUMI_ROWS_THREADS)
            write(((const uint4*)x)[c], c);
        for (int c = 8 * chunks + threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS)
            store_e4m3(y + c, __bfloat162float(x[c]) * inverse);
    }
}
