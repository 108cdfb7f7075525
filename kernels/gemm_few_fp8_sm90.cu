// Products of few rows in e4m3, whose sums row_scale[m] * col_scale[n] multiply. gemm_few_sm90.cuh says how.
//   x, w e4m3, k a multiple of 16
#include "gemm_few_sm90.cuh"
#define KERNEL(tile, BN, PARTS, WIDE, ST) SUMI_FEW_KERNEL(tile, BN, PARTS, WIDE, ST, fp8, 1)
SUMI_GEMM_FEW(KERNEL)
