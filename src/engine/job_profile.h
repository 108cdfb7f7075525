// What sumi_job_profile shows: the time of ops of the same name, all layers together.
#ifndef SUMI_ENGINE_JOB_PROFILE_H
#define SUMI_ENGINE_JOB_PROFILE_H
#include "engine/job.h"
#include "engine/run.h"

// Adds a slice that has ended to the row of its stage and its op's name.
sumi_result sumi_plan_job_note_profile(sumi_engine* engine, sumi_slot* slot, const sumi_run_step* step,
                                       sumi_error* error);
#endif
