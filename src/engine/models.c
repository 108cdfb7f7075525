// Models: opened by a job in small pieces, closed by one call.
#include "engine/models.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/result.h"
#include "engine/calls.h"
#include "engine/controls.h"
#include "engine/loras.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_memory.h"
#include "jobs/load_kernels.h"
#include "jobs/log.h"
#include "jobs/objects.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_key.h"
#include "jobs/pump.h"
#include "jobs/run.h"
#include "models/network.h"
#include "models/pipeline.h"
#include "pacing/frame_limits.h"
#include "plan/runner.h"
#include "plan/weight.h"
#include "sampling/presets.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

void sumi_model_free(sumi_model* model)
{
    if (model == NULL) return;
    sumi_engine* engine = model->engine;
    if (model->info.family != NULL) {
        int32_t count = 0;
        const sumi_weight* const* weights = sumi_network_weights(model->network, &count);
        sumi_engine_release_weights(engine, weights, (size_t)count);
    }
    atomic_fetch_sub(&engine->memory.weight_bytes, model->info.weight_bytes);
    sumi_network_close(model->network);
    SUMI_OBJECT_REMOVE(model);
    sumi_free(&engine->heap, model);
}

static sumi_result begin_opening(sumi_engine* engine, sumi_model_job* job, sumi_error* error)
{
    SUMI_ASSERT(job->product == NULL && job->upload_entry == NULL);
    sumi_model* model = sumi_alloc_zero(&engine->heap, sizeof *model);
    if (model == NULL) return sumi_out_of_memory(error, sizeof *model, "a model");
    model->engine = engine;
    model->weights = job->weights;
    model->text_weights = job->text_weights;
    model->attention = job->attention;
    SUMI_OBJECT_ADD(models, model);
    job->product = model;
    job->begin_ns = sumi_clock_ns();
    return sumi_network_open_begin(&engine->heap, engine->desc.files, &job->desc, error, &model->network);
}

static void choose_denoiser_weights(const sumi_engine* engine, sumi_model* model)
{
    const sumi_network_info* info = &model->info;
    sumi_device_properties properties = {.device_bytes = 0};
    if (model->weights != SUMI_WEIGHTS_AUTO) return;
    engine->runner->functions->properties(engine->runner, &properties);
    // A quarter of the memory is left for everything else: activations, the decoder, pictures of the host program.
    const uint64_t bf16_bytes = 2 * info->denoiser_values, max_bytes = properties.device_bytes / 4 * 3;
    if (bf16_bytes <= max_bytes) {
        model->weights = SUMI_WEIGHTS_BF16;
        return;
    }
    // The weights of a file with 10 bits per weight or less have lost their precision already.
    const bool is_quantised = info->denoiser_bytes <= bf16_bytes / 8 * 5;
    model->weights = is_quantised ? SUMI_WEIGHTS_AS_STORED : SUMI_WEIGHTS_INT8;
    char text[256];
    snprintf(text, sizeof text, "weights: in bfloat16 the transformer takes %.1f GB of this GPU's %.1f; they stay %s",
             (double)bf16_bytes * 1e-9, (double)properties.device_bytes * 1e-9,
             is_quantised ? "as their file has them" : "in int8");
    sumi_log_write(engine, SUMI_LOG_INFO, SUMI_OK, text);
}

// The formats that AUTO stands for on this device. They depend only on the file and on the size of the device's memory,
// not on memory limits or free memory, so that a job gives the same image whatever memory other programs use.
static void choose_weights(const sumi_engine* engine, sumi_model* model)
{
    if (!engine->runner->traits.has_formats) return;
    if (model->attention == SUMI_ATTENTION_AUTO) model->attention = SUMI_ATTENTION_BF16;
    choose_denoiser_weights(engine, model);
    if (model->text_weights != SUMI_WEIGHTS_AUTO) return;
    model->text_weights = model->weights == SUMI_WEIGHTS_AS_STORED ? SUMI_WEIGHTS_AS_STORED : SUMI_WEIGHTS_BF16;
}

// Writes the plan from which weights are copied to the device while the model loads. Without a memory limit it is the
// plan of the smallest picture, which already names every weight. Under a memory limit it is the plan of a picture of
// the model's native size, because what its arena leaves free decides which weights stay resident; and it has several
// steps, because weights that every step uses are copied first.
static sumi_result write_upload_plan(sumi_engine* engine, sumi_model* model, sumi_plan_entry** out_entry,
                                     sumi_error* error)
{
    SUMI_ASSERT(engine->runner->traits.needs_preparing && model->info.family != NULL);
    const sumi_network_info* info = &model->info;
    const bool is_native_size = sumi_engine_memory_limit(engine) != 0 && info->sample_size > 4 * info->size_multiple;
    const int32_t side = is_native_size ? sumi_native_side(model) : 4 * info->size_multiple;
    SUMI_ASSERT(side >= info->size_multiple && side % info->size_multiple == 0);
    sumi_pipeline_prompt prompt = {.has_features = !info->has_text_encoder};
    for (int32_t e = 0; e < info->text_encoder_count; e++) {
        const int32_t tokens = info->min_prompt_tokens[e];
        prompt.token_count[e] = prompt.has_features ? sumi_network_feature_rows(model->network, e, tokens) : tokens;
    }
    const sumi_pipeline_item item = {0, -1};
    const sumi_plan_request request = {.model = model,
                                       .pipeline = {.goal = SUMI_GOAL_IMAGES,
                                                    .prompts = &prompt,
                                                    .prompt_count = 1,
                                                    .items = &item,
                                                    .item_count = 1,
                                                    .width = side,
                                                    .height = side,
                                                    .evaluation_count = 8}};
    *out_entry = sumi_alloc_zero(&engine->heap, sizeof **out_entry);
    if (*out_entry == NULL) return sumi_out_of_memory(error, sizeof **out_entry, "a plan");
    return sumi_plan_entry_write(engine, &request, *out_entry, error);
}

static void drop_upload_entry(sumi_engine* engine, sumi_model_job* job)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    if (job->upload_entry == NULL) return;
    sumi_plan_entry_drop(engine, job->upload_entry);
    sumi_free(&engine->heap, job->upload_entry);
    job->upload_entry = NULL;
}

// Copies kernels and weights to the device in pieces, so that the first job does not wait for them. If the memory
// limit does not hold all weights, jobs copy what they need.
static sumi_result load_to_device(sumi_engine* engine, sumi_job_slot* slot, sumi_turn* turn, sumi_error* error)
{
    sumi_model_job* job = &slot->u.model_job;
    SUMI_ASSERT(job->is_open);
    const sumi_runner_functions* runner = engine->runner->functions;
    bool is_done = false;
    float progress = 0.0f;
    SUMI_TRY(sumi_kernels_load(engine, &is_done, error));
    if (!is_done) {
        turn->end = SUMI_TURN_WAITS;
        return SUMI_OK;
    }
    if (job->upload_entry == NULL) {
        if (!job->has_reviewed) sumi_limit_review(engine);
        job->has_reviewed = true;
        sumi_error capacity_error = {0};
        sumi_result result = write_upload_plan(engine, job->product, &job->upload_entry, &capacity_error);
        if (result == SUMI_BUDGET_TOO_SMALL || result == SUMI_OUT_OF_DEVICE_MEMORY) turn->end = SUMI_TURN_DONE;
        else if (result != SUMI_OK) return sumi_fail_with(error, &capacity_error);
        return SUMI_OK;
    }
    const uint32_t budget_us = sumi_frame_limits_piece_us(&engine->frame, engine->desc.max_slice_us);
    runner->set_memory_limit(engine->runner, sumi_engine_memory_limit(engine));
    runner->pace(engine->runner, sumi_frame_limits_are_paced(&engine->frame));
    sumi_error capacity_error = {0};
    const sumi_result result =
        runner->prepare(engine->runner, &job->upload_entry->plan, budget_us, &is_done, &progress, &capacity_error);
    sumi_limit_note(engine, result);
    // The job continues with less: weights are streamed. If that does not suffice either, later jobs fail and say so.
    if (result == SUMI_OUT_OF_DEVICE_MEMORY) {
        const bool may_lower = ++job->lowered_limits <= SUMI_MAX_LOWERED;
        if (!may_lower || !sumi_limit_lower(engine, &job->upload_entry->plan)) turn->end = SUMI_TURN_DONE;
        drop_upload_entry(engine, job);
        return SUMI_OK;
    }
    if (result == SUMI_BUDGET_TOO_SMALL) { // what cannot be evicted leaves less than the plan needs
        turn->end = SUMI_TURN_DONE;
        return SUMI_OK;
    }
    if (result != SUMI_OK) return sumi_fail_with(error, &capacity_error);
    slot->live.progress = 0.1f + 0.9f * progress;
    if (is_done) turn->end = SUMI_TURN_DONE;
    return SUMI_OK;
}

static sumi_result advance_opening(sumi_engine* engine, sumi_job_slot* slot, sumi_turn* turn, sumi_error* error)
{
    sumi_model_job* job = &slot->u.model_job;
    SUMI_ASSERT(!job->has_begun || job->product != NULL);
    turn->stage = SUMI_STAGE_LOAD;
    if (!job->has_begun) {
        job->has_begun = true;
        return begin_opening(engine, job, error);
    }
    if (job->is_open) return load_to_device(engine, slot, turn, error);
    sumi_model* model = job->product;
    const bool needs_preparing = engine->runner->traits.needs_preparing;
    uint32_t budget_us = sumi_frame_limits_piece_us(&engine->frame, engine->desc.max_slice_us);
    float progress = 0.0f;
    SUMI_TRY(sumi_network_open_step(model->network, budget_us, &job->is_open, &progress, error));
    slot->live.progress = needs_preparing ? 0.1f * progress : progress;
    if (progress > 0.02f && !needs_preparing) {
        double seconds = (double)(sumi_clock_ns() - job->begin_ns) * 1e-9;
        slot->live.seconds_left = (float)(seconds / progress * (1.0 - progress));
    }
    if (job->is_open) {
        model->info = *sumi_network_get_info(model->network);
        choose_weights(engine, model);
        atomic_fetch_add(&engine->memory.weight_bytes, model->info.weight_bytes);
        char text[256];
        snprintf(text, sizeof text, "opened %s %s: %.1f MB of weights", model->info.family, model->info.variant,
                 (double)model->info.weight_bytes * 1e-6);
        sumi_log_write(engine, SUMI_LOG_INFO, SUMI_OK, text);
        if (model->info.preset_fault[0] != '\0')
            sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, model->info.preset_fault);
        if (model->info.variant_note[0] != '\0')
            sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, model->info.variant_note);
        if (!needs_preparing) turn->end = SUMI_TURN_DONE;
    }
    return SUMI_OK;
}

static void stop_opening(sumi_engine* engine, sumi_job_slot* slot)
{
    drop_upload_entry(engine, &slot->u.model_job); // a model that is only partly open is freed with the product
}

static void drop_model(sumi_engine* engine, sumi_job_slot* slot)
{
    (void)engine;
    sumi_model_free(slot->u.model_job.product);
    slot->u.model_job.product = NULL;
}

static void* take_model(sumi_job_slot* slot)
{
    sumi_model* model = slot->u.model_job.product;
    slot->u.model_job.product = NULL;
    return model;
}

static const sumi_job_functions s_functions = {
    "a model job", sumi_job_predict_load, advance_opening, stop_opening, drop_model, take_model};

// member: its name in the desc, for messages.
static sumi_result check_weights(const sumi_engine* engine, const char* member, sumi_weight_format weights,
                                 sumi_error* error)
{
    switch ((int)weights) {
    case SUMI_WEIGHTS_AUTO:
    case SUMI_WEIGHTS_AS_STORED: return SUMI_OK;
    case SUMI_WEIGHTS_BF16:
    case SUMI_WEIGHTS_FP8:
    case SUMI_WEIGHTS_INT8:
    case SUMI_WEIGHTS_INT4:
        if (engine->runner->traits.has_formats) break;
        return sumi_fail(
            error, SUMI_NOT_SUPPORTED,
            "%s: the CPU backend reads weights where they lie; use SUMI_WEIGHTS_AUTO or SUMI_WEIGHTS_AS_STORED",
            member);
    default: return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%s is %d: no such format", member, (int)weights);
    }
    sumi_device_properties properties;
    engine->runner->functions->properties(engine->runner, &properties);
    if (weights == SUMI_WEIGHTS_FP8 && properties.capability < 89) {
        return sumi_fail(
            error, SUMI_NOT_SUPPORTED,
            "%s: fp8 needs a GPU of compute capability 8.9 or newer, this one has %d.%d; use SUMI_WEIGHTS_INT8", member,
            (int)properties.capability / 10, (int)properties.capability % 10);
    }
    return SUMI_OK;
}

static sumi_result check_attention(const sumi_engine* engine, sumi_attention_format attention, sumi_error* error)
{
    switch ((int)attention) {
    case SUMI_ATTENTION_AUTO: return SUMI_OK;
    case SUMI_ATTENTION_BF16:
    case SUMI_ATTENTION_8BIT:
        if (engine->runner->traits.has_formats) return SUMI_OK;
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "attention: the CPU backend computes attention in float32; use SUMI_ATTENTION_AUTO");
    default: return sumi_fail(error, SUMI_INVALID_ARGUMENT, "attention is %d: no such format", (int)attention);
    }
}

static sumi_result check_model_desc(const sumi_engine* engine, const sumi_model_desc* desc, sumi_error* error)
{
    SUMI_TRY(sumi_check_cookie(desc->cookie, SUMI_COOKIE_MODEL, "sumi_model_desc", "sumi_model_defaults", error));
    if (desc->path == NULL && desc->transformer_path == NULL) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "path is NULL, and so is transformer_path: say where the checkpoint is");
    }
    if (desc->path == NULL && desc->vae_path == NULL)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "path is NULL, so vae_path must say where the VAE is");
    if (desc->path == NULL && !desc->without_text_encoder && desc->text_encoder_path == NULL) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "path is NULL, so text_encoder_path must say where the text encoder is; or set "
                         "without_text_encoder");
    }
    SUMI_TRY(check_weights(engine, "weights", desc->weights, error));
    SUMI_TRY(check_weights(engine, "text_weights", desc->text_weights, error));
    return check_attention(engine, desc->attention, error);
}

static const char* pack_text(sumi_packer* packer, const char* text)
{
    return text != NULL ? sumi_pack(packer, text, strlen(text) + 1) : NULL;
}

static void pack_paths(sumi_packer* packer, const sumi_model_desc* desc, sumi_network_desc* out)
{
    out->path = pack_text(packer, desc->path);
    out->transformer_path = pack_text(packer, desc->transformer_path);
    out->text_encoder_path = pack_text(packer, desc->text_encoder_path);
    out->tokenizer_path = pack_text(packer, desc->tokenizer_path);
    out->vae_path = pack_text(packer, desc->vae_path);
    out->text_encoder_2_path = pack_text(packer, desc->text_encoder_2_path);
    out->tokenizer_2_path = pack_text(packer, desc->tokenizer_2_path);
    out->vision_path = pack_text(packer, desc->vision_path);
    out->processor_path = pack_text(packer, desc->processor_path);
    out->variant = pack_text(packer, desc->variant);
    out->without_text_encoder = desc->without_text_encoder;
    out->without_vae_encoder = desc->without_vae_encoder;
}

static sumi_result fill_model(sumi_engine* engine, const sumi_model_desc* desc, sumi_job_slot* slot, sumi_error* error)
{
    sumi_packer packer = {NULL, 0};
    pack_paths(&packer, desc, &slot->u.model_job.desc);
    SUMI_TRY(sumi_block_reserve(&engine->heap, &slot->input, packer.used, "a model's paths", error));
    packer = (sumi_packer){slot->input.data, 0};
    pack_paths(&packer, desc, &slot->u.model_job.desc);
    slot->u.model_job.weights = desc->weights;
    slot->u.model_job.text_weights = desc->text_weights;
    slot->u.model_job.attention = desc->attention;
    return SUMI_OK;
}

static sumi_result submit_model(sumi_engine* engine, const sumi_model_desc* desc, sumi_job* out_job, sumi_error* error)
{
    SUMI_TRY(check_model_desc(engine, desc, error));
    sumi_job_slot* slot;
    SUMI_TRY(sumi_job_reserve(engine, SUMI_JOB_KIND_MODEL, &s_functions, &slot, error));
    const sumi_result result = fill_model(engine, desc, slot, error);
    if (result != SUMI_OK) {
        sumi_job_free(engine, slot);
        return result;
    }
    sumi_job_queue(engine, slot, desc->priority, desc->user_data, out_job);
    return SUMI_OK;
}

sumi_result sumi_submit_model(sumi_engine* engine, const sumi_model_desc* desc, sumi_job* out_job)
{
    SUMI_TRY(sumi_call_begin_submit(engine, "sumi_submit_model", desc, out_job));
    sumi_error error = {0};
    const sumi_result result = submit_model(engine, desc, out_job, &error);
    return sumi_call_end(engine, result, &error);
}

sumi_result sumi_fetch_model(sumi_engine* engine, sumi_job handle, sumi_model** out_model)
{
    static const sumi_object_fetch s_fetch = {"sumi_fetch_model", SUMI_JOB_KIND_MODEL, "out_model"};
    sumi_result result;
    void* model = sumi_call_fetch_object(engine, handle, &s_fetch, out_model != NULL, &result);
    if (out_model != NULL) *out_model = model;
    return result;
}

const char* sumi_model_negative_text(const sumi_model* model)
{
    SUMI_ASSERT(model != NULL);
    const char* text = model->info.presets[SUMI_PRESET_MODEL].negative_text;
    return text != NULL ? text : "";
}

int32_t sumi_native_side(const sumi_model* model)
{
    const sumi_network_info* info = &model->info;
    SUMI_ASSERT(info->size_multiple > 0 && info->sample_size >= info->size_multiple);
    return info->sample_size / info->size_multiple * info->size_multiple; // a config may give any number
}

sumi_model_info sumi_model_get_info(const sumi_model* model)
{
    sumi_model_info info = {.family = "", .variant = "", .negative_text = ""};
    if (model == NULL) return info;
    const sumi_network_info* from = &model->info;
    info.family = from->family;
    info.variant = from->variant;
    const sumi_preset_values* authors = &from->presets[SUMI_PRESET_MODEL];
    info.takes_references = from->max_references > 0;
    info.min_references = from->min_references;
    info.max_references = from->max_references;
    info.uses_guidance = authors->guidance != from->guidance_off;
    info.guidance = authors->guidance;
    info.guidance_off = from->guidance_off;
    info.guidance_formula = from->guidance_formula;
    info.guidance_rule = from->guidance_rule;
    info.ignores_guidance = from->ignores_guidance;
    info.has_alpha = from->picture_channels == 4;
    info.negative_text = sumi_model_negative_text(model);
    info.has_text_encoder = from->has_text_encoder;
    info.has_vae_encoder = from->has_vae_encoder;
    info.size_multiple = from->size_multiple;
    info.max_size = from->max_side;
    info.latent_channels = from->latent_channels;
    info.latent_factor = from->vae_factor;
    info.native_size = from->sample_size;
    info.sizes = from->sizes;
    info.size_count = from->size_count;
    info.max_prompt_tokens = from->max_prompt_tokens;
    info.weight_bytes = from->weight_bytes;
    info.weights = model->weights;
    info.text_weights = model->text_weights;
    info.attention = model->attention;
    return info;
}

void sumi_model_close(sumi_model* model)
{
    if (model == NULL || sumi_call_begin(model->engine, "sumi_model_close") != SUMI_OK) return;
    sumi_engine* engine = model->engine;
    sumi_pump_lock(engine);
    sumi_jobs_cancel(engine, &(sumi_used_object){.model = model});
    sumi_run_wait_for_all(engine);
    sumi_plan_cache_drop(engine, &(sumi_used_object){.model = model});
    // Adapters and control nets refer to this network, so their files are closed now. The host program's pointers stay
    // valid until it releases them.
    for (sumi_lora* lora = engine->loras; lora != NULL; lora = lora->next) {
        if (lora->model != model) continue;
        sumi_lora_close(lora);
        lora->model = NULL;
    }
    for (sumi_control* control = engine->controls; control != NULL; control = control->next) {
        if (control->model != model) continue;
        sumi_control_close(control);
        control->model = NULL;
    }
    sumi_model_free(model);
    sumi_pump_unlock(engine);
    (void)sumi_call_end(engine, SUMI_OK, NULL);
}
