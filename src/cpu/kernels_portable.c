// The inner loops in portable C: vectors of 4 floats, which the compiler maps to SSE2, NEON or scalar code.
#if (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)) && !defined(__clang__)
// With the -O1 of the sanitizer builds gcc keeps a tile's accumulators in memory and checks each access, and the tests
// take twice as long.
#pragma GCC optimize("O2")
#endif
#define SUMI_LANES 4
#define SUMI_TILE_ROWS 4
#define SUMI_TILE_VECTORS 2
#include "cpu/body_product.h"
#include "cpu/body_rows.h"

const sumi_cpu_kernels sumi_cpu_kernels_portable = SUMI_CPU_KERNEL_TABLE("portable C");
