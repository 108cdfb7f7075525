// What an autoencoder does around its two networks: latents to pictures and back, large pictures in tiles. Each tile is
// decoded or encoded by itself; its upper and left edges are blended linearly
// with the neighbours there, which are blended already. Only the beginning of each tile, up to the next tile, is copied
// to the result:
//
//   tile 0  |=========|~~~|          ~ is replaced by the blended beginning of the next tile
//   tile 1            |~~~|======|~~~|
//
// Tiles begin one stride apart while some of the picture is left, so the last ones may be cut off. The autoencoder
// gives the functions that make a tile, and the stride.
#ifndef SUMI_MODELS_VAE_TILES_H
#define SUMI_MODELS_VAE_TILES_H
#include "plan/plan.h"

// The stride from one tile to the next is stride_units / size_units of a tile's side, which is a multiple of
// size_units. The rest of the side overlaps the next tile.
typedef struct sumi_tile_rule {
    int32_t stride_units, size_units;
} sumi_tile_rule;

// What is cut into tiles: latents [items * channels, height * width], or an 8-bit picture [height * width, 3 or 4].
typedef struct sumi_tile_source {
    sumi_value value;
    int32_t height, width;
} sumi_tile_source;

typedef struct sumi_vae_tiling sumi_vae_tiling;
// Runs the decoder or the encoder on one tile, a picture of latents or of RGB or RGBA in [-1, 1]. Returns no value after a
// failure.
typedef sumi_value sumi_tile_function(const sumi_vae_tiling* tiling, sumi_plan* plan, sumi_value x, int32_t height,
                                      int32_t width);

// The denoiser's latents may be the autoencoder's in packs of `packing` x `packing` (PREVIEW in plan/ops.h); with 1 they
// are the same.
struct sumi_vae_tiling {
    sumi_tile_rule rule;
    int32_t channels; // of the autoencoder's latents
    int32_t factor;   // pixels per latent of the autoencoder along a side
    int32_t packing;
    int32_t picture_channels;          // 3: RGB; 4: RGBA
    sumi_latent_statistics statistics; // for the denoiser's latents; the model's memory
    const void* model;                 // for the two functions
    sumi_tile_function *decode, *encode;
    // Residual blocks work in longer strips, if the autoencoder has_long_strips: faster on a GPU, in more memory, with the
    // same bits. The autoencoder leaves it false; who writes the plan knows whether there is room.
    bool long_strips;
};

// Decodes item `counter` of the denoiser's latents into picture [items * H * W, picture_channels]. tile: side of a tile in these
// latents; tile * packing is a multiple of rule.size_units. 0: no tiles. A picture no larger than a tile is not cut.
void sumi_vae_tiles_decode(const sumi_vae_tiling* tiling, sumi_plan* plan, const sumi_tile_source* latents,
                           int32_t tile, sumi_value picture);
// Encodes to moments [h * w, 2 * channels], a picture with one pixel for each latent of the autoencoder. tile: as above.
sumi_value sumi_vae_tiles_encode(const sumi_vae_tiling* tiling, sumi_plan* plan, const sumi_tile_source* pixels,
                                 int32_t tile);
// Computes the denoiser's latents from moments and noise (SUMI_NO_VALUE: the mode). `latents` are written.
void sumi_vae_posterior(const sumi_vae_tiling* tiling, sumi_plan* plan, sumi_value moments, sumi_value eps,
                        const sumi_tile_source* latents);
#endif
