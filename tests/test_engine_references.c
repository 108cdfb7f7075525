// Reference pictures from the public API into a job's plan: their sizes and tokens, their pixels, and all that a job
// may ask for beside them.
#include "at_once.h"
#include "edit_fixture.h"
#include "jobs/objects.h"
#include "jobs/prompt.h"
#include "models/prompt_reader.h"
#include "reference_fixture.h"

// ---- Sizes and tokens -----------------------------------------------------------------------------------------------

TEST(sizes_are_those_of_the_published_pipelines)
{
    static const struct {
        sumi_picture_size picture, large, large_seen, small, small_seen;
        int32_t large_tokens, small_tokens;
    } s_rows[] = {
        {{640, 640}, {1024, 1024}, {1036, 1036}, {384, 384}, {392, 392}, 1369, 196},
        {{1920, 1080}, {1376, 768}, {1372, 756}, {512, 288}, {504, 280}, 1323, 180},
        {{1664, 928}, {1376, 768}, {1372, 756}, {512, 288}, {504, 280}, 1323, 180},
        {{1080, 1920}, {768, 1376}, {756, 1372}, {288, 512}, {280, 504}, 1323, 180},
        {{800, 600}, {1184, 896}, {1176, 896}, {448, 320}, {448, 308}, 1344, 176},
        {{4032, 3024}, {1184, 896}, {1176, 896}, {448, 320}, {448, 308}, 1344, 176},
        {{600, 800}, {896, 1184}, {896, 1176}, {320, 448}, {308, 448}, 1344, 176},
        {{832, 1216}, {832, 1248}, {840, 1260}, {320, 480}, {308, 476}, 1350, 187},
        {{2000, 500}, {2048, 512}, {2044, 504}, {768, 192}, {756, 196}, 1314, 189},
    };
    const sumi_vision_properties properties = {
        .width = EDIT_WIDTH, .cell = 28, .min_pixels = 3136, .max_pixels = 12845056};
    for (int small = 0; small < 2; small++) {
        OPEN(engine, model);
        const sumi_reference_rule rule = {.max_count = 3,
                                          .autoencoder_area = 1024 * 1024,
                                          .vision_area = small ? 384 * 384 : 1024 * 1024,
                                          .multiple = 32,
                                          .max_ratio = 200};
        make_edit_model(model, &rule, &properties);
        sumi_error error = {0};
        sumi_reference_sizes sizes;
        for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
            const sumi_picture_size first = small ? s_rows[i].small : s_rows[i].large,
                                    seen = small ? s_rows[i].small_seen : s_rows[i].large_seen;
            CHECK_NUMBER(sumi_network_reference_sizes(model->network, s_rows[i].picture, &sizes, &error), SUMI_OK);
            CHECK(sizes.autoencoder.width == s_rows[i].large.width
                  && sizes.autoencoder.height == s_rows[i].large.height);
            CHECK(sizes.first.width == first.width && sizes.first.height == first.height);
            CHECK(sizes.vision.width == seen.width && sizes.vision.height == seen.height);
            CHECK_NUMBER(sizes.tokens, small ? s_rows[i].small_tokens : s_rows[i].large_tokens);
        }
        // beyond the most along a side, 4096
        CHECK_NUMBER(sumi_network_reference_sizes(model->network, (sumi_picture_size){20000, 1000}, &sizes, &error),
                     SUMI_INVALID_ARGUMENT);
        CHECK(strstr(error.text, "closer to a square") != NULL);
        CHECK_NUMBER(sumi_network_reference_sizes(model->network, (sumi_picture_size){20000, 10}, &sizes, &error),
                     SUMI_INVALID_ARGUMENT);
        close_engine(engine);
    }
}

// A checkpoint that was made for smaller images reads references in a smaller area. What the vision tower sees follows
// from the limits of its own files.
TEST(references_are_as_large_as_the_images_that_a_checkpoint_is_for)
{
    OPEN(engine, model);
    const sumi_vision_properties properties = {
        .width = EDIT_WIDTH, .cell = 28, .min_pixels = 3136, .max_pixels = 30000};
    const sumi_reference_rule rule = {
        .max_count = 3, .autoencoder_area = 1024 * 1024, .vision_area = 384 * 384, .multiple = 32, .max_ratio = 200};
    make_edit_model(model, &rule, &properties);
    model->network->info.sample_size = model->network->variant->sample_size / 4;
    static const struct {
        sumi_picture_size picture, read, seen;
    } s_rows[] = {{{1000, 1000}, {256, 256}, {168, 168}}, {{800, 480}, {320, 192}, {196, 112}}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        sumi_error error = {0};
        sumi_reference_sizes sizes;
        CHECK_NUMBER(sumi_network_reference_sizes(model->network, s_rows[i].picture, &sizes, &error), SUMI_OK);
        CHECK(sizes.autoencoder.width == s_rows[i].read.width && sizes.autoencoder.height == s_rows[i].read.height);
        CHECK(sizes.vision.width == s_rows[i].seen.width && sizes.vision.height == s_rows[i].seen.height);
    }
    close_engine(engine);
}

TEST(images_stand_in_the_prompt_as_their_tokens)
{
    OPEN_EDIT(&s_several, engine, model);
    const int32_t tokens[3] = {18, 9, 4};
    int32_t ids[1024], literal[1024], rows[3] = {0}, count = 0, literal_count = 0;
    sumi_error error = {0};
    const sumi_prompt_text text = {.text = "make it red", .bytes = 11, .picture_tokens = tokens, .picture_count = 3};
    CHECK_NUMBER(read_prompt(model->network, 0, &text, &(sumi_prompt_ids){ids, 1024, rows}, &count, &error), SUMI_OK);
    char written[2048] = "";
    for (int i = 0; i < 3; i++) {
        char piece[128];
        snprintf(piece, sizeof piece, "Picture %d: <|vision_start|>", i + 1);
        strcat(written, piece);
        for (int k = 0; k < tokens[i]; k++) strcat(written, "<|image_pad|>");
        strcat(written, "<|vision_end|>");
    }
    strcat(written, "make it red");
    CHECK_NUMBER(read_prompt(model->network, 0, &(sumi_prompt_text){.text = written, .bytes = strlen(written)},
                             &(sumi_prompt_ids){literal, 1024, NULL}, &literal_count, &error),
                 SUMI_OK);
    CHECK_NUMBER(count, literal_count);
    CHECK(memcmp(ids, literal, (size_t)count * sizeof *ids) == 0);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < tokens[i]; k++) CHECK_NUMBER(ids[rows[i] + k], EDIT_PICTURE_TOKEN);
        CHECK(ids[rows[i] - 1] != EDIT_PICTURE_TOKEN && ids[rows[i] + tokens[i]] != EDIT_PICTURE_TOKEN);
    }
    // all of them fit into the capacity that is promised; one less may not
    const int32_t most = model->info.max_prompt_tokens + 18 + 9 + 4;
    char* long_text = malloc(8192);
    memset(long_text, 'q', 8192);
    for (int i = 3; i < 8192; i += 4) long_text[i] = ' ';
    const sumi_prompt_text longer = {.text = long_text, .bytes = 8192, .picture_tokens = tokens, .picture_count = 3};
    CHECK(most <= 1024);
    CHECK_NUMBER(read_prompt(model->network, 0, &longer, &(sumi_prompt_ids){ids, most, rows}, &count, &error), SUMI_OK);
    CHECK_NUMBER(count, most - 3);
    CHECK_NUMBER(read_prompt(model->network, 0, &longer, &(sumi_prompt_ids){ids, most - 4, rows}, &count, &error),
                 SUMI_TEXT_INVALID);
    free(long_text);
    close_engine(engine);
}

TEST(every_image_reaches_its_own_tokens_and_no_others)
{
    OPEN_EDIT(&s_several, engine, model);
    uint8_t data[2][32 * 32 * 3];
    memset(data[0], 40, sizeof data[0]);
    memset(data[1], 200, sizeof data[1]);
    const sumi_pixels same = edit_pictures()[0];
    sumi_prompt* prompts[2] = {NULL};
    for (int k = 0; k < 2; k++) {
        const sumi_pixels pictures[3] = {same, {data[k], 32, 32, 0, 3}, same};
        sumi_prompt_desc desc = sumi_prompt_defaults(model);
        desc.text = "make it red";
        desc.references = pictures;
        desc.reference_count = 3;
        sumi_job job;
        CHECK_NUMBER(sumi_submit_prompt(engine, &desc, &job), SUMI_OK);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        CHECK_NUMBER(sumi_fetch_prompt(engine, job, &prompts[k]), SUMI_OK);
    }
    const int32_t tokens[3] = {18, 9, 18};
    int32_t ids[1024], rows[3] = {0}, count = 0;
    sumi_error error = {0};
    const sumi_prompt_text text = {.text = "make it red", .bytes = 11, .picture_tokens = tokens, .picture_count = 3};
    CHECK_NUMBER(read_prompt(model->network, 0, &text, &(sumi_prompt_ids){ids, 1024, rows}, &count, &error), SUMI_OK);
    CHECK_NUMBER(sumi_prompt_get_info(prompts[0]).encoders[0].token_count, count);
    for (int32_t row = 0; row < count; row++) {
        const bool is_its = row >= rows[1] && row < rows[1] + tokens[1],
                   differs = memcmp(prompts[0]->features[0] + row * EDIT_WIDTH,
                                    prompts[1]->features[0] + row * EDIT_WIDTH, EDIT_WIDTH * sizeof(float))
                          != 0;
        CHECK(is_its == differs);
    }
    close_engine(engine);
}

TEST(long_texts_have_room_beside_images)
{
    OPEN_EDIT(&s_several, engine, model);
    char* text = malloc(4097);
    memset(text, 'q', 4096);
    for (int i = 3; i < 4096; i += 4) text[i] = ' ';
    text[4096] = '\0';
    sumi_image_item items[2] = {{.text = text, .seed = 1}, {.text = text + 1, .seed = 2}};
    sumi_image_desc desc = edit_image(model, items, 3);
    desc.item_count = 2;
    desc.step_count = 1;
    CHECK(edit_hash(engine, &desc) != 0);
    const sumi_job_prompt* prompts = engine->jobs.slots[0].u.plan_job.request.prompts;
    CHECK(prompts[0].token_count[0] == model->info.max_prompt_tokens - 3 + 18 + 9 + 18);
    CHECK(prompts[1].token_count[0] == prompts[0].token_count[0]);
    free(text);
    close_engine(engine);
}

// ---- Pixels ---------------------------------------------------------------------------------------------------------

static void check_pixels(sumi_engine* engine, sumi_model* model, const sumi_pixels* pictures, int32_t count,
                         const sumi_prompt* prompt)
{
    const sumi_plan_entry* entry = newest_plan(engine);
    for (int i = 0; i < count; i++) {
        sumi_error error = {0};
        sumi_reference_sizes sizes;
        CHECK_NUMBER(sumi_network_reference_sizes(
                         model->network, (sumi_picture_size){pictures[i].width, pictures[i].height}, &sizes, &error),
                     SUMI_OK);
        uint8_t *read = resized(&pictures[i], sizes.autoencoder, SUMI_FILTER_LANCZOS),
                *first = resized(&pictures[i], sizes.first, SUMI_FILTER_LANCZOS);
        const sumi_pixels before = {first, sizes.first.width, sizes.first.height, 0, 3};
        uint8_t* seen = resized(&before, sizes.vision, SUMI_FILTER_BICUBIC);
        CHECK(holds(engine, entry, entry->pipeline.vision_pixels[i], seen, sizes.vision));
        if (prompt == NULL) CHECK(holds(engine, entry, entry->pipeline.reference_pixels[i], read, sizes.autoencoder));
        else {
            CHECK(prompt->reference_sizes[i].width == sizes.autoencoder.width
                  && prompt->reference_sizes[i].height == sizes.autoencoder.height);
            CHECK(memcmp(prompt->references[i], read,
                         (size_t)sizes.autoencoder.width * (size_t)sizes.autoencoder.height * 3)
                  == 0);
        }
        free(read), free(first), free(seen);
    }
}

TEST(every_image_is_resized_as_in_one_go)
{
    for (int rule = 0; rule < 2; rule++) {
        OPEN_EDIT_WITH(100, rule == 0 ? &s_several : &s_needed, engine, model);
        const int32_t count = model->info.max_references;
        const sumi_image_item item = {.text = "make it red", .seed = 7};
        sumi_image_desc desc = edit_image(model, &item, count);
        desc.step_count = 1;
        CHECK(edit_hash(engine, &desc) != 0);
        check_pixels(engine, model, edit_pictures(), count, NULL);
        sumi_prompt* prompt = encode_edit(engine, model, "make it red", count);
        check_pixels(engine, model, edit_pictures(), count, prompt);
        close_engine(engine);
    }
}

// RGB without gaps, in the size that the autoencoder reads; the vision tower sees it smaller, or in nearly that size.
TEST(a_reference_of_the_right_size_is_read_as_it_is)
{
    static uint8_t s_rgb[32 * 32 * 3];
    for (size_t i = 0; i < sizeof s_rgb; i++) s_rgb[i] = (uint8_t)(i * 13 + i / 97);
    const sumi_pixels picture = {s_rgb, 32, 32, 0, 3};
    for (int rule = 0; rule < 2; rule++) {
        OPEN_EDIT_WITH(100, rule == 0 ? &s_several : &s_needed, engine, model);
        const sumi_image_item item = {.text = "make it red", .seed = 7};
        sumi_image_desc desc = small_image(model, &item);
        desc.references = &picture;
        desc.reference_count = 1;
        desc.step_count = 1;
        CHECK(edit_hash(engine, &desc) != 0);
        check_pixels(engine, model, &picture, 1, NULL);
        check_pixels(engine, model, &picture, 1, encode_with(engine, model, "make it red", &picture, 1));
        close_engine(engine);
    }
}

// A photograph takes many pieces, none of them long.
TEST(a_large_reference_is_resized_in_pieces)
{
    OPEN(engine, model);
    const sumi_reference_rule rule = {
        .max_count = 1, .autoencoder_area = 32 * 32, .vision_area = 448 * 448, .multiple = 16, .max_ratio = 10};
    const sumi_vision_properties properties = {
        .width = EDIT_WIDTH, .cell = 100, .min_pixels = 10000, .max_pixels = 250000};
    make_edit_model(model, &rule, &properties);
    uint8_t* data = malloc(1600 * 1200 * 4);
    for (size_t i = 0; i < 1600 * 1200 * 4; i++) data[i] = (uint8_t)(i * 13 + i / 1601);
    const sumi_pixels picture = {data, 1600, 1200, 0, 4};
    const sumi_image_item item = {.text = "make it red", .seed = 7};
    sumi_image_desc desc = small_image(model, &item);
    desc.references = &picture;
    desc.reference_count = 1;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    int pieces = 0;
    while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE) {
        sumi_engine_update(engine, 1);
        pieces += engine->jobs.running != NULL && engine->jobs.running->u.plan_job.progress.phase == SUMI_PHASE_INPUT;
    }
    CHECK(pieces > 12);
    printf("  in %d pieces\n", pieces);
    sumi_error error = {0};
    sumi_reference_sizes sizes;
    CHECK_NUMBER(sumi_network_reference_sizes(model->network, (sumi_picture_size){1600, 1200}, &sizes, &error),
                 SUMI_OK);
    CHECK(sizes.vision.width != sizes.first.width || sizes.vision.height != sizes.first.height);
    uint8_t *read = resized(&picture, sizes.autoencoder, SUMI_FILTER_LANCZOS),
            *first = resized(&picture, sizes.first, SUMI_FILTER_LANCZOS);
    const sumi_pixels before = {first, sizes.first.width, sizes.first.height, 0, 3};
    uint8_t* seen = resized(&before, sizes.vision, SUMI_FILTER_BICUBIC);
    const sumi_plan_entry* entry = newest_plan(engine);
    CHECK(holds(engine, entry, entry->pipeline.reference_pixels[0], read, sizes.autoencoder));
    CHECK(holds(engine, entry, entry->pipeline.vision_pixels[0], seen, sizes.vision));
    sumi_image image;
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
    free(read), free(first), free(seen), free(data);
    close_engine(engine);
}

// ---- Jobs -----------------------------------------------------------------------------------------------------------

TEST(references_change_the_image_in_every_way_they_reach_it)
{
    OPEN_EDIT(&s_several, engine, model);
    const sumi_model_info info = sumi_model_get_info(model);
    CHECK(info.takes_references && info.min_references == s_several.min_count
          && info.max_references == s_several.max_count);
    const sumi_image_item item = {.text = "make it red", .seed = 7};
    sumi_image_desc none = edit_image(model, &item, 0), one = edit_image(model, &item, 1);
    none.width = 48, none.height = 16;
    const uint64_t a = edit_hash(engine, &none), b = edit_hash(engine, &one);
    CHECK(a != 0 && b != 0 && a != b);
    CHECK(edit_hash(engine, &one) == b && edit_hash(engine, &none) == a);
    // of another size it is not among the latents here, but still in the text
    one.width = one.height = 32;
    none.width = none.height = 32;
    CHECK(edit_hash(engine, &one) != edit_hash(engine, &none));
    // the host program's pixels are copied at submission
    uint8_t data[40 * 40 * 3];
    memset(data, 90, sizeof data);
    const sumi_pixels grey = {data, 40, 40, 0, 3};
    one.references = &grey;
    const uint64_t c = edit_hash(engine, &one);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &one, &job), SUMI_OK);
    memset(data, 200, sizeof data);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK(fetch_hash(engine, job, &one) == c);
    CHECK(edit_hash(engine, &one) != c);
    close_engine(engine);
}

TEST(batches_guidance_starts_and_previews_go_with_references)
{
    OPEN_EDIT_WITH(300, &s_several, engine, model);
    const sumi_image_item items[2] = {{.text = "make it red", .seed = 1}, {.text = "make it blue", .seed = 2}};
    sumi_image_desc desc = edit_image(model, items, 2);
    desc.item_count = 2;
    desc.guidance.scale = 2.0f;
    desc.preview_every = 1;
    const uint64_t both = edit_hash(engine, &desc);
    CHECK(both != 0);
    uint64_t apart = 0, pictures = 0;
    for (int i = 0; i < 2; i++) { // latents first, then pictures, as fetch_hash has them
        sumi_image_desc one = desc;
        one.items = &items[i];
        one.item_count = 1;
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &one, &job), SUMI_OK);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        CHECK(sumi_job_poll(engine, job).preview_version == 2);
        float latents[16 * 4 * 4];
        CHECK_NUMBER(sumi_job_latents(engine, job, 0, latents, 16 * 4 * 4), SUMI_OK);
        apart = apart * 31 + hash_bytes(latents, sizeof latents);
        sumi_image image;
        CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
        CHECK(image.width == 32 && image.height == 32);
        pictures = pictures * 31 + hash_image(&image);
        sumi_images_release(engine, &image, 1);
    }
    CHECK(both == apart * 31 * 31 + pictures);
    // start image and mask
    desc.start.image = &edit_pictures()[0];
    desc.start.strength = 0.9f;
    const uint64_t started = edit_hash(engine, &desc);
    desc.start.mask = &edit_pictures()[1];
    CHECK(started != 0 && started != both && edit_hash(engine, &desc) != 0);
    desc.deadline_ms = 60000;
    CHECK(edit_hash(engine, &desc) != 0);
    close_engine(engine);
}

TEST(the_size_follows_from_the_references)
{
    for (int rule = 0; rule < 2; rule++) {
        OPEN_EDIT(rule == 0 ? &s_several : &s_needed, engine, model);
        const sumi_image_item item = {.text = "make it red", .seed = 7};
        sumi_image_desc desc = edit_image(model, &item, 2);
        sumi_size size = {1, 1};
        CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
        // the last one is nearly a square, the first one wide
        CHECK(size.width == (rule == 0 ? 32 : 48) && size.height == (rule == 0 ? 32 : 16));
        sumi_image image;
        CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
        CHECK(image.width == size.width && image.height == size.height);
        sumi_memory memory, given;
        CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
        desc.width = size.width, desc.height = size.height;
        CHECK_NUMBER(sumi_image_memory(engine, &desc, &given), SUMI_OK);
        CHECK(memcmp(&memory, &given, sizeof memory) == 0 && memory.images > 0);
        const uint64_t sized = edit_hash(engine, &desc);
        desc.width = desc.height = 0;
        CHECK(edit_hash(engine, &desc) == sized && sized != 0);
        // targets are checked against what comes out
        unsigned char into[48 * 48 * 4];
        sumi_target target = {.host_memory = into, .row_bytes = size.width * 4 - 4};
        desc.targets = &target;
        CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_INVALID_ARGUMENT);
        CHECK(size.width == 0 && strstr(s_host.log, "row_bytes") != NULL);
        desc.targets = NULL;
        desc.width = 32; // one of the two is no size
        CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_INVALID_ARGUMENT);
        close_engine(engine);
    }
    sumi_size size = {1, 1};
    sumi_image_desc none;
    memset(&none, 0, sizeof none);
    CHECK_NUMBER(sumi_image_size(NULL, &size), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_image_size(&none, &size), SUMI_DESC_NOT_INITIALIZED);
    CHECK(size.width == 0);
}

TEST(presets_may_leave_the_size_to_the_references)
{
    const sumi_size_scale scale = {1024, 512, 16, 4096};
    sumi_preset_values from[SUMI_PRESET_COUNT], to[SUMI_PRESET_COUNT];
    memset(from, 0, sizeof from);
    from[1].width = from[1].height = 1024;
    sumi_presets_scaled(from, &scale, to);
    CHECK(to[0].width == 0 && to[0].height == 0 && to[1].width == 512);

    OPEN_EDIT(&s_several, engine, model);
    to[0] = model->info.presets[0];
    to[0].width = to[0].height = 0;
    model->info.presets = to;
    const sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    CHECK(desc.width == 0 && desc.height == 0 && desc.step_count == to[0].step_count);
    CHECK_NUMBER(sumi_encode_defaults(model).width, model->info.sample_size);
    model->info.sample_size = 79;
    CHECK_NUMBER(sumi_encode_defaults(model).width, 64);
    sumi_image image;
    CHECK_NUMBER(sumi_generate(engine, model, "a red house", 7, &image), SUMI_OK);
    CHECK(image.width == 64 && image.height == 64);
    model->info.min_references = 1;
    CHECK_NUMBER(sumi_generate(engine, model, "a red house", 7, &image), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "makes no image without references") != NULL);
    close_engine(engine);
}

// A checkpoint's files may name any side.
TEST(without_references_and_size_an_image_has_the_native_size)
{
    static const struct {
        int32_t native, side;
    } s_rows[] = {{48, 48}, {79, 64}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        OPEN_EDIT(&s_several, engine, model);
        model->network->info.sample_size = model->info.sample_size = s_rows[i].native;
        const sumi_image_item item = {.text = "a red house", .seed = 7};
        sumi_image_desc desc = edit_image(model, &item, 0);
        sumi_size size;
        CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
        CHECK(size.width == s_rows[i].side && size.height == s_rows[i].side);
        sumi_image image;
        CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
        CHECK(image.width == s_rows[i].side && image.height == s_rows[i].side);
        const uint64_t hash = edit_hash(engine, &desc);
        desc.width = desc.height = s_rows[i].side;
        CHECK(hash != 0 && edit_hash(engine, &desc) == hash);
        close_engine(engine);
    }
}

TEST(memory_counts_references)
{
    OPEN_EDIT(&s_several, engine, model);
    const sumi_image_item item = {.text = "make it red", .seed = 7};
    sumi_image_desc desc = edit_image(model, &item, 0);
    desc.width = desc.height = 32;
    sumi_memory without, with;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &without), SUMI_OK);
    desc.references = edit_pictures();
    desc.reference_count = 3;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &with), SUMI_OK);
    CHECK(with.arena > without.arena && with.host > without.host + 60 * 20 * 4);
    // a job like an earlier one allocates nothing
    CHECK(edit_hash(engine, &desc) != 0 && edit_hash(engine, &desc) != 0);
    const uint64_t before = sumi_engine_get_info(engine).allocation_count;
    CHECK(edit_hash(engine, &desc) != 0);
    CHECK_NUMBER(sumi_engine_get_info(engine).allocation_count, before);
    close_engine(engine);
}

TEST(a_reference_larger_than_the_image_is_read_in_tiles)
{
    OPEN(engine, model);
    const sumi_reference_rule rule = {
        .max_count = 1, .autoencoder_area = 512 * 512, .vision_area = 16 * 16, .multiple = 16, .max_ratio = 10};
    make_edit_model(model, &rule, &s_cells);
    const sumi_image_item item = {.text = "make it red", .seed = 7};
    sumi_image_desc desc = edit_image(model, &item, 1);
    desc.references = &edit_pictures()[1];
    desc.width = desc.height = 32;
    sumi_memory whole, tiled;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &whole), SUMI_OK);
    CHECK(!whole.tiles_vae);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, whole.arena / 3 * 2), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &tiled), SUMI_OK);
    CHECK(tiled.tiles_vae && tiled.arena <= whole.arena / 3 * 2);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(sizes_are_those_of_the_published_pipelines);
    RUN(references_are_as_large_as_the_images_that_a_checkpoint_is_for);
    RUN(images_stand_in_the_prompt_as_their_tokens);
    RUN(every_image_reaches_its_own_tokens_and_no_others);
    RUN(long_texts_have_room_beside_images);
    RUN(every_image_is_resized_as_in_one_go);
    RUN(a_reference_of_the_right_size_is_read_as_it_is);
    RUN(a_large_reference_is_resized_in_pieces);
    RUN(references_change_the_image_in_every_way_they_reach_it);
    RUN(batches_guidance_starts_and_previews_go_with_references);
    RUN(the_size_follows_from_the_references);
    RUN(presets_may_leave_the_size_to_the_references);
    RUN(without_references_and_size_an_image_has_the_native_size);
    RUN(memory_counts_references);
    RUN(a_reference_larger_than_the_image_is_read_in_tiles);
    TEST_END();
}
