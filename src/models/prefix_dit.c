#include "models/prefix_dit.h"
#include "base/assert.h"
#include "models/config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define EPS 1e-6f          // of every norm, where the config does not say it
#define PERIOD 10000.0f    // of the sinusoids of times
#define TIME_SCALE 1000.0f // of sigmas, in the sinusoids
#define MAX_EVALUATIONS (2 * SUMI_MAX_ITEMS)

enum { SCALE_1, GATE_1, SCALE_2, GATE_2, VECTORS }; // of the modulation
#define ADDS_ONE (1u << SCALE_1 | 1u << SCALE_2)
#define APPLIES_TANH (1u << GATE_1 | 1u << GATE_2)

// ---- Weights --------------------------------------------------------------------------------------------------------

typedef struct config_values {
    int32_t blocks, heads, head_dim, features, in_channels, out_channels, patch;
    int32_t axes[SUMI_PREFIX_DIT_AXES], axis_count;
    double eps;
    bool is_causal;
} config_values;

static void read_prefix_config(const sumi_prefix_dit* model, sumi_binder* b, config_values* c,
                               const sumi_module_config* config)
{
    const float eps = model->settings->eps > 0.0f ? model->settings->eps : EPS;
    *c = (config_values){.patch = 1, .eps = (double)eps, .is_causal = true};
    const sumi_config_field fields[] = {
        {"num_layers", SUMI_CONFIG_INTEGER, &c->blocks, 0, NULL},
        {"num_attention_heads", SUMI_CONFIG_INTEGER, &c->heads, 0, NULL},
        {"attention_head_dim", SUMI_CONFIG_INTEGER, &c->head_dim, 0, NULL},
        {"context_in_dim", SUMI_CONFIG_INTEGER, &c->features, 0, NULL},
        {"in_channels", SUMI_CONFIG_INTEGER, &c->in_channels, 0, NULL},
        {"out_channels", SUMI_CONFIG_INTEGER, &c->out_channels, 0, NULL},
        {"patch_size", SUMI_CONFIG_INTEGER, &c->patch, 0, NULL},
        {"axes_dims_rope", SUMI_CONFIG_INTEGERS, c->axes, SUMI_PREFIX_DIT_AXES, &c->axis_count},
        {"eps", SUMI_CONFIG_NUMBER, &c->eps, 0, NULL},
        {"causal_condition", SUMI_CONFIG_BOOL, &c->is_causal, 0, NULL}};
    b->result = sumi_config_read(config, fields, sizeof fields / sizeof *fields, b->error);
    if (c->patch != 1)
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: patch_size is %d; only 1 is supported", config->path, (int)c->patch);
    if (!c->is_causal) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: causal_condition is false, so that texts would see the image; only true is supported",
                       config->path);
    }
    if (!(c->eps > 0.0 && c->eps < 1.0))
        sumi_bind_fail(b, SUMI_FILE_MALFORMED, "%s: eps is %g, not a small number above 0", config->path, c->eps);
}

// All widths follow from the shapes; the config must agree with them.
static void find_prefix_sizes(sumi_prefix_dit* model, sumi_binder* b, const config_values* c, const char* path)
{
    static const char s_time_in[] = "time_text_embed.timestep_embedder.linear_1.weight";
    if (b->result != SUMI_OK) return;
    model->eps = (float)c->eps;
    model->dim = sumi_bind_size(b, "img_in.weight", 0);
    model->channels = sumi_bind_size(b, "img_in.weight", 1);
    model->head_dim = sumi_bind_size(b, "transformer_blocks.0.attn.norm_q.weight", 0);
    model->hidden = sumi_bind_size(b, "transformer_blocks.0.img_mlp.out.weight", 1);
    model->feature_width = sumi_bind_size(b, "txt_in.in_layer.weight", 1);
    model->time_hidden = sumi_bind_size(b, s_time_in, 0);
    model->time_width = sumi_bind_size(b, s_time_in, 1);
    model->heads = sumi_bind_heads(b, model->dim, model->head_dim, model->time_width);
    if (b->result != SUMI_OK) return;
    sumi_bind_check(b, path, "num_attention_heads", c->heads, model->heads);
    sumi_bind_check(b, path, "attention_head_dim", c->head_dim, model->head_dim);
    sumi_bind_check(b, path, "context_in_dim", c->features, model->feature_width);
    sumi_bind_check(b, path, "in_channels", c->in_channels, model->channels);
    sumi_bind_check(b, path, "out_channels", c->out_channels, model->channels);
    sumi_bind_axes(b,
                   &(sumi_axis_split){.config_path = path,
                                      .key = "axes_dims_rope",
                                      .dims = c->axes,
                                      .dim_count = c->axis_count,
                                      .shares = model->settings->axis_share,
                                      .axis_count = SUMI_PREFIX_DIT_AXES,
                                      .head_dim = model->head_dim},
                   model->axis_pairs);
    const int32_t blocks = sumi_bind_count(b, "transformer_blocks.");
    model->block_count = c->blocks != 0 ? c->blocks : blocks;
    // if there are fewer blocks than the config says, binding reports the missing tensor by its name
    if (blocks > model->block_count) sumi_bind_check(b, path, "num_layers", c->blocks, blocks);
    if (model->block_count < 1 || model->block_count > SUMI_PREFIX_DIT_MAX_BLOCKS) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: %d blocks; 1 to %d are supported", b->component->path,
                       (int)model->block_count, SUMI_PREFIX_DIT_MAX_BLOCKS);
    }
}

static void bind_block(const sumi_prefix_dit* model, sumi_binder* b, sumi_prefix_dit_block* w, int32_t index)
{
    const int32_t dim = model->dim, hidden = model->hidden;
    char n[4][SUMI_NAME_BYTES], prefix[64];
    snprintf(prefix, sizeof prefix, "transformer_blocks.%d", (int)index);
    const char* qkv[] = {sumi_bind_join(n[0], prefix, "attn.to_q"), sumi_bind_join(n[1], prefix, "attn.to_k"),
                         sumi_bind_join(n[2], prefix, "attn.to_v")};
    const int32_t qkv_rows[] = {dim, dim, dim};
    sumi_bind_stack(b, &w->qkv, &(sumi_module_stack){sumi_bind_join(n[3], prefix, "attn.to_qkv"), qkv, qkv_rows, 3},
                    dim);
    sumi_bind_norm(b, &w->q_norm, sumi_bind_join(n[0], prefix, "attn.norm_q.weight"), model->head_dim);
    sumi_bind_norm(b, &w->k_norm, sumi_bind_join(n[0], prefix, "attn.norm_k.weight"), model->head_dim);
    sumi_bind_matrix(b, &w->out, sumi_bind_join(n[0], prefix, "attn.to_out.0"), dim, dim);
    // the gate's rows come first, in a fused tensor too
    const char* gate_up[] = {sumi_bind_join(n[0], prefix, "img_mlp.gate_layer"),
                             sumi_bind_join(n[1], prefix, "img_mlp.proj")};
    const int32_t gate_up_rows[] = {hidden, hidden};
    const char* fused = sumi_bind_join(n[2], prefix, "img_mlp.gate_up");
    sumi_bind_fused(b, &w->gate_up, fused, &(sumi_module_stack){fused, gate_up, gate_up_rows, 2}, dim);
    sumi_bind_matrix(b, &w->down, sumi_bind_join(n[3], prefix, "img_mlp.out"), dim, hidden);
}

static sumi_result bind_prefix_dit(void* memory, const void* settings, sumi_binder* b, const sumi_module_config* config)
{
    sumi_prefix_dit* model = memory;
    config_values c;
    model->settings = settings;
    read_prefix_config(model, b, &c, config);
    find_prefix_sizes(model, b, &c, config->path);
    if (b->result != SUMI_OK) return b->result;
    const size_t bytes = (size_t)model->block_count * sizeof *model->blocks;
    model->blocks = sumi_weight_list_reserve(b->list, bytes);
    if (model->blocks == NULL) return b->result = sumi_out_of_memory(b->error, bytes, "the transformer's blocks");
    const int32_t dim = model->dim;
    sumi_bind_matrix(b, &model->image_in, "img_in", dim, model->channels);
    // stored without the 1 that is added to it; the norms of heads are not
    sumi_bind_offset_norm(b, &model->text_norm, "txt_in.text_norm.weight", model->feature_width, 1.0f);
    sumi_bind_matrix(b, &model->text_in, "txt_in.in_layer", dim, model->feature_width);
    sumi_bind_matrix(b, &model->text_out, "txt_in.out_layer", dim, dim);
    sumi_bind_matrix(b, &model->time_in, "time_text_embed.timestep_embedder.linear_1", model->time_hidden,
                     model->time_width);
    sumi_bind_matrix(b, &model->time_out, "time_text_embed.timestep_embedder.linear_2", dim, model->time_hidden);
    sumi_bind_matrix(b, &model->modulation, "modulation.1", VECTORS * dim, dim);
    sumi_bind_matrix(b, &model->final_modulation, "norm_out.linear", dim, dim);
    sumi_bind_matrix(b, &model->final_linear, "proj_out", model->channels, dim);
    for (int32_t i = 0; i < model->block_count; i++) bind_block(model, b, &model->blocks[i], i);
    sumi_weight* precise[] = {&model->image_in, &model->text_in,    &model->text_out,         &model->time_in,
                              &model->time_out, &model->modulation, &model->final_modulation, &model->final_linear};
    for (size_t i = 0; i < sizeof precise / sizeof *precise; i++) precise[i]->keeps_precision = true;
    return b->result;
}

static sumi_denoiser_properties prefix_dit_properties(const void* memory)
{
    const sumi_prefix_dit* model = memory;
    return (sumi_denoiser_properties){.channels = model->channels,
                                      .patch = 1,
                                      .stream_width = model->dim,
                                      .feature_width = {model->feature_width},
                                      .takes_references = true,
                                      .places_references = true};
}

// ---- Blocks ---------------------------------------------------------------------------------------------------------

typedef struct prefix_state {
    sumi_value kept[SUMI_PREFIX_DIT_MAX_BLOCKS]; // k | v of each block, [rows of all prompts, 2 * dim]
    sumi_span kept_rows[SUMI_MAX_PROMPTS];       // of each prompt, in them
    int32_t position[SUMI_MAX_PROMPTS];          // the number of positions before the target
    // Finished modulation of all evaluations, [evaluations, 4 * dim] and [evaluations, dim], and of time 0, [1, 4 * dim].
    sumi_value modulation, final_table, zero;
    sumi_value rope[2]; // for each slot, for the rows of the targets
} prefix_state;

// The rows that blocks change, and what they read: the prefix, or the targets of an evaluation.
typedef struct dit_stream {
    const sumi_prefix_dit* model;
    sumi_plan* plan;
    const char* prefix; // of labels
    sumi_value x, rope; // [rows, dim]; the rotary table of these rows
    sumi_step_row modulation;
} dit_stream;

static sumi_step_row vector_of(const dit_stream* s, int32_t vector)
{
    return (sumi_step_row){s->modulation.table, vector * s->model->dim, s->modulation.per_step};
}

static sumi_value write_stream_norm(const dit_stream* s, const char* label, int32_t scale)
{
    return sumi_plan_norm(
        s->plan,
        &(sumi_plan_norm_args){
            .label = label, .x = s->x, .norm = SUMI_NORM_LAYER, .eps = s->model->eps, .scale = vector_of(s, scale)});
}

// What comes before attention: q, k and v, [rows, 3 * dim].
static sumi_value write_qkv(const dit_stream* s, int32_t index)
{
    const sumi_prefix_dit_block* block = &s->model->blocks[index];
    sumi_plan_prefix(s->plan, "%stransformer_blocks.%d.", s->prefix, (int)index);
    sumi_value qkv = sumi_plan_linear(s->plan, &(sumi_plan_linear_args){.label = "attn.to_qkv",
                                                                        .x = write_stream_norm(s, "img_norm1", SCALE_1),
                                                                        .weight = &block->qkv});
    sumi_plan_qk_norm_rope(s->plan, &(sumi_plan_qk_args){.label = "attn.qk_norm_rope",
                                                         .qkv = qkv,
                                                         .q_heads = s->model->heads,
                                                         .kv_heads = s->model->heads,
                                                         .dim = s->model->head_dim,
                                                         .q_norm = &block->q_norm,
                                                         .k_norm = &block->k_norm,
                                                         .eps = s->model->eps,
                                                         .rotary = SUMI_ROTARY_INTERLEAVED,
                                                         .rope = s->rope});
    return qkv;
}

static sumi_attention stream_attention(const dit_stream* s, const sumi_sequence* sequences, int32_t count)
{
    return (sumi_attention){.q_heads = s->model->heads,
                            .kv_heads = s->model->heads,
                            .dim = s->model->head_dim,
                            .scale = (float)(1.0 / sqrt((double)s->model->head_dim)),
                            .sequences = sequences,
                            .sequence_count = count};
}

static sumi_value attention_output(const dit_stream* s)
{
    return sumi_plan_value(s->plan, "attention", SUMI_ELEMENT_ACTIVATION, sumi_plan_rows(s->plan, s->x), s->model->dim);
}

// What follows attention.
static void write_rest(const dit_stream* s, int32_t index, sumi_value attended)
{
    const sumi_prefix_dit_block* block = &s->model->blocks[index];
    sumi_plan_linear(s->plan, &(sumi_plan_linear_args){.label = "attn.to_out.0",
                                                       .x = attended,
                                                       .weight = &block->out,
                                                       .residual = s->x,
                                                       .gate = vector_of(s, GATE_1)});
    sumi_value hidden = sumi_plan_linear_gated(s->plan, "img_mlp.gate_up", write_stream_norm(s, "img_norm2", SCALE_2),
                                               &block->gate_up, SUMI_ACT_SILU);
    sumi_plan_linear(s->plan, &(sumi_plan_linear_args){.label = "img_mlp.out",
                                                       .x = hidden,
                                                       .weight = &block->down,
                                                       .residual = s->x,
                                                       .gate = vector_of(s, GATE_2)});
}

// ---- The prefix -----------------------------------------------------------------------------------------------------

// Neighbouring rows of the prefix: a piece of a prompt's text, or a reference in it.
typedef struct prefix_run {
    sumi_span rows, before; // of the matrix; before: the rows of the same prompt that come before it
    int32_t prompt, text_row;
    int32_t reference; // -1: text, the prompt's features from text_row on
    int32_t position;  // of its first row
} prefix_run;

typedef struct prefix_writer {
    const sumi_prefix_dit* model;
    sumi_plan* plan;
    const sumi_denoising* job;
    prefix_state* state;
    prefix_run* runs; // [run_count], in the order of their rows
    int32_t run_count, run_capacity;
    int32_t rows, shared; // of the matrix; of these the first ones are those of all prompts
    bool has_padding;
    sumi_sequence* sequences;
} prefix_writer;

static int32_t reference_rows(const sumi_denoising* job, int32_t reference)
{
    return job->references[reference].height * job->references[reference].width;
}

// Whether the references have places in a prompt, one after the other, and whether it has more rows than padding.
static bool has_places(const sumi_denoising* job, int32_t prompt)
{
    const sumi_prompt_features* features = &job->prompts[prompt];
    int32_t after = 0;
    if (features->padding < 0 || features->padding >= features->count[0]) return false;
    for (int32_t r = 0; r < job->reference_count; r++) {
        const sumi_span* span = &features->references[r];
        if (span->begin < after || span->count < 1 || span->count > features->count[0] - span->begin) return false;
        after = span->begin + span->count;
    }
    return true;
}

static void add_prefix_run(prefix_writer* w, prefix_run run, int32_t count)
{
    SUMI_ASSERT(w->run_count < w->run_capacity && count >= 1);
    run.rows = (sumi_span){w->rows, count};
    w->runs[w->run_count++] = run;
    w->rows += count;
}

// Appends the runs of a prompt from a place in its features on. `run`: the prompt, its rows before that place, and the
// position there. Returns the position after the last run.
static int32_t add_prompt(prefix_writer* w, prefix_run run, int32_t begin, int32_t end)
{
    const sumi_denoising* job = w->job;
    const sumi_span* places = job->prompts[run.prompt].references;
    for (int32_t row = begin, r = 0; row < end;) {
        while (r < job->reference_count && places[r].begin < row) r++;
        const bool is_reference = r < job->reference_count && places[r].begin == row;
        const int32_t text_end = r < job->reference_count && places[r].begin < end ? places[r].begin : end,
                      count = is_reference ? reference_rows(job, r) : text_end - row;
        run.text_row = row;
        run.reference = is_reference ? r : -1;
        add_prefix_run(w, run, count);
        run.before.count += count;
        if (is_reference) {
            const sumi_reference_latents* latents = &job->references[r];
            run.position += latents->height > latents->width ? latents->height : latents->width;
            row += places[r].count;
        } else {
            run.position += count;
            row = text_end;
        }
    }
    return run.position;
}

// Finds the rows of the prefix, and which of the kept ones each prompt reads.
static void find_runs(prefix_writer* w)
{
    const sumi_denoising* job = w->job;
    const sumi_span* last = job->reference_count > 0 ? &job->prompts[0].references[job->reference_count - 1] : NULL;
    const int32_t common = last != NULL && job->prompt_count > 1 && last->begin + last->count <= job->shared_rows
                             ? last->begin + last->count
                             : 0;
    const int32_t position = add_prompt(w, (prefix_run){.prompt = 0}, 0, common);
    w->shared = w->rows;
    for (int32_t p = 0, kept = 0; p < job->prompt_count; p++) {
        const int32_t first = w->rows;
        const prefix_run begin = {.before = {w->shared > 0 ? 0 : first, w->shared}, .prompt = p, .position = position};
        w->state->position[p] = add_prompt(w, begin, common, job->prompts[p].count[0]);
        w->state->kept_rows[p] = (sumi_span){kept, w->shared + w->rows - first - job->prompts[p].padding};
        kept += w->state->kept_rows[p].count;
        w->has_padding = w->has_padding || job->prompts[p].padding > 0;
    }
}

// Frame, row and column of a picture's tokens. The rows and columns are counted from its middle.
static void fill_picture(int32_t* position, int32_t frame, int32_t height, int32_t width)
{
    for (int32_t i = 0; i < height * width; i++, position += SUMI_PREFIX_DIT_AXES) {
        position[0] = frame;
        position[1] = i / width - (height - height / 2);
        position[2] = i % width - (width - width / 2);
    }
}

static sumi_value write_rope(const sumi_prefix_dit* model, sumi_plan* plan, const int32_t* positions, int32_t rows)
{
    sumi_value value = sumi_plan_constant(plan, "positions", SUMI_ELEMENT_INT, rows, SUMI_PREFIX_DIT_AXES, positions);
    sumi_plan_rope_args rope = {.positions = value, .axes = SUMI_PREFIX_DIT_AXES, .theta = model->settings->theta};
    memcpy(rope.pairs, model->axis_pairs, sizeof model->axis_pairs);
    return sumi_plan_rope_table(plan, &rope);
}

// Memory for the positions of rows; NULL after an error.
static int32_t* make_positions(sumi_plan* plan, int32_t rows)
{
    const size_t bytes = (size_t)rows * SUMI_PREFIX_DIT_AXES * sizeof(int32_t);
    int32_t* positions = plan->error.result == SUMI_OK ? sumi_alloc_zero(plan->heap, bytes) : NULL;
    if (positions == NULL) sumi_out_of_memory(&plan->error, bytes, "token positions");
    return positions;
}

static sumi_value write_prefix_rope(const prefix_writer* w)
{
    int32_t* positions = make_positions(w->plan, w->rows);
    if (positions == NULL) return SUMI_NO_VALUE;
    for (int32_t i = 0; i < w->run_count; i++) {
        const prefix_run* run = &w->runs[i];
        int32_t* position = positions + (size_t)run->rows.begin * SUMI_PREFIX_DIT_AXES;
        if (run->reference >= 0) {
            const sumi_reference_latents* latents = &w->job->references[run->reference];
            fill_picture(position, run->position, latents->height, latents->width);
            continue;
        }
        for (int32_t r = 0; r < run->rows.count; r++) {
            for (int32_t a = 0; a < SUMI_PREFIX_DIT_AXES; a++) *position++ = run->position + r;
        }
    }
    const sumi_value rope = write_rope(w->model, w->plan, positions, w->rows);
    sumi_free(w->plan->heap, positions);
    return rope;
}

// The texts of all prompts go through txt_in together.
static void write_texts(const prefix_writer* w, sumi_value x)
{
    const sumi_prefix_dit* model = w->model;
    sumi_plan* plan = w->plan;
    int32_t rows = 0, row = 0;
    for (int32_t i = 0; i < w->run_count; i++) rows += w->runs[i].reference < 0 ? w->runs[i].rows.count : 0;
    if (rows == 0) return; // a reference and nothing else
    sumi_plan_prefix(plan, "txt_in.");
    sumi_value texts = sumi_plan_value(plan, "texts", SUMI_ELEMENT_ACTIVATION, rows, model->feature_width);
    for (int32_t i = 0; i < w->run_count; i++) {
        const prefix_run* run = &w->runs[i];
        const sumi_prompt_features* prompt = &w->job->prompts[run->prompt];
        if (run->reference >= 0) continue;
        sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = prompt->value[0],
                                                         .x_row = prompt->row[0] + run->text_row,
                                                         .y = texts,
                                                         .y_row = row,
                                                         .rows = run->rows.count});
        row += run->rows.count;
    }
    sumi_value normed = sumi_plan_norm(
        plan, &(sumi_plan_norm_args){.label = "text_norm", .x = texts, .weight = &model->text_norm, .eps = model->eps});
    sumi_value hidden = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "in_layer", .x = normed, .weight = &model->text_in, .activation = SUMI_ACT_GELU_TANH});
    sumi_plan_linear_args out = {.label = "out_layer", .x = hidden, .weight = &model->text_out, .y = x};
    for (int32_t i = 0; i < w->run_count; i++) {
        if (w->runs[i].reference >= 0) continue;
        out.y_row = w->runs[i].rows.begin;
        out.rows = w->runs[i].rows.count;
        sumi_plan_linear(plan, &out);
        out.x_row += out.rows;
    }
}

static void write_references(const prefix_writer* w, sumi_value x)
{
    const sumi_prefix_dit* model = w->model;
    sumi_plan* plan = w->plan;
    int32_t row_of[SUMI_MAX_REFERENCE_LATENTS] = {0}, rows = 0;
    for (int32_t r = 0; r < w->job->reference_count; r++) {
        row_of[r] = rows;
        rows += reference_rows(w->job, r);
    }
    if (rows == 0) return;
    sumi_plan_prefix(plan, "prefix.");
    sumi_value patches = sumi_plan_value(plan, "patches", SUMI_ELEMENT_ACTIVATION, rows, model->channels);
    for (int32_t r = 0; r < w->job->reference_count; r++) {
        const sumi_reference_latents* reference = &w->job->references[r];
        const int32_t first = 0;
        const sumi_patch_layout layout = {
            reference->height, reference->width, model->channels, 1, 1, &first, &row_of[r], true};
        sumi_plan_patchify(plan, reference->latents, &layout, patches);
    }
    for (int32_t i = 0; i < w->run_count; i++) {
        const prefix_run* run = &w->runs[i];
        if (run->reference < 0) continue;
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "img_in",
                                                        .x = patches,
                                                        .x_row = row_of[run->reference],
                                                        .rows = run->rows.count,
                                                        .weight = &model->image_in,
                                                        .y = x,
                                                        .y_row = run->rows.begin});
    }
}

// Copies k and v out of q, k and v to the rows of each prompt.
static sumi_value write_kept(const prefix_writer* w, sumi_value qkv)
{
    const int32_t dim = w->model->dim, last = w->job->prompt_count - 1;
    const prefix_state* state = w->state;
    sumi_value k_and_v = sumi_plan_view(w->plan, "k_and_v", qkv, (sumi_span){0, w->rows}, (sumi_span){dim, 2 * dim});
    sumi_value kept = sumi_plan_value(w->plan, "kept", SUMI_ELEMENT_ACTIVATION,
                                      state->kept_rows[last].begin + state->kept_rows[last].count, 2 * dim);
    if (w->shared == 0 && !w->has_padding) { // kept rows are in the order of the matrix
        sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = k_and_v, .y = kept, .rows = w->rows});
        return kept;
    }
    for (int32_t p = 0, row = w->shared; p <= last; p++) {
        const sumi_span* rows = &state->kept_rows[p];
        sumi_plan_copy_args copy = {.x = k_and_v, .y = kept, .y_row = rows->begin, .rows = w->shared};
        if (copy.rows > 0) sumi_plan_copy_rows(w->plan, &copy);
        copy.x_row = row;
        copy.y_row += w->shared;
        copy.rows = rows->count - w->shared;
        if (copy.rows > 0) sumi_plan_copy_rows(w->plan, &copy);
        row += copy.rows + w->job->prompts[p].padding;
    }
    return kept;
}

// A text's queries see the rows before the text and its rows up to themselves; a reference's queries see the rows before
// it and all of its rows. These are two ops, which write rows of one value.
static sumi_value write_prefix_attention(const prefix_writer* w, const dit_stream* s, sumi_value qkv)
{
    sumi_value attended = attention_output(s);
    for (int32_t of_references = 0; of_references < 2; of_references++) {
        int32_t count = 0;
        for (int32_t i = 0; i < w->run_count; i++) {
            const prefix_run* run = &w->runs[i];
            if ((run->reference >= 0) != (of_references != 0)) continue;
            w->sequences[count++] = run->before.count > 0
                                      ? (sumi_sequence){.span = {run->before, run->rows},
                                                        .span_count = 2,
                                                        .query_spans = 1,
                                                        .query_first = 1}
                                      : (sumi_sequence){.span = {run->rows}, .span_count = 1, .query_spans = 1};
        }
        if (count == 0) continue;
        sumi_attention attention = stream_attention(s, w->sequences, count);
        attention.causal = of_references == 0;
        sumi_plan_attention_into(
            w->plan, &(sumi_plan_attention_args){.label = of_references != 0 ? "reference_attention" : "text_attention",
                                                 .qkv = qkv,
                                                 .attention = &attention,
                                                 .y = attended});
    }
    return attended;
}

static void write_prefix_blocks(const prefix_writer* w)
{
    const int32_t blocks = w->model->block_count;
    dit_stream s = {.model = w->model, .plan = w->plan, .prefix = "prefix.", .modulation = {w->state->zero, 0, false}};
    s.x = sumi_plan_value(w->plan, "prefix", SUMI_ELEMENT_ACTIVATION, w->rows, w->model->dim);
    write_texts(w, s.x);
    write_references(w, s.x);
    sumi_plan_prefix(w->plan, "prefix.");
    s.rope = write_prefix_rope(w);
    for (int32_t i = 0; i < blocks; i++) {
        sumi_value qkv = write_qkv(&s, i);
        w->state->kept[i] = write_kept(w, qkv);
        if (i < blocks - 1) write_rest(&s, i, write_prefix_attention(w, &s, qkv));
    }
}

static void write_prefix(const sumi_prefix_dit* model, sumi_plan* plan, const sumi_denoising* job)
{
    prefix_writer w = {.model = model, .plan = plan, .job = job, .state = job->state};
    w.run_capacity = (job->prompt_count + 1) * (2 * job->reference_count + 1);
    const size_t run_bytes = (size_t)w.run_capacity * sizeof *w.runs,
                 bytes = run_bytes + (size_t)w.run_capacity * sizeof *w.sequences;
    for (int32_t p = 0; p < job->prompt_count; p++) {
        if (plan->error.result == SUMI_OK && !has_places(job, p))
            sumi_fail(&plan->error, SUMI_INTERNAL, "a reference has no place in prompt %d", (int)p);
    }
    if (plan->error.result != SUMI_OK) return;
    w.runs = sumi_alloc_zero(plan->heap, bytes);
    if (w.runs == NULL) {
        sumi_out_of_memory(&plan->error, bytes, "writing a plan");
        return;
    }
    w.sequences = (sumi_sequence*)(w.runs + w.run_capacity);
    find_runs(&w);
    write_prefix_blocks(&w);
    sumi_free(plan->heap, w.runs);
}

// ---- What all evaluations share -------------------------------------------------------------------------------------

// SiLU(mlp(sinusoids(1000 t))) for all evaluations, followed by time 0.
static sumi_value write_condition(const sumi_prefix_dit* model, sumi_plan* plan, const sumi_denoising* job)
{
    const float zero = 0.0f;
    const int32_t count = job->evaluation_count;
    sumi_plan_prefix(plan, "time_text_embed.");
    sumi_value times = sumi_plan_value(plan, "times_and_zero", SUMI_ELEMENT_FLOAT, count + 1, 1);
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = job->times, .y = times, .rows = count});
    sumi_plan_copy_rows(
        plan, &(sumi_plan_copy_args){
                  .x = sumi_plan_constant(plan, "zero", SUMI_ELEMENT_FLOAT, 1, 1, &zero), .y = times, .y_row = count});
    sumi_value e = sumi_plan_time_embed(
        plan,
        &(sumi_plan_time_args){
            .times = times, .width = model->time_width, .scale = TIME_SCALE, .max_period = PERIOD, .cos_first = true});
    sumi_value hidden = sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "timestep_embedder.linear_1",
                                                                        .x = e,
                                                                        .weight = &model->time_in,
                                                                        .activation = SUMI_ACT_SILU});
    sumi_value c = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){.label = "timestep_embedder.linear_2", .x = hidden, .weight = &model->time_out});
    sumi_plan_prefix(plan, "%s", "");
    return sumi_plan_activate(plan, c, SUMI_ACT_SILU);
}

static void write_modulation(const sumi_prefix_dit* model, sumi_plan* plan, const sumi_denoising* job)
{
    prefix_state* state = job->state;
    const int32_t count = job->evaluation_count;
    sumi_value condition = write_condition(model, plan, job);
    sumi_plan_modulation_args all = {
        .label = "modulation",
        .table = sumi_plan_value(plan, "modulation", SUMI_ELEMENT_FLOAT, count + 1, VECTORS * model->dim),
        .vector_count = VECTORS,
        .adds_one = ADDS_ONE,
        .applies_tanh = APPLIES_TANH};
    sumi_plan_linear(plan, &(sumi_plan_linear_args){
                               .label = "modulation.1", .x = condition, .weight = &model->modulation, .y = all.table});
    state->modulation = sumi_plan_modulation(plan, &all);
    state->zero = sumi_plan_value(plan, "zero_modulation", SUMI_ELEMENT_FLOAT, 1, VECTORS * model->dim);
    sumi_plan_copy_rows(plan,
                        &(sumi_plan_copy_args){.x = state->modulation, .x_row = count, .y = state->zero, .rows = 1});
    sumi_value final_table = sumi_plan_value(plan, "modulation", SUMI_ELEMENT_FLOAT, count, model->dim);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "norm_out.linear",
                                                    .x = condition,
                                                    .rows = count,
                                                    .weight = &model->final_modulation,
                                                    .y = final_table});
    state->final_table = sumi_plan_modulation(
        plan, &(sumi_plan_modulation_args){.label = "norm_out.linear", .table = final_table, .adds_one = 1});
}

static void write_prefix_prepare(const void* memory, sumi_plan* plan, sumi_denoising* job)
{
    const sumi_prefix_dit* model = memory;
    write_modulation(model, plan, job);
    write_prefix(model, plan, job);
    sumi_plan_prefix(plan, "%s", "");
}

static void write_prefix_layout(const void* memory, sumi_plan* plan, sumi_denoising* job,
                                const sumi_evaluation_list* list)
{
    const sumi_prefix_dit* model = memory;
    prefix_state* state = job->state;
    const int32_t tokens = job->height * job->width;
    int32_t* positions = make_positions(plan, list->count * tokens);
    if (positions == NULL) return;
    for (int32_t s = 0; s < list->count; s++) {
        fill_picture(positions + (size_t)s * (size_t)tokens * SUMI_PREFIX_DIT_AXES,
                     state->position[list->evaluations[s].prompt], job->height, job->width);
    }
    sumi_plan_prefix(plan, "%s", "");
    state->rope[list->slot] = write_rope(model, plan, positions, list->count * tokens);
    sumi_free(plan->heap, positions);
    if (job->keeps_residuals)
        job->residuals[list->slot] = sumi_block_residuals_make(plan, list->count * tokens, model->dim);
}

// ---- One evaluation -------------------------------------------------------------------------------------------------

typedef struct target_writer {
    const sumi_denoising* job;
    const sumi_evaluation_list* list;
    const prefix_state* state;
    dit_stream stream;
    int32_t tokens; // of a target; that of evaluation s begins at s * tokens
} target_writer;

static sumi_value write_target_inputs(const target_writer* w, sumi_value latents)
{
    const sumi_prefix_dit* model = w->stream.model;
    sumi_plan* plan = w->stream.plan;
    int32_t items[MAX_EVALUATIONS], row_begin[MAX_EVALUATIONS];
    for (int32_t s = 0; s < w->list->count; s++) {
        items[s] = w->list->evaluations[s].item;
        row_begin[s] = s * w->tokens;
    }
    const sumi_patch_layout layout = {w->job->height, w->job->width, model->channels, 1,
                                      w->list->count, items,         row_begin,       true};
    sumi_value patches =
        sumi_plan_value(plan, "patches", SUMI_ELEMENT_ACTIVATION, w->list->count * w->tokens, model->channels);
    sumi_plan_patchify(plan, latents, &layout, patches);
    return sumi_plan_linear(plan,
                            &(sumi_plan_linear_args){.label = "img_in", .x = patches, .weight = &model->image_in});
}

static void write_target_block(const target_writer* w, int32_t index)
{
    sumi_sequence sequences[MAX_EVALUATIONS];
    for (int32_t i = 0; i < w->list->count; i++) {
        sequences[i] =
            (sumi_sequence){.span = {w->state->kept_rows[w->list->evaluations[i].prompt], {i * w->tokens, w->tokens}},
                            .span_count = 2,
                            .query_spans = 1,
                            .query_first = 1};
    }
    sumi_value qkv = write_qkv(&w->stream, index), attended = attention_output(&w->stream);
    const sumi_attention attention = stream_attention(&w->stream, sequences, w->list->count);
    sumi_plan_attention_into(
        w->stream.plan,
        &(sumi_plan_attention_args){
            .label = "attention", .qkv = qkv, .attention = &attention, .y = attended, .kept = w->state->kept[index]});
    write_rest(&w->stream, index, attended);
}

// Returns velocities from rows after the last block.
static sumi_value write_target_final(const target_writer* w, sumi_value x)
{
    const sumi_prefix_dit* model = w->stream.model;
    sumi_plan* plan = w->stream.plan;
    int32_t items[MAX_EVALUATIONS], row_begin[MAX_EVALUATIONS];
    for (int32_t s = 0; s < w->list->count; s++) {
        items[s] = s;
        row_begin[s] = s * w->tokens;
    }
    sumi_plan_prefix(plan, "%s", "");
    sumi_value z = sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "norm_out",
                                                               .x = x,
                                                               .norm = SUMI_NORM_LAYER,
                                                               .eps = model->eps,
                                                               .scale = {w->state->final_table, 0, true}});
    sumi_value out =
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "proj_out", .x = z, .weight = &model->final_linear});
    const sumi_patch_layout layout = {w->job->height, w->job->width, model->channels, 1,
                                      w->list->count, items,         row_begin,       true};
    return sumi_plan_unpatchify(plan, out, &layout, 1.0f);
}

static sumi_value write_prefix_evaluation(const void* memory, sumi_plan* plan, sumi_denoising* job,
                                          const sumi_evaluation_list* list, sumi_value latents)
{
    const sumi_prefix_dit* model = memory;
    const prefix_state* state = job->state;
    const bool keeps = job->kind == SUMI_EVALUATION_WHOLE, reuses = job->kind == SUMI_EVALUATION_REUSED;
    sumi_block_residuals* residuals = &job->residuals[list->slot];
    SUMI_ASSERT(list->count >= 1 && list->count <= MAX_EVALUATIONS);
    SUMI_ASSERT((!keeps && !reuses) || !job->computes_unused_rows);
    target_writer w = {.job = job,
                       .list = list,
                       .state = state,
                       .stream = {.model = model,
                                  .plan = plan,
                                  .prefix = "",
                                  .rope = state->rope[list->slot],
                                  .modulation = {state->modulation, 0, true}},
                       .tokens = job->height * job->width};
    sumi_plan_prefix(plan, "%s", "");
    const sumi_value x = w.stream.x = write_target_inputs(&w, latents);
    if (keeps) sumi_block_residuals_before_first(plan, residuals, x);
    for (int32_t i = 0; i < model->block_count && (i == 0 || !reuses); i++) {
        write_target_block(&w, i);
        if (!keeps || i > 0) continue;
        const sumi_value reused = sumi_block_residuals_after_first(plan, residuals, x, &job->extrapolation);
        job->reused_velocities = write_target_final(&w, reused);
    }
    if (keeps) sumi_block_residuals_after_last(plan, residuals, x);
    if (reuses) sumi_block_residuals_reuse(plan, residuals, x, &job->extrapolation);
    return write_target_final(&w, x);
}

const sumi_denoiser_module sumi_prefix_dit_module = {.model_bytes = sizeof(sumi_prefix_dit),
                                                     .state_bytes = sizeof(prefix_state),
                                                     .bind = bind_prefix_dit,
                                                     .properties = prefix_dit_properties,
                                                     .write_prepare = write_prefix_prepare,
                                                     .write_layout = write_prefix_layout,
                                                     .write_evaluation = write_prefix_evaluation};
