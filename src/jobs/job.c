#include "jobs/job.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/result.h"
#include "base/result_text.h"
#include "jobs/buffers.h"
#include "jobs/engine_state.h"
#include "jobs/job_memory.h"
#include "jobs/log.h"
#include "jobs/objects.h"
#include "jobs/plan_job.h"
#include <stdatomic.h>
#include <string.h>

sumi_result sumi_job_reserve(sumi_engine* engine, sumi_job_kind kind, const sumi_job_functions* functions,
                             sumi_job_slot** out_slot, sumi_error* error)
{
    SUMI_ASSERT(functions != NULL && functions->advance != NULL && functions->drop != NULL);
    *out_slot = NULL;
    sumi_mutex_lock(&engine->state_lock);
    if (engine->jobs.free_count == 0) {
        sumi_mutex_unlock(&engine->state_lock);
        return sumi_fail(
            error, SUMI_QUEUE_FULL,
            "all %d job slots are taken: fetch or discard a job, or create the engine with a larger job_capacity",
            (int)engine->jobs.slot_count);
    }
    int32_t index = engine->jobs.free_slots[--engine->jobs.free_count];
    SUMI_ASSERT(index >= 0 && index < engine->jobs.slot_count);
    sumi_job_slot* slot = &engine->jobs.slots[index];
    slot->id = (++engine->jobs.next_generation << SUMI_SLOT_BITS) | (uint64_t)index;
    slot->kind = kind;
    slot->status = (sumi_job_status){.state = SUMI_JOB_NONE, .seconds_left = -1.0f, .message = ""};
    slot->cancel_requested = slot->is_discarded = slot->completion_is_pending = slot->pause_requested =
        slot->has_begun = false;
    sumi_mutex_unlock(&engine->state_lock);
    slot->functions = functions;
    slot->model = NULL;
    slot->error = (sumi_error){0};
    slot->profile_count = 0;
    slot->live = (sumi_job_live){.seconds_left = -1.0f};
    memset(slot->stage_seconds, 0, sizeof slot->stage_seconds);
    slot->device_seconds = 0.0;
    memset(&slot->u, 0, sizeof slot->u);
    *out_slot = slot;
    return SUMI_OK;
}

void sumi_job_queue(sumi_engine* engine, sumi_job_slot* slot, int32_t priority, void* user_data, sumi_job* out_job)
{
    SUMI_ASSERT(slot->id != 0 && slot->functions != NULL);
    sumi_mutex_lock(&engine->state_lock);
    slot->priority = priority;
    SUMI_ASSERT(slot->status.state == SUMI_JOB_NONE && !slot->is_discarded && !slot->cancel_requested);
    slot->order = ++engine->jobs.next_order;
    slot->submitted_ns = sumi_clock_ns();
    slot->status.state = SUMI_JOB_QUEUED;
    slot->status.user_data = user_data;
    engine->jobs.queued_count++;
    SUMI_ASSERT(engine->jobs.queued_count + engine->jobs.free_count <= engine->jobs.slot_count);
    out_job->id = slot->id;
    sumi_condition_broadcast(&engine->state_changed);
    sumi_mutex_unlock(&engine->state_lock);
}

void sumi_job_forget_completion(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock));
    if (slot->completion_is_pending) engine->jobs.pending_completion_count--;
    slot->completion_is_pending = false;
}

void sumi_job_free(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(!sumi_mutex_is_held(&engine->state_lock));
    SUMI_ASSERT(slot >= engine->jobs.slots && slot < engine->jobs.slots + engine->jobs.slot_count);
    slot->functions->drop(engine, slot);
    slot->model = NULL;
    sumi_mutex_lock(&engine->state_lock);
    SUMI_ASSERT(slot->id != 0 && engine->jobs.free_count < engine->jobs.slot_count);
    SUMI_ASSERT(slot->status.state == SUMI_JOB_NONE || sumi_job_is_final(slot));
    sumi_job_forget_completion(engine, slot);
    slot->id = 0;
    slot->status = (sumi_job_status){.state = SUMI_JOB_NONE, .message = ""};
    engine->jobs.free_slots[engine->jobs.free_count++] = (int32_t)(slot - engine->jobs.slots);
    sumi_condition_broadcast(&engine->state_changed);
    sumi_mutex_unlock(&engine->state_lock);
}

void sumi_slot_close(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && slot->id == 0);
    SUMI_ASSERT(atomic_load(&engine->memory.image_bytes) >= slot->products.bytes);
    atomic_fetch_sub(&engine->memory.image_bytes, slot->products.bytes);
    sumi_block_free(&engine->heap, &slot->lists);
    sumi_block_free(&engine->heap, &slot->input);
    sumi_block_free(&engine->heap, &slot->products);
    sumi_free(&engine->heap, slot->profile);
    slot->profile = NULL;
}

double sumi_job_predict_load(const sumi_engine* engine, const sumi_job_slot* slot)
{
    (void)slot;
    return engine->overhead_us[SUMI_OVERHEAD_LOAD];
}

bool sumi_job_is_listed(const sumi_job_slot* slot)
{
    return slot->id != 0 && !slot->is_discarded && slot->status.state != SUMI_JOB_NONE;
}

sumi_job_slot* sumi_job_find(const sumi_engine* engine, sumi_job handle)
{
    SUMI_ASSERT(sumi_mutex_is_held(&engine->state_lock));
    uint64_t index = handle.id & ((UINT64_C(1) << SUMI_SLOT_BITS) - 1);
    if (handle.id == 0 || index >= (uint64_t)engine->jobs.slot_count) return NULL;
    sumi_job_slot* slot = &engine->jobs.slots[index];
    return slot->id == handle.id && sumi_job_is_listed(slot) ? slot : NULL;
}

bool sumi_job_is_before(const sumi_job_slot* a, const sumi_job_slot* b)
{
    return a->priority > b->priority || (a->priority == b->priority && a->order < b->order);
}
bool sumi_job_is_load(const sumi_job_slot* slot)
{
    return slot->kind == SUMI_JOB_KIND_MODEL || slot->kind == SUMI_JOB_KIND_LORA || slot->kind == SUMI_JOB_KIND_CONTROL;
}

bool sumi_job_is_final(const sumi_job_slot* slot) { return slot->status.state >= SUMI_JOB_DONE; }

sumi_result sumi_job_finished(const sumi_engine* engine, sumi_job handle, sumi_job_kind kind, sumi_job_slot** out_slot,
                              sumi_error* error)
{
    SUMI_ASSERT(out_slot != NULL);
    // The engine is const for the host program. The lock is not part of that.
    sumi_engine* locked = (sumi_engine*)engine;
    sumi_mutex_lock(&locked->state_lock);
    sumi_job_slot* slot = sumi_job_find(engine, handle);
    bool is_final = slot != NULL && sumi_job_is_final(slot), is_right = slot != NULL && slot->kind == kind;
    const char* name = slot != NULL ? slot->functions->name : "";
    sumi_mutex_unlock(&locked->state_lock);
    *out_slot = NULL;
    if (slot == NULL) {
        return sumi_fail(error, SUMI_STALE_HANDLE, "job %llu was fetched or discarded before, or never existed",
                         (unsigned long long)handle.id);
    }
    if (!is_right)
        return sumi_fail(error, SUMI_WRONG_STATE, "job %llu is %s: fetch it with the function for its kind",
                         (unsigned long long)handle.id, name);
    if (!is_final)
        return sumi_fail(error, SUMI_WRONG_STATE, "job %llu (%s) is not done yet: poll it, or wait for it",
                         (unsigned long long)handle.id, name);
    *out_slot = slot;
    return SUMI_OK;
}

// ---- Externals --------------------------------------------------------------------------------------------------------

static bool uses(const sumi_target* target, const sumi_external* external)
{
    return target->external != NULL
        && (target->external == external || target->wait.semaphore == external || target->signal.semaphore == external);
}

static void forget_externals(sumi_target* target)
{
    target->external = target->wait.semaphore = target->signal.semaphore = NULL;
}

// The n-th depth buffer of the job's control nets that has an external; NULL: there is none.
static sumi_depth* external_depth(const sumi_plan_job* job, int32_t n)
{
    for (int32_t c = 0; c < job->request.control_count; c++) {
        const sumi_job_control* control = &job->request.controls[c];
        for (int32_t p = 0; control->pictures != NULL && p < control->picture_count; p++) {
            sumi_depth* depth = &control->pictures[p].depth;
            if (depth->external != NULL && n-- == 0) return depth;
        }
    }
    return NULL;
}

static void forget_depth(sumi_depth* depth)
{
    atomic_store(&depth->external->is_used, false);
    depth->external = depth->wait.semaphore = depth->signal.semaphore = NULL;
}

void sumi_plan_job_mark_externals(sumi_plan_job* job, bool is_used)
{
    for (int32_t n = 0; is_used && external_depth(job, n) != NULL; n++)
        atomic_store(&external_depth(job, n)->external->is_used, true);
    while (!is_used && external_depth(job, 0) != NULL) forget_depth(external_depth(job, 0));
    for (int32_t i = 0; job->request.items != NULL && i < job->request.item_count; i++) {
        sumi_target* target = &job->request.items[i].target;
        if (target->external != NULL) atomic_store(&target->external->is_used, is_used);
        // The host program may release the external while the job slot still exists.
        if (!is_used) forget_externals(target);
    }
}

// Whether a target of the job names the external, as memory or as a semaphore, or a depth buffer as memory.
static bool targets_external(const sumi_plan_job* job, const sumi_external* external)
{
    for (int32_t i = 0; i < job->request.item_count; i++) {
        if (uses(&job->request.items[i].target, external)) return true;
    }
    // The semaphores of a depth buffer were used up when the job was submitted.
    for (int32_t n = 0; external_depth(job, n) != NULL; n++) {
        if (external_depth(job, n)->external == external) return true;
    }
    return false;
}

void sumi_plan_job_forget_external(sumi_plan_job* job, const sumi_external* external)
{
    for (int32_t i = 0; job->request.items != NULL && i < job->request.item_count; i++) {
        sumi_target* target = &job->request.items[i].target;
        if (!uses(target, external)) continue;
        atomic_store(&target->external->is_used, false);
        forget_externals(target);
    }
    for (int32_t n = 0; external_depth(job, n) != NULL;) {
        if (external_depth(job, n)->external == external) forget_depth(external_depth(job, n));
        else n++;
    }
}

// ---- Ending a job ---------------------------------------------------------------------------------------------------

// The arguments of the completion callback, copied because another thread may fetch or discard the job before the call.
typedef struct ended_job {
    sumi_job handle;
    sumi_job_state state;
    void* user_data;
} ended_job;

static void call_completion(const sumi_engine* engine, const ended_job* ended)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && !sumi_mutex_is_held(&engine->state_lock)
                && ended->state >= SUMI_JOB_DONE);
    const sumi_completion* completion = engine->desc.completion;
    if (completion->ended != NULL)
        completion->ended(ended->handle, ended->state, ended->user_data, completion->user_data);
}

void sumi_jobs_call_completions(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    sumi_mutex_lock(&engine->state_lock);
    for (int32_t i = 0; i < engine->jobs.slot_count && engine->jobs.pending_completion_count > 0; i++) {
        sumi_job_slot* slot = &engine->jobs.slots[i];
        if (slot->id == 0 || !slot->completion_is_pending) continue;
        slot->completion_is_pending = false;
        engine->jobs.pending_completion_count--;
        const ended_job ended = {{slot->id}, slot->status.state, slot->status.user_data};
        sumi_mutex_unlock(&engine->state_lock);
        call_completion(engine, &ended);
        sumi_mutex_lock(&engine->state_lock);
    }
    sumi_mutex_unlock(&engine->state_lock);
}

void sumi_job_end(sumi_engine* engine, sumi_job_slot* slot, sumi_job_state state, const sumi_error* error)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && slot->id != 0);
    SUMI_ASSERT(state == SUMI_JOB_DONE || state == SUMI_JOB_FAILED || state == SUMI_JOB_CANCELLED);
    SUMI_ASSERT((error->result == SUMI_OK) == (state == SUMI_JOB_DONE));
    if (engine->jobs.running == slot || engine->jobs.draining == slot) {
        if (state != SUMI_JOB_DONE) sumi_held_inputs_forget(&engine->held_inputs);
        if (slot->functions->stop != NULL) slot->functions->stop(engine, slot);
        if (engine->jobs.running == slot) engine->jobs.running = NULL;
        else engine->jobs.draining = NULL;
        sumi_engine_trim(engine);
    }
    const bool has_running = engine->jobs.running != NULL || engine->jobs.draining != NULL;
    // Dropped now and not at the fetch, because the pump lock is held now: a partly loaded model may have weights on a
    // device.
    if (state != SUMI_JOB_DONE) slot->functions->drop(engine, slot);
    slot->error = *error;
    if (slot->error.result != SUMI_OK && slot->error.text[0] == '\0') {
        const char* text = sumi_result_sentence(slot->error.result);
        memcpy(slot->error.text, text, strlen(text) + 1);
    }
    if (state == SUMI_JOB_FAILED) sumi_log_failure(engine, &slot->error);
    sumi_mutex_lock(&engine->state_lock);
    SUMI_ASSERT(slot->status.state == SUMI_JOB_QUEUED || slot->status.state == SUMI_JOB_RUNNING);
    engine->jobs.has_running = has_running;
    SUMI_ASSERT(slot->status.state != SUMI_JOB_QUEUED || engine->jobs.queued_count > 0);
    if (slot->status.state == SUMI_JOB_QUEUED) engine->jobs.queued_count--;
    slot->status.paused = false;
    slot->status.state = state;
    slot->status.result = slot->error.result;
    slot->status.message = slot->error.text;
    slot->status.seconds_left = 0.0f;
    if (state == SUMI_JOB_DONE) slot->status.progress = 1.0f;
    const bool is_discarded = slot->is_discarded;
    const ended_job ended = {{slot->id}, state, slot->status.user_data};
    sumi_condition_broadcast(&engine->state_changed);
    sumi_mutex_unlock(&engine->state_lock);
    if (is_discarded) sumi_job_free(engine, slot);
    else call_completion(engine, &ended);
}

void sumi_job_yield(sumi_engine* engine, sumi_job_slot* slot)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && slot == engine->jobs.running);
    if (slot->functions->stop != NULL) slot->functions->stop(engine, slot);
    engine->jobs.running = NULL;
    sumi_engine_trim(engine);
    sumi_mutex_lock(&engine->state_lock);
    SUMI_ASSERT(slot->status.state == SUMI_JOB_RUNNING);
    engine->jobs.has_running = engine->jobs.draining != NULL;
    slot->status.state = SUMI_JOB_QUEUED;
    slot->status.stage = SUMI_STAGE_WAIT;
    slot->status.pending_us = 0.0f;
    slot->status.paused = slot->pause_requested; // false if the job was resumed meanwhile: then it is only queued
    slot->pause_requested = false;
    engine->jobs.queued_count += !slot->status.paused;
    sumi_condition_broadcast(&engine->state_changed);
    sumi_mutex_unlock(&engine->state_lock);
}

// ---- Cancelling -----------------------------------------------------------------------------------------------------

static bool uses_lora(const sumi_job_slot* slot, const sumi_lora* lora)
{
    if (slot->kind != SUMI_JOB_KIND_IMAGES && slot->kind != SUMI_JOB_KIND_PROMPT) return false;
    for (int32_t i = 0; i < slot->u.plan_job.request.lora_count; i++) {
        if (slot->u.plan_job.request.loras[i] == lora) return true;
    }
    return false;
}

static bool uses_control(const sumi_job_slot* slot, const sumi_control* control)
{
    if (slot->kind != SUMI_JOB_KIND_IMAGES) return false;
    for (int32_t i = 0; i < slot->u.plan_job.request.control_count; i++) {
        if (slot->u.plan_job.request.controls[i].control == control) return true;
    }
    return false;
}

static bool uses_external(const sumi_job_slot* slot, const sumi_external* external)
{
    return slot->kind == SUMI_JOB_KIND_IMAGES && targets_external(&slot->u.plan_job, external);
}

static bool uses_object(const sumi_job_slot* slot, const sumi_used_object* object)
{
    return slot->id != 0 && (object->model == NULL || slot->model == object->model)
        && (object->lora == NULL || uses_lora(slot, object->lora))
        && (object->control == NULL || uses_control(slot, object->control))
        && (object->external == NULL || uses_external(slot, object->external));
}

void sumi_jobs_cancel(sumi_engine* engine, const sumi_used_object* object)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine) && !sumi_mutex_is_held(&engine->state_lock));
    for (int32_t i = 0; i < engine->jobs.slot_count; i++) {
        sumi_job_slot* slot = &engine->jobs.slots[i];
        sumi_mutex_lock(&engine->state_lock);
        const bool is_unaffected = !uses_object(slot, object);
        const bool is_pending =
            !is_unaffected && (slot->status.state == SUMI_JOB_QUEUED || slot->status.state == SUMI_JOB_RUNNING);
        // sumi_job_cancel ends queued jobs itself, from any thread. In state RUNNING it leaves the job to this thread.
        if (is_pending && slot->status.state == SUMI_JOB_QUEUED) {
            slot->status.state = SUMI_JOB_RUNNING;
            engine->jobs.queued_count -= !slot->status.paused;
        }
        sumi_mutex_unlock(&engine->state_lock);
        if (is_unaffected) continue;
        if (is_pending) {
            sumi_error cancelled = {0};
            (void)sumi_fail(&cancelled, SUMI_CANCELLED, "cancelled: its %s",
                            object->lora != NULL       ? "adapter was released"
                            : object->control != NULL  ? "control net was released"
                            : object->external != NULL ? "external was released"
                            : object->model != NULL    ? "model was closed"
                                                       : "engine goes");
            sumi_job_end(engine, slot, SUMI_JOB_CANCELLED, &cancelled);
        }
        if (object->model != NULL) slot->model = NULL;
    }
}
