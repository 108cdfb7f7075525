// The public functions that need no engine: the defaults of descs, the version, and what results mean. They keep no
// state: any thread may call them at any time.
#include "base/result_text.h"
#include "engine/calls.h"
#include "engine/models.h"
#include "jobs/objects.h"
#include "models/network.h"
#include "sampling/presets.h"
#include <sumi.h>
#include <sumi_xml.h>

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
    return (sumi_model_desc){.weights = SUMI_WEIGHTS_AUTO,
                             .text_weights = SUMI_WEIGHTS_AUTO,
                             .attention = SUMI_ATTENTION_AUTO,
                             .cookie = SUMI_COOKIE_MODEL};
}

sumi_prompt_desc sumi_prompt_defaults(sumi_model* model)
{
    return (sumi_prompt_desc){.model = model, .cookie = SUMI_COOKIE_PROMPT};
}

sumi_import_desc sumi_import_defaults(void)
{
    return (sumi_import_desc){.fd = -1, .format = SUMI_FORMAT_RGBA8, .level_count = 1, .cookie = SUMI_COOKIE_IMPORT};
}

sumi_xml_prompt_desc sumi_xml_prompt_defaults(void) { return (sumi_xml_prompt_desc){.cookie = SUMI_COOKIE_XML_PROMPT}; }

sumi_lora_desc sumi_lora_defaults(sumi_model* model)
{
    return (sumi_lora_desc){.model = model, .cookie = SUMI_COOKIE_LORA};
}

sumi_control_desc sumi_control_defaults(sumi_model* model)
{
    return (sumi_control_desc){.model = model, .cookie = SUMI_COOKIE_CONTROL};
}

static const sumi_preset_values* preset_of(const sumi_model* model, sumi_preset preset)
{
    // The host program may have cast any number to sumi_preset.
    return &model->info.presets[(int)preset < 0 || (int)preset >= SUMI_PRESET_COUNT ? SUMI_PRESET_MODEL : preset];
}

sumi_encode_desc sumi_encode_defaults(sumi_model* model)
{
    sumi_encode_desc desc = {.model = model, .posterior = SUMI_POSTERIOR_MODE, .cookie = SUMI_COOKIE_ENCODE};
    if (model == NULL) return desc;
    desc.width = preset_of(model, SUMI_PRESET_MODEL)->width;
    desc.height = preset_of(model, SUMI_PRESET_MODEL)->height;
    // The presets of models whose picture size follows the references have the size 0 x 0.
    if (desc.width == 0) desc.width = desc.height = sumi_native_side(model);
    return desc;
}

// Guidance decides most while there is more noise than picture. What leaving it out later costs: bench.md, "Guidance in
// a part of the steps".
#define LEAN_GUIDANCE_END 0.5f

sumi_image_desc sumi_image_defaults(sumi_model* model, sumi_preset preset)
{
    sumi_image_desc desc = {
        .model = model,
        .noise = {.source = SUMI_NOISE_TORCH_CPU, .multiprocessors = 132, .threads_per_multiprocessor = 2048},
        .start = {.posterior = SUMI_POSTERIOR_SAMPLE},
        .cookie = SUMI_COOKIE_IMAGE,
    };
    if (model == NULL) return desc;
    const sumi_preset_values* values = preset_of(model, preset);
    desc.width = values->width;
    desc.height = values->height;
    desc.step_count = values->step_count;
    desc.guidance = (sumi_guidance){.scale = values->guidance,
                                    .begin = values->guidance_begin,
                                    .end = values->guidance_end,
                                    .rule = values->guidance_rule,
                                    .norm_limit = values->guidance_norm_limit};
    if (preset == SUMI_PRESET_LEAN && desc.guidance.end > LEAN_GUIDANCE_END) desc.guidance.end = LEAN_GUIDANCE_END;
    desc.solver = values->solver;
    desc.shift = values->shift;
    desc.start.strength = values->strength;
    desc.start.posterior = model->info.start.posterior;
    return desc;
}

// ---- The version and results ----------------------------------------------------------------------------------------

const char* sumi_result_text(sumi_result result) { return sumi_result_sentence(result); }

#define DIGITS_OF(number) #number
#define DIGITS(number) DIGITS_OF(number)
const char* sumi_version(void)
{
    return DIGITS(SUMI_VERSION_MAJOR) "." DIGITS(SUMI_VERSION_MINOR) "." DIGITS(SUMI_VERSION_PATCH);
}

sumi_result sumi_check_version(uint32_t header_version)
{
    return header_version / 1000u == SUMI_VERSION_NUMBER / 1000u ? SUMI_OK : SUMI_VERSION_MISMATCH;
}
