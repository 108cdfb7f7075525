#include "painter.h"
#include "newest_wins.h"
#include "system.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Work per turn. On a GPU this much is in flight: enough to keep it busy between two turns, and little, for it runs also
// if its job is cancelled.
#define BUDGET_US 8000
#define SLEEP_US 200 // between two turns that only look
#define USUAL_SIDE 512

double painter_now(void) { return 1e-9 * (double)system_clock_ns(); }

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

// ---- Pictures -------------------------------------------------------------------------------------------------------

static void cancel(painter* p, drawing* d, bool had_begun)
{
    d->is_cancelled = true;
    d->had_begun = had_begun;
    sumi_job_cancel(p->engine, d->job);
}

static void cancel_older(painter* p)
{
    // [excerpt live_cancel]
    for (int32_t i = p->drawing_count - 1; i >= 0; i--) {
        drawing* d = &p->drawings[i];
        const sumi_job_status status = sumi_job_poll(p->engine, d->job);
        if (d->is_cancelled || status.state >= SUMI_JOB_DONE) continue;
        const older_job older = {.has_begun = status.state == SUMI_JOB_RUNNING,
                                 .spent = newest_wins_spent((double)status.progress, (double)status.seconds_left,
                                                            1e-6 * (double)status.pending_us),
                                 .another_gave_way = p->one_gave_way};
        if (!newest_wins(&older)) continue;
        cancel(p, d, older.has_begun);
        p->one_gave_way = p->one_gave_way || older.has_begun;
    }
    // [end]
}

bool painter_can_submit(const painter* p) { return p->drawing_count < PAINTER_DRAWINGS; }

bool painter_submit(painter* p, const sumi_pixels* pixels, double came)
{
    cancel_older(p);
    drawing newest = {.came = came, .submitted = painter_now()};
    p->desc.items = &p->item;
    p->desc.start.image = pixels; // is copied
    if (!check(sumi_submit_images(p->engine, &p->desc, &newest.job), "submitting a picture")) return false;
    p->drawings[p->drawing_count++] = newest;
    p->submitted++;
    return true;
}

static void show(painter* p, const drawing* done, const sumi_image* image)
{
    const double now = painter_now();
    sumi_images_release(p->engine, &p->shown, 1);
    p->shown = *image; // a paint tool would put it into a texture
    series_add(&p->from_submit, 1e3 * (now - done->submitted));
    series_add(&p->from_input, 1e3 * (now - done->came));
    if (p->finished++ > 0) series_add(&p->between, 1e3 * (now - p->shown_at));
    p->shown_at = now;
    p->one_gave_way = false;
}

// Fetches what has finished.
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

bool painter_turn(painter* p)
{
    sumi_engine_update(p->engine, p->budget_us);
    const bool is_fine = collect(p);
    if (p->works_elsewhere || p->drawing_count == 0) system_sleep_us(SLEEP_US);
    return is_fine;
}

bool painter_stop(painter* p)
{
    for (int32_t i = 0; i < p->drawing_count; i++) {
        drawing* d = &p->drawings[i];
        if (!d->is_cancelled) cancel(p, d, sumi_job_poll(p->engine, d->job).state != SUMI_JOB_QUEUED);
        sumi_job_wait(p->engine, d->job, SUMI_FOREVER);
    }
    return collect(p);
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

static bool open_model(painter* p, const painter_desc* desc)
{
    sumi_engine_desc ed = sumi_engine_defaults();
    const sumi_files files = synthetic_services(desc->synthetic);
    if (desc->synthetic) ed.files = &files;
    ed.backend = desc->backend;
    ed.pump = desc->has_thread ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
    ed.cpu_thread_count = 0;
    ed.log.write = write_log;
    if (!check(sumi_engine_create(&ed, &p->engine), "creating the engine")) return false;
    p->works_elsewhere = desc->has_thread || sumi_engine_get_info(p->engine).compute_capability > 0;
    sumi_model_desc md = sumi_model_defaults();
    md.path = desc->model;
    md.weights = desc->weights;
    md.attention = desc->attention;
    sumi_job job;
    if (!check(sumi_submit_model(p->engine, &md, &job), "loading the model")) return false;
    sumi_job_wait(p->engine, job, SUMI_FOREVER);
    return check(sumi_fetch_model(p->engine, job, &p->model), "loading the model");
}

static bool suits(const sumi_model_info* info, const sumi_image_desc* image)
{
    const int32_t step = info->size_multiple;
    if (!info->has_vae_encoder)
        fprintf(stderr, "live: the model has no VAE encoder, which image to image needs: give a whole checkpoint\n");
    else if (!info->has_text_encoder)
        fprintf(stderr, "live: the model has no text encoder for the prompt: give a whole checkpoint\n");
    else if (info->min_references > 0)
        fprintf(stderr, "live: the model only edits reference images: give one that also draws from text\n");
    else if (image->width < step || image->height < step || image->width % step != 0 || image->height % step != 0
             || image->width > info->max_size || image->height > info->max_size)
        fprintf(stderr, "live: --size %dx%d: this model takes multiples of %d up to %d\n", image->width, image->height,
                step, info->max_size);
    else return true;
    return false;
}

bool painter_open(painter* p, const painter_desc* desc)
{
    p->budget_us = BUDGET_US;
    if (!open_model(p, desc)) return false;
    const sumi_model_info info = sumi_model_get_info(p->model);
    p->desc = sumi_image_defaults(p->model, SUMI_PRESET_MODEL);
    p->desc.item_count = 1;
    p->desc.width = p->desc.height = info.native_size < USUAL_SIDE ? info.native_size : USUAL_SIDE;
    if (desc->size.width > 0) p->desc.width = desc->size.width, p->desc.height = desc->size.height;
    if (desc->steps > 0) p->desc.step_count = desc->steps;
    p->desc.start.strength = (float)desc->strength;
    if (!suits(&info, &p->desc)) return false;
    if (!encode(p, desc->prompt, &p->prompt)) return false; // once: no picture reads a text again
    const bool is_guided = p->desc.guidance.scale != info.guidance_off;
    if (is_guided && !encode(p, info.negative_text, &p->negative)) return false;
    p->item = (sumi_image_item){.prompt = p->prompt, .negative_prompt = p->negative, .seed = desc->seed};
    return true;
}

double painter_warm_up(painter* p)
{
    const size_t bytes = (size_t)p->desc.width * (size_t)p->desc.height;
    uint8_t* paper = malloc(bytes);
    if (!paper) return fprintf(stderr, "live: no memory for a canvas\n"), 0.0;
    memset(paper, 255, bytes);
    const sumi_pixels pixels = {paper, p->desc.width, p->desc.height, 0, 1};
    bool is_fine = true;
    for (int i = 0; i < 2 && is_fine; i++) {
        series_clear(&p->from_submit);
        is_fine = painter_submit(p, &pixels, painter_now());
        while (is_fine && p->drawing_count > 0) is_fine = painter_turn(p);
    }
    free(paper);
    const double ms = series_percentile(&p->from_submit, 50.0);
    series_clear(&p->from_submit), series_clear(&p->from_input), series_clear(&p->between);
    p->submitted = p->finished = 0;
    return is_fine ? ms : 0.0;
}

void painter_close(painter* p)
{
    sumi_engine_destroy(p->engine); // cancels what is not finished, and frees model, prompts and picture
    series_free(&p->from_submit), series_free(&p->from_input), series_free(&p->between);
}
