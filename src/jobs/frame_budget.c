#include "jobs/frame_budget.h"
#include "base/assert.h"
#include "base/platform.h"
#include "jobs/engine_state.h"
#include "pacing/frame_limits.h"
#include "plan/runner.h"

void sumi_frame_budget_follow(sumi_engine* engine, uint32_t budget_us)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const bool has_device = engine->runner->traits.has_device;
    sumi_frame_limits_begin(
        &engine->frame, &(sumi_frame_call){.budget_us = budget_us,
                                           .max_slice_us = engine->desc.max_slice_us,
                                           .has_device = has_device,
                                           .now_ns = has_device || budget_us == SUMI_FOREVER ? 0 : sumi_clock_ns()});
}

bool sumi_frame_budget_is_paced(const sumi_engine* engine) { return sumi_frame_limits_are_paced(&engine->frame); }

uint32_t sumi_frame_budget_piece_us(const sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    return sumi_frame_limits_piece_us(&engine->frame, engine->desc.max_slice_us);
}

double sumi_frame_budget_slice_us(const sumi_engine* engine, uint64_t now_ns)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && !engine->runner->traits.has_device);
    return sumi_frame_limits_slice_us(&engine->frame, engine->desc.max_slice_us, now_ns);
}
