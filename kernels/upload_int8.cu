// Rotates and quantises a piece of a weight to int8 with a float scale per row (output channel): (w / balance) R = int8
// * scale, with R as in rotate.cuh, computed in float.
//   from   [row_count][cols] in the type args.type, dense
//   to     [stack_rows][pitch] int8, pitch a multiple of 256; columns from `cols` on are zero before the rotation
//   scales [stack_rows] float, in the order of the rows of `to` (interleaved when is_gated)
//   grid   one block per row of the piece      block SUMI_UPLOAD_THREADS      shared static, 8 KiB + 32 bytes
// Bound by the bus that brings the piece. Two passes over the row; the second reads L2. The row is quantised from the
// file's own precision, not from bf16, which saves one rounding. int8 has no NaN: the scale of a row with one is NaN.
#include "upload.cuh"

// Loads and rotates the 256 columns of a row from first_column on, by one warp. `from`: index of the row's first
// element in the piece. x: 256 floats of shared memory that belong to the warp. v[i] is column first_column + lane +
// 32 i. The four passes (strides 1, 4, 16, 64) are the four factors H4 of R; each lane transforms two groups of four
// columns per pass. The __syncwarp() separate the warp's writes to x from other lanes' reads.
SUMI_DEVICE void load_rotated_block(const sumi_upload_args& args, int64_t from, int first_column, float* x,
                                    float (&v)[8])
{
    const int lane = (int)threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int c = first_column + lane + 32 * i;
        float value = c < args.cols ? upload_element(args, from + c) : 0.0f;
        if (args.balance != 0 && c < args.cols) value /= ((const float*)args.balance)[c];
        x[lane + 32 * i] = value;
    }
    __syncwarp();
#pragma unroll
    for (int stride = 1; stride < 256; stride *= 4) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            // The columns of a group differ in one digit of their numbers in base 4, whose weight is `stride`.
            const int group = lane + 32 * i, first = group / stride * (4 * stride) + group % stride;
            const float p = x[first], q = x[first + stride], r = x[first + 2 * stride], s = x[first + 3 * stride];
            x[first] = 0.5f * ((p + q) + (r - s));
            x[first + stride] = 0.5f * ((p + q) - (r - s));
            x[first + 2 * stride] = 0.5f * ((p - q) + (r + s));
            x[first + 3 * stride] = 0.5f * ((q - p) + (r + s));
        }
        __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = x[lane + 32 * i];
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(SUMI_UPLOAD_THREADS) sumi_upload_rows_int8(const sumi_upload_args args)
{
    constexpr int WARPS = SUMI_UPLOAD_THREADS / 32;
    __shared__ float blocks[WARPS][256], warp_largest[WARPS];
    const int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31;
    const int64_t from = (int64_t)blockIdx.x * args.cols, row = upload_row(args, args.row_begin + (int)blockIdx.x);
    float largest = 0.0f, v[8];
    for (int c = 256 * warp; c < args.pitch; c += 256 * WARPS) {
        load_rotated_block(args, from, c, blocks[warp], v);
#pragma unroll
        for (int i = 0; i < 8; i++) largest = max_or_nan(largest, fabsf(v[i]));
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) largest = max_or_nan(largest, __shfl_xor_sync(~0u, largest, mask));
    if (lane == 0) warp_largest[warp] = largest;
    __syncthreads(); // the maxima of all warps are written
    largest = warp_largest[0];
    for (int w = 1; w < WARPS; w++) largest = max_or_nan(largest, warp_largest[w]);
    const bool is_zero = largest <= 1e-30f; // also a row so small that the inverse would overflow
    const float scale = is_zero ? 1.0f : largest / 127.0f, inverse = is_zero ? 0.0f : 127.0f / largest;
    if (threadIdx.x == 0) ((float*)args.scales)[row] = scale;
    int8_t* to = (int8_t*)args.to + row * args.pitch;
    for (int c = 256 * warp; c < args.pitch; c += 256 * WARPS) {
        load_rotated_block(args, from, c, blocks[warp], v);
#pragma unroll
        for (int i = 0; i < 8; i++) to[c + lane + 32 * i] = (int8_t)__float2int_rn(v[i] * inverse);
    }
}
