// Shared by the op implementations of the CPU backend. One function per op kind, grouped by subject: product.c
// (LINEAR), attention.c, conv.c, rows.c (norms, rotary, gating ...), latents.c (patches, guidance, solver ...),
// pictures.c (pixels, tiles, group norm).
#ifndef SUMI_CPU_OPS_CPU_H
#define SUMI_CPU_OPS_CPU_H
#include "base/workers.h"
#include "cpu/kernels.h"
#include "plan/plan.h"

// One op, or a range of its work ranges [range_begin, range_end), while it runs. [row_begin, row_end) are the rows of
// these work ranges, in the sense of sumi_op.rows; they have no meaning for LINEAR, nor for GROUP_SUMS and ATTENTION if
// these were cut.
typedef struct sumi_cpu_run {
    const sumi_cpu_kernels* kernels;
    sumi_workers* workers;
    const sumi_plan* plan;
    const sumi_op* op;
    unsigned char* arena;
    float* shared; // filled by the op before its loop, read by all workers
    // How many parts of an operand or of a sum earlier slices of the same op have left packed in `shared`; 0 in its
    // first slice, and when another op has run since. The op that writes them counts them.
    int32_t* packed_count;
    unsigned char* worker_memory; // that of worker w is at worker_memory + w * worker_bytes
    uint64_t worker_bytes;
    int32_t counter, range_begin, range_end, row_begin, row_end;
    sumi_error* error;
} sumi_cpu_run;

typedef struct sumi_cpu_scratch {
    uint64_t shared_bytes, worker_bytes;
} sumi_cpu_scratch;

// The value's address in the arena; NULL for no value.
void* sumi_cpu_value(const sumi_cpu_run* run, sumi_value value);
int32_t sumi_cpu_cols(const sumi_cpu_run* run, sumi_value value);
int32_t sumi_cpu_pitch(const sumi_cpu_run* run, sumi_value value); // elements from row to row
// The row of a step table for this counter, from the step's column on; NULL for no table.
const float* sumi_cpu_step(const sumi_cpu_run* run, sumi_step_row step);
float* sumi_cpu_worker(const sumi_cpu_run* run, int32_t worker_index);
// Converts the `count` elements of a vector (or of a matrix read as a vector) to float.
void sumi_cpu_vector(const sumi_weight* weight, int64_t count, float* into);
// A row of a weight in the file's memory, if the kernels can read it directly: F32, F16 or BF16 without scale, change
// and rotation. NULL: use sumi_weight_to_float.
const void* sumi_cpu_weight_row(const sumi_weight* weight, int32_t row, sumi_dtype* dtype);

// ---- The blocked matrix product, shared by LINEAR and CONV ----------------------------------------------------------
typedef struct sumi_cpu_product sumi_cpu_product;
struct sumi_cpu_product {
    const sumi_cpu_run* run;
    int32_t row_begin, row_end, cols, depth;
    // work ranges [share_begin, share_end) of share_count equal shares of the work
    int32_t share_begin, share_end, share_count;
    const sumi_weight* weight; // B, packed block by block; NULL: use `panels`
    // all of B, packed: [cols / tile_cols][depth][tile_cols], or [cols][depth] if sumi_cpu_is_narrow(cols)
    const float* panels;
    // Copies rows [row, row + rows) and depth [k, k + depth) of A into a tile with pitch SUMI_CPU_A_STRIDE.
    void (*load)(const sumi_cpu_product* product, int32_t row, int32_t rows, int32_t k, int32_t depth, float* tile);
    const void* source; // for load
    int64_t source_stride;
    // out[row * y_stride + col]; the residual has the same layout
    float* y;
    const float* residual;
    int64_t y_stride;
    sumi_cpu_finish finish; // bias and gate begin at column 0
};
bool sumi_cpu_is_narrow(int32_t cols); // so few columns that dot products are faster than tiles; for `panels` only
void sumi_cpu_product_run(const sumi_cpu_product* product);
uint64_t sumi_cpu_product_worker_bytes(const sumi_cpu_kernels* kernels, int32_t cols, int32_t rows);
uint64_t sumi_cpu_panel_bytes(const sumi_cpu_kernels* kernels, int32_t cols, int32_t depth);

// ---- One function per op kind: computes the rows and work ranges of `run` -------------------------------------------
typedef sumi_result sumi_cpu_op(sumi_cpu_run* run);
sumi_cpu_op sumi_cpu_embed_rows, sumi_cpu_fill_rows, sumi_cpu_copy_rows, sumi_cpu_mean_rows, sumi_cpu_add_rows,
    sumi_cpu_residual_change, sumi_cpu_add_residual, sumi_cpu_linear, sumi_cpu_kronecker_add, sumi_cpu_activate,
    sumi_cpu_gated, sumi_cpu_norm_modulate, sumi_cpu_norm_gate_add, sumi_cpu_qk_norm_rope, sumi_cpu_attention,
    sumi_cpu_rope_table, sumi_cpu_time_embed, sumi_cpu_finish_modulation, sumi_cpu_patchify, sumi_cpu_unpatchify,
    sumi_cpu_add_noise, sumi_cpu_guide, sumi_cpu_solve, sumi_cpu_preview, sumi_cpu_pixels_in, sumi_cpu_patches_in,
    sumi_cpu_posterior, sumi_cpu_latent_in, sumi_cpu_conv, sumi_cpu_shortcut, sumi_cpu_group_sums, sumi_cpu_group_norm,
    sumi_cpu_tile_blend, sumi_cpu_tile_place, sumi_cpu_composite, sumi_cpu_pixels_out;

// Functions that cut op kinds whose work ranges, as chosen by the plan, can take longer than a slice should. All ranges
// of such an op take about the same time, except those that prepare; they need not be ranges of its rows.
#define SUMI_CPU_RANGE_FLOPS 1e7 // a tenth of a millisecond of one core with AVX-512, a millisecond without any AVX
#define SUMI_CPU_RANGE_BYTES 1e6
int32_t sumi_cpu_range_count(double flops, double bytes, int64_t max_count); // at least 1
void sumi_cpu_linear_cut(const sumi_cpu_kernels* kernels, sumi_op* op);
void sumi_cpu_pixels_out_cut(const sumi_cpu_kernels* kernels, sumi_op* op);
void sumi_cpu_attention_cut(const sumi_cpu_kernels* kernels, sumi_op* op);
void sumi_cpu_conv_cut(const sumi_cpu_kernels* kernels, sumi_op* op);
void sumi_cpu_group_sums_cut(const sumi_cpu_kernels* kernels, sumi_op* op);
void sumi_cpu_group_norm_cut(const sumi_cpu_kernels* kernels, sumi_op* op);

// Scratch memory of the op kinds that need any.
sumi_cpu_scratch sumi_cpu_linear_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op);
sumi_cpu_scratch sumi_cpu_attention_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op);
sumi_cpu_scratch sumi_cpu_conv_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op);
sumi_cpu_scratch sumi_cpu_rows_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op);
sumi_cpu_scratch sumi_cpu_kronecker_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op);
sumi_cpu_scratch sumi_cpu_group_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op);
#endif
