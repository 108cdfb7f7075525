// Cases of ops on latents.
#include "cuda_ops/scene.h"

static void build_patches(scene* s, const op_case* c)
{
    // m x n latents of k channels; a: 1 unpatchify, otherwise patchify; 2 by channel; 4 patches of one pixel
    const int patch = c->a & 4 ? 1 : 2, tokens = c->m / patch * (c->n / patch), features = patch * patch * c->k;
    const int32_t items[3] = {1, 0, 1}, begins[3] = {2 * tokens + 3, 0, tokens + 1};
    sumi_patch_layout layout = {c->m, c->n, c->k, patch, 3, items, begins, (c->a & 2) != 0};
    if ((c->a & 1) == 0) {
        sumi_value rows = activations(s, 3 * tokens + 5, features);
        sumi_plan_patchify(&s->plan, floats(s, 2 * c->k, c->m * c->n), &layout, rows);
        expect(s, rows, EXACT);
    } else {
        expect(s, sumi_plan_unpatchify(&s->plan, activations(s, 3 * tokens + 5, features), &layout, -1.0f), EXACT);
    }
}
static void build_noise(scene* s, const op_case* c)
{
    sumi_value x = sumi_plan_value(&s->plan, "x", SUMI_ELEMENT_FLOAT, c->m, c->n);
    sumi_plan_add_noise(&s->plan, floats(s, c->m, c->n), floats(s, c->m, c->n),
                        step_row(s, SUMI_ELEMENT_FLOAT, 1, c->a != 0), x);
    expect(s, x, c->bound);
}
static void build_guide(scene* s, const op_case* c)
{
    // m items of n channels x k; a: 1 a limit of the norm, 2 the scale is 0, 4 tokens of b x b are rescaled,
    // and the latents are c wide
    bool is_new;
    float* table = next_block_of_case(s, 4 * 6 * 14, &is_new);
    for (int i = 0; is_new && i < 6 * 14; i++) table[i] = c->a & 2 ? 0.0f : 1.5f + 0.25f * (float)(i / 14);
    sumi_step_row row = {add_input(s, SUMI_ELEMENT_FLOAT, 6, 14, table, true), 10, true};
    int32_t positive[8], negative[8];
    for (int i = 0; i < c->m; i++) positive[i] = 2 * i, negative[i] = i == 1 ? -1 : 2 * i + 1;
    expect(s,
           sumi_plan_guide(&s->plan, &(sumi_plan_guide_args){.predictions = floats(s, 2 * c->m * c->n, c->k),
                                                             .item_count = c->m,
                                                             .channels = c->n,
                                                             .positive = positive,
                                                             .negative = negative,
                                                             .scale = row,
                                                             .rule = c->a & 4 ? SUMI_GUIDANCE_NORM_RESCALE
                                                                   : c->a & 1 ? SUMI_GUIDANCE_NORM_LIMIT
                                                                              : SUMI_GUIDANCE_PLAIN,
                                                             .norm_limit = c->a & 1 ? 0.9f : 0.0f,
                                                             .width = c->c,
                                                             .patch_size = c->b}),
           c->bound);
}
static void build_solve(scene* s, const op_case* c)
{
    // m items of n channels x k; a: 1 a mask, 2 keeps y, 4 states that are not used hold NaN, 8 no states y and h
    bool is_new;
    float* table = next_block_of_case(s, 4 * 6 * 14, &is_new);
    for (int i = 0; is_new && i < 6 * 14; i++) table[i] = round_to_bf16(random_normal(s->store));
    for (int r = 0; is_new && r < 6; r++) {
        float* row = table + r * 14 + 2;
        row[7] = c->a & 2 ? 1.0f : 0.0f;
        row[9] = c->a & 1 ? 0.25f : -1.0f;
        if (c->a & (4 | 8)) row[0] = 1.0f, row[1] = row[3] = row[4] = row[5] = row[6] = 0.0f;
    }
    sumi_step_row row = {add_input(s, SUMI_ELEMENT_FLOAT, 6, 14, table, true), 2, true};
    int rows = c->m * c->n;
    float* nan = next_block_of_case(s, 4 * (size_t)rows * (size_t)c->k, &is_new);
    for (size_t i = 0; is_new && i < (size_t)rows * (size_t)c->k; i++)
        nan[i] = c->a & 4 ? NAN : round_to_bf16(random_normal(s->store));
    sumi_plan_solve_args solve = {.x = floats(s, rows, c->k), .v = floats(s, rows, c->k), .row = row, .channels = c->n};
    if (!(c->a & 8)) {
        solve.y = add_input(s, SUMI_ELEMENT_FLOAT, rows, c->k, nan, true);
        solve.h = add_input(s, SUMI_ELEMENT_FLOAT, rows, c->k, nan, true);
    }
    if (c->a & 1) {
        solve.noise = floats(s, rows, c->k);
        solve.clean = floats(s, rows, c->k);
        solve.mask = floats(s, c->m, c->k);
    }
    sumi_plan_solve(&s->plan, &solve);
    expect(s, solve.x, c->bound);
    // Only a value that an op names as its output can be read, so the states y and h are copied.
    sumi_value states[] = {solve.h, (c->a & 2) && (c->a & 4) ? SUMI_NO_VALUE : solve.y};
    for (int i = 0; i < 2; i++) {
        if (states[i].id == 0) continue;
        sumi_value copy = sumi_plan_value(&s->plan, "copy", SUMI_ELEMENT_FLOAT, rows, c->k);
        sumi_plan_copy_rows(&s->plan, &(sumi_plan_copy_args){.x = states[i], .y = copy, .rows = rows});
        expect(s, copy, c->bound);
    }
}
static void build_preview(scene* s, const op_case* c)
{
    // m items of n channels and k pixels; d: packed by 2, and this many pixels wide
    const float bias[3] = {0.1f, -0.2f, 0.3f};
    const int area = c->d != 0 ? 4 : 1;
    float* factors = random_numbers(s, 3 * (size_t)c->n, 0.2f, 0.0f);
    sumi_value rgb = sumi_plan_value(&s->plan, "rgb", SUMI_ELEMENT_FLOAT, 3 * c->m, c->k);
    sumi_plan_preview(&s->plan, &(sumi_plan_preview_args){.x = floats(s, c->m * c->n * area, c->k / area),
                                                          .v = floats(s, c->m * c->n * area, c->k / area),
                                                          .sigma = step_row(s, SUMI_ELEMENT_FLOAT, 1, true),
                                                          .channels = c->n,
                                                          .packing = c->d != 0 ? 2 : 1,
                                                          .width = c->d,
                                                          .factors = factors,
                                                          .bias = bias,
                                                          .rgb = rgb});
    expect(s, rgb, c->bound);
}
// Scale and shift, one pair for each of up to 128 channels if d is set, otherwise one for all.
static sumi_latent_statistics statistics_of(const op_case* c, int channels)
{
    static float s_scales[128], s_shifts[128];
    static const float s_scale[16] = {0.3611f, 2.8184f, -1.4541f, 0.375f, 1.2196f, 0.7f,     2.6052f, 1.0f,
                                      3.2687f, 0.4646f, 2.8652f,  0.642f, 0.6104f, -0.8887f, 0.354f,  1.916f},
                       s_shift[16] = {0.1159f, -0.7571f, -0.7089f, 0.0f,    -0.1745f, 0.9653f,  -0.1517f, 1.5508f,
                                      0.4134f, -0.0715f, 0.5517f,  -0.363f, -0.1922f, -0.9497f, 0.2503f,  -0.2921f};
    for (int i = 0; i < 128; i++) {
        s_scales[i] = s_scale[i % 16] * (1.0f + (float)(i / 16));
        s_shifts[i] = s_shift[i % 16] - (float)(i / 16);
    }
    return (sumi_latent_statistics){s_scales, s_shifts, c->d != 0 ? channels : 1};
}
static void build_posterior(scene* s, const op_case* c)
{
    // m pixels of n channels; b: packed by 2, and this many pixels wide
    const int area = c->b != 0 ? 4 : 1, channels = c->n * area, plane = c->m / area;
    sumi_value latents = sumi_plan_value(&s->plan, "latents", SUMI_ELEMENT_FLOAT, channels, plane);
    sumi_value moments = activations_of(s, c->m, 2 * c->n, 2.0f, 0.0f);
    sumi_plan_posterior(&s->plan, &(sumi_plan_posterior_args){.moments = moments,
                                                              .eps = c->a ? floats(s, channels, plane) : SUMI_NO_VALUE,
                                                              .channels = c->n,
                                                              .packing = c->b != 0 ? 2 : 1,
                                                              .width = c->b,
                                                              .statistics = statistics_of(c, channels),
                                                              .latents = latents});
    expect(s, latents, c->bound);
}
static void build_latent_in(scene* s, const op_case* c)
{
    // a picture of m x n pixels and k channels, three items; a: per item; b: only a tile of them; c: packed by 2
    sumi_tile tile = c->b ? (sumi_tile){1, 2, c->m - 2, c->n - 3} : (sumi_tile){0, 0, c->m, c->n};
    const int area = c->c != 0 ? 4 : 1, channels = c->k * area;
    expect(
        s,
        sumi_plan_latent_in(&s->plan, &(sumi_plan_latent_args){.latents = floats(s, 3 * channels, c->m * c->n / area),
                                                               .channels = c->k,
                                                               .height = c->m,
                                                               .width = c->n,
                                                               .packing = c->c != 0 ? 2 : 1,
                                                               .tile = tile,
                                                               .statistics = statistics_of(c, channels),
                                                               .per_item = c->a != 0}),
        c->bound);
}
static const op_case s_latents[] = {
    {"patchify 4x6x5", build_patches, 4, 6, 5, .bound = EXACT},
    {"patchify 128x128x16", build_patches, 128, 128, 16, .bound = EXACT},
    {"patchify 4x6x5, by channel", build_patches, 4, 6, 5, 2, .bound = EXACT},
    {"patchify 128x128x16, by channel", build_patches, 128, 128, 16, 2, .bound = EXACT},
    {"unpatchify 4x6x5, by channel", build_patches, 4, 6, 5, 3, .bound = EXACT},
    {"unpatchify 128x96x16, by channel", build_patches, 128, 96, 16, 3, .bound = EXACT},
    {"unpatchify 4x6x5", build_patches, 4, 6, 5, 1, .bound = EXACT},
    {"unpatchify 128x96x16", build_patches, 128, 96, 16, 1, .bound = EXACT},
    {"add noise 8x35", build_noise, 8, 35, .a = 1, .counter = 2, .bound = FLOATING},
    {"add noise 64x16384", build_noise, 64, 16384, .counter = 3, .bound = FLOATING},
    {"guide, 2 items of 4 x 35", build_guide, 2, 4, 35, .counter = 1, .bound = FLOATING},
    {"guide, 3 items of 5 x 33, limited", build_guide, 3, 5, 33, 1, .counter = 2, .bound = FLOATING},
    {"guide, scale 0", build_guide, 2, 4, 35, 2, .bound = EXACT},
    {"guide, 4 items of 16 x 16384, limited", build_guide, 4, 16, 16384, 1, .counter = 5, .bound = FLOATING},
    {"guide, 2 items of 4 x 48, rescaled", build_guide, 2, 4, 48, 4, 2, 8, .counter = 1, .bound = FLOATING},
    {"guide, 3 items of 5 x 54, rescaled by 3 x 3", build_guide, 3, 5, 54, 4, 3, 9, .counter = 2, .bound = FLOATING},
    {"guide, rescaled, scale 0", build_guide, 2, 4, 48, 2 | 4, 2, 8, .bound = EXACT},
    {"guide, 4 items of 16 x 16384, rescaled", build_guide, 4, 16, 16384, 4, 2, 128, .counter = 5, .bound = FLOATING},
    {"solve, 2 items of 4 x 35", build_solve, 2, 4, 35, .counter = 1, .bound = FLOATING},
    {"solve, keeps y, mask", build_solve, 2, 4, 35, 1 | 2, .counter = 2, .bound = FLOATING},
    {"solve, three times", build_solve, 2, 3, 17, 1, .repeat = 3, .counter = 1, .bound = 4 * FLOATING},
    {"solve, unused states hold NaN", build_solve, 2, 4, 35, 4, .counter = 1, .bound = FLOATING},
    {"solve, Euler, 4 items of 16 x 16384", build_solve, 4, 16, 16384, 8, .counter = 4, .bound = FLOATING},
    {"preview, 2 items of 4 x 35", build_preview, 2, 4, 35, .counter = 1, .bound = FLOATING},
    {"preview, 1 item of 16 x 16384", build_preview, 1, 16, 16384, .counter = 2, .bound = FLOATING},
    {"posterior 35 x 4", build_posterior, 35, 4, .bound = FLOATING},
    {"posterior 4096 x 16, sampled", build_posterior, 4096, 16, .a = 1, .bound = FLOATING},
    {"posterior 1023 x 16, sampled, by channel", build_posterior, 1023, 16, .a = 1, .d = 1, .bound = FLOATING},
    {"latents in, 5x7x4, tile, item 2", build_latent_in, 5, 7, 4, 1, 1, .counter = 2, .bound = STORED},
    {"latents in, 128x128x16", build_latent_in, 128, 128, 16, .bound = STORED},
    {"latents in, 5x7x3, by channel", build_latent_in, 5, 7, 3, .d = 1, .bound = STORED},
    {"latents in, 104x72x16, tile, item 1, by channel", build_latent_in, 104, 72, 16, 1, 1, .d = 1, .counter = 1,
     .bound = STORED},
    {"patchify 3x5x7, one pixel", build_patches, 3, 5, 7, 4, .bound = EXACT},
    {"patchify 64x64x128, one pixel, by channel", build_patches, 64, 64, 128, 6, .bound = EXACT},
    {"unpatchify 3x5x7, one pixel", build_patches, 3, 5, 7, 5, .bound = EXACT},
    {"unpatchify 64x48x128, one pixel, by channel", build_patches, 64, 48, 128, 7, .bound = EXACT},
    {"preview, 2 items of 4 x 48, packed", build_preview, 2, 4, 48, .d = 8, .counter = 1, .bound = FLOATING},
    {"preview, 1 item of 32 x 16384, packed", build_preview, 1, 32, 16384, .d = 128, .counter = 2, .bound = FLOATING},
    {"posterior 60 x 3, packed", build_posterior, 60, 3, 0, 0, 6, .bound = FLOATING},
    {"posterior 1024 x 32, sampled, by channel, packed", build_posterior, 1024, 32, 0, 1, 64, .d = 1,
     .bound = FLOATING},
    {"latents in, 6x8x3, tile, item 2, packed", build_latent_in, 6, 8, 3, 1, 1, 1, .d = 1, .counter = 2,
     .bound = STORED},
    {"latents in, 128x96x32, packed", build_latent_in, 128, 96, 32, 0, 0, 1, .d = 1, .bound = STORED},
    {"latents in, 64x96x32, tile, item 1, packed", build_latent_in, 64, 96, 32, 1, 1, 1, .d = 1, .counter = 1,
     .bound = STORED},
};
CASE_TABLE(latents);
