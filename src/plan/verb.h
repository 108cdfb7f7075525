// Functions that the verbs of plan.h share.
#ifndef SUMI_PLAN_VERB_H
#define SUMI_PLAN_VERB_H
#include "plan/plan.h"

// Appends an op to the newest section. The verb has filled in the kind, values, weights and parameters, and `rows` if
// it was given a number of rows; everything else comes from the kind's line in the table of op_kinds.c. Returns the
// op's output, or no value after an error.
sumi_value sumi_plan_add_op(sumi_plan* plan, const char* label, const sumi_op* written);

bool sumi_plan_is_step_row(const sumi_plan* plan, sumi_step_row row, int32_t cols);
bool sumi_plan_is_shape(const sumi_plan* plan, sumi_value value, int32_t rows, int32_t cols);
// The number of rows that a verb works on: row_count, or, if it is 0, all rows of the value from `row` on.
int32_t sumi_plan_rows_from(const sumi_plan* plan, int32_t row_count, sumi_value value, int32_t row);
// Copies a list of bands into the plan, after a check that they cover `rows` rows. NULL without bands, and after an
// error.
const sumi_row_band* sumi_plan_copy_bands(sumi_plan* plan, const char* label, const sumi_row_band* bands, int32_t count,
                                          int32_t rows);

// ---- The memory and errors of a plan (plan.c). After the first error nothing more is written.

bool sumi_plan_has_failed(const sumi_plan* plan);
// Sets the plan's error: the arguments of a verb do not fit together.
void sumi_plan_mismatch(sumi_plan* plan, const char* label, const char* what);
// Allocates memory that lives as long as the plan, aligned to 16 bytes. NULL after an error.
void* sumi_plan_reserve(sumi_plan* plan, size_t bytes);

// ---- The ops of the plan's adapters (verb_adapters.c)

bool sumi_adapter_changes(const sumi_adapter_use* use, const sumi_delta* delta, const sumi_weight* weight);
// A constant of ones with at least this many rows: biases are products with it.
sumi_value sumi_plan_ones(sumi_plan* plan, int32_t rows);
bool sumi_plan_is_adapted(const sumi_plan* plan, const sumi_weight* weight);
// Writes the ops that follow `product`, the op of an adapted weight, which has no activation: all changes of this
// weight in the order of the adapter uses (the bits of the result depend on this order only), then the activation of
// the sum.
void sumi_plan_add_adapted(sumi_plan* plan, const sumi_op* product, sumi_activation activation);
#endif
