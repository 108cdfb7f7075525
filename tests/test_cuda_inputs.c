// Inputs that the arena of a device still holds from the run before (held_inputs.h), on the fake driver: its kernels do
// nothing, and its device memory is the host's, so the test marks the arena between jobs and sees what a job has
// written.
#include "reference_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/state.h"
#include "cuda_fixture.h"
#include "fake_cuda.h"
#include "jobs/engine_state.h"
#include "jobs/prompt.h"

#define MARK 0x5a

static void mark_arena(sumi_engine* engine)
{
    const sumi_device_block* arena = &((const sumi_cuda*)engine->runner)->stock.arena;
    if (arena->address != 0) memset((void*)(uintptr_t)arena->address, MARK, (size_t)arena->bytes);
}

static const unsigned char* value_of(const sumi_engine* engine, const sumi_plan* plan, sumi_value value)
{
    return (const unsigned char*)(uintptr_t)((const sumi_cuda*)engine->runner)->stock.arena.address
         + sumi_plan_info(plan, value)->offset;
}

static bool is_marked(const unsigned char* bytes, size_t count)
{
    size_t marked = 0;
    for (size_t i = 0; i < count; i++) marked += bytes[i] == MARK;
    return marked == count;
}

// What a prompt must differ from another in: these are not what kernels compute, for here they compute nothing.
static void set_features(sumi_prompt* prompt, uint16_t first)
{
    for (size_t i = 0; i < sumi_prompt_value_count(prompt, 0); i++) prompt->halves[0][i] = (uint16_t)(first + i % 7);
    for (int32_t r = 0; r < prompt->reference_count; r++)
        memset(prompt->references[r], first & 0xff,
               (size_t)(prompt->reference_sizes[r].width * prompt->reference_sizes[r].height * 3));
}

static sumi_image_desc picture_of(sumi_model* model, sumi_image_item* item, const sumi_prompt* prompt, int32_t side)
{
    *item = (sumi_image_item){.prompt = prompt, .seed = 5};
    sumi_image_desc desc = small_image(model, item);
    desc.width = desc.height = side;
    desc.guidance.scale = sumi_model_get_info(model).guidance_off;
    return desc;
}

typedef enum writes { NOTHING, ALL } writes;

// Whether the newest run has written the prompt's features and references, or nothing of them.
static void check_written(const sumi_engine* engine, const sumi_prompt* prompt, writes wanted)
{
    const sumi_plan_entry* entry = newest_plan(engine);
    const sumi_pipeline_rows features = entry->pipeline.features[0][0];
    const size_t bytes = sumi_prompt_value_count(prompt, 0) * sizeof(uint16_t);
    const unsigned char* arena = value_of(engine, &entry->plan, features.value);
    if (wanted == NOTHING) CHECK(is_marked(arena, bytes));
    else CHECK(memcmp(arena, prompt->halves[0], bytes) == 0);
    for (int32_t r = 0; r < prompt->reference_count; r++) {
        const unsigned char* pixels = value_of(engine, &entry->plan, entry->pipeline.reference_pixels[r]);
        const size_t count = (size_t)(prompt->reference_sizes[r].width * prompt->reference_sizes[r].height * 3);
        if (wanted == NOTHING) CHECK(is_marked(pixels, count));
        else CHECK(memcmp(pixels, prompt->references[r], count) == 0);
    }
}

static void draw_marked(sumi_engine* engine, sumi_model* model, const sumi_prompt* prompt, int32_t side, writes wanted)
{
    sumi_image_item item;
    const sumi_image_desc desc = picture_of(model, &item, prompt, side);
    sumi_job job;
    mark_arena(engine);
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    check_written(engine, prompt, wanted);
    sumi_job_discard(engine, job);
}

// A job that is cancelled, or fails, when it has done a part of its work.
static void break_one(sumi_engine* engine, sumi_model* model, const sumi_prompt* prompt, bool fails)
{
    sumi_image_item item;
    const sumi_image_desc desc = picture_of(model, &item, prompt, 32);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    if (fails) {
        (void)fake_fail_call("cuMemcpyHtoDAsync", 1, 1); // invalid value
        CHECK(run_to_end(engine, job) != SUMI_OK);
    } else {
        for (int i = 0; i < 1000 && sumi_job_poll(engine, job).step == 0; i++) sumi_engine_update(engine, 50);
        CHECK(sumi_job_poll(engine, job).state == SUMI_JOB_RUNNING);
        sumi_job_cancel(engine, job);
        CHECK_NUMBER(run_to_end(engine, job), SUMI_CANCELLED);
    }
    sumi_job_discard(engine, job);
}

static void check_all(const sumi_pixels* reference)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    const int32_t count = reference != NULL ? 1 : 0;
    if (count > 0) make_edit_model(model, &s_several, &s_cells);
    sumi_prompt *a = encode_with(engine, model, "a red fox", reference, count),
                *b = encode_with(engine, model, "a red fox", reference, count);
    set_features(a, 0x1000);
    CHECK_NUMBER(b->token_count[0], a->token_count[0]); // one plan serves both
    set_features(b, 0x2000);
    draw_marked(engine, model, a, 32, ALL);
    draw_marked(engine, model, a, 32, NOTHING);
    draw_marked(engine, model, a, 32, NOTHING);
    draw_marked(engine, model, b, 32, ALL); // another prompt
    draw_marked(engine, model, a, 32, ALL);
    draw_marked(engine, model, a, 16, ALL); // another plan
    draw_marked(engine, model, a, 32, ALL);
    draw_marked(engine, model, a, 32, NOTHING);
    break_one(engine, model, a, false);
    draw_marked(engine, model, a, 32, ALL);
    break_one(engine, model, a, true);
    draw_marked(engine, model, a, 32, ALL);
    draw_marked(engine, model, a, 32, NOTHING);
    sumi_prompt_release(encode_with(engine, model, "a red fox", reference, count)); // the plan of another kind of job
    draw_marked(engine, model, a, 32, ALL);
    const uint64_t arena = ((const sumi_cuda*)engine->runner)->stock.arena.address;
    draw_marked(engine, model, a, 48, ALL);
    draw_marked(engine, model, a, 32, ALL); // it has grown meanwhile
    CHECK(((const sumi_cuda*)engine->runner)->stock.arena.address != arena);
    draw_marked(engine, model, a, 32, NOTHING);
    // The next prompt has the memory of one that was freed, and no other plan runs in between.
    static unsigned char s_saved[1 << 17];
    const size_t saved_bytes = sumi_prompt_save(a, s_saved, sizeof s_saved);
    CHECK(saved_bytes > 0 && saved_bytes <= sizeof s_saved);
    const void* block = a;
    sumi_prompt_release(a);
    CHECK_NUMBER(sumi_prompt_load(model, s_saved, saved_bytes, &a), SUMI_OK);
    CHECK(a == block);
    (void)sumi_prompt_elements(a, 0);
    set_features(a, 0x3000);
    draw_marked(engine, model, a, 32, ALL);
    draw_marked(engine, model, a, 32, NOTHING);
    // In a row, the next one beside the last slices of the one before.
    const sumi_prompt* const row[] = {b, b, a, a, b};
    sumi_image_item items[5];
    sumi_job jobs[5];
    fake_complete_after(3);
    for (int i = 0; i < 5; i++) {
        const sumi_image_desc desc = picture_of(model, &items[i], row[i], 32);
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
    }
    for (int i = 0; i < 5; i++) {
        CHECK_NUMBER(run_to_end(engine, jobs[i]), SUMI_OK);
        sumi_job_discard(engine, jobs[i]);
    }
    fake_complete_after(0);
    check_written(engine, b, ALL);
    draw_marked(engine, model, b, 32, NOTHING);
    if (reference != NULL) { // the host program's own, in place of those that the prompt keeps
        sumi_image_item item;
        sumi_image_desc desc = picture_of(model, &item, b, 32);
        desc.references = reference;
        desc.reference_count = 1;
        mark_arena(engine);
        sumi_image image;
        CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
        sumi_images_release(engine, &image, 1);
        const sumi_plan_entry* entry = newest_plan(engine);
        CHECK(!is_marked(value_of(engine, &entry->plan, entry->pipeline.reference_pixels[0]), 64));
        sumi_job job;
        desc.reference_count = 0;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        entry = newest_plan(engine);
        CHECK(memcmp(value_of(engine, &entry->plan, entry->pipeline.reference_pixels[0]), b->references[0], 64) == 0);
        sumi_job_discard(engine, job);
    }
    sumi_prompt_release(a);
    sumi_prompt_release(b);
    close_cuda(engine);
}

TEST(features_that_are_there_are_not_copied_again) { check_all(NULL); }

TEST(nor_are_references)
{
    static uint8_t s_picture[64 * 64 * 3];
    for (size_t i = 0; i < sizeof s_picture; i++) s_picture[i] = (uint8_t)(i * 37);
    const sumi_pixels reference = {.data = s_picture, .width = 64, .height = 64, .channel_count = 3};
    check_all(&reference);
}

// A limit takes the arena away, and a larger one lets it come back.
TEST(an_arena_that_was_freed_holds_nothing)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_prompt* prompt = encode_with(engine, model, "a red fox", NULL, 0);
    set_features(prompt, 0x1000);
    draw_marked(engine, model, prompt, 32, ALL);
    draw_marked(engine, model, prompt, 32, NOTHING);
    engine->runner->functions->release(engine->runner);
    draw_marked(engine, model, prompt, 32, ALL);
    draw_marked(engine, model, prompt, 32, NOTHING);
    sumi_prompt_release(prompt);
    close_cuda(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(features_that_are_there_are_not_copied_again);
    RUN(nor_are_references);
    RUN(an_arena_that_was_freed_holds_nothing);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
