// What tests of references share: small pictures that refer to those of edit_fixture.h, and prompts that keep them.
#ifndef REFERENCE_FIXTURE_H
#define REFERENCE_FIXTURE_H
#include "edit_fixture.h"

#define OPEN_EDIT_WITH(slice_us, rule, engine, model)                                                                  \
    OPEN_WITH(slice_us, engine, model);                                                                                \
    make_edit_model(model, (rule), &s_cells)

#define OPEN_EDIT(rule, engine, model) OPEN_EDIT_WITH(2000, rule, engine, model)

// A small picture that refers to the first `count` of edit_pictures.
static inline sumi_image_desc edit_image(sumi_model* model, const sumi_image_item* item, int32_t count)
{
    sumi_image_desc desc = small_image(model, item);
    desc.references = count > 0 ? edit_pictures() : NULL;
    desc.reference_count = count;
    desc.width = desc.height = 0;
    return desc;
}

static inline sumi_prompt* encode_edit(sumi_engine* engine, sumi_model* model, const char* text, int32_t count)
{
    return encode_with(engine, model, text, count > 0 ? edit_pictures() : NULL, count);
}

// fetch_hash needs the size.
static inline uint64_t edit_hash(sumi_engine* engine, const sumi_image_desc* desc)
{
    sumi_image_desc sized = *desc;
    sumi_size size;
    if (sumi_image_size(desc, &size) != SUMI_OK) {
        printf("  no size: %s\n", s_host.log);
        return 0;
    }
    sumi_job job;
    if (sumi_submit_images(engine, desc, &job) != SUMI_OK) return 0;
    sumi_job_wait(engine, job, SUMI_FOREVER);
    sized.width = size.width;
    sized.height = size.height;
    return fetch_hash(engine, job, &sized);
}

// ---- Pixels ---------------------------------------------------------------------------------------------------------

// The plan that was used last.
static inline const sumi_plan_entry* newest_plan(const sumi_engine* engine)
{
    const sumi_plan_entry* newest = &engine->cache.entries[0];
    for (int i = 1; i < SUMI_PLAN_CACHE_SIZE; i++) {
        if (engine->cache.entries[i].used > newest->used) newest = &engine->cache.entries[i];
    }
    return newest;
}
#endif
