// The Flux autoencoder (AutoencoderKL): latents of 16 channels at an eighth of the size <-> RGB pictures. Sizes:
// docs/architectures/z-image.md, "Autoencoder".
//
//   decoder  conv_in, mid (res, attention, res), stages from coarse to fine (res blocks, then nearest 2x + conv in all
//            but the last), norm, SiLU, conv_out
//   encoder  conv_in, stages from fine to coarse (res blocks, then conv with stride 2 in all but the last), mid, norm,
//            SiLU, conv_out -> mean and log variance
#ifndef SUMI_MODELS_FLUX_VAE_H
#define SUMI_MODELS_FLUX_VAE_H
#include "models/network_modules.h"
#include "models/vae_blocks.h"

typedef struct sumi_flux_vae {
    int32_t latent_channels, groups, factor; // factor: pixels per latent
    int32_t sample_size;                     // side of the pictures that the checkpoint was made for, in pixels
    float scaling, shift;                    // latent = (z - shift) * scaling
    // bytes of the strips in which a residual block norms a picture (flux_vae.c)
    uint64_t strip_bytes;
    sumi_vae_half encoder, decoder;
    int32_t level_count; // for names of LDM, whose decoder counts stages backwards
} sumi_flux_vae;

// Names: those of diffusers or of LDM. Without a config.json it has 32 groups, scaling 0.3611 and shift 0.1159. The
// encoder may be missing. It has no settings.
extern const sumi_autoencoder_module sumi_flux_vae_module;
#endif
