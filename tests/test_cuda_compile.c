// A GPU that is newer than the library, on the fake driver: its driver has to compile the kernels. Only those images are
// compiled that a plan wants, on threads of their own, while updates return at once and the job says how far it is.
#include "test.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/modules.h"
#include "cuda_fixture.h"
#include "fake_cuda.h"

#define NEWER 130 // compute capability

static int s_told; // how often the log said that kernels are compiled

static void count_told(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    s_told += level == SUMI_LOG_INFO && strstr(text, "happens once") != NULL;
    host_log(level, result, text, user_data);
}

static sumi_engine* open_newer(sumi_model** out_model)
{
    fake_reset();
    fake_devices(1, NEWER);
    fake_has_linker(true);
    s_told = 0;
    sumi_engine_desc desc = cuda_desc();
    desc.max_slice_us = 100;
    desc.log.write = count_told;
    sumi_engine* engine = open_engine(&desc, out_model);
    CHECK(engine != NULL);
    return engine;
}

// Of images that are not machine code and that such a device can run.
static int count_texts(void)
{
    int count = 0;
    for (int32_t i = 0; i < sumi_cuda_image_count; i++)
        count += !sumi_cuda_images[i].is_binary && sumi_cuda_images[i].target < 90;
    return count;
}

static sumi_job submit(sumi_engine* engine, sumi_model* model)
{
    const sumi_image_desc desc = quick_image(model);
    sumi_job job = {0};
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    return job;
}

// Works until the job compiles. Returns what it says then.
static sumi_job_status run_until_compiling(sumi_engine* engine, sumi_job job)
{
    int32_t frames = 0;
    while (run_updates(engine, job, 1) && count_frame(&frames)
           && sumi_job_poll(engine, job).stage != SUMI_STAGE_COMPILE)
        continue;
    return sumi_job_poll(engine, job);
}

TEST(a_plan_compiles_what_it_wants_while_updates_go_on)
{
    sumi_model* model;
    sumi_engine* engine = open_newer(&model);
    if (engine == NULL) return;
    const int small = (int)fake_calls("cuLinkComplete");
    CHECK(small > 0 && small < count_texts()); // with the model
    fake_allow_links(0);
    sumi_job job = submit(engine, model);
    sumi_job_status status = run_until_compiling(engine, job);
    const int32_t wanted = status.step_count;
    CHECK_NUMBER(status.stage, SUMI_STAGE_COMPILE);
    CHECK_NUMBER(status.step, 0);
    CHECK(wanted > 0 && small + wanted < count_texts());
    CHECK_NUMBER(s_told, 1);
    CHECK(run_updates(engine, job, 100)); // none waits for the driver
    int32_t frames = 0;
    for (int32_t i = 1; i < wanted; i++) {
        fake_allow_links(1);
        while (sumi_job_poll(engine, job).step < i && count_frame(&frames)) {
            run_updates(engine, job, 1);
            system_sleep_us(1000);
        }
        status = sumi_job_poll(engine, job);
        CHECK_NUMBER(status.stage, SUMI_STAGE_COMPILE);
        CHECK_NUMBER(status.step, i);
        CHECK_NUMBER(status.step_count, wanted);
    }
    fake_allow_links(-1);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    CHECK(sumi_job_poll(engine, job).step_count == sumi_job_poll(engine, job).step);
    sumi_job_discard(engine, job);
    CHECK_NUMBER(fake_calls("cuLinkComplete"), small + wanted);
    job = submit(engine, model);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    sumi_job_discard(engine, job);
    CHECK_NUMBER(fake_calls("cuLinkComplete"), small + wanted);
    CHECK_NUMBER(s_told, 1);
    CHECK_NUMBER(fake_held_kind("link"), 0);
    close_cuda(engine);
}

// Without the linker of the driver everything is compiled with the model, as it was with machine code that is refused.
TEST(a_driver_without_a_linker_compiles_all_with_the_model)
{
    sumi_model* model;
    fake_reset();
    fake_devices(1, NEWER);
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    const uint64_t modules = fake_calls("cuModuleLoadDataEx");
    CHECK_NUMBER(modules, count_texts());
    sumi_job job = submit(engine, model);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    sumi_job_discard(engine, job);
    CHECK_NUMBER(fake_calls("cuModuleLoadDataEx"), modules);
    close_cuda(engine);
}

TEST(a_job_can_be_cancelled_while_its_kernels_are_compiled)
{
    sumi_model* model;
    sumi_engine* engine = open_newer(&model);
    if (engine == NULL) return;
    fake_allow_links(0);
    sumi_job job = submit(engine, model);
    CHECK_NUMBER(run_until_compiling(engine, job).stage, SUMI_STAGE_COMPILE);
    sumi_job_cancel(engine, job);
    sumi_engine_update(engine, 1);
    CHECK_NUMBER(sumi_job_poll(engine, job).result, SUMI_CANCELLED);
    sumi_job_discard(engine, job);
    // The next one waits for the same images.
    job = submit(engine, model);
    CHECK_NUMBER(run_until_compiling(engine, job).stage, SUMI_STAGE_COMPILE);
    fake_allow_links(-1);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    sumi_job_discard(engine, job);
    close_cuda(engine);
}

TEST(an_engine_that_ends_waits_for_the_driver)
{
    sumi_model* model;
    sumi_engine* engine = open_newer(&model);
    if (engine == NULL) return;
    fake_allow_links(1);
    const sumi_job job = submit(engine, model);
    CHECK_NUMBER(run_until_compiling(engine, job).stage, SUMI_STAGE_COMPILE);
    fake_allow_links(-1);
    close_cuda(engine);
}

// The first call of each entry that compiling makes fails once. The job fails with a sentence, and the next one works.
TEST(a_failure_while_compiling_is_survived)
{
    static const char* const s_entries[] = {"cuLinkCreate", "cuLinkAddData", "cuLinkComplete", "cuModuleLoadDataEx"};
    static const int s_codes[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNSUPPORTED_PTX_VERSION};
    enum { ENTRIES = sizeof s_entries / sizeof *s_entries };
    for (int i = 0; i < 2 * ENTRIES; i++) {
        sumi_model* model;
        sumi_engine* engine = open_newer(&model);
        if (engine == NULL) return;
        (void)fake_fail_call(s_entries[i / 2], 1, s_codes[i % 2]);
        sumi_job job = submit(engine, model);
        const sumi_result result = run_to_end(engine, job);
        CHECK(fake_fail_call(s_entries[i / 2], 0, 0));
        CHECK_NUMBER(result, i % 2 == 0 ? SUMI_OK : SUMI_DRIVER_TOO_OLD); // it is tried again when memory is short
        CHECK(i % 2 == 0 || strstr(sumi_job_poll(engine, job).message, "loading the GPU kernels of ") != NULL);
        sumi_job_discard(engine, job);
        job = submit(engine, model);
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        sumi_job_discard(engine, job);
        close_cuda(engine);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(a_plan_compiles_what_it_wants_while_updates_go_on);
    RUN(a_driver_without_a_linker_compiles_all_with_the_model);
    RUN(a_job_can_be_cancelled_while_its_kernels_are_compiled);
    RUN(an_engine_that_ends_waits_for_the_driver);
    RUN(a_failure_while_compiling_is_survived);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
