// What a host may do at any moment while the device works, and what a driver may refuse at any moment, on the fake
// driver.
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "cuda_fixture.h"
#include "fake_cuda.h"
#include "jobs/engine_state.h"

// ---- The host changes its mind --------------------------------------------------------------------------------------

TEST(every_job_can_be_cancelled_after_every_step)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    fake_complete_after(2);
    sumi_image_desc desc = quick_image(model);
    desc.preview_every = 1;
    const uint64_t whole = draw_hash(engine, &desc);
    for (int kind = 0; kind < 5; kind++) {
        bool seen[8] = {false}, is_done = false;
        int steps = 0;
        for (; !is_done && steps < 3000 && t_errors == 0; steps += steps < 40 ? 1 : 3) {
            sumi_job job = {0};
            if (kind == 0) CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            else job = submit_kind(engine, model, kind - 1);
            is_done = !run_updates(engine, job, steps);
            seen[sumi_job_poll(engine, job).stage] = true;
            give_up(engine, job, steps % 2 != 0);
            CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
            if (steps % 30 == 0) CHECK(draw_hash(engine, &desc) == whole); // right behind the cancelled one's slices
        }
        CHECK(is_done);
        if (kind == 0)
            CHECK(seen[SUMI_STAGE_PREPARE] && seen[SUMI_STAGE_TEXT] && seen[SUMI_STAGE_DENOISE]
                  && seen[SUMI_STAGE_DECODE]);
    }
    CHECK(whole != 0 && draw_hash(engine, &desc) == whole);
    close_cuda(engine);
}

// The latents that come back are those that were set aside, or the noise: kernels do nothing here.
TEST(a_job_can_be_paused_after_every_step)
{
    for (int late = 0; late < 3; late++) {
        fake_reset();
        sumi_model* model;
        sumi_engine* engine = cuda_engine(100, &model);
        if (engine == NULL) return;
        sumi_image_desc desc;
        rich_image(&desc, model);
        desc.preview_every = late == 1 ? 1 : 0;
        desc.solver = late == 2 ? SUMI_SOLVER_DPMPP_2M : SUMI_SOLVER_HEUN;
        const sumi_image_desc other = quick_image(model);
        const uint64_t want = draw_hash(engine, &desc), want_other = draw_hash(engine, &other);
        bool is_running = true;
        int gave_way = 0;
        for (int n = 0; is_running && t_errors == 0; n += late == 0 ? 1 : 3) {
            fake_complete_after(late * 2);
            sumi_job job, beside;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            is_running = run_updates(engine, job, n);
            CHECK_NUMBER(sumi_job_pause(engine, job, true), is_running ? SUMI_OK : SUMI_WRONG_STATE);
            CHECK_NUMBER(sumi_submit_images(engine, &other, &beside), SUMI_OK);
            CHECK_NUMBER(run_to_end(engine, beside), SUMI_OK);
            gave_way += sumi_job_poll(engine, job).state == SUMI_JOB_QUEUED;
            (void)sumi_job_pause(engine, job, false);
            CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
            CHECK(fetch_hash(engine, beside, &other) == want_other);
            CHECK(fetch_hash(engine, job, &desc) == want);
        }
        printf("  %d pauses\n", gave_way);
        CHECK(gave_way > 5);
        sumi_model_close(model);
        close_cuda(engine);
    }
}

// With slices of one op, as sumi generate --dump has them: the host program sees each evaluation while it runs.
TEST(a_job_can_be_made_to_stop_after_every_step)
{
    enum { COUNT = 16 * 2 * 2, STEPS = 5 };
    static float s_latents[STEPS * COUNT];
    for (int late = 0; late < 3; late++) {
        fake_reset();
        sumi_model* model;
        sumi_engine* engine = cuda_engine(0, &model);
        if (engine == NULL) return;
        sumi_image_desc desc = quick_image(model);
        desc.step_count = STEPS;
        fake_complete_after(late * 2);
        CHECK(draw_by_steps(engine, &desc, s_latents, COUNT));
        sumi_model_close(model);
        close_cuda(engine);
    }
}

TEST(the_first_load_can_be_cancelled_and_left)
{
    for (int steps = 1; steps < 40; steps += 13) {
        for (int leaves = 0; leaves < 2; leaves++) { // kernels may be being loaded on a thread
            fake_reset();
            sumi_engine_desc ed = cuda_desc();
            sumi_engine* engine = NULL;
            CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
            if (engine == NULL) return;
            sumi_model_desc md = sumi_model_defaults();
            md.path = MODEL_PATH;
            sumi_job job;
            CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
            (void)run_updates(engine, job, steps);
            if (leaves == 0) {
                sumi_job_cancel(engine, job);
                sumi_engine_update(engine, 1);
                sumi_model* model = NULL;
                (void)sumi_fetch_model(engine, job, &model);
                if (model == NULL) model = load_model(engine);
                CHECK(model != NULL);
                sumi_image_desc desc = quick_image(model);
                if (model != NULL) CHECK(draw_hash(engine, &desc) != 0);
            }
            close_cuda(engine);
        }
    }
}

TEST(an_engine_can_go_while_slices_are_on_their_way)
{
    for (int closes = 0; closes < 3; closes++) {
        for (int pump = 0; pump < 2; pump++) {
            fake_reset();
            sumi_engine_desc ed = cuda_desc();
            ed.max_slice_us = 20;
            ed.pump = pump == 1 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
            sumi_model* model;
            sumi_engine* engine = open_engine(&ed, &model);
            CHECK(engine != NULL);
            if (engine == NULL) return;
            sumi_image_desc desc = small_image(model, &s_item);
            desc.step_count = 200;
            desc.preview_every = 1;
            sumi_job job, queued;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &queued), SUMI_OK);
            fake_complete_after(pump == 1 ? 2 : 1000000);
            for (int i = 0; i < 4000 && sumi_job_poll(engine, job).stage != SUMI_STAGE_TEXT; i++)
                sumi_engine_update(engine, 4000);
            // an update stops after a moment of its own time
            for (int i = 0; pump == 0 && i < 100 && engine->runs.current.pending_count < 2; i++)
                sumi_engine_update(engine, 4000);
            if (pump == 0) CHECK(engine->runs.current.pending_count > 1);
            if (closes == 1) {
                sumi_model_close(model);
                CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_CANCELLED);
                CHECK_NUMBER(sumi_job_poll(engine, queued).state, SUMI_JOB_CANCELLED);
                CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS], 0);
            } else if (closes == 2) {
                sumi_job_discard(engine, job);
            }
            close_cuda(engine);
        }
    }
}

// What is taken away belongs to nobody's running job: that one goes on, with all its steps and previews.
TEST(a_running_job_does_not_notice_what_others_release)
{
    fake_reset();
    sumi_model *model, *other;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.preview_every = 1;
    const uint64_t whole = draw_hash(engine, &desc);
    for (int stop = 1; stop < 120 && t_errors == 0; stop += 3) {
        fake_complete_after(0);
        other = load_model(engine);
        sumi_lora* lora = read_lora(engine, model, "lora_peft.safetensors");
        sumi_lora_use use = {.lora = lora, .scale = 1.0f};
        sumi_image_desc with = quick_image(model);
        with.loras = &use;
        with.lora_count = 1;
        CHECK(draw_hash(engine, &with) != 0);
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        fake_complete_after(1000000);
        for (int i = 0; i < stop; i++) {
            sumi_engine_update(engine, 100);
            if (i % 8 == 7) fake_finish(); // progress, but some slices are always in flight
        }
        if (stop % 2 == 0) sumi_lora_release(lora);
        else sumi_model_close(other);
        fake_complete_after(1);
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        const sumi_job_status status = sumi_job_poll(engine, job);
        CHECK_NUMBER(status.step, desc.step_count);
        CHECK_NUMBER(status.preview_version, desc.step_count);
        sumi_job_discard(engine, job);
        if (stop % 2 == 0) sumi_model_close(other);
        else sumi_lora_release(lora);
    }
    CHECK(draw_hash(engine, &desc) == whole);
    close_cuda(engine);
}

// Beside a pump thread that works: products that nobody fetches are taken off the device.
TEST(products_can_be_thrown_away_beside_the_pump_thread)
{
    fake_reset();
    sumi_engine_desc ed = cuda_desc();
    ed.max_slice_us = 20;
    ed.pump = SUMI_PUMP_THREAD;
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    fake_complete_after(1);
    sumi_image_desc desc = small_image(model, &s_item);
    const uint64_t whole = draw_hash(engine, &desc);
    for (int i = 0; i < 6; i++) {
        sumi_model_desc md = sumi_model_defaults();
        md.path = MODEL_PATH;
        sumi_job load, image;
        sumi_image_desc longer = desc;
        longer.step_count = 60; // still running when the discard comes
        CHECK_NUMBER(sumi_submit_model(engine, &md, &load), SUMI_OK);
        CHECK_NUMBER(sumi_submit_images(engine, &longer, &image), SUMI_OK);
        if (i % 2 == 0) CHECK_NUMBER(run_to_end(engine, load), SUMI_OK);
        sumi_job_discard(engine, load);
        CHECK_NUMBER(run_to_end(engine, image), SUMI_OK);
        sumi_job_discard(engine, image);
    }
    CHECK(whole != 0 && draw_hash(engine, &desc) == whole);
    close_cuda(engine);
}

// ---- The driver refuses ---------------------------------------------------------------------------------------------

// Engines are made until none of their allocations fails; models are loaded until none of theirs does.
TEST(the_nth_allocation_of_an_engine_may_fail)
{
    bool fails = true;
    for (int nth = 1; fails && nth < 50; nth++) {
        fake_reset();
        sumi_engine_desc ed = cuda_desc();
        sumi_engine* engine = NULL;
        fake_fail_allocation(nth);
        const sumi_result result = sumi_engine_create(&ed, &engine);
        fails = fake_fail_allocation(0);
        CHECK_NUMBER(result, fails ? SUMI_OUT_OF_DEVICE_MEMORY : SUMI_OK);
        CHECK((engine == NULL) == fails);
        close_cuda(engine);
    }
    CHECK(!fails);
}

TEST(the_nth_allocation_of_a_load_and_an_image_may_fail)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = quick_image(model);
    desc.preview_every = 1;
    const uint64_t whole = draw_hash(engine, &desc);
    bool fails = true;
    int nth = 1, failures = 0;
    for (; fails && nth < 200 && t_errors == 0; nth++) {
        sumi_model_close(model);
        CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 1), SUMI_OK); // everything idle goes
        CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
        fake_fail_allocation(nth);
        sumi_model_desc md = sumi_model_defaults();
        md.path = MODEL_PATH;
        sumi_job job;
        model = NULL;
        CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
        sumi_result result = run_to_end(engine, job);
        CHECK_NUMBER(sumi_fetch_model(engine, job, &model), result);
        if (result == SUMI_OK) {
            desc.model = model;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            result = run_to_end(engine, job);
            if (result != SUMI_OK) CHECK(sumi_job_poll(engine, job).message[0] != '\0');
            sumi_job_discard(engine, job);
        }
        fails = fake_fail_allocation(0);
        failures += result != SUMI_OK;
        // a smaller staging may do, too
        CHECK(fails ? result == SUMI_OK || result == SUMI_OUT_OF_DEVICE_MEMORY || result == SUMI_OUT_OF_HOST_MEMORY
                    : result == SUMI_OK);
        if (model == NULL) model = load_model(engine);
        CHECK(model != NULL);
        if (model == NULL) break;
        desc.model = model;
        CHECK(draw_hash(engine, &desc) == whole);
    }
    CHECK(!fails && nth > 6 && failures > 0); // not every failure is a job's: it may do with less
    printf("  %d allocations failed, %d times a job did\n", nth - 2, failures);
    close_cuda(engine);
}

// Entries that a job calls, but for those that give back or end something. One failure: the job may fail, the engine
// and what comes after it may not; unless the failure means a lost device.
TEST(the_nth_call_of_every_entry_may_fail)
{
    static const char* const s_entries[] = {"cuMemcpyHtoDAsync",
                                            "cuMemcpyDtoHAsync",
                                            "cuMemsetD32Async",
                                            "cuStreamBeginCapture",
                                            "cuGraphInstantiateWithFlags",
                                            "cuGraphUpload",
                                            "cuGraphLaunch",
                                            "cuLaunchKernel",
                                            "cuLaunchKernelEx",
                                            "cuEventCreate",
                                            "cuEventRecord",
                                            "cuEventQuery",
                                            "cuEventSynchronize",
                                            "cuEventElapsedTime",
                                            "cuStreamSynchronize",
                                            "cuModuleGetFunction",
                                            "cuMemFreeAsync",
                                            "cuFuncSetAttribute",
                                            "cuTensorMapEncodeTiled",
                                            "cuCtxPushCurrent"};
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = quick_image(model);
    desc.preview_every = 1;
    const uint64_t whole = draw_hash(engine, &desc);
    int failed_calls = 0, failed_jobs = 0, lost = 0;
    for (size_t e = 0; e < sizeof s_entries / sizeof *s_entries && engine != NULL; e++) {
        bool fails = true;
        for (int nth = 1; fails && nth < 4000 && t_errors == 0; nth += nth < 12 ? 1 : nth / 4) {
            CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
            fake_complete_after(nth % 3);
            fake_fail_call(s_entries[e], nth, 1); // CUDA_ERROR_INVALID_VALUE
            desc.step_count = 1 + nth % 6; // more plans than are kept: now one that is known, now one that is new
            sumi_job job;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            const sumi_result result = run_to_end(engine, job);
            CHECK(result == SUMI_OK || result == SUMI_INTERNAL || result == SUMI_DEVICE_LOST);
            if (result != SUMI_OK) CHECK(sumi_job_poll(engine, job).message[0] != '\0');
            sumi_job_discard(engine, job);
            fails = fake_fail_call(NULL, 0, 0);
            failed_calls += fails;
            failed_jobs += result != SUMI_OK;
            if (!fails) CHECK_NUMBER(result, SUMI_OK);
            if (result == SUMI_DEVICE_LOST) { // the engine says so from now on; a new one works
                lost++;
                CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
                CHECK_NUMBER(run_to_end(engine, job), SUMI_DEVICE_LOST);
                close_cuda(engine);
                fake_complete_after(0);
                engine = cuda_engine(20, &model);
                if (engine == NULL) return;
                desc.model = model;
            }
            desc.step_count = 2;
            const uint64_t hash = draw_hash(engine, &desc);
            CHECK(hash == whole);
            if (t_errors > 0) printf("  after call %d of %s\n", nth, s_entries[e]);
        }
    }
    CHECK(failed_calls > 100 && failed_jobs > 50);
    printf("  %d calls failed, %d jobs with them, %d times the device counted as lost\n", failed_calls, failed_jobs,
           lost);
    close_cuda(engine);
}

// Codes that the call should never return, or that say that the context is lost. The job goes on without what the call
// was for, or the device counts as lost, with a sentence that names the code.
TEST(an_unexpected_code_is_a_lost_device)
{
    static const char* const s_entries[] = {"cuLaunchKernel",     "cuLaunchKernelEx",    "cuGraphInstantiateWithFlags",
                                            "cuGraphUpload",      "cuGraphLaunch",       "cuStreamBeginCapture",
                                            "cuMemcpyHtoDAsync",  "cuMemcpyDtoHAsync",   "cuMemsetD32Async",
                                            "cuMemAlloc",         "cuMemHostAlloc",      "cuEventCreate",
                                            "cuEventRecord",      "cuEventQuery",        "cuEventSynchronize",
                                            "cuEventElapsedTime", "cuStreamSynchronize", "cuModuleGetFunction",
                                            "cuModuleLoadDataEx", "cuFuncSetAttribute",  "cuTensorMapEncodeTiled",
                                            "cuCtxPushCurrent"};
    static const int s_codes[] = {600, 715, 719, 999, 12345};
    int lost = 0, failed_calls = 0;
    for (size_t e = 0; e < sizeof s_entries / sizeof *s_entries; e++) {
        for (size_t c = 0; c < sizeof s_codes / sizeof *s_codes && t_errors == 0; c++) {
            const int nth = 1 + (int)(e + c) % 3 * 3;
            fake_reset();
            sumi_engine* engine = cuda_engine(20, NULL);
            if (engine == NULL) return;
            fake_complete_after(nth % 3);
            fake_fail_call(s_entries[e], nth, s_codes[c]); // while a model is loaded, or in the job after it
            sumi_model_desc md = sumi_model_defaults();
            md.path = MODEL_PATH;
            sumi_job job;
            sumi_model* model = NULL;
            CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
            sumi_result result = run_to_end(engine, job);
            if (result == SUMI_OK) {
                CHECK_NUMBER(sumi_fetch_model(engine, job, &model), SUMI_OK);
                const sumi_image_desc desc = quick_image(model);
                CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
                result = run_to_end(engine, job);
            }
            failed_calls += fake_fail_call(NULL, 0, 0);
            lost += result == SUMI_DEVICE_LOST;
            CHECK(result == SUMI_OK || result == SUMI_DEVICE_LOST);
            char number[16];
            snprintf(number, sizeof number, "(%d: ", s_codes[c]);
            const char* text = sumi_job_poll(engine, job).message;
            CHECK(result == SUMI_OK || (strstr(text, number) != NULL && strstr(text, "destroy the engine") != NULL));
            if (t_errors > 0) printf("  %s, call %d: %d, %s\n", s_entries[e], nth, (int)result, text);
            sumi_job_discard(engine, job);
            close_cuda(engine);
        }
    }
    CHECK(failed_calls > 60 && lost > 40);
    printf("  %d calls failed, %d times the device counted as lost\n", failed_calls, lost);
}

TEST(a_lost_device_is_reported_and_everything_comes_back)
{
    for (int stop = 1; stop < 400 && t_errors == 0; stop = stop * 3 / 2 + 1) {
        fake_reset();
        sumi_model* model;
        sumi_engine* engine = cuda_engine(20, &model);
        if (engine == NULL) return;
        fake_complete_after(3);
        sumi_image_desc desc = small_image(model, &s_item);
        desc.step_count = 4;
        desc.preview_every = 1;
        sumi_lora* lora = read_lora(engine, model, "lora_peft.safetensors");
        sumi_job job, queued, load;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &queued), SUMI_OK);
        const bool runs = run_updates(engine, job, stop);
        fake_lose_device();
        const sumi_result result = run_to_end(engine, job);
        CHECK_NUMBER(result, runs ? SUMI_DEVICE_LOST : SUMI_OK);
        if (runs) CHECK(sumi_job_poll(engine, job).message[0] != '\0');
        CHECK_NUMBER(run_to_end(engine, queued), SUMI_DEVICE_LOST);
        sumi_model_desc md = sumi_model_defaults();
        md.path = MODEL_PATH;
        CHECK_NUMBER(sumi_submit_model(engine, &md, &load), SUMI_OK);
        CHECK_NUMBER(run_to_end(engine, load), SUMI_DEVICE_LOST);
        if (stop % 2 == 0) sumi_lora_release(lora);
        if (stop % 3 == 0) sumi_model_close(model);
        close_cuda(engine);
        if (!runs) break;
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
#ifdef __SANITIZE_THREAD__
    const bool has_time = false; // hundreds of lives on one thread: minutes there, and no second thread to race with
#else
    const bool has_time = true;
#endif
    if (has_time) {
        RUN(every_job_can_be_cancelled_after_every_step);
        RUN(a_running_job_does_not_notice_what_others_release);
        RUN(the_nth_allocation_of_an_engine_may_fail);
        RUN(the_nth_allocation_of_a_load_and_an_image_may_fail);
        RUN(the_nth_call_of_every_entry_may_fail);
        RUN(an_unexpected_code_is_a_lost_device);
        RUN(a_lost_device_is_reported_and_everything_comes_back);
    }
    RUN(a_job_can_be_paused_after_every_step);
    RUN(a_job_can_be_made_to_stop_after_every_step);
    RUN(the_first_load_can_be_cancelled_and_left);
    RUN(an_engine_can_go_while_slices_are_on_their_way);
    RUN(products_can_be_thrown_away_beside_the_pump_thread);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
