// Matrix products: shared by choose_linear.c, which chooses a kernel, and launch_linear.c, which launches it.
//
//   y[m, n] = epilogue(x[m, k] w[n, k]^T)      epilogue: bias, activation, gate, scale, residual (kernels/gemm.h)
//
//   method     source                        takes                                              tiles
//   ANY        gemm_any.cu                   float x, or k no multiple of 8                     64 x 64, ordinary arithmetic
//   GEMV       gemv.cu                       m <= 16                                            16 columns; bound by reading w once
//   WGMMA      gemm_{bf16,fp8,int8}_sm90.cu  9.0, a common epilogue, aligned y                  128 rows x 128 (ping-pong), 160 to 256; 192 x 160 to 192
//   SPLIT      gemm_split{,_int8}_sm90.cu    9.0, bf16, int8: few rows (k shared), any epilogue  128 rows x 64 or 128, bf16 256 too
//   PORTABLE   gemm_{bf16,fp8,int8}.cu       everything else, any GPU from 8.0                  32 x 32 .. 128 x 256; up to 700 rows k can be shared
#ifndef SUMI_CUDA_LINEAR_H
#define SUMI_CUDA_LINEAR_H
#include "cuda/arrange.h"
#include "kernels/gemm.h"
#include <stdbool.h>
#include <stddef.h>

// clang-format off
// The lower-case ends are the names of epilogues in kernels/gemm.h.
typedef enum sumi_cuda_epilogue {
    SUMI_CUDA_EPILOGUE_plain, SUMI_CUDA_EPILOGUE_bias, SUMI_CUDA_EPILOGUE_gelu, SUMI_CUDA_EPILOGUE_gelu_erf, SUMI_CUDA_EPILOGUE_swiglu, SUMI_CUDA_EPILOGUE_resid, SUMI_CUDA_EPILOGUE_resid_bias,
    SUMI_CUDA_EPILOGUE_gate, SUMI_CUDA_EPILOGUE_gate_bias, SUMI_CUDA_EPILOGUE_any
} sumi_cuda_epilogue;

typedef enum sumi_cuda_method { SUMI_CUDA_METHOD_ANY, SUMI_CUDA_METHOD_GEMV, SUMI_CUDA_METHOD_WGMMA, SUMI_CUDA_METHOD_SPLIT, SUMI_CUDA_METHOD_PORTABLE } sumi_cuda_method;
// clang-format on

typedef struct sumi_cuda_wgmma {
    const char* name;
    sumi_cuda_epilogue epilogue;
    sumi_cuda_operands operands;
    bool is_ping_pong, has_halves;
    int32_t rows, cols, stages, slab_rows, slab_cols; // slab: what one TMA store takes
    uint32_t threads, shared;
} sumi_cuda_wgmma;
extern const sumi_cuda_wgmma sumi_cuda_wgmma_kernels[];

typedef struct sumi_cuda_split {
    const char *any, *swiglu;
    sumi_cuda_operands operands;
    int32_t cols;
    uint32_t shared;
} sumi_cuda_split;
extern const sumi_cuda_split sumi_cuda_split_kernels[];

typedef struct sumi_cuda_portable {
    const char *plain, *swiglu, *any;             // NULL: there is none
    int32_t rows, cols, k_bytes, threads, blocks; // blocks: most on a multiprocessor
    uint32_t shared;
    sumi_cuda_operands operands;
    bool shares_k;
} sumi_cuda_portable;
extern const sumi_cuda_portable sumi_cuda_portable_kernels[];

typedef struct sumi_cuda_shape {
    int32_t m, n, k;
    sumi_cuda_operands operands;
    bool reads_aligned; // rows of x and w begin at multiples of 16 bytes
    sumi_cuda_epilogue epilogue;
} sumi_cuda_shape;

typedef struct sumi_cuda_linear_choice {
    sumi_cuda_method method;
    int32_t kernel;    // in the method's list
    int32_t split;     // into how many ranges k is split
    int32_t unit_rows; // slices begin at multiples of it
} sumi_cuda_linear_choice;

// The choice follows from the whole op's shape, so that a slice gives the same bits.
sumi_cuda_linear_choice sumi_cuda_choose_linear(const sumi_cuda_device* device, bool allows_hopper,
                                                const sumi_cuda_shape* shape);
// Lists every choice that can compute the shape, for measurements. Returns how many there are.
int32_t sumi_cuda_list_linear(const sumi_cuda_device* device, bool allows_hopper, const sumi_cuda_shape* shape,
                              sumi_cuda_linear_choice* out_list, int32_t capacity);

// For two products with one n and k in the same launch: the number of the kernel in sumi_cuda_wgmma_kernels with whose tile
// both are computed. -1: there is none, or they take less time one after the other. Follows from the shapes of the whole
// ops. A device's forced kernel is the one for both, if sumi_cuda_pair_name knows it.
int32_t sumi_cuda_choose_pair(const sumi_cuda_device* device, const sumi_cuda_shape* first,
                              const sumi_cuda_shape* second);
// Name of the kernel for two products that has the tile of this one of sumi_cuda_wgmma_kernels; NULL: there is none.
const char* sumi_cuda_pair_name(int32_t kernel);

// Name of the kernel with this epilogue; NULL: there is none.
const char* sumi_cuda_portable_name(const sumi_cuda_portable* kernel, sumi_cuda_epilogue epilogue);
// Bytes of scratch for partial sums of shared k.
uint64_t sumi_cuda_partial_sum_bytes(const sumi_cuda_linear_choice* choice, int32_t m, int32_t n);
// Work items of a cluster: two tiles one above the other; in an odd last row of tiles, two tiles side by side.
int64_t sumi_cuda_tile_pairs(int32_t m, int32_t n, int32_t rows, int32_t cols);
// How many of a WGMMA product's items are computed whole, before those that are computed as two halves: if the last
// round has work for at most half of the clusters, halves take half its time. No bit depends on it.
int64_t sumi_cuda_whole_items(const sumi_cuda_wgmma* kernel, int64_t items, int64_t clusters);
#endif
