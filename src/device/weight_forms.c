#include "device/weight_forms.h"
#include "base/assert.h"
#include "base/integers.h"
#include "device/form.h"
#include "device/stored.h"
#include "kernels/rows.h"
#include "kernels/upload.h"

int32_t sumi_device_8bit_pitch(sumi_device_operands operands, int32_t cols)
{
    SUMI_ASSERT(operands != SUMI_DEVICE_BF16 && cols >= 1);
    return operands == SUMI_DEVICE_INT8 ? SUMI_ROTATED_COLS(cols) : (cols + 15) / 16 * 16;
}

sumi_device_operands sumi_device_form_operands(sumi_device_form form)
{
    switch (form) {
    case SUMI_DEVICE_FORM_MATRIX_FP8:
    case SUMI_DEVICE_FORM_GATED_FP8: return SUMI_DEVICE_E4M3;
    case SUMI_DEVICE_FORM_MATRIX_INT8:
    case SUMI_DEVICE_FORM_GATED_INT8: return SUMI_DEVICE_INT8;
    default: return SUMI_DEVICE_BF16;
    }
}

static bool is_8bit_form(sumi_device_form form) { return sumi_device_form_operands(form) != SUMI_DEVICE_BF16; }
bool sumi_device_is_gated_form(sumi_device_form form)
{
    return form == SUMI_DEVICE_FORM_GATED || form == SUMI_DEVICE_FORM_GATED_FP8 || form == SUMI_DEVICE_FORM_GATED_INT8;
}
static bool is_stored_form(sumi_device_form form)
{
    return form == SUMI_DEVICE_FORM_STORED || form == SUMI_DEVICE_FORM_INT4;
}

static int32_t form_pitch(const sumi_weight* weight, sumi_device_form form)
{
    if (is_8bit_form(form)) return sumi_device_8bit_pitch(sumi_device_form_operands(form), weight->cols);
    if (is_stored_form(form)) return weight->cols;
    switch (form) {
    case SUMI_DEVICE_FORM_VECTOR:
    case SUMI_DEVICE_FORM_VECTOR_BALANCED: return sumi_round_up(weight->rows * weight->cols, 8);
    case SUMI_DEVICE_FORM_CONV:
    case SUMI_DEVICE_FORM_CONV_UP: return sumi_round_up(weight->cols / SUMI_UPLOAD_TAPS, 8);
    default: return sumi_round_up(weight->cols, 8);
    }
}

static uint64_t scales_at(const sumi_weight* weight, sumi_device_form form) // of forms in 8 bits
{
    return ((uint64_t)weight->rows * (uint64_t)form_pitch(weight, form) + 255) / 256 * 256;
}

const sumi_weight* sumi_device_form_balance(const sumi_weight* weight, sumi_device_form form)
{
    if (form == SUMI_DEVICE_FORM_VECTOR_BALANCED) return weight;
    return sumi_device_form_operands(form) == SUMI_DEVICE_INT8 ? weight->balance : NULL;
}
uint64_t sumi_device_balance_bytes(const sumi_weight* weight, sumi_device_form form)
{
    return sumi_device_form_balance(weight, form) != NULL ? ((uint64_t)weight->cols * sizeof(float) + 255) / 256 * 256
                                                          : 0;
}

static uint64_t balance_at(const sumi_weight* weight, sumi_device_form form) // the end of the form if it has no balance
{
    SUMI_ASSERT(weight->rows >= 1 && weight->cols >= 1 && (int)form >= 0 && form < SUMI_DEVICE_FORM_COUNT);
    const uint64_t rows = (uint64_t)weight->rows, pitch = (uint64_t)form_pitch(weight, form);
    uint64_t bytes;
    switch (form) {
    case SUMI_DEVICE_FORM_VECTOR:
    case SUMI_DEVICE_FORM_VECTOR_BALANCED: bytes = pitch * 4; break;
    case SUMI_DEVICE_FORM_CONV: bytes = rows * SUMI_UPLOAD_TAPS * pitch * 2; break;
    case SUMI_DEVICE_FORM_CONV_UP: bytes = 4 * rows * 4 * pitch * 2; break;
    case SUMI_DEVICE_FORM_STORED:
    case SUMI_DEVICE_FORM_INT4: bytes = sumi_device_stored_bytes(weight, form); break;
    default: bytes = is_8bit_form(form) ? scales_at(weight, form) + rows * 4 : rows * pitch * 2; break;
    }
    return (bytes + 15) / 16 * 16;
}

uint64_t sumi_device_form_bytes(const sumi_weight* weight, sumi_device_form form)
{
    return (balance_at(weight, form) + sumi_device_balance_bytes(weight, form) + 511) / 512 * 512;
}

sumi_device_weight sumi_device_weight_at(uint64_t address, const sumi_weight* weight, sumi_device_form form)
{
    return (sumi_device_weight){
        .data = address,
        .scales = is_8bit_form(form) ? address + scales_at(weight, form) : 0,
        .balance = sumi_device_form_balance(weight, form) != NULL ? address + balance_at(weight, form) : 0,
        .pitch = form_pitch(weight, form)};
}

uint64_t sumi_device_made_row_bytes(const sumi_weight* weight, sumi_device_form form)
{
    return form == SUMI_DEVICE_FORM_STORED ? sumi_dtype_bytes(weight->tensors[0].dtype, (uint64_t)weight->cols)
                                           : (uint64_t)weight->cols * 2;
}

// otherwise the whole copy is one row of bytes
uint64_t sumi_device_pinned_row_bytes(const sumi_weight* weight, sumi_device_form form)
{
    return sumi_device_form_is_made_on_cpu(weight, form) ? sumi_device_made_row_bytes(weight, form) : 1024;
}

bool sumi_device_keeps_bytes(const sumi_weight* weight, sumi_device_form form, const sumi_stacked_tensor* tensor)
{
    const bool is_bf16 = weight->change == NULL && tensor->dtype == SUMI_DTYPE_BF16 && tensor->scale == 1.0f
                      && sumi_stacked_tensor_is_plain(tensor);
    return form == SUMI_DEVICE_FORM_STORED
        || (is_bf16 && (form == SUMI_DEVICE_FORM_MATRIX || form == SUMI_DEVICE_FORM_GATED));
}

// The tensors of the form STORED follow each other if they are of one type and their rows are multiples of 16 bytes,
// which the pieces of pinned memory require too.
bool sumi_device_form_is_made_on_cpu(const sumi_weight* weight, sumi_device_form form)
{
    bool is_made = form == SUMI_DEVICE_FORM_STORED ? sumi_device_made_row_bytes(weight, form) % 16 == 0
                                                   : (form == SUMI_DEVICE_FORM_MATRIX || form == SUMI_DEVICE_FORM_GATED)
                                                         && weight->cols % 8 == 0 && sumi_weight_is_dense(weight);
    for (int32_t p = 0; p < weight->tensor_count && is_made; p++) {
        const sumi_stacked_tensor* tensor = &weight->tensors[p];
        is_made = (weight->change != NULL || sumi_device_keeps_bytes(weight, form, tensor))
               && (form != SUMI_DEVICE_FORM_STORED || tensor->dtype == weight->tensors[0].dtype);
    }
    return is_made;
}
