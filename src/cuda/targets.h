// Targets of pictures that are not in host memory.
#ifndef SUMI_CUDA_TARGETS_H
#define SUMI_CUDA_TARGETS_H
#include "cuda/state.h"

// Puts the conversion into the compute stream. The context must be current.
sumi_result sumi_cuda_publish(sumi_cuda* cuda, const sumi_plan* plan, const sumi_publication* picture,
                              sumi_error* error);
#endif
