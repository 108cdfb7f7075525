// y[m][n] = epilogue(x[m][k] w[n][k]^T): bf16 operands, float accumulators; sm_80 and newer. The pipeline is in
// portable_gemm.cuh, the list of tiles in gemm.h.
//   x  [m][ldx] bf16, w [n][ldw] bf16, row-major; any m; k, ldx and ldw multiples of 8, rows 16-byte aligned
//   plain    y = x w^T, bf16; n and ldy multiples of 8
//   swiglu   y [m][n / 2] = silu(gate) * up; rows of w interleaved by 8 (gate 0..7, up 0..7, gate 8..15, ...), n a
//            multiple of 16
//   any      the epilogue of sumi_gemm_epilogue, any n; y may be the residual
//   grid (tiles, split)      block (TILE_ROWS / WARP_ROWS) * (TILE_COLUMNS / WARP_COLUMNS) * 32
//   dynamic shared memory STAGES * (TILE_ROWS + TILE_COLUMNS) * K_BLOCK_BYTES bytes
// Bound by the tensor cores: on a GeForce (512 bf16 FLOP per clock and multiprocessor) a k-step of a 64 x 64 warp tile
// takes 1024 clocks of tensor work and 32 clocks of ldmatrix. For two blocks in 100 KiB of shared memory each may take
// 49 KiB. Tried and slower: 64 x 32 warp tiles (20 %), two stages, tiles of 256 x 128 and 128 x 192, k-blocks of 256
// bytes for small m.
#include "portable_gemm.cuh"
// PLAIN: the plain kernel of a tile without split k. PLAIN_ANY: the same and an `any` kernel. Those with swiglu are in
// gemm_bf16_swiglu.cu, those with split k in gemm_bf16_split.cu. `...` are the numbers of the tile.
#define PLAIN(tile, ...) SUMI_GEMM_PORTABLE(sumi_pgemm_bf16_plain_##tile, __VA_ARGS__, 0, SUMI_OPERANDS_BF16, false)
#define PLAIN_ANY(tile, ...)                                                                                           \
    PLAIN(tile, __VA_ARGS__)                                                                                           \
    SUMI_GEMM_PORTABLE_ANY(sumi_pgemm_bf16_any_##tile, __VA_ARGS__, SUMI_EPILOGUE_ANY, SUMI_OPERANDS_BF16, false)
SUMI_GEMM_PORTABLE_TILES(PLAIN)
SUMI_GEMM_PORTABLE_TILES_ANY(PLAIN_ANY)
