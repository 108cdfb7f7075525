// From a job's members to the request for its plan (plan_key.h).
//
// A job calls these functions while it runs, on the thread that holds the pump lock, with the engine's workspace. A
// memory query (images.c) calls them without the pump lock, with its own workspace and job. Failures:
// SUMI_OUT_OF_HOST_MEMORY, SUMI_INVALID_ARGUMENT; of texts also SUMI_TEXT_INVALID, SUMI_FILE_MALFORMED.
#ifndef SUMI_JOBS_JOB_REQUEST_H
#define SUMI_JOBS_JOB_REQUEST_H
#include "base/memory.h"
#include "base/result.h"
#include "jobs/buffers.h"
#include "jobs/plan_job.h"
#include "jobs/plan_key.h"

// What a job is planned with: its model, and the memory for its tables and texts.
typedef struct sumi_planning {
    sumi_workspace* workspace;
    sumi_model* model;
    sumi_plan_job* job;
} sumi_planning;

// Does the next piece of tokenising a prompt of the job into workspace->ids: about max_work, counted as by
// sumi_prompt_reader_step. *out_done: the prompt is tokenised, for all text encoders. Until then the workspace's reader
// is the job's.
sumi_result sumi_plan_job_tokenise(const sumi_planning* planning, int32_t prompt, uint64_t max_work, bool* out_done,
                                   sumi_error* error);
// Gives up a prompt that is being tokenised, if there is one.
void sumi_plan_job_end_reading(sumi_workspace* workspace, sumi_plan_job* job);
// Writes the request for a plan of `step_count` steps, after all prompts were tokenised. The request and the job then
// point into workspace->tables, and are valid until the next call.
sumi_result sumi_plan_job_request(const sumi_planning* planning, int32_t step_count, sumi_plan_request* out_request,
                                  sumi_error* error);
// The job uses its encoded prompts no more; the last user of a prompt frees it. Locks `state_lock` for a moment. Any
// thread that owns the job.
void sumi_plan_job_free_prompts(sumi_plan_job* job);
// How many of `step_count` steps are left out at the beginning because of the job's start image or latents and its
// strength. Also called when the job is submitted.
int32_t sumi_plan_job_first_step(const sumi_plan_job* job, int32_t step_count);
// The token ids of a prompt for one of the model's text encoders, in workspace->ids.
int32_t* sumi_plan_job_ids(const sumi_planning* planning, int32_t prompt, int32_t encoder);
#endif
