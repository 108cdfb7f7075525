#include "models/vae_tiles.h"
#include "base/assert.h"
#include "base/numbers.h"
#include <string.h>

#define MAX_TILES_ACROSS 64

// One axis-aligned pass over both directions. `height` and `width` are the input's. A tile of `size` input units gives
// `out_size` output units. The next tile begins `stride` input units and `out_stride` output units later.
typedef struct tile_grid {
    int32_t height, width, size, stride, out_size, out_stride, columns, rows;
} tile_grid;

static tile_grid make_grid(const sumi_tile_source* source, sumi_tile_rule rule, int32_t size, int32_t out_size)
{
    SUMI_ASSERT(rule.stride_units >= 1 && rule.stride_units <= rule.size_units && size % rule.size_units == 0
                && out_size % rule.size_units == 0);
    tile_grid w = {.height = source->height, .width = source->width, .size = size, .out_size = out_size};
    w.stride = size / rule.size_units * rule.stride_units;
    w.out_stride = out_size / rule.size_units * rule.stride_units;
    w.rows = (w.height + w.stride - 1) / w.stride;
    w.columns = (w.width + w.stride - 1) / w.stride;
    return w;
}

static sumi_tile input_tile(const tile_grid* w, int32_t row, int32_t column)
{
    int32_t y = row * w->stride, x = column * w->stride;
    return (sumi_tile){y, x, sumi_min_int(w->size, w->height - y), sumi_min_int(w->size, w->width - x)};
}

// A tile of the latents in the autoencoder's own size, decoded.
static sumi_value decode_tile(const sumi_vae_tiling* tiling, sumi_plan* plan, const sumi_tile_source* latents,
                              sumi_tile tile)
{
    sumi_plan_prefix(plan, "decoder.");
    const sumi_value x = sumi_plan_latent_in(plan, &(sumi_plan_latent_args){.latents = latents->value,
                                                                            .channels = tiling->channels,
                                                                            .height = latents->height,
                                                                            .width = latents->width,
                                                                            .packing = tiling->packing,
                                                                            .tile = tile,
                                                                            .statistics = tiling->statistics,
                                                                            .per_item = true});
    return tiling->decode(tiling, plan, x, tile.height, tile.width);
}

static sumi_value encode_tile(const sumi_vae_tiling* tiling, sumi_plan* plan, const sumi_tile_source* pixels,
                              sumi_tile tile)
{
    sumi_plan_prefix(plan, "encoder.");
    const sumi_value x = sumi_plan_pixels_in(plan, pixels->value, pixels->width, tile, tiling->picture_channels);
    return tiling->encode(tiling, plan, x, tile.height, tile.width);
}

// Writes every tile in reading order, blends its seams and copies its first out_stride rows and columns to the output.
// Only the row of tiles above is stored together with the current one.
static void write_tiles(const sumi_vae_tiling* tiling, sumi_plan* plan, const tile_grid* w,
                        const sumi_tile_source* source, bool decodes, sumi_value out)
{
    sumi_value above[MAX_TILES_ACROSS], current[MAX_TILES_ACROSS];
    int32_t out_height = w->height * w->out_size / w->size, out_width = w->width * w->out_size / w->size;
    if (w->columns > MAX_TILES_ACROSS || w->rows > MAX_TILES_ACROSS) {
        sumi_fail(&plan->error, SUMI_INVALID_ARGUMENT,
                  "the image would need %d by %d VAE tiles; use tiles of at least %d latents", (int)w->columns,
                  (int)w->rows, 8 / (int)tiling->packing);
        return;
    }
    for (int32_t r = 0; r < w->rows; r++) {
        int32_t above_height = 0;
        for (int32_t c = 0; c < w->columns; c++) {
            sumi_tile in = input_tile(w, r, c);
            sumi_value tile = (decodes ? decode_tile : encode_tile)(tiling, plan, source, in);
            // in output units; this tile and its neighbours
            int32_t height = in.height * w->out_size / w->size, width = in.width * w->out_size / w->size;
            int32_t left_width = c > 0 ? input_tile(w, r, c - 1).width * w->out_size / w->size : 0;
            above_height = r > 0 ? input_tile(w, r - 1, c).height * w->out_size / w->size : 0;
            sumi_plan_prefix(plan, "%s", decodes ? "decoder." : "encoder.");
            if (r > 0 || c > 0) {
                sumi_plan_tile_blend(plan, &(sumi_plan_tile_blend_args){.tile = tile,
                                                                        .height = height,
                                                                        .width = width,
                                                                        .above = r > 0 ? above[c] : SUMI_NO_VALUE,
                                                                        .above_height = above_height,
                                                                        .left = c > 0 ? current[c - 1] : SUMI_NO_VALUE,
                                                                        .left_width = left_width,
                                                                        .extent = w->out_size - w->out_stride});
            }
            current[c] = tile;
            sumi_tile copied = {r * w->out_stride, c * w->out_stride, sumi_min_int(w->out_stride, height),
                                sumi_min_int(w->out_stride, width)};
            sumi_plan_tile_place(plan, &(sumi_plan_tile_place_args){.tile = tile,
                                                                    .tile_width = width,
                                                                    .picture = out,
                                                                    .picture_height = out_height,
                                                                    .picture_width = out_width,
                                                                    .copied = copied,
                                                                    .per_item = decodes});
        }
        memcpy(above, current, (size_t)w->columns * sizeof *above);
    }
}

static bool is_tile_size_good(const sumi_vae_tiling* tiling, sumi_plan* plan, int32_t tile)
{
    if (tile < 0 || tile * tiling->packing % tiling->rule.size_units != 0) {
        sumi_fail(&plan->error, SUMI_INVALID_ARGUMENT, "a VAE tile of %d latents is not a multiple of %d",
                  (int)tile * tiling->packing, (int)tiling->rule.size_units);
        return false;
    }
    return true;
}

void sumi_vae_tiles_decode(const sumi_vae_tiling* tiling, sumi_plan* plan, const sumi_tile_source* latents,
                           int32_t tile, sumi_value picture)
{
    if (!is_tile_size_good(tiling, plan, tile)) return;
    const int32_t packing = tiling->packing, height = latents->height * packing, width = latents->width * packing,
                  size = tile * packing, out_height = height * tiling->factor, out_width = width * tiling->factor;
    const sumi_tile_source unpacked = {latents->value, height, width};
    if (size == 0 || (height <= size && width <= size)) {
        sumi_value decoded = decode_tile(tiling, plan, &unpacked, (sumi_tile){0, 0, height, width});
        sumi_plan_tile_place(plan, &(sumi_plan_tile_place_args){.tile = decoded,
                                                                .tile_width = out_width,
                                                                .picture = picture,
                                                                .picture_height = out_height,
                                                                .picture_width = out_width,
                                                                .copied = (sumi_tile){0, 0, out_height, out_width},
                                                                .per_item = true});
    } else {
        tile_grid w = make_grid(&unpacked, tiling->rule, size, size * tiling->factor);
        write_tiles(tiling, plan, &w, &unpacked, true, picture);
    }
    sumi_plan_prefix(plan, "%s", "");
}

sumi_value sumi_vae_tiles_encode(const sumi_vae_tiling* tiling, sumi_plan* plan, const sumi_tile_source* pixels,
                                 int32_t tile)
{
    if (!is_tile_size_good(tiling, plan, tile)) return SUMI_NO_VALUE;
    const int32_t height = pixels->height, width = pixels->width, out_size = tile * tiling->packing,
                  size = out_size * tiling->factor;
    sumi_value moments;
    if (tile == 0 || (height <= size && width <= size)) {
        moments = encode_tile(tiling, plan, pixels, (sumi_tile){0, 0, height, width});
    } else {
        moments = sumi_plan_value(plan, "moments", SUMI_ELEMENT_ACTIVATION,
                                  height / tiling->factor * (width / tiling->factor), 2 * tiling->channels);
        tile_grid w = make_grid(pixels, tiling->rule, size, out_size);
        write_tiles(tiling, plan, &w, pixels, false, moments);
    }
    sumi_plan_prefix(plan, "%s", "");
    return moments;
}

void sumi_vae_posterior(const sumi_vae_tiling* tiling, sumi_plan* plan, sumi_value moments, sumi_value eps,
                        const sumi_tile_source* latents)
{
    sumi_plan_posterior(plan, &(sumi_plan_posterior_args){.moments = moments,
                                                          .eps = eps,
                                                          .channels = tiling->channels,
                                                          .packing = tiling->packing,
                                                          .width = latents->width * tiling->packing,
                                                          .statistics = tiling->statistics,
                                                          .latents = latents->value});
}
