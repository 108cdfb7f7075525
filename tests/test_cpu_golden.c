// The CPU's ops against single operations recorded from PyTorch.
#include "base/memory.h"
#include "base/platform.h"
#include "cpu/cpu.h"
#include "cpu_scenes.h"
#include "plan/plan.h"

#define GOLDEN "tests/golden/common/numerics/ops.safetensors"
static char* s_golden; // the file
static size_t s_golden_bytes;
static void* s_golden_tensors[256]; // copies handed out, freed at the end
static int s_golden_count;

// The floats of a tensor and their number; the test fails when it is missing. The header is JSON without escapes: a
// search is enough here.
static const float* golden(const char* name, int* out_count)
{
    static const float s_none[1] = {0};
    uint64_t header;
    char key[128];
    snprintf(key, sizeof key, "\"%s\":{", name);
    memcpy(&header, s_golden, 8);
    char saved = s_golden[8 + header];
    s_golden[8 + header] = 0;
    const char* at = strstr(s_golden + 8, key);
    const char* offsets = at == NULL ? NULL : strstr(at, "\"data_offsets\":[");
    unsigned long long begin = 0, end = 0;
    bool is_found = offsets != NULL && sscanf(offsets, "\"data_offsets\":[%llu,%llu]", &begin, &end) == 2;
    s_golden[8 + header] = saved;
    if (!is_found || 8 + header + end > s_golden_bytes) {
        printf("  no tensor %s\n", name);
        CHECK(!"a golden tensor");
        *out_count = 0;
        return s_none;
    }
    float* data = malloc((size_t)(end - begin) + 4);
    if (s_golden_count < 256) s_golden_tensors[s_golden_count++] = data;
    memcpy(data, s_golden + 8 + header + begin, (size_t)(end - begin));
    *out_count = (int)((end - begin) / sizeof(float));
    return data;
}

static const float* golden_of(const char* test, const char* part, int* out_count)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", test, part);
    return golden(name, out_count);
}

static bool golden_open(void)
{
    if (s_golden == NULL) {
        FILE* file = fopen(GOLDEN, "rb");
        if (file == NULL) return false;
        fseek(file, 0, SEEK_END);
        s_golden_bytes = (size_t)ftell(file);
        fseek(file, 0, SEEK_SET);
        s_golden = malloc(s_golden_bytes + 1);
        s_golden_bytes = fread(s_golden, 1, s_golden_bytes, file);
        fclose(file);
    }
    return s_golden_bytes > 8;
}

static double* doubles(const float* x, int count)
{
    double* d = malloc(((size_t)count + 1) * sizeof *d);
    for (int i = 0; i < count; i++) d[i] = (double)x[i];
    return d;
}

static double* golden_doubles(const char* test, const char* part)
{
    int count;
    const float* x = golden_of(test, part, &count);
    return doubles(x, count);
}

// [channels][pixels] to [pixels][channels]
static float* channels_last(const float* x, int channels, int pixels)
{
    float* y = malloc((size_t)channels * (size_t)pixels * sizeof *y);
    for (int i = 0; i < channels * pixels; i++) y[i % pixels * channels + i / pixels] = x[i];
    return y;
}

TEST(golden_norms_and_activations)
{
    if (!golden_open()) SKIP(GOLDEN " is not there: run from the repository's root");
    static const struct {
        const char* name;
        int rows;
        double eps;
        bool is_layer, plus_one;
        double absolute, relative;
    } s_norms[] = {{"rms_norm.3x37.f32", 3, 1e-6, false, false, 1e-6, 1e-5},
                   {"rms_norm.5x256.f32", 5, 1e-5, false, false, 1e-6, 1e-5},
                   {"rms_norm.1x3.f32", 1, 1e-6, false, false, 1e-6, 1e-5},
                   {"rms_norm_large.f32", 2, 1e-6, false, false, 1e-6, 1e-5},
                   {"rms_norm_plus_one.3x37.f32", 3, 1e-6, false, true, 1e-6, 1e-5},
                   {"rms_norm_plus_one.5x256.f32", 5, 1e-5, false, true, 1e-6, 1e-5},
                   {"rms_norm_plus_one.1x3.f32", 1, 1e-6, false, true, 1e-6, 1e-5},
                   {"layer_norm.3x37.f32", 3, 1e-6, true, false, 1e-6, 1e-5},
                   {"layer_norm.5x256.f32", 5, 1e-6, true, false, 1e-6, 1e-5},
                   {"layer_norm.1x3.f32", 1, 1e-6, true, false, 1e-6, 1e-5},
                   {"layer_norm_offset.f32", 2, 1e-6, true, false, 1e-4, 1e-4}};
    for (size_t i = 0; i < sizeof s_norms / sizeof *s_norms; i++) {
        int count, w_count = 0;
        const float *x = golden_of(s_norms[i].name, "input.x", &count),
                    *want = golden_of(s_norms[i].name, "expect", &count),
                    *w = s_norms[i].is_layer ? NULL : golden_of(s_norms[i].name, "input.w", &w_count);
        double* expect = doubles(want, count);
        bench b; // written by hand: eps and weight_plus_one are the op's
        for (size_t l = 0; l < 3; l++) {
            if (!has_level(s_levels[l])) continue;
            bench_begin(&b, s_levels[l], 2);
            int cols = count / s_norms[i].rows;
            sumi_weight weight = float_weight(w, 1, cols);
            sumi_value in = bench_value(&b, s_norms[i].rows, cols);
            sumi_value out = sumi_plan_norm(
                &b.plan, &(sumi_plan_norm_args){.label = "norm",
                                                .x = in,
                                                .rows = s_norms[i].rows,
                                                .norm = s_norms[i].is_layer ? SUMI_NORM_LAYER : SUMI_NORM_RMS,
                                                .weight = w == NULL ? NULL : &weight,
                                                .eps = (float)s_norms[i].eps});
            b.plan.ops[0].u.norm.weight_plus_one = s_norms[i].plus_one;
            b.plan.values[out.id - 1].bound = true;
            if (bench_ready(&b)) {
                bench_write(&b, in, x);
                bench_run(&b, SPLIT_NONE, 0);
                float* got = bench_read(&b, out);
                for (int k = 0; k < count; k++)
                    CHECK_NEAR((double)got[k], expect[k], s_norms[i].absolute, s_norms[i].relative);
                free(got);
            }
            bench_end(&b);
        }
        free(expect);
    }
    static const struct {
        const char* name;
        sumi_activation activation;
    } s_acts[] = {{"silu.f32", SUMI_ACT_SILU},
                  {"gelu_tanh.f32", SUMI_ACT_GELU_TANH},
                  {"gelu_erf.f32", SUMI_ACT_GELU_ERF},
                  {"tanh.f32", SUMI_ACT_TANH}};
    for (size_t i = 0; i < sizeof s_acts / sizeof *s_acts; i++) {
        int count;
        const float* x = golden_of(s_acts[i].name, "input.x", &count);
        double* expect = golden_doubles(s_acts[i].name, "expect");
        row_case c = {.kind = SUMI_OP_ACTIVATE, .rows = 1, .cols = count, .activation = s_acts[i].activation};
        scene s = {.build = build_row,
                   .context = &c,
                   .inputs = {NULL, x},
                   .expect = expect,
                   .absolute = 1e-6,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(expect);
    }
    static const struct {
        const char* name;
        int cols, pixels;
    } s_groups[] = {
        {"group_norm.32x3x5.f32", 32, 15}, {"group_norm.64x2x3.f32", 64, 6}, {"group_norm.96x1x7.f32", 96, 7}};
    for (size_t i = 0; i < sizeof s_groups / sizeof *s_groups; i++) {
        int count, n;
        float* x = channels_last(golden_of(s_groups[i].name, "input.x", &count), s_groups[i].cols, s_groups[i].pixels);
        float* want =
            channels_last(golden_of(s_groups[i].name, "expect", &count), s_groups[i].cols, s_groups[i].pixels);
        double* expect = doubles(want, count);
        group_case c = {s_groups[i].pixels,
                        s_groups[i].cols,
                        32,
                        false,
                        float_weight(golden_of(s_groups[i].name, "input.w", &n), 1, s_groups[i].cols),
                        float_weight(golden_of(s_groups[i].name, "input.b", &n), 1, s_groups[i].cols),
                        i == 0 ? 4 : 0};
        scene s = {.build = build_group,
                   .context = &c,
                   .inputs = {NULL, x},
                   .expect = expect,
                   .absolute = 1e-6,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(x), free(want), free(expect);
    }
}

TEST(golden_products_and_convolutions)
{
    if (!golden_open()) SKIP(GOLDEN " is not there: run from the repository's root");
    for (int i = 0; i < 2; i++) {
        const char* name = i == 0 ? "linear.f32" : "linear_one_row.f32";
        int n;
        const float *x = golden_of(name, "input.x", &n), *w = golden_of(name, "input.w", &n);
        linear_case c = {.m = i == 0 ? 5 : 1, .n = i == 0 ? 45 : 3, .k = i == 0 ? 67 : 129, .has_bias = i == 0};
        c.weight = float_weight(w, c.n, c.k);
        if (c.has_bias) c.bias = float_weight(golden_of(name, "input.b", &n), 1, c.n);
        double* expect = golden_doubles(name, "expect");
        scene s = {.build = build_linear,
                   .context = &c,
                   .inputs = {NULL, x, NULL},
                   .expect = expect,
                   .absolute = 1e-5,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(expect);
    }
    static const struct {
        const char* name;
        sumi_op_conv conv;
    } s_convs[] = {{"conv3x3.f32", {6, 9, 3, 1, false, false, 0, 0}},
                   {"conv3x3_down_even.f32", {8, 10, 3, 2, false, true, 0, 0}},
                   {"conv1x1.f32", {3, 5, 1, 1, false, false, 0, 0}}};
    for (size_t i = 0; i < sizeof s_convs / sizeof *s_convs; i++) {
        int count, n, x_count;
        const float* x = golden_of(s_convs[i].name, "input.x", &x_count);
        conv_case c = {.conv = s_convs[i].conv, .ci = 5, .co = 7};
        c.weight = float_weight(golden_of(s_convs[i].name, "input.w", &n), 7, 5 * c.conv.kernel * c.conv.kernel);
        c.bias = float_weight(golden_of(s_convs[i].name, "input.b", &n), 1, 7);
        float* nhwc = channels_last(x, 5, x_count / 5);
        const float* nchw = golden_of(s_convs[i].name, "expect", &count);
        float* want = channels_last(nchw, 7, count / 7);
        double* expect = doubles(want, count);
        scene s = {.build = build_conv,
                   .context = &c,
                   .inputs = {NULL, nhwc, NULL},
                   .expect = expect,
                   .absolute = 1e-5,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(nhwc), free(want), free(expect);
    }
    // nearest upsampling is folded into the convolution: with a 1x1 identity it is upsampling alone, exactly
    static const float s_identity[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, s_zeros[3];
    int count, x_count;
    const float *x = golden("upsample_nearest_2x.f32.input.x", &x_count),
                *up = golden("upsample_nearest_2x.f32.expect", &count);
    conv_case c = {.conv = {.height = 3, .width = 5, .kernel = 1, .stride = 1, .upsamples = true},
                   .ci = 3,
                   .co = 3,
                   .weight = float_weight(s_identity, 3, 3),
                   .bias = float_weight(s_zeros, 1, 3)};
    float *nhwc = channels_last(x, 3, 15), *want = channels_last(up, 3, 60);
    double* expect = doubles(want, count);
    scene s = {.build = build_conv, .context = &c, .inputs = {NULL, nhwc, NULL}, .expect = expect};
    free(scene_run(&s));
    free(nhwc), free(want), free(expect);
}

// q, k, v of a golden case as rows of one matrix; keys without a mask are left out. The op's keys are its queries' rows
// and more, so the queries are the leading rows.
static void golden_attention(const char* name, int q_heads, int kv_heads, int dim, int queries, int keys, float scale,
                             bool causal, double absolute)
{
    int count, cols = (q_heads + 2 * kv_heads) * dim, kept = 0, n;
    const float *q = golden_of(name, "input.q", &n), *k = golden_of(name, "input.k", &n),
                *v = golden_of(name, "input.v", &n), *want = golden_of(name, "expect", &count);
    const uint8_t* mask = strstr(name, "mask") ? (const uint8_t*)(const void*)golden_of(name, "input.mask", &n) : NULL;
    float* qkv = calloc((size_t)keys * (size_t)cols, sizeof *qkv);
    for (int i = 0; i < keys; i++) {
        if (mask != NULL && mask[i] == 0) continue;
        for (int h = 0; h < kv_heads; h++) {
            memcpy(qkv + kept * cols + (q_heads + h) * dim, k + (h * keys + i) * dim, (size_t)dim * sizeof *qkv);
            memcpy(qkv + kept * cols + (q_heads + kv_heads + h) * dim, v + (h * keys + i) * dim,
                   (size_t)dim * sizeof *qkv);
        }
        kept++;
    }
    CHECK(kept >= queries);
    for (int i = 0; i < queries; i++) {
        for (int h = 0; h < q_heads; h++)
            memcpy(qkv + i * cols + h * dim, q + (h * queries + i) * dim, (size_t)dim * sizeof *qkv);
    }
    sumi_sequence whole = {.span = {{0, kept}}, .span_count = 1, .query_spans = 1};
    attention_case c = {kept, {q_heads, kv_heads, dim, scale, causal, 0, &whole, 1}};
    scene s = {.build = build_attention, .context = &c, .inputs = {NULL, qkv}, .range_rows = 5};
    float* got = scene_run(&s);
    for (int i = 0; i < q_heads * queries * dim && got != NULL; i++) {
        CHECK_NEAR((double)got[i / dim % queries * q_heads * dim + i / dim / queries * dim + i % dim], (double)want[i],
                   absolute, 1e-5);
    }
    free(got), free(qkv);
}

TEST(golden_attention_rotary_and_times)
{
    if (!golden_open()) SKIP(GOLDEN " is not there: run from the repository's root");
    golden_attention("sdpa_gqa.f32", 6, 2, 32, 13, 13, 1.0f / sqrtf(32.0f), false, 1e-6);
    golden_attention("sdpa_gqa_causal.f32", 6, 2, 32, 13, 13, 1.0f / sqrtf(32.0f), true, 1e-6);
    golden_attention("sdpa_key_mask.f32", 6, 2, 32, 13, 17, 1.0f / sqrtf(32.0f), false, 1e-6);
    golden_attention("sdpa_one_query.f32", 6, 2, 32, 1, 13, 1.0f / sqrtf(32.0f), false, 1e-6);
    golden_attention("sdpa_scale.f32", 6, 2, 32, 13, 13, 0.0625f, false, 1e-5);
    golden_attention("sdpa_d120.f32", 2, 1, 120, 9, 9, 1.0f / sqrtf(120.0f), false, 1e-6);

    // softmax: keys and values are the identity, so that the scores are the row and the result its softmax
    int count, n;
    const float *x = golden("softmax.f32.input.x", &count), *want = golden("softmax.f32.expect", &count);
    float* qkv = calloc(33 * 99, sizeof *qkv);
    for (int i = 0; i < 33; i++) {
        for (int k = 0; k < 33; k++) qkv[i * 99 + k] = i < 6 ? x[i * 33 + k] : 0.0f;
        qkv[i * 99 + 33 + i] = qkv[i * 99 + 66 + i] = 1.0f;
    }
    sumi_sequence whole = {.span = {{0, 33}}, .span_count = 1, .query_spans = 1};
    attention_case c = {33, {1, 1, 33, 1.0f, false, 0, &whole, 1}};
    scene s = {.build = build_attention, .context = &c, .inputs = {NULL, qkv}};
    float* got = scene_run(&s);
    for (int i = 0; i < 6 * 33 && got != NULL; i++) CHECK_NEAR((double)got[i], (double)want[i], 1e-6, 1e-5);
    free(got), free(qkv);

    for (int i = 0; i < 2; i++) {
        const char* name = i == 0 ? "rotary_interleaved.f32" : "rotary_half.f32";
        const float *from = golden_of(name, "input.x", &count), *cosines = golden_of(name, "input.cos", &n),
                    *sines = golden_of(name, "input.sin", &n);
        row_case r = {.kind = SUMI_OP_QK_NORM_ROPE,
                      .rows = 7,
                      .q_heads = 2,
                      .kv_heads = 1,
                      .dim = 24,
                      .rotary = i == 0 ? SUMI_ROTARY_INTERLEAVED : SUMI_ROTARY_HALVES};
        float rows[7 * 96] = {0}, rope[9 * 24] = {0}; // the scene's table begins two rows early
        const float* expect = golden_of(name, "expect", &count);
        for (int k = 0; k < 7 * 72; k++) rows[k / 72 * 96 + k % 72] = from[k];
        for (int k = 0; k < 7 * 12; k++) {
            rope[48 + 2 * k] = cosines[k];
            rope[48 + 2 * k + 1] = sines[k];
        }
        scene rotary = {.build = build_row, .context = &r, .inputs = {rows, rope, NULL}, .range_rows = 2};
        got = scene_run(&rotary);
        for (int k = 0; k < 7 * 72 && got != NULL; k++)
            CHECK_NEAR((double)got[k / 72 * 96 + k % 72], (double)expect[k], 1e-6, 1e-5);
        free(got);
    }

    static const struct {
        const char* name;
        int width;
        bool cos_first;
    } s_times[] = {
        {"timestep.cos_sin_256", 256, true}, {"timestep.sin_cos_256", 256, false}, {"timestep.cos_sin_32", 32, true}};
    for (size_t i = 0; i < sizeof s_times / sizeof *s_times; i++) {
        const float *t = golden_of(s_times[i].name, "input.t", &n),
                    *expect = golden_of(s_times[i].name, "expect", &count);
        bench b;
        bench_begin(&b, SUMI_CPU_AUTO, 2);
        sumi_value in = bench_value(&b, n, 1),
                   out = sumi_plan_time_embed(&b.plan, &(sumi_plan_time_args){.times = in,
                                                                              .width = s_times[i].width,
                                                                              .scale = 1.0f,
                                                                              .max_period = 10000.0f,
                                                                              .cos_first = s_times[i].cos_first});
        b.plan.values[out.id - 1].bound = true;
        if (bench_ready(&b)) {
            bench_write(&b, in, t);
            bench_run(&b, SPLIT_NONE, 0);
            float* e = bench_read(&b, out);
            for (int k = 0; k < count; k++) CHECK_NEAR((double)e[k], (double)expect[k], 1e-4, 0.0);
            free(e);
        }
        bench_end(&b);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(golden_norms_and_activations);
    RUN(golden_products_and_convolutions);
    RUN(golden_attention_rotary_and_times);
    for (int i = 0; i < s_golden_count; i++) free(s_golden_tensors[i]);
    free(s_golden);
    TEST_END();
}
