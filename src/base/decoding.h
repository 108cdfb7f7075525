// How stored elements become values when their type alone does not say it: blocks of elements share a factor, columns
// have factors, or the elements are 4-bit codes with a table. The quantised formats of safetensors files are made of
// these parts (files/tensor_scaling.h says which format has which):
//
//     value[r, c] = rotate(round(element[r, c] * block factor)) * scale * row factor[r] * column factor[c]
//
// where the caller rotates and applies the scale and the rows' factors (plan/weight.h). All data stays in the mapped
// file, at any alignment.
#ifndef SUMI_BASE_DECODING_H
#define SUMI_BASE_DECODING_H
#include "base/dtype.h"

#define SUMI_CODE_COUNT 16 // values of four bits

typedef struct sumi_decoding {
    // Factors of blocks of block_rows x block_cols elements, `pitch` of them from one row of blocks to the next; the
    // blocks at the ends may be short. NULL: no factors.
    const void* scales;
    sumi_dtype scale_dtype;
    int32_t block_rows, block_cols, pitch;
    int32_t first_block_row; // the row of blocks to which the first of the elements belongs
    // The factors lie in tiles of 128 x 4, as cuBLAS reads them. `pitch` is then a multiple of 4:
    // https://docs.nvidia.com/cuda/cublas/#d-block-scaling-factors-layout
    bool is_tiled;
    // The products of elements and factors are whole numbers of eight bits: rounded to nearest even, at most 127.
    bool is_rounded;
    bool has_codes;  // elements are SUMI_DTYPE_CODES4, and `codes` has their values
    bool high_first; // of a pair of codes the one in the high bits comes first
    float codes[SUMI_CODE_COUNT];
    const void* column_scales; // a factor for each column; NULL: none
    sumi_dtype column_dtype;
} sumi_decoding;

// Elements of a row from `column` on: `count` of the type `dtype`, at `source`. Columns of codes are even, and so is
// count.
typedef struct sumi_decoding_span {
    sumi_dtype dtype;
    const void* source;
    int32_t row, column, count;
} sumi_decoding_span;
// Where the factor of the block in row `row` and column `column` of blocks lies.
const void* sumi_decoding_scale_at(const sumi_decoding* decoding, int32_t row, int32_t column);
// Converts them to float, as far as they are rotated: without the factors of columns.
void sumi_decode(const sumi_decoding* decoding, const sumi_decoding_span* span, float* into);
// Multiplies `count` values from `column` on by the factors of their columns.
void sumi_decode_columns(const sumi_decoding* decoding, int32_t column, int32_t count, float* values);
// Bytes of the factors of a matrix.
uint64_t sumi_decoding_bytes(const sumi_decoding* decoding, int32_t rows, int32_t cols);
#endif
