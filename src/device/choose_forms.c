// See choose_forms.h. When this code runs, the values have no offsets yet; they are computed later, from the marks.
#include "device/choose_forms.h"
#include "base/assert.h"
#include "device/stored.h"

int32_t sumi_device_base_id(const sumi_plan* plan, sumi_value value)
{
    const sumi_value_info* info = sumi_plan_info(plan, value);
    return info->base.id != 0 ? info->base.id : value.id;
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

static bool adds_change(const sumi_op* op)
{
    return op->kind == SUMI_OP_KRONECKER_ADD || (op->kind == SUMI_OP_LINEAR && op->u.linear.is_adapter_product);
}

bool sumi_device_is_adapter_op(const sumi_plan* plan, size_t i)
{
    const sumi_op *op = &plan->ops[i], *next = i + 1 < plan->op_count ? op + 1 : NULL;
    return adds_change(op)
        || (op->kind == SUMI_OP_LINEAR && next != NULL && adds_change(next) && next->in[0].id == op->out.id);
}

// ---- Products in 8 bits ---------------------------------------------------------------------------------------------

// The format that the plan requests for an op. It follows from the op's section, because a weight is used in sections of
// one kind only, but for the weights of a prefix (mark_ops_of_steps).
static sumi_weight_format requested_format(const sumi_plan* plan, const sumi_op* op)
{
    SUMI_ASSERT(op->section >= 0 && (size_t)op->section < plan->section_count);
    const sumi_section_kind kind = plan->sections[op->section].kind;
    if (kind == SUMI_SECTION_DENOISE || (op->marks & SUMI_DEVICE_OP_OF_STEPS) != 0) return plan->weight_options.weights;
    if (kind == SUMI_SECTION_TEXT || kind == SUMI_SECTION_VISION) return plan->weight_options.text_weights;
    // Ops that run once in a job, and the VAE, lose no precision.
    return plan->weight_options.weights == SUMI_WEIGHTS_AS_STORED ? SUMI_WEIGHTS_AS_STORED : SUMI_WEIGHTS_BF16;
}

sumi_device_form sumi_device_stored_form(const sumi_plan* plan, const sumi_op* op)
{
    SUMI_ASSERT((op->marks & SUMI_DEVICE_OP_STORED) != 0);
    return requested_format(plan, op) == SUMI_WEIGHTS_INT4 ? SUMI_DEVICE_FORM_INT4 : SUMI_DEVICE_FORM_STORED;
}

sumi_device_operands sumi_device_quantised_operands(const sumi_plan* plan, const sumi_op* op)
{
    const sumi_weight_format requested = requested_format(plan, op);
    return requested == SUMI_WEIGHTS_FP8  ? SUMI_DEVICE_E4M3
         : requested == SUMI_WEIGHTS_INT8 ? SUMI_DEVICE_INT8
                                          : SUMI_DEVICE_BF16;
}

const sumi_op* sumi_device_writer(const sumi_plan* plan, sumi_value value)
{
    const int32_t first_use = sumi_plan_info(plan, value)->first_use;
    SUMI_ASSERT(first_use >= 0 && (size_t)first_use < plan->op_count);
    return &plan->ops[first_use];
}

static bool takes_8bit(const sumi_plan* plan, size_t op_index, bool has_e4m3)
{
    const sumi_op* op = &plan->ops[op_index];
    const sumi_device_operands operands = sumi_device_quantised_operands(plan, op);
    if (operands == SUMI_DEVICE_BF16 || (operands == SUMI_DEVICE_E4M3 && !has_e4m3) || op->kind != SUMI_OP_LINEAR)
        return false;
    const sumi_weight* w = op->weight;
    // The rule depends on the weight, not on the rows of the product, because a weight must have the same form in every
    // plan, or the device would hold it twice. Rows of int8 are filled up to whole blocks of the rotation: with 128
    // columns they would be as long as in bfloat16.
    return !w->keeps_precision && !sumi_device_is_adapter_op(plan, op_index) && w->rows % 16 == 0 && w->cols % 16 == 0
        && w->rows >= 256 && w->cols >= 128 && sumi_device_quantised_pitch(operands, w->cols) < 2 * w->cols
        && sumi_plan_info(plan, op->in[0])->element == SUMI_ELEMENT_ACTIVATION
        && sumi_plan_info(plan, op->out)->element == SUMI_ELEMENT_ACTIVATION;
}

// ---- Weights as stored, and in 4 bits -------------------------------------------------------------------------------

bool sumi_device_is_storable(const sumi_weight* weight)
{
    bool is_storable = weight->change == NULL;
    for (int32_t p = 0; p < weight->tensor_count && is_storable; p++)
        is_storable = sumi_device_stored_tensor_type(weight, &weight->tensors[p]) >= 0;
    return is_storable;
}

// This rule too depends only on the weight. Codes of 4 bits are in blocks of 32 columns.
static bool takes_stored(const sumi_plan* plan, size_t op_index)
{
    const sumi_op* op = &plan->ops[op_index];
    const sumi_weight* w = op->weight;
    const bool is_product = op->kind == SUMI_OP_LINEAR && !sumi_device_is_adapter_op(plan, op_index);
    const bool is_lookup = op->kind == SUMI_OP_EMBED_ROWS && op->in[2].id == 0; // sums of rows are made from bfloat16
    if (w == NULL || (!is_product && !is_lookup)) return false;
    const sumi_weight_format requested = requested_format(plan, op);
    if (requested == SUMI_WEIGHTS_AS_STORED) return sumi_device_is_storable(w) && (is_product || w->tensor_count == 1);
    return requested == SUMI_WEIGHTS_INT4 && is_product && !w->keeps_precision && w->cols % 32 == 0 && w->rows >= 256
        && w->cols >= 128;
}

// The weight of the norm that balances the matrix of a product (weight_forms.h), in every plan. NULL: it is not balanced.
static const sumi_weight* balance_of_op(const sumi_plan* plan, const sumi_op* op)
{
    const bool is_int8 =
        (op->marks & SUMI_DEVICE_OP_8BIT) != 0 && sumi_device_quantised_operands(plan, op) == SUMI_DEVICE_INT8;
    return is_int8 ? op->weight->balance : NULL;
}

// Whether the op that writes the input of a product can balance it: it is the norm that balances the matrix, and no
// adapter changes this norm (the op then reads a value instead of the weight, and the added values would have to be
// balanced too).
static bool writer_balances(const sumi_plan* plan, const sumi_op* product, const sumi_weight* balance)
{
    const sumi_op* norm = sumi_device_writer(plan, (sumi_value){sumi_device_base_id(plan, product->in[0])});
    return norm->kind == SUMI_OP_NORM_MODULATE && norm->weight == balance && norm->bias == NULL
        && norm->u.norm.shift.table.id == 0 && !norm->u.norm.weight_plus_one;
}

// The operands that a norm would write as the input of this product.
static sumi_device_operands writer_operands(const sumi_plan* plan, sumi_value input)
{
    return sumi_device_quantised_operands(plan,
                                          sumi_device_writer(plan, (sumi_value){sumi_device_base_id(plan, input)}));
}

// A value can be stored in 8 bits if one NORM_MODULATE writes all of it, if all readers are products with 8-bit
// weights, and if it then fits, with its scales, into the memory that the plan has for it as bfloat16. The norm
// balances the matrices of all readers or of none.
static void mark_quantised_values(sumi_plan* plan)
{
    enum { PLAIN = 32, WRITTEN = 64, OTHER = 128 }; // used within this function only
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        const sumi_device_operands operands = sumi_device_quantised_operands(plan, op);
        const sumi_value_info* out = sumi_plan_info(plan, op->out);
        const bool norms_all = operands != SUMI_DEVICE_BF16 && op->kind == SUMI_OP_NORM_MODULATE
                            && op->u.norm.y_row == 0 && op->rows == out->rows && !op->u.norm.silu && out->base.id == 0
                            && out->element == SUMI_ELEMENT_ACTIVATION && !out->bound && out->cols % 16 == 0
                            && sumi_device_quantised_pitch(operands, out->cols) + 16 <= 2 * out->cols;
        if (op->out.id > 0) {
            uint8_t* marks = &plan->values[sumi_device_base_id(plan, op->out) - 1].marks;
            *marks |= norms_all && (*marks & WRITTEN) == 0 ? WRITTEN : OTHER;
        }
        for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) {
            const bool is_product = k == 0 && op->in[0].id != op->out.id && (op->marks & SUMI_DEVICE_OP_8BIT) != 0
                                 && op->u.linear.x_row == 0 && op->rows == sumi_plan_info(plan, op->in[0])->rows
                                 && sumi_plan_info(plan, op->in[0])->base.id == 0
                                 && writer_operands(plan, op->in[0]) == operands;
            const sumi_weight* balance = is_product ? balance_of_op(plan, op) : NULL;
            // Also if it is read through a view: rows of another length, or fewer rows, whose scales would be looked
            // for after the view's last row.
            const bool is_unquantised = !is_product || (balance != NULL && !writer_balances(plan, op, balance));
            if (op->in[k].id > 0)
                plan->values[sumi_device_base_id(plan, op->in[k]) - 1].marks |= is_unquantised ? OTHER
                                                                              : balance != NULL
                                                                                  ? SUMI_DEVICE_VALUE_BALANCED
                                                                                  : PLAIN;
        }
        if (op->mask.id > 0) plan->values[op->mask.id - 1].marks |= OTHER;
    }
    for (size_t v = 0; v < plan->value_count; v++) {
        uint8_t* marks = &plan->values[v].marks;
        const bool is_mixed = (*marks & PLAIN) != 0 && (*marks & SUMI_DEVICE_VALUE_BALANCED) != 0,
                   is_8bit = (*marks & (WRITTEN | OTHER)) == WRITTEN && !is_mixed;
        *marks &= (uint8_t) ~(PLAIN | WRITTEN | OTHER);
        if (is_8bit) *marks |= SUMI_DEVICE_VALUE_QUANTISED;
        else *marks &= (uint8_t)~SUMI_DEVICE_VALUE_BALANCED;
    }
}

// ---- A product and its gate -----------------------------------------------------------------------------------------

// Whether a product reads and writes whole values and its gate and up are interleaved by 8 columns.
bool sumi_device_is_plain_product(const sumi_plan* plan, const sumi_op* op)
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
    if (!sumi_device_is_plain_product(plan, op)) return false;
    for (size_t i = (size_t)op_index + 1; i < plan->op_count && plan->ops[i].section == op->section; i++) {
        const sumi_op* next = &plan->ops[i];
        if (next->kind == SUMI_OP_GATED && next->in[0].id == op->out.id) return true;
        const bool is_product = next->kind == SUMI_OP_LINEAR || next->kind == SUMI_OP_KRONECKER_ADD;
        if (!is_product || next->in[0].id == op->out.id) return false;
    }
    return false;
}

// ---- The plan -------------------------------------------------------------------------------------------------------

static bool is_read_by_steps(const sumi_plan* plan, const sumi_weight* weight)
{
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        if (op->weight == weight && plan->sections[op->section].kind == SUMI_SECTION_DENOISE) return true;
    }
    return false;
}

// A denoiser with a prefix runs its blocks once before the steps. Their products have the format of the steps, or the
// device would hold these weights in bfloat16 besides; so have their norms, whose results they read.
static void mark_ops_of_steps(sumi_plan* plan)
{
    if (plan->weight_options.weights == SUMI_WEIGHTS_AUTO || plan->weight_options.weights == SUMI_WEIGHTS_BF16) return;
    for (size_t s = 0; s < plan->section_count; s++) {
        const sumi_section* section = &plan->sections[s];
        bool has_products = false;
        for (int32_t i = section->op_begin; i < section->op_end && section->kind == SUMI_SECTION_PREPARE; i++) {
            sumi_op* op = &plan->ops[i];
            if (op->kind != SUMI_OP_LINEAR || op->weight == NULL || op->weight->keeps_precision
                || !is_read_by_steps(plan, op->weight))
                continue;
            op->marks |= SUMI_DEVICE_OP_OF_STEPS;
            has_products = true;
        }
        for (int32_t i = section->op_begin; i < section->op_end && has_products; i++) {
            if (plan->ops[i].kind == SUMI_OP_NORM_MODULATE) plan->ops[i].marks |= SUMI_DEVICE_OP_OF_STEPS;
        }
    }
}

void sumi_device_choose_forms(sumi_plan* plan, bool has_e4m3)
{
    SUMI_ASSERT(plan->activation_bytes == 2); // bfloat16
    mark_ops_of_steps(plan);
    for (int32_t i = 0; i < (int32_t)plan->op_count; i++) {
        sumi_op* op = &plan->ops[i];
        if (takes_8bit(plan, (size_t)i, has_e4m3)) op->marks |= SUMI_DEVICE_OP_8BIT;
        if (takes_stored(plan, (size_t)i)) op->marks |= SUMI_DEVICE_OP_STORED;
        if (!feeds_gated(plan, i)) continue;
        op->marks |= SUMI_DEVICE_OP_GATED;
        plan->values[op->out.id - 1].marks |= SUMI_DEVICE_VALUE_GATED;
    }
    mark_quantised_values(plan);
}

// ---- The form -------------------------------------------------------------------------------------------------------

// Indexed by operands, and by whether gate and up are interleaved.
static const sumi_device_form s_matrices[3][2] = {
    [SUMI_DEVICE_BF16] = {SUMI_DEVICE_FORM_MATRIX, SUMI_DEVICE_FORM_GATED},
    [SUMI_DEVICE_E4M3] = {SUMI_DEVICE_FORM_MATRIX_FP8, SUMI_DEVICE_FORM_GATED_FP8},
    [SUMI_DEVICE_INT8] = {SUMI_DEVICE_FORM_MATRIX_INT8, SUMI_DEVICE_FORM_GATED_INT8},
};

static sumi_device_form matrix_form(const sumi_plan* plan, const sumi_op* op)
{
    const bool is_8bit = (op->marks & SUMI_DEVICE_OP_8BIT) != 0, is_gated = (op->marks & SUMI_DEVICE_OP_GATED) != 0;
    if ((op->marks & SUMI_DEVICE_OP_STORED) != 0) return sumi_device_stored_form(plan, op);
    return s_matrices[is_8bit ? sumi_device_quantised_operands(plan, op) : SUMI_DEVICE_BF16][is_gated];
}

bool sumi_device_op_weight(const sumi_plan* plan, int32_t op_index, int32_t which, const sumi_weight** out_weight,
                           sumi_device_form* out_form)
{
    SUMI_ASSERT(op_index >= 0 && (size_t)op_index < plan->op_count && which >= 0);
    const sumi_op* op = &plan->ops[op_index];
    const sumi_weight* list[3] = {op->weight, op->bias, op->kind == SUMI_OP_QK_NORM_ROPE ? op->u.qk.k_weight : NULL};
    for (int32_t i = 0; i < 3; i++) {
        if (list[i] == NULL || which-- > 0) continue;
        *out_weight = list[i];
        *out_form = SUMI_DEVICE_FORM_VECTOR;
        if (i > 0) return true;
        if (op->kind == SUMI_OP_NORM_MODULATE
            && (sumi_plan_info(plan, op->out)->marks & SUMI_DEVICE_VALUE_BALANCED) != 0)
            *out_form = SUMI_DEVICE_FORM_VECTOR_BALANCED;
        if (op->kind == SUMI_OP_LINEAR || op->kind == SUMI_OP_EMBED_ROWS) *out_form = matrix_form(plan, op);
        if (op->kind == SUMI_OP_CONV)
            *out_form = op->u.conv.kernel == 1 ? SUMI_DEVICE_FORM_MATRIX
                      : op->u.conv.upsamples   ? SUMI_DEVICE_FORM_CONV_UP
                                               : SUMI_DEVICE_FORM_CONV;
        return true;
    }
    return false;
}
