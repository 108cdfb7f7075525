// The kernels: compressed images embedded at build time. They are chosen by the device's capability, unpacked, and
// loaded by the driver, which compiles PTX and caches the result.
#ifndef SUMI_CUDA_MODULES_H
#define SUMI_CUDA_MODULES_H
#include "base/memory.h"
#include "cuda/device.h"
#include "plan/runner.h"

// Made by the build from kernels/*.cu (kernel_images.c, kernels/build.sh): one image for each source and target. Images
// of one source are neighbours in the list.
typedef struct sumi_cuda_image {
    const char* source; // "gemm_bf16_sm90": the name of the .cu file without its ending
    // 80, 89 or 90. 90 means 9.0a, exactly that capability; PTX of 80 and 89 runs on these and on everything newer.
    int32_t target;
    // machine code for exactly this capability, which needs no compiling. It is tried first; otherwise the PTX is used
    bool is_binary;
    const unsigned char* data;
    uint32_t packed_bytes, bytes; // compressed by zlib; PTX includes its terminating zero
    const char* const* kernels;   // names of the source's kernels; no two sources have kernels of the same name
    int32_t kernel_count;
} sumi_cuda_image;
extern const sumi_cuda_image sumi_cuda_images[];
extern const int32_t sumi_cuda_image_count;

typedef struct sumi_cuda_modules sumi_cuda_modules;
// `images`: sumi_cuda_images, except in tests. They are referred to, not copied. Loads nothing yet.
sumi_result sumi_cuda_modules_create(sumi_heap* heap, const sumi_cuda_device* device, const sumi_cuda_image* images,
                                     int32_t image_count, sumi_error* error, sumi_cuda_modules** out_modules);
// Accepts NULL. The context must be current, and nothing may be using the kernels.
void sumi_cuda_modules_destroy(sumi_cuda_modules* modules);
// Loads the next source that this device needs; *out_done: that was the last one. PTX that the driver has not cached
// takes up to seconds, so callers do this outside of frames. A source for more than 8.0 that this driver cannot load is
// left out (sumi_cuda_has_kernel says so). A source for 8.0 that it cannot load is a failure: SUMI_DRIVER_TOO_OLD,
// SUMI_DEVICE_UNSUPPORTED, SUMI_OUT_OF_HOST_MEMORY, SUMI_OUT_OF_DEVICE_MEMORY, SUMI_INTERNAL. A failed step can be
// repeated. The context must be current.
sumi_result sumi_cuda_modules_step(sumi_cuda_modules* modules, bool* out_done, float* out_progress, sumi_error* error);
// Makes the driver load the code of up to `count` more kernels, after all modules were loaded. A driver that loads code
// lazily takes up to 0.35 ms for one (H100), and may wait for everything that runs in the context, so the first job
// should find its kernels loaded. A failure is
// left to the kernel's first use. The context must be current.
void sumi_cuda_modules_ready_step(sumi_cuda_modules* modules, int32_t count, bool* out_done);
// Finds a kernel by name and allows it `shared_bytes` of dynamic shared memory. SUMI_INTERNAL if no loaded image has
// it. The kernel stays valid as long as the modules. The context must be current; this thread may be capturing.
// Allocates nothing.
sumi_result sumi_cuda_kernel(sumi_cuda_modules* modules, const char* name, uint32_t shared_bytes,
                             CUfunction* out_function, sumi_error* error);
bool sumi_cuda_has_kernel(const sumi_cuda_modules* modules, const char* name); // asks no driver
// Lists every kernel made for this device, loaded or not, with the number of times that sumi_cuda_kernel was asked for
// it.
void sumi_cuda_list_kernels(const sumi_cuda_modules* modules, sumi_kernel_callback* seen, void* user_data);
#endif
