// Predictions of a job's wall-clock times, and how accurate they were.
//
//   wall   |-- step --|-- step --|-- last step --|-- decode, pictures --|
//                                                 <------- end ------->
//
// Every image job, with or without a deadline, notes how long its steps and its end took and how long they had been
// predicted to take. The end is everything after the last step: decoding, then reading the pictures. For a size that
// was never decoded the end is guessed from the times of ops of the same kinds; the accuracy of such guesses is noted
// separately.
//
// The caller protects the structs. None of the functions blocks or fails.
#ifndef SUMI_PACING_FORECAST_H
#define SUMI_PACING_FORECAST_H
#include <stdbool.h>
#include <stdint.h>

// ---- Accuracy of a kind of predictions ------------------------------------------------------------------------------
//
// Learns how accurate one kind of time prediction is, so that deadlines can add a margin that fits.

// Statistics of the ratio actual time / predicted time.
typedef struct sumi_accuracy {
    float mean, deviation; // the ratio's moving mean, and its moving mean absolute deviation from that mean
    int32_t count;         // predictions noted so far; while this is 0, mean and deviation are not set
} sumi_accuracy;

// Notes how long something took (`actual`) and how long it had been predicted to take, both in the same unit. Does
// nothing if `predicted` is not positive. first_deviation is the deviation to assume before the first prediction was
// noted.
void sumi_accuracy_note(sumi_accuracy* accuracy, float first_deviation, double actual, double predicted);
double sumi_accuracy_deviation(const sumi_accuracy* accuracy, float first_deviation);
// Returns the factor by which a prediction must be multiplied to get a time that is hardly ever exceeded.
double sumi_accuracy_largest_factor(const sumi_accuracy* accuracy, float first_deviation);

// How many mean deviations the deadline code adds to the mean. Of a normal distribution 98 in 100 values lie below
// that: 2.5 mean absolute deviations are 2 standard deviations.
#define SUMI_ACCURACY_MARGIN 2.5

// ---- Forecasts of jobs ----------------------------------------------------------------------------------------------

// Microseconds of work: measured for slices that ran before, and guessed for the others.
typedef struct sumi_work_us {
    double measured, guessed;
} sumi_work_us;
double sumi_work_total_us(const sumi_work_us* work);
bool sumi_work_is_guess(const sumi_work_us* work); // most of it was never measured

// The work that remains when an iteration begins: of this evaluation; the average of those after it (they differ where
// guidance begins or ends, and where some of them run alternatives); and of everything after the last evaluation.
// Slices in flight count as part of `end`.
typedef struct sumi_remaining_work {
    sumi_work_us evaluation, end;
    double later_us; // 0: this evaluation is the last
} sumi_remaining_work;

// Deviations to assume before anything was noted. Decoders whose time was guessed took 0.7 to 1.2 of the guess (the
// demonstration model on two cores). Decoders that had been measured differ by a tenth while other programs work too.
#define SUMI_FIRST_END_DEVIATION 0.05f
#define SUMI_FIRST_GUESS_DEVIATION 0.2f
#define SUMI_FIRST_STEP_DEVIATION 0.1f

// Accuracy of predictions: of the end where the decoder had been measured; of the end where it had to be guessed; of
// whole jobs, for solvers whose number of steps is decided once. The accuracy of steps is kept per plan.
typedef struct sumi_forecast_accuracy {
    sumi_accuracy end, guess, job;
} sumi_forecast_accuracy;

// Predictions for one job, kept until the predicted work is done, so that their accuracy can be noted.
typedef struct sumi_forecast {
    uint64_t begin_ns;   // start of the newest step (steady clock); 0: none has begun
    double step_seconds; // predicted for this step; 0: no prediction
    double end_seconds;  // predicted for the work after the last step, once only that is left; 0: there are more steps
    // predicted for the whole job since planned_ns, if its steps are decided once; 0: not predicted
    double job_seconds;
    uint64_t planned_ns; // when the plan was chosen (steady clock)
    bool is_guess;       // end_seconds is a guess: most of the end was never measured
} sumi_forecast;

// A run of the job's steps begins: once per batch, and again after a pause.
void sumi_forecast_begin(sumi_forecast* forecast);

// A step that begins.
typedef struct sumi_forecast_step {
    uint64_t now_ns; // steady clock
    double share;    // the share of the wall-clock time that the work gets
    bool is_reused;  // the step reuses the whole evaluation before it
} sumi_forecast_step;
// Notes in `accuracy` how long the previous step took, and predicts the step that begins.
void sumi_forecast_next(sumi_forecast* forecast, sumi_accuracy* accuracy, const sumi_forecast_step* step,
                        const sumi_remaining_work* work);
// The job's pictures were read: notes how accurate the predictions were.
void sumi_forecast_end(sumi_forecast* forecast, sumi_forecast_accuracy* accuracy, uint64_t now_ns);
#endif
