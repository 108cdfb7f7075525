// What sumi info --size prints (samples/apps/sumi/needs.c) against what an engine on the fake driver says of the same
// job: the bytes are equal, for every family, in every format of weights, with and without a memory limit. And what the
// samples do with it: the format that they ask for under a budget (samples/shared/budget_weights.h).
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "at_once.h"
#include "budget_weights.h"
#include "cuda_fixture.h"
#include "fake_cuda.h"
#include "families.h"
#include "models/network_state.h"
#include "synthetic.h"
#include "synthetic_blocks.h"

#include "../samples/apps/sumi/needs.c"

static sumi_model* open_model(sumi_engine* engine, const char* path, sumi_weight_format weights)
{
    sumi_model_desc desc = sumi_model_defaults();
    sumi_model* model = NULL;
    sumi_job job;
    desc.path = path;
    desc.weights = weights;
    CHECK_NUMBER(sumi_submit_model(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_model(engine, job, &model), SUMI_OK);
    return model;
}

static void count_tokens(const sumi_network* network, const char* text, int32_t counts[SUMI_MAX_TEXT_ENCODERS])
{
    static int32_t s_ids[4096];
    sumi_error error = {0};
    for (int32_t e = 0; e < network->info.text_encoder_count; e++) {
        const sumi_prompt_text prompt = {.text = text, .bytes = strlen(text)};
        CHECK_NUMBER(read_prompt(network, e, &prompt, &(sumi_prompt_ids){s_ids, 4096, NULL}, &counts[e], &error),
                     SUMI_OK);
    }
}

typedef struct comparison {
    sumi_weight_format weights;
    int32_t side, reference_count;
    int32_t streamed, tiled; // limits in which weights were streamed, and in which the picture was decoded in tiles
    int32_t shortened;       // limits in which strips were shorter, and nothing was streamed or tiled
} comparison;

static void compare(sumi_engine* engine, sumi_model* model, comparison* c)
{
    static uint8_t s_pixels[256 * 256 * 3];
    const sumi_pixels picture = {s_pixels, c->side, c->side, 0, 3}, pictures[2] = {picture, picture};
    const int32_t side = c->side;
    sumi_heap heap;
    sumi_error error = {0};
    sumi_heap_init(&heap, NULL);
    needs_job job = needs_usual_job(model->network, side, side);
    sumi_image_item item = {.text = "a red fox", .negative_text = "grey"};
    sumi_image_desc desc = small_image(model, &item);
    desc.width = desc.height = side;
    desc.step_count = job.preset.step_count;
    CHECK(job.is_guided == (desc.guidance.scale != model->info.guidance_off));
    job.reference_count = desc.reference_count = c->reference_count;
    desc.references = c->reference_count > 0 ? pictures : NULL;
    count_tokens(model->network, item.text, job.token_count);
    count_tokens(model->network, item.negative_text, job.negative_token_count);
    uint64_t limits[6] = {0};
    needs_of_limit needs[6];
    sumi_memory memory;
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    for (int32_t i = 1; i < 6; i++) limits[i] = (memory.weights + memory.arena) / 12 * (uint64_t)(12 - 2 * i);
    limits[1] = memory.weights + memory.arena - 1;
    CHECK_NUMBER(needs_under_limits(&heap, model->network, &job, c->weights, limits, 6, needs, &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
    for (int32_t i = 0; i < 6; i++) {
        CHECK_NUMBER(sumi_engine_set_memory_budget(engine, limits[i]), SUMI_OK);
        const sumi_result result = sumi_image_memory(engine, &desc, &memory);
        CHECK(needs[i].fits == (result == SUMI_OK));
        if (result != SUMI_OK) continue;
        CHECK_NUMBER(needs[i].weight_bytes, memory.weights);
        CHECK_NUMBER(needs[i].other_bytes, memory.arena);
        CHECK_NUMBER(needs[i].streamed_bytes, memory.streamed);
        CHECK(needs[i].tiles_vae == memory.tiles_vae && needs[i].step_bytes <= needs[i].streamed_bytes);
        c->streamed += memory.streamed > 0;
        c->tiled += memory.tiles_vae;
        c->shortened += memory.streamed == 0 && !memory.tiles_vae && memory.arena < needs[0].other_bytes;
    }
    CHECK_NUMBER(atomic_load(&heap.allocated_bytes), 0);
}

TEST(needs_are_what_an_engine_says)
{
    comparison c = {.side = 0};
    fake_reset();
    fake_devices(1, 89);
    fake_multiprocessors(46);
    sumi_engine_desc desc = cuda_desc();
    sumi_engine* engine = NULL;
    CHECK_NUMBER(sumi_engine_create(&desc, &engine), SUMI_OK);
    if (engine == NULL) return;
    for (const family_row* row = next_network(NULL); row != NULL; row = next_network(row)) {
        for (int32_t f = 0; f < NEEDS_FORMATS; f++) {
            sumi_model* model = open_model(engine, row->wide.path, needs_formats[f]);
            if (model == NULL) continue;
            c.weights = needs_formats[f];
            c.side = f % 2 == 0 ? 64 : 256;
            // what references add where prompts do not show them; of those that do, the rows are only estimated
            const bool takes_any = model->info.max_references > 0 && !model->info.prompts_read_references;
            for (c.reference_count = 0; c.reference_count <= (takes_any ? 2 : 0); c.reference_count += 2)
                compare(engine, model, &c);
            // so large that autoencoders of these few channels work in strips
            c.side = 2048, c.reference_count = 0;
            if (f == 0) compare(engine, model, &c);
            CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
            sumi_model_close(model);
        }
    }
    printf("  %d limits with streamed weights, %d with tiles, %d with shorter strips alone\n", c.streamed, c.tiled,
           c.shortened);
    CHECK(c.streamed > 10 && c.tiled > 3 && c.shortened > 0);
    close_cuda(engine);
}

TEST(needs_of_cards_grow_less_with_the_card)
{
    fake_reset();
    sumi_engine_desc desc = cuda_desc();
    sumi_engine* engine = NULL;
    CHECK_NUMBER(sumi_engine_create(&desc, &engine), SUMI_OK);
    if (engine == NULL) return;
    sumi_model* model = open_model(engine, "tests/golden/z-image-wide/model", SUMI_WEIGHTS_BF16);
    sumi_heap heap;
    sumi_error error = {0};
    needs_row rows[NEEDS_FORMATS];
    sumi_heap_init(&heap, NULL);
    const needs_job job = needs_usual_job(model->network, 256, 256);
    CHECK(job.token_count[0] == NEEDS_TOKENS && !job.is_guided && job.preset.step_count == 8
          && job.reference_count == 0);
    CHECK_NUMBER(needs_compute(&heap, model->network, &job, rows, &error), SUMI_OK);
    for (int32_t f = 0; f < NEEDS_FORMATS; f++) {
        CHECK(rows[f].whole.fits && rows[f].weights == needs_formats[f]);
        for (int32_t c = 0; c < NEEDS_CARDS; c++) // a model of a few megabytes
            CHECK(rows[f].cards[c].fits && rows[f].cards[c].streamed_bytes == 0);
    }
    sumi_model* edits = open_model(engine, "tests/golden/flux2-klein-wide/model", SUMI_WEIGHTS_BF16);
    CHECK_NUMBER(needs_usual_job(edits->network, 256, 256).reference_count, 1);
    sumi_model_close(edits);
    CHECK(rows[1].whole.weight_bytes < rows[0].whole.weight_bytes);
    CHECK(rows[3].whole.weight_bytes < rows[2].whole.weight_bytes);
    close_cuda(engine);
}

// ---- What a program asks for under a budget -------------------------------------------------------------------------

TEST(budgets_below_the_transformer_in_bfloat16_mean_fewer_bits)
{
    enum { KLEIN = 3875544576 / 1000 }; // thousands of values of FLUX.2 [klein]: 7.75 GB in bfloat16
    static const struct {
        double budget_gb, bits; // of a value in the file
        sumi_weight_format weights;
        const char* says;
    } s_cases[] = {
        {0.0, 16.0, SUMI_WEIGHTS_AUTO, NULL},
        {8.0, 16.0, SUMI_WEIGHTS_AUTO, NULL},
        {7.752, 16.0, SUMI_WEIGHTS_AUTO, NULL},
        {7.75, 16.0, SUMI_WEIGHTS_INT8, "held in int8"},
        {6.0, 16.0, SUMI_WEIGHTS_INT8, "7.8 GB"},
        {6.0, 16.0, SUMI_WEIGHTS_INT8, "6.0 GB"},
        {6.0, 32.0, SUMI_WEIGHTS_INT8, "--weights bf16"},
        {2.0, 16.0, SUMI_WEIGHTS_INT8, "in int8"},
        {8.0, 4.5, SUMI_WEIGHTS_AUTO, NULL},
        {6.0, 4.5, SUMI_WEIGHTS_AS_STORED, "as their file has them"},
        {6.0, 8.5, SUMI_WEIGHTS_AS_STORED, "stay"},
        {6.0, 10.1, SUMI_WEIGHTS_INT8, "int8"},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        char text[BUDGET_WEIGHTS_TEXT_BYTES];
        const budget_weights_desc desc = {.budget_bytes = (uint64_t)(1e9 * s_cases[i].budget_gb),
                                          .values = 1000 * (uint64_t)KLEIN,
                                          .bytes = (uint64_t)(125.0 * s_cases[i].bits * KLEIN)};
        CHECK_NUMBER(budget_weights(&desc, text), s_cases[i].weights);
        if (s_cases[i].says == NULL) CHECK_TEXT(text, "");
        else CHECK(strstr(text, s_cases[i].says) != NULL);
    }
    char text[BUDGET_WEIGHTS_TEXT_BYTES];
    CHECK_NUMBER(budget_weights(&(budget_weights_desc){.budget_bytes = 1}, text), SUMI_WEIGHTS_AUTO); // not counted
}

// What sumi counts in files, and bench in the list of its tensors.
TEST(the_transformer_is_counted_in_files_and_in_lists)
{
    static const char* const s_configs[] = {"tiny", "qwen-image-tiny", "newbie-tiny", "klein-tiny"};
    uint64_t values, bytes;
    for (size_t i = 0; i < sizeof s_configs / sizeof *s_configs; i++) {
        synthetic_config config = *synthetic_find(s_configs[i]);
        uint64_t listed_values, listed_bytes;
        CHECK(config.dim > 0);
        synthetic_count_transformer(&config, &listed_values, &listed_bytes);
        CHECK(listed_values > 0 && listed_bytes == 2 * listed_values);
        config.stored = synthetic_type_find("q8_0");
        synthetic_count_transformer(&config, &values, &bytes);
        CHECK(values == listed_values && bytes < listed_bytes);
    }
    synthetic_count_transformer(synthetic_find("klein-9b-kv"), &values, &bytes);
    CHECK_NUMBER(values, 9078581248); // as many as the released one has
    needs_count_transformer(
        &(sumi_network_desc){.path = "tests/golden/flux2-klein/model", .without_text_encoder = true}, &values, &bytes);
    CHECK(values > 0 && bytes == 2 * values); // bfloat16
    needs_count_transformer(&(sumi_network_desc){.path = "tests/golden/no-model", .without_text_encoder = true},
                            &values, &bytes);
    CHECK(values == 0 && bytes == 0);
}

// The goal of `bench --synthetic klein --memory-budget 6000`: with the prompt encoded before, nothing is streamed.
TEST(klein_streams_nothing_under_a_budget_of_6_gb)
{
    const uint64_t limit = 6000000000u;
    synthetic_files* files = synthetic_open(&synthetic_klein);
    const sumi_files services = synthetic_services(files);
    const sumi_network_desc desc = {.path = SYNTHETIC_PATH, .without_text_encoder = true};
    sumi_heap heap;
    sumi_error error = {0};
    sumi_network* network = NULL;
    uint64_t values, bytes;
    char text[BUDGET_WEIGHTS_TEXT_BYTES];
    sumi_heap_init(&heap, NULL);
    CHECK_NUMBER(sumi_network_open_begin(&heap, &services, &desc, &error, &network), SUMI_OK);
    for (bool done = false; !done;) {
        float progress;
        if (sumi_network_open_step(network, UINT32_MAX, &done, &progress, &error) != SUMI_OK) break;
    }
    CHECK_TEXT(error.text, "");
    synthetic_count_transformer(&synthetic_klein, &values, &bytes);
    CHECK_NUMBER(values, network->info.denoiser_values);
    CHECK_NUMBER(bytes, network->info.denoiser_bytes);
    const sumi_weight_format weights =
        budget_weights(&(budget_weights_desc){.budget_bytes = limit, .values = values, .bytes = bytes}, text);
    needs_job job = needs_usual_job(network, 1024, 1024);
    job.reference_count = 0;
    needs_of_limit needs;
    CHECK_NUMBER(needs_under_limits(&heap, network, &job, SUMI_WEIGHTS_BF16, &limit, 1, &needs, &error), SUMI_OK);
    CHECK(needs.fits && needs.step_bytes > 2000000000u);
    CHECK_NUMBER(needs_under_limits(&heap, network, &job, weights, &limit, 1, &needs, &error), SUMI_OK);
    printf("  %.2f GB of weights, %.2f of other memory\n", 1e-9 * (double)needs.weight_bytes,
           1e-9 * (double)needs.other_bytes);
    CHECK(needs.fits && needs.streamed_bytes == 0);
    sumi_network_close(network);
    synthetic_close(files);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(needs_are_what_an_engine_says);
    RUN(needs_of_cards_grow_less_with_the_card);
    RUN(budgets_below_the_transformer_in_bfloat16_mean_fewer_bits);
    RUN(the_transformer_is_counted_in_files_and_in_lists);
    RUN(klein_streams_nothing_under_a_budget_of_6_gb);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
