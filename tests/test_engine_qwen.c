// Qwen-Image through the public functions: the tiny text-to-image checkpoint from opening to pictures. The edit models
// draw with references, which are not tested here.
#include "family_fixture.h"
#include "jobs/engine_state.h"
#include "jobs/prompt.h"
#include "picture.h"

#define QWEN "tests/golden/qwen-image/"
#define QWEN_MODEL QWEN "model"
#define LIGHTNING QWEN "lora/lightning-4steps-bf16.safetensors"
#define ITEM(words, number) ((sumi_image_item){.text = (words), .negative_text = " ", .seed = (number)})

static sumi_engine* open_qwen(sumi_model** out_model) { return open_family(QWEN_MODEL, 2000, out_model); }

// Loads with a variant; the result of the job, and the model when it is SUMI_OK.
static sumi_result load_variant(sumi_engine* engine, const char* variant, sumi_model** out_model, char* message,
                                size_t message_bytes)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = QWEN_MODEL;
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
    sumi_model* model;
    sumi_engine* engine = open_qwen(&model);
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
    sumi_model *model, *other, *none;
    sumi_engine* engine = open_qwen(&model);
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
    {"pipe-lightning4", "A quiet harbour at dawn", NULL, SUMI_PRESET_FAST, 48, 64, 4, 1, LIGHTNING, NULL, NULL},
    {"pipe-lightning8", "一只橘猫", NULL, SUMI_PRESET_FAST, 48, 48, 8, 1, LIGHTNING, NULL, NULL},
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
    sumi_model* model;
    sumi_engine* engine = open_qwen(&model);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) check_pipeline(engine, model, &s_cases[i]);
    close_engine(engine);
}

// ---- Same bits ------------------------------------------------------------------------------------------------------

TEST(a_batch_of_texts_of_any_length_equals_single_images)
{
    sumi_model* model;
    sumi_engine* engine = open_qwen(&model);
    const sumi_image_item items[3] = {
        ITEM("a red fox", 1),
        {.text = "一只橘猫坐在窗台上，看着外面的雨，超清，4K，电影级构图.", .negative_text = "低画质，扭曲", .seed = 2},
        {.text = "", .seed = 3}};
    sumi_image_desc desc = small_qwen(model, items);
    for (int guided = 0; guided < 2; guided++) {
        desc.guidance.scale = guided ? 4.0f : 1.0f;
        desc.items = items;
        desc.item_count = 3;
        sumi_image batch[3];
        CHECK_NUMBER(draw(engine, &desc, batch), SUMI_OK);
        desc.item_count = 1;
        for (int i = 0; i < 3; i++) {
            desc.items = &items[i];
            sumi_image single;
            CHECK_NUMBER(draw(engine, &desc, &single), SUMI_OK);
            CHECK(hash_image(&single) != 0 && hash_image(&single) == hash_image(&batch[i]));
            sumi_images_release(engine, &single, 1);
        }
        CHECK(hash_image(&batch[0]) != hash_image(&batch[1]));
        sumi_images_release(engine, batch, 3);
    }
    close_engine(engine);
}

TEST(guidance_and_the_negative_text_count)
{
    sumi_model* model;
    sumi_engine* engine = open_qwen(&model);
    sumi_image_item item = ITEM("a red fox", 7);
    sumi_image_desc desc = small_qwen(model, &item);
    const uint64_t four = draw_hash(engine, &desc);
    desc.guidance.scale = 3.0f;
    const uint64_t three = draw_hash(engine, &desc);
    item.negative_text = "grey";
    const uint64_t other = draw_hash(engine, &desc);
    desc.guidance.scale = 1.0f; // off: nobody reads the negative text
    const uint64_t off = draw_hash(engine, &desc);
    item.negative_text = NULL;
    CHECK(off != 0 && off == draw_hash(engine, &desc));
    CHECK(four != 0 && three != 0 && other != 0 && four != three && three != other && other != off);
    desc.guidance.scale = 0.5f;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    close_engine(engine);
}

// In the picture: 2512 has a text of its own, the model before it a blank. Without guidance nobody reads it.
TEST(items_without_a_negative_text_have_the_models_own)
{
    sumi_model *first, *later;
    char message[512];
    sumi_engine* engine = open_qwen(&first);
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

TEST(an_adapter_is_read_and_released_between_images)
{
    sumi_model* model;
    sumi_engine* engine = open_qwen(&model);
    static const char* const s_files[] = {LIGHTNING,
                                          QWEN "lora/peft.safetensors",
                                          QWEN "lora/kohya.safetensors",
                                          QWEN "lora/peft-metadata.safetensors",
                                          QWEN "lora/peft-adapter-name.safetensors",
                                          QWEN "lora/comfyui.safetensors"};
    const sumi_image_item item = ITEM("a red fox", 7);
    check_adapters(engine, small_qwen(model, &item), s_files, sizeof s_files / sizeof *s_files);
    close_engine(engine);
}

TEST(a_start_image_and_its_latents_begin_alike)
{
    sumi_model* model;
    sumi_engine* engine = open_qwen(&model);
    uint8_t pixels[50 * 30];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 7);
    const sumi_pixels start = {pixels, 50, 30, 0, 1};
    sumi_encode_desc encode = sumi_encode_defaults(model);
    encode.image = &start;
    encode.width = 48;
    encode.height = 32;
    sumi_job job;
    float latents[16 * 6 * 4];
    CHECK_NUMBER(sumi_submit_encode(engine, &encode, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_fetch_latents(engine, job, latents, 16 * 6 * 4), SUMI_OK);
    const sumi_image_item item = ITEM("a red fox", 7);
    sumi_image_desc desc = small_qwen(model, &item);
    desc.step_count = 4;
    const uint64_t of_noise = draw_hash(engine, &desc);
    desc.start.image = &start;
    desc.start.posterior = SUMI_POSTERIOR_MODE;
    desc.start.strength = 0.5f;
    const uint64_t of_picture = draw_hash(engine, &desc);
    desc.start.strength = 0.75f;
    const uint64_t stronger = draw_hash(engine, &desc);
    desc.start.strength = 0.5f;
    desc.start.image = NULL;
    desc.start.latents = latents;
    CHECK(of_picture != 0 && of_picture == draw_hash(engine, &desc));
    CHECK(of_picture != of_noise && of_picture != stronger && stronger != 0);
    close_engine(engine);
}

// ---- Prompts --------------------------------------------------------------------------------------------------------

TEST(saved_prompts_give_the_image_of_their_text)
{
    sumi_model* model;
    sumi_engine* engine = open_qwen(&model);
    const sumi_image_item of_text = ITEM("a red fox", 7);
    sumi_image_desc desc = small_qwen(model, &of_text);
    const uint64_t expected = draw_hash(engine, &desc);
    sumi_prompt *positive = save_and_load(model, encode_prompt(engine, model, "a red fox")),
                *negative = save_and_load(model, encode_prompt(engine, model, " "));
    // the space, and the template's five tokens behind it; the 34 before it are not handed on
    CHECK_NUMBER(sumi_prompt_get_info(negative).encoders[0].token_count, 6);
    CHECK_NUMBER(sumi_prompt_get_info(negative).encoders[0].width, 128);
    const sumi_image_item of_prompts = {.prompt = positive, .negative_prompt = negative, .seed = 7};
    desc.items = &of_prompts;
    CHECK(expected != 0 && draw_hash(engine, &desc) == expected);
    sumi_prompt_release(positive);
    sumi_prompt_release(negative);
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
    sumi_model* model;
    sumi_engine* engine = open_qwen(&model);
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

TEST(prompts_of_another_family_are_refused)
{
    sumi_model* model;
    sumi_engine* engine = open_qwen(&model);
    sumi_model* z_image = load_model(engine);
    CHECK(z_image != NULL);
    sumi_prompt *theirs = encode_prompt(engine, z_image, "a red fox"),
                *ours = encode_prompt(engine, model, "a red fox"), *none = NULL;
    sumi_image_item item = {.prompt = theirs, .negative_text = " "};
    sumi_image_desc desc = small_qwen(model, &item);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "z-image") != NULL && strstr(s_host.log, "qwen-image") != NULL);
    item = (sumi_image_item){.prompt = ours, .negative_prompt = theirs};
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    desc = small_image(z_image, &item);
    item = (sumi_image_item){.prompt = ours};
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    // the width alone does not make a prompt fit
    desc = small_qwen(model, &item);
    item = ITEM(NULL, 7);
    item.prompt = ours;
    CHECK(draw_hash(engine, &desc) != 0);
    snprintf(ours->family, sizeof ours->family, "z-image");
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    const size_t bytes = sumi_prompt_save(theirs, NULL, 0);
    unsigned char* saved = malloc(bytes + 1);
    CHECK_NUMBER(sumi_prompt_save(theirs, saved, bytes), bytes);
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &none), SUMI_TENSOR_MISMATCH);
    CHECK(none == NULL && strstr(s_host.log, "z-image") != NULL);
    free(saved);
    sumi_prompt_release(theirs);
    sumi_prompt_release(ours);
    close_engine(engine);
}

// ---- Jobs and memory ------------------------------------------------------------------------------------------------

TEST(an_image_can_be_cancelled_and_drawn_again)
{
    sumi_model* model;
    sumi_engine* engine = open_qwen(&model);
    const sumi_image_item item = ITEM("a red fox", 7);
    sumi_image_desc desc = small_qwen(model, &item);
    desc.step_count = 8;
    const uint64_t whole = draw_hash(engine, &desc);
    sumi_job job;
    sumi_image image;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    run_until_denoise(engine, job);
    sumi_job_cancel(engine, job);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_CANCELLED);
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_CANCELLED);
    CHECK(whole != 0 && draw_hash(engine, &desc) == whole);
    close_engine(engine);
}

TEST(memory_is_known_beforehand_and_a_warm_job_takes_none)
{
    sumi_model* model;
    sumi_engine* engine = open_qwen(&model);
    const sumi_image_item items[2] = {ITEM("a red fox", 1), ITEM("a dog and the hat of picture one", 2)};
    sumi_image_desc desc = small_qwen(model, items);
    desc.item_count = 2;
    desc.preview_every = 1;
    sumi_memory memory;
    check_memory(engine, &desc, &memory);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(facts_and_presets_are_the_authors);
    RUN(a_variant_is_what_the_caller_says);
    RUN(pipelines_give_the_references_latents);
    RUN(a_batch_of_texts_of_any_length_equals_single_images);
    RUN(guidance_and_the_negative_text_count);
    RUN(items_without_a_negative_text_have_the_models_own);
    RUN(an_adapter_is_read_and_released_between_images);
    RUN(a_start_image_and_its_latents_begin_alike);
    RUN(saved_prompts_give_the_image_of_their_text);
    RUN(what_prompts_begin_with_is_computed_once);
    RUN(prompts_of_another_family_are_refused);
    RUN(an_image_can_be_cancelled_and_drawn_again);
    RUN(memory_is_known_beforehand_and_a_warm_job_takes_none);
    TEST_END();
}
