// Ops that the CPU's runner cuts into work ranges of its own (sumi_plan_arrange) have the same bits as whole ones,
// however the ranges are grouped into slices and by any number of threads. The order in which a sum is added up does not
// depend on how its op is cut, so the bits are compared, with no tolerance.
#include "base/memory.h"
#include "cpu_scenes.h"
#include "number_formats.h"
#include "plan/plan.h"
#include "system.h"

// Memory that was not written holds NaN, not what an earlier run has left there.
static void* allocate_nan(size_t bytes, size_t alignment, void* user_data)
{
    (void)user_data;
    void* memory = system_allocate(bytes, alignment);
    return memory == NULL ? NULL : memset(memory, 0xff, bytes);
}

static void release_nan(void* memory, size_t bytes, void* user_data)
{
    (void)bytes, (void)user_data;
    system_release(memory);
}

static const char* const s_split_names[] = {"all ranges at once", "range by range", "runs of ranges"};

static bool is_cut(const sumi_op* op) { return op->is_cut && op->range_count > op->preparing_count + 1; }

// has_preparing: whether the first of the ranges must be some that only prepare.
static void check_cut(scene* s, const char* what, bool has_preparing)
{
    for (size_t l = 0; l < sizeof s_levels / sizeof *s_levels; l++) {
        if (!runs_level(l)) continue;
        void* whole[MAX_SCENE_VALUES] = {0};
        s->is_cut = false;
        scene_once(s, s_levels[l], 1, SPLIT_NONE, whole);
        CHECK(!s->op.is_cut && !s->last_op.is_cut);
        s->is_cut = true;
        for (int i = 0; i < 9 && whole[0] != NULL; i++) {
            const int threads = 1 + i / 3;
            const split how = i % 3 == 0 ? SPLIT_NONE : i % 3 == 1 ? SPLIT_PARTS : SPLIT_RANDOM;
            void* cut[MAX_SCENE_VALUES] = {0};
            scene_once(s, s_levels[l], threads, how, cut);
            const bool is_same = is_same_run(s, cut, whole),
                       are_cut = is_cut(&s->op) && is_cut(&s->last_op) && (s->op.preparing_count > 1 || !has_preparing);
            if (!is_same || !are_cut) {
                printf("  %s: %s, %d threads, %s: %d ranges, %d of them prepare\n", what, s_level_names[l], threads,
                       s_split_names[how], (int)s->op.range_count, (int)s->op.preparing_count);
            }
            CHECK(is_same);
            CHECK(are_cut);
        }
        for (int i = 0; i < MAX_SCENE_VALUES; i++) free(whole[i]);
    }
}

// ---- LINEAR ---------------------------------------------------------------------------------------------------------

static void check_linear(linear_case* c, const char* what)
{
    const int pad = c->is_into ? 3 : 0;
    float *x = random_floats((size_t)(c->m + pad) * (size_t)c->k, 1.0f),
          *y = random_floats((size_t)(c->m + pad) * (size_t)c->n, 1.0f),
          *gates = random_floats((size_t)4 * (size_t)(c->n + 5), 1.0f), *bias = random_floats((size_t)c->n, 1.0f);
    c->bias = float_weight(bias, 1, c->n);
    scene s = {.build = build_linear, .context = c, .inputs = {y, x, gates}, .counter = 2};
    check_cut(&s, what, false);
    free(x), free(y), free(gates), free(bias);
}

// The elements of a weight of this type, as its file has them.
static void* make_elements(sumi_dtype type, size_t count)
{
    unsigned char* data = malloc((size_t)sumi_dtype_bytes(type, count));
    for (size_t i = 0; i < count; i++) {
        const float value = random_float();
        const uint16_t half = type == SUMI_DTYPE_F16 ? float_to_f16(value) : sumi_float_to_bf16(value);
        switch (type) {
        case SUMI_DTYPE_F32: memcpy(data + 4 * i, &value, sizeof value); break;
        case SUMI_DTYPE_F16:
        case SUMI_DTYPE_BF16: memcpy(data + 2 * i, &half, sizeof half); break;
        case SUMI_DTYPE_F8_E4M3: data[i] = float_to_e4m3(value); break;
        case SUMI_DTYPE_F8_E5M2: data[i] = float_to_e5m2(value); break;
        default: data[i] = (unsigned char)random_below(256); break; // int8
        }
    }
    return data;
}

static const sumi_dtype s_types[] = {SUMI_DTYPE_F32,     SUMI_DTYPE_BF16,    SUMI_DTYPE_F16,
                                     SUMI_DTYPE_F8_E4M3, SUMI_DTYPE_F8_E5M2, SUMI_DTYPE_I8};

// c: everything but the weight. int8 has a factor for each row, and fp8 one for all.
static void check_linear_of_type(linear_case c, sumi_dtype type)
{
    void* data = make_elements(type, (size_t)c.n * (size_t)c.k);
    float* scales = random_floats((size_t)c.n, 0.01f);
    const bool is_float = type == SUMI_DTYPE_F32 || type == SUMI_DTYPE_F16 || type == SUMI_DTYPE_BF16;
    c.weight = (sumi_weight){.name = "w",
                             .rows = c.n,
                             .cols = c.k,
                             .tensor_count = 1,
                             .tensors = {{.data = data,
                                          .dtype = type,
                                          .rows = c.n,
                                          .scale = is_float ? 1.0f : 0.5f,
                                          .row_scales = type == SUMI_DTYPE_I8 ? scales : NULL}}};
    check_linear(&c, sumi_dtype_get(type)->name);
    free(data), free(scales);
}

TEST(products_of_many_rows_are_the_same_cut_or_whole)
{
    // two blocks of rows, two of depth; the last panel of columns is not a whole one
    for (size_t t = 0; t < sizeof s_types / sizeof *s_types; t++) {
        check_linear_of_type((linear_case){.m = 603,
                                           .n = 141,
                                           .k = 300,
                                           .has_bias = true,
                                           .is_into = t % 2 == 1,
                                           .activation = t % 3 == 0 ? SUMI_ACT_SILU : SUMI_ACT_NONE},
                             s_types[t]);
    }
    check_linear_of_type(
        (linear_case){.m = 603, .n = 141, .k = 300, .has_bias = true, .is_residual = true, .has_gate = true},
        SUMI_DTYPE_BF16);
    check_linear_of_type((linear_case){.m = 603, .n = 141, .k = 300, .accumulates = true, .has_gate = true},
                         SUMI_DTYPE_F32);
    // so deep that the blocks of rows are lower
    check_linear_of_type((linear_case){.m = 310, .n = 33, .k = 10240}, SUMI_DTYPE_BF16);
}

TEST(products_of_few_rows_are_the_same_cut_or_whole)
{
    for (size_t t = 0; t < sizeof s_types / sizeof *s_types; t++) {
        const bool is_wide = sumi_dtype_bytes(s_types[t], 1) > 1;
        check_linear_of_type((linear_case){.m = t % 2 == 0 ? 1 : 7,
                                           .n = is_wide ? 741 : 1605,
                                           .k = 770,
                                           .has_bias = true,
                                           .activation = SUMI_ACT_SILU},
                             s_types[t]);
    }
    check_linear_of_type((linear_case){.m = 3, .n = 741, .k = 770, .is_residual = true, .has_gate = true},
                         SUMI_DTYPE_BF16);
}

TEST(a_product_with_a_changed_weight_is_the_same_cut_or_whole)
{
    enum { N = 205, K = 770 };
    changed_weight w;
    make_changed(&w, SUMI_DTYPE_BF16, N, K, 5);
    linear_case c = {.m = 120, .n = N, .k = K, .weight = w.weight, .has_bias = true};
    check_linear(&c, "a changed weight");
    free_changed(&w);
}

// ---- ATTENTION ------------------------------------------------------------------------------------------------------

// One head whose rows are all but the first three and the last two.
static void check_attention(int rows, int dim)
{
    const sumi_sequence whole = {.span = {{3, rows - 5}}, .span_count = 1, .query_spans = 1};
    attention_case c = {rows, {1, 1, dim, 1.0f / sqrtf((float)dim), false, 0, &whole, 1}};
    float *qkv = random_floats((size_t)rows * (size_t)(3 * dim), 2.0f),
          *y = random_floats((size_t)rows * (size_t)dim, 1.0f);
    scene s = {.build = build_attention, .context = &c, .inputs = {y, qkv}, .range_rows = 128};
    char what[32];
    snprintf(what, sizeof what, "%d columns", dim);
    check_cut(&s, what, true);
    free(qkv), free(y);
}

TEST(attention_with_many_keys_is_the_same_cut_or_whole)
{
    check_attention(309, 512); // one group of queries; the last of three blocks of keys has 48
    check_attention(1066, 40); // two groups; columns of values that fill no whole panel
}

// Nothing is left over from the run before: keys and values are packed again.
TEST(attention_that_runs_again_reads_its_keys_again)
{
    enum { ROWS = 300, DIM = 512 };
    const sumi_sequence whole = {.span = {{0, ROWS}}, .span_count = 1, .query_spans = 1};
    attention_case c = {ROWS, {1, 1, DIM, 0.05f, false, 0, &whole, 1}};
    float *first = random_floats(ROWS * 3 * DIM, 1.0f), *second = random_floats(ROWS * 3 * DIM, 1.0f);
    float* results[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        scene s = {.context = &c};
        bench b;
        bench_begin(&b, SUMI_CPU_AUTO, 2);
        b.is_cut = true;
        build_attention(&b, &s);
        if (bench_ready(&b)) {
            CHECK(b.plan.ops[0].preparing_count > 1);
            for (int run = i; run < 2; run++) {
                bench_write(&b, s.values[1], run == 0 ? first : second);
                bench_run(&b, SPLIT_RANDOM, 0);
            }
            results[i] = bench_read(&b, s.values[0]);
        }
        bench_end(&b);
    }
    CHECK(results[0] != NULL && results[1] != NULL && memcmp(results[0], results[1], ROWS * DIM * sizeof(float)) == 0);
    free(results[0]), free(results[1]), free(first), free(second);
}

// ---- What is not finite ---------------------------------------------------------------------------------------------

enum { NAN_ROWS = 300, NAN_DIM = 512, NAN_COLS = 3 * NAN_DIM };

// Runs attention over a copy of `qkv` and counts the values of row `first` to the last that are NaN. -1 after a failure.
static int count_nan(const float* qkv, sumi_cpu_level level, bool is_cut, bool is_causal, int first)
{
    const sumi_sequence whole = {.span = {{0, NAN_ROWS}}, .span_count = 1, .query_spans = 1};
    attention_case c = {NAN_ROWS, {1, 1, NAN_DIM, 0.05f, is_causal, 0, &whole, 1}};
    scene s = {.context = &c};
    bench b;
    int count = -1;
    bench_begin(&b, level, 1);
    b.is_cut = is_cut;
    build_attention(&b, &s);
    if (bench_ready(&b)) {
        CHECK(b.plan.ops[0].is_cut == is_cut);
        bench_write(&b, s.values[1], qkv);
        bench_run(&b, SPLIT_NONE, 0);
        float* y = bench_read(&b, s.values[0]);
        count = 0;
        for (int i = first * NAN_DIM; i < NAN_ROWS * NAN_DIM; i++) count += isnan(y[i]);
        free(y);
    }
    bench_end(&b);
    return count;
}

static void check_nan(const float* qkv, bool is_causal, int first, int want)
{
    for (size_t l = 0; l < sizeof s_levels / sizeof *s_levels; l++) {
        if (!runs_level(l)) continue;
        CHECK_NUMBER(count_nan(qkv, s_levels[l], false, is_causal, first), want);
        if (!is_causal) CHECK_NUMBER(count_nan(qkv, s_levels[l], true, false, first), want);
    }
}

// softmax of scores among which one is NaN, or which are all -infinity, is NaN: not the 0 of masked keys. Keys are
// counted in blocks of 128.
TEST(attention_hands_on_what_is_not_finite)
{
    float* qkv = random_floats(NAN_ROWS * NAN_COLS, 1.0f);
    check_nan(qkv, false, 0, 0);
    float* q = qkv + 5 * NAN_COLS + 7;
    const float kept = *q;
    *q = NAN; // all scores of one query
    check_nan(qkv, false, 0, NAN_DIM);
    check_nan(qkv, true, 0, NAN_DIM);
    *q = kept;
    float* k = qkv + 200 * NAN_COLS + NAN_DIM;
    const float kept_key = *k;
    *k = NAN; // one score of all queries, or of those that see this key
    check_nan(qkv, false, 0, NAN_ROWS * NAN_DIM);
    check_nan(qkv, true, 0, 100 * NAN_DIM);
    check_nan(qkv, true, 200, 100 * NAN_DIM);
    *k = kept_key;
    for (int r = 0; r < NAN_ROWS; r++) qkv[r * NAN_COLS] = 1.0f;
    for (int r = 0; r < 128; r++) qkv[r * NAN_COLS + NAN_DIM] = NAN; // all scores of the first block
    check_nan(qkv, false, 0, NAN_ROWS * NAN_DIM);
    check_nan(qkv, true, 0, NAN_ROWS * NAN_DIM);
    for (int r = 0; r < 128; r++) qkv[r * NAN_COLS + NAN_DIM] = -INFINITY; // of which the exponentials are 0
    check_nan(qkv, false, 0, 0);
    check_nan(qkv, true, 0, 128 * NAN_DIM);
    for (int r = 0; r < NAN_ROWS; r++) qkv[r * NAN_COLS + NAN_DIM] = -INFINITY;
    check_nan(qkv, false, 0, NAN_ROWS * NAN_DIM);
    free(qkv);
}

// ---- CONV -----------------------------------------------------------------------------------------------------------

static void check_conv(sumi_op_conv conv, int ci, int co, bool has_residual, bool has_preparing)
{
    conv_case c = {.conv = conv, .ci = ci, .co = co, .has_residual = has_residual};
    const int taps = conv.kernel * conv.kernel;
    int height, width;
    conv_size(&c, &height, &width);
    float *x = random_floats((size_t)(conv.height * conv.width) * (size_t)ci, 1.0f),
          *w = random_floats((size_t)co * (size_t)(ci * taps), 0.1f), *bias = random_floats((size_t)co, 1.0f),
          *residual = random_floats((size_t)(height * width) * (size_t)co, 1.0f);
    c.weight = float_weight(w, co, ci * taps);
    c.bias = float_weight(bias, 1, co);
    scene s = {.build = build_conv, .context = &c, .inputs = {NULL, x, residual}};
    char what[64];
    snprintf(what, sizeof what, "%d x %d, stride %d, %d to %d channels", conv.kernel, conv.kernel, conv.stride, ci, co);
    check_cut(&s, what, has_preparing);
    free(x), free(w), free(bias), free(residual);
}

TEST(convolutions_are_the_same_cut_or_whole)
{
    check_conv((sumi_op_conv){9, 14, 3, 1, false, false, 0, 0}, 128, 240, true, true);
    check_conv((sumi_op_conv){18, 20, 3, 2, false, true, 0, 0}, 128, 240, false, true);
    check_conv((sumi_op_conv){5, 6, 3, 1, true, false, 0, 0}, 128, 240, false, true); // doubles the picture
    check_conv((sumi_op_conv){11, 13, 1, 1, false, false, 0, 0}, 530, 520, true, true);
    check_conv((sumi_op_conv){6, 7, 3, 1, false, false, 0, 0}, 4000, 8, false, true);   // dot products
    check_conv((sumi_op_conv){30, 33, 3, 1, false, false, 0, 0}, 64, 96, false, false); // few weights
    check_conv((sumi_op_conv){30, 33, 3, 1, false, false, 0, 0}, 128, 3, false, false); // the decoder's last
}

// ---- GROUP_SUMS, GROUP_NORM -----------------------------------------------------------------------------------------

static void check_group_norm(int rows, int cols, int groups, int block_rows)
{
    group_case c = {.rows = rows, .cols = cols, .groups = groups, .silu = true, .block_rows = block_rows};
    float *x = random_floats((size_t)rows * (size_t)cols, 2.0f), *w = random_floats((size_t)cols, 1.0f),
          *bias = random_floats((size_t)cols, 1.0f);
    c.w = float_weight(w, 1, cols);
    c.b = float_weight(bias, 1, cols);
    scene s = {.build = build_group, .context = &c, .inputs = {NULL, x}};
    check_cut(&s, "group norm", false);
    free(x), free(w), free(bias);
}

TEST(group_norms_are_the_same_cut_or_whole)
{
    check_group_norm(9007, 96, 32, 4000);
    check_group_norm(6001, 320, 32, 3008);
}

// ---- PIXELS_OUT -----------------------------------------------------------------------------------------------------

enum { PIXELS = 40003 };

static void build_pixels(bench* b, scene* s)
{
    s->values[0] = sumi_plan_bound(&b->plan, "bytes", SUMI_ELEMENT_BYTE, PIXELS, 3);
    s->values[1] = bench_value(b, PIXELS, 3);
    s->values[2] = sumi_plan_bound(&b->plan, "bad", SUMI_ELEMENT_INT, 1, 1);
    s->value_count = 3;
    sumi_plan_pixels_out(&b->plan, s->values[1], s->values[0], s->values[2]);
}

TEST(pixels_are_the_same_cut_or_whole)
{
    float* picture = random_floats(3 * PIXELS, 1.2f);
    const int32_t bad = 5;
    picture[0] = picture[3 * 16384] = picture[3 * PIXELS - 1] = NAN; // counted in every range
    scene s = {.build = build_pixels, .inputs = {NULL, picture, &bad}};
    check_cut(&s, "pixels", false);
    void* out[MAX_SCENE_VALUES] = {0};
    scene_once(&s, SUMI_CPU_AUTO, 2, SPLIT_PARTS, out);
    CHECK(out[2] != NULL && *(const int32_t*)out[2] == bad + 3);
    for (int i = 0; i < MAX_SCENE_VALUES; i++) free(out[i]);
    free(picture);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    const sumi_allocator allocator = {.allocate = allocate_nan, .release = release_nan};
    sumi_heap_init(&s_heap, &allocator);
    RUN(products_of_many_rows_are_the_same_cut_or_whole);
    RUN(products_of_few_rows_are_the_same_cut_or_whole);
    RUN(a_product_with_a_changed_weight_is_the_same_cut_or_whole);
    RUN(attention_with_many_keys_is_the_same_cut_or_whole);
    RUN(attention_that_runs_again_reads_its_keys_again);
    RUN(attention_hands_on_what_is_not_finite);
    RUN(convolutions_are_the_same_cut_or_whole);
    RUN(group_norms_are_the_same_cut_or_whole);
    RUN(pixels_are_the_same_cut_or_whole);
    TEST_END();
}
