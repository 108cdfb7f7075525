// Several GPUs: one queue of prompts, and on every GPU an engine that takes the next one when it has room.
//     many_gpus MODEL --prompts prompts.txt --out FOLDER      one prompt per line; FOLDER/0000.png, 0001.png, ...
//     many_gpus --synthetic z-image --count 64 --warm-up --engines 1      and with --engines 2: how much a second adds
//
//   picture_queue.c   which pictures wait; one that an engine has lost comes back
//   lane.c            an engine and the thread that feeds it: what a host program would take from here
//
// An engine has one GPU and shares nothing with other engines. Each has sumi's thread, which keeps the GPU at work
// (SUMI_PUMP_THREAD), and a thread of this program, which takes prompts, waits, fetches and writes files. One loop that
// polls all engines with SUMI_PUMP_UPDATE is enough while images are denoised, because on a GPU an update only submits.
// But that loop would load one model after the other, all GPUs would run dry while it compresses a picture (20 to 80 ms
// for a PNG of 1024 x 1024), and engines on the CPU, which compute inside the update, would take turns.
//
// Each engine has two jobs: one runs, and its GPU begins the other without a gap. The place of a job that is done is
// filled before its picture is written. Name and seed of a picture are its number, whichever engine draws it.
//
// An engine that fails draws no more: its jobs go back to the front of the queue, and the other engines continue.
#include "lane.h"
#include "options.h"
#include "synthetic.h"
#include "system.h"
#include <stdio.h>

#define MAX_ENGINES 64

typedef struct options {
    assignment work;
    const char* prompts;
    const synthetic_config* synthetic;
    int32_t count, engines, threads;
    sumi_backend backend;
    bool wants_help;
} options;

// ---- Engines --------------------------------------------------------------------------------------------------------

// Asking for a GPU that is not there is how they are counted.
static void write_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    const lane* l = user_data;
    if (level <= SUMI_LOG_WARNING && result != SUMI_NO_DEVICE)
        fprintf(stderr, "many_gpus: engine %d: %s\n", l->number, text);
}

static sumi_result create_engine(lane* l, const options* o, int32_t ordinal, const sumi_files* files)
{
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.backend = ordinal >= 0 ? SUMI_BACKEND_CUDA : SUMI_BACKEND_CPU;
    ed.cuda.ordinal = ordinal;
    ed.files = files;
    ed.pump = SUMI_PUMP_THREAD;
    ed.cpu_thread_count = o->threads;
    ed.max_slice_us = 0; // nobody draws frames here
    ed.log = (sumi_log){write_log, l};
    return sumi_engine_create(&ed, &l->engine);
}

// Returns how many lanes have a GPU now: one each, a GPU that cannot be used is passed over.
static int32_t create_on_gpus(lane* lanes, const options* o, const sumi_files* files)
{
    int32_t count = 0;
    for (int32_t ordinal = 0; ordinal < MAX_ENGINES && (o->engines == 0 || count < o->engines); ordinal++) {
        const sumi_result result = create_engine(&lanes[count], o, ordinal, files);
        if (result == SUMI_OK) count++;
        else if (result != SUMI_DEVICE_UNSUPPORTED && result != SUMI_OUT_OF_DEVICE_MEMORY) break;
    }
    return count;
}

// Without a GPU, and if none is asked for, engines are on the CPU. Returns 0 after printing a sentence.
static int32_t create_engines(lane* lanes, const options* o, const sumi_files* files)
{
    int32_t count = o->backend == SUMI_BACKEND_CPU ? 0 : create_on_gpus(lanes, o, files);
    if (count > 0 && count < o->engines)
        return fprintf(stderr, "many_gpus: --engines %d: sumi can use %d of this machine's GPUs\n", o->engines, count),
               0;
    if (count == 0 && o->backend == SUMI_BACKEND_CUDA)
        return fprintf(stderr, "many_gpus: %s\n", sumi_result_text(SUMI_NO_DEVICE)), 0;
    if (count > 0) return count;
    for (; count == 0 || count < o->engines; count++) {
        const sumi_result result = create_engine(&lanes[count], o, -1, files);
        if (result != SUMI_OK) return fprintf(stderr, "many_gpus: %s\n", sumi_result_text(result)), 0;
    }
    return count;
}

static void run_all(lane* lanes, int32_t count, void* (*function)(void*))
{
    pthread_t threads[MAX_ENGINES];
    bool is_started[MAX_ENGINES];
    for (int32_t i = 0; i < count; i++) is_started[i] = pthread_create(&threads[i], NULL, function, &lanes[i]) == 0;
    for (int32_t i = 0; i < count; i++) {
        if (is_started[i]) pthread_join(threads[i], NULL);
        else function(&lanes[i]); // later, but all the same
    }
}

static bool draw_all(lane* lanes, int32_t count)
{
    run_all(lanes, count, lane_open);
    const uint64_t began = system_clock_ns();
    run_all(lanes, count, lane_draw);
    const double seconds = 1e-9 * (double)(system_clock_ns() - began);
    const picture_queue* q = &lanes[0].work->queue;
    int32_t drawn = 0;
    for (int32_t i = 0; i < count; i++) drawn += lanes[i].drawn;
    if (drawn < q->count)
        fprintf(stderr, "many_gpus: %d of %d pictures are missing%s\n", q->count - drawn, q->count,
                q->unfinished > 0 ? ": no engine is left" : "");
    if (drawn == 0) return false;
    printf("%d pictures in %.2f s, %.3f a second:", drawn, seconds, drawn / seconds);
    for (int32_t i = 0; i < count; i++)
        printf("%s %.3f by engine %d (%s)", i > 0 ? "," : "", lanes[i].drawn / seconds, i,
               sumi_engine_get_info(lanes[i].engine).device);
    putchar('\n');
    return drawn == q->count;
}

// ---- Arguments ------------------------------------------------------------------------------------------------------

static const char s_usage[] =
    "usage: many_gpus [MODEL] [--prompts FILE | --prompt TEXT] [--count N] [--out pictures] [--engines N]\n"
    "  MODEL: a folder or file, samples/demo_model by default; or --synthetic klein|z-image|.. (random weights)\n"
    "  --prompts: a prompt in each line; --count: how many pictures, by default one of each prompt\n"
    "  --engines: how many GPUs draw, by default all. With --backend cpu: how many engines share the processor\n"
    "  --warm-up: each engine draws a picture that is not counted before the time begins\n"
    "  [--size 512x512] [--steps N] [--seed 7] [--backend cpu|cuda] [--threads N: of each engine, 0 is every core]\n"
    "  [--weights " SYNTHETIC_WEIGHTS "]\n";

static bool read_options(options* o, int argc, char** argv)
{
    assignment* work = &o->work;
    const option table[] = {
        {"--prompts", .text = &o->prompts},
        {"--prompt", .text = &work->prompt},
        {"--out", .text = &work->out},
        {"--warm-up", .flag = &work->warms_up},
        {"--count", .whole = &o->count, .least = 1.0, .most = 1e6},
        {"--engines", .whole = &o->engines, .least = 1.0, .most = MAX_ENGINES},
        {"--threads", .whole = &o->threads, .least = 0.0, .most = 1024.0},
        {"--steps", .whole = &work->steps, .least = 1.0, .most = 1000.0},
        {"--seed", .seed = &work->seed, .most = OPTION_MOST_SEED},
        {"--size", .width = &work->width, .height = &work->height},
        {"--backend", .backend = &o->backend},
        {"--synthetic", .read = options_read_synthetic, .into = &o->synthetic, .wanted = OPTIONS_SYNTHETIC},
        {"--weights", .read = options_read_weights, .into = &work->weights, .wanted = SYNTHETIC_WEIGHTS},
    };
    return options_read("many_gpus", table, sizeof table / sizeof *table, argc, argv, &work->model, &o->wants_help);
}

static bool prepare(options* o)
{
    assignment* work = &o->work;
    const char* said = NULL;
    if (o->synthetic && work->model) said = "a MODEL and --synthetic exclude each other: give one";
    if (o->prompts) work->prompts = lines_read(o->prompts);
    if (o->prompts && work->prompts.count == 0) said = "the file of --prompts cannot be read, or holds no prompt";
    if (!said && !system_make_folder(work->out)) said = "the folder of --out cannot be made: give another one";
    if (!work->model) work->model = o->synthetic ? SYNTHETIC_PATH : "samples/demo_model";
    if (o->count == 0) o->count = work->prompts.count > 0 ? work->prompts.count : 1;
    if (said) fprintf(stderr, "many_gpus: %s\n", said);
    return said == NULL;
}

int main(int argc, char** argv)
{
    argv = system_begin(argc, argv);
    options o = {.work = {.prompt = "a yellow moon above a purple cat at night", .out = "pictures", .seed = 7}};
    if (!read_options(&o, argc, argv)) return 2;
    if (o.wants_help) return fputs(s_usage, stdout), 0;
    if (!prepare(&o)) return lines_free(&o.work.prompts), 2;

    lane lanes[MAX_ENGINES];
    synthetic_files* random = o.synthetic ? synthetic_open(o.synthetic) : NULL;
    const sumi_files services = synthetic_services(random);
    bool is_fine = queue_open(&o.work.queue, o.count) && (random || !o.synthetic);
    for (int32_t i = 0; i < MAX_ENGINES; i++) lanes[i] = (lane){.work = &o.work, .number = i};
    const int32_t count = is_fine ? create_engines(lanes, &o, random ? &services : NULL) : 0;
    is_fine = count > 0 && draw_all(lanes, count);
    for (int32_t i = 0; i < MAX_ENGINES; i++) sumi_engine_destroy(lanes[i].engine);
    queue_close(&o.work.queue);
    lines_free(&o.work.prompts);
    synthetic_close(random);
    return is_fine ? 0 : 1;
}
