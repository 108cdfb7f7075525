// Large pictures in tiles. Each tile is decoded or encoded by itself; its upper and left edges are blended linearly
// with the neighbours there, which are blended already. Only the beginning of each tile, up to the next tile, is copied
// to the result:
//
//   tile 0  |=========|~~~|          ~ is replaced by the blended beginning of the next tile
//   tile 1            |~~~|======|~~~|
//
// Tiles begin one stride apart while some of the picture is left, so the last ones may be cut off. The autoencoder
// gives the function that makes a tile, and the stride.
#ifndef SUMI_MODELS_VAE_TILES_H
#define SUMI_MODELS_VAE_TILES_H
#include "plan/plan.h"

// The stride from one tile to the next is stride_units / size_units of a tile's side, which is a multiple of
// size_units. The rest of the side overlaps the next tile.
typedef struct sumi_tile_rule {
    int32_t stride_units, size_units;
} sumi_tile_rule;

// What is cut into tiles: latents [items * channels, height * width], or 8-bit RGB [height * width, 3].
typedef struct sumi_tile_source {
    sumi_value value;
    int32_t height, width;
} sumi_tile_source;

// Writes the output of one tile of the source, as a separate picture. Returns no value after a failure.
typedef sumi_value sumi_tile_function(const void* model, sumi_plan* plan, const sumi_tile_source* source,
                                      sumi_tile tile);

typedef struct sumi_vae_tiling {
    sumi_tile_rule rule;
    int32_t factor;          // pixels per latent along a side
    int32_t moment_channels; // channels of the output of `encode`
    const void* model;       // for the two functions
    sumi_tile_function *decode, *encode;
} sumi_vae_tiling;

// Decodes item `counter` of the latents into picture [items * H * W, 3]. tile: side of a tile in latents, a multiple of
// rule.size_units; 0: no tiles. A picture no larger than a tile is not cut.
void sumi_vae_tiles_decode(const sumi_vae_tiling* tiling, sumi_plan* plan, const sumi_tile_source* latents,
                           int32_t tile, sumi_value picture);
// Encodes to moments [h * w, moment_channels].
sumi_value sumi_vae_tiles_encode(const sumi_vae_tiling* tiling, sumi_plan* plan, const sumi_tile_source* pixels,
                                 int32_t tile);
#endif
