// Things that go wrong at every possible moment: the n-th allocation fails, the job is cancelled after the n-th slice.
// Nothing may crash, hang or leak, and what is there afterwards must work.
#include "engine_fixture.h"
#include "jobs/prompt.h"
#include "text_adapter.h"

// ---- Every allocation -----------------------------------------------------------------------------------------------

static bool is_expected(sumi_result result) { return result == SUMI_OK || result == SUMI_OUT_OF_HOST_MEMORY; }

// One of everything: engine, model, prompt, adapter, pictures from a start image, previews, profile, saved prompt,
// memory query. Goes on after failures as far as it can.
static int s_failures;
static sumi_result note(sumi_result result)
{
    CHECK(is_expected(result));
    s_failures += result != SUMI_OK;
    return result;
}

static sumi_result wait_for(sumi_engine* engine, sumi_result submitted, sumi_job job)
{
    if (note(submitted) != SUMI_OK) return submitted;
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    sumi_job_status status = sumi_job_poll(engine, job);
    CHECK(
        (status.state == SUMI_JOB_DONE && status.result == SUMI_OK)
        || (status.state == SUMI_JOB_FAILED && status.result == SUMI_OUT_OF_HOST_MEMORY && status.message[0] != '\0'));
    return SUMI_OK;
}

static uint64_t s_clean; // bits of a picture that nothing disturbed

static text_adapter s_text_adapter; // its layers are of the text encoder alone

static void use_everything(sumi_engine* engine, sumi_model* model)
{
    sumi_job job;
    sumi_lora_desc text_desc = sumi_lora_defaults(model);
    text_desc.path = s_text_adapter.path;
    sumi_lora_use text_use = {.scale = 0.5f};
    sumi_lora* text_lora = NULL;
    if (wait_for(engine, sumi_submit_lora(engine, &text_desc, &job), job) == SUMI_OK)
        note(sumi_fetch_lora(engine, job, &text_lora));
    text_use.lora = text_lora;
    sumi_prompt_desc pd = sumi_prompt_defaults(model);
    pd.text = "fox";
    pd.loras = &text_use;
    pd.lora_count = text_lora != NULL;
    sumi_prompt* prompt = NULL;
    if (wait_for(engine, sumi_submit_prompt(engine, &pd, &job), job) == SUMI_OK)
        note(sumi_fetch_prompt(engine, job, &prompt));
    unsigned char saved[64 * 1024];
    size_t bytes = sumi_prompt_save(prompt, saved, sizeof saved);
    sumi_prompt* loaded = NULL;
    if (prompt != NULL) note(sumi_prompt_load(model, saved, bytes, &loaded));
    sumi_lora_desc ld = sumi_lora_defaults(model);
    ld.path = LORA_PATH "lora_peft.safetensors";
    sumi_lora* lora = NULL;
    if (wait_for(engine, sumi_submit_lora(engine, &ld, &job), job) == SUMI_OK)
        note(sumi_fetch_lora(engine, job, &lora));

    uint8_t pixels[24 * 40 * 4];
    memset(pixels, 150, sizeof pixels);
    sumi_pixels start = {pixels, 24, 40, 0, 4}, mask = {pixels, 40, 24, 0, 3};
    sumi_lora_use uses[2] = {{.lora = lora, .scale = 0.5f}, text_use};
    if (lora == NULL) uses[0] = text_use;
    sumi_image_item item = {.prompt = loaded, .negative_text = "grey", .seed = 1};
    if (loaded == NULL) item.text = "fox";
    unsigned char target_memory[16 * 16 * 4];
    sumi_target target = {.host_memory = target_memory};
    sumi_image_desc d = small_image(model, &item);
    d.width = d.height = 16;
    d.step_count = 1;
    d.start.image = &start;
    d.start.mask = &mask;
    d.start.strength = 1.0f;
    d.guidance.scale = 1.0f;
    d.preview_every = 1;
    d.loras = uses;
    d.lora_count = (lora != NULL) + (text_lora != NULL);
    sumi_memory memory;
    note(sumi_image_memory(engine, &d, &memory));
    sumi_image image;
    if (wait_for(engine, sumi_submit_images(engine, &d, &job), job) == SUMI_OK
        && note(sumi_fetch_images(engine, job, &image, 1)) == SUMI_OK)
        sumi_images_release(engine, &image, 1);
    d.targets = &target;
    d.profile = true;
    if (wait_for(engine, sumi_submit_images(engine, &d, &job), job) == SUMI_OK)
        note(sumi_fetch_images(engine, job, &image, 1));
    sumi_lora_release(text_lora);
    sumi_lora_release(lora);
    sumi_prompt_release(prompt);
    CHECK(loaded == NULL || loaded->user_count == 1); // whatever failed, no job or query uses it any more
}

// Fails allocation n of the whole life of an engine; false when there were fewer.
static bool live_with_failure(long long n)
{
    memset(&s_host, 0, sizeof s_host);
    atomic_store(&s_host.fail_at, n);
    s_failures = 0;
    sumi_engine_desc ed = host_desc(&s_host);
    ed.job_capacity = 2;
    sumi_engine* engine = NULL;
    sumi_result result = sumi_engine_create(&ed, &engine);
    CHECK(is_expected(result) && (result == SUMI_OK) == (engine != NULL));
    if (engine != NULL) {
        sumi_model_desc md = sumi_model_defaults();
        md.path = MODEL_PATH;
        sumi_model* model = NULL;
        for (int attempt = 0; attempt < 2 && model == NULL; attempt++) { // after a failure the second attempt works
            sumi_job job;
            if (wait_for(engine, sumi_submit_model(engine, &md, &job), job) == SUMI_OK)
                note(sumi_fetch_model(engine, job, &model));
        }
        CHECK(model != NULL);
        if (model != NULL) {
            use_everything(engine, model);
            bool has_failed = atomic_load(&s_host.count) >= n;
            if (has_failed) CHECK(s_failures <= 1);
            sumi_image_item item = {.text = "a red fox", .seed = 3};
            sumi_image_desc d = small_image(model, &item);
            d.width = d.height = 16;
            d.step_count = 1;
            if (has_failed && n % 4 == 0) CHECK(draw_hash(engine, &d) == s_clean);
        }
    }
    close_engine(engine);
    return atomic_load(&s_host.count) >= n;
}

TEST(the_nth_allocation_may_fail)
{
    {
        OPEN(engine, model);
        sumi_image_item item = {.text = "a red fox", .seed = 3};
        sumi_image_desc d = small_image(model, &item);
        d.width = d.height = 16;
        d.step_count = 1;
        s_clean = draw_hash(engine, &d);
        CHECK(s_clean != 0);
        close_engine(engine);
    }
    long long n = 1;
    while (live_with_failure(n) && t_errors == 0) n++;
    if (t_errors != 0) printf("  at allocation %lld: %s\n", n, s_host.log);
    printf("  %lld allocations failed, one after the other\n", n - 1);
    CHECK(n > 200);
}

TEST(the_nth_allocation_may_fail_with_the_hosts_files)
{
    // files without maps are read into memory of the allocator: other allocations than above
    for (long long n = 1; t_errors == 0; n += 1) {
        memset(&s_host, 0, sizeof s_host);
        atomic_store(&s_host.fail_at, n);
        archive a = {0};
        sumi_engine_desc ed = host_desc(&s_host);
        ed.files = &(sumi_files){archive_open, archive_read, NULL, archive_close, &a};
        sumi_engine* engine = NULL;
        sumi_result result = sumi_engine_create(&ed, &engine);
        CHECK(is_expected(result));
        if (engine != NULL) {
            sumi_model_desc md = sumi_model_defaults();
            md.path = MODEL_PATH;
            sumi_job job;
            sumi_model* model = NULL;
            if (wait_for(engine, sumi_submit_model(engine, &md, &job), job) == SUMI_OK)
                note(sumi_fetch_model(engine, job, &model));
        }
        sumi_engine_destroy(engine);
        CHECK_NUMBER(s_host.live, 0);
        CHECK_NUMBER(a.open_count, 0);
        if (atomic_load(&s_host.count) < n) break;
    }
}

// ---- Cancel after every slice ---------------------------------------------------------------------------------------

TEST(an_image_can_be_cancelled_after_every_slice)
{
    OPEN_WITH(100, engine, model);
    sumi_image_desc desc;
    rich_image(&desc, model);
    desc.step_count = 2;
    desc.preview_every = 1;
    uint64_t whole = draw_hash(engine, &desc);
    CHECK(whole != 0);
    bool seen[8] = {false};
    int slices = 0;
    for (bool is_done = false; !is_done && t_errors == 0; slices++) {
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        for (int i = 0; i < slices; i++) sumi_engine_update(engine, 1);
        sumi_job_status before = sumi_job_poll(engine, job);
        is_done = before.state >= SUMI_JOB_DONE;
        sumi_job_cancel(engine, job);
        sumi_engine_update(engine, 1);
        sumi_job_status after = sumi_job_poll(engine, job);
        CHECK_NUMBER(after.state, is_done ? SUMI_JOB_DONE : SUMI_JOB_CANCELLED);
        CHECK(after.progress >= before.progress && (is_done || after.progress < 1.0f));
        if (!is_done) CHECK(after.message[0] != '\0');
        seen[before.stage] = true;
        sumi_image images[2];
        CHECK_NUMBER(sumi_fetch_images(engine, job, images, 2), is_done ? SUMI_OK : SUMI_CANCELLED);
        if (is_done) sumi_images_release(engine, images, 2);
        if (slices % 40 == 0) CHECK(draw_hash(engine, &desc) == whole); // the model is as before
    }
    CHECK(seen[SUMI_STAGE_WAIT] && seen[SUMI_STAGE_PREPARE] && seen[SUMI_STAGE_TEXT] && seen[SUMI_STAGE_IMAGE]
          && seen[SUMI_STAGE_DENOISE] && seen[SUMI_STAGE_DECODE]);
    CHECK(draw_hash(engine, &desc) == whole);
    CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
    printf("  cancelled after each of %d slices\n", slices);
    close_engine(engine);
}

TEST(loading_and_encoding_can_be_cancelled_after_every_slice)
{
    OPEN_WITH(1, engine, model);
    sumi_image_item item = {.text = "a red fox", .seed = 3};
    sumi_image_desc desc = small_image(model, &item);
    uint64_t whole = draw_hash(engine, &desc);
    const long long live = s_host.live;
    for (int kind = 0; kind < 4; kind++) {
        int slices = 0;
        for (bool is_done = false; !is_done && t_errors == 0; slices += slices < 20 ? 1 : 7) {
            const sumi_job job = submit_kind(engine, model, kind);
            for (int i = 0; i < slices; i++) sumi_engine_update(engine, 1);
            is_done = sumi_job_poll(engine, job).state >= SUMI_JOB_DONE;
            give_up(engine, job, slices % 2 != 0);
            CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
        }
        CHECK(slices >= (kind == 3 ? 1 : 4));
    }
    CHECK(s_host.live < live + 64); // plans and buffers that are kept, but no models
    CHECK(whole != 0 && draw_hash(engine, &desc) == whole);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    s_text_adapter = make_text_adapter("text.safetensors", 0.5f, false);
    RUN(the_nth_allocation_may_fail);
    RUN(the_nth_allocation_may_fail_with_the_hosts_files);
    RUN(an_image_can_be_cancelled_after_every_slice);
    RUN(loading_and_encoding_can_be_cancelled_after_every_slice);
    remove_text_adapter(&s_text_adapter);
    TEST_END();
}
