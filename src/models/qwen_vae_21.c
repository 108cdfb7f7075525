// This autoencoder is a file beside qwen_vae.c, and not a form of it, because both have their network in common, which is
// in wan_vae.c, and the rest differs everywhere: the numbering of stages in files, the members of config.json, the
// shortcuts and the statistics.
#include "models/wan_vae.h"
#include <stdio.h>
#include <string.h>

// ---- Weights --------------------------------------------------------------------------------------------------------

// Wan numbers the blocks of each stage, and the convolution that resamples as the last of them. Names of both end alike.
static const char* stage_name(const sumi_qwen_vae* vae, const char* side, const char* inner, char* prefix)
{
    int stage = 0, block = 0, used = 0;
    const bool decodes = strncmp(inner, "up_", 3) == 0;
    const sumi_vae_half* half = decodes ? &vae->decoder : &vae->encoder;
    if (sscanf(inner, decodes ? "up_blocks.%2d.resnets.%2d.%n" : "down_blocks.%2d.resnets.%2d.%n", &stage, &block,
               &used)
            != 2
        || used == 0) {
        used = 0;
        if (sscanf(inner, decodes ? "up_blocks.%2d.upsampler.%n" : "down_blocks.%2d.downsampler.%n", &stage, &used) != 1
            || used == 0 || stage < 0 || stage >= SUMI_VAE_MAX_STAGES)
            return NULL;
        block = half->stages[stage].block_count;
    }
    snprintf(prefix, SUMI_WAN_PREFIX_BYTES,
             decodes ? "%s.upsamples.%d.upsamples.%d." : "%s.downsamples.%d.downsamples.%d.", side, stage, block);
    return inner + used;
}

static bool alias_21(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    return which == 0 && sumi_wan_alias(context, stage_name, canonical, out, out_bytes);
}

// Counts the stages of a half and their blocks, in whatever names the file has them.
static void count_stages(sumi_binder* b, sumi_vae_half* half, bool decodes)
{
    const char *side = decodes ? "decoder" : "encoder", *way = decodes ? "up" : "down";
    char prefix[SUMI_NAME_BYTES];
    snprintf(prefix, sizeof prefix, "%s.%ssamples.", side, way);
    const bool is_wan = sumi_bind_has_prefix(b, prefix);
    if (!is_wan) snprintf(prefix, sizeof prefix, "%s.%s_blocks.", side, way);
    half->stage_count = sumi_bind_count(b, prefix);
    if (half->stage_count < 1 || half->stage_count > SUMI_VAE_MAX_STAGES) {
        sumi_wan_refuse_count(b, decodes ? "stages in its decoder" : "stages in its encoder", half->stage_count,
                              SUMI_VAE_MAX_STAGES);
        half->stage_count = 0;
    }
    for (int32_t s = 0; s < half->stage_count && b->result == SUMI_OK; s++) {
        sumi_vae_stage* stage = &half->stages[s];
        if (is_wan) snprintf(prefix, sizeof prefix, "%s.%ssamples.%d.%ssamples.", side, way, (int)s, way);
        else snprintf(prefix, sizeof prefix, "%s.%s_blocks.%d.resnets.", side, way, (int)s);
        stage->block_count = sumi_bind_count(b, prefix);
        if (is_wan) {
            const int32_t last = stage->block_count - 1;
            snprintf(prefix, sizeof prefix, "%s.%ssamples.%d.%ssamples.%d.resample.", side, way, (int)s, way,
                     (int)last);
        } else {
            snprintf(prefix, sizeof prefix, "%s.%s_blocks.%d.%ssampler.", side, way, (int)s, way);
        }
        stage->resamples = sumi_bind_has_prefix(b, prefix);
        stage->block_count -= is_wan && stage->resamples;
        if (stage->block_count < 1 || stage->block_count > SUMI_VAE_MAX_BLOCKS) {
            sumi_wan_refuse_count(b, decodes ? "blocks in a stage of its decoder" : "blocks in a stage of its encoder",
                                  stage->block_count, SUMI_VAE_MAX_BLOCKS);
            stage->block_count = 0;
        }
    }
}

static int32_t bind_stages(const sumi_qwen_vae* vae, sumi_binder* b, sumi_vae_half* half, int32_t channels)
{
    const bool decodes = half == &vae->decoder;
    const char *side = decodes ? "decoder" : "encoder", *way = decodes ? "up" : "down";
    char module[SUMI_NAME_BYTES];
    count_stages(b, half, decodes);
    for (int32_t s = 0; s < half->stage_count && b->result == SUMI_OK; s++) {
        sumi_vae_stage* stage = &half->stages[s];
        for (int32_t i = 0; i < stage->block_count; i++) {
            snprintf(module, sizeof module, "%s.%s_blocks.%d.resnets.%d", side, way, (int)s, (int)i);
            channels = sumi_wan_bind_block(b, &stage->blocks[i], module, channels);
        }
        snprintf(module, sizeof module, "%s.%s_blocks.%d.%ssampler.resample.1", side, way, (int)s, way);
        if (stage->resamples) channels = sumi_wan_bind_resample(b, stage, module, channels);
    }
    return channels;
}

// The stages of a half have shortcuts, except the decoder's last. doubles: of each of the encoder's stages that
// resample, whether a video's frames are halved there.
static void set_shortcuts(sumi_binder* b, sumi_vae_half* half, bool decodes, const bool* doubles)
{
    for (int32_t s = 0; s < half->stage_count && b->result == SUMI_OK; s++) {
        sumi_vae_stage* stage = &half->stages[s];
        const bool is_last = s + 1 == half->stage_count;
        if (stage->resamples == is_last) {
            sumi_bind_fail(b, SUMI_TENSOR_MISMATCH, "%s: stage %d of the VAE's %s %s; all but the last one resample",
                           b->component->path, (int)s, decodes ? "decoder" : "encoder",
                           is_last ? "resamples" : "does not resample");
            return;
        }
        if (decodes && is_last) return;
        stage->shortcut_frames = !is_last && doubles[decodes ? half->stage_count - 2 - s : s] ? 2 : 1;
        const sumi_op_shortcut shape = {
            .width = 2, .frames = stage->shortcut_frames, .scale = stage->resamples ? 2 : 1, .upsamples = decodes};
        const int32_t in = stage->blocks[0].conv1.cols / 9,
                      out = stage->resamples ? stage->resample.rows : stage->blocks[stage->block_count - 1].conv2.rows;
        if (!sumi_is_shortcut(&shape, in, out)) {
            sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                           "%s: stage %d of the VAE's %s makes %d channels of %d, and its shortcut cannot",
                           b->component->path, (int)s, decodes ? "decoder" : "encoder", (int)out, (int)in);
        }
    }
}

// The statistics of the released weights, for files without a config.json.
static const double s_mean_21[64] = {
    0.5126,  0.7721,  -0.0631, 1.3506,  -0.7855, -2.1025, -0.3458, 1.3722,  1.8873,  -1.7177, -0.6510, 0.2732,  0.7562,
    -0.6163, -1.0277, 3.8363,  2.0210,  0.0472,  0.9320,  2.0087,  2.4954,  -0.1391, -1.4249, 1.8464,  -0.5236, 1.2826,
    3.7046,  -1.3035, 2.7286,  -1.4518, -1.9036, -1.9955, -0.0342, -1.0265, -0.7636, 3.0555,  0.0746,  -3.0751, -0.1076,
    1.7376,  -1.0914, -1.9435, -0.2784, -1.3680, 0.4809,  -0.4433, 0.3764,  0.5729,  -2.0595, 1.0960,  -1.3260, -2.0211,
    -5.0179, 0.5275,  4.0162,  1.8505,  0.3026,  1.9373,  1.4937,  0.2632,  0.5547,  -1.7121, -0.1562, 0.0304};
static const double s_deviation_21[64] = {
    3.2001, 3.2936, 3.4321, 3.0091, 3.1061, 4.0379, 4.0705, 3.7910, 3.0785, 3.6500, 3.9308, 3.0904, 2.8778,
    3.7675, 3.7320, 5.0756, 3.2864, 4.0397, 3.1317, 4.0443, 2.9249, 3.9454, 3.0988, 4.2489, 3.4896, 3.8513,
    3.9323, 3.4719, 3.7498, 4.2830, 3.5694, 4.2467, 3.9037, 3.2947, 5.0770, 3.5075, 3.2700, 3.4767, 2.8063,
    5.1125, 3.5327, 4.7833, 3.1286, 4.1819, 3.8527, 3.8312, 3.5605, 4.3875, 3.9624, 4.0168, 3.5643, 4.0550,
    5.5614, 4.2963, 4.4080, 3.4959, 3.8747, 3.7608, 3.5735, 3.1490, 3.7662, 3.6746, 3.4563, 3.8161};

// What config.json has beside the members that qwen_vae.c reads too.
typedef struct config_21 {
    sumi_wan_config common;
    int32_t in_channels, out_channels;
    bool doubles[SUMI_VAE_MAX_STAGES]; // temperal_downsample, as the files spell it
    int32_t doubles_count;
} config_21;

static void read_config_21(sumi_qwen_vae* vae, sumi_binder* b, const sumi_module_config* config, config_21* values)
{
    sumi_wan_read_config(vae, b, config, &values->common);
    const sumi_config_field fields[] = {
        {"in_channels", SUMI_CONFIG_INTEGER, &values->in_channels, 0, NULL},
        {"out_channels", SUMI_CONFIG_INTEGER, &values->out_channels, 0, NULL},
        {"temperal_downsample", SUMI_CONFIG_BOOLS, values->doubles, SUMI_VAE_MAX_STAGES, &values->doubles_count}};
    if (b->result == SUMI_OK) b->result = sumi_config_read(config, fields, sizeof fields / sizeof *fields, b->error);
    if (b->result != SUMI_OK) return;
    const sumi_tensor *in = sumi_bind_find(b, "encoder.conv_in.weight"),
                      *out = sumi_bind_find(b, "decoder.conv_out.weight");
    // if its two ends disagree, one of them has a wrong shape, and binding says which
    const int64_t writes = out != NULL ? out->shape[0] : 4,
                  reads = in != NULL && in->rank >= 2 && out != NULL ? in->shape[1] : writes;
    const bool is_rgba = reads != writes || writes == 4;
    if (values->in_channels != 4 || values->out_channels != 4 || !is_rgba || values->common.patch > 1) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: this VAE has %d values per pixel, or patches of pixels, as that of Wan 2.2 has; the one of "
                       "Qwen-Image-2.1 has red, green, blue and alpha: use the VAE that was released with it",
                       b->component->path,
                       (int)(values->in_channels != 4 ? values->in_channels
                             : !is_rgba               ? writes
                                                      : values->out_channels));
    } else if (!values->common.is_residual || values->common.attention_count > 0) {
        sumi_bind_fail(
            b, SUMI_NOT_SUPPORTED,
            "%s: this is not the VAE of Qwen-Image-2.1, which has shortcuts around its stages (is_residual) "
            "and no attention outside the middle (attn_scales); use the config.json that was released with it",
            config->path);
    }
    if (b->result == SUMI_OK) sumi_wan_bind_statistics(vae, b, config, &values->common);
}

static sumi_result qwen_vae_21_bind(void* model, const void* settings, sumi_binder* b, const sumi_module_config* config,
                                    bool without_encoder)
{
    static const sumi_wan_stages s_stages = {bind_stages, bind_stages};
    sumi_qwen_vae* vae = model;
    (void)settings;
    b->alias = alias_21;
    b->alias_context = vae;
    b->result = SUMI_OK;
    vae->picture_channels = 4;
    config_21 values = {.common = {.is_residual = true,
                                   .released_mean = s_mean_21,
                                   .released_deviation = s_deviation_21,
                                   .released_count = 64},
                        .in_channels = 4,
                        .out_channels = 4,
                        .doubles = {false, true, true, true},
                        .doubles_count = 4};
    read_config_21(vae, b, config, &values);
    if (b->result != SUMI_OK) return b->result;
    sumi_wan_bind_halves(vae, b, &s_stages, without_encoder);
    sumi_wan_check_halves(vae, b, &values.common, config->path);
    if (b->result == SUMI_OK && values.doubles_count != vae->decoder.stage_count - 1) {
        sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                       "%s: temperal_downsample has %d elements, and the VAE has %d stages that resample; use the "
                       "config.json that was released with it",
                       config->path, (int)values.doubles_count, (int)vae->decoder.stage_count - 1);
    }
    set_shortcuts(b, &vae->decoder, true, values.doubles);
    if (vae->encoder.is_present) set_shortcuts(b, &vae->encoder, false, values.doubles);
    return b->result;
}

const sumi_autoencoder_module sumi_qwen_vae_21_module = {.model_bytes = sizeof(sumi_qwen_vae),
                                                         .bind = qwen_vae_21_bind,
                                                         .properties = sumi_wan_properties,
                                                         .tiling = sumi_wan_tiling};
