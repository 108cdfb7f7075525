// The inner loops with AVX-512 (F, BW, DQ, VL). This file selects the instruction set, not compiler flags, so that one
// build runs on every CPU.
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#if (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)) && !defined(__clang__)
// With the -O1 of the sanitizer builds gcc keeps a tile's accumulators in memory and checks each access, and the tests
// take twice as long.
#pragma GCC optimize("O2")
#endif
#include "base/dtype.h"
#include "cpu/kernels.h"
#include <immintrin.h>
#include <math.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))),              \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif
#define SUMI_LANES 16
#define SUMI_TILE_ROWS 14
#define SUMI_TILE_VECTORS 2
#include "cpu/body_product.h"
#include "cpu/body_rows.h"

const sumi_cpu_kernels sumi_cpu_kernels_avx512 = SUMI_CPU_KERNEL_TABLE("AVX-512");
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int sumi_cpu_kernels_avx512_is_for_x86; // a C file needs at least one declaration
#endif
