// The engine's state: which struct owns what, which lock protects it, and which thread may touch it.
//
//   calls of the host program        the pump (the thread that holds the pump lock)      other threads
//   submit -> slot QUEUED  ------->  slot RUNNING, one slice at a time  ------->    poll, cancel, preview, info
//   fetch, discard <---------------  slot DONE / FAILED / CANCELLED                 (read what the pump published)
//
// "slot" here is a job slot (job.h). The pump is the code in pump.c that runs slices of jobs. Depending on
// sumi_engine_desc.pump it runs inside the host program's calls (sumi_engine_update, sumi_job_wait) or on sumi's own
// thread.
//
// There are two locks:
//   state lock   The mutex `state_lock`. It protects the states and published statuses of job slots, the lists of
//                objects, and the pool of pictures. Never held while anything is computed, allocated or logged.
//   pump lock    A flag that `state_lock` protects (pump.h). Only one thread at a time holds it. That thread may
//                run slices, and touch the runner, the plan cache and the workspace. The pump's own thread holds it for
//                one slice at a time, sumi_engine_update and sumi_job_wait for the whole call. Calls that take
//                something away from running jobs also hold it: close, release, destroy. The memory query does not: it
//                writes a plan of its own, from the copy in plan_inputs.
// Order of locks: first the pump lock, then the state lock. A thread that holds the state lock never waits for the pump
// lock.
//
// Jobs run one after the other, so what a job needs only while it runs exists once, here, and the next job uses it
// again. On a GPU the next job may begin while the one before it drains: all slices of the draining job are submitted,
// the last of them are in flight, and then its pictures are read. The next job begins beside it only if its plan can
// run with what is in place (can_follow in job_phases.c): then nothing is allocated, moved or freed, and the device
// uses what both jobs share in the order of submission.
//
//   job 1   running: TEXT PLAN .. RUN .. all submitted | draining: last slices end, OUTPUT |
//   job 2                                              | running:  TEXT PLAN PREPARE_DEVICE INPUT RUN ..
//                                                        job 2 fetches nothing from the device until job 1 has ended
//
// Names of variables here and in engine/:
//   handle  sumi_job: what the host program has       entry  sumi_plan_entry*: a plan in the cache, with its times
//   slot    sumi_job_slot*: what every job has        plan   sumi_plan*: the plan itself
//   job     sumi_plan_job* (or sumi_model_job* and so on): what jobs of this kind have, in slot->u
#ifndef SUMI_JOBS_ENGINE_STATE_H
#define SUMI_JOBS_ENGINE_STATE_H
#include "base/assert.h"
#include "base/memory.h"
#include "base/platform.h"
#include "jobs/buffers.h"
#include "jobs/deadline.h"
#include "jobs/held_inputs.h"
#include "jobs/job.h"
#include "jobs/job_memory.h"
#include "jobs/load_kernels.h"
#include "jobs/log.h"
#include "jobs/plan_cache.h"
#include "jobs/pump.h"
#include "jobs/run.h"
#include "pacing/frame_limits.h"
#include "pacing/shortage_limit.h"
#include "pacing/tempo.h"
#include <stdatomic.h>
#include <sumi.h>

// Kinds of work that the pump's thread does itself, other than slices of a plan. The times are measured, so that a
// piece of this work fits into the host program's budget too.
typedef enum sumi_overhead {
    SUMI_OVERHEAD_LOAD,
    SUMI_OVERHEAD_TEXT,
    SUMI_OVERHEAD_PLAN,
    SUMI_OVERHEAD_PREPARE_DEVICE,
    SUMI_OVERHEAD_INPUT,
    SUMI_OVERHEAD_NOISE,
    SUMI_OVERHEAD_OUTPUT,
    SUMI_OVERHEAD_COUNT
} sumi_overhead;

// Copies of the services that the desc points to; all zero where it has none.
typedef struct sumi_services {
    sumi_allocator allocator;
    sumi_device_allocator device_allocator;
    sumi_files files;
    sumi_tasks tasks;
    sumi_completion completion;
    sumi_tracer tracer;
} sumi_services;

struct sumi_engine {
    sumi_heap heap;
    sumi_engine_desc desc; // points to `services`
    sumi_services services;
    struct sumi_workers* workers;
    struct sumi_runner* runner;

    sumi_mutex state_lock;
    // Used with `state_lock`. Signalled when the pump lock becomes free, a job is queued, paused, resumed or ended, a
    // job slot becomes free, or the pump's thread must end.
    sumi_condition state_changed;
    bool has_locks;

    sumi_callers callers;
    sumi_pump_lock_state pump_lock;
    sumi_pump_state pump;
    sumi_job_table jobs;

    // Protected by `state_lock`.
    sumi_model* models;
    sumi_prompt* prompts;
    sumi_prompt* spare_prompt; // the block of a prompt that was freed (prompt.h); NULL: none
    sumi_lora* loras;
    sumi_control* controls;
    sumi_external* externals;
    struct sumi_picture* pictures;
    uint64_t next_serial;
    // A copy of the inputs of plans for the memory query, made each time the pump lock is released.
    sumi_plan_inputs plan_inputs;

    // Touched only by the thread that holds the pump lock, except atomic members.
    sumi_kernel_loading kernels;
    sumi_held_memory memory;
    sumi_shortage_limit shortage;
    sumi_plan_cache cache;
    sumi_workspace workspace;
    sumi_runs runs;
    sumi_held_inputs held_inputs;
    sumi_frame_limits frame;
    sumi_deadline_state deadline;
    sumi_tempo tempo;
    double overhead_us[SUMI_OVERHEAD_COUNT]; // moving averages of the time of one piece; guesses at first
    uint64_t traced_ns;                      // end of the newest trace span of the device (steady clock)
};

// Whether the calling thread holds the pump lock. For assertions only: builds without SUMI_CHECKED always return true.
static inline bool sumi_pump_is_locked(const sumi_engine* engine)
{
#if defined(SUMI_CHECKED)
    return atomic_load(&engine->pump_lock.holder) == sumi_this_thread();
#else
    (void)engine;
    return true;
#endif
}
// The memory limit that jobs keep to, in bytes: the host program's or the one of a shortage, whichever is less; 0:
// none. The caller holds the pump lock.
static inline uint64_t sumi_engine_memory_limit(const sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    return sumi_shortage_limit_lesser(&engine->shortage, engine->memory.host_limit);
}
#endif
