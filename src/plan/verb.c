#include "plan/verb.h"
#include "base/assert.h"
#include "plan/op_kinds.h"
#include <string.h>

// Whether the output is an input only where the table of op_kinds.c allows it, and is one where the table demands it.
static bool is_in_place_valid(const sumi_op_kind_info* kind, const sumi_op* op)
{
    SUMI_ASSERT(!kind->is_always_in_place || kind->in_place != 0);
    bool is_an_input = false;
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS && op->out.id != 0; k++) {
        if (op->in[k].id == op->out.id) {
            if ((kind->in_place & SUMI_IN(k)) == 0) return false;
            is_an_input = true;
        }
    }
    return is_an_input || !kind->is_always_in_place;
}

sumi_value sumi_plan_add_op(sumi_plan* plan, const char* label, const sumi_op* written)
{
    if (sumi_plan_has_failed(plan)) return SUMI_NO_VALUE;
    const sumi_op_kind_info* kind = sumi_op_kind_get(written->kind);
    int64_t rows = kind->rows(plan, written);
    if (plan->section_count == 0) {
        sumi_plan_mismatch(plan, label, "sumi_plan_section was not called before the first op");
        return SUMI_NO_VALUE;
    }
    if (rows < 1 || rows > INT32_MAX) {
        sumi_plan_mismatch(plan, label, "an op needs at least one row, and no more than can be counted");
        return SUMI_NO_VALUE;
    }
    if (!is_in_place_valid(kind, written)) {
        sumi_plan_mismatch(plan, label,
                           "this op cannot write over the input that is its output, or writes over none and should");
        return SUMI_NO_VALUE;
    }
    if (sumi_grow(plan->heap, (void**)&plan->ops, &plan->op_capacity, plan->op_count + 1, sizeof *plan->ops,
                  &plan->error)
        != SUMI_OK)
        return SUMI_NO_VALUE;
    size_t prefix = strlen(plan->label_prefix), length = strlen(label);
    char* text = sumi_plan_reserve(plan, prefix + length + 1);
    if (text == NULL) return SUMI_NO_VALUE;
    memcpy(text, plan->label_prefix, prefix);
    memcpy(text + prefix, label, length + 1);
    sumi_op* op = &plan->ops[plan->op_count++];
    *op = *written;
    op->label = text;
    op->section = (int32_t)plan->section_count - 1;
    op->rows = (int32_t)rows;
    SUMI_ASSERT(op->out.id >= 0 && (size_t)op->out.id <= plan->value_count);
    int64_t range_rows = kind->range_rows(plan, op);
    op->range_rows = range_rows < 1 ? 1 : range_rows > rows ? op->rows : (int32_t)range_rows;
    op->range_count = (op->rows - 1) / op->range_rows + 1;
    SUMI_ASSERT(op->range_rows >= 1 && op->range_count >= 1 && op->range_count <= op->rows);
    op->flops = kind->flops != NULL ? kind->flops(plan, op) : 0;
    op->bytes = kind->bytes != NULL ? kind->bytes(plan, op) : kind->output_count * sumi_plan_value_bytes(plan, op->out);
    plan->sections[plan->section_count - 1].op_end = (int32_t)plan->op_count;
    return op->out;
}

bool sumi_plan_is_step_row(const sumi_plan* plan, sumi_step_row row, int32_t cols)
{
    SUMI_ASSERT(cols >= 0);
    return row.table.id == 0 || (row.column >= 0 && row.column + cols <= sumi_plan_cols(plan, row.table));
}

const sumi_row_band* sumi_plan_copy_bands(sumi_plan* plan, const char* label, const sumi_row_band* bands, int32_t count,
                                          int32_t rows)
{
    int32_t begin = 0;
    bool are_valid = count >= 0;
    for (int32_t i = 0; i < count; begin = bands[i++].end)
        are_valid = are_valid && bands[i].end > begin && bands[i].table_row >= 0;
    if (count != 0 && (!are_valid || begin != rows)) sumi_plan_mismatch(plan, label, "the bands do not cover the rows");
    return count > 0 && !sumi_plan_has_failed(plan) ? sumi_plan_copy(plan, bands, (size_t)count * sizeof *bands) : NULL;
}

bool sumi_plan_is_shape(const sumi_plan* plan, sumi_value value, int32_t rows, int32_t cols)
{
    return sumi_plan_rows(plan, value) == rows && sumi_plan_cols(plan, value) == cols;
}

int32_t sumi_plan_rows_from(const sumi_plan* plan, int32_t row_count, sumi_value value, int32_t row)
{
    return row_count != 0 ? row_count : sumi_plan_rows(plan, value) - row;
}
