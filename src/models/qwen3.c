#include "models/qwen3.h"
#include "models/config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- Weights --------------------------------------------------------------------------------------------------------

// Canonical "model.layers.3.self_attn.q_proj.weight" -> "layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight".
static bool other_name(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    (void)context;
    static const char* const llama_cpp[][2] = {
        {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
        {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
        {"self_attn.o_proj", "attn_output"}, {"post_attention_layernorm", "ffn_norm"},
        {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"}};
    if (which == 0) { return sumi_replace_text(canonical, "model.", "", out, out_bytes); }
    if (which > 1) { return false; }
    if (strcmp(canonical, "model.embed_tokens.weight") == 0 || strcmp(canonical, "model.norm.weight") == 0) {
        snprintf(out, out_bytes, "%s",
                 strcmp(canonical, "model.norm.weight") == 0 ? "output_norm.weight" : "token_embd.weight");
        return true;
    }
    char block[SUMI_NAME_BYTES];
    if (!sumi_replace_text(canonical, "model.layers.", "blk.", block, sizeof block)) { return false; }
    for (size_t i = 0; i < sizeof llama_cpp / sizeof *llama_cpp; i++) {
        if (sumi_replace_text(block, llama_cpp[i][0], llama_cpp[i][1], out, out_bytes)) { return true; }
    }
    return false;
}

static const char* name_in(char* out, int32_t layer, const char* rest)
{
    snprintf(out, SUMI_NAME_BYTES, "model.layers.%d.%s", (int)layer, rest);
    return out;
}

static void bind_layer(sumi_qwen3* model, sumi_binder* b, int32_t layer)
{
    sumi_qwen3_layer* l = &model->layers[layer];
    int32_t q = model->q_heads * model->head_dim, kv = model->kv_heads * model->head_dim;
    char n[4][SUMI_NAME_BYTES];
    sumi_bind_vector(b, &l->input_norm, name_in(n[0], layer, "input_layernorm.weight"), model->width);
    const char* qkv[] = {name_in(n[0], layer, "self_attn.q_proj"), name_in(n[1], layer, "self_attn.k_proj"),
                         name_in(n[2], layer, "self_attn.v_proj")};
    sumi_bind_stack(b, &l->qkv, name_in(n[3], layer, "self_attn.qkv"), qkv, (const int32_t[]){q, kv, kv}, 3,
                    model->width);
    sumi_bind_vector(b, &l->q_norm, name_in(n[0], layer, "self_attn.q_norm.weight"), model->head_dim);
    sumi_bind_vector(b, &l->k_norm, name_in(n[0], layer, "self_attn.k_norm.weight"), model->head_dim);
    sumi_bind_matrix(b, &l->out, name_in(n[0], layer, "self_attn.o_proj"), model->width, q);
    sumi_bind_vector(b, &l->post_norm, name_in(n[0], layer, "post_attention_layernorm.weight"), model->width);
    const char* gate_up[] = {name_in(n[0], layer, "mlp.gate_proj"), name_in(n[1], layer, "mlp.up_proj")};
    sumi_bind_stack(b, &l->gate_up, name_in(n[3], layer, "mlp.gate_up"), gate_up,
                    (const int32_t[]){model->hidden, model->hidden}, 2, model->width);
    sumi_bind_matrix(b, &l->down, name_in(n[0], layer, "mlp.down_proj"), model->width, model->hidden);
}

sumi_result sumi_qwen3_bind(sumi_qwen3* model, sumi_binder* b, const void* config, size_t config_bytes,
                            const char* config_path)
{
    b->alias = other_name;
    int32_t layers = 0, q_heads = 0, kv_heads = 0;
    bool has_bias = false, slides = false;
    double eps = 1e-6, theta = 1e6;
    const sumi_config_field fields[] = {{"num_hidden_layers", SUMI_CONFIG_INTEGER, &layers, 0, NULL},
                                        {"num_attention_heads", SUMI_CONFIG_INTEGER, &q_heads, 0, NULL},
                                        {"num_key_value_heads", SUMI_CONFIG_INTEGER, &kv_heads, 0, NULL},
                                        {"rms_norm_eps", SUMI_CONFIG_NUMBER, &eps, 0, NULL},
                                        {"rope_theta", SUMI_CONFIG_NUMBER, &theta, 0, NULL},
                                        {"rope_parameters.rope_theta", SUMI_CONFIG_NUMBER, &theta, 0, NULL},
                                        {"attention_bias", SUMI_CONFIG_BOOL, &has_bias, 0, NULL},
                                        {"use_sliding_window", SUMI_CONFIG_BOOL, &slides, 0, NULL}};
    b->result = sumi_config_read(config, config_bytes, config_path, fields, sizeof fields / sizeof *fields, b->error);
    if (has_bias || slides) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: attention biases and sliding windows are not supported in the Qwen3 text encoder",
                       config_path);
    }

    // widths from the shapes; the config only says what shapes cannot
    model->vocabulary = sumi_bind_size(b, "model.embed_tokens.weight", 0);
    model->width = sumi_bind_size(b, "model.embed_tokens.weight", 1);
    model->head_dim = sumi_bind_size(b, "model.layers.0.self_attn.q_norm.weight", 0);
    model->hidden = sumi_bind_size(b, "model.layers.0.mlp.gate_proj.weight", 0);
    int32_t q_rows = sumi_bind_size(b, "model.layers.0.self_attn.q_proj.weight", 0),
            kv_rows = sumi_bind_size(b, "model.layers.0.self_attn.k_proj.weight", 0);
    if (b->result != SUMI_OK) { return b->result; }
    model->q_heads = q_rows / model->head_dim;
    model->kv_heads = kv_rows / model->head_dim;
    if (model->head_dim % 2 != 0 || model->q_heads * model->head_dim != q_rows || model->kv_heads < 1
        || model->kv_heads * model->head_dim != kv_rows || model->q_heads % model->kv_heads != 0
        || (q_heads != 0 && q_heads != model->q_heads) || (kv_heads != 0 && kv_heads != model->kv_heads)) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: the text encoder's q_proj has %d rows and k_proj %d for heads of %d; that is not what its "
                       "config.json says or no grouping of heads",
                       b->part->path, (int)q_rows, (int)kv_rows, (int)model->head_dim);
        return b->result;
    }
    model->eps = (float)eps;
    model->theta = theta;
    if (layers == 0) {
        static const char* const prefixes[] = {"model.layers.", "layers.", "blk."};
        for (size_t i = 0; i < 3 && layers == 0; i++) { layers = sumi_bind_count(b, prefixes[i]); }
        // a file without the final norm has been cut down to the layers that are used
        layers += sumi_bind_find(b, "model.norm.weight") == NULL ? 1 : 0;
    }
    if (layers < 2 || layers > SUMI_QWEN3_MAX_LAYERS + 1 || !(eps > 0) || !(theta > 1)) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: the text encoder has %d layers; between 2 and %d are supported",
                       b->part->path, (int)layers, SUMI_QWEN3_MAX_LAYERS + 1);
        return b->result;
    }
    model->layer_count = layers - 1;
    size_t bytes = (size_t)model->layer_count * sizeof *model->layers;
    model->layers = sumi_weight_list_reserve(b->list, bytes);
    if (model->layers == NULL) { return b->result = sumi_out_of_memory(b->error, bytes, "the text encoder's layers"); }
    sumi_bind_matrix(b, &model->embedding, "model.embed_tokens", model->vocabulary, model->width);
    for (int32_t layer = 0; layer < model->layer_count; layer++) { bind_layer(model, b, layer); }
    return b->result;
}

// ---- Forward --------------------------------------------------------------------------------------------------------

// cos and sin of every row's position in its own prompt.
static sumi_value write_rope(const sumi_qwen3* model, sumi_plan* plan, const int32_t* counts, int32_t prompt_count,
                             int32_t rows)
{
    int32_t* positions = sumi_alloc_array(plan->heap, (size_t)rows, sizeof *positions);
    if (positions == NULL) {
        sumi_out_of_memory(&plan->error, (size_t)rows * sizeof *positions, "token positions");
        return SUMI_NO_VALUE;
    }
    int32_t row = 0;
    for (int32_t p = 0; p < prompt_count; p++) {
        for (int32_t i = 0; i < counts[p]; i++) { positions[row++] = i; }
    }
    sumi_value value = sumi_plan_constant(plan, "token_positions", SUMI_ELEMENT_INT, rows, 1, positions);
    sumi_free(plan->heap, positions);
    return sumi_plan_rope_table(plan, value, 1, (const int32_t[]){model->head_dim / 2}, model->theta);
}

sumi_value sumi_qwen3_write(const sumi_qwen3* model, sumi_plan* plan, sumi_value ids, const int32_t* counts,
                            int32_t prompt_count)
{
    if (plan->error.result != SUMI_OK) {
        return SUMI_NO_VALUE; // ids may not exist, and with them the number of rows
    }
    int32_t rows = sumi_plan_info(plan, ids)->rows;
    sumi_sequence* sequences = sumi_alloc_array(plan->heap, (size_t)prompt_count, sizeof *sequences);
    if (sequences == NULL) {
        sumi_out_of_memory(&plan->error, (size_t)prompt_count * sizeof *sequences, "attention sequences");
        return SUMI_NO_VALUE;
    }
    for (int32_t p = 0, row = 0; p < prompt_count; row += counts[p++]) {
        sequences[p] = (sumi_sequence){.span = {{row, counts[p]}}, .span_count = 1, .query_spans = 1};
    }
    const sumi_attention attention = {.q_heads = model->q_heads,
                                      .kv_heads = model->kv_heads,
                                      .dim = model->head_dim,
                                      .scale = (float)(1.0 / sqrt((double)model->head_dim)),
                                      .causal = true,
                                      .sequences = sequences,
                                      .sequence_count = prompt_count};

    sumi_plan_prefix(plan, "text.");
    sumi_value rope = write_rope(model, plan, counts, prompt_count, rows);
    sumi_value h = sumi_plan_embed_rows(plan, ids, &model->embedding, 1.0f);
    for (int32_t layer = 0; layer < model->layer_count; layer++) {
        const sumi_qwen3_layer* w = &model->layers[layer];
        sumi_plan_prefix(plan, "text.layers.%d.", (int)layer);
        sumi_value a = sumi_plan_norm(
            plan, &(sumi_plan_norm_args){.label = "input_norm", .x = h, .weight = &w->input_norm, .eps = model->eps});
        sumi_value qkv =
            sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "attention.qkv", .x = a, .weight = &w->qkv});
        sumi_plan_qk_norm_rope(plan, &(sumi_plan_qk_args){.label = "attention.qk_norm_rope",
                                                          .qkv = qkv,
                                                          .q_heads = model->q_heads,
                                                          .kv_heads = model->kv_heads,
                                                          .dim = model->head_dim,
                                                          .q_norm = &w->q_norm,
                                                          .k_norm = &w->k_norm,
                                                          .eps = model->eps,
                                                          .rope = rope,
                                                          .rotary = SUMI_ROTARY_HALVES});
        sumi_value o = sumi_plan_attention(plan, "attention", qkv, &attention);
        sumi_plan_linear(plan,
                         &(sumi_plan_linear_args){.label = "attention.out", .x = o, .weight = &w->out, .residual = h});
        sumi_value m = sumi_plan_norm(
            plan, &(sumi_plan_norm_args){.label = "post_norm", .x = h, .weight = &w->post_norm, .eps = model->eps});
        sumi_value g = sumi_plan_linear_gated(plan, "mlp.gate_up", m, &w->gate_up, SUMI_ACT_SILU);
        sumi_plan_linear(plan,
                         &(sumi_plan_linear_args){.label = "mlp.down", .x = g, .weight = &w->down, .residual = h});
    }
    sumi_plan_prefix(plan, "%s", "");
    sumi_free(plan->heap, sequences);
    return h;
}
