// Writing a plan: values, sections, and a verb per op that checks shapes. op_kinds.c knows how an op is cut and what it
// costs; layout.c finishes the plan.
#include "base/assert.h"
#include "plan/op_kinds.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES 65536u
#define QUERY_BLOCK 64 // queries of a part of attention

// ---- Memory and errors of the plan itself ---------------------------------------------------------------------------

static bool has_failed(const sumi_plan* plan) { return plan->error.result != SUMI_OK; }

static void mismatch(sumi_plan* plan, const char* label, const char* what)
{
    sumi_fail(&plan->error, SUMI_INTERNAL, "the plan cannot be written: %s%s: %s", plan->label_prefix, label, what);
}

static void* reserve_text(sumi_plan* plan, size_t bytes)
{
    if (has_failed(plan)) { return NULL; }
    SUMI_ASSERT(plan->block_used <= plan->block_bytes);
    bytes = (bytes + 15) & ~(size_t)15;
    if (plan->block_count == 0 || plan->block_bytes - plan->block_used < bytes) {
        size_t block_bytes = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        if (sumi_grow(plan->heap, (void**)&plan->blocks, &plan->block_capacity, plan->block_count + 1,
                      sizeof *plan->blocks, &plan->error)
            != SUMI_OK) {
            return NULL;
        }
        void* block = sumi_alloc(plan->heap, block_bytes);
        if (block == NULL) {
            sumi_out_of_memory(&plan->error, block_bytes, "a plan");
            return NULL;
        }
        plan->blocks[plan->block_count++] = block;
        plan->block_used = 0;
        plan->block_bytes = block_bytes;
    }
    void* memory = (unsigned char*)plan->blocks[plan->block_count - 1] + plan->block_used;
    plan->block_used += bytes;
    return memory;
}

void* sumi_plan_copy(sumi_plan* plan, const void* data, size_t bytes)
{
    void* memory = reserve_text(plan, bytes);
    if (memory != NULL && bytes > 0) { memcpy(memory, data, bytes); }
    return memory;
}

void sumi_plan_begin(sumi_plan* plan, sumi_heap* heap, int32_t activation_bytes)
{
    SUMI_ASSERT(heap != NULL && (activation_bytes == 2 || activation_bytes == 4));
    memset(plan, 0, sizeof *plan);
    plan->heap = heap;
    plan->activation_bytes = activation_bytes;
}

void sumi_plan_end(sumi_plan* plan)
{
    if (plan->heap == NULL) { return; }
    for (size_t i = 0; i < plan->block_count; i++) { sumi_free(plan->heap, plan->blocks[i]); }
    sumi_free(plan->heap, plan->blocks);
    sumi_free(plan->heap, plan->ops);
    sumi_free(plan->heap, plan->values);
    sumi_free(plan->heap, plan->sections);
    sumi_free(plan->heap, plan->slices);
    sumi_free(plan->heap, plan->constants);
    sumi_free(plan->heap, plan->changed);
    memset(plan, 0, sizeof *plan);
}

void sumi_plan_section(sumi_plan* plan, sumi_section_kind kind, int32_t repeat, int32_t first_counter)
{
    if (sumi_grow(plan->heap, (void**)&plan->sections, &plan->section_capacity, plan->section_count + 1,
                  sizeof *plan->sections, &plan->error)
        != SUMI_OK) {
        return;
    }
    if (repeat < 1) {
        mismatch(plan, "section", "it would run less than once");
        return;
    }
    int32_t begin = (int32_t)plan->op_count;
    plan->sections[plan->section_count++] = (sumi_section){kind, begin, begin, repeat, first_counter, 0, 0};
}

void sumi_plan_adapters(sumi_plan* plan, const sumi_adapter_use* uses, int32_t count)
{
    SUMI_ASSERT(count >= 0 && (count == 0 || uses != NULL));
    plan->adapters = uses;
    plan->adapter_count = count;
    plan->changed_count = 0;
}

void sumi_plan_prefix(sumi_plan* plan, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(plan->label_prefix, sizeof plan->label_prefix, format, arguments);
    va_end(arguments);
}

// ---- Values ---------------------------------------------------------------------------------------------------------

static sumi_value add_value(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols,
                            bool bound)
{
    SUMI_ASSERT(name != NULL && element >= SUMI_ELEMENT_ACTIVATION && element <= SUMI_ELEMENT_BYTE);
    if (has_failed(plan)) { return SUMI_NO_VALUE; }
    if (rows < 1 || cols < 1) {
        mismatch(plan, name, "a value needs at least one row and one column");
        return SUMI_NO_VALUE;
    }
    if (sumi_grow(plan->heap, (void**)&plan->values, &plan->value_capacity, plan->value_count + 1, sizeof *plan->values,
                  &plan->error)
        != SUMI_OK) {
        return SUMI_NO_VALUE;
    }
    sumi_value_info* info = &plan->values[plan->value_count++];
    *info = (sumi_value_info){.name = name,
                              .element = element,
                              .rows = rows,
                              .cols = cols,
                              .pitch = cols,
                              .bound = bound,
                              .first_use = -1,
                              .last_use = -1};
    return (sumi_value){(int32_t)plan->value_count};
}

sumi_value sumi_plan_value(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols)
{
    return add_value(plan, name, element, rows, cols, false);
}

sumi_value sumi_plan_bound(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols)
{
    return add_value(plan, name, element, rows, cols, true);
}

uint64_t sumi_plan_element_bytes(const sumi_plan* plan, sumi_element element)
{
    return element == SUMI_ELEMENT_ACTIVATION ? (uint64_t)plan->activation_bytes : element == SUMI_ELEMENT_BYTE ? 1 : 4;
}

sumi_value sumi_plan_constant(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols,
                              const void* data)
{
    sumi_value value = add_value(plan, name, element, rows, cols, true);
    uint64_t bytes = (uint64_t)rows * (uint64_t)cols * sumi_plan_element_bytes(plan, element);
    if (element == SUMI_ELEMENT_ACTIVATION) {
        mismatch(plan, name, "a constant is float, int or byte: activations differ between backends");
    }
    const void* copy = has_failed(plan) ? NULL : sumi_plan_copy(plan, data, (size_t)bytes);
    if (copy == NULL
        || sumi_grow(plan->heap, (void**)&plan->constants, &plan->constant_capacity, plan->constant_count + 1,
                     sizeof *plan->constants, &plan->error)
               != SUMI_OK) {
        return SUMI_NO_VALUE;
    }
    plan->constants[plan->constant_count++] = (sumi_constant){value, copy, bytes};
    return value;
}

const sumi_value_info* sumi_plan_info(const sumi_plan* plan, sumi_value value)
{
    static const sumi_value_info none = {.name = "none"};
    return value.id > 0 && (size_t)value.id <= plan->value_count ? &plan->values[value.id - 1] : &none;
}

static int32_t rows_of(const sumi_plan* plan, sumi_value value) { return sumi_plan_info(plan, value)->rows; }
static int32_t cols_of(const sumi_plan* plan, sumi_value value) { return sumi_plan_info(plan, value)->cols; }

double sumi_plan_value_bytes(const sumi_plan* plan, sumi_value value)
{
    const sumi_value_info* info = sumi_plan_info(plan, value);
    return (double)info->rows * info->cols * (double)sumi_plan_element_bytes(plan, info->element);
}

static sumi_value add_view(sumi_plan* plan, const char* name, sumi_value of, sumi_span rows, sumi_span cols)
{
    const sumi_value_info whole = *sumi_plan_info(plan, of);
    if (rows.begin < 0 || rows.begin + rows.count > whole.rows || cols.begin < 0
        || cols.begin + cols.count > whole.cols) {
        mismatch(plan, name, "a view lies outside its value");
        return SUMI_NO_VALUE;
    }
    sumi_value view = add_value(plan, name, whole.element, rows.count, cols.count, false);
    if (view.id != 0) {
        sumi_value_info* info = &plan->values[view.id - 1];
        SUMI_ASSERT(whole.pitch >= whole.cols);
        info->pitch = whole.pitch;
        info->base = whole.base.id != 0 ? whole.base : of;
        info->whole = of;
        info->whole_row = rows.begin;
        info->base_element = whole.base_element + (uint64_t)rows.begin * (uint64_t)whole.pitch + (uint64_t)cols.begin;
    }
    return view;
}

sumi_value sumi_plan_view(sumi_plan* plan, const char* name, sumi_value of, sumi_span rows, sumi_span cols)
{
    if (sumi_plan_info(plan, of)->bound) {
        mismatch(plan, name, "a bound value has no views of some of its rows and columns");
        return SUMI_NO_VALUE;
    }
    return add_view(plan, name, of, rows, cols);
}

sumi_value sumi_plan_reshape(sumi_plan* plan, const char* name, sumi_value of, int32_t rows, int32_t cols)
{
    const sumi_value_info whole = *sumi_plan_info(plan, of);
    if (whole.pitch != whole.cols || (int64_t)rows * cols != (int64_t)whole.rows * whole.cols) {
        mismatch(plan, name, "rows of another length must hold the same elements, and those of some columns cannot");
        return SUMI_NO_VALUE;
    }
    sumi_value view = add_view(plan, name, of, (sumi_span){0, whole.rows}, (sumi_span){0, whole.cols});
    if (view.id != 0) {
        sumi_value_info* info = &plan->values[view.id - 1];
        info->rows = rows;
        info->cols = info->pitch = cols;
    }
    return view;
}

void sumi_plan_share(sumi_plan* plan, sumi_value guest, sumi_value host)
{
    if (has_failed(plan)) { return; }
    const sumi_value_info *a = sumi_plan_info(plan, guest), *b = sumi_plan_info(plan, host);
    bool is_possible = !a->bound && a->base.id == 0 && !b->bound && b->base.id == 0 && guest.id != host.id;
    if (!is_possible || sumi_plan_value_bytes(plan, guest) > sumi_plan_value_bytes(plan, host)) {
        mismatch(plan, a->name, "this value cannot lie inside the other");
        return;
    }
    plan->values[guest.id - 1].host = host;
}

// ---- Ops ------------------------------------------------------------------------------------------------------------

// Whether the output is an input only where the table allows it, and is one where the table demands it.
static bool is_in_place_good(const sumi_op_kind_info* kind, const sumi_op* op)
{
    SUMI_ASSERT(!kind->is_always_in_place || kind->in_place != 0);
    bool is_an_input = false;
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS && op->out.id != 0; k++) {
        if (op->in[k].id == op->out.id) {
            if ((kind->in_place & SUMI_IN(k)) == 0) { return false; }
            is_an_input = true;
        }
    }
    return is_an_input || !kind->is_always_in_place;
}

// Appends an op to the newest section. The verb has filled its kind, values, weights and parameters, and `rows` where
// it is told how many; the rest comes from the kind's line in the table. Returns the output, or none after an error.
static sumi_value add_op(sumi_plan* plan, const char* label, const sumi_op* written)
{
    if (has_failed(plan)) { return SUMI_NO_VALUE; }
    const sumi_op_kind_info* kind = sumi_op_kind_get(written->kind);
    int64_t rows = kind->rows(plan, written);
    if (plan->section_count == 0) {
        mismatch(plan, label, "ops need a section");
        return SUMI_NO_VALUE;
    }
    if (rows < 1 || rows > INT32_MAX) {
        mismatch(plan, label, "an op needs at least one row, and no more than can be counted");
        return SUMI_NO_VALUE;
    }
    if (!is_in_place_good(kind, written)) {
        mismatch(plan, label, "this op cannot write over the input that is its output, or writes over none and should");
        return SUMI_NO_VALUE;
    }
    if (sumi_grow(plan->heap, (void**)&plan->ops, &plan->op_capacity, plan->op_count + 1, sizeof *plan->ops,
                  &plan->error)
        != SUMI_OK) {
        return SUMI_NO_VALUE;
    }
    size_t prefix = strlen(plan->label_prefix), length = strlen(label);
    char* text = reserve_text(plan, prefix + length + 1);
    if (text == NULL) { return SUMI_NO_VALUE; }
    memcpy(text, plan->label_prefix, prefix);
    memcpy(text + prefix, label, length + 1);
    sumi_op* op = &plan->ops[plan->op_count++];
    *op = *written;
    op->label = text;
    op->section = (int32_t)plan->section_count - 1;
    op->rows = (int32_t)rows;
    SUMI_ASSERT(op->out.id >= 0 && (size_t)op->out.id <= plan->value_count);
    int64_t part_rows = kind->part_rows(plan, op);
    op->part_rows = part_rows < 1 ? 1 : part_rows > rows ? op->rows : (int32_t)part_rows;
    op->part_count = (op->rows - 1) / op->part_rows + 1;
    SUMI_ASSERT(op->part_rows >= 1 && op->part_count >= 1 && op->part_count <= op->rows);
    op->flops = kind->flops != NULL ? kind->flops(plan, op) : 0;
    op->bytes = kind->bytes != NULL ? kind->bytes(plan, op) : kind->output_count * sumi_plan_value_bytes(plan, op->out);
    plan->sections[plan->section_count - 1].op_end = (int32_t)plan->op_count;
    return op->out;
}

static bool is_step_row_good(const sumi_plan* plan, sumi_step_row row, int32_t cols)
{
    SUMI_ASSERT(cols >= 0);
    return row.table.id == 0 || (row.column >= 0 && row.column + cols <= cols_of(plan, row.table));
}

// The bands with their list copied into the plan; NULL without any, and after a failure.
static const sumi_row_band* copy_bands(sumi_plan* plan, const char* label, const sumi_row_band* bands, int32_t count,
                                       int32_t rows)
{
    int32_t begin = 0;
    bool are_good = count >= 0;
    for (int32_t i = 0; i < count; begin = bands[i++].end) {
        are_good = are_good && bands[i].end > begin && bands[i].table_row >= 0;
    }
    if (count != 0 && (!are_good || begin != rows)) { mismatch(plan, label, "the bands do not cover the rows"); }
    return count > 0 && !has_failed(plan) ? sumi_plan_copy(plan, bands, (size_t)count * sizeof *bands) : NULL;
}

static bool is_shape(const sumi_plan* plan, sumi_value value, int32_t rows, int32_t cols)
{
    return rows_of(plan, value) == rows && cols_of(plan, value) == cols;
}

// How many rows a verb works on: what it is told, or all of the value from `row` on.
static int32_t count_rows(const sumi_plan* plan, int32_t told, sumi_value value, int32_t row)
{
    return told != 0 ? told : rows_of(plan, value) - row;
}

sumi_value sumi_plan_embed_rows(sumi_plan* plan, sumi_value ids, const sumi_weight* table, float scale)
{
    sumi_value y = sumi_plan_value(plan, "embedded", SUMI_ELEMENT_ACTIVATION, rows_of(plan, ids), table->cols);
    return add_op(
        plan, "embed",
        &(sumi_op){.kind = SUMI_OP_EMBED_ROWS, .in = {ids}, .out = y, .weight = table, .u.embed = {.scale = scale}});
}

sumi_value sumi_plan_embed_rows_biased(sumi_plan* plan, sumi_value ids, const sumi_weight* table,
                                       const sumi_weight* bias)
{
    if (bias->rows != 1 || bias->cols != table->cols) { mismatch(plan, "embed", "the bias has another width"); }
    sumi_value y = sumi_plan_value(plan, "embedded", SUMI_ELEMENT_ACTIVATION, rows_of(plan, ids), table->cols);
    return add_op(plan, "embed",
                  &(sumi_op){.kind = SUMI_OP_EMBED_ROWS,
                             .in = {ids},
                             .out = y,
                             .weight = table,
                             .bias = bias,
                             .u.embed = {.scale = 1.0f}});
}

sumi_value sumi_plan_gather_rows(sumi_plan* plan, const char* label, sumi_value ids, sumi_value x)
{
    if (cols_of(plan, ids) != 1 || sumi_plan_info(plan, ids)->element != SUMI_ELEMENT_INT
        || sumi_plan_info(plan, x)->element != SUMI_ELEMENT_ACTIVATION) {
        mismatch(plan, label, "rows of activations are gathered by one number each");
    }
    sumi_value y = sumi_plan_value(plan, "gathered", SUMI_ELEMENT_ACTIVATION, rows_of(plan, ids), cols_of(plan, x));
    return add_op(plan, label,
                  &(sumi_op){.kind = SUMI_OP_EMBED_ROWS, .in = {ids, x}, .out = y, .u.embed = {.scale = 1.0f}});
}

void sumi_plan_fill_rows(sumi_plan* plan, sumi_value y, const sumi_weight* row, const sumi_span* spans,
                         int32_t span_count)
{
    if (span_count == 0) { return; }
    if (row->cols != cols_of(plan, y)) { mismatch(plan, "fill", "the row's width is not the value's"); }
    for (int32_t i = 0; i < span_count; i++) {
        if (spans[i].begin < 0 || spans[i].count < 0 || spans[i].begin + spans[i].count > rows_of(plan, y)) {
            mismatch(plan, "fill", "a span leaves the value");
        }
    }
    add_op(plan, "fill",
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
    int32_t rows = count_rows(plan, args->rows, x, args->x_row);
    if (cols_of(plan, x) != cols_of(plan, y) || args->x_row < 0 || args->y_row < 0
        || args->x_row + rows > rows_of(plan, x) || args->y_row + rows > rows_of(plan, y)) {
        mismatch(plan, "copy", "the rows do not fit");
    }
    add_op(plan, "copy",
           &(sumi_op){.kind = SUMI_OP_COPY_ROWS,
                      .in = {x, y},
                      .out = y,
                      .rows = rows,
                      .u.copy = {.from = args->x_row, .to = args->y_row}});
}

sumi_value sumi_plan_mean_rows(sumi_plan* plan, const char* label, sumi_value x, const sumi_span* spans,
                               int32_t span_count)
{
    if (span_count < 1) { mismatch(plan, label, "there is no span to average"); }
    for (int32_t i = 0; i < span_count; i++) {
        if (spans[i].begin < 0 || spans[i].count < 1 || spans[i].count > rows_of(plan, x) - spans[i].begin) {
            mismatch(plan, label, "a span is empty or leaves the value");
        }
    }
    sumi_value y = sumi_plan_value(plan, "means", SUMI_ELEMENT_ACTIVATION, span_count, cols_of(plan, x));
    size_t bytes = has_failed(plan) ? 0 : (size_t)span_count * sizeof *spans;
    return add_op(plan, label,
                  &(sumi_op){.kind = SUMI_OP_MEAN_ROWS,
                             .in = {x},
                             .out = y,
                             .u.mean = {.spans = sumi_plan_copy(plan, spans, bytes), .span_count = span_count}});
}

static bool changes(const sumi_adapter_use* use, const sumi_delta* delta, const sumi_weight* weight)
{
    return delta->weight_index == weight->index && use->scale != 0.0f;
}

static bool is_adapted(const sumi_plan* plan, const sumi_weight* weight)
{
    for (int32_t u = 0; u < plan->adapter_count; u++) {
        const sumi_adapter* adapter = plan->adapters[u].adapter;
        for (int32_t d = 0; d < adapter->delta_count; d++) {
            if (changes(&plan->adapters[u], &adapter->deltas[d], weight)) { return true; }
        }
    }
    return false;
}

// Adds scale * (x down^T) up^T to what the product wrote, in the columns of the delta's rows. A gate holds for this, too:
// residual + gate * (P + D) is what the product wrote plus gate * D.
static void add_delta(sumi_plan* plan, const sumi_op* product, const sumi_delta* delta, float scale)
{
    SUMI_ASSERT(product->kind == SUMI_OP_LINEAR && product->u.linear.activation == SUMI_ACT_NONE);
    const sumi_op_linear* linear = &product->u.linear;
    sumi_step_row gate = linear->gate;
    if (gate.table.id != 0) { gate.column += delta->row_begin; }
    sumi_value low = sumi_plan_value(plan, "low_rank", SUMI_ELEMENT_ACTIVATION, product->rows, delta->down.rows);
    add_op(plan, product->label,
           &(sumi_op){.kind = SUMI_OP_LINEAR,
                      .in = {product->in[0]},
                      .out = low,
                      .weight = &delta->down,
                      .rows = product->rows,
                      .u.linear = {.scale = 1.0f, .x_row = linear->x_row}});
    add_op(plan, product->label,
           &(sumi_op){.kind = SUMI_OP_LINEAR,
                      .in = {low, product->out, gate.table},
                      .out = product->out,
                      .weight = &delta->up,
                      .rows = product->rows,
                      .u.linear = {.accumulates = true,
                                   .scale = scale,
                                   .y_row = linear->y_row,
                                   .y_column = linear->y_column + delta->row_begin,
                                   .gate = gate}});
}

// Adds scale * (left (x) right) x to what the product wrote: every row of x read as rows of `right`, times right^T, and
// sums of those with the elements of `left` as factors.
static void add_kronecker(sumi_plan* plan, const sumi_op* product, const sumi_delta* delta, float scale)
{
    SUMI_ASSERT(product->kind == SUMI_OP_LINEAR && product->u.linear.activation == SUMI_ACT_NONE);
    const sumi_op_linear* linear = &product->u.linear;
    const sumi_weight *left = &delta->up, *right = &delta->down;
    const int32_t folds = left->cols, all_rows = rows_of(plan, product->in[0]);
    if (cols_of(plan, product->in[0]) != product->weight->cols) {
        sumi_fail(&plan->error, SUMI_NOT_SUPPORTED,
                  "%s%s: a LoKr of a layer whose input is padded to %d columns is not supported; use a LoRA",
                  plan->label_prefix, product->label, (int)cols_of(plan, product->in[0]));
        return;
    }
    if (all_rows > INT32_MAX / folds) {
        mismatch(plan, product->label, "an adapter makes more rows than can be counted");
        return;
    }
    sumi_step_row gate = linear->gate;
    if (gate.table.id != 0) { gate.column += delta->row_begin; }
    sumi_value x = sumi_plan_reshape(plan, "folded", product->in[0], all_rows * folds, right->cols);
    sumi_value half =
        sumi_plan_value(plan, "half_product", SUMI_ELEMENT_ACTIVATION, product->rows * folds, right->rows);
    add_op(plan, product->label,
           &(sumi_op){.kind = SUMI_OP_LINEAR,
                      .in = {x},
                      .out = half,
                      .weight = right,
                      .rows = product->rows * folds,
                      .u.linear = {.scale = 1.0f, .x_row = linear->x_row * folds}});
    add_op(plan, product->label,
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

// Whether a change fits a matrix: what it is multiplied with, and the rows that it changes.
static bool fits_matrix(const sumi_delta* delta, const sumi_weight* weight)
{
    const sumi_weight *up = &delta->up, *down = &delta->down;
    const int64_t rows = delta->kind == SUMI_DELTA_KRONECKER ? (int64_t)up->rows * down->rows : up->rows,
                  cols = delta->kind == SUMI_DELTA_KRONECKER ? (int64_t)up->cols * down->cols : down->cols;
    return delta->kind != SUMI_DELTA_VECTOR && cols == weight->cols && delta->row_begin >= 0
        && delta->row_begin + rows <= weight->rows && (delta->kind == SUMI_DELTA_KRONECKER || up->cols == down->rows);
}

// What follows the product of an adapted weight, which has no activation: every delta on this weight in the order of the
// uses (bits do not depend on anything else), then the activation of the whole sum.
static void add_adapted(sumi_plan* plan, const sumi_op* product, sumi_activation activation)
{
    const sumi_weight* weight = product->weight;
    for (int32_t u = 0; u < plan->adapter_count; u++) {
        const sumi_adapter_use* use = &plan->adapters[u];
        for (int32_t d = 0; d < use->adapter->delta_count; d++) {
            const sumi_delta* delta = &use->adapter->deltas[d];
            if (!changes(use, delta, weight)) { continue; }
            if (!fits_matrix(delta, weight)) {
                mismatch(plan, product->label, "an adapter's shape is not the weight's");
                return;
            }
            (delta->kind == SUMI_DELTA_KRONECKER ? add_kronecker : add_delta)(plan, product, delta,
                                                                              use->scale * delta->scale);
        }
    }
    if (activation != SUMI_ACT_NONE) {
        add_op(plan, product->label,
               &(sumi_op){.kind = SUMI_OP_ACTIVATE,
                          .in = {product->out},
                          .out = product->out,
                          .rows = product->rows,
                          .u.activate = {.activation = activation, .row = product->u.linear.y_row}});
    }
}

// What does not fit in the arguments of a product of `rows` rows, or NULL.
static const char* linear_mismatch(const sumi_plan* plan, const sumi_plan_linear_args* args, int32_t rows)
{
    const sumi_weight* weight = args->weight;
    bool is_whole = args->x_row == 0 && rows == rows_of(plan, args->x);
    if (args->bias != NULL && (args->bias->rows != 1 || args->bias->cols != weight->rows)) {
        return "the bias has another width than the weight";
    }
    if (args->residual.id != 0) {
        if (!is_whole || args->y.id != 0 || args->keeps_columns || args->activation != SUMI_ACT_NONE) {
            return "a residual takes the whole product without activation, in its own place";
        }
        return !is_shape(plan, args->residual, rows, weight->rows) || !is_step_row_good(plan, args->gate, weight->rows)
                 ? "the residual or the gate has another shape than the product"
                 : NULL;
    }
    if (args->gate.table.id != 0) { return "a gate needs a residual"; }
    if (args->keeps_columns) {
        bool fits = args->y.id != 0 && is_whole && args->y_row == 0 && rows_of(plan, args->y) == rows
                 && args->y_column >= 0 && args->y_column + weight->rows <= cols_of(plan, args->y);
        return !fits || args->activation != SUMI_ACT_NONE
                 ? "the output is narrower than the product, or there is an activation"
                 : NULL;
    }
    bool is_new = args->y.id == 0 && args->y_row == 0, fits = args->y.id != 0 && cols_of(plan, args->y) == weight->rows;
    bool is_good = args->y_column == 0 && (is_new || fits) && args->y_row >= 0
                && (is_new || args->y_row + rows <= rows_of(plan, args->y));
    return is_good ? NULL : "the output has another shape than the product";
}

sumi_value sumi_plan_linear(sumi_plan* plan, const sumi_plan_linear_args* args)
{
    if (has_failed(plan)) { return SUMI_NO_VALUE; }
    const char* label = args->label;
    const sumi_weight* weight = args->weight;
    int32_t rows = count_rows(plan, args->rows, args->x, args->x_row);
    int32_t x_cols = cols_of(plan, args->x);
    bool reads_all = x_cols == weight->cols || x_cols == (weight->cols + 7) / 8 * 8;
    if (!reads_all || args->x_row < 0 || args->x_row + rows > rows_of(plan, args->x)) {
        sumi_fail(&plan->error, SUMI_INTERNAL,
                  "the plan cannot be written: %s%s: input [%d, %d] rows %d..%d against weight %s [%d, %d]",
                  plan->label_prefix, label, rows_of(plan, args->x), x_cols, args->x_row, args->x_row + rows,
                  weight->name, weight->rows, weight->cols);
        return SUMI_NO_VALUE;
    }
    const char* wrong = linear_mismatch(plan, args, rows);
    if (wrong != NULL) {
        mismatch(plan, label, wrong);
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
    } else if (args->residual.id == 0 && (args->keeps_columns || rows != rows_of(plan, args->y))) {
        product.in[2] = args->y; // the other rows or columns stay
    }
    const bool has_adapters = is_adapted(plan, weight);
    product.u.linear.activation = has_adapters ? SUMI_ACT_NONE : args->activation;
    add_op(plan, label, &product);
    if (has_adapters) { add_adapted(plan, &product, args->activation); }
    return has_failed(plan) ? SUMI_NO_VALUE : product.out;
}

sumi_value sumi_plan_activate(sumi_plan* plan, sumi_value x, sumi_activation activation)
{
    sumi_value y =
        sumi_plan_value(plan, "activated", sumi_plan_info(plan, x)->element, rows_of(plan, x), cols_of(plan, x));
    return add_op(plan, "activate",
                  &(sumi_op){.kind = SUMI_OP_ACTIVATE,
                             .in = {x},
                             .out = y,
                             .rows = rows_of(plan, x),
                             .u.activate = {.activation = activation}});
}

sumi_value sumi_plan_gated(sumi_plan* plan, const char* label, sumi_value both, sumi_activation activation)
{
    if (cols_of(plan, both) % 2 != 0) { mismatch(plan, label, "a gated value has an even number of columns"); }
    sumi_value y =
        sumi_plan_value(plan, "gated", SUMI_ELEMENT_ACTIVATION, rows_of(plan, both), cols_of(plan, both) / 2);
    return add_op(plan, label,
                  &(sumi_op){.kind = SUMI_OP_GATED, .in = {both}, .out = y, .u.gated = {.activation = activation}});
}

sumi_value sumi_plan_linear_gated(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* gate_up,
                                  sumi_activation activation)
{
    sumi_value both = sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = label, .x = x, .weight = gate_up});
    return sumi_plan_gated(plan, label, both, activation);
}

// The vector, then each change as a product with 1 that is added to it.
static sumi_value write_changed_vector(sumi_plan* plan, const sumi_weight* vector)
{
    const float one = 1.0f;
    if (plan->one.id == 0) { plan->one = sumi_plan_constant(plan, "one", SUMI_ELEMENT_FLOAT, 1, 1, &one); }
    sumi_value y = sumi_plan_value(plan, "changed_vector", SUMI_ELEMENT_FLOAT, 1, vector->cols);
    sumi_plan_fill_rows(plan, y, vector, &(sumi_span){0, 1}, 1);
    for (int32_t u = 0; u < plan->adapter_count; u++) {
        const sumi_adapter_use* use = &plan->adapters[u];
        for (int32_t d = 0; d < use->adapter->delta_count; d++) {
            const sumi_delta* delta = &use->adapter->deltas[d];
            if (!changes(use, delta, vector)) { continue; }
            if (delta->kind != SUMI_DELTA_VECTOR || vector->rows != 1 || delta->row_begin != 0 || delta->up.cols != 1
                || delta->up.rows != vector->cols) {
                mismatch(plan, vector->name, "an adapter's shape is not the vector's");
                return SUMI_NO_VALUE;
            }
            add_op(plan, "adapter",
                   &(sumi_op){.kind = SUMI_OP_LINEAR,
                              .in = {plan->one, y},
                              .out = y,
                              .weight = &delta->up,
                              .rows = 1,
                              .u.linear = {.accumulates = true, .scale = use->scale * delta->scale}});
        }
    }
    return y;
}

sumi_value sumi_plan_changed_vector(sumi_plan* plan, const sumi_weight* vector)
{
    if (vector == NULL || has_failed(plan) || !is_adapted(plan, vector)) { return SUMI_NO_VALUE; }
    for (size_t i = 0; i < plan->changed_count; i++) {
        if (plan->changed[i].vector == vector) { return plan->changed[i].sum; }
    }
    if (sumi_grow(plan->heap, (void**)&plan->changed, &plan->changed_capacity, plan->changed_count + 1,
                  sizeof *plan->changed, &plan->error)
        != SUMI_OK) {
        return SUMI_NO_VALUE;
    }
    sumi_value sum = write_changed_vector(plan, vector);
    plan->changed[plan->changed_count++] = (sumi_changed_vector){vector, sum};
    return sum;
}

sumi_value sumi_plan_norm(sumi_plan* plan, const sumi_plan_norm_args* args)
{
    int32_t rows = count_rows(plan, args->rows, args->x, args->x_row), cols = cols_of(plan, args->x);
    if (args->x_row < 0 || args->x_row + rows > rows_of(plan, args->x)
        || (args->weight != NULL && args->weight->cols != cols) || (args->bias != NULL && args->bias->cols != cols)
        || !is_step_row_good(plan, args->scale, cols) || !is_step_row_good(plan, args->shift, cols)) {
        mismatch(plan, args->label, "the norm's weight, bias, scale, shift or rows do not fit");
    }
    if (args->bias != NULL && (args->silu || args->scale.table.id != 0 || args->shift.table.id != 0)) {
        mismatch(plan, args->label, "a norm with a bias has no scale, no shift and no activation");
    }
    sumi_value y = args->y;
    if (y.id == 0) { y = sumi_plan_value(plan, "normed", SUMI_ELEMENT_ACTIVATION, rows, cols); }
    if (!is_shape(plan, y, rows, cols) || (args->silu && (args->scale.table.id != 0 || args->shift.table.id != 0))) {
        mismatch(plan, args->label, "the norm's output has another shape, or it has a table and an activation");
    }
    const sumi_row_band* bands = copy_bands(plan, args->label, args->bands, args->band_count, rows);
    sumi_value changed = sumi_plan_changed_vector(plan, args->weight);
    return add_op(plan, args->label,
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
    int32_t rows = count_rows(plan, args->rows, args->branch, 0), cols = cols_of(plan, args->x);
    if (cols_of(plan, args->branch) != cols || args->x_row < 0 || args->x_row + rows > rows_of(plan, args->x)
        || rows > rows_of(plan, args->branch) || (args->weight != NULL && args->weight->cols != cols)
        || !is_step_row_good(plan, args->gate, cols)) {
        mismatch(plan, args->label, "the branch, the weight or the gate does not fit");
    }
    const sumi_row_band* bands = copy_bands(plan, args->label, args->bands, args->band_count, rows);
    sumi_value changed = sumi_plan_changed_vector(plan, args->weight);
    add_op(plan, args->label,
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
    int32_t rows = count_rows(plan, args->rows, args->qkv, args->row), dim = args->dim;
    bool rotates = args->rotary != SUMI_ROTARY_NONE;
    if (cols_of(plan, args->qkv) != (args->q_heads + 2 * args->kv_heads) * dim || args->row < 0
        || args->row + rows > rows_of(plan, args->qkv)
        || (rotates
            && (dim % 2 != 0 || cols_of(plan, args->rope) != dim || args->rope_row < 0
                || args->rope_row + rows > rows_of(plan, args->rope)))
        || (args->q_norm != NULL && args->q_norm->cols != dim) || (args->k_norm != NULL && args->k_norm->cols != dim)) {
        mismatch(plan, args->label, "heads, norms or the rotary table do not fit the qkv matrix");
    }
    sumi_value q_norm = sumi_plan_changed_vector(plan, args->q_norm),
               k_norm = sumi_plan_changed_vector(plan, args->k_norm);
    add_op(plan, args->label,
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

sumi_value sumi_plan_attention(sumi_plan* plan, const char* label, sumi_value qkv, const sumi_attention* attention)
{
    int32_t q_heads = attention->q_heads, kv_heads = attention->kv_heads, dim = attention->dim;
    if (kv_heads < 1 || q_heads % kv_heads != 0 || cols_of(plan, qkv) != (q_heads + 2 * kv_heads) * dim
        || attention->sequence_count < 1) {
        mismatch(plan, label, "heads do not fit the qkv matrix");
    }
    for (int32_t s = 0; s < attention->sequence_count && !has_failed(plan); s++) {
        const sumi_sequence* sequence = &attention->sequences[s];
        if (sequence->span_count < 1 || sequence->span_count > 2 || sequence->query_spans < 1
            || sequence->query_first < 0 || sequence->query_spans > sequence->span_count - sequence->query_first) {
            mismatch(plan, label, "a sequence has one or two spans");
            break;
        }
        for (int32_t i = 0; i < sequence->span_count; i++) {
            const sumi_span* span = &sequence->span[i];
            if (span->begin < 0 || span->count < 1 || span->begin + span->count > rows_of(plan, qkv)) {
                mismatch(plan, label, "a sequence leaves the matrix");
            }
        }
    }
    sumi_value y = sumi_plan_value(plan, "attention", SUMI_ELEMENT_ACTIVATION, rows_of(plan, qkv), q_heads * dim);
    size_t bytes = has_failed(plan) ? 0 : (size_t)attention->sequence_count * sizeof *attention->sequences;
    return add_op(plan, label,
                  &(sumi_op){.kind = SUMI_OP_ATTENTION,
                             .in = {qkv},
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
                                             .v_column = (q_heads + kv_heads) * dim}});
}

sumi_value sumi_plan_rope_table(sumi_plan* plan, const sumi_plan_rope_args* args)
{
    sumi_op op = {.kind = SUMI_OP_ROPE_TABLE,
                  .in = {args->positions},
                  .u.rope = {.axes = args->axes,
                             .theta = args->theta,
                             .divisor = args->divisor != 0.0 ? args->divisor : 1.0,
                             .is_continuous = args->is_continuous}};
    int32_t total = 0;
    for (int32_t a = 0; a < args->axes && a < 4; a++) {
        op.u.rope.pairs[a] = args->pairs[a];
        total += args->pairs[a];
    }
    if (args->axes < 1 || args->axes > 4 || cols_of(plan, args->positions) != args->axes || total < 1) {
        mismatch(plan, "rope", "positions need one column per axis");
    }
    op.out = sumi_plan_value(plan, "rope", SUMI_ELEMENT_FLOAT, rows_of(plan, args->positions), 2 * total);
    return add_op(plan, "rope", &op);
}

double sumi_plan_rope_frequency(const sumi_op* op, int32_t axis, int32_t k)
{
    const sumi_op_rope_table* rope = &op->u.rope;
    SUMI_ASSERT(axis >= 0 && axis < rope->axes && k >= 0 && k < rope->pairs[axis]);
    int32_t total = rope->pairs[axis];
    for (int32_t a = 0; rope->is_continuous && a < rope->axes; a++) {
        k += a < axis ? rope->pairs[a] : 0;
        total += a != axis ? rope->pairs[a] : 0;
    }
    return 1.0 / pow(rope->theta, 2.0 * k / (2.0 * total)) / rope->divisor;
}

sumi_value sumi_plan_time_embed(sumi_plan* plan, const sumi_plan_time_args* args)
{
    // float: these are a few rows, there is no reason to round them
    sumi_value y = sumi_plan_value(plan, "time_embed", SUMI_ELEMENT_FLOAT, rows_of(plan, args->times), args->width);
    return add_op(
        plan, "time_embed",
        &(sumi_op){.kind = SUMI_OP_TIME_EMBED,
                   .in = {args->times},
                   .out = y,
                   .u.time = {.max_period = args->max_period, .scale = args->scale, .cos_first = args->cos_first}});
}

sumi_value sumi_plan_modulation(sumi_plan* plan, const sumi_plan_modulation_args* args)
{
    sumi_value table = args->table, out = table;
    int32_t parts = args->parts != 0 ? args->parts : 1, cols = cols_of(plan, table);
    bool is_in_place = args->rows == 0;
    if (parts < 1 || parts > 32 || cols % parts != 0 || (args->adds_one & args->squashes) != 0) {
        mismatch(plan, args->label, "the columns are no multiple of the parts, or a part is told two things");
    }
    if (is_in_place ? args->x_row != 0 || args->per_step
                    : args->rows < 0 || args->x_row < 0 || args->x_row + args->rows > rows_of(plan, table)) {
        mismatch(plan, args->label, "the rows are not in the table");
    }
    if (!is_in_place) { out = sumi_plan_value(plan, "modulation_row", args->element, args->rows, cols); }
    return add_op(plan, args->label,
                  &(sumi_op){.kind = SUMI_OP_FINISH_MODULATION,
                             .in = {table},
                             .out = out,
                             .u.finish = {.parts = parts,
                                          .adds_one = args->adds_one,
                                          .squashes = args->squashes,
                                          .x_row = args->x_row,
                                          .per_step = args->per_step}});
}

void sumi_plan_finish_modulation(sumi_plan* plan, sumi_value table, bool has_gates)
{
    sumi_plan_modulation(plan, &(sumi_plan_modulation_args){.label = "modulation",
                                                            .table = table,
                                                            .parts = has_gates ? 4 : 1,
                                                            .adds_one = has_gates ? 5 : 1,
                                                            .squashes = has_gates ? 10 : 0});
}

// The layout with its arrays copied into the plan.
static sumi_op_patch copy_layout(sumi_plan* plan, const sumi_patch_layout* layout, float sign)
{
    size_t bytes = has_failed(plan) ? 0 : (size_t)layout->sequence_count * sizeof(int32_t);
    const int32_t* items = sumi_plan_copy(plan, layout->items, bytes);
    const int32_t* row_begin = sumi_plan_copy(plan, layout->row_begin, bytes);
    return (sumi_op_patch){.height = layout->height,
                           .width = layout->width,
                           .channels = layout->channels,
                           .items = items,
                           .sequence_count = layout->sequence_count,
                           .row_begin = row_begin,
                           .sign = sign,
                           .by_channel = layout->by_channel};
}

static void check_layout(sumi_plan* plan, const char* label, const sumi_patch_layout* layout, sumi_value rows)
{
    if (cols_of(plan, rows) != 4 * layout->channels || layout->height % 2 != 0 || layout->width % 2 != 0
        || layout->sequence_count < 1) {
        mismatch(plan, label, "rows do not fit the layout");
    }
}

void sumi_plan_patchify(sumi_plan* plan, sumi_value latents, const sumi_patch_layout* layout, sumi_value rows)
{
    check_layout(plan, "patchify", layout, rows);
    if (cols_of(plan, latents) != layout->height * layout->width) {
        mismatch(plan, "patchify", "latents do not fit the layout");
    }
    add_op(
        plan, "patchify",
        &(sumi_op){
            .kind = SUMI_OP_PATCHIFY, .in = {latents, rows}, .out = rows, .u.patch = copy_layout(plan, layout, 1.0f)});
}

sumi_value sumi_plan_unpatchify(sumi_plan* plan, sumi_value rows, const sumi_patch_layout* layout, float sign)
{
    check_layout(plan, "unpatchify", layout, rows);
    sumi_value y = sumi_plan_value(plan, "prediction", SUMI_ELEMENT_FLOAT, layout->sequence_count * layout->channels,
                                   layout->height * layout->width);
    return add_op(
        plan, "unpatchify",
        &(sumi_op){.kind = SUMI_OP_UNPATCHIFY, .in = {rows}, .out = y, .u.patch = copy_layout(plan, layout, sign)});
}

void sumi_plan_add_noise(sumi_plan* plan, sumi_value noise, sumi_value clean, sumi_step_row sigma, sumi_value x)
{
    int32_t rows = rows_of(plan, x), cols = cols_of(plan, x);
    if (!is_shape(plan, noise, rows, cols) || !is_shape(plan, clean, rows, cols) || !is_step_row_good(plan, sigma, 1)) {
        mismatch(plan, "add_noise", "noise, clean and x are one shape");
    }
    add_op(
        plan, "add_noise",
        &(sumi_op){
            .kind = SUMI_OP_ADD_NOISE, .in = {noise, clean, sigma.table}, .out = x, .u.add_noise = {.sigma = sigma}});
}

sumi_value sumi_plan_guide(sumi_plan* plan, const sumi_plan_guide_args* args)
{
    const int32_t *positive = args->positive, *negative = args->negative;
    int32_t items = args->item_count, channels = args->channels, rows = rows_of(plan, args->predictions);
    const int32_t width = args->width, patch = args->patch_size, plane = cols_of(plan, args->predictions);
    if (!is_step_row_good(plan, args->scale, 1) || items < 1) {
        mismatch(plan, "guide", "the scale's column is not in its table");
    }
    if (args->rule <= SUMI_GUIDANCE_MODEL || args->rule > SUMI_GUIDANCE_NORM_RESCALE || !(args->norm_limit >= 0.0f)) {
        mismatch(plan, "guide", "the rule is none of those that the op has");
    }
    if (args->rule == SUMI_GUIDANCE_NORM_RESCALE
        && (patch < 1 || width < patch || width % patch != 0 || plane % ((int64_t)width * patch) != 0)) {
        mismatch(plan, "guide", "tokens do not tile the planes");
    }
    for (int32_t i = 0; i < items; i++) {
        if (positive[i] < 0 || (positive[i] + 1) * channels > rows || (negative[i] + 1) * channels > rows) {
            mismatch(plan, "guide", "a sequence is not among the predictions");
        }
    }
    sumi_value v = sumi_plan_value(plan, "velocity", SUMI_ELEMENT_FLOAT, items * channels, plane);
    size_t bytes = has_failed(plan) ? 0 : (size_t)items * sizeof *positive;
    return add_op(plan, "guide",
                  &(sumi_op){.kind = SUMI_OP_GUIDE,
                             .in = {args->predictions, args->scale.table},
                             .out = v,
                             .u.guide = {.item_count = items,
                                         .positive = sumi_plan_copy(plan, positive, bytes),
                                         .negative = sumi_plan_copy(plan, negative, bytes),
                                         .scale = args->scale,
                                         .rule = args->rule,
                                         .norm_limit = args->norm_limit,
                                         .channels = channels,
                                         .width = width,
                                         .patch_size = patch}});
}

void sumi_plan_solve(sumi_plan* plan, const sumi_plan_solve_args* args)
{
    int32_t rows = rows_of(plan, args->x), cols = cols_of(plan, args->x);
    sumi_value same[] = {args->y, args->h, args->v, args->noise, args->clean};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (same[i].id != 0 && !is_shape(plan, same[i], rows, cols)) {
            mismatch(plan, "solve", "all states are one shape");
        }
    }
    if (!is_step_row_good(plan, args->row, 12)
        || (args->mask.id != 0 && (args->noise.id == 0 || args->clean.id == 0 || cols_of(plan, args->mask) != cols))) {
        mismatch(plan, "solve", "the solver table has 12 columns, a mask needs noise and clean latents");
    }
    add_op(plan, "solve",
           &(sumi_op){.kind = SUMI_OP_SOLVE,
                      .in = {args->x, args->y, args->h, args->v, args->noise, args->clean},
                      .out = args->x,
                      .mask = args->mask,
                      .u.solve = {.row = args->row, .channels = args->channels}});
}

void sumi_plan_preview(sumi_plan* plan, const sumi_plan_preview_args* args)
{
    int32_t channels = args->channels, items = channels > 0 ? rows_of(plan, args->x) / channels : 0;
    if (items < 1 || !is_shape(plan, args->rgb, items * 3, cols_of(plan, args->x))
        || rows_of(plan, args->v) != rows_of(plan, args->x)) {
        mismatch(plan, "preview", "three planes per item are needed");
    }
    size_t bytes = has_failed(plan) ? 0 : sizeof(float);
    add_op(plan, "preview",
           &(sumi_op){.kind = SUMI_OP_PREVIEW,
                      .in = {args->x, args->v, args->sigma.table, args->rgb},
                      .out = args->rgb,
                      .u.preview = {.sigma = args->sigma,
                                    .channels = channels,
                                    .factors = sumi_plan_copy(plan, args->factors, (size_t)channels * 3 * bytes),
                                    .bias = sumi_plan_copy(plan, args->bias, 3 * bytes)}});
}

sumi_value sumi_plan_pixels_in(sumi_plan* plan, sumi_value bytes, int32_t picture_width, sumi_tile tile)
{
    if (cols_of(plan, bytes) != 3 || tile.x < 0 || tile.y < 0 || tile.x + tile.width > picture_width
        || (int64_t)(tile.y + tile.height) * picture_width > rows_of(plan, bytes)) {
        mismatch(plan, "pixels_in", "the tile leaves the picture");
    }
    sumi_value out = sumi_plan_value(plan, "pixels", SUMI_ELEMENT_ACTIVATION, tile.height * tile.width, 3);
    return add_op(
        plan, "pixels_in",
        &(sumi_op){.kind = SUMI_OP_PIXELS_IN,
                   .in = {bytes},
                   .out = out,
                   .u.pixels = {.width = tile.width, .y = tile.y, .x = tile.x, .picture_width = picture_width}});
}

// One value for each channel, kept by the plan; NULL after an error.
static const float* channel_values(sumi_plan* plan, const float* values, int32_t count, int32_t channels)
{
    float* all = has_failed(plan) ? NULL : reserve_text(plan, (size_t)channels * sizeof *all);
    for (int32_t c = 0; all != NULL && c < channels; c++) { all[c] = values[count == 1 ? 0 : c]; }
    return all;
}

static void check_statistics(sumi_plan* plan, const char* verb, const sumi_latent_statistics* s, int32_t channels)
{
    if (s->scale == NULL || s->shift == NULL || (s->count != 1 && s->count != channels)) {
        mismatch(plan, verb, "there is one scale and shift for all channels, or one for each");
        return;
    }
    for (int32_t c = 0; c < s->count; c++) {
        if (s->scale[c] == 0.0f) { mismatch(plan, verb, "a scale of 0 loses what the latents were"); }
    }
}

sumi_value sumi_plan_patches_in(sumi_plan* plan, sumi_value bytes, sumi_value cells, const sumi_op_patches_in* layout)
{
    const sumi_op_patches_in p = *layout;
    bool is_known = p.patch > 0 && p.cell > 0 && p.frames > 0 && p.patch <= 256 && p.cell <= 256 && p.frames <= 16;
    int32_t side = is_known ? p.patch * p.cell : 1;
    int64_t pixels = (int64_t)p.height * p.width, count = pixels / ((int64_t)side * side);
    if (!is_known || p.height < 1 || p.width < 1 || p.height % side != 0 || p.width % side != 0
        || cols_of(plan, bytes) != 3 || rows_of(plan, bytes) != pixels || !is_shape(plan, cells, (int32_t)count, 1)) {
        mismatch(plan, "patches_in", "the picture is not the cells that are listed");
        return SUMI_NO_VALUE;
    }
    for (int32_t c = 0; c < 3; c++) {
        if (!(p.deviation[c] > 0.0f)) { mismatch(plan, "patches_in", "a deviation is not above 0"); }
    }
    sumi_value out = sumi_plan_value(plan, "patches", SUMI_ELEMENT_ACTIVATION, (int32_t)count * p.cell * p.cell,
                                     3 * p.frames * p.patch * p.patch);
    return add_op(plan, "patches_in",
                  &(sumi_op){.kind = SUMI_OP_PATCHES_IN, .in = {bytes, cells}, .out = out, .u.patches = p});
}

void sumi_plan_posterior(sumi_plan* plan, const sumi_plan_posterior_args* args)
{
    const sumi_latent_statistics* statistics = &args->statistics;
    int32_t channels = args->channels, pixels = rows_of(plan, args->moments);
    if (cols_of(plan, args->moments) != 2 * channels || !is_shape(plan, args->latents, channels, pixels)
        || (args->eps.id != 0 && !is_shape(plan, args->eps, channels, pixels))) {
        mismatch(plan, "posterior", "moments, noise and latents do not fit");
    }
    check_statistics(plan, "posterior", statistics, channels);
    add_op(plan, "posterior",
           &(sumi_op){.kind = SUMI_OP_POSTERIOR,
                      .in = {args->moments, args->eps},
                      .out = args->latents,
                      .u.posterior = {.channels = channels,
                                      .scale = channel_values(plan, statistics->scale, statistics->count, channels),
                                      .shift = channel_values(plan, statistics->shift, statistics->count, channels)}});
}

sumi_value sumi_plan_latent_in(sumi_plan* plan, const sumi_plan_latent_args* args)
{
    sumi_tile tile = args->tile;
    if (cols_of(plan, args->latents) != args->height * args->width || tile.y < 0 || tile.x < 0
        || tile.y + tile.height > args->height || tile.x + tile.width > args->width) {
        mismatch(plan, "latent_in", "the tile leaves the latents");
    }
    const sumi_latent_statistics* statistics = &args->statistics;
    check_statistics(plan, "latent_in", statistics, args->channels);
    sumi_value y =
        sumi_plan_value(plan, "latent_picture", SUMI_ELEMENT_ACTIVATION, tile.height * tile.width, args->channels);
    return add_op(
        plan, "latent_in",
        &(sumi_op){.kind = SUMI_OP_LATENT_IN,
                   .in = {args->latents},
                   .out = y,
                   .u.latent_in = {.channels = args->channels,
                                   .height = args->height,
                                   .width = args->width,
                                   .y = tile.y,
                                   .x = tile.x,
                                   .tile_height = tile.height,
                                   .tile_width = tile.width,
                                   .scale = channel_values(plan, statistics->scale, statistics->count, args->channels),
                                   .shift = channel_values(plan, statistics->shift, statistics->count, args->channels),
                                   .per_item = args->per_item}});
}

static int32_t pitch_of(const sumi_plan* plan, sumi_value value) { return sumi_plan_info(plan, value)->pitch; }

sumi_value sumi_plan_conv(sumi_plan* plan, const sumi_plan_conv_args* args)
{
    const sumi_weight* weight = args->weight;
    sumi_op_conv conv = args->shape;
    conv.kernel = conv.kernel != 0 ? conv.kernel : 3;
    conv.stride = conv.stride != 0 ? conv.stride : 1;
    int32_t scale = conv.upsamples ? 2 : 1;
    int32_t rows = (conv.height - conv.above - conv.below) * scale / conv.stride * (conv.width * scale / conv.stride);
    sumi_value x = args->x, residual = args->residual, y = args->y;
    if (y.id == 0) { y = sumi_plan_value(plan, "conv", SUMI_ELEMENT_ACTIVATION, rows, weight->rows); }
    bool halves = conv.stride == 2 && conv.kernel == 3 && conv.pads_end && conv.height >= 2 && conv.width >= 2;
    bool is_known = (conv.kernel == 1 || conv.kernel == 3) && (conv.stride == 1 || halves);
    if (is_adapted(plan, weight)) {
        sumi_fail(&plan->error, SUMI_NOT_SUPPORTED,
                  "%s%s: an adapter changes the weight %s of a convolution: only linear layers can be adapted",
                  plan->label_prefix, args->label, weight->name);
    }
    bool is_strip = conv.above != 0 || conv.below != 0, has_neighbours = ((conv.above | conv.below) & ~1) == 0;
    bool is_strip_good = !is_strip || (has_neighbours && conv.kernel == 3 && conv.stride == 1 && !conv.pads_end);
    if (!is_known || !is_strip_good || rows_of(plan, x) != conv.height * conv.width
        || weight->cols != cols_of(plan, x) * conv.kernel * conv.kernel
        || (args->bias != NULL && args->bias->cols != weight->rows) || !is_shape(plan, y, rows, weight->rows)
        || (residual.id != 0
            && (!is_shape(plan, residual, rows, weight->rows) || pitch_of(plan, residual) != pitch_of(plan, y)))) {
        mismatch(plan, args->label, "picture, kernel, bias, residual or output do not fit");
    }
    return add_op(
        plan, args->label,
        &(sumi_op){
            .kind = SUMI_OP_CONV, .in = {x, residual}, .out = y, .weight = weight, .bias = args->bias, .u.conv = conv});
}

sumi_value sumi_plan_group_sums(sumi_plan* plan, const char* label, sumi_value x, int32_t groups)
{
    if (groups < 1 || cols_of(plan, x) % groups != 0) {
        mismatch(plan, label, "the channels are not a multiple of the groups");
    }
    add_op(
        plan, label,
        &(sumi_op){.kind = SUMI_OP_GROUP_SUMS, .in = {x}, .u.group = {.groups = groups, .all_rows = rows_of(plan, x)}});
    if (has_failed(plan)) { return SUMI_NO_VALUE; }
    sumi_op* op = &plan->ops[plan->op_count - 1];
    op->u.group.block_count = op->part_count;
    op->u.group.block_rows = op->part_rows;
    op->out = sumi_plan_value(plan, "group_sums", SUMI_ELEMENT_FLOAT, op->part_count, groups * 2);
    return op->out;
}

// The op that made the sums says how the rows were cut.
static const sumi_op* find_group_sums(const sumi_plan* plan, sumi_value sums)
{
    for (size_t i = plan->op_count; i-- > 0;) {
        if (plan->ops[i].kind == SUMI_OP_GROUP_SUMS && plan->ops[i].out.id == sums.id) { return &plan->ops[i]; }
    }
    return NULL;
}

sumi_value sumi_plan_group_norm(sumi_plan* plan, const sumi_plan_group_norm_args* args)
{
    sumi_value x = args->x, sums = args->sums, y = args->y;
    int32_t rows = rows_of(plan, x), cols = cols_of(plan, x);
    if (sums.id == 0) { sums = sumi_plan_group_sums(plan, args->label, x, args->groups); }
    if (y.id == 0) { y = sumi_plan_value(plan, "group_normed", SUMI_ELEMENT_ACTIVATION, rows, cols); }
    if (has_failed(plan)) { return SUMI_NO_VALUE; }
    const sumi_op* made = find_group_sums(plan, sums);
    if (made == NULL || made->u.group.groups != args->groups || cols_of(plan, made->in[0]) != cols
        || args->weight->cols != cols || args->bias->cols != cols || !is_shape(plan, y, rows, cols)) {
        mismatch(plan, args->label, "the sums are of another picture, or the weight or the output has another width");
        return SUMI_NO_VALUE;
    }
    sumi_op_group group = made->u.group;
    group.eps = args->eps;
    group.silu = args->silu;
    return add_op(plan, args->label,
                  &(sumi_op){.kind = SUMI_OP_GROUP_NORM,
                             .in = {x, sums},
                             .out = y,
                             .weight = args->weight,
                             .bias = args->bias,
                             .u.group = group});
}

void sumi_plan_tile_blend(sumi_plan* plan, const sumi_plan_blend_args* args)
{
    int32_t height = args->height, width = args->width, cols = cols_of(plan, args->tile);
    if (rows_of(plan, args->tile) != height * width
        || (args->above.id != 0 && !is_shape(plan, args->above, args->above_height * width, cols))
        || (args->left.id != 0 && !is_shape(plan, args->left, height * args->left_width, cols))) {
        mismatch(plan, "tile_blend", "the neighbours have other sizes");
    }
    add_op(plan, "tile_blend",
           &(sumi_op){.kind = SUMI_OP_TILE_BLEND,
                      .in = {args->tile, args->above, args->left},
                      .out = args->tile,
                      .u.blend = {.height = height,
                                  .width = width,
                                  .above_height = args->above_height,
                                  .left_width = args->left_width,
                                  .extent = args->extent}});
}

void sumi_plan_tile_place(sumi_plan* plan, const sumi_plan_place_args* args)
{
    sumi_tile kept = args->kept;
    int32_t picture_rows = args->picture_height * args->picture_width;
    if (kept.width > args->tile_width || kept.y < 0 || kept.x < 0
        || kept.height * args->tile_width > rows_of(plan, args->tile) || kept.y + kept.height > args->picture_height
        || kept.x + kept.width > args->picture_width || cols_of(plan, args->tile) != cols_of(plan, args->picture)
        || picture_rows < 1 || rows_of(plan, args->picture) % picture_rows != 0) {
        mismatch(plan, "tile_place", "the tile does not fit the picture");
    }
    add_op(plan, "tile_place",
           &(sumi_op){.kind = SUMI_OP_TILE_PLACE,
                      .in = {args->tile, args->picture},
                      .out = args->picture,
                      .u.place = {.tile_width = args->tile_width,
                                  .picture_width = args->picture_width,
                                  .y = kept.y,
                                  .x = kept.x,
                                  .height = kept.height,
                                  .width = kept.width,
                                  .per_item = args->per_item,
                                  .item_rows = picture_rows}});
}

void sumi_plan_composite(sumi_plan* plan, sumi_value pictures, sumi_value beneath, sumi_value opacity)
{
    const int32_t rows = rows_of(plan, beneath);
    if (cols_of(plan, pictures) != 3 || rows < 1 || rows_of(plan, pictures) % rows != 0
        || !is_shape(plan, beneath, rows, 3) || !is_shape(plan, opacity, rows, 1)
        || sumi_plan_info(plan, beneath)->element != SUMI_ELEMENT_BYTE
        || sumi_plan_info(plan, opacity)->element != SUMI_ELEMENT_BYTE) {
        mismatch(plan, "composite", "pictures, what is beneath and the opacity are not of one size");
    }
    add_op(plan, "composite",
           &(sumi_op){.kind = SUMI_OP_COMPOSITE, .in = {pictures, beneath, opacity}, .out = pictures});
}

void sumi_plan_pixels_out(sumi_plan* plan, sumi_value picture, sumi_value bytes, sumi_value not_finite)
{
    int32_t rows = rows_of(plan, picture);
    if (!is_shape(plan, picture, rows, 3) || !is_shape(plan, bytes, rows, 3)
        || sumi_plan_info(plan, not_finite)->element != SUMI_ELEMENT_INT) {
        mismatch(plan, "pixels_out", "picture and bytes are one shape of three columns");
    }
    add_op(plan, "pixels_out", &(sumi_op){.kind = SUMI_OP_PIXELS_OUT, .in = {picture, not_finite}, .out = bytes});
}
