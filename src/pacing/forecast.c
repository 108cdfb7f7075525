#include "pacing/forecast.h"

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
