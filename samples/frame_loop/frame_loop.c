// A host with a loop of its own at 60 frames a second, its own allocator, its own log: sumi gets what is left of each
// frame, and every call is timed.
//     frame_loop MODEL "a lighthouse at dusk, ink wash" out.png
// On the processor the work happens inside sumi_engine_update, so the budget is what this frame has left. On a GPU it
// only bounds what is on its way to the device, beside the host's own rendering there: give it your context and a
// stream of yours in `cuda`, call update behind your frame's own submissions, and lower the budget when frames get
// late.
#include "picture.h"
#include "system.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sumi.h>

#define FRAME_US 16667.0
#define OWN_WORK_US 8000.0 // what this host does in a frame: here it sleeps
#define MARGIN_US 1500.0   // frames that would just fit are late in practice

static double now_us(void) { return 1e-3 * (double)system_clock_ns(); }

static void sleep_us(double us)
{
    if (us > 0.0) system_sleep_us((uint32_t)us);
}

// ---- Services -------------------------------------------------------------------------------------------------------

static atomic_size_t s_held_bytes; // worker threads allocate too

static void* allocate(size_t bytes, size_t alignment, void* user_data)
{
    (void)user_data;
    void* memory = system_allocate(bytes, alignment);
    if (memory) atomic_fetch_add(&s_held_bytes, bytes);
    return memory;
}

static void release(void* memory, size_t bytes, void* user_data)
{
    (void)user_data;
    atomic_fetch_sub(&s_held_bytes, bytes);
    system_release(memory);
}

static void write_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)user_data;
    if (level <= SUMI_LOG_WARNING) fprintf(stderr, "frame_loop: result %d: %s\n", (int)result, text);
}

// ---- The game -------------------------------------------------------------------------------------------------------

typedef struct game {
    sumi_engine* engine;
    sumi_model* model;
    sumi_job loading, picture;
    uint32_t seen_version; // of previews
    int frames, late, previews;
    double longest_us, longest_update_us, longest_poll_us;
} game;

static double longest(double a, double b) { return a > b ? a : b; }

static sumi_result begin_picture(game* g, const char* prompt)
{
    sumi_image_item item = {.text = prompt, .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(g->model, SUMI_PRESET_PREVIEW);
    desc.items = &item;
    desc.item_count = 1;
    desc.preview_every = 1;
    return sumi_submit_images(g->engine, &desc, &g->picture);
}

// What a game does with a preview is to put it into a texture.
static void look_at_preview(game* g, const sumi_job_status* status)
{
    static unsigned char s_pixels[256 * 256 * 4]; // an eighth of the picture's size
    sumi_image preview;
    if (status->preview_version == g->seen_version) return;
    g->seen_version = status->preview_version;
    if (sumi_job_preview(g->engine, g->picture, 0, s_pixels, sizeof s_pixels, &preview) == SUMI_OK) g->previews++;
}

// One frame. SUMI_TIMEOUT: it goes on; anything else is the end.
static sumi_result run_frame(game* g, const char* prompt, double begin)
{
    sleep_us(OWN_WORK_US); // update the world, submit the frame to the GPU
    const double budget = FRAME_US - MARGIN_US - (now_us() - begin);
    const double before_update = now_us();
    sumi_engine_update(g->engine, budget > 0.0 ? (uint32_t)budget : 0); // 0: a frame without sumi
    const double before_poll = now_us();
    const sumi_job_status status = sumi_job_poll(g->engine, g->model ? g->picture : g->loading);
    g->longest_update_us = longest(g->longest_update_us, before_poll - before_update);
    g->longest_poll_us = longest(g->longest_poll_us, now_us() - before_poll);
    if (status.state < SUMI_JOB_DONE) {
        look_at_preview(g, &status);
        return SUMI_TIMEOUT;
    }
    if (g->model) return SUMI_OK;
    const sumi_result result = sumi_fetch_model(g->engine, g->loading, &g->model);
    const sumi_result begun = result == SUMI_OK ? begin_picture(g, prompt) : result;
    return begun == SUMI_OK ? SUMI_TIMEOUT : begun;
}

static sumi_result play(game* g, const char* prompt)
{
    sumi_result result = SUMI_TIMEOUT;
    for (double begin = now_us(), next = begin; result == SUMI_TIMEOUT; g->frames++) {
        result = run_frame(g, prompt, begin);
        const double frame_us = now_us() - begin;
        g->longest_us = longest(g->longest_us, frame_us);
        g->late += frame_us > FRAME_US;
        next += FRAME_US;
        sleep_us(next - now_us()); // to the display's next refresh
        begin = now_us();
        if (begin > next) next = begin;
    }
    return result;
}

int main(int argc, char** argv)
{
    if (argc != 4) return fprintf(stderr, "usage: frame_loop MODEL PROMPT out.png\n"), 2;
    const sumi_allocator allocator = {allocate, release, NULL};
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.allocator = &allocator;
    ed.log.write = write_log;
    ed.max_slice_us = 1000; // the finest grain of the budget; 2 ms by default
    game g = {0};
    sumi_result result = sumi_engine_create(&ed, &g.engine);
    sumi_model_desc md = sumi_model_defaults();
    md.path = argv[1];
    if (result == SUMI_OK) result = sumi_submit_model(g.engine, &md, &g.loading);
    if (result == SUMI_OK) result = play(&g, argv[2]);
    sumi_image image;
    char message[PICTURE_MESSAGE_BYTES] = "";
    if (result == SUMI_OK) result = sumi_fetch_images(g.engine, g.picture, &image, 1);
    const bool is_written =
        result == SUMI_OK
        && picture_write(
            argv[3], &(picture_source){image.pixels, image.width, image.height, (size_t)image.row_bytes, 4, argv[2], 0},
            message);
    sumi_engine_destroy(g.engine);
    if (!is_written) fprintf(stderr, "frame_loop: %s\n", result == SUMI_OK ? message : sumi_result_text(result));
    printf("%d frames, %d late, longest %.1f ms; longest update %.2f ms, poll %.3f ms; %d previews; %zu bytes still "
           "held\n",
           g.frames, g.late, 1e-3 * g.longest_us, 1e-3 * g.longest_update_us, 1e-3 * g.longest_poll_us, g.previews,
           atomic_load(&s_held_bytes));
    return is_written ? 0 : 1;
}
