// y[m][n] = finish(x[m][k] w[n][k]^T): bf16 operands, float sums; sm_80 and newer. Any m; k and the pitches of x and w
// multiples of 8, rows 16-byte aligned.
//   plain    y bf16, n and ldy multiples of 8, nothing but the product
//   swiglu   weight rows interleaved by 8 (w1[0:8], w3[0:8], w1[8:16], ...), n a multiple of 16, y [m][n/2]
//   any      whatever sumi_gemm_finish says, any n; y may be the residual
//   grid (tiles, split)      block BM/WM * BN/WN * 32      shared memory ST * (BM + BN) * RB
// On a GeForce (512 bf16 FLOP a clock and multiprocessor) a 64x64 warp step is 1024 clocks of tensor work against 32 of
// ldmatrix; two blocks in 100 KiB need at most 49 KiB each.
// Tried and slower: 64x32 warp tiles (20 %), two stages, 256x128, 128x192, 256-byte k-blocks for small m.
#include "portable_gemm.cuh"
#define S SUMI_EPI_SWIGLU
#define A SUMI_EPI_ANY
#define WHOLE(tile, BM, BN, RB, ST, WM, WN, MINB)                                                                      \
    SUMI_PGEMM(sumi_pgemm_bf16_plain_##tile, BM, BN, RB, ST, WM, WN, 0, 0, 0, MINB)                                    \
    SUMI_PGEMM(sumi_pgemm_bf16_swiglu_##tile, BM, BN, RB, ST, WM, WN, S, 0, 0, MINB)
#define WHOLE_ANY(tile, BM, BN, RB, ST, WM, WN, MINB)                                                                  \
    WHOLE(tile, BM, BN, RB, ST, WM, WN, MINB)                                                                          \
    SUMI_PGEMM_ANY(sumi_pgemm_bf16_any_##tile, BM, BN, RB, ST, WM, WN, A, 0, 0, MINB)
#define SPLIT(tile, BM, BN, RB, ST, WM, WN, MINB)                                                                      \
    SUMI_PGEMM(sumi_pgemm_bf16_swiglu_##tile, BM, BN, RB, ST, WM, WN, S, 0, 1, MINB)                                   \
    SUMI_PGEMM_ANY(sumi_pgemm_bf16_any_##tile, BM, BN, RB, ST, WM, WN, A, 0, 1, MINB)
SUMI_PGEMM_TILES(WHOLE)
SUMI_PGEMM_TILES_ANY(WHOLE_ANY)
SUMI_PGEMM_SPLIT_TILES(SPLIT)
