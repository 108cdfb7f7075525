// y[m][n] = epilogue(row_scale[m] * col_scale[n] * x[m][k] w[n][k]^T) on Hopper: e4m3 operands, bf16 result.
//   x  [m][k], w [n][k] e4m3, row-major, k a multiple of 16, n of 8
//   row_scale  float [m rounded up to 4], col_scale  float [n], both 16-byte aligned
//   boxes of the tensor maps of x and w are {128, ..}; the rest as in gemm_bf16_sm90.cu
// The tensor cores add e4m3 products with fewer bits than float has. The relative error of a product is 1.7e-3 at k =
// 704 and 2.9e-3 at k = 10240, the same as with cuBLASLt's fast accumulation; rounding the result to bf16 alone is
// 1.66e-3.
#include "gemm_sm90.cuh"
#define KERNEL_2(epilogue, tile, EPILOGUE, ...)                                                                        \
    SUMI_GEMM_KERNEL_2(sumi_gemm_fp8, SUMI_OPERANDS_E4M3, 0, epilogue, tile, (EPILOGUE) | SUMI_EPILOGUE_SCALE,         \
                       __VA_ARGS__)
#define KERNEL_3(epilogue, tile, EPILOGUE, ...)                                                                        \
    SUMI_GEMM_KERNEL_3(sumi_gemm_fp8, SUMI_OPERANDS_E4M3, 0, epilogue, tile, (EPILOGUE) | SUMI_EPILOGUE_SCALE,         \
                       __VA_ARGS__)
SUMI_GEMM_SM90_8BIT(KERNEL_2)
SUMI_GEMM_SM90_8BIT_3(KERNEL_3)
#define HALVES_2(epilogue, tile, EPILOGUE, ...)                                                                        \
    SUMI_GEMM_KERNEL_2(sumi_gemm_fp8, SUMI_OPERANDS_E4M3, 1, epilogue, tile, (EPILOGUE) | SUMI_EPILOGUE_SCALE,         \
                       __VA_ARGS__)
#define HALVES_3(epilogue, tile, EPILOGUE, ...)                                                                        \
    SUMI_GEMM_KERNEL_3(sumi_gemm_fp8, SUMI_OPERANDS_E4M3, 1, epilogue, tile, (EPILOGUE) | SUMI_EPILOGUE_SCALE,         \
                       __VA_ARGS__)
SUMI_GEMM_SM90_8BIT_HALVES(HALVES_2)
SUMI_GEMM_SM90_8BIT_HALVES_3(HALVES_3)
