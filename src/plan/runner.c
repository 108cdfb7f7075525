#include "plan/runner.h"
#include "base/assert.h"

void sumi_runner_begin_plan(const sumi_runner* runner, sumi_plan* plan, sumi_heap* heap)
{
    SUMI_ASSERT(runner != NULL && plan != NULL && heap != NULL);
    sumi_plan_begin(plan, heap, (int32_t)runner->functions->element_bytes(runner, SUMI_ELEMENT_ACTIVATION));
    plan->arrange = runner->functions->arrange;
    plan->runner = runner;
}
