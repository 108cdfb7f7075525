// What every public function does first and last, and the log.
#ifndef SUMI_ENGINE_CALLS_H
#define SUMI_ENGINE_CALLS_H
#include "base/result.h"
#include <stdatomic.h>
#include <sumi.h>

// The threads that are inside of the engine, and what was told last.
typedef struct sumi_callers {
    // sumi_this_thread() of who is inside; 0: nobody. A callback of the host's is on one of these threads
    atomic_uintptr_t caller, logger; // in a call that others may not be made beside; in the host's log
    atomic_uintptr_t pump, loader;   // of the pump's thread and of the one that loads kernels, while they run
    uint64_t process;                // that made the engine
    sumi_error last_error;           // what sumi_engine_last_error tells; under `table`
} sumi_callers;

// Tells the host's log. Not while holding `table`.
void sumi_log_write(const sumi_engine* engine, sumi_log_level level, sumi_result result, const char* text);
// The same for a failure, which it returns: the end of every public function.
sumi_result sumi_log_failure(const sumi_engine* engine, const sumi_error* error);

// The first and the last thing in every public function but those that may be called beside others. begin refuses with
// SUMI_WRONG_STATE what comes from inside of a callback, or from another process; there is no end then. end logs the
// error of a call that has failed, and returns the result.
sumi_result sumi_call_begin(const sumi_engine* engine, const char* function);
sumi_result sumi_call_end(const sumi_engine* engine, sumi_result result, const sumi_error* error);
bool sumi_call_is_foreign(const sumi_engine* engine); // this process is not the one that made the engine

// One line per rule in the checks of descs.
#define SUMI_REFUSE(condition, result, ...)                                                                            \
    do {                                                                                                               \
        if (condition) return sumi_fail(error, result, __VA_ARGS__);                                                   \
    } while (0)

// "this desc was made by its defaults function"
#define SUMI_COOKIE_ENGINE 0x53754531u
#define SUMI_COOKIE_MODEL 0x53754d31u
#define SUMI_COOKIE_PROMPT 0x53755031u
#define SUMI_COOKIE_LORA 0x53754c31u
#define SUMI_COOKIE_IMAGE 0x53754931u
#define SUMI_COOKIE_ENCODE 0x53754331u
#define SUMI_COOKIE_XML_PROMPT 0x53755831u
sumi_result sumi_check_cookie(uint32_t cookie, uint32_t right, const char* type, const char* function,
                              sumi_error* error);
#endif
