// Writes the ops of the plan's adapters (sumi_plan_adapters).
#ifndef SUMI_PLAN_VERB_ADAPTERS_H
#define SUMI_PLAN_VERB_ADAPTERS_H
#include "plan/plan.h"

bool sumi_adapter_changes(const sumi_adapter_use* use, const sumi_delta* delta, const sumi_weight* weight);
bool sumi_plan_is_adapted(const sumi_plan* plan, const sumi_weight* weight);
// Writes the ops that follow `product`, the op of an adapted weight, which has no activation: all changes of this
// weight in the order of the adapter uses (the bits of the result depend on this order only), then the activation of
// the sum.
void sumi_plan_add_adapted(sumi_plan* plan, const sumi_op* product, sumi_activation activation);
#endif
