// A model that crops its references and does not read them with its text, and whose start image is a reference too when
// a mask is given: sizes and pixels, prompts, masks with fractions, and how many references fit the memory.
#include "jobs/prompt.h"
#include "reference_fixture.h"

// How FLUX.2 does it, in small.
static const sumi_reference_rule s_cropped = {.max_count = SUMI_MAX_REFERENCES,
                                              .fit = SUMI_REFERENCE_CROPPED,
                                              .autoencoder_area = 48 * 48,
                                              .multiple = 16,
                                              .max_ratio = 8,
                                              .min_side = 20};

static void make_crop_model(sumi_model* model)
{
    static sumi_recipe s_recipe;
    make_edit_model(model, &s_cropped, NULL);
    s_recipe = *model->network->recipe;
    s_recipe.encoders[0].prompt.picture = s_recipe.encoders[0].prompt.picture_token = NULL;
    model->network->recipe = &s_recipe;
    model->network->info.prompts_read_references = false;
    model->network->info.start = (sumi_start_rule){SUMI_POSTERIOR_MODE, SUMI_MASK_BILINEAR, true};
    model->info = model->network->info;
}

#define OPEN_CROP(engine, model)                                                                                       \
    OPEN(engine, model);                                                                                               \
    make_crop_model(model)

// The pictures of the fixture, and one that is too large.
enum { PICTURES = 4 };
static const sumi_pixels* crop_pictures(void)
{
    static uint8_t s_large[64 * 300];
    static sumi_pixels s_pictures[PICTURES];
    for (size_t i = 0; i < sizeof s_large; i++) s_large[i] = (uint8_t)(i * 7 + i / 300);
    memcpy(s_pictures, edit_pictures(), 3 * sizeof *s_pictures);
    s_pictures[3] = (sumi_pixels){s_large, 90, 64, 300, 3};
    return s_pictures;
}

static sumi_image_desc crop_image(sumi_model* model, const sumi_image_item* item, int32_t count)
{
    sumi_image_desc desc = small_image(model, item);
    desc.references = count > 0 ? crop_pictures() : NULL;
    desc.reference_count = count;
    return desc;
}

static void refuses(sumi_engine* engine, const sumi_image_desc* desc, sumi_result result, const char* sentence)
{
    sumi_job job;
    s_host.log[0] = '\0';
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), result);
    if (strstr(s_host.log, sentence) == NULL) printf("  \"%s\" is not in \"%s\"\n", sentence, s_host.log);
    CHECK(strstr(s_host.log, sentence) != NULL);
}

// ---- References -----------------------------------------------------------------------------------------------------

TEST(references_are_shrunk_and_cropped_and_never_enlarged)
{
    static const struct {
        sumi_picture_size resized, size;
        int32_t left, top;
    } s_rows[PICTURES] = {
        {{60, 20}, {48, 16}, 6, 2}, {{29, 31}, {16, 16}, 6, 7}, {{21, 63}, {16, 48}, 2, 7}, {{56, 40}, {48, 32}, 4, 4}};
    OPEN_CROP(engine, model);
    const sumi_image_item item = {.text = "make it red", .seed = 7};
    sumi_image_desc desc = crop_image(model, &item, PICTURES);
    desc.step_count = 1;
    CHECK(edit_hash(engine, &desc) != 0);
    sumi_prompt* prompt = encode_with(engine, model, "make it red", crop_pictures(), PICTURES);
    CHECK(edit_hash(engine, &desc) != 0);
    const sumi_plan_entry* entry = newest_plan(engine);
    for (int32_t i = 0; i < PICTURES; i++) {
        const sumi_picture_size size = s_rows[i].size;
        uint8_t *whole = resized(&crop_pictures()[i], s_rows[i].resized, SUMI_FILTER_LANCZOS),
                *want = malloc((size_t)size.width * (size_t)size.height * 3);
        for (int32_t y = 0; y < size.height; y++)
            memcpy(want + y * size.width * 3,
                   whole + ((y + s_rows[i].top) * s_rows[i].resized.width + s_rows[i].left) * 3,
                   (size_t)size.width * 3);
        const sumi_value_info* info = sumi_plan_info(&entry->plan, entry->pipeline.reference_pixels[i]);
        CHECK_NUMBER(info->rows, size.width * size.height);
        CHECK(holds(engine, entry, entry->pipeline.reference_pixels[i], want, size));
        CHECK(entry->pipeline.vision_pixels[i].id == 0);
        // a prompt keeps what the VAE reads
        CHECK(prompt->reference_sizes[i].width == size.width && prompt->reference_sizes[i].height == size.height);
        CHECK(memcmp(prompt->references[i], want, (size_t)size.width * (size_t)size.height * 3) == 0);
        free(whole), free(want);
    }
    close_engine(engine);
}

TEST(references_that_a_model_cannot_read_are_refused)
{
    OPEN_CROP(engine, model);
    const sumi_image_item item = {.text = "make it red", .seed = 7};
    sumi_image_desc desc = crop_image(model, &item, 2);
    sumi_pixels bad[2] = {crop_pictures()[3], crop_pictures()[3]};
    desc.references = bad;
    bad[1].width = 19;
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "references[1]: an image of 19 x 64 pixels is too small");
    bad[1] = (sumi_pixels){crop_pictures()[3].data, 161, 20, 161, 1};
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT,
            "references[1]: an image of 161 x 20 pixels has one side more than 8");
    bad[1].width = 160; // just not: it is shrunk to 135 x 16
    CHECK(edit_hash(engine, &desc) != 0);
    close_engine(engine);
}

TEST(as_many_references_as_a_model_takes)
{
    OPEN_CROP(engine, model);
    sumi_pixels many[SUMI_MAX_REFERENCES + 1];
    for (int i = 0; i <= SUMI_MAX_REFERENCES; i++) many[i] = crop_pictures()[i % PICTURES];
    const sumi_image_item item = {.text = "make it red", .seed = 7};
    sumi_image_desc desc = crop_image(model, &item, 1);
    desc.references = many;
    desc.reference_count = SUMI_MAX_REFERENCES;
    desc.step_count = 1;
    CHECK_NUMBER(sumi_model_get_info(model).max_references, 10);
    CHECK(edit_hash(engine, &desc) != 0);
    // and the start image besides
    desc.start.image = &crop_pictures()[1];
    desc.start.mask = &crop_pictures()[1];
    desc.start.strength = 1.0f;
    CHECK(edit_hash(engine, &desc) != 0);
    desc.reference_count++;
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "reference_count is 11: give 0 to 10");
    close_engine(engine);
}

TEST(the_size_is_that_of_the_first_reference_as_it_is_cropped)
{
    OPEN_CROP(engine, model);
    const sumi_image_item item = {.text = "make it red", .seed = 7};
    sumi_image_desc desc = crop_image(model, &item, 2);
    desc.width = desc.height = 0;
    sumi_size size;
    CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
    CHECK(size.width == 48 && size.height == 16);
    // the start image, which is the first reference: resized to multiples, whatever its own sides are
    uint8_t mask_data[4] = {255, 0, 0, 255};
    const sumi_pixels mask = {mask_data, 2, 2, 0, 1};
    sumi_pixels start = crop_pictures()[3];
    desc.start.image = &start;
    CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
    CHECK(size.width == 48 && size.height == 16); // no mask
    desc.start.mask = &mask;
    CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
    CHECK(size.width == 48 && size.height == 32);
    start.width = 17; // it may be smaller than a reference
    CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
    CHECK(size.width == 16 && size.height == 64);
    start.width = 15;
    CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "start.image: an image of 15 x 64 pixels has less than 16") != NULL);
    close_engine(engine);
}

// ---- Prompts --------------------------------------------------------------------------------------------------------

TEST(prompts_go_with_any_references)
{
    OPEN_CROP(engine, model);
    const sumi_image_item texts[2] = {{.text = "make it red", .negative_text = "grey", .seed = 1},
                                      {.text = "make it blue", .negative_text = "grey", .seed = 2}};
    uint8_t data[2][32 * 32 * 3];
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof data[k]; i++) data[k][i] = (uint8_t)(i * (size_t)(17 + 9 * k) + i / 96);
    const sumi_pixels pair[2] = {{data[0], 32, 32, 0, 3}, {data[1], 32, 32, 0, 3}};
    sumi_image_desc desc = crop_image(model, texts, 0);
    desc.item_count = 2;
    desc.guidance.scale = 3.0f;
    const uint64_t without = edit_hash(engine, &desc);
    desc.references = pair;
    desc.reference_count = 2;
    const uint64_t want = edit_hash(engine, &desc);
    CHECK(want != 0 && without != 0 && want != without);
    sumi_prompt *none = encode_prompt(engine, model, "make it red"),
                *one = encode_with(engine, model, "make it blue", &pair[1], 1),
                *two = encode_with(engine, model, "make it red", pair, 2),
                *negative = encode_prompt(engine, model, "grey");
    // encoded without, with another, beside a text
    sumi_image_item items[2] = {{.prompt = none, .negative_prompt = negative, .seed = 1},
                                {.prompt = one, .negative_text = "grey", .seed = 2}};
    desc.items = items;
    CHECK(edit_hash(engine, &desc) == want);
    // those that the first prompt keeps, beside a text
    items[0].prompt = two;
    items[1] = texts[1];
    desc.references = NULL;
    desc.reference_count = 0;
    CHECK(edit_hash(engine, &desc) == want);
    items[0].prompt = none;
    CHECK(edit_hash(engine, &desc) == without);
    close_engine(engine);
}

// ---- Start images ---------------------------------------------------------------------------------------------------

typedef struct start_case {
    uint8_t image[32 * 32 * 3], other[32 * 32 * 3], mask[32 * 32];
    sumi_pixels pixels[2], mask_pixels;
} start_case;

static void make_start(start_case* c)
{
    for (size_t i = 0; i < sizeof c->image; i++) {
        c->image[i] = (uint8_t)(i * 29 + i / 96 * 3);
        c->other[i] = (uint8_t)(i * 13 + 77);
    }
    for (int i = 0; i < 32 * 32; i++) c->mask[i] = i % 32 >= 12 ? 255 : 0;
    c->pixels[0] = (sumi_pixels){c->image, 32, 32, 0, 3};
    c->pixels[1] = (sumi_pixels){c->other, 32, 32, 0, 3};
    c->mask_pixels = (sumi_pixels){c->mask, 32, 32, 0, 1};
}

static size_t op_count(const sumi_engine* engine) { return newest_plan(engine)->plan.op_count; }

// A start image with a mask is the first reference. It gives the bits of a job that names it twice, and is encoded once.
TEST(an_inpainted_image_is_its_own_first_reference)
{
    static start_case s_case;
    start_case* c = &s_case;
    make_start(c);
    OPEN_CROP(engine, model);
    CHECK(sumi_image_defaults(model, SUMI_PRESET_MODEL).start.posterior == SUMI_POSTERIOR_MODE);
    const sumi_image_item items[2] = {{.text = "make it red", .seed = 1}, {.text = "make it blue", .seed = 2}};
    for (int k = 0; k < 8; k++) { // one image or two; the mode or a sample; one reference or two
        sumi_image_desc desc = crop_image(model, items, 0);
        desc.item_count = 1 + (k & 1);
        desc.start.image = &c->pixels[0];
        desc.start.mask = &c->mask_pixels;
        desc.start.strength = 1.0f;
        desc.start.posterior = (k & 2) != 0 ? SUMI_POSTERIOR_SAMPLE : SUMI_POSTERIOR_MODE;
        desc.references = (k & 4) != 0 ? &c->pixels[1] : NULL;
        desc.reference_count = (k & 4) != 0;
        model->info.start.is_reference = true;
        const uint64_t once = edit_hash(engine, &desc);
        const size_t ops = op_count(engine);
        model->info.start.is_reference = false;
        const uint64_t plain = edit_hash(engine, &desc);
        const size_t plain_ops = op_count(engine);
        desc.references = c->pixels;
        desc.reference_count++;
        CHECK(edit_hash(engine, &desc) == once);
        CHECK(once != 0 && once != plain);
        // the denoiser reads one more picture for 2 steps; the encoder's ops, dozens, are not there twice
        CHECK(ops > plain_ops && ops + 20 < op_count(engine));
    }
    close_engine(engine);
}

TEST(given_latents_of_a_start_image_are_a_reference_too)
{
    static start_case s_case;
    start_case* c = &s_case;
    make_start(c);
    OPEN_CROP(engine, model);
    float latents[16 * 4 * 4];
    sumi_encode_desc encode = sumi_encode_defaults(model);
    encode.image = &c->pixels[0];
    encode.width = encode.height = 32;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_encode(engine, &encode, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_fetch_latents(engine, job, latents, 16 * 4 * 4), SUMI_OK);
    const sumi_image_item items[2] = {{.text = "make it red", .seed = 1}, {.text = "make it blue", .seed = 2}};
    for (int k = 0; k < 2; k++) {
        sumi_image_desc desc = crop_image(model, items, 0);
        desc.item_count = 1 + k;
        desc.start.image = &c->pixels[0];
        desc.start.mask = &c->mask_pixels;
        desc.start.mask_feather = -1; // with latents there are no pixels to keep
        desc.start.strength = 1.0f;
        const uint64_t want = edit_hash(engine, &desc);
        desc.start.image = NULL;
        desc.start.latents = latents;
        CHECK(want != 0 && edit_hash(engine, &desc) == want);
        model->info.start.is_reference = false;
        CHECK(edit_hash(engine, &desc) != want);
        model->info.start.is_reference = true;
    }
    close_engine(engine);
}

TEST(a_start_image_without_a_mask_is_no_reference)
{
    static start_case s_case;
    start_case* c = &s_case;
    make_start(c);
    OPEN_CROP(engine, model);
    const sumi_image_item item = {.text = "make it red", .seed = 1};
    sumi_image_desc desc = crop_image(model, &item, 0);
    desc.start.image = &c->pixels[0];
    desc.start.strength = 1.0f;
    const uint64_t with = edit_hash(engine, &desc);
    model->info.start.is_reference = false;
    CHECK(with != 0 && edit_hash(engine, &desc) == with);
    close_engine(engine);
}

// The edge of the mask lies in the middle of a latent, which stands for 8 pixels.
TEST(a_mask_keeps_its_fractions_where_the_model_wants_them)
{
    static start_case s_case;
    start_case* c = &s_case;
    make_start(c);
    OPEN_CROP(engine, model);
    const sumi_image_item item = {.text = "make it red", .seed = 1};
    sumi_image_desc desc = crop_image(model, &item, 0);
    desc.start.image = &c->pixels[0];
    desc.start.mask = &c->mask_pixels;
    desc.start.strength = 1.0f;
    uint64_t hashes[2];
    for (int k = 0; k < 2; k++) {
        static const float s_want[2][4] = {{0.0f, 0.5f, 1.0f, 1.0f}, {0.0f, 0.0f, 1.0f, 1.0f}};
        model->info.start.mask_filter = k == 0 ? SUMI_MASK_BILINEAR : SUMI_MASK_NEAREST;
        hashes[k] = edit_hash(engine, &desc);
        const sumi_plan_entry* entry = newest_plan(engine);
        float mask[16];
        engine->runner->functions->read(engine->runner, &entry->plan, entry->pipeline.mask, 0, mask, sizeof mask);
        for (int i = 0; i < 16; i++) CHECK(mask[i] == s_want[k][i % 4]);
    }
    CHECK(hashes[0] != 0 && hashes[0] != hashes[1]);
    close_engine(engine);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

TEST(a_job_that_does_not_fit_says_how_many_references_would)
{
    OPEN_CROP(engine, model);
    const sumi_image_item item = {.text = "make it red", .seed = 7};
    sumi_pixels pictures[5];
    for (int i = 0; i < 5; i++) pictures[i] = crop_pictures()[3];
    sumi_image_desc desc = crop_image(model, &item, 0);
    desc.references = pictures;
    uint64_t needed[6];
    for (int32_t count = 0; count <= 5; count++) {
        sumi_memory memory;
        desc.reference_count = count;
        desc.references = count > 0 ? pictures : NULL;
        CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
        needed[count] = memory.arena + memory.staging;
        CHECK(count == 0 || needed[count] > needed[count - 1]);
    }
    for (int32_t count = 0; count <= 4; count++) {
        char sentence[80];
        CHECK_NUMBER(sumi_engine_set_memory_budget(engine, needed[count]), SUMI_OK);
        sumi_job job;
        sumi_image image;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        if (count == 0) snprintf(sentence, sizeof sentence, "; not one of its 5 reference images fits");
        else snprintf(sentence, sizeof sentence, "; %d of its 5 reference images would fit", (int)count);
        const char* message = sumi_job_poll(engine, job).message;
        if (strstr(message, sentence) == NULL) printf("  \"%s\" is not in \"%s\"\n", sentence, message);
        CHECK(strstr(message, sentence) != NULL);
        CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_BUDGET_TOO_SMALL);
        // and so does who asks before; the number that is needed stays that of the whole job
        sumi_memory memory;
        CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_BUDGET_TOO_SMALL);
        CHECK(strstr(s_host.log, sentence) != NULL);
        CHECK_NUMBER(memory.needed, needed[5]);
        // it is true
        sumi_image_desc fewer = desc;
        fewer.reference_count = count;
        fewer.references = count > 0 ? pictures : NULL;
        CHECK(edit_hash(engine, &fewer) != 0);
    }
    desc.reference_count = 1;
    sumi_memory one;
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, needed[0]), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &one), SUMI_BUDGET_TOO_SMALL);
    CHECK(strstr(s_host.log, "; it would fit without its reference image") != NULL);
    model->info.min_references = 1; // then that is no way out
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &one), SUMI_BUDGET_TOO_SMALL);
    CHECK(strstr(s_host.log, "reference image") == NULL);
    model->info.min_references = 0;
    desc.reference_count = 5;
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, needed[0] / 2), SUMI_OK);
    sumi_memory memory;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_BUDGET_TOO_SMALL);
    CHECK(strstr(s_host.log, "reference images") == NULL);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(references_are_shrunk_and_cropped_and_never_enlarged);
    RUN(references_that_a_model_cannot_read_are_refused);
    RUN(as_many_references_as_a_model_takes);
    RUN(the_size_is_that_of_the_first_reference_as_it_is_cropped);
    RUN(prompts_go_with_any_references);
    RUN(an_inpainted_image_is_its_own_first_reference);
    RUN(given_latents_of_a_start_image_are_a_reference_too);
    RUN(a_start_image_without_a_mask_is_no_reference);
    RUN(a_mask_keeps_its_fractions_where_the_model_wants_them);
    RUN(a_job_that_does_not_fit_says_how_many_references_would);
    TEST_END();
}
