// How much fits: into a frame of the host program, into the sleep of a thread that waits for a device, and into the
// memory of a device that others use, too.
#include "base/platform.h"
#include "pacing/device_time.h"
#include "pacing/frame_limits.h"
#include "pacing/shortage_limit.h"
#include "test.h"
#include <sumi.h>

// ---- Frames ---------------------------------------------------------------------------------------------------------

TEST(slices_follow_the_budget)
{
    static const struct {
        uint32_t max_slice_us, budget_us, slice_us, piece_us;
    } s_rows[] = {{2000, SUMI_FOREVER, 2000, 2000}, {2000, 16000, 2000, 2000}, {2000, 15999, 1000, 2000},
                  {2000, 8000, 1000, 2000},         {2000, 4000, 500, 2000},   {2000, 2000, 500, 2000},
                  {2000, 1999, 250, 1999},          {2000, 100, 250, 100},     {333, 100, 333, 100},
                  {5000, 8000, 625, 5000},          {0, 8000, 0, 5000},        {0, 3000, 0, 3000}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        const uint32_t max_us = s_rows[i].max_slice_us, budget_us = s_rows[i].budget_us;
        const bool is_paced = budget_us != SUMI_FOREVER;
        sumi_frame_limits limits = {.slice_us = max_us};
        sumi_frame_limits_begin(&limits, &(sumi_frame_call){budget_us, max_us, true, 0});
        CHECK_NUMBER(limits.slice_us, s_rows[i].slice_us);
        CHECK_NUMBER(sumi_frame_limits_piece_us(&limits, max_us), s_rows[i].piece_us);
        CHECK_NEAR(limits.max_pending_us, is_paced ? (double)budget_us : SUMI_MAX_PENDING_US, 0, 0);
        CHECK_NEAR(limits.max_thread_us, is_paced ? 200 : 0, 0, 0);
        CHECK(sumi_frame_limits_are_paced(&limits) == is_paced);
        CHECK_NUMBER(limits.end_ns, 0);
    }
}

// Without a budget half of a step may be in flight, within two limits.
TEST(what_is_in_flight_follows_the_step)
{
    static const struct {
        uint32_t budget_us;
        double step_us, pending_us;
    } s_rows[] = {{SUMI_FOREVER, 0, 32000},       {SUMI_FOREVER, 64000, 32000}, {SUMI_FOREVER, 100000, 50000},
                  {SUMI_FOREVER, 256000, 128000}, {SUMI_FOREVER, 1e6, 128000},  {4000, 1e6, 4000}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        sumi_frame_limits limits = {.slice_us = 2000};
        sumi_frame_limits_begin(&limits, &(sumi_frame_call){s_rows[i].budget_us, 2000, true, 0});
        CHECK_NEAR(sumi_frame_limits_pending_us(&limits, s_rows[i].step_us), s_rows[i].pending_us, 0, 0);
    }
}

// Budgets in turn, and the slices after each: shorter ones at once, longer ones only when the average has risen by a
// half above what they need.
TEST(slices_do_not_follow_every_change)
{
    static const struct {
        uint32_t budget_us;
        int count;
        double average_us;
        uint32_t slice_us;
    } s_rows[] = {{8000, 1, 8000, 1000},      {4000, 1, 7600, 500},      {8000, 3, 7708.4, 500},
                  {12000, 10, 10503.6, 500},  {12000, 10, 11478.2, 500}, {13000, 10, 12469.4, 1000},
                  {SUMI_FOREVER, 1, 0, 2000}, {8000, 1, 8000, 1000}};
    sumi_frame_limits limits = {.slice_us = 2000};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        for (int n = 0; n < s_rows[i].count; n++)
            sumi_frame_limits_begin(&limits, &(sumi_frame_call){s_rows[i].budget_us, 2000, true, 0});
        CHECK_NEAR(limits.average_us, s_rows[i].average_us, 0.1, 0);
        CHECK_NUMBER(limits.slice_us, s_rows[i].slice_us);
    }
}

TEST(pieces_on_a_cpu_end_with_the_budget)
{
    static const struct {
        uint32_t budget_us;
        uint64_t begin_ns, end_ns, now_ns;
        double slice_us;
    } s_rows[] = {{SUMI_FOREVER, 7000000, 0, 9000000, 2000},
                  {4000, 7000000, 11000000, 7000000, 2000},
                  {4000, 7000000, 11000000, 9000000, 2000},
                  {4000, 7000000, 11000000, 9500000, 1500},
                  {4000, 7000000, 11000000, 11500000, -500}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        sumi_frame_limits limits = {.slice_us = 2000};
        sumi_frame_limits_begin(&limits, &(sumi_frame_call){s_rows[i].budget_us, 2000, false, s_rows[i].begin_ns});
        CHECK_NUMBER(limits.end_ns, s_rows[i].end_ns);
        CHECK_NEAR(sumi_frame_limits_slice_us(&limits, 2000, s_rows[i].now_ns), s_rows[i].slice_us, 1e-9, 0);
        CHECK_NEAR(limits.max_thread_us, 0, 0, 0);
        CHECK_NUMBER(limits.slice_us, 2000); // slices are cut while they run
    }
}

// Whether the next turn fits into a budget of 4000.
TEST(turns_fit_into_what_is_left)
{
    enum { PIECE = SUMI_OWN_PIECE, SLICE = SUMI_OWN_SUBMITTING, STREAMED = SUMI_OWN_STREAMING };
    enum { PREPARING = SUMI_OWN_PREPARING, UNLIMITED = SUMI_OWN_UNLIMITED };
    static const struct {
        const char* what;
        bool has_device, is_one_more;
        int work;
        double predicted_us, in_flight_us, elapsed_us;
        bool fits;
    } s_rows[] = {{"CPU: it fits", false, false, PIECE, 1000, 0, 3000, true},
                  {"CPU: it does not", false, false, SLICE, 1001, 0, 3000, false},
                  {"a piece within 200", true, false, PIECE, 50, 9000, 150, true},
                  {"a piece beyond 200", true, false, PIECE, 51, 0, 150, false},
                  {"preparing within 1600", true, false, PREPARING, 100, 9000, 1500, true},
                  {"preparing beyond 1600", true, false, PREPARING, 101, 0, 1500, false},
                  {"loading within the budget", true, false, UNLIMITED, 1000, 9000, 3000, true},
                  {"loading beyond the budget", true, false, UNLIMITED, 1001, 0, 3000, false},
                  {"a slice behind others", true, false, SLICE, 1000, 3000, 220, true},
                  {"too much in flight", true, false, SLICE, 1001, 3000, 220, false},
                  {"too much in flight, but one more", true, true, SLICE, 1001, 3000, 220, true},
                  {"submitted for too long", true, true, SLICE, 100, 0, 221, false},
                  {"an idle device", true, false, SLICE, 3800, 0, 200, true},
                  {"an idle device, too long", true, false, SLICE, 3801, 0, 200, false},
                  {"copies take a twelfth", true, false, STREAMED, 100, 500, 333, true},
                  {"copies beyond a twelfth", true, false, STREAMED, 100, 500, 334, false}};
    sumi_frame_limits limits = {.slice_us = 2000};
    sumi_frame_limits_begin(&limits, &(sumi_frame_call){4000, 2000, true, 0});
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        const sumi_next_turn turn = {.has_device = s_rows[i].has_device,
                                     .work = (sumi_own_work)s_rows[i].work,
                                     .predicted_us = s_rows[i].predicted_us,
                                     .in_flight_us = s_rows[i].in_flight_us,
                                     .is_one_more = s_rows[i].is_one_more};
        const bool fits = sumi_frame_limits_fit(&limits, &turn, 4000, s_rows[i].elapsed_us);
        CHECK(fits == s_rows[i].fits);
        if (fits != s_rows[i].fits) printf("  in the row \"%s\"\n", s_rows[i].what);
    }
}

TEST(own_work_takes_more_of_a_frame_than_slices)
{
    sumi_frame_limits limits = {0};
    sumi_frame_limits_begin(&limits, &(sumi_frame_call){4000, 2000, true, 0});
    CHECK_NEAR(sumi_frame_limits_own_us_in_frames(&limits, 30), 600, 0, 0); // 200 of 4000
    sumi_frame_limits_begin(&limits, &(sumi_frame_call){100, 2000, true, 0});
    CHECK_NEAR(sumi_frame_limits_own_us_in_frames(&limits, 30), 30, 0, 0);
    sumi_frame_limits_begin(&limits, &(sumi_frame_call){SUMI_FOREVER, 2000, true, 0});
    CHECK_NEAR(sumi_frame_limits_own_us_in_frames(&limits, 30), 30, 0, 0);
}

// ---- What a device has to do ----------------------------------------------------------------------------------------

TEST(a_device_ends_after_what_was_submitted)
{
    sumi_device_time time = {0};
    sumi_device_time_submit(&time, 1000000, 500);
    CHECK_NUMBER(time.ends_ns, 1500000);
    sumi_device_time_submit(&time, 1100000, 500); // behind the first
    CHECK_NUMBER(time.ends_ns, 2000000);
    sumi_device_time_submit(&time, 3000000, 250); // it was idle
    CHECK_NUMBER(time.ends_ns, 3250000);
    sumi_device_time_collect(&time, 3100000, 200); // no sooner than predicted
    CHECK_NUMBER(time.ends_ns, 3250000);
    sumi_device_time_collect(&time, 3100000, 100); // sooner
    CHECK_NUMBER(time.ends_ns, 3200000);
}

TEST(threads_sleep_until_half_of_the_work_has_ended)
{
    const double slack_us = sumi_sleep_slack_us();
    const struct {
        const char* what;
        int32_t count;
        double pending_us, oldest_us, left_us; // left_us: until the predicted end of all
        uint64_t late_ns;
        double sleep_us;
        bool is_late; // afterwards, the oldest slice is known to be late
    } rows[] = {{"one slice", 1, 8000, 8000, 9000 + slack_us, 0, 9000 + slack_us, false},
                {"two slices", 2, 8000, 4000, 9000 + slack_us, 0, 5800 + slack_us, false},
                {"late, others follow", 4, 8000, 2000, 3200, 0, 3000, true},
                {"late, and known to be", 4, 8000, 2000, 3200, 5, 0, true},
                {"late, nothing follows", 1, 8000, 8000, -100, 0, 0, true},
                {"an end that is near", 2, 100, 90, 200, 0, 160, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const uint64_t now_ns = 100000000000;
        sumi_device_time time = {.ends_ns = now_ns + (uint64_t)(int64_t)(rows[i].left_us * 1e3),
                                 .late_slice_ns = rows[i].late_ns};
        const sumi_in_flight in_flight = {rows[i].count, rows[i].pending_us, rows[i].oldest_us, 5};
        const double us = sumi_device_time_sleep_us(&time, &in_flight, now_ns);
        CHECK_NEAR(us, rows[i].sleep_us, 1e-6, 0);
        CHECK((time.late_slice_ns == 5) == rows[i].is_late);
        if (fabs(us - rows[i].sleep_us) > 1e-6) printf("  in the row \"%s\"\n", rows[i].what);
    }
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

#define MB 1000000ull

// The first limit after a failed allocation: of what is held and free, a sixteenth is left, and the rest is rounded
// down; where what is free is unknown, seven eighths of what was refused or of the budget, or what was held.
TEST(a_limit_is_less_than_what_was_refused)
{
    static const struct {
        const char* what;
        sumi_memory_capacity capacity;
        uint64_t budget, bytes;
    } s_rows[] = {{"half is free", {400 * MB, 400 * MB, true, 0, 0}, 0, 746586112},
                  {"most is held", {7000 * MB, 1000 * MB, true, 0, 0}, 0, 7918845952},
                  {"a smaller budget", {7000 * MB, 1000 * MB, true, 0, 0}, 4000 * MB, 3500 * MB},
                  {"nothing at all", {0, 0, true, 0, 0}, 0, 0},
                  {"refused", {0, 0, false, 600 * MB, 200 * MB}, 0, 700 * MB},
                  {"refused a little", {0, 0, false, 790 * MB, 10 * MB}, 0, 790 * MB},
                  {"refused, with a smaller budget", {0, 0, false, 600 * MB, 400 * MB}, 640 * MB, 600 * MB},
                  {"refused nothing", {0, 0, false, 0, 0}, 0, 0}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        sumi_shortage_limit limit = {0};
        bool was_raised = true;
        CHECK(!sumi_shortage_limit_lower(&limit, s_rows[i].budget, &was_raised)); // no allocation has failed
        sumi_shortage_limit_note(&limit, &s_rows[i].capacity);
        CHECK(sumi_shortage_limit_lower(&limit, s_rows[i].budget, &was_raised) == (s_rows[i].bytes > 0));
        CHECK(!was_raised);
        CHECK_NUMBER(limit.bytes, s_rows[i].bytes);
        if (limit.bytes != s_rows[i].bytes) printf("  in the row \"%s\"\n", s_rows[i].what);
        CHECK_NUMBER(limit.review_distance, s_rows[i].capacity.is_known ? 0 : 4);
        CHECK(limit.retry_is_pending == (s_rows[i].bytes == 0));
        CHECK_NUMBER(sumi_shortage_limit_lesser(&limit, 0), s_rows[i].bytes);
        CHECK_NUMBER(sumi_shortage_limit_lesser(&limit, 1), 1);
    }
}

TEST(a_limit_falls_by_an_eighth_each_time)
{
    sumi_shortage_limit limit = {0};
    bool was_raised;
    uint64_t want = 700 * MB;
    for (int i = 0; i < 5; i++, want = want / 8 * 7) {
        sumi_shortage_limit_note(&limit,
                                 &(sumi_memory_capacity){.failed_held_bytes = 0, .failed_request_bytes = 800 * MB});
        CHECK(sumi_shortage_limit_lower(&limit, 0, &was_raised));
        CHECK_NUMBER(limit.bytes, want);
    }
}

// A limit of 500 MB, of a job that wants 900 MB.
TEST(a_limit_rises_with_the_free_memory)
{
    static const struct {
        const char* what;
        sumi_memory_capacity capacity;
        uint64_t budget, least_bytes;
        bool rises;
        uint64_t bytes;
    } s_rows[] = {{"not enough more", {500 * MB, 80 * MB, true, 0, 0}, 0, 562 * MB, false, 500 * MB},
                  {"more", {500 * MB, 300 * MB, true, 0, 0}, 0, 562 * MB, true, 746586112},
                  {"enough for the job", {500 * MB, 600 * MB, true, 0, 0}, 0, 562 * MB, true, 0},
                  {"enough for the budget", {500 * MB, 300 * MB, true, 0, 0}, 700 * MB, 562 * MB, true, 0},
                  {"unknown", {0, 0, false, 0, 0}, 0, 562 * MB, true, 0}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        sumi_shortage_limit limit = {.bytes = 500 * MB, .job_count = 3, .retry_is_pending = true};
        sumi_shortage_limit_note_request(&limit, 900 * MB);
        sumi_shortage_limit_note_request(&limit, 200 * MB); // the largest one counts
        const bool rises =
            sumi_shortage_limit_raise(&limit, &s_rows[i].capacity, s_rows[i].budget, s_rows[i].least_bytes);
        CHECK(rises == s_rows[i].rises);
        CHECK_NUMBER(limit.bytes, s_rows[i].bytes);
        if (limit.bytes != s_rows[i].bytes) printf("  in the row \"%s\"\n", s_rows[i].what);
        CHECK_NUMBER(limit.previous_bytes, rises ? 500 * MB : 0);
        CHECK_NUMBER(limit.job_count, rises ? 0 : 3);
        CHECK(limit.retry_is_pending == !rises);
    }
}

// With an allocator that cannot be asked, each failed try doubles the distance to the next one.
TEST(reviews_become_rare_while_they_fail)
{
    static const int32_t s_distances[] = {4, 8, 16, 32, 64, 128, 256, 256};
    const sumi_memory_capacity unknown = {.failed_held_bytes = 600 * MB, .failed_request_bytes = 200 * MB};
    sumi_shortage_limit limit = {0};
    uint64_t least_bytes;
    bool was_raised;
    sumi_shortage_limit_note(&limit, &unknown);
    CHECK(sumi_shortage_limit_lower(&limit, 0, &was_raised));
    for (size_t i = 0; i < sizeof s_distances / sizeof *s_distances; i++) {
        for (int32_t job = 0; job < s_distances[i]; job++) CHECK(!sumi_shortage_limit_begin_job(&limit, &least_bytes));
        CHECK(sumi_shortage_limit_begin_job(&limit, &least_bytes));
        CHECK_NUMBER(least_bytes, 787500000); // an eighth more
        CHECK(sumi_shortage_limit_raise(&limit, &unknown, 0, least_bytes));
        CHECK_NUMBER(limit.bytes, 0);
        sumi_shortage_limit_note(&limit, &unknown);
        CHECK(sumi_shortage_limit_lower(&limit, 0, &was_raised));
        CHECK(was_raised);
        CHECK_NUMBER(limit.bytes, 700 * MB);
    }
    CHECK(sumi_shortage_limit_raise(&limit, &unknown, 0, least_bytes));
    sumi_shortage_limit_confirm(&limit);
    CHECK_NUMBER(limit.previous_bytes, 0);
    CHECK_NUMBER(limit.review_distance, 4);
    CHECK(!sumi_shortage_limit_begin_job(&limit, &least_bytes)); // there is no limit
}

TEST(the_smallest_form_needs_memory_that_may_be_there)
{
    static const struct {
        uint64_t limit, smallest, budget;
        bool rises;
    } s_rows[] = {{500 * MB, 600 * MB, 0, true},        {0, 600 * MB, 0, false},
                  {500 * MB, 500 * MB, 0, false},       {500 * MB, 800 * MB, 0, true},
                  {500 * MB, 800 * MB + 1, 0, false},   {500 * MB, 600 * MB, 600 * MB, true},
                  {500 * MB, 600 * MB, 599 * MB, false}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        sumi_shortage_limit limit = {.bytes = s_rows[i].limit, .smallest_form_bytes = s_rows[i].smallest};
        limit.capacity = (sumi_memory_capacity){600 * MB, 200 * MB, true, 0, 0};
        CHECK(sumi_shortage_limit_raise_to_smallest_form(&limit, s_rows[i].budget) == s_rows[i].rises);
        CHECK_NUMBER(limit.bytes, s_rows[i].rises ? s_rows[i].smallest : s_rows[i].limit);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(slices_follow_the_budget);
    RUN(what_is_in_flight_follows_the_step);
    RUN(slices_do_not_follow_every_change);
    RUN(pieces_on_a_cpu_end_with_the_budget);
    RUN(turns_fit_into_what_is_left);
    RUN(own_work_takes_more_of_a_frame_than_slices);
    RUN(a_device_ends_after_what_was_submitted);
    RUN(threads_sleep_until_half_of_the_work_has_ended);
    RUN(a_limit_is_less_than_what_was_refused);
    RUN(a_limit_falls_by_an_eighth_each_time);
    RUN(a_limit_rises_with_the_free_memory);
    RUN(reviews_become_rare_while_they_fail);
    RUN(the_smallest_form_needs_memory_that_may_be_there);
    TEST_END();
}
