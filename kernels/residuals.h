// Launch contracts of residuals.cu. Blocks have SUMI_ROWS_THREADS threads and static shared memory; the grid may have
// any number of blocks and never changes the result. Both kernels are bound by bytes. The same on the CPU, in float32:
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
#endif
