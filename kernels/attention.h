// How the attention kernels are launched: sumi_attention_* of attention.cu, attention_any.cu, attention_sm90.cu,
// attention_wide_sm90.cu.
//
// The work is tiles of query rows, numbered sequence by sequence, inside a sequence head by head (attention_sm90.cu,
// causal: from the last rows to the first, heads inside). A launch does the tiles [tile_begin, ...) of up to
// SUMI_ATTENTION_(SM90_)SEQUENCES sequences; how many launches share the tiles changes no bit of the result.
//
//   kernel                               rows  keys/tile  threads  dynamic shared bytes    dim        queries and keys
//   sumi_attention_d128                   128      64       128      98304                 128        one or two spans
//   sumi_attention_d128_w8                256      64       256     131072                 128
//   sumi_attention_d128_40k               128      32       128      40960                 128
//   sumi_attention_d128_m1                 64      32       128      32768                 128
//   sumi_attention_d128_causal            128      32       128      49152                 128        also causal
//   sumi_attention_d128_m1_causal          64      32       128      32768                 128        also causal
//   sumi_attention_d96, _d96_causal       128      32       128      24576                  96
//   sumi_attention_d80                    128      32       128      20480                  80
//   sumi_attention_d80_m1                  64      64       128      40960                  80
//   sumi_attention_d64, _d64_causal       128      64       128      32768                  64
//   sumi_attention_d256                    32      32       128      81920                 256         also causal
//   sumi_attention_d256_k4                 32      64       256     147456                 256         also causal
//   sumi_attention_any_c<chunks>           64      64       256      SUMI_ATTENTION_ANY_SHARED_BYTES   1 .. 64 * chunks, chunks 1, 2, 4, 8; causal, window, odd sizes
//   sumi_attention_sm90_d128              192     128       512     230400                 128        one or two spans
//   sumi_attention_sm90_d128_c2           128     128       384     197632                 128        one or two spans, few tiles
//   sumi_attention_sm90_d128_causal       192     128       512     230400                 128        one span, causal
//   sumi_attention_sm90_d96, _d96_causal  192     128       512     173056                  96        as d128
//   sumi_attention_sm90_d80               192     128       512     226304                  80        one or two spans
//   sumi_attention_sm90_d64, _d64_causal  192     128       512     181248                  64        as d128
//   sumi_attention_sm90_d384              128      64       384     148480                 384        one span; rows of a cluster of two blocks
//   sumi_attention_sm90_d512              128      64       384     197632                 512        as d384
#ifndef SUMI_KERNELS_ATTENTION_H
#define SUMI_KERNELS_ATTENTION_H
#include <stdint.h>

// ---- attention.cu, attention_any.cu ---------------------------------------------------------------------------------
// Nearly what 4 KiB of parameters hold: the 100 windows of a vision tower's picture are one launch.
#define SUMI_ATTENTION_SEQUENCES 120
#define SUMI_ATTENTION_ANY_SHARED_BYTES 41984

// Token i of a sequence is row begin + i, from i = split on row begin + i + jump (the second span). Its tokens
// [first_query, queries) are queries, all `keys` are keys.
typedef struct sumi_attention_sequence {
    // the sequence's tiles are [tile_end - heads * row_tiles, tile_end): head major, row tiles inside
    int32_t tile_end, row_tiles;
    int32_t begin, split, jump;
    int32_t keys, queries, first_query;
} sumi_attention_sequence;

// The only parameter, by value. grid (tiles of this launch).
typedef struct sumi_attention_args {
    // bf16. All but sumi_attention_any: both 16-byte aligned, pitches and columns multiples of 8
    uint64_t qkv, out;
    int32_t pitch, out_pitch;             // elements per row
    int32_t q_column, k_column, v_column; // head 0's first channel in a row of qkv
    int32_t heads, group;                 // query heads; query heads per key head
    int32_t dim;
    int32_t tile_begin; // block b does tile tile_begin + b
    float scale_log2;   // softmax scale * log2 e
    // is_causal: read by d256 and any, whose names do not say it. The others are for any only: window 0 is none;
    // is_aligned: rows and heads begin at multiples of 16 bytes
    int32_t is_causal, window, is_aligned;
    int32_t sequence_count;
    sumi_attention_sequence sequences[SUMI_ATTENTION_SEQUENCES];
} sumi_attention_args;

// ---- attention_sm90.cu, attention_wide_sm90.cu ----------------------------------------------------------------------
#ifdef __cplusplus
#define SUMI_ATTENTION_ALIGNED alignas(64)
#else
#define SUMI_ATTENTION_ALIGNED _Alignas(64)
#endif
#define SUMI_ATTENTION_SM90_SEQUENCES 4
typedef struct sumi_attention_map {
    SUMI_ATTENTION_ALIGNED uint64_t words[16];
} sumi_attention_map; // a CUtensorMap

// First parameter, by value: 3-D bf16 maps {slab, rows, slabs} of each span, strides {row pitch, slab}; a slab is 64
// channels (128-byte swizzle), for dim 96 it is 32 (64-byte swizzle), for dim 80 it is 16 (32-byte swizzle). `rows` is
// the span's own count: the hardware then fills the tail of a tile with zeros and leaves out what would be stored past
// it, so other sequences' rows are neither read nor written. Of one span only [..][0] is used.
typedef struct sumi_attention_sm90_maps {
    // from the first query head on; rows: the span's queries. box {slab, 64, dim / slab}
    sumi_attention_map q[SUMI_ATTENTION_SM90_SEQUENCES][2];
    // from column 0 on;             rows: the span's keys.    box {slab, 128, dim / slab}
    sumi_attention_map kv[SUMI_ATTENTION_SM90_SEQUENCES][2];
    sumi_attention_map out[SUMI_ATTENTION_SM90_SEQUENCES][2]; // as q, of the output
} sumi_attention_sm90_maps;

typedef struct sumi_attention_sm90_sequence {
    int32_t tile_end, row_tiles; // the sequence's tiles are [tile_end - heads * row_tiles, tile_end)
    // groups of 64 queries of the first span, of both: no group holds rows of two spans
    int32_t groups0, groups;
    int32_t key_tiles0, key_tiles; // tiles of 128 keys, likewise
    int32_t tail;                  // keys in the last tile of all
    // the first span's last tile and its keys, when that is not full and a second span follows; else -1
    int32_t boundary, boundary_keys;
} sumi_attention_sm90_sequence;

// Second parameter, by value. grid (min(tiles of this launch, multiprocessors)): blocks walk the tiles a grid apart.
typedef struct sumi_attention_sm90_shape {
    int32_t heads, group;
    int32_t k_slab, v_slab;       // the slab of column 0 .. at which key head 0's k and v begin
    int32_t tile_begin, tile_end; // of this launch
    // from this one on, `parts` numbers stand for a tile: blocks that share its groups of queries
    int32_t cut_begin, parts;
    float scale_log2;
    sumi_attention_sm90_sequence sequences[SUMI_ATTENTION_SM90_SEQUENCES];
} sumi_attention_sm90_shape;

// sumi_attention_sm90_d384, _d512: parameters q, kv, out maps (boxes {64, 64, dim / 128}) and this, all by value. grid (2 * pairs of
// this launch).
typedef struct sumi_attention_wide_shape {
    int32_t keys, group, k_slab, v_slab;
    // pairs of 64-row tiles per head; the launch's first pair, counted head by head
    int32_t pairs, pair_begin;
    float scale_log2;
} sumi_attention_wide_shape;
#endif
