#include "jobs/device_limit.h"
#include "base/assert.h"
#include "base/result.h"
#include "jobs/engine_state.h"
#include "jobs/held_memory.h"
#include "jobs/log.h"
#include "pacing/shortage_limit.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include <stdio.h>

uint64_t sumi_engine_memory_limit(const sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    return sumi_shortage_limit_lesser(&engine->shortage, engine->memory.host_limit);
}

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

bool sumi_limit_raise(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    return engine->shortage.bytes != 0 && raise_limit(engine, engine->shortage.bytes);
}

bool sumi_limit_raise_to_smallest_form(sumi_engine* engine)
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
