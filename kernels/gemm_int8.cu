// y[m][n] = epilogue((x8 w8^T) * row_scale[m] * col_scale[n]): int8 operands, exact int accumulators; sm_80 and newer.
//   x8 [m][ldx], w8 [n][ldw] int8, row-major; k, ldx and ldw multiples of 16, n of 8; row_scale float [m], col_scale
//   float [n]; the rest (epilogues, grid, block, shared memory, what bounds it) as in gemm_bf16.cu
// GeForce cards from 8.0 on multiply int8 at four times their bf16 rate; e4m3 needs 8.9.
#include "portable_gemm.cuh"
// `...` are the numbers of a tile in gemm.h.
#define WHOLE_K(tile, ...)                                                                                             \
    SUMI_GEMM_PORTABLE(sumi_pgemm_int8_plain_##tile, __VA_ARGS__, SUMI_EPILOGUE_SCALE, SUMI_OPERANDS_INT8, false)      \
    SUMI_GEMM_PORTABLE(sumi_pgemm_int8_swiglu_##tile, __VA_ARGS__, SUMI_EPILOGUE_SCALE | SUMI_EPILOGUE_SWIGLU,         \
                       SUMI_OPERANDS_INT8, false)
#define WHOLE_K_ANY(tile, ...)                                                                                         \
    WHOLE_K(tile, __VA_ARGS__)                                                                                         \
    SUMI_GEMM_PORTABLE_ANY(sumi_pgemm_int8_any_##tile, __VA_ARGS__, SUMI_EPILOGUE_ANY, SUMI_OPERANDS_INT8, false)
#define SPLIT_K(tile, ...)                                                                                             \
    SUMI_GEMM_PORTABLE(sumi_pgemm_int8_swiglu_##tile, __VA_ARGS__, SUMI_EPILOGUE_SCALE | SUMI_EPILOGUE_SWIGLU,         \
                       SUMI_OPERANDS_INT8, true)                                                                       \
    SUMI_GEMM_PORTABLE_ANY(sumi_pgemm_int8_any_##tile, __VA_ARGS__, SUMI_EPILOGUE_ANY, SUMI_OPERANDS_INT8, true)
SUMI_GEMM_PORTABLE_INT8_TILES(WHOLE_K)
SUMI_GEMM_PORTABLE_INT8_SPLIT_TILES(SPLIT_K)
SUMI_GEMM_PORTABLE_INT8_TILES_ANY(WHOLE_K_ANY)
