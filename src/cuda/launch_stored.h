// Products that read a weight as it is stored (stored.h), and unpacking it for others.
#ifndef SUMI_CUDA_LAUNCH_STORED_H
#define SUMI_CUDA_LAUNCH_STORED_H
#include "cuda/launch.h"
#include "kernels/stored.h"

// How a product of few rows is done; tile -1: it is not, the weight is unpacked.
typedef struct sumi_cuda_stored_choice {
    int32_t tile, unit_rows;
    int32_t blocks;             // that share k: of a tile, or on Hopper all of a row of tiles
    int32_t cluster;            // Hopper: blocks that share a tile, in a cluster; 1: see the kernel
    uint64_t partial_sum_bytes; // scratch
} sumi_cuda_stored_choice;
// By the whole op's rows, so that a slice gives the same bits.
sumi_cuda_stored_choice sumi_cuda_choose_stored(const sumi_cuda_device* device, bool allows_hopper,
                                                const sumi_weight* weight, sumi_cuda_form form, int32_t rows);

// The whole weight to bfloat16 at `to`, rows as FORM_GATED has them or in order.
sumi_result sumi_cuda_unpack(const sumi_cuda_run* run, const sumi_weight* weight, sumi_cuda_form form, CUdeviceptr from,
                             bool is_gated, CUdeviceptr to);
// args: x, m, ldx, swiglu, is_gated and finish are the caller's.
sumi_result sumi_cuda_launch_stored(const sumi_cuda_run* run, const sumi_weight* weight, sumi_cuda_form form,
                                    CUdeviceptr from, const sumi_cuda_stored_choice* choice,
                                    sumi_gemm_stored_args* args);
#endif
