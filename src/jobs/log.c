#include "jobs/log.h"
#include "base/assert.h"
#include "base/platform.h"
#include "base/result.h"
#include "base/result_text.h"
#include "base/utf8.h"
#include "jobs/engine_state.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static void record_error(sumi_engine* engine, sumi_result result, const char* text)
{
    // Before the locks exist no thread can ask for the error. In a child process after a fork, the lock may be held by
    // a thread that exists only in the parent.
    if (!engine->has_locks || sumi_process_is_other(&engine->callers.process)) return;
    sumi_mutex_lock(&engine->state_lock);
    engine->callers.last_error.result = result;
    snprintf(engine->callers.last_error.text, sizeof engine->callers.last_error.text, "%s", text);
    sumi_mutex_unlock(&engine->state_lock);
}

void sumi_log_write(const sumi_engine* engine, sumi_log_level level, sumi_result result, const char* text)
{
    SUMI_ASSERT(text != NULL && !sumi_mutex_is_held(&engine->state_lock));
    char shown[SUMI_ERROR_TEXT_BYTES];
    (void)sumi_utf8_show(shown, sizeof shown, text, strlen(text));
    sumi_engine* inside = (sumi_engine*)engine;
    if (level == SUMI_LOG_ERROR) record_error(inside, result, shown);
    const sumi_log* log = &engine->desc.log;
    if (log->write == NULL) return;
    uintptr_t thread = sumi_this_thread();
    const bool is_outermost = atomic_exchange(&inside->callers.logger, thread) != thread;
    log->write(level, result, shown, log->user_data);
    // If another thread has begun to log meanwhile, `logger` is that thread, which clears the member itself.
    if (is_outermost) (void)atomic_compare_exchange_strong(&inside->callers.logger, &thread, 0);
}

// "files/gguf.c" of any path that a compiler makes of it: the log does not show where the library was built.
static const char* end_of_path(const char* path)
{
    const char *from = path, *last = path;
    for (const char* c = path; *c != '\0'; c++) {
        if (*c == '/' || *c == '\\') {
            from = last;
            last = c + 1;
        }
    }
    return from;
}

sumi_result sumi_log_failure(const sumi_engine* engine, const sumi_error* error)
{
    SUMI_ASSERT(error->result != SUMI_OK);
    sumi_log_write(engine, SUMI_LOG_ERROR, error->result,
                   error->text[0] != '\0' ? error->text : sumi_result_sentence(error->result));
    if (error->file != NULL) {
        char origin[256];
        snprintf(origin, sizeof origin, "the failure was found in %s, line %d", end_of_path(error->file), error->line);
        sumi_log_write(engine, SUMI_LOG_DEBUG, error->result, origin);
    }
    return error->result;
}

void sumi_log_refusal(const sumi_engine* engine, const sumi_error* error)
{
    SUMI_ASSERT(error->result != SUMI_OK);
    record_error((sumi_engine*)engine, error->result, error->text);
    // The log callback may make free calls. Logging their failures would call it again, without end.
    if (atomic_load(&engine->callers.logger) != sumi_this_thread())
        sumi_log_write(engine, SUMI_LOG_DEBUG, error->result, error->text);
}
