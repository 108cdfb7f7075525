// The runner for NVIDIA GPUs, on the CUDA driver API.
#ifndef SUMI_CUDA_CUDA_H
#define SUMI_CUDA_CUDA_H
#include "base/memory.h"
#include "base/workers.h"
#include "plan/runner.h"
#include <stdbool.h>
#include <stdint.h>

// Options of the runner that only tests set.
typedef struct sumi_cuda_options {
    bool without_graphs; // launch ops one by one (tests, profiles)
    bool without_hopper; // portable kernels on every device (tests)
    int32_t max_graphs;  // of all plans together; 0: SUMI_CUDA_MAX_GRAPHS
} sumi_cuda_options;

// Opens the driver and the device that `desc` describes. Loads no kernels; the runner's function `load` does. `workers`
// help to copy weights. options NULL: none. Failures: SUMI_NO_DEVICE, SUMI_DRIVER_TOO_OLD, SUMI_DEVICE_UNSUPPORTED,
// SUMI_OUT_OF_HOST_MEMORY, SUMI_OUT_OF_DEVICE_MEMORY.
sumi_result sumi_cuda_create(sumi_heap* heap, sumi_workers* workers, const sumi_engine_desc* desc,
                             const sumi_cuda_options* options, sumi_error* error, sumi_runner** out_runner);
// Writes the compute capabilities for which the library has machine code: "8.0 8.9 9.0a 12.0". Other devices compile
// PTX when kernels are first loaded. "": there is none. Asks no driver. Any thread.
void sumi_cuda_machine_code(char* text, size_t capacity);
#endif
