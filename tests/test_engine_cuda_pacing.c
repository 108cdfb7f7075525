// How the engine fills a frame's budget on a GPU: what is in flight, what it knows of slices, noise. On the fake
// driver.
#include "at_once.h"
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/graphs.h"
#include "cuda_fixture.h"
#include "fake_clock.h"
#include "fake_cuda.h"
#include "jobs/engine_state.h"
#include <math.h>

TEST(no_more_than_the_budget_is_on_its_way)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = 128;
    desc.step_count = 20;
    static const uint32_t s_budgets[] = {10, 60, 200, 500, 4000};
    int32_t max_ever = 0;
    for (size_t b = 0; b < sizeof s_budgets / sizeof *s_budgets; b++) {
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        run_until_denoise(engine, job);
        fake_complete_after(1000000); // a device that is busy with something else
        const uint64_t waits = fake_calls("cuEventSynchronize") + fake_calls("cuStreamSynchronize");
        int32_t count = 0;
        for (int frame = 0; frame < 120; frame++) {
            sumi_engine_update(engine, s_budgets[b]);
            CHECK(engine->runs.current.pending_us <= s_budgets[b] + 1e-3 || engine->runs.current.pending_count == 1);
            // full, and no frame adds to it; a slow thread submits one slice in each
            if (frame >= 100)
                CHECK(engine->runs.current.pending_count >= 1 && engine->runs.current.pending_count == count);
            count = engine->runs.current.pending_count;
        }
        CHECK_NUMBER(fake_calls("cuEventSynchronize") + fake_calls("cuStreamSynchronize"), waits); // nor waits for it
        CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_RUNNING);
        CHECK(count >= max_ever);
        max_ever = count;
        fake_complete_after(0);
        sumi_job_discard(engine, job);
        fake_finish();
    }
    CHECK(max_ever > 1);
    close_cuda(engine);
}

TEST(a_frame_that_finds_its_slice_over_submits_the_next_one)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 20;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    run_until_denoise(engine, job);
    fake_complete_after(1000000);
    sumi_engine_update(engine, 1);
    for (int frame = 0; frame < 10; frame++) { // a budget that no slice fits
        const int32_t over = engine->runs.current.pending_begin;
        fake_finish(); // between two frames
        sumi_engine_update(engine, 1);
        const int32_t next = engine->runs.current.pending_begin;
        CHECK(engine->runs.current.pending_count == 1 && next != over);
        sumi_engine_update(engine, 1); // a frame that comes too early
        CHECK(engine->runs.current.pending_count == 1 && engine->runs.current.pending_begin == next);
    }
    sumi_engine_update(engine, 0); // a pause
    sumi_job_discard(engine, job);
    close_cuda(engine);
}

// What a frame costs this thread: driver calls. The device finishes everything between two frames and nothing during
// one, as a busy device does.
TEST(a_frame_asks_the_device_once)
{
    static const char* const s_entries[] = {
        "cuEventQuery",     "cuEventElapsedTime", "cuEventRecord",    "cuGraphLaunch",
        "cuCtxPushCurrent", "cuCtxPopCurrent",    "cuMemsetD32Async", "cuThreadExchangeStreamCaptureMode"};
    enum { ENTRIES = sizeof s_entries / sizeof *s_entries, ASKS = 2, FRAMES = 60 };
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = 1536;
    desc.step_count = 40;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    run_until_denoise(engine, job);
    fake_clock_begin(1000); // a frame's slices are then the same on any machine
    uint64_t calls[ENTRIES] = {0};
    int32_t ended_count = 0, submitted_count = 0;
    for (int frame = 0; frame < FRAMES; frame++) {
        uint64_t before[ENTRIES];
        const int32_t ended = engine->runs.current.pending_count;
        // Of slices whose times are not known, it also asks how long an empty kernel has waited.
        const bool is_known = sumi_job_poll(engine, job).step >= 2;
        for (size_t i = 0; i < ENTRIES; i++) before[i] = fake_calls(s_entries[i]);
        fake_complete_after(1000000);
        sumi_engine_update(engine, 4000);
        fake_complete_after(0);
        fake_finish();
        uint64_t asked = 0;
        for (size_t i = 0; i < ENTRIES; i++) {
            const uint64_t count = fake_calls(s_entries[i]) - before[i];
            calls[i] += is_known ? count : 0;
            asked += i < ASKS ? count : 0;
        }
        const int32_t submitted = engine->runs.current.pending_count;
        if (sumi_job_poll(engine, job).stage != SUMI_STAGE_DENOISE) break;
        // the newest, then each that has ended for its time; before the frame gives up, the newest and the oldest again
        CHECK(asked <= (uint64_t)(is_known ? ended : 2 * ended) + 3);
        ended_count += is_known ? ended : 0;
        submitted_count += is_known ? submitted : 0;
    }
    // An event at the end of each, and one where the first of a frame or of a step begins.
    CHECK(calls[2] < 2 * (uint64_t)submitted_count);
    fake_clock_end();
    CHECK(ended_count > FRAMES / 2 && submitted_count > FRAMES / 2);
    uint64_t all = 0;
    for (size_t i = 0; i < ENTRIES; i++) all += calls[i];
    printf("  %d slices: %.2f driver calls each", (int)submitted_count, (double)all / submitted_count);
    for (size_t i = 0; i < ENTRIES; i++) printf(", %s %.2f", s_entries[i] + 2, (double)calls[i] / submitted_count);
    printf("\n");
    sumi_job_discard(engine, job);
    close_cuda(engine);
}

static double known_us(const sumi_engine* engine) // of all slices of the plan that runs, just now
{
    const sumi_plan_entry* entry = engine->runs.current.entry;
    double us = 0.0;
    for (size_t i = 0; entry != NULL && i < entry->plan.slice_count; i++)
        us += (double)entry->slice_us[entry->kind_first[i]];
    return us * (engine->tempo.slowness > 1.0f ? (double)engine->tempo.slowness : 1.0);
}

// Noise comes in pieces, so that no frame waits for all of it. The fake's kernels do nothing: latents are the noise.
TEST(noise_in_pieces_is_the_noise_of_one_call)
{
    enum { SIDE = 768, COUNT = 16 * (SIDE / 8) * (SIDE / 8) }; // more than a piece, not a multiple of one
    static float s_expected[COUNT], s_latents[COUNT];
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = SIDE;
    for (int is_cuda = 0; is_cuda < 2; is_cuda++) {
        sumi_torch_cpu_generator cpu;
        sumi_torch_cuda_generator cuda;
        sumi_torch_cpu_seed(&cpu, s_item.seed);
        sumi_torch_cuda_seed(&cuda, s_item.seed, 16, 2048); // fewer threads than values
        if (is_cuda) torch_cuda_randn(&cuda, s_expected, COUNT);
        else sumi_torch_cpu_randn(&cpu, s_expected, COUNT);
        desc.noise.source = is_cuda ? SUMI_NOISE_TORCH_CUDA : SUMI_NOISE_TORCH_CPU;
        desc.noise.multiprocessors = 16;
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        int32_t frames = 0;
        while (run_updates(engine, job, 1) && count_frame(&frames)) continue;
        CHECK_NUMBER(sumi_job_latents(engine, job, 0, s_latents, COUNT), SUMI_OK);
        CHECK(memcmp(s_latents, s_expected, sizeof s_latents) == 0);
        sumi_job_discard(engine, job);
    }
    close_cuda(engine);
}

// What comes before the denoising loop keeps the device busy while this thread draws: in the same updates, without
// waiting for it.
TEST(noise_is_drawn_while_the_device_works)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_item items[4];
    for (int i = 0; i < 4; i++) items[i] = (sumi_image_item){.text = "a red fox in the snow", .seed = (uint64_t)i};
    sumi_image_desc desc = small_image(model, items);
    desc.item_count = 4;
    desc.width = desc.height = 640; // 4 * 7 pieces
    uint64_t whole = 0;
    for (int late = 1; late >= 0; late--) { // first: the ring of inputs is empty
        sumi_job job;
        float latents[16 * 80 * 80];
        uint64_t hash = 0;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        // a step in each
        int32_t frames = 0;
        while ((engine->jobs.running == NULL || engine->jobs.running->u.plan_job.progress.phase != SUMI_PHASE_RUN)
               && count_frame(&frames))
            sumi_engine_update(engine, 1);
        if (frames > MAX_FRAMES) return;
        fake_complete_after(late ? 1000000 : 0);
        const uint64_t waits = fake_calls("cuEventSynchronize") + fake_calls("cuStreamSynchronize");
        for (int frame = 0; late && frame < 100; frame++) sumi_engine_update(engine, 100);
        const sumi_plan_job* plan = &engine->jobs.running->u.plan_job;
        // no more than the ring holds
        if (late)
            CHECK(engine->runs.current.pending_count > 0
                  && engine->runs.current.section < engine->runs.current.entry->noise_section
                  && (plan->progress.cursor > 0 || plan->progress.drawn_values > 0) && plan->progress.cursor < 4);
        CHECK_NUMBER(fake_calls("cuEventSynchronize") + fake_calls("cuStreamSynchronize"), waits);
        fake_complete_after(0);
        fake_finish();
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        for (int i = 0; i < 4; i++) {
            CHECK_NUMBER(sumi_job_latents(engine, job, i, latents, 16 * 80 * 80), SUMI_OK);
            hash = 31 * hash + hash_bytes(latents, sizeof latents);
        }
        CHECK(whole == 0 || whole == hash);
        whole = hash;
        sumi_job_discard(engine, job);
    }
    close_cuda(engine);
}

// What one slice takes is known of all that are like it, also by the sums that progress and deadlines are made of.
TEST(slices_of_a_kind_share_their_times)
{
    static const double s_times[] = {0.02, 0.05, 0.03, 0.07, 0.04};
    fake_reset();
    fake_kernel_times(s_times, 5);
    sumi_model* model;
    sumi_engine* engine = cuda_engine(3, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 20;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    int32_t frames = 0;
    while (sumi_job_poll(engine, job).step < 10 && run_updates(engine, job, 1) && count_frame(&frames)) continue;
    const sumi_plan_entry* entry = engine->runs.current.entry;
    CHECK(entry != NULL);
    int32_t alike = 0;
    for (size_t s = 0; entry != NULL && s < entry->plan.section_count; s++) {
        const sumi_section* section = &entry->plan.sections[s];
        double sum = 0.0;
        for (int32_t i = section->slice_begin; i < section->slice_end; i++) {
            const int32_t first = entry->kind_first[i];
            CHECK(first >= section->slice_begin && first <= i
                  && entry->plan.slices[first].predicted_us == entry->plan.slices[i].predicted_us);
            alike += first != i;
            sum += (double)entry->slice_us[first];
        }
        if (section->kind == SUMI_SECTION_DENOISE)
            CHECK(entry->sections[s].unmeasured_us < 1e-3 && fabs(entry->sections[s].measured_us - sum) < 1e-3 * sum);
    }
    CHECK(alike > 8); // its layers
    sumi_job_discard(engine, job);
    close_cuda(engine);
}

// While another context of the same GPU has its turn, a slice's clock runs on; kernels of the host program's in the
// same context lie between any two of ours.
TEST(what_others_do_on_the_gpu_does_not_shrink_the_budget)
{
    static const double s_alone[] = {0.02}, s_beside[] = {0.02, 0.02, 0.5, 0.02, 0.02, 0.02, 0.1, 0.02, 0.02},
                        s_slower[] = {0.06};
    static const double s_between[] = {0.03, 0.05, 0.026, 0.09, 0.04, 0.07, 0.036, 0.12, 0.028, 0.06, 0.05};
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 40;
    double known[5] = {0.0}, slowness[5] = {0.0};
    // twice, for the slices behind the one that is looked at
    const struct {
        const double* ms;
        int count;
    } times[] = {{s_alone, 1}, {s_alone, 1}, {s_beside, 9}, {s_between, 11}, {s_slower, 1}};
    for (int k = 0; k < 5; k++) {
        fake_kernel_times(times[k].ms, times[k].count);
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        run_until_denoise(engine, job);
        for (int i = 0; i < SUMI_TEMPO_TIMES; i++) run_updates(engine, job, 2);
        slowness[k] = (double)engine->tempo.slowness;
        int32_t frames = 0;
        while (sumi_job_poll(engine, job).step < 39 && run_updates(engine, job, 1) && count_frame(&frames))
            known[k] = known_us(engine);
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        sumi_job_discard(engine, job);
    }
    CHECK(known[1] > 0.0);
    CHECK(known[2] < 1.25 * known[1] && known[3] < 1.25 * known[1]);
    CHECK(slowness[2] < 1.1 && slowness[3] < 1.1);
    CHECK(known[4] > 1.3 * known[1] && slowness[4] > 1.3); // that is noticed, and soon
    printf("  slices: %.0f us alone, %.0f beside another context, %.0f among others' kernels, %.0f on a slower device; "
           "soon thought to be %.2f times as long there\n",
           known[1], known[2], known[3], known[4], slowness[4]);
    close_cuda(engine);
}

// Makes a picture in frames of this budget, each of which begins with a kernel of the host program that takes host_ms.
// The device finishes everything between two frames. Returns the number of frames that submitted slices of the denoising
// loop; *out_slices: these slices.
static int draw_in_frames(sumi_engine* engine, const sumi_image_desc* desc, uint32_t budget_us, double host_ms,
                          int* out_slices)
{
    enum { MOST = 4000 };
    sumi_job job;
    int frames = 0;
    *out_slices = 0;
    fake_clock_begin(1000); // a frame's slices are then the same on any machine
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    for (int i = 0; i < MOST && sumi_job_poll(engine, job).state < SUMI_JOB_DONE; i++) {
        fake_complete_after(1000000);
        fake_host_computes(host_ms);
        sumi_engine_update(engine, budget_us);
        const bool is_denoising = sumi_job_poll(engine, job).stage == SUMI_STAGE_DENOISE;
        frames += is_denoising;
        *out_slices += is_denoising ? engine->runs.current.pending_count : 0;
        fake_complete_after(0);
        fake_finish();
    }
    fake_clock_end();
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_DONE);
    sumi_job_discard(engine, job);
    return frames;
}

// What a first picture takes whose text was encoded while nobody else used the device. kernel_ms: the times of its kernels,
// over and over. delay_ms: of empty kernels.
typedef struct first_picture {
    int frames, slices; // of the denoising loop
    double known_us;    // what a step takes, as far as the engine knows at the end
} first_picture;

static first_picture draw_first(const double* kernel_ms, int count, double delay_ms, uint32_t budget_us)
{
    static const double s_text_ms[] = {0.02};
    first_picture seen = {0};
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return seen;
    fake_kernel_times(s_text_ms, 1);
    sumi_prompt* prompt = encode_prompt(engine, model, "a red fox");
    const sumi_image_item item = {.prompt = prompt, .seed = 1};
    sumi_image_desc desc = small_image(model, &item);
    desc.width = desc.height = 128;
    desc.step_count = 40;
    fake_kernel_times(kernel_ms, count);
    fake_crowd(delay_ms);
    seen.frames = draw_in_frames(engine, &desc, budget_us, 0.0, &seen.slices);
    for (size_t i = 0; i < SUMI_PLAN_CACHE_SIZE; i++) {
        const sumi_plan_entry* entry = &engine->cache.entries[i];
        for (size_t s = 0; s < entry->plan.section_count; s++)
            seen.known_us +=
                entry->plan.sections[s].kind == SUMI_SECTION_DENOISE ? entry->sections[s].measured_us : 0.0;
    }
    sumi_prompt_release(prompt);
    close_cuda(engine);
    return seen;
}

// Nothing is known of the slices of a first picture. Beside kernels of the host program in the same context each seems
// to take two to four times as long as it does.
TEST(a_first_picture_beside_a_hosts_kernels_uses_its_budget)
{
    enum { KERNELS = 77 * 7, BUDGET_US = 1000 };
    static const double s_alone_ms[] = {0.02};
    static double s_beside_ms[KERNELS];
    for (int i = 0; i < KERNELS; i++) s_beside_ms[i] = 0.04 + 0.004 * (i / 7 * 37 % 11);
    const first_picture alone = draw_first(s_alone_ms, 1, 0.0, BUDGET_US),
                        beside = draw_first(s_beside_ms, KERNELS, 0.0, BUDGET_US);
    printf("  alone %d slices in %d frames, beside the host's kernels %d in %d\n", alone.slices, alone.frames,
           beside.slices, beside.frames);
    CHECK(alone.frames > 10 && beside.frames <= 1.6 * alone.frames);
}

// The same where each kind of slice always takes the same time, three times as long as alone: ours always wait for the
// end of a kernel of the host program. On a device that is that slow, empty kernels do not wait, and the times are
// believed.
TEST(times_among_a_hosts_kernels_are_not_believed)
{
    enum { BUDGET_US = 1000 };
    static const double s_alone_ms[] = {0.02}, s_longer_ms[] = {0.06};
    const first_picture alone = draw_first(s_alone_ms, 1, 0.0, BUDGET_US),
                        beside = draw_first(s_longer_ms, 1, 0.3, BUDGET_US),
                        slower = draw_first(s_longer_ms, 1, 0.0, BUDGET_US);
    printf(
        "  a step: %.0f us in %d frames alone, %.0f in %d beside the host's kernels, %.0f in %d on a slower device\n",
        alone.known_us, alone.frames, beside.known_us, beside.frames, slower.known_us, slower.frames);
    CHECK(alone.known_us > 0.0 && beside.known_us <= 1.6 * alone.known_us && slower.known_us >= 2.7 * alone.known_us);
    CHECK(10 * beside.frames <= 16 * alone.frames && slower.frames >= 2 * alone.frames);
}

// Slices that are submitted to an idle device behind a kernel of the host program's all seem to take 10 ms, in every
// frame alike. Nothing was measured before, or the text was encoded alone.
TEST(a_first_picture_behind_a_hosts_kernels_uses_its_budget)
{
    static const struct {
        double kernel_ms;
        uint32_t budget_us;
    } s_cases[] = {{0.003, 60}, {0.003, 100}, {0.006, 100}, {0.04, 1000}};
    for (size_t k = 0; k < 2 * sizeof s_cases / sizeof *s_cases; k++) {
        const bool is_text_known = k % 2 != 0;
        const double kernel_ms = s_cases[k / 2].kernel_ms;
        const uint32_t budget_us = s_cases[k / 2].budget_us;
        int frames[2] = {0}, slices[2] = {0};
        for (int is_beside = 0; is_beside < 2; is_beside++) {
            fake_reset();
            fake_kernel_times(&kernel_ms, 1);
            sumi_model* model;
            sumi_engine* engine = cuda_engine(20, &model);
            if (engine == NULL) return;
            sumi_prompt* prompt = is_text_known ? encode_prompt(engine, model, "a red fox") : NULL;
            const sumi_image_item item = {.prompt = prompt, .text = prompt == NULL ? "a red fox" : NULL, .seed = 1};
            sumi_image_desc desc = small_image(model, &item);
            desc.width = desc.height = 128;
            desc.step_count = 40;
            frames[is_beside] = draw_in_frames(engine, &desc, budget_us, is_beside ? 10.0 : 0.0, &slices[is_beside]);
            sumi_prompt_release(prompt);
            close_cuda(engine);
        }
        printf(
            "  %.3f ms a kernel, %d us a frame, %s: alone %d slices in %d frames, behind the host's kernels %d in %d\n",
            kernel_ms, (int)budget_us, is_text_known ? "text known" : "nothing known", slices[0], frames[0], slices[1],
            frames[1]);
        CHECK(10 * frames[1] <= 13 * frames[0]);
    }
}

static double known_denoise_us(const sumi_engine* engine) // of a step
{
    const sumi_plan_entry* entry = engine->runs.current.entry;
    for (size_t i = 0; entry != NULL && i < entry->plan.section_count; i++) {
        if (entry->plan.sections[i].kind == SUMI_SECTION_DENOISE) return entry->sections[i].measured_us;
    }
    return 0.0;
}

// Where such a time was believed nevertheless, as when a kernel of the host program's ran in the middle of a slice, no
// better one would be measured: the slice fits into no frame but as its first.
TEST(times_that_contain_a_hosts_kernels_are_unlearnt)
{
    enum { BUDGET_US = 100, WRONG_US = 10000 };
    static const double s_kernel_ms[] = {0.003};
    fake_reset();
    fake_kernel_times(s_kernel_ms, 1);
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = 128;
    desc.step_count = 40;
    sumi_job job;
    double before_us = 0.0, after_us = 0.0;
    fake_clock_begin(1000);
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    for (int i = 0; i < 4000 && sumi_job_poll(engine, job).state < SUMI_JOB_DONE; i++) {
        fake_complete_after(1000000);
        fake_host_computes(10.0);
        sumi_engine_update(engine, BUDGET_US);
        const int32_t step = sumi_job_poll(engine, job).step;
        const sumi_plan_entry* entry = engine->runs.current.entry;
        if (step == 10 && before_us <= 0.0 && entry != NULL) {
            before_us = known_denoise_us(engine);
            const sumi_plan* plan = &entry->plan;
            for (size_t k = 0; k < plan->slice_count; k++) {
                if (plan->sections[plan->ops[plan->slices[k].op_begin].section].kind != SUMI_SECTION_DENOISE
                    || entry->slice_us[k] <= 0.0f)
                    continue;
                entry->sections[plan->ops[plan->slices[k].op_begin].section].measured_us +=
                    entry->kind_count[k] * (WRONG_US - (double)entry->slice_us[k]);
                entry->slice_us[k] = WRONG_US;
            }
        }
        if (step == 36) after_us = known_denoise_us(engine);
        fake_complete_after(0);
        fake_finish();
    }
    fake_clock_end();
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_DONE);
    printf("  %.0f us known, %.0f 26 steps after all were made %d\n", before_us, after_us, WRONG_US);
    CHECK(before_us > 0.0 && after_us > 0.0 && after_us < 2.0 * before_us);
    sumi_job_discard(engine, job);
    close_cuda(engine);
}

// The same times on a device that is really that slow: one slice fits, the budget is exceeded by at most a second one
// now and then, and the slices' times are known after a few steps.
TEST(a_device_slower_than_predicted_is_learnt_slice_by_slice)
{
    static const double s_text[] = {0.01}, s_picture[] = {0.4};
    enum { BUDGET_US = 1500 };
    for (int is_text_known = 0; is_text_known < 2; is_text_known++) {
        fake_reset();
        fake_kernel_times(is_text_known ? s_text : s_picture, 1);
        sumi_model* model;
        sumi_engine* engine = cuda_engine(20, &model);
        if (engine == NULL) return;
        sumi_prompt* prompt = is_text_known ? encode_prompt(engine, model, "a red fox") : NULL;
        const sumi_image_item item = {.prompt = prompt, .text = prompt == NULL ? "a red fox" : NULL, .seed = 1};
        fake_kernel_times(s_picture, 1);
        sumi_image_desc desc = small_image(model, &item);
        desc.width = desc.height = 128;
        desc.step_count = 40;
        sumi_job job;
        double known = 0.0, true_us = 0.0; // of a step
        int frames = 0, early = 0, late = 0, more = 0;
        fake_clock_begin(1000);
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        for (; frames < 4000 && sumi_job_poll(engine, job).state < SUMI_JOB_DONE; frames++) {
            fake_complete_after(1000000);
            sumi_engine_update(engine, BUDGET_US);
            const int32_t step = sumi_job_poll(engine, job).step;
            const bool is_denoising = sumi_job_poll(engine, job).stage == SUMI_STAGE_DENOISE;
            if (step == 8 && known <= 0.0) {
                known = known_denoise_us(engine);
                true_us = -1e6 * (double)sumi_job_poll(engine, job).device_seconds / 28.0;
            }
            if (step == 36 && true_us < 0.0) true_us += 1e6 * (double)sumi_job_poll(engine, job).device_seconds / 28.0;
            if (is_denoising && step >= 8 && step < 36) {
                late++;
                more += engine->runs.current.pending_count > 1;
                CHECK(engine->runs.current.pending_count <= 2);
            }
            early += is_denoising && step < 8;
            fake_complete_after(0);
            fake_finish();
        }
        fake_clock_end();
        CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_DONE);
        printf(
            "  %s: %d frames of 8 steps, then %d of 28, %d with a second slice; a step takes %.0f us, %.0f are known "
            "after 8 steps\n",
            is_text_known ? "text known" : "nothing known", early, late, more, true_us, known);
        CHECK(true_us > 0.0 && known > 0.8 * true_us && known < 1.2 * true_us && 3 * more < late);
        sumi_job_discard(engine, job);
        sumi_prompt_release(prompt);
        close_cuda(engine);
    }
}

// A device on which pictures take three times as long as the text made believe, and that nobody else uses: that is
// doubted at first, and soon believed.
TEST(a_first_picture_that_takes_longer_is_soon_believed)
{
    static const double s_text[] = {0.02}, s_picture[] = {0.06};
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    fake_kernel_times(s_text, 1);
    sumi_prompt* prompt = encode_prompt(engine, model, "a red fox");
    const sumi_image_item item = {.prompt = prompt, .seed = 1};
    sumi_image_desc desc = small_image(model, &item);
    desc.step_count = 20;
    fake_kernel_times(s_picture, 1);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    double known[2] = {0.0};
    int32_t frames = 0, doubted[2] = {0};
    while (sumi_job_poll(engine, job).step < 19 && run_updates(engine, job, 1) && count_frame(&frames)) {
        const int32_t step = sumi_job_poll(engine, job).step;
        const sumi_plan_entry* entry = engine->runs.current.entry;
        if (entry == NULL || (step != 1 && step != 6)) continue;
        known[step > 1] = known_us(engine);
        doubted[step > 1] = 0;
        for (size_t i = 0; i < entry->plan.slice_count; i++) {
            const bool is_denoising = entry->plan.slices[i].op_begin >= 0
                                   && entry->plan.sections[entry->plan.ops[entry->plan.slices[i].op_begin].section].kind
                                          == SUMI_SECTION_DENOISE;
            doubted[step > 1] += is_denoising && entry->doubts[i].alike_count > 0;
        }
    }
    printf("  after a step %.0f us, %d kinds doubted; after six %.0f, %d\n", known[0], (int)doubted[0], known[1],
           (int)doubted[1]);
    CHECK(doubted[0] > 0 && doubted[1] == 0 && known[1] > 1.1 * known[0]);
    sumi_job_discard(engine, job);
    sumi_prompt_release(prompt);
    close_cuda(engine);
}

// The driver waits for everything in the context before it frees memory, loads or unloads a module, or takes memory for
// more graphs than there ever were: beside a busy host program such an update takes as long as the host program's
// kernels. A first picture, with its text or after it, does none of that.
TEST(a_first_picture_frees_nothing_and_loads_nothing)
{
    static const char* const s_entries[] = {"cuMemFree", "cuMemFreeHost", "cuMemHostUnregister", "cuModuleLoadDataEx",
                                            "cuModuleUnload"};
    enum { ENTRIES = sizeof s_entries / sizeof *s_entries };
    for (int is_encoded = 0; is_encoded < 2; is_encoded++) {
        fake_reset();
        sumi_model* model;
        sumi_engine* engine = cuda_engine(20, &model);
        if (engine == NULL) return;
        const int pieces = fake_graph_pieces();
        CHECK_NUMBER(fake_held_kind("graph exec"), 0); // their memory is for those of the picture
        sumi_prompt* prompt = is_encoded ? encode_prompt(engine, model, "a red fox") : NULL;
        const uint64_t graphs = fake_calls("cuGraphInstantiateWithFlags");
        const sumi_image_item item = {.prompt = prompt, .text = prompt == NULL ? "a red fox" : NULL, .seed = 1};
        sumi_image_desc desc = small_image(model, &item);
        desc.width = desc.height = 512;
        uint64_t before[ENTRIES];
        int slices;
        for (size_t i = 0; i < ENTRIES; i++) before[i] = fake_calls(s_entries[i]);
        const uint64_t arena = atomic_load(&engine->memory.arena_bytes);
        (void)draw_in_frames(engine, &desc, 4000, 10.0, &slices);
        CHECK(atomic_load(&engine->memory.arena_bytes) > arena && (arena > 0) == (is_encoded != 0));
        for (size_t i = 0; i < ENTRIES; i++) CHECK_NUMBER(fake_calls(s_entries[i]) - before[i], 0);
        CHECK(fake_calls("cuGraphInstantiateWithFlags") > graphs);
        CHECK_NUMBER(fake_graph_pieces(), pieces);
        sumi_prompt_release(prompt);
        close_cuda(engine);
    }
}

// Slices of 1 us are far more than there may be graphs. Those without a graph are launched op by op.
TEST(a_picture_of_many_slices_takes_no_more_memory_for_graphs)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(1, &model);
    if (engine == NULL) return;
    const int pieces = fake_graph_pieces();
    const sumi_image_item item = {.text = "a red fox", .seed = 1};
    sumi_image_desc desc = small_image(model, &item);
    desc.width = desc.height = 1024;
    int slices;
    (void)draw_in_frames(engine, &desc, 4000, 0.0, &slices);
    CHECK_NUMBER(fake_held_kind("graph exec"), SUMI_CUDA_MAX_GRAPHS);
    CHECK_NUMBER(fake_graph_pieces(), pieces);
    CHECK(slices > SUMI_CUDA_MAX_GRAPHS && fake_graph_launches() > 0);
    close_cuda(engine);
}

// The second of two pictures, by sumi_job_wait or in frames that all of it fits.
typedef struct warm_picture {
    uint64_t hash;     // of its kernels
    int graph_count;   // launches of graphs
    int lone_count;    // kernels that were launched one by one
    int made_count;    // graphs that were made for it
    int waking_events; // that wake a thread of the driver
} warm_picture;

static warm_picture draw_warm(sumi_engine* engine, const sumi_image_desc* desc, uint32_t budget_us)
{
    warm_picture seen = {0};
    for (int i = 0; i < 2; i++) {
        sumi_image image;
        int slices;
        const int woken = fake_wakes();
        const uint64_t alone = fake_calls("cuLaunchKernel") + fake_calls("cuLaunchKernelEx"),
                       made = fake_calls("cuGraphInstantiateWithFlags");
        fake_count_launches(true);
        if (budget_us > 0) (void)draw_in_frames(engine, desc, budget_us, 0.0, &slices);
        else CHECK_NUMBER(draw(engine, desc, &image), SUMI_OK);
        if (budget_us == 0) sumi_images_release(engine, &image, 1);
        seen =
            (warm_picture){.hash = fake_launch_hash(),
                           .graph_count = fake_graph_launches(),
                           .lone_count = (int)(fake_calls("cuLaunchKernel") + fake_calls("cuLaunchKernelEx") - alone),
                           .made_count = (int)(fake_calls("cuGraphInstantiateWithFlags") - made),
                           .waking_events = fake_wakes() - woken};
    }
    return seen;
}

// Without a budget, slices in a row are one graph and one event. Their kernels are the same. A change between calls with
// and without a budget makes the other graphs once.
TEST(slices_are_submitted_in_groups_where_no_call_has_a_budget)
{
    enum { BUDGET_US = 4000, STEPS = 6 };
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = 1024;
    desc.step_count = STEPS;
    const warm_picture grouped = draw_warm(engine, &desc, 0), single = draw_warm(engine, &desc, BUDGET_US),
                       again = draw_warm(engine, &desc, 0);
    printf("  graphs launched: %d of groups, %d of slices\n", grouped.graph_count, single.graph_count);
    CHECK(grouped.graph_count > STEPS && 4 * grouped.graph_count < single.graph_count);
    CHECK(grouped.hash == single.hash && again.hash == single.hash);
    CHECK_NUMBER(again.graph_count, grouped.graph_count);
    CHECK(grouped.lone_count <= 1 && single.lone_count <= 1 && again.lone_count <= 1); // of the picture's pixels
    CHECK_NUMBER(grouped.made_count + single.made_count + again.made_count, 0);
    CHECK(grouped.waking_events <= 1 && single.waking_events == 0); // waits for the end
    close_cuda(engine);
}

// Calls that this thread makes for each step of a warm picture, where no call has a budget: the difference of two
// pictures of different lengths.
typedef struct step_calls {
    double kernels, graphs, events, questions;
} step_calls;

static step_calls count_calls(sumi_engine* engine, sumi_image_desc* desc)
{
    enum { SHORT = 2, LONG = 8, ENTRIES = 6 };
    static const char* const s_entries[ENTRIES] = {"cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch",
                                                   "cuEventRecord",  "cuEventQuery",     "cuEventElapsedTime"};
    double counts[2][ENTRIES];
    for (int i = 0; i < 6; i++) { // the first pictures of each length learn
        sumi_image image;
        uint64_t before[ENTRIES];
        for (int k = 0; k < ENTRIES; k++) before[k] = fake_calls(s_entries[k]);
        desc->step_count = i < 3 ? SHORT : LONG;
        CHECK_NUMBER(draw(engine, desc, &image), SUMI_OK);
        sumi_images_release(engine, &image, 1);
        for (int k = 0; k < ENTRIES; k++) counts[i / 3][k] = (double)(fake_calls(s_entries[k]) - before[k]);
    }
    double each[ENTRIES];
    for (int k = 0; k < ENTRIES; k++) each[k] = (counts[1][k] - counts[0][k]) / (LONG - SHORT);
    return (step_calls){each[0] + each[1], each[2], each[3], each[4] + each[5]};
}

// The time of a step as it was measured last, and how many slices it has, in the plan that has most of them.
static int32_t slices_of_a_step(const sumi_engine* engine, double* out_us)
{
    int32_t most = 0;
    for (int32_t e = 0; e < SUMI_PLAN_CACHE_SIZE; e++) {
        const sumi_plan_entry* entry = &engine->cache.entries[e];
        for (size_t i = 0; entry->model != NULL && i < entry->plan.section_count; i++) {
            const sumi_section* section = &entry->plan.sections[i];
            const int32_t count = section->slice_end - section->slice_begin;
            if (section->kind != SUMI_SECTION_DENOISE || count <= most) continue;
            most = count;
            *out_us = sumi_section_us(entry, i);
        }
    }
    return most;
}

// However many slices a step has, it takes a few calls of the driver for each 8 ms of it: also if its slices take far
// less time or far more than they were planned to, and although the times of slices that are alike differ by a tenth.
TEST(a_step_takes_few_calls_where_no_call_has_a_budget)
{
    enum { TIMES = 8 };
    static const double s_kernel_ms[] = {0.02, 0.3, 1.0},
                        s_times[TIMES] = {1.0, 1.07, 0.97, 1.04, 1.1, 0.95, 1.02, 1.09}; // over and over
    for (size_t c = 0; c < sizeof s_kernel_ms / sizeof *s_kernel_ms; c++) {
        fake_reset();
        fake_multiprocessors(1); // slices are planned to be slow
        sumi_model* model;
        sumi_engine* engine = cuda_engine(200, &model);
        if (engine == NULL) return;
        double times[TIMES], step_us = 0.0;
        for (int i = 0; i < TIMES; i++) times[i] = s_times[i] * s_kernel_ms[c];
        fake_kernel_times(times, TIMES);
        sumi_image_desc desc = small_image(model, &s_item);
        desc.width = desc.height = 1024;
        const step_calls calls = count_calls(engine, &desc);
        const int32_t slices = slices_of_a_step(engine, &step_us);
        printf("  a step of %d slices, %.1f ms: %.1f kernels, %.1f graphs, %.1f events, %.1f questions\n", (int)slices,
               1e-3 * step_us, calls.kernels, calls.graphs, calls.events, calls.questions);
        const double most = 2.0 * (step_us / 8000.0 + 2.0);
        CHECK(slices >= 16 && step_us > 0.0 && calls.kernels < 0.1);
        CHECK(calls.graphs <= most && calls.events <= most && calls.questions <= most);
        fake_kernel_times(NULL, 0);
        close_cuda(engine);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(slices_are_submitted_in_groups_where_no_call_has_a_budget);
    RUN(a_step_takes_few_calls_where_no_call_has_a_budget);
    RUN(no_more_than_the_budget_is_on_its_way);
    RUN(a_frame_asks_the_device_once);
    RUN(a_frame_that_finds_its_slice_over_submits_the_next_one);
    RUN(noise_in_pieces_is_the_noise_of_one_call);
    RUN(noise_is_drawn_while_the_device_works);
    RUN(slices_of_a_kind_share_their_times);
    RUN(a_first_picture_beside_a_hosts_kernels_uses_its_budget);
    RUN(times_among_a_hosts_kernels_are_not_believed);
    RUN(a_first_picture_behind_a_hosts_kernels_uses_its_budget);
    RUN(times_that_contain_a_hosts_kernels_are_unlearnt);
    RUN(a_device_slower_than_predicted_is_learnt_slice_by_slice);
    RUN(a_first_picture_that_takes_longer_is_soon_believed);
    RUN(a_first_picture_frees_nothing_and_loads_nothing);
    RUN(a_picture_of_many_slices_takes_no_more_memory_for_graphs);
    RUN(what_others_do_on_the_gpu_does_not_shrink_the_budget);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
