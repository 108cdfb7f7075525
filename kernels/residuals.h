// Launch contracts of residuals.cu. Blocks have SUMI_ROWS_THREADS threads and static shared memory; the grid may have
// any number of blocks and never changes the result. The kernels are bound by bytes. The same on the CPU, in float32:
// src/cpu/rows.c.
#ifndef SUMI_KERNELS_RESIDUALS_H
#define SUMI_KERNELS_RESIDUALS_H
#include "rows.h"

// y[i] = x[i] + scale * y[i] for the elements i in [begin, end). is_vector 1: x and y are bf16, and begin and end are
// multiples of 8.
typedef struct sumi_add_rows_args {
    sumi_rows_matrix x, y;
    int64_t begin, end;
    float scale;
    int32_t is_vector;
} sumi_add_rows_args;

// For every part p in [part_begin, part_end), over its elements i in [p part_size, (p + 1) part_size), below `count`:
//     change[p][0] = sum of |(x[i] - before[i]) - kept[i]|, change[p][1] = sum of |kept[i]|
// and then kept[i] = x[i] - before[i]. The difference is rounded to the type of `kept` before it is compared.
// change: floats [..][2]. is_vector 1: all matrices are bf16, and part_size and count are multiples of 8.
typedef struct sumi_residual_change_args {
    sumi_rows_matrix x, before, kept;
    uint64_t change;
    int64_t part_size, count;
    int32_t part_begin, part_end, is_vector, reserved;
} sumi_residual_change_args;

// x[i] += residual[i] + f * change[i] for the elements i in [begin, end), with f = min((s1 - s) / (s0 - s1), most), or
// 0 unless s0 > s1. s0 and s1: the floats at older_sigma and newer_sigma; s: that of the step row. is_vector 1: all
// matrices are bf16, and begin and end are multiples of 8.
typedef struct sumi_add_residual_args {
    sumi_rows_matrix x, residual, change;
    uint64_t older_sigma, newer_sigma, counter;
    sumi_step sigma;
    int64_t begin, end;
    float most;
    int32_t is_vector;
} sumi_add_residual_args;
#endif
