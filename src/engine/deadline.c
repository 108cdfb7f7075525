#include "engine/deadline.h"
#include "base/assert.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "engine/job_inputs.h"
#include "engine/job_outputs.h"
#include "engine/plan_cache.h"
#include "engine/plan_job.h"
#include "engine/run.h"
#include "engine/step_cache.h"
#include "pacing/accuracy.h"
#include "sampling/presets.h"
#include <math.h>

#define FEWEST_STEPS 4 // a deadline leaves at least so many steps: with fewer, pictures fall apart
// The shortest interval over which the share is measured. A shorter one shows the operating system's scheduling more
// than the host program's budgets.
#define MEASURE_NS 10000000u
#define FOLLOW_NS 25e6     // an interval of this length or longer has a weight of one half in the moving average
#define LEAST_SHARE 1e-4   // the least share that is measured, for example while the host program pauses
#define WHOLE_OP_US 5000.0 // predicted length of a slice where slices are whole ops, as in sumi_frame_budget_piece_us

// Deviations to assume before anything was noted. Decoders whose time was guessed took 0.7 to 1.2 of the guess (the
// demonstration model on two cores). Decoders that had been measured differ by a tenth while other programs work too.
#define FIRST_DEVIATION 0.05f
#define FIRST_GUESS_DEVIATION 0.2f
#define FIRST_STEP_DEVIATION 0.1f

// Steps can be left out while the job runs if each step is one evaluation.
static bool can_skip(sumi_solver solver) { return sumi_solver_max_rows(solver) == 1; }

double sumi_deadline_remaining_seconds(const sumi_job_slot* slot)
{
    return (double)slot->u.plan.deadline_ms * 1e-3 - (double)(sumi_clock_ns() - slot->submitted_ns) * 1e-9;
}

void sumi_deadline_note(sumi_engine* engine, double us) { engine->deadline.work_us += us; }

static double total_us(const sumi_work_us* work) { return work->measured + work->guessed; }
static bool is_guess(const sumi_work_us* work) { return work->guessed > work->measured; }

// The share of the wall-clock time that the host program's budgets give to the work: budget / time between updates. 1
// while either is not known. Where slices are whole ops, an update runs at least one, however small its budget is.
static double budgeted_share(const sumi_engine* engine)
{
    const sumi_deadline_state* pace = &engine->deadline;
    const double least_us = engine->frame.slice_us > 0 ? 0.0 : WHOLE_OP_US,
                 us = pace->budget_us > least_us ? pace->budget_us : least_us;
    return pace->budget_us > 0.0 && pace->update_interval_us > us ? us / pace->update_interval_us : 1.0;
}

static double current_share(const sumi_engine* engine)
{
    return engine->deadline.share > 0.0 ? engine->deadline.share : budgeted_share(engine);
}

// Measures the share of the wall-clock time that went into work, and begins the next measurement. Returns the share to
// plan with. The load changes quickly, so a measurement over a few frames counts as much as all earlier ones together.
static double measure_share(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_deadline_state* pace = &engine->deadline;
    const uint64_t now_ns = sumi_clock_ns();
    if (pace->begin_ns != 0 && now_ns - pace->begin_ns >= MEASURE_NS) {
        const double wall_ns = (double)(now_ns - pace->begin_ns);
        double share = pace->work_us * 1e3 / wall_ns;
        share = share > 1.0 ? 1.0 : share < LEAST_SHARE ? LEAST_SHARE : share;
        const double weight = wall_ns < FOLLOW_NS ? wall_ns / (wall_ns + FOLLOW_NS) : 0.5;
        pace->share = pace->share > 0.0 ? pace->share + weight * (share - pace->share) : share;
        SUMI_ASSERT(pace->share >= LEAST_SHARE && pace->share <= 1.0);
        pace->begin_ns = 0;
    }
    if (pace->begin_ns == 0) {
        pace->begin_ns = now_ns;
        pace->work_us = 0.0;
    }
    return current_share(engine);
}

#define PAUSE_US 250000.0 // a longer time between two updates is a pause, and is left out of the average

void sumi_deadline_follow(sumi_engine* engine, uint32_t budget_us, uint64_t now_ns)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && budget_us > 0);
    sumi_deadline_state* pace = &engine->deadline;
    if (engine->runner->traits.has_device) return; // a GPU works between updates too
    if (budget_us == SUMI_FOREVER) {
        pace->budget_us = pace->update_interval_us = 0.0;
        pace->update_ns = 0;
        return;
    }
    const double interval_us = pace->update_ns != 0 ? (double)(now_ns - pace->update_ns) * 1e-3 : PAUSE_US;
    if (interval_us < PAUSE_US)
        pace->update_interval_us =
            pace->update_interval_us > 0.0 ? 0.75 * pace->update_interval_us + 0.25 * interval_us : interval_us;
    pace->update_ns = now_ns;
    pace->budget_us = (double)budget_us;
}

void sumi_deadline_begin(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    SUMI_ASSERT(slot->u.plan.batch_count >= 0 && slot->u.plan.run_steps >= 0);
    // On a processor the measurement of the share begins here. On a GPU it begins with the second step: the first
    // slices end only after the first step was submitted, so there is nothing to measure before.
    engine->deadline.begin_ns = engine->runner->traits.has_device ? 0 : sumi_clock_ns();
    engine->deadline.work_us = 0.0;
    // The host program's budgets may have become smaller since the last job, so the measured share is limited by them.
    if (engine->deadline.share > budgeted_share(engine)) engine->deadline.share = budgeted_share(engine);
    slot->u.plan.deadline_adaptation = (sumi_deadline_adaptation){.next_evaluation = 0};
    slot->u.plan.forecast.begin_ns = 0;
    slot->u.plan.forecast.end_seconds = 0.0;
}

void sumi_deadline_end(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && slot->u.plan.goal == SUMI_GOAL_IMAGES);
    sumi_forecast* forecast = &slot->u.plan.forecast;
    sumi_deadline_state* pace = &engine->deadline;
    const uint64_t now_ns = sumi_clock_ns();
    if (forecast->end_seconds > 0.0 && forecast->step_seconds > 0.0) {
        const double actual_seconds = (double)(now_ns - forecast->begin_ns) * 1e-9 - forecast->step_seconds;
        if (forecast->is_guess)
            sumi_accuracy_note(&pace->guess_accuracy, FIRST_GUESS_DEVIATION, actual_seconds, forecast->end_seconds);
        else sumi_accuracy_note(&pace->end_accuracy, FIRST_DEVIATION, actual_seconds, forecast->end_seconds);
    }
    if (forecast->job_seconds > 0.0) {
        const double actual_seconds = (double)(now_ns - forecast->planned_ns) * 1e-9;
        sumi_accuracy_note(&pace->job_accuracy, FIRST_GUESS_DEVIATION, actual_seconds, forecast->job_seconds);
    }
    *forecast = (sumi_forecast){.begin_ns = 0};
}

// ---- How many steps -------------------------------------------------------------------------------------------------

// How many batches of the job's items are left, the current one included. Each gets an equal part of the time left.
static int32_t batches_left(const sumi_plan_job* job)
{
    return (job->item_count - job->batch_begin + job->batch_count - 1) / job->batch_count;
}

static int32_t fewest_steps(const sumi_plan_job* job)
{
    return job->run_steps < FEWEST_STEPS ? job->run_steps : FEWEST_STEPS;
}

// Converts time of this thread's own work (noise, outputs) to the time in which slices are counted. When the host
// program gives budgets to a GPU, each frame has less time for this thread's own work than for slices, so the time
// grows by the ratio of the two limits.
static double overhead_us_in_frames(const sumi_engine* engine, double us)
{
    const double factor =
        engine->frame.max_thread_us > 0.0 ? engine->frame.max_pending_us / engine->frame.max_thread_us : 1.0;
    return factor > 1.0 ? us * factor : us;
}

static double section_us(const sumi_engine* engine, const sumi_plan_entry* entry, size_t section)
{
    const sumi_work_us iteration_work = sumi_section_work_us(engine, entry, section);
    return total_us(&iteration_work) * entry->plan.sections[section].repeat;
}

int32_t sumi_deadline_step_count(const sumi_engine* engine, sumi_job_slot* slot, int32_t step_count)
{
    sumi_plan_job* job = &slot->u.plan;
    const sumi_plan_entry* entry = job->entry;
    if (can_skip(job->solver)) return step_count;
    const double budgeted = budgeted_share(engine), current = current_share(engine),
                 share = current < budgeted ? current : budgeted;
    double fixed_us = overhead_us_in_frames(
        engine, 3.0 * engine->overhead_us[SUMI_OVERHEAD_INPUT]
                    + job->batch_count * (sumi_plan_job_noise_us(engine, job) + sumi_plan_job_output_us(engine, job)));
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
    const double largest_factor = sumi_accuracy_largest_factor(&engine->deadline.job_accuracy, FIRST_GUESS_DEVIATION);
    const double remaining_seconds = sumi_deadline_remaining_seconds(slot) * share / batches_left(job) / largest_factor;
    // With fewer steps a smaller share of them is reused, so the number is lowered until it fits the time that it takes
    // itself.
    int32_t allowed = job->run_steps, fitting = allowed;
    double denoise_us;
    do {
        allowed = fitting;
        const int32_t evaluations = (int32_t)((int64_t)allowed * job->evaluation_count / job->run_steps);
        denoise_us = whole_us + sumi_step_cache_share_of_all(job, evaluations) * (reused_us - whole_us);
        fitting = sumi_deadline_steps(denoise_us * 1e-6 / job->evaluation_count, fixed_us * 1e-6,
                                      remaining_seconds > 1e-6 ? remaining_seconds : 1e-6, fewest_steps(job),
                                      job->run_steps, (double)job->evaluation_count / job->run_steps);
    } while (fitting < allowed);
    job->forecast.planned_ns = sumi_clock_ns();
    job->forecast.job_seconds = 1e-6 * (fixed_us + denoise_us * allowed / job->run_steps) / share;
    if (allowed >= job->run_steps) return step_count;
    // With a strength below 1 only run_steps of step_count steps run; the same ratio holds for the smaller step count.
    int32_t steps = (int32_t)((int64_t)step_count * allowed / job->run_steps);
    return steps > 1 ? steps : 1;
}

// Notes how long the step before took, and predicts the step that begins and the rest of the job.
static void look_ahead(sumi_engine* engine, sumi_plan_job* job, sumi_remaining_work* out_work, double* out_share)
{
    const double share = measure_share(engine);
    const uint64_t now_ns = sumi_clock_ns();
    sumi_forecast* forecast = &job->forecast;
    sumi_remaining_work work = sumi_run_remaining_work(engine);
    work.end.measured += overhead_us_in_frames(engine, job->batch_count * sumi_plan_job_output_us(engine, job));
    const sumi_run* run = &engine->runs.current;
    const double seconds = is_guess(&work.evaluation) ? 0.0 : 1e-6 * total_us(&work.evaluation) / share;
    if (run->entry->plan.sections[run->section].is_alternative && forecast->begin_ns != 0) {
        // Evaluations that are reused are noted together with the whole one before them. They are short, so the slices
        // in flight when they begin, and the frames that they are run in, would count for more than their own work.
        forecast->step_seconds = forecast->step_seconds > 0.0 && seconds > 0.0 ? forecast->step_seconds + seconds : 0.0;
    } else {
        const double actual_seconds = (double)(now_ns - forecast->begin_ns) * 1e-9;
        if (forecast->begin_ns != 0)
            sumi_accuracy_note(&job->entry->step, FIRST_STEP_DEVIATION, actual_seconds, forecast->step_seconds);
        forecast->begin_ns = now_ns;
        forecast->step_seconds = seconds;
    }
    forecast->end_seconds = 0.0;
    forecast->is_guess = is_guess(&work.end);
    *out_work = work;
    *out_share = share;
}

// How many evaluations, this one included, fit into the time that is left: seconds of work.
static int32_t allowed_evaluations(const sumi_engine* engine, const sumi_plan_job* job, int32_t counter,
                                   const sumi_remaining_work* work, double remaining_seconds)
{
    SUMI_ASSERT(job->batch_count > 0 && job->deadline_adaptation.skipped_count <= counter);
    SUMI_ASSERT(counter >= 0 && counter < job->evaluation_count);
    const int32_t remaining_count = job->evaluation_count - counter,
                  done_count = counter - job->deadline_adaptation.skipped_count;
    const int32_t fewest = fewest_steps(job) > done_count + 1 ? fewest_steps(job) - done_count : 1;
    double step_us = total_us(&work->evaluation), later_us = work->later_us, end_us = total_us(&work->end);
    if ((is_guess(&work->evaluation) || sumi_step_cache_lacks_speed(job)) && fewest >= 2) {
        // No evaluation of this size was measured yet, or it is not known how many can be reused. At least two more
        // steps run in any case, so this step can be measured before many steps are left out: until then, steps are
        // left out only if half of the guessed time is too long.
        step_us *= 0.5;
        later_us *= 0.5;
        end_us *= 0.5;
    } else {
        // The margin (deadline.h): the end takes as long as it hardly ever exceeds, and this step and the next one may
        // each take longer than predicted.
        end_us =
            work->end.measured * sumi_accuracy_largest_factor(&engine->deadline.end_accuracy, FIRST_DEVIATION)
            + work->end.guessed * sumi_accuracy_largest_factor(&engine->deadline.guess_accuracy, FIRST_GUESS_DEVIATION)
            + SUMI_ACCURACY_MARGIN * sumi_accuracy_deviation(&job->entry->step, FIRST_STEP_DEVIATION)
                  * (step_us > later_us ? step_us : later_us);
    }
    const int32_t min_count = fewest < remaining_count ? fewest : remaining_count;
    return 1
         + sumi_deadline_steps(later_us * 1e-6, (step_us + end_us) * 1e-6,
                               remaining_seconds > 1e-6 ? remaining_seconds : 1e-6, min_count - 1, remaining_count - 1,
                               1.0);
}

// Writes a new solver row for evaluation `counter`, whose step leads to the sigma of evaluation `next`. It is needed
// when `next` is not counter + 1, and for multistep solvers when the step before was longer than in the schedule.
static void write_row(sumi_plan_job* job, int32_t counter, int32_t next, sumi_solver_row* out_row)
{
    SUMI_ASSERT(counter >= 0 && counter < next && next <= job->evaluation_count);
    const sumi_solver_row* row = &job->rows[counter];
    const float end = next < job->evaluation_count ? job->rows[next].sigma : 0.0f,
                previous = job->deadline_adaptation.previous_sigma;
    const float sigmas[3] = {previous, row->sigma, end};
    sumi_solver_row rows[2];
    const bool has_previous = previous > 0.0f;
    sumi_solver_rows(job->solver, has_previous ? sigmas : sigmas + 1, has_previous ? 2 : 1, rows);
    *out_row = rows[has_previous];
    out_row->guidance = row->guidance;
    out_row->step = row->step;
}

void sumi_deadline_adapt(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_plan_job* job = &slot->u.plan;
    int32_t counter, left_in_section;
    if (job->goal != SUMI_GOAL_IMAGES || !sumi_run_begins_evaluation(engine, &counter, &left_in_section)) return;
    if (counter < job->deadline_adaptation.next_evaluation) return;
    sumi_remaining_work work;
    double share;
    look_ahead(engine, job, &work, &share);
    int32_t stride = 1;
    if (job->deadline_ms > 0 && can_skip(job->solver)) {
        const int32_t remaining_count = job->evaluation_count - counter;
        const double remaining_seconds = sumi_deadline_remaining_seconds(slot) * share / batches_left(job);
        int32_t fitting = 1;
        do {
            stride = fitting;
            const int32_t allowed_count = allowed_evaluations(engine, job, counter, &work, remaining_seconds);
            SUMI_ASSERT(allowed_count >= 1 && allowed_count <= remaining_count);
            // Spread the allowed evaluations evenly over those that are left. The next step decides again.
            fitting = (2 * remaining_count + allowed_count) / (2 * allowed_count);
            // Of evaluations that are farther apart, fewer are reused.
            work.later_us =
                sumi_run_later_us(engine, sumi_step_cache_share_after(job, counter, (remaining_count - 1) / fitting));
        } while (fitting > stride);
        // A step must not skip over the end of its section: where guidance begins or ends, another section follows.
        if (stride > left_in_section) stride = left_in_section;
    }
    SUMI_ASSERT(stride >= 1 && counter + stride <= job->evaluation_count);
    const bool skips = stride > 1;
    if (skips
        || job->deadline_adaptation
               .row_is_changed) { // row_is_changed: a multistep solver's row depends on the step before
        sumi_solver_row row;
        write_row(job, counter, counter + stride, &row);
        engine->runner->functions->write(engine->runner, &job->entry->plan, job->entry->pipeline.solver,
                                         (uint64_t)counter * sizeof row, &row, sizeof row);
        sumi_run_skip(engine, stride - 1);
        job->deadline_adaptation.skipped_count += stride - 1;
    }
    if (counter + stride == job->evaluation_count) job->forecast.end_seconds = 1e-6 * total_us(&work.end) / share;
    job->deadline_adaptation.next_evaluation = counter + stride;
    job->deadline_adaptation.row_is_changed = skips;
    job->deadline_adaptation.previous_sigma = job->rows[counter].sigma;
}
