// Weights that are stored on the device in the bytes of their file, and products that read them. Where a file has
// factors of blocks or rows in another place than the elements, as for nvfp4 and fp8, the CPU puts them beside each
// other when the weight is uploaded (sumi_device_stored_pack).
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
    int32_t type;               // a number of kernels/stored.h
    int32_t rows;
    float scale; // of files of fp8 and nvfp4; 1 for other types
} sumi_device_stored_tensor;
// The tensors of a weight in the form STORED or INT4. Returns how many, at most SUMI_WEIGHT_MAX_TENSORS.
int32_t sumi_device_stored_tensors(const sumi_weight* weight, sumi_device_form form,
                                   sumi_device_stored_tensor* out_tensors);
// Bytes of all tensors, and 16 more, because kernels read whole 16 bytes.
uint64_t sumi_device_stored_bytes(const sumi_weight* weight, sumi_device_form form);

// The number of a type in kernels/stored.h; -1: products cannot read the type.
int32_t sumi_device_stored_type(sumi_dtype dtype);
// The same for a tensor of a weight without a change: of its type if it is plain, otherwise of the type that it is
// packed to.
int32_t sumi_device_stored_tensor_type(const sumi_weight* weight, const sumi_stacked_tensor* tensor);
// Whether the tensor's rows on the device are not the bytes of the file.
bool sumi_device_stored_is_packed(const sumi_weight* weight, const sumi_stacked_tensor* tensor);
// Bytes of a row of the tensor on the device.
uint64_t sumi_device_stored_row_bytes(const sumi_weight* weight, const sumi_stacked_tensor* tensor);
// Packs rows [begin, begin + count), which lie in one such tensor.
void sumi_device_stored_pack(const sumi_weight* weight, int32_t begin, int32_t count, unsigned char* into);
#endif
