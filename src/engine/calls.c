// What every public function does first and last: it refuses calls from callbacks and forked processes, logs failures,
// and checks that a desc was made by its defaults function.
#include "engine/calls.h"
#include "base/assert.h"
#include "base/platform.h"
#include "base/result.h"
#include "base/utf8.h"
#include "jobs/engine_state.h"
#include "jobs/job.h"
#include "jobs/log.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

bool sumi_call_is_foreign(const sumi_engine* engine) { return sumi_process_is_other(&engine->callers.process); }

// ---- The log --------------------------------------------------------------------------------------------------------

sumi_result sumi_engine_last_error(const sumi_engine* const_engine, char* into, size_t capacity)
{
    if (into != NULL && capacity > 0) into[0] = '\0';
    if (const_engine == NULL || (into == NULL && capacity > 0)) return SUMI_INVALID_ARGUMENT;
    if (sumi_call_is_foreign(const_engine)) return SUMI_WRONG_STATE;
    sumi_engine* engine = (sumi_engine*)const_engine; // only the lock changes
    sumi_mutex_lock(&engine->state_lock);
    const sumi_result result = engine->callers.last_error.result;
    const char* text = engine->callers.last_error.text;
    (void)sumi_utf8_show(into, capacity, text, strlen(text)); // which ends in no character's middle if it is cut
    sumi_mutex_unlock(&engine->state_lock);
    return result;
}

// ---- Calls from callbacks -------------------------------------------------------------------------------------------

// Whether the thread may be inside a callback of the host program: callbacks run on a thread that is inside a call, on
// the pump's thread, and on the thread that loads kernels.
static bool is_inside(sumi_engine* engine, uintptr_t thread)
{
    return atomic_load(&engine->callers.caller) == thread || atomic_load(&engine->callers.logger) == thread
        || atomic_load(&engine->callers.pump) == thread || atomic_load(&engine->callers.loader) == thread;
}

sumi_result sumi_call_begin(const sumi_engine* const_engine, const char* function)
{
    // The engine is const for the host program. `callers` is not part of that.
    sumi_engine* engine = (sumi_engine*)const_engine;
    const uintptr_t thread = sumi_this_thread();
    const bool is_foreign = sumi_call_is_foreign(engine);
    SUMI_ASSERT(thread != 0 && function != NULL);
    if (!is_foreign && !is_inside(engine, thread)) {
        atomic_store(&engine->callers.caller, thread);
        return SUMI_OK;
    }
    // The log callback itself made this call. Logging this failure would call it again, without end, so only the result
    // reports it.
    if (atomic_load(&engine->callers.logger) == thread) return SUMI_WRONG_STATE;
    char text[256];
    if (is_foreign)
        snprintf(text, sizeof text,
                 "%s: the engine belongs to the process that this one was forked from, and its threads are there; "
                 "make an engine after the fork",
                 function);
    else
        snprintf(text, sizeof text,
                 "%s was called from inside of a callback of the same engine (log, allocator, files, tasks, tracer or "
                 "completion), "
                 "where it would wait for itself: call it when the callback has returned",
                 function);
    sumi_log_write(engine, SUMI_LOG_ERROR, SUMI_WRONG_STATE, text);
    return SUMI_WRONG_STATE;
}

sumi_result sumi_call_end(const sumi_engine* const_engine, sumi_result result, const sumi_error* error)
{
    sumi_engine* engine = (sumi_engine*)const_engine;
    if (result != SUMI_OK && error != NULL && error->result != SUMI_OK) sumi_log_failure(engine, error);
    // If the host program makes two calls at the same time, against the rules, `caller` may be the other thread, which
    // clears the member itself.
    uintptr_t thread = sumi_this_thread();
    (void)atomic_compare_exchange_strong(&engine->callers.caller, &thread, 0);
    return result;
}

sumi_result sumi_call_begin_submit(sumi_engine* engine, const char* function, const void* desc, sumi_job* out_job)
{
    if (out_job != NULL) out_job->id = 0;
    if (engine == NULL) return SUMI_INVALID_ARGUMENT;
    SUMI_TRY(sumi_call_begin(engine, function));
    if (desc != NULL && out_job != NULL) return SUMI_OK;
    sumi_error error = {0};
    const sumi_result result = sumi_fail(&error, SUMI_INVALID_ARGUMENT, "%s: desc or out_job is NULL", function);
    return sumi_call_end(engine, result, &error);
}

// ---- Descs ----------------------------------------------------------------------------------------------------------

sumi_result sumi_check_cookie(uint32_t cookie, uint32_t expected_cookie, const char* type, const char* function,
                              sumi_error* error)
{
    SUMI_ASSERT(type != NULL && function != NULL);
    if (cookie == expected_cookie) return SUMI_OK;
    return sumi_fail(error, SUMI_DESC_NOT_INITIALIZED,
                     "this %s was not made by %s(): begin with what that returns and change members", type, function);
}

// ---- Fetches of objects ---------------------------------------------------------------------------------------------

void* sumi_call_fetch_object(sumi_engine* engine, sumi_job handle, const sumi_object_fetch* fetch, bool has_out,
                             sumi_result* out_result)
{
    *out_result = engine != NULL ? sumi_call_begin(engine, fetch->function) : SUMI_INVALID_ARGUMENT;
    if (*out_result != SUMI_OK) return NULL;
    sumi_error error = {0};
    sumi_job_slot* slot = NULL;
    void* object = NULL;
    sumi_result result;
    if (!has_out) result = sumi_fail(&error, SUMI_INVALID_ARGUMENT, "%s: %s is NULL", fetch->function, fetch->out_name);
    else result = sumi_job_finished(engine, handle, fetch->kind, &slot, &error);
    if (slot != NULL) {
        result = slot->error.result;
        if (result == SUMI_OK) object = slot->functions->take(slot);
        sumi_job_free(engine, slot);
    }
    *out_result = sumi_call_end(engine, result, &error);
    return object;
}
