// The verbs of plan.h on pictures and on the feature maps of an autoencoder.
#include "base/assert.h"
#include "plan/verb.h"

sumi_value sumi_plan_pixels_in(sumi_plan* plan, sumi_value bytes, int32_t picture_width, sumi_tile tile,
                               int32_t channels)
{
    const int32_t cols = sumi_plan_cols(plan, bytes);
    if ((channels != 3 && channels != 4) || channels > cols)
        sumi_plan_mismatch(plan, "pixels_in", "the image has too few bytes for its channels");
    if ((cols != 3 && cols != 4) || tile.x < 0 || tile.y < 0 || tile.x + tile.width > picture_width
        || (int64_t)(tile.y + tile.height) * picture_width > sumi_plan_rows(plan, bytes))
        sumi_plan_mismatch(plan, "pixels_in", "the tile leaves the image");
    sumi_value out = sumi_plan_value(plan, "pixels", SUMI_ELEMENT_ACTIVATION, tile.height * tile.width, channels);
    return sumi_plan_add_op(
        plan, "pixels_in",
        &(sumi_op){
            .kind = SUMI_OP_PIXELS_IN,
            .in = {bytes},
            .out = out,
            .u.pixels = {.width = tile.width, .y = tile.y, .x = tile.x, .picture_width = picture_width, .cols = cols}});
}

// Expands `values` to one value per channel, in memory of the plan. NULL after an error.
static const float* channel_values(sumi_plan* plan, const float* values, int32_t count, int32_t channels)
{
    float* expanded = sumi_plan_has_failed(plan) ? NULL : sumi_plan_reserve(plan, (size_t)channels * sizeof *expanded);
    for (int32_t c = 0; expanded != NULL && c < channels; c++) expanded[c] = values[count == 1 ? 0 : c];
    return expanded;
}

static void check_statistics(sumi_plan* plan, const char* verb, const sumi_latent_statistics* s, int32_t channels)
{
    if (s->scale == NULL || s->shift == NULL || (s->count != 1 && s->count != channels)) {
        sumi_plan_mismatch(plan, verb, "there is one scale and shift for all channels, or one for each");
        return;
    }
    for (int32_t c = 0; c < s->count; c++) {
        if (s->scale[c] == 0.0f) sumi_plan_mismatch(plan, verb, "a scale of 0 loses what the latents were");
    }
}

sumi_value sumi_plan_patches_in(sumi_plan* plan, sumi_value bytes, sumi_value cells, const sumi_op_patches_in* layout)
{
    const sumi_op_patches_in p = *layout;
    bool is_known = p.patch > 0 && p.cell > 0 && p.frames > 0 && p.patch <= 256 && p.cell <= 256 && p.frames <= 16;
    int32_t side = is_known ? p.patch * p.cell : 1;
    int64_t pixels = (int64_t)p.height * p.width, count = pixels / ((int64_t)side * side);
    if (!is_known || p.height < 1 || p.width < 1 || p.height % side != 0 || p.width % side != 0
        || sumi_plan_cols(plan, bytes) != 3 || sumi_plan_rows(plan, bytes) != pixels
        || !sumi_plan_is_shape(plan, cells, (int32_t)count, 1)) {
        sumi_plan_mismatch(plan, "patches_in", "the image is not the cells that are listed");
        return SUMI_NO_VALUE;
    }
    for (int32_t c = 0; c < 3; c++) {
        if (!(p.deviation[c] > 0.0f)) sumi_plan_mismatch(plan, "patches_in", "a deviation is not above 0");
    }
    sumi_value out = sumi_plan_value(plan, "patches", SUMI_ELEMENT_ACTIVATION, (int32_t)count * p.cell * p.cell,
                                     3 * p.frames * p.patch * p.patch);
    return sumi_plan_add_op(plan, "patches_in",
                            &(sumi_op){.kind = SUMI_OP_PATCHES_IN, .in = {bytes, cells}, .out = out, .u.patches = p});
}

void sumi_plan_posterior(sumi_plan* plan, const sumi_plan_posterior_args* args)
{
    const sumi_latent_statistics* statistics = &args->statistics;
    const int32_t packing = args->packing != 0 ? args->packing : 1, area = packing * packing,
                  pixels = sumi_plan_rows(plan, args->moments), plane = pixels / area,
                  channels = args->channels * area; // of the latents
    if (!sumi_is_packing(packing, args->width, pixels) || sumi_plan_cols(plan, args->moments) != 2 * args->channels
        || !sumi_plan_is_shape(plan, args->latents, channels, plane)
        || (args->eps.id != 0 && !sumi_plan_is_shape(plan, args->eps, channels, plane)))
        sumi_plan_mismatch(plan, "posterior", "moments, noise and latents do not fit");
    check_statistics(plan, "posterior", statistics, channels);
    sumi_plan_add_op(
        plan, "posterior",
        &(sumi_op){.kind = SUMI_OP_POSTERIOR,
                   .in = {args->moments, args->eps},
                   .out = args->latents,
                   .u.posterior = {.channels = args->channels,
                                   .packing = packing,
                                   .width = packing > 1 ? args->width : 0,
                                   .scale = channel_values(plan, statistics->scale, statistics->count, channels),
                                   .shift = channel_values(plan, statistics->shift, statistics->count, channels)}});
}

sumi_value sumi_plan_latent_in(sumi_plan* plan, const sumi_plan_latent_args* args)
{
    sumi_tile tile = args->tile;
    const int32_t packing = args->packing != 0 ? args->packing : 1, area = packing * packing,
                  pixels = args->height * args->width, channels = args->channels * area; // of the latents
    if (!sumi_is_packing(packing, args->width, pixels) || sumi_plan_cols(plan, args->latents) != pixels / area
        || tile.y < 0 || tile.x < 0 || tile.y + tile.height > args->height || tile.x + tile.width > args->width)
        sumi_plan_mismatch(plan, "latent_in", "the tile leaves the latents");
    const sumi_latent_statistics* statistics = &args->statistics;
    check_statistics(plan, "latent_in", statistics, channels);
    sumi_value y =
        sumi_plan_value(plan, "latent_picture", SUMI_ELEMENT_ACTIVATION, tile.height * tile.width, args->channels);
    return sumi_plan_add_op(
        plan, "latent_in",
        &(sumi_op){.kind = SUMI_OP_LATENT_IN,
                   .in = {args->latents},
                   .out = y,
                   .u.latent_in = {.channels = args->channels,
                                   .height = args->height,
                                   .width = args->width,
                                   .packing = packing,
                                   .y = tile.y,
                                   .x = tile.x,
                                   .tile_height = tile.height,
                                   .tile_width = tile.width,
                                   .scale = channel_values(plan, statistics->scale, statistics->count, channels),
                                   .shift = channel_values(plan, statistics->shift, statistics->count, channels),
                                   .per_item = args->per_item}});
}

sumi_value sumi_plan_conv(sumi_plan* plan, const sumi_plan_conv_args* args)
{
    const sumi_weight* weight = args->weight;
    sumi_op_conv conv = args->shape;
    conv.kernel = conv.kernel != 0 ? conv.kernel : 3;
    conv.stride = conv.stride != 0 ? conv.stride : 1;
    int32_t scale = conv.upsamples ? 2 : 1;
    int32_t rows = (conv.height - conv.above - conv.below) * scale / conv.stride * (conv.width * scale / conv.stride);
    sumi_value x = args->x, residual = args->residual, y = args->y;
    if (y.id == 0) y = sumi_plan_value(plan, "conv", SUMI_ELEMENT_ACTIVATION, rows, weight->rows);
    bool halves = conv.stride == 2 && conv.kernel == 3 && conv.pads_end && conv.height >= 2 && conv.width >= 2;
    bool is_known = (conv.kernel == 1 || conv.kernel == 3) && (conv.stride == 1 || halves);
    if (sumi_plan_is_adapted(plan, weight)) {
        sumi_fail(&plan->error, SUMI_NOT_SUPPORTED,
                  "%s%s: an adapter changes the weight %s of a convolution: only linear layers can be adapted",
                  plan->label_prefix, args->label, weight->name);
    }
    bool is_strip = conv.above != 0 || conv.below != 0, are_margins_valid = ((conv.above | conv.below) & ~1) == 0;
    bool is_strip_valid = !is_strip || (are_margins_valid && conv.kernel == 3 && conv.stride == 1 && !conv.pads_end);
    if (!is_known || !is_strip_valid || sumi_plan_rows(plan, x) != conv.height * conv.width
        || weight->cols != sumi_plan_cols(plan, x) * conv.kernel * conv.kernel
        || (args->bias != NULL && args->bias->cols != weight->rows) || !sumi_plan_is_shape(plan, y, rows, weight->rows)
        || (residual.id != 0
            && (!sumi_plan_is_shape(plan, residual, rows, weight->rows)
                || sumi_plan_pitch(plan, residual) != sumi_plan_pitch(plan, y))))
        sumi_plan_mismatch(plan, args->label, "image, kernel, bias, residual or output do not fit");
    return sumi_plan_add_op(
        plan, args->label,
        &(sumi_op){
            .kind = SUMI_OP_CONV, .in = {x, residual}, .out = y, .weight = weight, .bias = args->bias, .u.conv = conv});
}

sumi_value sumi_plan_shortcut(sumi_plan* plan, const sumi_plan_shortcut_args* args)
{
    sumi_op_shortcut shape = args->shape;
    shape.frames = shape.frames != 0 ? shape.frames : 1;
    shape.scale = shape.scale != 0 ? shape.scale : 2;
    const int32_t pixels = sumi_plan_rows(plan, args->x), area = shape.scale * shape.scale;
    if (!sumi_is_shortcut(&shape, sumi_plan_cols(plan, args->x), args->channels)
        || pixels % (shape.width * (shape.upsamples ? 1 : shape.scale)) != 0) {
        sumi_plan_mismatch(plan, args->label, "the image's pixels and channels do not divide into those of the result");
        return SUMI_NO_VALUE;
    }
    const int32_t rows = shape.upsamples ? pixels * area : pixels / area;
    const sumi_value y =
        args->y.id != 0 ? args->y : sumi_plan_value(plan, "shortcut", SUMI_ELEMENT_ACTIVATION, rows, args->channels);
    if (!sumi_plan_is_shape(plan, y, rows, args->channels))
        sumi_plan_mismatch(plan, args->label, "the output is not of the size that the shortcut makes");
    return sumi_plan_add_op(plan, args->label,
                            &(sumi_op){.kind = SUMI_OP_SHORTCUT, .in = {args->x}, .out = y, .u.shortcut = shape});
}

sumi_value sumi_plan_group_sums(sumi_plan* plan, const char* label, sumi_value x, int32_t groups)
{
    if (groups < 1 || sumi_plan_cols(plan, x) % groups != 0)
        sumi_plan_mismatch(plan, label, "the channels are not a multiple of the groups");
    sumi_plan_add_op(plan, label,
                     &(sumi_op){.kind = SUMI_OP_GROUP_SUMS,
                                .in = {x},
                                .u.group = {.groups = groups, .all_rows = sumi_plan_rows(plan, x)}});
    if (sumi_plan_has_failed(plan)) return SUMI_NO_VALUE;
    sumi_op* op = &plan->ops[plan->op_count - 1];
    op->u.group.block_count = op->range_count;
    op->u.group.block_rows = op->range_rows;
    op->out = sumi_plan_value(plan, "group_sums", SUMI_ELEMENT_FLOAT, op->range_count, groups * 2);
    return op->out;
}

// The GROUP_SUMS op that writes `sums`. Its parameters say how the rows are divided into blocks.
static const sumi_op* find_group_sums(const sumi_plan* plan, sumi_value sums)
{
    for (size_t i = plan->op_count; i-- > 0;) {
        if (plan->ops[i].kind == SUMI_OP_GROUP_SUMS && plan->ops[i].out.id == sums.id) return &plan->ops[i];
    }
    return NULL;
}

sumi_value sumi_plan_group_norm(sumi_plan* plan, const sumi_plan_group_norm_args* args)
{
    sumi_value x = args->x, sums = args->sums, y = args->y;
    int32_t rows = sumi_plan_rows(plan, x), cols = sumi_plan_cols(plan, x);
    if (sums.id == 0) sums = sumi_plan_group_sums(plan, args->label, x, args->groups);
    if (y.id == 0) y = sumi_plan_value(plan, "group_normed", SUMI_ELEMENT_ACTIVATION, rows, cols);
    if (sumi_plan_has_failed(plan)) return SUMI_NO_VALUE;
    const sumi_op* sums_op = find_group_sums(plan, sums);
    if (sums_op == NULL || sums_op->u.group.groups != args->groups || sumi_plan_cols(plan, sums_op->in[0]) != cols
        || args->weight->cols != cols || args->bias->cols != cols || !sumi_plan_is_shape(plan, y, rows, cols)) {
        sumi_plan_mismatch(plan, args->label,
                           "the sums are of another image, or the weight or the output has another width");
        return SUMI_NO_VALUE;
    }
    sumi_op_group group = sums_op->u.group;
    group.eps = args->eps;
    group.silu = args->silu;
    return sumi_plan_add_op(plan, args->label,
                            &(sumi_op){.kind = SUMI_OP_GROUP_NORM,
                                       .in = {x, sums},
                                       .out = y,
                                       .weight = args->weight,
                                       .bias = args->bias,
                                       .u.group = group});
}

void sumi_plan_tile_blend(sumi_plan* plan, const sumi_plan_tile_blend_args* args)
{
    int32_t height = args->height, width = args->width, cols = sumi_plan_cols(plan, args->tile);
    if (sumi_plan_rows(plan, args->tile) != height * width
        || (args->above.id != 0 && !sumi_plan_is_shape(plan, args->above, args->above_height * width, cols))
        || (args->left.id != 0 && !sumi_plan_is_shape(plan, args->left, height * args->left_width, cols)))
        sumi_plan_mismatch(plan, "tile_blend", "the tiles above and to the left have other sizes");
    sumi_plan_add_op(plan, "tile_blend",
                     &(sumi_op){.kind = SUMI_OP_TILE_BLEND,
                                .in = {args->tile, args->above, args->left},
                                .out = args->tile,
                                .u.blend = {.height = height,
                                            .width = width,
                                            .above_height = args->above_height,
                                            .left_width = args->left_width,
                                            .extent = args->extent}});
}

void sumi_plan_tile_place(sumi_plan* plan, const sumi_plan_tile_place_args* args)
{
    sumi_tile copied = args->copied;
    int32_t picture_rows = args->picture_height * args->picture_width;
    if (copied.width > args->tile_width || copied.y < 0 || copied.x < 0
        || copied.height * args->tile_width > sumi_plan_rows(plan, args->tile)
        || copied.y + copied.height > args->picture_height || copied.x + copied.width > args->picture_width
        || sumi_plan_cols(plan, args->tile) != sumi_plan_cols(plan, args->picture) || picture_rows < 1
        || sumi_plan_rows(plan, args->picture) % picture_rows != 0)
        sumi_plan_mismatch(plan, "tile_place", "the tile does not fit the image");
    sumi_plan_add_op(plan, "tile_place",
                     &(sumi_op){.kind = SUMI_OP_TILE_PLACE,
                                .in = {args->tile, args->picture},
                                .out = args->picture,
                                .u.tile_place = {.tile_width = args->tile_width,
                                                 .picture_width = args->picture_width,
                                                 .y = copied.y,
                                                 .x = copied.x,
                                                 .height = copied.height,
                                                 .width = copied.width,
                                                 .per_item = args->per_item,
                                                 .item_rows = picture_rows}});
}

void sumi_plan_composite(sumi_plan* plan, sumi_value pictures, sumi_value beneath, sumi_value opacity)
{
    const int32_t rows = sumi_plan_rows(plan, beneath), cols = sumi_plan_cols(plan, pictures);
    if ((cols != 3 && cols != 4) || rows < 1 || sumi_plan_rows(plan, pictures) % rows != 0
        || !sumi_plan_is_shape(plan, beneath, rows, cols) || !sumi_plan_is_shape(plan, opacity, rows, 1)
        || sumi_plan_info(plan, beneath)->element != SUMI_ELEMENT_BYTE
        || sumi_plan_info(plan, opacity)->element != SUMI_ELEMENT_BYTE)
        sumi_plan_mismatch(plan, "composite", "images, what is beneath and the opacity are not of one size");
    sumi_plan_add_op(plan, "composite",
                     &(sumi_op){.kind = SUMI_OP_COMPOSITE, .in = {pictures, beneath, opacity}, .out = pictures});
}

void sumi_plan_pixels_out(sumi_plan* plan, sumi_value picture, sumi_value bytes, sumi_value not_finite)
{
    const int32_t rows = sumi_plan_rows(plan, picture), cols = sumi_plan_cols(plan, picture);
    if ((cols != 3 && cols != 4) || !sumi_plan_is_shape(plan, bytes, rows, cols)
        || sumi_plan_info(plan, not_finite)->element != SUMI_ELEMENT_INT)
        sumi_plan_mismatch(plan, "pixels_out", "image and bytes are one shape of three or four columns");
    sumi_plan_add_op(plan, "pixels_out",
                     &(sumi_op){.kind = SUMI_OP_PIXELS_OUT, .in = {picture, not_finite}, .out = bytes});
}
