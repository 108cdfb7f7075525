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
#include "base/integers.h"
#include "cpu/ops_cpu.h"
#include <math.h>
#include <string.h>

// group_queries: queries that share packed keys. More queries take more memory; fewer pack the keys more often.
// block_keys: keys per block, as many as a tile of S holds, half as many for the wide heads of a VAE.
static int32_t group_queries(int32_t dim) { return dim <= 128 ? 512 : dim <= 256 ? 256 : 128; }
static int32_t block_keys(int32_t dim) { return dim <= 256 ? 256 : 128; }

typedef struct attention_loop {
    const sumi_cpu_run* run;
    const float* qkv;
    float* y;
    int64_t stride, y_stride;
    int32_t group_ranges; // consecutive work ranges (query blocks) of one head in one loop item
} attention_loop;

static int32_t sequence_rows(const sumi_sequence* sequence, int32_t span_count)
{
    int32_t rows = 0;
    for (int32_t s = 0; s < span_count; s++) { rows += sequence->span[s].count; }
    return rows;
}

static int64_t row_of(const sumi_sequence* sequence, int32_t index)
{
    SUMI_ASSERT(index >= 0 && index < sequence_rows(sequence, sequence->span_count));
    return index < sequence->span[0].count ? sequence->span[0].begin + index
                                           : sequence->span[1].begin + index - sequence->span[0].count;
}

static void attend(const attention_loop* loop, const sumi_sequence* sequence, int32_t head, int32_t query_begin,
                   int32_t query_end, float* memory)
{
    SUMI_ASSERT(query_begin >= 0 && query_begin < query_end);
    // the capacity of the worker's memory
    SUMI_ASSERT(query_end - query_begin <= group_queries(loop->run->op->u.attention.dim));
    SUMI_ASSERT(head >= 0 && head < loop->run->op->u.attention.q_heads);
    const sumi_cpu_run* run = loop->run;
    const sumi_cpu_kernels* kernels = run->kernels;
    const sumi_op* op = run->op;
    int32_t dim = op->u.attention.dim, tile_rows = kernels->tile_rows, tile_cols = kernels->tile_cols,
            window = op->u.attention.window;
    int32_t dim_panels = sumi_divide_up(dim, tile_cols), o_stride = dim_panels * tile_cols,
            queries = query_end - query_begin, block = block_keys(dim), group = group_queries(dim);
    bool causal = op->u.attention.causal;
    int32_t key_count = sequence_rows(sequence, sequence->span_count);
    const float* q = loop->qkv + op->u.attention.q_column + head * dim;
    int32_t kv_head = head / (op->u.attention.q_heads / op->u.attention.kv_heads);
    const float* k = loop->qkv + op->u.attention.k_column + kv_head * dim;
    const float* v = loop->qkv + op->u.attention.v_column + kv_head * dim;
    float* a = memory; // q tile
    // scores, then probabilities: operand A of the second product
    float* s = a + SUMI_CPU_MAX_TILE_ROWS * SUMI_CPU_A_STRIDE;
    float* k_panels = s + SUMI_CPU_MAX_TILE_ROWS * SUMI_CPU_A_STRIDE;
    float* v_panels = k_panels + (size_t)block * (size_t)dim;
    float* o = v_panels + (size_t)block * (size_t)o_stride;
    float* max = o + (size_t)group * (size_t)o_stride;
    float* sum = max + group;
    for (int32_t i = 0; i < queries; i++) {
        max[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    memset(o, 0, (size_t)queries * (size_t)o_stride * sizeof(float));
    int32_t tiles = sumi_divide_up(queries, tile_rows), height = sumi_divide_up(queries, tiles);
    for (int32_t key = 0; key < key_count; key += block) {
        int32_t keys = sumi_min_int(block, key_count - key);
        // query i sees keys (i - window, i] if causal, (i - window, i + window) if only windowed
        if ((causal && key > query_end - 1) || (window > 0 && !causal && key >= query_end - 1 + window)) { break; }
        if (window > 0 && key + keys - 1 <= query_begin - window) { continue; }
        int32_t key_panels = sumi_divide_up(keys, tile_cols);
        for (int32_t p = 0; p < key_panels; p++) {
            const void* rows[SUMI_CPU_MAX_TILE_COLS];
            int32_t count = sumi_min_int(tile_cols, keys - p * tile_cols);
            for (int32_t i = 0; i < count; i++) {
                rows[i] = k + row_of(sequence, key + p * tile_cols + i) * loop->stride;
            }
            kernels->pack_f32(k_panels + (size_t)p * (size_t)(tile_cols * dim), rows, count, dim);
        }
        for (int32_t i = 0; i < keys; i++) {
            const float* row = v + row_of(sequence, key + i) * loop->stride;
            for (int32_t p = 0; p < dim_panels; p++) {
                float* to = v_panels + ((size_t)p * (size_t)keys + (size_t)i) * (size_t)tile_cols;
                int32_t count = sumi_min_int(tile_cols, dim - p * tile_cols);
                memcpy(to, row + p * tile_cols, (size_t)count * sizeof(float));
                memset(to + count, 0, (size_t)(tile_cols - count) * sizeof(float));
            }
        }
        for (int32_t t = 0; t < queries; t += height) {
            int32_t rows = sumi_min_int(height, queries - t), first = query_begin + t, last = first + rows - 1;
            if ((causal && key > last) || (window > 0 && !causal && key >= last + window)
                || (window > 0 && key + keys - 1 <= first - window)) {
                continue;
            }
            for (int32_t d = 0; d < dim; d += SUMI_CPU_DEPTH) {
                int32_t depth = sumi_min_int(SUMI_CPU_DEPTH, dim - d);
                for (int32_t r = 0; r < rows; r++) {
                    kernels->scale(a + r * SUMI_CPU_A_STRIDE, q + row_of(sequence, first + r) * loop->stride + d,
                                   op->u.attention.scale, depth);
                }
                for (int32_t p = 0; p < key_panels; p++) {
                    kernels->tile(rows, depth, a, k_panels + ((size_t)p * (size_t)dim + (size_t)d) * (size_t)tile_cols,
                                  s + p * tile_cols, SUMI_CPU_A_STRIDE, d == 0);
                }
            }
            for (int32_t r = 0; r < rows; r++) {
                float* row = s + r * SUMI_CPU_A_STRIDE;
                int32_t query = first + r;
                for (int32_t i = 0; window > 0 && i < keys && key + i <= query - window; i++) { row[i] = -INFINITY; }
                // `after` is the first key that the query does not see
                int32_t after = causal ? query + 1 : window > 0 ? query + window : key + keys;
                for (int32_t i = after > key ? after - key : 0; i < keys; i++) { row[i] = -INFINITY; }
                float older = kernels->softmax(row, keys, &max[t + r], &sum[t + r]);
                if (older != 1.0f) {
                    kernels->scale(o + (size_t)(t + r) * (size_t)o_stride, o + (size_t)(t + r) * (size_t)o_stride,
                                   older, o_stride);
                }
            }
            for (int32_t p = 0; p < dim_panels; p++) {
                kernels->tile(rows, keys, s, v_panels + (size_t)p * (size_t)(keys * tile_cols),
                              o + (size_t)t * (size_t)o_stride + p * tile_cols, o_stride, false);
            }
        }
    }
    for (int32_t i = 0; i < queries; i++) {
        float* to = loop->y + row_of(sequence, query_begin + i) * loop->y_stride + head * dim;
        kernels->scale(to, o + (size_t)i * (size_t)o_stride, sum[i] > 0.0f || isnan(sum[i]) ? 1.0f / sum[i] : 0.0f,
                       dim);
    }
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
        for (int32_t head = 0; head < op->u.attention.q_heads && item < end; head++, range_base += blocks) {
            int32_t from = loop->run->range_begin > range_base ? loop->run->range_begin - range_base : 0,
                    to = sumi_min_int(blocks, loop->run->range_end - range_base);
            for (; from < to && item < end; from += loop->group_ranges, item++) {
                if (item >= begin) {
                    attend(loop, sequence, head, first + from * query_block,
                           first + sumi_min_int(queries, sumi_min_int(to, from + loop->group_ranges) * query_block),
                           memory);
                }
            }
        }
    }
}

sumi_cpu_scratch sumi_cpu_attention_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    uint64_t dim = (uint64_t)op->u.attention.dim,
             o_stride = (uint64_t)sumi_round_up(op->u.attention.dim, kernels->tile_cols),
             block = (uint64_t)block_keys(op->u.attention.dim), group = (uint64_t)group_queries(op->u.attention.dim);
    return (sumi_cpu_scratch){
        0, (2 * SUMI_CPU_MAX_TILE_ROWS * SUMI_CPU_A_STRIDE + block * (dim + o_stride) + group * (o_stride + 2))
               * sizeof(float)};
}

sumi_result sumi_cpu_attention(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.attention.q_heads % run->op->u.attention.kv_heads == 0);
    SUMI_ASSERT(run->op->u.attention.query_block >= 1);
    const sumi_op* op = run->op;
    attention_loop loop = {.run = run,
                           .qkv = sumi_cpu_value(run, op->in[0]),
                           .y = sumi_cpu_value(run, op->out),
                           .stride = sumi_cpu_cols(run, op->in[0]),
                           .y_stride = sumi_cpu_cols(run, op->out)};
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
        for (int32_t head = 0; head < op->u.attention.q_heads; head++, range_base += blocks) {
            int32_t from = run->range_begin > range_base ? run->range_begin - range_base : 0,
                    to = sumi_min_int(blocks, run->range_end - range_base);
            items += from < to ? sumi_divide_up(to - from, loop.group_ranges) : 0;
        }
    }
    sumi_parallel(run->workers, items, 1, run_groups, &loop);
    return SUMI_OK;
}
