// Writes synthetic checkpoints. The tensors are first listed with the names of the released files. Then the header is
// written, then the values. The random generator is seeded anew for every tensor, so several threads can write.
// Matrices are scaled by 1 / sqrt(inputs), norm weights are near 1 and biases near 0, so activations keep their
// magnitude through any number of layers.
//
// A checkpoint can also be held in memory without a file. Then the sumi_files of the host program return memory in
// which the norms have values of their own, and all other tensors are views of one block of random numbers that is
// mapped many times. Sixty gigabytes then take 64 MB of memory and no time to write. All random numbers have one
// standard deviation, 0.02, which suits matrices of a few thousand inputs. The layout of such a file, in whole pages:
//
//     header | norms     | the block | the block | ... | first pages of the block | block of another type | ...
//     private memory     | views of one memory file per element type
//
// A file with matrices in GGUF's block types is a GGUF file with the same tensor names; all others are safetensors.
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "synthetic.h"
#include "synthetic_blocks.h"
#include "system.h"
#include "views.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if !defined(_WIN32)
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#endif

const synthetic_config synthetic_tiny = {.dim = 128,
                                         .layers = 2,
                                         .refiners = 1,
                                         .heads = 4,
                                         .text_width = 128,
                                         .text_layers = 3,
                                         .text_heads = 4,
                                         .text_kv_heads = 2,
                                         .text_head = 32,
                                         .text_hidden = 384,
                                         .vocabulary = 512,
                                         .vae_widths = {32, 32, 64, 64},
                                         .vae_resnets = 1,
                                         .vae_groups = 8};
const synthetic_config synthetic_mid = {.dim = 1024,
                                        .layers = 8,
                                        .refiners = 2,
                                        .heads = 16,
                                        .text_width = 1024,
                                        .text_layers = 12,
                                        .text_heads = 16,
                                        .text_kv_heads = 8,
                                        .text_head = 128,
                                        .text_hidden = 3072,
                                        .vocabulary = 512,
                                        .vae_widths = {64, 128, 256, 256},
                                        .vae_resnets = 2,
                                        .vae_groups = 32};

const synthetic_config synthetic_z_image = {.dim = 3840,
                                            .layers = 30,
                                            .refiners = 2,
                                            .heads = 30,
                                            .text_width = 2560,
                                            .text_layers = 36,
                                            .text_heads = 32,
                                            .text_kv_heads = 8,
                                            .text_head = 128,
                                            .text_hidden = 9728,
                                            .vocabulary = 151936,
                                            .vae_widths = {128, 256, 512, 512},
                                            .vae_resnets = 2,
                                            .vae_groups = 32};

const synthetic_config synthetic_qwen_image_tiny = {.family = SYNTHETIC_QWEN_IMAGE,
                                                    .dim = 128,
                                                    .layers = 2,
                                                    .heads = 2,
                                                    .text_width = 128,
                                                    .text_layers = 2,
                                                    .text_heads = 4,
                                                    .text_kv_heads = 2,
                                                    .text_head = 32,
                                                    .text_hidden = 256,
                                                    .vocabulary = 512,
                                                    .vision_width = 64,
                                                    .vision_layers = 8,
                                                    .vision_heads = 2,
                                                    .vision_hidden = 76,
                                                    .vae_widths = {16, 32, 64, 64},
                                                    .vae_resnets = 2};
const synthetic_config synthetic_qwen_image_mid = {.family = SYNTHETIC_QWEN_IMAGE,
                                                   .dim = 1024,
                                                   .layers = 8,
                                                   .heads = 8,
                                                   .text_width = 1024,
                                                   .text_layers = 12,
                                                   .text_heads = 8,
                                                   .text_kv_heads = 2,
                                                   .text_head = 128,
                                                   .text_hidden = 4096,
                                                   .vocabulary = 512,
                                                   .vision_width = 320,
                                                   .vision_layers = 8,
                                                   .vision_heads = 4,
                                                   .vision_hidden = 856,
                                                   .vae_widths = {48, 96, 192, 192},
                                                   .vae_resnets = 2};

const synthetic_config synthetic_qwen_image = {.family = SYNTHETIC_QWEN_IMAGE,
                                               .dim = 3072,
                                               .layers = 60,
                                               .heads = 24,
                                               .text_width = 3584,
                                               .text_layers = 28,
                                               .text_heads = 28,
                                               .text_kv_heads = 4,
                                               .text_head = 128,
                                               .text_hidden = 18944,
                                               .vocabulary = 152064,
                                               .vision_width = 1280,
                                               .vision_layers = 32,
                                               .vision_heads = 16,
                                               .vision_hidden = 3420,
                                               .vae_widths = {96, 192, 384, 384},
                                               .vae_resnets = 2};

const synthetic_config synthetic_newbie_tiny = {.family = SYNTHETIC_NEWBIE,
                                                .dim = 288,
                                                .layers = 2,
                                                .refiners = 1,
                                                .heads = 3,
                                                .kv_heads = 1,
                                                .text_width = 128,
                                                .text_layers = 7,
                                                .text_heads = 4,
                                                .text_kv_heads = 2,
                                                .text_head = 32,
                                                .text_hidden = 256,
                                                .text_window = 24,
                                                .vocabulary = 512,
                                                .pooled_width = 128,
                                                .pooled_layers = 2,
                                                .pooled_hidden = 256,
                                                .pooled_vocabulary = 512,
                                                .vae_widths = {32, 32, 64, 64},
                                                .vae_resnets = 1,
                                                .vae_groups = 8};
const synthetic_config synthetic_newbie_mid = {.family = SYNTHETIC_NEWBIE,
                                               .dim = 1152,
                                               .layers = 8,
                                               .refiners = 2,
                                               .heads = 12,
                                               .kv_heads = 4,
                                               .text_width = 1024,
                                               .text_layers = 13,
                                               .text_heads = 4,
                                               .text_kv_heads = 2,
                                               .text_head = 256,
                                               .text_hidden = 4096,
                                               .text_window = 64,
                                               .vocabulary = 512,
                                               .pooled_width = 512,
                                               .pooled_layers = 6,
                                               .pooled_hidden = 2048,
                                               .pooled_vocabulary = 512,
                                               .vae_widths = {64, 128, 256, 256},
                                               .vae_resnets = 2,
                                               .vae_groups = 32};

const synthetic_config synthetic_newbie = {.family = SYNTHETIC_NEWBIE,
                                           .dim = 2304,
                                           .layers = 36,
                                           .refiners = 2,
                                           .heads = 24,
                                           .kv_heads = 8,
                                           .text_width = 2560,
                                           .text_layers = 34,
                                           .text_heads = 8,
                                           .text_kv_heads = 4,
                                           .text_head = 256,
                                           .text_hidden = 10240,
                                           .text_window = 1024,
                                           .vocabulary = 262208,
                                           .pooled_width = 1024,
                                           .pooled_layers = 24,
                                           .pooled_hidden = 4096,
                                           .pooled_vocabulary = 250002,
                                           .vae_widths = {128, 256, 512, 512},
                                           .vae_resnets = 2,
                                           .vae_groups = 32};

static const struct {
    const char* name;
    sumi_weight_format weights;
} s_formats[] = {{"bf16", SUMI_WEIGHTS_BF16},
                 {"fp8", SUMI_WEIGHTS_FP8},
                 {"int8", SUMI_WEIGHTS_INT8},
                 {"int4", SUMI_WEIGHTS_INT4},
                 {"as-stored", SUMI_WEIGHTS_AS_STORED}};
#define FORMAT_COUNT (sizeof s_formats / sizeof *s_formats)

bool synthetic_weights(const char* name, sumi_weight_format* out_weights)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        if (strcmp(name, s_formats[i].name) != 0) continue;
        *out_weights = s_formats[i].weights;
        return true;
    }
    return false;
}

const char* synthetic_weights_name(sumi_weight_format weights)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        if (weights == s_formats[i].weights) return s_formats[i].name;
    }
    return s_formats[0].name;
}

const synthetic_config* synthetic_find(const char* name)
{
    static const struct {
        const char* name;
        const synthetic_config* config;
    } list[] = {{"tiny", &synthetic_tiny},
                {"mid", &synthetic_mid},
                {"z-image", &synthetic_z_image},
                {"qwen-image-tiny", &synthetic_qwen_image_tiny},
                {"qwen-image-mid", &synthetic_qwen_image_mid},
                {"qwen-image", &synthetic_qwen_image},
                {"newbie-tiny", &synthetic_newbie_tiny},
                {"newbie-mid", &synthetic_newbie_mid},
                {"newbie", &synthetic_newbie}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (strcmp(name, list[i].name) == 0) return list[i].config;
    }
    return NULL;
}

// For Z-Image these are the rows of the template's beginning and end; for Qwen-Image those of its end, because the
// features of its beginning are dropped; for NewBie-image only <bos>, because texts begin with "<Prompt Start>".
int32_t synthetic_template_rows(const synthetic_config* config)
{
    return config->family == SYNTHETIC_QWEN_IMAGE ? 5 : config->family == SYNTHETIC_NEWBIE ? 1 : 19;
}

const char* synthetic_opening(const synthetic_config* config)
{
    return config->family == SYNTHETIC_NEWBIE ? "<Prompt Start>" : "";
}

#define LATENTS 16
#define TIME_HIDDEN 1024
#define TIME_WIDTH 256

// ---- A list of tensors ----------------------------------------------------------------------------------------------

typedef struct listed {
    char name[128];
    int64_t shape[5];
    int32_t rank;
    float center, spread; // values are uniform in center +- spread
} listed;

typedef struct list {
    listed* tensors;
    size_t count, capacity;
    bool out_of_memory;
} list;

static void add_shaped(list* l, float center, float spread, const listed* shape, const char* format, va_list arguments)
{
    if (l->count == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 256;
        listed* more = realloc(l->tensors, capacity * sizeof *more);
        if (!more) {
            l->out_of_memory = true;
            return;
        }
        l->tensors = more;
        l->capacity = capacity;
    }
    listed* t = &l->tensors[l->count++];
    *t = *shape;
    t->center = center;
    t->spread = spread;
    vsnprintf(t->name, sizeof t->name, format, arguments);
}

SYSTEM_PRINTF(7, 8)
static void add(list* l, float center, float spread, int64_t a, int64_t b, int64_t kernel, const char* format, ...)
{
    const listed shape = {.shape = {a, b, kernel, kernel}, .rank = kernel ? 4 : b ? 2 : 1};
    va_list arguments;
    va_start(arguments, format);
    add_shaped(l, center, spread, &shape, format, arguments);
    va_end(arguments);
}

typedef struct kernel_size {
    int32_t frames, side;
} kernel_size;

// A convolution kernel [out, in, frames, side, side]. For a single image only side x side values of it have an effect.
SYSTEM_PRINTF(5, 6)
static void add_kernel(list* l, int32_t out, int32_t in, kernel_size size, const char* format, ...)
{
    const listed shape = {.shape = {out, in, size.frames, size.side, size.side}, .rank = 5};
    va_list arguments;
    va_start(arguments, format);
    add_shaped(l, 0.0f, sqrtf(3.0f / (float)(in * size.side * size.side)), &shape, format, arguments);
    va_end(arguments);
}

// The weight of a norm that is stored as [width, 1, 1] or [width, 1, 1, 1].
SYSTEM_PRINTF(4, 5)
static void add_gamma(list* l, int32_t width, int32_t rank, const char* format, ...)
{
    const listed shape = {.shape = {width, 1, 1, 1}, .rank = rank};
    va_list arguments;
    va_start(arguments, format);
    add_shaped(l, 1.0f, 0.2f, &shape, format, arguments);
    va_end(arguments);
}

// A factor of a low-rank adapter, stored as [1, rows, cols].
SYSTEM_PRINTF(5, 6)
static void add_factor(list* l, float spread, int32_t rows, int32_t cols, const char* format, ...)
{
    const listed shape = {.shape = {1, rows, cols}, .rank = 3};
    va_list arguments;
    va_start(arguments, format);
    add_shaped(l, 0.0f, spread, &shape, format, arguments);
    va_end(arguments);
}

static void add_matrix(list* l, const char* prefix, const char* name, int32_t rows, int32_t cols)
{
    add(l, 0.0f, sqrtf(3.0f / (float)cols), rows, cols, 0, "%s%s.weight", prefix, name);
}

static void add_linear(list* l, const char* prefix, const char* name, int32_t rows, int32_t cols)
{
    add_matrix(l, prefix, name, rows, cols);
    add(l, 0.0f, 0.05f, rows, 0, 0, "%s%s.bias", prefix, name);
}

static void add_norm(list* l, const char* prefix, const char* name, int32_t width)
{
    add(l, 1.0f, 0.2f, width, 0, 0, "%s%s.weight", prefix, name);
}

static void add_group_norm(list* l, const char* prefix, const char* name, int32_t width)
{
    add_norm(l, prefix, name, width);
    add(l, 0.0f, 0.05f, width, 0, 0, "%s%s.bias", prefix, name);
}

static void add_conv(list* l, const char* prefix, const char* name, int32_t out, int32_t in, int32_t kernel)
{
    add(l, 0.0f, sqrtf(3.0f / (float)(in * kernel * kernel)), out, in, kernel, "%s%s.weight", prefix, name);
    add(l, 0.0f, 0.05f, out, 0, 0, "%s%s.bias", prefix, name);
}

// ---- Z-Image's three networks ---------------------------------------------------------------------------------------

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

static void list_block(list* l, const synthetic_config* c, const char* kind, int32_t index, bool modulated)
{
    char p[64];
    int32_t dim = c->dim, head = dim / c->heads, hidden = (int32_t)((double)dim / 3.0 * 8.0);
    snprintf(p, sizeof p, "%s.%d.", kind, index);
    add_matrix(l, p, "attention.to_q", dim, dim);
    add_matrix(l, p, "attention.to_k", dim, dim);
    add_matrix(l, p, "attention.to_v", dim, dim);
    add_matrix(l, p, "attention.to_out.0", dim, dim);
    add_norm(l, p, "attention.norm_q", head);
    add_norm(l, p, "attention.norm_k", head);
    add_matrix(l, p, "feed_forward.w1", hidden, dim);
    add_matrix(l, p, "feed_forward.w2", dim, hidden);
    add_matrix(l, p, "feed_forward.w3", hidden, dim);
    add_norm(l, p, "attention_norm1", dim);
    add_norm(l, p, "attention_norm2", dim);
    add_norm(l, p, "ffn_norm1", dim);
    add_norm(l, p, "ffn_norm2", dim);
    if (modulated) add_linear(l, p, "adaLN_modulation.0", 4 * dim, least(dim, 256));
}

static void list_transformer(list* l, const synthetic_config* c)
{
    int32_t dim = c->dim, condition = least(dim, 256);
    add_linear(l, "", "all_x_embedder.2-1", dim, 4 * LATENTS);
    add_linear(l, "", "t_embedder.mlp.0", TIME_HIDDEN, TIME_WIDTH);
    add_linear(l, "", "t_embedder.mlp.2", condition, TIME_HIDDEN);
    add_norm(l, "", "cap_embedder.0", c->text_width);
    add_linear(l, "", "cap_embedder.1", dim, c->text_width);
    add(l, 0.0f, 1.0f, 1, dim, 0, "x_pad_token");
    add(l, 0.0f, 1.0f, 1, dim, 0, "cap_pad_token");
    add_linear(l, "", "all_final_layer.2-1.adaLN_modulation.1", dim, condition);
    add_linear(l, "", "all_final_layer.2-1.linear", 4 * LATENTS, dim);
    for (int32_t i = 0; i < c->refiners; i++) list_block(l, c, "noise_refiner", i, true);
    for (int32_t i = 0; i < c->refiners; i++) list_block(l, c, "context_refiner", i, false);
    for (int32_t i = 0; i < c->layers; i++) list_block(l, c, "layers", i, true);
}

static void list_text_encoder(list* l, const synthetic_config* c)
{
    int32_t width = c->text_width;
    add(l, 0.0f, 1.0f, c->vocabulary, width, 0, "model.embed_tokens.weight");
    for (int32_t i = 0; i < c->text_layers; i++) {
        char p[64];
        snprintf(p, sizeof p, "model.layers.%d.", i);
        add_norm(l, p, "input_layernorm", width);
        add_matrix(l, p, "self_attn.q_proj", c->text_heads * c->text_head, width);
        add_matrix(l, p, "self_attn.k_proj", c->text_kv_heads * c->text_head, width);
        add_matrix(l, p, "self_attn.v_proj", c->text_kv_heads * c->text_head, width);
        add_norm(l, p, "self_attn.q_norm", c->text_head);
        add_norm(l, p, "self_attn.k_norm", c->text_head);
        add_matrix(l, p, "self_attn.o_proj", width, c->text_heads * c->text_head);
        add_norm(l, p, "post_attention_layernorm", width);
        add_matrix(l, p, "mlp.gate_proj", c->text_hidden, width);
        add_matrix(l, p, "mlp.up_proj", c->text_hidden, width);
        add_matrix(l, p, "mlp.down_proj", width, c->text_hidden);
    }
    add_norm(l, "model.", "norm", width);
}

static void list_resnet(list* l, const char* prefix, int32_t index, int32_t out, int32_t in)
{
    char p[80];
    snprintf(p, sizeof p, "%sresnets.%d.", prefix, index);
    add_group_norm(l, p, "norm1", in);
    add_conv(l, p, "conv1", out, in, 3);
    add_group_norm(l, p, "norm2", out);
    add_conv(l, p, "conv2", out, out, 3);
    if (in != out) add_conv(l, p, "conv_shortcut", out, in, 1);
}

static void list_middle(list* l, const char* prefix, int32_t width)
{
    static const char* const names[] = {"to_q", "to_k", "to_v", "to_out.0"};
    char p[80];
    list_resnet(l, prefix, 0, width, width);
    snprintf(p, sizeof p, "%sattentions.0.", prefix);
    add_group_norm(l, p, "group_norm", width);
    for (int32_t i = 0; i < 4; i++) add_linear(l, p, names[i], width, width);
    list_resnet(l, prefix, 1, width, width);
}

static void list_vae(list* l, const synthetic_config* c)
{
    const int32_t* w = c->vae_widths;
    add_conv(l, "", "encoder.conv_in", w[0], 3, 3);
    add_conv(l, "", "decoder.conv_in", w[3], LATENTS, 3);
    for (int32_t stage = 0; stage < 4; stage++) {
        char p[80];
        int32_t in = w[stage ? stage - 1 : 0];
        snprintf(p, sizeof p, "encoder.down_blocks.%d.", stage);
        for (int32_t r = 0; r < c->vae_resnets; r++) list_resnet(l, p, r, w[stage], r ? w[stage] : in);
        if (stage < 3) add_conv(l, p, "downsamplers.0.conv", w[stage], w[stage], 3);
        snprintf(p, sizeof p, "decoder.up_blocks.%d.", stage);
        int32_t out = w[3 - stage], up_in = w[stage ? 4 - stage : 3];
        for (int32_t r = 0; r <= c->vae_resnets; r++) list_resnet(l, p, r, out, r ? out : up_in);
        if (stage < 3) add_conv(l, p, "upsamplers.0.conv", out, out, 3);
    }
    list_middle(l, "encoder.mid_block.", w[3]);
    list_middle(l, "decoder.mid_block.", w[3]);
    add_group_norm(l, "", "encoder.conv_norm_out", w[3]);
    add_conv(l, "", "encoder.conv_out", 2 * LATENTS, w[3], 3);
    add_group_norm(l, "", "decoder.conv_norm_out", w[0]);
    add_conv(l, "", "decoder.conv_out", 3, w[0], 3);
}

// ---- Qwen-Image's four networks -------------------------------------------------------------------------------------

static void list_qwen_transformer(list* l, const synthetic_config* c)
{
    static const char* const projections[] = {"to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj"};
    static const char* const norms[] = {"norm_q", "norm_k", "norm_added_q", "norm_added_k"};
    const int32_t dim = c->dim;
    add_linear(l, "", "img_in", dim, 4 * LATENTS);
    add_norm(l, "", "txt_norm", c->text_width);
    add_linear(l, "", "txt_in", dim, c->text_width);
    add_linear(l, "time_text_embed.timestep_embedder.", "linear_1", dim, TIME_WIDTH);
    add_linear(l, "time_text_embed.timestep_embedder.", "linear_2", dim, dim);
    for (int32_t i = 0; i < c->layers; i++) {
        char p[64], a[80];
        snprintf(p, sizeof p, "transformer_blocks.%d.", i);
        snprintf(a, sizeof a, "%sattn.", p);
        add_linear(l, p, "img_mod.1", 6 * dim, dim);
        add_linear(l, p, "txt_mod.1", 6 * dim, dim);
        for (int32_t k = 0; k < 6; k++) add_linear(l, a, projections[k], dim, dim);
        for (int32_t k = 0; k < 4; k++) add_norm(l, a, norms[k], dim / c->heads);
        add_linear(l, a, "to_out.0", dim, dim);
        add_linear(l, a, "to_add_out", dim, dim);
        add_linear(l, p, "img_mlp.net.0.proj", 4 * dim, dim);
        add_linear(l, p, "img_mlp.net.2", dim, 4 * dim);
        add_linear(l, p, "txt_mlp.net.0.proj", 4 * dim, dim);
        add_linear(l, p, "txt_mlp.net.2", dim, 4 * dim);
    }
    add_linear(l, "", "norm_out.linear", 2 * dim, dim);
    add_linear(l, "", "proj_out", 4 * LATENTS, dim);
}

static void list_qwen_vision(list* l, const synthetic_config* c)
{
    const int32_t width = c->vision_width, hidden = c->vision_hidden, merged = 4 * width;
    add_kernel(l, width, 3, (kernel_size){2, 14}, "visual.patch_embed.proj.weight");
    for (int32_t i = 0; i < c->vision_layers; i++) {
        char p[64];
        snprintf(p, sizeof p, "visual.blocks.%d.", i);
        add_norm(l, p, "norm1", width);
        add_norm(l, p, "norm2", width);
        add_linear(l, p, "attn.qkv", 3 * width, width);
        add_linear(l, p, "attn.proj", width, width);
        add_linear(l, p, "mlp.gate_proj", hidden, width);
        add_linear(l, p, "mlp.up_proj", hidden, width);
        add_linear(l, p, "mlp.down_proj", width, hidden);
    }
    add_norm(l, "visual.merger.", "ln_q", width);
    add_linear(l, "visual.merger.", "mlp.0", merged, merged);
    add_linear(l, "visual.merger.", "mlp.2", c->text_width, merged);
}

static void list_qwen_text_encoder(list* l, const synthetic_config* c)
{
    const int32_t width = c->text_width;
    add(l, 0.0f, 1.0f, c->vocabulary, width, 0, "model.embed_tokens.weight");
    for (int32_t i = 0; i < c->text_layers; i++) {
        char p[64];
        snprintf(p, sizeof p, "model.layers.%d.", i);
        add_norm(l, p, "input_layernorm", width);
        add_linear(l, p, "self_attn.q_proj", c->text_heads * c->text_head, width);
        add_linear(l, p, "self_attn.k_proj", c->text_kv_heads * c->text_head, width);
        add_linear(l, p, "self_attn.v_proj", c->text_kv_heads * c->text_head, width);
        add_matrix(l, p, "self_attn.o_proj", width, c->text_heads * c->text_head);
        add_norm(l, p, "post_attention_layernorm", width);
        add_matrix(l, p, "mlp.gate_proj", c->text_hidden, width);
        add_matrix(l, p, "mlp.up_proj", c->text_hidden, width);
        add_matrix(l, p, "mlp.down_proj", width, c->text_hidden);
    }
    add_norm(l, "model.", "norm", width);
    list_qwen_vision(l, c);
}

static void add_causal_conv(list* l, const char* prefix, const char* name, int32_t out, int32_t in, int32_t kernel)
{
    add_kernel(l, out, in, (kernel_size){kernel, kernel}, "%s%s.weight", prefix, name);
    add(l, 0.0f, 0.05f, out, 0, 0, "%s%s.bias", prefix, name);
}

static void list_qwen_resnet(list* l, const char* p, int32_t out, int32_t in)
{
    add_gamma(l, in, 4, "%snorm1.gamma", p);
    add_causal_conv(l, p, "conv1", out, in, 3);
    add_gamma(l, out, 4, "%snorm2.gamma", p);
    add_causal_conv(l, p, "conv2", out, out, 3);
    if (in != out) add_causal_conv(l, p, "conv_shortcut", out, in, 1);
}

static void list_qwen_middle(list* l, const char* prefix, int32_t width)
{
    char p[80];
    for (int32_t i = 0; i < 2; i++) {
        snprintf(p, sizeof p, "%smid_block.resnets.%d.", prefix, i);
        list_qwen_resnet(l, p, width, width);
    }
    snprintf(p, sizeof p, "%smid_block.attentions.0.", prefix);
    add_gamma(l, width, 3, "%snorm.gamma", p);
    add_conv(l, p, "to_qkv", 3 * width, width, 1);
    add_conv(l, p, "proj", width, width, 1);
}

// The VAE without its time_conv tensors, which only videos use.
static void list_qwen_vae(list* l, const synthetic_config* c)
{
    const int32_t *w = c->vae_widths, top = w[3];
    char p[80];
    add_causal_conv(l, "", "encoder.conv_in", w[0], 3, 3);
    add_causal_conv(l, "", "decoder.conv_in", top, LATENTS, 3);
    int32_t module = 0, in = w[0];
    for (int32_t stage = 0; stage < 4; stage++) {
        for (int32_t r = 0; r < c->vae_resnets; r++, in = w[stage]) {
            snprintf(p, sizeof p, "encoder.down_blocks.%d.", module++);
            list_qwen_resnet(l, p, w[stage], in);
        }
        snprintf(p, sizeof p, "encoder.down_blocks.%d.", module);
        if (stage < 3) add_conv(l, p, "resample.1", in, in, 3), module++;
    }
    in = top;
    for (int32_t stage = 0; stage < 4; stage++) {
        const int32_t out = w[3 - stage];
        for (int32_t r = 0; r <= c->vae_resnets; r++, in = out) {
            snprintf(p, sizeof p, "decoder.up_blocks.%d.resnets.%d.", stage, r);
            list_qwen_resnet(l, p, out, in);
        }
        snprintf(p, sizeof p, "decoder.up_blocks.%d.upsamplers.0.", stage);
        if (stage < 3) add_conv(l, p, "resample.1", out / 2, out, 3), in = out / 2;
    }
    list_qwen_middle(l, "encoder.", top);
    list_qwen_middle(l, "decoder.", top);
    add_gamma(l, top, 4, "encoder.norm_out.gamma");
    add_causal_conv(l, "", "encoder.conv_out", 2 * LATENTS, top, 3);
    add_gamma(l, w[0], 4, "decoder.norm_out.gamma");
    add_causal_conv(l, "", "decoder.conv_out", 3, w[0], 3);
    add_causal_conv(l, "", "quant_conv", 2 * LATENTS, 2 * LATENTS, 1);
    add_causal_conv(l, "", "post_quant_conv", LATENTS, LATENTS, 1);
}

// ---- NewBie-image's three networks that differ from Z-Image's -------------------------------------------------------

static int32_t newbie_condition(const synthetic_config* c) { return least(c->dim, 1024); }

static void list_newbie_block(list* l, const synthetic_config* c, const char* kind, int32_t index, bool modulated)
{
    char p[64];
    const int32_t dim = c->dim, head = dim / c->heads, hidden = (4 * dim + 255) / 256 * 256;
    snprintf(p, sizeof p, "%s.%d.", kind, index);
    add_matrix(l, p, "attention.qkv", dim + 2 * c->kv_heads * head, dim);
    add_matrix(l, p, "attention.out", dim, dim);
    add_norm(l, p, "attention.q_norm", head);
    add_norm(l, p, "attention.k_norm", head);
    add_matrix(l, p, "feed_forward.w1", hidden, dim);
    add_matrix(l, p, "feed_forward.w2", dim, hidden);
    add_matrix(l, p, "feed_forward.w3", hidden, dim);
    add_norm(l, p, "attention_norm1", dim);
    add_norm(l, p, "attention_norm2", dim);
    add_norm(l, p, "ffn_norm1", dim);
    add_norm(l, p, "ffn_norm2", dim);
    if (modulated) add_linear(l, p, "adaLN_modulation.1", 4 * dim, newbie_condition(c));
}

static void list_newbie_transformer(list* l, const synthetic_config* c)
{
    const int32_t dim = c->dim, condition = newbie_condition(c);
    add_linear(l, "", "x_embedder", dim, 4 * LATENTS);
    add_linear(l, "", "t_embedder.mlp.0", condition, TIME_WIDTH);
    add_linear(l, "", "t_embedder.mlp.2", condition, condition);
    add_norm(l, "", "cap_embedder.0", c->text_width);
    add_linear(l, "", "cap_embedder.1", dim, c->text_width);
    add_norm(l, "", "clip_text_pooled_proj.0", c->pooled_width);
    add_linear(l, "", "clip_text_pooled_proj.1", c->pooled_width, c->pooled_width);
    add_linear(l, "", "time_text_embed.1", condition, condition + c->pooled_width);
    add_linear(l, "", "final_layer.adaLN_modulation.1", dim, condition);
    add_linear(l, "", "final_layer.linear", 4 * LATENTS, dim);
    add_norm(l, "", "norm_final", dim); // is in the released file, but no network reads it
    for (int32_t i = 0; i < c->refiners; i++) list_newbie_block(l, c, "noise_refiner", i, true);
    for (int32_t i = 0; i < c->refiners; i++) list_newbie_block(l, c, "context_refiner", i, false);
    for (int32_t i = 0; i < c->layers; i++) list_newbie_block(l, c, "layers", i, true);
}

// A norm of Gemma, which adds 1 to its stored weight; the stored values are therefore near 0.
static void add_offset_norm(list* l, const char* prefix, const char* name, int32_t width)
{
    add(l, 0.0f, 0.2f, width, 0, 0, "%s%s.weight", prefix, name);
}

static void list_gemma(list* l, const synthetic_config* c)
{
    const int32_t width = c->text_width;
    // The rows have the magnitude of trained embeddings: the network multiplies them by the square root of the width.
    add(l, 0.0f, sqrtf(3.0f / (float)width), c->vocabulary, width, 0, "language_model.model.embed_tokens.weight");
    for (int32_t i = 0; i < c->text_layers; i++) {
        char p[64];
        snprintf(p, sizeof p, "language_model.model.layers.%d.", i);
        add_offset_norm(l, p, "input_layernorm", width);
        add_matrix(l, p, "self_attn.q_proj", c->text_heads * c->text_head, width);
        add_matrix(l, p, "self_attn.k_proj", c->text_kv_heads * c->text_head, width);
        add_matrix(l, p, "self_attn.v_proj", c->text_kv_heads * c->text_head, width);
        add_offset_norm(l, p, "self_attn.q_norm", c->text_head);
        add_offset_norm(l, p, "self_attn.k_norm", c->text_head);
        add_matrix(l, p, "self_attn.o_proj", width, c->text_heads * c->text_head);
        add_offset_norm(l, p, "post_attention_layernorm", width);
        add_offset_norm(l, p, "pre_feedforward_layernorm", width);
        add_offset_norm(l, p, "post_feedforward_layernorm", width);
        add_matrix(l, p, "mlp.gate_proj", c->text_hidden, width);
        add_matrix(l, p, "mlp.up_proj", c->text_hidden, width);
        add_matrix(l, p, "mlp.down_proj", width, c->text_hidden);
    }
    add_offset_norm(l, "language_model.model.", "norm", width);
}

#define ADAPTER_RANK 4
#define JINA "text_model.transformer.roberta."

// A weight with the low-rank adapter that the released file stores beside it.
static void add_adapted(list* l, const char* prefix, const char* name, int32_t rows, int32_t cols)
{
    add(l, 0.0f, sqrtf(3.0f / (float)cols), rows, cols, 0, "%s%s.parametrizations.weight.original", prefix, name);
    add_factor(l, sqrtf(3.0f / (float)cols), ADAPTER_RANK, cols, "%s%s.parametrizations.weight.0.lora_A", prefix, name);
    add_factor(l, 0.2f, rows, ADAPTER_RANK, "%s%s.parametrizations.weight.0.lora_B", prefix, name);
    add(l, 0.0f, 0.05f, rows, 0, 0, "%s%s.bias", prefix, name);
}

// In the adapter of an embedding, the first factor (lora_A) has the rows of the table.
static void add_adapted_embedding(list* l, const char* name, int32_t rows, int32_t width)
{
    add(l, 0.0f, 1.0f, rows, width, 0, JINA "%s.parametrizations.weight.original", name);
    add_factor(l, 0.5f, rows, ADAPTER_RANK, JINA "%s.parametrizations.weight.0.lora_A", name);
    add_factor(l, 0.2f, ADAPTER_RANK, width, JINA "%s.parametrizations.weight.0.lora_B", name);
}

static void list_jina(list* l, const synthetic_config* c)
{
    const int32_t width = c->pooled_width, hidden = c->pooled_hidden;
    add_adapted_embedding(l, "embeddings.word_embeddings", c->pooled_vocabulary, width);
    add_adapted_embedding(l, "embeddings.token_type_embeddings", 1, width);
    add_group_norm(l, JINA, "emb_ln", width);
    for (int32_t i = 0; i < c->pooled_layers; i++) {
        char p[64];
        snprintf(p, sizeof p, JINA "encoder.layers.%d.", i);
        add_adapted(l, p, "mixer.Wqkv", 3 * width, width);
        add_adapted(l, p, "mixer.out_proj", width, width);
        add_adapted(l, p, "mlp.fc1", hidden, width);
        add_adapted(l, p, "mlp.fc2", width, hidden);
        add_group_norm(l, p, "norm1", width);
        add_group_norm(l, p, "norm2", width);
    }
}

// ---- Writing --------------------------------------------------------------------------------------------------------

static bool fail(const char* path)
{
    fprintf(stderr, "synthetic checkpoint: cannot write %s: %s\n", path, strerror(errno));
    return false;
}

static int64_t count_of(const listed* t)
{
    int64_t count = 1;
    for (int32_t i = 0; i < t->rank; i++) count *= t->shape[i];
    return count;
}

static const synthetic_type* base_type(const synthetic_config* c)
{
    return synthetic_type_find(c->float32 ? "f32" : "bf16");
}

static bool ends_with(const char* text, const char* end)
{
    const size_t length = strlen(text), bytes = strlen(end);
    return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

// ---- Outliers -------------------------------------------------------------------------------------------------------

#define OUTLIER_CHANNELS 20

static bool is_norm_of_products(const listed* t)
{
    return ends_with(t->name, "attention_norm1.weight") || ends_with(t->name, "ffn_norm1.weight");
}

// The bias of the modulation: shift, scale and gate for attention, then shift, scale and gate for the feed-forward.
static bool is_modulation_bias(const listed* t)
{
    return ends_with(t->name, "img_mod.1.bias") || ends_with(t->name, "txt_mod.1.bias");
}

static bool has_outliers(const synthetic_config* c, const listed* t)
{
    return c->outliers && (is_norm_of_products(t) || is_modulation_bias(t));
}

typedef struct outlier {
    int64_t index; // of the element in the tensor
    float value;
} outlier;

// Writes the outliers of a tensor into `into`. Returns their number.
static int32_t list_outliers(const listed* t, uint64_t seed, outlier into[2 * OUTLIER_CHANNELS])
{
    const bool is_bias = is_modulation_bias(t); // the network adds 1 to the scales
    const int64_t width = is_bias ? t->shape[0] / 6 : t->shape[0];
    int32_t count = 0;
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 3;
    for (int32_t i = 0; i < OUTLIER_CHANNELS; i++) {
        state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
        const uint64_t draw = state * 0x2545F4914F6CDD1Du;
        const int64_t channel = (int64_t)(draw >> 32) % width;
        const float factor = 15.0f + 25.0f * (float)(draw & 0xFFFF) / 65536.0f;
        if (!is_bias) into[count++] = (outlier){channel, factor};
        else
            into[count++] = (outlier){width + channel, factor - 1.0f},
            into[count++] = (outlier){4 * width + channel, factor - 1.0f};
    }
    return count;
}

// ---- Files ----------------------------------------------------------------------------------------------------------

// Writes the length field of a safetensors header of `bytes` bytes, which is padded with blanks to a multiple of 8.
// Returns the padded length.
static size_t put_length(unsigned char length[8], size_t bytes)
{
    size_t total = (bytes + 7) / 8 * 8;
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)total >> 8 * i);
    return total;
}

static bool write_header(FILE* file, const char* json, size_t bytes)
{
    static const char blanks[8] = "        ";
    unsigned char length[8];
    size_t padding = put_length(length, bytes) - bytes;
    return fwrite(length, 1, 8, file) == 8 && fwrite(json, 1, bytes, file) == bytes
        && fwrite(blanks, 1, padding, file) == padding;
}

static size_t put_entry(char* into, const char* name, const char* type, const int64_t* shape, int32_t rank,
                        uint64_t begin, uint64_t end, bool first)
{
    size_t used = (size_t)sprintf(into, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", first ? "{" : ",", name, type);
    for (int32_t i = 0; i < rank; i++)
        used += (size_t)sprintf(into + used, "%s%lld", i ? "," : "", (long long)shape[i]);
    return used
         + (size_t)sprintf(into + used, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
                           (unsigned long long)end);
}

#if !defined(_WIN32) // the threads that write
// Writes all values of a tensor at byte `offset` of a file.
static bool write_values(int file, uint64_t offset, const listed* t, uint64_t seed, const synthetic_config* config)
{
    enum { BLOCK = 16384 };
    float values[BLOCK];
    unsigned char elements[4 * BLOCK];
    const synthetic_type* type = base_type(config);
    const size_t size = (size_t)type->block_bytes;
    const uint64_t begin = offset;
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    int64_t left = count_of(t);
    while (left > 0) {
        size_t count = left < BLOCK ? (size_t)left : BLOCK, bytes = count * size;
        for (size_t i = 0; i < BLOCK; i += 4) { // xorshift64*: four numbers of 16 bits per draw
            state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
            uint64_t draw = state * 0x2545F4914F6CDD1Du;
            for (size_t k = 0; k < 4; k++)
                values[i + k] =
                    t->center + t->spread * ((float)(int32_t)(draw >> 16 * k & 0xFFFF) - 32767.5f) / 32768.0f;
        }
        for (size_t i = 0; i < count; i++) synthetic_put(type, elements + i * size, values[i]);
        if (pwrite(file, elements, bytes, (off_t)offset) != (ssize_t)bytes) return false;
        offset += bytes;
        left -= (int64_t)count;
    }
    outlier outliers[2 * OUTLIER_CHANNELS];
    const int32_t count = has_outliers(config, t) ? list_outliers(t, seed, outliers) : 0;
    for (int32_t i = 0; i < count; i++) {
        synthetic_put(type, elements, outliers[i].value);
        if (pwrite(file, elements, size, (off_t)(begin + size * (uint64_t)outliers[i].index)) != (ssize_t)size)
            return false;
    }
    return true;
}

// Shared by the threads that write; each thread takes one tensor after the other.
typedef struct writing {
    const list* l;
    const uint64_t* offsets; // of the tensors in the file, in bytes
    int file;
    uint64_t seed;
    const synthetic_config* config;
    atomic_size_t next;
    atomic_bool failed;
} writing;

static void* write_tensors(void* argument)
{
    writing* w = argument;
    for (size_t i; (i = atomic_fetch_add(&w->next, 1)) < w->l->count;) {
        if (!write_values(w->file, w->offsets[i], &w->l->tensors[i], w->seed + i, w->config))
            atomic_store(&w->failed, true);
    }
    return NULL;
}

static bool write_all_tensors(writing* w)
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int32_t count = 0;
    while (count < MOST && count < cores - 1 && pthread_create(&threads[count], NULL, write_tensors, w) == 0) count++;
    write_tensors(w);
    for (int32_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    return !atomic_load(&w->failed);
}

static bool write_list(const char* path, const list* l, uint64_t seed, const synthetic_config* config)
{
    const synthetic_type* type = base_type(config);
    char* json = malloc(l->count * 256 + 16);
    uint64_t* offsets = malloc((l->count + 1) * sizeof *offsets);
    FILE* file = json && offsets ? fopen(path, "wb") : NULL;
    size_t used = 0;
    uint64_t offset = 0;
    for (size_t i = 0; file && i < l->count; i++) {
        uint64_t bytes = (uint64_t)count_of(&l->tensors[i]) * (uint64_t)type->block_bytes;
        used += put_entry(json + used, l->tensors[i].name, type->safetensors_name, l->tensors[i].shape,
                          l->tensors[i].rank, offset, offset + bytes, i == 0);
        offsets[i] = offset;
        offset += bytes;
    }
    if (file) json[used++] = '}';
    bool written = file && write_header(file, json, used) && fflush(file) == 0;
    if (written) {
        unsigned char ignored[8];
        for (size_t i = 0; i < l->count; i++) offsets[i] += 8 + put_length(ignored, used);
        writing w = {.l = l, .offsets = offsets, .file = fileno(file), .seed = seed, .config = config};
        written = write_all_tensors(&w);
    }
    if (file && fclose(file) != 0) written = false;
    free(json);
    free(offsets);
    return written || fail(path);
}
#endif

bool synthetic_save(const char* path, const synthetic_tensor* tensors, int32_t count)
{
    char json[4096];
    size_t used = 0;
    uint64_t offset = 0;
    FILE* file = fopen(path, "wb");
    if (!file) return fail(path);
    for (int32_t i = 0; i < count; i++) {
        uint64_t bytes = 4;
        for (int32_t k = 0; k < tensors[i].rank; k++) bytes *= (uint64_t)tensors[i].shape[k];
        used += put_entry(json + used, tensors[i].name, "F32", tensors[i].shape, tensors[i].rank, offset,
                          offset + bytes, i == 0);
        offset += bytes;
    }
    json[used++] = '}';
    bool written = write_header(file, json, used);
    for (int32_t i = 0; i < count && written; i++) {
        size_t values = 1;
        for (int32_t k = 0; k < tensors[i].rank; k++) values *= (size_t)tensors[i].shape[k];
        written = fwrite(tensors[i].values, 4, values, file) == values;
    }
    if (fclose(file) != 0) written = false;
    return written || fail(path);
}

// ---- In memory ------------------------------------------------------------------------------------------------------

#define MAX_BLOCK_BYTES ((uint64_t)64 << 20)
#define SPREAD 0.02f

typedef struct stored {
    char path[128];
    unsigned char* data;
    uint64_t bytes;
    uint64_t reserved_bytes, mapped_bytes; // as in views.h; 0: the memory is from malloc
} stored;
struct synthetic_files {
    stored files[16];
    int32_t count;
};

static stored* add_stored(synthetic_files* files, const char* name)
{
    if (files->count == (int32_t)(sizeof files->files / sizeof *files->files)) return NULL;
    stored* file = &files->files[files->count++];
    memset(file, 0, sizeof *file);
    snprintf(file->path, sizeof file->path, "%s/%s", SYNTHETIC_PATH, name);
    return file;
}

// A block of random elements. Its size is a multiple of the unit of views and of the type's block, so that it can be
// mapped one time after the other.
typedef struct source {
    const synthetic_type* type;
    view_block block;
} source;

// The sources of a checkpoint's elements: for tensors that are not quantised, for those that are in Q8_0 instead of the
// requested type, and for those in the requested type.
enum { SOURCE_BASE, SOURCE_INSTEAD, SOURCE_STORED, SOURCE_COUNT };
typedef struct sources {
    source of[SOURCE_COUNT];
    int32_t count;
} sources;

static uint64_t up_to(uint64_t bytes, uint64_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

static bool add_source(sources* all, const synthetic_type* type)
{
    const uint64_t unit = views_unit() * (uint64_t)type->block_bytes, bytes = MAX_BLOCK_BYTES / unit * unit;
    view_block block;
    void* memory;
    if (!views_make(bytes, &block, &memory)) return fail("a block of memory");
    uint64_t state = 0x9E3779B97F4A7C15u;
    synthetic_fill(type, memory, (size_t)bytes, SPREAD, &state);
    views_filled(&block, memory);
    all->of[all->count++] = (source){type, block};
    return true;
}

static void close_sources(sources* all)
{
    for (int32_t i = 0; i < all->count; i++) views_close(&all->of[i].block);
}

// Whether files of quantised networks quantise this tensor: matrices in the blocks of the denoiser and of the language
// model, and token embeddings. Not quantised are the vision tower, the encoder of pooled vectors, and the layers before
// and after the blocks.
static bool is_quantised(const listed* t)
{
    static const char* const begins[] = {
        "layers.",       "noise_refiner.",      "context_refiner.",     "transformer_blocks.",
        "model.layers.", "model.embed_tokens.", "language_model.model."};
    for (size_t i = 0; i < sizeof begins / sizeof *begins && t->rank == 2; i++) {
        if (strncmp(t->name, begins[i], strlen(begins[i])) == 0) return true;
    }
    return false;
}

static int32_t source_of(const sources* all, const listed* t)
{
    if (all->count == 1 || !is_quantised(t)) return SOURCE_BASE;
    const int64_t cols = t->shape[1];
    return cols % all->of[SOURCE_STORED].type->block == 0  ? SOURCE_STORED
         : cols % all->of[SOURCE_INSTEAD].type->block == 0 ? SOURCE_INSTEAD
                                                           : SOURCE_BASE;
}

typedef struct placed {
    const synthetic_type* type;
    uint64_t begin, end; // bytes from the beginning of the data
    int32_t region;      // 0: private memory; 1 + i: views of source i
} placed;

// Places the tensors, one region after the other. The data and each region begin at a page; ends[] receives the end of
// each region.
static void lay_out(const list* l, const synthetic_config* c, const sources* all, bool is_gguf, placed* places,
                    uint64_t ends[1 + SOURCE_COUNT])
{
    uint64_t at = 0;
    for (int32_t region = 0; region <= SOURCE_COUNT; region++) {
        const uint64_t begin = at;
        for (size_t i = 0; i < l->count; i++) {
            const listed* t = &l->tensors[i];
            const int32_t from = source_of(all, t);
            if ((t->center != 0.0f || has_outliers(c, t) ? 0 : 1 + from) != region) continue;
            const synthetic_type* type = all->of[from].type;
            // GGUF requires offsets that are multiples of 32 bytes, and views of a source begin at a whole block
            const uint64_t multiple = is_gguf ? 32 * (uint64_t)type->block_bytes : 1;
            at = begin + up_to(at - begin, multiple);
            const uint64_t bytes = (uint64_t)count_of(t) / (uint64_t)type->block * (uint64_t)type->block_bytes;
            places[i] = (placed){type, at, at + bytes, region};
            at += bytes;
        }
        ends[region] = at;
        at = up_to(at, views_unit());
    }
}

#define ENTRY_BYTES 256 // the most bytes of one tensor's entry in a header

// put_safetensors and put_gguf return the length of the header, a multiple of the page size. safetensors allows no
// holes, so the rest of a region's last page is declared as a tensor.
static size_t put_safetensors(unsigned char* into, const list* l, const placed* places, const uint64_t* ends)
{
    char* json = (char*)into + 8;
    size_t used = 0;
    for (int32_t region = 0; region <= SOURCE_COUNT; region++) {
        for (size_t i = 0; i < l->count; i++) {
            const listed* t = &l->tensors[i];
            if (places[i].region == region)
                used += put_entry(json + used, t->name, places[i].type->safetensors_name, t->shape, t->rank,
                                  places[i].begin, places[i].end, used == 0);
        }
        const uint64_t end = up_to(ends[region], views_unit());
        const int64_t padding = (int64_t)(end - ends[region]);
        char name[32];
        snprintf(name, sizeof name, "synthetic.padding.%d", region);
        if (padding > 0 && region < SOURCE_COUNT)
            used += put_entry(json + used, name, "U8", &padding, 1, ends[region], end, used == 0);
    }
    json[used++] = '}';
    const size_t header = (size_t)up_to(8 + used, views_unit());
    memset(json + used, ' ', header - 8 - used);
    put_length(into, header - 8);
    return header;
}

static size_t put_number(unsigned char* into, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) into[i] = (unsigned char)(value >> 8 * i);
    return bytes;
}

static size_t put_name(unsigned char* into, const char* name)
{
    const size_t bytes = strlen(name), used = put_number(into, bytes, 8);
    memcpy(into + used, name, bytes);
    return used + bytes;
}

// Writes a GGUF 3 header with one key, a text of blanks that fills the last page of the header. GGUF itself allows at
// most four dimensions; the first matrix of Qwen-Image's vision tower is written with five nevertheless.
static size_t put_gguf(unsigned char* into, const list* l, const placed* places)
{
    enum { STRING = 8 };
    size_t used = 0, padding = 0;
    for (int32_t pass = 0; pass < 2; pass++) { // the first pass finds the number of blanks
        memcpy(into, "GGUF", 4);
        used = 4 + put_number(into + 4, 3, 4);
        used += put_number(into + used, l->count, 8);
        used += put_number(into + used, 1, 8);
        used += put_name(into + used, "synthetic.padding");
        used += put_number(into + used, STRING, 4);
        used += put_number(into + used, padding, 8);
        memset(into + used, ' ', padding);
        used += padding;
        for (size_t i = 0; i < l->count; i++) {
            const listed* t = &l->tensors[i];
            used += put_name(into + used, t->name);
            used += put_number(into + used, (uint64_t)t->rank, 4);
            for (int32_t k = t->rank; k-- > 0;) used += put_number(into + used, (uint64_t)t->shape[k], 8);
            used += put_number(into + used, places[i].type->gguf, 4);
            used += put_number(into + used, places[i].begin, 8);
        }
        padding = pass == 0 ? (size_t)up_to(used, views_unit()) - used : padding;
    }
    return used;
}

// Fills the tensors of region 0, which have values of their own.
static void fill_own(unsigned char* data, const list* l, const placed* places, const synthetic_config* c)
{
    uint64_t state = l->count * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = 0; i < l->count; i++) {
        const listed* t = &l->tensors[i];
        if (places[i].region != 0) continue;
        const float spread = t->spread == 0.0f ? 0.0f : t->center != 0.0f ? 0.1f : SPREAD;
        const uint64_t size = (uint64_t)places[i].type->block_bytes;
        unsigned char* into = data + places[i].begin;
        for (uint64_t k = 0; k < (uint64_t)count_of(t); k++)
            synthetic_put(places[i].type, into + size * k, t->center + spread * synthetic_normal(&state));
        outlier outliers[2 * OUTLIER_CHANNELS];
        const int32_t count = has_outliers(c, t) ? list_outliers(t, i + 1, outliers) : 0;
        for (int32_t k = 0; k < count; k++)
            synthetic_put(places[i].type, into + size * (uint64_t)outliers[k].index, outliers[k].value);
    }
}

// Maps views of a source one after the other, from where the file is mapped to, to the end of the page that contains
// byte `end`.
static bool map_source(stored* file, uint64_t end, const source* from)
{
    while (file->mapped_bytes < end) {
        const uint64_t left = end - file->mapped_bytes, bytes = left < from->block.bytes ? left : from->block.bytes;
        if (!views_map(file->data + file->mapped_bytes, bytes, &from->block)) return false;
        file->mapped_bytes += up_to(bytes, views_unit());
    }
    return true;
}

static bool store_placed(synthetic_files* files, const char* name, const list* l, const synthetic_config* c,
                         const sources* all, placed* places, unsigned char* header)
{
    char path[112];
    bool is_gguf = false;
    for (size_t i = 0; i < l->count; i++) {
        const int32_t from = source_of(all, &l->tensors[i]);
        is_gguf = is_gguf || all->of[from].type->block > 1;
    }
    snprintf(path, sizeof path, "%.*s%s", (int)(strlen(name) - strlen(".safetensors")), name,
             is_gguf ? ".gguf" : ".safetensors");
    uint64_t ends[1 + SOURCE_COUNT];
    lay_out(l, c, all, is_gguf, places, ends);
    const size_t header_bytes = is_gguf ? put_gguf(header, l, places) : put_safetensors(header, l, places, ends);
    stored* file = add_stored(files, path);
    if (!file) return false;
    file->bytes = header_bytes + ends[SOURCE_COUNT];
    file->reserved_bytes = up_to(file->bytes, views_unit());
    file->mapped_bytes = header_bytes + up_to(ends[0], views_unit());
    file->data = views_reserve(file->reserved_bytes, file->mapped_bytes);
    if (!file->data) return files->count--, false;
    memcpy(file->data, header, header_bytes);
    fill_own(file->data + header_bytes, l, places, c);
    for (int32_t i = 0; i < all->count; i++) {
        if (!map_source(file, header_bytes + ends[1 + i], &all->of[i])) return false;
    }
    return true;
}

static bool store_list(synthetic_files* files, const char* name, const list* l, const synthetic_config* c,
                       const sources* all)
{
    placed* places = malloc(l->count * sizeof *places);
    unsigned char* header = malloc(l->count * ENTRY_BYTES + 2 * (size_t)views_unit());
    const bool is_stored = places && header && store_placed(files, name, l, c, all, places, header);
    free(places);
    free(header);
    return is_stored || fail(name);
}

static void* open_stored(const char* path, uint64_t* out_bytes, void* user_data)
{
    synthetic_files* files = user_data;
    for (int32_t i = 0; i < files->count; i++) {
        if (strcmp(files->files[i].path, path) != 0) continue;
        *out_bytes = files->files[i].bytes;
        return &files->files[i];
    }
    return NULL;
}
static bool read_stored(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    (void)user_data;
    const stored* s = file;
    if (offset > s->bytes || bytes > s->bytes - offset) return false;
    memcpy(into, s->data + offset, bytes);
    return true;
}
static const void* map_stored(void* file, void* user_data)
{
    (void)user_data;
    return ((const stored*)file)->data;
}
static void close_stored(void* file, void* user_data)
{
    (void)file;
    (void)user_data;
}

sumi_files synthetic_services(synthetic_files* files)
{
    return (sumi_files){open_stored, read_stored, map_stored, close_stored, files};
}

void synthetic_close(synthetic_files* files)
{
    for (int32_t i = 0; files && i < files->count; i++) {
        stored* file = &files->files[i];
        if (file->reserved_bytes) views_release(file->data, file->reserved_bytes, file->mapped_bytes);
        else free(file->data);
    }
    free(files);
}

// ---- Texts ----------------------------------------------------------------------------------------------------------

// Where a checkpoint is written: a folder, or memory.
typedef struct sink {
    const char* folder;
    synthetic_files* files;
} sink;

SYSTEM_PRINTF(3, 4)
static bool write_text(const sink* to, const char* name, const char* format, ...)
{
    enum { MOST = 16384 };
    char path[1024], *text = malloc(MOST);
    if (!text) return fail(name);
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, MOST, format, arguments);
    va_end(arguments);
    bool written = length > 0 && length < MOST;
    if (to->files) {
        stored* file = written ? add_stored(to->files, name) : NULL;
        if (!file) return free(text), fail(name);
        file->data = (unsigned char*)text; // the file owns the text now
        file->bytes = (uint64_t)length;
        return true;
    }
    snprintf(path, sizeof path, "%s/%s", to->folder, name);
    FILE* file = written ? fopen(path, "w") : NULL;
    written = file && fwrite(text, 1, (size_t)length, file) == (size_t)length;
    if (file && fclose(file) != 0) written = false;
    free(text);
    return written || fail(path);
}

// The words of Qwen-Image's templates. Each is a token, both with and without a space in front, so that the templates
// have as many tokens as with the released vocabulary.
static const char* const s_words[] = {
    "system",     "user",        "assistant", "Describe",      "Generate", "Picture",     "the",
    "image",      "by",          "detailing", "color",         "shape",    "size",        "texture",
    "quantity",   "text",        "spatial",   "relationships", "of",       "objects",     "and",
    "background", "key",         "features",  "input",         "then",     "explain",     "how",
    "'s",         "instruction", "should",    "alter",         "or",       "modify",      "a",
    "new",        "that",        "meets",     "requirements",  "while",    "maintaining", "consistency",
    "with",       "original",    "where",     "appropriate",   "(",        "),"};
#define WORD_COUNT ((int32_t)(sizeof s_words / sizeof *s_words))

static size_t put_words(char* into, int32_t first_id)
{
    size_t used = 0;
    for (int32_t i = 0; i < 2 * WORD_COUNT; i++) {
        const char *word = s_words[i / 2], *space = i % 2 ? "\\u0120" : "";
        if (i % 2 == 0 && word[1] == 0) continue; // a word of one byte has its token already
        used += (size_t)sprintf(into + used, ", \"%s%s\": %d", space, word, first_id + i);
    }
    return used;
}

// Writes a byte-level BPE tokenizer without merges, with one token per byte, in the format of the released file.
static bool write_tokenizer(const sink* to, const synthetic_config* c)
{
    const bool has_words = c->family == SYNTHETIC_QWEN_IMAGE;
    char vocabulary[12288];
    size_t used = 0;
    int32_t moved = 0;
    for (int32_t byte = 0; byte < 256; byte++) {
        bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        int32_t code = printable ? byte : 256 + moved++; // GPT-2's table: other bytes become 256 and up, in order
        used += (size_t)sprintf(vocabulary + used, "%s\"\\u%04x\": %d", byte ? ", " : "", code, byte);
    }
    static const char* const names[] = {"<|endoftext|>",    "<|im_start|>",   "<|im_end|>",
                                        "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"};
    const int32_t name_count = has_words ? 6 : 3;
    char added[1024];
    size_t at = 0;
    if (has_words) put_words(vocabulary + used, 256 + name_count);
    for (int32_t i = 0; i < name_count; i++)
        at += (size_t)sprintf(added + at,
                              "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
                              "\"rstrip\": false, \"normalized\": false, \"special\": true}",
                              i ? ", " : "", 256 + i, names[i]);
    return write_text(to, "tokenizer/tokenizer.json",
                      "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [%s], "
                      "\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": "
                      "{\"type\": \"Sequence\", "
                      "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
                      "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
                      "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
                      "\"behavior\": \"Isolated\", \"invert\": false}, {\"type\": "
                      "\"ByteLevel\", "
                      "\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}]}, "
                      "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
                      "false, \"trim_offsets\": "
                      "false, \"use_regex\": false}, \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
                      "true, \"trim_offsets\": true, \"use_regex\": true}, "
                      "\"model\": {\"type\": \"BPE\", "
                      "\"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": \"\", "
                      "\"end_of_word_suffix\": \"\", \"fuse_unk\": false, \"byte_fallback\": "
                      "false, "
                      "\"ignore_merges\": %s, \"vocab\": {%s}, \"merges\": []}}\n",
                      added, has_words ? "true" : "false", vocabulary);
}

// NewBie-image's tokenizers have one token for each character from '!' to '~' and for U+2581, which stands for a blank.
// Gemma's is a BPE without merges, with tokens for the bytes of all other characters; XLM-RoBERTa's is a Unigram. A
// text of ASCII letters and single blanks has as many tokens in both, except for the special tokens around it.
#define LETTER_COUNT 95
static int32_t letter(int32_t i) { return i == 0 ? 0x2581 : 32 + i; }

static size_t put_added(char* into, const char* const* names, int32_t count)
{
    size_t used = 0;
    for (int32_t i = 0; i < count; i++)
        used += (size_t)sprintf(into + used,
                                "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
                                "\"rstrip\": false, \"normalized\": false, \"special\": true}",
                                i ? ", " : "", i, names[i]);
    return used;
}

static bool write_gemma_tokenizer(const sink* to)
{
    static const char* const names[] = {"<pad>", "<eos>", "<bos>", "<unk>"};
    char vocabulary[12288], added[1024];
    size_t used = 0;
    for (int32_t i = 0; i < 4; i++) used += (size_t)sprintf(vocabulary + used, "\"%s\": %d, ", names[i], i);
    for (int32_t i = 0; i < 256; i++) used += (size_t)sprintf(vocabulary + used, "\"<0x%02X>\": %d, ", i, 4 + i);
    for (int32_t i = 0; i < LETTER_COUNT; i++)
        used += (size_t)sprintf(vocabulary + used, "%s\"\\u%04x\": %d", i ? ", " : "", letter(i), 260 + i);
    put_added(added, names, 4);
    return write_text(to, "text_encoder/tokenizer.json",
                      "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [%s], "
                      "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "
                      "\"\\u2581\"}, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, "
                      "\"behavior\": \"MergedWithPrevious\", \"invert\": false}, \"post_processor\": {\"type\": "
                      "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<bos>\", \"type_id\": 0}}, "
                      "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": {\"<bos>\": "
                      "{\"id\": \"<bos>\", \"ids\": [2], \"tokens\": [\"<bos>\"]}}}, \"model\": {\"type\": \"BPE\", "
                      "\"dropout\": null, \"unk_token\": \"<unk>\", \"fuse_unk\": true, \"byte_fallback\": true, "
                      "\"ignore_merges\": false, \"vocab\": {%s}, \"merges\": []}}\n",
                      added, vocabulary);
}

static bool write_jina_tokenizer(const sink* to)
{
    static const char* const names[] = {"<s>", "<pad>", "</s>", "<unk>"};
    char vocabulary[8192], added[1024];
    size_t used = 0;
    for (int32_t i = 0; i < 4; i++) used += (size_t)sprintf(vocabulary + used, "[\"%s\", 0.0], ", names[i]);
    for (int32_t i = 0; i < LETTER_COUNT; i++)
        used += (size_t)sprintf(vocabulary + used, "%s[\"\\u%04x\", -4.0]", i ? ", " : "", letter(i));
    put_added(added, names, 4);
    return write_text(
        to, "clip_model/tokenizer.json",
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [%s], "
        "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
        "\"WhitespaceSplit\"}, {\"type\": \"Metaspace\", \"replacement\": \"\\u2581\", "
        "\"prepend_scheme\": \"always\", \"split\": true}]}, \"post_processor\": {\"type\": "
        "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, "
        "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": {\"id\": \"</s>\", "
        "\"type_id\": 0}}], \"pair\": [], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [0], "
        "\"tokens\": [\"<s>\"]}, \"</s>\": {\"id\": \"</s>\", \"ids\": [2], \"tokens\": [\"</s>\"]}}}, "
        "\"model\": {\"type\": \"Unigram\", \"unk_id\": 3, \"byte_fallback\": false, \"vocab\": "
        "[%s]}}\n",
        added, vocabulary);
}

static bool write_newbie_tokenizers(const sink* to, const synthetic_config* c)
{
    (void)c;
    return write_gemma_tokenizer(to) && write_jina_tokenizer(to);
}

static bool write_flux_vae_config(const sink* to, const synthetic_config* c)
{
    return write_text(to, "vae/config.json",
                      "{\"_class_name\": \"AutoencoderKL\", \"act_fn\": \"silu\", \"block_out_channels\": [%d, %d, %d, "
                      "%d], \"in_channels\": 3, "
                      "\"out_channels\": 3, \"latent_channels\": %d, "
                      "\"layers_per_block\": %d, \"norm_num_groups\": %d, \"mid_block_add_attention\": true, "
                      "\"sample_size\": 1024, \"scaling_factor\": "
                      "0.3611, \"shift_factor\": 0.1159, "
                      "\"latents_mean\": null, \"latents_std\": null, \"use_quant_conv\": false, "
                      "\"use_post_quant_conv\": false, \"force_upcast\": true}\n",
                      c->vae_widths[0], c->vae_widths[1], c->vae_widths[2], c->vae_widths[3], LATENTS, c->vae_resnets,
                      c->vae_groups);
}

static bool write_z_image_configs(const sink* to, const synthetic_config* c)
{
    int32_t head = c->dim / c->heads;
    return write_text(to, "model_index.json", "{\"_class_name\": \"ZImagePipeline\"}\n")
        && write_text(to, "scheduler/scheduler_config.json",
                      "{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"num_train_timesteps\": 1000, "
                      "\"use_dynamic_shifting\": false, \"shift\": 3.0}\n")
        && write_text(to, "transformer/config.json",
                      "{\"_class_name\": \"ZImageTransformer2DModel\", \"all_f_patch_size\": [1], \"all_patch_size\": "
                      "[2], \"axes_dims\": [%d, %d, %d], "
                      "\"axes_lens\": [1536, 512, 512], "
                      "\"cap_feat_dim\": %d, \"dim\": %d, \"in_channels\": %d, \"n_heads\": %d, \"n_kv_heads\": %d, "
                      "\"n_layers\": %d, \"n_refiner_layers\": "
                      "%d, \"norm_eps\": 1e-05, "
                      "\"qk_norm\": true, \"rope_theta\": 256.0, \"t_scale\": 1000.0}\n",
                      head / 4, head * 3 / 8, head * 3 / 8, c->text_width, c->dim, LATENTS, c->heads, c->heads,
                      c->layers, c->refiners)
        && write_text(to, "text_encoder/config.json",
                      "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"hidden_size\": %d, "
                      "\"num_hidden_layers\": %d, "
                      "\"num_attention_heads\": %d, "
                      "\"num_key_value_heads\": %d, \"head_dim\": %d, \"intermediate_size\": %d, \"rms_norm_eps\": "
                      "1e-06, \"rope_theta\": 1000000, "
                      "\"rope_scaling\": null, \"hidden_act\": \"silu\", "
                      "\"attention_bias\": false, \"tie_word_embeddings\": true, \"use_sliding_window\": false, "
                      "\"max_position_embeddings\": 40960, "
                      "\"vocab_size\": %d}\n",
                      c->text_width, c->text_layers, c->text_heads, c->text_kv_heads, c->text_head, c->text_hidden,
                      c->vocabulary)
        && write_flux_vae_config(to, c);
}

// The sigma schedule and the statistics of the latents are those of the released files.
static bool write_qwen_image_configs(const sink* to, const synthetic_config* c)
{
    const int32_t head = c->dim / c->heads, text = c->text_head, quarter = c->vision_layers / 4;
    const char* pipeline = c->references == 0 ? "QwenImagePipeline"
                         : c->references == 1 ? "QwenImageEditPipeline"
                                              : "QwenImageEditPlusPipeline";
    return write_text(to, "model_index.json", "{\"_class_name\": \"%s\"}\n", pipeline)
        && write_text(to, "scheduler/scheduler_config.json",
                      "{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"base_image_seq_len\": 256, "
                      "\"base_shift\": 0.5, \"max_image_seq_len\": 8192, \"max_shift\": 0.9, "
                      "\"num_train_timesteps\": 1000, \"shift\": 1.0, \"shift_terminal\": 0.02, "
                      "\"time_shift_type\": \"exponential\", \"use_dynamic_shifting\": true}\n")
        && write_text(to, "processor/preprocessor_config.json",
                      "{\"min_pixels\": 3136, \"max_pixels\": 12845056, \"patch_size\": 14, "
                      "\"temporal_patch_size\": 2, \"merge_size\": 2, "
                      "\"image_mean\": [0.48145466, 0.4578275, 0.40821073], "
                      "\"image_std\": [0.26862954, 0.26130258, 0.27577711], "
                      "\"image_processor_type\": \"Qwen2VLImageProcessor\"}\n")
        && write_text(to, "transformer/config.json",
                      "{\"_class_name\": \"QwenImageTransformer2DModel\", \"attention_head_dim\": %d, "
                      "\"axes_dims_rope\": [%d, %d, %d], \"guidance_embeds\": false, \"in_channels\": %d, "
                      "\"joint_attention_dim\": %d, \"num_attention_heads\": %d, \"num_layers\": %d, "
                      "\"out_channels\": %d, \"patch_size\": 2}\n",
                      head, head / 8, head / 16 * 7, head / 16 * 7, 4 * LATENTS, c->text_width, c->heads, c->layers,
                      LATENTS)
        && write_text(
               to, "text_encoder/config.json",
               "{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"model_type\": \"qwen2_5_vl\", "
               "\"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
               "\"num_key_value_heads\": %d, \"intermediate_size\": %d, \"rms_norm_eps\": 1e-06, "
               "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"mrope_section\": [%d, %d, %d], \"rope_type\": "
               "\"default\", \"type\": \"default\"}, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, "
               "\"use_sliding_window\": false, \"vocab_size\": %d, \"vision_config\": {\"depth\": %d, "
               "\"hidden_size\": %d, \"num_heads\": %d, \"intermediate_size\": %d, \"out_hidden_size\": %d, "
               "\"patch_size\": 14, \"temporal_patch_size\": 2, \"spatial_merge_size\": 2, \"window_size\": 112, "
               "\"fullatt_block_indexes\": [%d, %d, %d, %d], \"hidden_act\": \"silu\", \"in_chans\": 3}}\n",
               c->text_width, c->text_layers, c->text_heads, c->text_kv_heads, c->text_hidden, text / 8, text / 16 * 3,
               text / 16 * 3, c->vocabulary, c->vision_layers, c->vision_width, c->vision_heads, c->vision_hidden,
               c->text_width, quarter - 1, 2 * quarter - 1, 3 * quarter - 1, 4 * quarter - 1)
        && write_text(to, "vae/config.json",
                      "{\"_class_name\": \"AutoencoderKLQwenImage\", \"attn_scales\": [], \"base_dim\": %d, "
                      "\"dim_mult\": [1, %d, %d, %d], \"num_res_blocks\": %d, \"temperal_downsample\": [false, true, "
                      "true], \"z_dim\": %d, \"latents_mean\": [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, "
                      "-0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921], "
                      "\"latents_std\": [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, "
                      "2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.916]}\n",
                      c->vae_widths[0], c->vae_widths[1] / c->vae_widths[0], c->vae_widths[2] / c->vae_widths[0],
                      c->vae_widths[3] / c->vae_widths[0], c->vae_resnets, LATENTS);
}

// Writes the files as the authors' converter does: there is no scheduler, and the transformer's config.json leaves out
// the values that are defaults in the authors' code.
static bool write_newbie_configs(const sink* to, const synthetic_config* c)
{
    const int32_t head = c->dim / c->heads;
    return write_text(to, "model_index.json", "{\"_class_name\": \"NewbiePipeline\"}\n")
        && write_text(
               to, "transformer/config.json",
               "{\"_class_name\": \"NextDiT_3B_GQA_patch2_Adaln_Refiner_WHIT_CLIP\", \"model_type\": "
               "\"nextdit_clip\", \"patch_size\": 2, \"dim\": %d, \"n_layers\": %d, \"n_heads\": %d, "
               "\"n_kv_heads\": %d, \"in_channels\": %d, \"axes_dims\": [%d, %d, %d], \"axes_lens\": [1024, 512, "
               "512], \"clip_text_dim\": %d, \"clip_img_dim\": %d}\n",
               c->dim, c->layers, c->heads, c->kv_heads, LATENTS, head / 3, head / 3, head / 3, c->pooled_width,
               c->pooled_width)
        && write_text(to, "text_encoder/config.json",
                      "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"model_type\": \"gemma3\", "
                      "\"text_config\": {\"model_type\": \"gemma3_text\", \"hidden_size\": %d, \"num_hidden_layers\": "
                      "%d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, "
                      "\"query_pre_attn_scalar\": %d, \"intermediate_size\": %d, \"sliding_window\": %d, "
                      "\"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, \"rope_local_base_freq\": 10000.0, "
                      "\"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}, \"hidden_activation\": "
                      "\"gelu_pytorch_tanh\", \"attention_bias\": false, \"vocab_size\": %d}}\n",
                      c->text_width, c->text_layers, c->text_heads, c->text_kv_heads, c->text_head, c->text_head,
                      c->text_hidden, c->text_window, c->vocabulary)
        && write_text(to, "clip_model/config.json",
                      "{\"architectures\": [\"JinaCLIPModel\"], \"model_type\": \"jina_clip\", \"projection_dim\": %d, "
                      "\"text_config\": {\"embed_dim\": %d, \"hf_model_config_kwargs\": {\"lora_adaptations\": "
                      "[\"retrieval.query\"], \"lora_alpha\": %d, \"lora_rank\": %d}, \"pooler_type\": "
                      "\"mean_pooler\"}}\n",
                      c->pooled_width, c->pooled_width, ADAPTER_RANK, ADAPTER_RANK)
        && write_flux_vae_config(to, c);
}

#define MAX_PARTS 4
#define MAX_FOLDERS 7
static const struct {
    bool (*write_configs)(const sink* to, const synthetic_config* c);
    bool (*write_tokenizers)(const sink* to, const synthetic_config* c);
    const char* folders[MAX_FOLDERS]; // ends at the first NULL
    struct {
        const char* file;
        void (*list)(list* l, const synthetic_config* c);
    } parts[MAX_PARTS]; // ends at the first NULL
} s_families[] = {
    [SYNTHETIC_Z_IMAGE] = {write_z_image_configs,
                           write_tokenizer,
                           {"", "/scheduler", "/transformer", "/text_encoder", "/tokenizer", "/vae"},
                           {{"transformer/diffusion_pytorch_model.safetensors", list_transformer},
                            {"text_encoder/model.safetensors", list_text_encoder},
                            {"vae/diffusion_pytorch_model.safetensors", list_vae}}},
    [SYNTHETIC_QWEN_IMAGE] = {write_qwen_image_configs,
                              write_tokenizer,
                              {"", "/scheduler", "/transformer", "/text_encoder", "/tokenizer", "/vae", "/processor"},
                              {{"transformer/diffusion_pytorch_model.safetensors", list_qwen_transformer},
                               {"text_encoder/model.safetensors", list_qwen_text_encoder},
                               {"vae/diffusion_pytorch_model.safetensors", list_qwen_vae}}},
    [SYNTHETIC_NEWBIE] = {write_newbie_configs,
                          write_newbie_tokenizers,
                          {"", "/transformer", "/text_encoder", "/clip_model", "/vae"},
                          {{"transformer/diffusion_pytorch_model.safetensors", list_newbie_transformer},
                           {"text_encoder/model.safetensors", list_gemma},
                           {"vae/diffusion_pytorch_model.safetensors", list_vae},
                           {"clip_model/model.safetensors", list_jina}}}};

static bool write_texts(const sink* to, const synthetic_config* c)
{
    return s_families[c->family].write_configs(to, c) && s_families[c->family].write_tokenizers(to, c);
}

// Adds the scale tensor that belongs to each matrix in fp8.
static void list_scales(list* l)
{
    for (size_t i = 0, count = l->count; i < count && !l->out_of_memory; i++) {
        const listed t = l->tensors[i];
        if (is_quantised(&t))
            add(l, SYNTHETIC_FP8_SCALE, 0.0f, 1, 0, 0, "%.*s.scale_weight", (int)(strlen(t.name) - strlen(".weight")),
                t.name);
    }
}

// The modulation keeps 16 bits in every format.
void synthetic_count(const synthetic_config* config, uint64_t* out_matrices, uint64_t* out_others)
{
    *out_matrices = *out_others = 0;
    for (size_t i = 0; i < MAX_PARTS && s_families[config->family].parts[i].file; i++) {
        list l = {0};
        s_families[config->family].parts[i].list(&l, config);
        for (size_t k = 0; k < l.count; k++) {
            const listed* t = &l.tensors[k];
            const bool keeps = strstr(t->name, "_mod.") || strstr(t->name, "adaLN");
            if (strstr(t->name, "embed_tokens")) continue;
            *(is_quantised(t) && !keeps ? out_matrices : out_others) += (uint64_t)count_of(t);
        }
        free(l.tensors);
    }
}

synthetic_files* synthetic_open(const synthetic_config* config)
{
    sources all = {.count = 0};
    synthetic_files* files = calloc(1, sizeof *files);
    const sink to = {NULL, files};
    bool made = files && add_source(&all, base_type(config))
             && (!config->stored || (add_source(&all, synthetic_type_find("q8_0")) && add_source(&all, config->stored)))
             && write_texts(&to, config);
    for (size_t i = 0; i < MAX_PARTS && s_families[config->family].parts[i].file && made; i++) {
        list l = {0};
        s_families[config->family].parts[i].list(&l, config);
        if (config->stored && config->stored->block == 1) list_scales(&l);
        made = !l.out_of_memory && store_list(files, s_families[config->family].parts[i].file, &l, config, &all);
        free(l.tensors);
    }
    close_sources(&all);
    if (made) return files;
    synthetic_close(files);
    return NULL;
}

#if !defined(_WIN32)
// Writes to files what synthetic_open holds in memory.
static bool write_stored(const char* folder, const synthetic_config* config)
{
    char path[1024];
    synthetic_files* files = synthetic_open(config);
    bool written = files != NULL;
    for (int32_t i = 0; written && i < files->count; i++) {
        const stored* s = &files->files[i];
        snprintf(path, sizeof path, "%s%s", folder, s->path + strlen(SYNTHETIC_PATH));
        FILE* file = fopen(path, "wb");
        written = file && fwrite(s->data, 1, (size_t)s->bytes, file) == (size_t)s->bytes;
        if (file && fclose(file) != 0) written = false;
        if (!written) fail(path);
    }
    synthetic_close(files);
    return written;
}

bool synthetic_write(const char* folder, const synthetic_config* config)
{
    char path[1024];
    for (size_t i = 0; i < MAX_FOLDERS && s_families[config->family].folders[i]; i++) {
        snprintf(path, sizeof path, "%s%s", folder, s_families[config->family].folders[i]);
        if (!system_make_folder(path)) return fail(path);
    }
    if (config->stored) return write_stored(folder, config);
    const sink to = {folder, NULL};
    bool written = write_texts(&to, config);
    for (uint64_t i = 0; i < MAX_PARTS && s_families[config->family].parts[i].file && written; i++) {
        list l = {0};
        s_families[config->family].parts[i].list(&l, config);
        snprintf(path, sizeof path, "%s/%s", folder, s_families[config->family].parts[i].file);
        if (l.out_of_memory) errno = ENOMEM;
        written = l.out_of_memory ? fail(path) : write_list(path, &l, 1000 * (i + 1), config);
        free(l.tensors);
    }
    return written;
}
#endif
