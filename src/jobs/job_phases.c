#include "jobs/job_phases.h"
#include "base/assert.h"
#include "base/platform.h"
#include "base/result.h"
#include "jobs/buffers.h"
#include "jobs/deadline.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_inputs.h"
#include "jobs/job_memory.h"
#include "jobs/job_outputs.h"
#include "jobs/job_request.h"
#include "jobs/job_slices.h"
#include "jobs/load_kernels.h"
#include "jobs/log.h"
#include "jobs/pause.h"
#include "jobs/pieces.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "jobs/plan_key.h"
#include "jobs/prompt.h"
#include "jobs/run.h"
#include "jobs/step_cache.h"
#include "models/pipeline.h"
#include "models/prompt_reader.h"
#include "pacing/frame_limits.h"
#include "pacing/shortage_limit.h"
#include "plan/async.h"
#include "plan/runner.h"
#include <stdio.h>

// Of one turn of phase TEXT: 0.1 to 0.2 ms. Most prompts take a tenth of it.
#define TEXT_WORK 65536u

// Whether the plan's slices should be grouped again for this call.
static bool lacks_groups(const sumi_engine* engine, const sumi_plan_entry* entry)
{
    return !sumi_frame_limits_are_paced(&engine->frame) && sumi_plan_entry_needs_grouping(entry);
}

// Finds or writes the plan, for fewer steps if the deadline requires it.
static sumi_result make_plan(sumi_engine* engine, sumi_job_slot* slot, sumi_error* error)
{
    sumi_plan_job* job = &slot->u.plan_job;
    sumi_job_progress* progress = &job->progress;
    SUMI_ASSERT(slot == engine->jobs.running && progress->batch_begin >= 0);
    const sumi_planning planning = {.workspace = &engine->workspace, .model = slot->model, .job = job};
    sumi_plan_request request;
    if (!job->shortage.has_reviewed && engine->jobs.draining == NULL) sumi_limit_review(engine);
    job->shortage.has_reviewed = true;
    engine->runner->functions->set_memory_limit(engine->runner, sumi_engine_memory_limit(engine));
    // The number of steps is decided with the first batch, and not again when a paused job continues.
    const bool is_new = progress->batch_begin == 0 && job->saved.evaluation == 0;
    if (is_new) progress->decided_steps = job->request.step_count;
    SUMI_TRY(sumi_plan_job_request(&planning, progress->decided_steps, &request, error));
    SUMI_TRY(sumi_plan_get(engine, &request, &progress->entry, error));
    if (lacks_groups(engine, progress->entry) && engine->jobs.draining == NULL)
        sumi_plan_entry_regroup(progress->entry);
    if (job->request.deadline_ms > 0 && is_new) {
        int32_t steps = sumi_deadline_step_count(engine, slot, job->request.step_count);
        if (steps < job->request.step_count) {
            char text[128];
            snprintf(text, sizeof text, "deadline of %u ms: %d of %d steps", (unsigned)job->request.deadline_ms,
                     (int)steps, (int)job->request.step_count);
            sumi_log_write(engine, SUMI_LOG_INFO, SUMI_OK, text);
            progress->decided_steps = steps;
            SUMI_TRY(sumi_plan_job_request(&planning, steps, &request, error));
            SUMI_TRY(sumi_plan_get(engine, &request, &progress->entry, error));
        }
    }
    return SUMI_OK;
}

static sumi_result reserve_memory(sumi_engine* engine, sumi_job_slot* slot, sumi_error* error)
{
    const sumi_plan_job* job = &slot->u.plan_job;
    SUMI_ASSERT(job->progress.entry != NULL);
    SUMI_TRY(sumi_plan_job_reserve_products(engine, slot, error));
    SUMI_TRY(sumi_engine_reserve(engine, job->progress.entry, error));
    sumi_probe_begin(job->progress.entry);
    slot->live.step_count = job->request.goal == SUMI_GOAL_IMAGES ? job->progress.run_steps : 0;
    slot->live.compiling_since_ns = 0; // the job may have been paused meanwhile
    return SUMI_OK;
}

// Whether the driver compiles kernels. The first time the log says why the image has to wait.
static bool note_compiling(sumi_engine* engine, sumi_job_slot* slot)
{
    const int32_t count = engine->runner->functions->compiling(engine->runner, &slot->live.compiled);
    slot->live.compile_count = count;
    if (count == 0 && slot->live.compiling_since_ns == 0) return false;
    const uint64_t now_ns = sumi_clock_ns();
    if (slot->live.compiling_since_ns != 0)
        slot->stage_seconds[SUMI_STAGE_COMPILE] += 1e-9 * (double)(now_ns - slot->live.compiling_since_ns);
    slot->live.compiling_since_ns = count > 0 ? now_ns : 0;
    if (count == 0 || engine->kernels.has_told_compiling) return count > 0;
    engine->kernels.has_told_compiling = true;
    char text[200];
    snprintf(text, sizeof text,
             "the driver compiles %d files of kernels for this GPU, for which the library has no machine code: this "
             "happens once, and again after an update of the driver",
             (int)count);
    sumi_log_write(engine, SUMI_LOG_INFO, SUMI_OK, text);
    return true;
}

// Does the next piece of copying weights and making graphs; on the CPU, of finding out how fast its ops are.
// After the last piece the run begins.
static sumi_result prepare_device(sumi_engine* engine, sumi_job_slot* slot, sumi_turn* turn, sumi_error* error)
{
    const sumi_runner_functions* runner = engine->runner->functions;
    sumi_plan_entry* entry = slot->u.plan_job.progress.entry;
    SUMI_ASSERT(slot == engine->jobs.running && entry != NULL);
    const uint32_t budget_us = sumi_frame_limits_piece_us(&engine->frame, engine->desc.max_slice_us);
    float progress = 0.0f;
    runner->pace(engine->runner, sumi_frame_limits_are_paced(&engine->frame));
    const sumi_result result =
        runner->prepare(engine->runner, &entry->plan, budget_us, &turn->ends_phase, &progress, error);
    sumi_limit_note(engine, result);
    if (result != SUMI_OK) return result;
    slot->u.plan_job.progress.has_prepared = slot->u.plan_job.progress.has_prepared || !turn->ends_phase;
    if (note_compiling(engine, slot)) {
        turn->stage = SUMI_STAGE_COMPILE;
        turn->end = SUMI_TURN_WAITS;
        return SUMI_OK;
    }
    if (turn->ends_phase) SUMI_TRY(sumi_probe_run(engine, entry, &turn->ends_phase, error));
    if (!turn->ends_phase) return SUMI_OK;
    if (slot->u.plan_job.request.goal == SUMI_GOAL_IMAGES) sumi_limit_confirm(engine);
    sumi_run_begin(engine, entry);
    sumi_deadline_begin(engine, slot);
    sumi_step_cache_begin(engine, &slot->u.plan_job);
    return SUMI_OK;
}

// Called when a batch has ended. If items are left, sets up the next batch, returns to phase PLAN and returns true.
static bool begin_next_batch(sumi_engine* engine, sumi_plan_job* job)
{
    sumi_job_progress* progress = &job->progress;
    SUMI_ASSERT(progress->batch_begin + progress->batch_count <= job->request.item_count);
    for (int32_t i = 0; i < progress->batch_count; i++) {
        sumi_job_item* item = &job->request.items[progress->batch_begin + i];
        item->step_count = progress->run_steps - progress->deadline_adaptation.skipped_count;
        item->evaluation_count = progress->step_cache.evaluation_count;
        item->reused_count = progress->step_cache.reused_count;
        item->predicted_db =
            sumi_reuse_rule_is_on(&job->request.reuse) ? sumi_reuse_db(&progress->step_cache.reuse) : 0.0f;
    }
    progress->batch_begin += progress->batch_count;
    const int32_t remaining_count = job->request.item_count - progress->batch_begin;
    if (remaining_count <= 0) return false;
    if (progress->batch_count > remaining_count) progress->batch_count = remaining_count;
    engine->runs.current = (sumi_run){.entry = NULL}; // the plan cache may now drop the batch's plan
    progress->entry = NULL;
    sumi_plan_job_enter(job, SUMI_PHASE_PLAN);
    return true;
}

// Whether the job may take its plan while another job drains: the plan is in the cache, and the device has everything
// that the plan needs.
static bool can_follow(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && engine->jobs.draining != NULL);
    sumi_plan_job* job = &slot->u.plan_job;
    const sumi_planning planning = {.workspace = &engine->workspace, .model = slot->model, .job = job};
    sumi_plan_request request;
    sumi_error none = {0};
    // With a deadline the job may need another plan, for fewer steps.
    if (job->request.deadline_ms > 0 || !sumi_run_is_only_draining(engine)) return false;
    if (sumi_plan_job_request(&planning, job->request.step_count, &request, &none) != SUMI_OK) return false;
    const sumi_plan_entry* entry = sumi_plan_find(engine, &request);
    if (entry == NULL || lacks_groups(engine, entry)) return false;
    const bool is_limited = engine->shortage.bytes != 0 && (entry->need.streamed_bytes > 0 || entry->tile_latent > 0);
    // The plan streams weights or tiles the VAE because of a limit. The job waits until nothing runs, and then checks
    // whether the device has more memory again.
    if (is_limited && !job->shortage.has_reviewed) return false;
    // The call may have a budget where the last one had none, or none where it had one, and then the plan has other
    // graphs, which are made while nothing runs.
    engine->runner->functions->pace(engine->runner, sumi_frame_limits_are_paced(&engine->frame));
    return engine->runner->functions->is_ready(engine->runner, &entry->plan);
}

// Logs a warning if a text was cut off. Called when the tokens of all the job's texts are known.
static void log_cut_tokens(sumi_engine* engine, sumi_job_slot* slot)
{
    const sumi_plan_job* job = &slot->u.plan_job;
    const int32_t previous_cut_tokens = slot->live.cut_tokens;
    for (int32_t i = 0; i < job->request.prompt_count; i++) {
        if (job->request.prompts[i].cut_tokens > slot->live.cut_tokens)
            slot->live.cut_tokens = job->request.prompts[i].cut_tokens;
    }
    if (slot->live.cut_tokens == previous_cut_tokens) return;
    char text[160];
    snprintf(text, sizeof text,
             "a text is %d%s tokens longer than the model reads: its end is cut off; make it shorter",
             (int)slot->live.cut_tokens, slot->live.cut_tokens < SUMI_MAX_CUT_TOKENS ? "" : " or more");
    sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
}

sumi_result sumi_plan_job_advance(sumi_engine* engine, sumi_job_slot* slot, sumi_turn* turn, sumi_error* error)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && slot->status.state == SUMI_JOB_RUNNING);
    sumi_plan_job* job = &slot->u.plan_job;
    sumi_job_progress* progress = &job->progress;
    const sumi_planning planning = {.workspace = &engine->workspace, .model = slot->model, .job = job};
    bool is_over = false;
    sumi_result result;
    sumi_yield yield = SUMI_YIELD_NOT_NOW;
    turn->stage = SUMI_STAGE_PREPARE;
    if ((slot->must_yield || job->saved.is_pending) && slot == engine->jobs.running)
        SUMI_TRY(sumi_plan_job_save(engine, job, &yield, error));
    if (yield == SUMI_YIELD_READY) {
        turn->end = SUMI_TURN_YIELDS;
        return SUMI_OK;
    }
    switch (progress->phase) {
    case SUMI_PHASE_TEXT:
        if (progress->cursor < job->request.prompt_count) {
            SUMI_TRY(sumi_plan_job_tokenise(&planning, progress->cursor, TEXT_WORK, &is_over, error));
            if (!is_over) return SUMI_OK;
        }
        if (++progress->cursor < job->request.prompt_count) return SUMI_OK;
        log_cut_tokens(engine, slot);
        sumi_plan_job_enter(job, SUMI_PHASE_PLAN);
        return SUMI_OK;
    case SUMI_PHASE_PLAN:
        // Slices of a job that drains or was cancelled may be in flight. Until they end, this job must not change the
        // arena, weights or plans that they use.
        if (engine->jobs.draining != NULL ? !can_follow(engine, slot) : !sumi_run_is_idle(engine)) {
            turn->end = SUMI_TURN_WAITS;
            return SUMI_OK;
        }
        // Each of the two pieces takes a millisecond or two.
        result = progress->cursor == 0 ? make_plan(engine, slot, error) : reserve_memory(engine, slot, error);
        if (result != SUMI_OK) return sumi_plan_job_tries_again(engine, job, result, error) ? SUMI_OK : result;
        if (progress->cursor++ == 0) return SUMI_OK;
        sumi_plan_job_enter(job, SUMI_PHASE_PREPARE_DEVICE);
        return SUMI_OK;
    case SUMI_PHASE_PREPARE_DEVICE:
        result = prepare_device(engine, slot, turn, error);
        if (result != SUMI_OK) return sumi_plan_job_tries_again(engine, job, result, error) ? SUMI_OK : result;
        if (turn->ends_phase) sumi_plan_job_enter(job, SUMI_PHASE_INPUT);
        return SUMI_OK;
    case SUMI_PHASE_INPUT:
        SUMI_TRY(sumi_plan_job_write_input(engine, slot, &is_over, error));
        if (is_over) sumi_plan_job_enter(job, SUMI_PHASE_RUN);
        return SUMI_OK;
    case SUMI_PHASE_RUN:
        SUMI_TRY(sumi_plan_job_run_one(engine, slot, yield != SUMI_YIELD_PENDING, turn, error));
        if (turn->ends_phase) {
            progress->is_publishing = false;
            sumi_plan_job_enter(job, SUMI_PHASE_OUTPUT);
        }
        return SUMI_OK;
    case SUMI_PHASE_OUTPUT:
        turn->stage = SUMI_STAGE_TRANSFER; // the copies that follow the last slice have ended too
        SUMI_TRY(sumi_plan_job_read_output(engine, slot, job, &is_over, error));
        // Reads from the runner report no failure, so the device is checked here.
        SUMI_TRY(engine->runner->async->health(engine->runner, error));
        if (is_over && job->request.goal == SUMI_GOAL_IMAGES) {
            sumi_deadline_end(engine, slot);
            sumi_step_cache_end(job, slot->model);
        }
        if (is_over && (job->request.goal != SUMI_GOAL_IMAGES || !begin_next_batch(engine, job)))
            turn->end = SUMI_TURN_DONE;
        return SUMI_OK;
    }
    return sumi_fail(error, SUMI_INTERNAL, "a job is in phase %d", (int)progress->phase);
}

bool sumi_plan_job_works_next(const sumi_plan_job* job)
{
    return job->progress.phase != SUMI_PHASE_TEXT || job->progress.cursor >= job->request.prompt_count
        || job->request.prompts[job->progress.cursor].text != NULL;
}

double sumi_plan_job_predict(const sumi_engine* engine, const sumi_job_slot* slot)
{
    switch (slot->u.plan_job.progress.phase) {
    case SUMI_PHASE_TEXT: return engine->overhead_us[SUMI_OVERHEAD_TEXT];
    case SUMI_PHASE_PLAN: return engine->overhead_us[SUMI_OVERHEAD_PLAN];
    case SUMI_PHASE_PREPARE_DEVICE: return engine->overhead_us[SUMI_OVERHEAD_PREPARE_DEVICE];
    case SUMI_PHASE_INPUT: return engine->overhead_us[SUMI_OVERHEAD_INPUT];
    case SUMI_PHASE_OUTPUT: return engine->overhead_us[SUMI_OVERHEAD_OUTPUT];
    default:
        return sumi_plan_job_draws_next(engine, slot) ? engine->overhead_us[SUMI_OVERHEAD_NOISE]
                                                      : sumi_run_predict_us(engine);
    }
}

void sumi_plan_job_stop(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && (slot == engine->jobs.running || slot == engine->jobs.draining));
    if (slot == engine->jobs.running) sumi_plan_job_end_reading(&engine->workspace, &slot->u.plan_job);
    // After a job's end the device must not write to memory of the host program. This blocks until its copies have
    // ended.
    if (slot->u.plan_job.progress.is_publishing) engine->runner->async->wait_all(engine->runner);
    slot->u.plan_job.progress.is_publishing = false;
    if (slot == engine->jobs.draining) {
        engine->runs.draining.entry = NULL; // slices still in flight stay in runs.draining until they are reported
    } else {
        engine->runs.current = (sumi_run){.entry = NULL};
    }
    slot->u.plan_job.progress.entry = NULL;
}

void sumi_plan_job_drop(sumi_engine* engine, sumi_job_slot* slot)
{
    sumi_plan_job* job = &slot->u.plan_job;
    for (int32_t i = 0; job->request.items != NULL && i < job->request.item_count; i++) {
        if (job->request.items[i].picture != NULL) sumi_picture_release(engine, job->request.items[i].picture->handle);
        job->request.items[i].picture = NULL;
    }
    sumi_plan_job_mark_externals(job, false);
    sumi_plan_job_free_saved_state(engine, job);
    sumi_plan_job_free_prompts(job);
    sumi_prompt_free(job->products.prompt);
    job->products.prompt = NULL;
}
