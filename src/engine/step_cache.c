#include "engine/step_cache.h"
#include "base/assert.h"
#include "engine/engine.h"
#include "engine/pump_lock.h"

void sumi_step_cache_begin(sumi_plan_job* job)
{
    job->step_cache = (sumi_step_cache){.section_counter = -1, .whole_evaluation = -1, .earlier_evaluation = -1};
    sumi_reuse_begin(&job->step_cache.reuse, job->step_cache_threshold);
}

// Evaluations of the first and of the last step are always whole.
static bool is_edge(const sumi_plan_job* job, int32_t counter)
{
    const int32_t step = job->rows[counter].step;
    return step == job->rows[0].step || step == job->rows[job->evaluation_count - 1].step;
}

bool sumi_step_cache_choose(sumi_engine* engine, sumi_plan_job* job)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_step_cache* cache = &job->step_cache;
    const sumi_run* run = &engine->runs.current;
    int32_t counter, left_in_section;
    if (job->goal != SUMI_GOAL_IMAGES || !sumi_run_begins_evaluation(engine, &counter, &left_in_section)) return true;
    if (counter < cache->next_evaluation) return true;
    SUMI_ASSERT(counter < job->evaluation_count && !run->entry->plan.sections[run->section].is_alternative);
    if (cache->lacks_change) return false;
    cache->next_evaluation = counter + 1;
    cache->evaluation_count++;
    if (!sumi_plan_has_alternative(&run->entry->plan, run->section)) return true;
    const int32_t section_counter = run->entry->plan.sections[run->section].first_counter;
    if (section_counter != cache->section_counter) {
        sumi_reuse_begin(&cache->reuse, job->step_cache_threshold);
        cache->whole_evaluation = cache->earlier_evaluation = -1;
    }
    cache->section_counter = section_counter;
    const float sigma = job->rows[counter].sigma;
    // The whole evaluation at which a paused job goes on is whole again.
    const bool is_repeated = counter == cache->whole_evaluation;
    if (!is_edge(job, counter) && !is_repeated && sumi_reuse_allows(&cache->reuse, sigma)) {
        sumi_reuse_note_reused(&cache->reuse);
        cache->reused_count++;
        sumi_run_use_alternative(engine);
        return true;
    }
    sumi_reuse_note_whole(&cache->reuse, sigma);
    if (!is_repeated) cache->earlier_evaluation = cache->whole_evaluation;
    cache->whole_evaluation = counter;
    cache->adaptation_before = job->deadline_adaptation;
    cache->lacks_change = true;
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
    SUMI_ASSERT(job->step_cache.lacks_change && job->entry != NULL);
    const sumi_plan* plan = &job->entry->plan;
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
    sumi_reuse_note_change(&job->step_cache.reuse, changed, size);
    job->step_cache.lacks_change = false;
}

sumi_step_cache_resumption sumi_step_cache_resumes_at(const sumi_engine* engine, const sumi_plan_job* job,
                                                      int32_t counter)
{
    const sumi_step_cache* cache = &job->step_cache;
    const sumi_run* run = &engine->runs.current;
    SUMI_ASSERT(!cache->lacks_change && counter >= cache->next_evaluation);
    const sumi_plan* plan = &run->entry->plan;
    if (!sumi_plan_has_alternative(plan, run->section)
        || plan->sections[run->section].first_counter != cache->section_counter)
        return (sumi_step_cache_resumption){.evaluation = counter, .repeated = -1};
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
