// What a job writes into the arena before and while it runs: token ids, features, the start image, the mask, references
// and noise. Each call does one piece, short enough for a frame's budget.
//
// Functions that take an engine are called by the thread that holds the pump lock (engine_state.h), for the job that
// runs. Writes on a GPU block only if the runner's ring buffer for inputs is full. Failures: SUMI_OUT_OF_HOST_MEMORY.
#ifndef SUMI_JOBS_JOB_INPUTS_H
#define SUMI_JOBS_JOB_INPUTS_H
#include "base/result.h"
#include "jobs/plan_job.h"

struct sumi_job_slot;

// The most bytes of the workspace that the job's start image, mask and noise use. Any thread.
uint64_t sumi_plan_job_input_bytes(const sumi_plan_job* job);
// Does the next piece of phase INPUT: texts, the start, the mask, references. *out_done: it was the last.
sumi_result sumi_plan_job_write_input(sumi_engine* engine, struct sumi_job_slot* slot, bool* out_done,
                                      sumi_error* error);

// How many noise values one item needs, the posterior's included; 0: none. Any thread.
size_t sumi_plan_job_noise_values(const sumi_plan_job* job);
// Draws and writes the next piece of the noise of batch item job->progress.cursor. *out_done: it was the item's last.
sumi_result sumi_plan_job_write_noise(sumi_engine* engine, sumi_plan_job* job, bool* out_done, sumi_error* error);
// Predicted time of the pump's thread for the noise of one item, in microseconds.
double sumi_plan_job_noise_us(const sumi_engine* engine, const sumi_plan_job* job);
#endif
