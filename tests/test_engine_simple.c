// The simple calls: the same picture as the job that they stand for, with either pump, beside other jobs, and nothing
// left behind by failures.
#include "engine_fixture.h"
#include "jobs/objects.h"
#include "models/network_state.h"

static const char* const s_text = "a red house on the grass";

static uint64_t hash_of_job(sumi_engine* engine, sumi_model* model, uint64_t seed)
{
    const sumi_image_item item = {.text = s_text, .seed = seed};
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    sumi_image image = {0};
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    const uint64_t hash = hash_image(&image);
    sumi_images_release(engine, &image, 1);
    return hash;
}

static bool is_zero(const sumi_image* image)
{
    static const sumi_image s_zero;
    return image->pixels == NULL && image->handle == 0 && image->width == 0 && image->height == s_zero.height
        && image->seed == 0 && image->step_count == 0;
}

static sumi_engine* engine_with(sumi_pump pump, int32_t job_capacity)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc = host_desc(&s_host);
    desc.pump = pump;
    desc.job_capacity = job_capacity;
    sumi_engine* engine = NULL;
    CHECK_NUMBER(sumi_engine_create(&desc, &engine), SUMI_OK);
    return engine;
}

// Simple calls draw at the size that the checkpoint is for. Here that is a small one, for many runs.
static sumi_result open_small(sumi_engine* engine, sumi_model** out_model)
{
    const sumi_result result = sumi_open_model(engine, MODEL_PATH, out_model);
    if (result == SUMI_OK) {
        sumi_preset_values* preset = &(*out_model)->network->presets[SUMI_PRESET_MODEL];
        (*out_model)->info.sample_size = preset->width = preset->height = 64;
    }
    return result;
}

static uint64_t picture_with(sumi_pump pump)
{
    sumi_engine* engine = engine_with(pump, 16);
    if (engine == NULL) return 0;
    sumi_model* model = NULL;
    CHECK_NUMBER(open_small(engine, &model), SUMI_OK);
    sumi_image image = {0};
    CHECK_NUMBER(sumi_generate(engine, model, s_text, 7, &image), SUMI_OK);
    CHECK_NUMBER(image.width, 64);
    CHECK_NUMBER(sumi_model_get_info(model).native_size, 64);
    CHECK_NUMBER(image.format, SUMI_FORMAT_RGBA8);
    CHECK_NUMBER(image.seed, 7);
    CHECK(image.row_bytes == image.width * 4 && image.handle != 0);
    const uint64_t hash = hash_image(&image);
    CHECK(hash != 0 && hash == hash_of_job(engine, model, 7));
    CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
    sumi_images_release(engine, &image, 1);
    CHECK(is_zero(&image));
    CHECK_NUMBER(sumi_generate(engine, model, s_text, 8, &image), SUMI_OK);
    CHECK(hash_image(&image) != hash);
    close_engine(engine); // with the picture and the model
    return hash;
}

TEST(a_simple_call_gives_the_image_of_its_job)
{
    const uint64_t with_update = picture_with(SUMI_PUMP_UPDATE);
    CHECK(with_update != 0 && with_update == picture_with(SUMI_PUMP_THREAD));
}

// Jobs before it are done when it returns. With SUMI_PUMP_UPDATE one of a lower priority has not begun.
static void generate_beside_jobs(sumi_pump pump)
{
    sumi_engine* engine = engine_with(pump, 5);
    if (engine == NULL) return;
    sumi_model *model = NULL, *other = NULL;
    CHECK_NUMBER(open_small(engine, &model), SUMI_OK);
    const uint64_t alone = hash_of_job(engine, model, 7);
    sumi_image_desc desc = small_image(model, &s_item);
    sumi_job before[2], after;
    for (int i = 0; i < 2; i++) CHECK_NUMBER(sumi_submit_images(engine, &desc, &before[i]), SUMI_OK);
    desc.priority = -1;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &after), SUMI_OK);
    if (pump == SUMI_PUMP_UPDATE) sumi_engine_update(engine, 1); // in the middle of the first
    sumi_image image = {0}, fetched = {0};
    CHECK_NUMBER(sumi_generate(engine, model, s_text, 7, &image), SUMI_OK);
    CHECK(hash_image(&image) == alone);
    for (int i = 0; i < 2; i++) {
        CHECK_NUMBER(sumi_job_poll(engine, before[i]).state, SUMI_JOB_DONE);
        CHECK_NUMBER(sumi_fetch_images(engine, before[i], &fetched, 1), SUMI_OK);
    }
    if (pump == SUMI_PUMP_UPDATE) CHECK_NUMBER(sumi_job_poll(engine, after).state, SUMI_JOB_QUEUED);
    CHECK_NUMBER(open_small(engine, &other), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, after, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(engine, after, &fetched, 1), SUMI_OK);
    CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
    close_engine(engine);
}
TEST(a_simple_call_works_beside_other_jobs) { generate_beside_jobs(SUMI_PUMP_UPDATE); }
TEST(a_simple_call_works_beside_other_jobs_of_the_pump_thread) { generate_beside_jobs(SUMI_PUMP_THREAD); }

TEST(a_simple_call_needs_a_free_slot)
{
    sumi_engine* engine = engine_with(SUMI_PUMP_UPDATE, 1);
    if (engine == NULL) return;
    sumi_model *model = NULL, *other = (sumi_model*)engine;
    CHECK_NUMBER(open_small(engine, &model), SUMI_OK);
    sumi_image_desc desc = small_image(model, &s_item);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_image image = {.handle = 5, .width = 3};
    CHECK_NUMBER(sumi_generate(engine, model, s_text, 7, &image), SUMI_QUEUE_FULL);
    CHECK(is_zero(&image));
    CHECK_NUMBER(sumi_open_model(engine, MODEL_PATH, &other), SUMI_QUEUE_FULL);
    CHECK(other == NULL);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_QUEUED); // it was not touched
    sumi_job_discard(engine, job);
    CHECK_NUMBER(sumi_generate(engine, model, s_text, 7, &image), SUMI_OK);
    close_engine(engine);
}

TEST(failures_of_simple_calls_are_reported_and_leave_nothing)
{
    sumi_engine *engine = engine_with(SUMI_PUMP_UPDATE, 2), *second = NULL;
    if (engine == NULL) return;
    sumi_model *model = NULL, *without = NULL;
    sumi_image image = {0};
#define FAILS(call, result)                                                                                            \
    do {                                                                                                               \
        s_host.log[0] = '\0';                                                                                          \
        memset(&image, 5, sizeof image);                                                                               \
        CHECK_NUMBER(call, result);                                                                                    \
        CHECK(s_host.log[0] != '\0');                                                                                  \
        CHECK_NUMBER(s_host.log_result, result);                                                                       \
        CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);                                                       \
    } while (0)
    without = (sumi_model*)engine;
    FAILS(sumi_open_model(engine, "no/such/model", &without), SUMI_FILE_NOT_FOUND);
    CHECK(without == NULL && strstr(s_host.log, "no/such/model") != NULL);
    FAILS(sumi_open_model(engine, NULL, &without), SUMI_INVALID_ARGUMENT);
    FAILS(sumi_open_model(engine, MODEL_PATH, NULL), SUMI_INVALID_ARGUMENT);
    FAILS(sumi_open_model(engine, LORA_PATH "lora_peft.safetensors", &without), SUMI_MODEL_UNKNOWN);
    CHECK_NUMBER(sumi_open_model(NULL, MODEL_PATH, &without), SUMI_INVALID_ARGUMENT);
    CHECK(without == NULL);

    CHECK_NUMBER(open_small(engine, &model), SUMI_OK);
    FAILS(sumi_generate(engine, NULL, s_text, 7, &image), SUMI_INVALID_ARGUMENT);
    CHECK(is_zero(&image));
    FAILS(sumi_generate(engine, model, NULL, 7, &image), SUMI_INVALID_ARGUMENT);
    CHECK(is_zero(&image));
    FAILS(sumi_generate(engine, model, s_text, 7, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_generate(NULL, model, s_text, 7, &image), SUMI_INVALID_ARGUMENT);
    CHECK(is_zero(&image));
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CPU;
    CHECK_NUMBER(sumi_engine_create(&desc, &second), SUMI_OK);
    CHECK_NUMBER(sumi_generate(second, model, s_text, 7, &image), SUMI_INVALID_ARGUMENT); // another engine's model
    CHECK(is_zero(&image));
    sumi_engine_destroy(second);

    sumi_model_desc md = sumi_model_defaults();
    md.path = MODEL_PATH;
    md.without_text_encoder = true;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_model(engine, job, &without), SUMI_OK);
    FAILS(sumi_generate(engine, without, s_text, 7, &image), SUMI_NOT_SUPPORTED);
    CHECK(is_zero(&image));
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 1000), SUMI_OK);
    FAILS(sumi_generate(engine, model, s_text, 7, &image), SUMI_BUDGET_TOO_SMALL);
    CHECK(is_zero(&image));
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
    CHECK_NUMBER(sumi_generate(engine, model, s_text, 7, &image), SUMI_OK);
    close_engine(engine);
}

typedef struct simple_calls {
    long long opened, all; // allocations until the model was open, and until the image was there
    uint64_t hash;
} simple_calls;

// Opens a model and draws an image while the n-th allocation fails (0: none): the call that asks for it says so,
// nothing is left, and the next call works. Returns whether the n-th allocation was asked for.
static bool draw_with_failure(long long n, const simple_calls* whole, simple_calls* out)
{
    sumi_engine* engine = engine_with(SUMI_PUMP_UPDATE, 2);
    if (engine == NULL) return false;
    const long long first = atomic_load(&s_host.count);
    atomic_store(&s_host.fail_at, n == 0 ? 0 : first + n);
    sumi_model* model = NULL;
    sumi_image image = {.handle = 5};
    sumi_result result = open_small(engine, &model);
    CHECK((result == SUMI_OK) == (model != NULL));
    out->opened = atomic_load(&s_host.count) - first;
    if (result == SUMI_OK) {
        result = sumi_generate(engine, model, s_text, 7, &image);
        CHECK(result == SUMI_OK || is_zero(&image));
    }
    out->all = atomic_load(&s_host.count) - first;
    const bool has_failed = n > 0 && out->all >= n;
    CHECK_NUMBER(result, has_failed ? SUMI_OUT_OF_HOST_MEMORY : SUMI_OK);
    CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
    if (has_failed) {
        CHECK(s_host.log[0] != '\0');
        if (model == NULL) CHECK_NUMBER(open_small(engine, &model), SUMI_OK);
        if (n > whole->opened) CHECK_NUMBER(sumi_generate(engine, model, s_text, 7, &image), SUMI_OK);
    }
    out->hash = image.pixels != NULL ? hash_image(&image) : 0;
    CHECK(n <= whole->opened || out->hash == whole->hash);
    close_engine(engine);
    return has_failed;
}

// In strides, for test_engine_faults fails every allocation of the jobs that these calls stand for. Two threads do not
// ask for the same number of allocations in every run: the last run is the one that asked for fewer than n.
TEST(memory_may_run_out_in_a_simple_call)
{
    simple_calls whole = {0}, one = {0};
    CHECK(!draw_with_failure(0, &whole, &whole));
    const long long stride = whole.all / 64 + 1;
    long long n = 1;
    while (draw_with_failure(n, &whole, &one) && t_errors == 0) n += stride;
    printf("  %lld allocations to open, %lld in all\n", whole.opened, whole.all);
    CHECK(n > whole.opened && whole.all > whole.opened && whole.opened > 50 && whole.hash != 0);
}

TEST(versions_are_compared_by_major_and_minor)
{
    CHECK_NUMBER(SUMI_VERSION_NUMBER, 2000);
    CHECK_NUMBER(sumi_check_version(SUMI_VERSION_NUMBER), SUMI_OK);
    CHECK_NUMBER(sumi_check_version(SUMI_VERSION_NUMBER + 999), SUMI_OK); // patches
    CHECK_NUMBER(sumi_check_version(SUMI_VERSION_NUMBER + 1000), SUMI_VERSION_MISMATCH);
    CHECK_NUMBER(sumi_check_version(SUMI_VERSION_NUMBER - 1), SUMI_VERSION_MISMATCH);
    CHECK_NUMBER(sumi_check_version(SUMI_VERSION_NUMBER + 1000000), SUMI_VERSION_MISMATCH);
    CHECK_NUMBER(sumi_check_version(0), SUMI_VERSION_MISMATCH);
    CHECK_NUMBER(sumi_check_version(UINT32_MAX), SUMI_VERSION_MISMATCH);
    CHECK(strstr(sumi_result_text(SUMI_VERSION_MISMATCH), "version") != NULL);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(a_simple_call_gives_the_image_of_its_job);
    RUN(a_simple_call_works_beside_other_jobs);
    RUN(a_simple_call_works_beside_other_jobs_of_the_pump_thread);
    RUN(a_simple_call_needs_a_free_slot);
    RUN(failures_of_simple_calls_are_reported_and_leave_nothing);
    RUN(memory_may_run_out_in_a_simple_call);
    RUN(versions_are_compared_by_major_and_minor);
    TEST_END();
}
