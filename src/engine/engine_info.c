// What the host program reads of an engine, and its memory limit, which it may change at any time.
#include "base/assert.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/result.h"
#include "engine/calls.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_memory.h"
#include "jobs/pump.h"
#include "plan/runner.h"
#include <stdatomic.h>
#include <string.h>

sumi_result sumi_engine_set_memory_budget(sumi_engine* engine, uint64_t bytes)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_engine_set_memory_budget"));
    sumi_pump_lock(engine);
    engine->memory.next_host_limit = bytes;
    engine->memory.has_next_host_limit = true;
    sumi_engine_trim(engine); // a job that runs keeps its limit, and its memory, until it ends
    sumi_pump_unlock(engine);
    return sumi_call_end(engine, SUMI_OK, NULL);
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
