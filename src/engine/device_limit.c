#include "engine/device_limit.h"
#include "base/assert.h"
#include "engine/calls.h"
#include "engine/engine.h"
#include <stdio.h>

// A limit leaves a sixteenth of the memory that sumi could have free, but at most 64 MiB: CUDA graphs, the kernels'
// local memory and the driver's rounding to pages take some of it, and the use by other programs varies.
#define MARGIN_SHARE 16
#define MAX_MARGIN (64ull << 20)

// How many jobs pass between two attempts to raise the limit, where the free memory is unknown. The distance
// doubles after each failed attempt, up to MAX_DISTANCE.
#define FIRST_GUESS_DISTANCE 4
#define MAX_DISTANCE 256

uint64_t sumi_engine_budget(const sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const uint64_t budget = engine->memory.budget_bytes, limit = engine->limit.bytes;
    return limit != 0 && (budget == 0 || limit < budget) ? limit : budget;
}

static double mb(uint64_t bytes) { return 1e-6 * (double)bytes; }

// The bytes that jobs may use: what sumi holds plus what is free, less a margin. The result is rounded down to a
// multiple of a power of two that is about a hundredth of it, so that a shortage of nearly constant size gives the same
// limit, and so the same plans, each time.
static uint64_t usable_bytes(const sumi_device_capacity* capacity)
{
    const uint64_t total_bytes = capacity->held_bytes + capacity->free_bytes, share = total_bytes / MARGIN_SHARE;
    const uint64_t margin = share < MAX_MARGIN ? share : MAX_MARGIN;
    SUMI_ASSERT(margin <= total_bytes);
    uint64_t step = 1;
    for (uint64_t quotient = (total_bytes - margin) / 128; quotient > 1; quotient /= 2) step *= 2;
    return (total_bytes - margin) / step * step;
}

// The smallest total of device bytes that is known to be unavailable.
static uint64_t refused_bytes(const sumi_device_capacity* capacity)
{
    return capacity->is_known ? capacity->held_bytes + capacity->free_bytes + 1
                              : capacity->failed_held_bytes + capacity->failed_request_bytes;
}

static void set_limit(sumi_engine* engine, uint64_t bytes)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    engine->limit.bytes = bytes > 0 ? bytes : 1; // 0 would mean no limit
    engine->limit.retry_is_pending = false;
}

void sumi_limit_note(sumi_engine* engine, sumi_result result)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    if (result != SUMI_OUT_OF_DEVICE_MEMORY) return;
    engine->runner->functions->capacity(engine->runner, &engine->limit.capacity);
    engine->limit.retry_is_pending = true;
}

// Notes how many device bytes the plan needs when nothing limits it.
static void note_requested_bytes(sumi_engine* engine, const sumi_plan* plan)
{
    sumi_device_need need = {0};
    sumi_error none = {0};
    if (plan == NULL || engine->runner->functions->need(engine->runner, plan, 0, &need, &none) != SUMI_OK) return;
    if (need.device_bytes > engine->limit.requested_bytes) engine->limit.requested_bytes = need.device_bytes;
}

// A limit where the free memory is not known: seven eighths of the budget, or of the total that was refused if that is
// less.
static uint64_t guess_limit_bytes(const sumi_device_capacity* capacity, uint64_t budget)
{
    SUMI_ASSERT(!capacity->is_known);
    const uint64_t refused = refused_bytes(capacity);
    const uint64_t top = budget != 0 && (budget < refused || refused == 0) ? budget : refused, lower = top / 8 * 7;
    const bool held_more = capacity->failed_held_bytes > lower
                        && capacity->failed_held_bytes < top; // failed_held_bytes is known to be available
    return held_more ? capacity->failed_held_bytes : lower;
}

static int32_t next_review_distance(int32_t review_distance)
{
    if (review_distance == 0) return FIRST_GUESS_DISTANCE;
    return review_distance < MAX_DISTANCE ? 2 * review_distance : MAX_DISTANCE;
}

bool sumi_limit_lower(sumi_engine* engine, const sumi_plan* plan)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_device_limit* limit = &engine->limit;
    const sumi_device_capacity* capacity = &limit->capacity;
    const uint64_t budget = sumi_engine_budget(engine);
    char text[256];
    if (!limit->retry_is_pending) return false;
    note_requested_bytes(engine, plan);
    uint64_t new_bytes = capacity->is_known ? usable_bytes(capacity) : guess_limit_bytes(capacity, budget);
    const bool was_raised = limit->previous_bytes != 0;
    if (was_raised) limit->review_distance = next_review_distance(limit->review_distance);
    else if (limit->bytes == 0) limit->review_distance = capacity->is_known ? 0 : FIRST_GUESS_DISTANCE;
    if (was_raised && !capacity->is_known) new_bytes = limit->previous_bytes;
    if (budget != 0 && new_bytes >= budget) new_bytes = budget / 8 * 7;
    limit->previous_bytes = 0;
    limit->job_count = 0;
    if (new_bytes == 0) return false;
    if (was_raised) {
        snprintf(text, sizeof text, "the device still has no memory for more: back to a limit of %.1f MB",
                 mb(new_bytes));
    } else if (capacity->is_known) {
        snprintf(text, sizeof text,
                 "the device has no memory left: %.1f MB are held here and %.1f MB are free; trying again with %.1f "
                 "MB, streaming weights if need be",
                 mb(capacity->held_bytes), mb(capacity->free_bytes), mb(new_bytes));
    } else {
        snprintf(text, sizeof text,
                 "device_allocator has no memory left: %.1f MB were held when %.1f MB were refused; trying again with "
                 "%.1f MB, streaming weights if need be",
                 mb(capacity->failed_held_bytes), mb(capacity->failed_request_bytes), mb(new_bytes));
    }
    set_limit(engine, new_bytes);
    sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
    return true;
}

// Removes the limit if the device has as much memory as the job requested or as the host program's budget allows, or if
// the free memory is not known. Otherwise raises the limit if the usable memory is more than least_bytes: a smaller
// gain does not justify new plans. Returns false if the limit stays.
static bool raise_limit(sumi_engine* engine, const sumi_device_capacity* capacity, uint64_t least_bytes)
{
    SUMI_ASSERT(engine->limit.bytes != 0);
    sumi_device_limit* limit = &engine->limit;
    const uint64_t previous_bytes = limit->bytes, available_bytes = capacity->is_known ? usable_bytes(capacity) : 0;
    const uint64_t budget = engine->memory.budget_bytes;
    const uint64_t enough_bytes = budget != 0 && (limit->requested_bytes == 0 || budget < limit->requested_bytes)
                                    ? budget
                                    : limit->requested_bytes;
    const bool is_removed = !capacity->is_known || (enough_bytes != 0 && available_bytes >= enough_bytes);
    char text[256], new_limit_text[48] = "gone";
    if (!is_removed && available_bytes <= least_bytes) return false;
    limit->bytes = is_removed ? 0 : available_bytes;
    limit->previous_bytes = previous_bytes;
    limit->job_count = 0;
    limit->retry_is_pending = false;
    if (!is_removed) snprintf(new_limit_text, sizeof new_limit_text, "%.1f MB now", mb(available_bytes));
    if (capacity->is_known) {
        snprintf(text, sizeof text,
                 "the device has memory again: %.1f MB are free beside the %.1f MB held here; the limit of %.1f MB "
                 "is %s",
                 mb(capacity->free_bytes), mb(capacity->held_bytes), mb(previous_bytes), new_limit_text);
    } else {
        snprintf(text, sizeof text,
                 "trying whether the device has memory again: without the limit of %.1f MB that a shortage has left",
                 mb(previous_bytes));
    }
    sumi_log_write(engine, SUMI_LOG_INFO, SUMI_OK, text);
    return true;
}

bool sumi_limit_raise(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_device_capacity capacity;
    if (engine->limit.bytes == 0) return false;
    engine->runner->functions->capacity(engine->runner, &capacity);
    return raise_limit(engine, &capacity, engine->limit.bytes);
}

bool sumi_limit_raise_to_smallest_form(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_device_limit* limit = &engine->limit;
    char text[160];
    if (limit->capacity.is_known) engine->runner->functions->capacity(engine->runner, &limit->capacity);
    const uint64_t smallest_form_bytes = limit->smallest_form_bytes, budget = engine->memory.budget_bytes;
    if (limit->bytes == 0 || smallest_form_bytes <= limit->bytes
        || smallest_form_bytes >= refused_bytes(&limit->capacity))
        return false;
    if (budget != 0 && smallest_form_bytes > budget) return false;
    snprintf(text, sizeof text, "%.1f MB do not hold this job: trying it in its smallest form, with %.1f MB",
             mb(limit->bytes), mb(smallest_form_bytes));
    set_limit(engine, smallest_form_bytes);
    sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
    return true;
}

void sumi_limit_review(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_device_limit* limit = &engine->limit;
    sumi_device_capacity capacity;
    if (limit->bytes == 0 || ++limit->job_count <= limit->review_distance) return;
    limit->job_count = 0;
    engine->runner->functions->capacity(engine->runner, &capacity);
    (void)raise_limit(engine, &capacity, limit->bytes + limit->bytes / 8);
}

void sumi_limit_confirm(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    if (engine->limit.previous_bytes == 0) return;
    engine->limit.previous_bytes = 0;
    if (engine->limit.bytes == 0) engine->limit.requested_bytes = 0;
    engine->limit.review_distance = engine->limit.capacity.is_known ? 0 : FIRST_GUESS_DISTANCE;
}
