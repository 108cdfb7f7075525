// The plan: a flat list of ops over values. Model code writes a plan once per network and shape; a backend runs the
// plan any number of times.
//
//  model code --writes--> ops + values --sumi_plan_finish--> lifetimes, arena offsets --sumi_plan_slice--> slices
//                                             |                                                             |
//                          the backend's `arrange` marks ops that                       the backend runs the slices,
//                          the backend will execute together                            which leaves the results
//
// A plan covers a whole job. Text encoding, preparation, the denoising step and decoding are *sections*. A section runs
// `repeat` times in a row, and the counter of the iteration selects the row of every step table. A value that is
// written in one section and read in a later one lives until then.
//
//  TEXT x1 | PREPARE x1 | DENOISE x8 (counter 0..7) | DECODE x2 (counter = item) | TRANSFER x1
//
// A section may have an alternative: a section whose iterations can each run in place of the same iteration of the
// section before it. The caller that runs the plan decides before every iteration, except the first, which is always
// the section's own. Step caching works like this (models/step_cache.h).
//
//                       | DENOISE, counter 0 1   3   5 6 |
//             PREPARE   |                                | DECODE
//                       | its alternative  2   4         |
//
// Invariants: The rows of a value are written before they are read. If an op works in place, its output is also one of
// its inputs. The bytes of two values overlap in the arena only if their lifetimes do not, or if one may share the
// bytes of the other (sumi_plan_share). A value from before a repeated section that the section reads lives until the
// section and its alternative end. A value that is written in a section and read in its alternative lives until the
// alternative ends. Errors while writing (a shape that does not fit, no memory) are kept in the plan, and
// sumi_plan_finish returns the first one. So model code reads like the paper, without a check per line.
//
// A view is a value inside another value, its base: some of the base's rows, or some columns of some rows, or the whole
// base as rows of another length. Large pictures are processed in strips of rows through views. Then the intermediate
// values exist for one strip at a time, and results may replace the inputs they were computed from (the autoencoders in
// models/). Whoever writes such a plan is responsible for the order: an op must not overwrite rows that another work
// range of the same op still reads.
#ifndef SUMI_PLAN_PLAN_H
#define SUMI_PLAN_PLAN_H
#include "base/memory.h"
#include "plan/ops.h"

typedef enum sumi_element {
    SUMI_ELEMENT_ACTIVATION, // the backend's type, of sumi_plan.activation_bytes bytes
    SUMI_ELEMENT_FLOAT,      // float32 on all backends: latents, tables, statistics
    SUMI_ELEMENT_INT,        // int32
    SUMI_ELEMENT_BYTE        // uint8
} sumi_element;

typedef struct sumi_value_info {
    const char* name; // static text
    sumi_element element;
    int32_t rows, cols;
    // The value lives through the whole plan: inputs that the engine writes before the run, results that it reads
    // after.
    bool bound;
    int32_t first_use, last_use; // op indices, set by sumi_plan_finish (extended over repeated sections)
    uint64_t bytes, offset;      // in the arena, set by sumi_plan_finish
    // Elements from one row to the next: cols, or more in a view of some columns. CONV, GROUP_SUMS and GROUP_NORM
    // accept any pitch, COPY_ROWS in its input; other ops need pitch == cols.
    int32_t pitch;
    // For views. base: the value whose memory the view shares, never a view itself. cut_from: the value that the view
    // was cut from, which is the base or another view; the view begins at row cut_from_row of it.
    sumi_value base, cut_from;
    int32_t cut_from_row;
    uint64_t base_element; // index of the view's first element in the base
    // This value, a guest, may share the first bytes of the value `host`, although both live at the same time.
    sumi_value container;
    // The result of the first op of a pair (sumi_plan_arrange), which only the second op reads. It is never written to
    // memory and takes no bytes. Set by a backend.
    bool is_unstored;
    uint8_t marks; // for the backend's own use
} sumi_value_info;

typedef enum sumi_section_kind {
    SUMI_SECTION_PREPARE,
    SUMI_SECTION_VISION, // encodes pictures in prompts
    SUMI_SECTION_TEXT,
    SUMI_SECTION_IMAGE, // encodes pictures to latents
    SUMI_SECTION_DENOISE,
    SUMI_SECTION_DECODE,
    SUMI_SECTION_TRANSFER
} sumi_section_kind;
typedef struct sumi_section {
    sumi_section_kind kind;
    int32_t op_begin, op_end; // ops [begin, end)
    int32_t repeat, first_counter;
    int32_t slice_begin, slice_end; // set by sumi_plan_slice
    bool is_alternative;            // an alternative to the section before it
} sumi_section;

// A piece of work that is not interrupted: whole ops [op_begin, op_end) or, if op_end == op_begin + 1, work ranges
// [range_begin, range_end) of that op.
typedef struct sumi_slice {
    int32_t op_begin, op_end, range_begin, range_end;
    float predicted_us;
    // So many slices, from this one on, may be submitted as one group, which takes less of the host's time. 1 in every
    // other slice; 0 counts as 1. See sumi_slicing.
    int32_t group_count;
} sumi_slice;

// Throughput of a backend, for predictions: measured by the backend and refined while running. op_us: fixed time per
// op.
typedef struct sumi_rates {
    double flops_per_us, bytes_per_us, op_us;
} sumi_rates;

// A constant, which the backend copies into a bound value before each run (positions, ids that never change).
typedef struct sumi_constant {
    sumi_value value;
    const void* data;
    uint64_t bytes;
} sumi_constant;

struct sumi_plan;
struct sumi_runner;
// How a backend marks ops that it will execute together, and cuts ops. sumi_plan_finish calls this function when the
// first and last use of each value is known (a use of a view counts for its base), and before it computes lifetimes and
// offsets. The function sets these members and changes nothing else; all marks are zero before the call:
//
//  op.is_first_of_pair  The op and the next one, of the same section, are executed together, as a pair: the result of the
//                       second op is written while the inputs of the first op are still read. An op is in at most one
//                       pair.
//  op.is_beside_next    The op and the next one, of the same section, read nothing that the other one writes, and may be
//                       executed at the same time. An op is beside one other op at most, and in no pair.
//  value.is_unstored    The result of a pair's first op that only the second op reads. It takes no memory.
//  marks                Of ops and values: other data that the backend needs when it runs them. Nobody else reads them.
//  op.is_cut            The backend has written range_count, range_rows and preparing_count too. The work ranges run in
//                       their order, with no other op in between, and only the backend knows what they compute.
typedef void sumi_plan_arrange(const struct sumi_runner* runner, struct sumi_plan* plan);

// The engine's requests to the backend for a plan. The plan only carries these members.
typedef struct sumi_weight_options {
    sumi_weight_format weights;      // format for weights of the denoising sections, except those with keeps_precision
    sumi_weight_format text_weights; // the same for the text and vision sections
    sumi_attention_format attention; // of the denoising sections
    // The plan uses its weights once, and they should not stay on the device: other plans need the memory.
    bool streams_weights;
    bool unused[3]; // explicit padding, see jobs/plan_key.h
} sumi_weight_options;

// A vector that adapters change. sum: the changed vector as a value, one row of floats.
typedef struct sumi_adapted_vector {
    const sumi_weight* vector;
    sumi_value sum;
} sumi_adapted_vector;

typedef struct sumi_plan {
    sumi_heap* heap;
    int32_t activation_bytes;
    sumi_plan_arrange* arrange; // NULL: the backend executes every op on its own
    const struct sumi_runner* runner;
    sumi_weight_options weight_options;
    sumi_op* ops;
    size_t op_count, op_capacity;
    sumi_value_info* values;
    size_t value_count, value_capacity;
    sumi_section* sections;
    size_t section_count, section_capacity;
    sumi_slice* slices;
    size_t slice_count, slice_capacity;
    sumi_constant* constants;
    size_t constant_count, constant_capacity;
    // Memory for spans, items, labels and the data of constants. Freed with the plan.
    void** blocks;
    size_t block_count, block_capacity;
    size_t block_used, block_bytes; // in the newest of the blocks
    const sumi_adapter_use* adapters;
    int32_t adapter_count; // they apply to every linear and every norm that is written from here on
    sumi_adapted_vector* adapted_vectors;
    size_t adapted_vector_count,
        adapted_vector_capacity; // the vectors that these adapters change, as far as they were asked for
    // A constant of one column of ones; none until it is first needed, and a longer one when more rows are.
    sumi_value constant_ones;
    uint64_t arena_bytes; // exact after sumi_plan_finish
    double total_flops;   // over all iterations of all sections, without alternatives
    char label_prefix[64];
    sumi_error error; // the first error while writing
} sumi_plan;

// Begins an empty plan. activation_bytes: bytes of a SUMI_ELEMENT_ACTIVATION on the plan's runner (4 on the CPU).
// `weight_options` and `arrange` are empty: to begin a plan that a runner will run, call sumi_runner_begin_plan
// (runner.h).
void sumi_plan_begin(sumi_plan* plan, sumi_heap* heap, int32_t activation_bytes);
void sumi_plan_end(sumi_plan* plan); // frees the plan's memory; accepts a zeroed plan
// Lets the backend mark pairs of ops and cut ops, and computes lifetimes, offsets and costs. Returns the first error
// that occurred while the plan was written.
sumi_result sumi_plan_finish(sumi_plan* plan, sumi_error* error);
// How long slices may be. An op that takes more than max_us (0: no limit) is cut into work ranges. Several ops share a
// slice of up to gathered_us (0: one op per slice), which is not more than max_us.
typedef struct sumi_slicing {
    const sumi_rates* rates;
    const float* op_ratio; // [kind]: how much longer ops take here than the rates predict; NULL: not measured
    uint32_t max_us, gathered_us;
    // Slices in a row, of one section, are a group up to this predicted time (0: no groups). A caller that has no limit
    // for work in flight can submit a group at once. Its kernels are the same as those of its slices.
    uint32_t grouped_us;
} sumi_slicing;
// Cuts all sections into slices.
sumi_result sumi_plan_slice(sumi_plan* plan, const sumi_slicing* slicing, sumi_error* error);
typedef struct sumi_grouping {
    const float* times_us; // of all slices; NULL: their predictions
    uint32_t grouped_us;   // as in sumi_slicing
} sumi_grouping;
// Groups the slices again. No slice of the plan may be submitted as part of a group until the plan has been prepared
// again.
void sumi_plan_group_slices(sumi_plan* plan, const sumi_grouping* grouping);
// How many groups that makes.
int32_t sumi_plan_count_groups(const sumi_plan* plan, const sumi_grouping* grouping);
// The number of output channels for which the time of a convolution is predicted: at least 16. A convolution gathers
// its taps no matter how many channels it computes, so 3 channels take about as long as 16 (the decoder's last
// convolution on the CPU: 9 GFLOP/s, where others reach 60).
int32_t sumi_plan_conv_effort(const sumi_weight* weight);
float sumi_plan_predict_us(const sumi_plan* plan, const sumi_op* op, const sumi_rates* rates);

// Begins a section: ops that are written from here on belong to it.
void sumi_plan_section(sumi_plan* plan, sumi_section_kind kind, int32_t repeat, int32_t first_counter);
// Begins a section that is an alternative to the section before it, with the same kind and counters.
void sumi_plan_alternative(sumi_plan* plan);
// Whether the section has an alternative, which is then the next section.
static inline bool sumi_plan_has_alternative(const sumi_plan* plan, size_t section)
{
    return section + 1 < plan->section_count && plan->sections[section + 1].is_alternative;
}
void sumi_plan_adapters(sumi_plan* plan, const sumi_adapter_use* uses, int32_t count); // `uses` must outlive the plan
// The sum of a vector and of the changes that the plan's adapters add to it, as one row of floats; none if they add
// nothing. The ops that compute the sum are written at the first request for it, in a section that does not repeat if
// possible. The verbs of norms call this function themselves.
sumi_value sumi_plan_changed_vector(sumi_plan* plan, const sumi_weight* vector);
// Sets the label prefix of the following ops, such as "layers.3."
void sumi_plan_prefix(sumi_plan* plan, const char* format, ...) SUMI_PRINTF(2, 3);

sumi_value sumi_plan_value(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols);
sumi_value sumi_plan_bound(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols);
// Copies the data.
sumi_value sumi_plan_constant(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols,
                              const void* data);
// A view of some rows and columns of a value that is not bound.
sumi_value sumi_plan_view(sumi_plan* plan, const char* name, sumi_value of, sumi_span rows, sumi_span cols);
// A view of all elements of a value as rows of another length. The value may be bound, but may not be a view of some
// columns.
sumi_value sumi_plan_reshape(sumi_plan* plan, const char* name, sumi_value of, int32_t rows, int32_t cols);
// From now on `guest`, which must not be a view, may share the first bytes of `host`. sumi_plan_finish lets them share
// these bytes if no third value prevents that; otherwise guest and host do not overlap.
void sumi_plan_share(sumi_plan* plan, sumi_value guest, sumi_value host);
const sumi_value_info* sumi_plan_info(const sumi_plan* plan, sumi_value value);
// Whether an op writes the value, or a part of it through a view. Goes through all ops.
bool sumi_plan_writes(const sumi_plan* plan, sumi_value value);
static inline int32_t sumi_plan_rows(const sumi_plan* plan, sumi_value value)
{
    return sumi_plan_info(plan, value)->rows;
}
static inline int32_t sumi_plan_cols(const sumi_plan* plan, sumi_value value)
{
    return sumi_plan_info(plan, value)->cols;
}
// Elements from row to row: cols, except in a view of some columns.
static inline int32_t sumi_plan_pitch(const sumi_plan* plan, sumi_value value)
{
    return sumi_plan_info(plan, value)->pitch;
}
uint64_t sumi_plan_element_bytes(const sumi_plan* plan, sumi_element element);
double sumi_plan_value_bytes(const sumi_plan* plan, sumi_value value); // bytes of all elements, for costs
// Copies data into memory that lives as long as the plan. NULL after an error.
void* sumi_plan_copy(sumi_plan* plan, const void* data, size_t bytes);

// ---- The verbs ------------------------------------------------------------------------------------------------------
//
// A verb is a function that writes an op. It returns the op's output: a new value, unless the verb works in place or is
// given the value to write to. Verbs check shapes, and keep a mismatch as the plan's error. ops.h describes what an op
// computes and the shapes of its values.
//
// A verb with many parameters takes a struct with named members. A member that is left out is 0, and 0 means the usual
// case: no weight, no bias, no value, no step row; a range of rows begins at row 0; and with `rows` 0 it has all rows
// from its beginning on.
//
//     sumi_value m = sumi_plan_norm(plan, &(sumi_plan_norm_args){
//         .label = "ffn_norm1", .x = x, .rows = out_rows, .weight = &w->ffn_norm1, .eps = eps, .scale = scale_mlp});

sumi_value sumi_plan_embed_rows(sumi_plan* plan, sumi_value ids, const sumi_weight* table, float scale);
// table[ids[r]] + bias. The bias is one row, which is added to all rows.
sumi_value sumi_plan_embed_rows_biased(sumi_plan* plan, sumi_value ids, const sumi_weight* table,
                                       const sumi_weight* bias);
// Row r of the result is the sum over t of factors[r, t] * table[ids[r, t]]. ids, factors: [rows, terms].
sumi_value sumi_plan_mix_rows(sumi_plan* plan, const char* label, sumi_value ids, sumi_value factors,
                              const sumi_weight* table);
// Row r of the result is row ids[r] of x. ids: [rows, 1].
sumi_value sumi_plan_gather_rows(sumi_plan* plan, const char* label, sumi_value ids, sumi_value x);
// row NULL: fills with 0.
void sumi_plan_fill_rows(sumi_plan* plan, sumi_value y, const sumi_weight* row, const sumi_span* spans,
                         int32_t span_count);

typedef struct sumi_plan_copy_args {
    sumi_value x, y;      // copies from x, which may be a view of some columns, into y
    int32_t x_row, y_row; // first rows in x and in y
    int32_t rows;         // 0: all of x from x_row on
    // y is wider than x, which is another value. The rows are written to the columns from y_column on; the other
    // columns of y do not change.
    bool writes_some_columns;
    int32_t y_column;
} sumi_plan_copy_args;
void sumi_plan_copy_rows(sumi_plan* plan, const sumi_plan_copy_args* args);
// Returns one row per span: the mean of the span's rows.
sumi_value sumi_plan_mean_rows(sumi_plan* plan, const char* label, sumi_value x, const sumi_span* spans,
                               int32_t span_count);

typedef struct sumi_plan_add_rows_args {
    const char* label;
    sumi_value x, y;      // y = x + scale * y
    int32_t x_row, y_row; // first rows in x and in y
    int32_t rows;         // 0: all of x from x_row on
    float scale;
} sumi_plan_add_rows_args;
void sumi_plan_add_rows(sumi_plan* plan, const sumi_plan_add_rows_args* args);

typedef struct sumi_plan_residual_change_args {
    const char* label;
    sumi_value x, before; // the residual is x - before
    sumi_value kept;      // the earlier residual, which is replaced by this one
    int32_t rows;         // the first rows of all three; 0: all of x
    sumi_value change;    // the result of an op of the same shape, to write to; none: a new bound value
} sumi_plan_residual_change_args;
// Returns a bound value of [any number of rows, 2] floats. The relative change of the residual is the sum of column 0
// divided by the sum of column 1.
sumi_value sumi_plan_residual_change(sumi_plan* plan, const sumi_plan_residual_change_args* args);

typedef struct sumi_plan_add_residual_args {
    const char* label;
    sumi_value x;                // is changed in place
    sumi_value residual, change; // as in[1] and in[2] of ADD_RESIDUAL
    int32_t rows;                // the first rows of all three; 0: all of x
    sumi_value sigmas;           // [2, any] floats, in column `column`
    int32_t column;
    sumi_step_row sigma; // of the current evaluation
    float most;
} sumi_plan_add_residual_args;
void sumi_plan_add_residual(sumi_plan* plan, const sumi_plan_add_residual_args* args);

// Computes activation(x W^T + bias), or residual + gate * (x W^T + bias), which is written over the residual. The
// plan's adapters are applied: the result is that of merged weights in both cases.
typedef struct sumi_plan_linear_args {
    const char* label;
    sumi_value x;
    const sumi_weight *weight, *bias;
    sumi_activation activation;
    int32_t x_row, rows; // rows of x; rows 0: all rows from x_row on
    sumi_value y;        // an existing value to write to; none: a new value
    int32_t y_row;       // first row that is written in y; the other rows do not change
    // y is wider than the product. The product is written to the columns from y_column on; the other columns of y do
    // not change. The op must cover all rows.
    bool writes_some_columns;
    int32_t y_column;
    // Has the shape of the product. With a residual, y, a range of rows and an activation are not possible.
    sumi_value residual;
    sumi_step_row gate; // factor of the product, if there is a residual; none: 1
} sumi_plan_linear_args;
sumi_value sumi_plan_linear(sumi_plan* plan, const sumi_plan_linear_args* args);

sumi_value sumi_plan_activate(sumi_plan* plan, sumi_value x, sumi_activation activation);
// act(gate) * up for rows [gate, up] whose halves have equal width, for gates after products with biases.
sumi_value sumi_plan_gated(sumi_plan* plan, const char* label, sumi_value gate_and_up, sumi_activation activation);
// act(x W_gate^T) * (x W_up^T). gate_up is a stacked weight: the rows of W_gate, then those of W_up.
sumi_value sumi_plan_linear_gated(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* gate_up,
                                  sumi_activation activation);
// The same into the columns of y from y_column on; the others do not change. y has the rows of x.
typedef struct sumi_plan_gated_args {
    const char* label;
    sumi_value x;
    const sumi_weight* gate_up;
    sumi_activation activation;
    sumi_value y;
    int32_t y_column;
} sumi_plan_gated_args;
void sumi_plan_linear_gated_into(sumi_plan* plan, const sumi_plan_gated_args* args);

// norm(x) * weight * scale + shift, norm(x) * weight + bias, or SiLU(norm(x) * weight), of rows [x_row, x_row + rows)
// of x.
typedef struct sumi_plan_norm_args {
    const char* label;
    sumi_value x;
    int32_t x_row, rows;
    sumi_norm norm; // 0: RMS norm
    const sumi_weight *weight, *bias;
    float eps;
    sumi_step_row scale, shift; // not together with a bias
    const sumi_row_band* bands; // of scale and shift; copied. band_count 0: all rows read the same table row
    int32_t band_count;
    bool silu; // not together with scale, shift or bias
    // Has `rows` rows. It may be x if all rows of x are normalised. None: a new value.
    sumi_value y;
} sumi_plan_norm_args;
sumi_value sumi_plan_norm(sumi_plan* plan, const sumi_plan_norm_args* args);

// x += gate * (rms(branch) * weight), in place, for `rows` rows of x from x_row on. The branch is read from its row 0
// on.
typedef struct sumi_plan_norm_gate_add_args {
    const char* label;
    sumi_value x, branch;
    int32_t x_row, rows; // rows 0: as many as the branch has
    const sumi_weight* weight;
    float eps;
    sumi_step_row gate;
    const sumi_row_band* bands; // of the gate; as in sumi_plan_norm_args
    int32_t band_count;
} sumi_plan_norm_gate_add_args;
void sumi_plan_norm_gate_add(sumi_plan* plan, const sumi_plan_norm_gate_add_args* args);

// Normalises and rotates the heads of q and k, in place, in `rows` rows of qkv from `row` on. `rope` is the rotary
// table, which is read from rope_row on.
typedef struct sumi_plan_qk_args {
    const char* label;
    sumi_value qkv;
    int32_t row, rows;
    int32_t q_heads, kv_heads, dim;
    const sumi_weight *q_norm, *k_norm;
    float eps;
    sumi_rotary rotary; // 0: no rotation, and `rope` is SUMI_NO_VALUE
    sumi_value rope;
    int32_t rope_row;
} sumi_plan_qk_args;
void sumi_plan_qk_norm_rope(sumi_plan* plan, const sumi_plan_qk_args* args);

typedef struct sumi_attention {
    int32_t q_heads, kv_heads, dim;
    float scale;
    bool causal;
    int32_t window;
    const sumi_sequence* sequences;
    int32_t sequence_count;
} sumi_attention;
// The columns of qkv are q, k and v, in this order.
sumi_value sumi_plan_attention(sumi_plan* plan, const char* label, sumi_value qkv, const sumi_attention* attention);
// The same into the columns of y from y_column on; the others do not change, nor do rows that have no queries. y has the
// rows of qkv.
typedef struct sumi_plan_attention_args {
    const char* label;
    sumi_value qkv;
    const sumi_attention* attention;
    sumi_value y;
    int32_t y_column;
    // Keys and values that were computed before, k | v [.., 2 * kv_heads * dim]: the first range of every sequence is
    // rows of them. None: all ranges are rows of qkv.
    sumi_value kept;
} sumi_plan_attention_args;
void sumi_plan_attention_into(sumi_plan* plan, const sumi_plan_attention_args* args);

typedef struct sumi_plan_rope_args {
    sumi_value positions; // [rows, axes] int
    int32_t axes, pairs[4];
    double theta;
    double divisor; // positions are divided by this; 0: by 1
    sumi_rope_order order;
} sumi_plan_rope_args;
sumi_value sumi_plan_rope_table(sumi_plan* plan, const sumi_plan_rope_args* args);
// The axis of a pair of the table, and the factor of the position on it. Both backends use this function.
typedef struct sumi_rope_pair {
    int32_t axis;
    double frequency;
} sumi_rope_pair;
sumi_rope_pair sumi_plan_rope_pair(const sumi_op* op, int32_t pair);

typedef struct sumi_plan_time_args {
    sumi_value times;
    int32_t width;
    float scale, max_period;
    bool cos_first;
} sumi_plan_time_args;
sumi_value sumi_plan_time_embed(sumi_plan* plan, const sumi_plan_time_args* args);

// Converts the output of a modulation layer (FINISH_MODULATION in ops.h), in place or as a new value of some of its
// rows.
typedef struct sumi_plan_modulation_args {
    const char* label;
    sumi_value table;
    int32_t vector_count; // 0: 1
    uint32_t adds_one, applies_tanh;
    int32_t rows;
    int32_t x_row;
    bool per_step;
    sumi_element element; // of the new value
} sumi_plan_modulation_args;
sumi_value sumi_plan_modulation(sumi_plan* plan, const sumi_plan_modulation_args* args);
// In place. With has_gates, the quarters [s | g | s | g] of the columns become [1 + s | tanh g | 1 + s | tanh g];
// without, all columns become 1 + s.
void sumi_plan_finish_modulation(sumi_plan* plan, sumi_value table, bool has_gates);

typedef struct sumi_patch_layout {
    int32_t height, width, channels; // of a latent
    int32_t patch;                   // side of a patch: 1 or 2
    int32_t sequence_count;
    const int32_t *items, *row_begin;
    bool by_channel; // order of the elements of a row, see PATCHIFY in ops.h
} sumi_patch_layout;
void sumi_plan_patchify(sumi_plan* plan, sumi_value latents, const sumi_patch_layout* layout, sumi_value rows);
// Returns [sequence_count * channels, height * width].
sumi_value sumi_plan_unpatchify(sumi_plan* plan, sumi_value rows, const sumi_patch_layout* layout, float sign);

void sumi_plan_add_noise(sumi_plan* plan, sumi_value noise, sumi_value clean, sumi_step_row sigma, sumi_value x);

typedef struct sumi_plan_guide_args {
    sumi_value predictions;
    int32_t item_count, channels;
    const int32_t *positive, *negative; // sequences of each item; negative[i] < 0: item i has none
    sumi_step_row scale;
    sumi_guidance_rule rule;   // PLAIN, NORM_LIMIT or NORM_RESCALE
    float norm_limit;          // for NORM_LIMIT; 0: no limit
    int32_t width, patch_size; // for NORM_RESCALE
} sumi_plan_guide_args;
sumi_value sumi_plan_guide(sumi_plan* plan, const sumi_plan_guide_args* args);

typedef struct sumi_plan_solve_args {
    sumi_value x, y, h, v, noise, clean, mask;
    sumi_step_row row; // 12 columns: the floats of sumi_solver_row, in order
    int32_t channels;
} sumi_plan_solve_args;
void sumi_plan_solve(sumi_plan* plan, const sumi_plan_solve_args* args);

typedef struct sumi_plan_preview_args {
    sumi_value x, v;
    sumi_step_row sigma;
    // see PREVIEW in ops.h. packing 0: 1. width: only read with another packing
    int32_t channels, packing, width;
    const float *factors, *bias; // [channels, 3], [3]
    sumi_value rgb;              // is written
} sumi_plan_preview_args;
void sumi_plan_preview(sumi_plan* plan, const sumi_plan_preview_args* args);

typedef struct sumi_tile {
    int32_t y, x, height, width;
} sumi_tile;
// Converts a tile of an 8-bit picture to `channels` channels: 3, or 4 if the picture has four bytes.
sumi_value sumi_plan_pixels_in(sumi_plan* plan, sumi_value bytes, int32_t picture_width, sumi_tile tile,
                               int32_t channels);

// Converts an 8-bit RGB picture to rows of patches, cell by cell in the order in which `cells` lists the cell numbers.
sumi_value sumi_plan_patches_in(sumi_plan* plan, sumi_value bytes, sumi_value cells, const sumi_op_patches_in* layout);

// How the latents of a VAE are converted to the denoiser's: (z - shift) * scale for each channel of the latter.
typedef struct sumi_latent_statistics {
    const float *scale, *shift; // [count]; copied
    int32_t count;              // the number of channels, or 1: the same numbers for all channels
} sumi_latent_statistics;

typedef struct sumi_plan_posterior_args {
    sumi_value moments, eps;
    // see POSTERIOR in ops.h. packing 0: 1. width: only read with another packing
    int32_t channels, packing, width;
    sumi_latent_statistics statistics;
    sumi_value latents; // is written
} sumi_plan_posterior_args;
void sumi_plan_posterior(sumi_plan* plan, const sumi_plan_posterior_args* args);

typedef struct sumi_plan_latent_args {
    sumi_value latents;
    int32_t channels, height, width, packing; // see LATENT_IN in ops.h. packing 0: 1
    sumi_tile tile;
    sumi_latent_statistics statistics;
    bool per_item;
} sumi_plan_latent_args;
sumi_value sumi_plan_latent_in(sumi_plan* plan, const sumi_plan_latent_args* args);

typedef struct sumi_plan_conv_args {
    const char* label;
    sumi_value x;
    const sumi_weight *weight, *bias;
    // Defaults: kernel 0 is 3; stride 0 is 1. `above` and `below` are 1 if the picture continues beyond the strip on
    // that side, which is possible for 3 x 3 with stride 1 only.
    sumi_op_conv shape;
    sumi_value residual;
    sumi_value y; // has the residual's pitch, or is the residual; none: a new value
} sumi_plan_conv_args;
sumi_value sumi_plan_conv(sumi_plan* plan, const sumi_plan_conv_args* args);

typedef struct sumi_plan_shortcut_args {
    const char* label;
    sumi_value x;
    sumi_op_shortcut shape;
    int32_t channels; // of the result
    sumi_value y;     // none: a new value
} sumi_plan_shortcut_args;
sumi_value sumi_plan_shortcut(sumi_plan* plan, const sumi_plan_shortcut_args* args);

sumi_value sumi_plan_group_sums(sumi_plan* plan, const char* label, sumi_value x, int32_t groups);
typedef struct sumi_plan_group_norm_args {
    const char* label;
    sumi_value x;
    // Of x, or of a value that contains the rows of x. None: the verb writes the GROUP_SUMS op too.
    sumi_value sums;
    const sumi_weight *weight, *bias;
    int32_t groups;
    float eps;
    bool silu;
    sumi_value y; // may be x; none: a new value
} sumi_plan_group_norm_args;
sumi_value sumi_plan_group_norm(sumi_plan* plan, const sumi_plan_group_norm_args* args);

typedef struct sumi_plan_tile_blend_args {
    sumi_value tile;
    int32_t height, width;
    sumi_value above; // none: no seam
    int32_t above_height;
    sumi_value left;
    int32_t left_width;
    int32_t extent;
} sumi_plan_tile_blend_args;
void sumi_plan_tile_blend(sumi_plan* plan, const sumi_plan_tile_blend_args* args);

typedef struct sumi_plan_tile_place_args {
    sumi_value tile;
    int32_t tile_width;
    sumi_value picture; // is written
    int32_t picture_height, picture_width;
    sumi_tile copied; // height x width upper left pixels of the tile are copied to (y, x) of the picture
    bool per_item;
} sumi_plan_tile_place_args;
void sumi_plan_tile_place(sumi_plan* plan, const sumi_plan_tile_place_args* args);

// Puts pictures [n * h * w, 3 or 4] over an 8-bit picture `beneath` [h * w, 3 or 4], in place. `opacity` is bytes [h * w, 1]:
// 255 shows the pictures, 0 the picture beneath.
void sumi_plan_composite(sumi_plan* plan, sumi_value pictures, sumi_value beneath, sumi_value opacity);

// Converts picture [n * h * w, 3 or 4] to bytes of the same shape, and adds the number of values that are not finite to
// not_finite [1, 1] int.
void sumi_plan_pixels_out(sumi_plan* plan, sumi_value picture, sumi_value bytes, sumi_value not_finite);
#endif
// all rows, in place. Else `rows` rows from x_row on; with per_step, x_row counts from the row of the step.
