// Weights that lie on the device as their file has them, unpacked for each product: launch parameters and types, shared
// by the kernels and src/cuda.
#ifndef SUMI_KERNELS_STORED_H
#define SUMI_KERNELS_STORED_H
#include "gemm.h"

// X(name, number, bytes): bytes of 256 elements. The layouts stand in src/base/dtype.c. Rows are whole multiples of 32
// elements, those of the K types and of IQ4_XS of 256.
#define SUMI_STORED_TYPES(X)                                                                                           \
    X(q8_0, 0, 272)                                                                                                    \
    X(q4_0, 1, 144)                                                                                                    \
    X(q4_1, 2, 160)                                                                                                    \
    X(q5_0, 3, 176)                                                                                                    \
    X(q5_1, 4, 192)                                                                                                    \
    X(q2_k, 5, 84)                                                                                                     \
    X(q3_k, 6, 110)                                                                                                    \
    X(q4_k, 7, 144)                                                                                                    \
    X(q5_k, 8, 176)                                                                                                    \
    X(q6_k, 9, 210)                                                                                                    \
    X(iq4_nl, 10, 144)                                                                                                 \
    X(iq4_xs, 11, 136)                                                                                                 \
    X(e4m3, 12, 256)                                                                                                   \
    X(e5m2, 13, 256)
#define SUMI_STORED_TYPE_COUNT 14
// Those that Hopper has kernels of its own for: what most files hold. For each of the others they would be 230 KB.
#define SUMI_STORED_SM90_TYPES(X)                                                                                      \
    X(q8_0, 0, 272)                                                                                                    \
    X(q4_0, 1, 144)                                                                                                    \
    X(q4_k, 7, 144)                                                                                                    \
    X(q5_k, 8, 176)                                                                                                    \
    X(q6_k, 9, 210)                                                                                                    \
    X(iq4_nl, 10, 144)                                                                                                 \
    X(e4m3, 12, 256)

#define SUMI_UNPACK_THREADS 256

// Rows of one part of a weight to bfloat16: sumi_unpack_<type>.
typedef struct sumi_unpack_args {
    uint64_t from; // the part's first byte, aligned to 16
    uint64_t to;   // bf16 [stack_rows][cols], aligned to 16
    int64_t elements;
    // is_gated: row row_begin + r of the stack goes where FORM_GATED has it
    int32_t cols, row_begin, stack_rows, is_gated;
    float scale; // of the part: fp8 files
    int32_t reserved;
} sumi_unpack_args;

// y = finish(x w^T) for few rows: sumi_gemm_stored_<type>_<rows>.
#define SUMI_GEMM_STORED_COLS 64     // of a block: rows of w
#define SUMI_GEMM_STORED_THREADS 128 // four warps, each has 16 rows of w and all of x's
#define SUMI_GEMM_STORED_PARTS 4
// X(rows, x stages, w stages): rows of x in a block's tile; stages of 64 elements of k of x and of 256 of w.
#define SUMI_GEMM_STORED_TILES(X) X(16, 4, 3) X(64, 4, 3)
// Bytes from row to row of w in shared memory: whole 16 bytes around what a row has, which begins anywhere when its
// length is no multiple of 16; four rows begin at different quarters of the banks.
#define SUMI_GEMM_STORED_NEED(BYTES) ((BYTES) % 16 == 0 ? (BYTES) : ((BYTES) + 14 + 15) / 16 * 16)
#define SUMI_GEMM_STORED_PITCH(BYTES)                                                                                  \
    (SUMI_GEMM_STORED_NEED(BYTES)                                                                                      \
     + (SUMI_GEMM_STORED_NEED(BYTES) % 64 == 32   ? 0                                                                  \
        : SUMI_GEMM_STORED_NEED(BYTES) % 64 == 16 ? 16                                                                 \
        : SUMI_GEMM_STORED_NEED(BYTES) % 64 == 0  ? 32                                                                 \
                                                  : 48))
#define SUMI_GEMM_STORED_RING(BYTES, ROWS, XS, WS)                                                                     \
    ((XS) * (ROWS)*128 + (WS)*SUMI_GEMM_STORED_COLS * SUMI_GEMM_STORED_PITCH(BYTES))
#define SUMI_GEMM_STORED_SUMS(ROWS) ((ROWS) * (SUMI_GEMM_STORED_COLS + 4) * 4)
#define SUMI_GEMM_STORED_SHARED(BYTES, ROWS, XS, WS)                                                                   \
    (SUMI_GEMM_STORED_RING(BYTES, ROWS, XS, WS) > SUMI_GEMM_STORED_SUMS(ROWS)                                          \
         ? SUMI_GEMM_STORED_RING(BYTES, ROWS, XS, WS)                                                                  \
         : SUMI_GEMM_STORED_SUMS(ROWS))

// On Hopper: sumi_gemm_stored_sm90_<type>_<rows>, which takes a tensor map of x first. X(rows, groups, x stages):
// warpgroups that have 64 rows of w each. Three stages of w where they fit, else two.
#define SUMI_GEMM_STORED_SM90_TILES(X) X(64, 3, 5) X(128, 3, 5) X(256, 2, 3)
#define SUMI_GEMM_STORED_SM90_THREADS(GROUPS) (128 * (GROUPS) + 128)
// From row to row of w: an odd number of 16 bytes, so that eight rows begin at different banks.
#define SUMI_GEMM_STORED_SM90_PITCH(BYTES) (SUMI_GEMM_STORED_NEED(BYTES) | 16)
#define SUMI_GEMM_STORED_SM90_STAGES(BYTES, ROWS, GROUPS, XS, WS)                                                      \
    ((XS) * (ROWS)*128 + (WS)*64 * (GROUPS)*SUMI_GEMM_STORED_SM90_PITCH(BYTES))
#define SUMI_GEMM_STORED_SM90_W_STAGES(BYTES, ROWS, GROUPS, XS)                                                        \
    (SUMI_GEMM_STORED_SM90_STAGES(BYTES, ROWS, GROUPS, XS, 3) <= 196 * 1024 ? 3 : 2)
#define SUMI_GEMM_STORED_SM90_RING(BYTES, ROWS, GROUPS, XS)                                                            \
    SUMI_GEMM_STORED_SM90_STAGES(BYTES, ROWS, GROUPS, XS, SUMI_GEMM_STORED_SM90_W_STAGES(BYTES, ROWS, GROUPS, XS))
#define SUMI_GEMM_STORED_SM90_CLUSTER 8 // most blocks of one; there the sums of all lie in the ring's place
#define SUMI_GEMM_STORED_SM90_SUMS(ROWS, GROUPS) (((ROWS) / 8 + SUMI_GEMM_STORED_SM90_CLUSTER - 1) * (GROUPS)*128 * 16)
#define SUMI_GEMM_STORED_SM90_SHARED(BYTES, ROWS, GROUPS, XS)                                                          \
    (16 * (XS) + 8 * 4 * (GROUPS)*3                                                                                    \
     + (SUMI_GEMM_STORED_SM90_RING(BYTES, ROWS, GROUPS, XS) > SUMI_GEMM_STORED_SM90_SUMS(ROWS, GROUPS)                 \
            ? SUMI_GEMM_STORED_SM90_RING(BYTES, ROWS, GROUPS, XS)                                                      \
            : SUMI_GEMM_STORED_SM90_SUMS(ROWS, GROUPS)))

typedef struct sumi_gemm_stored_args {
    uint64_t x; // bf16 [m][ldx], aligned to 16
    // Parts of w, all of the kernel's type: their first bytes, aligned to 16; the row of the stack behind each one's
    // last; the factor of fp8 files. 16 bytes behind the last row may be read.
    uint64_t from[SUMI_GEMM_STORED_PARTS];
    int32_t end[SUMI_GEMM_STORED_PARTS];
    float scale[SUMI_GEMM_STORED_PARTS];
    // split > 1: float [tiles][split][rows * 64]; uint32 [tiles], zero before and after. Hopper: float [blocks][2][rows
    // * cols]
    uint64_t parts, arrivals;
    int32_t m, n, k, ldx, row_bytes;
    int32_t is_gated; // column c of y is the row that FORM_GATED has there
    int32_t swiglu, split;
    int32_t cluster, reserved; // Hopper: blocks of a cluster, which share a tile; 1: parts and arrivals are used
    sumi_gemm_finish finish;
} sumi_gemm_stored_args;
#endif
