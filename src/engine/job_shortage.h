// What a job does when the device has less memory than was thought (device_limit.h).
#ifndef SUMI_ENGINE_JOB_SHORTAGE_H
#define SUMI_ENGINE_JOB_SHORTAGE_H
#include "engine/plan_job.h"

// After a failure in PLAN or READY: true when the job is back in PLAN and is worth another try, with *error cleared.
//
// Weights that this job does not use go first; then half of the pictures are run at a time; then a limit streams weights
// in every step and has the VAE work in tiles; then the job fails. A plan that the limit, and not the device, has refused
// first asks whether there is more by now, and in the end may have what its smallest form needs.
bool sumi_plan_job_tries_again(sumi_engine* engine, sumi_plan_job* job, sumi_result result, sumi_error* error);
#endif
