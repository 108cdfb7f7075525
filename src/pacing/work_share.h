// The share of the wall-clock time that work gets. Predictions of slices are times of work, deadlines are wall-clock
// times: the host program may give a few milliseconds of each frame, or pause.
//
// The caller protects the struct. None of the functions blocks or fails.
#ifndef SUMI_PACING_WORK_SHARE_H
#define SUMI_PACING_WORK_SHARE_H
#include <stdint.h>

typedef struct sumi_work_share {
    uint64_t begin_ns; // when the current measurement began (steady clock); 0: no measurement is in progress
    double work_us;    // work done since begin_ns
    double share;      // moving average of work time / wall-clock time, in (0, 1]; 0: not known yet
    // Updates of the host program, on a CPU only.
    double budget_us;          // budget of the newest update; 0: none
    uint64_t update_ns;        // when the newest update began (steady clock); 0: there was none
    double update_interval_us; // moving average of the time between updates; 0: not known yet
} sumi_work_share;

// On a CPU: an update with this budget begins, or, with SUMI_FOREVER, a call without a budget. It is called even
// without work, because it measures the time between updates.
void sumi_work_share_follow(sumi_work_share* share, uint32_t budget_us, uint64_t now_ns);
// Begins a measurement. begin_ns 0: it begins with the next sumi_work_share_measure. slice_us is the length of slices;
// 0: they are whole ops.
void sumi_work_share_begin(sumi_work_share* share, uint64_t begin_ns, uint32_t slice_us);
// This much work was done, in the unit of the predictions.
void sumi_work_share_note(sumi_work_share* share, double us);
// Measures if enough time has passed to show more than chance, and then begins the next measurement.
// Returns the share to plan with.
double sumi_work_share_measure(sumi_work_share* share, uint64_t now_ns, uint32_t slice_us);
// The share to plan with: the measured one, or the one that the budgets give.
double sumi_work_share_now(const sumi_work_share* share, uint32_t slice_us);
// The share that the host program's budgets give: budget / time between updates. 1 while either is not known.
double sumi_work_share_budgeted(const sumi_work_share* share, uint32_t slice_us);
#endif
