// Compiles images of PTX on a few extra threads, while the host program continues. For cards that are newer than the
// library, or whose driver refuses its machine code: an image takes up to ten seconds the first time, and milliseconds
// once the driver has it in its cache.
#ifndef SUMI_CUDA_COMPILE_H
#define SUMI_CUDA_COMPILE_H
#include "cuda/image.h"

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
