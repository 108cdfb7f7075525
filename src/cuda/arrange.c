// See arrange.h. When this code runs, the values have no offsets yet; they are computed later, from the marks.
#include "cuda/arrange.h"
#include "base/assert.h"
#include "cuda/device.h"
#include "cuda/stored.h"
#include "kernels/rows.h"

static int32_t base_id(const sumi_plan* plan, sumi_value value)
{
    const sumi_value_info* info = sumi_plan_info(plan, value);
    return info->base.id != 0 ? info->base.id : value.id;
}

// Returns the next op, if it is in the same section and reads what this op writes; otherwise NULL.
static const sumi_op* next_reader(const sumi_plan* plan, int32_t op_index)
{
    SUMI_ASSERT(op_index >= 0 && (size_t)op_index < plan->op_count);
    const sumi_op* op = &plan->ops[op_index];
    if ((size_t)op_index + 1 >= plan->op_count || op[1].section != op->section || op[1].in[0].id != op->out.id)
        return NULL;
    return op + 1;
}

// Whether the value that the second op of a pair writes shares no memory with the inputs of the first op, which are
// read at the same time. Values that live at the same time are apart in the plan, except those that share memory on
// purpose.
static bool has_rows_apart(const sumi_plan* plan, const sumi_op* op, sumi_value written)
{
    const int32_t base = base_id(plan, written), container = sumi_plan_info(plan, (sumi_value){base})->container.id;
    for (int32_t i = 0; i < SUMI_OP_MAX_INPUTS; i++) {
        if (op->in[i].id == 0) continue;
        const int32_t input_base = base_id(plan, op->in[i]);
        if (input_base == base || input_base == container
            || sumi_plan_info(plan, (sumi_value){input_base})->container.id == base)
            return false;
    }
    return true;
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

static bool adds_change(const sumi_op* op)
{
    return op->kind == SUMI_OP_KRONECKER_ADD || (op->kind == SUMI_OP_LINEAR && op->u.linear.is_adapter_product);
}

bool sumi_cuda_is_adapter_op(const sumi_plan* plan, size_t i)
{
    const sumi_op *op = &plan->ops[i], *next = i + 1 < plan->op_count ? op + 1 : NULL;
    return adds_change(op)
        || (op->kind == SUMI_OP_LINEAR && next != NULL && adds_change(next) && next->in[0].id == op->out.id);
}

// ---- Products in 8 bits ---------------------------------------------------------------------------------------------

sumi_weight_format sumi_cuda_requested_format(const sumi_plan* plan, const sumi_op* op)
{
    SUMI_ASSERT(op->section >= 0 && (size_t)op->section < plan->section_count);
    const sumi_section_kind kind = plan->sections[op->section].kind;
    if (kind == SUMI_SECTION_DENOISE) return plan->weight_options.weights;
    if (kind == SUMI_SECTION_TEXT || kind == SUMI_SECTION_VISION) return plan->weight_options.text_weights;
    // What runs once in a job, and the VAE, loses no precision.
    return plan->weight_options.weights == SUMI_WEIGHTS_AS_STORED ? SUMI_WEIGHTS_AS_STORED : SUMI_WEIGHTS_BF16;
}

sumi_cuda_form sumi_cuda_stored_form(const sumi_plan* plan, const sumi_op* op)
{
    SUMI_ASSERT((op->marks & SUMI_CUDA_OP_STORED) != 0);
    return sumi_cuda_requested_format(plan, op) == SUMI_WEIGHTS_INT4 ? SUMI_CUDA_FORM_INT4 : SUMI_CUDA_FORM_STORED;
}

sumi_cuda_operands sumi_cuda_8bit_operands(const sumi_plan* plan, const sumi_op* op)
{
    const sumi_weight_format requested = sumi_cuda_requested_format(plan, op);
    return requested == SUMI_WEIGHTS_FP8  ? SUMI_CUDA_E4M3
         : requested == SUMI_WEIGHTS_INT8 ? SUMI_CUDA_INT8
                                          : SUMI_CUDA_BF16;
}

const sumi_op* sumi_cuda_writer(const sumi_plan* plan, sumi_value value)
{
    const int32_t first_use = sumi_plan_info(plan, value)->first_use;
    SUMI_ASSERT(first_use >= 0 && (size_t)first_use < plan->op_count);
    return &plan->ops[first_use];
}

int32_t sumi_cuda_8bit_pitch(sumi_cuda_operands operands, int32_t cols)
{
    SUMI_ASSERT(operands != SUMI_CUDA_BF16 && cols >= 1);
    return operands == SUMI_CUDA_INT8 ? SUMI_ROTATED_COLS(cols) : (cols + 15) / 16 * 16;
}

static bool takes_8bit(const sumi_cuda_device* device, const sumi_plan* plan, size_t op_index)
{
    const sumi_op* op = &plan->ops[op_index];
    const sumi_cuda_operands operands = sumi_cuda_8bit_operands(plan, op);
    if (operands == SUMI_CUDA_BF16 || (operands == SUMI_CUDA_E4M3 && device->capability < 89)
        || op->kind != SUMI_OP_LINEAR)
        return false;
    const sumi_weight* w = op->weight;
    // The rule depends on the weight, not on the rows of the product, because a weight must have the same form in every
    // plan, or the device would hold it twice. Rows of int8 are filled up to whole blocks of the rotation: with 128
    // columns they would be as long as in bfloat16.
    return !w->keeps_precision && !sumi_cuda_is_adapter_op(plan, op_index) && w->rows % 16 == 0 && w->cols % 16 == 0
        && w->rows >= 256 && w->cols >= 128 && sumi_cuda_8bit_pitch(operands, w->cols) < 2 * w->cols
        && sumi_plan_info(plan, op->in[0])->element == SUMI_ELEMENT_ACTIVATION
        && sumi_plan_info(plan, op->out)->element == SUMI_ELEMENT_ACTIVATION;
}

// ---- Weights as stored, and in 4 bits -------------------------------------------------------------------------------

// This rule, too, depends on the weight alone.
static bool takes_stored(const sumi_plan* plan, size_t op_index)
{
    const sumi_op* op = &plan->ops[op_index];
    const sumi_weight* w = op->weight;
    const bool is_product = op->kind == SUMI_OP_LINEAR && !sumi_cuda_is_adapter_op(plan, op_index);
    if (w == NULL || (!is_product && op->kind != SUMI_OP_EMBED_ROWS)) return false;
    const sumi_weight_format requested = sumi_cuda_requested_format(plan, op);
    if (requested == SUMI_WEIGHTS_AS_STORED) return sumi_cuda_is_storable(w) && (is_product || w->tensor_count == 1);
    return requested == SUMI_WEIGHTS_INT4 && is_product && !w->keeps_precision && sumi_cuda_is_packable(w)
        && w->rows >= 256 && w->cols >= 128;
}

// The weight of the norm by which the matrix of a product is balanced (balance.h), in every plan. NULL: it is not
// balanced.
static const sumi_weight* balance_of_op(const sumi_plan* plan, const sumi_op* op)
{
    const bool is_int8 = (op->marks & SUMI_CUDA_OP_8BIT) != 0 && sumi_cuda_8bit_operands(plan, op) == SUMI_CUDA_INT8;
    return is_int8 ? op->weight->balance : NULL;
}

// Whether the op that writes the input of a product can balance it: it is the norm by which the matrix is balanced, and
// no adapter changes this norm (the op then reads a value instead of the weight, and the added values would have to be
// balanced too).
static bool writer_balances(const sumi_plan* plan, const sumi_op* product, const sumi_weight* balance)
{
    const sumi_op* norm = sumi_cuda_writer(plan, (sumi_value){base_id(plan, product->in[0])});
    return norm->kind == SUMI_OP_NORM_MODULATE && norm->weight == balance && norm->bias == NULL
        && norm->u.norm.shift.table.id == 0 && !norm->u.norm.weight_plus_one;
}

// The operands that a norm would write as the input of this product.
static sumi_cuda_operands writer_operands(const sumi_plan* plan, sumi_value input)
{
    return sumi_cuda_8bit_operands(plan, sumi_cuda_writer(plan, (sumi_value){base_id(plan, input)}));
}

// A value can be stored in 8 bits if one NORM_MODULATE writes all of it, if all readers are products with 8-bit
// weights, and if it then fits, with its scales, into the memory that the plan has for it as bfloat16. The norm
// balances the matrices of all readers or of none.
static void mark_8bit_values(sumi_plan* plan)
{
    enum { PLAIN = 32, WRITTEN = 64, OTHER = 128 }; // used within this function only
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        const sumi_cuda_operands operands = sumi_cuda_8bit_operands(plan, op);
        const sumi_value_info* out = sumi_plan_info(plan, op->out);
        const bool norms_all = operands != SUMI_CUDA_BF16 && op->kind == SUMI_OP_NORM_MODULATE && op->u.norm.y_row == 0
                            && op->rows == out->rows && !op->u.norm.silu && out->base.id == 0
                            && out->element == SUMI_ELEMENT_ACTIVATION && !out->bound && out->cols % 16 == 0
                            && sumi_cuda_8bit_pitch(operands, out->cols) + 16 <= 2 * out->cols;
        if (op->out.id > 0) {
            uint8_t* marks = &plan->values[base_id(plan, op->out) - 1].marks;
            *marks |= norms_all && (*marks & WRITTEN) == 0 ? WRITTEN : OTHER;
        }
        for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) {
            const bool is_product = k == 0 && op->in[0].id != op->out.id && (op->marks & SUMI_CUDA_OP_8BIT) != 0
                                 && op->u.linear.x_row == 0 && op->rows == sumi_plan_info(plan, op->in[0])->rows
                                 && writer_operands(plan, op->in[0]) == operands;
            const sumi_weight* balance = is_product ? balance_of_op(plan, op) : NULL;
            // also if it is read through a view, as rows of another length
            const bool is_unquantised = !is_product || (balance != NULL && !writer_balances(plan, op, balance));
            if (op->in[k].id > 0)
                plan->values[base_id(plan, op->in[k]) - 1].marks |= is_unquantised  ? OTHER
                                                                  : balance != NULL ? SUMI_CUDA_VALUE_BALANCED
                                                                                    : PLAIN;
        }
        if (op->mask.id > 0) plan->values[op->mask.id - 1].marks |= OTHER;
    }
    for (size_t v = 0; v < plan->value_count; v++) {
        uint8_t* marks = &plan->values[v].marks;
        const bool is_mixed = (*marks & PLAIN) != 0 && (*marks & SUMI_CUDA_VALUE_BALANCED) != 0,
                   is_8bit = (*marks & (WRITTEN | OTHER)) == WRITTEN && !is_mixed;
        *marks &= (uint8_t) ~(PLAIN | WRITTEN | OTHER);
        if (is_8bit) *marks |= SUMI_CUDA_VALUE_8BIT;
        else *marks &= (uint8_t)~SUMI_CUDA_VALUE_BALANCED;
    }
}

// ---- Attention in 8 bits --------------------------------------------------------------------------------------------

typedef struct row_range {
    int32_t begin, end;
} row_range;

static bool meets_any(const row_range* ranges, int32_t count, row_range range)
{
    bool is_any = false;
    for (int32_t i = 0; i < count; i++) {
        is_any = is_any || (range.begin < ranges[i].end && ranges[i].begin < range.end);
    }
    return is_any;
}

static bool uses_value(const sumi_plan* plan, const sumi_op* op, int32_t id)
{
    bool is_any = (op->out.id > 0 && base_id(plan, op->out) == id) || op->mask.id == id;
    for (int32_t i = 0; i < SUMI_OP_MAX_INPUTS; i++) {
        is_any = is_any || (op->in[i].id > 0 && base_id(plan, op->in[i]) == id);
    }
    return is_any;
}

// Whether the transformer has this attention, in a form that kernels in 8 bits can compute if they have its head dim.
static bool is_attention_for_8bit(const sumi_plan* plan, const sumi_op* op)
{
    const sumi_op_attention* a = &op->u.attention;
    if (op->kind != SUMI_OP_ATTENTION || plan->sections[op->section].kind != SUMI_SECTION_DENOISE || a->causal
        || a->window != 0 || a->scale <= 0.0f)
        return false;
    const sumi_value_info *qkv = sumi_plan_info(plan, op->in[0]), *out = sumi_plan_info(plan, op->out);
    bool has_first_queries = true;
    for (int32_t i = 0; i < a->sequence_count; i++)
        has_first_queries = has_first_queries && a->sequences[i].query_first == 0;
    return has_first_queries && qkv->element == SUMI_ELEMENT_ACTIVATION
        && (a->q_column | a->k_column | a->v_column | qkv->cols | out->cols) % 8 == 0;
}

static bool takes_e4m3_attention(const sumi_plan* plan, const sumi_op* op)
{
    const sumi_op_attention* a = &op->u.attention;
    const sumi_value_info* qkv = sumi_plan_info(plan, op->in[0]);
    return a->dim == 128 && a->q_column == 0 && a->k_column == a->q_heads * a->dim
        && a->v_column == (a->q_heads + a->kv_heads) * a->dim && qkv->base.id == 0 && !qkv->bound;
}

// Whether QK_NORM_ROPE ops write the q and k of all rows that the attention reads, each row once, only products write
// the value before them, and nothing but this attention uses it after them.
static bool has_normed_rows_only(const sumi_plan* plan, const sumi_op* attention)
{
    enum { MAX_RANGES = 8 }; // the streams of a network
    row_range normed[MAX_RANGES];
    int32_t count = 0, normed_rows = 0;
    const int32_t id = attention->in[0].id;
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        if (op == attention || !uses_value(plan, op, id)) continue;
        if (op > attention || op->out.id != id) return false;
        if (op->kind == SUMI_OP_QK_NORM_ROPE) {
            const row_range rows = {op->u.qk.row, op->u.qk.row + op->rows};
            if (count == MAX_RANGES || meets_any(normed, count, rows) || op->u.qk.dim != attention->u.attention.dim
                || op->u.qk.q_heads != attention->u.attention.q_heads
                || op->u.qk.kv_heads != attention->u.attention.kv_heads)
                return false;
            normed[count++] = rows;
            normed_rows += op->rows;
        } else if (op->kind == SUMI_OP_LINEAR || op->kind == SUMI_OP_KRONECKER_ADD) {
            const int32_t row = op->kind == SUMI_OP_LINEAR ? op->u.linear.y_row : op->u.kronecker.y_row;
            if (meets_any(normed, count, (row_range){row, row + op->rows})) return false;
        } else return false;
    }
    return normed_rows == sumi_plan_info(plan, attention->in[0])->rows;
}

static void mark_8bit_attention(const sumi_cuda_device* device, bool allows_hopper, sumi_plan* plan)
{
    if (plan->weight_options.attention != SUMI_ATTENTION_8BIT) return;
    const bool has_hopper = sumi_cuda_has_hopper(device, allows_hopper);
    for (size_t i = 0; i < plan->op_count; i++) {
        sumi_op* op = &plan->ops[i];
        if (!is_attention_for_8bit(plan, op)) continue;
        const int32_t dim = op->u.attention.dim;
        if (has_hopper && takes_e4m3_attention(plan, op) && has_normed_rows_only(plan, op))
            plan->values[op->in[0].id - 1].marks |= SUMI_CUDA_VALUE_QK_E4M3;
        if (!has_hopper && (dim == 64 || dim == 96 || dim == 128)) op->marks |= SUMI_CUDA_OP_INT8_ATTENTION;
    }
}

// ---- A product and its gate -----------------------------------------------------------------------------------------

// Whether a product reads and writes whole values and its gate and up are interleaved by 8 columns.
static bool is_plain_product(const sumi_plan* plan, const sumi_op* op)
{
    if (op->kind != SUMI_OP_LINEAR || op->u.linear.is_adapter_product || op->in[1].id != 0 || op->bias != NULL
        || op->u.linear.activation != SUMI_ACT_NONE || op->weight->rows % 16 != 0 || op->u.linear.y_row != 0
        || op->u.linear.y_column != 0)
        return false;
    const sumi_value_info* out = sumi_plan_info(plan, op->out);
    return out->element == SUMI_ELEMENT_ACTIVATION && !out->bound && out->rows == op->rows
        && out->cols == op->weight->rows;
}

// Whether a LINEAR writes the input of a GATED, with only products of adapters between them.
static bool feeds_gated(const sumi_plan* plan, int32_t op_index)
{
    const sumi_op* op = &plan->ops[op_index];
    if (!is_plain_product(plan, op)) return false;
    for (size_t i = (size_t)op_index + 1; i < plan->op_count && plan->ops[i].section == op->section; i++) {
        const sumi_op* next = &plan->ops[i];
        if (next->kind == SUMI_OP_GATED && next->in[0].id == op->out.id) return true;
        const bool is_product = next->kind == SUMI_OP_LINEAR || next->kind == SUMI_OP_KRONECKER_ADD;
        if (!is_product || next->in[0].id == op->out.id) return false;
    }
    return false;
}

// The kernels have an epilogue for SiLU.
static bool is_gated_pair(const sumi_plan* plan, int32_t op_index)
{
    const sumi_op *op = &plan->ops[op_index], *gated = next_reader(plan, op_index);
    if (gated == NULL || gated->kind != SUMI_OP_GATED || gated->u.gated.activation != SUMI_ACT_SILU
        || !is_plain_product(plan, op))
        return false;
    const sumi_value_info* product_out = sumi_plan_info(plan, op->out);
    return product_out->base.id == 0 && product_out->container.id == 0 && product_out->first_use == op_index
        && product_out->last_use == op_index + 1 && has_rows_apart(plan, op, gated->out);
}

// ---- A sum and its norm ---------------------------------------------------------------------------------------------

// Whether two ops on the same rows have the same bands.
static bool are_bands_equal(const sumi_op_norm_gate_add* add, const sumi_op_norm_modulate* norm)
{
    bool are_equal = add->band_count == norm->band_count;
    for (int32_t i = 0; i < add->band_count && are_equal; i++) {
        are_equal = add->bands[i].end == norm->bands[i].end && add->bands[i].table_row == norm->bands[i].table_row;
    }
    return are_equal;
}

static bool is_norm_pair(const sumi_plan* plan, int32_t op_index)
{
    const sumi_op *op = &plan->ops[op_index], *norm = next_reader(plan, op_index);
    if (norm == NULL || op->kind != SUMI_OP_NORM_GATE_ADD || norm->kind != SUMI_OP_NORM_MODULATE
        || norm->rows != op->rows || norm->u.norm.x_row != op->u.gate_add.x_row || norm->u.norm.silu
        || !are_bands_equal(&op->u.gate_add, &norm->u.norm))
        return false;
    const sumi_value_info *x = sumi_plan_info(plan, op->out), *b = sumi_plan_info(plan, op->in[1]),
                          *y = sumi_plan_info(plan, norm->out);
    if (x->element != SUMI_ELEMENT_ACTIVATION || b->element != SUMI_ELEMENT_ACTIVATION
        || y->element != SUMI_ELEMENT_ACTIVATION)
        return false;
    return x->cols % 8 == 0 && x->cols <= SUMI_NORM_PAIR_MAX_COLS && has_rows_apart(plan, op, norm->out);
}

// ---- The plan -------------------------------------------------------------------------------------------------------

void sumi_cuda_arrange(const sumi_cuda_device* device, bool allows_hopper, sumi_plan* plan)
{
    SUMI_ASSERT(plan->activation_bytes == 2); // bfloat16
    for (int32_t i = 0; i < (int32_t)plan->op_count; i++) {
        sumi_op* op = &plan->ops[i];
        if (takes_8bit(device, plan, (size_t)i)) op->marks |= SUMI_CUDA_OP_8BIT;
        if (takes_stored(plan, (size_t)i)) op->marks |= SUMI_CUDA_OP_STORED;
        if (feeds_gated(plan, i)) {
            op->marks |= SUMI_CUDA_OP_GATED;
            plan->values[op->out.id - 1].marks |= SUMI_CUDA_VALUE_GATED;
        }
        const bool is_gated = is_gated_pair(plan, i);
        op->is_first_of_pair = is_gated || is_norm_pair(plan, i);
        if (is_gated) plan->values[op->out.id - 1].is_unstored = true;
    }
    mark_8bit_values(plan);
    mark_8bit_attention(device, allows_hopper, plan);
}

static bool joins(const sumi_plan* plan, int32_t op_index, sumi_op_kind kind)
{
    return op_index >= 0 && (size_t)op_index < plan->op_count && plan->ops[op_index].kind == kind
        && plan->ops[op_index].is_first_of_pair;
}

bool sumi_cuda_is_fused_gated(const sumi_plan* plan, int32_t op_index)
{
    return joins(plan, op_index, SUMI_OP_LINEAR) || joins(plan, op_index - 1, SUMI_OP_LINEAR);
}

bool sumi_cuda_is_fused_norm(const sumi_plan* plan, int32_t op_index)
{
    return joins(plan, op_index, SUMI_OP_NORM_GATE_ADD) || joins(plan, op_index - 1, SUMI_OP_NORM_GATE_ADD);
}
