#include "pacing/deadline_steps.h"
#include "base/assert.h"
#include "pacing/forecast.h"

#define FEWEST_STEPS 4     // a deadline leaves at least this many steps: with fewer, pictures fall apart
#define LEAST_SECONDS 1e-6 // the time that is left after the deadline; 0 would mean no deadline

int32_t sumi_deadline_steps(const sumi_step_times* times)
{
    const int32_t min_steps = times->min_steps, max_steps = times->max_steps < min_steps ? min_steps : times->max_steps;
    const double per_step = times->seconds_per_evaluation * times->evaluations_per_step;
    if (!(times->remaining_seconds > 0.0) || !(per_step > 0.0 && per_step < 1e18)) return max_steps;
    const double for_steps = times->remaining_seconds - (times->fixed_seconds > 0.0 ? times->fixed_seconds : 0.0);
    const double steps = for_steps / per_step * (1.0 + 1e-9); // the factor corrects a quotient just below an integer
    if (!(steps > min_steps)) return min_steps;
    if (steps >= max_steps) return max_steps;
    return (int32_t)steps;
}

static int32_t fewest_steps(int32_t run_steps) { return run_steps < FEWEST_STEPS ? run_steps : FEWEST_STEPS; }

int32_t sumi_deadline_steps_of_job(const sumi_deadline_job* job, double denoise_us)
{
    SUMI_ASSERT(job->run_steps > 0 && job->evaluation_count > 0);
    return sumi_deadline_steps(&(sumi_step_times){
        .seconds_per_evaluation = denoise_us * 1e-6 / job->evaluation_count,
        .evaluations_per_step = (double)job->evaluation_count / job->run_steps,
        .fixed_seconds = job->fixed_us * 1e-6,
        .remaining_seconds = job->remaining_seconds > LEAST_SECONDS ? job->remaining_seconds : LEAST_SECONDS,
        .min_steps = fewest_steps(job->run_steps),
        .max_steps = job->run_steps});
}

int32_t sumi_deadline_evaluations(const sumi_deadline_evaluation* evaluation, const sumi_remaining_work* work)
{
    const sumi_deadline_evaluation* e = evaluation;
    SUMI_ASSERT(e->skipped_count <= e->counter && e->counter >= 0 && e->counter < e->evaluation_count);
    const int32_t remaining_count = e->evaluation_count - e->counter, done_count = e->counter - e->skipped_count,
                  fewest_in_all = fewest_steps(e->run_steps);
    const int32_t fewest = fewest_in_all > done_count + 1 ? fewest_in_all - done_count : 1;
    double step_us = sumi_work_total_us(&work->evaluation), later_us = work->later_us,
           end_us = sumi_work_total_us(&work->end);
    if ((sumi_work_is_guess(&work->evaluation) || e->lacks_speed) && fewest >= 2) {
        // No evaluation of this size was measured yet, or it is not known how many can be reused. At least two more
        // steps run in any case, so this step can be measured before many steps are left out: until then, steps are
        // left out only if half of the guessed time is too long.
        step_us *= 0.5;
        later_us *= 0.5;
        end_us *= 0.5;
    } else {
        // The margin: the end gets a time that it hardly ever exceeds, and this step and the next one may each take
        // longer than predicted.
        end_us = work->end.measured * sumi_accuracy_largest_factor(&e->accuracy->end, SUMI_FIRST_END_DEVIATION)
               + work->end.guessed * sumi_accuracy_largest_factor(&e->accuracy->guess, SUMI_FIRST_GUESS_DEVIATION)
               + SUMI_ACCURACY_MARGIN * sumi_accuracy_deviation(e->step_accuracy, SUMI_FIRST_STEP_DEVIATION)
                     * (step_us > later_us ? step_us : later_us);
    }
    const int32_t min_count = fewest < remaining_count ? fewest : remaining_count;
    return 1
         + sumi_deadline_steps(&(sumi_step_times){
             .seconds_per_evaluation = later_us * 1e-6,
             .evaluations_per_step = 1.0,
             .fixed_seconds = (step_us + end_us) * 1e-6,
             .remaining_seconds = e->remaining_seconds > LEAST_SECONDS ? e->remaining_seconds : LEAST_SECONDS,
             .min_steps = min_count - 1,
             .max_steps = remaining_count - 1});
}

int32_t sumi_deadline_stride(int32_t remaining_count, int32_t allowed_count)
{
    SUMI_ASSERT(allowed_count >= 1 && allowed_count <= remaining_count);
    return (2 * remaining_count + allowed_count) / (2 * allowed_count);
}
