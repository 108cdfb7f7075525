// Products of few rows in bfloat16: gemm_split_sm90.cuh.
#include "gemm_split_sm90.cuh"
#define KERNEL(COLUMNS, STAGES) SUMI_GEMM_SPLIT_KERNEL(sumi_gemm_split, SUMI_OPERANDS_BF16, COLUMNS, STAGES)
SUMI_GEMM_SPLIT(KERNEL)
