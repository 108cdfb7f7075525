// Each invariant of plan.h, broken once on purpose in a plan that keeps them all: sumi_plan_validate says which one,
// and where.
#include "at_once.h"
#include "plan/validate.h"
#include "system.h"
#include "test.h"

static sumi_heap s_heap;
static const float s_ones[64 * 576] = {1.0f};

typedef struct fixture {
    sumi_plan plan;
    sumi_weight square, vector, qkv, conv, columns, wide, adapted, narrow, folded, norm;
    sumi_delta deltas[3]; // of `adapted`, of `folded` a Kronecker product, of `norm`
    sumi_adapter adapter;
    sumi_adapter_use use;
    sumi_value input, state, picture, bytes, positions, table, solver, room, upsampled, grown, guest, background,
        opacity, other_picture;
} fixture;

static sumi_weight make_weight(int32_t rows, int32_t cols)
{
    return (sumi_weight){.name = "w",
                         .rows = rows,
                         .cols = cols,
                         .tensor_count = 1,
                         .tensors = {{.data = s_ones, .dtype = SUMI_DTYPE_F32, .rows = rows, .scale = 1.0f}}};
}

// An adapter that reaches some rows of a weight, under a gated residual and under an activation.
static void write_adapted(fixture* f, sumi_value x, sumi_value residual)
{
    sumi_plan* plan = &f->plan;
    sumi_plan_adapters(plan, &f->use, 1);
    sumi_plan_linear(
        plan,
        &(sumi_plan_linear_args){
            .label = "adapted_gate", .x = x, .weight = &f->adapted, .residual = residual, .gate = {f->table, 0, true}});
    sumi_value y = sumi_plan_value(plan, "adapted", SUMI_ELEMENT_FLOAT, 24, 64);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "adapted_rows",
                                                    .x = x,
                                                    .rows = 8,
                                                    .weight = &f->adapted,
                                                    .bias = &f->vector,
                                                    .activation = SUMI_ACT_GELU_TANH,
                                                    .y = y,
                                                    .y_row = 16});
    sumi_plan_linear(
        plan,
        &(sumi_plan_linear_args){
            .label = "folded_gate", .x = x, .weight = &f->folded, .residual = residual, .gate = {f->table, 0, true}});
    sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "changed_norm", .x = x, .weight = &f->norm, .eps = 1e-5f});
    sumi_plan_adapters(plan, NULL, 0);
}

// Text rows: whole products, products into some rows, learned rows.
static sumi_value write_prepare(fixture* f)
{
    sumi_plan* plan = &f->plan;
    static const int32_t s_positions[24] = {0};
    sumi_plan_section(plan, SUMI_SECTION_PREPARE, 1, 0);
    f->positions = sumi_plan_constant(plan, "positions", SUMI_ELEMENT_INT, 24, 1, s_positions);
    sumi_value rope = sumi_plan_rope_table(
        plan, &(sumi_plan_rope_args){.positions = f->positions, .axes = 1, .pairs = {8}, .theta = 256.0});
    sumi_value a = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){.label = "first", .x = f->input, .weight = &f->square, .bias = &f->vector});
    sumi_value rows = sumi_plan_value(plan, "rows", SUMI_ELEMENT_ACTIVATION, 24, 64);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){
                               .label = "some_rows", .x = a, .x_row = 4, .rows = 8, .weight = &f->square, .y = rows});
    sumi_plan_fill_rows(plan, rows, &f->vector, (const sumi_span[]){{8, 8}, {16, 8}}, 2);
    sumi_value embedded = sumi_plan_embed_rows_biased(plan, f->positions, &f->adapted, &f->vector);
    sumi_value biased = sumi_plan_norm(
        plan, &(sumi_plan_norm_args){
                  .label = "biased_norm", .x = embedded, .weight = &f->vector, .bias = &f->vector, .eps = 1e-5f});
    sumi_plan_mean_rows(plan, "pool", biased, (const sumi_span[]){{0, 8}, {8, 16}}, 2);
    write_adapted(f, f->input, a);
    sumi_value qkv = sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "qkv", .x = rows, .weight = &f->qkv});
    sumi_plan_qk_norm_rope(plan, &(sumi_plan_qk_args){.label = "qk",
                                                      .qkv = qkv,
                                                      .rows = 24,
                                                      .q_heads = 2,
                                                      .kv_heads = 1,
                                                      .dim = 16,
                                                      .eps = 1e-5f,
                                                      .rotary = SUMI_ROTARY_INTERLEAVED,
                                                      .rope = rope});
    const sumi_sequence sequences[2] = {
        {.span = {{0, 8}}, .span_count = 1, .query_spans = 1},
        {.span = {{8, 10}, {18, 6}}, .span_count = 2, .query_spans = 2, .key_spans = 1}};
    sumi_plan_attention(
        plan, "attention", qkv,
        &(sumi_attention){
            .q_heads = 2, .kv_heads = 1, .dim = 16, .scale = 0.25f, .sequences = sequences, .sequence_count = 2});
    sumi_value kept = sumi_plan_value(plan, "kept", SUMI_ELEMENT_ACTIVATION, 5, 32);
    sumi_plan_copy_rows(
        plan, &(sumi_plan_copy_args){.x = sumi_plan_view(plan, "k_and_v", qkv, (sumi_span){0, 24}, (sumi_span){32, 32}),
                                     .y = kept,
                                     .rows = 5});
    const sumi_sequence after = {.span = {{0, 5}, {5, 19}}, .span_count = 2, .query_spans = 1, .query_first = 1};
    const sumi_attention attention = {
        .q_heads = 2, .kv_heads = 1, .dim = 16, .scale = 0.25f, .sequences = &after, .sequence_count = 1};
    sumi_plan_attention_into(
        plan, &(sumi_plan_attention_args){.label = "kept_attention",
                                          .qkv = qkv,
                                          .attention = &attention,
                                          .y = sumi_plan_value(plan, "attended", SUMI_ELEMENT_ACTIVATION, 24, 32),
                                          .kept = kept});
    sumi_value wide = sumi_plan_value(plan, "wide", SUMI_ELEMENT_ACTIVATION, 24, 128);
    sumi_plan_prefix(plan, "wide.");
    for (int32_t half = 0; half < 2; half++)
        sumi_plan_copy_rows(
            plan, &(sumi_plan_copy_args){.x = rows, .y = wide, .writes_some_columns = true, .y_column = 64 * half});
    sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "norm", .x = wide, .eps = 1e-5f});
    sumi_plan_prefix(plan, "%s", "");
    return rows;
}

static void write_steps(fixture* f, sumi_value rows, int32_t first)
{
    sumi_plan* plan = &f->plan;
    sumi_plan_section(plan, SUMI_SECTION_DENOISE, 4, first);
    const sumi_row_band bands[2] = {{9, 1}, {24, 0}};
    sumi_value n = sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "norm",
                                                               .x = rows,
                                                               .weight = &f->vector,
                                                               .eps = 1e-5f,
                                                               .scale = {f->table, 0, true},
                                                               .bands = bands,
                                                               .band_count = 2});
    sumi_value g = sumi_plan_linear_gated(plan, "gated", n, &f->square, SUMI_ACT_SILU);
    sumi_plan_linear(plan,
                     &(sumi_plan_linear_args){.label = "residual", .x = g, .weight = &f->columns, .residual = rows});
    static const int32_t s_items[] = {0, 1, 2}, s_none[] = {1, -1, 0};
    sumi_plan_guide(plan, &(sumi_plan_guide_args){.predictions = f->state,
                                                  .item_count = 3,
                                                  .channels = 8,
                                                  .positive = s_items,
                                                  .negative = s_none,
                                                  .scale = {f->solver, 10, true},
                                                  .rule = SUMI_GUIDANCE_NORM_RESCALE,
                                                  .width = 8,
                                                  .patch_size = 2});
    sumi_value v = sumi_plan_value(plan, "velocity", SUMI_ELEMENT_FLOAT, 24, 64);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "velocity", .x = rows, .weight = &f->square, .y = v});
    sumi_plan_solve(plan, &(sumi_plan_solve_args){.x = f->state, .v = v, .row = {f->solver, 0, true}, .channels = 24});
}

static const float s_one = 1.0f, s_none = 0.0f;
static const sumi_latent_statistics s_same = {&s_one, &s_none, 1};

// A picture of 8 x 8 pixels becomes another one strip by strip, in the same memory: a room that is half a picture
// longer.
static void write_pictures(fixture* f)
{
    sumi_plan* plan = &f->plan;
    sumi_plan_section(plan, SUMI_SECTION_DECODE, 1, 0);
    f->guest = sumi_plan_latent_in(
        plan,
        &(sumi_plan_latent_args){
            .latents = f->state, .channels = 24, .height = 8, .width = 8, .tile = {0, 0, 8, 8}, .statistics = s_same});
    f->room = sumi_plan_value(plan, "room", SUMI_ELEMENT_ACTIVATION, 96, 64);
    f->upsampled = sumi_plan_view(plan, "upsampled", f->room, (sumi_span){32, 64}, (sumi_span){0, 64});
    f->grown = sumi_plan_view(plan, "grown", f->room, (sumi_span){0, 64}, (sumi_span){0, 64});
    sumi_plan_share(plan, f->guest, f->room);
    const sumi_op_conv shape = {.height = 8, .width = 8};
    sumi_plan_conv(plan,
                   &(sumi_plan_conv_args){
                       .label = "upsample", .x = f->guest, .weight = &f->wide, .shape = shape, .y = f->upsampled});
    for (int32_t row = 0; row < 64; row += 32) {
        sumi_plan_prefix(plan, "strip%d.", (int)row);
        sumi_value from = sumi_plan_view(plan, "from", f->upsampled, (sumi_span){row, 32}, (sumi_span){0, 64}),
                   into = sumi_plan_view(plan, "into", f->grown, (sumi_span){row, 32}, (sumi_span){0, 64});
        sumi_plan_linear(plan,
                         &(sumi_plan_linear_args){
                             .label = "grow", .x = from, .weight = &f->square, .y = into, .writes_some_columns = true});
    }
    sumi_plan_prefix(plan, "%s", "");
    sumi_value sums = sumi_plan_group_sums(plan, "sums", f->grown, 4);
    sumi_plan_group_norm(plan, &(sumi_plan_group_norm_args){.label = "group",
                                                            .x = f->grown,
                                                            .sums = sums,
                                                            .weight = &f->vector,
                                                            .bias = &f->vector,
                                                            .groups = 4,
                                                            .eps = 1e-6f,
                                                            .silu = true,
                                                            .y = f->grown});
    sumi_value out = sumi_plan_conv(
        plan, &(sumi_plan_conv_args){.label = "conv_out", .x = f->grown, .weight = &f->conv, .shape = shape});
    sumi_plan_tile_place(plan, &(sumi_plan_tile_place_args){.tile = out,
                                                            .tile_width = 8,
                                                            .picture = f->picture,
                                                            .picture_height = 8,
                                                            .picture_width = 8,
                                                            .copied = {0, 0, 8, 8}});
    sumi_plan_section(plan, SUMI_SECTION_TRANSFER, 1, 0);
    sumi_plan_composite(plan, f->picture, f->background, f->opacity);
    static const int32_t s_zero = 0;
    sumi_plan_pixels_out(plan, f->picture, f->bytes,
                         sumi_plan_constant(plan, "not_finite", SUMI_ELEMENT_INT, 1, 1, &s_zero));
}

// A backend that does a product with its gate, and the first two products, in one kernel.
static void arrange_pairs(const struct sumi_runner* runner, sumi_plan* plan)
{
    (void)runner;
    for (size_t i = 0; i + 1 < plan->op_count; i++) {
        const bool is_gated = plan->ops[i].kind == SUMI_OP_LINEAR && plan->ops[i + 1].kind == SUMI_OP_GATED;
        plan->ops[i].is_first_of_pair = is_gated || strcmp(plan->ops[i].label, "first") == 0;
        if (is_gated) plan->values[plan->ops[i].out.id - 1].is_unstored = true;
    }
}

// A plan with views, a guest, in-place ops, pairs, constants, step tables and split ops. It breaks nothing.
static bool make_plan(fixture* f)
{
    memset(f, 0, sizeof *f);
    f->square = make_weight(64, 64);
    f->vector = make_weight(1, 64);
    f->qkv = make_weight(64, 64);
    f->columns = make_weight(64, 32);
    f->conv = make_weight(3, 576);
    f->wide = make_weight(64, 216);
    f->adapted = make_weight(64, 64);
    f->narrow = make_weight(1, 32);
    f->adapted.index = 1;
    f->folded = make_weight(64, 64);
    f->folded.index = 2;
    f->norm = make_weight(1, 64);
    f->norm.index = 3;
    f->deltas[0] = (sumi_delta){1, 16, 0.5f, make_weight(4, 64), make_weight(32, 4), SUMI_DELTA_LOW_RANK};
    f->deltas[1] = (sumi_delta){2, 16, 0.5f, make_weight(8, 16), make_weight(4, 4), SUMI_DELTA_KRONECKER};
    f->deltas[2] = (sumi_delta){.weight_index = 3, .scale = 1.0f, .up = make_weight(64, 1), .kind = SUMI_DELTA_VECTOR};
    f->adapter = (sumi_adapter){f->deltas, 3};
    f->use = (sumi_adapter_use){&f->adapter, 1.0f};
    sumi_plan* plan = &f->plan;
    sumi_plan_begin(plan, &s_heap, 4);
    plan->arrange = arrange_pairs;
    f->input = sumi_plan_bound(plan, "input", SUMI_ELEMENT_ACTIVATION, 16, 64);
    f->state = sumi_plan_bound(plan, "state", SUMI_ELEMENT_FLOAT, 24, 64);
    f->table = sumi_plan_bound(plan, "table", SUMI_ELEMENT_FLOAT, 9, 64);
    f->solver = sumi_plan_bound(plan, "solver", SUMI_ELEMENT_FLOAT, 8, 12);
    f->picture = sumi_plan_bound(plan, "picture", SUMI_ELEMENT_ACTIVATION, 64, 3);
    f->bytes = sumi_plan_bound(plan, "bytes", SUMI_ELEMENT_BYTE, 64, 3);
    f->other_picture = sumi_plan_bound(plan, "other_picture", SUMI_ELEMENT_ACTIVATION, 64, 3);
    f->background = sumi_plan_bound(plan, "background", SUMI_ELEMENT_BYTE, 64, 3);
    f->opacity = sumi_plan_bound(plan, "opacity", SUMI_ELEMENT_BYTE, 64, 1);
    sumi_value rows = write_prepare(f);
    write_steps(f, rows, 0);
    write_steps(f, rows, 4);
    write_pictures(f);
    sumi_error error = {0};
    sumi_result result = sumi_plan_finish(plan, &error);
    if (result == SUMI_OK) result = plan_slice(plan, &(sumi_rates){1e3, 1e3, 1.0}, 300, &error);
    if (result == SUMI_OK) result = sumi_plan_validate(plan, &error);
    CHECK_TEXT(error.text, "");
    return result == SUMI_OK;
}

// The first op of the label.
static sumi_op* op_called(fixture* f, const char* label)
{
    for (size_t i = 0; i < f->plan.op_count; i++)
        if (strcmp(f->plan.ops[i].label, label) == 0) return &f->plan.ops[i];
    abort();
}
static sumi_op* op_of(fixture* f, sumi_op_kind kind)
{
    for (size_t i = 0; i < f->plan.op_count; i++)
        if (f->plan.ops[i].kind == kind) return &f->plan.ops[i];
    abort();
}
static sumi_value_info* info_of(fixture* f, sumi_value value) { return &f->plan.values[value.id - 1]; }

// ---- Sections, slices, constants ------------------------------------------------------------------------------------
static void break_section_order(fixture* f) { f->plan.sections[1].op_begin++; }
static void break_section_repeat(fixture* f) { f->plan.sections[1].repeat = 0; }
static void break_section_of_op(fixture* f) { op_called(f, "some_rows")->section = 1; }
static void break_section_end(fixture* f) { f->plan.sections[f->plan.section_count - 1].op_end--; }
static void break_counters(fixture* f) { f->plan.sections[2].first_counter = 3; }
static void break_slice_gap(fixture* f) { f->plan.slices[1].op_begin++; }
static void break_slice_parts(fixture* f)
{
    for (size_t i = 0; i < f->plan.slice_count; i++) {
        if (f->plan.slices[i].op_end == f->plan.slices[i].op_begin + 1) {
            f->plan.slices[i].range_end++;
            return;
        }
    }
    abort();
}
static void break_slice_end(fixture* f) { f->plan.sections[f->plan.section_count - 1].slice_end--; }
static void break_slice_group(fixture* f) { f->plan.slices[f->plan.slice_count - 1].group_count = 2; }
static void break_constant_size(fixture* f) { f->plan.constants[0].bytes -= 4; }
static void break_constant_bound(fixture* f) { f->plan.constants[0].value = f->room; }

// ---- Values ---------------------------------------------------------------------------------------------------------
static void break_view_end(fixture* f) { info_of(f, f->upsampled)->cut_from_row++; }
static void break_view_place(fixture* f) { info_of(f, f->upsampled)->offset += 64; }
static void break_view_order(fixture* f) { info_of(f, f->upsampled)->cut_from = f->grown; }
static void break_view_life(fixture* f) { info_of(f, f->upsampled)->last_use--; }
static void break_view_pitch(fixture* f) { info_of(f, f->upsampled)->pitch = 128; }
static void break_overlap(fixture* f)
{
    info_of(f, op_called(f, "residual")->in[0])->offset = info_of(f, op_called(f, "residual")->out)->offset;
}
static void break_guest(fixture* f) { info_of(f, f->guest)->container = SUMI_NO_VALUE; }
static void break_alignment(fixture* f) { info_of(f, op_called(f, "some_rows")->out)->offset += 4; }
static void break_arena_end(fixture* f) { f->plan.arena_bytes -= 64; }
static void break_bound_life(fixture* f) { info_of(f, f->state)->last_use--; }
static void break_size(fixture* f) { info_of(f, op_called(f, "velocity")->out)->bytes -= 4; }
static void break_life_begin(fixture* f) { info_of(f, op_called(f, "first")->out)->first_use++; }
static void break_life_in_repeat(fixture* f)
{
    info_of(f, op_called(f, "some_rows")->out)->last_use = f->plan.sections[2].op_end - 2;
}

// ---- Pairs ----------------------------------------------------------------------------------------------------------
static sumi_value_info* unstored_of(fixture* f) { return info_of(f, op_called(f, "gated")->out); }
static void break_unstored_bytes(fixture* f) { unstored_of(f)->bytes = 64; }
static void break_unstored_bound(fixture* f)
{
    unstored_of(f)->bound = true;
    unstored_of(f)->first_use = 0;
    unstored_of(f)->last_use = (int32_t)f->plan.op_count - 1;
}
static void break_unstored_guest(fixture* f) { unstored_of(f)->container = f->room; }
static void break_unstored_pair(fixture* f) { op_called(f, "gated")->is_first_of_pair = false; }
static void break_unstored_life(fixture* f) { unstored_of(f)->last_use++; }
static void break_unstored_reader(fixture* f) { op_called(f, "gated")[1].in[0] = f->input; }
static void break_unstored_view(fixture* f) { info_of(f, f->upsampled)->is_unstored = true; }
static void break_unstored_base(fixture* f) { info_of(f, f->room)->is_unstored = true; }
static void break_stored(fixture* f) { unstored_of(f)->is_unstored = false; }
static void break_pair_end(fixture* f) { f->plan.ops[f->plan.op_count - 1].is_first_of_pair = true; }
static void break_pair_section(fixture* f) { op_of(f, SUMI_OP_SOLVE)->is_first_of_pair = true; }
static void break_pair_of_pairs(fixture* f) { op_called(f, "gated")[1].is_first_of_pair = true; }
static void break_pair_reader(fixture* f) { op_called(f, "some_rows")->in[0] = f->input; }
static void break_pair_life(fixture* f) { info_of(f, op_called(f, "some_rows")->out)->first_use++; }
static void break_pair_apart(fixture* f)
{
    sumi_op* op = op_called(f, "gated");
    info_of(f, op[1].out)->offset = info_of(f, op->in[0])->offset;
    info_of(f, op[1].out)->container = op->in[0]; // or the arena's rule would say it
}

// ---- Ops ------------------------------------------------------------------------------------------------------------
static void break_value_id(fixture* f) { op_called(f, "first")->in[0].id = 999; }
static sumi_row_band s_bands[2];
static sumi_row_band* own_bands(fixture* f)
{
    sumi_op* norm = op_called(f, "norm");
    memcpy(s_bands, norm->u.norm.bands, sizeof s_bands);
    norm->u.norm.bands = s_bands;
    return s_bands;
}
static void break_bands(fixture* f) { own_bands(f)[1].end--; }
static void break_band_row(fixture* f) { own_bands(f)[1].table_row = 1000; }
static void break_unlisted_table(fixture* f) { op_called(f, "norm")->in[1] = SUMI_NO_VALUE; }
static void break_rows_end(fixture* f) { op_called(f, "some_rows")->u.linear.x_row = 9; }
static void break_width(fixture* f) { op_called(f, "gated")->weight = &f->columns; }
static void break_bias(fixture* f) { op_called(f, "first")->bias = &f->square; }
static void break_weight_parts(fixture* f) { f->square.tensors[0].rows--; }
static void break_chunks(fixture* f) { f->square.tensors[0].chunk = 8, f->square.tensors[0].chunk_stride = 16; }
static void break_rotation(fixture* f) { f->square.tensors[0].rotation = 8; }
static const sumi_weight_change* odd_change(int32_t down_rows, int32_t up_rows, sumi_dtype dtype)
{
    static sumi_weight_change s_change;
    s_change =
        (sumi_weight_change){.down = {.dtype = dtype, .rows = down_rows}, .up = {.dtype = dtype, .rows = up_rows}};
    return &s_change;
}
static void break_change_rows(fixture* f) { f->square.change = odd_change(4, f->square.rows - 1, SUMI_DTYPE_F32); }
static void break_change_rank(fixture* f) { f->square.change = odd_change(0, f->square.rows, SUMI_DTYPE_F32); }
static void break_change_type(fixture* f) { f->square.change = odd_change(4, f->square.rows, SUMI_DTYPE_Q8_0); }
static void break_element(fixture* f) { info_of(f, f->positions)->element = SUMI_ELEMENT_FLOAT; }
static void break_step_row(fixture* f) { f->plan.sections[2].first_counter = 5; }
static void break_part_count(fixture* f) { op_of(f, SUMI_OP_GROUP_NORM)->range_count++; }
static void break_work(fixture* f) { op_called(f, "conv_out")->rows--; }
static void break_blocks(fixture* f) { op_of(f, SUMI_OP_GROUP_NORM)->u.group.block_count++; }
static void break_spans(fixture* f)
{
    ((sumi_span*)(void*)(uintptr_t)op_of(f, SUMI_OP_FILL_ROWS)->u.fill.spans)[1].begin = 15;
}
static void break_averaged_rows(fixture* f)
{
    ((sumi_span*)(void*)(uintptr_t)op_called(f, "pool")->u.mean.spans)[1].count = 17;
}
static void break_averaged_count(fixture* f) { op_called(f, "pool")->u.mean.span_count = 1; }
static void break_averaged_width(fixture* f) { op_called(f, "pool")->in[0] = op_called(f, "rope")->out; }
static void break_averaged_weight(fixture* f) { op_called(f, "pool")->weight = &f->vector; }
static void break_embedded_bias(fixture* f) { op_called(f, "embed")->bias = &f->narrow; }
static void break_norm_bias(fixture* f) { op_called(f, "biased_norm")->bias = &f->narrow; }
static void break_biased_silu(fixture* f) { op_called(f, "biased_norm")->u.norm.silu = true; }
static void break_biased_shift(fixture* f) { op_called(f, "norm")->bias = &f->vector; }
static void break_in_place_output(fixture* f) { op_called(f, "some_rows")->in[2] = SUMI_NO_VALUE; }
static sumi_op* adding_op(fixture* f, const char* label) { return op_called(f, label) + 2; } // product, low rank, this
static void break_adding_output(fixture* f)
{
    sumi_op* op = adding_op(f, "adapted_rows");
    op->in[2] = op->out;
    op->in[1] = SUMI_NO_VALUE;
}
static void break_adding_bias(fixture* f) { adding_op(f, "adapted_gate")->bias = &f->narrow; }
static void break_adding_gate(fixture* f) { adding_op(f, "adapted_gate")->u.linear.gate.column += 17; }
static void break_adding_columns(fixture* f) { adding_op(f, "adapted_gate")->u.linear.y_column += 17; }
static sumi_op* folded_op(fixture* f) { return op_of(f, SUMI_OP_KRONECKER_ADD); }
static void break_folded_rows(fixture* f) { folded_op(f)->rows--, folded_op(f)->weight = &f->square; }
static void break_folded_output(fixture* f) { folded_op(f)->in[1] = SUMI_NO_VALUE; }
static void break_folded_columns(fixture* f) { folded_op(f)->u.kronecker.y_column += 17; }
static void break_folded_gate(fixture* f) { folded_op(f)->u.kronecker.gate.column += 17; }
static void break_folded_bias(fixture* f) { folded_op(f)->bias = &f->narrow; }
static void break_folded_input(fixture* f) { folded_op(f)->in[0] = folded_op(f)->out; }
static void break_two_norms(fixture* f) { op_called(f, "changed_norm")->weight = &f->norm; }
static void break_norm_value(fixture* f) { op_called(f, "changed_norm")->in[3] = f->positions; }
static void break_norm_element(fixture* f) { op_called(f, "changed_norm")->in[3] = f->input; }
static void break_gate_alone(fixture* f)
{
    sumi_op* op = op_called(f, "first");
    op->in[2] = f->table;
    op->u.linear.gate = (sumi_step_row){f->table, 0, false};
}
static void break_residual_activation(fixture* f) { op_called(f, "residual")->u.linear.activation = SUMI_ACT_SILU; }
static void break_activated_rows(fixture* f) { op_of(f, SUMI_OP_ACTIVATE)->u.activate.row = 17; }
static void break_activated_place(fixture* f) { op_of(f, SUMI_OP_ACTIVATE)->out = op_called(f, "some_rows")->out; }
static void break_composite_output(fixture* f) { op_of(f, SUMI_OP_COMPOSITE)->out = f->other_picture; }
static void break_in_place_kind(fixture* f)
{
    sumi_op* op = op_called(f, "velocity");
    op->in[0] = op->out;
}
static void break_guest_in_host(fixture* f) { op_called(f, "upsample")->out = f->grown; }

static sumi_sequence* padded_sequence(fixture* f)
{
    return (sumi_sequence*)(void*)(uintptr_t)&op_called(f, "attention")->u.attention.sequences[1];
}
static void break_key_spans(fixture* f) { padded_sequence(f)->key_spans = 3; }
static void break_unused_span(fixture* f) { padded_sequence(f)->query_spans = 1; }
static void break_padded_window(fixture* f) { op_called(f, "attention")->u.attention.window = 4; }
static sumi_sequence* kept_sequence(fixture* f)
{
    return (sumi_sequence*)(void*)(uintptr_t)&op_called(f, "kept_attention")->u.attention.sequences[0];
}
static void break_kept_queries(fixture* f) { kept_sequence(f)->query_first = 0; }
static void break_kept_rows(fixture* f) { kept_sequence(f)->span[0].count = 6; }
static void break_kept_columns(fixture* f) { op_called(f, "kept_attention")->u.attention.kv_heads = 2; }
static void break_kept_window(fixture* f) { op_called(f, "kept_attention")->u.attention.window = 4; }
static void break_copied_columns(fixture* f) { op_called(f, "wide.copy")->u.copy.y_column = 65; }
static void break_guidance(fixture* f) { op_of(f, SUMI_OP_GUIDE)->u.guide.rule = SUMI_GUIDANCE_MODEL; }
static void break_tokens(fixture* f) { op_of(f, SUMI_OP_GUIDE)->u.guide.patch_size = 3; }
static void break_scales(fixture* f)
{
    ((float*)(void*)(uintptr_t)op_of(f, SUMI_OP_LATENT_IN)->u.latent_in.scale)[23] = 0.0f;
}

// ---- Order ----------------------------------------------------------------------------------------------------------
static void break_written_before(fixture* f) { op_called(f, "some_rows")->u.linear.y_row = 1; }
static void swap_ops(sumi_op* a, sumi_op* b)
{
    const sumi_op first = *a;
    *a = *b;
    *b = first;
}
static void break_first_iteration(fixture* f) { swap_ops(op_called(f, "velocity"), op_called(f, "velocity") + 1); }
// The second strip of the result lies where the first one is read from.
static void break_strip_order(fixture* f) { swap_ops(op_called(f, "strip0.grow"), op_called(f, "strip32.grow")); }

static const struct {
    const char* name;
    void (*apply)(fixture* f);
    const char* says[2]; // where and what
} s_breaks[] = {
    {"section order", break_section_order, {"section 1", "sections hold every op once"}},
    {"section repeat", break_section_repeat, {"section 1", "runs at least once"}},
    {"an op of another section", break_section_of_op, {"some_rows", "lies in one section and names another"}},
    {"an op of no section", break_section_end, {"pixels_out", "lies in no section"}},
    {"counters", break_counters, {"solver", "their counters overlap"}},
    {"a gap between slices", break_slice_gap, {"slice 1", "slices hold every work range"}},
    {"parts of a slice", break_slice_parts, {"slice ", "slices hold every work range"}},
    {"a group beyond its section", break_slice_group, {"slice ", "group of 2"}},
    {"a slice of no section", break_slice_end, {"section ", "slices"}},
    {"a constant's size", break_constant_size, {"positions", "as large as its value"}},
    {"a constant's value", break_constant_bound, {"room", "a constant needs a bound value"}},
    {"a view's rows", break_view_end, {"upsampled", "within the rows and columns"}},
    {"a view's offset", break_view_place, {"upsampled", "its place in its base"}},
    {"a view's order", break_view_order, {"upsampled", "written after its base"}},
    {"a view's life", break_view_life, {"upsampled", "as long as its base"}},
    {"a view's pitch", break_view_pitch, {"upsampled", "the pitch of its base"}},
    {"offsets", break_overlap, {"(gated)", "share bytes of the arena"}},
    {"a guest", break_guest, {"(room)", "share bytes of the arena"}},
    {"alignment", break_alignment, {"(rows)", "in the arena, aligned"}},
    {"the arena's end", break_arena_end, {"value ", "in the arena, aligned"}},
    {"a bound value's life", break_bound_life, {"(state)", "through the whole plan"}},
    {"a value's size", break_size, {"(velocity)", "size is that of its rows"}},
    {"a life's begin", break_life_begin, {"linear", "does not live at an op that uses it"}},
    {"a life in a repeated section", break_life_in_repeat, {"rows", "until the section ends"}},
    {"an unstored value's size", break_unstored_bytes, {"value ", "takes no memory"}},
    {"an unstored value that is bound", break_unstored_bound, {"value ", "takes no memory"}},
    {"an unstored guest", break_unstored_guest, {"value ", "takes no memory"}},
    {"an unstored value of no pair", break_unstored_pair, {"value ", "made and read by a pair"}},
    {"an unstored value's life", break_unstored_life, {"value ", "made and read by a pair"}},
    {"an unstored value without a reader", break_unstored_reader, {"value ", "made and read by a pair"}},
    {"an unstored view", break_unstored_view, {"(upsampled)", "a view and its base are stored"}},
    {"an unstored base", break_unstored_base, {"(room)", "takes no memory"}},
    {"a stored value without memory", break_stored, {"value ", "size is that of its rows"}},
    {"a pair at the plan's end", break_pair_end, {"pixels_out", "there is none in its section"}},
    {"a pair across sections", break_pair_section, {"solve", "there is none in its section"}},
    {"an op in two pairs", break_pair_of_pairs, {"gated", "in one pair at most"}},
    {"a pair that shares nothing", break_pair_reader, {"first", "reads what the first one makes"}},
    {"a pair's second life", break_pair_life, {"first", "lives from the first one on"}},
    {"a pair's results", break_pair_apart, {"gated", "still reads"}},
    {"a value's id", break_value_id, {"first", "no such value"}},
    {"bands that end before the rows", break_bands, {"norm", "bands cover the rows"}},
    {"a band behind its table", break_band_row, {"table", "the value has 9"}},
    {"a table that is no input", break_unlisted_table, {"table", "not among its inputs"}},
    {"rows behind the end", break_rows_end, {"some_rows", "reads rows 9 to 17, the value has 16"}},
    {"a weight's width", break_width, {"gated", "the weight or the bias has another shape"}},
    {"a bias", break_bias, {"first", "the weight or the bias has another shape"}},
    {"a weight's parts",
     break_weight_parts,
     {"first", "the tensors of a stacked weight must have as many rows together as the weight"}},
    {"a change's rows", break_change_rows, {"first", "a weight's change has the weight's rows and a rank"}},
    {"a change's rank", break_change_rank, {"first", "a weight's change has the weight's rows and a rank"}},
    {"a change's type", break_change_type, {"first", "a weight's change has the weight's rows and a rank"}},
    {"a weight's rotation", break_rotation, {"first", "a weight's rows are whole groups of its rotation"}},
    {"a weight in chunks", break_chunks, {"first", "a weight that lies in chunks is a convolution's"}},
    {"an element", break_element, {"positions", "does not take elements of this type"}},
    {"a step table's row", break_step_row, {"table", "reads rows 6 to 10, the value has 9"}},
    {"the number of parts", break_part_count, {"group", "do not cover its rows once"}},
    {"rows of the work", break_work, {"conv_out", "not the work"}},
    {"blocks of sums", break_blocks, {"group", "the blocks of group sums"}},
    {"parts that overlap", break_spans, {"fill", "the op writes the same rows twice"}},
    {"rows that are averaged", break_averaged_rows, {"pool", "reads rows 8 to 25, the value has 24"}},
    {"the number of means", break_averaged_count, {"pool", "not the work"}},
    {"the width of means", break_averaged_width, {"pool", "has other columns than the op needs"}},
    {"a weight of means", break_averaged_weight, {"pool", "the weight or the bias has another shape"}},
    {"a bias of embedded rows", break_embedded_bias, {"embed", "the weight or the bias has another shape"}},
    {"a bias of a norm", break_norm_bias, {"biased_norm", "the weight or the bias has another shape"}},
    {"a bias beside an activation", break_biased_silu, {"biased_norm", "a norm with a bias has no scale"}},
    {"a bias beside a scale", break_biased_shift, {"norm", "a norm with a bias has no scale"}},
    {"an output that is no input", break_in_place_output, {"some_rows", "has its output among its inputs"}},
    {"what an adapter adds to", break_adding_output, {"adapted_rows", "has its output among its inputs"}},
    {"a bias of what is added", break_adding_bias, {"adapted_gate", "the weight or the bias has another shape"}},
    {"the gate of what is added", break_adding_gate, {"table", "has other columns than the op needs"}},
    {"the columns of what is added", break_adding_columns, {"adapted_gate", "has other columns than the op needs"}},
    {"rows of a Kronecker product's half",
     break_folded_rows,
     {"half_product", "reads rows 0 to 960, the value has 64"}},
    {"what a Kronecker product adds to", break_folded_output, {"folded_gate", "has its output among its inputs"}},
    {"the columns of a Kronecker product",
     break_folded_columns,
     {"folded_gate", "has other columns than the op needs"}},
    {"the gate of a Kronecker product", break_folded_gate, {"table", "has other columns than the op needs"}},
    {"a bias of a Kronecker product", break_folded_bias, {"folded_gate", "the weight or the bias has another shape"}},
    {"a Kronecker product of its output", break_folded_input, {"folded_gate", "reads rows 0 to 64, the value has 16"}},
    {"a norm with two weights", break_two_norms, {"changed_norm", "the weight or the bias has another shape"}},
    {"the width of a norm's value", break_norm_value, {"positions", "has other columns than the op needs"}},
    {"the element of a norm's value", break_norm_element, {"input", "does not take elements of this type"}},
    {"a gate of nothing", break_gate_alone, {"first", "a gate needs what its product is added to"}},
    {"an activation beside a residual",
     break_residual_activation,
     {"residual", "with an activation is not added to anything"}},
    {"rows that are activated", break_activated_rows, {"adapted", "reads rows 17 to 25, the value has 24"}},
    {"activated rows elsewhere", break_activated_place, {"adapted_rows", "has its output among its inputs"}},
    {"a composite elsewhere", break_composite_output, {"composite", "has its output among its inputs"}},
    {"an op that may not write in place", break_in_place_kind, {"velocity", "writes over what it reads"}},
    {"a sequence's keys", break_key_spans, {"attention", "each with keys or with queries"}},
    {"a span without keys and queries", break_unused_span, {"attention", "each with keys or with queries"}},
    {"padding behind a window", break_padded_window, {"attention", "each with keys or with queries"}},
    {"queries of kept rows", break_kept_queries, {"kept_attention", "kept keys has them first"}},
    {"kept rows", break_kept_rows, {"kept_attention", "reads rows 0 to 6, the value has 5"}},
    {"heads of kept rows", break_kept_columns, {"kept_attention", "has other columns than the op needs"}},
    {"kept rows behind a window", break_kept_window, {"kept_attention", "has them first, then queries, and no window"}},
    {"columns that are copied", break_copied_columns, {"wide", "has other columns than the op needs"}},
    {"a host over its guest", break_guest_in_host, {"value latent_picture", "writes over what it reads"}},
    {"the rule of guidance", break_guidance, {"guide", "guidance needs a rule"}},
    {"the tokens of guidance", break_tokens, {"guide", "tokens tile the planes"}},
    {"a channel's scale", break_scales, {"latent_in", "every channel of a latent has a scale"}},
    {"a row that is not written",
     break_written_before,
     {"qkv", "row 0 is read, but no op before this one has written it"}},
    {"the first iteration", break_first_iteration, {"solve", "is read, but"}},
    {"the order of strips", break_strip_order, {"strip0.grow", "another view of its memory was written since: grown"}},
};

TEST(validate_accepts_a_plan_that_breaks_nothing)
{
    fixture f;
    CHECK(make_plan(&f));
    CHECK(sumi_plan_info(&f.plan, f.guest)->offset == sumi_plan_info(&f.plan, f.room)->offset); // the guest is one
    CHECK(f.plan.slice_count > f.plan.section_count);
    sumi_plan_end(&f.plan);
}

TEST(validate_catches_every_break)
{
    for (size_t i = 0; i < sizeof s_breaks / sizeof *s_breaks; i++) {
        fixture f;
        sumi_error error = {0};
        if (make_plan(&f)) {
            s_breaks[i].apply(&f);
            const sumi_result result = sumi_plan_validate(&f.plan, &error);
            const bool is_caught = result == SUMI_INTERNAL && strstr(error.text, s_breaks[i].says[0]) != NULL
                                && strstr(error.text, s_breaks[i].says[1]) != NULL;
            if (!is_caught) printf("  %s: %d \"%s\"\n", s_breaks[i].name, (int)result, error.text);
            CHECK(is_caught);
        }
        sumi_plan_end(&f.plan);
    }
}

// Ops on latents that are packed, and on patches: a plan of its own.
static void write_latents(sumi_plan* plan)
{
    static const int32_t s_items[] = {0}, s_begins[] = {0};
    static const float s_factors[9] = {1.0f};
    const sumi_patch_layout layout = {4, 6, 8, 2, 1, s_items, s_begins, true};
    sumi_plan_begin(plan, &s_heap, 4);
    sumi_plan_section(plan, SUMI_SECTION_PREPARE, 1, 0);
    const sumi_value latents = sumi_plan_bound(plan, "latents", SUMI_ELEMENT_FLOAT, 8, 24),
                     moments = sumi_plan_bound(plan, "moments", SUMI_ELEMENT_ACTIVATION, 96, 4),
                     rows = sumi_plan_bound(plan, "rows", SUMI_ELEMENT_ACTIVATION, 6, 32),
                     table = sumi_plan_bound(plan, "table", SUMI_ELEMENT_FLOAT, 1, 1),
                     rgb = sumi_plan_bound(plan, "rgb", SUMI_ELEMENT_FLOAT, 3, 96);
    sumi_plan_posterior(
        plan,
        &(sumi_plan_posterior_args){
            .moments = moments, .channels = 2, .packing = 2, .width = 12, .statistics = s_same, .latents = latents});
    sumi_plan_patchify(plan, latents, &layout, rows);
    const sumi_value back = sumi_plan_unpatchify(plan, rows, &layout, 1.0f);
    sumi_plan_preview(plan, &(sumi_plan_preview_args){.x = latents,
                                                      .v = back,
                                                      .sigma = {table, 0, false},
                                                      .channels = 2,
                                                      .packing = 2,
                                                      .width = 12,
                                                      .factors = &s_factors[0],
                                                      .bias = &s_factors[6],
                                                      .rgb = rgb});
    sumi_plan_latent_in(plan, &(sumi_plan_latent_args){.latents = latents,
                                                       .channels = 2,
                                                       .height = 8,
                                                       .width = 12,
                                                       .packing = 2,
                                                       .tile = {1, 3, 7, 9},
                                                       .statistics = s_same});
}

TEST(validate_catches_shortcuts_and_channels_that_do_not_fit)
{
    static const char s_divides[] = "the values of a shortcut divide", s_channels[] = "three or four channels",
                      s_work[] = "the op's work ranges";
    static const char* const s_says[] = {NULL,      s_divides, s_divides, s_divides, s_divides,
                                         s_divides, s_divides, s_work,    s_channels};
    for (size_t i = 0; i < sizeof s_says / sizeof *s_says; i++) {
        sumi_plan plan;
        sumi_error error = {0};
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
        const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 24, 6),
                         bytes = sumi_plan_bound(&plan, "bytes", SUMI_ELEMENT_BYTE, 24, 4);
        sumi_plan_shortcut(&plan,
                           &(sumi_plan_shortcut_args){.label = "up", .x = x, .shape = {6, 2, 2, true}, .channels = 3});
        sumi_plan_shortcut(&plan,
                           &(sumi_plan_shortcut_args){.label = "down", .x = x, .shape = {.width = 6}, .channels = 12});
        sumi_plan_pixels_in(&plan, bytes, 6, (sumi_tile){0, 0, 4, 6}, 4);
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_OK);
        if (plan.op_count == 3) {
            sumi_op *up = &plan.ops[0], *down = &plan.ops[1], *in = &plan.ops[2];
            switch (i) {
            case 1: up->u.shortcut.frames = 0; break;
            case 2: up->u.shortcut.upsamples = false; break;
            case 3: up->u.shortcut.width = 5; break;
            case 4: down->u.shortcut.scale = 1; break;
            case 5: down->u.shortcut.width = 8; break; // three rows
            case 6: down->rows = 5; break;
            case 7: down->range_count++; break;
            case 8: in->u.pixels.cols = 3; break;
            }
            const sumi_result result = sumi_plan_validate(&plan, &error);
            const bool is_good =
                i == 0 ? result == SUMI_OK : result == SUMI_INTERNAL && strstr(error.text, s_says[i]) != NULL;
            if (!is_good) printf("  %d: %d \"%s\"\n", (int)i, (int)result, error.text);
            CHECK(is_good);
        }
        sumi_plan_end(&plan);
    }
}

TEST(validate_catches_packings_and_patches_that_do_not_fit)
{
    static const char s_packs[] = "a packing is 1 or 2", s_tiles[] = "patches of 1 or 2 pixels",
                      s_columns[] = "has other columns than the op needs", s_rows[] = ", the value has ";
    static const char* const s_says[] = {NULL,    s_packs, s_packs, s_packs,   s_packs,   s_packs, s_tiles,
                                         s_tiles, s_tiles, s_rows,  s_columns, s_columns, s_rows,  "channel"};
    for (size_t i = 0; i < sizeof s_says / sizeof *s_says; i++) {
        sumi_plan plan;
        sumi_error error = {0};
        write_latents(&plan);
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        if (plan.op_count == 5) {
            sumi_op *posterior = &plan.ops[0], *patchify = &plan.ops[1], *unpatchify = &plan.ops[2],
                    *preview = &plan.ops[3], *in = &plan.ops[4];
            switch (i) {
            case 1: posterior->u.posterior.packing = 3; break;
            case 2: posterior->u.posterior.width = 7; break;
            case 3: preview->u.preview.packing = 0; break;
            case 4: preview->u.preview.width = 32; break; // three rows
            case 5: in->u.latent_in.packing = -2; break;
            case 6: patchify->u.patch.patch = 0; break;
            case 7: unpatchify->u.patch.patch = 3; break;
            case 8: patchify->u.patch.width = 5; break;
            case 9: patchify->u.patch.patch = 1; break; // more rows than there are
            case 10: preview->u.preview.packing = 1; break;
            case 11: posterior->u.posterior.channels = 1; break;
            case 12: preview->u.preview.channels = 3; break;
            case 13: ((float*)(uintptr_t)in->u.latent_in.scale)[7] = 0.0f; break;
            }
            const sumi_result result = sumi_plan_validate(&plan, &error);
            const bool is_good =
                i == 0 ? result == SUMI_OK : result == SUMI_INTERNAL && strstr(error.text, s_says[i]) != NULL;
            if (!is_good) printf("  %d: %d \"%s\"\n", (int)i, (int)result, error.text);
            CHECK(is_good);
        }
        sumi_plan_end(&plan);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(validate_accepts_a_plan_that_breaks_nothing);
    RUN(validate_catches_every_break);
    RUN(validate_catches_packings_and_patches_that_do_not_fit);
    RUN(validate_catches_shortcuts_and_channels_that_do_not_fit);
    TEST_END();
}
