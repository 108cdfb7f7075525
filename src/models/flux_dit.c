#include "models/flux_dit.h"
#include "base/assert.h"
#include "models/config.h"
#include "models/joint_rows.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define EPS 1e-6f       // epsilon of every norm, a constant of the reference and not of its config
#define PERIOD 10000.0f // of the sinusoids of times

// Vectors of the modulation of a double block: shift, scale, gate of attention, then of the MLP. A single block has the
// first three. Scales become 1 + s.
enum { SHIFT_1, SCALE_1, GATE_1, SHIFT_2, SCALE_2, GATE_2, DOUBLE_VECTORS, SINGLE_VECTORS = 3 };
#define DOUBLE_ADDS_ONE (1u << SCALE_1 | 1u << SCALE_2)
#define SINGLE_ADDS_ONE (1u << SCALE_1)
enum { SHARED_IMAGE, SHARED_TEXT, SHARED_SINGLE }; // in the order of sumi_flux_side

// ---- Names ----------------------------------------------------------------------------------------------------------

// Maps names of diffusers to the names in the authors' files. %d is the number of a block.
typedef struct name_pair {
    const char *diffusers, *original;
} name_pair;
static const name_pair s_outer[] = {{"x_embedder.", "img_in."},
                                    {"context_embedder.", "txt_in."},
                                    {"time_guidance_embed.timestep_embedder.linear_1.", "time_in.in_layer."},
                                    {"time_guidance_embed.timestep_embedder.linear_2.", "time_in.out_layer."},
                                    {"double_stream_modulation_img.linear.", "double_stream_modulation_img.lin."},
                                    {"double_stream_modulation_txt.linear.", "double_stream_modulation_txt.lin."},
                                    {"single_stream_modulation.linear.", "single_stream_modulation.lin."},
                                    {"proj_out.", "final_layer.linear."}};
static const name_pair s_double[] = {{"attn.to_out.0.", "img_attn.proj."},
                                     {"attn.to_add_out.", "txt_attn.proj."},
                                     {"attn.norm_q.weight", "img_attn.norm.query_norm.scale"},
                                     {"attn.norm_k.weight", "img_attn.norm.key_norm.scale"},
                                     {"attn.norm_added_q.weight", "txt_attn.norm.query_norm.scale"},
                                     {"attn.norm_added_k.weight", "txt_attn.norm.key_norm.scale"},
                                     {"ff.linear_in.", "img_mlp.0."},
                                     {"ff.linear_out.", "img_mlp.2."},
                                     {"ff_context.linear_in.", "txt_mlp.0."},
                                     {"ff_context.linear_out.", "txt_mlp.2."}};
static const name_pair s_single[] = {{"attn.to_qkv_mlp_proj.", "linear1."},
                                     {"attn.to_out.", "linear2."},
                                     {"attn.norm_q.weight", "norm.query_norm.scale"},
                                     {"attn.norm_k.weight", "norm.key_norm.scale"}};
#define PAIRS(list) list, sizeof(list) / sizeof *(list)

// Replaces the beginning of a name that a pair has.
static bool replace_beginning(const name_pair* pairs, size_t count, const char* name, char* out, size_t out_bytes)
{
    for (size_t i = 0; i < count; i++) {
        const size_t length = strlen(pairs[i].diffusers);
        if (strncmp(name, pairs[i].diffusers, length) != 0) continue;
        const int written = snprintf(out, out_bytes, "%s%s", pairs[i].original, name + length);
        return written >= 0 && (size_t)written < out_bytes;
    }
    return false;
}

static bool original_name(const char* canonical, char* out, size_t out_bytes)
{
    int block, used = 0;
    char inner[SUMI_NAME_BYTES];
    const char* kind = "double_blocks";
    bool is_found = false;
    if (sscanf(canonical, "transformer_blocks.%4d.%n", &block, &used) == 1 && used > 0) {
        is_found = replace_beginning(PAIRS(s_double), canonical + used, inner, sizeof inner);
    } else if (sscanf(canonical, "single_transformer_blocks.%4d.%n", &block, &used) == 1 && used > 0) {
        kind = "single_blocks";
        is_found = replace_beginning(PAIRS(s_single), canonical + used, inner, sizeof inner);
    } else {
        return replace_beginning(PAIRS(s_outer), canonical, out, out_bytes);
    }
    if (!is_found) return false;
    const int written = snprintf(out, out_bytes, "%s.%d.%s", kind, block, inner);
    return written >= 0 && (size_t)written < out_bytes;
}

// The authors' name; the same with `weight` in place of `scale`, as newer exports have it; and a name that only adapters
// use, whose program cuts "tran" off. Those that a tensor has.
static bool flux_dit_alias(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    char name[SUMI_NAME_BYTES];
    (void)context;
    if (original_name(canonical, name, sizeof name)) {
        if (which-- == 0) return snprintf(out, out_bytes, "%s", name) < (int)out_bytes;
        if (sumi_replace_text(name, "_norm.scale", "_norm.weight", out, out_bytes) && which-- == 0) return true;
    }
    return which == 0 && strncmp(canonical, "transformer_blocks.", 19) == 0
        && snprintf(out, out_bytes, "%s", canonical + 4) < (int)out_bytes;
}

// ---- Weights --------------------------------------------------------------------------------------------------------

// Modules of a stream of a double block, without "transformer_blocks.N.". Files with a modulation of each block have
// other names for the MLP.
typedef struct stream_names {
    const char *fused, *q, *k, *v, *q_norm, *k_norm, *out, *gated_in, *gated_out, *plain_in, *plain_out, *modulation;
    const char *norm_1, *norm_2, *qk, *original_qkv; // labels; the authors' name of the fused q, k and v
} stream_names;
static const stream_names s_streams[2] = {
    [SUMI_FLUX_IMAGE] = {"attn.to_qkv", "attn.to_q", "attn.to_k", "attn.to_v", "attn.norm_q.weight",
                         "attn.norm_k.weight", "attn.to_out.0", "ff.linear_in", "ff.linear_out", "ff.net.0.proj",
                         "ff.net.2", "norm1.linear", "norm1", "norm2", "attn.qk_norm_rope", "img_attn.qkv"},
    [SUMI_FLUX_TEXT] = {"attn.add_qkv_proj", "attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj",
                        "attn.norm_added_q.weight", "attn.norm_added_k.weight", "attn.to_add_out",
                        "ff_context.linear_in", "ff_context.linear_out", "ff_context.net.0.proj", "ff_context.net.2",
                        "norm1_context.linear", "norm1_context", "norm2_context", "attn.added_qk_norm_rope",
                        "txt_attn.qkv"}};

static void bind_layer(const sumi_flux_dit* model, sumi_binder* b, sumi_weight* weight, sumi_weight* bias,
                       const char* module, int32_t rows, int32_t cols)
{
    if (model->has_biases) sumi_bind_linear(b, weight, bias, module, rows, cols);
    else sumi_bind_matrix(b, weight, module, rows, cols);
}

static int32_t mlp_rows(const sumi_flux_dit* model) { return model->is_gated ? 2 * model->hidden : model->hidden; }

static void bind_stream(const sumi_flux_dit* model, sumi_binder* b, sumi_flux_stream_weights* w, int32_t block,
                        const stream_names* names)
{
    const int32_t dim = model->dim;
    char n[4][SUMI_NAME_BYTES], prefix[64], original[SUMI_NAME_BYTES];
    snprintf(prefix, sizeof prefix, "transformer_blocks.%d", (int)block);
    snprintf(original, sizeof original, "double_blocks.%d.%s", (int)block, names->original_qkv);
    if (model->has_block_modulation) {
        bind_layer(model, b, &w->modulation, &w->modulation_bias, sumi_bind_join(n[0], prefix, names->modulation),
                   DOUBLE_VECTORS * dim, dim);
        w->modulation.keeps_precision = true;
    }
    const char* qkv[] = {sumi_bind_join(n[0], prefix, names->q), sumi_bind_join(n[1], prefix, names->k),
                         sumi_bind_join(n[2], prefix, names->v)};
    const int32_t rows[] = {dim, dim, dim};
    const sumi_module_stack stack = {sumi_bind_join(n[3], prefix, names->fused), qkv, rows, 3};
    sumi_bind_fused(b, &w->qkv, original, &stack, dim);
    if (model->has_biases) sumi_bind_stacked_bias(b, &w->qkv_bias, &stack);
    sumi_bind_norm(b, &w->q_norm, sumi_bind_join(n[0], prefix, names->q_norm), model->head_dim);
    sumi_bind_norm(b, &w->k_norm, sumi_bind_join(n[0], prefix, names->k_norm), model->head_dim);
    bind_layer(model, b, &w->out, &w->out_bias, sumi_bind_join(n[0], prefix, names->out), dim, dim);
    bind_layer(model, b, &w->mlp_in, &w->mlp_in_bias,
               sumi_bind_join(n[0], prefix, model->is_gated ? names->gated_in : names->plain_in), mlp_rows(model), dim);
    bind_layer(model, b, &w->mlp_out, &w->mlp_out_bias,
               sumi_bind_join(n[0], prefix, model->is_gated ? names->gated_out : names->plain_out), dim, model->hidden);
}

static void bind_single(const sumi_flux_dit* model, sumi_binder* b, sumi_flux_single* w, int32_t block)
{
    const int32_t dim = model->dim, mlp = mlp_rows(model);
    char n[4][SUMI_NAME_BYTES], prefix[64];
    snprintf(prefix, sizeof prefix, "single_transformer_blocks.%d", (int)block);
    if (model->has_block_modulation) {
        bind_layer(model, b, &w->modulation, &w->modulation_bias, sumi_bind_join(n[0], prefix, "norm.linear"),
                   SINGLE_VECTORS * dim, dim);
        w->modulation.keeps_precision = true;
        const char* qkv[] = {sumi_bind_join(n[0], prefix, "attn.to_q"), sumi_bind_join(n[1], prefix, "attn.to_k"),
                             sumi_bind_join(n[2], prefix, "attn.to_v")};
        const int32_t rows[] = {dim, dim, dim};
        const sumi_module_stack stack = {sumi_bind_join(n[3], prefix, "attn.to_qkv"), qkv, rows, 3};
        sumi_bind_stack(b, &w->qkv, &stack, dim);
        if (model->has_biases) sumi_bind_stacked_bias(b, &w->qkv_bias, &stack);
        bind_layer(model, b, &w->mlp_in, &w->mlp_in_bias, sumi_bind_join(n[0], prefix, "proj_mlp"), mlp, dim);
    } else {
        const char* labels[] = {sumi_bind_join(n[1], prefix, "attn.to_qkv"), sumi_bind_join(n[2], prefix, "mlp_in")};
        sumi_weight* const weights[] = {&w->qkv, &w->mlp_in};
        const int32_t rows[] = {3 * dim, mlp};
        sumi_bind_parts(
            b, &(sumi_module_parts){sumi_bind_join(n[0], prefix, "attn.to_qkv_mlp_proj"), labels, weights, rows, 2},
            dim);
    }
    sumi_bind_norm(b, &w->q_norm, sumi_bind_join(n[0], prefix, "attn.norm_q.weight"), model->head_dim);
    sumi_bind_norm(b, &w->k_norm, sumi_bind_join(n[0], prefix, "attn.norm_k.weight"), model->head_dim);
    bind_layer(model, b, &w->out, &w->out_bias,
               sumi_bind_join(n[0], prefix, model->has_block_modulation ? "proj_out" : "attn.to_out"), dim,
               dim + model->hidden);
}

typedef struct config_values {
    int32_t doubles, singles, heads, head_dim, features, in_channels, out_channels, patch;
    int32_t axes[SUMI_FLUX_DIT_MAX_AXES], axis_count;
    double theta;
    bool guidance_embeds;
} config_values;

static void read_flux_config(const sumi_flux_dit* model, sumi_binder* b, config_values* c,
                             const sumi_module_config* config)
{
    *c = (config_values){.patch = 1, .theta = model->settings->theta};
    const sumi_config_field fields[] = {
        {"num_layers", SUMI_CONFIG_INTEGER, &c->doubles, 0, NULL},
        {"num_single_layers", SUMI_CONFIG_INTEGER, &c->singles, 0, NULL},
        {"num_attention_heads", SUMI_CONFIG_INTEGER, &c->heads, 0, NULL},
        {"attention_head_dim", SUMI_CONFIG_INTEGER, &c->head_dim, 0, NULL},
        {"joint_attention_dim", SUMI_CONFIG_INTEGER, &c->features, 0, NULL},
        {"in_channels", SUMI_CONFIG_INTEGER, &c->in_channels, 0, NULL},
        {"out_channels", SUMI_CONFIG_INTEGER, &c->out_channels, 0, NULL},
        {"patch_size", SUMI_CONFIG_INTEGER, &c->patch, 0, NULL},
        {"axes_dims_rope", SUMI_CONFIG_INTEGERS, c->axes, SUMI_FLUX_DIT_MAX_AXES, &c->axis_count},
        {"rope_theta", SUMI_CONFIG_NUMBER, &c->theta, 0, NULL},
        {"guidance_embeds", SUMI_CONFIG_BOOL, &c->guidance_embeds, 0, NULL}};
    b->result = sumi_config_read(config, fields, sizeof fields / sizeof *fields, b->error);
    if (c->guidance_embeds || sumi_bind_has_prefix(b, "time_guidance_embed.guidance_embedder.")
        || sumi_bind_has_prefix(b, "time_text_embed.guidance_embedder.") || sumi_bind_has_prefix(b, "guidance_in.")) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: this transformer takes the guidance as an input (guidance_embeds), which is not "
                       "supported%s%s",
                       config->path, model->settings->guidance_advice != NULL ? "; " : "",
                       model->settings->guidance_advice != NULL ? model->settings->guidance_advice : "");
    }
    if (c->patch != 1) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: patch_size is %d; only 1 is supported", config->path, (int)c->patch);
    }
    if (!(c->theta > 1.0)) {
        sumi_bind_fail(b, SUMI_FILE_MALFORMED, "%s: rope_theta is %g, not a number above 1", config->path, c->theta);
    }
}

// All widths follow from the shapes; the config must agree with them.
static void find_flux_sizes(sumi_flux_dit* model, sumi_binder* b, const config_values* c, const char* path)
{
    static const char s_time_shared[] = "time_guidance_embed", s_time_block[] = "time_text_embed";
    char time_in[SUMI_NAME_BYTES];
    model->has_block_modulation = sumi_bind_find(b, "double_stream_modulation_img.linear.weight") == NULL
                               && sumi_bind_find(b, "transformer_blocks.0.norm1.linear.weight") != NULL;
    model->is_gated = sumi_bind_find(b, "transformer_blocks.0.ff.net.0.proj.weight") == NULL;
    model->has_biases = sumi_bind_find(b, "x_embedder.bias") != NULL;
    snprintf(time_in, sizeof time_in, "%s.timestep_embedder.linear_1.weight",
             model->has_block_modulation ? s_time_block : s_time_shared);
    model->dim = sumi_bind_size(b, "x_embedder.weight", 0);
    model->channels = sumi_bind_size(b, "x_embedder.weight", 1);
    model->head_dim = sumi_bind_size(b, "transformer_blocks.0.attn.norm_q.weight", 0);
    model->hidden = sumi_bind_size(
        b, model->is_gated ? "transformer_blocks.0.ff.linear_out.weight" : "transformer_blocks.0.ff.net.2.weight", 1);
    model->feature_width = sumi_bind_size(b, "context_embedder.weight", 1);
    model->time_hidden = sumi_bind_size(b, time_in, 0);
    model->time_width = sumi_bind_size(b, time_in, 1);
    if (b->result != SUMI_OK) return;
    if (model->has_biases && !model->has_block_modulation) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: a transformer with biases whose blocks share their modulation is not supported",
                       b->component->path);
        return;
    }
    if (model->settings->keeps_references && model->has_block_modulation) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: a transformer that keeps the keys and values of references and whose blocks have their own "
                       "modulation is not supported",
                       b->component->path);
        return;
    }
    model->patch = 1;
    model->theta = c->theta;
    model->heads = sumi_bind_heads(b, model->dim, model->head_dim, model->time_width);
    if (b->result != SUMI_OK) return;
    sumi_bind_check(b, path, "num_attention_heads", c->heads, model->heads);
    sumi_bind_check(b, path, "attention_head_dim", c->head_dim, model->head_dim);
    sumi_bind_check(b, path, "in_channels", c->in_channels, model->channels);
    sumi_bind_check(b, path, "out_channels", c->out_channels, model->channels);
    sumi_bind_check(b, path, "joint_attention_dim", c->features, model->feature_width);
    model->axis_count = model->settings->axis_count;
    sumi_bind_axes(b,
                   &(sumi_axis_split){.config_path = path,
                                      .key = "axes_dims_rope",
                                      .dims = c->axes,
                                      .dim_count = c->axis_count,
                                      .shares = model->settings->axis_share,
                                      .axis_count = model->axis_count,
                                      .head_dim = model->head_dim},
                   model->axis_pairs);
    const bool is_original = sumi_bind_has_prefix(b, "double_blocks.");
    const int32_t doubles = sumi_bind_count(b, is_original ? "double_blocks." : "transformer_blocks."),
                  singles = sumi_bind_count(b, is_original ? "single_blocks." : "single_transformer_blocks.");
    model->double_count = c->doubles != 0 ? c->doubles : doubles;
    model->single_count = c->singles != 0 ? c->singles : singles;
    // if there are fewer blocks than the config says, binding reports the missing tensor by its name
    if (doubles > model->double_count) sumi_bind_check(b, path, "num_layers", c->doubles, doubles);
    if (singles > model->single_count) sumi_bind_check(b, path, "num_single_layers", c->singles, singles);
    if (model->double_count < 1 || model->single_count < 1 || model->double_count > SUMI_FLUX_DIT_MAX_BLOCKS
        || model->single_count > SUMI_FLUX_DIT_MAX_BLOCKS) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: %d double and %d single blocks; 1 to %d of each are supported",
                       b->component->path, (int)model->double_count, (int)model->single_count,
                       SUMI_FLUX_DIT_MAX_BLOCKS);
    }
}

// The final modulation, whose halves the authors' files have in the other order. An adapter's layer of either name goes
// to the halves that it means.
static void bind_final_modulation(sumi_flux_dit* model, sumi_binder* b)
{
    static const char s_diffusers[] = "norm_out.linear", s_original[] = "final_layer.adaLN_modulation.1";
    const int32_t dim = model->dim;
    sumi_weight* weight = &model->final_modulation;
    model->final_shift_first = sumi_bind_find(b, "norm_out.linear.weight") == NULL
                            && sumi_bind_find(b, "final_layer.adaLN_modulation.1.weight") != NULL;
    bind_layer(model, b, weight, &model->final_modulation_bias, model->final_shift_first ? s_original : s_diffusers,
               2 * dim, dim);
    const sumi_target_part swapped[] = {{weight, dim, dim}, {weight, 0, dim}};
    if (b->result == SUMI_OK)
        sumi_bind_target_parts(b, model->final_shift_first ? s_diffusers : s_original, swapped, 2);
}

static void* reserve_blocks(sumi_binder* b, int32_t count, size_t block_bytes)
{
    const size_t bytes = (size_t)count * block_bytes;
    void* blocks = sumi_weight_list_reserve(b->list, bytes);
    if (blocks == NULL) b->result = sumi_out_of_memory(b->error, bytes, "the transformer's blocks");
    return blocks;
}

static sumi_result bind_flux_dit(void* memory, const void* settings, sumi_binder* b, const sumi_module_config* config)
{
    sumi_flux_dit* model = memory;
    config_values c;
    model->settings = settings;
    b->alias = flux_dit_alias;
    read_flux_config(model, b, &c, config);
    find_flux_sizes(model, b, &c, config->path);
    if (b->result != SUMI_OK) return b->result;
    model->doubles = reserve_blocks(b, model->double_count, sizeof *model->doubles);
    if (model->doubles != NULL) model->singles = reserve_blocks(b, model->single_count, sizeof *model->singles);
    if (b->result != SUMI_OK) return b->result;
    const int32_t dim = model->dim;
    const char* time = model->has_block_modulation ? "time_text_embed" : "time_guidance_embed";
    char name[SUMI_NAME_BYTES];
    bind_layer(model, b, &model->image_in, &model->image_in_bias, "x_embedder", dim, model->channels);
    bind_layer(model, b, &model->text_in, &model->text_in_bias, "context_embedder", dim, model->feature_width);
    snprintf(name, sizeof name, "%s.timestep_embedder.linear_1", time);
    bind_layer(model, b, &model->time_in, &model->time_in_bias, name, model->time_hidden, model->time_width);
    snprintf(name, sizeof name, "%s.timestep_embedder.linear_2", time);
    bind_layer(model, b, &model->time_out, &model->time_out_bias, name, dim, model->time_hidden);
    if (!model->has_block_modulation) {
        sumi_bind_matrix(b, &model->shared[SHARED_IMAGE], "double_stream_modulation_img.linear", DOUBLE_VECTORS * dim,
                         dim);
        sumi_bind_matrix(b, &model->shared[SHARED_TEXT], "double_stream_modulation_txt.linear", DOUBLE_VECTORS * dim,
                         dim);
        sumi_bind_matrix(b, &model->shared[SHARED_SINGLE], "single_stream_modulation.linear", SINGLE_VECTORS * dim,
                         dim);
    }
    bind_final_modulation(model, b);
    bind_layer(model, b, &model->final_linear, &model->final_linear_bias, "proj_out", model->channels, dim);
    for (int32_t i = 0; i < model->double_count; i++) {
        for (int32_t side = 0; side < 2; side++)
            bind_stream(model, b, &model->doubles[i].side[side], i, &s_streams[side]);
    }
    for (int32_t i = 0; i < model->single_count; i++) bind_single(model, b, &model->singles[i], i);
    sumi_weight* precise[] = {&model->image_in,  &model->text_in,          &model->time_in,
                              &model->time_out,  &model->shared[0],        &model->shared[1],
                              &model->shared[2], &model->final_modulation, &model->final_linear};
    for (size_t i = 0; i < sizeof precise / sizeof *precise; i++) precise[i]->keeps_precision = true;
    return b->result;
}

static sumi_denoiser_properties flux_dit_properties(const void* memory)
{
    const sumi_flux_dit* model = memory;
    return (sumi_denoiser_properties){.channels = model->channels,
                                      .patch = model->patch,
                                      .stream_width = model->dim,
                                      .feature_width = {model->feature_width},
                                      .takes_references = model->settings->reference_frame != 0};
}

// ---- What all evaluations share -------------------------------------------------------------------------------------

typedef struct flux_state {
    sumi_value captions; // [all prompts, dim], the input of the first block
    int32_t caption_begin[SUMI_MAX_PROMPTS];
    sumi_value condition;              // SiLU of the embedded times, [evaluations, dim]
    sumi_value shared[3], final_table; // finished modulation of all evaluations; shared: not with block modulation
    sumi_value rope[2];                // for each slot, for the rows of the joint matrix
    // If the job keeps references: modulation of time 0, one row for images in double blocks and one for single blocks;
    // k | v of each block, [rows of all references, 2 * dim].
    sumi_value zero[3], kept_double[SUMI_FLUX_DIT_MAX_BLOCKS], kept_single[SUMI_FLUX_DIT_MAX_BLOCKS];
} flux_state;

static bool keeps_references(const sumi_flux_dit* model, const sumi_denoising* job)
{
    return model->settings->keeps_references && job->reference_count > 0;
}

static const sumi_weight* bias_of(const sumi_flux_dit* model, const sumi_weight* bias)
{
    return model->has_biases ? bias : NULL;
}

static void write_flux_captions(const sumi_flux_dit* model, sumi_plan* plan, const sumi_denoising* job)
{
    flux_state* state = job->state;
    int32_t rows = 0;
    for (int32_t p = 0; p < job->prompt_count; p++) {
        state->caption_begin[p] = rows;
        rows += job->prompts[p].count[0];
    }
    state->captions = sumi_plan_value(plan, "captions", SUMI_ELEMENT_ACTIVATION, rows, model->dim);
    for (int32_t p = 0; p < job->prompt_count; p++) {
        const sumi_prompt_features* prompt = &job->prompts[p];
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "context_embedder",
                                                        .x = prompt->value[0],
                                                        .x_row = prompt->row[0],
                                                        .rows = prompt->count[0],
                                                        .weight = &model->text_in,
                                                        .bias = bias_of(model, &model->text_in_bias),
                                                        .y = state->captions,
                                                        .y_row = state->caption_begin[p]});
    }
}

// The times of all evaluations, followed by time 0.
static sumi_value write_times_and_zero(sumi_plan* plan, const sumi_denoising* job)
{
    const float zero = 0.0f;
    const int32_t count = job->evaluation_count;
    sumi_value times = sumi_plan_value(plan, "times_and_zero", SUMI_ELEMENT_FLOAT, count + 1, 1);
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = job->times, .y = times, .rows = count});
    sumi_plan_copy_rows(
        plan, &(sumi_plan_copy_args){
                  .x = sumi_plan_constant(plan, "zero", SUMI_ELEMENT_FLOAT, 1, 1, &zero), .y = times, .y_row = count});
    return times;
}

// SiLU(mlp(sinusoids(t))) for all evaluations, and for time 0 as the last row if the job keeps references. The recipe's
// times are those that the sinusoids are taken of.
static sumi_value write_flux_condition(const sumi_flux_dit* model, sumi_plan* plan, const sumi_denoising* job)
{
    sumi_plan_prefix(plan, "time_embed.");
    const sumi_value times = keeps_references(model, job) ? write_times_and_zero(plan, job) : job->times;
    sumi_value e = sumi_plan_time_embed(
        plan, &(sumi_plan_time_args){
                  .times = times, .width = model->time_width, .scale = 1.0f, .max_period = PERIOD, .cos_first = true});
    sumi_value hidden = sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "linear_1",
                                                                        .x = e,
                                                                        .weight = &model->time_in,
                                                                        .bias = bias_of(model, &model->time_in_bias),
                                                                        .activation = SUMI_ACT_SILU});
    sumi_value c = sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "linear_2",
                                                                   .x = hidden,
                                                                   .weight = &model->time_out,
                                                                   .bias = bias_of(model, &model->time_out_bias)});
    sumi_plan_prefix(plan, "%s", "");
    return sumi_plan_activate(plan, c, SUMI_ACT_SILU);
}

// A modulation layer for rows of the condition, finished.
typedef struct modulation_layer {
    const char* label;
    const sumi_weight *weight, *bias;
    sumi_value x;
    int32_t vector_count;
    uint32_t adds_one;
} modulation_layer;

static sumi_value write_flux_modulation(sumi_plan* plan, const modulation_layer* layer)
{
    sumi_value table =
        sumi_plan_value(plan, "modulation", SUMI_ELEMENT_FLOAT, sumi_plan_rows(plan, layer->x), layer->weight->rows);
    sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = layer->label, .x = layer->x, .weight = layer->weight, .bias = layer->bias, .y = table});
    return sumi_plan_modulation(plan, &(sumi_plan_modulation_args){.label = layer->label,
                                                                   .table = table,
                                                                   .vector_count = layer->vector_count,
                                                                   .adds_one = layer->adds_one});
}

static int32_t final_scale(const sumi_flux_dit* model) { return model->final_shift_first ? 1 : 0; }

// Writes frame, row and column of a picture's tokens.
static void fill_picture(int32_t* position, int32_t axes, int32_t frame, int32_t height, int32_t width)
{
    for (int32_t i = 0; i < height * width; i++, position += axes) {
        position[0] = frame;
        position[1] = i / width;
        position[2] = i % width;
    }
}

static sumi_value write_flux_rope(const sumi_flux_dit* model, sumi_plan* plan, const int32_t* positions, int32_t rows)
{
    sumi_value value = sumi_plan_constant(plan, "positions", SUMI_ELEMENT_INT, rows, model->axis_count, positions);
    sumi_plan_rope_args rope = {.positions = value, .axes = model->axis_count, .theta = model->theta};
    memcpy(rope.pairs, model->axis_pairs, sizeof model->axis_pairs);
    return sumi_plan_rope_table(plan, &rope);
}

// Memory for the positions of rows, all 0; NULL after an error.
static int32_t* make_positions(const sumi_flux_dit* model, sumi_plan* plan, int32_t rows)
{
    const size_t bytes = (size_t)rows * (size_t)model->axis_count * sizeof(int32_t);
    int32_t* positions = plan->error.result == SUMI_OK ? sumi_alloc_zero(plan->heap, bytes) : NULL;
    if (positions == NULL) sumi_out_of_memory(&plan->error, bytes, "token positions");
    return positions;
}

// Writes the positions of the tokens of all references.
static void fill_references(const sumi_flux_dit* model, const sumi_denoising* job, int32_t* position)
{
    for (int32_t i = 0; i < job->reference_count; i++) {
        const int32_t height = job->references[i].height / model->patch,
                      width = job->references[i].width / model->patch;
        fill_picture(position, model->axis_count, model->settings->reference_frame * (i + 1), height, width);
        position += (size_t)model->axis_count * (size_t)(height * width);
    }
}

// The order of rows of a list of evaluations.
static void lay_out(const sumi_flux_dit* model, const sumi_denoising* job, const sumi_evaluation_list* list,
                    sumi_joint_rows* out)
{
    if (model->settings->keeps_references) sumi_joint_rows_lay_out_kept(job, list, model->patch, out);
    else sumi_joint_rows_lay_out(job, list, model->patch, out);
}

static void write_flux_layout(const void* memory, sumi_plan* plan, sumi_denoising* job,
                              const sumi_evaluation_list* list)
{
    const sumi_flux_dit* model = memory;
    flux_state* state = job->state;
    const int32_t axes = model->axis_count;
    sumi_joint_rows l;
    lay_out(model, job, list, &l);
    int32_t* positions = make_positions(model, plan, l.rows);
    if (positions == NULL) return;
    for (int32_t s = 0; s < l.count; s++) {
        fill_picture(positions + (size_t)axes * (size_t)l.target_begin[s], axes, 0, l.height, l.width);
        if (l.kept_rows == 0) fill_references(model, job, positions + (size_t)axes * (size_t)l.reference_begin[s]);
        int32_t* position = positions + (size_t)axes * (size_t)l.text_begin[s];
        for (int32_t i = 0; i < l.text[s] && axes > 3; i++, position += axes) position[3] = i;
    }
    sumi_plan_prefix(plan, "%s", "");
    state->rope[list->slot] = write_flux_rope(model, plan, positions, l.rows);
    sumi_free(plan->heap, positions);
    if (job->keeps_residuals)
        job->residuals[list->slot] = sumi_block_residuals_make(plan, l.count * l.tokens, model->dim);
}

// ---- Blocks ---------------------------------------------------------------------------------------------------------

// Neighbouring rows of one stream.
typedef struct flux_run {
    int32_t side;
    sumi_span rows; // of the joint matrix
    sumi_value view;
} flux_run;

typedef struct flux_writer {
    const sumi_flux_dit* model;
    sumi_plan* plan;
    sumi_denoising* job;
    flux_state* state;
    const char* prefix; // of labels
    // The rows are the references, which see each other at time 0. Each block keeps their keys and values.
    bool keeps;
    sumi_block_residuals* residuals; // of the job, for this list of evaluations
    sumi_joint_rows layout;
    sumi_value rope;
    sumi_value x;         // the joint matrix, [rows, dim]
    sumi_value condition; // with block modulation: the row of this evaluation
    flux_run runs[2 * SUMI_MAX_JOINT_EVALUATIONS + 1];
    int32_t run_count;
    int32_t target_rows;
    // The rows of all targets: one run, or with kept references one of each evaluation.
    flux_run targets[SUMI_MAX_JOINT_EVALUATIONS];
    int32_t target_run_count;
    sumi_sequence sequences[SUMI_MAX_JOINT_EVALUATIONS];
} flux_writer;

static void add_flux_run(flux_writer* w, int32_t side, int32_t row, int32_t rows)
{
    flux_run* before = w->run_count > 0 ? &w->runs[w->run_count - 1] : NULL;
    if (rows == 0) return;
    if (before != NULL && before->side == side) {
        SUMI_ASSERT(before->rows.begin + before->rows.count == row);
        before->rows.count += rows;
        return;
    }
    SUMI_ASSERT(w->run_count < (int32_t)(sizeof w->runs / sizeof *w->runs));
    w->runs[w->run_count++] = (flux_run){.side = side, .rows = {row, rows}};
}

static sumi_value view_rows(const flux_writer* w, const char* name, sumi_value of, sumi_span rows)
{
    return sumi_plan_view(w->plan, name, of, rows, (sumi_span){0, sumi_plan_cols(w->plan, of)});
}

// Cuts the joint matrix into runs, from its first row to its last.
static void plan_runs(flux_writer* w)
{
    const sumi_joint_rows* l = &w->layout;
    w->target_rows = l->count * l->tokens;
    w->x = sumi_plan_value(w->plan, "stream", SUMI_ELEMENT_ACTIVATION, l->rows, w->model->dim);
    if (l->kept_rows == 0) add_flux_run(w, SUMI_FLUX_IMAGE, 0, w->target_rows);
    for (int32_t i = 0; i < l->count; i++) {
        const int32_t s = l->order[i];
        if (l->kept_rows > 0) add_flux_run(w, SUMI_FLUX_IMAGE, l->target_begin[s], l->tokens);
        const bool has_text_first = l->text_begin[s] < l->reference_begin[s];
        if (has_text_first) add_flux_run(w, SUMI_FLUX_TEXT, l->text_begin[s], l->text[s]);
        add_flux_run(w, SUMI_FLUX_IMAGE, l->reference_begin[s], l->reference_rows);
        if (!has_text_first) add_flux_run(w, SUMI_FLUX_TEXT, l->text_begin[s], l->text[s]);
        w->sequences[s] = sumi_joint_rows_sequence(l, s);
    }
    for (int32_t i = 0; i < w->run_count; i++) w->runs[i].view = view_rows(w, "rows", w->x, w->runs[i].rows);
    if (l->kept_rows > 0) {
        for (int32_t i = 0; i < w->run_count; i++) {
            if (w->runs[i].side == SUMI_FLUX_IMAGE) w->targets[w->target_run_count++] = w->runs[i];
        }
        return;
    }
    const sumi_span targets = {0, w->target_rows}; // the first run begins with them
    w->targets[w->target_run_count++] =
        (flux_run){SUMI_FLUX_IMAGE, targets, view_rows(w, "targets", w->runs[0].view, targets)};
}

// Writes the patches of all targets, and of the references for every evaluation, through x_embedder; and the prompts.
static void write_flux_inputs(flux_writer* w, sumi_value latents, const sumi_evaluation* list)
{
    const sumi_flux_dit* model = w->model;
    const sumi_denoising* job = w->job;
    const sumi_joint_rows* l = &w->layout;
    sumi_plan* plan = w->plan;
    const sumi_value patches = sumi_joint_rows_patches(l, plan, job, latents, model->channels);
    sumi_plan_linear_args in = {.label = "x_embedder",
                                .x = patches,
                                .weight = &model->image_in,
                                .bias = bias_of(model, &model->image_in_bias),
                                .y = w->x};
    for (int32_t i = 0; i < w->target_run_count; i++) {
        in.rows = w->targets[i].rows.count;
        in.y_row = w->targets[i].rows.begin;
        sumi_plan_linear(plan, &in);
        in.x_row += in.rows;
    }
    for (int32_t s = 0; s < l->count && l->reference_rows > 0; s++) {
        in.x_row = w->target_rows;
        in.rows = l->reference_rows;
        in.y_row = l->reference_begin[s];
        sumi_plan_linear(plan, &in);
    }
    for (int32_t s = 0; s < l->count; s++) {
        sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = w->state->captions,
                                                         .x_row = w->state->caption_begin[list[s].prompt],
                                                         .y = w->x,
                                                         .y_row = l->text_begin[s],
                                                         .rows = l->text[s]});
    }
}

// The row of a block's modulation in this evaluation.
static sumi_step_row modulation_of(const flux_writer* w, int32_t shared, const sumi_weight* weight,
                                   const sumi_weight* bias)
{
    const bool is_single = shared == SHARED_SINGLE;
    if (w->keeps) return (sumi_step_row){w->state->zero[shared], 0, false};
    if (!w->model->has_block_modulation) return (sumi_step_row){w->state->shared[shared], 0, true};
    return (sumi_step_row){
        write_flux_modulation(w->plan, &(modulation_layer){.label = "modulation",
                                                           .weight = weight,
                                                           .bias = bias_of(w->model, bias),
                                                           .x = w->condition,
                                                           .vector_count = is_single ? SINGLE_VECTORS : DOUBLE_VECTORS,
                                                           .adds_one = is_single ? SINGLE_ADDS_ONE : DOUBLE_ADDS_ONE}),
        0, false};
}

static sumi_step_row vector_of(const flux_writer* w, sumi_step_row row, int32_t vector)
{
    return (sumi_step_row){row.table, vector * w->model->dim, row.per_step};
}

// ln(x) * (1 + scale) + shift of some rows, as a new value. first: the vector of the shift; the scale follows.
static sumi_value write_flux_norm(const flux_writer* w, const char* label, sumi_span rows, sumi_step_row modulation,
                                  int32_t first)
{
    return sumi_plan_norm(w->plan, &(sumi_plan_norm_args){.label = label,
                                                          .x = w->x,
                                                          .x_row = rows.begin,
                                                          .rows = rows.count,
                                                          .norm = SUMI_NORM_LAYER,
                                                          .eps = EPS,
                                                          .scale = vector_of(w, modulation, first + 1),
                                                          .shift = vector_of(w, modulation, first)});
}

static sumi_attention flux_attention(flux_writer* w, bool only_targets)
{
    const sumi_flux_dit* model = w->model;
    for (int32_t s = 0; s < w->layout.count && !w->keeps && w->layout.kept_rows == 0; s++)
        w->sequences[s].query_spans = only_targets ? 1 : 2;
    return (sumi_attention){.q_heads = model->heads,
                            .kv_heads = model->heads,
                            .dim = model->head_dim,
                            .scale = (float)(1.0 / sqrt((double)model->head_dim)),
                            .sequences = w->sequences,
                            .sequence_count = w->layout.count};
}

// Rows of q, k and v whose heads are normed and rotated.
typedef struct qk_rows {
    const char* label;
    const sumi_weight *q_norm, *k_norm;
    sumi_span rows;
} qk_rows;

static void write_qk(const flux_writer* w, sumi_value qkv, const qk_rows* qk)
{
    sumi_plan_qk_norm_rope(w->plan, &(sumi_plan_qk_args){.label = qk->label,
                                                         .qkv = qkv,
                                                         .row = qk->rows.begin,
                                                         .rows = qk->rows.count,
                                                         .q_heads = w->model->heads,
                                                         .kv_heads = w->model->heads,
                                                         .dim = w->model->head_dim,
                                                         .q_norm = qk->q_norm,
                                                         .k_norm = qk->k_norm,
                                                         .eps = EPS,
                                                         .rotary = SUMI_ROTARY_INTERLEAVED,
                                                         .rope = w->rope,
                                                         .rope_row = qk->rows.begin});
}

// Copies k and v out of q, k and v.
static sumi_value write_kept(const flux_writer* w, sumi_value qkv)
{
    const int32_t dim = w->model->dim, rows = w->layout.rows;
    sumi_value k_and_v = sumi_plan_view(w->plan, "k_and_v", qkv, (sumi_span){0, rows}, (sumi_span){dim, 2 * dim});
    sumi_value kept = sumi_plan_value(w->plan, "kept", SUMI_ELEMENT_ACTIVATION, rows, 2 * dim);
    sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = k_and_v, .y = kept, .rows = rows});
    return kept;
}

// What follows attention in a double block, for the rows of a run: x += g1 * linear(o); x += g2 * mlp(..)
static void write_double_run(const flux_writer* w, const sumi_flux_stream_weights* weights, const flux_run* run,
                             sumi_value attention, sumi_step_row modulation)
{
    const sumi_flux_dit* model = w->model;
    const stream_names* names = &s_streams[run->side];
    sumi_plan_linear(w->plan, &(sumi_plan_linear_args){.label = names->out,
                                                       .x = view_rows(w, "attended", attention, run->rows),
                                                       .weight = &weights->out,
                                                       .bias = bias_of(model, &weights->out_bias),
                                                       .residual = run->view,
                                                       .gate = vector_of(w, modulation, GATE_1)});
    sumi_value f = write_flux_norm(w, names->norm_2, run->rows, modulation, SHIFT_2);
    sumi_value hidden =
        model->is_gated && !model->has_biases
            ? sumi_plan_linear_gated(w->plan, names->gated_in, f, &weights->mlp_in, SUMI_ACT_SILU)
            : sumi_plan_linear(
                w->plan, &(sumi_plan_linear_args){.label = names->plain_in,
                                                  .x = f,
                                                  .weight = &weights->mlp_in,
                                                  .bias = bias_of(model, &weights->mlp_in_bias),
                                                  .activation = model->is_gated ? SUMI_ACT_NONE : SUMI_ACT_GELU_TANH});
    if (model->is_gated && model->has_biases) hidden = sumi_plan_gated(w->plan, names->gated_in, hidden, SUMI_ACT_SILU);
    sumi_plan_linear(w->plan, &(sumi_plan_linear_args){.label = names->gated_out,
                                                       .x = hidden,
                                                       .weight = &weights->mlp_out,
                                                       .bias = bias_of(model, &weights->mlp_out_bias),
                                                       .residual = run->view,
                                                       .gate = vector_of(w, modulation, GATE_2)});
}

// only_targets: what follows reads no other rows.
static void write_double(flux_writer* w, int32_t index, bool only_targets)
{
    const sumi_flux_dit* model = w->model;
    const sumi_flux_double* block = &model->doubles[index];
    sumi_plan_prefix(w->plan, "%stransformer_blocks.%d.", w->prefix, (int)index);
    sumi_step_row modulation[2];
    for (int32_t side = 0; side < 2; side++) {
        modulation[side] = modulation_of(w, side, &block->side[side].modulation, &block->side[side].modulation_bias);
    }
    sumi_value qkv = sumi_plan_value(w->plan, "qkv", SUMI_ELEMENT_ACTIVATION, w->layout.rows, 3 * model->dim);
    for (int32_t i = 0; i < w->run_count; i++) {
        const flux_run* run = &w->runs[i];
        const sumi_flux_stream_weights* weights = &block->side[run->side];
        const stream_names* names = &s_streams[run->side];
        sumi_plan_linear(w->plan, &(sumi_plan_linear_args){
                                      .label = names->fused,
                                      .x = write_flux_norm(w, names->norm_1, run->rows, modulation[run->side], SHIFT_1),
                                      .weight = &weights->qkv,
                                      .bias = bias_of(model, &weights->qkv_bias),
                                      .y = qkv,
                                      .y_row = run->rows.begin});
    }
    for (int32_t i = 0; i < w->run_count; i++) {
        const flux_run* run = &w->runs[i];
        const sumi_flux_stream_weights* weights = &block->side[run->side];
        write_qk(w, qkv, &(qk_rows){s_streams[run->side].qk, &weights->q_norm, &weights->k_norm, run->rows});
    }
    if (w->keeps) w->state->kept_double[index] = write_kept(w, qkv);
    const sumi_attention attention = flux_attention(w, only_targets);
    sumi_value o = SUMI_NO_VALUE;
    if (w->layout.kept_rows > 0) {
        o = sumi_plan_value(w->plan, "attention", SUMI_ELEMENT_ACTIVATION, w->layout.rows, model->dim);
        sumi_plan_attention_into(w->plan, &(sumi_plan_attention_args){.label = "attention",
                                                                      .qkv = qkv,
                                                                      .attention = &attention,
                                                                      .y = o,
                                                                      .kept = w->state->kept_double[index]});
    } else {
        o = sumi_plan_attention(w->plan, "attention", qkv, &attention);
    }
    for (int32_t i = 0; i < w->target_run_count && only_targets; i++)
        write_double_run(w, &block->side[SUMI_FLUX_IMAGE], &w->targets[i], o, modulation[SUMI_FLUX_IMAGE]);
    for (int32_t i = 0; i < w->run_count && !only_targets; i++) {
        const flux_run* run = &w->runs[i];
        write_double_run(w, &block->side[run->side], run, o, modulation[run->side]);
    }
}

// Writes the hidden layer of a single block's MLP to the columns of `joined` after attention's.
static void write_hidden(const flux_writer* w, const sumi_flux_single* block, sumi_value y, sumi_value joined)
{
    const sumi_flux_dit* model = w->model;
    if (model->is_gated && !model->has_biases) {
        sumi_plan_linear_gated_into(w->plan, &(sumi_plan_gated_args){.label = "mlp_in",
                                                                     .x = y,
                                                                     .gate_up = &block->mlp_in,
                                                                     .activation = SUMI_ACT_SILU,
                                                                     .y = joined,
                                                                     .y_column = model->dim});
        return;
    }
    sumi_value hidden = sumi_plan_linear(
        w->plan, &(sumi_plan_linear_args){.label = "mlp_in",
                                          .x = y,
                                          .weight = &block->mlp_in,
                                          .bias = bias_of(model, &block->mlp_in_bias),
                                          .activation = model->is_gated ? SUMI_ACT_NONE : SUMI_ACT_GELU_TANH});
    if (model->is_gated) hidden = sumi_plan_gated(w->plan, "mlp_in", hidden, SUMI_ACT_SILU);
    sumi_plan_copy_rows(
        w->plan, &(sumi_plan_copy_args){.x = hidden, .y = joined, .writes_some_columns = true, .y_column = model->dim});
}

// Rows of a single block after attention: normed, what attn.to_out reads, and what it adds to.
typedef struct flux_single_rows {
    sumi_value y, joined, residual;
    sumi_step_row modulation;
} flux_single_rows;

// What follows attention in a single block, for rows y after the norm and the same rows of `joined`.
static void write_single_rest(const flux_writer* w, const sumi_flux_single* block, const flux_single_rows* rows)
{
    write_hidden(w, block, rows->y, rows->joined);
    sumi_plan_linear(w->plan, &(sumi_plan_linear_args){.label = "attn.to_out",
                                                       .x = rows->joined,
                                                       .weight = &block->out,
                                                       .bias = bias_of(w->model, &block->out_bias),
                                                       .residual = rows->residual,
                                                       .gate = vector_of(w, rows->modulation, GATE_1)});
}

// only_targets: what follows reads no other rows. Nothing reads the rows of references after the last block.
static void write_single(flux_writer* w, int32_t index, bool only_targets)
{
    const sumi_flux_dit* model = w->model;
    const sumi_flux_single* block = &model->singles[index];
    const int32_t rows = w->layout.rows;
    sumi_plan_prefix(w->plan, "%ssingle_transformer_blocks.%d.", w->prefix, (int)index);
    const sumi_step_row modulation = modulation_of(w, SHARED_SINGLE, &block->modulation, &block->modulation_bias);
    sumi_value y = write_flux_norm(w, "norm", (sumi_span){0, rows}, modulation, SHIFT_1);
    sumi_value qkv = sumi_plan_linear(
        w->plan, &(sumi_plan_linear_args){
                     .label = "attn.to_qkv", .x = y, .weight = &block->qkv, .bias = bias_of(model, &block->qkv_bias)});
    write_qk(w, qkv, &(qk_rows){"attn.qk_norm_rope", &block->q_norm, &block->k_norm, {0, rows}});
    if (w->keeps) w->state->kept_single[index] = write_kept(w, qkv);
    if (w->keeps && index == model->single_count - 1) return;
    sumi_value joined =
        sumi_plan_value(w->plan, "attention_and_hidden", SUMI_ELEMENT_ACTIVATION, rows, model->dim + model->hidden);
    const sumi_attention attention = flux_attention(w, only_targets);
    sumi_plan_attention_into(
        w->plan,
        &(sumi_plan_attention_args){.label = "attention",
                                    .qkv = qkv,
                                    .attention = &attention,
                                    .y = joined,
                                    .kept = w->layout.kept_rows > 0 ? w->state->kept_single[index] : SUMI_NO_VALUE});
    if (!only_targets) {
        write_single_rest(w, block, &(flux_single_rows){y, joined, w->x, modulation});
        return;
    }
    for (int32_t i = 0; i < w->target_run_count; i++) {
        const flux_run* targets = &w->targets[i];
        const sumi_value target_y = view_rows(w, "targets", y, targets->rows),
                         target_joined = view_rows(w, "targets", joined, targets->rows);
        write_single_rest(w, block, &(flux_single_rows){target_y, target_joined, targets->view, modulation});
    }
}

// ---- References that are kept ---------------------------------------------------------------------------------------

// Memory for writing blocks: too large for the stack, which may be the host program's. NULL after an error.
static flux_writer* make_writer(const sumi_flux_dit* model, sumi_plan* plan, sumi_denoising* job)
{
    flux_writer* w = plan->error.result == SUMI_OK ? sumi_alloc_zero(plan->heap, sizeof *w) : NULL;
    if (w == NULL) {
        sumi_out_of_memory(&plan->error, sizeof *w, "writing a plan");
        return NULL;
    }
    w->model = model;
    w->plan = plan;
    w->job = job;
    w->state = job->state;
    w->prefix = "";
    return w;
}

// The rows of all references go through all blocks as one sequence.
static void write_reference_blocks(flux_writer* w)
{
    const sumi_flux_dit* model = w->model;
    sumi_plan* plan = w->plan;
    const int32_t rows = w->layout.rows;
    sumi_plan_prefix(plan, "%s", w->prefix);
    sumi_value patches =
        sumi_plan_value(plan, "patches", SUMI_ELEMENT_ACTIVATION, rows, model->patch * model->patch * model->channels);
    sumi_joint_rows_put_references(plan, w->job, model->patch, patches, 0);
    w->x = sumi_plan_value(plan, "references", SUMI_ELEMENT_ACTIVATION, rows, model->dim);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "x_embedder",
                                                    .x = patches,
                                                    .weight = &model->image_in,
                                                    .bias = bias_of(model, &model->image_in_bias),
                                                    .y = w->x});
    add_flux_run(w, SUMI_FLUX_IMAGE, 0, rows);
    w->runs[0].view = w->x;
    w->sequences[0] = (sumi_sequence){.span = {{0, rows}}, .span_count = 1, .query_spans = 1};
    for (int32_t i = 0; i < model->double_count; i++) write_double(w, i, false);
    for (int32_t i = 0; i < model->single_count; i++) write_single(w, i, false);
}

static void write_kept_references(const sumi_flux_dit* model, sumi_plan* plan, sumi_denoising* job)
{
    flux_writer* w = make_writer(model, plan, job);
    if (w == NULL) return;
    w->prefix = "references.";
    w->keeps = true;
    w->layout.count = 1; // sequence of attention
    for (int32_t i = 0; i < job->reference_count; i++)
        w->layout.rows += job->references[i].height / model->patch * (job->references[i].width / model->patch);
    int32_t* positions = make_positions(model, plan, w->layout.rows);
    if (positions != NULL) {
        fill_references(model, job, positions);
        sumi_plan_prefix(plan, "%s", w->prefix);
        w->rope = write_flux_rope(model, plan, positions, w->layout.rows);
        sumi_free(plan->heap, positions);
        write_reference_blocks(w);
    }
    sumi_plan_prefix(plan, "%s", "");
    sumi_free(plan->heap, w);
}

static void write_flux_prepare(const void* memory, sumi_plan* plan, sumi_denoising* job)
{
    static const char* const s_labels[] = {"double_stream_modulation_img", "double_stream_modulation_txt",
                                           "single_stream_modulation"};
    const sumi_flux_dit* model = memory;
    flux_state* state = job->state;
    sumi_plan_prefix(plan, "%s", "");
    write_flux_captions(model, plan, job);
    state->condition = write_flux_condition(model, plan, job);
    for (int32_t i = 0; i < 3 && !model->has_block_modulation; i++) {
        const bool is_single = i == SHARED_SINGLE;
        state->shared[i] =
            write_flux_modulation(plan, &(modulation_layer){.label = s_labels[i],
                                                            .weight = &model->shared[i],
                                                            .x = state->condition,
                                                            .vector_count = is_single ? SINGLE_VECTORS : DOUBLE_VECTORS,
                                                            .adds_one = is_single ? SINGLE_ADDS_ONE : DOUBLE_ADDS_ONE});
        if (!keeps_references(model, job) || i == SHARED_TEXT) continue;
        state->zero[i] =
            sumi_plan_value(plan, "zero_modulation", SUMI_ELEMENT_FLOAT, 1, sumi_plan_cols(plan, state->shared[i]));
        sumi_plan_copy_rows(plan,
                            &(sumi_plan_copy_args){
                                .x = state->shared[i], .x_row = job->evaluation_count, .y = state->zero[i], .rows = 1});
    }
    state->final_table =
        write_flux_modulation(plan, &(modulation_layer){.label = "norm_out.linear",
                                                        .weight = &model->final_modulation,
                                                        .bias = bias_of(model, &model->final_modulation_bias),
                                                        .x = state->condition,
                                                        .vector_count = 2,
                                                        .adds_one = 1u << final_scale(model)});
    if (keeps_references(model, job)) write_kept_references(model, plan, job);
}

// ---- One evaluation -------------------------------------------------------------------------------------------------

// A value whose first rows are those of all targets: the joint matrix, or a copy of them if others lie between.
static sumi_value write_target_rows(const flux_writer* w)
{
    if (w->target_run_count == 1) return w->x;
    sumi_value rows = sumi_plan_value(w->plan, "target_rows", SUMI_ELEMENT_ACTIVATION, w->target_rows, w->model->dim);
    for (int32_t i = 0, row = 0; i < w->target_run_count; i++) {
        const sumi_span* run = &w->targets[i].rows;
        sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){
                                         .x = w->x, .x_row = run->begin, .y = rows, .y_row = row, .rows = run->count});
        row += run->count;
    }
    return rows;
}

// Returns velocities from the rows after the last block.
static sumi_value write_flux_final(flux_writer* w, sumi_value x)
{
    const sumi_flux_dit* model = w->model;
    sumi_plan* plan = w->plan;
    sumi_plan_prefix(plan, "%s", "");
    const sumi_step_row row = {w->state->final_table, 0, true};
    sumi_value z = sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "norm_out",
                                                               .x = x,
                                                               .rows = w->target_rows,
                                                               .norm = SUMI_NORM_LAYER,
                                                               .eps = EPS,
                                                               .scale = vector_of(w, row, final_scale(model)),
                                                               .shift = vector_of(w, row, 1 - final_scale(model))});
    sumi_value out =
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "proj_out",
                                                        .x = z,
                                                        .weight = &model->final_linear,
                                                        .bias = bias_of(model, &model->final_linear_bias)});
    return sumi_joint_rows_latents(&w->layout, plan, w->job, out, model->channels);
}

// Returns a value whose first rows are those of all targets after the last block.
static sumi_value write_flux_blocks(flux_writer* w)
{
    const sumi_denoising* job = w->job;
    const bool keeps = job->kind == SUMI_EVALUATION_WHOLE, reuses = job->kind == SUMI_EVALUATION_REUSED,
               every_row = job->computes_unused_rows;
    SUMI_ASSERT((!keeps && !reuses) || !every_row);
    if (keeps) sumi_block_residuals_before_first(w->plan, w->residuals, write_target_rows(w));
    for (int32_t i = 0; i < w->model->double_count && (i == 0 || !reuses); i++) {
        write_double(w, i, reuses);
        if (!keeps || i > 0) continue;
        const sumi_value reused =
            sumi_block_residuals_after_first(w->plan, w->residuals, write_target_rows(w), &job->extrapolation);
        w->job->reused_velocities = write_flux_final(w, reused);
    }
    for (int32_t i = 0; i < w->model->single_count && !reuses; i++)
        write_single(w, i, !every_row && i == w->model->single_count - 1);
    const sumi_value targets = write_target_rows(w);
    if (keeps) sumi_block_residuals_after_last(w->plan, w->residuals, targets);
    if (reuses) sumi_block_residuals_reuse(w->plan, w->residuals, targets, &job->extrapolation);
    return targets;
}

static sumi_value write_flux_evaluation_with(flux_writer* w, sumi_value latents, const sumi_evaluation* list)
{
    const sumi_flux_dit* model = w->model;
    sumi_plan* plan = w->plan;
    sumi_plan_prefix(plan, "%s", "");
    plan_runs(w);
    write_flux_inputs(w, latents, list);
    if (model->has_block_modulation) {
        w->condition = sumi_plan_modulation(
            plan,
            &(sumi_plan_modulation_args){.label = "row", .table = w->state->condition, .rows = 1, .per_step = true});
    }
    return write_flux_final(w, write_flux_blocks(w));
}

static sumi_value write_flux_evaluation(const void* memory, sumi_plan* plan, sumi_denoising* job,
                                        const sumi_evaluation_list* list, sumi_value latents)
{
    flux_writer* w = make_writer(memory, plan, job);
    if (w == NULL) return SUMI_NO_VALUE;
    w->rope = w->state->rope[list->slot];
    w->residuals = &job->residuals[list->slot];
    lay_out(w->model, job, list, &w->layout);
    sumi_value velocity = write_flux_evaluation_with(w, latents, list->evaluations);
    sumi_free(plan->heap, w);
    return velocity;
}

const sumi_denoiser_module sumi_flux_dit_module = {.model_bytes = sizeof(sumi_flux_dit),
                                                   .state_bytes = sizeof(flux_state),
                                                   .bind = bind_flux_dit,
                                                   .properties = flux_dit_properties,
                                                   .write_prepare = write_flux_prepare,
                                                   .write_layout = write_flux_layout,
                                                   .write_evaluation = write_flux_evaluation};
