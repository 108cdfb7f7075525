// y[m][n] = epilogue(row_scale[m] * col_scale[n] * x[m][k] w[n][k]^T) on Hopper: int8 operands (-127 .. 127), bf16
// result.
//   x  [m][k], w [n][k] int8, row-major, k a multiple of 16, n of 8
//   row_scale  float [m rounded up to 4], col_scale  float [n], both 16-byte aligned
//   boxes of the tensor maps of x and w are {128, ..}; the rest as in gemm_bf16_sm90.cu
// wgmma on s8 is in PTX 8.0, so unlike the e4m3 kernels this file needs no newer driver than gemm_bf16_sm90.cu.
// The sums are exact and become float once, in the epilogue. The error of a product is therefore that of rotating and
// quantising its operands (rotate.cuh).
#include "gemm_sm90.cuh"
#define KERNEL_2(epilogue, tile, EPILOGUE, ...)                                                                        \
    SUMI_GEMM_KERNEL_2(sumi_gemm_int8, SUMI_OPERANDS_INT8, 0, epilogue, tile, (EPILOGUE) | SUMI_EPILOGUE_SCALE,        \
                       __VA_ARGS__)
#define KERNEL_3(epilogue, tile, EPILOGUE, ...)                                                                        \
    SUMI_GEMM_KERNEL_3(sumi_gemm_int8, SUMI_OPERANDS_INT8, 0, epilogue, tile, (EPILOGUE) | SUMI_EPILOGUE_SCALE,        \
                       __VA_ARGS__)
SUMI_GEMM_SM90_8BIT(KERNEL_2)
SUMI_GEMM_SM90_8BIT_3(KERNEL_3)
SUMI_GEMM_SM90_INT8(KERNEL_2)
#define HALVES_2(epilogue, tile, EPILOGUE, ...)                                                                        \
    SUMI_GEMM_KERNEL_2(sumi_gemm_int8, SUMI_OPERANDS_INT8, 1, epilogue, tile, (EPILOGUE) | SUMI_EPILOGUE_SCALE,        \
                       __VA_ARGS__)
#define HALVES_3(epilogue, tile, EPILOGUE, ...)                                                                        \
    SUMI_GEMM_KERNEL_3(sumi_gemm_int8, SUMI_OPERANDS_INT8, 1, epilogue, tile, (EPILOGUE) | SUMI_EPILOGUE_SCALE,        \
                       __VA_ARGS__)
#define PAIR(epilogue, tile) SUMI_GEMM_PAIR_KERNEL(sumi_gemm_int8_pair_##epilogue##_##tile, tile_##epilogue##_##tile)
SUMI_GEMM_SM90_PAIRS(PAIR)
SUMI_GEMM_SM90_8BIT_HALVES(HALVES_2)
SUMI_GEMM_SM90_8BIT_HALVES_3(HALVES_3)
