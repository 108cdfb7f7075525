#include "jobs/prompt.h"
#include "base/assert.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/result.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "models/limits.h"
#include "pictures/picture_sizes.h"
#include "plan/runner.h"
#include <stdio.h>
#include <string.h>

void sumi_prompt_share(sumi_prompt* prompt)
{
    sumi_mutex_lock(&prompt->engine->state_lock);
    SUMI_ASSERT(prompt->user_count >= 1);
    prompt->user_count++;
    sumi_mutex_unlock(&prompt->engine->state_lock);
}

void sumi_prompt_free(sumi_prompt* prompt)
{
    if (prompt == NULL) return;
    sumi_engine* engine = prompt->engine;
    sumi_prompt* unused = NULL;
    sumi_mutex_lock(&engine->state_lock);
    SUMI_ASSERT(prompt->user_count >= 1);
    if (--prompt->user_count == 0) {
        SUMI_LIST_REMOVE(prompt);
        unused = engine->spare_prompt; // of the two, the larger block is kept
        if (unused == NULL || unused->block_bytes <= prompt->block_bytes) engine->spare_prompt = prompt;
        else unused = prompt;
    }
    sumi_mutex_unlock(&engine->state_lock);
    sumi_free(&engine->heap, unused);
}

void sumi_prompts_close(sumi_engine* engine)
{
    while (engine->prompts != NULL) {
        SUMI_ASSERT(engine->prompts->user_count == 1); // no job is left
        sumi_prompt_free(engine->prompts);
    }
    sumi_free(&engine->heap, engine->spare_prompt);
    engine->spare_prompt = NULL;
}

// Takes the spare block if it is large enough. A block of more than four times the size stays: the next long prompt
// needs it, and a short one that is kept for long would keep it all. *out_bytes: its size.
static void* take_spare(sumi_engine* engine, uint64_t bytes, uint64_t* out_bytes)
{
    sumi_mutex_lock(&engine->state_lock);
    sumi_prompt* spare = engine->spare_prompt;
    if (spare != NULL && (spare->block_bytes < bytes || spare->block_bytes / 4 > bytes)) spare = NULL;
    if (spare != NULL) {
        *out_bytes = spare->block_bytes;
        engine->spare_prompt = NULL;
    }
    sumi_mutex_unlock(&engine->state_lock);
    return spare;
}

const float* sumi_prompt_floats(sumi_prompt* prompt, int32_t encoder)
{
    SUMI_ASSERT(encoder >= 0 && encoder < prompt->encoder_count && (prompt->has_features || prompt->has_halves));
    for (int32_t e = 0; e < prompt->encoder_count && !prompt->has_features; e++)
        sumi_dtype_to_float(SUMI_DTYPE_BF16, prompt->halves[e], prompt->features[e],
                            sumi_prompt_value_count(prompt, e));
    prompt->has_features = true;
    return prompt->features[encoder];
}

const void* sumi_prompt_elements(sumi_prompt* prompt, int32_t encoder)
{
    SUMI_ASSERT(encoder >= 0 && encoder < prompt->encoder_count && (prompt->has_features || prompt->has_halves));
    if (prompt->halves[encoder] == NULL) return prompt->features[encoder];
    for (int32_t e = 0; e < prompt->encoder_count && !prompt->has_halves; e++)
        sumi_floats_to_bf16(prompt->features[e], prompt->halves[e], sumi_prompt_value_count(prompt, e));
    prompt->has_halves = true;
    return prompt->halves[encoder];
}

static sumi_prompt* pack_prompt(sumi_packer* packer, const sumi_prompt_shape* shape, bool has_halves)
{
    sumi_prompt* prompt = sumi_pack(packer, NULL, sizeof *prompt);
    if (prompt != NULL) memset(prompt, 0, sizeof *prompt);
    for (int32_t e = 0; e < shape->encoder_count; e++) {
        const uint64_t count = (uint64_t)shape->token_count[e] * (uint64_t)shape->width[e];
        float* features = sumi_pack(packer, NULL, count * sizeof *features);
        uint16_t* halves = has_halves ? sumi_pack(packer, NULL, count * sizeof *halves) : NULL;
        if (prompt == NULL) continue;
        prompt->features[e] = features;
        prompt->halves[e] = halves;
        prompt->token_count[e] = shape->token_count[e];
        prompt->width[e] = shape->width[e];
    }
    for (int32_t i = 0; i < shape->reference_count; i++) {
        const sumi_picture_size size = shape->references[i];
        const uint64_t pixel_bytes = (uint64_t)shape->picture_channels;
        unsigned char* pixels = sumi_pack(packer, NULL, (uint64_t)size.width * (uint64_t)size.height * pixel_bytes);
        if (prompt == NULL) continue;
        prompt->references[i] = pixels;
        prompt->reference_sizes[i] = size;
        prompt->places[i] = shape->places[i];
    }
    const char* adapters = shape->adapters != NULL ? shape->adapters : "";
    char* copy = sumi_pack(packer, adapters, strlen(adapters) + 1);
    if (prompt != NULL) prompt->adapters = copy;
    return prompt;
}

sumi_result sumi_prompt_create(sumi_engine* engine, const sumi_prompt_shape* shape, sumi_prompt** out_prompt,
                               sumi_error* error)
{
    SUMI_ASSERT(shape->encoder_count >= 1 && shape->encoder_count <= SUMI_MAX_TEXT_ENCODERS);
    SUMI_ASSERT(shape->reference_count >= 0 && shape->reference_count <= SUMI_MAX_REFERENCES);
    SUMI_ASSERT(shape->reference_count == 0 || shape->picture_channels == 3 || shape->picture_channels == 4);
    SUMI_ASSERT(strlen(shape->family) < SUMI_FAMILY_BYTES);
    SUMI_ASSERT(shape->adapters == NULL || strlen(shape->adapters) < SUMI_PROMPT_ADAPTERS_BYTES);
    *out_prompt = NULL;
    const bool has_halves = engine->runner->functions->element_bytes(engine->runner, SUMI_ELEMENT_ACTIVATION) == 2;
    sumi_packer packer = {NULL, 0};
    (void)pack_prompt(&packer, shape, has_halves);
    uint64_t block_bytes = packer.used;
    void* block = take_spare(engine, packer.used, &block_bytes);
    if (block == NULL && packer.used < SIZE_MAX / 2) block = sumi_alloc(&engine->heap, (size_t)packer.used);
    if (block == NULL) return sumi_out_of_memory(error, (size_t)packer.used, "an encoded prompt");
    packer = (sumi_packer){block, 0};
    sumi_prompt* prompt = pack_prompt(&packer, shape, has_halves);
    prompt->engine = engine;
    prompt->user_count = 1;
    prompt->has_features = true;
    prompt->block_bytes = block_bytes;
    prompt->encoder_count = shape->encoder_count;
    prompt->reference_count = shape->reference_count;
    prompt->picture_channels = shape->picture_channels;
    snprintf(prompt->family, sizeof prompt->family, "%s", shape->family);
    SUMI_OBJECT_ADD(prompts, prompt);
    *out_prompt = prompt;
    return SUMI_OK;
}
