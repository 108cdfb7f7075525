// Options of the runner that only tests set.
#ifndef SUMI_CUDA_CUDA_OPTIONS_H
#define SUMI_CUDA_CUDA_OPTIONS_H
#include <stdbool.h>

typedef struct sumi_cuda_options {
    bool without_graphs; // launch ops one by one (tests, profiles)
    bool without_hopper; // portable kernels on every device (tests)
} sumi_cuda_options;
#endif
