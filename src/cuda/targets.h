// Targets of pictures that are not in host memory: device memory and textures.
#ifndef SUMI_CUDA_TARGETS_H
#define SUMI_CUDA_TARGETS_H
#include "cuda/state.h"

// Puts the conversion into the compute stream. The context must be current.
sumi_result sumi_cuda_publish(sumi_cuda* cuda, const sumi_plan* plan, const sumi_publication* picture,
                              sumi_error* error);
// These are functions of the runner. The context must be current.
sumi_result sumi_cuda_import_gl(sumi_cuda* cuda, uint32_t texture, uint32_t target, int32_t width, int32_t height,
                                sumi_import* out_import, sumi_error* error);
void sumi_cuda_release_import(sumi_cuda* cuda, sumi_import* import);
sumi_result sumi_cuda_show(const sumi_cuda* cuda, const sumi_import* import, int32_t width, int32_t height,
                           sumi_error* error);
#endif
