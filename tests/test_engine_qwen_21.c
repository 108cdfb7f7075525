// What Qwen-Image-2.1 alone has, through the public functions, with the tiny checkpoint: Turbo's listed noise levels,
// the noise of edits, references in the rows of prompts, and the prefix, which is computed once. What holds for every
// family is in test_families.c and test_family_jobs.c.
#include "family_fixture.h"
#include "jobs/engine_state.h"
#include "jobs/prompt.h"
#include "sampling/noise.h"

enum { SIDE = FAMILY_LARGEST_SIDE, LATENTS = 64 * 4 * 4 };
#define EDIT_SEED 0x9e3779b97f4a7c15u // of sumi.h

static sumi_model* load_variant(sumi_engine* engine, const char* variant)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = s_family->tiny.path;
    desc.variant = variant;
    return adapt_family(s_family, load_model_of(engine, &desc));
}

static void refuses(sumi_engine* engine, const sumi_image_desc* desc, sumi_result want, const char* sentence)
{
    sumi_job job;
    sumi_memory memory;
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), want);
    CHECK_NUMBER(sumi_image_memory(engine, desc, &memory), want);
    if (strstr(s_host.log, sentence) == NULL) printf("  \"%s\" does not say \"%s\"\n", s_host.log, sentence);
    CHECK(strstr(s_host.log, sentence) != NULL);
}

// ---- What the model says --------------------------------------------------------------------------------------------

TEST(facts_and_presets_are_the_authors)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    const sumi_model_info info = sumi_model_get_info(model);
    CHECK_TEXT(info.family, "qwen-image-2.1");
    CHECK_TEXT(info.variant, "base");
    CHECK(info.takes_references && info.min_references == 0 && info.max_references == 10);
    CHECK(!info.uses_guidance && !info.ignores_guidance && info.guidance == 1.0f && info.guidance_off == 1.0f);
    CHECK_NUMBER(info.guidance_formula, SUMI_GUIDANCE_FROM_NEGATIVE);
    CHECK_NUMBER(info.guidance_rule, SUMI_GUIDANCE_PLAIN);
    CHECK(info.size_multiple == 32 && info.latent_factor == 16 && info.latent_channels == 64);
    CHECK(info.native_size == 1024 && info.size_count == 8);
    CHECK(info.sizes[1].width == 2048 && info.sizes[6].width == 2752 && info.sizes[6].height == 1536);
    const sumi_image_desc own = sumi_image_defaults(model, SUMI_PRESET_MODEL),
                          preview = sumi_image_defaults(model, SUMI_PRESET_PREVIEW);
    CHECK_NUMBER(own.start.posterior, SUMI_POSTERIOR_MODE);
    CHECK(own.step_count == 40 && own.guidance.scale == 1.0f && own.width == 1024 && own.height == 1024);
    CHECK(preview.step_count < own.step_count && preview.width == 768);
    close_engine(engine);
}

// ---- Previews -------------------------------------------------------------------------------------------------------

// A latent is 16 pixels wide, so each is 2 x 2 pixels of a preview, in every item of a batch.
TEST(each_latent_is_four_pixels_of_a_preview)
{
    enum { WIDTH = 96, HIGH = SIDE / 8, WIDE = WIDTH / 8 };
    OPEN_ROW("qwen-image-2.1", engine, model);
    const sumi_image_item items[2] = {{.text = "a red fox", .seed = 7}, {.text = "an owl", .seed = 8}};
    sumi_image_desc desc = family_image(model, items);
    uint8_t pixels[2][HIGH * WIDE * 4];
    sumi_image image;
    sumi_job job;
    desc.guidance.scale = 1.0f;
    desc.width = WIDTH;
    desc.item_count = 2;
    desc.preview_every = 1;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    for (int32_t i = 0; i < 2; i++) {
        CHECK_NUMBER(sumi_job_preview(engine, job, i, pixels[i], sizeof pixels[i], &image), SUMI_OK);
        CHECK(image.width == WIDE && image.height == HIGH);
        int colours = 1;
        for (int32_t at = 0; at < HIGH * WIDE; at++) {
            const int32_t first = at / WIDE / 2 * 2 * WIDE + at % WIDE / 2 * 2; // of the four
            CHECK(memcmp(pixels[i] + 4 * at, pixels[i] + 4 * first, 4) == 0);
            colours += memcmp(pixels[i] + 4 * at, pixels[i], 4) != 0;
        }
        CHECK(colours > HIGH * WIDE / 2);
    }
    CHECK(memcmp(pixels[0], pixels[1], sizeof pixels[0]) != 0);
    sumi_job_discard(engine, job);
    close_engine(engine);
}

// ---- Turbo ----------------------------------------------------------------------------------------------------------

TEST(turbo_has_eight_steps_and_says_so)
{
    OPEN_ROW("qwen-image-2.1", engine, base);
    sumi_model* model = load_variant(engine, "turbo");
    CHECK(model != NULL);
    if (model == NULL) return;
    CHECK_TEXT(sumi_model_get_info(model).variant, "turbo");
    for (int preset = 0; preset <= SUMI_PRESET_LEAN; preset++)
        CHECK_NUMBER(sumi_image_defaults(model, (sumi_preset)preset).step_count, 8);
    const sumi_image_item item = {.text = "a red fox", .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    desc.guidance.scale = 1.0f;
    desc.step_count = 4;
    refuses(engine, &desc, SUMI_NOT_SUPPORTED, "step_count is 4, but this model was made for 8 steps");
    desc.step_count = 8;
    const uint64_t own = draw_hash(engine, &desc);
    static const float s_sigmas[] = {1.0f,      0.978453f, 0.95418f,  0.926626f, 0.89508f,
                                     0.845148f, 0.704534f, 0.414568f, 0.0f};
    desc.sigmas = s_sigmas;
    CHECK(own != 0 && draw_hash(engine, &desc) == own);
    desc.sigmas = NULL;
    desc.deadline_ms = 100000;
    CHECK(draw_hash(engine, &desc) == own); // a deadline that leaves out nothing
    desc.solver = SUMI_SOLVER_HEUN;
    refuses(engine, &desc, SUMI_NOT_SUPPORTED, "this solver evaluates twice in a step");
    desc.deadline_ms = 0;
    CHECK(draw_hash(engine, &desc) != 0);
    desc.solver = SUMI_SOLVER_EULER;
    desc.step_count = 4; // with a schedule of the caller's
    desc.shift = 3.0f;
    CHECK(draw_hash(engine, &desc) != 0);
    const sumi_image_item other = {.text = "a red fox", .seed = 7};
    sumi_image_desc of_base = family_image(base, &other);
    of_base.guidance.scale = 1.0f;
    of_base.step_count = 8;
    CHECK(draw_hash(engine, &of_base) != own);
    close_engine(engine);
}

// ---- Edits ----------------------------------------------------------------------------------------------------------

// The hash of a picture whose noise is given: that of the seed.
static uint64_t draw_with_noise_of(sumi_engine* engine, const sumi_image_desc* of, uint64_t seed)
{
    static sumi_torch_cpu_generator s_generator;
    static float s_noise[LATENTS];
    sumi_image_desc desc = *of;
    sumi_torch_cpu_seed(&s_generator, seed);
    sumi_torch_cpu_randn(&s_generator, s_noise, LATENTS);
    desc.noise.source = SUMI_NOISE_GIVEN;
    desc.noise.values = s_noise;
    return draw_hash(engine, &desc);
}

TEST(an_edit_begins_with_other_noise_than_a_drawing_of_its_seed)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    const sumi_image_item item = {.text = "a red fox", .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    desc.guidance.scale = 1.0f;
    const uint64_t drawing = draw_hash(engine, &desc);
    CHECK(drawing != 0 && draw_with_noise_of(engine, &desc, 7) == drawing);
    use_references(&desc, 1);
    const uint64_t edit = draw_hash(engine, &desc);
    CHECK(edit != 0 && draw_with_noise_of(engine, &desc, 7) != edit);
    CHECK(draw_with_noise_of(engine, &desc, 7 ^ EDIT_SEED) == edit);
    // an encoded prompt brings its references, and the result names the seed that was asked for
    sumi_prompt* prompt = encode_for(engine, &desc, "a red fox");
    const sumi_image_item encoded = {.prompt = prompt, .seed = 7};
    desc.items = &encoded;
    use_references(&desc, 0);
    sumi_image image;
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    CHECK_NUMBER(image.seed, 7);
    sumi_images_release(engine, &image, 1);
    CHECK(draw_hash(engine, &desc) == edit);
    sumi_prompt_release(prompt);
    close_engine(engine);
}

// The last picture gives the size, by the rule for its area; here 64 x 64 pixels.
TEST(the_last_reference_gives_the_size)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    static const uint8_t s_wide[3 * 80 * 20];
    const sumi_pixels pictures[2] = {family_pictures()[0], {s_wide, 80, 20, 0, 3}};
    const sumi_image_item item = {.text = "a red fox", .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    sumi_size size;
    desc.width = desc.height = 0;
    desc.references = pictures;
    desc.reference_count = 2;
    CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
    CHECK(size.width == 128 && size.height == 32);
    desc.reference_count = 1;
    CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
    CHECK(size.width == 64 && size.height == 64);
    // With the released area a long one is refused with its own size, before the vision tower looks at it.
    sumi_recipe large = *model->network->recipe;
    large.references.autoencoder_area = 1024 * 1024;
    model->network->recipe = &large;
    const sumi_pixels narrow = {s_wide, 1600, 3, 0, 1};
    desc.width = desc.height = SIDE;
    desc.references = &narrow;
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "an image of 1600 x 3 pixels would be resized to 23648 x 32 for");
    close_engine(engine);
}

static sumi_result load_changed(sumi_model* model, const void* saved, size_t bytes, const char* from, const char* to)
{
    char* copy = malloc(bytes);
    sumi_prompt* prompt = NULL;
    memcpy(copy, saved, bytes);
    bool found = false;
    for (size_t i = 0; i + strlen(from) <= bytes && !found; i++) {
        found = memcmp(copy + i, from, strlen(from)) == 0;
        if (found) memcpy(copy + i, to, strlen(to));
    }
    CHECK(found && strlen(from) == strlen(to));
    const sumi_result result = sumi_prompt_load(model, copy, bytes, &prompt);
    CHECK((prompt != NULL) == (result == SUMI_OK));
    sumi_prompt_release(prompt);
    free(copy);
    return result;
}

// The rows of a prompt's features are: user turn and "<image1><|vision_start|>", the picture's cells, and so on.
TEST(saved_prompts_say_where_their_references_stand)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    const sumi_image_item item = {.text = "a red fox", .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    use_references(&desc, 2);
    sumi_prompt* prompt = encode_for(engine, &desc, "a red fox");
    size_t bytes;
    char* saved = save_prompt(prompt, &bytes);
    const sumi_reference_place *first = &prompt->places[0], *second = &prompt->places[1];
    char rows[64], changed[64];
    snprintf(rows, sizeof rows, "%d+%d %d+%d", (int)first->row, (int)first->count, (int)second->row,
             (int)second->count);
    CHECK(first->row > 0 && first->count == 4 && second->row > first->row + 4 && second->count == 4);
    CHECK_NUMBER(load_changed(model, saved, bytes, rows, rows), SUMI_OK);
    CHECK_NUMBER(load_changed(model, saved, bytes, "reference_rows", "reference_xxxx"), SUMI_FILE_MALFORMED);
    CHECK(strstr(s_host.log, "where its 2 images stand") != NULL);
    static const char s_wrong[] = {'-', ' ', '+', 'x'};
    for (size_t i = 0; rows[i] != '\0'; i++) {
        for (size_t k = 0; k < sizeof s_wrong; k++) {
            snprintf(changed, sizeof changed, "%s", rows);
            changed[i] = s_wrong[k];
            if (strcmp(changed, rows) != 0)
                CHECK_NUMBER(load_changed(model, saved, bytes, rows, changed), SUMI_FILE_MALFORMED);
        }
    }
    snprintf(changed, sizeof changed, "%d+%d %0*d+%d", (int)first->row, (int)first->count,
             snprintf(NULL, 0, "%d", (int)second->row), (int)first->row + 3, (int)second->count); // over the first
    CHECK_NUMBER(load_changed(model, saved, bytes, rows, changed), SUMI_FILE_MALFORMED);
    snprintf(changed, sizeof changed, "%s", rows);
    changed[strlen(rows) - 1] = '0'; // no rows
    CHECK_NUMBER(load_changed(model, saved, bytes, rows, changed), SUMI_FILE_MALFORMED);
    free(saved);
    sumi_prompt_release(prompt);
    close_engine(engine);
}

// ---- The prefix -----------------------------------------------------------------------------------------------------

static const sumi_plan_entry* newest_plan(const sumi_engine* engine)
{
    const sumi_plan_entry* newest = NULL;
    for (int i = 0; i < SUMI_PLAN_CACHE_SIZE; i++) {
        const sumi_plan_entry* entry = &engine->cache.entries[i];
        if (entry->model != NULL && (newest == NULL || entry->used > newest->used)) newest = entry;
    }
    return newest;
}

// Rows of the value of that name; of several, the first. 0: there is none.
static int32_t rows_of(const sumi_engine* engine, const char* name)
{
    const sumi_plan* plan = &newest_plan(engine)->plan;
    for (size_t i = 0; i < plan->value_count; i++)
        if (plan->values[i].name != NULL && strcmp(plan->values[i].name, name) == 0) return plan->values[i].rows;
    return 0;
}

static double flops_of(const sumi_engine* engine, sumi_section_kind kind)
{
    const sumi_plan* plan = &newest_plan(engine)->plan;
    double flops = 0;
    for (size_t i = 0; i < plan->op_count; i++)
        if (plan->sections[plan->ops[i].section].kind == kind) flops += plan->ops[i].flops;
    return flops;
}

// Texts and references are rows of the prefix, not of the steps. With guidance the rows up to the last reference are
// computed once, and kept for both prompts, whether these are texts or were encoded before with the same references. A
// prompt with other rows before a reference computes its own.
TEST(references_are_computed_once_for_both_texts)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    sumi_image_item item = {.text = "a red fox", .negative_text = "blurry, and grey", .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    desc.guidance.scale = 3.0f;
    use_references(&desc, 2);
    const uint64_t together = draw_hash(engine, &desc);
    const int32_t shared_rows = rows_of(engine, "prefix"), kept_rows = rows_of(engine, "kept");
    sumi_memory of_texts, of_prompts;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &of_texts), SUMI_OK);
    const double steps = flops_of(engine, SUMI_SECTION_DENOISE);
    encoded_item fox = encode_item(engine, &desc);
    const int32_t texts = sumi_prompt_get_info(fox.positive).encoders[0].token_count
                        + sumi_prompt_get_info(fox.negative).encoders[0].token_count,
                  before = fox.positive->places[1].row + fox.positive->places[1].count, pictures = 2 * 16;
    CHECK_NUMBER(fox.negative->places[1].row, fox.positive->places[1].row);
    desc.items = &fox.item;
    CHECK(together != 0 && draw_hash(engine, &desc) == together);
    CHECK(rows_of(engine, "prefix") == shared_rows && rows_of(engine, "kept") == kept_rows);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &of_prompts), SUMI_OK);
    CHECK_NUMBER(of_prompts.arena, newest_plan(engine)->plan.arena_bytes);
    // 8 of the rows of each text are cells of references, for which the latents' 32 rows stand
    CHECK_NUMBER(kept_rows, texts - 2 * 8 + 2 * pictures);
    CHECK_NUMBER(shared_rows, kept_rows - (before - 8 + pictures));
    float *cell = fox.negative->features[0] + fox.positive->places[1].row * fox.positive->width[0],
          *between = cell - fox.positive->width[0];
    *cell += 1.0f; // nobody reads it
    CHECK(draw_hash(engine, &desc) == together && rows_of(engine, "prefix") == shared_rows);
    *between += 1.0f; // the row before the second reference
    CHECK(draw_hash(engine, &desc) != together);
    CHECK(rows_of(engine, "prefix") == kept_rows && rows_of(engine, "kept") == kept_rows);
    *between -= 1.0f;
    CHECK(flops_of(engine, SUMI_SECTION_DENOISE) == steps);
    release_item(&fox);
    // a step without references differs from one with them only in the keys that its attention reads
    use_references(&desc, 0);
    item = (sumi_image_item){.text = "a red fox", .negative_text = "blurry, and grey", .seed = 7};
    desc.items = &item;
    CHECK(draw_hash(engine, &desc) != 0);
    CHECK(rows_of(engine, "prefix") < shared_rows && flops_of(engine, SUMI_SECTION_DENOISE) < steps);
    CHECK(flops_of(engine, SUMI_SECTION_DENOISE) > 0.7 * steps);
    close_engine(engine);
}

// Both texts in one batch with another length each, drawn in slices and after pauses: test_family_jobs.c. Here the
// memory of the kept rows: it is in the answer, and a budget without room for it is refused with the bytes.
TEST(kept_rows_are_counted_in_the_memory_of_a_job)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    const sumi_image_item item = {.text = "a red fox", .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    desc.guidance.scale = 1.0f;
    use_references(&desc, 1);
    sumi_memory one, two;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &one), SUMI_OK);
    // a large reference: 16 times the area, so 256 rows for 16
    sumi_recipe large = *model->network->recipe;
    large.references.autoencoder_area = 16 * 64 * 64;
    model->network->recipe = &large;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &two), SUMI_OK);
    const uint64_t kept = 240 * 2 * 64 * sizeof(float) * 2; // rows, k and v, width, blocks
    CHECK(two.arena > one.arena + kept);
    sumi_job job;
    sumi_image image;
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, one.arena / 2), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &two), SUMI_BUDGET_TOO_SMALL);
    CHECK(strstr(s_host.log, " bytes") != NULL);
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK(strstr(sumi_job_poll(engine, job).message, "this job needs ") != NULL);
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_BUDGET_TOO_SMALL);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
    CHECK(draw_hash(engine, &desc) != 0);
    close_engine(engine);
}

// Also where two prompts that were encoded before share what both references are computed for.
TEST(a_job_that_does_not_fit_says_how_many_references_would)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    sumi_recipe large = *model->network->recipe; // so that references take more than the image
    large.references.autoencoder_area = 16 * 64 * 64;
    model->network->recipe = &large;
    const sumi_image_item item = {.text = "a red fox", .negative_text = "grey", .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    desc.guidance.scale = 3.0f;
    use_references(&desc, 1);
    sumi_memory memory;
    encoded_item one = encode_item(engine, &desc);
    desc.items = &one.item;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    const uint64_t of_one = memory.arena + memory.staging;
    desc.items = &item;
    use_references(&desc, 2);
    encoded_item two = encode_item(engine, &desc);
    desc.items = &two.item;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    const uint64_t of_two = memory.arena + memory.staging;
    CHECK(of_two > of_one);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, of_two - 1), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_BUDGET_TOO_SMALL);
    CHECK(strstr(s_host.log, "; 1 of its 2 reference images would fit") != NULL);
    CHECK_NUMBER(memory.needed, of_two);
    release_item(&one);
    release_item(&two);
    close_engine(engine);
}

// A prompt without a reference is shorter too: its rows would otherwise be counted in every answer.
TEST(references_that_would_fit_are_counted_in_shorter_prompts)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    sumi_recipe large = *model->network->recipe;
    large.references.autoencoder_area = 16 * 64 * 64;
    model->network->recipe = &large;
    const sumi_image_item item = {.text = "a red fox", .negative_text = "grey", .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    enum { REFERENCES = 3 };
    const sumi_pixels pictures[REFERENCES] = {family_pictures()[0], family_pictures()[1], family_pictures()[0]};
    for (int guided = 0; guided < 2; guided++) {
        desc.guidance.scale = guided ? 3.0f : 1.0f;
        for (int encoded = 0; encoded < 2; encoded++) {
            uint64_t needed[REFERENCES + 1];
            encoded_item given = {0};
            sumi_memory memory;
            for (int32_t count = 0; count <= REFERENCES; count++) {
                release_item(&given);
                desc.items = &item;
                desc.references = count > 0 ? pictures : NULL;
                desc.reference_count = count;
                given = (encoded_item){0};
                if (encoded) given = encode_item(engine, &desc), desc.items = &given.item;
                CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
                needed[count] = memory.arena + memory.staging;
                CHECK(count == 0 || needed[count] > needed[count - 1]);
            }
            for (int32_t count = 0; count < REFERENCES; count++) {
                char sentence[80];
                if (count == 0) snprintf(sentence, sizeof sentence, "; not one of its 3 reference images fits");
                else snprintf(sentence, sizeof sentence, "; %d of its 3 reference images would fit", (int)count);
                // the tokens around pictures are counted in any case
                const uint64_t budget = needed[count] + (needed[count + 1] - needed[count]) / 4;
                CHECK_NUMBER(sumi_engine_set_memory_budget(engine, budget), SUMI_OK);
                CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_BUDGET_TOO_SMALL);
                if (strstr(s_host.log, sentence) == NULL) printf("  \"%s\" is not in \"%s\"\n", sentence, s_host.log);
                CHECK(strstr(s_host.log, sentence) != NULL);
                CHECK_NUMBER(memory.needed, needed[REFERENCES]);
            }
            CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
            release_item(&given);
        }
    }
    close_engine(engine);
}

// What the job that encodes a text with these pictures is refused with under a budget.
static void refuse_prompt(sumi_engine* engine, const sumi_image_desc* image, uint64_t budget, char message[512])
{
    const sumi_prompt_desc desc = prompt_of(image, "a red fox");
    sumi_job job;
    sumi_prompt* prompt;
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, budget), SUMI_OK);
    CHECK_NUMBER(sumi_submit_prompt(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    snprintf(message, 512, "%s", sumi_job_poll(engine, job).message);
    CHECK_NUMBER(sumi_fetch_prompt(engine, job, &prompt), SUMI_BUDGET_TOO_SMALL);
}

TEST(a_prompt_that_does_not_fit_says_how_many_references_would)
{
    OPEN_ROW("qwen-image-2.1", engine, model);
    sumi_recipe large = *model->network->recipe;
    large.references.autoencoder_area = 16 * 64 * 64;
    model->network->recipe = &large;
    const sumi_image_item item = {.text = "a red fox", .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    unsigned long long needed[3];
    char message[512];
    for (int32_t count = 0; count <= 2; count++) {
        use_references(&desc, count);
        refuse_prompt(engine, &desc, 1, message);
        CHECK(sscanf(message, "this job needs %llu bytes", &needed[count]) == 1);
        CHECK(strstr(message, "reference image") == NULL && (count == 0 || needed[count] > needed[count - 1]));
    }
    refuse_prompt(engine, &desc, (3 * needed[1] + needed[2]) / 4, message);
    CHECK(strstr(message, "or use a shorter prompt; 1 of its 2 reference images would fit") != NULL);
    use_references(&desc, 1);
    refuse_prompt(engine, &desc, (3 * needed[0] + needed[1]) / 4, message);
    CHECK(strstr(message, "or use a shorter prompt; it would fit without its reference image") != NULL);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(facts_and_presets_are_the_authors);
    RUN(each_latent_is_four_pixels_of_a_preview);
    RUN(turbo_has_eight_steps_and_says_so);
    RUN(an_edit_begins_with_other_noise_than_a_drawing_of_its_seed);
    RUN(the_last_reference_gives_the_size);
    RUN(saved_prompts_say_where_their_references_stand);
    RUN(references_are_computed_once_for_both_texts);
    RUN(a_job_that_does_not_fit_says_how_many_references_would);
    RUN(references_that_would_fit_are_counted_in_shorter_prompts);
    RUN(a_prompt_that_does_not_fit_says_how_many_references_would);
    RUN(kept_rows_are_counted_in_the_memory_of_a_job);
    TEST_END();
}
