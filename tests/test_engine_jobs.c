// Jobs: status, cancelling, profiles, handles, the queue, closing and destroying in the middle.
#include "engine_fixture.h"

// ---- Status ---------------------------------------------------------------------------------------------------------

TEST(status_tells_how_far_a_job_is)
{
    OPEN_WITH(50, engine, model);
    sumi_image_desc desc;
    rich_image(&desc, model);
    desc.solver = SUMI_SOLVER_MIDPOINT;
    desc.step_count = 4;
    desc.start.strength = 0.75f;
    desc.preview_every = 2;
    for (int round = 0; round < 2; round++) {
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_job_status last = sumi_job_poll(engine, job);
        CHECK_NUMBER(last.state, SUMI_JOB_QUEUED);
        CHECK_NUMBER(last.stage, SUMI_STAGE_WAIT);
        CHECK_NUMBER(last.step_count, 3); // three quarters of four, known before anything has begun
        CHECK(last.seconds_left < 0.0f && last.progress == 0.0f && last.message[0] == '\0');
        bool seen[8] = {false};
        int known = 0;
        while (last.state < SUMI_JOB_DONE) {
            sumi_engine_update(engine, 1);
            sumi_job_status now = sumi_job_poll(engine, job);
            CHECK(now.progress >= last.progress && now.step >= last.step
                  && now.preview_version >= last.preview_version);
            CHECK(now.progress < 1.0f || now.state == SUMI_JOB_DONE);
            CHECK_NUMBER(now.step_count, 3);
            for (int i = 0; i < SUMI_STAGE_COUNT; i++) CHECK(now.stage_seconds[i] >= last.stage_seconds[i]);
            if (now.seconds_left >= 0.0f) known++;
            if (now.state == SUMI_JOB_RUNNING) CHECK_NUMBER(now.result, SUMI_OK);
            seen[now.stage] = true;
            last = now;
        }
        CHECK(last.progress == 1.0f && last.step == 3 && last.step_count == 3 && last.preview_version == 1
              && known > 10);
        CHECK(seen[SUMI_STAGE_PREPARE] && seen[SUMI_STAGE_TEXT] && seen[SUMI_STAGE_IMAGE] && seen[SUMI_STAGE_DENOISE]
              && seen[SUMI_STAGE_DECODE] && seen[SUMI_STAGE_TRANSFER]);
        CHECK(last.stage_seconds[SUMI_STAGE_DENOISE] > 0.0f && last.stage_seconds[SUMI_STAGE_LOAD] == 0.0f);
        sumi_image images[2];
        CHECK_NUMBER(sumi_fetch_images(engine, job, images, 2), SUMI_OK);
        CHECK_NUMBER(images[0].step_count, 3);
        sumi_images_release(engine, images, 2);
    }
    close_engine(engine);
}

TEST(loading_reports_progress_and_can_be_cancelled)
{
    OPEN(engine, model);
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = MODEL_PATH;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_model(engine, &desc, &job), SUMI_OK);
    sumi_job_status last = sumi_job_poll(engine, job);
    while (last.state < SUMI_JOB_DONE) {
        sumi_engine_update(engine, 1);
        sumi_job_status now = sumi_job_poll(engine, job);
        CHECK(now.progress >= last.progress && now.stage == SUMI_STAGE_LOAD);
        last = now;
    }
    CHECK(last.state == SUMI_JOB_DONE && last.progress == 1.0f);
    sumi_job_discard(engine, job); // the product goes with it
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_NONE);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS], sumi_model_get_info(model).weight_bytes);
    CHECK_NUMBER(sumi_submit_model(engine, &desc, &job), SUMI_OK);
    sumi_engine_update(engine, 1);
    sumi_job_cancel(engine, job);
    sumi_engine_update(engine, 1);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_CANCELLED);
    sumi_model* none = model;
    CHECK_NUMBER(sumi_fetch_model(engine, job, &none), SUMI_CANCELLED);
    CHECK(none == NULL);
    desc.path = "tests/golden/z-image/no_such_model";
    CHECK_NUMBER(sumi_submit_model(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_FAILED);
    CHECK(strstr(sumi_job_poll(engine, job).message, "no_such_model") != NULL);
    CHECK_NUMBER(sumi_fetch_model(engine, job, &none), SUMI_FILE_NOT_FOUND);
    close_engine(engine);
}

// ---- The queue, as a host sees and orders it -------------------------------------------------------------------------

static void check_list(const sumi_engine* engine, const sumi_job* jobs, const int* order, int count)
{
    sumi_job listed[8];
    for (int capacity = 0; capacity <= count + 1; capacity++) {
        memset(listed, 0xff, sizeof listed);
        CHECK_NUMBER(sumi_job_list(engine, listed, capacity), count);
        for (int i = 0; i < capacity && i < count; i++) CHECK_NUMBER(listed[i].id, jobs[order[i]].id);
        const int written = capacity < count ? capacity : count;
        CHECK_NUMBER(listed[written].id, UINT64_MAX); // nothing behind what was asked for
    }
    CHECK_NUMBER(sumi_job_list(engine, NULL, 0), count);
    CHECK_NUMBER(sumi_job_list(engine, NULL, 8), count);
}

TEST(jobs_are_listed_and_take_other_places)
{
    OPEN(engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    CHECK_NUMBER(sumi_job_list(engine, NULL, 0), 0);
    CHECK_NUMBER(sumi_job_list(NULL, NULL, 0), 0);
    sumi_job jobs[5];
    const int32_t priorities[5] = {0, 5, 5, 9, 0};
    for (int i = 0; i < 5; i++) {
        desc.priority = priorities[i];
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
    }
    check_list(engine, jobs, (int[]){3, 1, 2, 0, 4}, 5);
    CHECK_NUMBER(sumi_job_set_priority(engine, jobs[4], 7), SUMI_OK);
    check_list(engine, jobs, (int[]){3, 4, 1, 2, 0}, 5);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[4]).jobs_ahead, 1);
    CHECK_NUMBER(sumi_job_set_priority(engine, jobs[3], 5), SUMI_OK);
    check_list(engine, jobs, (int[]){4, 1, 2, 3, 0}, 5);
    sumi_engine_update(engine, 1);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[4]).state, SUMI_JOB_RUNNING);
    CHECK_NUMBER(sumi_job_set_priority(engine, jobs[4], -7), SUMI_WRONG_STATE);
    CHECK_NUMBER(sumi_job_set_priority(engine, jobs[0], 100), SUMI_OK); // which interrupts nobody
    check_list(engine, jobs, (int[]){4, 0, 1, 2, 3}, 5);
    CHECK_NUMBER(sumi_job_wait(engine, jobs[4], SUMI_FOREVER), SUMI_OK);
    check_list(engine, jobs, (int[]){0, 1, 2, 3, 4}, 5);
    CHECK_NUMBER(sumi_job_set_priority(engine, jobs[4], 1), SUMI_WRONG_STATE);
    CHECK_NUMBER(sumi_job_wait(engine, jobs[0], SUMI_FOREVER), SUMI_OK);
    check_list(engine, jobs, (int[]){1, 2, 3, 0, 4}, 5); // in a final state: by submission
    sumi_job_discard(engine, jobs[2]);
    check_list(engine, jobs, (int[]){1, 3, 0, 4}, 4);
    CHECK_NUMBER(sumi_job_set_priority(engine, jobs[2], 1), SUMI_STALE_HANDLE);
    CHECK_NUMBER(sumi_job_set_priority(NULL, jobs[1], 1), SUMI_INVALID_ARGUMENT);
    close_engine(engine);
}

// ---- The last failure, without a log ---------------------------------------------------------------------------------

TEST(the_last_error_is_kept_for_hosts_without_a_log)
{
    sumi_engine_desc engine_desc = sumi_engine_defaults();
    engine_desc.backend = SUMI_BACKEND_CPU;
    engine_desc.log = (sumi_log){0};
    sumi_engine* engine = NULL;
    CHECK_NUMBER(sumi_engine_create(&engine_desc, &engine), SUMI_OK);
    char text[512] = "before";
    CHECK_NUMBER(sumi_engine_last_error(engine, text, sizeof text), SUMI_OK);
    CHECK_TEXT(text, "");
    sumi_job job;
    CHECK_NUMBER(sumi_submit_model(engine, NULL, &job), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_engine_last_error(engine, text, sizeof text), SUMI_INVALID_ARGUMENT);
    CHECK(strlen(text) > 10);
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = "tests/golden/z-image/no_such_model";
    CHECK_NUMBER(sumi_submit_model(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_engine_last_error(engine, text, sizeof text), SUMI_INVALID_ARGUMENT); // still
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_engine_last_error(engine, text, sizeof text), SUMI_FILE_NOT_FOUND);
    CHECK(strstr(text, "no_such_model") != NULL);
    CHECK_TEXT(text, sumi_job_poll(engine, job).message);
    char few[5];
    CHECK_NUMBER(sumi_engine_last_error(engine, few, sizeof few), SUMI_FILE_NOT_FOUND);
    CHECK(strlen(few) == 4 && strncmp(few, text, 4) == 0);
    CHECK_NUMBER(sumi_engine_last_error(engine, NULL, 0), SUMI_FILE_NOT_FOUND);
    CHECK_NUMBER(sumi_engine_last_error(engine, NULL, 4), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_engine_last_error(NULL, text, sizeof text), SUMI_INVALID_ARGUMENT);
    CHECK_TEXT(text, "");
    sumi_job_discard(engine, job);
    sumi_engine_destroy(engine);
}

// ---- What a host plots ----------------------------------------------------------------------------------------------

TEST(status_says_what_a_host_plots)
{
    OPEN(engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    sumi_job jobs[4];
    const int32_t priorities[4] = {0, 5, 5, 9}, ahead[4] = {3, 1, 2, 0};
    for (int i = 0; i < 4; i++) {
        desc.priority = priorities[i];
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
    }
    for (int i = 0; i < 4; i++) CHECK_NUMBER(sumi_job_poll(engine, jobs[i]).jobs_ahead, ahead[i]);
    sumi_engine_update(engine, 1);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[3]).state, SUMI_JOB_RUNNING);
    // the running one counts
    for (int i = 0; i < 4; i++) CHECK_NUMBER(sumi_job_poll(engine, jobs[i]).jobs_ahead, ahead[i]);
    sumi_engine_update(engine, SUMI_FOREVER);
    const sumi_job_status status = sumi_job_poll(engine, jobs[0]);
    const sumi_engine_info info = sumi_engine_get_info(engine);
    CHECK_NUMBER(status.jobs_ahead, 0);
    CHECK(status.device_seconds > 0.0 && status.pending_us == 0.0f);
    for (int i = 0; i < 4; i++) CHECK_NUMBER(status.held_bytes[i], info.held_bytes[i]);
    CHECK(status.held_bytes[SUMI_MEMORY_WEIGHTS] > 0 && status.held_bytes[SUMI_MEMORY_ARENA] > 0);
    close_engine(engine);
}

TEST(a_profile_names_the_ops)
{
    OPEN(engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    desc.profile = true;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_profile(engine, job, NULL, 0), 0);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    sumi_profile_row rows[200];
    int32_t count = sumi_job_profile(engine, job, rows, 200);
    CHECK(count > 20 && count < 200);
    bool has_qkv = false;
    double flops = 0.0;
    for (int32_t i = 0; i < count; i++) {
        CHECK(i == 0 || rows[i].seconds <= rows[i - 1].seconds);
        CHECK(rows[i].count > 0 && rows[i].seconds > 0.0 && strlen(rows[i].name) < sizeof rows[i].name);
        CHECK(strstr(rows[i].name, "layers.0") == NULL);
        // 2 layers, 2 steps
        if (rows[i].stage == SUMI_STAGE_DENOISE && strcmp(rows[i].name, "attention.qkv") == 0)
            has_qkv = rows[i].count == 2 * 2 && rows[i].flops > 0.0;
        flops += rows[i].flops;
    }
    CHECK(has_qkv && flops > 1e6);
    CHECK_NUMBER(sumi_job_profile(engine, job, rows, 3), count);
    sumi_job_discard(engine, job);
    CHECK_NUMBER(sumi_job_profile(engine, job, rows, 3), 0);
    close_engine(engine);
}

// ---- Jobs -----------------------------------------------------------------------------------------------------------

TEST(stale_and_foreign_handles_are_refused)
{
    OPEN(engine, model);
    sumi_job none = {0}, strange = {UINT64_C(0xffffffffffffffff)}, job;
    sumi_image image;
    float value;
    sumi_model* other_model;
    sumi_prompt* prompt;
    sumi_lora* lora;
    const sumi_job stale[] = {none, strange, {8192}, {(UINT64_C(1) << 13) + 15}};
    for (size_t i = 0; i < sizeof stale / sizeof *stale; i++) {
        CHECK_NUMBER(sumi_job_poll(engine, stale[i]).state, SUMI_JOB_NONE);
        CHECK_NUMBER(sumi_job_poll(engine, stale[i]).result, SUMI_STALE_HANDLE);
        CHECK_TEXT(sumi_job_poll(engine, stale[i]).message, "");
        CHECK_NUMBER(sumi_job_wait(engine, stale[i], 0), SUMI_STALE_HANDLE);
        sumi_job_cancel(engine, stale[i]);
        sumi_job_discard(engine, stale[i]);
        CHECK_NUMBER(sumi_fetch_images(engine, stale[i], &image, 1), SUMI_STALE_HANDLE);
        CHECK_NUMBER(sumi_fetch_model(engine, stale[i], &other_model), SUMI_STALE_HANDLE);
        CHECK_NUMBER(sumi_fetch_prompt(engine, stale[i], &prompt), SUMI_STALE_HANDLE);
        CHECK_NUMBER(sumi_fetch_lora(engine, stale[i], &lora), SUMI_STALE_HANDLE);
        CHECK_NUMBER(sumi_fetch_latents(engine, stale[i], &value, 1), SUMI_STALE_HANDLE);
        CHECK_NUMBER(sumi_job_latents(engine, stale[i], 0, &value, 1), SUMI_STALE_HANDLE);
        CHECK_NUMBER(sumi_job_preview(engine, stale[i], 0, &value, 4, &image), SUMI_STALE_HANDLE);
    }
    sumi_image_desc desc = small_image(model, &s_item);
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_WRONG_STATE); // not done
    CHECK_NUMBER(sumi_fetch_prompt(engine, job, &prompt), SUMI_WRONG_STATE);   // another kind
    CHECK_NUMBER(sumi_job_preview(engine, job, 0, &value, 4, &image), SUMI_WRONG_STATE);
    CHECK_NUMBER(sumi_job_latents(engine, job, 0, &value, 1), SUMI_WRONG_STATE);
    CHECK_NUMBER(sumi_job_wait(engine, job, 0), SUMI_TIMEOUT);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_job_latents(engine, job, 0, &value, 1), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_job_latents(engine, job, 1, &value, 1), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_fetch_model(engine, job, &other_model), SUMI_WRONG_STATE);
    sumi_job old = job;
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK); // the same slot, another generation
    CHECK(job.id != old.id);
    CHECK_NUMBER(sumi_job_poll(engine, old).state, SUMI_JOB_NONE);
    sumi_job_cancel(engine, old);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_QUEUED);
    CHECK_NUMBER(sumi_job_poll(NULL, job).state, SUMI_JOB_NONE);
    CHECK_NUMBER(sumi_job_wait(NULL, job, 0), SUMI_INVALID_ARGUMENT);
    close_engine(engine);
}

TEST(the_queue_has_an_end_and_priorities)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc ed = host_desc(&s_host);
    ed.job_capacity = 3;
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    sumi_job jobs[4];
    const int32_t priorities[3] = {0, 5, 5};
    for (int i = 0; i < 3; i++) {
        desc.priority = priorities[i];
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
    }
    CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 3);
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[3]), SUMI_QUEUE_FULL);
    CHECK_NUMBER(jobs[3].id, 0);
    CHECK(strstr(s_host.log, "3") != NULL);
    // 1, then 2, then 0
    CHECK_NUMBER(sumi_job_wait(engine, jobs[1], SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[0]).state, SUMI_JOB_QUEUED);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[2]).state, SUMI_JOB_QUEUED);
    CHECK_NUMBER(sumi_job_wait(engine, jobs[0], SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[2]).state, SUMI_JOB_DONE);
    sumi_job_discard(engine, jobs[2]);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[2]).state, SUMI_JOB_NONE);
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[3]), SUMI_OK);
    sumi_engine_update(engine, 0); // a pause
    CHECK_NUMBER(sumi_job_poll(engine, jobs[3]).state, SUMI_JOB_QUEUED);
    sumi_engine_update(engine, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_poll(engine, jobs[3]).state, SUMI_JOB_DONE);
    sumi_engine_update(engine, SUMI_FOREVER); // nothing left to do: returns
    sumi_engine_update(NULL, 1);
    close_engine(engine);
}

TEST(closing_a_model_cancels_its_jobs_only)
{
    OPEN_WITH(20, engine, model);
    sumi_model* other = load_model(engine);
    CHECK(other != NULL);
    sumi_image_desc mine = small_image(model, &s_item), theirs = small_image(other, &s_item);
    sumi_job running, queued, kept;
    CHECK_NUMBER(sumi_submit_images(engine, &mine, &running), SUMI_OK);
    CHECK_NUMBER(sumi_submit_images(engine, &mine, &queued), SUMI_OK);
    CHECK_NUMBER(sumi_submit_images(engine, &theirs, &kept), SUMI_OK);
    run_until_denoise(engine, running);
    sumi_model_close(model);
    CHECK_NUMBER(sumi_job_poll(engine, running).state, SUMI_JOB_CANCELLED);
    CHECK_NUMBER(sumi_job_poll(engine, queued).state, SUMI_JOB_CANCELLED);
    CHECK(strstr(sumi_job_poll(engine, queued).message, "closed") != NULL);
    CHECK_NUMBER(sumi_job_wait(engine, kept, SUMI_FOREVER), SUMI_OK);
    sumi_image image;
    CHECK_NUMBER(sumi_fetch_images(engine, kept, &image, 1), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(engine, running, &image, 1), SUMI_CANCELLED);
    sumi_job_discard(engine, queued);
    CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_WEIGHTS], sumi_model_get_info(other).weight_bytes);
    // a finished job outlives its model
    CHECK_NUMBER(sumi_submit_images(engine, &theirs, &kept), SUMI_OK);
    sumi_job_wait(engine, kept, SUMI_FOREVER);
    sumi_model_close(other);
    float latents[256];
    CHECK_NUMBER(sumi_job_latents(engine, kept, 0, latents, 256), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(engine, kept, &image, 1), SUMI_OK);
    sumi_model_close(NULL);
    close_engine(engine);
}

TEST(destroying_while_jobs_run_leaves_nothing)
{
    for (int updates = 0; updates < 400; updates += 37) {
        OPEN_WITH(50, engine, model);
        sumi_image_desc desc;
        rich_image(&desc, model);
        sumi_job job, load;
        sumi_model_desc md = sumi_model_defaults();
        md.path = MODEL_PATH;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        CHECK_NUMBER(sumi_submit_model(engine, &md, &load), SUMI_OK);
        (void)encode_prompt; // objects the host still holds go too
        for (int i = 0; i < updates; i++) sumi_engine_update(engine, 1);
        close_engine(engine);
    }
    OPEN(engine, model);
    (void)encode_prompt(engine, model, "kept");
    (void)read_lora(engine, model, "lora_peft.safetensors");
    sumi_image image;
    sumi_image_desc desc = small_image(model, &s_item);
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    close_engine(engine);
    sumi_engine_destroy(NULL);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(status_tells_how_far_a_job_is);
    RUN(loading_reports_progress_and_can_be_cancelled);
    RUN(jobs_are_listed_and_take_other_places);
    RUN(the_last_error_is_kept_for_hosts_without_a_log);
    RUN(status_says_what_a_host_plots);
    RUN(a_profile_names_the_ops);
    RUN(stale_and_foreign_handles_are_refused);
    RUN(the_queue_has_an_end_and_priorities);
    RUN(closing_a_model_cancels_its_jobs_only);
    RUN(destroying_while_jobs_run_leaves_nothing);
    TEST_END();
}
