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
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TIME_PERIOD 10000.0f
#define FINAL_EPS 1e-6f // epsilon of the final layer norm, a constant of the reference and not of its config
#define MAX_ENTRIES (2 * SUMI_MAX_ITEMS) // with guidance each item has two

// ---- Weights --------------------------------------------------------------------------------------------------------

// The alias number `which` of a tensor's canonical name (Z-Image's in diffusers), in files of the authors and in those
// of diffusers' Lumina 2. At most one replacement of each table is made.
static bool dit_alias(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    (void)context;
    static const char* const s_original[][2] = {
        {"all_x_embedder.2-1.", "x_embedder."},       {"all_final_layer.2-1.", "final_layer."},
        {".attention.to_out.0.", ".attention.out."},  {".attention.norm_q.", ".attention.q_norm."},
        {".attention.norm_k.", ".attention.k_norm."}, {NULL, NULL}};
    static const char* const s_lumina2[][2] = {{"cap_embedder.", "time_caption_embed.caption_embedder."},
                                               {"t_embedder.mlp.0.", "time_caption_embed.timestep_embedder.linear_1."},
                                               {"t_embedder.mlp.2.", "time_caption_embed.timestep_embedder.linear_2."},
                                               {"final_layer.adaLN_modulation.1.", "norm_out.linear_1."},
                                               {"final_layer.linear.", "norm_out.linear_2."},
                                               {".attention.", ".attn."},
                                               {".feed_forward.w1.", ".feed_forward.linear_1."},
                                               {".feed_forward.w2.", ".feed_forward.linear_2."},
                                               {".feed_forward.w3.", ".feed_forward.linear_3."},
                                               {".adaLN_modulation.1.", ".norm1.linear."},
                                               {".attention_norm1.", ".norm1.norm."}, // in blocks with modulation
                                               {".attention_norm2.", ".norm2."},
                                               {NULL, NULL}};
    static const char* const s_unmodulated[][2] = {{".attention_norm1.", ".norm1."}, {NULL, NULL}};
    static const char* const(*const s_tables[])[2] = {s_original, s_lumina2, s_unmodulated};
    const int32_t count = sizeof s_tables / sizeof *s_tables;
    // `which` counts only the tables that change this name.
    for (int32_t t = 0, match_count = 0; t < count; t++) {
        for (int32_t i = 0; s_tables[t][i][0] != NULL; i++) {
            if (!sumi_replace_text(canonical, s_tables[t][i][0], s_tables[t][i][1], out, out_bytes)) continue;
            if (match_count++ == which) return true;
            break;
        }
    }
    return false;
}

static void bind_qkv(sumi_next_dit* model, sumi_binder* binder, sumi_next_dit_block* block, const char* prefix)
{
    int32_t q = model->heads * model->head_dim, kv = model->kv_heads * model->head_dim;
    const int32_t rows[] = {q, kv, kv};
    char names[4][SUMI_NAME_BYTES];
    const char* split[] = {sumi_bind_join(names[0], prefix, "attention.to_q"),
                           sumi_bind_join(names[1], prefix, "attention.to_k"),
                           sumi_bind_join(names[2], prefix, "attention.to_v")};
    const char* fused = sumi_bind_join(names[3], prefix, "attention.qkv");
    sumi_bind_fused(binder, &block->qkv, fused, &(sumi_module_stack){fused, split, rows, 3}, model->dim);
}

// table_index: of its modulation among the tables; -1: the block is not modulated.
static void bind_dit_block(sumi_next_dit* model, sumi_binder* binder, sumi_next_dit_block* block, const char* prefix,
                           int32_t table_index)
{
    char names[3][SUMI_NAME_BYTES];
    block->is_modulated = table_index >= 0;
    block->table_index = table_index;
    int32_t dim = model->dim;
    sumi_bind_norm(binder, &block->attention_norm1, sumi_bind_join(names[0], prefix, "attention_norm1.weight"), dim);
    sumi_bind_norm(binder, &block->attention_norm2, sumi_bind_join(names[0], prefix, "attention_norm2.weight"), dim);
    sumi_bind_norm(binder, &block->ffn_norm1, sumi_bind_join(names[0], prefix, "ffn_norm1.weight"), dim);
    sumi_bind_norm(binder, &block->ffn_norm2, sumi_bind_join(names[0], prefix, "ffn_norm2.weight"), dim);
    bind_qkv(model, binder, block, prefix);
    block->qkv.balance = &block->attention_norm1; // in 8 bits columns are balanced with this norm (plan/weight.h)
    sumi_bind_norm(binder, &block->q_norm, sumi_bind_join(names[0], prefix, "attention.norm_q.weight"),
                   model->head_dim);
    sumi_bind_norm(binder, &block->k_norm, sumi_bind_join(names[0], prefix, "attention.norm_k.weight"),
                   model->head_dim);
    sumi_bind_matrix(binder, &block->out, sumi_bind_join(names[0], prefix, "attention.to_out.0"), dim,
                     model->heads * model->head_dim);
    const char* gate_up[] = {sumi_bind_join(names[0], prefix, "feed_forward.w1"),
                             sumi_bind_join(names[1], prefix, "feed_forward.w3")};
    const int32_t rows[] = {model->hidden, model->hidden};
    const sumi_module_stack stack = {sumi_bind_join(names[2], prefix, "feed_forward.w1w3"), gate_up, rows, 2};
    sumi_bind_stack(binder, &block->gate_up, &stack, dim);
    block->gate_up.balance = &block->ffn_norm1;
    sumi_bind_matrix(binder, &block->down, sumi_bind_join(names[0], prefix, "feed_forward.w2"), dim, model->hidden);
    if (block->is_modulated) {
        sumi_bind_linear(binder, &block->modulation, &block->modulation_bias,
                         sumi_bind_join(names[0], prefix, model->settings->modulation), 4 * dim,
                         model->condition_width);
    }
}

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
    // single files: the released split of a head over frame, row and column, in proportion
    const int32_t *released = model->settings->axes, total = released[0] + released[1] + released[2];
    int32_t axes[3];
    for (int32_t a = 0; a < 3; a++) axes[a] = (int32_t)((int64_t)model->head_dim * released[a] / total);
    if (values->axis_count != 0) memcpy(axes, values->axes, sizeof axes);
    if ((values->axis_count != 0 && values->axis_count != 3) || axes[0] < 2 || axes[1] < 2 || axes[2] < 2
        || axes[0] % 2 + axes[1] % 2 + axes[2] % 2 != 0 || (int64_t)axes[0] + axes[1] + axes[2] != model->head_dim) {
        sumi_bind_fail(binder, SUMI_TENSOR_MISMATCH,
                       "%s: axes_dims must be three even numbers whose sum is the head size %d", config_path,
                       (int)model->head_dim);
        return;
    }
    for (int32_t a = 0; a < 3; a++) model->axis_pairs[a] = axes[a] / 2;
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
    binder->alias = dit_alias;
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
        bind_dit_block(model, binder, &model->noise_refiner[i], name, table_index++);
        snprintf(name, sizeof name, "context_refiner.%d", (int)i);
        bind_dit_block(model, binder, &model->context_refiner[i], name, -1);
    }
    for (int32_t i = 0; i < model->layer_count; i++) {
        snprintf(name, sizeof name, "layers.%d", (int)i);
        bind_dit_block(model, binder, &model->layers[i], name, table_index++);
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
                                      .feature_width = {model->feature_width, model->pooled_width},
                                      .reads_pooled = {false, model->settings->reads_pooled}};
}

// ---- Forward --------------------------------------------------------------------------------------------------------

static int32_t padded(const sumi_next_dit* model, int32_t tokens)
{
    const int32_t multiple = model->settings->pad_multiple;
    SUMI_ASSERT(multiple >= 1 && tokens >= 1);
    return (tokens + multiple - 1) / multiple * multiple;
}

static sumi_attention attention_over(const sumi_next_dit* model, const sumi_sequence* sequences, int32_t count)
{
    return (sumi_attention){.q_heads = model->heads,
                            .kv_heads = model->kv_heads,
                            .dim = model->head_dim,
                            .scale = (float)(1.0 / sqrt((double)model->head_dim)),
                            .sequences = sequences,
                            .sequence_count = count};
}

// A row of a block's table holds, for one evaluation (and prompt): 1 + scale and tanh(gate) of attention, then 1 +
// scale and tanh(gate) of the feed-forward layer, each as wide as the model. Returns one of these quarters; no row for
// a block without modulation.
static sumi_step_row modulation_of(const sumi_next_dit* model, sumi_value table, int32_t quarter)
{
    SUMI_ASSERT(quarter >= 0 && quarter < 4);
    return table.id == 0 ? SUMI_NO_ROW : (sumi_step_row){table, quarter * model->dim, true};
}

// Rows with the bands in which their modulation differs. No bands: all rows have the same modulation, or none.
typedef struct modulated_rows {
    int32_t count;
    const sumi_row_band* bands;
    int32_t band_count;
} modulated_rows;

// What a block works on. Attention reads the first in.count rows of x; only the first out.count rows are updated.
typedef struct block_rows {
    sumi_value x;
    modulated_rows in, out;
    const sumi_attention* attention;
    sumi_value rope, modulation;
} block_rows;

// Writes one block on x, in place.
static void write_dit_block(const sumi_next_dit* model, sumi_plan* plan, const sumi_next_dit_block* block,
                            const block_rows* b)
{
    const sumi_value x = b->x, modulation = b->modulation;
    const modulated_rows in = b->in, out = b->out;
    const int32_t rows = in.count, out_rows = out.count;
    SUMI_ASSERT(out_rows >= 1 && out_rows <= rows);
    SUMI_ASSERT(block->is_modulated == (modulation.id != 0) || plan->error.result != SUMI_OK);
    sumi_value attention_input =
        sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "attention_norm1",
                                                    .x = x,
                                                    .rows = rows,
                                                    .weight = &block->attention_norm1,
                                                    .eps = model->eps,
                                                    .scale = modulation_of(model, modulation, 0),
                                                    .bands = in.bands,
                                                    .band_count = in.band_count});
    sumi_value qkv = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){.label = "attention.qkv", .x = attention_input, .weight = &block->qkv});
    sumi_plan_qk_norm_rope(plan, &(sumi_plan_qk_args){.label = "attention.qk_norm_rope",
                                                      .qkv = qkv,
                                                      .rows = rows,
                                                      .q_heads = model->heads,
                                                      .kv_heads = model->kv_heads,
                                                      .dim = model->head_dim,
                                                      .q_norm = &block->q_norm,
                                                      .k_norm = &block->k_norm,
                                                      .eps = model->qk_eps,
                                                      .rope = b->rope,
                                                      .rotary = SUMI_ROTARY_INTERLEAVED});
    sumi_value attended = sumi_plan_attention(plan, "attention", qkv, b->attention);
    sumi_value branch = sumi_plan_value(plan, "attention_branch", SUMI_ELEMENT_ACTIVATION, out_rows, model->dim);
    sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "attention.out", .x = attended, .rows = out_rows, .weight = &block->out, .y = branch});
    sumi_plan_norm_gate_add(plan, &(sumi_plan_norm_gate_add_args){.label = "attention_norm2",
                                                                  .x = x,
                                                                  .branch = branch,
                                                                  .weight = &block->attention_norm2,
                                                                  .eps = model->eps,
                                                                  .gate = modulation_of(model, modulation, 1),
                                                                  .bands = out.bands,
                                                                  .band_count = out.band_count});

    sumi_value feed_forward_input =
        sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "ffn_norm1",
                                                    .x = x,
                                                    .rows = out_rows,
                                                    .weight = &block->ffn_norm1,
                                                    .eps = model->eps,
                                                    .scale = modulation_of(model, modulation, 2),
                                                    .bands = out.bands,
                                                    .band_count = out.band_count});
    sumi_value gated =
        sumi_plan_linear_gated(plan, "feed_forward.w1w3", feed_forward_input, &block->gate_up, SUMI_ACT_SILU);
    sumi_value feed_forward_branch = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){.label = "feed_forward.w2", .x = gated, .weight = &block->down});
    sumi_plan_norm_gate_add(plan, &(sumi_plan_norm_gate_add_args){.label = "ffn_norm2",
                                                                  .x = x,
                                                                  .branch = feed_forward_branch,
                                                                  .weight = &block->ffn_norm2,
                                                                  .eps = model->eps,
                                                                  .gate = modulation_of(model, modulation, 3),
                                                                  .bands = out.bands,
                                                                  .band_count = out.band_count});
}

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
        state->caption_rows[p] = padded(model, count);
        if (padded(model, count) > count) {
            pads[pad_count++] = (sumi_span){rows + count, padded(model, count) - count};
        }
        sequences[p] = (sumi_sequence){.span = {{rows, padded(model, count)}}, .span_count = 1, .query_spans = 1};
        rows += padded(model, count);
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
    sumi_attention attention = attention_over(model, sequences, job->prompt_count);
    for (int32_t i = 0; i < model->refiner_count; i++) {
        sumi_plan_prefix(plan, "context_refiner.%d.", (int)i);
        const modulated_rows all_rows = {.count = rows};
        write_dit_block(
            model, plan, &model->context_refiner[i],
            &(block_rows){.x = captions, .in = all_rows, .out = all_rows, .attention = &attention, .rope = rope});
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
    for (int32_t i = 0; i < model->refiner_count + model->layer_count; i++) {
        bool refines = i < model->refiner_count;
        const sumi_next_dit_block* block =
            refines ? &model->noise_refiner[i] : &model->layers[i - model->refiner_count];
        sumi_plan_prefix(plan, "%s.%d.", refines ? "noise_refiner" : "layers",
                         (int)(refines ? i : i - model->refiner_count));
        sumi_value table = sumi_plan_value(plan, "modulation", SUMI_ELEMENT_FLOAT, rows, 4 * model->dim);
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "adaLN_modulation",
                                                        .x = block_input,
                                                        .weight = &block->modulation,
                                                        .bias = &block->modulation_bias,
                                                        .y = table});
        sumi_plan_finish_modulation(plan, table, true);
        state->modulation[block->table_index] = table;
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
    sumi_plan_prefix(plan, "%s", "");
}

// Where the rows of a list of entries are in x: first image_rows for each entry, then the captions. Captions with their
// own condition come in reverse order: the last image and the first caption then have one prompt, and so one band of
// modulation (rows_of_prompts) where the two meet.
typedef struct joint_layout {
    const sumi_evaluation_list* list;
    int32_t height, width, tokens; // of an image, in patches
    int32_t image_rows;            // tokens and pads of an image
    int32_t caption_begin[MAX_ENTRIES];
    int32_t rows; // in all
} joint_layout;

static joint_layout layout_of(const sumi_next_dit* model, const sumi_denoising* job, const sumi_evaluation_list* list)
{
    const int32_t count = list->count;
    const sumi_next_dit_state* state = job->state;
    joint_layout layout = {.list = list, .height = job->height / 2, .width = job->width / 2};
    layout.tokens = layout.height * layout.width;
    layout.image_rows = padded(model, layout.tokens);
    layout.rows = count * layout.image_rows;
    for (int32_t i = 0; i < count; i++) {
        const int32_t entry = model->settings->reads_pooled ? count - 1 - i : i;
        layout.caption_begin[entry] = layout.rows;
        layout.rows += state->caption_rows[list->evaluations[entry].prompt];
    }
    return layout;
}

// The rows up to `end`, in bands of one prompt each. No bands if the modulation is the same for all rows.
static modulated_rows rows_of_prompts(const sumi_next_dit* model, const sumi_denoising* job, const joint_layout* layout,
                                      int32_t end, sumi_row_band bands[2 * MAX_ENTRIES])
{
    const int32_t count = layout->list->count;
    modulated_rows rows = {.count = end, .bands = bands};
    int32_t row = 0; // the end of band i
    for (int32_t i = 0; i < 2 * count && row < end && model->settings->reads_pooled; i++) {
        const sumi_next_dit_state* state = job->state;
        const int32_t prompt = layout->list->evaluations[i < count ? i : 2 * count - 1 - i].prompt,
                      table_row = prompt * job->evaluation_count;
        row += i < count ? layout->image_rows : state->caption_rows[prompt];
        const bool continues_band = rows.band_count > 0 && bands[rows.band_count - 1].table_row == table_row;
        bands[continues_band ? rows.band_count - 1 : rows.band_count++] =
            (sumi_row_band){.end = row, .table_row = table_row};
    }
    SUMI_ASSERT(rows.band_count == 0 || row == end);
    return rows;
}

static void write_dit_layout(const void* memory, sumi_plan* plan, sumi_denoising* job, const sumi_evaluation_list* list)
{
    const sumi_next_dit* model = memory;
    const int32_t count = list->count, slot = list->slot;
    SUMI_ASSERT(slot >= 0 && slot < 2 && count >= 1 && count <= MAX_ENTRIES);
    sumi_next_dit_state* state = job->state;
    joint_layout layout = layout_of(model, job, list);
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
}

// Writes 2x2 patches through x_embedder to the leading rows. Pad rows get the learned token.
static void write_dit_patches(const sumi_next_dit* model, sumi_plan* plan, const sumi_denoising* job,
                              const joint_layout* layout, sumi_value latents, sumi_value x)
{
    const int32_t count = layout->list->count;
    int32_t items[MAX_ENTRIES], row_begin[MAX_ENTRIES];
    sumi_span pads[MAX_ENTRIES];
    for (int32_t entry = 0; entry < count; entry++) {
        items[entry] = layout->list->evaluations[entry].item;
        row_begin[entry] = entry * layout->tokens;
        pads[entry] = (sumi_span){entry * layout->image_rows + layout->tokens, layout->image_rows - layout->tokens};
    }
    sumi_patch_layout patches = {job->height, job->width, model->channels, 2, count, items, row_begin, false};
    sumi_value features =
        sumi_plan_value(plan, "patches", SUMI_ELEMENT_ACTIVATION, count * layout->tokens, 4 * model->channels);
    sumi_plan_patchify(plan, latents, &patches, features);
    bool is_padded = layout->image_rows > layout->tokens;
    for (int32_t entry = 0; entry < (is_padded ? count : 1); entry++) {
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "x_embedder",
                                                        .x = features,
                                                        .x_row = entry * layout->tokens,
                                                        .rows = is_padded ? layout->tokens : count * layout->tokens,
                                                        .weight = &model->x_embedder,
                                                        .bias = &model->x_embedder_bias,
                                                        .y = x,
                                                        .y_row = entry * layout->image_rows});
    }
    sumi_plan_prefix(plan, "image_pad.");
    sumi_plan_fill_rows(plan, x, &model->x_pad, pads, is_padded ? count : 0);
}

static sumi_value write_dit_evaluation(const void* memory, sumi_plan* plan, sumi_denoising* job,
                                       const sumi_evaluation_list* list, sumi_value latents)
{
    const sumi_next_dit* model = memory;
    const int32_t count = list->count, slot = list->slot;
    SUMI_ASSERT(slot >= 0 && slot < 2 && count >= 1 && count <= MAX_ENTRIES);
    const sumi_next_dit_state* state = job->state;
    joint_layout layout = layout_of(model, job, list);
    int32_t image_rows = count * layout.image_rows;
    sumi_sequence images[MAX_ENTRIES], joint[MAX_ENTRIES], last[MAX_ENTRIES];
    int32_t order[MAX_ENTRIES], row_begin[MAX_ENTRIES];
    for (int32_t entry = 0; entry < count; entry++) {
        sumi_span image = {entry * layout.image_rows, layout.image_rows},
                  caption = {layout.caption_begin[entry], state->caption_rows[list->evaluations[entry].prompt]};
        images[entry] = (sumi_sequence){.span = {image}, .span_count = 1, .query_spans = 1};
        joint[entry] = (sumi_sequence){.span = {image, caption}, .span_count = 2, .query_spans = 2};
        last[entry] = (sumi_sequence){.span = {image, caption}, .span_count = 2, .query_spans = 1};
        order[entry] = entry;
        row_begin[entry] = entry * layout.image_rows;
    }
    sumi_row_band bands[3][2 * MAX_ENTRIES];
    const int32_t final_rows = job->computes_unused_rows ? layout.rows : image_rows;
    const modulated_rows modulated_images = rows_of_prompts(model, job, &layout, image_rows, bands[0]),
                         modulated_all = rows_of_prompts(model, job, &layout, layout.rows, bands[1]),
                         modulated_final = rows_of_prompts(model, job, &layout, final_rows, bands[2]);
    sumi_attention image_attention = attention_over(model, images, count),
                   joint_attention = attention_over(model, joint, count),
                   last_attention = attention_over(model, last, count);

    sumi_plan_prefix(plan, "%s", "");
    sumi_value x = sumi_plan_value(plan, "stream", SUMI_ELEMENT_ACTIVATION, layout.rows, model->dim);
    write_dit_patches(model, plan, job, &layout, latents, x);
    for (int32_t i = 0; i < model->refiner_count; i++) {
        const sumi_next_dit_block* block = &model->noise_refiner[i];
        sumi_plan_prefix(plan, "noise_refiner.%d.", (int)i);
        write_dit_block(model, plan, block,
                        &(block_rows){.x = x,
                                      .in = modulated_images,
                                      .out = modulated_images,
                                      .attention = &image_attention,
                                      .rope = state->rope[slot],
                                      .modulation = state->modulation[block->table_index]});
    }
    sumi_plan_prefix(plan, "caption_");
    for (int32_t entry = 0; entry < count; entry++) {
        sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = state->captions,
                                                         .x_row = state->caption_begin[list->evaluations[entry].prompt],
                                                         .y = x,
                                                         .y_row = layout.caption_begin[entry],
                                                         .rows = state->caption_rows[list->evaluations[entry].prompt]});
    }
    const bool keeps = job->kind == SUMI_EVALUATION_WHOLE, reuses = job->kind == SUMI_EVALUATION_REUSED;
    const int32_t layer_count = reuses ? 1 : model->layer_count;
    SUMI_ASSERT((!keeps && !reuses) || !job->computes_unused_rows);
    if (keeps) sumi_block_residuals_before_first(plan, &job->residuals[slot], x);
    for (int32_t i = 0; i < layer_count; i++) {
        const sumi_next_dit_block* block = &model->layers[i];
        bool is_last = i == layer_count - 1 && !job->computes_unused_rows;
        sumi_plan_prefix(plan, "layers.%d.", (int)i);
        write_dit_block(model, plan, block,
                        &(block_rows){.x = x,
                                      .in = modulated_all,
                                      .out = is_last ? modulated_images : modulated_all,
                                      .attention = is_last ? &last_attention : &joint_attention,
                                      .rope = state->rope[slot],
                                      .modulation = state->modulation[block->table_index]});
        if (keeps && i == 0) sumi_block_residuals_after_first(plan, &job->residuals[slot], x);
    }
    if (keeps) sumi_block_residuals_after_last(plan, &job->residuals[slot], x);
    if (reuses) sumi_block_residuals_reuse(plan, &job->residuals[slot], x, &job->extrapolation);
    sumi_plan_prefix(plan, "final_layer.");
    sumi_value normed = sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "norm",
                                                                    .x = x,
                                                                    .rows = final_rows,
                                                                    .norm = SUMI_NORM_LAYER,
                                                                    .eps = FINAL_EPS,
                                                                    .scale = {state->final_scale, 0, true},
                                                                    .bands = modulated_final.bands,
                                                                    .band_count = modulated_final.band_count});
    sumi_value out = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "linear", .x = normed, .weight = &model->final_linear, .bias = &model->final_linear_bias});
    sumi_plan_prefix(plan, "%s", "");
    // the network returns clean - noise, the solver needs noise - clean
    return sumi_plan_unpatchify(
        plan, out, &(sumi_patch_layout){job->height, job->width, model->channels, 2, count, order, row_begin, false},
        -1.0f);
}

const sumi_denoiser_module sumi_next_dit_module = {.model_bytes = sizeof(sumi_next_dit),
                                                   .state_bytes = sizeof(sumi_next_dit_state),
                                                   .bind = bind_dit_model,
                                                   .properties = dit_properties,
                                                   .write_prepare = write_dit_prepare,
                                                   .write_layout = write_dit_layout,
                                                   .write_evaluation = write_dit_evaluation};
