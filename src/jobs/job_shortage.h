// What a job does when the device has less memory than its plan needs (device_limit.h).
#ifndef SUMI_JOBS_JOB_SHORTAGE_H
#define SUMI_JOBS_JOB_SHORTAGE_H
#include "base/result.h"
#include "jobs/plan_job.h"

// Called after a failure in phase PLAN or PREPARE_DEVICE. True: the job is back in phase PLAN, must be tried again, and
// *error is cleared. False: the job fails with `result`; that is so for every result but SUMI_OUT_OF_DEVICE_MEMORY.
//
// If an allocation on the device failed, each call does the first of these that is left:
//   1. While the batch has several items: evict weights that the job does not use, twice at most.
//   2. While the batch has several items: run half as many items at a time.
//   3. Lower the device limit, so that weights are streamed in every step and the VAE works in tiles.
//   4. Fail, and remove the limit.
// If the plan did not fit into the limit, so that no allocation was tried:
//   1. Once, and only if this job has not lowered the limit: raise it, if the device has more memory now.
//   2. While the batch has several items: run half as many items at a time.
//   3. Once: raise the limit to what the smallest form of the plan needs.
//   4. Fail, and remove the limit.
//
// The caller holds the pump lock (engine_state.h). Blocks until slices in flight have ended.
bool sumi_plan_job_tries_again(sumi_engine* engine, sumi_plan_job* job, sumi_result result, sumi_error* error);
#endif
