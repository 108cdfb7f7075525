// Every kind of job at every budget from nothing to plenty, and on a device whose memory ends anywhere: each job ends,
// done or with a sentence; what is done has the same bits; no more than the budget is ever held; and the next job
// without a budget is as good as any. A budget that changes while a job runs changes nothing of that job. Jobs are
// driven by a counted number of updates.
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "device_meter.h"
#include "fake_cuda.h"
#endif

#define MAX_UPDATES 20000 // a job here takes some hundred

typedef enum kind {
    PROMPT,
    PICTURE,
    START_IMAGE,
    START_LATENTS,
    INPAINTING,
    BATCH,
    ADAPTER,
    PREVIEWS,
    LARGE,
    ENCODE,
    KIND_COUNT
} kind;
static const char* const s_names[KIND_COUNT] = {"prompt", "picture", "start image", "start latents", "inpainting",
                                                "batch",  "adapter", "previews",    "large picture", "encode"};

typedef struct bench {
    sumi_engine* engine;
    sumi_model* model;
    sumi_lora* lora;
} bench;

static bool computes(const bench* b) { return sumi_engine_get_info(b->engine).compute_capability == 0; }

// The device's kernels do nothing: what they would write is whatever was there. The noise of pictures that start with
// it stays in their latents.
static bool has_bits(const bench* b, int k)
{
    return computes(b) || k == PICTURE || k == BATCH || k == ADAPTER || k == PREVIEWS || k == LARGE;
}

// While `count` is not 0, `ends` gives a job a turn per update and sets the memory budget after each: to `budgets` in
// turn, from the update `from` on.
static struct {
    uint64_t budgets[2];
    int count, from, updates; // updates: that the job has had
} s_changes;

static bool ends(sumi_engine* engine, sumi_job job)
{
    for (int i = 0; i < MAX_UPDATES && sumi_job_poll(engine, job).state < SUMI_JOB_DONE; i++) {
        sumi_engine_update(engine, s_changes.count > 0 ? 1 : 1000);
        s_changes.updates = i + 1;
        if (s_changes.count > 0 && i >= s_changes.from)
            CHECK_NUMBER(sumi_engine_set_memory_budget(engine, s_changes.budgets[i % s_changes.count]), SUMI_OK);
    }
    return sumi_job_poll(engine, job).state >= SUMI_JOB_DONE;
}

// A failure is one of memory, and a sentence; a job that does not end is one here.
static sumi_result end_of(sumi_engine* engine, sumi_job job)
{
    CHECK(ends(engine, job));
    const sumi_job_status status = sumi_job_poll(engine, job);
    if (status.state < SUMI_JOB_DONE) sumi_job_cancel(engine, job);
    CHECK(status.result == SUMI_OK || status.result == SUMI_BUDGET_TOO_SMALL
          || status.result == SUMI_OUT_OF_DEVICE_MEMORY);
    CHECK(status.result == SUMI_OK || strlen(status.message) > 20);
    return status.result;
}

static sumi_result run_prompt(const bench* b, uint64_t* out_hash)
{
    sumi_prompt_desc desc = sumi_prompt_defaults(b->model);
    desc.text = "a red fox";
    sumi_job job;
    sumi_prompt* prompt = NULL;
    CHECK_NUMBER(sumi_submit_prompt(b->engine, &desc, &job), SUMI_OK);
    const sumi_result result = end_of(b->engine, job);
    CHECK_NUMBER(sumi_fetch_prompt(b->engine, job, &prompt), result);
    const sumi_prompt_encoder info = sumi_prompt_get_info(prompt).encoders[0];
    *out_hash = prompt != NULL
                  ? hash_bytes(info.features, (size_t)info.token_count * (size_t)info.width * sizeof *info.features)
                  : 0;
    sumi_prompt_release(prompt);
    return result;
}

static uint8_t s_pixels[48 * 40 * 3];
static const sumi_pixels s_start = {s_pixels, 40, 48, 0, 3}, s_mask = {s_pixels, 40, 48, 0, 1};

static sumi_result run_encode(const bench* b, uint64_t* out_hash)
{
    float latents[16 * 4 * 4] = {0};
    sumi_encode_desc desc = sumi_encode_defaults(b->model);
    desc.image = &s_start;
    desc.width = desc.height = 32;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_encode(b->engine, &desc, &job), SUMI_OK);
    const sumi_result result = end_of(b->engine, job);
    CHECK_NUMBER(sumi_fetch_latents(b->engine, job, latents, sizeof latents / sizeof *latents), result);
    *out_hash = hash_bytes(latents, sizeof latents);
    return result;
}

static sumi_image_desc desc_of(const bench* b, kind k)
{
    static const sumi_image_item s_items[3] = {{.text = "a red fox", .negative_text = "grey", .seed = 3},
                                               {.text = "an owl", .seed = 4},
                                               {.text = "a red fox", .seed = 5}};
    static const float s_latents[16 * 4 * 4] = {0.5f, -0.25f, 1.0f};
    static sumi_lora_use s_use;
    sumi_image_desc desc = small_image(b->model, s_items);
    desc.start.strength = 1.0f;
    if (k == START_IMAGE || k == INPAINTING) desc.start.image = &s_start;
    if (k == START_LATENTS) desc.start.latents = s_latents;
    if (k == INPAINTING) desc.start.mask = &s_mask;
    if (k == BATCH) desc.item_count = 3, desc.guidance.scale = 2.0f;
    if (k == PREVIEWS) desc.item_count = 2, desc.preview_every = 1, desc.solver = SUMI_SOLVER_HEUN;
    if (k == LARGE) desc.width = desc.height = 160, desc.step_count = 1; // 20 latents: the VAE can be tiled once
    if (k == ADAPTER) {
        s_use = (sumi_lora_use){.lora = b->lora, .scale = 1.0f};
        desc.loras = &s_use;
        desc.lora_count = 1;
    }
    return desc;
}

// Latents, and on the CPU pictures where no VAE was tiled: tiles make other ones.
static sumi_result run_images(const bench* b, const sumi_image_desc* desc, uint64_t* out_hash)
{
    static float s_latents[16 * 20 * 20];
    const size_t count = (size_t)16 * (size_t)(desc->width / 8) * (size_t)(desc->height / 8);
    sumi_memory memory;
    const sumi_result fits = sumi_image_memory(b->engine, desc, &memory);
    CHECK(fits == SUMI_OK || fits == SUMI_BUDGET_TOO_SMALL || fits == SUMI_OUT_OF_DEVICE_MEMORY);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(b->engine, desc, &job), SUMI_OK);
    const sumi_result result = end_of(b->engine, job);
    *out_hash = 0;
    for (int32_t i = 0; i < desc->item_count && result == SUMI_OK; i++) {
        CHECK_NUMBER(sumi_job_latents(b->engine, job, i, s_latents, count), SUMI_OK);
        *out_hash = *out_hash * 31 + hash_bytes(s_latents, count * sizeof *s_latents);
    }
    sumi_image images[3];
    CHECK_NUMBER(sumi_fetch_images(b->engine, job, images, 3), result);
    if (computes(b) && desc->width <= 128) {
        for (int32_t i = 0; i < desc->item_count && result == SUMI_OK; i++)
            *out_hash = *out_hash * 31 + hash_image(&images[i]);
    }
    sumi_images_release(b->engine, images, result == SUMI_OK ? desc->item_count : 0);
    return result;
}

static sumi_result run_kind(const bench* b, kind k, uint64_t* out_hash)
{
    if (k == PROMPT) return run_prompt(b, out_hash);
    if (k == ENCODE) return run_encode(b, out_hash);
    const sumi_image_desc desc = desc_of(b, k);
    return run_images(b, &desc, out_hash);
}

static void open_bench(bench* b, const sumi_engine_desc* desc)
{
    b->engine = open_engine(desc, &b->model);
    CHECK(b->engine != NULL);
    b->lora = b->engine != NULL ? read_lora(b->engine, b->model, "lora_comfy_fused.safetensors") : NULL;
    for (size_t i = 0; i < sizeof s_pixels; i++) s_pixels[i] = (uint8_t)(i * 37 + i / 191);
}

// 0, 1, then from 4 KiB on in half octaves up to `most`, which is there, too.
// A sanitized build is ten times as slow and takes powers of two alone: the sizes between them run no other code.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TAKES_HALVES false
#else
#define TAKES_HALVES true
#endif

static uint64_t next_size(uint64_t size, uint64_t most)
{
    if (size < 4096) return size == 0 ? 1 : 4096;
    const bool is_power = (size & (size - 1)) == 0;
    const uint64_t next = !is_power ? size / 3 * 4 : TAKES_HALVES ? size / 2 * 3 : 2 * size;
    return size < most && next > most ? most : next;
}

static void check_all(const bench* b, const uint64_t* expected)
{
    for (int k = 0; k < KIND_COUNT; k++) {
        uint64_t hash;
        CHECK_NUMBER(run_kind(b, (kind)k, &hash), SUMI_OK);
        CHECK(!has_bits(b, k) || hash == expected[k]);
    }
}

// The bytes that count against a budget.
static uint64_t held_bytes(const bench* b)
{
    const sumi_engine_info info = sumi_engine_get_info(b->engine);
    return info.held_bytes[SUMI_MEMORY_ARENA]
         + info.held_bytes[computes(b) ? SUMI_MEMORY_STAGING : SUMI_MEMORY_WEIGHTS];
}

static void measure_all(const bench* b, uint64_t* out_hashes, uint64_t* out_most)
{
    *out_most = 0;
    for (int k = 0; k < KIND_COUNT; k++) {
        CHECK_NUMBER(run_kind(b, (kind)k, &out_hashes[k]), SUMI_OK);
        *out_most = held_bytes(b) > *out_most ? held_bytes(b) : *out_most;
    }
}

typedef struct tally {
    int done[KIND_COUNT], refused[KIND_COUNT];
} tally;

static void note(tally* t, int k, sumi_result result)
{
    t->done[k] += result == SUMI_OK;
    t->refused[k] += result != SUMI_OK;
}

static void print_tally(const tally* t, bool must_refuse)
{
    for (int k = 0; k < KIND_COUNT; k++) {
        printf("  %s: %d done, %d refused\n", s_names[k], t->done[k], t->refused[k]);
        CHECK(t->done[k] > 0 && (!must_refuse || t->refused[k] > 0));
    }
}

TEST(every_job_ends_at_every_budget_of_the_cpu)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc = host_desc(&s_host);
    bench b = {NULL, NULL, NULL};
    open_bench(&b, &desc);
    if (b.engine == NULL) return;
    uint64_t expected[KIND_COUNT], most;
    tally t = {{0}, {0}};
    measure_all(&b, expected, &most);
    for (uint64_t budget = 1; budget < 2 * most && t_errors == 0; budget = next_size(budget, most)) {
        for (int k = 0; k < KIND_COUNT && t_errors == 0; k++) {
            uint64_t hash;
            CHECK_NUMBER(sumi_engine_set_memory_budget(b.engine, budget), SUMI_OK);
            const sumi_result result = run_kind(&b, (kind)k, &hash);
            const sumi_engine_info info = sumi_engine_get_info(b.engine);
            CHECK(info.held_bytes[SUMI_MEMORY_ARENA] + info.held_bytes[SUMI_MEMORY_STAGING] <= budget);
            CHECK(result == SUMI_OK || result == SUMI_BUDGET_TOO_SMALL);
            CHECK(result != SUMI_OK || hash == expected[k]);
            CHECK(result == SUMI_OK || budget < most);
            note(&t, k, result);
            if (t_errors != 0) printf("  %s with %llu bytes\n", s_names[k], (unsigned long long)budget);
        }
    }
    CHECK_NUMBER(sumi_engine_set_memory_budget(b.engine, 0), SUMI_OK);
    check_all(&b, expected);
    print_tally(&t, true);
    close_engine(b.engine);
}

// The job has the result and the bits that it has under `budget`, whatever the budget is set to while it runs.
// least: what an engine holds before any job.
static void check_changes(const bench* b, kind k, uint64_t budget, uint64_t least)
{
    uint64_t want, hash;
    CHECK_NUMBER(sumi_engine_set_memory_budget(b->engine, budget), SUMI_OK);
    const sumi_result result = run_kind(b, k, &want);
    s_changes.count = 2;
    s_changes.budgets[0] = 1;
    s_changes.budgets[1] = 0;
    s_changes.from = 0;
    CHECK_NUMBER(sumi_engine_set_memory_budget(b->engine, budget), SUMI_OK);
    CHECK_NUMBER(run_kind(b, k, &hash), result);
    CHECK(!has_bits(b, k) || hash == want);
    // Lowered at a turn, for the first time; at last at the first turn.
    const int distance = 1 + s_changes.updates / 20;
    s_changes.count = 1;
    for (s_changes.from = s_changes.updates / distance * distance; s_changes.from >= 0 && t_errors == 0;
         s_changes.from -= distance) {
        CHECK_NUMBER(sumi_engine_set_memory_budget(b->engine, budget), SUMI_OK);
        CHECK_NUMBER(run_kind(b, k, &hash), result);
        CHECK(!has_bits(b, k) || hash == want);
        if (t_errors != 0) printf("  lowered after update %d\n", s_changes.from);
    }
    s_changes.count = 0;
    CHECK(held_bytes(b) <= least); // what was above the newest budget is freed
    if (t_errors != 0) printf("  %s with %llu bytes\n", s_names[k], (unsigned long long)budget);
}

TEST(a_job_of_the_cpu_keeps_the_budget_that_it_began_with)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc = host_desc(&s_host);
    bench b = {NULL, NULL, NULL};
    open_bench(&b, &desc);
    if (b.engine == NULL) return;
    uint64_t expected[KIND_COUNT], most;
    measure_all(&b, expected, &most);
    for (int k = 0; k < KIND_COUNT && t_errors == 0; k++) {
        check_changes(&b, (kind)k, 0, 0);
        check_changes(&b, (kind)k, most, 0);
        check_changes(&b, (kind)k, most / 3, 0);
    }
    CHECK_NUMBER(sumi_engine_set_memory_budget(b.engine, 0), SUMI_OK);
    check_all(&b, expected);
    close_engine(b.engine);
}

// A job that goes on after a pause has left the queue again, so the newest budget holds for it.
TEST(a_job_that_goes_on_keeps_to_the_newest_budget)
{
    OPEN_WITH(200, engine, model);
    const sumi_image_desc desc = small_image(model, &s_item);
    for (int i = 0; i < 2; i++) {
        sumi_job job;
        sumi_memory memory;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_engine_update(engine, 1);
        CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 1), SUMI_OK);
        CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_BUDGET_TOO_SMALL); // of jobs that begin later
        CHECK_NUMBER(sumi_job_pause(engine, job, true), SUMI_OK);
        sumi_engine_update(engine, 1);
        CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_QUEUED);
        if (i == 1) CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
        CHECK_NUMBER(sumi_job_pause(engine, job, false), SUMI_OK);
        CHECK_NUMBER(end_of(engine, job), i == 0 ? SUMI_BUDGET_TOO_SMALL : SUMI_OK);
        sumi_job_discard(engine, job);
    }
    sumi_model_close(model);
    close_engine(engine);
}

#ifdef SUMI_HAS_CUDA
static sumi_engine_desc device_desc(meter* m)
{
    fake_reset();
    memset(&s_host, 0, sizeof s_host);
    memset(m, 0, sizeof *m);
    sumi_engine_desc desc = host_desc(&s_host);
    desc.backend = SUMI_BACKEND_CUDA;
    static sumi_device_allocator s_allocator; // the desc that is returned points to it
    s_allocator = (sumi_device_allocator){meter_allocate, meter_release, m};
    desc.device_allocator = &s_allocator;
    return desc;
}

static void close_bench(bench* b, const meter* m)
{
    close_engine(b->engine);
    CHECK_NUMBER(m->held, 0);
    CHECK_NUMBER(m->pinned, 0);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
}

static uint64_t s_expected[KIND_COUNT], s_most,
    s_least; // of a device without limits; least: what an engine holds before any job

static void measure_device(void)
{
    meter m;
    bench b = {NULL, NULL, NULL};
    sumi_engine_desc desc = device_desc(&m);
    sumi_engine* engine = open_engine(&desc, NULL);
    s_least = m.held;
    sumi_engine_destroy(engine);
    desc = device_desc(&m);
    open_bench(&b, &desc);
    if (b.engine == NULL) return;
    measure_all(&b, s_expected, &s_most);
    close_bench(&b, &m);
}

TEST(every_job_ends_at_every_budget_of_a_device)
{
    measure_device();
    tally t = {{0}, {0}};
    for (uint64_t budget = 1; budget < 2 * s_most && t_errors == 0; budget = next_size(budget, s_most)) {
        meter m;
        bench b = {NULL, NULL, NULL};
        sumi_engine_desc desc = device_desc(&m);
        desc.memory_budget_bytes = budget; // from the first load on
        open_bench(&b, &desc);
        if (b.engine == NULL) return;
        for (int k = 0; k < KIND_COUNT && t_errors == 0; k++) {
            uint64_t hash;
            const sumi_result result = run_kind(&b, (kind)k, &hash);
            CHECK(m.peak <= (budget > s_least ? budget : s_least));
            CHECK(result == SUMI_OK || result == SUMI_BUDGET_TOO_SMALL);
            CHECK(result != SUMI_OK || !has_bits(&b, k) || hash == s_expected[k]);
            CHECK(result == SUMI_OK || budget < s_most);
            note(&t, k, result);
            if (t_errors != 0) printf("  %s with %llu bytes\n", s_names[k], (unsigned long long)budget);
        }
        CHECK_NUMBER(sumi_engine_set_memory_budget(b.engine, 0), SUMI_OK);
        check_all(&b, s_expected);
        close_bench(&b, &m);
    }
    print_tally(&t, true);
}

TEST(a_job_of_a_device_keeps_the_budget_that_it_began_with)
{
    measure_device();
    for (int variant = 0; variant < 4 && t_errors == 0; variant++) {
        meter m;
        bench b = {NULL, NULL, NULL};
        sumi_engine_desc desc = device_desc(&m);
        open_bench(&b, &desc);
        if (b.engine == NULL) return;
        if (variant == 3) m.cap = s_most / 10 * 4; // a shortage sets a limit, and divides batches
        for (int k = 0; k < KIND_COUNT && t_errors == 0; k++)
            check_changes(&b, (kind)k, variant == 1 ? s_most : variant == 2 ? s_most / 10 * 7 : 0, s_least);
        m.cap = 0;
        CHECK_NUMBER(sumi_engine_set_memory_budget(b.engine, 0), SUMI_OK);
        check_all(&b, s_expected);
        close_bench(&b, &m);
    }
}

// The upload of a load, too. What it has taken beyond the newest budget is freed at its end.
TEST(a_load_keeps_the_budget_that_it_began_with)
{
    measure_device();
    meter m;
    sumi_engine_desc desc = device_desc(&m);
    sumi_model* first = NULL;
    sumi_engine* engine = open_engine(&desc, &first); // which loads the kernels
    CHECK(engine != NULL);
    sumi_model_close(first);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 1), SUMI_OK);
    const uint64_t empty = m.held;
    for (int i = 0; i < 2; i++) {
        sumi_model_desc md = sumi_model_defaults();
        md.path = MODEL_PATH;
        sumi_job job;
        sumi_model* model = NULL;
        CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
        CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
        s_changes.count = 2;
        s_changes.budgets[0] = 1;
        s_changes.budgets[1] = i == 0 ? 1 : 2 * s_most;
        s_changes.from = 0;
        m.peak = m.held;
        CHECK_NUMBER(end_of(engine, job), SUMI_OK);
        CHECK(m.peak > s_most / 3); // it has copied the weights
        s_changes.count = 0;
        CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 1), SUMI_OK);
        CHECK_NUMBER(m.held, empty);
        CHECK_NUMBER(sumi_fetch_model(engine, job, &model), SUMI_OK);
        sumi_model_close(model);
    }
    close_engine(engine);
}

// Jobs that begin beside the last slices of the one before, under a budget that changes with every update.
TEST(jobs_that_follow_each_other_have_budgets_of_their_own)
{
    measure_device();
    meter m;
    bench b = {NULL, NULL, NULL};
    sumi_engine_desc desc = device_desc(&m);
    desc.max_slice_us = 100;
    open_bench(&b, &desc);
    if (b.engine == NULL) return;
    const sumi_image_desc picture = small_image(b.model, &s_item);
    const uint64_t want = draw_hash(b.engine, &picture), budgets[3] = {0, s_most, s_most / 10 * 8};
    for (int period = 1; period < 24 && t_errors == 0; period++) {
        sumi_job jobs[4];
        for (int i = 0; i < 4; i++) CHECK_NUMBER(sumi_submit_images(b.engine, &picture, &jobs[i]), SUMI_OK);
        for (int i = 0; i < MAX_UPDATES && sumi_job_poll(b.engine, jobs[3]).state < SUMI_JOB_DONE; i++) {
            sumi_engine_update(b.engine, 200);
            if (i % period == 0)
                CHECK_NUMBER(sumi_engine_set_memory_budget(b.engine, budgets[i / period % 3]), SUMI_OK);
        }
        for (int i = 0; i < 4; i++) CHECK(fetch_hash(b.engine, jobs[i], &picture) == want);
        CHECK_NUMBER(sumi_engine_set_memory_budget(b.engine, budgets[2]), SUMI_OK);
        CHECK(m.held <= budgets[2]);
    }
    close_bench(&b, &m);
}

// The same without a budget, where the host program's allocator, or the driver, has no more than so many bytes: from
// before the model is loaded, or only for the jobs.
TEST(every_job_ends_on_a_device_of_any_size)
{
    tally t = {{0}, {0}};
    for (int variant = 0; variant < 4; variant++) {
        const bool loads_short = variant % 2 == 1, asks_driver = variant >= 2;
        for (uint64_t bytes = 4096; bytes < 2 * s_most && t_errors == 0; bytes = next_size(bytes, s_most)) {
            meter m;
            bench b = {NULL, NULL, NULL};
            sumi_engine_desc desc = device_desc(&m);
            if (asks_driver) desc.device_allocator = NULL;
            if (loads_short && bytes < s_least) continue; // no engine: test_engine_cuda has that
            if (loads_short && asks_driver) fake_limit_device_bytes(bytes);
            else if (loads_short) m.cap = bytes;
            open_bench(&b, &desc);
            if (b.engine == NULL) return;
            for (int k = 0; k < KIND_COUNT && t_errors == 0; k++) {
                uint64_t hash;
                if (asks_driver) fake_limit_device_bytes(bytes);
                else m.cap = bytes;
                const sumi_result result = run_kind(&b, (kind)k, &hash);
                CHECK(result == SUMI_OK || result == SUMI_OUT_OF_DEVICE_MEMORY);
                CHECK(result != SUMI_OK || !has_bits(&b, k) || hash == s_expected[k]);
                note(&t, k, result);
                if (t_errors != 0)
                    printf("  %s with %llu bytes, variant %d\n", s_names[k], (unsigned long long)bytes, variant);
            }
            fake_limit_device_bytes(0);
            m.cap = 0;
            CHECK_NUMBER(sumi_engine_set_memory_budget(b.engine, 0), SUMI_OK);
            check_all(&b, s_expected);
            close_bench(&b, &m);
        }
    }
    print_tally(&t, true);
}
#else
TEST(a_job_of_a_device_keeps_the_budget_that_it_began_with) { SKIP("this build has no CUDA backend"); }
TEST(a_load_keeps_the_budget_that_it_began_with) { SKIP("this build has no CUDA backend"); }
TEST(jobs_that_follow_each_other_have_budgets_of_their_own) { SKIP("this build has no CUDA backend"); }
TEST(every_job_ends_at_every_budget_of_a_device) { SKIP("this build has no CUDA backend"); }
TEST(every_job_ends_on_a_device_of_any_size) { SKIP("this build has no CUDA backend"); }
#endif

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(every_job_ends_at_every_budget_of_the_cpu);
    RUN(a_job_of_the_cpu_keeps_the_budget_that_it_began_with);
    RUN(a_job_that_goes_on_keeps_to_the_newest_budget);
    RUN(a_job_of_a_device_keeps_the_budget_that_it_began_with);
    RUN(a_load_keeps_the_budget_that_it_began_with);
    RUN(jobs_that_follow_each_other_have_budgets_of_their_own);
    RUN(every_job_ends_at_every_budget_of_a_device);
    RUN(every_job_ends_on_a_device_of_any_size);
    TEST_END();
}
