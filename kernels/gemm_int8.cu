// y[m][n] = epilogue((x8 w8^T) * row_scale[m] * col_scale[n]): int8 operands, exact int accumulators; sm_80 and newer.
//   x8 [m][ldx], w8 [n][ldw] int8, row-major; k, ldx and ldw multiples of 16, n of 8; row_scale float [m], col_scale
//   float [n]; the rest (epilogues, grid, block, shared memory, what bounds it) as in gemm_bf16.cu
// GeForce cards from 8.0 on multiply int8 at four times their bf16 rate; e4m3 needs 8.9.
#include "portable_gemm.cuh"
#define C SUMI_EPILOGUE_SCALE
#define WHOLE(tile, BM, BN, RB, ST, WM, WN, MINB)                                                                      \
    SUMI_GEMM_PORTABLE(sumi_pgemm_int8_plain_##tile, BM, BN, RB, ST, WM, WN, C, SUMI_OPERANDS_INT8, 0, MINB)           \
    SUMI_GEMM_PORTABLE(sumi_pgemm_int8_swiglu_##tile, BM, BN, RB, ST, WM, WN, C | SUMI_EPILOGUE_SWIGLU,                \
                       SUMI_OPERANDS_INT8, 0, MINB)
#define WHOLE_ANY(tile, BM, BN, RB, ST, WM, WN, MINB)                                                                  \
    WHOLE(tile, BM, BN, RB, ST, WM, WN, MINB)                                                                          \
    SUMI_GEMM_PORTABLE_ANY(sumi_pgemm_int8_any_##tile, BM, BN, RB, ST, WM, WN, SUMI_EPILOGUE_ANY, SUMI_OPERANDS_INT8,  \
                           0, MINB)
#define SPLIT(tile, BM, BN, RB, ST, WM, WN, MINB)                                                                      \
    SUMI_GEMM_PORTABLE(sumi_pgemm_int8_swiglu_##tile, BM, BN, RB, ST, WM, WN, C | SUMI_EPILOGUE_SWIGLU,                \
                       SUMI_OPERANDS_INT8, 1, MINB)                                                                    \
    SUMI_GEMM_PORTABLE_ANY(sumi_pgemm_int8_any_##tile, BM, BN, RB, ST, WM, WN, SUMI_EPILOGUE_ANY, SUMI_OPERANDS_INT8,  \
                           1, MINB)
SUMI_GEMM_PORTABLE_INT8_TILES(WHOLE)
SUMI_GEMM_PORTABLE_INT8_SPLIT_TILES(SPLIT)
SUMI_GEMM_PORTABLE_INT8_TILES_ANY(WHOLE_ANY)
