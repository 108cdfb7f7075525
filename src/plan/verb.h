// What the verbs of plan.h share.
#ifndef SUMI_PLAN_VERB_H
#define SUMI_PLAN_VERB_H
#include "plan/plan_memory.h"

// Appends an op to the newest section. The verb has filled its kind, values, weights and parameters, and `rows` where
// it is told how many; the rest comes from the kind's line in the table. Returns the output, or none after an error.
sumi_value sumi_plan_add_op(sumi_plan* plan, const char* label, const sumi_op* written);

bool sumi_plan_is_step_row(const sumi_plan* plan, sumi_step_row row, int32_t cols);
bool sumi_plan_is_shape(const sumi_plan* plan, sumi_value value, int32_t rows, int32_t cols);
// How many rows a verb works on: what it is told, or all of the value from `row` on.
int32_t sumi_plan_rows_from(const sumi_plan* plan, int32_t told, sumi_value value, int32_t row);
// The bands with their list copied into the plan; NULL without any, and after a failure.
const sumi_row_band* sumi_plan_copy_bands(sumi_plan* plan, const char* label, const sumi_row_band* bands, int32_t count,
                                          int32_t rows);
#endif
