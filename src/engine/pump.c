// The pump: takes the next job, runs it slice by slice to its end, looks for a wish to cancel before every slice. Who
// calls it differs (update, wait, a thread of ours), what it does never, so results do not depend on it.
//
// The work is a flag under the table's mutex instead of a mutex of its own: so that the thread can step back while a
// call waits for it (a mutex that is released and taken again at once starves the others), and so that waiting for it
// and for jobs is one condition.
#include "base/assert.h"
#include "engine/engine.h"
#include "engine/trace.h"
#include <math.h>

// Both hold `table`.
static void take_work(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->table) && !engine->is_working);
    engine->is_working = true;
#if defined(SUMI_CHECKED)
    atomic_store(&engine->worker, sumi_this_thread());
#endif
}

static void give_work(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->table) && engine->is_working && sumi_work_is_held(engine));
    engine->plan_inputs = sumi_plan_inputs_now(engine);
    engine->is_working = false;
#if defined(SUMI_CHECKED)
    atomic_store(&engine->worker, 0);
#endif
    sumi_condition_broadcast(&engine->changed);
}

#if defined(SUMI_CHECKED)
bool sumi_work_is_held(const sumi_engine* engine) { return atomic_load(&engine->worker) == sumi_this_thread(); }
#endif

void sumi_work_lock(sumi_engine* engine)
{
    SUMI_ASSERT(!sumi_work_is_held(engine)); // it would wait for itself
    sumi_mutex_lock(&engine->table);
    engine->work_waiters++;
    while (engine->is_working) sumi_condition_wait(&engine->changed, &engine->table);
    engine->work_waiters--;
    take_work(engine);
    sumi_mutex_unlock(&engine->table);
}

void sumi_work_unlock(sumi_engine* engine)
{
    sumi_mutex_lock(&engine->table);
    give_work(engine);
    sumi_mutex_unlock(&engine->table);
}

// Hold `table`.
static sumi_slot* next_queued(const sumi_engine* engine)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->table) && engine->queued_count >= 0);
    sumi_slot* best = NULL;
    for (int32_t i = 0; i < engine->slot_count && engine->queued_count > 0; i++) {
        sumi_slot* slot = &engine->slots[i];
        if (slot->id == 0 || slot->status.state != SUMI_JOB_QUEUED || slot->status.paused) continue;
        if (best == NULL || sumi_job_is_before(slot, best)) best = slot;
    }
    return best;
}

static void begin_next(sumi_engine* engine)
{
    SUMI_ASSERT(engine->running == NULL && sumi_work_is_held(engine));
    sumi_mutex_lock(&engine->table);
    sumi_slot* slot = next_queued(engine);
    if (slot != NULL && engine->leaving != NULL && sumi_job_is_load(slot)) slot = NULL; // it moves memory about
    if (slot != NULL) {
        slot->status.state = SUMI_JOB_RUNNING;
        slot->has_begun = true;
        engine->queued_count--;
        SUMI_ASSERT(engine->queued_count >= 0);
        engine->has_running = true;
    }
    sumi_mutex_unlock(&engine->table);
    engine->running = slot;
}

static void note_chore(sumi_engine* engine, sumi_stage stage, sumi_phase phase_before, double us)
{
    SUMI_ASSERT(us >= 0.0);
    static const sumi_chore of_phase[] = {[SUMI_PHASE_TEXT] = SUMI_CHORE_TEXT,
                                          [SUMI_PHASE_PLAN] = SUMI_CHORE_PLAN,
                                          [SUMI_PHASE_READY] = SUMI_CHORE_READY,
                                          [SUMI_PHASE_INPUT] = SUMI_CHORE_INPUT,
                                          [SUMI_PHASE_OUTPUT] = SUMI_CHORE_OUTPUT};
    sumi_chore chore = SUMI_CHORE_LOAD;
    if (stage != SUMI_STAGE_LOAD) {
        if (phase_before == SUMI_PHASE_RUN) return; // measured slice by slice in run.c
        chore = of_phase[phase_before];
    }
    engine->chore_us[chore] = 0.5 * (engine->chore_us[chore] + us);
    if (chore == SUMI_CHORE_INPUT && engine->runner->functions->finished == NULL) sumi_deadline_note(engine, us);
}

// Of a step that is no slice of the processor's, for traces.
static const char* name_of(sumi_stage stage, sumi_phase phase_before)
{
    static const char* const of_phase[] = {
        [SUMI_PHASE_TEXT] = "tokens",  [SUMI_PHASE_PLAN] = "plan",  [SUMI_PHASE_READY] = "weights and graphs",
        [SUMI_PHASE_INPUT] = "inputs", [SUMI_PHASE_RUN] = "submit", [SUMI_PHASE_OUTPUT] = "picture"};
    return stage == SUMI_STAGE_LOAD ? "load" : of_phase[phase_before];
}

// What poll shows until the next slice is over. Progress never falls, whatever the predictions do, and 1 is left to the
// end.
static void publish(sumi_engine* engine, sumi_slot* slot, sumi_stage stage)
{
    SUMI_ASSERT(stage >= SUMI_STAGE_WAIT && (size_t)stage < sizeof slot->stage_seconds / sizeof *slot->stage_seconds);
    const sumi_job_live* live = &slot->live;
    SUMI_ASSERT(live->progress >= 0.0f);
    float progress = live->progress < 0.999f ? live->progress : 0.999f;
    sumi_mutex_lock(&engine->table);
    sumi_job_status* status = &slot->status;
    status->stage = stage;
    status->step = live->step;
    status->step_count = live->step_count;
    status->cut_tokens = live->cut_tokens;
    if (progress > status->progress) status->progress = progress;
    status->seconds_left = live->seconds_left;
    for (int i = 0; i < 8; i++) status->stage_seconds[i] = (float)slot->stage_seconds[i];
    status->device_seconds = slot->device_seconds;
    status->pending_us = (float)(slot == engine->leaving ? engine->leaving_run : engine->run).pending_us;
    sumi_mutex_unlock(&engine->table);
}

typedef enum pump_state { PUMP_HAS_MORE, PUMP_WAITS /* for the device */, PUMP_HAS_NOTHING } pump_state;

static bool end_if_cancelled(sumi_engine* engine, sumi_slot* slot)
{
    SUMI_ASSERT(slot == engine->running || slot == engine->leaving);
    sumi_mutex_lock(&engine->table);
    const bool cancels = slot->cancel_asked;
    slot->gives_way = slot->pause_asked;
    SUMI_ASSERT(slot->id != 0 && slot->status.state == SUMI_JOB_RUNNING);
    sumi_mutex_unlock(&engine->table);
    if (!cancels) return false;
    sumi_error cancelled = {SUMI_CANCELLED, "cancelled while it ran"};
    sumi_job_end(engine, slot, SUMI_JOB_CANCELLED, &cancelled);
    return true;
}

static pump_state step_job(sumi_engine* engine, sumi_slot* slot)
{
    if (end_if_cancelled(engine, slot)) return PUMP_HAS_MORE;

    sumi_phase phase_before = sumi_job_is_load(slot) ? SUMI_PHASE_TEXT : slot->u.plan.phase;
    sumi_stage stage = SUMI_STAGE_WAIT;
    sumi_step_end end = SUMI_STEP_MORE;
    slot->live.device_us = -1.0;
    slot->live.doing = NULL;
    sumi_error error = {SUMI_OK, {0}};
    const uint64_t begin_ns = sumi_clock_ns();
    sumi_result result = slot->functions->step(engine, slot, &stage, &end, &error);
    const uint64_t end_ns = sumi_clock_ns();
    SUMI_ASSERT(end_ns >= begin_ns);
    const double seconds = (double)(end_ns - begin_ns) * 1e-9;
    if (end != SUMI_STEP_WAITS) sumi_trace_step(engine, slot, name_of(stage, phase_before), stage, begin_ns, end_ns);
    if (slot->live.device_us < 0.0) { // otherwise the step has counted the device's time
        slot->stage_seconds[stage] += seconds;
        if (end != SUMI_STEP_WAITS) note_chore(engine, stage, phase_before, seconds * 1e6);
    }
    publish(engine, slot, stage);

    SUMI_ASSERT(result == SUMI_OK || error.result == SUMI_OK || error.result == result); // the text is of this failure
    if (result != SUMI_OK) {
        error.result = result;
        sumi_job_end(engine, slot, SUMI_JOB_FAILED, &error);
    } else if (end == SUMI_STEP_DONE) {
        sumi_job_end(engine, slot, SUMI_JOB_DONE, &error);
    } else if (end == SUMI_STEP_ASIDE) {
        sumi_job_set_aside(engine, slot);
    } else if (end == SUMI_STEP_WAITS) {
        return PUMP_WAITS;
    }
    return PUMP_HAS_MORE;
}

// Whether the next job may begin beside the last slices of the running one.
static void let_it_leave(sumi_engine* engine)
{
    sumi_slot* slot = engine->running;
    if (slot == NULL || engine->leaving != NULL || sumi_job_is_load(slot) || !sumi_plan_job_can_leave(engine, slot))
        return;
    sumi_mutex_lock(&engine->table);
    const sumi_slot* next = next_queued(engine);
    const bool is_wanted = next != NULL && !sumi_job_is_load(next);
    sumi_mutex_unlock(&engine->table);
    if (!is_wanted) return;
    SUMI_ASSERT(engine->leaving_run.pending_count == 0);
    sumi_run_leave(engine);
    engine->leaving = slot;
    engine->running = NULL;
}

// One step of the job at hand, or of the next one. Holds the work.
static pump_state run_slice(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && !sumi_mutex_is_held(&engine->table));
    SUMI_ASSERT(engine->running == NULL || engine->running != engine->leaving);
    let_it_leave(engine);
    // What is leaving has been waited for longest, and the next one's first fetch waits for its end.
    if (engine->leaving != NULL && step_job(engine, engine->leaving) == PUMP_HAS_MORE) return PUMP_HAS_MORE;
    if (engine->running == NULL) begin_next(engine);
    if (engine->running != NULL) return step_job(engine, engine->running);
    return engine->leaving != NULL ? PUMP_WAITS : PUMP_HAS_NOTHING;
}

// Until the device has finished half of what it was given, or a moment when it is something else (a copy, kernels being
// loaded) that is waited for. Sleeping through what predictions say takes 6 us of processor time where being woken by
// the driver takes 100 (H200, in this thread and in the driver's); what is left is there for predictions that are
// wrong.
static void wait_for_device(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && !sumi_mutex_is_held(&engine->table));
    const sumi_runner_functions* runner = engine->runner->functions;
    const int32_t pending = runner->pending != NULL ? runner->pending(engine->runner) : 0;
    SUMI_ASSERT(pending >= 0 && pending <= SUMI_RUNNER_DEPTH);
    const double us = pending > 0 ? sumi_run_sleep_us(engine) : 0.0;
    if (us >= SUMI_SLEEP_SLACK_US && us <= SUMI_MOST_PENDING_US) sumi_sleep_us((uint32_t)us);
    // the other half keeps the device busy meanwhile
    else if (pending > 0) runner->wait(engine->runner, (pending + 1) / 2);
    else sumi_sleep_us(50);
}

static bool is_ending(const sumi_slot* leaving)
{
    return leaving != NULL && leaving->u.plan.phase == SUMI_PHASE_OUTPUT;
}

static double predict(const sumi_engine* engine)
{
    const sumi_slot* slot = is_ending(engine->leaving) ? engine->leaving : engine->running;
    return slot != NULL ? slot->functions->predict(engine, slot) : engine->chore_us[SUMI_CHORE_TEXT];
}

// Beside a device: what keeps the host's frame waiting is bounded on its own, and much closer than the device's work.
// Weights and graphs of a new plan are made in larger portions: hundreds of pieces of a fifth of a millisecond would
// take as many frames. A model that is loaded takes what the host gives.
#define MOST_OWN_US 200.0
// of slices, each of which takes two dozen; of a large budget up to a twelfth, which streamed weights take
#define MOST_SUBMITTING_US 240.0
#define MOST_READY_US 1900.0

static bool submits_next(const sumi_engine* engine)
{
    const sumi_slot* slot = engine->running;
    if (slot == NULL || sumi_job_is_load(slot) || is_ending(engine->leaving)) return false;
    return slot->u.plan.phase == SUMI_PHASE_RUN && !sumi_plan_job_draws_next(engine, slot);
}

static double most_submitting_us(const sumi_engine* engine)
{
    const double share = engine->most_pending_us / 12.0;
    return share > MOST_SUBMITTING_US ? share : MOST_SUBMITTING_US;
}

static double most_own_us(const sumi_engine* engine)
{
    const sumi_slot* slot = engine->running;
    if (is_ending(engine->leaving)) return MOST_OWN_US;
    if (slot == NULL || sumi_job_is_load(slot)) return INFINITY;
    return slot->u.plan.phase == SUMI_PHASE_READY ? MOST_READY_US
         : submits_next(engine)                   ? most_submitting_us(engine)
                                                  : MOST_OWN_US;
}

// Whether what comes next fits into a call's budget. On a device that bounds what is on its way there, from this call
// or an earlier one; this thread's own time counts for itself.
static bool fits(const sumi_engine* engine, double budget_us, double elapsed)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && elapsed >= 0.0);
    const double next = predict(engine), most_own = most_own_us(engine);
    if (engine->runner->functions->finished == NULL) return elapsed + next <= budget_us;
    if (!submits_next(engine)) return elapsed + next <= (most_own < budget_us ? most_own : budget_us);
    const double on_its_way = sumi_run_pending_us(engine);
    // submitting a slice takes no time worth a prediction
    return elapsed <= most_own && elapsed <= budget_us && (on_its_way > 0.0 ? on_its_way : elapsed) + next <= budget_us;
}

// How long slices may be for updates of this budget. A call submits whole slices, so of a budget that holds one or two
// a good part is lost: an eighth wastes a sixteenth. Below half a millisecond cutting operations costs more than that,
// and below a quarter always. Three steps of 1024x1024, 8 ms a frame (H200), over what the budget's share of the time
// would be:
//
//     slices of  | 2 ms | 1 ms | 0.5 ms | 0.25 ms
//     budget 1   |      |   16 |      9 |      -4   %
//     budget 2   |   61 |   12 |      0 |      -3
//     budget 4   |   30 |   28 |     10 |       6
#define LEAST_SLICE_US 250
#define USUAL_LEAST_SLICE_US 500.0

static uint32_t slice_for(double budget_us, uint32_t most_us)
{
    SUMI_ASSERT(budget_us > 0.0);
    const double quarter = budget_us / 4.0, eighth = budget_us / 8.0,
                 usual = quarter < USUAL_LEAST_SLICE_US ? quarter : USUAL_LEAST_SLICE_US;
    const double limit = eighth > usual ? eighth : usual;
    uint32_t slice_us = most_us;
    while (slice_us / 2 >= LEAST_SLICE_US && (double)slice_us > limit) slice_us /= 2;
    return slice_us;
}

void sumi_engine_follow_pace(sumi_engine* engine, uint32_t budget_us)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && budget_us > 0);
    const bool was_paced = engine->paced_us > 0.0, is_paced = budget_us != SUMI_FOREVER;
    const uint32_t most = engine->desc.max_slice_us;
    // the processor stops between any two slices, and cutting costs it more
    if (engine->runner->functions->finished == NULL) return;
    engine->paced_us = !is_paced ? 0.0
                     : was_paced ? 0.9 * engine->paced_us + 0.1 * (double)budget_us
                                 : (double)budget_us;
    // A budget that wavers about a limit must not change plans again and again: slices grow only when they may grow by
    // half as much again.
    const uint32_t wanted = is_paced ? slice_for(engine->paced_us, most) : most;
    if (!is_paced || wanted < engine->slice_us || slice_for(engine->paced_us / 1.5, most) > engine->slice_us)
        engine->slice_us = wanted;
}

// A pause: nothing is worked on, but who was cancelled goes.
static void rest(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    if (engine->leaving != NULL) (void)end_if_cancelled(engine, engine->leaving);
    if (engine->running != NULL) (void)end_if_cancelled(engine, engine->running);
}

static void advance(sumi_engine* engine, uint32_t budget_us)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && budget_us > 0);
    uint64_t begin = sumi_clock_ns();
    engine->most_pending_us = budget_us == SUMI_FOREVER ? SUMI_MOST_PENDING_US : budget_us;
    engine->most_own_us = budget_us == SUMI_FOREVER || engine->runner->functions->finished == NULL ? 0.0 : MOST_OWN_US;
    sumi_engine_follow_pace(engine, budget_us);
    sumi_deadline_follow(engine, budget_us, begin);
    pump_state state = run_slice(engine); // always one: a budget below the smallest slice must not stop everything
    while (state != PUMP_HAS_NOTHING) {
        if (budget_us == SUMI_FOREVER) {
            if (state == PUMP_WAITS) wait_for_device(engine);
        } else {
            if (state == PUMP_WAITS) break; // the device has enough to do until the next frame
            if (!fits(engine, budget_us, (double)(sumi_clock_ns() - begin) * 1e-3)) break;
        }
        state = run_slice(engine);
    }
}

void sumi_engine_update(sumi_engine* engine, uint32_t budget_us)
{
    if (engine == NULL || engine->desc.pump == SUMI_PUMP_THREAD) return;
    if (sumi_call_begin(engine, "sumi_engine_update") != SUMI_OK) return;
    sumi_work_lock(engine);
    if (budget_us == 0) rest(engine);
    else advance(engine, budget_us);
    sumi_jobs_tell(engine);
    sumi_work_unlock(engine);
    (void)sumi_call_end(engine, SUMI_OK, NULL);
}

sumi_result sumi_job_wait(sumi_engine* engine, sumi_job job, uint32_t timeout_ms)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_job_wait"));
    const bool has_thread = engine->desc.pump == SUMI_PUMP_THREAD;
    const uint64_t begin = sumi_clock_ns(), timeout_ns = (uint64_t)timeout_ms * 1000000u;
    sumi_result result = SUMI_OK;
    if (!has_thread) {
        sumi_work_lock(engine);
        engine->most_pending_us = SUMI_MOST_PENDING_US;
        engine->most_own_us = 0.0;
        sumi_engine_follow_pace(engine, SUMI_FOREVER);
        sumi_deadline_follow(engine, SUMI_FOREVER, 0);
    }
    sumi_mutex_lock(&engine->table);
    for (;;) {
        const sumi_slot* slot = sumi_job_find(engine, job);
        if (slot == NULL || sumi_job_is_final(slot)) {
            result = slot == NULL ? SUMI_STALE_HANDLE : SUMI_OK;
            break;
        }
        uint64_t elapsed = sumi_clock_ns() - begin;
        if (timeout_ms != SUMI_FOREVER && elapsed >= timeout_ns) {
            result = SUMI_TIMEOUT;
            break;
        }
        if (has_thread) {
            if (timeout_ms == SUMI_FOREVER) sumi_condition_wait(&engine->changed, &engine->table);
            else (void)sumi_condition_wait_us(&engine->changed, &engine->table, (timeout_ns - elapsed) / 1000 + 1);
            continue;
        }
        sumi_mutex_unlock(&engine->table);
        const pump_state state = run_slice(engine);
        if (state == PUMP_WAITS) wait_for_device(engine);
        sumi_mutex_lock(&engine->table);
        // The job is paused, and only another thread can resume it: looked after now and then, for this one has the work.
        if (state == PUMP_HAS_NOTHING && engine->queued_count == 0)
            (void)sumi_condition_wait_us(&engine->changed, &engine->table, 1000);
    }
    sumi_mutex_unlock(&engine->table);
    if (!has_thread) {
        sumi_jobs_tell(engine);
        sumi_work_unlock(engine);
    }
    return sumi_call_end(engine, result, NULL);
}

static bool uses_lora(const sumi_slot* slot, const sumi_lora* lora)
{
    if (slot->kind != SUMI_JOB_KIND_IMAGES) return false;
    for (int32_t i = 0; i < slot->u.plan.lora_count; i++) {
        if (slot->u.plan.loras[i] == lora) return true;
    }
    return false;
}

static bool uses_external(const sumi_slot* slot, const sumi_external* external)
{
    if (slot->kind != SUMI_JOB_KIND_IMAGES) return false;
    for (int32_t i = 0; i < slot->u.plan.item_count; i++) {
        if (slot->u.plan.items[i].target.external == external) return true;
    }
    return false;
}

void sumi_jobs_cancel(sumi_engine* engine, const sumi_model* model, const sumi_lora* lora,
                      const sumi_external* external)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && !sumi_mutex_is_held(&engine->table));
    for (int32_t i = 0; i < engine->slot_count; i++) {
        sumi_slot* slot = &engine->slots[i];
        sumi_mutex_lock(&engine->table);
        const bool is_other = slot->id == 0 || (model != NULL && slot->model != model)
                           || (lora != NULL && !uses_lora(slot, lora))
                           || (external != NULL && !uses_external(slot, external));
        const bool is_pending =
            !is_other && (slot->status.state == SUMI_JOB_QUEUED || slot->status.state == SUMI_JOB_RUNNING);
        // ours from here on: sumi_job_cancel ends queued jobs itself, from any thread
        if (is_pending && slot->status.state == SUMI_JOB_QUEUED) {
            slot->status.state = SUMI_JOB_RUNNING;
            engine->queued_count -= !slot->status.paused;
        }
        sumi_mutex_unlock(&engine->table);
        if (is_other) continue;
        if (is_pending) {
            sumi_error cancelled = {SUMI_OK, {0}};
            (void)sumi_fail(&cancelled, SUMI_CANCELLED, "cancelled: its %s",
                            lora != NULL       ? "adapter was released"
                            : external != NULL ? "texture was released"
                            : model != NULL    ? "model was closed"
                                               : "engine goes");
            sumi_job_end(engine, slot, SUMI_JOB_CANCELLED, &cancelled);
        }
        if (model != NULL) slot->model = NULL;
    }
}

// ---- Our thread -----------------------------------------------------------------------------------------------------

static void pump_main(void* context)
{
    sumi_engine* engine = context;
    atomic_store(&engine->pump, sumi_this_thread());
    sumi_mutex_lock(&engine->table);
    for (;;) {
        while (!engine->is_closing
               && (engine->is_working || engine->work_waiters > 0
                   || (engine->queued_count == 0 && !engine->has_running && engine->untold_count == 0))) {
            sumi_condition_wait(&engine->changed, &engine->table);
        }
        if (engine->is_closing) break;
        take_work(engine);
        sumi_mutex_unlock(&engine->table);
        sumi_jobs_tell(engine);
        if (run_slice(engine) == PUMP_WAITS) wait_for_device(engine);
        sumi_mutex_lock(&engine->table);
        give_work(engine);
    }
    sumi_mutex_unlock(&engine->table);
    atomic_store(&engine->pump, 0);
}

bool sumi_pump_start_thread(sumi_engine* engine)
{
    SUMI_ASSERT(!engine->has_pump_thread && engine->desc.pump == SUMI_PUMP_THREAD);
    engine->pump_start = (sumi_thread_start){pump_main, engine, true};
    engine->has_pump_thread = sumi_thread_begin(&engine->pump_thread, &engine->pump_start);
    return engine->has_pump_thread;
}

void sumi_pump_stop_thread(sumi_engine* engine)
{
    if (!engine->has_pump_thread) return;
    sumi_mutex_lock(&engine->table);
    engine->is_closing = true;
    sumi_condition_broadcast(&engine->changed);
    sumi_mutex_unlock(&engine->table);
    sumi_thread_join(&engine->pump_thread);
    engine->has_pump_thread = false;
}
