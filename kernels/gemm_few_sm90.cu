// Products of few rows in bf16: the text's stream of a two-stream transformer, text encoders. How: gemm_few_sm90.cuh.
//   x, w bf16, k a multiple of 8
#include "gemm_few_sm90.cuh"
#define KERNEL(tile, BN, PARTS, WIDE, ST) SUMI_FEW_KERNEL(tile, BN, PARTS, WIDE, ST, bf16, 0)
SUMI_GEMM_FEW(KERNEL)
