// The control pictures of a job: resized in pieces, and written to the arena with the strengths of the nets.
//
//   picture --Lanczos--> RGB --+-----------------------------> pipeline.control_pixels
//   depth   --greys----> RGB --+-----------------------------> products.control_pictures, for the host program
//   depth of an external, on the GPU ------------------------> pipeline.control_pixels, staging of the import
//   inpaint --Lanczos--> RGB --+-- without the masked part --> pipeline.masked_pixels
//   mask    --resize---> greys-+-----> in the latents' size -> pipeline.control_mask
//
// Only nets that are in the plan have pieces.
#ifndef SUMI_JOBS_JOB_CONTROLS_H
#define SUMI_JOBS_JOB_CONTROLS_H
#include "base/result.h"
#include "jobs/plan_job.h"

// The most bytes of the workspace that the pictures of a request need. Any thread.
uint64_t sumi_control_inputs_bytes(const sumi_job_request* request);
// The number of pieces of the batch that runs. Each piece may take several calls of sumi_control_inputs_write.
int32_t sumi_control_inputs_pieces(const sumi_plan_job* job);
// Does the next part of piece number `piece`. *out_done: it was the last. The caller holds the pump lock. Fails with
// SUMI_OUT_OF_HOST_MEMORY.
sumi_result sumi_control_inputs_write(sumi_engine* engine, sumi_plan_job* job, int32_t piece, bool* out_done,
                                      sumi_error* error);
#endif
