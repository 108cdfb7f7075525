// What a job reads from the arena: previews, features, latents and pictures; and the memory that they wait in.
#ifndef SUMI_ENGINE_JOB_OUTPUTS_H
#define SUMI_ENGINE_JOB_OUTPUTS_H
#include "engine/plan_job.h"

struct sumi_slot;

int32_t sumi_format_bytes(sumi_format format); // of a pixel; 0: no such format
// Bytes of the things a finished job keeps until its fetch: latents, previews, pictures.
uint64_t sumi_plan_job_image_bytes(const sumi_plan_job* job);
// Takes the memory for them.
sumi_result sumi_plan_job_reserve_products(sumi_engine* engine, struct sumi_slot* slot, sumi_error* error);

// Copies of a value to the host, behind what was submitted. Nothing to do on the processor.
sumi_result sumi_plan_job_fetch_value(sumi_engine* engine, const sumi_plan_job* job, sumi_value value,
                                      sumi_error* error);
// Behind the last slice: pictures to where the host wants them on the device, and the copies that read_output reads.
sumi_result sumi_plan_job_publish_pictures(sumi_engine* engine, sumi_plan_job* job, sumi_error* error);
sumi_result sumi_plan_job_fetch_products(sumi_engine* engine, const sumi_plan_job* job, sumi_error* error);
// A preview that has been fetched: what sumi_job_preview shows from now on.
sumi_result sumi_plan_job_publish_preview(sumi_engine* engine, struct sumi_slot* slot, sumi_error* error);

// The next piece of OUTPUT.
sumi_result sumi_plan_job_read_output(sumi_engine* engine, const struct sumi_slot* slot, sumi_plan_job* job,
                                      bool* out_done, sumi_error* error);
// Of this thread's time for an item's picture, the longest among its items.
double sumi_plan_job_output_us(const sumi_engine* engine, const sumi_plan_job* job);
#endif
