// What the adapters of a plan (sumi_plan_adapters) add to its ops.
#ifndef SUMI_PLAN_VERB_ADAPTERS_H
#define SUMI_PLAN_VERB_ADAPTERS_H
#include "plan/plan.h"

bool sumi_adapter_changes(const sumi_adapter_use* use, const sumi_delta* delta, const sumi_weight* weight);
bool sumi_plan_is_adapted(const sumi_plan* plan, const sumi_weight* weight);
// What follows the product of an adapted weight, which has no activation: every delta on this weight in the order of the
// uses (bits do not depend on anything else), then the activation of the whole sum.
void sumi_plan_add_adapted(sumi_plan* plan, const sumi_op* product, sumi_activation activation);
#endif
