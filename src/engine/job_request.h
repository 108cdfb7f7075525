// From what a job asks for to the request of its plan.
#ifndef SUMI_ENGINE_JOB_REQUEST_H
#define SUMI_ENGINE_JOB_REQUEST_H
#include "engine/buffers.h"
#include "engine/plan_job.h"

// The two halves of the way to a plan, which the memory query goes too: token ids of one prompt into the workspace, then
// the request for `step_count` steps.
sumi_result sumi_plan_job_tokenise(sumi_heap* heap, sumi_workspace* workspace, sumi_model* model, sumi_plan_job* job,
                                   int32_t prompt, sumi_error* error);
sumi_result sumi_plan_job_request(sumi_heap* heap, sumi_workspace* workspace, sumi_model* model, sumi_plan_job* job,
                                  int32_t step_count, sumi_plan_request* out_request, sumi_error* error);
// Where the ids of a prompt lie in the workspace, as one of the model's encoders reads them.
int32_t* sumi_plan_job_ids(const sumi_workspace* workspace, const sumi_model* model, const sumi_plan_job* job,
                           int32_t prompt, int32_t encoder);
#endif
