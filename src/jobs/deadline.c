#include "jobs/deadline.h"
#include "base/assert.h"
#include "base/platform.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_inputs.h"
#include "jobs/job_outputs.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "jobs/run.h"
#include "jobs/step_cache.h"
#include "models/pipeline.h"
#include "pacing/deadline_steps.h"
#include "pacing/forecast.h"
#include "pacing/frame_limits.h"
#include "pacing/work_share.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include "sampling/solver.h"

// Steps can be left out while the job runs if each step is one evaluation.
static bool can_skip(sumi_solver solver) { return sumi_solver_max_rows(solver) == 1; }

double sumi_deadline_remaining_seconds(const sumi_job_slot* slot)
{
    return (double)slot->u.plan_job.request.deadline_ms * 1e-3 - (double)(sumi_clock_ns() - slot->submitted_ns) * 1e-9;
}

void sumi_deadline_note(sumi_engine* engine, double us) { sumi_work_share_note(&engine->deadline.work, us); }

void sumi_deadline_follow(sumi_engine* engine, uint32_t budget_us, uint64_t now_ns)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    if (engine->runner->traits.has_device) return; // a GPU works between updates too
    sumi_work_share_follow(&engine->deadline.work, budget_us, now_ns);
}

void sumi_deadline_begin(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    SUMI_ASSERT(slot->u.plan_job.progress.batch_count >= 0 && slot->u.plan_job.progress.run_steps >= 0);
    // On the CPU the measurement of the share begins here. On a GPU it begins with the second step: the first
    // slices end only after the first step was submitted, so there is nothing to measure before.
    const uint64_t begin_ns = engine->runner->traits.has_device ? 0 : sumi_clock_ns();
    sumi_work_share_begin(&engine->deadline.work, begin_ns, engine->frame.slice_us);
    slot->u.plan_job.progress.deadline_adaptation = (sumi_deadline_adaptation){.next_evaluation = 0};
    sumi_forecast_begin(&slot->u.plan_job.progress.forecast);
}

void sumi_deadline_end(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && slot->u.plan_job.request.goal == SUMI_GOAL_IMAGES);
    sumi_forecast_end(&slot->u.plan_job.progress.forecast, &engine->deadline.accuracy, sumi_clock_ns());
}

// ---- How many steps -------------------------------------------------------------------------------------------------

// How many batches of the job's items are left, the current one included. Each gets an equal part of the time left.
static int32_t batches_left(const sumi_plan_job* job)
{
    SUMI_ASSERT(job->progress.batch_count > 0);
    return (job->request.item_count - job->progress.batch_begin + job->progress.batch_count - 1)
         / job->progress.batch_count;
}

static double section_us(const sumi_engine* engine, const sumi_plan_entry* entry, size_t section)
{
    const sumi_work_us iteration_work = sumi_section_work_us(engine, entry, section);
    return sumi_work_total_us(&iteration_work) * entry->plan.sections[section].repeat;
}

int32_t sumi_deadline_step_count(const sumi_engine* engine, sumi_job_slot* slot, int32_t step_count)
{
    sumi_plan_job* job = &slot->u.plan_job;
    sumi_job_progress* progress = &job->progress;
    const sumi_plan_entry* entry = progress->entry;
    if (can_skip(job->request.solver)) return step_count;
    const double budgeted = sumi_work_share_budgeted(&engine->deadline.work, engine->frame.slice_us),
                 current = sumi_work_share_now(&engine->deadline.work, engine->frame.slice_us),
                 share = current < budgeted ? current : budgeted;
    double fixed_us = sumi_frame_limits_own_us_in_frames(
        &engine->frame,
        3.0 * engine->overhead_us[SUMI_OVERHEAD_INPUT]
            + progress->batch_count * (sumi_plan_job_noise_us(engine, job) + sumi_plan_job_output_us(engine, job)));
    double whole_us = 0.0, reused_us = 0.0; // if every evaluation is whole, and if every one that can be is reused
    for (size_t s = 0; s < entry->plan.section_count; s++) {
        if (entry->plan.sections[s].is_alternative) continue;
        const double us = section_us(engine, entry, s);
        if (entry->plan.sections[s].kind != SUMI_SECTION_DENOISE) {
            fixed_us += us;
            continue;
        }
        whole_us += us;
        reused_us += sumi_plan_has_alternative(&entry->plan, s) ? section_us(engine, entry, s + 1) : us;
    }
    // The step count is not changed later, so the margin covers the whole job.
    const double largest_factor =
        sumi_accuracy_largest_factor(&engine->deadline.accuracy.job, SUMI_FIRST_GUESS_DEVIATION);
    const sumi_deadline_job times = {.run_steps = progress->run_steps,
                                     .evaluation_count = progress->evaluation_count,
                                     .fixed_us = fixed_us,
                                     .remaining_seconds = sumi_deadline_remaining_seconds(slot) * share
                                                        / batches_left(job) / largest_factor};
    // With fewer steps a smaller share of them is reused, so the number is lowered until it fits the time that it takes
    // itself.
    int32_t allowed = progress->run_steps, fitting = allowed;
    double denoise_us;
    do {
        allowed = fitting;
        const int32_t evaluations = (int32_t)((int64_t)allowed * progress->evaluation_count / progress->run_steps);
        denoise_us = whole_us + sumi_step_cache_share_of_all(job, evaluations) * (reused_us - whole_us);
        fitting = sumi_deadline_steps_of_job(&times, denoise_us);
    } while (fitting < allowed);
    progress->forecast.planned_ns = sumi_clock_ns();
    progress->forecast.job_seconds = 1e-6 * (fixed_us + denoise_us * allowed / progress->run_steps) / share;
    if (allowed >= progress->run_steps) return step_count;
    // With a strength below 1 only run_steps of step_count steps run; the same ratio holds for the smaller step count.
    int32_t steps = (int32_t)((int64_t)step_count * allowed / progress->run_steps);
    return steps > 1 ? steps : 1;
}

// Notes how long the step before took, and predicts the step that begins and the rest of the job. Returns the share of
// the wall-clock time to plan with.
static double look_ahead(sumi_engine* engine, sumi_plan_job* job, sumi_remaining_work* out_work)
{
    const sumi_run* run = &engine->runs.current;
    sumi_forecast_step step = {.is_reused = run->entry->plan.sections[run->section].is_alternative};
    step.share = sumi_work_share_measure(&engine->deadline.work, sumi_clock_ns(), engine->frame.slice_us);
    step.now_ns = sumi_clock_ns();
    *out_work = sumi_run_remaining_work(engine);
    out_work->end.measured += sumi_frame_limits_own_us_in_frames(
        &engine->frame, job->progress.batch_count * sumi_plan_job_output_us(engine, job));
    sumi_forecast_next(&job->progress.forecast, &job->progress.entry->step, &step, out_work);
    return step.share;
}

// Writes a new solver row for evaluation `counter`, whose step leads to the sigma of evaluation `next`. It is needed
// when `next` is not counter + 1, and for multistep solvers when the step before was longer than in the schedule.
static void write_row(sumi_plan_job* job, int32_t counter, int32_t next, sumi_solver_row* out_row)
{
    SUMI_ASSERT(counter >= 0 && counter < next && next <= job->progress.evaluation_count);
    const sumi_solver_row* row = &job->progress.rows[counter];
    const float end = next < job->progress.evaluation_count ? job->progress.rows[next].sigma : 0.0f,
                previous = job->progress.deadline_adaptation.previous_sigma;
    const float sigmas[3] = {previous, row->sigma, end};
    sumi_solver_row rows[2];
    const bool has_previous = previous > 0.0f;
    sumi_solver_rows(job->request.solver, has_previous ? sigmas : sigmas + 1, has_previous ? 2 : 1, rows);
    *out_row = rows[has_previous];
    out_row->guidance = row->guidance;
    out_row->step = row->step;
}

void sumi_deadline_adapt(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_plan_job* job = &slot->u.plan_job;
    sumi_job_progress* progress = &job->progress;
    int32_t counter, left_in_section;
    if (job->request.goal != SUMI_GOAL_IMAGES || !sumi_run_begins_evaluation(engine, &counter, &left_in_section))
        return;
    if (counter < progress->deadline_adaptation.next_evaluation) return;
    sumi_remaining_work work;
    const double share = look_ahead(engine, job, &work);
    int32_t stride = 1;
    if (job->request.deadline_ms > 0 && can_skip(job->request.solver)) {
        const int32_t remaining_count = progress->evaluation_count - counter;
        const sumi_deadline_evaluation evaluation = {.run_steps = progress->run_steps,
                                                     .evaluation_count = progress->evaluation_count,
                                                     .counter = counter,
                                                     .skipped_count = progress->deadline_adaptation.skipped_count,
                                                     .lacks_speed = sumi_step_cache_lacks_speed(job),
                                                     .remaining_seconds = sumi_deadline_remaining_seconds(slot) * share
                                                                        / batches_left(job),
                                                     .accuracy = &engine->deadline.accuracy,
                                                     .step_accuracy = &progress->entry->step};
        int32_t fitting = 1;
        do {
            stride = fitting;
            // The next step decides again.
            fitting = sumi_deadline_stride(remaining_count, sumi_deadline_evaluations(&evaluation, &work));
            // Of evaluations that are farther apart, fewer are reused.
            work.later_us =
                sumi_run_later_us(engine, sumi_step_cache_share_after(job, counter, (remaining_count - 1) / fitting));
        } while (fitting > stride);
        // A step must not skip over the end of its section: where guidance begins or ends, another section follows.
        if (stride > left_in_section) stride = left_in_section;
    }
    SUMI_ASSERT(stride >= 1 && counter + stride <= progress->evaluation_count);
    const bool skips = stride > 1;
    // row_is_changed: a multistep solver's row depends on the step before.
    if (skips || progress->deadline_adaptation.row_is_changed) {
        sumi_solver_row row;
        write_row(job, counter, counter + stride, &row);
        engine->runner->functions->write(engine->runner, &progress->entry->plan, progress->entry->pipeline.solver,
                                         (uint64_t)counter * sizeof row, &row, sizeof row);
        sumi_run_skip(engine, stride - 1);
        progress->deadline_adaptation.skipped_count += stride - 1;
    }
    if (counter + stride == progress->evaluation_count)
        progress->forecast.end_seconds = 1e-6 * sumi_work_total_us(&work.end) / share;
    progress->deadline_adaptation.next_evaluation = counter + stride;
    progress->deadline_adaptation.row_is_changed = skips;
    progress->deadline_adaptation.previous_sigma = progress->rows[counter].sigma;
}
