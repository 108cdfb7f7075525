// The memory that the engine holds for the job that runs: arena and scratch memory of the backend, in host memory or on
// a device; the limit that jobs keep to; and what a job does when the device has less than its plan needs.
//
// A shortage is noticed only when an allocation fails, and it can end at any time:
//
//   a job's allocation fails   sumi_limit_note. The job first evicts weights of other jobs and runs half of its batch
//                              at a time (sumi_plan_job_tries_again). If that is not enough, a limit is set or lowered;
//                              the job tries again under it, and later jobs keep to it too.
//   a job begins               sumi_limit_review: if the device has more memory now, the limit is raised or removed.
//
// pacing/shortage_limit.h says how large a limit is, and which jobs review it. The functions are called by the thread
// that holds the pump lock (engine_state.h), except sumi_engine_held_bytes. Those of the shortage do nothing on the
// CPU. Changes of the limit are logged.
#ifndef SUMI_JOBS_JOB_MEMORY_H
#define SUMI_JOBS_JOB_MEMORY_H
#include "base/result.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "plan/plan.h"
#include "plan/weight.h"
#include <stdatomic.h>
#include <sumi.h>

// ---- What is held ---------------------------------------------------------------------------------------------------

typedef struct sumi_held_memory {
    // Both are touched by whoever holds the pump lock. 0: none.
    // host_limit: the host program's memory limit that holds for what runs. A job keeps the one that held when it left
    // the queue.
    // next_host_limit: the host program's newest, which has not begun to hold while `has_next_host_limit` is true.
    uint64_t host_limit, next_host_limit;
    bool has_next_host_limit;
    // Bytes that sumi_engine_get_info reports. Written by whoever holds the pump lock, read by any thread.
    atomic_uint_fast64_t weight_bytes, arena_bytes, scratch_bytes, image_bytes;
} sumi_held_memory;

// Makes arena and scratch memory large enough for the plan. Under a memory limit, if either must grow, both are freed
// before. Fails with an out-of-memory result.
sumi_result sumi_engine_reserve(sumi_engine* engine, const sumi_plan_entry* entry, sumi_error* error);
// The host program's newest memory limit begins to hold. Called when a job leaves the queue: the job before it may
// still drain (engine_state.h), but a job that drains takes no more memory.
void sumi_engine_adopt_host_limit(sumi_engine* engine);
// While no job runs: adopts the newest memory limit, and frees memory if more than that is held. Otherwise does
// nothing.
void sumi_engine_trim(sumi_engine* engine);
// Bytes held now, by sumi_memory_kind. Any thread, takes no lock, never blocks.
void sumi_engine_held_bytes(const sumi_engine* engine, uint64_t out_bytes[4]);
// Removes weights from the device; blocks until all slices in flight have ended. Does nothing on the CPU.
void sumi_engine_release_weights(sumi_engine* engine, const sumi_weight* const* weights, size_t count);

// ---- The limit of a shortage ----------------------------------------------------------------------------------------

// How often one job may lower the limit. Usually each time takes an eighth away, so about a third is left after the
// last.
#define SUMI_MAX_LOWERED 8

// Called with every result of the runner that may be an out-of-memory failure; records the state of the device.
void sumi_limit_note(sumi_engine* engine, sumi_result result);
// After such a failure: sets a lower limit. False: it cannot be lower. `plan` is the plan that was to run; NULL:
// unknown.
bool sumi_limit_lower(sumi_engine* engine, const sumi_plan* plan);
void sumi_limit_review(sumi_engine* engine);  // called when a job begins and nothing runs
void sumi_limit_confirm(sumi_engine* engine); // called when an image job got all its memory: a raised limit stays

// ---- What a job does ------------------------------------------------------------------------------------------------

// Called after a failure in phase PLAN or PREPARE_DEVICE. True: the job is back in phase PLAN, must be tried again, and
// *error is cleared. False: the job fails with `result`; that is so for every result but SUMI_OUT_OF_DEVICE_MEMORY.
//
// If an allocation on the device failed, each call does the first of these that is left:
//   1. While the batch has several items: evict weights that the job does not use, twice at most.
//   2. While the batch has several items: run half as many items at a time.
//   3. Lower the device limit, so that weights are streamed in every step and the VAE works in tiles.
//   4. Fail, and remove the limit.
// If the plan did not fit into the limit, so that no allocation was tried:
//   1. Once, and only if this job has not lowered the limit: raise it, if the device has more memory now.
//   2. While the batch has several items: run half as many items at a time.
//   3. Once: raise the limit to what the smallest form of the plan needs.
//   4. Fail, and remove the limit.
//
// Blocks until slices in flight have ended.
bool sumi_plan_job_tries_again(sumi_engine* engine, sumi_plan_job* job, sumi_result result, sumi_error* error);
#endif
