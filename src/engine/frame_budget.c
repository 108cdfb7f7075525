#include "engine/frame_budget.h"
#include "base/assert.h"
#include "engine/engine.h"

uint32_t sumi_frame_budget_piece_us(const sumi_engine* engine)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && engine->frame.most_pending_us > 0.0);
    const uint32_t most = engine->desc.max_slice_us != 0 ? engine->desc.max_slice_us : 5000;
    return engine->frame.most_pending_us < most ? (uint32_t)engine->frame.most_pending_us : most;
}

// How long slices may be for updates of this budget. A call submits whole slices, so of a budget that holds one or two
// a good part is lost: an eighth wastes a sixteenth. Below half a millisecond cutting operations costs more than that,
// and below a quarter always. Three steps of 1024x1024, 8 ms a frame (H200), over what the budget's share of the time
// would be:
//
//     slices of  | 2 ms | 1 ms | 0.5 ms | 0.25 ms
//     budget 1   |      |   16 |      9 |      -4   %
//     budget 2   |   61 |   12 |      0 |      -3
//     budget 4   |   30 |   28 |     10 |       6
#define LEAST_SLICE_US 250
#define USUAL_LEAST_SLICE_US 500.0

static uint32_t slice_for(double budget_us, uint32_t most_us)
{
    SUMI_ASSERT(budget_us > 0.0);
    const double quarter = budget_us / 4.0, eighth = budget_us / 8.0,
                 usual = quarter < USUAL_LEAST_SLICE_US ? quarter : USUAL_LEAST_SLICE_US;
    const double limit = eighth > usual ? eighth : usual;
    uint32_t slice_us = most_us;
    while (slice_us / 2 >= LEAST_SLICE_US && (double)slice_us > limit) slice_us /= 2;
    return slice_us;
}

void sumi_frame_budget_follow(sumi_engine* engine, uint32_t budget_us)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && budget_us > 0);
    const bool was_paced = engine->frame.average_us > 0.0, is_paced = budget_us != SUMI_FOREVER;
    const uint32_t most = engine->desc.max_slice_us;
    // the processor stops between any two slices, and cutting costs it more
    if (engine->runner->functions->finished == NULL) return;
    engine->frame.average_us = !is_paced ? 0.0
                             : was_paced ? 0.9 * engine->frame.average_us + 0.1 * (double)budget_us
                                         : (double)budget_us;
    // A budget that wavers about a limit must not change plans again and again: slices grow only when they may grow by
    // half as much again.
    const uint32_t wanted = is_paced ? slice_for(engine->frame.average_us, most) : most;
    if (!is_paced || wanted < engine->frame.slice_us
        || slice_for(engine->frame.average_us / 1.5, most) > engine->frame.slice_us)
        engine->frame.slice_us = wanted;
}
