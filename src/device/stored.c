#include "device/stored.h"
#include "base/assert.h"
#include "device/form.h"
#include "kernels/stored.h"

// By the type numbers of kernels/stored.h.
static const sumi_dtype s_dtypes[SUMI_STORED_TYPE_COUNT] = {
    SUMI_DTYPE_Q8_0,   SUMI_DTYPE_Q4_0,   SUMI_DTYPE_Q4_1,    SUMI_DTYPE_Q5_0,   SUMI_DTYPE_Q5_1,
    SUMI_DTYPE_Q2_K,   SUMI_DTYPE_Q3_K,   SUMI_DTYPE_Q4_K,    SUMI_DTYPE_Q5_K,   SUMI_DTYPE_Q6_K,
    SUMI_DTYPE_IQ4_NL, SUMI_DTYPE_IQ4_XS, SUMI_DTYPE_F8_E4M3, SUMI_DTYPE_F8_E5M2};

int32_t sumi_device_stored_type(sumi_dtype dtype)
{
    for (int32_t i = 0; i < SUMI_STORED_TYPE_COUNT; i++) {
        if (s_dtypes[i] == dtype) return i;
    }
    return -1;
}

int32_t sumi_device_stored_tensors(const sumi_weight* weight, sumi_device_form form,
                                   sumi_device_stored_tensor* out_tensors)
{
    SUMI_ASSERT(form == SUMI_DEVICE_FORM_STORED || form == SUMI_DEVICE_FORM_INT4);
    if (!sumi_device_traits(form)->keeps_bytes) {
        out_tensors[0] = (sumi_device_stored_tensor){0, sumi_dtype_bytes(SUMI_DTYPE_IQ4_NL, (uint64_t)weight->cols),
                                                     SUMI_DTYPE_IQ4_NL, weight->rows, 1.0f};
        return 1;
    }
    uint64_t offset = 0;
    for (int32_t p = 0; p < weight->tensor_count; p++) {
        const sumi_stacked_tensor* tensor = &weight->tensors[p];
        const uint64_t row_bytes = sumi_dtype_bytes(tensor->dtype, (uint64_t)weight->cols);
        out_tensors[p] = (sumi_device_stored_tensor){offset, row_bytes, tensor->dtype, tensor->rows, tensor->scale};
        offset = (offset + row_bytes * (uint64_t)tensor->rows + 15) / 16 * 16;
    }
    return weight->tensor_count;
}

uint64_t sumi_device_stored_bytes(const sumi_weight* weight, sumi_device_form form)
{
    sumi_device_stored_tensor tensors[SUMI_WEIGHT_MAX_TENSORS];
    const int32_t count = sumi_device_stored_tensors(weight, form, tensors);
    uint64_t end = 0;
    for (int32_t p = 0; p < count; p++) end = tensors[p].offset + tensors[p].row_bytes * (uint64_t)tensors[p].rows;
    return end + 16;
}
