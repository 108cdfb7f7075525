// Several threads: what may be called beside everything else, the engine's own threads, two engines at once. Meant for
// the thread sanitizer as well.
#include "base/platform.h"
#include "engine_fixture.h"
#include "fake_processors.h"

// ---- Poll, cancel, preview, info from anywhere ----------------------------------------------------------------------

typedef struct watcher {
    sumi_engine* engine;
    _Atomic uint64_t job;
    atomic_bool stops;
    atomic_int watching, polls, previews, falls, cancels_every;
} watcher;

static void watch(void* context)
{
    watcher* w = context;
    unsigned char pixels[4 * 4 * 4];
    float progress = 0.0f;
    uint64_t last = 0;
    atomic_fetch_add(&w->watching, 1);
    while (!atomic_load(&w->stops)) {
        sumi_job job = {atomic_load(&w->job)};
        sumi_job_status status = sumi_job_poll(w->engine, job);
        if (job.id != last) progress = 0.0f;
        last = job.id;
        if (status.state != SUMI_JOB_NONE && status.progress < progress) atomic_fetch_add(&w->falls, 1);
        progress = status.progress;
        sumi_image image;
        if (sumi_job_preview(w->engine, job, 0, pixels, sizeof pixels, &image) == SUMI_OK)
            atomic_fetch_add(&w->previews, 1);
        (void)sumi_engine_get_info(w->engine);
        int polls = atomic_fetch_add(&w->polls, 1), every = atomic_load(&w->cancels_every);
        if (every > 0 && polls % every == 0) sumi_job_cancel(w->engine, job);
    }
}

static void hammer(sumi_pump pump, int32_t threads, bool cancels)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc ed = host_desc(&s_host);
    ed.pump = pump;
    ed.cpu_thread_count = threads;
    ed.max_slice_us = 100;
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    sumi_image_item item = {.text = "a red fox", .seed = 3};
    sumi_image_desc desc = small_image(model, &item);
    desc.preview_every = 1;
    uint64_t whole = draw_hash(engine, &desc);
    watcher w = {.engine = engine};
    atomic_store(&w.cancels_every, cancels ? 97 : 0);
    const sumi_thread_start start = {.function = watch, .context = &w};
    sumi_thread watchers[2];
    for (int i = 0; i < 2; i++) CHECK(sumi_thread_begin(&watchers[i], &start));
    while (atomic_load(&w.watching) < 2) sumi_sleep_us(100); // a busy machine may begin them late
    int done = 0, cancelled = 0, count = 0;
    // beside so many looks, however seldom the others have their turn
    for (; count < 12 || atomic_load(&w.polls) < 500; count++) {
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        atomic_store(&w.job, job.id);
        if (pump == SUMI_PUMP_UPDATE && count % 2 == 0) {
            while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE) sumi_engine_update(engine, 200);
        } else {
            CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
        }
        sumi_image image;
        sumi_result result = sumi_fetch_images(engine, job, &image, 1);
        done += result == SUMI_OK;
        cancelled += result == SUMI_CANCELLED;
        sumi_images_release(engine, &image, 1);
    }
    CHECK_NUMBER(done + cancelled, count);
    if (!cancels) CHECK_NUMBER(done, count);
    atomic_store(&w.stops, true);
    for (int i = 0; i < 2; i++) sumi_thread_join(&watchers[i]);
    if (!cancels) CHECK_NUMBER(atomic_load(&w.falls), 0);
    CHECK(whole != 0 && draw_hash(engine, &desc) == whole);
    close_engine(engine);
}

TEST(poll_and_preview_from_other_threads) { hammer(SUMI_PUMP_UPDATE, 1, false); }
TEST(cancel_from_other_threads) { hammer(SUMI_PUMP_UPDATE, 2, true); }
TEST(poll_and_preview_beside_the_pump_thread) { hammer(SUMI_PUMP_THREAD, 2, false); }
TEST(cancel_beside_the_pump_thread) { hammer(SUMI_PUMP_THREAD, 1, true); }

#define QUEUED 8

typedef struct canceller {
    sumi_engine* engine;
    sumi_job jobs[QUEUED];
    atomic_bool goes;
} canceller;

static void cancel_all(void* context)
{
    canceller* c = context;
    while (!atomic_load(&c->goes)) continue;
    for (int i = QUEUED - 1; i >= 0; i--) sumi_job_cancel(c->engine, c->jobs[i]);
}

// A queued job ends by a cancel or because its model is closed, whoever comes first, but only once: the queue's count
// would be wrong, and no job would begin any more.
TEST(a_queued_job_ends_once)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc ed = host_desc(&s_host);
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    for (int round = 0; round < 40 && t_errors == 0; round++) {
        sumi_image_item item = {.text = "a red fox", .seed = 3};
        sumi_image_desc desc = small_image(model, &item);
        canceller c = {.engine = engine};
        for (int i = 0; i < QUEUED; i++) CHECK_NUMBER(sumi_submit_images(engine, &desc, &c.jobs[i]), SUMI_OK);
        const sumi_thread_start start = {.function = cancel_all, .context = &c};
        sumi_thread thread;
        CHECK(sumi_thread_begin(&thread, &start));
        atomic_store(&c.goes, true);
        sumi_model_close(model);
        sumi_thread_join(&thread);
        for (int i = 0; i < QUEUED; i++) {
            CHECK_NUMBER(sumi_job_poll(engine, c.jobs[i]).state, SUMI_JOB_CANCELLED);
            sumi_job_discard(engine, c.jobs[i]);
        }
        CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
        model = load_model(engine);
        CHECK(model != NULL);
    }
    sumi_image_item item = {.text = "a red fox", .seed = 3};
    sumi_image_desc desc = small_image(model, &item);
    CHECK(model != NULL && draw_hash(engine, &desc) != 0);
    close_engine(engine);
}

// ---- Our thread -----------------------------------------------------------------------------------------------------

static sumi_engine* threaded_engine(sumi_model** out_model)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc ed = host_desc(&s_host);
    ed.pump = SUMI_PUMP_THREAD;
    ed.max_slice_us = 50;
    return open_engine(&ed, out_model);
}

// ---- Completion -----------------------------------------------------------------------------------------------------

#define TOLD 16

// What the completion was told, in order.
typedef struct told {
    sumi_mutex lock;
    sumi_engine* engine;
    int count, refused, seen;
    struct {
        sumi_job job;
        sumi_job_state state;
        void* user_data;
    } list[TOLD];
} told;

static void note_ended(sumi_job job, sumi_job_state state, void* job_user_data, void* user_data)
{
    told* t = user_data;
    sumi_mutex_lock(&t->lock);
    if (t->count < TOLD) {
        t->list[t->count].job = job;
        t->list[t->count].state = state;
        t->list[t->count++].user_data = job_user_data;
    }
    // What a callback may call shows the change, unless the other thread has fetched the job; what it may not call is
    // refused.
    const sumi_job_status status = sumi_job_poll(t->engine, job);
    t->seen += status.state == SUMI_JOB_NONE || (status.state == state && status.user_data == job_user_data);
    t->refused += sumi_job_wait(t->engine, job, 0) == SUMI_WRONG_STATE;
    sumi_mutex_unlock(&t->lock);
}

static int times_told(told* t, sumi_job job, sumi_job_state state, const void* user_data)
{
    int count = 0;
    sumi_mutex_lock(&t->lock);
    for (int i = 0; i < t->count; i++)
        count += t->list[i].job.id == job.id && t->list[i].state == state && t->list[i].user_data == user_data;
    sumi_mutex_unlock(&t->lock);
    return count;
}

static void check_completion(sumi_pump pump)
{
    told t = {0};
    CHECK(sumi_mutex_init(&t.lock));
    char marks[6];
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc ed = host_desc(&s_host);
    ed.pump = pump;
    ed.completion = &(sumi_completion){note_ended, &t};
    CHECK_NUMBER(sumi_engine_create(&ed, &t.engine), SUMI_OK);
    if (t.engine == NULL) return;
    sumi_model* model = load_model(t.engine);
    CHECK(model != NULL);
    if (model == NULL) return;
    sumi_image_item item = {.text = "a red fox", .seed = 3};
    sumi_image_desc desc = small_image(model, &item);
    sumi_lora_desc missing = sumi_lora_defaults(model);
    missing.path = "tests/golden/there_is_no_such_file.safetensors";
    missing.user_data = &marks[1];
    sumi_job jobs[4];
    sumi_image image;
    sumi_lora* lora;
    desc.user_data = &marks[0];
    CHECK_NUMBER(sumi_submit_images(t.engine, &desc, &jobs[0]), SUMI_OK);
    CHECK(sumi_job_poll(t.engine, jobs[0]).user_data == &marks[0]);
    CHECK_NUMBER(sumi_submit_lora(t.engine, &missing, &jobs[1]), SUMI_OK);
    desc.user_data = &marks[2];
    desc.priority = -1;
    CHECK_NUMBER(sumi_submit_images(t.engine, &desc, &jobs[2]), SUMI_OK);
    desc.user_data = &marks[3];
    CHECK_NUMBER(sumi_submit_images(t.engine, &desc, &jobs[3]), SUMI_OK);
    sumi_job_cancel(t.engine, jobs[2]); // behind the first, so that it has hardly begun
    sumi_job_discard(t.engine, jobs[3]);
    CHECK_NUMBER(sumi_job_wait(t.engine, jobs[0], SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(t.engine, jobs[1], SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(t.engine, jobs[2], SUMI_FOREVER), SUMI_OK);
    // The engine's own thread tells them when it comes to it.
    while (times_told(&t, jobs[0], SUMI_JOB_DONE, &marks[0]) == 0
           || times_told(&t, jobs[1], SUMI_JOB_FAILED, &marks[1]) == 0
           || times_told(&t, jobs[2], SUMI_JOB_CANCELLED, &marks[2]) == 0) {
        if (pump == SUMI_PUMP_UPDATE) sumi_engine_update(t.engine, 0);
        sumi_sleep_us(1);
    }
    CHECK_NUMBER(times_told(&t, jobs[0], SUMI_JOB_DONE, &marks[0]), 1);
    CHECK_NUMBER(times_told(&t, jobs[1], SUMI_JOB_FAILED, &marks[1]), 1);
    CHECK_NUMBER(times_told(&t, jobs[2], SUMI_JOB_CANCELLED, &marks[2]), 1);
    CHECK_NUMBER(sumi_fetch_images(t.engine, jobs[0], &image, 1), SUMI_OK);
    sumi_images_release(t.engine, &image, 1);
    CHECK_NUMBER(sumi_fetch_lora(t.engine, jobs[1], &lora), SUMI_FILE_NOT_FOUND);
    sumi_job_discard(t.engine, jobs[2]);
    // A job that goes with its model is told by that call.
    desc.user_data = &marks[4];
    CHECK_NUMBER(sumi_submit_images(t.engine, &desc, &jobs[3]), SUMI_OK);
    sumi_model_close(model);
    const int ended =
        times_told(&t, jobs[3], SUMI_JOB_CANCELLED, &marks[4]) + times_told(&t, jobs[3], SUMI_JOB_DONE, &marks[4]);
    CHECK_NUMBER(ended, 1);
    sumi_job_discard(t.engine, jobs[3]);
    CHECK_NUMBER(t.count, 5); // the model's own load is the fifth
    CHECK_NUMBER(t.seen, t.count);
    CHECK_NUMBER(t.refused, t.count);
    close_engine(t.engine);
}

TEST(the_completion_callback_runs_when_jobs_end)
{
    check_completion(SUMI_PUMP_UPDATE);
    check_completion(SUMI_PUMP_THREAD);
}

TEST(the_pump_thread_works_without_updates)
{
    sumi_model* model = NULL;
    sumi_engine* engine = threaded_engine(&model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    sumi_image_item item = {.text = "a red fox", .seed = 3};
    sumi_image_desc desc = small_image(model, &item);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_engine_update(engine, 1); // does nothing, and does no harm
    sumi_result result;
    while ((result = sumi_job_wait(engine, job, 1)) == SUMI_TIMEOUT) {}
    CHECK_NUMBER(result, SUMI_OK);
    sumi_image image;
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
    // the memory query, budgets and prompts share the tokenizer and the runner with a running job
    desc.step_count = 30;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    for (int i = 0; i < 5; i++) {
        sumi_memory memory;
        CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
        CHECK_NUMBER(sumi_engine_set_memory_budget(engine, i % 2 == 0 ? UINT64_C(1) << 30 : 0), SUMI_OK);
    }
    sumi_prompt_desc pd = sumi_prompt_defaults(model);
    pd.text = "x";
    sumi_job second;
    CHECK_NUMBER(sumi_submit_prompt(engine, &pd, &second), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, second, SUMI_FOREVER), SUMI_OK);
    sumi_prompt* prompt = NULL;
    CHECK_NUMBER(sumi_fetch_prompt(engine, second, &prompt), SUMI_OK);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_DONE);
    close_engine(engine);
}

static void pause_us(int n) // without clocks: the thread sanitizer slows everything
{
    for (volatile int i = 0; i < n * 50; i++) {}
}

TEST(closing_discarding_and_destroying_beside_the_pump_thread)
{
    for (int round = 0; round < 12; round++) {
        sumi_model* model = NULL;
        sumi_engine* engine = threaded_engine(&model);
        CHECK(engine != NULL);
        if (engine == NULL) return;
        sumi_image_item item = {.text = "a red fox", .seed = 3};
        sumi_image_desc desc = small_image(model, &item);
        desc.step_count = 40;
        sumi_job jobs[3];
        for (int i = 0; i < 3; i++) CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
        pause_us(round * 300);
        switch (round % 4) {
        case 0: // destroy while they run
            break;
        case 1:
            sumi_model_close(model);
            for (int i = 0; i < 3; i++) CHECK(sumi_job_poll(engine, jobs[i]).state >= SUMI_JOB_DONE);
            break;
        case 2:
            for (int i = 0; i < 3; i++) sumi_job_discard(engine, jobs[i]);
            for (int i = 0; i < 3; i++) CHECK_NUMBER(sumi_job_poll(engine, jobs[i]).state, SUMI_JOB_NONE);
            break;
        default:
            for (int i = 0; i < 3; i++) sumi_job_cancel(engine, jobs[i]);
            for (int i = 0; i < 3; i++) {
                CHECK_NUMBER(sumi_job_wait(engine, jobs[i], SUMI_FOREVER), SUMI_OK);
                sumi_image image;
                sumi_result result = sumi_fetch_images(engine, jobs[i], &image, 1);
                CHECK(result == SUMI_CANCELLED || result == SUMI_OK);
            }
        }
        close_engine(engine);
    }
}

// ---- Two engines ----------------------------------------------------------------------------------------------------

typedef struct two {
    host h;
    uint64_t hash;
    int32_t threads;
} two;

static void live(void* context)
{
    two* t = context;
    sumi_engine_desc ed = host_desc(&t->h);
    ed.cpu_thread_count = t->threads;
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&ed, &model);
    if (engine == NULL) return;
    sumi_image_desc desc;
    rich_image(&desc, model);
    t->hash = draw_hash(engine, &desc);
    if (draw_hash(engine, &desc) != t->hash) t->hash = 0;
    sumi_engine_destroy(engine);
}

TEST(two_engines_on_two_threads_do_not_meet)
{
    static two s_both[2];
    memset(s_both, 0, sizeof s_both);
    // the shared picture of rich_image is filled before the threads begin
    OPEN(engine, model);
    sumi_image_desc desc;
    rich_image(&desc, model);
    uint64_t expected = draw_hash(engine, &desc);
    close_engine(engine);
    sumi_thread threads[2];
    sumi_thread_start starts[2];
    for (int i = 0; i < 2; i++) {
        s_both[i].threads = i + 1;
        starts[i] = (sumi_thread_start){.function = live, .context = &s_both[i]};
        CHECK(sumi_thread_begin(&threads[i], &starts[i]));
    }
    for (int i = 0; i < 2; i++) {
        sumi_thread_join(&threads[i]);
        CHECK(expected != 0 && s_both[i].hash == expected);
        CHECK_NUMBER(s_both[i].h.live, 0);
    }
}

// ---- The memory query -----------------------------------------------------------------------------------------------

// An archive whose next read takes until the test lets it go: a slice of any length.
typedef struct gate {
    sumi_mutex mutex;
    sumi_condition changed;
    archive files;
    bool is_shut, is_waited_at, gave_up;
} gate;

static void* gate_open(const char* path, uint64_t* out_bytes, void* user_data)
{
    return archive_open(path, out_bytes, &((gate*)user_data)->files);
}
static bool gate_read(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    gate* g = user_data;
    sumi_mutex_lock(&g->mutex);
    g->is_waited_at = g->is_shut;
    sumi_condition_broadcast(&g->changed);
    while (g->is_shut && !g->gave_up) // rather a test that fails than one that hangs
        g->gave_up = !sumi_condition_wait_us(&g->changed, &g->mutex, 20000000);
    sumi_mutex_unlock(&g->mutex);
    return archive_read(file, offset, into, bytes, &g->files);
}
static void gate_close(void* file, void* user_data) { archive_close(file, &((gate*)user_data)->files); }

TEST(the_memory_answer_waits_for_no_slice)
{
    static gate s_g;
    memset(&s_g, 0, sizeof s_g);
    CHECK(sumi_mutex_init(&s_g.mutex) && sumi_condition_init(&s_g.changed));
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc ed = host_desc(&s_host);
    ed.pump = SUMI_PUMP_THREAD;
    ed.files = &(sumi_files){gate_open, gate_read, NULL, gate_close, &s_g};
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    const sumi_image_desc desc = small_image(model, &s_item);
    sumi_memory at_rest, meanwhile;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &at_rest), SUMI_OK);
    s_g.is_shut = true;
    sumi_model_desc md = sumi_model_defaults();
    md.path = MODEL_PATH;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
    sumi_mutex_lock(&s_g.mutex);
    while (!s_g.is_waited_at && !s_g.gave_up) sumi_condition_wait(&s_g.changed, &s_g.mutex);
    sumi_mutex_unlock(&s_g.mutex);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &meanwhile), SUMI_OK);
    sumi_mutex_lock(&s_g.mutex);
    CHECK(!s_g.gave_up); // the slice was still there
    s_g.is_shut = false;
    sumi_condition_broadcast(&s_g.changed);
    sumi_mutex_unlock(&s_g.mutex);
    CHECK(memcmp(&at_rest, &meanwhile, sizeof at_rest) == 0);
    // Beside a job that writes plans and splits prompts itself.
    for (int i = 0; i < 20; i++) {
        sumi_job picture;
        sumi_image_desc other = desc;
        other.step_count = 1 + i % 3;
        other.width = 32 + 16 * (i % 4);
        CHECK_NUMBER(sumi_submit_images(engine, &other, &picture), SUMI_OK);
        for (int k = 0; k < 3; k++) {
            CHECK_NUMBER(sumi_image_memory(engine, &desc, &meanwhile), SUMI_OK);
            CHECK(meanwhile.arena == at_rest.arena && meanwhile.staging == at_rest.staging
                  && meanwhile.images == at_rest.images && meanwhile.weights == at_rest.weights);
        }
        CHECK_NUMBER(sumi_job_wait(engine, picture, SUMI_FOREVER), SUMI_OK);
        sumi_job_discard(engine, picture);
    }
    close_engine(engine);
    sumi_condition_destroy(&s_g.changed);
    sumi_mutex_destroy(&s_g.mutex);
}

// A thread of ours runs the jobs, and this one pauses them at any moment.
TEST(pauses_beside_the_pump_thread)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc ed = host_desc(&s_host);
    ed.pump = SUMI_PUMP_THREAD;
    ed.max_slice_us = 200;
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    sumi_image_desc desc;
    rich_image(&desc, model);
    const uint64_t want = draw_hash(engine, &desc);
    unsigned random = 1;
    for (int round = 0; round < 12; round++) {
        sumi_job jobs[3];
        for (int i = 0; i < 3; i++) CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
        for (int i = 0; i < 20; i++) {
            random = random * 1664525u + 1013904223u;
            system_sleep_us(random >> 22);
            (void)sumi_job_pause(engine, jobs[(random >> 8) % 3], (random >> 16) % 2 == 0);
        }
        for (int i = 0; i < 3; i++) (void)sumi_job_pause(engine, jobs[i], false);
        for (int i = 0; i < 3; i++) CHECK_NUMBER(sumi_job_wait(engine, jobs[i], SUMI_FOREVER), SUMI_OK);
        for (int i = 0; i < 3; i++) CHECK(fetch_hash(engine, jobs[i], &desc) == want);
    }
    sumi_model_close(model);
    close_engine(engine);
}

// ---- Processors that stay idle ---------------------------------------------------------------------------------------

typedef struct thread_lines {
    int count;
    sumi_log_level level;
    char text[512];
} thread_lines;

static void keep_thread_lines(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result;
    thread_lines* lines = user_data;
    if (strstr(text, "cpu_thread_count") == NULL) return;
    lines->count++;
    lines->level = level;
    snprintf(lines->text, sizeof lines->text, "%s", text);
}

// Makes an engine on a machine of so many logical processors, and counts the lines of its log about threads.
static thread_lines open_on(int32_t processor_count, sumi_engine_desc desc, const char* threads)
{
    thread_lines lines = {0};
    desc.log = (sumi_log){keep_thread_lines, &lines};
    fake_processors(processor_count);
    sumi_engine* engine = NULL;
    CHECK(sumi_engine_create(&desc, &engine) == SUMI_OK);
    CHECK(engine != NULL && strstr(sumi_engine_get_info(engine).device, threads) != NULL);
    sumi_engine_destroy(engine);
    fake_processors(0);
    return lines;
}

static void* run_whole_loop(sumi_task* task, int32_t item_count, int32_t min_range, void* task_context, void* user_data)
{
    (void)min_range, (void)user_data;
    task(0, item_count, 0, task_context);
    return NULL;
}
static void finish_nothing(void* handle, void* user_data) { (void)handle, (void)user_data; }

TEST(one_thread_on_a_machine_of_several_processors_is_told)
{
    host h = {0};
    sumi_engine_desc desc = host_desc(&h);
    thread_lines lines = open_on(8, desc, ", 1 thread");
    CHECK(lines.count == 1 && lines.level == SUMI_LOG_INFO);
    CHECK(strstr(lines.text, "8 logical processors") != NULL);
    CHECK(open_on(1, desc, ", 1 thread").count == 0);
    desc.cpu_thread_count = 2;
    CHECK(open_on(8, desc, ", 2 threads").count == 0);
    desc.cpu_thread_count = 0;
    CHECK(open_on(3, desc, ", 3 threads").count == 0);
    desc.cpu_thread_count = 1;
    desc.tasks = &(sumi_tasks){1, run_whole_loop, finish_nothing, NULL}; // how many work is the host program's matter
    CHECK(open_on(8, desc, ", 1 thread").count == 0);
    CHECK(h.live == 0);
}

// Priorities and pauses of jobs that begin at that moment: the call moves the job, or is refused with a reason. Half of
// the jobs are loads, which begin to work as soon as they leave the queue.
TEST(places_change_beside_the_pump_thread)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc ed = host_desc(&s_host);
    ed.pump = SUMI_PUMP_THREAD;
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    sumi_prompt* prompt = encode_prompt(engine, model, "an owl");
    const sumi_image_item item = {.prompt = prompt, .seed = 7};
    const sumi_image_desc desc = small_image(model, &item);
    const uint64_t want = draw_hash(engine, &desc);
    unsigned random = 1;
    for (int round = 0; round < 30; round++) {
        sumi_job jobs[6];
        for (int i = 0; i < 6; i += 2) {
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
            jobs[i + 1] = submit_kind(engine, model, i == 2 ? 0 : 3);
        }
        for (int i = 0; i < 60; i++) {
            random = random * 1664525u + 1013904223u;
            const sumi_job job = jobs[(random >> 8) % 6];
            if (i % 8 == 0) system_sleep_us(random >> 24);
            const sumi_result result = i % 3 == 0 ? sumi_job_pause(engine, job, (random >> 16) % 2 == 0)
                                                  : sumi_job_set_priority(engine, job, (int32_t)(random >> 20) % 8);
            CHECK(result == SUMI_OK || result == SUMI_WRONG_STATE);
        }
        for (int i = 0; i < 6; i++) (void)sumi_job_pause(engine, jobs[i], false);
        for (int i = 0; i < 6; i++) {
            CHECK_NUMBER(sumi_job_wait(engine, jobs[i], SUMI_FOREVER), SUMI_OK);
            CHECK_NUMBER(sumi_job_poll(engine, jobs[i]).result, SUMI_OK);
            if (i % 2 == 0) CHECK(fetch_hash(engine, jobs[i], &desc) == want);
            else sumi_job_discard(engine, jobs[i]);
        }
    }
    sumi_prompt_release(prompt);
    sumi_model_close(model);
    close_engine(engine);
}

// The pump's thread reads prompts that the host program has released, while the host program loads others into memory
// that nobody uses any more. Calls of one thread change what a prompt has in other forms, beside jobs that read it.
TEST(prompts_are_released_beside_the_pump_thread)
{
    sumi_model* model;
    sumi_engine* engine = threaded_engine(&model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    sumi_prompt* const prompts[2] = {encode_prompt(engine, model, "an owl"), encode_prompt(engine, model, "a fox")};
    static unsigned char s_saved[2][64 * 1024];
    size_t bytes[2];
    uint64_t want[2];
    sumi_image_item item = {.seed = 7};
    sumi_image_desc desc = small_image(model, &item);
    desc.width = desc.height = 16;
    for (int i = 0; i < 2; i++) {
        bytes[i] = sumi_prompt_save(prompts[i], s_saved[i], sizeof s_saved[i]);
        item.prompt = prompts[i];
        want[i] = draw_hash(engine, &desc);
        sumi_prompt_release(prompts[i]);
    }
    CHECK(want[0] != want[1]);
    for (int round = 0; round < 4; round++) {
        sumi_job jobs[4];
        for (int i = 0; i < 4; i++) {
            sumi_prompt* prompt = NULL;
            CHECK_NUMBER(sumi_prompt_load(model, s_saved[i % 2], bytes[i % 2], &prompt), SUMI_OK);
            item.prompt = prompt;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &jobs[i]), SUMI_OK);
            CHECK(sumi_prompt_get_info(prompt).encoders[0].features != NULL);
            if (round % 2 == 0) system_sleep_us((unsigned)round * 200);
            sumi_prompt_release(prompt);
        }
        for (int i = 0; i < 4; i++) {
            CHECK_NUMBER(sumi_job_wait(engine, jobs[i], SUMI_FOREVER), SUMI_OK);
            CHECK(fetch_hash(engine, jobs[i], &desc) == want[i % 2]);
        }
    }
    sumi_model_close(model);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(poll_and_preview_from_other_threads);
    RUN(cancel_from_other_threads);
    RUN(poll_and_preview_beside_the_pump_thread);
    RUN(cancel_beside_the_pump_thread);
    RUN(a_queued_job_ends_once);
    RUN(the_completion_callback_runs_when_jobs_end);
    RUN(the_pump_thread_works_without_updates);
    RUN(closing_discarding_and_destroying_beside_the_pump_thread);
    RUN(the_memory_answer_waits_for_no_slice);
    RUN(two_engines_on_two_threads_do_not_meet);
    RUN(pauses_beside_the_pump_thread);
    RUN(one_thread_on_a_machine_of_several_processors_is_told);
    RUN(places_change_beside_the_pump_thread);
    RUN(prompts_are_released_beside_the_pump_thread);
    TEST_END();
}
