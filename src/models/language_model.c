#include "models/language_model.h"
#include "base/assert.h"
#include "files/json.h"
#include "models/config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- Weights --------------------------------------------------------------------------------------------------------

// Other names of "model.layers.3.self_attn.q_proj.weight": "layers.3.self_attn.q_proj.weight", "blk.3.attn_q.weight",
// and these with the prefixes of newer and older programs.
static bool language_alias(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    const sumi_language_model_settings* settings = context;
    static const char* const s_prefixes[] = {"", NULL, "model.language_model.", "language_model.model.",
                                             "language_model."};
    // the norm after attention belongs to the branch if branches are normed, otherwise to the input of the MLP
    const char* const llama_cpp[][2] = {
        {"input_layernorm", "attn_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"self_attn.o_proj", "attn_output"},
        {"post_attention_layernorm", settings->norms_branches ? "post_attention_norm" : "ffn_norm"},
        {"pre_feedforward_layernorm", "ffn_norm"},
        {"post_feedforward_layernorm", "post_ffw_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"}};
    if (which < 0 || which >= (int32_t)(sizeof s_prefixes / sizeof *s_prefixes)) return false;
    if (s_prefixes[which] != NULL) return sumi_replace_text(canonical, "model.", s_prefixes[which], out, out_bytes);
    if (strcmp(canonical, "model.embed_tokens.weight") == 0 || strcmp(canonical, "model.norm.weight") == 0) {
        snprintf(out, out_bytes, "%s",
                 strcmp(canonical, "model.norm.weight") == 0 ? "output_norm.weight" : "token_embd.weight");
        return true;
    }
    char block[SUMI_NAME_BYTES];
    if (!sumi_replace_text(canonical, "model.layers.", "blk.", block, sizeof block)) return false;
    for (size_t i = 0; i < sizeof llama_cpp / sizeof *llama_cpp; i++) {
        if (sumi_replace_text(block, llama_cpp[i][0], llama_cpp[i][1], out, out_bytes)) return true;
    }
    return false;
}

static const char* language_name_in(char* out, int32_t layer, const char* suffix)
{
    snprintf(out, SUMI_NAME_BYTES, "model.layers.%d.%s", (int)layer, suffix);
    return out;
}

// Whether norm weights are stored as factors: llama.cpp's converter has added the 1.
static bool holds_factors(const sumi_binder* b, const char* name)
{
    const sumi_tensor* tensor = sumi_bind_find(b, name);
    const char* tensor_name = tensor != NULL ? sumi_component_tensor_name(b->component, tensor) : NULL;
    return tensor_name != NULL
        && (strncmp(tensor_name, "blk.", 4) == 0 || strcmp(tensor_name, "output_norm.weight") == 0);
}

static void bind_language_norm(const sumi_language_model* model, sumi_binder* b, sumi_weight* weight, const char* name,
                               int32_t cols)
{
    if (model->settings->adds_one && !holds_factors(b, name)) {
        sumi_bind_offset_norm(b, weight, name, cols, 1.0f);
    } else {
        sumi_bind_norm(b, weight, name, cols);
    }
}

static void bind_language_layer(sumi_language_model* model, sumi_binder* b, int32_t layer)
{
    const sumi_language_model_settings* settings = model->settings;
    sumi_language_layer* l = &model->layers[layer];
    int32_t q = model->q_heads * model->head_dim, kv = model->kv_heads * model->head_dim;
    const int32_t qkv_rows[] = {q, kv, kv};
    char n[4][SUMI_NAME_BYTES];
    bind_language_norm(model, b, &l->input_norm, language_name_in(n[0], layer, "input_layernorm.weight"), model->width);
    const char* qkv[] = {language_name_in(n[0], layer, "self_attn.q_proj"),
                         language_name_in(n[1], layer, "self_attn.k_proj"),
                         language_name_in(n[2], layer, "self_attn.v_proj")};
    sumi_module_stack stack = {language_name_in(n[3], layer, "self_attn.qkv"), qkv, qkv_rows, 3};
    sumi_bind_stack(b, &l->qkv, &stack, model->width);
    sumi_bind_target(b, &l->qkv, language_name_in(n[3], layer, "self_attn.qkv_proj"), 0, q + 2 * kv);
    l->qkv.balance = &l->input_norm;
    stack.label = language_name_in(n[3], layer, "self_attn.qkv.bias");
    if (settings->has_qkv_bias) sumi_bind_stacked_bias(b, &l->qkv_bias, &stack);
    if (settings->has_qk_norm) {
        bind_language_norm(model, b, &l->q_norm, language_name_in(n[0], layer, "self_attn.q_norm.weight"),
                           model->head_dim);
        bind_language_norm(model, b, &l->k_norm, language_name_in(n[0], layer, "self_attn.k_norm.weight"),
                           model->head_dim);
    }
    sumi_bind_matrix(b, &l->out, language_name_in(n[0], layer, "self_attn.o_proj"), model->width, q);
    if (settings->norms_branches) {
        bind_language_norm(model, b, &l->out_norm, language_name_in(n[0], layer, "post_attention_layernorm.weight"),
                           model->width);
        bind_language_norm(model, b, &l->mlp_norm, language_name_in(n[0], layer, "pre_feedforward_layernorm.weight"),
                           model->width);
        bind_language_norm(model, b, &l->down_norm, language_name_in(n[0], layer, "post_feedforward_layernorm.weight"),
                           model->width);
    } else {
        bind_language_norm(model, b, &l->mlp_norm, language_name_in(n[0], layer, "post_attention_layernorm.weight"),
                           model->width);
    }
    const char* gate_up[] = {language_name_in(n[0], layer, "mlp.gate_proj"),
                             language_name_in(n[1], layer, "mlp.up_proj")};
    const int32_t gate_up_rows[] = {model->hidden, model->hidden};
    stack = (sumi_module_stack){language_name_in(n[3], layer, "mlp.gate_up"), gate_up, gate_up_rows, 2};
    sumi_bind_stack(b, &l->gate_up, &stack, model->width);
    sumi_bind_target(b, &l->gate_up, language_name_in(n[3], layer, "mlp.gate_up_proj"), 0, 2 * model->hidden);
    l->gate_up.balance = &l->mlp_norm;
    sumi_bind_matrix(b, &l->down, language_name_in(n[0], layer, "mlp.down_proj"), model->width, model->hidden);
}

typedef struct config_values {
    int32_t layers, q_heads, kv_heads, head_dim, width, hidden, window, sections[3], section_count, kind_count;
    char kinds[SUMI_LANGUAGE_MODEL_MAX_LAYERS][SUMI_CONFIG_TEXT_BYTES];
    bool has_bias, slides, interleaves;
    double eps, theta, window_theta, divisor, attention_scalar;
    // how positions are scaled, for layers without and with a window; "": as the divisor says
    char scaling[SUMI_CONFIG_TEXT_BYTES], window_scaling[SUMI_CONFIG_TEXT_BYTES];
} config_values;

// Reads the language model's keys below `outer` ("" or "text_config."). Files of models with a vision tower have the
// keys in one of the two objects, some in both.
static sumi_result read_keys(config_values* c, const sumi_module_config* config, const char* outer, sumi_error* error)
{
    const struct {
        const char* key;
        sumi_config_kind kind;
        void* into;
        int32_t capacity;
        int32_t* count;
    } keys[] = {{"num_hidden_layers", SUMI_CONFIG_INTEGER, &c->layers, 0, NULL},
                {"num_attention_heads", SUMI_CONFIG_INTEGER, &c->q_heads, 0, NULL},
                {"num_key_value_heads", SUMI_CONFIG_INTEGER, &c->kv_heads, 0, NULL},
                {"head_dim", SUMI_CONFIG_INTEGER, &c->head_dim, 0, NULL},
                {"hidden_size", SUMI_CONFIG_INTEGER, &c->width, 0, NULL},
                {"intermediate_size", SUMI_CONFIG_INTEGER, &c->hidden, 0, NULL},
                {"rms_norm_eps", SUMI_CONFIG_NUMBER, &c->eps, 0, NULL},
                {"rope_theta", SUMI_CONFIG_NUMBER, &c->theta, 0, NULL},
                {"rope_parameters.rope_theta", SUMI_CONFIG_NUMBER, &c->theta, 0, NULL},
                {"rope_parameters.full_attention.rope_theta", SUMI_CONFIG_NUMBER, &c->theta, 0, NULL},
                {"rope_local_base_freq", SUMI_CONFIG_NUMBER, &c->window_theta, 0, NULL},
                {"rope_parameters.sliding_attention.rope_theta", SUMI_CONFIG_NUMBER, &c->window_theta, 0, NULL},
                {"rope_scaling.factor", SUMI_CONFIG_NUMBER, &c->divisor, 0, NULL},
                {"rope_parameters.factor", SUMI_CONFIG_NUMBER, &c->divisor, 0, NULL},
                {"rope_parameters.full_attention.factor", SUMI_CONFIG_NUMBER, &c->divisor, 0, NULL},
                {"rope_scaling.type", SUMI_CONFIG_TEXT, c->scaling, 0, NULL},
                {"rope_scaling.rope_type", SUMI_CONFIG_TEXT, c->scaling, 0, NULL},
                {"rope_parameters.rope_type", SUMI_CONFIG_TEXT, c->scaling, 0, NULL},
                {"rope_parameters.full_attention.rope_type", SUMI_CONFIG_TEXT, c->scaling, 0, NULL},
                {"rope_parameters.sliding_attention.rope_type", SUMI_CONFIG_TEXT, c->window_scaling, 0, NULL},
                {"rope_scaling.mrope_section", SUMI_CONFIG_INTEGERS, c->sections, 3, &c->section_count},
                {"rope_parameters.mrope_section", SUMI_CONFIG_INTEGERS, c->sections, 3, &c->section_count},
                {"rope_scaling.mrope_interleaved", SUMI_CONFIG_BOOL, &c->interleaves, 0, NULL},
                {"rope_parameters.mrope_interleaved", SUMI_CONFIG_BOOL, &c->interleaves, 0, NULL},
                {"query_pre_attn_scalar", SUMI_CONFIG_NUMBER, &c->attention_scalar, 0, NULL},
                {"sliding_window", SUMI_CONFIG_INTEGER, &c->window, 0, NULL},
                {"layer_types", SUMI_CONFIG_TEXTS, c->kinds, SUMI_LANGUAGE_MODEL_MAX_LAYERS, &c->kind_count},
                {"attention_bias", SUMI_CONFIG_BOOL, &c->has_bias, 0, NULL},
                {"use_sliding_window", SUMI_CONFIG_BOOL, &c->slides, 0, NULL}};
    enum { KEY_COUNT = sizeof keys / sizeof *keys };
    char names[KEY_COUNT][96];
    sumi_config_field fields[KEY_COUNT];
    for (int32_t i = 0; i < KEY_COUNT; i++) {
        snprintf(names[i], sizeof names[i], "%s%s", outer, keys[i].key);
        fields[i] = (sumi_config_field){names[i], keys[i].kind, keys[i].into, keys[i].capacity, keys[i].count};
    }
    return sumi_config_read(config, fields, KEY_COUNT, error);
}

// Metadata of llama.cpp's files, which are named "qwen3.rope.freq_base". NULL: there are none.
static const char* metadata_text(const sumi_component* component, const char* key)
{
    char name[96];
    const char* architecture = sumi_metadata_find(component->set, "general.architecture");
    if (architecture == NULL || snprintf(name, sizeof name, "%s.%s", architecture, key) >= (int)sizeof name)
        return NULL;
    return sumi_metadata_find(component->set, name);
}

// Unchanged if there is none.
static void read_metadata_number(const sumi_component* component, const char* key, double* into)
{
    const char* text = metadata_text(component, key);
    sumi_json json;
    if (text == NULL) return;
    sumi_json_begin(&json, text, strlen(text), NULL); // numbers of metadata are written as in JSON
    const double value = sumi_json_number(&json);
    if (sumi_json_end(&json) == SUMI_OK) *into = value;
    else *into = NAN; // infinity and NaN, which no check lets pass
}

// A GGUF file describes its own tensors, so its numbers count before those of a config.json that lies elsewhere.
static void read_language_metadata(const sumi_component* component, config_values* c)
{
    const char* scaling = metadata_text(component, "rope.scaling.type");
    read_metadata_number(component, "rope.freq_base", &c->theta);
    read_metadata_number(component, "rope.freq_base_swa", &c->window_theta);
    read_metadata_number(component, "attention.layer_norm_rms_epsilon", &c->eps);
    if (scaling != NULL) {
        snprintf(c->scaling, sizeof c->scaling, "%s", scaling);
        read_metadata_number(component, "rope.scaling.factor", &c->divisor);
    }
}

// Positions are as they are, or divided by a factor ("linear"). Other rules (yarn, dynamic, longrope, llama3) change
// frequencies one by one, also for short texts.
static void check_scaling(sumi_binder* b, config_values* c, const char* config_path)
{
    static const char* const s_plain[] = {"", "default", "mrope", "none"};
    bool is_plain = false, is_window_plain = false;
    for (size_t i = 0; i < sizeof s_plain / sizeof *s_plain; i++) {
        is_plain = is_plain || strcmp(c->scaling, s_plain[i]) == 0;
        is_window_plain = is_window_plain || strcmp(c->window_scaling, s_plain[i]) == 0;
    }
    const bool is_linear = strcmp(c->scaling, "linear") == 0;
    if ((!is_plain && !is_linear) || !is_window_plain) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: rope_scaling is \"%s\", which is not supported for text encoders; \"linear\" is, and files "
                       "without it: take the encoder that was released with the model",
                       config_path, !is_window_plain ? c->window_scaling : c->scaling);
    }
    if (is_plain && c->scaling[0] != '\0') c->divisor = 0;
}

static void read_language_config(sumi_language_model* model, sumi_binder* b, config_values* c,
                                 const sumi_module_config* config)
{
    const sumi_language_model_settings* settings = model->settings;
    *c = (config_values){.eps = 1e-6,
                         .theta = settings->theta,
                         .window = settings->window,
                         .window_theta = settings->window_theta,
                         .divisor = settings->position_divisor,
                         .interleaves = settings->interleaves_axes,
                         .has_bias = settings->has_qkv_bias};
    b->result = read_keys(c, config, "text_config.", b->error);
    if (b->result == SUMI_OK) b->result = read_keys(c, config, "", b->error);
    read_language_metadata(b->component, c);
    check_scaling(b, c, metadata_text(b->component, "rope.scaling.type") != NULL ? b->component->path : config->path);
    for (int32_t i = 0; i < c->kind_count && settings->full_every == 0; i++)
        c->slides = c->slides || strcmp(c->kinds[i], "sliding_attention") == 0;
    // a bias that the settings do not have, or windows although the settings have none
    if (b->result == SUMI_OK && ((c->has_bias && !settings->has_qkv_bias) || c->slides)) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: attention biases and sliding windows are not supported in the %s text encoder",
                       config->path, settings->name);
    }
    if (!(c->eps > 0) || !(c->theta > 1) || (settings->full_every > 0 && (!(c->window_theta > 1) || c->window < 1))
        || !(c->divisor >= 0) || !(c->attention_scalar >= 0)) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: rms_norm_eps, the bases of the rotary positions and the sliding window must be positive",
                       config->path);
    }
}

// Widths and heads follow from the shapes. The config gives the values that shapes do not show, and must not contradict
// the shapes. (vocab_size is not checked: some files leave out rows that no token uses.)
static void find_language_sizes(sumi_language_model* model, sumi_binder* b, const config_values* c,
                                const char* config_path)
{
    model->vocabulary = sumi_bind_size(b, "model.embed_tokens.weight", 0);
    model->width = sumi_bind_size(b, "model.embed_tokens.weight", 1);
    model->hidden = sumi_bind_size(b, "model.layers.0.mlp.gate_proj.weight", 0);
    int32_t q_rows = sumi_bind_size(b, "model.layers.0.self_attn.q_proj.weight", 0),
            kv_rows = sumi_bind_size(b, "model.layers.0.self_attn.k_proj.weight", 0);
    // without norms of heads only the config gives the number of heads; the heads of the released models have 128
    // values
    model->head_dim = model->settings->has_qk_norm ? sumi_bind_size(b, "model.layers.0.self_attn.q_norm.weight", 0)
                    : c->q_heads > 0               ? q_rows / c->q_heads
                                                   : 128;
    if (b->result != SUMI_OK) return;
    model->q_heads = model->head_dim > 0 ? q_rows / model->head_dim : 0;
    model->kv_heads = model->head_dim > 0 ? kv_rows / model->head_dim : 0;
    if (model->head_dim < 2 || model->head_dim % 2 != 0 || model->q_heads * model->head_dim != q_rows
        || model->kv_heads < 1 || model->kv_heads * model->head_dim != kv_rows || model->q_heads % model->kv_heads != 0
        || (c->q_heads != 0 && c->q_heads != model->q_heads) || (c->kv_heads != 0 && c->kv_heads != model->kv_heads)) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: the text encoder's q_proj has %d rows and k_proj %d for heads of %d; that contradicts its "
                       "config.json or is not a grouping of heads",
                       b->component->path, (int)q_rows, (int)kv_rows, (int)model->head_dim);
    }
    sumi_bind_check(b, config_path, "head_dim", c->head_dim, model->head_dim);
    sumi_bind_check(b, config_path, "hidden_size", c->width, model->width);
    sumi_bind_check(b, config_path, "intermediate_size", c->hidden, model->hidden);
}

// The number of pairs of a head that each axis rotates: the config's numbers, or the released ones in proportion.
static void find_sections(sumi_language_model* model, sumi_binder* b, const config_values* c,
                          const sumi_module_config* config)
{
    const int32_t* released = model->settings->sections;
    const int32_t total = released[0] + released[1] + released[2], pairs = model->head_dim / 2;
    if (total == 0 || b->result != SUMI_OK) return;
    // Qwen3 itself has the tensors of Qwen3-VL in the same shapes; only its config.json differs.
    if (model->settings->interleaves_axes && c->section_count == 0 && config->data != NULL
        && sumi_metadata_find(b->component->set, "general.architecture") == NULL) {
        sumi_bind_fail(
            b, SUMI_TENSOR_MISMATCH,
            "%s: has no mrope_section, so this is not %s, which reads images: take the text encoder that was "
            "released with the model",
            config->path, model->settings->name);
        return;
    }
    for (int32_t a = 0; a < 3; a++)
        model->sections[a] = c->section_count == 3 ? c->sections[a] : released[a] * pairs / total;
    if ((c->section_count != 0 && c->section_count != 3) || model->sections[0] < 1 || model->sections[1] < 1
        || model->sections[2] < 1 || (int64_t)model->sections[0] + model->sections[1] + model->sections[2] != pairs) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: mrope_section must be three positive numbers whose sum is %d, half the head size",
                       b->component->path, (int)pairs);
    }
}

static int32_t count_layers(sumi_binder* b)
{
    static const char* const s_prefixes[] = {
        "model.layers.",         "layers.", "blk.", "model.language_model.layers.", "language_model.model.layers.",
        "language_model.layers."};
    int32_t layers = 0;
    for (size_t i = 0; i < sizeof s_prefixes / sizeof *s_prefixes && layers == 0; i++)
        layers = sumi_bind_count(b, s_prefixes[i]);
    return layers;
}

static void find_layers(sumi_language_model* model, sumi_binder* b, const config_values* c, const char* config_path)
{
    const int32_t unused = model->settings->unused_layers, stored_layers = count_layers(b);
    int32_t layers = c->layers;
    // a file without the final norm was cut down to the layers in use
    if (layers == 0) layers = stored_layers + (sumi_bind_find(b, "model.norm.weight") == NULL ? unused : 0);
    // if there are fewer layers than the config says, binding reports the missing tensor by its name
    if (c->layers > 0 && stored_layers > c->layers)
        sumi_bind_check(b, config_path, "num_hidden_layers", c->layers, stored_layers);
    const int32_t tap_count = model->settings->tap_count;
    if (tap_count > 0) {
        const int32_t last_tap = model->settings->taps[tap_count - 1];
        if (layers < last_tap) {
            sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                           "%s: the text encoder has %d layers, and the model reads its features after layer %d; take "
                           "the one that was released with the model",
                           b->component->path, (int)layers, (int)last_tap);
            return;
        }
        layers = last_tap; // the others may be missing
    }
    if (layers < 1 + unused || layers > SUMI_LANGUAGE_MODEL_MAX_LAYERS + unused) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: the text encoder has %d layers; between %d and %d are supported",
                       b->component->path, (int)layers, (int)(1 + unused),
                       (int)(SUMI_LANGUAGE_MODEL_MAX_LAYERS + unused));
        return;
    }
    model->layer_count = layers - unused;
    size_t bytes = (size_t)model->layer_count * sizeof *model->layers;
    model->layers = b->result == SUMI_OK ? sumi_weight_list_reserve(b->list, bytes) : NULL;
    if (model->layers == NULL && b->result == SUMI_OK)
        b->result = sumi_out_of_memory(b->error, bytes, "the text encoder's layers");
    for (int32_t i = 0; i < model->layer_count && b->result == SUMI_OK; i++) {
        const int32_t every = model->settings->full_every;
        model->layers[i].has_window =
            every > 0 && (i < c->kind_count ? strcmp(c->kinds[i], "sliding_attention") == 0 : (i + 1) % every != 0);
    }
}

static sumi_result bind_language_model(void* memory, const void* settings, sumi_binder* b,
                                       const sumi_module_config* config)
{
    sumi_language_model* model = memory;
    model->settings = settings;
    SUMI_ASSERT(model->settings->tap_count <= SUMI_LANGUAGE_MODEL_MAX_TAPS);
    SUMI_ASSERT(model->settings->tap_count == 0
                || (model->settings->unused_layers == 0 && !model->settings->norms_features));
    b->alias = language_alias;
    b->alias_context = settings;
    config_values c;
    read_language_config(model, b, &c, config);
    find_language_sizes(model, b, &c, config->path);
    find_sections(model, b, &c, config);
    find_layers(model, b, &c, config->path);
    if (b->result != SUMI_OK) return b->result;
    model->eps = (float)c.eps;
    model->attention_scale = (float)(1.0 / sqrt(c.attention_scalar > 0 ? c.attention_scalar : (double)model->head_dim));
    model->theta = c.theta;
    model->window = c.window;
    model->interleaves_axes = c.interleaves;
    model->window_theta = c.window_theta > 0 ? c.window_theta : c.theta;
    model->position_divisor = c.divisor > 0 ? c.divisor : 1.0;
    const bool adaptable = b->adaptable;
    b->adaptable = false; // rows are looked up, not multiplied: no change can be added
    sumi_bind_matrix(b, &model->embedding, "model.embed_tokens", model->vocabulary, model->width);
    b->adaptable = adaptable;
    for (int32_t layer = 0; layer < model->layer_count; layer++) bind_language_layer(model, b, layer);
    if (model->settings->norms_features)
        bind_language_norm(model, b, &model->final_norm, "model.norm.weight", model->width);
    return b->result;
}

static sumi_text_encoder_properties language_properties(const void* memory)
{
    const sumi_language_model* model = memory;
    const int32_t tap_count = model->settings->tap_count;
    return (sumi_text_encoder_properties){.width = (tap_count > 0 ? tap_count : 1) * model->width,
                                          .row_width = model->width,
                                          .vocabulary = model->vocabulary,
                                          .takes_pictures = model->settings->takes_pictures,
                                          .layer_count = model->layer_count,
                                          // a window could hide all tokens from padding far after them
                                          .takes_padding = model->settings->full_every == 0,
                                          .shares_beginning = true};
}

// ---- Forward --------------------------------------------------------------------------------------------------------

// Writes the positions of one prompt's rows, `axes` numbers each, as Qwen-VL counts them. The position of a text
// token, and of padding, is one more than the position before it, on all axes. The tokens of a picture have the same frame, and their
// row and column counted from there; the text after it continues after the longer side.
static void fill_positions(int32_t* positions, int32_t axes, sumi_span rows, const sumi_text_batch* batch)
{
    const int32_t count = rows.count;
    SUMI_ASSERT(axes == 1 || axes == 3);
    int32_t next = 0, row = 0;
    while (row < count) {
        const sumi_text_picture* picture = NULL;
        for (int32_t i = 0; i < batch->picture_count && picture == NULL && axes == 3; i++)
            picture = batch->pictures[i].row == rows.begin + row ? &batch->pictures[i] : NULL;
        int32_t* position = positions + (int64_t)row * axes;
        if (picture == NULL) {
            for (int32_t a = 0; a < axes; a++) position[a] = next;
            next++;
            row++;
            continue;
        }
        const int32_t height = picture->grid_height, width = picture->grid_width;
        SUMI_ASSERT(height >= 1 && width >= 1 && height * width <= count - row);
        for (int32_t i = 0; i < height * width; i++) {
            position[3 * i] = next;
            position[3 * i + 1] = next + i / width;
            position[3 * i + 2] = next + i % width;
        }
        next += height > width ? height : width;
        row += height * width;
    }
}

// Rows of a prompt, padding included.
static int32_t all_rows(const sumi_text_batch* batch, int32_t prompt)
{
    const int32_t count = batch->counts[prompt], padded = batch->padded_rows;
    SUMI_ASSERT(padded == 0 || (batch->shared == 0 && count <= padded));
    return padded > 0 ? padded : count;
}

// Rows of the batch that belong to this prompt alone; for the first prompt all of its rows.
static int32_t unshared_rows(const sumi_text_batch* batch, int32_t prompt)
{
    SUMI_ASSERT(prompt == 0 || batch->counts[prompt] > batch->shared);
    return all_rows(batch, prompt) - (prompt > 0 ? batch->shared : 0);
}

static sumi_value write_positions(const sumi_language_model* model, sumi_plan* plan, const sumi_text_batch* batch,
                                  int32_t rows)
{
    const int32_t axes = model->sections[0] > 0 ? 3 : 1;
    // rows after a shared beginning are written together with it, and then moved
    const size_t bytes = ((size_t)rows + (size_t)batch->shared) * (size_t)axes * sizeof(int32_t);
    int32_t* positions = sumi_alloc(plan->heap, bytes);
    if (positions == NULL) {
        sumi_out_of_memory(&plan->error, bytes, "token positions");
        return SUMI_NO_VALUE;
    }
    for (int32_t p = 0, row = 0; p < batch->prompt_count; row += unshared_rows(batch, p++)) {
        const bool shares = p > 0 && batch->shared > 0;
        int32_t* prompt_positions = positions + (int64_t)row * axes;
        fill_positions(prompt_positions, axes, (sumi_span){shares ? 0 : row, all_rows(batch, p)}, batch);
        if (shares)
            memmove(prompt_positions, prompt_positions + (int64_t)batch->shared * axes,
                    (size_t)unshared_rows(batch, p) * (size_t)axes * sizeof *prompt_positions);
    }
    sumi_value value = sumi_plan_constant(plan, "token_positions", SUMI_ELEMENT_INT, rows, axes, positions);
    sumi_free(plan->heap, positions);
    return value;
}

// Table of cos and sin for every token. full: for the layers without a window.
static sumi_value write_language_rope(const sumi_language_model* model, sumi_plan* plan, sumi_value positions,
                                      bool full)
{
    sumi_plan_rope_args args = {.positions = positions,
                                .axes = 1,
                                .pairs = {model->head_dim / 2},
                                .theta = full ? model->theta : model->window_theta,
                                .divisor = full ? model->position_divisor : 1.0};
    if (model->sections[0] > 0) {
        args.axes = 3;
        args.order = model->interleaves_axes ? SUMI_ROPE_IN_TURNS : SUMI_ROPE_CONTINUED;
        memcpy(args.pairs, model->sections, sizeof model->sections);
    }
    return sumi_plan_rope_table(plan, &args);
}

// Causal attention of each prompt. Rows after a shared beginning are a separate op, because a GPU has fast kernels
// only for sequences that begin with their first query, and nearly all rows are in such sequences.
static sumi_value write_attention(sumi_plan* plan, sumi_value qkv, const sumi_attention* attention, int32_t shared)
{
    sumi_attention subset = *attention;
    if (shared == 0 || subset.sequence_count == 1) return sumi_plan_attention(plan, "attention", qkv, attention);
    subset.sequence_count = 1;
    sumi_value o = sumi_plan_attention(plan, "attention", qkv, &subset);
    subset.sequences = attention->sequences + 1;
    subset.sequence_count = attention->sequence_count - 1;
    sumi_value later_outputs = sumi_plan_attention(plan, "attention_others", qkv, &subset);
    const int32_t begin = subset.sequences[0].span[1].begin;
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = later_outputs, .x_row = begin, .y = o, .y_row = begin});
    return o;
}

// One layer on h, in place.
static void write_language_layer(const sumi_language_model* model, sumi_plan* plan, const sumi_language_layer* w,
                                 sumi_value h, const sumi_attention* attention, int32_t shared, sumi_value rope)
{
    const sumi_language_model_settings* settings = model->settings;
    sumi_value a = sumi_plan_norm(
        plan, &(sumi_plan_norm_args){.label = "input_norm", .x = h, .weight = &w->input_norm, .eps = model->eps});
    sumi_value qkv = sumi_plan_linear(
        plan,
        &(sumi_plan_linear_args){
            .label = "attention.qkv", .x = a, .weight = &w->qkv, .bias = settings->has_qkv_bias ? &w->qkv_bias : NULL});
    sumi_plan_qk_norm_rope(plan, &(sumi_plan_qk_args){.label = "attention.qk_norm_rope",
                                                      .qkv = qkv,
                                                      .q_heads = model->q_heads,
                                                      .kv_heads = model->kv_heads,
                                                      .dim = model->head_dim,
                                                      .q_norm = settings->has_qk_norm ? &w->q_norm : NULL,
                                                      .k_norm = settings->has_qk_norm ? &w->k_norm : NULL,
                                                      .eps = model->eps,
                                                      .rope = rope,
                                                      .rotary = SUMI_ROTARY_HALVES});
    sumi_value o = write_attention(plan, qkv, attention, shared);
    if (settings->norms_branches) {
        sumi_value branch =
            sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "attention.out", .x = o, .weight = &w->out});
        sumi_plan_norm_gate_add(
            plan,
            &(sumi_plan_norm_gate_add_args){
                .label = "attention.out_norm", .x = h, .branch = branch, .weight = &w->out_norm, .eps = model->eps});
    } else {
        sumi_plan_linear(plan,
                         &(sumi_plan_linear_args){.label = "attention.out", .x = o, .weight = &w->out, .residual = h});
    }
    sumi_value m = sumi_plan_norm(
        plan, &(sumi_plan_norm_args){.label = "mlp_norm", .x = h, .weight = &w->mlp_norm, .eps = model->eps});
    sumi_value g = sumi_plan_linear_gated(plan, "mlp.gate_up", m, &w->gate_up, settings->activation);
    if (settings->norms_branches) {
        sumi_value branch =
            sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "mlp.down", .x = g, .weight = &w->down});
        sumi_plan_norm_gate_add(
            plan, &(sumi_plan_norm_gate_add_args){
                      .label = "mlp.down_norm", .x = h, .branch = branch, .weight = &w->down_norm, .eps = model->eps});
    } else {
        sumi_plan_linear(plan,
                         &(sumi_plan_linear_args){.label = "mlp.down", .x = g, .weight = &w->down, .residual = h});
    }
}

// bfloat16(sqrt(width)): the reference casts the factor to the type of the released weights.
static float embedding_factor(int32_t width)
{
    float factor = sqrtf((float)width);
    uint32_t bits;
    memcpy(&bits, &factor, sizeof bits);
    bits = (bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u; // round to nearest even
    memcpy(&factor, &bits, sizeof factor);
    return factor;
}

// The sequence of a prompt whose own rows begin at `row`.
static sumi_sequence sequence_of(const sumi_text_batch* batch, int32_t prompt, int32_t row)
{
    const int32_t count = batch->counts[prompt], padding = all_rows(batch, prompt) - count;
    if (prompt > 0 && batch->shared > 0) {
        return (sumi_sequence){.span = {{0, batch->shared}, {row, count - batch->shared}},
                               .span_count = 2,
                               .query_spans = 1,
                               .query_first = 1};
    }
    if (padding > 0) {
        return (sumi_sequence){
            .span = {{row, count}, {row + count, padding}}, .span_count = 2, .query_spans = 2, .key_spans = 1};
    }
    return (sumi_sequence){.span = {{row, count}}, .span_count = 1, .query_spans = 1};
}

// Adds what the pictures have for the rows after this layer. The reference adds in the type of the activations too.
static void write_deep_rows(sumi_plan* plan, const sumi_text_batch* batch, sumi_value h, int32_t layer)
{
    for (int32_t i = 0; i < batch->picture_count; i++) {
        const sumi_text_picture* picture = &batch->pictures[i];
        if (layer >= picture->deep_count) continue;
        sumi_plan_add_rows(plan, &(sumi_plan_add_rows_args){.label = "deep_add",
                                                            .x = picture->deep[layer],
                                                            .x_row = picture->value_row,
                                                            .y = h,
                                                            .y_row = picture->row,
                                                            .rows = picture->grid_height * picture->grid_width,
                                                            .scale = 1.0f});
    }
}

static sumi_value write_language_text(const void* memory, sumi_plan* plan, const sumi_text_batch* batch)
{
    const sumi_language_model* model = memory;
    SUMI_ASSERT(batch->prompt_count >= 1);
    SUMI_ASSERT(batch->picture_count == 0 || model->settings->takes_pictures);
    if (plan->error.result != SUMI_OK) {
        return SUMI_NO_VALUE; // ids may not exist, and then neither does the number of rows
    }
    int32_t rows = sumi_plan_info(plan, batch->ids)->rows;
    sumi_sequence* sequences = sumi_alloc_array(plan->heap, (size_t)batch->prompt_count, sizeof *sequences);
    if (sequences == NULL) {
        sumi_out_of_memory(&plan->error, (size_t)batch->prompt_count * sizeof *sequences, "attention sequences");
        return SUMI_NO_VALUE;
    }
    for (int32_t p = 0, row = 0; p < batch->prompt_count; row += unshared_rows(batch, p++))
        sequences[p] = sequence_of(batch, p, row);
    sumi_attention attention = {.q_heads = model->q_heads,
                                .kv_heads = model->kv_heads,
                                .dim = model->head_dim,
                                .scale = model->attention_scale,
                                .causal = true,
                                .sequences = sequences,
                                .sequence_count = batch->prompt_count};

    sumi_plan_prefix(plan, "text.");
    bool has_windows = false, has_full = false;
    for (int32_t i = 0; i < model->layer_count; i++) {
        has_windows = has_windows || model->layers[i].has_window;
        has_full = has_full || !model->layers[i].has_window;
    }
    sumi_value positions = write_positions(model, plan, batch, rows), ropes[2] = {SUMI_NO_VALUE, SUMI_NO_VALUE};
    if (has_full) ropes[0] = write_language_rope(model, plan, positions, true);
    if (has_windows) ropes[1] = write_language_rope(model, plan, positions, false);
    sumi_value h = sumi_plan_embed_rows(plan, batch->ids, &model->embedding,
                                        model->settings->scales_embedding ? embedding_factor(model->width) : 1.0f);
    for (int32_t i = 0; i < batch->picture_count; i++) {
        const sumi_text_picture* picture = &batch->pictures[i];
        sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = picture->value,
                                                         .x_row = picture->value_row,
                                                         .y = h,
                                                         .y_row = picture->row,
                                                         .rows = picture->grid_height * picture->grid_width});
    }
    const int32_t tap_count = model->settings->tap_count, *taps = model->settings->taps;
    sumi_value features = SUMI_NO_VALUE; // of one tap: h itself
    if (tap_count > 1)
        features = sumi_plan_value(plan, "features", SUMI_ELEMENT_ACTIVATION, rows, tap_count * model->width);
    for (int32_t layer = 0, tap = 0; layer < model->layer_count; layer++) {
        const sumi_language_layer* w = &model->layers[layer];
        sumi_plan_prefix(plan, "text.layers.%d.", (int)layer);
        attention.window = w->has_window ? model->window : 0;
        write_language_layer(model, plan, w, h, &attention, batch->shared, ropes[w->has_window]);
        write_deep_rows(plan, batch, h, layer);
        if (tap_count <= 1 || taps[tap] != layer + 1) continue;
        sumi_plan_copy_rows(plan,
                            &(sumi_plan_copy_args){
                                .x = h, .y = features, .writes_some_columns = true, .y_column = tap++ * model->width});
    }
    sumi_plan_prefix(plan, "text.");
    if (tap_count > 1) h = features;
    if (model->settings->norms_features) {
        h = sumi_plan_norm(
            plan, &(sumi_plan_norm_args){.label = "norm", .x = h, .weight = &model->final_norm, .eps = model->eps});
    }
    sumi_plan_prefix(plan, "%s", "");
    sumi_free(plan->heap, sequences);
    return h;
}

const sumi_text_encoder_module sumi_language_model_module = {.model_bytes = sizeof(sumi_language_model),
                                                             .bind = bind_language_model,
                                                             .properties = language_properties,
                                                             .write = write_language_text};
