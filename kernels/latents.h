// What the launchers of latents.cu pass: plain structs by value, addresses as 64-bit integers. Block
// SUMI_LATENTS_THREADS, no dynamic shared memory.
#ifndef SUMI_KERNELS_LATENTS_H
#define SUMI_KERNELS_LATENTS_H
#include "step.h"
#include <stdint.h>

#define SUMI_LATENTS_THREADS 256
#define SUMI_LATENTS_BATCH 64 // sequences or items per launch: their numbers travel by value
#define SUMI_GUIDE_BLOCKS 64  // partial sums of an item: part of the result, not of the grid
#define SUMI_PREVIEW_CHANNELS 256
#define SUMI_STATISTICS_CHANNELS 256 // of latents that a VAE takes and gives

// grid (any, sequences of this launch). rows: [..][4 channels] bf16 or float; latents float [..][height * width];
// sequence i: plane latent[i] * channels, tokens from row row_begin[i]
typedef struct sumi_patch_args {
    uint64_t latents, rows;
    int32_t rows_are_float, height, width, channels;
    float sign;
    int32_t by_channel; // feature c * 4 + 2 ph + pw instead of (2 ph + pw) * channels + c
    int32_t latent[SUMI_LATENTS_BATCH], row_begin[SUMI_LATENTS_BATCH];
} sumi_patch_args;

// floats [begin, end)
typedef struct sumi_add_noise_args {
    uint64_t noise, clean, x, counter;
    sumi_step sigma;
    int64_t begin, end;
} sumi_add_noise_args;

// grid (any, items of this launch); sequences of `predictions` are `count` floats each. sums
// [items][SUMI_GUIDE_BLOCKS][2] double: scratch, by the item's number. plane, width, patch_size: of sumi_guide_rescale
typedef struct sumi_guide_args {
    uint64_t predictions, v, sums, counter;
    sumi_step scale;
    int64_t count;
    int32_t first_item, plane, width, patch_size;
    float limit;
    int32_t positive[SUMI_LATENTS_BATCH], negative[SUMI_LATENTS_BATCH], reserved;
} sumi_guide_args;

// grid (any, any): y walks over channel planes [begin, end) of `plane` floats. y, h, mask: 0 when the solver has none
typedef struct sumi_solve_args {
    uint64_t x, y, h, v, noise, clean, mask, out, counter;
    sumi_step row;
    int32_t plane, channels, begin, end;
} sumi_solve_args;

// grid (any, items): factors [channels][3]
typedef struct sumi_preview_args {
    uint64_t x, v, rgb, counter;
    sumi_step sigma;
    int32_t plane, channels, first_item;
    float bias[3], factors[3 * SUMI_PREVIEW_CHANNELS];
} sumi_preview_args;

typedef struct sumi_channel_statistics {
    float scale[SUMI_STATISTICS_CHANNELS], shift[SUMI_STATISTICS_CHANNELS];
} sumi_channel_statistics;

typedef struct sumi_posterior_args {
    uint64_t moments, eps, latents;
    int32_t moments_are_float, plane, channels, reserved;
    sumi_channel_statistics statistics;
} sumi_posterior_args;

// grid (any): picture rows [begin, end) of a tile
typedef struct sumi_latent_in_args {
    uint64_t latents, picture, counter;
    int32_t picture_is_float, channels, height, width, y, x, tile_width, begin, end, per_item;
    sumi_channel_statistics statistics;
} sumi_latent_in_args;
#endif
