// Jobs that give way to others. What a job leaves behind when it is asked to is small and the host's memory: the latents,
// and what its solver looks back at. All that comes before denoising is computed again when it goes on, from the same
// numbers, so a picture has the bits that it has without a pause.
#ifndef SUMI_ENGINE_PAUSE_H
#define SUMI_ENGINE_PAUSE_H
#include "engine/job.h"

// A job that was asked to give way: whether it goes on as before, submits nothing more for now, or has gone
// back to its first phase.
typedef enum sumi_yield { SUMI_YIELD_NOT_NOW, SUMI_YIELD_HOLDS_BACK, SUMI_YIELDED } sumi_yield;
sumi_result sumi_plan_job_yield(sumi_engine* engine, sumi_job_slot* slot, sumi_yield* out, sumi_error* error);
// Before the first evaluation of a job that kept its states: a piece of writing them back, and with the last one the run
// goes on where it was. False: there is nothing to restore, or not yet.
bool sumi_plan_job_restores(const sumi_engine* engine, const sumi_plan_job* job);
void sumi_plan_job_restore(sumi_engine* engine, sumi_plan_job* job);
void sumi_plan_job_forget_kept(sumi_engine* engine, sumi_plan_job* job);
#endif
