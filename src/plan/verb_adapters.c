#include "base/assert.h"
#include "plan/verb.h"

bool sumi_adapter_changes(const sumi_adapter_use* use, const sumi_delta* delta, const sumi_weight* weight)
{
    return delta->weight_index == weight->index && use->scale != 0.0f;
}

sumi_value sumi_plan_ones(sumi_plan* plan, int32_t rows)
{
    SUMI_ASSERT(rows >= 1);
    if (plan->constant_ones.id != 0 && sumi_plan_rows(plan, plan->constant_ones) >= rows) return plan->constant_ones;
    const size_t count = (size_t)rows;
    float* ones = sumi_alloc_array(plan->heap, count, sizeof *ones);
    if (ones == NULL) {
        sumi_out_of_memory(&plan->error, count * sizeof *ones, "a constant");
        return SUMI_NO_VALUE;
    }
    for (size_t i = 0; i < count; i++) ones[i] = 1.0f;
    plan->constant_ones = sumi_plan_constant(plan, "ones", SUMI_ELEMENT_FLOAT, rows, 1, ones);
    sumi_free(plan->heap, ones);
    return plan->constant_ones;
}

bool sumi_plan_is_adapted(const sumi_plan* plan, const sumi_weight* weight)
{
    for (int32_t u = 0; u < plan->adapter_count; u++) {
        const sumi_adapter* adapter = plan->adapters[u].adapter;
        for (int32_t d = 0; d < adapter->delta_count; d++) {
            if (sumi_adapter_changes(&plan->adapters[u], &adapter->deltas[d], weight)) return true;
        }
    }
    return false;
}

typedef struct product_input {
    sumi_value x;
    int32_t row; // the first one that is read
} product_input;

// Adds scale * x up^T to the output of `product`, in the columns that belong to the change's rows. A gate
// applies to the change too: residual + gate * (P + D) is the product's output plus gate * D.
static void add_product(sumi_plan* plan, const sumi_op* product, const sumi_delta* delta, float scale,
                        product_input input)
{
    SUMI_ASSERT(product->kind == SUMI_OP_LINEAR && product->u.linear.activation == SUMI_ACT_NONE);
    const sumi_op_linear* linear = &product->u.linear;
    sumi_step_row gate = linear->gate;
    if (gate.table.id != 0) gate.column += delta->row_begin;
    sumi_plan_add_op(plan, product->label,
                     &(sumi_op){.kind = SUMI_OP_LINEAR,
                                .in = {input.x, product->out, gate.table},
                                .out = product->out,
                                .weight = &delta->up,
                                .rows = product->rows,
                                .u.linear = {.is_adapter_product = true,
                                             .scale = scale,
                                             .x_row = input.row,
                                             .y_row = linear->y_row,
                                             .y_column = linear->y_column + delta->row_begin,
                                             .gate = gate}});
}

// scale * (x down^T) up^T
static void apply_low_rank(sumi_plan* plan, const sumi_op* product, const sumi_delta* delta, float scale)
{
    sumi_value low = sumi_plan_value(plan, "low_rank", SUMI_ELEMENT_ACTIVATION, product->rows, delta->down.rows);
    sumi_plan_add_op(plan, product->label,
                     &(sumi_op){.kind = SUMI_OP_LINEAR,
                                .in = {product->in[0]},
                                .out = low,
                                .weight = &delta->down,
                                .rows = product->rows,
                                .u.linear = {.scale = 1.0f, .x_row = product->u.linear.x_row}});
    add_product(plan, product, delta, scale, (product_input){low, 0});
}

static void apply_whole(sumi_plan* plan, const sumi_op* product, const sumi_delta* delta, float scale)
{
    add_product(plan, product, delta, scale, (product_input){product->in[0], product->u.linear.x_row});
}

// A bias is a product with ones. A changed copy of the model's bias would belong to the plan, while all other weights
// live as long as the model or the adapter, and devices remember them by address.
static void apply_bias(sumi_plan* plan, const sumi_op* product, const sumi_delta* delta, float scale)
{
    const sumi_value ones = sumi_plan_ones(plan, product->rows);
    if (ones.id != 0) add_product(plan, product, delta, scale, (product_input){ones, 0});
}

// Adds scale * x (left (x) right)^T to the output of `product`: every row of x is read as rows of right->cols columns
// and multiplied by right^T, and the results are summed with the elements of `left` as factors.
static void apply_kronecker(sumi_plan* plan, const sumi_op* product, const sumi_delta* delta, float scale)
{
    SUMI_ASSERT(product->kind == SUMI_OP_LINEAR && product->u.linear.activation == SUMI_ACT_NONE);
    const sumi_op_linear* linear = &product->u.linear;
    const sumi_weight *left = &delta->up, *right = &delta->down;
    const int32_t folds = left->cols, all_rows = sumi_plan_rows(plan, product->in[0]);
    if (sumi_plan_cols(plan, product->in[0]) != product->weight->cols) {
        sumi_fail(&plan->error, SUMI_NOT_SUPPORTED,
                  "%s%s: a LoKr of a layer whose input is padded to %d columns is not supported; use a LoRA",
                  plan->label_prefix, product->label, (int)sumi_plan_cols(plan, product->in[0]));
        return;
    }
    if (all_rows > INT32_MAX / folds) {
        sumi_plan_mismatch(plan, product->label, "the adapter's first product has more than 2^31 - 1 rows");
        return;
    }
    sumi_step_row gate = linear->gate;
    if (gate.table.id != 0) gate.column += delta->row_begin;
    sumi_value x = sumi_plan_reshape(plan, "folded", product->in[0], all_rows * folds, right->cols);
    sumi_value half =
        sumi_plan_value(plan, "half_product", SUMI_ELEMENT_ACTIVATION, product->rows * folds, right->rows);
    sumi_plan_add_op(plan, product->label,
                     &(sumi_op){.kind = SUMI_OP_LINEAR,
                                .in = {x},
                                .out = half,
                                .weight = right,
                                .rows = product->rows * folds,
                                .u.linear = {.scale = 1.0f, .x_row = linear->x_row * folds}});
    sumi_plan_add_op(plan, product->label,
                     &(sumi_op){.kind = SUMI_OP_KRONECKER_ADD,
                                .in = {half, product->out, gate.table},
                                .out = product->out,
                                .weight = left,
                                .rows = product->rows,
                                .u.kronecker = {.scale = scale,
                                                .y_row = linear->y_row,
                                                .y_column = linear->y_column + delta->row_begin,
                                                .gate = gate}});
}

// By kind; changes of vectors fit no matrix.
typedef void apply_function(sumi_plan* plan, const sumi_op* product, const sumi_delta* delta, float scale);
static apply_function* const s_apply[] = {[SUMI_DELTA_LOW_RANK] = apply_low_rank,
                                          [SUMI_DELTA_KRONECKER] = apply_kronecker,
                                          [SUMI_DELTA_WHOLE] = apply_whole,
                                          [SUMI_DELTA_BIAS] = apply_bias};

// Whether a change fits a matrix: its input features, and the range of rows that it changes.
static bool fits_matrix(const sumi_delta* delta, const sumi_weight* weight)
{
    const sumi_weight *up = &delta->up, *down = &delta->down;
    if (delta->kind == SUMI_DELTA_WHOLE || delta->kind == SUMI_DELTA_BIAS) {
        return up->cols == (delta->kind == SUMI_DELTA_BIAS ? 1 : weight->cols) && delta->row_begin >= 0
            && delta->row_begin <= weight->rows - up->rows;
    }
    const int64_t rows = delta->kind == SUMI_DELTA_KRONECKER ? (int64_t)up->rows * down->rows : up->rows,
                  cols = delta->kind == SUMI_DELTA_KRONECKER ? (int64_t)up->cols * down->cols : down->cols;
    return delta->kind != SUMI_DELTA_VECTOR && cols == weight->cols && delta->row_begin >= 0
        && delta->row_begin + rows <= weight->rows && (delta->kind == SUMI_DELTA_KRONECKER || up->cols == down->rows);
}

void sumi_plan_add_adapted(sumi_plan* plan, const sumi_op* product, sumi_activation activation)
{
    const sumi_weight* weight = product->weight;
    for (int32_t u = 0; u < plan->adapter_count; u++) {
        const sumi_adapter_use* use = &plan->adapters[u];
        for (int32_t d = 0; d < use->adapter->delta_count; d++) {
            const sumi_delta* delta = &use->adapter->deltas[d];
            if (!sumi_adapter_changes(use, delta, weight)) continue;
            if (!fits_matrix(delta, weight)) {
                sumi_plan_mismatch(plan, product->label, "the adapter's matrices do not fit the weight's shape");
                return;
            }
            s_apply[delta->kind](plan, product, delta, use->scale * delta->scale);
        }
    }
    if (activation != SUMI_ACT_NONE) {
        sumi_plan_add_op(plan, product->label,
                         &(sumi_op){.kind = SUMI_OP_ACTIVATE,
                                    .in = {product->out},
                                    .out = product->out,
                                    .rows = product->rows,
                                    .u.activate = {.activation = activation, .row = product->u.linear.y_row}});
    }
}
