// y[m][n] = epilogue((x8 w8^T) * row_scale[m] * col_scale[n]): e4m3 operands, float accumulators; sm_89 and newer.
//   x8 [m][ldx], w8 [n][ldw] e4m3, row-major; k, ldx and ldw multiples of 16, n of 8; row_scale float [m], col_scale
//   float [n]; the rest (epilogues, grid, block, shared memory, what bounds it) as in gemm_bf16.cu
// Compute capability 8.9 and 12.0 multiply e4m3 directly. On 9.0 mma.sync converts e4m3 to f16 first and is no faster
// than bf16; there these kernels are only a fallback for gemm_fp8_sm90.cu.
#include "portable_gemm.cuh"
// `...` are the numbers of a tile in gemm.h.
#define WHOLE_K(tile, ...)                                                                                             \
    SUMI_GEMM_PORTABLE(sumi_pgemm_fp8_plain_##tile, __VA_ARGS__, SUMI_EPILOGUE_SCALE, SUMI_OPERANDS_E4M3, false)       \
    SUMI_GEMM_PORTABLE(sumi_pgemm_fp8_swiglu_##tile, __VA_ARGS__, SUMI_EPILOGUE_SCALE | SUMI_EPILOGUE_SWIGLU,          \
                       SUMI_OPERANDS_E4M3, false)
#define WHOLE_K_ANY(tile, ...)                                                                                         \
    WHOLE_K(tile, __VA_ARGS__)                                                                                         \
    SUMI_GEMM_PORTABLE_ANY(sumi_pgemm_fp8_any_##tile, __VA_ARGS__, SUMI_EPILOGUE_ANY, SUMI_OPERANDS_E4M3, false)
SUMI_GEMM_PORTABLE_FP8_TILES(WHOLE_K)
SUMI_GEMM_PORTABLE_FP8_TILES_ANY(WHOLE_K_ANY)
