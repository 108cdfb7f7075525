// FLUX.2 [klein] through the public functions: the tiny checkpoint from opening to pictures. References are rows of its
// transformer, guidance is that of the variant, and texts always have 512 rows.
#include "family_fixture.h"

#define KLEIN "tests/golden/flux2-klein/"
#define KLEIN_MODEL KLEIN "model"
#define ITEM(words, number) ((sumi_image_item){.text = (words), .seed = (number)})

static sumi_engine* open_klein(sumi_model** out_model) { return open_family(KLEIN_MODEL, 2000, out_model); }

// The base model has the files of the distilled one here: who opens it says which it is.
static sumi_model* load_base(sumi_engine* engine)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = KLEIN_MODEL;
    desc.variant = "base";
    return load_model_of(engine, &desc);
}

static sumi_pixels s_pictures[2];
static void make_pictures(void)
{
    static uint8_t s_bytes[2][100 * 90 * 3];
    for (size_t i = 0; i < sizeof s_bytes[0]; i++) {
        s_bytes[0][i] = (uint8_t)(i * 7);
        s_bytes[1][i] = (uint8_t)(i / 300 * 3 + i % 3 * 60);
    }
    s_pictures[0] = (sumi_pixels){s_bytes[0], 100, 90, 0, 3};
    s_pictures[1] = (sumi_pixels){s_bytes[1], 80, 96, 0, 3};
}

// ---- What the model says --------------------------------------------------------------------------------------------

TEST(facts_and_presets_are_the_authors)
{
    sumi_model* model;
    sumi_engine* engine = open_klein(&model);
    const sumi_model_info info = sumi_model_get_info(model);
    CHECK_TEXT(info.family, "flux2-klein");
    CHECK_TEXT(info.variant, "distilled");
    CHECK_TEXT(info.negative_text, "");
    CHECK(!info.uses_guidance && info.has_text_encoder && info.has_vae_encoder && info.takes_references);
    CHECK(info.min_references == 0 && info.max_references == 10);
    CHECK(info.guidance == 1.0f && info.guidance_off == 1.0f);
    CHECK_NUMBER(info.guidance_formula, SUMI_GUIDANCE_FROM_NEGATIVE);
    CHECK_NUMBER(info.guidance_rule, SUMI_GUIDANCE_PLAIN);
    CHECK_NUMBER(info.size_multiple, 16);
    const sumi_image_desc own = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    CHECK_NUMBER(own.step_count, 4);
    CHECK(own.guidance.scale == 1.0f);

    sumi_model* base = load_base(engine);
    CHECK(base != NULL);
    if (base != NULL) {
        const sumi_model_info of_base = sumi_model_get_info(base);
        const sumi_image_desc desc = sumi_image_defaults(base, SUMI_PRESET_MODEL);
        CHECK_TEXT(of_base.variant, "base");
        CHECK(of_base.uses_guidance && of_base.guidance == 4.0f && desc.guidance.scale == 4.0f);
        CHECK_NUMBER(desc.step_count, 50);
    }
    close_engine(engine);
}

// ---- Guidance -------------------------------------------------------------------------------------------------------

static int s_warnings;
static char s_warning[256];
static void count_warnings(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level != SUMI_LOG_WARNING) return;
    s_warnings++;
    snprintf(s_warning, sizeof s_warning, "%s", text);
}

TEST(the_distilled_model_ignores_guidance_and_says_so)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc_of_engine = host_desc(&s_host);
    desc_of_engine.log = (sumi_log){count_warnings, NULL};
    sumi_engine* engine = open_engine(&desc_of_engine, NULL);
    sumi_model* model = load_model_at(engine, KLEIN_MODEL);
    sumi_image_item item = ITEM("a red fox", 7);
    sumi_image_desc desc = small_image(model, &item);
    s_warnings = 0;
    const uint64_t plain = draw_hash(engine, &desc);
    CHECK_NUMBER(s_warnings, 0);
    desc.guidance.scale = 4.0f;
    CHECK(plain != 0 && draw_hash(engine, &desc) == plain);
    CHECK(s_warnings == 1 && strstr(s_warning, "guidance.scale 4") != NULL);
    item.negative_text = "grey";
    CHECK(draw_hash(engine, &desc) == plain);
    desc.guidance.scale = 1.0f;
    CHECK(draw_hash(engine, &desc) == plain);
    CHECK(s_warnings == 3 && strstr(s_warning, "items[0].negative_text is not used: this model") != NULL);

    desc = small_image(load_base(engine), &item);
    const uint64_t four = draw_hash(engine, &desc);
    item.negative_text = NULL;
    const uint64_t empty = draw_hash(engine, &desc);
    desc.guidance.scale = 1.0f;
    CHECK(four != 0 && empty != 0 && four != empty && empty != plain);
    CHECK(draw_hash(engine, &desc) == plain); // the same weights, and no guidance
    close_engine(engine);
}

// ---- Same bits ------------------------------------------------------------------------------------------------------

TEST(a_batch_with_references_equals_single_images)
{
    sumi_model* model;
    sumi_engine* engine = open_klein(&model);
    make_pictures();
    const sumi_image_item items[2] = {ITEM("a red fox", 1), ITEM("一只橘猫坐在窗台上，看着外面的雨", 2)};
    for (int32_t references = 0; references <= 2; references++) {
        sumi_image_desc desc = small_image(model, items);
        // Products of four rows, as 32 x 32 pixels have, add in another order than those of more on CPUs with AVX2.
        desc.width = desc.height = 48;
        desc.references = references > 0 ? s_pictures : NULL;
        desc.reference_count = references;
        desc.item_count = 2;
        sumi_image batch[2], single;
        CHECK_NUMBER(draw(engine, &desc, batch), SUMI_OK);
        desc.item_count = 1;
        for (int i = 0; i < 2; i++) {
            desc.items = &items[i];
            CHECK_NUMBER(draw(engine, &desc, &single), SUMI_OK);
            CHECK(hash_image(&single) != 0 && hash_image(&single) == hash_image(&batch[i]));
            sumi_images_release(engine, &single, 1);
        }
        CHECK(hash_image(&batch[0]) != hash_image(&batch[1]));
        sumi_images_release(engine, batch, 2);
    }
    close_engine(engine);
}

TEST(the_order_of_references_counts_and_the_first_one_gives_the_size)
{
    sumi_model* model;
    sumi_engine* engine = open_klein(&model);
    make_pictures();
    const sumi_image_item item = ITEM("swap them", 3);
    sumi_image_desc desc = small_image(model, &item);
    desc.references = s_pictures;
    desc.reference_count = 2;
    const uint64_t first = draw_hash(engine, &desc);
    desc.width = desc.height = 0;
    sumi_size size;
    CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
    CHECK(size.width == 96 && size.height == 80); // cropped to multiples of 16
    const sumi_pixels swapped[2] = {s_pictures[1], s_pictures[0]};
    desc.references = swapped;
    CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
    CHECK(size.width == 80 && size.height == 96);
    desc.width = desc.height = 32;
    const uint64_t second = draw_hash(engine, &desc);
    CHECK(first != 0 && second != 0 && first != second);
    close_engine(engine);
}

// The same network draws with any number of references, so a prompt belongs to none of them.
TEST(saved_prompts_give_the_image_of_their_text_with_any_references)
{
    sumi_model* model;
    sumi_engine* engine = open_klein(&model);
    make_pictures();
    const sumi_image_item of_text = ITEM("a red fox", 7);
    sumi_image_desc desc = small_image(model, &of_text);
    sumi_prompt* prompt = save_and_load(model, encode_prompt(engine, model, "a red fox"));
    const sumi_prompt_info info = sumi_prompt_get_info(prompt);
    CHECK_NUMBER(info.encoders[0].token_count, 512);
    const sumi_image_item of_prompt = {.prompt = prompt, .seed = 7};
    for (int32_t references = 0; references <= 2; references++) {
        desc.references = references > 0 ? s_pictures : NULL;
        desc.reference_count = references;
        desc.items = &of_text;
        const uint64_t expected = draw_hash(engine, &desc);
        desc.items = &of_prompt;
        CHECK(expected != 0 && draw_hash(engine, &desc) == expected);
    }
    sumi_prompt_release(prompt);
    close_engine(engine);
}

TEST(an_adapter_is_read_and_released_between_images)
{
    sumi_model* model;
    sumi_engine* engine = open_klein(&model);
    static const char* const s_files[] = {
        KLEIN "lora/lora_peft.safetensors",     KLEIN "lora/lora_kohya.safetensors",
        KLEIN "lora/lora_original.safetensors", KLEIN "lora/lora_comfy.safetensors",
        KLEIN "lora/lora_expanded.safetensors", KLEIN "lora/lokr_original.safetensors"};
    const sumi_image_item item = ITEM("a red fox", 7);
    check_adapters(engine, small_image(model, &item), s_files, sizeof s_files / sizeof *s_files);
    close_engine(engine);
}

TEST(a_job_holds_what_was_known_of_it)
{
    sumi_model* model;
    sumi_engine* engine = open_klein(&model);
    make_pictures();
    const sumi_image_item item = ITEM("a red fox", 7);
    sumi_image_desc desc = small_image(model, &item);
    sumi_memory none, two;
    const uint64_t bare = check_memory(engine, &desc, &none);
    desc.references = s_pictures;
    desc.reference_count = 2;
    CHECK(check_memory(engine, &desc, &two) != bare);
    CHECK(two.arena > none.arena);
    close_engine(engine);
}

// A step cache skips steps of the base model; a distilled one has none to skip.
TEST(a_step_cache_saves_steps_of_the_base_model)
{
    sumi_model* model;
    sumi_engine* engine = open_klein(&model);
    sumi_model* base = load_base(engine);
    const sumi_image_item item = ITEM("a red fox", 7);
    sumi_image_desc desc = small_image(base, &item);
    desc.step_count = 12;
    const uint64_t whole = draw_hash(engine, &desc);
    desc.step_cache = 10.0f;
    const uint64_t cached = draw_hash(engine, &desc);
    CHECK(whole != 0 && cached != 0 && whole != cached);
    close_engine(engine);
}

// ---- What is refused ------------------------------------------------------------------------------------------------

TEST(components_that_the_family_lacks_are_refused)
{
    sumi_model* model;
    sumi_engine* engine = open_klein(&model);
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = KLEIN_MODEL;
    desc.text_encoder_2_path = KLEIN_MODEL "/text_encoder";
    sumi_job job;
    if (sumi_submit_model(engine, &desc, &job) == SUMI_OK) {
        sumi_job_wait(engine, job, SUMI_FOREVER);
        CHECK(sumi_job_poll(engine, job).result != SUMI_OK);
        sumi_job_discard(engine, job);
    }
    const sumi_image_item item = ITEM("a red fox", 7);
    sumi_image_desc image = small_image(model, &item);
    sumi_pixels many[11];
    make_pictures();
    for (int i = 0; i < 11; i++) many[i] = s_pictures[i % 2];
    image.references = many;
    image.reference_count = 11;
    CHECK_NUMBER(sumi_submit_images(engine, &image, &job), SUMI_INVALID_ARGUMENT);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(facts_and_presets_are_the_authors);
    RUN(the_distilled_model_ignores_guidance_and_says_so);
    RUN(a_batch_with_references_equals_single_images);
    RUN(the_order_of_references_counts_and_the_first_one_gives_the_size);
    RUN(saved_prompts_give_the_image_of_their_text_with_any_references);
    RUN(an_adapter_is_read_and_released_between_images);
    RUN(a_job_holds_what_was_known_of_it);
    RUN(a_step_cache_saves_steps_of_the_base_model);
    RUN(components_that_the_family_lacks_are_refused);
    TEST_END();
}
