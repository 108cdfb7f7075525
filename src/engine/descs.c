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

sumi_model_desc sumi_model_defaults(void) { return (sumi_model_desc){.weights = SUMI_WEIGHTS_AUTO, .cookie = SUMI_COOKIE_MODEL}; }

sumi_prompt_desc sumi_prompt_defaults(sumi_model* model) { return (sumi_prompt_desc){.model = model, .cookie = SUMI_COOKIE_PROMPT}; }

sumi_lora_desc sumi_lora_defaults(sumi_model* model) { return (sumi_lora_desc){.model = model, .cookie = SUMI_COOKIE_LORA}; }

sumi_encode_desc sumi_encode_defaults(sumi_model* model)
{
    return (sumi_encode_desc){.model = model, .width = 1024, .height = 1024, .posterior = SUMI_POSTERIOR_MODE, .cookie = SUMI_COOKIE_ENCODE};
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
    if (model->info.max_side > 0 && values.width > model->info.max_side) values.width = model->info.max_side;
    if (model->info.max_side > 0 && values.height > model->info.max_side) values.height = model->info.max_side;
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
