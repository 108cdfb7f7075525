// The CUDA backend inside a host, on a GPU: every byte comes back, device memory that fails, cancels and pauses at any
// moment, damaged weights.
#include "cuda_host_fixture.h"
#include <dirent.h>
#include <sumi.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- Everything comes back ------------------------------------------------------------------------------------------

TEST(engines_are_created_and_destroyed)
{
    context_handle primary;
    // so that the context, and what the driver keeps in it, outlives the engines
    CHECK_NUMBER(s_cu.primary_retain(&primary, 0), 0);
    CHECK_NUMBER(s_cu.context_set(primary), 0);
    // Other programs take and return memory of the device as they please. What engines kept would be missing more
    // behind every four of them, so the least that is missing tells.
    size_t before = 0, after = 0, total;
    int64_t least = INT64_MAX;
    for (int i = 0; i <= 20; i++) {
        if (i % 4 == 0) {
            CHECK_NUMBER(s_cu.memory_get(&after, &total), 0);
            const int64_t missing = (int64_t)before - (int64_t)after;
            if (i > 4 && missing < least) least = missing; // the first ones make the driver's own pools
            before = after;
        }
        if (i == 20) break;
        sumi_engine_desc ed = gpu_desc();
        if (i % 2 == 1) ed.device_allocator = NULL; // the driver's
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
        if (engine != NULL && i % 4 < 2) {
            sumi_model* model = load(engine, TINY, SUMI_WEIGHTS_AUTO, NULL);
            CHECK(model != NULL);
            sumi_image_desc desc = picture(model);
            if (model != NULL) CHECK(draw_hash(engine, &desc, 0) == s_whole);
        }
        close_engine(engine);
    }
    printf("  device memory missing behind four engines: %.1f MiB at least\n", (double)least / 1048576.0);
    CHECK(least < 8 << 20); // the driver rounds
    CHECK_NUMBER(s_cu.context_set(NULL), 0);
    CHECK_NUMBER(s_cu.primary_release(0), 0);
}

TEST(a_warm_job_allocates_nothing)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = picture(model);
    desc.preview_every = 1;
    CHECK(draw_hash(engine, &desc, 0) == s_whole);
    // the budgets of updates make a plan of shorter slices, in the first one or before the second
    for (int i = 0; i < 2; i++) CHECK(draw_hash(engine, &desc, 500) == s_whole);
    const long device = s_host.count;
    const uint64_t host_count = sumi_engine_get_info(engine).allocation_count;
    CHECK(draw_hash(engine, &desc, 500) == s_whole);
    CHECK_NUMBER(s_host.count, device);
    CHECK_NUMBER(sumi_engine_get_info(engine).allocation_count, host_count);
    const sumi_engine_info info = sumi_engine_get_info(engine);
    CHECK_NUMBER(info.held_bytes[SUMI_MEMORY_WEIGHTS] + info.held_bytes[SUMI_MEMORY_ARENA]
                     + info.held_bytes[SUMI_MEMORY_STAGING],
                 s_host.live_bytes);
    sumi_model_close(model);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS], 0);
    close_engine(engine);
}

TEST(the_nth_device_allocation_may_fail)
{
    int failures = 0;
    long n = 1;
    for (bool fails = true; fails && n < 300 && t_errors == 0; n++) {
        sumi_engine_desc ed = gpu_desc();
        s_host.fail_at = n;
        sumi_engine* engine = NULL;
        sumi_result result = sumi_engine_create(&ed, &engine);
        CHECK((result == SUMI_OK) == (engine != NULL));
        sumi_model* model = NULL;
        if (engine != NULL) {
            model = load(engine, TINY, SUMI_WEIGHTS_AUTO, &result);
            if (model != NULL) {
                sumi_image_desc desc = picture(model);
                sumi_job job;
                CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
                result = finish(engine, job, 0);
                // also with less memory: streamed, or in smaller batches, which may choose other tiles
                if (result == SUMI_OK) {
                    const uint64_t hash = take_hash(engine, job, &desc);
                    CHECK(hash != 0);
                    if (hash != s_whole) printf("  without allocation %ld the picture has other bits\n", n);
                } else {
                    sumi_job_discard(engine, job);
                }
            }
        }
        CHECK(result == SUMI_OK || result == SUMI_OUT_OF_DEVICE_MEMORY || result == SUMI_OUT_OF_HOST_MEMORY);
        if (result != SUMI_OK) CHECK(s_host.text[0] != '\0');
        failures += result != SUMI_OK;
        fails = s_host.count >= n;
        s_host.fail_at = 0;
        if (engine != NULL) { // and goes on as if nothing had been
            if (model == NULL) model = load(engine, TINY, SUMI_WEIGHTS_AUTO, NULL);
            CHECK(model != NULL);
            sumi_image_desc desc = picture(model);
            if (model != NULL) CHECK(draw_hash(engine, &desc, 0) == s_whole);
        }
        close_engine(engine);
    }
    printf("  %ld allocations failed, %d times a job or the engine did\n", n - 2, failures);
    CHECK(n > 5 && failures > 0);
}

// ---- Cancelling -----------------------------------------------------------------------------------------------------

TEST(jobs_can_be_cancelled_at_any_moment)
{
    uint32_t state = 12345;
    sumi_engine_desc ed = gpu_desc();
    ed.max_slice_us = 50;
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    int stages[SUMI_STAGE_COUNT] = {0}, cancelled = 0;
    for (int i = 0; i < 200 && t_errors == 0; i++) {
        state = state * 1664525u + 1013904223u;
        const uint32_t random = state >> 8;
        sumi_image_desc desc = picture(model);
        desc.preview_every = (int32_t)(random & 1);
        desc.step_count = 4 + (int32_t)(random >> 1 & 1) * 12;
        sumi_model_desc md = sumi_model_defaults();
        md.path = TINY;
        sumi_prompt_desc pd = sumi_prompt_defaults(model);
        pd.text = "a lighthouse";
        sumi_job job = {0};
        const int kind = i % 8 == 3 ? 1 : i % 8 == 6 ? 2 : 0;
        CHECK_NUMBER(kind == 1   ? sumi_submit_model(engine, &md, &job)
                     : kind == 2 ? sumi_submit_prompt(engine, &pd, &job)
                                 : sumi_submit_images(engine, &desc, &job),
                     SUMI_OK);
        // By how far it is, not by frames: how many of those a job takes, other programs on the GPU decide as well.
        const float until = (float)((random >> 4) % 20) / 20.0f;
        while (timed_poll(engine, job).state < SUMI_JOB_DONE && timed_poll(engine, job).progress < until)
            timed_update(engine, job, 100);
        for (uint32_t u = 0; u < (random >> 9) % 4; u++) timed_update(engine, job, 100);
        const sumi_job_status before = timed_poll(engine, job);
        sumi_job_cancel(engine, job);
        timed_update(engine, job, 1);
        const sumi_job_status after = timed_poll(engine, job);
        CHECK_NUMBER(after.state, before.state >= SUMI_JOB_DONE ? SUMI_JOB_DONE : SUMI_JOB_CANCELLED);
        cancelled += after.state == SUMI_JOB_CANCELLED;
        stages[before.stage] += after.state == SUMI_JOB_CANCELLED;
        sumi_job_discard(engine, job);
        CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
        desc = picture(model);
        if (i % 20 == 19) CHECK(draw_hash(engine, &desc, 0) == s_whole);
    }
    printf("  %d cancelled; waiting %d, loading %d, preparing %d, text %d, denoising %d, decoding %d, transfer %d\n",
           cancelled, stages[0], stages[1], stages[2], stages[3], stages[5], stages[6], stages[7]);
    CHECK(cancelled > 40 && stages[SUMI_STAGE_DENOISE] > 0 && stages[SUMI_STAGE_LOAD] > 0);
    sumi_image_desc desc = picture(model);
    CHECK(draw_hash(engine, &desc, 0) == s_whole);
    close_engine(engine);
}

TEST(a_paused_job_keeps_its_bits)
{
    static const sumi_solver s_solvers[] = {SUMI_SOLVER_EULER, SUMI_SOLVER_HEUN, SUMI_SOLVER_DPMPP_2M};
    sumi_engine_desc ed = gpu_desc();
    ed.max_slice_us = 50;
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, TINY, &model);
    if (engine == NULL) return;
    int gave_way = 0;
    for (int i = 0; i < 60 && t_errors == 0; i++) {
        sumi_image_desc desc = picture(model), other = picture(model);
        desc.solver = s_solvers[i % 3];
        desc.step_count = 8;
        const uint64_t want = draw_hash(engine, &desc, 0), want_other = draw_hash(engine, &other, 0);
        sumi_job job, beside;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        const float until = (float)i / 60.0f;
        while (timed_poll(engine, job).state < SUMI_JOB_DONE && timed_poll(engine, job).progress < until)
            timed_update(engine, job, 100);
        (void)sumi_job_pause(engine, job, true);
        CHECK_NUMBER(sumi_submit_images(engine, &other, &beside), SUMI_OK);
        CHECK_NUMBER(finish(engine, beside, 0), SUMI_OK);
        CHECK(take_hash(engine, beside, &other) == want_other);
        gave_way += timed_poll(engine, job).state == SUMI_JOB_QUEUED;
        (void)sumi_job_pause(engine, job, false);
        CHECK_NUMBER(finish(engine, job, 0), SUMI_OK);
        CHECK(take_hash(engine, job, &desc) == want);
    }
    printf("  %d pauses\n", gave_way);
    CHECK(gave_way > 20);
    close_engine(engine);
}

TEST(engines_can_go_in_the_middle)
{
    for (int i = 0; i < 6; i++) {
        sumi_engine_desc ed = gpu_desc();
        ed.max_slice_us = 100;
        ed.pump = i % 2 == 1 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
        if (engine == NULL) return;
        if (i < 2) { // while the kernels are being loaded
            sumi_model_desc md = sumi_model_defaults();
            md.path = TINY;
            sumi_job job;
            CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
            for (int u = 0; u < 10; u++) timed_update(engine, job, 1000);
        } else {
            sumi_model* model = load(engine, TINY, SUMI_WEIGHTS_AUTO, NULL);
            sumi_image_desc desc = picture(model);
            desc.step_count = 200;
            sumi_job job;
            if (model != NULL) CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            for (int u = 0; model != NULL && u < 100000 && timed_poll(engine, job).stage < SUMI_STAGE_DENOISE; u++)
                timed_update(engine, job, 1000);
            if (i >= 4 && model != NULL) {
                sumi_model_close(model);
                CHECK_NUMBER(timed_poll(engine, job).state, SUMI_JOB_CANCELLED);
            }
        }
        close_engine(engine);
    }
}

// ---- Damaged weights ------------------------------------------------------------------------------------------------

static bool copy_file(const char* from, const char* to, bool damages)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    unsigned char buffer[4096];
    uint64_t at = 0, data = 0; // data: where a safetensors file's tensors begin
    bool is_good = in != NULL && out != NULL;
    for (size_t n; is_good && (n = fread(buffer, 1, sizeof buffer, in)) > 0; at += n) {
        for (int i = 7; at == 0 && i >= 0; i--) data = data << 8 | buffer[i];
        for (size_t i = 0; damages && i < n; i++) {
            if (at + i >= data + 8) buffer[i] = 0xff; // NaN in every float type
        }
        is_good = fwrite(buffer, 1, n, out) == n;
    }
    if (in != NULL) fclose(in);
    if (out != NULL) is_good = fclose(out) == 0 && is_good;
    return is_good;
}

// A checkpoint's folder; the files of one part are damaged on the way. With `to` NULL it removes what a copy made.
static bool copy_tree(const char* from, const char* to, const char* damaged_part)
{
    DIR* folder = opendir(from);
    bool is_good = folder != NULL && (to == NULL || mkdir(to, 0700) == 0);
    for (struct dirent* entry; is_good && (entry = readdir(folder)) != NULL;) {
        char a[512], b[512] = "";
        if (entry->d_name[0] == '.') continue;
        if (snprintf(a, sizeof a, "%s/%s", from, entry->d_name) >= (int)sizeof a
            || (to != NULL && snprintf(b, sizeof b, "%s/%s", to, entry->d_name) >= (int)sizeof b))
            is_good = false;
        struct stat info;
        if (!is_good || stat(a, &info) != 0) is_good = false;
        else if (S_ISDIR(info.st_mode)) is_good = copy_tree(a, to != NULL ? b : NULL, damaged_part);
        else if (to == NULL) is_good = unlink(a) == 0;
        else
            is_good = copy_file(a, b,
                                damaged_part != NULL && strstr(a, damaged_part) != NULL
                                    && strstr(a, ".safetensors") != NULL && strstr(a, ".json") == NULL);
    }
    if (folder != NULL) closedir(folder);
    if (to == NULL && is_good) is_good = rmdir(from) == 0;
    return is_good;
}

static void check_not_finite(sumi_engine* engine, sumi_model* model, const char* part)
{
    const sumi_image_desc desc = picture(model);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    const sumi_result result = finish(engine, job, 0);
    if (result != SUMI_NOT_FINITE) printf("  %s is all NaN\n", part);
    CHECK_NUMBER(result, SUMI_NOT_FINITE);
    CHECK(timed_poll(engine, job).message[0] != '\0');
    sumi_image image;
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_NOT_FINITE);
}

TEST(weights_that_are_not_finite_give_a_result)
{
    static const char* const s_parts[] = {"/vae/", "/transformer/", "/text_encoder/"};
    for (size_t i = 0; i < 3; i++) {
        char base[] = "/tmp/sumi-damaged-XXXXXX", path[64];
        CHECK(mkdtemp(base) != NULL);
        snprintf(path, sizeof path, "%s/model", base);
        CHECK(copy_tree(TINY, path, s_parts[i]));
        sumi_engine_desc ed = gpu_desc();
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
        if (engine != NULL) {
            sumi_result result;
            sumi_model* model = load(engine, path, SUMI_WEIGHTS_AUTO, &result);
            if (model == NULL) { // biases that are stacked are converted, so they are checked when the model is opened
                CHECK_NUMBER(result, SUMI_FILE_MALFORMED);
                CHECK(strstr(s_host.text, "NaN") != NULL);
            } else {
                check_not_finite(engine, model, s_parts[i]);
            }
            sumi_model* good = load(engine, TINY, SUMI_WEIGHTS_AUTO, NULL); // nothing of it stays
            CHECK(good != NULL);
            const sumi_image_desc desc = picture(good);
            if (good != NULL) CHECK(draw_hash(engine, &desc, 0) == s_whole);
            close_engine(engine);
        }
        CHECK(copy_tree(base, NULL, NULL));
    }
}

int main(int argc, char** argv)
{
    HOST_TEST_BEGIN(argc, argv);
    RUN(engines_are_created_and_destroyed);
    RUN(a_warm_job_allocates_nothing);
    RUN(the_nth_device_allocation_may_fail);
    RUN(jobs_can_be_cancelled_at_any_moment);
    RUN(a_paused_job_keeps_its_bits);
    RUN(engines_can_go_in_the_middle);
    RUN(weights_that_are_not_finite_give_a_result);
    tell_times();
    TEST_END();
}
