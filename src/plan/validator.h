// Shared by the files of the plan's validation (validate.h): validate.c checks sections, slices and values,
// validate_op.c single ops, validate_order.c the order of reads and writes.
#ifndef SUMI_PLAN_VALIDATOR_H
#define SUMI_PLAN_VALIDATOR_H
#include "plan/op_accesses.h"

// Bytes [begin, end) of the arena, last written as rows of `value` through `view`: the outermost view from which the
// op's value was cut, or the value itself if it is not a view.
typedef struct sumi_owned_bytes {
    uint64_t begin, end;
    int32_t value, view;
} sumi_owned_bytes;

typedef struct sumi_validator {
    const sumi_plan* plan;
    sumi_error* error;
    sumi_heap heap;
    sumi_op_accesses accesses; // of the op that is checked
    sumi_owned_bytes* map;     // sorted by offset, disjoint
    size_t map_count, map_capacity;
} sumi_validator;

// All checks return SUMI_INTERNAL with a sentence for a broken rule.
sumi_result sumi_validate_op(sumi_validator* v, const sumi_op* op); // one op: everything that does not depend on others
sumi_result sumi_validate_order(sumi_validator* v);                 // rows are written before they are read

const char* sumi_validate_name(const sumi_plan* plan, sumi_value value);
bool sumi_validate_is_value(const sumi_plan* plan, sumi_value value); // the plan has it
// Fails with "op 12 (linear, layers.0.attention.out): value stream: <rule>".
sumi_result sumi_validate_op_breaks(const sumi_validator* v, const sumi_op* op, sumi_value value, const char* rule);
sumi_value sumi_validate_owner(const sumi_plan* plan, sumi_value value); // the base of a view, or the value itself
// The step table of a solver, which is not one of its six inputs.
sumi_value sumi_validate_solver_table(const sumi_op* op);
// The index of an access's first element in its base.
uint64_t sumi_validate_first_element(const sumi_plan* plan, const sumi_op_access* a);
// The index after an access's last element in its base.
uint64_t sumi_validate_last_element(const sumi_plan* plan, const sumi_op_access* a);
// An access as rows and columns of its base. If the rows of the value and of its base differ in length
// (sumi_plan_reshape), it is extended to whole rows of the base.
typedef struct sumi_rectangle {
    uint64_t row, rows, column, cols;
} sumi_rectangle;

sumi_rectangle sumi_validate_rectangle(const sumi_plan* plan, const sumi_op_access* a);
#endif
