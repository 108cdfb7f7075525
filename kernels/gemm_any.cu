// y[m][n] = epilogue(x[m][k] w[n][k]^T) for any m, n, k and pitch. epilogue: sumi_gemm_epilogue in gemm.h.
//   x     [m][ldx] bf16 or float, row-major      w  [n][ldw] bf16, row-major      no alignment beyond the element's own
//   y     [m][ldy] bf16 or float                 swiglu: n a multiple of 16, rows of w interleaved by 8, y [m][n / 2]
//   grid  (ceil(n / 64), min(ceil(m / 64), 65535))      block 256
//   shared  static, 16640 bytes: k-blocks of 16 of both operands, later the 64 x 64 sums
// It computes the shapes that no other kernel takes (widths that are not a multiple of 8). Bound by float arithmetic: it
// does not use the tensor cores and is an order of magnitude slower than they are.
#include "gemm_epilogue.cuh"

extern "C" __global__ void __launch_bounds__(256) sumi_gemm_any(const __grid_constant__ sumi_gemm_any_args args)
{
    // BLOCK_PITCH: floats from row to row of x_block and w_block. Their rows are 16-byte aligned.
    constexpr int TILE = 64, K_BLOCK = 16, BLOCK_PITCH = TILE + 4, SUMS_PITCH = TILE + 1;
    __shared__ __align__(16) float shared[TILE * SUMS_PITCH];
    float(*const x_block)[BLOCK_PITCH] = (float(*)[BLOCK_PITCH])shared; // [k][row of x]
    float(*const w_block)[BLOCK_PITCH] = x_block + K_BLOCK;             // [k][row of w]
    // In the product the thread has rows row * 4 .. + 3 and columns column * 4 .. + 3 of the tile.
    const int thread = threadIdx.x, column = thread & 15, row = thread >> 4, n0 = blockIdx.x * TILE;
    const epilogue_activation activation = epilogue_activation_of(args.epilogue.activation);
    const int64_t gate_row = epilogue_gate_row(args.epilogue);
    for (int m0 = blockIdx.y * TILE; m0 < args.m; m0 += gridDim.y * TILE) {
        float sums[4][4] = {};
        for (int k0 = 0; k0 < args.k; k0 += K_BLOCK) {
            const int k = k0 + column; // 16 neighbouring threads read 16 consecutive elements of a row
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int tile_row = row + 16 * i;
                float x_value = 0.0f, w_value = 0.0f;
                if (k < args.k && m0 + tile_row < args.m) {
                    const int64_t index = (int64_t)(m0 + tile_row) * args.ldx + k;
                    x_value = args.x_is_float ? ((const float*)args.x)[index]
                                              : __bfloat162float(((const bf16*)args.x)[index]);
                }
                if (k < args.k && n0 + tile_row < args.n)
                    w_value = __bfloat162float(((const bf16*)args.w)[(int64_t)(n0 + tile_row) * args.ldw + k]);
                x_block[column][tile_row] = x_value;
                w_block[column][tile_row] = w_value;
            }
            __syncthreads(); // the k-block is complete
#pragma unroll
            for (int e = 0; e < K_BLOCK; e++) {
                const float4 x4 = *(const float4*)&x_block[e][row * 4], w4 = *(const float4*)&w_block[e][column * 4];
                const float x_values[4] = {x4.x, x4.y, x4.z, x4.w}, w_values[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++) sums[i][j] = fmaf(x_values[i], w_values[j], sums[i][j]);
            }
            __syncthreads(); // all threads have read the k-block: the next k-block or the sums may overwrite it
        }
        // The sums go through shared memory, so that one thread gets both columns of a SwiGLU pair, and neighbouring
        // threads store neighbouring columns of a row.
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) shared[(row * 4 + i) * SUMS_PITCH + column * 4 + j] = sums[i][j];
        __syncthreads(); // all sums are written
        const int out_columns = args.swiglu ? TILE / 2 : TILE;
        for (int i = thread; i < TILE * out_columns; i += 256) {
            const int tile_row = i / out_columns, c = i % out_columns;
            const float* sums_of_row = shared + tile_row * SUMS_PITCH;
            if (m0 + tile_row >= args.m) continue;
            if (args.swiglu) {
                const int gate = (c >> 3) * 16 + (c & 7); // the gate's column; up is 8 columns further
                if (n0 + gate + 8 < args.n)
                    epilogue_element_swiglu(args.epilogue, m0 + tile_row, n0 / 2 + c, sums_of_row[gate],
                                            sums_of_row[gate + 8]);
            } else if (n0 + c < args.n) {
                epilogue_element(args.epilogue, activation, gate_row, m0 + tile_row, n0 + c, sums_of_row[c]);
            }
        }
        __syncthreads(); // all sums are read: the next tile's k-blocks may overwrite them
    }
}
