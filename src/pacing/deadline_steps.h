// How many steps of a job fit into the time that is left until its deadline.
//
// A prediction gets a margin that depends on how accurate earlier predictions of the same kind were (forecast.h):
//
//   wall   |-- step --|-- step --|-- last step --|-- decode, pictures --|      deadline
//                                                 <------- end -------><- margin ->|
//
// The margin covers what no later decision can correct: the end, the current step, and the step after it. The margin is
// SUMI_ACCURACY_MARGIN mean deviations of the noted predictions; before any was noted, a large deviation is assumed.
//
// Times are of work, not of the wall clock: the caller multiplies the time that is left by the share that the work gets
// (work_share.h). None of the functions blocks or fails.
#ifndef SUMI_PACING_DEADLINE_STEPS_H
#define SUMI_PACING_DEADLINE_STEPS_H
#include "pacing/forecast.h"

typedef struct sumi_step_times {
    double seconds_per_evaluation, evaluations_per_step;
    double fixed_seconds;     // of everything but the steps
    double remaining_seconds; // until the deadline; zero or less: there is none
    int32_t min_steps, max_steps;
} sumi_step_times;
// The most steps that end before the deadline. The result lies in [min_steps, max_steps]: min_steps if the deadline
// cannot be met; max_steps without a deadline or without a measured speed (zero, less, or not finite).
int32_t sumi_deadline_steps(const sumi_step_times* times);

// A job whose number of steps is decided once, before the first one.
typedef struct sumi_deadline_job {
    int32_t run_steps, evaluation_count; // as the schedule has them
    double fixed_us;
    double remaining_seconds; // until the deadline, with the margin taken away
} sumi_deadline_job;
// How many of the run_steps fit if all of them take denoise_us.
int32_t sumi_deadline_steps_of_job(const sumi_deadline_job* job, double denoise_us);

// An evaluation that begins, in a job that can leave evaluations out.
typedef struct sumi_deadline_evaluation {
    int32_t run_steps, evaluation_count; // as the schedule has them
    int32_t counter, skipped_count;      // this evaluation; how many before it were left out
    bool lacks_speed;                    // it is not known yet how many evaluations can be reused
    double remaining_seconds;            // until the deadline
    const sumi_forecast_accuracy* accuracy;
    const sumi_accuracy* step_accuracy;
} sumi_deadline_evaluation;
// How many evaluations, this one included, fit into the time that is left. At least 1.
int32_t sumi_deadline_evaluations(const sumi_deadline_evaluation* evaluation, const sumi_remaining_work* work);
// The distance from this evaluation to the next one if only allowed_count of the remaining ones run: they are spread
// evenly.
int32_t sumi_deadline_stride(int32_t remaining_count, int32_t allowed_count);
#endif
