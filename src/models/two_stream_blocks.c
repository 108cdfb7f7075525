#include "models/two_stream_blocks.h"
#include "base/assert.h"
#include "base/numbers.h"
#include "models/config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TIME_SCALE 1000.0f
#define PERIOD 10000.0 // of the sinusoids of times and positions

// Vectors of a block's modulation: shift, scale, gate of attention, then of the MLP. Scales become 1 + s.
enum { SHIFT_1, SCALE_1, GATE_1, SHIFT_2, SCALE_2, GATE_2, MODULATION_VECTORS };
#define BLOCK_ADDS_ONE (1u << SCALE_1 | 1u << SCALE_2)

// ---- Weights --------------------------------------------------------------------------------------------------------

// Modules of a block, without "transformer_blocks.N.".
typedef struct side_names {
    const char *modulation, *qkv, *q, *k, *v, *q_norm, *k_norm, *out, *mlp_in, *mlp_out;
} side_names;
static const side_names s_sides[2] = {
    [SUMI_TWO_STREAM_IMAGE] = {"img_mod.1", "attn.to_qkv", "attn.to_q", "attn.to_k", "attn.to_v", "attn.norm_q.weight",
                               "attn.norm_k.weight", "attn.to_out.0", "img_mlp.net.0.proj", "img_mlp.net.2"},
    [SUMI_TWO_STREAM_TEXT] = {"txt_mod.1", "attn.add_qkv_proj", "attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj",
                              "attn.norm_added_q.weight", "attn.norm_added_k.weight", "attn.to_add_out",
                              "txt_mlp.net.0.proj", "txt_mlp.net.2"}};

static bool has_module(const sumi_binder* b, const char* block, const char* module)
{
    char name[SUMI_NAME_BYTES];
    snprintf(name, sizeof name, "%s.%s.weight", block, module);
    return sumi_bind_find(b, name) != NULL;
}

static void bind_side(const sumi_two_stream* model, sumi_binder* b, sumi_two_stream_weights* w, const char* block,
                      const side_names* names, bool may_lack_output)
{
    int32_t dim = model->dim;
    char n[4][SUMI_NAME_BYTES];
    sumi_bind_linear(b, &w->modulation, &w->modulation_bias, sumi_bind_join(n[0], block, names->modulation),
                     MODULATION_VECTORS * dim, dim);
    w->modulation.keeps_precision = true;
    const char* qkv[] = {sumi_bind_join(n[0], block, names->q), sumi_bind_join(n[1], block, names->k),
                         sumi_bind_join(n[2], block, names->v)};
    const int32_t rows[] = {dim, dim, dim};
    const sumi_module_stack stack = {sumi_bind_join(n[3], block, names->qkv), qkv, rows, 3};
    sumi_bind_stack(b, &w->qkv, &stack, dim);
    sumi_bind_stacked_bias(b, &w->qkv_bias, &stack);
    sumi_bind_norm(b, &w->q_norm, sumi_bind_join(n[0], block, names->q_norm), model->head_dim);
    sumi_bind_norm(b, &w->k_norm, sumi_bind_join(n[0], block, names->k_norm), model->head_dim);
    // The last block's output of the text stream is not used, and quantised files may lack those weights.
    w->has_output_weights = !may_lack_output
                         || (has_module(b, block, names->out) && has_module(b, block, names->mlp_in)
                             && has_module(b, block, names->mlp_out));
    if (!w->has_output_weights) return;
    sumi_bind_linear(b, &w->out, &w->out_bias, sumi_bind_join(n[0], block, names->out), dim, dim);
    sumi_bind_linear(b, &w->mlp_in, &w->mlp_in_bias, sumi_bind_join(n[0], block, names->mlp_in), model->hidden, dim);
    sumi_bind_linear(b, &w->mlp_out, &w->mlp_out_bias, sumi_bind_join(n[0], block, names->mlp_out), dim, model->hidden);
}

typedef struct config_values {
    int32_t layers, heads, head_dim, features, channels, patch_channels, patch;
    int32_t axes[4], axis_count;
    bool guidance_embeds, zero_cond, additional_t_cond, layer3d_rope;
} config_values;

static void read_two_stream_config(sumi_binder* b, config_values* c, const sumi_module_config* config)
{
    *c = (config_values){.patch = 2};
    const sumi_config_field fields[] = {{"num_layers", SUMI_CONFIG_INTEGER, &c->layers, 0, NULL},
                                        {"num_attention_heads", SUMI_CONFIG_INTEGER, &c->heads, 0, NULL},
                                        {"attention_head_dim", SUMI_CONFIG_INTEGER, &c->head_dim, 0, NULL},
                                        {"joint_attention_dim", SUMI_CONFIG_INTEGER, &c->features, 0, NULL},
                                        {"in_channels", SUMI_CONFIG_INTEGER, &c->patch_channels, 0, NULL},
                                        {"out_channels", SUMI_CONFIG_INTEGER, &c->channels, 0, NULL},
                                        {"patch_size", SUMI_CONFIG_INTEGER, &c->patch, 0, NULL},
                                        {"axes_dims_rope", SUMI_CONFIG_INTEGERS, c->axes, 4, &c->axis_count},
                                        {"guidance_embeds", SUMI_CONFIG_BOOL, &c->guidance_embeds, 0, NULL},
                                        {"zero_cond_t", SUMI_CONFIG_BOOL, &c->zero_cond, 0, NULL},
                                        {"use_additional_t_cond", SUMI_CONFIG_BOOL, &c->additional_t_cond, 0, NULL},
                                        {"use_layer3d_rope", SUMI_CONFIG_BOOL, &c->layer3d_rope, 0, NULL}};
    b->result = sumi_config_read(config, fields, sizeof fields / sizeof *fields, b->error);
    if (c->guidance_embeds) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: guidance_embeds is true, but transformers of this kind that take the guidance as an input "
                       "are not supported; use a checkpoint with guidance_embeds false",
                       config->path);
    }
    if (c->additional_t_cond || c->layer3d_rope
        || sumi_bind_find(b, "time_text_embed.addition_t_embedding.weight") != NULL) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: this is a Layered transformer (use_additional_t_cond, use_layer3d_rope), which is not "
                       "supported; use a checkpoint for text to image or for editing",
                       config->path);
    }
    if (c->patch != 2) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: patch_size is %d; only patches of 2 are supported", config->path,
                       (int)c->patch);
    }
}

// All widths follow from the shapes; the config must agree with them.
static void find_two_stream_sizes(sumi_two_stream* model, sumi_binder* b, const config_values* c, const char* path)
{
    model->dim = sumi_bind_size(b, "img_in.weight", 0);
    int32_t patch = sumi_bind_size(b, "img_in.weight", 1);
    model->channels = patch / 4;
    model->head_dim = sumi_bind_size(b, "transformer_blocks.0.attn.norm_q.weight", 0);
    model->hidden = sumi_bind_size(b, "transformer_blocks.0.img_mlp.net.0.proj.weight", 0);
    model->feature_width = sumi_bind_size(b, "txt_in.weight", 1);
    model->time_hidden = sumi_bind_size(b, "time_text_embed.timestep_embedder.linear_1.weight", 0);
    model->time_width = sumi_bind_size(b, "time_text_embed.timestep_embedder.linear_1.weight", 1);
    if (b->result != SUMI_OK) return;
    model->heads = model->dim / model->head_dim;
    if (patch % 4 != 0 || model->heads * (int64_t)model->head_dim != model->dim || model->time_width % 2 != 0) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: a transformer of width %d cannot have heads of %d, patches of %d values and %d sinusoids",
                       b->component->path, (int)model->dim, (int)model->head_dim, (int)patch, (int)model->time_width);
        return;
    }
    sumi_bind_check(b, path, "num_attention_heads", c->heads, model->heads);
    sumi_bind_check(b, path, "attention_head_dim", c->head_dim, model->head_dim);
    sumi_bind_check(b, path, "in_channels", c->patch_channels, patch);
    sumi_bind_check(b, path, "out_channels", c->channels, model->channels);
    sumi_bind_check(b, path, "joint_attention_dim", c->features, model->feature_width);
    static const int32_t s_shares[3] = {16, 56, 56}; // frame, row and column in the released checkpoints
    sumi_bind_axes(b,
                   &(sumi_axis_split){.config_path = path,
                                      .key = "axes_dims_rope",
                                      .dims = c->axes,
                                      .dim_count = c->axis_count,
                                      .shares = s_shares,
                                      .axis_count = 3,
                                      .head_dim = model->head_dim},
                   model->axis_pairs);
    if (b->result != SUMI_OK) return;
    const int32_t blocks = sumi_bind_count(b, "transformer_blocks.");
    model->block_count = c->layers != 0 ? c->layers : blocks;
    // if there are fewer blocks than the config says, binding reports the missing tensor by its name
    if (c->layers > 0 && blocks > c->layers) sumi_bind_check(b, path, "num_layers", c->layers, blocks);
    if (model->block_count < 1 || model->block_count > SUMI_TWO_STREAM_MAX_BLOCKS) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: %d blocks; 1 to %d are supported", b->component->path,
                       (int)model->block_count, SUMI_TWO_STREAM_MAX_BLOCKS);
    }
}

void sumi_two_stream_bind_sizes(sumi_two_stream* model, sumi_binder* b, const sumi_module_config* config)
{
    config_values c;
    read_two_stream_config(b, &c, config);
    find_two_stream_sizes(model, b, &c, config->path);
    model->zero_cond = c.zero_cond;
}

void sumi_two_stream_bind_inputs(sumi_two_stream* model, sumi_binder* b)
{
    const int32_t dim = model->dim;
    sumi_bind_linear(b, &model->image_in, &model->image_in_bias, "img_in", dim, 4 * model->channels);
    sumi_bind_norm(b, &model->text_norm, "txt_norm.weight", model->feature_width);
    sumi_bind_linear(b, &model->text_in, &model->text_in_bias, "txt_in", dim, model->feature_width);
    sumi_bind_linear(b, &model->time_in, &model->time_in_bias, "time_text_embed.timestep_embedder.linear_1",
                     model->time_hidden, model->time_width);
    sumi_bind_linear(b, &model->time_out, &model->time_out_bias, "time_text_embed.timestep_embedder.linear_2", dim,
                     model->time_hidden);
    sumi_weight* precise[] = {&model->image_in, &model->text_in, &model->time_in, &model->time_out};
    for (size_t i = 0; i < sizeof precise / sizeof *precise; i++) precise[i]->keeps_precision = true;
}

void sumi_two_stream_bind_blocks(sumi_two_stream* model, sumi_binder* b, const char* prefix)
{
    const size_t bytes = (size_t)model->block_count * sizeof *model->blocks;
    model->blocks = b->result == SUMI_OK ? sumi_weight_list_reserve(b->list, bytes) : NULL;
    if (model->blocks == NULL) {
        if (b->result == SUMI_OK) b->result = sumi_out_of_memory(b->error, bytes, "a transformer's blocks");
        return;
    }
    if (model->label == NULL) model->label = "transformer_blocks.";
    for (int32_t i = 0; i < model->block_count; i++) {
        for (int32_t side = 0; side < 2; side++) {
            char block[64];
            snprintf(block, sizeof block, "%s.%d", prefix, (int)i);
            bind_side(model, b, &model->blocks[i].side[side], block, &s_sides[side],
                      side == SUMI_TWO_STREAM_TEXT && i == model->block_count - 1);
        }
    }
}

// ---- What all evaluations share -------------------------------------------------------------------------------------

void sumi_two_stream_write_captions(const sumi_two_stream* model, sumi_plan* plan, const sumi_denoising* job,
                                    sumi_two_stream_state* state)
{
    int32_t rows = 0;
    for (int32_t p = 0; p < job->prompt_count; p++) {
        state->caption_begin[p] = rows;
        rows += job->prompts[p].count[0];
    }
    sumi_plan_prefix(plan, "%s", "");
    state->captions = sumi_plan_value(plan, "captions", SUMI_ELEMENT_ACTIVATION, rows, model->dim);
    for (int32_t p = 0; p < job->prompt_count; p++) {
        const sumi_prompt_features* prompt = &job->prompts[p];
        sumi_value n = sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "txt_norm",
                                                                   .x = prompt->value[0],
                                                                   .x_row = prompt->row[0],
                                                                   .rows = prompt->count[0],
                                                                   .weight = &model->text_norm,
                                                                   .eps = SUMI_TWO_STREAM_EPS});
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "txt_in",
                                                        .x = n,
                                                        .weight = &model->text_in,
                                                        .bias = &model->text_in_bias,
                                                        .y = state->captions,
                                                        .y_row = state->caption_begin[p]});
    }
}

// Writes SiLU(mlp(sinusoids(1000 t))) for all evaluations, followed by time 0.
void sumi_two_stream_write_condition(const sumi_two_stream* model, sumi_plan* plan, const sumi_denoising* job,
                                     sumi_two_stream_state* state)
{
    sumi_plan_prefix(plan, "time_text_embed.");
    sumi_plan_time_args embed = {.times = job->times,
                                 .width = model->time_width,
                                 .scale = TIME_SCALE,
                                 .max_period = (float)PERIOD,
                                 .cos_first = true};
    sumi_value e = sumi_plan_time_embed(plan, &embed);
    if (state->has_zero) {
        const float zero = 0.0f;
        embed.times = sumi_plan_constant(plan, "zero_time", SUMI_ELEMENT_FLOAT, 1, 1, &zero);
        sumi_value at_zero = sumi_plan_time_embed(plan, &embed),
                   embeddings = sumi_plan_value(plan, "time_embed", SUMI_ELEMENT_FLOAT, job->evaluation_count + 1,
                                                model->time_width);
        sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = e, .y = embeddings});
        sumi_plan_copy_rows(plan,
                            &(sumi_plan_copy_args){.x = at_zero, .y = embeddings, .y_row = job->evaluation_count});
        e = embeddings;
    }
    sumi_value hidden = sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "timestep_embedder.linear_1",
                                                                        .x = e,
                                                                        .weight = &model->time_in,
                                                                        .bias = &model->time_in_bias,
                                                                        .activation = SUMI_ACT_SILU});
    sumi_value c = sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "timestep_embedder.linear_2",
                                                                   .x = hidden,
                                                                   .weight = &model->time_out,
                                                                   .bias = &model->time_out_bias});
    state->condition = sumi_plan_activate(plan, c, SUMI_ACT_SILU);
}

// Rows of the condition through a modulation layer, as a table of this element.
sumi_value sumi_two_stream_write_layer(sumi_plan* plan, sumi_element element, sumi_plan_linear_args layer)
{
    layer.y = sumi_plan_value(plan, "modulation", element, layer.rows, layer.weight->rows);
    sumi_plan_linear(plan, &layer);
    return layer.y;
}

// the others, which reads its weights once.
void sumi_two_stream_write_tables(const sumi_two_stream* model, sumi_plan* plan, const sumi_denoising* job,
                                  sumi_two_stream_state* state)
{
    const int32_t count = job->evaluation_count;
    const uint64_t elements =
        (uint64_t)model->block_count * 2 * MODULATION_VECTORS * (uint64_t)model->dim * (uint64_t)count;
    state->has_tables = elements * (uint64_t)plan->activation_bytes <= model->table_bytes;
    state->has_float_tables = elements * sizeof(float) <= model->table_bytes;
    for (int32_t i = 0; i < model->block_count; i++) {
        sumi_plan_prefix(plan, "%s%d.", model->label, (int)i);
        for (int32_t side = 0; side < 2; side++) {
            const sumi_two_stream_weights* w = &model->blocks[i].side[side];
            bool has_zero = state->has_zero && side == SUMI_TWO_STREAM_IMAGE;
            sumi_span rows = {0, count + (has_zero ? 1 : 0)};
            if (!state->has_tables) { rows = (sumi_span){count, has_zero ? 1 : 0}; }
            if (rows.count == 0) continue;
            sumi_value table = sumi_two_stream_write_layer(plan, SUMI_ELEMENT_ACTIVATION,
                                                           (sumi_plan_linear_args){.label = s_sides[side].modulation,
                                                                                   .x = state->condition,
                                                                                   .x_row = rows.begin,
                                                                                   .rows = rows.count,
                                                                                   .weight = &w->modulation,
                                                                                   .bias = &w->modulation_bias});
            if (state->has_tables) state->tables[i][side] = table;
            if (state->has_float_tables) {
                state->tables[i][side] = sumi_plan_modulation(
                    plan, &(sumi_plan_modulation_args){.label = side == SUMI_TWO_STREAM_IMAGE ? "img_mod" : "txt_mod",
                                                       .table = table,
                                                       .vector_count = MODULATION_VECTORS,
                                                       .adds_one = BLOCK_ADDS_ONE,
                                                       .rows = count,
                                                       .element = SUMI_ELEMENT_FLOAT});
            }
            if (has_zero) {
                state->zero[i] =
                    sumi_plan_modulation(plan, &(sumi_plan_modulation_args){.label = "img_mod.zero",
                                                                            .table = table,
                                                                            .vector_count = MODULATION_VECTORS,
                                                                            .adds_one = BLOCK_ADDS_ONE,
                                                                            .rows = 1,
                                                                            .x_row = rows.count - 1,
                                                                            .element = SUMI_ELEMENT_FLOAT});
            }
        }
    }
}

// ---- Positions of the rows of an evaluation list --------------------------------------------------------------------

// Writes frame, row and column, counted from the middle of the picture; an odd side has one more before the middle than
// after it.
static void fill_picture_positions(int32_t* position, int32_t frame, int32_t height, int32_t width)
{
    for (int32_t i = 0; i < height * width; i++, position += 3) {
        position[0] = frame;
        position[1] = i / width - (height - height / 2);
        position[2] = i % width - (width - width / 2);
    }
}

// The position of the first text token, the same on all axes: after the largest position of all pictures.
int32_t sumi_two_stream_text_position(const sumi_denoising* job)
{
    int32_t max_position = sumi_max_int(job->height, job->width) / 2 / 2;
    for (int32_t i = 0; i < job->reference_count; i++) {
        max_position =
            sumi_max_int(max_position, sumi_max_int(job->references[i].height, job->references[i].width) / 2 / 2);
    }
    return max_position;
}
sumi_value sumi_two_stream_write_rope(const sumi_two_stream* model, sumi_plan* plan, const sumi_denoising* job,
                                      const sumi_evaluation_list* list, int32_t text_position)
{
    sumi_joint_rows l;
    sumi_joint_rows_lay_out(job, list, 2, &l);
    size_t bytes = (size_t)l.rows * 3 * sizeof(int32_t);
    int32_t* positions = plan->error.result == SUMI_OK ? sumi_alloc_zero(plan->heap, bytes) : NULL;
    if (positions == NULL) {
        sumi_out_of_memory(&plan->error, bytes, "token positions");
        return SUMI_NO_VALUE;
    }
    for (int32_t s = 0; s < l.count; s++) {
        fill_picture_positions(positions + 3 * (size_t)(s * l.tokens), 0, l.height, l.width);
        int32_t* position = positions + 3 * (size_t)l.reference_begin[s];
        for (int32_t i = 0; i < job->reference_count; i++) {
            int32_t height = job->references[i].height / 2, width = job->references[i].width / 2;
            fill_picture_positions(position, 1 + i, height, width);
            position += 3 * (size_t)(height * width);
        }
        position = positions + 3 * (size_t)l.text_begin[s];
        for (int32_t i = 0; i < l.text[s]; i++, position += 3)
            position[0] = position[1] = position[2] = text_position + i;
    }
    sumi_plan_prefix(plan, "%s", "");
    sumi_value value = sumi_plan_constant(plan, "positions", SUMI_ELEMENT_INT, l.rows, 3, positions);
    sumi_plan_rope_args rope = {.positions = value, .axes = 3, .theta = PERIOD};
    memcpy(rope.pairs, model->axis_pairs, sizeof model->axis_pairs);
    const sumi_value table = sumi_plan_rope_table(plan, &rope);
    sumi_free(plan->heap, positions);
    return table;
}
// ---- One evaluation -------------------------------------------------------------------------------------------------

struct sumi_two_stream_names {
    const char *modulation, *norm_1, *qkv, *qk, *out, *norm_2, *mlp_in, *mlp_out;
};
static const sumi_two_stream_names s_image = {"img_mod",       "img_norm1", "attn.to_qkv",        "attn.qk_norm_rope",
                                              "attn.to_out.0", "img_norm2", "img_mlp.net.0.proj", "img_mlp.net.2"};
static const sumi_two_stream_names s_text = {
    "txt_mod",         "txt_norm1", "attn.add_qkv_proj",  "attn.added_qk_norm_rope",
    "attn.to_add_out", "txt_norm2", "txt_mlp.net.0.proj", "txt_mlp.net.2"};
static const sumi_two_stream_names s_references = {
    "ref_mod",           "ref_norm1", "attn.ref_to_qkv",    "attn.ref_qk_norm_rope",
    "attn.ref_to_out.0", "ref_norm2", "ref_mlp.net.0.proj", "ref_mlp.net.2"};

static void add_run(sumi_two_stream_rows* s, int32_t joint_row, int32_t rows)
{
    sumi_two_stream_run* before = s->run_count > 0 ? &s->runs[s->run_count - 1] : NULL;
    if (before != NULL && before->joint_row + before->rows == joint_row) {
        before->rows += rows;
    } else {
        SUMI_ASSERT(s->run_count < SUMI_MAX_JOINT_EVALUATIONS);
        s->runs[s->run_count++] = (sumi_two_stream_run){s->rows, joint_row, rows};
    }
    s->rows += rows;
}

// Computes the rows of the streams and their positions in the joint matrix.
void sumi_two_stream_begin(sumi_two_stream_evaluation* e)
{
    const sumi_joint_rows* l = &e->layout;
    bool every_row = e->job->computes_unused_rows, has_reference_stream = e->state->has_zero && l->reference_rows > 0;
    sumi_two_stream_rows *image = &e->streams[0], *text = &e->streams[1],
                         *references = has_reference_stream ? &e->streams[2] : image;
    *image = (sumi_two_stream_rows){.names = &s_image, .side = SUMI_TWO_STREAM_IMAGE};
    *text = (sumi_two_stream_rows){.names = &s_text, .side = SUMI_TWO_STREAM_TEXT};
    e->stream_count = has_reference_stream ? 3 : 2;
    if (has_reference_stream) { *references = (sumi_two_stream_rows){.names = &s_references, .is_at_zero = true}; }
    add_run(image, 0, l->count * l->tokens);
    for (int32_t i = 0; i < l->count; i++) {
        const int32_t s = l->order[i];
        if (l->reference_rows > 0) add_run(references, l->reference_begin[s], l->reference_rows);
        add_run(text, l->text_begin[s], l->text[s]);
        e->sequences[s] = sumi_joint_rows_sequence(l, s);
    }
    image->last_block_rows = every_row ? image->rows : l->count * l->tokens;
    text->last_block_rows =
        every_row && e->model->blocks[e->model->block_count - 1].side[SUMI_TWO_STREAM_TEXT].has_output_weights
            ? text->rows
            : 0;
    references->last_block_rows = has_reference_stream && every_row ? references->rows : references->last_block_rows;
    for (int32_t k = 0; k < e->stream_count; k++) {
        sumi_two_stream_rows* s = &e->streams[k];
        s->x = sumi_plan_value(e->plan, "stream", SUMI_ELEMENT_ACTIVATION, s->rows, e->model->dim);
        sumi_span all_columns = {0, e->model->dim};
        for (int32_t i = 0; i < s->run_count; i++) {
            s->views[i] = s->x;
            if (s->run_count > 1) {
                s->views[i] =
                    sumi_plan_view(e->plan, "rows", s->x, (sumi_span){s->runs[i].row, s->runs[i].rows}, all_columns);
            }
        }
        s->last_view = s->x;
        if (s->last_block_rows > 0 && s->last_block_rows < s->rows) {
            s->last_view = sumi_plan_view(e->plan, "targets", s->x, (sumi_span){0, s->last_block_rows}, all_columns);
        }
    }
    if (e->state->has_tables) return;
    sumi_plan_prefix(e->plan, "time_text_embed.");
    e->condition = sumi_plan_modulation(
        e->plan,
        &(sumi_plan_modulation_args){.label = "row", .table = e->state->condition, .rows = 1, .per_step = true});
}

// A plan lets no two views of one value overlap, so this is the view that the last block changes, if there is one.
sumi_value sumi_two_stream_targets(const sumi_two_stream_evaluation* e)
{
    const sumi_two_stream_rows* image = &e->streams[0];
    const int32_t targets = e->layout.count * e->layout.tokens;
    if (image->rows == targets) return image->x;
    if (image->last_block_rows == targets) return image->last_view;
    return sumi_plan_view(e->plan, "targets", image->x, (sumi_span){0, targets}, (sumi_span){0, e->model->dim});
}

void sumi_two_stream_write_texts(sumi_two_stream_evaluation* e, const sumi_two_stream_state* captions)
{
    const sumi_joint_rows* l = &e->layout;
    for (int32_t i = 0, row = 0; i < l->count; row += l->text[l->order[i++]]) {
        const int32_t s = l->order[i], prompt = e->list->evaluations[s].prompt;
        sumi_plan_copy_rows(e->plan, &(sumi_plan_copy_args){.x = captions->captions,
                                                            .x_row = captions->caption_begin[prompt],
                                                            .y = e->streams[1].x,
                                                            .y_row = row,
                                                            .rows = l->text[s]});
    }
}

sumi_step_row sumi_two_stream_write_modulation(const sumi_two_stream_evaluation* e, sumi_plan_modulation_args* args,
                                               const sumi_weight* weight, const sumi_weight* bias)
{
    if (e->state->has_float_tables) { return (sumi_step_row){args->table, 0, true}; }
    args->element = SUMI_ELEMENT_FLOAT;
    args->rows = 1;
    args->per_step = true;
    if (args->table.id == 0) {
        args->table = sumi_two_stream_write_layer(
            e->plan, SUMI_ELEMENT_FLOAT,
            (sumi_plan_linear_args){
                .label = args->label, .x = e->condition, .rows = 1, .weight = weight, .bias = bias});
        args->rows = 0;
        args->per_step = false;
    }
    return (sumi_step_row){sumi_plan_modulation(e->plan, args), 0, false};
}

sumi_step_row sumi_two_stream_vector(sumi_step_row row, int32_t vector, int32_t vector_cols)
{
    return (sumi_step_row){row.table, vector * vector_cols, row.per_step};
}

// A stream in one block, whose weights and modulation it goes through.
typedef struct block_stream {
    const sumi_two_stream_rows* s;
    const sumi_two_stream_weights* weights;
    sumi_step_row row;
} block_stream;

// The norm of a stream before attention, or before its MLP.
static sumi_value write_stream_norm(const sumi_two_stream_evaluation* e, const block_stream* b, sumi_value x,
                                    bool is_second)
{
    const int32_t dim = e->model->dim;
    return sumi_plan_norm(
        e->plan, &(sumi_plan_norm_args){.label = is_second ? b->s->names->norm_2 : b->s->names->norm_1,
                                        .x = x,
                                        .norm = SUMI_NORM_LAYER,
                                        .eps = SUMI_TWO_STREAM_EPS,
                                        .scale = sumi_two_stream_vector(b->row, is_second ? SCALE_2 : SCALE_1, dim),
                                        .shift = sumi_two_stream_vector(b->row, is_second ? SHIFT_2 : SHIFT_1, dim)});
}

// Writes q, k and v of a stream's rows to the joint matrix. a: its first norm.
static void write_qkv(const sumi_two_stream_evaluation* e, const block_stream* b, sumi_value a, sumi_value qkv)
{
    const sumi_two_stream_rows* s = b->s;
    for (int32_t i = 0; i < s->run_count; i++) {
        sumi_plan_linear(e->plan, &(sumi_plan_linear_args){.label = s->names->qkv,
                                                           .x = a,
                                                           .x_row = s->runs[i].row,
                                                           .rows = s->runs[i].rows,
                                                           .weight = &b->weights->qkv,
                                                           .bias = &b->weights->qkv_bias,
                                                           .y = qkv,
                                                           .y_row = s->runs[i].joint_row});
    }
}

static void write_qk_norms(const sumi_two_stream_evaluation* e, const block_stream* b, sumi_value qkv)
{
    const sumi_two_stream_rows* s = b->s;
    const sumi_two_stream* model = e->model;
    for (int32_t i = 0; i < s->run_count; i++) {
        sumi_plan_qk_norm_rope(e->plan, &(sumi_plan_qk_args){.label = s->names->qk,
                                                             .qkv = qkv,
                                                             .row = s->runs[i].joint_row,
                                                             .rows = s->runs[i].rows,
                                                             .q_heads = model->heads,
                                                             .kv_heads = model->heads,
                                                             .dim = model->head_dim,
                                                             .q_norm = &b->weights->q_norm,
                                                             .k_norm = &b->weights->k_norm,
                                                             .eps = SUMI_TWO_STREAM_EPS,
                                                             .rotary = SUMI_ROTARY_INTERLEAVED,
                                                             .rope = e->rope,
                                                             .rope_row = s->runs[i].joint_row});
    }
}

// Adds the output of attention to the rows of a run: x += gate * linear(o).
static void write_out(const sumi_two_stream_evaluation* e, const block_stream* b, sumi_value attention,
                      const sumi_two_stream_run* of, sumi_value into)
{
    sumi_value o = sumi_plan_view(e->plan, "attended", attention, (sumi_span){of->joint_row, of->rows},
                                  (sumi_span){0, e->model->dim});
    sumi_plan_linear(e->plan, &(sumi_plan_linear_args){.label = b->s->names->out,
                                                       .x = o,
                                                       .weight = &b->weights->out,
                                                       .bias = &b->weights->out_bias,
                                                       .residual = into,
                                                       .gate = sumi_two_stream_vector(b->row, GATE_1, e->model->dim)});
}

// The rows of a stream that a block changes: all, or in the last block the first ones.
static sumi_value changed_rows(const sumi_two_stream_rows* s, bool is_last)
{
    return is_last && s->last_block_rows < s->rows ? s->last_view : s->x;
}

static void write_outs(const sumi_two_stream_evaluation* e, const block_stream* b, sumi_value attention, bool is_last)
{
    const sumi_two_stream_rows* s = b->s;
    if (is_last && s->last_block_rows < s->rows) {
        const sumi_two_stream_run first = {0, s->runs[0].joint_row, s->last_block_rows};
        write_out(e, b, attention, &first, s->last_view);
        return;
    }
    for (int32_t i = 0; i < s->run_count; i++) write_out(e, b, attention, &s->runs[i], s->views[i]);
}

// Writes what follows attention, for one or two streams. Two take turns, so that products with weights of one shape follow
// each other: in int8 a GPU computes both at once, and the rows of the text then take hardly any time.
static void write_after_attention(const sumi_two_stream_evaluation* e, const block_stream* streams, int32_t count,
                                  sumi_value attention, bool is_last)
{
    sumi_value normed[2], hidden[2];
    SUMI_ASSERT(count == 1 || count == 2);
    for (int32_t k = 0; k < count; k++) write_outs(e, &streams[k], attention, is_last);
    for (int32_t k = 0; k < count; k++)
        normed[k] = write_stream_norm(e, &streams[k], changed_rows(streams[k].s, is_last), true);
    for (int32_t k = 0; k < count; k++) {
        hidden[k] = sumi_plan_linear(e->plan, &(sumi_plan_linear_args){.label = streams[k].s->names->mlp_in,
                                                                       .x = normed[k],
                                                                       .weight = &streams[k].weights->mlp_in,
                                                                       .bias = &streams[k].weights->mlp_in_bias,
                                                                       .activation = SUMI_ACT_GELU_TANH});
    }
    for (int32_t k = 0; k < count; k++) {
        const block_stream* b = &streams[k];
        sumi_plan_linear(e->plan,
                         &(sumi_plan_linear_args){.label = b->s->names->mlp_out,
                                                  .x = hidden[k],
                                                  .weight = &b->weights->mlp_out,
                                                  .bias = &b->weights->mlp_out_bias,
                                                  .residual = changed_rows(b->s, is_last),
                                                  .gate = sumi_two_stream_vector(b->row, GATE_2, e->model->dim)});
    }
}

// References that are modulated by time 0 have the same q, k and v in the first block of every evaluation. They are
// computed again: 0.12 % of an evaluation of 1024 x 1024 pixels with one reference, while keeping them takes 75 MB and
// a copy into qkv.
//
// In the last block only the targets have queries in attention. q of the text is computed there too: leaving it out
// would save a 3000th of an evaluation of 1024 x 1024 pixels with 512 text tokens.
void sumi_two_stream_write_block(sumi_two_stream_evaluation* e, int32_t index, bool is_last)
{
    const sumi_two_stream* model = e->model;
    const sumi_two_stream_block* block = &model->blocks[index];
    sumi_plan_prefix(e->plan, "%s%d.", model->label, (int)index);
    sumi_value qkv = sumi_plan_value(e->plan, "qkv", SUMI_ELEMENT_ACTIVATION, e->layout.rows, 3 * model->dim);
    block_stream streams[3];
    sumi_value normed[3];
    for (int32_t k = 0; k < e->stream_count; k++) {
        const sumi_two_stream_rows* s = &e->streams[k];
        const sumi_two_stream_weights* weights = &block->side[s->side];
        const sumi_step_row row = s->is_at_zero
                                    ? (sumi_step_row){e->state->zero[index], 0, false}
                                    : sumi_two_stream_write_modulation(
                                        e,
                                        &(sumi_plan_modulation_args){.label = s->names->modulation,
                                                                     .table = e->state->tables[index][s->side],
                                                                     .vector_count = MODULATION_VECTORS,
                                                                     .adds_one = BLOCK_ADDS_ONE},
                                        &weights->modulation, &weights->modulation_bias);
        streams[k] = (block_stream){s, weights, row};
        normed[k] = write_stream_norm(e, &streams[k], s->x, false);
    }
    for (int32_t k = 0; k < e->stream_count; k++) write_qkv(e, &streams[k], normed[k], qkv);
    for (int32_t k = 0; k < e->stream_count; k++) write_qk_norms(e, &streams[k], qkv);
    for (int32_t s = 0; s < e->layout.count; s++)
        e->sequences[s].query_spans = is_last && !e->job->computes_unused_rows ? 1 : 2;
    sumi_value o = sumi_plan_attention(e->plan, "attention", qkv,
                                       &(sumi_attention){.q_heads = model->heads,
                                                         .kv_heads = model->heads,
                                                         .dim = model->head_dim,
                                                         .scale = (float)(1.0 / sqrt((double)model->head_dim)),
                                                         .sequences = e->sequences,
                                                         .sequence_count = e->layout.count});
    int32_t count = 0; // streams that this block changes
    for (int32_t k = 0; k < e->stream_count; k++) {
        if (!is_last || e->streams[k].last_block_rows > 0) streams[count++] = streams[k];
    }
    for (int32_t k = 0; k < count; k += 2) write_after_attention(e, &streams[k], count - k < 2 ? 1 : 2, o, is_last);
}
