// Large pictures by tiles: each tile is decoded or encoded by itself, the seams are blended linearly with the upper and
// the left neighbour (already blended ones), and the leading part of each tile is kept:
//
//   tile 0  |=========|~~~|          ~ is replaced by the blended start of the next tile
//   tile 1            |~~~|======|~~~|
//
// Tiles begin a stride apart while there is picture left, so the last ones may be cut off. What a tile is made by, and
// how much of it is kept, the autoencoder says.
#ifndef SUMI_MODELS_VAE_TILES_H
#define SUMI_MODELS_VAE_TILES_H
#include "plan/plan.h"

// Of a tile of `of` units the first `kept` stay, along each side; the others are the seam to the next tile. The side of
// a tile is a multiple of `of`.
typedef struct sumi_tile_rule {
    int32_t kept, of;
} sumi_tile_rule;

// What is cut into tiles: latents [items * channels, height * width] or 8-bit RGB [height * width, 3].
typedef struct sumi_tile_source {
    sumi_value value;
    int32_t height, width;
} sumi_tile_source;

// Writes what becomes of one tile of the source, as a picture of its own. No value after a failure.
typedef sumi_value sumi_tile_function(const void* model, sumi_plan* plan, const sumi_tile_source* source,
                                      sumi_tile tile);

typedef struct sumi_vae_tiling {
    sumi_tile_rule rule;
    int32_t factor;          // pixels per latent along a side
    int32_t moment_channels; // of what `encode` makes
    const void* model;       // for the two functions
    sumi_tile_function *decode, *encode;
} sumi_vae_tiling;

// tile: side of a tile in latents, a multiple of rule.of; 0: whole. A picture no larger than a tile is made whole.
// Item `counter` of the latents into picture [items * H * W, 3].
void sumi_vae_tiles_decode(const sumi_vae_tiling* tiling, sumi_plan* plan, const sumi_tile_source* latents,
                           int32_t tile, sumi_value picture);
// Moments [h * w, moment_channels].
sumi_value sumi_vae_tiles_encode(const sumi_vae_tiling* tiling, sumi_plan* plan, const sumi_tile_source* pixels,
                                 int32_t tile);
#endif
