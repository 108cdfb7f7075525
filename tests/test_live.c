// samples/live: which jobs it cancels for a newer input, that nothing starves, what its counts say, and what it takes
// from a script and from a folder. No time passes here but that of the test: the engine's clock is fake_clock.h, and
// what the sample looks at is an argument.
#include "engine_fixture.h"
#include "fake_clock.h"

int live_main(int argc, char** argv);
#define main live_main
#include "../samples/live/canvas.c"
#include "../samples/live/live.c"
#include "../samples/live/newest_wins.c"
#include "../samples/live/painter.c"
#undef main

#define SIDE 32
#define TINY "tests/golden/flux2-klein/model"

// ---- The policy -----------------------------------------------------------------------------------------------------

TEST(a_job_that_waits_is_replaced_and_one_that_runs_gives_way_once_and_early)
{
    CHECK(newest_wins(&(older_job){.has_begun = false}));
    CHECK(newest_wins(&(older_job){.has_begun = false, .another_gave_way = true}));
    CHECK(newest_wins(&(older_job){.has_begun = true, .spent = 0.24}));
    CHECK(!newest_wins(&(older_job){.has_begun = true, .spent = 0.25}));
    CHECK(!newest_wins(&(older_job){.has_begun = true, .spent = 0.99}));
    CHECK(!newest_wins(&(older_job){.has_begun = true, .spent = 0.0, .another_gave_way = true}));
}

TEST(what_is_in_flight_on_a_gpu_is_spent)
{
    CHECK(newest_wins_spent(0.0, -1.0, 0.0) == 0.0); // not known yet
    CHECK(newest_wins_spent(0.25, 0.075, 0.0) == 0.25);
    CHECK_NEAR(newest_wins_spent(0.25, 0.075, 0.025), 0.5, 1e-12, 0.0);
    CHECK_NEAR(newest_wins_spent(0.25, 0.075, 1.0), 1.0, 1e-12, 0.0); // predictions may be wrong
}

// A device that takes `picture` ms for a job, and an input every `interval` ms for `busy` ms of every `period` ms. Time
// goes in milliseconds.
typedef struct simulation {
    int picture, interval, busy, period;
    int finished, cancelled, lost; // jobs that had begun, and ms of their work
    int longest;                   // ms without a picture while there was something to draw
    int last_shown, last_input;    // the input of the newest picture, and the newest one
} simulation;

static void simulate(simulation* s)
{
    int running = -1, waiting = -1, done = 0, since = 0; // the inputs of the two jobs; -1 is none
    bool one_gave_way = false;
    const int end = (20 * s->picture / s->period + 4) * s->period;
    for (int now = 0; now < end; now++) {
        if (now % s->period < s->busy && now % s->period % s->interval == 0) {
            const older_job older = {true, (double)done / s->picture, one_gave_way};
            if (running >= 0 && newest_wins(&older)) {
                s->cancelled++, s->lost += done;
                one_gave_way = true;
                running = -1;
            }
            waiting = s->last_input = now; // one that waited is replaced
        }
        if (running < 0) {
            running = waiting, waiting = -1, done = 0;
            if (running < 0) since = now + 1;
        }
        if (running < 0 || ++done < s->picture) continue;
        s->finished++;
        s->last_shown = running;
        s->longest = now + 1 - since > s->longest ? now + 1 - since : s->longest;
        since = now + 1;
        one_gave_way = false;
        running = -1;
    }
}

TEST(pictures_keep_coming_however_fast_the_input_changes)
{
    static const int s_pictures[] = {5, 45, 300, 2000}, s_intervals[] = {1, 4, 17, 33, 100, 900},
                     s_busy[] = {1, 300, 3000};
    int cancelled = 0;
    for (int i = 0; i < 4 * 6 * 3; i++) {
        simulation s = {
            .picture = s_pictures[i % 4], .interval = s_intervals[i / 4 % 6], .busy = s_busy[i / 24], .period = 3000};
        simulate(&s);
        CHECK(s.longest <= s.picture + (s.picture + 3) / 4);
        CHECK(s.cancelled <= s.finished + 1);
        CHECK(s.lost <= s.finished * s.picture / 4 + s.picture);
        if (s.busy < 3000 && s.picture < 2000) CHECK(s.last_shown == s.last_input); // the newest one is not forgotten
        cancelled += s.cancelled;
    }
    CHECK(cancelled > 0);
}

// ---- With an engine -------------------------------------------------------------------------------------------------

static uint8_t s_canvases[6][SIDE * SIDE * 3];
static sumi_pixels canvas_of(int number)
{
    for (int i = 0; i < SIDE * SIDE * 3; i++) s_canvases[number][i] = (uint8_t)(i * (number + 1) / 40 + 50 * number);
    return (sumi_pixels){s_canvases[number], SIDE, SIDE, 0, 3};
}

static painter open_model_of(const char* path)
{
    const painter_desc desc = {.model = path,
                               .prompt = "a fox",
                               .backend = SUMI_BACKEND_CPU,
                               .size = {SIDE, SIDE},
                               .steps = 3, // two of which run: at the first one the canvas would be all noise
                               .strength = 0.6,
                               .seed = 5};
    painter p = {0};
    CHECK(painter_open(&p, &desc));
    p.budget_us = 1; // a piece of an op in each turn
    fake_clock_begin(1000);
    return p;
}

static painter open_tiny(void) { return open_model_of(TINY); }

static void close_tiny(painter* p)
{
    CHECK(painter_stop(p));
    CHECK_NUMBER(p->drawing_count, 0);
    CHECK_NUMBER(p->submitted, p->finished + p->cancelled + p->failed);
    fake_clock_end();
    painter_close(p);
}

static bool submit(painter* p, int number)
{
    const sumi_pixels pixels = canvas_of(number);
    return painter_submit(p, &pixels, 0.0);
}

static sumi_job_state state_of(const painter* p, int32_t number)
{
    return number < p->drawing_count ? sumi_job_poll(p->engine, p->drawings[number].job).state : SUMI_JOB_NONE;
}

static void turn_until(painter* p, int32_t finished)
{
    int32_t frames = 0;
    while (p->finished < finished && p->drawing_count > 0 && count_frame(&frames)) CHECK(painter_turn(p));
    CHECK_NUMBER(p->finished, finished);
}

// The picture that is shown has the bits of a job that was not disturbed.
static void check_shown(painter* p, int number)
{
    const sumi_pixels pixels = canvas_of(number);
    sumi_image_desc desc = p->desc;
    desc.items = &p->item;
    desc.start.image = &pixels;
    sumi_image plain = {0};
    CHECK_NUMBER(draw(p->engine, &desc, &plain), SUMI_OK);
    CHECK(hash_image(&plain) != 0 && hash_image(&plain) == hash_image(&p->shown));
    sumi_images_release(p->engine, &plain, 1);
}

TEST(the_newest_input_wins_and_a_second_job_does_not_give_way)
{
    painter p = open_tiny();
    CHECK(submit(&p, 0) && painter_turn(&p));
    CHECK_NUMBER(state_of(&p, 0), SUMI_JOB_RUNNING);
    CHECK(submit(&p, 1)); // little of the first one is done
    CHECK(painter_turn(&p) && painter_turn(&p));
    CHECK(p.cancelled == 1 && p.cancelled_begun == 1 && p.drawing_count == 1);
    CHECK_NUMBER(state_of(&p, 0), SUMI_JOB_RUNNING);
    for (int i = 2; i < 6; i++) CHECK(submit(&p, i)); // each replaces the one that waits
    CHECK(painter_turn(&p));
    CHECK(p.cancelled == 4 && p.cancelled_begun == 1 && p.drawing_count == 2);
    CHECK(state_of(&p, 0) == SUMI_JOB_RUNNING && state_of(&p, 1) == SUMI_JOB_QUEUED);
    turn_until(&p, 1);
    check_shown(&p, 1);
    CHECK(!p.one_gave_way); // the next one may
    turn_until(&p, 2);
    check_shown(&p, 5);
    CHECK(p.submitted == 6 && p.finished == 2 && p.cancelled == 4);
    CHECK(p.from_submit.count == 2 && p.from_input.count == 2 && p.between.count == 1);
    close_tiny(&p);
}

TEST(a_job_that_is_a_quarter_done_goes_on)
{
    painter p = open_tiny();
    CHECK(submit(&p, 2));
    sumi_job_status status = {0};
    int32_t frames = 0;
    while (status.state < SUMI_JOB_DONE && status.progress < 0.25f && painter_turn(&p) && count_frame(&frames)) {
        status = sumi_job_poll(p.engine, p.drawings[0].job);
    }
    CHECK(status.state == SUMI_JOB_RUNNING && submit(&p, 3));
    turn_until(&p, 1);
    check_shown(&p, 2);
    turn_until(&p, 2);
    check_shown(&p, 3);
    CHECK_NUMBER(p.cancelled, 0);
    CHECK(submit(&p, 4)); // what is not finished at the end is cancelled
    close_tiny(&p);
    CHECK(p.submitted == 3 && p.cancelled == 1);
}

// ---- The canvas -----------------------------------------------------------------------------------------------------

TEST(inputs_of_a_script_come_at_their_times)
{
    char message[PICTURE_MESSAGE_BYTES];
    canvas c = {.rate = 60.0, .total = 90};
    CHECK(canvas_open_script(&c, "40", message) && canvas_begin(&c, (sumi_size){SIDE, SIDE}, 100.0));
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
    CHECK(!canvas_open_script(&c, "40 frames", message) && strstr(message, "neither a folder nor a number") != NULL);
    CHECK(!canvas_open_script(&c, "tests", message) && strstr(message, "has no PNG, JPEG or WebP file") != NULL);
    canvas_close(&c);
}

static char s_folder[1000];
static void write_pixels(const char* name, const uint8_t* pixels, int32_t channel_count, size_t bytes)
{
    const picture_source source = {pixels, 16, 16, 16 * (size_t)channel_count, channel_count, NULL, 0};
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

static void write_frame(const char* name, uint8_t grey, size_t bytes) // of the file; 0: all of it
{
    uint8_t pixels[16 * 16];
    memset(pixels, grey, sizeof pixels);
    write_pixels(name, pixels, 1, bytes);
}

static int grey_of(canvas* c, double now) // of what is taken; -1: nothing is
{
    double came;
    return canvas_take(c, now, &came) > 0 ? ((const uint8_t*)c->pixels.data)[0] : -1;
}

static void remove_folder(void)
{
    int count;
    char** names = system_list(s_folder, &count);
    for (int i = 0; i < count; i++) {
        char path[1100];
        snprintf(path, sizeof path, "%s/%s", s_folder, names[i]);
        CHECK(system_remove(path));
    }
    system_free_list(names, count);
    CHECK(system_remove(s_folder));
}

TEST(each_new_or_changed_file_of_a_folder_is_an_input)
{
    char message[PICTURE_MESSAGE_BYTES], path[1100];
    CHECK(system_make_scratch(s_folder, sizeof s_folder, "sumi-live"));
    canvas c = {0};
    CHECK(canvas_open_folder(&c, s_folder, message) && !canvas_has_picture(s_folder));
    CHECK_NUMBER(grey_of(&c, 1.0), -1);
    write_frame("b.png", 10, 0);
    write_frame("a.png", 20, 0);
    CHECK(canvas_has_picture(s_folder));
    CHECK_NUMBER(grey_of(&c, 2.0), 20);
    CHECK_NUMBER(c.taken, 1); // what was there at first is one input
    CHECK_NUMBER(grey_of(&c, 3.0), -1);
    write_frame("b.png", 30, 0);
    CHECK_NUMBER(grey_of(&c, 3.0 + 0.5 * LOOK_SECONDS), -1); // it has just looked
    CHECK_NUMBER(grey_of(&c, 4.0), 30);
    write_frame("c.png", 35, 0);
    write_frame("b.png", 40, 0); // two since the last look
    CHECK_NUMBER(grey_of(&c, 5.0), 40);
    CHECK(c.taken == 4 && !canvas_has_ended(&c));
    write_frame("a.png", 50, 40); // is being written
    CHECK_NUMBER(grey_of(&c, 6.0), -1);
    write_frame("a.png", 50, 0);
    CHECK_NUMBER(grey_of(&c, 7.0), 50);
    write_frame("a.png", 55, 40); // is written to its end within one tick of the system's clock
    CHECK_NUMBER(grey_of(&c, 7.5), -1);
    write_frame("a.png", 55, 0);
    snprintf(path, sizeof path, "%s/a.png", s_folder);
    c.files[0].changed_ns = system_changed_ns(path);
    CHECK_NUMBER(grey_of(&c, 7.6), 55);
    write_frame("d.png", 60, 40); // stays so, which is said once
    for (int i = 0; i < 3; i++) CHECK_NUMBER(grey_of(&c, 8.0 + i), -1);
    CHECK_NUMBER(c.taken, 6);
    canvas_close(&c);
    remove_folder();
    CHECK(!canvas_open_folder(&c, s_folder, message) && strstr(message, "there is no folder") != NULL);
}

// The picture that a model draws over the first frame of the folder, which is removed.
static uint64_t draw_over_frame(const char* model, bool* out_has_alpha)
{
    char message[PICTURE_MESSAGE_BYTES];
    painter p = open_model_of(model);
    p.budget_us = 1000000;
    canvas c = {0};
    CHECK(canvas_open_folder(&c, s_folder, message));
    CHECK_NUMBER(grey_of(&c, 1.0), 0);
    CHECK(painter_submit(&p, &c.pixels, 0.0));
    turn_until(&p, 1);
    const uint64_t hash = hash_image(&p.shown);
    *out_has_alpha = p.shown.has_alpha;
    close_tiny(&p);
    canvas_close(&c);
    remove_folder();
    return hash;
}

TEST(alpha_of_a_frame_is_read_by_models_that_know_it)
{
    static const struct {
        const char* model;
        bool has_alpha;
    } s_cases[] = {{TINY, false}, {"tests/golden/qwen-image-21/model", true}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        uint64_t hashes[2];
        for (int channels = 3; channels <= 4; channels++) { // the same colours; a quarter is transparent
            uint8_t pixels[16 * 16 * 4];
            for (int at = 0; at < 16 * 16; at++) {
                for (int k = 0; k < channels; k++) pixels[at * channels + k] = (uint8_t)(at % 16 * 16);
                if (channels == 4) pixels[at * channels + 3] = at < 64 ? 0 : 255;
            }
            bool has_alpha = false;
            CHECK(system_make_scratch(s_folder, sizeof s_folder, "sumi-live"));
            write_pixels("a.png", pixels, channels, 0);
            hashes[channels - 3] = draw_over_frame(s_cases[i].model, &has_alpha);
            CHECK(hashes[channels - 3] != 0 && has_alpha == s_cases[i].has_alpha);
        }
        CHECK((hashes[0] != hashes[1]) == s_cases[i].has_alpha);
    }
}

TEST(a_picture_in_the_watched_folder_is_written_whole_and_is_no_input)
{
    char message[PICTURE_MESSAGE_BYTES], out[1100];
    CHECK(system_make_scratch(s_folder, sizeof s_folder, "sumi-live"));
    snprintf(out, sizeof out, "%s/out.png", s_folder);
    live l = {.painter = open_tiny(), .canvas = {.result = out}, .writes_all = true};
    l.painter.budget_us = 1000000;
    CHECK(canvas_open_folder(&l.canvas, s_folder, message));
    write_frame("a.png", 90, 0);
    double now = 0.0;
    int32_t frames = 0;
    for (int input = 1; input <= 2; input++) {
        while (l.painter.finished < input && turn(&l, now += 1.0) && count_frame(&frames)) {}
        picture_file file;
        CHECK(picture_read(out, 4, &file, message) && file.width == SIDE && file.height == SIDE);
        const sumi_image* shown = &l.painter.shown;
        CHECK(file.pixels && hash_bytes(file.pixels, (size_t)SIDE * SIDE * 4) == hash_image(shown));
        picture_free(&file);
        for (int i = 0; i < 3; i++) CHECK(turn(&l, now += 1.0)); // looks at its own picture
        CHECK(l.inputs == input && l.replaced == 0 && l.painter.submitted == input);
        write_frame("out.png", 80, 0); // somebody else's picture of this name is one
    }
    snprintf(out, sizeof out, "%s/.part-out.png", s_folder);
    CHECK(system_look_at(out) == SYSTEM_NOTHING);
    close_tiny(&l.painter);
    canvas_close(&l.canvas);
    remove_folder();
}

// ---- The program ----------------------------------------------------------------------------------------------------

static int run_words(const char* words) // split at blanks
{
    char text[500], *arguments[24] = {"live"};
    int count = 1;
    snprintf(text, sizeof text, "%s", words);
    for (char* word = strtok(text, " "); word && count < 23; word = strtok(NULL, " ")) arguments[count++] = word;
    return live_main(count, arguments);
}

TEST(wrong_arguments_are_refused)
{
    static const char* const s_wrong[] = {
        "",
        "--watch",
        "--frames src",
        "--script",
        "--script 5 --frames src --watch",
        "--script no-folder",
        "--script src",
        "--script 0",
        "--frames no-folder --watch",
        "--script 5 --rate 0",
        "--script 5 --rate nan",
        "--script 5 --seconds 10s",
        "--script 5 --strength 1.5",
        "--script 5 --steps 2.5",
        "--script 5 --size 512",
        "--script 5 --size 0x64",
        "--script 5 --backend gpu",
        "--script 5 --weights int7",
        "--script 5 --synthetic nothing",
        "--script 5 --brush 3",
        "--script 5 --out a.gif",
        "model other --script 5",
        "model --synthetic klein --script 5",
    };
    for (size_t i = 0; i < sizeof s_wrong / sizeof *s_wrong; i++) CHECK_NUMBER(run_words(s_wrong[i]), 2);
    CHECK_NUMBER(run_words(TINY " --script 5 --size 70x64 --backend cpu"), 1);
    CHECK_NUMBER(run_words("no-model --script 5 --backend cpu"), 1);
}

// However slow the machine is, the last input is drawn.
TEST(a_script_runs_to_its_end)
{
    CHECK_NUMBER(run_words(TINY " --script 3 --rate 100 --seconds 0.05 --size 16x16 --steps 1 --backend cpu"), 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(a_job_that_waits_is_replaced_and_one_that_runs_gives_way_once_and_early);
    RUN(what_is_in_flight_on_a_gpu_is_spent);
    RUN(pictures_keep_coming_however_fast_the_input_changes);
    RUN(the_newest_input_wins_and_a_second_job_does_not_give_way);
    RUN(a_job_that_is_a_quarter_done_goes_on);
    RUN(inputs_of_a_script_come_at_their_times);
    RUN(each_new_or_changed_file_of_a_folder_is_an_input);
    RUN(alpha_of_a_frame_is_read_by_models_that_know_it);
    RUN(a_picture_in_the_watched_folder_is_written_whole_and_is_no_input);
    RUN(wrong_arguments_are_refused);
    RUN(a_script_runs_to_its_end);
    TEST_END();
}
