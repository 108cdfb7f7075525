#include "jobs/step_cache.h"
#include "base/assert.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "jobs/run.h"
#include "models/pipeline.h"
#include "plan/ops.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include "sampling/reuse.h"
#include "sampling/solver.h"

// Evaluations of the first and of the last step are always whole.
static bool is_edge(const sumi_plan_job* job, int32_t counter)
{
    const int32_t step = job->progress.rows[counter].step;
    return step == job->progress.rows[0].step || step == job->progress.rows[job->progress.evaluation_count - 1].step;
}

// Every evaluation counts for the whole length of its step, also where a step has several: an error moves the points at
// which the others are evaluated too. As a share of the step, predictions for RK4 were 8 to 14 dB too high (bench.md).
static sumi_reuse_candidate candidate_of(const sumi_plan_job* job, int32_t counter)
{
    const sumi_solver_row* rows = job->progress.rows;
    const int32_t count = job->progress.evaluation_count;
    int32_t first = counter, last = counter;
    while (first > 0 && rows[first - 1].step == rows[counter].step) first--;
    while (last + 1 < count && rows[last + 1].step == rows[counter].step) last++;
    // The last row of a step has the sigma at its end.
    const float end = rows[last].blend_sigma, all = rows[0].sigma - rows[count - 1].blend_sigma;
    return (sumi_reuse_candidate){
        .sigma = rows[counter].sigma, .weight = rows[first].sigma - end, .elapsed = (rows[0].sigma - end) / all};
}

static float most_ahead(const sumi_plan_job* job, int32_t counter)
{
    return sumi_pipeline_most_ahead(job->progress.rows[counter].guidance != 0.0f);
}

// ---- Predictions ----------------------------------------------------------------------------------------------------

static bool reuses(const sumi_plan_job* job)
{
    return job->request.goal == SUMI_GOAL_IMAGES && sumi_reuse_rule_is_on(&job->request.reuse);
}

static size_t section_of(const sumi_plan* plan, int32_t counter)
{
    size_t s = 0;
    while (plan->sections[s].kind != SUMI_SECTION_DENOISE || plan->sections[s].is_alternative
           || counter < plan->sections[s].first_counter
           || counter >= plan->sections[s].first_counter + plan->sections[s].repeat) {
        s++;
        SUMI_ASSERT(s < plan->section_count);
    }
    return s;
}

// The newest speed of the job or, before one was measured, that of earlier jobs of the model.
static sumi_reuse_speed speed_of(const sumi_plan_job* job)
{
    const sumi_reuse_speed *own = &job->progress.step_cache.speed, *model = &job->progress.entry->model->reuse_speed;
    return (sumi_reuse_speed){.change = own->change > 0.0 ? own->change : model->change,
                              .error_per_change =
                                  own->error_per_change > 0.0 ? own->error_per_change : model->error_per_change};
}

// Follows the rule over `count` evaluations, spread evenly over those from `begin` on, and returns how many of them are
// reused. `reuse` and section_counter are what holds before the first of them.
static int32_t count_reused(const sumi_plan_job* job, sumi_reuse reuse, int32_t section_counter, int32_t begin,
                            int32_t count)
{
    const sumi_plan* plan = &job->progress.entry->plan;
    const int32_t last_count = job->progress.evaluation_count / job->progress.run_steps; // evaluations of the last step
    const int32_t left = job->progress.evaluation_count - begin;
    const sumi_reuse_speed speed = speed_of(job);
    int32_t reused_count = 0;
    for (int32_t i = 0; i < count; i++) {
        const int32_t counter = begin + (int32_t)((int64_t)i * left / count);
        const size_t section = section_of(plan, counter);
        if (!sumi_plan_has_alternative(plan, section)) continue;
        if (plan->sections[section].first_counter != section_counter) {
            sumi_reuse_forget(&reuse, most_ahead(job, counter));
            section_counter = plan->sections[section].first_counter;
        }
        sumi_reuse_candidate next = candidate_of(job, counter);
        next.weight *= (float)left / (float)count; // steps are as much longer
        if (!is_edge(job, counter) && i < count - last_count && sumi_reuse_allows(&reuse, &next)) {
            sumi_reuse_note_reused(&reuse, &next);
            reused_count++;
            continue;
        }
        sumi_reuse_note_whole(&reuse, next.sigma);
        sumi_reuse_assume(&reuse, speed.change, speed.error_per_change);
    }
    return reused_count;
}

double sumi_step_cache_share_of_all(const sumi_plan_job* job, int32_t count)
{
    SUMI_ASSERT(count >= 1 && count <= job->progress.evaluation_count);
    if (!reuses(job) || sumi_step_cache_lacks_speed(job)) return 0.0;
    sumi_reuse reuse;
    sumi_reuse_begin(&reuse, &job->request.reuse);
    return (double)count_reused(job, reuse, -1, 0, count) / count;
}

double sumi_step_cache_share_after(const sumi_plan_job* job, int32_t counter, int32_t count)
{
    const sumi_step_cache* cache = &job->progress.step_cache;
    SUMI_ASSERT(count >= 0 && count < job->progress.evaluation_count - counter);
    if (!reuses(job) || sumi_step_cache_lacks_speed(job) || count == 0) return 0.0;
    sumi_reuse reuse = cache->reuse;
    // The change of this evaluation will be known when the next one is chosen.
    const sumi_reuse_speed speed = speed_of(job);
    if (cache->lacks_change) sumi_reuse_assume(&reuse, speed.change, speed.error_per_change);
    const int32_t stride = (job->progress.evaluation_count - counter) / (count + 1);
    return (double)count_reused(job, reuse, cache->section_counter, counter + stride, count) / count;
}

bool sumi_step_cache_lacks_speed(const sumi_plan_job* job)
{
    const sumi_reuse_speed speed = speed_of(job);
    return reuses(job) && (speed.change <= 0.0 || (job->request.reuse.db > 0.0f && speed.error_per_change <= 0.0));
}

// ---- A run ----------------------------------------------------------------------------------------------------------

void sumi_step_cache_begin(sumi_engine* engine, sumi_plan_job* job)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && job->progress.entry == engine->runs.current.entry);
    job->progress.step_cache =
        (sumi_step_cache){.section_counter = -1, .whole_evaluation = -1, .earlier_evaluation = -1};
    if (!reuses(job)) return;
    sumi_reuse_begin(&job->progress.step_cache.reuse, &job->request.reuse);
    engine->runs.current.alternative_share = sumi_step_cache_share_of_all(job, job->progress.evaluation_count);
}

void sumi_step_cache_end(const sumi_plan_job* job, sumi_model* model)
{
    const sumi_step_cache* cache = &job->progress.step_cache;
    if (cache->sigma_sum > 0.0) model->reuse_speed.change = cache->change_sum / cache->sigma_sum;
    if (cache->ratio_count > 0) model->reuse_speed.error_per_change = cache->ratio_sum / cache->ratio_count;
}

static void predict_rest(sumi_run* run, const sumi_plan_job* job, int32_t counter)
{
    run->alternative_share = sumi_step_cache_share_after(job, counter, job->progress.evaluation_count - counter - 1);
}

bool sumi_step_cache_choose(sumi_engine* engine, sumi_plan_job* job)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_step_cache* cache = &job->progress.step_cache;
    sumi_run* run = &engine->runs.current;
    int32_t counter, left_in_section;
    if (job->request.goal != SUMI_GOAL_IMAGES || !sumi_run_begins_evaluation(engine, &counter, &left_in_section))
        return true;
    if (counter < cache->next_evaluation) return true;
    SUMI_ASSERT(counter < job->progress.evaluation_count && !run->entry->plan.sections[run->section].is_alternative);
    if (cache->lacks_change) return false;
    cache->next_evaluation = counter + 1;
    cache->evaluation_count++;
    if (!sumi_plan_has_alternative(&run->entry->plan, run->section)) return true;
    const int32_t section_counter = run->entry->plan.sections[run->section].first_counter;
    if (section_counter != cache->section_counter) {
        sumi_reuse_forget(&cache->reuse, most_ahead(job, counter));
        cache->whole_evaluation = cache->earlier_evaluation = -1;
    }
    cache->section_counter = section_counter;
    const sumi_reuse_candidate next = candidate_of(job, counter);
    // The whole evaluation at which a paused job continues is whole again.
    const bool is_repeated = counter == cache->whole_evaluation;
    if (!is_edge(job, counter) && !is_repeated && sumi_reuse_allows(&cache->reuse, &next)) {
        sumi_reuse_note_reused(&cache->reuse, &next);
        cache->reused_count++;
        sumi_run_use_alternative(engine);
        predict_rest(run, job, counter);
        return true;
    }
    cache->is_repeated = is_repeated;
    if (!is_repeated) {
        sumi_reuse_note_whole(&cache->reuse, next.sigma);
        cache->earlier_evaluation = cache->whole_evaluation;
    }
    cache->whole_evaluation = counter;
    cache->adaptation_before = job->progress.deadline_adaptation;
    cache->lacks_change = true;
    predict_rest(run, job, counter);
    return true;
}

static void fill_in_planned(const sumi_plan_job* job, const sumi_slice* planned, sumi_run_slice* slice)
{
    const sumi_plan* plan = &job->progress.entry->plan;
    for (int32_t i = planned->op_begin; i < planned->op_end; i++) {
        const sumi_op* op = &plan->ops[i];
        const bool is_complete = planned->op_end > planned->op_begin + 1 || planned->range_end >= op->range_count;
        if (op->kind != SUMI_OP_RESIDUAL_CHANGE || !is_complete) continue;
        if (op->out.id == job->progress.entry->pipeline.reuse_error.id) slice->reuse_error = op->out;
        else slice->change = op->out;
    }
}

void sumi_step_cache_fill_in(const sumi_plan_job* job, sumi_run_slice* slice)
{
    const sumi_plan* plan = &job->progress.entry->plan;
    if (!sumi_plan_has_alternative(plan, slice->section_index)) return;
    for (int32_t i = 0; i < slice->count; i++) fill_in_planned(job, &plan->slices[slice->index + i], slice);
}

typedef struct measurement {
    double difference, size;
} measurement;

// Adds up the sums of RESIDUAL_CHANGE.
static measurement read_sums(const sumi_engine* engine, const sumi_plan_job* job, sumi_value value)
{
    const sumi_plan* plan = &job->progress.entry->plan;
    const int32_t rows = sumi_plan_rows(plan, value);
    enum { PIECE = 64 }; // rows that are read at once
    float sums[PIECE][2];
    measurement all = {0.0, 0.0};
    for (int32_t row = 0; row < rows; row += PIECE) {
        const int32_t count = rows - row < PIECE ? rows - row : PIECE;
        engine->runner->functions->read(engine->runner, plan, value, (uint64_t)row * sizeof *sums, sums,
                                        (uint64_t)count * sizeof *sums);
        for (int32_t i = 0; i < count; i++) {
            all.difference += (double)sums[i][0];
            all.size += (double)sums[i][1];
        }
    }
    return all;
}

static void read_change(const sumi_engine* engine, sumi_plan_job* job, sumi_value change)
{
    sumi_step_cache* cache = &job->progress.step_cache;
    SUMI_ASSERT(cache->lacks_change && job->progress.entry != NULL);
    cache->lacks_change = false;
    // What was copied from the device has to be read, also if an evaluation was measured before a pause.
    const measurement measured = read_sums(engine, job, change);
    if (cache->is_repeated) return;
    sumi_reuse* reuse = &cache->reuse;
    sumi_reuse_note_change(reuse, measured.difference, measured.size);
    if (reuse->sigma_change <= 0.0f || reuse->speed < 0.0) return;
    cache->speed.change = reuse->speed;
    cache->change_sum += reuse->speed * (double)reuse->sigma_change;
    cache->sigma_sum += (double)reuse->sigma_change;
    if (reuse->ratio <= 0.0) return;
    cache->speed.error_per_change = reuse->ratio;
    cache->ratio_sum += reuse->ratio;
    cache->ratio_count++;
}

void sumi_step_cache_read(const sumi_engine* engine, sumi_plan_job* job, const sumi_run_slice* slice)
{
    if (slice->change.id != 0) read_change(engine, job, slice->change);
    if (slice->reuse_error.id == 0) return;
    sumi_step_cache* cache = &job->progress.step_cache;
    cache->error_is_pending = false;
    const measurement measured = read_sums(engine, job, slice->reuse_error);
    sumi_reuse_note_error(&cache->reuse, measured.difference, measured.size);
}

sumi_step_cache_resumption sumi_step_cache_resumes_at(const sumi_engine* engine, const sumi_plan_job* job,
                                                      int32_t counter)
{
    const sumi_step_cache* cache = &job->progress.step_cache;
    const sumi_run* run = &engine->runs.current;
    SUMI_ASSERT(!cache->lacks_change && counter >= cache->next_evaluation);
    const sumi_plan* plan = &run->entry->plan;
    if (!sumi_plan_has_alternative(plan, run->section)
        || plan->sections[run->section].first_counter != cache->section_counter)
        return (sumi_step_cache_resumption){.evaluation = counter, .repeated = -1};
    // The job has gone on after a pause and has not begun this evaluation again: what is kept is still that of the
    // evaluation before it.
    if (counter == cache->whole_evaluation)
        return (sumi_step_cache_resumption){.evaluation = counter, .repeated = cache->earlier_evaluation};
    const int32_t first = cache->earlier_evaluation >= 0 ? cache->earlier_evaluation : cache->whole_evaluation;
    return (sumi_step_cache_resumption){.evaluation = first > 0 ? cache->whole_evaluation : 0,
                                        .repeated = cache->earlier_evaluation,
                                        .uses_kept = true};
}

// The whole evaluation computes the residuals again. What it measured is known.
sumi_step_cache sumi_step_cache_rewound(const sumi_step_cache* cache)
{
    sumi_step_cache rewound = *cache;
    rewound.next_evaluation = cache->whole_evaluation;
    rewound.evaluation_count -= 1 + cache->reuse.reused_count;
    rewound.reused_count -= cache->reuse.reused_count;
    rewound.reuse.reused_count = 0;
    rewound.reuse.reach = 0.0;
    return rewound;
}
