// Launch contracts of rows.cu, norms.cu, rows_fp8.cu and rows_int8.cu: plain structs by value, addresses as 64-bit
// device addresses. Blocks have SUMI_ROWS_THREADS threads and no dynamic shared memory. The norm kernels that keep a
// row in registers (sumi_norm_*_rows) instead have SUMI_ROW_THREADS_OF(cols) threads and SUMI_ROW_SHARED_BYTES of
// dynamic shared memory. The grid may have any number of blocks, unless a struct says otherwise: it only distributes
// the rows and never changes the result. All kernels are bound by bytes.
//
// The same on the CPU, in float32, which tests compare with: src/cpu/rows.c.
#ifndef SUMI_KERNELS_ROWS_H
#define SUMI_KERNELS_ROWS_H
#include "step.h"
#include <stdint.h>

#define SUMI_ROWS_THREADS 256
#define SUMI_ROWS_BATCH 64           // entries of a list in host memory that one launch takes by value
#define SUMI_ROPE_BATCH 64           // rotary pairs of one launch
#define SUMI_QK_HEADS_AT_ONCE 4      // heads that a group of lanes of qk_norm_rope processes at a time
#define SUMI_ROW_MAX_COLS 8192       // largest width of the norm kernels that keep one row in registers
#define SUMI_NORM_PAIR_MAX_COLS 4096 // largest width of those that keep two rows

// The norm kernels that keep a row in registers (rows.cuh): chunks of 8 columns per thread, and rows of a block that
// are in the ring buffer (in flight or being read).
#define SUMI_ROW_CHUNKS 3
#define SUMI_ROW_STAGES 2
#define SUMI_ROW_THREADS_OF(cols) (((cols) + 8 * 32 * SUMI_ROW_CHUNKS - 1) / (8 * 32 * SUMI_ROW_CHUNKS) * 32)
#define SUMI_ROW_SHARED_BYTES(threads, matrices) (SUMI_ROW_STAGES * (matrices)*SUMI_ROW_CHUNKS * (threads)*16)
// The number of threads per multiprocessor for which registers are allotted, and so also for its number of resident
// blocks: 16 warps with 128 registers per thread, or 20 warps with 96.
#define SUMI_NORM_LIMIT 512
#define SUMI_NORM_FP8_LIMIT 640 // for sumi_norm_modulate_fp8_rows
// Columns of a row of rotated int8: whole blocks of 256 columns (rotate.cuh).
#define SUMI_ROTATED_COLS(cols) (((cols) + 255) / 256 * 256)

// A matrix of bf16 or float whose rows are adjacent.
typedef struct sumi_rows_matrix {
    uint64_t data;
    int32_t is_float, reserved;
} sumi_rows_matrix;

// Elementwise kernels use 2^lanes_log2 threads per row. is_vector 1: each thread processes 8 columns at a time (all
// matrices are bf16, widths are multiples of 8); 0: one column at a time.
typedef struct sumi_embed_rows_args {
    uint64_t ids, table, bias, factors; // bias: floats; 0: none. ids, factors: [rows][terms]
    sumi_rows_matrix y;
    // piece_rows > 0: `table` is a list of device addresses, one for each piece of so many rows of the table
    int32_t table_rows, pitch, piece_rows, cols, row_begin, row_end, lanes_log2, is_vector;
    float scale;
    // Of sumi_embed_rows_stored: the type of the table's rows (kernels/stored.h), whose pitch is in bytes; type_scale:
    // for fp8 files, the factor of the elements.
    int32_t type;
    float type_scale;
    int32_t terms;
} sumi_embed_rows_args;
typedef struct sumi_fill_rows_args { // grid y: spans of rows
    uint64_t row;
    sumi_rows_matrix y;
    int32_t cols, span_count, lanes_log2, is_vector;
    int32_t begin[SUMI_ROWS_BATCH], count[SUMI_ROWS_BATCH];
} sumi_fill_rows_args;
typedef struct sumi_copy_bytes_args {
    uint64_t x, y, bytes;
} sumi_copy_bytes_args;
// `rows` rows of row_bytes bytes, which begin x_pitch and y_pitch bytes apart. sumi_copy_kept_fp8: all are multiples of
// 16, and a row is k | v, half of the bytes each; lanes_log2 is not read.
typedef struct sumi_copy_columns_args {
    uint64_t x, y;
    int64_t rows, row_bytes, x_pitch, y_pitch;
    int32_t lanes_log2, reserved;
} sumi_copy_columns_args;
typedef struct sumi_mean_rows_args { // grid y: spans of rows; the mean of the first span is row y_row of y
    sumi_rows_matrix x, y;
    int32_t cols, span_count, y_row, reserved;
    int32_t begin[SUMI_ROWS_BATCH], count[SUMI_ROWS_BATCH];
} sumi_mean_rows_args;
// Elements [begin, end) of both matrices. With activation 0 (none) it converts between bf16 and float.
typedef struct sumi_activate_args {
    sumi_rows_matrix x, y;
    int64_t begin, end;
    int32_t activation, is_vector;
} sumi_activate_args;
// y[y_row + r][column + i x_cols + k] += gate * scale * sum over j < w_cols of w[i, j] * x[r w_cols + j][k]
//     for i < w_rows, k < x_cols and r in [row_begin, row_end). x [..][x_cols], y [..][ldy], w [w_rows][w_cols] floats.
// half > 0: the columns of y are interleaved in groups of eight, from the first and the second `half` columns
// alternately, as in a product with a weight of FORM_GATED. sumi_kronecker_add: x and y are bf16; x_cols, ldy, column
// and half are multiples of 8. sumi_kronecker_add_any: all other cases.
typedef struct sumi_kronecker_add_args {
    sumi_rows_matrix x, y;
    uint64_t w, counter;
    sumi_step gate;
    int32_t w_rows, x_cols, w_cols, ldy, column, half, y_row, row_begin, row_end, lanes_log2;
    float scale;
    int32_t reserved;
} sumi_kronecker_add_args;
typedef struct sumi_gated_args {
    sumi_rows_matrix x, y;
    int32_t cols, ldy, row_begin, row_end, activation, lanes_log2, is_vector, is_interleaved; // ldy: columns of y
} sumi_gated_args;

// y[y_row + r] = norm(x[x_row + r]) * (w or w + 1) * scale + shift   for r in [row_begin, row_end). w: floats; 0: none.
// y_scales: one float per row of y, for e4m3 and int8 output.
typedef struct sumi_norm_modulate_args {
    sumi_rows_matrix x, y;
    uint64_t y_scales, w, counter;
    sumi_step scale, shift;
    int32_t cols, row_begin, row_end, x_row, y_row, is_layer, plus_one;
    float eps;
} sumi_norm_modulate_args;

// x[x_row + r] += gate * (rms(b[b_row + r]) * w)
typedef struct sumi_norm_gate_add_args {
    sumi_rows_matrix x, b;
    uint64_t w, counter;
    sumi_step gate;
    int32_t cols, row_begin, row_end, x_row, b_row;
    float eps;
} sumi_norm_gate_add_args;

// First `add`, then `norm` on the rows that `add` wrote: norm's row range and x are those of add.
typedef struct sumi_norm_pair_args {
    sumi_norm_gate_add_args add;
    sumi_norm_modulate_args norm;
} sumi_norm_pair_args;

// Heads [0, q_heads) of a row are normed with q_w, the next kv_heads heads with k_w; 0: no norm. rope: floats
// [rows][dim], (cos, sin) per pair; 0: no rotation. 2^heads_log2 groups of lanes process a row.
typedef struct sumi_qk_norm_rope_args {
    sumi_rows_matrix x;
    uint64_t q_w, k_w, rope;
    int32_t pitch, q_heads, kv_heads, dim, row_begin, row_end, x_row, rope_row, is_halves, heads_log2;
    float eps;
    int32_t reserved;
} sumi_qk_norm_rope_args;

// y[r, 2 (pair_begin + k)] = cos, sin of float(positions[r, axis[k]] * frequency[k])
typedef struct sumi_rope_table_args {
    uint64_t positions, y;
    int32_t axes, cols, row_begin, row_end, pair_begin, pair_count;
    double frequency[SUMI_ROPE_BATCH];
    int32_t axis[SUMI_ROPE_BATCH];
} sumi_rope_table_args;

typedef struct sumi_time_embed_args {
    uint64_t times;
    sumi_rows_matrix y;
    int32_t width, row_begin, row_end, cos_first;
    float scale, log_period;
} sumi_time_embed_args;
// y[r, c] = f(x[x_row + r, c]). Bit c / vector_cols of `adds_one` and of `squashes` selects f: 1 + v, or tanh(v), or v.
// per_step 1: the row read is x_row + *counter + r. y may be x.
typedef struct sumi_finish_modulation_args {
    sumi_rows_matrix x, y;
    uint64_t counter;
    int32_t cols, vector_cols, row_begin, row_end, x_row, per_step;
    uint32_t adds_one, squashes;
} sumi_finish_modulation_args;

// sumi_quantize_rows (rows_fp8.cu): y[r][0 .. cols) = e4m3(x[r][0 .. cols) / scales[r]), scales[r] = (largest |x[r]|) /
// 448. x: bf16, ldx elements from row to row; rows of y are adjacent. Any alignment; fast if cols and ldx are multiples
// of 8, x is 16-byte aligned and y 8-byte aligned. Grid: any; one block per row is best, up to a few blocks per
// multiprocessor.
//
// sumi_rotate_rows_3, _5 and _any (rows_int8.cu): the same to rotated int8: scales[r] = (largest |R x[r]|) / 127, y
// [rows][SUMI_ROTATED_COLS(cols)]. x is 16-byte aligned, cols and ldx are multiples of 8. balance: float [cols],
// 16-byte aligned, by which x is multiplied first; 0: none. _3 and _5, by the chunks of 8 columns per thread, have
// SUMI_ROTATE_THREADS(cols, chunks) threads, up to SUMI_ROTATE_MAX_THREADS (12 warps). _any has SUMI_ROWS_THREADS and
// takes all other widths.
#define SUMI_ROTATE_THREADS(cols, chunks) (((cols) + 256 * (chunks)-1) / (256 * (chunks)) * 32)
#define SUMI_ROTATE_MAX_THREADS 384
#define SUMI_ROTATE_LIMIT 640 // see SUMI_NORM_FP8_LIMIT
typedef struct sumi_quantize_rows_args {
    uint64_t x, y, scales, balance; // balance: int8 only
    int64_t ldx;
    int32_t rows, cols;
} sumi_quantize_rows_args;
#endif
