#include "jobs/prompt.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/result.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "models/limits.h"
#include "pictures/picture_sizes.h"
#include <stdio.h>
#include <string.h>

void sumi_prompt_free(sumi_prompt* prompt)
{
    if (prompt == NULL) return;
    sumi_engine* engine = prompt->engine;
    sumi_mutex_lock(&engine->state_lock);
    SUMI_LIST_REMOVE(prompt);
    sumi_prompt* unused = engine->spare_prompt; // of the two, the larger block is kept
    if (unused == NULL || unused->block_bytes <= prompt->block_bytes) engine->spare_prompt = prompt;
    else unused = prompt;
    sumi_mutex_unlock(&engine->state_lock);
    sumi_free(&engine->heap, unused);
}

void sumi_prompts_close(sumi_engine* engine)
{
    SUMI_ASSERT(engine->prompts == NULL);
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

static sumi_prompt* pack_prompt(sumi_packer* packer, const sumi_prompt_shape* shape)
{
    sumi_prompt* prompt = sumi_pack(packer, NULL, sizeof *prompt);
    if (prompt != NULL) memset(prompt, 0, sizeof *prompt);
    for (int32_t e = 0; e < shape->encoder_count; e++) {
        float* features =
            sumi_pack(packer, NULL, (uint64_t)shape->token_count[e] * (uint64_t)shape->width[e] * sizeof *features);
        if (prompt == NULL) continue;
        prompt->features[e] = features;
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
    sumi_packer packer = {NULL, 0};
    (void)pack_prompt(&packer, shape);
    uint64_t block_bytes = packer.used;
    void* block = take_spare(engine, packer.used, &block_bytes);
    if (block == NULL && packer.used < SIZE_MAX / 2) block = sumi_alloc(&engine->heap, (size_t)packer.used);
    if (block == NULL) return sumi_out_of_memory(error, (size_t)packer.used, "an encoded prompt");
    packer = (sumi_packer){block, 0};
    sumi_prompt* prompt = pack_prompt(&packer, shape);
    prompt->engine = engine;
    prompt->block_bytes = block_bytes;
    prompt->encoder_count = shape->encoder_count;
    prompt->reference_count = shape->reference_count;
    prompt->picture_channels = shape->picture_channels;
    snprintf(prompt->family, sizeof prompt->family, "%s", shape->family);
    sumi_mutex_lock(&engine->state_lock);
    SUMI_LIST_INSERT(engine->prompts, prompt);
    sumi_mutex_unlock(&engine->state_lock);
    *out_prompt = prompt;
    return SUMI_OK;
}
