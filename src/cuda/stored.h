// Weights that lie on the device in their file's bytes, and products that read them.
//
//   few rows    one kernel unpacks the weight on its way into the tensor cores    kernels/gemm_stored.cu
//   more        the weight is unpacked to scratch as bfloat16, which the product reads as it reads any    kernels/unpack.cu
//
// A weight has the form STORED when it may lie so, and INT4 when it is made of 4-bit codes as it is loaded; the second is
// the first with one part of the type IQ4_NL.
#ifndef SUMI_CUDA_STORED_H
#define SUMI_CUDA_STORED_H
#include "cuda/form.h"
#include "plan/plan.h"

// Whether each of its parts is of a type that products read, without a change, row scales or rotation of its own.
bool sumi_cuda_is_storable(const sumi_weight* weight);
// Whether INT4's codes can be made of its rows.
bool sumi_cuda_is_packable(const sumi_weight* weight);

// Rows of one type. INT4 has one of these.
typedef struct sumi_cuda_stored_tensor {
    uint64_t offset, row_bytes; // offset: of the first row, a multiple of 16
    sumi_dtype dtype;
    int32_t rows;
    float scale; // of fp8 files; 1 otherwise
} sumi_cuda_stored_tensor;
// The parts of a weight in the form STORED or INT4; how many, at most SUMI_WEIGHT_MAX_TENSORS.
int32_t sumi_cuda_stored_tensors(const sumi_weight* weight, sumi_cuda_form form, sumi_cuda_stored_tensor* out_parts);
// Of all parts, and 16 more: kernels read whole 16 bytes.
uint64_t sumi_cuda_stored_bytes(const sumi_weight* weight, sumi_cuda_form form);

// The number of a type in kernels/stored.h; -1: products do not read it.
int32_t sumi_cuda_stored_type(sumi_dtype dtype);
#endif
