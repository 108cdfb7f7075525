// The invariants of single ops: lifetimes of their values, shapes and elements, in-place rules, work ranges, pairs.
// op_accesses.c lists the rectangles of values that an op reads and writes; the checks use this list.
#include "base/memory.h"
#include "base/rotation.h"
#include "plan/validator.h"
#include <string.h>

// ---- Lifetimes ------------------------------------------------------------------------------------------------------

// plan.h: a value lives at every op that uses it. A value from before a repeated section that the section or its
// alternative uses lives until both end, and so does a value that both use.
static sumi_result check_life(const sumi_validator* v, const sumi_op* op, sumi_value value)
{
    const sumi_plan* plan = v->plan;
    if (value.id == 0) return SUMI_OK;
    if (!sumi_validate_is_value(plan, value))
        return sumi_validate_op_breaks(v, op, value, "the plan has no such value");
    const sumi_value_info* info = sumi_plan_info(plan, sumi_validate_owner(plan, value));
    const sumi_section* section = &plan->sections[op->section];
    const int32_t index = (int32_t)(op - plan->ops);
    if (info->first_use < 0 || info->first_use > index || info->last_use < index)
        return sumi_validate_op_breaks(v, op, value, "the value does not live at an op that uses it");
    // the section with its alternative
    const sumi_section *first = section->is_alternative ? section - 1 : section,
                       *last = sumi_plan_has_alternative(plan, (size_t)(first - plan->sections)) ? first + 1 : first;
    if (section->repeat > 1 && info->first_use < first->op_begin && info->last_use < last->op_end - 1) {
        return sumi_validate_op_breaks(v, op, value,
                                       "a value that enters a repeated section lives until the section ends");
    }
    if (section->is_alternative && info->first_use < section->op_begin && info->last_use < section->op_end - 1) {
        return sumi_validate_op_breaks(v, op, value,
                                       "a value that a section leaves to its alternative lives until both end");
    }
    return SUMI_OK;
}

static sumi_result check_lives(const sumi_validator* v, const sumi_op* op)
{
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) SUMI_TRY(check_life(v, op, op->in[k]));
    SUMI_TRY(check_life(v, op, op->out));
    SUMI_TRY(check_life(v, op, op->mask));
    SUMI_TRY(check_life(v, op, sumi_validate_solver_table(op)));
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
static sumi_result check_weights(const sumi_validator* v, const sumi_op* op)
{
    const sumi_weight* const weights[] = {op->weight, op->bias,
                                          op->kind == SUMI_OP_QK_NORM_ROPE ? op->u.qk.k_weight : NULL};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        int64_t rows = 0;
        bool is_whole = true;
        for (int32_t p = 0; weights[i] != NULL && p < weights[i]->tensor_count && p < SUMI_WEIGHT_MAX_TENSORS; p++) {
            const sumi_stacked_tensor* tensor = &weights[i]->tensors[p];
            rows += tensor->rows;
            is_whole = is_whole
                    && (tensor->rotation == 0
                        || (sumi_rotation_is_known(tensor->rotation) && weights[i]->cols % tensor->rotation == 0));
        }
        if (!is_whole)
            return sumi_validate_op_breaks(v, op, op->out, "a weight's rows are whole groups of its rotation");
        if (weights[i] != NULL && !sumi_weight_is_dense(weights[i]) && (i > 0 || op->kind != SUMI_OP_CONV))
            return sumi_validate_op_breaks(v, op, op->out, "a weight that lies in chunks is a convolution's");
        if (weights[i] != NULL && (weights[i]->tensor_count > SUMI_WEIGHT_MAX_TENSORS || rows != weights[i]->rows)) {
            return sumi_validate_op_breaks(
                v, op, op->out, "the tensors of a stacked weight must have as many rows together as the weight");
        }
        if (weights[i] != NULL && weights[i]->change != NULL && !is_change(weights[i], weights[i]->change))
            return sumi_validate_op_breaks(v, op, op->out, "a weight's change has the weight's rows and a rank");
    }
    const int32_t cols = sumi_plan_info(v->plan, op->out)->cols;
    bool fits;
    switch (op->kind) {
    case SUMI_OP_EMBED_ROWS:
        fits = op->weight != NULL ? op->weight->cols == cols && op->in[1].id == 0 && is_vector(op->bias, cols)
                                  : op->in[1].id != 0 && op->bias == NULL;
        fits = fits && (op->in[2].id == 0 ? op->u.embed.terms == 1 : op->u.embed.scale == 1.0f && op->bias == NULL);
        break;
    case SUMI_OP_FILL_ROWS: fits = is_vector(op->weight, cols) && op->bias == NULL; break;
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
    return fits ? SUMI_OK
                : sumi_validate_op_breaks(v, op, op->out, "the weight or the bias has another shape than the op");
}

static bool are_bands(const sumi_row_band* bands, int32_t count, int32_t rows)
{
    int32_t begin = 0;
    bool are_valid = count >= 0 && (count == 0 || bands != NULL);
    for (int32_t i = 0; i < count && are_valid; begin = bands[i++].end)
        are_valid = bands[i].end > begin && bands[i].table_row >= 0;
    return are_valid && (count == 0 || begin == rows);
}

static sumi_result check_bands(const sumi_validator* v, const sumi_op* op)
{
    const bool are_valid =
        op->kind == SUMI_OP_NORM_MODULATE   ? are_bands(op->u.norm.bands, op->u.norm.band_count, op->rows)
        : op->kind == SUMI_OP_NORM_GATE_ADD ? are_bands(op->u.gate_add.bands, op->u.gate_add.band_count, op->rows)
                                            : true;
    return are_valid ? SUMI_OK : sumi_validate_op_breaks(v, op, op->out, "bands cover the rows of their op");
}

static bool are_statistics(const float* scale, const float* shift, int32_t channels)
{
    bool are_valid = scale != NULL && shift != NULL;
    for (int32_t c = 0; are_valid && c < channels; c++) are_valid = scale[c] != 0.0f;
    return are_valid;
}

// Whether the op packs or unpacks a picture whose sides its packing divides, or none.
static bool is_packed(const sumi_validator* v, const sumi_op* op)
{
    switch (op->kind) {
    case SUMI_OP_PREVIEW:
        return sumi_is_packing(op->u.preview.packing, op->u.preview.width, sumi_plan_info(v->plan, op->out)->cols);
    case SUMI_OP_POSTERIOR:
        return sumi_is_packing(op->u.posterior.packing, op->u.posterior.width,
                               sumi_plan_info(v->plan, op->in[0])->rows);
    case SUMI_OP_LATENT_IN:
        return sumi_is_packing(op->u.latent_in.packing, op->u.latent_in.width,
                               (int64_t)op->u.latent_in.height * op->u.latent_in.width);
    default: return true;
    }
}

// ops.h: the valid parameters of ops on latents, except those that the list of accesses implies.
static sumi_result check_latent_numbers(const sumi_validator* v, const sumi_op* op)
{
    const sumi_op_guide* g = &op->u.guide;
    if (op->kind == SUMI_OP_GUIDE) {
        if (g->rule <= SUMI_GUIDANCE_MODEL || g->rule > SUMI_GUIDANCE_NORM_RESCALE || !(g->norm_limit >= 0.0f)) {
            return sumi_validate_op_breaks(v, op, op->out,
                                           "guidance needs a rule, and its norm limit may not be negative");
        }
        const int64_t plane = sumi_plan_info(v->plan, op->out)->cols;
        if (g->rule == SUMI_GUIDANCE_NORM_RESCALE
            && (g->patch_size < 1 || g->width < 1 || g->width % g->patch_size != 0
                || plane % ((int64_t)g->width * g->patch_size) != 0))
            return sumi_validate_op_breaks(v, op, op->out, "tokens tile the planes that guidance rescales");
    }
    const bool is_patch = op->kind == SUMI_OP_PATCHIFY || op->kind == SUMI_OP_UNPATCHIFY;
    const sumi_op_patch* p = &op->u.patch;
    if (is_patch
        && ((p->patch != 1 && p->patch != 2) || p->height < 1 || p->width < 1 || p->height % p->patch != 0
            || p->width % p->patch != 0))
        return sumi_validate_op_breaks(v, op, op->out, "patches of 1 or 2 pixels along a side tile the latents");
    if (!is_packed(v, op)) {
        return sumi_validate_op_breaks(v, op, op->out,
                                       "a packing is 1 or 2, and divides the sides of the picture that is packed");
    }
    if ((op->kind == SUMI_OP_POSTERIOR
         && !are_statistics(op->u.posterior.scale, op->u.posterior.shift,
                            op->u.posterior.channels * op->u.posterior.packing * op->u.posterior.packing))
        || (op->kind == SUMI_OP_LATENT_IN
            && !are_statistics(op->u.latent_in.scale, op->u.latent_in.shift,
                               op->u.latent_in.channels * op->u.latent_in.packing * op->u.latent_in.packing))) {
        return sumi_validate_op_breaks(v, op, op->out,
                                       "every channel of a latent has a scale, which is not 0, and a shift");
    }
    return SUMI_OK;
}

// ops.h: the valid parameters of ops on pictures.
static sumi_result check_picture_numbers(const sumi_validator* v, const sumi_op* op)
{
    if (op->kind == SUMI_OP_SHORTCUT) {
        const sumi_op_shortcut* s = &op->u.shortcut;
        const sumi_value_info *x = sumi_plan_info(v->plan, op->in[0]), *y = sumi_plan_info(v->plan, op->out);
        const int32_t line = s->upsamples ? s->width : s->width * s->scale;
        if (!sumi_is_shortcut(s, x->cols, y->cols) || x->rows % line != 0 || op->rows != y->rows
            || (s->upsamples ? x->rows * 4 != y->rows : y->rows * s->scale * s->scale != x->rows))
            return sumi_validate_op_breaks(v, op, op->out, "the values of a shortcut divide into those of its result");
    }
    if (op->kind == SUMI_OP_PIXELS_IN || op->kind == SUMI_OP_PIXELS_OUT || op->kind == SUMI_OP_COMPOSITE) {
        const int32_t cols = sumi_plan_info(v->plan, op->out)->cols;
        if ((cols != 3 && cols != 4) || (op->kind == SUMI_OP_PIXELS_IN && cols > op->u.pixels.cols))
            return sumi_validate_op_breaks(v, op, op->out, "pixels have three or four channels, one byte for each");
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
    case SUMI_OP_TILE_PLACE: return (int64_t)op->u.tile_place.height * op->u.tile_place.width;
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

// sumi_op: work range p covers rows [p * range_rows, min(rows, (p + 1) * range_rows)), so that all ranges cover all
// rows once.
static sumi_result check_work_ranges(const sumi_validator* v, const sumi_op* op)
{
    const int64_t rows = work_rows(op);
    if (op->rows < 1 || (rows >= 0 && rows != op->rows))
        return sumi_validate_op_breaks(v, op, op->out, "the op's rows are not the work that its numbers describe");
    const bool is_sum = op->kind == SUMI_OP_GROUP_SUMS, is_group = is_sum || op->kind == SUMI_OP_GROUP_NORM;
    const int32_t blocks =
        is_group && op->u.group.block_rows > 0
            ? (int32_t)(((int64_t)op->u.group.all_rows + op->u.group.block_rows - 1) / op->u.group.block_rows)
            : 0;
    if (is_group && (op->u.group.block_count != blocks || (is_sum && op->rows != op->u.group.all_rows)))
        return sumi_validate_op_breaks(v, op, op->out, "the blocks of group sums do not cover the rows once");
    if (op->is_cut) { // only the backend knows the ranges
        return op->range_rows >= 1 && op->preparing_count >= 0 && op->preparing_count < op->range_count
                 ? SUMI_OK
                 : sumi_validate_op_breaks(v, op, op->out, "the backend has cut the op into no work ranges");
    }
    if (op->range_rows < 1 || op->range_count < 1 || op->preparing_count != 0
        || ((int64_t)op->rows + op->range_rows - 1) / op->range_rows != op->range_count)
        return sumi_validate_op_breaks(v, op, op->out, "the op's work ranges do not cover its rows once");
    if (is_sum && (op->range_count != blocks || op->range_rows != op->u.group.block_rows)) {
        return sumi_validate_op_breaks(v, op, op->out,
                                       "the blocks of group sums are the work ranges of the op that makes them");
    }
    if ((op->kind == SUMI_OP_PIXELS_OUT || op->kind == SUMI_OP_ATTENTION)
        && op->range_rows != (op->kind == SUMI_OP_PIXELS_OUT ? op->rows : 1)) {
        return sumi_validate_op_breaks(v, op, op->out,
                                       "pixels_out has one part, attention one per head and block of queries");
    }
    return SUMI_OK;
}

static bool names_value(const sumi_op* op, sumi_value value)
{
    bool found = op->out.id == value.id || op->mask.id == value.id || sumi_validate_solver_table(op).id == value.id;
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) found = found || op->in[k].id == value.id;
    return found;
}

// ops.h: rows, columns and element types of the values that an op reads and writes. All these values must be named in
// the op's inputs and outputs, because lifetimes are computed from those.
static sumi_result check_shapes(const sumi_validator* v, const sumi_op* op)
{
    for (size_t i = 0; i < v->accesses.count; i++) {
        const sumi_op_access* a = &v->accesses.list[i];
        if (!names_value(op, a->value)) {
            return sumi_validate_op_breaks(v, op, a->value,
                                           "the op touches a value that is not among its inputs and outputs");
        }
        const sumi_value_info* info = sumi_plan_info(v->plan, a->value);
        if (a->row < 0 || a->rows < 1 || a->row + a->rows > info->rows) {
            return sumi_fail(
                v->error, SUMI_INTERNAL, "op %d (%s, %s): value %s: the op %s rows %lld to %lld, the value has %d",
                (int)(op - v->plan->ops), sumi_op_name(op->kind), op->label, info->name, a->writes ? "writes" : "reads",
                (long long)a->row, (long long)(a->row + a->rows), (int)info->rows);
        }
        if (a->column < 0 || a->cols < 1 || a->column + a->cols > info->cols
            || (a->width > 0 && a->width != info->cols))
            return sumi_validate_op_breaks(v, op, a->value, "the value has other columns than the op needs");
        if ((a->elements & (1 << info->element)) == 0)
            return sumi_validate_op_breaks(v, op, a->value, "the op does not take elements of this type");
        if (info->pitch != info->cols && op->kind != SUMI_OP_CONV && op->kind != SUMI_OP_GROUP_SUMS
            && op->kind != SUMI_OP_GROUP_NORM && (op->kind != SUMI_OP_COPY_ROWS || a->writes))
            return sumi_validate_op_breaks(v, op, a->value, "the op takes no view of some columns");
    }
    return op->out.id != 0 ? SUMI_OK : sumi_validate_op_breaks(v, op, op->out, "the op has no output");
}

// plan.h: if an op works in place, its output is also an input. ops.h says which kinds always do. So do products, gates
// and attention that do not write all rows or columns of their output.
static sumi_result check_in_place_output(const sumi_validator* v, const sumi_op* op)
{
    // For kinds that always work in place: 1 + index of the input that is also the output.
    static const int8_t s_in_place_input[SUMI_OP_KIND_COUNT] = {
        [SUMI_OP_FILL_ROWS] = 1,    [SUMI_OP_COPY_ROWS] = 2,  [SUMI_OP_KRONECKER_ADD] = 2, [SUMI_OP_NORM_GATE_ADD] = 1,
        [SUMI_OP_QK_NORM_ROPE] = 1, [SUMI_OP_PATCHIFY] = 2,   [SUMI_OP_SOLVE] = 1,         [SUMI_OP_PREVIEW] = 4,
        [SUMI_OP_TILE_BLEND] = 1,   [SUMI_OP_TILE_PLACE] = 2, [SUMI_OP_COMPOSITE] = 1,     [SUMI_OP_ADD_ROWS] = 2,
        [SUMI_OP_ADD_RESIDUAL] = 1};
    const sumi_value_info* out = sumi_plan_info(v->plan, op->out);
    bool is_input = s_in_place_input[op->kind] == 0 || op->in[s_in_place_input[op->kind] - 1].id == op->out.id;
    if (op->kind == SUMI_OP_LINEAR && op->u.linear.is_adapter_product) {
        is_input = op->in[1].id == op->out.id;
    } else if (op->kind == SUMI_OP_LINEAR && (op->rows < out->rows || op->weight->rows < out->cols)) {
        is_input = op->in[1].id == op->out.id || op->in[2].id == op->out.id;
    } else if (op->kind == SUMI_OP_GATED && sumi_plan_info(v->plan, op->in[0])->cols / 2 < out->cols) {
        is_input = op->in[1].id == op->out.id;
    } else if (op->kind == SUMI_OP_ATTENTION && op->u.attention.q_heads * op->u.attention.dim < out->cols) {
        is_input = op->in[1].id == op->out.id;
    } else if (op->kind == SUMI_OP_ACTIVATE && op->rows < out->rows) {
        is_input = op->in[0].id == op->out.id;
    }
    return is_input
             ? SUMI_OK
             : sumi_validate_op_breaks(v, op, op->out, "an op that works in place has its output among its inputs");
}

// ops.h: which ranges of a sequence hold keys and queries.
static sumi_result check_sequences(const sumi_validator* v, const sumi_op* op)
{
    for (int32_t s = 0; op->kind == SUMI_OP_ATTENTION && s < op->u.attention.sequence_count; s++) {
        if (!sumi_sequence_is_valid(&op->u.attention.sequences[s], op->u.attention.window)) {
            return sumi_validate_op_breaks(v, op, op->out,
                                           "a sequence has one or two spans, each with keys or with queries");
        }
        if (op->in[2].id != 0
            && (!sumi_sequence_has_kept(&op->u.attention.sequences[s]) || op->u.attention.window != 0)) {
            return sumi_validate_op_breaks(v, op, op->in[2],
                                           "a sequence with kept keys has them first, then queries, and no window");
        }
    }
    return SUMI_OK;
}

// ops.h: which parameters of a product and of a norm exclude each other.
static sumi_result check_sums(const sumi_validator* v, const sumi_op* op)
{
    if (op->kind == SUMI_OP_NORM_MODULATE && op->bias != NULL
        && (op->u.norm.silu || op->u.norm.scale.table.id != 0 || op->u.norm.shift.table.id != 0))
        return sumi_validate_op_breaks(v, op, op->out, "a norm with a bias has no scale, no shift and no activation");
    if (op->kind != SUMI_OP_LINEAR) return SUMI_OK;
    const sumi_op_linear* linear = &op->u.linear;
    if (linear->gate.table.id != 0 && op->in[1].id == 0)
        return sumi_validate_op_breaks(v, op, linear->gate.table, "a gate needs what its product is added to");
    if (linear->activation != SUMI_ACT_NONE && op->in[1].id != 0)
        return sumi_validate_op_breaks(v, op, op->in[1], "a product with an activation is not added to anything");
    return SUMI_OK;
}

static bool shares_memory(const sumi_plan* plan, const sumi_op_access* a, const sumi_op_access* b)
{
    const sumi_value base_a = sumi_validate_owner(plan, a->value), base_b = sumi_validate_owner(plan, b->value);
    const sumi_value_info *x = sumi_plan_info(plan, base_a), *y = sumi_plan_info(plan, base_b);
    if (base_a.id == base_b.id) { // rectangles of the same matrix
        const sumi_rectangle p = sumi_validate_rectangle(plan, a), q = sumi_validate_rectangle(plan, b);
        return p.row < q.row + q.rows && q.row < p.row + p.rows && p.column < q.column + q.cols
            && q.column < p.column + p.cols;
    }
    if (x->bytes == 0 || y->bytes == 0) return false;
    const uint64_t element_a = sumi_plan_element_bytes(plan, x->element),
                   element_b = sumi_plan_element_bytes(plan, y->element);
    const uint64_t begin_a = sumi_validate_first_element(plan, a), begin_b = sumi_validate_first_element(plan, b),
                   end_a = sumi_validate_last_element(plan, a), end_b = sumi_validate_last_element(plan, b);
    return x->offset + begin_a * element_a < y->offset + end_b * element_b
        && y->offset + begin_b * element_b < x->offset + end_a * element_a;
}

// plan.h: an op must not overwrite rows that another of its work ranges still reads. An op that works in place writes
// exactly the sumi_rectangle that it reads, and only where ops.h allows it.
static sumi_result check_in_place_reads(const sumi_validator* v, const sumi_op* op)
{
    const sumi_plan* plan = v->plan;
    for (size_t r = 0; r < v->accesses.count; r++) {
        const sumi_op_access* from = &v->accesses.list[r];
        for (size_t w = 0; w < v->accesses.count && !from->writes; w++) {
            const sumi_op_access* to = &v->accesses.list[w];
            if (!to->writes || !shares_memory(plan, from, to)) continue;
            const bool is_same = sumi_validate_owner(plan, from->value).id == sumi_validate_owner(plan, to->value).id
                              && sumi_validate_first_element(plan, from) == sumi_validate_first_element(plan, to)
                              && from->rows == to->rows && from->cols == to->cols;
            if (!from->in_place || !is_same) {
                return sumi_validate_op_breaks(v, op, from->value,
                                               "the op writes over what it reads, and its kind does not allow that");
            }
        }
    }
    return SUMI_OK;
}

static int compare_accesses(const void* a, const void* b)
{
    const sumi_op_access *x = a, *y = b;
    if (x->writes != y->writes) return x->writes ? -1 : 1;
    if (x->value.id != y->value.id) return x->value.id < y->value.id ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

// ops.h: the work ranges give the same bits in any order, so no two of them write the same rows. Sorts v->accesses.
static sumi_result check_writes(const sumi_validator* v, const sumi_op* op)
{
    sumi_sort(v->accesses.list, v->accesses.count, sizeof *v->accesses.list, compare_accesses);
    for (size_t i = 1; i < v->accesses.count && v->accesses.list[i].writes; i++) {
        const sumi_op_access *a = &v->accesses.list[i - 1], *b = &v->accesses.list[i];
        if (a->value.id == b->value.id && a->row + a->rows > b->row)
            return sumi_validate_op_breaks(v, op, b->value, "the op writes the same rows twice");
    }
    return SUMI_OK;
}

// The next op writes no memory that this op reads, although both are executed together.
static sumi_result check_next_writes_apart(const sumi_validator* v, const sumi_op* op)
{
    const sumi_plan* plan = v->plan;
    const sumi_op* next = op + 1;
    const sumi_value_info* written = sumi_plan_info(plan, sumi_validate_owner(plan, next->out));
    if (written->first_use > (int32_t)(op - plan->ops)) {
        return sumi_validate_op_breaks(v, op, next->out,
                                       "what the second op of a pair writes lives from the first one on");
    }
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) {
        // where ops beside each other write rows of one matrix, each reads its own rows of it at most
        if (op->in[k].id == 0 || (op->is_beside_next && op->in[k].id == op->out.id && op->out.id == next->out.id))
            continue;
        const sumi_value_info* read = sumi_plan_info(plan, sumi_validate_owner(plan, op->in[k]));
        if (read->offset < written->offset + written->bytes && written->offset < read->offset + read->bytes) {
            return sumi_validate_op_breaks(v, op, op->in[k],
                                           "the second op of a pair writes over what the first one still reads");
        }
    }
    return SUMI_OK;
}

// sumi_plan_arrange: the second op of a pair reads the result of the first op, and writes no memory that the first op
// reads. Of two ops beside each other neither reads the other one's result.
static sumi_result check_pair(const sumi_validator* v, const sumi_op* op)
{
    const sumi_plan* plan = v->plan;
    const sumi_op* next = op + 1;
    if (!op->is_first_of_pair && !op->is_beside_next) return SUMI_OK;
    if (next >= plan->ops + plan->op_count || next->section != op->section)
        return sumi_validate_op_breaks(v, op, op->out, "the op joins the next one, and there is none in its section");
    if (next->is_first_of_pair || next->is_beside_next || (op->is_first_of_pair && op->is_beside_next))
        return sumi_validate_op_breaks(v, op, op->out, "an op is in one pair at most");
    if (!sumi_validate_is_value(plan, next->out))
        return sumi_validate_op_breaks(v, op, op->out, "the second op of a pair writes a value");
    bool is_read = false, is_apart = true;
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) {
        is_read = is_read || next->in[k].id == op->out.id;
        is_apart = is_apart
                && (next->in[k].id == 0 || next->in[k].id == next->out.id
                    || sumi_validate_owner(plan, next->in[k]).id != sumi_validate_owner(plan, op->out).id);
    }
    if (op->is_first_of_pair && !is_read)
        return sumi_validate_op_breaks(v, op, op->out, "the second op of a pair reads what the first one makes");
    if (op->is_beside_next && !is_apart)
        return sumi_validate_op_breaks(v, op, op->out, "an op reads what the one beside it makes");
    return check_next_writes_apart(v, op);
}

sumi_result sumi_validate_op(sumi_validator* v, const sumi_op* op)
{
    if (op->kind < 0 || op->kind >= SUMI_OP_KIND_COUNT)
        return sumi_validate_op_breaks(v, op, op->out, "there is no op of this kind");
    SUMI_TRY(check_lives(v, op));
    SUMI_TRY(check_pair(v, op));
    SUMI_TRY(check_weights(v, op));
    SUMI_TRY(check_latent_numbers(v, op));
    SUMI_TRY(check_picture_numbers(v, op));
    SUMI_TRY(check_bands(v, op));
    SUMI_TRY(check_sequences(v, op));
    SUMI_TRY(check_work_ranges(v, op));
    SUMI_TRY(sumi_op_list_accesses(&v->accesses, op, 0, v->plan->sections[op->section].repeat));
    SUMI_TRY(check_shapes(v, op));
    SUMI_TRY(check_in_place_output(v, op));
    SUMI_TRY(check_sums(v, op));
    SUMI_TRY(check_in_place_reads(v, op));
    return check_writes(v, op);
}
