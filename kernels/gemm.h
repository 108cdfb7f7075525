// Launch parameters of the matrix products, shared by the kernels and src/cuda: y[m][n] = epilogue(x[m][k] w[n][k]^T),
// both operands row-major, so that k is contiguous. Addresses are 64-bit integers; pitches count elements.
// src/cuda/choose_linear.c decides which kernel computes which product.
//
// Split k: when a product has fewer tiles than the GPU has multiprocessors, `split` blocks share the k of one tile.
// Each computes a partial sum over its range of k and writes it to `partial_sums`, as float. The block that increments
// the tile's counter in `arrivals` last adds the partial sums in the order of k, finishes the tile and resets the
// counter to zero. So the result does not depend on the order of arrival, and no block waits for another.
//
// The same on the CPU, in float32, which tests compare with: src/cpu/product.c.
#ifndef SUMI_KERNELS_GEMM_H
#define SUMI_KERNELS_GEMM_H
#include <stdint.h>

// What a kernel's epilogue computes, fixed when the kernel is compiled. SWIGLU: y is [m][n / 2]; the rows of w are
// interleaved by 8: 8 gate rows, 8 up rows, ...
#define SUMI_EPILOGUE_BIAS 1       // + bias[n]
#define SUMI_EPILOGUE_GELU 2       // gelu, tanh form
#define SUMI_EPILOGUE_SWIGLU 4     // y = silu(gate) * up
#define SUMI_EPILOGUE_RESIDUAL 8   // y = residual + value
#define SUMI_EPILOGUE_GATE 16      // with RESIDUAL: y = residual + gate[n] * value
#define SUMI_EPILOGUE_SCALE 32     // value = sum * row_scale[m] * col_scale[n]      (e4m3, int8)
#define SUMI_EPILOGUE_ANY 64       // portable kernels: the epilogue is chosen at run time by sumi_gemm_epilogue
#define SUMI_EPILOGUE_GELU_ERF 128 // gelu, with erf

// The epilogue of a product, chosen at run time. Every factor and term is optional; y is stored as bf16 or float:
//
//   y[m][n] = act(sum * row_scale[m] * col_scale[n] + bias[n]) * scale * gate[n] + residual[m][n]
//
// Column c of the product is column `column` + c of y. half > 0: y is the input of a gated activation, whose two halves
// of `half` columns each, [gate | up], are interleaved by 8. Then `column` + c counts columns of [gate | up], and the
// epilogue finds the interleaved column (epilogue_column in gemm_epilogue.cuh).
typedef struct sumi_gemm_epilogue {
    uint64_t y, residual;          // [m][ldy], both of the type that is_float names; residual may be y; 0: none
    uint64_t bias;                 // float [n]
    uint64_t row_scale, col_scale; // float [m], [n]: for e4m3 and int8 operands only
    uint64_t gate, counter;        // a step table (0: none) and the int32 that selects its row (step.h)
    int32_t gate_stride, gate_column, gate_is_float;
    int32_t ldy, column, half;
    int32_t activation; // sumi_activation
    int32_t is_float;   // y and residual are float; otherwise bf16
    int32_t is_aligned; // bf16, and y, residual, ldy, column, half and n allow 16-byte accesses
    float scale;
} sumi_gemm_epilogue;

// ---- Hopper ---------------------------------------------------------------------------------------------------------
// These kernels take tensor maps (TMA descriptors) as further parameters, in front of the struct.
typedef struct sumi_gemm_sm90_args {
    // float [n], 16-byte aligned. This and the next four addresses are read only by epilogues that use them.
    uint64_t bias;
    // gate: a float step table. Column n uses element *counter * gate_stride + gate_column + n; gate_stride and
    // gate_column are multiples of 4, because TMA copies 16-byte units.
    uint64_t gate, counter;
    uint64_t row_scale, col_scale; // float [m rounded up to 4], [n]
    int32_t gate_stride, gate_column;
    int32_t m, n, k;     // n counts rows of w; SwiGLU writes n / 2 columns
    int32_t group;       // pairs of tile rows that form a group: x of a group stays in L2 while all of w is read
    int32_t whole_items; // kernels with halves: the work items from this one on are computed as two halves each
    int32_t reserved;
} sumi_gemm_sm90_args;

typedef struct sumi_gemm_split_args {
    // split > 1: float (int8: int32) [tiles][split][128 * columns of a tile] partial sums; uint32 [tiles][2] counters
    // (one for each consumer warpgroup), zero before and after the launch
    uint64_t partial_sums, arrivals;
    int32_t m, n, k, group, split, reserved;
    sumi_gemm_epilogue epilogue;
} sumi_gemm_split_args;

// X(epilogue, tile, EPILOGUE, M64_TILES, TILE_COLUMNS, STAGES, STORE_PASSES, SLAB_COLUMNS, PING_PONG): the kernels
// sumi_gemm_bf16_<epilogue>_<tile>. The numbers are template arguments of sumi_tile in gemm_sm90.cuh; the launcher
// reads the same list.
//   EPILOGUE      SUMI_EPILOGUE_* flags
//   M64_TILES     wgmma tiles of 64 rows that a consumer warpgroup has
//   STAGES        of the pipeline
//   STORE_PASSES  in which a tile is stored, because the staging memory holds a part of it
//   SLAB_COLUMNS  that one TMA store writes
//   PING_PONG     1: each of two consumers has a tile of 64 * M64_TILES rows; 0: they share one of 128 * M64_TILES rows
#define SUMI_GEMM_SM90_BF16(X)                                                                                         \
    X(bias, 256, SUMI_EPILOGUE_BIAS, 1, 256, 4, 2, 64, 0)                                                              \
    X(gelu, 256, SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_GELU, 1, 256, 4, 2, 64, 0)                                         \
    X(resid, 256, SUMI_EPILOGUE_RESIDUAL, 1, 256, 4, 2, 64, 0)                                                         \
    X(gate, 256, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE, 1, 256, 4, 2, 64, 0)                                     \
    X(plain, 208, 0, 1, 208, 4, 1, 208, 0)                                                                             \
    X(bias, 208, SUMI_EPILOGUE_BIAS, 1, 208, 4, 1, 208, 0)                                                             \
    X(gelu, 208, SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_GELU, 1, 208, 4, 1, 208, 0)                                        \
    X(resid, 208, SUMI_EPILOGUE_RESIDUAL, 1, 208, 4, 1, 208, 0)                                                        \
    X(gate, 208, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE, 1, 208, 4, 1, 208, 0)                                    \
    X(gate_bias, 208, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 208, 4, 1, 208, 0)          \
    X(bias, 192, SUMI_EPILOGUE_BIAS, 1, 192, 4, 1, 64, 0)                                                              \
    X(gelu, 192, SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_GELU, 1, 192, 4, 1, 64, 0)                                         \
    X(swiglu, 192, SUMI_EPILOGUE_SWIGLU, 1, 192, 4, 1, 96, 0)                                                          \
    X(resid, 192, SUMI_EPILOGUE_RESIDUAL, 1, 192, 4, 1, 64, 0)                                                         \
    X(resid_bias, 192, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_BIAS, 1, 192, 4, 1, 64, 0)                               \
    X(gate, 192, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE, 1, 192, 4, 1, 64, 0)                                     \
    X(gate_bias, 192, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 192, 4, 1, 64, 0)           \
    X(plain, 240, 0, 1, 240, 4, 3, 80, 0)                                                                              \
    X(swiglu, 224, SUMI_EPILOGUE_SWIGLU, 1, 224, 4, 1, 112, 0)                                                         \
    X(swiglu, 160, SUMI_EPILOGUE_SWIGLU, 1, 160, 5, 1, 80, 0)                                                          \
    X(gate_bias, 256, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 256, 4, 4, 64, 0)           \
    X(gate_bias, 224, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 224, 4, 2, 112, 0)          \
    X(gate_bias, 176, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 176, 4, 1, 176, 0)          \
    X(gate_bias, 160, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 160, 5, 1, 80, 0)           \
    X(plain, pp, 0, 2, 128, 6, 2, 64, 1)                                                                               \
    X(bias, pp, SUMI_EPILOGUE_BIAS, 2, 128, 6, 2, 64, 1)                                                               \
    X(gelu, pp, SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_GELU, 2, 128, 6, 2, 64, 1)                                          \
    X(gelu_erf, pp, SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_GELU_ERF, 2, 128, 6, 2, 64, 1)                                  \
    X(swiglu, pp, SUMI_EPILOGUE_SWIGLU, 2, 128, 6, 1, 64, 1)                                                           \
    X(resid, pp, SUMI_EPILOGUE_RESIDUAL, 2, 128, 6, 2, 64, 1)                                                          \
    X(resid_bias, pp, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_BIAS, 2, 128, 6, 2, 64, 1)                                \
    X(gate, pp, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE, 2, 128, 6, 2, 64, 1)                                      \
    X(gate_bias, pp, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 2, 128, 5, 2, 64, 1)

// The same for e4m3 and int8 operands: sumi_gemm_<fp8|int8>_<epilogue>_<tile>, with SUMI_EPILOGUE_SCALE added to
// EPILOGUE. The row and column scales take shared memory, so ping-pong has five stages instead of six, and a tile of
// 256 columns is stored in two phases. At the card's power limit the tiles win that read the fewest bytes for a
// product, most of all with int8, which leaves the most power: 128 x 256 for SwiGLU, 192 x 192 and 128 x 240 for the
// rest.
#define SUMI_GEMM_SM90_8BIT(X)                                                                                         \
    X(swiglu, 256, SUMI_EPILOGUE_SWIGLU, 1, 256, 4, 2, 64, 0)                                                          \
    X(plain, 208, 0, 1, 208, 4, 1, 208, 0)                                                                             \
    X(bias, 208, SUMI_EPILOGUE_BIAS, 1, 208, 4, 1, 208, 0)                                                             \
    X(gate_bias, 208, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 208, 4, 1, 208, 0)          \
    X(bias, 192, SUMI_EPILOGUE_BIAS, 1, 192, 4, 1, 64, 0)                                                              \
    X(gelu, 192, SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_GELU, 1, 192, 4, 1, 64, 0)                                         \
    X(gelu_erf, 192, SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_GELU_ERF, 1, 192, 4, 1, 64, 0)                                 \
    X(swiglu, 192, SUMI_EPILOGUE_SWIGLU, 1, 192, 4, 1, 96, 0)                                                          \
    X(resid, 192, SUMI_EPILOGUE_RESIDUAL, 1, 192, 4, 1, 64, 0)                                                         \
    X(gate, 192, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE, 1, 192, 4, 1, 64, 0)                                     \
    X(gate_bias, 192, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 192, 4, 1, 64, 0)           \
    X(plain, 240, 0, 1, 240, 4, 3, 80, 0)                                                                              \
    X(gate_bias, 256, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 256, 4, 4, 64, 0)           \
    X(gate_bias, 224, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 224, 4, 2, 112, 0)          \
    X(gate_bias, 176, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 176, 4, 1, 176, 0)          \
    X(gate_bias, 160, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 160, 5, 1, 80, 0)           \
    X(plain, pp, 0, 2, 128, 5, 2, 64, 1)                                                                               \
    X(bias, pp, SUMI_EPILOGUE_BIAS, 2, 128, 5, 2, 64, 1)                                                               \
    X(gelu, pp, SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_GELU, 2, 128, 5, 2, 64, 1)                                          \
    X(gelu_erf, pp, SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_GELU_ERF, 2, 128, 5, 2, 64, 1)                                  \
    X(swiglu, pp, SUMI_EPILOGUE_SWIGLU, 2, 128, 5, 1, 64, 1)                                                           \
    X(resid, pp, SUMI_EPILOGUE_RESIDUAL, 2, 128, 5, 2, 64, 1)                                                          \
    X(gate, pp, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE, 2, 128, 5, 2, 64, 1)                                      \
    X(gate_bias, pp, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 2, 128, 5, 2, 64, 1)

// X(epilogue, tile, EPILOGUE, TILE_COLUMNS, STAGES, STORE_PASSES, SLAB_COLUMNS): kernels in which three consumer
// warpgroups share a tile of 192 rows. For an image of 512x512 pixels (m = 1152) tiles of 192 x 176 cut n = 3840 into
// 132 tiles, one for each multiprocessor of an H200, and tiles of 192 x 160 cut the gate and up product into 768.
#define SUMI_GEMM_SM90_BF16_3(X)                                                                                       \
    X(plain, 192x176, 0, 176, 4, 2, 112)                                                                               \
    X(swiglu, 192x160, SUMI_EPILOGUE_SWIGLU, 160, 4, 1, 80)                                                            \
    X(plain, 192x192, 0, 192, 4, 3, 64)                                                                                \
    X(swiglu, 192x192, SUMI_EPILOGUE_SWIGLU, 192, 4, 2, 48)
#define SUMI_GEMM_SM90_8BIT_3(X)                                                                                       \
    X(plain, 192x176, 0, 176, 4, 2, 96)                                                                                \
    X(plain, 192x192, 0, 192, 4, 3, 64)
// Kernels with halves (their names end in h), two and three consumers. Where the last round has work for half of the
// clusters at most, its items are computed as two halves of TILE_COLUMNS / 2 columns each, and it takes half as long:
// an image of 960x960 pixels has m = 3744, and its products of n = 3840 take 3.5 rounds of 256 columns instead of 4.
// A kernel with halves takes as long as one without where there is nothing to halve, and replaces it; only that of SwiGLU
// in 8 bits takes 1.4 % longer, so there are both.
#define SUMI_GEMM_SM90_BF16_HALVES(X)                                                                                  \
    X(plain, 256h, 0, 1, 256, 4, 2, 64, 0)                                                                             \
    X(swiglu, 256h, SUMI_EPILOGUE_SWIGLU, 1, 256, 4, 1, 64, 0)                                                         \
    X(plain, 224h, 0, 1, 224, 4, 2, 112, 0)                                                                            \
    X(bias, 224h, SUMI_EPILOGUE_BIAS, 1, 224, 4, 2, 112, 0)                                                            \
    X(gelu, 224h, SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_GELU, 1, 224, 4, 2, 112, 0)                                       \
    X(plain, 192h, 0, 1, 192, 4, 1, 64, 0)                                                                             \
    X(plain, 160h, 0, 1, 160, 5, 1, 80, 0)
#define SUMI_GEMM_SM90_BF16_HALVES_3(X) X(plain, 192x160h, 0, 160, 4, 2, 80)
#define SUMI_GEMM_SM90_8BIT_HALVES(X)                                                                                  \
    X(swiglu, 256h, SUMI_EPILOGUE_SWIGLU, 1, 256, 4, 2, 64, 0)                                                         \
    X(plain, 224h, 0, 1, 224, 4, 2, 112, 0)                                                                            \
    X(bias, 224h, SUMI_EPILOGUE_BIAS, 1, 224, 4, 2, 112, 0)                                                            \
    X(gelu, 224h, SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_GELU, 1, 224, 4, 2, 112, 0)                                       \
    X(plain, 192h, 0, 1, 192, 4, 1, 64, 0)                                                                             \
    X(plain, 160h, 0, 1, 160, 5, 1, 80, 0)
#define SUMI_GEMM_SM90_8BIT_HALVES_3(X) X(plain, 192x160h, 0, 160, 4, 2, 80)
// int8 alone. pp192: ping-pong with tiles of 128 x 192 (192 accumulators a thread), which reads as few bytes for a product
// as two consumers that share a tile of that size, and hides the epilogue. 256s3: three stages, and memory for the whole
// tile of the residual, which is copied during the main loop.
#define SUMI_GEMM_SM90_INT8(X)                                                                                         \
    X(bias, pp192, SUMI_EPILOGUE_BIAS, 2, 192, 4, 3, 64, 1)                                                            \
    X(gelu, pp192, SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_GELU, 2, 192, 4, 3, 64, 1)                                       \
    X(gate_bias, pp192, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 2, 192, 4, 3, 64, 1)         \
    X(gate_bias, 256s3, SUMI_EPILOGUE_RESIDUAL | SUMI_EPILOGUE_GATE | SUMI_EPILOGUE_BIAS, 1, 256, 3, 1, 64, 0)
// X(epilogue, tile): the kernels sumi_gemm_int8_pair_<epilogue>_<tile>, which compute two products with the tile that the
// kernel sumi_gemm_int8_<epilogue>_<tile> has. Parameters: the tensor maps of x, w, y and the residual, two of each; the
// structs of both products, which have the same n and k.
#define SUMI_GEMM_SM90_PAIRS(X)                                                                                        \
    X(bias, 192)                                                                                                       \
    X(gelu, 192)                                                                                                       \
    X(gate_bias, 192)                                                                                                  \
    X(bias, pp192)                                                                                                     \
    X(gelu, pp192)                                                                                                     \
    X(gate_bias, pp192)                                                                                                \
    X(gate_bias, 256s3)
#define SUMI_GEMM_SM90_SHARED_3(EPILOGUE, TILE_COLUMNS, STAGES, SLAB_COLUMNS)                                          \
    ((STAGES) * (192 + (TILE_COLUMNS)) * 128 + 3 * (SLAB_COLUMNS)*128                                                  \
     + 2 * (SUMI_GEMM_SM90_VECTORS(EPILOGUE) * (TILE_COLUMNS)*4 + ((EPILOGUE)&SUMI_EPILOGUE_SCALE ? 192 * 4 : 0))      \
     + (2 * (STAGES) + 3) * 8)

// SUMI_GEMM_SM90_SHARED: dynamic shared memory of a two-consumer kernel, in bytes. SUMI_GEMM_SM90_SHARED_3 above: of a
// three-consumer kernel. gemm_sm90.cuh asserts that both equal sumi_tile::SHARED_BYTES.
#define SUMI_GEMM_SM90_ROWS(M64_TILES, PING_PONG) (((PING_PONG) ? 64 : 128) * (M64_TILES))
#define SUMI_GEMM_SM90_VECTORS(EPILOGUE)                                                                               \
    (((EPILOGUE)&SUMI_EPILOGUE_BIAS ? 1 : 0) + ((EPILOGUE)&SUMI_EPILOGUE_GATE ? 1 : 0)                                 \
     + ((EPILOGUE)&SUMI_EPILOGUE_SCALE ? 1 : 0))
#define SUMI_GEMM_SM90_SHARED(EPILOGUE, M64_TILES, TILE_COLUMNS, STAGES, STORE_PASSES, PING_PONG)                      \
    ((STAGES) * (SUMI_GEMM_SM90_ROWS(M64_TILES, PING_PONG) + (TILE_COLUMNS)) * 128                                     \
     + 2 * (((EPILOGUE)&SUMI_EPILOGUE_SWIGLU ? (TILE_COLUMNS) / 2 : (TILE_COLUMNS)) / (STORE_PASSES))                  \
           * (M64_TILES)*128                                                                                           \
     + ((PING_PONG) ? 4 : 2)                                                                                           \
           * (SUMI_GEMM_SM90_VECTORS(EPILOGUE) * (TILE_COLUMNS)*4                                                      \
              + ((EPILOGUE)&SUMI_EPILOGUE_SCALE ? SUMI_GEMM_SM90_ROWS(M64_TILES, PING_PONG) * 4 : 0))                  \
     + (2 * (STAGES) + 2) * 8)

// X(TILE_COLUMNS, STAGES): the split-k kernels sumi_gemm_split_[int8_]<any|swiglu>_<TILE_COLUMNS>. Tiles have 128 rows.
// 64 columns: twice as many tiles take half as many parts of k, and the parts are half as large: a quarter of the bytes
// of partial sums for a tile.
#define SUMI_GEMM_SPLIT(X) X(64, 9) X(128, 7) X(256, 4)
#define SUMI_GEMM_SPLIT_INT8(X) X(64, 9) X(128, 7) // with scales 256 columns do not fit into registers
#define SUMI_GEMM_SPLIT_SHARED(TILE_COLUMNS, STAGES) ((STAGES) * (128 + (TILE_COLUMNS)) * 128 + (2 * (STAGES) + 3) * 8)

// ---- Portable -------------------------------------------------------------------------------------------------------
// The first 128 bytes have the layout of sumi_gemm_args in portable_gemm.cuh. Kernels whose epilogue is fixed take only
// these bytes; the `any` kernels take `epilogue` too.
typedef struct sumi_gemm_portable_args {
    uint64_t x, w, y, residual, bias, gate, row_scale, col_scale;
    // split > 1: float (int8: int32) [tiles][split][TILE_ROWS * TILE_COLUMNS] partial sums; uint32 [tiles] counters,
    // zero before and after the launch
    uint64_t partial_sums, arrivals;
    // ldr: pitch of residual; group: tile rows that are walked together
    int32_t m, n, k, ldx, ldw, ldy, ldr, group, split, reserved[3];
    sumi_gemm_epilogue epilogue;
} sumi_gemm_portable_args;

// X(tile, TILE_ROWS, TILE_COLUMNS, K_BLOCK_BYTES, STAGES, WARP_ROWS, WARP_COLUMNS, MIN_BLOCKS): the kernels
// sumi_pgemm_<bf16|fp8|int8>_<plain|swiglu|any>_<tile>. A block computes TILE_ROWS x TILE_COLUMNS, a warp WARP_ROWS x
// WARP_COLUMNS; a k-block is K_BLOCK_BYTES bytes of k; MIN_BLOCKS blocks are to fit on a multiprocessor. Dynamic shared
// memory: STAGES * (TILE_ROWS + TILE_COLUMNS) * K_BLOCK_BYTES bytes, noted at each tile. Only some tiles have an `any`
// kernel; for bf16, 128 x 128 has one among the split-k tiles. Numbers such as 8.0 are compute capabilities. "Contexts
// limited to 47 KiB" are CUDA contexts in which a block has at most 47 KiB of shared memory.
#define SUMI_GEMM_PORTABLE_TILES(X)           /* kernels: plain, swiglu */                                             \
    X(128x256w, 128, 256, 128, 3, 64, 64, 1)  /* 144 KiB: for 8.0, 9.0 */                                              \
    X(128x256, 128, 256, 64, 4, 64, 64, 1)    /* 96 KiB */                                                             \
    X(128x128w, 128, 128, 128, 3, 64, 64, 2)  /* 96 KiB: two blocks fit on 9.0 */                                      \
    X(128x128, 128, 128, 64, 3, 64, 64, 2)    /* 48 KiB: two blocks fit in 100 KiB */
#define SUMI_GEMM_PORTABLE_TILES_ANY(X)       /* kernels: plain, swiglu, any */                                        \
    X(96x128, 96, 128, 64, 3, 48, 64, 2)      /* 42 KiB: for contexts limited to 47 KiB */
#define SUMI_GEMM_PORTABLE_SPLIT_TILES(X)     /* kernels: swiglu, any; split k */                                      \
    X(128x128sw, 128, 128, 128, 3, 64, 64, 2) /* 96 KiB */                                                             \
    X(128x128s, 128, 128, 64, 3, 64, 64, 2)   /* 48 KiB */                                                             \
    X(64x64sw, 64, 64, 128, 6, 32, 32, 2)     /* 96 KiB */                                                             \
    X(64x64s, 64, 64, 128, 3, 32, 32, 2)      /* 48 KiB */                                                             \
    X(64x64st, 64, 64, 64, 5, 32, 32, 2)      /* 40 KiB: for contexts limited to 47 KiB */                             \
    X(32x32s, 32, 32, 128, 5, 32, 16, 4)      /* 40 KiB, two warps */
#define SUMI_GEMM_PORTABLE_FP8_TILES(X) X(128x256, 128, 256, 64, 4, 64, 64, 1)
#define SUMI_GEMM_PORTABLE_FP8_TILES_ANY(X) X(128x128, 128, 128, 64, 3, 64, 64, 2) X(96x128, 96, 128, 64, 3, 48, 64, 2)
#define SUMI_GEMM_PORTABLE_INT8_TILES(X) X(128x256, 128, 256, 64, 4, 64, 64, 1)
#define SUMI_GEMM_PORTABLE_INT8_TILES_ANY(X) /* the first two: for 8.0, 9.0 */                                         \
    X(128x256w, 128, 256, 128, 3, 64, 64, 1)                                                                           \
    X(128x128w, 128, 128, 128, 3, 64, 64, 2)                                                                           \
    SUMI_GEMM_PORTABLE_FP8_TILES_ANY(X)
#define SUMI_GEMM_PORTABLE_INT8_SPLIT_TILES(X) /* swiglu, any; k can be shared */                                      \
    X(128x128s, 128, 128, 64, 3, 64, 64, 2)    /* 48 KiB */                                                            \
    X(64x64s, 64, 64, 128, 3, 32, 32, 2)       /* 48 KiB */                                                            \
    X(64x64st, 64, 64, 64, 5, 32, 32, 2)       /* 40 KiB: contexts limited to 47 KiB */                                \
    X(32x32s, 32, 32, 128, 5, 32, 16, 4)       /* 40 KiB, two warps */

// ---- Up to 16 rows (gemv.cu), and any shape (gemm_any.cu) -----------------------------------------------------------
// swiglu: 1: y = silu(gate) * up, with rows of w interleaved by 8.
typedef struct sumi_gemv_args {
    // split > 1: float [ceil(n / 16)][split][128 or 256] partial sums (256: the kernel for 16 rows of x);
    // uint32 [ceil(n / 16)] counters, zero before and after the launch
    uint64_t x, w, partial_sums, arrivals;
    int32_t m, n, k, ldx, ldw, split, swiglu, reserved;
    sumi_gemm_epilogue epilogue;
} sumi_gemv_args;

typedef struct sumi_gemm_any_args {
    uint64_t x, w;
    int32_t m, n, k, ldx, ldw, x_is_float, swiglu, reserved;
    sumi_gemm_epilogue epilogue;
} sumi_gemm_any_args;
#endif
