// Weights to rotated int8 with a float scale per row (output channel): (w / balance) R = int8 * scale, R as in
// rotate.cuh, in floats.
//
//   to [stack_rows][pitch] int8, pitch a multiple of 256, columns from `cols` on zero before the rotation; scales [stack_rows] float, in the rows' new order when they are interleaved
//   grid: a block per row of the piece, block SUMI_UPLOAD_THREADS, static shared memory. Two passes over the row; the second reads L2.
// From the file's own precision, not by way of bf16: one rounding less.
#include "upload.cuh"

// A warp's block of 256 columns from c0 on, rotated in its part of shared memory; v: of columns c0 + lane + 32 i.
SUMI_DEVICE void rotated_block(const sumi_upload_args& a, int64_t from, int c0, float* x, float (&v)[8])
{
    const int lane = (int)threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int c = c0 + lane + 32 * i;
        float value = c < a.cols ? upload_at(a, from + c) : 0.0f;
        if (a.balance != 0 && c < a.cols) value /= ((const float*)a.balance)[c];
        x[lane + 32 * i] = value;
    }
    __syncwarp();
#pragma unroll
    for (int stride = 1; stride < 256; stride *= 4) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int group = lane + 32 * i, at = group / stride * (4 * stride) + group % stride;
            const float p = x[at], q = x[at + stride], r = x[at + 2 * stride], s = x[at + 3 * stride];
            x[at] = 0.5f * ((p + q) + (r - s));
            x[at + stride] = 0.5f * ((p + q) - (r - s));
            x[at + 2 * stride] = 0.5f * ((p - q) + (r + s));
            x[at + 3 * stride] = 0.5f * ((q - p) + (r + s));
        }
        __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = x[lane + 32 * i];
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(SUMI_UPLOAD_THREADS) sumi_upload_rows_int8(const sumi_upload_args a)
{
    constexpr int WARPS = SUMI_UPLOAD_THREADS / 32;
    __shared__ float blocks[WARPS][256], partial[WARPS];
    const int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31;
    const int64_t from = (int64_t)blockIdx.x * a.cols, row = upload_row(a, a.row_begin + (int)blockIdx.x);
    float most = 0.0f, v[8];
    for (int c = 256 * warp; c < a.pitch; c += 256 * WARPS) {
        rotated_block(a, from, c, blocks[warp], v);
#pragma unroll
        for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(v[i]));
    }
    most = warp_max(most);
    if (lane == 0) partial[warp] = most;
    __syncthreads();
    most = partial[0];
    for (int w = 1; w < WARPS; w++) most = fmaxf(most, partial[w]);
    const bool is_zero = !(most > 1e-30f); // or so small that the inverse would overflow
    const float scale = is_zero ? 1.0f : most / 127.0f, inverse = is_zero ? 0.0f : 127.0f / most;
    if (threadIdx.x == 0) ((float*)a.scales)[row] = scale;
    int8_t* to = (int8_t*)a.to + row * a.pitch;
    for (int c = 256 * warp; c < a.pitch; c += 256 * WARPS) {
        rotated_block(a, from, c, blocks[warp], v);
#pragma unroll
        for (int i = 0; i < 8; i++) to[c + lane + 32 * i] = (int8_t)__float2int_rn(v[i] * inverse);
    }
}
