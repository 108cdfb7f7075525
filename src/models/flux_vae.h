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

// Names: those of diffusers or of LDM. config: vae/config.json, or NULL (then 32 groups, 0.3611, 0.1159). The encoder
// may be missing.
sumi_result sumi_flux_vae_bind(sumi_flux_vae* vae, sumi_binder* binder, const void* config, size_t config_bytes,
                               const char* config_path, bool without_encoder);

// Decodes item `counter` of latents [items * channels, height * width] into picture [items * H * W, 3]. tile: side of a
// tile in latents, a multiple of 4; 0: no tiles. Tiles are used only for latents larger than one tile.
void sumi_flux_vae_write_decode(const sumi_flux_vae* vae, sumi_plan* plan, sumi_value latents, int32_t height,
                                int32_t width, int32_t tile, sumi_value picture);
// Encodes 8-bit RGB [H * W, 3] to moments [h * w, 2 * channels].
sumi_value sumi_flux_vae_write_encode(const sumi_flux_vae* vae, sumi_plan* plan, sumi_value pixels, int32_t height,
                                      int32_t width, int32_t tile);

// The same as a network module; it has no settings.
extern const sumi_autoencoder_module sumi_flux_vae_module;
#endif
