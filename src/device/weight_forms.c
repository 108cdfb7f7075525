#include "device/weight_forms.h"
#include "base/assert.h"
#include "base/numbers.h"
#include "device/form.h"
#include "device/stored.h"
#include <math.h>

static int32_t form_pitch(const sumi_weight* weight, const sumi_device_form_traits* traits)
{
    const int32_t cols = traits->is_vector ? weight->rows * weight->cols : weight->cols / traits->taps;
    return sumi_round_up(cols, traits->pitch_step);
}

// Bytes of the elements, without scales and balance.
static uint64_t element_bytes(const sumi_weight* weight, sumi_device_form form)
{
    const sumi_device_form_traits* traits = sumi_device_traits(form);
    if (traits->element_bytes == 0) return sumi_device_stored_bytes(weight, form);
    const uint64_t runs = traits->is_vector ? 1 : (uint64_t)weight->rows * (uint64_t)traits->runs;
    return runs * (uint64_t)form_pitch(weight, traits) * (uint64_t)traits->element_bytes;
}

static uint64_t scales_at(const sumi_weight* weight, sumi_device_form form) // of forms that have scales
{
    return (element_bytes(weight, form) + 255) / 256 * 256;
}

const sumi_weight* sumi_device_form_balance(const sumi_weight* weight, sumi_device_form form)
{
    const sumi_device_balancing balancing = sumi_device_traits(form)->balancing;
    return balancing == SUMI_DEVICE_BALANCED_BY_ITSELF ? weight
         : balancing == SUMI_DEVICE_BALANCED_BY_NORM   ? weight->balance
                                                       : NULL;
}
uint64_t sumi_device_balance_bytes(const sumi_weight* weight, sumi_device_form form)
{
    return sumi_device_form_balance(weight, form) != NULL ? ((uint64_t)weight->cols * sizeof(float) + 255) / 256 * 256
                                                          : 0;
}

static uint64_t balance_at(const sumi_weight* weight, sumi_device_form form) // the end of the form if it has no balance
{
    SUMI_ASSERT(weight->rows >= 1 && weight->cols >= 1);
    const uint64_t bytes = sumi_device_traits(form)->has_scales
                             ? scales_at(weight, form) + (uint64_t)weight->rows * sizeof(float)
                             : element_bytes(weight, form);
    return (bytes + 15) / 16 * 16;
}

uint64_t sumi_device_form_bytes(const sumi_weight* weight, sumi_device_form form)
{
    return (balance_at(weight, form) + sumi_device_balance_bytes(weight, form) + 511) / 512 * 512;
}

sumi_device_weight sumi_device_weight_at(uint64_t address, const sumi_weight* weight, sumi_device_form form)
{
    const sumi_device_form_traits* traits = sumi_device_traits(form);
    const bool is_balanced = sumi_device_form_balance(weight, form) != NULL;
    return (sumi_device_weight){.data = address,
                                .scales = traits->has_scales ? address + scales_at(weight, form) : 0,
                                .balance = is_balanced ? address + balance_at(weight, form) : 0,
                                .pitch = form_pitch(weight, traits)};
}

uint64_t sumi_device_made_row_bytes(const sumi_weight* weight, sumi_device_form form)
{
    return sumi_device_traits(form)->keeps_bytes ? sumi_dtype_bytes(weight->tensors[0].dtype, (uint64_t)weight->cols)
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
    const sumi_device_form_traits* traits = sumi_device_traits(form);
    return traits->keeps_bytes ? !sumi_device_stored_is_packed(weight, tensor) : is_bf16 && traits->keeps_bf16;
}

// The tensors of a form that keeps all bytes follow each other if they are of one type and their rows are multiples of
// 16 bytes, which the pieces of pinned memory require too.
bool sumi_device_form_is_made_on_cpu(const sumi_weight* weight, sumi_device_form form)
{
    const sumi_device_form_traits* traits = sumi_device_traits(form);
    bool is_made = traits->keeps_bytes ? sumi_device_made_row_bytes(weight, form) % 16 == 0
                                       : traits->keeps_bf16 && weight->cols % 8 == 0 && sumi_weight_is_dense(weight);
    for (int32_t p = 0; p < weight->tensor_count && is_made; p++) {
        const sumi_stacked_tensor* tensor = &weight->tensors[p];
        is_made = (weight->change != NULL || sumi_device_keeps_bytes(weight, form, tensor))
               && (!traits->keeps_bytes || tensor->dtype == weight->tensors[0].dtype);
    }
    return is_made;
}

// ---- Balance --------------------------------------------------------------------------------------------------------

// Weights of a norm below this fraction of their mean count as this fraction. A channel that is nearly off must not
// become large when an adapter changes the norm. In simulation 1/16 and 1/1000 gave the same error.
#define LEAST_OF_MEAN (1.0 / 16)

void sumi_device_balance(const sumi_weight* norm, float* into)
{
    SUMI_ASSERT(norm->rows == 1 && norm->cols >= 1);
    double sum = 0.0;
    sumi_weight_to_float(norm, 0, 1, into, norm->cols);
    for (int32_t c = 0; c < norm->cols; c++) sum += fabs((double)into[c]);
    const float mean = (float)(sum / norm->cols * LEAST_OF_MEAN), least = mean > 1e-12f ? mean : 1e-12f;
    for (int32_t c = 0; c < norm->cols; c++) {
        const float size = fabsf(into[c]);
        into[c] = 1.0f / sqrtf(size < least ? least : size); // NaN stays NaN
    }
}
