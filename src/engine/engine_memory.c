#include "engine/engine_memory.h"
#include "base/assert.h"
#include "engine/calls.h"
#include "engine/device_limit.h"
#include "engine/engine.h"
#include "engine/plan_cache.h"
#include "engine/pump_lock.h"
#include "engine/run.h"
#include <string.h>

// The bytes that the memory budget counts.
static uint64_t counted_bytes(const sumi_engine* engine)
{
    if (!engine->runner->traits.has_memory)
        return atomic_load(&engine->memory.arena_bytes) + atomic_load(&engine->memory.scratch_bytes);
    sumi_device_properties properties;
    engine->runner->functions->properties(engine->runner, &properties);
    return properties.held_bytes[SUMI_MEMORY_WEIGHTS] + properties.held_bytes[SUMI_MEMORY_ARENA]
         + properties.held_bytes[SUMI_MEMORY_IMAGE];
}

void sumi_engine_forget_weights(sumi_engine* engine, const sumi_weight* const* weights, size_t count)
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
    // Under a memory budget the old blocks are freed before larger ones are allocated. Old and new blocks together, or
    // the arena of one job with the scratch memory of another, could exceed the budget.
    if (grows && engine->memory.budget_bytes != 0) {
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

void sumi_engine_adopt_budget(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && engine->jobs.running == NULL);
    if (!engine->memory.has_next_budget) return;
    engine->memory.budget_bytes = engine->memory.next_budget_bytes;
    engine->memory.has_next_budget = false;
    engine->limit = (sumi_memory_limit){0};
}

void sumi_engine_trim(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const sumi_runner_functions* runner = engine->runner->functions;
    if (engine->jobs.running != NULL || engine->jobs.draining != NULL) return;
    SUMI_ASSERT(engine->runs.current.entry == NULL);
    sumi_engine_adopt_budget(engine);
    if (engine->memory.budget_bytes == 0) return;
    if (counted_bytes(engine) <= engine->memory.budget_bytes) return;
    sumi_engine_release(engine);
    runner->set_budget(engine->runner, sumi_engine_budget(engine));
    runner->trim(engine->runner);
}

sumi_result sumi_engine_set_memory_budget(sumi_engine* engine, uint64_t bytes)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_engine_set_memory_budget"));
    sumi_pump_lock(engine);
    engine->memory.next_budget_bytes = bytes;
    engine->memory.has_next_budget = true;
    sumi_engine_trim(engine); // a job that runs keeps its budget, and its memory, until it ends
    sumi_pump_unlock(engine);
    return sumi_call_end(engine, SUMI_OK, NULL);
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

static void read_memory(const sumi_engine* engine, sumi_engine_info* info)
{
    sumi_engine_held_bytes(engine, info->held_bytes);
    sumi_device_properties properties;
    engine->runner->functions->properties(engine->runner, &properties);
    info->device_bytes = properties.device_bytes;
    info->uncounted_bytes = properties.uncounted_bytes;
    info->compute_capability = properties.capability;
    info->driver_version = properties.driver;
    memcpy(info->device_uuid, properties.uuid, sizeof info->device_uuid);
    memcpy(info->device_luid, properties.luid, sizeof info->device_luid);
}

sumi_engine_info sumi_engine_get_info(const sumi_engine* engine)
{
    sumi_engine_info info = {.backend = "", .device = ""};
    if (engine == NULL || sumi_call_is_foreign(engine)) return info;
    info.backend = engine->runner->functions->name(engine->runner);
    info.device = engine->runner->functions->device(engine->runner);
    read_memory(engine, &info);
    info.host_bytes = atomic_load(&engine->heap.allocated_bytes);
    info.host_peak_bytes = atomic_load(&engine->heap.peak);
    info.allocation_count = atomic_load(&engine->heap.count);
    sumi_engine* locked = (sumi_engine*)engine;
    sumi_mutex_lock(&locked->state_lock);
    info.job_count = engine->jobs.slot_count - engine->jobs.free_count;
    SUMI_ASSERT(info.job_count >= 0 && info.job_count <= engine->jobs.slot_count);
    sumi_mutex_unlock(&locked->state_lock);
    return info;
}
