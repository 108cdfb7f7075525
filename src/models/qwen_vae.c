#include "base/assert.h"
#include "base/numbers.h"
#include "models/autoencoders.h"
#include "models/config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// Bytes of a strip. 112 rows of 1024 x 1024 pixels with 96 channels are 7 rounds of patches on a Hopper GPU, 97 % full.
#define STRIP_BYTES (22u << 20)

// ---- Weights --------------------------------------------------------------------------------------------------------

typedef struct renaming {
    const char *from, *to;
} renaming;

// The canonical name without `prefix`; NULL if it does not begin with the prefix.
static const char* after_prefix(const char* name, const char* prefix)
{
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 ? name + length : NULL;
}

// Wan's name of the module of a residual block that a name ends with.
static const char* block_module(const char* suffix, const char** out_begin)
{
    static const renaming s_modules[] = {{"norm1.", "residual.0."},
                                         {"conv1.", "residual.2."},
                                         {"norm2.", "residual.3."},
                                         {"conv2.", "residual.6."},
                                         {"conv_shortcut.", "shortcut."}};
    for (size_t i = 0; i < sizeof s_modules / sizeof *s_modules; i++) {
        const char* end = after_prefix(suffix, s_modules[i].from);
        if (end != NULL) {
            *out_begin = s_modules[i].to;
            return end;
        }
    }
    *out_begin = ""; // layers that resample have the same names
    return suffix;
}

// Maps names of diffusers to those of Wan.
static bool wan_alias(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    static const renaming s_modules[] = {{"post_quant_conv.", "conv2."},
                                         {"quant_conv.", "conv1."},
                                         {"encoder.conv_in.", "encoder.conv1."},
                                         {"decoder.conv_in.", "decoder.conv1."},
                                         {"encoder.norm_out.", "encoder.head.0."},
                                         {"decoder.norm_out.", "decoder.head.0."},
                                         {"encoder.conv_out.", "encoder.head.2."},
                                         {"decoder.conv_out.", "decoder.head.2."},
                                         {"encoder.mid_block.attentions.0.", "encoder.middle.1."},
                                         {"decoder.mid_block.attentions.0.", "decoder.middle.1."}};
    if (which > 0) return false;
    const sumi_qwen_vae* vae = context;
    const char *suffix = NULL, *block_prefix = "";
    char prefix[64];
    int stage = 0, block = 0, used = 0;
    for (size_t i = 0; i < sizeof s_modules / sizeof *s_modules && suffix == NULL; i++) {
        suffix = after_prefix(canonical, s_modules[i].from);
        if (suffix != NULL) snprintf(prefix, sizeof prefix, "%s", s_modules[i].to);
    }
    if (suffix == NULL) {
        const char* side = after_prefix(canonical, "encoder.") != NULL ? "encoder" : "decoder";
        const char* inner = canonical + strlen("encoder.");
        if (strncmp(canonical, side, strlen(side)) != 0) return false;
        if (sscanf(inner, "mid_block.resnets.%1d.%n", &block, &used) == 1 && used > 0) {
            snprintf(prefix, sizeof prefix, "%s.middle.%d.", side, 2 * block);
        } else if (sscanf(inner, "down_blocks.%2d.%n", &block, &used) == 1 && used > 0) {
            snprintf(prefix, sizeof prefix, "%s.downsamples.%d.", side, block);
        } else if (sscanf(inner, "up_blocks.%2d.resnets.%2d.%n", &stage, &block, &used) == 2 && used > 0) {
            snprintf(prefix, sizeof prefix, "%s.upsamples.%d.", side, stage * ((int)vae->flat_blocks + 1) + block);
        } else if (sscanf(inner, "up_blocks.%2d.upsamplers.0.%n", &stage, &used) == 1 && used > 0) {
            snprintf(prefix, sizeof prefix, "%s.upsamples.%d.", side, (stage + 1) * ((int)vae->flat_blocks + 1) - 1);
        } else {
            return false;
        }
        suffix = block_module(inner + used, &block_prefix);
    }
    int length = snprintf(out, out_bytes, "%s%s%s", prefix, block_prefix, suffix);
    return length >= 0 && (size_t)length < out_bytes;
}

// Binds a 3x3 convolution over time with its bias. Returns its output channels, which the file determines if the given
// number is 0; later layers check them.
static int32_t bind_wan_conv(sumi_binder* b, sumi_weight* weight, sumi_weight* bias, const char* module,
                             sumi_conv_size size)
{
    char name[SUMI_NAME_BYTES];
    size.kernel = 3;
    if (size.out == 0) size.out = sumi_bind_size(b, sumi_bind_join(name, module, "weight"), 0);
    sumi_bind_causal_conv(b, weight, module, size);
    sumi_bind_vector(b, bias, sumi_bind_join(name, module, "bias"), size.out);
    return size.out;
}

// The same for a convolution of a single picture, which resamples.
static int32_t bind_resample(sumi_binder* b, sumi_vae_stage* stage, const char* module, int32_t in_channels)
{
    char name[SUMI_NAME_BYTES];
    int32_t channels = sumi_bind_size(b, sumi_bind_join(name, module, "weight"), 0);
    sumi_bind_conv(b, &stage->resample, module, (sumi_conv_size){.in = in_channels, .out = channels, .kernel = 3});
    sumi_bind_vector(b, &stage->resample_bias, sumi_bind_join(name, module, "bias"), channels);
    return channels;
}

static int32_t bind_wan_block(sumi_binder* b, sumi_vae_block* w, const char* module, int32_t in_channels)
{
    char name[SUMI_NAME_BYTES];
    sumi_bind_vector(b, &w->norm1, sumi_bind_join(name, module, "norm1.gamma"), in_channels);
    int32_t out_channels = bind_wan_conv(b, &w->conv1, &w->conv1_bias, sumi_bind_join(name, module, "conv1"),
                                         (sumi_conv_size){.in = in_channels});
    sumi_bind_vector(b, &w->norm2, sumi_bind_join(name, module, "norm2.gamma"), out_channels);
    bind_wan_conv(b, &w->conv2, &w->conv2_bias, sumi_bind_join(name, module, "conv2"),
                  (sumi_conv_size){.in = out_channels, .out = out_channels});
    w->has_shortcut = in_channels != out_channels;
    if (w->has_shortcut) {
        sumi_bind_linear(b, &w->shortcut, &w->shortcut_bias, sumi_bind_join(name, module, "conv_shortcut"),
                         out_channels, in_channels);
    }
    return out_channels;
}

static void bind_wan_middle(sumi_binder* b, sumi_vae_half* half, const char* side, int32_t channels)
{
    char module[SUMI_NAME_BYTES], name[SUMI_NAME_BYTES];
    for (int32_t i = 0; i < 2; i++) {
        snprintf(module, sizeof module, "%s.mid_block.resnets.%d", side, (int)i);
        if (bind_wan_block(b, &half->middle[i], module, channels) != channels) {
            sumi_bind_fail(b, SUMI_TENSOR_MISMATCH, "%s: the middle block of the VAE changes the number of channels",
                           b->component->path);
        }
    }
    snprintf(module, sizeof module, "%s.mid_block.attentions.0", side);
    sumi_bind_vector(b, &half->attention_norm, sumi_bind_join(name, module, "norm.gamma"), channels);
    sumi_bind_linear(b, &half->attention.qkv, &half->attention.qkv_bias, sumi_bind_join(name, module, "to_qkv"),
                     3 * channels, channels);
    sumi_bind_linear(b, &half->attention.out, &half->attention.out_bias, sumi_bind_join(name, module, "proj"), channels,
                     channels);
}

static void refuse_count(sumi_binder* b, const char* what, int32_t count, int32_t max_count)
{
    sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: the VAE has %d %s; 1 to %d are supported", b->component->path,
                   (int)count, what, (int)max_count);
}

// The encoder's blocks have one continuous numbering, which includes the blocks that resample; such a block ends a
// stage.
static int32_t bind_encoder_stages(const sumi_qwen_vae* vae, sumi_binder* b, sumi_vae_half* half, int32_t channels)
{
    int32_t count = sumi_bind_count(b, vae->flat_blocks > 0 ? "encoder.downsamples." : "encoder.down_blocks.");
    sumi_vae_stage* stage = &half->stages[0];
    for (int32_t i = 0; i < count && b->result == SUMI_OK; i++) {
        char prefix[SUMI_NAME_BYTES], module[SUMI_NAME_BYTES];
        snprintf(prefix, sizeof prefix, "encoder.%s.%d.resample.", vae->flat_blocks > 0 ? "downsamples" : "down_blocks",
                 (int)i);
        if (sumi_bind_has_prefix(b, prefix)) {
            if (stage->block_count == 0 || stage == &half->stages[SUMI_VAE_MAX_STAGES - 1]) {
                refuse_count(b, "stages in its encoder, or one without a block", (int32_t)(stage - half->stages) + 1,
                             SUMI_VAE_MAX_STAGES);
                return 0;
            }
            stage->resamples = true;
            snprintf(module, sizeof module, "encoder.down_blocks.%d.resample.1", (int)i);
            channels = bind_resample(b, stage++, module, channels);
        } else if (stage->block_count == SUMI_VAE_MAX_BLOCKS) {
            refuse_count(b, "blocks in a stage of its encoder", stage->block_count + 1, SUMI_VAE_MAX_BLOCKS);
        } else {
            snprintf(module, sizeof module, "encoder.down_blocks.%d", (int)i);
            channels = bind_wan_block(b, &stage->blocks[stage->block_count++], module, channels);
        }
    }
    half->stage_count = (int32_t)(stage - half->stages) + 1;
    if (stage->block_count == 0) refuse_count(b, "blocks in a stage of its encoder", 0, SUMI_VAE_MAX_BLOCKS);
    return channels;
}

static int32_t bind_decoder_stages(const sumi_qwen_vae* vae, sumi_binder* b, sumi_vae_half* half, int32_t channels)
{
    char prefix[SUMI_NAME_BYTES], module[SUMI_NAME_BYTES];
    int32_t flat = vae->flat_blocks,
            index_count = sumi_bind_count(b, flat > 0 ? "decoder.upsamples." : "decoder.up_blocks.");
    half->stage_count = flat > 0 ? (index_count + 1 + flat) / (flat + 1) : index_count;
    if (half->stage_count < 1 || half->stage_count > SUMI_VAE_MAX_STAGES) {
        refuse_count(b, "stages in its decoder", half->stage_count, SUMI_VAE_MAX_STAGES);
        half->stage_count = 0;
    }
    for (int32_t s = 0; s < half->stage_count && b->result == SUMI_OK; s++) {
        sumi_vae_stage* stage = &half->stages[s];
        snprintf(prefix, sizeof prefix, "decoder.up_blocks.%d.resnets.", (int)s);
        stage->block_count = flat > 0 ? flat : sumi_bind_count(b, prefix);
        if (stage->block_count < 1 || stage->block_count > SUMI_VAE_MAX_BLOCKS) {
            refuse_count(b, "blocks in a stage of its decoder", stage->block_count, SUMI_VAE_MAX_BLOCKS);
            stage->block_count = 0;
        }
        for (int32_t i = 0; i < stage->block_count; i++) {
            snprintf(module, sizeof module, "decoder.up_blocks.%d.resnets.%d", (int)s, (int)i);
            channels = bind_wan_block(b, &stage->blocks[i], module, channels);
        }
        snprintf(prefix, sizeof prefix, "decoder.up_blocks.%d.upsamplers.", (int)s);
        stage->resamples = flat > 0 ? s + 1 < half->stage_count : sumi_bind_has_prefix(b, prefix);
        if (stage->resamples) {
            snprintf(module, sizeof module, "decoder.up_blocks.%d.upsamplers.0.resample.1", (int)s);
            channels = bind_resample(b, stage, module, channels);
        }
    }
    return channels;
}

static void bind_wan_decoder(sumi_qwen_vae* vae, sumi_binder* b)
{
    sumi_vae_half* half = &vae->decoder;
    sumi_bind_linear(b, &half->quant, &half->quant_bias, "post_quant_conv", vae->channels, vae->channels);
    int32_t channels =
        bind_wan_conv(b, &half->conv_in, &half->conv_in_bias, "decoder.conv_in", (sumi_conv_size){.in = vae->channels});
    bind_wan_middle(b, half, "decoder", channels);
    channels = bind_decoder_stages(vae, b, half, channels);
    sumi_bind_vector(b, &half->norm_out, "decoder.norm_out.gamma", channels);
    bind_wan_conv(b, &half->conv_out, &half->conv_out_bias, "decoder.conv_out",
                  (sumi_conv_size){.in = channels, .out = 3});
    half->is_present = b->result == SUMI_OK;
}

static void bind_wan_encoder(sumi_qwen_vae* vae, sumi_binder* b)
{
    sumi_vae_half* half = &vae->encoder;
    int32_t channels =
        bind_wan_conv(b, &half->conv_in, &half->conv_in_bias, "encoder.conv_in", (sumi_conv_size){.in = 3});
    channels = bind_encoder_stages(vae, b, half, channels);
    bind_wan_middle(b, half, "encoder", channels);
    sumi_bind_vector(b, &half->norm_out, "encoder.norm_out.gamma", channels);
    bind_wan_conv(b, &half->conv_out, &half->conv_out_bias, "encoder.conv_out",
                  (sumi_conv_size){.in = channels, .out = 2 * vae->channels});
    sumi_bind_linear(b, &half->quant, &half->quant_bias, "quant_conv", 2 * vae->channels, 2 * vae->channels);
    half->is_present = b->result == SUMI_OK;
}

// For names that number all blocks of the decoder continuously: the first block that resamples ends the first stage.
static void count_flat_blocks(sumi_qwen_vae* vae, sumi_binder* b)
{
    int32_t count = sumi_bind_count(b, "decoder.upsamples.");
    for (int32_t i = 0; i < count && i < 100 && vae->flat_blocks == 0; i++) {
        char prefix[SUMI_NAME_BYTES];
        snprintf(prefix, sizeof prefix, "decoder.upsamples.%d.resample.", (int)i);
        if (sumi_bind_has_prefix(b, prefix)) vae->flat_blocks = i;
    }
    if (count > 0 && (vae->flat_blocks < 1 || (count + 1) % (vae->flat_blocks + 1) != 0)) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: the VAE's %d blocks called decoder.upsamples.N are not stages of equally many; the file is "
                       "incomplete or of another model",
                       b->component->path, (int)count);
    }
}

// The statistics of the released weights, for files without a config.json.
static const double s_mean[16] = {-0.7571, -0.7089, -0.9113, 0.1075,  -0.1745, 0.9653,  -0.1517, 1.5508,
                                  0.4134,  -0.0715, 0.5517,  -0.3632, -0.1922, -0.9497, 0.2503,  -0.2921};
static const double s_deviation[16] = {2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
                                       3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160};

// Values of config.json that are checked against the shapes. 0: not given.
typedef struct config_values {
    int32_t channels, base, blocks, factors[SUMI_VAE_MAX_STAGES], factor_count;
} config_values;

// Checks the widths of the stages of a half: the encoder's in the order of the config; the decoder's in reverse, with
// one block more.
static void check_wan_half(const sumi_vae_half* half, bool decodes, sumi_binder* b, const config_values* c,
                           const char* path)
{
    if (c->factor_count > 0) sumi_bind_check(b, path, "the length of dim_mult", c->factor_count, half->stage_count);
    for (int32_t s = 0; s < half->stage_count && b->result == SUMI_OK; s++) {
        const sumi_vae_stage* stage = &half->stages[s];
        const int32_t stage_index = decodes ? half->stage_count - 1 - s : s;
        char key[48];
        snprintf(key, sizeof key, "base_dim times dim_mult[%d]", (int)stage_index);
        const int64_t config_width = c->factor_count > 0 ? (int64_t)c->base * c->factors[stage_index] : 0;
        sumi_bind_check(b, path, key, config_width > INT32_MAX || config_width < 0 ? -1 : (int32_t)config_width,
                        stage->blocks[stage->block_count - 1].conv2.rows);
        sumi_bind_check(b, path, "num_res_blocks", c->blocks, stage->block_count - (decodes ? 1 : 0));
    }
}

// Reads the statistics from config.json. Everything else follows from the tensors' shapes, which the config must not
// contradict.
static void read_wan_config(sumi_qwen_vae* vae, sumi_binder* b, const sumi_module_config* config, config_values* values)
{
    double mean[SUMI_QWEN_VAE_MAX_CHANNELS], deviation[SUMI_QWEN_VAE_MAX_CHANNELS], attention[8];
    int32_t mean_count = 0, deviation_count = 0, attention_count = 0, in_channels = 3, patch = 0;
    bool is_residual = false;
    const sumi_config_field fields[] = {
        {"latents_mean", SUMI_CONFIG_NUMBERS, mean, SUMI_QWEN_VAE_MAX_CHANNELS, &mean_count},
        {"latents_std", SUMI_CONFIG_NUMBERS, deviation, SUMI_QWEN_VAE_MAX_CHANNELS, &deviation_count},
        {"attn_scales", SUMI_CONFIG_NUMBERS, attention, 8, &attention_count},
        {"input_channels", SUMI_CONFIG_INTEGER, &in_channels, 0, NULL},
        {"patch_size", SUMI_CONFIG_INTEGER, &patch, 0, NULL},
        {"is_residual", SUMI_CONFIG_BOOL, &is_residual, 0, NULL},
        {"sample_size", SUMI_CONFIG_INTEGER, &vae->sample_size, 0, NULL},
        {"z_dim", SUMI_CONFIG_INTEGER, &values->channels, 0, NULL},
        {"base_dim", SUMI_CONFIG_INTEGER, &values->base, 0, NULL},
        {"num_res_blocks", SUMI_CONFIG_INTEGER, &values->blocks, 0, NULL},
        {"dim_mult", SUMI_CONFIG_INTEGERS, values->factors, SUMI_VAE_MAX_STAGES, &values->factor_count}};
    b->result = sumi_config_read(config, fields, sizeof fields / sizeof *fields, b->error);
    if (b->result != SUMI_OK) return;
    const sumi_tensor *in = sumi_bind_find(b, "encoder.conv_in.weight"),
                      *out = sumi_bind_find(b, "decoder.conv_out.weight");
    if (in_channels == 4 || (in != NULL && in->rank == 5 && in->shape[1] == 4)
        || (out != NULL && out->rank == 5 && out->shape[0] == 4)) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: this is the VAE of Qwen-Image-Layered, whose images have an alpha channel, which is not "
                       "supported; use the VAE of Qwen-Image",
                       b->component->path);
    }
    if (attention_count > 0 || patch > 1 || is_residual) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: this is not the VAE of Qwen-Image (no attention outside the middle, no patches, plain "
                       "resampling)",
                       config->path);
    }
    vae->channels = sumi_bind_size(b, "post_quant_conv.weight", 0);
    sumi_bind_check(b, config->path, "z_dim", values->channels, vae->channels);
    if (b->result != SUMI_OK) return;
    bool has_statistics = mean_count > 0 || deviation_count > 0, is_good = true;
    const double *from_mean = has_statistics ? mean : s_mean,
                 *from_deviation = has_statistics ? deviation : s_deviation;
    if (vae->channels > SUMI_QWEN_VAE_MAX_CHANNELS
        || (has_statistics ? mean_count != vae->channels || deviation_count != vae->channels : vae->channels != 16)) {
        sumi_bind_fail(
            b, SUMI_TENSOR_MISMATCH,
            "%s: the VAE has %d channels of latents, and %s latents_mean and latents_std; put the config.json "
            "that belongs to it beside it",
            config->data != NULL ? config->path : b->component->path, (int)vae->channels,
            has_statistics ? "its config.json has another number of" : "no config.json gives");
        return;
    }
    for (int32_t c = 0; c < vae->channels; c++) {
        vae->shift[c] = (float)from_mean[c];
        vae->scale[c] = 1.0f / (float)from_deviation[c];
        is_good = is_good && isfinite(vae->shift[c]) && from_deviation[c] > 0 && isfinite(vae->scale[c]);
    }
    if (!is_good)
        sumi_bind_fail(b, SUMI_FILE_MALFORMED, "%s: latents_mean must be finite and latents_std above 0", config->path);
}

static sumi_result qwen_vae_bind(void* model, const void* settings, sumi_binder* b, const sumi_module_config* config,
                                 bool without_encoder)
{
    sumi_qwen_vae* vae = model;
    (void)settings;
    b->alias = wan_alias;
    b->alias_context = vae;
    b->result = SUMI_OK;
    vae->tiles = (sumi_tile_rule){3, 4};
    vae->strip_bytes = STRIP_BYTES;
    count_flat_blocks(vae, b);
    config_values c = {.base = 0};
    if (b->result == SUMI_OK) read_wan_config(vae, b, config, &c);
    if (b->result != SUMI_OK) return b->result;
    bind_wan_decoder(vae, b);
    vae->factor = sumi_vae_factor(&vae->decoder);
    if (!without_encoder && b->result == SUMI_OK && sumi_bind_has_prefix(b, "encoder.")) {
        bind_wan_encoder(vae, b);
        if (b->result == SUMI_OK && sumi_vae_factor(&vae->encoder) != vae->factor) {
            sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                           "%s: the VAE's encoder downsamples by %d, its decoder upsamples by %d", b->component->path,
                           (int)sumi_vae_factor(&vae->encoder), (int)vae->factor);
        }
    }
    if (b->result == SUMI_OK) check_wan_half(&vae->decoder, true, b, &c, config->path);
    if (b->result == SUMI_OK && vae->encoder.is_present) check_wan_half(&vae->encoder, false, b, &c, config->path);
    return b->result;
}

static sumi_autoencoder_properties qwen_vae_properties(const void* model)
{
    const sumi_qwen_vae* vae = model;
    return (sumi_autoencoder_properties){.channels = vae->channels,
                                         .factor = vae->factor,
                                         .packing = 1,
                                         .picture_channels = 3,
                                         .sample_size = vae->sample_size,
                                         .has_encoder = vae->encoder.is_present,
                                         .has_decoder = vae->decoder.is_present};
}

// ---- Forward --------------------------------------------------------------------------------------------------------

// Memory. The pictures with the most pixels decide how much memory a plan needs, and one of them is enough, because a
// residual block works in place. The values between its input x and its result, n and h, exist for one strip of rows at
// a time. conv2 writes a strip of the result over x once nothing reads these rows of x any more. Rows [0, a) are done,
// [a, b) are next:
//
//             0         a-1    a+1        b+1   b+2
//   x         |rrrrrrrrrrrr|xxxxxxxxxxxxxxxxxxxxxxxxxx|     norm1, SiLU of rows [a, b + 2)                     -> n
//   h                 |hhhh|hhhhhhhhhhhhhhhh|               conv1 of n, norm2, SiLU: rows [a + 1, b + 1)       -> h
//   result                 |rrrrrrrrrrrr|                   conv2 of h's rows [a - 1, b + 1) + x               -> x
//
// The last two rows of h stay for the next strip, which finds all rows of x that it reads unchanged. A block with a
// shortcut writes over the shortcut's output instead of x.
//
// The last upsampling of the decoder makes the largest picture from one of half its bytes. The small picture is at the
// beginning of the same memory and is read from its end backwards. The memory begins some rows before the large
// picture, so that its first rows do not overwrite rows that are still read.
//
// A picture between two layers of the network.
typedef struct picture {
    sumi_value value;
    int32_t height, width;
    // the value whose memory it fills completely; otherwise none
    sumi_value base;
    uint64_t min_bytes; // wan_min_bytes of the half
} picture;

static picture new_picture(sumi_value value, int32_t height, int32_t width, uint64_t min_bytes)
{
    return (picture){.value = value, .height = height, .width = width, .base = value, .min_bytes = min_bytes};
}

// The reference divides a pixel by max(its length, 1e-12) and multiplies by sqrt(channels). A mean square plus this
// epsilon gives the same unless the length is within a few times of 1e-12: above, the epsilon vanishes beside the mean
// square; below, it is everything, and zeros stay zeros.
static float eps_of(int32_t channels) { return 1e-24f / (float)channels; }

static sumi_value write_wan_norm(sumi_plan* plan, sumi_plan_norm_args norm)
{
    norm.eps = eps_of(norm.weight->cols);
    return sumi_plan_norm(plan, &norm);
}

static sumi_value write_wan_conv(sumi_plan* plan, const char* label, picture x, const sumi_weight* weight,
                                 const sumi_weight* bias)
{
    return sumi_plan_conv(plan, &(sumi_plan_conv_args){.label = label,
                                                       .x = x.value,
                                                       .weight = weight,
                                                       .bias = bias,
                                                       .shape = {.height = x.height, .width = x.width}});
}

// Rows of a strip: all rows if the block's memory then fits into the memory that the half needs anyway; otherwise as
// many as strip_bytes allow for n and for h, with all strips of about equal size.
static int32_t wan_strip_rows(const sumi_qwen_vae* vae, const sumi_plan* plan, picture x, const sumi_vae_block* w)
{
    int32_t in = w->conv1.cols / 9, out = w->conv1.rows;
    uint64_t column = (uint64_t)x.width * sumi_plan_element_bytes(plan, SUMI_ELEMENT_ACTIVATION);
    uint64_t fit = vae->strip_bytes / (column * (uint64_t)sumi_max_int(in, out)); // rows
    if (fit >= (uint64_t)x.height
        || (uint64_t)x.height * column * (uint64_t)sumi_max_int(2 * in + out, in + 2 * out) <= x.min_bytes)
        return x.height;
    return sumi_vae_strip_rows(x.height, fit);
}

// Adds conv2(silu(norm2(conv1(silu(norm1(x)))))) to `residual`, strip by strip. The residual may be x.
static void write_wan_strips(sumi_plan* plan, const sumi_vae_block* w, picture x, int32_t rows, sumi_value residual)
{
    int32_t in = w->conv1.cols / 9, out = w->conv1.rows, width = x.width, height = x.height;
    sumi_value n_base =
        sumi_plan_value(plan, "normed_strip", SUMI_ELEMENT_ACTIVATION, sumi_min_int(rows + 2, height) * width, in);
    sumi_value h_base = sumi_plan_value(plan, "conv_strip", SUMI_ELEMENT_ACTIVATION, (rows + 2) * width, out);
    sumi_value h = sumi_vae_rows(plan, h_base, width, 0, rows + 2);
    for (int32_t a = 0; a < height; a += rows) {
        int32_t b = sumi_min_int(a + rows, height), begin = a > 0 ? a + 1 : 0, end = sumi_min_int(b + 1, height),
                carried_rows = a > 0 ? 2 : 0,
                h_rows = carried_rows + end - begin; // rows of h: those of the previous strip, and all
        if (begin < end) {
            int32_t from = sumi_max_int(begin - 1, 0), to = sumi_min_int(end + 1, height);
            sumi_value n = sumi_vae_rows(plan, n_base, width, 0, to - from),
                       fresh = sumi_vae_rows(plan, h, width, carried_rows, h_rows);
            write_wan_norm(plan, (sumi_plan_norm_args){.label = "norm1",
                                                       .x = sumi_vae_rows(plan, x.value, width, from, to),
                                                       .weight = &w->norm1,
                                                       .silu = true,
                                                       .y = n});
            sumi_plan_conv(plan,
                           &(sumi_plan_conv_args){
                               .label = "conv1",
                               .x = n,
                               .weight = &w->conv1,
                               .bias = &w->conv1_bias,
                               .shape = {.height = to - from, .width = width, .above = begin - from, .below = to - end},
                               .y = fresh});
            write_wan_norm(plan, (sumi_plan_norm_args){
                                     .label = "norm2", .x = fresh, .weight = &w->norm2, .silu = true, .y = fresh});
        }
        sumi_value into = sumi_vae_rows(plan, residual, width, a, b);
        sumi_plan_conv(plan, &(sumi_plan_conv_args){
                                 .label = "conv2",
                                 .x = sumi_vae_rows(plan, h, width, 0, h_rows),
                                 .weight = &w->conv2,
                                 .bias = &w->conv2_bias,
                                 .shape = {.height = h_rows, .width = width, .above = a > 0, .below = b < height},
                                 .residual = into,
                                 .y = into});
        if (b < height) {
            sumi_plan_copy_rows(
                plan, &(sumi_plan_copy_args){.x = h, .y = h, .x_row = (h_rows - 2) * width, .rows = 2 * width});
        }
    }
}

// y = shortcut(x) + conv2(silu(norm2(conv1(silu(norm1(x))))))
static picture write_wan_block(const sumi_qwen_vae* vae, sumi_plan* plan, const sumi_vae_block* w, picture x)
{
    int32_t rows = wan_strip_rows(vae, plan, x, w);
    picture y = x;
    if (w->has_shortcut) {
        y.base = y.value = sumi_plan_linear(
            plan, &(sumi_plan_linear_args){
                      .label = "shortcut", .x = x.value, .weight = &w->shortcut, .bias = &w->shortcut_bias}); // 1x1
    }
    if (rows < x.height) {
        // a picture written in strips must be read in strips, so both are cut from one view
        if (y.base.id == y.value.id) y.value = sumi_vae_rows(plan, y.base, y.width, 0, y.height);
        if (!w->has_shortcut) x = y;
        write_wan_strips(plan, w, x, rows, y.value);
        return y;
    }
    picture h = x;
    h.value =
        write_wan_norm(plan, (sumi_plan_norm_args){.label = "norm1", .x = x.value, .weight = &w->norm1, .silu = true});
    h.value = write_wan_conv(plan, "conv1", h, &w->conv1, &w->conv1_bias);
    write_wan_norm(
        plan, (sumi_plan_norm_args){.label = "norm2", .x = h.value, .weight = &w->norm2, .silu = true, .y = h.value});
    sumi_plan_conv(plan, &(sumi_plan_conv_args){.label = "conv2",
                                                .x = h.value,
                                                .weight = &w->conv2,
                                                .bias = &w->conv2_bias,
                                                .shape = {.height = x.height, .width = x.width},
                                                .residual = y.value,
                                                .y = y.value});
    return y;
}

static picture write_stage(const sumi_qwen_vae* vae, sumi_plan* plan, const sumi_vae_stage* stage, picture x,
                           const char* side, int32_t index)
{
    for (int32_t i = 0; i < stage->block_count; i++) {
        sumi_plan_prefix(plan, "%s.%d.%d.", side, (int)index, (int)i);
        x = write_wan_block(vae, plan, &stage->blocks[i], x);
    }
    sumi_plan_prefix(plan, "%s.%d.", side, (int)index);
    return x;
}

// Residual block, attention over all pixels with one head as wide as the channels, residual block.
static picture write_wan_middle(const sumi_qwen_vae* vae, sumi_plan* plan, const sumi_vae_half* half, picture x,
                                const char* side)
{
    sumi_plan_prefix(plan, "%s.mid.0.", side);
    x = write_wan_block(vae, plan, &half->middle[0], x);
    sumi_plan_prefix(plan, "%s.mid.attention.", side);
    sumi_value n =
        write_wan_norm(plan, (sumi_plan_norm_args){.label = "norm", .x = x.value, .weight = &half->attention_norm});
    sumi_vae_attention_write(&half->attention, plan, n, x.value, x.height * x.width);
    sumi_plan_prefix(plan, "%s.mid.1.", side);
    return write_wan_block(vae, plan, &half->middle[1], x);
}

// Norm, SiLU, convolution. The norm works in place: the convolution to three channels reads a whole picture, and x is
// not read after it.
static sumi_value write_wan_end(sumi_plan* plan, const sumi_vae_half* half, picture x, const char* side)
{
    sumi_plan_prefix(plan, "%s.", side);
    write_wan_norm(plan, (sumi_plan_norm_args){
                             .label = "norm_out", .x = x.value, .weight = &half->norm_out, .silu = true, .y = x.value});
    return write_wan_conv(plan, "conv_out", x, &half->conv_out, &half->conv_out_bias);
}

// Nearest 2x and a convolution.
static picture write_wan_upsample(sumi_plan* plan, const sumi_vae_stage* stage, picture x)
{
    uint64_t element = sumi_plan_element_bytes(plan, SUMI_ELEMENT_ACTIVATION);
    int32_t in = stage->resample.cols / 9, out = stage->resample.rows;
    picture y = {.height = 2 * x.height, .width = 2 * x.width, .min_bytes = x.min_bytes};
    sumi_vae_growth growth = {.height = x.height,
                              .small_row = (uint64_t)x.width * (uint64_t)in * element,
                              .large_row = (uint64_t)y.width * (uint64_t)out * element};
    growth.spare_rows =
        (int32_t)(((SUMI_VAE_STRIP_MULTIPLE + 1) * growth.small_row + growth.large_row - 1) / growth.large_row);
    bool grows = (uint64_t)x.height * growth.small_row + (uint64_t)y.height * growth.large_row > x.min_bytes
              && x.base.id != 0 && x.height > SUMI_VAE_STRIP_MULTIPLE && sumi_vae_can_grow(&growth);
    if (!grows) {
        y.base = y.value = sumi_plan_conv(
            plan, &(sumi_plan_conv_args){.label = "upsample",
                                         .x = x.value,
                                         .weight = &stage->resample,
                                         .bias = &stage->resample_bias,
                                         .shape = {.height = x.height, .width = x.width, .upsamples = true}});
        return y;
    }
    sumi_value shared_block =
        sumi_plan_value(plan, "shared_block", SUMI_ELEMENT_ACTIVATION, (growth.spare_rows + y.height) * y.width, out);
    sumi_plan_share(plan, x.base, shared_block);
    y.value = sumi_vae_rows(plan, shared_block, y.width, growth.spare_rows, growth.spare_rows + y.height);
    sumi_vae_upsample_write(
        stage, plan,
        &(sumi_vae_upsampling){.x = x.value, .y = y.value, .height = x.height, .width = x.width, .growth = &growth});
    return y;
}

// Bytes of the picture with the most pixels, which is needed in any case.
static uint64_t wan_min_bytes(const sumi_plan* plan, const sumi_vae_stage* stage, int32_t height, int32_t width)
{
    return (uint64_t)height * (uint64_t)width * (uint64_t)stage->blocks[0].conv1.rows
         * sumi_plan_element_bytes(plan, SUMI_ELEMENT_ACTIVATION);
}

static sumi_value decode_wan_tile(const void* model, sumi_plan* plan, sumi_value latents, int32_t height, int32_t width)
{
    const sumi_qwen_vae* vae = model;
    const sumi_vae_half* half = &vae->decoder;
    SUMI_ASSERT(half->is_present);
    const sumi_value z = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "post_quant", .x = latents, .weight = &half->quant, .bias = &half->quant_bias});
    picture x = new_picture(
        z, height, width,
        wan_min_bytes(plan, &half->stages[half->stage_count - 1], height * vae->factor, width * vae->factor));
    x.base = x.value = write_wan_conv(plan, "conv_in", x, &half->conv_in, &half->conv_in_bias);
    x = write_wan_middle(vae, plan, half, x, "decoder");
    for (int32_t s = 0; s < half->stage_count; s++) {
        x = write_stage(vae, plan, &half->stages[s], x, "decoder", s);
        if (half->stages[s].resamples) x = write_wan_upsample(plan, &half->stages[s], x);
    }
    return write_wan_end(plan, half, x, "decoder");
}

static sumi_value encode_wan_tile(const void* model, sumi_plan* plan, sumi_value pixels, int32_t height, int32_t width)
{
    const sumi_qwen_vae* vae = model;
    const sumi_vae_half* half = &vae->encoder;
    SUMI_ASSERT(half->is_present);
    picture x = new_picture(pixels, height, width, wan_min_bytes(plan, &half->stages[0], height, width));
    x.base = x.value = write_wan_conv(plan, "conv_in", x, &half->conv_in, &half->conv_in_bias);
    for (int32_t s = 0; s < half->stage_count; s++) {
        const sumi_vae_stage* stage = &half->stages[s];
        x = write_stage(vae, plan, stage, x, "encoder", s);
        if (stage->resamples) {
            sumi_value half_size = sumi_plan_conv(
                plan,
                &(sumi_plan_conv_args){.label = "downsample",
                                       .x = x.value,
                                       .weight = &stage->resample,
                                       .bias = &stage->resample_bias,
                                       .shape = {.height = x.height, .width = x.width, .stride = 2, .pads_end = true}});
            x = new_picture(half_size, x.height / 2, x.width / 2, x.min_bytes);
        }
    }
    x = write_wan_middle(vae, plan, half, x, "encoder");
    sumi_value moments = write_wan_end(plan, half, x, "encoder");
    return sumi_plan_linear(
        plan,
        &(sumi_plan_linear_args){.label = "quant", .x = moments, .weight = &half->quant, .bias = &half->quant_bias});
}

// ---- The network module ---------------------------------------------------------------------------------------------

static sumi_vae_tiling qwen_vae_tiling(const void* model)
{
    const sumi_qwen_vae* vae = model;
    return (sumi_vae_tiling){.rule = vae->tiles,
                             .channels = vae->channels,
                             .factor = vae->factor,
                             .packing = 1,
                             .picture_channels = 3,
                             .statistics = {vae->scale, vae->shift, vae->channels},
                             .model = vae,
                             .decode = decode_wan_tile,
                             .encode = encode_wan_tile};
}

const sumi_autoencoder_module sumi_qwen_vae_module = {.model_bytes = sizeof(sumi_qwen_vae),
                                                      .bind = qwen_vae_bind,
                                                      .properties = qwen_vae_properties,
                                                      .tiling = qwen_vae_tiling};
