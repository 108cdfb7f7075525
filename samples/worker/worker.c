// Work on a thread of sumi's: the host submits, forgets, and is told by a thread of its own that waits. For tools,
// servers and hosts whose frame has nothing to spare.
//     worker MODEL "a lighthouse at dusk, ink wash" out.png
#include "picture.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sumi.h>
#include <time.h>

typedef struct request {
    sumi_engine* engine;
    sumi_job job;
    atomic_bool is_over;
} request;

// The waiting thread sleeps inside sumi_job_wait; the engine's thread does the work at low priority.
static void* await(void* context)
{
    request* r = context;
    sumi_job_wait(r->engine, r->job, SUMI_FOREVER);
    atomic_store(&r->is_over, true);
    return NULL;
}

// What the host does meanwhile: its own work, with a look at the job now and then. Poll is safe beside everything.
static bool run_job(request* r, const char* what)
{
    pthread_t thread;
    atomic_store(&r->is_over, false);
    if (pthread_create(&thread, NULL, await, r) != 0) return false;
    while (!atomic_load(&r->is_over)) {
        const sumi_job_status status = sumi_job_poll(r->engine, r->job);
        printf("\r%s %3.0f %%", what, 100.0 * (double)status.progress);
        nanosleep(&(struct timespec){.tv_nsec = 16000000}, NULL);
    }
    printf("\r%s done \n", what);
    pthread_join(thread, NULL);
    return true;
}

int main(int argc, char** argv)
{
    if (argc != 4) return fprintf(stderr, "usage: worker MODEL PROMPT out.png\n"), 2;
    request r = {0};
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.pump = SUMI_PUMP_THREAD;
    ed.cpu_thread_count = 0; // on the processor: every core
    sumi_result result = sumi_engine_create(&ed, &r.engine);

    sumi_model_desc md = sumi_model_defaults();
    md.path = argv[1];
    sumi_model* model = NULL;
    if (result == SUMI_OK) result = sumi_submit_model(r.engine, &md, &r.job);
    if (result == SUMI_OK && !run_job(&r, "model")) result = SUMI_INTERNAL;
    if (result == SUMI_OK) result = sumi_fetch_model(r.engine, r.job, &model);

    sumi_image_item item = {.text = argv[2], .seed = 7};
    sumi_image_desc id = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    id.items = &item;
    id.item_count = 1;
    if (result == SUMI_OK) result = sumi_submit_images(r.engine, &id, &r.job);
    if (result == SUMI_OK && !run_job(&r, "picture")) result = SUMI_INTERNAL;

    sumi_image image;
    if (result == SUMI_OK) result = sumi_fetch_images(r.engine, r.job, &image, 1);
    char message[PICTURE_MESSAGE_BYTES] = "";
    const bool is_written =
        result == SUMI_OK
        && picture_write(
            argv[3], &(picture_source){image.pixels, image.width, image.height, (size_t)image.row_bytes, 4, argv[2], 0},
            message);
    if (!is_written) fprintf(stderr, "worker: %s\n", result == SUMI_OK ? message : sumi_result_text(result));
    sumi_engine_destroy(r.engine);
    return is_written ? 0 : 1;
}
