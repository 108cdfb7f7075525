// Encoding jobs: a picture becomes latents. The public functions submit and fetch; job_phases.h runs the job.
#include "engine/buffers.h"
#include "engine/calls.h"
#include "engine/desc_checks.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "engine/job_phases.h"
#include "engine/plan_job.h"
#include "engine/submission.h"
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

static void pack_encoding(sumi_packer* packer, const sumi_encode_desc* desc, sumi_plan_job* job)
{
    const uint64_t latent_bytes =
        (uint64_t)job->latent_channels * (uint64_t)job->latent_height * (uint64_t)job->latent_width * sizeof(float);
    job->items = sumi_pack(packer, NULL, sizeof *job->items);
    job->start_image = sumi_pixels_copy(packer, desc->image);
    if (desc->noise_values != NULL) job->start_noise = sumi_pack(packer, desc->noise_values, latent_bytes);
}

static sumi_result copy_encode_desc(sumi_engine* engine, const void* source, sumi_job_slot* slot, sumi_error* error)
{
    const sumi_encode_desc* desc = source;
    sumi_plan_job* job = &slot->u.plan;
    const sumi_network_info* info = &desc->model->info;
    job->goal = SUMI_GOAL_ENCODE;
    job->width = desc->width;
    job->height = desc->height;
    job->latent_channels = info->latent_channels;
    job->latent_height = desc->height / info->vae_factor;
    job->latent_width = desc->width / info->vae_factor;
    job->posterior = desc->posterior;
    job->noise = SUMI_NOISE_TORCH_CPU;
    sumi_packer packer = {NULL, 0};
    pack_encoding(&packer, desc, job);
    SUMI_TRY(sumi_block_reserve(&engine->heap, &slot->input, packer.used, "an image to encode", error));
    packer = (sumi_packer){slot->input.data, 0};
    pack_encoding(&packer, desc, job);
    job->items[0] = (sumi_job_item){.positive = -1, .negative = -1, .seed = desc->seed};
    job->item_count = 1;
    return SUMI_OK;
}

static sumi_result submit_encode(sumi_engine* engine, const void* public_desc, sumi_job* out_job, sumi_error* error)
{
    const sumi_encode_desc* desc = public_desc;
    SUMI_TRY(check_encode_desc(engine, desc, error));
    const sumi_submission submission = {.kind = SUMI_JOB_KIND_ENCODE,
                                        .functions = &s_functions,
                                        .model = desc->model,
                                        .copy = copy_encode_desc,
                                        .source = desc,
                                        .priority = desc->priority,
                                        .user_data = desc->user_data};
    return sumi_job_submit(engine, &submission, out_job, error);
}

sumi_result sumi_submit_encode(sumi_engine* engine, const sumi_encode_desc* desc, sumi_job* out_job)
{
    return sumi_call_submit(engine, "sumi_submit_encode", submit_encode, desc, out_job);
}

static sumi_result fetch_latents(sumi_engine* engine, sumi_job job, float* into, size_t capacity, sumi_error* error)
{
    sumi_job_slot* slot;
    SUMI_TRY(sumi_job_finished(engine, job, SUMI_JOB_KIND_ENCODE, &slot, error));
    const sumi_result result = slot->error.result;
    if (result == SUMI_OK) {
        const sumi_plan_job* plan = &slot->u.plan;
        const size_t count = (size_t)plan->latent_channels * (size_t)plan->latent_height * (size_t)plan->latent_width;
        SUMI_REFUSE(into == NULL || capacity < count, SUMI_INVALID_ARGUMENT,
                    "sumi_fetch_latents: capacity is %zu floats, the latents take %zu", into != NULL ? capacity : 0,
                    count);
        memcpy(into, plan->latents, count * sizeof *into);
    }
    sumi_job_free(engine, slot);
    return result;
}

sumi_result sumi_fetch_latents(sumi_engine* engine, sumi_job job, float* into, size_t capacity)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_fetch_latents"));
    sumi_error error = {0};
    const sumi_result result = fetch_latents(engine, job, into, capacity, &error);
    return sumi_call_end(engine, result, &error);
}
