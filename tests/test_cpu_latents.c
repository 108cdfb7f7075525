// Latents and pixels on the CPU: noise, guidance, solver rows, previews, ways into and out of the VAE, tiles.
#include "base/memory.h"
#include "cpu/cpu.h"
#include "cpu_scenes.h"
#include "plan/plan.h"

// ---- Latents --------------------------------------------------------------------------------------------------------

typedef struct latent_case {
    int kind;
    bool has_mask;
    float limit;
    int flag;
    bool per_channel; // statistics
} latent_case;

static const float s_scales[4] = {0.3611f, -1.5f, 2.25f, 0.7f}, s_shifts[4] = {0.1159f, 0.75f, -0.5f, 0.0f};

static sumi_latent_statistics statistics_of(const latent_case* c)
{
    return (sumi_latent_statistics){s_scales, s_shifts, c->per_channel ? 4 : 1};
}

static const int32_t s_positive[2] = {2, 0}, s_negative[2] = {1, -1};
static const float s_bias[3] = {0.1f, -0.2f, 0.3f};

static void build_latent(bench* b, scene* s)
{
    latent_case* c = s->context;
    sumi_plan* p = &b->plan;
    enum { PLANE = 35, CHANNELS = 4, ITEMS = 2 };
    sumi_value step = bench_value(b, 3, 14), x = bench_value(b, ITEMS * CHANNELS, PLANE);
    s->values[1] = step;
    s->values[2] = x;
    s->value_count = 3;
    sumi_step_row row = {step, 2, true};
    switch (c->kind) {
    case SUMI_OP_ADD_NOISE:
        s->values[3] = bench_value(b, ITEMS * CHANNELS, PLANE);
        s->values[0] = bench_value(b, ITEMS * CHANNELS, PLANE);
        s->value_count = 4;
        sumi_plan_add_noise(p, x, s->values[3], row, s->values[0]);
        break;
    case SUMI_OP_SOLVE: // x, y, h, v, noise, clean, mask
        s->values[0] = x;
        for (int i = 2; i < 7; i++) s->values[i] = bench_value(b, ITEMS * CHANNELS, PLANE);
        s->values[7] = bench_value(b, ITEMS, PLANE);
        s->value_count = 8;
        sumi_plan_solve(p, &(sumi_plan_solve_args){.x = x,
                                                   .y = s->values[2],
                                                   .h = s->values[3],
                                                   .v = s->values[4],
                                                   .noise = s->values[5],
                                                   .clean = s->values[6],
                                                   .mask = c->has_mask ? s->values[7] : SUMI_NO_VALUE,
                                                   .row = row,
                                                   .channels = CHANNELS});
        break;
    case SUMI_OP_GUIDE:
        s->values[2] = bench_value(b, 3 * CHANNELS, PLANE);
        s->values[0] = sumi_plan_guide(p, &(sumi_plan_guide_args){.predictions = s->values[2],
                                                                  .item_count = 2,
                                                                  .channels = CHANNELS,
                                                                  .positive = s_positive,
                                                                  .negative = s_negative,
                                                                  .scale = row,
                                                                  .rule = SUMI_GUIDANCE_NORM_LIMIT,
                                                                  .norm_limit = c->limit});
        break;
    case SUMI_OP_PREVIEW:
        s->values[3] = bench_value(b, ITEMS * CHANNELS, PLANE);
        s->values[0] = bench_value(b, ITEMS * 3, PLANE);
        s->value_count = 4;
        sumi_plan_preview(p, &(sumi_plan_preview_args){.x = x,
                                                       .v = s->values[3],
                                                       .sigma = row,
                                                       .channels = CHANNELS,
                                                       .factors = (const float*)s->inputs[4],
                                                       .bias = s_bias,
                                                       .rgb = s->values[0]});
        break;
    case SUMI_OP_POSTERIOR:
        s->values[2] = bench_value(b, PLANE, 2 * CHANNELS);
        s->values[3] = bench_value(b, CHANNELS, PLANE);
        s->values[0] = bench_value(b, CHANNELS, PLANE);
        s->value_count = 4;
        sumi_plan_posterior(p, &(sumi_plan_posterior_args){.moments = s->values[2],
                                                           .eps = c->flag ? s->values[3] : SUMI_NO_VALUE,
                                                           .channels = CHANNELS,
                                                           .statistics = statistics_of(c),
                                                           .latents = s->values[0]});
        break;
    default: // a 3 x 4 tile of 5 x 7 latents
        s->values[0] = sumi_plan_latent_in(p, &(sumi_plan_latent_args){.latents = x,
                                                                       .channels = CHANNELS,
                                                                       .height = 5,
                                                                       .width = 7,
                                                                       .tile = (sumi_tile){1, 2, 3, 4},
                                                                       .statistics = statistics_of(c),
                                                                       .per_item = c->flag != 0});
        break;
    }
    if (s->values[0].id != 0) p->values[s->values[0].id - 1].bound = true;
}

TEST(noise_guidance_and_preview_agree_with_the_reference)
{
    enum { PLANE = 35, ALL = 8 * PLANE };
    float *a = random_floats(ALL * 2, 1.0f), *d = random_floats(ALL, 1.0f), *steps = random_floats(3 * 14, 1.0f),
          *factors = random_floats(12, 1.0f);
    double expect[ALL];
    double sigma = (double)steps[14 + 2];
    latent_case c = {.kind = SUMI_OP_ADD_NOISE};
    for (int i = 0; i < ALL; i++) expect[i] = sigma * (double)a[i] + (1.0 - sigma) * (double)d[i];
    scene noise = {.build = build_latent,
                   .context = &c,
                   .inputs = {NULL, steps, a, d},
                   .range_rows = 3,
                   .counter = 1,
                   .expect = expect,
                   .absolute = 1e-6};
    free(scene_run(&noise));

    steps[14 + 2] = 1.7f;
    for (int limited = 0; limited < 2; limited++) {
        c = (latent_case){.kind = SUMI_OP_GUIDE, .limit = limited ? 0.9f : 0.0f};
        double before = 0.0, after = 0.0;
        for (int i = 0; i < 4 * PLANE; i++) {
            double positive = (double)a[8 * PLANE + i], negative = (double)a[4 * PLANE + i];
            expect[i] = positive + (double)1.7f * (positive - negative);
            before += positive * positive;
            after += expect[i] * expect[i];
            expect[4 * PLANE + i] = (double)a[i]; // no negative
        }
        for (int i = 0; limited && i < 4 * PLANE; i++) expect[i] *= sqrt(before / after) * (double)0.9f;
        scene guide = {.build = build_latent,
                       .context = &c,
                       .inputs = {NULL, steps, a},
                       .range_rows = 1,
                       .counter = 1,
                       .expect = expect,
                       .absolute = 1e-6,
                       .relative = 1e-6};
        free(scene_run(&guide));
    }

    c = (latent_case){.kind = SUMI_OP_PREVIEW};
    for (int item = 0; item < 2; item++) {
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < PLANE; i++) {
                double sum = (double)s_bias[k];
                for (int ch = 0; ch < 4; ch++) {
                    int at = (item * 4 + ch) * PLANE + i;
                    sum += ((double)a[at] - (double)1.7f * (double)d[at]) * (double)factors[ch * 3 + k];
                }
                expect[(item * 3 + k) * PLANE + i] = sum;
            }
        }
    }
    scene preview = {.build = build_latent,
                     .context = &c,
                     .inputs = {NULL, steps, a, d, factors},
                     .range_rows = 1,
                     .counter = 1,
                     .expect = expect,
                     .absolute = 2e-6};
    free(scene_run(&preview));
    free(a), free(d), free(steps), free(factors);
}

typedef struct rescale_case {
    int height, width, channels, patch;
} rescale_case;

static void build_rescale(bench* b, scene* s)
{
    const rescale_case* c = s->context;
    s->values[1] = bench_value(b, 3, 14);
    s->values[2] = bench_value(b, 3 * c->channels, c->height * c->width);
    s->value_count = 3;
    s->values[0] = sumi_plan_guide(&b->plan, &(sumi_plan_guide_args){.predictions = s->values[2],
                                                                     .item_count = 2,
                                                                     .channels = c->channels,
                                                                     .positive = s_positive,
                                                                     .negative = s_negative,
                                                                     .scale = {s->values[1], 2, true},
                                                                     .rule = SUMI_GUIDANCE_NORM_RESCALE,
                                                                     .width = c->width,
                                                                     .patch_size = c->patch});
    if (s->values[0].id != 0) b->plan.values[s->values[0].id - 1].bound = true;
}

// Each token ends as long as the positive prediction's, in the direction of the guided one; one that guidance makes
// zero stays zero.
TEST(guidance_rescales_each_token)
{
    static const rescale_case s_cases[] = {{6, 8, 4, 2}, {5, 7, 3, 1}, {6, 9, 2, 3}, {2, 2, 16, 2}};
    float* steps = random_floats(3 * 14, 1.0f);
    steps[14 + 2] = 3.0f;
    for (size_t k = 0; k < sizeof s_cases / sizeof *s_cases; k++) {
        rescale_case c = s_cases[k];
        const int plane = c.height * c.width, count = c.channels * plane, columns = c.width / c.patch;
        const int token_count = plane / (c.patch * c.patch);
        float* x = random_floats(3 * count, 1.0f);
        double *expect = calloc(2 * (size_t)count, sizeof *expect),
               *before = calloc((size_t)token_count, sizeof(double)),
               *after = calloc((size_t)token_count, sizeof(double));
        for (int i = 0; i < count; i++) { // positive is sequence 2, negative 1; the second item has no negative
            const int y = i % plane / c.width, column = i % c.width, t = y / c.patch * columns + column / c.patch;
            if (t == 1) x[2 * count + i] = x[count + i] = 0.0f;
            const double p = (double)x[2 * count + i], n = (double)x[count + i];
            expect[i] = p + 3.0 * (p - n);
            expect[count + i] = (double)x[i];
            before[t] += p * p;
            after[t] += expect[i] * expect[i];
        }
        for (int i = 0; i < count; i++) {
            const int y = i % plane / c.width, column = i % c.width, t = y / c.patch * columns + column / c.patch;
            expect[i] *= after[t] > 0.0 ? sqrt(before[t] / after[t]) : 0.0;
        }
        scene s = {.build = build_rescale,
                   .context = &c,
                   .inputs = {NULL, steps, x},
                   .range_rows = 1,
                   .counter = 1,
                   .expect = expect,
                   .absolute = 1e-6,
                   .relative = 1e-6};
        free(scene_run(&s));
        free(x), free(expect), free(before), free(after);
    }
    free(steps);
}

TEST(solver_rows_update_all_states_and_ignore_unwritten_ones)
{
    enum { PLANE = 35, ALL = 8 * PLANE };
    float *v[6], *mask = random_floats(2 * PLANE, 1.0f), *steps = random_floats(3 * 14, 1.0f);
    for (int i = 0; i < 6; i++) v[i] = random_floats(ALL, 1.0f);
    for (int i = 0; i < 2 * PLANE; i++) mask[i] = mask[i] > 0.0f ? 1.0f : 0.0f;
    double expect[ALL];
    for (int mode = 0; mode < 4; mode++) {
        float* r = steps + 14 + 2; // counter 1, column 2: cx cy cv ch hx hv hh keeps sigma blend ...
        r[7] = mode & 1 ? 1.0f : 0.0f;
        r[9] = mode & 2 ? 0.25f : -1.0f;
        latent_case c = {.kind = SUMI_OP_SOLVE, .has_mask = true};
        for (int i = 0; i < ALL; i++) {
            double x = (double)r[0] * (double)v[0][i] + (double)r[1] * (double)v[1][i] + (double)r[2] * (double)v[3][i]
                     + (double)r[3] * (double)v[2][i];
            double m = (double)mask[i / (4 * PLANE) * PLANE + i % PLANE];
            expect[i] = mode & 2 ? (1.0 - m) * (0.25 * (double)v[4][i] + 0.75 * (double)v[5][i]) + m * x : x;
        }
        scene s = {.build = build_latent,
                   .context = &c,
                   .inputs = {v[0], steps, v[1], v[2], v[3], v[4], v[5], mask},
                   .range_rows = 3,
                   .counter = 1,
                   .expect = expect,
                   .absolute = 1e-6};
        void* out[MAX_SCENE_VALUES] = {0};
        free(scene_run(&s));
        scene_once(&s, SUMI_CPU_PORTABLE, 1, SPLIT_NONE, out);
        for (int i = 0; i < ALL && out[0] != NULL; i++) {
            double h = (double)r[4] * (double)v[0][i] + (double)r[5] * (double)v[3][i] + (double)r[6] * (double)v[2][i];
            CHECK_NEAR((double)((float*)out[3])[i], h, 1e-6, 0.0);
            CHECK(((float*)out[2])[i] == (mode & 1 ? v[1][i] : ((float*)out[0])[i]));
        }
        for (int i = 0; i < MAX_SCENE_VALUES; i++) free(out[i]);
    }
    // Euler, x' = x + d v: exactly the float result, with states that hold NaN
    memset(steps + 14 + 2, 0, 12 * sizeof(float));
    steps[14 + 2] = 1.0f;
    steps[14 + 4] = -0.045454558f;
    steps[14 + 2 + 9] = -1.0f;
    for (int i = 0; i < ALL; i++) {
        v[1][i] = v[2][i] = NAN;
        float step = steps[14 + 4] * v[3][i];
        expect[i] = (double)(v[0][i] + step);
    }
    latent_case c = {.kind = SUMI_OP_SOLVE};
    scene s = {.build = build_latent,
               .context = &c,
               .inputs = {v[0], steps, v[1], v[2], v[3], v[4], v[5], mask},
               .range_rows = 3,
               .counter = 1,
               .expect = expect};
    free(scene_run(&s));
    for (int i = 0; i < 6; i++) free(v[i]);
    free(mask), free(steps);
}

TEST(latents_enter_and_leave_the_vae)
{
    enum { PLANE = 35 };
    float *moments = random_floats(PLANE * 8, 1.0f), *eps = random_floats(4 * PLANE, 1.0f),
          *latents = random_floats(8 * PLANE, 1.0f);
    moments[4] = 100.0f; // clamped at 20
    double expect[8 * PLANE];
    for (int mode = 0; mode < 4; mode++) {
        const int has_noise = mode & 1;
        const bool per_channel = (mode & 2) != 0;
        latent_case c = {.kind = SUMI_OP_POSTERIOR, .flag = has_noise, .per_channel = per_channel};
        for (int ch = 0; ch < 4; ch++) {
            for (int i = 0; i < PLANE; i++) {
                double variance = (double)moments[i * 8 + 4 + ch];
                double z =
                    (double)moments[i * 8 + ch]
                    + (has_noise ? exp(0.5 * (variance > 20.0 ? 20.0 : variance)) * (double)eps[ch * PLANE + i] : 0.0);
                expect[ch * PLANE + i] =
                    (z - (double)s_shifts[per_channel ? ch : 0]) * (double)s_scales[per_channel ? ch : 0];
            }
        }
        scene s = {.build = build_latent,
                   .context = &c,
                   .inputs = {NULL, NULL, moments, eps},
                   .expect = expect,
                   .absolute = 1e-6,
                   .relative = 1e-6};
        free(scene_run(&s));
        c = (latent_case){.kind = SUMI_OP_LATENT_IN, .flag = has_noise, .per_channel = per_channel};
        for (int i = 0; i < 12 * 4; i++) {
            int y = 1 + i / 16, x = 2 + i / 4 % 4, item = has_noise ? 1 : 0, channel = per_channel ? i % 4 : 0;
            expect[i] = (double)latents[(item * 4 + i % 4) * PLANE + y * 7 + x] / (double)s_scales[channel]
                      + (double)s_shifts[channel];
        }
        scene in = {.build = build_latent,
                    .context = &c,
                    .inputs = {NULL, NULL, latents},
                    .range_rows = 5,
                    .counter = 1,
                    .expect = expect,
                    .absolute = 1e-6};
        free(scene_run(&in));
    }
    free(moments), free(eps), free(latents);
}

// A variance that is NaN is not clamped to one that is possible.
TEST(the_posterior_of_nan_is_nan)
{
    enum { PLANE = 35 };
    float *moments = random_floats(PLANE * 8, 1.0f), *eps = random_floats(4 * PLANE, 1.0f);
    moments[3 * 8 + 4 + 2] = NAN;
    moments[4 * 8 + 1] = NAN;
    for (int i = 0; i < 4 * PLANE; i++) eps[i] += 2.0f;
    latent_case c = {.kind = SUMI_OP_POSTERIOR, .flag = 1};
    scene s = {.build = build_latent, .context = &c, .inputs = {NULL, NULL, moments, eps}};
    float* z = scene_run(&s);
    int count = 0;
    for (int i = 0; i < 4 * PLANE; i++) count += isnan(z[i]);
    CHECK(count == 2 && isnan(z[2 * PLANE + 3]) && isnan(z[1 * PLANE + 4]));
    free(z), free(moments), free(eps);
}

// ---- Pixels and tiles -----------------------------------------------------------------------------------------------

typedef struct tile_case {
    int kind, cols; // cols: bytes of a pixel, for PIXELS_IN
    int channels;   // of the pixels that become or were bytes
} tile_case;

static void build_tile(bench* b, scene* s)
{
    const tile_case* c = s->context;
    sumi_plan* p = &b->plan;
    s->value_count = 2;
    switch (c->kind) {
    case SUMI_OP_PIXELS_IN: // rows 2..4, columns 1..5 of a 6 x 7 picture
        s->values[1] = sumi_plan_bound(p, "bytes", SUMI_ELEMENT_BYTE, 42, c->cols);
        s->values[0] = sumi_plan_pixels_in(p, s->values[1], 7, (sumi_tile){2, 1, 3, 5}, c->channels);
        break;
    case SUMI_OP_COMPOSITE: // three pictures of 7 pixels
        s->values[0] = bench_value(b, 21, c->channels);
        s->values[1] = sumi_plan_bound(p, "beneath", SUMI_ELEMENT_BYTE, 7, c->channels);
        s->values[2] = sumi_plan_bound(p, "opacity", SUMI_ELEMENT_BYTE, 7, 1);
        s->value_count = 3;
        sumi_plan_composite(p, s->values[0], s->values[1], s->values[2]);
        break;
    case SUMI_OP_PIXELS_OUT:
        s->values[1] = bench_value(b, 60 / c->channels, c->channels);
        s->values[2] = sumi_plan_bound(p, "bad", SUMI_ELEMENT_INT, 1, 1);
        s->values[0] = sumi_plan_bound(p, "bytes", SUMI_ELEMENT_BYTE, 60 / c->channels, c->channels);
        s->value_count = 3;
        sumi_plan_pixels_out(p, s->values[1], s->values[0], s->values[2]);
        break;
    case SUMI_OP_TILE_BLEND: // 6 x 5, above 4 high, left 3 wide
        s->values[0] = bench_value(b, 30, 2);
        s->values[1] = bench_value(b, 20, 2);
        s->values[2] = bench_value(b, 18, 2);
        s->value_count = 3;
        sumi_plan_tile_blend(p, &(sumi_plan_tile_blend_args){.tile = s->values[0],
                                                             .height = 6,
                                                             .width = 5,
                                                             .above = s->values[1],
                                                             .above_height = 4,
                                                             .left = s->values[2],
                                                             .left_width = 3,
                                                             .extent = 4});
        break;
    default: // 3 x 2 of a 4 x 5 tile into the second of two 7 x 6 pictures
        s->values[0] = bench_value(b, 84, 2);
        s->values[1] = bench_value(b, 20, 2);
        sumi_plan_tile_place(p, &(sumi_plan_tile_place_args){.tile = s->values[1],
                                                             .tile_width = 5,
                                                             .picture = s->values[0],
                                                             .picture_height = 7,
                                                             .picture_width = 6,
                                                             .copied = (sumi_tile){4, 3, 3, 2},
                                                             .per_item = true});
        break;
    }
    if (s->values[0].id != 0) p->values[s->values[0].id - 1].bound = true;
}

TEST(pixels_tiles_and_seams_agree_with_the_reference)
{
    uint8_t bytes[126];
    double expect[168];
    for (int i = 0; i < 126; i++) bytes[i] = (uint8_t)(i * 2 + 5);
    for (int i = 0; i < 45; i++) expect[i] = bytes[((2 + i / 15) * 7 + 1 + i / 3 % 5) * 3 + i % 3] / 127.5 - 1.0;
    tile_case c = {SUMI_OP_PIXELS_IN, 3, 3};
    scene in = {.build = build_tile,
                .context = &c,
                .inputs = {NULL, bytes},
                .range_rows = 4,
                .expect = expect,
                .absolute = 1e-6};
    free(scene_run(&in));
    uint8_t with_opacity[168];
    for (int i = 0; i < 168; i++) with_opacity[i] = (uint8_t)(i % 4 < 3 ? i * 5 + 3 : i % 8 < 4 ? 0 : i);
    for (int i = 0; i < 45; i++) {
        const uint8_t* pixel = with_opacity + 4 * ((2 + i / 15) * 7 + 1 + i / 3 % 5);
        expect[i] = (pixel[i % 3] / 127.5 - 1.0) * (pixel[3] / 255.0);
    }
    c.cols = 4;
    in.inputs[1] = with_opacity;
    free(scene_run(&in));

    float* picture = random_floats(60, 1.3f);
    picture[7] = NAN;
    picture[9] = INFINITY;
    picture[11] = -INFINITY;
    picture[12] = 2.0f * (0.5f / 255.0f) - 1.0f; // half way between 0 and 1: to even
    int32_t bad = 5;
    c.kind = SUMI_OP_PIXELS_OUT;
    scene out = {.build = build_tile, .context = &c, .inputs = {NULL, picture, &bad}};
    uint8_t* got = (uint8_t*)(void*)scene_run(&out);
    for (int i = 0; i < 60 && got != NULL; i++) {
        float v = fminf(fmaxf(picture[i] * 0.5f + 0.5f, 0.0f), 1.0f) * 255.0f;
        CHECK_NUMBER(got[i], i == 7 ? 0 : (int)nearbyintf(v));
    }
    free(got);
    void* all[MAX_SCENE_VALUES] = {0};
    scene_once(&out, SUMI_CPU_AUTO, 1, SPLIT_NONE, all);
    CHECK(all[2] != NULL && *(int32_t*)all[2] == 8);
    for (int i = 0; i < MAX_SCENE_VALUES; i++) free(all[i]);
    free(picture);

    float* pictures = random_floats(63, 1.0f);
    uint8_t opacity[7] = {0, 255, 128, 1, 254, 0, 255};
    for (int i = 0; i < 63; i++) {
        const double b = bytes[i % 21] / 127.5 - 1.0, share = opacity[i / 3 % 7] / 255.0;
        expect[i] = b + share * ((double)pictures[i] - b);
    }
    c.kind = SUMI_OP_COMPOSITE;
    scene over = {.build = build_tile,
                  .context = &c,
                  .inputs = {pictures, bytes, opacity},
                  .range_rows = 4,
                  .expect = expect,
                  .absolute = 1e-6};
    free(scene_run(&over));
    free(pictures);

    float *tile = random_floats(60, 1.0f), *above = random_floats(40, 1.0f), *left = random_floats(36, 1.0f),
          *whole = random_floats(168, 1.0f);
    for (int i = 0; i < 60; i++) expect[i] = (double)tile[i];
    for (int i = 0; i < 4 * 10; i++) { // above: extent 4, all of it
        double t = i / 10 / 4.0;
        expect[i] = (double)above[i] * (1.0 - t) + expect[i] * t;
    }
    for (int y = 0; y < 6; y++) { // left: 3 columns are all there are
        for (int i = 0; i < 6; i++) {
            double t = i / 2 / 3.0;
            expect[y * 10 + i] = (double)left[y * 6 + i] * (1.0 - t) + expect[y * 10 + i] * t;
        }
    }
    c.kind = SUMI_OP_TILE_BLEND;
    scene blend = {
        .build = build_tile, .context = &c, .inputs = {tile, above, left}, .expect = expect, .absolute = 1e-6};
    free(scene_run(&blend));
    for (int i = 0; i < 168; i++) {
        int y = i / 12 - 7 - 4, x = i % 12 / 2 - 3;
        expect[i] = y >= 0 && y < 3 && x >= 0 && x < 2 ? (double)tile[(y * 5 + x) * 2 + i % 2] : (double)whole[i];
    }
    c.kind = SUMI_OP_TILE_PLACE;
    scene place = {
        .build = build_tile, .context = &c, .inputs = {whole, tile}, .range_rows = 2, .counter = 1, .expect = expect};
    free(scene_run(&place));
    free(tile), free(above), free(left), free(whole);
}

TEST(pixels_with_alpha_keep_four_channels)
{
    uint8_t bytes[168];
    double expect[60], expect_over[84];
    for (int i = 0; i < 168; i++) bytes[i] = (uint8_t)(i * 5 + 3);
    for (int i = 0; i < 60; i++) expect[i] = bytes[((2 + i / 20) * 7 + 1 + i / 4 % 5) * 4 + i % 4] / 127.5 - 1.0;
    tile_case c = {SUMI_OP_PIXELS_IN, 4, 4};
    scene in = {.build = build_tile,
                .context = &c,
                .inputs = {NULL, bytes},
                .range_rows = 4,
                .expect = expect,
                .absolute = 1e-6};
    free(scene_run(&in));
    float* picture = random_floats(60, 1.3f);
    picture[3] = NAN;
    c.kind = SUMI_OP_PIXELS_OUT;
    scene out = {.build = build_tile, .context = &c, .inputs = {NULL, picture}};
    uint8_t* got = (uint8_t*)(void*)scene_run(&out);
    for (int i = 0; i < 60 && got != NULL; i++) {
        float v = fminf(fmaxf(picture[i] * 0.5f + 0.5f, 0.0f), 1.0f) * 255.0f;
        CHECK_NUMBER(got[i], i == 3 ? 0 : (int)nearbyintf(v));
    }
    free(got), free(picture);

    // Both sides of a pixel are multiplied by their alpha, mixed, and divided by what alpha they have together.
    float* pictures = random_floats(84, 1.2f);
    uint8_t opacity[7] = {0, 255, 128, 1, 254, 60, 200};
    bytes[2 * 4 + 3] = bytes[5 * 4 + 3] = 0;
    pictures[5 * 4 + 3] = -1.0f;
    for (int r = 0; r < 21; r++) {
        const double share = opacity[r % 7] / 255.0, p = fmin(fmax((double)pictures[4 * r + 3] * 0.5 + 0.5, 0.0), 1.0),
                     q = bytes[r % 7 * 4 + 3] / 255.0, both = share * p + (1.0 - share) * q;
        for (int k = 0; k < 4; k++) {
            const double x = (double)pictures[4 * r + k], b = bytes[r % 7 * 4 + k] / 127.5 - 1.0;
            const bool is_mixed = k < 3 && both > 0.0 && opacity[r % 7] > 0 && opacity[r % 7] < 255;
            expect_over[4 * r + k] = is_mixed ? (share * p * x + (1.0 - share) * q * b) / both : b + share * (x - b);
        }
    }
    c.kind = SUMI_OP_COMPOSITE;
    scene over = {.build = build_tile,
                  .context = &c,
                  .inputs = {pictures, bytes, opacity},
                  .range_rows = 4,
                  .expect = expect_over,
                  .absolute = 2e-6};
    free(scene_run(&over));
    free(pictures);
}

// ---- Shortcuts ------------------------------------------------------------------------------------------------------

enum { SHORT_H = 4, SHORT_W = 6 }; // of x

typedef struct shortcut_case {
    int in, out;
    sumi_op_shortcut shape;
} shortcut_case;

static void build_shortcut(bench* b, scene* s)
{
    const shortcut_case* c = s->context;
    s->values[1] = bench_value(b, SHORT_H * SHORT_W, c->in);
    s->value_count = 2;
    s->values[0] = sumi_plan_shortcut(
        &b->plan,
        &(sumi_plan_shortcut_args){.label = "shortcut", .x = s->values[1], .shape = c->shape, .channels = c->out});
    if (s->values[0].id != 0) b->plan.values[s->values[0].id - 1].bound = true;
}

// As the reference computes it, each value that exists goes to where it is read.
static void spread_shortcut(const shortcut_case* c, const float* x, double* y)
{
    const int frames = c->shape.frames, scale = c->shape.scale, up = c->shape.upsamples, area = scale * scale;
    const int out_w = up ? SHORT_W * 2 : SHORT_W / scale;
    memset(y, 0, (size_t)(SHORT_H * SHORT_W * 4 * c->out) * sizeof *y);
    for (int pixel = 0; pixel < SHORT_H * SHORT_W; pixel++) {
        const int py = pixel / SHORT_W, px = pixel % SHORT_W;
        if (up) { // (channel, frame, row, column), each channel of x `copies` times
            const int count = c->out * frames * 4, copies = count / c->in;
            for (int k = 0; k < count; k++) {
                const int o = k / 4 / frames, frame = k / 4 % frames, row = 2 * py + k % 4 / 2, column = 2 * px + k % 2;
                if (frame == frames - 1) y[(row * out_w + column) * c->out + o] = x[pixel * c->in + k / copies];
            }
            continue;
        }
        for (int channel = 0; channel < c->in; channel++) {
            const int k = ((channel * frames + frames - 1) * scale + py % scale) * scale + px % scale,
                      group = c->in * frames * area / c->out;
            y[(py / scale * out_w + px / scale) * c->out + k / group] += (double)x[pixel * c->in + channel] / group;
        }
    }
}

TEST(shortcuts_copy_and_average_as_the_reference)
{
    const shortcut_case cases[] = {
        {3, 3, {SHORT_W, 2, 2, true}},  {4, 2, {SHORT_W, 2, 2, true}},  {8, 4, {SHORT_W, 1, 2, true}},
        {2, 3, {SHORT_W, 1, 2, true}},  {3, 3, {SHORT_W, 1, 2, false}}, {4, 8, {SHORT_W, 2, 2, false}},
        {8, 8, {SHORT_W, 2, 2, false}}, {6, 2, {SHORT_W, 1, 1, false}}, {5, 5, {SHORT_W, 2, 1, false}}};
    double* expect = malloc(SHORT_H * SHORT_W * 4 * 8 * sizeof *expect);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shortcut_case c = cases[i];
        float* x = random_floats((size_t)(SHORT_H * SHORT_W * c.in), 1.0f);
        spread_shortcut(&c, x, expect);
        scene s = {.build = build_shortcut,
                   .context = &c,
                   .inputs = {NULL, x},
                   .range_rows = 5,
                   .expect = expect,
                   .absolute = 1e-6};
        float* y = scene_run(&s);
        CHECK(y != NULL);
        free(y), free(x);
    }
    free(expect);
}

// ---- Packed latents, patches of one pixel ---------------------------------------------------------------------------
// Pictures of 6 x 8 pixels and 3 channels, packed by 2: latents of 12 channels and 3 x 4.
enum {
    PACKED_H = 6,
    PACKED_W = 8,
    PACKED_C = 3,
    PACKED_PIXELS = PACKED_H * PACKED_W,
    PACKED_PLANE = PACKED_PIXELS / 4
};
static const float s_packed_scales[12] = {0.5f, -1.5f, 2.25f, 0.7f, 1.0f, 0.3f, -0.9f, 3.0f, 0.25f, 0.11f, 1.7f, -2.0f};
static const float s_packed_shifts[12] = {0.1f, 0.75f, -0.5f, 0.0f, 1.0f, -1.0f, 0.3f, 0.2f, -0.7f, 0.4f, 0.6f, 2.0f};

// The index in a packed latent of channel c of pixel i.
static int packed_index(int c, int i)
{
    const int y = i / PACKED_W, x = i % PACKED_W;
    return (c * 4 + y % 2 * 2 + x % 2) * PACKED_PLANE + y / 2 * (PACKED_W / 2) + x / 2;
}

static void build_packed(bench* b, scene* s)
{
    const latent_case* c = s->context;
    sumi_plan* p = &b->plan;
    const sumi_latent_statistics statistics = {s_packed_scales, s_packed_shifts, c->per_channel ? 12 : 1};
    s->value_count = 3;
    switch (c->kind) {
    case SUMI_OP_PREVIEW: {
        s->values[1] = bench_value(b, 3, 14);
        s->values[2] = bench_value(b, 24, PACKED_PLANE);
        s->values[3] = bench_value(b, 24, PACKED_PLANE);
        s->values[0] = bench_value(b, 6, PACKED_PIXELS);
        s->value_count = 4;
        sumi_plan_preview(p, &(sumi_plan_preview_args){.x = s->values[2],
                                                       .v = s->values[3],
                                                       .sigma = {s->values[1], 2, true},
                                                       .channels = PACKED_C,
                                                       .packing = 2,
                                                       .width = PACKED_W,
                                                       .factors = (const float*)s->inputs[4],
                                                       .bias = s_bias,
                                                       .rgb = s->values[0]});
        break;
    }
    case SUMI_OP_POSTERIOR:
        s->values[1] = bench_value(b, PACKED_PIXELS, 2 * PACKED_C);
        s->values[2] = bench_value(b, 12, PACKED_PLANE);
        s->values[0] = bench_value(b, 12, PACKED_PLANE);
        sumi_plan_posterior(p, &(sumi_plan_posterior_args){.moments = s->values[1],
                                                           .eps = c->flag ? s->values[2] : SUMI_NO_VALUE,
                                                           .channels = PACKED_C,
                                                           .packing = 2,
                                                           .width = PACKED_W,
                                                           .statistics = statistics,
                                                           .latents = s->values[0]});
        break;
    case SUMI_OP_LATENT_IN: // a 3 x 5 tile that begins in the middle of a latent
        s->values[1] = bench_value(b, 24, PACKED_PLANE);
        s->value_count = 2;
        s->values[0] = sumi_plan_latent_in(p, &(sumi_plan_latent_args){.latents = s->values[1],
                                                                       .channels = PACKED_C,
                                                                       .height = PACKED_H,
                                                                       .width = PACKED_W,
                                                                       .packing = 2,
                                                                       .tile = {1, 3, 3, 5},
                                                                       .statistics = statistics,
                                                                       .per_item = c->flag != 0});
        break;
    default: { // patches of one pixel, there and, with the flag, back
        static const int32_t s_items[2] = {1, 0}, s_begins[2] = {13, 0};
        const sumi_patch_layout layout = {3, 4, 5, 1, 2, s_items, s_begins, c->per_channel};
        const sumi_value rows = bench_value(b, 27, 5);
        s->values[1] = bench_value(b, 10, 12);
        s->values[c->flag ? 2 : 0] = rows;
        s->value_count = c->flag ? 3 : 2;
        sumi_plan_patchify(p, s->values[1], &layout, rows);
        if (c->flag) s->values[0] = sumi_plan_unpatchify(p, rows, &layout, -1.0f);
        break;
    }
    }
    if (s->values[0].id != 0) p->values[s->values[0].id - 1].bound = true;
}

TEST(packed_latents_are_pictures_of_twice_the_size)
{
    float *latents = random_floats(24 * PACKED_PLANE, 1.0f), *v = random_floats(24 * PACKED_PLANE, 1.0f),
          *moments = random_floats(PACKED_PIXELS * 6, 1.0f), *steps = random_floats(3 * 14, 1.0f),
          *factors = random_floats(3 * PACKED_C, 1.0f);
    double expect[6 * PACKED_PIXELS];
    for (int mode = 0; mode < 4; mode++) {
        const int flag = mode & 1;
        const bool per_channel = (mode & 2) != 0;
        latent_case c = {.kind = SUMI_OP_POSTERIOR, .flag = flag, .per_channel = per_channel};
        for (int ch = 0; ch < PACKED_C; ch++) {
            for (int i = 0; i < PACKED_PIXELS; i++) {
                const int at = packed_index(ch, i), k = per_channel ? at / PACKED_PLANE : 0;
                double z = (double)moments[i * 6 + ch];
                if (flag) z += exp(0.5 * (double)moments[i * 6 + PACKED_C + ch]) * (double)v[at];
                expect[at] = (z - (double)s_packed_shifts[k]) * (double)s_packed_scales[k];
            }
        }
        scene s = {.build = build_packed,
                   .context = &c,
                   .inputs = {NULL, moments, v},
                   .expect = expect,
                   .absolute = 1e-6,
                   .relative = 1e-6};
        free(scene_run(&s));
        c.kind = SUMI_OP_LATENT_IN;
        for (int i = 0; i < 15 * PACKED_C; i++) {
            const int pixel = (1 + i / PACKED_C / 5) * PACKED_W + 3 + i / PACKED_C % 5,
                      at = packed_index(i % PACKED_C, pixel), k = per_channel ? at / PACKED_PLANE : 0;
            expect[i] = (double)latents[flag * 12 * PACKED_PLANE + at] / (double)s_packed_scales[k]
                      + (double)s_packed_shifts[k];
        }
        scene in = {.build = build_packed,
                    .context = &c,
                    .inputs = {NULL, latents},
                    .range_rows = 4,
                    .counter = 1,
                    .expect = expect,
                    .absolute = 1e-6,
                    .relative = 1e-6};
        free(scene_run(&in));
    }
    latent_case c = {.kind = SUMI_OP_PREVIEW};
    for (int i = 0; i < 6 * PACKED_PIXELS; i++) {
        const int item = i / (3 * PACKED_PIXELS), k = i / PACKED_PIXELS % 3;
        double sum = (double)s_bias[k];
        for (int ch = 0; ch < PACKED_C; ch++) {
            const int at = item * 12 * PACKED_PLANE + packed_index(ch, i % PACKED_PIXELS);
            sum += ((double)latents[at] - (double)steps[14 + 2] * (double)v[at]) * (double)factors[ch * 3 + k];
        }
        expect[i] = sum;
    }
    scene preview = {.build = build_packed,
                     .context = &c,
                     .inputs = {NULL, steps, latents, v, factors},
                     .range_rows = 1,
                     .counter = 1,
                     .expect = expect,
                     .absolute = 2e-6};
    free(scene_run(&preview));
    free(latents), free(v), free(moments), free(steps), free(factors);
}

TEST(a_patch_of_one_pixel_is_a_row_of_its_channels)
{
    float* latents = random_floats(10 * 12, 1.0f);
    for (int by_channel = 0; by_channel < 2; by_channel++) {
        double rows[27 * 5] = {0.0}, planes[10 * 12];
        for (int i = 0; i < 10 * 12; i++) {
            const int item = i / 60, channel = i / 12 % 5, token = i % 12;
            rows[((item == 1 ? 13 : 0) + token) * 5 + channel] = (double)latents[i];
            planes[(1 - item) * 60 + i % 60] = -(double)latents[i];
        }
        latent_case c = {.kind = SUMI_OP_PATCHIFY, .per_channel = by_channel != 0};
        scene s = {.build = build_packed, .context = &c, .inputs = {NULL, latents}, .range_rows = 1, .expect = rows};
        free(scene_run(&s));
        c.flag = 1;
        s.expect = planes;
        free(scene_run(&s));
    }
    free(latents);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(noise_guidance_and_preview_agree_with_the_reference);
    RUN(guidance_rescales_each_token);
    RUN(solver_rows_update_all_states_and_ignore_unwritten_ones);
    RUN(latents_enter_and_leave_the_vae);
    RUN(the_posterior_of_nan_is_nan);
    RUN(pixels_tiles_and_seams_agree_with_the_reference);
    RUN(packed_latents_are_pictures_of_twice_the_size);
    RUN(a_patch_of_one_pixel_is_a_row_of_its_channels);
    RUN(pixels_with_alpha_keep_four_channels);
    RUN(shortcuts_copy_and_average_as_the_reference);
    TEST_END();
}
