// Weights that are stored on the device in the bytes of their file, and products that read them.
//
//   few rows    one kernel unpacks the weight and multiplies                             kernels/gemm_stored.cu
//   more rows   the weight is unpacked to scratch as bfloat16, then multiplied as any     kernels/unpack.cu
//
// Such a weight has the form STORED, or INT4 if its 4-bit codes are made when it is loaded. INT4 is treated as STORED
// with one tensor of the type IQ4_NL.
#ifndef SUMI_DEVICE_STORED_H
#define SUMI_DEVICE_STORED_H
#include "device/form.h"
#include "plan/plan.h"

// Rows of one type. INT4 has one of these.
typedef struct sumi_device_stored_tensor {
    uint64_t offset, row_bytes; // offset: of the first row, in bytes, a multiple of 16
    sumi_dtype dtype;
    int32_t rows;
    float scale; // of fp8 files; 1 for other types
} sumi_device_stored_tensor;
// The tensors of a weight in the form STORED or INT4. Returns how many, at most SUMI_WEIGHT_MAX_TENSORS.
int32_t sumi_device_stored_tensors(const sumi_weight* weight, sumi_device_form form,
                                   sumi_device_stored_tensor* out_tensors);
// Bytes of all tensors, and 16 more, because kernels read whole 16 bytes.
uint64_t sumi_device_stored_bytes(const sumi_weight* weight, sumi_device_form form);

// The number of a type in kernels/stored.h; -1: products cannot read the type.
int32_t sumi_device_stored_type(sumi_dtype dtype);
#endif
