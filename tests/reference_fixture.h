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

// In one go: RGB of `picture` in another size.
static inline uint8_t* resized(const sumi_pixels* picture, sumi_picture_size size, sumi_filter filter)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    uint8_t *rgb = malloc((size_t)picture->width * (size_t)picture->height * 3),
            *into = malloc((size_t)size.width * (size_t)size.height * 3);
    const int32_t channels = picture->channel_count,
                  apart = picture->row_bytes > 0 ? picture->row_bytes : picture->width * channels;
    for (int32_t y = 0; y < picture->height; y++) {
        for (int32_t x = 0; x < picture->width; x++) {
            const uint8_t* from = (const uint8_t*)picture->data + y * apart + x * channels;
            for (int32_t c = 0; c < 3; c++) rgb[(y * picture->width + x) * 3 + c] = from[channels == 1 ? 0 : c];
        }
    }
    CHECK_NUMBER(sumi_pixels_resize(&heap, &(sumi_pixels){rgb, picture->width, picture->height, picture->width * 3, 3},
                                    &(sumi_resized_pixels){into, size.width, size.height, filter}, &error),
                 SUMI_OK);
    free(rgb);
    return into;
}

static inline bool holds(sumi_engine* engine, const sumi_plan_entry* entry, sumi_value value, const uint8_t* want,
                         sumi_picture_size size)
{
    const size_t bytes = (size_t)size.width * (size_t)size.height * 3;
    uint8_t* got = malloc(bytes);
    bool good = value.id != 0 && sumi_plan_info(&entry->plan, value)->bytes >= bytes;
    if (good) engine->runner->functions->read(engine->runner, &entry->plan, value, 0, got, bytes);
    good = good && memcmp(got, want, bytes) == 0;
    free(got);
    return good;
}

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
