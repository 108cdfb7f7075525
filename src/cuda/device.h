// One device: its properties, its context, its streams. Every entry into the backend is enclosed by sumi_cuda_enter and
// sumi_cuda_leave, which leave the caller's current context and capture mode as they were.
#ifndef SUMI_CUDA_DEVICE_H
#define SUMI_CUDA_DEVICE_H
#include "cuda/driver.h"

typedef struct sumi_cuda_device {
    sumi_cuda_driver driver;
    CUdevice device;
    CUcontext context;
    bool has_primary;       // sumi retained the primary context; otherwise the context is the host program's
    CUstream compute, copy; // sumi owns `copy`, and `compute` if owns_compute is true
    bool owns_compute;
    char name[96];      // "NVIDIA H200, driver 13.0"
    int32_t capability; // 90 for 9.0
    int32_t multiprocessors;
    int32_t shared_per_block; // the most dynamic shared memory of a block, after opting in
    int32_t shared_per_multiprocessor;
    int32_t l2_bytes;
    uint64_t bytes;
    uint8_t uuid[16], luid[8]; // zero if the driver does not report them
    // What every product uses, set by tests/tune_cuda_linear.c (linear.h). NULL: nothing is forced.
    const struct sumi_cuda_linear_choice* forced_linear;
} sumi_cuda_device;

// Throughput of bfloat16 products with float sums, in floating-point operations per multiprocessor and clock. GeForce
// chips (8.6, 8.9, 12.x) have a quarter of 8.0's.
static inline double sumi_cuda_flops_per_clock(const sumi_cuda_device* device)
{
    const int32_t family = device->capability / 10;
    return family == 9 ? 4096.0 : family == 10 || family == 11 ? 8192.0 : device->capability == 80 ? 2048.0 : 512.0;
}

// Whether longer k-blocks pay: these chips have more tensor throughput per byte of shared memory than others.
static inline bool sumi_cuda_has_wide_multiprocessors(const sumi_cuda_device* device)
{
    return device->capability == 80 || device->capability == 90;
}

// Whether the kernels for Hopper (TMA and wgmma) are to be used. allows_hopper: false in tests of the portable kernels.
bool sumi_cuda_has_hopper(const sumi_cuda_device* device, bool allows_hopper);

// Opens the device that sumi_engine_desc.cuda describes. Failures: SUMI_NO_DEVICE (also if no device has this uuid,
// luid or ordinal), SUMI_DEVICE_UNSUPPORTED (before 8.0), SUMI_INVALID_ARGUMENT (a stream that is being captured).
sumi_result sumi_cuda_device_open(sumi_cuda_device* device, const sumi_engine_desc* desc, sumi_error* error);
// Accepts a zeroed struct and one whose opening failed half-way. Waits for sumi's streams.
void sumi_cuda_device_close(sumi_cuda_device* device);

// The state of a thread before it entered. It lies on the caller's stack, because several threads may be inside.
typedef struct sumi_cuda_scope {
    CUstreamCaptureMode mode;
} sumi_cuda_scope;
// Pushes the context and relaxes the thread's capture mode, so that captures by other threads of the host program are
// not broken and do not make calls fail here. Captures by sumi use the thread-local mode and stay valid: the mode of a
// capture decides what it contains, the mode of a thread only what the thread may call meanwhile. Calls may nest. After
// a failure there is nothing to leave.
sumi_result sumi_cuda_enter(const sumi_cuda_device* device, sumi_cuda_scope* out_scope, sumi_error* error);
void sumi_cuda_leave(const sumi_cuda_device* device, const sumi_cuda_scope* scope);
#endif
