#include "jobs/job_memory.h"
#include "base/assert.h"
#include "base/result.h"
#include "jobs/engine_state.h"
#include "jobs/log.h"
#include "jobs/pause.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "jobs/run.h"
#include "pacing/shortage_limit.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include "plan/weight.h"
#include <stdatomic.h>
#include <stdio.h>

// ---- The limit of a shortage ----------------------------------------------------------------------------------------

static double mb(uint64_t bytes) { return 1e-6 * (double)bytes; }

static sumi_memory_capacity capacity_now(sumi_engine* engine)
{
    sumi_device_capacity now;
    engine->runner->functions->capacity(engine->runner, &now);
    return (sumi_memory_capacity){.held_bytes = now.held_bytes,
                                  .free_bytes = now.free_bytes,
                                  .is_known = now.is_known,
                                  .failed_held_bytes = now.failed_held_bytes,
                                  .failed_request_bytes = now.failed_request_bytes};
}

void sumi_limit_note(sumi_engine* engine, sumi_result result)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    if (result != SUMI_OUT_OF_DEVICE_MEMORY) return;
    const sumi_memory_capacity capacity = capacity_now(engine);
    sumi_shortage_limit_note(&engine->shortage, &capacity);
}

// Notes how many device bytes the plan needs when nothing limits it.
static void note_requested_bytes(sumi_engine* engine, const sumi_plan* plan)
{
    sumi_device_need need = {0};
    sumi_error none = {0};
    if (plan == NULL || engine->runner->functions->need(engine->runner, plan, 0, &need, &none) != SUMI_OK) return;
    sumi_shortage_limit_note_request(&engine->shortage, need.device_bytes);
}

bool sumi_limit_lower(sumi_engine* engine, const sumi_plan* plan)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const sumi_memory_capacity* capacity = &engine->shortage.capacity;
    bool was_raised;
    char text[256];
    if (!engine->shortage.retry_is_pending) return false;
    note_requested_bytes(engine, plan);
    if (!sumi_shortage_limit_lower(&engine->shortage, engine->memory.host_limit, &was_raised)) return false;
    const double new_mb = mb(engine->shortage.bytes);
    if (was_raised) {
        snprintf(text, sizeof text, "the device still has no memory for more: back to a limit of %.1f MB", new_mb);
    } else if (capacity->is_known) {
        snprintf(text, sizeof text,
                 "the device has no memory left: %.1f MB are held here and %.1f MB are free; trying again with %.1f "
                 "MB, streaming weights if need be",
                 mb(capacity->held_bytes), mb(capacity->free_bytes), new_mb);
    } else {
        snprintf(text, sizeof text,
                 "device_allocator has no memory left: %.1f MB were held when %.1f MB were refused; trying again with "
                 "%.1f MB, streaming weights if need be",
                 mb(capacity->failed_held_bytes), mb(capacity->failed_request_bytes), new_mb);
    }
    sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
    return true;
}

// Raises or removes the limit if the device has more than least_bytes now. False: the limit stays.
static bool raise_limit(sumi_engine* engine, uint64_t least_bytes)
{
    const sumi_memory_capacity capacity = capacity_now(engine);
    char text[256], new_limit_text[48] = "gone";
    if (!sumi_shortage_limit_raise(&engine->shortage, &capacity, engine->memory.host_limit, least_bytes)) return false;
    const double previous_mb = mb(engine->shortage.previous_bytes);
    if (engine->shortage.bytes != 0)
        snprintf(new_limit_text, sizeof new_limit_text, "%.1f MB now", mb(engine->shortage.bytes));
    if (capacity.is_known) {
        snprintf(text, sizeof text,
                 "the device has memory again: %.1f MB are free beside the %.1f MB held here; the limit of %.1f MB "
                 "is %s",
                 mb(capacity.free_bytes), mb(capacity.held_bytes), previous_mb, new_limit_text);
    } else {
        snprintf(text, sizeof text,
                 "trying whether the device has memory again: without the limit of %.1f MB that a shortage has left",
                 previous_mb);
    }
    sumi_log_write(engine, SUMI_LOG_INFO, SUMI_OK, text);
    return true;
}

// Raises the limit to what the smallest form of the newest plan that did not fit needs, unless that is more than is
// available. False: the limit stays.
static bool raise_to_smallest_form(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const uint64_t previous_bytes = engine->shortage.bytes;
    char text[160];
    if (engine->shortage.capacity.is_known) engine->shortage.capacity = capacity_now(engine);
    if (!sumi_shortage_limit_raise_to_smallest_form(&engine->shortage, engine->memory.host_limit)) return false;
    snprintf(text, sizeof text, "%.1f MB do not hold this job: trying it in its smallest form, with %.1f MB",
             mb(previous_bytes), mb(engine->shortage.bytes));
    sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
    return true;
}

void sumi_limit_review(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    uint64_t least_bytes;
    if (sumi_shortage_limit_begin_job(&engine->shortage, &least_bytes)) (void)raise_limit(engine, least_bytes);
}

void sumi_limit_confirm(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_shortage_limit_confirm(&engine->shortage);
}

// ---- What is held ---------------------------------------------------------------------------------------------------

// The bytes that the memory limit counts.
static uint64_t counted_bytes(const sumi_engine* engine)
{
    if (!engine->runner->traits.has_memory)
        return atomic_load(&engine->memory.arena_bytes) + atomic_load(&engine->memory.scratch_bytes);
    sumi_device_properties properties;
    engine->runner->functions->properties(engine->runner, &properties);
    return properties.held_bytes[SUMI_MEMORY_WEIGHTS] + properties.held_bytes[SUMI_MEMORY_ARENA]
         + properties.held_bytes[SUMI_MEMORY_IMAGE];
}

void sumi_engine_release_weights(sumi_engine* engine, const sumi_weight* const* weights, size_t count)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_run_wait_for_all(engine);
    engine->runner->functions->release_weights(engine->runner, weights, count);
}

// Frees arena and scratch memory. Blocks until all slices in flight end.
static void release_arena(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_run_wait_for_all(engine);
    engine->runner->functions->release(engine->runner);
    atomic_store(&engine->memory.arena_bytes, 0);
    atomic_store(&engine->memory.scratch_bytes, 0);
}

sumi_result sumi_engine_reserve(sumi_engine* engine, const sumi_plan_entry* entry, sumi_error* error)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    SUMI_ASSERT(entry->model != NULL && entry->need.fits);
    const uint64_t held_arena_bytes = atomic_load(&engine->memory.arena_bytes),
                   held_scratch_bytes = atomic_load(&engine->memory.scratch_bytes);
    uint64_t arena_bytes = entry->plan.arena_bytes > held_arena_bytes ? entry->plan.arena_bytes : held_arena_bytes;
    uint64_t scratch_bytes = entry->scratch_bytes > held_scratch_bytes ? entry->scratch_bytes : held_scratch_bytes;
    bool grows = arena_bytes > held_arena_bytes || scratch_bytes > held_scratch_bytes;
    // Under a memory limit the old blocks are freed before larger ones are allocated. Old and new blocks together, or
    // the arena of one job with the scratch memory of another, could exceed the limit.
    if (grows && engine->memory.host_limit != 0) {
        release_arena(engine);
        arena_bytes = entry->plan.arena_bytes;
        scratch_bytes = entry->scratch_bytes;
    }
    sumi_result result = engine->runner->functions->reserve(engine->runner, &entry->plan, error);
    if (result != SUMI_OK) {
        sumi_limit_note(engine, result);
        // The failure may have left the arena grown and the scratch memory not, or the reverse, so both are freed.
        // While a job drains, its results are in the arena, so the arena must stay; a job that begins beside it needs
        // no new memory (can_follow in job_phases.c).
        if (engine->jobs.draining == NULL) release_arena(engine);
        return result;
    }
    atomic_store(&engine->memory.arena_bytes, arena_bytes);
    atomic_store(&engine->memory.scratch_bytes, scratch_bytes);
    return SUMI_OK;
}

void sumi_engine_adopt_host_limit(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && engine->jobs.running == NULL);
    if (!engine->memory.has_next_host_limit) return;
    engine->memory.host_limit = engine->memory.next_host_limit;
    engine->memory.has_next_host_limit = false;
    engine->shortage = (sumi_shortage_limit){0};
}

void sumi_engine_trim(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const sumi_runner_functions* runner = engine->runner->functions;
    if (engine->jobs.running != NULL || engine->jobs.draining != NULL) return;
    SUMI_ASSERT(engine->runs.current.entry == NULL);
    sumi_engine_adopt_host_limit(engine);
    if (engine->memory.host_limit == 0) return;
    if (counted_bytes(engine) <= engine->memory.host_limit) return;
    release_arena(engine);
    runner->set_memory_limit(engine->runner, sumi_engine_memory_limit(engine));
    runner->trim(engine->runner);
}

// Called by every sumi_job_poll, so it reads nothing else.
void sumi_engine_held_bytes(const sumi_engine* engine, uint64_t out_bytes[4])
{
    const uint64_t image_bytes = atomic_load(&engine->memory.image_bytes);
    if (engine->runner->traits.has_memory) {
        engine->runner->functions->held_bytes(engine->runner, out_bytes);
        out_bytes[SUMI_MEMORY_IMAGE] += image_bytes;
        return;
    }
    out_bytes[SUMI_MEMORY_WEIGHTS] = atomic_load(&engine->memory.weight_bytes);
    out_bytes[SUMI_MEMORY_ARENA] = atomic_load(&engine->memory.arena_bytes);
    out_bytes[SUMI_MEMORY_IMAGE] = image_bytes;
    out_bytes[SUMI_MEMORY_STAGING] = atomic_load(&engine->memory.scratch_bytes);
}

// ---- What a job does ------------------------------------------------------------------------------------------------

// The first eviction removes weights that other plans read only once per job, the second those that their steps read.
#define MAX_EVICTIONS 2

// Evicts weights that the job's plan does not use. False: there are none left, or all evictions were made.
static bool evicts_weights(sumi_engine* engine, sumi_plan_job* job)
{
    if (job->shortage.evictions == MAX_EVICTIONS || job->progress.entry == NULL) return false;
    release_arena(engine);
    const bool is_any = engine->runner->functions->evict(engine->runner, &job->progress.entry->plan);
    job->shortage.evictions = is_any ? job->shortage.evictions + 1 : MAX_EVICTIONS;
    return is_any;
}

static void halve_batch(sumi_engine* engine, sumi_plan_job* job)
{
    SUMI_ASSERT(job->progress.batch_count > 1);
    sumi_plan_job_free_saved_state(engine, job); // a saved state belongs to a batch of the former size
    char text[160];
    job->progress.batch_count = (job->progress.batch_count + 1) / 2;
    release_arena(engine); // the next arena is smaller, and weights may need the memory
    snprintf(text, sizeof text,
             "the device has no memory left for the batch: trying again with %d of its %d images at a time",
             (int)job->progress.batch_count, (int)job->request.item_count);
    sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
}

// A bound that is never reached: more than all tries below together, which are 2 evictions, 6 halvings, 1 raised limit,
// 1 smallest form, and SUMI_MAX_LOWERED lowered limits.
#define MAX_TRIES 32

bool sumi_plan_job_tries_again(sumi_engine* engine, sumi_plan_job* job, sumi_result result, sumi_error* error)
{
    sumi_job_shortage* shortage = &job->shortage;
    SUMI_ASSERT(result != SUMI_OK);
    if (result != SUMI_OUT_OF_DEVICE_MEMORY) return false;
    const bool allocation_failed = engine->shortage.retry_is_pending;
    engine->shortage.retry_is_pending = false;
    bool goes_on = ++shortage->attempts <= MAX_TRIES;
    if (goes_on && allocation_failed && job->progress.batch_count > 1) {
        if (!evicts_weights(engine, job)) halve_batch(engine, job);
    } else if (goes_on && allocation_failed) {
        const sumi_plan* plan = job->progress.entry != NULL ? &job->progress.entry->plan : NULL;
        engine->shortage.retry_is_pending = true;
        goes_on = shortage->lowered_limits++ < SUMI_MAX_LOWERED && sumi_limit_lower(engine, plan);
    } else if (goes_on && !shortage->has_raised && shortage->lowered_limits == 0 && engine->shortage.bytes != 0
               && raise_limit(engine, engine->shortage.bytes)) {
        shortage->has_raised = true;
    } else if (goes_on && job->progress.batch_count > 1) {
        halve_batch(engine, job);
    } else if (goes_on) {
        goes_on = !shortage->has_tried_smallest && raise_to_smallest_form(engine);
        shortage->has_tried_smallest = true;
    }
    if (!goes_on) {
        engine->shortage = (sumi_shortage_limit){0};
        return false;
    }
    *error = (sumi_error){0};
    sumi_plan_job_enter(job, SUMI_PHASE_PLAN);
    return true;
}
