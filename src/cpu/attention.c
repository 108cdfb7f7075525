// Attention, softmax(q k^T * scale + mask) v, without the score matrix (online softmax: Milakov & Gimelshein 2018; Rabe
// & Staats 2021). A loop item is a group of queries of one head of one sequence:
//
//     for each block of keys:
//         pack k (transposed) and v into panels                              operands B of the two products
//         for each tile of queries:  S = (q * scale) k^T                     14 x keys floats, in L1
//                                    m' = max(m, S)  P = exp(S - m')  l = l exp(m - m') + sum P
//                                    O = O exp(m - m') + P v                 O of the group is in the worker's memory
//     y = O / l
//
// Key blocks are counted from the sequence's first key, so a query's result does not depend on its group. A block whose
// keys are all masked for a query changes nothing (its exponentials are 0, its correction factor is 1), so skipping it
// is exact.
//
// 1088 tokens x 16 heads x 64 columns reach 190 of a core's 256 GFLOP/s: 71 % of the time is in the two products, 15 %
// in the exponentials, 5 % in scaling q and O.
#include "base/assert.h"
#include "base/numbers.h"
#include "cpu/ops_cpu.h"
#include <math.h>
#include <string.h>

// group_queries: queries that share packed keys. More queries take more memory; fewer pack the keys more often.
// block_keys: keys per block, as many as a tile of S holds, half as many for the wide heads of a VAE.
static int32_t group_queries(int32_t dim) { return dim <= 128 ? 512 : dim <= 256 ? 256 : 128; }
static int32_t block_keys(int32_t dim) { return dim <= 256 ? 256 : 128; }

typedef struct attention_loop {
    const sumi_cpu_run* run;
    const float *qkv, *kept; // kept: k and v of the first range of every sequence; NULL: it lies in qkv
    float* y;
    int64_t stride, kept_stride, y_stride;
    int32_t group_ranges; // consecutive work ranges (query blocks) of one head in one loop item
} attention_loop;

static int64_t row_of(const sumi_sequence* sequence, int32_t index)
{
    SUMI_ASSERT(index >= 0
                && index < sequence->span[0].count + (sequence->span_count > 1 ? sequence->span[1].count : 0));
    return index < sequence->span[0].count ? sequence->span[0].begin + index
                                           : sequence->span[1].begin + index - sequence->span[0].count;
}

// One head of one sequence: where its queries, keys and values are, and how they are packed.
typedef struct head {
    const attention_loop* loop;
    const sumi_sequence* sequence;
    const float *q, *k, *v, *kept_k, *kept_v;
    int32_t index, key_count, block; // block: keys per block
    int32_t kept_count;              // the first of the keys, which are in kept_k and kept_v
    int32_t o_stride;                // floats of a row of O: dim, rounded up to whole panels
} head;

static head find_head(const attention_loop* loop, const sumi_sequence* sequence, int32_t index)
{
    SUMI_ASSERT(index >= 0 && index < loop->run->op->u.attention.q_heads);
    const sumi_op_attention* a = &loop->run->op->u.attention;
    const int32_t kv_head = index / (a->q_heads / a->kv_heads);
    return (head){.loop = loop,
                  .sequence = sequence,
                  .q = loop->qkv + a->q_column + index * a->dim,
                  .k = loop->qkv + a->k_column + kv_head * a->dim,
                  .v = loop->qkv + a->v_column + kv_head * a->dim,
                  .kept_k = loop->kept != NULL ? loop->kept + kv_head * a->dim : NULL,
                  .kept_v = loop->kept != NULL ? loop->kept + (a->kv_heads + kv_head) * a->dim : NULL,
                  .kept_count = loop->kept != NULL ? sequence->span[0].count : 0,
                  .index = index,
                  .key_count = sumi_sequence_keys(sequence),
                  .block = block_keys(a->dim),
                  .o_stride = sumi_round_up(a->dim, loop->run->kernels->tile_cols)};
}

// The row of a key in `own`, the head's k or v, or in `kept`.
static const float* key_row(const head* h, const float* own, const float* kept, int32_t key)
{
    return key < h->kept_count ? kept + (int64_t)(h->sequence->span[0].begin + key) * h->loop->kept_stride
                               : own + row_of(h->sequence, key) * h->loop->stride;
}

// Packs `keys` keys from `key` on, at most a block.
static void pack_block(const head* h, int32_t key, int32_t keys, float* k_panels, float* v_panels)
{
    const sumi_cpu_kernels* kernels = h->loop->run->kernels;
    const int32_t dim = h->loop->run->op->u.attention.dim, tile_cols = kernels->tile_cols;
    SUMI_ASSERT(keys >= 1 && keys <= h->block && key + keys <= h->key_count);
    for (int32_t p = 0; p < sumi_divide_up(keys, tile_cols); p++) {
        const void* rows[SUMI_CPU_MAX_TILE_COLS];
        int32_t count = sumi_min_int(tile_cols, keys - p * tile_cols);
        for (int32_t i = 0; i < count; i++) rows[i] = key_row(h, h->k, h->kept_k, key + p * tile_cols + i);
        kernels->pack_f32(k_panels + (size_t)p * (size_t)(tile_cols * dim), rows, count, dim);
    }
    for (int32_t i = 0; i < keys; i++) {
        const float* row = key_row(h, h->v, h->kept_v, key + i);
        for (int32_t p = 0; p < h->o_stride / tile_cols; p++) {
            float* to = v_panels + ((size_t)p * (size_t)keys + (size_t)i) * (size_t)tile_cols;
            int32_t count = sumi_min_int(tile_cols, dim - p * tile_cols);
            memcpy(to, row + p * tile_cols, (size_t)count * sizeof(float));
            memset(to + count, 0, (size_t)(tile_cols - count) * sizeof(float));
        }
    }
}

// The sums of some queries over the keys so far: O of each query, the largest score, and l.
typedef struct partial {
    float *o, *max, *sum;
} partial;

static partial partial_at(const partial* p, int32_t row, int32_t o_stride)
{
    return (partial){p->o + (size_t)row * (size_t)o_stride, p->max + row, p->sum + row};
}

static void begin_queries(const head* h, int32_t queries, const partial* sums)
{
    for (int32_t i = 0; i < queries; i++) {
        sums->max[i] = -INFINITY;
        sums->sum[i] = 0.0f;
    }
    memset(sums->o, 0, (size_t)queries * (size_t)h->o_stride * sizeof(float));
}

// A block of keys, `keys` of them from `key` on, with their packed k and v.
typedef struct key_block {
    int32_t key, keys;
    const float *k_panels, *v_panels;
} key_block;

// Adds a block of keys to the sums of a tile of queries: `rows` queries from `first` on. a: memory for a tile of q, and
// after it one for scores.
static void add_block(const head* h, int32_t first, int32_t rows, const key_block* block, const partial* sums, float* a)
{
    const int32_t key = block->key, keys = block->keys;
    const float *k_panels = block->k_panels, *v_panels = block->v_panels;
    float* s = a + SUMI_CPU_MAX_TILE_ROWS * SUMI_CPU_A_STRIDE;
    const sumi_cpu_kernels* kernels = h->loop->run->kernels;
    const sumi_op_attention* op = &h->loop->run->op->u.attention;
    const int32_t dim = op->dim, tile_cols = kernels->tile_cols, window = op->window;
    for (int32_t d = 0; d < dim; d += SUMI_CPU_DEPTH) {
        int32_t depth = sumi_min_int(SUMI_CPU_DEPTH, dim - d);
        for (int32_t r = 0; r < rows; r++) {
            kernels->scale(a + r * SUMI_CPU_A_STRIDE, h->q + row_of(h->sequence, first + r) * h->loop->stride + d,
                           op->scale, depth);
        }
        for (int32_t p = 0; p < sumi_divide_up(keys, tile_cols); p++) {
            kernels->tile(rows, depth, a, k_panels + ((size_t)p * (size_t)dim + (size_t)d) * (size_t)tile_cols,
                          s + p * tile_cols, SUMI_CPU_A_STRIDE, d == 0);
        }
    }
    for (int32_t r = 0; r < rows; r++) {
        float *row = s + r * SUMI_CPU_A_STRIDE, *o = sums->o + (size_t)r * (size_t)h->o_stride;
        int32_t query = first + r;
        for (int32_t i = 0; window > 0 && i < keys && key + i <= query - window; i++) row[i] = -INFINITY;
        // `after` is the first key that the query does not see
        int32_t after = op->causal ? query + 1 : window > 0 ? query + window : key + keys;
        for (int32_t i = after > key ? after - key : 0; i < keys; i++) row[i] = -INFINITY;
        float older = kernels->softmax(row, keys, &sums->max[r], &sums->sum[r]);
        if (older != 1.0f) kernels->scale(o, o, older, h->o_stride);
    }
    for (int32_t p = 0; p < h->o_stride / tile_cols; p++) {
        kernels->tile(rows, keys, s, v_panels + (size_t)p * (size_t)(keys * tile_cols), sums->o + p * tile_cols,
                      h->o_stride, false);
    }
}

static void end_queries(const head* h, int32_t first, int32_t queries, const partial* sums)
{
    const int32_t dim = h->loop->run->op->u.attention.dim;
    for (int32_t i = 0; i < queries; i++) {
        float* to = h->loop->y + row_of(h->sequence, first + i) * h->loop->y_stride + h->index * dim;
        // Every query sees a key, so l is 0 only if all its scores are -infinity; y becomes 0 / 0, NaN.
        h->loop->run->kernels->scale(to, sums->o + (size_t)i * (size_t)h->o_stride, 1.0f / sums->sum[i], dim);
    }
}

static void attend(const head* h, int32_t query_begin, int32_t query_end, float* memory)
{
    const sumi_op_attention* op = &h->loop->run->op->u.attention;
    const int32_t tile_rows = h->loop->run->kernels->tile_rows, window = op->window, queries = query_end - query_begin,
                  group = group_queries(op->dim);
    SUMI_ASSERT(query_begin >= 0 && queries >= 1 && queries <= group); // the capacity of the worker's memory
    const bool causal = op->causal;
    float* a = memory; // q tile
    // after it scores, then probabilities: operand A of the second product
    float* k_panels = a + 2 * SUMI_CPU_MAX_TILE_ROWS * SUMI_CPU_A_STRIDE;
    float* v_panels = k_panels + (size_t)h->block * (size_t)op->dim;
    float* o = v_panels + (size_t)h->block * (size_t)h->o_stride;
    float* max = o + (size_t)group * (size_t)h->o_stride;
    const partial sums = {o, max, max + group};
    begin_queries(h, queries, &sums);
    int32_t tiles = sumi_divide_up(queries, tile_rows), height = sumi_divide_up(queries, tiles);
    for (int32_t key = 0; key < h->key_count; key += h->block) {
        int32_t keys = sumi_min_int(h->block, h->key_count - key);
        // query i sees keys (i - window, i] if causal, (i - window, i + window) if only windowed
        if ((causal && key > query_end - 1) || (window > 0 && !causal && key >= query_end - 1 + window)) break;
        if (window > 0 && key + keys - 1 <= query_begin - window) continue;
        pack_block(h, key, keys, k_panels, v_panels);
        const key_block block = {key, keys, k_panels, v_panels};
        for (int32_t t = 0; t < queries; t += height) {
            int32_t rows = sumi_min_int(height, queries - t), first = query_begin + t, last = first + rows - 1;
            if ((causal && key > last) || (window > 0 && !causal && key >= last + window)
                || (window > 0 && key + keys - 1 <= first - window))
                continue;
            const partial tile_sums = partial_at(&sums, t, h->o_stride);
            add_block(h, first, rows, &block, &tile_sums, a);
        }
    }
    end_queries(h, query_begin, queries, &sums);
}

// Loop items are groups of the op's work ranges, in their order. A group does not cross a head: the last group of a
// head may be smaller.
static void run_groups(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    SUMI_ASSERT(begin >= 0 && begin < end);
    const attention_loop* loop = context;
    const sumi_op* op = loop->run->op;
    float* memory = sumi_cpu_worker(loop->run, worker_index);
    int32_t query_block = op->u.attention.query_block, item = 0, range_base = 0;
    for (int32_t i = 0; i < op->u.attention.sequence_count && item < end; i++) {
        const sumi_sequence* sequence = &op->u.attention.sequences[i];
        int32_t queries = sumi_sequence_queries(sequence), blocks = sumi_divide_up(queries, query_block);
        int32_t first = sequence->query_first > 0 ? sequence->span[0].count : 0; // first query's index in the sequence
        for (int32_t index = 0; index < op->u.attention.q_heads && item < end; index++, range_base += blocks) {
            int32_t from = loop->run->range_begin > range_base ? loop->run->range_begin - range_base : 0,
                    to = sumi_min_int(blocks, loop->run->range_end - range_base);
            for (; from < to && item < end; from += loop->group_ranges, item++) {
                if (item >= begin) {
                    const head h = find_head(loop, sequence, index);
                    attend(&h, first + from * query_block,
                           first + sumi_min_int(queries, sumi_min_int(to, from + loop->group_ranges) * query_block),
                           memory);
                }
            }
        }
    }
}

// ---- One head with very many keys: the attention of a VAE -----------------------------------------------------------
// A block of queries then takes longer than a slice should: 20 ms for 64 queries and 16384 keys of 512 columns. And
// slices of few queries would mostly pack keys. So such an op is also cut between blocks of keys. All keys and values
// are packed into the shared region first. The sums of a group of about a thousand queries, enough for many workers,
// stay there from slice to slice until these queries have met all keys. A unit is a block of keys for some of the
// group's tiles of queries:
//
//     group 0:   keys 0..127    | 0 | 1 | 2 | 3 |      work ranges: those that pack, one for each block of keys; then
//                keys 128..255  | 4 | 5 | 6 | 7 |      the units of group 0 in this order, those of group 1, ...
//
// The order of the sums of a query is the same as in attend(), and so are the bits. Loop items are tiles of queries.
#define CUT_QUERIES 1024
#define CUT_FLOPS 2e7 // of a block of queries

typedef struct cutting {
    int32_t blocks;         // of keys
    int32_t unit_tiles;     // tiles of queries in a unit
    int32_t group_units;    // units of a group for one block of keys
    int32_t group_queries;  // of a whole group
    int32_t queries, units; // of the op, over all groups
} cutting;

static cutting find_cutting(const sumi_cpu_kernels* kernels, const sumi_op* op)
{
    const sumi_op_attention* a = &op->u.attention;
    const double tile_flops = 4.0 * kernels->tile_rows * block_keys(a->dim) * a->dim;
    cutting c = {.queries = a->sequences[0].span[0].count};
    c.blocks = sumi_divide_up(c.queries, block_keys(a->dim));
    c.unit_tiles = tile_flops < SUMI_CPU_RANGE_FLOPS ? (int32_t)(SUMI_CPU_RANGE_FLOPS / tile_flops) : 1;
    const int32_t unit_rows = c.unit_tiles * kernels->tile_rows;
    c.group_units = sumi_max_int(CUT_QUERIES / unit_rows, 1);
    c.group_queries = c.group_units * unit_rows;
    const int64_t units = (int64_t)sumi_divide_up(c.queries, unit_rows) * c.blocks;
    c.units = units < INT32_MAX / 2 ? (int32_t)units : 0;
    return c;
}

void sumi_cpu_attention_cut(const sumi_cpu_kernels* kernels, sumi_op* op)
{
    const sumi_op_attention* a = &op->u.attention;
    if (op->is_cut || a->sequence_count != 1 || a->q_heads != 1 || a->causal || a->window > 0
        || a->sequences[0].span_count != 1 || op->flops / op->range_count < CUT_FLOPS)
        return;
    const cutting c = find_cutting(kernels, op);
    if (c.units == 0) { return; } // too many to be counted
    op->is_cut = true;
    op->preparing_count = c.blocks;
    op->range_count = c.blocks + c.units;
}

static size_t cut_block_floats(const sumi_cpu_kernels* kernels, const sumi_op_attention* a)
{
    return (size_t)block_keys(a->dim) * (size_t)(a->dim + sumi_round_up(a->dim, kernels->tile_cols));
}

static uint64_t cut_shared_floats(const sumi_cpu_kernels* kernels, const sumi_op* op)
{
    const sumi_op_attention* a = &op->u.attention;
    return (uint64_t)op->preparing_count * cut_block_floats(kernels, a)
         + (uint64_t)find_cutting(kernels, op).group_queries
               * (uint64_t)(sumi_round_up(a->dim, kernels->tile_cols) + 2);
}

typedef struct cut_loop {
    const head* h;
    cutting c;
    partial sums;         // of the group
    int32_t group;        // the loop's units are [unit_begin, unit_end) of this group
    int32_t units, tiles; // of this group for one block of keys; the last group may have fewer than the others
    int32_t unit_begin, unit_end;
} cut_loop;

// Loop items are blocks of keys, counted from the first one that is not packed yet.
static void cut_pack(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const head* h = ((const cut_loop*)context)->h;
    const sumi_cpu_run* run = h->loop->run;
    for (int32_t b = *run->packed_count + begin; b < *run->packed_count + end; b++) {
        float* k_panels = run->shared + (size_t)b * cut_block_floats(run->kernels, &run->op->u.attention);
        pack_block(h, b * h->block, sumi_min_int(h->block, h->key_count - b * h->block), k_panels,
                   k_panels + (size_t)h->block * (size_t)run->op->u.attention.dim);
    }
}

// The first block of keys whose unit `unit` is not below unit_index of the group.
static int32_t first_block(const cut_loop* loop, int32_t unit, int32_t unit_index)
{
    return unit_index > unit ? sumi_divide_up(unit_index - unit, loop->units) : 0;
}

static void cut_attend(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    const cut_loop* loop = context;
    const head* h = loop->h;
    const sumi_cpu_run* run = h->loop->run;
    const int32_t tile_rows = run->kernels->tile_rows, dim = run->op->u.attention.dim;
    float* a = sumi_cpu_worker(run, worker_index);
    for (int32_t t = begin; t < end; t++) {
        const int32_t unit = t / loop->c.unit_tiles, first = loop->group * loop->c.group_queries + t * tile_rows,
                      rows = sumi_min_int(tile_rows, loop->c.queries - first),
                      block_begin = first_block(loop, unit, loop->unit_begin),
                      block_end = first_block(loop, unit, loop->unit_end);
        const partial sums = partial_at(&loop->sums, t * tile_rows, h->o_stride);
        if (block_begin == block_end) continue;
        if (block_begin == 0) begin_queries(h, rows, &sums);
        for (int32_t b = block_begin; b < block_end; b++) {
            const float* k_panels = run->shared + (size_t)b * cut_block_floats(run->kernels, &run->op->u.attention);
            const key_block block = {b * h->block, sumi_min_int(h->block, h->key_count - b * h->block), k_panels,
                                     k_panels + (size_t)h->block * (size_t)dim};
            add_block(h, first, rows, &block, &sums, a);
        }
        if (block_end == loop->c.blocks) end_queries(h, first, rows, &sums);
    }
}

static void run_cut(const attention_loop* whole)
{
    const sumi_cpu_run* run = whole->run;
    const head h = find_head(whole, &run->op->u.attention.sequences[0], 0);
    cut_loop loop = {.h = &h, .c = find_cutting(run->kernels, run->op)};
    const cutting* c = &loop.c;
    // Slices of other ops that ran in between would have overwritten the sums.
    SUMI_ASSERT(run->range_begin <= c->blocks || *run->packed_count == c->blocks);
    const int32_t packed = sumi_min_int(run->range_end, c->blocks);
    if (*run->packed_count < packed) {
        sumi_parallel(run->workers, packed - *run->packed_count, 1, cut_pack, &loop);
        *run->packed_count = packed;
    }
    float* o = run->shared + (size_t)c->blocks * cut_block_floats(run->kernels, &run->op->u.attention);
    float* max = o + (size_t)c->group_queries * (size_t)h.o_stride;
    loop.sums = (partial){o, max, max + c->group_queries};
    const int32_t tile_rows = run->kernels->tile_rows, whole_group = c->blocks * c->group_units;
    int32_t unit = sumi_max_int(run->range_begin, c->blocks) - c->blocks;
    for (int32_t count; unit < run->range_end - c->blocks; unit += count) {
        loop.group = unit / whole_group;
        const int32_t queries = sumi_min_int(c->queries - loop.group * c->group_queries, c->group_queries);
        loop.tiles = sumi_divide_up(queries, tile_rows);
        loop.units = sumi_divide_up(loop.tiles, c->unit_tiles);
        loop.unit_begin = unit - loop.group * whole_group;
        count = sumi_min_int(loop.units * c->blocks - loop.unit_begin, run->range_end - c->blocks - unit);
        loop.unit_end = loop.unit_begin + count;
        sumi_parallel(run->workers, loop.tiles, 1, cut_attend, &loop);
    }
}

// ---- The op ---------------------------------------------------------------------------------------------------------

sumi_cpu_scratch sumi_cpu_attention_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    uint64_t dim = (uint64_t)op->u.attention.dim,
             o_stride = (uint64_t)sumi_round_up(op->u.attention.dim, kernels->tile_cols),
             block = (uint64_t)block_keys(op->u.attention.dim), group = (uint64_t)group_queries(op->u.attention.dim);
    return (sumi_cpu_scratch){
        op->preparing_count > 0 ? cut_shared_floats(kernels, op) * sizeof(float) : 0,
        (2 * SUMI_CPU_MAX_TILE_ROWS * SUMI_CPU_A_STRIDE + block * (dim + o_stride) + group * (o_stride + 2))
            * sizeof(float)};
}

sumi_result sumi_cpu_attention(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.attention.q_heads % run->op->u.attention.kv_heads == 0);
    SUMI_ASSERT(run->op->u.attention.query_block >= 1);
    const sumi_op* op = run->op;
    attention_loop loop = {.run = run,
                           .qkv = sumi_cpu_value(run, op->in[0]),
                           .y = (float*)sumi_cpu_value(run, op->out) + op->u.attention.y_column,
                           .kept = op->in[2].id != 0 ? sumi_cpu_value(run, op->in[2]) : NULL,
                           .stride = sumi_cpu_cols(run, op->in[0]),
                           .kept_stride = op->in[2].id != 0 ? sumi_cpu_cols(run, op->in[2]) : 0,
                           .y_stride = sumi_cpu_cols(run, op->out)};
    if (op->preparing_count > 0) {
        run_cut(&loop);
        return SUMI_OK;
    }
    // a work range larger than a group would not fit the worker's memory; the plan's query_block is far smaller
    loop.group_ranges = group_queries(op->u.attention.dim) / op->u.attention.query_block;
    if (loop.group_ranges < 1) {
        return sumi_fail(run->error, SUMI_INTERNAL, "%s: a query block of %d is too large for the CPU backend",
                         op->label == NULL ? "attention" : op->label, op->u.attention.query_block);
    }
    int32_t items = 0, range_base = 0;
    for (int32_t i = 0; i < op->u.attention.sequence_count; i++) {
        const sumi_sequence* sequence = &op->u.attention.sequences[i];
        int32_t blocks = sumi_divide_up(sumi_sequence_queries(sequence), op->u.attention.query_block);
        for (int32_t index = 0; index < op->u.attention.q_heads; index++, range_base += blocks) {
            int32_t from = run->range_begin > range_base ? run->range_begin - range_base : 0,
                    to = sumi_min_int(blocks, run->range_end - range_base);
            items += from < to ? sumi_divide_up(to - from, loop.group_ranges) : 0;
        }
    }
    sumi_parallel(run->workers, items, 1, run_groups, &loop);
    return SUMI_OK;
}
