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
// Tiles (choose_linear.c chooses by cost). pp (ping-pong, 128 x 128 for each consumer) hides the epilogue and is best
// where the number of tiles fills whole rounds (n >= 9216). Otherwise 192 columns; 208 columns for n = 3072 at 4352
// rows, which makes four rounds; 256 columns for SwiGLU when pp does not fill its rounds; three consumers for few rows.
// The other widths and the kernels with halves are for products whose last round these would leave half empty.
// A model's products run at the power limit, where bytes read from L2 cost time: with pp for the gate and up product
// instead of 256 columns, in as many rounds, a forward of 2432 rows takes 1.4 % longer (rate_of in choose_linear.c).
// 128 x 240 is 2 to 3 % slower than 192 columns where both fill their rounds. Tried and slower: tiles of 128 x 320,
// 256 x 192, 256 x 128 without ping-pong, 192 columns with five stages, L2 cache hints, L2 prefetch.
#include "gemm_sm90.cuh"
#define KERNEL_2(...) SUMI_GEMM_KERNEL_2(sumi_gemm_bf16, SUMI_OPERANDS_BF16, 0, __VA_ARGS__)
#define KERNEL_3(...) SUMI_GEMM_KERNEL_3(sumi_gemm_bf16, SUMI_OPERANDS_BF16, 0, __VA_ARGS__)
#define HALVES_2(...) SUMI_GEMM_KERNEL_2(sumi_gemm_bf16, SUMI_OPERANDS_BF16, 1, __VA_ARGS__)
#define HALVES_3(...) SUMI_GEMM_KERNEL_3(sumi_gemm_bf16, SUMI_OPERANDS_BF16, 1, __VA_ARGS__)
SUMI_GEMM_SM90_BF16(KERNEL_2)
SUMI_GEMM_SM90_BF16_3(KERNEL_3)
SUMI_GEMM_SM90_BF16_HALVES(HALVES_2)
SUMI_GEMM_SM90_BF16_HALVES_3(HALVES_3)
