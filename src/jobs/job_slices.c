// Phase RUN. What happens to the slices of a job:
//
//   sumi_run_next (looks) -> sumi_run_submit -> in flight -> sumi_run_collect -> update_job: progress, previews, profile
//
// A job drains when all its slices were submitted and the last ones are still in flight; the next job may then begin.
#include "jobs/job_slices.h"
#include "base/assert.h"
#include "base/platform.h"
#include "base/result.h"
#include "jobs/deadline.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_inputs.h"
#include "jobs/job_outputs.h"
#include "jobs/job_reports.h"
#include "jobs/pause.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "jobs/run.h"
#include "jobs/step_cache.h"
#include "models/pipeline.h"
#include "pacing/frame_limits.h"
#include "plan/async.h"
#include "plan/ops.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include "sampling/solver.h"

// Fills in which denoising step a slice belongs to, whether it ends the step, and what is read after it. This
// happens before the slice is submitted: when it ends, the tables in the workspace may be those of the next job.
static void fill_in_denoising_step(const sumi_plan_job* job, sumi_run_slice* slice)
{
    slice->denoising_step = -1;
    if (slice->section != SUMI_SECTION_DENOISE) return;
    const int32_t evaluation = slice->counter, denoising_step = job->progress.rows[evaluation].step;
    SUMI_ASSERT(evaluation >= 0 && evaluation < job->progress.evaluation_count && denoising_step >= 0
                && denoising_step < job->progress.run_steps);
    slice->denoising_step = denoising_step;
    sumi_step_cache_fill_in(job, slice);
    if (!slice->ends_iteration || job->saved.repeats) return; // of the section that repeats: one evaluation
    // An evaluation does not end the step if others of the same step follow.
    if (evaluation + 1 < job->progress.evaluation_count && job->progress.rows[evaluation + 1].step == denoising_step)
        return;
    slice->ends_step = true;
    // A preview follows if a multiple of preview_every lies among the steps that end here, those left out included.
    slice->has_preview = job->request.preview_every > 0
                      && (denoising_step + 1 + slice->skip_count) / job->request.preview_every
                             > denoising_step / job->request.preview_every;
}

static sumi_run* run_of(sumi_engine* engine, const sumi_job_slot* slot)
{
    return slot == engine->jobs.draining ? &engine->runs.draining : &engine->runs.current;
}

static void update_progress(const sumi_engine* engine, sumi_job_slot* slot, const sumi_run* run)
{
    const sumi_plan_job* job = &slot->u.plan_job;
    // Progress over all batches: batch_share is this batch's share of the items, later_share that of the batches after
    // it.
    // Prompt jobs have no items: item_count is 0. 0.99 leaves the last hundredth to the outputs, and + 1 us keeps the
    // quotient finite. The pump publishes the progress, and never a smaller one than before (pump.c).
    const double remaining_us = sumi_run_remaining_us(run), done_us = run->done_us + run->cursor.believed_us,
                 item_count = job->request.item_count > 0 ? job->request.item_count : 1;
    const double batch_share = job->progress.batch_count > 0 ? job->progress.batch_count / item_count : 1.0,
                 later_share = 1.0 - batch_share - job->progress.batch_begin / item_count;
    SUMI_ASSERT(batch_share > 0.0 && batch_share <= 1.0 && remaining_us >= 0.0);
    slot->live.progress =
        (float)(job->progress.batch_begin / item_count + batch_share * 0.99 * done_us / (done_us + remaining_us + 1.0));
    slot->live.seconds_left = (float)((remaining_us + (remaining_us + done_us) * later_share / batch_share
                                       + job->request.item_count * sumi_plan_job_output_us(engine, job))
                                      * 1e-6);
    const double until_deadline = job->request.deadline_ms > 0 ? sumi_deadline_remaining_seconds(slot) : 0.0;
    // The job will leave out steps to end before its deadline.
    if (until_deadline > 0.0 && until_deadline < slot->live.seconds_left)
        slot->live.seconds_left = (float)until_deadline;
}

// Updates the job after a slice has ended: profile, step, preview, progress, time left.
static sumi_result update_job(sumi_engine* engine, sumi_job_slot* slot, const sumi_run* run,
                              const sumi_run_slice* slice, sumi_error* error)
{
    sumi_plan_job* job = &slot->u.plan_job;
    if (job->request.profiles && slice->op != NULL) SUMI_TRY(sumi_plan_job_note_profile(engine, slot, slice, error));
    if (slice->ends_step) slot->live.step = slice->denoising_step + 1 + slice->skip_count;
    sumi_step_cache_read(engine, job, slice);
    if (slice->has_preview) {
        SUMI_TRY(sumi_plan_job_publish_preview(engine, slot, error));
        job->progress.preview_is_pending = false;
    }
    update_progress(engine, slot, run);
    return SUMI_OK;
}

// Collects all slices that have ended.
static sumi_result collect_slices(sumi_engine* engine, sumi_job_slot* slot, sumi_turn* turn, sumi_error* error)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_run* run = run_of(engine, slot);
    sumi_run_slice slice;
    sumi_run_begin_collecting(engine);
    while (sumi_run_collect(engine, run, &slice)) {
        turn->end = SUMI_TURN_MORE;
        turn->stage = sumi_stage_of_section(slice.section);
        if (engine->runner->traits.has_device) {
            slot->device_seconds += slice.us * 1e-6;
            sumi_deadline_note(engine, slice.unwaited_us);
            slot->live.device_us += slice.us;
            slot->stage_seconds[turn->stage] += slice.us * 1e-6;
            sumi_trace_slice(engine, slot, &slice);
        }
        SUMI_TRY(update_job(engine, slot, run, &slice, error));
        if (slice.ends_run) turn->ends_phase = true;
    }
    return SUMI_OK;
}

// On the CPU, after a piece of a slice.
static void note_piece(sumi_engine* engine, sumi_job_slot* slot, const sumi_run_slice* slice)
{
    slot->device_seconds += slice->piece_us * 1e-6;
    sumi_deadline_note(engine, slice->piece_believed_us);
    slot->live.trace_name = sumi_run_slice_name(slice);
    slot->live.trace_step = slice->denoising_step;
    if (!slice->is_submitted) update_progress(engine, slot, &engine->runs.current);
}

// Submits a slice, and the copies to host memory that follow it: of the change that it has measured, of a preview, and
// after the last slice of the products.
static sumi_result submit_slice(sumi_engine* engine, sumi_job_slot* slot, sumi_run_slice* slice, sumi_error* error)
{
    sumi_plan_job* job = &slot->u.plan_job;
    SUMI_ASSERT(!job->progress.preview_is_pending || !slice->has_preview);
    SUMI_TRY(sumi_run_submit(engine, slice, error));
    if (!engine->runner->traits.has_device) note_piece(engine, slot, slice);
    if (!slice->is_submitted) return SUMI_OK;
    SUMI_TRY(sumi_plan_job_fetch_value(engine, job, slice->change, error));
    SUMI_TRY(sumi_plan_job_fetch_value(engine, job, slice->reuse_error, error));
    if (slice->reuse_error.id != 0) job->progress.step_cache.error_is_pending = true;
    if (slice->has_preview) {
        SUMI_TRY(sumi_plan_job_fetch_value(engine, job, job->progress.entry->pipeline.preview, error));
        job->progress.preview_is_pending = true;
    }
    if (!slice->ends_run) return SUMI_OK;
    if (job->request.goal == SUMI_GOAL_IMAGES) SUMI_TRY(sumi_plan_job_publish_pictures(engine, job, error));
    // Submitted last, so that publications have ended when these copies have.
    return sumi_plan_job_fetch_products(engine, job, error);
}

// Whether noise of the batch is still to be drawn. It is drawn while the device works on the sections before the first
// one that reads noise.
static bool lacks_noise(const sumi_plan_job* job)
{
    return sumi_plan_job_noise_values(job) > 0 && job->progress.cursor < job->progress.batch_count;
}

// The most pieces of noise that are written while slices are in flight. Writes wait in the runner's ring buffer for
// inputs until earlier slices have ended; a write that finds the ring buffer full would block.
#define MAX_PIECES_IN_FLIGHT 16

bool sumi_plan_job_draws_next(const sumi_engine* engine, const sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const sumi_plan_job* job = &slot->u.plan_job;
    const sumi_run* run = &engine->runs.current;
    if (job->progress.phase != SUMI_PHASE_RUN || slot != engine->jobs.running || !lacks_noise(job)) return false;
    const bool is_busy = run->pending_count + engine->runs.draining.pending_count > 0;
    if (is_busy && job->progress.pieces_in_flight >= MAX_PIECES_IN_FLIGHT) return false;
    // Now, if the next slice needs the noise, or if no slice can be submitted anyway.
    return run->section >= run->entry->noise_section || !sumi_run_can_submit(engine);
}

// Draws a piece of noise on this thread, usually while slices are in flight.
static sumi_result draw_noise(sumi_engine* engine, sumi_job_slot* slot, sumi_error* error)
{
    sumi_plan_job* job = &slot->u.plan_job;
    SUMI_ASSERT(lacks_noise(job));
    bool is_over = false;
    const uint64_t begin = sumi_clock_ns();
    const bool is_busy = engine->runs.current.pending_count + engine->runs.draining.pending_count > 0;
    job->progress.pieces_in_flight = is_busy ? job->progress.pieces_in_flight + 1 : 0;
    SUMI_TRY(sumi_plan_job_write_noise(engine, job, &is_over, error));
    const double us = (double)(sumi_clock_ns() - begin) * 1e-3;
    engine->overhead_us[SUMI_OVERHEAD_NOISE] = 0.5 * (engine->overhead_us[SUMI_OVERHEAD_NOISE] + us);
    // With a device (device_us is then not negative), only device time is counted for this turn of the pump, so the
    // time of this thread is added here. On the CPU the time of the whole turn is counted (pump.c).
    if (slot->live.device_us >= 0.0) slot->stage_seconds[SUMI_STAGE_PREPARE] += us * 1e-6;
    else sumi_deadline_note(engine, us);
    slot->live.trace_name = "noise";
    slot->live.trace_step = -1;
    if (!is_over) return SUMI_OK;
    job->progress.drawn_values = 0;
    job->progress.cursor++;
    return SUMI_OK;
}

sumi_result sumi_plan_job_run_one(sumi_engine* engine, sumi_job_slot* slot, bool may_submit, sumi_turn* turn,
                                  sumi_error* error)
{
    SUMI_ASSERT(slot == engine->jobs.running || slot == engine->jobs.draining);
    sumi_plan_job* job = &slot->u.plan_job;
    const sumi_async_functions* async = engine->runner->async;
    const bool is_device = engine->runner->traits.has_device;
    const sumi_run* run = run_of(engine, slot);
    turn->end = SUMI_TURN_WAITS;
    // The turns that follow one another submit a slice each, in a few microseconds. The first one asks the device which
    // slices have ended; while the oldest still runs, the others need not ask for the same answer.
    const bool asks = is_device && !engine->runs.oldest_runs;
    if (is_device) {
        slot->live.device_us = 0.0;
        if (run->pending_count > 0) turn->stage = sumi_stage_of_section(run->pending[run->pending_begin].section);
        if (asks) SUMI_TRY(collect_slices(engine, slot, turn, error));
    }
    if (!turn->ends_phase && sumi_plan_job_draws_next(engine, slot)) {
        SUMI_TRY(draw_noise(engine, slot, error));
        turn->end = SUMI_TURN_MORE;
        return async->health(engine->runner, error);
    }
    const bool needs_noise = lacks_noise(job) && engine->runs.current.section >= job->progress.entry->noise_section;
    // A job that continues after a pause copies its saved state back before its first evaluation (pause.h).
    const bool restores = slot != engine->jobs.draining && !needs_noise && sumi_plan_job_restores(engine, job);
    if (!turn->ends_phase && restores && run->pending_count == 0) {
        sumi_plan_job_restore(engine, job);
        turn->stage = SUMI_STAGE_PREPARE;
        turn->end = SUMI_TURN_MORE;
    } else if (!turn->ends_phase && slot != engine->jobs.draining && !needs_noise && !restores && may_submit
               && sumi_run_can_submit(engine) && sumi_step_cache_choose(engine, job)) {
        if (!job->saved.repeats) sumi_deadline_adapt(engine, slot);
        sumi_run_slice next = sumi_run_next(engine);
        fill_in_denoising_step(job, &next);
        // Copies to host memory use the staging memory of the draining job's results, so none may be submitted until
        // that job has ended. A preview has one copy, which must have been published before the next one; likewise the
        // error of a whole evaluation, which is read before the end of the next one is submitted.
        const bool copies = next.has_preview || next.ends_run || next.change.id != 0 || next.reuse_error.id != 0;
        const bool is_blocked = (copies && engine->jobs.draining != NULL)
                             || (next.has_preview && job->progress.preview_is_pending)
                             || (next.reuse_error.id != 0 && job->progress.step_cache.error_is_pending);
        if (!is_blocked) {
            if (turn->end == SUMI_TURN_WAITS && run->pending_count == 0)
                turn->stage = sumi_stage_of_section(next.section);
            SUMI_TRY(submit_slice(engine, slot, &next, error));
            turn->end = SUMI_TURN_MORE;
        }
    }
    if (!is_device) return collect_slices(engine, slot, turn, error);
    // Nothing could be submitted, so everything depends on what has ended. With a budget this is the call's last turn
    // unless something has. Without one the next turn asks, usually after the thread has slept.
    const bool is_paced = sumi_frame_limits_are_paced(&engine->frame);
    if (!asks && turn->end == SUMI_TURN_WAITS) {
        if (is_paced) SUMI_TRY(collect_slices(engine, slot, turn, error));
        else sumi_run_ask_again(engine);
    }
    if (turn->end == SUMI_TURN_WAITS && job->request.goal == SUMI_GOAL_PROMPTS && !is_paced
        && sumi_plan_job_touch_features(job))
        turn->end = SUMI_TURN_MORE;
    return async->health(engine->runner, error);
}

// On the CPU no slice is in flight while another job begins.
bool sumi_plan_job_can_drain(const sumi_engine* engine, const sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const sumi_plan_job* job = &slot->u.plan_job;
    const sumi_run *run = &engine->runs.current, *older = &engine->runs.draining;
    const bool is_last_batch = job->request.goal != SUMI_GOAL_IMAGES
                            || job->progress.batch_begin + job->progress.batch_count >= job->request.item_count;
    return engine->runner->traits.has_device && job->progress.phase == SUMI_PHASE_RUN && run->is_submitted
        && run->pending_count > 0 && older->pending_count == 0 && is_last_batch;
}
