// NewBie-image on the fake driver (fake_cuda): two text encoders, heads of 96, modulation that differs from
// prompt to prompt. Kernels do nothing there, but what is launched, copied and held is real.
#include "cuda_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "device_meter.h"
#include "fake_cuda.h"

#define NEWBIE "tests/golden/newbie/"
#define NEWBIE_MODEL NEWBIE "model"

static const sumi_image_item s_items[3] = {
    {.text = "a red fox", .negative_text = "blurry", .seed = 1},
    {.text = "<n>一只橘猫</n>坐在窗台上，看着外面的雨", .negative_text = "低画质", .seed = 2},
    {.text = "", .negative_text = "blurry", .seed = 3}};

static sumi_engine* open_newbie_with(const sumi_engine_desc* desc, sumi_model** out_model)
{
    sumi_engine* engine = open_engine(desc, NULL);
    *out_model = engine != NULL ? load_model_at(engine, NEWBIE_MODEL) : NULL;
    CHECK(*out_model != NULL);
    return engine;
}

static sumi_engine* open_newbie(uint32_t slice_us, sumi_model** out_model)
{
    fake_reset();
    sumi_engine_desc desc = cuda_desc();
    desc.max_slice_us = slice_us;
    return open_newbie_with(&desc, out_model);
}

// Guidance in the first of three steps: two denoising sections.
static sumi_image_desc small_newbie(sumi_model* model, int32_t item_count)
{
    sumi_image_desc desc = small_image(model, s_items);
    desc.item_count = item_count;
    desc.width = 48;
    desc.step_count = 3;
    return desc;
}

// ---- Launches -------------------------------------------------------------------------------------------------------

// The names of kernels in their order. An op that slices cut up is several launches of its kernel, which count as one.
typedef struct sequence {
    uint64_t hash;
    int32_t count;
    char last[96];
} sequence;

static void note_kernel(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data)
{
    sequence* s = user_data;
    (void)parameters, (void)bytes;
    if (strcmp(s->last, kernel) == 0) return;
    snprintf(s->last, sizeof s->last, "%s", kernel);
    s->hash = s->hash * 1099511628211u + hash_bytes(kernel, strlen(kernel));
    s->count++;
}

static sequence launches_of(sumi_engine* engine, const sumi_image_desc* desc)
{
    sequence s = {.count = 0};
    CHECK(draw_hash(engine, desc) != 0); // what happens once has happened
    fake_on_launch(note_kernel, &s);
    CHECK(draw_hash(engine, desc) != 0);
    fake_on_launch(NULL, NULL);
    return s;
}

TEST(every_slice_size_launches_the_same_kernels)
{
    static const uint32_t s_slices[] = {0, 20000, 2000, 250, 100, 20, 1};
    sequence first[2];
    for (size_t i = 0; i < sizeof s_slices / sizeof *s_slices; i++) {
        sumi_model* model;
        sumi_engine* engine = open_newbie(s_slices[i], &model);
        if (engine == NULL) return;
        for (int32_t k = 0; k < 2; k++) {
            const sumi_image_desc desc = small_newbie(model, k == 0 ? 1 : 3);
            const sequence s = launches_of(engine, &desc);
            if (i == 0) first[k] = s;
            if (s.hash != first[k].hash)
                printf("  slices of %u us: %d runs of a kernel instead of %d\n", s_slices[i], s.count, first[k].count);
            CHECK(s.count > 100 && s.hash == first[k].hash);
        }
        close_cuda(engine);
    }
    CHECK(first[0].hash != first[1].hash);
    printf("  %d and %d runs of a kernel\n", first[0].count, first[1].count);
}

TEST(handles_and_texts_launch_the_same_steps)
{
    sumi_model* model;
    sumi_engine* engine = open_newbie(2000, &model);
    if (engine == NULL) return;
    sumi_prompt* prompts[2] = {encode_prompt(engine, model, s_items[0].text),
                               encode_prompt(engine, model, s_items[0].negative_text)};
    const sumi_prompt_info info = sumi_prompt_get_info(prompts[0]);
    CHECK(info.encoder_count == 2 && info.encoders[1].token_count == 1 && info.encoders[1].width == 128);
    const sumi_image_item item = {.prompt = prompts[0], .negative_prompt = prompts[1], .seed = 1};
    sumi_image_desc desc = small_newbie(model, 1);
    const sequence texts = launches_of(engine, &desc);
    desc.items = &item;
    const sequence given = launches_of(engine, &desc);
    CHECK(given.count > 50 && given.count < texts.count);
    // an adapter adds its own products
    sumi_lora_desc ld = sumi_lora_defaults(model);
    ld.path = NEWBIE "adapters/lora_peft";
    sumi_job job;
    sumi_lora* lora = NULL;
    CHECK_NUMBER(sumi_submit_lora(engine, &ld, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_lora(engine, job, &lora), SUMI_OK);
    const sumi_lora_use use = {.lora = lora, .scale = 0.5f};
    desc.loras = &use;
    desc.lora_count = 1;
    CHECK(launches_of(engine, &desc).count > given.count);
    sumi_lora_release(lora);
    sumi_prompt_release(prompts[0]);
    sumi_prompt_release(prompts[1]);
    close_cuda(engine);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

static sumi_engine_desc metered_desc(meter* m, uint64_t budget)
{
    fake_reset();
    memset(m, 0, sizeof *m);
    sumi_engine_desc desc = cuda_desc();
    desc.memory_budget_bytes = budget;
    static sumi_device_allocator s_allocator; // the desc that is returned points to it
    s_allocator = (sumi_device_allocator){meter_allocate, meter_release, m};
    desc.device_allocator = &s_allocator;
    return desc;
}

// What an engine holds before it has a job: no budget goes below that.
static uint64_t idle_bytes(void)
{
    meter m;
    const sumi_engine_desc desc = metered_desc(&m, 0);
    sumi_engine* engine = open_engine(&desc, NULL);
    const uint64_t held = m.held;
    CHECK(engine != NULL && held > 0 && held < 1u << 20);
    sumi_engine_destroy(engine);
    return held;
}

static void close_metered(sumi_engine* engine, const meter* m)
{
    close_cuda(engine);
    CHECK_NUMBER(m->held, 0);
    CHECK_NUMBER(m->pinned, 0);
}

TEST(no_budget_is_exceeded_from_nothing_up)
{
    const uint64_t least = idle_bytes();
    meter m;
    sumi_model* model;
    sumi_engine_desc ed = metered_desc(&m, 0);
    sumi_engine* engine = open_newbie_with(&ed, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_newbie(model, 2);
    sumi_memory memory;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    const uint64_t whole = memory.weights + memory.arena, latents = draw_hash(engine, &desc);
    CHECK(latents != 0);
    CHECK_NUMBER(m.held, whole); // exactly what was said
    close_metered(engine, &m);
    int streamed = 0, tiled = 0, refused = 0;
    bool fitted = false;
    for (int percent = 0; percent <= 110 && t_errors == 0; percent += 2) {
        const uint64_t budget = percent == 0 ? 1 : whole / 100 * (uint64_t)percent;
        ed = metered_desc(&m, budget);
        engine = open_newbie_with(&ed, &model);
        if (engine == NULL) return;
        desc = small_newbie(model, 2);
        const sumi_result fits = sumi_image_memory(engine, &desc, &memory);
        CHECK(fits == SUMI_OK || fits == SUMI_BUDGET_TOO_SMALL);
        CHECK(fits == SUMI_OK || !fitted); // more is enough too
        fitted = fitted || fits == SUMI_OK;
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        CHECK_NUMBER(run_to_end(engine, job), fits);
        CHECK(m.peak <= (budget > least ? budget : least));
        if (fits == SUMI_OK) {
            CHECK(memory.weights + memory.arena <= budget);
            const uint64_t hash = fetch_hash(engine, job, &desc);
            CHECK(hash != 0 && (memory.tiles_vae || hash == latents));
        }
        sumi_job_discard(engine, job);
        streamed += memory.streamed > 0;
        tiled += memory.tiles_vae;
        refused += fits != SUMI_OK;
        close_metered(engine, &m);
    }
    printf("  of 56 budgets %d streamed, %d tiled, %d were too small\n", streamed, tiled, refused);
    CHECK(streamed > 5 && refused > 0 && fitted);
}

TEST(a_prompt_of_two_encoders_runs_under_small_budgets)
{
    const uint64_t least = idle_bytes();
    meter m;
    sumi_model* model;
    sumi_engine_desc ed = metered_desc(&m, 0);
    sumi_engine* engine = open_newbie_with(&ed, &model);
    if (engine == NULL) return;
    const uint64_t all = sumi_model_get_info(model).weight_bytes;
    close_metered(engine, &m);
    int done = 0, refused = 0;
    for (int percent = 2; percent <= 100 && t_errors == 0; percent += 7) {
        const uint64_t budget = all / 100 * (uint64_t)percent;
        ed = metered_desc(&m, budget);
        engine = open_newbie_with(&ed, &model);
        if (engine == NULL) return;
        sumi_prompt_desc desc = sumi_prompt_defaults(model);
        desc.text = "a red fox";
        sumi_job job;
        sumi_prompt* prompt = NULL;
        CHECK_NUMBER(sumi_submit_prompt(engine, &desc, &job), SUMI_OK);
        const sumi_result result = run_to_end(engine, job);
        CHECK(result == SUMI_OK || result == SUMI_BUDGET_TOO_SMALL);
        CHECK_NUMBER(sumi_fetch_prompt(engine, job, &prompt), result);
        CHECK(m.peak <= (budget > least ? budget : least));
        done += result == SUMI_OK;
        refused += result != SUMI_OK;
        sumi_prompt_release(prompt);
        close_metered(engine, &m);
    }
    printf("  %d budgets sufficed, %d did not\n", done, refused);
    CHECK(done > 2 && refused > 0);
}

// ---- Failures -------------------------------------------------------------------------------------------------------

TEST(an_image_can_be_cancelled_after_every_step)
{
    sumi_model* model;
    sumi_engine* engine = open_newbie(20, &model);
    if (engine == NULL) return;
    fake_complete_after(2);
    sumi_image_desc desc = small_newbie(model, 2);
    desc.step_count = 2;
    const uint64_t whole = draw_hash(engine, &desc);
    bool seen[8] = {false}, is_done = false;
    int steps = 0;
    for (; !is_done && steps < 5000 && t_errors == 0; steps += steps < 40 ? 1 : 3) {
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        for (int i = 0; i < steps && sumi_job_poll(engine, job).state < SUMI_JOB_DONE; i++)
            sumi_engine_update(engine, 1);
        const sumi_job_status status = sumi_job_poll(engine, job);
        is_done = status.state >= SUMI_JOB_DONE;
        seen[status.stage] = true;
        if (steps % 2 == 1) sumi_job_cancel(engine, job);
        sumi_job_discard(engine, job);
        CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
        if (steps % 60 == 0) CHECK(draw_hash(engine, &desc) == whole); // right behind the cancelled one's slices
    }
    CHECK(is_done && seen[SUMI_STAGE_TEXT] && seen[SUMI_STAGE_DENOISE] && seen[SUMI_STAGE_DECODE]);
    CHECK(whole != 0 && draw_hash(engine, &desc) == whole);
    printf("  cancelled after up to %d steps\n", steps);
    close_cuda(engine);
}

TEST(the_nth_device_allocation_may_fail)
{
    bool fails = true;
    int nth = 1, failures = 0;
    for (; fails && nth < 300 && t_errors == 0; nth++) {
        fake_reset();
        sumi_engine_desc ed = cuda_desc();
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
        if (engine == NULL) return;
        fake_fail_allocation(nth);
        sumi_model_desc md = sumi_model_defaults();
        md.path = NEWBIE_MODEL;
        sumi_job job;
        sumi_model* model = NULL;
        CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
        sumi_result result = run_to_end(engine, job);
        CHECK_NUMBER(sumi_fetch_model(engine, job, &model), result);
        if (model != NULL) {
            const sumi_image_desc desc = small_newbie(model, 2);
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            result = run_to_end(engine, job);
            if (result != SUMI_OK) CHECK(sumi_job_poll(engine, job).message[0] != '\0');
            sumi_job_discard(engine, job);
        }
        fails = fake_fail_allocation(0);
        failures += result != SUMI_OK;
        CHECK(fails ? result == SUMI_OK || result == SUMI_OUT_OF_DEVICE_MEMORY || result == SUMI_OUT_OF_HOST_MEMORY
                    : result == SUMI_OK);
        if (model == NULL) model = load_model_at(engine, NEWBIE_MODEL);
        CHECK(model != NULL);
        if (model != NULL) {
            const sumi_image_desc desc = small_newbie(model, 2);
            CHECK(draw_hash(engine, &desc) != 0);
        }
        close_cuda(engine);
    }
    printf("  %d allocations failed, %d times a job did\n", nth - 2, failures);
    CHECK(!fails && nth > 6);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(every_slice_size_launches_the_same_kernels);
    RUN(handles_and_texts_launch_the_same_steps);
    RUN(no_budget_is_exceeded_from_nothing_up);
    RUN(a_prompt_of_two_encoders_runs_under_small_budgets);
    RUN(an_image_can_be_cancelled_after_every_step);
    RUN(the_nth_device_allocation_may_fail);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
