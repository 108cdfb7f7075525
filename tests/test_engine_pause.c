// Jobs that are paused: queued ones, and running ones at every moment, while others run in between.
#include "jobs/engine_state.h"
#include "pause_fixture.h"

TEST(a_queued_job_is_passed_over)
{
    OPEN(engine, model);
    const sumi_image_desc desc = small_image(model, &s_item);
    const uint64_t want = draw_hash(engine, &desc);
    sumi_job jobs[3], listed[3];
    for (int i = 0; i < 3; i++) CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
    CHECK_NUMBER(sumi_job_pause(engine, jobs[0], true), SUMI_OK);
    CHECK_NUMBER(sumi_job_pause(engine, jobs[0], true), SUMI_OK); // twice changes nothing
    CHECK_NUMBER(sumi_job_pause(engine, jobs[1], false), SUMI_OK);
    CHECK(sumi_job_poll(engine, jobs[0]).paused && !sumi_job_poll(engine, jobs[1]).paused);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[1]).jobs_ahead, 0);
    CHECK_NUMBER(sumi_job_list(engine, listed, 3), 3);
    CHECK(listed[0].id == jobs[0].id); // it keeps its place
    CHECK(hash_now(engine, jobs[1], &desc) == want);
    CHECK_NUMBER(sumi_job_wait(engine, jobs[0], 5), SUMI_TIMEOUT); // which runs the third one
    CHECK_NUMBER(sumi_job_poll(engine, jobs[0]).state, SUMI_JOB_QUEUED);
    for (int i = 0; i < 1000; i++) sumi_engine_update(engine, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[0]).state, SUMI_JOB_QUEUED);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[2]).state, SUMI_JOB_DONE);
    CHECK_NUMBER(sumi_job_set_priority(engine, jobs[0], 3), SUMI_OK);
    CHECK_NUMBER(sumi_job_pause(engine, jobs[0], false), SUMI_OK);
    CHECK(hash_now(engine, jobs[0], &desc) == want && hash_now(engine, jobs[2], &desc) == want);
    CHECK_NUMBER(sumi_job_pause(engine, jobs[0], true), SUMI_STALE_HANDLE);
    CHECK_NUMBER(sumi_job_pause(NULL, jobs[0], true), SUMI_INVALID_ARGUMENT);
    sumi_model_close(model);
    close_engine(engine);
}

// How many of the smallest updates the job takes here; faster machines need fewer.
static int count_updates(sumi_engine* engine, const sumi_image_desc* desc, uint64_t want)
{
    sumi_job job;
    int updates = 0;
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    for (; sumi_job_poll(engine, job).state < SUMI_JOB_DONE && updates < 1000000; updates++)
        sumi_engine_update(engine, 1);
    CHECK(hash_now(engine, job, desc) == want);
    return updates;
}

TEST(a_running_job_gives_way_and_keeps_its_bits)
{
    static const sumi_solver s_solvers[] = {SUMI_SOLVER_HEUN,         SUMI_SOLVER_EULER,     SUMI_SOLVER_MIDPOINT,
                                            SUMI_SOLVER_DPMPP_2M,     SUMI_SOLVER_HEUN_FULL, SUMI_SOLVER_RK4,
                                            SUMI_SOLVER_RES_MULTISTEP};
    static uint8_t s_black_and_white[32 * 32];
    memset(s_black_and_white, 255, sizeof s_black_and_white / 2);
    const sumi_pixels mask = {s_black_and_white, 32, 32, 0, 1};
    OPEN_WITH(100, engine, model);
    const sumi_image_desc other = small_image(model, &s_item);
    const uint64_t want_other = draw_hash(engine, &other);
    for (size_t s = 0; s < sizeof s_solvers / sizeof *s_solvers; s++) {
        sumi_image_desc desc;
        rich_image(&desc, model);
        desc.solver = s_solvers[s];
        desc.step_count = 4;
        desc.preview_every = s % 2;
        if (s == 1) desc.start.mask = &mask;
        if (s > 2) desc.start.image = NULL, desc.start.strength = 1.0f;
        const uint64_t want = draw_hash(engine, &desc);
        CHECK(want != 0);
        int updates = 0;
        // behind nearly every update for the first solver, at a dozen moments for the others
        const int count = count_updates(engine, &desc, want), distance = 1 + count / (s == 0 ? 50 : 12);
        const paused_drawing drawing = {engine, &desc, &other, want, want_other};
        int kept = 0;
        while (draw_with_pause(&drawing, updates, &kept) && t_errors == 0) updates += distance;
        CHECK(kept > 0);
    }
    sumi_model_close(model);
    close_engine(engine);
}

TEST(a_job_may_be_paused_again_and_again)
{
    OPEN_WITH(200, engine, model);
    sumi_image_desc desc;
    rich_image(&desc, model);
    const uint64_t want = draw_hash(engine, &desc);
    int pauses = 0;
    for (int period = 1; period < 40; period += 3) {
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        int step = 0;
        for (int i = 0; sumi_job_poll(engine, job).state < SUMI_JOB_DONE && i < 100000; i++) {
            // until it has gone on by a step: pauses during what is repeated would never let it get anywhere
            if (i % period == 0 && sumi_job_poll(engine, job).step > step) {
                step = sumi_job_poll(engine, job).step;
                pauses += sumi_job_pause(engine, job, true) == SUMI_OK;
            }
            sumi_engine_update(engine, 1);
            if (i % 7 == 0) (void)sumi_job_pause(engine, job, false); // perhaps before it has given way
        }
        CHECK(hash_now(engine, job, &desc) == want);
    }
    CHECK(pauses > 10);
    sumi_model_close(model);
    close_engine(engine);
}

TEST(a_paused_job_tells_the_latents_of_its_step)
{
    enum { COUNT = 16 * 4 * 4, STEPS = 4 };
    static float s_paused[STEPS * 2 * COUNT], s_whole[COUNT];
    static const float s_sigmas[STEPS + 1] = {1.0f, 0.8f, 0.55f, 0.2f, 0.0f};
    OPEN_WITH(1, engine, model);
    sumi_image_item items[2] = {s_item, s_item};
    items[1].seed++;
    sumi_image_desc desc = small_image(model, items);
    desc.item_count = 2;
    desc.step_count = STEPS;
    desc.sigmas = s_sigmas;
    CHECK(draw_by_steps(engine, &desc, s_paused, COUNT));
    for (int step = 1; step < STEPS; step++) { // a job of these steps alone ends with the same latents
        sumi_job job;
        desc.step_count = step;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
        for (int32_t i = 0; i < 2; i++) {
            CHECK_NUMBER(sumi_job_latents(engine, job, i, s_whole, COUNT), SUMI_OK);
            CHECK(memcmp(s_whole, s_paused + (step * 2 + i) * COUNT, sizeof s_whole) == 0);
        }
        sumi_job_discard(engine, job);
    }
    sumi_job job; // one that waits in the queue has none
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_pause(engine, job, true), SUMI_OK);
    CHECK_NUMBER(sumi_job_latents(engine, job, 0, s_whole, COUNT), SUMI_WRONG_STATE);
    sumi_job_discard(engine, job);
    sumi_model_close(model);
    close_engine(engine);
}

TEST(prompts_and_encodings_begin_anew_and_loads_go_on)
{
    OPEN_WITH(100, engine, model);
    sumi_prompt* want = encode_prompt(engine, model, "a lighthouse at dusk");
    static unsigned char s_bytes[2][1 << 20];
    const size_t size = sumi_prompt_save(want, s_bytes[0], sizeof s_bytes[0]);
    sumi_prompt_desc pd = sumi_prompt_defaults(model);
    pd.text = "a lighthouse at dusk";
    for (int updates = 1; updates < 12; updates++) {
        sumi_job job;
        sumi_prompt* prompt = NULL;
        CHECK_NUMBER(sumi_submit_prompt(engine, &pd, &job), SUMI_OK);
        for (int i = 0; i < updates; i++) sumi_engine_update(engine, 1);
        const bool is_paused = sumi_job_pause(engine, job, true) == SUMI_OK;
        sumi_engine_update(engine, SUMI_FOREVER);
        const bool gave_way = sumi_job_poll(engine, job).state == SUMI_JOB_QUEUED; // not at its end
        CHECK(gave_way || !is_paused || sumi_job_poll(engine, job).state == SUMI_JOB_DONE);
        CHECK_NUMBER(sumi_job_pause(engine, job, false), gave_way ? SUMI_OK : SUMI_WRONG_STATE);
        CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
        CHECK_NUMBER(sumi_fetch_prompt(engine, job, &prompt), SUMI_OK);
        CHECK(sumi_prompt_save(prompt, s_bytes[1], sizeof s_bytes[1]) == size
              && memcmp(s_bytes[0], s_bytes[1], size) == 0);
        sumi_prompt_release(prompt);
    }
    sumi_prompt_release(want);
    sumi_model_desc md = sumi_model_defaults();
    md.path = MODEL_PATH;
    sumi_job load;
    CHECK_NUMBER(sumi_submit_model(engine, &md, &load), SUMI_OK);
    CHECK_NUMBER(sumi_job_pause(engine, load, true), SUMI_OK); // it is queued
    sumi_engine_update(engine, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_poll(engine, load).state, SUMI_JOB_QUEUED);
    CHECK_NUMBER(sumi_job_pause(engine, load, false), SUMI_OK);
    sumi_engine_update(engine, 1);
    CHECK_NUMBER(sumi_job_poll(engine, load).state, SUMI_JOB_RUNNING);
    CHECK_NUMBER(sumi_job_pause(engine, load, true), SUMI_WRONG_STATE);
    sumi_job_discard(engine, load);
    sumi_model_close(model);
    close_engine(engine);
}

// A job of encoded prompts has read no text after its first turn, so it has done nothing yet.
static sumi_job submit_encoded(sumi_engine* engine, sumi_model* model, const sumi_prompt* prompt, int32_t priority)
{
    const sumi_image_item item = {.prompt = prompt, .seed = 7};
    sumi_image_desc desc = small_image(model, &item);
    desc.priority = priority;
    sumi_job job = {0};
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    return job;
}

// Releases a prompt while its job is queued, running or paused. A prompt that is loaded afterwards has the memory of
// one that nobody uses any more.
TEST(a_prompt_is_released_before_its_job_has_ended)
{
    OPEN_WITH(100, engine, model);
    sumi_prompt* const prompts[2] = {encode_prompt(engine, model, "a lighthouse at dusk"),
                                     encode_prompt(engine, model, "a red fox in the snow")};
    static unsigned char s_saved[2][64 * 1024];
    size_t bytes[2];
    for (int i = 0; i < 2; i++) bytes[i] = sumi_prompt_save(prompts[i], s_saved[i], sizeof s_saved[i]);
    sumi_image_item item = {.prompt = prompts[0], .seed = 7};
    sumi_image_desc desc = small_image(model, &item);
    const uint64_t want = draw_hash(engine, &desc);
    const int updates = count_updates(engine, &desc, want);
    sumi_prompt_release(prompts[0]), sumi_prompt_release(prompts[1]);
    for (int run = 0; run < 12; run++) {
        sumi_prompt *prompt = NULL, *other = NULL;
        sumi_job job;
        CHECK_NUMBER(sumi_prompt_load(model, s_saved[0], bytes[0], &prompt), SUMI_OK);
        item.prompt = prompt;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        const bool pauses = run % 2 == 1;
        for (int i = 0; i < updates * (run / 2) / 6; i++) sumi_engine_update(engine, 1);
        if (pauses) CHECK_NUMBER(sumi_job_pause(engine, job, true), SUMI_OK);
        for (int i = 0; i < updates && pauses && !sumi_job_poll(engine, job).paused; i++) sumi_engine_update(engine, 1);
        const sumi_job_status status = sumi_job_poll(engine, job);
        CHECK(status.state < SUMI_JOB_DONE && status.paused == pauses);
        sumi_prompt_release(prompt);
        CHECK_NUMBER(sumi_prompt_load(model, s_saved[1], bytes[1], &other), SUMI_OK);
        CHECK(other != prompt);
        if (run == 11) { // whoever gives a job up frees the prompt too
            give_up(engine, job, true);
        } else {
            if (pauses) CHECK_NUMBER(sumi_job_pause(engine, job, false), SUMI_OK);
            CHECK(hash_now(engine, job, &desc) == want);
        }
        sumi_prompt_release(other);
    }
    CHECK(engine->prompts == NULL);
    sumi_model_close(model);
    close_engine(engine);
}

static void check_refusal(sumi_engine* engine, sumi_result result, const char* words)
{
    char text[512];
    CHECK_NUMBER(result, SUMI_WRONG_STATE);
    CHECK_NUMBER(sumi_engine_last_error(engine, text, sizeof text), SUMI_WRONG_STATE);
    CHECK(strstr(text, words) != NULL && strstr(text, "fetch by kind") == NULL);
    if (strstr(text, words) == NULL) printf("  %s\n", text);
}

TEST(a_running_job_that_has_done_nothing_goes_back)
{
    OPEN_WITH(200, engine, model);
    sumi_prompt* prompt = encode_prompt(engine, model, "a lighthouse at dusk");
    const sumi_image_item item = {.prompt = prompt, .seed = 7};
    const sumi_image_desc desc = small_image(model, &item);
    const uint64_t want = draw_hash(engine, &desc);
    const sumi_job first = submit_encoded(engine, model, prompt, 1), second = submit_encoded(engine, model, prompt, 0);
    sumi_engine_update(engine, 1);
    CHECK_NUMBER(sumi_job_poll(engine, first).state, SUMI_JOB_RUNNING);
    CHECK_NUMBER(sumi_job_set_priority(engine, first, 0), SUMI_OK); // still before the second, which is younger
    sumi_engine_update(engine, 1);
    CHECK_NUMBER(sumi_job_poll(engine, first).state, SUMI_JOB_RUNNING);
    check_refusal(engine, sumi_job_set_priority(engine, first, -1), "has begun"); // it has a plan now
    CHECK(hash_now(engine, first, &desc) == want);
    const sumi_job third = submit_encoded(engine, model, prompt, 0);
    sumi_engine_update(engine, 1);
    CHECK_NUMBER(sumi_job_poll(engine, second).state, SUMI_JOB_RUNNING);
    CHECK_NUMBER(sumi_job_set_priority(engine, second, -1), SUMI_OK);
    sumi_engine_update(engine, 1);
    CHECK_NUMBER(sumi_job_poll(engine, second).state, SUMI_JOB_QUEUED);
    CHECK_NUMBER(sumi_job_poll(engine, second).stage, SUMI_STAGE_WAIT);
    CHECK_NUMBER(sumi_job_poll(engine, second).jobs_ahead, 1);
    CHECK_NUMBER(sumi_job_set_priority(engine, second, 5), SUMI_OK);
    CHECK_NUMBER(sumi_job_set_priority(engine, second, -5), SUMI_OK); // and so on: it is queued
    CHECK(hash_now(engine, third, &desc) == want);
    CHECK(sumi_job_poll(engine, second).state < SUMI_JOB_DONE);
    CHECK(hash_now(engine, second, &desc) == want);
    sumi_prompt_release(prompt);
    sumi_model_close(model);
    close_engine(engine);
}

// The update that ends a job begins no other one, however much of its budget is left.
TEST(the_queue_can_be_changed_where_a_job_ends)
{
    OPEN(engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    const uint64_t want = draw_hash(engine, &desc);
    sumi_job jobs[4];
    for (int i = 0; i < 3; i++) CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
    jobs[3] = submit_kind(engine, model, 0);
    int32_t frames = 0;
    while (sumi_job_poll(engine, jobs[0]).state < SUMI_JOB_DONE && count_frame(&frames))
        sumi_engine_update(engine, 1000000000);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[1]).state, SUMI_JOB_QUEUED);
    CHECK_NUMBER(sumi_job_set_priority(engine, jobs[1], -1), SUMI_OK);
    CHECK_NUMBER(sumi_job_set_priority(engine, jobs[3], 1), SUMI_OK);
    while (sumi_job_poll(engine, jobs[3]).state < SUMI_JOB_DONE && count_frame(&frames))
        sumi_engine_update(engine, 1000000000);
    CHECK_NUMBER(sumi_job_pause(engine, jobs[2], true), SUMI_OK);
    CHECK(hash_now(engine, jobs[1], &desc) == want);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[2]).state, SUMI_JOB_QUEUED);
    CHECK_NUMBER(sumi_job_pause(engine, jobs[2], false), SUMI_OK);
    CHECK(hash_now(engine, jobs[2], &desc) == want && hash_now(engine, jobs[0], &desc) == want);
    sumi_job_discard(engine, jobs[3]);
    sumi_model_close(model);
    close_engine(engine);
}

TEST(a_refusal_has_a_sentence_of_its_own)
{
    OPEN(engine, model);
    const sumi_image_desc desc = small_image(model, &s_item);
    sumi_job job, load = submit_kind(engine, model, 0);
    sumi_engine_update(engine, 1);
    CHECK_NUMBER(sumi_job_poll(engine, load).state, SUMI_JOB_RUNNING);
    check_refusal(engine, sumi_job_pause(engine, load, true), "has begun to load");
    CHECK_NUMBER(sumi_job_pause(engine, load, false), SUMI_OK);
    check_refusal(engine, sumi_job_set_priority(engine, load, 2), "a model job) has begun");
    CHECK_NUMBER(sumi_job_wait(engine, load, SUMI_FOREVER), SUMI_OK);
    check_refusal(engine, sumi_job_pause(engine, load, true), "has ended");
    check_refusal(engine, sumi_job_pause(engine, load, false), "has ended");
    check_refusal(engine, sumi_job_set_priority(engine, load, 2), "has ended");
    CHECK_NUMBER(s_host.log_result, SUMI_OK); // it is no error in the log
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_engine_update(engine, 1);
    check_refusal(engine, sumi_job_set_priority(engine, job, 2), "an image job) has begun"); // it has read its text
    sumi_job_discard(engine, job);
    sumi_job_discard(engine, load);
    sumi_model_close(model);
    close_engine(engine);
}

TEST(a_paused_job_can_be_cancelled_discarded_and_left)
{
    for (int way = 0; way < 4; way++) {
        OPEN_WITH(200, engine, model);
        sumi_image_desc desc;
        rich_image(&desc, model);
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        while (sumi_job_poll(engine, job).step < 1) sumi_engine_update(engine, 1);
        CHECK_NUMBER(sumi_job_pause(engine, job, true), SUMI_OK);
        while (sumi_job_poll(engine, job).state == SUMI_JOB_RUNNING) sumi_engine_update(engine, 1);
        CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_QUEUED);
        if (way == 0) sumi_job_cancel(engine, job);
        if (way == 1) sumi_job_discard(engine, job);
        if (way == 2) sumi_model_close(model);
        if (way == 0 || way == 2) {
            CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_CANCELLED);
            CHECK(!sumi_job_poll(engine, job).paused && sumi_job_poll(engine, job).message[0] != '\0');
        }
        if (way == 1) CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_NONE);
        if (way < 2) CHECK(draw_hash(engine, &desc) != 0); // the engine goes on
        close_engine(engine);
    }
}

// Without memory for what was done the job begins anew.
TEST(a_pause_without_memory_costs_only_time)
{
    OPEN_WITH(200, engine, model);
    sumi_image_desc desc;
    rich_image(&desc, model);
    const uint64_t want = draw_hash(engine, &desc);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    while (sumi_job_poll(engine, job).step < 1) sumi_engine_update(engine, 1);
    CHECK_NUMBER(sumi_job_pause(engine, job, true), SUMI_OK);
    atomic_store(&s_host.fail_at, atomic_load(&s_host.count) + 1);
    while (sumi_job_poll(engine, job).state == SUMI_JOB_RUNNING) sumi_engine_update(engine, 1);
    CHECK(atomic_load(&s_host.count) >= atomic_load(&s_host.fail_at));
    atomic_store(&s_host.fail_at, 0);
    CHECK_NUMBER(sumi_job_pause(engine, job, false), SUMI_OK);
    CHECK(hash_now(engine, job, &desc) == want);
    sumi_model_close(model);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(a_queued_job_is_passed_over);
    RUN(a_running_job_gives_way_and_keeps_its_bits);
    RUN(a_job_may_be_paused_again_and_again);
    RUN(a_paused_job_tells_the_latents_of_its_step);
    RUN(prompts_and_encodings_begin_anew_and_loads_go_on);
    RUN(a_prompt_is_released_before_its_job_has_ended);
    RUN(a_running_job_that_has_done_nothing_goes_back);
    RUN(the_queue_can_be_changed_where_a_job_ends);
    RUN(a_refusal_has_a_sentence_of_its_own);
    RUN(a_paused_job_can_be_cancelled_discarded_and_left);
    RUN(a_pause_without_memory_costs_only_time);
    TEST_END();
}
