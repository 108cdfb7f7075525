// The public functions of image jobs: memory query, submit, fetch, previews, latents, profile. They run on the thread
// of the host program; job_phases.h is what the job does in between.
#include "base/assert.h"
#include "base/memory.h"
#include "base/pixel_formats.h"
#include "base/platform.h"
#include "base/result.h"
#include "engine/calls.h"
#include "engine/controls.h"
#include "engine/externals.h"
#include "engine/image_desc.h"
#include "interop/interop.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_inputs.h"
#include "jobs/job_outputs.h"
#include "jobs/job_phases.h"
#include "jobs/job_pictures.h"
#include "jobs/job_request.h"
#include "jobs/objects.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "jobs/plan_key.h"
#include "models/network.h"
#include "pictures/pixels.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include <stdatomic.h>
#include <string.h>

static const sumi_job_functions s_functions = {"an image job",     sumi_plan_job_predict, sumi_plan_job_advance,
                                               sumi_plan_job_stop, sumi_plan_job_drop,    NULL};

// ---- Before the job -------------------------------------------------------------------------------------------------

// The objects of one call of sumi_image_memory. The call owns them and does not hold the pump lock.
typedef struct memory_query {
    sumi_heap heap; // a heap of its own, so that its bytes are counted separately from those of jobs that run meanwhile
    sumi_block lists, input;
    sumi_workspace workspace;
    sumi_plan_job job;
    sumi_plan_entry entry;
} memory_query;

static void* allocate_for_query(size_t bytes, size_t alignment, void* user_data)
{
    SUMI_ASSERT(alignment <= SUMI_ALIGNMENT);
    (void)alignment;
    return sumi_alloc(user_data, bytes);
}

static void release_of_query(void* memory, size_t bytes, void* user_data)
{
    (void)bytes;
    sumi_free(user_data, memory);
}

// Does what a job does up to its plan, on the query's own objects, and reads the sizes from the plan.
static sumi_result query_memory(sumi_engine* engine, const sumi_image_desc* desc, memory_query* query, sumi_memory* out,
                                sumi_error* error)
{
    sumi_heap* heap = &query->heap;
    sumi_plan_job* job = &query->job;
    SUMI_TRY(sumi_image_desc_copy(heap, desc, &query->lists, &query->input, &job->request, error));
    const sumi_planning planning = {.workspace = &query->workspace, .model = desc->model, .job = job};
    for (int32_t i = 0; i < job->request.prompt_count; i++) {
        bool is_done;
        SUMI_TRY(sumi_plan_job_tokenise(&planning, i, UINT64_MAX, &is_done, error));
        SUMI_ASSERT(is_done);
    }
    sumi_plan_request request;
    SUMI_TRY(sumi_plan_job_request(&planning, job->request.step_count, &request, error));
    const uint64_t held_bytes_before = atomic_load(&heap->allocated_bytes);
    SUMI_TRY(sumi_plan_entry_write_for_query(engine, heap, &request, &query->entry, error));
    out->host = atomic_load(&heap->allocated_bytes) - held_bytes_before + query->lists.bytes + query->input.bytes
              + query->workspace.tables.bytes + query->workspace.ids.bytes + sumi_plan_job_input_bytes(job)
              + sumi_references_resize_bytes(&job->request.references, job->request.picture_channels);
    out->weights = desc->model->info.weight_bytes;
    out->arena = query->entry.plan.arena_bytes;
    out->staging = query->entry.scratch_bytes;
    if (engine->runner->traits.has_memory) {
        const sumi_device_need* need = &query->entry.need;
        out->weights = need->weight_bytes;
        out->arena = need->device_bytes - need->weight_bytes;
        SUMI_ASSERT(need->device_bytes >= need->weight_bytes);
        out->staging = need->pinned_bytes;
        out->streamed = need->streamed_bytes;
        sumi_device_properties properties;
        engine->runner->functions->properties(engine->runner, &properties);
        out->uncounted = properties.uncounted_bytes;
    }
    out->images = sumi_plan_job_image_bytes(job);
    out->tiles_vae = query->entry.tile_latent > 0;
    return SUMI_OK;
}

static sumi_result image_memory(sumi_engine* engine, const sumi_image_desc* desc, sumi_memory* out, sumi_error* error)
{
    sumi_image_desc resolved_desc;
    SUMI_TRY(sumi_image_desc_check(engine, desc, &resolved_desc, error));
    memory_query* query = sumi_alloc_zero(&engine->heap, sizeof *query);
    if (query == NULL) return sumi_out_of_memory(error, sizeof *query, "the memory query");
    sumi_heap_init(&query->heap, &(sumi_allocator){allocate_for_query, release_of_query, &engine->heap});
    query->workspace.heap = &query->heap;
    sumi_result result = query_memory(engine, &resolved_desc, query, out, error);
    // If no form of the plan fits the memory limit, this is what the smallest form needs.
    const uint64_t needed = query->entry.need.device_bytes;
    sumi_plan_job_free_prompts(&query->job);
    sumi_plan_entry_close(&query->heap, &query->entry);
    sumi_workspace_close(&query->workspace);
    sumi_block_free(&query->heap, &query->lists);
    sumi_block_free(&query->heap, &query->input);
    sumi_free(&engine->heap, query);
    if (result != SUMI_OK) memset(out, 0, sizeof *out);
    const bool is_known = result == SUMI_OK || result == SUMI_BUDGET_TOO_SMALL || result == SUMI_OUT_OF_DEVICE_MEMORY;
    if (is_known) out->needed = needed;
    return result;
}

sumi_result sumi_image_memory(sumi_engine* engine, const sumi_image_desc* desc, sumi_memory* out_memory)
{
    if (out_memory != NULL) memset(out_memory, 0, sizeof *out_memory);
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_image_memory"));
    sumi_error error = {0};
    sumi_result result;
    if (desc == NULL || out_memory == NULL)
        result = sumi_fail(&error, SUMI_INVALID_ARGUMENT, "sumi_image_memory: desc or out_memory is NULL");
    else result = image_memory(engine, desc, out_memory, &error);
    return sumi_call_end(engine, result, &error);
}

sumi_result sumi_image_size(const sumi_image_desc* desc, sumi_size* out_size)
{
    if (out_size != NULL) *out_size = (sumi_size){0, 0};
    if (desc == NULL || desc->cookie != SUMI_COOKIE_IMAGE || desc->model == NULL)
        return desc != NULL && desc->cookie != SUMI_COOKIE_IMAGE ? SUMI_DESC_NOT_INITIALIZED : SUMI_INVALID_ARGUMENT;
    const sumi_engine* engine = desc->model->engine;
    SUMI_TRY(sumi_call_begin(engine, "sumi_image_size"));
    sumi_error error = {0};
    sumi_image_desc resolved_desc;
    sumi_result result;
    if (out_size == NULL) result = sumi_fail(&error, SUMI_INVALID_ARGUMENT, "sumi_image_size: out_size is NULL");
    else result = sumi_image_desc_check(engine, desc, &resolved_desc, &error);
    if (result == SUMI_OK) *out_size = (sumi_size){resolved_desc.width, resolved_desc.height};
    return sumi_call_end(engine, result, &error);
}

static sumi_result fill_images(sumi_engine* engine, const sumi_image_desc* desc, sumi_job_slot* slot, sumi_error* error)
{
    SUMI_TRY(sumi_image_desc_copy(&engine->heap, desc, &slot->lists, &slot->input, &slot->u.plan_job.request, error));
    sumi_plan_job* job = &slot->u.plan_job;
    sumi_plan_job_mark_externals(job, true);
    // A host's progress bar wants the number while the job still waits. A deadline that the job cannot keep lowers it.
    slot->status.step_count = slot->live.step_count =
        job->request.step_count - sumi_plan_job_first_step(job, job->request.step_count);
    sumi_image_desc_log_unused(engine, desc);
    return SUMI_OK;
}

static sumi_result submit_images(sumi_engine* engine, const sumi_image_desc* public_desc, sumi_job* out_job,
                                 sumi_error* error)
{
    sumi_image_desc desc;
    SUMI_TRY(sumi_image_desc_check(engine, public_desc, &desc, error));
    sumi_job_slot* slot;
    SUMI_TRY(sumi_job_reserve(engine, SUMI_JOB_KIND_IMAGES, &s_functions, &slot, error));
    sumi_result result = fill_images(engine, &desc, slot, error);
    if (result == SUMI_OK)
        result = sumi_controls_read_externals(engine, &desc, error); // last, because it shows outside
    if (result != SUMI_OK) {
        sumi_job_free(engine, slot);
        return result;
    }
    slot->model = desc.model;
    sumi_job_queue(engine, slot, desc.priority, desc.user_data, out_job);
    return SUMI_OK;
}

sumi_result sumi_submit_images(sumi_engine* engine, const sumi_image_desc* desc, sumi_job* out_job)
{
    SUMI_TRY(sumi_call_begin_submit(engine, "sumi_submit_images", desc, out_job));
    sumi_error error = {0};
    const sumi_result result = submit_images(engine, desc, out_job, &error);
    return sumi_call_end(engine, result, &error);
}

// ---- While the job runs ---------------------------------------------------------------------------------------------

// The job that has a preview of this item. The caller holds state_lock.
static sumi_result find_preview(const sumi_engine* engine, sumi_job handle, int32_t item,
                                const sumi_job_slot** out_slot)
{
    const sumi_job_slot* slot = *out_slot = sumi_job_find(engine, handle);
    if (slot == NULL) return SUMI_STALE_HANDLE;
    if (slot->kind != SUMI_JOB_KIND_IMAGES || slot->status.preview_version == 0) return SUMI_WRONG_STATE;
    return item < 0 || item >= slot->u.plan_job.request.item_count ? SUMI_INVALID_ARGUMENT : SUMI_OK;
}

static sumi_size preview_size(const sumi_plan_job* job)
{
    return (sumi_size){job->request.width / SUMI_PREVIEW_FACTOR, job->request.height / SUMI_PREVIEW_FACTOR};
}

sumi_result sumi_job_preview(const sumi_engine* engine, sumi_job handle, int32_t item, void* into, size_t capacity,
                             sumi_image* out_image)
{
    if (out_image != NULL) memset(out_image, 0, sizeof *out_image);
    if (engine == NULL || into == NULL || out_image == NULL) return SUMI_INVALID_ARGUMENT;
    if (sumi_call_is_foreign(engine)) return SUMI_WRONG_STATE;
    sumi_engine* locked = (sumi_engine*)engine;
    sumi_mutex_lock(&locked->state_lock);
    const sumi_job_slot* slot;
    sumi_result result = find_preview(engine, handle, item, &slot);
    if (result == SUMI_OK) {
        const sumi_plan_job* job = &slot->u.plan_job;
        const sumi_size size = preview_size(job);
        const size_t bytes = (size_t)size.width * (size_t)size.height * 4;
        if (capacity < bytes) {
            result = SUMI_INVALID_ARGUMENT;
        } else {
            memcpy(into, job->products.previews[job->products.preview_front] + (size_t)item * bytes, bytes);
            *out_image = (sumi_image){.pixels = into,
                                      .width = size.width,
                                      .height = size.height,
                                      .row_bytes = size.width * 4,
                                      .format = SUMI_FORMAT_RGBA8,
                                      .seed = job->request.items[item].seed,
                                      .step_count = slot->status.step};
        }
    }
    sumi_mutex_unlock(&locked->state_lock);
    return result;
}

// Converts a preview to the external's format, rows from the top or from the bottom, without gaps.
static void write_preview(const unsigned char* rgba, const sumi_target* target, unsigned char* into)
{
    const sumi_external* external = target->external;
    const size_t width = (size_t)external->import.width, height = (size_t)external->import.height,
                 row_bytes = width * (size_t)sumi_format_bytes(external->import.format);
    for (size_t y = 0; y < height; y++)
        sumi_rgba_to_format(rgba + y * width * 4, width, external->import.format,
                            into + (target->bottom_up ? height - 1 - y : y) * row_bytes);
}

static sumi_result show_preview(sumi_engine* engine, sumi_job handle, int32_t item, const sumi_target* target,
                                sumi_error* error)
{
    SUMI_REFUSE(engine->runner->interop == NULL, SUMI_NOT_SUPPORTED,
                "sumi_job_show_preview: the CPU backend has no externals; call sumi_job_preview");
    SUMI_REFUSE(target == NULL || target->external == NULL, SUMI_INVALID_ARGUMENT,
                "sumi_job_show_preview: target or its external is NULL");
    const sumi_external* external = target->external;
    SUMI_TRY(sumi_external_check(engine, target, "target", (sumi_size){external->import.width, external->import.height},
                                 error));
    SUMI_REFUSE(external->import.staging == 0, SUMI_INVALID_ARGUMENT,
                "target.external was imported without takes_previews");
    if (engine->runner->interop->is_copying(engine->runner, &external->import))
        return sumi_fail(error, SUMI_BUSY,
                         "the preview before it was not copied into this external yet: it waits for the host program");
    sumi_mutex_lock(&engine->state_lock);
    sumi_size size = {0, 0};
    const sumi_job_slot* slot;
    sumi_result result = find_preview(engine, handle, item, &slot);
    if (result == SUMI_OK) {
        const sumi_plan_job* job = &slot->u.plan_job;
        size = preview_size(job);
        if (size.width != external->import.width || size.height != external->import.height) {
            result = SUMI_INVALID_ARGUMENT;
        } else {
            const size_t bytes = (size_t)size.width * (size_t)size.height * 4;
            write_preview(job->products.previews[job->products.preview_front] + (size_t)item * bytes, target,
                          (unsigned char*)(uintptr_t)external->import.staging);
        }
    }
    sumi_mutex_unlock(&engine->state_lock);
    SUMI_REFUSE(result == SUMI_STALE_HANDLE, result, "sumi_job_show_preview: there is no such job");
    SUMI_REFUSE(result == SUMI_WRONG_STATE, result, "sumi_job_show_preview: there is no preview yet");
    SUMI_REFUSE(result != SUMI_OK && size.width == 0, result, "sumi_job_show_preview: the job has no item %d",
                (int)item);
    SUMI_REFUSE(result != SUMI_OK, result, "target.external is %d x %d, the preview %d x %d",
                (int)external->import.width, (int)external->import.height, (int)size.width, (int)size.height);
    return sumi_external_copy(engine, target, true, error);
}

sumi_result sumi_job_show_preview(sumi_engine* engine, sumi_job handle, int32_t item, const sumi_target* target)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_job_show_preview"));
    sumi_error error = {0};
    const sumi_result result = show_preview(engine, handle, item, target, &error);
    // Dropping a preview is what a host program expects, no failure for its log.
    return result == SUMI_BUSY ? sumi_call_end(engine, SUMI_OK, NULL), result : sumi_call_end(engine, result, &error);
}

// ---- After the job --------------------------------------------------------------------------------------------------

// Fills the sumi_image of one item, and copies the picture to the target's host memory if the target has one.
static void fill_image(const sumi_plan_job* job, sumi_job_item* item, sumi_image* image)
{
    SUMI_ASSERT(image->pixels == NULL && image->handle == 0);
    const int32_t row = job->request.width * sumi_format_bytes(item->target.format);
    *image =
        (sumi_image){.width = job->request.width,
                     .height = job->request.height,
                     .row_bytes = row,
                     .format = item->target.format,
                     .seed = item->seed,
                     .step_count = item->step_count,
                     .evaluation_count = item->evaluation_count,
                     .reused_count = item->reused_count,
                     .predicted_db = item->predicted_db,
                     .has_alpha = job->request.picture_channels == 4 && sumi_format_has_alpha(item->target.format)};
    if (item->target.row_bytes != 0) image->row_bytes = item->target.row_bytes;
    if (item->target.device_address != 0) return;
    if (item->target.host_memory == NULL) {
        image->pixels = item->pixels;
        image->handle = item->picture->handle;
        item->picture = NULL; // the host program owns the picture from here on
        return;
    }
    unsigned char* to = item->target.host_memory;
    for (int32_t y = 0; y < job->request.height; y++)
        memcpy(to + (size_t)y * (size_t)image->row_bytes, item->pixels + (size_t)y * (size_t)row, (size_t)row);
    image->pixels = to;
}

static sumi_result fetch_images(sumi_engine* engine, sumi_job handle, sumi_image* out_images, int32_t capacity,
                                sumi_error* error)
{
    sumi_job_slot* slot;
    SUMI_TRY(sumi_job_finished(engine, handle, SUMI_JOB_KIND_IMAGES, &slot, error));
    sumi_plan_job* job = &slot->u.plan_job;
    sumi_result result = slot->error.result;
    if (result == SUMI_OK) {
        if (out_images == NULL || capacity < job->request.item_count) {
            return sumi_fail(error, SUMI_INVALID_ARGUMENT, "sumi_fetch_images: capacity is %d, the job has %d images",
                             out_images != NULL ? (int)capacity : 0, (int)job->request.item_count);
        }
        // Copies into externals come first, because they can fail: the job is then still complete and can be fetched
        // again.
        for (int32_t i = 0; i < job->request.item_count; i++) {
            sumi_job_item* item = &job->request.items[i];
            if (item->target.external == NULL || item->is_copied) continue;
            SUMI_TRY(sumi_external_copy(engine, &item->target, false, error));
            item->is_copied = true;
        }
        for (int32_t i = 0; i < job->request.item_count; i++) fill_image(job, &job->request.items[i], &out_images[i]);
    }
    sumi_job_free(engine, slot);
    return result;
}

sumi_result sumi_fetch_images(sumi_engine* engine, sumi_job handle, sumi_image* out_images, int32_t capacity)
{
    if (out_images != NULL && capacity > 0) memset(out_images, 0, (size_t)capacity * sizeof *out_images);
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_fetch_images"));
    sumi_error error = {0};
    const sumi_result result = fetch_images(engine, handle, out_images, capacity, &error);
    return sumi_call_end(engine, result, &error);
}

void sumi_images_release(sumi_engine* engine, sumi_image* images, int32_t count)
{
    if (engine == NULL || images == NULL || sumi_call_is_foreign(engine)) return;
    for (int32_t i = 0; i < count; i++) {
        sumi_picture_release(engine, images[i].handle);
        memset(&images[i], 0, sizeof images[i]);
    }
}

static sumi_result check_latents_call(const sumi_plan_job* job, int32_t item, const float* into, size_t capacity,
                                      sumi_error* error)
{
    const size_t count = sumi_plan_job_latent_values(job);
    SUMI_REFUSE(item < 0 || item >= job->request.item_count, SUMI_INVALID_ARGUMENT,
                "sumi_job_latents: item is %d of %d", (int)item, (int)job->request.item_count);
    SUMI_REFUSE(into == NULL || capacity < count, SUMI_INVALID_ARGUMENT,
                "sumi_job_latents: capacity is %zu floats, the latents take %zu", into != NULL ? capacity : 0, count);
    return SUMI_OK;
}

// Copies the latents that a pause has saved (pause.h). *out_is_paused: whether a pause has stopped the job between two
// evaluations; other jobs are left to the caller. Resuming a job is a free call, so `state_lock` is held for the copy:
// the pump takes it before the job runs again and changes the saved state.
static sumi_result paused_latents(sumi_engine* engine, sumi_job handle, int32_t item, float* into, size_t capacity,
                                  bool* out_is_paused, sumi_error* error)
{
    sumi_mutex_lock(&engine->state_lock);
    sumi_result result = SUMI_OK;
    const sumi_job_slot* slot = sumi_job_find(engine, handle);
    const sumi_plan_job* job = slot != NULL ? &slot->u.plan_job : NULL;
    // With a step cache an earlier step may have been saved.
    *out_is_paused = slot != NULL && slot->kind == SUMI_JOB_KIND_IMAGES && slot->status.state == SUMI_JOB_QUEUED
                  && slot->status.paused && job->saved.evaluation > 0 && !sumi_reuse_rule_is_on(&job->request.reuse);
    if (*out_is_paused) {
        const size_t count = sumi_plan_job_latent_values(job);
        const int32_t saved_item = item - job->progress.batch_begin;
        result = check_latents_call(job, item, into, capacity, error);
        if (result == SUMI_OK && (saved_item < 0 || saved_item >= job->progress.batch_count))
            result = sumi_fail(error, SUMI_WRONG_STATE,
                               "sumi_job_latents: item %d is not in the part of the batch that was paused", (int)item);
        if (result == SUMI_OK) // the point x comes first among the solver's values
            memcpy(into, job->saved.state + (size_t)saved_item * count, count * sizeof *into);
    }
    sumi_mutex_unlock(&engine->state_lock);
    return result;
}

static sumi_result job_latents(sumi_engine* engine, sumi_job handle, int32_t item, float* into, size_t capacity,
                               sumi_error* error)
{
    sumi_job_slot* slot;
    bool is_paused;
    const sumi_result result = paused_latents(engine, handle, item, into, capacity, &is_paused, error);
    if (is_paused) return result;
    SUMI_TRY(sumi_job_finished(engine, handle, SUMI_JOB_KIND_IMAGES, &slot, error));
    const sumi_plan_job* job = &slot->u.plan_job;
    const size_t count = sumi_plan_job_latent_values(job);
    if (slot->error.result != SUMI_OK) return slot->error.result;
    SUMI_TRY(check_latents_call(job, item, into, capacity, error));
    memcpy(into, job->products.latents + (size_t)item * count, count * sizeof *into);
    return SUMI_OK;
}

sumi_result sumi_job_latents(const sumi_engine* engine, sumi_job handle, int32_t item, float* into, size_t capacity)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_job_latents"));
    sumi_error error = {0};
    const sumi_result result = job_latents((sumi_engine*)engine, handle, item, into, capacity, &error);
    return sumi_call_end(engine, result, &error);
}

int32_t sumi_job_profile(const sumi_engine* engine, sumi_job handle, sumi_profile_row* rows, int32_t capacity)
{
    if (engine == NULL || sumi_call_begin(engine, "sumi_job_profile") != SUMI_OK) return 0;
    sumi_error error = {0};
    sumi_job_slot* slot;
    const sumi_result result = sumi_job_finished(engine, handle, SUMI_JOB_KIND_IMAGES, &slot, &error);
    (void)sumi_call_end(engine, result, NULL);
    if (result != SUMI_OK) return 0;
    sumi_profile_row* table = slot->profile;
    // An insertion sort: there are a few dozen rows, and the C library's qsort() may allocate.
    for (size_t i = 1; i < slot->profile_count; i++) {
        sumi_profile_row row = table[i];
        size_t position = i;
        for (; position > 0 && table[position - 1].seconds < row.seconds; position--)
            table[position] = table[position - 1];
        table[position] = row;
    }
    int32_t count = (int32_t)slot->profile_count;
    if (rows != NULL && capacity > 0) memcpy(rows, table, (size_t)(count < capacity ? count : capacity) * sizeof *rows);
    return count;
}
