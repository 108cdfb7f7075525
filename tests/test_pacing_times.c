// What is believed of the measured times of slices: the states of a kind of slices, the tempo of a device, and the
// accuracy of predictions.
#include "pacing/forecast.h"
#include "pacing/kind_time.h"
#include "test.h"

// ---- The states of a kind -------------------------------------------------------------------------------------------

TEST(each_state_and_event_has_its_action)
{
    static const struct {
        sumi_time_state state;
        sumi_time_event event;
        sumi_time_action action;
    } s_actions[] = {{SUMI_TIME_UNMEASURED, SUMI_TIME_MAY_HAVE_WAITED, SUMI_TIME_KEEP},
                     {SUMI_TIME_UNMEASURED, SUMI_TIME_SHORTER, SUMI_TIME_BEGIN},
                     {SUMI_TIME_UNMEASURED, SUMI_TIME_USUAL, SUMI_TIME_BEGIN},
                     {SUMI_TIME_DOUBTED, SUMI_TIME_MAY_HAVE_WAITED, SUMI_TIME_KEEP},
                     {SUMI_TIME_DOUBTED, SUMI_TIME_SHORTER, SUMI_TIME_TRY_AGAIN},
                     {SUMI_TIME_DOUBTED, SUMI_TIME_USUAL, SUMI_TIME_TRY_AGAIN},
                     {SUMI_TIME_KNOWN, SUMI_TIME_MAY_HAVE_WAITED, SUMI_TIME_KEEP},
                     {SUMI_TIME_KNOWN, SUMI_TIME_SHORTER, SUMI_TIME_REPLACE},
                     {SUMI_TIME_KNOWN, SUMI_TIME_USUAL, SUMI_TIME_LEARN}};
    CHECK_NUMBER(sizeof s_actions / sizeof *s_actions, SUMI_TIME_STATE_COUNT * SUMI_TIME_EVENT_COUNT);
    for (size_t i = 0; i < sizeof s_actions / sizeof *s_actions; i++)
        CHECK_NUMBER(sumi_kind_time_action(s_actions[i].state, s_actions[i].event), s_actions[i].action);
}

// What is known of a kind: its time; while there is a doubt, the newest measurement and how many in a row were alike;
// how many in a row may contain a wait.
typedef struct known {
    float us, newest_us;
    int32_t alike_count, suspect_count;
} known;

// A measurement of a kind, and what is known before and after it. Without words the slice ran on a device, behind
// others, and a job has 30 of its kind. The words: `ops` of its kind were measured before; `few` are in a job; the
// slice was `alone`, behind an empty kernel (`delay`) that kernels of others have held up (`crowded`), or on the
// `CPU`; calls have no budget (`unpaced`).
typedef struct row {
    const char* what;
    known before;
    double us, op_us; // measured; predicted from ops of the same kind
    const char* words;
    int action, state; // afterwards
    known after;
    bool teaches;
} row;

static sumi_kind_time time_of(known k) { return (sumi_kind_time){k.us, {k.newest_us, k.alike_count, k.suspect_count}}; }

static sumi_time_measured measured_of(const row* r)
{
    return (sumi_time_measured){.us = r->us,
                                .now_us = r->before.us > 0.0f ? (double)r->before.us : r->op_us,
                                .op_us = r->op_us,
                                .op_is_known = strstr(r->words, "ops") != NULL,
                                .has_device = strstr(r->words, "CPU") == NULL,
                                .is_alone = strstr(r->words, "alone") != NULL,
                                .has_delay = strstr(r->words, "delay") || strstr(r->words, "crowded"),
                                .is_crowded = strstr(r->words, "crowded") != NULL,
                                .is_paced = strstr(r->words, "unpaced") == NULL,
                                .times_in_a_job = strstr(r->words, "few") ? 7 : 30};
}

enum { UNMEASURED = SUMI_TIME_UNMEASURED, DOUBTED = SUMI_TIME_DOUBTED, KNOWN = SUMI_TIME_KNOWN };
enum {
    KEEP = SUMI_TIME_KEEP,
    BEGIN = SUMI_TIME_BEGIN,
    TRY_AGAIN = SUMI_TIME_TRY_AGAIN,
    REPLACE = SUMI_TIME_REPLACE,
    LEARN = SUMI_TIME_LEARN
};
static const row s_rows[] = {
    // The first measurement.
    {"as predicted", {.us = 0}, 1400, 1000, "ops", BEGIN, KNOWN, {.us = 1400}, true},
    {"far above a guess", {.us = 0}, 3000, 1000, "", BEGIN, KNOWN, {.us = 3000}, true},
    {"far above the prediction", {.us = 0}, 1600, 1000, "ops", BEGIN, DOUBTED, {1500, 1600, 1, 0}, false},
    {"the same on the CPU", {.us = 0}, 1600, 1000, "ops, CPU", BEGIN, KNOWN, {.us = 1600}, true},
    {"too few follow for a doubt", {.us = 0}, 1600, 1000, "ops, few", BEGIN, KNOWN, {.us = 1600}, false},
    {"too few follow, others were seen", {.us = 0}, 1600, 1000, "crowded, few", BEGIN, KNOWN, {.us = 1500}, false},
    {"others were seen", {.us = 0}, 1600, 1000, "crowded", BEGIN, DOUBTED, {1500, 1600, 1, 0}, false},
    {"others were seen, and yet as predicted", {.us = 0}, 1200, 1000, "crowded", BEGIN, KNOWN, {.us = 1200}, false},
    {"may have waited", {.us = 0}, 2100, 1000, "alone", KEEP, UNMEASURED, {0, 0, 0, 1}, false},
    {"may have waited again", {0, 0, 0, 1}, 2100, 1000, "alone", KEEP, UNMEASURED, {0, 0, 0, 2}, false},
    {"an empty kernel waited", {.us = 0}, 2100, 1000, "ops, alone, delay", BEGIN, DOUBTED, {1500, 2100, 1, 0}, false},
    {"too short for a wait", {.us = 0}, 500, 100, "alone", BEGIN, KNOWN, {.us = 500}, true},
    {"short after waits", {0, 0, 0, 2}, 300, 1000, "ops", BEGIN, KNOWN, {.us = 300}, true},
    {"doubted after waits", {0, 0, 0, 2}, 1600, 1000, "ops", BEGIN, DOUBTED, {1500, 1600, 1, 0}, false},
    // While there is a doubt.
    {"alike", {1500, 1600, 1, 0}, 1610, 0, "", TRY_AGAIN, DOUBTED, {1500, 1610, 2, 0}, false},
    {"the sixth alike", {1500, 1600, 5, 0}, 1610, 0, "", TRY_AGAIN, KNOWN, {1610, 1610, 0, 0}, true},
    {"alike, others were seen", {1500, 1600, 5, 0}, 1610, 0, "crowded", TRY_AGAIN, DOUBTED, {1500, 1610, 1, 0}, false},
    {"not alike", {1500, 1600, 5, 0}, 1900, 0, "", TRY_AGAIN, DOUBTED, {1500, 1900, 1, 0}, false},
    {"less than is believed", {1500, 1600, 2, 0}, 1200, 0, "", TRY_AGAIN, KNOWN, {1200, 1200, 0, 0}, true},
    {"much less after waits", {1500, 1600, 2, 3}, 600, 0, "", TRY_AGAIN, KNOWN, {600, 600, 0, 0}, true},
    {"doubted, may have waited", {1500, 1600, 2, 0}, 3100, 1600, "alone", KEEP, DOUBTED, {1500, 1600, 2, 1}, false},
    {"alike, above ops", {1500, 1600, 2, 0}, 1610, 800, "alone", TRY_AGAIN, DOUBTED, {1500, 1610, 3, 1}, false},
    {"the sixth, above ops", {1500, 1600, 5, 0}, 1610, 800, "alone", TRY_AGAIN, KNOWN, {1610, 1610, 0, 1}, false},
    // While there is a doubt, and no call has a budget.
    {"not alike", {1500, 1600, 1, 0}, 1900, 0, "unpaced", TRY_AGAIN, KNOWN, {1600, 1900, 0, 0}, true},
    {"shorter than before", {1500, 1900, 1, 0}, 1600, 0, "unpaced", TRY_AGAIN, KNOWN, {1600, 1600, 0, 0}, true},
    {"others were seen",
     {1500, 1600, 1, 0},
     1900,
     0,
     "crowded, unpaced",
     TRY_AGAIN,
     DOUBTED,
     {1500, 1900, 1, 0},
     false},
    {"less, others seen", {1500, 1600, 1, 0}, 1200, 0, "crowded, unpaced", TRY_AGAIN, KNOWN, {1200, 1200, 0, 0}, false},
    // Afterwards.
    {"much longer", {.us = 1000}, 1500, 0, "", LEARN, KNOWN, {.us = 1010}, true},
    {"a little longer", {.us = 1000}, 1005, 0, "", LEARN, KNOWN, {.us = 1005}, true},
    {"shorter", {.us = 1000}, 600, 0, "", LEARN, KNOWN, {.us = 700}, true},
    {"much shorter", {.us = 1000}, 400, 0, "", LEARN, KNOWN, {.us = 550}, true},
    {"others were seen after all", {.us = 1000}, 1500, 0, "crowded", LEARN, KNOWN, {.us = 1010}, false},
    {"known, may have waited", {.us = 1000}, 2001, 1500, "alone", KEEP, KNOWN, {1000, 0, 0, 1}, false},
    {"known, may have waited again", {1000, 0, 0, 7}, 2001, 1500, "alone", KEEP, KNOWN, {1000, 0, 0, 8}, false},
    {"not long enough for a wait", {1000, 0, 0, 7}, 2000, 1500, "alone", LEARN, KNOWN, {.us = 1010}, true},
    {"known, an empty kernel waited", {.us = 1000}, 2001, 1500, "alone, delay", LEARN, KNOWN, {.us = 1010}, true},
    {"behind others", {.us = 1000}, 2001, 0, "", LEARN, KNOWN, {.us = 1010}, true},
    {"alone on the CPU", {.us = 1000}, 2001, 1500, "alone, CPU", LEARN, KNOWN, {.us = 1010}, true},
    {"less than half after waits", {1000, 0, 0, 3}, 499, 0, "", REPLACE, KNOWN, {.us = 499}, true},
    {"half after waits", {1000, 0, 0, 3}, 500, 0, "", LEARN, KNOWN, {.us = 625}, true},
    {"known, far above other ops", {.us = 5000}, 5000, 1000, "alone", LEARN, KNOWN, {5000, 0, 0, 1}, false},
    {"half, far above other ops", {5000, 0, 0, 3}, 2400, 1000, "alone", REPLACE, KNOWN, {2400, 0, 0, 4}, false},
};

TEST(a_measurement_changes_what_its_row_says)
{
    int seen[SUMI_TIME_STATE_COUNT][SUMI_TIME_EVENT_COUNT] = {0};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        const row* r = &s_rows[i];
        const int errors = t_errors;
        sumi_kind_time time = time_of(r->before);
        sumi_tempo tempo = {0};
        const sumi_time_measured measured = measured_of(r);
        seen[sumi_kind_time_state(&time)][sumi_kind_time_event(&time, &measured)]++;
        const sumi_time_change change = sumi_kind_time_note(&time, &tempo, &measured);
        CHECK_NUMBER(change.action, r->action);
        CHECK_NUMBER(sumi_kind_time_state(&time), r->state);
        CHECK_NEAR((double)time.us, (double)r->after.us, 0, 0);
        CHECK_NEAR((double)time.doubt.us, (double)r->after.newest_us, 0, 0);
        CHECK_NUMBER(time.doubt.alike_count, r->after.alike_count);
        CHECK_NUMBER(time.doubt.suspect_count, r->after.suspect_count);
        CHECK_NEAR(change.known_us, (double)time.us - (double)r->before.us, 0, 0);
        CHECK_NEAR(change.own_us, r->action == KEEP ? measured.now_us : (double)time.us, 0, 0);
        CHECK(change.teaches == r->teaches);
        CHECK_NUMBER(tempo.count, r->action == LEARN); // the tempo follows known times only
        if (t_errors > errors) printf("  in the row \"%s\"\n", r->what);
    }
    for (int s = 0; s < SUMI_TIME_STATE_COUNT; s++)
        for (int e = 0; e < SUMI_TIME_EVENT_COUNT; e++) CHECK(seen[s][e] > 0);
}

// A slice that has waited for streamed weights took no longer for its own work than predicted, if anything was.
TEST(waits_for_weights_do_not_count)
{
    static const struct {
        float known_us, submitted_us;
        double us;
        float after_us;
    } s_times[] = {{0, 1200, 5000, 1200},
                   {0, 1200, 1100, 1100},
                   {1000, 900, 5000, 925},
                   {1000, 0.05f, 5000, 1010},
                   {0, 0, 0, 0.1f}}; // the last one: 0 would mean that nothing was measured
    for (size_t i = 0; i < sizeof s_times / sizeof *s_times; i++) {
        sumi_kind_time time = {s_times[i].known_us, {0, 0, 0}};
        sumi_tempo tempo = {0};
        const sumi_time_measured measured = {.us = s_times[i].us,
                                             .submitted_us = s_times[i].submitted_us,
                                             .now_us = s_times[i].known_us > 0 ? (double)s_times[i].known_us : 1200,
                                             .op_us = 1200,
                                             .has_device = true,
                                             .has_waits = true,
                                             .times_in_a_job = 30};
        CHECK(sumi_kind_time_note(&time, &tempo, &measured).teaches);
        CHECK_NEAR((double)time.us, (double)s_times[i].after_us, 0, 0);
    }
}

TEST(one_more_slice_is_wanted_after_times_with_waits)
{
    static const struct {
        sumi_kind_time time;
        bool wants;
    } s_wants[] = {{{0, {0, 0, 1}}, false},      {{0, {0, 0, 2}}, true},     {{1500, {1600, 1, 1}}, false},
                   {{1500, {1600, 1, 2}}, true}, {{1000, {0, 0, 7}}, false}, {{1000, {0, 0, 8}}, true}};
    for (size_t i = 0; i < sizeof s_wants / sizeof *s_wants; i++)
        CHECK(sumi_kind_time_wants_one_more(&s_wants[i].time) == s_wants[i].wants);
}

// ---- The tempo of a device ------------------------------------------------------------------------------------------

// Times in turn, as percents of the known time, and what is known after so many of them.
TEST(tempo_tells_a_slow_device_from_a_shared_one)
{
    static const struct {
        const char* what;
        int percents[2], count;
        double now_us; // of work that took 1000
        bool is_shared;
        double learnt_us; // after another 1500
    } s_tempos[] = {{"too few", {120, 120}, 7, 1000, false, 1010},
                    {"all are slower", {120, 120}, 8, (double)1.2f * 1000, false, 1010},
                    {"all are nearly alike", {120, 136}, 32, (double)1.2f * 1000, false, 1010},
                    {"half are longer", {120, 140}, 8, 1000, true, 1000},
                    {"half are as before", {100, 200}, 32, 1000, true, 1000},
                    {"faster than known", {80, 80}, 32, 1000, false, 1010}};
    for (size_t i = 0; i < sizeof s_tempos / sizeof *s_tempos; i++) {
        sumi_tempo tempo = {0};
        const int errors = t_errors;
        for (int n = 0; n < s_tempos[i].count; n++) sumi_tempo_note(&tempo, 1000, 10.0 * s_tempos[i].percents[n % 2]);
        CHECK_NEAR(sumi_tempo_now_us(&tempo, 1000), s_tempos[i].now_us, 0, 0);
        CHECK(tempo.is_shared == s_tempos[i].is_shared);
        CHECK_NEAR(sumi_tempo_learn(&tempo, 1000, 1500), s_tempos[i].learnt_us, 0, 0);
        CHECK_NEAR(sumi_tempo_learn(&tempo, 1000, 600), 700, 0, 0); // shorter times are believed in any case
        if (t_errors > errors) printf("  in the row \"%s\"\n", s_tempos[i].what);
    }
}

TEST(a_shared_device_keeps_its_slowness)
{
    sumi_tempo tempo = {0};
    for (int n = 0; n < SUMI_TEMPO_TIMES; n++) sumi_tempo_note(&tempo, 1000, 1200);
    for (int n = 0; n < SUMI_TEMPO_TIMES; n++) sumi_tempo_note(&tempo, 1000, n % 3 == 0 ? 1300 : 2000);
    CHECK(tempo.is_shared);
    CHECK_NEAR(sumi_tempo_now_us(&tempo, 1000), (double)1.2f * 1000, 0, 0);
    for (int n = 0; n < SUMI_TEMPO_TIMES; n++) sumi_tempo_note(&tempo, 1000, 1000);
    CHECK(!tempo.is_shared);
    CHECK_NEAR(sumi_tempo_now_us(&tempo, 1000), 1000, 0, 0);
}

// ---- Accuracy of predictions ----------------------------------------------------------------------------------------

TEST(accuracy_follows_ratios_but_no_outlier)
{
    sumi_accuracy accuracy = {0};
    CHECK_NEAR(sumi_accuracy_largest_factor(&accuracy, 0.1f), 1.25, 1e-7, 0); // 1 and 2.5 deviations
    CHECK_NEAR(sumi_accuracy_deviation(&accuracy, 0.1f), (double)0.1f, 0, 0);
    sumi_accuracy_note(&accuracy, 0.1f, 5, 0); // there was no prediction
    CHECK_NUMBER(accuracy.count, 0);
    sumi_accuracy_note(&accuracy, 0.1f, 1.2, 1); // the first one has half of the weight
    CHECK_NEAR((double)accuracy.mean, 1.1, 1e-6, 0);
    CHECK_NEAR((double)accuracy.deviation, 0.15, 1e-6, 0);
    sumi_accuracy_note(&accuracy, 0.1f, 100, 1); // counts as 0.15 + 4 deviations above the mean, a third of the weight
    CHECK_NEAR((double)accuracy.mean, 1.35, 1e-6, 0);
    CHECK_NEAR((double)accuracy.deviation, 0.35, 1e-6, 0);
    CHECK_NEAR(sumi_accuracy_largest_factor(&accuracy, 0.1f), 1.75, 0, 0); // never more
    for (int i = 0; i < 100; i++) sumi_accuracy_note(&accuracy, 0.1f, 0.3, 1);
    CHECK_NEAR((double)accuracy.mean, 0.3, 1e-3, 0);
    CHECK_NEAR(sumi_accuracy_largest_factor(&accuracy, 0.1f), 0.5, 0, 0); // never less
}

// ---- Ratios of kinds of ops -----------------------------------------------------------------------------------------

TEST(op_ratio_moves_a_quarter_of_the_way)
{
    static const struct {
        float before;
        double measured, share;
        float after;
    } s_ratios[] = {{0, 3, 1, 3},    {0, 3, 0.5, 2},  {2, 4, 1, 2.5f},    {2, 4, 0.5, 2.25f},
                    {2, 4, 7, 2.5f}, {0, 900, 1, 50}, {0, 0.01, 1, 0.05f}};
    for (size_t i = 0; i < sizeof s_ratios / sizeof *s_ratios; i++)
        CHECK_NEAR((double)sumi_op_ratio_learn(s_ratios[i].before, s_ratios[i].measured, s_ratios[i].share),
                   (double)s_ratios[i].after, 0, 0);
    CHECK_NEAR((double)sumi_op_ratio_correction(0.0f, 2.0f), 1, 0, 0); // not measured: the prediction stays
    CHECK_NEAR((double)sumi_op_ratio_correction(3.0f, 2.0f), 1.5, 0, 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(each_state_and_event_has_its_action);
    RUN(a_measurement_changes_what_its_row_says);
    RUN(waits_for_weights_do_not_count);
    RUN(one_more_slice_is_wanted_after_times_with_waits);
    RUN(tempo_tells_a_slow_device_from_a_shared_one);
    RUN(a_shared_device_keeps_its_slowness);
    RUN(accuracy_follows_ratios_but_no_outlier);
    RUN(op_ratio_moves_a_quarter_of_the_way);
    TEST_END();
}
