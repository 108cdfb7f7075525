// The transformer of Z-Image and NewBie-image: Next-DiT (Lumina-Next, Zhuo et al. 2024; Lumina-Image 2.0), in one
// stream.
//
//   latents --2x2 patches, x_embedder--> image rows --noise_refiner--------------+
//   prompt features --norm, cap_embedder--> caption rows --context_refiner--+    |
//                                                                           v    v
//   x: [image rows of all entries | caption rows of all entries] --layers--> image rows --final_layer--> prediction
//
//   noise level --time MLP--> condition (NewBie-image: with the pooled row of the second text encoder)
//   condition --one linear layer for each block--> modulation table: scales and gates of its norms
//
// A caption is the features of one prompt, and an entry is one pass through the network: an item of the batch with one
// of its prompts (sumi_evaluation). The context refiner and the tables depend on no latents, so they are computed once,
// for all evaluations of the job (write_dit_prepare); the rest once for each evaluation (write_dit_evaluation). Rows of
// x have positions on three rotary axes (frame, row, column): caption token i is frame first_frame + i, and all tokens
// of the image are in the frame after the caption's last.
#include "models/next_dit.h"
#include "base/assert.h"
#include "models/config.h"
#include "models/control_module.h"
#include "models/next_dit_blocks.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TIME_PERIOD 10000.0f
#define FINAL_EPS 1e-6f // epsilon of the final layer norm, a constant of the reference and not of its config

// ---- Weights --------------------------------------------------------------------------------------------------------

typedef struct config_values {
    int32_t dim, heads, kv_heads, layers, refiners, channels, features, pooled, patch;
    int32_t axes[4], axis_count, patches[4], patch_count;
    bool qk_norm;
    double eps, theta, time_scale;
} config_values;

static void read_dit_config(const sumi_next_dit_settings* settings, sumi_binder* binder, config_values* values,
                            const sumi_module_config* config)
{
    *values = (config_values){
        .patch = 2, .qk_norm = true, .eps = 1e-5, .theta = settings->theta, .time_scale = settings->time_scale};
    const sumi_config_field fields[] = {
        {"dim", SUMI_CONFIG_INTEGER, &values->dim, 0, NULL},
        {"n_heads", SUMI_CONFIG_INTEGER, &values->heads, 0, NULL},
        {"n_kv_heads", SUMI_CONFIG_INTEGER, &values->kv_heads, 0, NULL},
        {"n_layers", SUMI_CONFIG_INTEGER, &values->layers, 0, NULL},
        {"n_refiner_layers", SUMI_CONFIG_INTEGER, &values->refiners, 0, NULL},
        {"in_channels", SUMI_CONFIG_INTEGER, &values->channels, 0, NULL},
        {"cap_feat_dim", SUMI_CONFIG_INTEGER, &values->features, 0, NULL},
        {"clip_text_dim", SUMI_CONFIG_INTEGER, &values->pooled, 0, NULL},
        {"patch_size", SUMI_CONFIG_INTEGER, &values->patch, 0, NULL},
        {"axes_dims", SUMI_CONFIG_INTEGERS, values->axes, 4, &values->axis_count},
        // the names of diffusers' Lumina 2
        {"hidden_size", SUMI_CONFIG_INTEGER, &values->dim, 0, NULL},
        {"num_attention_heads", SUMI_CONFIG_INTEGER, &values->heads, 0, NULL},
        {"num_kv_heads", SUMI_CONFIG_INTEGER, &values->kv_heads, 0, NULL},
        {"num_layers", SUMI_CONFIG_INTEGER, &values->layers, 0, NULL},
        {"num_refiner_layers", SUMI_CONFIG_INTEGER, &values->refiners, 0, NULL},
        {"axes_dim_rope", SUMI_CONFIG_INTEGERS, values->axes, 4, &values->axis_count},
        {"all_patch_size", SUMI_CONFIG_INTEGERS, values->patches, 4, &values->patch_count},
        {"qk_norm", SUMI_CONFIG_BOOL, &values->qk_norm, 0, NULL},
        {"norm_eps", SUMI_CONFIG_NUMBER, &values->eps, 0, NULL},
        {"rope_theta", SUMI_CONFIG_NUMBER, &values->theta, 0, NULL},
        {"t_scale", SUMI_CONFIG_NUMBER, &values->time_scale, 0, NULL}};
    binder->result = sumi_config_read(config, fields, sizeof fields / sizeof *fields, binder->error);
    if (!values->qk_norm || values->patch != 2
        || (values->patch_count != 0 && (values->patch_count != 1 || values->patches[0] != 2)) || !(values->eps > 0)
        || !(values->theta > 1) || !(values->time_scale > 0)) {
        sumi_bind_fail(
            binder, SUMI_NOT_SUPPORTED,
            "%s: only %s transformers with patches of 2, QK norm, theta above 1 and positive eps and t_scale "
            "are supported",
            config->path, settings->name);
    }
}

// Widths follow from the shapes of tensors, and the config must agree with them. Numbers of heads are the config's, if
// it has them: binding q, k and v then compares the shapes.
static void find_dit_sizes(sumi_next_dit* model, sumi_binder* binder, const config_values* values,
                           const char* config_path)
{
    char name[SUMI_NAME_BYTES];
    sumi_bind_join(name, model->settings->x_embedder, "weight");
    model->dim = sumi_bind_size(binder, name, 0);
    int32_t patch = sumi_bind_size(binder, name, 1);
    model->channels = patch / 4;
    model->head_dim = sumi_bind_size(binder, "layers.0.attention.norm_q.weight", 0);
    model->feature_width = sumi_bind_size(binder, "cap_embedder.1.weight", 1);
    model->hidden = sumi_bind_size(binder, "layers.0.feed_forward.w1.weight", 0);
    model->time_hidden = sumi_bind_size(binder, "t_embedder.mlp.0.weight", 0);
    model->time_width = sumi_bind_size(binder, "t_embedder.mlp.0.weight", 1);
    model->condition_width = sumi_bind_size(binder, "t_embedder.mlp.2.weight", 0);
    if (model->settings->reads_pooled) {
        model->pooled_hidden = sumi_bind_size(binder, "clip_text_pooled_proj.1.weight", 0);
        model->pooled_width = sumi_bind_size(binder, "clip_text_pooled_proj.1.weight", 1);
    }
    const bool is_fused = sumi_bind_find(binder, "layers.0.attention.qkv.weight") != NULL;
    const int32_t projected = is_fused ? sumi_bind_size(binder, "layers.0.attention.qkv.weight", 0)
                                       : sumi_bind_size(binder, "layers.0.attention.to_k.weight", 0);
    if (binder->result != SUMI_OK) return;
    model->heads = values->heads != 0 ? values->heads : model->dim / model->head_dim;
    const int32_t kv_rows = is_fused ? (projected - model->dim) / 2 : projected;
    model->kv_heads = values->kv_heads != 0 ? values->kv_heads : kv_rows / model->head_dim;
    sumi_bind_check(binder, config_path, "dim", values->dim, model->dim);
    sumi_bind_check(binder, config_path, "in_channels", values->channels, model->channels);
    sumi_bind_check(binder, config_path, "cap_feat_dim", values->features, model->feature_width);
    if (model->settings->reads_pooled)
        sumi_bind_check(binder, config_path, "clip_text_dim", values->pooled, model->pooled_width);
    if (patch % 4 != 0 || model->heads < 1 || model->heads > model->dim
        || model->heads * (int64_t)model->head_dim != model->dim || model->kv_heads < 1
        || model->kv_heads > model->heads || model->heads % model->kv_heads != 0 || model->time_width % 2 != 0) {
        sumi_bind_fail(binder, SUMI_TENSOR_MISMATCH,
                       "%s: a transformer of width %d cannot have %d heads of %d, %d of keys, patches of %d values and "
                       "times of width %d",
                       binder->component->path, (int)model->dim, (int)model->heads, (int)model->head_dim,
                       (int)model->kv_heads, (int)patch, (int)model->time_width);
        return;
    }
    sumi_bind_axes(binder,
                   &(sumi_axis_split){.config_path = config_path,
                                      .key = "axes_dims",
                                      .dims = values->axes,
                                      .dim_count = values->axis_count,
                                      .shares = model->settings->axes,
                                      .axis_count = 3,
                                      .head_dim = model->head_dim},
                   model->axis_pairs);
    if (binder->result != SUMI_OK) return;
    model->eps = (float)values->eps;
    model->qk_eps = model->settings->qk_eps > 0 ? model->settings->qk_eps : model->eps;
    model->theta = values->theta;
    model->time_scale = values->time_scale;
    const int32_t layers = sumi_bind_count(binder, "layers."), refiners = sumi_bind_count(binder, "noise_refiner.");
    model->layer_count = values->layers != 0 ? values->layers : layers;
    model->refiner_count = values->refiners != 0 ? values->refiners : refiners;
    // if there are fewer layers than the config says, binding reports the missing tensor by its name
    if (values->layers > 0 && layers > values->layers)
        sumi_bind_check(binder, config_path, "n_layers", values->layers, layers);
    if (values->refiners > 0 && refiners > values->refiners)
        sumi_bind_check(binder, config_path, "n_refiner_layers", values->refiners, refiners);
    if (model->layer_count < 1 || model->refiner_count < 0
        || model->layer_count > SUMI_NEXT_DIT_MAX_BLOCKS - 2 * (int64_t)model->refiner_count) {
        sumi_bind_fail(binder, SUMI_NOT_SUPPORTED,
                       "%s: %d layers and %d refiner layers; at least one layer and at most %d blocks are supported",
                       binder->component->path, (int)model->layer_count, (int)model->refiner_count,
                       SUMI_NEXT_DIT_MAX_BLOCKS);
    }
}

static sumi_result bind_dit_model(void* memory, const void* settings, sumi_binder* binder,
                                  const sumi_module_config* config)
{
    sumi_next_dit* model = memory;
    model->settings = settings;
    binder->alias = sumi_dit_alias;
    config_values values;
    read_dit_config(settings, binder, &values, config);
    find_dit_sizes(model, binder, &values, config->path);
    if (binder->result != SUMI_OK) return binder->result;
    size_t count = (size_t)(model->layer_count + 2 * model->refiner_count);
    sumi_next_dit_block* blocks = sumi_weight_list_reserve(binder->list, count * sizeof *blocks);
    if (blocks == NULL)
        return binder->result = sumi_out_of_memory(binder->error, count * sizeof *blocks, "the transformer's blocks");
    model->layers = blocks;
    model->noise_refiner = blocks + model->layer_count;
    model->context_refiner = model->noise_refiner + model->refiner_count;

    const int32_t dim = model->dim, patch = 4 * model->channels, condition = model->condition_width;
    char name[SUMI_NAME_BYTES];
    sumi_bind_linear(binder, &model->x_embedder, &model->x_embedder_bias, model->settings->x_embedder, dim, patch);
    sumi_bind_linear(binder, &model->time_in, &model->time_in_bias, "t_embedder.mlp.0", model->time_hidden,
                     model->time_width);
    sumi_bind_linear(binder, &model->time_out, &model->time_out_bias, "t_embedder.mlp.2", condition,
                     model->time_hidden);
    sumi_bind_norm(binder, &model->caption_norm, "cap_embedder.0.weight", model->feature_width);
    sumi_bind_linear(binder, &model->caption_embedder, &model->caption_embedder_bias, "cap_embedder.1", dim,
                     model->feature_width);
    if (model->settings->reads_pooled) {
        sumi_bind_norm(binder, &model->pooled_norm, "clip_text_pooled_proj.0.weight", model->pooled_width);
        sumi_bind_linear(binder, &model->pooled_embedder, &model->pooled_embedder_bias, "clip_text_pooled_proj.1",
                         model->pooled_hidden, model->pooled_width);
        sumi_bind_linear(binder, &model->fusion, &model->fusion_bias, "time_text_embed.1", condition,
                         condition + model->pooled_hidden);
    }
    if (model->settings->pad_multiple > 1) {
        sumi_bind_vector(binder, &model->x_pad, "x_pad_token", dim);
        sumi_bind_vector(binder, &model->caption_pad, "cap_pad_token", dim);
    }
    sumi_bind_linear(binder, &model->final_modulation, &model->final_modulation_bias,
                     sumi_bind_join(name, model->settings->final_layer, "adaLN_modulation.1"), dim, condition);
    sumi_bind_linear(binder, &model->final_linear, &model->final_linear_bias,
                     sumi_bind_join(name, model->settings->final_layer, "linear"), patch, dim);
    int32_t table_index = 0;
    for (int32_t i = 0; i < model->refiner_count; i++) {
        snprintf(name, sizeof name, "noise_refiner.%d", (int)i);
        sumi_dit_bind_block(model, binder, &model->noise_refiner[i], name, table_index++);
        snprintf(name, sizeof name, "context_refiner.%d", (int)i);
        sumi_dit_bind_block(model, binder, &model->context_refiner[i], name, -1);
    }
    for (int32_t i = 0; i < model->layer_count; i++) {
        snprintf(name, sizeof name, "layers.%d", (int)i);
        sumi_dit_bind_block(model, binder, &model->layers[i], name, table_index++);
    }
    sumi_weight* precise[] = {&model->x_embedder,       &model->time_in,         &model->time_out,
                              &model->caption_embedder, &model->pooled_embedder, &model->fusion,
                              &model->final_modulation, &model->final_linear};
    for (size_t i = 0; i < sizeof precise / sizeof *precise; i++) precise[i]->keeps_precision = true;
    for (size_t i = 0; i < count; i++) blocks[i].modulation.keeps_precision = true;
    return binder->result;
}

static sumi_denoiser_properties dit_properties(const void* memory)
{
    const sumi_next_dit* model = memory;
    return (sumi_denoiser_properties){.channels = model->channels,
                                      .patch = 2,
                                      .stream_width = model->dim,
                                      .feature_width = {model->feature_width, model->pooled_width},
                                      .reads_pooled = {false, model->settings->reads_pooled}};
}

// ---- Forward --------------------------------------------------------------------------------------------------------

// The rotary table for rows at these positions, three numbers each.
static sumi_value write_dit_rope(const sumi_next_dit* model, sumi_plan* plan, const int32_t* positions, int32_t rows)
{
    sumi_value value = sumi_plan_constant(plan, "positions", SUMI_ELEMENT_INT, rows, 3, positions);
    sumi_plan_rope_args args = {.positions = value, .axes = 3, .theta = model->theta};
    memcpy(args.pairs, model->axis_pairs, sizeof model->axis_pairs);
    return sumi_plan_rope_table(plan, &args);
}

// Allocates 3 * rows numbers, all 0; the caller frees them. NULL: the plan has failed, now or before.
static int32_t* take_positions(sumi_plan* plan, int32_t rows)
{
    int32_t* positions =
        plan->error.result == SUMI_OK ? sumi_alloc_zero(plan->heap, (size_t)rows * 3 * sizeof *positions) : NULL;
    if (positions == NULL) sumi_out_of_memory(&plan->error, (size_t)rows * 3 * sizeof *positions, "token positions");
    return positions;
}

// Each row of a caption, pads included, has its own frame, and row and column 0.
static void fill_caption_positions(const sumi_next_dit* model, int32_t* positions, int32_t rows)
{
    for (int32_t i = 0; i < rows; i++) positions[3 * i] = model->settings->first_frame + i;
}

static void write_dit_captions(const sumi_next_dit* model, sumi_plan* plan, sumi_denoising* job)
{
    sumi_next_dit_state* state = job->state;
    sumi_span pads[SUMI_MAX_PROMPTS];
    sumi_sequence sequences[SUMI_MAX_PROMPTS];
    int32_t rows = 0, pad_count = 0;
    for (int32_t p = 0; p < job->prompt_count; p++) {
        int32_t count = job->prompts[p].count[0];
        state->caption_begin[p] = rows;
        state->caption_rows[p] = sumi_dit_padded(model, count);
        if (sumi_dit_padded(model, count) > count) {
            pads[pad_count++] = (sumi_span){rows + count, sumi_dit_padded(model, count) - count};
        }
        sequences[p] =
            (sumi_sequence){.span = {{rows, sumi_dit_padded(model, count)}}, .span_count = 1, .query_spans = 1};
        rows += sumi_dit_padded(model, count);
    }
    sumi_plan_prefix(plan, "%s", "");
    sumi_value captions = state->captions =
        sumi_plan_value(plan, "captions", SUMI_ELEMENT_ACTIVATION, rows, model->dim);
    for (int32_t p = 0; p < job->prompt_count; p++) {
        const sumi_prompt_features* prompt = &job->prompts[p];
        sumi_value normed = sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "cap_embedder.0",
                                                                        .x = prompt->value[0],
                                                                        .x_row = prompt->row[0],
                                                                        .rows = prompt->count[0],
                                                                        .weight = &model->caption_norm,
                                                                        .eps = model->eps});
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "cap_embedder.1",
                                                        .x = normed,
                                                        .weight = &model->caption_embedder,
                                                        .bias = &model->caption_embedder_bias,
                                                        .y = captions,
                                                        .y_row = state->caption_begin[p]});
    }
    sumi_plan_prefix(plan, "caption_pad.");
    sumi_plan_fill_rows(plan, captions, &model->caption_pad, pads, pad_count);
    int32_t* positions = take_positions(plan, rows);
    if (positions == NULL) return;
    for (int32_t p = 0; p < job->prompt_count; p++)
        fill_caption_positions(model, positions + 3 * state->caption_begin[p], state->caption_rows[p]);
    sumi_plan_prefix(plan, "caption_");
    sumi_value rope = write_dit_rope(model, plan, positions, rows);
    sumi_free(plan->heap, positions);
    sumi_attention attention = sumi_dit_attention(model, sequences, job->prompt_count);
    for (int32_t i = 0; i < model->refiner_count; i++) {
        sumi_plan_prefix(plan, "context_refiner.%d.", (int)i);
        const sumi_dit_rows all_rows = {.count = rows};
        sumi_dit_write_block(
            model, plan, &model->context_refiner[i],
            &(sumi_dit_block_rows){
                .x = captions, .in = all_rows, .out = all_rows, .attention = &attention, .rope = rope});
    }
}

// Rows of the condition: one for each evaluation of the job; if the condition depends on the prompt, as many for each
// prompt. Then the number of rows depends on the batch. On the CPU products of fewer than MIN_CONDITION_ROWS rows are
// summed in another order, but an image of a batch must have the bits of a single one, so unused rows are added.
#define MIN_CONDITION_ROWS 8
static int32_t condition_rows(const sumi_next_dit* model, const sumi_denoising* job)
{
    if (!model->settings->reads_pooled) return job->evaluation_count;
    const int32_t rows = job->prompt_count * job->evaluation_count;
    return rows > MIN_CONDITION_ROWS ? rows : MIN_CONDITION_ROWS;
}

// For each row of the condition the number of its prompt, or of its evaluation.
static sumi_value write_numbers(const sumi_next_dit* model, sumi_plan* plan, const sumi_denoising* job, bool by_prompt)
{
    const int32_t rows = condition_rows(model, job), evaluations = job->evaluation_count;
    const size_t bytes = (size_t)rows * sizeof(int32_t);
    int32_t* numbers = plan->error.result == SUMI_OK ? sumi_alloc_zero(plan->heap, bytes) : NULL;
    if (numbers == NULL) {
        sumi_out_of_memory(&plan->error, bytes, "row numbers");
        return SUMI_NO_VALUE;
    }
    for (int32_t i = 0; i < job->prompt_count * evaluations; i++)
        numbers[i] = by_prompt ? i / evaluations : i % evaluations;
    sumi_value value =
        sumi_plan_constant(plan, by_prompt ? "prompts" : "evaluations", SUMI_ELEMENT_INT, rows, 1, numbers);
    sumi_free(plan->heap, numbers);
    return value;
}

// fusion(silu([time_out(time) | pooled_embedder(pooled_norm(pooled))])): for each prompt a row per evaluation. time:
// the hidden layer of the time MLP. The reference norms the pooled row with the epsilon of its QK norms.
static sumi_value write_fused_condition(const sumi_next_dit* model, sumi_plan* plan, const sumi_denoising* job,
                                        sumi_value time)
{
    const int32_t prompts = job->prompt_count, width = model->condition_width;
    sumi_value pooled = sumi_plan_value(plan, "pooled", SUMI_ELEMENT_ACTIVATION, prompts, model->pooled_width);
    for (int32_t p = 0; p < prompts; p++) {
        SUMI_ASSERT(job->prompts[p].count[1] == 1);
        sumi_plan_copy_rows(
            plan,
            &(sumi_plan_copy_args){
                .x = job->prompts[p].value[1], .x_row = job->prompts[p].row[1], .y = pooled, .y_row = p, .rows = 1});
    }
    sumi_value time_and_text = sumi_plan_value(plan, "time_and_text", SUMI_ELEMENT_ACTIVATION,
                                               condition_rows(model, job), width + model->pooled_hidden);
    sumi_value times = sumi_plan_gather_rows(plan, "repeat", write_numbers(model, plan, job, false), time);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "mlp.2",
                                                    .x = times,
                                                    .weight = &model->time_out,
                                                    .bias = &model->time_out_bias,
                                                    .y = time_and_text,
                                                    .writes_some_columns = true});
    sumi_plan_prefix(plan, "clip_text_pooled_proj.");
    sumi_value normed = sumi_plan_norm(
        plan, &(sumi_plan_norm_args){.label = "0", .x = pooled, .weight = &model->pooled_norm, .eps = model->qk_eps});
    sumi_value texts = sumi_plan_gather_rows(plan, "repeat", write_numbers(model, plan, job, true), normed);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "1",
                                                    .x = texts,
                                                    .weight = &model->pooled_embedder,
                                                    .bias = &model->pooled_embedder_bias,
                                                    .y = time_and_text,
                                                    .writes_some_columns = true,
                                                    .y_column = width});
    sumi_plan_prefix(plan, "time_text_embed.");
    sumi_value silu = sumi_plan_activate(plan, time_and_text, SUMI_ACT_SILU);
    return sumi_plan_linear(
        plan, &(sumi_plan_linear_args){.label = "1", .x = silu, .weight = &model->fusion, .bias = &model->fusion_bias});
}

// Writes the input of all modulation layers, condition_rows of them. It depends on the schedule and, if a pooled vector
// is read, on the prompt.
static sumi_value write_dit_condition(const sumi_next_dit* model, sumi_plan* plan, const sumi_denoising* job)
{
    sumi_plan_prefix(plan, "t_embedder.");
    sumi_value embedded = sumi_plan_time_embed(plan, &(sumi_plan_time_args){.times = job->times,
                                                                            .width = model->time_width,
                                                                            .scale = (float)model->time_scale,
                                                                            .max_period = TIME_PERIOD,
                                                                            .cos_first = true});
    sumi_value hidden = sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "mlp.0",
                                                                        .x = embedded,
                                                                        .weight = &model->time_in,
                                                                        .bias = &model->time_in_bias,
                                                                        .activation = SUMI_ACT_SILU});
    if (model->settings->reads_pooled) return write_fused_condition(model, plan, job, hidden);
    return sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "mlp.2", .x = hidden, .weight = &model->time_out, .bias = &model->time_out_bias});
}

// Writes the tables of all blocks and the final layer's scale, for all evaluations at once.
static void write_dit_modulation(const sumi_next_dit* model, sumi_plan* plan, sumi_denoising* job)
{
    sumi_next_dit_state* state = job->state;
    const int32_t rows = condition_rows(model, job);
    const sumi_value condition = write_dit_condition(model, plan, job);
    sumi_plan_prefix(plan, "final_layer.");
    const sumi_value silu = sumi_plan_activate(plan, condition, SUMI_ACT_SILU),
                     block_input = model->settings->activates_condition ? silu : condition;
    state->condition = block_input;
    for (int32_t i = 0; i < model->refiner_count + model->layer_count; i++) {
        bool refines = i < model->refiner_count;
        const sumi_next_dit_block* block =
            refines ? &model->noise_refiner[i] : &model->layers[i - model->refiner_count];
        sumi_plan_prefix(plan, "%s.%d.", refines ? "noise_refiner" : "layers",
                         (int)(refines ? i : i - model->refiner_count));
        state->modulation[block->table_index] = sumi_dit_write_table(model, plan, block, block_input);
    }
    sumi_plan_prefix(plan, "final_layer.");
    sumi_value scale = state->final_scale = sumi_plan_value(plan, "final_scale", SUMI_ELEMENT_FLOAT, rows, model->dim);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "adaLN_modulation",
                                                    .x = silu,
                                                    .weight = &model->final_modulation,
                                                    .bias = &model->final_modulation_bias,
                                                    .y = scale});
    sumi_plan_finish_modulation(plan, scale, false);
}

static void write_dit_prepare(const void* memory, sumi_plan* plan, sumi_denoising* job)
{
    const sumi_next_dit* model = memory;
    SUMI_ASSERT(job->reference_count == 0); // dit_properties names no references
    write_dit_captions(model, plan, job);
    write_dit_modulation(model, plan, job);
    sumi_controls_write_prepare(plan, job, model);
    sumi_plan_prefix(plan, "%s", "");
}

static void write_dit_layout(const void* memory, sumi_plan* plan, sumi_denoising* job, const sumi_evaluation_list* list)
{
    const sumi_next_dit* model = memory;
    const int32_t count = list->count, slot = list->slot;
    SUMI_ASSERT(slot >= 0 && slot < 2 && count >= 1 && count <= SUMI_DIT_MAX_ENTRIES);
    sumi_next_dit_state* state = job->state;
    sumi_dit_layout layout = sumi_dit_lay_out(model, job, list);
    int32_t* positions = take_positions(plan, layout.rows);
    if (positions == NULL) return;
    for (int32_t entry = 0; entry < count; entry++) {
        // The image's frame follows the last one of the padded caption; the image's pads are at (0, 0, 0).
        int32_t* position = positions + 3 * (size_t)entry * (size_t)layout.image_rows;
        int32_t caption_rows = state->caption_rows[list->evaluations[entry].prompt];
        for (int32_t i = 0; i < layout.tokens; i++) {
            position[3 * i] = model->settings->first_frame + caption_rows;
            position[3 * i + 1] = i / layout.width;
            position[3 * i + 2] = i % layout.width;
        }
        fill_caption_positions(model, positions + 3 * layout.caption_begin[entry], caption_rows);
    }
    state->rope[slot] = write_dit_rope(model, plan, positions, layout.rows);
    sumi_free(plan->heap, positions);
    if (job->keeps_residuals)
        job->residuals[slot] = sumi_block_residuals_make(plan, count * layout.image_rows, model->dim);
    sumi_controls_write_layout(plan, job, model, list);
}

// Each entry's latents, at the beginning of x.
static void write_dit_images(const sumi_next_dit* model, sumi_plan* plan, const sumi_dit_layout* layout,
                             sumi_value latents, sumi_value x)
{
    int32_t pictures[SUMI_DIT_MAX_ENTRIES];
    for (int32_t i = 0; i < layout->list->count; i++) pictures[i] = layout->list->evaluations[i].item;
    sumi_dit_embed(model, plan, layout,
                   &(sumi_dit_embedding){.label = "x_embedder",
                                         .latents = latents,
                                         .channels = model->channels,
                                         .pictures = pictures,
                                         .count = layout->list->count,
                                         .weight = &model->x_embedder,
                                         .bias = &model->x_embedder_bias},
                   x);
}

// One block of a stage, with the hints of its place.
typedef struct dit_turn {
    const sumi_control_place* place;
    const char* stem; // the stage's name in files
    sumi_dit_block_rows rows;
} dit_turn;

// Hints are added before the block's last sum, so that this and the next block's first norm stay one op.
static void write_dit_block(const sumi_next_dit* model, sumi_plan* plan, const sumi_denoising* job,
                            const sumi_next_dit_block* block, const dit_turn* turn)
{
    const sumi_dit_block_rows* rows = &turn->rows;
    sumi_plan_prefix(plan, "%s.%d.", turn->stem, (int)turn->place->block);
    const sumi_value normed = sumi_dit_write_first_norm(model, plan, block, rows),
                     branch = sumi_dit_write_branches(model, plan, block, rows, normed);
    sumi_controls_write_place(plan, job, turn->place);
    sumi_plan_prefix(plan, "%s.%d.", turn->stem, (int)turn->place->block);
    sumi_dit_write_last_sum(model, plan, block, rows, branch);
}

static void write_dit_refiner(const sumi_next_dit* model, sumi_plan* plan, sumi_denoising* job,
                              const sumi_dit_evaluation* e, sumi_control_place place)
{
    const sumi_next_dit_state* state = job->state;
    place.stage = SUMI_CONTROL_REFINER;
    place.block = -1;
    sumi_controls_write_place(plan, job, &place);
    for (int32_t i = 0; i < model->refiner_count; i++) {
        const sumi_next_dit_block* block = &model->noise_refiner[i];
        place.block = i;
        write_dit_block(model, plan, job, block,
                        &(dit_turn){.place = &place,
                                    .stem = "noise_refiner",
                                    .rows = {.x = place.x,
                                             .in = e->modulated_images,
                                             .out = e->modulated_images,
                                             .attention = &e->images,
                                             .rope = e->rope,
                                             .modulation = state->modulation[block->table_index]}});
    }
}

// Returns velocities from the rows after the last layer.
static sumi_value write_dit_final(const sumi_next_dit* model, sumi_plan* plan, const sumi_denoising* job,
                                  const sumi_dit_evaluation* e, sumi_value x)
{
    const sumi_next_dit_state* state = job->state;
    const sumi_dit_rows rows = job->computes_unused_rows ? e->modulated_all : e->modulated_images;
    const int32_t count = e->layout.list->count;
    int32_t order[SUMI_DIT_MAX_ENTRIES], row_begin[SUMI_DIT_MAX_ENTRIES];
    for (int32_t entry = 0; entry < count; entry++) {
        order[entry] = entry;
        row_begin[entry] = entry * e->layout.image_rows;
    }
    sumi_plan_prefix(plan, "final_layer.");
    sumi_value normed = sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "norm",
                                                                    .x = x,
                                                                    .rows = rows.count,
                                                                    .norm = SUMI_NORM_LAYER,
                                                                    .eps = FINAL_EPS,
                                                                    .scale = {state->final_scale, 0, true},
                                                                    .bands = rows.bands,
                                                                    .band_count = rows.band_count});
    sumi_value out = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "linear", .x = normed, .weight = &model->final_linear, .bias = &model->final_linear_bias});
    sumi_plan_prefix(plan, "%s", "");
    // the network returns clean - noise, the solver needs noise - clean
    return sumi_plan_unpatchify(
        plan, out, &(sumi_patch_layout){job->height, job->width, model->channels, 2, count, order, row_begin, false},
        -1.0f);
}

static void write_dit_layers(const sumi_next_dit* model, sumi_plan* plan, sumi_denoising* job,
                             const sumi_dit_evaluation* e, sumi_control_place place)
{
    const sumi_next_dit_state* state = job->state;
    const bool keeps = job->kind == SUMI_EVALUATION_WHOLE, reuses = job->kind == SUMI_EVALUATION_REUSED;
    const int32_t count = reuses ? 1 : model->layer_count, slot = place.list->slot;
    const sumi_value x = place.x;
    SUMI_ASSERT((!keeps && !reuses) || !job->computes_unused_rows);
    place.stage = SUMI_CONTROL_BLOCKS;
    place.block = -1;
    place.is_last = false;
    sumi_controls_write_place(plan, job, &place);
    if (keeps) sumi_block_residuals_before_first(plan, &job->residuals[slot], x);
    for (int32_t i = 0; i < count; i++) {
        const sumi_next_dit_block* block = &model->layers[i];
        place.block = i;
        place.is_last = i == count - 1;
        const bool reads_images_only = place.is_last && !job->computes_unused_rows;
        write_dit_block(model, plan, job, block,
                        &(dit_turn){.place = &place,
                                    .stem = "layers",
                                    .rows = {.x = x,
                                             .in = e->modulated_all,
                                             .out = reads_images_only ? e->modulated_images : e->modulated_all,
                                             .attention = reads_images_only ? &e->last : &e->joint,
                                             .rope = e->rope,
                                             .modulation = state->modulation[block->table_index]}});
        if (!keeps || i > 0) continue;
        const sumi_value reused = sumi_block_residuals_after_first(plan, &job->residuals[slot], x, &job->extrapolation);
        job->reused_velocities = write_dit_final(model, plan, job, e, reused);
    }
    if (keeps) sumi_block_residuals_after_last(plan, &job->residuals[slot], x);
    if (reuses) sumi_block_residuals_reuse(plan, &job->residuals[slot], x, &job->extrapolation);
}

static sumi_value write_dit_evaluation(const void* memory, sumi_plan* plan, sumi_denoising* job,
                                       const sumi_evaluation_list* list, sumi_value latents)
{
    const sumi_next_dit* model = memory;
    const sumi_next_dit_state* state = job->state;
    sumi_dit_evaluation e;
    sumi_dit_begin_evaluation(model, job, list, &e);
    sumi_plan_prefix(plan, "%s", "");
    sumi_value x = sumi_plan_value(plan, "stream", SUMI_ELEMENT_ACTIVATION, e.layout.rows, model->dim);
    write_dit_images(model, plan, &e.layout, latents, x);
    if (job->control_count > 0)
        e.images_of_stream =
            sumi_plan_view(plan, "images", x, (sumi_span){0, e.image_rows}, (sumi_span){0, model->dim});
    const sumi_control_place place = {.x = x, .list = list, .base = model, .evaluation = &e};
    write_dit_refiner(model, plan, job, &e, place);
    sumi_plan_prefix(plan, "caption_");
    for (int32_t entry = 0; entry < list->count; entry++) {
        sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = state->captions,
                                                         .x_row = state->caption_begin[list->evaluations[entry].prompt],
                                                         .y = x,
                                                         .y_row = e.layout.caption_begin[entry],
                                                         .rows = state->caption_rows[list->evaluations[entry].prompt]});
    }
    write_dit_layers(model, plan, job, &e, place);
    return write_dit_final(model, plan, job, &e, x);
}

const sumi_denoiser_module sumi_next_dit_module = {.model_bytes = sizeof(sumi_next_dit),
                                                   .state_bytes = sizeof(sumi_next_dit_state),
                                                   .bind = bind_dit_model,
                                                   .properties = dit_properties,
                                                   .write_prepare = write_dit_prepare,
                                                   .write_layout = write_dit_layout,
                                                   .write_evaluation = write_dit_evaluation};
