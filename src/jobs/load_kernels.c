#include "jobs/load_kernels.h"
#include "base/assert.h"
#include "base/platform.h"
#include "base/result.h"
#include "jobs/engine_state.h"
#include "jobs/log.h"
#include "plan/runner.h"
#include <stdatomic.h>

static void load_main(void* context)
{
    sumi_engine* engine = context;
    bool is_done = false;
    float progress = 0.0f;
    atomic_store(&engine->callers.loader, sumi_this_thread());
    while (!is_done
           && engine->runner->functions->load(engine->runner, &is_done, &progress, &engine->kernels.error) == SUMI_OK)
        continue;
    atomic_store(&engine->callers.loader, 0);
    atomic_store(&engine->kernels.is_over, true);
}

sumi_result sumi_kernels_load(sumi_engine* engine, bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    *out_done = !engine->runner->traits.needs_preparing || engine->kernels.is_done;
    if (*out_done) return SUMI_OK;
    if (!engine->kernels.has_thread) {
        engine->kernels.error = (sumi_error){0};
        atomic_store(&engine->kernels.is_over, false);
        engine->kernels.start = (sumi_thread_start){load_main, engine, true, "sumi kernels"};
        engine->kernels.has_thread = sumi_thread_begin(&engine->kernels.thread, &engine->kernels.start);
        if (!engine->kernels.has_thread)
            return sumi_fail(error, SUMI_OUT_OF_HOST_MEMORY, "the system has no thread to load the kernels with");
    }
    if (!atomic_load(&engine->kernels.is_over)) return SUMI_OK;
    sumi_kernels_stop_loading(engine);
    if (engine->kernels.error.result != SUMI_OK) return sumi_fail_with(error, &engine->kernels.error);
    *out_done = engine->kernels.is_done = true;
    return SUMI_OK;
}

void sumi_kernels_stop_loading(sumi_engine* engine)
{
    SUMI_ASSERT(sumi_pump_is_locked(engine));
    if (!engine->kernels.has_thread) return;
    sumi_thread_join(&engine->kernels.thread);
    engine->kernels.has_thread = false;
}
