// What the tests of families share (families.h): an engine with the tiny checkpoint of a row, a small picture, its
// references, prompts that are saved and loaded.
#ifndef SUMI_FAMILY_FIXTURE_H
#define SUMI_FAMILY_FIXTURE_H
#include "engine_fixture.h"
#include "families.h"
#include "jobs/objects.h"
#include "models/network_state.h"

static const family_row* s_family; // whose turn it is

// Runs a test for every row for which the condition holds. A text on the command line may be a row's name, too.
#define RUN_FOR_ROWS(test, condition)                                                                                  \
    for (s_family = s_families; s_family < s_families + FAMILY_COUNT; s_family++) {                                    \
        char label[128];                                                                                               \
        snprintf(label, sizeof label, "%s.%s", #test, s_family->name);                                                 \
        if (condition) RUN_AS(label, test_##test());                                                                   \
    }
#define RUN_FOR_FAMILIES(test) RUN_FOR_ROWS(test, true)
#define RUN_FOR_NETWORKS(test) RUN_FOR_ROWS(test, !s_family->is_variant)
// Also for the variants whose references are computed once per job: tests that draw with references.
#define RUN_WITH_REFERENCES(test) RUN_FOR_ROWS(test, !s_family->is_variant || s_family->keeps_references)

static inline const family_row* find_family(const char* name)
{
    const family_row* f = s_families;
    while (f + 1 < s_families + FAMILY_COUNT && strcmp(f->name, name) != 0) f++;
    CHECK_TEXT(f->name, name);
    return f;
}

static inline sumi_model_desc family_desc(const family_row* f)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = f->tiny.path;
    desc.transformer_path = f->tiny.transformer_path;
    desc.text_encoder_path = f->tiny.text_encoder_path;
    desc.tokenizer_path = f->tiny.tokenizer_path;
    desc.processor_path = f->tiny.processor_path;
    desc.vae_path = f->tiny.vae_path;
    desc.variant = f->names_variant ? f->variant : NULL;
    return desc;
}

// Gives an open model the areas of references of its row. model: or NULL.
static inline sumi_model* adapt_family(const family_row* f, sumi_model* model)
{
    static sumi_recipe s_recipes[FAMILY_COUNT];
    if (model == NULL || f->reference_area == 0) return model;
    sumi_recipe* recipe = &s_recipes[f - s_families];
    *recipe = *model->network->recipe;
    recipe->references.autoencoder_area = f->reference_area;
    if (recipe->references.vision_area > 0) recipe->references.vision_area = f->reference_area;
    model->network->recipe = recipe;
    return model;
}

static inline sumi_model* load_family(sumi_engine* engine, const family_row* f)
{
    const sumi_model_desc desc = family_desc(f);
    sumi_model* model = adapt_family(f, load_model_of(engine, &desc));
    CHECK(model != NULL);
    return model;
}

static inline sumi_engine* open_family_with(uint32_t slice_us, sumi_model** out_model)
{
    sumi_engine* engine = fresh_engine_with(slice_us, NULL);
    *out_model = engine != NULL ? load_family(engine, s_family) : NULL;
    return engine;
}

#define OPEN_FAMILY_WITH(slice_us, engine, model)                                                                      \
    sumi_model* model = NULL;                                                                                          \
    sumi_engine* engine = open_family_with(slice_us, &model);                                                          \
    if (model == NULL) return
#define OPEN_FAMILY(engine, model) OPEN_FAMILY_WITH(2000, engine, model)
// For a test of one row.
#define OPEN_ROW(name, engine, model)                                                                                  \
    s_family = find_family(name);                                                                                      \
    OPEN_FAMILY(engine, model)

// Two photographs of odd sizes, the first of which has alpha and room between its rows. No family refuses pictures of
// 64 pixels along a side as too small.
static inline const sumi_pixels* family_pictures(void)
{
    static uint8_t s_data[2][64 * 80 * 4];
    static sumi_pixels s_pictures[2];
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < sizeof s_data[k]; i++)
            s_data[k][i] = (uint8_t)((i * (31 + k) + i / 97 + (i / 7) * k) & 255);
    }
    s_pictures[0] = (sumi_pixels){s_data[0], 70, 64, 70 * 4 + 8, 4};
    s_pictures[1] = (sumi_pixels){s_data[1], 64, 79, 0, 3};
    return s_pictures;
}

static inline void use_references(sumi_image_desc* desc, int32_t count)
{
    desc->references = count > 0 ? family_pictures() : NULL;
    desc->reference_count = count;
}

static inline int32_t family_side(void) { return s_family->side > 0 ? s_family->side : FAMILY_SIDE; }

// How many of the pictures a family takes at once.
static inline int32_t most_pictures(void) { return s_family->max_references < 2 ? s_family->max_references : 2; }

// A small picture of two steps with the fewest references. It is guided, if that changes anything.
static inline sumi_image_desc family_image(sumi_model* model, const sumi_image_item* item)
{
    sumi_image_desc desc = small_image(model, item);
    desc.width = desc.height = family_side();
    use_references(&desc, s_family->min_references);
    desc.guidance.scale = sumi_model_get_info(model).guidance_off + (s_family->ignores_guidance ? 0.0f : 3.0f);
    desc.guidance.begin = 0.0f;
    desc.guidance.end = 1.0f;
    desc.solver = SUMI_SOLVER_EULER;
    return desc;
}

// A text for the picture, with its references if prompts read them.
static inline sumi_prompt_desc prompt_of(const sumi_image_desc* image, const char* text)
{
    sumi_prompt_desc desc = sumi_prompt_defaults(image->model);
    desc.text = text;
    if (s_family->prompts_read_references) {
        desc.references = image->references;
        desc.reference_count = image->reference_count;
    }
    return desc;
}

static inline sumi_prompt* encode_for(sumi_engine* engine, const sumi_image_desc* image, const char* text)
{
    const sumi_prompt_desc desc = prompt_of(image, text);
    return encode_prompt_of(engine, &desc);
}

// The prompts of a picture's item in place of its texts: tests of something else need not encode them each time.
typedef struct encoded_item {
    sumi_image_item item;
    sumi_prompt *positive, *negative;
} encoded_item;

static inline encoded_item encode_item(sumi_engine* engine, const sumi_image_desc* image)
{
    const sumi_image_item* words = image->items;
    encoded_item e = {.positive = encode_for(engine, image, words->text),
                      .negative = encode_for(engine, image, words->negative_text)};
    e.item = (sumi_image_item){.prompt = e.positive, .negative_prompt = e.negative, .seed = words->seed};
    return e;
}

static inline void release_item(encoded_item* e)
{
    sumi_prompt_release(e->positive);
    sumi_prompt_release(e->negative);
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
#endif
