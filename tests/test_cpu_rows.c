// Convolutions, and what is computed row by row, against a plain double reference: norms, rotary embedding,
// activations.
#include "base/memory.h"
#include "cpu_scenes.h"

// ---- CONV, GROUP NORM -----------------------------------------------------------------------------------------------

static void check_conv(sumi_op_conv conv, int ci, int co, bool has_residual)
{
    conv_case c = {.conv = conv, .ci = ci, .co = co, .has_residual = has_residual};
    int height, width, kernel = conv.kernel, taps = kernel * kernel, scale = conv.upsamples ? 2 : 1,
                       pad = conv.pads_end ? 0 : kernel / 2;
    conv_size(&c, &height, &width);
    float *x = random_floats((size_t)conv.height * conv.width * ci, 1.0f),
          *w = random_floats((size_t)co * ci * taps, 1.0f), *bias = random_floats((size_t)co, 1.0f);
    float* residual = random_floats((size_t)height * width * co, 1.0f);
    c.weight = float_weight(w, co, ci * taps);
    c.bias = float_weight(bias, 1, co);
    double* expect = malloc((size_t)height * width * co * sizeof *expect);
    for (int y = 0; y < height; y++) {
        for (int z = 0; z < width; z++) {
            for (int o = 0; o < co; o++) {
                double sum = (double)bias[o];
                for (int t = 0; t < taps; t++) {
                    int iy = y * conv.stride + t / kernel - pad, ix = z * conv.stride + t % kernel - pad;
                    if (iy < 0 || ix < 0 || iy >= conv.height * scale || ix >= conv.width * scale) continue;
                    for (int i = 0; i < ci; i++) {
                        sum += (double)x[(iy / scale * conv.width + ix / scale) * ci + i]
                             * (double)w[(o * ci + i) * taps + t];
                    }
                }
                expect[(y * width + z) * co + o] =
                    sum + (has_residual ? (double)residual[(y * width + z) * co + o] : 0.0);
            }
        }
    }
    scene s = {.build = build_conv,
               .context = &c,
               .inputs = {NULL, x, residual},
               .range_rows = 2 * width,
               .expect = expect,
               .absolute = 2e-7 * ci * taps + 1e-6,
               .relative = 1e-5};
    free(scene_run(&s));
    free(x), free(w), free(bias), free(residual), free(expect);
}

TEST(conv_agrees_with_the_reference)
{
    check_conv((sumi_op_conv){5, 7, 3, 1, false, false, 0, 0}, 3, 5, false);
    check_conv((sumi_op_conv){6, 5, 3, 1, false, false, 0, 0}, 16, 33, true);
    check_conv((sumi_op_conv){9, 11, 3, 1, false, false, 0, 0}, 40, 3, false);
    check_conv((sumi_op_conv){9, 31, 3, 1, false, false, 0, 0}, 70, 8, true);
    check_conv((sumi_op_conv){1, 1, 3, 1, false, false, 0, 0}, 4, 4, false);
    check_conv((sumi_op_conv){5, 4, 3, 1, true, false, 0, 0}, 24, 20, false);
    check_conv((sumi_op_conv){8, 6, 3, 2, false, true, 0, 0}, 17, 34, false);
    check_conv((sumi_op_conv){7, 9, 1, 1, false, false, 0, 0}, 50, 70, true);
    check_conv((sumi_op_conv){4, 4, 1, 1, false, false, 0, 0}, 300, 8, false);
    check_conv((sumi_op_conv){30, 29, 3, 1, false, false, 0, 0}, 32, 64, false);
}

TEST(group_norm_agrees_with_the_reference_also_with_a_large_mean)
{
    static const int s_shapes[][4] = {{15, 32, 32, 0}, {7, 96, 32, 3}, {300, 64, 4, 70}, {1000, 12, 3, 64}};
    for (int i = 0; i < 8; i++) {
        group_case c = {s_shapes[i / 2][0], s_shapes[i / 2][1], s_shapes[i / 2][2], i % 2 == 1, {0}, {0},
                        s_shapes[i / 2][3]};
        float *x = random_floats((size_t)c.rows * c.cols, 1.0f), *w = random_floats((size_t)c.cols, 1.0f),
              *bias = random_floats((size_t)c.cols, 1.0f);
        for (int k = 0; k < c.rows * c.cols; k++) x[k] += (float)(50 * (i % 3));
        c.w = float_weight(w, 1, c.cols);
        c.b = float_weight(bias, 1, c.cols);
        double* expect = malloc((size_t)c.rows * c.cols * sizeof *expect);
        int size = c.cols / c.groups;
        for (int g = 0; g < c.groups; g++) {
            double mean = 0.0, variance = 0.0, n = (double)c.rows * size;
            for (int pass = 0; pass < 2; pass++) {
                for (int r = 0; r < c.rows; r++) {
                    for (int k = 0; k < size; k++) {
                        double v = (double)x[r * c.cols + g * size + k];
                        if (pass == 0) {
                            mean += v / n;
                        } else {
                            variance += (v - mean) * (v - mean) / n;
                        }
                    }
                }
            }
            for (int r = 0; r < c.rows; r++) {
                for (int k = g * size; k < (g + 1) * size; k++) {
                    double v =
                        ((double)x[r * c.cols + k] - mean) / sqrt(variance + 1e-6) * (double)w[k] + (double)bias[k];
                    expect[r * c.cols + k] = c.silu ? act_double(SUMI_ACT_SILU, v) : v;
                }
            }
        }
        scene s = {.build = build_group,
                   .context = &c,
                   .inputs = {NULL, x},
                   .range_rows = 5,
                   .expect = expect,
                   .absolute = i % 3 > 0 ? 3e-5 : 2e-6,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(x), free(w), free(bias), free(expect);
    }
}

// ---- Row ops --------------------------------------------------------------------------------------------------------

TEST(norms_agree_with_the_reference)
{
    static const int s_sizes[][2] = {{1, 1}, {3, 37}, {9, 256}, {40, 131}, {7, 1000}};
    for (int i = 0; i < 80; i++) {
        row_case c = {.kind = i & 1 ? SUMI_OP_NORM_GATE_ADD : SUMI_OP_NORM_MODULATE,
                      .rows = s_sizes[i / 8 % 5][0],
                      .cols = s_sizes[i / 8 % 5][1],
                      .row = i & 2 ? 2 : 0,
                      .has_bands = i >= 40 && s_sizes[i / 8 % 5][0] > 1};
        c.has_weight = i & 4;
        c.has_steps = !(i & 2);
        c.layer = c.kind == SUMI_OP_NORM_MODULATE && i & 2;
        bool is_modulate = c.kind == SUMI_OP_NORM_MODULATE;
        size_t x_count = (size_t)(c.rows + c.row) * (size_t)c.cols, b_count = (size_t)c.rows * (size_t)c.cols;
        float *x = random_floats(x_count, 3.0f), *branch = random_floats(b_count, 3.0f),
              *steps = random_floats((size_t)6 * (size_t)c.cols, 1.0f), *w = random_floats((size_t)c.cols, 1.0f);
        c.w = float_weight(w, 1, c.cols);
        double* expect = malloc(x_count * sizeof *expect);
        for (size_t k = 0; k < x_count; k++) expect[k] = (double)x[k];
        for (int r = 0; r < c.rows; r++) {
            const float* from = is_modulate ? x + (r + c.row) * c.cols : branch + r * c.cols;
            double mean = 0.0, square = 0.0;
            for (int k = 0; k < c.cols; k++) mean += c.layer ? (double)from[k] / c.cols : 0.0;
            for (int k = 0; k < c.cols; k++) square += ((double)from[k] - mean) * ((double)from[k] - mean) / c.cols;
            for (int k = 0; k < c.cols; k++) {
                double v = ((double)from[k] - mean) / sqrt(square + (is_modulate ? 1e-6 : 1e-5));
                double plus = is_modulate && c.has_weight && !c.layer && c.has_steps ? 1.0 : 0.0;
                v *= c.has_weight ? (double)w[k] + plus : 1.0;
                // row 1: the counter
                const float* step = steps + (c.has_bands && r < c.rows / 2 ? 4 : 2) * c.cols;
                double first = (double)step[k], second = (double)step[c.cols + k];
                if (is_modulate) {
                    expect[r * c.cols + k] = c.has_steps ? v * first + second : v;
                } else {
                    expect[(r + c.row) * c.cols + k] += c.has_steps ? v * second : v;
                }
            }
        }
        scene s = {.build = build_row,
                   .context = &c,
                   .inputs = {is_modulate ? NULL : x, is_modulate ? x : branch, steps},
                   .range_rows = 2,
                   .counter = 1,
                   .expect = expect,
                   .absolute = 2e-6,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(x), free(branch), free(steps), free(w), free(expect);
    }
}

TEST(norms_with_a_bias_agree_with_the_reference)
{
    static const int s_widths[] = {1, 3, 8, 37, 96, 1000};
    for (int i = 0; i < 48; i++) {
        row_case c = {.kind = SUMI_OP_NORM_MODULATE, .rows = 11, .cols = s_widths[i / 8], .eps = 1e-5f};
        c.layer = i & 1;
        c.in_place = i & 2;
        c.has_weight = i & 4;
        c.has_bias = true;
        size_t count = (size_t)c.rows * (size_t)c.cols;
        float *x = random_floats(count, 3.0f), *w = random_floats((size_t)c.cols, 1.0f),
              *bias = random_floats((size_t)c.cols, 1.0f);
        for (size_t k = 0; k < count; k++) x[k] += 20.0f;
        c.w = float_weight(w, 1, c.cols);
        c.w2 = float_weight(bias, 1, c.cols);
        double* expect = malloc(count * sizeof *expect);
        for (int r = 0; r < c.rows; r++) {
            const float* from = x + r * c.cols;
            double mean = 0.0, square = 0.0;
            for (int k = 0; k < c.cols && c.layer; k++) mean += (double)from[k] / c.cols;
            for (int k = 0; k < c.cols; k++) square += ((double)from[k] - mean) * ((double)from[k] - mean) / c.cols;
            for (int k = 0; k < c.cols; k++) {
                double v = ((double)from[k] - mean) / sqrt(square + 1e-5);
                expect[r * c.cols + k] = v * (c.has_weight ? (double)w[k] : 1.0) + (double)bias[k];
            }
        }
        scene s = {.build = build_row,
                   .context = &c,
                   .inputs = {NULL, x},
                   .range_rows = 2,
                   .expect = expect,
                   .absolute = 1e-5,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(x), free(w), free(bias), free(expect);
    }
}

// A picture's norm: x / max(|x|, 1e-12) * sqrt(columns) * w, which an eps far below any square expresses; then SiLU.
// A pixel of zeros stays one; a short one is not drawn, for random lengths come down to where the eps begins to count.
TEST(norms_with_silu_agree_with_the_reference)
{
    static const int s_widths[] = {1, 3, 8, 37, 96, 384};
    for (int i = 0; i < 24; i++) {
        row_case c = {.kind = SUMI_OP_NORM_MODULATE, .rows = 11, .cols = s_widths[i / 4], .has_weight = true};
        c.silu = true;
        c.layer = i & 1;
        c.in_place = i & 2;
        c.eps = c.layer ? 1e-6f : 1e-24f / (float)c.cols;
        size_t count = (size_t)c.rows * (size_t)c.cols;
        float *x = random_floats(count, 3.0f), *w = random_floats((size_t)c.cols, 1.0f);
        for (int k = 0; k < c.cols; k++) x[4 * c.cols + k] = 0.0f, x[5 * c.cols + k] = 1e-9f * (float)(1 + k % 3);
        c.w = float_weight(w, 1, c.cols);
        double* expect = malloc(count * sizeof *expect);
        for (int r = 0; r < c.rows; r++) {
            const float* from = x + r * c.cols;
            double mean = 0.0, square = 0.0;
            for (int k = 0; k < c.cols && c.layer; k++) mean += (double)from[k] / c.cols;
            for (int k = 0; k < c.cols; k++) square += ((double)from[k] - mean) * ((double)from[k] - mean);
            double factor = c.layer ? 1.0 / sqrt(square / c.cols + 1e-6) : sqrt(c.cols) / fmax(sqrt(square), 1e-12);
            for (int k = 0; k < c.cols; k++) {
                double v = ((double)from[k] - mean) * factor * (double)w[k];
                expect[r * c.cols + k] = v / (1.0 + exp(-v));
            }
        }
        scene s = {.build = build_row,
                   .context = &c,
                   .inputs = {NULL, x},
                   .range_rows = 2,
                   .expect = expect,
                   .absolute = 2e-6,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(x), free(w), free(expect);
    }
}

TEST(qk_norm_rope_agrees_with_the_reference)
{
    static const int s_dims[] = {2, 6, 32, 64, 96, 128, 134};
    for (int i = 0; i < 28; i++) {
        row_case c = {.kind = SUMI_OP_QK_NORM_ROPE,
                      .rows = 11,
                      .row = i % 3,
                      .q_heads = 4,
                      .kv_heads = 2,
                      .dim = s_dims[i / 4],
                      .has_weight = i & 1,
                      .rotary = i & 2 ? SUMI_ROTARY_HALVES : SUMI_ROTARY_INTERLEAVED};
        int cols = 8 * c.dim, dim = c.dim, pairs = dim / 2;
        size_t count = (size_t)(c.rows + c.row) * (size_t)cols;
        float *x = random_floats(count, 2.0f), *rope = random_floats((size_t)(c.rows + 2) * (size_t)dim, 1.0f),
              *wq = random_floats((size_t)dim, 1.0f), *wk = random_floats((size_t)dim, 1.0f);
        c.w = float_weight(wq, 1, dim);
        c.w2 = float_weight(wk, 1, dim);
        double* expect = malloc(count * sizeof *expect);
        for (size_t k = 0; k < count; k++) expect[k] = (double)x[k];
        for (int r = 0; r < c.rows; r++) {
            for (int h = 0; h < 6; h++) {
                double* v = expect + (size_t)(r + c.row) * (size_t)cols + (size_t)(h * dim);
                double square = 0.0;
                for (int d = 0; d < dim; d++) square += v[d] * v[d] / dim;
                for (int d = 0; d < dim && c.has_weight; d++)
                    v[d] *= (double)(h < 4 ? wq : wk)[d] / sqrt(square + 1e-6);
                for (int k = 0; k < pairs; k++) {
                    double cosine = (double)rope[(r + 2) * dim + 2 * k], sine = (double)rope[(r + 2) * dim + 2 * k + 1];
                    double *a = c.rotary == SUMI_ROTARY_HALVES ? v + k : v + 2 * k,
                           *b = c.rotary == SUMI_ROTARY_HALVES ? v + k + pairs : v + 2 * k + 1, p = *a, q = *b;
                    *a = p * cosine - q * sine;
                    *b = p * sine + q * cosine;
                }
            }
        }
        scene s = {.build = build_row,
                   .context = &c,
                   .inputs = {x, rope, NULL},
                   .range_rows = 3,
                   .expect = expect,
                   .absolute = 3e-6,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(x), free(rope), free(wq), free(wk), free(expect);
    }
}

TEST(activations_and_gating_agree_with_the_reference_to_the_ends_of_the_range)
{
    static const float s_special[] = {0.0f,    -0.0f, 1e-30f, -1e-30f, 87.0f,  -87.0f, 89.0f,  -89.0f, 200.0f,
                                      -200.0f, 1e30f, -1e30f, 3e38f,   -3e38f, 17.3f,  -17.3f, 9.0f,   -9.0f};
    for (int a = SUMI_ACT_NONE; a <= SUMI_ACT_TANH; a++) {
        for (int is_gated = 0; is_gated < 2; is_gated++) {
            row_case c = {.kind = is_gated ? SUMI_OP_GATED : SUMI_OP_ACTIVATE,
                          .rows = 37,
                          .cols = 43,
                          .activation = (sumi_activation)a};
            int x_cols = is_gated ? 86 : 43;
            float* x = random_floats(37 * 86, 12.0f);
            for (size_t i = 0; i < sizeof s_special / sizeof *s_special; i++) {
                x[(i / 9) * (size_t)x_cols + i % 9] = s_special[i];
                x[(i / 9) * (size_t)x_cols + i % 9 + 43] = is_gated ? 0.5f : x[(i / 9) * (size_t)x_cols + i % 9 + 43];
            }
            double expect[37 * 43];
            for (int i = 0; i < 37 * 43; i++) {
                expect[i] = act_double(c.activation, (double)x[i / 43 * x_cols + i % 43])
                          * (is_gated ? (double)x[i / 43 * x_cols + i % 43 + 43] : 1.0);
            }
            scene s = {.build = build_row,
                       .context = &c,
                       .inputs = {NULL, x, NULL},
                       .range_rows = 3,
                       .expect = expect,
                       .absolute = is_gated ? 1e-5 : 1e-6,
                       .relative = 1e-6};
            free(scene_run(&s));
            free(x);
        }
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(conv_agrees_with_the_reference);
    RUN(group_norm_agrees_with_the_reference_also_with_a_large_mean);
    RUN(norms_agree_with_the_reference);
    RUN(norms_with_silu_agree_with_the_reference);
    RUN(qk_norm_rope_agrees_with_the_reference);
    RUN(activations_and_gating_agree_with_the_reference_to_the_ends_of_the_range);
    RUN(norms_with_a_bias_agree_with_the_reference);
    TEST_END();
}
