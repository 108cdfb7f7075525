// Device memory that other programs take and give back, on the fake driver (fake_cuda): jobs go on with less, the
// log says how much there is, and everything is as before once they are gone.
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "cuda_fixture.h"
#include "device_meter.h"
#include "fake_cuda.h"

#define MANY 64

// ---- A host that keeps what it is told ------------------------------------------------------------------------------

typedef struct told {
    char newest[512];
    int shortages, recoveries, returns, trials;
} told;

static told s_told;

static void listen(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    host_log(level, result, text, user_data);
    const bool is_ours = strstr(text, "memory") != NULL;
    s_told.shortages += strstr(text, "no memory left") != NULL;
    s_told.recoveries += strstr(text, "has memory again:") != NULL;
    s_told.returns += strstr(text, "still has no memory") != NULL;
    s_told.trials += strstr(text, "trying whether the device has memory again") != NULL;
    if (is_ours) snprintf(s_told.newest, sizeof s_told.newest, "%s", text);
}

// With the driver's memory, or a host's that cannot be asked.
static sumi_engine_desc listening_desc(meter* m)
{
    fake_reset();
    memset(&s_told, 0, sizeof s_told);
    sumi_engine_desc desc = cuda_desc();
    desc.log = (sumi_log){listen, &s_host};
    if (m == NULL) return desc;
    memset(m, 0, sizeof *m);
    static sumi_device_allocator s_allocator; // the desc that is returned points to it
    s_allocator = (sumi_device_allocator){meter_allocate, meter_release, m};
    desc.device_allocator = &s_allocator;
    return desc;
}

// Of a picture on a device with plenty: bytes held, of them weights; its latents.
static uint64_t s_whole, s_weights, s_bits;

static uint64_t held_bytes(const sumi_engine* engine)
{
    const sumi_engine_info info = sumi_engine_get_info(engine);
    return info.held_bytes[SUMI_MEMORY_WEIGHTS] + info.held_bytes[SUMI_MEMORY_ARENA];
}
static bool is_resident(const sumi_engine* engine)
{
    return sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS] >= s_weights;
}

static void give_all_back(sumi_engine* engine)
{
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 1), SUMI_OK);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
}

// Bounded by count: a job that never ends is a failure. Waits only through the load of the kernels.
static uint64_t draw_bits(sumi_engine* engine, const sumi_image_desc* desc)
{
    float latents[16 * 4 * 4];
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    for (int i = 0; i < 20000 && sumi_job_poll(engine, job).state < SUMI_JOB_DONE; i++)
        sumi_engine_update(engine, 1000);
    const sumi_job_status status = sumi_job_poll(engine, job);
    CHECK_NUMBER(status.state, SUMI_JOB_DONE);
    CHECK_TEXT(status.message, "");
    uint64_t bits = 0;
    if (sumi_job_latents(engine, job, 0, latents, sizeof latents / sizeof *latents) == SUMI_OK)
        bits = hash_bytes(latents, sizeof latents);
    sumi_job_discard(engine, job);
    return bits;
}

// Measures what the others compare with. Asked for alone, they have it measured first.
static void measure(void)
{
    if (s_bits != 0) return;
    sumi_engine_desc ed = listening_desc(NULL);
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    const sumi_image_desc desc = small_image(model, &s_item);
    s_bits = draw_bits(engine, &desc);
    s_whole = held_bytes(engine);
    s_weights = sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS];
    CHECK(s_bits != 0 && s_weights > 0 && s_told.shortages == 0);
    close_cuda(engine);
}

TEST(a_device_with_plenty_is_never_short) { measure(); }

#define OPEN_LISTENING(m)                                                                                              \
    measure();                                                                                                         \
    sumi_model* model = NULL;                                                                                          \
    sumi_engine_desc ed = listening_desc(m);                                                                           \
    sumi_engine* engine = open_engine(&ed, &model);                                                                    \
    CHECK(engine != NULL);                                                                                             \
    if (engine == NULL) return;                                                                                        \
    const sumi_image_desc desc = small_image(model, &s_item)

// ---- The driver is asked --------------------------------------------------------------------------------------------

static uint64_t copies_of_a_prompt(sumi_engine* engine, sumi_model* model)
{
    const uint64_t before = fake_calls("cuMemcpyHtoDAsync");
    sumi_prompt_release(encode_prompt(engine, model, "a red fox"));
    return fake_calls("cuMemcpyHtoDAsync") - before;
}

// Everything idle goes, another program takes what it can, a job goes on with the rest; then the other one goes.
TEST(a_shortage_that_has_passed_is_forgotten)
{
    measure();
    for (int percent = 95; percent >= 50 && t_errors == 0; percent -= 5) {
        OPEN_LISTENING(NULL);
        CHECK(draw_bits(engine, &desc) == s_bits);
        (void)copies_of_a_prompt(engine, model);
        const uint64_t copies = copies_of_a_prompt(engine, model);
        give_all_back(engine);
        const uint64_t there = s_whole / 100 * (uint64_t)percent;
        fake_limit_device_bytes(there);
        CHECK(draw_bits(engine, &desc) == s_bits);
        CHECK(s_told.shortages > 0 && !is_resident(engine));
        CHECK(s_told.recoveries == 0 && s_told.returns == 0);
        const int shortages = s_told.shortages;
        const uint64_t held = held_bytes(engine);
        CHECK(held <= there && held > there / 2); // the margin, the ring and weights too large for what is left
        const uint64_t blocks = fake_allocation_count();
        for (int i = 0; i < 3; i++) CHECK(draw_bits(engine, &desc) == s_bits);
        CHECK_NUMBER(s_told.shortages, shortages); // it knows, and an unchanged shortage keeps its plan
        CHECK_NUMBER(fake_allocation_count(), blocks);
        CHECK_NUMBER(s_told.recoveries, 0);
        fake_limit_device_bytes(0);
        CHECK(draw_bits(engine, &desc) == s_bits);
        CHECK(is_resident(engine) && s_told.recoveries == 1);
        (void)copies_of_a_prompt(engine, model);
        CHECK_NUMBER(copies_of_a_prompt(engine, model), copies); // no weight comes again
        CHECK(draw_bits(engine, &desc) == s_bits);
        CHECK(s_told.recoveries == 1 && s_told.shortages == shortages);
        close_cuda(engine);
        if (t_errors != 0) printf("  with %d %%\n", percent);
    }
}

TEST(a_shortage_of_prompts_passes_too)
{
    OPEN_LISTENING(NULL);
    CHECK(draw_bits(engine, &desc) == s_bits);
    (void)copies_of_a_prompt(engine, model);
    const uint64_t copies = copies_of_a_prompt(engine, model);
    give_all_back(engine);
    fake_limit_device_bytes(s_whole / 100 * 60);
    CHECK(draw_bits(engine, &desc) == s_bits);
    CHECK(copies_of_a_prompt(engine, model) > copies); // its weights come when they are used
    fake_limit_device_bytes(0);
    (void)copies_of_a_prompt(engine, model);
    CHECK_NUMBER(copies_of_a_prompt(engine, model), copies);
    CHECK_NUMBER(s_told.recoveries, 1);
    close_cuda(engine);
}

// Jobs that follow each other without a gap: one of them waits until nothing runs, to ask.
TEST(queued_jobs_notice_the_end_of_a_shortage)
{
    enum { QUEUED = 6 };
    OPEN_LISTENING(NULL);
    give_all_back(engine);
    fake_limit_device_bytes(s_whole / 100 * 60);
    CHECK(draw_bits(engine, &desc) == s_bits && !is_resident(engine));
    fake_complete_after(2);
    sumi_job jobs[QUEUED];
    for (int i = 0; i < QUEUED; i++) CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, jobs[0]), SUMI_OK);
    fake_limit_device_bytes(0); // the second one may have begun
    for (int i = 1; i < QUEUED; i++) CHECK_NUMBER(run_to_end(engine, jobs[i]), SUMI_OK);
    CHECK(is_resident(engine) && s_told.recoveries == 1);
    for (int i = 0; i < QUEUED; i++) sumi_job_discard(engine, jobs[i]);
    fake_complete_after(0);
    CHECK(draw_bits(engine, &desc) == s_bits);
    close_cuda(engine);
}

TEST(a_model_that_is_loaded_looks_again)
{
    OPEN_LISTENING(NULL);
    give_all_back(engine);
    fake_limit_device_bytes(s_whole / 100 * 60);
    CHECK(draw_bits(engine, &desc) == s_bits);
    CHECK(!is_resident(engine));
    sumi_model_close(model);
    fake_limit_device_bytes(0);
    model = load_model(engine);
    CHECK(model != NULL && is_resident(engine) && s_told.recoveries == 1);
    close_cuda(engine);
}

// Less and more, in the middle of jobs and between them.
TEST(other_work_that_starts_and_stops)
{
    OPEN_LISTENING(NULL);
    uint32_t seed = 1;
    for (int i = 0; i < MANY && t_errors == 0; i++) {
        seed = seed * 1664525u + 1013904223u;
        const uint64_t there = i % 3 == 2 ? 0 : s_whole / 100 * (60 + (seed >> 16) % 50),
                       later = i % 4 == 3 ? 0 : s_whole / 100 * (60 + (seed >> 8) % 50);
        sumi_job job;
        if (i % 5 == 0) give_all_back(engine);
        fake_limit_device_bytes(there);
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        for (uint32_t k = 0; k < seed % 20; k++) sumi_engine_update(engine, 1);
        fake_limit_device_bytes(later); // what is held stays: another program cannot take it
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        sumi_job_discard(engine, job);
    }
    CHECK(s_told.shortages > 0 && s_told.recoveries > 0);
    printf("  %d shortages, %d recoveries, %d of them too early\n", s_told.shortages, s_told.recoveries,
           s_told.returns);
    fake_limit_device_bytes(0);
    for (int i = 0; i < 16 && !is_resident(engine); i++)
        CHECK(draw_bits(engine, &desc) == s_bits); // after a look that was too early the next one is some jobs away
    CHECK(is_resident(engine));
    close_cuda(engine);
}

// One failed allocation says nothing about how much there is; the driver does.
TEST(one_failed_block_is_not_the_end_of_the_memory)
{
    for (int nth = 1; nth < 12 && t_errors == 0; nth++) {
        OPEN_LISTENING(NULL);
        give_all_back(engine); // weights go: next to nothing is held when the block fails
        const int logs = s_told.shortages;
        (void)fake_fail_call("cuMemAlloc", nth, 2);
        CHECK(draw_bits(engine, &desc) == s_bits);
        const bool has_failed = fake_fail_call("cuMemAlloc", 0, 0);
        CHECK(is_resident(engine));                                            // there is plenty
        const bool says_what_is_free = strstr(s_told.newest, "1073.") != NULL; // all but all of the device's GiB
        CHECK(nth > 1 || (has_failed && s_told.shortages == logs + 1 && says_what_is_free));
        CHECK(draw_bits(engine, &desc) == s_bits && is_resident(engine));
        close_cuda(engine);
    }
}

// What sumi_image_memory says suffices under a budget suffices without one, when the device has no more: with a margin,
// or without any.
TEST(what_is_said_to_suffice_suffices)
{
    for (int variant = 0; variant < 6; variant++) {
        meter m;
        const bool asks_driver = variant % 2 == 0;
        OPEN_LISTENING(asks_driver ? NULL : &m);
        sumi_image_desc large = desc;
        large.width = large.height = variant >= 4 ? 160 : 32;
        sumi_memory memory = {0};
        uint64_t low = 1, high = 1u << 28; // the smallest budget by bisection
        for (int i = 0; i < 30; i++) {
            const uint64_t middle = low + (high - low) / 2;
            CHECK_NUMBER(sumi_engine_set_memory_budget(engine, middle), SUMI_OK);
            if (sumi_image_memory(engine, &large, &memory) == SUMI_OK) high = middle;
            else low = middle;
        }
        give_all_back(engine);
        const uint64_t there = variant >= 2 ? high : high + high / 8;
        if (asks_driver) fake_limit_device_bytes(there);
        else m.cap = there;
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &large, &job), SUMI_OK);
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        CHECK_TEXT(sumi_job_poll(engine, job).message, "");
        CHECK(held_bytes(engine) <= there && s_told.shortages > 0);
        sumi_job_discard(engine, job);
        close_cuda(engine);
        if (t_errors != 0) printf("  variant %d, %llu bytes\n", variant, (unsigned long long)there);
    }
}

// ---- A host program's allocator, which cannot be asked ----------------------------------------------------------------------

TEST(a_hosts_allocator_is_tried_again)
{
    for (int variant = 0; variant < 2; variant++) {
        meter m;
        OPEN_LISTENING(&m);
        CHECK(draw_bits(engine, &desc) == s_bits);
        give_all_back(engine);
        m.cap = s_whole / 100 * 70;
        CHECK(draw_bits(engine, &desc) == s_bits && !is_resident(engine));
        const int shortages = s_told.shortages;
        CHECK(shortages > 0);
        if (variant == 1) m.cap = 0;
        int first = 0;
        for (int i = 1; i <= MANY && t_errors == 0; i++) {
            CHECK(draw_bits(engine, &desc) == s_bits);
            CHECK(m.cap == 0 || m.held <= m.cap);
            if (first == 0 && s_told.trials > 0) first = i;
        }
        CHECK(first > 0 && first <= 8);
        CHECK_NUMBER(s_told.shortages, shortages);
        if (variant == 1) CHECK(s_told.trials == 1 && s_told.returns == 0);
        else CHECK(s_told.trials >= 2 && s_told.trials <= 5 && s_told.returns == s_told.trials); // ever fewer
        CHECK(is_resident(engine) == (variant == 1));
        printf("  %s: %d trials in %d jobs, the first at the %d. one\n", variant == 1 ? "passed" : "still there",
               s_told.trials, MANY, first);
        m.cap = 0;
        close_cuda(engine);
        CHECK_NUMBER(m.held, 0);
        CHECK_NUMBER(m.pinned, 0);
    }
}

// ---- In frames ------------------------------------------------------------------------------------------------------

// Weights that were streamed lie in pinned memory. When they need not any more, that goes in pieces, not within one
// frame.
TEST(a_recovery_fits_into_frames)
{
    OPEN_LISTENING(NULL);
    give_all_back(engine);
    fake_limit_device_bytes(s_whole / 100 * 60);
    CHECK(draw_bits(engine, &desc) == s_bits);
    const long pinned = fake_held_kind("pinned");
    fake_limit_device_bytes(0);
    fake_pinning_takes(200000); // a weight's piece takes longer than a frame's part
    sumi_job job;
    uint64_t most = 0;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    for (int i = 0; i < 20000 && sumi_job_poll(engine, job).state < SUMI_JOB_DONE; i++) {
        const uint64_t before = fake_calls("cuMemFreeHost");
        sumi_engine_update(engine, 1000);
        const uint64_t calls = fake_calls("cuMemFreeHost") - before;
        most = calls > most ? calls : most;
    }
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_DONE);
    printf("  of %ld pinned blocks %ld went, %llu at most in one frame\n", pinned, pinned - fake_held_kind("pinned"),
           (unsigned long long)most);
    CHECK(pinned - fake_held_kind("pinned") > 10 && most <= 4); // a piece, the end of a list, a slot
    CHECK(is_resident(engine));
    fake_pinning_takes(0);
    sumi_job_discard(engine, job);
    fake_limit_device_bytes(s_whole / 100
                            * 60); // and back: what is streamed is pinned again, so that it does not come from the file
    give_all_back(engine);
    CHECK(draw_bits(engine, &desc) == s_bits && !is_resident(engine));
    CHECK_NUMBER(fake_held_kind("pinned"), pinned);
    close_cuda(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(a_device_with_plenty_is_never_short);
    RUN(a_shortage_that_has_passed_is_forgotten);
    RUN(a_shortage_of_prompts_passes_too);
    RUN(queued_jobs_notice_the_end_of_a_shortage);
    RUN(a_model_that_is_loaded_looks_again);
    RUN(other_work_that_starts_and_stops);
    RUN(one_failed_block_is_not_the_end_of_the_memory);
    RUN(what_is_said_to_suffice_suffices);
    RUN(a_hosts_allocator_is_tried_again);
    RUN(a_recovery_fits_into_frames);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
