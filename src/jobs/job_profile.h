// The table that sumi_job_profile returns: the time of all ops with the same name, summed over the layers. The table
// belongs to the job slot.
#ifndef SUMI_JOBS_JOB_PROFILE_H
#define SUMI_JOBS_JOB_PROFILE_H
#include "base/result.h"
#include "jobs/job.h"
#include "jobs/run.h"

// Adds a slice that has ended to the table's row for its stage and its op's name. The caller holds the pump lock
// (engine_state.h). Fails with SUMI_OUT_OF_HOST_MEMORY.
sumi_result sumi_plan_job_note_profile(sumi_engine* engine, sumi_job_slot* slot, const sumi_run_slice* slice,
                                       sumi_error* error);
#endif
