// Cases of convolutions, group norms, tiles and pixels.
#include "cuda_ops/scene.h"

enum { DOWN = 1, UP = 2, PLUS = 4, UNBIASED = 8, SLICED = 16 };

// m x n pixels, k to a channels; b: size of the kernel; c: flags
static void build_conv(scene* s, const op_case* c)
{
    int out_height = c->c & UP   ? 2 * c->m
                   : c->c & DOWN ? c->m / 2
                                 : c->m,
        out_width = c->c & UP   ? 2 * c->n
                  : c->c & DOWN ? c->n / 2
                                : c->n;
    sumi_op_conv conv = {.height = c->m, .width = c->n, .kernel = c->b, .stride = c->c & DOWN ? 2 : 1};
    conv.upsamples = (c->c & UP) != 0;
    conv.pads_end = (c->c & DOWN) != 0;
    sumi_weight* w = c->c & SLICED ? one_time_slice(matrix_weight(s, c->a, 3 * c->k * c->b * c->b, c->dtype))
                                   : matrix_weight(s, c->a, c->k * c->b * c->b, c->dtype);
    sumi_value x = activations(s, c->m * c->n, c->k),
               residual = c->c & PLUS ? activations(s, out_height * out_width, c->a) : SUMI_NO_VALUE;
    expect(s,
           sumi_plan_conv(&s->plan, &(sumi_plan_conv_args){.label = "conv",
                                                           .x = x,
                                                           .weight = w,
                                                           .bias = c->c & UNBIASED ? NULL : bias_of(s, c->a, 0),
                                                           .shape = conv,
                                                           .residual = residual}),
           c->bound);
}
// A convolution and silu of the RMS norm of its pixels in the same place, whole and in two strips, the first one of d
// rows; d 0: whole alone.
static void build_conv_norm(scene* s, const op_case* c)
{
    const sumi_weight *w = matrix_weight(s, c->a, c->k * 9, c->dtype), *bias = bias_of(s, c->a, 0),
                      *norm = norm_weight(s, c->a, 0);
    const sumi_value x = activations(s, c->m * c->n, c->k);
    sumi_value from = x, pictures[2];
    if (c->d > 0) { // a bound value cannot have views
        from = sumi_plan_value(&s->plan, "x", SUMI_ELEMENT_ACTIVATION, c->m * c->n, c->k);
        sumi_plan_copy_rows(&s->plan, &(sumi_plan_copy_args){.x = x, .y = from});
    }
    for (int in_strips = 0; in_strips < (c->d > 0 ? 2 : 1); in_strips++) {
        const sumi_value y = sumi_plan_value(&s->plan, "y", SUMI_ELEMENT_ACTIVATION, c->m * c->n, c->a);
        for (int row = 0, end; row < c->m; row = end) {
            end = in_strips && row == 0 ? c->d : c->m;
            const int above = row > 0, below = end < c->m, rows = above + end - row + below;
            const sumi_span read_rows = {(row - above) * c->n, rows * c->n},
                            made_rows = {row * c->n, (end - row) * c->n};
            const sumi_value strip =
                in_strips ? sumi_plan_view(&s->plan, "strip", y, made_rows, (sumi_span){0, c->a}) : y;
            sumi_plan_conv(
                &s->plan,
                &(sumi_plan_conv_args){
                    .label = "conv",
                    .x = in_strips ? sumi_plan_view(&s->plan, "strip", from, read_rows, (sumi_span){0, c->k}) : from,
                    .weight = w,
                    .bias = bias,
                    .shape = {.height = rows, .width = c->n, .above = above, .below = below},
                    .y = strip});
            sumi_plan_norm(&s->plan,
                           &(sumi_plan_norm_args){
                               .label = "norm", .x = strip, .weight = norm, .eps = 1e-26f, .silu = true, .y = strip});
        }
        pictures[in_strips] = y;
        expect(s, pictures[in_strips], c->bound);
    }
    if (c->d > 0) {
        s->equal_pairs[0].a = 0, s->equal_pairs[0].b = 1;
        s->equal_pair_count = 1;
    }
}
// A GPU may fold the weights of an upsampling convolution: sums of up to four of them are rounded once. The effect is
// that of one more rounding of every weight.
static const op_case s_conv[] = {
    {"conv 1x1 pixel, 3 -> 5", build_conv, 1, 1, 3, 5, 3, .bound = STORED},
    {"conv 5x7, 3 -> 8", build_conv, 5, 7, 3, 8, 3, .bound = STORED},
    {"conv 9x6, 13 -> 11", build_conv, 9, 6, 13, 11, 3, PLUS, .bound = STORED},
    {"conv 16x16, 16 -> 64", build_conv, 16, 16, 16, 64, 3, .bound = STORED},
    {"conv 20x12, 64 -> 3", build_conv, 20, 12, 64, 3, 3, .bound = STORED},
    {"conv 17x19, 32 -> 32, residual", build_conv, 17, 19, 32, 32, 3, PLUS, .bound = STORED},
    {"conv 17x19, 32 -> 32, no bias, f32", build_conv, 17, 19, 32, 32, 3, UNBIASED, .dtype = SUMI_DTYPE_F32,
     .bound = STORED},
    {"conv 1x1, 9x5, 24 -> 40", build_conv, 9, 5, 24, 40, 1, .bound = STORED},
    {"conv 1x1, 9x5, 7 -> 9, residual", build_conv, 9, 5, 7, 9, 1, PLUS, .bound = STORED},
    {"conv down, 8x10, 16 -> 16", build_conv, 8, 10, 16, 16, 3, DOWN, .bound = STORED},
    {"conv down, 9x7, 5 -> 6", build_conv, 9, 7, 5, 6, 3, DOWN, .bound = STORED},
    {"conv up, 5x6, 16 -> 16", build_conv, 5, 6, 16, 16, 3, UP, .bound = CHAINED},
    {"conv up, 5x7, 6 -> 10", build_conv, 5, 7, 6, 10, 3, UP, .bound = CHAINED},
    {"conv up, 24x40, 64 -> 64", build_conv, 24, 40, 64, 64, 3, UP, .bound = CHAINED},
    {"conv up, 1x1 pixel, 8 -> 8", build_conv, 1, 1, 8, 8, 3, UP, .bound = CHAINED},
    {"conv 9x7, 12 -> 10, a slice in time", build_conv, 9, 7, 12, 10, 3, SLICED, .bound = STORED},
    {"conv 17x19, 32 -> 32, a slice in time, f32", build_conv, 17, 19, 32, 32, 3, SLICED, .dtype = SUMI_DTYPE_F32,
     .bound = STORED},
    {"conv up, 5x6, 16 -> 8, a slice in time, f16", build_conv, 5, 6, 16, 8, 3, UP | SLICED, .dtype = SUMI_DTYPE_F16,
     .bound = CHAINED},
    {"conv 12x20, 40 -> 24, a slice in time, e4m3", build_conv, 12, 20, 40, 24, 3, SLICED, .dtype = SUMI_DTYPE_F8_E4M3,
     .bound = STORED},
    {"conv 256x256, 96 -> 96, a slice in time", build_conv, 256, 256, 96, 96, 3, PLUS | SLICED, .bound = STORED},
    {"conv 128x128, 192 -> 192, a slice in time", build_conv, 128, 128, 192, 192, 3, PLUS | SLICED, .bound = STORED},
    {"conv 64x64, 384 -> 384, a slice in time", build_conv, 64, 64, 384, 384, 3, PLUS | SLICED, .bound = STORED},
    {"conv 256x256, 96 -> 3, a slice in time", build_conv, 256, 256, 96, 3, 3, SLICED, .bound = STORED},
    {"conv up, 128x128, 192 -> 96", build_conv, 128, 128, 192, 96, 3, UP, .bound = CHAINED},
    {"conv down, 256x256, 96 -> 96", build_conv, 256, 256, 96, 96, 3, DOWN, .bound = STORED},
    {"conv 128x128, 16 -> 512", build_conv, 128, 128, 16, 512, 3, .bound = STORED},
    {"conv 128x128, 512 -> 512, residual", build_conv, 128, 128, 512, 512, 3, PLUS, .bound = STORED},
    {"conv 96x64, 512 -> 512", build_conv, 96, 64, 512, 512, 3, .bound = STORED},
    {"conv 37x53, 512 -> 256", build_conv, 37, 53, 512, 256, 3, .bound = STORED},
    {"conv 256x256, 256 -> 256", build_conv, 256, 256, 256, 256, 3, PLUS, .bound = STORED},
    {"conv 512x512, 128 -> 128", build_conv, 512, 512, 128, 128, 3, .bound = STORED},
    {"conv 512x512, 128 -> 3", build_conv, 512, 512, 128, 3, 3, .bound = STORED},
    {"conv up, 64x64, 512 -> 512", build_conv, 64, 64, 512, 512, 3, UP, .bound = CHAINED},
    {"conv up, 128x128, 256 -> 256", build_conv, 128, 128, 256, 256, 3, UP, .bound = CHAINED},
    {"conv down, 256x256, 128 -> 128", build_conv, 256, 256, 128, 128, 3, DOWN, .bound = STORED},
    {"conv 256x256, 3 -> 128", build_conv, 256, 256, 3, 128, 3, .bound = STORED},
    // each tile of Hopper's kernels with borders: one patch, odd sizes, sizes that take the large tiles
    {"conv 8x16, 96 -> 96, residual", build_conv, 8, 16, 96, 96, 3, PLUS, .bound = STORED},
    {"conv 53x101, 96 -> 96", build_conv, 53, 101, 96, 96, 3, .bound = STORED},
    {"conv 253x250, 96 -> 96, residual", build_conv, 253, 250, 96, 96, 3, PLUS, .bound = STORED},
    {"conv 45x37, 96 -> 192", build_conv, 45, 37, 96, 192, 3, .bound = STORED},
    {"conv 8x16, 64 -> 192", build_conv, 8, 16, 64, 192, 3, .bound = STORED},
    {"conv 45x37, 192 -> 192, residual", build_conv, 45, 37, 192, 192, 3, PLUS, .bound = STORED},
    {"conv 45x37, 64 -> 96", build_conv, 45, 37, 64, 96, 3, .bound = STORED},
    {"conv 251x260, 192 -> 192, residual", build_conv, 251, 260, 192, 192, 3, PLUS, .bound = STORED},
    {"conv 91x93, 384 -> 384", build_conv, 91, 93, 384, 384, 3, .bound = STORED},
    {"conv 8x17, 64 -> 128, residual", build_conv, 8, 17, 64, 128, 3, PLUS, .bound = STORED},
    {"conv up, 21x27, 192 -> 96", build_conv, 21, 27, 192, 96, 3, UP, .bound = CHAINED},
    {"conv up, 19x33, 384 -> 192", build_conv, 19, 33, 384, 192, 3, UP, .bound = CHAINED},
    {"conv up, 128x128, 384 -> 192", build_conv, 128, 128, 384, 192, 3, UP, .bound = CHAINED},
    {"conv up, 21x27, 64 -> 128", build_conv, 21, 27, 64, 128, 3, UP, .bound = CHAINED},
    {"conv up, 20x24, 96 -> 96, residual", build_conv, 20, 24, 96, 96, 3, UP | PLUS, .bound = CHAINED},
    {"conv 24x25, 32 -> 256, residual", build_conv, 24, 25, 32, 256, 3, PLUS, .bound = STORED},
    {"conv 128x96, 4 -> 96", build_conv, 128, 96, 4, 96, 3, .bound = STORED},
    {"conv 64x48, 144 -> 4", build_conv, 64, 48, 144, 4, 3, .bound = STORED},
    {"conv up, 64x48, 288 -> 288, residual", build_conv, 64, 48, 288, 288, 3, UP | PLUS, .bound = CHAINED},
    {"conv up, 5x7, 6 -> 10, residual", build_conv, 5, 7, 6, 10, 3, UP | PLUS, .bound = CHAINED},
    {"conv down, 128x96, 192 -> 192, residual", build_conv, 128, 96, 192, 192, 3, DOWN | PLUS, .bound = STORED},
    {"conv down, 8x10, 16 -> 16, residual", build_conv, 8, 10, 16, 16, 3, DOWN | PLUS, .bound = STORED},
    {"conv 9x5, 16 -> 4, residual", build_conv, 9, 5, 16, 4, 3, PLUS, .bound = STORED},
    {"conv 33x63, 48 -> 4, no bias", build_conv, 33, 63, 48, 4, 3, UNBIASED, .bound = STORED},
    {"conv 250x187, 144 -> 4", build_conv, 250, 187, 144, 4, 3, .bound = STORED},
    {"conv 256x256, 144 -> 4", build_conv, 256, 256, 144, 4, 3, PLUS, .bound = STORED},
    {"conv 8x16, 144 -> 144, residual", build_conv, 8, 16, 144, 144, 3, PLUS, .bound = STORED},
    {"conv 45x37, 144 -> 144", build_conv, 45, 37, 144, 144, 3, .bound = STORED},
    {"conv 45x37, 288 -> 144", build_conv, 45, 37, 288, 144, 3, .bound = STORED},
    {"conv 45x37, 240 -> 144, residual", build_conv, 45, 37, 240, 144, 3, PLUS, .bound = STORED},
    {"conv 251x260, 144 -> 144, residual", build_conv, 251, 260, 144, 144, 3, PLUS, .bound = STORED},
    {"conv up, 21x27, 144 -> 144", build_conv, 21, 27, 144, 144, 3, UP, .bound = CHAINED},
    {"conv 45x37, 576 -> 288", build_conv, 45, 37, 576, 288, 3, .bound = STORED},
    {"conv 33x17, 1152 -> 576", build_conv, 33, 17, 1152, 576, 3, .bound = STORED},
    {"conv 33x17, 64 -> 1152", build_conv, 33, 17, 64, 1152, 3, .bound = STORED},
    {"conv up, 33x47, 576 -> 576, residual", build_conv, 33, 47, 576, 576, 3, UP | PLUS, .bound = CHAINED},
    {"conv up, 64x48, 192 -> 192, residual", build_conv, 64, 48, 192, 192, 3, UP | PLUS, .bound = CHAINED},
    {"conv up, 100x90, 288 -> 288, residual", build_conv, 100, 90, 288, 288, 3, UP | PLUS, .bound = CHAINED},
    {"conv 256x256, 4 -> 96", build_conv, 256, 256, 4, 96, 3, .bound = STORED},
    // the norm of a value that was rounded: two roundings
    {"conv and norm, 8x16, 96 -> 96", build_conv_norm, 8, 16, 96, 96, .bound = CHAINED},
    {"conv and norm, 53x101, 96 -> 96", build_conv_norm, 53, 101, 96, 96, .d = 32, .bound = CHAINED},
    {"conv and norm, 253x250, 96 -> 96", build_conv_norm, 253, 250, 96, 96, .d = 112, .bound = CHAINED},
    {"conv and norm, 45x37, 192 -> 96", build_conv_norm, 45, 37, 192, 96, .d = 16, .bound = CHAINED},
    {"conv and norm, 45x37, 192 -> 192", build_conv_norm, 45, 37, 192, 192, .d = 16, .bound = CHAINED},
    {"conv and norm, 251x260, 192 -> 192", build_conv_norm, 251, 260, 192, 192, .d = 128, .bound = CHAINED},
    {"conv and norm, 8x17, 64 -> 192", build_conv_norm, 8, 17, 64, 192, .bound = CHAINED},
    {"conv and norm, 33x40, 96 -> 192", build_conv_norm, 33, 40, 96, 192, .d = 16, .bound = CHAINED},
    {"conv and norm, 40x32, 384 -> 384", build_conv_norm, 40, 32, 384, 384, .d = 16, .bound = CHAINED},
    {"conv and norm, 7x9, 96 -> 96", build_conv_norm, 7, 9, 96, 96, .bound = CHAINED},
    {"conv and norm, 20x24, 13 -> 11", build_conv_norm, 20, 24, 13, 11, .bound = CHAINED},
};
CASE_TABLE(conv);
// An image of m x n pixels, k to a channels, whole and in strips of b rows of the input, from the last to the first; c:
// flags. The strips write into the right half of the columns of a wider value. They read their residual from there,
// too.
static void build_strips(scene* s, const op_case* c)
{
    int scale = c->c & UP ? 2 : 1, width = scale * c->n, pixels = scale * c->m * width;
    bool adds = (c->c & PLUS) != 0;
    sumi_weight *w = matrix_weight(s, c->a, c->k * 9, c->dtype), *bias = bias_of(s, c->a, 0);
    sumi_value x = activations(s, c->m * c->n, c->k), residual = adds ? activations(s, pixels, c->a) : SUMI_NO_VALUE;
    sumi_op_conv conv = {.height = c->m, .width = c->n, .upsamples = scale == 2};
    sumi_value whole = sumi_plan_conv(
        &s->plan, &(sumi_plan_conv_args){
                      .label = "conv", .x = x, .weight = w, .bias = bias, .shape = conv, .residual = residual});
    sumi_value from = sumi_plan_value(&s->plan, "x", SUMI_ELEMENT_ACTIVATION, c->m * c->n, c->k);
    sumi_plan_copy_rows(&s->plan, &(sumi_plan_copy_args){.x = x, .y = from}); // a bound value cannot have views
    sumi_weight *one = matrix_weight(s, c->a, c->a, c->dtype), *norm = norm_weight(s, c->a, c->dtype),
                *norm_bias = bias_of(s, c->a, c->dtype);
    sumi_value wide = sumi_plan_value(&s->plan, "wide", SUMI_ELEMENT_ACTIVATION, pixels, 2 * c->a);
    sumi_value start = adds ? residual : whole;
    sumi_plan_linear(&s->plan, &(sumi_plan_linear_args){
                                   .label = "left", .x = start, .weight = one, .y = wide, .writes_some_columns = true});
    sumi_plan_linear(
        &s->plan,
        &(sumi_plan_linear_args){
            .label = "right", .x = start, .weight = one, .y = wide, .writes_some_columns = true, .y_column = c->a});
    sumi_value right = sumi_plan_view(&s->plan, "right", wide, (sumi_span){0, pixels}, (sumi_span){c->a, c->a});
    for (int end = c->m; end > 0;) {
        int row = (end - 1) / c->b * c->b, above = row > 0, below = end < c->m, rows = above + end - row + below,
            first = scale * row * width;
        sumi_op_conv strip = {.height = rows, .width = c->n, .upsamples = scale == 2, .above = above, .below = below};
        const sumi_span read_rows = {(row - above) * c->n, rows * c->n};
        const sumi_span made_rows = {first, scale * (end - row) * width};
        sumi_value y = sumi_plan_view(&s->plan, "strip", right, made_rows, (sumi_span){0, c->a});
        sumi_plan_conv(&s->plan, &(sumi_plan_conv_args){
                                     .label = "conv",
                                     .x = sumi_plan_view(&s->plan, "strip", from, read_rows, (sumi_span){0, c->k}),
                                     .weight = w,
                                     .bias = bias,
                                     .shape = strip,
                                     .residual = adds ? y : SUMI_NO_VALUE,
                                     .y = y});
        end = row;
    }
    // a group norm as in the decoder, with the sums of what the strips wrote
    const int32_t groups = c->a % 32 == 0 ? 32 : c->a / 8;
    sumi_plan_group_norm(&s->plan,
                         &(sumi_plan_group_norm_args){.label = "norm",
                                                      .x = right,
                                                      .sums = sumi_plan_group_sums(&s->plan, "norm", right, groups),
                                                      .weight = norm,
                                                      .bias = norm_bias,
                                                      .groups = groups,
                                                      .eps = 1e-6f,
                                                      .silu = true,
                                                      .y = right});
    expect(s, wide, adds ? 2 * c->bound : c->bound);
}
static const op_case s_strips[] = {
    {"strips 37x20, 32 -> 32", build_strips, 37, 20, 32, 32, 16, .bound = CHAINED},
    {"strips 40x10, 32 -> 64, residual", build_strips, 40, 10, 32, 64, 16, PLUS, .bound = CHAINED},
    {"strips up, 20x12, 64 -> 32", build_strips, 20, 12, 64, 32, 8, UP, .bound = 2 * CHAINED},
    {"strips 64x48, 256 -> 128", build_strips, 64, 48, 256, 128, 16, .bound = CHAINED},
    {"strips 72x48, 128 -> 128, residual", build_strips, 72, 48, 128, 128, 24, PLUS, .bound = CHAINED},
    {"strips up, 40x32, 256 -> 256", build_strips, 40, 32, 256, 256, 8, UP, .bound = 2 * CHAINED},
    {"strips 80x50, 512 -> 512, residual", build_strips, 80, 50, 512, 512, 24, PLUS, .bound = CHAINED},
    {"strips 56x35, 256 -> 256, residual", build_strips, 56, 35, 256, 256, 24, PLUS, .bound = CHAINED},
    {"strips 45x37, 64 -> 512", build_strips, 45, 37, 64, 512, 16, .bound = CHAINED},
    {"strips 40x37, 32 -> 128", build_strips, 40, 37, 32, 128, 16, .bound = CHAINED},
    {"strips 40x37, 32 -> 256", build_strips, 40, 37, 32, 256, 16, .bound = CHAINED},
    {"strips 40x37, 32 -> 512", build_strips, 40, 37, 32, 512, 16, .bound = CHAINED},
    {"strips 52x33, 96 -> 96, residual", build_strips, 52, 33, 96, 96, 16, PLUS, .bound = CHAINED},
    {"strips up, 26x37, 384 -> 192", build_strips, 26, 37, 384, 192, 16, UP, .bound = 2 * CHAINED},
    {"strips 53x40, 144 -> 144, residual", build_strips, 53, 40, 144, 144, 16, PLUS, .bound = CHAINED},
    {"strips up, 26x37, 192 -> 192, residual", build_strips, 26, 37, 192, 192, 16, UP | PLUS, .bound = 2 * CHAINED},
    {"strips up, 40x21, 96 -> 96, residual", build_strips, 40, 21, 96, 96, 16, UP | PLUS, .bound = 2 * CHAINED},
};
CASE_TABLE(strips);
// m rows, n channels, k groups; a: with SiLU; b: the inputs have a mean of 30
static void build_group(scene* s, const op_case* c)
{
    sumi_value x = activations_of(s, c->m, c->n, 1.0f, c->b ? 30.0f : 0.0f);
    sumi_weight *w = norm_weight(s, c->n, c->dtype), *b = bias_of(s, c->n, c->dtype);
    expect(s,
           sumi_plan_group_norm(
               &s->plan,
               &(sumi_plan_group_norm_args){
                   .label = "norm", .x = x, .weight = w, .bias = b, .groups = c->k, .eps = 1e-6f, .silu = c->a != 0}),
           c->bound);
}
static const op_case s_group_norm[] = {
    {"group norm 1 x 4, 2 groups", build_group, 1, 4, 2, .bound = STORED},
    {"group norm 35 x 12, 3 groups, SiLU", build_group, 35, 12, 3, 1, .bound = STORED},
    {"group norm 77 x 21, 7 groups", build_group, 77, 21, 7, .bound = STORED},
    {"group norm 300 x 64, 32 groups, mean 30", build_group, 300, 64, 32, 0, 1, .bound = STORED},
    {"group norm 5000 x 32, 8 groups, SiLU, mean 30", build_group, 5000, 32, 8, 1, 1, .bound = STORED},
    {"group norm 16384 x 512, 32 groups, SiLU", build_group, 16384, 512, 32, 1, .bound = STORED},
    {"group norm 16384 x 512, 32 groups, mean 30", build_group, 16384, 512, 32, 0, 1, .bound = STORED},
    {"group norm 65536 x 256, 32 groups, SiLU", build_group, 65536, 256, 32, 1, .bound = STORED},
    {"group norm 262144 x 128, 32 groups, SiLU", build_group, 262144, 128, 32, 1, .bound = STORED},
};
CASE_TABLE(group_norm);
static void build_blend(scene* s, const op_case* c)
{
    // a tile of m x n with k channels; a: rows of the tile above; b: columns of the tile to the left; c: extent
    sumi_value tile = activations(s, c->m * c->n, c->k),
               above = c->a ? activations(s, c->a * c->n, c->k) : SUMI_NO_VALUE,
               left = c->b ? activations(s, c->m * c->b, c->k) : SUMI_NO_VALUE;
    sumi_plan_tile_blend(&s->plan, &(sumi_plan_tile_blend_args){.tile = tile,
                                                                .height = c->m,
                                                                .width = c->n,
                                                                .above = above,
                                                                .above_height = c->a,
                                                                .left = left,
                                                                .left_width = c->b,
                                                                .extent = c->c});
    expect(s, tile, c->bound); // the corner is blended twice, and may be rounded twice
}
static void build_place(scene* s, const op_case* c)
{
    // m x n of a tile of m x (n + 3) with k channels are copied into the second of two images
    sumi_value picture = activations(s, 2 * (c->m + 5) * (c->n + 4), c->k);
    sumi_plan_tile_place(&s->plan, &(sumi_plan_tile_place_args){.tile = activations(s, c->m * (c->n + 3), c->k),
                                                                .tile_width = c->n + 3,
                                                                .picture = picture,
                                                                .picture_height = c->m + 5,
                                                                .picture_width = c->n + 4,
                                                                .copied = (sumi_tile){4, 2, c->m, c->n},
                                                                .per_item = c->a != 0});
    expect(s, picture, EXACT);
}
// k: bytes of a pixel; a: channels, 0: 3
static void build_pixels_in(scene* s, const op_case* c)
{
    sumi_value bytes = random_bytes(s, (c->m + 3) * (c->n + 2), c->k);
    expect(s, sumi_plan_pixels_in(&s->plan, bytes, c->n + 2, (sumi_tile){2, 1, c->m, c->n}, c->a ? c->a : 3), c->bound);
}
// m x n cells of a x a patches of k x k pixels, b frames; the cells are listed from the last to the first
static void build_patches_in(scene* s, const op_case* c)
{
    bool is_new;
    const int cells = c->m * c->n, side = c->k * c->a;
    int32_t* order = next_block_of_case(s, (size_t)cells * sizeof *order, &is_new);
    for (int i = 0; is_new && i < cells; i++) order[i] = cells - 1 - i;
    sumi_op_patches_in layout = {.height = c->m * side,
                                 .width = c->n * side,
                                 .patch = c->k,
                                 .cell = c->a,
                                 .frames = c->b,
                                 .mean = {0.48f, 0.25f, 0.41f},
                                 .deviation = {0.27f, 0.5f, 1.0f}};
    expect(s,
           sumi_plan_patches_in(&s->plan, random_bytes(s, layout.height * layout.width, 3),
                                add_input(s, SUMI_ELEMENT_INT, cells, 1, order, true), &layout),
           c->bound);
}
// m x n pixels, k to a channels; b: frames; c: UP, DOWN, or neither for one pixel to one pixel
static void build_shortcut(scene* s, const op_case* c)
{
    expect(s,
           sumi_plan_shortcut(&s->plan, &(sumi_plan_shortcut_args){.label = "shortcut",
                                                                   .x = activations(s, c->m * c->n, c->k),
                                                                   .shape = {.width = c->n,
                                                                             .frames = c->b,
                                                                             .scale = c->c & (UP | DOWN) ? 2 : 1,
                                                                             .upsamples = (c->c & UP) != 0},
                                                                   .channels = c->a}),
           c->bound);
}
// m pixels of b channels, 0: 3
static void build_pixels_out(scene* s, const op_case* c)
{
    bool is_new;
    const int channels = c->b ? c->b : 3;
    size_t count = (size_t)c->m * (size_t)channels;
    float* x = next_block_of_case(s, 4 * count, &is_new);
    for (size_t i = 0; is_new && i < count; i++) x[i] = round_to_bf16(0.7f * random_normal(s->store));
    if (is_new && c->a) x[0] = NAN, x[count / 2] = INFINITY, x[count - 1] = -INFINITY;
    int32_t* five = next_block_of_case(s, 4, &is_new);
    *five = 5;
    sumi_value bad = add_input(s, SUMI_ELEMENT_INT, 1, 1, five, true),
               bytes = sumi_plan_value(&s->plan, "bytes", SUMI_ELEMENT_BYTE, c->m, channels);
    sumi_plan_pixels_out(&s->plan, add_input(s, SUMI_ELEMENT_ACTIVATION, c->m, channels, x, false), bytes, bad);
    expect(s, bytes, EXACT);
    expect(s, bad, EXACT);
}
// m pixels, n images; k: channels, 0: 3
static void build_composite(scene* s, const op_case* c)
{
    const int channels = c->k ? c->k : 3;
    sumi_value pictures = activations(s, c->n * c->m, channels);
    bool is_new;
    uint8_t* opacity = next_block_of_case(s, (size_t)c->m, &is_new);
    for (int i = 0; is_new && i < c->m; i++) opacity[i] = (uint8_t)(i % 5 == 0 ? 0 : i % 5 == 1 ? 255 : i * 37);
    sumi_plan_composite(&s->plan, pictures, random_bytes(s, c->m, channels),
                        add_input(s, SUMI_ELEMENT_BYTE, c->m, 1, opacity, true));
    expect(s, pictures, c->bound);
}
static const op_case s_pictures[] = {
    {"blend 6x5x2, above 4, left 3", build_blend, 6, 5, 2, 4, 3, 4, .bound = CHAINED},
    {"blend 64x64x3, above 64, left 64", build_blend, 64, 64, 3, 64, 64, 16, .bound = CHAINED},
    {"blend 30x20x3, above alone", build_blend, 30, 20, 3, 30, 0, 8, .bound = CHAINED},
    {"blend 30x20x3, left alone, short", build_blend, 30, 20, 3, 0, 5, 8, .bound = CHAINED},
    {"place 3x2x2", build_place, 3, 2, 2, .counter = 1},
    {"place 3x2x2, item 1", build_place, 3, 2, 2, 1, .counter = 1},
    {"place 200x300x3, item 1", build_place, 200, 300, 3, 1, .counter = 1},
    {"place 20x30x32, first", build_place, 20, 30, 32, .bound = EXACT},
    {"pixels in 3x5", build_pixels_in, 3, 5, 3, .bound = STORED},
    {"pixels in 200x301", build_pixels_in, 200, 301, 3, .bound = STORED},
    {"patches in, 1x1 cell of 1", build_patches_in, 1, 1, 1, 1, 1, .bound = STORED},
    {"patches in, 2x3 cells of 3x3 of 5", build_patches_in, 2, 3, 5, 3, 3, .bound = STORED},
    {"patches in, 3x4 cells of 2x2 of 14", build_patches_in, 3, 4, 14, 2, 2, .bound = STORED},
    {"patches in, vision 37x37", build_patches_in, 37, 37, 14, 2, 2, .bound = STORED},
    {"composite, 20", build_composite, 20, 1, .bound = STORED},
    {"composite, 3 pictures of 333x77", build_composite, 333 * 77, 3, .bound = STORED},
    {"composite, 1024x1024", build_composite, 1048576, 1, .bound = STORED},
    {"pixels out, 20", build_pixels_out, 20, .a = 1},
    {"pixels out, 1024x1024", build_pixels_out, 1048576, .bound = EXACT},
    {"pixels out, 333x77, three not finite", build_pixels_out, 333 * 77, .a = 1},
    {"pixels in 3x5 with a fourth byte", build_pixels_in, 3, 5, 4, .bound = STORED},
    {"pixels in 200x301 with a fourth byte", build_pixels_in, 200, 301, 4, .bound = STORED},
    {"pixels in 3x5 with alpha", build_pixels_in, 3, 5, 4, 4, .bound = STORED},
    {"pixels in 200x301 with alpha", build_pixels_in, 200, 301, 4, 4, .bound = STORED},
    {"pixels out, 333x77 with alpha, three not finite", build_pixels_out, 333 * 77, .a = 1, .b = 4},
    {"composite with alpha, 2 pictures of 333x77", build_composite, 333 * 77, 2, 4, .bound = STORED},
    {"shortcut up, 4x6, 3 -> 3", build_shortcut, 4, 6, 3, 3, 2, UP, .bound = EXACT},
    {"shortcut up, 5x7, 2 -> 3, one frame", build_shortcut, 5, 7, 2, 3, 1, UP, .bound = EXACT},
    {"shortcut up, 33x20, 1152 -> 1152", build_shortcut, 33, 20, 1152, 1152, 2, UP, .bound = EXACT},
    {"shortcut up, 64x64, 1152 -> 576", build_shortcut, 64, 64, 1152, 576, 2, UP, .bound = EXACT},
    {"shortcut up, 128x96, 576 -> 288, one frame", build_shortcut, 128, 96, 576, 288, 1, UP, .bound = EXACT},
    {"shortcut down, 4x6, 3 -> 3, one frame", build_shortcut, 4, 6, 3, 3, 1, DOWN, .bound = STORED},
    {"shortcut down, 64x96, 8 -> 8", build_shortcut, 64, 96, 8, 8, 2, DOWN, .bound = STORED},
    {"shortcut down, 256x128, 96 -> 96, one frame", build_shortcut, 256, 128, 96, 96, 1, DOWN, .bound = STORED},
    {"shortcut down, 128x64, 192 -> 384", build_shortcut, 128, 64, 192, 384, 2, DOWN, .bound = STORED},
    {"shortcut 7x5, 6 -> 2, one frame", build_shortcut, 7, 5, 6, 2, 1, .bound = STORED},
};
CASE_TABLE(pictures);
