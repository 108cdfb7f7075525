#include "base/assert.h"
#include "engine/engine.h"
#include <stdio.h>
#include <string.h>

sumi_result sumi_job_reserve(sumi_engine* engine, sumi_job_kind kind, const sumi_job_functions* functions,
                             sumi_slot** out_slot, sumi_error* error)
{
    SUMI_ASSERT(functions != NULL && functions->step != NULL && functions->stop != NULL && functions->drop != NULL);
    *out_slot = NULL;
    sumi_mutex_lock(&engine->table);
    if (engine->free_count == 0) {
        sumi_mutex_unlock(&engine->table);
        return sumi_fail(
            error, SUMI_QUEUE_FULL,
            "all %d job slots are taken: fetch or discard a job, or create the engine with a larger job_capacity",
            (int)engine->slot_count);
    }
    int32_t index = engine->free_slots[--engine->free_count];
    SUMI_ASSERT(index >= 0 && index < engine->slot_count);
    sumi_slot* slot = &engine->slots[index];
    slot->id = (++engine->next_generation << SUMI_SLOT_BITS) | (uint64_t)index;
    slot->kind = kind;
    slot->status = (sumi_job_status){.state = SUMI_JOB_NONE, .seconds_left = -1.0f, .message = ""};
    slot->cancel_asked = slot->is_discarded = slot->is_untold = slot->pause_asked = slot->has_begun = false;
    sumi_mutex_unlock(&engine->table);
    slot->functions = functions;
    slot->model = NULL;
    slot->error = (sumi_error){SUMI_OK, {0}};
    slot->profile_count = 0;
    slot->live = (sumi_job_live){.seconds_left = -1.0f};
    memset(slot->stage_seconds, 0, sizeof slot->stage_seconds);
    slot->device_seconds = 0.0;
    memset(&slot->u, 0, sizeof slot->u);
    *out_slot = slot;
    return SUMI_OK;
}

void sumi_job_queue(sumi_engine* engine, sumi_slot* slot, int32_t priority, void* user_data, sumi_job* out_job)
{
    SUMI_ASSERT(slot->id != 0 && slot->functions != NULL);
    sumi_mutex_lock(&engine->table);
    slot->priority = priority;
    SUMI_ASSERT(slot->status.state == SUMI_JOB_NONE && !slot->is_discarded && !slot->cancel_asked);
    slot->order = ++engine->next_order;
    slot->submitted_ns = sumi_clock_ns();
    slot->status.state = SUMI_JOB_QUEUED;
    slot->status.user_data = user_data;
    engine->queued_count++;
    SUMI_ASSERT(engine->queued_count + engine->free_count <= engine->slot_count);
    out_job->id = slot->id;
    sumi_condition_broadcast(&engine->changed);
    sumi_mutex_unlock(&engine->table);
}

// Hold `table`: the job goes before anybody was told.
static void forget_to_tell(sumi_engine* engine, sumi_slot* slot)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->table));
    if (slot->is_untold) engine->untold_count--;
    slot->is_untold = false;
}

void sumi_job_free(sumi_engine* engine, sumi_slot* slot)
{
    SUMI_ASSERT(!sumi_mutex_is_held(&engine->table));
    SUMI_ASSERT(slot >= engine->slots && slot < engine->slots + engine->slot_count);
    slot->functions->drop(engine, slot);
    slot->model = NULL;
    sumi_mutex_lock(&engine->table);
    SUMI_ASSERT(slot->id != 0 && engine->free_count < engine->slot_count);
    SUMI_ASSERT(slot->status.state == SUMI_JOB_NONE || sumi_job_is_final(slot));
    forget_to_tell(engine, slot);
    slot->id = 0;
    slot->status = (sumi_job_status){.state = SUMI_JOB_NONE, .message = ""};
    engine->free_slots[engine->free_count++] = (int32_t)(slot - engine->slots);
    sumi_condition_broadcast(&engine->changed);
    sumi_mutex_unlock(&engine->table);
}

void sumi_slot_close(sumi_engine* engine, sumi_slot* slot)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && slot->id == 0);
    SUMI_ASSERT(atomic_load(&engine->image_bytes) >= slot->products.bytes);
    atomic_fetch_sub(&engine->image_bytes, slot->products.bytes);
    sumi_block_free(&engine->heap, &slot->lists);
    sumi_block_free(&engine->heap, &slot->input);
    sumi_block_free(&engine->heap, &slot->products);
    sumi_free(&engine->heap, slot->profile);
    slot->profile = NULL;
}

// Whether a host may name it: submitted, neither fetched nor discarded. Hold `table`.
static bool is_listed(const sumi_slot* slot)
{
    return slot->id != 0 && !slot->is_discarded && slot->status.state != SUMI_JOB_NONE;
}

sumi_slot* sumi_job_find(const sumi_engine* engine, sumi_job job)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->table));
    uint64_t index = job.id & ((UINT64_C(1) << SUMI_SLOT_BITS) - 1);
    if (job.id == 0 || index >= (uint64_t)engine->slot_count) return NULL;
    sumi_slot* slot = &engine->slots[index];
    return slot->id == job.id && is_listed(slot) ? slot : NULL;
}

bool sumi_job_is_before(const sumi_slot* a, const sumi_slot* b)
{
    return a->priority > b->priority || (a->priority == b->priority && a->order < b->order);
}
bool sumi_job_is_load(const sumi_slot* slot)
{
    return slot->kind == SUMI_JOB_KIND_MODEL || slot->kind == SUMI_JOB_KIND_LORA;
}

bool sumi_job_is_final(const sumi_slot* slot) { return slot->status.state >= SUMI_JOB_DONE; }

sumi_result sumi_job_finished(const sumi_engine* engine, sumi_job job, sumi_job_kind kind, sumi_slot** out_slot,
                              sumi_error* error)
{
    SUMI_ASSERT(out_slot != NULL);
    sumi_engine* locked = (sumi_engine*)engine; // the lock is not part of what a host sees as the engine's state
    sumi_mutex_lock(&locked->table);
    sumi_slot* slot = sumi_job_find(engine, job);
    bool is_final = slot != NULL && sumi_job_is_final(slot), is_right = slot != NULL && slot->kind == kind;
    const char* name = slot != NULL ? slot->functions->name : "";
    sumi_mutex_unlock(&locked->table);
    *out_slot = NULL;
    if (slot == NULL) {
        return sumi_fail(error, SUMI_STALE_HANDLE, "job %llu was fetched or discarded before, or never existed",
                         (unsigned long long)job.id);
    }
    if (!is_right)
        return sumi_fail(error, SUMI_WRONG_STATE, "job %llu is %s: fetch it with the function for its kind",
                         (unsigned long long)job.id, name);
    if (!is_final)
        return sumi_fail(error, SUMI_WRONG_STATE, "job %llu (%s) is not done yet: poll it, or wait for it",
                         (unsigned long long)job.id, name);
    *out_slot = slot;
    return SUMI_OK;
}

// ---- The end --------------------------------------------------------------------------------------------------------

// What the host's completion is told of a job, which may be fetched or gone by then.
typedef struct ended_job {
    sumi_job job;
    sumi_job_state state;
    void* user_data;
} ended_job;

static void tell(const sumi_engine* engine, const ended_job* ended)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && !sumi_mutex_is_held(&engine->table) && ended->state >= SUMI_JOB_DONE);
    const sumi_completion* completion = &engine->desc.completion;
    if (completion->ended != NULL) completion->ended(ended->job, ended->state, ended->user_data, completion->user_data);
}

void sumi_jobs_tell(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_work_is_held(engine));
    sumi_mutex_lock(&engine->table);
    for (int32_t i = 0; i < engine->slot_count && engine->untold_count > 0; i++) {
        sumi_slot* slot = &engine->slots[i];
        if (slot->id == 0 || !slot->is_untold) continue;
        slot->is_untold = false;
        engine->untold_count--;
        const ended_job ended = {{slot->id}, slot->status.state, slot->status.user_data};
        sumi_mutex_unlock(&engine->table);
        tell(engine, &ended);
        sumi_mutex_lock(&engine->table);
    }
    sumi_mutex_unlock(&engine->table);
}

void sumi_job_end(sumi_engine* engine, sumi_slot* slot, sumi_job_state state, const sumi_error* error)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && slot->id != 0);
    SUMI_ASSERT(state == SUMI_JOB_DONE || state == SUMI_JOB_FAILED || state == SUMI_JOB_CANCELLED);
    SUMI_ASSERT((error->result == SUMI_OK) == (state == SUMI_JOB_DONE));
    if (engine->running == slot || engine->leaving == slot) {
        slot->functions->stop(engine, slot);
        if (engine->running == slot) engine->running = NULL;
        else engine->leaving = NULL;
    }
    const bool has_running = engine->running != NULL || engine->leaving != NULL;
    // here, where the work is held: half a model may have weights on a device
    if (state != SUMI_JOB_DONE) slot->functions->drop(engine, slot);
    slot->error = *error;
    if (slot->error.result != SUMI_OK && slot->error.text[0] == '\0') {
        const char* text = sumi_result_text(slot->error.result);
        memcpy(slot->error.text, text, strlen(text) + 1);
    }
    if (state == SUMI_JOB_FAILED) sumi_log_failure(engine, &slot->error);
    sumi_mutex_lock(&engine->table);
    SUMI_ASSERT(slot->status.state == SUMI_JOB_QUEUED || slot->status.state == SUMI_JOB_RUNNING);
    engine->has_running = has_running;
    SUMI_ASSERT(slot->status.state != SUMI_JOB_QUEUED || engine->queued_count > 0);
    if (slot->status.state == SUMI_JOB_QUEUED) engine->queued_count--;
    slot->status.paused = false;
    slot->status.state = state;
    slot->status.result = slot->error.result;
    slot->status.message = slot->error.text;
    slot->status.seconds_left = 0.0f;
    if (state == SUMI_JOB_DONE) slot->status.progress = 1.0f;
    const bool is_discarded = slot->is_discarded;
    const ended_job ended = {{slot->id}, state, slot->status.user_data};
    sumi_condition_broadcast(&engine->changed);
    sumi_mutex_unlock(&engine->table);
    if (is_discarded) sumi_job_free(engine, slot);
    else tell(engine, &ended);
}

// ---- What the host asks ---------------------------------------------------------------------------------------------

// Hold `table`.
static int32_t jobs_ahead(const sumi_engine* engine, const sumi_slot* slot)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->table) && slot->status.state == SUMI_JOB_QUEUED);
    int32_t count = 0;
    for (int32_t i = 0; i < engine->slot_count; i++) {
        const sumi_slot* other = &engine->slots[i];
        if (other->id == 0) continue;
        count += other->status.state == SUMI_JOB_RUNNING
              || (other->status.state == SUMI_JOB_QUEUED && !other->status.paused && sumi_job_is_before(other, slot));
    }
    return count;
}

sumi_job_status sumi_job_poll(const sumi_engine* engine, sumi_job job)
{
    sumi_job_status status = {.state = SUMI_JOB_NONE, .result = SUMI_STALE_HANDLE, .message = ""};
    if (engine == NULL) return status;
    if (sumi_call_is_foreign(engine)) {
        status.result = SUMI_WRONG_STATE;
        return status;
    }
    sumi_engine* locked = (sumi_engine*)engine;
    sumi_mutex_lock(&locked->table);
    const sumi_slot* slot = sumi_job_find(engine, job);
    if (slot != NULL) status = slot->status;
    if (status.state == SUMI_JOB_QUEUED) status.jobs_ahead = jobs_ahead(engine, slot);
    sumi_mutex_unlock(&locked->table);
    if (status.state != SUMI_JOB_NONE) sumi_engine_held_bytes(engine, status.held_bytes);
    return status;
}

// A queued job has taken nothing yet and ends here, where no callback may be made; a running one ends when the pump comes
// to it.
static void ask_to_cancel(sumi_engine* engine, sumi_slot* slot)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->table) && !sumi_job_is_final(slot));
    slot->cancel_asked = true;
    if (slot->status.state != SUMI_JOB_QUEUED) return;
    SUMI_ASSERT(slot->status.paused || engine->queued_count > 0);
    engine->queued_count -= !slot->status.paused;
    slot->error = (sumi_error){SUMI_CANCELLED, {0}};
    snprintf(slot->error.text, sizeof slot->error.text, "cancelled %s",
             slot->has_begun ? "while it was paused" : "before it began");
    slot->status.paused = false;
    slot->status.state = SUMI_JOB_CANCELLED;
    slot->status.result = SUMI_CANCELLED;
    slot->status.message = slot->error.text;
    slot->status.seconds_left = 0.0f;
    slot->is_untold = engine->desc.completion.ended != NULL;
    engine->untold_count += slot->is_untold;
    sumi_condition_broadcast(&engine->changed);
}

void sumi_job_cancel(sumi_engine* engine, sumi_job job)
{
    if (engine == NULL || sumi_call_is_foreign(engine)) return;
    sumi_mutex_lock(&engine->table);
    sumi_slot* slot = sumi_job_find(engine, job);
    if (slot != NULL && !sumi_job_is_final(slot)) ask_to_cancel(engine, slot);
    sumi_mutex_unlock(&engine->table);
}

void sumi_job_set_aside(sumi_engine* engine, sumi_slot* slot)
{
    SUMI_ASSERT(sumi_work_is_held(engine) && slot == engine->running);
    slot->functions->stop(engine, slot);
    engine->running = NULL;
    sumi_mutex_lock(&engine->table);
    SUMI_ASSERT(slot->status.state == SUMI_JOB_RUNNING);
    engine->has_running = engine->leaving != NULL;
    slot->status.state = SUMI_JOB_QUEUED;
    slot->status.stage = SUMI_STAGE_WAIT;
    slot->status.pending_us = 0.0f;
    slot->status.paused = slot->pause_asked; // it may have been resumed meanwhile
    slot->pause_asked = false;
    engine->queued_count += !slot->status.paused;
    sumi_condition_broadcast(&engine->changed);
    sumi_mutex_unlock(&engine->table);
}

sumi_result sumi_job_pause(sumi_engine* engine, sumi_job job, bool paused)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    if (sumi_call_is_foreign(engine)) return SUMI_WRONG_STATE;
    sumi_mutex_lock(&engine->table);
    sumi_slot* slot = sumi_job_find(engine, job);
    sumi_result result = slot == NULL ? SUMI_STALE_HANDLE : SUMI_WRONG_STATE;
    if (slot != NULL && slot->status.state == SUMI_JOB_QUEUED) {
        engine->queued_count += (int32_t)slot->status.paused - (int32_t)paused;
        slot->status.paused = paused;
        result = SUMI_OK;
    } else if (slot != NULL && slot->status.state == SUMI_JOB_RUNNING && !(paused && sumi_job_is_load(slot))) {
        slot->pause_asked = slot->status.paused = paused;
        result = SUMI_OK;
    }
    sumi_condition_broadcast(&engine->changed);
    sumi_mutex_unlock(&engine->table);
    return result;
}

sumi_result sumi_job_set_priority(sumi_engine* engine, sumi_job job, int32_t priority)
{
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    if (sumi_call_is_foreign(engine)) return SUMI_WRONG_STATE;
    sumi_mutex_lock(&engine->table);
    sumi_slot* slot = sumi_job_find(engine, job);
    const bool is_queued = slot != NULL && slot->status.state == SUMI_JOB_QUEUED;
    if (is_queued) slot->priority = priority;
    sumi_mutex_unlock(&engine->table);
    if (slot == NULL) return SUMI_STALE_HANDLE;
    return is_queued ? SUMI_OK : SUMI_WRONG_STATE;
}

// Whether a list of jobs names `a` before `b`.
static bool is_listed_before(const sumi_slot* a, const sumi_slot* b)
{
    const bool is_a_queued = a->status.state == SUMI_JOB_QUEUED, is_b_queued = b->status.state == SUMI_JOB_QUEUED;
    const int32_t group_a = sumi_job_is_final(a) ? 2 : is_a_queued, group_b = sumi_job_is_final(b) ? 2 : is_b_queued;
    if (group_a != group_b) return group_a < group_b;
    return is_a_queued ? sumi_job_is_before(a, b) : a->order < b->order;
}

int32_t sumi_job_list(const sumi_engine* asked, sumi_job* into, int32_t capacity)
{
    if (asked == NULL || sumi_call_is_foreign(asked)) return 0;
    sumi_engine* engine = (sumi_engine*)asked;
    const int32_t room = into == NULL ? 0 : capacity;
    int32_t count = 0, written = 0;
    sumi_mutex_lock(&engine->table);
    // Each goes to its place among those before it, so that nothing but the caller's memory is needed.
    for (int32_t i = 0; i < engine->slot_count; i++) {
        const sumi_slot* slot = &engine->slots[i];
        if (!is_listed(slot)) continue;
        count++;
        int32_t low = 0, high = written;
        while (low < high) {
            const int32_t middle = low + (high - low) / 2;
            const bool is_after = is_listed_before(sumi_job_find(engine, into[middle]), slot);
            low = is_after ? middle + 1 : low;
            high = is_after ? high : middle;
        }
        if (low >= room) continue;
        written += written < room;
        memmove(into + low + 1, into + low, (size_t)(written - low - 1) * sizeof *into);
        into[low] = (sumi_job){slot->id};
    }
    sumi_mutex_unlock(&engine->table);
    return count;
}

static void discard(sumi_engine* engine, sumi_job job)
{
    sumi_mutex_lock(&engine->table);
    sumi_slot* slot = sumi_job_find(engine, job);
    bool frees = false, has_weights = false;
    if (slot != NULL) {
        if (!sumi_job_is_final(slot)) ask_to_cancel(engine, slot);
        frees = sumi_job_is_final(slot);
        has_weights = sumi_job_is_load(slot);
        forget_to_tell(engine, slot);
        slot->is_discarded = true; // from here on the id is stale, and a thread of ours may free the slot
    }
    sumi_mutex_unlock(&engine->table);
    if (slot == NULL) return;
    if (frees && has_weights) { // taken off a device while nothing else is done there
        sumi_work_lock(engine);
        sumi_job_free(engine, slot);
        sumi_work_unlock(engine);
    } else if (frees) {
        sumi_job_free(engine, slot);
    } else if (engine->desc.pump == SUMI_PUMP_UPDATE) {
        // Between two updates nothing runs, so the slot is free at once.
        sumi_work_lock(engine);
        if (engine->running == slot || engine->leaving == slot) {
            sumi_error cancelled = {SUMI_CANCELLED, "discarded while it ran"};
            sumi_job_end(engine, slot, SUMI_JOB_CANCELLED, &cancelled);
        }
        sumi_work_unlock(engine);
    }
}

void sumi_job_discard(sumi_engine* engine, sumi_job job)
{
    if (engine == NULL || sumi_call_begin(engine, "sumi_job_discard") != SUMI_OK) return;
    discard(engine, job);
    (void)sumi_call_end(engine, SUMI_OK, NULL);
}
