#include "models/autoencoders.h"
#include "models/config.h"
#include "models/vae_tiles.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define NORM_EPS 1e-6f
// Bytes of a strip of a normed picture. A strip of 112 rows of 1024 x 1024 pixels is 7 rounds of patches on a Hopper
// GPU, 97 % full.
#define STRIP_BYTES (60u << 20)

// ---- Weights --------------------------------------------------------------------------------------------------------

// Maps names of diffusers to those of LDM, which has the 1x1 convolutions inside the halves, and to the oldest names of
// attention.
static bool flux_alias(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    static const char* const s_middle[][2] = {{"mid_block.resnets.0.", "mid.block_1."},
                                              {"mid_block.resnets.1.", "mid.block_2."},
                                              {"mid_block.attentions.0.group_norm.", "mid.attn_1.norm."},
                                              {"mid_block.attentions.0.to_q.", "mid.attn_1.q."},
                                              {"mid_block.attentions.0.to_k.", "mid.attn_1.k."},
                                              {"mid_block.attentions.0.to_v.", "mid.attn_1.v."},
                                              {"mid_block.attentions.0.to_out.0.", "mid.attn_1.proj_out."},
                                              {"conv_norm_out.", "norm_out."}};
    static const char* const s_old[][2] = {
        {".to_q.", ".query."}, {".to_k.", ".key."}, {".to_v.", ".value."}, {".to_out.0.", ".proj_attn."}};
    if (which == 1) {
        for (size_t i = 0; i < sizeof s_old / sizeof *s_old; i++) {
            if (sumi_replace_text(canonical, s_old[i][0], s_old[i][1], out, out_bytes)) return true;
        }
        return false;
    }
    if (which > 1) return false;
    const bool is_post_quant = strncmp(canonical, "post_quant_conv.", 16) == 0;
    if (is_post_quant || strncmp(canonical, "quant_conv.", 11) == 0) {
        const int length = snprintf(out, out_bytes, "%s%s", is_post_quant ? "decoder." : "encoder.", canonical);
        return length >= 0 && (size_t)length < out_bytes;
    }
    for (size_t i = 0; i < sizeof s_middle / sizeof *s_middle; i++) {
        if (sumi_replace_text(canonical, s_middle[i][0], s_middle[i][1], out, out_bytes)) return true;
    }
    const sumi_flux_vae* vae = context;
    int stage, used = 0;
    bool is_decoder = strncmp(canonical, "decoder.", 8) == 0;
    if (sscanf(canonical, is_decoder ? "decoder.up_blocks.%2d.%n" : "encoder.down_blocks.%2d.%n", &stage, &used) != 1
        || used == 0)
        return false;
    char suffix[SUMI_NAME_BYTES], renamed[SUMI_NAME_BYTES];
    snprintf(suffix, sizeof suffix, "%s", canonical + used);
    static const char* const s_inner[][2] = {{"resnets.", "block."},
                                             {"upsamplers.0.", "upsample."},
                                             {"downsamplers.0.", "downsample."},
                                             {"conv_shortcut.", "nin_shortcut."}};
    for (size_t i = 0; i < sizeof s_inner / sizeof *s_inner; i++) {
        if (sumi_replace_text(suffix, s_inner[i][0], s_inner[i][1], renamed, sizeof renamed))
            memcpy(suffix, renamed, sizeof suffix);
    }
    int length = is_decoder ? snprintf(out, out_bytes, "decoder.up.%d.%s", (int)vae->level_count - 1 - stage, suffix)
                            : snprintf(out, out_bytes, "encoder.down.%d.%s", stage, suffix);
    return length >= 0 && (size_t)length < out_bytes;
}

// Binds a convolution with its bias. Returns its output channels, which the file determines if size.out is 0; later
// layers check them.
static int32_t bind_flux_conv(sumi_binder* b, sumi_weight* weight, sumi_weight* bias, const char* module,
                              sumi_conv_size size)
{
    char name[SUMI_NAME_BYTES];
    if (size.out == 0) size.out = sumi_bind_size(b, sumi_bind_join(name, module, "weight"), 0);
    sumi_bind_conv(b, weight, module, size);
    sumi_bind_vector(b, bias, sumi_bind_join(name, module, "bias"), size.out);
    return size.out;
}

static void bind_flux_norm(sumi_binder* b, sumi_weight* weight, sumi_weight* bias, const char* module, int32_t channels)
{
    char name[SUMI_NAME_BYTES];
    sumi_bind_vector(b, weight, sumi_bind_join(name, module, "weight"), channels);
    sumi_bind_vector(b, bias, sumi_bind_join(name, module, "bias"), channels);
}

static int32_t bind_flux_block(sumi_binder* b, sumi_vae_block* w, const char* module, int32_t in_channels)
{
    char name[SUMI_NAME_BYTES];
    bind_flux_norm(b, &w->norm1, &w->norm1_bias, sumi_bind_join(name, module, "norm1"), in_channels);
    int32_t out_channels = bind_flux_conv(b, &w->conv1, &w->conv1_bias, sumi_bind_join(name, module, "conv1"),
                                          (sumi_conv_size){.in = in_channels, .out = 0, .kernel = 3});
    bind_flux_norm(b, &w->norm2, &w->norm2_bias, sumi_bind_join(name, module, "norm2"), out_channels);
    bind_flux_conv(b, &w->conv2, &w->conv2_bias, sumi_bind_join(name, module, "conv2"),
                   (sumi_conv_size){.in = out_channels, .out = out_channels, .kernel = 3});
    w->has_shortcut = in_channels != out_channels;
    if (w->has_shortcut) {
        bind_flux_conv(b, &w->shortcut, &w->shortcut_bias, sumi_bind_join(name, module, "conv_shortcut"),
                       (sumi_conv_size){.in = in_channels, .out = out_channels, .kernel = 1});
    }
    return out_channels;
}

static void bind_flux_middle(sumi_binder* b, sumi_vae_half* half, const char* side, int32_t channels)
{
    char name[SUMI_NAME_BYTES], n[4][SUMI_NAME_BYTES];
    for (int32_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s.mid_block.resnets.%d", side, (int)i);
        if (bind_flux_block(b, &half->middle[i], name, channels) != channels) {
            sumi_bind_fail(b, SUMI_TENSOR_MISMATCH, "%s: the middle block of the VAE changes the number of channels",
                           b->component->path);
        }
    }
    snprintf(name, sizeof name, "%s.mid_block.attentions.0.group_norm", side);
    bind_flux_norm(b, &half->attention_norm, &half->attention_norm_bias, name, channels);
    const char* qkv[3];
    for (int32_t i = 0; i < 3; i++) {
        snprintf(n[i], sizeof n[i], "%s.mid_block.attentions.0.to_%c", side, "qkv"[i]);
        qkv[i] = n[i];
    }
    const int32_t rows[] = {channels, channels, channels};
    snprintf(n[3], sizeof n[3], "%s.mid_block.attentions.0.qkv", side);
    const sumi_module_stack stack = {n[3], qkv, rows, 3};
    sumi_bind_stack(b, &half->attention.qkv, &stack, channels);
    sumi_bind_stacked_bias(b, &half->attention.qkv_bias, &stack);
    snprintf(name, sizeof name, "%s.mid_block.attentions.0.to_out.0", side);
    sumi_bind_matrix(b, &half->attention.out, name, channels, channels);
    sumi_bind_vector(b, &half->attention.out_bias, sumi_bind_join(n[3], name, "bias"), channels);
}

// Counts the stages of a half, the blocks of each, and whether it resamples, from all names of the file.
static int32_t bind_stages(const sumi_flux_vae* vae, sumi_binder* b, sumi_vae_half* half, bool decodes,
                           int32_t channels)
{
    const char *side = decodes ? "decoder.up" : "encoder.down", *sampler = decodes ? "upsample" : "downsample";
    char prefix[SUMI_NAME_BYTES], module[SUMI_NAME_BYTES];
    bool is_ldm = vae->level_count > 0;
    snprintf(prefix, sizeof prefix, is_ldm ? "%s." : "%s_blocks.", side);
    half->stage_count = sumi_bind_count(b, prefix);
    if (half->stage_count < 1 || half->stage_count > SUMI_VAE_MAX_STAGES) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: the VAE has %d stages called %sN; 1 to %d are supported",
                       b->component->path, (int)half->stage_count, prefix, SUMI_VAE_MAX_STAGES);
        half->stage_count = 0;
    }
    for (int32_t s = 0; s < half->stage_count; s++) {
        sumi_vae_stage* stage = &half->stages[s];
        int32_t level = decodes ? half->stage_count - 1 - s : s; // LDM counts the stages of the decoder backwards
        snprintf(prefix, sizeof prefix, is_ldm ? "%s.%d.block." : "%s_blocks.%d.resnets.", side,
                 (int)(is_ldm ? level : s));
        stage->block_count = sumi_bind_count(b, prefix);
        if (stage->block_count < 1 || stage->block_count > SUMI_VAE_MAX_BLOCKS) {
            sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: the VAE has %d blocks called %sN; 1 to %d are supported",
                           b->component->path, (int)stage->block_count, prefix, SUMI_VAE_MAX_BLOCKS);
            stage->block_count = 0;
        }
        for (int32_t i = 0; i < stage->block_count; i++) {
            snprintf(module, sizeof module, "%s_blocks.%d.resnets.%d", side, (int)s, (int)i);
            channels = bind_flux_block(b, &stage->blocks[i], module, channels);
        }
        snprintf(prefix, sizeof prefix, is_ldm ? "%s.%d.%s." : "%s_blocks.%d.%s", side, (int)(is_ldm ? level : s),
                 sampler);
        stage->resamples = sumi_bind_has_prefix(b, prefix);
        if (stage->resamples) {
            snprintf(module, sizeof module, "%s_blocks.%d.%srs.0.conv", side, (int)s, sampler);
            channels = bind_flux_conv(b, &stage->resample, &stage->resample_bias, module,
                                      (sumi_conv_size){.in = channels, .out = channels, .kernel = 3});
        }
    }
    return channels;
}

static void bind_flux_decoder(sumi_flux_vae* vae, sumi_binder* b)
{
    sumi_vae_half* half = &vae->decoder;
    const int32_t latents = vae->latent_channels;
    if (vae->has_quant) sumi_bind_linear(b, &half->quant, &half->quant_bias, "post_quant_conv", latents, latents);
    int32_t channels = bind_flux_conv(b, &half->conv_in, &half->conv_in_bias, "decoder.conv_in",
                                      (sumi_conv_size){.in = latents, .out = 0, .kernel = 3});
    bind_flux_middle(b, half, "decoder", channels);
    channels = bind_stages(vae, b, half, true, channels);
    bind_flux_norm(b, &half->norm_out, &half->norm_out_bias, "decoder.conv_norm_out", channels);
    bind_flux_conv(b, &half->conv_out, &half->conv_out_bias, "decoder.conv_out",
                   (sumi_conv_size){.in = channels, .out = 3, .kernel = 3});
    half->is_present = b->result == SUMI_OK;
}

static void bind_flux_encoder(sumi_flux_vae* vae, sumi_binder* b)
{
    sumi_vae_half* half = &vae->encoder;
    const int32_t moments = 2 * vae->latent_channels;
    int32_t channels = bind_flux_conv(b, &half->conv_in, &half->conv_in_bias, "encoder.conv_in",
                                      (sumi_conv_size){.in = 3, .out = 0, .kernel = 3});
    channels = bind_stages(vae, b, half, false, channels);
    bind_flux_middle(b, half, "encoder", channels);
    bind_flux_norm(b, &half->norm_out, &half->norm_out_bias, "encoder.conv_norm_out", channels);
    bind_flux_conv(b, &half->conv_out, &half->conv_out_bias, "encoder.conv_out",
                   (sumi_conv_size){.in = channels, .out = moments, .kernel = 3});
    if (vae->has_quant) sumi_bind_linear(b, &half->quant, &half->quant_bias, "quant_conv", moments, moments);
    half->is_present = b->result == SUMI_OK;
}

// Every group norm works on a multiple of `groups` channels.
static void check_groups(const sumi_flux_vae* vae, sumi_binder* b, const sumi_vae_half* half)
{
    bool divides = half->norm_out.cols % vae->groups == 0 && half->attention_norm.cols % vae->groups == 0;
    for (int32_t s = 0; s < half->stage_count; s++) {
        for (int32_t i = 0; i < half->stages[s].block_count; i++) {
            const sumi_vae_block* block = &half->stages[s].blocks[i];
            divides = divides && block->norm1.cols % vae->groups == 0 && block->norm2.cols % vae->groups == 0;
        }
    }
    if (!divides) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: the VAE's channels are not multiples of its %d norm groups; put the config.json that "
                       "belongs to it beside it",
                       b->component->path, (int)vae->groups);
    }
}

// Widths of stages, from fine to coarse. count 0: not given.
typedef struct config_widths {
    const char* key;
    int32_t channels[SUMI_VAE_MAX_STAGES], count;
} config_widths;

// Values of config.json that are checked against the tensors. 0: not given.
typedef struct config_values {
    int32_t latent_channels, in_channels, out_channels, blocks, patch[2], patch_count;
    config_widths encoder, decoder;
} config_values;

// Checks the widths of the stages of a half: the encoder's in the order of the config, the decoder's in reverse.
static void check_flux_half(const sumi_vae_half* half, bool decodes, sumi_binder* b, const config_values* c,
                            const char* path)
{
    const config_widths* widths = decodes && c->decoder.count > 0 ? &c->decoder : &c->encoder;
    char key[64];
    snprintf(key, sizeof key, "the length of %s", widths->key);
    sumi_bind_check(b, path, key, widths->count, half->stage_count);
    for (int32_t s = 0; s < half->stage_count && b->result == SUMI_OK; s++) {
        const sumi_vae_stage* stage = &half->stages[s];
        const int32_t stage_index = decodes ? half->stage_count - 1 - s : s;
        snprintf(key, sizeof key, "%s[%d]", widths->key, (int)stage_index);
        if (widths->count > 0) {
            sumi_bind_check(b, path, key, widths->channels[stage_index],
                            stage->blocks[stage->block_count - 1].conv2.rows);
        }
        sumi_bind_check(b, path, "layers_per_block", c->blocks, stage->block_count - (decodes ? 1 : 0));
    }
}

static void check_flux_config(const sumi_flux_vae* vae, sumi_binder* b, const config_values* c, const char* path)
{
    sumi_bind_check(b, path, "latent_channels", c->latent_channels, vae->latent_channels);
    sumi_bind_check(b, path, "in_channels", c->in_channels, 3);
    sumi_bind_check(b, path, "out_channels", c->out_channels, 3);
    for (int32_t i = 0; i < c->patch_count; i++) sumi_bind_check(b, path, "patch_size", c->patch[i], vae->packing);
    check_flux_half(&vae->decoder, true, b, c, path);
    if (vae->encoder.is_present) check_flux_half(&vae->encoder, false, b, c, path);
}

// Reads the mean and the variance of each channel of the denoiser's latents. They are taken to float first: in bfloat16
// the sum of a variance and eps would lose most of eps.
static void bind_statistics(sumi_flux_vae* vae, sumi_binder* b, double eps)
{
    const int32_t count = sumi_bind_size(b, "bn.running_mean", 0), wanted = 4 * vae->latent_channels;
    if (b->result != SUMI_OK) return;
    if (count != wanted || count > SUMI_FLUX_VAE_MAX_STATISTICS) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: bn.running_mean has %d values, but packs of 2 x 2 latents of %d channels have %d channels, "
                       "and up to %d are supported; the file is of another model",
                       b->component->path, (int)count, (int)vae->latent_channels, (int)wanted,
                       SUMI_FLUX_VAE_MAX_STATISTICS);
        return;
    }
    float variance[SUMI_FLUX_VAE_MAX_STATISTICS];
    if (!sumi_bind_floats(b, "bn.running_mean", vae->shift, count)
        || !sumi_bind_floats(b, "bn.running_var", variance, count))
        return;
    for (int32_t i = 0; i < count; i++) {
        const double sum = (double)variance[i] + eps;
        vae->scale[i] = sum > 0.0 ? (float)(1.0 / sqrt(sum)) : 0.0f;
        if (!isfinite(vae->scale[i]) || vae->scale[i] == 0.0f) {
            sumi_bind_fail(b, SUMI_FILE_MALFORMED,
                           "%s: value %d of bn.running_var is %g, but a variance is not negative, and not 0 if "
                           "batch_norm_eps is; the file is damaged: download it again",
                           b->component->path, (int)i, (double)variance[i]);
            return;
        }
    }
    vae->packing = 2;
    vae->statistics_count = count;
}

// Which of the two autoencoders it is. Flux.1's has neither 1x1 convolutions nor statistics, Flux.2's has both.
static void check_kind(const sumi_flux_vae* vae, sumi_binder* b, bool has_statistics)
{
    if (vae->has_quant == has_statistics) return;
    sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                   "%s: this VAE has %s, but lacks the %s; the VAE of Flux.2 has both, that of Flux.1 has neither, and "
                   "others are not supported: use the one that was released with the model",
                   b->component->path,
                   has_statistics ? "statistics of its latents (bn.running_mean, bn.running_var)"
                                  : "quantisation convolutions (quant_conv, post_quant_conv)",
                   has_statistics ? "quantisation convolutions (quant_conv, post_quant_conv)"
                                  : "statistics of its latents (bn.running_mean, bn.running_var)");
}

static sumi_result bind_flux_vae(void* model, const void* settings, sumi_binder* b, const sumi_module_config* config,
                                 bool without_encoder)
{
    sumi_flux_vae* vae = model;
    (void)settings;
    b->alias = flux_alias;
    b->alias_context = vae;
    b->result = SUMI_OK;
    vae->groups = 32;
    vae->sample_size = 1024;
    vae->strip_bytes = STRIP_BYTES;
    double scaling = 0.3611, shift = 0.1159, eps = 1e-4;
    bool quant = false, post_quant = false, attends = true;
    config_values c = {.encoder.key = "block_out_channels", .decoder.key = "decoder_block_out_channels"};
    const sumi_config_field fields[] = {
        {"norm_num_groups", SUMI_CONFIG_INTEGER, &vae->groups, 0, NULL},
        {"scaling_factor", SUMI_CONFIG_NUMBER, &scaling, 0, NULL},
        {"shift_factor", SUMI_CONFIG_NUMBER, &shift, 0, NULL},
        {"batch_norm_eps", SUMI_CONFIG_NUMBER, &eps, 0, NULL},
        {"sample_size", SUMI_CONFIG_INTEGER, &vae->sample_size, 0, NULL},
        {"use_quant_conv", SUMI_CONFIG_BOOL, &quant, 0, NULL},
        {"use_post_quant_conv", SUMI_CONFIG_BOOL, &post_quant, 0, NULL},
        {"mid_block_add_attention", SUMI_CONFIG_BOOL, &attends, 0, NULL},
        {"latent_channels", SUMI_CONFIG_INTEGER, &c.latent_channels, 0, NULL},
        {"in_channels", SUMI_CONFIG_INTEGER, &c.in_channels, 0, NULL},
        {"out_channels", SUMI_CONFIG_INTEGER, &c.out_channels, 0, NULL},
        {"layers_per_block", SUMI_CONFIG_INTEGER, &c.blocks, 0, NULL},
        {"patch_size", SUMI_CONFIG_INTEGERS, c.patch, 2, &c.patch_count},
        {c.encoder.key, SUMI_CONFIG_INTEGERS, c.encoder.channels, SUMI_VAE_MAX_STAGES, &c.encoder.count},
        {c.decoder.key, SUMI_CONFIG_INTEGERS, c.decoder.channels, SUMI_VAE_MAX_STAGES, &c.decoder.count}};
    b->result = sumi_config_read(config, fields, sizeof fields / sizeof *fields, b->error);
    if (!attends || vae->groups < 1 || !((float)scaling > 0) || !(eps >= 0)) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: this is not a Flux VAE (attention in the middle, positive norm groups and scaling, "
                       "batch_norm_eps not negative)",
                       config->data != NULL ? config->path : b->component->path);
    }
    // an old config does not mention the quantisation convolutions, but the tensors are there
    static const char* const s_quant[] = {"quant_conv.", "post_quant_conv.", "encoder.quant_conv.",
                                          "decoder.post_quant_conv."};
    vae->has_quant = quant || post_quant;
    for (size_t i = 0; i < sizeof s_quant / sizeof *s_quant; i++)
        vae->has_quant = vae->has_quant || sumi_bind_has_prefix(b, s_quant[i]);
    const bool has_statistics = sumi_bind_has_prefix(b, "bn.");
    check_kind(vae, b, has_statistics);
    vae->packing = vae->statistics_count = 1;
    vae->scale[0] = (float)scaling;
    vae->shift[0] = (float)shift;
    vae->level_count = sumi_bind_count(b, "decoder.up.");
    vae->latent_channels = sumi_bind_size(b, "decoder.conv_in.weight", 1);
    if (b->result != SUMI_OK) return b->result;
    if (has_statistics) bind_statistics(vae, b, eps);
    bind_flux_decoder(vae, b);
    vae->factor = sumi_vae_factor(&vae->decoder);
    bool has_encoder = sumi_bind_has_prefix(b, "encoder.");
    if (!without_encoder && has_encoder) {
        bind_flux_encoder(vae, b);
        if (b->result == SUMI_OK && sumi_vae_factor(&vae->encoder) != vae->factor) {
            sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                           "%s: the VAE's encoder downsamples by %d, its decoder upsamples by %d", b->component->path,
                           (int)sumi_vae_factor(&vae->encoder), (int)vae->factor);
        }
    }
    if (b->result == SUMI_OK) check_groups(vae, b, &vae->decoder);
    if (b->result == SUMI_OK && vae->encoder.is_present) check_groups(vae, b, &vae->encoder);
    if (b->result == SUMI_OK) check_flux_config(vae, b, &c, config->path);
    return b->result;
}

// ---- Forward --------------------------------------------------------------------------------------------------------

// Memory. The largest pictures decide how much memory a plan needs, so there are few of them. A residual block has its
// input x, which becomes the result in place; h between its convolutions, which is normed in place; and one strip n of
// the output of its first norm, with one row above and one below for the convolution.
//
//   x  |==================|     norm1, SiLU     n  |-====-|     conv1     h  |==================|     norm2, SiLU in place, conv2 + x -> x
//
// The block after an upsampling of the decoder halves the channels, and its x is the largest picture of all. Row by
// row, x is replaced by h and s = shortcut(x), side by side, in the same memory, here called the shared block. The
// shared block begins a strip and a row before x, so that no op overwrites its input and the next strip still finds the
// row above itself:
//
//   shared  |..........|xxxxxxxxxxxxxxxx|   ->   |h s h s h s|.....|xxxxxx|   ->   |h s h s h s h s h s h s|....|
//                        x: [rows, 2 c]             rows of [h: c | s: c]              the next block's x is s, its h is in h's columns
//
// A picture between two layers of the network.
typedef struct picture {
    sumi_value value;
    int32_t height, width;
    // shared_block: none, or the block of memory in which the picture begins at row free_rows * width. spare: a picture
    // of the same size that is not read any more, or none.
    sumi_value shared_block, spare;
    int32_t free_rows;
    uint64_t min_bytes; // flux_min_bytes of the half
} picture;

static sumi_value write_flux_norm(const sumi_flux_vae* vae, sumi_plan* plan, sumi_plan_group_norm_args norm)
{
    norm.groups = vae->groups;
    norm.eps = NORM_EPS;
    return sumi_plan_group_norm(plan, &norm);
}

static sumi_value write_flux_conv(sumi_plan* plan, const char* label, picture x, const sumi_weight* weight,
                                  const sumi_weight* bias)
{
    return sumi_plan_conv(plan, &(sumi_plan_conv_args){.label = label,
                                                       .x = x.value,
                                                       .weight = weight,
                                                       .bias = bias,
                                                       .shape = {.height = x.height, .width = x.width}});
}

// Bytes that a half needs in any case, where its pictures are largest: x and h of a block, or the shared block.
static uint64_t flux_min_bytes(const sumi_plan* plan, const sumi_vae_block* largest, int32_t height, int32_t width)
{
    int32_t in = largest->conv1.cols / 9, out = largest->conv1.rows;
    return (uint64_t)height * (uint64_t)width * (uint64_t)(in > 2 * out ? in : 2 * out)
         * sumi_plan_element_bytes(plan, SUMI_ELEMENT_ACTIVATION);
}

// Rows of a strip of normed x: all rows if they fit, beside x and h, into the memory that the half needs anyway;
// otherwise as many as strip_bytes allow, with all strips of about equal size.
static int32_t flux_strip_rows(const sumi_flux_vae* vae, const sumi_plan* plan, picture x, int32_t in, int32_t out)
{
    uint64_t column = (uint64_t)x.width * sumi_plan_element_bytes(plan, SUMI_ELEMENT_ACTIVATION),
             row = column * (uint64_t)in;
    uint64_t fit = vae->strip_bytes / (row > 0 ? row : 1); // rows
    if (fit >= (uint64_t)x.height || (uint64_t)x.height * (2 * row + column * (uint64_t)out) <= x.min_bytes)
        return x.height;
    return sumi_vae_strip_rows(x.height, fit);
}

// Strips of `rows` rows that are written to h. wide: the value that has h and the shortcut as columns; or none.
typedef struct flux_strips {
    int32_t rows;
    sumi_value h, wide;
} flux_strips;

// Writes conv1(silu(norm1(x))) to h in strips. With `wide`, also writes shortcut(x).
static void write_flux_strips(const sumi_flux_vae* vae, sumi_plan* plan, const sumi_vae_block* w, picture x,
                              flux_strips to)
{
    const sumi_value h = to.h, wide = to.wide;
    const int32_t rows = to.rows;
    int32_t in = w->conv1.cols / 9, out = w->conv1.rows, width = x.width;
    sumi_value sums = sumi_plan_group_sums(plan, "norm1", x.value, vae->groups);
    sumi_value strip = sumi_plan_value(plan, "normed_strip", SUMI_ELEMENT_ACTIVATION, (rows + 2) * width, in);
    for (int32_t row = 0; row < x.height; row += rows) {
        int32_t count = x.height - row < rows ? x.height - row : rows, above = row > 0, below = row + count < x.height,
                height = above + count + below;
        const sumi_span strip_rows = {row * width, count * width}, read_rows = {(row - above) * width, height * width};
        sumi_value from = sumi_plan_view(plan, "strip", x.value, read_rows, (sumi_span){0, in});
        sumi_value normed = sumi_plan_view(plan, "strip", strip, (sumi_span){0, height * width}, (sumi_span){0, in});
        write_flux_norm(vae, plan,
                        (sumi_plan_group_norm_args){.label = "norm1",
                                                    .x = from,
                                                    .sums = sums,
                                                    .weight = &w->norm1,
                                                    .bias = &w->norm1_bias,
                                                    .silu = true,
                                                    .y = normed});
        if (wide.id != 0) {
            sumi_value x_rows = sumi_plan_view(plan, "strip", x.value, strip_rows, (sumi_span){0, in});
            sumi_value wide_rows = sumi_plan_view(plan, "strip", wide, strip_rows, (sumi_span){0, in});
            sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "shortcut",
                                                            .x = x_rows,
                                                            .weight = &w->shortcut,
                                                            .bias = &w->shortcut_bias,
                                                            .y = wide_rows,
                                                            .writes_some_columns = true,
                                                            .y_column = out});
        }
        sumi_plan_conv(
            plan, &(sumi_plan_conv_args){.label = "conv1",
                                         .x = normed,
                                         .weight = &w->conv1,
                                         .bias = &w->conv1_bias,
                                         .shape = {.height = height, .width = width, .above = above, .below = below},
                                         .y = sumi_plan_view(plan, "strip", h, strip_rows, (sumi_span){0, out})});
    }
}

// y = shortcut(x) + conv2(silu(norm2(conv1(silu(norm1(x))))))
static picture write_flux_block(const sumi_flux_vae* vae, sumi_plan* plan, const sumi_vae_block* w, picture x)
{
    int32_t in = w->conv1.cols / 9, out = w->conv1.rows, pixels = x.height * x.width,
            rows = flux_strip_rows(vae, plan, x, in, out);
    picture h = {.height = x.height, .width = x.width};
    sumi_value residual = x.value;
    if (x.shared_block.id != 0) {
        sumi_value wide =
            sumi_plan_view(plan, "h_and_shortcut", x.shared_block, (sumi_span){0, pixels}, (sumi_span){0, in});
        h.value = sumi_plan_view(plan, "h", wide, (sumi_span){0, pixels}, (sumi_span){0, out});
        residual = sumi_plan_view(plan, "shortcut", wide, (sumi_span){0, pixels}, (sumi_span){out, out});
        write_flux_strips(vae, plan, w, x, (flux_strips){x.free_rows - 1, h.value, wide});
    } else {
        if (rows < x.height) {
            h.value = x.spare.id != 0 && !w->has_shortcut
                        ? x.spare
                        : sumi_plan_value(plan, "conv", SUMI_ELEMENT_ACTIVATION, pixels, out);
            write_flux_strips(vae, plan, w, x, (flux_strips){rows, h.value, SUMI_NO_VALUE});
        } else {
            h.value = write_flux_norm(
                vae, plan,
                (sumi_plan_group_norm_args){
                    .label = "norm1", .x = x.value, .weight = &w->norm1, .bias = &w->norm1_bias, .silu = true});
            h.value = write_flux_conv(plan, "conv1", h, &w->conv1, &w->conv1_bias);
        }
    }
    // directly after conv1, which may have left its sums
    write_flux_norm(
        vae, plan,
        (sumi_plan_group_norm_args){
            .label = "norm2", .x = h.value, .weight = &w->norm2, .bias = &w->norm2_bias, .silu = true, .y = h.value});
    if (w->has_shortcut && x.shared_block.id == 0) {
        residual = sumi_plan_linear(
            plan, &(sumi_plan_linear_args){
                      .label = "shortcut", .x = x.value, .weight = &w->shortcut, .bias = &w->shortcut_bias}); // 1x1
    }
    sumi_plan_conv(plan, &(sumi_plan_conv_args){.label = "conv2",
                                                .x = h.value,
                                                .weight = &w->conv2,
                                                .bias = &w->conv2_bias,
                                                .shape = {.height = x.height, .width = x.width},
                                                .residual = residual,
                                                .y = residual});
    return (picture){
        .value = residual, .height = x.height, .width = x.width, .spare = h.value, .min_bytes = x.min_bytes};
}

// Residual block, attention over all pixels with one head as wide as the channels, residual block.
static picture write_flux_middle(const sumi_flux_vae* vae, sumi_plan* plan, const sumi_vae_half* half, picture x,
                                 const char* side)
{
    sumi_plan_prefix(plan, "%s.mid.0.", side);
    x = write_flux_block(vae, plan, &half->middle[0], x);
    sumi_plan_prefix(plan, "%s.mid.attention.", side);
    sumi_value n = write_flux_norm(
        vae, plan,
        (sumi_plan_group_norm_args){
            .label = "norm", .x = x.value, .weight = &half->attention_norm, .bias = &half->attention_norm_bias});
    x.value = sumi_vae_attention_write(&half->attention, plan, n, x.value, x.height * x.width);
    x.spare = SUMI_NO_VALUE; // attention uses its memory
    sumi_plan_prefix(plan, "%s.mid.1.", side);
    return write_flux_block(vae, plan, &half->middle[1], x);
}

static sumi_value write_flux_end(const sumi_flux_vae* vae, sumi_plan* plan, const sumi_vae_half* half, picture x,
                                 const char* side)
{
    sumi_plan_prefix(plan, "%s.", side);
    x.value = write_flux_norm(vae, plan,
                              (sumi_plan_group_norm_args){.label = "norm_out",
                                                          .x = x.value,
                                                          .weight = &half->norm_out,
                                                          .bias = &half->norm_out_bias,
                                                          .silu = true,
                                                          .y = x.value});
    return write_flux_conv(plan, "conv_out", x, &half->conv_out, &half->conv_out_bias);
}

// Nearest 2x upsampling and a convolution. If the next stage, which is the last, uses a shared block, x is at the
// beginning of that block, the output overwrites x, and the last rows of x are upsampled first.
static picture write_flux_upsample(const sumi_flux_vae* vae, sumi_plan* plan, const sumi_vae_stage* stage, picture x,
                                   const sumi_vae_stage* next)
{
    int32_t channels = stage->resample.rows, out = next != NULL ? next->blocks[0].conv1.rows : 0;
    picture y = {.height = 2 * x.height, .width = 2 * x.width, .min_bytes = x.min_bytes};
    int32_t rows = flux_strip_rows(vae, plan, y, channels, out);
    bool has_shared_block = next != NULL && next->blocks[0].has_shortcut && rows < y.height && 2 * out <= channels
                         && channels % 8 == 0 && out % 8 == 0;
    // a product cannot read columns of a shared block
    for (int32_t i = 1; has_shared_block && i < next->block_count; i++)
        has_shared_block = !next->blocks[i].has_shortcut;
    if (!has_shared_block) {
        y.value = sumi_plan_conv(
            plan, &(sumi_plan_conv_args){.label = "upsample",
                                         .x = x.value,
                                         .weight = &stage->resample,
                                         .bias = &stage->resample_bias,
                                         .shape = {.height = x.height, .width = x.width, .upsamples = true}});
        return y;
    }
    y.free_rows = rows + 1;
    y.shared_block =
        sumi_plan_value(plan, "shared_block", SUMI_ELEMENT_ACTIVATION, (y.height + y.free_rows) * y.width, channels);
    y.value = sumi_plan_view(plan, "upsampled", y.shared_block, (sumi_span){y.free_rows * y.width, y.height * y.width},
                             (sumi_span){0, channels});
    const uint64_t small_row =
        (uint64_t)x.width * (uint64_t)channels * sumi_plan_element_bytes(plan, SUMI_ELEMENT_ACTIVATION);
    const sumi_vae_growth growth = {
        .height = x.height, .small_row = small_row, .large_row = 2 * small_row, .spare_rows = y.free_rows};
    bool shares = stage->resample.cols == 9 * channels && sumi_plan_info(plan, x.value)->base.id == 0
               && sumi_vae_can_grow(&growth);
    if (shares) sumi_plan_share(plan, x.value, y.shared_block);
    sumi_vae_upsample_write(
        stage, plan,
        &(sumi_vae_upsampling){
            .x = x.value, .y = y.value, .height = x.height, .width = x.width, .growth = shares ? &growth : NULL});
    return y;
}

// The 1x1 convolution of a half.
static sumi_value write_quant(sumi_plan* plan, const char* label, sumi_value x, const sumi_vae_half* half)
{
    return sumi_plan_linear(
        plan, &(sumi_plan_linear_args){.label = label, .x = x, .weight = &half->quant, .bias = &half->quant_bias});
}

static sumi_value decode_flux_tile(const sumi_vae_tiling* tiling, sumi_plan* plan, sumi_value latents, int32_t height,
                                   int32_t width)
{
    const sumi_flux_vae* vae = tiling->model;
    const sumi_vae_half* half = &vae->decoder;
    picture x = {.value = latents, .height = height, .width = width};
    x.min_bytes =
        flux_min_bytes(plan, &half->stages[half->stage_count - 1].blocks[0], height * vae->factor, width * vae->factor);
    if (vae->has_quant) x.value = write_quant(plan, "post_quant", latents, half);
    x.value = write_flux_conv(plan, "conv_in", x, &half->conv_in, &half->conv_in_bias);
    x = write_flux_middle(vae, plan, half, x, "decoder");
    for (int32_t s = 0; s < half->stage_count; s++) {
        const sumi_vae_stage* stage = &half->stages[s];
        for (int32_t i = 0; i < stage->block_count; i++) {
            sumi_plan_prefix(plan, "decoder.%d.%d.", (int)s, (int)i);
            x = write_flux_block(vae, plan, &stage->blocks[i], x);
        }
        if (stage->resamples) {
            sumi_plan_prefix(plan, "decoder.%d.", (int)s);
            x = write_flux_upsample(vae, plan, stage, x, s + 2 == half->stage_count ? &half->stages[s + 1] : NULL);
        }
    }
    return write_flux_end(vae, plan, half, x, "decoder");
}

static sumi_value encode_flux_tile(const sumi_vae_tiling* tiling, sumi_plan* plan, sumi_value pixels, int32_t height,
                                   int32_t width)
{
    const sumi_flux_vae* vae = tiling->model;
    const sumi_vae_half* half = &vae->encoder;
    picture x = {.value = pixels, .height = height, .width = width};
    x.min_bytes = flux_min_bytes(plan, &half->stages[0].blocks[0], height, width);
    x.value = write_flux_conv(plan, "conv_in", x, &half->conv_in, &half->conv_in_bias);
    for (int32_t s = 0; s < half->stage_count; s++) {
        const sumi_vae_stage* stage = &half->stages[s];
        for (int32_t i = 0; i < stage->block_count; i++) {
            sumi_plan_prefix(plan, "encoder.%d.%d.", (int)s, (int)i);
            x = write_flux_block(vae, plan, &stage->blocks[i], x);
        }
        if (stage->resamples) {
            sumi_plan_prefix(plan, "encoder.%d.", (int)s);
            sumi_value half_size = sumi_plan_conv(
                plan,
                &(sumi_plan_conv_args){.label = "downsample",
                                       .x = x.value,
                                       .weight = &stage->resample,
                                       .bias = &stage->resample_bias,
                                       .shape = {.height = x.height, .width = x.width, .stride = 2, .pads_end = true}});
            x = (picture){.value = half_size, .height = x.height / 2, .width = x.width / 2, .min_bytes = x.min_bytes};
        }
    }
    x = write_flux_middle(vae, plan, half, x, "encoder");
    const sumi_value moments = write_flux_end(vae, plan, half, x, "encoder");
    return vae->has_quant ? write_quant(plan, "quant", moments, half) : moments;
}

// ---- The module -----------------------------------------------------------------------------------------------------

// Tiles as in diffusers: they overlap by a quarter.
static sumi_vae_tiling flux_tiling(const void* model)
{
    const sumi_flux_vae* vae = model;
    return (sumi_vae_tiling){.rule = {3, 4},
                             .channels = vae->latent_channels,
                             .factor = vae->factor,
                             .packing = vae->packing,
                             .picture_channels = 3,
                             .statistics = {vae->scale, vae->shift, vae->statistics_count},
                             .model = vae,
                             .decode = decode_flux_tile,
                             .encode = encode_flux_tile};
}

static sumi_autoencoder_properties flux_properties(const void* model)
{
    const sumi_flux_vae* vae = model;
    return (sumi_autoencoder_properties){.channels = vae->latent_channels * vae->packing * vae->packing,
                                         .factor = vae->factor * vae->packing,
                                         .packing = vae->packing,
                                         .picture_channels = 3,
                                         .sample_size = vae->sample_size,
                                         .has_encoder = vae->encoder.is_present,
                                         .has_decoder = vae->decoder.is_present};
}

const sumi_autoencoder_module sumi_flux_vae_module = {
    .model_bytes = sizeof(sumi_flux_vae), .bind = bind_flux_vae, .properties = flux_properties, .tiling = flux_tiling};
