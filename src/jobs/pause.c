#include "jobs/pause.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/result.h"
#include "jobs/engine_state.h"
#include "jobs/job_pictures.h"
#include "jobs/log.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "jobs/run.h"
#include "jobs/step_cache.h"
#include "models/pipeline.h"
#include "plan/async.h"
#include "plan/ops.h"
#include "plan/plan.h"
#include "plan/runner.h"

#define RESTORED_VALUES ((size_t)64 * 1024) // values per piece: some dozen microseconds

static size_t values_of(const sumi_plan_job* job)
{
    return (size_t)job->progress.batch_count * (size_t)job->request.latent_channels * (size_t)job->request.latent_height
         * (size_t)job->request.latent_width;
}

typedef enum state_age { PRESENT = -1, BEFORE_LAST_WHOLE = 0, BEFORE_EARLIER_WHOLE = 1 } state_age;

// Lists the values of the solver's state, the present ones or those that were kept, in the order in which saved_state
// holds them. Returns how many there are.
static int32_t states_of(const sumi_plan_job* job, state_age age, sumi_value* out)
{
    const sumi_pipeline* pipeline = &job->progress.entry->pipeline;
    const sumi_value values[3] = {age == PRESENT ? pipeline->x : pipeline->kept_x[age],
                                  age == PRESENT ? pipeline->base : pipeline->kept_base[age],
                                  age == PRESENT ? pipeline->history : pipeline->kept_history[age]};
    int32_t count = 0;
    for (int32_t i = 0; i < 3; i++) {
        if (values[i].id != 0) out[count++] = values[i];
    }
    return count;
}

void sumi_plan_job_free_saved_state(sumi_engine* engine, sumi_plan_job* job)
{
    sumi_job_saved* saved = &job->saved;
    sumi_free(&engine->heap, saved->state);
    saved->state = NULL;
    saved->evaluation = 0;
    saved->is_pending = saved->repeats = false;
    saved->repeated_evaluation = -1;
    saved->restored_values = 0;
}

static void enter_first_phase(sumi_plan_job* job)
{
    sumi_job_progress* progress = &job->progress;
    progress->phase = SUMI_PHASE_TEXT; // the workspace will hold the tokens of other jobs
    progress->text_encoder = 0;
    progress->cursor = progress->row = progress->mask_rows = progress->pieces_in_flight = 0;
    progress->drawn_values = progress->moved_values = job->saved.restored_values = 0;
    progress->resize = (sumi_resize){0};
    progress->is_preparing_depth = false;
    progress->preview_is_pending = job->saved.repeats = false;
}

static bool is_before_denoising(const sumi_run* run)
{
    const sumi_plan* plan = &run->entry->plan;
    for (size_t s = 0; s <= run->section; s++) {
        if (plan->sections[s].kind == SUMI_SECTION_DENOISE) return false;
    }
    return true;
}

// Saves the state before this evaluation, or with a step cache before the last whole ones, from which the evaluations
// after them follow. The CPU does it at once; on a device the first call starts the copies and the second one reads
// them. If memory runs out, the job will start again.
static sumi_result save_states(sumi_engine* engine, sumi_plan_job* job, int32_t counter, bool* out_done,
                               sumi_error* error)
{
    sumi_job_saved* saved = &job->saved;
    const sumi_step_cache_resumption at = sumi_step_cache_resumes_at(engine, job, counter);
    sumi_value states[6];
    int32_t count = states_of(job, at.uses_kept ? BEFORE_LAST_WHOLE : PRESENT, states);
    if (at.repeated >= 0)
        count += states_of(job, at.uses_kept ? BEFORE_EARLIER_WHOLE : BEFORE_LAST_WHOLE, states + count);
    const size_t values = values_of(job);
    *out_done = true;
    if (at.evaluation == 0) return SUMI_OK;
    if (!saved->is_pending) {
        sumi_plan_job_free_saved_state(engine, job);
        saved->state = sumi_alloc_array(&engine->heap, (size_t)count * values, sizeof *saved->state);
        if (saved->state == NULL) {
            sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OUT_OF_HOST_MEMORY,
                           "there is no memory to keep what a paused job has done: it will start again");
            return SUMI_OK;
        }
        for (int32_t i = 0; i < count; i++) {
            SUMI_TRY(engine->runner->async->start_read(engine->runner, &job->progress.entry->plan, states[i], error));
            saved->is_pending = engine->runner->traits.has_device;
        }
        *out_done = !saved->is_pending;
        if (saved->is_pending) return SUMI_OK;
    }
    for (int32_t i = 0; i < count; i++)
        engine->runner->functions->read(engine->runner, &job->progress.entry->plan, states[i], 0,
                                        saved->state + (size_t)i * values, values * sizeof *saved->state);
    saved->is_pending = false;
    saved->evaluation = at.evaluation;
    saved->repeated_evaluation = at.repeated;
    saved->step_cache = at.uses_kept ? sumi_step_cache_rewound(&job->progress.step_cache) : job->progress.step_cache;
    saved->deadline_adaptation =
        at.uses_kept ? job->progress.step_cache.adaptation_before : job->progress.deadline_adaptation;
    return engine->runner->async->health(engine->runner, error);
}

sumi_result sumi_plan_job_save(sumi_engine* engine, sumi_plan_job* job, sumi_yield* out, sumi_error* error)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && job == &engine->jobs.running->u.plan_job);
    const sumi_run* run = &engine->runs.current;
    *out = SUMI_YIELD_NOT_NOW;
    if (job->progress.phase == SUMI_PHASE_OUTPUT || (job->progress.phase == SUMI_PHASE_RUN && run->is_submitted))
        return SUMI_OK;
    if (job->saved.repeats) { // what was saved before still holds
        *out = run->pending_count > 0 ? SUMI_YIELD_PENDING : SUMI_YIELD_READY;
        if (run->pending_count == 0) enter_first_phase(job);
        return SUMI_OK;
    }
    int32_t counter = 0, left_in_section;
    bool is_over = true; // nothing was done yet that could be saved
    if (job->progress.phase == SUMI_PHASE_RUN && job->request.goal == SUMI_GOAL_IMAGES && !is_before_denoising(run)) {
        // In the middle of an evaluation, or after the deadline has decided the next one, the job continues until the
        // next evaluation begins.
        if (!sumi_run_begins_evaluation(engine, &counter, &left_in_section)
            || job->progress.deadline_adaptation.next_evaluation > counter)
            return SUMI_OK;
        if (counter > 0 && (run->pending_count > 0 || job->progress.preview_is_pending)) {
            *out = SUMI_YIELD_PENDING;
            return SUMI_OK;
        }
        if (counter > 0) SUMI_TRY(save_states(engine, job, counter, &is_over, error));
    }
    *out = is_over ? SUMI_YIELD_READY : SUMI_YIELD_PENDING;
    if (is_over) enter_first_phase(job);
    return SUMI_OK;
}

bool sumi_plan_job_restores(const sumi_engine* engine, const sumi_plan_job* job)
{
    int32_t counter, left_in_section;
    return job->saved.evaluation > 0 && sumi_run_begins_evaluation(engine, &counter, &left_in_section)
        && (job->saved.repeats ? counter > job->saved.repeated_evaluation : counter == 0);
}

// First the state before the evaluation that is repeated, if there is one, and after it that before the saved one.
void sumi_plan_job_restore(sumi_engine* engine, sumi_plan_job* job)
{
    sumi_job_saved* saved = &job->saved;
    SUMI_ASSERT(sumi_plan_job_restores(engine, job) && engine->runs.current.pending_count == 0);
    sumi_value states[3];
    const size_t values = values_of(job), total = (size_t)states_of(job, PRESENT, states) * values,
                 offset = saved->restored_values % values;
    const bool begins_repeating = saved->repeated_evaluation >= 0 && !saved->repeats;
    const float* from = saved->state + (begins_repeating ? total : 0) + saved->restored_values;
    const size_t piece = values - offset < RESTORED_VALUES ? values - offset : RESTORED_VALUES;
    engine->runner->functions->write(engine->runner, &job->progress.entry->plan,
                                     states[saved->restored_values / values], offset * sizeof *from, from,
                                     piece * sizeof *from);
    saved->restored_values += piece;
    if (saved->restored_values < total) return;
    saved->restored_values = 0;
    sumi_run_jump(engine, begins_repeating ? saved->repeated_evaluation : saved->evaluation);
    saved->repeats = begins_repeating;
    if (begins_repeating) return;
    job->progress.deadline_adaptation = saved->deadline_adaptation;
    job->progress.step_cache = saved->step_cache;
    sumi_plan_job_free_saved_state(engine, job);
}
