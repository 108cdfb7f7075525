// The transformer whose prefix is computed once (models/prefix_dit.h), where golden_run does not look: configs that are
// refused, prompts that begin alike, and evaluations that reuse the step before. Numbers are compared in golden.
#include "cpu_scenes.h"
#include "files/checkpoint.h"
#include "models/prefix_dit.h"
#include "models/signatures.h"

static const sumi_prefix_dit_settings s_settings = {.axis_share = {16, 56, 56}, .theta = 10000.0};

typedef struct opened {
    sumi_checkpoint checkpoint;
    sumi_weight_list list;
    sumi_prefix_dit model;
    sumi_error error;
} opened;

// Binds the tiny checkpoint with its own config, or with another text in its place.
static sumi_result open_tiny(opened* o, const char* config)
{
    static const char* const s_prefixes[] = {"", NULL};
    static const sumi_signature s_signature = {.component = SUMI_COMPONENT_TRANSFORMER,
                                               .network = "prefix",
                                               .prefixes = s_prefixes,
                                               .tensors = {"txt_in.text_norm.weight", "modulation.1.weight"}};
    const sumi_checkpoint_desc desc = {.path = "tests/golden/qwen-image-21/model",
                                       .without_text_encoder = true,
                                       .signatures = &s_signature,
                                       .signature_count = 1,
                                       .class_words = sumi_class_words()};
    memset(o, 0, sizeof *o);
    sumi_weight_list_init(&o->list, &s_heap);
    SUMI_TRY(sumi_checkpoint_open(&o->checkpoint, &s_heap, NULL, &desc, &o->error));
    const sumi_component* part = &o->checkpoint.components[SUMI_COMPONENT_TRANSFORMER];
    sumi_binder binder = {.list = &o->list, .component = part, .what = "the transformer", .error = &o->error};
    const sumi_module_config used = {.data = config != NULL ? config : (const char*)part->config.data,
                                     .bytes = config != NULL ? strlen(config) : (size_t)part->config.bytes,
                                     .path = "config.json"};
    return sumi_prefix_dit_module.bind(&o->model, &s_settings, &binder, &used);
}

static void close_tiny(opened* o)
{
    sumi_weight_list_close(&o->list);
    sumi_checkpoint_close(&o->checkpoint);
}

TEST(configs_of_other_transformers_are_refused)
{
    static const struct {
        const char* config;
        sumi_result result;
        const char* part; // of the sentence
    } s_cases[] = {
        {"{\"axes_dims_rope\": [8, 12, 12]}", SUMI_OK, ""},
        {"{}", SUMI_OK, ""}, // the released shares: 4, 14 and 14 of 32
        {"{\"axes_dims_rope\": [8, 12, 10]}", SUMI_TENSOR_MISMATCH, "sum is the head size 32"},
        {"{\"axes_dims_rope\": [7, 13, 12]}", SUMI_TENSOR_MISMATCH, "even numbers"},
        {"{\"axes_dims_rope\": [8, 24]}", SUMI_TENSOR_MISMATCH, "3 even numbers"},
        {"{\"axes_dims_rope\": [8, 12, 12], \"patch_size\": 2}", SUMI_NOT_SUPPORTED, "patch_size is 2"},
        {"{\"axes_dims_rope\": [8, 12, 12], \"causal_condition\": false}", SUMI_NOT_SUPPORTED, "texts would see"},
        {"{\"axes_dims_rope\": [8, 12, 12], \"eps\": 0}", SUMI_FILE_MALFORMED, "eps is 0"},
        {"{\"axes_dims_rope\": [8, 12, 12], \"num_layers\": 1}", SUMI_TENSOR_MISMATCH, "num_layers"},
        {"{\"axes_dims_rope\": [8, 12, 12], \"num_layers\": 3}", SUMI_TENSOR_MISSING, "transformer_blocks.2."},
        {"{\"axes_dims_rope\": [8, 12, 12], \"num_layers\": 1000}", SUMI_NOT_SUPPORTED, "1 to 128"},
        {"{\"axes_dims_rope\": [8, 12, 12], \"num_attention_heads\": 4}", SUMI_TENSOR_MISMATCH, "num_attention_heads"},
        {"{\"axes_dims_rope\": [8, 12, 12], \"context_in_dim\": 64}", SUMI_TENSOR_MISMATCH, "context_in_dim"},
        {"{\"axes_dims_rope\": 8", SUMI_FILE_MALFORMED, "config.json"}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        opened o;
        const sumi_result result = open_tiny(&o, s_cases[i].config);
        if (result != s_cases[i].result || strstr(o.error.text, s_cases[i].part) == NULL)
            printf("  %s: %d, %s\n", s_cases[i].config, (int)result, o.error.text);
        CHECK_NUMBER(result, s_cases[i].result);
        CHECK(strstr(o.error.text, s_cases[i].part) != NULL);
        close_tiny(&o);
    }
}

// ---- Plans ----------------------------------------------------------------------------------------------------------

enum { HEIGHT = 2, WIDTH = 4, TOKENS = HEIGHT * WIDTH, CHANNELS = 64, FEATURES = 48, REFERENCE = 16, TEXT = 20 };

typedef struct job_case {
    sumi_denoising job;
    sumi_prompt_features prompts[2]; // TEXT rows and TEXT - 1: 5 of text, 4 for the reference, and 11 or 10 of text
    sumi_reference_latents reference;
    sumi_value x, features, times;
} job_case;

// Begins a job of a prompt and another one, which read a reference of 4 x 4 latents.
static void begin_job(job_case* c, sumi_plan* plan, int32_t shared_rows)
{
    memset(c, 0, sizeof *c);
    c->x = sumi_plan_bound(plan, "x", SUMI_ELEMENT_FLOAT, CHANNELS, TOKENS);
    c->features = sumi_plan_bound(plan, "features", SUMI_ELEMENT_ACTIVATION, TEXT, FEATURES);
    c->times = sumi_plan_bound(plan, "times", SUMI_ELEMENT_FLOAT, 1, 1);
    c->reference =
        (sumi_reference_latents){sumi_plan_bound(plan, "reference", SUMI_ELEMENT_FLOAT, CHANNELS, REFERENCE), 4, 4};
    for (int32_t p = 0; p < 2; p++)
        c->prompts[p] = (sumi_prompt_features){.value = {c->features}, .count = {TEXT - p}, .references = {{5, 4}}};
    c->job = (sumi_denoising){.height = HEIGHT,
                              .width = WIDTH,
                              .prompts = c->prompts,
                              .prompt_count = 2,
                              .references = &c->reference,
                              .reference_count = 1,
                              .shared_rows = shared_rows,
                              .evaluation_count = 1,
                              .times = c->times,
                              .state = calloc(1, sumi_prefix_dit_module.state_bytes)};
}

static void write_inputs(bench* b, const job_case* c)
{
    s_random = 1;
    float *x = random_floats(CHANNELS * TOKENS, 1.0f), *features = random_floats(TEXT * FEATURES, 3.0f),
          *reference = random_floats(CHANNELS * REFERENCE, 1.0f), time = 0.5f;
    bench_write(b, c->x, x);
    bench_write(b, c->features, features);
    bench_write(b, c->reference.latents, reference);
    bench_write(b, c->times, &time);
    free(x), free(features), free(reference);
}

// Up to the end of the reference the prompts have 5 + 16 rows. Without sharing the prefix has two times as many of them,
// and the velocities are the same bits: products have more than 7 rows, below which the CPU adds in another order.
TEST(prompts_that_begin_alike_are_computed_once)
{
    static const sumi_evaluation s_both[] = {{0, 0}, {0, 1}};
    opened o;
    CHECK(open_tiny(&o, NULL) == SUMI_OK);
    float* velocities[2] = {NULL, NULL};
    int64_t rows[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        bench b;
        job_case c;
        bench_begin(&b, SUMI_CPU_AUTO, 1);
        begin_job(&c, &b.plan, i == 0 ? 0 : 9);
        const sumi_evaluation_list list = {s_both, 2, 0};
        sumi_prefix_dit_module.write_prepare(&o.model, &b.plan, &c.job);
        sumi_prefix_dit_module.write_layout(&o.model, &b.plan, &c.job, &list);
        sumi_value v = sumi_prefix_dit_module.write_evaluation(&o.model, &b.plan, &c.job, &list, c.x);
        if (v.id != 0) b.plan.values[v.id - 1].bound = true;
        for (size_t k = 0; k < b.plan.op_count; k++) {
            if (strcmp(b.plan.ops[k].label, "prefix.transformer_blocks.0.attn.to_qkv") == 0)
                rows[i] = b.plan.ops[k].rows;
        }
        if (bench_ready(&b)) {
            write_inputs(&b, &c);
            bench_run(&b, SPLIT_NONE, 0);
            velocities[i] = bench_read(&b, v);
        }
        free(c.job.state);
        bench_end(&b);
    }
    CHECK_NUMBER(rows[0], 5 + 16 + 11 + 5 + 16 + 10);
    CHECK_NUMBER(rows[1], 5 + 16 + 11 + 10);
    CHECK(velocities[0] != NULL && velocities[1] != NULL);
    if (velocities[0] != NULL && velocities[1] != NULL) {
        CHECK(memcmp(velocities[0], velocities[1], 2 * CHANNELS * TOKENS * sizeof(float)) == 0);
        // the prompts differ
        CHECK(memcmp(velocities[0], velocities[0] + CHANNELS * TOKENS, CHANNELS * TOKENS * sizeof(float)) != 0);
    }
    free(velocities[0]), free(velocities[1]);
    close_tiny(&o);
}

// A reused evaluation of the same latents at the same time, which extrapolates nothing, gives the whole one's velocities
// but for rounding. So does what the whole one says that a reused one would have given, if it had kept what it has now.
TEST(a_reused_evaluation_adds_what_the_whole_one_kept)
{
    static const sumi_evaluation s_one = {0, 0};
    opened o;
    CHECK(open_tiny(&o, NULL) == SUMI_OK);
    bench b;
    job_case c;
    bench_begin(&b, SUMI_CPU_AUTO, 1);
    begin_job(&c, &b.plan, 9);
    const sumi_evaluation_list list = {&s_one, 1, 0};
    const float sigmas[2] = {0.5f, 0.5f};
    sumi_value whole_sigmas = sumi_plan_constant(&b.plan, "sigmas", SUMI_ELEMENT_FLOAT, 2, 1, sigmas), v[4];
    c.job.keeps_residuals = true;
    c.job.extrapolation =
        (sumi_extrapolation){.sigma = {c.times, 0, true}, .whole_sigmas = whole_sigmas, .most_ahead = 1.0f};
    sumi_prefix_dit_module.write_prepare(&o.model, &b.plan, &c.job);
    sumi_prefix_dit_module.write_layout(&o.model, &b.plan, &c.job, &list);
    static const sumi_evaluation_kind s_kinds[] = {SUMI_EVALUATION_PLAIN, SUMI_EVALUATION_WHOLE, SUMI_EVALUATION_REUSED,
                                                   SUMI_EVALUATION_WHOLE};
    for (int i = 0; i < 4; i++) {
        c.job.kind = s_kinds[i];
        v[i] = sumi_prefix_dit_module.write_evaluation(&o.model, &b.plan, &c.job, &list, c.x);
        if (i == 3) v[i] = c.job.reused_velocities;
        if (v[i].id != 0) b.plan.values[v[i].id - 1].bound = true;
    }
    if (bench_ready(&b)) {
        write_inputs(&b, &c);
        bench_run(&b, SPLIT_NONE, 0);
        float* want = bench_read(&b, v[0]);
        for (int i = 1; i < 4; i++) {
            float* got = bench_read(&b, v[i]);
            double difference = 0.0, size = 0.0;
            for (int k = 0; k < CHANNELS * TOKENS; k++) {
                difference = fmax(difference, fabs((double)got[k] - (double)want[k]));
                size = fmax(size, fabs((double)want[k]));
            }
            if (i == 1) CHECK(difference == 0.0);
            if (!(difference <= 1e-5 * size)) printf("  evaluation %d is off by %g of %g\n", i, difference, size);
            CHECK(difference <= 1e-5 * size && size > 0.1);
            free(got);
        }
        free(want);
    }
    free(c.job.state);
    bench_end(&b);
    close_tiny(&o);
}

TEST(a_reference_without_a_place_in_the_prompt_is_refused)
{
    opened o;
    CHECK(open_tiny(&o, NULL) == SUMI_OK);
    static const sumi_span s_places[] = {{0, 0}, {17, 4}, {-1, 4}};
    for (size_t i = 0; i < sizeof s_places / sizeof *s_places; i++) {
        bench b;
        job_case c;
        bench_begin(&b, SUMI_CPU_AUTO, 1);
        begin_job(&c, &b.plan, 0);
        c.prompts[1].references[0] = s_places[i];
        sumi_prefix_dit_module.write_prepare(&o.model, &b.plan, &c.job);
        CHECK_NUMBER(sumi_plan_finish(&b.plan, &b.error), SUMI_INTERNAL);
        CHECK(strstr(b.error.text, "no place in prompt 1") != NULL);
        free(c.job.state);
        bench_end(&b);
    }
    close_tiny(&o);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(configs_of_other_transformers_are_refused);
    RUN(prompts_that_begin_alike_are_computed_once);
    RUN(a_reused_evaluation_adds_what_the_whole_one_kept);
    RUN(a_reference_without_a_place_in_the_prompt_is_refused);
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
    TEST_END();
}
