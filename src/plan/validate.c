// The invariants of a plan, one function each. op_accesses.c lists the rectangles of values that an op reads and
// writes; shapes, in-place rules, lifetimes and the order of reads and writes are checked against this list.
//
// Order of reads and writes. An interval map stores, for each byte of the arena, the value and the view that have
// written it last. The ops are run through this map in the order of the runner, and a read must find all its bytes
// written by its own value. One check thus finds rows that were never written, rows whose bytes another value has
// overwritten, and rows that another view of the same value has overwritten. A repeated section is run twice.
// In the first iteration an op may read only what ops before it have written, and in the second also what the first
// iteration has left. The second iteration represents all further ones: it has the table rows of all their counters.
// The map works with whole rows of the base: a write through a view of some columns counts for the whole row.
#include "plan/validate.h"
#include "base/rotation.h"
#include "base/sort.h"
#include "plan/op_accesses.h"
#include <string.h>

// Bytes [begin, end) of the arena, last written as rows of `value` through `view`: the outermost view from which the
// op's value was cut, or the value itself if it is no view.
typedef struct owned {
    uint64_t begin, end;
    int32_t value, view;
} owned;

typedef struct validator {
    const sumi_plan* plan;
    sumi_error* error;
    sumi_heap heap;
    sumi_op_accesses accesses; // of the op that is checked
    owned* map;                // sorted by offset, disjoint
    size_t map_count, map_capacity;
} validator;

static const char* value_name(const sumi_plan* plan, sumi_value value) { return sumi_plan_info(plan, value)->name; }

static bool is_value(const sumi_plan* plan, sumi_value value)
{
    return value.id > 0 && (size_t)value.id <= plan->value_count;
}

// Fails with "op 12 (linear, layers.0.attention.out): value stream: <rule>".
static sumi_result op_breaks(const validator* v, const sumi_op* op, sumi_value value, const char* rule)
{
    return sumi_fail(v->error, SUMI_INTERNAL, "op %d (%s, %s): value %s: %s", (int)(op - v->plan->ops),
                     sumi_op_name(op->kind), op->label,
                     value.id == 0              ? "none"
                     : is_value(v->plan, value) ? value_name(v->plan, value)
                                                : "(not in the plan)",
                     rule);
}

static sumi_result value_breaks(const validator* v, size_t index, const char* rule)
{
    return sumi_fail(v->error, SUMI_INTERNAL, "value %d (%s): %s", (int)index + 1, v->plan->values[index].name, rule);
}

static sumi_value owner_of(const sumi_plan* plan, sumi_value value)
{
    const sumi_value_info* info = sumi_plan_info(plan, value);
    return info->base.id != 0 ? info->base : value;
}

// The step table of a solver, which is not one of its six inputs.
static sumi_value solver_table(const sumi_op* op)
{
    return op->kind == SUMI_OP_SOLVE ? op->u.solve.row.table : SUMI_NO_VALUE;
}

// ---- Sections, slices, constants ------------------------------------------------------------------------------------

// plan.h: ops belong to the last section begun before them, and sections run one after another.
static sumi_result check_sections(const validator* v)
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
        for (; op < section->op_end; op++) {
            if (plan->ops[op].section != (int32_t)s) {
                return op_breaks(v, &plan->ops[op], plan->ops[op].out, "the op lies in one section and names another");
            }
        }
    }
    if ((size_t)op != plan->op_count) {
        return op_breaks(v, &plan->ops[op], plan->ops[op].out, "the op lies in no section");
    }
    return SUMI_OK;
}

// plan.h: the counter of an iteration selects the row of every step table. A row of a solver's table belongs to one
// evaluation, so no two sections may solve with the same row.
static sumi_result check_counters(const validator* v)
{
    const sumi_plan* plan = v->plan;
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        if (op->kind != SUMI_OP_SOLVE || !op->u.solve.row.per_step) { continue; }
        const sumi_section* own = &plan->sections[op->section];
        for (size_t s = (size_t)op->section + 1; s < plan->section_count; s++) {
            const sumi_section* other = &plan->sections[s];
            const bool meets = other->first_counter < own->first_counter + own->repeat
                            && own->first_counter < other->first_counter + other->repeat;
            for (int32_t k = other->op_begin; meets && k < other->op_end; k++) {
                const sumi_step_row row = plan->ops[k].kind == SUMI_OP_SOLVE ? plan->ops[k].u.solve.row : SUMI_NO_ROW;
                if (row.per_step && row.table.id == op->u.solve.row.table.id) {
                    return op_breaks(v, &plan->ops[k], row.table,
                                     "two sections solve with the same rows of a step table: their counters overlap");
                }
            }
        }
    }
    return SUMI_OK;
}

// plan.h: a slice has whole ops, or some work ranges of one op. The slices of a section contain each work range of its
// ops once, in order.
static sumi_result check_slices(const validator* v)
{
    const sumi_plan* plan = v->plan;
    int32_t slice = 0;
    for (size_t s = 0; s < plan->section_count && plan->slice_count > 0; s++) {
        const sumi_section* section = &plan->sections[s];
        int32_t op = section->op_begin, part = 0;
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
            const bool has_parts = !has_one_op
                                || (piece->range_begin == part && piece->range_end > part && op < section->op_end
                                    && piece->range_end <= plan->ops[op].range_count);
            if (piece->op_begin != op || piece->op_end <= op || piece->op_end > section->op_end
                || (!has_one_op && part != 0) || !has_parts) {
                return sumi_fail(v->error, SUMI_INTERNAL,
                                 "slice %d has ops %d to %d, parts %d to %d: slices hold every part of every op once, "
                                 "in order, and op %d, part %d comes next",
                                 (int)slice, (int)piece->op_begin, (int)piece->op_end, (int)piece->range_begin,
                                 (int)piece->range_end, (int)op, (int)part);
            }
            part = has_one_op && piece->range_end < plan->ops[op].range_count ? piece->range_end : 0;
            op = part > 0 ? op : piece->op_end;
        }
        if (op != section->op_end || part != 0) {
            return sumi_fail(v->error, SUMI_INTERNAL,
                             "section %d: its slices end before op %d, part %d: slices hold every part of every op",
                             (int)s, (int)op, (int)part);
        }
    }
    if (plan->slice_count > 0 && (size_t)slice != plan->slice_count) {
        return sumi_fail(v->error, SUMI_INTERNAL, "slice %d belongs to no section", (int)slice);
    }
    return SUMI_OK;
}

// plan.h: a constant is copied into a bound value before each run. The value may not have activations as elements,
// because their type differs between backends.
static sumi_result check_constants(const validator* v)
{
    const sumi_plan* plan = v->plan;
    for (size_t i = 0; i < plan->constant_count; i++) {
        const sumi_constant* constant = &plan->constants[i];
        if (!is_value(plan, constant->value)) {
            return sumi_fail(v->error, SUMI_INTERNAL, "constant %d is of a value that the plan does not have", (int)i);
        }
        const size_t index = (size_t)constant->value.id - 1;
        const sumi_value_info* info = &plan->values[index];
        if (!info->bound || info->element == SUMI_ELEMENT_ACTIVATION) {
            return value_breaks(v, index, "a constant needs a bound value that is no activation");
        }
        if (constant->data == NULL || constant->bytes != info->bytes) {
            return value_breaks(v, index, "a constant's data is as large as its value");
        }
        for (size_t k = 0; k < i; k++) {
            if (plan->constants[k].value.id == constant->value.id) {
                return value_breaks(v, index, "two constants are written into one value");
            }
        }
    }
    return SUMI_OK;
}

// ---- Values and the arena -------------------------------------------------------------------------------------------

// plan.h: a view is some rows and columns of the value it was cut from, in the memory of its base, and lives as long as
// its base. Views of one value and views of those views have the same base.
static sumi_result check_view(const validator* v, size_t index)
{
    const sumi_plan* plan = v->plan;
    const sumi_value_info* view = &plan->values[index];
    if (!is_value(plan, view->base) || !is_value(plan, view->cut_from) || (size_t)view->cut_from.id > index
        || (size_t)view->base.id > index) {
        return value_breaks(v, index, "a view is written after its base and after what it was cut from");
    }
    const sumi_value_info *base = sumi_plan_info(plan, view->base), *whole = sumi_plan_info(plan, view->cut_from);
    if (view->is_unstored || base->is_unstored) { return value_breaks(v, index, "a view and its base are stored"); }
    if (base->base.id != 0 || (whole->base.id != 0 ? whole->base.id : view->cut_from.id) != view->base.id) {
        return value_breaks(v, index, "a view and what it was cut from have one base, which is no view");
    }
    if ((view->bound && !base->bound) || view->container.id != 0) {
        return value_breaks(v, index, "a view is not bound unless its base is, and is no guest");
    }
    const bool is_reshaped = view->pitch != whole->pitch && view->pitch == view->cols && whole->pitch == whole->cols
                          && (int64_t)view->rows * view->cols == (int64_t)whole->rows * whole->cols;
    if (view->element != base->element || (view->pitch != whole->pitch && !is_reshaped)) {
        return value_breaks(v, index, "a view has the element and the pitch of its base, or all of its elements");
    }
    const uint64_t pitch = (uint64_t)view->pitch, first = view->base_element - whole->base_element;
    if (view->base_element < whole->base_element || view->cut_from_row < 0
        || (is_reshaped ? first != 0 || view->cut_from_row != 0
                        : view->cut_from_row + view->rows > whole->rows || first / pitch != (uint64_t)view->cut_from_row
                              || first % pitch + (uint64_t)view->cols > (uint64_t)whole->cols)) {
        return value_breaks(v, index, "a view lies within the rows and columns of what it was cut from");
    }
    if (view->first_use != base->first_use || view->last_use != base->last_use) {
        return value_breaks(v, index, "a view lives as long as its base");
    }
    const uint64_t element = sumi_plan_element_bytes(plan, view->element);
    if (base->first_use >= 0
        && (view->offset != base->offset + view->base_element * element
            || view->bytes != ((uint64_t)(view->rows - 1) * pitch + (uint64_t)view->cols) * element)) {
        return value_breaks(v, index, "a view's place in the arena is its place in its base");
    }
    return SUMI_OK;
}

// sumi_plan_arrange: a value takes no memory if it is the result of a pair's first op and only the second op reads it.
static sumi_result check_unstored(const validator* v, size_t index)
{
    const sumi_plan* plan = v->plan;
    const sumi_value_info* info = &plan->values[index];
    const sumi_op* op = &plan->ops[info->first_use];
    bool is_input = false, is_read = false;
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) {
        is_input = is_input || op->in[k].id == (int32_t)index + 1;
        is_read = is_read || (info->last_use > info->first_use && op[1].in[k].id == (int32_t)index + 1);
    }
    if (info->bytes != 0 || info->bound || info->container.id != 0) {
        return value_breaks(v, index, "a value that is not stored takes no memory: it is neither bound nor a guest");
    }
    if (!op->is_first_of_pair || op->out.id != (int32_t)index + 1 || is_input || !is_read
        || info->last_use != info->first_use + 1) {
        return value_breaks(v, index, "a value that is not stored is made and read by a pair of ops, and by no others");
    }
    return SUMI_OK;
}

// plan.h: offsets and sizes of values that are no views. Bound values live through the whole plan.
static sumi_result check_place(const validator* v, size_t index)
{
    const sumi_plan* plan = v->plan;
    const sumi_value_info* info = &plan->values[index];
    const uint64_t bytes = (uint64_t)info->rows * (uint64_t)info->cols * sumi_plan_element_bytes(plan, info->element);
    if (info->pitch != info->cols || info->base_element != 0) {
        return value_breaks(v, index, "the rows of a value that is no view lie directly behind one another");
    }
    if (info->bound && (info->first_use != 0 || info->last_use != (int32_t)plan->op_count - 1)) {
        return value_breaks(v, index, "a bound value lives through the whole plan");
    }
    if (info->first_use < 0) { return SUMI_OK; } // no op uses it
    if (info->last_use < info->first_use || (size_t)info->last_use >= plan->op_count) {
        return value_breaks(v, index, "a value's life ends at an op of the plan, not before it begins");
    }
    if (info->is_unstored) { return check_unstored(v, index); }
    if (info->bytes != bytes) {
        return value_breaks(v, index, "a value's size is that of its rows, columns and elements");
    }
    if (info->offset % SUMI_ALIGNMENT != 0 || info->offset > plan->arena_bytes
        || info->bytes > plan->arena_bytes - info->offset) {
        return value_breaks(v, index, "a value lies in the arena, aligned");
    }
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
static sumi_result check_arena(const validator* v)
{
    const sumi_plan* plan = v->plan;
    for (size_t a = 0; a < plan->value_count; a++) {
        const sumi_value_info* x = &plan->values[a];
        if (x->rows < 1 || x->cols < 1) { return value_breaks(v, a, "a value has at least one row and one column"); }
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

// plan.h: a value lives at every op that uses it. A value from before a repeated section that the section uses lives
// until the section ends.
static sumi_result check_life(const validator* v, const sumi_op* op, sumi_value value)
{
    const sumi_plan* plan = v->plan;
    if (value.id == 0) { return SUMI_OK; }
    if (!is_value(plan, value)) { return op_breaks(v, op, value, "the plan has no such value"); }
    const sumi_value_info* info = sumi_plan_info(plan, owner_of(plan, value));
    const sumi_section* section = &plan->sections[op->section];
    const int32_t index = (int32_t)(op - plan->ops);
    if (info->first_use < 0 || info->first_use > index || info->last_use < index) {
        return op_breaks(v, op, value, "the value does not live at an op that uses it");
    }
    if (section->repeat > 1 && info->first_use < section->op_begin && info->last_use < section->op_end - 1) {
        return op_breaks(v, op, value, "a value that enters a repeated section lives until the section ends");
    }
    return SUMI_OK;
}

static sumi_result check_lives(const validator* v, const sumi_op* op)
{
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) { SUMI_TRY(check_life(v, op, op->in[k])); }
    SUMI_TRY(check_life(v, op, op->out));
    SUMI_TRY(check_life(v, op, op->mask));
    SUMI_TRY(check_life(v, op, solver_table(op)));
    return SUMI_OK;
}

// ---- One op ---------------------------------------------------------------------------------------------------------

static bool is_vector(const sumi_weight* weight, int32_t cols)
{
    return weight == NULL || (weight->rows == 1 && weight->cols == cols);
}

// A norm has a weight, or a value that replaces the weight, but not both.
static bool is_at_most_one(const sumi_weight* weight, sumi_value value) { return weight == NULL || value.id == 0; }

// weight.h: a change has two factors; `up` has the weight's rows, `down` the weight's columns.
static bool is_change(const sumi_weight* weight, const sumi_weight_change* change)
{
    const sumi_stacked_tensor *down = &change->down, *up = &change->up;
    return down->rows >= 1 && down->chunk == 0 && weight->cols % sumi_dtype_get(down->dtype)->block == 0
        && up->rows == weight->rows && up->chunk == 0 && sumi_dtype_get(up->dtype)->block == 1
        && sumi_stacked_tensor_is_plain(down) && sumi_stacked_tensor_is_plain(up);
}

// weight.h: the stacked tensors of a weight make up its rows, and its change has as many; a vector has one row. ops.h:
// which weights and biases an op has.
static sumi_result check_weights(const validator* v, const sumi_op* op)
{
    const sumi_weight* const weights[] = {op->weight, op->bias,
                                          op->kind == SUMI_OP_QK_NORM_ROPE ? op->u.qk.k_weight : NULL};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        int64_t rows = 0;
        bool is_whole = true;
        for (int32_t p = 0; weights[i] != NULL && p < weights[i]->tensor_count && p < SUMI_WEIGHT_MAX_TENSORS; p++) {
            const sumi_stacked_tensor* part = &weights[i]->tensors[p];
            rows += part->rows;
            is_whole = is_whole
                    && (part->rotation == 0
                        || (sumi_rotation_is_known(part->rotation) && weights[i]->cols % part->rotation == 0));
        }
        if (!is_whole) { return op_breaks(v, op, op->out, "a weight's rows are whole groups of its rotation"); }
        if (weights[i] != NULL && !sumi_weight_is_dense(weights[i]) && (i > 0 || op->kind != SUMI_OP_CONV)) {
            return op_breaks(v, op, op->out, "a weight that lies in chunks is a convolution's");
        }
        if (weights[i] != NULL && (weights[i]->tensor_count > SUMI_WEIGHT_MAX_TENSORS || rows != weights[i]->rows)) {
            return op_breaks(v, op, op->out,
                             "the tensors of a stacked weight must have as many rows together as the weight");
        }
        if (weights[i] != NULL && weights[i]->change != NULL && !is_change(weights[i], weights[i]->change)) {
            return op_breaks(v, op, op->out, "a weight's change has the weight's rows and a rank");
        }
    }
    const int32_t cols = sumi_plan_info(v->plan, op->out)->cols;
    bool fits;
    switch (op->kind) {
    case SUMI_OP_EMBED_ROWS:
        fits = op->weight != NULL ? op->weight->cols == cols && op->in[1].id == 0 && is_vector(op->bias, cols)
                                  : op->in[1].id != 0 && op->bias == NULL;
        break;
    case SUMI_OP_FILL_ROWS: fits = op->weight != NULL && is_vector(op->weight, cols) && op->bias == NULL; break;
    case SUMI_OP_LINEAR: {
        const int32_t x_cols = sumi_plan_info(v->plan, op->in[0])->cols;
        fits = op->weight != NULL && (op->weight->cols == x_cols || (op->weight->cols + 7) / 8 * 8 == x_cols)
            && is_vector(op->bias, op->weight->rows) && (!op->u.linear.is_adapter_product || op->bias == NULL);
        break;
    }
    case SUMI_OP_KRONECKER_ADD: fits = op->weight != NULL && op->bias == NULL; break;
    case SUMI_OP_CONV: {
        const int32_t taps = op->u.conv.kernel * op->u.conv.kernel;
        fits = op->weight != NULL && (taps == 1 || taps == 9) && op->weight->rows == cols
            && op->weight->cols == taps * sumi_plan_info(v->plan, op->in[0])->cols && is_vector(op->bias, cols);
        break;
    }
    case SUMI_OP_NORM_GATE_ADD:
        fits = is_vector(op->weight, cols) && op->bias == NULL && is_at_most_one(op->weight, op->in[3]);
        break;
    case SUMI_OP_NORM_MODULATE:
        fits = is_vector(op->weight, cols) && is_vector(op->bias, cols) && is_at_most_one(op->weight, op->in[3]);
        break;
    case SUMI_OP_GROUP_NORM: fits = is_vector(op->weight, cols) && is_vector(op->bias, cols); break;
    case SUMI_OP_QK_NORM_ROPE:
        fits = is_vector(op->weight, op->u.qk.dim) && is_vector(op->u.qk.k_weight, op->u.qk.dim) && op->bias == NULL
            && is_at_most_one(op->weight, op->in[2]) && is_at_most_one(op->u.qk.k_weight, op->in[3]);
        break;
    default: fits = op->weight == NULL && op->bias == NULL; break;
    }
    return fits ? SUMI_OK : op_breaks(v, op, op->out, "the weight or the bias has another shape than the op");
}

static bool are_bands(const sumi_row_band* bands, int32_t count, int32_t rows)
{
    int32_t begin = 0;
    bool are_valid = count >= 0 && (count == 0 || bands != NULL);
    for (int32_t i = 0; i < count && are_valid; begin = bands[i++].end) {
        are_valid = bands[i].end > begin && bands[i].table_row >= 0;
    }
    return are_valid && (count == 0 || begin == rows);
}

static sumi_result check_bands(const validator* v, const sumi_op* op)
{
    const bool are_valid =
        op->kind == SUMI_OP_NORM_MODULATE   ? are_bands(op->u.norm.bands, op->u.norm.band_count, op->rows)
        : op->kind == SUMI_OP_NORM_GATE_ADD ? are_bands(op->u.gate_add.bands, op->u.gate_add.band_count, op->rows)
                                            : true;
    return are_valid ? SUMI_OK : op_breaks(v, op, op->out, "bands cover the rows of their op");
}

static bool are_statistics(const float* scale, const float* shift, int32_t channels)
{
    bool are_valid = scale != NULL && shift != NULL;
    for (int32_t c = 0; are_valid && c < channels; c++) { are_valid = scale[c] != 0.0f; }
    return are_valid;
}

// ops.h: the valid parameters of ops on latents, except those that the list of accesses implies.
static sumi_result check_latent_numbers(const validator* v, const sumi_op* op)
{
    const sumi_op_guide* g = &op->u.guide;
    if (op->kind == SUMI_OP_GUIDE) {
        if (g->rule <= SUMI_GUIDANCE_MODEL || g->rule > SUMI_GUIDANCE_NORM_RESCALE || !(g->norm_limit >= 0.0f)) {
            return op_breaks(v, op, op->out, "guidance needs a rule, and its norm limit may not be negative");
        }
        const int64_t plane = sumi_plan_info(v->plan, op->out)->cols;
        if (g->rule == SUMI_GUIDANCE_NORM_RESCALE
            && (g->patch_size < 1 || g->width < 1 || g->width % g->patch_size != 0
                || plane % ((int64_t)g->width * g->patch_size) != 0)) {
            return op_breaks(v, op, op->out, "tokens tile the planes that guidance rescales");
        }
    }
    if ((op->kind == SUMI_OP_POSTERIOR
         && !are_statistics(op->u.posterior.scale, op->u.posterior.shift, op->u.posterior.channels))
        || (op->kind == SUMI_OP_LATENT_IN
            && !are_statistics(op->u.latent_in.scale, op->u.latent_in.shift, op->u.latent_in.channels))) {
        return op_breaks(v, op, op->out, "every channel of a latent has a scale, which is not 0, and a shift");
    }
    return SUMI_OK;
}

// The work of an op in the unit of its kind (op_kinds.c), if it follows from the op's parameters. -1: the check of
// accesses limits op->rows instead.
static int64_t work_rows(const sumi_op* op)
{
    int64_t rows = 0;
    switch (op->kind) {
    case SUMI_OP_FILL_ROWS: return op->u.fill.span_count;
    case SUMI_OP_MEAN_ROWS: return op->u.mean.span_count;
    case SUMI_OP_ATTENTION:
        for (int32_t s = 0; s < op->u.attention.sequence_count && op->u.attention.query_block > 0; s++) {
            const int64_t queries = sumi_sequence_queries(&op->u.attention.sequences[s]);
            rows +=
                op->u.attention.q_heads * ((queries + op->u.attention.query_block - 1) / op->u.attention.query_block);
        }
        return rows;
    case SUMI_OP_PATCHIFY:
    case SUMI_OP_UNPATCHIFY: return op->u.patch.sequence_count;
    case SUMI_OP_GUIDE: return op->u.guide.item_count;
    case SUMI_OP_POSTERIOR:
    case SUMI_OP_TILE_BLEND: return 1;
    case SUMI_OP_LATENT_IN: return (int64_t)op->u.latent_in.tile_height * op->u.latent_in.tile_width;
    case SUMI_OP_TILE_PLACE: return (int64_t)op->u.place.height * op->u.place.width;
    case SUMI_OP_PATCHES_IN:
        return op->u.patches.patch > 0
                 ? (int64_t)(op->u.patches.height / op->u.patches.patch) * (op->u.patches.width / op->u.patches.patch)
                 : 0;
    case SUMI_OP_CONV: {
        const int32_t scale = op->u.conv.upsamples ? 2 : 1, stride = op->u.conv.stride > 0 ? op->u.conv.stride : 1;
        return (int64_t)((op->u.conv.height - op->u.conv.above - op->u.conv.below) * scale / stride)
             * (op->u.conv.width * scale / stride);
    }
    default: return -1;
    }
}

// sumi_op: work range p covers rows [p * range_rows, min(rows, (p + 1) * range_rows)), so that all ranges cover all rows
// once.
static sumi_result check_parts(const validator* v, const sumi_op* op)
{
    const int64_t rows = work_rows(op);
    if (op->rows < 1 || (rows >= 0 && rows != op->rows)) {
        return op_breaks(v, op, op->out, "the op's rows are not the work that its numbers describe");
    }
    if (op->range_rows < 1 || op->range_count < 1
        || ((int64_t)op->rows + op->range_rows - 1) / op->range_rows != op->range_count) {
        return op_breaks(v, op, op->out, "the op's parts do not cover its rows once");
    }
    const bool is_sum = op->kind == SUMI_OP_GROUP_SUMS, is_group = is_sum || op->kind == SUMI_OP_GROUP_NORM;
    const int32_t blocks =
        is_group && op->u.group.block_rows > 0
            ? (int32_t)(((int64_t)op->u.group.all_rows + op->u.group.block_rows - 1) / op->u.group.block_rows)
            : 0;
    if (is_group
        && (op->u.group.block_count != blocks
            || (is_sum
                && (op->range_count != blocks || op->range_rows != op->u.group.block_rows
                    || op->rows != op->u.group.all_rows)))) {
        return op_breaks(v, op, op->out, "the blocks of group sums are the parts of the op that makes them");
    }
    if ((op->kind == SUMI_OP_PIXELS_OUT || op->kind == SUMI_OP_ATTENTION)
        && op->range_rows != (op->kind == SUMI_OP_PIXELS_OUT ? op->rows : 1)) {
        return op_breaks(v, op, op->out, "pixels_out has one part, attention one per head and block of queries");
    }
    return SUMI_OK;
}

static bool names_value(const sumi_op* op, sumi_value value)
{
    bool found = op->out.id == value.id || op->mask.id == value.id || solver_table(op).id == value.id;
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) { found = found || op->in[k].id == value.id; }
    return found;
}

// ops.h: rows, columns and element types of what an op reads and writes. All these values must be named in the op's
// inputs and outputs, because lifetimes are computed from those.
static sumi_result check_shapes(const validator* v, const sumi_op* op)
{
    for (size_t i = 0; i < v->accesses.count; i++) {
        const sumi_op_access* a = &v->accesses.list[i];
        if (!names_value(op, a->value)) {
            return op_breaks(v, op, a->value, "the op touches a value that is not among its inputs and outputs");
        }
        const sumi_value_info* info = sumi_plan_info(v->plan, a->value);
        if (a->row < 0 || a->rows < 1 || a->row + a->rows > info->rows) {
            return sumi_fail(
                v->error, SUMI_INTERNAL, "op %d (%s, %s): value %s: the op %s rows %lld to %lld, the value has %d",
                (int)(op - v->plan->ops), sumi_op_name(op->kind), op->label, info->name, a->writes ? "writes" : "reads",
                (long long)a->row, (long long)(a->row + a->rows), (int)info->rows);
        }
        if (a->column < 0 || a->cols < 1 || a->column + a->cols > info->cols
            || (a->width > 0 && a->width != info->cols)) {
            return op_breaks(v, op, a->value, "the value has other columns than the op needs");
        }
        if ((a->elements & (1 << info->element)) == 0) {
            return op_breaks(v, op, a->value, "the op does not take elements of this type");
        }
        if (info->pitch != info->cols && op->kind != SUMI_OP_CONV && op->kind != SUMI_OP_GROUP_SUMS
            && op->kind != SUMI_OP_GROUP_NORM) {
            return op_breaks(v, op, a->value, "the op takes no view of some columns");
        }
    }
    return op->out.id != 0 ? SUMI_OK : op_breaks(v, op, op->out, "the op has no output");
}

// plan.h: if an op works in place, its output is also an input. ops.h says which kinds always do. A product that does
// not write all rows or columns of its output does so too.
static sumi_result check_in_place_output(const validator* v, const sumi_op* op)
{
    // For kinds that always work in place: 1 + index of the input that is also the output.
    static const int8_t in_place_input[SUMI_OP_KIND_COUNT] = {
        [SUMI_OP_FILL_ROWS] = 1,    [SUMI_OP_COPY_ROWS] = 2,  [SUMI_OP_KRONECKER_ADD] = 2, [SUMI_OP_NORM_GATE_ADD] = 1,
        [SUMI_OP_QK_NORM_ROPE] = 1, [SUMI_OP_PATCHIFY] = 2,   [SUMI_OP_SOLVE] = 1,         [SUMI_OP_PREVIEW] = 4,
        [SUMI_OP_TILE_BLEND] = 1,   [SUMI_OP_TILE_PLACE] = 2, [SUMI_OP_COMPOSITE] = 1};
    const sumi_value_info* out = sumi_plan_info(v->plan, op->out);
    bool is_input = in_place_input[op->kind] == 0 || op->in[in_place_input[op->kind] - 1].id == op->out.id;
    if (op->kind == SUMI_OP_LINEAR && op->u.linear.is_adapter_product) {
        is_input = op->in[1].id == op->out.id;
    } else if (op->kind == SUMI_OP_LINEAR && (op->rows < out->rows || op->weight->rows < out->cols)) {
        is_input = op->in[1].id == op->out.id || op->in[2].id == op->out.id;
    } else if (op->kind == SUMI_OP_ACTIVATE && op->rows < out->rows) {
        is_input = op->in[0].id == op->out.id;
    }
    return is_input ? SUMI_OK : op_breaks(v, op, op->out, "an op that works in place has its output among its inputs");
}

// ops.h: which parameters of a product and of a norm exclude each other.
static sumi_result check_sums(const validator* v, const sumi_op* op)
{
    if (op->kind == SUMI_OP_NORM_MODULATE && op->bias != NULL
        && (op->u.norm.silu || op->u.norm.scale.table.id != 0 || op->u.norm.shift.table.id != 0)) {
        return op_breaks(v, op, op->out, "a norm with a bias has no scale, no shift and no activation");
    }
    if (op->kind != SUMI_OP_LINEAR) { return SUMI_OK; }
    const sumi_op_linear* linear = &op->u.linear;
    if (linear->gate.table.id != 0 && op->in[1].id == 0) {
        return op_breaks(v, op, linear->gate.table, "a gate needs what its product is added to");
    }
    if (linear->activation != SUMI_ACT_NONE && op->in[1].id != 0) {
        return op_breaks(v, op, op->in[1], "a product with an activation is not added to anything");
    }
    return SUMI_OK;
}

// The index of an access's first element in its base.
static uint64_t first_element(const sumi_plan* plan, const sumi_op_access* a)
{
    const sumi_value_info* info = sumi_plan_info(plan, a->value);
    return info->base_element + (uint64_t)a->row * (uint64_t)info->pitch + (uint64_t)a->column;
}

// The index after an access's last element in its base.
static uint64_t last_element(const sumi_plan* plan, const sumi_op_access* a)
{
    return first_element(plan, a) + (uint64_t)(a->rows - 1) * (uint64_t)sumi_plan_info(plan, a->value)->pitch
         + (uint64_t)a->cols;
}

// An access as rows and columns of its base. If the rows of the value and of its base differ in length
// (sumi_plan_reshape), it is extended to whole rows of the base.
typedef struct rectangle {
    uint64_t row, rows, column, cols;
} rectangle;

static rectangle rectangle_of(const sumi_plan* plan, const sumi_op_access* a)
{
    const uint64_t pitch = (uint64_t)sumi_plan_info(plan, owner_of(plan, a->value))->pitch,
                   begin = first_element(plan, a);
    if (sumi_plan_info(plan, a->value)->pitch == (int32_t)pitch) {
        return (rectangle){begin / pitch, (uint64_t)a->rows, begin % pitch, (uint64_t)a->cols};
    }
    return (rectangle){begin / pitch, (last_element(plan, a) + pitch - 1) / pitch - begin / pitch, 0, pitch};
}

static bool shares_memory(const sumi_plan* plan, const sumi_op_access* a, const sumi_op_access* b)
{
    const sumi_value base_a = owner_of(plan, a->value), base_b = owner_of(plan, b->value);
    const sumi_value_info *x = sumi_plan_info(plan, base_a), *y = sumi_plan_info(plan, base_b);
    if (base_a.id == base_b.id) { // rectangles of the same matrix
        const rectangle p = rectangle_of(plan, a), q = rectangle_of(plan, b);
        return p.row < q.row + q.rows && q.row < p.row + p.rows && p.column < q.column + q.cols
            && q.column < p.column + p.cols;
    }
    if (x->bytes == 0 || y->bytes == 0) { return false; }
    const uint64_t element_a = sumi_plan_element_bytes(plan, x->element),
                   element_b = sumi_plan_element_bytes(plan, y->element);
    const uint64_t begin_a = first_element(plan, a), begin_b = first_element(plan, b), end_a = last_element(plan, a),
                   end_b = last_element(plan, b);
    return x->offset + begin_a * element_a < y->offset + end_b * element_b
        && y->offset + begin_b * element_b < x->offset + end_a * element_a;
}

// plan.h: an op must not write what another of its work ranges still reads. An op that works in place writes exactly
// the rectangle that it reads, and only where ops.h allows it.
static sumi_result check_in_place_reads(const validator* v, const sumi_op* op)
{
    const sumi_plan* plan = v->plan;
    for (size_t r = 0; r < v->accesses.count; r++) {
        const sumi_op_access* from = &v->accesses.list[r];
        for (size_t w = 0; w < v->accesses.count && !from->writes; w++) {
            const sumi_op_access* to = &v->accesses.list[w];
            if (!to->writes || !shares_memory(plan, from, to)) { continue; }
            const bool is_same = owner_of(plan, from->value).id == owner_of(plan, to->value).id
                              && first_element(plan, from) == first_element(plan, to) && from->rows == to->rows
                              && from->cols == to->cols;
            if (!from->in_place || !is_same) {
                return op_breaks(v, op, from->value,
                                 "the op writes over what it reads, and its kind does not allow that");
            }
        }
    }
    return SUMI_OK;
}

static int compare_accesses(const void* a, const void* b)
{
    const sumi_op_access *x = a, *y = b;
    if (x->writes != y->writes) { return x->writes ? -1 : 1; }
    if (x->value.id != y->value.id) { return x->value.id < y->value.id ? -1 : 1; }
    return (x->row > y->row) - (x->row < y->row);
}

// ops.h: the work ranges give the same bits in any order, so no two of them write the same rows. Sorts v->accesses.
static sumi_result check_writes(const validator* v, const sumi_op* op)
{
    sumi_sort(v->accesses.list, v->accesses.count, sizeof *v->accesses.list, compare_accesses);
    for (size_t i = 1; i < v->accesses.count && v->accesses.list[i].writes; i++) {
        const sumi_op_access *a = &v->accesses.list[i - 1], *b = &v->accesses.list[i];
        if (a->value.id == b->value.id && a->row + a->rows > b->row) {
            return op_breaks(v, op, b->value, "two parts of the op write the same rows");
        }
    }
    return SUMI_OK;
}

// sumi_plan_arrange: the second op of a pair reads the result of the first op, and writes no memory that the first op
// reads.
static sumi_result check_pair(const validator* v, const sumi_op* op)
{
    const sumi_plan* plan = v->plan;
    const sumi_op* next = op + 1;
    if (!op->is_first_of_pair) { return SUMI_OK; }
    if (next >= plan->ops + plan->op_count || next->section != op->section) {
        return op_breaks(v, op, op->out, "the op joins the next one, and there is none in its section");
    }
    if (next->is_first_of_pair) { return op_breaks(v, op, op->out, "an op is in one pair at most"); }
    bool is_read = false;
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) { is_read = is_read || next->in[k].id == op->out.id; }
    if (!is_read || !is_value(plan, next->out)) {
        return op_breaks(v, op, op->out, "the second op of a pair reads what the first one makes");
    }
    const sumi_value_info* written = sumi_plan_info(plan, owner_of(plan, next->out));
    if (written->first_use > (int32_t)(op - plan->ops)) {
        return op_breaks(v, op, next->out, "what the second op of a pair writes lives from the first one on");
    }
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) {
        if (op->in[k].id == 0) { continue; }
        const sumi_value_info* read = sumi_plan_info(plan, owner_of(plan, op->in[k]));
        if (read->offset < written->offset + written->bytes && written->offset < read->offset + read->bytes) {
            return op_breaks(v, op, op->in[k], "the second op of a pair writes over what the first one still reads");
        }
    }
    return SUMI_OK;
}

static sumi_result check_op(validator* v, const sumi_op* op)
{
    if (op->kind < 0 || op->kind >= SUMI_OP_KIND_COUNT) {
        return op_breaks(v, op, op->out, "there is no op of this kind");
    }
    SUMI_TRY(check_lives(v, op));
    SUMI_TRY(check_pair(v, op));
    SUMI_TRY(check_weights(v, op));
    SUMI_TRY(check_latent_numbers(v, op));
    SUMI_TRY(check_bands(v, op));
    SUMI_TRY(check_parts(v, op));
    SUMI_TRY(sumi_op_list_accesses(&v->accesses, op, 0, v->plan->sections[op->section].repeat));
    SUMI_TRY(check_shapes(v, op));
    SUMI_TRY(check_in_place_output(v, op));
    SUMI_TRY(check_sums(v, op));
    SUMI_TRY(check_in_place_reads(v, op));
    return check_writes(v, op);
}

// ---- Rows are written before they are read --------------------------------------------------------------------------

// The index of the first entry whose end is after `at`.
static size_t find_owned(const validator* v, uint64_t at)
{
    size_t low = 0, high = v->map_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (v->map[middle].end > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static bool is_same_owner(const owned* a, const owned* b) { return a->value == b->value && a->view == b->view; }

// Makes `fresh` the owner of its bytes in the map. Adjacent entries of the same owner are merged.
static sumi_result set_owner(validator* v, owned fresh)
{
    SUMI_TRY(sumi_grow(&v->heap, (void**)&v->map, &v->map_capacity, v->map_count + 2, sizeof *v->map, v->error));
    size_t first = find_owned(v, fresh.begin), last = first, count = 0;
    if (first > 0 && v->map[first - 1].end == fresh.begin && is_same_owner(&v->map[first - 1], &fresh)) { first--; }
    while (last < v->map_count
           && (v->map[last].begin < fresh.end
               || (v->map[last].begin == fresh.end && is_same_owner(&v->map[last], &fresh)))) {
        last++;
    }
    owned pieces[3], before = fresh, behind = fresh;
    if (first < last) {
        before = v->map[first];
        behind = v->map[last - 1];
    }
    if (before.begin < fresh.begin && is_same_owner(&before, &fresh)) {
        fresh.begin = before.begin;
    } else if (before.begin < fresh.begin) {
        pieces[count++] = (owned){before.begin, fresh.begin, before.value, before.view};
    }
    const size_t own = count++;
    if (behind.end > fresh.end && is_same_owner(&behind, &fresh)) {
        fresh.end = behind.end;
    } else if (behind.end > fresh.end) {
        pieces[count++] = (owned){fresh.end, behind.end, behind.value, behind.view};
    }
    pieces[own] = fresh;
    memmove(v->map + first + count, v->map + last, (v->map_count - last) * sizeof *v->map);
    memcpy(v->map + first, pieces, count * sizeof *pieces);
    v->map_count = v->map_count - (last - first) + count;
    return SUMI_OK;
}

// The bytes of an access, extended to whole rows of the base.
static owned owned_bytes(const sumi_plan* plan, const sumi_op_access* a)
{
    const sumi_value base = owner_of(plan, a->value);
    const sumi_value_info* info = sumi_plan_info(plan, base);
    const uint64_t row_bytes = (uint64_t)info->pitch * sumi_plan_element_bytes(plan, info->element);
    const rectangle r = rectangle_of(plan, a);
    sumi_value view = a->value; // the outermost view
    while (view.id != base.id && sumi_plan_info(plan, view)->cut_from.id != base.id) {
        view = sumi_plan_info(plan, view)->cut_from;
    }
    return (owned){info->offset + r.row * row_bytes, info->offset + (r.row + r.rows) * row_bytes, base.id, view.id};
}

static sumi_result check_written(const validator* v, const sumi_op* op, const sumi_op_access* a)
{
    const owned needed = owned_bytes(v->plan, a);
    uint64_t at = needed.begin;
    for (size_t i = find_owned(v, at); at < needed.end; i++) {
        const owned* found = i < v->map_count && v->map[i].begin <= at ? &v->map[i] : NULL;
        const bool is_own = found != NULL && found->value == needed.value;
        if (!is_own || (found->view != needed.view && found->view != needed.value && needed.view != needed.value)) {
            const sumi_value_info* base = sumi_plan_info(v->plan, (sumi_value){needed.value});
            const uint64_t row_bytes = (uint64_t)base->pitch * sumi_plan_element_bytes(v->plan, base->element);
            return sumi_fail(v->error, SUMI_INTERNAL, "op %d (%s, %s): value %s: row %llu is read, but %s%s",
                             (int)(op - v->plan->ops), sumi_op_name(op->kind), op->label, value_name(v->plan, a->value),
                             (unsigned long long)((at - needed.begin) / row_bytes + (uint64_t)a->row),
                             found == NULL ? "no op before this one has written it"
                             : is_own      ? "another view of its memory was written since: "
                                           : "its memory was overwritten by the value ",
                             found == NULL ? ""
                                           : value_name(v->plan, (sumi_value){is_own ? found->view : found->value}));
        }
        at = found->end;
    }
    return SUMI_OK;
}

static sumi_result run_op(validator* v, const sumi_op* op, int32_t first, int32_t count)
{
    SUMI_TRY(sumi_op_list_accesses(&v->accesses, op, first, count));
    for (size_t i = 0; i < v->accesses.count; i++) {
        const sumi_op_access* a = &v->accesses.list[i];
        const sumi_value_info* base = sumi_plan_info(v->plan, owner_of(v->plan, a->value));
        if (base->is_unstored) { continue; }
        SUMI_TRY(a->writes ? set_owner(v, owned_bytes(v->plan, a)) : check_written(v, op, a));
    }
    return SUMI_OK;
}

// plan.h: the rows of a value are written before they are read. Bound values are written by the engine or are
// constants.
static sumi_result check_order(validator* v)
{
    const sumi_plan* plan = v->plan;
    v->accesses.by_line = true;
    for (size_t i = 0; i < plan->value_count; i++) {
        const sumi_value_info* info = &plan->values[i];
        if (info->bound && info->base.id == 0) {
            SUMI_TRY(set_owner(v, (owned){info->offset, info->offset + info->bytes, (int32_t)i + 1, (int32_t)i + 1}));
        }
    }
    for (size_t s = 0; s < plan->section_count; s++) {
        const sumi_section* section = &plan->sections[s];
        for (int32_t round = 0; round < 2 && round < section->repeat; round++) {
            for (int32_t i = section->op_begin; i < section->op_end; i++) {
                SUMI_TRY(run_op(v, &plan->ops[i], round, round == 0 ? 1 : section->repeat - 1));
            }
        }
    }
    return SUMI_OK;
}

// ---- The plan -------------------------------------------------------------------------------------------------------

static sumi_result check_plan(validator* v)
{
    SUMI_TRY(check_sections(v));
    SUMI_TRY(check_arena(v));
    SUMI_TRY(check_constants(v));
    for (size_t i = 0; i < v->plan->op_count; i++) { SUMI_TRY(check_op(v, &v->plan->ops[i])); }
    SUMI_TRY(check_counters(v));
    SUMI_TRY(check_order(v));
    return check_slices(v);
}

sumi_result sumi_plan_validate(const sumi_plan* plan, sumi_error* error)
{
    validator v = {.plan = plan, .error = error};
    sumi_heap_init(&v.heap, NULL);
    v.accesses = (sumi_op_accesses){.plan = plan, .heap = &v.heap, .error = error};
    const sumi_result result = check_plan(&v);
    sumi_free(&v.heap, v.accesses.list);
    sumi_free(&v.heap, v.map);
    return result;
}

sumi_result sumi_plan_validate_slices(const sumi_plan* plan, sumi_error* error)
{
    return check_slices(&(validator){.plan = plan, .error = error});
}
