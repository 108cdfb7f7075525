// Options of the runner that only tests set.
#ifndef SUMI_CUDA_CUDA_OPTIONS_H
#define SUMI_CUDA_CUDA_OPTIONS_H
#include <stdbool.h>
#include <stdint.h>

typedef struct sumi_cuda_options {
    bool without_graphs; // launch ops one by one (tests, profiles)
    bool without_hopper; // portable kernels on every device (tests)
    int32_t max_graphs;  // of all plans together; 0: SUMI_CUDA_MAX_GRAPHS
} sumi_cuda_options;
#endif
