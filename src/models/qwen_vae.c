#include "models/wan_vae.h"
#include <stdio.h>
#include <string.h>

// ---- Weights --------------------------------------------------------------------------------------------------------

// Wan numbers all blocks of a half continuously, and diffusers those of its encoder.
static const char* flat_stage_name(const sumi_qwen_vae* vae, const char* side, const char* inner, char* prefix)
{
    int stage = 0, block = 0, used = 0;
    if (sscanf(inner, "down_blocks.%2d.%n", &block, &used) == 1 && used > 0) {
        snprintf(prefix, SUMI_WAN_PREFIX_BYTES, "%s.downsamples.%d.", side, block);
    } else if (sscanf(inner, "up_blocks.%2d.resnets.%2d.%n", &stage, &block, &used) == 2 && used > 0) {
        snprintf(prefix, SUMI_WAN_PREFIX_BYTES, "%s.upsamples.%d.", side, stage * ((int)vae->flat_blocks + 1) + block);
    } else if (sscanf(inner, "up_blocks.%2d.upsamplers.0.%n", &stage, &used) == 1 && used > 0) {
        snprintf(prefix, SUMI_WAN_PREFIX_BYTES, "%s.upsamples.%d.", side,
                 (stage + 1) * ((int)vae->flat_blocks + 1) - 1);
    } else {
        return NULL;
    }
    return inner + used;
}

static bool flat_alias(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    return which == 0 && sumi_wan_alias(context, flat_stage_name, canonical, out, out_bytes);
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
                sumi_wan_refuse_count(b, "stages in its encoder, or one without a block",
                                      (int32_t)(stage - half->stages) + 1, SUMI_VAE_MAX_STAGES);
                return 0;
            }
            stage->resamples = true;
            snprintf(module, sizeof module, "encoder.down_blocks.%d.resample.1", (int)i);
            channels = sumi_wan_bind_resample(b, stage++, module, channels);
        } else if (stage->block_count == SUMI_VAE_MAX_BLOCKS) {
            sumi_wan_refuse_count(b, "blocks in a stage of its encoder", stage->block_count + 1, SUMI_VAE_MAX_BLOCKS);
        } else {
            snprintf(module, sizeof module, "encoder.down_blocks.%d", (int)i);
            channels = sumi_wan_bind_block(b, &stage->blocks[stage->block_count++], module, channels);
        }
    }
    half->stage_count = (int32_t)(stage - half->stages) + 1;
    if (stage->block_count == 0) sumi_wan_refuse_count(b, "blocks in a stage of its encoder", 0, SUMI_VAE_MAX_BLOCKS);
    return channels;
}

static int32_t bind_decoder_stages(const sumi_qwen_vae* vae, sumi_binder* b, sumi_vae_half* half, int32_t channels)
{
    char prefix[SUMI_NAME_BYTES], module[SUMI_NAME_BYTES];
    int32_t flat = vae->flat_blocks,
            index_count = sumi_bind_count(b, flat > 0 ? "decoder.upsamples." : "decoder.up_blocks.");
    half->stage_count = flat > 0 ? (index_count + 1 + flat) / (flat + 1) : index_count;
    if (half->stage_count < 1 || half->stage_count > SUMI_VAE_MAX_STAGES) {
        sumi_wan_refuse_count(b, "stages in its decoder", half->stage_count, SUMI_VAE_MAX_STAGES);
        half->stage_count = 0;
    }
    for (int32_t s = 0; s < half->stage_count && b->result == SUMI_OK; s++) {
        sumi_vae_stage* stage = &half->stages[s];
        snprintf(prefix, sizeof prefix, "decoder.up_blocks.%d.resnets.", (int)s);
        stage->block_count = flat > 0 ? flat : sumi_bind_count(b, prefix);
        if (stage->block_count < 1 || stage->block_count > SUMI_VAE_MAX_BLOCKS) {
            sumi_wan_refuse_count(b, "blocks in a stage of its decoder", stage->block_count, SUMI_VAE_MAX_BLOCKS);
            stage->block_count = 0;
        }
        for (int32_t i = 0; i < stage->block_count; i++) {
            snprintf(module, sizeof module, "decoder.up_blocks.%d.resnets.%d", (int)s, (int)i);
            channels = sumi_wan_bind_block(b, &stage->blocks[i], module, channels);
        }
        snprintf(prefix, sizeof prefix, "decoder.up_blocks.%d.upsamplers.", (int)s);
        stage->resamples = flat > 0 ? s + 1 < half->stage_count : sumi_bind_has_prefix(b, prefix);
        if (stage->resamples) {
            snprintf(module, sizeof module, "decoder.up_blocks.%d.upsamplers.0.resample.1", (int)s);
            channels = sumi_wan_bind_resample(b, stage, module, channels);
        }
    }
    return channels;
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

// Reads config.json. Everything but the statistics follows from the tensors' shapes, which the config must not
// contradict.
static void read_qwen_config(sumi_qwen_vae* vae, sumi_binder* b, const sumi_module_config* config,
                             sumi_wan_config* values)
{
    int32_t in_channels = 3;
    sumi_wan_read_config(vae, b, config, values);
    if (b->result == SUMI_OK) {
        b->result = sumi_config_read(
            config, &(sumi_config_field){"input_channels", SUMI_CONFIG_INTEGER, &in_channels, 0, NULL}, 1, b->error);
    }
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
    if (values->attention_count > 0 || values->patch > 1 || values->is_residual) {
        sumi_bind_fail(b, SUMI_NOT_SUPPORTED,
                       "%s: this is not the VAE of Qwen-Image (no attention outside the middle, no patches, plain "
                       "resampling)",
                       config->path);
    }
    sumi_wan_bind_statistics(vae, b, config, values);
}

static sumi_result qwen_vae_bind(void* model, const void* settings, sumi_binder* b, const sumi_module_config* config,
                                 bool without_encoder)
{
    static const sumi_wan_stages s_stages = {bind_encoder_stages, bind_decoder_stages};
    sumi_qwen_vae* vae = model;
    (void)settings;
    b->alias = flat_alias;
    b->alias_context = vae;
    b->result = SUMI_OK;
    vae->picture_channels = 3;
    count_flat_blocks(vae, b);
    sumi_wan_config values = {.released_mean = s_mean, .released_deviation = s_deviation, .released_count = 16};
    if (b->result == SUMI_OK) read_qwen_config(vae, b, config, &values);
    if (b->result != SUMI_OK) return b->result;
    sumi_wan_bind_halves(vae, b, &s_stages, without_encoder);
    sumi_wan_check_halves(vae, b, &values, config->path);
    return b->result;
}

const sumi_autoencoder_module sumi_qwen_vae_module = {.model_bytes = sizeof(sumi_qwen_vae),
                                                      .bind = qwen_vae_bind,
                                                      .properties = sumi_wan_properties,
                                                      .tiling = sumi_wan_tiling};
