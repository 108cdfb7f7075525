// The products of gemm_bf16.cu whose epilogue is swiglu. In a file of their own, because drivers that compile PTX compile
// several files at once, and all of gemm_bf16 together took longer than anything else.
#include "portable_gemm.cuh"
// `...` are the numbers of the tile.
#define SWIGLU(tile, ...)                                                                                              \
    SUMI_GEMM_PORTABLE(sumi_pgemm_bf16_swiglu_##tile, __VA_ARGS__, SUMI_EPILOGUE_SWIGLU, SUMI_OPERANDS_BF16, false)
SUMI_GEMM_PORTABLE_TILES(SWIGLU)
SUMI_GEMM_PORTABLE_TILES_ANY(SWIGLU)
