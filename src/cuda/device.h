// One device: which it is, its context, its streams. The caller's current context and capture mode are left as they
// were: every entry into the backend is bracketed by sumi_cuda_enter and sumi_cuda_leave.
#ifndef SUMI_CUDA_DEVICE_H
#define SUMI_CUDA_DEVICE_H
#include "cuda/driver.h"

typedef struct sumi_cuda_device {
    sumi_cuda_driver driver;
    CUdevice device;
    CUcontext context;
    bool has_primary;       // retained by us; otherwise the context is the host's
    CUstream compute, copy; // copy is always ours; compute is ours when owns_compute
    bool owns_compute;
    char name[96];      // "NVIDIA H200, driver 13.0"
    int32_t capability; // 90 for 9.0
    int32_t multiprocessors;
    int32_t shared_per_block; // most dynamic shared memory of a block, opted in
    int32_t shared_per_multiprocessor;
    int32_t l2_bytes;
    uint64_t bytes;
    struct sumi_cuda_cublaslt* cublaslt; // NULL: not to be used, or not there (cublaslt.h)
    // NULL; tests/tune_cuda_linear.c: what every product takes (linear.h)
    const struct sumi_cuda_linear_choice* forced_linear;
} sumi_cuda_device;

// bfloat16 products with float sums, in operations per multiprocessor and clock. GeForce chips (8.6, 8.9, 12.x) have a
// quarter of 8.0's.
static inline double sumi_cuda_flops_per_clock(const sumi_cuda_device* device)
{
    const int32_t family = device->capability / 10;
    return family == 9 ? 4096.0 : family == 10 || family == 11 ? 8192.0 : device->capability == 80 ? 2048.0 : 512.0;
}

// As sumi_engine_desc.cuda asks. SUMI_NO_DEVICE (also: no device of this uuid, luid, ordinal), SUMI_DEVICE_UNSUPPORTED
// (before 8.0), SUMI_INVALID_ARGUMENT (a stream that is being captured).
sumi_result sumi_cuda_device_open(sumi_cuda_device* device, const sumi_engine_desc* desc, sumi_error* error);
// accepts a zeroed one, and one that failed half-way; waits for our streams
void sumi_cuda_device_close(sumi_cuda_device* device);

// What a thread had when it entered: on the caller's stack, since several threads may be inside.
typedef struct sumi_cuda_scope {
    CUstreamCaptureMode mode;
} sumi_cuda_scope;
// Pushes the context and relaxes the thread's capture mode, so that captures of the host's other threads are neither
// spoilt nor in the way. Captures of ours are in thread-local mode: they hold all the same, since the mode of a capture
// decides what goes into it, and the thread's only what the thread may do meanwhile. Nests. Failed: nothing to leave.
sumi_result sumi_cuda_enter(const sumi_cuda_device* device, sumi_cuda_scope* out_scope, sumi_error* error);
void sumi_cuda_leave(const sumi_cuda_device* device, const sumi_cuda_scope* scope);
#endif
