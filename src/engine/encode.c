// Encoding jobs: a picture becomes latents. The public functions submit and fetch; job_phases.h runs the job.
#include "base/result.h"
#include "engine/calls.h"
#include "engine/desc_checks.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_phases.h"
#include "jobs/objects.h"
#include "jobs/plan_job.h"
#include "models/network.h"
#include "models/pipeline.h"
#include "pictures/pixels.h"
#include <string.h>

static const sumi_job_functions s_functions = {"an encoding job",  sumi_plan_job_predict, sumi_plan_job_advance,
                                               sumi_plan_job_stop, sumi_plan_job_drop,    NULL};

static sumi_result check_encode_desc(const sumi_engine* engine, const sumi_encode_desc* desc, sumi_error* error)
{
    SUMI_TRY(sumi_check_cookie(desc->cookie, SUMI_COOKIE_ENCODE, "sumi_encode_desc", "sumi_encode_defaults", error));
    SUMI_TRY(sumi_check_model(engine, desc->model, error));
    if (!desc->model->info.has_vae_encoder)
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "model: it was opened without a VAE encoder");
    if (desc->image == NULL) return sumi_fail(error, SUMI_INVALID_ARGUMENT, "image is NULL: give the image to encode");
    sumi_pixels image = sumi_pixels_with_row_bytes(desc->image);
    SUMI_TRY(sumi_pixels_check(&image, "image", error));
    SUMI_TRY(sumi_check_size(desc->model, desc->width, desc->height, error));
    const int posterior = (int)desc->posterior;
    if (posterior < 0 || posterior > SUMI_POSTERIOR_MODE)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "posterior is %d: no such kind", posterior);
    const sumi_network_info* info = &desc->model->info;
    const uint64_t count = (uint64_t)info->latent_channels * (uint64_t)(desc->height / info->vae_factor)
                         * (uint64_t)(desc->width / info->vae_factor);
    return sumi_check_finite(desc->noise_values, count, "noise_values", error);
}

static void pack_encoding(sumi_packer* packer, const sumi_encode_desc* desc, sumi_job_request* request)
{
    const uint64_t latent_bytes = (uint64_t)request->latent_channels * (uint64_t)request->latent_height
                                * (uint64_t)request->latent_width * sizeof(float);
    request->items = sumi_pack(packer, NULL, sizeof *request->items);
    request->start_image = sumi_pixels_copy(packer, desc->image);
    if (desc->noise_values != NULL) request->start_noise = sumi_pack(packer, desc->noise_values, latent_bytes);
}

static sumi_result fill_encoding(sumi_engine* engine, const sumi_encode_desc* desc, sumi_job_slot* slot,
                                 sumi_error* error)
{
    sumi_job_request* request = &slot->u.plan_job.request;
    const sumi_network_info* info = &desc->model->info;
    request->goal = SUMI_GOAL_ENCODE;
    request->width = desc->width;
    request->height = desc->height;
    request->latent_channels = info->latent_channels;
    request->picture_channels = info->picture_channels;
    request->latent_height = desc->height / info->vae_factor;
    request->latent_width = desc->width / info->vae_factor;
    request->posterior = desc->posterior;
    request->noise = SUMI_NOISE_TORCH_CPU;
    sumi_packer packer = {NULL, 0};
    pack_encoding(&packer, desc, request);
    SUMI_TRY(sumi_block_reserve(&engine->heap, &slot->input, packer.used, "an image to encode", error));
    packer = (sumi_packer){slot->input.data, 0};
    pack_encoding(&packer, desc, request);
    request->items[0] = (sumi_job_item){.positive = -1, .negative = -1, .seed = desc->seed, .noise_seed = desc->seed};
    request->item_count = 1;
    return SUMI_OK;
}

static sumi_result submit_encode(sumi_engine* engine, const sumi_encode_desc* desc, sumi_job* out_job,
                                 sumi_error* error)
{
    SUMI_TRY(check_encode_desc(engine, desc, error));
    sumi_job_slot* slot;
    SUMI_TRY(sumi_job_reserve(engine, SUMI_JOB_KIND_ENCODE, &s_functions, &slot, error));
    const sumi_result result = fill_encoding(engine, desc, slot, error);
    if (result != SUMI_OK) {
        sumi_job_free(engine, slot);
        return result;
    }
    slot->model = desc->model;
    sumi_job_queue(engine, slot, desc->priority, desc->user_data, out_job);
    return SUMI_OK;
}

sumi_result sumi_submit_encode(sumi_engine* engine, const sumi_encode_desc* desc, sumi_job* out_job)
{
    SUMI_TRY(sumi_call_begin_submit(engine, "sumi_submit_encode", desc, out_job));
    sumi_error error = {0};
    const sumi_result result = submit_encode(engine, desc, out_job, &error);
    return sumi_call_end(engine, result, &error);
}

static sumi_result fetch_latents(sumi_engine* engine, sumi_job handle, float* into, size_t capacity, sumi_error* error)
{
    sumi_job_slot* slot;
    SUMI_TRY(sumi_job_finished(engine, handle, SUMI_JOB_KIND_ENCODE, &slot, error));
    const sumi_result result = slot->error.result;
    if (result == SUMI_OK) {
        const sumi_plan_job* job = &slot->u.plan_job;
        const size_t count = (size_t)job->request.latent_channels * (size_t)job->request.latent_height
                           * (size_t)job->request.latent_width;
        SUMI_REFUSE(into == NULL || capacity < count, SUMI_INVALID_ARGUMENT,
                    "sumi_fetch_latents: capacity is %zu floats, the latents take %zu", into != NULL ? capacity : 0,
                    count);
        memcpy(into, job->products.latents, count * sizeof *into);
    }
    sumi_job_free(engine, slot);
    return result;
}

sumi_result sumi_fetch_latents(sumi_engine* engine, sumi_job handle, float* into, size_t capacity)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_fetch_latents"));
    sumi_error error = {0};
    const sumi_result result = fetch_latents(engine, handle, into, capacity, &error);
    return sumi_call_end(engine, result, &error);
}
