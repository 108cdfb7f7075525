// Quantised weights, for the files of this folder that need them.
#ifndef TEST_CUDA_OPS_QUANTISED_H
#define TEST_CUDA_OPS_QUANTISED_H
#include "cuda_ops/scene.h"

// Formats of a weight.
enum {
    NO_FORMAT,
    FP8_BLOCKS,     // e4m3, a bfloat16 factor for each 128 x 128
    FP8_BLOCKS_F32, // the same with float factors
    FP8_ROWS,       // e4m3, a bfloat16 factor for each row
    FP8_ROWS_F32,   // the same with float factors
    MXFP8,          // e4m3, a power of two for each 32 columns, in tiles
    NVFP4,          // e2m1, the first of a pair in the high bits; e4m3 for each 16 columns, in tiles; one factor
    NVFP4_IN_ROWS,  // e2m1, the first in the low bits; e4m3 for each 16 columns, in rows; one factor
    NVFP4_COLUMNS,  // the same, and factors of columns
    ROTATED_W4A4,   // integers of 4 bits, a factor for each row; rotated in groups of 64
    ROTATED_W4A8,   // codes of a table, a factor for each 64 columns, rounded; a factor for each row; rotated
    ROTATED_INT8,   // int8, a factor for each row; rotated in groups of 64
    PLAIN_BF16,     // as in files that are not quantised
    FORMAT_COUNT
};

// Of one tensor, or, with a second format, of two: the first has `first_rows` rows. Elements times factors, after the
// rotation, are normal, with the deviation 1 / sqrt(cols).
sumi_weight* quantised_weight(scene* s, int rows, int cols, int first_rows, int first, int second);
#endif
