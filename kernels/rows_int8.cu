// Rows to rotated int8 with one float scale per row (rotate.cuh), either in the kernel that computes them
// (norm_modulate) or in a separate one (rotate_rows). Launches: rows.h.
#include "rows.cuh"

// y = int8(R (norm(x) * w * scale + shift)), see norm_modulate in norms.cu.
SUMI_ROW_KERNEL(sumi_norm_modulate_int8_rows, SUMI_NORM_LIMIT, 1, sumi_norm_modulate_args,
                norm_modulate<SUMI_OPERANDS_INT8>(args))
SUMI_ROW_KERNEL(sumi_norm_modulate_int8_any, SUMI_ROWS_THREADS, 4, sumi_norm_modulate_args,
                norm_modulate_any<SUMI_OPERANDS_INT8>(args))
SUMI_ROW_KERNEL(sumi_norm_pair_int8_rows, SUMI_NORM_LIMIT, 1, sumi_norm_pair_args, norm_pair<SUMI_OPERANDS_INT8>(args))

// v[i] *= balance[i], for eight columns.
SUMI_DEVICE void multiply8(const float* balance, float (&v)[8])
{
    float factor[8];
    load8_float(balance, factor);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] *= factor[i];
}

// y[r] = int8(R (x[r] * balance) / scales[r])   balance [cols] float, or none
//   x  [rows][ldx] bf16, ldx and cols multiples of 8, 16-byte aligned
//   y  [rows][SUMI_ROTATED_COLS(cols)] int8   scales  [rows] float
//   block SUMI_ROTATE_THREADS, any grid; a block processes one row at a time, from the last row to the first (rows.cuh)
// Bound by bytes: a row is read once and stays in registers. The loads of the next row are issued after the rotation,
// as soon as their registers are free. When the loads of a thread's chunks waited for each other, a product of 4224 x
// 10240 took 80 us more, where the bytes take 30 us.
template <int CHUNKS> SUMI_DEVICE void rotate_rows(const sumi_quantize_rows_args& args)
{
    __shared__ __align__(16) float warp_results[2 * ROW_MAX_WARPS];
    row_reduction reduction(warp_results);
    const sumi_rotation rotation;
    const int first_column = 8 * (int)threadIdx.x, column_stride = 8 * (int)blockDim.x; // of the thread's chunks
    const int warp_column = first_column & ~255; // first column of the warp's block of 256
    const int row_stride = (int)gridDim.x;
    const int64_t pitch = SUMI_ROTATED_COLS(args.cols);
    const bf16* x = (const bf16*)args.x + first_column;
    uint8_t* y = (uint8_t*)args.y + warp_column + rotation.column();
    uint4 chunks[CHUNKS];
    const auto fetch = [&](int row) {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            chunks[j] = make_uint4(0, 0, 0, 0);
            if (row >= 0 && first_column + j * column_stride < args.cols)
                chunks[j] = *(const uint4*)(x + row * args.ldx + j * column_stride);
        }
    };
    int row = args.rows - 1 - (int)blockIdx.x;
    fetch(row);
    for (; row >= 0; row -= row_stride) {
        float v[CHUNKS][8], largest = 0.0f;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            unpack8(chunks[j], v[j]);
            if (args.balance != 0 && first_column + j * column_stride < args.cols)
                multiply8((const float*)args.balance + first_column + j * column_stride, v[j]);
            rotation.rotate(v[j]);
            largest = max_magnitude(largest, v[j]);
        }
        fetch(row - row_stride);
        largest = reduction.max(largest);
        const float inverse = 127.0f / fmaxf(largest, 1e-30f);
        if (threadIdx.x == 0) ((float*)args.scales)[row] = rotated_scale(largest);
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            const uint2 packed = rotation.pack(v[j], inverse);
            if (warp_column + j * column_stride < args.cols) *(uint2*)(y + row * pitch + j * column_stride) = packed;
        }
    }
}
#define ROTATE_KERNEL(CHUNKS)                                                                                          \
    extern "C" __global__ void __launch_bounds__(SUMI_ROTATE_LIMIT, 1)                                                 \
        sumi_rotate_rows_##CHUNKS(const __grid_constant__ sumi_quantize_rows_args args)                                \
    {                                                                                                                  \
        rotate_rows<CHUNKS>(args);                                                                                     \
    }
ROTATE_KERNEL(3)
ROTATE_KERNEL(5)

// The same for rows of any length, which are read twice.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS, 3)
    sumi_rotate_rows_any(const __grid_constant__ sumi_quantize_rows_args args)
{
    __shared__ __align__(16) float warp_results[2 * ROW_MAX_WARPS];
    row_reduction reduction(warp_results);
    for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const bf16* x = (const bf16*)args.x + row * args.ldx;
        quantize_rotated(reduction, args.cols, (uint8_t*)args.y, (float*)args.scales, row, [&](int c, float(&v)[8]) {
            uint4 raw = make_uint4(0, 0, 0, 0);
            if (c < args.cols) raw = *(const uint4*)(x + c);
            unpack8(raw, v);
            if (args.balance != 0 && c < args.cols) multiply8((const float*)args.balance + c, v);
        });
    }
}
