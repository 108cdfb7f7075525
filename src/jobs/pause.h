// Pausing jobs. When a job is paused it saves little, in host memory: the latents, and the earlier values that its
// solver uses. When it runs again, everything before denoising is computed again from the same numbers, so the image
// has the same bits as without a pause.
#ifndef SUMI_JOBS_PAUSE_H
#define SUMI_JOBS_PAUSE_H
#include "base/result.h"
#include "jobs/plan_job.h"

// Whether a job that must yield can do it now. NOT_NOW: the job continues for now. PENDING: the job submits nothing
// more until its slices have ended and its state is saved. READY: it is saved, and the job is in its first phase again.
typedef enum sumi_yield { SUMI_YIELD_NOT_NOW, SUMI_YIELD_PENDING, SUMI_YIELD_READY } sumi_yield;
// Called in each turn of the running job while it must yield, for no other job: saves its state as soon as that is
// possible.
sumi_result sumi_plan_job_save(sumi_engine* engine, sumi_plan_job* job, sumi_yield* out, sumi_error* error);
// Copies a piece of the saved state back to the device, before the first evaluation of a job that saved one; after the
// last piece the run continues where it stopped. False: there is nothing to copy, or not yet.
bool sumi_plan_job_restores(const sumi_engine* engine, const sumi_plan_job* job);
void sumi_plan_job_restore(sumi_engine* engine, sumi_plan_job* job);
// Frees what a pause has saved, if anything. The job then starts again.
void sumi_plan_job_free_saved_state(sumi_engine* engine, sumi_plan_job* job);
#endif
