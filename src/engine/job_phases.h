// How a job that runs a plan goes on, a piece at a time:
//
//   TEXT (one prompt a slice) -> PLAN (schedule, plan, arena) -> READY (weights, graphs; a GPU) -> INPUT -> RUN (slices of the plan, noise) -> OUTPUT (some rows a slice)
//                                 ^------ a device without memory for the whole batch: some of its items at a time, from PLAN to OUTPUT ------'
#ifndef SUMI_ENGINE_JOB_PHASES_H
#define SUMI_ENGINE_JOB_PHASES_H
#include "engine/job.h"

// As members of sumi_job_functions, for prompts, images and encodings.
double sumi_plan_job_predict(const sumi_engine* engine, const sumi_slot* slot);
sumi_result sumi_plan_job_step(sumi_engine* engine, sumi_slot* slot, sumi_stage* out_stage, sumi_step_end* out_end,
                               sumi_error* error);
void sumi_plan_job_stop(sumi_engine* engine, sumi_slot* slot);
void sumi_plan_job_drop(sumi_engine* engine, sumi_slot* slot);

void sumi_plan_job_claim(sumi_plan_job* job, bool is_used); // the externals of its targets
#endif
