// Jobs that follow each other on a GPU, on the fake driver (fake_cuda): the next one's slices are submitted while
// the last of the one before are in flight, and nobody gets the other's results. Kernels do nothing there, so a
// picture's latents are its noise.
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/state.h"
#include "cuda_fixture.h"
#include "fake_cuda.h"
#include "jobs/engine_state.h"

#define VALUES (16 * 4 * 4)

// The k-th picture of a row: all have another seed, some another text of the same length, another number of steps,
// previews.
typedef struct wanted {
    sumi_image_item item;
    sumi_image_desc desc;
    float latents[VALUES];
} wanted;

static void want(wanted* w, sumi_model* model, int k, bool mixed)
{
    static const char* const s_texts[2] = {"a red fox", "a red cat"};
    w->item = (sumi_image_item){.text = s_texts[k % 2], .seed = 100 + (uint64_t)k};
    w->desc = small_image(model, &w->item);
    w->desc.step_count = mixed ? 2 + k % 3 : 3;
    w->desc.preview_every = mixed && k % 2 == 1 ? 1 : 0;
}

static void draw_alone(sumi_engine* engine, wanted* w)
{
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &w->desc, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    CHECK_NUMBER(sumi_job_latents(engine, job, 0, w->latents, VALUES), SUMI_OK);
    sumi_job_discard(engine, job);
}

static void check_latents(sumi_engine* engine, sumi_job job, const wanted* w)
{
    float latents[VALUES];
    CHECK_NUMBER(sumi_job_latents(engine, job, 0, latents, VALUES), SUMI_OK);
    CHECK(memcmp(latents, w->latents, sizeof latents) == 0);
}

// The oldest slice that is in flight ends, and no other: a runner may wait for more.
static void end_oldest(sumi_engine* engine)
{
    sumi_cuda* cuda = (sumi_cuda*)engine->runner;
    sumi_cuda_scope scope;
    if (cuda->flight_count == 0) return;
    const sumi_cuda_flight* flight = &cuda->flights[cuda->flight_first];
    CHECK(sumi_cuda_enter(&cuda->device, &scope, NULL) == SUMI_OK);
    CHECK(cuda->device.driver.cuEventSynchronize(flight->end) == CUDA_SUCCESS);
    if (flight->last_fetch >= 0)
        CHECK(cuda->device.driver.cuEventSynchronize(flight->plan->mirrors[flight->last_fetch].event) == CUDA_SUCCESS);
    sumi_cuda_leave(&cuda->device, &scope);
}

TEST(a_queue_keeps_the_device_fed)
{
    static wanted s_w[8];
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    for (int k = 0; k < 8; k++) want(&s_w[k], model, k, false), draw_alone(engine, &s_w[k]);
    sumi_job jobs[8];
    fake_complete_after(1000000);
    for (int k = 0; k < 8; k++) CHECK_NUMBER(sumi_submit_images(engine, &s_w[k].desc, &jobs[k]), SUMI_OK);
    // As little is finished as lets the work go on: then something is in flight whenever the host looks.
    int empty = 0, beside = 0, begun = 0;
    for (int i = 0; i < 20000 && sumi_job_poll(engine, jobs[7]).state < SUMI_JOB_DONE; i++) {
        for (int k = 0; k < 50; k++) sumi_engine_update(engine, 400);
        const bool is_last =
            sumi_job_poll(engine, jobs[7]).state == SUMI_JOB_RUNNING && engine->runs.current.is_submitted;
        begun += engine->runs.current.pending_count > 0;
        empty += engine->runs.current.pending_count + engine->runs.draining.pending_count == 0 && begun > 0 && !is_last
              && sumi_job_poll(engine, jobs[7]).state < SUMI_JOB_DONE;
        beside += engine->jobs.draining != NULL && engine->runs.draining.pending_count > 0
               && engine->runs.current.pending_count > 0;
        if (beside > 0 && engine->jobs.draining != NULL)
            CHECK_NUMBER(sumi_job_poll(engine, jobs[7]).state == SUMI_JOB_DONE, 0);
        CHECK(engine->runs.current.pending_us + engine->runs.draining.pending_us <= 400.0 + 1e-3
              || engine->runs.current.pending_count + engine->runs.draining.pending_count == 1);
        if (engine->runs.current.pending_count > 0) end_oldest(engine);
        else fake_finish();
    }
    for (int k = 0; k < 8; k++) {
        CHECK_NUMBER(sumi_job_poll(engine, jobs[k]).result, SUMI_OK);
        check_latents(engine, jobs[k], &s_w[k]);
        CHECK_NUMBER(sumi_job_poll(engine, jobs[k]).step, 3);
        sumi_job_discard(engine, jobs[k]);
    }
    printf("  %d looks, %d with nothing on its way, %d with slices of two jobs\n", begun, empty, beside);
    CHECK(empty == 0 && beside >= 7);
    close_cuda(engine);
}

// Whatever follows whatever: pictures of other shapes, prompts, encodings, loads.
TEST(every_job_gets_its_own_results)
{
    static wanted s_w[10];
    for (int pump = 0; pump < 2; pump++) {
        for (int late = 0; late < 4; late++) {
            fake_reset();
            sumi_model* model;
            sumi_engine* engine = cuda_engine_with(pump == 1 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE, 20, &model);
            if (engine == NULL) return;
            uint8_t grey[32 * 32] = {0};
            sumi_pixels pixels = {grey, 32, 32, 0, 1};
            sumi_encode_desc ed = sumi_encode_defaults(model);
            ed.image = &pixels;
            ed.width = ed.height = 32;
            sumi_prompt_desc pd = sumi_prompt_defaults(model);
            pd.text = "a lighthouse";
            sumi_model_desc md = sumi_model_defaults();
            md.path = MODEL_PATH;
            for (int k = 0; k < 10; k++) want(&s_w[k], model, k, true), draw_alone(engine, &s_w[k]);
            fake_complete_after(late == 3 ? 40 : late);
            sumi_job jobs[10], encode, prompt, load;
            for (int k = 0; k < 10; k++) {
                CHECK_NUMBER(sumi_submit_images(engine, &s_w[k].desc, &jobs[k]), SUMI_OK);
                if (k == 3) CHECK_NUMBER(sumi_submit_encode(engine, &ed, &encode), SUMI_OK);
                if (k == 5) CHECK_NUMBER(sumi_submit_prompt(engine, &pd, &prompt), SUMI_OK);
                if (k == 7) CHECK_NUMBER(sumi_submit_model(engine, &md, &load), SUMI_OK);
            }
            for (int k = 0; k < 10; k++) {
                CHECK_NUMBER(run_to_end(engine, jobs[k]), SUMI_OK);
                const sumi_job_status status = sumi_job_poll(engine, jobs[k]);
                CHECK_NUMBER(status.step, s_w[k].desc.step_count);
                CHECK_NUMBER(status.preview_version, s_w[k].desc.preview_every > 0 ? s_w[k].desc.step_count : 0);
                check_latents(engine, jobs[k], &s_w[k]);
                sumi_image image;
                CHECK_NUMBER(sumi_fetch_images(engine, jobs[k], &image, 1), SUMI_OK);
                sumi_images_release(engine, &image, 1);
            }
            static float s_latents[VALUES];
            sumi_prompt* made = NULL;
            sumi_model* other = NULL;
            CHECK_NUMBER(run_to_end(engine, encode), SUMI_OK);
            CHECK_NUMBER(sumi_fetch_latents(engine, encode, s_latents, VALUES), SUMI_OK);
            CHECK_NUMBER(run_to_end(engine, prompt), SUMI_OK);
            CHECK_NUMBER(sumi_fetch_prompt(engine, prompt, &made), SUMI_OK);
            CHECK_NUMBER(run_to_end(engine, load), SUMI_OK);
            CHECK_NUMBER(sumi_fetch_model(engine, load, &other), SUMI_OK);
            sumi_prompt_release(made);
            close_cuda(engine);
        }
    }
}

// A frame, and one slice that is over.
static void drive(sumi_engine* engine)
{
    sumi_engine_update(engine, 400);
    end_oldest(engine);
}

// Three jobs; while the first or the second is leaving, or shortly after, one of them is cancelled or discarded, and
// something that nobody uses is taken away. The others come to their end with their own pictures.
TEST(any_of_them_can_go_at_any_moment)
{
    static wanted s_w[3];
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    for (int k = 0; k < 3; k++) want(&s_w[k], model, k, false), draw_alone(engine, &s_w[k]);
    int beside = 0, left = 0, number = 0;
    for (int victim = 0; victim < 12 && t_errors == 0; victim++) {
        const int k = victim % 3, leaver = victim / 3 % 2;
        s_w[1].desc.preview_every =
            victim / 6; // a plan of its own: the second one can only begin when the first is over
        for (int more = 0; more < 24 && t_errors == 0; more += victim / 6 + 1, number++) {
            fake_complete_after(1000000);
            sumi_job jobs[3];
            for (int i = 0; i < 3; i++) CHECK_NUMBER(sumi_submit_images(engine, &s_w[i].desc, &jobs[i]), SUMI_OK);
            while ((engine->jobs.draining == NULL || engine->jobs.draining->id != jobs[leaver].id)
                   && sumi_job_poll(engine, jobs[leaver]).state < SUMI_JOB_DONE)
                drive(engine);
            for (int i = 0; i < more; i++) {
                sumi_engine_update(engine, number % 3 == 0 ? 1 : 200);
                if (i % 4 == 3) end_oldest(engine);
            }
            beside += engine->jobs.draining != NULL && engine->runs.current.entry != NULL;
            left += engine->jobs.draining != NULL && engine->jobs.draining->id == jobs[k].id;
            if (number % 2 == 0) sumi_job_cancel(engine, jobs[k]);
            else sumi_job_discard(engine, jobs[k]);
            if (number % 5 == 1) CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
            if (number % 7 == 2) {
                sumi_lora* lora = read_lora(engine, model, "lora_peft.safetensors");
                sumi_lora_release(lora);
            }
            fake_complete_after(number % 3);
            if (number % 4 == 0) fake_finish();
            for (int other = 0; other < 3; other++) {
                if (other == k && number % 2 == 1) continue;
                const sumi_result result = run_to_end(engine, jobs[other]);
                CHECK(result == SUMI_OK || (other == k && result == SUMI_CANCELLED));
                if (result == SUMI_OK) check_latents(engine, jobs[other], &s_w[other]);
                sumi_job_discard(engine, jobs[other]);
            }
            CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
            CHECK(engine->jobs.running == NULL && engine->jobs.draining == NULL && !engine->jobs.has_running);
            CHECK_NUMBER(fake_violations(), 0);
            if (t_errors > 0) printf("  %d updates after job %d was leaving, job %d went\n", more, leaver, k);
        }
    }
    printf("  of %d times %d while a job was leaving beside another, %d while the one that went was\n", number, beside,
           left);
    CHECK(beside > 20 && left > 20);
    close_cuda(engine);
}

TEST(an_engine_is_destroyed_while_two_jobs_are_in_flight)
{
    static wanted s_w[3];
    for (int how = 0; how < 4; how++) {
        for (int stop = 1; stop < 60; stop += 11) {
            fake_reset();
            sumi_model* model;
            sumi_engine* engine = cuda_engine(20, &model);
            if (engine == NULL) return;
            sumi_job jobs[3];
            for (int k = 0; k < 3; k++) want(&s_w[k], model, k, false);
            draw_alone(engine, &s_w[0]);
            fake_complete_after(1000000);
            for (int k = 0; k < 3; k++) CHECK_NUMBER(sumi_submit_images(engine, &s_w[k].desc, &jobs[k]), SUMI_OK);
            while (engine->jobs.draining == NULL && sumi_job_poll(engine, jobs[0]).state < SUMI_JOB_DONE) drive(engine);
            CHECK(engine->jobs.draining != NULL);
            for (int i = 0; i < stop; i++) sumi_engine_update(engine, 400);
            if (how == 1) sumi_model_close(model);
            if (how == 2) {
                fake_lose_device();
                for (int k = 0; k < 3; k++) CHECK_NUMBER(run_to_end(engine, jobs[k]), SUMI_DEVICE_LOST);
            }
            if (how == 3) {
                sumi_job_discard(engine, jobs[0]);
                fake_lose_device();
                for (int k = 1; k < 3; k++) CHECK_NUMBER(run_to_end(engine, jobs[k]), SUMI_DEVICE_LOST);
            }
            close_cuda(engine);
        }
    }
}

// A call of the driver's that fails may fail the job before or the one after, never anything later.
TEST(the_nth_call_may_fail)
{
    static const char* const s_entries[] = {"cuMemcpyHtoDAsync",  "cuMemcpyDtoHAsync", "cuMemsetD32Async",
                                            "cuGraphLaunch",      "cuEventRecord",     "cuEventElapsedTime",
                                            "cuEventSynchronize", "cuCtxPushCurrent"};
    static wanted s_w[3];
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    for (int k = 0; k < 3; k++) want(&s_w[k], model, k, false), draw_alone(engine, &s_w[k]);
    int failed_calls = 0, failed_jobs = 0, lost = 0;
    for (size_t e = 0; e < sizeof s_entries / sizeof *s_entries; e++) {
        bool fails = true;
        for (int nth = 1; fails && nth < 4000 && t_errors == 0; nth += nth < 6 ? 1 : nth / 3) {
            fake_complete_after(nth % 4 * 3);
            sumi_job jobs[3];
            fake_fail_call(s_entries[e], nth, 1);
            for (int k = 0; k < 3; k++) CHECK_NUMBER(sumi_submit_images(engine, &s_w[k].desc, &jobs[k]), SUMI_OK);
            bool is_lost = false;
            for (int k = 0; k < 3; k++) {
                const sumi_result result = run_to_end(engine, jobs[k]);
                CHECK(result == SUMI_OK || result == SUMI_INTERNAL || result == SUMI_DEVICE_LOST);
                if (result == SUMI_OK) check_latents(engine, jobs[k], &s_w[k]);
                else CHECK(sumi_job_poll(engine, jobs[k]).message[0] != '\0');
                failed_jobs += result != SUMI_OK;
                is_lost = is_lost || result == SUMI_DEVICE_LOST;
                sumi_job_discard(engine, jobs[k]);
            }
            fails = fake_fail_call(NULL, 0, 0);
            failed_calls += fails;
            if (is_lost) {
                lost++;
                close_cuda(engine);
                fake_complete_after(0);
                engine = cuda_engine(20, &model);
                if (engine == NULL) return;
                for (int k = 0; k < 3; k++) want(&s_w[k], model, k, false);
            }
            draw_alone(engine, &s_w[0]);
            if (t_errors > 0) printf("  after call %d of %s\n", nth, s_entries[e]);
        }
    }
    printf("  %d calls failed, %d jobs with them, %d times the device counted as lost\n", failed_calls, failed_jobs,
           lost);
    CHECK(failed_calls > 60 && failed_jobs >= failed_calls / 2);
    close_cuda(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(a_queue_keeps_the_device_fed);
    RUN(every_job_gets_its_own_results);
    RUN(any_of_them_can_go_at_any_moment);
    RUN(an_engine_is_destroyed_while_two_jobs_are_in_flight);
    RUN(the_nth_call_may_fail);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
