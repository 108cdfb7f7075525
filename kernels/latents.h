// Launch contracts of latents.cu: plain structs by value, addresses as 64-bit device addresses. Block
// SUMI_LATENTS_THREADS, no dynamic shared memory, any grid unless a struct says otherwise ("any": grid-stride loop).
// Latents are always float, 4-byte aligned, one row per channel plane: [latents][channels][height * width]. The kernels
// are short: a latent is a few MB in L2.
//
// The same on the CPU, in float32, which tests compare with: src/cpu/latents.c.
#ifndef SUMI_KERNELS_LATENTS_H
#define SUMI_KERNELS_LATENTS_H
#include "step.h"
#include <stdint.h>

#define SUMI_LATENTS_THREADS 256
#define SUMI_LATENTS_BATCH 64 // sequences or items per launch, whose numbers are passed by value
// partial sums of an item: fixed, because it determines the order of the sums and so the result
#define SUMI_GUIDE_BLOCKS 64
// The largest number of latent channels of a preview.
#define SUMI_PREVIEW_CHANNELS 256
#define SUMI_STATISTICS_CHANNELS 256 // the largest number of latent channels of a VAE

// Grid (any, sequences of this launch). patch: side of a patch, 1 or 2. rows: the token matrix [..][patch^2 channels],
// bf16 or float. latents: float [..][height * width]. patch 2: height and width are even, and latents 8-byte aligned.
// Sequence i: its latent begins at plane latent[i] * channels, and its tokens begin at row row_begin[i] of `rows`.
typedef struct sumi_patch_args {
    uint64_t latents, rows;
    int32_t rows_are_float, height, width, channels;
    float sign;
    int32_t by_channel; // 1: feature c * 4 + 2 ph + pw; 0: feature (2 ph + pw) * channels + c
    int32_t patch, reserved;
    int32_t latent[SUMI_LATENTS_BATCH], row_begin[SUMI_LATENTS_BATCH];
} sumi_patch_args;

// floats [begin, end) of all three
typedef struct sumi_add_noise_args {
    uint64_t noise, clean, x, counter;
    sumi_step sigma;
    int64_t begin, end;
} sumi_add_noise_args;

// Grid (any, items of this launch); sumi_guide_sums: grid (SUMI_GUIDE_BLOCKS, items of this launch). `predictions` has
// `count` floats per sequence. positive[k], negative[k]: sequences of item first_item + k; negative -1: no guidance.
// sums: scratch memory, double [items][SUMI_GUIDE_BLOCKS][2], indexed by the item's number. plane, width, patch_size:
// for sumi_guide_rescale only. limit: see sumi_guide.
typedef struct sumi_guide_args {
    uint64_t predictions, v, sums, counter;
    sumi_step scale;
    int64_t count;
    int32_t first_item, plane, width, patch_size;
    float limit;
    int32_t positive[SUMI_LATENTS_BATCH], negative[SUMI_LATENTS_BATCH], reserved;
} sumi_guide_args;

// Grid (any, any): grid y covers channel planes [begin, end) of `plane` floats each. y, h and mask are 0 if the solver
// has none.
typedef struct sumi_solve_args {
    uint64_t x, y, h, v, noise, clean, mask, out, counter;
    sumi_step row;
    int32_t plane, channels, begin, end;
} sumi_solve_args;

// How a latent is a picture of `channels` channels and more pixels: see PREVIEW in src/plan/ops.h. side: 1 or 2. width:
// of the picture; with side 1 it is not read.
typedef struct sumi_packed {
    int32_t side, width;
} sumi_packed;

// Grid (any, items of this launch). factors [channels][3]. plane, channels: of the picture.
typedef struct sumi_preview_args {
    uint64_t x, v, rgb, counter;
    sumi_step sigma;
    sumi_packed packed;
    int32_t plane, channels, first_item;
    float bias[3], factors[3 * SUMI_PREVIEW_CHANNELS];
} sumi_preview_args;

// For each channel of a latent: scale and shift between the VAE's latents and the denoiser's.
typedef struct sumi_channel_statistics {
    float scale[SUMI_STATISTICS_CHANNELS], shift[SUMI_STATISTICS_CHANNELS];
} sumi_channel_statistics;

// Grid (any). eps: the noise; 0: none, and the latent is the mean. plane: of the latents; channels: of the picture.
typedef struct sumi_posterior_args {
    uint64_t moments, eps, latents;
    sumi_packed packed;
    int32_t moments_are_float, plane, channels, reserved;
    sumi_channel_statistics statistics;
} sumi_posterior_args;

// Grid (any): rows (pixels) [begin, end) of a tile. per_item 1: the latent is that of item `counter`. channels, height
// and all other sizes: of the picture.
typedef struct sumi_latent_in_args {
    uint64_t latents, picture, counter;
    sumi_packed packed;
    int32_t picture_is_float, channels, height, width, y, x, tile_width, begin, end, per_item;
    sumi_channel_statistics statistics;
} sumi_latent_in_args;
#endif
