// Products of few rows in int8, with scales per row: gemm_split_sm90.cuh. What the operands are: gemm_int8_sm90.cu.
#include "gemm_split_sm90.cuh"
#define KERNEL(TILE_COLUMNS, STAGES)                                                                                   \
    SUMI_GEMM_SPLIT_KERNEL(sumi_gemm_split_int8, SUMI_OPERANDS_INT8, TILE_COLUMNS, STAGES)
SUMI_GEMM_SPLIT_INT8(KERNEL)
