// How many steps fit into the time that is left until a deadline: the share of the wall-clock time that work gets, how
// accurate predictions were, and what is allowed then.
#include "pacing/deadline_steps.h"
#include "pacing/work_share.h"
#include "test.h"
#include <sumi.h>

#define MS 1000000ull // in nanoseconds

// ---- The share of the wall-clock time -------------------------------------------------------------------------------

TEST(budgets_give_a_share)
{
    static const struct {
        const char* what;
        double budget_us, interval_us;
        uint32_t slice_us;
        double share;
    } s_rows[] = {{"nothing is known", 0, 0, 2000, 1},    {"no interval", 4000, 0, 2000, 1},
                  {"a quarter", 4000, 16000, 2000, 0.25}, {"more than there is", 20000, 16000, 2000, 1},
                  {"whole ops", 4000, 16000, 0, 0.3125},  {"whole ops, a large budget", 8000, 16000, 0, 0.5}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        const sumi_work_share share = {.budget_us = s_rows[i].budget_us, .update_interval_us = s_rows[i].interval_us};
        const double got = sumi_work_share_budgeted(&share, s_rows[i].slice_us);
        CHECK_NEAR(got, s_rows[i].share, 0, 0);
        CHECK_NEAR(sumi_work_share_now(&share, s_rows[i].slice_us), s_rows[i].share, 0, 0);
        if (got != s_rows[i].share) printf("  in the row \"%s\"\n", s_rows[i].what);
    }
}

TEST(updates_are_counted_but_no_pauses)
{
    static const struct {
        uint32_t budget_us;
        uint64_t now_ns;
        double interval_us;
    } s_rows[] = {{4000, 1000 * MS, 0},     {4000, 1016 * MS, 16000}, {4000, 1036 * MS, 17000},
                  {4000, 1286 * MS, 17000}, {4000, 1306 * MS, 17750}, {SUMI_FOREVER, 0, 0},
                  {4000, 1400 * MS, 0},     {4000, 1410 * MS, 10000}};
    sumi_work_share share = {0};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        sumi_work_share_follow(&share, s_rows[i].budget_us, s_rows[i].now_ns);
        CHECK_NEAR(share.update_interval_us, s_rows[i].interval_us, 1e-9, 0);
        CHECK_NEAR(share.budget_us, s_rows[i].budget_us == SUMI_FOREVER ? 0 : (double)s_rows[i].budget_us, 0, 0);
    }
}

// Work in turn, and the share after each measurement. One of less than 10 ms says nothing; one of 25 ms or more counts
// as much as all before.
TEST(a_share_follows_measurements)
{
    static const struct {
        double work_us;
        uint64_t now_ns;
        double share;
    } s_rows[] = {{1000, 105 * MS, 1},                        // too soon
                  {1000, 110 * MS, 0.2},                      // the first one is taken as it is
                  {10000, 130 * MS, 0.2 + 0.3 * 20.0 / 45.0}, // 0.5, over 20 ms
                  {50000, 180 * MS, 2.0 / 3.0},               // 1, and half of the way
                  {900000, 190 * MS, 2.0 / 3.0 + 1.0 / 3.0 * 10.0 / 35.0},
                  {0, 1190 * MS, 0.5 * (2.0 / 3.0 + 1.0 / 3.0 * 10.0 / 35.0 + 1e-4)}};
    sumi_work_share share = {0};
    sumi_work_share_begin(&share, 100 * MS, 2000);
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        sumi_work_share_note(&share, s_rows[i].work_us);
        CHECK_NEAR(sumi_work_share_measure(&share, s_rows[i].now_ns, 2000), s_rows[i].share, 1e-12, 0);
    }
    share.budget_us = 2000;
    share.update_interval_us = 16000;
    sumi_work_share_begin(&share, 0, 2000);
    CHECK_NEAR(share.share, 0.125, 0, 0); // no more than the budgets give
    sumi_work_share_note(&share, 5000);   // before the measurement begins
    CHECK_NEAR(sumi_work_share_measure(&share, 2000 * MS, 2000), 0.125, 0, 0);
    CHECK_NEAR(share.work_us, 0, 0, 0);
    CHECK_NUMBER(share.begin_ns, 2000 * MS);
}

// ---- What was predicted ---------------------------------------------------------------------------------------------

TEST(steps_are_predicted_and_noted)
{
    sumi_forecast forecast = {.begin_ns = 7, .end_seconds = 7};
    sumi_accuracy steps = {0};
    const sumi_remaining_work known = {.evaluation = {20000, 0}, .end = {30000, 0}},
                              guessed = {.evaluation = {5000, 15000}, .end = {10000, 20000}};
    sumi_forecast_begin(&forecast);
    CHECK_NUMBER(forecast.begin_ns, 0);
    CHECK_NEAR(forecast.end_seconds, 0, 0, 0);
    sumi_forecast_next(&forecast, &steps, &(sumi_forecast_step){1000 * MS, 0.5, false}, &guessed);
    CHECK_NEAR(forecast.step_seconds, 0, 0, 0); // a guess is no prediction
    CHECK(forecast.is_guess);
    sumi_forecast_next(&forecast, &steps, &(sumi_forecast_step){1070 * MS, 0.5, false}, &known);
    CHECK_NUMBER(steps.count, 0);
    CHECK_NEAR(forecast.step_seconds, 0.04, 1e-15, 0);
    CHECK(!forecast.is_guess);
    sumi_forecast_next(&forecast, &steps, &(sumi_forecast_step){1110 * MS, 0.25, true},
                       &known); // it joins the one before
    CHECK_NUMBER(steps.count, 0);
    CHECK_NUMBER(forecast.begin_ns, 1070 * MS);
    CHECK_NEAR(forecast.step_seconds, 0.12, 1e-15, 0);
    sumi_forecast_next(&forecast, &steps, &(sumi_forecast_step){1202 * MS, 0.5, false}, &known); // 0.132 of 0.12
    CHECK_NUMBER(steps.count, 1);
    CHECK_NEAR((double)steps.mean, 1.05, 1e-6, 0);
    sumi_forecast_next(&forecast, &steps, &(sumi_forecast_step){1242 * MS, 0.5, true},
                       &guessed); // unknown, and so both are
    CHECK_NEAR(forecast.step_seconds, 0, 0, 0);
}

TEST(ends_are_noted_apart_from_guesses_and_whole_jobs)
{
    static const struct {
        sumi_forecast forecast;
        double end, guess, job;                                     // the means afterwards; 0: nothing was noted
    } s_rows[] = {{{1000 * MS, 0.1, 0.2, 0, 0, false}, 1.05, 0, 0}, // 0.32 s passed: 0.22 of 0.2
                  {{1000 * MS, 0.1, 0.2, 0, 0, true}, 0, 1.05, 0},
                  {{1000 * MS, 0, 0.2, 0, 0, false}, 0, 0, 0},
                  {{1000 * MS, 0.1, 0, 0, 0, false}, 0, 0, 0},
                  {{0, 0, 0, 0.4, 1000 * MS, false}, 0, 0, 0.9}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        sumi_forecast forecast = s_rows[i].forecast;
        sumi_forecast_accuracy accuracy = {.end = {0, 0, 0}};
        sumi_forecast_end(&forecast, &accuracy, 1320 * MS);
        CHECK_NEAR((double)accuracy.end.mean, s_rows[i].end, 1e-6, 0);
        CHECK_NEAR((double)accuracy.guess.mean, s_rows[i].guess, 1e-6, 0);
        CHECK_NEAR((double)accuracy.job.mean, s_rows[i].job, 1e-6, 0);
        CHECK_NUMBER(forecast.begin_ns, 0);
        CHECK_NEAR(forecast.job_seconds, 0, 0, 0);
    }
}

// ---- How many steps fit ---------------------------------------------------------------------------------------------

TEST(deadline_picks_the_most_steps_that_fit)
{
    static const struct {
        sumi_step_times times;
        int32_t steps;
    } s_rows[] = {{{0.5, 1, 1.0, 5.0, 1, 50}, 8},        {{0.5, 2, 1.0, 5.0, 1, 50}, 4}, // with guidance
                  {{0.1, 1, 0.0, 0.3, 1, 50}, 3}, // though 0.3 / 0.1 is below 3 in binary
                  {{0.5, 1, 1.0, 500.0, 1, 8}, 8},       {{0.5, 1, 10.0, 5.0, 2, 8}, 2}, // cannot be met
                  {{0.5, 1, 1.0, 0.0, 1, 8}, 8},                                         // none given
                  {{0.0, 1, 1.0, 5.0, 1, 8}, 8},                                         // no speed known
                  {{(double)NAN, 1, 1.0, 5.0, 1, 8}, 8}, {{(double)INFINITY, 1, 1.0, 5.0, 1, 8}, 8},
                  {{0.5, 1, (double)NAN, 5.0, 1, 8}, 8}, {{1e-300, 1, 1.0, 5.0, 1, 8}, 8},
                  {{0.5, 1, 1.0, 5.0, 6, 3}, 6}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++)
        CHECK_NUMBER(sumi_deadline_steps(&s_rows[i].times), s_rows[i].steps);
}

TEST(steps_of_a_job_are_decided_once)
{
    static const struct {
        sumi_deadline_job job;
        double denoise_us;
        int32_t steps;
    } s_rows[] = {{{20, 39, 100000, 1.1}, 2e6, 10},
                  {{20, 39, 100000, 2.2}, 2e6, 20},
                  {{20, 39, 100000, 0.2}, 2e6, 4}, // never fewer
                  {{20, 39, 100000, -1}, 2e6, 4},
                  {{3, 5, 100000, 0.2}, 2e6, 3}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++)
        CHECK_NUMBER(sumi_deadline_steps_of_job(&s_rows[i].job, s_rows[i].denoise_us), s_rows[i].steps);
}

// Evaluations of 100 ms and an end of 200 ms. Where nothing was noted, 0.125 of the end and 0.25 of an evaluation are
// added: a whole evaluation, the end and the margin take 350 ms.
TEST(evaluations_fit_with_a_margin)
{
    static const struct {
        const char* what;
        int32_t run_steps, evaluation_count, counter, skipped_count;
        bool is_guess, lacks_speed;
        double remaining_seconds;
        int32_t evaluations;
    } s_rows[] = {{"all", 20, 20, 0, 0, false, false, 10, 20},
                  {"exactly ten", 20, 20, 0, 0, false, false, 1.2500001, 10},
                  {"nearly ten", 20, 20, 0, 0, false, false, 1.2499, 9},
                  {"never fewer than four", 20, 20, 0, 0, false, false, 0.1, 4},
                  {"four, two of them done", 20, 20, 6, 4, false, false, 0.1, 2},
                  {"four are done", 20, 20, 8, 4, false, false, 0.1, 1},
                  {"after the deadline", 20, 20, 10, 0, false, false, -1, 1},
                  {"half of a guess", 20, 20, 0, 0, true, false, 1.2500001, 20},
                  {"half, without a speed", 20, 20, 0, 0, false, true, 0.6500001, 11},
                  {"a guess with two steps to come", 20, 20, 3, 0, true, false, 0.45, 1},
                  {"the last one", 20, 20, 19, 0, false, false, 10, 1}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        const sumi_forecast_accuracy accuracy = {.end = {0, 0, 0}};
        const sumi_accuracy steps = {0};
        const sumi_remaining_work work = {
            .evaluation = {s_rows[i].is_guess ? 1000 : 100000, s_rows[i].is_guess ? 99000 : 0},
            .end = {200000, 0},
            .later_us = 100000};
        const sumi_deadline_evaluation evaluation = {.run_steps = s_rows[i].run_steps,
                                                     .evaluation_count = s_rows[i].evaluation_count,
                                                     .counter = s_rows[i].counter,
                                                     .skipped_count = s_rows[i].skipped_count,
                                                     .lacks_speed = s_rows[i].lacks_speed,
                                                     .remaining_seconds = s_rows[i].remaining_seconds,
                                                     .accuracy = &accuracy,
                                                     .step_accuracy = &steps};
        const int32_t count = sumi_deadline_evaluations(&evaluation, &work);
        CHECK_NUMBER(count, s_rows[i].evaluations);
        if (count != s_rows[i].evaluations) printf("  in the row \"%s\"\n", s_rows[i].what);
    }
}

TEST(allowed_evaluations_are_spread_evenly)
{
    static const struct {
        int32_t remaining, allowed, stride;
    } s_rows[] = {{20, 20, 1}, {20, 14, 1}, {20, 13, 2}, {20, 10, 2}, {20, 8, 3}, {20, 4, 5}, {20, 1, 20}, {1, 1, 1}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++)
        CHECK_NUMBER(sumi_deadline_stride(s_rows[i].remaining, s_rows[i].allowed), s_rows[i].stride);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(budgets_give_a_share);
    RUN(updates_are_counted_but_no_pauses);
    RUN(a_share_follows_measurements);
    RUN(steps_are_predicted_and_noted);
    RUN(ends_are_noted_apart_from_guesses_and_whole_jobs);
    RUN(deadline_picks_the_most_steps_that_fit);
    RUN(steps_of_a_job_are_decided_once);
    RUN(evaluations_fit_with_a_margin);
    RUN(allowed_evaluations_are_spread_evenly);
    TEST_END();
}
