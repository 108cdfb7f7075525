// What holds for every family of models (families.h), through the public functions: what a model says of itself, and
// that pictures have the same bits however they are asked for. What may go wrong is in test_family_jobs.c.
#include "family_fixture.h"
#include "jobs/prompt.h"

// ---- What the model says --------------------------------------------------------------------------------------------

TEST(a_model_is_what_its_row_says)
{
    OPEN_FAMILY(engine, model);
    const sumi_model_info info = sumi_model_get_info(model);
    CHECK_TEXT(info.family, s_family->family);
    CHECK_TEXT(info.variant, s_family->variant);
    CHECK_NUMBER(info.min_references, s_family->min_references);
    CHECK_NUMBER(info.max_references, s_family->max_references);
    CHECK_NUMBER(info.takes_references, s_family->max_references > 0);
    CHECK(info.has_text_encoder && info.has_vae_encoder);
    CHECK(!(info.uses_guidance && s_family->ignores_guidance));
    CHECK(info.size_multiple > 0 && family_side() % info.size_multiple == 0);
    const int32_t token_side = info.latent_factor * model->network->info.patch_size;
    CHECK(family_side() / token_side * (family_side() / token_side) >= 8);
    const sumi_image_item item = {.text = "a red fox"};
    const sumi_image_desc desc = family_image(model, &item);
    sumi_prompt* prompt = encode_for(engine, &desc, "a red fox");
    CHECK_NUMBER(sumi_prompt_get_info(prompt).encoder_count, s_family->text_encoder_count);
    sumi_prompt_release(prompt);
    close_engine(engine);
}

// ---- Same bits ------------------------------------------------------------------------------------------------------

TEST(a_text_becomes_a_picture_and_again_the_same)
{
    static const uint32_t s_slices[] = {2000, 100};
    uint64_t first = 0;
    for (size_t i = 0; i < sizeof s_slices / sizeof *s_slices; i++) {
        OPEN_FAMILY_WITH(s_slices[i], engine, model);
        sumi_image_item item = {.text = "a red fox", .negative_text = "grey", .seed = 7};
        sumi_image_desc desc = family_image(model, &item);
        const uint64_t hash = draw_hash(engine, &desc);
        if (i == 0) first = hash;
        CHECK(hash != 0 && hash == first);
        if (i == 0) {
            desc.width += sumi_model_get_info(model).size_multiple;
            CHECK(draw_hash(engine, &desc) != 0); // another plan in between
            desc.width = family_side();
            CHECK(draw_hash(engine, &desc) == first);
            item.seed = 8;
            const uint64_t other_seed = draw_hash(engine, &desc);
            item = (sumi_image_item){.text = "an owl", .negative_text = "grey", .seed = 7};
            const uint64_t other_text = draw_hash(engine, &desc);
            CHECK(other_seed != 0 && other_text != 0 && other_seed != first && other_text != first);
        }
        close_engine(engine);
    }
}

enum { BATCH = 3 };

// Draws; writes a hash of the latents and pixels of each image, 0 after a failure.
static void draw_apart(sumi_engine* engine, const sumi_image_desc* desc, uint64_t* out_hashes)
{
    sumi_image images[BATCH];
    sumi_job job;
    const size_t count = latent_count(desc);
    float* latents = malloc(count * sizeof *latents);
    memset(out_hashes, 0, (size_t)desc->item_count * sizeof *out_hashes);
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    for (int32_t i = 0; i < desc->item_count; i++) {
        CHECK_NUMBER(sumi_job_latents(engine, job, i, latents, count), SUMI_OK);
        out_hashes[i] = hash_bytes(latents, count * sizeof *latents);
    }
    free(latents);
    const sumi_result result = sumi_fetch_images(engine, job, images, BATCH);
    CHECK_NUMBER(result, SUMI_OK);
    for (int32_t i = 0; i < desc->item_count; i++) {
        out_hashes[i] = result == SUMI_OK ? out_hashes[i] * 31 + hash_image(&images[i]) : 0;
        if (result == SUMI_OK) CHECK_NUMBER(images[i].seed, desc->items[i].seed);
    }
    if (result == SUMI_OK) sumi_images_release(engine, images, desc->item_count);
}

static void check_batches(sumi_engine* engine, const sumi_image_desc* of_all)
{
    sumi_image_desc desc = *of_all;
    uint64_t alone[BATCH], batch[BATCH];
    desc.item_count = 1;
    for (int32_t i = 0; i < BATCH; i++) {
        desc.items = of_all->items + i;
        draw_apart(engine, &desc, &alone[i]);
        for (int32_t other = 0; other < i; other++) CHECK(alone[other] != alone[i]);
    }
    for (int32_t first = 0; first < BATCH - 1; first++) { // who stands beside whom
        desc.items = of_all->items + first;
        desc.item_count = BATCH - first;
        draw_apart(engine, &desc, batch);
        for (int32_t i = 0; i < desc.item_count; i++) {
            const bool is_same = batch[i] != 0 && batch[i] == alone[first + i];
            CHECK(is_same);
            if (is_same) continue;
            printf("  %d references, guidance %g from %g: image %d of %d is not the one alone\n",
                   (int)desc.reference_count, (double)desc.guidance.scale, (double)desc.guidance.begin, (int)i,
                   (int)desc.item_count);
        }
    }
}

// Of even and odd size. Guidance evaluates an image once, twice, or once in the first half of the steps and then twice.
// Texts have 8 tokens at least, as pictures have: FAMILY_SIDE says why.
TEST(a_batch_equals_single_images)
{
    static const sumi_image_item s_items[BATCH] = {
        {.text = "a red fox", .negative_text = "blurry, and grey", .seed = 7},
        {.text = "一只橘猫坐在窗台上，看着外面的雨，超清，4K", .negative_text = "低画质，扭曲", .seed = 8},
        {.text = "a lighthouse at dusk, ink wash, with many stars", .seed = 9}};
    OPEN_FAMILY(engine, model);
    const bool is_guided = !s_family->ignores_guidance;
    sumi_image_desc desc = family_image(model, s_items);
    if (!s_family->is_variant) check_batches(engine, &desc);
    use_references(&desc, most_pictures());
    desc.guidance.begin = 0.5f;
    if (is_guided || most_pictures() > 0) check_batches(engine, &desc);
    use_references(&desc, s_family->min_references);
    desc.guidance.scale = sumi_model_get_info(model).guidance_off;
    if (is_guided && !s_family->is_variant) check_batches(engine, &desc);
    close_engine(engine);
}

TEST(guidance_and_the_negative_text_count)
{
    OPEN_FAMILY(engine, model);
    const sumi_model_info info = sumi_model_get_info(model);
    sumi_image_item item = {.text = "a red fox", .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    sumi_prompt* fox = encode_for(engine, &desc, "a red fox");
    sumi_job job;
    item = (sumi_image_item){.prompt = fox, .negative_text = "blurry", .seed = 7};
    desc.guidance.scale = info.guidance_off + 3.0f;
    const uint64_t strong = draw_hash(engine, &desc);
    desc.guidance.scale = info.guidance_off + 2.0f;
    const uint64_t weak = draw_hash(engine, &desc);
    item.negative_text = "grey";
    const uint64_t other = draw_hash(engine, &desc);
    item.negative_text = NULL;
    const uint64_t without = draw_hash(engine, &desc);
    item.negative_text = info.negative_text; // stands for it
    CHECK(without != 0 && draw_hash(engine, &desc) == without);
    desc.guidance.scale = info.guidance_off; // nobody reads the negative text
    const uint64_t off = draw_hash(engine, &desc);
    item.negative_text = "grey";
    CHECK(off != 0 && draw_hash(engine, &desc) == off);
    const uint64_t all[] = {strong, weak, other, without, off};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++) CHECK((all[i] == all[k]) == s_family->ignores_guidance);
    desc.guidance.scale = info.guidance_off - 0.5f;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    sumi_prompt_release(fox);
    close_engine(engine);
}

// ---- References -----------------------------------------------------------------------------------------------------

TEST(references_count_and_their_number_is_checked)
{
    OPEN_FAMILY(engine, model);
    const sumi_image_item item = {.text = "swap them", .seed = 3};
    sumi_image_desc desc = family_image(model, &item);
    sumi_pixels pictures[12];
    sumi_job job;
    for (int32_t i = 0; i < 12; i++) pictures[i] = family_pictures()[i % 2];
    desc.references = pictures;
    uint64_t seen[4];
    int32_t count = 0;
    for (int32_t number = s_family->min_references; number <= most_pictures(); number++) {
        desc.references = number > 0 ? pictures : NULL;
        desc.reference_count = number;
        seen[count++] = draw_hash(engine, &desc);
    }
    if (most_pictures() > 0) {
        desc.references = pictures + 1; // the same number of them, in another order
        seen[count++] = draw_hash(engine, &desc);
    }
    for (int32_t i = 0; i < count; i++) {
        CHECK(seen[i] != 0);
        for (int32_t k = 0; k < i; k++) CHECK(seen[i] != seen[k]);
    }
    desc.references = pictures;
    desc.reference_count = s_family->max_references + 1;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job),
                 s_family->max_references > 0 ? SUMI_INVALID_ARGUMENT : SUMI_NOT_SUPPORTED);
    CHECK(strstr(s_host.log, "reference") != NULL);
    if (s_family->min_references > 0) {
        use_references(&desc, 0);
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    }
    close_engine(engine);
}

// ---- Prompts --------------------------------------------------------------------------------------------------------

TEST(saved_prompts_give_the_image_of_their_text)
{
    OPEN_FAMILY(engine, model);
    sumi_model_desc without = family_desc(s_family);
    without.text_encoder_path = without.tokenizer_path = without.processor_path = NULL;
    without.without_text_encoder = true;
    sumi_model* bare = adapt_family(s_family, load_model_of(engine, &without));
    CHECK(bare != NULL);
    CHECK(!sumi_model_get_info(bare).has_text_encoder);
    CHECK(sumi_model_get_info(bare).weight_bytes < sumi_model_get_info(model).weight_bytes);
    const sumi_image_item of_text = {.text = "a red fox", .negative_text = "grey", .seed = 7};
    sumi_job job;
    sumi_prompt *positive = NULL, *negative = NULL;
    for (int32_t references = s_family->min_references, last = most_pictures(); references <= last; references += 2) {
        sumi_image_desc desc = family_image(model, &of_text);
        use_references(&desc, references);
        const uint64_t expected = draw_hash(engine, &desc);
        CHECK(expected != 0);
        if (positive == NULL || s_family->prompts_read_references) { // others go with any references
            sumi_prompt_release(positive);
            sumi_prompt_release(negative);
            positive = save_and_load(model, encode_for(engine, &desc, "a red fox"));
            negative = save_and_load(bare, encode_for(engine, &desc, "grey"));
        }
        const sumi_prompt_info info = sumi_prompt_get_info(positive);
        CHECK_NUMBER(info.encoder_count, s_family->text_encoder_count);
        CHECK_NUMBER(info.reference_count, s_family->prompts_read_references ? references : 0);
        const sumi_image_item of_prompts = {.prompt = positive, .negative_prompt = negative, .seed = 7},
                              mixed = {.prompt = positive, .negative_text = "grey", .seed = 7};
        desc.items = &of_prompts;
        CHECK(draw_hash(engine, &desc) == expected);
        desc.model = bare;
        CHECK(draw_hash(engine, &desc) == expected);
        desc.items = &of_text; // texts need the encoders
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_NOT_SUPPORTED);
        desc.items = &mixed;
        if (!s_family->ignores_guidance) CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_NOT_SUPPORTED);
        desc.model = model;
        CHECK(draw_hash(engine, &desc) == expected);
    }
    sumi_prompt_release(positive);
    sumi_prompt_release(negative);
    close_engine(engine);
}

// The next one of another name.
static const family_row* other_family(void)
{
    const family_row* other = s_family;
    do other = other + 1 < s_families + FAMILY_COUNT ? other + 1 : s_families;
    while (strcmp(other->family, s_family->family) == 0);
    return other;
}

TEST(prompts_of_another_family_are_refused)
{
    OPEN_FAMILY(engine, model);
    const family_row* other = other_family();
    sumi_model* other_model = load_family(engine, other);
    if (other_model == NULL) return;
    const sumi_image_item words = {.text = "a red fox"};
    const sumi_image_desc of_words = family_image(model, &words);
    const bool reads = other->prompts_read_references;
    sumi_prompt *ours = encode_for(engine, &of_words, "a red fox"),
                *theirs = encode_with(engine, other_model, "a red fox", reads ? family_pictures() : NULL,
                                      reads ? other->min_references : 0),
                *none = NULL;
    sumi_image_item item = {.prompt = theirs, .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, s_family->family) != NULL && strstr(s_host.log, other->family) != NULL);
    if (!s_family->ignores_guidance) {
        item = (sumi_image_item){.prompt = ours, .negative_prompt = theirs};
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    }
    size_t bytes;
    void* saved = save_prompt(theirs, &bytes);
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &none), SUMI_TENSOR_MISMATCH);
    CHECK(none == NULL && strstr(s_host.log, other->family) != NULL);
    free(saved);
    item = (sumi_image_item){.prompt = ours, .seed = 7};
    CHECK(draw_hash(engine, &desc) != 0);
    // the width alone does not make a prompt fit
    snprintf(ours->family, sizeof ours->family, "%s", other->family);
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    sumi_prompt_release(ours);
    sumi_prompt_release(theirs);
    close_engine(engine);
}

// ---- Adapters, start images, previews -------------------------------------------------------------------------------

// Each adapter gives another picture, by its strength; switched off or released it leaves no trace.
TEST(an_adapter_is_read_and_released_between_images)
{
    enum { MOST = sizeof s_family->adapters / sizeof *s_family->adapters };
    OPEN_FAMILY(engine, model);
    const sumi_image_item words = {.text = "a red fox", .negative_text = "grey", .seed = 7};
    sumi_image_desc desc = family_image(model, &words);
    encoded_item fox = encode_item(engine, &desc);
    desc.items = &fox.item;
    uint64_t seen[1 + MOST] = {draw_hash(engine, &desc)};
    const uint64_t bare = seen[0];
    CHECK(bare != 0 && s_family->adapters[0] != NULL);
    for (int i = 0; i < MOST && s_family->adapters[i] != NULL; i++) {
        sumi_lora* lora = read_lora_at(engine, model, s_family->adapters[i]);
        sumi_lora_use use = {.lora = lora, .scale = 1.0f};
        desc.loras = &use;
        desc.lora_count = lora != NULL;
        const uint64_t whole = seen[i + 1] = draw_hash(engine, &desc);
        for (int k = 0; k <= i; k++) CHECK(whole != 0 && whole != seen[k]);
        if (i == 0) {
            use.scale = 0.5f;
            const uint64_t half = draw_hash(engine, &desc);
            CHECK(half != 0 && half != bare && half != whole);
            use.scale = 1.0f;
            CHECK(draw_hash(engine, &desc) == whole);
            use.scale = 0.0f;
            CHECK(draw_hash(engine, &desc) == bare);
            desc.lora_count = 0;
            CHECK(draw_hash(engine, &desc) == bare);
        }
        desc.lora_count = 0;
        sumi_lora_release(lora);
    }
    CHECK(draw_hash(engine, &desc) == bare);
    release_item(&fox);
    close_engine(engine);
}

TEST(a_start_image_its_latents_and_a_mask)
{
    enum { START = 50 * 30, MOST = 4096 };
    static uint8_t s_pixels[START], s_mask[START];
    static float s_start[MOST], s_end[MOST];
    for (size_t i = 0; i < START; i++) s_pixels[i] = (uint8_t)(i * 7), s_mask[i] = i < START / 2 ? 0 : 255;
    const sumi_pixels start = {s_pixels, 50, 30, 0, 1}, mask = {s_mask, 50, 30, 0, 1};
    OPEN_FAMILY(engine, model);
    const sumi_image_item words = {.text = "a red fox", .negative_text = "grey", .seed = 7};
    sumi_image_desc desc = family_image(model, &words);
    encoded_item fox = encode_item(engine, &desc);
    desc.items = &fox.item;
    const size_t count = latent_count(&desc);
    CHECK(count <= MOST);
    sumi_encode_desc encode = sumi_encode_defaults(model);
    encode.image = &start;
    encode.width = desc.width;
    encode.height = desc.height;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_encode(engine, &encode, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_fetch_latents(engine, job, s_start, MOST), SUMI_OK);
    const uint64_t of_noise = draw_hash(engine, &desc);
    desc.start.image = &start;
    desc.start.posterior = SUMI_POSTERIOR_MODE;
    desc.start.strength = 0.5f;
    const uint64_t of_picture = draw_hash(engine, &desc);
    desc.start.strength = 1.0f;
    const uint64_t stronger = draw_hash(engine, &desc);
    desc.start.strength = 0.5f;
    desc.start.image = NULL;
    desc.start.latents = s_start;
    CHECK(of_picture != 0 && of_picture == draw_hash(engine, &desc));
    CHECK(of_noise != 0 && stronger != 0 && of_picture != of_noise && of_picture != stronger);
    // what is black stays: the upper latents are those of the start
    desc.start.mask = &mask;
    desc.start.strength = 1.0f;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_latents(engine, job, 0, s_end, MOST), SUMI_OK);
    sumi_job_discard(engine, job);
    const sumi_model_info info = sumi_model_get_info(model);
    const size_t width = (size_t)(desc.width / info.latent_factor), plane = count / (size_t)info.latent_channels;
    for (size_t at = 0; at < count; at += plane) {
        CHECK(memcmp(s_end + at, s_start + at, width * sizeof(float)) == 0);
        const size_t last = at + plane - width;
        CHECK(memcmp(s_end + last, s_start + last, width * sizeof(float)) != 0);
    }
    release_item(&fox);
    close_engine(engine);
}

TEST(previews_come_and_change_nothing)
{
    OPEN_FAMILY_WITH(100, engine, model);
    const sumi_image_item item = {.text = "a red fox", .seed = 7};
    sumi_image_desc desc = family_image(model, &item);
    desc.step_count = 4;
    const uint64_t plain = draw_hash(engine, &desc);
    desc.preview_every = 1;
    sumi_job job;
    uint8_t small[FAMILY_LARGEST_SIDE / 8 * (FAMILY_LARGEST_SIDE / 8) * 4];
    sumi_image preview = {0};
    uint32_t versions = 0;
    int32_t frames = 0;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE && count_frame(&frames)) {
        sumi_engine_update(engine, 1);
        versions = sumi_job_poll(engine, job).preview_version;
        if (versions > 0) CHECK_NUMBER(sumi_job_preview(engine, job, 0, small, sizeof small, &preview), SUMI_OK);
    }
    CHECK(versions >= 3 && preview.width == family_side() / 8 && preview.height == family_side() / 8);
    CHECK(plain != 0 && fetch_hash(engine, job, &desc) == plain);
    close_engine(engine);
}

// ---- Step caching ---------------------------------------------------------------------------------------------------

enum { CACHE_STEPS = 6, CACHE_REUSED = 3, CACHE_ITEMS = 2 };

// Draws; returns the hash of all images, and how many evaluations they have reused together.
static uint64_t draw_reused(sumi_engine* engine, const sumi_image_desc* desc, int32_t* out_reused)
{
    sumi_image images[CACHE_ITEMS];
    const sumi_result result = draw(engine, desc, images);
    uint64_t hash = 0;
    *out_reused = 0;
    CHECK_NUMBER(result, SUMI_OK);
    if (result != SUMI_OK) return 0;
    for (int32_t i = 0; i < desc->item_count; i++) {
        hash = hash * 31 + hash_image(&images[i]);
        *out_reused += images[i].reused_count;
        CHECK_NUMBER(images[i].evaluation_count, CACHE_STEPS);
    }
    sumi_images_release(engine, images, desc->item_count);
    return hash;
}

TEST(a_step_cache_reuses_what_changes_less_than_it)
{
    static const sumi_image_item s_words[CACHE_ITEMS] = {{.text = "a red fox", .negative_text = "grey", .seed = 7},
                                                         {.text = "a hat", .negative_text = "", .seed = 8}};
    OPEN_FAMILY(engine, model);
    sumi_image_desc desc = family_image(model, s_words);
    use_references(&desc, most_pictures());
    encoded_item fox = encode_item(engine, &desc);
    desc.items = s_words + 1;
    encoded_item hat = encode_item(engine, &desc);
    const sumi_image_item items[CACHE_ITEMS] = {fox.item, hat.item};
    desc.items = items;
    desc.step_count = CACHE_STEPS;
    int32_t reused, alone;
    const uint64_t whole = draw_reused(engine, &desc, &reused);
    CHECK(whole != 0 && reused == 0);
    desc.step_cache = 1e-7f; // nothing changes as little as that
    CHECK(draw_reused(engine, &desc, &reused) == whole && reused == 0);
    desc.step_cache = 10.0f; // everything does: whole are the first two, and the last
    const uint64_t most = draw_reused(engine, &desc, &reused);
    CHECK(most != 0 && most != whole && reused == CACHE_REUSED);
    desc.items = items + 1;
    const uint64_t second = draw_reused(engine, &desc, &alone);
    desc.items = items;
    desc.item_count = CACHE_ITEMS;
    CHECK(draw_reused(engine, &desc, &reused) == most * 31 + second && reused == CACHE_REUSED + alone);
    release_item(&fox);
    release_item(&hat);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN_FOR_FAMILIES(a_model_is_what_its_row_says);
    RUN_FOR_NETWORKS(a_text_becomes_a_picture_and_again_the_same);
    RUN_FOR_FAMILIES(a_batch_equals_single_images);
    RUN_FOR_FAMILIES(guidance_and_the_negative_text_count);
    RUN_FOR_NETWORKS(references_count_and_their_number_is_checked);
    RUN_FOR_NETWORKS(saved_prompts_give_the_image_of_their_text);
    RUN_FOR_NETWORKS(prompts_of_another_family_are_refused);
    RUN_FOR_NETWORKS(an_adapter_is_read_and_released_between_images);
    RUN_WITH_REFERENCES(a_start_image_its_latents_and_a_mask);
    RUN_FOR_NETWORKS(previews_come_and_change_nothing);
    RUN_FOR_ROWS(a_step_cache_reuses_what_changes_less_than_it,
                 !s_family->ignores_guidance); // the others have few steps
    TEST_END();
}
