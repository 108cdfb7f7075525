// The plan: a flat array of ops over values, written once per (network, shape) by model code, run any number of times
// by a backend.
//
//   model code  --writes-->  ops + values  --sumi_plan_finish-->  lifetimes, one arena with offsets, parts, slices  --backend runs slices-->  results
//                                                  |
//                                 the backend's arrange marks ops that it does together
//
// A plan covers a whole job: text encoding, preparation, the denoising step, decoding are *sections*. A section runs
// `repeat` times in a row; the counter of the running iteration selects the row of every per-step table. Values written
// in one section and read in a later one simply live that long.
//
//   TEXT x1 | PREPARE x1 | DENOISE x8 (counter 0..7) | DECODE x2 (counter = item) | TRANSFER x1
//
// Invariants: a value's rows are written before they are read; an op's in-place output is also its input; the arena
// offsets of two values overlap only if their lifetimes do not; a value that crosses into a repeated section from
// before lives until that section ends. Writing errors (a shape that does not fit, memory) are kept in the plan and
// returned by sumi_plan_finish, so model code reads like the paper, without a check per line.
//
// A view is a value that lies inside another one, its base: some of its rows, and of those some columns, or all of it
// as rows of another length. Large pictures
// are worked on by strips of rows through views, so that what lies between two ops exists for one strip at a time, and
// results may take the place of what was read for them (the autoencoders in models/). The writer of such a plan answers for the
// order: an op must not write what another part of it still reads.
#ifndef SUMI_PLAN_PLAN_H
#define SUMI_PLAN_PLAN_H
#include "base/memory.h"
#include "plan/ops.h"

typedef enum sumi_element {
    SUMI_ELEMENT_ACTIVATION, // the backend's: of the plan's activation_bytes
    SUMI_ELEMENT_FLOAT,      // float32 everywhere: latents, tables, statistics
    SUMI_ELEMENT_INT,        // int32
    SUMI_ELEMENT_BYTE        // uint8
} sumi_element;

typedef struct sumi_value_info {
    const char* name; // static text
    sumi_element element;
    int32_t rows, cols;
    // lives through the whole plan: inputs that the engine writes before the run, results it reads after
    bool bound;
    int32_t first_use, last_use; // op indices, set by finish (widened over repeated sections)
    uint64_t bytes, offset;      // in the arena, set by finish
    // Elements from row to row: cols, more in a view of some columns. CONV, GROUP_SUMS and GROUP_NORM take any; other
    // ops know no pitch.
    int32_t pitch;
    // of a view: whose memory it shares; what it was cut from (a view itself, or the base), from row whole_row on
    sumi_value base, whole;
    int32_t whole_row;
    uint64_t base_element; // where it begins there
    sumi_value host;       // it may lie at the beginning of this value, though both live at the same time
    // One op makes it, the op behind reads it, both are done together: it is never written to memory and takes none.
    bool is_unstored; // set by a backend, see sumi_plan_arrange
    uint8_t marks;    // the backend's own
} sumi_value_info;

typedef enum sumi_section_kind {
    SUMI_SECTION_PREPARE,
    SUMI_SECTION_VISION, // pictures that stand in prompts
    SUMI_SECTION_TEXT,
    SUMI_SECTION_IMAGE, // pictures to latents
    SUMI_SECTION_DENOISE,
    SUMI_SECTION_DECODE,
    SUMI_SECTION_TRANSFER
} sumi_section_kind;
typedef struct sumi_section {
    sumi_section_kind kind;
    int32_t op_begin, op_end; // ops [begin, end)
    int32_t repeat, first_counter;
    int32_t slice_begin, slice_end; // set by sumi_plan_slice
} sumi_section;

// A piece of work: whole ops [op_begin, op_end) or, when op_end == op_begin + 1, parts [part_begin, part_end) of that
// op.
typedef struct sumi_slice {
    int32_t op_begin, op_end, part_begin, part_end;
    float predicted_us;
} sumi_slice;

// What a backend can do per microsecond, for predictions; measured by the backend and refined while running.
typedef struct sumi_rates {
    double flops_per_us, bytes_per_us, op_us;
} sumi_rates;

// A constant that the backend copies into a bound value before each run (positions, ids that never change).
typedef struct sumi_constant {
    sumi_value value;
    const void* data;
    uint64_t bytes;
} sumi_constant;

struct sumi_plan;
struct sumi_runner;
// How a backend does the ops that were written. sumi_plan_finish calls it when it knows the first and the last op that
// uses each value (of a view: its base), and before it computes lifetimes and offsets from what was marked:
//
//   op.joins_next      The op and the one behind it, of the same section, are done together: what the second one writes
//                      is written while the inputs of the first one are still read. An op is in one such pair at most.
//   value.is_unstored  The result of a pair's first op, read by the second one and by nothing else: it takes no memory.
//   marks              Of ops and values: what else the backend wants to find when it runs them. Nobody else reads them.
//
// All of them are zero before; nothing else changes.
typedef void sumi_plan_arrange(const struct sumi_runner* runner, struct sumi_plan* plan);

// What the engine has to say to the backend about a plan. The plan carries it and reads none of it.
typedef struct sumi_plan_wishes {
    sumi_weight_format weights;      // of those of the denoising sections that need not keep their precision
    sumi_weight_format text_weights; // the same of text and vision sections
    bool spares_memory;              // its weights are used once, and others want the room that they would take
    bool unused[3];                  // no gaps: see engine/plan_key.h
} sumi_plan_wishes;

// A vector that adapters change, as a value: a row of floats.
typedef struct sumi_changed_vector {
    const sumi_weight* vector;
    sumi_value sum;
} sumi_changed_vector;

typedef struct sumi_plan {
    sumi_heap* heap;
    int32_t activation_bytes;
    sumi_plan_arrange* arrange; // NULL: the backend does op by op
    const struct sumi_runner* runner;
    sumi_plan_wishes wishes;
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
    void** blocks;
    size_t block_count, block_capacity; // spans, items, labels, constants' data: freed with the plan
    size_t block_used, block_bytes;     // of the newest block
    const sumi_adapter_use* adapters;
    int32_t adapter_count; // apply to every linear and to every norm written from here on
    sumi_changed_vector* changed;
    size_t changed_count, changed_capacity; // by these adapters, so far
    sumi_value one;                         // a constant, once it was needed
    uint64_t arena_bytes;                   // exact, after finish
    double total_flops;                     // with repeats
    char label_prefix[64];
    sumi_error error; // the first writing error
} sumi_plan;

// activation_bytes: of SUMI_ELEMENT_ACTIVATION on the runner this plan is for (4 on the CPU). The wishes and `arrange`
// are empty: sumi_runner_begin_plan (runner.h) begins a plan that a runner will run.
void sumi_plan_begin(sumi_plan* plan, sumi_heap* heap, int32_t activation_bytes);
void sumi_plan_end(sumi_plan* plan); // frees; accepts a zeroed one
// Arranges the ops, computes lifetimes, offsets and costs. Returns the first writing error, with its text in `error`.
sumi_result sumi_plan_finish(sumi_plan* plan, sumi_error* error);
// Cuts all sections into slices predicted to take at most max_us each (0: one slice per op, ops whole). Ops are split
// by parts where needed.
sumi_result sumi_plan_slice(sumi_plan* plan, const sumi_rates* rates, uint32_t max_us, sumi_error* error);
// The same with what was learnt since: op_ratio[kind] is how much longer than the rates say ops of a kind take here.
// Ops are cut beyond max_us (0: never), and go together in a slice up to gathered_us (0: each alone): sumi_plan_slice
// has max_us for both.
sumi_result sumi_plan_slice_measured(sumi_plan* plan, const sumi_rates* rates, const float* op_ratio, uint32_t max_us,
                                     uint32_t gathered_us, sumi_error* error);
// Columns whose time a convolution takes: it gathers its taps whatever it makes of them, so one of 3 takes about as
// long as one of 16 (the decoder's last, on the processor: 9 GFLOP/s where others reach 60).
int32_t sumi_plan_conv_effort(const sumi_weight* weight);
float sumi_plan_predict_us(const sumi_plan* plan, const sumi_op* op, const sumi_rates* rates);

// ops written from here on belong to it
void sumi_plan_section(sumi_plan* plan, sumi_section_kind kind, int32_t repeat, int32_t first_counter);
void sumi_plan_adapters(sumi_plan* plan, const sumi_adapter_use* uses, int32_t count); // must outlive the plan
// The sum of a vector and of what the plan's adapters add to it, a row of floats; none where they add nothing. The ops
// that make it are written when it is first asked for: in a section that does not repeat, if that can be. The verbs of
// norms ask for it themselves.
sumi_value sumi_plan_changed_vector(sumi_plan* plan, const sumi_weight* vector);
// label prefix of the following ops: "layers.3."
void sumi_plan_prefix(sumi_plan* plan, const char* format, ...) SUMI_PRINTF(2, 3);

sumi_value sumi_plan_value(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols);
sumi_value sumi_plan_bound(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols);
// data is copied
sumi_value sumi_plan_constant(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols,
                              const void* data);
// Some rows and columns of a value that is not bound, as a value.
sumi_value sumi_plan_view(sumi_plan* plan, const char* name, sumi_value of, sumi_span rows, sumi_span cols);
// The elements of a value, which is no view of some columns and may be bound, as rows of another length.
sumi_value sumi_plan_reshape(sumi_plan* plan, const char* name, sumi_value of, int32_t rows, int32_t cols);
// `guest`, which is no view, may share the first bytes of `host` from now on. It does where nothing else is in the way;
// otherwise they lie apart.
void sumi_plan_share(sumi_plan* plan, sumi_value guest, sumi_value host);
const sumi_value_info* sumi_plan_info(const sumi_plan* plan, sumi_value value);
static inline int32_t sumi_plan_rows(const sumi_plan* plan, sumi_value value)
{
    return sumi_plan_info(plan, value)->rows;
}
static inline int32_t sumi_plan_cols(const sumi_plan* plan, sumi_value value)
{
    return sumi_plan_info(plan, value)->cols;
}
// elements from row to row: cols but for a view of some columns
static inline int32_t sumi_plan_pitch(const sumi_plan* plan, sumi_value value)
{
    return sumi_plan_info(plan, value)->pitch;
}
uint64_t sumi_plan_element_bytes(const sumi_plan* plan, sumi_element element);
double sumi_plan_value_bytes(const sumi_plan* plan, sumi_value value); // what its elements take, for costs
// memory that lives as long as the plan; NULL after an error
void* sumi_plan_copy(sumi_plan* plan, const void* data, size_t bytes);

// ---- The verbs ------------------------------------------------------------------------------------------------------
//
// Each writes its op and returns its output value: a new one, unless the verb works in place or is told where to write.
// Shapes are checked; a mismatch is kept as the plan's error. What the op computes, and the shapes, stand in ops.h.
//
// A verb with many parameters takes them in a struct with named members. A member that is left out is 0, and 0 is what
// is usual: no weight, no bias, no value, no step row, a row range from row 0 on, and with `rows` 0 all the rows from
// there.
//
//     sumi_value m = sumi_plan_norm(plan, &(sumi_plan_norm_args){
//         .label = "ffn_norm1", .x = x, .rows = out_rows, .weight = &w->ffn_norm1, .eps = eps, .scale = scale_mlp});

sumi_value sumi_plan_embed_rows(sumi_plan* plan, sumi_value ids, const sumi_weight* table, float scale);
// table[ids[r]] + bias: the same row is added to all.
sumi_value sumi_plan_embed_rows_biased(sumi_plan* plan, sumi_value ids, const sumi_weight* table,
                                       const sumi_weight* bias);
// Rows of a value by their numbers, ids [rows, 1].
sumi_value sumi_plan_gather_rows(sumi_plan* plan, const char* label, sumi_value ids, sumi_value x);
void sumi_plan_fill_rows(sumi_plan* plan, sumi_value y, const sumi_weight* row, const sumi_span* spans,
                         int32_t span_count);

typedef struct sumi_plan_copy_args {
    sumi_value x, y;      // from x into y
    int32_t x_row, y_row; // first row in each
    int32_t rows;         // 0: all of x from x_row on
} sumi_plan_copy_args;
void sumi_plan_copy_rows(sumi_plan* plan, const sumi_plan_copy_args* args);
// One row per span: the mean of its rows.
sumi_value sumi_plan_mean_rows(sumi_plan* plan, const char* label, sumi_value x, const sumi_span* spans,
                               int32_t span_count);

// activation(x W^T + bias), or residual + gate * (x W^T + bias), which takes the residual's place. The plan's adapters
// are applied: the result is that of merged weights, whichever of these it is.
typedef struct sumi_plan_linear_args {
    const char* label;
    sumi_value x;
    const sumi_weight *weight, *bias;
    sumi_activation activation;
    int32_t x_row, rows; // rows of x; rows 0: all from x_row on
    sumi_value y;        // an existing value to write to; none: a new one
    int32_t y_row;       // first row in y; its other rows stay
    // y is wider than the product, which goes to the columns from y_column on; the others stay. Of all rows.
    bool keeps_columns;
    int32_t y_column;
    sumi_value residual; // of the product's shape; then y, a range of rows and an activation are not possible
    sumi_step_row gate;  // of a residual; none: 1
} sumi_plan_linear_args;
sumi_value sumi_plan_linear(sumi_plan* plan, const sumi_plan_linear_args* args);

sumi_value sumi_plan_activate(sumi_plan* plan, sumi_value x, sumi_activation activation);
// act(x) * y of the halves [x, y] of a row: what a product with biases is gated by.
sumi_value sumi_plan_gated(sumi_plan* plan, const char* label, sumi_value both, sumi_activation activation);
// act(x W_gate^T) * (x W_up^T), weight stacked [gate; up].
sumi_value sumi_plan_linear_gated(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* gate_up,
                                  sumi_activation activation);

// norm(x) * weight * scale + shift, norm(x) * weight + bias, or SiLU(norm(x) * weight), of rows [x_row, x_row + rows)
// of x.
typedef struct sumi_plan_norm_args {
    const char* label;
    sumi_value x;
    int32_t x_row, rows;
    sumi_norm norm; // 0: RMS
    const sumi_weight *weight, *bias;
    float eps;
    sumi_step_row scale, shift; // without a bias
    const sumi_row_band* bands; // of the tables, copied; 0 of them: all rows read the same
    int32_t band_count;
    bool silu;    // without scale, shift and bias
    sumi_value y; // of so many rows; may be x where all of it is normed. None: a new value
} sumi_plan_norm_args;
sumi_value sumi_plan_norm(sumi_plan* plan, const sumi_plan_norm_args* args);

// x += gate * (rms(branch) * weight), in place on rows of x from x_row on; the branch is read from its row 0.
typedef struct sumi_plan_norm_gate_add_args {
    const char* label;
    sumi_value x, branch;
    int32_t x_row, rows; // rows 0: all of the branch
    const sumi_weight* weight;
    float eps;
    sumi_step_row gate;
    const sumi_row_band* bands; // as above
    int32_t band_count;
} sumi_plan_norm_gate_add_args;
void sumi_plan_norm_gate_add(sumi_plan* plan, const sumi_plan_norm_gate_add_args* args);

// The heads of q and k normed and rotated, in place on rows of qkv from `row` on; rope is the rotary table, read from
// rope_row on.
typedef struct sumi_plan_qk_args {
    const char* label;
    sumi_value qkv;
    int32_t row, rows;
    int32_t q_heads, kv_heads, dim;
    const sumi_weight *q_norm, *k_norm;
    float eps;
    sumi_rotary rotary; // 0: none, then there is no table
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
// q, k and v are the columns of qkv, in this order.
sumi_value sumi_plan_attention(sumi_plan* plan, const char* label, sumi_value qkv, const sumi_attention* attention);

typedef struct sumi_plan_rope_args {
    sumi_value positions; // [rows, axes] int
    int32_t axes, pairs[4];
    double theta;
    double divisor;     // of the positions; 0: 1
    bool is_continuous; // the frequencies go on from axis to axis, rather than beginning anew
} sumi_plan_rope_args;
sumi_value sumi_plan_rope_table(sumi_plan* plan, const sumi_plan_rope_args* args);
// By what a position is multiplied for the k-th pair of an axis, for both backends.
double sumi_plan_rope_frequency(const sumi_op* op, int32_t axis, int32_t k);

typedef struct sumi_plan_time_args {
    sumi_value times;
    int32_t width;
    float scale, max_period;
    bool cos_first;
} sumi_plan_time_args;
sumi_value sumi_plan_time_embed(sumi_plan* plan, const sumi_plan_time_args* args);

// What a modulation layer made (ops.h): in place, or rows of it as a value of their own.
typedef struct sumi_plan_modulation_args {
    const char* label;
    sumi_value table;
    int32_t parts; // 0: 1
    uint32_t adds_one, squashes;
    int32_t rows; // 0: all, in place; else from x_row on, with per_step counted from the row of the step
    int32_t x_row;
    bool per_step;
    sumi_element element; // of that value
} sumi_plan_modulation_args;
sumi_value sumi_plan_modulation(sumi_plan* plan, const sumi_plan_modulation_args* args);
// In place: quarters [s | g | s | g] become [1 + s | tanh g | 1 + s | tanh g] with has_gates, else all columns 1 + s.
void sumi_plan_finish_modulation(sumi_plan* plan, sumi_value table, bool has_gates);

typedef struct sumi_patch_layout {
    int32_t height, width, channels; // of a latent
    int32_t sequence_count;
    const int32_t *items, *row_begin;
    bool by_channel; // order of a row's elements, see ops.h
} sumi_patch_layout;
void sumi_plan_patchify(sumi_plan* plan, sumi_value latents, const sumi_patch_layout* layout, sumi_value rows);
// [sequences * channels, h * w]
sumi_value sumi_plan_unpatchify(sumi_plan* plan, sumi_value rows, const sumi_patch_layout* layout, float sign);

void sumi_plan_add_noise(sumi_plan* plan, sumi_value noise, sumi_value clean, sumi_step_row sigma, sumi_value x);

typedef struct sumi_plan_guide_args {
    sumi_value predictions;
    int32_t item_count, channels;
    const int32_t *positive, *negative; // the sequences of each item; negative below 0: none
    sumi_step_row scale;
    sumi_guidance_rule rule;   // PLAIN, NORM_LIMIT or NORM_RESCALE
    float norm_limit;          // of NORM_LIMIT; 0: none
    int32_t width, patch_size; // of NORM_RESCALE
} sumi_plan_guide_args;
sumi_value sumi_plan_guide(sumi_plan* plan, const sumi_plan_guide_args* args);

typedef struct sumi_plan_solve_args {
    sumi_value x, y, h, v, noise, clean, mask;
    sumi_step_row row; // 12 columns, the floats of sumi_solver_row in order
    int32_t channels;
} sumi_plan_solve_args;
void sumi_plan_solve(sumi_plan* plan, const sumi_plan_solve_args* args);

typedef struct sumi_plan_preview_args {
    sumi_value x, v;
    sumi_step_row sigma;
    int32_t channels;
    const float *factors, *bias; // [channels, 3], [3]
    sumi_value rgb;              // is written
} sumi_plan_preview_args;
void sumi_plan_preview(sumi_plan* plan, const sumi_plan_preview_args* args);

typedef struct sumi_tile {
    int32_t y, x, height, width;
} sumi_tile;
// A tile of an 8-bit RGB picture.
sumi_value sumi_plan_pixels_in(sumi_plan* plan, sumi_value bytes, int32_t picture_width, sumi_tile tile);

// A picture of 8-bit RGB as rows of patches, in the order that the numbers of its cells have in `cells`.
sumi_value sumi_plan_patches_in(sumi_plan* plan, sumi_value bytes, sumi_value cells, const sumi_op_patches_in* layout);

// How a VAE's latents become those that a network sees: (z - shift) * scale, channel by channel.
typedef struct sumi_latent_statistics {
    const float *scale, *shift; // [count], copied
    int32_t count;              // the channels, or 1: the same for all
} sumi_latent_statistics;

typedef struct sumi_plan_posterior_args {
    sumi_value moments, eps;
    int32_t channels;
    sumi_latent_statistics statistics;
    sumi_value latents; // is written
} sumi_plan_posterior_args;
void sumi_plan_posterior(sumi_plan* plan, const sumi_plan_posterior_args* args);

typedef struct sumi_plan_latent_args {
    sumi_value latents;
    int32_t channels, height, width;
    sumi_tile tile;
    sumi_latent_statistics statistics;
    bool per_item;
} sumi_plan_latent_args;
sumi_value sumi_plan_latent_in(sumi_plan* plan, const sumi_plan_latent_args* args);

typedef struct sumi_plan_conv_args {
    const char* label;
    sumi_value x;
    const sumi_weight *weight, *bias;
    // kernel 0: 3; stride 0: 1. above, below: 1 where the picture goes on there, for 3 x 3 with stride 1 only
    sumi_op_conv shape;
    sumi_value residual;
    sumi_value y; // of the residual's pitch, or the residual itself; none: a new value
} sumi_plan_conv_args;
sumi_value sumi_plan_conv(sumi_plan* plan, const sumi_plan_conv_args* args);

sumi_value sumi_plan_group_sums(sumi_plan* plan, const char* label, sumi_value x, int32_t groups);
typedef struct sumi_plan_group_norm_args {
    const char* label;
    sumi_value x;
    sumi_value sums; // of x, or of a value of which x is some rows; none: an op of their own makes them first
    const sumi_weight *weight, *bias;
    int32_t groups;
    float eps;
    bool silu;
    sumi_value y; // may be x; none: a new value
} sumi_plan_group_norm_args;
sumi_value sumi_plan_group_norm(sumi_plan* plan, const sumi_plan_group_norm_args* args);

typedef struct sumi_plan_blend_args {
    sumi_value tile;
    int32_t height, width;
    sumi_value above; // none: no seam there
    int32_t above_height;
    sumi_value left;
    int32_t left_width;
    int32_t extent;
} sumi_plan_blend_args;
void sumi_plan_tile_blend(sumi_plan* plan, const sumi_plan_blend_args* args);

typedef struct sumi_plan_place_args {
    sumi_value tile;
    int32_t tile_width;
    sumi_value picture; // is written
    int32_t picture_height, picture_width;
    sumi_tile kept; // where the tile's upper left pixels go, and how many
    bool per_item;
} sumi_plan_place_args;
void sumi_plan_tile_place(sumi_plan* plan, const sumi_plan_place_args* args);

// Puts pictures [n * h * w, 3] over one of 8-bit RGB, beneath [h * w, 3], in place. opacity [h * w, 1] of bytes: 255 shows
// the pictures, 0 what is beneath.
void sumi_plan_composite(sumi_plan* plan, sumi_value pictures, sumi_value beneath, sumi_value opacity);

// picture [n * h * w, 3] -> bytes [n * h * w, 3]; adds the number of values that are not finite to not_finite [1, 1]
// int.
void sumi_plan_pixels_out(sumi_plan* plan, sumi_value picture, sumi_value bytes, sumi_value not_finite);
#endif
