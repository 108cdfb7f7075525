// The pump takes the next job and advances it, turn by turn, to its end. A turn is one call of the job's `advance`
// function: a slice, or a piece of other work (job.h). Before every turn the pump looks whether the host
// program has cancelled or paused the job. It is called by updates, by waits, or by sumi's own thread. What it does is
// the same for all callers, so results do not depend on them.
//
// Two jobs have begun at most. `running` takes turns. `draining`, on a GPU, has submitted all its slices, and the last
// of them are still in flight; meanwhile the next job may submit (sumi_plan_job_advance checks that it has the same
// shape).
//
// Other divisions of a job: its phases (plan_job.h) say what an advance does next; its stages (sumi.h) are what the
// host program sees; steps are those of the solver.
#include "jobs/pump.h"
#include "base/assert.h"
#include "base/platform.h"
#include "base/result.h"
#include "jobs/deadline.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_memory.h"
#include "jobs/job_phases.h"
#include "jobs/job_reports.h"
#include "jobs/job_slices.h"
#include "jobs/log.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "jobs/run.h"
#include "pacing/frame_limits.h"
#include "plan/async.h"
#include "plan/runner.h"
#include <stdatomic.h>

// ---- The pump lock --------------------------------------------------------------------------------------------------
//
// The pump lock is a flag that the mutex `state_lock` protects, and not a mutex of its own, for two reasons. The pump's
// thread can step back while a call waits for the lock; with a mutex that is unlocked and locked again at once, the
// others would starve. And waiting for the lock and waiting for jobs use one condition variable.

// For a caller that holds `state_lock` and has seen that the pump lock is free.
static void take_pump_lock(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock) && !engine->pump_lock.is_locked);
    engine->pump_lock.is_locked = true;
#if defined(SUMI_CHECKED)
    atomic_store(&engine->pump_lock.holder, sumi_this_thread());
#endif
}

static void give_pump_lock(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock) && engine->pump_lock.is_locked && sumi_pump_is_locked(engine));
    engine->plan_inputs = sumi_plan_inputs_of_next_job(engine);
    engine->pump_lock.is_locked = false;
#if defined(SUMI_CHECKED)
    atomic_store(&engine->pump_lock.holder, 0);
#endif
    sumi_condition_broadcast(&engine->state_changed);
}

void sumi_pump_lock(sumi_engine* engine)
{
    SUMI_ASSERT(!sumi_pump_is_locked(engine)); // this thread would wait for itself
    sumi_mutex_lock(&engine->state_lock);
    engine->pump_lock.waiters++;
    while (engine->pump_lock.is_locked) sumi_condition_wait(&engine->state_changed, &engine->state_lock);
    engine->pump_lock.waiters--;
    take_pump_lock(engine);
    sumi_mutex_unlock(&engine->state_lock);
}

void sumi_pump_unlock(sumi_engine* engine)
{
    sumi_mutex_lock(&engine->state_lock);
    give_pump_lock(engine);
    sumi_mutex_unlock(&engine->state_lock);
}

// ---- The pump -------------------------------------------------------------------------------------------------------

// Whether slices run on a device, beside this thread.
static bool is_device(const sumi_engine* engine) { return engine->runner->traits.has_device; }

// The caller holds `state_lock`.
static sumi_job_slot* next_queued(const sumi_engine* engine)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock) && engine->jobs.queued_count >= 0);
    sumi_job_slot* best = NULL;
    for (int32_t i = 0; i < engine->jobs.slot_count && engine->jobs.queued_count > 0; i++) {
        sumi_job_slot* slot = &engine->jobs.slots[i];
        if (slot->id == 0 || slot->status.state != SUMI_JOB_QUEUED || slot->status.paused) continue;
        if (best == NULL || sumi_job_is_before(slot, best)) best = slot;
    }
    return best;
}

static void begin_next(sumi_engine* engine)
{
    SUMI_ASSERT(engine->jobs.running == NULL && sumi_pump_is_locked(engine));
    sumi_mutex_lock(&engine->state_lock);
    sumi_job_slot* slot = next_queued(engine);
    // a load allocates and moves device memory, so it cannot begin beside another job
    if (slot != NULL && engine->jobs.draining != NULL && sumi_job_is_load(slot)) slot = NULL;
    if (slot != NULL) {
        slot->status.state = SUMI_JOB_RUNNING;
        slot->has_begun = true;
        slot->has_worked = false;
        engine->jobs.queued_count--;
        SUMI_ASSERT(engine->jobs.queued_count >= 0);
        engine->jobs.has_running = true;
    }
    sumi_mutex_unlock(&engine->state_lock);
    if (slot != NULL) sumi_engine_adopt_host_limit(engine);
    engine->jobs.running = slot;
}

// Keeps an average of what turns of this kind take, in which the newest counts as much as all before, for predictions.
// phase_before is not read for loads, which have no phases.
static void note_overhead(sumi_engine* engine, sumi_stage stage, sumi_phase phase_before, double us)
{
    SUMI_ASSERT(us >= 0.0);
    static const sumi_overhead s_of_phase[] = {[SUMI_PHASE_TEXT] = SUMI_OVERHEAD_TEXT,
                                               [SUMI_PHASE_PLAN] = SUMI_OVERHEAD_PLAN,
                                               [SUMI_PHASE_PREPARE_DEVICE] = SUMI_OVERHEAD_PREPARE_DEVICE,
                                               [SUMI_PHASE_INPUT] = SUMI_OVERHEAD_INPUT,
                                               [SUMI_PHASE_OUTPUT] = SUMI_OVERHEAD_OUTPUT};
    sumi_overhead overhead = SUMI_OVERHEAD_LOAD;
    if (stage != SUMI_STAGE_LOAD) {
        if (phase_before == SUMI_PHASE_RUN) return; // run.c measures this phase slice by slice
        overhead = s_of_phase[phase_before];
    }
    engine->overhead_us[overhead] = 0.5 * (engine->overhead_us[overhead] + us);
    if (overhead == SUMI_OVERHEAD_INPUT && !is_device(engine)) sumi_deadline_note(engine, us);
}

// The name of a turn in traces. For a slice on the CPU sumi_trace_turn takes that of the slice's op instead.
static const char* turn_name(sumi_stage stage, sumi_phase phase_before)
{
    static const char* const s_of_phase[] = {
        [SUMI_PHASE_TEXT] = "tokens",  [SUMI_PHASE_PLAN] = "plan",  [SUMI_PHASE_PREPARE_DEVICE] = "weights and graphs",
        [SUMI_PHASE_INPUT] = "inputs", [SUMI_PHASE_RUN] = "submit", [SUMI_PHASE_OUTPUT] = "image"};
    return stage == SUMI_STAGE_LOAD ? "load" : s_of_phase[phase_before];
}

// Writes the status that poll returns until the next slice has ended. Progress never falls, whatever the predictions
// are, and reaches 1 only at the end.
static void publish(sumi_engine* engine, sumi_job_slot* slot, sumi_stage stage)
{
    SUMI_ASSERT(stage >= SUMI_STAGE_WAIT && (size_t)stage < sizeof slot->stage_seconds / sizeof *slot->stage_seconds);
    const sumi_job_live* live = &slot->live;
    SUMI_ASSERT(live->progress >= 0.0f);
    float progress = live->progress < 0.999f ? live->progress : 0.999f;
    sumi_mutex_lock(&engine->state_lock);
    sumi_job_status* status = &slot->status;
    status->stage = stage;
    const bool is_compiling = stage == SUMI_STAGE_COMPILE;
    status->step = is_compiling ? live->compiled : live->step;
    status->step_count = is_compiling ? live->compile_count : live->step_count;
    status->cut_tokens = live->cut_tokens;
    if (progress > status->progress) status->progress = progress;
    status->seconds_left = live->seconds_left;
    for (int i = 0; i < SUMI_STAGE_COUNT; i++) status->stage_seconds[i] = (float)slot->stage_seconds[i];
    status->device_seconds = slot->device_seconds;
    status->pending_us =
        (float)(slot == engine->jobs.draining ? engine->runs.draining : engine->runs.current).pending_us;
    sumi_mutex_unlock(&engine->state_lock);
}

// After a turn: something was done, so another turn may follow; nothing can be done before the device has finished
// something; no job is left.
typedef enum pump_state { PUMP_HAS_MORE, PUMP_WAITS, PUMP_HAS_NOTHING } pump_state;

// Reads what the host program has asked for since the last turn: a pause is passed on to the job, a cancelled job ends.
// Returns whether it has ended.
static bool take_requests(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(slot == engine->jobs.running || slot == engine->jobs.draining);
    sumi_mutex_lock(&engine->state_lock);
    const bool cancels = slot->cancel_requested;
    slot->must_yield = slot->pause_requested;
    SUMI_ASSERT(slot->id != 0 && slot->status.state == SUMI_JOB_RUNNING);
    sumi_mutex_unlock(&engine->state_lock);
    if (!cancels) return false;
    sumi_error cancelled = {.result = SUMI_CANCELLED, .text = "cancelled while it ran"};
    sumi_job_end(engine, slot, SUMI_JOB_CANCELLED, &cancelled);
    return true;
}

// A running job that has done nothing yields if it was paused, or if another job is before it now. The mutex decides
// between a call that changes its place and the turn that begins its work: after has_worked is set, the call is
// refused. Returns whether the job has yielded.
static bool yields_unworked(sumi_engine* engine, sumi_job_slot* slot)
{
    sumi_mutex_lock(&engine->state_lock);
    const sumi_job_slot* next = slot->has_worked ? NULL : next_queued(engine);
    const bool yields =
        !slot->has_worked && (slot->pause_requested || (next != NULL && sumi_job_is_before(next, slot)));
    const bool works = sumi_job_is_load(slot) || sumi_plan_job_works_next(&slot->u.plan_job);
    slot->has_worked = slot->has_worked || (works && !yields);
    sumi_mutex_unlock(&engine->state_lock);
    if (yields) sumi_job_yield(engine, slot);
    return yields;
}

static pump_state advance_job(sumi_engine* engine, sumi_job_slot* slot)
{
    if (take_requests(engine, slot) || (slot == engine->jobs.running && yields_unworked(engine, slot)))
        return PUMP_HAS_MORE;

    sumi_phase phase_before = sumi_job_is_load(slot) ? SUMI_PHASE_TEXT : slot->u.plan_job.progress.phase;
    sumi_turn turn = {.stage = SUMI_STAGE_WAIT, .end = SUMI_TURN_MORE};
    slot->live.device_us = -1.0;
    slot->live.trace_name = NULL;
    sumi_error error = {0};
    const uint64_t begin_ns = sumi_clock_ns();
    sumi_result result = slot->functions->advance(engine, slot, &turn, &error);
    const uint64_t end_ns = sumi_clock_ns();
    SUMI_ASSERT(end_ns >= begin_ns);
    const double seconds = (double)(end_ns - begin_ns) * 1e-9;
    if (turn.end != SUMI_TURN_WAITS)
        sumi_trace_turn(engine, slot,
                        &(sumi_trace_span){.name = turn_name(turn.stage, phase_before),
                                           .stage = turn.stage,
                                           .begin_ns = begin_ns,
                                           .end_ns = end_ns});
    if (slot->live.device_us < 0.0) { // otherwise the turn has counted the device's time
        slot->stage_seconds[turn.stage] += seconds;
        if (turn.end != SUMI_TURN_WAITS) note_overhead(engine, turn.stage, phase_before, seconds * 1e6);
    }
    publish(engine, slot, turn.stage);

    // the text of `error` describes this failure
    SUMI_ASSERT(result == SUMI_OK || error.result == SUMI_OK || error.result == result);
    if (result != SUMI_OK) {
        error.result = result;
        sumi_job_end(engine, slot, SUMI_JOB_FAILED, &error);
    } else if (turn.end == SUMI_TURN_DONE) {
        sumi_job_end(engine, slot, SUMI_JOB_DONE, &error);
    } else if (turn.end == SUMI_TURN_YIELDS) {
        sumi_job_yield(engine, slot);
    } else if (turn.end == SUMI_TURN_WAITS) {
        return PUMP_WAITS;
    }
    return PUMP_HAS_MORE;
}

// Lets the next job begin beside the last slices of the running one, if a next job exists and is not a load.
static void drain_running(sumi_engine* engine)
{
    sumi_job_slot* slot = engine->jobs.running;
    if (slot == NULL || engine->jobs.draining != NULL || sumi_job_is_load(slot)
        || !sumi_plan_job_can_drain(engine, slot))
        return;
    sumi_mutex_lock(&engine->state_lock);
    const sumi_job_slot* next = next_queued(engine);
    const bool is_wanted = next != NULL && !sumi_job_is_load(next);
    sumi_mutex_unlock(&engine->state_lock);
    if (!is_wanted) return;
    SUMI_ASSERT(engine->runs.draining.pending_count == 0);
    sumi_run_begin_draining(engine);
    engine->jobs.draining = slot;
    engine->jobs.running = NULL;
}

// One turn of the draining or of the running job; without a running job the next one begins. The caller holds the pump
// lock.
static pump_state advance_one(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && !sumi_mutex_is_held(&engine->state_lock));
    SUMI_ASSERT(engine->jobs.running == NULL || engine->jobs.running != engine->jobs.draining);
    drain_running(engine);
    // The draining job goes first: it is older, and the next job cannot read from the device before the draining job
    // has ended.
    if (engine->jobs.draining != NULL && advance_job(engine, engine->jobs.draining) == PUMP_HAS_MORE)
        return PUMP_HAS_MORE;
    if (engine->jobs.running == NULL) begin_next(engine);
    if (engine->jobs.running != NULL) return advance_job(engine, engine->jobs.running);
    return engine->jobs.draining != NULL ? PUMP_WAITS : PUMP_HAS_NOTHING;
}

// Waits until the device has finished half of the slices in flight; the other half keeps it busy meanwhile, also if the
// predictions are wrong. Sleeping for the predicted time takes 6 us of CPU time; being woken by the driver takes 100 us
// of it (H200, in this thread and in the driver's). Without a slice in flight something else is waited for, a copy or
// kernels that are loaded, and the thread sleeps for a moment.
//
// The pump lock stays locked: a call that needs it waits for the device anyway.
static void wait_for_device(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && !sumi_mutex_is_held(&engine->state_lock));
    const sumi_async_functions* async = engine->runner->async;
    const int32_t pending = async->pending(engine->runner);
    SUMI_ASSERT(pending >= 0 && pending <= SUMI_RUNNER_DEPTH);
    const double us = pending > 0 ? sumi_run_sleep_us(engine) : 0.0;
    if (us >= sumi_sleep_slack_us() && us <= SUMI_MOST_PENDING_US) {
        sumi_sleep_us((uint32_t)us);
    } else if (pending > 0) {
        async->wait(engine->runner, (pending + 1) / 2);
    } else {
        sumi_sleep_us(50);
    }
    sumi_run_ask_again(engine);
}

static bool is_ending(const sumi_job_slot* draining)
{
    return draining != NULL && draining->u.plan_job.progress.phase == SUMI_PHASE_OUTPUT;
}

// Predicted time of the next turn, in microseconds. Without a running job it begins one, whose first turn is tokens.
static double predict(const sumi_engine* engine)
{
    const sumi_job_slot* slot = is_ending(engine->jobs.draining) ? engine->jobs.draining : engine->jobs.running;
    return slot != NULL ? slot->functions->predict(engine, slot) : engine->overhead_us[SUMI_OVERHEAD_TEXT];
}

static bool submits_next(const sumi_engine* engine)
{
    const sumi_job_slot* slot = engine->jobs.running;
    if (slot == NULL || sumi_job_is_load(slot) || is_ending(engine->jobs.draining)) return false;
    return slot->u.plan_job.progress.phase == SUMI_PHASE_RUN && !sumi_plan_job_draws_next(engine, slot);
}

// What this thread does in the next turn.
static sumi_own_work next_own_work(const sumi_engine* engine)
{
    const sumi_job_slot* slot = engine->jobs.running;
    if (is_ending(engine->jobs.draining)) slot = engine->jobs.draining;
    if (slot == NULL || sumi_job_is_load(slot)) return SUMI_OWN_UNLIMITED;
    if (submits_next(engine)) {
        const sumi_plan_entry* entry = engine->runs.current.entry;
        return entry != NULL && entry->need.streamed_bytes > 0 ? SUMI_OWN_STREAMING : SUMI_OWN_SUBMITTING;
    }
    const bool prepares =
        slot->u.plan_job.progress.phase == SUMI_PHASE_PREPARE_DEVICE || slot->u.plan_job.progress.has_prepared;
    return prepares ? SUMI_OWN_PREPARING : SUMI_OWN_PIECE;
}

// Called when a call of the host program that has this budget begins to work; SUMI_FOREVER: none.
static void begin_call(sumi_engine* engine, uint32_t budget_us)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const bool has_device = engine->runner->traits.has_device;
    sumi_frame_limits_begin(
        &engine->frame, &(sumi_frame_call){.budget_us = budget_us,
                                           .max_slice_us = engine->desc.max_slice_us,
                                           .has_device = has_device,
                                           .now_ns = has_device || budget_us == SUMI_FOREVER ? 0 : sumi_clock_ns()});
}

// Whether the next turn fits into the budget of a call that has taken elapsed_us.
static bool fits_budget(const sumi_engine* engine, double budget_us, double elapsed_us)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    const sumi_next_turn turn = {.has_device = is_device(engine),
                                 .work = next_own_work(engine),
                                 .predicted_us = predict(engine),
                                 .in_flight_us = sumi_run_pending_us(engine),
                                 .is_one_more = sumi_run_wants_one_more(engine)};
    return sumi_frame_limits_fit(&engine->frame, &turn, budget_us, elapsed_us);
}

// An update with budget 0: only cancelled jobs end.
static void end_cancelled(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    if (engine->jobs.draining != NULL) (void)take_requests(engine, engine->jobs.draining);
    if (engine->jobs.running != NULL) (void)take_requests(engine, engine->jobs.running);
}

static void advance(sumi_engine* engine, uint32_t budget_us)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && budget_us > 0);
    const uint64_t begin_ns = sumi_clock_ns();
    begin_call(engine, budget_us);
    sumi_deadline_follow(engine, budget_us, begin_ns);
    sumi_run_ask_again(engine);
    // At least one turn: a budget below the smallest slice must not stop all progress.
    pump_state state = advance_one(engine);
    while (state != PUMP_HAS_NOTHING) {
        if (budget_us == SUMI_FOREVER) {
            if (state == PUMP_WAITS) wait_for_device(engine);
        } else {
            if (state == PUMP_WAITS) break; // the device has enough work until the next frame
            // A job has ended. The host program may change the order of the queue before the next one begins.
            if (engine->jobs.running == NULL && engine->jobs.draining == NULL) break;
            if (!fits_budget(engine, budget_us, (double)(sumi_clock_ns() - begin_ns) * 1e-3)) break;
        }
        state = advance_one(engine);
    }
}

void sumi_pump_update(sumi_engine* engine, uint32_t budget_us)
{
    SUMI_ASSERT(engine->desc.pump == SUMI_PUMP_UPDATE);
    sumi_pump_lock(engine);
    if (budget_us == 0) end_cancelled(engine);
    else advance(engine, budget_us);
    sumi_jobs_call_completions(engine);
    sumi_pump_unlock(engine);
}

sumi_result sumi_pump_wait(sumi_engine* engine, sumi_job handle, uint32_t timeout_ms)
{
    const bool has_thread = engine->desc.pump == SUMI_PUMP_THREAD;
    const uint64_t begin_ns = sumi_clock_ns(), timeout_ns = (uint64_t)timeout_ms * 1000000u;
    sumi_result result = SUMI_OK;
    if (!has_thread) {
        sumi_pump_lock(engine);
        begin_call(engine, SUMI_FOREVER);
        sumi_deadline_follow(engine, SUMI_FOREVER, 0);
        sumi_run_ask_again(engine);
    }
    sumi_mutex_lock(&engine->state_lock);
    for (;;) {
        const sumi_job_slot* slot = sumi_job_find(engine, handle);
        if (slot == NULL || sumi_job_is_final(slot)) {
            result = slot == NULL ? SUMI_STALE_HANDLE : SUMI_OK;
            break;
        }
        const uint64_t elapsed_ns = sumi_clock_ns() - begin_ns;
        if (timeout_ms != SUMI_FOREVER && elapsed_ns >= timeout_ns) {
            result = SUMI_TIMEOUT;
            break;
        }
        if (has_thread) {
            if (timeout_ms == SUMI_FOREVER) sumi_condition_wait(&engine->state_changed, &engine->state_lock);
            else
                (void)sumi_condition_wait_us(&engine->state_changed, &engine->state_lock,
                                             (timeout_ns - elapsed_ns) / 1000 + 1);
            continue;
        }
        sumi_mutex_unlock(&engine->state_lock);
        const pump_state state = advance_one(engine);
        sumi_jobs_call_completions(engine); // another thread may have cancelled a queued job during this wait
        if (state == PUMP_WAITS) wait_for_device(engine);
        sumi_mutex_lock(&engine->state_lock);
        // The job is paused (queued_count does not count it), and only another thread can resume it. This thread holds
        // the pump lock, so it only looks now and then.
        if (state == PUMP_HAS_NOTHING && engine->jobs.queued_count == 0)
            (void)sumi_condition_wait_us(&engine->state_changed, &engine->state_lock, 1000);
    }
    sumi_mutex_unlock(&engine->state_lock);
    if (!has_thread) {
        sumi_jobs_call_completions(engine);
        sumi_pump_unlock(engine);
    }
    return result;
}

// ---- The thread of SUMI_PUMP_THREAD ---------------------------------------------------------------------------------

static void pump_main(void* context)
{
    sumi_engine* engine = context;
    atomic_store(&engine->callers.pump, sumi_this_thread());
    sumi_mutex_lock(&engine->state_lock);
    for (;;) {
        while (!engine->pump.is_closing
               && (engine->pump_lock.is_locked || engine->pump_lock.waiters > 0
                   || (engine->jobs.queued_count == 0 && !engine->jobs.has_running
                       && engine->jobs.pending_completion_count == 0)))
            sumi_condition_wait(&engine->state_changed, &engine->state_lock);
        if (engine->pump.is_closing) break;
        take_pump_lock(engine);
        sumi_mutex_unlock(&engine->state_lock);
        sumi_jobs_call_completions(engine);
        if (advance_one(engine) == PUMP_WAITS) wait_for_device(engine);
        sumi_mutex_lock(&engine->state_lock);
        give_pump_lock(engine);
    }
    sumi_mutex_unlock(&engine->state_lock);
    atomic_store(&engine->callers.pump, 0);
}

bool sumi_pump_start_thread(sumi_engine* engine)
{
    SUMI_ASSERT(!engine->pump.has_thread && engine->desc.pump == SUMI_PUMP_THREAD);
    engine->pump.start = (sumi_thread_start){pump_main, engine, .low_priority = true, .name = "sumi pump"};
    engine->pump.has_thread = sumi_thread_begin(&engine->pump.thread, &engine->pump.start);
    return engine->pump.has_thread;
}

void sumi_pump_stop_thread(sumi_engine* engine)
{
    if (!engine->pump.has_thread) return;
    sumi_mutex_lock(&engine->state_lock);
    engine->pump.is_closing = true;
    sumi_condition_broadcast(&engine->state_changed);
    sumi_mutex_unlock(&engine->state_lock);
    sumi_thread_join(&engine->pump.thread);
    engine->pump.has_thread = false;
}
