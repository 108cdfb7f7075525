// The phase RUN of a job: slices are submitted and collected, and noise is drawn meanwhile.
#ifndef SUMI_ENGINE_JOB_SLICES_H
#define SUMI_ENGINE_JOB_SLICES_H
#include "engine/job.h"

// One step of RUN. Looks after what a device has finished, which makes room, and submits one slice unless the job holds
// back, or draws a piece of noise. `holds`: it submits nothing for now, for it is about to give way.
sumi_result sumi_plan_job_run_one(sumi_engine* engine, sumi_slot* slot, bool holds, sumi_stage* out_stage,
                                  sumi_step_end* out_end, bool* out_over, sumi_error* error);
// RUN: the next step is a piece of noise, not a slice
bool sumi_plan_job_draws_next(const sumi_engine* engine, const sumi_slot* slot);
// Whether it only waits for slices to end: the next job may begin. Never on the processor.
bool sumi_plan_job_can_drain(const sumi_engine* engine, const sumi_slot* slot);
#endif
