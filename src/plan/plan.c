// Writing a plan: values, sections, and a verb per op that checks shapes and says what the op costs. layout.c finishes it.
#include "plan/plan.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES 65536u
#define PART_FLOPS 2e8    // a part of a big op: about a millisecond of two processor cores, microseconds of a GPU
#define PART_ELEMENTS 65536 // a part of a memory-bound op
#define QUERY_BLOCK 64

const char* sumi_op_name(sumi_op_kind kind)
{
    static const char* const names[SUMI_OP_KIND_COUNT] = {
        [SUMI_OP_EMBED_ROWS] = "embed_rows", [SUMI_OP_FILL_ROWS] = "fill_rows", [SUMI_OP_COPY_ROWS] = "copy_rows", [SUMI_OP_LINEAR] = "linear",
        [SUMI_OP_ACTIVATE] = "activate", [SUMI_OP_GATED] = "gated", [SUMI_OP_NORM_MODULATE] = "norm_modulate", [SUMI_OP_NORM_GATE_ADD] = "norm_gate_add",
        [SUMI_OP_QK_NORM_ROPE] = "qk_norm_rope", [SUMI_OP_ATTENTION] = "attention", [SUMI_OP_ROPE_TABLE] = "rope_table", [SUMI_OP_TIME_EMBED] = "time_embed",
        [SUMI_OP_FINISH_MODULATION] = "finish_modulation", [SUMI_OP_PATCHIFY] = "patchify", [SUMI_OP_UNPATCHIFY] = "unpatchify",
        [SUMI_OP_ADD_NOISE] = "add_noise", [SUMI_OP_GUIDE] = "guide", [SUMI_OP_SOLVE] = "solve", [SUMI_OP_PREVIEW] = "preview", [SUMI_OP_PIXELS_IN] = "pixels_in",
        [SUMI_OP_POSTERIOR] = "posterior", [SUMI_OP_LATENT_IN] = "latent_in", [SUMI_OP_CONV] = "conv", [SUMI_OP_GROUP_SUMS] = "group_sums",
        [SUMI_OP_GROUP_NORM] = "group_norm", [SUMI_OP_TILE_BLEND] = "tile_blend", [SUMI_OP_TILE_PLACE] = "tile_place", [SUMI_OP_PIXELS_OUT] = "pixels_out"};
    return kind >= 0 && kind < SUMI_OP_KIND_COUNT ? names[kind] : "unknown";
}

// ---- Memory and errors of the plan itself ---------------------------------------------------------------------------------------------

static bool has_failed(const sumi_plan* plan)
{
    return plan->error.result != SUMI_OK;
}

static void mismatch(sumi_plan* plan, const char* label, const char* what)
{
    sumi_fail(&plan->error, SUMI_INTERNAL, "the plan cannot be written: %s%s: %s", plan->label_prefix, label, what);
}

static void* reserve_text(sumi_plan* plan, size_t bytes)
{
    if (has_failed(plan)) {
        return NULL;
    }
    bytes = (bytes + 15) & ~(size_t)15;
    if (plan->block_count == 0 || plan->block_bytes - plan->block_used < bytes) {
        size_t block_bytes = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        if (sumi_grow(plan->heap, (void**)&plan->blocks, &plan->block_capacity, plan->block_count + 1, sizeof *plan->blocks, &plan->error) != SUMI_OK) {
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
    if (memory != NULL && bytes > 0) {
        memcpy(memory, data, bytes);
    }
    return memory;
}

void sumi_plan_begin(sumi_plan* plan, sumi_heap* heap, int32_t activation_bytes)
{
    memset(plan, 0, sizeof *plan);
    plan->heap = heap;
    plan->activation_bytes = activation_bytes;
}

void sumi_plan_end(sumi_plan* plan)
{
    if (plan->heap == NULL) {
        return;
    }
    for (size_t i = 0; i < plan->block_count; i++) {
        sumi_free(plan->heap, plan->blocks[i]);
    }
    sumi_free(plan->heap, plan->blocks);
    sumi_free(plan->heap, plan->ops);
    sumi_free(plan->heap, plan->values);
    sumi_free(plan->heap, plan->sections);
    sumi_free(plan->heap, plan->slices);
    sumi_free(plan->heap, plan->constants);
    memset(plan, 0, sizeof *plan);
}

void sumi_plan_section(sumi_plan* plan, sumi_section_kind kind, int32_t repeat, int32_t first_counter)
{
    if (sumi_grow(plan->heap, (void**)&plan->sections, &plan->section_capacity, plan->section_count + 1, sizeof *plan->sections, &plan->error) != SUMI_OK) {
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
    plan->adapters = uses;
    plan->adapter_count = count;
}

void sumi_plan_prefix(sumi_plan* plan, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(plan->label_prefix, sizeof plan->label_prefix, format, arguments);
    va_end(arguments);
}

// ---- Values ---------------------------------------------------------------------------------------------------------------------------

static sumi_value add_value(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols, bool bound)
{
    if (has_failed(plan)) {
        return SUMI_NO_VALUE;
    }
    if (rows < 1 || cols < 1) {
        mismatch(plan, name, "a value needs at least one row and one column");
        return SUMI_NO_VALUE;
    }
    if (sumi_grow(plan->heap, (void**)&plan->values, &plan->value_capacity, plan->value_count + 1, sizeof *plan->values, &plan->error) != SUMI_OK) {
        return SUMI_NO_VALUE;
    }
    sumi_value_info* info = &plan->values[plan->value_count++];
    *info = (sumi_value_info){.name = name, .element = element, .rows = rows, .cols = cols, .pitch = cols, .bound = bound, .first_use = -1, .last_use = -1};
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

sumi_value sumi_plan_constant(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols, const void* data)
{
    sumi_value value = add_value(plan, name, element, rows, cols, true);
    uint64_t bytes = (uint64_t)rows * (uint64_t)cols * sumi_plan_element_bytes(plan, element);
    if (element == SUMI_ELEMENT_ACTIVATION) {
        mismatch(plan, name, "a constant is float, int or byte: activations differ between backends");
    }
    const void* copy = has_failed(plan) ? NULL : sumi_plan_copy(plan, data, (size_t)bytes);
    if (copy == NULL ||
        sumi_grow(plan->heap, (void**)&plan->constants, &plan->constant_capacity, plan->constant_count + 1, sizeof *plan->constants, &plan->error) != SUMI_OK) {
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

static double value_bytes(const sumi_plan* plan, sumi_value value)
{
    const sumi_value_info* info = sumi_plan_info(plan, value);
    return (double)info->rows * info->cols * (double)sumi_plan_element_bytes(plan, info->element);
}

sumi_value sumi_plan_view(sumi_plan* plan, const char* name, sumi_value of, int32_t row, int32_t rows, int32_t column, int32_t cols)
{
    const sumi_value_info whole = *sumi_plan_info(plan, of);
    if (whole.bound || row < 0 || row + rows > whole.rows || column < 0 || column + cols > whole.cols) {
        mismatch(plan, name, "a view lies outside its value, or the value is bound");
        return SUMI_NO_VALUE;
    }
    sumi_value view = add_value(plan, name, whole.element, rows, cols, false);
    if (view.id != 0) {
        sumi_value_info* info = &plan->values[view.id - 1];
        info->pitch = whole.pitch;
        info->base = whole.base.id != 0 ? whole.base : of;
        info->whole = of;
        info->whole_row = row;
        info->base_element = whole.base_element + (uint64_t)row * (uint64_t)whole.pitch + (uint64_t)column;
    }
    return view;
}

void sumi_plan_share(sumi_plan* plan, sumi_value guest, sumi_value host)
{
    if (has_failed(plan)) {
        return;
    }
    const sumi_value_info *a = sumi_plan_info(plan, guest), *b = sumi_plan_info(plan, host);
    if (a->bound || a->base.id != 0 || b->bound || b->base.id != 0 || guest.id == host.id || value_bytes(plan, guest) > value_bytes(plan, host)) {
        mismatch(plan, a->name, "this value cannot lie inside the other");
        return;
    }
    plan->values[guest.id - 1].host = host;
}

// ---- Ops ------------------------------------------------------------------------------------------------------------------------------

// A new op of the newest section, NULL after an error. rows and part_rows are the work; inputs are filled by the caller.
static sumi_op* add_op(sumi_plan* plan, sumi_op_kind kind, const char* label, int32_t rows, int32_t part_rows)
{
    if (has_failed(plan)) {
        return NULL;
    }
    if (plan->section_count == 0) {
        mismatch(plan, label, "ops need a section");
        return NULL;
    }
    if (rows < 1) {
        mismatch(plan, label, "an op needs at least one row");
        return NULL;
    }
    if (sumi_grow(plan->heap, (void**)&plan->ops, &plan->op_capacity, plan->op_count + 1, sizeof *plan->ops, &plan->error) != SUMI_OK) {
        return NULL;
    }
    size_t prefix = strlen(plan->label_prefix), length = strlen(label);
    char* text = reserve_text(plan, prefix + length + 1);
    if (text == NULL) {
        return NULL;
    }
    memcpy(text, plan->label_prefix, prefix);
    memcpy(text + prefix, label, length + 1);
    sumi_op* op = &plan->ops[plan->op_count++];
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->label = text;
    op->section = (int32_t)plan->section_count - 1;
    op->rows = rows;
    op->part_rows = part_rows < 1 ? 1 : part_rows > rows ? rows : part_rows;
    op->part_count = (rows + op->part_rows - 1) / op->part_rows;
    plan->sections[plan->section_count - 1].op_end = (int32_t)plan->op_count;
    return op;
}

// Rows of a memory-bound op with `cols` columns per part.
static int32_t light_rows(int32_t cols)
{
    return cols >= PART_ELEMENTS ? 1 : PART_ELEMENTS / (cols < 1 ? 1 : cols);
}

// Rows of an op with `flops` per row per part: a multiple of `multiple`.
static int32_t heavy_rows(double flops, int32_t multiple, int32_t most)
{
    double rows = PART_FLOPS / (flops < 1 ? 1 : flops);
    int32_t count = rows > most ? most : (int32_t)rows;
    count = count / multiple * multiple;
    return count < multiple ? multiple : count;
}

int32_t sumi_plan_conv_effort(const sumi_weight* weight) { return weight->rows < 16 ? 16 : weight->rows; }

static bool is_step_row_good(const sumi_plan* plan, sumi_step_row row, int32_t cols)
{
    return row.table.id == 0 || (row.column >= 0 && row.column + cols <= cols_of(plan, row.table));
}

sumi_value sumi_plan_embed_rows(sumi_plan* plan, sumi_value ids, const sumi_weight* table, float scale)
{
    int32_t rows = rows_of(plan, ids);
    sumi_value y = sumi_plan_value(plan, "embedded", SUMI_ELEMENT_ACTIVATION, rows, table->cols);
    sumi_op* op = add_op(plan, SUMI_OP_EMBED_ROWS, "embed", rows, light_rows(table->cols));
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    op->in[0] = ids;
    op->out = y;
    op->weight = table;
    op->u.embed.scale = scale;
    op->bytes = 2 * value_bytes(plan, y);
    return y;
}

void sumi_plan_fill_rows(sumi_plan* plan, sumi_value y, const sumi_weight* row, const sumi_span* spans, int32_t span_count)
{
    if (span_count == 0) {
        return;
    }
    if (row->cols != cols_of(plan, y)) {
        mismatch(plan, "fill", "the row's width is not the value's");
    }
    double count = 0;
    for (int32_t i = 0; i < span_count; i++) {
        if (spans[i].begin < 0 || spans[i].count < 0 || spans[i].begin + spans[i].count > rows_of(plan, y)) {
            mismatch(plan, "fill", "a span leaves the value");
        }
        count += spans[i].count;
    }
    sumi_op* op = add_op(plan, SUMI_OP_FILL_ROWS, "fill", span_count, span_count);
    if (op == NULL) {
        return;
    }
    op->u.fill.spans = sumi_plan_copy(plan, spans, (size_t)span_count * sizeof *spans);
    op->u.fill.span_count = span_count;
    op->in[0] = op->out = y;
    op->weight = row;
    op->bytes = count * row->cols * plan->activation_bytes;
}

void sumi_plan_copy_rows(sumi_plan* plan, sumi_value x, int32_t from, sumi_value y, int32_t to, int32_t rows)
{
    if (cols_of(plan, x) != cols_of(plan, y) || from < 0 || to < 0 || from + rows > rows_of(plan, x) || to + rows > rows_of(plan, y)) {
        mismatch(plan, "copy", "the rows do not fit");
    }
    sumi_op* op = add_op(plan, SUMI_OP_COPY_ROWS, "copy", rows, light_rows(cols_of(plan, x)));
    if (op == NULL) {
        return;
    }
    op->in[0] = x;
    op->in[1] = op->out = y;
    op->u.copy.from = from;
    op->u.copy.to = to;
    op->bytes = 2.0 * rows * cols_of(plan, x) * plan->activation_bytes;
}

// One LINEAR op without adapters; the caller has checked the shapes.
static sumi_op* add_linear(sumi_plan* plan, const char* label, sumi_value x, int32_t x_row, int32_t rows, const sumi_weight* weight, const sumi_weight* bias,
                           sumi_value y, int32_t y_row, int32_t y_column)
{
    double flops = 2.0 * weight->rows * weight->cols;
    sumi_op* op = add_op(plan, SUMI_OP_LINEAR, label, rows, heavy_rows(flops, 8, 256));
    if (op == NULL) {
        return NULL;
    }
    op->in[0] = x;
    op->out = y;
    op->weight = weight;
    op->bias = bias;
    op->u.linear.scale = 1.0f;
    op->u.linear.x_row = x_row;
    op->u.linear.y_row = y_row;
    op->u.linear.y_column = y_column;
    op->flops = flops * rows;
    op->bytes = (double)sumi_weight_bytes(weight) + (double)rows * ((double)weight->cols + weight->rows) * plan->activation_bytes;
    return op;
}

static bool touches(const sumi_plan* plan, const sumi_weight* weight)
{
    for (int32_t u = 0; u < plan->adapter_count; u++) {
        const sumi_adapter* adapter = plan->adapters[u].adapter;
        for (int32_t d = 0; d < adapter->delta_count; d++) {
            if (adapter->deltas[d].weight_index == weight->index && plan->adapters[u].scale != 0.0f) {
                return true;
            }
        }
    }
    return false;
}

// y[:, row_begin ..] += scale * (x down^T) up^T for every delta on this weight, in the order of the uses: bits do not depend on anything else.
static void add_deltas(sumi_plan* plan, const char* label, sumi_value x, int32_t x_row, int32_t rows, const sumi_weight* weight, sumi_value y, int32_t y_row)
{
    for (int32_t u = 0; u < plan->adapter_count; u++) {
        const sumi_adapter_use* use = &plan->adapters[u];
        for (int32_t d = 0; d < use->adapter->delta_count; d++) {
            const sumi_delta* delta = &use->adapter->deltas[d];
            if (delta->weight_index != weight->index || use->scale == 0.0f) {
                continue;
            }
            if (delta->down.cols != weight->cols || delta->up.cols != delta->down.rows || delta->row_begin + delta->up.rows > weight->rows) {
                mismatch(plan, label, "an adapter's shape is not the weight's");
                return;
            }
            sumi_value low = sumi_plan_value(plan, "low_rank", SUMI_ELEMENT_ACTIVATION, rows, delta->down.rows);
            add_linear(plan, label, x, x_row, rows, &delta->down, NULL, low, 0, 0);
            sumi_op* op = add_linear(plan, label, low, 0, rows, &delta->up, NULL, y, y_row, delta->row_begin);
            if (op == NULL) {
                return;
            }
            op->in[2] = y; // read and written
            op->u.linear.accumulates = true;
            op->u.linear.scale = use->scale * delta->scale;
        }
    }
}

static bool is_linear_good(sumi_plan* plan, const char* label, sumi_value x, int32_t x_row, int32_t rows, const sumi_weight* weight, const sumi_weight* bias)
{
    if (has_failed(plan)) {
        return false;
    }
    if (cols_of(plan, x) != weight->cols || x_row < 0 || x_row + rows > rows_of(plan, x)) {
        sumi_fail(&plan->error, SUMI_INTERNAL, "the plan cannot be written: %s%s: input [%d, %d] rows %d..%d against weight %s [%d, %d]", plan->label_prefix, label,
                  rows_of(plan, x), cols_of(plan, x), x_row, x_row + rows, weight->name, weight->rows, weight->cols);
        return false;
    }
    if (bias != NULL && (bias->rows != 1 || bias->cols != weight->rows)) {
        mismatch(plan, label, "the bias has another width than the weight");
        return false;
    }
    return true;
}

void sumi_plan_linear_into(sumi_plan* plan, const char* label, sumi_value x, int32_t x_row, int32_t rows, const sumi_weight* weight, const sumi_weight* bias,
                           sumi_activation activation, sumi_value y, int32_t y_row)
{
    if (!is_linear_good(plan, label, x, x_row, rows, weight, bias)) {
        return;
    }
    if (cols_of(plan, y) != weight->rows || y_row < 0 || y_row + rows > rows_of(plan, y)) {
        mismatch(plan, label, "the output has another shape than the product");
        return;
    }
    bool whole = rows == rows_of(plan, y);
    bool adapted = touches(plan, weight);
    sumi_op* op = add_linear(plan, label, x, x_row, rows, weight, bias, y, y_row, 0);
    if (op == NULL) {
        return;
    }
    if (!whole) {
        op->in[2] = y; // the other rows stay
    }
    if (!adapted) {
        op->u.linear.activation = activation;
        return;
    }
    add_deltas(plan, label, x, x_row, rows, weight, y, y_row);
    if (activation != SUMI_ACT_NONE) {
        // in place over the whole value, so only whole outputs may have both an adapter and an activation
        if (!whole) {
            mismatch(plan, label, "an adapter under an activation needs the whole output");
            return;
        }
        sumi_op* act = add_op(plan, SUMI_OP_ACTIVATE, label, rows, light_rows(weight->rows));
        if (act != NULL) {
            act->in[0] = act->out = y;
            act->u.activate.activation = activation;
            act->bytes = 2 * value_bytes(plan, y);
        }
    }
}

sumi_value sumi_plan_linear(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* weight, const sumi_weight* bias, sumi_activation activation)
{
    int32_t rows = rows_of(plan, x);
    sumi_value y = sumi_plan_value(plan, "linear", SUMI_ELEMENT_ACTIVATION, rows, weight->rows);
    sumi_plan_linear_into(plan, label, x, 0, rows, weight, bias, activation, y, 0);
    return y;
}

void sumi_plan_linear_columns(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* weight, const sumi_weight* bias, sumi_value y, int32_t y_column)
{
    int32_t rows = rows_of(plan, x);
    if (!is_linear_good(plan, label, x, 0, rows, weight, bias)) {
        return;
    }
    if (rows_of(plan, y) != rows || y_column < 0 || y_column + weight->rows > cols_of(plan, y) || touches(plan, weight)) {
        mismatch(plan, label, "the output is narrower than the product, or an adapter changes it");
        return;
    }
    sumi_op* op = add_linear(plan, label, x, 0, rows, weight, bias, y, 0, y_column);
    if (op != NULL) {
        op->in[2] = y; // the other columns stay
    }
}

sumi_value sumi_plan_linear_residual(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* weight, const sumi_weight* bias, sumi_step_row gate,
                                     sumi_value residual)
{
    int32_t rows = rows_of(plan, x);
    if (!is_linear_good(plan, label, x, 0, rows, weight, bias)) {
        return SUMI_NO_VALUE;
    }
    if (cols_of(plan, residual) != weight->rows || rows_of(plan, residual) != rows || !is_step_row_good(plan, gate, weight->rows)) {
        mismatch(plan, label, "the residual or the gate has another shape than the product");
        return SUMI_NO_VALUE;
    }
    if (touches(plan, weight) && gate.table.id != 0) {
        mismatch(plan, label, "an adapter under a gated residual is not supported by this verb");
        return SUMI_NO_VALUE;
    }
    sumi_op* op = add_linear(plan, label, x, 0, rows, weight, bias, residual, 0, 0);
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    op->in[1] = residual;
    op->in[2] = gate.table;
    op->u.linear.gate = gate;
    add_deltas(plan, label, x, 0, rows, weight, residual, 0);
    return residual;
}

sumi_value sumi_plan_activate(sumi_plan* plan, sumi_value x, sumi_activation activation)
{
    sumi_value y = sumi_plan_value(plan, "activated", sumi_plan_info(plan, x)->element, rows_of(plan, x), cols_of(plan, x));
    sumi_op* op = add_op(plan, SUMI_OP_ACTIVATE, "activate", rows_of(plan, x), light_rows(cols_of(plan, x)));
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    op->in[0] = x;
    op->out = y;
    op->u.activate.activation = activation;
    op->bytes = 2 * value_bytes(plan, y);
    return y;
}

sumi_value sumi_plan_linear_gated(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* gate_up, sumi_activation activation)
{
    sumi_value both = sumi_plan_linear(plan, label, x, gate_up, NULL, SUMI_ACT_NONE);
    if (gate_up->rows % 2 != 0) {
        mismatch(plan, label, "a gated weight has an even number of rows");
        return SUMI_NO_VALUE;
    }
    int32_t rows = rows_of(plan, x), cols = gate_up->rows / 2;
    sumi_value y = sumi_plan_value(plan, "gated", SUMI_ELEMENT_ACTIVATION, rows, cols);
    sumi_op* op = add_op(plan, SUMI_OP_GATED, label, rows, light_rows(cols));
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    op->in[0] = both;
    op->out = y;
    op->u.gated.activation = activation;
    op->bytes = 3 * value_bytes(plan, y);
    return y;
}

sumi_value sumi_plan_norm_modulate(sumi_plan* plan, const char* label, sumi_value x, int32_t x_row, int32_t rows, sumi_norm norm, const sumi_weight* weight, float eps,
                                   sumi_step_row scale, sumi_step_row shift)
{
    int32_t cols = cols_of(plan, x);
    if (x_row < 0 || x_row + rows > rows_of(plan, x) || (weight != NULL && weight->cols != cols) || !is_step_row_good(plan, scale, cols) || !is_step_row_good(plan, shift, cols)) {
        mismatch(plan, label, "the norm's weight, scale, shift or rows do not fit");
    }
    sumi_value y = sumi_plan_value(plan, "normed", SUMI_ELEMENT_ACTIVATION, rows, cols);
    sumi_op* op = add_op(plan, SUMI_OP_NORM_MODULATE, label, rows, light_rows(cols));
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    op->in[0] = x;
    op->in[1] = scale.table;
    op->in[2] = shift.table;
    op->out = y;
    op->weight = weight;
    op->u.norm.norm = norm;
    op->u.norm.eps = eps;
    op->u.norm.scale = scale;
    op->u.norm.shift = shift;
    op->u.norm.x_row = x_row;
    op->bytes = 2 * value_bytes(plan, y);
    return y;
}

void sumi_plan_norm_gate_add(sumi_plan* plan, const char* label, sumi_value x, int32_t x_row, sumi_value branch, int32_t rows, const sumi_weight* weight, float eps,
                             sumi_step_row gate)
{
    int32_t cols = cols_of(plan, x);
    if (cols_of(plan, branch) != cols || x_row < 0 || x_row + rows > rows_of(plan, x) || rows > rows_of(plan, branch) || (weight != NULL && weight->cols != cols) ||
        !is_step_row_good(plan, gate, cols)) {
        mismatch(plan, label, "the branch, the weight or the gate does not fit");
    }
    sumi_op* op = add_op(plan, SUMI_OP_NORM_GATE_ADD, label, rows, light_rows(cols));
    if (op == NULL) {
        return;
    }
    op->in[0] = op->out = x;
    op->in[1] = branch;
    op->in[2] = gate.table;
    op->weight = weight;
    op->u.gate_add.eps = eps;
    op->u.gate_add.gate = gate;
    op->u.gate_add.x_row = x_row;
    op->bytes = 3.0 * rows * cols * plan->activation_bytes;
}

void sumi_plan_qk_norm_rope(sumi_plan* plan, const char* label, sumi_value qkv, int32_t row, int32_t rows, int32_t q_heads, int32_t kv_heads, int32_t dim,
                            const sumi_weight* q_norm, const sumi_weight* k_norm, float eps, sumi_value rope, int32_t rope_row, sumi_rotary rotary)
{
    if (cols_of(plan, qkv) != (q_heads + 2 * kv_heads) * dim || row < 0 || row + rows > rows_of(plan, qkv) ||
        (rotary != SUMI_ROTARY_NONE && (dim % 2 != 0 || cols_of(plan, rope) != dim || rope_row < 0 || rope_row + rows > rows_of(plan, rope))) ||
        (q_norm != NULL && q_norm->cols != dim) || (k_norm != NULL && k_norm->cols != dim)) {
        mismatch(plan, label, "heads, norms or the rotary table do not fit the qkv matrix");
    }
    int32_t cols = (q_heads + kv_heads) * dim;
    sumi_op* op = add_op(plan, SUMI_OP_QK_NORM_ROPE, label, rows, light_rows(cols));
    if (op == NULL) {
        return;
    }
    op->in[0] = op->out = qkv;
    op->in[1] = rope;
    op->weight = q_norm;
    op->u.qk.q_heads = q_heads;
    op->u.qk.kv_heads = kv_heads;
    op->u.qk.dim = dim;
    op->u.qk.eps = eps;
    op->u.qk.rotary = rotary;
    op->u.qk.k_weight = k_norm;
    op->u.qk.row = row;
    op->u.qk.rope_row = rope_row;
    op->bytes = 2.0 * rows * cols * plan->activation_bytes;
}

sumi_value sumi_plan_attention(sumi_plan* plan, const char* label, sumi_value qkv, const sumi_attention* attention)
{
    int32_t q_heads = attention->q_heads, kv_heads = attention->kv_heads, dim = attention->dim;
    if (kv_heads < 1 || q_heads % kv_heads != 0 || cols_of(plan, qkv) != (q_heads + 2 * kv_heads) * dim || attention->sequence_count < 1) {
        mismatch(plan, label, "heads do not fit the qkv matrix");
    }
    int64_t parts = 0;
    double flops = 0, rows = 0;
    for (int32_t s = 0; s < attention->sequence_count && !has_failed(plan); s++) {
        const sumi_sequence* sequence = &attention->sequences[s];
        int64_t queries = 0, keys = 0;
        if (sequence->span_count < 1 || sequence->span_count > 2 || sequence->query_spans < 1 || sequence->query_spans > sequence->span_count) {
            mismatch(plan, label, "a sequence has one or two spans");
            break;
        }
        for (int32_t i = 0; i < sequence->span_count; i++) {
            if (sequence->span[i].begin < 0 || sequence->span[i].count < 1 || sequence->span[i].begin + sequence->span[i].count > rows_of(plan, qkv)) {
                mismatch(plan, label, "a sequence leaves the matrix");
            }
            keys += sequence->span[i].count;
            queries += i < sequence->query_spans ? sequence->span[i].count : 0;
        }
        parts += (int64_t)q_heads * ((queries + QUERY_BLOCK - 1) / QUERY_BLOCK);
        flops += 4.0 * (double)queries * (double)keys * q_heads * dim * (attention->causal ? 0.5 : 1.0);
        rows += (double)queries;
    }
    if (parts < 1 || parts > INT32_MAX) {
        mismatch(plan, label, "too many queries");
    }
    sumi_value y = sumi_plan_value(plan, "attention", SUMI_ELEMENT_ACTIVATION, rows_of(plan, qkv), q_heads * dim);
    sumi_op* op = add_op(plan, SUMI_OP_ATTENTION, label, (int32_t)parts, 1);
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    op->in[0] = qkv;
    op->out = y;
    op->u.attention.q_heads = q_heads;
    op->u.attention.kv_heads = kv_heads;
    op->u.attention.dim = dim;
    op->u.attention.scale = attention->scale;
    op->u.attention.causal = attention->causal;
    op->u.attention.window = attention->window;
    op->u.attention.sequences = sumi_plan_copy(plan, attention->sequences, (size_t)attention->sequence_count * sizeof *attention->sequences);
    op->u.attention.sequence_count = attention->sequence_count;
    op->u.attention.query_block = QUERY_BLOCK;
    op->u.attention.k_column = q_heads * dim;
    op->u.attention.v_column = (q_heads + kv_heads) * dim;
    op->flops = flops;
    op->bytes = rows * (2.0 * q_heads + 2.0 * kv_heads) * dim * plan->activation_bytes;
    return y;
}

sumi_value sumi_plan_rope_table(sumi_plan* plan, sumi_value positions, int32_t axes, const int32_t* pairs, double theta)
{
    int32_t total = 0;
    for (int32_t a = 0; a < axes && a < 4; a++) {
        total += pairs[a];
    }
    if (axes < 1 || axes > 4 || cols_of(plan, positions) != axes || total < 1) {
        mismatch(plan, "rope", "positions need one column per axis");
    }
    int32_t rows = rows_of(plan, positions);
    sumi_value y = sumi_plan_value(plan, "rope", SUMI_ELEMENT_FLOAT, rows, 2 * total);
    sumi_op* op = add_op(plan, SUMI_OP_ROPE_TABLE, "rope", rows, light_rows(total * 32));
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    op->in[0] = positions;
    op->out = y;
    op->u.rope.axes = axes;
    for (int32_t a = 0; a < axes; a++) {
        op->u.rope.pairs[a] = pairs[a];
    }
    op->u.rope.theta = theta;
    op->flops = 100.0 * rows * total; // sine, cosine and power in double
    op->bytes = value_bytes(plan, y);
    return y;
}

sumi_value sumi_plan_time_embed(sumi_plan* plan, sumi_value times, int32_t width, float scale, float max_period, bool cos_first)
{
    int32_t rows = rows_of(plan, times);
    sumi_value y = sumi_plan_value(plan, "time_embed", SUMI_ELEMENT_FLOAT, rows, width); // a few rows: no reason to round them
    sumi_op* op = add_op(plan, SUMI_OP_TIME_EMBED, "time_embed", rows, light_rows(width * 32));
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    op->in[0] = times;
    op->out = y;
    op->u.time.max_period = max_period;
    op->u.time.scale = scale;
    op->u.time.cos_first = cos_first;
    op->flops = 50.0 * rows * width;
    op->bytes = value_bytes(plan, y);
    return y;
}

void sumi_plan_finish_modulation(sumi_plan* plan, sumi_value table, bool has_gates)
{
    int32_t cols = cols_of(plan, table);
    if (has_gates && cols % 4 != 0) {
        mismatch(plan, "modulation", "four quarters are needed");
    }
    sumi_op* op = add_op(plan, SUMI_OP_FINISH_MODULATION, "modulation", rows_of(plan, table), light_rows(cols));
    if (op == NULL) {
        return;
    }
    op->in[0] = op->out = table;
    op->u.finish.has_gates = has_gates;
    op->bytes = 2 * value_bytes(plan, table);
}

// Copies the layout's arrays into the plan and writes them to the op.
static void set_patch(sumi_plan* plan, sumi_op* op, const sumi_patch_layout* layout, float sign)
{
    size_t bytes = (size_t)layout->sequence_count * sizeof(int32_t);
    op->u.patch.height = layout->height;
    op->u.patch.width = layout->width;
    op->u.patch.channels = layout->channels;
    op->u.patch.items = sumi_plan_copy(plan, layout->items, bytes);
    op->u.patch.row_begin = sumi_plan_copy(plan, layout->row_begin, bytes);
    op->u.patch.sequence_count = layout->sequence_count;
    op->u.patch.sign = sign;
    op->bytes = 2.0 * layout->sequence_count * layout->height * layout->width * layout->channels * 4;
}

void sumi_plan_patchify(sumi_plan* plan, sumi_value latents, const sumi_patch_layout* layout, sumi_value rows)
{
    if (cols_of(plan, latents) != layout->height * layout->width || cols_of(plan, rows) != 4 * layout->channels || layout->height % 2 != 0 || layout->width % 2 != 0) {
        mismatch(plan, "patchify", "latents and rows do not fit the layout");
    }
    sumi_op* op = add_op(plan, SUMI_OP_PATCHIFY, "patchify", layout->sequence_count, 1);
    if (op == NULL) {
        return;
    }
    op->in[0] = latents;
    op->in[1] = op->out = rows;
    set_patch(plan, op, layout, 1.0f);
}

sumi_value sumi_plan_unpatchify(sumi_plan* plan, sumi_value rows, const sumi_patch_layout* layout, float sign)
{
    if (cols_of(plan, rows) != 4 * layout->channels || layout->height % 2 != 0 || layout->width % 2 != 0) {
        mismatch(plan, "unpatchify", "rows do not fit the layout");
    }
    sumi_value y = sumi_plan_value(plan, "prediction", SUMI_ELEMENT_FLOAT, layout->sequence_count * layout->channels, layout->height * layout->width);
    sumi_op* op = add_op(plan, SUMI_OP_UNPATCHIFY, "unpatchify", layout->sequence_count, 1);
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    op->in[0] = rows;
    op->out = y;
    set_patch(plan, op, layout, sign);
    return y;
}

void sumi_plan_add_noise(sumi_plan* plan, sumi_value noise, sumi_value clean, sumi_step_row sigma, sumi_value x)
{
    if (rows_of(plan, noise) != rows_of(plan, x) || cols_of(plan, noise) != cols_of(plan, x) || rows_of(plan, clean) != rows_of(plan, x) ||
        cols_of(plan, clean) != cols_of(plan, x) || !is_step_row_good(plan, sigma, 1)) {
        mismatch(plan, "add_noise", "noise, clean and x are one shape");
    }
    sumi_op* op = add_op(plan, SUMI_OP_ADD_NOISE, "add_noise", rows_of(plan, x), light_rows(cols_of(plan, x)));
    if (op == NULL) {
        return;
    }
    op->in[0] = noise;
    op->in[1] = clean;
    op->in[2] = sigma.table;
    op->out = x;
    op->u.add_noise.sigma = sigma;
    op->bytes = 3 * value_bytes(plan, x);
}

sumi_value sumi_plan_guide(sumi_plan* plan, sumi_value predictions, int32_t item_count, int32_t channels, const int32_t* positive, const int32_t* negative, sumi_step_row scale,
                           float norm_limit)
{
    if (!is_step_row_good(plan, scale, 1) || item_count < 1) {
        mismatch(plan, "guide", "the scale's column is not in its table");
    }
    for (int32_t i = 0; i < item_count; i++) {
        if (positive[i] < 0 || (positive[i] + 1) * channels > rows_of(plan, predictions) || (negative[i] + 1) * channels > rows_of(plan, predictions)) {
            mismatch(plan, "guide", "a sequence is not among the predictions");
        }
    }
    sumi_value v = sumi_plan_value(plan, "velocity", SUMI_ELEMENT_FLOAT, item_count * channels, cols_of(plan, predictions));
    sumi_op* op = add_op(plan, SUMI_OP_GUIDE, "guide", item_count, 1);
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    op->in[0] = predictions;
    op->in[1] = scale.table;
    op->out = v;
    op->u.guide.item_count = item_count;
    op->u.guide.positive = sumi_plan_copy(plan, positive, (size_t)item_count * sizeof *positive);
    op->u.guide.negative = sumi_plan_copy(plan, negative, (size_t)item_count * sizeof *negative);
    op->u.guide.scale = scale;
    op->u.guide.norm_limit = norm_limit;
    op->u.guide.channels = channels;
    op->bytes = 3 * value_bytes(plan, v);
    return v;
}

void sumi_plan_solve(sumi_plan* plan, const sumi_solve* solve)
{
    int32_t rows = rows_of(plan, solve->x), cols = cols_of(plan, solve->x);
    sumi_value same[] = {solve->y, solve->h, solve->v, solve->noise, solve->clean};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (same[i].id != 0 && (rows_of(plan, same[i]) != rows || cols_of(plan, same[i]) != cols)) {
            mismatch(plan, "solve", "all states are one shape");
        }
    }
    if (!is_step_row_good(plan, solve->row, 12) || (solve->mask.id != 0 && (solve->noise.id == 0 || solve->clean.id == 0 || cols_of(plan, solve->mask) != cols))) {
        mismatch(plan, "solve", "the solver table has 12 columns, a mask needs noise and clean latents");
    }
    sumi_op* op = add_op(plan, SUMI_OP_SOLVE, "solve", rows, light_rows(cols));
    if (op == NULL) {
        return;
    }
    op->in[0] = op->out = solve->x;
    op->in[1] = solve->y;
    op->in[2] = solve->h;
    op->in[3] = solve->v;
    op->in[4] = solve->noise;
    op->in[5] = solve->clean;
    op->mask = solve->mask;
    op->u.solve.row = solve->row;
    op->u.solve.channels = solve->channels;
    op->bytes = 6 * value_bytes(plan, solve->x);
}

void sumi_plan_preview(sumi_plan* plan, sumi_value x, sumi_value v, sumi_step_row sigma, int32_t channels, const float* factors, const float* bias, sumi_value rgb)
{
    int32_t items = channels > 0 ? rows_of(plan, x) / channels : 0;
    if (items < 1 || rows_of(plan, rgb) != items * 3 || cols_of(plan, rgb) != cols_of(plan, x) || rows_of(plan, v) != rows_of(plan, x)) {
        mismatch(plan, "preview", "three planes per item are needed");
    }
    sumi_op* op = add_op(plan, SUMI_OP_PREVIEW, "preview", items, 1);
    if (op == NULL) {
        return;
    }
    op->in[0] = x;
    op->in[1] = v;
    op->in[2] = sigma.table;
    op->in[3] = op->out = rgb;
    op->u.preview.sigma = sigma;
    op->u.preview.channels = channels;
    op->u.preview.factors = sumi_plan_copy(plan, factors, (size_t)channels * 3 * sizeof *factors);
    op->u.preview.bias = sumi_plan_copy(plan, bias, 3 * sizeof *bias);
    op->bytes = 2 * value_bytes(plan, x);
}

sumi_value sumi_plan_pixels_in(sumi_plan* plan, sumi_value bytes, int32_t picture_width, int32_t y, int32_t x, int32_t height, int32_t width)
{
    if (cols_of(plan, bytes) != 3 || x < 0 || y < 0 || x + width > picture_width || (int64_t)(y + height) * picture_width > rows_of(plan, bytes)) {
        mismatch(plan, "pixels_in", "the tile leaves the picture");
    }
    sumi_value out = sumi_plan_value(plan, "pixels", SUMI_ELEMENT_ACTIVATION, height * width, 3);
    sumi_op* op = add_op(plan, SUMI_OP_PIXELS_IN, "pixels_in", height * width, light_rows(3));
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    op->in[0] = bytes;
    op->out = out;
    op->u.pixels.width = width;
    op->u.pixels.y = y;
    op->u.pixels.x = x;
    op->u.pixels.picture_width = picture_width;
    op->bytes = value_bytes(plan, out);
    return out;
}

void sumi_plan_posterior(sumi_plan* plan, sumi_value moments, sumi_value eps, int32_t channels, float scale, float shift, sumi_value latents)
{
    int32_t pixels = rows_of(plan, moments);
    if (cols_of(plan, moments) != 2 * channels || rows_of(plan, latents) != channels || cols_of(plan, latents) != pixels ||
        (eps.id != 0 && (rows_of(plan, eps) != channels || cols_of(plan, eps) != pixels))) {
        mismatch(plan, "posterior", "moments, noise and latents do not fit");
    }
    sumi_op* op = add_op(plan, SUMI_OP_POSTERIOR, "posterior", 1, 1);
    if (op == NULL) {
        return;
    }
    op->in[0] = moments;
    op->in[1] = eps;
    op->out = latents;
    op->u.posterior.channels = channels;
    op->u.posterior.scale = scale;
    op->u.posterior.shift = shift;
    op->bytes = value_bytes(plan, moments) + 2 * value_bytes(plan, latents);
}

sumi_value sumi_plan_latent_in(sumi_plan* plan, sumi_value latents, int32_t channels, int32_t height, int32_t width, sumi_tile tile, float scale, float shift, bool per_item)
{
    if (cols_of(plan, latents) != height * width || tile.y < 0 || tile.x < 0 || tile.y + tile.height > height || tile.x + tile.width > width) {
        mismatch(plan, "latent_in", "the tile leaves the latents");
    }
    int32_t pixels = tile.height * tile.width;
    sumi_value y = sumi_plan_value(plan, "latent_picture", SUMI_ELEMENT_ACTIVATION, pixels, channels);
    sumi_op* op = add_op(plan, SUMI_OP_LATENT_IN, "latent_in", pixels, light_rows(channels));
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    op->in[0] = latents;
    op->out = y;
    op->u.latent_in.channels = channels;
    op->u.latent_in.height = height;
    op->u.latent_in.width = width;
    op->u.latent_in.y = tile.y;
    op->u.latent_in.x = tile.x;
    op->u.latent_in.tile_height = tile.height;
    op->u.latent_in.tile_width = tile.width;
    op->u.latent_in.scale = scale;
    op->u.latent_in.shift = shift;
    op->u.latent_in.per_item = per_item;
    op->bytes = 2 * value_bytes(plan, y);
    return y;
}

static int32_t pitch_of(const sumi_plan* plan, sumi_value value) { return sumi_plan_info(plan, value)->pitch; }

static void conv_size(const sumi_conv* conv, int32_t* height, int32_t* width)
{
    int32_t scale = conv->upsamples ? 2 : 1;
    *height = (conv->height - conv->above - conv->below) * scale / conv->stride;
    *width = conv->width * scale / conv->stride;
}

void sumi_plan_conv_into(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* weight, const sumi_weight* bias, const sumi_conv* conv, sumi_value residual,
                         sumi_value y)
{
    int32_t channels = cols_of(plan, x), taps = conv->kernel * conv->kernel, height, width;
    conv_size(conv, &height, &width);
    bool is_known = (conv->kernel == 1 || conv->kernel == 3) && (conv->stride == 1 || (conv->stride == 2 && conv->kernel == 3 && conv->pads_end && conv->height >= 2 && conv->width >= 2));
    bool is_strip_good = (conv->above | conv->below) == 0 ||
                         ((conv->above | conv->below) == 1 && conv->above >= 0 && conv->below >= 0 && conv->kernel == 3 && conv->stride == 1 && !conv->pads_end);
    if (!is_known || !is_strip_good || rows_of(plan, x) != conv->height * conv->width || weight->cols != channels * taps || (bias != NULL && bias->cols != weight->rows) ||
        rows_of(plan, y) != height * width || cols_of(plan, y) != weight->rows ||
        (residual.id != 0 && (rows_of(plan, residual) != height * width || cols_of(plan, residual) != weight->rows || pitch_of(plan, residual) != pitch_of(plan, y)))) {
        mismatch(plan, label, "picture, kernel, bias, residual or output do not fit");
    }
    double flops = 2.0 * weight->rows * weight->cols;
    sumi_op* op = add_op(plan, SUMI_OP_CONV, label, height * width, heavy_rows(2.0 * sumi_plan_conv_effort(weight) * weight->cols, width < 1 ? 1 : width, 1 << 20));
    if (op == NULL) {
        return;
    }
    op->in[0] = x;
    op->in[1] = residual;
    op->out = y;
    op->weight = weight;
    op->bias = bias;
    op->u.conv.height = conv->height;
    op->u.conv.width = conv->width;
    op->u.conv.kernel = conv->kernel;
    op->u.conv.stride = conv->stride;
    op->u.conv.upsamples = conv->upsamples;
    op->u.conv.pads_end = conv->pads_end;
    op->u.conv.above = conv->above;
    op->u.conv.below = conv->below;
    op->flops = flops * height * width;
    op->bytes = value_bytes(plan, x) + value_bytes(plan, y) + (double)sumi_weight_bytes(weight);
}

sumi_value sumi_plan_conv(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* weight, const sumi_weight* bias, const sumi_conv* conv, sumi_value residual)
{
    int32_t height, width;
    conv_size(conv, &height, &width);
    sumi_value y = sumi_plan_value(plan, "conv", SUMI_ELEMENT_ACTIVATION, height * width, weight->rows);
    sumi_plan_conv_into(plan, label, x, weight, bias, conv, residual, y);
    return y;
}

// Rows of a block of GROUP_SUMS; at most 64 blocks: each part of the second op combines them all.
static int32_t group_block_rows(int32_t rows, int32_t cols)
{
    int32_t block_rows = light_rows(cols);
    return (rows + block_rows - 1) / block_rows > 64 ? (rows + 63) / 64 : block_rows;
}

sumi_value sumi_plan_group_sums(sumi_plan* plan, const char* label, sumi_value x, int32_t groups)
{
    int32_t rows = rows_of(plan, x), cols = cols_of(plan, x);
    if (groups < 1 || cols % groups != 0) {
        mismatch(plan, label, "the channels are not a multiple of the groups");
        return SUMI_NO_VALUE;
    }
    sumi_op* op = add_op(plan, SUMI_OP_GROUP_SUMS, label, rows, group_block_rows(rows, cols));
    if (op == NULL) {
        return SUMI_NO_VALUE;
    }
    int32_t blocks = op->part_count;
    op->u.group.groups = groups;
    op->u.group.block_count = blocks;
    op->u.group.block_rows = op->part_rows;
    op->u.group.all_rows = rows;
    op->in[0] = x;
    op->bytes = value_bytes(plan, x);
    op->flops = 3.0 * rows * cols;
    size_t index = plan->op_count - 1;
    sumi_value sums = sumi_plan_value(plan, "group_sums", SUMI_ELEMENT_FLOAT, blocks, groups * 2);
    plan->ops[index].out = sums;
    return sums;
}

// The op that made the sums says how the rows were cut.
static const sumi_op* find_group_sums(const sumi_plan* plan, sumi_value sums)
{
    for (size_t i = plan->op_count; i-- > 0;) {
        if (plan->ops[i].kind == SUMI_OP_GROUP_SUMS && plan->ops[i].out.id == sums.id) {
            return &plan->ops[i];
        }
    }
    return NULL;
}

void sumi_plan_group_norm_into(sumi_plan* plan, const char* label, sumi_value x, sumi_value sums, const sumi_weight* weight, const sumi_weight* bias, int32_t groups, float eps,
                               bool silu, sumi_value y)
{
    if (has_failed(plan)) {
        return;
    }
    int32_t rows = rows_of(plan, x), cols = cols_of(plan, x);
    const sumi_op* made = find_group_sums(plan, sums);
    if (made == NULL || made->u.group.groups != groups || cols_of(plan, made->in[0]) != cols || weight->cols != cols || bias->cols != cols || rows_of(plan, y) != rows ||
        cols_of(plan, y) != cols) {
        mismatch(plan, label, "the sums are of another picture, or the weight or the output has another width");
        return;
    }
    int32_t block_rows = made->u.group.block_rows, block_count = made->u.group.block_count, all_rows = made->u.group.all_rows;
    sumi_op* op = add_op(plan, SUMI_OP_GROUP_NORM, label, rows, group_block_rows(all_rows, cols));
    if (op == NULL) {
        return;
    }
    op->in[0] = x;
    op->in[1] = sums;
    op->out = y;
    op->weight = weight;
    op->bias = bias;
    op->u.group.groups = groups;
    op->u.group.eps = eps;
    op->u.group.silu = silu;
    op->u.group.block_count = block_count;
    op->u.group.block_rows = block_rows;
    op->u.group.all_rows = all_rows;
    op->bytes = 2 * value_bytes(plan, y);
    op->flops = (silu ? 20.0 : 2.0) * rows * cols;
}

sumi_value sumi_plan_group_norm(sumi_plan* plan, const char* label, sumi_value x, const sumi_weight* weight, const sumi_weight* bias, int32_t groups, float eps, bool silu)
{
    sumi_value sums = sumi_plan_group_sums(plan, label, x, groups);
    sumi_value y = sumi_plan_value(plan, "group_normed", SUMI_ELEMENT_ACTIVATION, rows_of(plan, x), cols_of(plan, x));
    sumi_plan_group_norm_into(plan, label, x, sums, weight, bias, groups, eps, silu, y);
    return y;
}

void sumi_plan_tile_blend(sumi_plan* plan, sumi_value tile, int32_t height, int32_t width, sumi_value above, int32_t above_height, sumi_value left, int32_t left_width,
                          int32_t extent)
{
    int32_t cols = cols_of(plan, tile);
    if (rows_of(plan, tile) != height * width || (above.id != 0 && (rows_of(plan, above) != above_height * width || cols_of(plan, above) != cols)) ||
        (left.id != 0 && (rows_of(plan, left) != height * left_width || cols_of(plan, left) != cols))) {
        mismatch(plan, "tile_blend", "the neighbours have other sizes");
    }
    sumi_op* op = add_op(plan, SUMI_OP_TILE_BLEND, "tile_blend", 1, 1);
    if (op == NULL) {
        return;
    }
    op->in[0] = op->out = tile;
    op->in[1] = above;
    op->in[2] = left;
    op->u.blend.height = height;
    op->u.blend.width = width;
    op->u.blend.above_height = above_height;
    op->u.blend.left_width = left_width;
    op->u.blend.extent = extent;
    op->bytes = value_bytes(plan, tile);
}

void sumi_plan_tile_place(sumi_plan* plan, sumi_value tile, int32_t tile_width, sumi_value picture, int32_t picture_height, int32_t picture_width, sumi_tile kept, bool per_item)
{
    if (kept.width > tile_width || kept.y < 0 || kept.x < 0 || kept.height * tile_width > rows_of(plan, tile) || kept.y + kept.height > picture_height ||
        kept.x + kept.width > picture_width || cols_of(plan, tile) != cols_of(plan, picture) || rows_of(plan, picture) % (picture_height * picture_width) != 0) {
        mismatch(plan, "tile_place", "the tile does not fit the picture");
    }
    sumi_op* op = add_op(plan, SUMI_OP_TILE_PLACE, "tile_place", kept.height * kept.width, light_rows(cols_of(plan, tile)));
    if (op == NULL) {
        return;
    }
    op->in[0] = tile;
    op->in[1] = op->out = picture;
    op->u.place.tile_width = tile_width;
    op->u.place.picture_width = picture_width;
    op->u.place.y = kept.y;
    op->u.place.x = kept.x;
    op->u.place.height = kept.height;
    op->u.place.width = kept.width;
    op->u.place.per_item = per_item;
    op->u.place.item_rows = picture_height * picture_width;
    op->bytes = 2.0 * kept.height * kept.width * cols_of(plan, tile) * 4;
}

void sumi_plan_pixels_out(sumi_plan* plan, sumi_value picture, sumi_value bytes, sumi_value not_finite)
{
    int32_t rows = rows_of(plan, picture);
    if (cols_of(plan, picture) != 3 || rows_of(plan, bytes) != rows || cols_of(plan, bytes) != 3 || sumi_plan_info(plan, not_finite)->element != SUMI_ELEMENT_INT) {
        mismatch(plan, "pixels_out", "picture and bytes are one shape of three columns");
    }
    // one part: the count of values that are not finite is summed in one place
    sumi_op* op = add_op(plan, SUMI_OP_PIXELS_OUT, "pixels_out", rows, rows);
    if (op == NULL) {
        return;
    }
    op->in[0] = picture;
    op->in[1] = not_finite;
    op->out = bytes;
    op->bytes = value_bytes(plan, picture) + value_bytes(plan, bytes);
}
