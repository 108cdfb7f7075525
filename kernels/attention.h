// Launch contracts of the attention kernels sumi_attention_* (attention.cu, attention_wide.cu, attention_any.cu,
// attention_sm90.cu, attention_wide_sm90.cu). All compute out = softmax(q k^T * scale) v per sequence and query head. Inputs and outputs
// are bf16, and sums are float.
//
// The work is cut into tiles. A tile is a number of query rows of one head of one sequence. Tiles are numbered sequence
// by sequence, inside a sequence head by head, and inside a head by rows. (The causal kernels of attention_sm90.cu
// differ: inside a sequence the row tiles go from the last rows to the first, and the heads of one row tile follow one
// another.) A launch computes the tiles [tile_begin, ...) of up to SUMI_ATTENTION_SEQUENCES or
// SUMI_ATTENTION_SM90_SEQUENCES sequences. The result has the same bits however the tiles are distributed over
// launches.
//
// Long sequences are bound by the tensor cores. threads: per block. shared bytes: dynamic shared memory. rows: query
// rows of a tile. spans: a sequence consists of one or two ranges of rows of the matrix, see sumi_attention_sequence.
// parts: a tile computes one part of the channels of the output of its rows. The parts of the same rows are neighbouring
// tiles, and row_tiles counts all of them.
// *: the kernel with _causal in its name is causal, and the Hopper one then takes one span only.
// **: causal or not, as args.is_causal says. int8: q k^T in int8. e4m3: q, k, P and v in e4m3. kept: the span's rows are
// those of a matrix of k | v that was computed before, and they are keys only. For the Hopper kernels of head dims up to
// 128 a kept span is one whose map is that of the other matrix; in e4m3 for head dim 128 only.
//
//   kernel                               rows  keys/tile  threads  shared bytes   dim   sequences
//   sumi_attention_d128                   128      64       128      98304          128   one or two spans
//   sumi_attention_d128_w8                256      64       256     131072          128   one or two spans
//   sumi_attention_d128_40k               128      32       128      40960          128   one or two spans
//   sumi_attention_d128_m1                 64      32       128      32768          128   one or two spans
//   sumi_attention_d128_kept              128      64       128      98304          128   two spans, the first one kept
//   sumi_attention_d128_40k_kept          128      32       128      40960          128   two spans, the first one kept
//   sumi_attention_d128_m1_kept            64      32       128      32768          128   two spans, the first one kept
//   sumi_attention_d128_causal            128      32       128      49152          128   one or two spans, causal
//   sumi_attention_d128_m1_causal          64      32       128      32768          128   one or two spans, causal
//   sumi_attention_d96, _d96_causal       128      32       128      24576           96   one or two spans *
//   sumi_attention_d80                    128      32       128      20480           80   one or two spans
//   sumi_attention_d80_m1                  64      64       128      40960           80   one or two spans
//   sumi_attention_d72                    128      32       128      20480           72   one or two spans
//   sumi_attention_d72_m1                  64      64       128      40960           72   one or two spans
//   sumi_attention_d64, _d64_causal       128      64       128      32768           64   one or two spans *
//   sumi_attention_int8_d128              128      32       128      32768          128   one or two spans, int8
//   sumi_attention_int8_d96               128      32       128      24576           96   one or two spans, int8
//   sumi_attention_int8_d64               128      64       128      24576           64   one or two spans, int8
//   sumi_attention_d256                    32      32       128      81920          256   one or two spans **
//   sumi_attention_d256_k4                 32      64       256     147456          256   one or two spans **
//   sumi_attention_d384, _d512             64     128       256      SUMI_ATTENTION_WIDE_SHARED_BYTES (91392)
//                                                               384 or 512; one or two spans
//   sumi_attention_d384_w, _d512_w         64     128       256      SUMI_ATTENTION_WIDE_W_SHARED_BYTES (165120)
//                                                               384 or 512; one or two spans
//   sumi_attention_d768, _d1152            64     128       256      SUMI_ATTENTION_WIDE_SHARED_BYTES (91392)
//                                                               768 or 1152; one or two spans; two parts
//   sumi_attention_d768_w, _d1152_w        64     128       256      SUMI_ATTENTION_WIDE_W_SHARED_BYTES (165120)
//                                                               768 or 1152; one or two spans; two parts
//   sumi_attention_any_c<chunks>           64      64       256      SUMI_ATTENTION_ANY_SHARED_BYTES (41984)
//                                                               dim 1 .. 64 * chunks (chunks: 1, 2, 4 or 8); one or
//                                                               two spans, kept or not, causal or not, window, any
//                                                               alignment
//   sumi_attention_any_parts               64      64       256      SUMI_ATTENTION_ANY_SHARED_BYTES (41984)
//                                                               any dim, in parts of SUMI_ATTENTION_ANY_PART channels;
//                                                               the rest as _any_c<chunks>
//   sumi_attention_sm90_d128              192     128       512     230400          128   one or two spans
//   sumi_attention_sm90_d128_c2           128     128       384     197632          128   one or two spans, few tiles
//   sumi_attention_sm90_d128_causal       192     128       512     230400          128   one span, causal
//   sumi_attention_sm90_fp8_d128          192     128       512     173056          128   one or two spans, e4m3
//   sumi_attention_sm90_fp8_d128_c2       128     128       384     181248          128   the same, few tiles
//   sumi_attention_sm90_fp8_d96           192     128       512     148480           96   one or two spans, e4m3
//   sumi_attention_sm90_d96, _d96_causal  192     128       512     173056           96   one or two spans *
//   sumi_attention_sm90_d80               192     128       512     226304           80   one or two spans
//   sumi_attention_sm90_d64, _d64_causal  192     128       512     181248           64   one or two spans *
//   sumi_attention_sm90_d384_m2           128      32       384     222208          384   one span
//   sumi_attention_sm90_d384_m1           128      64       384     148480          384   the same, few tiles, cluster of 2
//   sumi_attention_sm90_d512              128      64       384     197632          512   one span, cluster of 2
//
// The same on the CPU, in float32, which tests compare with: src/cpu/attention.c.
#ifndef SUMI_KERNELS_ATTENTION_H
#define SUMI_KERNELS_ATTENTION_H
#include <stdint.h>

// ---- attention.cu, attention_wide.cu, attention_any.cu --------------------------------------------------------------
// The largest number of sequences whose parameters fit in the 4 KiB of a launch, nearly. The 100 windows of one image
// of a vision tower are one launch.
#define SUMI_ATTENTION_SEQUENCES 108
#define SUMI_ATTENTION_ANY_SHARED_BYTES 41984
#define SUMI_ATTENTION_ANY_PART 512
#define SUMI_ATTENTION_WIDE_SHARED_BYTES 91392
#define SUMI_ATTENTION_WIDE_W_SHARED_BYTES 165120

// Token i of a sequence is row begin + i of the matrix if i < first_span_tokens (first span), and row begin + i +
// second_span_offset otherwise (second span). Tokens [0, keys) are keys. Tokens [first_query, queries) are queries;
// those from `keys` on, the padding of a text, see all keys, also with causal kernels.
typedef struct sumi_attention_sequence {
    // The sequence's tiles are [tile_end - heads * row_tiles, tile_end): all row tiles of head 0, then those of head 1,
    // and so on.
    int32_t tile_end, row_tiles;
    int32_t begin, first_span_tokens, second_span_offset;
    int32_t keys, queries, first_query;
    union {
        int32_t first_packed_tile; // sumi_attention_int8_*: the first tile of the sequence's packed keys
        int32_t first_kept_row;    // with kept keys: the row of token 0 in them
    };
} sumi_attention_sequence;

// The only parameter, by value. Grid (tiles of this launch), one block per tile.
typedef struct sumi_attention_args {
    // Device addresses of bf16 matrices. For all kernels but sumi_attention_any: both are 16-byte aligned, and pitches
    // and columns are multiples of 8.
    uint64_t qkv, out;
    int32_t pitch, out_pitch;             // elements from row to row
    int32_t q_column, k_column, v_column; // the first channel of head 0 in a row of qkv
    int32_t heads, group;                 // query heads; query heads per key head (grouped-query attention)
    int32_t dim;
    int32_t tile_begin; // block b computes tile tile_begin + b
    float scale_log2;   // softmax scale * log2(e), so that exponentials are powers of 2
    // is_causal is read by sumi_attention_d256, _d256_k4 and _any only: the names of the other kernels say whether they
    // are causal. window and is_aligned are read by sumi_attention_any only. window: a query sees only the keys less
    // than `window` tokens away; 0: no window. is_aligned: 1: rows and heads begin at multiples of 16 bytes.
    int32_t is_causal, window, is_aligned;
    int32_t sequence_count;
    // sumi_attention_int8_* only: what sumi_attention_pack_keys_* wrote
    uint64_t packed_keys, packed_scales;
    int32_t packed_tiles;
    // sumi_attention_d128*_kept and _any: a matrix of k | v, whose rows are the first first_span_tokens tokens of every
    // sequence, which have no queries, and the elements from row to row of it, a multiple of 8. kept 0: none (_any only).
    int32_t kept_pitch;
    uint64_t kept;
    sumi_attention_sequence sequences[SUMI_ATTENTION_SEQUENCES];
} sumi_attention_args;

// sumi_attention_pack_keys_d<dim>: the only parameter, by value: the k of one sequence. Grid (the sequence's tiles of
// SUMI_ATTENTION_INT8_KEYS keys, key heads), block SUMI_ATTENTION_PACK_KEYS_THREADS. Block (x, y) writes tile
// first_tile + x of key head head_begin + y: tile t of key head h is int8 [SUMI_ATTENTION_INT8_KEYS][dim] at packed +
// (h * tile_count + t) * SUMI_ATTENTION_INT8_KEYS * dim, and its scale a float at scales + 4 * (h * tile_count + t). In
// each 16 channels they are in the order 0 1 8 9 2 3 10 11 4 5 12 13 6 7 14 15. Keys past the end are zeros.
#define SUMI_ATTENTION_INT8_KEYS 64
#define SUMI_ATTENTION_PACK_KEYS_THREADS 128
typedef struct sumi_attention_pack_keys_args {
    uint64_t qkv;            // bf16, 16-byte aligned
    uint64_t packed, scales; // packed: 16-byte aligned
    int32_t pitch, k_column; // elements, multiples of 8
    int32_t tile_count, first_tile, head_begin;
    int32_t begin, first_span_tokens, second_span_offset, keys; // as in sumi_attention_sequence
    int32_t reserved;
} sumi_attention_pack_keys_args;

// ---- attention_sm90.cu, attention_wide_sm90.cu ----------------------------------------------------------------------
#ifdef __cplusplus
#define SUMI_ATTENTION_ALIGNED alignas(64)
#else
#define SUMI_ATTENTION_ALIGNED _Alignas(64)
#endif
#define SUMI_ATTENTION_SM90_SEQUENCES 4
typedef struct sumi_attention_map {
    SUMI_ATTENTION_ALIGNED uint64_t words[16];
} sumi_attention_map; // has the layout of a CUtensorMap

// First parameter, by value: two tensor maps per sequence, one for each span. A map is 3-D {slab, rows, slabs} of bf16,
// with the strides {row pitch, slab}. A slab is a group of neighbouring channels: 64 channels (128-byte swizzle); for
// dim 96, 32 channels (64-byte swizzle); for dim 80, 16 channels (32-byte swizzle). The dimension `rows` is the number
// of the span's rows, so TMA writes zeros to shared memory for rows past the span's end and drops stores to such rows:
// rows of other sequences are neither read nor written. For a sequence of one span only [..][0] is used.
typedef struct sumi_attention_sm90_maps {
    // q: begins at the first channel of query head 0; rows: the span's queries. box {slab, 64, dim / slab}
    sumi_attention_map q[SUMI_ATTENTION_SM90_SEQUENCES][2];
    // k and v: begins at column 0 of qkv, or at k of its matrix if there are kept keys; rows: the span's keys. box {slab,
    // 128, dim / slab}
    sumi_attention_map kv[SUMI_ATTENTION_SM90_SEQUENCES][2];
    sumi_attention_map out[SUMI_ATTENTION_SM90_SEQUENCES][2]; // the output, with the rows and boxes of q
} sumi_attention_sm90_maps;

typedef struct sumi_attention_sm90_sequence {
    int32_t tile_end, row_tiles; // the sequence's tiles are [tile_end - heads * row_tiles, tile_end)
    // Groups of 64 queries: those of the first span, and those of both spans. No group holds rows of two spans.
    int32_t first_span_query_groups, query_groups;
    // Tiles of 128 keys: those of the first span, and those of both spans.
    int32_t first_span_key_tiles, key_tiles;
    int32_t last_tile_keys; // keys in the sequence's last tile, 1 .. 128
    // If the first span's last tile of keys is not full and a second span follows: the index of that tile, and its
    // keys. Otherwise -1.
    int32_t boundary_tile, boundary_keys;
} sumi_attention_sm90_sequence;

// Second parameter, by value. Grid (min(tile_end - tile_begin, multiprocessors)). Block b computes tiles tile_begin +
// b, tile_begin + b + grid, and so on.
typedef struct sumi_attention_sm90_shape {
    int32_t heads, group;
    int32_t k_slab, v_slab;       // the slab, counted from where the map begins, at which k and v of key head 0 begin
    int32_t tile_begin, tile_end; // this launch's range of tile numbers
    // From tile number split_begin on, each tile has blocks_per_split_tile consecutive numbers. The blocks with these
    // numbers compute different groups of 64 queries of the tile.
    int32_t split_begin, blocks_per_split_tile;
    float scale_log2;
    sumi_attention_sm90_sequence sequences[SUMI_ATTENTION_SM90_SEQUENCES];
} sumi_attention_sm90_shape;

// sumi_attention_sm90_fp8_d<dim>: the parameters are the maps and the shape above, and then the values. q and k are
// e4m3, written by sumi_qk_norm_rope_fp8_*: a head has dim bytes, at the begin of the 2 dim bytes that it has in the
// bf16 matrix. The maps q and kv are {dim, rows, heads} of bytes, with the strides {row pitch, 2 dim}, 128-byte swizzle
// and boxes {128, 64, 1} and {128, 128, 1}: TMA fills the rows of narrower heads with zeros. k_slab counts heads;
// v_slab is not read. The k of kept keys is stored likewise, by sumi_copy_kept_fp8, and their v stays bf16.
//
// v is e4m3 in tiles of 128 keys by dim channels, written by sumi_attention_pack_values_d<dim>: tile t of key head h is
// at tiles + (h * tile_count + t) * SUMI_ATTENTION_FP8_TILE_BYTES(dim). The tiles of a sequence are those of its first
// span and then those of its second one. A tile is stored as wgmma reads it from shared memory: a row per channel, of
// 128 bytes, one per key, in the 128-byte swizzle; keys 16 i .. 16 i + 15 in the order 0 1 8 9 2 3 10 11 4 5 12 13 6 7
// 14 15. Keys past the span's end are zeros. exponents: per tile in the same order a float e, which is an integer: a value
// of v is the stored one * 2^e + the mean of its channel, or nearly that. means: float [sequence of the op][key head][dim], 16-byte
// aligned.
#define SUMI_ATTENTION_FP8_TILE_BYTES(channels) (128 * (channels))
typedef struct sumi_attention_fp8_values {
    uint64_t tiles, exponents, means; // device addresses; tiles: a multiple of 128; means: from the first sequence here
    int32_t tile_count;
    int32_t first_tile[SUMI_ATTENTION_SM90_SEQUENCES]; // of each sequence
    int32_t reserved;
} sumi_attention_fp8_values;

// sumi_attention_pack_values_d<dim>: the only parameter, by value: the v of one sequence. Grid (the sequence's tiles of
// keys, key heads), block SUMI_ATTENTION_PACK_THREADS(dim). Block (x, y) writes tile first_tile + x of key head
// head_begin + y.
// Before it sumi_attention_value_means, with the same parameter, writes their means: grid (dim / 16, key heads), block
// SUMI_ATTENTION_MEANS_THREADS, for key heads from head_begin on.
#define SUMI_ATTENTION_PACK_THREADS(channels) (2 * (channels))
#define SUMI_ATTENTION_MEANS_THREADS 512
typedef struct sumi_attention_pack_args {
    // Of each span: where v of key head 0 begins in its first row (bf16, 16-byte aligned), the elements from row to row (a
    // multiple of 8), and the number of keys. keys[1] = 0: one span. The spans may lie in different matrices.
    uint64_t v[2];
    int32_t pitch[2], keys[2];
    int32_t first_tile, head_begin;
    sumi_attention_fp8_values values; // first_tile is not read; means: of this sequence
} sumi_attention_pack_args;

// sumi_attention_sm90_d384_m2, _d384_m1 and _d512: the parameters are the maps of q, of k and v, and of out, then this
// struct, all by value. Boxes are {64, 64, dim / 128}, but those of k and v of _d384_m2 have SUMI_ATTENTION_TALL_KEYS
// rows. A tile has 128 query rows. Grid (tiles of this launch) for _d384_m2, of which a block computes a tile; otherwise
// twice that, cluster 2 (in the kernel), and the two blocks of a cluster compute 64 rows each.
#define SUMI_ATTENTION_TALL_KEYS 32
typedef struct sumi_attention_wide_shape {
    int32_t keys, group, k_slab, v_slab;
    int32_t tiles_per_head, tile_begin; // tile_begin: this launch's first tile; tiles are numbered head by head
    float scale_log2;
} sumi_attention_wide_shape;
#endif
