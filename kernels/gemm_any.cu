// y[m][n] = epilogue(x[m][k] w[n][k]^T) for any m, n, k and pitch. epilogue: sumi_gemm_epilogue in gemm.h.
//   x     [m][ldx] bf16 or float, row-major      w  [n][ldw] bf16, row-major      no alignment beyond the element's own
//   y     [m][ldy] bf16 or float                 swiglu: n a multiple of 16, rows of w interleaved by 8, y [m][n / 2]
//   grid  (ceil(n / 64), min(ceil(m / 64), 65535))      block 256
//   shared  static, 16640 bytes: k-blocks of 16 of both operands, later the 64 x 64 sums
// It computes the shapes that no other kernel takes (widths that are no multiple of 8). Bound by float arithmetic: it
// does not use the tensor cores and is an order of magnitude slower than they are.
#include "gemm_epilogue.cuh"

extern "C" __global__ void __launch_bounds__(256) sumi_gemm_any(const __grid_constant__ sumi_gemm_any_args a)
{
    constexpr int TILE = 64, K = 16, PITCH = TILE + 4; // PITCH: floats per row of xs and ws; rows are 16-byte aligned
    __shared__ __align__(16) float shared[TILE * (TILE + 1)];
    float(*xs)[PITCH] = (float(*)[PITCH])shared, (*ws)[PITCH] = xs + K; // [k][row of x or w]
    const int t = threadIdx.x, column = t & 15, row = t >> 4, n0 = blockIdx.x * TILE;
    const epilogue_activation act = epilogue_activation_of(a.epilogue.activation);
    const int64_t gate_row = epilogue_gate_row(a.epilogue);
    for (int m0 = blockIdx.y * TILE; m0 < a.m; m0 += gridDim.y * TILE) {
        float sums[4][4] = {};
        for (int k0 = 0; k0 < a.k; k0 += K) {
            const int k = k0 + column; // 16 neighbouring threads read 16 consecutive elements of a row
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int r = row + 16 * i;
                float xv = 0.0f, wv = 0.0f;
                if (k < a.k && m0 + r < a.m) {
                    const int64_t at = (int64_t)(m0 + r) * a.ldx + k;
                    xv = a.x_is_float ? ((const float*)a.x)[at] : __bfloat162float(((const bf16*)a.x)[at]);
                }
                if (k < a.k && n0 + r < a.n) wv = __bfloat162float(((const bf16*)a.w)[(int64_t)(n0 + r) * a.ldw + k]);
                xs[column][r] = xv;
                ws[column][r] = wv;
            }
            __syncthreads(); // the k-block is complete
#pragma unroll
            for (int d = 0; d < K; d++) {
                const float4 x4 = *(const float4*)&xs[d][row * 4], w4 = *(const float4*)&ws[d][column * 4];
                const float xv[4] = {x4.x, x4.y, x4.z, x4.w}, wv[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++) sums[i][j] = fmaf(xv[i], wv[j], sums[i][j]);
            }
            __syncthreads(); // all threads have read the k-block: the next k-block or the sums may overwrite it
        }
        // The sums go through shared memory, so that one thread gets both columns of a SwiGLU pair, and neighbouring
        // threads store neighbouring columns of a row.
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) shared[(row * 4 + i) * (TILE + 1) + column * 4 + j] = sums[i][j];
        __syncthreads(); // all sums are written
        const int width = a.swiglu ? TILE / 2 : TILE;
        for (int i = t; i < TILE * width; i += 256) {
            const int r = i / width, c = i % width;
            const float* from = shared + r * (TILE + 1);
            if (m0 + r >= a.m) continue;
            if (a.swiglu) {
                const int gate = (c >> 3) * 16 + (c & 7);
                if (n0 + gate + 8 < a.n)
                    epilogue_one_swiglu(a.epilogue, m0 + r, n0 / 2 + c, from[gate], from[gate + 8]);
            } else if (n0 + c < a.n) {
                epilogue_one(a.epilogue, act, gate_row, m0 + r, n0 + c, from[c]);
            }
        }
        __syncthreads(); // all sums are read: the next tile's k-blocks may overwrite them
    }
}
