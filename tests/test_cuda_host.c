// How the CUDA backend draws inside a host, on a GPU: the same bits at any pace, in any memory and for every family,
// the demo model's picture, and prompts that were saved in bfloat16.
#include "base/file.h"
#include "cuda_host_fixture.h"
#include <sumi.h>

#define DEMO "samples/demo_model"
// tests/run_gpu.sh --sparse leaves the demo models out of a work tree that is carried to another machine.
#define SKIP_WITHOUT_DEMO()                                                                                            \
    do {                                                                                                               \
        if (!sumi_file_exists(NULL, DEMO "/model_index.json")) SKIP(DEMO " is not in this work tree");                 \
    } while (0)
#define QWEN_IMAGE "tests/golden/qwen-image/model"
#define NEWBIE "tests/golden/newbie/model"
#define KLEIN "tests/golden/flux2-klein/model"

// ---- The host's memory ----------------------------------------------------------------------------------------------

static uint64_t max_on_device(void) { return s_host.peak_on_device; }

// ---- The same bits --------------------------------------------------------------------------------------------------

TEST(the_same_bits_at_any_pace)
{
    static const uint32_t s_slices[] = {2000, 0, 200, 20}, s_budgets[] = {0, 500, 1000, 20000, SUMI_FOREVER};
    for (size_t s = 0; s < sizeof s_slices / sizeof *s_slices; s++) {
        for (int pump = 0; pump < 2; pump++) {
            sumi_engine_desc ed = gpu_desc();
            ed.max_slice_us = s_slices[s];
            ed.pump = pump == 1 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
            ed.cpu_thread_count = 1 + (int32_t)s;
            sumi_model* model;
            sumi_engine* engine = open_engine(&ed, TINY, &model);
            if (engine == NULL) return;
            sumi_image_desc desc = picture(model);
            for (size_t b = 0; b < sizeof s_budgets / sizeof *s_budgets && (pump == 0 || b == 0); b++) {
                const uint64_t hash = draw_hash(engine, &desc, s_budgets[b]);
                if (s_whole == 0) s_whole = hash;
                CHECK(hash != 0 && hash == s_whole);
            }
            desc.preview_every = 1;
            CHECK(draw_hash(engine, &desc, 500) == s_whole);
            desc.preview_every = 0;
            desc.profile = true;
            CHECK(draw_hash(engine, &desc, 0) == s_whole);
            desc.profile = false;
            CHECK(draw_hash(engine, &desc, 0) == s_whole);
            close_engine(engine);
        }
    }
}

// NaN, zeros, the largest numbers there are: what reads memory before it is written shows. (initcheck does not see what
// bulk tensor copies write.)
TEST(memory_may_hold_anything_before)
{
    static const int s_fills[] = {0xFF, 0x00, 0x7F};
    static const sumi_weight_format s_formats[] = {SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_FP8, SUMI_WEIGHTS_INT8};
    for (int way = 0; way < 6; way++) { // the tiny model in bfloat16 and 8 bits, then the demo's
        if (way == 3) SKIP_WITHOUT_DEMO();
        uint64_t first = way == 0 ? s_whole : 0;
        for (size_t i = 0; i < sizeof s_fills / sizeof *s_fills; i++) {
            sumi_engine_desc ed = gpu_desc();
            s_host.fill = s_fills[i];
            sumi_engine* engine = NULL;
            CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
            sumi_model* model = engine != NULL ? load(engine, way < 3 ? TINY : DEMO, s_formats[way % 3], NULL) : NULL;
            CHECK(model != NULL);
            if (model == NULL) return;
            const sumi_image_desc desc = picture(model);
            const uint64_t hash = draw_hash(engine, &desc, 0);
            if (first == 0) first = hash;
            CHECK(hash != 0 && hash == first);
            close_engine(engine);
        }
    }
}

// Slices, budgets of a call, a thread of the engine's, what was in the memory before.
static void check_the_same_bits(const char* path)
{
    static const struct {
        uint32_t slice_us, budget_us;
        int fill;
        bool pumps;
    } s_ways[] = {{2000, 0, -1, false},
                  {0, 0, 0xFF, false},
                  {200, 500, 0x7F, false},
                  {20, 1000, 0, false},
                  {2000, 0, 0xFF, true}};
    uint64_t first = 0;
    for (size_t i = 0; i < sizeof s_ways / sizeof *s_ways; i++) {
        sumi_engine_desc ed = gpu_desc();
        ed.max_slice_us = s_ways[i].slice_us;
        ed.pump = s_ways[i].pumps ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
        s_host.fill = s_ways[i].fill;
        sumi_model* model;
        sumi_engine* engine = open_engine(&ed, path, &model);
        if (engine == NULL) return;
        const sumi_image_desc desc = picture(model);
        const uint64_t hash = draw_hash(engine, &desc, s_ways[i].budget_us);
        if (first == 0) first = hash;
        CHECK(hash != 0 && hash == first);
        close_engine(engine);
    }
}

// From a budget that holds everything down to one that holds nothing: streamed weights change no bit, and what is held
// is never above the budget of a job that is drawn. Where the VAE works in tiles the bits are others.
static void check_budgets(const char* path)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, path, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = picture(model);
    const uint64_t whole = draw_hash(engine, &desc, 0), most = max_on_device();
    close_engine(engine);
    int drawn = 0;
    for (int eighths = 8; eighths > 0; eighths--) {
        ed = gpu_desc();
        ed.memory_budget_bytes = most / 8 * (uint64_t)eighths;
        engine = open_engine(&ed, path, &model);
        if (engine == NULL) return;
        desc = picture(model);
        sumi_memory memory;
        sumi_job job;
        const sumi_result said = sumi_image_memory(engine, &desc, &memory);
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        const sumi_result result = finish(engine, job, 1000);
        CHECK_NUMBER(result, said);
        if (result == SUMI_OK) {
            const uint64_t hash = take_hash(engine, job, &desc);
            CHECK(hash != 0 && (memory.tiles_vae || hash == whole));
            CHECK(max_on_device() <= ed.memory_budget_bytes);
            drawn++;
        } else {
            CHECK_NUMBER(result, SUMI_BUDGET_TOO_SMALL);
            sumi_job_discard(engine, job);
        }
        close_engine(engine);
    }
    printf("  %s: %llu bytes hold everything, %d of 8 budgets below were enough\n", path, (unsigned long long)most,
           drawn);
    CHECK(drawn >= 2);
}

TEST(every_family_keeps_its_bits)
{
    check_the_same_bits(QWEN_IMAGE);
    check_the_same_bits(NEWBIE);
}

TEST(every_family_keeps_its_budget)
{
    check_budgets(QWEN_IMAGE);
    check_budgets(NEWBIE);
}

// The largest size that Qwen-Image's authors name, in the least memory that it can be drawn in.
TEST(an_image_of_2512_in_bounded_memory)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, QWEN_IMAGE, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = picture(model);
    sumi_memory memory;
    desc.item_count = 1;
    desc.guidance.scale = 1.0f;
    desc.step_count = 2;
    desc.width = desc.height = 2512;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    CHECK(draw_hash(engine, &desc, 1000) != 0);
    const uint64_t most = max_on_device();
    CHECK(most <= memory.weights + memory.arena);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 1), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_BUDGET_TOO_SMALL);
    const uint64_t least = memory.needed;
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, least), SUMI_OK);
    s_host.peak_on_device = s_host.on_device;
    CHECK(draw_hash(engine, &desc, 1000) != 0);
    printf("  2512 x 2512: %llu bytes of weights and arena, then %llu of %llu\n", (unsigned long long)most,
           (unsigned long long)max_on_device(), (unsigned long long)least);
    CHECK(least < most && max_on_device() <= least);
    close_engine(engine);
}

// ---- Step caching ---------------------------------------------------------------------------------------------------

// Draws, and returns the hash of the image; *out_reused: how many evaluations were reused.
static uint64_t draw_cached(sumi_engine* engine, const sumi_image_desc* desc, uint32_t budget_us, int32_t* out_reused)
{
    sumi_job job;
    sumi_image image;
    uint64_t hash = 0;
    *out_reused = -1;
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    CHECK_NUMBER(finish(engine, job, budget_us), SUMI_OK);
    if (sumi_fetch_images(engine, job, &image, 1) == SUMI_OK) {
        hash = hash_bytes(1469598103934665603u, image.pixels, (size_t)image.row_bytes * (size_t)image.height);
        *out_reused = image.reused_count;
        sumi_images_release(engine, &image, 1);
    }
    return hash;
}

static sumi_image_desc cached_image(sumi_model* model, int32_t side, int32_t steps, float step_cache)
{
    static const sumi_image_item s_item = {.text = "a yellow moon above a purple cat at night, watercolour", .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.items = &s_item;
    desc.item_count = 1;
    desc.width = desc.height = side;
    desc.step_count = steps;
    desc.step_cache = step_cache;
    return desc;
}

// A threshold below every change gives the bits of no cache. The same evaluations are reused, with the same bits, at
// any pace, with slices of any length and with streamed weights.
static void check_cached(const char* path, int32_t side, int32_t steps, float step_cache)
{
    static const struct {
        uint32_t slice_us, budget_us;
        bool pumps;
    } s_ways[] = {{2000, 0, false}, {0, 0, false}, {100, 500, false}, {20, 1000, false}, {2000, 0, true}};
    uint64_t whole = 0, first = 0, most = 0;
    int32_t reused, first_reused = -1;
    for (size_t i = 0; i < sizeof s_ways / sizeof *s_ways; i++) {
        sumi_engine_desc ed = gpu_desc();
        ed.max_slice_us = s_ways[i].slice_us;
        ed.pump = s_ways[i].pumps ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
        sumi_model* model;
        sumi_engine* engine = open_engine(&ed, path, &model);
        if (engine == NULL) return;
        sumi_image_desc desc = cached_image(model, side, steps, 0.0f);
        if (i == 0) {
            whole = draw_cached(engine, &desc, s_ways[i].budget_us, &reused);
            desc.step_cache = 1e-7f;
            CHECK(draw_cached(engine, &desc, s_ways[i].budget_us, &reused) == whole && reused == 0);
        }
        desc.step_cache = step_cache;
        const uint64_t hash = draw_cached(engine, &desc, s_ways[i].budget_us, &reused);
        if (i == 0) first = hash, first_reused = reused, most = max_on_device();
        CHECK(hash != 0 && hash == first && reused == first_reused);
        close_engine(engine);
    }
    printf("  %s: %d of %d evaluations reused\n", path, first_reused, steps);
    CHECK(first_reused > 0 && first != whole);
    for (int eighths = 7; eighths > 2; eighths--) {
        sumi_engine_desc ed = gpu_desc();
        ed.memory_budget_bytes = most / 8 * (uint64_t)eighths;
        sumi_model* model;
        sumi_engine* engine = open_engine(&ed, path, &model);
        if (engine == NULL) return;
        const sumi_image_desc desc = cached_image(model, side, steps, step_cache);
        sumi_memory memory;
        if (sumi_image_memory(engine, &desc, &memory) == SUMI_OK && !memory.tiles_vae) {
            CHECK(draw_cached(engine, &desc, 0, &reused) == first && reused == first_reused);
            CHECK(max_on_device() <= ed.memory_budget_bytes);
        }
        close_engine(engine);
    }
}

TEST(step_caching_keeps_its_bits)
{
    check_cached(TINY, 64, 12, 10.0f);
    check_cached(QWEN_IMAGE, 64, 12, 10.0f);
    check_cached(NEWBIE, 64, 12, 10.0f);
    SKIP_WITHOUT_DEMO();
    check_cached(DEMO, 256, 24, 0.1f);
}

TEST(a_batch_is_its_single_images)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = picture(model);
    desc.guidance.scale = 0.0f;
    sumi_image both[2], single;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(finish(engine, job, 0), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(engine, job, both, 2), SUMI_OK);
    desc.item_count = 1;
    for (int i = 0; i < 2; i++) {
        desc.items = &s_items[i];
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        CHECK_NUMBER(finish(engine, job, 0), SUMI_OK);
        if (sumi_fetch_images(engine, job, &single, 1) != SUMI_OK || both[i].pixels == NULL) continue;
        // Another shape may choose other tiles, so that sums are rounded in another order: nearly the same picture is
        // what can be asked for.
        int most = 0;
        for (size_t at = 0; at < (size_t)64 * 48 * 4; at++) {
            const int d = abs((int)((const uint8_t*)both[i].pixels)[at] - (int)((const uint8_t*)single.pixels)[at]);
            most = d > most ? d : most;
        }
        printf("  item %d: alone and in the batch differ by %d of 255 at most\n", i, most);
        CHECK(most <= 24);
        sumi_images_release(engine, &single, 1);
    }
    sumi_images_release(engine, both, 2);
    close_engine(engine);
}

TEST(budgets_that_hold_everything_change_nothing)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = picture(model);
    CHECK(draw_hash(engine, &desc, 0) == s_whole);
    const uint64_t held = s_host.live_bytes, most = s_host.peak_bytes;
    close_engine(engine);
    printf("  holds %llu bytes, at most %llu\n", (unsigned long long)held, (unsigned long long)most);
    const uint64_t budgets[] = {8ull << 30, 1ull << 30, 2 * most};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        ed = gpu_desc();
        ed.memory_budget_bytes = budgets[i];
        engine = open_engine(&ed, TINY, &model);
        if (engine == NULL) return;
        desc = picture(model);
        sumi_memory memory;
        CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
        CHECK(!memory.tiles_vae);
        CHECK(draw_hash(engine, &desc, 0) == s_whole);
        CHECK(draw_hash(engine, &desc, 500) == s_whole);
        close_engine(engine);
    }
}

TEST(a_budget_that_is_too_small_is_a_result)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = picture(model);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 10000), SUMI_OK);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(finish(engine, job, 0), SUMI_BUDGET_TOO_SMALL);
    CHECK(timed_poll(engine, job).message[0] != '\0');
    sumi_job_discard(engine, job);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
    CHECK(draw_hash(engine, &desc, 0) == s_whole);
    close_engine(engine);
}

// ---- The demo model -------------------------------------------------------------------------------------------------

// Peak signal to noise over the RGB of two pictures.
static double psnr(const uint8_t* a, const uint8_t* b, size_t pixels)
{
    double sum = 0.0;
    for (size_t i = 0; i < pixels * 4; i++) {
        const double d = i % 4 == 3 ? 0.0 : (double)a[i] - (double)b[i];
        sum += d * d;
    }
    sum /= 3.0 * (double)pixels;
    return sum > 0.0 ? 10.0 * log10(255.0 * 255.0 / sum) : 99.0;
}

// The demo model's picture on a backend; the caller frees. NULL: it could not be drawn.
static int32_t s_demo_steps, s_demo_reused; // 0: the model's own steps; what the image says of evaluations
static float s_demo_cache;

static uint8_t* draw_demo(sumi_backend backend, sumi_weight_format weights, sumi_result* out_result)
{
    sumi_engine_desc ed = gpu_desc();
    ed.backend = backend;
    if (backend == SUMI_BACKEND_CPU) ed.device_allocator = NULL;
    ed.cpu_thread_count = 0;
    sumi_engine* engine = NULL;
    *out_result = sumi_engine_create(&ed, &engine);
    CHECK_NUMBER(*out_result, SUMI_OK);
    if (engine == NULL) return NULL;
    uint8_t* copy = NULL;
    sumi_model* model = load(engine, DEMO, weights, out_result);
    if (model != NULL) {
        sumi_image_item item = {.text = "a yellow moon above a purple cat at night, watercolour", .seed = 7};
        sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
        desc.items = &item;
        desc.item_count = 1;
        desc.width = desc.height = 256;
        if (s_demo_steps > 0) desc.step_count = s_demo_steps;
        desc.step_cache = s_demo_cache;
        sumi_job job;
        sumi_image image;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        *out_result = finish(engine, job, 0);
        if (sumi_fetch_images(engine, job, &image, 1) == SUMI_OK) {
            copy = malloc((size_t)256 * 256 * 4);
            memcpy(copy, image.pixels, (size_t)256 * 256 * 4);
            s_demo_reused = image.reused_count;
            sumi_images_release(engine, &image, 1);
        }
    }
    close_engine(engine);
    return copy;
}

TEST(the_demo_models_image_is_the_cpus)
{
    SKIP_WITHOUT_DEMO();
    sumi_result result;
    uint8_t* gpu = draw_demo(SUMI_BACKEND_CUDA, SUMI_WEIGHTS_AUTO, &result);
    CHECK_NUMBER(result, SUMI_OK);
    uint8_t* cpu = draw_demo(SUMI_BACKEND_CPU, SUMI_WEIGHTS_AUTO, &result);
    CHECK_NUMBER(result, SUMI_OK);
    CHECK(gpu != NULL && cpu != NULL);
    if (gpu != NULL && cpu != NULL) {
        const double db = psnr(gpu, cpu, 256 * 256);
        printf("  the demo model's picture: GPU against CPU %.2f dB\n", db);
        CHECK(db > 30.0);
    }
    free(gpu), free(cpu);
}

// The GPU decides as the CPU does, up to rounding.
TEST(step_caching_draws_nearly_the_same_image)
{
    SKIP_WITHOUT_DEMO();
    sumi_result result;
    s_demo_steps = 50;
    uint8_t* whole = draw_demo(SUMI_BACKEND_CUDA, SUMI_WEIGHTS_BF16, &result);
    s_demo_cache = 0.08f;
    uint8_t* cached = draw_demo(SUMI_BACKEND_CUDA, SUMI_WEIGHTS_BF16, &result);
    const int32_t reused = s_demo_reused;
    uint8_t* cpu = draw_demo(SUMI_BACKEND_CPU, SUMI_WEIGHTS_AUTO, &result);
    const int32_t reused_by_cpu = s_demo_reused;
    s_demo_steps = 0;
    s_demo_cache = 0.0f;
    CHECK(whole != NULL && cached != NULL && cpu != NULL);
    if (whole != NULL && cached != NULL && cpu != NULL) {
        const double db = psnr(whole, cached, 256 * 256);
        printf("  50 steps: %d evaluations reused, %d by the CPU; %.2f dB from the whole run\n", reused, reused_by_cpu,
               db);
        CHECK(db > 45.0 && abs(reused - reused_by_cpu) <= 3 && reused > 20);
    }
    free(whole), free(cached), free(cpu);
}

TEST(weights_in_8_bits_draw_nearly_the_same_image)
{
    SKIP_WITHOUT_DEMO();
    static const struct {
        sumi_weight_format weights;
        const char* name;
        double least_db; // that the picture may be off from bfloat16's
    } s_formats[] = {{SUMI_WEIGHTS_FP8, "fp8", 15.0}, {SUMI_WEIGHTS_INT8, "int8", 25.0}};
    sumi_result result;
    uint8_t* whole = draw_demo(SUMI_BACKEND_CUDA, SUMI_WEIGHTS_BF16, &result);
    for (int i = 0; i < 2; i++) {
        uint8_t* none = draw_demo(SUMI_BACKEND_CPU, s_formats[i].weights, &result);
        CHECK(none == NULL);
        CHECK_NUMBER(result, SUMI_NOT_SUPPORTED);
        uint8_t* eight = draw_demo(SUMI_BACKEND_CUDA, s_formats[i].weights, &result);
        if (result == SUMI_NOT_SUPPORTED && s_formats[i].weights == SUMI_WEIGHTS_FP8) {
            CHECK(eight == NULL && strstr(s_host.text, "8.9") != NULL);
            printf("  this GPU has no fp8\n");
        } else {
            CHECK_NUMBER(result, SUMI_OK);
            CHECK(whole != NULL && eight != NULL);
            if (whole != NULL && eight != NULL) {
                const double db = psnr(whole, eight, 256 * 256);
                printf("  the demo model's picture: %s against bfloat16 %.2f dB\n", s_formats[i].name, db);
                CHECK(db > s_formats[i].least_db);
            }
        }
        free(eight);
    }
    free(whole);
}

// ---- Saved prompts --------------------------------------------------------------------------------------------------

// The caller frees it.
static unsigned char* save_prompt(const sumi_prompt* prompt, sumi_prompt_format format, size_t* out_bytes)
{
    *out_bytes = sumi_prompt_save_as(prompt, format, NULL, 0);
    unsigned char* saved = malloc(*out_bytes + 1);
    CHECK_NUMBER(sumi_prompt_save_as(prompt, format, saved, *out_bytes), *out_bytes);
    return saved;
}

static uint64_t draw_prompt(sumi_engine* engine, sumi_model* model, const sumi_prompt* prompt)
{
    const sumi_image_item item = {.prompt = prompt, .seed = 7};
    sumi_image_desc desc = picture(model);
    desc.items = &item;
    desc.item_count = 1;
    desc.guidance.scale = sumi_model_get_info(model).guidance_off;
    return draw_hash(engine, &desc, 0);
}

static void check_bf16_prompts(const char* path)
{
    const sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, path, &model);
    if (engine == NULL) return;
    sumi_prompt_desc desc = sumi_prompt_defaults(model);
    desc.text = "a red fox";
    sumi_job job;
    sumi_prompt *whole = NULL, *loaded = NULL, *finer = NULL;
    CHECK_NUMBER(sumi_submit_prompt(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(finish(engine, job, 1000), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_prompt(engine, job, &whole), SUMI_OK);
    size_t bytes;
    unsigned char* saved = save_prompt(whole, SUMI_PROMPT_BF16, &bytes);
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
    free(saved);
    const sumi_prompt_encoder a = sumi_prompt_get_info(whole).encoders[0], b = sumi_prompt_get_info(loaded).encoders[0];
    const size_t count = (size_t)a.token_count * (size_t)a.width;
    CHECK(count > 0 && memcmp(a.features, b.features, count * sizeof(float)) == 0);
    const uint64_t hash = draw_prompt(engine, model, whole);
    CHECK(hash != 0 && draw_prompt(engine, model, loaded) == hash);
    sumi_prompt_release(loaded);
    // features with bits that bfloat16 has not, as a CPU encodes them
    saved = save_prompt(whole, SUMI_PROMPT_F32, &bytes);
    for (size_t i = 0; i < count; i++) {
        unsigned char* value = saved + bytes - 4 * (count - i); // little endian
        value[0] = (unsigned char)(i * 0x37), value[1] = (unsigned char)(i * 0x9e);
    }
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &finer), SUMI_OK);
    free(saved);
    saved = save_prompt(finer, SUMI_PROMPT_BF16, &bytes);
    CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
    free(saved);
    CHECK(memcmp(sumi_prompt_get_info(finer).encoders[0].features, sumi_prompt_get_info(loaded).encoders[0].features,
                 count * sizeof(float))
          != 0);
    const uint64_t of_finer = draw_prompt(engine, model, finer);
    CHECK(of_finer != 0 && of_finer != hash && draw_prompt(engine, model, loaded) == of_finer);
    sumi_prompt_release(whole), sumi_prompt_release(loaded), sumi_prompt_release(finer);
    close_engine(engine);
}

// What a GPU encodes is bfloat16 already, and it rounds all features that it is given.
TEST(prompts_saved_in_bfloat16_draw_the_same_bits)
{
    check_bf16_prompts(TINY);
    check_bf16_prompts(KLEIN);
    check_bf16_prompts(NEWBIE); // two text encoders
}

int main(int argc, char** argv)
{
    HOST_TEST_BEGIN(argc, argv);
    RUN(the_same_bits_at_any_pace);
    RUN(memory_may_hold_anything_before);
    RUN(every_family_keeps_its_bits);
    RUN(every_family_keeps_its_budget);
    RUN(an_image_of_2512_in_bounded_memory);
    RUN(step_caching_keeps_its_bits);
    RUN(a_batch_is_its_single_images);
    RUN(budgets_that_hold_everything_change_nothing);
    RUN(a_budget_that_is_too_small_is_a_result);
    RUN(the_demo_models_image_is_the_cpus);
    RUN(step_caching_draws_nearly_the_same_image);
    RUN(weights_in_8_bits_draw_nearly_the_same_image);
    RUN(prompts_saved_in_bfloat16_draw_the_same_bits);
    tell_times();
    TEST_END();
}
