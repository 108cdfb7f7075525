// Functions that the checks of a plan share.
#include "plan/validator.h"

const char* sumi_validate_name(const sumi_plan* plan, sumi_value value) { return sumi_plan_info(plan, value)->name; }

bool sumi_validate_is_value(const sumi_plan* plan, sumi_value value)
{
    return value.id > 0 && (size_t)value.id <= plan->value_count;
}

sumi_result sumi_validate_op_breaks(const sumi_validator* v, const sumi_op* op, sumi_value value, const char* rule)
{
    return sumi_fail(v->error, SUMI_INTERNAL, "op %d (%s, %s): value %s: %s", (int)(op - v->plan->ops),
                     sumi_op_name(op->kind), op->label,
                     value.id == 0                            ? "none"
                     : sumi_validate_is_value(v->plan, value) ? sumi_validate_name(v->plan, value)
                                                              : "(not in the plan)",
                     rule);
}

sumi_value sumi_validate_owner(const sumi_plan* plan, sumi_value value)
{
    const sumi_value_info* info = sumi_plan_info(plan, value);
    return info->base.id != 0 ? info->base : value;
}

sumi_value sumi_validate_solver_table(const sumi_op* op)
{
    return op->kind == SUMI_OP_SOLVE ? op->u.solve.row.table : SUMI_NO_VALUE;
}

uint64_t sumi_validate_first_element(const sumi_plan* plan, const sumi_op_access* a)
{
    const sumi_value_info* info = sumi_plan_info(plan, a->value);
    return info->base_element + (uint64_t)a->row * (uint64_t)info->pitch + (uint64_t)a->column;
}

uint64_t sumi_validate_last_element(const sumi_plan* plan, const sumi_op_access* a)
{
    return sumi_validate_first_element(plan, a)
         + (uint64_t)(a->rows - 1) * (uint64_t)sumi_plan_info(plan, a->value)->pitch + (uint64_t)a->cols;
}

sumi_rectangle sumi_validate_rectangle(const sumi_plan* plan, const sumi_op_access* a)
{
    const uint64_t pitch = (uint64_t)sumi_plan_info(plan, sumi_validate_owner(plan, a->value))->pitch,
                   begin = sumi_validate_first_element(plan, a);
    if (sumi_plan_info(plan, a->value)->pitch == (int32_t)pitch) {
        return (sumi_rectangle){begin / pitch, (uint64_t)a->rows, begin % pitch, (uint64_t)a->cols};
    }
    return (sumi_rectangle){begin / pitch, (sumi_validate_last_element(plan, a) + pitch - 1) / pitch - begin / pitch, 0,
                            pitch};
}
