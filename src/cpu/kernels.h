// The inner loops of the CPU backend, once for each instruction set. The same source (body_*.h, written with vector.h)
// is compiled three times: portable C with vectors of 4 floats, AVX2 with 8, AVX-512 with 16. sumi_cpu_create picks one
// table at run time. All other code of the backend is plain C.
//
// Within one table a result never depends on how the work was split: every function handles each row (or element)
// separately, always in the same order. Two tables may differ in the last bits, because sums run over 4, 8 or 16 lanes
// and portable C has no fused multiply-add.
#ifndef SUMI_CPU_KERNELS_H
#define SUMI_CPU_KERNELS_H
#include "plan/ops.h"
#include <stddef.h>

// Depth of one block of a matrix product. 256 is a multiple of every quantised block, and two vectors x 256 of B with a
// tile of A fit a 48 KiB L1.
#define SUMI_CPU_DEPTH 256
// Floats from row to row of a tile of A. A constant, so that rows are displacements from one register; an odd number of
// cache lines (17), so that rows do not fall into the same cache sets.
#define SUMI_CPU_A_STRIDE 272
#define SUMI_CPU_MAX_TILE_ROWS 14
#define SUMI_CPU_MAX_TILE_COLS 32

// The epilogue of a product for one row, c its sums:
//   y = act(c + bias)        residual: y = residual + gate * act(c + bias)        accumulates: y += gate * scale * c
typedef struct sumi_cpu_finish {
    const float* bias; // per column, or NULL
    const float* gate; // per column, or NULL
    sumi_activation activation;
    bool accumulates;
    float scale;
} sumi_cpu_finish;

typedef struct sumi_cpu_kernels {
    const char* name;
    int32_t tile_rows, tile_cols; // of the tile of C in registers

    // C[rows x tile_cols] (+)= A[rows x depth] B[depth x tile_cols]; rows <= tile_rows, depth <= SUMI_CPU_DEPTH. A is
    // row-major with pitch SUMI_CPU_A_STRIDE. B is a packed panel: tile_cols floats for each k of the depth, aligned to
    // tile_cols floats or to 64 bytes. C has c_stride floats from row to row; `first` starts from zero, otherwise the
    // sums continue from C. Every element is one chain of (fused) multiply-adds in the order of k, for any number of
    // rows.
    void (*tile)(int32_t rows, int32_t depth, const float* a, const float* b, float* c, ptrdiff_t c_stride, bool first);
    // As tile, for the first tile_cols / 2 columns of the panel and of C; the other columns of C keep their values.
    void (*half_tile)(int32_t rows, int32_t depth, const float* a, const float* b, float* c, ptrdiff_t c_stride,
                      bool first);
    // Packs `count` <= tile_cols rows of `depth` elements as the columns of a panel; missing columns become 0. The rows
    // need no alignment.
    void (*pack_f32)(float* panel, const void* const* rows, int32_t count, int32_t depth);
    void (*pack_f16)(float* panel, const void* const* rows, int32_t count, int32_t depth);
    void (*pack_bf16)(float* panel, const void* const* rows, int32_t count, int32_t depth);
    // y[r * y_stride] = x[r * x_stride ..] . w for r < rows <= 4, for products of few rows. Same order of sums for
    // every r.
    void (*dot_f32)(const float* x, ptrdiff_t x_stride, int32_t rows, const void* w, int32_t depth, float* y,
                    ptrdiff_t y_stride);
    void (*dot_f16)(const float* x, ptrdiff_t x_stride, int32_t rows, const void* w, int32_t depth, float* y,
                    ptrdiff_t y_stride);
    void (*dot_bf16)(const float* x, ptrdiff_t x_stride, int32_t rows, const void* w, int32_t depth, float* y,
                     ptrdiff_t y_stride);
    // Applies the epilogue to `count` columns of a row; all pointers, bias and gate too, begin at the same column.
    void (*finish)(const sumi_cpu_finish* finish, float* y, const float* c, const float* residual, int32_t count);

    // y may be x.
    void (*activate)(sumi_activation activation, float* y, const float* x, size_t count);
    // y = act(x) * factor
    void (*gated)(sumi_activation activation, float* y, const float* x, const float* factor, size_t count);
    float (*sum)(const float* x, int32_t count);
    // Sum of (x - mean)^2.
    float (*sum_squares)(const float* x, float mean, int32_t count);
    // y = (x - mean) * factor * w * scale + shift; w, scale, shift may be NULL
    void (*normalise)(float* y, const float* x, float mean, float factor, const float* w, const float* scale,
                      const float* shift, int32_t count);
    // y = x + gate * (b * factor * w). w and gate may be NULL.
    void (*gate_add)(float* y, const float* x, const float* b, float factor, const float* w, const float* gate,
                     int32_t count);
    // Rotates one head in place (rotary embedding).
    void (*rotate)(float* x, const float* cos_sin, int32_t pairs, sumi_rotary rotary);
    // sums += x, or sums += (x - mean)^2 if mean is not NULL.
    void (*channel_sums)(float* sums, const float* x, const float* mean, int32_t count);
    void (*channel_norm)(float* y, const float* x, const float* mean, const float* factor, const float* bias, bool silu,
                         int32_t count);
    // One row of online softmax over a block of scores: s = exp(s - m) with m = max(*max, s). Updates *max and *sum and
    // returns the factor by which older sums must be multiplied.
    float (*softmax)(float* s, int32_t count, float* max, float* sum);
    void (*scale)(float* y, const float* x, float factor, int32_t count);
} sumi_cpu_kernels;

extern const sumi_cpu_kernels sumi_cpu_kernels_portable;
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define SUMI_CPU_HAS_X86 1
extern const sumi_cpu_kernels sumi_cpu_kernels_avx2;
extern const sumi_cpu_kernels sumi_cpu_kernels_avx512;
#endif
#endif
