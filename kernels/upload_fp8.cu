// Weights quantised to e4m3 with a float scale per row (output channel): scale = largest magnitude / 448, the largest
// e4m3; w = e4m3 * scale.
//
//   to [stack_rows][pitch] e4m3, columns from `cols` on zero; scales [stack_rows] float, in the rows' new order when they are interleaved
//   grid: a block per row of the piece, block SUMI_UPLOAD_THREADS, static shared memory. Two passes over the row; the second reads L2.
// From the file's own precision, not by way of bf16: one rounding less.
#include "upload.cuh"
#include <cuda_fp8.h>

extern "C" __global__ void __launch_bounds__(SUMI_UPLOAD_THREADS) sumi_upload_rows_fp8(const sumi_upload_args a)
{
    __shared__ float shared[SUMI_UPLOAD_THREADS / 32];
    const int64_t from = (int64_t)blockIdx.x * a.cols, row = upload_row(a, a.row_begin + (int)blockIdx.x);
    float most = 0.0f;
    for (int c = (int)threadIdx.x; c < a.cols; c += SUMI_UPLOAD_THREADS)
        most = fmaxf(most, fabsf(upload_at(a, from + c)));
    most = warp_max(most);
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = most;
    __syncthreads();
    most = shared[0];
    for (int w = 1; w < SUMI_UPLOAD_THREADS / 32; w++) most = fmaxf(most, shared[w]);
    const bool is_zero = !(most > 1e-30f); // or so small that the inverse would overflow
    const float scale = is_zero ? 1.0f : most / 448.0f, inverse = is_zero ? 0.0f : 448.0f / most;
    if (threadIdx.x == 0) ((float*)a.scales)[row] = scale;
    uint8_t* to = (uint8_t*)a.to + row * a.pitch;
    for (int c = (int)threadIdx.x; c < a.pitch; c += SUMI_UPLOAD_THREADS)
        to[c] = c < a.cols ? (uint8_t)__nv_cvt_float_to_fp8(upload_at(a, from + c) * inverse, __NV_SATFINITE, __NV_E4M3)
                           : (uint8_t)0;
}
