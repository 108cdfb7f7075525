// The verbs of plan.h on rows: copies, products with their adapters, norms, attention, tables, modulation.
#include "base/assert.h"
#include "plan/verb.h"
#include <math.h>

#define QUERY_BLOCK 64 // queries per work range of attention

sumi_value sumi_plan_embed_rows(sumi_plan* plan, sumi_value ids, const sumi_weight* table, float scale)
{
    sumi_value y = sumi_plan_value(plan, "embedded", SUMI_ELEMENT_ACTIVATION, sumi_plan_rows(plan, ids), table->cols);
    return sumi_plan_add_op(
        plan, "embed",
        &(sumi_op){.kind = SUMI_OP_EMBED_ROWS, .in = {ids}, .out = y, .weight = table, .u.embed = {scale, 1}});
}

sumi_value sumi_plan_embed_rows_biased(sumi_plan* plan, sumi_value ids, const sumi_weight* table,
                                       const sumi_weight* bias)
{
    if (bias->rows != 1 || bias->cols != table->cols) sumi_plan_mismatch(plan, "embed", "the bias has another width");
    sumi_value y = sumi_plan_value(plan, "embedded", SUMI_ELEMENT_ACTIVATION, sumi_plan_rows(plan, ids), table->cols);
    return sumi_plan_add_op(
        plan, "embed",
        &(sumi_op){
            .kind = SUMI_OP_EMBED_ROWS, .in = {ids}, .out = y, .weight = table, .bias = bias, .u.embed = {1.0f, 1}});
}

sumi_value sumi_plan_mix_rows(sumi_plan* plan, const char* label, sumi_value ids, sumi_value factors,
                              const sumi_weight* table)
{
    const sumi_value_info *numbers = sumi_plan_info(plan, ids), *weights = sumi_plan_info(plan, factors);
    if (numbers->element != SUMI_ELEMENT_INT || weights->element != SUMI_ELEMENT_FLOAT || numbers->cols < 1
        || weights->rows != numbers->rows || weights->cols != numbers->cols)
        sumi_plan_mismatch(plan, label, "every row of a table that is mixed has a number and a factor");
    sumi_value y = sumi_plan_value(plan, "mixed", SUMI_ELEMENT_ACTIVATION, numbers->rows, table->cols);
    return sumi_plan_add_op(plan, label,
                            &(sumi_op){.kind = SUMI_OP_EMBED_ROWS,
                                       .in = {ids, SUMI_NO_VALUE, factors},
                                       .out = y,
                                       .weight = table,
                                       .u.embed = {1.0f, sumi_plan_cols(plan, ids)}});
}

sumi_value sumi_plan_gather_rows(sumi_plan* plan, const char* label, sumi_value ids, sumi_value x)
{
    if (sumi_plan_cols(plan, ids) != 1 || sumi_plan_info(plan, ids)->element != SUMI_ELEMENT_INT
        || sumi_plan_info(plan, x)->element != SUMI_ELEMENT_ACTIVATION)
        sumi_plan_mismatch(plan, label, "rows of activations are gathered by one number each");
    sumi_value y =
        sumi_plan_value(plan, "gathered", SUMI_ELEMENT_ACTIVATION, sumi_plan_rows(plan, ids), sumi_plan_cols(plan, x));
    return sumi_plan_add_op(plan, label,
                            &(sumi_op){.kind = SUMI_OP_EMBED_ROWS, .in = {ids, x}, .out = y, .u.embed = {1.0f, 1}});
}

void sumi_plan_fill_rows(sumi_plan* plan, sumi_value y, const sumi_weight* row, const sumi_span* spans,
                         int32_t span_count)
{
    if (span_count == 0) return;
    if (row != NULL && row->cols != sumi_plan_cols(plan, y))
        sumi_plan_mismatch(plan, "fill", "the row's width is not the value's");
    for (int32_t i = 0; i < span_count; i++) {
        if (spans[i].begin < 0 || spans[i].count < 0 || spans[i].begin + spans[i].count > sumi_plan_rows(plan, y))
            sumi_plan_mismatch(plan, "fill", "a span leaves the value");
    }
    sumi_plan_add_op(plan, "fill",
                     &(sumi_op){.kind = SUMI_OP_FILL_ROWS,
                                .in = {y},
                                .out = y,
                                .weight = row,
                                .u.fill = {.spans = sumi_plan_copy(plan, spans, (size_t)span_count * sizeof *spans),
                                           .span_count = span_count}});
}

void sumi_plan_copy_rows(sumi_plan* plan, const sumi_plan_copy_args* args)
{
    sumi_value x = args->x, y = args->y;
    int32_t rows = sumi_plan_rows_from(plan, args->rows, x, args->x_row);
    const int32_t spare_columns = sumi_plan_cols(plan, y) - sumi_plan_cols(plan, x);
    if (args->x_row < 0 || args->y_row < 0 || args->x_row + rows > sumi_plan_rows(plan, x)
        || args->y_row + rows > sumi_plan_rows(plan, y))
        sumi_plan_mismatch(plan, "copy", "the rows do not fit");
    if (args->writes_some_columns ? x.id == y.id || args->y_column < 0 || args->y_column > spare_columns
                                  : args->y_column != 0 || spare_columns != 0)
        sumi_plan_mismatch(plan, "copy", "the columns do not fit");
    sumi_plan_add_op(plan, "copy",
                     &(sumi_op){.kind = SUMI_OP_COPY_ROWS,
                                .in = {x, y},
                                .out = y,
                                .rows = rows,
                                .u.copy = {.from = args->x_row, .to = args->y_row, .y_column = args->y_column}});
}

sumi_value sumi_plan_mean_rows(sumi_plan* plan, const char* label, sumi_value x, const sumi_span* spans,
                               int32_t span_count)
{
    if (span_count < 1) sumi_plan_mismatch(plan, label, "there is no span to average");
    for (int32_t i = 0; i < span_count; i++) {
        if (spans[i].begin < 0 || spans[i].count < 1 || spans[i].count > sumi_plan_rows(plan, x) - spans[i].begin)
            sumi_plan_mismatch(plan, label, "a span is empty or leaves the value");
    }
    sumi_value y = sumi_plan_value(plan, "means", SUMI_ELEMENT_ACTIVATION, span_count, sumi_plan_cols(plan, x));
    size_t bytes = sumi_plan_has_failed(plan) ? 0 : (size_t)span_count * sizeof *spans;
    return sumi_plan_add_op(
        plan, label,
        &(sumi_op){.kind = SUMI_OP_MEAN_ROWS,
                   .in = {x},
                   .out = y,
                   .u.mean = {.spans = sumi_plan_copy(plan, spans, bytes), .span_count = span_count}});
}

void sumi_plan_add_rows(sumi_plan* plan, const sumi_plan_add_rows_args* args)
{
    sumi_value x = args->x, y = args->y;
    int32_t rows = sumi_plan_rows_from(plan, args->rows, x, args->x_row);
    if (sumi_plan_cols(plan, x) != sumi_plan_cols(plan, y) || args->x_row < 0 || args->y_row < 0
        || args->x_row + rows > sumi_plan_rows(plan, x) || args->y_row + rows > sumi_plan_rows(plan, y))
        sumi_plan_mismatch(plan, args->label, "the rows do not fit");
    sumi_plan_add_op(plan, args->label,
                     &(sumi_op){.kind = SUMI_OP_ADD_ROWS,
                                .in = {x, y},
                                .out = y,
                                .rows = rows,
                                .u.add = {.scale = args->scale, .from = args->x_row, .to = args->y_row}});
}

sumi_value sumi_plan_residual_change(sumi_plan* plan, const sumi_plan_residual_change_args* args)
{
    const sumi_value x = args->x, before = args->before, kept = args->kept;
    const int32_t rows = sumi_plan_rows_from(plan, args->rows, x, 0), cols = sumi_plan_cols(plan, x);
    if (sumi_plan_cols(plan, before) != cols || sumi_plan_cols(plan, kept) != cols || rows > sumi_plan_rows(plan, x)
        || rows > sumi_plan_rows(plan, before) || rows > sumi_plan_rows(plan, kept))
        sumi_plan_mismatch(plan, args->label, "the rows do not fit");
    sumi_plan_add_op(
        plan, args->label,
        &(sumi_op){.kind = SUMI_OP_RESIDUAL_CHANGE, .in = {x, before, kept}, .out = args->change, .rows = rows});
    if (sumi_plan_has_failed(plan)) return SUMI_NO_VALUE;
    sumi_op* op = &plan->ops[plan->op_count - 1];
    if (op->out.id == 0) {
        op->out = sumi_plan_bound(plan, "residual_change", SUMI_ELEMENT_FLOAT, op->range_count, 2);
    } else if (!sumi_plan_is_shape(plan, op->out, op->range_count, 2)) {
        sumi_plan_mismatch(plan, args->label, "the change is that of other rows");
    }
    return op->out;
}

void sumi_plan_add_residual(sumi_plan* plan, const sumi_plan_add_residual_args* args)
{
    const sumi_value x = args->x;
    const int32_t rows = sumi_plan_rows_from(plan, args->rows, x, 0), cols = sumi_plan_cols(plan, x);
    if (sumi_plan_cols(plan, args->residual) != cols || sumi_plan_cols(plan, args->change) != cols
        || rows > sumi_plan_rows(plan, x) || rows > sumi_plan_rows(plan, args->residual)
        || rows > sumi_plan_rows(plan, args->change))
        sumi_plan_mismatch(plan, args->label, "the rows do not fit");
    if (sumi_plan_rows(plan, args->sigmas) != 2 || args->column < 0
        || args->column >= sumi_plan_cols(plan, args->sigmas) || args->sigma.table.id == 0
        || !sumi_plan_is_step_row(plan, args->sigma, 1))
        sumi_plan_mismatch(plan, args->label, "the sigmas do not fit");
    sumi_plan_add_op(plan, args->label,
                     &(sumi_op){.kind = SUMI_OP_ADD_RESIDUAL,
                                .in = {x, args->residual, args->change, args->sigmas, args->sigma.table},
                                .out = x,
                                .rows = rows,
                                .u.add_residual = {args->sigma, args->column, args->most}});
}

// Names the argument that does not fit a product of `rows` rows; NULL if all fit.
static const char* linear_mismatch(const sumi_plan* plan, const sumi_plan_linear_args* args, int32_t rows)
{
    const sumi_weight* weight = args->weight;
    bool is_whole = args->x_row == 0 && rows == sumi_plan_rows(plan, args->x);
    if (args->bias != NULL && (args->bias->rows != 1 || args->bias->cols != weight->rows))
        return "the bias has another width than the weight";
    if (args->residual.id != 0) {
        if (!is_whole || args->y.id != 0 || args->writes_some_columns || args->activation != SUMI_ACT_NONE)
            return "a residual takes the whole product without activation, in its own place";
        return !sumi_plan_is_shape(plan, args->residual, rows, weight->rows)
                    || !sumi_plan_is_step_row(plan, args->gate, weight->rows)
                 ? "the residual or the gate has another shape than the product"
                 : NULL;
    }
    if (args->gate.table.id != 0) return "a gate needs a residual";
    if (args->writes_some_columns) {
        bool fits = args->y.id != 0 && is_whole && args->y_row == 0 && sumi_plan_rows(plan, args->y) == rows
                 && args->y_column >= 0 && args->y_column + weight->rows <= sumi_plan_cols(plan, args->y);
        return !fits || args->activation != SUMI_ACT_NONE
                 ? "the output is narrower than the product, or there is an activation"
                 : NULL;
    }
    bool is_new = args->y.id == 0 && args->y_row == 0,
         fits = args->y.id != 0 && sumi_plan_cols(plan, args->y) == weight->rows;
    bool is_valid = args->y_column == 0 && (is_new || fits) && args->y_row >= 0
                 && (is_new || args->y_row + rows <= sumi_plan_rows(plan, args->y));
    return is_valid ? NULL : "the output has another shape than the product";
}

sumi_value sumi_plan_linear(sumi_plan* plan, const sumi_plan_linear_args* args)
{
    if (sumi_plan_has_failed(plan)) return SUMI_NO_VALUE;
    const char* label = args->label;
    const sumi_weight* weight = args->weight;
    int32_t rows = sumi_plan_rows_from(plan, args->rows, args->x, args->x_row);
    int32_t x_cols = sumi_plan_cols(plan, args->x);
    bool reads_all = x_cols == weight->cols || x_cols == (weight->cols + 7) / 8 * 8;
    if (!reads_all || args->x_row < 0 || args->x_row + rows > sumi_plan_rows(plan, args->x)) {
        sumi_fail(&plan->error, SUMI_INTERNAL,
                  "the plan cannot be written: %s%s: input [%d, %d] rows %d..%d against weight %s [%d, %d]",
                  plan->label_prefix, label, sumi_plan_rows(plan, args->x), x_cols, args->x_row, args->x_row + rows,
                  weight->name, weight->rows, weight->cols);
        return SUMI_NO_VALUE;
    }
    const char* mismatch = linear_mismatch(plan, args, rows);
    if (mismatch != NULL) {
        sumi_plan_mismatch(plan, label, mismatch);
        return SUMI_NO_VALUE;
    }
    sumi_op product = {
        .kind = SUMI_OP_LINEAR,
        .label = label,
        .in = {args->x, args->residual, args->gate.table},
        .out = args->residual.id != 0 ? args->residual : args->y,
        .weight = weight,
        .bias = args->bias,
        .rows = rows,
        .u.linear = {
            .scale = 1.0f, .x_row = args->x_row, .y_row = args->y_row, .y_column = args->y_column, .gate = args->gate}};
    if (product.out.id == 0) {
        product.out = sumi_plan_value(plan, "linear", SUMI_ELEMENT_ACTIVATION, rows, weight->rows);
    } else if (args->residual.id == 0 && (args->writes_some_columns || rows != sumi_plan_rows(plan, args->y))) {
        product.in[2] = args->y; // the other rows or columns of y do not change
    }
    const bool has_adapters = sumi_plan_is_adapted(plan, weight);
    product.u.linear.activation = has_adapters ? SUMI_ACT_NONE : args->activation;
    sumi_plan_add_op(plan, label, &product);
    if (has_adapters) sumi_plan_add_adapted(plan, &product, args->activation);
    return sumi_plan_has_failed(plan) ? SUMI_NO_VALUE : product.out;
}

sumi_value sumi_plan_activate(sumi_plan* plan, sumi_value x, sumi_activation activation)
{
    sumi_value y = sumi_plan_value(plan, "activated", sumi_plan_info(plan, x)->element, sumi_plan_rows(plan, x),
                                   sumi_plan_cols(plan, x));
    return sumi_plan_add_op(plan, "activate",
                            &(sumi_op){.kind = SUMI_OP_ACTIVATE,
                                       .in = {x},
                                       .out = y,
                                       .rows = sumi_plan_rows(plan, x),
                                       .u.activate = {.activation = activation}});
}

// Whether rows of `cols` columns fit into y from `column` on.
static bool fits_columns(const sumi_plan* plan, sumi_value y, int32_t rows, int32_t column, int32_t cols)
{
    return sumi_plan_rows(plan, y) == rows && column >= 0 && cols <= sumi_plan_cols(plan, y) - column;
}

static sumi_value write_gated(sumi_plan* plan, const char* label, sumi_value gate_and_up, const sumi_op_gated* gated,
                              sumi_value y)
{
    const int32_t rows = sumi_plan_rows(plan, gate_and_up), cols = sumi_plan_cols(plan, gate_and_up) / 2;
    if (sumi_plan_cols(plan, gate_and_up) % 2 != 0)
        sumi_plan_mismatch(plan, label, "a gated value has an even number of columns");
    if (y.id == 0) y = sumi_plan_value(plan, "gated", SUMI_ELEMENT_ACTIVATION, rows, cols);
    if (!fits_columns(plan, y, rows, gated->y_column, cols))
        sumi_plan_mismatch(plan, label, "the output is narrower than the gated value");
    const bool is_whole = sumi_plan_cols(plan, y) == cols;
    return sumi_plan_add_op(
        plan, label,
        &(sumi_op){
            .kind = SUMI_OP_GATED, .in = {gate_and_up, is_whole ? SUMI_NO_VALUE : y}, .out = y, .u.gated = *gated});
}

sumi_value sumi_plan_gated(sumi_plan* plan, const char* label, sumi_value gate_and_up, sumi_activation activation)
{
    return write_gated(plan, label, gate_and_up, &(sumi_op_gated){.activation = activation}, SUMI_NO_VALUE);
}

sumi_value sumi_plan_linear_gated(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* gate_up,
                                  sumi_activation activation)
{
    sumi_value gate_and_up =
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = label, .x = x, .weight = gate_up});
    return sumi_plan_gated(plan, label, gate_and_up, activation);
}

void sumi_plan_linear_gated_into(sumi_plan* plan, const sumi_plan_gated_args* args)
{
    sumi_value gate_and_up =
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = args->label, .x = args->x, .weight = args->gate_up});
    write_gated(plan, args->label, gate_and_up, &(sumi_op_gated){args->activation, args->y_column}, args->y);
}

// Copies the vector, then adds each change as a product with the constant 1.
static sumi_value write_changed_vector(sumi_plan* plan, const sumi_weight* vector)
{
    const sumi_value one = sumi_plan_ones(plan, 1);
    sumi_value y = sumi_plan_value(plan, "changed_vector", SUMI_ELEMENT_FLOAT, 1, vector->cols);
    sumi_plan_fill_rows(plan, y, vector, &(sumi_span){0, 1}, 1);
    for (int32_t u = 0; u < plan->adapter_count; u++) {
        const sumi_adapter_use* use = &plan->adapters[u];
        for (int32_t d = 0; d < use->adapter->delta_count; d++) {
            const sumi_delta* delta = &use->adapter->deltas[d];
            if (!sumi_adapter_changes(use, delta, vector)) continue;
            if (delta->kind != SUMI_DELTA_VECTOR || vector->rows != 1 || delta->row_begin != 0 || delta->up.cols != 1
                || delta->up.rows != vector->cols) {
                sumi_plan_mismatch(plan, vector->name, "an adapter's shape is not the vector's");
                return SUMI_NO_VALUE;
            }
            sumi_plan_add_op(plan, "adapter",
                             &(sumi_op){.kind = SUMI_OP_LINEAR,
                                        .in = {one, y},
                                        .out = y,
                                        .weight = &delta->up,
                                        .rows = 1,
                                        .u.linear = {.is_adapter_product = true, .scale = use->scale * delta->scale}});
        }
    }
    return y;
}

sumi_value sumi_plan_changed_vector(sumi_plan* plan, const sumi_weight* vector)
{
    if (vector == NULL || sumi_plan_has_failed(plan) || !sumi_plan_is_adapted(plan, vector)) return SUMI_NO_VALUE;
    for (size_t i = 0; i < plan->adapted_vector_count; i++) {
        if (plan->adapted_vectors[i].vector == vector) return plan->adapted_vectors[i].sum;
    }
    if (sumi_grow(plan->heap, (void**)&plan->adapted_vectors, &plan->adapted_vector_capacity,
                  plan->adapted_vector_count + 1, sizeof *plan->adapted_vectors, &plan->error)
        != SUMI_OK)
        return SUMI_NO_VALUE;
    sumi_value sum = write_changed_vector(plan, vector);
    plan->adapted_vectors[plan->adapted_vector_count++] = (sumi_adapted_vector){vector, sum};
    return sum;
}

sumi_value sumi_plan_norm(sumi_plan* plan, const sumi_plan_norm_args* args)
{
    int32_t rows = sumi_plan_rows_from(plan, args->rows, args->x, args->x_row), cols = sumi_plan_cols(plan, args->x);
    if (args->x_row < 0 || args->x_row + rows > sumi_plan_rows(plan, args->x)
        || (args->weight != NULL && args->weight->cols != cols) || (args->bias != NULL && args->bias->cols != cols)
        || !sumi_plan_is_step_row(plan, args->scale, cols) || !sumi_plan_is_step_row(plan, args->shift, cols))
        sumi_plan_mismatch(plan, args->label, "the norm's weight, bias, scale, shift or rows do not fit");
    if (args->bias != NULL && (args->silu || args->scale.table.id != 0 || args->shift.table.id != 0))
        sumi_plan_mismatch(plan, args->label, "a norm with a bias has no scale, no shift and no activation");
    sumi_value y = args->y;
    if (y.id == 0) y = sumi_plan_value(plan, "normed", SUMI_ELEMENT_ACTIVATION, rows, cols);
    if (!sumi_plan_is_shape(plan, y, rows, cols)
        || (args->silu && (args->scale.table.id != 0 || args->shift.table.id != 0))) {
        sumi_plan_mismatch(plan, args->label,
                           "the norm's output has another shape, or it has a table and an activation");
    }
    const sumi_row_band* bands = sumi_plan_copy_bands(plan, args->label, args->bands, args->band_count, rows);
    sumi_value changed = sumi_plan_changed_vector(plan, args->weight);
    return sumi_plan_add_op(plan, args->label,
                            &(sumi_op){.kind = SUMI_OP_NORM_MODULATE,
                                       .in = {args->x, args->scale.table, args->shift.table, changed},
                                       .out = y,
                                       .weight = changed.id != 0 ? NULL : args->weight,
                                       .bias = args->bias,
                                       .u.norm = {.norm = args->norm,
                                                  .eps = args->eps,
                                                  .silu = args->silu,
                                                  .scale = args->scale,
                                                  .shift = args->shift,
                                                  .x_row = args->x_row,
                                                  .band_count = bands != NULL ? args->band_count : 0,
                                                  .bands = bands}});
}

void sumi_plan_norm_gate_add(sumi_plan* plan, const sumi_plan_norm_gate_add_args* args)
{
    int32_t rows = sumi_plan_rows_from(plan, args->rows, args->branch, 0), cols = sumi_plan_cols(plan, args->x);
    if (sumi_plan_cols(plan, args->branch) != cols || args->x_row < 0
        || args->x_row + rows > sumi_plan_rows(plan, args->x) || rows > sumi_plan_rows(plan, args->branch)
        || (args->weight != NULL && args->weight->cols != cols) || !sumi_plan_is_step_row(plan, args->gate, cols))
        sumi_plan_mismatch(plan, args->label, "the branch, the weight or the gate does not fit");
    const sumi_row_band* bands = sumi_plan_copy_bands(plan, args->label, args->bands, args->band_count, rows);
    sumi_value changed = sumi_plan_changed_vector(plan, args->weight);
    sumi_plan_add_op(plan, args->label,
                     &(sumi_op){.kind = SUMI_OP_NORM_GATE_ADD,
                                .in = {args->x, args->branch, args->gate.table, changed},
                                .out = args->x,
                                .weight = changed.id != 0 ? NULL : args->weight,
                                .rows = rows,
                                .u.gate_add = {.eps = args->eps,
                                               .gate = args->gate,
                                               .x_row = args->x_row,
                                               .band_count = bands != NULL ? args->band_count : 0,
                                               .bands = bands}});
}

void sumi_plan_qk_norm_rope(sumi_plan* plan, const sumi_plan_qk_args* args)
{
    int32_t rows = sumi_plan_rows_from(plan, args->rows, args->qkv, args->row), dim = args->dim;
    bool rotates = args->rotary != SUMI_ROTARY_NONE;
    if (sumi_plan_cols(plan, args->qkv) != (args->q_heads + 2 * args->kv_heads) * dim || args->row < 0
        || args->row + rows > sumi_plan_rows(plan, args->qkv)
        || (rotates
            && (dim % 2 != 0 || sumi_plan_cols(plan, args->rope) != dim || args->rope_row < 0
                || args->rope_row + rows > sumi_plan_rows(plan, args->rope)))
        || (args->q_norm != NULL && args->q_norm->cols != dim) || (args->k_norm != NULL && args->k_norm->cols != dim))
        sumi_plan_mismatch(plan, args->label, "heads, norms or the rotary table do not fit the qkv matrix");
    sumi_value q_norm = sumi_plan_changed_vector(plan, args->q_norm),
               k_norm = sumi_plan_changed_vector(plan, args->k_norm);
    sumi_plan_add_op(plan, args->label,
                     &(sumi_op){.kind = SUMI_OP_QK_NORM_ROPE,
                                .in = {args->qkv, args->rope, q_norm, k_norm},
                                .out = args->qkv,
                                .weight = q_norm.id != 0 ? NULL : args->q_norm,
                                .rows = rows,
                                .u.qk = {.q_heads = args->q_heads,
                                         .kv_heads = args->kv_heads,
                                         .dim = dim,
                                         .eps = args->eps,
                                         .rotary = args->rotary,
                                         .k_weight = k_norm.id != 0 ? NULL : args->k_norm,
                                         .row = args->row,
                                         .rope_row = args->rope_row}});
}

static sumi_value write_attention(sumi_plan* plan, const sumi_plan_attention_args* args)
{
    const char* label = args->label;
    const sumi_value qkv = args->qkv;
    const sumi_attention* attention = args->attention;
    int32_t q_heads = attention->q_heads, kv_heads = attention->kv_heads, dim = attention->dim;
    if (kv_heads < 1 || q_heads % kv_heads != 0 || sumi_plan_cols(plan, qkv) != (q_heads + 2 * kv_heads) * dim
        || attention->sequence_count < 1)
        sumi_plan_mismatch(plan, label, "heads do not fit the qkv matrix");
    const bool has_kept = args->kept.id != 0;
    if (has_kept
        && (sumi_plan_cols(plan, args->kept) != 2 * kv_heads * dim
            || sumi_plan_info(plan, args->kept)->element != sumi_plan_info(plan, qkv)->element))
        sumi_plan_mismatch(plan, label, "kept keys and values do not fit the heads");
    for (int32_t s = 0; s < attention->sequence_count && !sumi_plan_has_failed(plan); s++) {
        const sumi_sequence* sequence = &attention->sequences[s];
        if (!sumi_sequence_is_valid(sequence, attention->window)) {
            sumi_plan_mismatch(plan, label, "a sequence has one or two spans, each with keys or with queries");
            break;
        }
        if (has_kept && (!sumi_sequence_has_kept(sequence) || attention->window != 0)) {
            sumi_plan_mismatch(plan, label, "a sequence with kept keys has them first, then queries, and no window");
            break;
        }
        for (int32_t i = 0; i < sequence->span_count; i++) {
            const sumi_span* span = &sequence->span[i];
            const sumi_value matrix = has_kept && i == 0 ? args->kept : qkv;
            if (span->begin < 0 || span->count < 1 || span->count > sumi_plan_rows(plan, matrix) - span->begin)
                sumi_plan_mismatch(plan, label, "a sequence leaves the matrix");
        }
    }
    const int32_t rows = sumi_plan_rows(plan, qkv), cols = q_heads * dim;
    sumi_value y = args->y;
    if (y.id == 0) y = sumi_plan_value(plan, "attention", SUMI_ELEMENT_ACTIVATION, rows, cols);
    if (!fits_columns(plan, y, rows, args->y_column, cols))
        sumi_plan_mismatch(plan, label, "the output is narrower than the heads");
    const bool is_whole = args->y.id == 0; // otherwise other ops may write the other columns and rows
    size_t bytes = sumi_plan_has_failed(plan) ? 0 : (size_t)attention->sequence_count * sizeof *attention->sequences;
    return sumi_plan_add_op(plan, label,
                            &(sumi_op){.kind = SUMI_OP_ATTENTION,
                                       .in = {qkv, is_whole ? SUMI_NO_VALUE : y, args->kept},
                                       .out = y,
                                       .u.attention = {.q_heads = q_heads,
                                                       .kv_heads = kv_heads,
                                                       .dim = dim,
                                                       .scale = attention->scale,
                                                       .causal = attention->causal,
                                                       .window = attention->window,
                                                       .sequences = sumi_plan_copy(plan, attention->sequences, bytes),
                                                       .sequence_count = attention->sequence_count,
                                                       .query_block = QUERY_BLOCK,
                                                       .k_column = q_heads * dim,
                                                       .v_column = (q_heads + kv_heads) * dim,
                                                       .y_column = args->y_column}});
}

sumi_value sumi_plan_attention(sumi_plan* plan, const char* label, sumi_value qkv, const sumi_attention* attention)
{
    return write_attention(plan, &(sumi_plan_attention_args){.label = label, .qkv = qkv, .attention = attention});
}

void sumi_plan_attention_into(sumi_plan* plan, const sumi_plan_attention_args* args) { write_attention(plan, args); }

sumi_value sumi_plan_rope_table(sumi_plan* plan, const sumi_plan_rope_args* args)
{
    sumi_op op = {.kind = SUMI_OP_ROPE_TABLE,
                  .in = {args->positions},
                  .u.rope = {.axes = args->axes,
                             .theta = args->theta,
                             .divisor = args->divisor != 0.0 ? args->divisor : 1.0,
                             .order = args->order}};
    int32_t total = 0;
    for (int32_t a = 0; a < args->axes && a < 4; a++) {
        op.u.rope.pairs[a] = args->pairs[a];
        total += args->pairs[a];
    }
    if (args->axes < 1 || args->axes > 4 || sumi_plan_cols(plan, args->positions) != args->axes || total < 1)
        sumi_plan_mismatch(plan, "rope", "positions need one column per axis");
    op.out = sumi_plan_value(plan, "rope", SUMI_ELEMENT_FLOAT, sumi_plan_rows(plan, args->positions), 2 * total);
    return sumi_plan_add_op(plan, "rope", &op);
}

sumi_rope_pair sumi_plan_rope_pair(const sumi_op* op, int32_t pair)
{
    const sumi_op_rope_table* rope = &op->u.rope;
    int32_t axis = 0, total = 0, first = 0; // first: the first pair of the axis
    for (int32_t a = 0; a < rope->axes; a++) total += rope->pairs[a];
    SUMI_ASSERT(pair >= 0 && pair < total);
    if (rope->order == SUMI_ROPE_IN_TURNS) {
        const int32_t turn = pair % rope->axes;
        axis = pair < rope->axes * rope->pairs[turn] ? turn : 0;
    } else {
        while (pair - first >= rope->pairs[axis]) first += rope->pairs[axis++];
    }
    const bool restarts = rope->order == SUMI_ROPE_BY_AXIS;
    const int32_t k = restarts ? pair - first : pair, n = restarts ? rope->pairs[axis] : total;
    return (sumi_rope_pair){axis, 1.0 / pow(rope->theta, 2.0 * k / (2.0 * n)) / rope->divisor};
}

sumi_value sumi_plan_time_embed(sumi_plan* plan, const sumi_plan_time_args* args)
{
    // float, not activations: the few rows need not be rounded
    sumi_value y =
        sumi_plan_value(plan, "time_embed", SUMI_ELEMENT_FLOAT, sumi_plan_rows(plan, args->times), args->width);
    return sumi_plan_add_op(
        plan, "time_embed",
        &(sumi_op){.kind = SUMI_OP_TIME_EMBED,
                   .in = {args->times},
                   .out = y,
                   .u.time = {.max_period = args->max_period, .scale = args->scale, .cos_first = args->cos_first}});
}

sumi_value sumi_plan_modulation(sumi_plan* plan, const sumi_plan_modulation_args* args)
{
    sumi_value table = args->table, out = table;
    int32_t vector_count = args->vector_count != 0 ? args->vector_count : 1, cols = sumi_plan_cols(plan, table);
    bool is_in_place = args->rows == 0;
    if (vector_count < 1 || vector_count > 32 || cols % vector_count != 0
        || (args->adds_one & args->applies_tanh) != 0) {
        sumi_plan_mismatch(
            plan, args->label,
            "the columns are no multiple of the vectors, or a vector has both adds_one and applies_tanh");
    }
    if (is_in_place ? args->x_row != 0 || args->per_step
                    : args->rows < 0 || args->x_row < 0 || args->x_row + args->rows > sumi_plan_rows(plan, table))
        sumi_plan_mismatch(plan, args->label, "the rows are not in the table");
    if (!is_in_place) out = sumi_plan_value(plan, "modulation_row", args->element, args->rows, cols);
    return sumi_plan_add_op(plan, args->label,
                            &(sumi_op){.kind = SUMI_OP_FINISH_MODULATION,
                                       .in = {table},
                                       .out = out,
                                       .u.finish = {.vector_count = vector_count,
                                                    .adds_one = args->adds_one,
                                                    .applies_tanh = args->applies_tanh,
                                                    .x_row = args->x_row,
                                                    .per_step = args->per_step}});
}

void sumi_plan_finish_modulation(sumi_plan* plan, sumi_value table, bool has_gates)
{
    sumi_plan_modulation(plan, &(sumi_plan_modulation_args){.label = "modulation",
                                                            .table = table,
                                                            .vector_count = has_gates ? 4 : 1,
                                                            .adds_one = has_gates ? 5 : 1,
                                                            .applies_tanh = has_gates ? 10 : 0});
}
