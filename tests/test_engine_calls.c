// Calls that would wait for themselves or for nobody: out of the host program's callbacks, in a child after a fork, of
// a job that is cancelled during a pause.
#include "base/platform.h"
#include "engine_fixture.h"
#include "jobs/engine_state.h"
#if !defined(_WIN32)
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

// ---- Out of callbacks -----------------------------------------------------------------------------------------------

typedef enum service { FROM_LOG, FROM_ALLOCATOR, FROM_FILES, FROM_TASKS, FROM_TRACER, SERVICE_COUNT } service;
static const char* const s_services[] = {"log", "allocator", "files", "tasks", "tracer"};

typedef struct prober {
    sumi_engine* _Atomic engine; // that calls back; NULL: not yet
    sumi_engine* other;
    sumi_model* _Atomic model;
    _Atomic uint64_t job;
    atomic_int probes[SERVICE_COUNT], granted, unsafe, other_refused, depth, deepest, refusals_told;
    archive files;
    tasks_host tasks;
} prober;

#define PROBES 6 // of each service: every callback would take long

static void probe(prober* p, service from)
{
    sumi_engine* engine = atomic_load(&p->engine);
    if (engine == NULL || atomic_fetch_add(&p->probes[from], 1) >= PROBES) return;
    const int depth = atomic_fetch_add(&p->depth, 1) + 1;
    if (depth > atomic_load(&p->deepest)) atomic_store(&p->deepest, depth);
    sumi_job job = {0};
    sumi_image image;
    sumi_memory memory;
    sumi_model* model = NULL;
    sumi_lora* lora = NULL;
    sumi_prompt* prompt = NULL;
    sumi_external* external = NULL;
    sumi_size size;
    float value;
    const sumi_job current = {atomic_load(&p->job)};
    sumi_model* loaded = atomic_load(&p->model);
    const sumi_result results[] = {
        sumi_submit_model(engine, NULL, &job),
        sumi_submit_prompt(engine, NULL, &job),
        sumi_submit_lora(engine, NULL, &job),
        sumi_submit_images(engine, NULL, &job),
        sumi_submit_encode(engine, NULL, &job),
        sumi_fetch_model(engine, current, &model),
        sumi_fetch_prompt(engine, current, &prompt),
        sumi_fetch_lora(engine, current, &lora),
        sumi_fetch_images(engine, current, &image, 1),
        sumi_fetch_latents(engine, current, &value, 1),
        sumi_job_latents(engine, current, 0, &value, 1),
        sumi_job_wait(engine, current, SUMI_FOREVER),
        sumi_engine_set_memory_budget(engine, 1),
        sumi_image_memory(engine, NULL, &memory),
        sumi_import(engine, NULL, &external),
        sumi_job_show_preview(engine, current, 0, NULL),
        sumi_open_model(engine, MODEL_PATH, &model),
        loaded == NULL ? SUMI_WRONG_STATE : sumi_generate(engine, loaded, "a fox", 1, &image),
        loaded == NULL ? SUMI_WRONG_STATE : sumi_prompt_load(loaded, "x", 1, &prompt),
    };
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        if (results[i] == SUMI_WRONG_STATE) continue;
        printf("  call %zu from the %s: %s\n", i, s_services[from], sumi_result_text(results[i]));
        atomic_fetch_add(&p->granted, 1);
    }
    if (loaded != NULL) {
        const sumi_image_desc desc = small_image(loaded, &s_item);
        if (sumi_image_size(&desc, &size) != SUMI_WRONG_STATE) atomic_fetch_add(&p->granted, 1);
    }
    sumi_engine_update(engine, 1000);
    sumi_job_discard(engine, current);
    sumi_model_close(loaded);
    sumi_engine_destroy(engine);
    if (sumi_job_profile(engine, current, NULL, 0) != 0) atomic_fetch_add(&p->granted, 1);
    // what may be called beside any other call, and what needs no engine
    const sumi_engine_info info = sumi_engine_get_info(engine);
    if (strcmp(info.backend, "cpu") != 0) atomic_fetch_add(&p->unsafe, 1);
    if (current.id != 0 && sumi_job_poll(engine, current).state == SUMI_JOB_NONE) atomic_fetch_add(&p->unsafe, 1);
    sumi_job_cancel(engine, (sumi_job){0});
    sumi_job listed[2];
    if (current.id != 0 && sumi_job_list(engine, listed, 2) < 1) atomic_fetch_add(&p->unsafe, 1);
    if (sumi_job_set_priority(engine, (sumi_job){0}, 1) != SUMI_STALE_HANDLE) atomic_fetch_add(&p->unsafe, 1);
    char last_error[512];
    if (sumi_engine_last_error(engine, last_error, sizeof last_error) == SUMI_INTERNAL) atomic_fetch_add(&p->unsafe, 1);
    if (loaded != NULL && sumi_model_get_info(loaded).latent_channels != 16) atomic_fetch_add(&p->unsafe, 1);
    // another engine
    sumi_engine_update(p->other, 100);
    if (sumi_engine_set_memory_budget(p->other, 0) != SUMI_OK) atomic_fetch_add(&p->other_refused, 1);
    atomic_fetch_sub(&p->depth, 1);
}

static void probing_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    prober* p = user_data;
    (void)level;
    if (result == SUMI_WRONG_STATE && strstr(text, "callback") != NULL) atomic_fetch_add(&p->refusals_told, 1);
    probe(p, FROM_LOG);
}
static void* probing_allocate(size_t bytes, size_t alignment, void* user_data)
{
    probe(user_data, FROM_ALLOCATOR);
    return host_allocate(bytes, alignment, &s_host);
}
static void probing_release(void* memory, size_t bytes, void* user_data)
{
    probe(user_data, FROM_ALLOCATOR);
    host_release(memory, bytes, &s_host);
}
static void* probing_open(const char* path, uint64_t* out_bytes, void* user_data)
{
    probe(user_data, FROM_FILES);
    return archive_open(path, out_bytes, &((prober*)user_data)->files);
}
static bool probing_read(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    probe(user_data, FROM_FILES);
    return archive_read(file, offset, into, bytes, &((prober*)user_data)->files);
}
static void probing_close(void* file, void* user_data)
{
    probe(user_data, FROM_FILES);
    archive_close(file, &((prober*)user_data)->files);
}
static void* probing_begin(sumi_task* task, int32_t item_count, int32_t min_range, void* context, void* user_data)
{
    probe(user_data, FROM_TASKS);
    return begin_task(task, item_count, min_range, context, &((prober*)user_data)->tasks);
}
static void probing_finish(void* handle, void* user_data) { finish_task(handle, &((prober*)user_data)->tasks); }
static void probing_span(const sumi_trace_span* span, void* user_data)
{
    (void)span;
    probe(user_data, FROM_TRACER);
}

static void reset_probes(prober* p)
{
    for (int i = 0; i < SERVICE_COUNT; i++) atomic_store(&p->probes[i], 0);
}

static void check_callbacks(sumi_pump pump)
{
    static host s_other_host;
    prober p;
    memset(&p, 0, sizeof p);
    memset(&s_other_host, 0, sizeof s_other_host);
    memset(&s_host, 0, sizeof s_host);
    const sumi_engine_desc od = host_desc(&s_other_host);
    CHECK_NUMBER(sumi_engine_create(&od, &p.other), SUMI_OK);
    sumi_engine_desc ed = host_desc(&s_host);
    ed.pump = pump;
    ed.log = (sumi_log){probing_log, &p};
    ed.allocator = &(sumi_allocator){probing_allocate, probing_release, &p};
    ed.files = &(sumi_files){probing_open, probing_read, NULL, probing_close, &p};
    ed.tasks = &(sumi_tasks){3, probing_begin, probing_finish, &p};
    ed.tracer = &(sumi_tracer){probing_span, &p};
    sumi_engine* engine = NULL;
    CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
    if (engine == NULL) return;
    sumi_model_desc md = sumi_model_defaults();
    md.path = MODEL_PATH;
    sumi_job job;
    sumi_model* model = NULL;
    atomic_store(&p.engine, engine);
    CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_model(engine, job, &model), SUMI_OK);
    for (int i = 0; i < SERVICE_COUNT; i++) CHECK(i == FROM_TASKS || atomic_load(&p.probes[i]) > 0);
    reset_probes(&p);
    atomic_store(&p.model, model);
    const sumi_image_desc desc = small_image(model, &s_item);
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    atomic_store(&p.job, job.id);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    const uint64_t hash = fetch_hash(engine, job, &desc);
    atomic_store(&p.job, 0);
    for (int i = 0; i < SERVICE_COUNT; i++) CHECK(i == FROM_FILES || atomic_load(&p.probes[i]) > 0);
    reset_probes(&p);
    CHECK_NUMBER(sumi_submit_images(engine, NULL, &job), SUMI_INVALID_ARGUMENT); // logs on the caller's thread
    reset_probes(&p);
    atomic_store(&p.model, NULL);
    sumi_model_close(model);
    sumi_engine_destroy(engine);
    CHECK_NUMBER(atomic_load(&p.granted), 0);
    CHECK_NUMBER(atomic_load(&p.unsafe), 0);
    CHECK_NUMBER(atomic_load(&p.other_refused), 0);
    CHECK(atomic_load(&p.refusals_told) > 0);
    printf("  %d refusals told, callbacks inside of each other: %d\n", atomic_load(&p.refusals_told),
           atomic_load(&p.deepest));
    CHECK(atomic_load(&p.deepest) <= 2 * SERVICE_COUNT);
    CHECK_NUMBER(s_host.live, 0);
    sumi_engine_destroy(p.other);
    CHECK_NUMBER(s_other_host.live, 0);
    OPEN(plain, plain_model);
    const sumi_image_desc again = small_image(plain_model, &s_item);
    CHECK(hash != 0 && draw_hash(plain, &again) == hash); // the picture is as if nobody had called
    close_engine(plain);
}

TEST(callbacks_may_not_call_their_engine) { check_callbacks(SUMI_PUMP_UPDATE); }
TEST(callbacks_of_the_pump_thread_may_not_call_either) { check_callbacks(SUMI_PUMP_THREAD); }

// ---- A pause --------------------------------------------------------------------------------------------------------

TEST(a_cancel_completes_in_a_pause)
{
    OPEN_WITH(100, engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 20;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    run_until_denoise(engine, job);
    const sumi_job_status before = sumi_job_poll(engine, job);
    sumi_engine_update(engine, 0);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_RUNNING);
    CHECK(sumi_job_poll(engine, job).progress == before.progress); // a pause
    sumi_job_cancel(engine, job);
    sumi_engine_update(engine, 0);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_CANCELLED);
    sumi_image image;
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_CANCELLED);
    close_engine(engine);
}

// ---- After a fork ---------------------------------------------------------------------------------------------------

#if defined(_WIN32)
TEST(a_child_after_a_fork_is_refused) { SKIP("Windows has no fork"); }
#else
// The child's calls; 0: all were refused, and none hung.
static int call_in_child(sumi_engine* engine, sumi_model* model, sumi_job job)
{
    sumi_image image;
    sumi_model_desc md = sumi_model_defaults();
    md.path = MODEL_PATH;
    sumi_job other;
    const sumi_image_desc desc = small_image(model, &s_item);
    sumi_memory memory;
    unsigned char preview[64];
    if (sumi_submit_model(engine, &md, &other) != SUMI_WRONG_STATE) return 1;
    if (sumi_job_wait(engine, job, 1) != SUMI_WRONG_STATE) return 2;
    if (sumi_fetch_images(engine, job, &image, 1) != SUMI_WRONG_STATE) return 3;
    if (sumi_image_memory(engine, &desc, &memory) != SUMI_WRONG_STATE) return 4;
    if (sumi_engine_set_memory_budget(engine, 1) != SUMI_WRONG_STATE) return 5;
    if (sumi_job_preview(engine, job, 0, preview, sizeof preview, &image) != SUMI_WRONG_STATE) return 6;
    const sumi_job_status status = sumi_job_poll(engine, job);
    if (status.state != SUMI_JOB_NONE || status.result != SUMI_WRONG_STATE) return 7;
    if (sumi_engine_get_info(engine).job_count != 0) return 8;
    if (sumi_job_list(engine, NULL, 0) != 0) return 10;
    if (sumi_job_set_priority(engine, job, 1) != SUMI_WRONG_STATE) return 11;
    if (sumi_engine_last_error(engine, NULL, 0) != SUMI_WRONG_STATE) return 12;
    sumi_job_cancel(engine, job);
    sumi_engine_update(engine, 1000);
    sumi_job_discard(engine, job);
    sumi_model_close(model);
    sumi_engine_destroy(engine);
    if (s_host.log_result != SUMI_WRONG_STATE || strstr(s_host.log, "fork") == NULL) return 9;
    return 0;
}

static void check_fork(sumi_pump pump, int32_t threads)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc ed = host_desc(&s_host);
    ed.pump = pump;
    ed.cpu_thread_count = threads;
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.step_count = 1000;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    const volatile unsigned char* page = engine->callers.process.page;
#if defined(__linux__)
    CHECK(page != NULL);                                         // no call asks the system for the process's id
#endif
    for (int i = 0; i < 20; i++) {                               // in the middle of slices, where locks are held
        engine->callers.process.page = i % 2 == 0 ? page : NULL; // as on a system without such pages
        if (pump == SUMI_PUMP_UPDATE) sumi_engine_update(engine, 100);
        else sumi_sleep_us((uint32_t)(50 + 77 * i));
        const pid_t child = fork();
        if (child == 0) {
            alarm(20); // instead of a child that hangs
            _exit(call_in_child(engine, model, job));
        }
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        if (WIFEXITED(status)) CHECK_NUMBER(WEXITSTATUS(status), 0);
    }
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_RUNNING); // the engine has not noticed
    engine->callers.process.page = page;
    close_engine(engine);
}

TEST(a_child_after_a_fork_is_refused)
{
    check_fork(SUMI_PUMP_THREAD, 1);
    check_fork(SUMI_PUMP_UPDATE, 2);
}
#endif

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(callbacks_may_not_call_their_engine);
    RUN(callbacks_of_the_pump_thread_may_not_call_either);
    RUN(a_cancel_completes_in_a_pause);
    RUN(a_child_after_a_fork_is_refused);
    TEST_END();
}
