// What the engine's tests of each family share: an engine with the family's tiny checkpoint, prompts that are saved and
// loaded, and the checks that hold for every family.
#ifndef SUMI_FAMILY_FIXTURE_H
#define SUMI_FAMILY_FIXTURE_H
#include "engine_fixture.h"

static inline sumi_engine* open_family(const char* path, uint32_t slice_us, sumi_model** out_model)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc = host_desc(&s_host);
    desc.max_slice_us = slice_us;
    sumi_engine* engine = open_engine(&desc, NULL);
    *out_model = engine != NULL ? load_model_at(engine, path) : NULL;
    CHECK(*out_model != NULL);
    return engine;
}

// The caller frees it.
static inline void* save_prompt(const sumi_prompt* prompt, size_t* out_bytes)
{
    *out_bytes = sumi_prompt_save(prompt, NULL, 0);
    void* saved = malloc(*out_bytes + 1);
    CHECK_NUMBER(sumi_prompt_save(prompt, saved, *out_bytes), *out_bytes);
    return saved;
}

// Releases the prompt.
static inline sumi_prompt* save_and_load(sumi_model* model, sumi_prompt* prompt)
{
    size_t bytes;
    void* saved = save_prompt(prompt, &bytes);
    sumi_prompt* loaded = NULL;
    sumi_prompt_release(prompt);
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
    free(saved);
    return loaded;
}

enum { MOST_ADAPTERS = 8 };

// Each adapter gives another picture, by its strength; switched off or released it leaves no trace.
static inline void check_adapters(sumi_engine* engine, sumi_image_desc desc, const char* const* paths, int count)
{
    uint64_t seen[1 + MOST_ADAPTERS];
    const uint64_t bare = seen[0] = draw_hash(engine, &desc);
    CHECK(count <= MOST_ADAPTERS && bare != 0);
    for (int i = 0; i < count && i < MOST_ADAPTERS; i++) {
        sumi_lora* lora = read_lora_at(engine, desc.model, paths[i]);
        sumi_lora_use use = {.lora = lora, .scale = 1.0f};
        desc.loras = &use;
        desc.lora_count = lora != NULL;
        seen[i + 1] = draw_hash(engine, &desc);
        for (int k = 0; k <= i; k++) CHECK(seen[i + 1] != 0 && seen[i + 1] != seen[k]);
        use.scale = 0.5f;
        const uint64_t half = draw_hash(engine, &desc);
        CHECK(half != 0 && half != seen[i + 1] && half != bare);
        use.scale = 0.0f;
        CHECK(draw_hash(engine, &desc) == bare);
        desc.lora_count = 0;
        CHECK(draw_hash(engine, &desc) == bare);
        sumi_lora_release(lora);
    }
}

// A job holds what was known of it beforehand, and a second one takes nothing. Returns the hash of its images.
static inline uint64_t check_memory(sumi_engine* engine, const sumi_image_desc* desc, sumi_memory* out_memory)
{
    CHECK_NUMBER(sumi_image_memory(engine, desc, out_memory), SUMI_OK);
    CHECK_NUMBER(out_memory->weights, sumi_model_get_info(desc->model).weight_bytes);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    const sumi_engine_info after = sumi_engine_get_info(engine);
    CHECK(out_memory->arena > 0 && out_memory->staging > 0 && out_memory->images > 0);
    CHECK_NUMBER(after.held_bytes[SUMI_MEMORY_ARENA], out_memory->arena);
    CHECK_NUMBER(after.held_bytes[SUMI_MEMORY_STAGING], out_memory->staging);
    CHECK_NUMBER(after.held_bytes[SUMI_MEMORY_IMAGE], out_memory->images);
    CHECK_NUMBER(after.host_bytes, s_host.live_bytes);
    const uint64_t first = fetch_hash(engine, job, desc);
    const long long count = s_host.count;
    CHECK(first != 0 && draw_hash(engine, desc) == first);
    CHECK_NUMBER(s_host.count, count);
    return first;
}
#endif
