#include "cuda/weight_forms.h"
#include "base/assert.h"
#include "base/integers.h"
#include "cuda/arrange.h"
#include "cuda/form.h"
#include "cuda/stored.h"
#include "kernels/upload.h"

static sumi_cuda_form matrix_form(const sumi_plan* plan, const sumi_op* op)
{
    static const sumi_cuda_form forms[3][2] = {
        [SUMI_CUDA_BF16] = {SUMI_CUDA_FORM_MATRIX, SUMI_CUDA_FORM_GATED},
        [SUMI_CUDA_E4M3] = {SUMI_CUDA_FORM_MATRIX_FP8, SUMI_CUDA_FORM_GATED_FP8},
        [SUMI_CUDA_INT8] = {SUMI_CUDA_FORM_MATRIX_INT8, SUMI_CUDA_FORM_GATED_INT8},
    };
    const bool is_8bit = (op->marks & SUMI_CUDA_OP_8BIT) != 0, is_gated = (op->marks & SUMI_CUDA_OP_GATED) != 0;
    if ((op->marks & SUMI_CUDA_OP_STORED) != 0) return sumi_cuda_stored_form(plan, op);
    return forms[is_8bit ? sumi_cuda_8bit_operands(plan, op) : SUMI_CUDA_BF16][is_gated];
}

sumi_cuda_operands sumi_cuda_form_operands(sumi_cuda_form form)
{
    switch (form) {
    case SUMI_CUDA_FORM_MATRIX_FP8:
    case SUMI_CUDA_FORM_GATED_FP8: return SUMI_CUDA_E4M3;
    case SUMI_CUDA_FORM_MATRIX_INT8:
    case SUMI_CUDA_FORM_GATED_INT8: return SUMI_CUDA_INT8;
    default: return SUMI_CUDA_BF16;
    }
}

bool sumi_cuda_op_weight(const sumi_plan* plan, int32_t op_index, int32_t which, const sumi_weight** out_weight,
                         sumi_cuda_form* out_form)
{
    SUMI_ASSERT(op_index >= 0 && (size_t)op_index < plan->op_count && which >= 0);
    const sumi_op* op = &plan->ops[op_index];
    const sumi_weight* list[3] = {op->weight, op->bias, op->kind == SUMI_OP_QK_NORM_ROPE ? op->u.qk.k_weight : NULL};
    for (int32_t i = 0; i < 3; i++) {
        if (list[i] == NULL || which-- > 0) continue;
        *out_weight = list[i];
        *out_form = SUMI_CUDA_FORM_VECTOR;
        if (i > 0) return true;
        if (op->kind == SUMI_OP_NORM_MODULATE && (sumi_plan_info(plan, op->out)->marks & SUMI_CUDA_VALUE_BALANCED) != 0)
            *out_form = SUMI_CUDA_FORM_VECTOR_BALANCED;
        if (op->kind == SUMI_OP_LINEAR || op->kind == SUMI_OP_EMBED_ROWS) *out_form = matrix_form(plan, op);
        if (op->kind == SUMI_OP_CONV)
            *out_form = op->u.conv.kernel == 1 ? SUMI_CUDA_FORM_MATRIX
                      : op->u.conv.upsamples   ? SUMI_CUDA_FORM_CONV_UP
                                               : SUMI_CUDA_FORM_CONV;
        return true;
    }
    return false;
}

static bool is_8bit_form(sumi_cuda_form form) { return sumi_cuda_form_operands(form) != SUMI_CUDA_BF16; }
bool sumi_cuda_is_gated_form(sumi_cuda_form form)
{
    return form == SUMI_CUDA_FORM_GATED || form == SUMI_CUDA_FORM_GATED_FP8 || form == SUMI_CUDA_FORM_GATED_INT8;
}
static bool is_stored_form(sumi_cuda_form form) { return form == SUMI_CUDA_FORM_STORED || form == SUMI_CUDA_FORM_INT4; }

static int32_t form_pitch(const sumi_weight* weight, sumi_cuda_form form)
{
    if (is_8bit_form(form)) return sumi_cuda_8bit_pitch(sumi_cuda_form_operands(form), weight->cols);
    if (is_stored_form(form)) return weight->cols;
    switch (form) {
    case SUMI_CUDA_FORM_VECTOR:
    case SUMI_CUDA_FORM_VECTOR_BALANCED: return sumi_round_up(weight->rows * weight->cols, 8);
    case SUMI_CUDA_FORM_CONV:
    case SUMI_CUDA_FORM_CONV_UP: return sumi_round_up(weight->cols / SUMI_UPLOAD_TAPS, 8);
    default: return sumi_round_up(weight->cols, 8);
    }
}

static uint64_t scales_at(const sumi_weight* weight, sumi_cuda_form form) // of forms in 8 bits
{
    return ((uint64_t)weight->rows * (uint64_t)form_pitch(weight, form) + 255) / 256 * 256;
}

const sumi_weight* sumi_cuda_form_balance(const sumi_weight* weight, sumi_cuda_form form)
{
    if (form == SUMI_CUDA_FORM_VECTOR_BALANCED) return weight;
    return sumi_cuda_form_operands(form) == SUMI_CUDA_INT8 ? weight->balance : NULL;
}
uint64_t sumi_cuda_balance_bytes(const sumi_weight* weight, sumi_cuda_form form)
{
    return sumi_cuda_form_balance(weight, form) != NULL ? ((uint64_t)weight->cols * sizeof(float) + 255) / 256 * 256
                                                        : 0;
}

static uint64_t balance_at(const sumi_weight* weight, sumi_cuda_form form) // the end of the form if it has no balance
{
    SUMI_ASSERT(weight->rows >= 1 && weight->cols >= 1 && (int)form >= 0 && form < SUMI_CUDA_FORM_COUNT);
    const uint64_t rows = (uint64_t)weight->rows, pitch = (uint64_t)form_pitch(weight, form);
    uint64_t bytes;
    switch (form) {
    case SUMI_CUDA_FORM_VECTOR:
    case SUMI_CUDA_FORM_VECTOR_BALANCED: bytes = pitch * 4; break;
    case SUMI_CUDA_FORM_CONV: bytes = rows * SUMI_UPLOAD_TAPS * pitch * 2; break;
    case SUMI_CUDA_FORM_CONV_UP: bytes = 4 * rows * 4 * pitch * 2; break;
    case SUMI_CUDA_FORM_STORED:
    case SUMI_CUDA_FORM_INT4: bytes = sumi_cuda_stored_bytes(weight, form); break;
    default: bytes = is_8bit_form(form) ? scales_at(weight, form) + rows * 4 : rows * pitch * 2; break;
    }
    return (bytes + 15) / 16 * 16;
}

uint64_t sumi_cuda_form_bytes(const sumi_weight* weight, sumi_cuda_form form)
{
    return (balance_at(weight, form) + sumi_cuda_balance_bytes(weight, form) + 511) / 512 * 512;
}

sumi_cuda_weight sumi_cuda_weight_at(uint64_t address, const sumi_weight* weight, sumi_cuda_form form)
{
    return (sumi_cuda_weight){.data = address,
                              .scales = is_8bit_form(form) ? address + scales_at(weight, form) : 0,
                              .balance =
                                  sumi_cuda_form_balance(weight, form) != NULL ? address + balance_at(weight, form) : 0,
                              .pitch = form_pitch(weight, form)};
}

uint64_t sumi_cuda_made_row_bytes(const sumi_weight* weight, sumi_cuda_form form)
{
    return form == SUMI_CUDA_FORM_STORED ? sumi_dtype_bytes(weight->tensors[0].dtype, (uint64_t)weight->cols)
                                         : (uint64_t)weight->cols * 2;
}

// otherwise the whole copy is one row of bytes
uint64_t sumi_cuda_pinned_row_bytes(const sumi_weight* weight, sumi_cuda_form form)
{
    return sumi_cuda_form_is_made_on_cpu(weight, form) ? sumi_cuda_made_row_bytes(weight, form) : 1024;
}

bool sumi_cuda_keeps_bytes(const sumi_weight* weight, sumi_cuda_form form, const sumi_stacked_tensor* tensor)
{
    const bool is_bf16 = weight->change == NULL && tensor->dtype == SUMI_DTYPE_BF16 && tensor->scale == 1.0f
                      && sumi_stacked_tensor_is_plain(tensor);
    return form == SUMI_CUDA_FORM_STORED
        || (is_bf16 && (form == SUMI_CUDA_FORM_MATRIX || form == SUMI_CUDA_FORM_GATED));
}

// The tensors of the form STORED follow each other if they are of one type and their rows are multiples of 16 bytes,
// which the pieces of pinned memory require too.
bool sumi_cuda_form_is_made_on_cpu(const sumi_weight* weight, sumi_cuda_form form)
{
    bool is_made = form == SUMI_CUDA_FORM_STORED ? sumi_cuda_made_row_bytes(weight, form) % 16 == 0
                                                 : (form == SUMI_CUDA_FORM_MATRIX || form == SUMI_CUDA_FORM_GATED)
                                                       && weight->cols % 8 == 0 && sumi_weight_is_dense(weight);
    for (int32_t p = 0; p < weight->tensor_count && is_made; p++) {
        const sumi_stacked_tensor* tensor = &weight->tensors[p];
        is_made = (weight->change != NULL || sumi_cuda_keeps_bytes(weight, form, tensor))
               && (form != SUMI_CUDA_FORM_STORED || tensor->dtype == weight->tensors[0].dtype);
    }
    return is_made;
}
