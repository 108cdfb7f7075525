#include "jobs/job_controls.h"
#include "base/assert.h"
#include "base/result.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job_pictures.h"
#include "jobs/objects.h"
#include "jobs/plan_cache.h"
#include "models/control.h"
#include "models/pipeline.h"
#include "pictures/depth.h"
#include "pictures/pixels.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include <string.h>

// The pieces of each picture, in this order. INPAINT leaves its result in the workspace for MASK.
typedef enum control_stage { CONTROL_PICTURE, INPAINT, MASK, CONTROL_STAGES } control_stage;

// Of the work on a depth buffer.
static sumi_depth_args depth_args(const sumi_job_request* request, const sumi_job_control* control,
                                  const sumi_job_control_input* picture)
{
    return (sumi_depth_args){.depth = &picture->depth,
                             .stretch = sumi_control_net_get_info(control->control->net)->depth_stretch,
                             .width = request->width,
                             .height = request->height};
}

static uint64_t resize_bytes(const sumi_job_request* request, const sumi_pixels* pixels)
{
    const sumi_resize_args resize = {pixels, request->width, request->height, SUMI_FILTER_LANCZOS, false};
    return pixels->data != NULL ? sumi_resize_bytes(&resize) : 0;
}

uint64_t sumi_control_inputs_bytes(const sumi_job_request* request)
{
    const uint64_t pixels = (uint64_t)request->width * (uint64_t)request->height;
    uint64_t most = 0;
    for (int32_t i = 0; i < request->control_count; i++) {
        for (int32_t p = 0; p < request->controls[i].picture_count; p++) {
            const sumi_job_control_input* picture = &request->controls[i].pictures[p];
            const sumi_pixels* const all[] = {&picture->picture, &picture->inpaint, &picture->mask};
            uint64_t largest = 0;
            for (int k = 0; k < 3; k++) {
                const uint64_t bytes = resize_bytes(request, all[k]);
                largest = bytes > largest ? bytes : largest;
            }
            if (picture->depth.data != NULL) {
                const sumi_depth_args depth = depth_args(request, &request->controls[i], picture);
                const uint64_t bytes = sumi_depth_bytes(&depth);
                largest = bytes > largest ? bytes : largest;
            }
            // RGB; with a mask its greys, the masked picture and the mask in the latents' size come beside it
            largest += 3 * pixels + (picture->mask.data != NULL ? 6 * pixels : 0);
            most = largest > most ? largest : most;
        }
    }
    return most;
}

static int32_t picture_count(const sumi_plan_job* job, int32_t control)
{
    return job->request.controls[job->progress.plan_controls[control]].picture_count == 1 ? 1
                                                                                          : job->progress.batch_count;
}

int32_t sumi_control_inputs_pieces(const sumi_plan_job* job)
{
    int32_t count = 0;
    for (int32_t k = 0; k < job->progress.plan_control_count; k++) count += CONTROL_STAGES * picture_count(job, k);
    return count;
}

static void write_bytes(sumi_engine* engine, const sumi_plan_job* job, const sumi_value_part* part, const void* data)
{
    engine->runner->functions->write(engine->runner, &job->progress.entry->plan, part->value, part->first, data,
                                     part->count);
}

// The strength of every net, as often as the stream is wide.
static sumi_result write_strengths(sumi_engine* engine, const sumi_plan_job* job, sumi_error* error)
{
    const sumi_pipeline* pipeline = &job->progress.entry->pipeline;
    const int32_t width = pipeline->strength_width, count = job->progress.plan_control_count;
    const uint64_t bytes = (uint64_t)count * (uint64_t)width * sizeof(float);
    SUMI_TRY(sumi_block_reserve(&engine->heap, &engine->workspace.values, bytes, "strengths", error));
    float* values = engine->workspace.values.data;
    for (int32_t k = 0; k < count; k++) {
        const float strength = job->request.controls[job->progress.plan_controls[k]].strength;
        for (int32_t i = 0; i < width; i++) values[k * width + i] = strength;
    }
    write_bytes(engine, job, &(sumi_value_part){.value = pipeline->strengths, .count = bytes}, values);
    return SUMI_OK;
}

// Does the next piece of a resize to RGB, which is then in the workspace.
static sumi_result resize_to_rgb(sumi_engine* engine, sumi_plan_job* job, const sumi_pixels* source, bool* out_done,
                                 sumi_error* error)
{
    const int32_t width = job->request.width, height = job->request.height;
    const sumi_resize_args args = {source, width, height, SUMI_FILTER_LANCZOS, false};
    sumi_pixels picture;
    SUMI_TRY(sumi_resize_advance(&engine->workspace, &args, &job->progress.resize, &picture, error));
    *out_done = picture.data != NULL;
    if (!*out_done) return SUMI_OK;
    const uint64_t bytes = (uint64_t)width * (uint64_t)height * 3;
    SUMI_TRY(sumi_block_reserve(&engine->heap, &engine->workspace.first, bytes, "a control picture", error));
    // The picture has the right size already, so this allocates nothing.
    return sumi_pixels_to_rgb(&engine->heap, &picture, width, height, engine->workspace.first.data, error);
}

// Does the next piece of a control picture from a depth buffer, which is then in the workspace as RGB.
static sumi_result prepare_depth(sumi_engine* engine, sumi_plan_job* job, const sumi_depth_args* args, bool* out_done,
                                 sumi_error* error)
{
    sumi_block *work = &engine->workspace.intermediate, *rgb = &engine->workspace.first;
    if (!job->progress.is_preparing_depth) {
        SUMI_TRY(sumi_block_reserve(&engine->heap, work, sumi_depth_bytes(args), "a depth buffer's distances", error));
        SUMI_TRY(sumi_block_reserve(&engine->heap, rgb, (uint64_t)args->width * (uint64_t)args->height * 3,
                                    "a control picture", error));
        sumi_depth_begin(args, work->data);
        job->progress.is_preparing_depth = true;
    }
    *out_done = sumi_depth_advance(work->data, rgb->data);
    if (*out_done) job->progress.is_preparing_depth = false;
    return SUMI_OK;
}

// A mask, and where it goes.
typedef struct mask_output {
    const sumi_pixels* mask;
    const sumi_control_net_info* info;
    sumi_value masked_pixels, control_mask;
} mask_output;

// Writes the masked picture, from RGB in the workspace, and the mask.
static sumi_result write_mask(sumi_engine* engine, sumi_plan_job* job, const mask_output* output, bool* out_done,
                              sumi_error* error)
{
    const sumi_pixels* mask = output->mask;
    const sumi_control_net_info* info = output->info;
    const sumi_job_request* request = &job->request;
    const int32_t width = request->width, height = request->height;
    const uint64_t pixels = (uint64_t)width * (uint64_t)height, latents = sumi_plan_job_latent_size(job);
    sumi_pixels picture = *mask;
    *out_done = true;
    // Colours of a mask with alpha are premultiplied before the resize, which sumi_pixels_to_control_mask does at once.
    if (mask->channel_count != 4) {
        const sumi_resize_args args = {mask, width, height,
                                       info->has_binary_mask ? SUMI_FILTER_LANCZOS : SUMI_FILTER_BICUBIC, false};
        SUMI_TRY(sumi_resize_advance(&engine->workspace, &args, &job->progress.resize, &picture, error));
        *out_done = picture.data != NULL;
        if (!*out_done) return SUMI_OK;
    }
    sumi_block* values = &engine->workspace.values;
    SUMI_TRY(
        sumi_block_reserve(&engine->heap, values, latents * sizeof(float) + 5 * pixels, "a masked picture", error));
    float* kept = values->data;
    uint8_t *masked = (uint8_t*)(kept + latents), *greys = masked + 4 * pixels;
    const sumi_control_mask to = {greys, width, height};
    sumi_temporary temporary;
    sumi_temporary_begin(&temporary, &engine->heap, &engine->workspace.temporary);
    const sumi_result result =
        sumi_pixels_to_control_mask(&temporary.heap, &picture, info->has_binary_mask, &to, error);
    sumi_temporary_end(&temporary);
    SUMI_TRY(result);
    sumi_control_mask_out(&to, info->masks_with_black, engine->workspace.first.data, masked);
    sumi_control_mask_to_latents(&to, request->latent_width, request->latent_height, kept);
    write_bytes(engine, job, &(sumi_value_part){.value = output->masked_pixels, .count = 4 * pixels}, masked);
    write_bytes(engine, job, &(sumi_value_part){.value = output->control_mask, .count = latents * sizeof(float)}, kept);
    return SUMI_OK;
}

// A control picture, by its indices in the request, and where it goes.
typedef struct control_picture {
    int32_t control, picture;
    sumi_value pixels;
} control_picture;

// Does the next piece of a control picture: the picture is written, and kept for the host program.
static sumi_result write_picture(sumi_engine* engine, sumi_plan_job* job, control_picture at, bool* out_done,
                                 sumi_error* error)
{
    const sumi_job_request* request = &job->request;
    const sumi_job_control* control = &request->controls[at.control];
    const sumi_job_control_input* picture = &control->pictures[at.picture];
    const uint64_t bytes = 3 * (uint64_t)request->width * (uint64_t)request->height;
    if (!sumi_job_control_has_picture(picture)) return SUMI_OK;
    if (picture->depth.external != NULL) {
        const sumi_depth_args args = depth_args(request, control, picture);
        const sumi_depth_input input = {.value = at.pixels,
                                        .width = args.width,
                                        .height = args.height,
                                        .import = &picture->depth.external->import,
                                        .depth = args.depth,
                                        .is_inverse = args.stretch == SUMI_STRETCH_INVERSE};
        return engine->runner->async->write_depth(engine->runner, &job->progress.entry->plan, &input, error);
    }
    if (picture->depth.data != NULL) {
        const sumi_depth_args args = depth_args(request, control, picture);
        SUMI_TRY(prepare_depth(engine, job, &args, out_done, error));
    } else SUMI_TRY(resize_to_rgb(engine, job, &picture->picture, out_done, error));
    if (!*out_done) return SUMI_OK;
    const void* rgb = engine->workspace.first.data;
    write_bytes(engine, job, &(sumi_value_part){.value = at.pixels, .count = bytes}, rgb);
    memcpy(job->products.control_pictures[at.control] + (uint64_t)at.picture * bytes, rgb, bytes);
    return SUMI_OK;
}

sumi_result sumi_control_inputs_write(sumi_engine* engine, sumi_plan_job* job, int32_t piece, bool* out_done,
                                      sumi_error* error)
{
    SUMI_ASSERT(job->progress.entry != NULL && piece >= 0 && piece < sumi_control_inputs_pieces(job));
    const sumi_pipeline* pipeline = &job->progress.entry->pipeline;
    const control_stage stage = (control_stage)(piece % CONTROL_STAGES);
    int32_t k = 0, p = piece / CONTROL_STAGES;
    while (p >= picture_count(job, k)) p -= picture_count(job, k++);
    const int32_t c = job->progress.plan_controls[k];
    const sumi_job_control* control = &job->request.controls[c];
    const int32_t index = control->picture_count == 1 ? 0 : job->progress.batch_begin + p;
    const sumi_job_control_input* picture = &control->pictures[index];
    const bool is_begin = piece == 0 && job->progress.resize.row == 0 && !job->progress.is_preparing_depth;
    *out_done = true;
    switch (stage) {
    case CONTROL_PICTURE:
        if (is_begin) SUMI_TRY(write_strengths(engine, job, error));
        return write_picture(
            engine, job, (control_picture){.control = c, .picture = index, .pixels = pipeline->control_pixels[k][p]},
            out_done, error);
    case INPAINT:
        return picture->inpaint.data != NULL ? resize_to_rgb(engine, job, &picture->inpaint, out_done, error) : SUMI_OK;
    default: break;
    }
    if (picture->mask.data == NULL) return SUMI_OK;
    return write_mask(engine, job,
                      &(mask_output){.mask = &picture->mask,
                                     .info = sumi_control_net_get_info(control->control->net),
                                     .masked_pixels = pipeline->masked_pixels[k][p],
                                     .control_mask = pipeline->control_mask[k][p]},
                      out_done, error);
}
