// What the tests of the demo edit model share: an engine with the model on the CPU, jobs of it, and their pixels.
#ifndef DEMO_EDIT_FIXTURE_H
#define DEMO_EDIT_FIXTURE_H
#include "demo_scene.h"
#include "engine_fixture.h"

#define DEMO_EDIT "samples/demo_edit_model"
#define TURBO DEMO_EDIT "/lora/turbo.safetensors"
#define SIDE 256
#define MAX_ITEMS 8 // of the batches here
#define PIXEL_BYTES ((size_t)4 * SIDE * SIDE)
// The model's own settings, as its card has them. They are those of its preset, from its model_index.json.
#define STEPS 20
#define GUIDANCE 2.0f

static sumi_engine* s_engine;
static sumi_model* s_model;

// False when the checkpoint cannot be opened, which counts as a failure.
static inline bool open_demo_edit(void)
{
    sumi_engine_desc desc = host_desc(&s_host);
    desc.cpu_thread_count = 0;
    CHECK_NUMBER(sumi_engine_create(&desc, &s_engine), SUMI_OK);
    s_model = s_engine != NULL ? load_model_at(s_engine, DEMO_EDIT) : NULL;
    if (s_model != NULL) return true;
    printf("FAILED: %s cannot be opened\n%s: 0 passed, 1 failed, 0 skipped\n", DEMO_EDIT, t_program);
    sumi_engine_destroy(s_engine);
    return false;
}

// Of all programs of this model the last test.
static inline void give_everything_back(void)
{
    sumi_engine* engine = s_engine;
    CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
    s_engine = NULL;
    s_model = NULL;
    close_engine(engine);
}

// RGBA8 of any size without a pitch.
static inline sumi_pixels rgba(const void* data, int32_t width, int32_t height)
{
    return (sumi_pixels){data, width, height, 0, 4};
}

// A job as the model's card has it: as large as its last reference, or without one as large as the model's images.
static inline sumi_image_desc edit_of(const sumi_image_item* items, int32_t count, const sumi_pixels* references,
                                      int32_t reference_count)
{
    sumi_image_desc desc = sumi_image_defaults(s_model, SUMI_PRESET_MODEL);
    desc.items = items;
    desc.item_count = count;
    desc.references = references;
    desc.reference_count = reference_count;
    desc.width = desc.height = reference_count > 0 ? 0 : SIDE;
    CHECK_NUMBER(desc.step_count, STEPS);
    CHECK(desc.guidance.scale == GUIDANCE);
    return desc;
}

// Waits for a job and takes its pixels, one image after another; the caller frees. NULL after a failure, which is
// counted. out_images has room for `count`, or is NULL.
static inline uint8_t* take_pixels(sumi_engine* engine, sumi_job job, int32_t count, sumi_image* out_images)
{
    sumi_image images[MAX_ITEMS] = {{0}};
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    const sumi_result result = sumi_fetch_images(engine, job, images, MAX_ITEMS);
    CHECK_NUMBER(result, SUMI_OK);
    if (result != SUMI_OK) return NULL;
    const size_t bytes = (size_t)images[0].row_bytes * (size_t)images[0].height;
    uint8_t* copy = malloc(bytes * (size_t)count);
    for (int32_t i = 0; i < count; i++) memcpy(copy + bytes * (size_t)i, images[i].pixels, bytes);
    for (int32_t i = 0; i < count && out_images != NULL; i++) out_images[i] = images[i];
    sumi_images_release(engine, images, count);
    return copy;
}

static inline uint8_t* draw_pixels(sumi_engine* engine, const sumi_image_desc* desc, sumi_image* out_images)
{
    sumi_job job;
    const sumi_result result = sumi_submit_images(engine, desc, &job);
    CHECK_NUMBER(result, SUMI_OK);
    if (result != SUMI_OK) {
        printf("  %s\n", s_host.log);
        return NULL;
    }
    return take_pixels(engine, job, desc->item_count, out_images);
}
#endif
