// Products of few rows in bfloat16: gemm_split_sm90.cuh.
#include "gemm_split_sm90.cuh"
#define KERNEL(TILE_COLUMNS, STAGES) SUMI_GEMM_SPLIT_KERNEL(sumi_gemm_split, SUMI_OPERANDS_BF16, TILE_COLUMNS, STAGES)
SUMI_GEMM_SPLIT(KERNEL)
