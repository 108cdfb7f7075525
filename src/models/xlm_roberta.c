#include "models/xlm_roberta.h"
#include "base/assert.h"
#include "models/config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROOT "text_model.transformer.roberta."
#define PLAIN ".weight"
#define ADAPTED ".parametrizations.weight.original"
#define LEFT ".parametrizations.weight.0.lora_A"
#define RIGHT ".parametrizations.weight.0.lora_B"
#define MAX_RANK 1024
// On the CPU, products of fewer rows are summed in another order. Shorter prompts are padded with tokens that nothing
// reads, so that a short prompt has the same bits alone and in a batch.
#define MIN_ROWS 8

// ---- Weights --------------------------------------------------------------------------------------------------------

// True for embeddings and products; norms have no adapter.
static bool may_have_change(const char* canonical)
{
    const size_t length = strlen(canonical), ending = strlen(PLAIN);
    return length > ending && strcmp(canonical + length - ending, PLAIN) == 0
        && (strstr(canonical, "embeddings.") != NULL || strstr(canonical, ".mixer.") != NULL
            || strstr(canonical, ".mlp.") != NULL);
}

// Other names of ROOT "encoder.layers.3.mlp.fc1.weight": ROOT
// "encoder.layers.3.mlp.fc1.parametrizations.weight.original"; then both with ComfyUI's "model." in place of the root.
static bool roberta_alias(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    (void)context;
    const bool has_two = may_have_change(canonical);
    char adapted[SUMI_NAME_BYTES];
    if (which < 0 || which >= (has_two ? 3 : 1)) return false;
    snprintf(adapted, sizeof adapted, "%.*s%s", (int)(strlen(canonical) - (has_two ? strlen(PLAIN) : 0)), canonical,
             has_two ? ADAPTED : "");
    if (has_two && which == 0) return snprintf(out, out_bytes, "%s", adapted) < (int)out_bytes;
    return sumi_replace_text(which == 2 ? adapted : canonical, ROOT, "model.", out, out_bytes);
}

static const char* roberta_name_in(char* out, int32_t layer, const char* suffix)
{
    snprintf(out, SUMI_NAME_BYTES, ROOT "encoder.layers.%d.%s", (int)layer, suffix);
    return out;
}

static const char* name_of(char* out, const char* module, const char* ending)
{
    if (snprintf(out, SUMI_NAME_BYTES, "%s%s", module, ending) >= SUMI_NAME_BYTES) out[0] = 0;
    SUMI_ASSERT(out[0] != 0); // the module names above are short
    return out;
}

// The rank of the change that the file has for `module`.weight. 0: there is none, as the name of the weight shows.
// axis_from_end: which dimension of the first factor is the rank; 0: the last one.
static int32_t find_rank(sumi_binder* b, const char* module, int32_t axis_from_end)
{
    char name[SUMI_NAME_BYTES];
    const sumi_tensor* tensor = sumi_bind_need(b, name_of(name, module, PLAIN));
    if (tensor == NULL || strstr(tensor->name, ".parametrizations.") == NULL) return 0;
    tensor = sumi_bind_need(b, name_of(name, module, LEFT));
    if (tensor == NULL) return 0;
    const int32_t rank = tensor->rank < 2 ? 0 : sumi_bind_size(b, name, tensor->rank - 1 - axis_from_end);
    if (rank < 1 || rank > MAX_RANK) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH, "%s: tensor %s is not a factor of a low-rank change of rank 1 to %d",
                       b->component->path, tensor->name, MAX_RANK);
        return 0;
    }
    return rank;
}

// For a table the left factor has the table's rows; for a product, which reads its weight transposed, the right one
// does.
static void bind_change(const sumi_xlm_roberta* model, sumi_binder* b, sumi_weight* weight, const char* module,
                        bool is_table)
{
    char left[SUMI_NAME_BYTES], right[SUMI_NAME_BYTES];
    const int32_t rank = find_rank(b, module, is_table ? 0 : 1);
    if (rank == 0) return;
    name_of(left, module, LEFT);
    name_of(right, module, RIGHT);
    sumi_bind_change(
        b, weight,
        &(sumi_change_names){
            .up = is_table ? left : right, .down = is_table ? right : left, .rank = rank, .scale = model->scaling});
}

static void bind_linear(const sumi_xlm_roberta* model, sumi_binder* b, sumi_xlm_roberta_weights* linear,
                        const char* module, int32_t rows, int32_t cols)
{
    sumi_bind_linear(b, &linear->weight, &linear->bias, module, rows, cols);
    bind_change(model, b, &linear->weight, module, false);
}

static void bind_table(const sumi_xlm_roberta* model, sumi_binder* b, sumi_weight* weight, const char* module,
                       int32_t rows)
{
    const bool adaptable = b->adaptable;
    b->adaptable = false; // rows are looked up, not multiplied: no adapter's change can be added
    sumi_bind_matrix(b, weight, module, rows, model->width);
    bind_change(model, b, weight, module, true);
    b->adaptable = adaptable;
}

static void bind_roberta_norm(sumi_binder* b, sumi_xlm_roberta_weights* norm, const char* module, int32_t cols)
{
    char name[SUMI_NAME_BYTES];
    sumi_bind_vector(b, &norm->weight, name_of(name, module, ".weight"), cols);
    sumi_bind_vector(b, &norm->bias, name_of(name, module, ".bias"), cols);
}

static void bind_embeddings(sumi_xlm_roberta* model, sumi_binder* b)
{
    bind_table(model, b, &model->embedding, ROOT "embeddings.word_embeddings", model->vocabulary);
    bind_table(model, b, &model->type, ROOT "embeddings.token_type_embeddings", 1);
    bind_roberta_norm(b, &model->embedding_norm, ROOT "emb_ln", model->width);
}

static void bind_roberta_layer(sumi_xlm_roberta* model, sumi_binder* b, int32_t layer)
{
    sumi_xlm_roberta_layer* l = &model->layers[layer];
    const int32_t width = model->width;
    char name[SUMI_NAME_BYTES];
    bind_linear(model, b, &l->qkv, roberta_name_in(name, layer, "mixer.Wqkv"), 3 * width, width);
    bind_linear(model, b, &l->out, roberta_name_in(name, layer, "mixer.out_proj"), width, width);
    bind_roberta_norm(b, &l->norm1, roberta_name_in(name, layer, "norm1"), width);
    bind_linear(model, b, &l->fc1, roberta_name_in(name, layer, "mlp.fc1"), model->hidden, width);
    bind_linear(model, b, &l->fc2, roberta_name_in(name, layer, "mlp.fc2"), width, model->hidden);
    bind_roberta_norm(b, &l->norm2, roberta_name_in(name, layer, "norm2"), width);
}

// A config of the whole model gives neither layers nor heads of the tower; a config of the tower alone does, and must
// agree with the tensors.
static void check_roberta_config(sumi_xlm_roberta* model, sumi_binder* b, const sumi_module_config* config)
{
    int32_t width = 0, rank = 0, tower_width = 0, hidden = 0, layers = 0, heads = 0;
    double alpha = 0.0;
    const sumi_config_field fields[] = {
        {"hidden_size", SUMI_CONFIG_INTEGER, &tower_width, 0, NULL}, // of a tower that was saved by itself
        {"intermediate_size", SUMI_CONFIG_INTEGER, &hidden, 0, NULL},
        {"num_hidden_layers", SUMI_CONFIG_INTEGER, &layers, 0, NULL},
        {"num_attention_heads", SUMI_CONFIG_INTEGER, &heads, 0, NULL},
        {"text_config.embed_dim", SUMI_CONFIG_INTEGER, &width, 0, NULL},
        {"text_config.hf_model_config_kwargs.lora_rank", SUMI_CONFIG_INTEGER, &rank, 0, NULL},
        {"text_config.hf_model_config_kwargs.lora_alpha", SUMI_CONFIG_NUMBER, &alpha, 0, NULL}};
    model->scaling = 1.0f;
    if (b->result == SUMI_OK) {
        b->result = sumi_config_read(config, fields, (int32_t)(sizeof fields / sizeof *fields), b->error);
    }
    const int32_t stored_rank = find_rank(b, ROOT "embeddings.word_embeddings", 0);
    if (b->result != SUMI_OK) return;
    sumi_bind_check(b, config->path, "text_config.embed_dim", width, model->width);
    sumi_bind_check(b, config->path, "hidden_size", tower_width, model->width);
    sumi_bind_check(b, config->path, "intermediate_size", hidden, model->hidden);
    sumi_bind_check(b, config->path, "num_hidden_layers", layers, model->layer_count);
    sumi_bind_check(b, config->path, "num_attention_heads", heads, model->heads);
    if (stored_rank == 0) { return; } // plain names: there is nothing to scale, whatever the config says
    sumi_bind_check(b, config->path, "lora_rank", rank, stored_rank);
    if (!(alpha >= 0.0) || alpha > 1e6) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: lora_alpha must be a positive number", config->path);
    } else if (alpha > 0.0) {
        model->scaling = (float)(alpha / stored_rank);
    }
}

static void find_roberta_sizes(sumi_xlm_roberta* model, sumi_binder* b)
{
    const int32_t head_dim = model->settings->head_dim;
    model->vocabulary = sumi_bind_size(b, ROOT "embeddings.word_embeddings.weight", 0);
    model->width = sumi_bind_size(b, ROOT "embeddings.word_embeddings.weight", 1);
    model->hidden = sumi_bind_size(b, ROOT "encoder.layers.0.mlp.fc1.weight", 0);
    const int32_t released = sumi_bind_count(b, ROOT "encoder.layers."),
                  repacked = sumi_bind_count(b, "model.encoder.layers.");
    model->layer_count = released > repacked ? released : repacked;
    if (b->result != SUMI_OK) return;
    SUMI_ASSERT(head_dim >= 2 && head_dim % 2 == 0);
    model->heads = model->width / head_dim;
    if (model->heads * head_dim != model->width) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH, "%s: %s is %d wide, which %s's heads of %d do not divide",
                       b->component->path, b->what, (int)model->width, model->settings->name, (int)head_dim);
    }
    if (model->layer_count > SUMI_XLM_ROBERTA_MAX_LAYERS) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH, "%s: %s has %d layers, and at most %d are supported",
                       b->component->path, b->what, (int)model->layer_count, SUMI_XLM_ROBERTA_MAX_LAYERS);
    }
    if (b->result != SUMI_OK) return;
    const size_t bytes = (size_t)model->layer_count * sizeof *model->layers;
    model->layers = sumi_weight_list_reserve(b->list, bytes);
    if (model->layers == NULL) b->result = sumi_out_of_memory(b->error, bytes, "the layers of a text encoder");
}

static sumi_result bind_roberta_model(void* memory, const void* settings, sumi_binder* b,
                                      const sumi_module_config* config)
{
    sumi_xlm_roberta* model = memory;
    model->settings = settings;
    b->alias = roberta_alias;
    b->alias_context = settings;
    find_roberta_sizes(model, b);
    check_roberta_config(model, b, config);
    if (b->result != SUMI_OK) return b->result;
    bind_embeddings(model, b);
    for (int32_t layer = 0; layer < model->layer_count; layer++) bind_roberta_layer(model, b, layer);
    return b->result;
}

static sumi_text_encoder_properties roberta_properties(const void* memory)
{
    const sumi_xlm_roberta* model = memory;
    return (sumi_text_encoder_properties){.width = model->width, .vocabulary = model->vocabulary, .pools = true};
}

// ---- Forward --------------------------------------------------------------------------------------------------------

// Writes activation(x W^T + bias).
static sumi_value write_linear(sumi_plan* plan, const char* label, sumi_value x, const sumi_xlm_roberta_weights* w,
                               sumi_activation activation)
{
    return sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = label, .x = x, .weight = &w->weight, .bias = &w->bias, .activation = activation});
}

// Writes residual + x W^T + bias in place of the residual.
static void write_linear_onto(sumi_plan* plan, const char* label, sumi_value x, const sumi_xlm_roberta_weights* w,
                              sumi_value residual)
{
    sumi_plan_linear(plan, &(sumi_plan_linear_args){
                               .label = label, .x = x, .weight = &w->weight, .bias = &w->bias, .residual = residual});
}

static void write_roberta_norm(const sumi_xlm_roberta* model, sumi_plan* plan, const char* label, sumi_value h,
                               const sumi_xlm_roberta_weights* w)
{
    sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = label,
                                                .x = h,
                                                .norm = SUMI_NORM_LAYER,
                                                .weight = &w->weight,
                                                .bias = &w->bias,
                                                .eps = model->settings->eps,
                                                .y = h});
}

static sumi_value write_embeddings(const sumi_xlm_roberta* model, sumi_plan* plan, sumi_value ids)
{
    sumi_value h = sumi_plan_embed_rows_biased(plan, ids, &model->embedding, &model->type);
    write_roberta_norm(model, plan, "embed_norm", h, &model->embedding_norm);
    return h;
}

// One layer on h, in place.
static void write_roberta_layer(const sumi_xlm_roberta* model, sumi_plan* plan, const sumi_xlm_roberta_layer* w,
                                sumi_value h, const sumi_attention* attention, sumi_value rope)
{
    sumi_value qkv = write_linear(plan, "attention.qkv", h, &w->qkv, SUMI_ACT_NONE);
    sumi_plan_qk_norm_rope(plan, &(sumi_plan_qk_args){.label = "attention.rope",
                                                      .qkv = qkv,
                                                      .q_heads = attention->q_heads,
                                                      .kv_heads = attention->kv_heads,
                                                      .dim = attention->dim,
                                                      .rope = rope,
                                                      .rotary = SUMI_ROTARY_HALVES});
    sumi_value o = sumi_plan_attention(plan, "attention", qkv, attention);
    write_linear_onto(plan, "attention.out", o, &w->out, h);
    write_roberta_norm(model, plan, "norm1", h, &w->norm1);
    sumi_value g = write_linear(plan, "mlp.fc1", h, &w->fc1, SUMI_ACT_GELU_ERF);
    write_linear_onto(plan, "mlp.fc2", g, &w->fc2, h);
    write_roberta_norm(model, plan, "norm2", h, &w->norm2);
}

// The ids, padded with zeros.
static sumi_value write_padded_ids(sumi_plan* plan, sumi_value ids, int32_t rows, int32_t padded_rows)
{
    static const int32_t s_zeros[MIN_ROWS];
    SUMI_ASSERT(rows < padded_rows && padded_rows <= MIN_ROWS);
    sumi_value padding = sumi_plan_constant(plan, "padding_tokens", SUMI_ELEMENT_INT, padded_rows - rows, 1, s_zeros);
    sumi_value y = sumi_plan_value(plan, "padded_tokens", SUMI_ELEMENT_INT, padded_rows, 1);
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = ids, .y = y});
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = padding, .y = y, .y_row = rows});
    return y;
}

// Differences between prompts: the rows of their tokens, and the positions, from 0 on. The last sequence and span
// belong to the padding, if there is any.
typedef struct prompt_layout {
    sumi_sequence* sequences;
    sumi_span* spans;
    int32_t* positions;
} prompt_layout;

static void free_layout(const sumi_plan* plan, const prompt_layout* layout)
{
    sumi_free(plan->heap, layout->sequences);
    sumi_free(plan->heap, layout->spans);
    sumi_free(plan->heap, layout->positions);
}

// Returns false after recording the plan's error. The caller calls free_layout in any case.
static bool make_layout(sumi_plan* plan, const sumi_text_batch* batch, int32_t rows, int32_t padding,
                        prompt_layout* out)
{
    const size_t prompts = (size_t)batch->prompt_count + (padding > 0 ? 1 : 0);
    *out = (prompt_layout){sumi_alloc_array(plan->heap, prompts, sizeof *out->sequences),
                           sumi_alloc_array(plan->heap, prompts, sizeof *out->spans),
                           sumi_alloc_array(plan->heap, (size_t)rows, sizeof *out->positions)};
    if (out->sequences == NULL || out->spans == NULL || out->positions == NULL) {
        sumi_out_of_memory(&plan->error, prompts * (sizeof *out->sequences + sizeof *out->spans) + (size_t)rows * 4,
                           "the layout of prompts");
        return false;
    }
    int32_t row = 0;
    for (int32_t p = 0; p < (int32_t)prompts; p++) {
        const int32_t count = p < batch->prompt_count ? batch->counts[p] : padding;
        SUMI_ASSERT(count >= 1 && count <= rows - row);
        out->spans[p] = (sumi_span){row, count};
        out->sequences[p] = (sumi_sequence){.span = {out->spans[p]}, .span_count = 1, .query_spans = 1};
        for (int32_t i = 0; i < count; i++) out->positions[row + i] = i;
        row += count;
    }
    SUMI_ASSERT(row == rows);
    return true;
}

static sumi_value write_roberta_text(const void* memory, sumi_plan* plan, const sumi_text_batch* batch)
{
    const sumi_xlm_roberta* model = memory;
    const int32_t head_dim = model->settings->head_dim;
    SUMI_ASSERT(batch->prompt_count >= 1 && batch->shared == 0 && batch->picture_count == 0);
    if (plan->error.result != SUMI_OK) {
        return SUMI_NO_VALUE; // ids may not exist, and then neither does the number of rows
    }
    const int32_t tokens = sumi_plan_info(plan, batch->ids)->rows, rows = tokens < MIN_ROWS ? MIN_ROWS : tokens;
    prompt_layout layout;
    if (!make_layout(plan, batch, rows, rows - tokens, &layout)) {
        free_layout(plan, &layout);
        return SUMI_NO_VALUE;
    }
    const sumi_attention attention = {.q_heads = model->heads,
                                      .kv_heads = model->heads,
                                      .dim = head_dim,
                                      .scale = (float)(1.0 / sqrt((double)head_dim)),
                                      .sequences = layout.sequences,
                                      .sequence_count = batch->prompt_count + (rows > tokens ? 1 : 0)};
    sumi_plan_prefix(plan, "pooled_text.");
    sumi_value ids = rows > tokens ? write_padded_ids(plan, batch->ids, tokens, rows) : batch->ids;
    sumi_value positions =
        sumi_plan_constant(plan, "pooled_token_positions", SUMI_ELEMENT_INT, rows, 1, layout.positions);
    sumi_value rope = sumi_plan_rope_table(
        plan, &(sumi_plan_rope_args){
                  .positions = positions, .axes = 1, .pairs = {head_dim / 2}, .theta = model->settings->theta});
    sumi_value h = write_embeddings(model, plan, ids);
    for (int32_t layer = 0; layer < model->layer_count; layer++) {
        sumi_plan_prefix(plan, "pooled_text.layers.%d.", (int)layer);
        write_roberta_layer(model, plan, &model->layers[layer], h, &attention, rope);
    }
    sumi_plan_prefix(plan, "pooled_text.");
    sumi_value pooled = sumi_plan_mean_rows(plan, "pool", h, layout.spans, batch->prompt_count);
    sumi_plan_prefix(plan, "%s", "");
    free_layout(plan, &layout);
    return pooled;
}

const sumi_text_encoder_module sumi_xlm_roberta_module = {.model_bytes = sizeof(sumi_xlm_roberta),
                                                          .bind = bind_roberta_model,
                                                          .properties = roberta_properties,
                                                          .write = write_roberta_text};
