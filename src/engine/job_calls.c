// Public functions for jobs of any kind: update, wait, status, cancel, pause, priority, list, discard. They run on any
// thread of the host program. All but the first two and sumi_job_discard lock `state_lock` for a moment and never wait
// for the pump lock.
#include "base/assert.h"
#include "base/platform.h"
#include "base/result.h"
#include "engine/calls.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/job_memory.h"
#include "jobs/log.h"
#include "jobs/pump.h"
#include <stdio.h>
#include <string.h>

void sumi_engine_update(sumi_engine* engine, uint32_t budget_us)
{
    if (engine == NULL || engine->desc.pump == SUMI_PUMP_THREAD) return;
    if (sumi_call_begin(engine, "sumi_engine_update") != SUMI_OK) return;
    sumi_pump_update(engine, budget_us);
    (void)sumi_call_end(engine, SUMI_OK, NULL);
}

sumi_result sumi_job_wait(sumi_engine* engine, sumi_job handle, uint32_t timeout_ms)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, "sumi_job_wait"));
    const sumi_result result = sumi_pump_wait(engine, handle, timeout_ms);
    return sumi_call_end(engine, result, NULL);
}

// How many jobs come before a queued job: those that run, and the queued ones that are not paused and are before it in
// the order. Hold `state_lock`.
static int32_t jobs_ahead(const sumi_engine* engine, const sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock) && slot->status.state == SUMI_JOB_QUEUED);
    int32_t count = 0;
    for (int32_t i = 0; i < engine->jobs.slot_count; i++) {
        const sumi_job_slot* candidate = &engine->jobs.slots[i];
        if (candidate->id == 0) continue;
        count += candidate->status.state == SUMI_JOB_RUNNING
              || (candidate->status.state == SUMI_JOB_QUEUED && !candidate->status.paused
                  && sumi_job_is_before(candidate, slot));
    }
    return count;
}

sumi_job_status sumi_job_poll(const sumi_engine* engine, sumi_job handle)
{
    sumi_job_status status = {.state = SUMI_JOB_NONE, .result = SUMI_STALE_HANDLE, .message = ""};
    if (engine == NULL) return status;
    if (sumi_call_is_foreign(engine)) {
        status.result = SUMI_WRONG_STATE;
        return status;
    }
    sumi_engine* locked = (sumi_engine*)engine;
    sumi_mutex_lock(&locked->state_lock);
    const sumi_job_slot* slot = sumi_job_find(engine, handle);
    if (slot != NULL) status = slot->status;
    if (status.state == SUMI_JOB_QUEUED) status.jobs_ahead = jobs_ahead(engine, slot);
    sumi_mutex_unlock(&locked->state_lock);
    if (status.state != SUMI_JOB_NONE) sumi_engine_held_bytes(engine, status.held_bytes);
    return status;
}

// A queued job holds nothing of the runner's, so it ends here. Callbacks may not be called here, so the completion
// callback follows later (completion_is_pending). A running job ends when the pump next looks at cancel_requested. Hold
// `state_lock`.
static void request_cancel(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock) && !sumi_job_is_final(slot));
    slot->cancel_requested = true;
    if (slot->status.state != SUMI_JOB_QUEUED) return;
    SUMI_ASSERT(slot->status.paused || engine->jobs.queued_count > 0);
    engine->jobs.queued_count -= !slot->status.paused;
    slot->error = (sumi_error){.result = SUMI_CANCELLED};
    snprintf(slot->error.text, sizeof slot->error.text, "cancelled %s",
             slot->status.paused && slot->has_begun ? "while it was paused"
             : slot->has_begun                      ? "while it was queued to go on"
                                                    : "before it began");
    slot->status.paused = false;
    slot->status.state = SUMI_JOB_CANCELLED;
    slot->status.result = SUMI_CANCELLED;
    slot->status.message = slot->error.text;
    slot->status.seconds_left = 0.0f;
    slot->completion_is_pending = engine->desc.completion->ended != NULL;
    engine->jobs.pending_completion_count += slot->completion_is_pending;
    sumi_condition_broadcast(&engine->state_changed);
}

void sumi_job_cancel(sumi_engine* engine, sumi_job handle)
{
    if (engine == NULL || sumi_call_is_foreign(engine)) return;
    sumi_mutex_lock(&engine->state_lock);
    sumi_job_slot* slot = sumi_job_find(engine, handle);
    if (slot != NULL && !sumi_job_is_final(slot)) request_cancel(engine, slot);
    sumi_mutex_unlock(&engine->state_lock);
}

sumi_result sumi_job_pause(sumi_engine* engine, sumi_job handle, bool paused)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    if (sumi_call_is_foreign(engine)) return SUMI_WRONG_STATE;
    sumi_mutex_lock(&engine->state_lock);
    sumi_job_slot* slot = sumi_job_find(engine, handle);
    sumi_result result = slot == NULL ? SUMI_STALE_HANDLE : SUMI_WRONG_STATE;
    sumi_error error = {0};
    if (slot != NULL && slot->status.state == SUMI_JOB_QUEUED) {
        engine->jobs.queued_count += (int32_t)slot->status.paused - (int32_t)paused;
        slot->status.paused = paused;
        result = SUMI_OK;
    } else if (slot != NULL && slot->status.state == SUMI_JOB_RUNNING
               && !(paused && sumi_job_is_load(slot) && slot->has_worked)) {
        slot->pause_requested = slot->status.paused = paused;
        result = SUMI_OK;
    } else if (slot != NULL) {
        (void)sumi_fail(
            &error, result,
            sumi_job_is_final(slot)
                ? "job %llu (%s) has ended, and can be neither paused nor resumed: fetch or discard it"
                : "job %llu (%s) has begun to load, and cannot be paused any more: let it end, or cancel it",
            (unsigned long long)handle.id, slot->functions->name);
    }
    sumi_condition_broadcast(&engine->state_changed);
    sumi_mutex_unlock(&engine->state_lock);
    if (result == SUMI_WRONG_STATE) sumi_log_refusal(engine, &error);
    return result;
}

sumi_result sumi_job_set_priority(sumi_engine* engine, sumi_job handle, int32_t priority)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    if (sumi_call_is_foreign(engine)) return SUMI_WRONG_STATE;
    sumi_mutex_lock(&engine->state_lock);
    sumi_job_slot* slot = sumi_job_find(engine, handle);
    const bool has_place =
        slot != NULL
        && (slot->status.state == SUMI_JOB_QUEUED || (slot->status.state == SUMI_JOB_RUNNING && !slot->has_worked));
    sumi_error error = {0};
    if (has_place) slot->priority = priority;
    else if (slot != NULL)
        (void)sumi_fail(&error, SUMI_WRONG_STATE,
                        sumi_job_is_final(slot)
                            ? "job %llu (%s) has ended, so its priority has no effect: fetch or discard it"
                            : "job %llu (%s) has begun, so its priority has no effect: set it while the job is queued",
                        (unsigned long long)handle.id, slot->functions->name);
    sumi_mutex_unlock(&engine->state_lock);
    if (slot == NULL) return SUMI_STALE_HANDLE;
    if (!has_place) sumi_log_refusal(engine, &error);
    return has_place ? SUMI_OK : SUMI_WRONG_STATE;
}

// The order of sumi_job_list: running jobs, then queued ones, then those that have ended. Hold `state_lock`.
static bool is_listed_before(const sumi_job_slot* a, const sumi_job_slot* b)
{
    const bool is_a_queued = a->status.state == SUMI_JOB_QUEUED, is_b_queued = b->status.state == SUMI_JOB_QUEUED;
    const int32_t group_a = sumi_job_is_final(a) ? 2 : is_a_queued, group_b = sumi_job_is_final(b) ? 2 : is_b_queued;
    if (group_a != group_b) return group_a < group_b;
    return is_a_queued ? sumi_job_is_before(a, b) : a->order < b->order;
}

int32_t sumi_job_list(const sumi_engine* const_engine, sumi_job* into, int32_t capacity)
{
    if (const_engine == NULL || sumi_call_is_foreign(const_engine)) return 0;
    sumi_engine* engine = (sumi_engine*)const_engine;
    const int32_t list_capacity = into == NULL ? 0 : capacity;
    int32_t count = 0, written = 0;
    sumi_mutex_lock(&engine->state_lock);
    // An insertion sort into the caller's array, so that no other memory is needed.
    for (int32_t i = 0; i < engine->jobs.slot_count; i++) {
        const sumi_job_slot* slot = &engine->jobs.slots[i];
        if (!sumi_job_is_listed(slot)) continue;
        count++;
        int32_t low = 0, high = written;
        while (low < high) {
            const int32_t middle = low + (high - low) / 2;
            const bool is_after = is_listed_before(sumi_job_find(engine, into[middle]), slot);
            low = is_after ? middle + 1 : low;
            high = is_after ? high : middle;
        }
        if (low >= list_capacity) continue;
        written += written < list_capacity;
        memmove(into + low + 1, into + low, (size_t)(written - low - 1) * sizeof *into);
        into[low] = (sumi_job){slot->id};
    }
    sumi_mutex_unlock(&engine->state_lock);
    return count;
}

static void discard(sumi_engine* engine, sumi_job handle)
{
    sumi_mutex_lock(&engine->state_lock);
    sumi_job_slot* slot = sumi_job_find(engine, handle);
    bool frees = false, has_weights = false;
    if (slot != NULL) {
        if (!sumi_job_is_final(slot)) request_cancel(engine, slot);
        frees = sumi_job_is_final(slot);
        has_weights = sumi_job_is_load(slot);
        sumi_job_forget_completion(engine, slot);
        slot->is_discarded = true; // from here on the id is stale, and the pump's thread may free the job slot
    }
    sumi_mutex_unlock(&engine->state_lock);
    if (slot == NULL) return;
    if (frees && has_weights) { // weights are freed on the device, which only a thread that holds the pump lock may do
        sumi_pump_lock(engine);
        sumi_job_free(engine, slot);
        sumi_pump_unlock(engine);
    } else if (frees) {
        sumi_job_free(engine, slot);
    } else if (engine->desc.pump == SUMI_PUMP_UPDATE) {
        // No other thread runs slices in this mode, so the job ends and the job slot becomes free in this call.
        sumi_pump_lock(engine);
        if (engine->jobs.running == slot || engine->jobs.draining == slot) {
            sumi_error cancelled = {.result = SUMI_CANCELLED, .text = "discarded while it ran"};
            sumi_job_end(engine, slot, SUMI_JOB_CANCELLED, &cancelled);
        }
        sumi_pump_unlock(engine);
    }
}

void sumi_job_discard(sumi_engine* engine, sumi_job handle)
{
    if (engine == NULL || sumi_call_begin(engine, "sumi_job_discard") != SUMI_OK) return;
    discard(engine, handle);
    (void)sumi_call_end(engine, SUMI_OK, NULL);
}
