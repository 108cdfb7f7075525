// Launch parameters of the matrix products, shared by the kernels and src/cuda: y = finish(x[m][k] w[n][k]^T), both
// operands with k contiguous.
// Addresses are 64-bit integers; pitches count elements. Which kernel takes which product: src/cuda/choose_linear.c.
#ifndef SUMI_KERNELS_GEMM_H
#define SUMI_KERNELS_GEMM_H
#include <stdint.h>

// What a kernel's epilogue does, fixed when it is compiled.
#define SUMI_EPI_BIAS 1   // + bias[n]
#define SUMI_EPI_GELU 2   // gelu, tanh form
#define SUMI_EPI_SWIGLU 4 // weight rows interleaved by 8 (8 of w1, 8 of w3, ...): y[:, n / 2] = silu(a) * b
#define SUMI_EPI_RESID 8  // y = resid + value
#define SUMI_EPI_GATE 16  // with RESID: y = resid + gate[n] * value
#define SUMI_EPI_SCALE 32 // value = sum * row_scale[m] * col_scale[n]      (e4m3, int8)
#define SUMI_EPI_ANY 64   // portable: sumi_gemm_finish, read at run time

// Everything that can happen to a finished sum on its way out, chosen at run time:
//   v = act(sum * row_scale[m] * col_scale[n] + bias[n]) * scale * gate[n] + residual[m, n]      each part optional; stored as bf16 or float
// Column c of the product is column `column` + c of y. half > 0: y is the input of a gated activation, [first half |
// second half] interleaved by 8, and that column is mapped.
typedef struct sumi_gemm_finish {
    uint64_t y, residual;          // [m][ldy] of the same type; residual 0: none; may be y itself
    uint64_t bias;                 // float [n]
    uint64_t row_scale, col_scale; // float [m], [n]: e4m3 and int8 operands only
    uint64_t gate, counter;        // step table (0: none), int32 that selects its row
    int32_t gate_stride, gate_column, gate_is_float;
    int32_t ldy, column, half;
    int32_t activation; // sumi_activation
    int32_t is_float;   // y and residual are float, else bf16
    int32_t is_aligned; // bf16, and y, ldy, column, n allow 16-byte accesses
    float scale;
} sumi_gemm_finish;

// ---- Hopper: TMA descriptors beside these ---------------------------------------------------------------------------
typedef struct sumi_gemm_sm90_args {
    // float [n], 16-byte aligned: needed by the epilogues that name it, as are the next ones
    uint64_t bias;
    // float step table; element [*counter * gate_stride + gate_column + n]; stride and column multiples of 4
    uint64_t gate, counter;
    uint64_t row_scale, col_scale; // float [m rounded up to 4], [n]
    int32_t gate_stride, gate_column;
    int32_t m, n, k; // n counts weight rows: SwiGLU writes n / 2 columns
    int32_t group;   // row pairs of tiles walked together (L2 reuse)
} sumi_gemm_sm90_args;

typedef struct sumi_gemm_split_args {
    // split > 1: float (int8: int32) [tiles][split][128 * bn]; uint32 [tiles][2], zero before and after
    uint64_t parts, arrivals;
    int32_t m, n, k, group, split, reserved;
    sumi_gemm_finish finish;
} sumi_gemm_split_args;

// X(epilogue, tile, EPI, WM, BN, ST, PH, SW, PP): template arguments of sumi_tile, the same for the list of kernels and
// for the launcher.
#define SUMI_GEMM_SM90_BF16(X)                                                                                         \
    X(plain, 256, 0, 1, 256, 4, 2, 64, 0)                                                                              \
    X(bias, 256, SUMI_EPI_BIAS, 1, 256, 4, 2, 64, 0)                                                                   \
    X(gelu, 256, SUMI_EPI_BIAS | SUMI_EPI_GELU, 1, 256, 4, 2, 64, 0)                                                   \
    X(swiglu, 256, SUMI_EPI_SWIGLU, 1, 256, 4, 1, 64, 0)                                                               \
    X(resid, 256, SUMI_EPI_RESID, 1, 256, 4, 2, 64, 0)                                                                 \
    X(gate, 256, SUMI_EPI_RESID | SUMI_EPI_GATE, 1, 256, 4, 2, 64, 0)                                                  \
    X(plain, 208, 0, 1, 208, 4, 1, 208, 0)                                                                             \
    X(bias, 208, SUMI_EPI_BIAS, 1, 208, 4, 1, 208, 0)                                                                  \
    X(gelu, 208, SUMI_EPI_BIAS | SUMI_EPI_GELU, 1, 208, 4, 1, 208, 0)                                                  \
    X(resid, 208, SUMI_EPI_RESID, 1, 208, 4, 1, 208, 0)                                                                \
    X(gate, 208, SUMI_EPI_RESID | SUMI_EPI_GATE, 1, 208, 4, 1, 208, 0)                                                 \
    X(gate_bias, 208, SUMI_EPI_RESID | SUMI_EPI_GATE | SUMI_EPI_BIAS, 1, 208, 4, 1, 208, 0)                            \
    X(plain, 192, 0, 1, 192, 4, 1, 64, 0)                                                                              \
    X(bias, 192, SUMI_EPI_BIAS, 1, 192, 4, 1, 64, 0)                                                                   \
    X(gelu, 192, SUMI_EPI_BIAS | SUMI_EPI_GELU, 1, 192, 4, 1, 64, 0)                                                   \
    X(swiglu, 192, SUMI_EPI_SWIGLU, 1, 192, 4, 1, 96, 0)                                                               \
    X(resid, 192, SUMI_EPI_RESID, 1, 192, 4, 1, 64, 0)                                                                 \
    X(resid_bias, 192, SUMI_EPI_RESID | SUMI_EPI_BIAS, 1, 192, 4, 1, 64, 0)                                            \
    X(gate, 192, SUMI_EPI_RESID | SUMI_EPI_GATE, 1, 192, 4, 1, 64, 0)                                                  \
    X(gate_bias, 192, SUMI_EPI_RESID | SUMI_EPI_GATE | SUMI_EPI_BIAS, 1, 192, 4, 1, 64, 0)                             \
    X(plain, pp, 0, 2, 128, 6, 2, 64, 1)                                                                               \
    X(bias, pp, SUMI_EPI_BIAS, 2, 128, 6, 2, 64, 1)                                                                    \
    X(gelu, pp, SUMI_EPI_BIAS | SUMI_EPI_GELU, 2, 128, 6, 2, 64, 1)                                                    \
    X(swiglu, pp, SUMI_EPI_SWIGLU, 2, 128, 6, 1, 64, 1)                                                                \
    X(resid, pp, SUMI_EPI_RESID, 2, 128, 6, 2, 64, 1)                                                                  \
    X(resid_bias, pp, SUMI_EPI_RESID | SUMI_EPI_BIAS, 2, 128, 6, 2, 64, 1)                                             \
    X(gate, pp, SUMI_EPI_RESID | SUMI_EPI_GATE, 2, 128, 6, 2, 64, 1)                                                   \
    X(gate_bias, pp, SUMI_EPI_RESID | SUMI_EPI_GATE | SUMI_EPI_BIAS, 2, 128, 5, 2, 64, 1)

// The same for e4m3 and int8 (SUMI_EPI_SCALE is added): row and column scales take shared memory, so ping-pong has five
// stages and 256 columns leave in two phases. At the power limit tiles that fetch least for a product win, and int8 leaves
// the most power: 256 columns for SwiGLU, 192 elsewhere, 208 for 3072 columns.
#define SUMI_GEMM_SM90_8BIT(X)                                                                                         \
    X(swiglu, 256, SUMI_EPI_SWIGLU, 1, 256, 4, 2, 64, 0)                                                               \
    X(plain, 208, 0, 1, 208, 4, 1, 208, 0)                                                                             \
    X(bias, 208, SUMI_EPI_BIAS, 1, 208, 4, 1, 208, 0)                                                                  \
    X(gate_bias, 208, SUMI_EPI_RESID | SUMI_EPI_GATE | SUMI_EPI_BIAS, 1, 208, 4, 1, 208, 0)                            \
    X(plain, 192, 0, 1, 192, 4, 1, 64, 0)                                                                              \
    X(bias, 192, SUMI_EPI_BIAS, 1, 192, 4, 1, 64, 0)                                                                   \
    X(gelu, 192, SUMI_EPI_BIAS | SUMI_EPI_GELU, 1, 192, 4, 1, 64, 0)                                                   \
    X(swiglu, 192, SUMI_EPI_SWIGLU, 1, 192, 4, 1, 96, 0)                                                               \
    X(resid, 192, SUMI_EPI_RESID, 1, 192, 4, 1, 64, 0)                                                                 \
    X(gate, 192, SUMI_EPI_RESID | SUMI_EPI_GATE, 1, 192, 4, 1, 64, 0)                                                  \
    X(gate_bias, 192, SUMI_EPI_RESID | SUMI_EPI_GATE | SUMI_EPI_BIAS, 1, 192, 4, 1, 64, 0)                             \
    X(plain, pp, 0, 2, 128, 5, 2, 64, 1)                                                                               \
    X(bias, pp, SUMI_EPI_BIAS, 2, 128, 5, 2, 64, 1)                                                                    \
    X(gelu, pp, SUMI_EPI_BIAS | SUMI_EPI_GELU, 2, 128, 5, 2, 64, 1)                                                    \
    X(swiglu, pp, SUMI_EPI_SWIGLU, 2, 128, 5, 1, 64, 1)                                                                \
    X(resid, pp, SUMI_EPI_RESID, 2, 128, 5, 2, 64, 1)                                                                  \
    X(gate, pp, SUMI_EPI_RESID | SUMI_EPI_GATE, 2, 128, 5, 2, 64, 1)                                                   \
    X(gate_bias, pp, SUMI_EPI_RESID | SUMI_EPI_GATE | SUMI_EPI_BIAS, 2, 128, 5, 2, 64, 1)

// Three consumers share a tile of 192 rows: X(epilogue, tile, EPI, BN, ST, PH, SW). 192 x 176 cuts 1152 x 3840 (512
// pixels) into 132 tiles, 192 x 160 its gate and up into 768.
#define SUMI_GEMM_SM90_BF16_3(X)                                                                                       \
    X(plain, 192x176, 0, 176, 4, 2, 112)                                                                               \
    X(swiglu, 192x160, SUMI_EPI_SWIGLU, 160, 4, 1, 80)
#define SUMI_GEMM_SM90_8BIT_3(X) X(plain, 192x176, 0, 176, 4, 2, 96)
#define SUMI_GEMM_SM90_SHARED_3(EPI, BN, ST, SW)                                                                       \
    ((ST) * (192 + (BN)) * 128 + 3 * (SW)*128                                                                          \
     + 2 * (SUMI_GEMM_SM90_VECS(EPI) * (BN)*4 + ((EPI)&SUMI_EPI_SCALE ? 192 * 4 : 0)) + (2 * (ST) + 3) * 8)

// Dynamic shared memory of such a kernel; the .cu files check it against sumi_tile::SMEM.
#define SUMI_GEMM_SM90_ROWS(WM, PP) (((PP) ? 64 : 128) * (WM))
#define SUMI_GEMM_SM90_VECS(EPI)                                                                                       \
    (((EPI)&SUMI_EPI_BIAS ? 1 : 0) + ((EPI)&SUMI_EPI_GATE ? 1 : 0) + ((EPI)&SUMI_EPI_SCALE ? 1 : 0))
#define SUMI_GEMM_SM90_SHARED(EPI, WM, BN, ST, PH, PP)                                                                 \
    ((ST) * (SUMI_GEMM_SM90_ROWS(WM, PP) + (BN)) * 128                                                                 \
     + 2 * (((EPI)&SUMI_EPI_SWIGLU ? (BN) / 2 : (BN)) / (PH)) * (WM)*128                                               \
     + ((PP) ? 4 : 2)                                                                                                  \
           * (SUMI_GEMM_SM90_VECS(EPI) * (BN)*4 + ((EPI)&SUMI_EPI_SCALE ? SUMI_GEMM_SM90_ROWS(WM, PP) * 4 : 0))        \
     + (2 * (ST) + 2) * 8)

// X(BN, ST) of the split-k kernels sumi_gemm_split_[int8_]<any|swiglu>_<BN>, tiles of 128 rows.
#define SUMI_GEMM_SPLIT(X) X(128, 7) X(256, 4)
#define SUMI_GEMM_SPLIT_INT8(X) X(128, 7) // with scales 256 columns do not fit into registers
#define SUMI_GEMM_SPLIT_SHARED(BN, ST) ((ST) * (128 + (BN)) * 128 + (2 * (ST) + 3) * 8)

// ---- Portable -------------------------------------------------------------------------------------------------------
// the first 128 bytes are sumi_gemm_args of portable_gemm.cuh; the kernels whose epilogue is fixed take only those
typedef struct sumi_pgemm_args {
    uint64_t x, w, y, resid, bias, gate, row_scale, col_scale;
    uint64_t parts,
        arrivals; // split > 1: float (int8: int32) [tiles][split][bm * bn]; uint32 [tiles], zero before and after
    int32_t m, n, k, ldx, ldw, ldy, ldr, group, split, reserved[3];
    sumi_gemm_finish finish; // of the `any` kernels
} sumi_pgemm_args;

// X(tile, BM, BN, RB, ST, WM, WN, MINB): k-blocks of RB bytes, ST stages, warp tiles WM x WN, MINB blocks wanted on a
// multiprocessor. Shared memory ST * (BM + BN) * RB. Kernels sumi_pgemm_<bf16|fp8|int8>_<plain|swiglu|any>_<tile>. Only some
// tiles have an `any`; 128 x 128 has it where k can be shared.
#define SUMI_PGEMM_TILES(X)                   /* plain, swiglu */                                                      \
    X(128x256w, 128, 256, 128, 3, 64, 64, 1)  /* 144 KiB: 8.0, 9.0 */                                                  \
    X(128x256, 128, 256, 64, 4, 64, 64, 1)    /* 96 KiB */                                                             \
    X(128x128w, 128, 128, 128, 3, 64, 64, 2)  /* 96 KiB: two blocks on 9.0 */                                          \
    X(128x128, 128, 128, 64, 3, 64, 64, 2)    /* 48 KiB: two blocks in 100 KiB */
#define SUMI_PGEMM_TILES_ANY(X)               /* plain, swiglu, any */                                                 \
    X(96x128, 96, 128, 64, 3, 48, 64, 2)      /* 42 KiB: contexts limited to 47 KiB */
#define SUMI_PGEMM_SPLIT_TILES(X)             /* swiglu, any; k can be shared */                                       \
    X(128x128sw, 128, 128, 128, 3, 64, 64, 2) /* 96 KiB */                                                             \
    X(128x128s, 128, 128, 64, 3, 64, 64, 2)   /* 48 KiB */                                                             \
    X(64x64sw, 64, 64, 128, 6, 32, 32, 2)     /* 96 KiB */                                                             \
    X(64x64s, 64, 64, 128, 3, 32, 32, 2)      /* 48 KiB */                                                             \
    X(64x64st, 64, 64, 64, 5, 32, 32, 2)      /* 40 KiB: contexts limited to 47 KiB */                                 \
    X(32x32s, 32, 32, 128, 5, 32, 16, 4)      /* 40 KiB, two warps */
#define SUMI_PGEMM_FP8_TILES(X) X(128x256, 128, 256, 64, 4, 64, 64, 1)
#define SUMI_PGEMM_FP8_TILES_ANY(X) X(128x128, 128, 128, 64, 3, 64, 64, 2) X(96x128, 96, 128, 64, 3, 48, 64, 2)
#define SUMI_PGEMM_INT8_TILES(X) X(128x256, 128, 256, 64, 4, 64, 64, 1) X(128x128w, 128, 128, 128, 3, 64, 64, 2)
#define SUMI_PGEMM_INT8_TILES_ANY(X) SUMI_PGEMM_FP8_TILES_ANY(X)
#define SUMI_PGEMM_INT8_SPLIT_TILES(X)      /* swiglu, any; k can be shared */                                         \
    X(128x128s, 128, 128, 64, 3, 64, 64, 2) /* 48 KiB */                                                               \
    X(64x64s, 64, 64, 128, 3, 32, 32, 2)    /* 48 KiB */                                                               \
    X(64x64st, 64, 64, 64, 5, 32, 32, 2)    /* 40 KiB: contexts limited to 47 KiB */                                   \
    X(32x32s, 32, 32, 128, 5, 32, 16, 4)    /* 40 KiB, two warps */

// ---- A few rows, and any shape --------------------------------------------------------------------------------------
typedef struct sumi_gemv_args {
    // split > 1: float [ceil(n / 16)][split][128 or 256]; uint32 [ceil(n / 16)], zero before and after
    uint64_t x, w, parts, arrivals;
    int32_t m, n, k, ldx, ldw, split, swiglu, reserved;
    sumi_gemm_finish finish;
} sumi_gemv_args;

typedef struct sumi_gemm_any_args {
    uint64_t x, w;
    int32_t m, n, k, ldx, ldw, x_is_float, swiglu, reserved;
    sumi_gemm_finish finish;
} sumi_gemm_any_args;
#endif
