#include "engine/device_limit.h"
#include "base/assert.h"
#include "engine/calls.h"
#include "engine/engine.h"
#include <stdio.h>

// A limit leaves a sixteenth of the memory that sumi could have free, but at most 64 MiB: CUDA graphs, the kernels'
// local memory and the driver's rounding to pages take some of it, and the use by other programs varies.
#define MARGIN_SHARE 16
#define MAX_MARGIN (64ull << 20)

// How many jobs pass between two attempts to raise the limit, where the free memory cannot be asked for. The distance
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
static uint64_t usable(const sumi_device_capacity* room)
{
    const uint64_t all = room->held_bytes + room->free_bytes, share = all / MARGIN_SHARE;
    const uint64_t margin = share < MAX_MARGIN ? share : MAX_MARGIN;
    SUMI_ASSERT(margin <= all);
    uint64_t step = 1;
    for (uint64_t rest = (all - margin) / 128; rest > 1; rest /= 2) step *= 2;
    return (all - margin) / step * step;
}

// The smallest total of device bytes that is known to be unavailable.
static uint64_t refused_total(const sumi_device_capacity* room)
{
    return room->is_known ? room->held_bytes + room->free_bytes + 1
                          : room->failed_held_bytes + room->failed_request_bytes;
}

static void set(sumi_engine* engine, uint64_t bytes)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    engine->limit.bytes = bytes > 0 ? bytes : 1; // 0 would mean no limit
    engine->limit.is_short = false;
}

void sumi_limit_note(sumi_engine* engine, sumi_result result)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    if (result != SUMI_OUT_OF_DEVICE_MEMORY || engine->runner->functions->capacity == NULL) return;
    engine->runner->functions->capacity(engine->runner, &engine->limit.capacity);
    engine->limit.is_short = true;
}

// Notes how many device bytes the plan needs when nothing limits it.
static void note_wanted(sumi_engine* engine, const sumi_plan* plan)
{
    sumi_device_need need = {0};
    sumi_error none = {0};
    if (plan == NULL || engine->runner->functions->need(engine->runner, plan, 0, &need, &none) != SUMI_OK) return;
    if (need.device_bytes > engine->limit.requested) engine->limit.requested = need.device_bytes;
}

// A limit where the free memory is not known: seven eighths of the budget, or of the total that was refused if that is
// less.
static uint64_t guess(const sumi_device_capacity* room, uint64_t budget)
{
    SUMI_ASSERT(!room->is_known);
    const uint64_t refused = refused_total(room);
    const uint64_t top = budget != 0 && (budget < refused || refused == 0) ? budget : refused, lower = top / 8 * 7;
    const bool had_more =
        room->failed_held_bytes > lower && room->failed_held_bytes < top; // failed_held_bytes is known to be available
    return had_more ? room->failed_held_bytes : lower;
}

static int32_t longer(int32_t distance)
{
    if (distance == 0) return FIRST_GUESS_DISTANCE;
    return distance < MAX_DISTANCE ? 2 * distance : MAX_DISTANCE;
}

bool sumi_limit_lower(sumi_engine* engine, const sumi_plan* plan)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_device_limit* limit = &engine->limit;
    const sumi_device_capacity* room = &limit->capacity;
    const uint64_t budget = sumi_engine_budget(engine);
    char text[256];
    if (!limit->is_short) return false;
    note_wanted(engine, plan);
    uint64_t next = room->is_known ? usable(room) : guess(room, budget);
    const bool returns = limit->previous != 0;
    if (returns) limit->distance = longer(limit->distance);
    else if (limit->bytes == 0) limit->distance = room->is_known ? 0 : FIRST_GUESS_DISTANCE;
    if (returns && !room->is_known) next = limit->previous;
    if (budget != 0 && next >= budget) next = budget / 8 * 7;
    limit->previous = 0;
    limit->jobs = 0;
    if (next == 0) return false;
    if (returns) {
        snprintf(text, sizeof text, "the device still has no memory for more: back to a limit of %.1f MB", mb(next));
    } else if (room->is_known) {
        snprintf(text, sizeof text,
                 "the device has no memory left: %.1f MB are held here and %.1f MB are free; trying again with %.1f "
                 "MB, streaming weights if need be",
                 mb(room->held_bytes), mb(room->free_bytes), mb(next));
    } else {
        snprintf(text, sizeof text,
                 "device_allocator has no memory left: %.1f MB were held when %.1f MB were refused; trying again with "
                 "%.1f MB, streaming weights if need be",
                 mb(room->failed_held_bytes), mb(room->failed_request_bytes), mb(next));
    }
    set(engine, next);
    sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
    return true;
}

// Removes the limit if the device has as much memory as the job wanted or as the host program's budget allows, or if
// the free memory is not known. Otherwise raises the limit if the usable memory is more than `worth` bytes: a smaller
// gain does not justify new plans. Returns false if the limit stays.
static bool raise_to(sumi_engine* engine, const sumi_device_capacity* room, uint64_t worth)
{
    SUMI_ASSERT(engine->limit.bytes != 0);
    sumi_device_limit* limit = &engine->limit;
    const uint64_t before = limit->bytes, there = room->is_known ? usable(room) : 0;
    const uint64_t budget = engine->memory.budget_bytes;
    const uint64_t enough =
        budget != 0 && (limit->requested == 0 || budget < limit->requested) ? budget : limit->requested;
    const bool drops = !room->is_known || (enough != 0 && there >= enough);
    char text[256], now[48] = "gone";
    if (!drops && there <= worth) return false;
    limit->bytes = drops ? 0 : there;
    limit->previous = before;
    limit->jobs = 0;
    limit->is_short = false;
    if (!drops) snprintf(now, sizeof now, "%.1f MB now", mb(there));
    if (room->is_known) {
        snprintf(text, sizeof text,
                 "the device has memory again: %.1f MB are free beside the %.1f MB held here; the limit of %.1f MB "
                 "is %s",
                 mb(room->free_bytes), mb(room->held_bytes), mb(before), now);
    } else {
        snprintf(text, sizeof text,
                 "trying whether the device has memory again: without the limit of %.1f MB that a shortage has left",
                 mb(before));
    }
    sumi_log_write(engine, SUMI_LOG_INFO, SUMI_OK, text);
    return true;
}

bool sumi_limit_raise(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_device_capacity room;
    if (engine->limit.bytes == 0) return false;
    engine->runner->functions->capacity(engine->runner, &room);
    return raise_to(engine, &room, engine->limit.bytes);
}

bool sumi_limit_raise_to_smallest_form(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_device_limit* limit = &engine->limit;
    char text[160];
    if (limit->capacity.is_known) engine->runner->functions->capacity(engine->runner, &limit->capacity);
    const uint64_t least = limit->refused, budget = engine->memory.budget_bytes;
    if (limit->bytes == 0 || least <= limit->bytes || least >= refused_total(&limit->capacity)) return false;
    if (budget != 0 && least > budget) return false;
    snprintf(text, sizeof text, "%.1f MB do not hold this job: trying it in its smallest form, with %.1f MB",
             mb(limit->bytes), mb(least));
    set(engine, least);
    sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
    return true;
}

void sumi_limit_review(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_device_limit* limit = &engine->limit;
    sumi_device_capacity room;
    if (limit->bytes == 0 || ++limit->jobs <= limit->distance) return;
    limit->jobs = 0;
    engine->runner->functions->capacity(engine->runner, &room);
    (void)raise_to(engine, &room, limit->bytes + limit->bytes / 8);
}

void sumi_limit_confirm(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    if (engine->limit.previous == 0) return;
    engine->limit.previous = 0;
    if (engine->limit.bytes == 0) engine->limit.requested = 0;
    engine->limit.distance = engine->limit.capacity.is_known ? 0 : FIRST_GUESS_DISTANCE;
}
