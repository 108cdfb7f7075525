// From sumi_image_desc to the request of a job: every member is checked, and everything that the desc points to is
// copied.
//
// The functions run inside public calls on the thread of the host program. They take no lock except the one of the log;
// the copy calls the host program's allocator.
#ifndef SUMI_ENGINE_IMAGE_DESC_H
#define SUMI_ENGINE_IMAGE_DESC_H
#include "base/memory.h"
#include "base/result.h"
#include "jobs/buffers.h"
#include "jobs/plan_job.h"

// Checks a desc and copies it to *out_resolved_desc. If its size is 0 x 0, the copy has the size that follows from the
// references, or without any the model's native size. Failures: SUMI_INVALID_ARGUMENT, SUMI_NOT_SUPPORTED,
// SUMI_DESC_NOT_INITIALIZED; the text names the member.
sumi_result sumi_image_desc_check(const sumi_engine* engine, const sumi_image_desc* desc,
                                  sumi_image_desc* out_resolved_desc, sumi_error* error);
// Logs a warning if a desc that passed the checks has members without effect: negative prompts while guidance is off.
void sumi_image_desc_log_unused(const sumi_engine* engine, const sumi_image_desc* desc);
// Fills a zeroed request from a desc that passed the checks. The arrays are copied into the blocks `lists` and `input`,
// which the caller owns and which must outlive the job. Encoded prompts are shared: also after a failure
// (SUMI_OUT_OF_HOST_MEMORY) the caller ends with sumi_plan_job_free_prompts.
sumi_result sumi_image_desc_copy(sumi_heap* heap, const sumi_image_desc* desc, sumi_block* lists, sumi_block* input,
                                 sumi_job_request* request, sumi_error* error);
#endif
