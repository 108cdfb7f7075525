#include "engine/frame_budget.h"
#include "base/assert.h"
#include "engine/engine.h"

bool sumi_frame_budget_is_paced(const sumi_engine* engine) { return engine->frame.average_us > 0.0; }

uint32_t sumi_frame_budget_piece_us(const sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && engine->frame.max_pending_us > 0.0);
    const uint32_t max_us = engine->desc.max_slice_us != 0 ? engine->desc.max_slice_us : 5000;
    return engine->frame.max_pending_us < max_us ? (uint32_t)engine->frame.max_pending_us : max_us;
}

double sumi_frame_budget_slice_us(const sumi_engine* engine, uint64_t now_ns)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && !engine->runner->traits.has_device);
    const double max_us = (double)engine->desc.max_slice_us;
    if (engine->frame.end_ns == 0) return max_us;
    const double rest_us = (double)(int64_t)(engine->frame.end_ns - now_ns) * 1e-3;
    return rest_us < max_us ? rest_us : max_us;
}

// The length of slices for updates with a given budget. A call submits whole slices, so if a budget holds only one or
// two slices, a large part of it is lost. With slices of an eighth of the budget, a sixteenth is lost on average.
// Slices below 0.5 ms are used only where the budget holds fewer than four of 0.5 ms, because cutting ops into smaller
// slices costs more than it saves; they are never halved to less than 0.25 ms. Measured on an H200: three steps of
// 1024x1024 pixels, one update per frame of 8 ms. The table shows by how many percent the time was longer than the
// total work divided by the budget's share of the frame (columns: length of slices, rows: budget in ms):
//
//     slices of  | 2 ms | 1 ms | 0.5 ms | 0.25 ms
//     budget 1   |      |   16 |      9 |      -4   %
//     budget 2   |   61 |   12 |      0 |      -3
//     budget 4   |   30 |   28 |     10 |       6
#define LEAST_SLICE_US 250
#define USUAL_LEAST_SLICE_US 500.0

static uint32_t slice_for(double budget_us, uint32_t max_us)
{
    SUMI_ASSERT(budget_us > 0.0);
    const double quarter_us = budget_us / 4.0, eighth_us = budget_us / 8.0,
                 usual_least_us = quarter_us < USUAL_LEAST_SLICE_US ? quarter_us : USUAL_LEAST_SLICE_US;
    const double limit_us = eighth_us > usual_least_us ? eighth_us : usual_least_us;
    uint32_t slice_us = max_us;
    while (slice_us / 2 >= LEAST_SLICE_US && (double)slice_us > limit_us) slice_us /= 2;
    return slice_us;
}

void sumi_frame_budget_follow(sumi_engine* engine, uint32_t budget_us)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && budget_us > 0);
    const bool was_paced = engine->frame.average_us > 0.0, is_paced = budget_us != SUMI_FOREVER;
    const uint32_t max_us = engine->desc.max_slice_us;
    // The processor's slices are cut while they run (pieces.h).
    if (!engine->runner->traits.has_device) {
        engine->frame.end_ns = is_paced ? sumi_clock_ns() + (uint64_t)budget_us * 1000 : 0;
        return;
    }
    engine->frame.average_us = !is_paced ? 0.0
                             : was_paced ? 0.9 * engine->frame.average_us + 0.1 * (double)budget_us
                                         : (double)budget_us;
    // A budget that varies around a threshold must not change plans again and again. So slices become longer only when
    // two thirds of the average budget would allow longer slices too.
    const uint32_t slice_us = is_paced ? slice_for(engine->frame.average_us, max_us) : max_us;
    if (!is_paced || slice_us < engine->frame.slice_us
        || slice_for(engine->frame.average_us / 1.5, max_us) > engine->frame.slice_us)
        engine->frame.slice_us = slice_us;
}
