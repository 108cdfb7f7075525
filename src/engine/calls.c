// Who is inside of the engine: what a callback of the host's may call, and what a process after a fork.
#include "base/assert.h"
#include "engine/engine.h"
#include <stdio.h>

bool sumi_call_is_foreign(const sumi_engine* engine) { return engine->process != sumi_process_id(); }

// Threads that run callbacks: those that are inside of a call, the pump's, and the one that loads kernels.
static bool is_inside(sumi_engine* engine, uintptr_t thread)
{
    return atomic_load(&engine->caller) == thread || atomic_load(&engine->logger) == thread
        || atomic_load(&engine->pump) == thread || atomic_load(&engine->loader) == thread;
}

sumi_result sumi_call_begin(const sumi_engine* asked, const char* function)
{
    sumi_engine* engine = (sumi_engine*)asked; // who is inside is not part of what a host sees as the engine's state
    const uintptr_t thread = sumi_this_thread();
    const bool is_foreign = sumi_call_is_foreign(engine);
    SUMI_ASSERT(thread != 0 && function != NULL);
    if (!is_foreign && !is_inside(engine, thread)) {
        atomic_store(&engine->caller, thread);
        return SUMI_OK;
    }
    // A log that calls the engine again is told of it by the result alone: it would be told without end.
    if (atomic_load(&engine->logger) == thread) return SUMI_WRONG_STATE;
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

sumi_result sumi_call_end(const sumi_engine* asked, sumi_result result, const sumi_error* error)
{
    sumi_engine* engine = (sumi_engine*)asked;
    if (result != SUMI_OK && error != NULL && error->result != SUMI_OK) sumi_log_failure(engine, error);
    // A host that makes two calls at a time has put another thread there, which takes itself away.
    uintptr_t thread = sumi_this_thread();
    (void)atomic_compare_exchange_strong(&engine->caller, &thread, 0);
    return result;
}
