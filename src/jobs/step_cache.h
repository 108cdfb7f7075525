// Step caching of a job: decides for every evaluation, before it is submitted, whether it is computed or reuses most of
// an earlier one. What is reused is written in the plan (models/block_residuals.h); the rule is in sampling/reuse.h.
//
//   whole evaluation   [first block, change] --copy--> host: speed        decides for the evaluations after this one
//                      [other blocks ............]
//
// The change of an evaluation arrives while its other blocks run, so a device is not idle. If it has not arrived when
// the next evaluation should be submitted, nothing is submitted in this turn of the pump.
#ifndef SUMI_JOBS_STEP_CACHE_H
#define SUMI_JOBS_STEP_CACHE_H
#include "jobs/plan_job.h"
#include "jobs/run.h"

// At the begin of a run.
void sumi_step_cache_begin(sumi_engine* engine, sumi_plan_job* job);
// After the last evaluation of a batch: notes in the model how fast its residuals changed.
void sumi_step_cache_end(const sumi_plan_job* job, sumi_model* model);
// Decides about the evaluation that begins with the next slice, if one does and it was not decided. False: the change
// of an earlier evaluation has to be collected first.
bool sumi_step_cache_choose(sumi_engine* engine, sumi_plan_job* job);
// Fills in the values that the slice completes and that are read when it has ended; none for most slices.
void sumi_step_cache_fill_in(const sumi_plan_job* job, sumi_run_slice* slice);
// Predictions of how many evaluations are reused, from the speed of the last change that was measured. They serve to
// predict times: no decision about an evaluation depends on them.
//
// If the schedule of a job that has not begun had `count` evaluations: the share of them that is reused, 0 .. 1.
double sumi_step_cache_share_of_all(const sumi_plan_job* job, int32_t count);
// If `count` more evaluations are run after `counter`, whose own decision was made, spread evenly over the rest of the
// schedule: the share of them that is reused, 0 .. 1.
double sumi_step_cache_share_after(const sumi_plan_job* job, int32_t counter, int32_t count);
// Whether the job has a step cache, but no change was measured in it or an earlier job: the predicted shares are 0.
bool sumi_step_cache_lacks_speed(const sumi_plan_job* job);
// Reads these values of a slice that was collected.
void sumi_step_cache_read(const sumi_engine* engine, sumi_plan_job* job, const sumi_run_slice* slice);
// Where a job that is paused before the evaluation `counter`, whose decision was not made, can continue. Residuals are
// not saved: the last whole evaluation is computed again, and the one before it first, because the later one needs the
// difference of their residuals.
typedef struct sumi_step_cache_resumption {
    int32_t evaluation; // 0: only from the beginning
    int32_t repeated;   // to compute again before `evaluation`; -1: none
    // Whether the state before `evaluation` is the one that was kept before the last whole evaluation, and that before
    // `repeated` the one kept before the earlier one. Otherwise the present state, and the one kept before the last.
    bool uses_kept;
} sumi_step_cache_resumption;
sumi_step_cache_resumption sumi_step_cache_resumes_at(const sumi_engine* engine, const sumi_plan_job* job,
                                                      int32_t counter);
// The state with which that evaluation begins, if it uses what was kept.
sumi_step_cache sumi_step_cache_rewound(const sumi_step_cache* cache);
#endif
