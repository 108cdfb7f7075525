// samples/live: which jobs it cancels for a newer canvas, that nothing starves, what its counts say, and what it takes
// from a script and from a folder. No time passes here but that of the test: the engine's clock is fake_clock.h, and
// what the sample looks at is an argument.
#include "engine_fixture.h"
#include "fake_clock.h"

int live_main(int argc, char** argv);
#define main live_main
#include "../samples/live/canvas.c"
#include "../samples/live/live.c"
#undef main

#define SIDE 64

// ---- The policy -----------------------------------------------------------------------------------------------------

TEST(a_running_job_gives_way_only_while_the_canvas_rests)
{
    CHECK(!gives_way(0.0, 0.0, false)); // somebody paints
    CHECK(!gives_way(0.0, 0.5 * REST_SECONDS, false));
    CHECK(gives_way(0.0, REST_SECONDS, false));
    CHECK(gives_way(0.49, 10.0, false));
    CHECK(!gives_way(0.5, 10.0, false)); // more is done than left
    CHECK(!gives_way(0.0, 10.0, true));  // one did since the last picture
}

TEST(what_is_in_flight_on_a_gpu_is_spent)
{
    sumi_job_status status = {.progress = 0.0f, .seconds_left = -1.0f}; // not known yet
    CHECK(spent_share(&status) == 0.0);
    status = (sumi_job_status){.progress = 0.25f, .seconds_left = 0.075f};
    CHECK_NEAR(spent_share(&status), 0.25, 1e-6, 0.0); // of float
    status.pending_us = 25000.0f;
    CHECK_NEAR(spent_share(&status), 0.5, 1e-6, 0.0);
    status.pending_us = 1e6f; // predictions may be wrong
    CHECK_NEAR(spent_share(&status), 1.0, 1e-6, 0.0);
}

// A job takes `picture` ms; the canvas changes `changes` times every `interval` ms, then rests for `rest` ms, and so on.
// Returns the longest time without a picture while there was something to draw, in ms; *out_gave_way: jobs that did.
static int longest_wait(int picture, int interval, int changes, int rest, int* out_gave_way)
{
    int done = -1, longest = 0, since = 0, last_change = 0, next_change = 0, count = 0; // done: -1 is no job
    bool waits = false, one_gave_way = false;
    *out_gave_way = 0;
    for (int now = 0; now < 40 * picture + 4000; now++) {
        if (now == next_change) {
            last_change = now;
            next_change = now + (++count % changes == 0 ? rest : interval);
            waits = true;
        }
        if (done >= 0 && waits && gives_way((double)done / picture, 1e-3 * (now - last_change), one_gave_way)) {
            one_gave_way = true;
            done = -1;
            ++*out_gave_way;
        }
        if (done < 0 && waits) waits = false, done = 0;
        if (done < 0) since = now;
        if (done >= 0 && ++done == picture) {
            longest = now - since > longest ? now - since : longest;
            since = now;
            one_gave_way = false;
            done = -1;
        }
    }
    return longest;
}

TEST(no_picture_is_late_by_more_than_half_of_one)
{
    static const int s_pictures[] = {10, 52, 300, 2000}, s_intervals[] = {1, 17, 40, 60, 120, 900},
                     s_changes[] = {1, 2, 20, 1000000}, s_rests[] = {51, 60, 200, 1500};
    int gave_way, most = 0;
    for (size_t a = 0; a < 4; a++) {
        for (size_t i = 0; i < 6 * 4 * 4; i++) {
            const int picture = s_pictures[a], interval = s_intervals[i % 6];
            const int wait = longest_wait(picture, interval, s_changes[i / 6 % 4], s_rests[i / 24], &gave_way);
            CHECK(wait <= picture + picture / 2 + 1);
            most = gave_way > most ? gave_way : most;
        }
    }
    CHECK(most > 0);
    // A tablet: every picture is done, and none gives way.
    CHECK(longest_wait(52, 17, 1000000, 1000, &gave_way) <= 53 && gave_way == 0);
    // A short dab of a slow model: the picture of its beginning gives way.
    CHECK(longest_wait(2000, 17, 5, 30000, &gave_way) <= 3001 && gave_way > 0);
}

// ---- With an engine -------------------------------------------------------------------------------------------------

static uint8_t s_canvases[6][SIDE * SIDE * 3];
static sumi_pixels canvas_of(int number)
{
    for (int i = 0; i < SIDE * SIDE * 3; i++) s_canvases[number][i] = (uint8_t)(i * (number + 1) / 40 + 50 * number);
    return (sumi_pixels){s_canvases[number], SIDE, SIDE, 0, 3};
}

static painter open_tiny(void)
{
    const options o = {.model = "tests/golden/flux2-klein/model",
                       .prompt = "a fox",
                       .backend = SUMI_BACKEND_CPU,
                       .size = {SIDE, SIDE},
                       .strength = 0.6};
    painter p = {0};
    CHECK(open_painter(&p, &o, NULL));
    p.budget_us = 1; // a piece of an op in each turn
    fake_clock_begin(1000);
    return p;
}

static void close_tiny(painter* p)
{
    fake_clock_end();
    close_painter(p);
}

static sumi_job_state state_of(const painter* p, int32_t number)
{
    return sumi_job_poll(p->engine, p->drawings[number].job).state;
}

// A job without anything else, the picture that is shown, and the bits of both.
static void check_shown(painter* p, int number)
{
    const sumi_pixels pixels = canvas_of(number);
    sumi_image_desc desc = p->desc;
    desc.start.image = &pixels;
    sumi_image plain = {0};
    CHECK_NUMBER(draw(p->engine, &desc, &plain), SUMI_OK);
    CHECK(hash_image(&plain) != 0 && hash_image(&plain) == hash_image(&p->shown));
    sumi_images_release(p->engine, &plain, 1);
}

static void finish(painter* p, double now)
{
    while (p->drawing_count > 0) CHECK(step(p, NULL, now));
    CHECK_NUMBER(p->submitted, p->finished + p->cancelled + p->failed);
}

TEST(a_job_that_waits_is_cancelled_for_the_newest_canvas_and_one_that_runs_goes_on)
{
    painter p = open_tiny();
    for (int i = 0; i < 6; i++) {
        const sumi_pixels pixels = canvas_of(i);
        CHECK(submit_canvas(&p, &pixels, 0.0));
        if (i == 0) CHECK(step(&p, NULL, 0.0));
        CHECK_NUMBER(state_of(&p, 0), SUMI_JOB_RUNNING);
    }
    CHECK(step(&p, NULL, 0.0));
    CHECK_NUMBER(p.drawing_count, 2);
    CHECK_NUMBER(state_of(&p, 0), SUMI_JOB_RUNNING);
    CHECK_NUMBER(state_of(&p, 1), SUMI_JOB_QUEUED);
    CHECK_NUMBER(p.cancelled, 4);
    while (p.finished == 0) CHECK(step(&p, NULL, 0.0));
    check_shown(&p, 0);
    finish(&p, 0.0);
    check_shown(&p, 5);
    CHECK(p.submitted == 6 && p.finished == 2 && p.cancelled == 4 && p.cancelled_begun == 0);
    CHECK(p.from_submit.count == 2 && p.from_input.count == 2 && p.between.count == 1);
    close_tiny(&p);
}

TEST(while_the_canvas_rests_a_job_that_has_just_begun_gives_way)
{
    painter p = open_tiny();
    const sumi_pixels older = canvas_of(0), newer = canvas_of(1);
    CHECK(submit_canvas(&p, &older, 0.0) && step(&p, NULL, 0.0));
    CHECK(submit_canvas(&p, &newer, 0.0) && step(&p, NULL, 0.5 * REST_SECONDS));
    CHECK_NUMBER(p.drawing_count, 2);
    CHECK(step(&p, NULL, REST_SECONDS));
    CHECK_NUMBER(p.drawing_count, 1);
    CHECK(p.cancelled == 1 && p.cancelled_begun == 1 && p.one_gave_way);
    // The next one goes on, however long the canvas rests.
    CHECK(step(&p, NULL, 1.0) && submit_canvas(&p, &older, 1.0));
    finish(&p, 9.0);
    CHECK(p.finished == 2 && p.cancelled == 1 && !p.one_gave_way);
    check_shown(&p, 0);
    close_tiny(&p);
}

TEST(a_job_that_is_half_done_goes_on)
{
    painter p = open_tiny();
    const sumi_pixels older = canvas_of(0), newer = canvas_of(1);
    CHECK(submit_canvas(&p, &older, 0.0));
    sumi_job_status status = {0};
    while (status.state < SUMI_JOB_DONE && spent_share(&status) < 0.5) {
        CHECK(step(&p, NULL, 0.0));
        status = sumi_job_poll(p.engine, p.drawings[0].job);
    }
    CHECK_NUMBER(status.state, SUMI_JOB_RUNNING);
    CHECK(submit_canvas(&p, &newer, 0.0));
    finish(&p, 9.0);
    CHECK(p.finished == 2 && p.cancelled == 0);
    check_shown(&p, 1);
    close_tiny(&p);
}

// ---- The canvas -----------------------------------------------------------------------------------------------------

TEST(inputs_of_a_script_come_at_their_times)
{
    char message[PICTURE_MESSAGE_BYTES];
    canvas c = {.rate = 60.0, .begin = 100.0, .total = 90};
    CHECK(canvas_open_script(&c, "40", (sumi_size){SIDE, SIDE}, message));
    double came = 0.0;
    CHECK_NUMBER(canvas_take(&c, 99.9, &came), 0);
    CHECK_NUMBER(canvas_take(&c, 100.0, &came), 1);
    CHECK(came == 100.0 && !canvas_has_ended(&c));
    CHECK_NUMBER(canvas_take(&c, 100.01, &came), 0);
    const uint64_t first = hash_bytes(c.drawn, SIDE * SIDE * 3);
    CHECK_NUMBER(canvas_take(&c, 100.51, &came), 30); // a long turn
    CHECK_NEAR(came, 100.5, 1e-9, 0.0);
    CHECK(hash_bytes(c.drawn, SIDE * SIDE * 3) != first);
    CHECK_NUMBER(canvas_take(&c, 100.0 + 40.5 / 60.0, &came), 10); // the 41st: the stroke begins again
    CHECK(hash_bytes(c.drawn, SIDE * SIDE * 3) == first);
    CHECK_NUMBER(canvas_take(&c, 200.0, &came), 49);
    CHECK_NEAR(came, 100.0 + 89.0 / 60.0, 1e-9, 0.0);
    CHECK(canvas_has_ended(&c) && canvas_take(&c, 300.0, &came) == 0);
    canvas_close(&c);
    CHECK(!canvas_open_script(&c, "40 frames", (sumi_size){SIDE, SIDE}, message));
    CHECK_TEXT(message, "40 frames is neither a folder nor a number of frames");
}

static char s_folder[1000];
static void write_frame(const char* name, uint8_t grey, size_t bytes) // of the file; 0: all of it
{
    uint8_t pixels[16 * 16];
    memset(pixels, grey, sizeof pixels);
    const picture_source source = {pixels, 16, 16, 16, 1, NULL, 0};
    char path[1100], message[PICTURE_MESSAGE_BYTES];
    snprintf(path, sizeof path, "%s/%s", s_folder, name);
    void* data;
    size_t all;
    CHECK(picture_encode(PICTURE_PNG, &source, &data, &all, message));
    system_sleep_us(30000); // longer than the steps in which systems tell the time of a file
    FILE* file = system_open(path, "wb");
    CHECK(file != NULL && fwrite(data, 1, bytes > 0 ? bytes : all, file) > 0 && fclose(file) == 0);
    free(data);
}

static int grey_of(canvas* c, double now) // of what is taken; -1: nothing is
{
    double came;
    return canvas_take(c, now, &came) > 0 ? ((const uint8_t*)c->pixels.data)[0] : -1;
}

TEST(the_newest_file_of_a_folder_is_taken_once)
{
    char message[PICTURE_MESSAGE_BYTES];
    CHECK(system_make_scratch(s_folder, sizeof s_folder, "sumi-live"));
    canvas c = {.left_out = "out.png"};
    CHECK(canvas_open_folder(&c, s_folder, message));
    CHECK_NUMBER(grey_of(&c, 1.0), -1);
    write_frame("b.png", 10, 0);
    write_frame("a.png", 20, 0);
    CHECK_NUMBER(grey_of(&c, 2.0), 20);
    CHECK_NUMBER(grey_of(&c, 3.0), -1);
    write_frame("b.png", 30, 0);
    CHECK_NUMBER(grey_of(&c, 3.0 + 0.5 * LOOK_SECONDS), -1); // it has just looked
    CHECK_NUMBER(grey_of(&c, 4.0), 30);
    write_frame("out.png", 40, 0); // the sample's
    write_frame("out.png.part.png", 40, 0);
    CHECK_NUMBER(grey_of(&c, 5.0), -1);
    write_frame("a.png", 50, 40); // is being written
    CHECK_NUMBER(grey_of(&c, 6.0), -1);
    write_frame("a.png", 50, 0);
    CHECK_NUMBER(grey_of(&c, 7.0), 50);
    write_frame("c.png", 60, 40); // stays so, which is said once
    for (int i = 0; i < 3; i++) CHECK_NUMBER(grey_of(&c, 8.0 + i), -1);
    CHECK_NUMBER(c.taken, 3);
    canvas_close(&c);
    int count;
    char** names = system_list(s_folder, &count);
    for (int i = 0; i < count; i++) {
        char path[1100];
        snprintf(path, sizeof path, "%s/%s", s_folder, names[i]);
        CHECK(system_remove(path));
    }
    system_free_list(names, count);
    CHECK(system_remove(s_folder));
    CHECK(!canvas_open_folder(&c, s_folder, message) && strstr(message, "is no folder") != NULL);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(a_running_job_gives_way_only_while_the_canvas_rests);
    RUN(what_is_in_flight_on_a_gpu_is_spent);
    RUN(no_picture_is_late_by_more_than_half_of_one);
    RUN(a_job_that_waits_is_cancelled_for_the_newest_canvas_and_one_that_runs_goes_on);
    RUN(while_the_canvas_rests_a_job_that_has_just_begun_gives_way);
    RUN(a_job_that_is_half_done_goes_on);
    RUN(inputs_of_a_script_come_at_their_times);
    RUN(the_newest_file_of_a_folder_is_taken_once);
    TEST_END();
}
