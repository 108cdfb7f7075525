// The products of gemm_bf16.cu whose blocks share k (SUMI_GEMM_PORTABLE_SPLIT_TILES in gemm.h), for few rows. In a file
// of their own, because drivers that compile PTX compile several files at once.
#include "portable_gemm.cuh"
// `...` are the numbers of the tile.
#define SPLIT_K(tile, ...)                                                                                             \
    SUMI_GEMM_PORTABLE(sumi_pgemm_bf16_swiglu_##tile, __VA_ARGS__, SUMI_EPILOGUE_SWIGLU, SUMI_OPERANDS_BF16, true)     \
    SUMI_GEMM_PORTABLE_ANY(sumi_pgemm_bf16_any_##tile, __VA_ARGS__, SUMI_EPILOGUE_ANY, SUMI_OPERANDS_BF16, true)
SUMI_GEMM_PORTABLE_SPLIT_TILES(SPLIT_K)
