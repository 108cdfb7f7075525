// cuBLASLt, NVIDIA's library of matrix products, opened at run time where the host allows it
// (sumi_engine_desc.cuda.cublaslt) and the machine has it. Nothing of it is linked, none of its headers is needed.
//
//   y[m, n] = x[m, k] w[n, k]^T (+ bias) (+ residual)      bfloat16, sums in float; what else an epilogue does stays with our kernels
//
// But gate and up of an MLP: where it is so much faster than our portable kernels that a second launch for the gating
// pays.
//
// A product's rows are cut into units that follow from the whole op's shape; each is one call, whole, in whichever
// slice: the library may take another algorithm for another number of rows, and with it another order of sums. The
// algorithm is the first that its heuristics name, which is the same for the same library, driver and device.
#ifndef SUMI_CUDA_CUBLASLT_H
#define SUMI_CUDA_CUBLASLT_H
#include "base/memory.h"
#include "cuda/linear.h"

// of one call, in the op's scratch memory; what its documentation recommends for 9.0 and newer
#define SUMI_CUDA_CUBLASLT_WORKSPACE (32u << 20)

typedef struct sumi_cuda_cublaslt sumi_cuda_cublaslt;

// *out_lt NULL and SUMI_OK: the host does not want it on this device, or it is not there, or does not start. The
// context is current here and below.
sumi_result sumi_cuda_cublaslt_open(sumi_heap* heap, const sumi_cuda_device* device, sumi_cublaslt setting,
                                    sumi_cuda_cublaslt** out_lt, sumi_error* error);
void sumi_cuda_cublaslt_close(sumi_cuda_cublaslt* lt); // accepts NULL; nothing of it runs

// it has this epilogue; lt may be NULL
bool sumi_cuda_cublaslt_can(const sumi_cuda_cublaslt* lt, const sumi_cuda_shape* shape);
// and by its size takes it from our kernels
bool sumi_cuda_cublaslt_wants(const sumi_cuda_cublaslt* lt, const sumi_cuda_shape* shape);
int32_t sumi_cuda_cublaslt_unit_rows(const sumi_cuda_device* device, const sumi_cuda_shape* shape);

typedef struct sumi_cuda_cublaslt_call {
    int32_t m, n, k, ldx, ldw, ldy; // pitches in elements
    // bias, residual: 0 for none. bias: bfloat16, the only type it takes here; residual: pitch ldy, may be y. All at
    // multiples of 16 bytes
    CUdeviceptr x, w, y, bias, residual, workspace;
} sumi_cuda_cublaslt_call;

// Finds the algorithm of such a call, once for each size; *out_takes: there is one. `stream`, when not NULL, has it
// loaded too, by a capture that is thrown away: what is first used inside a capture may break it. Nothing runs.
sumi_result sumi_cuda_cublaslt_prepare(sumi_cuda_cublaslt* lt, const sumi_cuda_cublaslt_call* call, CUstream stream,
                                       bool* out_takes, sumi_error* error);
// of a call that was prepared
sumi_result sumi_cuda_cublaslt_launch(sumi_cuda_cublaslt* lt, const sumi_cuda_cublaslt_call* call, CUstream stream,
                                      sumi_error* error);
#endif
