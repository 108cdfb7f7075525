// What a job reads from the arena: previews, features, latents and pictures; and the host memory in which they wait for
// the fetch.
//
// Functions that take an engine are called by the thread that holds the pump lock (engine_state.h). None of them waits
// for the device: reads take place after the slices and copies have ended. Failures: SUMI_OUT_OF_HOST_MEMORY,
// SUMI_NOT_FINITE, failures of the device.
#ifndef SUMI_JOBS_JOB_OUTPUTS_H
#define SUMI_JOBS_JOB_OUTPUTS_H
#include "base/result.h"
#include "jobs/plan_job.h"
#include "plan/ops.h"

struct sumi_job_slot;

// Bytes of host memory for the latents, previews and pictures that a finished job keeps until its fetch. Any thread.
uint64_t sumi_plan_job_image_bytes(const sumi_plan_job* job);
// Reserves that memory; for prompt jobs it creates the prompt object.
sumi_result sumi_plan_job_reserve_products(sumi_engine* engine, struct sumi_job_slot* slot, sumi_error* error);

// Submits a copy of a value to host memory, after the slices submitted so far. Does nothing on the CPU.
sumi_result sumi_plan_job_fetch_value(sumi_engine* engine, const sumi_plan_job* job, sumi_value value,
                                      sumi_error* error);
// Both are called when the last slice was submitted. The first submits the copies of pictures to device memory of the
// host program, and the format conversions on the device. The second submits the copies to host memory that
// sumi_plan_job_read_output reads.
sumi_result sumi_plan_job_publish_pictures(sumi_engine* engine, sumi_plan_job* job, sumi_error* error);
sumi_result sumi_plan_job_fetch_products(sumi_engine* engine, const sumi_plan_job* job, sumi_error* error);
// While the device works on a prompt: writes to each page of the next piece of its features. Memory that the C library
// has just got from the system has no pages, and 7 MB of them took 3.5 ms when the features were read. False: no piece
// is left.
bool sumi_plan_job_touch_features(sumi_plan_job* job);
// Called when a preview has arrived in host memory: converts it for sumi_job_preview. Locks `state_lock` for a moment.
sumi_result sumi_plan_job_publish_preview(sumi_engine* engine, struct sumi_job_slot* slot, sumi_error* error);

// Does the next piece of phase OUTPUT. *out_done: it was the last.
sumi_result sumi_plan_job_read_output(sumi_engine* engine, const struct sumi_job_slot* slot, sumi_plan_job* job,
                                      bool* out_done, sumi_error* error);
// Predicted time of the pump's thread for the output of one item, in microseconds: the longest of the job's items.
double sumi_plan_job_output_us(const sumi_engine* engine, const sumi_plan_job* job);
#endif
