// Shared by the autoencoders: two halves of stages of residual blocks, attention in the middle, strips and upsampling.
// They differ in their norms, so each writes its own blocks (flux_vae.c, wan_vae.c).
#ifndef SUMI_MODELS_VAE_BLOCKS_H
#define SUMI_MODELS_VAE_BLOCKS_H
#include "plan/plan.h"

#define SUMI_VAE_MAX_STAGES 6
#define SUMI_VAE_MAX_BLOCKS 8 // residual blocks per stage
// Rows of a strip are a multiple of two patches of a GPU, for clusters of two, so that the bits are those of a whole
// picture.
#define SUMI_VAE_STRIP_MULTIPLE 16

// y = shortcut(x) + conv2(silu(norm2(conv1(silu(norm1(x)))))). Norms without biases leave norm1_bias and norm2_bias
// empty. The shortcut is 1x1; without it, x is added.
typedef struct sumi_vae_block {
    sumi_weight norm1, norm1_bias, conv1, conv1_bias, norm2, norm2_bias, conv2, conv2_bias, shortcut, shortcut_bias;
    bool has_shortcut;
} sumi_vae_block;

typedef struct sumi_vae_stage {
    int32_t block_count;
    bool resamples;
    int32_t shortcut_frames; // of the shortcut around the stage (SHORTCUT in plan/ops.h); 0: there is none
    sumi_vae_block blocks[SUMI_VAE_MAX_BLOCKS];
    sumi_weight resample, resample_bias;
} sumi_vae_stage;

// Attention over all pixels, with one head as wide as the channels.
typedef struct sumi_vae_attention {
    sumi_weight qkv, qkv_bias, out, out_bias;
} sumi_vae_attention;

typedef struct sumi_vae_half {
    bool is_present;
    int32_t stage_count;
    // 1x1, not in every autoencoder: applied to the latents before the decoder, and to the moments after the encoder
    sumi_weight quant, quant_bias;
    sumi_weight conv_in, conv_in_bias, norm_out, norm_out_bias, conv_out, conv_out_bias;
    sumi_vae_block middle[2];
    sumi_weight attention_norm, attention_norm_bias;
    sumi_vae_attention attention;
    sumi_vae_stage stages[SUMI_VAE_MAX_STAGES]; // in the order in which they run
} sumi_vae_half;

// Pixels per latent along a side.
int32_t sumi_vae_factor(const sumi_vae_half* half);

// normed: x [pixels, channels] after the norm. Returns x plus the output of attention.
sumi_value sumi_vae_attention_write(const sumi_vae_attention* attention, sumi_plan* plan, sumi_value normed,
                                    sumi_value x, int32_t pixels);

// Rows of a strip of a picture of `height` rows that does not fit whole. most: rows that fit, with one above and one
// below the strip, which a convolution reads. All strips have about equal size.
int32_t sumi_vae_strip_rows(int32_t height, uint64_t most);

// A view of rows [begin, end) of a picture, or of a strip of the same width.
sumi_value sumi_vae_rows(sumi_plan* plan, sumi_value of, int32_t width, int32_t begin, int32_t end);

// A picture that is upsampled in the memory of the result: it lies at the beginning of that memory and is read from its
// end backwards. The result begins `spare_rows` of its rows later, so that its first rows do not overwrite rows that are
// still read.
typedef struct sumi_vae_growth {
    int32_t height;                // of the small picture
    uint64_t small_row, large_row; // bytes of a row of the small picture and of the result
    int32_t spare_rows;
} sumi_vae_growth;
bool sumi_vae_can_grow(const sumi_vae_growth* growth);

// Writes nearest 2x upsampling and the stage's convolution from x [height * width, channels] into y, plus the shortcut
// from a picture of x's size. growth: how x and y share memory; NULL: they do not overlap, and no strips are needed.
typedef struct sumi_vae_upsampling {
    sumi_value x, y;
    int32_t height, width; // of x
    const sumi_vae_growth* growth;
    sumi_value shortcut; // from where; none: no shortcut
    int32_t frames;      // of the shortcut
} sumi_vae_upsampling;
void sumi_vae_upsample_write(const sumi_vae_stage* stage, sumi_plan* plan, const sumi_vae_upsampling* u);
// The same into a new value, which it returns; y and growth are not read.
sumi_value sumi_vae_upsample_whole(const sumi_vae_stage* stage, sumi_plan* plan, const sumi_vae_upsampling* u);
#endif
