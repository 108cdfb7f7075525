// What every public function does first and last, and the checks that all descs have.
//
// The functions may run on any thread, with or without the pump lock (engine_state.h), but never while the thread holds
// `state_lock`, which they may lock for a moment.
#ifndef SUMI_ENGINE_CALLS_H
#define SUMI_ENGINE_CALLS_H
#include "base/result.h"
#include "jobs/job.h"
#include <sumi.h>

// Every public function begins and ends with these two, except those that may be called beside any other call.
// sumi_call_begin returns SUMI_WRONG_STATE for a call from inside a callback or from another process; the function then
// returns without sumi_call_end. sumi_call_end logs the error of a failed call, and returns `result`.
sumi_result sumi_call_begin(const sumi_engine* engine, const char* function);
sumi_result sumi_call_end(const sumi_engine* engine, sumi_result result, const sumi_error* error);
// sumi_call_begin for a public function that submits a job. Clears out_job's handle, and fails also if the engine, the
// desc or out_job is NULL.
sumi_result sumi_call_begin_submit(sumi_engine* engine, const char* function, const void* desc, sumi_job* out_job);
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
#define SUMI_COOKIE_CONTROL 0x53755431u
#define SUMI_COOKIE_IMAGE 0x53754931u
#define SUMI_COOKIE_ENCODE 0x53754331u
#define SUMI_COOKIE_XML_PROMPT 0x53755831u
#define SUMI_COOKIE_IMPORT 0x53754d32u
// Returns SUMI_DESC_NOT_INITIALIZED if `cookie` is not `right`. The text names the desc's type and defaults function.
sumi_result sumi_check_cookie(uint32_t cookie, uint32_t expected_cookie, const char* type, const char* function,
                              sumi_error* error);

// ---- Fetches of objects ---------------------------------------------------------------------------------------------

// The body of a public function that fetches an object (a model, a prompt, an adapter), which functions->take returns.
// NULL after a failure.
typedef struct sumi_object_fetch {
    const char* function; // the public function
    sumi_job_kind kind;
    const char* out_name; // name of its out parameter, for messages
} sumi_object_fetch;
// has_out: the out parameter is not NULL.
void* sumi_call_fetch_object(sumi_engine* engine, sumi_job handle, const sumi_object_fetch* fetch, bool has_out,
                             sumi_result* out_result);
#endif
