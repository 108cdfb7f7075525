// y[m][n] = epilogue(x[m][k] w[n][k]^T) on Hopper: bf16 operands and result, float accumulators. The pipeline is in
// gemm_sm90.cuh, the list of tiles in gemm.h.
//   x  [m][k], w [n][k], y and residual [m][n] (SwiGLU: y [m][n / 2]), row-major, rows 16-byte aligned; residual may be
//   y; any m; k and n multiples of 8 (SwiGLU: n of 16)      bias  float [n]      gate  a float row of a step table
//   grid    the number of multiprocessors, even, at most 2 * pairs of tiles (block_tile_of)
//   block   384 (three consumers: 512)      cluster  2 blocks, fixed in the kernel
//   shared  dynamic, SUMI_GEMM_SM90_SHARED or SUMI_GEMM_SM90_SHARED_3
//   boxes of the tensor maps   x {64, TILE_ROWS / 2}, w {64, TILE_COLUMNS / 2}, 128-byte swizzle; y and residual
//                              {SLAB_COLUMNS, 64 * M64_TILES}, 128-byte swizzle when SLAB_COLUMNS is 64, otherwise none
// Bound by the card's power on an H200 (700 W, about 1.4-1.5 GHz under load); by L2 latency below the power limit.
//
// Tiles (choose_linear.c chooses by cost): those that leave least of their last round empty, and of these the ones that
// read the fewest bytes from L2, 128 x 256, 192 x 192 and 128 x 240. A model's products run at the power limit, where
// these bytes cost time. On an H100 128 x 240 took 0.2 to 1.5 % longer than 128 x 192 in a single product of 4224 rows,
// but with it a forward of 1024x1024 took 0.9 % less; with pp (ping-pong, 128 x 128 for each consumer) for the gate and
// up product instead of 256 columns, in as many rounds, one of 2432 rows takes 1.4 % longer. pp hides the epilogue, which
// decides for few rows. The other widths are for products whose last round these would leave half empty.
// Tried and slower: tiles of 128 x 320, 256 x 192, 256 x 128 without ping-pong, 192 columns with five stages, L2 cache
// hints, L2 prefetch. Not worth a kernel but for gates: 128 x 176. It fills the round of a product of 704 rows and 3840
// columns, of which 192 columns leave a tenth: a single one took 3 to 4 % less, but a forward at the power limit 0.7 %
// more.
#include "gemm_sm90.cuh"
#define KERNEL_2(...) SUMI_GEMM_KERNEL_2(sumi_gemm_bf16, SUMI_OPERANDS_BF16, 0, __VA_ARGS__)
#define KERNEL_3(...) SUMI_GEMM_KERNEL_3(sumi_gemm_bf16, SUMI_OPERANDS_BF16, 0, __VA_ARGS__)
#define HALVES_2(...) SUMI_GEMM_KERNEL_2(sumi_gemm_bf16, SUMI_OPERANDS_BF16, 1, __VA_ARGS__)
#define HALVES_3(...) SUMI_GEMM_KERNEL_3(sumi_gemm_bf16, SUMI_OPERANDS_BF16, 1, __VA_ARGS__)
SUMI_GEMM_SM90_BF16(KERNEL_2)
SUMI_GEMM_SM90_BF16_3(KERNEL_3)
SUMI_GEMM_SM90_BF16_HALVES(HALVES_2)
SUMI_GEMM_SM90_BF16_HALVES_3(HALVES_3)
