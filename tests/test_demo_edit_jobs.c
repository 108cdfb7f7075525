// Jobs of the demo edit model, end to end as a host would run them: references of every size and format, prompts and
// guidance, adapters, batches, budgets, cancelling, failures. What the images show is of no account here and is
// test_demo_edit's subject: two steps are enough.
#include "demo_edit_fixture.h"

#define FEW 2

// Two pictures that every job may use: a house beside a tree, and a cat at night.
static uint8_t* s_pictures[2];
static sumi_pixels s_references[2];

static void paint_pictures(void)
{
    static const demo_scene s_scenes[2] = {
        {PLAIN, false, 2, {{HOUSE, YELLOW, 0.255, 0.5, 0.19}, {TREE, GREEN, 0.745, 0.5, 0.19}}},
        {NIGHT, false, 1, {{CAT, ORANGE, 0.5, 0.5, 0.3}}}};
    for (int i = 0; i < 2; i++) {
        s_pictures[i] = demo_paint(&s_scenes[i], SIDE, SIDE);
        s_references[i] = rgba(s_pictures[i], SIDE, SIDE);
    }
}

static const sumi_image_item s_blue = {.text = "make the house blue", .seed = 7};

// A job of few steps with the first `count` pictures.
static sumi_image_desc job_of(const sumi_image_item* item, int32_t count)
{
    sumi_image_desc desc = edit_of(item, 1, s_references, count);
    if (count == 0) desc.references = NULL;
    desc.step_count = FEW;
    return desc;
}

// Of pixels and size; 0 after a failure, which is counted.
static uint64_t hash_on(sumi_engine* engine, const sumi_image_desc* desc)
{
    sumi_image images[MAX_ITEMS] = {{0}};
    uint8_t* pixels = draw_pixels(engine, desc, images);
    if (pixels == NULL) return 0;
    const size_t bytes = (size_t)4 * (size_t)images[0].width * (size_t)images[0].height;
    const uint64_t hash = hash_bytes(pixels, bytes * (size_t)desc->item_count) * 31 + (uint64_t)images[0].width;
    free(pixels);
    return hash;
}
static uint64_t hash_of(const sumi_image_desc* desc) { return hash_on(s_engine, desc); }

// The image of s_blue and the first picture, from which the tests look for changes.
static uint64_t usual_hash(void)
{
    static uint64_t s_usual;
    const sumi_image_desc desc = job_of(&s_blue, 1);
    if (s_usual == 0) s_usual = hash_of(&desc);
    CHECK(s_usual != 0);
    return s_usual;
}

static void refuses(const sumi_image_desc* desc, sumi_result want, const char* sentence)
{
    sumi_job job;
    sumi_size size;
    s_host.log[0] = 0;
    CHECK_NUMBER(sumi_submit_images(s_engine, desc, &job), want);
    CHECK_NUMBER(sumi_image_size(desc, &size), want);
    if (strstr(s_host.log, sentence) == NULL) printf("  \"%s\" does not say \"%s\"\n", s_host.log, sentence);
    CHECK(strstr(s_host.log, sentence) != NULL);
}

// ---- References -----------------------------------------------------------------------------------------------------

// Each is resized to an area of 256 x 256 pixels, and the image to the size of the last one.
TEST(references_of_any_size_give_their_shape)
{
    static const struct {
        sumi_size picture, want;
    } s_rows[] = {{{256, 256}, {256, 256}}, {{512, 512}, {256, 256}}, {{40, 40}, {256, 256}},
                  {{1, 1}, {256, 256}},     {{320, 192}, {320, 192}}, {{192, 320}, {192, 320}},
                  {{211, 157}, {288, 224}}, {{157, 211}, {224, 288}}, {{1031, 77}, {928, 64}},
                  {{3, 61}, {64, 1152}}};
    static const demo_scene s_scene = {SKY, false, 1, {{HEART, RED, 0.5, 0.5, 0.3}}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        const sumi_size picture = s_rows[i].picture, want = s_rows[i].want;
        uint8_t* data = demo_paint(&s_scene, picture.width, picture.height);
        const sumi_pixels reference = rgba(data, picture.width, picture.height);
        sumi_image_desc desc = edit_of(&s_blue, 1, &reference, 1);
        desc.step_count = 1;
        desc.guidance.scale = 1.0f;
        sumi_size size = {0};
        sumi_image image = {0};
        CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
        uint8_t* pixels = draw_pixels(s_engine, &desc, &image);
        if (size.width != want.width || size.height != want.height)
            printf("  %dx%d gives %dx%d\n", picture.width, picture.height, size.width, size.height);
        CHECK(size.width == want.width && size.height == want.height);
        CHECK(image.width == want.width && image.height == want.height);
        free(pixels), free(data);
    }
}

// The size of the image may be another than that of its reference.
TEST(an_image_may_have_another_size_than_its_reference)
{
    sumi_image_desc desc = job_of(&s_blue, 1);
    desc.width = 192, desc.height = 128;
    sumi_image image = {0};
    uint8_t* pixels = draw_pixels(s_engine, &desc, &image);
    CHECK(image.width == 192 && image.height == 128);
    free(pixels);
}

TEST(only_the_colours_of_a_reference_count)
{
    const uint64_t want = usual_hash();
    // each in a block of exactly its size
    const size_t count = (size_t)SIDE * SIDE, pitch = 3 * SIDE + 5;
    uint8_t *alpha = exact_copy(s_pictures[0], 4 * count), *rgb = malloc(3 * count),
            *wide = malloc(pitch * (SIDE - 1) + (size_t)3 * SIDE), *grey = malloc(count), *grey_rgb = malloc(3 * count);
    for (size_t i = 0; i < count; i++) {
        alpha[4 * i + 3] = (uint8_t)(i * 37 + i / SIDE);
        grey[i] = alpha[4 * i + 1];
        for (size_t c = 0; c < 3; c++) {
            rgb[3 * i + c] = alpha[4 * i + c];
            wide[i / SIDE * pitch + 3 * (i % SIDE) + c] = alpha[4 * i + c];
            grey_rgb[3 * i + c] = grey[i];
        }
    }
    const sumi_pixels same[] = {{alpha, SIDE, SIDE, 0, 4},
                                {rgb, SIDE, SIDE, 0, 3},
                                {wide, SIDE, SIDE, (int32_t)pitch, 3}},
                      greys[] = {{grey, SIDE, SIDE, 0, 1}, {grey_rgb, SIDE, SIDE, 0, 3}};
    sumi_image_desc desc = job_of(&s_blue, 1);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        desc.references = &same[i];
        CHECK(hash_of(&desc) == want);
    }
    desc.references = &greys[0];
    const uint64_t of_grey = hash_of(&desc);
    desc.references = &greys[1];
    CHECK(of_grey != want && of_grey == hash_of(&desc));
    rgb[3 * (100 * SIDE + 100)] ^= 0x80; // one value of one pixel
    desc.references = &same[1];
    CHECK(hash_of(&desc) != want);
    free(alpha), free(rgb), free(wide), free(grey), free(grey_rgb);
}

TEST(every_reference_counts_and_so_does_their_order)
{
    const sumi_image_item item = {.text = "put the house of picture 2 into picture 1", .seed = 7};
    const sumi_pixels swapped[2] = {s_references[1], s_references[0]},
                      three[3] = {s_references[0], s_references[1], s_references[0]};
    sumi_image_desc desc = job_of(&item, 0);
    uint64_t hashes[5];
    hashes[0] = hash_of(&desc);
    for (int i = 1; i < 5; i++) {
        desc.references = i == 3 ? swapped : i == 4 ? three : s_references;
        desc.reference_count = i < 3 ? i : i - 1;
        hashes[i] = hash_of(&desc);
        for (int k = 0; k < i; k++) CHECK(hashes[k] != 0 && hashes[i] != hashes[k]);
    }
    // the host program may free pictures and texts once the job is submitted
    uint8_t* copies[2] = {exact_copy(s_pictures[0], PIXEL_BYTES), exact_copy(s_pictures[1], PIXEL_BYTES)};
    char text[64];
    snprintf(text, sizeof text, "%s", item.text);
    sumi_pixels brief[2] = {rgba(copies[0], SIDE, SIDE), rgba(copies[1], SIDE, SIDE)};
    sumi_image_item brief_item = {.text = text, .seed = 7};
    desc = edit_of(&brief_item, 1, brief, 2);
    desc.step_count = FEW;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(s_engine, &desc, &job), SUMI_OK);
    free(copies[0]), free(copies[1]);
    memset(text, 0, sizeof text), memset(brief, 0, sizeof brief), memset(&brief_item, 0, sizeof brief_item);
    uint8_t* pixels = take_pixels(s_engine, job, 1, NULL);
    CHECK(pixels != NULL && hash_bytes(pixels, PIXEL_BYTES) * 31 + SIDE == hashes[2]);
    free(pixels);
}

TEST(references_that_cannot_be_are_refused)
{
    const sumi_model_info info = sumi_model_get_info(s_model);
    CHECK(info.takes_references && info.min_references == 0 && info.max_references == 3);
    sumi_pixels bad[4] = {s_references[0], s_references[1], s_references[0], s_references[1]};
    sumi_image_desc desc = edit_of(&s_blue, 1, bad, 4);
    refuses(&desc, SUMI_INVALID_ARGUMENT, "give 0 to 3");
    desc.reference_count = 2;
    static const sumi_pixels s_wrong[] = {{NULL, 8, 8, 0, 4}, {"", 0, 8, 0, 4},  {"", 8, -1, 0, 4},
                                          {"", 8, 8, 0, 2},   {"", 8, 8, 12, 4}, {"", INT32_MAX, INT32_MAX, 0, 4}};
    for (size_t i = 0; i < sizeof s_wrong / sizeof *s_wrong; i++) {
        bad[1] = s_wrong[i];
        refuses(&desc, SUMI_INVALID_ARGUMENT, "references[1]");
    }
    static const uint8_t s_thin[1000];
    bad[1] = (sumi_pixels){s_thin, 1000, 1, 0, 1};
    refuses(&desc, SUMI_INVALID_ARGUMENT, "closer to a square");
    desc.references = NULL;
    refuses(&desc, SUMI_INVALID_ARGUMENT, "references is NULL");
    desc = job_of(&s_blue, 1);
    desc.width = desc.height = SIDE + 1;
    refuses(&desc, SUMI_INVALID_ARGUMENT, "multiple");

    sumi_model_desc md = sumi_model_defaults();
    md.path = DEMO_EDIT;
    md.without_vae_encoder = true;
    desc = job_of(&s_blue, 1);
    desc.model = load_model_of(s_engine, &md);
    CHECK(desc.model != NULL);
    refuses(&desc, SUMI_NOT_SUPPORTED, "VAE encoder");
    sumi_model_close(desc.model);
}

// ---- Prompts and guidance -------------------------------------------------------------------------------------------

TEST(text_alone_draws_in_the_size_that_is_asked_for)
{
    static const sumi_size s_sizes[] = {{256, 256}, {320, 192}, {128, 304}};
    for (size_t i = 0; i < sizeof s_sizes / sizeof *s_sizes; i++) {
        sumi_image_desc desc = job_of(&s_blue, 0);
        desc.width = s_sizes[i].width, desc.height = s_sizes[i].height;
        sumi_image image = {0};
        uint8_t* pixels = draw_pixels(s_engine, &desc, &image);
        CHECK(image.width == s_sizes[i].width && image.height == s_sizes[i].height);
        free(pixels);
    }
    const sumi_image_desc with = job_of(&s_blue, 1), without = job_of(&s_blue, 0);
    CHECK(hash_of(&with) != hash_of(&without));
}

TEST(texts_and_seeds_decide)
{
    const uint64_t usual = usual_hash();
    static const sumi_image_item s_others[] = {{.text = "make the house red", .seed = 7},
                                               {.text = "", .seed = 7},
                                               {.text = "make the house blue", .seed = 0},
                                               {.text = "make the house blue", .seed = UINT64_MAX}};
    uint64_t hashes[5] = {usual};
    for (int i = 1; i < 5; i++) {
        const sumi_image_desc desc = job_of(&s_others[i - 1], 1);
        hashes[i] = hash_of(&desc);
        for (int k = 0; k < i; k++) CHECK(hashes[i] != 0 && hashes[i] != hashes[k]);
    }
    const sumi_image_desc again = job_of(&s_blue, 1);
    CHECK(hash_of(&again) == usual);
}

// How many operations a job ran, of all stages.
static int64_t operations(const sumi_image_desc* desc, uint64_t* out_hash)
{
    static sumi_profile_row s_rows[512];
    sumi_image_desc profiled = *desc;
    profiled.profile = true;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(s_engine, &profiled, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(s_engine, job, SUMI_FOREVER), SUMI_OK);
    int64_t sum = 0;
    const int32_t count = sumi_job_profile(s_engine, job, s_rows, 512);
    CHECK(count > 0 && count <= 512);
    for (int32_t i = 0; i < count && i < 512; i++) sum += s_rows[i].count;
    uint8_t* pixels = take_pixels(s_engine, job, 1, NULL);
    *out_hash = pixels != NULL ? hash_bytes(pixels, PIXEL_BYTES) : 0;
    free(pixels);
    return sum;
}

TEST(a_negative_prompt_counts_with_guidance_and_costs_nothing_without)
{
    CHECK_TEXT(sumi_model_get_info(s_model).negative_text, " ");
    CHECK(sumi_model_get_info(s_model).guidance_off == 1.0f);
    static const char* const s_negatives[] = {NULL, " ", "a red moon",
                                              "make the house brown, as a line drawing, at night"};
    uint64_t hashes[2][4];
    int64_t counts[2][4];
    sumi_memory memory[2][4];
    for (int guided = 0; guided < 2; guided++) {
        for (int i = 0; i < 4; i++) {
            const sumi_image_item item = {.text = s_blue.text, .negative_text = s_negatives[i], .seed = 7};
            sumi_image_desc desc = job_of(&item, 1);
            desc.guidance.scale = guided ? GUIDANCE : 1.0f;
            counts[guided][i] = operations(&desc, &hashes[guided][i]);
            CHECK_NUMBER(sumi_image_memory(s_engine, &desc, &memory[guided][i]), SUMI_OK);
        }
    }
    for (int i = 1; i < 4; i++) { // without guidance nothing is different
        CHECK(hashes[0][i] == hashes[0][0] && counts[0][i] == counts[0][0]);
        CHECK_NUMBER(memory[0][i].arena, memory[0][0].arena);
        CHECK_NUMBER(memory[0][i].staging, memory[0][0].staging);
    }
    CHECK(counts[1][0] > counts[0][0] && memory[1][0].arena >= memory[0][0].arena);
    CHECK(hashes[1][0] == hashes[1][1] && hashes[1][0] != hashes[0][0]); // the model's own is a space
    CHECK(hashes[1][2] != hashes[1][1] && hashes[1][3] != hashes[1][1] && hashes[1][3] != hashes[1][2]);
}

TEST(guidance_has_a_range_and_a_lowest_number)
{
    static const float s_values[] = {1.0f, 1.25f, GUIDANCE, 12.0f};
    uint64_t hashes[6];
    sumi_image_desc desc = job_of(&s_blue, 1);
    for (int i = 0; i < 4; i++) {
        desc.guidance.scale = s_values[i];
        hashes[i] = hash_of(&desc);
        for (int k = 0; k < i; k++) CHECK(hashes[i] != 0 && hashes[i] != hashes[k]);
    }
    desc.guidance.scale = GUIDANCE;
    desc.guidance.end = 0.25f; // of the two steps the first, at 1 - sigma of 0
    hashes[4] = hash_of(&desc);
    desc.guidance.begin = 0.25f;
    desc.guidance.end = 1.0f; // the second
    hashes[5] = hash_of(&desc);
    for (int i = 4; i < 6; i++) CHECK(hashes[i] != hashes[2] && hashes[i] != hashes[0]);
    CHECK(hashes[4] != hashes[5]);
    static const float s_wrong[] = {0.99f, 0.0f, -3.0f, NAN, INFINITY};
    desc = job_of(&s_blue, 1);
    for (size_t i = 0; i < sizeof s_wrong / sizeof *s_wrong; i++) {
        desc.guidance.scale = s_wrong[i];
        refuses(&desc, SUMI_INVALID_ARGUMENT, "guidance");
    }
}

static sumi_prompt* encode(const char* text, const sumi_pixels* references, int32_t count)
{
    return encode_with(s_engine, s_model, text, references, count);
}

TEST(an_encoded_prompt_keeps_its_references)
{
    sumi_prompt *positive = encode(s_blue.text, s_references, 1), *negative = encode(" ", s_references, 1),
                *loaded = NULL;
    const size_t bytes = sumi_prompt_save(positive, NULL, 0);
    void* saved = malloc(bytes);
    CHECK_NUMBER(sumi_prompt_save(positive, saved, bytes), bytes);
    CHECK_NUMBER(sumi_prompt_load(s_model, saved, bytes, &loaded), SUMI_OK);
    CHECK_NUMBER(sumi_prompt_get_info(loaded).reference_count, 1);
    free(saved);
    for (int i = 0; i < 2; i++) {
        const sumi_image_item item = {
            .prompt = i == 0 ? positive : loaded, .negative_prompt = negative, .seed = s_blue.seed};
        sumi_image_desc desc = job_of(&item, 1);
        desc.references = NULL;
        desc.reference_count = 0;
        CHECK(hash_of(&desc) == usual_hash());
    }
    sumi_prompt_release(positive), sumi_prompt_release(negative), sumi_prompt_release(loaded);
}

// The vision tower's features are in the prompt, the latents come from the job's references, of which nobody checks
// that they are the prompt's: so each can be another one by itself.
TEST(every_reference_reaches_the_features_and_the_latents)
{
    const sumi_pixels swapped[2] = {s_references[1], s_references[0]}, twice[2] = {s_references[0], s_references[0]},
                      *latents[3] = {s_references, swapped, twice};
    uint64_t hashes[9];
    for (int p = 0; p < 3; p++) {
        sumi_prompt* prompt = encode(s_blue.text, latents[p], 2);
        const sumi_image_item item = {.prompt = prompt, .seed = 7};
        sumi_image_desc desc = job_of(&item, 2);
        desc.guidance.scale = 1.0f;
        desc.step_count = 1;
        for (int i = 0; i < 3; i++) {
            desc.references = latents[i];
            hashes[3 * p + i] = hash_of(&desc);
            for (int k = 0; k < 3 * p + i; k++) CHECK(hashes[3 * p + i] != 0 && hashes[3 * p + i] != hashes[k]);
        }
        sumi_prompt_release(prompt);
    }
}

// Bit for bit, with references and without, with guidance and without.
TEST(a_batch_is_its_single_images)
{
    static const sumi_image_item s_items[3] = {
        {.text = "remove the tree", .seed = 4},
        {.text = "put the cat of picture 2 into picture 1, and change nothing else", .negative_text = "red", .seed = 5},
        {.text = "as a watercolour", .seed = UINT64_MAX}};
    for (int k = 0; k < 4; k++) {
        const int32_t references = k / 2 * 2;
        sumi_image_desc desc = job_of(s_items, references);
        desc.guidance.scale = k % 2 == 0 ? GUIDANCE : 1.0f;
        desc.item_count = 3;
        sumi_image images[3] = {{0}};
        uint8_t* batch = draw_pixels(s_engine, &desc, images);
        desc.item_count = 1;
        for (int i = 0; i < 3 && batch != NULL; i++) {
            CHECK(images[i].seed == s_items[i].seed);
            desc.items = &s_items[i];
            uint8_t* single = draw_pixels(s_engine, &desc, NULL);
            CHECK(single != NULL && memcmp(single, batch + (size_t)i * PIXEL_BYTES, PIXEL_BYTES) == 0);
            free(single);
        }
        free(batch);
    }
}

// All are in the queue before the first one begins.
TEST(jobs_with_other_references_do_not_meet)
{
    enum { COUNT = 4 };
    sumi_job jobs[COUNT];
    sumi_image_desc descs[COUNT];
    for (int i = 0; i < COUNT; i++) {
        descs[i] = job_of(&s_blue, i == 3 ? 0 : 1);
        descs[i].priority = i;
        if (i == 1) descs[i].references = &s_references[1];
        if (i == 2) descs[i].reference_count = 2;
        CHECK_NUMBER(sumi_submit_images(s_engine, &descs[i], &jobs[i]), SUMI_OK);
    }
    uint64_t hashes[COUNT];
    for (int i = 0; i < COUNT; i++) {
        uint8_t* pixels = take_pixels(s_engine, jobs[i], 1, NULL);
        hashes[i] = pixels != NULL ? hash_bytes(pixels, PIXEL_BYTES) * 31 + SIDE : 0;
        free(pixels);
    }
    CHECK(hashes[0] == usual_hash());
    for (int i = 1; i < COUNT; i++) CHECK(hashes[i] != hashes[0] && hashes[i] == hash_of(&descs[i]));
}

// ---- Jobs -----------------------------------------------------------------------------------------------------------

TEST(progress_and_previews_go_with_the_steps)
{
    enum { COUNT = 3, WIDTH = 320 / 8, HEIGHT = 192 / 8 };
    const sumi_image_item items[2] = {s_blue, {.text = "remove the tree", .seed = 8}};
    sumi_image_desc desc = job_of(items, 1);
    desc.item_count = 2;
    desc.width = 320, desc.height = 192;
    desc.step_count = COUNT;
    const uint64_t want = hash_of(&desc);
    desc.preview_every = 1;
    desc.profile = true; // a slice is an operation: no stage passes unseen, however fast the machine is
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(s_engine, &desc, &job), SUMI_OK);
    uint8_t previews[2][4 * WIDTH * HEIGHT];
    sumi_image preview;
    CHECK_NUMBER(sumi_job_preview(s_engine, job, 0, previews[0], sizeof previews[0], &preview), SUMI_WRONG_STATE);
    bool seen[SUMI_STAGE_COUNT] = {false};
    float progress = 0.0f;
    int32_t step = 0, frames = 0;
    uint32_t version = 0;
    uint64_t preview_hash = 0;
    sumi_job_status status = sumi_job_poll(s_engine, job);
    for (; status.state < SUMI_JOB_DONE && count_frame(&frames); status = sumi_job_poll(s_engine, job)) {
        seen[status.stage] = true;
        CHECK(status.progress >= progress && status.progress < 1.0f);
        CHECK(status.step >= step && status.step <= COUNT);
        CHECK(status.step_count == COUNT || status.stage <= SUMI_STAGE_PREPARE); // known when the plan is written
        progress = status.progress;
        step = status.step;
        if (status.preview_version != version) {
            version = status.preview_version;
            for (int i = 0; i < 2; i++) {
                CHECK_NUMBER(sumi_job_preview(s_engine, job, i, previews[i], sizeof previews[i], &preview), SUMI_OK);
                CHECK(preview.width == WIDTH && preview.height == HEIGHT && preview.pixels == previews[i]);
            }
            CHECK(memcmp(previews[0], previews[1], sizeof previews[0]) != 0); // each image has its own
            CHECK(hash_bytes(previews, sizeof previews) != preview_hash);     // and each step
            preview_hash = hash_bytes(previews, sizeof previews);
            CHECK_NUMBER(sumi_job_preview(s_engine, job, 0, previews[0], sizeof previews[0] - 1, &preview),
                         SUMI_INVALID_ARGUMENT);
        }
        sumi_engine_update(s_engine, 1);
    }
    CHECK(status.state == SUMI_JOB_DONE && status.progress == 1.0f && status.step == COUNT);
    CHECK_NUMBER(version, COUNT);
    CHECK(seen[SUMI_STAGE_TEXT] && seen[SUMI_STAGE_IMAGE] && seen[SUMI_STAGE_DENOISE] && seen[SUMI_STAGE_DECODE]);
    sumi_image images[2];
    uint8_t* pixels = take_pixels(s_engine, job, 2, images);
    // previews change nothing
    CHECK(pixels != NULL && hash_bytes(pixels, (size_t)2 * 4 * 320 * 192) * 31 + 320 == want);
    CHECK(images[0].step_count == COUNT && images[0].evaluation_count == COUNT && images[0].reused_count == 0);
    free(pixels);
}

// Before the first slice, then at moments of every stage. Each job is cancelled in a pause.
TEST(a_job_can_be_cancelled_at_any_moment)
{
    sumi_image_desc desc = job_of(&s_blue, 2);
    desc.step_count = 1;
    desc.profile = true; // a slice is an operation: the moments are the same on every machine
    const uint64_t want = hash_of(&desc);
    bool seen[SUMI_STAGE_COUNT] = {false};
    int32_t cancelled = 0;
    bool is_done = false;
    for (int32_t stop = 0; !is_done; stop += stop < 4 ? 1 : 17) {
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(s_engine, &desc, &job), SUMI_OK);
        for (int32_t i = 0; i < stop; i++) sumi_engine_update(s_engine, 1);
        const sumi_job_status status = sumi_job_poll(s_engine, job);
        is_done = status.state == SUMI_JOB_DONE || stop > MAX_FRAMES;
        if (!is_done) seen[status.stage] = true;
        sumi_job_cancel(s_engine, job);
        sumi_engine_update(s_engine, 0);
        CHECK_NUMBER(sumi_job_poll(s_engine, job).state, is_done ? SUMI_JOB_DONE : SUMI_JOB_CANCELLED);
        sumi_image image = {0};
        CHECK_NUMBER(sumi_fetch_images(s_engine, job, &image, 1), is_done ? SUMI_OK : SUMI_CANCELLED);
        sumi_images_release(s_engine, &image, 1);
        cancelled += !is_done;
    }
    printf("  cancelled at %d moments\n", (int)cancelled);
    CHECK(seen[SUMI_STAGE_WAIT] && seen[SUMI_STAGE_TEXT] && seen[SUMI_STAGE_IMAGE] && seen[SUMI_STAGE_DENOISE]
          && seen[SUMI_STAGE_DECODE]);
    CHECK(hash_of(&desc) == want);
    CHECK_NUMBER(sumi_engine_get_info(s_engine).job_count, 0);
}

TEST(a_paused_job_keeps_its_image)
{
    sumi_image_desc desc = job_of(&s_blue, 1);
    sumi_job job;
    desc.profile = true;
    CHECK_NUMBER(sumi_submit_images(s_engine, &desc, &job), SUMI_OK);
    run_until_denoise(s_engine, job);
    CHECK_NUMBER(sumi_job_pause(s_engine, job, true), SUMI_OK);
    const sumi_image_desc other = job_of(&s_blue, 2);
    CHECK(hash_of(&other) != 0); // runs meanwhile
    CHECK_NUMBER(sumi_job_poll(s_engine, job).state, SUMI_JOB_QUEUED);
    CHECK_NUMBER(sumi_job_pause(s_engine, job, false), SUMI_OK);
    uint8_t* pixels = take_pixels(s_engine, job, 1, NULL);
    CHECK(pixels != NULL && hash_bytes(pixels, PIXEL_BYTES) * 31 + SIDE == usual_hash());
    free(pixels);
}

// A start image and a mask beside references: what the mask keeps is the start image, to the last bit.
TEST(a_reference_may_be_repainted_in_parts)
{
    uint8_t* mask = calloc(1, (size_t)SIDE * SIDE);
    for (int y = 0; y < SIDE; y++) memset(mask + y * SIDE + SIDE / 2, 255, SIDE / 2);
    const sumi_pixels mask_pixels = {mask, SIDE, SIDE, 0, 1};
    sumi_image_desc desc = job_of(&s_blue, 1);
    desc.start.image = &s_references[0];
    desc.start.strength = 0.5f;
    const uint64_t half = hash_of(&desc);
    CHECK(half != usual_hash());
    desc.start.mask = &mask_pixels;
    desc.start.strength = 1.0f;
    uint8_t* pixels = draw_pixels(s_engine, &desc, NULL);
    bool is_kept = true, is_new = false;
    for (int i = 0; i < SIDE * SIDE && pixels != NULL; i++) {
        const bool is_same = memcmp(pixels + 4 * i, s_pictures[0] + 4 * i, 4) == 0;
        if (mask[i] == 0) is_kept = is_kept && is_same;
        else is_new = is_new || !is_same;
    }
    CHECK(is_kept && is_new);
    free(pixels), free(mask);
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

TEST(an_adapter_changes_images_by_its_strength_and_leaves_no_trace)
{
    const sumi_image_desc fast = sumi_image_defaults(s_model, SUMI_PRESET_FAST);
    CHECK_NUMBER(fast.step_count, 4);
    CHECK(fast.guidance.scale == 1.0f);
    sumi_lora* lora = read_lora_at(s_engine, s_model, TURBO);
    sumi_image_desc desc = job_of(&s_blue, 1);
    desc.step_count = fast.step_count;
    desc.guidance.scale = fast.guidance.scale;
    desc.shift = fast.shift;
    const uint64_t without = hash_of(&desc);
    static const float s_scales[] = {1.0f, 0.5f, -1.0f, 1.5f, 4.0f};
    uint64_t hashes[6] = {without};
    sumi_lora_use uses[2] = {{.lora = lora, .scale = 0.0f}, {.lora = lora, .scale = 0.0f}};
    desc.loras = uses;
    desc.lora_count = 1;
    CHECK(hash_of(&desc) == without);
    for (int i = 1; i < 6; i++) {
        uses[0].scale = s_scales[i - 1];
        hashes[i] = hash_of(&desc);
        for (int k = 0; k < i; k++) CHECK(hashes[i] != 0 && hashes[i] != hashes[k]);
    }
    // changes add up: half and half are the whole, but for the rounding of sums
    uses[0].scale = 1.0f;
    uint8_t* whole = draw_pixels(s_engine, &desc, NULL);
    uses[0].scale = uses[1].scale = 0.5f;
    desc.lora_count = 2;
    uint8_t* halves = draw_pixels(s_engine, &desc, NULL);
    if (whole != NULL && halves != NULL) CHECK(demo_psnr(whole, halves, SIDE, SIDE, NULL) > 50.0);
    uses[0].scale = NAN;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(s_engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    free(whole), free(halves);
    desc.loras = NULL;
    desc.lora_count = 0;
    CHECK(hash_of(&desc) == without);
    sumi_lora_release(lora);
    CHECK(hash_of(&desc) == without);
}

TEST(adapters_come_and_go_while_jobs_run)
{
    sumi_image_desc plain = job_of(&s_blue, 1), styled = plain;
    sumi_lora *first = read_lora_at(s_engine, s_model, TURBO), *second = NULL;
    sumi_lora_use use = {.lora = first, .scale = 1.0f};
    styled.loras = &use;
    styled.lora_count = 1;
    const uint64_t want = hash_of(&styled);
    plain.profile = styled.profile = true; // slices are small enough to stop in a stage
    sumi_job drawing, reading, queued;
    // one is read while a job without it draws
    CHECK_NUMBER(sumi_submit_images(s_engine, &plain, &drawing), SUMI_OK);
    run_until_denoise(s_engine, drawing);
    sumi_lora_desc ld = sumi_lora_defaults(s_model);
    ld.path = TURBO;
    ld.priority = 1;
    CHECK_NUMBER(sumi_submit_lora(s_engine, &ld, &reading), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(s_engine, reading, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_lora(s_engine, reading, &second), SUMI_OK);
    uint8_t* pixels = take_pixels(s_engine, drawing, 1, NULL);
    CHECK(pixels != NULL && hash_bytes(pixels, PIXEL_BYTES) * 31 + SIDE == usual_hash());
    free(pixels);
    // one is released that the job that draws does not use
    CHECK_NUMBER(sumi_submit_images(s_engine, &styled, &drawing), SUMI_OK);
    run_until_denoise(s_engine, drawing);
    sumi_lora_release(second);
    pixels = take_pixels(s_engine, drawing, 1, NULL);
    CHECK(pixels != NULL && hash_bytes(pixels, PIXEL_BYTES) * 31 + SIDE == want);
    free(pixels);
    // one is released that a job that draws and one in the queue use, and a third one does not
    CHECK_NUMBER(sumi_submit_images(s_engine, &styled, &drawing), SUMI_OK);
    CHECK_NUMBER(sumi_submit_images(s_engine, &styled, &queued), SUMI_OK);
    CHECK_NUMBER(sumi_submit_images(s_engine, &plain, &reading), SUMI_OK);
    run_until_denoise(s_engine, drawing);
    sumi_lora_release(first);
    sumi_image image;
    CHECK_NUMBER(sumi_job_wait(s_engine, queued, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(s_engine, drawing, &image, 1), SUMI_CANCELLED);
    CHECK_NUMBER(sumi_fetch_images(s_engine, queued, &image, 1), SUMI_CANCELLED);
    pixels = take_pixels(s_engine, reading, 1, NULL);
    CHECK(pixels != NULL && hash_bytes(pixels, PIXEL_BYTES) * 31 + SIDE == usual_hash());
    free(pixels);
    CHECK_NUMBER(sumi_engine_get_info(s_engine).job_count, 0);
}

TEST(adapters_of_other_models_are_refused)
{
    sumi_lora_desc ld = sumi_lora_defaults(s_model);
    ld.path = "samples/demo_model/lora/blueprint.safetensors";
    sumi_job job;
    sumi_lora* lora = NULL;
    CHECK_NUMBER(sumi_submit_lora(s_engine, &ld, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(s_engine, job, SUMI_FOREVER), SUMI_OK);
    CHECK(sumi_job_poll(s_engine, job).message[0] != 0);
    CHECK_NUMBER(sumi_fetch_lora(s_engine, job, &lora), SUMI_LORA_NO_MATCH);
    CHECK(lora == NULL);
    // of this model, but read for another one that is open too
    sumi_model* other = load_model_at(s_engine, DEMO_EDIT);
    lora = read_lora_at(s_engine, other, TURBO);
    const sumi_lora_use use = {.lora = lora, .scale = 1.0f};
    sumi_image_desc desc = job_of(&s_blue, 1);
    desc.loras = &use;
    desc.lora_count = 1;
    refuses(&desc, SUMI_INVALID_ARGUMENT, "loras[0]");
    sumi_model_close(other);
    sumi_lora_release(lora);
}

// ---- Memory and threads ---------------------------------------------------------------------------------------------

// A budget that holds the whole image changes nothing, one that does not makes the VAE work in tiles, and one below
// that is a result with the number that is needed.
TEST(a_budget_is_kept_or_refused)
{
    const sumi_image_desc desc = job_of(&s_blue, 1);
    sumi_memory whole, tiled, least;
    uint8_t *want = draw_pixels(s_engine, &desc, NULL), *got = NULL;
    CHECK_NUMBER(sumi_image_memory(s_engine, &desc, &whole), SUMI_OK);
    CHECK(whole.needed == whole.arena + whole.staging && !whole.tiles_vae);
    for (int k = 0; k < 2 && want != NULL; k++) {
        CHECK_NUMBER(sumi_engine_set_memory_budget(s_engine, k == 0 ? whole.needed : whole.needed * 4), SUMI_OK);
        got = draw_pixels(s_engine, &desc, NULL);
        CHECK(got != NULL && memcmp(got, want, PIXEL_BYTES) == 0);
        free(got);
    }
    CHECK_NUMBER(sumi_engine_set_memory_budget(s_engine, 1000), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(s_engine, &desc, &least), SUMI_BUDGET_TOO_SMALL);
    CHECK(least.needed > 1000 && least.needed < whole.needed);
    CHECK_NUMBER(sumi_engine_set_memory_budget(s_engine, least.needed - 1), SUMI_OK);
    sumi_job job;
    sumi_image image;
    CHECK_NUMBER(sumi_submit_images(s_engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(s_engine, job, SUMI_FOREVER), SUMI_OK);
    const sumi_job_status status = sumi_job_poll(s_engine, job);
    CHECK(status.state == SUMI_JOB_FAILED && strstr(status.message, "budget") != NULL);
    CHECK_NUMBER(sumi_fetch_images(s_engine, job, &image, 1), SUMI_BUDGET_TOO_SMALL);
    CHECK_NUMBER(sumi_engine_set_memory_budget(s_engine, least.needed), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(s_engine, &desc, &tiled), SUMI_OK);
    CHECK(tiled.tiles_vae && tiled.needed <= least.needed);
    got = draw_pixels(s_engine, &desc, NULL);
    CHECK(got != NULL);
    const sumi_engine_info info = sumi_engine_get_info(s_engine);
    CHECK(info.held_bytes[SUMI_MEMORY_ARENA] + info.held_bytes[SUMI_MEMORY_STAGING] <= least.needed);
    free(got);
    CHECK_NUMBER(sumi_engine_set_memory_budget(s_engine, 0), SUMI_OK);
    got = draw_pixels(s_engine, &desc, NULL);
    CHECK(want != NULL && got != NULL && memcmp(got, want, PIXEL_BYTES) == 0);
    free(got), free(want);
}

TEST(threads_and_slices_change_no_bit)
{
    const uint64_t want = usual_hash();
    for (int way = 0; way < 3; way++) {
        static host s_another;
        memset(&s_another, 0, sizeof s_another);
        sumi_engine_desc ed = host_desc(&s_another);
        ed.cpu_thread_count = way == 0 ? 1 : 3;
        ed.max_slice_us = way == 1 ? 0 : 300;
        ed.pump = way == 2 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
        sumi_image_desc desc = job_of(&s_blue, 1);
        desc.model = load_model_at(engine, DEMO_EDIT);
        CHECK(hash_on(engine, &desc) == want);
        sumi_engine_destroy(engine);
        CHECK_NUMBER(s_another.live, 0);
        CHECK_NUMBER(s_another.wrong_releases, 0);
    }
}

TEST(a_warm_edit_allocates_nothing)
{
    const sumi_image_desc desc = job_of(&s_blue, 1);
    CHECK(hash_of(&desc) != 0 && hash_of(&desc) != 0);
    const long long before = atomic_load(&s_host.count);
    CHECK(hash_of(&desc) == usual_hash());
    CHECK_NUMBER(atomic_load(&s_host.count), before);
}

static bool is_expected(sumi_result result) { return result == SUMI_OK || result == SUMI_OUT_OF_HOST_MEMORY; }

// Of a fresh engine, with an adapter and two references. After a failure the same engine draws the same image.
TEST(the_nth_allocation_may_fail)
{
    sumi_image_desc desc = job_of(&s_blue, 2);
    desc.step_count = 1;
    desc.width = desc.height = 64;
    uint64_t want = 0;
    long long n = 1, failed = 0;
    for (bool has_failed = true; has_failed && t_errors == 0; n += 1 + n / 6) {
        static host s_another;
        memset(&s_another, 0, sizeof s_another);
        sumi_engine_desc ed = host_desc(&s_another);
        ed.cpu_thread_count = 0;
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
        desc.model = load_model_at(engine, DEMO_EDIT);
        const long long begin = atomic_load(&s_another.count);
        atomic_store(&s_another.fail_at, begin + n);
        sumi_lora_desc ld = sumi_lora_defaults(desc.model);
        ld.path = TURBO;
        sumi_job job;
        sumi_lora* lora = NULL;
        sumi_result result = sumi_submit_lora(engine, &ld, &job);
        CHECK(is_expected(result));
        if (result == SUMI_OK) {
            CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
            CHECK(is_expected(sumi_fetch_lora(engine, job, &lora)));
        }
        sumi_lora_use use = {.lora = lora, .scale = 1.0f};
        desc.loras = &use;
        desc.lora_count = lora != NULL;
        result = sumi_submit_images(engine, &desc, &job);
        CHECK(is_expected(result));
        if (result == SUMI_OK) {
            sumi_image image = {0};
            CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
            CHECK(is_expected(sumi_fetch_images(engine, job, &image, 1)));
            sumi_images_release(engine, &image, 1);
        }
        has_failed = atomic_load(&s_another.count) >= begin + n;
        failed += has_failed;
        atomic_store(&s_another.fail_at, 0);
        if (lora == NULL) lora = read_lora_at(engine, desc.model, TURBO);
        use.lora = lora;
        desc.lora_count = 1;
        if (want == 0 || failed % 4 == 0) {
            const uint64_t got = hash_on(engine, &desc);
            if (want == 0) want = got;
            CHECK(got != 0 && got == want);
        }
        sumi_engine_destroy(engine);
        CHECK_NUMBER(s_another.live, 0);
        CHECK_NUMBER(s_another.wrong_releases, 0);
    }
    printf("  %d allocations failed, the last of them number %lld at most\n", (int)failed, n);
    CHECK(failed > 8);
}

TEST(everything_is_given_back) { give_everything_back(); }

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!open_demo_edit()) return 1;
    paint_pictures();
    RUN(references_of_any_size_give_their_shape);
    RUN(an_image_may_have_another_size_than_its_reference);
    RUN(only_the_colours_of_a_reference_count);
    RUN(every_reference_counts_and_so_does_their_order);
    RUN(references_that_cannot_be_are_refused);
    RUN(text_alone_draws_in_the_size_that_is_asked_for);
    RUN(texts_and_seeds_decide);
    RUN(a_negative_prompt_counts_with_guidance_and_costs_nothing_without);
    RUN(guidance_has_a_range_and_a_lowest_number);
    RUN(an_encoded_prompt_keeps_its_references);
    RUN(every_reference_reaches_the_features_and_the_latents);
    RUN(a_batch_is_its_single_images);
    RUN(jobs_with_other_references_do_not_meet);
    RUN(progress_and_previews_go_with_the_steps);
    RUN(a_job_can_be_cancelled_at_any_moment);
    RUN(a_paused_job_keeps_its_image);
    RUN(a_reference_may_be_repainted_in_parts);
    RUN(an_adapter_changes_images_by_its_strength_and_leaves_no_trace);
    RUN(adapters_come_and_go_while_jobs_run);
    RUN(adapters_of_other_models_are_refused);
    RUN(a_budget_is_kept_or_refused);
    RUN(threads_and_slices_change_no_bit);
    RUN(a_warm_edit_allocates_nothing);
    RUN(the_nth_allocation_may_fail);
    RUN(everything_is_given_back);
    sumi_engine_destroy(s_engine);
    free(s_pictures[0]), free(s_pictures[1]);
    TEST_END();
}
