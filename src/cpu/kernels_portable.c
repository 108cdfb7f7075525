// The inner loops in portable C: 4-float vectors that the compiler maps to SSE2, NEON or plain floats.
#if (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)) && !defined(__clang__)
// or a tile's sums stay in memory, each access with its check: such builds are for tests, which then take twice as long
#pragma GCC optimize("O2")
#endif
#define SUMI_LANES 4
#define SUMI_TILE_ROWS 4
#define SUMI_TILE_VECTORS 2
#include "cpu/body_product.h"
#include "cpu/body_rows.h"

const sumi_cpu_kernels sumi_cpu_kernels_portable = SUMI_CPU_KERNEL_TABLE("portable C");
