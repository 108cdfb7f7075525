// Control nets: read in turns of a job, which file_jobs.c submits; checked and copied for image jobs; freed.
#include "engine/controls.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/result.h"
#include "engine/calls.h"
#include "engine/desc_checks.h"
#include "engine/externals.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_memory.h"
#include "jobs/log.h"
#include "jobs/objects.h"
#include "jobs/plan_job.h"
#include "models/control.h"
#include "models/limits.h"
#include "models/network.h"
#include "pacing/frame_limits.h"
#include "pictures/depth.h"
#include "pictures/pixels.h"
#include "plan/weight.h"
#include <stdio.h>
#include <string.h>

// ---- Nets -----------------------------------------------------------------------------------------------------------

void sumi_control_close(sumi_control* control)
{
    SUMI_ASSERT(sumi_pump_is_locked(control->engine));
    int32_t count;
    if (control->is_open) {
        const sumi_weight* const* weights = sumi_control_net_weights(control->net, &count);
        sumi_engine_release_weights(control->engine, weights, (size_t)count);
    }
    sumi_control_net_close(control->net);
    control->net = NULL;
    control->is_open = false;
}

void sumi_control_free(sumi_control* control)
{
    if (control == NULL) return;
    sumi_control_close(control);
    SUMI_OBJECT_REMOVE(control);
    sumi_free(&control->engine->heap, control);
}

static sumi_result begin_reading(sumi_engine* engine, sumi_job_slot* slot, sumi_error* error)
{
    SUMI_ASSERT(slot->model != NULL && slot->u.file_job.product == NULL);
    sumi_control* control = sumi_alloc(&engine->heap, sizeof *control);
    if (control == NULL) return sumi_out_of_memory(error, sizeof *control, "a control net");
    *control = (sumi_control){.engine = engine, .model = slot->model};
    SUMI_OBJECT_ADD(controls, control);
    slot->u.file_job.product = control;
    return sumi_control_net_open_begin(slot->model->network, engine->desc.files, slot->u.file_job.path, error,
                                       &control->net);
}

sumi_result sumi_control_advance(sumi_engine* engine, sumi_job_slot* slot, sumi_turn* turn, sumi_error* error)
{
    turn->stage = SUMI_STAGE_LOAD;
    if (slot->u.file_job.product == NULL) return begin_reading(engine, slot, error);
    sumi_control* control = slot->u.file_job.product;
    SUMI_TRY(sumi_control_net_open_step(control->net,
                                        sumi_frame_limits_piece_us(&engine->frame, engine->desc.max_slice_us),
                                        &control->is_open, &slot->live.progress, error));
    if (!control->is_open) return SUMI_OK;
    const sumi_control_net_info* info = sumi_control_net_get_info(control->net);
    char text[256];
    snprintf(text, sizeof text, "opened a control net, %s: %.1f MB of weights", info->kind,
             (double)info->weight_bytes * 1e-6);
    sumi_log_write(engine, SUMI_LOG_INFO, SUMI_OK, text);
    turn->end = SUMI_TURN_DONE;
    return SUMI_OK;
}

sumi_control_info sumi_control_get_info(const sumi_control* control)
{
    if (control == NULL || sumi_call_is_foreign(control->engine) || !control->is_open) return (sumi_control_info){0};
    const sumi_control_net_info* info = sumi_control_net_get_info(control->net);
    return (sumi_control_info){.kind = info->kind,
                               .strength = info->usual_strength,
                               .takes_picture = info->planes != SUMI_PLANES_MASKED_MASK,
                               .takes_inpainting = info->planes != SUMI_PLANES_PICTURE,
                               .weight_bytes = info->weight_bytes};
}

sumi_depth sumi_depth_defaults(void) { return (sumi_depth){.kind = SUMI_DEPTH_STANDARD, .format = SUMI_DEPTH_F32}; }

sumi_control_use sumi_control_use_defaults(const sumi_control* control)
{
    const sumi_control_info info = sumi_control_get_info(control);
    return (sumi_control_use){.control = control, .strength = info.strength, .end = 1.0f};
}

// ---- Uses of a job --------------------------------------------------------------------------------------------------

#define MAX_STRENGTH 100.0f

static bool is_between(float value, float low, float high) { return value >= low && value <= high; } // false for NaN

static sumi_result check_pixels(const sumi_pixels* pixels, const char* name, sumi_error* error)
{
    if (pixels == NULL) return SUMI_OK;
    const sumi_pixels complete = sumi_pixels_with_row_bytes(pixels);
    return sumi_pixels_check(&complete, name, error);
}

// With the size of its external.
static sumi_depth with_size(const sumi_depth* depth)
{
    sumi_depth result = *depth;
    if (depth->external == NULL) return result;
    result.width = depth->external->import.width;
    result.height = depth->external->import.height;
    return result;
}

// A picture of the use, which is called `name` in messages.
static sumi_result check_picture(const sumi_control_use* use, int32_t index, const char* name, sumi_error* error)
{
    const sumi_control_info info = sumi_control_get_info(use->control);
    const sumi_control_picture* picture = &use->pictures[index];
    const bool has_inpaint = picture->inpaint != NULL, has_mask = picture->mask != NULL,
               has_depth = picture->depth != NULL, has_picture = picture->picture != NULL || has_depth;
    char member[96];
    SUMI_REFUSE(has_picture && !info.takes_picture, SUMI_INVALID_ARGUMENT,
                "%s.%s: a net of this kind (%s) reads no control picture; give inpaint and mask", name,
                has_depth ? "depth" : "picture", info.kind);
    SUMI_REFUSE(picture->picture != NULL && has_depth, SUMI_INVALID_ARGUMENT,
                "%s has picture and depth: give one of them; a net reads one control picture", name);
    SUMI_REFUSE((has_inpaint || has_mask) && !info.takes_inpainting, SUMI_INVALID_ARGUMENT,
                "%s.%s: a net of this kind (%s) does not inpaint; give only picture", name,
                has_inpaint ? "inpaint" : "mask", info.kind);
    SUMI_REFUSE(has_inpaint != has_mask, SUMI_INVALID_ARGUMENT, "%s has %s but no %s: give both, or neither", name,
                has_inpaint ? "inpaint" : "mask", has_inpaint ? "mask" : "inpaint");
    SUMI_REFUSE(!has_picture && !has_mask, SUMI_INVALID_ARGUMENT, "%s is empty: give %s", name,
                info.takes_picture ? "picture, the control picture, or depth" : "inpaint and mask");
    snprintf(member, sizeof member, "%s.depth", name);
    if (has_depth && picture->depth->external != NULL)
        SUMI_TRY(sumi_external_check_depth(use->control->engine, picture->depth, member, error));
    if (has_depth) {
        const sumi_depth depth = with_size(picture->depth);
        SUMI_TRY(sumi_depth_check(&depth, member, error));
    }
    snprintf(member, sizeof member, "%s.picture", name);
    SUMI_TRY(check_pixels(picture->picture, member, error));
    snprintf(member, sizeof member, "%s.inpaint", name);
    SUMI_TRY(check_pixels(picture->inpaint, member, error));
    snprintf(member, sizeof member, "%s.mask", name);
    return check_pixels(picture->mask, member, error);
}

static bool has_picture(const sumi_control_picture* picture)
{
    return picture->picture != NULL || picture->depth != NULL;
}

static sumi_result check_use(const sumi_image_desc* desc, int32_t index, sumi_error* error)
{
    const sumi_control_use* use = &desc->controls[index];
    SUMI_REFUSE(use->control == NULL, SUMI_INVALID_ARGUMENT, "controls[%d].control is NULL", (int)index);
    SUMI_REFUSE(use->control->model == NULL, SUMI_INVALID_ARGUMENT,
                "controls[%d].control: its model was closed; release it and read the net for this model", (int)index);
    SUMI_REFUSE(use->control->model != desc->model, SUMI_INVALID_ARGUMENT,
                "controls[%d].control was read for another model", (int)index);
    SUMI_REFUSE(!is_between(use->strength, -MAX_STRENGTH, MAX_STRENGTH), SUMI_INVALID_ARGUMENT,
                "controls[%d].strength is %g: give %g to %g; 1 and a little less are usual", (int)index,
                (double)use->strength, (double)-MAX_STRENGTH, (double)MAX_STRENGTH);
    SUMI_REFUSE(!is_between(use->start, 0.0f, 1.0f), SUMI_INVALID_ARGUMENT, "controls[%d].start is %g: give 0 to 1",
                (int)index, (double)use->start);
    SUMI_REFUSE(!is_between(use->end, use->start, 1.0f), SUMI_INVALID_ARGUMENT,
                "controls[%d].end is %g: give a number from start, %g, to 1", (int)index, (double)use->end,
                (double)use->start);
    SUMI_REFUSE(use->pictures == NULL, SUMI_INVALID_ARGUMENT,
                "controls[%d].pictures is NULL: give the picture that images follow", (int)index);
    SUMI_REFUSE(use->picture_count != 1 && use->picture_count != desc->item_count, SUMI_INVALID_ARGUMENT,
                "controls[%d].picture_count is %d: give 1, for all images, or item_count, %d", (int)index,
                (int)use->picture_count, (int)desc->item_count);
    for (int32_t p = 0; p < use->picture_count; p++) {
        char name[64];
        snprintf(name, sizeof name, "controls[%d].pictures[%d]", (int)index, (int)p);
        SUMI_TRY(check_picture(use, p, name, error));
        // A plan has the same inputs for all images of a batch.
        SUMI_REFUSE(has_picture(&use->pictures[p]) != has_picture(&use->pictures[0])
                        || (use->pictures[p].mask != NULL) != (use->pictures[0].mask != NULL),
                    SUMI_INVALID_ARGUMENT, "%s has other members than controls[%d].pictures[0]: give all the same",
                    name, (int)index);
    }
    return SUMI_OK;
}

// The n-th depth buffer of the desc that has an external; NULL: there is none.
static const sumi_depth* external_depth(const sumi_image_desc* desc, int32_t n)
{
    for (int32_t i = 0; i < desc->control_count; i++) {
        for (int32_t p = 0; p < desc->controls[i].picture_count; p++) {
            const sumi_depth* depth = desc->controls[i].pictures[p].depth;
            if (depth != NULL && depth->external != NULL && n-- == 0) return depth;
        }
    }
    return NULL;
}

// A copy into an external's memory replaces the one before it.
static sumi_result check_places(const sumi_image_desc* desc, sumi_error* error)
{
    for (int32_t n = 1; external_depth(desc, n) != NULL; n++) {
        for (int32_t k = 0; k < n; k++)
            SUMI_REFUSE(external_depth(desc, n)->external == external_depth(desc, k)->external, SUMI_INVALID_ARGUMENT,
                        "controls: an external is the depth of two pictures; import its texture twice");
    }
    return SUMI_OK;
}

sumi_result sumi_controls_read_externals(sumi_engine* engine, const sumi_image_desc* desc, sumi_error* error)
{
    for (int32_t n = 0; external_depth(desc, n) != NULL; n++)
        SUMI_TRY(sumi_external_read_depth(engine, external_depth(desc, n), error));
    return SUMI_OK;
}

sumi_result sumi_controls_check(const sumi_image_desc* desc, sumi_error* error)
{
    SUMI_REFUSE(desc->control_count < 0 || desc->control_count > SUMI_MAX_CONTROLS, SUMI_INVALID_ARGUMENT,
                "control_count is %d: give 0 to %d", (int)desc->control_count, SUMI_MAX_CONTROLS);
    SUMI_REFUSE(desc->control_count > 0 && desc->controls == NULL, SUMI_INVALID_ARGUMENT,
                "controls is NULL, but control_count is %d", (int)desc->control_count);
    SUMI_REFUSE(desc->control_count > 0 && !desc->model->info.has_vae_encoder, SUMI_NOT_SUPPORTED,
                "controls: the model was opened without a VAE encoder, which control pictures need; open it with "
                "vae_path");
    for (int32_t i = 0; i < desc->control_count; i++) SUMI_TRY(check_use(desc, i, error));
    return check_places(desc, error);
}

static sumi_pixels copy_picture(sumi_packer* packer, const sumi_pixels* pixels)
{
    return pixels != NULL ? sumi_pixels_copy(packer, pixels) : (sumi_pixels){0};
}

// Tightly packed, from the top.
static sumi_depth copy_depth(sumi_packer* packer, const sumi_depth* depth)
{
    if (depth == NULL) return (sumi_depth){0};
    sumi_depth copy = with_size(depth);
    if (depth->external != NULL) return copy;
    const size_t from_row_bytes = (size_t)sumi_depth_row_bytes(depth),
                 row_bytes = (size_t)depth->width * (size_t)sumi_depth_element_bytes(depth->format);
    char* to = sumi_pack(packer, NULL, row_bytes * (uint64_t)depth->height);
    for (int32_t y = 0; to != NULL && y < depth->height; y++) {
        const int32_t from = depth->bottom_up ? depth->height - 1 - y : y;
        memcpy(to + (size_t)y * row_bytes, (const char*)depth->data + (size_t)from * from_row_bytes, row_bytes);
    }
    copy.data = to;
    copy.row_bytes = 0;
    copy.bottom_up = false;
    return copy;
}

void sumi_controls_copy(sumi_packer* packer, const sumi_image_desc* desc, sumi_job_request* request)
{
    request->control_count = 0;
    request->given_control_count = desc->control_count;
    for (int32_t i = 0; i < desc->control_count; i++) {
        const sumi_control_use* use = &desc->controls[i];
        if (use->strength == 0.0f) continue;
        sumi_job_control* to = &request->controls[request->control_count++];
        sumi_job_control_input* pictures = sumi_pack(packer, NULL, (uint64_t)use->picture_count * sizeof *pictures);
        *to = (sumi_job_control){.control = use->control,
                                 .pictures = pictures,
                                 .picture_count = use->picture_count,
                                 .index = i,
                                 .strength = use->strength,
                                 .start = use->start,
                                 .end = use->end};
        for (int32_t p = 0; p < use->picture_count; p++) {
            const sumi_control_picture* from = &use->pictures[p];
            const sumi_job_control_input copy = {.picture = copy_picture(packer, from->picture),
                                                 .inpaint = copy_picture(packer, from->inpaint),
                                                 .mask = copy_picture(packer, from->mask),
                                                 .depth = copy_depth(packer, from->depth)};
            if (pictures != NULL) pictures[p] = copy;
        }
    }
}

// ---- The picture that a net saw -------------------------------------------------------------------------------------

// The bytes of a control picture of a finished job.
static sumi_result find_picture(const sumi_plan_job* job, const sumi_control_view* view, const void** out_rgb,
                                sumi_error* error)
{
    const sumi_job_request* request = &job->request;
    const uint64_t bytes = 3 * (uint64_t)request->width * (uint64_t)request->height;
    SUMI_REFUSE(view->control < 0 || view->control >= request->given_control_count, SUMI_INVALID_ARGUMENT,
                "sumi_job_control_picture: control is %d of %d", (int)view->control, (int)request->given_control_count);
    SUMI_REFUSE(view->item < 0 || view->item >= request->item_count, SUMI_INVALID_ARGUMENT,
                "sumi_job_control_picture: item is %d of %d", (int)view->item, (int)request->item_count);
    SUMI_REFUSE(view->into == NULL || view->capacity < bytes, SUMI_INVALID_ARGUMENT,
                "sumi_job_control_picture: capacity is %zu bytes, the picture takes %llu",
                view->into != NULL ? view->capacity : 0, (unsigned long long)bytes);
    int32_t c = 0;
    while (c < request->control_count && request->controls[c].index != view->control) c++;
    SUMI_REFUSE(c == request->control_count, SUMI_WRONG_STATE,
                "sumi_job_control_picture: controls[%d] had strength 0, so it saw no picture", (int)view->control);
    bool runs = false;
    for (int32_t k = 0; k < job->progress.plan_control_count; k++) runs = runs || job->progress.plan_controls[k] == c;
    SUMI_REFUSE(
        !runs, SUMI_WRONG_STATE,
        "sumi_job_control_picture: controls[%d] saw no picture, because no step lies in its range, start to end",
        (int)view->control);
    SUMI_REFUSE(job->products.control_pictures[c] == NULL, SUMI_WRONG_STATE,
                "sumi_job_control_picture: controls[%d] had no control picture, only inpaint and mask",
                (int)view->control);
    const int32_t picture = request->controls[c].picture_count == 1 ? 0 : view->item;
    const sumi_job_control_input* input = &request->controls[c].pictures[picture];
    SUMI_REFUSE(!sumi_job_control_has_picture(input), SUMI_WRONG_STATE,
                "sumi_job_control_picture: the external with the depth of controls[%d] was released",
                (int)view->control);
    if (input->depth.external != NULL) {
        *out_rgb = (const void*)(uintptr_t)input->depth.external->import.staging;
        return SUMI_OK;
    }
    *out_rgb = job->products.control_pictures[c] + (uint64_t)picture * bytes;
    return SUMI_OK;
}

static sumi_result copy_seen_picture(sumi_engine* engine, sumi_job handle, const sumi_control_view* view,
                                     sumi_error* error)
{
    sumi_job_slot* slot;
    const void* rgb = NULL;
    SUMI_REFUSE(view == NULL, SUMI_INVALID_ARGUMENT, "sumi_job_control_picture: view is NULL");
    SUMI_TRY(sumi_job_finished(engine, handle, SUMI_JOB_KIND_IMAGES, &slot, error));
    if (slot->error.result != SUMI_OK) return slot->error.result;
    const sumi_plan_job* job = &slot->u.plan_job;
    SUMI_TRY(find_picture(job, view, &rgb, error));
    memcpy(view->into, rgb, 3 * (size_t)job->request.width * (size_t)job->request.height);
    return SUMI_OK;
}

sumi_result sumi_job_control_picture(const sumi_engine* engine, sumi_job job, const sumi_control_view* view)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_job_control_picture"));
    sumi_error error = {0};
    const sumi_result result = copy_seen_picture((sumi_engine*)engine, job, view, &error);
    return sumi_call_end(engine, result, &error);
}
