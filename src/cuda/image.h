// The images of kernels that are embedded in the library, and how one is loaded.
#ifndef SUMI_CUDA_IMAGE_H
#define SUMI_CUDA_IMAGE_H
#include "base/memory.h"
#include "cuda/device.h"

// Made by the build from kernels/*.cu (kernel_images.c, kernels/build.sh): one image for each source and target. Images
// of one source are neighbours in the list.
typedef struct sumi_cuda_image {
    const char* source; // "gemm_bf16_sm90": the name of the .cu file without its ending
    // Compute capability: 89 for 8.9. PTX is for 80, 89 or 90, machine code for these and others. 90 means 9.0a, exactly
    // that capability; other PTX runs on everything newer, other machine code on newer devices of the same major
    // version.
    int32_t target;
    // machine code, which needs no compiling. The newest that the device runs is tried first; otherwise the PTX is used
    bool is_binary;
    const unsigned char* data;
    uint32_t packed_bytes, bytes; // compressed by zlib; PTX includes its terminating zero
    const char* const* kernels;   // names of the source's kernels; no two sources have kernels of the same name
    int32_t kernel_count;
} sumi_cuda_image;
extern const sumi_cuda_image sumi_cuda_images[];
extern const int32_t sumi_cuda_image_count;

#define SUMI_CUDA_LOG_BYTES 2048

// Whether PTX can be compiled by several threads at once: cuModuleLoadDataEx compiles one image after the other,
// whatever thread calls it (driver 580: 40 s for all images in four threads, cuLinkComplete 12 s). Both keep what they
// have compiled in the driver's cache on disk.
bool sumi_cuda_can_compile_at_once(const sumi_cuda_device* device);
// Loads an image. If the driver refuses it, *out_module is NULL, the result is SUMI_OK, *out_refusal is the driver's
// code, and `log`, of SUMI_CUDA_LOG_BYTES, has the driver's message. Compiling PTX takes up to seconds. Any thread; the
// context must be current.
sumi_result sumi_cuda_load_image(sumi_heap* heap, const sumi_cuda_device* device, const sumi_cuda_image* image,
                                 CUmodule* out_module, CUresult* out_refusal, char* log, sumi_error* error);

// ---- Compiling (compile.c)

// Compiles images of PTX on a few extra threads, while the host program continues. For cards that are newer than the
// library, or whose driver refuses its machine code: an image takes up to ten seconds the first time, and milliseconds
// once the driver has it in its cache.

typedef struct sumi_cuda_compiler sumi_cuda_compiler;

// An image, and the result of compiling it.
typedef struct sumi_cuda_compiled {
    const sumi_cuda_image* image;
    CUmodule module; // NULL: it could not be loaded
    // SUMI_OK without a module: the driver has refused the image, with this code and this message.
    sumi_result result;
    CUresult refusal;
    char log[SUMI_CUDA_LOG_BYTES];
    sumi_error error; // if result is not SUMI_OK
} sumi_cuda_compiled;

// Begins. Images that take long should come first. `items` must stay where it is until the end. SUMI_OUT_OF_HOST_MEMORY:
// memory or threads have run out.
sumi_result sumi_cuda_compile_begin(sumi_heap* heap, const sumi_cuda_device* device, sumi_cuda_compiled* items,
                                    int32_t count, sumi_error* error, sumi_cuda_compiler** out_compiler);
int32_t sumi_cuda_compile_done(const sumi_cuda_compiler* compiler); // how many images it is done with
// Waits for its threads, and frees it. No image can be interrupted.
void sumi_cuda_compile_end(sumi_cuda_compiler* compiler);
#endif
