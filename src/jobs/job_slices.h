// Phase RUN of a job: slices are submitted and collected, and noise is drawn meanwhile.
//
// The functions are called by the thread that holds the pump lock (engine_state.h), for the running or the draining
// job. On the CPU a slice is computed inside the call; on a GPU none of the functions waits for the device.
#ifndef SUMI_JOBS_JOB_SLICES_H
#define SUMI_JOBS_JOB_SLICES_H
#include "base/result.h"
#include "jobs/job.h"

// Does one turn of phase RUN: collects the slices that have ended, then either draws a piece of noise or submits one
// slice. may_submit false: the job is about to yield (pause.h) and submits nothing. turn->end: whether anything was
// done (MORE) or the job waits for the device (WAITS). Stage and ends_phase keep the caller's values unless there is
// news.
sumi_result sumi_plan_job_run_one(sumi_engine* engine, sumi_job_slot* slot, bool may_submit, sumi_turn* turn,
                                  sumi_error* error);
// Whether the next turn of phase RUN draws a piece of noise. False in all other phases.
bool sumi_plan_job_draws_next(const sumi_engine* engine, const sumi_job_slot* slot);
// Whether all slices of the running job are submitted, so that it may drain while the next job begins. False on the
// CPU.
bool sumi_plan_job_can_drain(const sumi_engine* engine, const sumi_job_slot* slot);
#endif
