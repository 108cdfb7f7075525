// What the engine does with time, on a clock that the test turns: deadlines, frames' budgets, the tracer's spans.
#include "engine_fixture.h"
#include "fake_clock.h"
#include <math.h>

// Of every piece of work, by fake_clock.h.
#define TICK_NS UINT64_C(20000)
#define SLICE_US 200

// ---- Deadlines ------------------------------------------------------------------------------------------------------

TEST(a_deadline_lowers_the_steps)
{
    OPEN(engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 200;
    desc.deadline_ms = 100000;
    sumi_image image;
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    CHECK_NUMBER(image.step_count, 200); // plenty of time
    sumi_images_release(engine, &image, 1);
    desc.deadline_ms = 1;
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    CHECK(image.step_count >= 4 && image.step_count < 200);
    int32_t steps = image.step_count;
    sumi_images_release(engine, &image, 1);
    // Two evaluations a step: steps cannot be left out on the way, so the schedule is made for fewer from the start.
    desc.solver = SUMI_SOLVER_MIDPOINT;
    desc.deadline_ms = 100000;
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    CHECK_NUMBER(image.step_count, 200);
    sumi_images_release(engine, &image, 1);
    desc.deadline_ms = 1;
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    steps = image.step_count;
    CHECK(steps >= 4 && steps < 200);
    const uint64_t hash = hash_image(&image);
    sumi_images_release(engine, &image, 1);
    desc.deadline_ms = 0;
    desc.step_count = steps;
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    CHECK(hash == hash_image(&image));
    sumi_images_release(engine, &image, 1);
    close_engine(engine);
}

static double seconds_now(void) { return 1e-9 * (double)fake_clock_now_ns(); }

// Frames of 4 ms, of which the engine gets so much; from `change_at` on, so much; a budget of 0 is a pause of `pause`
// seconds. Seconds from submission to the end.
typedef struct frames {
    uint32_t first_us, then_us;
    double change_at, pause;
} frames;

static double run_frames(sumi_engine* engine, const sumi_image_desc* desc, const frames* f, int32_t* out_steps)
{
    sumi_job job;
    sumi_image image;
    const double begin = seconds_now();
    double longest = 0.0;
    int32_t count = 0;
    if (sumi_submit_images(engine, desc, &job) != SUMI_OK) return -1.0;
    while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE && count_frame(&count)) {
        const double at = seconds_now(), elapsed = at - begin;
        const bool pauses = f->then_us == 0 && elapsed >= f->change_at && elapsed < f->change_at + f->pause;
        const uint32_t budget_us = pauses ? 0 : elapsed < f->change_at || f->then_us == 0 ? f->first_us : f->then_us;
        sumi_engine_update(engine, budget_us);
        const double over = seconds_now() - at - 1e-6 * budget_us, rest = 0.004 - (seconds_now() - at);
        longest = over > longest ? over : longest;
        if (rest > 0.0) fake_clock_pass_ns((uint64_t)(rest * 1e9));
    }
    const double elapsed = seconds_now() - begin;
    CHECK(longest <= 1e-6 * SLICE_US); // an update takes what it is given, and a slice at most beyond that
    const sumi_job_status status = sumi_job_poll(engine, job);
    CHECK(status.step == status.step_count && status.progress == 1.0f);
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
    *out_steps = image.step_count;
    sumi_images_release(engine, &image, 1);
    return elapsed;
}

// The load changes while the job runs; steps are left out of what is left.
TEST(a_deadline_is_kept_under_changing_load)
{
    static const struct {
        sumi_solver solver;
        uint32_t first_us, then_us;
        const char* what;
    } s_cases[] = {
        {SUMI_SOLVER_EULER, 3000, 3000, "steady"},
        {SUMI_SOLVER_EULER, 3000, 800, "less from the middle on"},
        {SUMI_SOLVER_DPMPP_2M, 800, 3000, "more from the middle on"},
        {SUMI_SOLVER_EULER, 3000, 0, "a pause for the second quarter"},
    };
    OPEN_WITH(SLICE_US, engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    desc.preview_every = 50;
    int32_t steps = 0;
    // The speed is known from here on; and a deadline that can be kept in each of the cases follows.
    desc.step_count = 20;
    const double least = run_frames(engine, &desc, &(frames){.first_us = 800, .then_us = 800}, &steps);
    CHECK(least > 0.0 && steps == 20);
    desc.deadline_ms = (uint32_t)(1200.0 * least);
    desc.step_count = 1000;
    const double deadline = desc.deadline_ms * 1e-3;
    for (size_t c = 0; c < sizeof s_cases / sizeof *s_cases; c++) {
        desc.solver = s_cases[c].solver;
        const frames f = {s_cases[c].first_us, s_cases[c].then_us, (s_cases[c].then_us > 0 ? 0.5 : 0.25) * deadline,
                          0.25 * deadline};
        const double seconds = run_frames(engine, &desc, &f, &steps);
        printf("  %s: %.0f ms of %.0f, %d of 1000 steps\n", s_cases[c].what, 1e3 * seconds, 1e3 * deadline, (int)steps);
        CHECK(seconds > 0.0 && seconds <= 1.1 * deadline);
        CHECK(steps >= 4 && steps < 1000);
    }
    desc.deadline_ms = 1; // hopeless: the fewest steps, and the picture all the same
    desc.solver = SUMI_SOLVER_EULER;
    CHECK(run_frames(engine, &desc, &(frames){.first_us = 3000, .then_us = 3000}, &steps) > 0.0);
    CHECK_NUMBER(steps, 4);
    close_engine(engine);
}

// The picture of a deadline that every second step had to go for is the picture of half as many steps: what is left out
// leaves no trace.
TEST(left_out_steps_leave_no_trace)
{
    OPEN(engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 8;
    desc.deadline_ms = 1; // the fewest: 4 of 8, evenly
    for (int s = 0; s < 2; s++) {
        desc.solver = s == 0 ? SUMI_SOLVER_EULER : SUMI_SOLVER_DPMPP_2M;
        sumi_image image;
        CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
        CHECK_NUMBER(image.step_count, 4);
        const uint64_t hash = hash_image(&image);
        sumi_images_release(engine, &image, 1);
        sumi_image_desc plain = desc;
        plain.deadline_ms = 0;
        plain.step_count = 4;
        CHECK_NUMBER(draw(engine, &plain, &image), SUMI_OK);
        CHECK(hash == hash_image(&image));
        sumi_images_release(engine, &image, 1);
    }
    close_engine(engine);
}

// ---- Spans ----------------------------------------------------------------------------------------------------------

typedef struct seen_spans {
    double seconds[SUMI_STAGE_COUNT];
    uint64_t last_end_ns[2];
    int count, disorder, steps, in_steps;
    char names[4096]; // of the first ones
} seen_spans;

static void see_span(const sumi_trace_span* span, void* user_data)
{
    seen_spans* seen = user_data;
    seen->disorder +=
        span->begin_ns < seen->last_end_ns[span->track] || span->end_ns < span->begin_ns || span->job == 0;
    seen->last_end_ns[span->track] = span->end_ns;
    seen->seconds[span->stage] += (double)(span->end_ns - span->begin_ns) * 1e-9;
    seen->count++;
    seen->in_steps += span->step >= 0;
    if (span->step >= seen->steps) seen->steps = span->step + 1;
    const size_t used = strlen(seen->names);
    if (used + strlen(span->name) + 2 < sizeof seen->names)
        snprintf(seen->names + used, sizeof seen->names - used, "%s ", span->name);
}

TEST(a_tracer_sees_every_piece_of_work)
{
    static seen_spans s_seen;
    memset(&s_seen, 0, sizeof s_seen);
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc ed = host_desc(&s_host);
    ed.max_slice_us = 100;
    ed.tracer = &(sumi_tracer){see_span, &s_seen};
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    CHECK(s_seen.count > 0 && s_seen.seconds[SUMI_STAGE_LOAD] > 0.0);
    memset(&s_seen.seconds, 0, sizeof s_seen.seconds);
    s_seen.count = 0;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 3;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    int32_t updates = 0;
    while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE && count_frame(&updates)) sumi_engine_update(engine, 300);
    const sumi_job_status status = sumi_job_poll(engine, job);
    double all = 0.0;
    for (int i = 0; i < 8; i++)
        CHECK(fabs(s_seen.seconds[i] - (double)status.stage_seconds[i]) <= 1e-6 + 1e-5 * s_seen.seconds[i]);
    for (int i = 0; i < SUMI_STAGE_COUNT; i++) all += s_seen.seconds[i];
    // A piece of a slice takes one look at the clock at least.
    const double tick = 1e-9 * (double)TICK_NS;
    CHECK(status.device_seconds > (s_seen.in_steps - 0.5) * tick && status.device_seconds < all);
    CHECK(s_seen.in_steps >= 3);
    CHECK_NUMBER(s_seen.disorder, 0);
    CHECK_NUMBER(s_seen.steps, 3);
    CHECK(strstr(s_seen.names, "tokens ") != NULL && strstr(s_seen.names, "plan ") != NULL
          && strstr(s_seen.names, "attention.") != NULL);
    sumi_job_discard(engine, job);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    fake_clock_begin(TICK_NS);
    RUN(a_deadline_lowers_the_steps);
    RUN(a_deadline_is_kept_under_changing_load);
    RUN(left_out_steps_leave_no_trace);
    RUN(a_tracer_sees_every_piece_of_work);
    TEST_END();
}
