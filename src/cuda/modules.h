// The kernels: images that are chosen by the device's capability and loaded by the driver. Machine code is loaded with
// the model. Where there is only PTX for the device, large images wait until a plan wants one of their kernels, because
// the driver needs half a minute to compile all of them and a plan uses a third:
//
//   load a model    machine code, and small images
//   plan            a walk over its ops notes the images of their kernels --> image.h --> modules
#ifndef SUMI_CUDA_MODULES_H
#define SUMI_CUDA_MODULES_H
#include "cuda/image.h"
#include "plan/runner.h"

typedef struct sumi_cuda_modules sumi_cuda_modules;
// `images`: sumi_cuda_images, except in tests. They are referred to, not copied. Loads nothing yet.
sumi_result sumi_cuda_modules_create(sumi_heap* heap, const sumi_cuda_device* device, const sumi_cuda_image* images,
                                     int32_t image_count, sumi_error* error, sumi_cuda_modules** out_modules);
// Accepts NULL. The context must be current, and nothing may be using the kernels.
void sumi_cuda_modules_destroy(sumi_cuda_modules* modules);
// Loads the next source that this device needs; *out_done: that was the last one. PTX that the driver has not cached
// takes up to seconds, so callers do this outside of frames. Large images of PTX are left for later if several can be
// compiled at once. A source for more than 8.0 that this driver cannot load is
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
// Whether the kernel's image is loaded, or waits to be compiled. Asks no driver.
bool sumi_cuda_has_kernel(const sumi_cuda_modules* modules, const char* name);

// Whether images wait to be compiled.
bool sumi_cuda_modules_wait(const sumi_cuda_modules* modules);
// From now on, if a kernel waits to be compiled, sumi_cuda_kernel notes its image and returns no function.
void sumi_cuda_modules_note_wanted(sumi_cuda_modules* modules, bool enabled);
// Begins to compile the images that were noted, or checks the progress. Does not block. *out_done: all of them are
// loaded. An image that failed may be tried again, but one that the driver refused is left out from then on. The
// context must be current.
sumi_result sumi_cuda_modules_compile(sumi_cuda_modules* modules, bool* out_done, sumi_error* error);
// How many images are compiled now, and how many of them are done. 0: none.
int32_t sumi_cuda_modules_compiling(const sumi_cuda_modules* modules, int32_t* out_done);
// Lists every kernel made for this device, loaded or not, with the number of times that sumi_cuda_kernel was asked for
// it.
void sumi_cuda_list_kernels(const sumi_cuda_modules* modules, sumi_kernel_callback* seen, void* user_data);
#endif
