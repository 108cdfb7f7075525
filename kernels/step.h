// A row of a step table, as kernels find it: address = table + (per step: counter * stride) + column, in elements of
// the table's type. Shared by the launchers and the kernels.
#ifndef SUMI_KERNELS_STEP_H
#define SUMI_KERNELS_STEP_H
#include <stdint.h>

// table 0: none; stride 0: the same row in every step
typedef struct sumi_step {
    uint64_t table;
    int32_t stride, column, is_float, reserved;
} sumi_step;
#endif
