// The memory and errors of a plan, for the files that write plans. After the first error nothing more is written.
#ifndef SUMI_PLAN_PLAN_MEMORY_H
#define SUMI_PLAN_PLAN_MEMORY_H
#include "plan/plan.h"

bool sumi_plan_has_failed(const sumi_plan* plan);
// Sets the plan's error: the arguments of a verb do not fit together.
void sumi_plan_mismatch(sumi_plan* plan, const char* label, const char* what);
// Allocates memory that lives as long as the plan, aligned to 16 bytes. NULL after an error.
void* sumi_plan_reserve(sumi_plan* plan, size_t bytes);
#endif
