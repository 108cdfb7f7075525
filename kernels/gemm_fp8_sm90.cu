// y[m, n] = epilogue(row_scale[m] * col_scale[n] * x[m, k] w[n, k]^T): e4m3 operands, bf16 result.
//   x [m][k], w [n][k] e4m3 row-major, k a multiple of 16, n of 8; row_scale float [m rounded up to 4], col_scale float [n], both 16-byte aligned
//   boxes of x and w {128, ..}; everything else as in gemm_bf16_sm90.cu. The tensor cores add e4m3 products with fewer bits than float: relative error
//   1.7e-3 at k = 704, 2.9e-3 at k = 10240 (the same as cuBLASLt's fast accumulation; bf16 rounding alone is 1.66e-3).
#include "gemm_sm90.cuh"
#define KERNEL(epilogue, tile, EPI, WM, BN, ST, PH, SW, PP)                                                            \
    namespace {                                                                                                        \
    typedef sumi_tile<WM, BN, ST, PH, SW, (EPI) | SUMI_EPI_SCALE, 1, PP> t_##epilogue##_##tile;                        \
    }                                                                                                                  \
    static_assert(t_##epilogue##_##tile::SMEM == SUMI_GEMM_SM90_SHARED((EPI) | SUMI_EPI_SCALE, WM, BN, ST, PH, PP),    \
                  "the launcher's shared memory");                                                                     \
    SUMI_GEMM_KERNEL(sumi_gemm_fp8_##epilogue##_##tile, t_##epilogue##_##tile)
SUMI_GEMM_SM90_FP8(KERNEL)
#define KERNEL_3(epilogue, tile, EPI, BN, ST, PH, SW)                                                                  \
    namespace {                                                                                                        \
    typedef sumi_tile<1, BN, ST, PH, SW, (EPI) | SUMI_EPI_SCALE, 1, 0, 3> t_##epilogue##_##tile;                       \
    }                                                                                                                  \
    static_assert(t_##epilogue##_##tile::SMEM == SUMI_GEMM_SM90_SHARED_3((EPI) | SUMI_EPI_SCALE, BN, ST, SW),          \
                  "the launcher's shared memory");                                                                     \
    SUMI_GEMM_KERNEL(sumi_gemm_fp8_##epilogue##_##tile, t_##epilogue##_##tile)
SUMI_GEMM_SM90_FP8_3(KERNEL_3)
