// Step caching through the public functions: which evaluations are reused, and that nothing but the job decides it.
#include "engine_fixture.h"
#include "sampling/reuse.h"
#include <math.h>

#define STEPS 14
#define TINY 1e-7f         // nothing changes as little as that
#define LARGE_CHANGE 10.0f // everything does
#define SOME_DB 18.0f      // some of those of random weights are reused
#define SOME 0.04f         // some of the steps of smooth_image do

// ---- The rule -------------------------------------------------------------------------------------------------------

static bool allows(const sumi_reuse* reuse, float sigma)
{
    return sumi_reuse_allows(reuse, &(sumi_reuse_candidate){.sigma = sigma, .weight = 0.02f, .elapsed = 1.0f});
}

TEST(the_rule_predicts_the_change_from_the_one_before)
{
    sumi_reuse reuse;
    sumi_reuse_begin(&reuse, &(sumi_reuse_rule){.threshold = 0.1f});
    CHECK(!allows(&reuse, 0.9f)); // there is nothing to reuse
    sumi_reuse_note_whole(&reuse, 1.0f);
    sumi_reuse_note_change(&reuse, 5.0, 0.0); // there was nothing before it
    CHECK(!allows(&reuse, 0.99f));
    sumi_reuse_note_whole(&reuse, 0.9f);
    sumi_reuse_note_change(&reuse, 4.0, 100.0); // 0.4 per unit of sigma
    CHECK(allows(&reuse, 0.7f) && allows(&reuse, 0.66f) && !allows(&reuse, 0.64f));
    for (int i = 0; i < SUMI_REUSE_MOST; i++) {
        CHECK(allows(&reuse, 0.89f));
        sumi_reuse_note_reused(&reuse, &(sumi_reuse_candidate){.sigma = 0.89f});
    }
    CHECK(!allows(&reuse, 0.89f)); // enough in a row
    sumi_reuse_note_whole(&reuse, 0.7f);
    sumi_reuse_note_change(&reuse, 40.0, 100.0);
    CHECK(allows(&reuse, 0.66f) && !allows(&reuse, 0.64f));
    // a second evaluation at the same sigma says nothing about the speed
    sumi_reuse_note_whole(&reuse, 0.7f);
    sumi_reuse_note_change(&reuse, 90.0, 100.0);
    CHECK(allows(&reuse, 0.66f) && !allows(&reuse, 0.64f));
    sumi_reuse_note_whole(&reuse, SOME);
    sumi_reuse_note_change(&reuse, (double)NAN, 100.0);
    CHECK(!allows(&reuse, SOME));
    sumi_reuse_begin(&reuse, &(sumi_reuse_rule){.threshold = 0.0f});
    sumi_reuse_note_whole(&reuse, 1.0f);
    sumi_reuse_note_whole(&reuse, 0.9f);
    sumi_reuse_note_change(&reuse, 0.0, 100.0);
    CHECK(!allows(&reuse, 0.9f)); // off
}

// A job of 50 steps whose evaluations measure `error` per distance in sigma. Returns how many are reused, and what is
// predicted for the image.
static int32_t reused_with(float db, double error, float* out_db)
{
    sumi_reuse reuse;
    int32_t reused_count = 0;
    float whole_sigma = 1.0f;
    sumi_reuse_begin(&reuse, &(sumi_reuse_rule){.db = db});
    sumi_reuse_forget(&reuse, 0.5f);
    for (int i = 0; i < 50; i++) {
        const float sigma = 1.0f - 0.02f * (float)i;
        const sumi_reuse_candidate next = {.sigma = sigma, .weight = 0.02f, .elapsed = 1.02f - sigma};
        if (i > 0 && i < 49 && sumi_reuse_allows(&reuse, &next)) {
            CHECK(i > 2); // no error is known before
            sumi_reuse_note_reused(&reuse, &next);
            reused_count++;
            continue;
        }
        sumi_reuse_note_whole(&reuse, sigma);
        sumi_reuse_note_change(&reuse, (double)(whole_sigma - sigma), 1.0);
        sumi_reuse_note_error(&reuse, error * (double)(whole_sigma - sigma), 1.0);
        whole_sigma = sigma;
    }
    *out_db = sumi_reuse_db(&reuse);
    return reused_count;
}

TEST(a_target_in_db_is_predicted_to_be_kept)
{
    int32_t count_before = 0;
    float db_before = SUMI_REUSE_MOST_DB, got, half;
    for (float db = 90.0f; db > 20.0f; db -= 5.0f) {
        const int32_t count = reused_with(db, 0.5, &got);
        CHECK(got >= db && got <= db_before && count >= count_before); // the less is to be kept, the more is reused
        CHECK(count == 0 || got < SUMI_REUSE_MOST_DB);
        count_before = count;
        db_before = got;
    }
    CHECK(count_before > 30 && reused_with(SUMI_REUSE_MOST_DB, 0.5, &got) == 0 && got == SUMI_REUSE_MOST_DB);
    // half the error is 6 dB
    CHECK_NUMBER(reused_with(30.0f, 0.5, &got), reused_with(30.0f + 6.0206f, 0.25, &half));
    CHECK(fabsf(half - got - 6.0206f) < 0.01f);
    CHECK_NUMBER(reused_with(30.0f, (double)NAN, &got), 0); // not known
}

// The error of an interval is known when the whole evaluation at its end has ended, which may be later than the next
// evaluation was noted, as on a device.
TEST(errors_may_be_read_late)
{
    float db[2];
    for (int late = 0; late < 2; late++) {
        sumi_reuse reuse;
        sumi_reuse_begin(&reuse, &(sumi_reuse_rule){.every = 2});
        sumi_reuse_forget(&reuse, 0.5f);
        for (int i = 0; i < 20; i++) {
            const float sigma = 1.0f - 0.05f * (float)i;
            if (i > 1 && i % 2 == 0) {
                sumi_reuse_note_reused(&reuse, &(sumi_reuse_candidate){.sigma = sigma, .weight = 0.05f});
                continue;
            }
            if (late == 1) sumi_reuse_note_whole(&reuse, sigma);
            if (i > 0) sumi_reuse_note_error(&reuse, 0.01 * i * i, 1.0); // of the whole evaluation before this one
            if (late == 0) sumi_reuse_note_whole(&reuse, sigma);
            sumi_reuse_note_change(&reuse, 0.1, 1.0);
        }
        sumi_reuse_note_error(&reuse, 4.0, 1.0);
        db[late] = sumi_reuse_db(&reuse);
    }
    CHECK(db[0] == db[1] && db[0] > 0.0f && db[0] < SUMI_REUSE_MOST_DB);
}

// ---- Which evaluations ----------------------------------------------------------------------------------------------

typedef struct counts {
    int32_t evaluations, reused;
    uint64_t hash;
    float db;
} counts;

// Draws and returns what the last image says of its evaluations.
static counts draw_counts(sumi_engine* engine, const sumi_image_desc* desc)
{
    counts result = {-1, -1, 0, 0.0f};
    sumi_image images[4];
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    if (sumi_fetch_images(engine, job, images, 4) != SUMI_OK) return result;
    for (int32_t i = 0; i < desc->item_count; i++) {
        result = (counts){images[i].evaluation_count, images[i].reused_count, result.hash * 31 + hash_image(&images[i]),
                          images[i].predicted_db};
    }
    sumi_images_release(engine, images, desc->item_count);
    return result;
}

static sumi_image_desc long_image(sumi_model* model, const sumi_image_item* item)
{
    sumi_image_desc desc = small_image(model, item);
    desc.step_count = STEPS;
    return desc;
}

// The weights of the tiny models are random, so an evaluation changes smoothly only over very short steps. These become
// longer and longer.
static sumi_image_desc smooth_image(sumi_model* model, const sumi_image_item* item)
{
    static float s_sigmas[STEPS + 1];
    for (int i = 0; i <= STEPS; i++) s_sigmas[i] = 0.9f - 3e-6f * (float)(i * (i + 3));
    sumi_image_desc desc = long_image(model, item);
    desc.sigmas = s_sigmas;
    return desc;
}

static const sumi_image_item s_guided = {.text = "a red fox", .negative_text = "grey", .seed = 7};

// How many of `count` evaluations in a row are reused, if every change is small: the first two are whole, then every
// fourth, and the last if the job ends with it.
static int32_t most_reused(int32_t count, bool ends)
{
    int32_t reused = 0;
    for (int32_t i = 2, in_row = 0; i < count - ends; i++) {
        in_row = in_row < SUMI_REUSE_MOST ? in_row + 1 : 0;
        reused += in_row > 0;
    }
    return count >= 4 ? reused : 0;
}

TEST(nothing_is_reused_below_the_threshold_and_the_most_above_it)
{
    OPEN(engine, model);
    for (int guided = 0; guided < 2; guided++) {
        sumi_image_desc desc = long_image(model, &s_guided);
        desc.solver = SUMI_SOLVER_EULER;
        desc.guidance.scale = sumi_model_get_info(model).guidance_off + (guided ? 2.0f : 0.0f);
        desc.guidance.begin = 0.0f;
        desc.guidance.end = 1.0f;
        const counts off = draw_counts(engine, &desc);
        CHECK_NUMBER(off.evaluations, STEPS);
        CHECK_NUMBER(off.reused, 0);
        desc.step_cache = TINY;
        const counts none = draw_counts(engine, &desc);
        CHECK_NUMBER(none.evaluations, STEPS);
        CHECK_NUMBER(none.reused, 0);
        CHECK(none.hash == off.hash && off.hash != 0);
        desc.step_cache = LARGE_CHANGE;
        const counts most = draw_counts(engine, &desc);
        CHECK_NUMBER(most.evaluations, STEPS);
        CHECK_NUMBER(most.reused, most_reused(STEPS, true));
        CHECK(most.hash != off.hash && most.hash != 0);
        CHECK(draw_counts(engine, &desc).hash == most.hash);
    }
    close_engine(engine);
}

// Solvers of several evaluations in a step, a change of guidance, few steps, a start image.
TEST(the_first_and_the_last_step_are_whole)
{
    OPEN(engine, model);
    sumi_image_desc desc = long_image(model, &s_guided);
    desc.step_cache = LARGE_CHANGE;
    for (int32_t steps = 1; steps < 8; steps++) {
        desc.step_count = steps;
        const counts got = draw_counts(engine, &desc);
        CHECK_NUMBER(got.evaluations, steps);
        CHECK_NUMBER(got.reused, most_reused(steps, true));
    }
    desc.step_count = 7;
    desc.shift = 1.0f;
    desc.solver = SUMI_SOLVER_MIDPOINT;
    counts got = draw_counts(engine, &desc);
    CHECK_NUMBER(got.evaluations, 14);
    // two whole ones in the first step, and two in the last: w w rrr w rrr w r r w w
    CHECK_NUMBER(got.reused, 8);
    desc.solver = SUMI_SOLVER_EULER;
    desc.step_count = STEPS;
    desc.guidance.scale = 2.0f;
    desc.guidance.end = 0.52f;
    got = draw_counts(engine, &desc);
    // 1 - sigma is 0, 1/14 .. 13/14: guided up to 7/14
    CHECK_NUMBER(got.evaluations, STEPS);
    CHECK_NUMBER(got.reused, most_reused(8, false) + most_reused(6, true));
    static uint8_t s_pixels[32 * 32 * 3];
    const sumi_pixels start = {s_pixels, 32, 32, 0, 3};
    desc.guidance.scale = 0.0f;
    desc.start.image = &start;
    desc.start.strength = 0.5f;
    got = draw_counts(engine, &desc);
    CHECK_NUMBER(got.evaluations, STEPS / 2);
    CHECK_NUMBER(got.reused, most_reused(STEPS / 2, true));
    close_engine(engine);
}

// The first two evaluations are computed, every n-th after them, and the last.
TEST(a_fixed_schedule_computes_what_it_says)
{
    OPEN(engine, model);
    sumi_image_desc desc = long_image(model, &s_guided);
    for (int32_t every = 2; every <= 10; every += every < 5 ? 1 : 5) {
        int32_t whole = 2;
        for (int32_t i = 2; i < STEPS; i++) whole += (i - 1) % every == 0 || i == STEPS - 1;
        desc.step_cache_every = every;
        CHECK_NUMBER(draw_counts(engine, &desc).reused, STEPS - whole);
    }
    desc.step_cache_every = 4;
    const counts four = draw_counts(engine, &desc);
    desc.step_cache_every = 0;
    desc.step_cache = LARGE_CHANGE; // the same evaluations
    CHECK(draw_counts(engine, &desc).hash == four.hash);
    close_engine(engine);
}

TEST(thresholds_out_of_range_are_refused)
{
    static const float s_wrong[] = {-0.01f, 10.1f, NAN, INFINITY, -INFINITY};
    OPEN(engine, model);
    sumi_image_desc desc = long_image(model, &s_item);
    CHECK(desc.step_cache == 0.0f);
    for (size_t i = 0; i < sizeof s_wrong / sizeof *s_wrong; i++) {
        sumi_job job;
        desc.step_cache = s_wrong[i];
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
        CHECK(strstr(s_host.log, "step_cache") != NULL);
    }
    static const struct {
        float change, db;
        int32_t every;
        const char* says;
    } s_pairs[] = {{0.0f, -1.0f, 0, "step_cache_db is -1: give 0 (off)"},
                   {0.0f, 99.5f, 0, "step_cache_db is 99.5"},
                   {0.0f, NAN, 0, "step_cache_db"},
                   {0.0f, 0.0f, 1, "step_cache_every is 1: give 0 (off), or 2 to 10"},
                   {0.0f, 0.0f, 11, "step_cache_every is 11"},
                   {0.0f, 0.0f, -2, "step_cache_every is -2"},
                   {0.1f, 40.0f, 0, "give one of them"},
                   {0.1f, 0.0f, 3, "give one of them"},
                   {0.0f, 40.0f, 3, "give one of them"}};
    for (size_t i = 0; i < sizeof s_pairs / sizeof *s_pairs; i++) {
        sumi_job job;
        desc.step_cache = s_pairs[i].change;
        desc.step_cache_db = s_pairs[i].db;
        desc.step_cache_every = s_pairs[i].every;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
        CHECK(strstr(s_host.log, s_pairs[i].says) != NULL);
    }
    close_engine(engine);
}

// ---- The same bits --------------------------------------------------------------------------------------------------

TEST(slices_threads_and_paces_change_no_bit)
{
    counts first = {0, 0, 0, 0.0f};
    for (int i = 0; i < 6; i++) {
        memset(&s_host, 0, sizeof s_host);
        sumi_engine_desc ed = host_desc(&s_host);
        ed.max_slice_us = i == 1 ? 20 : i == 2 ? 300 : 2000;
        ed.cpu_thread_count = i == 3 ? 3 : 1;
        if (i == 4) ed.pump = SUMI_PUMP_THREAD;
        tasks_host loops = {0};
        const sumi_tasks tasks = {3, begin_task, finish_task, &loops};
        if (i == 5) ed.tasks = &tasks;
        sumi_model* model;
        sumi_engine* engine = open_engine(&ed, &model);
        CHECK(engine != NULL);
        if (engine == NULL) return;
        sumi_image_desc desc = smooth_image(model, &s_guided);
        desc.guidance.scale = 2.0f;
        desc.step_cache = SOME;
        desc.preview_every = i == 2 ? 1 : 0;
        desc.profile = i == 3;
        const counts got = draw_counts(engine, &desc);
        if (i == 0) {
            first = got;
            printf("  %d of %d reused\n", got.reused, got.evaluations);
            CHECK(got.reused > 0 && got.reused < most_reused(STEPS, true));
        }
        CHECK(got.hash == first.hash && got.reused == first.reused);
        close_engine(engine);
    }
}

// Every image decides for itself.
TEST(batches_are_their_images_one_by_one)
{
    OPEN(engine, model);
    const sumi_image_item items[3] = {{.text = "a red fox", .seed = 7},
                                      {.text = "a lighthouse at dusk", .seed = 8},
                                      {.text = "a red fox", .seed = 9}};
    sumi_image_desc desc = smooth_image(model, items);
    desc.step_cache = SOME;
    uint64_t hash = 0;
    for (int i = 0; i < 3; i++) {
        desc.items = &items[i];
        hash = hash * 31 + draw_counts(engine, &desc).hash;
    }
    desc.items = items;
    desc.item_count = 3;
    CHECK(draw_counts(engine, &desc).hash == hash);
    close_engine(engine);
}

TEST(the_memory_is_counted_and_kept_within)
{
    OPEN(engine, model);
    sumi_image_desc desc = long_image(model, &s_guided);
    desc.guidance.scale = 2.0f;
    sumi_memory plain, cached;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &plain), SUMI_OK);
    desc.step_cache = LARGE_CHANGE;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &cached), SUMI_OK);
    CHECK(cached.arena >= plain.arena);
    const counts free_counts = draw_counts(engine, &desc);
    close_engine(engine);
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc ed = host_desc(&s_host);
    ed.memory_budget_bytes = cached.needed;
    engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    desc.model = model;
    const counts got = draw_counts(engine, &desc);
    CHECK(got.hash == free_counts.hash && got.reused == free_counts.reused);
    // a warm job allocates nothing
    const long long count = s_host.count;
    CHECK(draw_counts(engine, &desc).hash == got.hash);
    CHECK_NUMBER(s_host.count, count);
    close_engine(engine);
}

// ---- While a job runs -----------------------------------------------------------------------------------------------

// A paused job goes on at its last whole evaluation, and reuses the same evaluations.
TEST(pauses_change_no_bit)
{
    static const sumi_solver s_solvers[] = {SUMI_SOLVER_EULER, SUMI_SOLVER_DPMPP_2M, SUMI_SOLVER_HEUN};
    OPEN_WITH(100, engine, model);
    const sumi_image_desc other = small_image(model, &s_item);
    int resumed = 0;
    for (size_t s = 0; s < sizeof s_solvers / sizeof *s_solvers; s++) {
        sumi_image_desc desc = s == 0 ? smooth_image(model, &s_guided) : long_image(model, &s_guided);
        desc.solver = s_solvers[s];
        desc.step_cache = s == 0 ? SOME : s == 1 ? 0.0f : LARGE_CHANGE;
        desc.step_cache_db = s == 1 ? SOME_DB : 0.0f;
        desc.guidance.scale = 2.0f;
        desc.guidance.end = s == 2 ? 0.5f : 1.0f;
        const counts want = draw_counts(engine, &desc);
        if (s == 1)
            printf("  %d of %d reused for %.0f dB, %.1f predicted\n", want.reused, want.evaluations, (double)SOME_DB,
                   (double)want.db);
        bool is_over = false;
        for (int updates = 5; !is_over && t_errors == 0; updates += s == 0 ? 7 : 31) {
            sumi_job job;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            for (int i = 0; i < updates; i++) sumi_engine_update(engine, 1);
            is_over = sumi_job_pause(engine, job, true) != SUMI_OK;
            CHECK(draw_hash(engine, &other) != 0);
            const sumi_job_status status = sumi_job_poll(engine, job);
            resumed += status.state == SUMI_JOB_QUEUED && status.step > 2;
            (void)sumi_job_pause(engine, job, false);
            CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
            sumi_image image;
            CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
            const bool is_same = hash_image(&image) == want.hash && image.evaluation_count == want.evaluations
                              && image.reused_count == want.reused && image.predicted_db == want.db;
            if (!is_same) printf("  solver %d: another image after a pause behind %d updates\n", (int)s, updates);
            CHECK(is_same);
            sumi_images_release(engine, &image, 1);
        }
    }
    CHECK(resumed > 3);
    close_engine(engine);
}

// Also while it repeats evaluations.
TEST(a_job_that_reuses_may_be_paused_again_and_again)
{
    OPEN_WITH(200, engine, model);
    sumi_image_desc desc = smooth_image(model, &s_guided);
    desc.guidance.scale = 2.0f;
    desc.step_cache = LARGE_CHANGE;
    const counts want = draw_counts(engine, &desc);
    int pauses = 0;
    for (int period = 1; period < 30; period += 3) {
        sumi_job job;
        int32_t step = 0;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        for (int i = 0; sumi_job_poll(engine, job).state < SUMI_JOB_DONE && i < 100000; i++) {
            const sumi_job_status status = sumi_job_poll(engine, job);
            // when it has gone on by a step, and sometimes before: then it repeats, or has not begun to
            if ((i % period == 0 && status.step > step) || i % 97 == 13) {
                step = status.step > step ? status.step : step;
                pauses += sumi_job_pause(engine, job, true) == SUMI_OK;
            }
            sumi_engine_update(engine, 1);
            if (i % 7 == 0) (void)sumi_job_pause(engine, job, false);
        }
        sumi_image image = {.reused_count = -1};
        CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
        CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
        CHECK(hash_image(&image) == want.hash && image.reused_count == want.reused);
        sumi_images_release(engine, &image, 1);
    }
    CHECK(pauses > 10);
    close_engine(engine);
}

TEST(progress_grows_and_a_job_may_be_cancelled_anywhere)
{
    OPEN_WITH(100, engine, model);
    sumi_image_desc desc = long_image(model, &s_guided);
    desc.step_cache = LARGE_CHANGE;
    bool is_over = false;
    for (int updates = 1; !is_over; updates += 13) {
        sumi_job job;
        float progress = 0.0f;
        int32_t step = 0;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        for (int i = 0; i < updates; i++) {
            sumi_engine_update(engine, 1);
            const sumi_job_status status = sumi_job_poll(engine, job);
            CHECK(status.progress >= progress && status.progress <= 1.0f && status.step >= step);
            progress = status.progress;
            step = status.step;
        }
        is_over = sumi_job_poll(engine, job).state == SUMI_JOB_DONE;
        if (!is_over) sumi_job_cancel(engine, job);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        CHECK_NUMBER(sumi_job_poll(engine, job).state, is_over ? SUMI_JOB_DONE : SUMI_JOB_CANCELLED);
        sumi_job_discard(engine, job);
    }
    close_engine(engine);
}

TEST(deadlines_leave_out_steps_of_jobs_that_reuse)
{
    OPEN(engine, model);
    sumi_image_desc desc = long_image(model, &s_guided);
    desc.step_cache = LARGE_CHANGE;
    desc.step_count = 200;
    desc.deadline_ms = 100000;
    counts got = draw_counts(engine, &desc);
    CHECK_NUMBER(got.evaluations, 200);
    CHECK_NUMBER(got.reused, most_reused(200, true));
    desc.deadline_ms = 1;
    got = draw_counts(engine, &desc);
    CHECK(got.evaluations >= 4 && got.evaluations < 200 && got.reused < got.evaluations);
    desc.solver = SUMI_SOLVER_MIDPOINT;
    got = draw_counts(engine, &desc);
    CHECK(got.evaluations >= 8 && got.evaluations < 400 && got.reused < got.evaluations);
    close_engine(engine);
}

TEST(the_nth_allocation_of_a_job_may_fail)
{
    long long n = 1;
    for (bool has_failed = true; has_failed && t_errors == 0; n++) {
        OPEN(engine, model);
        sumi_image_desc desc = long_image(model, &s_guided);
        desc.step_cache = LARGE_CHANGE;
        atomic_store(&s_host.fail_at, s_host.count + n);
        sumi_image image;
        const sumi_result result = draw(engine, &desc, &image);
        has_failed = s_host.count >= s_host.fail_at;
        CHECK(result == SUMI_OK || result == SUMI_OUT_OF_HOST_MEMORY);
        CHECK(has_failed || result == SUMI_OK);
        if (result == SUMI_OK) sumi_images_release(engine, &image, 1);
        if (result != SUMI_OK && n % 8 == 0) {
            const counts got = draw_counts(engine, &desc);
            CHECK_NUMBER(got.reused, most_reused(STEPS, true));
        }
        close_engine(engine);
    }
    printf("  %lld allocations failed, one after the other\n", n - 2);
    CHECK(n > 20);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(the_rule_predicts_the_change_from_the_one_before);
    RUN(a_target_in_db_is_predicted_to_be_kept);
    RUN(errors_may_be_read_late);
    RUN(nothing_is_reused_below_the_threshold_and_the_most_above_it);
    RUN(the_first_and_the_last_step_are_whole);
    RUN(a_fixed_schedule_computes_what_it_says);
    RUN(thresholds_out_of_range_are_refused);
    RUN(slices_threads_and_paces_change_no_bit);
    RUN(batches_are_their_images_one_by_one);
    RUN(the_memory_is_counted_and_kept_within);
    RUN(pauses_change_no_bit);
    RUN(a_job_that_reuses_may_be_paused_again_and_again);
    RUN(progress_grows_and_a_job_may_be_cancelled_anywhere);
    RUN(deadlines_leave_out_steps_of_jobs_that_reuse);
    RUN(the_nth_allocation_of_a_job_may_fail);
    TEST_END();
}
