#include "jobs/job_shortage.h"
#include "base/assert.h"
#include "base/result.h"
#include "jobs/device_limit.h"
#include "jobs/engine_state.h"
#include "jobs/held_memory.h"
#include "jobs/log.h"
#include "jobs/pause.h"
#include "jobs/plan_cache.h"
#include "jobs/plan_job.h"
#include "pacing/shortage_limit.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include <stdio.h>

// The first eviction removes weights that other plans read only once per job, the second those that their steps read.
#define MAX_EVICTIONS 2

// Evicts weights that the job's plan does not use. False: there are none left, or all evictions were made.
static bool evicts_weights(sumi_engine* engine, sumi_plan_job* job)
{
    if (job->shortage.evictions == MAX_EVICTIONS || job->progress.entry == NULL) return false;
    sumi_engine_release(engine);
    const bool is_any = engine->runner->functions->evict(engine->runner, &job->progress.entry->plan);
    job->shortage.evictions = is_any ? job->shortage.evictions + 1 : MAX_EVICTIONS;
    return is_any;
}

static void halve_batch(sumi_engine* engine, sumi_plan_job* job)
{
    SUMI_ASSERT(job->progress.batch_count > 1);
    sumi_plan_job_free_saved_state(engine, job); // a saved state belongs to a batch of the former size
    char text[160];
    job->progress.batch_count = (job->progress.batch_count + 1) / 2;
    sumi_engine_release(engine); // the next arena is smaller, and weights may need the memory
    snprintf(text, sizeof text,
             "the device has no memory left for the batch: trying again with %d of its %d images at a time",
             (int)job->progress.batch_count, (int)job->request.item_count);
    sumi_log_write(engine, SUMI_LOG_WARNING, SUMI_OK, text);
}

// A bound that is never reached: more than all tries below together, which are 2 evictions, 6 halvings, 1 raised limit,
// 1 smallest form, and SUMI_MAX_LOWERED lowered limits.
#define MAX_TRIES 32

bool sumi_plan_job_tries_again(sumi_engine* engine, sumi_plan_job* job, sumi_result result, sumi_error* error)
{
    sumi_job_shortage* shortage = &job->shortage;
    SUMI_ASSERT(result != SUMI_OK);
    if (result != SUMI_OUT_OF_DEVICE_MEMORY) return false;
    const bool allocation_failed = engine->shortage.retry_is_pending;
    engine->shortage.retry_is_pending = false;
    bool goes_on = ++shortage->attempts <= MAX_TRIES;
    if (goes_on && allocation_failed && job->progress.batch_count > 1) {
        if (!evicts_weights(engine, job)) halve_batch(engine, job);
    } else if (goes_on && allocation_failed) {
        const sumi_plan* plan = job->progress.entry != NULL ? &job->progress.entry->plan : NULL;
        engine->shortage.retry_is_pending = true;
        goes_on = shortage->lowered_limits++ < SUMI_MAX_LOWERED && sumi_limit_lower(engine, plan);
    } else if (goes_on && !shortage->has_raised && shortage->lowered_limits == 0 && sumi_limit_raise(engine)) {
        shortage->has_raised = true;
    } else if (goes_on && job->progress.batch_count > 1) {
        halve_batch(engine, job);
    } else if (goes_on) {
        goes_on = !shortage->has_tried_smallest && sumi_limit_raise_to_smallest_form(engine);
        shortage->has_tried_smallest = true;
    }
    if (!goes_on) {
        engine->shortage = (sumi_shortage_limit){0};
        return false;
    }
    *error = (sumi_error){0};
    sumi_plan_job_enter(job, SUMI_PHASE_PLAN);
    return true;
}
