// How long slices and other pieces of work may be, by the host's budget for a frame.
#ifndef SUMI_ENGINE_FRAME_BUDGET_H
#define SUMI_ENGINE_FRAME_BUDGET_H
#include <stdint.h>
#include <sumi.h>

typedef struct sumi_frame_budget {
    double most_pending_us; // predicted, of slices in flight on a device: by the budget of the call that works
    double most_own_us;     // of this thread's time, beside a device, for a call that is paced; 0: nobody paces
    // moving average of the budgets of the latest updates; 0: the latest call that worked had no budget
    double average_us;
    // of plans that are written now: desc.max_slice_us, or a half, a quarter .. of it while budgets are small
    uint32_t slice_us;
} sumi_frame_budget;

// A device that nobody paces is kept fed by a few slices. More would only lengthen the way to a cancel.
#define SUMI_MOST_PENDING_US 32000.0

// SUMI_FOREVER: a call without a budget. Holds the work
void sumi_frame_budget_follow(sumi_engine* engine, uint32_t budget_us);
// how long a piece of work that is no slice may take: max_slice_us, or 5 ms where slices are whole ops; no more than
// the call's budget
uint32_t sumi_frame_budget_piece_us(const sumi_engine* engine);
#endif
