// Runs plans on an NVIDIA GPU by the driver API.
#ifndef SUMI_CUDA_CUDA_H
#define SUMI_CUDA_CUDA_H
#include "base/memory.h"
#include "base/workers.h"
#include "cuda/cuda_options.h"
#include "plan/runner.h"

// Opens driver and device as `desc` asks; loads no kernels yet (see `load` of the runner). `workers` help to copy
// weights. options NULL: none. SUMI_NO_DEVICE, SUMI_DRIVER_TOO_OLD, SUMI_DEVICE_UNSUPPORTED, SUMI_OUT_OF_HOST_MEMORY,
// SUMI_OUT_OF_DEVICE_MEMORY.
sumi_result sumi_cuda_create(sumi_heap* heap, sumi_workers* workers, const sumi_engine_desc* desc,
                             const sumi_cuda_options* options, sumi_error* error, sumi_runner** out_runner);
#endif
