// Where pictures go that do not go to host memory.
#ifndef SUMI_CUDA_TARGETS_H
#define SUMI_CUDA_TARGETS_H
#include "cuda/state.h"

// Into the compute stream, behind what is there. The context is current.
sumi_result sumi_cuda_publish(sumi_cuda* cuda, const sumi_plan* plan, const sumi_publication* picture, sumi_error* error);
#endif
