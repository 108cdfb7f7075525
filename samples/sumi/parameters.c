#include "parameters.h"
#include "inside.h"
#include "system.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct text_out {
    char* into;
    size_t capacity, used;
} text_out;

SYSTEM_PRINTF(2, 3)
static void put(text_out* out, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = out->used < out->capacity ? out->capacity - out->used : 0;
    int written = vsnprintf(room ? out->into + out->used : NULL, room, format, arguments);
    if (written > 0) out->used += (size_t)written;
    va_end(arguments);
}

const char* parameters_solver_name(sumi_solver solver)
{
    switch (solver) {
    case SUMI_SOLVER_EULER: return "Euler";
    case SUMI_SOLVER_HEUN: return "Heun";
    case SUMI_SOLVER_MIDPOINT: return "Midpoint";
    case SUMI_SOLVER_DPMPP_2M: return "DPM++ 2M";
    case SUMI_SOLVER_HEUN_FULL: return "Heun full";
    case SUMI_SOLVER_RK4: return "RK4";
    case SUMI_SOLVER_RES_MULTISTEP: return "Res Multistep";
    }
    return "Euler";
}

// Invalid bytes are written as U+FFFD, because the PNG chunk must be UTF-8.
static void put_text(text_out* out, const char* text)
{
    for (const unsigned char* at = (const unsigned char*)text; *at;) {
        size_t bytes = at[0] < 0x80 ? 1 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
        size_t there = strnlen((const char*)at, bytes);
        if (there == bytes && sumi_utf8_is_valid(at, bytes)) put(out, "%.*s", (int)bytes, (const char*)at);
        else put(out, "\xEF\xBF\xBD"), bytes = 1;
        at += bytes;
    }
}

// Programs that read the line split it at commas, so a value that contains one is written in quotes.
static void put_value(text_out* out, const char* key, const char* text)
{
    if (!strpbrk(text, ",:\"\n")) {
        put(out, ", %s: %s", key, text);
        return;
    }
    put(out, ", %s: \"", key);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') put(out, "\\");
        if (*text == '\n') put(out, "\\n");
        else put(out, "%c", *text);
    }
    put(out, "\"");
}

size_t parameters_write(const parameters* from, char* into, size_t capacity)
{
    text_out out = {into, capacity, 0};
    const sumi_image_desc* desc = from->desc;
    if (capacity) into[0] = 0;
    if (from->prompt) put_text(&out, from->prompt);
    put(&out, "\n");
    if (from->negative && from->negative[0]) {
        put(&out, "Negative prompt: ");
        put_text(&out, from->negative);
        put(&out, "\n");
    }
    // Steps are the steps of the whole schedule, also when a start image skips the first ones. The line holds the
    // classic CFG scale, in which 1 means no guidance.
    const double guidance = (double)(desc->guidance - sumi_model_get_info(desc->model).guidance_off) + 1.0;
    int32_t steps = desc->deadline_ms ? from->image->step_count : desc->step_count;
    put(&out, "Steps: %d, Sampler: %s, CFG scale: %g, Seed: %llu, Size: %dx%d", steps,
        parameters_solver_name(desc->solver), guidance, (unsigned long long)from->image->seed, from->image->width,
        from->image->height);
    put_value(&out, "Model", from->model_name);
    if (desc->start_image || desc->start_latents) put(&out, ", Denoising strength: %g", (double)desc->strength);
    if (desc->shift > 0.0f) put(&out, ", Shift: %g", (double)desc->shift);
    put(&out, ", RNG: %s",
        desc->noise == SUMI_NOISE_TORCH_CPU    ? "CPU"
        : desc->noise == SUMI_NOISE_TORCH_CUDA ? "GPU"
                                               : "given");
    static const char* const rules[] = {NULL, "plain", "norm-limit", "norm-rescale"};
    if (desc->guidance_rule > SUMI_GUIDANCE_MODEL && desc->guidance_rule <= SUMI_GUIDANCE_NORM_RESCALE)
        put(&out, ", Guidance rule: %s", rules[desc->guidance_rule]);
    if (desc->reference_count > 0) put(&out, ", References: %d", desc->reference_count);
    if (desc->lora_count > 0) {
        char list[2048];
        text_out names = {list, sizeof list, 0};
        for (int32_t i = 0; i < desc->lora_count; i++)
            put(&names, "%s%s:%g", i ? ", " : "", from->lora_names[i], (double)desc->loras[i].scale);
        put_value(&out, "Lora", list);
    }
    put(&out, ", Version: sumi %s", sumi_version());
    return out.used;
}
