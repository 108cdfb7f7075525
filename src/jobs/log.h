// The log of the host program, the newest failure, and the threads on which callbacks of the host program run.
//
// The functions may run on any thread, with or without the pump lock (engine_state.h), but never while the thread holds
// `state_lock`, which they may lock for a moment.
#ifndef SUMI_JOBS_LOG_H
#define SUMI_JOBS_LOG_H
#include "base/platform.h"
#include "base/result.h"
#include <stdatomic.h>
#include <sumi.h>

// The threads that are inside the engine, and its newest failure. A part of the engine.
typedef struct sumi_callers {
    // Threads on which callbacks of the host program run, as sumi_this_thread() returns them; 0: none. `caller` is
    // inside a public function that may not be called beside others; `logger` is inside the host program's log
    // callback.
    atomic_uintptr_t caller, logger;
    atomic_uintptr_t pump, loader; // the pump's thread, and the thread that loads kernels, while they run
    sumi_process_mark process;     // of the process that created the engine; never changes
    sumi_error last_error;         // what sumi_engine_last_error returns; protected by `state_lock`
} sumi_callers;

// Calls the host program's log, and keeps an error for sumi_engine_last_error. Do not hold `state_lock`.
void sumi_log_write(const sumi_engine* engine, sumi_log_level level, sumi_result result, const char* text);
// Logs a failure as an error and returns its result. Do not hold `state_lock`.
sumi_result sumi_log_failure(const sumi_engine* engine, const sumi_error* error);

// For free calls (sumi.h) that are refused because of what a job has done meanwhile. sumi_engine_last_error gives the
// text, and the log gets it at the level DEBUG, because a host program that calls at the wrong moment has made no
// mistake. Do not hold `state_lock`.
void sumi_log_refusal(const sumi_engine* engine, const sumi_error* error);
#endif
