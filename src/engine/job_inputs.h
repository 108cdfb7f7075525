// What a job writes into the arena: ids, features, the start picture, the mask, references and noise, in pieces.
#ifndef SUMI_ENGINE_JOB_INPUTS_H
#define SUMI_ENGINE_JOB_INPUTS_H
#include "engine/plan_job.h"

struct sumi_slot;

// Bytes of the workspace that its start picture, its mask and its noise pass through, at most.
uint64_t sumi_plan_job_input_bytes(const sumi_plan_job* job);
// The next piece of INPUT: texts, the start, the mask, references.
sumi_result sumi_plan_job_write_input(sumi_engine* engine, struct sumi_slot* slot, bool* out_done, sumi_error* error);

// Values of an item's noise, the posterior's included; 0: it has none.
size_t sumi_plan_job_noise_values(const sumi_plan_job* job);
// A piece of the noise of the item at job->cursor.
sumi_result sumi_plan_job_write_noise(sumi_engine* engine, sumi_plan_job* job, bool* out_done, sumi_error* error);
// Of this thread's time, for an item's noise.
double sumi_plan_job_noise_us(const sumi_engine* engine, const sumi_plan_job* job);
#endif
