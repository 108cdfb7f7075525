// The engine from inside: who owns what, and which thread may touch it.
//
//   host's calls                     the pump (whoever holds the work)              other threads
//   submit -> slot QUEUED  ------->  slot RUNNING, one slice at a time  ------->    poll, cancel, preview, info
//   fetch, discard <---------------  slot DONE / FAILED / CANCELLED                 (read what the pump published)
//
// Two locks, both short in different ways:
//   table   a mutex around slots' states, published statuses, lists and pool. Never held while anything is computed,
//           allocated or logged.
//   work    a flag under that mutex (work.h): who has it may run slices, and touch runner, cache and workspace. Held for
//           one slice by the pump, and by the calls that take something away from running jobs: close, release, destroy.
//           The memory query does without: it writes a plan of its own, from what the last holder left under `table`.
// Order: work before table. Nobody waits for the work while holding the table.
//
// Jobs run one after the other, so everything a job needs only while it runs exists once, here, and is reused by the
// next one. On a GPU the next one begins while the one before it drains: its last slices are in flight, and then its
// pictures are read. It does so if its plan is ready as it is: nothing is allocated, moved or given back then, and what
// both use is used in order.
//
//   running   TEXT PLAN .. RUN ..  all submitted -> draining  last slices end, OUTPUT
//                                                   running   TEXT PLAN READY INPUT RUN ..             first fetch: when nothing drains any more
#ifndef SUMI_ENGINE_ENGINE_H
#define SUMI_ENGINE_ENGINE_H
#include "base/platform.h"
#include "base/workers.h"
#include "engine/calls.h"
#include "engine/deadline.h"
#include "engine/device_limit.h"
#include "engine/engine_memory.h"
#include "engine/externals.h"
#include "engine/frame_budget.h"
#include "engine/job.h"
#include "engine/load_kernels.h"
#include "engine/loras.h"
#include "engine/models.h"
#include "engine/plan_cache.h"
#include "engine/pool.h"
#include "engine/prompts.h"
#include "engine/pump.h"
#include "engine/run.h"
#include "engine/tempo.h"
#include "engine/work.h"
#include "plan/runner.h"

// Work of this thread that is no slice of a plan. Its times are measured, so that it fits into a host's budget too.
typedef enum sumi_overhead {
    SUMI_OVERHEAD_LOAD,
    SUMI_OVERHEAD_TEXT,
    SUMI_OVERHEAD_PLAN,
    SUMI_OVERHEAD_READY,
    SUMI_OVERHEAD_INPUT,
    SUMI_OVERHEAD_NOISE,
    SUMI_OVERHEAD_OUTPUT,
    SUMI_OVERHEAD_COUNT
} sumi_overhead;

struct sumi_engine {
    sumi_heap heap;
    sumi_engine_desc desc;
    sumi_workers* workers;
    sumi_runner* runner;

    sumi_mutex table;
    sumi_condition changed; // the work is free, a job was queued, a job has ended, the engine closes
    // Of the tokenizers, whose scratch jobs and memory queries share. Held while one prompt is split, by who holds the
    // work or does not; never while holding `table`.
    sumi_mutex text;
    bool has_locks;

    sumi_callers callers;
    sumi_work work;
    sumi_pump_state pump;
    sumi_job_table jobs;

    // under `table`
    sumi_model* models;
    sumi_prompt* prompts;
    sumi_lora* loras;
    sumi_external* externals;
    sumi_picture* pictures;
    uint64_t next_serial;
    sumi_plan_inputs plan_inputs; // as they were when the work was given back last

    // whoever holds the work
    sumi_kernel_loading kernels;
    sumi_engine_memory memory;
    sumi_device_limit limit;
    sumi_plan_cache cache;
    sumi_workspace workspace;
    sumi_runs runs;
    sumi_frame_budget frame;
    sumi_pace pace;
    sumi_tempo tempo;
    double overhead_us[SUMI_OVERHEAD_COUNT]; // moving averages, guesses at first
    uint64_t traced_ns;                      // where the newest span of the device's track ended
};

// By this thread. For assertions: only checked builds know.
static inline bool sumi_work_is_held(const sumi_engine* engine)
{
#if defined(SUMI_CHECKED)
    return atomic_load(&engine->work.holder) == sumi_this_thread();
#else
    (void)engine;
    return true;
#endif
}
#endif
