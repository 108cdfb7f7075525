#include "engine/deadline.h"
#include "base/assert.h"
#include "engine/engine.h"
#include "sampling/presets.h"
#include <math.h>

#define FEWEST_STEPS 4       // below, pictures fall apart
#define MEASURE_NS 10000000u // a shorter time says more about the scheduler than about the host's budgets
#define LEAST_SHARE 1e-4     // a pause

static bool can_skip(sumi_solver solver) { return sumi_solver_most_rows(solver) == 1; } // an evaluation is a step

double sumi_deadline_left(const sumi_slot* slot)
{
    return (double)slot->u.plan.deadline_ms * 1e-3 - (double)(sumi_clock_ns() - slot->submitted_ns) * 1e-9;
}

void sumi_deadline_note(sumi_engine* engine, double us) { engine->pace.work_us += us; }

// The newest measurement counts as much as all before it: a host's load changes from one moment to the next.
static double measure_share(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    sumi_pace* pace = &engine->pace;
    const uint64_t now = sumi_clock_ns();
    if (pace->begin_ns != 0 && now - pace->begin_ns >= MEASURE_NS) {
        double share = pace->work_us * 1e3 / (double)(now - pace->begin_ns);
        share = share > 1.0 ? 1.0 : share < LEAST_SHARE ? LEAST_SHARE : share;
        pace->share = pace->share > 0.0 ? 0.5 * (pace->share + share) : share;
        SUMI_ASSERT(pace->share >= LEAST_SHARE && pace->share <= 1.0);
        pace->begin_ns = 0;
    }
    if (pace->begin_ns == 0) {
        pace->begin_ns = now;
        pace->work_us = 0.0;
    }
    return pace->share > 0.0 ? pace->share : 1.0;
}

void sumi_deadline_begin(sumi_engine* engine, sumi_slot* slot)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    SUMI_ASSERT(slot->u.plan.part_count >= 0 && slot->u.plan.run_steps >= 0);
    engine->pace.begin_ns = 0; // nobody was at work before
    slot->u.plan.adaption = (sumi_adaption){.next = 0};
}

// The batch may be run in parts, each of which has to have its share of the time: how many there are, this one
// included.
static int32_t part_runs(const sumi_plan_job* job)
{
    return (job->item_count - job->part_begin + job->part_count - 1) / job->part_count;
}

static int32_t fewest_steps(const sumi_plan_job* job)
{
    return job->run_steps < FEWEST_STEPS ? job->run_steps : FEWEST_STEPS;
}

// This thread's own pieces, in the time that slices are counted in: a host that paces a device leaves them less of each
// of its frames.
static double chores_us(const sumi_engine* engine, double us)
{
    const double factor = engine->most_own_us > 0.0 ? engine->most_pending_us / engine->most_own_us : 1.0;
    return factor > 1.0 ? us * factor : us;
}

int32_t sumi_deadline_step_count(const sumi_engine* engine, const sumi_slot* slot, int32_t step_count)
{
    const sumi_plan_job* job = &slot->u.plan;
    const sumi_plan_entry* entry = job->entry;
    if (can_skip(job->solver)) return step_count;
    const double share = engine->pace.share > 0.0 ? engine->pace.share : 1.0;
    double fixed_us = chores_us(
        engine, 3.0 * engine->chore_us[SUMI_CHORE_INPUT]
                    + job->item_count * (sumi_plan_job_noise_us(engine, job) + sumi_plan_job_output_us(engine, job)));
    double denoise_us = 0.0;
    for (size_t s = 0; s < entry->plan.section_count; s++) {
        double us = sumi_section_us(entry, s) * entry->plan.sections[s].repeat;
        if (entry->plan.sections[s].kind == SUMI_SECTION_DENOISE) denoise_us += us;
        else fixed_us += us;
    }
    const double left = sumi_deadline_left(slot) * share / part_runs(job);
    int32_t allowed =
        sumi_deadline_steps(denoise_us * 1e-6 / job->evaluation_count, fixed_us * 1e-6, left > 1e-6 ? left : 1e-6,
                            fewest_steps(job), job->run_steps, (double)job->evaluation_count / job->run_steps);
    if (allowed >= job->run_steps) return step_count;
    // strength runs the same share of fewer steps
    int32_t steps = (int32_t)((int64_t)step_count * allowed / job->run_steps);
    return steps > 1 ? steps : 1;
}

// How many evaluations, this one included, the time that is left is good for.
static int32_t allowed_evaluations(sumi_engine* engine, const sumi_slot* slot, int32_t counter)
{
    const sumi_plan_job* job = &slot->u.plan;
    SUMI_ASSERT(job->part_count > 0 && job->adaption.skipped <= counter);
    SUMI_ASSERT(counter >= 0 && counter < job->evaluation_count);
    const int32_t left = job->evaluation_count - counter, done = counter - job->adaption.skipped;
    const int32_t fewest = fewest_steps(job) > done + 1 ? fewest_steps(job) - done : 1;
    double evaluation_us, rest_us;
    sumi_run_left_from_here(engine, &evaluation_us, &rest_us);
    rest_us += chores_us(engine, job->item_count * sumi_plan_job_output_us(engine, job));
    const double seconds = sumi_deadline_left(slot) * measure_share(engine) / part_runs(job);
    return sumi_deadline_steps(evaluation_us * 1e-6, rest_us * 1e-6, seconds > 1e-6 ? seconds : 1e-6,
                               fewest < left ? fewest : left, left, 1.0);
}

// This evaluation's row for a step from its sigma to another one than the schedule's next, or behind a step that was
// longer.
static void write_row(sumi_plan_job* job, int32_t counter, int32_t next, sumi_solver_row* out_row)
{
    SUMI_ASSERT(counter >= 0 && counter < next && next <= job->evaluation_count);
    const sumi_solver_row* row = &job->rows[counter];
    const float end = next < job->evaluation_count ? job->rows[next].sigma : 0.0f,
                previous = job->adaption.previous_sigma;
    const float sigmas[3] = {previous, row->sigma, end};
    sumi_solver_row rows[2];
    const bool has_previous = previous > 0.0f;
    sumi_solver_rows(job->solver, has_previous ? sigmas : sigmas + 1, has_previous ? 2 : 1, rows);
    *out_row = rows[has_previous];
    out_row->guidance = row->guidance;
    out_row->step = row->step;
}

void sumi_deadline_adapt(sumi_engine* engine, sumi_slot* slot)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    sumi_plan_job* job = &slot->u.plan;
    int32_t counter, left_in_section;
    if (job->deadline_ms == 0 || job->goal != SUMI_GOAL_IMAGES || !can_skip(job->solver)
        || !sumi_run_begins_evaluation(engine, &counter, &left_in_section))
        return;
    if (counter < job->adaption.next) return;
    const int32_t left = job->evaluation_count - counter, allowed = allowed_evaluations(engine, slot, counter);
    SUMI_ASSERT(allowed >= 1 && allowed <= left);
    int32_t stride = (2 * left + allowed) / (2 * allowed); // evenly over what is left; the next step looks again
    // guidance that begins or ends there is another part of the plan
    if (stride > left_in_section) stride = left_in_section;
    SUMI_ASSERT(stride >= 1 && counter + stride <= job->evaluation_count);
    const bool skips = stride > 1;
    if (skips || job->adaption.is_changed) { // a multistep solver's row depends on the step before
        sumi_solver_row row;
        write_row(job, counter, counter + stride, &row);
        engine->runner->functions->write(engine->runner, &job->entry->plan, job->entry->pipeline.solver,
                                         (uint64_t)counter * sizeof row, &row, sizeof row);
        sumi_run_skip(engine, stride - 1);
        job->adaption.skipped += stride - 1;
    }
    job->adaption.next = counter + stride;
    job->adaption.is_changed = skips;
    job->adaption.previous_sigma = job->rows[counter].sigma;
}
