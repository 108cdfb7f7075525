// softmax(q k^T * scale) v with mma.sync, without the score matrix (FlashAttention-2, Dao 2023), for compute capability
// 8.0 and newer: bf16, float sums, head dims 64, 72, 80, 96, 128 and 256, grouped-query heads, optionally causal,
// sequences of one or two spans whose queries may begin later than their keys. attention.h has the shapes and launches.
// The code is in attention_forward_sm80.cuh.
//
// A block computes QUERY_WARPS * QUERY_BLOCKS * 16 queries of one head. It goes through the keys from the last tile of
// TILE_KEYS keys to the first, so only its first iterations need masks. K and V have two buffers each, filled by
// cp.async, and an iteration has one barrier. Every fragment of K and V is used for QUERY_BLOCKS = 2 blocks of 16
// queries per warp, which was the main gain. Of the HEAD_DIM / 16 fragments of q, Q_FRAGMENTS_IN_REGISTERS stay in
// registers and the others in shared memory. Sums and output share one row maximum. It is updated only when a score
// exceeds it by a factor of 2^8 or more (lazy rescaling). This approximates nothing, and an iteration without an update
// exchanges nothing between lanes. The row of a token is looked up (row_of), so a tile may span both ranges of a
// sequence, and only the end of the sequence is masked. Rows past the end are written to shared memory as zeros and
// never read from global memory: the memory there may hold NaN, and 0 * NaN is NaN.
//
// Lanes and fragments (r = lane >> 2, u = lane & 3; the fragments are drawn in portable_sm80.cuh, where u is q).
// i: block of 16 queries; n: group of 8 keys; d: group of 8 channels; e: element of an accumulator.
//
//     S = q k^T     accumulator scores[i][n][e]          16 queries x 8 keys
//                       row r        keys 8 n + 2 u, + 1         e = 0, 1
//                       row r + 8                                e = 2, 3
//     P = exp2(S)   A fragment probabilities[i][n / 2]   16 queries x 16 keys
//                       n even       rows r, r + 8               a0, a1
//                       n odd        rows r, r + 8               a2, a3
//     O = P v       accumulator acc[i][d][e]             16 queries x 8 channels
//                       as S, with channels 8 d + 2 u, + 1
//
// The accumulator layout of S is thus the A layout of P, and P never leaves the registers of its lane. One ldmatrix.x4
// loads these four 8x8 matrices (the lanes 8 i .. 8 i + 7 address matrix i):
//
//     matrix            0                     1                     2                      3
//     q (A operand)     rows 0-7, ch 0-7      rows 8-15, ch 0-7     rows 0-7, ch 8-15      rows 8-15, ch 8-15
//     k (two B)         keys 0-7, ch 0-7      keys 0-7, ch 8-15     keys 8-15, ch 0-7      keys 8-15, ch 8-15
//     v (transposed)    keys 0-7, ch 0-7      keys 8-15, ch 0-7     keys 0-7, ch 8-15      keys 8-15, ch 8-15
//
// Head dim 256 has few tiles: a prompt of 512 tokens and 8 heads has only 64 tiles of 64 queries. So a tile has 32
// queries there, and its keys are divided: KEY_WARPS warps compute the same queries, each with TILE_KEYS / KEY_WARPS
// keys of every tile and with its own maxima, sums and outputs. At the end these partial results are combined through
// shared memory, always in the same order.
//
// When each kernel is used: d128_40k where two blocks share 100 KiB of shared memory (compute capability 8.6, 8.9,
// 12.0), the _m1 kernels where there are few tiles; d128 and d128_w8 where there is more shared memory (8.0, and 9.0
// without wgmma). d80_m1 is for windows of up to 64 rows, whose keys are one tile. d256_k4 is for devices whose blocks
// may have 144 KiB of shared memory.
//
// A masked score is -inf, and the initial maximum is -1e30. If both were -1e30, fma(s, c, -m c) of a score s, a maximum
// m and c = scale_log2 would be inf in rows of a causal tile that see no key yet, because 1e30 c is rounded. Tried and
// slower: 16 queries per warp with double-buffered fragments, 16 keys at a time, single buffers, q as two register
// fragments with 64 keys (register spills).
#include "attention_forward_sm80.cuh"

#define ATTENTION_KERNEL(NAME, HEAD_DIM, TILE_KEYS, QUERY_WARPS, KEY_WARPS, QUERY_BLOCKS, Q_FRAGMENTS_IN_REGISTERS,    \
                         CAUSALITY, BLOCKS_PER_MULTIPROCESSOR)                                                         \
    extern "C" __global__ void __launch_bounds__(32 * QUERY_WARPS * KEY_WARPS, BLOCKS_PER_MULTIPROCESSOR)              \
        NAME(const __grid_constant__ sumi_attention_args args)                                                         \
    {                                                                                                                  \
        attention<HEAD_DIM, TILE_KEYS, QUERY_WARPS, KEY_WARPS, QUERY_BLOCKS, Q_FRAGMENTS_IN_REGISTERS, CAUSALITY,      \
                  false>(args);                                                                                        \
    }
#define ATTENTION_KEPT_KERNEL(NAME, TILE_KEYS, QUERY_BLOCKS, Q_FRAGMENTS_IN_REGISTERS, BLOCKS_PER_MULTIPROCESSOR)      \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS_PER_MULTIPROCESSOR)                                       \
        NAME(const __grid_constant__ sumi_attention_args args)                                                         \
    {                                                                                                                  \
        attention<128, TILE_KEYS, 4, 1, QUERY_BLOCKS, Q_FRAGMENTS_IN_REGISTERS, NOT_CAUSAL, false, true>(args);        \
    }
// Heads of 72 channels with eight zeros.
#define ATTENTION_D72_KERNEL(NAME, TILE_KEYS, QUERY_BLOCKS, BLOCKS_PER_MULTIPROCESSOR)                                 \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS_PER_MULTIPROCESSOR)                                       \
        NAME(const __grid_constant__ sumi_attention_args args)                                                         \
    {                                                                                                                  \
        attention<80, TILE_KEYS, 4, 1, QUERY_BLOCKS, 5, NOT_CAUSAL, false, false, 72>(args);                           \
    }
// name, HEAD_DIM, TILE_KEYS, QUERY_WARPS, KEY_WARPS, QUERY_BLOCKS, Q_FRAGMENTS_IN_REGISTERS, CAUSALITY, blocks per
// multiprocessor
ATTENTION_KERNEL(sumi_attention_d128, 128, 64, 4, 1, 2, 0, NOT_CAUSAL, 2)
ATTENTION_KERNEL(sumi_attention_d128_w8, 128, 64, 8, 1, 2, 0, NOT_CAUSAL, 1)
ATTENTION_KERNEL(sumi_attention_d128_40k, 128, 32, 4, 1, 2, 6, NOT_CAUSAL, 2)
ATTENTION_KERNEL(sumi_attention_d128_m1, 128, 32, 4, 1, 1, 8, NOT_CAUSAL, 3)
ATTENTION_KERNEL(sumi_attention_d128_causal, 128, 32, 4, 1, 2, 4, CAUSAL, 2)
ATTENTION_KERNEL(sumi_attention_d128_m1_causal, 128, 32, 4, 1, 1, 8, CAUSAL, 3)
ATTENTION_KERNEL(sumi_attention_d96, 96, 32, 4, 1, 2, 6, NOT_CAUSAL, 2)
ATTENTION_KERNEL(sumi_attention_d96_causal, 96, 32, 4, 1, 2, 6, CAUSAL, 2)
ATTENTION_KERNEL(sumi_attention_d80, 80, 32, 4, 1, 2, 5, NOT_CAUSAL, 2)
ATTENTION_KERNEL(sumi_attention_d80_m1, 80, 64, 4, 1, 1, 5, NOT_CAUSAL, 3)
ATTENTION_D72_KERNEL(sumi_attention_d72, 32, 2, 2)
ATTENTION_D72_KERNEL(sumi_attention_d72_m1, 64, 1, 3)
ATTENTION_KERNEL(sumi_attention_d64, 64, 64, 4, 1, 2, 4, NOT_CAUSAL, 2)
ATTENTION_KERNEL(sumi_attention_d64_causal, 64, 64, 4, 1, 2, 4, CAUSAL, 2)
ATTENTION_KERNEL(sumi_attention_d256, 256, 32, 2, 2, 1, 0, EITHER, 1)
ATTENTION_KERNEL(sumi_attention_d256_k4, 256, 64, 2, 4, 1, 0, EITHER, 1)
// The same as the kernels of these names without _kept.
ATTENTION_KEPT_KERNEL(sumi_attention_d128_kept, 64, 2, 0, 2)
ATTENTION_KEPT_KERNEL(sumi_attention_d128_40k_kept, 32, 2, 6, 2)
ATTENTION_KEPT_KERNEL(sumi_attention_d128_m1_kept, 32, 1, 8, 3)
