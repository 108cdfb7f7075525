// Deadlines: an image job runs fewer denoising steps when the time left is too short for all of them. The number is
// decided again before every step.
//
// The schedule does not change; steps are left out of it. A step from sigma_i then goes to sigma_j with j > i + 1
// instead of sigma_(i+1). So the plan, its graphs and its tables of times serve any number of steps, and only the
// solver row of this one step is written again. Solvers with two evaluations per step have times between their sigmas,
// so for them the number of steps is decided once, before the first step.
//
// A deadline counts wall-clock time from submission: if the host program gives less time per frame, or pauses, fewer
// steps are run. The share of the wall-clock time that the work gets is measured from step to step.
//
// A prediction gets a margin that depends on how accurate earlier predictions of the same kind were. Every image job,
// with or without a deadline, notes how long its steps and its end took and how long they had been predicted to take.
// The end is everything after the last step: decoding, then reading the pictures.
//
//   wall   |-- step --|-- step --|-- last step --|-- decode, pictures --|      deadline
//                                                 <------- end -------><- margin ->|
//
// The margin covers what no later decision can correct: the end, the current step, and the step after it. The margin is
// SUMI_ACCURACY_MARGIN mean deviations of the noted predictions; before any was noted, a large deviation is assumed.
// For a size that was never decoded the end is guessed from the times of ops of the same kinds in other plans; the
// accuracy of such guesses is noted separately.
//
// All functions are called by the thread that holds the pump lock (engine.h), except sumi_deadline_remaining_seconds,
// which only reads the job slot. None of them blocks or fails.
#ifndef SUMI_ENGINE_DEADLINE_H
#define SUMI_ENGINE_DEADLINE_H
#include "pacing/accuracy.h"
#include <sumi.h>

struct sumi_job_slot;

// What is known of how fast work proceeds in wall-clock time. A part of the engine; touched by whoever holds the pump
// lock.
typedef struct sumi_deadline_state {
    uint64_t begin_ns; // when the current measurement began (steady clock); 0: no measurement is in progress
    double work_us;    // work done since begin_ns
    double share;      // moving average of work time / wall-clock time, in (0, 1]; 0: not known yet
    // Updates of the host program, on a processor only.
    double budget_us;          // budget of the newest update; 0: none
    uint64_t update_ns;        // when the newest update began (steady clock); 0: there was none
    double update_interval_us; // moving average of the time between updates; 0: not known yet
    // Accuracy of predictions: of the end where the decoder had been measured; of the end where it had to be guessed;
    // of whole jobs, for solvers whose number of steps is decided once.
    sumi_accuracy end_accuracy, guess_accuracy, job_accuracy;
} sumi_deadline_state;

// Called in phase PLAN, after a plan for step_count steps was found. Returns the step count that fits the deadline, at
// most step_count. Returns step_count unchanged for solvers whose steps can be left out later.
int32_t sumi_deadline_step_count(const sumi_engine* engine, struct sumi_job_slot* slot, int32_t step_count);
// Called when an update with this budget begins, or, with SUMI_FOREVER, a call without a budget. It is called also when
// there is no work, because it measures the time between updates.
void sumi_deadline_follow(sumi_engine* engine, uint32_t budget_us, uint64_t now_ns);
// Called when a run of the job's plan begins: once per batch, and again after a pause.
void sumi_deadline_begin(sumi_engine* engine, struct sumi_job_slot* slot);
// Called before a slice is submitted. Does something only if the slice begins an evaluation that was not decided yet,
// so repeated calls do no harm.
void sumi_deadline_adapt(sumi_engine* engine, struct sumi_job_slot* slot);
// Notes that so much work was done, in the unit of the predictions.
void sumi_deadline_note(sumi_engine* engine, double us);
// Called when the pictures of an image job's batch were read: notes how accurate the predictions were.
void sumi_deadline_end(sumi_engine* engine, struct sumi_job_slot* slot);
// Wall-clock seconds until the deadline; negative after it. The job must have a deadline.
double sumi_deadline_remaining_seconds(const struct sumi_job_slot* slot);
#endif
