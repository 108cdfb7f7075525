#ifndef SUMI_ENGINE_CONTROLS_H
#define SUMI_ENGINE_CONTROLS_H
#include "base/result.h"
#include "jobs/job.h"
#include "jobs/plan_job.h"

// Removes the net's weights from the device and closes its file. The caller holds the pump lock.
void sumi_control_close(sumi_control* control);
void sumi_control_free(sumi_control* control); // the caller holds the pump lock
// The function `advance` of jobs that read a net (jobs/job.h).
sumi_result sumi_control_advance(sumi_engine* engine, sumi_job_slot* slot, sumi_turn* turn, sumi_error* error);

// Checks the members `controls` and `control_count` of a desc.
sumi_result sumi_controls_check(const sumi_image_desc* desc, sumi_error* error);
// Submits the copies of depth buffers that have externals.
sumi_result sumi_controls_read_externals(sumi_engine* engine, const sumi_image_desc* desc, sumi_error* error);
// Copies them, with all pictures, to the request; uses without effect are left out. Packs as buffers.h describes: without
// a base it only measures.
void sumi_controls_copy(sumi_packer* packer, const sumi_image_desc* desc, sumi_job_request* request);
#endif
