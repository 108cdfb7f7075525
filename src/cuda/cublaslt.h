// cuBLASLt, NVIDIA's library of matrix products. It is opened at run time if the host program allows it
// (sumi_engine_desc.cuda.cublaslt) and the machine has it. Nothing of it is linked, and none of its headers is needed.
//
//   y[m, n] = x[m, k] w[n, k]^T (+ bias) (+ residual)      bfloat16, float sums
//
// Products with any other epilogue stay with sumi's kernels. The product with gate and up of an MLP is an exception:
// where cuBLASLt is much faster than the portable kernels, a second launch for the gating pays.
//
// The rows of a product are cut into units that follow from the shape of the whole op, and each unit is one call,
// whatever slice it is in. The library may use another algorithm, with another order of sums, for another number of
// rows. The algorithm is the first one that its heuristics return, which is the same for the same library, driver and
// device.
#ifndef SUMI_CUDA_CUBLASLT_H
#define SUMI_CUDA_CUBLASLT_H
#include "base/memory.h"
#include "cuda/linear.h"

// Workspace of one call, in the op's scratch memory, in bytes: the size that NVIDIA's documentation recommends for 9.0
// and newer.
#define SUMI_CUDA_CUBLASLT_WORKSPACE (32u << 20)

typedef struct sumi_cuda_cublaslt sumi_cuda_cublaslt;

// Returns SUMI_OK with *out_lt NULL if the host program does not allow the library on this device, if it is not
// installed, or if it does not start. Here and below the context must be current.
sumi_result sumi_cuda_cublaslt_open(sumi_heap* heap, const sumi_cuda_device* device, sumi_cublaslt setting,
                                    sumi_cuda_cublaslt** out_lt, sumi_error* error);
void sumi_cuda_cublaslt_close(sumi_cuda_cublaslt* lt); // accepts NULL; no call may be running

// Whether the library has this epilogue. lt may be NULL.
bool sumi_cuda_cublaslt_supports(const sumi_cuda_cublaslt* lt, const sumi_cuda_shape* shape);
// Whether the library is to compute a product of this size instead of sumi's kernels.
bool sumi_cuda_cublaslt_is_preferred(const sumi_cuda_cublaslt* lt, const sumi_cuda_shape* shape);
int32_t sumi_cuda_cublaslt_unit_rows(const sumi_cuda_device* device, const sumi_cuda_shape* shape);

typedef struct sumi_cuda_cublaslt_call {
    int32_t m, n, k, ldx, ldw, ldy; // pitches in elements
    // bias and residual: 0 for none. The bias must be bfloat16; the residual has the pitch ldy and may be y. All
    // addresses are multiples of 16 bytes.
    CUdeviceptr x, w, y, bias, residual, workspace;
} sumi_cuda_cublaslt_call;

// Finds the algorithm of such a call, once for each size. *out_takes: there is one. If `stream` is not NULL, the
// algorithm's kernels are also loaded, by a capture in that stream that is thrown away, because the first use of a
// kernel inside a capture may break the capture. Nothing runs.
sumi_result sumi_cuda_cublaslt_prepare(sumi_cuda_cublaslt* lt, const sumi_cuda_cublaslt_call* call, CUstream stream,
                                       bool* out_takes, sumi_error* error);
// Launches a call that was prepared.
sumi_result sumi_cuda_cublaslt_launch(sumi_cuda_cublaslt* lt, const sumi_cuda_cublaslt_call* call, CUstream stream,
                                      sumi_error* error);
#endif
