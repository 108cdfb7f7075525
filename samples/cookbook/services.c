// The host's allocator and the host's threads: sumi takes memory from the one and runs its loops on the others.
#include "cookbook.h"
#include "system.h"
#include <pthread.h>
#include <stdatomic.h>

// ---- Memory ---------------------------------------------------------------------------------------------------------

// [excerpt allocator]
typedef struct memory_pool {
    atomic_size_t held_bytes; // worker threads allocate too
    size_t limit_bytes;
} memory_pool;

static void* pool_allocate(size_t bytes, size_t alignment, void* user_data)
{
    memory_pool* pool = user_data;
    const bool fits = atomic_fetch_add(&pool->held_bytes, bytes) + bytes <= pool->limit_bytes;
    void* memory = fits ? system_allocate(bytes, alignment) : NULL;
    if (!memory) atomic_fetch_sub(&pool->held_bytes, bytes);
    return memory; // NULL: the call or the job fails with SUMI_OUT_OF_HOST_MEMORY, and the engine goes on
}

static void pool_release(void* memory, size_t bytes, void* user_data)
{
    memory_pool* pool = user_data;
    atomic_fetch_sub(&pool->held_bytes, bytes); // the bytes that it was allocated with
    system_release(memory);
}
// [end]

// ---- Threads --------------------------------------------------------------------------------------------------------

#define WORKER_COUNT 3 // two threads and the one that calls the engine

// One loop at a time. A game's job system does the same with its own queues.
typedef struct job_system {
    pthread_t threads[WORKER_COUNT - 1];
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_closing;
    int32_t started; // threads that have an index
    sumi_task* task; // the loop; NULL: none
    void* context;
    int32_t item_count, range, next, running;
    uint64_t loops;
} job_system;

// With the mutex held. Runs ranges until the loop has none left to begin.
static void run_ranges(job_system* jobs, int32_t worker_index)
{
    while (jobs->task && jobs->next < jobs->item_count) {
        const int32_t begin = jobs->next;
        const int32_t end = jobs->item_count - begin < jobs->range ? jobs->item_count : begin + jobs->range;
        sumi_task* task = jobs->task;
        void* context = jobs->context;
        jobs->next = end;
        jobs->running++;
        pthread_mutex_unlock(&jobs->mutex);
        task(begin, end, worker_index, context);
        pthread_mutex_lock(&jobs->mutex);
        if (--jobs->running == 0) pthread_cond_broadcast(&jobs->changed);
    }
}

static void* work(void* context)
{
    job_system* jobs = context;
    pthread_mutex_lock(&jobs->mutex);
    const int32_t worker_index = ++jobs->started; // 0 is the thread that calls the engine
    while (!jobs->is_closing) {
        run_ranges(jobs, worker_index);
        if (!jobs->is_closing) pthread_cond_wait(&jobs->changed, &jobs->mutex);
    }
    pthread_mutex_unlock(&jobs->mutex);
    return NULL;
}

// [excerpt tasks]
// Every item of [0, item_count) is covered once, by ranges of at least min_range items.
static void* begin_loop(sumi_task* task, int32_t item_count, int32_t min_range, void* context, void* user_data)
{
    job_system* jobs = user_data;
    const int32_t even = item_count / (4 * WORKER_COUNT); // about four ranges for each worker
    pthread_mutex_lock(&jobs->mutex);
    jobs->task = task;
    jobs->context = context;
    jobs->item_count = item_count;
    jobs->range = even > min_range ? even : min_range;
    jobs->next = 0;
    jobs->loops++;
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->mutex);
    return jobs;
}

// Works too, and returns when every range is done.
static void finish_loop(void* handle, void* user_data)
{
    job_system* jobs = handle;
    (void)user_data;
    pthread_mutex_lock(&jobs->mutex);
    run_ranges(jobs, 0); // two ranges at the same time never have the same worker_index
    while (jobs->running > 0) pthread_cond_wait(&jobs->changed, &jobs->mutex);
    jobs->task = NULL;
    pthread_mutex_unlock(&jobs->mutex);
}
// [end]

static int32_t open_jobs(job_system* jobs)
{
    int32_t count = 0;
    pthread_mutex_init(&jobs->mutex, NULL);
    pthread_cond_init(&jobs->changed, NULL);
    while (count < WORKER_COUNT - 1 && pthread_create(&jobs->threads[count], NULL, work, jobs) == 0) count++;
    return count;
}

static void close_jobs(job_system* jobs, int32_t thread_count)
{
    pthread_mutex_lock(&jobs->mutex);
    jobs->is_closing = true;
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->mutex);
    for (int32_t i = 0; i < thread_count; i++) pthread_join(jobs->threads[i], NULL);
    pthread_cond_destroy(&jobs->changed);
    pthread_mutex_destroy(&jobs->mutex);
}

sumi_result recipe_services(const recipe_host* host)
{
    job_system jobs = {0};
    memory_pool pool = {.limit_bytes = (size_t)2 << 30};
    const int32_t thread_count = open_jobs(&jobs);
    // [excerpt services]
    const sumi_allocator allocator = {pool_allocate, pool_release, &pool};
    const sumi_tasks tasks = {WORKER_COUNT, begin_loop, finish_loop, &jobs}; // loops of the CPU backend
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.allocator = &allocator;
    desc.tasks = &tasks;
    // [end]
    desc.log.write = recipe_log;
    sumi_engine* engine;
    sumi_model* model;
    sumi_result result = sumi_engine_create(&desc, &engine);
    if (result == SUMI_OK) result = sumi_open_model(engine, host->model_path, &model);
    if (result == SUMI_OK) result = recipe_draw(host, engine, model);
    sumi_engine_destroy(engine);
    close_jobs(&jobs, thread_count);
    printf("%llu loops on the host's threads; %zu bytes still held\n", (unsigned long long)jobs.loops,
           atomic_load(&pool.held_bytes));
    return result;
}
