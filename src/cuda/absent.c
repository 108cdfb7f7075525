// Takes the place of this module folder in a build without nvcc, or with --no-cuda.
#include "cuda/cuda.h"

sumi_result sumi_cuda_create(sumi_heap* heap, sumi_workers* workers, const sumi_engine_desc* desc,
                             const sumi_cuda_options* options, sumi_error* error, sumi_runner** out_runner)
{
    (void)heap, (void)workers, (void)desc, (void)options;
    *out_runner = NULL;
    return sumi_fail(error, SUMI_NOT_SUPPORTED,
                     "this program was built without the CUDA backend: choose the CPU backend, or build sumi with "
                     "nvcc (see third_party/README.md)");
}

void sumi_cuda_machine_code(char* text, size_t capacity)
{
    if (capacity > 0) text[0] = 0;
}
