// Cards that are not there: every family's plans, at widths for which there are fast kernels, run on the fake driver
// (fake_cuda) as on GPUs of other compute capabilities. The driver refuses images that are for another card, more shared
// memory than a block of the card has, and launches that a kernel was not compiled for. So a run that ends well has
// chosen kernels that fit. The products of plans at the released sizes, too large to run here, are only chosen. What
// kernels compute is shown on a GPU by programs that run as such a card (tests/pretend_cuda).
#include "at_once.h"
#include "test.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/cuda.h"
#include "cuda/linear.h"
#include "cuda/state.h"
#include "fake_cuda.h"
#include "families.h"
#include "models/network_state.h"
#include "models/pipeline.h"
#include "plan_runner.h"
#include "synthetic.h"

typedef struct card {
    int capability, multiprocessors;
} card;
static const card s_cards[] = {{80, 108}, {86, 28}, {89, 128}, {90, 132}, {100, 148}, {120, 170}};
enum { CARD_COUNT = sizeof s_cards / sizeof *s_cards };

typedef struct bench {
    sumi_heap heap;
    sumi_workers* workers;
    sumi_runner* runner;
} bench;

static bool open_bench(bench* b, const card* as)
{
    sumi_error error = {0};
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CUDA;
    memset(b, 0, sizeof *b);
    fake_reset();
    fake_devices(1, as->capability);
    fake_multiprocessors(as->multiprocessors);
    fake_device_bytes((uint64_t)4 << 30);
    sumi_heap_init(&b->heap, NULL);
    sumi_result result = sumi_workers_create(&b->heap, NULL, 1, &error, &b->workers);
    if (result == SUMI_OK) result = sumi_cuda_create(&b->heap, b->workers, &desc, NULL, &error, &b->runner);
    if (result == SUMI_OK) result = runner_load(b->runner, &error);
    CHECK_TEXT(error.text, "");
    return result == SUMI_OK;
}

static void close_bench(bench* b)
{
    if (b->runner != NULL) b->runner->functions->destroy(b->runner);
    sumi_workers_destroy(b->workers);
    CHECK_NUMBER(atomic_load(&b->heap.allocated_bytes), 0);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
}

// ---- Plans ----------------------------------------------------------------------------------------------------------

typedef struct format {
    const char* name;
    sumi_weight_format weights;
    sumi_attention_format attention;
    int lowest; // capability
} format;
static const format s_formats[] = {{"bf16", SUMI_WEIGHTS_AUTO, SUMI_ATTENTION_AUTO, 80},
                                   {"int8", SUMI_WEIGHTS_INT8, SUMI_ATTENTION_AUTO, 80},
                                   {"int4", SUMI_WEIGHTS_INT4, SUMI_ATTENTION_AUTO, 80},
                                   {"8-bit attention", SUMI_WEIGHTS_INT8, SUMI_ATTENTION_8BIT, 80},
                                   {"fp8", SUMI_WEIGHTS_FP8, SUMI_ATTENTION_8BIT, 89}};
enum { FORMAT_COUNT = sizeof s_formats / sizeof *s_formats };

// Every network, and an edit, which reads a reference.
static const family_row* next_row(const family_row* row)
{
    row = row == NULL ? s_families : row + 1;
    while (row < s_families + FAMILY_COUNT && row->released == NULL) row++;
    return row < s_families + FAMILY_COUNT ? row : NULL;
}

static const struct {
    int32_t width, height;
} s_sizes[] = {{256, 256}, {416, 416}, {512, 768}, {768, 640}, {1024, 1024}};
enum { SIZE_COUNT = sizeof s_sizes / sizeof *s_sizes };

static sumi_network* open_network(bench* b, const sumi_files* files, const sumi_network_desc* desc)
{
    sumi_error error = {0};
    sumi_network* network = NULL;
    sumi_result result = sumi_network_open_begin(&b->heap, files, desc, &error, &network);
    float progress;
    for (bool done = false; result == SUMI_OK && !done;)
        result = sumi_network_open_step(network, 1000, &done, &progress, &error);
    CHECK_TEXT(error.text, "");
    return network;
}

// An edit reads a reference, and so does a model that can: more of it runs.
static int32_t reference_count(const family_row* row) { return row->prompts_read_references ? 1 : 0; }

// Writes the plan of a guided step, from the texts to the picture.
static sumi_result write_plan(bench* b, const sumi_network* network, const family_row* row, int size, const format* as,
                              sumi_plan* plan, sumi_error* error)
{
    const int32_t count = reference_count(row),
                  cell = count > 0 ? network->recipe->vision->properties(network->vision).cell : 1, cells = 392 / cell,
                  tokens = 120 + cells * cells * count;
    const sumi_pipeline_reference reference = {cells * cell, cells * cell, 384, 384};
    const sumi_pipeline_prompt prompts[] = {{.token_count = {tokens, 77}, .reference_row = {70}},
                                            {.token_count = {tokens - 20, 9}, .reference_row = {70}}};
    const sumi_pipeline_item item = {0, 1};
    const bool guided = true;
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                           .prompts = prompts,
                                           .prompt_count = 2,
                                           .items = &item,
                                           .item_count = 1,
                                           .guided = &guided,
                                           .references = &reference,
                                           .reference_count = count,
                                           .width = s_sizes[size].width,
                                           .height = s_sizes[size].height,
                                           .evaluation_count = 1};
    sumi_pipeline pipeline;
    sumi_runner_begin_plan(b->runner, plan, &b->heap);
    plan->weight_options.weights = as->weights;
    plan->weight_options.attention = as->attention;
    return sumi_pipeline_write(network, &request, plan, &pipeline, error);
}

// Returns how many kernels ran.
static int draw(bench* b, const sumi_network* network, const family_row* row, int size, const format* as, char* text)
{
    sumi_plan plan;
    sumi_error error = {0};
    const sumi_rates rates = b->runner->functions->rates(b->runner);
    fake_count_launches(true);
    sumi_result result = write_plan(b, network, row, size, as, &plan, &error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, sumi_engine_defaults().max_slice_us, &error);
    if (result == SUMI_OK) result = plan_ready(b->runner, &plan, &error);
    if (result == SUMI_OK) {
        b->runner->functions->start(b->runner, &plan);
        result = plan_run_all(b->runner, &plan, NULL, &error);
    }
    snprintf(text, SUMI_ERROR_TEXT_BYTES, "%s", error.text);
    plan_release(b->runner, &plan);
    sumi_plan_end(&plan);
    return fake_launch_count();
}

static void draw_all(const family_row* row, const card* as, const format* in)
{
    bench b;
    const family_files* files = &row->wide;
    const sumi_network_desc desc = {.path = files->path,
                                    .transformer_path = files->transformer_path,
                                    .text_encoder_path = files->text_encoder_path,
                                    .vae_path = files->vae_path,
                                    .tokenizer_path = files->tokenizer_path,
                                    .processor_path = files->processor_path};
    if (as->capability < in->lowest) return;
    if (open_bench(&b, as)) {
        sumi_network* network = open_network(&b, NULL, &desc);
        for (int size = 0; network != NULL && size < SIZE_COUNT; size++) {
            char text[SUMI_ERROR_TEXT_BYTES];
            const int launches = draw(&b, network, row, size, in, text);
            if (text[0] != 0 || launches < 50)
                printf("  %s, %d x %d, %s, as %d.%d: %d kernels\n", row->name, (int)s_sizes[size].width,
                       (int)s_sizes[size].height, in->name, as->capability / 10, as->capability % 10, launches);
            CHECK_TEXT(text, "");
            CHECK(launches >= 50);
        }
        if (network != NULL) runner_release_weights(b.runner, network->weights.weights, network->weights.count);
        sumi_network_close(network);
    }
    close_bench(&b);
}

TEST(every_family_runs_as_every_card)
{
    for (const family_row* row = next_row(NULL); row != NULL; row = next_row(row)) {
        for (int c = 0; c < CARD_COUNT; c++)
            for (int i = 0; i < FORMAT_COUNT; i++) draw_all(row, &s_cards[c], &s_formats[i]);
    }
}

// ---- Products at the released sizes ---------------------------------------------------------------------------------

static uint32_t shared_of(const sumi_cuda_linear_choice* c)
{
    return c->method == SUMI_CUDA_METHOD_WGMMA    ? sumi_cuda_wgmma_kernels[c->kernel].shared
         : c->method == SUMI_CUDA_METHOD_SPLIT    ? sumi_cuda_split_kernels[c->kernel].shared
         : c->method == SUMI_CUDA_METHOD_PORTABLE ? sumi_cuda_portable_kernels[c->kernel].shared
                                                  : 0;
}

// Every epilogue, for which one an op has is the launch's business. Returns how many products were chosen.
static int choose(const bench* b, const sumi_op* op, const sumi_plan* plan)
{
    const sumi_cuda_device* device = &((const sumi_cuda*)b->runner)->device;
    const bool is_hopper = sumi_cuda_has_hopper(device, true);
    int count = 0;
    for (int o = SUMI_CUDA_BF16; o <= SUMI_CUDA_INT8; o++)
        for (int e = SUMI_CUDA_EPILOGUE_plain; e <= SUMI_CUDA_EPILOGUE_any; e++) {
            if (o == SUMI_CUDA_E4M3 && device->capability < 89) continue;
            const sumi_cuda_shape shape = {sumi_plan_info(plan, op->in[0])->rows,
                                           op->weight->rows,
                                           op->weight->cols,
                                           (sumi_cuda_operands)o,
                                           op->weight->cols % 16 == 0,
                                           (sumi_cuda_epilogue)e};
            const sumi_cuda_linear_choice c = sumi_cuda_choose_linear(device, is_hopper, &shape);
            const bool fits = shared_of(&c) <= (uint32_t)device->shared_per_block;
            const bool is_hoppers = c.method == SUMI_CUDA_METHOD_WGMMA || c.method == SUMI_CUDA_METHOD_SPLIT;
            if (!fits || (is_hoppers && !is_hopper))
                printf("  %d x %d x %d, operands %d, epilogue %d: method %d, kernel %d\n", (int)shape.m, (int)shape.n,
                       (int)shape.k, o, e, (int)c.method, (int)c.kernel);
            CHECK(fits && (is_hopper || !is_hoppers));
            count++;
        }
    return count;
}

static int choose_all(bench* b, const family_row* row, const sumi_files* files)
{
    sumi_network* network = open_network(b, files, &(sumi_network_desc){.path = SYNTHETIC_PATH});
    int count = 0;
    for (int size = 0; network != NULL && size < SIZE_COUNT; size++) {
        sumi_plan plan;
        sumi_error error = {0};
        CHECK(write_plan(b, network, row, size, &s_formats[0], &plan, &error) == SUMI_OK);
        CHECK_TEXT(error.text, "");
        for (size_t i = 0; i < plan.op_count; i++)
            if (plan.ops[i].kind == SUMI_OP_LINEAR) count += choose(b, &plan.ops[i], &plan);
        sumi_plan_end(&plan);
    }
    sumi_network_close(network);
    return count;
}

TEST(products_of_released_models_fit_every_card)
{
    for (const family_row* row = next_row(NULL); row != NULL; row = next_row(row)) {
        synthetic_config config = *synthetic_find(row->released);
        config.references = reference_count(row);
        synthetic_files* files = synthetic_open(&config);
        CHECK(files != NULL);
        for (int c = 0; files != NULL && c < CARD_COUNT; c++) {
            bench b;
            const sumi_files services = synthetic_services(files);
            if (open_bench(&b, &s_cards[c])) CHECK(choose_all(&b, row, &services) > 5000);
            close_bench(&b);
        }
        synthetic_close(files);
    }
}

// ---- Layers that the golden networks do not have --------------------------------------------------------------------

// Attention with wide heads, and the convolution to four channels at the end of an autoencoder.
static void run_layers(bench* b, const sumi_weight* weight)
{
    static const int32_t s_dims[] = {72, 576, 640, 768, 1152, 1300};
    enum { ROWS = 200, SIDE = 40, DIMS = sizeof s_dims / sizeof *s_dims };
    sumi_plan plan;
    sumi_error error = {0};
    const sumi_rates rates = b->runner->functions->rates(b->runner);
    sumi_runner_begin_plan(b->runner, &plan, &b->heap);
    sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
    sumi_value heads[DIMS];
    for (int i = 0; i < DIMS; i++)
        heads[i] = sumi_plan_bound(&plan, "heads", SUMI_ELEMENT_ACTIVATION, ROWS, 3 * s_dims[i]);
    const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, SIDE * SIDE, weight->cols / 9);
    for (int i = 0; i < DIMS; i++) {
        const sumi_sequence all = {.span = {{0, ROWS}}, .span_count = 1, .query_spans = 1};
        for (int causal = 0; causal < 2; causal++) {
            sumi_plan_attention(&plan, "attention", heads[i],
                                &(sumi_attention){.q_heads = 1,
                                                  .kv_heads = 1,
                                                  .dim = s_dims[i],
                                                  .scale = 0.05f,
                                                  .causal = causal == 1,
                                                  .sequences = &all,
                                                  .sequence_count = 1});
        }
    }
    sumi_plan_conv(&plan, &(sumi_plan_conv_args){
                              .label = "conv", .x = x, .weight = weight, .shape = {.height = SIDE, .width = SIDE}});
    sumi_result result = sumi_plan_finish(&plan, &error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, sumi_engine_defaults().max_slice_us, &error);
    if (result == SUMI_OK) result = plan_ready(b->runner, &plan, &error);
    if (result == SUMI_OK) {
        b->runner->functions->start(b->runner, &plan);
        result = plan_run_all(b->runner, &plan, NULL, &error);
    }
    CHECK_TEXT(error.text, "");
    CHECK(result == SUMI_OK);
    plan_release(b->runner, &plan);
    sumi_plan_end(&plan);
}

TEST(wide_heads_run_as_every_card)
{
    enum { IN = 144, OUT = 4 };
    static const float s_zeros[OUT * 9 * IN];
    const sumi_weight weight = {.name = "conv",
                                .rows = OUT,
                                .cols = 9 * IN,
                                .tensor_count = 1,
                                .tensors = {{.data = s_zeros, .dtype = SUMI_DTYPE_F32, .rows = OUT, .scale = 1.0f}}};
    for (int c = 0; c < CARD_COUNT; c++) {
        bench b;
        if (open_bench(&b, &s_cards[c])) {
            run_layers(&b, &weight);
            const sumi_weight* const weights[] = {&weight};
            runner_release_weights(b.runner, weights, 1);
        }
        close_bench(&b);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(every_family_runs_as_every_card);
    RUN(products_of_released_models_fit_every_card);
    RUN(wide_heads_run_as_every_card);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
