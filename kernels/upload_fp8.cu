// Quantises a piece of a weight to e4m3 with a float scale per row (output channel): w = e4m3 * scale, scale = largest
// magnitude of the row / 448. 448 is the largest e4m3.
//   from   [row_count][cols] in the type args.type, dense
//   to     [stack_rows][pitch] e4m3, columns from `cols` on zero
//   scales [stack_rows] float, in the order of the rows of `to` (interleaved when is_gated)
//   grid   one block per row of the piece      block SUMI_UPLOAD_THREADS      shared static, 32 bytes
// Bound by the bus that brings the piece. Two passes over the row; the second reads L2. The row is quantised from the
// file's own precision, not from bf16, which saves one rounding.
#include "upload.cuh"
#include <cuda_fp8.h>

extern "C" __global__ void __launch_bounds__(SUMI_UPLOAD_THREADS) sumi_upload_rows_fp8(const sumi_upload_args args)
{
    __shared__ float warp_largest[SUMI_UPLOAD_THREADS / 32];
    const int64_t from = (int64_t)blockIdx.x * args.cols, row = upload_row(args, args.row_begin + (int)blockIdx.x);
    float largest = 0.0f;
    for (int c = (int)threadIdx.x; c < args.cols; c += SUMI_UPLOAD_THREADS)
        largest = fmaxf(largest, fabsf(upload_element(args, from + c)));
    largest = warp_max(largest);
    if ((threadIdx.x & 31) == 0) warp_largest[threadIdx.x >> 5] = largest;
    __syncthreads(); // the maxima of all warps are written
    largest = warp_largest[0];
    for (int w = 1; w < SUMI_UPLOAD_THREADS / 32; w++) largest = fmaxf(largest, warp_largest[w]);
    const bool is_zero = !(largest > 1e-30f); // also a row so small that the inverse would overflow
    const float scale = is_zero ? 1.0f : largest / 448.0f, inverse = is_zero ? 0.0f : 448.0f / largest;
    if (threadIdx.x == 0) ((float*)args.scales)[row] = scale;
    uint8_t* to = (uint8_t*)args.to + row * args.pitch;
    for (int c = (int)threadIdx.x; c < args.pitch; c += SUMI_UPLOAD_THREADS)
        to[c] = c < args.cols
                  ? (uint8_t)__nv_cvt_float_to_fp8(upload_element(args, from + c) * inverse, __NV_SATFINITE, __NV_E4M3)
                  : (uint8_t)0;
}
