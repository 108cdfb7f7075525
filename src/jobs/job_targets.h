// The externals that the targets of an image job name. A job marks them as used from its submission to its fetch or
// discard. The host program may release an external meanwhile; the job then forgets it.
#ifndef SUMI_JOBS_JOB_TARGETS_H
#define SUMI_JOBS_JOB_TARGETS_H
#include "jobs/plan_job.h"

// Marks the externals of the job's targets as used by a job. is_used false: as not used any more, and the job forgets
// them. Called by the thread that submits, and by the one that drops the job.
void sumi_plan_job_mark_targets(sumi_plan_job* job, bool is_used);
// Whether a target of the job names the external, as memory or as a semaphore.
bool sumi_plan_job_uses_external(const sumi_plan_job* job, const sumi_external* external);
// Forgets the targets that name it. The caller holds the pump lock.
void sumi_plan_job_forget_external(sumi_plan_job* job, const sumi_external* external);
#endif
