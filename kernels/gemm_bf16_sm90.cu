// y[m, n] = epilogue(x[m, k] w[n, k]^T): bf16 operands and result, float sums.
//   x [m][k], w [n][k], y and resid [m][n] (SwiGLU: y [m][n/2]), row-major, rows 16-byte aligned (k, n multiples of 8; SwiGLU 16); any m; resid may be y
//   bias: float [n]; gate: float row of a step table      grid: multiprocessors (even, at most 2 * pairs of tiles)      block 384 (three consumers: 512)      cluster 2 (in the kernel)
//   dynamic shared memory: SUMI_GEMM_SM90_SHARED; tensor-map boxes: x {64, BM/2}, w {64, BN/2}, 128-byte swizzle; y and resid {SW, 64*WM}, swizzled when SW is 64
// Bound by the card's power on an H200 (700 W, about 1.4-1.5 GHz under load), before that by L2 latency.
//
// Tiles: pp (ping-pong, 128x128 per consumer) where its rounds come out well (n >= 9216): it hides the epilogue; 192
// columns otherwise; 208 fits n = 3072 at 4352 rows into four rounds; 256 for SwiGLU when pp does not fit, three
// consumers where rows are few. At the power limit, where a model's products work, bytes from L2 cost time: gate and up
// by pp, in as many rounds as by 256, make a forward of 2432 rows 1.4 % longer (rate_of in choose_linear.c). Tried and
// slower: 128x240, 128x320,
// 256x192, 256x128 without ping-pong, 192 with five stages, L2 hints and prefetch.
#include "gemm_sm90.cuh"
#define KERNEL_2(...) SUMI_GEMM_KERNEL_2(sumi_gemm_bf16, SUMI_OPERANDS_BF16, __VA_ARGS__)
#define KERNEL_3(...) SUMI_GEMM_KERNEL_3(sumi_gemm_bf16, SUMI_OPERANDS_BF16, __VA_ARGS__)
SUMI_GEMM_SM90_BF16(KERNEL_2)
SUMI_GEMM_SM90_BF16_3(KERNEL_3)
