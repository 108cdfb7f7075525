#include "jobs/job_targets.h"
#include "jobs/objects.h"
#include "jobs/plan_job.h"
#include <stdatomic.h>

static bool uses(const sumi_target* target, const sumi_external* external)
{
    return target->external != NULL
        && (target->external == external || target->wait.semaphore == external || target->signal.semaphore == external);
}

static void forget_externals(sumi_target* target)
{
    target->external = target->wait.semaphore = target->signal.semaphore = NULL;
}

void sumi_plan_job_mark_targets(sumi_plan_job* job, bool is_used)
{
    for (int32_t i = 0; job->request.items != NULL && i < job->request.item_count; i++) {
        sumi_target* target = &job->request.items[i].target;
        if (target->external != NULL) atomic_store(&target->external->is_used, is_used);
        // The host program may release the external while the job slot still exists.
        if (!is_used) forget_externals(target);
    }
}

bool sumi_plan_job_uses_external(const sumi_plan_job* job, const sumi_external* external)
{
    for (int32_t i = 0; i < job->request.item_count; i++) {
        if (uses(&job->request.items[i].target, external)) return true;
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
}
