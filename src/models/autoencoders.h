// The autoencoders: latents <-> pictures (network_modules.h).
#ifndef SUMI_MODELS_AUTOENCODERS_H
#define SUMI_MODELS_AUTOENCODERS_H
#include "models/network_modules.h"
#include "models/vae_blocks.h"
#include "models/vae_tiles.h"

// ---- Flux (flux_vae.c)

// The Flux autoencoder (AutoencoderKL): latents of 16 channels at an eighth of the size <-> RGB pictures. Sizes:
// docs/architectures/z-image.md, "Autoencoder".
//
//   decoder  conv_in, mid (res, attention, res), stages from coarse to fine (res blocks, then nearest 2x + conv in all
//            but the last), norm, SiLU, conv_out
//   encoder  conv_in, stages from fine to coarse (res blocks, then conv with stride 2 in all but the last), mid, norm,
//            SiLU, conv_out -> mean and log variance
//
// The autoencoder of Flux.2 (AutoencoderKLFlux2) is the same network with 32 channels of latents, and with a 1x1
// convolution before the decoder and another one after the encoder. The denoiser's latents are packs of 2 x 2 of these,
// 128 channels at a sixteenth of the size, normalised by the mean and the variance that the file has for each channel.
// The decoder may have other widths than the encoder.

#define SUMI_FLUX_VAE_MAX_STATISTICS 256

typedef struct sumi_flux_vae {
    int32_t latent_channels, groups, factor; // channels of the VAE's own latents; factor: pixels per such a latent
    int32_t sample_size;                     // side of the pictures that the checkpoint was made for, in pixels
    bool has_quant;                          // the halves have `quant`
    int32_t packing;                         // 2 if the file has statistics, otherwise 1
    // a latent of the denoiser is (z - shift) * scale: for each of its channels, or with a count of 1 for all
    float scale[SUMI_FLUX_VAE_MAX_STATISTICS], shift[SUMI_FLUX_VAE_MAX_STATISTICS];
    int32_t statistics_count;
    // bytes of the strips in which a residual block norms a picture (flux_vae.c)
    uint64_t strip_bytes;
    sumi_vae_half encoder, decoder;
    int32_t level_count; // for names of LDM, whose decoder counts stages backwards
} sumi_flux_vae;

// Names: those of diffusers or of LDM. Without a config.json it has 32 groups; without statistics, scaling 0.3611 and
// shift 0.1159. The encoder may be missing. It has no settings: the tensors show which of the two it is.
extern const sumi_autoencoder_module sumi_flux_vae_module;

// ---- Qwen-Image (qwen_vae.c)

// The Qwen-Image autoencoder: latents of 16 channels at an eighth of the size <-> RGB pictures. Sizes:
// docs/architectures/qwen-image.md, "Autoencoder". It is a network for video, causal in time. A picture is its first
// frame, and the frames before it are zeros. So only the last slice of each kernel over time counts, layers that double
// or halve the frames do nothing, and a network on pictures remains:
//
//   decoder  1x1, conv_in, mid (res, attention, res), stages from coarse to fine (res blocks, then nearest 2x + conv to
//            half the channels in all but the last), norm, SiLU, conv_out
//   encoder  conv_in, stages from fine to coarse (res blocks, then conv with stride 2 in all but the last), mid, norm,
//            SiLU, conv_out, 1x1 -> mean and log variance
//
// Every norm is over the channels of one pixel, so only attention reads more than a neighbourhood.

#define SUMI_QWEN_VAE_MAX_CHANNELS 64 // channels of the latents

typedef struct sumi_qwen_vae {
    int32_t channels, factor;                // channels of the latents; pixels per latent
    int32_t picture_channels;                // 3: RGB; 4: RGBA
    int32_t sample_size;                     // side of the pictures that it was made for, in pixels; 0: not given
    float scale[SUMI_QWEN_VAE_MAX_CHANNELS]; // latent = (z - shift) * scale, for each channel
    float shift[SUMI_QWEN_VAE_MAX_CHANNELS];
    sumi_tile_rule tiles;
    // bytes of the strips in which a residual block works (wan_vae.c), and of those of sumi_vae_tiling.long_strips
    uint64_t strip_bytes, long_strip_bytes;
    sumi_vae_half encoder, decoder;
    // for names that number all blocks of the decoder continuously: blocks per stage; 0: other names
    int32_t flat_blocks;
} sumi_qwen_vae;

// The model is a sumi_qwen_vae. Names: those of diffusers or of Wan. No settings. Without a config.json it uses the
// statistics of the released weights.
extern const sumi_autoencoder_module sumi_qwen_vae_module;

// ---- Qwen-Image-2.1 (qwen_vae_21.c)

// The Qwen-Image-2.1 autoencoder: latents of 64 channels at a sixteenth of the size <-> RGBA pictures, in which alpha is
// a channel like the others. It is Wan 2.2's network with weights for single pictures: that of Qwen-Image, and
//
//   - four stages that resample instead of three, which keep their channels: the next stage's first block halves or
//     doubles them
//   - around every stage but the decoder's last a shortcut without weights (SHORTCUT in plan/ops.h)
//   - a decoder that may be wider than the encoder
//
// The model is a sumi_qwen_vae. Names: those of diffusers or of Wan 2.2. No settings. Without a config.json it uses the
// statistics of the released weights.
extern const sumi_autoencoder_module sumi_qwen_vae_21_module;
#endif
