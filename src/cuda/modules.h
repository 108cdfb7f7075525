// The kernels: compressed images embedded at build time, chosen by the device, unpacked, loaded and linked by the
// driver (which compiles PTX and caches the result).
#ifndef SUMI_CUDA_MODULES_H
#define SUMI_CUDA_MODULES_H
#include "base/memory.h"
#include "cuda/device.h"
#include "plan/runner.h"

// What the build makes of kernels/*.cu (kernel_images.c, see kernels/build.sh): one image per source and target, a
// source's images side by side.
typedef struct sumi_cuda_image {
    const char* source; // "gemm_bf16_sm90": the .cu's stem
    // 80, 89, 90 (for 90: of 9.0a, exactly that capability); PTX of 80 and 89 runs on it and everything newer
    int32_t target;
    bool is_binary; // machine code for exactly this capability: no compiling; tried first, PTX is the fallback
    const unsigned char* data;
    uint32_t packed_bytes, bytes; // zlib; PTX has its terminating zero
    const char* const* kernels;   // the source's kernels by name; no other source has one of the same
    int32_t kernel_count;
} sumi_cuda_image;
extern const sumi_cuda_image sumi_cuda_images[];
extern const int32_t sumi_cuda_image_count;

typedef struct sumi_cuda_modules sumi_cuda_modules;
// `images`: sumi_cuda_images, but for tests. They are referred to, not copied. Loads nothing yet.
sumi_result sumi_cuda_modules_create(sumi_heap* heap, const sumi_cuda_device* device, const sumi_cuda_image* images,
                                     int32_t image_count, sumi_error* error, sumi_cuda_modules** out_modules);
// accepts NULL. The context is current, and nothing uses the kernels
void sumi_cuda_modules_destroy(sumi_cuda_modules* modules);
// Loads the next source that this device needs and that is not loaded; *out_done with the last one. PTX that the driver
// has not cached takes up to seconds: callers run this away from frames. A source of more than 8.0 that this driver
// cannot take is left out (sumi_cuda_has_kernel says so); one of 8.0 is a failure: SUMI_DRIVER_TOO_OLD,
// SUMI_DEVICE_UNSUPPORTED, SUMI_OUT_OF_HOST_MEMORY, SUMI_OUT_OF_DEVICE_MEMORY, SUMI_INTERNAL. A failed step can be
// tried again. The context is current.
sumi_result sumi_cuda_modules_step(sumi_cuda_modules* modules, bool* out_done, float* out_progress, sumi_error* error);
// A kernel by name, ready for `shared_bytes` of dynamic shared memory. SUMI_INTERNAL when no loaded image has it. It
// stays what it is while the modules live. The context is current;
// a capture of this thread may be under way. Allocates nothing.
sumi_result sumi_cuda_kernel(sumi_cuda_modules* modules, const char* name, uint32_t shared_bytes,
                             CUfunction* out_function, sumi_error* error);
bool sumi_cuda_has_kernel(const sumi_cuda_modules* modules, const char* name); // asks no driver
// Every kernel that is made for this device, loaded or not, and how often sumi_cuda_kernel was asked for it.
void sumi_cuda_list_kernels(const sumi_cuda_modules* modules, sumi_kernel_callback* seen, void* user_data);
#endif
