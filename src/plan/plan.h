// The plan: a flat array of ops over values, written once per (network, shape) by model code, run any number of times by a backend.
//
//   model code  --writes-->  ops + values  --sumi_plan_finish-->  lifetimes, one arena with offsets, parts, slices  --backend runs slices-->  results
//
// A plan covers a whole job: text encoding, preparation, the denoising step, decoding are *sections*. A section runs `repeat` times in a row; the counter of
// the running iteration selects the row of every per-step table. Values written in one section and read in a later one simply live that long.
//
//   TEXT x1 | PREPARE x1 | DENOISE x8 (counter 0..7) | DECODE x2 (counter = item) | TRANSFER x1
//
// Invariants: a value's rows are written before they are read; an op's in-place output is also its input; the arena offsets of two values overlap only if
// their lifetimes do not; a value that crosses into a repeated section from before lives until that section ends. Writing errors (a shape that does not fit, memory)
// are kept in the plan and returned by sumi_plan_finish, so model code reads like the paper, without a check per line.
//
// A view is a value that lies inside another one, its base: some of its rows, and of those some columns. Large pictures are worked on by strips of rows through views, so that
// what lies between two ops exists for one strip at a time, and results may take the place of what was read for them (models/flux_vae.c). The writer of such a plan answers for
// the order: an op must not write what another part of it still reads.
#ifndef SUMI_PLAN_PLAN_H
#define SUMI_PLAN_PLAN_H
#include "base/memory.h"
#include "plan/ops.h"

typedef enum sumi_element {
    SUMI_ELEMENT_ACTIVATION, // float32 on the CPU, bfloat16 on a GPU
    SUMI_ELEMENT_FLOAT,      // float32 everywhere: latents, tables, statistics
    SUMI_ELEMENT_INT,        // int32
    SUMI_ELEMENT_BYTE        // uint8
} sumi_element;

typedef struct sumi_value_info {
    const char* name;        // static text
    sumi_element element;
    int32_t rows, cols;
    bool bound;              // lives through the whole plan: inputs that the engine writes before the run, results it reads after
    int32_t first_use, last_use; // op indices, set by finish (widened over repeated sections)
    uint64_t bytes, offset;  // in the arena, set by finish
    // Elements from row to row: cols, more in a view of some columns. CONV, GROUP_SUMS and GROUP_NORM take any; other ops know no pitch.
    int32_t pitch;
    sumi_value base, whole;  // of a view: whose memory it shares; what it was cut from (a view itself, or the base), from row whole_row on
    int32_t whole_row;
    uint64_t base_element;   // where it begins there
    sumi_value host;         // it may lie at the beginning of this value, though both live at the same time
} sumi_value_info;

typedef enum sumi_section_kind { SUMI_SECTION_PREPARE, SUMI_SECTION_TEXT, SUMI_SECTION_IMAGE, SUMI_SECTION_DENOISE, SUMI_SECTION_DECODE, SUMI_SECTION_TRANSFER } sumi_section_kind;
typedef struct sumi_section {
    sumi_section_kind kind;
    int32_t op_begin, op_end;     // ops [begin, end)
    int32_t repeat, first_counter;
    int32_t slice_begin, slice_end; // set by sumi_plan_slice
} sumi_section;

// A piece of work: whole ops [op_begin, op_end) or, when op_end == op_begin + 1, parts [part_begin, part_end) of that op.
typedef struct sumi_slice { int32_t op_begin, op_end, part_begin, part_end; float predicted_us; } sumi_slice;

// What a backend can do per microsecond, for predictions; measured by the backend and refined while running.
typedef struct sumi_rates { double flops_per_us, bytes_per_us, op_us; } sumi_rates;

// A constant that the backend copies into a bound value before each run (positions, ids that never change).
typedef struct sumi_constant { sumi_value value; const void* data; uint64_t bytes; } sumi_constant;

typedef struct sumi_plan {
    sumi_heap* heap;
    int32_t activation_bytes;
    bool spares_memory;          // its weights are used once and others want the room: under a budget a GPU streams them rather than keep them
    bool fp8_weights;            // a GPU may keep the weights of the denoising section in e4m3, but for those that keep their precision
    sumi_op* ops; size_t op_count, op_capacity;
    sumi_value_info* values; size_t value_count, value_capacity;
    sumi_section* sections; size_t section_count, section_capacity;
    sumi_slice* slices; size_t slice_count, slice_capacity;
    sumi_constant* constants; size_t constant_count, constant_capacity;
    void** blocks; size_t block_count, block_capacity; // spans, items, labels, constants' data: freed with the plan
    size_t block_used, block_bytes;                     // of the newest block
    const sumi_adapter_use* adapters; int32_t adapter_count; // apply to every linear written from here on
    uint64_t arena_bytes;        // exact, after finish
    double total_flops;          // with repeats
    char label_prefix[64];
    sumi_error error;            // the first writing error
} sumi_plan;

// activation_bytes: of SUMI_ELEMENT_ACTIVATION on the runner this plan is for (4 on the CPU).
void sumi_plan_begin(sumi_plan* plan, sumi_heap* heap, int32_t activation_bytes);
void sumi_plan_end(sumi_plan* plan);                     // frees; accepts a zeroed one
// Computes lifetimes, offsets and costs. Returns the first writing error, with its text in `error`.
sumi_result sumi_plan_finish(sumi_plan* plan, sumi_error* error);
// Cuts all sections into slices predicted to take at most max_us each (0: one slice per op, ops whole). Ops are split by parts where needed.
sumi_result sumi_plan_slice(sumi_plan* plan, const sumi_rates* rates, uint32_t max_us, sumi_error* error);
// The same with what was learnt since: op_ratio[kind] is how much longer than the rates say ops of a kind take here. Ops are cut beyond max_us (0: never), and go
// together in a slice up to gathered_us (0: each alone): sumi_plan_slice has max_us for both.
sumi_result sumi_plan_slice_measured(sumi_plan* plan, const sumi_rates* rates, const float* op_ratio, uint32_t max_us, uint32_t gathered_us, sumi_error* error);
// Whether the result of the product at `op_index` is read by a GATED (SiLU) op right behind it and by nothing else. A GPU makes both in one kernel and never writes this value, which
// takes no memory where activations are bfloat16. Of finished plans.
bool sumi_plan_is_gated_pair(const sumi_plan* plan, int32_t op_index);
// Columns whose time a convolution takes: it gathers its taps whatever it makes of them, so one of 3 takes about as long as one of 16 (the decoder's last, on the processor: 9 GFLOP/s where
// others reach 60).
int32_t sumi_plan_conv_effort(const sumi_weight* weight);
float sumi_plan_predict_us(const sumi_plan* plan, const sumi_op* op, const sumi_rates* rates);

void sumi_plan_section(sumi_plan* plan, sumi_section_kind kind, int32_t repeat, int32_t first_counter); // ops written from here on belong to it
void sumi_plan_adapters(sumi_plan* plan, const sumi_adapter_use* uses, int32_t count); // must outlive the plan
void sumi_plan_prefix(sumi_plan* plan, const char* format, ...) SUMI_PRINTF(2, 3);    // label prefix of the following ops: "layers.3."

sumi_value sumi_plan_value(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols);
sumi_value sumi_plan_bound(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols);
sumi_value sumi_plan_constant(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols, const void* data); // data is copied
// Rows [row, row + rows), columns [column, column + cols) of a value that is not bound, as a value.
sumi_value sumi_plan_view(sumi_plan* plan, const char* name, sumi_value of, int32_t row, int32_t rows, int32_t column, int32_t cols);
// `guest`, which is no view, may share the first bytes of `host` from now on. It does where nothing else is in the way; otherwise they lie apart.
void sumi_plan_share(sumi_plan* plan, sumi_value guest, sumi_value host);
const sumi_value_info* sumi_plan_info(const sumi_plan* plan, sumi_value value);
uint64_t sumi_plan_element_bytes(const sumi_plan* plan, sumi_element element);
void* sumi_plan_copy(sumi_plan* plan, const void* data, size_t bytes); // memory that lives as long as the plan; NULL after an error

// ---- The verbs. Each returns its output value (a new one unless it works in place). Shapes are checked; a mismatch is kept as the plan's error. -------------
sumi_value sumi_plan_embed_rows(sumi_plan* plan, sumi_value ids, const sumi_weight* table, float scale);
void sumi_plan_fill_rows(sumi_plan* plan, sumi_value y, const sumi_weight* row, const sumi_span* spans, int32_t span_count);
void sumi_plan_copy_rows(sumi_plan* plan, sumi_value x, int32_t from, sumi_value y, int32_t to, int32_t rows);
// y = act(x W^T + b) with the plan's adapters applied; bias may be NULL.
sumi_value sumi_plan_linear(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* weight, const sumi_weight* bias, sumi_activation activation);
// The same on rows [x_row, x_row + rows) of x into rows from y_row of an existing y.
void sumi_plan_linear_into(sumi_plan* plan, const char* label, sumi_value x, int32_t x_row, int32_t rows, const sumi_weight* weight, const sumi_weight* bias,
                           sumi_activation activation, sumi_value y, int32_t y_row);
// The same into the columns from y_column of a wider y; no adapters.
void sumi_plan_linear_columns(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* weight, const sumi_weight* bias, sumi_value y, int32_t y_column);
// residual + gate * (x W^T + b); gate SUMI_NO_ROW: 1. In place when y is the residual's value.
sumi_value sumi_plan_linear_residual(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* weight, const sumi_weight* bias, sumi_step_row gate, sumi_value residual);
sumi_value sumi_plan_activate(sumi_plan* plan, sumi_value x, sumi_activation activation);
// act(x W_gate^T) * (x W_up^T), weight stacked [gate; up].
sumi_value sumi_plan_linear_gated(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* gate_up, sumi_activation activation);
sumi_value sumi_plan_norm_modulate(sumi_plan* plan, const char* label, sumi_value x, int32_t x_row, int32_t rows, sumi_norm norm, const sumi_weight* weight, float eps, sumi_step_row scale, sumi_step_row shift);
void sumi_plan_norm_gate_add(sumi_plan* plan, const char* label, sumi_value x, int32_t x_row, sumi_value branch, int32_t rows, const sumi_weight* weight, float eps, sumi_step_row gate);
void sumi_plan_qk_norm_rope(sumi_plan* plan, const char* label, sumi_value qkv, int32_t row, int32_t rows, int32_t q_heads, int32_t kv_heads, int32_t dim, const sumi_weight* q_norm, const sumi_weight* k_norm, float eps,
                            sumi_value rope, int32_t rope_row, sumi_rotary rotary);
typedef struct sumi_attention { int32_t q_heads, kv_heads, dim; float scale; bool causal; int32_t window; const sumi_sequence* sequences; int32_t sequence_count; } sumi_attention;
sumi_value sumi_plan_attention(sumi_plan* plan, const char* label, sumi_value qkv, const sumi_attention* attention);
sumi_value sumi_plan_rope_table(sumi_plan* plan, sumi_value positions, int32_t axes, const int32_t* pairs, double theta);
sumi_value sumi_plan_time_embed(sumi_plan* plan, sumi_value times, int32_t width, float scale, float max_period, bool cos_first);
void sumi_plan_finish_modulation(sumi_plan* plan, sumi_value table, bool has_gates);

typedef struct sumi_patch_layout { int32_t height, width, channels; int32_t sequence_count; const int32_t *items, *row_begin; } sumi_patch_layout; // latent size
void sumi_plan_patchify(sumi_plan* plan, sumi_value latents, const sumi_patch_layout* layout, sumi_value rows);
sumi_value sumi_plan_unpatchify(sumi_plan* plan, sumi_value rows, const sumi_patch_layout* layout, float sign); // [sequences * channels, h * w]

void sumi_plan_add_noise(sumi_plan* plan, sumi_value noise, sumi_value clean, sumi_step_row sigma, sumi_value x);
sumi_value sumi_plan_guide(sumi_plan* plan, sumi_value predictions, int32_t item_count, int32_t channels, const int32_t* positive, const int32_t* negative, sumi_step_row scale, float norm_limit);
typedef struct sumi_solve { sumi_value x, y, h, v, noise, clean, mask; sumi_step_row row; int32_t channels; } sumi_solve; // row: 12 columns, the floats of sumi_solver_row in order
void sumi_plan_solve(sumi_plan* plan, const sumi_solve* solve);
void sumi_plan_preview(sumi_plan* plan, sumi_value x, sumi_value v, sumi_step_row sigma, int32_t channels, const float* factors, const float* bias, sumi_value rgb);

sumi_value sumi_plan_pixels_in(sumi_plan* plan, sumi_value bytes, int32_t picture_width, int32_t y, int32_t x, int32_t height, int32_t width); // a tile of an 8-bit RGB picture
void sumi_plan_posterior(sumi_plan* plan, sumi_value moments, sumi_value eps, int32_t channels, float scale, float shift, sumi_value latents);
typedef struct sumi_tile { int32_t y, x, height, width; } sumi_tile;
sumi_value sumi_plan_latent_in(sumi_plan* plan, sumi_value latents, int32_t channels, int32_t height, int32_t width, sumi_tile tile, float scale, float shift, bool per_item);
// Height and width of the input. above, below (3x3, stride 1): rows of the input that are not the strip's own, 1 where the picture goes on, 0 where it ends.
typedef struct sumi_conv { int32_t height, width; int32_t kernel, stride; bool upsamples, pads_end; int32_t above, below; } sumi_conv;
sumi_value sumi_plan_conv(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* weight, const sumi_weight* bias, const sumi_conv* conv, sumi_value residual);
void sumi_plan_conv_into(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* weight, const sumi_weight* bias, const sumi_conv* conv, sumi_value residual,
                         sumi_value y); // y: of the residual's pitch, or the residual itself
sumi_value sumi_plan_group_norm(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* weight, const sumi_weight* bias, int32_t groups, float eps, bool silu); // two ops
// Its two ops. y may be x; x may be some rows of what was summed.
sumi_value sumi_plan_group_sums(sumi_plan* plan, const char* label, sumi_value x, int32_t groups);
void sumi_plan_group_norm_into(sumi_plan* plan, const char* label, sumi_value x, sumi_value sums, const sumi_weight* weight, const sumi_weight* bias, int32_t groups, float eps,
                               bool silu, sumi_value y);
void sumi_plan_tile_blend(sumi_plan* plan, sumi_value tile, int32_t height, int32_t width, sumi_value above, int32_t above_height, sumi_value left, int32_t left_width, int32_t extent);
void sumi_plan_tile_place(sumi_plan* plan, sumi_value tile, int32_t tile_width, sumi_value picture, int32_t picture_height, int32_t picture_width, sumi_tile kept, bool per_item);
// picture [n * h * w, 3] -> bytes [n * h * w, 3]; adds the number of values that are not finite to not_finite [1, 1] int.
void sumi_plan_pixels_out(sumi_plan* plan, sumi_value picture, sumi_value bytes, sumi_value not_finite);
#endif
