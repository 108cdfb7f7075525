#include "engine/image_desc.h"
#include "base/assert.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/pixel_formats.h"
#include "base/result.h"
#include "engine/calls.h"
#include "engine/controls.h"
#include "engine/desc_checks.h"
#include "engine/externals.h"
#include "engine/models.h"
#include "interop/interop.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job_pictures.h"
#include "jobs/log.h"
#include "jobs/objects.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "jobs/plan_key.h"
#include "jobs/prompt.h"
#include "models/limits.h"
#include "models/network.h"
#include "models/pipeline.h"
#include "pictures/picture_sizes.h"
#include "pictures/pixels.h"
#include "plan/runner.h"
#include "sampling/reuse.h"
#include "sampling/schedule.h"
#include "sampling/solver.h"
#include <stdio.h>
#include <string.h>

// ---- Checks ---------------------------------------------------------------------------------------------------------

static bool is_between(float value, float low, float high) { return value >= low && value <= high; } // false for NaN

static sumi_result check_prompt(const sumi_image_desc* desc, const sumi_prompt* prompt, int32_t item,
                                const char* member, sumi_error* error)
{
    const sumi_network_info* info = &desc->model->info;
    SUMI_REFUSE(prompt->engine != desc->model->engine, SUMI_INVALID_ARGUMENT, "items[%d].%s belongs to another engine",
                (int)item, member);
    bool fits = strcmp(prompt->family, info->family) == 0 && prompt->encoder_count == info->text_encoder_count;
    for (int32_t e = 0; fits && e < prompt->encoder_count; e++) fits = prompt->width[e] == info->feature_width[e];
    SUMI_REFUSE(!fits, SUMI_INVALID_ARGUMENT,
                "items[%d].%s was encoded for another model: %s, %d wide; this one is %s, %d wide", (int)item, member,
                prompt->family, (int)prompt->width[0], info->family, (int)info->feature_width[0]);
    return SUMI_OK;
}

// Whether guidance is on. If it is off, negative prompts are not used.
static bool is_guided(const sumi_image_desc* desc)
{
    const sumi_network_info* info = &desc->model->info;
    return !info->ignores_guidance && desc->guidance.scale != info->guidance_off;
}

// Refuses a model that lacks the parts which make an image of a text, and names all of them at once.
static sumi_result check_components(const sumi_image_desc* desc, sumi_error* error)
{
    const sumi_network_info* info = &desc->model->info;
    bool has_text = false;
    for (int32_t i = 0; desc->items != NULL && i < desc->item_count && i < SUMI_MAX_ITEMS; i++)
        has_text = has_text || desc->items[i].text != NULL;
    SUMI_REFUSE(!info->has_vae_decoder && has_text && !info->has_text_encoder, SUMI_NOT_SUPPORTED,
                "model: it was opened without %s and without a VAE, which an image of a text needs; open it with "
                "text_encoder_path, tokenizer_path%s and vae_path, or with a folder that holds all of them",
                info->text_encoder_count > 1 ? "its text encoders, their tokenizers" : "a text encoder, its tokenizer",
                info->text_encoder_count > 1 ? ", text_encoder_2_path, tokenizer_2_path" : "");
    SUMI_REFUSE(!info->has_vae_decoder, SUMI_NOT_SUPPORTED,
                "model: it was opened without a VAE, which makes images of latents; open it with vae_path");
    return SUMI_OK;
}

static sumi_result check_image_items(const sumi_image_desc* desc, sumi_error* error)
{
    SUMI_REFUSE(desc->item_count < 1 || desc->item_count > SUMI_MAX_ITEMS, SUMI_INVALID_ARGUMENT,
                "item_count is %d: give 1 to %d", (int)desc->item_count, SUMI_MAX_ITEMS);
    SUMI_REFUSE(desc->items == NULL, SUMI_INVALID_ARGUMENT, "items is NULL: give item_count of them");
    const bool encodes = desc->model->info.has_text_encoder, guides = is_guided(desc);
    for (int32_t i = 0; i < desc->item_count; i++) {
        const sumi_image_item* item = &desc->items[i];
        SUMI_REFUSE(item->text == NULL && item->prompt == NULL, SUMI_INVALID_ARGUMENT,
                    "items[%d] has neither text nor prompt", (int)i);
        SUMI_REFUSE(item->text != NULL && item->prompt != NULL, SUMI_INVALID_ARGUMENT,
                    "items[%d] has both text and prompt: give one of the two", (int)i);
        SUMI_REFUSE(item->negative_text != NULL && item->negative_prompt != NULL, SUMI_INVALID_ARGUMENT,
                    "items[%d] has both negative_text and negative_prompt: give at most one of the two", (int)i);
        SUMI_REFUSE(item->text != NULL && !encodes, SUMI_NOT_SUPPORTED,
                    "items[%d].text: the model was opened without a text encoder; open it with text_encoder_path and "
                    "tokenizer_path, or give an encoded prompt",
                    (int)i);
        SUMI_REFUSE(guides && item->negative_prompt == NULL && !encodes, SUMI_NOT_SUPPORTED,
                    "items[%d].negative_prompt is NULL, and with guidance the model needs a text encoder for "
                    "negative_text; give an encoded one",
                    (int)i);
        if (item->prompt != NULL) SUMI_TRY(check_prompt(desc, item->prompt, i, "prompt", error));
        if (item->negative_prompt != NULL)
            SUMI_TRY(check_prompt(desc, item->negative_prompt, i, "negative_prompt", error));
    }
    return SUMI_OK;
}

static sumi_guidance_rule guidance_rule_of(const sumi_image_desc* desc)
{
    return desc->guidance.rule == SUMI_GUIDANCE_MODEL ? desc->model->info.guidance_rule : desc->guidance.rule;
}

static sumi_result check_guidance_rule(const sumi_image_desc* desc, sumi_error* error)
{
    const int rule = (int)desc->guidance.rule;
    SUMI_REFUSE(rule < 0 || rule > SUMI_GUIDANCE_NORM_RESCALE, SUMI_INVALID_ARGUMENT,
                "guidance.rule is %d: no such rule", rule);
    SUMI_REFUSE(!is_between(desc->guidance.norm_limit, 0.0f, 1e6f), SUMI_INVALID_ARGUMENT,
                "guidance.norm_limit is %g: give 0 (off) or a factor", (double)desc->guidance.norm_limit);
    SUMI_REFUSE(rule == SUMI_GUIDANCE_NORM_LIMIT && desc->guidance.norm_limit == 0.0f, SUMI_INVALID_ARGUMENT,
                "guidance.rule is SUMI_GUIDANCE_NORM_LIMIT, but guidance.norm_limit is 0: give a factor, 1 is usual");
    SUMI_REFUSE(guidance_rule_of(desc) != SUMI_GUIDANCE_NORM_LIMIT && desc->guidance.norm_limit != 0.0f,
                SUMI_INVALID_ARGUMENT,
                "guidance.norm_limit is %g, but guidance.rule %s: give 0, or SUMI_GUIDANCE_NORM_LIMIT",
                (double)desc->guidance.norm_limit, rule == SUMI_GUIDANCE_MODEL ? "is the model's own" : "is another");
    return SUMI_OK;
}

#define MAX_SHIFT 1e4f
#define MAX_STEP_CACHE 10.0f
#define MIN_STEP_CACHE_EVERY 2
#define MAX_STEP_CACHE_EVERY 10

static sumi_result check_step_cache(const sumi_image_desc* desc, sumi_error* error)
{
    SUMI_REFUSE(!is_between(desc->step_cache, 0.0f, MAX_STEP_CACHE), SUMI_INVALID_ARGUMENT,
                "step_cache is %g: give 0 (off), or the largest change to reuse over, such as 0.08, up to %g",
                (double)desc->step_cache, (double)MAX_STEP_CACHE);
    SUMI_REFUSE(!is_between(desc->step_cache_db, 0.0f, SUMI_REUSE_MOST_DB), SUMI_INVALID_ARGUMENT,
                "step_cache_db is %g: give 0 (off), or the PSNR in dB that the image is to keep, such as 40, up to %g",
                (double)desc->step_cache_db, (double)SUMI_REUSE_MOST_DB);
    SUMI_REFUSE(desc->step_cache_every != 0
                    && (desc->step_cache_every < MIN_STEP_CACHE_EVERY || desc->step_cache_every > MAX_STEP_CACHE_EVERY),
                SUMI_INVALID_ARGUMENT, "step_cache_every is %d: give 0 (off), or %d to %d", (int)desc->step_cache_every,
                MIN_STEP_CACHE_EVERY, MAX_STEP_CACHE_EVERY);
    SUMI_REFUSE(
        (desc->step_cache > 0.0f) + (desc->step_cache_db > 0.0f) + (desc->step_cache_every > 0) > 1,
        SUMI_INVALID_ARGUMENT,
        "step_cache is %g, step_cache_db is %g and step_cache_every is %d: give one of them and 0 for the others",
        (double)desc->step_cache, (double)desc->step_cache_db, (int)desc->step_cache_every);
    return SUMI_OK;
}

// A model whose sigmas are listed one by one has a schedule for their number of steps only. A deadline may leave steps
// out of it, but with two evaluations for a step it would need a schedule of fewer steps.
static sumi_result check_listed_steps(const sumi_image_desc* desc, sumi_error* error)
{
    const int32_t steps = sumi_sigma_rule_steps(&desc->model->info.sigmas);
    if (steps == 0 || desc->sigmas != NULL || desc->shift > 0.0f) return SUMI_OK;
    SUMI_REFUSE(
        desc->step_count != steps, SUMI_NOT_SUPPORTED,
        "step_count is %d, but this model was made for %d steps of fixed noise levels: give %d, or shift or sigmas "
        "of your own",
        (int)desc->step_count, (int)steps, (int)steps);
    SUMI_REFUSE(desc->deadline_ms != 0 && sumi_solver_max_rows(desc->solver) > 1, SUMI_NOT_SUPPORTED,
                "deadline_ms is %u, but the noise levels of this model are fixed, and this solver evaluates twice in a "
                "step: give SUMI_SOLVER_EULER, or no deadline",
                (unsigned)desc->deadline_ms);
    return SUMI_OK;
}

static sumi_result check_schedule(const sumi_image_desc* desc, sumi_error* error)
{
    SUMI_REFUSE(desc->step_count < 1 || desc->step_count > SUMI_SCHEDULE_MAX_STEPS, SUMI_INVALID_ARGUMENT,
                "step_count is %d: give 1 to %d", (int)desc->step_count, SUMI_SCHEDULE_MAX_STEPS);
    const float off = desc->model->info.guidance_off;
    SUMI_REFUSE(!is_between(desc->guidance.scale, off, 1000.0f), SUMI_INVALID_ARGUMENT,
                "guidance.scale is %g: give %g (off) to 1000", (double)desc->guidance.scale, (double)off);
    SUMI_REFUSE(!is_between(desc->guidance.begin, 0.0f, 1.0f), SUMI_INVALID_ARGUMENT,
                "guidance.begin is %g: give 0 to 1", (double)desc->guidance.begin);
    SUMI_REFUSE(!(desc->guidance.end >= 0.0f), SUMI_INVALID_ARGUMENT, "guidance.end is %g: give 0 to 1",
                (double)desc->guidance.end);
    SUMI_REFUSE(desc->guidance.end < desc->guidance.begin, SUMI_INVALID_ARGUMENT,
                "guidance.end is %g, before guidance.begin %g", (double)desc->guidance.end,
                (double)desc->guidance.begin);
    SUMI_TRY(check_guidance_rule(desc, error));
    SUMI_REFUSE(!sumi_solver_known(desc->solver), SUMI_INVALID_ARGUMENT, "solver is %d: no such solver",
                (int)desc->solver);
    SUMI_REFUSE(!is_between(desc->shift, 0.0f, MAX_SHIFT), SUMI_INVALID_ARGUMENT,
                "shift is %g: give 0 for the model's own, or a positive number up to %g", (double)desc->shift,
                (double)MAX_SHIFT);
    SUMI_TRY(check_step_cache(desc, error));
    if (desc->sigmas != NULL) {
        SUMI_TRY(sumi_schedule_check(desc->sigmas, desc->step_count, error));
        SUMI_REFUSE(desc->deadline_ms != 0, SUMI_INVALID_ARGUMENT,
                    "deadline_ms is %u, but sigmas fix the number of steps: give one of the two",
                    (unsigned)desc->deadline_ms);
    }
    return check_listed_steps(desc, error);
}

static sumi_result check_noise(const sumi_image_desc* desc, sumi_error* error)
{
    const int noise = (int)desc->noise.source;
    SUMI_REFUSE(noise < 0 || noise > SUMI_NOISE_GIVEN, SUMI_INVALID_ARGUMENT, "noise.source is %d: no such kind",
                noise);
    SUMI_REFUSE(desc->noise.multiprocessors < 1 || desc->noise.multiprocessors > 4096, SUMI_INVALID_ARGUMENT,
                "noise.multiprocessors is %d: give 1 to 4096", (int)desc->noise.multiprocessors);
    SUMI_REFUSE(desc->noise.threads_per_multiprocessor < 256 || desc->noise.threads_per_multiprocessor > 4096,
                SUMI_INVALID_ARGUMENT, "noise.threads_per_multiprocessor is %d: give 256 to 4096",
                (int)desc->noise.threads_per_multiprocessor);
    SUMI_REFUSE(noise == SUMI_NOISE_GIVEN && desc->noise.values == NULL, SUMI_INVALID_ARGUMENT,
                "noise.values is NULL, but noise.source is SUMI_NOISE_GIVEN");
    SUMI_REFUSE(noise != SUMI_NOISE_GIVEN && desc->noise.values != NULL, SUMI_INVALID_ARGUMENT,
                "noise.values is set, but noise.source is not SUMI_NOISE_GIVEN");
    return SUMI_OK;
}

static sumi_result check_start(const sumi_image_desc* desc, sumi_error* error)
{
    const bool starts = desc->start.image != NULL || desc->start.latents != NULL;
    const int posterior = (int)desc->start.posterior;
    SUMI_REFUSE(desc->start.image != NULL && desc->start.latents != NULL, SUMI_INVALID_ARGUMENT,
                "start.image and start.latents are both set: give one of the two");
    SUMI_REFUSE(posterior < 0 || posterior > SUMI_POSTERIOR_MODE, SUMI_INVALID_ARGUMENT,
                "start.posterior is %d: no such kind", posterior);
    SUMI_REFUSE(desc->start.noise_values != NULL && desc->start.image == NULL, SUMI_INVALID_ARGUMENT,
                "start.noise_values is set, but there is no start.image to sample");
    SUMI_REFUSE(desc->start.image != NULL && !desc->model->info.has_vae_encoder, SUMI_NOT_SUPPORTED,
                "start.image: the model was opened without a VAE encoder; give start.latents");
    if (desc->start.image != NULL) {
        sumi_pixels start_image = sumi_pixels_with_row_bytes(desc->start.image);
        SUMI_TRY(sumi_pixels_check(&start_image, "start.image", error));
    }
    if (desc->start.mask != NULL) {
        SUMI_REFUSE(!starts, SUMI_INVALID_ARGUMENT,
                    "start.mask is set, but there is neither start.image nor start.latents to keep");
        sumi_pixels mask = sumi_pixels_with_row_bytes(desc->start.mask);
        SUMI_TRY(sumi_pixels_check(&mask, "start.mask", error));
    }
    SUMI_REFUSE(desc->start.mask_feather < -1 || desc->start.mask_feather > SUMI_MAX_FEATHER, SUMI_INVALID_ARGUMENT,
                "start.mask_feather is %d: give 0 to %d pixels, or -1 to keep nothing of the start image",
                (int)desc->start.mask_feather, SUMI_MAX_FEATHER);
    SUMI_REFUSE(!is_between(desc->start.strength, 0.0f, 1.0f), SUMI_INVALID_ARGUMENT,
                "start.strength is %g: give 0 to 1", (double)desc->start.strength);
    SUMI_REFUSE(starts && sumi_schedule_first_index(desc->step_count, desc->start.strength) >= desc->step_count,
                SUMI_INVALID_ARGUMENT, "start.strength is %g, which leaves no step to run: give more than 0, up to 1",
                (double)desc->start.strength);
    return SUMI_OK;
}

// Refuses NaN and infinity in the values that the host program computed. Without this check the job would fail later,
// and the failure would look like damaged weights.
static sumi_result check_values(const sumi_image_desc* desc, sumi_error* error)
{
    const sumi_network_info* info = &desc->model->info;
    const uint64_t count = (uint64_t)info->latent_channels * (uint64_t)(desc->height / info->vae_factor)
                         * (uint64_t)(desc->width / info->vae_factor);
    SUMI_TRY(sumi_check_finite(desc->noise.values, (uint64_t)desc->item_count * count, "noise.values", error));
    SUMI_TRY(sumi_check_finite(desc->start.latents, count, "start.latents", error));
    return sumi_check_finite(desc->start.noise_values, count, "start.noise_values", error);
}

static sumi_result check_external(const sumi_engine* engine, const sumi_image_desc* desc, int32_t i, sumi_error* error)
{
    const sumi_target* target = &desc->targets[i];
    char name[32];
    snprintf(name, sizeof name, "targets[%d]", (int)i);
    SUMI_TRY(sumi_external_check(engine, target, name, (sumi_size){desc->width, desc->height}, error));
    for (int32_t k = 0; k < i; k++)
        SUMI_REFUSE(desc->targets[k].external == target->external, SUMI_INVALID_ARGUMENT,
                    "targets[%d].external is that of targets[%d], too", (int)i, (int)k);
    return SUMI_OK;
}

static sumi_result check_targets(const sumi_engine* engine, const sumi_image_desc* desc, sumi_error* error)
{
    for (int32_t i = 0; desc->targets != NULL && i < desc->item_count; i++) {
        const sumi_target* target = &desc->targets[i];
        SUMI_REFUSE(sumi_format_bytes(target->format) == 0, SUMI_INVALID_ARGUMENT,
                    "targets[%d].format is %d: no such format", (int)i, (int)target->format);
        SUMI_REFUSE(target->device_address != 0 && !engine->runner->traits.has_memory, SUMI_NOT_SUPPORTED,
                    "targets[%d].device_address: the CPU backend has no device memory; give host_memory", (int)i);
        if (target->external != NULL) SUMI_TRY(check_external(engine, desc, i, error));
        SUMI_REFUSE(target->external == NULL && target->wait.semaphore != NULL, SUMI_INVALID_ARGUMENT,
                    "targets[%d].wait has a semaphore, but there is no external", (int)i);
        SUMI_REFUSE(target->external == NULL && target->signal.semaphore != NULL, SUMI_INVALID_ARGUMENT,
                    "targets[%d].signal has a semaphore, but there is no external", (int)i);
        SUMI_REFUSE(target->host_memory != NULL && target->device_address != 0, SUMI_INVALID_ARGUMENT,
                    "targets[%d] has both host_memory and device_address: give one of the two", (int)i);
        SUMI_REFUSE(target->event != NULL && target->device_address == 0, SUMI_INVALID_ARGUMENT,
                    "targets[%d].event is set, but device_address is 0", (int)i);
        const int32_t row = desc->width * sumi_format_bytes(target->format);
        SUMI_REFUSE(target->host_memory == NULL && target->device_address == 0 && target->row_bytes != 0,
                    SUMI_INVALID_ARGUMENT,
                    "targets[%d].row_bytes is %d, but there is neither host_memory nor device_address", (int)i,
                    (int)target->row_bytes);
        SUMI_REFUSE(target->device_address != 0 && target->format != SUMI_FORMAT_RGB8
                        && (target->device_address % 4 != 0 || target->row_bytes % 4 != 0),
                    SUMI_INVALID_ARGUMENT,
                    "targets[%d]: device_address and row_bytes must be multiples of 4 for this format", (int)i);
        SUMI_REFUSE(target->row_bytes != 0 && target->row_bytes < row, SUMI_INVALID_ARGUMENT,
                    "targets[%d].row_bytes is %d, but a row takes %d bytes", (int)i, (int)target->row_bytes, (int)row);
    }
    return SUMI_OK;
}

// Finds the job's references: from the desc, or else the ones that the encoded prompt of the first item keeps.
static sumi_result find_references(const sumi_image_desc* desc, sumi_references* out, sumi_error* error)
{
    SUMI_TRY(sumi_references_check(desc->model, desc->references, desc->reference_count, out, error));
    if (desc->reference_count == 0 && desc->items[0].prompt != NULL && desc->model->info.max_references > 0)
        sumi_references_of_prompt(desc->items[0].prompt, out);
    return SUMI_OK;
}

// Whether a text can be encoded together with the references.
static sumi_result check_encodable(const sumi_image_desc* desc, const sumi_references* references, int32_t item,
                                   const char* member, sumi_error* error)
{
    const bool are_kept = references->are_of_prompt && references->count > 0;
    SUMI_REFUSE(are_kept && desc->model->info.prompts_read_references, SUMI_INVALID_ARGUMENT,
                "items[%d].%s cannot be encoded with the references of items[0].prompt, which keeps no image for "
                "the vision tower: give references, or a prompt that was encoded with the same ones",
                (int)item, member);
    return sumi_references_check_vision(desc->model, references, error);
}

// Refuses prompts that do not have the job's references. Texts are encoded with them; encoded prompts must have been
// encoded with as many of the same sizes.
static sumi_result check_image_references(const sumi_image_desc* desc, const sumi_references* references,
                                          sumi_error* error)
{
    SUMI_TRY(sumi_references_check_count(desc->model, references->count, error));
    SUMI_REFUSE(references->count > 0 && !desc->model->info.has_vae_encoder, SUMI_NOT_SUPPORTED,
                "references: the model was opened without a VAE encoder, which reads them");
    for (int32_t i = 0; i < desc->item_count; i++) {
        const sumi_image_item* item = &desc->items[i];
        char member[48];
        snprintf(member, sizeof member, "items[%d].prompt", (int)i);
        if (item->prompt != NULL)
            SUMI_TRY(sumi_references_check_prompt(desc->model, references, item->prompt, member, error));
        else SUMI_TRY(check_encodable(desc, references, i, "text", error));
        if (!is_guided(desc)) continue; // negative prompts are not used
        snprintf(member, sizeof member, "items[%d].negative_prompt", (int)i);
        if (item->negative_prompt != NULL)
            SUMI_TRY(sumi_references_check_prompt(desc->model, references, item->negative_prompt, member, error));
        else SUMI_TRY(check_encodable(desc, references, i, "negative_text", error));
    }
    return SUMI_OK;
}

static sumi_result resolve_size(sumi_image_desc* desc, const sumi_references* references, sumi_error* error)
{
    const sumi_network_info* info = &desc->model->info;
    if (desc->width == 0 && desc->height == 0 && info->max_references > 0) {
        const int32_t index = info->size_follows_last_reference ? references->count - 1 : 0;
        const sumi_pixels* start = desc->start.image;
        // A start image that is a reference is the first one.
        const bool is_start = desc->start.mask != NULL && start != NULL && info->start.is_reference
                           && (references->count == 0 || !info->size_follows_last_reference);
        sumi_picture_size size = {sumi_native_side(desc->model), sumi_native_side(desc->model)};
        if (is_start) {
            sumi_error why = {0};
            const sumi_result result = sumi_network_start_size(
                desc->model->network, (sumi_picture_size){start->width, start->height}, &size, &why);
            if (result != SUMI_OK) return sumi_fail(error, result, "start.image: %s", why.text);
        } else if (references->count > 0) {
            size = references->list[index].sizes.autoencoder;
        }
        desc->width = size.width;
        desc->height = size.height;
    }
    return sumi_check_size(desc->model, desc->width, desc->height, error);
}

sumi_result sumi_image_desc_check(const sumi_engine* engine, const sumi_image_desc* requested_desc,
                                  sumi_image_desc* out_resolved_desc, sumi_error* error)
{
    SUMI_TRY(
        sumi_check_cookie(requested_desc->cookie, SUMI_COOKIE_IMAGE, "sumi_image_desc", "sumi_image_defaults", error));
    SUMI_TRY(sumi_check_model(engine, requested_desc->model, error));
    *out_resolved_desc = *requested_desc;
    const sumi_image_desc* desc = out_resolved_desc;
    SUMI_TRY(check_components(desc, error));
    SUMI_TRY(check_schedule(desc, error));
    SUMI_TRY(check_image_items(desc, error));
    sumi_references references;
    SUMI_TRY(find_references(desc, &references, error));
    SUMI_TRY(check_image_references(desc, &references, error));
    SUMI_TRY(resolve_size(out_resolved_desc, &references, error));
    SUMI_TRY(check_noise(desc, error));
    SUMI_TRY(check_start(desc, error));
    SUMI_TRY(check_values(desc, error));
    SUMI_TRY(sumi_loras_check(desc->model, desc->loras, desc->lora_count, error));
    SUMI_TRY(sumi_controls_check(desc, error));
    SUMI_REFUSE(desc->preview_every < 0, SUMI_INVALID_ARGUMENT,
                "preview_every is %d: give 0 for none, or a number of steps", (int)desc->preview_every);
    SUMI_REFUSE(desc->preview_every > 0 && desc->model->info.preview == NULL, SUMI_NOT_SUPPORTED,
                "preview_every: no preview is known for this model's latents");
    return check_targets(engine, desc, error);
}

static void log_unused_negative(const sumi_engine* engine, const sumi_image_desc* desc)
{
    const sumi_network_info* info = &desc->model->info;
    char text[200];
    if (info->ignores_guidance && desc->guidance.scale != info->guidance_off) {
        snprintf(text, sizeof text,
                 "guidance.scale %g and negative prompts are not used: this model was distilled to run without "
                 "guidance (%g)",
                 (double)desc->guidance.scale, (double)info->guidance_off);
        sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
        return; // one warning per job
    }
    for (int32_t i = 0; i < desc->item_count && !is_guided(desc); i++) {
        const sumi_image_item* item = &desc->items[i];
        if (item->negative_prompt == NULL && (item->negative_text == NULL || item->negative_text[0] == '\0')) continue;
        snprintf(text, sizeof text,
                 info->ignores_guidance
                     ? "items[%d].%s is not used: this model was distilled to run without guidance (%g)"
                     : "items[%d].%s is not used: guidance.scale is %g, which is off for this model; give a larger "
                       "number",
                 (int)i, item->negative_prompt != NULL ? "negative_prompt" : "negative_text",
                 (double)desc->guidance.scale);
        sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
        return;
    }
}

// An encoded prompt is not encoded again, so layers of text encoders do not change it.
static void log_unused_text_layers(const sumi_engine* engine, const sumi_image_desc* desc)
{
    sumi_job_request request = {.lora_count = 0};
    sumi_loras_copy(desc->loras, desc->lora_count, false, true, &request);
    for (int32_t i = 0; i < desc->item_count && request.lora_count > 0; i++) {
        const sumi_prompt* prompt = desc->items[i].prompt;
        if (prompt == NULL || prompt->adapters[0] != '\0') continue;
        char text[320];
        snprintf(text, sizeof text,
                 "items[%d].prompt was encoded without adapters: the layers of text encoders of %s do not change it; "
                 "give the adapter to sumi_prompt_desc too, or set without_text",
                 (int)i, request.loras[0]->name);
        sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
        return; // one warning per job
    }
}

void sumi_image_desc_log_unused(const sumi_engine* engine, const sumi_image_desc* desc)
{
    log_unused_negative(engine, desc);
    log_unused_text_layers(engine, desc);
}

// ---- Copies ---------------------------------------------------------------------------------------------------------

// Returns the index of a prompt in the job's list, and adds the prompt if it is not there. Items with the same text, or
// the same encoded prompt, share an entry, so each text is encoded once.
static int32_t add_prompt(sumi_job_request* request, const char* text, const sumi_prompt* source)
{
    SUMI_ASSERT(source != NULL || text != NULL);
    for (int32_t i = 0; i < request->prompt_count; i++) {
        const sumi_job_prompt* listed = &request->prompts[i];
        if (source != NULL ? listed->source == source : listed->source == NULL && strcmp(listed->text, text) == 0)
            return i;
    }
    // The prompt is const for the host program. That the job is one of its users is not part of that.
    sumi_prompt* shared = (sumi_prompt*)source;
    if (shared != NULL) sumi_prompt_share(shared);
    request->prompts[request->prompt_count] = (sumi_job_prompt){.text = source == NULL ? text : NULL, .source = shared};
    return request->prompt_count++;
}

static void collect_prompts(const sumi_image_desc* desc, sumi_job_request* request)
{
    for (int32_t i = 0; i < desc->item_count; i++) {
        const sumi_image_item* item = &desc->items[i];
        request->items[i] = (sumi_job_item){
            .positive = add_prompt(request, item->text, item->prompt), .negative = -1, .seed = item->seed};
        if (desc->targets == NULL) continue;
        sumi_target* target = &request->items[i].target;
        *target = desc->targets[i];
        // The picture is written to this device memory. sumi_fetch_images copies it into the external.
        if (target->external != NULL) target->device_address = target->external->import.address;
    }
    for (int32_t i = 0; i < desc->item_count && is_guided(desc); i++) {
        const sumi_image_item* item = &desc->items[i];
        const char* text = item->negative_text != NULL ? item->negative_text : sumi_model_negative_text(desc->model);
        request->items[i].negative = add_prompt(request, text, item->negative_prompt);
    }
}

// Packs copies of all arrays of the desc (buffers.h), except those of encoded prompts, which the job shares. The
// measuring pass leaves the pointers to the texts of the host program in place; the second pass replaces them by the
// copies.
static void pack_input(sumi_packer* packer, const sumi_image_desc* desc, const sumi_references* references,
                       sumi_job_request* request)
{
    const bool copies = packer->base != NULL;
    for (int32_t i = 0; i < request->prompt_count; i++) {
        sumi_job_prompt* prompt = &request->prompts[i];
        sumi_prompt* source = prompt->source;
        if (source == NULL) {
            prompt->text_bytes = strlen(prompt->text);
            const char* text = sumi_pack(packer, prompt->text, prompt->text_bytes + 1);
            if (copies) prompt->text = text;
            continue;
        }
        for (int32_t k = 0; k < source->reference_count; k++) {
            prompt->picture_row[k] = source->places[k].row;
            prompt->picture_rows[k] = source->places[k].count;
        }
        for (int32_t e = 0; e < source->encoder_count; e++) {
            prompt->token_count[e] = source->token_count[e];
            prompt->features[e] = sumi_prompt_elements(source, e);
        }
    }
    const uint64_t latent_bytes = (uint64_t)request->latent_channels * (uint64_t)request->latent_height
                                * (uint64_t)request->latent_width * sizeof(float);
    if (desc->sigmas != NULL)
        request->sigmas = sumi_pack(packer, desc->sigmas, ((uint64_t)desc->step_count + 1) * sizeof(float));
    if (desc->noise.values != NULL)
        request->noise_values = sumi_pack(packer, desc->noise.values, (uint64_t)desc->item_count * latent_bytes);
    if (desc->start.latents != NULL) request->start_latents = sumi_pack(packer, desc->start.latents, latent_bytes);
    if (desc->start.noise_values != NULL)
        request->start_noise = sumi_pack(packer, desc->start.noise_values, latent_bytes);
    if (desc->start.image != NULL) request->start_image = sumi_pixels_copy(packer, desc->start.image);
    if (desc->start.mask != NULL) request->mask = sumi_pixels_copy(packer, desc->start.mask);
    request->references = sumi_references_copy(packer, references);
    sumi_controls_copy(packer, desc, request);
}

sumi_result sumi_image_desc_copy(sumi_heap* heap, const sumi_image_desc* desc, sumi_block* lists, sumi_block* input,
                                 sumi_job_request* request, sumi_error* error)
{
    SUMI_ASSERT(request->item_count == 0 && request->prompt_count == 0 && request->lora_count == 0);
    const sumi_network_info* info = &desc->model->info;
    sumi_references references;
    SUMI_TRY(find_references(desc, &references, error));
    const uint64_t item_bytes = (uint64_t)desc->item_count * sizeof *request->items,
                   prompt_bytes = 2 * (uint64_t)desc->item_count * sizeof *request->prompts;
    sumi_packer packer = {NULL, 0};
    (void)sumi_pack(&packer, NULL, item_bytes);
    (void)sumi_pack(&packer, NULL, prompt_bytes);
    SUMI_TRY(sumi_block_reserve(heap, lists, packer.used, "a job's items", error));
    packer = (sumi_packer){lists->data, 0};
    request->items = sumi_pack(&packer, NULL, item_bytes);
    request->prompts = sumi_pack(&packer, NULL, prompt_bytes);
    request->item_count = desc->item_count;
    collect_prompts(desc, request);
    SUMI_ASSERT(request->prompt_count >= 1 && request->prompt_count <= 2 * request->item_count);

    request->goal = SUMI_GOAL_IMAGES;
    request->latent_channels = info->latent_channels;
    request->picture_channels = info->picture_channels;
    request->latent_height = desc->height / info->vae_factor;
    request->latent_width = desc->width / info->vae_factor;
    packer = (sumi_packer){NULL, 0};
    pack_input(&packer, desc, &references, request);
    SUMI_TRY(sumi_block_reserve(heap, input, packer.used, "a job's inputs", error));
    packer = (sumi_packer){input->data, 0};
    pack_input(&packer, desc, &references, request);

    for (int32_t i = 0; i < request->item_count; i++) {
        sumi_job_item* item = &request->items[i];
        item->noise_seed = sumi_network_noise_seed(info, item->seed, references.count > 0);
    }
    request->width = desc->width;
    request->height = desc->height;
    request->step_count = desc->step_count;
    request->guidance = is_guided(desc) ? desc->guidance.scale - info->guidance_off : 0.0f;
    request->guidance_begin = desc->guidance.begin;
    request->guidance_end = desc->guidance.end;
    request->guidance_rule = guidance_rule_of(desc);
    request->norm_limit = desc->guidance.norm_limit;
    request->solver = desc->solver;
    request->shift = desc->shift;
    request->noise = desc->noise.source;
    request->multiprocessors = desc->noise.multiprocessors;
    request->threads_per_multiprocessor = desc->noise.threads_per_multiprocessor;
    request->posterior = desc->start.posterior;
    request->strength = desc->start.strength;
    request->mask_feather = desc->start.mask_feather;
    bool encodes_text = false;
    for (int32_t i = 0; i < request->prompt_count; i++)
        encodes_text = encodes_text || request->prompts[i].source == NULL;
    sumi_loras_copy(desc->loras, desc->lora_count, true, encodes_text, request);
    request->deadline_ms = desc->deadline_ms;
    request->reuse =
        (sumi_reuse_rule){.threshold = desc->step_cache, .db = desc->step_cache_db, .every = desc->step_cache_every};
    request->preview_every = desc->preview_every;
    request->profiles = desc->profile;
    return SUMI_OK;
}
