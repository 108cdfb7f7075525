// sumi's own threads sleep on a condition between loops. The caller publishes a loop under the mutex. Caller and
// threads claim ranges of items from an atomic counter. The last thread that leaves the loop wakes the caller. With the
// host program's tasks the same body is passed through begin / finish.
//
//   caller:  publish (generation + 1) -> claim ranges until none is left -> wait until every thread that joined this
//            loop has left
//   thread:  wait for a new generation -> join -> claim ranges -> leave
//
// A thread that wakes after the loop has ended must not touch the body's context. Threads therefore join under the
// mutex, and only while a loop is published; the caller waits for them and withdraws the loop under the same mutex.
#include "base/workers.h"
#include "base/assert.h"
#include "base/platform.h"
#include <stdio.h>

#define MAX_THREADS 256

typedef struct worker_thread {
    sumi_thread thread;
    sumi_thread_start start;
    struct sumi_workers* workers;
    int32_t index; // worker_index of this thread, 1 or more; the caller has 0
} worker_thread;

struct sumi_workers {
    sumi_heap* heap;
    sumi_tasks tasks;
    bool uses_tasks;
    worker_thread* threads;
    int32_t thread_count; // threads that were started; the caller is not counted
    sumi_mutex mutex;
    sumi_condition wake; // threads wait: a new loop is published, or the workers are destroyed
    sumi_condition done; // the caller waits: the last thread has left the loop
    bool has_locks, closing;
    uint64_t generation;
    int32_t joined; // threads inside the current loop
    // the current loop
    sumi_loop_body* body;
    void* context;
    int32_t item_count, range;
    atomic_int next;
};

static void claim_ranges(sumi_workers* workers, int32_t worker_index)
{
    SUMI_ASSERT(workers->body != NULL && workers->range >= 1);
    SUMI_ASSERT(worker_index >= 0 && worker_index < MAX_THREADS);
    for (;;) {
        int32_t begin = atomic_fetch_add(&workers->next, workers->range);
        if (begin >= workers->item_count) return;
        int32_t end = workers->item_count - begin < workers->range ? workers->item_count : begin + workers->range;
        SUMI_ASSERT(begin >= 0 && begin < end && end <= workers->item_count);
        workers->body(begin, end, worker_index, workers->context);
    }
}

static void thread_main(void* context)
{
    worker_thread* self = context;
    sumi_workers* workers = self->workers;
    SUMI_ASSERT(self->index >= 1 && self->index < MAX_THREADS);
    uint64_t seen = 0;
    sumi_mutex_lock(&workers->mutex);
    for (;;) {
        while (workers->generation == seen && !workers->closing) sumi_condition_wait(&workers->wake, &workers->mutex);
        if (workers->closing) break;
        seen = workers->generation;
        if (workers->body == NULL) {
            continue; // the loop had ended before this thread woke
        }
        workers->joined++;
        sumi_mutex_unlock(&workers->mutex);
        claim_ranges(workers, self->index);
        sumi_mutex_lock(&workers->mutex);
        SUMI_ASSERT(workers->joined > 0);
        if (--workers->joined == 0) sumi_condition_broadcast(&workers->done);
    }
    sumi_mutex_unlock(&workers->mutex);
}

sumi_result sumi_workers_create(sumi_heap* heap, const sumi_tasks* tasks, int32_t thread_count, sumi_error* error,
                                sumi_workers** out_workers)
{
    *out_workers = NULL;
    sumi_workers* workers = sumi_alloc_zero(heap, sizeof *workers);
    if (workers == NULL) return sumi_out_of_memory(error, sizeof *workers, "the workers");
    workers->heap = heap;
    if (tasks != NULL && tasks->begin != NULL && tasks->worker_count > 0) {
        workers->tasks = *tasks;
        workers->uses_tasks = true;
        *out_workers = workers;
        return SUMI_OK;
    }
    if (thread_count <= 0) thread_count = sumi_cpu_count();
    if (thread_count > MAX_THREADS) thread_count = MAX_THREADS;
    if (thread_count > 1) {
        if (!sumi_mutex_init(&workers->mutex) || !sumi_condition_init(&workers->wake)
            || !sumi_condition_init(&workers->done)) {
            sumi_free(heap, workers);
            return sumi_fail(error, SUMI_INTERNAL, "the system has no more locks");
        }
        workers->has_locks = true;
        size_t bytes = (size_t)(thread_count - 1) * sizeof(worker_thread);
        workers->threads = sumi_alloc_zero(heap, bytes);
        if (workers->threads == NULL) {
            sumi_workers_destroy(workers);
            return sumi_out_of_memory(error, bytes, "worker threads");
        }
        for (int32_t i = 0; i < thread_count - 1; i++) {
            worker_thread* thread = &workers->threads[i];
            thread->workers = workers;
            thread->index = i + 1;
            thread->start = (sumi_thread_start){thread_main, thread, true, ""};
            snprintf(thread->start.name, sizeof thread->start.name, "sumi worker %u", (unsigned)thread->index % 1000u);
            if (!sumi_thread_begin(&thread->thread, &thread->start)) {
                break; // with fewer threads loops are slower, not wrong
            }
            workers->thread_count++;
        }
    }
    *out_workers = workers;
    return SUMI_OK;
}

void sumi_workers_destroy(sumi_workers* workers)
{
    if (workers == NULL) return;
    if (workers->has_locks) {
        sumi_mutex_lock(&workers->mutex);
        workers->closing = true;
        SUMI_ASSERT(workers->body == NULL && workers->joined == 0); // no loop is running
        sumi_condition_broadcast(&workers->wake);
        sumi_mutex_unlock(&workers->mutex);
        for (int32_t i = 0; i < workers->thread_count; i++) sumi_thread_join(&workers->threads[i].thread);
        sumi_condition_destroy(&workers->wake);
        sumi_condition_destroy(&workers->done);
        sumi_mutex_destroy(&workers->mutex);
    }
    sumi_free(workers->heap, workers->threads);
    sumi_free(workers->heap, workers);
}

int32_t sumi_workers_count(const sumi_workers* workers)
{
    return workers->uses_tasks ? workers->tasks.worker_count : workers->thread_count + 1;
}

void sumi_parallel(sumi_workers* workers, int32_t item_count, int32_t min_range, sumi_loop_body* body, void* context)
{
    SUMI_ASSERT(body != NULL);
    if (item_count <= 0) return;
    if (min_range < 1) min_range = 1;
    if (item_count <= min_range || sumi_workers_count(workers) == 1) {
        body(0, item_count, 0, context);
        return;
    }
    if (workers->uses_tasks) {
        void* handle = workers->tasks.begin(body, item_count, min_range, context, workers->tasks.user_data);
        workers->tasks.finish(handle, workers->tasks.user_data);
        return;
    }
    // about four ranges per worker balance cores of different speed and keep the number of claims low
    int32_t range = item_count / (sumi_workers_count(workers) * 4);
    sumi_mutex_lock(&workers->mutex);
    SUMI_ASSERT(workers->body == NULL && workers->joined == 0); // one loop at a time
    workers->body = body;
    workers->context = context;
    workers->item_count = item_count;
    workers->range = range > min_range ? range : min_range;
    // The counter must not overflow: every thread adds `range` once more after the last range.
    SUMI_ASSERT((int64_t)item_count + (int64_t)workers->range * sumi_workers_count(workers) <= INT32_MAX);
    atomic_store(&workers->next, 0);
    workers->generation++;
    sumi_condition_broadcast(&workers->wake);
    sumi_mutex_unlock(&workers->mutex);
    claim_ranges(workers, 0);
    sumi_mutex_lock(&workers->mutex);
    while (workers->joined > 0) sumi_condition_wait(&workers->done, &workers->mutex);
    SUMI_ASSERT(atomic_load(&workers->next) >= item_count);
    workers->body = NULL; // threads that wake from now on do not join
    sumi_mutex_unlock(&workers->mutex);
}
