// Products that read a weight as it is stored (stored.h), and unpacking of stored weights for other products.
#ifndef SUMI_CUDA_LAUNCH_STORED_H
#define SUMI_CUDA_LAUNCH_STORED_H
#include "cuda/launch.h"
#include "kernels/stored.h"

// How a product of few rows is computed. tile -1: not by this kernel; the weight is unpacked first.
typedef struct sumi_cuda_stored_choice {
    int32_t tile, unit_rows;
    int32_t blocks;             // blocks that share k: those of one tile, or on Hopper all blocks of a row of tiles
    int32_t cluster;            // Hopper: blocks of a cluster, which share a tile; 1: see the kernel
    uint64_t partial_sum_bytes; // bytes of scratch for partial sums
} sumi_cuda_stored_choice;
// Depends on the rows of the whole op, so that slices give the same bits.
sumi_cuda_stored_choice sumi_cuda_choose_stored(const sumi_cuda_device* device, bool allows_hopper,
                                                const sumi_weight* weight, sumi_device_form form, int32_t rows);

// Unpacks the whole weight to bfloat16 at `to`. Rows are interleaved as FORM_GATED says, or in order.
sumi_result sumi_cuda_unpack(const sumi_cuda_run* run, const sumi_weight* weight, sumi_device_form form,
                             CUdeviceptr from, bool is_gated, CUdeviceptr to);
// args: the caller sets x, m, ldx, swiglu, is_gated and epilogue.
sumi_result sumi_cuda_launch_stored(const sumi_cuda_run* run, const sumi_weight* weight, sumi_device_form form,
                                    CUdeviceptr from, const sumi_cuda_stored_choice* choice,
                                    sumi_gemm_stored_args* args);
#endif
