// Products that read weights in device memory in their file's own type and layout ("stored" weights), and unpack them
// for each product: types and launch parameters, shared by the kernels and src/cuda. A chunk is 256 elements of a row,
// or the rest of a row after its last whole chunk. A weight may be a stack of several tensors of the file, one above
// the other (stacked tensors), each with its own address and scale.
//
// The same on the CPU, in float32, which tests compare with: src/cpu/product.c, which unpacks to float32.
#ifndef SUMI_KERNELS_STORED_H
#define SUMI_KERNELS_STORED_H
#include "gemm.h"

// X(name, number, bytes): bytes of a chunk. The layouts are described in src/base/dtype.c. A row has a multiple of 32
// elements; in the K types, IQ4_XS and e4m3b a multiple of 256. No file has the last two: src/device/stored.c makes
// them from elements and factors that lie in different places of a file.
//   nvfp4   for each 32 elements the e4m3 factors of the first and of the last 16, then 16 bytes of e2m1 codes: the low
//           nibbles are the first 16 elements, the high nibbles the last 16
//   e4m3b   for each 256 elements four float factors, one for each 64, then the elements in e4m3
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
    X(e5m2, 13, 256)                                                                                                   \
    X(nvfp4, 14, 144)                                                                                                  \
    X(e4m3b, 15, 272)
#define SUMI_STORED_TYPE_COUNT 16
// The types that have Hopper kernels (gemm_stored_sm90.cu): those of most files. The Hopper kernels of each further
// type would add 230 KB.
#define SUMI_STORED_SM90_TYPES(X)                                                                                      \
    X(q8_0, 0, 272)                                                                                                    \
    X(q4_0, 1, 144)                                                                                                    \
    X(q4_k, 7, 144)                                                                                                    \
    X(q5_k, 8, 176)                                                                                                    \
    X(q6_k, 9, 210)                                                                                                    \
    X(iq4_nl, 10, 144)                                                                                                 \
    X(e4m3, 12, 256)

#define SUMI_UNPACK_THREADS 256

// Unpacks the rows of one stacked tensor to bf16: sumi_unpack_<type>.
typedef struct sumi_unpack_args {
    uint64_t from;    // the tensor's first byte, 16-byte aligned
    uint64_t to;      // the whole weight, bf16 [stack_rows][cols], 16-byte aligned
    int64_t elements; // of the tensor
    // row_begin: the tensor's first row in the stack. is_gated: rows of `to` are interleaved as SUMI_DEVICE_FORM_GATED
    // says (src/device/form.h)
    int32_t cols, row_begin, stack_rows, is_gated;
    float scale; // of the tensor, in files of fp8 and nvfp4; otherwise 1
    int32_t reserved;
} sumi_unpack_args;

// y = epilogue(x w^T) for few rows of x: sumi_gemm_stored_<type>_<rows> (gemm_stored.cu).
#define SUMI_GEMM_STORED_COLS 64     // rows of w (columns of the product) of a block
#define SUMI_GEMM_STORED_THREADS 128 // four warps; each has 16 rows of w and all rows of x of the block
#define SUMI_GEMM_STORED_TENSORS 4   // most stacked tensors of a weight
// X(rows, x slots, w slots): rows of x in a block's tile; ring slots for k-blocks of x (64 elements of k) and for
// chunks of w (256 elements of k).
#define SUMI_GEMM_STORED_TILES(X) X(16, 4, 3) X(64, 4, 3)
// CHUNK_BYTES: of a row's whole chunk, as in SUMI_STORED_TYPES.
// ROW_BYTES: bytes of shared memory for one row's chunk of w. Copies are whole 16-byte units. When the chunk's length
// is no multiple of 16, a chunk may begin at any even byte, and up to 14 bytes in front of it are copied with it.
// PITCH: bytes from row to row in shared memory, at least ROW_BYTES. PITCH % 128 is 32 or 96, so that four consecutive
// rows begin at different quarters of the banks.
#define SUMI_GEMM_STORED_ROW_BYTES(CHUNK_BYTES)                                                                        \
    ((CHUNK_BYTES) % 16 == 0 ? (CHUNK_BYTES) : ((CHUNK_BYTES) + 14 + 15) / 16 * 16)
#define SUMI_GEMM_STORED_PITCH(CHUNK_BYTES)                                                                            \
    (SUMI_GEMM_STORED_ROW_BYTES(CHUNK_BYTES)                                                                           \
     + (SUMI_GEMM_STORED_ROW_BYTES(CHUNK_BYTES) % 64 == 32   ? 0                                                       \
        : SUMI_GEMM_STORED_ROW_BYTES(CHUNK_BYTES) % 64 == 16 ? 16                                                      \
        : SUMI_GEMM_STORED_ROW_BYTES(CHUNK_BYTES) % 64 == 0  ? 32                                                      \
                                                             : 48))
// Dynamic shared memory in bytes: the ring buffers, or the block's sums, which replace them at the end. X_ROWS: rows of
// x in a block's tile.
#define SUMI_GEMM_STORED_RINGS_BYTES(CHUNK_BYTES, X_ROWS, X_SLOTS, W_SLOTS)                                            \
    ((X_SLOTS) * (X_ROWS)*128 + (W_SLOTS)*SUMI_GEMM_STORED_COLS * SUMI_GEMM_STORED_PITCH(CHUNK_BYTES))
#define SUMI_GEMM_STORED_SUMS_BYTES(X_ROWS) ((X_ROWS) * (SUMI_GEMM_STORED_COLS + 4) * 4)
#define SUMI_GEMM_STORED_SHARED(CHUNK_BYTES, X_ROWS, X_SLOTS, W_SLOTS)                                                 \
    (SUMI_GEMM_STORED_RINGS_BYTES(CHUNK_BYTES, X_ROWS, X_SLOTS, W_SLOTS) > SUMI_GEMM_STORED_SUMS_BYTES(X_ROWS)         \
         ? SUMI_GEMM_STORED_RINGS_BYTES(CHUNK_BYTES, X_ROWS, X_SLOTS, W_SLOTS)                                         \
         : SUMI_GEMM_STORED_SUMS_BYTES(X_ROWS))

// On Hopper: sumi_gemm_stored_sm90_<type>_<rows> (gemm_stored_sm90.cu), whose first parameter is a tensor map of x.
// X(rows, warpgroups, x slots): rows of x in a tile; warpgroups, each of which has 64 rows of w; ring slots for
// k-blocks of x. The ring buffer of w has three slots if all ring buffers then fit into 196 KiB, else two. The rest of
// the 227 KiB that a block may have is for static shared memory (30 KiB with three warpgroups) and barriers.
#define SUMI_GEMM_STORED_SM90_TILES(X) X(64, 3, 5) X(128, 3, 5) X(256, 2, 3)
#define SUMI_GEMM_STORED_SM90_THREADS(WARPGROUPS) (128 * (WARPGROUPS) + 128)
// Bytes from row to row of w in shared memory: an odd multiple of 16, so that eight rows begin at different banks.
#define SUMI_GEMM_STORED_SM90_PITCH(CHUNK_BYTES) (SUMI_GEMM_STORED_ROW_BYTES(CHUNK_BYTES) | 16)
#define SUMI_GEMM_STORED_SM90_SLOTS_BYTES(CHUNK_BYTES, X_ROWS, WARPGROUPS, X_SLOTS, W_SLOTS)                           \
    ((X_SLOTS) * (X_ROWS)*128 + (W_SLOTS)*64 * (WARPGROUPS)*SUMI_GEMM_STORED_SM90_PITCH(CHUNK_BYTES))
#define SUMI_GEMM_STORED_SM90_W_SLOTS(CHUNK_BYTES, X_ROWS, WARPGROUPS, X_SLOTS)                                        \
    (SUMI_GEMM_STORED_SM90_SLOTS_BYTES(CHUNK_BYTES, X_ROWS, WARPGROUPS, X_SLOTS, 3) <= 196 * 1024 ? 3 : 2)
#define SUMI_GEMM_STORED_SM90_RINGS_BYTES(CHUNK_BYTES, X_ROWS, WARPGROUPS, X_SLOTS)                                    \
    SUMI_GEMM_STORED_SM90_SLOTS_BYTES(CHUNK_BYTES, X_ROWS, WARPGROUPS, X_SLOTS,                                        \
                                      SUMI_GEMM_STORED_SM90_W_SLOTS(CHUNK_BYTES, X_ROWS, WARPGROUPS, X_SLOTS))
#define SUMI_GEMM_STORED_SM90_CLUSTER 8 // most blocks of a cluster
// Bytes of the partial sums that a block of a cluster receives. They replace the ring buffers.
#define SUMI_GEMM_STORED_SM90_SUMS_BYTES(X_ROWS, WARPGROUPS)                                                           \
    (((X_ROWS) / 8 + SUMI_GEMM_STORED_SM90_CLUSTER - 1) * (WARPGROUPS)*128 * 16)
#define SUMI_GEMM_STORED_SM90_SHARED(CHUNK_BYTES, X_ROWS, WARPGROUPS, X_SLOTS)                                         \
    (16 * (X_SLOTS) + 8 * 4 * (WARPGROUPS)*3                                                                           \
     + (SUMI_GEMM_STORED_SM90_RINGS_BYTES(CHUNK_BYTES, X_ROWS, WARPGROUPS, X_SLOTS)                                    \
                > SUMI_GEMM_STORED_SM90_SUMS_BYTES(X_ROWS, WARPGROUPS)                                                 \
            ? SUMI_GEMM_STORED_SM90_RINGS_BYTES(CHUNK_BYTES, X_ROWS, WARPGROUPS, X_SLOTS)                              \
            : SUMI_GEMM_STORED_SM90_SUMS_BYTES(X_ROWS, WARPGROUPS)))

typedef struct sumi_gemm_stored_args {
    uint64_t x; // bf16 [m][ldx], aligned to 16
    // The stacked tensors of w, all of the kernel's type. from: the first byte of each, 16-byte aligned. end: the row
    // of the stack after the tensor's last. scale: the scale of files of fp8 and nvfp4, otherwise 1. The kernels may
    // read up to 16 bytes beyond the last row.
    uint64_t from[SUMI_GEMM_STORED_TENSORS];
    int32_t end[SUMI_GEMM_STORED_TENSORS];
    float scale[SUMI_GEMM_STORED_TENSORS];
    // partial_sums: with split > 1 float [tiles][split][rows * 64]; Hopper: float [grid.y][grid.x][2][rows of x * rows
    // of w], of a tile.
    // arrivals: uint32 [tiles] counters, zero before and after the launch. Hopper: [grid.y][tiles of w].
    uint64_t partial_sums, arrivals;
    int32_t m, n, k, ldx, row_bytes; // row_bytes: of a row of w; a multiple of 16 for types whose chunks are
    // Column c of the product is row c of w in the order of SUMI_DEVICE_FORM_GATED: w itself is not interleaved.
    int32_t is_gated;
    // swiglu: 1: y = silu(gate) * up, only with is_gated. Without it y has the product's columns, interleaved.
    int32_t swiglu, split; // split: blocks that share a tile's k (grid.z); Hopper does not read it
    // Hopper: blocks of a cluster, which share a tile. 1: no cluster; the blocks (grid.x, no more than there are
    // chunks) share the list of all chunks, and their partial sums go through `partial_sums`.
    int32_t cluster, reserved;
    sumi_gemm_epilogue epilogue;
} sumi_gemm_stored_args;
#endif
