// What every public function does first and last, and the log.
//
// The functions may run on any thread, with or without the pump lock (engine.h), but never while the thread holds
// `state_lock`, which they may lock for a moment.
#ifndef SUMI_ENGINE_CALLS_H
#define SUMI_ENGINE_CALLS_H
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

// Every public function begins and ends with these two, except those that may be called beside any other call.
// sumi_call_begin returns SUMI_WRONG_STATE for a call from inside a callback or from another process; the function then
// returns without sumi_call_end. sumi_call_end logs the error of a failed call, and returns `result`.
sumi_result sumi_call_begin(const sumi_engine* engine, const char* function);
sumi_result sumi_call_end(const sumi_engine* engine, sumi_result result, const sumi_error* error);
bool sumi_call_is_foreign(const sumi_engine* engine); // this process is not the one that created the engine

// Returns a failure from the enclosing function when the condition is true. That function has a parameter `error`. Used
// in the checks of descs, one statement per rule.
#define SUMI_REFUSE(condition, result, ...)                                                                            \
    do {                                                                                                               \
        if (condition) return sumi_fail(error, result, __VA_ARGS__);                                                   \
    } while (0)

// The values of `cookie` that the defaults functions write. A desc with another value was not made by its function.
#define SUMI_COOKIE_ENGINE 0x53754531u
#define SUMI_COOKIE_MODEL 0x53754d31u
#define SUMI_COOKIE_PROMPT 0x53755031u
#define SUMI_COOKIE_LORA 0x53754c31u
#define SUMI_COOKIE_IMAGE 0x53754931u
#define SUMI_COOKIE_ENCODE 0x53754331u
#define SUMI_COOKIE_XML_PROMPT 0x53755831u
#define SUMI_COOKIE_IMPORT 0x53754d32u
// Returns SUMI_DESC_NOT_INITIALIZED if `cookie` is not `right`. The text names the desc's type and defaults function.
sumi_result sumi_check_cookie(uint32_t cookie, uint32_t expected_cookie, const char* type, const char* function,
                              sumi_error* error);
#endif
