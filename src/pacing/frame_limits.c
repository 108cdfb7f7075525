#include "pacing/frame_limits.h"
#include "base/assert.h"
#include <math.h>
#include <sumi.h>

#define WHOLE_OP_PIECE_US 5000 // of this thread's own work, where slices are whole ops

// ---- How long slices are --------------------------------------------------------------------------------------------

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

static void adapt_slices(sumi_frame_limits* limits, const sumi_frame_call* call)
{
    const bool was_paced = limits->average_us > 0.0, is_paced = call->budget_us != SUMI_FOREVER;
    limits->average_us = !is_paced ? 0.0
                       : was_paced ? 0.9 * limits->average_us + 0.1 * (double)call->budget_us
                                   : (double)call->budget_us;
    // A budget that varies around a threshold must not change plans again and again. So slices become longer only when
    // two thirds of the average budget would allow longer slices too.
    const uint32_t max_us = call->max_slice_us, slice_us = is_paced ? slice_for(limits->average_us, max_us) : max_us;
    if (!is_paced || slice_us < limits->slice_us || slice_for(limits->average_us / 1.5, max_us) > limits->slice_us)
        limits->slice_us = slice_us;
}

// ---- A call ---------------------------------------------------------------------------------------------------------

// With a device: limits of this thread's own time in one update with a budget, in microseconds. The time delays the
// host program's frame, so the limits are much lower than those of the device's work.
#define MAX_PIECE_US 200.0 // of anything without its own limit below
// Of submitting slices. A budget holds about eight of them, but the first slices of a picture are short, and dozens
// would fit. The turn that begins below the limit ends above it: the last one of a picture takes 60 us more, which
// makes less than 300 in all.
#define MAX_SUBMITTING_US 220.0
// Slices with streamed weights have copies too. With a large budget the limit is then a share of the budget.
#define STREAMED_SHARE (1.0 / 12.0)
// Of preparing weights and graphs of a new plan: hundreds of pieces of MAX_PIECE_US would take as many frames. Also of
// the other pieces of that job, which touch new memory: noise and pixels of its picture take two to four times as long
// as those of later ones, and with MAX_PIECE_US a picture of 1024 x 1024 took 48 frames more (H100).
#define MAX_PREPARING_US 1600.0

void sumi_frame_limits_begin(sumi_frame_limits* limits, const sumi_frame_call* call)
{
    SUMI_ASSERT(call->budget_us > 0);
    const bool has_budget = call->budget_us != SUMI_FOREVER;
    limits->max_pending_us = has_budget ? call->budget_us : SUMI_MAX_PENDING_US;
    limits->max_thread_us = has_budget && call->has_device ? MAX_PIECE_US : 0.0;
    // The CPU's slices are cut while they run.
    if (call->has_device) adapt_slices(limits, call);
    else limits->end_ns = has_budget ? call->now_ns + (uint64_t)call->budget_us * 1000 : 0;
}

double sumi_frame_limits_pending_us(const sumi_frame_limits* limits, double step_us)
{
    if (sumi_frame_limits_are_paced(limits) || 0.5 * step_us < limits->max_pending_us) return limits->max_pending_us;
    return 0.5 * step_us < SUMI_MOST_PENDING_US ? 0.5 * step_us : SUMI_MOST_PENDING_US;
}

bool sumi_frame_limits_are_paced(const sumi_frame_limits* limits) { return limits->average_us > 0.0; }

uint32_t sumi_frame_limits_piece_us(const sumi_frame_limits* limits, uint32_t max_slice_us)
{
    SUMI_ASSERT(limits->max_pending_us > 0.0);
    const uint32_t max_us = max_slice_us != 0 ? max_slice_us : WHOLE_OP_PIECE_US;
    return limits->max_pending_us < max_us ? (uint32_t)limits->max_pending_us : max_us;
}

double sumi_frame_limits_slice_us(const sumi_frame_limits* limits, uint32_t max_slice_us, uint64_t now_ns)
{
    const double max_us = (double)max_slice_us;
    if (limits->end_ns == 0) return max_us;
    const double rest_us = (double)(int64_t)(limits->end_ns - now_ns) * 1e-3;
    return rest_us < max_us ? rest_us : max_us;
}

double sumi_frame_limits_own_us_in_frames(const sumi_frame_limits* limits, double us)
{
    const double factor = limits->max_thread_us > 0.0 ? limits->max_pending_us / limits->max_thread_us : 1.0;
    return factor > 1.0 ? us * factor : us;
}

// Loading a model may take the whole budget: INFINITY.
static double max_own_us(const sumi_frame_limits* limits, sumi_own_work work)
{
    const double share_us = limits->max_pending_us * STREAMED_SHARE;
    switch (work) {
    case SUMI_OWN_UNLIMITED: return INFINITY;
    case SUMI_OWN_STREAMING: return share_us > MAX_SUBMITTING_US ? share_us : MAX_SUBMITTING_US;
    case SUMI_OWN_SUBMITTING: return MAX_SUBMITTING_US;
    case SUMI_OWN_PREPARING: return MAX_PREPARING_US;
    case SUMI_OWN_PIECE: break;
    }
    return MAX_PIECE_US;
}

bool sumi_frame_limits_fit(const sumi_frame_limits* limits, const sumi_next_turn* turn, double budget_us,
                           double elapsed_us)
{
    SUMI_ASSERT(elapsed_us >= 0.0);
    const double next_us = turn->predicted_us, max_us = max_own_us(limits, turn->work);
    const bool submits = turn->work == SUMI_OWN_SUBMITTING || turn->work == SUMI_OWN_STREAMING;
    if (!turn->has_device) return elapsed_us + next_us <= budget_us;
    if (!submits) return elapsed_us + next_us <= (max_us < budget_us ? max_us : budget_us);
    // A slice is work in flight from now on. Its submission is too short to be predicted, so own time is compared as it
    // is. With nothing in flight the device begins the slice now, elapsed_us after the frame began.
    const double before_us = turn->in_flight_us > 0.0 ? turn->in_flight_us : elapsed_us;
    return elapsed_us <= max_us && elapsed_us <= budget_us && (before_us + next_us <= budget_us || turn->is_one_more);
}
