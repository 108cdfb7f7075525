// Attention on the CPU against a plain double reference: spans, windows, queries behind a shared beginning, padding, keys
// that were kept.
#include "base/memory.h"
#include "cpu_scenes.h"
#include "plan/plan.h"

static void check_attention(attention_case* c, int range_rows, float spread)
{
    int cols = (c->a.q_heads + 2 * c->a.kv_heads) * c->a.dim, dim = c->a.dim, out_cols = c->a.q_heads * dim;
    float* qkv = random_floats((size_t)c->rows * cols, spread);
    double *expect = calloc((size_t)c->rows * out_cols, sizeof *expect), *p = malloc((size_t)c->rows * sizeof *p),
           largest = 0.0;
    for (int i = 0; i < c->a.sequence_count; i++) {
        const sumi_sequence* q = &c->a.sequences[i];
        int list[4096], tokens = 0, keys = 0, queries = 0;
        for (int k = 0; k < q->span_count; k++) {
            for (int r = 0; r < q->span[k].count; r++) list[tokens++] = q->span[k].begin + r;
            queries = k < q->query_first + q->query_spans ? tokens : queries;
            keys = q->key_spans == 0 || k < q->key_spans ? tokens : keys;
        }
        const int first = q->query_first > 0 ? q->span[0].count : 0;
        for (int h = 0; h < c->a.q_heads; h++) {
            int kv = h / (c->a.q_heads / c->a.kv_heads);
            for (int r = first; r < queries; r++) {
                double max = -INFINITY, sum = 0.0;
                for (int k = 0; k < keys; k++) {
                    p[k] = 0.0;
                    for (int d = 0; d < dim; d++) {
                        p[k] += (double)qkv[list[r] * cols + h * dim + d]
                              * (double)qkv[list[k] * cols + (c->a.q_heads + kv) * dim + d];
                    }
                    bool seen =
                        (!c->a.causal || k <= r) && (c->a.window == 0 || (k > r - c->a.window && k < r + c->a.window));
                    largest = fmax(largest, fabs(p[k] * (double)c->a.scale));
                    p[k] = seen ? p[k] * (double)c->a.scale : -INFINITY;
                    max = p[k] > max ? p[k] : max;
                }
                for (int k = 0; k < keys; k++) sum += p[k] = exp(p[k] - max);
                for (int d = 0; d < dim; d++) {
                    double v = 0.0;
                    for (int k = 0; k < keys; k++)
                        v += p[k] * (double)qkv[list[k] * cols + (c->a.q_heads + c->a.kv_heads + kv) * dim + d];
                    expect[list[r] * out_cols + h * dim + d] = v / sum;
                }
            }
        }
    }
    scene s = {.build = build_attention,
               .context = c,
               .inputs = {NULL, qkv},
               .range_rows = range_rows,
               .expect = expect,
               // a float score of s is rounded by some units of 6e-8 s, its weight changes by as much of itself, and
               // the values it weighs lie within +- spread
               .absolute = 3e-6 * (double)(spread * spread) + 4 * 6e-8 * largest * (double)spread,
               .relative = 1e-5};
    free(scene_run(&s));
    free(qkv), free(expect), free(p);
}

TEST(attention_agrees_with_the_reference)
{
    sumi_sequence whole = {.span = {{0, 70}}, .span_count = 1, .query_spans = 1};
    static const int s_dims[] = {1, 7, 32, 40, 64, 96, 128, 200, 256, 300, 512};
    for (size_t i = 0; i < sizeof s_dims / sizeof *s_dims; i++) {
        attention_case c = {70, {2, 1, s_dims[i], 1.0f / sqrtf((float)s_dims[i]), i % 2 == 1, 0, &whole, 1}};
        check_attention(&c, 16, 1.0f);
    }
}

TEST(attention_runs_two_spans_windows_and_many_keys)
{
    // the first: its caption rows are keys only
    sumi_sequence two[] = {{{{300, 40}, {0, 21}}, 2, 1, 0, 0}, {{{30, 250}, {290, 5}}, 2, 2, 0, 0}};
    attention_case joint = {345, {4, 2, 24, 0.2f, false, 0, two, 2}};
    check_attention(&joint, 7, 1.0f);
    sumi_sequence whole = {.span = {{3, 600}}, .span_count = 1, .query_spans = 1};
    for (int causal = 0; causal < 2; causal++) {
        for (int window = 0; window <= 300; window += 100) {
            attention_case c = {604, {1, 1, 16, 0.25f, causal != 0, window, &whole, 1}};
            check_attention(&c, 64, 1.0f);
        }
    }
    attention_case sharp = {604, {1, 1, 32, 1.0f, false, 0, &whole, 1}}; // scores of hundreds
    check_attention(&sharp, 64, 6.0f);
}

// Sequences that begin with the same rows, which have been computed once.
TEST(attention_runs_queries_behind_a_shared_beginning)
{
    sumi_sequence list[] = {
        {{{2, 300}, {0, 0}}, 1, 1, 0, 0}, {{{2, 270}, {310, 41}}, 2, 1, 1, 0}, {{{2, 270}, {351, 1}}, 2, 1, 1, 0}};
    for (int causal = 0; causal < 2; causal++) {
        for (int window = 0; window <= 100; window += 50) {
            attention_case c = {352, {4, 2, 24, 0.2f, causal != 0, window, list, 3}};
            check_attention(&c, 16, 1.0f);
        }
    }
}

// Their results are the bits of the whole sequence, however the rows lie.
TEST(a_shared_beginning_changes_no_bit)
{
    enum { SHARED = 270, ROWS = 311, COLS = 4 * 16 };
    const sumi_sequence whole = {.span = {{0, ROWS}}, .span_count = 1, .query_spans = 1},
                        own = {.span = {{0, SHARED}, {SHARED, ROWS - SHARED}}, 2, 1, 1, 0};
    float *values = random_floats(ROWS * COLS, 1.0f), *results[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        bench b;
        bench_begin(&b, SUMI_CPU_AUTO, 2);
        sumi_value qkv = sumi_plan_bound(&b.plan, "qkv", SUMI_ELEMENT_FLOAT, ROWS, COLS);
        const sumi_attention attention = {2, 1, 16, 0.25f, true, 0, i == 0 ? &whole : &own, 1};
        sumi_value y = sumi_plan_attention(&b.plan, "attention", qkv, &attention);
        b.plan.values[y.id - 1].bound = true;
        if (bench_ready(&b)) {
            bench_write(&b, qkv, values);
            bench_run(&b, i == 0 ? SPLIT_NONE : SPLIT_RANDOM, 0);
            results[i] = bench_read(&b, y);
        }
        bench_end(&b);
    }
    CHECK(results[0] != NULL && results[1] != NULL);
    if (results[0] == NULL || results[1] == NULL) return;
    CHECK(memcmp(results[0] + SHARED * 32, results[1] + SHARED * 32, (ROWS - SHARED) * 32 * sizeof(float)) == 0);
    CHECK(results[0][ROWS * 32 - 1] != 0.0f);
    free(results[0]), free(results[1]), free(values);
}

// Rows of padding: queries behind the keys, next to them, elsewhere, and alone.
TEST(attention_runs_queries_that_are_no_keys)
{
    sumi_sequence list[] = {{{{2, 262}, {264, 30}}, 2, 2, 0, 1},
                            {{{300, 5}, {320, 30}}, 2, 2, 0, 1},
                            {{{2, 250}, {360, 10}}, 2, 1, 1, 1},
                            {{{370, 20}, {0, 0}}, 1, 1, 0, 1}};
    for (int causal = 0; causal < 2; causal++) {
        attention_case c = {395, {2, 1, 24, 0.2f, causal != 0, 0, list, 4}};
        check_attention(&c, 16, 1.0f);
    }
}

TEST(padding_changes_no_bit_of_a_text)
{
    enum { TEXT = 270, ROWS = 311, COLS = 4 * 16 };
    const sumi_sequence alone = {.span = {{0, TEXT}}, .span_count = 1, .query_spans = 1},
                        padded = {.span = {{0, TEXT}, {TEXT, ROWS - TEXT}},
                                  .span_count = 2,
                                  .query_spans = 2,
                                  .key_spans = 1};
    float *values = random_floats(ROWS * COLS, 1.0f), *results[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        bench b;
        bench_begin(&b, SUMI_CPU_AUTO, 2);
        sumi_value qkv = sumi_plan_bound(&b.plan, "qkv", SUMI_ELEMENT_FLOAT, ROWS, COLS);
        const sumi_attention attention = {2, 1, 16, 0.25f, true, 0, i == 0 ? &alone : &padded, 1};
        sumi_value y = sumi_plan_attention(&b.plan, "attention", qkv, &attention);
        b.plan.values[y.id - 1].bound = true;
        if (bench_ready(&b)) {
            bench_write(&b, qkv, values);
            bench_run(&b, i == 0 ? SPLIT_NONE : SPLIT_RANDOM, 0);
            results[i] = bench_read(&b, y);
        }
        bench_end(&b);
    }
    CHECK(results[0] != NULL && results[1] != NULL);
    if (results[0] == NULL || results[1] == NULL) return;
    CHECK(memcmp(results[0], results[1], TEXT * 32 * sizeof(float)) == 0);
    CHECK(results[1][ROWS * 32 - 1] != 0.0f);
    free(results[0]), free(results[1]), free(values);
}

// Rows of a matrix of q, k and v, whose k and v are kept, and the rows after them.
enum { KEPT = 300, AFTER = 41, HEADS = 4, KV_HEADS = 2, HEAD = 24, QKV = (HEADS + 2 * KV_HEADS) * HEAD };

// With kept keys the bits are those of a sequence whose rows lie in one matrix, which agrees with the reference above.
// The keys are copied from a view of some columns, and the two ops of this plan write rows of the same value.
static float* attend_beside_kept(const float* values, bool causal, bool keeps, split how)
{
    bench b;
    float* result = NULL;
    bench_begin(&b, SUMI_CPU_AUTO, how == SPLIT_NONE ? 1 : 3);
    sumi_value all = sumi_plan_bound(&b.plan, "all", SUMI_ELEMENT_FLOAT, KEPT + AFTER, QKV),
               y = sumi_plan_bound(&b.plan, "y", SUMI_ELEMENT_FLOAT, AFTER, HEADS * HEAD),
               own = sumi_plan_value(&b.plan, "own", SUMI_ELEMENT_FLOAT, AFTER, QKV),
               before = sumi_plan_value(&b.plan, "before", SUMI_ELEMENT_FLOAT, KEPT, QKV),
               kept = sumi_plan_value(&b.plan, "kept", SUMI_ELEMENT_FLOAT, KEPT + 7, 2 * KV_HEADS * HEAD);
    sumi_plan_copy_rows(&b.plan, &(sumi_plan_copy_args){.x = all, .y = before, .rows = KEPT});
    sumi_plan_copy_rows(&b.plan, &(sumi_plan_copy_args){.x = all, .x_row = KEPT, .y = own, .rows = AFTER});
    const sumi_span columns = {HEADS * HEAD, 2 * KV_HEADS * HEAD};
    sumi_plan_copy_rows(
        &b.plan, &(sumi_plan_copy_args){.x = sumi_plan_view(&b.plan, "k_v", before, (sumi_span){0, KEPT}, columns),
                                        .y = kept,
                                        .y_row = 7,
                                        .rows = KEPT});
    // one sequence behind all kept keys, and one behind some of them
    const sumi_sequence kept_lists[2] = {{{{7, KEPT}, {0, 30}}, 2, 1, 1, 0},
                                         {{{7, 200}, {30, AFTER - 30}}, 2, 1, 1, 0}},
                        whole_lists[2] = {{{{0, KEPT}, {KEPT, 30}}, 2, 1, 1, 0},
                                          {{{0, 200}, {KEPT + 30, AFTER - 30}}, 2, 1, 1, 0}};
    sumi_value whole = sumi_plan_value(&b.plan, "whole", SUMI_ELEMENT_FLOAT, KEPT + AFTER, HEADS * HEAD);
    for (int i = 0; i < 2; i++) {
        const sumi_attention a = {.q_heads = HEADS,
                                  .kv_heads = KV_HEADS,
                                  .dim = HEAD,
                                  .scale = 0.2f,
                                  .causal = causal,
                                  .sequences = keeps ? &kept_lists[i] : &whole_lists[i],
                                  .sequence_count = 1};
        sumi_plan_attention_into(&b.plan, &(sumi_plan_attention_args){.label = "attention",
                                                                      .qkv = keeps ? own : all,
                                                                      .attention = &a,
                                                                      .y = keeps ? y : whole,
                                                                      .kept = keeps ? kept : SUMI_NO_VALUE});
    }
    if (!keeps) sumi_plan_copy_rows(&b.plan, &(sumi_plan_copy_args){.x = whole, .x_row = KEPT, .y = y});
    if (bench_ready(&b)) {
        bench_write(&b, all, values);
        bench_run(&b, how, 0);
        result = bench_read(&b, y);
    }
    bench_end(&b);
    return result;
}

TEST(kept_keys_change_no_bit)
{
    float* values = random_floats((KEPT + AFTER) * QKV, 1.0f);
    for (int causal = 0; causal < 2; causal++) {
        float *want = attend_beside_kept(values, causal != 0, false, SPLIT_NONE),
              *got = attend_beside_kept(values, causal != 0, true, SPLIT_NONE),
              *cut = attend_beside_kept(values, causal != 0, true, SPLIT_RANDOM);
        CHECK(want != NULL && got != NULL && cut != NULL);
        if (want != NULL && got != NULL && cut != NULL) {
            CHECK(memcmp(got, want, AFTER * HEADS * HEAD * sizeof(float)) == 0);
            CHECK(memcmp(cut, want, AFTER * HEADS * HEAD * sizeof(float)) == 0);
            CHECK(want[0] != 0.0f && want[AFTER * HEADS * HEAD - 1] != 0.0f);
        }
        free(want), free(got), free(cut);
    }
    free(values);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(attention_agrees_with_the_reference);
    RUN(attention_runs_two_spans_windows_and_many_keys);
    RUN(attention_runs_queries_behind_a_shared_beginning);
    RUN(a_shared_beginning_changes_no_bit);
    RUN(attention_runs_queries_that_are_no_keys);
    RUN(padding_changes_no_bit_of_a_text);
    RUN(kept_keys_change_no_bit);
    TEST_END();
}
