#include "engine/desc_checks.h"
#include "base/assert.h"
#include "base/result.h"
#include "engine/calls.h"
#include "jobs/buffers.h"
#include "jobs/job_pictures.h"
#include "jobs/objects.h"
#include "jobs/plan_job.h"
#include "jobs/plan_key.h"
#include "jobs/prompt.h"
#include "models/limits.h"
#include "models/network.h"
#include "pictures/picture_sizes.h"
#include "pictures/pixels.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

sumi_result sumi_check_model(const sumi_engine* engine, const sumi_model* model, sumi_error* error)
{
    SUMI_REFUSE(model == NULL, SUMI_INVALID_ARGUMENT, "model is NULL: fetch a model first");
    SUMI_REFUSE(model->engine != engine, SUMI_INVALID_ARGUMENT, "model belongs to another engine");
    return SUMI_OK;
}

sumi_result sumi_check_size(const sumi_model* model, int32_t width, int32_t height, sumi_error* error)
{
    const int32_t size_multiple = model->info.size_multiple, max_side = model->info.max_side;
    SUMI_REFUSE(width < size_multiple || width > max_side || width % size_multiple != 0, SUMI_INVALID_ARGUMENT,
                "width is %d: give a multiple of %d up to %d", (int)width, (int)size_multiple, (int)max_side);
    SUMI_REFUSE(height < size_multiple || height > max_side || height % size_multiple != 0, SUMI_INVALID_ARGUMENT,
                "height is %d: give a multiple of %d up to %d", (int)height, (int)size_multiple, (int)max_side);
    return SUMI_OK;
}

sumi_result sumi_check_finite(const float* values, uint64_t count, const char* member, sumi_error* error)
{
    for (uint64_t i = 0; values != NULL && i < count; i++) {
        SUMI_REFUSE(!isfinite(values[i]), SUMI_INVALID_ARGUMENT, "%s[%llu] is %g: give finite numbers", member,
                    (unsigned long long)i, (double)values[i]);
    }
    return SUMI_OK;
}

sumi_pixels sumi_pixels_with_row_bytes(const sumi_pixels* pixels)
{
    sumi_pixels result = *pixels;
    bool is_plausible = pixels->width > 0 && pixels->width <= SUMI_PIXELS_MAX_SIDE && pixels->channel_count > 0
                     && pixels->channel_count <= 4;
    if (result.row_bytes == 0 && is_plausible) result.row_bytes = pixels->width * pixels->channel_count;
    return result;
}

sumi_pixels sumi_pixels_copy(sumi_packer* packer, const sumi_pixels* pixels)
{
    sumi_pixels copy = sumi_pixels_with_row_bytes(pixels);
    const unsigned char* from = copy.data;
    const int32_t source_row_bytes = copy.row_bytes;
    copy.row_bytes = copy.width * copy.channel_count;
    unsigned char* to = sumi_pack(packer, NULL, (uint64_t)copy.row_bytes * (uint64_t)copy.height);
    for (int32_t y = 0; to != NULL && y < copy.height; y++)
        memcpy(to + (size_t)y * (size_t)copy.row_bytes, from + (size_t)y * (size_t)source_row_bytes,
               (size_t)copy.row_bytes);
    copy.data = to;
    return copy;
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

static bool is_scale(float value) { return value >= -1000.0f && value <= 1000.0f; } // false for NaN

sumi_result sumi_loras_check(const sumi_model* model, const sumi_lora_use* loras, int32_t count, sumi_error* error)
{
    SUMI_REFUSE(count < 0 || count > SUMI_MAX_LORAS, SUMI_INVALID_ARGUMENT, "lora_count is %d: give 0 to %d",
                (int)count, SUMI_MAX_LORAS);
    SUMI_REFUSE(count > 0 && loras == NULL, SUMI_INVALID_ARGUMENT, "loras is NULL, but lora_count is %d", (int)count);
    for (int32_t i = 0; i < count; i++) {
        const sumi_lora_use* use = &loras[i];
        SUMI_REFUSE(use->lora == NULL, SUMI_INVALID_ARGUMENT, "loras[%d].lora is NULL", (int)i);
        SUMI_REFUSE(use->lora->model == NULL, SUMI_INVALID_ARGUMENT,
                    "loras[%d].lora: its model was closed; release it and read the adapter for this model", (int)i);
        SUMI_REFUSE(use->lora->model != model, SUMI_INVALID_ARGUMENT, "loras[%d].lora was read for another model",
                    (int)i);
        SUMI_REFUSE(!is_scale(use->scale), SUMI_INVALID_ARGUMENT, "loras[%d].scale is %g: give -1000 to 1000", (int)i,
                    (double)use->scale);
        SUMI_REFUSE(!is_scale(use->text_scale), SUMI_INVALID_ARGUMENT, "loras[%d].text_scale is %g: give -1000 to 1000",
                    (int)i, (double)use->text_scale);
    }
    return SUMI_OK;
}

void sumi_loras_copy(const sumi_lora_use* loras, int32_t count, bool denoises, bool encodes_text,
                     sumi_job_request* request)
{
    SUMI_ASSERT(request->lora_count == 0);
    for (int32_t i = 0; i < count; i++) {
        const sumi_lora_use* use = &loras[i];
        const sumi_adapter_file* file = use->lora->file;
        const bool has_denoiser = denoises && sumi_adapter_get(file)->delta_count > 0,
                   has_text = encodes_text && !use->without_text && sumi_adapter_get_text(file)->delta_count > 0;
        const float chosen = use->text_scale != 0.0f ? use->text_scale : use->scale;
        const float scale = has_denoiser ? use->scale : 0.0f, text_scale = has_text ? chosen : 0.0f;
        if (scale == 0.0f && text_scale == 0.0f) continue;
        request->loras[request->lora_count] = use->lora;
        request->lora_scales[request->lora_count] = scale;
        request->lora_text_scales[request->lora_count++] = text_scale;
    }
}

// ---- References -----------------------------------------------------------------------------------------------------

static sumi_picture_size size_of(const sumi_pixels* pixels)
{
    return (sumi_picture_size){pixels->width, pixels->height};
}

sumi_result sumi_references_check_count(const sumi_model* model, int32_t count, sumi_error* error)
{
    const int32_t min_count = model->info.min_references, max_count = model->info.max_references;
    SUMI_REFUSE(max_count == 0 && count != 0 && model->info.edit_hint[0] != '\0', SUMI_NOT_SUPPORTED, "%s",
                model->info.edit_hint);
    SUMI_REFUSE(max_count == 0 && count != 0, SUMI_NOT_SUPPORTED, "reference_count is %d: %s takes no reference images",
                (int)count, model->info.family);
    SUMI_REFUSE(count < min_count && count >= 0, SUMI_INVALID_ARGUMENT,
                "reference_count is %d: %s makes no image without references, give %d to %d", (int)count,
                model->info.family, (int)min_count, (int)max_count);
    SUMI_REFUSE(count < 0 || count > max_count, SUMI_INVALID_ARGUMENT, "reference_count is %d: give %d to %d",
                (int)count, (int)min_count, (int)max_count);
    return SUMI_OK;
}

sumi_result sumi_references_check(const sumi_model* model, const sumi_pixels* pictures, int32_t count,
                                  sumi_references* out_references, sumi_error* error)
{
    *out_references = (sumi_references){.count = 0};
    SUMI_REFUSE(pictures != NULL && model->info.max_references == 0 && model->info.edit_hint[0] != '\0',
                SUMI_NOT_SUPPORTED, "%s", model->info.edit_hint);
    SUMI_REFUSE(pictures != NULL && model->info.max_references == 0, SUMI_NOT_SUPPORTED,
                "references: %s takes no reference images", model->info.family);
    if (count == 0) return SUMI_OK;
    SUMI_TRY(sumi_references_check_count(model, count, error));
    SUMI_ASSERT(count <= SUMI_MAX_REFERENCES);
    SUMI_REFUSE(pictures == NULL, SUMI_INVALID_ARGUMENT, "references is NULL, but reference_count is %d", (int)count);
    for (int32_t i = 0; i < count; i++) {
        sumi_reference* reference = &out_references->list[i];
        char member[48];
        snprintf(member, sizeof member, "references[%d]", (int)i);
        reference->source = sumi_pixels_with_row_bytes(&pictures[i]);
        SUMI_TRY(sumi_pixels_check(&reference->source, member, error));
        sumi_error why = {0};
        const sumi_result result =
            sumi_network_reference_sizes(model->network, size_of(&reference->source), &reference->sizes, &why);
        if (result != SUMI_OK) return sumi_fail(error, result, "%s: %s", member, why.text);
    }
    out_references->count = count;
    return SUMI_OK;
}

sumi_result sumi_references_check_vision(const sumi_model* model, const sumi_references* references, sumi_error* error)
{
    const bool sees = references->count > 0 && model->info.prompts_read_references;
    SUMI_REFUSE(sees && !model->info.has_vision, SUMI_NOT_SUPPORTED,
                "references: the model was opened without a vision tower, which texts with references need; open it "
                "with vision_path, or use prompts that were encoded with them before");
    return SUMI_OK;
}

void sumi_references_of_prompt(const sumi_prompt* prompt, sumi_references* out_references)
{
    *out_references = (sumi_references){.count = prompt->reference_count, .are_of_prompt = true};
    for (int32_t i = 0; i < prompt->reference_count; i++) {
        const sumi_picture_size size = prompt->reference_sizes[i];
        out_references->list[i] = (sumi_reference){.source = {.data = prompt->references[i],
                                                              .width = size.width,
                                                              .height = size.height,
                                                              .row_bytes = prompt->picture_channels * size.width,
                                                              .channel_count = prompt->picture_channels},
                                                   .sizes = {.resized = size, .autoencoder = size}};
    }
}

sumi_result sumi_references_check_prompt(const sumi_model* model, const sumi_references* references,
                                         const sumi_prompt* prompt, const char* member, sumi_error* error)
{
    if (!model->info.prompts_read_references) return SUMI_OK;
    SUMI_REFUSE(prompt->reference_count != references->count, SUMI_INVALID_ARGUMENT,
                "%s was encoded with %d reference images, this job has %d: encode it again with the same ones", member,
                (int)prompt->reference_count, (int)references->count);
    for (int32_t i = 0; i < references->count; i++) {
        const sumi_picture_size size = references->list[i].sizes.autoencoder, prompt_size = prompt->reference_sizes[i];
        SUMI_REFUSE(size.width != prompt_size.width || size.height != prompt_size.height, SUMI_INVALID_ARGUMENT,
                    "%s was encoded with another image for references[%d]: of %d x %d, as the VAE reads it, where "
                    "this job's is %d x %d; encode it again with the same ones",
                    member, (int)i, (int)prompt_size.width, (int)prompt_size.height, (int)size.width, (int)size.height);
    }
    return SUMI_OK;
}

sumi_references sumi_references_copy(sumi_packer* packer, const sumi_references* references)
{
    sumi_references copy = *references;
    for (int32_t i = 0; i < copy.count && !copy.are_of_prompt; i++)
        copy.list[i].source = sumi_pixels_copy(packer, &references->list[i].source);
    return copy;
}
