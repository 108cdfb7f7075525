// Some files rotate a row of a weight to spread its outliers before the row is quantised to int8 ("convrot"). A row is
// cut into groups of 4, 16, 64 or 256 columns. Each group is multiplied by a regular Hadamard matrix, a Kronecker power
// of
//     H = 1/2 [ 1  1  1 -1 ]
//             [ 1  1 -1  1 ]
//             [ 1 -1  1  1 ]
//             [-1  1  1  1 ]
// The matrix is symmetric and orthogonal, so applying the rotation twice restores the row.
#ifndef SUMI_BASE_ROTATION_H
#define SUMI_BASE_ROTATION_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SUMI_ROTATION_MAX 256 // columns of the largest group

bool sumi_rotation_is_known(int64_t group);
// Rotates `count` values in place, each group separately. count is a multiple of `group`. Exact for 8-bit integers: the
// results are multiples of 1/16 below 2048.
void sumi_rotate(float* values, size_t count, int32_t group);
#endif
