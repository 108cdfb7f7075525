// What Qwen-Image alone has, through the public functions, with the tiny text-to-image checkpoint. What holds for every
// family is in test_families.c and test_family_jobs.c, and what the edit pipelines draw in test_engine_edits.c.
#include "family_fixture.h"
#include "jobs/engine_state.h"
#include "picture.h"

#define QWEN "tests/golden/qwen-image/"
#define ITEM(words, number) ((sumi_image_item){.text = (words), .negative_text = " ", .seed = (number)})

// Loads with a variant; the result of the job, and the model when it is SUMI_OK.
static sumi_result load_variant(sumi_engine* engine, const char* variant, sumi_model** out_model, char* message,
                                size_t message_bytes)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = s_family->tiny.path;
    desc.variant = variant;
    sumi_job job;
    *out_model = NULL;
    const sumi_result result = sumi_submit_model(engine, &desc, &job);
    if (result != SUMI_OK) return result;
    sumi_job_wait(engine, job, SUMI_FOREVER);
    snprintf(message, message_bytes, "%s", sumi_job_poll(engine, job).message);
    return sumi_fetch_model(engine, job, out_model);
}

// A small guided picture.
static sumi_image_desc small_qwen(sumi_model* model, const sumi_image_item* item)
{
    sumi_image_desc desc = small_image(model, item);
    desc.width = 48;
    return desc;
}

// ---- What the model says --------------------------------------------------------------------------------------------

TEST(facts_and_presets_are_the_authors)
{
    OPEN_ROW("qwen-image", engine, model);
    const sumi_model_info info = sumi_model_get_info(model);
    CHECK_TEXT(info.family, "qwen-image");
    CHECK_TEXT(info.variant, "first");
    CHECK_TEXT(info.negative_text, " ");
    CHECK(info.uses_guidance && info.has_text_encoder && info.has_vae_encoder && !info.takes_references);
    CHECK(info.min_references == 0 && info.max_references == 0);
    CHECK(info.guidance == 4.0f && info.guidance_off == 1.0f);
    CHECK_NUMBER(info.guidance_formula, SUMI_GUIDANCE_FROM_NEGATIVE);
    CHECK_NUMBER(info.guidance_rule, SUMI_GUIDANCE_NORM_RESCALE);
    CHECK_NUMBER(info.size_multiple, 16);
    CHECK_NUMBER(info.latent_channels, 16);
    CHECK_NUMBER(info.native_size, 1328);
    CHECK_NUMBER(info.size_count, 7);
    CHECK(info.sizes[1].width == 1664 && info.sizes[1].height == 928);
    const sumi_image_desc own = sumi_image_defaults(model, SUMI_PRESET_MODEL),
                          fast = sumi_image_defaults(model, SUMI_PRESET_FAST),
                          preview = sumi_image_defaults(model, SUMI_PRESET_PREVIEW);
    CHECK(own.width == 1328 && own.height == 1328 && own.guidance.scale == 4.0f && own.shift == 0.0f);
    CHECK_NUMBER(own.step_count, 50);
    CHECK_NUMBER(fast.step_count, 4);
    CHECK(fast.guidance.scale == info.guidance_off && fast.shift == 3.0f);
    CHECK(preview.width == 768 && preview.step_count < own.step_count);
    close_engine(engine);
}

TEST(a_variant_is_what_the_caller_says)
{
    OPEN_ROW("qwen-image", engine, model);
    sumi_model *other, *none;
    char message[512];
    CHECK_NUMBER(load_variant(engine, "2512", &other, message, sizeof message), SUMI_OK);
    const sumi_model_info info = sumi_model_get_info(other);
    CHECK_TEXT(info.family, "qwen-image");
    CHECK_TEXT(info.variant, "2512");
    CHECK(strncmp(info.negative_text, "低分辨率，低画质", strlen("低分辨率，低画质")) == 0);
    CHECK(strlen(info.negative_text) > 100);
    sumi_model_close(other);
    // the files are no other family's, and no text is a variant by chance
    static const char* const s_unknown[] = {"2513", "turbo", "251", "2512 "};
    for (size_t i = 0; i < sizeof s_unknown / sizeof *s_unknown; i++) {
        CHECK_NUMBER(load_variant(engine, s_unknown[i], &none, message, sizeof message), SUMI_INVALID_ARGUMENT);
        CHECK(none == NULL && strstr(message, s_unknown[i]) != NULL && strstr(message, "2512") != NULL);
    }
    close_engine(engine);
}

// ---- The references' latents ----------------------------------------------------------------------------------------

typedef struct pipeline_case {
    const char *name, *text, *negative_text;
    sumi_preset preset;
    int32_t width, height, step_count;
    float strength;
    const char *lora, *start, *mask; // files; NULL: none
} pipeline_case;

// Their texts, sizes and steps are those of the cases' json.
static const pipeline_case s_cases[] = {
    {"pipe-t2i", "A red fox reads a newspaper, 超清", "低画质，扭曲", SUMI_PRESET_MODEL, 64, 48, 6, 1, NULL, NULL,
     NULL},
    {"pipe-t2i-nocfg", "A quiet harbour at dawn", NULL, SUMI_PRESET_MODEL, 48, 64, 2, 1, NULL, NULL, NULL},
    {"pipe-lightning4", "A quiet harbour at dawn", NULL, SUMI_PRESET_FAST, 48, 64, 4, 1,
     QWEN_IMAGE_ADAPTER("lightning-4steps-bf16"), NULL, NULL},
    {"pipe-lightning8", "一只橘猫", NULL, SUMI_PRESET_FAST, 48, 48, 8, 1, QWEN_IMAGE_ADAPTER("lightning-4steps-bf16"),
     NULL, NULL},
    {"pipe-img2img", "A red fox reads a newspaper, 超清", "低画质，扭曲", SUMI_PRESET_MODEL, 64, 48, 5, 0.6f, NULL,
     "pipe-img2img.in0.png", NULL},
    {"pipe-inpaint", "A red fox reads a newspaper, 超清", "低画质，扭曲", SUMI_PRESET_MODEL, 64, 48, 5, 0.8f, NULL,
     "pipe-inpaint.in0.png", "pipe-inpaint.mask.png"}};

static bool read_picture(const char* name, picture_file* image, sumi_pixels* pixels)
{
    char path[256], message[PICTURE_MESSAGE_BYTES];
    memset(image, 0, sizeof *image);
    if (name == NULL) return false;
    snprintf(path, sizeof path, QWEN "cases/%s", name);
    const bool good = picture_read(path, 3, image, message);
    CHECK(good);
    *pixels = (sumi_pixels){image->pixels, image->width, image->height, 0, 3};
    return good;
}

static bool open_case(golden* g, const char* name)
{
    char path[256];
    sumi_error error = {0};
    snprintf(path, sizeof path, QWEN "cases/%s.safetensors", name);
    sumi_heap_init(&g->heap, NULL);
    sumi_tensor_set_init(&g->set, &g->heap, NULL);
    const bool good = sumi_tensor_set_open(&g->set, path, &error) == SUMI_OK;
    CHECK(good);
    return good;
}

// [channel][y][x] of packed tokens: channel slowest in a token, then row and column of its patch.
static void unpack(const float* tokens, int32_t height, int32_t width, float* latents)
{
    for (int32_t t = 0; t < height * width / 4; t++)
        for (int32_t k = 0; k < 64; k++) {
            const int32_t y = t / (width / 2) * 2 + k / 2 % 2, x = t % (width / 2) * 2 + k % 2;
            latents[(k / 4 * height + y) * width + x] = tokens[64 * t + k];
        }
}

static void check_pipeline(sumi_engine* engine, sumi_model* model, const pipeline_case* c)
{
    golden g;
    if (!open_case(&g, c->name)) return;
    const int32_t height = c->height / 8, width = c->width / 8;
    const size_t count = (size_t)16 * (size_t)height * (size_t)width;
    float *noise = golden_copy(&g, "input.noise"), *posterior = golden_copy(&g, "input.posterior_noise"),
          *latents = golden_copy(&g, "expect_tb.latents"), *last = golden_copy(&g, "expect_tb.latents_final");
    const size_t stored = golden_count(&g, "expect_tb.latents");
    const float* tokens = last != NULL ? last : latents != NULL ? latents + (stored - count) : NULL;
    float *want = malloc(count * sizeof *want), *got = calloc(count, sizeof *got);
    CHECK(noise != NULL && tokens != NULL);
    if (tokens != NULL) unpack(tokens, height, width, want);

    const sumi_image_item item = {.text = c->text, .negative_text = c->negative_text};
    sumi_image_desc desc = sumi_image_defaults(model, c->preset);
    desc.items = &item;
    desc.item_count = 1;
    desc.width = c->width;
    desc.height = c->height;
    desc.step_count = c->step_count;
    desc.start.strength = c->strength;
    desc.noise.source = SUMI_NOISE_GIVEN;
    desc.noise.values = noise;
    if (c->negative_text == NULL) desc.guidance.scale = sumi_model_get_info(model).guidance_off;
    picture_file start, mask;
    sumi_pixels start_pixels, mask_pixels;
    if (read_picture(c->start, &start, &start_pixels)) desc.start.image = &start_pixels;
    if (read_picture(c->mask, &mask, &mask_pixels)) desc.start.mask = &mask_pixels;
    desc.start.mask_feather = -1; // the reference keeps what the VAE makes of it
    if (desc.start.image != NULL) desc.start.noise_values = posterior;
    sumi_lora* lora = c->lora != NULL ? read_lora_at(engine, model, c->lora) : NULL;
    const sumi_lora_use use = {.lora = lora, .scale = 1.0f};
    desc.loras = lora != NULL ? &use : NULL;
    desc.lora_count = lora != NULL;

    sumi_job job;
    sumi_image image;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_latents(engine, job, 0, got, count), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
    const double error = relative_error(got, want, count);
    CHECK(error <= 5e-5); // as the cases say
    printf("  %s: latents %.2g\n", c->name, error);
    sumi_images_release(engine, &image, 1);
    sumi_lora_release(lora);
    picture_free(&start), picture_free(&mask);
    free(noise), free(posterior), free(latents), free(last), free(want), free(got);
    golden_close(&g);
}

TEST(pipelines_give_the_references_latents)
{
    OPEN_ROW("qwen-image", engine, model);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) check_pipeline(engine, model, &s_cases[i]);
    close_engine(engine);
}

// ---- Prompts --------------------------------------------------------------------------------------------------------

// In the picture: 2512 has a text of its own, the model before it a blank. Without guidance nobody reads it.
TEST(items_without_a_negative_text_have_the_models_own)
{
    OPEN_ROW("qwen-image", engine, first);
    sumi_model* later;
    char message[512];
    CHECK_NUMBER(load_variant(engine, "2512", &later, message, sizeof message), SUMI_OK);
    sumi_model* const models[2] = {first, later};
    for (int m = 0; m < 2; m++) {
        sumi_image_item item = {.text = "a red fox", .seed = 7};
        sumi_image_desc desc = small_qwen(models[m], &item);
        const uint64_t own = draw_hash(engine, &desc);
        item.negative_text = sumi_model_get_info(models[m]).negative_text;
        CHECK(own != 0 && own == draw_hash(engine, &desc));
        item.negative_text = "";
        const uint64_t empty = draw_hash(engine, &desc);
        CHECK(empty != 0 && empty != own);
        item.negative_text = m == 0 ? sumi_model_get_info(later).negative_text : " ";
        CHECK(draw_hash(engine, &desc) != own);
    }
    close_engine(engine);
}

static const sumi_plan_entry* newest_plan(const sumi_engine* engine)
{
    const sumi_plan_entry* newest = NULL;
    for (int i = 0; i < SUMI_PLAN_CACHE_SIZE; i++) {
        const sumi_plan_entry* entry = &engine->cache.entries[i];
        if (entry->model != NULL && (newest == NULL || entry->used > newest->used)) newest = entry;
    }
    return newest;
}

static double text_flops(const sumi_engine* engine)
{
    const sumi_plan* plan = &newest_plan(engine)->plan;
    double flops = 0;
    for (size_t i = 0; i < plan->op_count; i++) {
        if (plan->sections[plan->ops[i].section].kind == SUMI_SECTION_TEXT) flops += plan->ops[i].flops;
    }
    return flops;
}

// The template's first 34 tokens, which no features are handed on of, are the same rows for all prompts of a batch.
TEST(what_prompts_begin_with_is_computed_once)
{
    enum { TEMPLATE = 34, VALUES = 2 * 16 * 8 * 6 };
    static const char* const s_texts[] = {"a red fox", "an owl in the rain, at night", " "};
    static float s_together[VALUES], s_apart[VALUES];
    OPEN_ROW("qwen-image", engine, model);
    const sumi_image_item items[2] = {ITEM(s_texts[0], 7), ITEM(s_texts[1], 8)};
    sumi_image_desc desc = small_qwen(model, items);
    desc.item_count = 2;
    desc.height = 64;
    sumi_job job;
    for (int round = 0; round < 2; round++) {
        sumi_prompt* prompts[3] = {NULL};
        double flops = 0;
        for (int i = 0; i < 3 && round == 1; i++) {
            prompts[i] = encode_prompt(engine, model, s_texts[i]);
            flops += text_flops(engine);
        }
        sumi_image_item held[2] = {{.prompt = prompts[0], .negative_prompt = prompts[2], .seed = 7},
                                   {.prompt = prompts[1], .negative_prompt = prompts[2], .seed = 8}};
        if (round == 1) desc.items = held;
        if (round == 1) { // the blank, and the template's five tokens behind it
            CHECK_NUMBER(sumi_prompt_get_info(prompts[2]).encoders[0].token_count, 6);
            CHECK_NUMBER(sumi_prompt_get_info(prompts[2]).encoders[0].width, 128);
        }
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        for (int32_t i = 0; i < 2; i++)
            CHECK_NUMBER(
                sumi_job_latents(engine, job, i, (round == 0 ? s_together : s_apart) + i * VALUES / 2, VALUES / 2),
                SUMI_OK);
        sumi_job_discard(engine, job);
        static double s_shared_flops;
        if (round == 0) {
            const sumi_pipeline* pipeline = &newest_plan(engine)->pipeline;
            int32_t first = 0, others = 0;
            for (int p = 0; p < 3; p++) {
                const sumi_pipeline_rows ids = pipeline->ids[p][0];
                if (ids.row == 0) first = ids.count;
                else others += ids.count;
            }
            CHECK(first > TEMPLATE && others < TEMPLATE);
            s_shared_flops = text_flops(engine);
        } else {
            printf("  text: %.1f of %.1f MFLOP\n", 1e-6 * s_shared_flops, 1e-6 * flops);
            CHECK(s_shared_flops < 0.6 * flops);
        }
        for (int i = 0; i < 3; i++) sumi_prompt_release(prompts[i]);
    }
    CHECK(memcmp(s_together, s_apart, sizeof s_together) == 0 && s_together[0] != 0.0f);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(facts_and_presets_are_the_authors);
    RUN(a_variant_is_what_the_caller_says);
    RUN(pipelines_give_the_references_latents);
    RUN(items_without_a_negative_text_have_the_models_own);
    RUN(what_prompts_begin_with_is_computed_once);
    TEST_END();
}
