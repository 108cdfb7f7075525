// A network is a table of layers with the names of the released files. A layer has the tensors of its kind, whose
// random values are scaled so that activations keep their magnitude through any number of layers.
#include "synthetic_tensors.h"
#include "synthetic_blocks.h"
#include "system.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATENTS SYNTHETIC_LATENTS
#define TIME_HIDDEN 1024
#define TIME_WIDTH 256

// ---- Kinds of layers ------------------------------------------------------------------------------------------------

typedef enum layer_kind {
    MATRIX,      // a product without a bias
    LINEAR,      // a product with a bias
    CONV,        // a convolution of k x k pixels
    CAUSAL_CONV, // the same of k x k x k; for a single image only k x k values of it have an effect
    PATCHES,     // a convolution of two frames that has no bias
    BIASED_PATCHES,
    NORM,
    OFFSET_NORM, // a norm of Gemma or Qwen-Image-2.1, which adds 1 to its stored weight
    GROUP_NORM,  // with a bias; also layer norms
    GAMMA,       // a norm of Qwen-Image's VAE
    FLAT_GAMMA,  // the same where the VAE works on pictures instead of videos
    EMBEDDING,   // of tokens, or of positions
    TOKEN,       // a single row
    ADAPTED,     // a LINEAR with the low-rank adapter that Jina CLIP's file stores beside the weight
    ADAPTED_EMBEDDING,
    STATISTICS // means and variances of channels
} layer_kind;

typedef struct layer {
    const char* names; // "to_{q,k,v}" are three layers of one shape; NULL: the end of the table
    layer_kind kind;
    int32_t size[3]; // outputs, inputs, the side of a kernel
} layer;

// The values of a tensor are uniform in center +- spread. BY_INPUTS is sqrt(3 / inputs): standard deviation
// 1 / sqrt(inputs). A shape has a letter or a number for each dimension: o, i, k for the sizes of the layer, r for the
// adapter's rank.
#define BY_INPUTS 0.0f
#define ADAPTED_WEIGHT ".parametrizations.weight."
static const struct part {
    const char *name, *shape;
    float center, spread;
} s_kinds[][5] = {
    [MATRIX] = {{".weight", "oi", 0.0f, BY_INPUTS}},
    [LINEAR] = {{".weight", "oi", 0.0f, BY_INPUTS}, {".bias", "o", 0.0f, 0.05f}},
    [CONV] = {{".weight", "oikk", 0.0f, BY_INPUTS}, {".bias", "o", 0.0f, 0.05f}},
    [CAUSAL_CONV] = {{".weight", "oikkk", 0.0f, BY_INPUTS}, {".bias", "o", 0.0f, 0.05f}},
    [PATCHES] = {{".weight", "oi2kk", 0.0f, BY_INPUTS}},
    [BIASED_PATCHES] = {{".weight", "oi2kk", 0.0f, BY_INPUTS}, {".bias", "o", 0.0f, 0.05f}},
    [NORM] = {{".weight", "o", 1.0f, 0.2f}},
    [OFFSET_NORM] = {{".weight", "o", 0.0f, 0.2f}},
    [GROUP_NORM] = {{".weight", "o", 1.0f, 0.2f}, {".bias", "o", 0.0f, 0.05f}},
    [GAMMA] = {{".gamma", "o111", 1.0f, 0.2f}},
    [FLAT_GAMMA] = {{".gamma", "o11", 1.0f, 0.2f}},
    [EMBEDDING] = {{".weight", "oi", 0.0f, 1.0f}},
    [TOKEN] = {{"", "1o", 0.0f, 1.0f}},
    [ADAPTED] = {{ADAPTED_WEIGHT "original", "oi", 0.0f, BY_INPUTS},
                 {ADAPTED_WEIGHT "0.lora_A", "1ri", 0.0f, BY_INPUTS},
                 {ADAPTED_WEIGHT "0.lora_B", "1or", 0.0f, 0.2f},
                 {".bias", "o", 0.0f, 0.05f}},
    [ADAPTED_EMBEDDING] = {{ADAPTED_WEIGHT "original", "oi", 0.0f, 1.0f}, // its first factor has the rows of the table
                           {ADAPTED_WEIGHT "0.lora_A", "1or", 0.0f, 0.5f},
                           {ADAPTED_WEIGHT "0.lora_B", "1ri", 0.0f, 0.2f}},
    [STATISTICS] = {{".running_mean", "o", 0.0f, 0.05f}, {".running_var", "o", 1.0f, 0.2f}}};

static int64_t size_of(char letter, const layer* of)
{
    switch (letter) {
    case 'o': return of->size[0];
    case 'i': return of->size[1];
    case 'k': return of->size[2];
    case 'r': return SYNTHETIC_ADAPTER_RANK;
    default: return letter - '0';
    }
}

static listed_tensor* add_tensor(tensor_list* l)
{
    if (l->count == l->capacity) {
        const size_t capacity = l->capacity ? 2 * l->capacity : 256;
        listed_tensor* more = realloc(l->tensors, capacity * sizeof *more);
        if (!more) return l->out_of_memory = true, NULL;
        l->tensors = more;
        l->capacity = capacity;
    }
    l->tensors[l->count] = (listed_tensor){.rank = 0};
    return &l->tensors[l->count++];
}

static void add_layer(tensor_list* l, const layer* of, const char* prefix, const char* name)
{
    const int32_t kernel = of->size[2] ? of->size[2] : 1;
    for (const struct part* p = s_kinds[of->kind]; p->name; p++) {
        listed_tensor* t = add_tensor(l);
        if (!t) return;
        snprintf(t->name, sizeof t->name, "%s%s%s", prefix, name, p->name);
        for (; p->shape[t->rank]; t->rank++) t->shape[t->rank] = size_of(p->shape[t->rank], of);
        t->center = p->center;
        t->spread = p->spread == BY_INPUTS ? sqrtf(3.0f / (float)(of->size[1] * kernel * kernel)) : p->spread;
    }
}

// Adds the layers of a table. The format makes what their names begin with.
SYSTEM_PRINTF(3, 4)
static void add(tensor_list* l, const layer* table, const char* format, ...)
{
    char prefix[80], name[80];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    for (; table->names; table++) {
        const char* open = strchr(table->names, '{');
        if (!open) add_layer(l, table, prefix, table->names);
        for (const char* at = open; at && *at != '}';) { // the brace or the comma before a name
            const size_t bytes = strcspn(at + 1, ",}");
            snprintf(name, sizeof name, "%.*s%.*s%s", (int)(open - table->names), table->names, (int)bytes, at + 1,
                     strchr(open, '}') + 1);
            add_layer(l, table, prefix, name);
            at += 1 + bytes;
        }
    }
}

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

int32_t synthetic_vae_channels(const synthetic_config* config)
{
    return config->family == SYNTHETIC_KLEIN ? 32 : config->family == SYNTHETIC_QWEN_IMAGE_21 ? 64 : LATENTS;
}

// ---- Z-Image --------------------------------------------------------------------------------------------------------

static void list_z_image_blocks(tensor_list* l, const synthetic_config* c, const char* kind, int32_t count,
                                bool modulated)
{
    const int32_t dim = c->dim, head = dim / c->heads, hidden = (int32_t)((double)dim / 3.0 * 8.0);
    const layer block[] = {{"attention.{to_q,to_k,to_v,to_out.0}", MATRIX, {dim, dim}},
                           {"attention.{norm_q,norm_k}", NORM, {head}},
                           {"feed_forward.w1", MATRIX, {hidden, dim}},
                           {"feed_forward.w2", MATRIX, {dim, hidden}},
                           {"feed_forward.w3", MATRIX, {hidden, dim}},
                           {"{attention_norm1,attention_norm2,ffn_norm1,ffn_norm2}", NORM, {dim}},
                           {modulated ? "adaLN_modulation.0" : NULL, LINEAR, {4 * dim, least(dim, 256)}},
                           {0}};
    for (int32_t i = 0; i < count; i++) add(l, block, "%s.%d.", kind, i);
}

static void list_z_image(tensor_list* l, const synthetic_config* c)
{
    const int32_t dim = c->dim, condition = least(dim, 256);
    const layer around[] = {{"all_x_embedder.2-1", LINEAR, {dim, 4 * LATENTS}},
                            {"t_embedder.mlp.0", LINEAR, {TIME_HIDDEN, TIME_WIDTH}},
                            {"t_embedder.mlp.2", LINEAR, {condition, TIME_HIDDEN}},
                            {"cap_embedder.0", NORM, {c->text_width}},
                            {"cap_embedder.1", LINEAR, {dim, c->text_width}},
                            {"{x_pad_token,cap_pad_token}", TOKEN, {dim}},
                            {"all_final_layer.2-1.adaLN_modulation.1", LINEAR, {dim, condition}},
                            {"all_final_layer.2-1.linear", LINEAR, {4 * LATENTS, dim}},
                            {0}};
    add(l, around, "%s", "");
    list_z_image_blocks(l, c, "noise_refiner", c->refiners, true);
    list_z_image_blocks(l, c, "context_refiner", c->refiners, false);
    list_z_image_blocks(l, c, "layers", c->layers, true);
}

static void list_language_model(tensor_list* l, const synthetic_config* c, const char* prefix)
{
    const int32_t width = c->text_width, q = c->text_heads * c->text_head, kv = c->text_kv_heads * c->text_head;
    const layer before[] = {{"embed_tokens", EMBEDDING, {c->vocabulary, width}}, {0}};
    const layer block[] = {{"input_layernorm", NORM, {width}},
                           {"self_attn.q_proj", MATRIX, {q, width}},
                           {"self_attn.{k_proj,v_proj}", MATRIX, {kv, width}},
                           {"self_attn.{q_norm,k_norm}", NORM, {c->text_head}},
                           {"self_attn.o_proj", MATRIX, {width, q}},
                           {"post_attention_layernorm", NORM, {width}},
                           {"mlp.{gate_proj,up_proj}", MATRIX, {c->text_hidden, width}},
                           {"mlp.down_proj", MATRIX, {width, c->text_hidden}},
                           {0}};
    const layer after[] = {{"norm", NORM, {width}}, {0}};
    add(l, before, "%s", prefix);
    for (int32_t i = 0; i < c->text_layers; i++) add(l, block, "%slayers.%d.", prefix, i);
    add(l, after, "%s", prefix);
}

static void list_qwen3(tensor_list* l, const synthetic_config* c) { list_language_model(l, c, "model."); }

// A block of a VAE's stage.
static const layer* resnet(layer into[6], layer_kind norm, layer_kind conv, int32_t out, int32_t in)
{
    const layer table[6] = {{"norm1", norm, {in}},
                            {"conv1", conv, {out, in, 3}},
                            {"norm2", norm, {out}},
                            {"conv2", conv, {out, out, 3}},
                            {in != out ? "conv_shortcut" : NULL, conv, {out, in, 1}}};
    return memcpy(into, table, sizeof table);
}

// FLUX's VAE, which NewBie-image has, too. In the file the stages of encoder and decoder take turns.
static void list_flux_vae(tensor_list* l, const synthetic_config* c)
{
    static const char* const s_sides[] = {"encoder", "decoder"};
    const int32_t *w = c->vae_widths, top = w[3], latents = synthetic_vae_channels(c);
    const layer before[] = {{"encoder.conv_in", CONV, {w[0], 3, 3}}, {"decoder.conv_in", CONV, {top, latents, 3}}, {0}};
    const layer attention[] = {
        {"group_norm", GROUP_NORM, {top}}, {"{to_q,to_k,to_v,to_out.0}", LINEAR, {top, top}}, {0}};
    const layer after[] = {{"encoder.conv_norm_out", GROUP_NORM, {top}},
                           {"encoder.conv_out", CONV, {2 * latents, top, 3}},
                           {"decoder.conv_norm_out", GROUP_NORM, {w[0]}},
                           {"decoder.conv_out", CONV, {3, w[0], 3}},
                           {0}};
    layer block[6];
    add(l, before, "%s", "");
    for (int32_t stage = 0, down_in = w[0], up_in = top; stage < 4; stage++) {
        const int32_t down = w[stage], up = w[3 - stage];
        const layer downsampler[] = {{stage < 3 ? "conv" : NULL, CONV, {down, down, 3}}, {0}};
        const layer upsampler[] = {{stage < 3 ? "conv" : NULL, CONV, {up, up, 3}}, {0}};
        for (int32_t r = 0; r < c->vae_resnets; r++, down_in = down)
            add(l, resnet(block, GROUP_NORM, CONV, down, down_in), "encoder.down_blocks.%d.resnets.%d.", stage, r);
        add(l, downsampler, "encoder.down_blocks.%d.downsamplers.0.", stage);
        for (int32_t r = 0; r <= c->vae_resnets; r++, up_in = up)
            add(l, resnet(block, GROUP_NORM, CONV, up, up_in), "decoder.up_blocks.%d.resnets.%d.", stage, r);
        add(l, upsampler, "decoder.up_blocks.%d.upsamplers.0.", stage);
    }
    for (int32_t side = 0; side < 2; side++) {
        add(l, resnet(block, GROUP_NORM, CONV, top, top), "%s.mid_block.resnets.0.", s_sides[side]);
        add(l, attention, "%s.mid_block.attentions.0.", s_sides[side]);
        add(l, resnet(block, GROUP_NORM, CONV, top, top), "%s.mid_block.resnets.1.", s_sides[side]);
    }
    add(l, after, "%s", "");
}

// ---- FLUX.2 [klein] -------------------------------------------------------------------------------------------------

static void list_klein(tensor_list* l, const synthetic_config* c)
{
    const int32_t dim = c->dim, hidden = 3 * dim, latents = 4 * synthetic_vae_channels(c);
    const layer around[] = {{"x_embedder", MATRIX, {dim, latents}},
                            {"context_embedder", MATRIX, {dim, 3 * c->text_width}},
                            {"time_guidance_embed.timestep_embedder.linear_1", MATRIX, {dim, TIME_WIDTH}},
                            {"time_guidance_embed.timestep_embedder.linear_2", MATRIX, {dim, dim}},
                            {"double_stream_modulation_{img,txt}.linear", MATRIX, {6 * dim, dim}},
                            {"single_stream_modulation.linear", MATRIX, {3 * dim, dim}},
                            {"norm_out.linear", MATRIX, {2 * dim, dim}},
                            {"proj_out", MATRIX, {latents, dim}},
                            {0}};
    const layer block[] = {{"attn.{to_q,to_k,to_v,to_out.0}", MATRIX, {dim, dim}},
                           {"attn.{add_q_proj,add_k_proj,add_v_proj,to_add_out}", MATRIX, {dim, dim}},
                           {"attn.{norm_q,norm_k,norm_added_q,norm_added_k}", NORM, {dim / c->heads}},
                           {"{ff,ff_context}.linear_in", MATRIX, {2 * hidden, dim}},
                           {"{ff,ff_context}.linear_out", MATRIX, {dim, hidden}},
                           {0}};
    const layer single[] = {{"attn.to_qkv_mlp_proj", MATRIX, {3 * dim + 2 * hidden, dim}},
                            {"attn.to_out", MATRIX, {dim, dim + hidden}},
                            {"attn.{norm_q,norm_k}", NORM, {dim / c->heads}},
                            {0}};
    add(l, around, "%s", "");
    for (int32_t i = 0; i < c->layers; i++) add(l, block, "transformer_blocks.%d.", i);
    for (int32_t i = 0; i < c->singles; i++) add(l, single, "single_transformer_blocks.%d.", i);
}

static void list_klein_vae(tensor_list* l, const synthetic_config* c)
{
    const int32_t latents = synthetic_vae_channels(c);
    const layer around[] = {{"quant_conv", CONV, {2 * latents, 2 * latents, 1}},
                            {"post_quant_conv", CONV, {latents, latents, 1}},
                            {"bn", STATISTICS, {4 * latents}},
                            {0}};
    list_flux_vae(l, c);
    add(l, around, "%s", "");
}

// ---- Qwen-Image -----------------------------------------------------------------------------------------------------

static void list_two_stream_inputs(tensor_list* l, const synthetic_config* c)
{
    const int32_t dim = c->dim;
    const layer inputs[] = {{"img_in", LINEAR, {dim, 4 * LATENTS}},
                            {"txt_norm", NORM, {c->text_width}},
                            {"txt_in", LINEAR, {dim, c->text_width}},
                            {"time_text_embed.timestep_embedder.linear_1", LINEAR, {dim, TIME_WIDTH}},
                            {"time_text_embed.timestep_embedder.linear_2", LINEAR, {dim, dim}},
                            {0}};
    add(l, inputs, "%s", "");
}

static void list_two_stream_blocks(tensor_list* l, const synthetic_config* c, const char* kind, int32_t count)
{
    const int32_t dim = c->dim;
    const layer block[] = {{"{img_mod,txt_mod}.1", LINEAR, {6 * dim, dim}},
                           {"attn.{to_q,to_k,to_v,add_q_proj,add_k_proj,add_v_proj}", LINEAR, {dim, dim}},
                           {"attn.{norm_q,norm_k,norm_added_q,norm_added_k}", NORM, {dim / c->heads}},
                           {"attn.{to_out.0,to_add_out}", LINEAR, {dim, dim}},
                           {"img_mlp.net.0.proj", LINEAR, {4 * dim, dim}},
                           {"img_mlp.net.2", LINEAR, {dim, 4 * dim}},
                           {"txt_mlp.net.0.proj", LINEAR, {4 * dim, dim}},
                           {"txt_mlp.net.2", LINEAR, {dim, 4 * dim}},
                           {0}};
    for (int32_t i = 0; i < count; i++) add(l, block, "%s.%d.", kind, i);
}

static void list_qwen_image(tensor_list* l, const synthetic_config* c)
{
    const int32_t dim = c->dim;
    const layer after[] = {{"norm_out.linear", LINEAR, {2 * dim, dim}}, {"proj_out", LINEAR, {4 * LATENTS, dim}}, {0}};
    list_two_stream_inputs(l, c);
    list_two_stream_blocks(l, c, "transformer_blocks", c->layers);
    add(l, after, "%s", "");
}

// The language model and the vision tower are one file.
static void list_qwen25_vl(tensor_list* l, const synthetic_config* c)
{
    const int32_t width = c->text_width, q = c->text_heads * c->text_head, kv = c->text_kv_heads * c->text_head;
    const layer before[] = {{"embed_tokens", EMBEDDING, {c->vocabulary, width}}, {0}};
    const layer block[] = {{"input_layernorm", NORM, {width}},
                           {"self_attn.q_proj", LINEAR, {q, width}},
                           {"self_attn.{k_proj,v_proj}", LINEAR, {kv, width}},
                           {"self_attn.o_proj", MATRIX, {width, q}},
                           {"post_attention_layernorm", NORM, {width}},
                           {"mlp.{gate_proj,up_proj}", MATRIX, {c->text_hidden, width}},
                           {"mlp.down_proj", MATRIX, {width, c->text_hidden}},
                           {0}};
    const layer after[] = {{"norm", NORM, {width}}, {0}};
    add(l, before, "model.");
    for (int32_t i = 0; i < c->text_layers; i++) add(l, block, "model.layers.%d.", i);
    add(l, after, "model.");

    const int32_t vision = c->vision_width, hidden = c->vision_hidden, merged = 4 * vision;
    const layer patches[] = {{"patch_embed.proj", PATCHES, {vision, 3, 14}}, {0}};
    const layer vision_block[] = {{"{norm1,norm2}", NORM, {vision}}, // RMS norms
                                  {"attn.qkv", LINEAR, {3 * vision, vision}},
                                  {"attn.proj", LINEAR, {vision, vision}},
                                  {"mlp.{gate_proj,up_proj}", LINEAR, {hidden, vision}},
                                  {"mlp.down_proj", LINEAR, {vision, hidden}},
                                  {0}};
    const layer merger[] = {
        {"ln_q", NORM, {vision}}, {"mlp.0", LINEAR, {merged, merged}}, {"mlp.2", LINEAR, {width, merged}}, {0}};
    add(l, patches, "visual.");
    for (int32_t i = 0; i < c->vision_layers; i++) add(l, vision_block, "visual.blocks.%d.", i);
    add(l, merger, "visual.merger.");
}

// Without the time_conv tensors, which only videos use.
static void list_qwen_vae(tensor_list* l, const synthetic_config* c)
{
    static const char* const s_sides[] = {"encoder", "decoder"};
    const int32_t *w = c->vae_widths, top = w[3];
    const layer before[] = {
        {"encoder.conv_in", CAUSAL_CONV, {w[0], 3, 3}}, {"decoder.conv_in", CAUSAL_CONV, {top, LATENTS, 3}}, {0}};
    const layer attention[] = {
        {"norm", FLAT_GAMMA, {top}}, {"to_qkv", CONV, {3 * top, top, 1}}, {"proj", CONV, {top, top, 1}}, {0}};
    const layer after[] = {{"encoder.norm_out", GAMMA, {top}},
                           {"encoder.conv_out", CAUSAL_CONV, {2 * LATENTS, top, 3}},
                           {"decoder.norm_out", GAMMA, {w[0]}},
                           {"decoder.conv_out", CAUSAL_CONV, {3, w[0], 3}},
                           {"quant_conv", CAUSAL_CONV, {2 * LATENTS, 2 * LATENTS, 1}},
                           {"post_quant_conv", CAUSAL_CONV, {LATENTS, LATENTS, 1}},
                           {0}};
    layer block[6];
    add(l, before, "%s", "");
    for (int32_t stage = 0, module = 0, in = w[0]; stage < 4; stage++, module++) {
        const layer resample[] = {{stage < 3 ? "resample.1" : NULL, CONV, {w[stage], w[stage], 3}}, {0}};
        for (int32_t r = 0; r < c->vae_resnets; r++, in = w[stage], module++)
            add(l, resnet(block, GAMMA, CAUSAL_CONV, w[stage], in), "encoder.down_blocks.%d.", module);
        add(l, resample, "encoder.down_blocks.%d.", module);
    }
    for (int32_t stage = 0, in = top; stage < 4; stage++, in /= 2) { // a resample halves the channels
        const int32_t out = w[3 - stage];
        const layer resample[] = {{stage < 3 ? "resample.1" : NULL, CONV, {out / 2, out, 3}}, {0}};
        for (int32_t r = 0; r <= c->vae_resnets; r++, in = out)
            add(l, resnet(block, GAMMA, CAUSAL_CONV, out, in), "decoder.up_blocks.%d.resnets.%d.", stage, r);
        add(l, resample, "decoder.up_blocks.%d.upsamplers.0.", stage);
    }
    for (int32_t side = 0; side < 2; side++) {
        for (int32_t r = 0; r < 2; r++)
            add(l, resnet(block, GAMMA, CAUSAL_CONV, top, top), "%s.mid_block.resnets.%d.", s_sides[side], r);
        add(l, attention, "%s.mid_block.attentions.0.", s_sides[side]);
    }
    add(l, after, "%s", "");
}

// ---- Qwen-Image-2.1 -------------------------------------------------------------------------------------------------

static void list_qwen_image_21(tensor_list* l, const synthetic_config* c)
{
    const int32_t dim = c->dim, hidden = 3 * dim, latents = synthetic_vae_channels(c);
    const layer around[] = {{"img_in", MATRIX, {dim, latents}},
                            {"txt_in.text_norm", OFFSET_NORM, {c->text_width}},
                            {"txt_in.in_layer", MATRIX, {dim, c->text_width}},
                            {"txt_in.out_layer", MATRIX, {dim, dim}},
                            {"time_text_embed.timestep_embedder.linear_1", MATRIX, {dim, TIME_WIDTH}},
                            {"time_text_embed.timestep_embedder.linear_2", MATRIX, {dim, dim}},
                            {"modulation.1", MATRIX, {4 * dim, dim}},
                            {"norm_out.linear", MATRIX, {dim, dim}},
                            {"proj_out", MATRIX, {latents, dim}},
                            {0}};
    const layer block[] = {{"attn.{to_q,to_k,to_v,to_out.0}", MATRIX, {dim, dim}},
                           {"attn.{norm_q,norm_k}", NORM, {dim / c->heads}},
                           {"img_mlp.{proj,gate_layer}", MATRIX, {hidden, dim}},
                           {"img_mlp.out", MATRIX, {dim, hidden}},
                           {0}};
    add(l, around, "%s", "");
    for (int32_t i = 0; i < c->layers; i++) add(l, block, "transformer_blocks.%d.", i);
}

// The language model and the vision tower, without the released file's lm_head, which nothing reads.
static void list_qwen3_vl(tensor_list* l, const synthetic_config* c)
{
    const int32_t vision = c->vision_width, hidden = c->vision_hidden, merged = 4 * vision;
    const layer before[] = {
        {"patch_embed.proj", BIASED_PATCHES, {vision, 3, 16}}, {"pos_embed", EMBEDDING, {48 * 48, vision}}, {0}};
    const layer block[] = {{"{norm1,norm2}", GROUP_NORM, {vision}},      {"attn.qkv", LINEAR, {3 * vision, vision}},
                           {"attn.proj", LINEAR, {vision, vision}},      {"mlp.linear_fc1", LINEAR, {hidden, vision}},
                           {"mlp.linear_fc2", LINEAR, {vision, hidden}}, {0}};
    const layer merger[] = {
        {"linear_fc1", LINEAR, {merged, merged}}, {"linear_fc2", LINEAR, {c->text_width, merged}}, {0}};
    const layer norms[] = {{"norm", GROUP_NORM, {vision}}, {0}}, deep_norms[] = {{"norm", GROUP_NORM, {merged}}, {0}};
    list_language_model(l, c, "model.language_model.");
    add(l, before, "model.visual.");
    for (int32_t i = 0; i < c->vision_layers; i++) add(l, block, "model.visual.blocks.%d.", i);
    add(l, norms, "model.visual.merger.");
    add(l, merger, "model.visual.merger.");
    for (int32_t i = 0; i < SYNTHETIC_DEEP_LEVELS; i++) {
        add(l, deep_norms, "model.visual.deepstack_merger_list.%d.", i);
        add(l, merger, "model.visual.deepstack_merger_list.%d.", i);
    }
}

// Kernels of pictures. Shortcuts around stages have no weights. Without the time_conv tensors, which nothing reads.
static void list_qwen_vae_21(tensor_list* l, const synthetic_config* c)
{
    static const char* const s_sides[] = {"encoder", "decoder"};
    enum { STAGES = 5 };
    const int32_t *w = c->vae_widths, latents = synthetic_vae_channels(c);
    int32_t up[STAGES];
    for (int32_t i = 0; i < STAGES; i++) up[i] = w[STAGES - 1 - i] / w[0] * c->vae_decoder_width;
    const int32_t tops[] = {w[STAGES - 1], up[0]};
    const layer before[] = {
        {"encoder.conv_in", CONV, {w[0], 4, 3}}, {"decoder.conv_in", CONV, {up[0], latents, 3}}, {0}};
    const layer after[] = {{"encoder.norm_out", GAMMA, {tops[0]}},
                           {"encoder.conv_out", CONV, {2 * latents, tops[0], 3}},
                           {"decoder.norm_out", GAMMA, {up[STAGES - 1]}},
                           {"decoder.conv_out", CONV, {4, up[STAGES - 1], 3}},
                           {"quant_conv", CONV, {2 * latents, 2 * latents, 1}},
                           {"post_quant_conv", CONV, {latents, latents, 1}},
                           {0}};
    layer block[6];
    add(l, before, "%s", "");
    for (int32_t stage = 0, down_in = w[0], up_in = up[0]; stage < STAGES; stage++) {
        const char* name = stage < STAGES - 1 ? "resample.1" : NULL;
        const layer down[] = {{name, CONV, {w[stage], w[stage], 3}}, {0}},
                    rise[] = {{name, CONV, {up[stage], up[stage], 3}}, {0}};
        for (int32_t r = 0; r < c->vae_resnets; r++, down_in = w[stage])
            add(l, resnet(block, GAMMA, CONV, w[stage], down_in), "encoder.down_blocks.%d.resnets.%d.", stage, r);
        add(l, down, "encoder.down_blocks.%d.downsampler.", stage);
        for (int32_t r = 0; r <= c->vae_resnets; r++, up_in = up[stage])
            add(l, resnet(block, GAMMA, CONV, up[stage], up_in), "decoder.up_blocks.%d.resnets.%d.", stage, r);
        add(l, rise, "decoder.up_blocks.%d.upsampler.", stage);
    }
    for (int32_t side = 0; side < 2; side++) {
        const int32_t top = tops[side];
        const layer attention[] = {
            {"norm", FLAT_GAMMA, {top}}, {"to_qkv", CONV, {3 * top, top, 1}}, {"proj", CONV, {top, top, 1}}, {0}};
        for (int32_t r = 0; r < 2; r++)
            add(l, resnet(block, GAMMA, CONV, top, top), "%s.mid_block.resnets.%d.", s_sides[side], r);
        add(l, attention, "%s.mid_block.attentions.0.", s_sides[side]);
    }
    add(l, after, "%s", "");
}

// ---- NewBie-image ---------------------------------------------------------------------------------------------------

static void list_newbie_blocks(tensor_list* l, const synthetic_config* c, const char* kind, int32_t count,
                               bool modulated)
{
    const int32_t dim = c->dim, head = dim / c->heads, hidden = (4 * dim + 255) / 256 * 256;
    const layer block[] = {{"attention.qkv", MATRIX, {dim + 2 * c->kv_heads * head, dim}},
                           {"attention.out", MATRIX, {dim, dim}},
                           {"attention.{q_norm,k_norm}", NORM, {head}},
                           {"feed_forward.w1", MATRIX, {hidden, dim}},
                           {"feed_forward.w2", MATRIX, {dim, hidden}},
                           {"feed_forward.w3", MATRIX, {hidden, dim}},
                           {"{attention_norm1,attention_norm2,ffn_norm1,ffn_norm2}", NORM, {dim}},
                           {modulated ? "adaLN_modulation.1" : NULL, LINEAR, {4 * dim, least(dim, 1024)}},
                           {0}};
    for (int32_t i = 0; i < count; i++) add(l, block, "%s.%d.", kind, i);
}

static void list_newbie(tensor_list* l, const synthetic_config* c)
{
    const int32_t dim = c->dim, condition = least(dim, 1024), pooled = c->pooled_width;
    const layer around[] = {{"x_embedder", LINEAR, {dim, 4 * LATENTS}},
                            {"t_embedder.mlp.0", LINEAR, {condition, TIME_WIDTH}},
                            {"t_embedder.mlp.2", LINEAR, {condition, condition}},
                            {"cap_embedder.0", NORM, {c->text_width}},
                            {"cap_embedder.1", LINEAR, {dim, c->text_width}},
                            {"clip_text_pooled_proj.0", NORM, {pooled}},
                            {"clip_text_pooled_proj.1", LINEAR, {pooled, pooled}},
                            {"time_text_embed.1", LINEAR, {condition, condition + pooled}},
                            {"final_layer.adaLN_modulation.1", LINEAR, {dim, condition}},
                            {"final_layer.linear", LINEAR, {4 * LATENTS, dim}},
                            {"norm_final", NORM, {dim}}, // is in the released file, but no network reads it
                            {0}};
    add(l, around, "%s", "");
    list_newbie_blocks(l, c, "noise_refiner", c->refiners, true);
    list_newbie_blocks(l, c, "context_refiner", c->refiners, false);
    list_newbie_blocks(l, c, "layers", c->layers, true);
}

static void list_gemma(tensor_list* l, const synthetic_config* c)
{
    const int32_t width = c->text_width, q = c->text_heads * c->text_head, kv = c->text_kv_heads * c->text_head;
    // The rows have the magnitude of trained embeddings: the network multiplies them by the square root of the width.
    const layer before[] = {{"embed_tokens", MATRIX, {c->vocabulary, width}}, {0}};
    const layer block[] = {{"input_layernorm", OFFSET_NORM, {width}},
                           {"self_attn.q_proj", MATRIX, {q, width}},
                           {"self_attn.{k_proj,v_proj}", MATRIX, {kv, width}},
                           {"self_attn.{q_norm,k_norm}", OFFSET_NORM, {c->text_head}},
                           {"self_attn.o_proj", MATRIX, {width, q}},
                           {"{post_attention,pre_feedforward,post_feedforward}_layernorm", OFFSET_NORM, {width}},
                           {"mlp.{gate_proj,up_proj}", MATRIX, {c->text_hidden, width}},
                           {"mlp.down_proj", MATRIX, {width, c->text_hidden}},
                           {0}};
    const layer after[] = {{"norm", OFFSET_NORM, {width}}, {0}};
    add(l, before, "language_model.model.");
    for (int32_t i = 0; i < c->text_layers; i++) add(l, block, "language_model.model.layers.%d.", i);
    add(l, after, "language_model.model.");
}

static void list_jina(tensor_list* l, const synthetic_config* c)
{
    const int32_t width = c->pooled_width, hidden = c->pooled_hidden;
    const layer before[] = {{"embeddings.word_embeddings", ADAPTED_EMBEDDING, {c->pooled_vocabulary, width}},
                            {"embeddings.token_type_embeddings", ADAPTED_EMBEDDING, {1, width}},
                            {"emb_ln", GROUP_NORM, {width}},
                            {0}};
    const layer block[] = {{"mixer.Wqkv", ADAPTED, {3 * width, width}}, // queries, keys and values
                           {"mixer.out_proj", ADAPTED, {width, width}},
                           {"mlp.fc1", ADAPTED, {hidden, width}},
                           {"mlp.fc2", ADAPTED, {width, hidden}},
                           {"{norm1,norm2}", GROUP_NORM, {width}},
                           {0}};
    add(l, before, "text_model.transformer.roberta.");
    for (int32_t i = 0; i < c->pooled_layers; i++)
        add(l, block, "text_model.transformer.roberta.encoder.layers.%d.", i);
}

// ---- Control nets ---------------------------------------------------------------------------------------------------

static const synthetic_control s_controls[] = {
    {"z-fun-1.0", SYNTHETIC_Z_IMAGE, 6, LATENTS, "control/z-fun-1.0.safetensors"},
    {"z-fun-2.1", SYNTHETIC_Z_IMAGE, 15, 2 * LATENTS + 1, "control/z-fun-2.1.safetensors"},
    {"z-fun-2.1-lite", SYNTHETIC_Z_IMAGE, 3, 2 * LATENTS + 1, "control/z-fun-2.1-lite.safetensors"},
    {"qwen-instantx", SYNTHETIC_QWEN_IMAGE, 5, LATENTS, "control/qwen-instantx.safetensors"},
    {"qwen-fun", SYNTHETIC_QWEN_IMAGE, 5, 2 * LATENTS + 1, "control/qwen-fun.safetensors"},
    {"qwen-blockwise", SYNTHETIC_QWEN_IMAGE, 0, LATENTS, "control/qwen-blockwise.safetensors"}};

const synthetic_control* synthetic_control_find(const char* name)
{
    for (size_t i = 0; i < sizeof s_controls / sizeof *s_controls; i++) {
        if (strcmp(name, s_controls[i].name) == 0) return &s_controls[i];
    }
    return NULL;
}

// The linear layers around the blocks of a second stream, of which only the first block has one before it.
static void list_projections(tensor_list* l, const synthetic_config* c, const char* kind, int32_t count)
{
    const layer before[] = {{"before_proj", LINEAR, {c->dim, c->dim}}, {0}},
                after[] = {{"after_proj", LINEAR, {c->dim, c->dim}}, {0}};
    add(l, before, "%s.0.", kind);
    for (int32_t i = 0; i < count; i++) add(l, after, "%s.%d.", kind, i);
}

static void list_control(tensor_list* l, const synthetic_config* c, const synthetic_control* net)
{
    const int32_t dim = c->dim, count = net->layers > 0 ? least(net->layers, c->layers) : c->layers;
    const char* name = strcmp(net->name, "qwen-blockwise") == 0 ? "img_in"
                     : strcmp(net->name, "qwen-instantx") == 0  ? "controlnet_x_embedder"
                     : net->family == SYNTHETIC_QWEN_IMAGE      ? "control_img_in"
                                                                : "control_all_x_embedder.2-1";
    const layer input[] = {{name, LINEAR, {dim, 4 * net->channels}}, {0}};
    const layer hint[] = {{"controlnet_blocks", LINEAR, {dim, dim}}, {0}};
    const layer block[] = {{"{x_rms,y_rms}", NORM, {dim}}, {"{input_proj,output_proj}", LINEAR, {dim, dim}}, {0}};
    add(l, input, "%s", "");
    if (net->family == SYNTHETIC_Z_IMAGE) {
        list_z_image_blocks(l, c, "control_noise_refiner", c->refiners, true);
        list_z_image_blocks(l, c, "control_layers", count, true);
        list_projections(l, c, "control_layers", count);
        if (net->channels > LATENTS) list_projections(l, c, "control_noise_refiner", c->refiners);
    } else if (strcmp(name, "control_img_in") == 0) {
        list_two_stream_blocks(l, c, "control_blocks", count);
        list_projections(l, c, "control_blocks", count);
    } else if (strcmp(name, "img_in") == 0) {
        for (int32_t i = 0; i < count; i++) add(l, block, "controlnet_blocks.%d.", i);
    } else {
        list_two_stream_inputs(l, c);
        list_two_stream_blocks(l, c, "transformer_blocks", count);
        for (int32_t i = 0; i < count; i++) {
            char numbered[32];
            snprintf(numbered, sizeof numbered, "controlnet_blocks.%d", i);
            add_layer(l, &hint[0], "", numbered);
        }
    }
}

// ---- Lists ----------------------------------------------------------------------------------------------------------

static const struct file {
    const char* path;
    void (*list)(tensor_list* l, const synthetic_config* c);
} s_files[][SYNTHETIC_MAX_PARTS + 1] = {
    [SYNTHETIC_Z_IMAGE] = {{"transformer/diffusion_pytorch_model.safetensors", list_z_image},
                           {"text_encoder/model.safetensors", list_qwen3},
                           {"vae/diffusion_pytorch_model.safetensors", list_flux_vae}},
    [SYNTHETIC_QWEN_IMAGE] = {{"transformer/diffusion_pytorch_model.safetensors", list_qwen_image},
                              {"text_encoder/model.safetensors", list_qwen25_vl},
                              {"vae/diffusion_pytorch_model.safetensors", list_qwen_vae}},
    [SYNTHETIC_NEWBIE] = {{"transformer/diffusion_pytorch_model.safetensors", list_newbie},
                          {"text_encoder/model.safetensors", list_gemma},
                          {"vae/diffusion_pytorch_model.safetensors", list_flux_vae},
                          {"clip_model/model.safetensors", list_jina}},
    [SYNTHETIC_KLEIN] = {{"transformer/diffusion_pytorch_model.safetensors", list_klein},
                         {"text_encoder/model.safetensors", list_qwen3},
                         {"vae/diffusion_pytorch_model.safetensors", list_klein_vae}},
    [SYNTHETIC_QWEN_IMAGE_21] = {{"transformer/diffusion_pytorch_model.safetensors", list_qwen_image_21},
                                 {"text_encoder/model.safetensors", list_qwen3_vl},
                                 {"vae/diffusion_pytorch_model.safetensors", list_qwen_vae_21}}};

// The net in this part, which comes after the checkpoint's files; NULL: there is none.
static const synthetic_control* control_of(const synthetic_config* config, int32_t part)
{
    int32_t files = 0;
    while (files < part && s_files[config->family][files].path) files++;
    const int32_t index = s_files[config->family][files].path ? -1 : part - files;
    return index >= 0 && index < SYNTHETIC_MAX_CONTROLS ? config->controls[index] : NULL;
}

const char* tensor_list_path(const synthetic_config* config, int32_t part)
{
    const synthetic_control* net = control_of(config, part);
    return net ? net->path : part <= SYNTHETIC_MAX_PARTS ? s_files[config->family][part].path : NULL;
}

tensor_list tensor_list_make(const synthetic_config* config, int32_t part)
{
    tensor_list l = {0};
    const synthetic_control* net = control_of(config, part);
    if (net) list_control(&l, config, net);
    else s_files[config->family][part].list(&l, config);
    return l;
}

void tensor_list_add_scales(tensor_list* list)
{
    for (size_t i = 0, count = list->count; i < count; i++) {
        if (!tensor_is_quantised(&list->tensors[i])) continue;
        listed_tensor* scale = add_tensor(list);
        if (!scale) return;
        const char* name = list->tensors[i].name;
        const int stem = (int)(strlen(name) - strlen(".weight"));
        *scale = (listed_tensor){.shape = {1}, .rank = 1, .center = SYNTHETIC_FP8_SCALE};
        snprintf(scale->name, sizeof scale->name, "%.*s.scale_weight", stem, name);
    }
}

void tensor_list_free(tensor_list* list) { free(list->tensors); }

int64_t tensor_elements(const listed_tensor* t)
{
    int64_t count = 1;
    for (int32_t i = 0; i < t->rank; i++) count *= t->shape[i];
    return count;
}

bool tensor_is_quantised(const listed_tensor* t)
{
    static const char* const s_begins[] = {"layers.",
                                           "noise_refiner.",
                                           "context_refiner.",
                                           "transformer_blocks.",
                                           "model.layers.",
                                           "model.embed_tokens.",
                                           "language_model.model.",
                                           "single_transformer_blocks.",
                                           "model.language_model.",
                                           "control_layers.",
                                           "control_noise_refiner.",
                                           "control_blocks.",
                                           "controlnet_blocks."};
    for (size_t i = 0; i < sizeof s_begins / sizeof *s_begins && t->rank == 2; i++) {
        if (strncmp(t->name, s_begins[i], strlen(s_begins[i])) == 0) return true;
    }
    return false;
}
