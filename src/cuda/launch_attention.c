// Attention on the device: which kernel an op uses, how it is cut into tiles, and the launches of a slice's share of
// the tiles.
//
//   op's sequences --tokens_of--> spans, adjoining ones merged --choose--> kernel, rows per tile --sumi_cuda_share--> tiles [begin, end) --> launches
//
// The kernel follows from the whole op and the device. A tile is the same work in every launch, so slices change no
// bits.
#include "base/assert.h"
#include "base/numbers.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "kernels/attention.h"
#include <string.h>

_Static_assert(sizeof(sumi_attention_args) <= 4096, "a launch takes 4 KiB of parameters");

typedef enum kernel_family {
    FAMILY_ANY,      // attention_any.cu
    FAMILY_PORTABLE, // attention.cu, attention_wide.cu, attention_int8.cu
    FAMILY_HALVES,   // attention_wide.cu: a tile has half of the channels of the output
    FAMILY_HOPPER,   // attention_sm90.cu, attention_fp8_sm90.cu
    FAMILY_WIDE      // attention_wide_sm90.cu
} kernel_family;

typedef struct attention_kernel {
    const char* name;
    kernel_family family;
    int32_t rows; // queries per tile
    uint32_t threads, shared_bytes;
} attention_kernel;

static const attention_kernel s_any[4] = {
    {"sumi_attention_any_c1", FAMILY_ANY, 64, 256, SUMI_ATTENTION_ANY_SHARED_BYTES},
    {"sumi_attention_any_c2", FAMILY_ANY, 64, 256, SUMI_ATTENTION_ANY_SHARED_BYTES},
    {"sumi_attention_any_c4", FAMILY_ANY, 64, 256, SUMI_ATTENTION_ANY_SHARED_BYTES},
    {"sumi_attention_any_c8", FAMILY_ANY, 64, 256, SUMI_ATTENTION_ANY_SHARED_BYTES}};
static const attention_kernel s_any_parts = {"sumi_attention_any_parts", FAMILY_ANY, 64, 256,
                                             SUMI_ATTENTION_ANY_SHARED_BYTES};
static const attention_kernel s_d128 = {"sumi_attention_d128", FAMILY_PORTABLE, 128, 128, 98304};
static const attention_kernel s_d128_w8 = {"sumi_attention_d128_w8", FAMILY_PORTABLE, 256, 256, 131072};
static const attention_kernel s_d128_40k = {"sumi_attention_d128_40k", FAMILY_PORTABLE, 128, 128, 40960};
static const attention_kernel s_d128_m1 = {"sumi_attention_d128_m1", FAMILY_PORTABLE, 64, 128, 32768};
static const attention_kernel s_d128_kept = {"sumi_attention_d128_kept", FAMILY_PORTABLE, 128, 128, 98304};
static const attention_kernel s_d128_40k_kept = {"sumi_attention_d128_40k_kept", FAMILY_PORTABLE, 128, 128, 40960};
static const attention_kernel s_d128_m1_kept = {"sumi_attention_d128_m1_kept", FAMILY_PORTABLE, 64, 128, 32768};
static const attention_kernel s_d128_causal = {"sumi_attention_d128_causal", FAMILY_PORTABLE, 128, 128, 49152};
static const attention_kernel s_d128_m1_causal = {"sumi_attention_d128_m1_causal", FAMILY_PORTABLE, 64, 128, 32768};
static const attention_kernel s_d96[2] = {{"sumi_attention_d96", FAMILY_PORTABLE, 128, 128, 24576},
                                          {"sumi_attention_d96_causal", FAMILY_PORTABLE, 128, 128, 24576}};
static const attention_kernel s_d80 = {"sumi_attention_d80", FAMILY_PORTABLE, 128, 128, 20480};
static const attention_kernel s_d80_m1 = {"sumi_attention_d80_m1", FAMILY_PORTABLE, 64, 128, 40960};
static const attention_kernel s_d72 = {"sumi_attention_d72", FAMILY_PORTABLE, 128, 128, 20480};
static const attention_kernel s_d72_m1 = {"sumi_attention_d72_m1", FAMILY_PORTABLE, 64, 128, 40960};
static const attention_kernel s_int8_d128 = {"sumi_attention_int8_d128", FAMILY_PORTABLE, 128, 128, 32768};
static const attention_kernel s_int8_d96 = {"sumi_attention_int8_d96", FAMILY_PORTABLE, 128, 128, 24576};
static const attention_kernel s_int8_d64 = {"sumi_attention_int8_d64", FAMILY_PORTABLE, 128, 128, 24576};
static const attention_kernel s_d256 = {"sumi_attention_d256", FAMILY_PORTABLE, 32, 128, 81920};
static const attention_kernel s_d256_k4 = {"sumi_attention_d256_k4", FAMILY_PORTABLE, 32, 256, 147456};
static const attention_kernel s_d384[2] = {
    {"sumi_attention_d384", FAMILY_PORTABLE, 64, 256, SUMI_ATTENTION_WIDE_SHARED_BYTES},
    {"sumi_attention_d384_w", FAMILY_PORTABLE, 64, 256, SUMI_ATTENTION_WIDE_W_SHARED_BYTES}};
static const attention_kernel s_d512[2] = {
    {"sumi_attention_d512", FAMILY_PORTABLE, 64, 256, SUMI_ATTENTION_WIDE_SHARED_BYTES},
    {"sumi_attention_d512_w", FAMILY_PORTABLE, 64, 256, SUMI_ATTENTION_WIDE_W_SHARED_BYTES}};
static const attention_kernel s_d768[2] = {
    {"sumi_attention_d768", FAMILY_HALVES, 64, 256, SUMI_ATTENTION_WIDE_SHARED_BYTES},
    {"sumi_attention_d768_w", FAMILY_HALVES, 64, 256, SUMI_ATTENTION_WIDE_W_SHARED_BYTES}};
static const attention_kernel s_d1152[2] = {
    {"sumi_attention_d1152", FAMILY_HALVES, 64, 256, SUMI_ATTENTION_WIDE_SHARED_BYTES},
    {"sumi_attention_d1152_w", FAMILY_HALVES, 64, 256, SUMI_ATTENTION_WIDE_W_SHARED_BYTES}};
static const attention_kernel s_d64[2] = {{"sumi_attention_d64", FAMILY_PORTABLE, 128, 128, 32768},
                                          {"sumi_attention_d64_causal", FAMILY_PORTABLE, 128, 128, 32768}};
static const attention_kernel s_sm90_d128[2] = {{"sumi_attention_sm90_d128", FAMILY_HOPPER, 192, 512, 230400},
                                                {"sumi_attention_sm90_d128_causal", FAMILY_HOPPER, 192, 512, 230400}};
static const attention_kernel s_sm90_d128_c2 = {"sumi_attention_sm90_d128_c2", FAMILY_HOPPER, 128, 384, 197632};
static const attention_kernel s_sm90_d96[2] = {{"sumi_attention_sm90_d96", FAMILY_HOPPER, 192, 512, 173056},
                                               {"sumi_attention_sm90_d96_causal", FAMILY_HOPPER, 192, 512, 173056}};
static const attention_kernel s_sm90_d80 = {"sumi_attention_sm90_d80", FAMILY_HOPPER, 192, 512, 226304};
static const attention_kernel s_sm90_d64[2] = {{"sumi_attention_sm90_d64", FAMILY_HOPPER, 192, 512, 181248},
                                               {"sumi_attention_sm90_d64_causal", FAMILY_HOPPER, 192, 512, 181248}};
static const attention_kernel s_sm90_d384_m2 = {"sumi_attention_sm90_d384_m2", FAMILY_WIDE, 128, 384, 222208};
static const attention_kernel s_sm90_d384_m1 = {"sumi_attention_sm90_d384_m1", FAMILY_WIDE, 128, 384, 148480};
static const attention_kernel s_sm90_d512 = {"sumi_attention_sm90_d512", FAMILY_WIDE, 128, 384, 197632};

static const attention_kernel s_fp8_d128 = {"sumi_attention_sm90_fp8_d128", FAMILY_HOPPER, 192, 512, 173056};
static const attention_kernel s_fp8_d128_c2 = {"sumi_attention_sm90_fp8_d128_c2", FAMILY_HOPPER, 128, 384, 181248};
static const attention_kernel s_fp8_d96 = {"sumi_attention_sm90_fp8_d96", FAMILY_HOPPER, 192, 512, 148480};

bool sumi_cuda_has_e4m3_attention(int32_t dim, bool has_kept) { return dim == 128 || (dim == 96 && !has_kept); }

// The tokens of a sequence as spans of keys. In each span the first `queries` rows are queries. With first_query, the
// queries are all tokens from that one on, the rows of the second span; if the op has kept keys, the first span is rows
// of them. With has_padding, the keys are the first keys[0] tokens, and only the sum of the queries is of use.
typedef struct tokens {
    int32_t span_count, begin[2], keys[2], queries[2], first_query;
    bool has_padding;
} tokens;

static bool has_kept(const sumi_op* op) { return op->in[2].id != 0; }
// Whether the keys and values of span `s` of every sequence are kept ones.
static bool is_kept_span(const sumi_op* op, int32_t s) { return has_kept(op) && s == 0; }

static tokens tokens_of(const sumi_op* op, int32_t index)
{
    const sumi_sequence* sequence = &op->u.attention.sequences[index];
    const sumi_span* span = sequence->span;
    tokens t = {1, {span[0].begin, 0}, {span[0].count, 0}, {span[0].count, 0}, 0, false};
    if (sequence->span_count == 2) {
        t.has_padding = sumi_sequence_key_spans(sequence) == 1;
        int32_t more = sequence->query_spans == 2 ? span[1].count : 0, more_keys = t.has_padding ? 0 : span[1].count;
        // for one image the caption directly follows the image tokens
        if (span[1].begin == span[0].begin + span[0].count && sequence->query_first == 0) {
            t.keys[0] += more_keys;
            t.queries[0] += more;
        } else {
            t.span_count = 2;
            t.begin[1] = span[1].begin;
            t.keys[1] = more_keys;
            t.queries[1] = more;
        }
    }
    if (sequence->query_first > 0) {
        t.first_query = span[0].count;
        t.queries[0] = 0;
        t.queries[1] = sumi_sequence_queries(sequence);
    }
    return t;
}

// Tiles of the same rows of a head: each has a part of the channels of the output.
static int32_t parts_of(const attention_kernel* kernel, int32_t dim)
{
    return kernel == &s_any_parts          ? sumi_divide_up(dim, SUMI_ATTENTION_ANY_PART)
         : kernel->family == FAMILY_HALVES ? 2
                                           : 1;
}

// Tiles of one head.
static int32_t row_tiles(const attention_kernel* kernel, const tokens* t, int32_t dim)
{
    if (kernel->family == FAMILY_HOPPER) { // the 64 queries of a warpgroup are of one span
        return sumi_divide_up(sumi_divide_up(t->queries[0], 64) + sumi_divide_up(t->queries[1], 64), kernel->rows / 64);
    }
    return sumi_divide_up(t->queries[0] + t->queries[1], kernel->rows) * parts_of(kernel, dim);
}

// Tiles of the whole op. The number fits into 32 bits, because a tile holds at least half as many queries as a work
// range of the plan, except for one tile at the beginning of a second span, and a head has few parts.
static int32_t count_tiles(const sumi_op* op, const attention_kernel* kernel)
{
    int32_t tiles = 0;
    for (int32_t i = 0; i < op->u.attention.sequence_count; i++) {
        tokens t = tokens_of(op, i);
        tiles += op->u.attention.q_heads * row_tiles(kernel, &t, op->u.attention.dim);
    }
    return tiles;
}

// Rows of all tiles, including rows without a query. Not for kernels with parts.
static int64_t count_query_rows(const sumi_op* op, const attention_kernel* kernel)
{
    return (int64_t)count_tiles(op, kernel) * kernel->rows;
}

static bool fits_device(const sumi_cuda_run* run, const attention_kernel* kernel)
{
    return kernel->shared_bytes <= (uint32_t)run->device->shared_per_block;
}

// What an op needs from a kernel.
typedef struct requirements {
    bool is_causal, is_aligned, has_one_span; // is_aligned: rows and heads begin at multiples of 16 bytes
    bool has_other_queries; // some queries are padding, or causal ones do not begin at the sequence's first token
    int32_t window;         // 0: no window, or a window that hides no key
} requirements;

static requirements demands_of(const sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    int32_t longest = 0;
    requirements d = {.is_causal = op->u.attention.causal, .has_one_span = true};
    for (int32_t i = 0; i < op->u.attention.sequence_count; i++) {
        tokens t = tokens_of(op, i);
        longest = sumi_max_int(longest, t.keys[0] + t.keys[1]);
        d.has_one_span = d.has_one_span && t.span_count == 1;
        d.has_other_queries = d.has_other_queries || t.has_padding || (d.is_causal && t.first_query > 0);
    }
    d.window = op->u.attention.window < longest ? sumi_max_int(0, op->u.attention.window) : 0;
    int32_t columns =
        op->u.attention.q_column | op->u.attention.k_column | op->u.attention.v_column | op->u.attention.y_column;
    d.is_aligned =
        (op->u.attention.dim | columns | sumi_cuda_cols(run, op->in[0]) | sumi_cuda_cols(run, op->out)) % 8 == 0;
    return d;
}

// Whether v comes as many columns after k as in the matrix of kept keys.
static bool has_equal_columns(const sumi_op* op)
{
    const sumi_op_attention* a = &op->u.attention;
    return a->v_column - a->k_column == a->kv_heads * a->dim;
}

// Channels of a slab in shared memory: the largest number that divides the channels of a head.
static int32_t slab_of(int32_t dim) { return dim % 64 == 0 ? 64 : dim % 32 == 0 ? 32 : 16; }

// NULL: no kernel with TMA and wgmma fits.
static const attention_kernel* choose_hopper_attention(const sumi_cuda_run* run, const requirements* d)
{
    const sumi_op* op = run->op;
    int32_t dim = op->u.attention.dim, units = run->device->multiprocessors, slab = slab_of(dim);
    int32_t columns =
        op->u.attention.q_column | op->u.attention.k_column | op->u.attention.v_column | sumi_cuda_cols(run, op->in[0]);
    bool has_tensor_maps = run->device->driver.cuTensorMapEncodeTiled != NULL;
    if (run->device->capability != 90 || !run->allows_hopper || !has_tensor_maps || columns % slab != 0
        || (d->is_causal && !d->has_one_span) || d->has_other_queries || (has_kept(op) && !has_equal_columns(op)))
        return NULL;
    if (dim == 80) { // not for windows, because a tile of 192 rows would hold one window of 64
        return d->is_causal || count_query_rows(op, &s_sm90_d80) > 2 * count_query_rows(op, &s_d80_m1) ? NULL
                                                                                                       : &s_sm90_d80;
    }
    if (dim == 384 || dim == 512) {
        // The lower tiles compute q k^T twice, but if all of them are in one round, more of the device has work.
        const bool is_one_round = 2 * (int64_t)count_tiles(op, &s_sm90_d384_m1) <= units;
        return d->is_causal || !d->has_one_span ? NULL
             : dim == 512                       ? &s_sm90_d512
             : is_one_round                     ? &s_sm90_d384_m1
                                                : &s_sm90_d384_m2;
    }
    const bool is_e4m3 = sumi_cuda_is_qk_e4m3(run, op->in[0]);
    if (is_e4m3 && dim == 96) return &s_fp8_d96;
    // tiles of 192 rows are faster, unless their last round leaves too much of the device idle
    if (dim == 128 && !d->is_causal) {
        const attention_kernel *tall = is_e4m3 ? &s_fp8_d128 : &s_sm90_d128[0],
                               *low = is_e4m3 ? &s_fp8_d128_c2 : &s_sm90_d128_c2;
        double tall_rows = (double)sumi_divide_up(count_tiles(op, tall), units) * tall->rows,
               low_rows = (double)sumi_divide_up(count_tiles(op, low), units) * low->rows;
        return low_rows * 1.1 < tall_rows ? low : tall;
    }
    return dim == 128 ? &s_sm90_d128[1]
         : dim == 96  ? &s_sm90_d96[d->is_causal]
         : dim == 64  ? &s_sm90_d64[d->is_causal]
                      : NULL;
}

static const attention_kernel* choose_portable_attention(const sumi_cuda_run* run, const requirements* d)
{
    const sumi_op* op = run->op;
    int32_t dim = op->u.attention.dim, units = run->device->multiprocessors;
    if (has_kept(op)) {
        if (dim != 128 || d->is_causal) return NULL;
        return count_tiles(op, &s_d128_kept) < 2 * units ? &s_d128_m1_kept
             : fits_device(run, &s_d128_kept)            ? &s_d128_kept
                                                         : &s_d128_40k_kept;
    }
    if (dim == 80 || dim == 72) {
        const attention_kernel *high = dim == 80 ? &s_d80 : &s_d72, *low = dim == 80 ? &s_d80_m1 : &s_d72_m1;
        // Lower tiles if there are few of them, or if higher ones would be half empty, as for windows.
        // Where three blocks of low tiles share a multiprocessor they are faster for any number (0.96 on an H100).
        bool is_low = run->device->shared_per_multiprocessor >= 160 * 1024 || count_tiles(op, high) < 2 * units
                   || 2 * count_query_rows(op, high) > 3 * count_query_rows(op, low);
        return d->is_causal ? NULL : is_low ? low : high;
    }
    if (dim == 256) return fits_device(run, &s_d256_k4) ? &s_d256_k4 : fits_device(run, &s_d256) ? &s_d256 : NULL;
    if (dim == 384 || dim == 512 || dim == 768 || dim == 1152) {
        const attention_kernel* kernels = dim == 384 ? s_d384 : dim == 512 ? s_d512 : dim == 768 ? s_d768 : s_d1152;
        return d->is_causal                  ? NULL
             : fits_device(run, &kernels[1]) ? &kernels[1]
             : fits_device(run, &kernels[0]) ? &kernels[0]
                                             : NULL;
    }
    if (dim != 128) return dim == 96 ? &s_d96[d->is_causal] : dim == 64 ? &s_d64[d->is_causal] : NULL;
    int32_t tiles = count_tiles(op, &s_d128);
    if (d->is_causal) { // few tiles: lower tiles, and three blocks per multiprocessor
        return tiles < 2 * units || !fits_device(run, &s_d128_causal) ? &s_d128_m1_causal : &s_d128_causal;
    }
    int32_t shared = run->device->shared_per_multiprocessor;
    // two blocks of 4 warps share the 100 KiB of a multiprocessor
    if (shared < 160 * 1024 || !fits_device(run, &s_d128)) return tiles < 2 * units ? &s_d128_m1 : &s_d128_40k;
    if (tiles < units) return &s_d128_m1;
    // Where two blocks of 4 warps fit: one block of 8 warps, which share K and V, is better if its last round is nearly
    // full. On an H100 it takes 0.94 of the time if the rounds are filled to 0.97, 1.00 at 0.85, 1.03 at 0.77.
    int32_t high = count_tiles(op, &s_d128_w8), rounds = sumi_divide_up(high, units);
    bool two_fit = shared >= 2 * ((int32_t)s_d128.shared_bytes + 1024);
    return fits_device(run, &s_d128_w8) && (two_fit ? (double)high >= 0.85 * rounds * units : high >= units)
             ? &s_d128_w8
             : &s_d128;
}

static const attention_kernel* choose_attention(const sumi_cuda_run* run, const requirements* d)
{
    int32_t dim = run->op->u.attention.dim;
    if ((run->op->marks & SUMI_CUDA_OP_INT8_ATTENTION) != 0)
        return dim == 128 ? &s_int8_d128 : dim == 96 ? &s_int8_d96 : &s_int8_d64;
    const attention_kernel* kernel = NULL;
    if (d->is_aligned && d->window == 0 && run->op->u.attention.scale > 0.0f) {
        kernel = choose_hopper_attention(run, d);
        if (kernel == NULL || !fits_device(run, kernel)) kernel = choose_portable_attention(run, d);
    }
    if (kernel != NULL) return kernel;
    return dim > SUMI_ATTENTION_ANY_PART ? &s_any_parts : &s_any[dim <= 64 ? 0 : dim <= 128 ? 1 : dim <= 256 ? 2 : 3];
}

static float scale_log2(const sumi_op* op) { return (float)((double)op->u.attention.scale * 1.4426950408889634); }

typedef struct head_range {
    int32_t begin, end;
} head_range;

// The existing key heads that the tiles [begin, end) of a sequence read. tiles: of one query head.
static head_range key_heads_of(int32_t begin, int32_t end, int32_t tiles, const sumi_cuda_run* run)
{
    const sumi_op_attention* a = &run->op->u.attention;
    const int32_t group = a->q_heads / a->kv_heads, first = sumi_max_int(begin, 0) / tiles,
                  last = sumi_min_int(end - 1, a->q_heads * tiles - 1) / tiles;
    return (head_range){first / group, last / group + 1};
}

// ---- k in int8 ------------------------------------------------------------------------------------------------------
static int32_t packed_tiles_of(const tokens* t)
{
    return sumi_divide_up(t->keys[0] + t->keys[1], SUMI_ATTENTION_INT8_KEYS);
}

// Tiles of packed keys of all sequences of the op.
static int32_t count_packed_tiles(const sumi_op* op)
{
    int32_t tiles = 0;
    for (int32_t i = 0; i < op->u.attention.sequence_count; i++) {
        tokens t = tokens_of(op, i);
        tiles += packed_tiles_of(&t);
    }
    return tiles;
}

// Bytes of the packed keys, which come before their scales in the op's scratch memory.
static uint64_t packed_bytes(const sumi_op* op)
{
    return (uint64_t)op->u.attention.kv_heads * (uint64_t)count_packed_tiles(op) * SUMI_ATTENTION_INT8_KEYS
         * (uint64_t)op->u.attention.dim;
}

// Writes k of some key heads of a sequence as int8 to scratch. Every slice packs what it reads, so that slices do not
// depend on each other: a long attention has few of them.
static sumi_result pack_keys(sumi_cuda_run* run, const sumi_attention_sequence* sequence, head_range key_heads)
{
    const sumi_op* op = run->op;
    const int32_t dim = op->u.attention.dim;
    sumi_attention_pack_keys_args args = {.qkv = sumi_cuda_value(run, op->in[0]),
                                          .packed = run->scratch,
                                          .scales = run->scratch + packed_bytes(op),
                                          .pitch = sumi_cuda_cols(run, op->in[0]),
                                          .k_column = op->u.attention.k_column,
                                          .tile_count = count_packed_tiles(op),
                                          .first_tile = sequence->first_packed_tile,
                                          .head_begin = key_heads.begin,
                                          .begin = sequence->begin,
                                          .first_span_tokens = sequence->first_span_tokens,
                                          .second_span_offset = sequence->second_span_offset,
                                          .keys = sequence->keys};
    sumi_cuda_grid grid = {.x = (uint32_t)sumi_divide_up(sequence->keys, SUMI_ATTENTION_INT8_KEYS),
                           .y = (uint32_t)(key_heads.end - key_heads.begin),
                           .z = 1,
                           .block = SUMI_ATTENTION_PACK_KEYS_THREADS};
    return sumi_cuda_launch_args(run,
                                 dim == 128  ? "sumi_attention_pack_keys_d128"
                                 : dim == 96 ? "sumi_attention_pack_keys_d96"
                                             : "sumi_attention_pack_keys_d64",
                                 grid, &args);
}

// Launches tiles [begin, end) of the op with attention.cu, attention_wide.cu, attention_int8.cu or attention_any.cu.
static sumi_result launch_portable_attention(sumi_cuda_run* run, const attention_kernel* kernel, const requirements* d,
                                             int32_t begin, int32_t end)
{
    const sumi_op* op = run->op;
    int32_t heads = op->u.attention.q_heads, count = op->u.attention.sequence_count, after = 0;
    sumi_attention_args args = {.qkv = sumi_cuda_value(run, op->in[0]),
                                .out = sumi_cuda_value(run, op->out) + 2 * (uint64_t)op->u.attention.y_column,
                                .pitch = sumi_cuda_cols(run, op->in[0]),
                                .out_pitch = sumi_cuda_cols(run, op->out),
                                .q_column = op->u.attention.q_column,
                                .k_column = op->u.attention.k_column,
                                .v_column = op->u.attention.v_column,
                                .heads = heads,
                                .group = heads / op->u.attention.kv_heads,
                                .dim = op->u.attention.dim,
                                .scale_log2 = scale_log2(op),
                                .is_causal = d->is_causal,
                                .window = d->window,
                                .is_aligned = d->is_aligned};
    if (has_kept(op)) {
        args.kept = sumi_cuda_value(run, op->in[2]);
        args.kept_pitch = sumi_cuda_cols(run, op->in[2]);
    }
    const bool is_int8 = (op->marks & SUMI_CUDA_OP_INT8_ATTENTION) != 0;
    int32_t packed_tiles = 0;
    if (is_int8) {
        args.packed_keys = run->scratch;
        args.packed_scales = run->scratch + packed_bytes(op);
        args.packed_tiles = count_packed_tiles(op);
    }
    for (int32_t first = 0; first < count && after < end; first += SUMI_ATTENTION_SEQUENCES) {
        int32_t batch = sumi_min_int(SUMI_ATTENTION_SEQUENCES, count - first), from = sumi_max_int(begin, after);
        for (int32_t i = 0; i < batch; i++) {
            tokens t = tokens_of(op, first + i);
            // the kept keys are in another matrix: the rows of this one begin with the sequence's own
            int32_t tiles = row_tiles(kernel, &t, op->u.attention.dim), before = after,
                    first_row = t.begin[has_kept(op)];
            after += heads * tiles;
            args.sequences[i] = (sumi_attention_sequence){
                .tile_end = after,
                .row_tiles = tiles,
                .begin = first_row,
                .first_span_tokens = t.keys[0],
                .second_span_offset = t.span_count == 2 ? t.begin[1] - first_row - t.keys[0] : 0,
                .keys = t.keys[0] + t.keys[1],
                .queries = t.first_query + t.queries[0] + t.queries[1],
                .first_query = t.first_query,
                .first_packed_tile = packed_tiles};
            if (has_kept(op)) args.sequences[i].first_kept_row = t.begin[0];
            if (!is_int8) continue;
            packed_tiles += packed_tiles_of(&t);
            if (begin < after && before < end)
                SUMI_TRY(pack_keys(run, &args.sequences[i], key_heads_of(begin - before, end - before, tiles, run)));
        }
        int32_t to = sumi_min_int(end, after);
        if (from < to) {
            args.tile_begin = from;
            args.sequence_count = batch;
            void* params[] = {&args};
            sumi_cuda_grid grid = {.x = (uint32_t)(to - from),
                                   .y = 1,
                                   .z = 1,
                                   .block = kernel->threads,
                                   .shared_bytes = kernel->shared_bytes};
            SUMI_TRY(sumi_cuda_launch(run, kernel->name, grid, params));
        }
    }
    return SUMI_OK;
}

// `rows` rows from `row` on and the columns from `column` on, of a matrix with `cols` columns of bfloat16.
typedef struct map_part {
    CUdeviceptr matrix;
    int32_t cols, row, rows, column, columns;
    uint32_t slab, box_rows, box_slabs;
} map_part;

static CUdeviceptr address_of(const map_part* p)
{
    return p->matrix + 2 * ((uint64_t)p->row * (uint64_t)p->cols + (uint64_t)p->column);
}

// Makes its tensor map: {slab, rows, slabs}.
static sumi_result make_map(sumi_cuda_run* run, const map_part* p, sumi_attention_map* out_map)
{
    CUtensorMap map;
    const sumi_cuda_tensor tensor = {.address = address_of(p),
                                     .type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                     .swizzle = p->slab == 64 ? CU_TENSOR_MAP_SWIZZLE_128B
                                              : p->slab == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                              : CU_TENSOR_MAP_SWIZZLE_32B,
                                     .rank = 3,
                                     .dims = {p->slab, (uint64_t)p->rows, (uint64_t)p->columns / p->slab},
                                     .strides = {2 * (uint64_t)p->cols, 2 * (uint64_t)p->slab},
                                     .box = {p->slab, p->box_rows, p->box_slabs}};
    SUMI_TRY(sumi_cuda_tensor_map(run, &tensor, &map));
    memcpy(out_map, &map, sizeof *out_map);
    return SUMI_OK;
}

// The same for heads in e4m3, each in the first half of its bytes: {dim, rows, heads}. In shared memory a row of a head
// has 128 bytes; the copy fills those past the head with zeros.
static sumi_result make_e4m3_map(sumi_cuda_run* run, const map_part* p, sumi_attention_map* out_map)
{
    CUtensorMap map;
    const uint64_t dim = (uint64_t)run->op->u.attention.dim;
    const sumi_cuda_tensor tensor = {.address = address_of(p),
                                     .type = CU_TENSOR_MAP_DATA_TYPE_UINT8,
                                     .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                                     .rank = 3,
                                     .dims = {dim, (uint64_t)p->rows, (uint64_t)p->columns / dim},
                                     .strides = {2 * (uint64_t)p->cols, 2 * dim},
                                     .box = {128, p->box_rows, 1}};
    SUMI_TRY(sumi_cuda_tensor_map(run, &tensor, &map));
    memcpy(out_map, &map, sizeof *out_map);
    return SUMI_OK;
}

// The column at which the maps of k and v begin. With kept keys it is the first one of k, and v comes as many columns
// after k as in the kept matrix, so that k and v have the same slabs in both.
static int32_t first_kv_column(const sumi_op* op) { return has_kept(op) ? op->u.attention.k_column : 0; }

// Where the maps of a span go, and the boxes in which a kernel reads.
typedef struct span_maps {
    uint32_t box_slabs, key_box_rows;
    sumi_attention_map *q, *kv, *out;
} span_maps;

// Makes the maps of span `s` of a sequence: queries, keys and values, outputs.
static sumi_result make_maps(sumi_cuda_run* run, const tokens* t, int32_t s, const span_maps* maps)
{
    const sumi_op* op = run->op;
    const int32_t width = op->u.attention.q_heads * op->u.attention.dim;
    const map_part own = {.matrix = sumi_cuda_value(run, op->in[0]),
                          .cols = sumi_cuda_cols(run, op->in[0]),
                          .row = t->begin[s],
                          .rows = t->keys[s],
                          .column = first_kv_column(op),
                          .columns = sumi_cuda_cols(run, op->in[0]) - first_kv_column(op),
                          .slab = (uint32_t)slab_of(op->u.attention.dim),
                          .box_rows = maps->key_box_rows,
                          .box_slabs = maps->box_slabs};
    map_part kv = own, q = own;
    if (is_kept_span(op, s)) {
        kv.matrix = sumi_cuda_value(run, op->in[2]);
        kv.cols = kv.columns = sumi_cuda_cols(run, op->in[2]);
        kv.column = 0;
    }
    q.rows = t->queries[s];
    q.column = op->u.attention.q_column;
    q.columns = width;
    q.box_rows = 64;
    map_part out = q;
    out.matrix = sumi_cuda_value(run, op->out);
    out.cols = sumi_cuda_cols(run, op->out);
    out.column = op->u.attention.y_column;
    const bool is_e4m3 = sumi_cuda_is_qk_e4m3(run, op->in[0]);
    SUMI_TRY(is_e4m3 ? make_e4m3_map(run, &kv, maps->kv) : make_map(run, &kv, maps->kv));
    if (t->queries[s] == 0) return SUMI_OK; // this span has only keys
    SUMI_TRY(is_e4m3 ? make_e4m3_map(run, &q, maps->q) : make_map(run, &q, maps->q));
    return make_map(run, &out, maps->out);
}

// ---- v in e4m3 ------------------------------------------------------------------------------------------------------
static int32_t key_tiles_of(const tokens* t)
{
    return sumi_divide_up(t->keys[0], 128) + sumi_divide_up(t->keys[1], 128);
}

// Tiles of 128 keys of all sequences of the op.
static int32_t count_key_tiles(const sumi_op* op)
{
    int32_t tiles = 0;
    for (int32_t i = 0; i < op->u.attention.sequence_count; i++) {
        tokens t = tokens_of(op, i);
        tiles += key_tiles_of(&t);
    }
    return tiles;
}

// Of one sequence.
static uint64_t mean_bytes(const sumi_op* op)
{
    return (uint64_t)op->u.attention.kv_heads * (uint64_t)op->u.attention.dim * sizeof(float);
}

// Where the tiles of v lie in the op's scratch memory: first all tiles, then the means of all sequences, then the tiles'
// exponents.
static sumi_attention_fp8_values values_of(const sumi_cuda_run* run)
{
    const sumi_op_attention* a = &run->op->u.attention;
    const int32_t tiles = count_key_tiles(run->op);
    const CUdeviceptr means =
        run->scratch + (uint64_t)a->kv_heads * (uint64_t)tiles * (uint64_t)SUMI_ATTENTION_FP8_TILE_BYTES(a->dim);
    return (sumi_attention_fp8_values){.tiles = run->scratch,
                                       .exponents = means + (uint64_t)a->sequence_count * mean_bytes(run->op),
                                       .means = means,
                                       .tile_count = tiles};
}

// Writes the means of v of some key heads of a sequence, and v less these means as tiles of e4m3, to scratch, as
// pack_keys does.
static sumi_result pack_values(sumi_cuda_run* run, int32_t sequence, int32_t first_tile, head_range key_heads)
{
    const sumi_op* op = run->op;
    const tokens all = tokens_of(op, sequence), *t = &all;
    sumi_attention_fp8_values values = values_of(run);
    values.means += (uint64_t)sequence * mean_bytes(op);
    sumi_attention_pack_args args = {
        .keys = {t->keys[0], t->keys[1]}, .first_tile = first_tile, .head_begin = key_heads.begin, .values = values};
    for (int32_t s = 0; s < 2; s++) {
        const bool is_kept = is_kept_span(op, s);
        const sumi_value matrix = op->in[is_kept ? 2 : 0];
        const map_part v = {.matrix = sumi_cuda_value(run, matrix),
                            .cols = sumi_cuda_cols(run, matrix),
                            .row = t->begin[s],
                            .column =
                                is_kept ? op->u.attention.kv_heads * op->u.attention.dim : op->u.attention.v_column};
        args.v[s] = address_of(&v);
        args.pitch[s] = v.cols;
    }
    const uint32_t dim = (uint32_t)op->u.attention.dim, heads = (uint32_t)(key_heads.end - key_heads.begin);
    SUMI_TRY(sumi_cuda_launch_args(
        run, "sumi_attention_value_means",
        (sumi_cuda_grid){.x = dim / 16, .y = heads, .z = 1, .block = SUMI_ATTENTION_MEANS_THREADS}, &args));
    return sumi_cuda_launch_args(
        run, dim == 128 ? "sumi_attention_pack_values_d128" : "sumi_attention_pack_values_d96",
        (sumi_cuda_grid){
            .x = (uint32_t)key_tiles_of(t), .y = heads, .z = 1, .block = (uint32_t)SUMI_ATTENTION_PACK_THREADS(dim)},
        &args);
}

static sumi_result launch_hopper_attention(sumi_cuda_run* run, const attention_kernel* kernel, int32_t begin,
                                           int32_t end)
{
    const sumi_op* op = run->op;
    int32_t heads = op->u.attention.q_heads, count = op->u.attention.sequence_count, after = 0,
            dim = op->u.attention.dim;
    const bool is_fp8 = sumi_cuda_is_qk_e4m3(run, op->in[0]);
    int32_t slab = is_fp8 ? dim : slab_of(dim);
    uint32_t slabs = (uint32_t)(dim / slab_of(dim));
    sumi_attention_fp8_values values = is_fp8 ? values_of(run) : (sumi_attention_fp8_values){.tile_count = 0};
    int32_t key_tiles = 0;
    sumi_attention_sm90_maps maps;
    memset(&maps, 0, sizeof maps);
    sumi_attention_sm90_shape shape = {.heads = heads,
                                       .group = heads / op->u.attention.kv_heads,
                                       .k_slab = (op->u.attention.k_column - first_kv_column(op)) / slab,
                                       .v_slab = (op->u.attention.v_column - first_kv_column(op)) / slab,
                                       .scale_log2 = scale_log2(op)};
    for (int32_t first = 0; first < count && after < end; first += SUMI_ATTENTION_SM90_SEQUENCES) {
        int32_t batch = sumi_min_int(SUMI_ATTENTION_SM90_SEQUENCES, count - first), from = sumi_max_int(begin, after);
        if (is_fp8) values.means = values_of(run).means + (uint64_t)first * mean_bytes(op);
        for (int32_t i = 0; i < batch; i++) {
            tokens t = tokens_of(op, first + i);
            int32_t tiles = row_tiles(kernel, &t, op->u.attention.dim),
                    first_span_query_groups = sumi_divide_up(t.queries[0], 64),
                    first_span_key_tiles = sumi_divide_up(t.keys[0], 128), last = t.span_count - 1;
            bool has_boundary = t.span_count == 2 && t.keys[0] % 128 != 0;
            const int32_t before = after;
            after += heads * tiles;
            if (is_fp8 && begin < after && before < end)
                SUMI_TRY(
                    pack_values(run, first + i, key_tiles, key_heads_of(begin - before, end - before, tiles, run)));
            values.first_tile[i] = key_tiles;
            key_tiles += key_tiles_of(&t);
            shape.sequences[i] = (sumi_attention_sm90_sequence){
                .tile_end = after,
                .row_tiles = tiles,
                .first_span_query_groups = first_span_query_groups,
                .query_groups = first_span_query_groups + sumi_divide_up(t.queries[1], 64),
                .first_span_key_tiles = first_span_key_tiles,
                .key_tiles = first_span_key_tiles + sumi_divide_up(t.keys[1], 128),
                .last_tile_keys = (t.keys[last] - 1) % 128 + 1,
                .boundary_tile = has_boundary ? first_span_key_tiles - 1 : -1,
                .boundary_keys = has_boundary ? t.keys[0] % 128 : -1};
            for (int32_t s = 0; s < t.span_count; s++) {
                const span_maps to = {slabs, 128, &maps.q[i][s], &maps.kv[i][s], &maps.out[i][s]};
                SUMI_TRY(make_maps(run, &t, s, &to));
            }
            // where the first span has no queries, the map of its queries is only prefetched
            if (t.queries[0] == 0) maps.q[i][0] = maps.q[i][1];
        }
        int32_t to = sumi_min_int(end, after);
        if (from < to) {
            // If the last round would leave half of the device idle, two or three blocks share a tile. Each warpgroup
            // works independently, so no bit depends on this.
            const int32_t units = sumi_max_int(run->device->multiprocessors, 1), remaining_tiles = (to - from) % units;
            shape.blocks_per_split_tile =
                remaining_tiles > 0 ? sumi_min_int(kernel->rows / 64, units / remaining_tiles) : 1;
            shape.tile_begin = from;
            shape.split_begin = shape.blocks_per_split_tile > 1 ? to - remaining_tiles : to;
            shape.tile_end = to + remaining_tiles * (shape.blocks_per_split_tile - 1);
            void* params[] = {&maps, &shape, &values}; // values: of kernels in 8 bits only
            uint32_t blocks = (uint32_t)sumi_min_int(shape.tile_end - from, units);
            sumi_cuda_grid grid = {
                .x = blocks, .y = 1, .z = 1, .block = kernel->threads, .shared_bytes = kernel->shared_bytes};
            SUMI_TRY(sumi_cuda_launch(run, kernel->name, grid, params));
        }
    }
    return SUMI_OK;
}

// A tile is computed by a block of sumi_attention_sm90_d384_m2, and otherwise by a cluster of two blocks; one launch per
// sequence.
static sumi_result launch_wide(sumi_cuda_run* run, const attention_kernel* kernel, int32_t begin, int32_t end)
{
    const sumi_op* op = run->op;
    const bool is_tall = kernel == &s_sm90_d384_m2;
    int32_t heads = op->u.attention.q_heads, before = 0;
    sumi_attention_wide_shape shape = {.group = heads / op->u.attention.kv_heads,
                                       .k_slab = op->u.attention.k_column / 64,
                                       .v_slab = op->u.attention.v_column / 64,
                                       .scale_log2 = scale_log2(op)};
    for (int32_t i = 0; i < op->u.attention.sequence_count && before < end; i++) {
        tokens t = tokens_of(op, i);
        int32_t tiles = row_tiles(kernel, &t, op->u.attention.dim), from = sumi_max_int(begin, before),
                to = sumi_min_int(end, before + heads * tiles);
        if (from < to) {
            sumi_attention_map q, kv, out;
            const uint32_t keys = is_tall ? SUMI_ATTENTION_TALL_KEYS : 64;
            SUMI_TRY(make_maps(run, &t, 0, &(span_maps){(uint32_t)op->u.attention.dim / 128, keys, &q, &kv, &out}));
            shape.keys = t.keys[0];
            shape.tiles_per_head = tiles;
            shape.tile_begin = from - before;
            void* params[] = {&q, &kv, &out, &shape};
            sumi_cuda_grid grid = {.x = (is_tall ? 1 : 2) * (uint32_t)(to - from),
                                   .y = 1,
                                   .z = 1,
                                   .block = kernel->threads,
                                   .shared_bytes = kernel->shared_bytes};
            SUMI_TRY(sumi_cuda_launch(run, kernel->name, grid, params));
        }
        before += heads * tiles;
    }
    return SUMI_OK;
}

sumi_result sumi_cuda_attention(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    requirements d = demands_of(run);
    const attention_kernel* kernel = choose_attention(run, &d);
    SUMI_ASSERT(!has_kept(op) || sumi_cuda_is_qk_e4m3(run, op->in[0]) == sumi_cuda_is_kept_e4m3(run, op->in[2]));
    SUMI_ASSERT(!sumi_cuda_is_qk_e4m3(run, op->in[0]) || kernel->family == FAMILY_HOPPER);
    int32_t begin, end;
    sumi_cuda_share(run, count_tiles(op, kernel), &begin, &end);
    if (begin >= end) return SUMI_OK;
    return kernel->family == FAMILY_HOPPER ? launch_hopper_attention(run, kernel, begin, end)
         : kernel->family == FAMILY_WIDE   ? launch_wide(run, kernel, begin, end)
                                           : launch_portable_attention(run, kernel, &d, begin, end);
}

uint64_t sumi_cuda_attention_scratch(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op)
{
    (void)device;
    if ((op->marks & SUMI_CUDA_OP_INT8_ATTENTION) != 0)
        return packed_bytes(op) + (uint64_t)op->u.attention.kv_heads * (uint64_t)count_packed_tiles(op) * sizeof(float);
    if ((sumi_plan_info(plan, op->in[0])->marks & SUMI_CUDA_VALUE_QK_E4M3) == 0) return 0;
    return (uint64_t)op->u.attention.kv_heads * (uint64_t)count_key_tiles(op)
             * ((uint64_t)SUMI_ATTENTION_FP8_TILE_BYTES(op->u.attention.dim) + sizeof(float))
         + (uint64_t)op->u.attention.sequence_count * mean_bytes(op);
}
