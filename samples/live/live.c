// Live painting: while somebody paints, pictures of the newest canvas follow, each drawn image to image from the canvas
// with one prompt and one seed, so that they change only where the canvas does. The canvas is a folder into which another
// program writes its frames, or a script without a window, for measurements:
//     live MODEL --watch FOLDER --out newest.png         until Ctrl-C; newest.png is never half written
//     live MODEL --script 600 --seconds 10               a brush that the program moves; or a folder of frames
//     live --synthetic klein --weights int8 --size 512x512 --script 600 --seconds 10
//
// What is measured: "from submit to pixels" begins right before sumi_submit_images and ends when sumi_fetch_images has
// returned the picture in host memory. "From input to pixels" begins when the input came: input i of a script comes
// i / rate seconds after the beginning, whenever this program looked. Both include the time for which a job waited
// behind the one before, and only pictures count that were done. The prompt is encoded before, and two pictures that
// are not counted come first: the first one makes plans and loads kernels, the second one is the "picture alone".
#include "canvas.h"
#include "series.h"
#include "synthetic.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DRAWINGS 8 // no more than five are ever unfinished: two that run on a GPU, one that waits, two cancelled
// Work per update. On a GPU this much is in flight: enough to keep it busy while this thread reads and writes files, and
// little enough, for what is in flight of a cancelled job still runs.
#define BUDGET_US 8000
#define SLEEP_US 200 // between two updates of a GPU, which return at once
#define REST_SECONDS 0.05

typedef struct options {
    const char *model, *prompt, *watch, *script, *out;
    const synthetic_config* synthetic;
    sumi_backend backend;
    sumi_weight_format weights;
    sumi_attention_format attention;
    sumi_size size;
    double strength, rate, seconds;
} options;

typedef struct drawing {
    sumi_job job;
    double came, submitted; // seconds: when its canvas came, and when the job was submitted
    bool had_begun;         // when it was cancelled
} drawing;

typedef struct painter {
    sumi_engine* engine;
    sumi_model* model;
    sumi_prompt *prompt, *negative;
    sumi_image_item item;
    sumi_image_desc desc;
    uint32_t budget_us;

    drawing drawings[MAX_DRAWINGS]; // not finished yet, the oldest first
    int32_t drawing_count;
    double last_came;
    bool one_gave_way; // since the last picture
    sumi_image shown;  // the newest picture
    double shown_at;

    // inputs = submitted + replaced, submitted = finished + cancelled + failed
    int32_t inputs, replaced, submitted, finished, cancelled, cancelled_begun, failed;
    series from_submit, from_input, between; // ms
} painter;

static volatile sig_atomic_t s_is_stopped;
static void stop(int number)
{
    signal(number, SIG_DFL); // a second Ctrl-C ends at once
    s_is_stopped = 1;
}

static double seconds_now(void) { return 1e-9 * (double)system_clock_ns(); }

static bool check(sumi_result result, const char* doing)
{
    if (result != SUMI_OK) fprintf(stderr, "live: %s failed: %s\n", doing, sumi_result_text(result));
    return result == SUMI_OK;
}

static void write_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level <= SUMI_LOG_WARNING) fprintf(stderr, "live: %s\n", text);
}

// ---- The policy -----------------------------------------------------------------------------------------------------
//
// The newest canvas wins: a change is submitted at once, and a job that still waits is cancelled for it. So one job at
// most waits, and it has the newest canvas.
//
// A job that has begun is another matter. If 60 changes a second cancelled it, and a picture takes 50 ms, there would
// never be one. And while the canvas goes on changing nothing is won: the picture of the newer canvas is out of date as
// well when it comes. So the running job goes on. Only when the canvas rests does its newest state alone count: then a
// job of an older one gives way if less than half of it is done, for the newest picture comes earlier by what was left,
// and what was done is lost. It gives way once between two pictures: no picture is late by more than half of one,
// however the canvas changes.

// The share of a job that is lost if it is cancelled: what is done, and on a GPU what is in flight.
static double spent_share(const sumi_job_status* status)
{
    const double left = (double)status->seconds_left, in_flight = 1e-6 * (double)status->pending_us;
    const double share_in_flight = left <= 0.0 ? 0.0 : in_flight < left ? in_flight / left : 1.0;
    return (double)status->progress + (1.0 - (double)status->progress) * share_in_flight;
}

static bool gives_way(double spent, double rest_seconds, bool one_gave_way)
{
    return spent < 0.5 && rest_seconds >= REST_SECONDS && !one_gave_way;
}

static void cancel(const painter* p, drawing* d)
{
    d->had_begun = sumi_job_poll(p->engine, d->job).state != SUMI_JOB_QUEUED;
    sumi_job_cancel(p->engine, d->job);
}

// Cancels the running job if one with a newer canvas waits behind it and the canvas rests.
static void let_running_give_way(painter* p, double now)
{
    if (p->drawing_count < 2) return;
    drawing *before = &p->drawings[p->drawing_count - 2], *newest = &p->drawings[p->drawing_count - 1];
    const sumi_job_status status = sumi_job_poll(p->engine, before->job);
    if (status.state != SUMI_JOB_RUNNING || sumi_job_poll(p->engine, newest->job).state != SUMI_JOB_QUEUED) return;
    if (!gives_way(spent_share(&status), now - p->last_came, p->one_gave_way)) return;
    cancel(p, before);
    p->one_gave_way = true;
}

// ---- Pictures -------------------------------------------------------------------------------------------------------

static bool submit_canvas(painter* p, const sumi_pixels* pixels, double came)
{
    // [excerpt live_submit]
    drawing* before = p->drawing_count > 0 ? &p->drawings[p->drawing_count - 1] : NULL;
    if (before && sumi_job_poll(p->engine, before->job).state == SUMI_JOB_QUEUED) cancel(p, before);
    drawing newest = {.came = came, .submitted = seconds_now()};
    p->desc.start.image = pixels; // is copied
    const sumi_result result = sumi_submit_images(p->engine, &p->desc, &newest.job);
    // [end]
    if (!check(result, "submitting a picture")) return false;
    p->drawings[p->drawing_count++] = newest;
    p->last_came = came;
    p->submitted++;
    return true;
}

static void show(painter* p, const drawing* done, const sumi_image* image)
{
    const double now = seconds_now();
    sumi_images_release(p->engine, &p->shown, 1);
    p->shown = *image; // a paint tool would put it into a texture
    series_add(&p->from_submit, 1e3 * (now - done->submitted));
    series_add(&p->from_input, 1e3 * (now - done->came));
    if (p->finished++ > 0) series_add(&p->between, 1e3 * (now - p->shown_at));
    p->shown_at = now;
    p->one_gave_way = false;
}

// Fetches what has finished. Returns false if a job has failed.
static bool collect(painter* p)
{
    int32_t left = 0;
    for (int32_t i = 0; i < p->drawing_count; i++) {
        const drawing d = p->drawings[i];
        if (sumi_job_poll(p->engine, d.job).state < SUMI_JOB_DONE) {
            p->drawings[left++] = d;
            continue;
        }
        sumi_image image;
        const sumi_result result = sumi_fetch_images(p->engine, d.job, &image, 1);
        if (result == SUMI_OK) show(p, &d, &image);
        else if (result == SUMI_CANCELLED) p->cancelled++, p->cancelled_begun += d.had_begun;
        else p->failed += !check(result, "drawing a picture");
    }
    p->drawing_count = left;
    return p->failed == 0;
}

// One turn of the host's loop; `c` may be NULL.
static bool step(painter* p, canvas* c, double now)
{
    double came = 0.0;
    const int32_t count = c && p->drawing_count < MAX_DRAWINGS ? canvas_take(c, now, &came) : 0;
    if (count > 0) { // of several that came since the last turn the newest counts
        p->inputs += count;
        p->replaced += count - 1;
        if (!submit_canvas(p, &c->pixels, came)) return false;
    }
    let_running_give_way(p, now);
    sumi_engine_update(p->engine, p->budget_us);
    const bool is_fine = collect(p), is_gpu = sumi_engine_get_info(p->engine).compute_capability > 0;
    if (is_gpu || p->drawing_count == 0) system_sleep_us(SLEEP_US); // on the CPU the work was done in the update
    return is_fine;
}

// A program that reads the file while it is replaced sees the old picture or the new one.
static bool write_shown(const painter* p, const char* path)
{
    char part[1200], message[PICTURE_MESSAGE_BYTES];
    const sumi_image* i = &p->shown;
    const picture_source source = {i->pixels, i->width, i->height, (size_t)i->row_bytes, 4, NULL, 0};
    const bool fits = (size_t)snprintf(part, sizeof part, "%s.part%s", path, strrchr(path, '.')) < sizeof part;
    if (!fits) return fprintf(stderr, "live: the path of --out is too long\n"), false;
    if (!picture_write(part, &source, message)) return fprintf(stderr, "live: %s\n", message), false;
    if (!system_move(part, path)) return perror("live: --out cannot be replaced"), false;
    return true;
}

static bool run(painter* p, canvas* c, const options* o)
{
    bool is_fine = true;
    int32_t written = 0;
    c->begin = seconds_now();
    while (is_fine && !s_is_stopped && !(canvas_has_ended(c) && p->drawing_count == 0)) {
        is_fine = step(p, c, seconds_now());
        if (!o->watch || p->finished == written) continue;
        written = p->finished;
        is_fine = write_shown(p, o->out) && is_fine;
    }
    for (int32_t i = 0; i < p->drawing_count; i++) cancel(p, &p->drawings[i]);
    sumi_engine_update(p->engine, 0); // ends them
    is_fine = collect(p) && is_fine;
    return (o->watch || !o->out || p->finished == 0 || write_shown(p, o->out)) && is_fine;
}

// ---- Opening --------------------------------------------------------------------------------------------------------

static bool encode(const painter* p, const char* text, sumi_prompt** out_prompt)
{
    sumi_prompt_desc desc = sumi_prompt_defaults(p->model);
    desc.text = text;
    sumi_job job;
    if (!check(sumi_submit_prompt(p->engine, &desc, &job), "encoding the prompt")) return false;
    sumi_job_wait(p->engine, job, SUMI_FOREVER);
    return check(sumi_fetch_prompt(p->engine, job, out_prompt), "encoding the prompt");
}

static bool open_painter(painter* p, const options* o, synthetic_files* synthetic)
{
    p->budget_us = BUDGET_US;
    sumi_engine_desc ed = sumi_engine_defaults();
    const sumi_files files = synthetic_services(synthetic);
    if (synthetic) ed.files = &files;
    ed.backend = o->backend;
    ed.cpu_thread_count = 0;
    ed.log.write = write_log;
    if (!check(sumi_engine_create(&ed, &p->engine), "creating the engine")) return false;
    sumi_model_desc md = sumi_model_defaults();
    md.path = o->model;
    md.weights = o->weights;
    md.attention = o->attention;
    sumi_job job;
    if (!check(sumi_submit_model(p->engine, &md, &job), "loading the model")) return false;
    sumi_job_wait(p->engine, job, SUMI_FOREVER);
    if (!check(sumi_fetch_model(p->engine, job, &p->model), "loading the model")) return false;

    const sumi_model_info info = sumi_model_get_info(p->model);
    p->desc = sumi_image_defaults(p->model, SUMI_PRESET_MODEL);
    p->desc.items = &p->item;
    p->desc.item_count = 1;
    p->desc.width = p->desc.height = info.native_size < 512 ? info.native_size : 512;
    if (o->size.width > 0) p->desc.width = o->size.width, p->desc.height = o->size.height;
    p->desc.start.strength = (float)o->strength;
    if (!encode(p, o->prompt, &p->prompt)) return false; // once: no picture reads a text again
    const bool is_guided = p->desc.guidance.scale != info.guidance_off;
    if (is_guided && !encode(p, info.negative_text, &p->negative)) return false;
    p->item = (sumi_image_item){.prompt = p->prompt, .negative_prompt = p->negative, .seed = 7};
    return true;
}

// Draws white paper twice, and forgets what was counted. Returns how many ms the second picture took, or 0 after a
// failure.
static double draw_alone(painter* p)
{
    const size_t bytes = (size_t)p->desc.width * (size_t)p->desc.height;
    uint8_t* paper = malloc(bytes);
    if (!paper) return fprintf(stderr, "live: no memory for a canvas\n"), 0.0;
    memset(paper, 255, bytes);
    const sumi_pixels pixels = {paper, p->desc.width, p->desc.height, 0, 1};
    bool is_fine = true;
    for (int i = 0; i < 2 && is_fine && !s_is_stopped; i++) {
        is_fine = submit_canvas(p, &pixels, seconds_now());
        while (is_fine && p->drawing_count > 0 && !s_is_stopped) is_fine = step(p, NULL, seconds_now());
    }
    free(paper);
    const double ms = series_percentile(&p->from_submit, 0.0);
    series_clear(&p->from_submit), series_clear(&p->from_input), series_clear(&p->between);
    p->submitted = p->finished = 0;
    return is_fine ? ms : 0.0;
}

static void close_painter(painter* p)
{
    sumi_engine_destroy(p->engine); // cancels what is not finished, and frees model, prompts and picture
    series_free(&p->from_submit), series_free(&p->from_input), series_free(&p->between);
}

// ---- The report -----------------------------------------------------------------------------------------------------

static void print_row(const char* name, series* ms)
{
    printf("| %-25s |", name);
    for (int i = 0; i < 5; i++) printf(" %7.1f |", series_percentile(ms, (double[]){0.0, 50.0, 90.0, 99.0, 100.0}[i]));
    printf("\n");
}

static void report(painter* p, const canvas* c, const options* o, double alone_ms)
{
    const double seconds = p->shown_at - c->begin;
    printf("%s, %s: %dx%d, strength %.2f of %d steps; a picture alone takes %.1f ms\n",
           sumi_model_get_info(p->model).family, sumi_engine_get_info(p->engine).device, p->desc.width, p->desc.height,
           o->strength, p->desc.step_count, alone_ms);
    printf("%d inputs: %d submitted, %d replaced before\n", p->inputs, p->submitted, p->replaced);
    printf("%d jobs: %d finished, %d cancelled (%d of them had begun), %d failed\n", p->submitted, p->finished,
           p->cancelled, p->cancelled_begun, p->failed);
    if (p->finished == 0) return;
    printf("%d pictures in %.2f s, %.1f a second\n\n", p->finished, seconds, p->finished / seconds);
    printf("| ms                        |     min |  median |     p90 |     p99 |     max |\n"
           "|---------------------------|--------:|--------:|--------:|--------:|--------:|\n");
    print_row("from submit to pixels", &p->from_submit);
    print_row("from input to pixels", &p->from_input);
    if (p->finished > 1) print_row("from picture to picture", &p->between);
}

// ---- Arguments ------------------------------------------------------------------------------------------------------

static int usage(void)
{
    fprintf(
        stderr,
        "usage: live [MODEL] --watch FOLDER --out FILE\n"
        "       live [MODEL] --script FOLDER|NUMBER [--rate 60] [--seconds 10] [--out FILE]\n"
        "  MODEL: a folder or file, samples/demo_model by default; or --synthetic klein|z-image|.. (random weights)\n"
        "  --watch: the newest picture file in FOLDER is drawn, until Ctrl-C; --out: where the newest picture is\n"
        "  --script: inputs in the order of FOLDER's pictures, or NUMBER frames of a stroke; --rate: inputs a second\n"
        "  [--prompt TEXT] [--strength 0.6] [--size WxH] [--backend cpu|cuda] [--attention bf16|8bit]\n"
        "  [--weights " SYNTHETIC_WEIGHTS "]\n");
    return 2;
}

static bool read_number(const char* text, double least, double most, double* out)
{
    char* end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= least && *out <= most;
}

static bool read_option(options* o, const char* name, const char* value)
{
    const bool is_cpu = strcmp(value, "cpu") == 0, is_bf16 = strcmp(value, "bf16") == 0;
    char rest;
    if (strcmp(name, "--synthetic") == 0) return o->model = SYNTHETIC_PATH, (o->synthetic = synthetic_find(value));
    if (strcmp(name, "--prompt") == 0) return o->prompt = value, true;
    if (strcmp(name, "--watch") == 0) return o->watch = value, true;
    if (strcmp(name, "--script") == 0) return o->script = value, true;
    if (strcmp(name, "--out") == 0) return o->out = value, true;
    if (strcmp(name, "--strength") == 0) return read_number(value, 0.01, 1.0, &o->strength);
    if (strcmp(name, "--rate") == 0) return read_number(value, 0.01, 10000.0, &o->rate);
    if (strcmp(name, "--seconds") == 0) return read_number(value, 0.01, 36000.0, &o->seconds);
    if (strcmp(name, "--weights") == 0) return synthetic_weights(value, &o->weights);
    if (strcmp(name, "--size") == 0) return sscanf(value, "%dx%d%c", &o->size.width, &o->size.height, &rest) == 2;
    if (strcmp(name, "--backend") == 0 && (is_cpu || strcmp(value, "cuda") == 0))
        return o->backend = is_cpu ? SUMI_BACKEND_CPU : SUMI_BACKEND_CUDA, true;
    if (strcmp(name, "--attention") == 0 && (is_bf16 || strcmp(value, "8bit") == 0))
        return o->attention = is_bf16 ? SUMI_ATTENTION_BF16 : SUMI_ATTENTION_8BIT, true;
    return false;
}

static bool read_options(options* o, int argc, char** argv)
{
    int at = 1;
    if (argc > 1 && argv[1][0] != '-') o->model = argv[at++];
    for (; at < argc; at += 2)
        if (at + 1 == argc || !read_option(o, argv[at], argv[at + 1])) return false;
    return !o->watch == !!o->script && (!o->watch || o->out);
}

int main(int argc, char** argv)
{
    argv = system_begin(argc, argv);
    options o = {.model = "samples/demo_model",
                 .prompt = "a boat on the sea at sunset",
                 .strength = 0.6,
                 .rate = 60.0,
                 .seconds = 10.0};
    if (!read_options(&o, argc, argv)) return usage();
    char message[PICTURE_MESSAGE_BYTES];
    if (o.out && !picture_path_is_possible(o.out, message)) return fprintf(stderr, "live: %s\n", message), 2;
    signal(SIGINT, stop);
    signal(SIGTERM, stop);

    painter p = {0};
    canvas c = {.rate = o.rate, .total = (int32_t)(o.rate * o.seconds + 0.5)};
    synthetic_files* synthetic = o.synthetic ? synthetic_open(o.synthetic) : NULL;
    bool is_fine = (!o.synthetic || synthetic) && open_painter(&p, &o, synthetic);
    if (is_fine) {
        const sumi_size size = {p.desc.width, p.desc.height};
        c.left_out = o.out ? system_file_name(o.out) : NULL;
        is_fine = o.watch ? canvas_open_folder(&c, o.watch, message) : canvas_open_script(&c, o.script, size, message);
        if (!is_fine) fprintf(stderr, "live: %s\n", message);
    }
    const double alone_ms = is_fine ? draw_alone(&p) : 0.0;
    is_fine = is_fine && alone_ms > 0.0 && run(&p, &c, &o);
    if (p.submitted > 0) report(&p, &c, &o, alone_ms);
    close_painter(&p);
    synthetic_close(synthetic);
    canvas_close(&c);
    if (s_is_stopped && !o.watch) return 130;
    return is_fine ? 0 : 1;
}
