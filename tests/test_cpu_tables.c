// What moves rows and makes tables on the CPU: embeddings, copies, means, rotary and time tables, patches.
#include "base/memory.h"
#include "cpu_scenes.h"
#include "plan/plan.h"

typedef struct misc_case {
    int kind;
    sumi_weight w, bias;
    sumi_span spans[2];
    int flag;
} misc_case;

static const int32_t s_pairs[3] = {3, 2, 4};
static const int32_t s_items[3] = {1, 0, 1}, s_begins[3] = {14, 0, 7};

#define CHANGED_ROWS 11
#define CHANGED_COLS 9001 // so many that a work range has a few rows

static void build_misc(bench* b, scene* s)
{
    misc_case* c = s->context;
    sumi_plan* p = &b->plan;
    sumi_patch_layout layout = {4, 6, 5, 2, 3, s_items, s_begins, c->flag != 0};
    s->value_count = 2;
    switch (c->kind) {
    case SUMI_OP_EMBED_ROWS:
        s->values[1] = sumi_plan_bound(p, "ids", SUMI_ELEMENT_INT, 9, c->flag == 2 ? 4 : 1);
        if (c->flag == 2) {
            s->values[2] = sumi_plan_bound(p, "factors", SUMI_ELEMENT_FLOAT, 9, 4);
            s->value_count = 3;
            s->values[0] = sumi_plan_mix_rows(p, "mix", s->values[1], s->values[2], &c->w);
            break;
        }
        s->values[0] = c->flag ? sumi_plan_embed_rows_biased(p, s->values[1], &c->w, &c->bias)
                               : sumi_plan_embed_rows(p, s->values[1], &c->w, 0.5f);
        break;
    case SUMI_OP_MEAN_ROWS:
        s->values[1] = bench_value(b, 300, 21);
        s->values[0] = sumi_plan_mean_rows(p, "means", s->values[1], c->spans, 2);
        break;
    case SUMI_OP_FILL_ROWS:
        s->values[0] = bench_value(b, 12, 21);
        s->value_count = 1;
        sumi_plan_fill_rows(p, s->values[0], c->flag ? NULL : &c->w, c->spans, 2);
        break;
    case SUMI_OP_COPY_ROWS:
        s->values[0] = bench_value(b, 12, 21);
        if (c->flag) { // into columns 7 to 13
            s->values[1] = bench_value(b, 9, 7);
            sumi_plan_copy_rows(p, &(sumi_plan_copy_args){.x = s->values[1],
                                                          .x_row = 2,
                                                          .y = s->values[0],
                                                          .y_row = 5,
                                                          .rows = 6,
                                                          .writes_some_columns = true,
                                                          .y_column = 7});
            break;
        }
        s->values[1] = bench_value(b, 9, 21);
        sumi_plan_copy_rows(
            p, &(sumi_plan_copy_args){.x = s->values[1], .x_row = 2, .y = s->values[0], .y_row = 5, .rows = 7});
        break;
    case SUMI_OP_ADD_ROWS:
        s->values[0] = bench_value(b, 9, 21);
        s->values[1] = bench_value(b, 12, 21);
        sumi_plan_add_rows(p, &(sumi_plan_add_rows_args){.label = "add",
                                                         .x = s->values[1],
                                                         .x_row = c->flag == 2 ? 3 : 0,
                                                         .y = s->values[0],
                                                         .y_row = c->flag == 2 ? 1 : 0,
                                                         .rows = 8,
                                                         .scale = c->flag == 1 ? -1.0f : 1.0f});
        break;
    case SUMI_OP_RESIDUAL_CHANGE:
        for (int i = 1; i < 4; i++) s->values[i] = bench_value(b, 12 + i, CHANGED_COLS);
        s->value_count = 4;
        s->values[0] = sumi_plan_residual_change(p, &(sumi_plan_residual_change_args){.label = "change",
                                                                                      .x = s->values[1],
                                                                                      .before = s->values[2],
                                                                                      .kept = s->values[3],
                                                                                      .rows = CHANGED_ROWS});
        break;
    case SUMI_OP_ADD_RESIDUAL:
        for (int i = 0; i < 3; i++) s->values[i] = bench_value(b, 9 + i, 21);
        s->values[3] = bench_value(b, 2, 3);
        s->values[4] = bench_value(b, 5, 4);
        s->value_count = 5;
        sumi_plan_add_residual(p, &(sumi_plan_add_residual_args){.label = "residual",
                                                                 .x = s->values[0],
                                                                 .residual = s->values[1],
                                                                 .change = s->values[2],
                                                                 .rows = 8,
                                                                 .sigmas = s->values[3],
                                                                 .column = 2,
                                                                 .sigma = {s->values[4], 2, true},
                                                                 .most = 0.5f});
        break;
    case SUMI_OP_ROPE_TABLE:
        s->values[1] = sumi_plan_bound(p, "positions", SUMI_ELEMENT_INT, 9, 3);
        s->values[0] = sumi_plan_rope_table(p, &(sumi_plan_rope_args){.positions = s->values[1],
                                                                      .axes = 3,
                                                                      .pairs = {s_pairs[0], s_pairs[1], s_pairs[2]},
                                                                      .theta = 256.0,
                                                                      .order = (sumi_rope_order)c->flag});
        break;
    case SUMI_OP_TIME_EMBED:
        s->values[1] = bench_value(b, 5, 1);
        s->values[0] = sumi_plan_time_embed(p, &(sumi_plan_time_args){.times = s->values[1],
                                                                      .width = 256,
                                                                      .scale = 1000.0f,
                                                                      .max_period = 10000.0f,
                                                                      .cos_first = c->flag != 0});
        break;
    case SUMI_OP_FINISH_MODULATION:
        s->values[0] = bench_value(b, 5, 28);
        s->value_count = 1;
        if (c->flag != 2) {
            sumi_plan_finish_modulation(p, s->values[0], c->flag != 0);
            break;
        }
        s->value_count = 2;
        s->values[1] = s->values[0];
        s->values[0] = sumi_plan_modulation(p, &(sumi_plan_modulation_args){.label = "row",
                                                                            .table = s->values[1],
                                                                            .vector_count = 7,
                                                                            .adds_one = 1 << 1 | 1 << 5,
                                                                            .applies_tanh = 1 << 6,
                                                                            .rows = 2,
                                                                            .x_row = 1,
                                                                            .per_step = true});
        break;
    case SUMI_OP_PATCHIFY:
        s->values[0] = bench_value(b, 21, 20);
        s->values[1] = bench_value(b, 10, 24);
        sumi_plan_patchify(p, s->values[1], &layout, s->values[0]);
        break;
    default: // there and back: sequences keep their own planes
        s->values[1] = bench_value(b, 10, 24);
        s->values[2] = bench_value(b, 21, 20);
        s->value_count = 3;
        sumi_plan_patchify(p, s->values[1], &layout, s->values[2]);
        s->values[0] = sumi_plan_unpatchify(p, s->values[2], &layout, -1.0f);
        break;
    }
    if (s->values[0].id != 0) p->values[s->values[0].id - 1].bound = true;
}

TEST(embedding_filling_and_copying_move_the_right_rows)
{
    float *table = random_floats(30 * 21, 1.0f), *y = random_floats(12 * 21, 1.0f);
    int32_t ids[9];
    double expect[12 * 21];
    misc_case c = {.kind = SUMI_OP_EMBED_ROWS, .w = float_weight(table, 30, 21)};
    for (int i = 0; i < 9; i++) {
        ids[i] = i == 4 ? 29 : random_below(30);
        for (int k = 0; k < 21; k++) expect[i * 21 + k] = 0.5 * (double)table[ids[i] * 21 + k];
    }
    scene s = {.build = build_misc, .context = &c, .inputs = {NULL, ids}, .range_rows = 2, .expect = expect};
    free(scene_run(&s));
    ids[3] = 30; // one too far
    bench b;
    bench_begin(&b, SUMI_CPU_AUTO, 2);
    build_misc(&b, &s);
    if (bench_ready(&b)) {
        bench_write(&b, s.values[1], ids);
        sumi_slice all = {.op_end = 1, .range_end = b.plan.ops[0].range_count};
        CHECK(b.runner->functions->run(b.runner, &b.plan, &all, 0, &b.error) == SUMI_INTERNAL);
    }
    bench_end(&b);

    c = (misc_case){.kind = SUMI_OP_FILL_ROWS, .w = float_weight(table, 1, 21), .spans = {{1, 3}, {10, 2}}};
    for (int i = 0; i < 12 * 21; i++) {
        bool is_filled = (i / 21 >= 1 && i / 21 < 4) || i / 21 >= 10;
        expect[i] = (double)(is_filled ? table[i % 21] : y[i]);
    }
    scene fill = {.build = build_misc, .context = &c, .inputs = {y}, .range_rows = 1, .expect = expect};
    free(scene_run(&fill));
    c.kind = SUMI_OP_COPY_ROWS;
    for (int i = 0; i < 12 * 21; i++) expect[i] = (double)(i / 21 >= 5 ? table[i - 3 * 21] : y[i]);
    scene copy = {.build = build_misc, .context = &c, .inputs = {y, table}, .range_rows = 2, .expect = expect};
    free(scene_run(&copy));
    c.flag = 1;
    for (int i = 0; i < 12 * 21; i++) {
        const int row = i / 21, column = i % 21;
        const bool is_copied = row >= 5 && row < 11 && column >= 7 && column < 14;
        expect[i] = (double)(is_copied ? table[(row - 3) * 7 + column - 7] : y[i]);
    }
    free(scene_run(&copy));
    free(table), free(y);
}

TEST(a_bias_is_added_to_every_embedded_row)
{
    float *table = random_floats(30 * 21, 1.0f), *bias = random_floats(21, 1.0f);
    int32_t ids[9];
    double expect[9 * 21];
    misc_case c = {.kind = SUMI_OP_EMBED_ROWS, .flag = 1};
    c.w = float_weight(table, 30, 21);
    c.bias = float_weight(bias, 1, 21);
    for (int i = 0; i < 9 * 21; i++) {
        if (i % 21 == 0) ids[i / 21] = random_below(30);
        expect[i] = (double)(table[ids[i / 21] * 21 + i % 21] + bias[i % 21]);
    }
    scene s = {.build = build_misc, .context = &c, .inputs = {NULL, ids}, .range_rows = 2, .expect = expect};
    free(scene_run(&s));
    free(table), free(bias);
}

TEST(rows_of_a_table_are_mixed_by_their_factors)
{
    changed_weight table;
    make_changed(&table, SUMI_DTYPE_BF16, 30, 21, 3);
    float* factors = random_floats(9 * 4, 1.0f);
    int32_t ids[9 * 4];
    double expect[9 * 21];
    for (int i = 0; i < 9 * 4; i++) ids[i] = random_below(30);
    for (int i = 0; i < 9 * 21; i++) {
        expect[i] = 0;
        for (int t = i / 21 * 4; t < i / 21 * 4 + 4; t++)
            expect[i] += (double)factors[t] * (double)table.merged[ids[t] * 21 + i % 21];
    }
    misc_case c = {.kind = SUMI_OP_EMBED_ROWS, .flag = 2, .w = table.weight};
    scene s = {.build = build_misc,
               .context = &c,
               .inputs = {NULL, ids, factors},
               .range_rows = 2,
               .expect = expect,
               .absolute = 1e-5,
               .relative = 1e-5};
    free(scene_run(&s));
    ids[35] = 30; // one too far, of the last term
    bench b;
    bench_begin(&b, SUMI_CPU_AUTO, 2);
    build_misc(&b, &s);
    if (bench_ready(&b)) {
        bench_write(&b, s.values[1], ids);
        bench_write(&b, s.values[2], factors);
        sumi_slice all = {0, 1, 0, b.plan.ops[0].range_count, 0.0f, 1};
        CHECK(b.runner->functions->run(b.runner, &b.plan, &all, 0, &b.error) == SUMI_INTERNAL);
    }
    bench_end(&b);
    free_changed(&table);
    free(factors);
}

TEST(embedded_rows_and_their_bias_have_their_changes)
{
    changed_weight table, bias;
    int32_t ids[9];
    double expect[9 * 21];
    make_changed(&table, SUMI_DTYPE_BF16, 30, 21, 3);
    make_changed(&bias, SUMI_DTYPE_BF16, 1, 21, 2);
    misc_case c = {.kind = SUMI_OP_EMBED_ROWS, .flag = 1, .w = table.weight, .bias = bias.weight};
    for (int i = 0; i < 9 * 21; i++) {
        if (i % 21 == 0) ids[i / 21] = random_below(30);
        expect[i] = (double)table.merged[ids[i / 21] * 21 + i % 21] + (double)bias.merged[i % 21];
    }
    scene s = {.build = build_misc,
               .context = &c,
               .inputs = {NULL, ids},
               .range_rows = 2,
               .expect = expect,
               .absolute = 1e-6,
               .relative = 1e-6};
    free(scene_run(&s));
    free_changed(&table);
    free_changed(&bias);
}

TEST(means_are_of_their_spans_alone)
{
    float* x = random_floats(300 * 21, 1.0f);
    double expect[2 * 21] = {0};
    misc_case c = {.kind = SUMI_OP_MEAN_ROWS, .spans = {{40, 1}, {7, 290}}};
    for (int k = 0; k < 21; k++) {
        expect[k] = (double)x[40 * 21 + k];
        for (int r = 7; r < 297; r++) expect[21 + k] += (double)x[r * 21 + k] / 290;
    }
    scene s = {.build = build_misc, .context = &c, .inputs = {NULL, x}, .expect = expect, .absolute = 1e-6};
    free(scene_run(&s));
    free(x);
}

TEST(rotary_time_and_modulation_tables_agree_with_the_reference)
{
    int32_t positions[27];
    double expect[9 * 18];
    for (int i = 0; i < 27; i++) positions[i] = i * 37 % 500;
    for (int r = 0; r < 9; r++) {
        int pair = 0;
        for (int axis = 0; axis < 3; axis++) {
            for (int k = 0; k < s_pairs[axis]; k++, pair++) {
                double angle = (double)(float)(positions[r * 3 + axis] * pow(256.0, -(double)k / s_pairs[axis]));
                expect[r * 18 + 2 * pair] = cos(angle);
                expect[r * 18 + 2 * pair + 1] = sin(angle);
            }
        }
    }
    misc_case c = {.kind = SUMI_OP_ROPE_TABLE};
    scene rope = {// an angle of 500 in float
                  .build = build_misc, .context = &c,    .inputs = {NULL, positions},
                  .range_rows = 2,     .expect = expect, .absolute = 4e-5};
    free(scene_run(&rope));
    // Frequencies that continue: of axes one after the other, and of axes that take turns while they have pairs left.
    // The third axis would have a fourth pair as number 11.
    static const int s_axes[2][9] = {{0, 0, 0, 1, 1, 2, 2, 2, 2}, {0, 1, 2, 0, 1, 2, 0, 0, 2}};
    for (int order = 0; order < 2; order++) {
        for (int i = 0; i < 9 * 9; i++) {
            const int r = i / 9, pair = i % 9;
            double angle = (double)(float)(positions[r * 3 + s_axes[order][pair]] * pow(256.0, -(double)pair / 9));
            expect[r * 18 + 2 * pair] = cos(angle);
            expect[r * 18 + 2 * pair + 1] = sin(angle);
        }
        c.flag = order == 0 ? SUMI_ROPE_CONTINUED : SUMI_ROPE_IN_TURNS;
        free(scene_run(&rope));
    }

    // values from the reference, for 1000 t = 45.45458984
    float times[5] = {0.0f, 0.04545459f, 0.1f, 0.5f, 1.0f};
    for (int cos_first = 0; cos_first < 2; cos_first++) {
        c = (misc_case){.kind = SUMI_OP_TIME_EMBED, .flag = cos_first};
        scene time = {.build = build_misc, .context = &c, .inputs = {NULL, times}, .range_rows = 2};
        float* e = scene_run(&time);
        static const int s_at[] = {0, 1, 2, 64, 127, 128, 129, 192, 255};
        static const double s_want[] = {0.09834, -0.11249, -0.09201, 0.89846, 0.99999,
                                        0.99515, -0.99365, 0.43905,  0.00488};
        for (int i = 0; i < 9; i++) {
            CHECK_NEAR((double)e[256 + (cos_first ? s_at[i] : (s_at[i] + 128) % 256)], s_want[i], 2e-5, 0.0);
            CHECK_NEAR((double)e[(cos_first ? s_at[i] : (s_at[i] + 128) % 256)], s_at[i] < 128 ? 1.0 : 0.0, 0.0, 0.0);
        }
        free(e);
    }

    float* table = random_floats(5 * 28, 2.0f);
    for (int has_gates = 0; has_gates < 2; has_gates++) {
        for (int i = 0; i < 5 * 28; i++)
            expect[i] = has_gates && i % 28 / 7 % 2 == 1 ? tanh((double)table[i]) : 1.0 + (double)table[i];
        c = (misc_case){.kind = SUMI_OP_FINISH_MODULATION, .flag = has_gates};
        scene finish = {
            .build = build_misc, .context = &c, .inputs = {table}, .range_rows = 2, .expect = expect, .absolute = 1e-6};
        free(scene_run(&finish));
    }
    // two rows of their own, from the row behind the step's on
    for (int i = 0; i < 2 * 28; i++) {
        double v = (double)table[3 * 28 + i];
        expect[i] = i % 28 / 4 == 6 ? tanh(v) : i % 28 / 4 == 1 || i % 28 / 4 == 5 ? 1.0 + v : v;
    }
    c.flag = 2;
    scene rows = {.build = build_misc,
                  .context = &c,
                  .inputs = {NULL, table},
                  .range_rows = 1,
                  .counter = 2,
                  .expect = expect,
                  .absolute = 1e-6};
    free(scene_run(&rows));
    free(table);
}

TEST(patches_put_channels_or_pixels_fastest_and_come_back)
{
    float* latents = random_floats(10 * 24, 1.0f);
    double rows[21 * 20] = {0}, planes[15 * 24], by_channel[21 * 20] = {0};
    for (int s = 0; s < 3; s++) {
        for (int t = 0; t < 6; t++) {
            for (int f = 0; f < 20; f++) {
                int y = t / 3 * 2 + f / 10, x = t % 3 * 2 + f / 5 % 2, channel = f % 5;
                double value = (double)latents[(s_items[s] * 5 + channel) * 24 + y * 6 + x];
                rows[(s_begins[s] + t) * 20 + f] = value;
                by_channel[(s_begins[s] + t) * 20 + channel * 4 + f / 5] = value;
            }
        }
        for (int i = 0; i < 5 * 24; i++) planes[s * 120 + i] = -(double)latents[s_items[s] * 120 + i];
    }
    misc_case c = {.kind = SUMI_OP_PATCHIFY};
    scene there = {.build = build_misc, .context = &c, .inputs = {NULL, latents}, .range_rows = 1, .expect = rows};
    free(scene_run(&there));
    c.kind = SUMI_OP_UNPATCHIFY;
    scene back = {.build = build_misc, .context = &c, .inputs = {NULL, latents}, .range_rows = 1, .expect = planes};
    free(scene_run(&back));
    c.flag = 1;
    free(scene_run(&back));
    c.kind = SUMI_OP_PATCHIFY;
    there.expect = by_channel;
    free(scene_run(&there));
    free(latents);
}

TEST(rows_are_added_to_others_or_subtracted_from_them)
{
    float *x = random_floats(12 * 21, 1.0f), *y = random_floats(9 * 21, 1.0f);
    for (int flag = 0; flag < 3; flag++) { // the last one from row 3 on, to row 1 on
        double expect[9 * 21];
        for (int i = 0; i < 9 * 21; i++) {
            const double sign = flag == 1 ? -1.0 : 1.0;
            const int row = i / 21 - (flag == 2);
            expect[i] =
                row >= 0 && row < 8 ? (double)x[i + (flag == 2 ? 2 * 21 : 0)] + sign * (double)y[i] : (double)y[i];
        }
        misc_case c = {.kind = SUMI_OP_ADD_ROWS, .flag = flag};
        scene s = {
            .build = build_misc, .context = &c, .inputs = {y, x}, .range_rows = 3, .expect = expect, .absolute = 1e-6};
        free(scene_run(&s));
    }
    free(x), free(y);
}

// The sums of every work range, and the new residual in the place of the old one.
TEST(the_change_of_a_residual_is_that_of_its_rows)
{
    float *x = random_floats(13 * CHANGED_COLS, 1.0f), *before = random_floats(14 * CHANGED_COLS, 1.0f),
          *kept = random_floats(15 * CHANGED_COLS, 1.0f);
    const int range_rows = 65536 / CHANGED_COLS;
    double expect[2 * CHANGED_ROWS] = {0};
    for (int i = 0; i < CHANGED_ROWS * CHANGED_COLS; i++) {
        const int range = i / CHANGED_COLS / range_rows;
        expect[2 * range] += fabs((double)x[i] - (double)before[i] - (double)kept[i]);
        expect[2 * range + 1] += fabs((double)kept[i]);
    }
    misc_case c = {.kind = SUMI_OP_RESIDUAL_CHANGE};
    scene s = {
        .build = build_misc, .context = &c, .inputs = {NULL, x, before, kept}, .expect = expect, .relative = 1e-6};
    free(scene_run(&s));
    void* out[4] = {NULL};
    scene_once(&s, SUMI_CPU_AUTO, 1, SPLIT_NONE, out);
    for (int i = 0; out[3] != NULL && i < 15 * CHANGED_COLS; i++) {
        const float want = i < CHANGED_ROWS * CHANGED_COLS ? x[i] - before[i] : kept[i];
        if (((float*)out[3])[i] != want) {
            CHECK(!"the residual that is kept");
            break;
        }
    }
    for (int i = 0; i < 4; i++) free(out[i]);
    free(x), free(before), free(kept);
}

// The factor follows from the sigmas: a share of the difference, at most a half, and 0 where the sigmas do not differ.
TEST(a_residual_is_extrapolated_along_sigma)
{
    static const struct {
        float older, newer, present;
        double factor;
    } s_cases[] = {
        {0.9f, 0.7f, 0.65f, 0.25}, {0.9f, 0.7f, 0.3f, 0.5}, {0.7f, 0.7f, 0.3f, 0.0}, {0.0f, 0.7f, 0.3f, 0.0}};
    float *x = random_floats(9 * 21, 1.0f), *residual = random_floats(10 * 21, 1.0f),
          *change = random_floats(11 * 21, 1.0f), sigmas[6] = {0}, table[20] = {0};
    for (size_t k = 0; k < sizeof s_cases / sizeof *s_cases; k++) {
        double expect[9 * 21];
        sigmas[2] = s_cases[k].older;
        sigmas[5] = s_cases[k].newer;
        table[3 * 4 + 2] = s_cases[k].present;
        for (int i = 0; i < 9 * 21; i++) {
            const double added = (double)residual[i] + s_cases[k].factor * (double)change[i];
            expect[i] = (double)x[i] + (i < 8 * 21 ? added : 0.0);
        }
        misc_case c = {.kind = SUMI_OP_ADD_RESIDUAL};
        scene s = {.build = build_misc,
                   .context = &c,
                   .inputs = {x, residual, change, sigmas, table},
                   .range_rows = 3,
                   .counter = 3,
                   .expect = expect,
                   .absolute = 2e-6};
        free(scene_run(&s));
    }
    free(x), free(residual), free(change);
}

TEST(rows_without_a_weight_are_filled_with_zeros)
{
    float* y = random_floats(12 * 21, 1.0f);
    double expect[12 * 21];
    for (int i = 0; i < 12 * 21; i++) {
        const int row = i / 21;
        expect[i] = (row >= 1 && row < 4) || row == 7 ? 0.0 : (double)y[i];
    }
    misc_case c = {.kind = SUMI_OP_FILL_ROWS, .spans = {{1, 3}, {7, 1}}, .flag = 1};
    scene s = {.build = build_misc, .context = &c, .inputs = {y}, .expect = expect};
    free(scene_run(&s));
    free(y);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(embedding_filling_and_copying_move_the_right_rows);
    RUN(rotary_time_and_modulation_tables_agree_with_the_reference);
    RUN(patches_put_channels_or_pixels_fastest_and_come_back);
    RUN(a_bias_is_added_to_every_embedded_row);
    RUN(means_are_of_their_spans_alone);
    RUN(rows_of_a_table_are_mixed_by_their_factors);
    RUN(embedded_rows_and_their_bias_have_their_changes);
    RUN(rows_are_added_to_others_or_subtracted_from_them);
    RUN(the_change_of_a_residual_is_that_of_its_rows);
    RUN(a_residual_is_extrapolated_along_sigma);
    RUN(rows_without_a_weight_are_filled_with_zeros);
    TEST_END();
}
