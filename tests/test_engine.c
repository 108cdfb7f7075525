// The engine through the public header, with the tiny checkpoint: golden pipelines, same bits, prompts, adapters,
// targets.
#include "at_once.h"
#include "base/dtype.h"
#include "engine_fixture.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "jobs/prompt.h"
#include "models/network.h"
#include "pictures/pixels.h"
#include "sampling/noise.h"
#include "sampling/schedule.h"

// ---- Texts and defaults ---------------------------------------------------------------------------------------------

TEST(every_result_has_its_own_text)
{
    const int numbers[] = {0,  1,  2,  3,  4,  5,  6,  7,  10, 11, 12, 20, 21, 22,
                           23, 30, 31, 32, 33, 34, 40, 41, 42, 43, 50, 51, 52, 90};
    const char* unknown = sumi_result_text((sumi_result)77);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char* text = sumi_result_text((sumi_result)numbers[i]);
        CHECK(text != NULL && text[0] != '\0' && strcmp(text, unknown) != 0);
        for (size_t j = 0; j < i; j++) CHECK(strcmp(text, sumi_result_text((sumi_result)numbers[j])) != 0);
    }
    CHECK(sumi_result_text((sumi_result)-1) != NULL);
    CHECK_TEXT(sumi_version(), "0.2.0");
}

TEST(defaults_follow_the_model_and_the_preset)
{
    OPEN(engine, model);
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    CHECK_NUMBER(desc.width, 1024);
    CHECK_NUMBER(desc.step_count, 8);
    CHECK(desc.guidance.scale == 0.0f && desc.start.strength == 0.6f && desc.guidance.end == 1.0f);
    CHECK_NUMBER(desc.noise.multiprocessors, 132);
    CHECK_NUMBER(sumi_image_defaults(model, SUMI_PRESET_PREVIEW).width, 768);
    CHECK(sumi_image_defaults(model, SUMI_PRESET_QUALITY).step_count > 8);
    sumi_model_info info = sumi_model_get_info(model);
    CHECK_TEXT(info.family, "z-image");
    CHECK_TEXT(info.variant, "turbo");
    CHECK(info.has_text_encoder && info.has_vae_encoder && !info.takes_references);
    CHECK_NUMBER(info.size_multiple, 16);
    CHECK(info.guidance == 0.0f && info.guidance_off == 0.0f && !info.uses_guidance && !info.ignores_guidance);
    CHECK_NUMBER(info.guidance_formula, SUMI_GUIDANCE_FROM_POSITIVE);
    CHECK_NUMBER(info.guidance_rule, SUMI_GUIDANCE_NORM_LIMIT);
    CHECK_TEXT(info.negative_text, "");
    CHECK(info.min_references == 0 && info.max_references == 0);
    CHECK(info.size_count == 1 && info.sizes[0].width == info.native_size && info.sizes[0].height == info.native_size);
    CHECK_NUMBER(desc.guidance.rule, SUMI_GUIDANCE_MODEL);
    CHECK(sumi_model_get_info(NULL).sizes == NULL && sumi_model_get_info(NULL).size_count == 0);
    CHECK_NUMBER(sumi_image_defaults(model, (sumi_preset)-3).step_count, 8); // an unknown one: the model's
    CHECK_NUMBER(sumi_image_defaults(model, (sumi_preset)4).step_count, 8);
    CHECK(info.weight_bytes > 0);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS], info.weight_bytes);
    CHECK_TEXT(sumi_model_get_info(NULL).family, "");
    sumi_image_desc none = sumi_image_defaults(NULL, SUMI_PRESET_MODEL);
    none.items = &s_item;
    none.item_count = 1;
    sumi_job job = {99};
    CHECK_NUMBER(sumi_submit_images(engine, &none, &job), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(job.id, 0);
    CHECK_NUMBER(sumi_encode_defaults(model).width, 1024);
    CHECK_NUMBER(sumi_encode_defaults(NULL).width, 0);
    close_engine(engine);
}

// ---- Golden pipelines -----------------------------------------------------------------------------------------------

typedef struct pipeline_case {
    const char *name, *prompt, *negative;
    int width, height, steps;
    float shift, guidance, norm_limit, guidance_end, strength;
    bool has_image, has_mask, takes_mode;
} pipeline_case;

static const pipeline_case s_cases[] = {
    {"turbo_t2i", "一只红色的狐狸 in the snow, photo", NULL, 64, 48, 8, 3, 0, 0, 1, 0, false, false, false},
    {"base_cfg", "A portrait of an old man", "blurry, low quality", 48, 32, 6, 6, 4, 0, 1, 0, false, false, false},
    {"base_cfg_norm", "A portrait of an old man", "blurry, low quality", 48, 32, 6, 6, 4, 1, 1, 0, false, false, false},
    {"base_cfg_trunc", "A portrait of an old man", NULL, 48, 32, 6, 6, 3, 0, 0.2f, 0, false, false, false},
    {"img2img", "watercolor painting of flowers", NULL, 48, 32, 8, 3, 0, 0, 1, 0.6f, true, false, false},
    {"img2img_mode", "watercolor painting of flowers", NULL, 48, 32, 9, 3, 0, 0, 1, 0.3f, true, false, true},
    {"inpaint", "a robot", NULL, 48, 64, 5, 3, 0, 0, 1, 1.0f, true, true, false},
    {"inpaint_strength", "a robot", NULL, 48, 32, 8, 3, 0, 0, 1, 0.7f, true, true, false},
};

static void check_pipeline(sumi_engine* engine, sumi_model* model, const pipeline_case* c)
{
    golden g;
    bool is_open = golden_open(&g, c->name);
    CHECK(is_open);
    if (!is_open) return;
    float* noise = golden_copy(&g, "input.noise");
    float* eps = golden_copy(&g, "input.eps");
    uint8_t* picture = golden_copy(&g, "input.image");
    uint8_t* mask_picture = golden_copy(&g, "input.mask_image");
    float* latents = golden_copy(&g, "expect.latents");
    uint8_t* image_u8 = golden_copy(&g, "expect.image_u8");
    uint8_t* previews = golden_copy(&g, "expect.preview_u8");
    sumi_pixels start = {picture, c->width, c->height, 0, 3}, mask = {mask_picture, c->width, c->height, 0, 1};
    sumi_image_item item = {.text = c->prompt, .negative_text = c->negative};
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    desc.width = c->width;
    desc.height = c->height;
    desc.step_count = c->steps;
    desc.shift = c->shift;
    desc.guidance.scale = c->guidance;
    desc.guidance.norm_limit = c->norm_limit;
    desc.guidance.end = c->guidance_end;
    desc.noise.source = SUMI_NOISE_GIVEN;
    desc.noise.values = noise;
    if (c->has_image) desc.start.image = &start;
    if (c->has_mask) desc.start.mask = &mask;
    desc.start.mask_feather = -1; // the reference keeps what the VAE makes of it
    desc.start.posterior = c->takes_mode ? SUMI_POSTERIOR_MODE : SUMI_POSTERIOR_SAMPLE;
    if (c->has_image && !c->takes_mode) desc.start.noise_values = eps;
    if (c->has_image) desc.start.strength = c->strength;
    desc.preview_every = previews != NULL ? 1 : 0;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    uint32_t seen = 0;
    const size_t preview_bytes = (size_t)(c->width / 8) * (size_t)(c->height / 8) * 4;
    unsigned char* preview = malloc(preview_bytes);
    while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE) {
        sumi_engine_update(engine, 1);
        uint32_t version = sumi_job_poll(engine, job).preview_version;
        if (version == seen || previews == NULL) continue;
        CHECK_NUMBER(version, seen + 1);
        sumi_image shown;
        CHECK_NUMBER(sumi_job_preview(engine, job, 0, preview, preview_bytes, &shown), SUMI_OK);
        CHECK(picture_difference(&shown, previews + (size_t)seen * preview_bytes / 4 * 3) <= 1);
        seen = version;
    }
    if (previews != NULL) CHECK_NUMBER(seen, c->steps);
    const size_t count = (size_t)16 * (size_t)(c->width / 8) * (size_t)(c->height / 8),
                 all = golden_count(&g, "expect.latents");
    float* got = malloc(count * sizeof *got);
    CHECK_NUMBER(sumi_job_latents(engine, job, 0, got, count), SUMI_OK);
    double error = relative_error(got, latents + (all - count), count);
    CHECK(error <= 3e-4);
    sumi_image image;
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
    CHECK_NUMBER(image.step_count, (int)(all / count));
    int difference = picture_difference(&image, image_u8);
    CHECK(difference <= 1);
    printf("  %s: latents %.2g, picture %d\n", c->name, error, difference);
    sumi_images_release(engine, &image, 1);
    free(got), free(preview), free(noise), free(eps), free(picture), free(mask_picture), free(latents), free(image_u8),
        free(previews);
    golden_close(&g);
}

TEST(pipelines_give_the_references_images)
{
    OPEN(engine, model);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) check_pipeline(engine, model, &s_cases[i]);
    close_engine(engine);
}

// ---- Same bits ------------------------------------------------------------------------------------------------------

typedef struct bits_case {
    uint32_t budget_us, slice_us;
    int32_t threads;
    bool tasks;
    sumi_pump pump;
    int32_t previews;
} bits_case;

static uint64_t bits_of(const bits_case* c)
{
    memset(&s_host, 0, sizeof s_host);
    tasks_host th = {0, 0};
    sumi_engine_desc desc = host_desc(&s_host);
    desc.max_slice_us = c->slice_us;
    desc.cpu_thread_count = c->threads;
    desc.pump = c->pump;
    const sumi_tasks tasks = {3, begin_task, finish_task, &th};
    if (c->tasks) desc.tasks = &tasks;
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&desc, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return 0;
    sumi_image_desc image;
    rich_image(&image, model);
    image.preview_every = c->previews;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &image, &job), SUMI_OK);
    if (c->pump == SUMI_PUMP_UPDATE) {
        while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE) sumi_engine_update(engine, c->budget_us);
    } else {
        CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    }
    sumi_image images[2];
    CHECK_NUMBER(sumi_fetch_images(engine, job, images, 2), SUMI_OK);
    uint64_t hash = hash_image(&images[0]) * 31 + hash_image(&images[1]);
    if (c->tasks) CHECK(th.begun > 0 && th.begun == th.finished);
    close_engine(engine);
    return hash;
}

TEST(bits_do_not_depend_on_how_the_work_is_cut)
{
    static const bits_case s_bits[] = {
        {SUMI_FOREVER, 2000, 1, false, SUMI_PUMP_UPDATE, 0},
        {1, 2000, 1, false, SUMI_PUMP_UPDATE, 1},
        {1000, 2000, 1, false, SUMI_PUMP_UPDATE, 0},
        {SUMI_FOREVER, 0, 1, false, SUMI_PUMP_UPDATE, 0},
        {SUMI_FOREVER, 1, 1, false, SUMI_PUMP_UPDATE, 2},
        {1, 50, 1, false, SUMI_PUMP_UPDATE, 0},
        {1000, 50, 2, false, SUMI_PUMP_UPDATE, 1},
        {SUMI_FOREVER, 1, 3, false, SUMI_PUMP_UPDATE, 0},
        {SUMI_FOREVER, 2000, 0, true, SUMI_PUMP_UPDATE, 0},
        {0, 2000, 1, false, SUMI_PUMP_THREAD, 0},
        {0, 1, 2, false, SUMI_PUMP_THREAD, 1},
    };
    uint64_t first = bits_of(&s_bits[0]);
    CHECK(first != 0);
    for (size_t i = 1; i < sizeof s_bits / sizeof *s_bits; i++) {
        uint64_t other = bits_of(&s_bits[i]);
        if (other != first) printf("  case %zu differs\n", i);
        CHECK(other == first);
    }
}

TEST(a_job_repeated_gives_the_same_bits)
{
    OPEN(engine, model);
    sumi_image_desc desc;
    rich_image(&desc, model);
    uint64_t first = draw_hash(engine, &desc);
    CHECK(first != 0 && first == draw_hash(engine, &desc)); // the second has a cached plan
    sumi_image_desc other = small_image(model, &s_item);
    for (int i = 1; i <= 5; i++) { // more shapes than the cache holds
        other.width = 16 * i;
        CHECK(draw_hash(engine, &other) != 0);
    }
    CHECK(first == draw_hash(engine, &desc));
    desc.profile = true;
    CHECK(first == draw_hash(engine, &desc));
    close_engine(engine);
}

TEST(a_batch_equals_single_jobs)
{
    OPEN(engine, model);
    sumi_image_item items[3] = {{.text = "a red fox", .seed = 1},
                                {.text = "a lighthouse at dusk, ink wash, long exposure", .seed = 2},
                                {.text = "a red fox", .seed = 3}};
    sumi_image_desc desc = small_image(model, items);
    for (int guided = 0; guided < 2; guided++) {
        desc.guidance.scale = guided ? 3.0f : 0.0f;
        desc.items = items;
        desc.item_count = 3;
        sumi_image batch[3];
        CHECK_NUMBER(draw(engine, &desc, batch), SUMI_OK);
        desc.item_count = 1;
        for (int i = 0; i < 3; i++) {
            desc.items = &items[i];
            sumi_image single;
            CHECK_NUMBER(draw(engine, &desc, &single), SUMI_OK);
            CHECK(hash_image(&single) == hash_image(&batch[i]));
            CHECK_NUMBER(batch[i].seed, items[i].seed);
            sumi_images_release(engine, &single, 1);
        }
        CHECK(hash_image(&batch[0]) != hash_image(&batch[2]));
        sumi_images_release(engine, batch, 3);
    }
    close_engine(engine);
}

TEST(latents_of_a_batch_equal_single_jobs)
{
    OPEN(engine, model);
    sumi_image_item items[2] = {{.text = "a red fox", .seed = 1},
                                {.text = "a lighthouse", .negative_text = "blurry", .seed = 2}};
    sumi_image_desc desc = small_image(model, items);
    desc.item_count = 2;
    desc.guidance.scale = 2.0f;
    const size_t count = 16 * 4 * 4;
    float batch[2][16 * 4 * 4], single[16 * 4 * 4];
    for (int i = -1; i < 2; i++) {
        desc.items = i < 0 ? items : &items[i];
        desc.item_count = i < 0 ? 2 : 1;
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        if (i < 0) {
            CHECK_NUMBER(sumi_job_latents(engine, job, 0, batch[0], count), SUMI_OK);
            CHECK_NUMBER(sumi_job_latents(engine, job, 1, batch[1], count), SUMI_OK);
        } else {
            CHECK_NUMBER(sumi_job_latents(engine, job, 0, single, count), SUMI_OK);
            CHECK(memcmp(single, batch[i], sizeof single) == 0);
        }
        sumi_job_discard(engine, job);
    }
    close_engine(engine);
}

// ---- Noise, starts, schedules ---------------------------------------------------------------------------------------

TEST(noise_is_the_generators_and_posterior_noise_comes_first)
{
    OPEN(engine, model);
    enum { COUNT = 16 * 4 * 4 };
    uint8_t pixels[32 * 32 * 3];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 11);
    sumi_pixels start = {pixels, 32, 32, 0, 3};
    float eps[COUNT], noise[COUNT];
    for (int cuda = 0; cuda < 2; cuda++) {
        for (int from_image = 0; from_image < 2; from_image++) {
            sumi_image_desc desc = small_image(model, &s_item);
            desc.noise.source = cuda ? SUMI_NOISE_TORCH_CUDA : SUMI_NOISE_TORCH_CPU;
            desc.noise.multiprocessors = 108;
            if (from_image) desc.start.image = &start;
            uint64_t drawn = draw_hash(engine, &desc);
            if (cuda) {
                sumi_torch_cuda_generator generator;
                sumi_torch_cuda_seed(&generator, s_item.seed, 108, 2048);
                if (from_image) torch_cuda_randn(&generator, eps, COUNT);
                torch_cuda_randn(&generator, noise, COUNT);
            } else {
                sumi_torch_cpu_generator generator;
                sumi_torch_cpu_seed(&generator, s_item.seed);
                if (from_image) sumi_torch_cpu_randn(&generator, eps, COUNT);
                sumi_torch_cpu_randn(&generator, noise, COUNT);
            }
            desc.noise.source = SUMI_NOISE_GIVEN;
            desc.noise.values = noise;
            if (from_image) desc.start.noise_values = eps;
            CHECK(drawn != 0 && drawn == draw_hash(engine, &desc));
        }
    }
    close_engine(engine);
}

enum { KEPT_WIDTH = 48, KEPT_HEIGHT = 32, KEPT_PIXELS = KEPT_WIDTH * KEPT_HEIGHT };

// RGB of a picture; false when it was not made.
static bool draw_rgb(sumi_engine* engine, const sumi_image_desc* desc, uint8_t* rgb)
{
    sumi_job job;
    sumi_image image;
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    if (sumi_fetch_images(engine, job, &image, 1) != SUMI_OK) return false;
    for (int y = 0; y < KEPT_HEIGHT; y++)
        for (int x = 0; x < KEPT_WIDTH; x++)
            memcpy(rgb + 3 * (y * KEPT_WIDTH + x), (const uint8_t*)image.pixels + y * image.row_bytes + 4 * x, 3);
    sumi_images_release(engine, &image, 1);
    return true;
}

// How many pixels differ among those that `where` marks with `value`.
static int differing(const uint8_t* a, const uint8_t* b, const uint8_t* where, uint8_t value)
{
    int count = 0;
    for (int i = 0; i < KEPT_PIXELS; i++) count += where[i] == value && memcmp(a + 3 * i, b + 3 * i, 3) != 0;
    return count;
}

// To the last bit, whatever the mask's and the picture's forms; a feather mixes inside of the edge alone.
TEST(what_a_mask_keeps_is_the_start_image)
{
    enum { FEATHER = 6 };
    OPEN(engine, model);
    static uint8_t s_rgb[3 * KEPT_PIXELS], s_rgba[4 * KEPT_PIXELS], s_painted[KEPT_PIXELS], s_kept[4][3 * KEPT_PIXELS];
    for (int i = 0; i < KEPT_PIXELS; i++) {
        for (int c = 0; c < 3; c++) s_rgb[3 * i + c] = s_rgba[4 * i + c] = (uint8_t)(i * (7 + c) + i / 11 * 5);
        s_painted[i] = i % KEPT_WIDTH >= 17 && i % KEPT_WIDTH < 40 && i / KEPT_WIDTH >= 9 ? 255 : 0;
    }
    sumi_pixels start = {s_rgb, KEPT_WIDTH, KEPT_HEIGHT, 0, 3}, mask = {s_painted, KEPT_WIDTH, KEPT_HEIGHT, 0, 1};
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = KEPT_WIDTH;
    desc.height = KEPT_HEIGHT;
    desc.start.strength = 1.0f;
    desc.start.image = &start;
    desc.start.mask = &mask;
    static const int s_feathers[3] = {0, FEATHER, -1};
    for (int k = 0; k < 3; k++) {
        desc.start.mask_feather = s_feathers[k];
        CHECK(draw_rgb(engine, &desc, s_kept[k]));
    }
    CHECK_NUMBER(differing(s_kept[0], s_rgb, s_painted, 0), 0);
    CHECK(differing(s_kept[0], s_rgb, s_painted, 255) > 0);
    CHECK_NUMBER(differing(s_kept[0], s_kept[2], s_painted, 255), 0); // what is painted is what the VAE makes
    CHECK(differing(s_kept[2], s_rgb, s_painted, 0) > 0);
    CHECK_NUMBER(differing(s_kept[1], s_rgb, s_painted, 0), 0);
    for (int y = 20; y < KEPT_HEIGHT; y++) { // far from the upper edge: the left one's distance alone
        for (int x = 17; x < 28; x++) {
            const int at = 3 * (y * KEPT_WIDTH + x), inside = x - 16;
            for (int c = 0; c < 3; c++) {
                const double share = inside < FEATHER ? floor(255.0 * inside / FEATHER) / 255.0 : 1.0,
                             want = s_rgb[at + c] + share * (s_kept[0][at + c] - s_rgb[at + c]);
                CHECK(fabs(want - s_kept[1][at + c]) <= 1.01); // both were rounded
            }
        }
    }
    // another form of the same start, and one of another size that is resized first
    start = (sumi_pixels){s_rgba, KEPT_WIDTH, KEPT_HEIGHT, 0, 4};
    desc.start.mask_feather = 0;
    CHECK(draw_rgb(engine, &desc, s_kept[3]));
    CHECK_NUMBER(differing(s_kept[3], s_rgb, s_painted, 0), 0);
    start = (sumi_pixels){s_rgb, KEPT_HEIGHT, KEPT_WIDTH, 0, 3};
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    start.row_bytes = 3 * KEPT_HEIGHT;
    CHECK_NUMBER(sumi_pixels_to_rgb(&heap, &start, KEPT_WIDTH, KEPT_HEIGHT, s_kept[1], NULL), SUMI_OK);
    CHECK(draw_rgb(engine, &desc, s_kept[3]));
    CHECK_NUMBER(differing(s_kept[3], s_kept[1], s_painted, 0), 0);
    close_engine(engine);
}

TEST(encoded_latents_start_like_the_image)
{
    OPEN(engine, model);
    uint8_t pixels[50 * 30];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 7);
    sumi_pixels start = {pixels, 50, 30, 0, 1}, mask = {pixels, 30, 50, 0, 1};
    sumi_encode_desc encode = sumi_encode_defaults(model);
    encode.image = &start;
    encode.width = encode.height = 32;
    sumi_job job;
    float latents[16 * 16], sampled[16 * 16], few[4];
    CHECK_NUMBER(sumi_submit_encode(engine, &encode, &job), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_latents(engine, job, latents, 256), SUMI_WRONG_STATE);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_latents(engine, job, few, 4), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_fetch_latents(engine, job, latents, 256), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_latents(engine, job, latents, 256), SUMI_STALE_HANDLE);

    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 4;
    desc.start.strength = 0.5f;
    desc.start.image = &start;
    desc.start.posterior = SUMI_POSTERIOR_MODE;
    uint64_t of_image = draw_hash(engine, &desc);
    desc.start.mask = &mask;
    desc.start.mask_feather = -1; // latents have no picture to keep
    uint64_t inpainted = draw_hash(engine, &desc);
    desc.start.image = NULL;
    desc.start.latents = latents;
    CHECK(inpainted != 0 && inpainted != of_image && inpainted == draw_hash(engine, &desc));
    desc.start.mask = NULL;
    CHECK(of_image != 0 && of_image == draw_hash(engine, &desc));

    // a sample with noise of ours is the generator's
    encode.posterior = SUMI_POSTERIOR_SAMPLE;
    encode.seed = 5;
    CHECK_NUMBER(sumi_submit_encode(engine, &encode, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_fetch_latents(engine, job, sampled, 256), SUMI_OK);
    CHECK(memcmp(sampled, latents, sizeof latents) != 0);
    float eps[256], again[256];
    sumi_torch_cpu_generator generator;
    sumi_torch_cpu_seed(&generator, 5);
    sumi_torch_cpu_randn(&generator, eps, 256);
    encode.noise_values = eps;
    CHECK_NUMBER(sumi_submit_encode(engine, &encode, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_fetch_latents(engine, job, again, 256), SUMI_OK);
    CHECK(memcmp(sampled, again, sizeof again) == 0);
    close_engine(engine);
}

// Formula, rule and schedule are properties of the model. Those of other families are put in place of this one's.
TEST(a_models_own_guidance_and_schedule_are_used)
{
    OPEN(engine, model);
    sumi_image_item item = {.text = "a red fox", .negative_text = "blurry", .seed = 5};
    sumi_image_desc desc = small_image(model, &item);
    const uint64_t unguided = draw_hash(engine, &desc);
    uint64_t hashes[4];
    desc.guidance.scale = 2.5f;
    for (int rule = 0; rule < 4; rule++) {
        desc.guidance.rule = (sumi_guidance_rule)rule;
        desc.guidance.norm_limit = rule == SUMI_GUIDANCE_NORM_LIMIT ? 0.5f : 0.0f;
        hashes[rule] = draw_hash(engine, &desc);
    }
    CHECK(hashes[0] != 0 && hashes[0] != unguided);
    CHECK(hashes[SUMI_GUIDANCE_MODEL] == hashes[SUMI_GUIDANCE_PLAIN]); // its limit is 0
    CHECK(hashes[1] != hashes[2] && hashes[1] != hashes[3] && hashes[2] != hashes[3]);
    desc.guidance.rule = SUMI_GUIDANCE_MODEL;
    desc.guidance.norm_limit = 0.5f;
    CHECK(draw_hash(engine, &desc) == hashes[SUMI_GUIDANCE_NORM_LIMIT]);

    sumi_network_info* info = &model->info;
    info->guidance_formula = SUMI_GUIDANCE_FROM_NEGATIVE;
    info->guidance_off = 1.0f;
    info->guidance_rule = SUMI_GUIDANCE_NORM_RESCALE;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT); // its own rule knows no limit
    desc.guidance.norm_limit = 0.0f;
    desc.guidance.scale = 3.5f;
    CHECK(draw_hash(engine, &desc) == hashes[SUMI_GUIDANCE_NORM_RESCALE]);
    desc.guidance.scale = 1.0f;
    CHECK(draw_hash(engine, &desc) == unguided);
    desc.guidance.scale = 0.5f;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "give 1 (off)") != NULL);
    const sumi_model_info facts = sumi_model_get_info(model);
    CHECK(facts.guidance_off == 1.0f && facts.guidance_formula == SUMI_GUIDANCE_FROM_NEGATIVE
          && facts.guidance_rule == SUMI_GUIDANCE_NORM_RESCALE && facts.uses_guidance);

    float sigmas[9];
    desc = small_image(model, &item);
    desc.guidance.scale = 0.0f;
    info->guidance_off = 0.0f;
    desc.step_count = 5; // a terminal leaves two steps no level to choose
    const uint64_t still = draw_hash(engine, &desc);
    info->sigmas = (sumi_sigma_rule){
        .kind = SUMI_SHIFT_DYNAMIC, .dynamic = {0.2, 2.0, 1, 8, SUMI_CURVE_EXPONENTIAL}, .terminal = 0.02f};
    const uint64_t moving = draw_hash(engine, &desc);
    CHECK(moving != still);
    desc.shift = 3.0f; // a static one instead, without the terminal
    CHECK(draw_hash(engine, &desc) == still);
    desc.shift = 0.0f;
    CHECK_NUMBER(
        sumi_schedule_write(&info->sigmas, desc.width / 16 * (desc.height / 16), desc.step_count, sigmas, NULL),
        SUMI_OK);
    desc.sigmas = sigmas;
    CHECK(draw_hash(engine, &desc) == moving);
    close_engine(engine);
}

TEST(given_sigmas_equal_the_same_schedule)
{
    OPEN(engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 4;
    for (int solver = 0; solver <= SUMI_SOLVER_RES_MULTISTEP; solver++) {
        desc.solver = (sumi_solver)solver;
        desc.sigmas = NULL;
        uint64_t own = draw_hash(engine, &desc);
        const float sigmas[5] = {1.0f, 0.9f, 0.75f, 0.5f, 0.0f}; // shift 3 of 4 steps
        desc.sigmas = sigmas;
        CHECK(own != 0 && own == draw_hash(engine, &desc));
    }
    close_engine(engine);
}

// ---- Prompts --------------------------------------------------------------------------------------------------------

TEST(a_saved_prompt_gives_the_same_image)
{
    OPEN(engine, model);
    sumi_prompt* prompt = encode_prompt(engine, model, "a red fox");
    sumi_prompt* negative = encode_prompt(engine, model, "");
    CHECK(prompt != NULL && negative != NULL);
    CHECK_NUMBER(sumi_prompt_get_info(prompt).encoder_count, 1);
    sumi_prompt_encoder info = sumi_prompt_get_info(prompt).encoders[0];
    CHECK(info.token_count > 8 && info.width == 96 && info.features != NULL);
    size_t bytes = sumi_prompt_save(prompt, NULL, 0);
    CHECK(bytes > (size_t)info.token_count * 96 * 4);
    unsigned char* saved = malloc(bytes);
    CHECK_NUMBER(sumi_prompt_save(prompt, saved, bytes), bytes);
    sumi_prompt* loaded = NULL;
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
    CHECK(memcmp(sumi_prompt_get_info(loaded).encoders[0].features, info.features, (size_t)info.token_count * 96 * 4)
          == 0);

    sumi_image_desc desc = small_image(model, &s_item);
    desc.guidance.scale = 2.0f;
    uint64_t of_text = draw_hash(engine, &desc);
    sumi_image_item item = {.prompt = prompt, .negative_prompt = negative, .seed = s_item.seed};
    desc.items = &item;
    CHECK(of_text != 0 && of_text == draw_hash(engine, &desc));
    // items may share a prompt, and mix prompts with texts
    sumi_image_item shared[3] = {{.prompt = prompt, .seed = 1},
                                 {.text = "a red fox", .negative_prompt = negative, .seed = 2},
                                 {.prompt = prompt, .negative_text = "", .seed = 3}};
    sumi_image_item texts[3] = {
        {.text = "a red fox", .seed = 1}, {.text = "a red fox", .seed = 2}, {.text = "a red fox", .seed = 3}};
    desc.item_count = 3;
    desc.items = shared;
    uint64_t of_shared = draw_hash(engine, &desc);
    desc.items = texts;
    CHECK(of_shared != 0 && of_shared == draw_hash(engine, &desc));
    desc.item_count = 1;
    desc.items = &item;
    sumi_prompt_release(prompt);
    item.prompt = loaded;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_prompt_release(loaded); // the job keeps it
    sumi_job_wait(engine, job, SUMI_FOREVER);
    sumi_image image;
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);

    // a model without text encoder takes encoded prompts only
    sumi_model_desc md = sumi_model_defaults();
    md.path = MODEL_PATH;
    md.without_text_encoder = true;
    CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    sumi_model* small = NULL;
    CHECK_NUMBER(sumi_fetch_model(engine, job, &small), SUMI_OK);
    CHECK(sumi_model_get_info(small).weight_bytes < sumi_model_get_info(model).weight_bytes);
    CHECK_NUMBER(sumi_prompt_load(small, saved, bytes, &loaded), SUMI_OK);
    sumi_image_item plain = {.prompt = loaded, .seed = s_item.seed};
    sumi_image_desc without = small_image(small, &plain), with = small_image(model, &s_item);
    uint64_t of_prompt = draw_hash(engine, &without);
    CHECK(of_prompt != 0 && of_prompt == draw_hash(engine, &with));
    sumi_image_item text = {.text = "a red fox"};
    without.items = &text;
    CHECK_NUMBER(sumi_submit_images(engine, &without, &job), SUMI_NOT_SUPPORTED);
    without.items = &plain;
    without.guidance.scale = 2.0f;
    CHECK_NUMBER(sumi_submit_images(engine, &without, &job), SUMI_NOT_SUPPORTED);
    small->info.guidance_off = 2.0f; // as if 2 meant none: then nothing needs a negative prompt
    CHECK(draw_hash(engine, &without) == of_prompt);
    small->info.guidance_off = 0.0f;
    sumi_prompt_desc pd = sumi_prompt_defaults(small);
    pd.text = "x";
    CHECK_NUMBER(sumi_submit_prompt(engine, &pd, &job), SUMI_NOT_SUPPORTED);
    free(saved);
    close_engine(engine);
}

TEST(malformed_saved_prompts_are_refused)
{
    OPEN(engine, model);
    sumi_prompt* prompt = encode_prompt(engine, model, "x");
    size_t bytes = sumi_prompt_save(prompt, NULL, 0);
    unsigned char *saved = malloc(bytes), *bad = malloc(bytes);
    sumi_prompt_save(prompt, saved, bytes);
    sumi_prompt* loaded = NULL;
    for (size_t cut = 0; cut < bytes; cut += cut < 600 ? 1 : 97) {
        unsigned char* exact = exact_copy(saved, cut);
        sumi_result result = sumi_prompt_load(model, exact, cut, &loaded);
        CHECK(result == SUMI_FILE_MALFORMED || result == SUMI_FILE_TRUNCATED);
        CHECK(loaded == NULL);
        free(exact);
    }
    for (size_t i = 0; i < bytes && i < 700; i++) { // any byte changed: refused or still a prompt, never a crash
        memcpy(bad, saved, bytes);
        bad[i] ^= 0x15;
        if (sumi_prompt_load(model, bad, bytes, &loaded) == SUMI_OK) sumi_prompt_release(loaded);
    }
    const struct {
        const char *from, *to;
        sumi_result result;
    } edits[] = {{"z-image", "q-image", SUMI_TENSOR_MISMATCH},
                 {"\"sumi_prompt\":\"1\"", "\"sumi_prompt\":\"9\"", SUMI_FILE_MALFORMED},
                 {"F32", "I32", SUMI_FILE_MALFORMED},
                 {"\"features\"", "\"leatures\"", SUMI_FILE_MALFORMED},
                 {"token_count", "token_xount", SUMI_FILE_MALFORMED}};
    for (size_t e = 0; e < sizeof edits / sizeof *edits; e++) {
        memcpy(bad, saved, bytes);
        size_t length = strlen(edits[e].from), at = 0;
        while (at + length < bytes && memcmp(bad + at, edits[e].from, length) != 0) at++;
        CHECK(at + length < bytes);
        if (at + length >= bytes) continue;
        memcpy(bad + at, edits[e].to, length);
        CHECK_NUMBER(sumi_prompt_load(model, bad, bytes, &loaded), edits[e].result);
        CHECK(s_host.log[0] != '\0');
    }
    memcpy(bad, saved, bytes);
    memset(bad + bytes - 4, 0xff, 4); // NaN
    CHECK_NUMBER(sumi_prompt_load(model, bad, bytes, &loaded), SUMI_FILE_MALFORMED);
    CHECK_NUMBER(sumi_prompt_load(NULL, saved, bytes, &loaded), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_prompt_load(model, NULL, bytes, &loaded), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_prompt_get_info(NULL).encoder_count, 0);
    CHECK(sumi_prompt_get_info(NULL).encoders[0].features == NULL);
    CHECK_NUMBER(sumi_prompt_save(NULL, NULL, 0), 0);
    sumi_prompt_release(NULL);
    free(saved), free(bad);
    close_engine(engine);
}

// ---- LoRA -----------------------------------------------------------------------------------------------------------

static int plans_with(const sumi_engine* engine, const sumi_lora* lora)
{
    int count = 0;
    for (int i = 0; i < SUMI_PLAN_CACHE_SIZE; i++) {
        const sumi_plan_entry* entry = &engine->cache.entries[i];
        for (int32_t k = 0; entry->model != NULL && k < entry->lora_count; k++) count += entry->loras[k] == lora;
    }
    return count;
}

TEST(adapters_come_and_go_between_jobs)
{
    OPEN_WITH(20, engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    uint64_t plain = draw_hash(engine, &desc);
    sumi_lora* peft = read_lora(engine, model, "lora_peft.safetensors");
    sumi_lora* kohya = read_lora(engine, model, "lora_kohya.safetensors");
    sumi_lora_use uses[2] = {{.lora = peft, .scale = 0.8f}, {.lora = kohya, .scale = -0.5f}};
    desc.loras = uses;
    desc.lora_count = 1;
    uint64_t one = draw_hash(engine, &desc);
    desc.lora_count = 2;
    uint64_t two = draw_hash(engine, &desc);
    CHECK(plain != 0 && one != 0 && two != 0 && one != plain && two != one && two != plain);
    uses[0].scale = 0.4f;
    CHECK(draw_hash(engine, &desc) != two);
    uses[0].scale = 0.8f;
    CHECK(draw_hash(engine, &desc) == two);
    uses[0].scale = uses[1].scale = 0.0f;
    CHECK(draw_hash(engine, &desc) == plain);
    desc.lora_count = 0;
    CHECK(draw_hash(engine, &desc) == plain);
    sumi_lora_release(kohya);
    uses[0].scale = 0.8f;
    desc.lora_count = 1;
    CHECK(draw_hash(engine, &desc) == one);

    // releasing cancels jobs that use it, and only those
    sumi_job with, without;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &with), SUMI_OK);
    desc.lora_count = 0;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &without), SUMI_OK);
    run_until_denoise(engine, with);
    CHECK(plans_with(engine, peft) > 0);
    sumi_lora_release(peft);
    CHECK_NUMBER(plans_with(engine, peft), 0);
    CHECK_NUMBER(sumi_job_poll(engine, with).state, SUMI_JOB_CANCELLED);
    sumi_image image;
    CHECK_NUMBER(sumi_fetch_images(engine, with, &image, 1), SUMI_CANCELLED);
    sumi_job_wait(engine, without, SUMI_FOREVER);
    CHECK_NUMBER(sumi_fetch_images(engine, without, &image, 1), SUMI_OK);
    CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);

    // a model that goes takes the use of its adapters with it
    sumi_lora* lora = read_lora(engine, model, "lora_peft.safetensors");
    sumi_model* second = load_model(engine);
    sumi_image_desc other = small_image(second, &s_item);
    uses[0].lora = lora;
    other.loras = uses;
    other.lora_count = 1;
    CHECK_NUMBER(sumi_submit_images(engine, &other, &with), SUMI_INVALID_ARGUMENT);
    sumi_model_close(model);
    CHECK_NUMBER(sumi_submit_images(engine, &other, &with), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "closed") != NULL);
    sumi_lora_release(lora);
    other.lora_count = 0;
    CHECK(draw_hash(engine, &other) == plain);
    close_engine(engine);
}

TEST(an_adapter_of_another_model_is_refused)
{
    OPEN(engine, model);
    sumi_lora_desc desc = sumi_lora_defaults(model);
    desc.path = MODEL_PATH "/vae/diffusion_pytorch_model.safetensors";
    sumi_job job;
    sumi_lora* lora = NULL;
    CHECK_NUMBER(sumi_submit_lora(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    sumi_job_status status = sumi_job_poll(engine, job);
    CHECK_NUMBER(status.state, SUMI_JOB_FAILED);
    CHECK_NUMBER(status.result, SUMI_LORA_NO_MATCH);
    CHECK(strlen(status.message) > 10);
    CHECK_NUMBER(sumi_fetch_lora(engine, job, &lora), SUMI_LORA_NO_MATCH);
    CHECK(lora == NULL);
    desc.path = LORA_PATH "nothing_here.safetensors";
    CHECK_NUMBER(sumi_submit_lora(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_fetch_lora(engine, job, &lora), SUMI_FILE_NOT_FOUND);
    close_engine(engine);
}

// ---- Targets --------------------------------------------------------------------------------------------------------

TEST(images_go_where_the_host_wants_them)
{
    OPEN(engine, model);
    enum { W = 48, H = 32 };
    sumi_image_item items[7];
    for (int i = 0; i < 7; i++) items[i] = (sumi_image_item){.text = "a", .seed = 1};
    unsigned char rgba[(W * 4 + 20) * H], rgb[W * 3 * H], raw[W * 12 * H], bgra[(W * 4 + 8) * H],
        halves[(W * 8 + 2) * H];
    memset(rgba, 0x77, sizeof rgba);
    memset(bgra, 0x77, sizeof bgra);
    sumi_target targets[7] = {
        {.format = SUMI_FORMAT_RGBA8, .host_memory = rgba, .row_bytes = W * 4 + 20},
        {.format = SUMI_FORMAT_RGB8, .host_memory = rgb},
        {.format = SUMI_FORMAT_RGB32F, .host_memory = raw},
        {.format = SUMI_FORMAT_RGB32F},
        {.format = SUMI_FORMAT_BGRA8, .host_memory = bgra, .row_bytes = W * 4 + 8, .bottom_up = true},
        {.format = SUMI_FORMAT_RGB8, .bottom_up = true},
        {.format = SUMI_FORMAT_RGBA16F, .host_memory = halves, .row_bytes = W * 8 + 2}};
    sumi_image_desc desc = small_image(model, items);
    desc.item_count = 7;
    desc.width = W;
    desc.height = H;
    desc.targets = targets;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(rgba[0], 0x77); // nothing before the fetch
    sumi_image images[7];
    CHECK_NUMBER(sumi_fetch_images(engine, job, images, 6), SUMI_INVALID_ARGUMENT); // too few: the job stays
    CHECK_NUMBER(sumi_fetch_images(engine, job, NULL, 7), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_fetch_images(engine, job, images, 7), SUMI_OK);
    CHECK(images[4].pixels == bgra && images[4].row_bytes == W * 4 + 8 && images[4].format == SUMI_FORMAT_BGRA8);
    CHECK(images[0].pixels == rgba && images[0].row_bytes == W * 4 + 20 && images[0].handle == 0);
    CHECK(images[1].pixels == rgb && images[1].row_bytes == W * 3 && images[2].row_bytes == W * 12);
    CHECK(images[3].handle != 0 && memcmp(images[3].pixels, raw, sizeof raw) == 0);
    int wrong = 0;
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++) {
            const unsigned char* four = rgba + y * (W * 4 + 20) + x * 4;
            for (int c = 0; c < 3; c++) {
                float value;
                memcpy(&value, raw + ((y * W + x) * 3 + c) * 4, sizeof value);
                float clamped = value < 0.0f ? 0.0f : value > 1.0f ? 1.0f : value;
                uint16_t half;
                memcpy(&half, halves + y * (W * 8 + 2) + x * 8 + 2 * c, sizeof half);
                wrong += half != sumi_float_to_f16(value);
                wrong += four[c] != rgb[(y * W + x) * 3 + c] || fabsf(clamped * 255.0f - (float)four[c]) > 0.501f;
            }
            wrong += four[3] != 255;
            uint16_t alpha;
            memcpy(&alpha, halves + y * (W * 8 + 2) + x * 8 + 6, sizeof alpha);
            wrong += alpha != 0x3c00; // 1
            const unsigned char *below = bgra + (H - 1 - y) * (W * 4 + 8) + x * 4,
                                *three = (const unsigned char*)images[5].pixels + ((H - 1 - y) * W + x) * 3;
            wrong += below[0] != four[2] || below[1] != four[1] || below[2] != four[0] || below[3] != 255;
            wrong += memcmp(three, four, 3) != 0;
        }
        // the gap between rows is the host program's
        for (int i = 0; i < 20; i++) wrong += rgba[y * (W * 4 + 20) + W * 4 + i] != 0x77;
        for (int i = 0; i < 8; i++) wrong += bgra[y * (W * 4 + 8) + W * 4 + i] != 0x77;
    }
    CHECK_NUMBER(wrong, 0);
    sumi_images_release(engine, images, 7);
    CHECK_NUMBER(sumi_fetch_images(engine, job, images, 7), SUMI_STALE_HANDLE);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(every_result_has_its_own_text);
    RUN(defaults_follow_the_model_and_the_preset);
    RUN(pipelines_give_the_references_images);
    RUN(bits_do_not_depend_on_how_the_work_is_cut);
    RUN(a_job_repeated_gives_the_same_bits);
    RUN(a_batch_equals_single_jobs);
    RUN(latents_of_a_batch_equal_single_jobs);
    RUN(noise_is_the_generators_and_posterior_noise_comes_first);
    RUN(what_a_mask_keeps_is_the_start_image);
    RUN(encoded_latents_start_like_the_image);
    RUN(a_models_own_guidance_and_schedule_are_used);
    RUN(given_sigmas_equal_the_same_schedule);
    RUN(a_saved_prompt_gives_the_same_image);
    RUN(malformed_saved_prompts_are_refused);
    RUN(adapters_come_and_go_between_jobs);
    RUN(an_adapter_of_another_model_is_refused);
    RUN(images_go_where_the_host_wants_them);
    TEST_END();
}
