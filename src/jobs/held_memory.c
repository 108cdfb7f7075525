#include "jobs/held_memory.h"
#include "base/assert.h"
#include "base/result.h"
#include "jobs/device_limit.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/plan_cache.h"
#include "jobs/run.h"
#include "pacing/shortage_limit.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include "plan/weight.h"
#include <stdatomic.h>

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

void sumi_engine_release(sumi_engine* engine)
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
        sumi_engine_release(engine);
        arena_bytes = entry->plan.arena_bytes;
        scratch_bytes = entry->scratch_bytes;
    }
    sumi_result result = engine->runner->functions->reserve(engine->runner, &entry->plan, error);
    if (result != SUMI_OK) {
        sumi_limit_note(engine, result);
        // The failure may have left the arena grown and the scratch memory not, or the reverse, so both are freed.
        // While a job drains, its results are in the arena, so the arena must stay; a job that begins beside it needs
        // no new memory (can_follow in job_phases.c).
        if (engine->jobs.draining == NULL) sumi_engine_release(engine);
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
    sumi_engine_release(engine);
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
