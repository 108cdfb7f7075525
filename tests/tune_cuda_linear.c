// Measures every kernel, tile and split that can take each product of Z-Image and Qwen3-4B, and says where
// choose_linear.c does not take the fastest. Not a test: a table to set its constants by. Needs a GPU to itself.
//
//     tune_cuda_linear [--all] [--fp8] [M N K]     --all: every shape's whole list; --fp8: fp8 weights alone; M N K: shapes with these numbers alone (0: any)
//     tune_cuda_linear --stored TYPE [M N K]       weights as a file of that type has them (q4_k, e4m3 ...) against bfloat16: the kernel that is chosen, and unpacking first
//
// A configuration is a plan of many equal products, each with weights of its own, so that the L2 cache holds none of
// them; one graph, timed whole. It goes through the runner, and so do all its costs. Per shape: one run to warm up,
// then those within 1.6 of the best are run seven times, in turns; medians, in us per product. What is chosen stands
// first.
#include "at_once.h"
#include "base/memory.h"
#include "base/platform.h"
#include "cuda/cuda.h"
#include "cuda/linear.h"
#include "cuda/state.h"
#include "device/stored.h"
#include "plan_runner.h"
#include <math.h>
#include <stdio.h>
#include <strings.h>

enum { MAX_COPIES = 24, MAX_CHOICES = 256, ROUNDS = 7 };
#define L2_BYTES 200e6 // of all copies together
#define RUN_US 1500.0  // of one run, about

typedef enum kind { PLAIN, BIAS, RESIDUAL, GATED } kind;
typedef struct group {
    const char* name;
    int n, k;
    kind kind;
    int m[20];
} group;

static const group s_groups[] = {
    {"blocks: qkv",
     11520,
     3840,
     PLAIN,
     {32, 128, 384, 544, 704, 928, 1056, 1152, 1280, 1728, 2080, 2304, 2432, 2848, 3744, 4096, 4224, 16896}},
    {"blocks: out",
     3840,
     3840,
     PLAIN,
     {32, 128, 384, 544, 704, 928, 1056, 1152, 1280, 1728, 2080, 2304, 2432, 2848, 3744, 4096, 4224, 16896}},
    {"blocks: gate and up",
     20480,
     3840,
     GATED,
     {32, 128, 384, 544, 704, 928, 1056, 1152, 1280, 1728, 2080, 2304, 2432, 2848, 3744, 4096, 4224, 16896}},
    {"blocks: down",
     3840,
     10240,
     PLAIN,
     {32, 128, 384, 544, 704, 928, 1056, 1152, 1280, 1728, 2080, 2304, 2432, 2848, 3744, 4096, 4224, 16896}},
    {"x embedder", 3840, 64, BIAS, {1024, 2304, 4096, 16384}},
    {"final layer", 64, 3840, BIAS, {1024, 2304, 4096, 16384}},
    {"caption embedder", 3840, 2560, BIAS, {32, 64, 128, 256, 512}},
    {"modulation", 15360, 256, BIAS, {8, 16, 32, 64, 100}},
    {"text: qkv", 6144, 2560, PLAIN, {8, 16, 32, 64, 128, 200, 256, 512, 1024}},
    {"text: out", 2560, 4096, RESIDUAL, {8, 16, 32, 64, 128, 200, 256, 512, 1024}},
    {"text: gate and up", 19456, 2560, GATED, {8, 16, 32, 64, 128, 200, 256, 512, 1024}},
    {"text: down", 2560, 9728, RESIDUAL, {8, 16, 32, 64, 128, 200, 256, 512, 1024}},
};
static const int s_fp8_rows[] = {1152, 2432, 4224}; // of the blocks

static sumi_heap s_heap;
static sumi_runner* s_runner;
static sumi_cuda* s_cuda; // the same, from within
static unsigned char* s_numbers;
static bool s_prints_all;
static sumi_dtype s_stored; // NONE: not asked
static double s_gpu_us;
#define NUMBERS_BYTES ((size_t)20480 * 3840 * 2 + 4096)

typedef struct config {
    sumi_cuda_linear_choice choice;
    sumi_plan plan;
    bool is_ready;
    double us[ROUNDS], best;
} config;
static config s_configs[MAX_CHOICES];
static sumi_weight s_weights[MAX_COPIES], s_biases[MAX_COPIES], s_stored_weights[MAX_COPIES];

static void fill_numbers(void)
{
    uint64_t x = 88172645463325252u;
    s_numbers = malloc(NUMBERS_BYTES);
    // about normal, spread 1/64: real bit patterns, for they cost real power
    for (size_t i = 0; i < NUMBERS_BYTES / 2; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        const int32_t sum = (int32_t)(x & 0xFFFF) + (int32_t)(x >> 16 & 0xFFFF) + (int32_t)(x >> 32 & 0xFFFF)
                          + (int32_t)(x >> 48) - 2 * 65535;
        const uint16_t half = sumi_float_to_bf16((float)sum * (1.7320508f / 65536.0f / 64.0f));
        memcpy(s_numbers + 2 * i, &half, 2);
    }
}

static void describe(const sumi_cuda_linear_choice* c, char* text, size_t size)
{
    switch (c->method) {
    case SUMI_CUDA_METHOD_ANY: snprintf(text, size, "any"); break;
    case SUMI_CUDA_METHOD_GEMV: snprintf(text, size, "gemv/%d", (int)c->split); break;
    case SUMI_CUDA_METHOD_WGMMA:
        snprintf(text, size, "%s", strrchr(sumi_cuda_wgmma_kernels[c->kernel].name, '_') + 1);
        break;
    case SUMI_CUDA_METHOD_SPLIT:
        snprintf(text, size, "%s/%d", strstr(sumi_cuda_split_kernels[c->kernel].any, "split"), (int)c->split);
        break;
    case SUMI_CUDA_METHOD_PORTABLE:
        snprintf(text, size, "p%s/%d", strrchr(sumi_cuda_portable_kernels[c->kernel].swiglu, '_') + 1, (int)c->split);
        break;
    }
}

static const sumi_weight_format s_formats[] = {SUMI_WEIGHTS_AUTO, SUMI_WEIGHTS_FP8, SUMI_WEIGHTS_INT8};
static const char* const s_names[] = {"", " fp8", " int8"};

static sumi_result build(config* c, const group* g, int m, sumi_weight_format format, int ops, sumi_error* error)
{
    sumi_plan* plan = &c->plan;
    const sumi_weight* weights = format == SUMI_WEIGHTS_AS_STORED ? s_stored_weights : s_weights;
    sumi_runner_begin_plan(s_runner, plan, &s_heap);
    plan->weight_options.weights = format;
    sumi_plan_section(plan, SUMI_SECTION_DENOISE, 1, 0);
    sumi_value x = sumi_plan_bound(plan, "x", SUMI_ELEMENT_ACTIVATION, m, g->k), y = SUMI_NO_VALUE;
    if (g->kind == RESIDUAL) y = sumi_plan_bound(plan, "y", SUMI_ELEMENT_ACTIVATION, m, g->n);
    for (int i = 0; i < ops; i++) {
        if (g->kind == GATED) (void)sumi_plan_linear_gated(plan, "product", x, &weights[i], SUMI_ACT_SILU);
        else if (g->kind == RESIDUAL)
            (void)sumi_plan_linear(
                plan, &(sumi_plan_linear_args){.label = "product", .x = x, .weight = &weights[i], .residual = y});
        else
            (void)sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "product",
                                                                  .x = x,
                                                                  .weight = &weights[i],
                                                                  .bias = g->kind == BIAS ? &s_biases[i] : NULL});
    }
    sumi_rates rates = s_runner->functions->rates(s_runner);
    sumi_result result = sumi_plan_finish(plan, error);
    if (result == SUMI_OK) result = plan_slice(plan, &rates, 0, error);
    if (result != SUMI_OK) return result;
    plan->slices[0] = (sumi_slice){.op_end = (int32_t)plan->op_count, .predicted_us = 1.0f};
    plan->slice_count = 1;
    plan->sections[0].slice_begin = 0;
    plan->sections[0].slice_end = 1;
    return SUMI_OK;
}

// Weights first, then room for all, then graphs: more room drops the graphs that there are.
static void make_ready(config* list, int count, const group* g, int m, sumi_cuda_operands operands, int ops)
{
    sumi_error error = {0};
    for (int i = 0; i < count; i++) {
        s_cuda->device.forced_linear = &list[i].choice;
        list[i].is_ready = build(&list[i], g, m, s_formats[operands], ops, &error) == SUMI_OK
                        && plan_prepare(s_runner, &list[i].plan, &error) == SUMI_OK
                        && s_runner->functions->reserve(s_runner, &list[i].plan, &error) == SUMI_OK;
        if (!list[i].is_ready) printf("  %s\n", error.text), error = (sumi_error){0};
    }
    for (int i = 0; i < count; i++) {
        s_cuda->device.forced_linear = &list[i].choice;
        if (list[i].is_ready)
            list[i].is_ready = s_runner->functions->reserve(s_runner, &list[i].plan, &error) == SUMI_OK
                            && plan_prepare(s_runner, &list[i].plan, &error) == SUMI_OK;
        if (error.result != SUMI_OK) printf("  %s\n", error.text), error = (sumi_error){0};
    }
    s_cuda->device.forced_linear = NULL;
}

static double run_once(config* c, int ops)
{
    sumi_error error = {0};
    double us = 0.0;
    s_cuda->device.forced_linear = &c->choice; // in case the driver makes no graphs
    s_runner->functions->start(s_runner, &c->plan);
    sumi_result result = plan_run_all(s_runner, &c->plan, &us, &error);
    s_cuda->device.forced_linear = NULL;
    if (result != SUMI_OK) printf("  %s\n", error.text), exit(1);
    s_gpu_us += us;
    return us / ops;
}

static int by_value(const void* a, const void* b)
{
    return *(const double*)a < *(const double*)b ? -1 : *(const double*)a > *(const double*)b;
}
static int by_best(const void* a, const void* b)
{
    return by_value(&((*(config* const*)a)->best), &((*(config* const*)b)->best));
}

static bool is_same(const sumi_cuda_linear_choice* a, const sumi_cuda_linear_choice* b)
{
    return a->method == b->method && a->kernel == b->kernel && a->split == b->split;
}

static void tune(const group* g, int m, sumi_cuda_operands operands, int copies)
{
    static const sumi_cuda_epilogue s_epilogues[] = {SUMI_CUDA_EPILOGUE_plain, SUMI_CUDA_EPILOGUE_bias,
                                                     SUMI_CUDA_EPILOGUE_resid, SUMI_CUDA_EPILOGUE_swiglu};
    const sumi_cuda_shape shape = {m, g->n, g->k, operands, true, s_epilogues[g->kind]};
    const double flops = 2.0 * m * g->n * g->k, outputs = (double)m * g->n / (g->kind == GATED ? 2 : 1);
    const double bytes = (double)g->n * g->k * (operands == SUMI_CUDA_BF16 ? 2 : 1) + (double)m * g->k * 2
                       + outputs * (g->kind == RESIDUAL ? 4 : 2);
    const double floor_us = fmax(bytes / 4.2e6, flops / (operands == SUMI_CUDA_BF16 ? 800e6 : 1500e6));
    int ops = (int)(RUN_US / floor_us);
    ops = ops < 2 ? 2 : ops > copies ? copies : ops;

    sumi_cuda_linear_choice list[MAX_CHOICES];
    const sumi_cuda_linear_choice chosen = sumi_cuda_choose_linear(&s_cuda->device, true, &shape);
    const int listed = sumi_cuda_list_linear(&s_cuda->device, true, &shape, list, MAX_CHOICES);
    int count = 0;
    // without what is hopeless: small tiles of large products, k-blocks of 64 bytes where 128 are better, every second
    // of many splits
    for (int i = 0; i < listed; i++) {
        const bool is_portable = list[i].method == SUMI_CUDA_METHOD_PORTABLE;
        const bool is_narrow =
            is_portable && operands == SUMI_CUDA_BF16 && sumi_cuda_portable_kernels[list[i].kernel].k_bytes == 64;
        const bool is_between = is_portable && list[i].split > 4 && list[i].split % 4 != 0 && list[i].split != 6;
        const bool is_small = is_portable && sumi_cuda_portable_kernels[list[i].kernel].rows <= 64 && m > 1024
                           && g->n > 128 && g->k > 128;
        const bool is_split_late = list[i].split > 1 && m > 1536 && g->n > 256;
        if (is_same(&list[i], &chosen) || !(is_narrow || is_between || is_small || is_split_late))
            memset(&s_configs[count], 0, sizeof *s_configs), s_configs[count++].choice = list[i];
    }
    make_ready(s_configs, count, g, m, operands, ops);

    config *live[MAX_CHOICES], *its = NULL;
    int live_count = 0;
    double least = 1e30;
    bool has_input = false;
    for (int i = 0; i < count; i++) {
        config* c = &s_configs[i];
        if (!c->is_ready) continue;
        if (!has_input) { // every plan has x at the same place
            has_input = true;
            s_runner->functions->start(s_runner, &c->plan);
            const uint64_t all = sumi_plan_info(&c->plan, (sumi_value){1})->bytes;
            for (uint64_t at = 0; at < all; at += NUMBERS_BYTES / 2) // x spreads 1/64 as well
                s_runner->functions->write(s_runner, &c->plan, (sumi_value){1}, at, s_numbers + 4096,
                                           all - at < NUMBERS_BYTES / 2 ? all - at : NUMBERS_BYTES / 2);
        }
        c->best = run_once(c, ops);
        const double again = run_once(c, ops);
        c->best = again < c->best ? again : c->best;
        least = c->best < least ? c->best : least;
        live[live_count++] = c;
        if (is_same(&c->choice, &chosen)) its = c;
    }
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < live_count; i++)
            if (live[i]->best <= 1.6 * least || live[i] == its) live[i]->us[r] = run_once(live[i], ops);
    for (int i = 0; i < live_count; i++) {
        if (live[i]->us[0] == 0.0) continue;
        qsort(live[i]->us, ROUNDS, sizeof *live[i]->us, by_value);
        live[i]->best = live[i]->us[ROUNDS / 2];
    }
    qsort(live, (size_t)live_count, sizeof *live, by_best);
    char first[64] = "(not listed)", text[64];
    if (its != NULL) describe(&its->choice, first, sizeof first);
    if (live_count > 0) {
        describe(&live[0]->choice, text, sizeof text);
        const double us = its != NULL ? its->best : 0.0, ratio = us / live[0]->best;
        printf("%5d %5d %5d %s%s %-15s %8.1f us | best %-15s %8.1f us | %5.2f%s | floor %6.1f, %4.0f GB/s %4.0f TF/s |",
               m, g->n, g->k, g->name, s_names[operands], first, us, text, live[0]->best, ratio,
               ratio > 1.05 ? " <--" : "", floor_us, bytes / live[0]->best / 1e3, flops / live[0]->best / 1e6);
        for (int i = 1; i < live_count && (s_prints_all || i < 10); i++) {
            describe(&live[i]->choice, text, sizeof text);
            printf(" %s %.1f", text, live[i]->best);
        }
        printf("\n");
        fflush(stdout);
    }
    for (int i = 0; i < count; i++) {
        plan_release(s_runner, &s_configs[i].plan);
        sumi_plan_end(&s_configs[i].plan);
    }
}

// The same product of bfloat16, of the type by what is chosen, and by unpacking first.
static void compare_stored(const group* g, int m, int copies)
{
    static const sumi_weight_format s_ways[3] = {SUMI_WEIGHTS_AUTO, SUMI_WEIGHTS_AS_STORED, SUMI_WEIGHTS_AS_STORED};
    static const char* const s_way_names[3] = {"bf16", "stored", "unpacked"};
    const sumi_cuda_epilogue epilogue = g->kind == GATED ? SUMI_CUDA_EPILOGUE_swiglu : SUMI_CUDA_EPILOGUE_plain;
    const sumi_cuda_shape shape = {m, g->n, g->k, SUMI_CUDA_BF16, true, epilogue};
    const sumi_cuda_linear_choice own = sumi_cuda_choose_linear(&s_cuda->device, true, &shape);
    sumi_error error = {0};
    double us[3][ROUNDS];
    printf("%5d %5d %5d %-22s", m, g->n, g->k, g->name);
    for (int i = 0; i < 3; i++) {
        // What is forced is unpacked for.
        s_cuda->device.forced_linear = i == 2 ? &own : NULL;
        config* c = &s_configs[i];
        memset(c, 0, sizeof *c);
        c->choice = own;
        sumi_result result = build(c, g, m, s_ways[i], copies, &error);
        for (int pass = 0; pass < 2 && result == SUMI_OK; pass++) {
            result = s_runner->functions->reserve(s_runner, &c->plan, &error);
            if (result == SUMI_OK) result = plan_prepare(s_runner, &c->plan, &error);
        }
        for (int r = -1; r < ROUNDS && result == SUMI_OK; r++) {
            double time = 0.0;
            s_runner->functions->start(s_runner, &c->plan);
            result = plan_run_all(s_runner, &c->plan, &time, &error);
            s_gpu_us += time;
            if (r >= 0) us[i][r] = time / copies;
        }
        if (result != SUMI_OK) printf(" %s\n", error.text), exit(1);
        qsort(us[i], ROUNDS, sizeof us[i][0], by_value);
        printf(" | %-8s %8.1f us %4.2f", s_way_names[i], us[i][ROUNDS / 2], us[i][ROUNDS / 2] / us[0][ROUNDS / 2]);
        plan_release(s_runner, &c->plan);
        sumi_plan_end(&c->plan);
    }
    s_cuda->device.forced_linear = NULL;
    printf("\n");
    fflush(stdout);
}

static void make_weights(const group* g, int copies)
{
    for (int i = 0; i < copies; i++) {
        s_weights[i] = (sumi_weight){.name = "weight", .rows = g->n, .cols = g->k, .tensor_count = 1, .index = i};
        s_weights[i].tensors[0] =
            (sumi_stacked_tensor){.data = s_numbers, .dtype = SUMI_DTYPE_BF16, .rows = g->n, .scale = 1.0f};
        s_stored_weights[i] = s_weights[i];
        s_stored_weights[i].index = 2 * copies + i;
        s_stored_weights[i].tensors[0].dtype = s_stored;
        s_biases[i] = (sumi_weight){.name = "bias", .rows = 1, .cols = g->n, .tensor_count = 1, .index = copies + i};
        s_biases[i].tensors[0] =
            (sumi_stacked_tensor){.data = s_numbers, .dtype = SUMI_DTYPE_BF16, .rows = 1, .scale = 1.0f};
    }
}
static void release_weights(int copies)
{
    const sumi_weight* all[3 * MAX_COPIES];
    for (int i = 0; i < copies; i++)
        all[3 * i] = &s_weights[i], all[3 * i + 1] = &s_biases[i], all[3 * i + 2] = &s_stored_weights[i];
    runner_release_weights(s_runner, all, 3 * (size_t)copies);
}

int main(int argc, char** argv)
{
    int only[3] = {0}, only_count = 0;
    int first_pass = SUMI_CUDA_BF16;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0) s_prints_all = true;
        else if (strcmp(argv[i], "--fp8") == 0) first_pass = SUMI_CUDA_E4M3;
        else if (strcmp(argv[i], "--int8") == 0) first_pass = SUMI_CUDA_INT8;
        else if (strcmp(argv[i], "--stored") == 0 && i + 1 < argc) {
            for (int t = 0; t < SUMI_DTYPE_COUNT; t++) {
                const bool is_e4m3 = t == SUMI_DTYPE_F8_E4M3 && strcmp(argv[i + 1], "e4m3") == 0;
                if (strcasecmp(sumi_dtype_get((sumi_dtype)t)->name, argv[i + 1]) == 0 || is_e4m3)
                    s_stored = (sumi_dtype)t;
            }
            if (sumi_device_stored_type(s_stored) < 0) return fprintf(stderr, "no type is %s\n", argv[i + 1]), 2;
            i++;
        } else if (only_count < 3 && argv[i][0] >= '0' && argv[i][0] <= '9') only[only_count++] = atoi(argv[i]);
        else return fprintf(stderr, "usage: tune_cuda_linear [--all] [--fp8 | --int8] [--stored TYPE] [M N K]\n"), 2;
    }
    sumi_error error = {0};
    sumi_workers* workers = NULL;
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CUDA;
    sumi_heap_init(&s_heap, NULL);
    if (sumi_workers_create(&s_heap, NULL, 0, &error, &workers) != SUMI_OK
        || sumi_cuda_create(&s_heap, workers, &desc, NULL, &error, &s_runner) != SUMI_OK
        || runner_load(s_runner, &error) != SUMI_OK) {
        printf("%s\n", error.text);
        return 1;
    }
    s_cuda = (sumi_cuda*)s_runner;
    printf("%s\n    m     n     k what: chosen | best | chosen / best | floor (4.2 TB/s, 800 or 1500 TFLOP/s), of "
           "the best | others\n",
           s_runner->functions->device(s_runner));
    fill_numbers();
    const uint64_t began = sumi_clock_ns();
    int tuned = 0;
    for (int pass = first_pass; pass < (s_stored != SUMI_DTYPE_NONE ? 1 : 3); pass++) {
        for (size_t i = 0; i < sizeof s_groups / sizeof *s_groups; i++) {
            const group* g = &s_groups[i];
            const int* rows = pass == 0 ? g->m : s_fp8_rows;
            const int row_count = pass == 0 ? 20 : 3;
            if ((pass > 0 && i >= 4) || (only[1] != 0 && only[1] != g->n) || (only[2] != 0 && only[2] != g->k))
                continue;
            const double bytes = (double)g->n * g->k * (pass == 0 ? 2 : 1);
            const int wanted = (int)(L2_BYTES / bytes) + 2, copies = wanted > MAX_COPIES ? MAX_COPIES : wanted;
            make_weights(g, copies);
            for (int r = 0; r < row_count && rows[r] != 0; r++)
                if (only[0] == 0 || only[0] == rows[r]) {
                    if (s_stored != SUMI_DTYPE_NONE) compare_stored(g, rows[r], copies);
                    else tune(g, rows[r], (sumi_cuda_operands)pass, copies);
                    tuned++;
                }
            release_weights(copies);
        }
    }
    printf("%.1f s on the device, %.1f s in all\n", s_gpu_us / 1e6, (double)(sumi_clock_ns() - began) / 1e9);
    s_runner->functions->destroy(s_runner);
    sumi_workers_destroy(workers);
    free(s_numbers);
    if (tuned == 0) printf("no shape of its list has these numbers\n");
    return tuned > 0 ? 0 : 1;
}
