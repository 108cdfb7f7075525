#include "pacing/work_share.h"
#include "base/assert.h"
#include <sumi.h>

// The shortest interval over which the share is measured. A shorter one shows the operating system's scheduling more
// than the host program's budgets.
#define MEASURE_NS 10000000u
#define FOLLOW_NS 25e6     // an interval of this length or longer has a weight of one half in the moving average
#define LEAST_SHARE 1e-4   // the least share that is measured, for example while the host program pauses
#define WHOLE_OP_US 5000.0 // predicted length of a slice where slices are whole ops
#define PAUSE_US 250000.0  // a longer time between two updates is a pause, and is left out of the average

void sumi_work_share_follow(sumi_work_share* share, uint32_t budget_us, uint64_t now_ns)
{
    SUMI_ASSERT(budget_us > 0);
    if (budget_us == SUMI_FOREVER) {
        share->budget_us = share->update_interval_us = 0.0;
        share->update_ns = 0;
        return;
    }
    const double interval_us = share->update_ns != 0 ? (double)(now_ns - share->update_ns) * 1e-3 : PAUSE_US;
    if (interval_us < PAUSE_US)
        share->update_interval_us =
            share->update_interval_us > 0.0 ? 0.75 * share->update_interval_us + 0.25 * interval_us : interval_us;
    share->update_ns = now_ns;
    share->budget_us = (double)budget_us;
}

// Where slices are whole ops, an update runs at least one, however small its budget is.
double sumi_work_share_budgeted(const sumi_work_share* share, uint32_t slice_us)
{
    const double least_us = slice_us > 0 ? 0.0 : WHOLE_OP_US,
                 us = share->budget_us > least_us ? share->budget_us : least_us;
    return share->budget_us > 0.0 && share->update_interval_us > us ? us / share->update_interval_us : 1.0;
}

double sumi_work_share_now(const sumi_work_share* share, uint32_t slice_us)
{
    return share->share > 0.0 ? share->share : sumi_work_share_budgeted(share, slice_us);
}

void sumi_work_share_begin(sumi_work_share* share, uint64_t begin_ns, uint32_t slice_us)
{
    share->begin_ns = begin_ns;
    share->work_us = 0.0;
    // The host program's budgets may have become smaller since the last job, so the measured share is limited by them.
    const double budgeted = sumi_work_share_budgeted(share, slice_us);
    if (share->share > budgeted) share->share = budgeted;
}

void sumi_work_share_note(sumi_work_share* share, double us) { share->work_us += us; }

// The load changes quickly, so a measurement over a few frames counts as much as all earlier ones together.
double sumi_work_share_measure(sumi_work_share* share, uint64_t now_ns, uint32_t slice_us)
{
    if (share->begin_ns != 0 && now_ns - share->begin_ns >= MEASURE_NS) {
        const double wall_ns = (double)(now_ns - share->begin_ns);
        double measured = share->work_us * 1e3 / wall_ns;
        measured = measured > 1.0 ? 1.0 : measured < LEAST_SHARE ? LEAST_SHARE : measured;
        const double weight = wall_ns < FOLLOW_NS ? wall_ns / (wall_ns + FOLLOW_NS) : 0.5;
        share->share = share->share > 0.0 ? share->share + weight * (measured - share->share) : measured;
        SUMI_ASSERT(share->share >= LEAST_SHARE && share->share <= 1.0);
        share->begin_ns = 0;
    }
    if (share->begin_ns == 0) {
        share->begin_ns = now_ns;
        share->work_us = 0.0;
    }
    return sumi_work_share_now(share, slice_us);
}
