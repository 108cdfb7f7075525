// Tensor names as patterns. '#' stands for the index of a layer, '@' for the same index counted from the last layer
// (LDM numbers up blocks in reverse), '%' for the index of a block inside a layer. '|' separates alternative names: a
// tensor is present when one of its names is.
#include "expected.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PREFIXES 5

typedef struct rule_set {
    const char* layer_prefixes[MAX_PREFIXES]; // the indices behind them give the number of layers; NULL: no '#'
    const char* inner_prefixes[2];            // likewise for '%': blocks inside a layer
    const char* config_key;                   // member of config.json with the number of layers
    const char* const* names;
    bool all_but_last;        // the last layer is not used
    bool outer_only_but_last; // the last layer has no such tensors (samplers between levels)
} rule_set;

#define BLOCK_NAMES(kind)                                                                                              \
    kind ".#.attention.to_q.weight|" kind ".#.attention.qkv.weight",                                                   \
        kind ".#.attention.to_k.weight|" kind ".#.attention.qkv.weight",                                               \
        kind ".#.attention.to_v.weight|" kind ".#.attention.qkv.weight",                                               \
        kind ".#.attention.to_out.0.weight|" kind ".#.attention.out.weight",                                           \
        kind ".#.attention.norm_q.weight|" kind ".#.attention.q_norm.weight",                                          \
        kind ".#.attention.norm_k.weight|" kind ".#.attention.k_norm.weight", kind ".#.feed_forward.w1.weight",        \
        kind ".#.feed_forward.w2.weight", kind ".#.feed_forward.w3.weight", kind ".#.attention_norm1.weight",          \
        kind ".#.attention_norm2.weight", kind ".#.ffn_norm1.weight", kind ".#.ffn_norm2.weight"

static const char* const s_z_image_once[] = {
    "all_x_embedder.2-1.weight|x_embedder.weight",
    "all_x_embedder.2-1.bias|x_embedder.bias",
    "t_embedder.mlp.0.weight",
    "t_embedder.mlp.0.bias",
    "t_embedder.mlp.2.weight",
    "t_embedder.mlp.2.bias",
    "cap_embedder.0.weight",
    "cap_embedder.1.weight",
    "cap_embedder.1.bias",
    "x_pad_token",
    "cap_pad_token",
    "all_final_layer.2-1.linear.weight|final_layer.linear.weight",
    "all_final_layer.2-1.linear.bias|final_layer.linear.bias",
    "all_final_layer.2-1.adaLN_modulation.1.weight|final_layer.adaLN_modulation.1.weight",
    "all_final_layer.2-1.adaLN_modulation.1.bias|final_layer.adaLN_modulation.1.bias",
    NULL};
static const char* const s_z_image_layers[] = {BLOCK_NAMES("layers"), "layers.#.adaLN_modulation.0.weight",
                                               "layers.#.adaLN_modulation.0.bias", NULL};
static const char* const s_z_image_noise[] = {BLOCK_NAMES("noise_refiner"), "noise_refiner.#.adaLN_modulation.0.weight",
                                              "noise_refiner.#.adaLN_modulation.0.bias", NULL};
static const char* const s_z_image_context[] = {BLOCK_NAMES("context_refiner"), NULL};
static const rule_set s_z_image_rules[] = {
    {.names = s_z_image_once},
    {.layer_prefixes = {"layers."}, .config_key = "n_layers", .names = s_z_image_layers},
    {.layer_prefixes = {"noise_refiner."}, .config_key = "n_refiner_layers", .names = s_z_image_noise},
    {.layer_prefixes = {"context_refiner."}, .config_key = "n_refiner_layers", .names = s_z_image_context},
    {.names = NULL}};

#define QWEN_NAMES(canonical, gguf)                                                                                    \
    "model.layers.#." canonical ".weight|layers.#." canonical ".weight|model.language_model.layers.#." canonical       \
    ".weight|language_model.layers.#." canonical ".weight|blk.#." gguf ".weight"
static const char* const s_qwen3_once[] = {
    "model.embed_tokens.weight|embed_tokens.weight|model.language_model.embed_tokens.weight|"
    "language_model.embed_tokens.weight|token_embd.weight",
    NULL};
static const char* const s_qwen3_layers[] = {
    QWEN_NAMES("input_layernorm", "attn_norm"),    QWEN_NAMES("self_attn.q_proj", "attn_q"),
    QWEN_NAMES("self_attn.k_proj", "attn_k"),      QWEN_NAMES("self_attn.v_proj", "attn_v"),
    QWEN_NAMES("self_attn.q_norm", "attn_q_norm"), QWEN_NAMES("self_attn.k_norm", "attn_k_norm"),
    QWEN_NAMES("self_attn.o_proj", "attn_output"), QWEN_NAMES("post_attention_layernorm", "ffn_norm"),
    QWEN_NAMES("mlp.gate_proj", "ffn_gate"),       QWEN_NAMES("mlp.up_proj", "ffn_up"),
    QWEN_NAMES("mlp.down_proj", "ffn_down"),       NULL};
static const rule_set s_qwen3_rules[] = {
    {.names = s_qwen3_once},
    {.layer_prefixes = {"model.layers.", "layers.", "blk.", "model.language_model.layers.", "language_model.layers."},
     .config_key = "num_hidden_layers",
     .names = s_qwen3_layers,
     .all_but_last = true},
    {.names = NULL}};

// weight and bias of one module, by the name of diffusers and by that of LDM
#define BOTH(a, b) a ".weight|" b ".weight", a ".bias|" b ".bias"
#define RESNET(a, b)                                                                                                   \
    BOTH(a "norm1", b "norm1"), BOTH(a "conv1", b "conv1"), BOTH(a "norm2", b "norm2"), BOTH(a "conv2", b "conv2")
#define MIDDLE(side)                                                                                                   \
    RESNET(side ".mid_block.resnets.0.", side ".mid.block_1."),                                                        \
        RESNET(side ".mid_block.resnets.1.", side ".mid.block_2."),                                                    \
        BOTH(side ".mid_block.attentions.0.group_norm", side ".mid.attn_1.norm"),                                      \
        BOTH(side ".mid_block.attentions.0.to_q", side ".mid.attn_1.q"),                                               \
        BOTH(side ".mid_block.attentions.0.to_k", side ".mid.attn_1.k"),                                               \
        BOTH(side ".mid_block.attentions.0.to_v", side ".mid.attn_1.v"),                                               \
        BOTH(side ".mid_block.attentions.0.to_out.0", side ".mid.attn_1.proj_out"),                                    \
        BOTH(side ".conv_in", side ".conv_in"), BOTH(side ".conv_norm_out", side ".norm_out"),                         \
        BOTH(side ".conv_out", side ".conv_out")

static const char* const s_vae_decoder_once[] = {MIDDLE("decoder"), NULL};
static const char* const s_vae_decoder_blocks[] = {RESNET("decoder.up_blocks.#.resnets.%.", "decoder.up.@.block.%."),
                                                   NULL};
static const char* const s_vae_decoder_samplers[] = {
    BOTH("decoder.up_blocks.#.upsamplers.0.conv", "decoder.up.@.upsample.conv"), NULL};
static const char* const s_vae_encoder_once[] = {MIDDLE("encoder"), NULL};
static const char* const s_vae_encoder_blocks[] = {
    RESNET("encoder.down_blocks.#.resnets.%.", "encoder.down.#.block.%."), NULL};
static const char* const s_vae_encoder_samplers[] = {
    BOTH("encoder.down_blocks.#.downsamplers.0.conv", "encoder.down.#.downsample.conv"), NULL};
static const rule_set s_vae_decoder_rules[] = {
    {.names = s_vae_decoder_once},
    {.layer_prefixes = {"decoder.up_blocks.", "decoder.up."},
     .inner_prefixes = {"decoder.up_blocks.#.resnets.", "decoder.up.#.block."},
     .names = s_vae_decoder_blocks},
    {.layer_prefixes = {"decoder.up_blocks.", "decoder.up."},
     .names = s_vae_decoder_samplers,
     .outer_only_but_last = true},
    {.names = NULL}};
static const rule_set s_vae_encoder_rules[] = {
    {.names = s_vae_encoder_once},
    {.layer_prefixes = {"encoder.down_blocks.", "encoder.down."},
     .inner_prefixes = {"encoder.down_blocks.#.resnets.", "encoder.down.#.block."},
     .names = s_vae_encoder_blocks},
    {.layer_prefixes = {"encoder.down_blocks.", "encoder.down."},
     .names = s_vae_encoder_samplers,
     .outer_only_but_last = true},
    {.names = NULL}};

// ---- Counting and filling in ----------------------------------------------------------------------------------------

int32_t expected_count(const sumi_component* part, const char* prefix)
{
    size_t bytes = strlen(prefix);
    int32_t count = 0;
    for (size_t i = 0; i < part->set->count; i++) {
        const char* name = sumi_component_tensor_name(part, &part->set->tensors[i]);
        if (!name || strncmp(name, prefix, bytes) != 0 || name[bytes] < '0' || name[bytes] > '9') continue;
        long index = strtol(name + bytes, NULL, 10);
        if (index < 10000 && index >= count) count = (int32_t)index + 1;
    }
    return count;
}

double expected_config(const sumi_file* config, const char* key)
{
    sumi_json json;
    sumi_json_text name;
    double value = 0.0;
    if (!config->data) return 0.0;
    sumi_json_begin(&json, config->data, (size_t)config->bytes, NULL);
    if (!sumi_json_object(&json)) return 0.0;
    while (sumi_json_key(&json, &name)) {
        if (sumi_json_is(&name, key) && sumi_json_peek(&json) == SUMI_JSON_NUMBER) value = sumi_json_number(&json);
        else sumi_json_skip(&json);
    }
    return value;
}

bool expected_flag(const sumi_file* config, const char* key)
{
    sumi_json json;
    sumi_json_text name;
    bool is_true = false;
    if (!config->data) return false;
    sumi_json_begin(&json, config->data, (size_t)config->bytes, NULL);
    if (!sumi_json_object(&json)) return false;
    while (sumi_json_key(&json, &name)) {
        is_true = is_true || (sumi_json_is(&name, key) && sumi_json_peek(&json) == SUMI_JSON_TRUE);
        sumi_json_skip(&json);
    }
    return is_true;
}

typedef struct indices {
    int32_t layer, layer_count, inner;
} indices;

static void fill_in(const char* pattern, size_t pattern_bytes, indices at, char* into, size_t capacity)
{
    size_t used = 0;
    for (size_t i = 0; i < pattern_bytes && used + 12 < capacity; i++) {
        char c = pattern[i];
        if (c == '#') used += (size_t)snprintf(into + used, capacity - used, "%d", at.layer);
        else if (c == '@') used += (size_t)snprintf(into + used, capacity - used, "%d", at.layer_count - 1 - at.layer);
        else if (c == '%') used += (size_t)snprintf(into + used, capacity - used, "%d", at.inner);
        else into[used++] = c;
    }
    into[used] = 0;
}

static void check_name(const sumi_component* part, const char* pattern, indices at, missing_list* missing)
{
    char name[192];
    for (const char* from = pattern;;) {
        size_t bytes = strcspn(from, "|");
        fill_in(from, bytes, at, name, sizeof name);
        if (sumi_component_find(part, name)) return;
        if (!from[bytes]) break;
        from += bytes + 1;
    }
    if (missing->count < 64)
        fill_in(pattern, strcspn(pattern, "|"), at, missing->names[missing->count], sizeof missing->names[0]);
    missing->count++;
}

static int32_t count_any(const sumi_component* part, const char* const* prefixes, size_t prefix_count, indices at)
{
    int32_t most = 0;
    for (size_t i = 0; i < prefix_count; i++) {
        char prefix[192];
        if (!prefixes[i]) continue;
        fill_in(prefixes[i], strlen(prefixes[i]), at, prefix, sizeof prefix);
        int32_t count = expected_count(part, prefix);
        if (count > most) most = count;
    }
    return most;
}

static void check_rules(const sumi_component* part, const rule_set* rules, missing_list* missing)
{
    for (; rules->names; rules++) {
        indices at = {0, 1, 0};
        if (rules->layer_prefixes[0]) at.layer_count = count_any(part, rules->layer_prefixes, MAX_PREFIXES, at);
        double said = rules->config_key ? expected_config(&part->config, rules->config_key) : 0.0;
        if (said > at.layer_count && said < 1000.0) at.layer_count = (int32_t)said;
        // In a file without any layer the tensors of the first layer are reported as missing.
        if (at.layer_count == 0) at.layer_count = 1;
        int32_t used_count = rules->all_but_last || rules->outer_only_but_last ? at.layer_count - 1 : at.layer_count;
        // LDM numbers layers in reverse, so its count for this layer may be that of another layer. All layers have the
        // same number of resnets: the largest count of all layers is used.
        int32_t inner_count = 1;
        if (rules->inner_prefixes[0]) {
            inner_count = 0;
            for (at.layer = 0; at.layer < at.layer_count; at.layer++) {
                int32_t count = count_any(part, rules->inner_prefixes, 2, at);
                if (count > inner_count) inner_count = count;
            }
        }
        for (at.layer = 0; at.layer < used_count; at.layer++) {
            for (at.inner = 0; at.inner < inner_count; at.inner++) {
                for (const char* const* name = rules->names; *name; name++) check_name(part, *name, at, missing);
            }
        }
    }
}

bool expected_check(const char* family, const sumi_component* part, sumi_component_kind kind, missing_list* missing)
{
    *missing = (missing_list){.count = 0};
    bool known = strcmp(family, "z-image") == 0;
    // without a family, a component by itself is recognised by its network
    const char* network = sumi_component_network(part);
    if (!family[0] && kind == SUMI_COMPONENT_TEXT_ENCODER) known = strcmp(network, "qwen3") == 0;
    if (!family[0] && kind == SUMI_COMPONENT_VAE) known = strcmp(network, "flux-vae") == 0;
    if (kind == SUMI_COMPONENT_TEXT_ENCODER_2 || kind == SUMI_COMPONENT_VISION) known = false;
    if (!part->present || !known) return false;
    if (kind == SUMI_COMPONENT_TRANSFORMER) check_rules(part, s_z_image_rules, missing);
    if (kind == SUMI_COMPONENT_TEXT_ENCODER) check_rules(part, s_qwen3_rules, missing);
    if (kind == SUMI_COMPONENT_VAE) {
        check_rules(part, s_vae_decoder_rules, missing);
        if (expected_count(part, "encoder.down_blocks.") > 0 || expected_count(part, "encoder.down.") > 0)
            check_rules(part, s_vae_encoder_rules, missing);
    }
    return true;
}
