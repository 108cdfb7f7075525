// pacing: what a picture in the making does to the frame rate, and the frame rate to the picture. A renderer with a
// fixed load per frame runs alone, then beside pictures that are made with sumi_engine_update at several budgets, one
// after the other without a pause.
//
//     pacing                                            OpenGL beside the demo model
//     pacing --host cuda --synthetic z-image --size 1024 --slice 500     CUDA in the same context beside the released sizes
//     pacing --budgets 4,4@start,4@finish,slack         where in the frame the call stands
//
// A frame begins at a refresh of an imaginary display. Its time is from there to the end of its GPU work, as seen by a
// thread that looks every few 10 us; refreshes at which no new frame was ready count as missed. Two frames may be in
// flight; a host that is later than that begins at the next refresh.
//
// Budgets are milliseconds per frame. Where the call stands: @submit (the rule) right behind the frame's commands,
// @start before them, @finish when the GPU has finished the frame, with no more than what is left until the next one.
// "slack" is all of that; "unlimited" more than the GPU can do.
//
// The first row of the calls' times, (none), is what the stopwatch shows when nothing is called, right after the thread
// has slept: times of a microsecond are mostly those of cold caches.
//
// The ideal time of a picture is its work time alone divided by the share of the GPU that the budget is: budget /
// period, for the last two (period - load) / period.
#include "host.h"
#include "pretend.h"
#include "series.h"
#include "synthetic.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sumi.h>
#include <time.h>

#define MAX_ROWS 18       // two of them not the user's
#define MARGIN 0.0005     // of a second, between the work in the slack and the next frame
#define UNLIMITED 1000000 // us: never reached; SUMI_FOREVER would not return before the pictures are done

typedef enum place { PLACE_SUBMIT, PLACE_START, PLACE_FINISH } place;
typedef enum call { CALL_NONE, CALL_UPDATE, CALL_POLL, CALL_SUBMIT, CALL_FETCH, CALL_RELEASE, CALL_COUNT } call;

static const char* const s_places[] = {"submit", "start", "finish"};
static const char* const s_calls[CALL_COUNT] = {
    "(none)", "sumi_engine_update", "sumi_job_poll", "sumi_submit_images", "sumi_fetch_images", "sumi_images_release"};
static const char* const s_stages[] = {"wait",    "load",   "prepare",  "text",   "image",
                                       "denoise", "decode", "transfer", "compile"};

typedef struct row {
    char name[32];
    bool has_job;
    int32_t max_pictures; // the row ends with them; 0: with its frames
    uint32_t budget_us;
    double share; // of the GPU, for the ideal
    place where;

    series frames, intervals, pictures;       // ms, ms, s
    series wall[CALL_COUNT], cpu[CALL_COUNT]; // us
    double longest_update[SUMI_STAGE_COUNT];  // us, by the stage of the job before it
    int32_t updates[SUMI_STAGE_COUNT];
    int32_t missed;
} row;

typedef struct pacing {
    const char *model_path, *host_name;
    const synthetic_config* synthetic;
    synthetic_files* files;
    sumi_backend backend;
    sumi_weight_format weights;
    int32_t frame_count, max_frame_count, size, steps, slice_us, tokens, first_count, memory_budget_mb;
    double period_ms, load_ms, max_seconds, paced_load_ms;
    row rows[MAX_ROWS];
    int32_t row_count;

    host* host;
    double frame_ms, picture_seconds; // measured: a frame without sumi, a picture without a host
    sumi_engine* engine;
    sumi_model* model;
    sumi_prompt* prompt;
    char detail[512];
    const char* trace_path; // NULL: none
    FILE* trace;

    // of the row at hand
    row* now;
    sumi_job job;
    bool has_job;
    double job_began;
} pacing;

static void keep_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result;
    if (level == SUMI_LOG_ERROR) snprintf(((pacing*)user_data)->detail, sizeof((pacing*)user_data)->detail, "%s", text);
}

static bool check(const pacing* p, sumi_result result, const char* doing)
{
    if (result == SUMI_OK) return true;
    fprintf(stderr, "pacing: %s failed: %s\n  %s\n", doing, sumi_result_text(result), p->detail);
    return false;
}

// ---- The trace: a line for each update and each piece of the engine's work ------------------------------------------

static void trace_line(const pacing* p, const char* what, sumi_stage stage, double begin, double us)
{
    if (p->trace == NULL) return;
    fprintf(p->trace, "%s\t%s\t%.3f\t%.1f\t%s\n", p->now != NULL ? p->now->name : "-", s_stages[stage], 1e3 * begin, us,
            what);
}

static void trace_span(const sumi_trace_span* span, void* user_data)
{
    char what[160];
    snprintf(what, sizeof what, "%s %s", span->track == SUMI_TRACK_DEVICE ? "GPU" : "host", span->name);
    trace_line(user_data, what, span->stage, 1e-9 * (double)span->begin_ns,
               1e-3 * (double)(span->end_ns - span->begin_ns));
}

// ---- Calls, each with its times -------------------------------------------------------------------------------------

typedef struct stopwatch {
    double wall, cpu;
} stopwatch;

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static stopwatch start_watch(void) { return (stopwatch){.cpu = thread_seconds(), .wall = seconds_now()}; }

static double stop_watch(row* r, call c, stopwatch begin) // us
{
    const double wall = 1e6 * (seconds_now() - begin.wall), cpu = 1e6 * (thread_seconds() - begin.cpu);
    series_add(&r->wall[c], wall);
    series_add(&r->cpu[c], cpu);
    return wall;
}

static sumi_job_status poll(pacing* p)
{
    const stopwatch watch = start_watch();
    const sumi_job_status status = sumi_job_poll(p->engine, p->job);
    stop_watch(p->now, CALL_POLL, watch);
    return status;
}

static bool begin_picture(pacing* p)
{
    sumi_image_item item = {.prompt = p->prompt, .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(p->model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    desc.guidance.scale = sumi_model_get_info(p->model).guidance_off;
    if (p->size > 0) desc.width = desc.height = p->size;
    if (p->steps > 0) desc.step_count = p->steps;
    const stopwatch watch = start_watch();
    const sumi_result result = sumi_submit_images(p->engine, &desc, &p->job);
    stop_watch(p->now, CALL_SUBMIT, watch);
    p->job_began = watch.wall;
    p->has_job = result == SUMI_OK;
    return check(p, result, "submitting a picture");
}

static bool end_picture(pacing* p)
{
    sumi_image image;
    stopwatch watch = start_watch();
    const sumi_result result = sumi_fetch_images(p->engine, p->job, &image, 1);
    stop_watch(p->now, CALL_FETCH, watch);
    p->has_job = false;
    if (!check(p, result, "making a picture")) return false;
    watch = start_watch();
    sumi_images_release(p->engine, &image, 1);
    stop_watch(p->now, CALL_RELEASE, watch);
    return true;
}

// What a game does once per frame. A model that is being loaded stays for its fetch; pictures follow one another.
static bool advance(pacing* p, uint32_t budget_us)
{
    if (!p->has_job) return true;
    stopwatch watch = start_watch();
    stop_watch(p->now, CALL_NONE, watch);
    const sumi_stage stage = poll(p).stage;
    watch = start_watch();
    sumi_engine_update(p->engine, budget_us);
    const double us = stop_watch(p->now, CALL_UPDATE, watch);
    if (us > p->now->longest_update[stage]) p->now->longest_update[stage] = us;
    p->now->updates[stage]++;
    trace_line(p, "update", stage, watch.wall, us);
    const sumi_job_status status = poll(p);
    if (status.state < SUMI_JOB_DONE || p->model == NULL) return true;
    if (status.result == SUMI_OK) series_add(&p->now->pictures, seconds_now() - p->job_began);
    return end_picture(p) && begin_picture(p);
}

// ---- The frame loop -------------------------------------------------------------------------------------------------

typedef struct loop {
    double begin, period;
    double start[FRAMES_IN_FLIGHT]; // of the frames in flight, the oldest first
    int32_t oldest, in_flight, ended;
    double last_end;
    int32_t last_refresh; // the last one that got a new frame
    bool owes_update;     // @finish: the newest frame has not been followed by one
} loop;

static void end_frame(loop* l, row* r)
{
    const double now = seconds_now();
    series_add(&r->frames, 1e3 * (now - l->start[l->oldest]));
    if (l->ended++ > 0) series_add(&r->intervals, 1e3 * (now - l->last_end));
    const int32_t refresh = (int32_t)((now - l->begin) / l->period) + 1; // the one that shows it
    if (refresh > l->last_refresh + 1) r->missed += refresh - l->last_refresh - 1;
    if (refresh > l->last_refresh) l->last_refresh = refresh;
    l->last_end = now;
    l->oldest = (l->oldest + 1) % FRAMES_IN_FLIGHT;
    l->in_flight--;
}

// Looks after frames that end, and does what is due then, until the moment; or until no more than `most` frames are in
// flight.
static bool watch_frames(pacing* p, loop* l, double until, int32_t most)
{
    row* r = p->now;
    for (;;) {
        while (l->in_flight > 0 && p->host->finished(p->host, l->oldest)) end_frame(l, r);
        const double now = seconds_now();
        if (l->owes_update && l->in_flight == 0 && now < until - MARGIN) {
            const double left = 1e6 * (until - MARGIN - now);
            l->owes_update = false;
            if (!advance(p, left < r->budget_us ? (uint32_t)left + 1 : r->budget_us)) return false;
            continue;
        }
        if (now >= until && l->in_flight <= most) return true;
        const double next = now + 30e-6;
        sleep_until(now < until && until < next ? until : next);
    }
}

// One row: until there are enough frames and a whole picture, or there are too many, or the time is over; while a model
// is loaded, until it is.
static bool run_row(pacing* p, row* r)
{
    p->now = r;
    for (int32_t c = 0; c < CALL_COUNT; c++) {
        if (!series_reserve(&r->wall[c], 4096) || !series_reserve(&r->cpu[c], 4096))
            return check(p, SUMI_OUT_OF_HOST_MEMORY, "starting");
    }
    loop l = {.period = 1e-3 * p->period_ms, .begin = seconds_now() + 0.002};
    int32_t refresh = 0;
    double start = l.begin;
    if (r->has_job && !p->has_job && !begin_picture(p)) return false;
    for (int32_t i = 0;; i++) {
        const bool is_late = start - l.begin > p->max_seconds, is_loading = r->has_job && p->model == NULL;
        const bool has_enough = is_loading          ? poll(p).state >= SUMI_JOB_DONE
                              : r->max_pictures > 0 ? r->pictures.count >= r->max_pictures
                                                    : i >= p->frame_count && (!r->has_job || r->pictures.count > 0);
        if (is_late || has_enough || i >= p->max_frame_count) break;
        if (!watch_frames(p, &l, start, FRAMES_IN_FLIGHT - 1)) return false;
        const double lateness = seconds_now() - start;
        if (lateness > l.period) {
            refresh += (int32_t)(lateness / l.period);
            start = l.begin + refresh * l.period;
        }
        if (r->where == PLACE_START && !advance(p, r->budget_us)) return false;
        const int32_t slot = (l.oldest + l.in_flight) % FRAMES_IN_FLIGHT;
        p->host->submit(p->host, slot);
        l.start[slot] = start;
        l.in_flight++;
        if (r->where == PLACE_SUBMIT && !advance(p, r->budget_us)) return false;
        l.owes_update = r->where == PLACE_FINISH;
        start = l.begin + ++refresh * l.period;
    }
    l.owes_update = false;
    if (!watch_frames(p, &l, 0.0, 0)) return false;
    if (p->has_job && p->model != NULL) { // its slices that are on their way end here, not in the next row
        sumi_job_discard(p->engine, p->job);
        p->has_job = false;
        sumi_engine_update(p->engine, SUMI_FOREVER);
    }
    sleep_until(seconds_now() + 0.05);
    return true;
}

// ---- Opening --------------------------------------------------------------------------------------------------------

static bool open_host(pacing* p)
{
    char why[256] = "";
    p->host = strcmp(p->host_name, "gl") == 0   ? host_open_gl(why)
            : strcmp(p->host_name, "cuda") == 0 ? host_open_cuda(why)
                                                : host_open_none(why);
    if (p->host == NULL) {
        fprintf(stderr, "pacing: no host \"%s\": %s\n", p->host_name, why);
        return false;
    }
    p->frame_ms = host_calibrate(p->host, p->load_ms);
    return true;
}

static bool open_model(pacing* p)
{
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.backend = p->backend;
    ed.cuda.context = p->host->context;
    ed.max_slice_us = (uint32_t)p->slice_us;
    ed.memory_budget_bytes = (uint64_t)p->memory_budget_mb * 1000000u;
    const sumi_files files = synthetic_services(p->files);
    if (p->files != NULL) ed.files = &files;
    ed.log = (sumi_log){keep_log, p};
    const sumi_tracer tracer = {trace_span, p};
    if (p->trace != NULL) ed.tracer = &tracer;
    if (!check(p, sumi_engine_create(&ed, &p->engine), "creating the engine")) return false;
    sumi_model_desc md = sumi_model_defaults();
    md.path = p->model_path;
    md.weights = p->weights;
    md.without_vae_encoder = true;
    if (!check(p, sumi_submit_model(p->engine, &md, &p->job), "loading the model")) return false;
    if (p->paced_load_ms > 0.0) {
        row* r = &p->rows[p->row_count++];
        *r = (row){.name = "loading", .has_job = true, .budget_us = (uint32_t)(1e3 * p->paced_load_ms)};
        p->has_job = true;
        if (!run_row(p, r)) return false;
        p->has_job = false;
    }
    sumi_job_wait(p->engine, p->job, SUMI_FOREVER);
    return check(p, sumi_fetch_model(p->engine, p->job, &p->model), "loading the model");
}

static bool encode_prompt(pacing* p)
{
    char text[600];
    for (int32_t i = 0; i < p->tokens && i < (int32_t)sizeof text - 1; i++)
        text[i] = "a red fox in the snow, "[i % 23], text[i + 1] = '\0';
    sumi_prompt_desc desc = sumi_prompt_defaults(p->model);
    desc.text = text;
    sumi_job job;
    if (!check(p, sumi_submit_prompt(p->engine, &desc, &job), "encoding the prompt")) return false;
    sumi_job_wait(p->engine, job, SUMI_FOREVER);
    return check(p, sumi_fetch_prompt(p->engine, job, &p->prompt), "encoding the prompt");
}

// The work time of a picture alone; the first one makes plan and graphs and is not counted.
static bool time_picture(pacing* p)
{
    row ignored = {.name = "alone"};
    series seconds = {0};
    bool done = true;
    p->now = &ignored;
    for (int32_t i = 0; done && i < 4; i++) {
        done = begin_picture(p);
        if (!done) break;
        sumi_job_wait(p->engine, p->job, SUMI_FOREVER);
        if (i > 0) series_add(&seconds, seconds_now() - p->job_began);
        done = end_picture(p);
    }
    p->picture_seconds = series_percentile(&seconds, 50.0);
    series_free(&seconds);
    for (int32_t c = 0; c < CALL_COUNT; c++) series_free(&ignored.wall[c]), series_free(&ignored.cpu[c]);
    return done;
}

// ---- Tables ---------------------------------------------------------------------------------------------------------

static void print_head(const pacing* p)
{
    const sumi_engine_info info = sumi_engine_get_info(p->engine);
    printf("host: %s; %.2f ms of every %.2f ms\nsumi: %s; slices of at most %d us; a picture alone takes %.3f s\n\n",
           p->host->device, p->frame_ms, p->period_ms, info.device, p->slice_us, p->picture_seconds);
    printf("| budget     | frames | p50 ms | p99 ms | p99.9 ms | max ms | p99 over alone | missed | between p99 | "
           "pictures | picture s | ideal s | over ideal |\n"
           "|------------|-------:|-------:|-------:|---------:|-------:|---------------:|-------:|------------:|------"
           "---:|----------:|--------:|-----------:|\n");
    fflush(stdout);
}

static void print_row(const pacing* p, row* r, double alone_p99)
{
    printf("| %-10s | %6d | %6.2f | %6.2f | %8.2f | %6.2f | %14.2f | %6d | %11.2f | %8d | ", r->name, r->frames.count,
           series_percentile(&r->frames, 50.0), series_percentile(&r->frames, 99.0),
           series_percentile(&r->frames, 99.9), series_percentile(&r->frames, 100.0),
           series_percentile(&r->frames, 99.0) - alone_p99, r->missed, series_percentile(&r->intervals, 99.0),
           r->pictures.count);
    if (r->pictures.count > 0) {
        const double seconds = series_mean(&r->pictures), ideal = p->picture_seconds / r->share;
        printf("%9.3f | %7.3f | %8.1f %% |\n", seconds, ideal, 100.0 * (seconds / ideal - 1.0));
    } else {
        printf("%9s | %7s | %10s |\n", "", "", "");
    }
    fflush(stdout);
}

static void print_calls(pacing* p)
{
    printf("\nTimes of calls, us: by the clock, and of the processor\n\n"
           "| budget     | call                | times  | p50      | p99      | p99.9    | max      | CPU p50  | CPU "
           "p99.9 | CPU max  |\n"
           "|------------|---------------------|-------:|---------:|---------:|---------:|---------:|---------:|-------"
           "---:|---------:|\n");
    for (int32_t i = 0; i < p->row_count; i++) {
        row* r = &p->rows[i];
        for (int32_t c = 0; c < CALL_COUNT; c++) {
            series *wall = &r->wall[c], *cpu = &r->cpu[c];
            if (wall->count == 0) continue;
            printf("| %-10s | %-19s | %6d | %8.1f | %8.1f | %8.1f | %8.1f | %8.1f | %9.1f | %8.1f |\n", r->name,
                   s_calls[c], wall->count, series_percentile(wall, 50.0), series_percentile(wall, 99.0),
                   series_percentile(wall, 99.9), series_percentile(wall, 100.0), series_percentile(cpu, 50.0),
                   series_percentile(cpu, 99.9), series_percentile(cpu, 100.0));
        }
    }
    printf(
        "\nsumi_engine_update by the stage that the job was in before: how many, and the longest, us by the clock\n\n"
        "| budget     |");
    for (int32_t s = 0; s < SUMI_STAGE_COUNT; s++) printf(" %14s |", s_stages[s]);
    printf("\n|------------|");
    for (int32_t s = 0; s < SUMI_STAGE_COUNT; s++) printf("---------------:|");
    for (int32_t i = 0; i < p->row_count; i++) {
        const row* r = &p->rows[i];
        if (!r->has_job) continue;
        printf("\n| %-10s |", r->name);
        for (int32_t s = 0; s < SUMI_STAGE_COUNT; s++) printf(" %5d, %7.1f |", r->updates[s], r->longest_update[s]);
    }
    printf("\n");
}

// The budgets' rows are in the list by now; "loading" comes behind them, then "first": the first picture ever, for
// which plan and graphs are made, at the first budget in milliseconds;
// with --first several, before the library has ever seen a time that the host had no part in.
static bool run(pacing* p)
{
    const int32_t budgets = p->row_count;
    if (!open_host(p) || !open_model(p) || !encode_prompt(p)) return false;
    row* first = &p->rows[p->row_count++];
    *first =
        (row){.name = "first", .has_job = true, .budget_us = UNLIMITED, .share = 1.0, .max_pictures = p->first_count};
    for (int32_t i = budgets - 1; i > 0; i--) {
        if (p->rows[i].budget_us < UNLIMITED) first->budget_us = p->rows[i].budget_us, first->share = p->rows[i].share;
    }
    if (!run_row(p, first) || !time_picture(p)) return false;
    print_head(p);
    if (!run_row(p, &p->rows[0])) return false; // alone
    const double alone_p99 = series_percentile(&p->rows[0].frames, 99.0);
    for (int32_t i = budgets; i < p->row_count; i++) print_row(p, &p->rows[i], alone_p99);
    for (int32_t i = 0; i < budgets; i++) {
        row* r = &p->rows[i];
        if (r->share <= 0.0) r->share = (p->period_ms - p->frame_ms) / p->period_ms;
        if (i > 0 && !run_row(p, r)) return false;
        print_row(p, r, alone_p99);
    }
    print_calls(p);
    return true;
}

// ---- Arguments ------------------------------------------------------------------------------------------------------

static int usage(void)
{
    fprintf(
        stderr,
        "usage: pacing [--host gl|cuda|none] [--checkpoint FOLDER | --synthetic tiny|mid|z-image] [--backend cpu|cuda] "
        "[--weights " SYNTHETIC_WEIGHTS "] [--size N] [--steps N]\n"
        "              [--budgets B,B,..] [--frames N] [--max-frames N] [--seconds N] [--period MS] [--load MS] "
        "[--slice US] [--tokens "
        "N] [--first N] [--paced-load MS]\n"
        "              [--memory-budget MB] [--trace FILE] [--as CARD]\n"
        "  a budget is a number of milliseconds, slack or unlimited; of a number also MS@submit, MS@start, MS@finish\n"
        "  --frames: at least so many per budget, and at least one picture; --max-frames, --seconds: no "
        "more and no longer than that per budget\n"
        "  --load: GPU time of a frame; --slice: max_slice_us of the engine, 0 for whole ops; --paced-load: the model "
        "is loaded in frames of that budget\n"
        "  --first: so many pictures in the row of the first ones\n"
        "  --as 8.9[,MULTIPROCESSORS]: on this GPU with the kernels that are for such a card (tests/gpu.md)\n"
        "  --trace: a line for each update and each piece of the engine's work: row, stage, begin in ms, us, what\n");
    return 2;
}

static bool add_row(pacing* p, const char* text, size_t length)
{
    if (p->row_count >= MAX_ROWS - 2 || length == 0 || length >= sizeof p->rows->name) return false;
    row* r = &p->rows[p->row_count++];
    *r = (row){.has_job = true, .budget_us = UNLIMITED};
    memcpy(r->name, text, length);
    r->name[length] = '\0';
    if (strcmp(r->name, "unlimited") == 0) return true;
    if (strcmp(r->name, "slack") == 0) {
        r->where = PLACE_FINISH;
        return true;
    }
    char* end;
    const double ms = strtod(r->name, &end);
    if (end == r->name || !(ms > 0.0) || ms > 1000.0) return false;
    r->budget_us = (uint32_t)(1e3 * ms);
    r->share = ms / p->period_ms < 1.0 ? ms / p->period_ms : 1.0;
    if (*end == '\0') return true;
    for (int32_t i = 0; *end == '@' && i < 3; i++) {
        if (strcmp(end + 1, s_places[i]) != 0) continue;
        r->where = (place)i;
        return true;
    }
    return false;
}

static bool read_budgets(pacing* p, const char* text)
{
    snprintf(p->rows[0].name, sizeof p->rows[0].name, "alone");
    p->row_count = 1;
    for (;;) {
        const size_t length = strcspn(text, ",");
        if (!add_row(p, text, length)) return false;
        if (text[length] == '\0') return true;
        text += length + 1;
    }
}

static bool read_number(const char* text, double least, double most, double* out)
{
    char* end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= least && *out <= most;
}

static bool read_arguments(pacing* p, int argc, char** argv)
{
    const char* budgets = "1,2,4,8,unlimited";
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        const struct {
            const char* name;
            double* number;
            int32_t* count;
            double least, most;
        } numbers[] = {
            {"--frames", NULL, &p->frame_count, 1, 1e6},
            {"--max-frames", NULL, &p->max_frame_count, 1, 1e6},
            {"--size", NULL, &p->size, 16, 4096},
            {"--steps", NULL, &p->steps, 1, 1000},
            {"--slice", NULL, &p->slice_us, 0, 1e6},
            {"--tokens", NULL, &p->tokens, 1, 500},
            {"--first", NULL, &p->first_count, 1, 1e6},
            {"--seconds", &p->max_seconds, NULL, 0.1, 1e4},
            {"--memory-budget", NULL, &p->memory_budget_mb, 0, 1e6},
            {"--period", &p->period_ms, NULL, 1, 1000},
            {"--load", &p->load_ms, NULL, 0.1, 1000},
            {"--paced-load", &p->paced_load_ms, NULL, 0.1, 1000},
        };
        const size_t count = sizeof numbers / sizeof *numbers;
        size_t at = 0;
        while (at < count && strcmp(numbers[at].name, name) != 0) at++;
        double number;
        if (at < count) {
            if (!read_number(value, numbers[at].least, numbers[at].most, &number)) return false;
            if (numbers[at].number != NULL) *numbers[at].number = number;
            else *numbers[at].count = (int32_t)number;
        } else if (strcmp(name, "--host") == 0
                   && (strcmp(value, "gl") == 0 || strcmp(value, "cuda") == 0 || strcmp(value, "none") == 0))
            p->host_name = value;
        else if (strcmp(name, "--checkpoint") == 0) p->model_path = value;
        else if (strcmp(name, "--synthetic") == 0 && (p->synthetic = synthetic_find(value)) != NULL)
            p->model_path = SYNTHETIC_PATH;
        else if (strcmp(name, "--backend") == 0 && (strcmp(value, "cpu") == 0 || strcmp(value, "cuda") == 0))
            p->backend = value[1] == 'p' ? SUMI_BACKEND_CPU : SUMI_BACKEND_CUDA;
        else if (strcmp(name, "--weights") == 0 && synthetic_weights(value, &p->weights)) continue;
        else if (strcmp(name, "--budgets") == 0) budgets = value;
        else if (strcmp(name, "--trace") == 0) p->trace_path = value;
        else return false;
    }
    return argc % 2 == 1 && p->load_ms < p->period_ms && read_budgets(p, budgets); // shares need the period
}

int main(int argc, char** argv)
{
    static pacing s_p = {.model_path = "samples/demo_model",
                         .host_name = "gl",
                         .frame_count = 600,
                         .max_frame_count = 1000000,
                         .slice_us = 500,
                         .tokens = 64,
                         .first_count = 1,
                         .period_ms = 1000.0 / 60.0,
                         .load_ms = 10.0,
                         .max_seconds = 60.0};
    if (!pretend_take_argument(&argc, argv)) return 2;
    if (!read_arguments(&s_p, argc, argv)) return usage();
    if (s_p.trace_path != NULL && (s_p.trace = fopen(s_p.trace_path, "w")) == NULL) {
        fprintf(stderr, "pacing: cannot write %s: give --trace a file in a folder that can be written\n",
                s_p.trace_path);
        return 1;
    }
    if (s_p.synthetic != NULL && (s_p.files = synthetic_open(s_p.synthetic)) == NULL) return 1;
    const bool done = run(&s_p);
    sumi_engine_destroy(s_p.engine);
    synthetic_close(s_p.files);
    if (s_p.host != NULL) s_p.host->destroy(s_p.host);
    if (s_p.trace != NULL) fclose(s_p.trace);
    for (int32_t i = 0; i < s_p.row_count; i++) {
        row* r = &s_p.rows[i];
        series_free(&r->frames), series_free(&r->intervals), series_free(&r->pictures);
        for (int32_t c = 0; c < CALL_COUNT; c++) series_free(&r->wall[c]), series_free(&r->cpu[c]);
    }
    return done ? 0 : 1;
}
