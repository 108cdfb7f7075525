// The phases of a job that runs a plan. Each call of sumi_plan_job_advance does one piece of the current phase:
//
//   TEXT             tokenises one prompt, or a part of it, per turn
//   PLAN             makes the schedule and the plan, reserves the arena   <-----.
//   PREPARE_DEVICE   on a GPU: copies weights to the device, makes graphs        |
//   INPUT            writes the inputs into the arena                            |  the next batch, if the device does
//   RUN              submits and collects slices of the plan, draws noise        |  not have the memory for all items
//   OUTPUT           reads a few rows of pictures per turn                 ------'  at once
//
// A failure for want of device memory in PLAN or PREPARE_DEVICE can also lead back to PLAN (job_memory.h), and a
// yield leads back to TEXT (pause.h).
//
// All functions are called by the thread that holds the pump lock (engine_state.h), except sumi_plan_job_drop for jobs
// that have ended, which runs on the thread of the host program that fetches. sumi_plan_job_stop blocks until the
// device has written the job's pictures to device memory of the host program; the others do not wait for the device.
#ifndef SUMI_JOBS_JOB_PHASES_H
#define SUMI_JOBS_JOB_PHASES_H
#include "base/result.h"
#include "jobs/job.h"
#include "jobs/plan_job.h"

// The members of sumi_job_functions (job.h) for prompt, image and encoding jobs.
double sumi_plan_job_predict(const sumi_engine* engine, const sumi_job_slot* slot);
sumi_result sumi_plan_job_advance(sumi_engine* engine, sumi_job_slot* slot, sumi_turn* turn, sumi_error* error);
void sumi_plan_job_stop(sumi_engine* engine, sumi_job_slot* slot);
void sumi_plan_job_drop(sumi_engine* engine, sumi_job_slot* slot);

// Whether the next turn does anything that the job would have to repeat if it went back into the queue: it reads a
// text, or more.
bool sumi_plan_job_works_next(const sumi_plan_job* job);
#endif
