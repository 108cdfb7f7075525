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

// ---- Predictions ----------------------------------------------------------------------------------------------------

static bool reuses(const sumi_plan_job* job)
{
    return job->request.goal == SUMI_GOAL_IMAGES && job->request.step_cache_threshold > 0.0f;
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

// Follows the rule over `count` evaluations, spread evenly over those from `begin` on, and returns how many of them are
// reused. `reuse` and section_counter are what holds before the first of them.
static int32_t count_reused(const sumi_plan_job* job, sumi_reuse reuse, int32_t section_counter, double speed,
                            int32_t begin, int32_t count)
{
    const sumi_plan* plan = &job->progress.entry->plan;
    const int32_t last_count = job->progress.evaluation_count / job->progress.run_steps; // evaluations of the last step
    int32_t reused_count = 0;
    for (int32_t i = 0; i < count; i++) {
        const int32_t counter = begin + (int32_t)((int64_t)i * (job->progress.evaluation_count - begin) / count);
        const size_t section = section_of(plan, counter);
        if (!sumi_plan_has_alternative(plan, section)) continue;
        if (plan->sections[section].first_counter != section_counter) {
            sumi_reuse_begin(&reuse, job->request.step_cache_threshold);
            section_counter = plan->sections[section].first_counter;
        }
        const float sigma = job->progress.rows[counter].sigma;
        if (!is_edge(job, counter) && i < count - last_count && sumi_reuse_allows(&reuse, sigma)) {
            sumi_reuse_note_reused(&reuse);
            reused_count++;
            continue;
        }
        const bool is_measured = reuse.has_whole;
        sumi_reuse_note_whole(&reuse, sigma);
        if (is_measured) reuse.speed = speed;
    }
    return reused_count;
}

double sumi_step_cache_share_of_all(const sumi_plan_job* job, int32_t count)
{
    SUMI_ASSERT(count >= 1 && count <= job->progress.evaluation_count);
    const double speed = job->progress.entry->model->residual_speed;
    if (!reuses(job) || speed <= 0.0) return 0.0;
    sumi_reuse reuse;
    sumi_reuse_begin(&reuse, job->request.step_cache_threshold);
    return (double)count_reused(job, reuse, -1, speed, 0, count) / count;
}

double sumi_step_cache_share_after(const sumi_plan_job* job, int32_t counter, int32_t count)
{
    const sumi_step_cache* cache = &job->progress.step_cache;
    SUMI_ASSERT(count >= 0 && count < job->progress.evaluation_count - counter);
    if (!reuses(job) || cache->speed <= 0.0 || count == 0) return 0.0;
    sumi_reuse reuse = cache->reuse;
    // The change of this evaluation will be known when the next one is chosen.
    if (cache->lacks_change && reuse.sigma_change > 0.0f) reuse.speed = cache->speed;
    const int32_t stride = (job->progress.evaluation_count - counter) / (count + 1);
    return (double)count_reused(job, reuse, cache->section_counter, cache->speed, counter + stride, count) / count;
}

bool sumi_step_cache_lacks_speed(const sumi_plan_job* job)
{
    return reuses(job) && job->progress.step_cache.speed <= 0.0;
}

// ---- A run ----------------------------------------------------------------------------------------------------------

void sumi_step_cache_begin(sumi_engine* engine, sumi_plan_job* job)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && job->progress.entry == engine->runs.current.entry);
    job->progress.step_cache =
        (sumi_step_cache){.section_counter = -1, .whole_evaluation = -1, .earlier_evaluation = -1};
    if (!reuses(job)) return;
    sumi_reuse_begin(&job->progress.step_cache.reuse, job->request.step_cache_threshold);
    job->progress.step_cache.speed = job->progress.entry->model->residual_speed;
    engine->runs.current.alternative_share = sumi_step_cache_share_of_all(job, job->progress.evaluation_count);
}

void sumi_step_cache_end(const sumi_plan_job* job, sumi_model* model)
{
    const sumi_step_cache* cache = &job->progress.step_cache;
    if (cache->sigma_sum > 0.0) model->residual_speed = cache->change_sum / cache->sigma_sum;
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
        sumi_reuse_begin(&cache->reuse, job->request.step_cache_threshold);
        cache->whole_evaluation = cache->earlier_evaluation = -1;
    }
    cache->section_counter = section_counter;
    const float sigma = job->progress.rows[counter].sigma;
    // The whole evaluation at which a paused job continues is whole again.
    const bool is_repeated = counter == cache->whole_evaluation;
    if (!is_edge(job, counter) && !is_repeated && sumi_reuse_allows(&cache->reuse, sigma)) {
        sumi_reuse_note_reused(&cache->reuse);
        cache->reused_count++;
        sumi_run_use_alternative(engine);
        predict_rest(run, job, counter);
        return true;
    }
    sumi_reuse_note_whole(&cache->reuse, sigma);
    if (!is_repeated) cache->earlier_evaluation = cache->whole_evaluation;
    cache->whole_evaluation = counter;
    cache->adaptation_before = job->progress.deadline_adaptation;
    cache->lacks_change = true;
    predict_rest(run, job, counter);
    return true;
}

sumi_value sumi_step_cache_measured(const sumi_plan* plan, const sumi_slice* slice)
{
    for (int32_t i = slice->op_begin; i < slice->op_end; i++) {
        const sumi_op* op = &plan->ops[i];
        const bool is_complete = slice->op_end > slice->op_begin + 1 || slice->range_end >= op->range_count;
        if (op->kind == SUMI_OP_RESIDUAL_CHANGE && is_complete) return op->out;
    }
    return SUMI_NO_VALUE;
}

void sumi_step_cache_read(const sumi_engine* engine, sumi_plan_job* job, sumi_value change)
{
    SUMI_ASSERT(job->progress.step_cache.lacks_change && job->progress.entry != NULL);
    const sumi_plan* plan = &job->progress.entry->plan;
    const int32_t rows = sumi_plan_rows(plan, change);
    enum { PIECE = 64 }; // rows that are read at once
    float sums[PIECE][2];
    double changed = 0.0, size = 0.0;
    for (int32_t row = 0; row < rows; row += PIECE) {
        const int32_t count = rows - row < PIECE ? rows - row : PIECE;
        engine->runner->functions->read(engine->runner, plan, change, (uint64_t)row * sizeof *sums, sums,
                                        (uint64_t)count * sizeof *sums);
        for (int32_t i = 0; i < count; i++) {
            changed += (double)sums[i][0];
            size += (double)sums[i][1];
        }
    }
    sumi_step_cache* cache = &job->progress.step_cache;
    sumi_reuse_note_change(&cache->reuse, changed, size);
    cache->lacks_change = false;
    if (cache->reuse.sigma_change <= 0.0f || cache->reuse.speed < 0.0) return;
    cache->speed = cache->reuse.speed;
    cache->change_sum += cache->reuse.speed * (double)cache->reuse.sigma_change;
    cache->sigma_sum += (double)cache->reuse.sigma_change;
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

// The whole evaluation computes the residuals again. At the same sigma, its measurement changes nothing.
sumi_step_cache sumi_step_cache_rewound(const sumi_step_cache* cache)
{
    sumi_step_cache rewound = *cache;
    rewound.next_evaluation = cache->whole_evaluation;
    rewound.evaluation_count -= 1 + cache->reuse.reused_count;
    rewound.reused_count -= cache->reuse.reused_count;
    rewound.reuse.reused_count = 0;
    return rewound;
}
