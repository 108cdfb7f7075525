// The CPU's runner for all tests of a program, and a heap for what they hold.
#ifndef CPU_RUNNER_H
#define CPU_RUNNER_H
#include "at_once.h"
#include "cpu/cpu.h"
#include "plan_runner.h"
#include "test.h"
#include <stdatomic.h>

static sumi_heap s_heap;
static sumi_heap s_runner_heap; // the runner's own
static sumi_workers* s_workers;
static sumi_runner* s_runner;

// worker_count: 0 works on the calling thread. False after a message.
static inline bool begin_cpu(int32_t worker_count)
{
    sumi_error error = {0};
    sumi_heap_init(&s_heap, NULL);
    sumi_heap_init(&s_runner_heap, NULL);
    if (sumi_workers_create(&s_runner_heap, NULL, worker_count, &error, &s_workers) == SUMI_OK
        && sumi_cpu_create(&s_runner_heap, s_workers, SUMI_CPU_AUTO, &error, &s_runner) == SUMI_OK)
        return true;
    printf("%s\n", error.text);
    return false;
}

// Behind the last test: what is held by then is a failure.
static inline void end_cpu(void)
{
    s_runner->functions->destroy(s_runner);
    sumi_workers_destroy(s_workers);
    const uint64_t held = atomic_load(&s_heap.allocated_bytes) + atomic_load(&s_runner_heap.allocated_bytes);
    if (held == 0) return;
    printf("FAILED: %llu bytes are held after the last test\n", (unsigned long long)held);
    t_failed++;
}
#endif
