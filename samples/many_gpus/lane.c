#include "lane.h"
#include "picture.h"
#include <stdio.h>

// What this engine has taken goes back to the front of the queue, and the others continue.
static void stop(lane* l, const char* doing, sumi_result result)
{
    const int32_t count = l->job_count;
    for (; l->job_count > 0; l->job_count--) {
        sumi_job_discard(l->engine, l->jobs[l->job_count - 1].job);
        queue_put(&l->work->queue, l->jobs[l->job_count - 1].picture, WAITS);
    }
    l->has_failed = true;
    fprintf(stderr, "many_gpus: engine %d draws no more: %s failed: %s", l->number, doing, sumi_result_text(result));
    if (count > 0) fprintf(stderr, "; %d of its pictures go back to the queue", count);
    fputc('\n', stderr);
}

static sumi_result submit(const lane* l, int32_t picture, sumi_job* out_job)
{
    const assignment* work = l->work;
    const lines* prompts = &work->prompts;
    const sumi_image_item item = {.text = prompts->count > 0 ? prompts->at[picture % prompts->count] : work->prompt,
                                  .seed = work->seed + (uint64_t)picture};
    sumi_image_desc desc = sumi_image_defaults(l->model, SUMI_PRESET_MODEL);
    desc.items = &item; // copied
    desc.item_count = 1;
    if (work->width > 0) desc.width = work->width, desc.height = work->height;
    if (work->steps > 0) desc.step_count = work->steps;
    return sumi_submit_images(l->engine, &desc, out_job);
}

void* lane_open(void* context)
{
    lane* l = context;
    sumi_job job;
    sumi_model_desc md = sumi_model_defaults();
    md.path = l->work->model;
    md.weights = l->work->weights;
    sumi_result result = sumi_submit_model(l->engine, &md, &job);
    if (result == SUMI_OK) sumi_job_wait(l->engine, job, SUMI_FOREVER);
    if (result == SUMI_OK) result = sumi_fetch_model(l->engine, job, &l->model);
    if (result != SUMI_OK) return stop(l, "opening the model", result), NULL;
    if (!l->work->warms_up) return NULL;
    sumi_image image;
    result = submit(l, 0, &job); // loads kernels and makes plans
    if (result == SUMI_OK) sumi_job_wait(l->engine, job, SUMI_FOREVER);
    if (result == SUMI_OK) result = sumi_fetch_images(l->engine, job, &image, 1);
    if (result == SUMI_OK) sumi_images_release(l->engine, &image, 1);
    else stop(l, "the first picture", result);
    return NULL;
}

static void fill(lane* l)
{
    // [excerpt many_fill]
    int32_t picture;
    while (!l->has_failed && l->job_count < LANE_JOBS && (picture = queue_take(&l->work->queue)) >= 0) {
        sumi_job job = {0};
        const sumi_result result = submit(l, picture, &job);
        l->jobs[l->job_count].job = job;
        l->jobs[l->job_count++].picture = picture;
        if (result != SUMI_OK) stop(l, "submitting a picture", result);
    }
    // [end]
}

static bool write_image(const lane* l, int32_t picture, const sumi_image* i)
{
    char path[1200], message[PICTURE_MESSAGE_BYTES];
    const picture_source source = {i->pixels, i->width, i->height, (size_t)i->row_bytes, 4, NULL, 0};
    snprintf(path, sizeof path, "%s/%04d.png", l->work->out, picture);
    const bool is_written = picture_write(path, &source, message);
    if (!is_written) fprintf(stderr, "many_gpus: %s\n", message);
    return is_written;
}

// Waits for the oldest job. Its place is filled before its picture is written, so that the GPU always has two jobs.
static void take_image(lane* l)
{
    const int32_t picture = l->jobs[0].picture;
    sumi_image image;
    sumi_job_wait(l->engine, l->jobs[0].job, SUMI_FOREVER);
    const sumi_result result = sumi_fetch_images(l->engine, l->jobs[0].job, &image, 1);
    const bool is_drawn = result == SUMI_OK;
    if (!is_drawn && result != SUMI_NOT_FINITE) { // NaN would come from any engine
        stop(l, "drawing a picture", result);
        return;
    }
    l->jobs[0] = l->jobs[--l->job_count];
    fill(l);
    if (!is_drawn) fprintf(stderr, "many_gpus: picture %d: %s\n", picture, sumi_result_text(result));
    const bool is_written = is_drawn && write_image(l, picture, &image);
    if (is_drawn) sumi_images_release(l->engine, &image, 1);
    queue_put(&l->work->queue, picture, is_written ? IS_WRITTEN : IS_GIVEN_UP);
    l->drawn += is_written;
}

void* lane_draw(void* context)
{
    lane* l = context;
    // [excerpt many_draw]
    while (!l->has_failed && queue_wait(&l->work->queue)) {
        for (fill(l); l->job_count > 0; fill(l)) take_image(l);
    }
    // [end]
    return NULL;
}
