// Step caching with the CUDA backend on the fake driver (fake_cuda). Kernels do nothing there; the one that
// measures the change of a residual is played by this test, so that evaluations are reused.
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "cuda_fixture.h"
#include "fake_cuda.h"
#include "jobs/engine_state.h"
#include "kernels/residuals.h"
#include "sampling/reuse.h"

#define STEPS 14
#define LARGE_CHANGE 10.0f
#define MOST 9 // of STEPS evaluations

// The changes that whole evaluations measure, one after another, over and over; errors are half of the next one. Counts
// both.
static const float s_steady[] = {0.01f}, s_uneven[] = {0.3f, 0.02f, 0.5f, 0.001f};
typedef struct play {
    const float* changes;
    int count, measured, errors;
} play;

static void measure(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data)
{
    play* p = user_data;
    sumi_residual_change_args args;
    if (strcmp(kernel, "sumi_residual_change") != 0) return;
    CHECK(bytes >= sizeof args);
    memcpy(&args, parameters, sizeof args);
    const bool is_error = args.x.is_float; // of the prediction; the residual is an activation
    for (int32_t i = args.part_begin; i < args.part_end; i++) {
        float* sums = (float*)(uintptr_t)args.change + 2 * (size_t)i;
        sums[0] = (is_error ? 0.5f : 1.0f) * p->changes[p->measured % p->count] * 100.0f;
        sums[1] = 100.0f;
    }
    // the last part ends the measurement, whichever slices it was cut into
    if ((int64_t)args.part_end * args.part_size < args.count) return;
    if (is_error) p->errors++;
    else p->measured++;
}

static sumi_image_desc cached_image(sumi_model* model)
{
    static const sumi_image_item s_guided = {.text = "a red fox", .negative_text = "grey", .seed = 7};
    sumi_image_desc desc = small_image(model, &s_guided);
    desc.step_count = STEPS;
    desc.guidance.scale = 2.0f;
    desc.step_cache = LARGE_CHANGE;
    desc.shift = 1.0f;
    return desc;
}

typedef struct counts {
    int32_t evaluations, reused;
    int launches;
    float db;
} counts;

static counts draw_counts(sumi_engine* engine, const sumi_image_desc* desc, play* p, uint32_t budget_us)
{
    sumi_image image = {.reused_count = -1};
    sumi_job job;
    uint64_t frame_waits = 0;
    p->measured = p->errors = 0;
    fake_count_launches(true);
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    for (int i = 0; budget_us > 0 && i < 200000 && sumi_job_poll(engine, job).state < SUMI_JOB_DONE; i++) {
        const uint64_t waits = fake_calls("cuEventSynchronize") + fake_calls("cuStreamSynchronize");
        const bool runs = sumi_job_poll(engine, job).stage == SUMI_STAGE_DENOISE;
        sumi_engine_update(engine, budget_us);
        if (runs) frame_waits += fake_calls("cuEventSynchronize") + fake_calls("cuStreamSynchronize") - waits;
    }
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
    const counts result = {image.evaluation_count, image.reused_count, fake_launch_count(), image.predicted_db};
    sumi_images_release(engine, &image, 1);
    // A frame waits for nothing: only reads of a change, of a preview and of results ask for events, which have passed.
    CHECK(frame_waits <= (uint64_t)(p->measured + p->errors + (desc->preview_every > 0 ? STEPS : 0) + 3));
    CHECK_NUMBER(p->measured, result.evaluations - result.reused);
    CHECK_NUMBER(p->errors, p->measured);
    return result;
}

// The same evaluations are reused at any pace, with slices of any length, with graphs and without, and however late the
// device is.
TEST(decisions_depend_on_the_numbers_alone)
{
    static const float* const s_lists[] = {s_steady, s_uneven, s_uneven};
    static const int s_lengths[] = {1, 4, 4};
    for (int list = 0; list < 3; list++) {
        counts first = {-1, -1, 0, 0.0f};
        for (int variant = 0; variant < 12 && t_errors == 0; variant++) {
            fake_reset();
            play p = {s_lists[list], s_lengths[list], 0, 0};
            fake_on_launch(measure, &p);
            if (variant % 4 == 3) fake_refuse_graphs(true);
            sumi_model* model;
            sumi_engine* engine = cuda_engine_with(variant % 6 == 5 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE,
                                                   variant % 3 == 0   ? 100
                                                   : variant % 3 == 1 ? 20
                                                                      : 0,
                                                   &model);
            if (engine == NULL) return;
            fake_complete_after(variant % 2 == 0 ? 0 : 3);
            sumi_image_desc desc = cached_image(model);
            desc.step_cache = list == 0 ? LARGE_CHANGE : list == 1 ? 0.3f : 0.0f;
            desc.step_cache_db = list == 2 ? 30.0f : 0.0f;
            desc.preview_every = variant % 5 == 1;
            const uint32_t budgets[] = {0, 1, 200, 5000};
            const counts got = draw_counts(engine, &desc, &p, variant % 6 == 5 ? 0 : budgets[variant % 4]);
            if (variant == 0) first = got;
            CHECK_NUMBER(got.evaluations, STEPS);
            CHECK_NUMBER(got.reused, first.reused);
            CHECK(got.db == first.db && got.db > 0.0f);
            if (t_errors != 0) printf("  list %d, variant %d\n", list, variant);
            fake_complete_after(0);
            fake_finish();
            close_cuda(engine);
        }
        printf("  %d of %d reused, %.1f dB\n", first.reused, first.evaluations, (double)first.db);
        CHECK(list == 0 ? first.reused == MOST : first.reused > 0 && first.reused < MOST);
    }
}

// With a budget weights are streamed, and those that every evaluation uses stay.
TEST(streamed_weights_change_no_decision)
{
    fake_reset();
    play p = {s_uneven, 4, 0, 0};
    fake_on_launch(measure, &p);
    sumi_model* model;
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = cached_image(model);
    desc.step_cache = 0.3f;
    const counts want = draw_counts(engine, &desc, &p, 0);
    sumi_memory memory, plain;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    desc.step_cache = 0.0f;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &plain), SUMI_OK);
    CHECK(memory.arena > plain.arena && memory.weights == plain.weights); // the residuals
    close_cuda(engine);
    for (int i = 1; i < 6 && t_errors == 0; i++) {
        fake_reset();
        fake_on_launch(measure, &p);
        sumi_engine_desc ed = cuda_desc();
        ed.memory_budget_bytes = memory.arena + memory.weights * (uint64_t)i / 6 + 100000;
        engine = open_engine(&ed, &model);
        CHECK(engine != NULL);
        if (engine == NULL) return;
        desc = cached_image(model);
        desc.step_cache = 0.3f;
        sumi_memory less;
        const sumi_result result = sumi_image_memory(engine, &desc, &less);
        if (result == SUMI_OK) {
            CHECK(less.streamed > 0 && less.weights + less.arena <= ed.memory_budget_bytes);
            const counts got = draw_counts(engine, &desc, &p, 0);
            CHECK(got.evaluations == want.evaluations && got.reused == want.reused);
        }
        CHECK(result == SUMI_OK || result == SUMI_BUDGET_TOO_SMALL);
        close_cuda(engine);
    }
}

TEST(jobs_that_reuse_can_be_paused_and_cancelled_after_every_step)
{
    fake_reset();
    play p = {s_steady, 1, 0, 0};
    fake_on_launch(measure, &p);
    sumi_model* model;
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    const sumi_image_desc desc = cached_image(model), other = quick_image(model);
    const counts want = draw_counts(engine, &desc, &p, 0);
    // About forty moments of a job, however many updates it takes here.
    sumi_job whole;
    int count = 0;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &whole), SUMI_OK);
    while (count < 100000 && run_updates(engine, whole, 1)) count++;
    sumi_job_discard(engine, whole);
    const int distance = (count / 40) | 1; // odd, for the parity decides when slices end
    bool is_over = false;
    int resumed = 0;
    for (int updates = distance; !is_over && t_errors == 0; updates += distance) {
        for (int cancels = 0; cancels < 2; cancels++) {
            sumi_job job;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            fake_complete_after(updates % 2 == 0 ? 0 : 2);
            is_over = !run_updates(engine, job, updates);
            if (cancels) sumi_job_cancel(engine, job);
            else (void)sumi_job_pause(engine, job, true);
            CHECK(draw_hash(engine, &other) != 0);
            resumed += sumi_job_poll(engine, job).state == SUMI_JOB_QUEUED && sumi_job_poll(engine, job).step > 2;
            (void)sumi_job_pause(engine, job, false);
            const sumi_result result = run_to_end(engine, job);
            CHECK(result == SUMI_OK || (cancels && result == SUMI_CANCELLED));
            sumi_image image = {.reused_count = -1};
            CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), result);
            if (result != SUMI_OK) continue;
            CHECK(image.evaluation_count == want.evaluations && image.reused_count == want.reused);
            sumi_images_release(engine, &image, 1);
        }
    }
    CHECK(resumed > 3);
    fake_complete_after(0);
    fake_finish();
    close_cuda(engine);
}

// Jobs of the same plan follow each other without a gap: copies of one do not meet those of the next.
TEST(queued_jobs_reuse_the_same)
{
    fake_reset();
    play p = {s_steady, 1, 0, 0};
    fake_on_launch(measure, &p);
    sumi_model* model;
    sumi_engine* engine = cuda_engine(100, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = cached_image(model);
    const counts want = draw_counts(engine, &desc, &p, 0);
    // a warm job allocates nothing
    const long long from_host = s_host.count;
    const uint64_t device = fake_allocation_count(), graphs = fake_calls("cuGraphInstantiateWithFlags");
    (void)draw_counts(engine, &desc, &p, 0);
    CHECK_NUMBER(s_host.count, from_host);
    CHECK_NUMBER(fake_allocation_count(), device);
    CHECK_NUMBER(fake_calls("cuGraphInstantiateWithFlags"), graphs);
    fake_complete_after(3);
    sumi_job jobs[4];
    for (int i = 0; i < 4; i++) CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
    for (int i = 0; i < 4; i++) {
        sumi_image image;
        CHECK_NUMBER(run_to_end(engine, jobs[i]), SUMI_OK);
        CHECK_NUMBER(sumi_fetch_images(engine, jobs[i], &image, 1), SUMI_OK);
        CHECK(image.evaluation_count == want.evaluations && image.reused_count == want.reused);
        sumi_images_release(engine, &image, 1);
    }
    fake_complete_after(0);
    fake_finish();
    close_cuda(engine);
}

// Allocations, and the calls that are made for what is measured.
TEST(failures_leave_nothing)
{
    static const char* const s_entries[] = {"cuMemcpyDtoHAsync", "cuEventRecord", "cuLaunchKernel", "cuGraphLaunch"};
    for (int entry = -1; entry < 4; entry++) {
        bool has_failed = true;
        for (int nth = 1; has_failed && t_errors == 0; nth += entry < 1 ? 1 : 97) {
            fake_reset();
            play p = {s_steady, 1, 0, 0};
            fake_on_launch(measure, &p);
            sumi_model* model;
            sumi_engine* engine = cuda_engine(100, &model);
            if (engine == NULL) return;
            const sumi_image_desc desc = cached_image(model);
            if (entry < 0) fake_fail_allocation(nth);
            else fake_fail_call(s_entries[entry], nth, 1);
            sumi_image image;
            const sumi_result result = draw(engine, &desc, &image);
            has_failed = entry < 0 ? fake_fail_allocation(0) : fake_fail_call(NULL, 0, 0);
            if (result == SUMI_OK) sumi_images_release(engine, &image, 1);
            CHECK(has_failed || result == SUMI_OK);
            CHECK(draw(engine, &desc, &image) == SUMI_OK && image.reused_count == MOST);
            sumi_images_release(engine, &image, 1);
            close_cuda(engine);
            if (t_errors != 0) printf("  %s, %d\n", entry < 0 ? "allocation" : s_entries[entry], nth);
        }
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(decisions_depend_on_the_numbers_alone);
    RUN(streamed_weights_change_no_decision);
    RUN(jobs_that_reuse_can_be_paused_and_cancelled_after_every_step);
    RUN(queued_jobs_reuse_the_same);
    RUN(failures_leave_nothing);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
