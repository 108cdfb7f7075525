#include "pacing/forecast.h"
#include "base/assert.h"

// ---- Accuracy of a kind of predictions ------------------------------------------------------------------------------

// The largest factor that sumi_accuracy_largest_factor() returns. It is below 2, so that a job whose deadline is twice
// its time runs all its steps, whatever was noted before.
#define MAX_TIMES 1.75
// The moving averages cover about this many predictions: each new one has a weight of at least 1 / RECENT_COUNT.
#define RECENT_COUNT 8

void sumi_accuracy_note(sumi_accuracy* accuracy, float first_deviation, double actual, double predicted)
{
    SUMI_ASSERT(first_deviation > 0.0f);
    if (!(predicted > 0.0)) return;
    if (accuracy->count == 0) *accuracy = (sumi_accuracy){.mean = 1.0f, .deviation = first_deviation};
    // A single outlier, for example because the host program paused once, says little about the next prediction. So the
    // distance of one ratio from the mean is limited.
    const float max_distance = 0.15f + 4.0f * accuracy->deviation,
                distance = (float)(actual / predicted) - accuracy->mean,
                limited_distance = distance > max_distance  ? max_distance
                                 : distance < -max_distance ? -max_distance
                                                            : distance;
    const float weight = 1.0f / (float)((accuracy->count < RECENT_COUNT - 2 ? accuracy->count : RECENT_COUNT - 2) + 2);
    accuracy->mean += weight * limited_distance;
    accuracy->deviation +=
        weight * ((limited_distance < 0.0f ? -limited_distance : limited_distance) - accuracy->deviation);
    accuracy->count++;
    SUMI_ASSERT(accuracy->deviation >= 0.0f);
}

double sumi_accuracy_deviation(const sumi_accuracy* accuracy, float first_deviation)
{
    return (double)(accuracy->count > 0 ? accuracy->deviation : first_deviation);
}

double sumi_accuracy_largest_factor(const sumi_accuracy* accuracy, float first_deviation)
{
    const double factor = (accuracy->count > 0 ? (double)accuracy->mean : 1.0)
                        + SUMI_ACCURACY_MARGIN * sumi_accuracy_deviation(accuracy, first_deviation);
    return factor < 0.5 ? 0.5 : factor > MAX_TIMES ? MAX_TIMES : factor;
}

// ---- Forecasts of jobs ----------------------------------------------------------------------------------------------

double sumi_work_total_us(const sumi_work_us* work) { return work->measured + work->guessed; }
bool sumi_work_is_guess(const sumi_work_us* work) { return work->guessed > work->measured; }

void sumi_forecast_begin(sumi_forecast* forecast)
{
    forecast->begin_ns = 0;
    forecast->end_seconds = 0.0;
}

void sumi_forecast_next(sumi_forecast* forecast, sumi_accuracy* accuracy, const sumi_forecast_step* step,
                        const sumi_remaining_work* work)
{
    const sumi_work_us* evaluation = &work->evaluation;
    const double seconds = sumi_work_is_guess(evaluation) ? 0.0 : 1e-6 * sumi_work_total_us(evaluation) / step->share;
    if (step->is_reused && forecast->begin_ns != 0) {
        // Evaluations that are reused are noted together with the whole one before them. They are short, so the slices
        // in flight when they begin, and the frames that they are run in, would count for more than their own work.
        forecast->step_seconds = forecast->step_seconds > 0.0 && seconds > 0.0 ? forecast->step_seconds + seconds : 0.0;
    } else {
        const double actual_seconds = (double)(step->now_ns - forecast->begin_ns) * 1e-9;
        if (forecast->begin_ns != 0)
            sumi_accuracy_note(accuracy, SUMI_FIRST_STEP_DEVIATION, actual_seconds, forecast->step_seconds);
        forecast->begin_ns = step->now_ns;
        forecast->step_seconds = seconds;
    }
    forecast->end_seconds = 0.0;
    forecast->is_guess = sumi_work_is_guess(&work->end);
}

void sumi_forecast_end(sumi_forecast* forecast, sumi_forecast_accuracy* accuracy, uint64_t now_ns)
{
    if (forecast->end_seconds > 0.0 && forecast->step_seconds > 0.0) {
        const double actual_seconds = (double)(now_ns - forecast->begin_ns) * 1e-9 - forecast->step_seconds;
        if (forecast->is_guess)
            sumi_accuracy_note(&accuracy->guess, SUMI_FIRST_GUESS_DEVIATION, actual_seconds, forecast->end_seconds);
        else sumi_accuracy_note(&accuracy->end, SUMI_FIRST_END_DEVIATION, actual_seconds, forecast->end_seconds);
    }
    if (forecast->job_seconds > 0.0) {
        const double actual_seconds = (double)(now_ns - forecast->planned_ns) * 1e-9;
        sumi_accuracy_note(&accuracy->job, SUMI_FIRST_GUESS_DEVIATION, actual_seconds, forecast->job_seconds);
    }
    *forecast = (sumi_forecast){.begin_ns = 0};
}
