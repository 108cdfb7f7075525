// Deadlines: an image job runs fewer denoising steps when the time left is too short for all of them. The number is
// decided again before every step.
//
// The schedule does not change; steps are left out of it. A step from sigma_i then goes to sigma_j with j > i + 1
// instead of sigma_(i+1). So the plan, its graphs and its tables of times serve any number of steps, and only the
// solver row of this one step is written again. Solvers with two evaluations per step have times between their sigmas,
// so for them the number of steps is decided once, before the first step.
//
// A deadline counts wall-clock time from submission: if the host program gives less time per frame, or pauses, fewer
// steps are run. work_share.h measures the share of the wall-clock time that the work gets, from step to step;
// forecast.h notes how accurate predictions were; deadline_steps.h says how many steps fit. Here the three meet the job
// and its plan.
//
// All functions are called by the thread that holds the pump lock (engine_state.h), except
// sumi_deadline_remaining_seconds, which only reads the job slot. None of them blocks or fails.
#ifndef SUMI_JOBS_DEADLINE_H
#define SUMI_JOBS_DEADLINE_H
#include "pacing/forecast.h"
#include "pacing/work_share.h"
#include <sumi.h>

struct sumi_job_slot;

// What is known of how fast work proceeds in wall-clock time. A part of the engine; touched by whoever holds the pump
// lock.
typedef struct sumi_deadline_state {
    sumi_work_share work;
    sumi_forecast_accuracy accuracy;
} sumi_deadline_state;

// Called in phase PLAN, after a plan for step_count steps was found. Returns the step count that fits the deadline, at
// most step_count. Returns step_count unchanged for solvers whose steps can be left out later.
int32_t sumi_deadline_step_count(const sumi_engine* engine, struct sumi_job_slot* slot, int32_t step_count);
// Called when an update with this budget begins, or, with SUMI_FOREVER, a call without a budget. It is called even
// without work, because it measures the time between updates.
void sumi_deadline_follow(sumi_engine* engine, uint32_t budget_us, uint64_t now_ns);
// Called when a run of the job's plan begins: once per batch, and again after a pause.
void sumi_deadline_begin(sumi_engine* engine, struct sumi_job_slot* slot);
// Called before a slice is submitted. Does something only if the slice begins an evaluation that was not decided yet,
// so repeated calls do no harm.
void sumi_deadline_adapt(sumi_engine* engine, struct sumi_job_slot* slot);
// Notes that so much work was done, in the unit of the predictions.
void sumi_deadline_note(sumi_engine* engine, double us);
// Called when the pictures of an image job's batch were read: notes how accurate the predictions were.
void sumi_deadline_end(sumi_engine* engine, struct sumi_job_slot* slot);
// Wall-clock seconds until the deadline; negative after it. The job must have a deadline.
double sumi_deadline_remaining_seconds(const struct sumi_job_slot* slot);
#endif
