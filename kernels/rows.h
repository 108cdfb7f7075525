// What the launchers of rows.cu, rows_fp8.cu and rows_int8.cu pass: plain structs by value, addresses as 64-bit integers. Kernels take
// blocks of SUMI_ROWS_THREADS without dynamic shared memory, those of norms with rows in registers (sumi_norm_*_rows)
// what SUMI_ROW_THREADS_OF says, and any number of blocks: the grid is only how the rows are shared out, never part of
// the result.
#ifndef SUMI_KERNELS_ROWS_H
#define SUMI_KERNELS_ROWS_H
#include "step.h"
#include <stdint.h>

#define SUMI_ROWS_THREADS 256
#define SUMI_ROWS_BATCH 64            // entries of a host list that one launch takes by value
#define SUMI_ROPE_BATCH 64            // rotary pairs per launch
#define SUMI_QK_AHEAD 4               // heads of a turn of qk_norm_rope
#define SUMI_ROW_MOST_COLS 8192       // of the norm kernels that keep a row in registers
#define SUMI_NORM_PAIR_MOST_COLS 4096 // of those that keep two

// Of the norm kernels that keep a row in registers, see rows.cuh: a thread has so many chunks of 8 columns, and so many
// rows of a block are on their way.
#define SUMI_ROW_CHUNKS 3
#define SUMI_ROW_STAGES 2
#define SUMI_ROW_THREADS_OF(cols) (((cols) + 8 * 32 * SUMI_ROW_CHUNKS - 1) / (8 * 32 * SUMI_ROW_CHUNKS) * 32)
#define SUMI_ROW_SHARED_BYTES(threads, matrices) (SUMI_ROW_STAGES * (matrices)*SUMI_ROW_CHUNKS * (threads)*16)
// Threads that the registers of a multiprocessor are for, and so the blocks that it is given: 16 warps of 128 registers,
// and 20 of 96.
#define SUMI_NORM_LIMIT 512
#define SUMI_NORM_FP8_LIMIT 640 // of sumi_norm_modulate_fp8_rows
// Columns of a row of rotated int8: whole blocks of the rotation.
#define SUMI_ROTATED_COLS(cols) (((cols) + 255) / 256 * 256)

// A matrix of bf16 or float, rows tightly packed.
typedef struct sumi_rows_matrix {
    uint64_t data;
    int32_t is_float, reserved;
} sumi_rows_matrix;

// Elementwise kernels give 2^lanes_log2 threads to a row; is_vector: 8 columns per thread and turn (all matrices bf16,
// widths multiples of 8), else 1.
typedef struct sumi_embed_rows_args {
    uint64_t ids, table, bias; // bias: floats, 0: none
    sumi_rows_matrix y;
    // piece_rows not 0: table is a list of the addresses of pieces of so many rows
    int32_t table_rows, pitch, piece_rows, cols, row_begin, row_end, lanes_log2, is_vector;
    float scale;
    // sumi_embed_rows_stored: the type of the table's rows (kernels/stored.h), whose pitch is in bytes; of fp8 files the
    // factor of its elements
    int32_t type;
    float type_scale;
    int32_t reserved;
} sumi_embed_rows_args;
typedef struct sumi_fill_rows_args { // grid y: spans
    uint64_t row;
    sumi_rows_matrix y;
    int32_t cols, span_count, lanes_log2, is_vector;
    int32_t begin[SUMI_ROWS_BATCH], count[SUMI_ROWS_BATCH];
} sumi_fill_rows_args;
typedef struct sumi_copy_bytes_args {
    uint64_t x, y, bytes;
} sumi_copy_bytes_args;
typedef struct sumi_mean_rows_args { // grid y: spans; the first one's mean is row y_row
    sumi_rows_matrix x, y;
    int32_t cols, span_count, y_row, reserved;
    int32_t begin[SUMI_ROWS_BATCH], count[SUMI_ROWS_BATCH];
} sumi_mean_rows_args;
// elements [begin, end); also converts (activation none)
typedef struct sumi_activate_args {
    sumi_rows_matrix x, y;
    int64_t begin, end;
    int32_t activation, is_vector;
} sumi_activate_args;
// y[y_row + r][column + i b + k] += gate * scale * sum over j < c of w[i, j] * x[r c + j][k] for i < a, k < b and r in
// [row_begin, row_end). x [.., b]; y [.., ldy]; w [a][c] floats. half not 0: y's columns are in eights, the first and the
// second `half` of them in turn, as FORM_GATED says.
// "sumi_kronecker_add": x and y are bf16; b, ldy, column and half are multiples of 8. "_any": everything else.
typedef struct sumi_kronecker_add_args {
    sumi_rows_matrix x, y;
    uint64_t w, counter;
    sumi_step gate;
    int32_t a, b, c, ldy, column, half, y_row, row_begin, row_end, lanes_log2;
    float scale;
    int32_t reserved;
} sumi_kronecker_add_args;
typedef struct sumi_gated_args {
    sumi_rows_matrix x, y;
    int32_t cols, row_begin, row_end, activation, lanes_log2, is_vector, is_interleaved, reserved;
} sumi_gated_args;

// y[y_row + r] = norm(x[x_row + r]) * (w or w + 1) * scale + shift for r in [row_begin, row_end). w: floats, 0: none.
// y_scales: of e4m3 and int8 output, by row of y.
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

// The first, then the second on the rows that the first wrote: norm's row range and x are those of add.
typedef struct sumi_norm_pair_args {
    sumi_norm_gate_add_args add;
    sumi_norm_modulate_args norm;
} sumi_norm_pair_args;

// Heads [0, q_heads) of a row take q_w, the next kv_heads k_w; 0: no norm. rope: floats [rows][dim], (cos, sin) per
// pair; 0: no rotation.
// A row takes 2^heads_log2 groups of lanes at a time.
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
// y[r, c] = x[x_row + r, c], as bit c / part_cols of adds_one (1 + v) and of squashes (tanh v) says; per_step: from row
// x_row + *counter + r on. y may be x.
typedef struct sumi_finish_modulation_args {
    sumi_rows_matrix x, y;
    uint64_t counter;
    int32_t cols, part_cols, row_begin, row_end, x_row, per_step;
    uint32_t adds_one, squashes;
} sumi_finish_modulation_args;

// rows_fp8.cu, "sumi_quantize_rows": y[r][0 .. cols) = e4m3(x[r][0 .. cols) / scales[r]), scales[r] = amax / 448. x:
// bf16, ldx elements from row to row; y: tightly packed. Any alignment; fast when cols and ldx are multiples of 8 (x
// 16, y 8 bytes aligned). Grid: any, a block a row is best up to a few per multiprocessor.
// rows_int8.cu: the same to rotated int8, amax / 127 after the rotation; y [rows][SUMI_ROTATED_COLS(cols)]. x 16-byte
// aligned, cols and ldx multiples of 8; balance not 0: x[r][c] * balance[c], floats, 16-byte aligned. "sumi_rotate_rows_3" and "_5", by the chunks of a thread, take up to 12 warps;
// "_any" everything else, in blocks of SUMI_ROWS_THREADS.
#define SUMI_ROTATE_THREADS(cols, chunks) (((cols) + 256 * (chunks)-1) / (256 * (chunks)) * 32)
#define SUMI_ROTATE_MOST_THREADS 384
#define SUMI_ROTATE_LIMIT 640 // as SUMI_NORM_FP8_LIMIT
typedef struct sumi_quantize_rows_args {
    uint64_t x, y, scales, balance; // balance: of int8
    int64_t ldx;
    int32_t rows, cols;
} sumi_quantize_rows_args;
#endif
