// Which kernels the CUDA backend chooses, on the fake driver (fake_cuda): every name that a launcher has is in an
// image and the other way round, and the golden data of real widths goes through the kernels that a released model goes
// through. What they compute is shown on a GPU by test_cuda_ops and golden_run, whose lists tests/check_kernels.sh adds
// up.
#include "at_once.h"
#include "test.h"
#ifdef SUMI_HAS_CUDA
#include "base/file.h"
#include "cuda/cuda.h"
#include "cuda/linear.h"
#include "cuda/state.h"
#include "fake_cuda.h"
#include "models/network_state.h"
#include "models/pipeline.h"
#include "models/qwen3_vision.h"
#include "models/qwen_vision.h"
#include "models/xlm_roberta.h"
#include "plan_runner.h"
#include "synthetic.h"
#include "system.h"
#include "views.h"
#include <ctype.h>

#define MAX_NAMES 512

// ---- Names ----------------------------------------------------------------------------------------------------------

static bool is_in_an_image(const char* name, bool as_prefix)
{
    for (int32_t i = 0; i < sumi_cuda_image_count; i++)
        for (int32_t k = 0; k < sumi_cuda_images[i].kernel_count; k++) {
            const char* its = sumi_cuda_images[i].kernels[k];
            if (as_prefix ? strncmp(its, name, strlen(name)) == 0 : strcmp(its, name) == 0) return true;
        }
    return false;
}

// The string literals "sumi_..." of the backend's sources: names of kernels, or the beginnings of names that the
// preprocessor puts together.
typedef struct literals {
    char names[MAX_NAMES][96];
    int count;
} literals;

static void read_literals(literals* into, const char* path)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_file file = {0};
    sumi_error error = {0};
    CHECK(sumi_file_open(&file, &heap, NULL, path, &error) == SUMI_OK);
    const char* text = (const char*)file.data;
    for (size_t at = 0; at + 6 < file.bytes; at++) {
        if (memcmp(text + at, "\"sumi_", 6) != 0) continue;
        size_t end = at + 1;
        while (end < file.bytes && (isalnum((unsigned char)text[end]) || text[end] == '_')) end++;
        if (end == file.bytes || text[end] != '"' || into->count == MAX_NAMES) continue;
        snprintf(into->names[into->count++], sizeof into->names[0], "%.*s", (int)(end - at - 1), text + at + 1);
        at = end;
    }
    sumi_file_close(&file);
}

static void read_literals_of(literals* into, const char* folder)
{
    int count = 0;
    char** names = system_list(folder, &count);
    for (int i = 0; i < count; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (strlen(names[i]) > 2 && strcmp(names[i] + strlen(names[i]) - 2, ".c") == 0) read_literals(into, path);
    }
    system_free_list(names, count);
}

static void read_all_literals(literals* into)
{
    into->count = 0;
    read_literals_of(into, "src/cuda");
    read_literals_of(into, "src/device"); // uploads
}

static literals s_literals;

TEST(every_name_of_a_launcher_is_that_of_a_kernel)
{
    read_all_literals(&s_literals);
    CHECK(s_literals.count > 80);
    for (int i = 0; i < s_literals.count; i++) {
        const char* name = s_literals.names[i];
        if (!is_in_an_image(name, true)) printf("  no kernel's name is or begins with %s\n", name);
        CHECK(is_in_an_image(name, true));
    }
}

TEST(every_kernel_has_a_launcher)
{
    read_all_literals(&s_literals);
    for (int32_t i = 0; i < sumi_cuda_image_count; i++)
        for (int32_t k = 0; k < sumi_cuda_images[i].kernel_count; k++) {
            const char* name = sumi_cuda_images[i].kernels[k];
            bool is_named = false;
            for (int l = 0; l < s_literals.count && !is_named; l++) {
                // The beginning of a name that is put together is no kernel itself.
                const char* literal = s_literals.names[l];
                is_named = strcmp(literal, name) == 0
                        || (!is_in_an_image(literal, false) && strncmp(name, literal, strlen(literal)) == 0);
            }
            if (!is_named) printf("  nothing launches %s\n", name);
            CHECK(is_named);
        }
}

static void check_name(const char* name)
{
    if (name == NULL) return; // the kernel has no such epilogue
    if (!is_in_an_image(name, false)) printf("  no image has %s\n", name);
    CHECK(is_in_an_image(name, false));
}

// ---- A runner -------------------------------------------------------------------------------------------------------

typedef struct bench {
    sumi_heap heap;
    sumi_workers* workers;
    sumi_runner* runner;
} bench;

static bool open_bench_with(bench* b, const sumi_cuda_options* options)
{
    sumi_error error = {0};
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CUDA;
    memset(b, 0, sizeof *b);
    fake_reset();
    sumi_heap_init(&b->heap, NULL);
    sumi_result result = sumi_workers_create(&b->heap, NULL, 1, &error, &b->workers);
    if (result == SUMI_OK) result = sumi_cuda_create(&b->heap, b->workers, &desc, options, &error, &b->runner);
    if (result == SUMI_OK) result = runner_load(b->runner, &error);
    CHECK_TEXT(error.text, "");
    return result == SUMI_OK;
}

static bool open_bench(bench* b) { return open_bench_with(b, NULL); }

static void close_bench(bench* b)
{
    if (b->runner != NULL) b->runner->functions->destroy(b->runner);
    sumi_workers_destroy(b->workers);
    CHECK_NUMBER(atomic_load(&b->heap.allocated_bytes), 0);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
}

typedef struct tally {
    const char* begins;
    int kernels, used;
    uint64_t uses;
} tally;
static void count_kernel(const char* name, uint64_t use_count, void* user_data)
{
    tally* t = user_data;
    if (strncmp(name, t->begins, strlen(t->begins)) != 0) return;
    t->kernels++;
    t->used += use_count > 0;
    t->uses += use_count;
}
static tally tally_of(const bench* b, const char* begins)
{
    tally t = {.begins = begins};
    b->runner->functions->list_kernels(b->runner, count_kernel, &t);
    return t;
}

TEST(the_list_has_every_kernel_of_a_hopper_device)
{
    bench b;
    if (open_bench(&b)) {
        int32_t count = 0;
        for (int32_t i = 0; i < sumi_cuda_image_count; i++) {
            const bool is_first = i == 0 || strcmp(sumi_cuda_images[i - 1].source, sumi_cuda_images[i].source) != 0;
            if (is_first) count += sumi_cuda_images[i].kernel_count;
        }
        CHECK(count > 150);
        CHECK_NUMBER(tally_of(&b, "").kernels, count);
        CHECK(tally_of(&b, "").used < 3); // loading tries one launch
    }
    close_bench(&b);
}

TEST(every_product_has_its_kernel)
{
    bench b;
    static sumi_cuda_linear_choice s_list[1024];
    if (open_bench(&b)) {
        const sumi_cuda_device* device = &((sumi_cuda*)b.runner)->device;
        int32_t wgmma = 0;
        for (int e = SUMI_CUDA_EPILOGUE_plain; e <= SUMI_CUDA_EPILOGUE_any; e++)
            for (int o = SUMI_CUDA_BF16; o <= SUMI_CUDA_INT8; o++) {
                const sumi_cuda_shape shape = {2048, 4096, 4096, (sumi_cuda_operands)o, true, (sumi_cuda_epilogue)e};
                const int32_t count = sumi_cuda_list_linear(device, true, &shape, s_list, 1024);
                for (int32_t i = 0; i < count; i++) {
                    const int32_t k = s_list[i].kernel;
                    if (s_list[i].method == SUMI_CUDA_METHOD_WGMMA) {
                        const char* pair = sumi_cuda_pair_name(k);
                        check_name(sumi_cuda_wgmma_kernels[k].name), wgmma++;
                        if (pair != NULL) check_name(pair), wgmma++;
                    }
                    if (s_list[i].method == SUMI_CUDA_METHOD_SPLIT)
                        check_name(sumi_cuda_split_kernels[k].any), check_name(sumi_cuda_split_kernels[k].swiglu);
                    if (s_list[i].method == SUMI_CUDA_METHOD_PORTABLE)
                        check_name(sumi_cuda_portable_name(&sumi_cuda_portable_kernels[k], (sumi_cuda_epilogue)e));
                }
            }
        CHECK_NUMBER(wgmma, tally_of(&b, "sumi_gemm_bf16_").kernels + tally_of(&b, "sumi_gemm_fp8_").kernels
                                + tally_of(&b, "sumi_gemm_int8_").kernels);
    }
    close_bench(&b);
}

// A last round for half of the clusters at most is computed as halves, which then take one round.
TEST(a_last_round_is_halved)
{
    static const struct {
        int64_t items, clusters, whole;
    } s_rounds[] = {{99, 66, 66}, {100, 66, 100}, {132, 66, 132}, {133, 66, 132}, {20, 66, 0}, {1, 1, 1}, {7, 2, 6}};
    const sumi_cuda_wgmma with = {.has_halves = true}, without = {.has_halves = false};
    for (size_t i = 0; i < sizeof s_rounds / sizeof *s_rounds; i++) {
        CHECK_NUMBER(sumi_cuda_whole_items(&with, s_rounds[i].items, s_rounds[i].clusters), s_rounds[i].whole);
        CHECK_NUMBER(sumi_cuda_whole_items(&without, s_rounds[i].items, s_rounds[i].clusters), s_rounds[i].items);
    }
}

// The tiles that were fastest on a card of 132 multiprocessors, in single products and in forwards (bench.md).
TEST(products_take_the_tiles_that_were_measured)
{
    static const struct {
        int32_t m, n, k;
        sumi_cuda_operands operands;
        sumi_cuda_epilogue epilogue;
        const char* name;
    } s_products[] = {
        {384, 3840, 10240, SUMI_CUDA_BF16, SUMI_CUDA_EPILOGUE_plain, "sumi_gemm_bf16_plain_pp"},
        {384, 20480, 3840, SUMI_CUDA_BF16, SUMI_CUDA_EPILOGUE_swiglu, "sumi_gemm_bf16_swiglu_192x160"},
        {704, 3840, 10240, SUMI_CUDA_BF16, SUMI_CUDA_EPILOGUE_plain, "sumi_gemm_bf16_plain_192h"},
        {704, 20480, 3840, SUMI_CUDA_BF16, SUMI_CUDA_EPILOGUE_swiglu, "sumi_gemm_bf16_swiglu_192"},
        {1728, 3840, 10240, SUMI_CUDA_BF16, SUMI_CUDA_EPILOGUE_plain, "sumi_gemm_bf16_plain_224h"},
        {2432, 11520, 3840, SUMI_CUDA_BF16, SUMI_CUDA_EPILOGUE_plain, "sumi_gemm_bf16_plain_256h"},
        {4224, 11520, 3840, SUMI_CUDA_BF16, SUMI_CUDA_EPILOGUE_plain, "sumi_gemm_bf16_plain_192x192"},
        {4224, 3840, 10240, SUMI_CUDA_BF16, SUMI_CUDA_EPILOGUE_plain, "sumi_gemm_bf16_plain_240"},
        {16896, 3840, 10240, SUMI_CUDA_BF16, SUMI_CUDA_EPILOGUE_plain, "sumi_gemm_bf16_plain_256h"},
        {4224, 11520, 3840, SUMI_CUDA_INT8, SUMI_CUDA_EPILOGUE_plain, "sumi_gemm_int8_plain_192x192"},
        {4224, 20480, 3840, SUMI_CUDA_E4M3, SUMI_CUDA_EPILOGUE_swiglu, "sumi_gemm_fp8_swiglu_256"},
        {4096, 12288, 3072, SUMI_CUDA_INT8, SUMI_CUDA_EPILOGUE_gelu, "sumi_gemm_int8_gelu_pp192"},
    };
    bench b;
    if (open_bench(&b)) {
        const sumi_cuda_device* device = &((sumi_cuda*)b.runner)->device;
        for (size_t i = 0; i < sizeof s_products / sizeof *s_products; i++) {
            const sumi_cuda_shape shape = {
                s_products[i].m,       s_products[i].n, s_products[i].k, s_products[i].operands, true,
                s_products[i].epilogue};
            const sumi_cuda_linear_choice c = sumi_cuda_choose_linear(device, true, &shape);
            CHECK_NUMBER(c.method, SUMI_CUDA_METHOD_WGMMA);
            if (c.method == SUMI_CUDA_METHOD_WGMMA)
                CHECK_TEXT(sumi_cuda_wgmma_kernels[c.kernel].name, s_products[i].name);
        }
        const sumi_cuda_shape prompt = {128, 2560, 9728, SUMI_CUDA_BF16, true, SUMI_CUDA_EPILOGUE_resid};
        const sumi_cuda_linear_choice c = sumi_cuda_choose_linear(device, true, &prompt);
        CHECK_NUMBER(c.method, SUMI_CUDA_METHOD_SPLIT);
        CHECK_NUMBER(c.split, 3);
        if (c.method == SUMI_CUDA_METHOD_SPLIT) CHECK_NUMBER(sumi_cuda_split_kernels[c.kernel].cols, 64);
    }
    close_bench(&b);
}

// The same of two products in one launch: Qwen-Image's, of 4096 rows of an image of 1024x1024 and 128 of its text.
TEST(two_products_take_the_tiles_that_were_measured)
{
    static const struct {
        int32_t n, k;
        sumi_cuda_epilogue epilogue;
        const char* name;
    } s_pairs[] = {
        {9216, 3072, SUMI_CUDA_EPILOGUE_bias, "sumi_gemm_int8_pair_bias_pp192"},
        {12288, 3072, SUMI_CUDA_EPILOGUE_gelu, "sumi_gemm_int8_pair_gelu_pp192"},
        {3072, 3072, SUMI_CUDA_EPILOGUE_gate_bias, "sumi_gemm_int8_pair_gate_bias_pp192"},
        {3072, 12288, SUMI_CUDA_EPILOGUE_gate_bias, "sumi_gemm_int8_pair_gate_bias_256s3"},
    };
    bench b;
    if (open_bench(&b)) {
        const sumi_cuda_device* device = &((sumi_cuda*)b.runner)->device;
        for (size_t i = 0; i < sizeof s_pairs / sizeof *s_pairs; i++) {
            const sumi_cuda_shape image = {4096, s_pairs[i].n, s_pairs[i].k, SUMI_CUDA_INT8, true, s_pairs[i].epilogue};
            sumi_cuda_shape text = image;
            text.m = 128;
            for (int order = 0; order < 2; order++) {
                const int32_t kernel =
                    sumi_cuda_choose_pair(device, order == 0 ? &image : &text, order == 0 ? &text : &image);
                CHECK(kernel >= 0);
                if (kernel >= 0) CHECK_TEXT(sumi_cuda_pair_name(kernel), s_pairs[i].name);
            }
            text.n /= 2; // another matrix: two launches
            CHECK_NUMBER(sumi_cuda_choose_pair(device, &image, &text), -1);
        }
        // for a product alone there are tiles that no kernel for two has
        const sumi_cuda_shape plain = {4224, 3840, 3840, SUMI_CUDA_INT8, true, SUMI_CUDA_EPILOGUE_plain};
        CHECK_NUMBER(sumi_cuda_choose_pair(device, &plain, &plain), -1);
    }
    close_bench(&b);
}

// A prompt's products in int8: with few rows their weights come from all multiprocessors at once.
TEST(few_rows_of_int8_share_k)
{
    static const struct {
        int32_t m, n, k;
        sumi_cuda_epilogue epilogue;
    } s_shapes[] = {{16, 2560, 9728, SUMI_CUDA_EPILOGUE_resid},
                    {77, 2560, 4096, SUMI_CUDA_EPILOGUE_resid},
                    {128, 2560, 9728, SUMI_CUDA_EPILOGUE_resid},
                    {256, 3584, 18944, SUMI_CUDA_EPILOGUE_any}};
    bench b;
    if (open_bench(&b)) {
        const sumi_cuda_device* device = &((sumi_cuda*)b.runner)->device;
        for (size_t i = 0; i < sizeof s_shapes / sizeof *s_shapes; i++) {
            const sumi_cuda_shape shape = {s_shapes[i].m,  s_shapes[i].n, s_shapes[i].k,
                                           SUMI_CUDA_INT8, true,          s_shapes[i].epilogue};
            for (int hopper = 0; hopper < 2; hopper++) {
                const sumi_cuda_linear_choice c = sumi_cuda_choose_linear(device, hopper == 1, &shape);
                CHECK_NUMBER(c.method, hopper == 1 ? SUMI_CUDA_METHOD_SPLIT : SUMI_CUDA_METHOD_PORTABLE);
                CHECK_NUMBER(hopper == 1 ? sumi_cuda_split_kernels[c.kernel].operands
                                         : sumi_cuda_portable_kernels[c.kernel].operands,
                             SUMI_CUDA_INT8);
                CHECK(c.split > 1);
            }
        }
        const sumi_cuda_shape many = {4224, 3840, 3840, SUMI_CUDA_INT8, true, SUMI_CUDA_EPILOGUE_plain};
        CHECK_NUMBER(sumi_cuda_choose_linear(device, true, &many).method, SUMI_CUDA_METHOD_WGMMA);
        CHECK_NUMBER(sumi_cuda_choose_linear(device, false, &many).split, 1);
    }
    close_bench(&b);
}

// ---- Golden data ----------------------------------------------------------------------------------------------------

static sumi_network* open_variant(bench* b, const sumi_files* files, const char* path, const char* variant)
{
    sumi_error error = {0};
    sumi_network_desc desc = {.path = path, .variant = variant};
    sumi_network* network = NULL;
    sumi_result result = sumi_network_open_begin(&b->heap, files, &desc, &error, &network);
    float progress;
    for (bool done = false; result == SUMI_OK && !done;)
        result = sumi_network_open_step(network, 1000, &done, &progress, &error);
    CHECK_TEXT(error.text, "");
    return network;
}

static sumi_network* open_network(bench* b, const sumi_files* files, const char* path)
{
    return open_variant(b, files, path, NULL);
}

// Of this family each norm with a weight in a section of this kind stands before a product that it balances, in int8.
static void check_balances(const sumi_plan* plan, sumi_section_kind kind, bool is_int8)
{
    int32_t products = 0, values = 0;
    for (size_t i = 0; i + 1 < plan->op_count; i++) {
        const sumi_op *norm = &plan->ops[i], *product = norm + 1;
        if (norm->kind != SUMI_OP_NORM_MODULATE || norm->weight == NULL || plan->sections[norm->section].kind != kind)
            continue;
        CHECK(product->kind == SUMI_OP_LINEAR && product->in[0].id == norm->out.id
              && product->weight->balance == norm->weight);
        products++;
        values += (sumi_plan_info(plan, norm->out)->marks & SUMI_DEVICE_VALUE_BALANCED) != 0;
    }
    CHECK(products > 0 && (values > 0) == is_int8);
}

// A picture of 416 x 416 after 40 tokens, as the engine runs it; `watches`: with every value bound, as who looks at
// values runs it.
static void run_picture(bench* b, const sumi_network* network, sumi_weight_format weights,
                        sumi_attention_format attention, bool watches)
{
    const sumi_pipeline_prompt prompt = {.token_count = {40, 40}};
    const sumi_pipeline_item item = {0, -1};
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                           .prompts = &prompt,
                                           .prompt_count = 1,
                                           .items = &item,
                                           .item_count = 1,
                                           .width = 416,
                                           .height = 416,
                                           .evaluation_count = 1};
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    const sumi_rates rates = b->runner->functions->rates(b->runner);
    sumi_runner_begin_plan(b->runner, &plan, &b->heap);
    plan.weight_options.weights = weights;
    plan.weight_options.attention = attention;
    sumi_result result = sumi_pipeline_write(network, &request, &plan, &pipeline, &error);
    for (size_t v = 0; v < plan.value_count && watches; v++) plan.values[v].bound = true;
    if (result == SUMI_OK && watches) result = sumi_plan_finish(&plan, &error);
    if (result == SUMI_OK)
        result = plan_slice(&plan, &rates, watches ? 0 : sumi_engine_defaults().max_slice_us, &error);
    if (result == SUMI_OK) result = plan_ready(b->runner, &plan, &error);
    if (result == SUMI_OK) {
        b->runner->functions->start(b->runner, &plan);
        result = plan_run_all(b->runner, &plan, NULL, &error);
    }
    CHECK_TEXT(error.text, "");
    if (weights != SUMI_WEIGHTS_AUTO) check_balances(&plan, SUMI_SECTION_DENOISE, weights == SUMI_WEIGHTS_INT8);
    plan_release(b->runner, &plan);
    sumi_plan_end(&plan);
    runner_release_weights(b->runner, network->weights.weights, network->weights.count);
}

// Runs a plan that has been written, once. The caller ends it with plan_release.
static void run_written(bench* b, sumi_plan* plan)
{
    sumi_error error = {0};
    const sumi_rates rates = b->runner->functions->rates(b->runner);
    sumi_result result = sumi_plan_finish(plan, &error);
    if (result == SUMI_OK) result = plan_slice(plan, &rates, 0, &error);
    if (result == SUMI_OK) result = plan_ready(b->runner, plan, &error);
    if (result == SUMI_OK) {
        b->runner->functions->start(b->runner, plan);
        result = plan_run_all(b->runner, plan, NULL, &error);
    }
    CHECK_TEXT(error.text, "");
}

static void check_used(const bench* b, const char* begins, bool is_wanted)
{
    const tally t = tally_of(b, begins);
    if ((t.used > 0) != is_wanted) printf("  of %d kernels %s.. %d were used\n", t.kernels, begins, t.used);
    CHECK(t.kernels > 0 && (t.used > 0) == is_wanted);
}

TEST(the_wide_golden_data_takes_the_kernels_of_a_released_model)
{
    static const struct {
        sumi_weight_format weights;
        const char *products, *norm;
    } s_formats[] = {{SUMI_WEIGHTS_AUTO, "sumi_gemm_bf16_plain_", "sumi_norm_modulate_rows"},
                     {SUMI_WEIGHTS_FP8, "sumi_gemm_fp8_plain_", "sumi_norm_modulate_fp8_rows"},
                     {SUMI_WEIGHTS_INT8, "sumi_gemm_int8_plain_", "sumi_norm_modulate_int8_rows"}};
    for (int f = 0; f < 3; f++) {
        bench b;
        if (open_bench(&b)) {
            sumi_network* network = open_network(&b, NULL, "tests/golden/z-image-wide/model");
            if (network != NULL) run_picture(&b, network, s_formats[f].weights, SUMI_ATTENTION_AUTO, false);
            check_used(&b, "sumi_attention_sm90_d128_c2", true); // of the picture
            check_used(&b, "sumi_attention_sm90_fp8_", false);
            check_used(&b, "sumi_attention_sm90_d128_causal", true); // of the text
            check_used(&b, s_formats[f].products, true);
            check_used(&b, s_formats[f].norm, true);
            check_used(&b, "sumi_gemm_bf16_swiglu_", true); // of the text encoder, too
            check_used(&b, "sumi_conv_sm90_", true);
            check_used(&b, "sumi_norm_pair_", true);
            check_used(&b, "sumi_norm_modulate_fp8_rows", s_formats[f].weights == SUMI_WEIGHTS_FP8);
            sumi_network_close(network);
        }
        close_bench(&b);
    }
}

// Attention in 8 bits: of the transformer's heads of 128 or 96 channels, not of the text encoder, whose attention is
// causal.
TEST(attention_in_8_bits_takes_its_kernels)
{
    static const struct {
        const char* model;
        int32_t dim;  // of heads
        bool watches; // all values are bound: q and k are not stored differently from what the plan says
        bool without_hopper;
        bool e4m3, int8;
        bool keeps; // a prefix whose keys are kept, as e4m3 if all attention is
    } s_cases[] = {{"tests/golden/z-image-wide/model", 128, false, false, true, false, false},
                   {"tests/golden/z-image-wide/model", 128, true, false, false, false, false},
                   {"tests/golden/z-image-wide/model", 128, false, true, false, true, false},
                   {"tests/golden/newbie-wide/model", 96, false, false, true, false, false},
                   {"tests/golden/newbie-wide/model", 96, false, true, false, true, false},
                   {"tests/golden/z-image/model", 16, false, false, false, false, false},
                   {"tests/golden/z-image/model", 16, false, true, false, false, false},
                   {"tests/golden/qwen-image-21-wide/model", 128, false, false, true, false, true},
                   {"tests/golden/qwen-image-21-wide/model", 128, true, false, false, false, true},
                   {"tests/golden/qwen-image-21-wide/model", 128, false, true, false, false, true}};
    static const char* const s_names[][2] = {{"sumi_attention_sm90_fp8_d128", "sumi_attention_sm90_fp8_d96"},
                                             {"sumi_attention_pack_values_d128", "sumi_attention_pack_values_d96"},
                                             {"sumi_attention_int8_d128", "sumi_attention_int8_d96"},
                                             {"sumi_attention_pack_keys_d128", "sumi_attention_pack_keys_d96"}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        bench b;
        if (open_bench_with(&b, &(sumi_cuda_options){.without_hopper = s_cases[i].without_hopper})) {
            sumi_network* network = open_network(&b, NULL, s_cases[i].model);
            if (network != NULL) run_picture(&b, network, SUMI_WEIGHTS_AUTO, SUMI_ATTENTION_8BIT, s_cases[i].watches);
            for (size_t n = 0; n < sizeof s_names / sizeof *s_names; n++) {
                const bool is_taken = n < 2 ? s_cases[i].e4m3 : s_cases[i].int8;
                check_used(&b, s_names[n][0], is_taken && s_cases[i].dim == 128);
                check_used(&b, s_names[n][1], is_taken && s_cases[i].dim == 96);
            }
            check_used(&b, "sumi_qk_norm_rope_fp8_", s_cases[i].e4m3);
            check_used(&b, "sumi_attention_value_means", s_cases[i].e4m3);
            check_used(&b, "sumi_copy_kept_fp8", s_cases[i].e4m3 && s_cases[i].keeps);
            sumi_network_close(network);
        }
        close_bench(&b);
    }
}

// Whether every attention that reads kept keys is in e4m3, and the keys too. Returns the number of such attentions.
static int32_t check_kept_keys(const sumi_plan* plan)
{
    int32_t count = 0;
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        if (op->kind != SUMI_OP_ATTENTION || op->in[2].id == 0) continue;
        const bool is_e4m3 = (sumi_plan_info(plan, op->in[0])->marks & SUMI_CUDA_VALUE_QK_E4M3) != 0,
                   is_kept_e4m3 = (sumi_plan_info(plan, op->in[2])->marks & SUMI_CUDA_VALUE_KEPT_E4M3) != 0;
        if (!is_e4m3 || !is_kept_e4m3) printf("  %s is not in 8 bits\n", op->label);
        CHECK(is_e4m3 && is_kept_e4m3);
        count++;
    }
    return count;
}

// In plans of real models: with references in prompts or beside them, for batches, with guidance that begins late, and
// with evaluations that may be reused.
TEST(kept_keys_of_whole_plans_are_in_8_bits)
{
    enum { EVALUATIONS = 6, ITEMS = 3 };
    static const bool s_guided[EVALUATIONS] = {false, false, true, true, true, true};
    static const struct {
        const char *path, *variant;
        bool is_guided, caches_steps;
        int32_t attentions; // with kept keys: of all blocks, in each kind of evaluation
    } s_cases[] = {{"tests/golden/qwen-image-21-wide/model", NULL, false, false, 1},
                   {"tests/golden/qwen-image-21-wide/model", NULL, true, false, 2},
                   {"tests/golden/qwen-image-21-wide/model", NULL, true, true, 3},
                   {"tests/golden/flux2-klein-wide/model", "kv", false, false, 2},
                   {"tests/golden/flux2-klein-wide/model", "kv", false, true, 3}};
    const sumi_pipeline_reference references[] = {{32, 32, 64, 96}, {32, 32, 96, 32}};
    const sumi_pipeline_prompt prompts[] = {
        {.token_count = {45}, .reference_row = {2, 5}, .reference_rows = {1, 1}, .has_features = true},
        {.token_count = {41}, .reference_row = {1, 3}, .reference_rows = {1, 1}, .has_features = true}};
    const sumi_pipeline_item items[ITEMS] = {{0, 1}, {1, 0}, {0, 1}};
    bench b;
    const bool is_open = open_bench(&b);
    for (size_t i = 0; is_open && i < sizeof s_cases / sizeof *s_cases; i++) {
        const sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                               .prompts = prompts,
                                               .prompt_count = 2,
                                               .items = items,
                                               .item_count = ITEMS,
                                               .references = references,
                                               .reference_count = 2,
                                               .guided = s_cases[i].is_guided ? s_guided : NULL,
                                               .width = 96,
                                               .height = 64,
                                               .evaluation_count = EVALUATIONS,
                                               .caches_steps = s_cases[i].caches_steps};
        sumi_plan plan;
        sumi_pipeline pipeline;
        sumi_error error = {0};
        sumi_network* network = open_variant(&b, NULL, s_cases[i].path, s_cases[i].variant);
        if (network == NULL) continue;
        sumi_runner_begin_plan(b.runner, &plan, &b.heap);
        plan.weight_options.attention = SUMI_ATTENTION_8BIT;
        CHECK(sumi_pipeline_write(network, &request, &plan, &pipeline, &error) == SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK_NUMBER(check_kept_keys(&plan), s_cases[i].attentions);
        sumi_plan_end(&plan);
        sumi_network_close(network);
    }
    close_bench(&b);
}

// Why golden_run runs its plans a first time as the engine does.
TEST(values_that_are_looked_at_are_not_fused)
{
    bench b;
    if (open_bench(&b)) {
        sumi_network* network = open_network(&b, NULL, "tests/golden/z-image-wide/model");
        if (network != NULL) run_picture(&b, network, SUMI_WEIGHTS_AUTO, SUMI_ATTENTION_AUTO, true);
        check_used(&b, "sumi_gemm_bf16_plain_", true);
        check_used(&b, "sumi_gemm_bf16_swiglu_", false);
        sumi_network_close(network);
    }
    close_bench(&b);
}

// ---- The vision tower -----------------------------------------------------------------------------------------------

// The products of the released tower over 1036 x 1036 pixels. The depth of 3420 lies in rows of 3424.
TEST(the_vision_tower_s_products_take_tensor_cores)
{
    static const struct {
        int32_t m, n, k;
        sumi_cuda_epilogue epilogue;
    } s_shapes[] = {{5476, 1280, 1176, SUMI_CUDA_EPILOGUE_plain},      {5476, 3840, 1280, SUMI_CUDA_EPILOGUE_bias},
                    {5476, 1280, 1280, SUMI_CUDA_EPILOGUE_resid_bias}, {5476, 6848, 1280, SUMI_CUDA_EPILOGUE_bias},
                    {5476, 1280, 3424, SUMI_CUDA_EPILOGUE_resid_bias}, {1369, 5120, 5120, SUMI_CUDA_EPILOGUE_any},
                    {1369, 3584, 5120, SUMI_CUDA_EPILOGUE_bias}};
    bench b;
    if (open_bench(&b)) {
        const sumi_cuda_device* device = &((sumi_cuda*)b.runner)->device;
        for (size_t i = 0; i < sizeof s_shapes / sizeof *s_shapes; i++) {
            const sumi_cuda_shape shape = {s_shapes[i].m, s_shapes[i].n, s_shapes[i].k,
                                           false,         true,          s_shapes[i].epilogue};
            CHECK(sumi_cuda_choose_linear(device, true, &shape).method == SUMI_CUDA_METHOD_WGMMA
                  || sumi_cuda_choose_linear(device, true, &shape).method == SUMI_CUDA_METHOD_SPLIT);
            CHECK(sumi_cuda_choose_linear(device, false, &shape).method == SUMI_CUDA_METHOD_PORTABLE);
        }
    }
    close_bench(&b);
}

// ---- A released two-stream model ------------------------------------------------------------------------------------

// Its products: the picture's stream at 1024 x 1024, 1328 x 1328, 2512 x 2512 and at 1024 x 1024 with a reference, the
// text's stream of 256 rows and of a prompt with a picture, and the language model's layers.
typedef struct product {
    int32_t m, n, k;
    sumi_cuda_epilogue epilogue;
} product;
#define IMAGE_PRODUCTS(rows)                                                                                           \
    {rows, 9216, 3072, SUMI_CUDA_EPILOGUE_bias}, {rows, 3072, 3072, SUMI_CUDA_EPILOGUE_gate_bias},                     \
        {rows, 12288, 3072, SUMI_CUDA_EPILOGUE_gelu},                                                                  \
    {                                                                                                                  \
        rows, 3072, 12288, SUMI_CUDA_EPILOGUE_gate_bias                                                                \
    }
#define TEXT_PRODUCTS(rows)                                                                                            \
    {rows, 4608, 3584, SUMI_CUDA_EPILOGUE_bias}, {rows, 3584, 3584, SUMI_CUDA_EPILOGUE_resid},                         \
        {rows, 37888, 3584, SUMI_CUDA_EPILOGUE_swiglu},                                                                \
    {                                                                                                                  \
        rows, 3584, 18944, SUMI_CUDA_EPILOGUE_resid                                                                    \
    }
static const product s_stream_products[] = {IMAGE_PRODUCTS(4096),  IMAGE_PRODUCTS(6889), IMAGE_PRODUCTS(24649),
                                            IMAGE_PRODUCTS(8192),  IMAGE_PRODUCTS(256),  IMAGE_PRODUCTS(1627),
                                            IMAGE_PRODUCTS(16384), IMAGE_PRODUCTS(128)};
static const product s_text_products[] = {TEXT_PRODUCTS(290), TEXT_PRODUCTS(546), TEXT_PRODUCTS(1691)};

static sumi_cuda_method method_of(const bench* b, const product* p, sumi_cuda_operands operands)
{
    const sumi_cuda_shape shape = {p->m, p->n, p->k, operands, true, p->epilogue};
    const sumi_cuda_method method = sumi_cuda_choose_linear(&((sumi_cuda*)b->runner)->device, true, &shape).method;
    if (method == SUMI_CUDA_METHOD_PORTABLE)
        printf("  %d x %d x %d, epilogue %d, operands %d: a portable kernel\n", (int)p->m, (int)p->n, (int)p->k,
               (int)p->epilogue, (int)operands);
    return method;
}

// Long products by kernels that have their epilogue (WGMMA); those of a short text may be split along their depth.
TEST(the_products_of_a_released_two_stream_model_take_hopper_s_kernels)
{
    bench b;
    if (open_bench(&b)) {
        for (size_t i = 0; i < sizeof s_stream_products / sizeof *s_stream_products; i++)
            for (int o = SUMI_CUDA_BF16; o <= SUMI_CUDA_INT8; o++) {
                const product* p = &s_stream_products[i];
                const sumi_cuda_method method = method_of(&b, p, (sumi_cuda_operands)o);
                CHECK(method == SUMI_CUDA_METHOD_WGMMA
                      || (p->m < 1024 && o != SUMI_CUDA_E4M3 && method == SUMI_CUDA_METHOD_SPLIT));
            }
        for (size_t i = 0; i < sizeof s_text_products / sizeof *s_text_products; i++)
            CHECK(method_of(&b, &s_text_products[i], SUMI_CUDA_BF16) == SUMI_CUDA_METHOD_WGMMA);
    }
    close_bench(&b);
}

// At most so many bytes of values lie in the arena at one op. Views lie in their bases, and guests in their hosts.
static uint64_t max_live_bytes(const sumi_plan* plan)
{
    uint64_t most = 0;
    for (int32_t i = 0; i < (int32_t)plan->op_count; i++) {
        uint64_t live = 0;
        for (size_t v = 0; v < plan->value_count; v++) {
            const sumi_value_info* info = &plan->values[v];
            const bool is_live = info->first_use >= 0 && info->first_use <= i && i <= info->last_use;
            if (!is_live || info->base.id != 0 || info->is_unstored) continue;
            const sumi_value_info* host = info->container.id != 0 ? &plan->values[info->container.id - 1] : NULL;
            const bool is_guest = host != NULL && host->offset == info->offset && host->first_use <= i
                               && i <= host->last_use && host->bytes >= info->bytes;
            if (!is_guest) live += info->bytes;
        }
        if (live > most) most = live;
    }
    return most;
}

// Writes a pipeline's plan, which the caller ends.
static void write_plan(bench* b, const sumi_network* network, const sumi_pipeline_request* request,
                       sumi_weight_format weights, sumi_plan* plan)
{
    sumi_pipeline pipeline;
    sumi_error error = {0};
    sumi_runner_begin_plan(b->runner, plan, &b->heap);
    plan->weight_options.weights = weights;
    CHECK(sumi_pipeline_write(network, request, plan, &pipeline, &error) == SUMI_OK);
    CHECK_TEXT(error.text, "");
}

// gaps: the part of the arena that no value uses at the op where most of it is in use.
static void check_arena(bench* b, const sumi_network* network, const sumi_pipeline_request* request, double gaps)
{
    sumi_plan plan;
    write_plan(b, network, request, SUMI_WEIGHTS_AUTO, &plan);
    const uint64_t most = max_live_bytes(&plan);
    if ((double)plan.arena_bytes > (1.0 + gaps) * (double)most)
        printf("  %d x %d: an arena of %.1f MB for %.1f\n", (int)request->width, (int)request->height,
               1e-6 * (double)plan.arena_bytes, 1e-6 * (double)most);
    CHECK(most > 0 && (double)plan.arena_bytes <= (1.0 + gaps) * (double)most);
    sumi_plan_end(&plan);
}

// An image of Qwen-Image, or an edit of one picture.
static sumi_pipeline_request two_stream_request(int32_t side, int32_t reference_count)
{
    static const sumi_pipeline_reference s_reference = {1036, 1036, 1024, 1024};
    static const sumi_pipeline_prompt s_prompts[] = {{.token_count = {256}, .has_features = true},
                                                     {.token_count = {1627}, .has_features = true}};
    static const sumi_pipeline_item s_item = {0, -1};
    return (sumi_pipeline_request){.goal = SUMI_GOAL_IMAGES,
                                   .prompts = &s_prompts[reference_count > 0],
                                   .prompt_count = 1,
                                   .items = &s_item,
                                   .item_count = 1,
                                   .references = &s_reference,
                                   .reference_count = reference_count,
                                   .width = side,
                                   .height = side,
                                   .evaluation_count = 4};
}

static void check_two_stream_arena(bench* b, const sumi_network* network, int32_t side, int32_t reference_count)
{
    const sumi_pipeline_request request = two_stream_request(side, reference_count);
    // Beside a reference the text has 1627 rows. Its MLP's hidden rows (40 MB) live at the same time as the image's, for
    // products that are computed at once, and do not fit into the gap of 38 MB between the image's and the stream.
    check_arena(b, network, &request, reference_count > 0 ? 0.101 : 0.03);
}

// Nothing is run, and no weight is read: 57 GB that are one block of memory.
TEST(the_arena_of_a_released_two_stream_model_has_no_gaps)
{
    static const int32_t s_sides[] = {1024, 1328};
    for (int32_t reference_count = 0; reference_count <= 1; reference_count++) {
        bench b;
        synthetic_config config = synthetic_qwen_image;
        config.references = reference_count;
        synthetic_files* files = synthetic_open(&config);
        CHECK(files != NULL);
        if (files != NULL && open_bench(&b)) {
            const sumi_files services = synthetic_services(files);
            sumi_network* network = open_network(&b, &services, SYNTHETIC_PATH);
            for (size_t i = 0; network != NULL && i < sizeof s_sides / sizeof *s_sides; i++)
                check_two_stream_arena(&b, network, s_sides[i], reference_count);
            sumi_network_close(network);
        }
        close_bench(&b);
        synthetic_close(files);
    }
}

// In int8 every product of the text stands beside one of the image, in all blocks but the last, which needs no text.
TEST(products_of_both_streams_of_a_released_model_are_beside_each_other)
{
    bench b;
    synthetic_config config = synthetic_qwen_image;
    synthetic_files* files = synthetic_open(&config);
    CHECK(files != NULL);
    if (files != NULL && open_bench(&b)) {
        const sumi_files services = synthetic_services(files);
        sumi_network* network = open_network(&b, &services, SYNTHETIC_PATH);
        const sumi_pipeline_request request = two_stream_request(1024, 0);
        sumi_plan plan;
        write_plan(&b, network, &request, SUMI_WEIGHTS_INT8, &plan);
        int32_t count = 0;
        for (size_t i = 0; i < plan.op_count; i++) count += plan.ops[i].is_beside_next;
        CHECK_NUMBER(count, 4 * 59 + 1);
        sumi_plan_end(&plan);
        sumi_network_close(network);
    }
    close_bench(&b);
    synthetic_close(files);
}

// A prefix is computed before the steps with weights that the steps read too: the device has each of them in one form.
TEST(a_prefix_of_a_released_model_reads_the_weights_of_its_steps)
{
    static const sumi_weight_format s_formats[] = {SUMI_WEIGHTS_AUTO, SUMI_WEIGHTS_INT8, SUMI_WEIGHTS_FP8,
                                                   SUMI_WEIGHTS_INT4, SUMI_WEIGHTS_AS_STORED};
    static const sumi_pipeline_prompt s_prompt = {.token_count = {64}, .has_features = true};
    static const sumi_pipeline_item s_item = {0, -1};
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                           .prompts = &s_prompt,
                                           .prompt_count = 1,
                                           .items = &s_item,
                                           .item_count = 1,
                                           .width = 1024,
                                           .height = 1024,
                                           .evaluation_count = 40};
    bench b;
    synthetic_files* files = synthetic_open(&synthetic_qwen_image_21);
    CHECK(files != NULL);
    if (files != NULL && open_bench(&b)) {
        const sumi_files services = synthetic_services(files);
        sumi_network* network = open_network(&b, &services, SYNTHETIC_PATH);
        for (size_t f = 0; network != NULL && f < sizeof s_formats / sizeof *s_formats; f++) {
            sumi_plan plan;
            write_plan(&b, network, &request, s_formats[f], &plan);
            int32_t shared = 0;
            for (int32_t i = 0; i < (int32_t)plan.op_count; i++) {
                const sumi_weight *weight, *other;
                sumi_device_form form, other_form;
                if (plan.ops[i].kind != SUMI_OP_LINEAR || !sumi_device_op_weight(&plan, i, 0, &weight, &form)) continue;
                for (int32_t k = i + 1; k < (int32_t)plan.op_count; k++) {
                    if (plan.ops[k].kind != SUMI_OP_LINEAR || plan.ops[k].weight != weight
                        || !sumi_device_op_weight(&plan, k, 0, &other, &other_form))
                        continue;
                    if (other_form != form) printf("  %s has two forms\n", plan.ops[k].label);
                    CHECK_NUMBER(other_form, form);
                    shared++;
                }
            }
            CHECK(shared >= 32 * 4 - 3); // in the last block of the prefix only keys and values are computed
            sumi_plan_end(&plan);
        }
        sumi_network_close(network);
    }
    close_bench(&b);
    synthetic_close(files);
}

static int64_t value_bytes(const sumi_files* services, const char* path)
{
    unsigned char length[8];
    uint64_t bytes = 0, header = 0;
    void* file = services->open(path, &bytes, services->user_data);
    CHECK(file != NULL);
    if (file == NULL || !services->read(file, 0, length, sizeof length, services->user_data)) return -1;
    for (int i = 7; i >= 0; i--) header = header << 8 | length[i];
    services->close(file, services->user_data);
    return (int64_t)bytes - 8 - (int64_t)header;
}

// Zeros may fill pages behind the norms and behind the last tensor, of what the system maps at least: 64 KiB of Windows.
static void check_values(const sumi_files* services, const char* path, int64_t want)
{
    const int64_t bytes = value_bytes(services, path);
    const int64_t most = want + 2 * (int64_t)views_unit();
    CHECK(bytes >= want && bytes < most);
    if (bytes < want || bytes >= most) printf("  %s has %lld bytes\n", path, (long long)bytes);
}

// Parameters as the specification counts them; those of the pooled encoder are without its adapter there.
TEST(the_random_newbie_image_has_as_many_weights_as_the_released_one)
{
    synthetic_files* files = synthetic_open(&synthetic_newbie);
    CHECK(files != NULL);
    if (files == NULL) return;
    const sumi_files services = synthetic_services(files);
    const int64_t adapter =
        4 * (250002 + 1024 + 1 + 1024) + 24 * 4 * (1024 + 3072 + 1024 + 1024 + 1024 + 4096 + 4096 + 1024);
    check_values(&services, SYNTHETIC_PATH "/transformer/diffusion_pytorch_model.safetensors", 2 * 3486636096);
    check_values(&services, SYNTHETIC_PATH "/text_encoder/model.safetensors", 2 * 3880263168);
    check_values(&services, SYNTHETIC_PATH "/clip_model/model.safetensors", 2 * (558314496 + adapter));
    synthetic_close(files);
}

// Parameters as the specification counts them, without lm_head and without the VAE's time_conv, which nothing reads.
TEST(the_random_qwen_image_21_has_as_many_weights_as_the_released_one)
{
    synthetic_files* files = synthetic_open(&synthetic_qwen_image_21);
    CHECK(files != NULL);
    if (files == NULL) return;
    const sumi_files services = synthetic_services(files);
    check_values(&services, SYNTHETIC_PATH "/transformer/diffusion_pytorch_model.safetensors", 2 * 7115124736);
    check_values(&services, SYNTHETIC_PATH "/text_encoder/model.safetensors", 2 * (7568405504 + 576388336));
    check_values(&services, SYNTHETIC_PATH "/vae/diffusion_pytorch_model.safetensors", 2 * (337740404 - 6753216));
    synthetic_close(files);
}

// A matrix is one op, its change included: three embed, norm and pool, one makes the rotary table, eight are a layer.
static void check_pooled_ops(bench* b, const sumi_network* network, const sumi_pipeline_prompt* prompt)
{
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_PROMPTS, .prompts = prompt, .prompt_count = 1};
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    sumi_runner_begin_plan(b->runner, &plan, &b->heap);
    CHECK(sumi_pipeline_write(network, &request, &plan, &pipeline, &error) == SUMI_OK);
    int32_t count = 0;
    double flops = 0.0, bytes = 0.0;
    for (size_t i = 0; i < plan.op_count; i++) {
        if (strncmp(plan.ops[i].label, "pooled_text.", 12) != 0) continue;
        count++;
        flops += plan.ops[i].flops;
        bytes += plan.ops[i].bytes;
    }
    printf("  the pooled text encoder: %d ops, %.2f TFLOP, %.2f GB\n", (int)count, 1e-12 * flops, 1e-9 * bytes);
    CHECK_NUMBER(count, 4 + 24 * 8);
    sumi_plan_end(&plan);
}

// 16 GB. Two prompts of different lengths: the caption, and the empty text that a guided step moves away from.
TEST(the_arena_of_the_released_newbie_image_has_no_gaps)
{
    static const int32_t s_sides[] = {512, 1024, 1536};
    const sumi_pipeline_prompt prompts[] = {{.token_count = {256, 1}, .has_features = true},
                                            {.token_count = {1, 1}, .has_features = true}};
    const sumi_pipeline_prompt texts[] = {{.token_count = {512, 512}}};
    bool guided[28];
    for (int32_t i = 0; i < 28; i++) guided[i] = true;
    bench b;
    synthetic_files* files = synthetic_open(&synthetic_newbie);
    CHECK(files != NULL);
    if (files != NULL && open_bench(&b)) {
        const sumi_files services = synthetic_services(files);
        sumi_network* network = open_network(&b, &services, SYNTHETIC_PATH);
        for (size_t i = 0; network != NULL && i < 2 * sizeof s_sides / sizeof *s_sides; i++) {
            const bool is_guided = i % 2 != 0;
            const sumi_pipeline_item item = {0, is_guided ? 1 : -1};
            const int32_t side = s_sides[i / 2];
            check_arena(&b, network,
                        &(sumi_pipeline_request){.goal = SUMI_GOAL_IMAGES,
                                                 .prompts = prompts,
                                                 .prompt_count = is_guided ? 2 : 1,
                                                 .items = &item,
                                                 .item_count = 1,
                                                 .guided = is_guided ? guided : NULL,
                                                 .width = side,
                                                 .height = side,
                                                 .evaluation_count = is_guided ? 28 : 4},
                        0.03);
        }
        if (network != NULL) {
            check_arena(&b, network,
                        &(sumi_pipeline_request){.goal = SUMI_GOAL_PROMPTS, .prompts = texts, .prompt_count = 1}, 0.03);
            check_pooled_ops(&b, network, texts);
        }
        sumi_network_close(network);
    }
    close_bench(&b);
    synthetic_close(files);
}

// ---- Step caching at the released sizes -----------------------------------------------------------------------------

static double section_flops(const sumi_plan* plan, size_t section)
{
    double flops = 0.0;
    for (int32_t i = plan->sections[section].op_begin; i < plan->sections[section].op_end; i++)
        flops += plan->ops[i].flops;
    return flops;
}

// Writes the plan of 50 guided evaluations; returns its bytes beside the weights.
static uint64_t write_long_plan(bench* b, const sumi_network* network, int32_t side, bool caches_steps, sumi_plan* plan)
{
    static bool s_guided[50];
    for (int32_t i = 0; i < 50; i++) s_guided[i] = true;
    const sumi_pipeline_prompt prompts[] = {{.token_count = {256, 1}, .has_features = true},
                                            {.token_count = {8, 1}, .has_features = true}};
    const sumi_pipeline_item item = {0, 1};
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                           .prompts = prompts,
                                           .prompt_count = 2,
                                           .items = &item,
                                           .item_count = 1,
                                           .guided = s_guided,
                                           .width = side,
                                           .height = side,
                                           .evaluation_count = 50,
                                           .caches_steps = caches_steps};
    sumi_pipeline pipeline;
    sumi_error error = {0};
    sumi_runner_begin_plan(b->runner, plan, &b->heap);
    CHECK(sumi_pipeline_write(network, &request, plan, &pipeline, &error) == SUMI_OK);
    CHECK_TEXT(error.text, "");
    return plan->arena_bytes;
}

// A reused evaluation costs little, and so do the residuals.
TEST(reused_evaluations_of_released_models_cost_little)
{
    static const struct {
        const char* name;
        const synthetic_config* config;
        int32_t side;
        double most; // of a whole evaluation's FLOPs
    } s_models[] = {{"z-image", &synthetic_z_image, 1024, 0.11},
                    {"qwen-image", &synthetic_qwen_image, 1328, 0.03},
                    {"newbie", &synthetic_newbie, 1024, 0.10},
                    {"qwen-image-2.1", &synthetic_qwen_image_21, 1024, 0.04}};
    for (size_t m = 0; m < sizeof s_models / sizeof *s_models; m++) {
        bench b;
        synthetic_files* files = synthetic_open(s_models[m].config);
        CHECK(files != NULL);
        if (files != NULL && open_bench(&b)) {
            const sumi_files services = synthetic_services(files);
            sumi_network* network = open_network(&b, &services, SYNTHETIC_PATH);
            sumi_plan plain, cached;
            if (network != NULL) {
                const uint64_t without = write_long_plan(&b, network, s_models[m].side, false, &plain),
                               with = write_long_plan(&b, network, s_models[m].side, true, &cached);
                for (size_t s = 0; s + 1 < cached.section_count; s++) {
                    if (!sumi_plan_has_alternative(&cached, s)) continue;
                    const double share = section_flops(&cached, s + 1) / section_flops(&cached, s);
                    printf("  %s, %d: a reused evaluation computes %.1f %% of a whole one; arena %.0f MB, without "
                           "%.0f MB\n",
                           s_models[m].name, (int)s_models[m].side, 100.0 * share, 1e-6 * (double)with,
                           1e-6 * (double)without);
                    CHECK(share > 0.0 && share < s_models[m].most);
                    const size_t ops = (size_t)(cached.sections[s].op_end - cached.sections[s].op_begin);
                    CHECK(ops < plain.op_count + 8); // copies, the change and the difference
                }
                sumi_plan_end(&plain);
                sumi_plan_end(&cached);
            }
            sumi_network_close(network);
        }
        close_bench(&b);
        synthetic_close(files);
    }
}

// ---- A vision tower of zeros ----------------------------------------------------------------------------------------

static uint16_t s_zeros[1280 * 1280]; // the largest weight of these tests
static const sumi_weight* s_weights[64];
static int32_t s_weight_count;

static void give_zeros(sumi_weight* weight, int32_t rows, int32_t cols)
{
    *weight = (sumi_weight){.name = "zeros",
                            .rows = rows,
                            .cols = cols,
                            .tensor_count = 1,
                            .tensors = {{.data = s_zeros, .dtype = SUMI_DTYPE_BF16, .rows = rows, .scale = 1.0f}},
                            .index = s_weight_count};
    s_weights[s_weight_count++] = weight;
}

// Narrower than the released one, with its heads of 80 channels and a depth that is no multiple of 8.
static void make_tower(sumi_qwen_vision* m, sumi_qwen_vision_block* blocks)
{
    enum { WIDTH = 320, HIDDEN = 428, PADDED = 432 };
    *m = (sumi_qwen_vision){.tower = {.width = WIDTH,
                                      .heads = 4,
                                      .block_count = 2,
                                      .hidden = HIDDEN,
                                      .out_width = 256,
                                      .patch = 14,
                                      .frames = 2,
                                      .merge = 2,
                                      .deviation = {1.0f, 1.0f, 1.0f}},
                            .window = 4,
                            .blocks = blocks};
    s_weight_count = 0;
    give_zeros(&m->patch_embed, WIDTH, 1176);
    give_zeros(&m->merger_norm, 1, WIDTH);
    give_zeros(&m->merger_in, 4 * WIDTH, 4 * WIDTH);
    give_zeros(&m->merger_in_bias, 1, 4 * WIDTH);
    give_zeros(&m->merger_out, 256, 4 * WIDTH);
    give_zeros(&m->merger_out_bias, 1, 256);
    for (int i = 0; i < 2; i++) {
        sumi_qwen_vision_block* w = &blocks[i];
        w->attends_to_all = i == 1;
        give_zeros(&w->norm1, 1, WIDTH);
        give_zeros(&w->qkv, 3 * WIDTH, WIDTH);
        give_zeros(&w->qkv_bias, 1, 3 * WIDTH);
        give_zeros(&w->out, WIDTH, WIDTH);
        give_zeros(&w->out_bias, 1, WIDTH);
        give_zeros(&w->norm2, 1, WIDTH);
        give_zeros(&w->gate_up, 2 * PADDED, WIDTH);
        give_zeros(&w->gate_up_bias, 1, 2 * PADDED);
        give_zeros(&w->down, WIDTH, HIDDEN);
        give_zeros(&w->down_bias, 1, WIDTH);
    }
}

// Windows and whole pictures have kernels of their own, for heads of 80 channels.
TEST(the_vision_tower_takes_the_kernels_that_are_there)
{
    bench b;
    if (open_bench(&b)) {
        sumi_qwen_vision model;
        sumi_qwen_vision_block blocks[2];
        sumi_plan plan;
        make_tower(&model, blocks);
        sumi_runner_begin_plan(b.runner, &plan, &b.heap);
        sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
        sumi_value pixels = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, 392 * 392, 3);
        sumi_qwen_vision_module.write(&model, &plan, pixels, 392, 392);
        run_written(&b, &plan);
        check_used(&b, "sumi_patches_in", true);
        check_used(&b, "sumi_embed_rows", true);
        check_used(&b, "sumi_gated", true);
        check_used(&b, "sumi_gemm_any", false);
        check_used(&b, "sumi_attention_d80_m1", true);
        check_used(&b, "sumi_attention_sm90_d80", true);
        check_used(&b, "sumi_attention_any", false);
        plan_release(b.runner, &plan);
        sumi_plan_end(&plan);
        runner_release_weights(b.runner, s_weights, (size_t)s_weight_count);
    }
    close_bench(&b);
}

static void give_biased(sumi_biased_weight* layer, int32_t rows, int32_t cols)
{
    give_zeros(&layer->weight, rows, cols);
    give_zeros(&layer->bias, 1, rows > 1 ? rows : cols);
}

// Qwen3-VL's, narrower than the released one, with its heads of 72 channels.
static void make_tower_3(sumi_qwen3_vision* m, sumi_qwen3_vision_block* block)
{
    enum { WIDTH = 288, HIDDEN = 424, MERGED = 4 * WIDTH };
    *m = (sumi_qwen3_vision){.tower = {.width = WIDTH,
                                       .heads = 4,
                                       .block_count = 1,
                                       .hidden = HIDDEN,
                                       .out_width = 256,
                                       .patch = 16,
                                       .frames = 2,
                                       .merge = 2,
                                       .deviation = {1.0f, 1.0f, 1.0f}},
                             .grid = 8,
                             .deep_count = 1,
                             .blocks = block};
    s_weight_count = 0;
    give_biased(&m->patch_embed, WIDTH, 1536);
    give_zeros(&m->positions, 64, WIDTH);
    for (int i = 0; i < 2; i++) {
        sumi_qwen3_vision_merger* merger = i == 0 ? &m->merger : &m->deep_mergers[0];
        give_biased(&merger->norm, 1, i == 0 ? WIDTH : MERGED);
        give_biased(&merger->in, MERGED, MERGED);
        give_biased(&merger->out, 256, MERGED);
    }
    block->deep_level = 0;
    give_biased(&block->norm1, 1, WIDTH);
    give_biased(&block->qkv, 3 * WIDTH, WIDTH);
    give_biased(&block->out, WIDTH, WIDTH);
    give_biased(&block->norm2, 1, WIDTH);
    give_biased(&block->up, HIDDEN, WIDTH);
    give_biased(&block->down, WIDTH, HIDDEN);
}

// Heads of 72 channels have no kernel of their own.
TEST(a_vision_tower_with_heads_of_72_takes_the_kernels_that_are_there)
{
    bench b;
    if (open_bench(&b)) {
        sumi_qwen3_vision model;
        sumi_qwen3_vision_block block;
        sumi_plan plan;
        make_tower_3(&model, &block);
        sumi_runner_begin_plan(b.runner, &plan, &b.heap);
        sumi_plan_section(&plan, SUMI_SECTION_VISION, 1, 0);
        sumi_value pixels = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, 256 * 256, 3);
        sumi_qwen3_vision_module.write(&model, &plan, pixels, 256, 256);
        run_written(&b, &plan);
        check_used(&b, "sumi_patches_in", true);
        check_used(&b, "sumi_mix_rows", true);
        check_used(&b, "sumi_embed_rows", false);
        check_used(&b, "sumi_gemm_any", false);
        check_used(&b, "sumi_attention_d72_m1", true);
        plan_release(b.runner, &plan);
        sumi_plan_end(&plan);
        runner_release_weights(b.runner, s_weights, (size_t)s_weight_count);
    }
    close_bench(&b);
}

// ---- A text encoder that pools, of zeros ----------------------------------------------------------------------------

static const sumi_xlm_roberta_settings s_pooling = {.name = "zeros", .head_dim = 64, .eps = 1e-5f, .theta = 20000.0};

static sumi_weight_change s_changes[16];
static int s_change_count;

static void give_changed(sumi_weight* weight, int32_t rows, int32_t cols)
{
    sumi_weight_change* change = &s_changes[s_change_count++];
    give_zeros(weight, rows, cols);
    *change = (sumi_weight_change){.down = weight->tensors[0], .up = weight->tensors[0]};
    change->down.rows = 4;
    weight->change = change;
}

static void give_changed_linear(sumi_xlm_roberta_weights* linear, int32_t rows, int32_t cols)
{
    give_changed(&linear->weight, rows, cols);
    give_zeros(&linear->bias, 1, rows);
}

// As wide as the released one, with narrower MLPs.
static void make_pooling(sumi_xlm_roberta* m, sumi_xlm_roberta_layer* layers)
{
    enum { WIDTH = 1024, HIDDEN = 1280, VOCABULARY = 1000 };
    *m = (sumi_xlm_roberta){.settings = &s_pooling,
                            .width = WIDTH,
                            .heads = 16,
                            .vocabulary = VOCABULARY,
                            .hidden = HIDDEN,
                            .layer_count = 2,
                            .layers = layers};
    s_weight_count = s_change_count = 0;
    give_changed(&m->embedding, VOCABULARY, WIDTH);
    give_changed(&m->type, 1, WIDTH);
    give_zeros(&m->embedding_norm.weight, 1, WIDTH);
    give_zeros(&m->embedding_norm.bias, 1, WIDTH);
    for (int i = 0; i < 2; i++) {
        sumi_xlm_roberta_layer* w = &layers[i];
        give_changed_linear(&w->qkv, 1024, WIDTH); // the rest of its rows follows
        give_changed_linear(&w->out, WIDTH, WIDTH);
        give_changed_linear(&w->fc1, HIDDEN, WIDTH);
        give_changed_linear(&w->fc2, WIDTH, HIDDEN);
        give_zeros(&w->norm1.weight, 1, WIDTH);
        give_zeros(&w->norm1.bias, 1, WIDTH);
        give_zeros(&w->norm2.weight, 1, WIDTH);
        give_zeros(&w->norm2.bias, 1, WIDTH);
        w->qkv.weight.rows = w->qkv.bias.cols = 3 * WIDTH;
        ((sumi_weight_change*)(uintptr_t)w->qkv.weight.change)->up.rows = 3 * WIDTH;
        w->qkv.weight.tensor_count = 3;
        w->qkv.weight.tensors[1] = w->qkv.weight.tensors[2] = w->qkv.weight.tensors[0];
    }
}

TEST(a_text_encoder_that_pools_takes_the_kernels_that_are_there)
{
    static const int32_t s_prompts[2][2] = {{70, 442}, {1, 2}};
    for (int i = 0; i < 2; i++) {
        bench b;
        if (open_bench(&b)) {
            sumi_xlm_roberta model;
            sumi_xlm_roberta_layer layers[2];
            sumi_plan plan;
            make_pooling(&model, layers);
            sumi_runner_begin_plan(b.runner, &plan, &b.heap);
            sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
            sumi_value ids = sumi_plan_bound(&plan, "ids", SUMI_ELEMENT_INT, s_prompts[i][0] + s_prompts[i][1], 1);
            sumi_xlm_roberta_module.write(&model, &plan,
                                          &(sumi_text_batch){.ids = ids, .counts = s_prompts[i], .prompt_count = 2});
            run_written(&b, &plan);
            check_used(&b, "sumi_embed_rows", true);
            check_used(&b, "sumi_mean_rows", true);
            check_used(&b, "sumi_norm_modulate_rows", true);
            check_used(&b, "sumi_norm_modulate_any", false);
            check_used(&b, "sumi_qk_norm_rope_halves_8", true);
            check_used(&b, "sumi_activate", false);    // a product does it
            check_used(&b, "sumi_copy_bytes", i == 1); // a few tokens are followed by padding
            plan_release(b.runner, &plan);
            sumi_plan_end(&plan);
            runner_release_weights(b.runner, s_weights, (size_t)s_weight_count);
        }
        close_bench(&b);
    }
}

// ---- Autoencoders ---------------------------------------------------------------------------------------------------

// The layers of the autoencoders at their widths, on a square picture (of half the side before it is doubled) and on 16
// rows of it. UP_ADDED: UP with a residual. NORMED: a group norm follows. ADDED: so it does, and the convolution has a
// residual. CONV_NORM: a norm over the channels of a pixel follows.
typedef enum layer_kind {
    LAYER_CONV,
    LAYER_STRIP,
    LAYER_UP,
    LAYER_UP_ADDED,
    LAYER_DOWN,
    LAYER_NORMED,
    LAYER_ADDED,
    LAYER_NORM,
    LAYER_ATTENTION,
    LAYER_CONV_NORM
} layer_kind;
typedef struct layer {
    layer_kind kind;
    int32_t in, out;
    const char* kernel;
    int32_t side;
} layer;
static const layer s_layers[] = {{LAYER_CONV, 3, 96, "sumi_conv_sm90_n128", 64},
                                 {LAYER_CONV, 16, 384, "sumi_conv_sm90_n128", 64},
                                 {LAYER_CONV, 384, 384, "sumi_conv_halo_128x96_c64", 64},
                                 {LAYER_STRIP, 384, 384, "sumi_conv_halo_128x96_c64", 64},
                                 {LAYER_CONV, 192, 384, "sumi_conv_halo_128x96_c64", 64},
                                 {LAYER_CONV, 192, 192, "sumi_conv_halo_128x96_c64", 64},
                                 {LAYER_STRIP, 192, 192, "sumi_conv_halo_128x96_c64", 64},
                                 {LAYER_CONV, 96, 192, "sumi_conv_halo_128x96_c96", 64},
                                 {LAYER_CONV, 96, 96, "sumi_conv_halo_128x96_c96", 64},
                                 {LAYER_STRIP, 96, 96, "sumi_conv_halo_128x96_c96", 64},
                                 {LAYER_UP, 384, 192, "sumi_conv_halo_128x96_c64", 64},
                                 {LAYER_UP, 192, 96, "sumi_conv_halo_128x96_c96", 64},
                                 {LAYER_DOWN, 96, 96, "sumi_conv_sm90_n128", 64},
                                 {LAYER_DOWN, 192, 192, "sumi_conv_sm90_n256", 64},
                                 {LAYER_DOWN, 384, 384, "sumi_conv_sm90_n128", 64},
                                 {LAYER_CONV, 96, 3, "sumi_conv_narrow", 64},
                                 {LAYER_CONV, 384, 32, "sumi_conv_sm90_n128", 64},
                                 // a c96 or a c64 by channels alone; by the size, the tile whose rounds are full
                                 {LAYER_CONV, 96, 96, "sumi_conv_halo_256x96_c96", 256},
                                 {LAYER_CONV, 192, 192, "sumi_conv_halo_128x192_c64", 256},
                                 {LAYER_CONV, 384, 384, "sumi_conv_halo_128x192_c64", 128},
                                 {LAYER_CONV, 384, 384, "sumi_conv_halo_128x128_c64", 96},
                                 // the Flux autoencoder's
                                 {LAYER_CONV, 512, 512, "sumi_conv_halo_128x128_c64", 64},
                                 {LAYER_NORMED, 16, 512, "sumi_conv_sm90_n256_stats16", 64},
                                 {LAYER_NORMED, 512, 512, "sumi_conv_halo_128x128_c64_stats16", 64},
                                 {LAYER_NORMED, 256, 128, "sumi_conv_halo_128x128_c64_stats4", 64},
                                 {LAYER_ADDED, 256, 256, "sumi_conv_halo_128x128_c64_residual_stats8", 64},
                                 {LAYER_ADDED, 16, 128, "sumi_conv_sm90_n128_residual", 64}, // reads its sums again
                                 {LAYER_CONV_NORM, 96, 96, "sumi_conv_halo_128x96_c96_norm", 256},
                                 {LAYER_CONV_NORM, 192, 96, "sumi_conv_halo_128x96_c96_norm", 64},
                                 {LAYER_CONV_NORM, 192, 192, "sumi_conv_halo_128x192_c64_norm", 64},
                                 {LAYER_NORM, 96, 96, "sumi_norm_silu_128", 64},
                                 {LAYER_NORM, 192, 192, "sumi_norm_silu_256", 64},
                                 {LAYER_NORM, 384, 384, "sumi_norm_silu_512", 64},
                                 {LAYER_ATTENTION, 3 * 384, 384, "sumi_attention_sm90_d384_m1", 64},
                                 {LAYER_ATTENTION, 3 * 384, 384, "sumi_attention_sm90_d384_m2", 128},
                                 // the widths of Qwen-Image-2.1's autoencoder
                                 {LAYER_CONV, 64, 1152, "sumi_conv_halo_128x96_c64", 64},
                                 {LAYER_CONV, 1152, 1152, "sumi_conv_halo_128x96_c64", 64},
                                 {LAYER_CONV, 1152, 576, "sumi_conv_halo_128x192_c64", 128},
                                 {LAYER_CONV, 576, 576, "sumi_conv_halo_128x192_c64", 128},
                                 {LAYER_CONV, 576, 288, "sumi_conv_halo_128x96_c96", 128},
                                 {LAYER_CONV, 288, 288, "sumi_conv_halo_256x96_c96", 256},
                                 {LAYER_CONV, 288, 144, "sumi_conv_halo_128x144_c96", 64},
                                 {LAYER_CONV, 144, 144, "sumi_conv_halo_128x144_c96", 64},
                                 {LAYER_STRIP, 144, 144, "sumi_conv_halo_128x144_c96", 64},
                                 {LAYER_CONV, 144, 4, "sumi_conv_narrow_o4", 64},
                                 {LAYER_UP_ADDED, 1152, 1152, "sumi_conv_halo_128x192_c64_up_residual", 128},
                                 {LAYER_UP_ADDED, 576, 576, "sumi_conv_halo_128x192_c64_up_residual", 256},
                                 {LAYER_UP_ADDED, 288, 288, "sumi_conv_halo_256x96_c96_up_residual", 256},
                                 {LAYER_CONV, 4, 96, "sumi_conv_sm90_n128", 64},
                                 {LAYER_CONV, 768, 768, "sumi_conv_halo_128x192_c64", 64},
                                 {LAYER_DOWN, 768, 768, "sumi_conv_sm90_n256", 64},
                                 {LAYER_ATTENTION, 3 * 768, 768, "sumi_attention_d768_w", 64},
                                 {LAYER_ATTENTION, 3 * 1152, 1152, "sumi_attention_d1152_w", 64}};

static void write_layer(sumi_plan* plan, const layer* l, const sumi_weight* weight, const sumi_weight* bias)
{
    const int32_t side = l->side, rows = l->kind == LAYER_STRIP ? 16 : side,
                  doubled = l->kind == LAYER_UP || l->kind == LAYER_UP_ADDED ? 2 : 1;
    const sumi_value x = sumi_plan_bound(plan, "x", SUMI_ELEMENT_ACTIVATION, rows / doubled * (side / doubled), l->in);
    const sumi_sequence all = {.span = {{0, rows * side}}, .span_count = 1, .query_spans = 1};
    if (l->kind == LAYER_NORM) {
        sumi_plan_norm(
            plan, &(sumi_plan_norm_args){.label = "norm", .x = x, .weight = bias, .eps = 1e-26f, .silu = true, .y = x});
        return;
    }
    if (l->kind == LAYER_ATTENTION) {
        sumi_plan_attention(
            plan, "attention", x,
            &(sumi_attention){
                .q_heads = 1, .kv_heads = 1, .dim = l->out, .scale = 0.05f, .sequences = &all, .sequence_count = 1});
        return;
    }
    const sumi_value residual = l->kind == LAYER_ADDED || l->kind == LAYER_UP_ADDED
                                  ? sumi_plan_bound(plan, "residual", SUMI_ELEMENT_ACTIVATION, rows * side, l->out)
                                  : SUMI_NO_VALUE;
    const sumi_value y = sumi_plan_conv(plan, &(sumi_plan_conv_args){.label = "conv",
                                                                     .x = x,
                                                                     .weight = weight,
                                                                     .bias = bias,
                                                                     .shape = {.height = rows / doubled,
                                                                               .width = side / doubled,
                                                                               .upsamples = doubled == 2,
                                                                               .stride = l->kind == LAYER_DOWN ? 2 : 1,
                                                                               .pads_end = l->kind == LAYER_DOWN,
                                                                               .above = l->kind == LAYER_STRIP,
                                                                               .below = l->kind == LAYER_STRIP},
                                                                     .residual = residual});
    if (l->kind == LAYER_CONV_NORM)
        sumi_plan_norm(
            plan, &(sumi_plan_norm_args){.label = "norm", .x = y, .weight = bias, .eps = 1e-26f, .silu = true, .y = y});
    if (l->kind == LAYER_NORMED || l->kind == LAYER_ADDED)
        sumi_plan_group_norm(plan, &(sumi_plan_group_norm_args){.label = "norm",
                                                                .x = y,
                                                                .weight = bias,
                                                                .bias = bias,
                                                                .groups = 32,
                                                                .eps = 1e-6f,
                                                                .silu = true,
                                                                .y = y});
}

static void run_layer(bench* b, const layer* l, const float* zeros)
{
    // as they lie in the file: one slice in time of three
    const sumi_weight weight = {.name = "conv",
                                .rows = l->out,
                                .cols = 9 * l->in,
                                .tensor_count = 1,
                                .tensors = {{.data = zeros + 18,
                                             .dtype = SUMI_DTYPE_F32,
                                             .rows = l->out,
                                             .chunk = 9,
                                             .chunk_stride = 27,
                                             .scale = 1.0f}}};
    const sumi_weight bias = {.name = "bias",
                              .rows = 1,
                              .cols = l->out,
                              .tensor_count = 1,
                              .tensors = {{.data = zeros, .dtype = SUMI_DTYPE_F32, .rows = 1, .scale = 1.0f}}};
    const sumi_weight* const weights[] = {&weight, &bias};
    sumi_plan plan;
    sumi_runner_begin_plan(b->runner, &plan, &b->heap);
    sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
    write_layer(&plan, l, &weight, &bias);
    run_written(b, &plan);
    plan_release(b->runner, &plan);
    sumi_plan_end(&plan);
    runner_release_weights(b->runner, weights, 2);
}

// A layer goes through the kernel named beside it and through no other, but for what pads three channels.
TEST(the_layers_of_the_autoencoders_have_fast_kernels)
{
    float* zeros = calloc(1152 * 1152 * 27, sizeof *zeros);
    bench b;
    const bool is_open = open_bench(&b);
    for (size_t i = 0; is_open && i < sizeof s_layers / sizeof *s_layers; i++) {
        const layer* l = &s_layers[i];
        static const char* const s_names[] = {"sumi_conv_sm90_", "sumi_conv_halo_", "sumi_conv_n",
                                              "sumi_group_sums_conv"};
        const uint64_t before = tally_of(&b, l->kernel).uses, norms = tally_of(&b, "sumi_norm_silu_").uses;
        uint64_t uses[sizeof s_names / sizeof *s_names];
        for (size_t n = 0; n < sizeof s_names / sizeof *s_names; n++) uses[n] = tally_of(&b, s_names[n]).uses;
        run_layer(&b, l, zeros);
        if (tally_of(&b, l->kernel).uses == before)
            printf("  layer %d, %d -> %d: %s was not used\n", (int)l->kind, (int)l->in, (int)l->out, l->kernel);
        CHECK(tally_of(&b, l->kernel).uses > before);
        CHECK((tally_of(&b, "sumi_norm_silu_").uses > norms) == (l->kind == LAYER_NORM));
        for (size_t n = 0; n < sizeof s_names / sizeof *s_names; n++) {
            const bool is_wanted =
                n < 3 ? strncmp(l->kernel, s_names[n], strlen(s_names[n])) == 0 : strstr(l->kernel, "_stats") != NULL;
            CHECK((tally_of(&b, s_names[n]).uses > uses[n]) == is_wanted);
        }
    }
    if (is_open) CHECK(tally_of(&b, "sumi_conv_any").used == 0 && tally_of(&b, "sumi_attention_any").used == 0);
    close_bench(&b);
    free(zeros);
}

// ---- Attention ------------------------------------------------------------------------------------------------------
enum { ATTENTION_CAUSAL = 1, ATTENTION_LATER = 2, ATTENTION_PADDED = 4, ATTENTION_KEPT = 8, ATTENTION_PORTABLE = 16 };

// Heads and sequences as released models have them. LATER: a second sequence begins with the first one's rows but the
// last. PADDED: a text of 20 tokens and its padding. KEPT: behind 20 keys that were kept; 8 bits are allowed. PORTABLE:
// without TMA. window: rows of a sequence, of which there are as many as it takes.
typedef struct attention_layer {
    int32_t q_heads, kv_heads, dim, rows, window, flags;
    const char* kernel;
} attention_layer;
static const attention_layer s_attention_layers[] = {
    {16, 16, 80, 5476, 64, 0, "sumi_attention_d80_m1"},   // the vision tower's windows
    {16, 16, 80, 784, 784, 0, "sumi_attention_sm90_d80"}, // and its whole pictures
    {16, 16, 80, 128, 128, 0, "sumi_attention_sm90_d80"}, // two thirds of a tile
    {16, 16, 80, 784, 784, ATTENTION_CAUSAL, "sumi_attention_any_c2"},
    {8, 4, 256, 300, 300, ATTENTION_CAUSAL, "sumi_attention_d256_k4"},
    {8, 4, 256, 300, 300, 0, "sumi_attention_d256_k4"},
    {28, 4, 128, 300, 300, ATTENTION_CAUSAL, "sumi_attention_sm90_d128_causal"},
    {28, 4, 128, 300, 300, ATTENTION_CAUSAL | ATTENTION_LATER, "sumi_attention_d128_m1_causal"},
    {28, 4, 128, 1400, 1400, ATTENTION_CAUSAL | ATTENTION_LATER, "sumi_attention_d128_causal"},
    {32, 8, 128, 512, 512, ATTENTION_CAUSAL | ATTENTION_PADDED, "sumi_attention_d128_m1_causal"},
    {32, 32, 128, 4096, 4096, ATTENTION_LATER, "sumi_attention_sm90_d128"},   // references in a prompt
    {32, 32, 128, 4096, 4096, ATTENTION_KEPT, "sumi_attention_sm90_d128_c2"}, // 1024 x 1024 pixels behind a prompt
    {32, 32, 128, 16384, 16384, ATTENTION_KEPT, "sumi_attention_sm90_d128"},
    {2, 2, 32, 64, 64, ATTENTION_KEPT, "sumi_attention_any_c1"},
    {8, 8, 128, 300, 300, ATTENTION_KEPT | ATTENTION_CAUSAL, "sumi_attention_any_c2"},
    {32, 32, 128, 4096, 4096, ATTENTION_KEPT | ATTENTION_PORTABLE, "sumi_attention_d128_kept"},
    {8, 8, 128, 300, 300, ATTENTION_KEPT | ATTENTION_PORTABLE, "sumi_attention_d128_m1_kept"},
    {16, 16, 72, 4096, 4096, 0, "sumi_attention_d72_m1"}, // a vision tower
    {16, 16, 72, 300, 300, ATTENTION_CAUSAL, "sumi_attention_any_c2"},
    {1, 1, 640, 300, 300, 0, "sumi_attention_any_parts"},
    {1, 1, 1152, 300, 300, ATTENTION_CAUSAL, "sumi_attention_any_parts"},
    {1, 1, 768, 300, 300, 0, "sumi_attention_d768_w"},
    {1, 1, 1152, 4096, 4096, 0, "sumi_attention_d1152_w"}};

TEST(attention_takes_the_kernel_of_its_heads)
{
    for (size_t i = 0; i < sizeof s_attention_layers / sizeof *s_attention_layers; i++) {
        const attention_layer* l = &s_attention_layers[i];
        const int32_t own = 20, rows = l->rows + ((l->flags & ATTENTION_LATER) != 0 ? own : 0);
        sumi_sequence list[128];
        sumi_attention attention = {.q_heads = l->q_heads,
                                    .kv_heads = l->kv_heads,
                                    .dim = l->dim,
                                    .scale = 0.05f,
                                    .causal = (l->flags & ATTENTION_CAUSAL) != 0,
                                    .sequences = list};
        for (int32_t begin = 0; begin < l->rows; begin += l->window) {
            const int32_t left = l->rows - begin;
            list[attention.sequence_count++] = (sumi_sequence){
                .span = {{begin, left < l->window ? left : l->window}}, .span_count = 1, .query_spans = 1};
        }
        if ((l->flags & ATTENTION_PADDED) != 0)
            list[0] = (sumi_sequence){
                .span = {{0, own}, {own, rows - own}}, .span_count = 2, .query_spans = 2, .key_spans = 1};
        if ((l->flags & ATTENTION_LATER) != 0)
            list[attention.sequence_count++] = (sumi_sequence){
                .span = {{0, l->rows - 1}, {l->rows, own}}, .span_count = 2, .query_spans = 1, .query_first = 1};
        const bool keeps = (l->flags & ATTENTION_KEPT) != 0;
        if (keeps)
            list[0] =
                (sumi_sequence){.span = {{0, own}, {0, rows}}, .span_count = 2, .query_spans = 1, .query_first = 1};
        const sumi_cuda_options portable = {.without_hopper = true};
        bench b;
        if (open_bench_with(&b, (l->flags & ATTENTION_PORTABLE) != 0 ? &portable : NULL)) {
            sumi_plan plan;
            sumi_runner_begin_plan(b.runner, &plan, &b.heap);
            sumi_plan_section(&plan, keeps ? SUMI_SECTION_DENOISE : SUMI_SECTION_TEXT, 1, 0);
            const sumi_value x =
                sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, rows, (l->q_heads + 2 * l->kv_heads) * l->dim);
            if (keeps) {
                plan.weight_options.attention = SUMI_ATTENTION_8BIT;
                sumi_plan_attention_into(
                    &plan, &(sumi_plan_attention_args){
                               .label = "attention",
                               .qkv = x,
                               .attention = &attention,
                               .y = sumi_plan_value(&plan, "y", SUMI_ELEMENT_ACTIVATION, rows, l->q_heads * l->dim),
                               .kept = sumi_plan_bound(&plan, "kept", SUMI_ELEMENT_ACTIVATION, own,
                                                       2 * l->kv_heads * l->dim)});
            } else {
                sumi_plan_attention(&plan, "attention", x, &attention);
            }
            run_written(&b, &plan);
            check_used(&b, l->kernel, true);
            const tally t = tally_of(&b, "sumi_attention");
            if (t.used != 1) printf("  %d kernels for %s\n", t.used, l->kernel);
            CHECK_NUMBER(t.used, 1);
            plan_release(b.runner, &plan);
            sumi_plan_end(&plan);
        }
        close_bench(&b);
    }
}

// Attention in e4m3 of released models, by tokens. Tiles of 128 rows are for heads of 128 where they need fewer rounds of
// the 132 multiprocessors.
TEST(attention_in_e4m3_takes_the_tiles_whose_rounds_are_full)
{
    enum { WIDTH = 64 };
    static const struct {
        int32_t q_heads, kv_heads, dim, rows;
        bool is_low;
    } s_cases[] = {{30, 30, 128, 4224, false}, {30, 30, 128, 1152, false}, {24, 24, 128, 24904, false},
                   {24, 24, 128, 4352, false}, {24, 24, 128, 1280, true},  {24, 8, 96, 1280, false},
                   {24, 8, 96, 4352, false}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        const int32_t q = s_cases[i].q_heads, kv = s_cases[i].kv_heads, dim = s_cases[i].dim, rows = s_cases[i].rows;
        const sumi_sequence whole = {.span = {{0, rows}}, .span_count = 1, .query_spans = 1};
        const sumi_attention attention = {
            .q_heads = q, .kv_heads = kv, .dim = dim, .scale = 0.1f, .sequences = &whole, .sequence_count = 1};
        sumi_weight weight;
        s_weight_count = 0;
        give_zeros(&weight, (q + 2 * kv) * dim, WIDTH);
        bench b;
        if (open_bench(&b)) {
            sumi_plan plan;
            sumi_runner_begin_plan(b.runner, &plan, &b.heap);
            plan.weight_options.attention = SUMI_ATTENTION_8BIT;
            sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
            const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, rows, WIDTH),
                             qkv = sumi_plan_linear(
                                 &plan, &(sumi_plan_linear_args){.label = "qkv", .x = x, .weight = &weight});
            sumi_plan_qk_norm_rope(&plan, &(sumi_plan_qk_args){.label = "norm",
                                                               .qkv = qkv,
                                                               .rows = rows,
                                                               .q_heads = q,
                                                               .kv_heads = kv,
                                                               .dim = dim,
                                                               .eps = 1e-5f,
                                                               .rotary = SUMI_ROTARY_NONE});
            sumi_plan_attention(&plan, "attention", qkv, &attention);
            run_written(&b, &plan);
            check_used(&b, dim == 128 ? "sumi_attention_pack_values_d128" : "sumi_attention_pack_values_d96", true);
            check_used(&b, dim == 128 ? "sumi_attention_sm90_fp8_d128" : "sumi_attention_sm90_fp8_d96", true);
            check_used(&b, "sumi_attention_sm90_fp8_d128_c2", s_cases[i].is_low);
            CHECK_NUMBER(tally_of(&b, "sumi_attention_sm90_").used, 1);
            plan_release(b.runner, &plan);
            sumi_plan_end(&plan);
            runner_release_weights(b.runner, s_weights, (size_t)s_weight_count);
        }
        close_bench(&b);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(every_name_of_a_launcher_is_that_of_a_kernel);
    RUN(every_kernel_has_a_launcher);
    RUN(the_list_has_every_kernel_of_a_hopper_device);
    RUN(every_product_has_its_kernel);
    RUN(a_last_round_is_halved);
    RUN(products_take_the_tiles_that_were_measured);
    RUN(two_products_take_the_tiles_that_were_measured);
    RUN(few_rows_of_int8_share_k);
    RUN(the_wide_golden_data_takes_the_kernels_of_a_released_model);
    RUN(attention_in_8_bits_takes_its_kernels);
    RUN(kept_keys_of_whole_plans_are_in_8_bits);
    RUN(values_that_are_looked_at_are_not_fused);
    RUN(the_products_of_a_released_two_stream_model_take_hopper_s_kernels);
    RUN(the_arena_of_a_released_two_stream_model_has_no_gaps);
    RUN(products_of_both_streams_of_a_released_model_are_beside_each_other);
    RUN(a_prefix_of_a_released_model_reads_the_weights_of_its_steps);
    RUN(the_random_newbie_image_has_as_many_weights_as_the_released_one);
    RUN(the_random_qwen_image_21_has_as_many_weights_as_the_released_one);
    RUN(the_arena_of_the_released_newbie_image_has_no_gaps);
    RUN(reused_evaluations_of_released_models_cost_little);
    RUN(the_vision_tower_s_products_take_tensor_cores);
    RUN(the_vision_tower_takes_the_kernels_that_are_there);
    RUN(a_vision_tower_with_heads_of_72_takes_the_kernels_that_are_there);
    RUN(a_text_encoder_that_pools_takes_the_kernels_that_are_there);
    RUN(the_layers_of_the_autoencoders_have_fast_kernels);
    RUN(attention_takes_the_kernel_of_its_heads);
    RUN(attention_in_e4m3_takes_the_tiles_whose_rounds_are_full);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
