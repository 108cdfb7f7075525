// The rotation by which some files spread outliers over a row before it is quantised to int8 ("convrot"). A row of W is
// cut into groups of 4, 16, 64 or 256 columns. Each is multiplied by a regular Hadamard matrix, a Kronecker power of
//     H = 1/2 [ 1  1  1 -1 ]
//             [ 1  1 -1  1 ]
//             [ 1 -1  1  1 ]
//             [-1  1  1  1 ]
// which is symmetric and orthogonal: doing it twice gives the row back.
#ifndef SUMI_BASE_ROTATION_H
#define SUMI_BASE_ROTATION_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SUMI_ROTATION_MAX 256 // columns of the largest group

bool sumi_rotation_is_known(int64_t group);
// Rotates each group of `count` values, a multiple of `group`, in place. Exact for integers of 8 bits: the results are
// multiples of 1/16 below 2048.
void sumi_rotate(float* values, size_t count, int32_t group);
#endif
