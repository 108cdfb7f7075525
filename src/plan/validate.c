// The invariants of a plan that concern sections, slices, constants, values and the arena, one function each. The files
// validate_op.c and validate_order.c have the others (validator.h).
#include "plan/validate.h"
#include "plan/validator.h"
#include <string.h>

static sumi_result value_breaks(const sumi_validator* v, size_t index, const char* rule)
{
    return sumi_fail(v->error, SUMI_INTERNAL, "value %d (%s): %s", (int)index + 1, v->plan->values[index].name, rule);
}

// ---- Sections, slices, constants ------------------------------------------------------------------------------------

// plan.h: ops belong to the last section begun before them, and sections run one after another.
static sumi_result check_sections(const sumi_validator* v)
{
    const sumi_plan* plan = v->plan;
    int32_t op = 0;
    for (size_t s = 0; s < plan->section_count; s++) {
        const sumi_section* section = &plan->sections[s];
        if (section->op_begin != op || section->op_end < op || (size_t)section->op_end > plan->op_count) {
            return sumi_fail(
                v->error, SUMI_INTERNAL,
                "section %d has ops %d to %d: sections hold every op once, in order, and this one begins at op %d",
                (int)s, (int)section->op_begin, (int)section->op_end, (int)op);
        }
        if (section->repeat < 1 || section->first_counter < 0) {
            return sumi_fail(
                v->error, SUMI_INTERNAL,
                "section %d repeats %d times from counter %d: it runs at least once and counts from 0 or above", (int)s,
                (int)section->repeat, (int)section->first_counter);
        }
        const sumi_section* other = s > 0 ? &plan->sections[s - 1] : NULL;
        if (section->is_alternative
            && (other == NULL || other->is_alternative || other->kind != section->kind
                || other->repeat != section->repeat || other->first_counter != section->first_counter)) {
            return sumi_fail(v->error, SUMI_INTERNAL,
                             "section %d: an alternative has the kind and the counters of the section before it",
                             (int)s);
        }
        for (; op < section->op_end; op++) {
            if (plan->ops[op].section != (int32_t)s) {
                return sumi_validate_op_breaks(v, &plan->ops[op], plan->ops[op].out,
                                               "the op lies in one section and names another");
            }
        }
    }
    if ((size_t)op != plan->op_count)
        return sumi_validate_op_breaks(v, &plan->ops[op], plan->ops[op].out, "the op lies in no section");
    return SUMI_OK;
}

// plan.h: the counter of an iteration selects the row of every step table. A row of a solver's table belongs to one
// evaluation, so no two sections may solve with the same row.
static sumi_result check_counters(const sumi_validator* v)
{
    const sumi_plan* plan = v->plan;
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        if (op->kind != SUMI_OP_SOLVE || !op->u.solve.row.per_step) continue;
        const sumi_section* section = &plan->sections[op->section];
        for (size_t s = (size_t)op->section + 1; s < plan->section_count; s++) {
            const sumi_section* later = &plan->sections[s];
            if (s == (size_t)op->section + 1 && later->is_alternative) { continue; } // only one of the two runs
            const bool overlaps = later->first_counter < section->first_counter + section->repeat
                               && section->first_counter < later->first_counter + later->repeat;
            for (int32_t k = later->op_begin; overlaps && k < later->op_end; k++) {
                const sumi_step_row row = plan->ops[k].kind == SUMI_OP_SOLVE ? plan->ops[k].u.solve.row : SUMI_NO_ROW;
                if (row.per_step && row.table.id == op->u.solve.row.table.id) {
                    return sumi_validate_op_breaks(
                        v, &plan->ops[k], row.table,
                        "two sections solve with the same rows of a step table: their counters overlap");
                }
            }
        }
    }
    return SUMI_OK;
}

// plan.h: a slice has whole ops, or some work ranges of one op. The slices of a section contain each work range of its
// ops once, in order. A group ends where its section does, or before.
static sumi_result check_slices(const sumi_validator* v)
{
    const sumi_plan* plan = v->plan;
    int32_t slice = 0;
    for (size_t s = 0; s < plan->section_count && plan->slice_count > 0; s++) {
        const sumi_section* section = &plan->sections[s];
        int32_t op = section->op_begin, range = 0;
        if (section->slice_begin != slice || section->slice_end < slice
            || (size_t)section->slice_end > plan->slice_count) {
            return sumi_fail(v->error, SUMI_INTERNAL,
                             "section %d has slices %d to %d: sections hold every slice once, in order, and this one "
                             "begins at slice %d",
                             (int)s, (int)section->slice_begin, (int)section->slice_end, (int)slice);
        }
        for (; slice < section->slice_end; slice++) {
            const sumi_slice* piece = &plan->slices[slice];
            const bool has_one_op = piece->op_end == piece->op_begin + 1;
            const bool has_ranges = !has_one_op
                                 || (piece->range_begin == range && piece->range_end > range && op < section->op_end
                                     && piece->range_end <= plan->ops[op].range_count);
            if (piece->op_begin != op || piece->op_end <= op || piece->op_end > section->op_end
                || (!has_one_op && range != 0) || !has_ranges) {
                return sumi_fail(
                    v->error, SUMI_INTERNAL,
                    "slice %d has ops %d to %d, work ranges %d to %d: slices hold every work range of every op once, "
                    "in order, and op %d, work range %d comes next",
                    (int)slice, (int)piece->op_begin, (int)piece->op_end, (int)piece->range_begin,
                    (int)piece->range_end, (int)op, (int)range);
            }
            if (piece->group_count < 0 || piece->group_count > section->slice_end - slice) {
                return sumi_fail(v->error, SUMI_INTERNAL, "slice %d begins a group of %d, and section %d has %d more",
                                 (int)slice, (int)piece->group_count, (int)s, (int)(section->slice_end - slice));
            }
            range = has_one_op && piece->range_end < plan->ops[op].range_count ? piece->range_end : 0;
            op = range > 0 ? op : piece->op_end;
        }
        if (op != section->op_end || range != 0) {
            return sumi_fail(
                v->error, SUMI_INTERNAL,
                "section %d: its slices end before op %d, work range %d: slices hold every work range of every op",
                (int)s, (int)op, (int)range);
        }
    }
    if (plan->slice_count > 0 && (size_t)slice != plan->slice_count)
        return sumi_fail(v->error, SUMI_INTERNAL, "slice %d belongs to no section", (int)slice);
    return SUMI_OK;
}

// plan.h: a constant is copied into a bound value before each run. The value may not have activations as elements,
// because their type differs between backends.
static sumi_result check_constants(const sumi_validator* v)
{
    const sumi_plan* plan = v->plan;
    for (size_t i = 0; i < plan->constant_count; i++) {
        const sumi_constant* constant = &plan->constants[i];
        if (!sumi_validate_is_value(plan, constant->value))
            return sumi_fail(v->error, SUMI_INTERNAL, "constant %d is of a value that the plan does not have", (int)i);
        const size_t index = (size_t)constant->value.id - 1;
        const sumi_value_info* info = &plan->values[index];
        if (!info->bound || info->element == SUMI_ELEMENT_ACTIVATION)
            return value_breaks(v, index, "a constant needs a bound value that is no activation");
        if (constant->data == NULL || constant->bytes != info->bytes)
            return value_breaks(v, index, "a constant's data is as large as its value");
        for (size_t k = 0; k < i; k++) {
            if (plan->constants[k].value.id == constant->value.id)
                return value_breaks(v, index, "two constants are written into one value");
        }
    }
    return SUMI_OK;
}

// ---- Values and the arena -------------------------------------------------------------------------------------------

// plan.h: a view is some rows and columns of the value it was cut from, in the memory of its base, and lives as long as
// its base. Views of one value and views of those views have the same base.
static sumi_result check_view(const sumi_validator* v, size_t index)
{
    const sumi_plan* plan = v->plan;
    const sumi_value_info* view = &plan->values[index];
    if (!sumi_validate_is_value(plan, view->base) || !sumi_validate_is_value(plan, view->cut_from)
        || (size_t)view->cut_from.id > index || (size_t)view->base.id > index)
        return value_breaks(v, index, "a view is written after its base and after what it was cut from");
    const sumi_value_info *base = sumi_plan_info(plan, view->base), *cut_from = sumi_plan_info(plan, view->cut_from);
    if (view->is_unstored || base->is_unstored) return value_breaks(v, index, "a view and its base are stored");
    if (base->base.id != 0 || (cut_from->base.id != 0 ? cut_from->base.id : view->cut_from.id) != view->base.id)
        return value_breaks(v, index, "a view and what it was cut from have one base, which is no view");
    if ((view->bound && !base->bound) || view->container.id != 0)
        return value_breaks(v, index, "a view is not bound unless its base is, and is no guest");
    const bool is_reshaped = view->pitch != cut_from->pitch && view->pitch == view->cols
                          && cut_from->pitch == cut_from->cols
                          && (int64_t)view->rows * view->cols == (int64_t)cut_from->rows * cut_from->cols;
    if (view->element != base->element || (view->pitch != cut_from->pitch && !is_reshaped))
        return value_breaks(v, index, "a view has the element and the pitch of its base, or all of its elements");
    const uint64_t pitch = (uint64_t)view->pitch, first = view->base_element - cut_from->base_element;
    if (view->base_element < cut_from->base_element || view->cut_from_row < 0
        || (is_reshaped
                ? first != 0 || view->cut_from_row != 0
                : view->cut_from_row + view->rows > cut_from->rows || first / pitch != (uint64_t)view->cut_from_row
                      || first % pitch + (uint64_t)view->cols > (uint64_t)cut_from->cols))
        return value_breaks(v, index, "a view lies within the rows and columns of what it was cut from");
    if (view->first_use != base->first_use || view->last_use != base->last_use)
        return value_breaks(v, index, "a view lives as long as its base");
    const uint64_t element = sumi_plan_element_bytes(plan, view->element);
    if (base->first_use >= 0
        && (view->offset != base->offset + view->base_element * element
            || view->bytes != ((uint64_t)(view->rows - 1) * pitch + (uint64_t)view->cols) * element))
        return value_breaks(v, index, "a view's place in the arena is its place in its base");
    return SUMI_OK;
}

// sumi_plan_arrange: a value takes no memory if it is the result of a pair's first op and only the second op reads it.
static sumi_result check_unstored(const sumi_validator* v, size_t index)
{
    const sumi_plan* plan = v->plan;
    const sumi_value_info* info = &plan->values[index];
    const sumi_op* op = &plan->ops[info->first_use];
    bool is_input = false, is_read = false;
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) {
        is_input = is_input || op->in[k].id == (int32_t)index + 1;
        is_read = is_read || (info->last_use > info->first_use && op[1].in[k].id == (int32_t)index + 1);
    }
    if (info->bytes != 0 || info->bound || info->container.id != 0)
        return value_breaks(v, index, "a value that is not stored takes no memory: it is neither bound nor a guest");
    if (!op->is_first_of_pair || op->out.id != (int32_t)index + 1 || is_input || !is_read
        || info->last_use != info->first_use + 1)
        return value_breaks(v, index, "a value that is not stored is made and read by a pair of ops, and by no others");
    return SUMI_OK;
}

// plan.h: offsets and sizes of values that are not views. Bound values live through the whole plan.
static sumi_result check_place(const sumi_validator* v, size_t index)
{
    const sumi_plan* plan = v->plan;
    const sumi_value_info* info = &plan->values[index];
    const uint64_t bytes = (uint64_t)info->rows * (uint64_t)info->cols * sumi_plan_element_bytes(plan, info->element);
    if (info->pitch != info->cols || info->base_element != 0)
        return value_breaks(v, index, "the rows of a value that is no view lie directly behind one another");
    if (info->bound && (info->first_use != 0 || info->last_use != (int32_t)plan->op_count - 1))
        return value_breaks(v, index, "a bound value lives through the whole plan");
    if (info->first_use < 0) { return SUMI_OK; } // no op uses it
    if (info->last_use < info->first_use || (size_t)info->last_use >= plan->op_count)
        return value_breaks(v, index, "a value's life ends at an op of the plan, not before it begins");
    if (info->is_unstored) return check_unstored(v, index);
    if (info->bytes != bytes) return value_breaks(v, index, "a value's size is that of its rows, columns and elements");
    if (info->offset % SUMI_ALIGNMENT != 0 || info->offset > plan->arena_bytes
        || info->bytes > plan->arena_bytes - info->offset)
        return value_breaks(v, index, "a value lies in the arena, aligned");
    return SUMI_OK;
}

static bool is_guest_of(const sumi_plan* plan, size_t guest, size_t host)
{
    return plan->values[guest].container.id == (int32_t)host + 1
        && plan->values[guest].offset == plan->values[host].offset
        && plan->values[guest].bytes <= plan->values[host].bytes;
}

// plan.h: the bytes of two values overlap in the arena only if their lifetimes do not, or if one is a guest at the
// beginning of its host (sumi_plan_share).
static sumi_result check_arena(const sumi_validator* v)
{
    const sumi_plan* plan = v->plan;
    for (size_t a = 0; a < plan->value_count; a++) {
        const sumi_value_info* x = &plan->values[a];
        if (x->rows < 1 || x->cols < 1) return value_breaks(v, a, "a value has at least one row and one column");
        SUMI_TRY(x->base.id != 0 ? check_view(v, a) : check_place(v, a));
        for (size_t b = 0; b < a && x->base.id == 0 && x->first_use >= 0; b++) {
            const sumi_value_info* y = &plan->values[b];
            const bool meets =
                y->base.id == 0 && y->first_use >= 0 && x->first_use <= y->last_use && y->first_use <= x->last_use;
            if (meets && x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes
                && !is_guest_of(plan, a, b) && !is_guest_of(plan, b, a)) {
                return sumi_fail(v->error, SUMI_INTERNAL,
                                 "values %d (%s) and %d (%s) share bytes of the arena, and both live at op %d",
                                 (int)b + 1, y->name, (int)a + 1, x->name,
                                 (int)(x->first_use > y->first_use ? x->first_use : y->first_use));
            }
        }
    }
    return SUMI_OK;
}

// ---- The plan -------------------------------------------------------------------------------------------------------

static sumi_result check_plan(sumi_validator* v)
{
    SUMI_TRY(check_sections(v));
    SUMI_TRY(check_arena(v));
    SUMI_TRY(check_constants(v));
    for (size_t i = 0; i < v->plan->op_count; i++) SUMI_TRY(sumi_validate_op(v, &v->plan->ops[i]));
    SUMI_TRY(check_counters(v));
    SUMI_TRY(sumi_validate_order(v));
    return check_slices(v);
}

sumi_result sumi_plan_validate(const sumi_plan* plan, sumi_error* error)
{
    sumi_validator v = {.plan = plan, .error = error};
    sumi_heap_init(&v.heap, NULL);
    v.accesses = (sumi_op_accesses){.plan = plan, .heap = &v.heap, .error = error};
    const sumi_result result = check_plan(&v);
    sumi_free(&v.heap, v.accesses.list);
    sumi_free(&v.heap, v.map);
    return result;
}

sumi_result sumi_plan_validate_slices(const sumi_plan* plan, sumi_error* error)
{
    return check_slices(&(sumi_validator){.plan = plan, .error = error});
}
