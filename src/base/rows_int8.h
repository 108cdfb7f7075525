// Rows of float32 in 8 bits, for files: half the bytes of bfloat16.
//
//     x[row, col] = q[row, col] * row_scale[row, col / 32] * column_scale[col]      q: -127 to 127
//
// Hidden states of language models have a few columns that are thousands of times larger than the others, in all rows.
// One scale for such a column and its neighbours rounds the neighbours to zero, however few they are. Therefore each
// column is first divided by its mean magnitude. What is then left are single large values, as in the first row of many
// models: these coarsen only the 32 values that share their row scale.
//
// Relative errors of 512 x 7680 normal random numbers, after 12 columns were multiplied by 1000; in parentheses the
// error of the other columns alone. The error of bfloat16 is 0.17 % (0.17 %).
//
//     one scale per row                                2.6 % (100 %)
//     one scale per 64 values, per 32 values           0.67 % (25 %), 0.50 % (18 %)
//     column scales, and one scale per 64 values       0.60 % (0.60 %)
//     column scales, and one scale per 32 values       0.53 % (0.54 %)         3 % more bytes than with 64
//
// Scales are bfloat16, which has the range of float32; float16 has not. Their 8 significant bits cost 1 % of the error
// with float32 scales (0.539 % instead of 0.535 %): q is rounded for the scale as it is stored, and a scale is rounded
// by 2^-8 at most, so the largest of 32 values is less than half a step above 127. A product has 7 + 8 + 8 = 23
// significant bits. It is exact in float32, and every machine reads the same bits.
#ifndef SUMI_BASE_ROWS_INT8_H
#define SUMI_BASE_ROWS_INT8_H
#include <stddef.h>

#define SUMI_INT8_GROUP 32 // values of a row that share a scale; the last group may be shorter

static inline size_t sumi_int8_groups(size_t cols) { return (cols + SUMI_INT8_GROUP - 1) / SUMI_INT8_GROUP; }

typedef struct sumi_int8_rows {
    size_t rows, cols;
    // None needs an alignment.
    void* values;        // int8 [rows][cols]
    void* row_scales;    // bfloat16 [rows][sumi_int8_groups(cols)]
    void* column_scales; // bfloat16 [cols]
} sumi_int8_rows;
// Writes rows of finite values. Magnitudes above 2^126 are written as 2^126, those below 2^-110 as 0.
void sumi_rows_to_int8(const float* source, const sumi_int8_rows* into);
// Reads one row of `cols` values. If a scale is NaN or infinite, the values that it multiplies are so too.
void sumi_row_from_int8(size_t cols, const void* values, const void* row_scales, const void* column_scales,
                        float* into);
#endif
