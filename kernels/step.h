// Where a kernel finds its row of a step table. A step table has one row per step of the solver. Element i of the row
// is table[counter * stride + column + i], counted in elements of the table's type. `counter` is the step's number,
// which a kernel reads from device memory. The launchers and the kernels share this struct.
#ifndef SUMI_KERNELS_STEP_H
#define SUMI_KERNELS_STEP_H
#include <stdint.h>

// table: device address; 0: there is no table. stride: elements from row to row; 0: every step uses the same row.
// column: the first element in the row. is_float: 1: the elements are float; 0: bf16.
typedef struct sumi_step {
    uint64_t table;
    int32_t stride, column, is_float, reserved;
} sumi_step;
#endif
