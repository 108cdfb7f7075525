// What the published edit pipelines draw, prompts that keep references, what is refused, and everything that goes
// wrong.
#include "edit_fixture.h"
#include "jobs/objects.h"
#include "picture.h"
#include "reference_fixture.h"

// ---- The published pipelines ----------------------------------------------------------------------------------------

#define EDIT_FOLDER "tests/golden/qwen-image/"

typedef struct edit_case {
    const char *name, *folder, *prompt;
    sumi_reference_rule rule; // the case's areas
    int32_t picture_count, width, height, step_count;
    sumi_size want;
} edit_case;

// The parts of all edit models lie in one folder, the pipeline in another one.
static sumi_model* load_edit(sumi_engine* engine, const edit_case* c)
{
    char folder[256];
    snprintf(folder, sizeof folder, EDIT_FOLDER "%s", c->folder);
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = folder;
    desc.transformer_path = EDIT_FOLDER "model/transformer";
    desc.text_encoder_path = EDIT_FOLDER "model/text_encoder";
    desc.vae_path = EDIT_FOLDER "model/vae";
    desc.tokenizer_path = EDIT_FOLDER "model/tokenizer";
    desc.processor_path = EDIT_FOLDER "model-edit/processor";
    sumi_job job;
    sumi_model* model = NULL;
    CHECK_NUMBER(sumi_submit_model(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    if (sumi_job_poll(engine, job).result != SUMI_OK) printf("  %s\n", sumi_job_poll(engine, job).message);
    CHECK_NUMBER(sumi_fetch_model(engine, job, &model), SUMI_OK);
    if (model == NULL) return NULL;
    CHECK(model->info.has_vision);
    static sumi_recipe s_recipe;
    s_recipe = *model->network->recipe;
    s_recipe.references = c->rule;
    model->network->recipe = &s_recipe;
    model->network->info.min_references = c->rule.min_count;
    model->network->info.max_references = c->rule.max_count;
    model->network->info.size_follows_last_reference = c->rule.size_follows_last;
    model->info = model->network->info;
    return model;
}

// Rows of tokens, 64 values each: 4 for each channel.
static float packed_error(const float* latents, const float* tokens, int32_t height, int32_t width)
{
    double error = 0.0, norm = 0.0;
    for (int32_t token = 0; token < height / 2 * (width / 2); token++) {
        for (int32_t k = 0; k < 64; k++) {
            const int32_t y = token / (width / 2) * 2 + k % 4 / 2, x = token % (width / 2) * 2 + k % 2;
            const double want = (double)tokens[token * 64 + k],
                         d = (double)latents[(k / 4 * height + y) * width + x] - want;
            error += d * d;
            norm += want * want;
        }
    }
    return (float)sqrt(error / norm);
}

static void* case_tensor(sumi_tensor_set* set, const char* name, int64_t* out_first)
{
    const sumi_tensor* tensor = sumi_tensor_find(set, name);
    if (tensor == NULL) return NULL;
    void* copy = malloc((size_t)tensor->bytes);
    memcpy(copy, tensor->data, (size_t)tensor->bytes);
    *out_first = tensor->rank == 3 ? tensor->shape[0] : 1;
    return copy;
}

static void run_edit_case(sumi_engine* engine, const edit_case* c)
{
    sumi_model* model = load_edit(engine, c);
    if (model == NULL) return;
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_tensor_set set;
    sumi_tensor_set_init(&set, &heap, NULL);
    sumi_error error = {0};
    char path[256], message[PICTURE_MESSAGE_BYTES];
    snprintf(path, sizeof path, EDIT_FOLDER "cases/%s.safetensors", c->name);
    CHECK_NUMBER(sumi_tensor_set_open(&set, path, &error), SUMI_OK);
    int64_t count = 0, steps = 0;
    float *noise = case_tensor(&set, "input.noise", &count), *sigmas = case_tensor(&set, "expect.sigmas", &count),
          *want = case_tensor(&set, "expect_tb.latents", &steps);
    if (want == NULL) want = case_tensor(&set, "expect_tb.latents_final", &steps);
    picture_file images[2] = {{0}};
    sumi_pixels pictures[2];
    for (int32_t i = 0; i < c->picture_count; i++) {
        snprintf(path, sizeof path, EDIT_FOLDER "cases/%s.in%d.png", c->name, (int)i);
        CHECK(picture_read(path, 0, &images[i], message));
        pictures[i] = (sumi_pixels){images[i].pixels, images[i].width, images[i].height, 0, images[i].channel_count};
    }
    CHECK(noise != NULL && sigmas != NULL && want != NULL);
    if (noise != NULL && sigmas != NULL && want != NULL) {
        const sumi_image_item item = {.text = c->prompt, .negative_text = " "};
        sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
        desc.items = &item;
        desc.item_count = 1;
        desc.references = pictures;
        desc.reference_count = c->picture_count;
        desc.width = c->width, desc.height = c->height;
        desc.step_count = c->step_count;
        desc.guidance.scale = 4.0f;
        desc.solver = SUMI_SOLVER_EULER;
        desc.sigmas = sigmas;
        desc.noise.source = SUMI_NOISE_GIVEN;
        desc.noise.values = noise;
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        const int32_t height = c->want.height / 8, width = c->want.width / 8;
        const size_t values = (size_t)16 * (size_t)height * (size_t)width;
        float* latents = malloc(values * sizeof *latents);
        CHECK_NUMBER(sumi_job_latents(engine, job, 0, latents, values), SUMI_OK);
        const float off = packed_error(latents, want + (steps - 1) * height * width / 4 * 64, height, width);
        printf("  %s: latents %.1e\n", c->name, (double)off);
        CHECK(off < 5e-5f);
        sumi_image image;
        CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
        CHECK(image.width == c->want.width && image.height == c->want.height);
        free(latents);
    }
    for (int i = 0; i < 2; i++) picture_free(&images[i]);
    free(noise), free(sigmas), free(want);
    sumi_tensor_set_close(&set);
}

// Areas and sizes are small.
static const edit_case s_cases[] = {
    {"pipe-edit",
     "model-edit",
     "Make the sky green and keep the house, it's fine.",
     {.min_count = 1, .max_count = 1, .autoencoder_area = 9216, .vision_area = 9216, .multiple = 32, .max_ratio = 200},
     1,
     64,
     48,
     4,
     {64, 48}},
    {"pipe-edit-2509",
     "model-edit-2509",
     "Put the hat of picture 1 on the dog of picture 2.",
     {.max_count = 3,
      .autoencoder_area = 6400,
      .vision_area = 12544,
      .multiple = 32,
      .max_ratio = 200,
      .size_follows_last = true},
     2,
     0,
     0,
     3,
     {64, 96}},
};

TEST(edit_models_draw_what_the_published_pipelines_do)
{
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        memset(&s_host, 0, sizeof s_host);
        const sumi_engine_desc desc = host_desc(&s_host);
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&desc, &engine), SUMI_OK);
        if (engine == NULL) return;
        run_edit_case(engine, &s_cases[i]);
        if (t_errors > 0) printf("  %s\n", s_host.log);
        close_engine(engine);
    }
}

// ---- Step caching ---------------------------------------------------------------------------------------------------

#define CACHE_STEPS 12
#define CACHE_ITEMS 3

// Draws; returns the hash of all images, and how many evaluations each of them has reused.
static uint64_t draw_reused(sumi_engine* engine, const sumi_image_desc* desc, int32_t reused[CACHE_ITEMS])
{
    sumi_image images[CACHE_ITEMS];
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    if (sumi_fetch_images(engine, job, images, CACHE_ITEMS) != SUMI_OK) {
        printf("  %s\n", s_host.log);
        CHECK(false);
        return 0;
    }
    uint64_t hash = 0;
    for (int32_t i = 0; i < desc->item_count; i++) {
        hash = hash * 31 + hash_image(&images[i]);
        reused[i] = images[i].reused_count;
        CHECK_NUMBER(images[i].evaluation_count, CACHE_STEPS);
    }
    sumi_images_release(engine, images, desc->item_count);
    return hash;
}

// The same of the images drawn one by one.
static uint64_t draw_one_by_one(sumi_engine* engine, sumi_image_desc desc, int32_t reused[CACHE_ITEMS])
{
    const sumi_image_item* items = desc.items;
    const int32_t count = desc.item_count;
    uint64_t hash = 0;
    desc.item_count = 1;
    for (int32_t i = 0; i < count; i++) {
        desc.items = &items[i];
        hash = hash * 31 + draw_reused(engine, &desc, &reused[i]);
    }
    return hash;
}

// With the models' own guidance, where each evaluation is two of the network: of a batch every image decides for
// itself. The rows of references are computed in whole evaluations, and in the first block of reused ones.
TEST(a_step_cache_serves_edit_models_with_guidance_and_batches)
{
    // Weights are random, so evaluations change smoothly over very short steps only. These become longer.
    static float s_sigmas[CACHE_STEPS + 1];
    for (int i = 0; i <= CACHE_STEPS; i++) s_sigmas[i] = 0.9f - 1e-4f * (float)(i * (i + 3));
    const sumi_image_item items[CACHE_ITEMS] = {{.text = "make the sky green", .negative_text = "grey", .seed = 7},
                                                {.text = "a hat", .negative_text = " ", .seed = 8},
                                                {.text = "take the dog away", .seed = 9}};
    for (size_t c = 0; c < sizeof s_cases / sizeof *s_cases; c++) {
        memset(&s_host, 0, sizeof s_host);
        const sumi_engine_desc ed = host_desc(&s_host);
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
        sumi_model* model = engine != NULL ? load_edit(engine, &s_cases[c]) : NULL;
        if (model == NULL) return;
        sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
        desc.items = items;
        desc.item_count = CACHE_ITEMS;
        desc.references = edit_pictures();
        desc.reference_count = s_cases[c].picture_count;
        desc.width = 64, desc.height = 48;
        desc.step_count = CACHE_STEPS;
        desc.solver = SUMI_SOLVER_EULER;
        desc.sigmas = s_sigmas;
        CHECK(desc.guidance.scale > sumi_model_get_info(model).guidance_off);
        int32_t reused[CACHE_ITEMS], alone[CACHE_ITEMS], most[CACHE_ITEMS];
        const uint64_t whole = draw_one_by_one(engine, desc, reused);
        CHECK(whole != 0 && reused[0] + reused[1] + reused[2] == 0);
        desc.step_cache = 1e-7f; // nothing changes as little as that
        CHECK(draw_reused(engine, &desc, reused) == whole && reused[0] + reused[1] + reused[2] == 0);
        int differing = 0; // thresholds with which they decided differently: two of them suffice
        for (float step_cache = 0.0006f; step_cache < 0.002f && differing < 2; step_cache *= 1.15f) {
            desc.step_cache = step_cache;
            CHECK(draw_reused(engine, &desc, reused) == draw_one_by_one(engine, desc, alone));
            CHECK(memcmp(reused, alone, sizeof reused) == 0);
            if (reused[0] == reused[1] && reused[1] == reused[2]) continue;
            printf("  %s: %d, %d and %d of %d reused with %g\n", s_cases[c].name, (int)reused[0], (int)reused[1],
                   (int)reused[2], CACHE_STEPS, (double)step_cache);
            differing++;
        }
        CHECK_NUMBER(differing, 2);
        desc.step_cache = 10.0f; // everything does: whole are the first two, each fourth after them, and the last
        const uint64_t cached = draw_reused(engine, &desc, most);
        CHECK(cached != whole && most[0] == 7 && most[1] == 7 && most[2] == 7);
        // The references are not forgotten between the evaluations.
        desc.references = edit_pictures() + 1;
        CHECK(draw_reused(engine, &desc, most) != cached);
        close_engine(engine);
    }
}

// ---- Prompts that keep references -----------------------------------------------------------------------------------

TEST(an_encoded_prompt_keeps_its_references)
{
    for (int rule = 0; rule < 2; rule++) {
        OPEN_EDIT(rule == 0 ? &s_several : &s_needed, engine, model);
        const sumi_image_item item = {.text = "make it red", .negative_text = "grey", .seed = 7};
        sumi_image_desc desc = edit_image(model, &item, 2);
        desc.guidance.scale = 3.0f;
        const uint64_t want = edit_hash(engine, &desc);
        CHECK(want != 0);
        // Both prompts begin with the pictures, which are computed once there; alone they have the same bits.
        const sumi_pipeline* pipeline = &newest_plan(engine)->pipeline;
        CHECK(pipeline->ids[0][0].count > 2 * pipeline->ids[1][0].count && pipeline->ids[1][0].count > 0);
        CHECK_NUMBER(pipeline->ids[1][0].row, pipeline->ids[0][0].count);
        sumi_prompt *positive = encode_edit(engine, model, "make it red", 2),
                    *negative = encode_edit(engine, model, "grey", 2);
        CHECK_NUMBER(sumi_prompt_get_info(positive).reference_count, 2);
        const sumi_image_item encoded = {.prompt = positive, .negative_prompt = negative, .seed = 7};
        desc.items = &encoded;
        CHECK(edit_hash(engine, &desc) == want); // with references of its own
        desc.references = NULL;
        desc.reference_count = 0;
        CHECK(edit_hash(engine, &desc) == want); // with those that the prompt keeps, and their size

        const size_t bytes = sumi_prompt_save(positive, NULL, 0);
        unsigned char *saved = malloc(bytes), *again = malloc(bytes);
        CHECK_NUMBER(sumi_prompt_save(positive, saved, bytes), bytes);
        sumi_prompt* loaded = NULL;
        CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
        CHECK_NUMBER(sumi_prompt_get_info(loaded).reference_count, 2);
        CHECK_NUMBER(sumi_prompt_save(loaded, again, bytes), bytes);
        CHECK(memcmp(saved, again, bytes) == 0);
        const sumi_image_item shipped = {.prompt = loaded, .negative_prompt = negative, .seed = 7};
        desc.items = &shipped;
        // the job keeps it
        sumi_job job;
        sumi_size size;
        CHECK_NUMBER(sumi_image_size(&desc, &size), SUMI_OK);
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_prompt_release(loaded);
        sumi_prompt_release(negative);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        desc.width = size.width, desc.height = size.height;
        CHECK(fetch_hash(engine, job, &desc) == want);
        free(saved), free(again);
        close_engine(engine);
    }
}

// Saves `prompt` with another family of tensors: what `change` makes of the header, whose length stays.
static sumi_result load_changed(sumi_model* model, const unsigned char* saved, size_t bytes, const char* from,
                                const char* to)
{
    unsigned char* copy = malloc(bytes);
    memcpy(copy, saved, bytes);
    bool is_there = false;
    const size_t length = strlen(from);
    for (size_t i = 8; i + length < bytes && !is_there; i++) {
        is_there = memcmp(copy + i, from, length) == 0;
        if (is_there) memcpy(copy + i, to, length);
    }
    CHECK(is_there && strlen(to) == length);
    sumi_prompt* prompt = NULL;
    const sumi_result result = sumi_prompt_load(model, copy, bytes, &prompt);
    sumi_prompt_release(prompt);
    free(copy);
    return result;
}

TEST(damaged_references_of_saved_prompts_are_refused)
{
    OPEN_EDIT(&s_several, engine, model);
    sumi_prompt* prompt = encode_edit(engine, model, "make it red", 2);
    const size_t bytes = sumi_prompt_save(prompt, NULL, 0);
    unsigned char* saved = malloc(bytes);
    CHECK_NUMBER(sumi_prompt_save(prompt, saved, bytes), bytes);
    CHECK_NUMBER(load_changed(model, saved, bytes, "reference.1", "reference.1"), SUMI_OK);
    CHECK_NUMBER(load_changed(model, saved, bytes, "reference.1", "reference.2"), SUMI_FILE_MALFORMED);
    CHECK(strstr(s_host.log, "reference.1") != NULL);
    CHECK_NUMBER(load_changed(model, saved, bytes, "reference.0", "reference.x"), SUMI_FILE_MALFORMED);
    CHECK_NUMBER(load_changed(model, saved, bytes, "[16,48,3]", "[16,3,48]"), SUMI_FILE_MALFORMED);
    CHECK_NUMBER(load_changed(model, saved, bytes, "[16,48,3]", "[48,16,3]"), SUMI_OK); // a picture all the same
    CHECK_NUMBER(load_changed(model, saved, bytes, "[16,48,3]", "[24,32,3]"), SUMI_TENSOR_MISMATCH);
    CHECK(strstr(s_host.log, "multiples of 16") != NULL);
    CHECK_NUMBER(load_changed(model, saved, bytes, "\"U8\"", "\"I8\""), SUMI_FILE_MALFORMED);
    model->info.max_references = 1;
    CHECK_NUMBER(load_changed(model, saved, bytes, "U8", "U8"), SUMI_TENSOR_MISMATCH);
    CHECK(strstr(s_host.log, "2 reference images") != NULL);
    model->info.max_references = 3;
    for (size_t cut = 1; cut < bytes; cut += cut < 600 ? 37 : 997) {
        sumi_prompt* short_one = NULL;
        CHECK(sumi_prompt_load(model, saved, bytes - cut, &short_one) != SUMI_OK && short_one == NULL);
    }
    free(saved);
    close_engine(engine);
}

// ---- Refusals -------------------------------------------------------------------------------------------------------

static void refuses(sumi_engine* engine, const sumi_image_desc* desc, sumi_result want, const char* sentence)
{
    sumi_job job;
    sumi_memory memory;
    sumi_size size;
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), want);
    CHECK_NUMBER(sumi_image_memory(engine, desc, &memory), want);
    CHECK_NUMBER(sumi_image_size(desc, &size), want);
    if (strstr(s_host.log, sentence) == NULL) printf("  \"%s\" does not say \"%s\"\n", s_host.log, sentence);
    CHECK(strstr(s_host.log, sentence) != NULL);
    CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
}

static void refuses_prompt(sumi_engine* engine, const sumi_prompt_desc* desc, sumi_result want, const char* sentence)
{
    sumi_job job;
    CHECK_NUMBER(sumi_submit_prompt(engine, desc, &job), want);
    if (strstr(s_host.log, sentence) == NULL) printf("  \"%s\" does not say \"%s\"\n", s_host.log, sentence);
    CHECK(strstr(s_host.log, sentence) != NULL);
}

TEST(references_that_cannot_be_are_refused)
{
    OPEN_EDIT(&s_needed, engine, model);
    const sumi_image_item item = {.text = "make it red", .seed = 7};
    sumi_image_desc desc = edit_image(model, &item, 1);
    sumi_prompt_desc prompt = sumi_prompt_defaults(model);
    prompt.text = "make it red";
    prompt.references = edit_pictures();
    static const struct {
        int32_t count;
        const char* sentence;
    } s_counts[] = {{0, "makes no image without references, give 1 to 2"},
                    {-1, "give 1 to 2"},
                    {3, "give 1 to 2"},
                    {1 << 30, "give 1 to 2"}};
    for (size_t i = 0; i < sizeof s_counts / sizeof *s_counts; i++) {
        desc.reference_count = prompt.reference_count = s_counts[i].count;
        refuses(engine, &desc, SUMI_INVALID_ARGUMENT, s_counts[i].sentence);
        refuses_prompt(engine, &prompt, SUMI_INVALID_ARGUMENT, s_counts[i].sentence);
    }
    desc.references = prompt.references = NULL;
    desc.reference_count = prompt.reference_count = 1;
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "references is NULL");
    refuses_prompt(engine, &prompt, SUMI_INVALID_ARGUMENT, "references is NULL");
    sumi_pixels bad[2] = {edit_pictures()[0], edit_pictures()[1]};
    desc.references = prompt.references = bad;
    desc.reference_count = prompt.reference_count = 2;
    bad[1].data = NULL;
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "references[1]");
    refuses_prompt(engine, &prompt, SUMI_INVALID_ARGUMENT, "references[1]");
    bad[1] = edit_pictures()[1];
    bad[1].channel_count = 2;
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "references[1]");
    bad[1] = (sumi_pixels){edit_pictures()[1].data, 640, 4, 0, 1};
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "references[1]: an image");
    refuses_prompt(engine, &prompt, SUMI_INVALID_ARGUMENT, "closer to a square");
    close_engine(engine);

    OPEN_EDIT(&s_several, plus, plus_model);
    desc = edit_image(plus_model, &item, 0);
    desc.height = 32; // one of the two
    refuses(plus, &desc, SUMI_INVALID_ARGUMENT, "width is 0: give a multiple of 16");
    desc.width = 32;
    CHECK(edit_hash(plus, &desc) != 0); // text alone
    plus_model->info.has_vae_encoder = false;
    desc.references = edit_pictures();
    desc.reference_count = 1;
    refuses(plus, &desc, SUMI_NOT_SUPPORTED, "without a VAE encoder");
    close_engine(plus);
}

TEST(prompts_of_other_references_are_refused)
{
    OPEN_EDIT(&s_several, engine, model);
    sumi_prompt *none = encode_edit(engine, model, "red", 0), *one = encode_edit(engine, model, "red", 1),
                *two = encode_edit(engine, model, "red", 2);
    sumi_image_item item = {.prompt = one, .seed = 7};
    sumi_image_desc desc = edit_image(model, &item, 2);
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT,
            "items[0].prompt was encoded with 1 reference images, this job has 2");
    item.prompt = two;
    sumi_pixels others[2] = {edit_pictures()[0], edit_pictures()[0]};
    desc.references = others;
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "another image for references[1]");
    desc.references = edit_pictures();
    CHECK(edit_hash(engine, &desc) != 0);
    // guidance: negative prompts too
    desc.guidance.scale = 2.0f;
    item.negative_prompt = one;
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "items[0].negative_prompt was encoded with 1");
    item.negative_prompt = none;
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "items[0].negative_prompt was encoded with 0");
    desc.guidance.scale = 0.0f; // nobody reads them
    CHECK(edit_hash(engine, &desc) != 0);
    item.negative_prompt = NULL;
    desc.guidance.scale = 2.0f; // a text beside a prompt: with the host program's pictures
    CHECK(edit_hash(engine, &desc) != 0);
    desc.references = NULL;
    desc.reference_count = 0;
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "items[0].negative_text cannot be encoded");
    desc.guidance.scale = 0.0f;
    sumi_image_item pair[2] = {{.prompt = two, .seed = 1}, {.text = "blue", .seed = 2}};
    desc.items = pair;
    desc.item_count = 2;
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "items[1].text cannot be encoded");
    pair[1] = (sumi_image_item){.prompt = one};
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT, "items[1].prompt was encoded with 1");
    pair[0] = (sumi_image_item){.text = "blue"}; // then there are none
    desc.width = desc.height = 32;
    refuses(engine, &desc, SUMI_INVALID_ARGUMENT,
            "items[1].prompt was encoded with 1 reference images, this job has 0");
    close_engine(engine);
}

TEST(models_without_what_references_need_say_so)
{
    OPEN(engine, model);
    make_edit_model(model, &s_several, NULL);
    const sumi_image_item item = {.text = "make it red", .seed = 7};
    sumi_image_desc desc = edit_image(model, &item, 1);
    refuses(engine, &desc, SUMI_NOT_SUPPORTED, "without a vision tower");
    sumi_prompt_desc prompt = sumi_prompt_defaults(model);
    prompt.text = "red";
    prompt.references = edit_pictures();
    prompt.reference_count = 1;
    refuses_prompt(engine, &prompt, SUMI_NOT_SUPPORTED, "without a vision tower");
    desc.references = NULL;
    desc.reference_count = 0;
    desc.width = desc.height = 32;
    CHECK(edit_hash(engine, &desc) != 0);
    close_engine(engine);

    OPEN(plain, z_image); // takes none
    CHECK(!sumi_model_get_info(z_image).takes_references);
    desc = edit_image(z_image, &item, 1);
    refuses(plain, &desc, SUMI_NOT_SUPPORTED, "takes no reference images");
    desc.reference_count = 0;
    refuses(plain, &desc, SUMI_NOT_SUPPORTED, "takes no reference images");
    desc.references = NULL;
    desc.reference_count = 2;
    refuses(plain, &desc, SUMI_NOT_SUPPORTED, "takes no reference images");
    desc.reference_count = 0;
    refuses(plain, &desc, SUMI_INVALID_ARGUMENT, "width is 0");
    close_engine(plain);
}

// ---- Everything that goes wrong -------------------------------------------------------------------------------------

static bool is_expected(sumi_result result) { return result == SUMI_OK || result == SUMI_OUT_OF_HOST_MEMORY; }

static sumi_result run(sumi_engine* engine, sumi_result submitted, sumi_job job)
{
    CHECK(is_expected(submitted));
    if (submitted != SUMI_OK) return submitted;
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    return SUMI_OK;
}

TEST(the_nth_allocation_may_fail)
{
    long long n = 1;
    for (bool has_failed = true; has_failed && t_errors == 0; n++) {
        OPEN_EDIT(&s_several, engine, model);
        const long long before = atomic_load(&s_host.count);
        atomic_store(&s_host.fail_at, before + n);
        sumi_prompt_desc pd = sumi_prompt_defaults(model);
        pd.text = "red";
        pd.references = edit_pictures();
        pd.reference_count = 2;
        sumi_job job;
        sumi_prompt *prompt = NULL, *loaded = NULL;
        if (run(engine, sumi_submit_prompt(engine, &pd, &job), job) == SUMI_OK)
            CHECK(is_expected(sumi_fetch_prompt(engine, job, &prompt)));
        static unsigned char s_saved[64 * 1024];
        const size_t bytes = sumi_prompt_save(prompt, s_saved, sizeof s_saved);
        CHECK(bytes < sizeof s_saved);
        if (prompt != NULL) CHECK(is_expected(sumi_prompt_load(model, s_saved, bytes, &loaded)));
        const sumi_image_item item = {.text = "red", .negative_prompt = loaded, .seed = 1};
        sumi_image_desc desc = edit_image(model, &item, 2);
        desc.step_count = 1;
        desc.guidance.scale = 1.0f;
        sumi_memory memory;
        CHECK(is_expected(sumi_image_memory(engine, &desc, &memory)));
        sumi_image image;
        if (run(engine, sumi_submit_images(engine, &desc, &job), job) == SUMI_OK) {
            CHECK(is_expected(sumi_fetch_images(engine, job, &image, 1)));
            sumi_images_release(engine, &image, 1);
        }
        has_failed = atomic_load(&s_host.count) >= before + n;
        atomic_store(&s_host.fail_at, 0);
        if (n % 8 == 0) CHECK(edit_hash(engine, &desc) != 0);
        close_engine(engine);
    }
    printf("  %lld allocations failed, one after the other\n", n - 2);
    CHECK(n > 100);
}

TEST(a_job_can_be_cancelled_after_every_slice)
{
    OPEN_EDIT_WITH(100, &s_several, engine, model);
    const sumi_image_item item = {.text = "red", .negative_text = "grey", .seed = 1};
    sumi_image_desc desc = edit_image(model, &item, 3);
    desc.step_count = 1;
    desc.guidance.scale = 1.0f;
    const uint64_t whole = edit_hash(engine, &desc);
    CHECK(whole != 0);
    sumi_prompt_desc pd = sumi_prompt_defaults(model);
    pd.text = "red";
    pd.references = edit_pictures();
    pd.reference_count = 3;
    for (int kind = 0; kind < 2; kind++) {
        int slices = 0;
        for (bool is_done = false; !is_done && t_errors == 0; slices++) {
            sumi_job job;
            CHECK_NUMBER(kind == 0 ? sumi_submit_prompt(engine, &pd, &job) : sumi_submit_images(engine, &desc, &job),
                         SUMI_OK);
            for (int i = 0; i < slices; i++) sumi_engine_update(engine, 1);
            is_done = sumi_job_poll(engine, job).state >= SUMI_JOB_DONE;
            give_up(engine, job, slices % 2 != 0);
            if (slices % 40 == 0) CHECK(edit_hash(engine, &desc) == whole);
        }
        CHECK(slices > 20);
    }
    CHECK(edit_hash(engine, &desc) == whole);
    CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(edit_models_draw_what_the_published_pipelines_do);
    RUN(a_step_cache_serves_edit_models_with_guidance_and_batches);
    RUN(an_encoded_prompt_keeps_its_references);
    RUN(damaged_references_of_saved_prompts_are_refused);
    RUN(references_that_cannot_be_are_refused);
    RUN(prompts_of_other_references_are_refused);
    RUN(models_without_what_references_need_say_so);
    RUN(the_nth_allocation_may_fail);
    RUN(a_job_can_be_cancelled_after_every_slice);
    TEST_END();
}
