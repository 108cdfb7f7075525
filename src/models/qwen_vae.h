// The Qwen-Image autoencoder: latents of 16 channels at an eighth of the size <-> RGB pictures. Spec qwen-image.md
// section 7. It is a network for video, causal in time; a picture is its first frame, before which lie zeros. So of each
// kernel over time the last slice alone counts, what doubles or halves the frames does nothing, and what remains is a
// network on pictures:
//
//   decoder  1x1, conv_in, mid (res, attention, res), stages from coarse to fine (res blocks, then nearest 2x + conv to
//            half the channels in all but the last), norm, SiLU, conv_out
//   encoder  conv_in, stages from fine to coarse (res blocks, then conv with stride 2 in all but the last), mid, norm,
//            SiLU, conv_out, 1x1 -> mean and log variance
//
// Every norm is of one pixel's channels, so nothing but attention looks at a whole picture.
#ifndef SUMI_MODELS_QWEN_VAE_H
#define SUMI_MODELS_QWEN_VAE_H
#include "models/network_modules.h"
#include "models/vae_attention.h"
#include "models/vae_tiles.h"

#define SUMI_QWEN_VAE_MAX_STAGES 6
#define SUMI_QWEN_VAE_MAX_BLOCKS 8    // residual blocks of a stage
#define SUMI_QWEN_VAE_MAX_CHANNELS 64 // of the latents

typedef struct sumi_qwen_vae_block {
    sumi_weight norm1, conv1, conv1_bias, norm2, conv2, conv2_bias, shortcut, shortcut_bias;
    bool has_shortcut;
} sumi_qwen_vae_block;
typedef struct sumi_qwen_vae_stage {
    int32_t block_count;
    bool resamples;
    sumi_qwen_vae_block blocks[SUMI_QWEN_VAE_MAX_BLOCKS];
    sumi_weight resample, resample_bias;
} sumi_qwen_vae_stage;

typedef struct sumi_qwen_vae_half {
    bool is_present;
    int32_t stage_count;
    sumi_weight quant, quant_bias; // 1x1: of the latents before the decoder, of the moments behind the encoder
    sumi_weight conv_in, conv_in_bias, norm_out, conv_out, conv_out_bias;
    sumi_qwen_vae_block middle[2];
    sumi_weight attention_norm;
    sumi_vae_attention attention;
    sumi_qwen_vae_stage stages[SUMI_QWEN_VAE_MAX_STAGES]; // in the order they run
} sumi_qwen_vae_half;

typedef struct sumi_qwen_vae {
    int32_t channels, factor;                // of the latents; pixels per latent
    float scale[SUMI_QWEN_VAE_MAX_CHANNELS]; // latent = (z - shift) * scale
    float shift[SUMI_QWEN_VAE_MAX_CHANNELS]; // channel by channel
    sumi_tile_rule tiles;
    // what lies between two ops of a residual block is made by strips of so many bytes, qwen_vae.c
    uint64_t strip_bytes;
    sumi_qwen_vae_half encoder, decoder;
    int32_t flat_blocks; // of names that count all blocks of the decoder in one: those of a stage; 0: other names
} sumi_qwen_vae;

// The model is a sumi_qwen_vae. Names: diffusers' or those of Wan. No settings. Without a config.json the statistics are
// those of the released weights.
extern const sumi_autoencoder_module sumi_qwen_vae_module;
#endif
