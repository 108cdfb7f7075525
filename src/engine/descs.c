// Every default in one place.
#include "engine/engine.h"
#include "sampling/presets.h"
#include <string.h>

sumi_engine_desc sumi_engine_defaults(void)
{
    sumi_engine_desc desc = {.backend = SUMI_BACKEND_AUTO};
    desc.cuda.ordinal = -1;
    desc.pump = SUMI_PUMP_UPDATE;
    desc.job_capacity = 16;
    desc.max_slice_us = 2000;
    desc.cpu_thread_count = 1;
    desc.cookie = SUMI_COOKIE_ENGINE;
    return desc;
}

sumi_model_desc sumi_model_defaults(void)
{
    return (sumi_model_desc){.weights = SUMI_WEIGHTS_AUTO, .cookie = SUMI_COOKIE_MODEL};
}

sumi_prompt_desc sumi_prompt_defaults(sumi_model* model)
{
    return (sumi_prompt_desc){.model = model, .cookie = SUMI_COOKIE_PROMPT};
}

sumi_lora_desc sumi_lora_defaults(sumi_model* model)
{
    return (sumi_lora_desc){.model = model, .cookie = SUMI_COOKIE_LORA};
}

// A preset's side is meant for models of 1024 x 1024; others get the same share of their own size.
static int32_t scaled_side(const sumi_model* model, int32_t side)
{
    const sumi_network_info* info = &model->info;
    if (info->sample_size > 0) side = (int32_t)((int64_t)side * info->sample_size / 1024);
    if (info->max_side > 0 && side > info->max_side) side = info->max_side;
    const int32_t multiple = info->size_multiple > 0 ? info->size_multiple : 1;
    return side / multiple * multiple > 0 ? side / multiple * multiple : multiple;
}

sumi_encode_desc sumi_encode_defaults(sumi_model* model)
{
    const int32_t side = model != NULL ? scaled_side(model, 1024) : 1024;
    return (sumi_encode_desc){
        .model = model, .width = side, .height = side, .posterior = SUMI_POSTERIOR_MODE, .cookie = SUMI_COOKIE_ENCODE};
}

static sumi_preset_values preset_of(const sumi_model* model, sumi_preset preset)
{
    bool is_base = model != NULL && model->info.variant != NULL && strcmp(model->info.variant, "base") == 0;
    sumi_preset_values values = sumi_preset_get(is_base ? SUMI_PRESET_Z_IMAGE_BASE : SUMI_PRESET_Z_IMAGE_TURBO, preset);
    if (model == NULL) return values;
    if (preset == SUMI_PRESET_MODEL && model->info.step_count > 0) { // the checkpoint knows best what its authors say
        values.step_count = model->info.step_count;
        values.guidance = model->info.guidance;
    }
    values.width = scaled_side(model, values.width);
    values.height = scaled_side(model, values.height);
    return values;
}

sumi_image_desc sumi_image_defaults(sumi_model* model, sumi_preset preset)
{
    sumi_preset_values values = preset_of(model, preset);
    return (sumi_image_desc){
        .model = model,
        .width = values.width,
        .height = values.height,
        .step_count = values.step_count,
        .guidance = values.guidance,
        .guidance_begin = 0.0f,
        .guidance_end = values.cfg_truncation,
        .guidance_norm_limit = values.cfg_normalization,
        .solver = values.solver,
        .shift = values.shift,
        .noise = SUMI_NOISE_TORCH_CPU,
        .noise_multiprocessors = 132,
        .noise_threads_per_multiprocessor = 2048,
        .start_posterior = SUMI_POSTERIOR_SAMPLE,
        .strength = 0.6f,
        .cookie = SUMI_COOKIE_IMAGE,
    };
}
