// Cases of attention.
#include "cuda_ops/scene.h"

// Flags of a case, in op_case.a.
enum {
    CAUSAL = 1,
    SHARP = 2,
    TWO_SPANS = 4,
    FIRST_SPAN = 8,
    THREE = 16,
    LATER = 32,
    PADDED = 64,
    MEANS = 128
}; // MEANS: of q, k and v

// m queries, n heads, k dim; a: flags; b: key heads; c: window; d: rows of the second span
static void build_attention(scene* s, const op_case* c)
{
    int q = c->n, kv = c->b > 0 ? c->b : q, dim = c->k, m = c->m, rows = m + 3;
    sumi_sequence list[3] = {{{{2, m}, {0, 0}}, 1, 1, 0, 0}};
    int count = 1;
    sumi_span read[4] = {{2, m}};
    int read_count = 1;
    if (c->a & (TWO_SPANS | FIRST_SPAN)) { // image rows, rows that nothing reads, caption rows
        rows = m + c->d + 7;
        list[0] = (sumi_sequence){{{3, m}, {m + 5, c->d}}, 2, c->a & FIRST_SPAN ? 1 : 2, 0, 0};
        read[0] = (sumi_span){3, m};
        if (!(c->a & FIRST_SPAN)) read[read_count++] = (sumi_span){m + 5, c->d};
    }
    if (c->a & THREE) { // a batch: images, then captions of different lengths
        int tail = 3 * m;
        rows = tail + 3 * c->d + 3;
        count = read_count = 3;
        for (int i = 0; i < 3; i++) {
            list[i] = (sumi_sequence){{{i * m, m}, {tail, c->d + i}}, 2, i == 1 ? 1 : 2, 0, 0};
            read[i] = (sumi_span){i * m, m};
            tail += c->d + i;
        }
    }
    if (c->a & LATER) { // two more sequences that begin with all rows of the first one but its last
        rows = m + 2 * c->d + 5;
        count = 3;
        read[0] = (sumi_span){2, m + 2 * c->d};
        list[1] = (sumi_sequence){{{2, m - 1}, {m + 2, c->d}}, 2, 1, 1, 0};
        list[2] = (sumi_sequence){{{2, m - 1}, {m + 2 + c->d, c->d}}, 2, 1, 1, 0};
    }
    if (c->a & PADDED) { // two texts with padding next to them, and padding of the first one by itself
        rows = 2 * m + 3 * c->d + 9;
        count = read_count = 3;
        list[0] = (sumi_sequence){{{2, m}, {m + 2, c->d}}, 2, 2, 0, 1};
        list[1] = (sumi_sequence){{{m + c->d + 3, m - 1}, {2 * m + c->d + 5, c->d}}, 2, 2, 0, 1};
        list[2] = (sumi_sequence){{{2, m}, {2 * m + 2 * c->d + 6, c->d}}, 2, 1, 1, 1};
        read[0] = (sumi_span){2, m + c->d};
        read[1] = (sumi_span){m + c->d + 3, m - 1};
        read[2] = (sumi_span){2 * m + c->d + 5, c->d};
        read[read_count++] = (sumi_span){2 * m + 2 * c->d + 6, c->d};
    }
    sumi_value qkv = activations_of(s, rows, (q + 2 * kv) * dim, c->a & SHARP ? 2.5f : 1.0f, 0.0f);
    sumi_attention attention = {q, kv, dim, 1.0f / sqrtf((float)dim), (c->a & CAUSAL) != 0, c->c, list, count};
    sumi_value y = sumi_plan_attention(&s->plan, "attention", qkv, &attention);
    for (int i = 0; i < read_count; i++) expect_rows(s, y, c->bound, read[i].begin, read[i].count);
}
// Sequences whose first keys were kept: m queries each, d kept keys of the longest one.
typedef struct kept_sequences {
    sumi_sequence list[3];
} kept_sequences;
static kept_sequences sequences_behind_kept(const op_case* c)
{
    const int m = c->m;
    return (kept_sequences){{{{{2, c->d}, {1, m}}, 2, 1, 1, 0},
                             {{{1, c->d - 1}, {m + 1, m}}, 2, 1, 1, 0},
                             {{{c->d + 1, 1}, {2 * m + 4, m}}, 2, 1, 1, 0}}};
}
// Up to three sequences whose first keys were kept: m queries each, n heads, k dim; a: flags; b: key heads; d: kept keys
// of the longest one; e: 1: attention in 8 bits is allowed, which kept keys that the host wrote do not take
static void build_attention_kept(scene* s, const op_case* c)
{
    const int q = c->n, kv = c->b > 0 ? c->b : q, dim = c->k, m = c->m;
    if (c->e) s->plan.weight_options.attention = SUMI_ATTENTION_8BIT;
    const kept_sequences sequences = sequences_behind_kept(c);
    const sumi_sequence* list = sequences.list;
    const float spread = c->a & SHARP ? 2.5f : 1.0f;
    sumi_value qkv = activations_of(s, 3 * m + 5, (q + 2 * kv) * dim, spread, 0.0f),
               kept = activations_of(s, c->d + 5, 2 * kv * dim, spread, 0.0f),
               y = sumi_plan_value(&s->plan, "attended", SUMI_ELEMENT_ACTIVATION, 3 * m + 5, q * dim);
    const sumi_attention attention = {
        q, kv, dim, 1.0f / sqrtf((float)dim), (c->a & CAUSAL) != 0, 0, list, c->a & THREE ? 3 : 1};
    sumi_plan_attention_into(
        &s->plan,
        &(sumi_plan_attention_args){.label = "attention", .qkv = qkv, .attention = &attention, .y = y, .kept = kept});
    for (int i = 0; i < attention.sequence_count; i++) expect_rows(s, y, c->bound, list[i].span[1].begin, m);
}
// q, k and v of `rows` rows by a product, normed and rotated: the rows before `second` by one op, those from there on by
// another with other weights.
static sumi_value normed_qkv(scene* s, const op_case* c, int rows, int second, int width)
{
    const int q = c->n, kv = c->b > 0 ? c->b : q, dim = c->k;
    sumi_value x = activations(s, rows, width);
    sumi_value qkv = sumi_plan_linear(
        &s->plan,
        &(sumi_plan_linear_args){
            .label = "qkv",
            .x = x,
            .weight = matrix_weight(s, (q + 2 * kv) * dim, width, SUMI_DTYPE_BF16),
            .bias = c->a & MEANS ? stacked_weight(s, 1, (q + 2 * kv) * dim, 1, SUMI_DTYPE_F32, 0.1f, 2.0f) : NULL});
    sumi_value rope = sumi_plan_rope_table(
        &s->plan, &(sumi_plan_rope_args){
                      .positions = integers(s, rows, 1, 400), .axes = 1, .pairs = {dim / 2}, .theta = 10000.0});
    for (int row = 0; row < rows; row = row == 0 ? second : rows) {
        sumi_plan_qk_norm_rope(&s->plan,
                               &(sumi_plan_qk_args){.label = "qk",
                                                    .qkv = qkv,
                                                    .row = row,
                                                    .rope_row = row,
                                                    .rows = row == 0 ? second : rows - second,
                                                    .q_heads = q,
                                                    .kv_heads = kv,
                                                    .dim = dim,
                                                    .q_norm = norm_weight(s, dim, SUMI_DTYPE_F32),
                                                    .k_norm = norm_weight(s, dim, SUMI_DTYPE_F32),
                                                    .eps = 1e-6f,
                                                    .rope = rope,
                                                    .rotary = c->e ? SUMI_ROTARY_HALVES : SUMI_ROTARY_INTERLEAVED});
    }
    return qkv;
}
static float scale_of(const op_case* c) { return (c->a & SHARP ? 4.0f : 1.0f) / sqrtf((float)c->k); }
// q, k and v by a product, normed and rotated, then attention in 8 bits, where the GPU has it. m queries, n heads, heads
// of k; a: flags, SHARP: scores that are further apart; b: key heads; d: rows of the second span; e: 1: rotated in
// halves
static void build_attention_8bit(scene* s, const op_case* c)
{
    s->plan.weight_options.attention = SUMI_ATTENTION_8BIT;
    const int q = c->n, kv = c->b > 0 ? c->b : q, dim = c->k, m = c->m,
              rows = (c->a & THREE ? 3 : 1) * m + (c->a & THREE ? 3 : 1) * c->d + (c->a & THREE ? 3 : 0);
    sumi_sequence list[3] = {{{{0, m}, {m, c->d}}, c->d > 0 ? 2 : 1, c->d > 0 && !(c->a & FIRST_SPAN) ? 2 : 1, 0, 0}};
    sumi_span read[3] = {{0, c->a & FIRST_SPAN ? m : rows}};
    int count = 1;
    if (c->a & THREE) { // a batch: images, then captions of different lengths
        count = 3;
        for (int i = 0, tail = 3 * m; i < 3; tail += c->d + i, i++) {
            list[i] = (sumi_sequence){{{i * m, m}, {tail, c->d + i}}, 2, i == 1 ? 1 : 2, 0, 0};
            read[i] = (sumi_span){i * m, m};
        }
    }
    sumi_value qkv = normed_qkv(s, c, rows, c->a & TWO_SPANS ? m : rows, 256); // of two streams each norms its rows
    sumi_attention attention = {
        .q_heads = q, .kv_heads = kv, .dim = dim, .scale = scale_of(c), .sequences = list, .sequence_count = count};
    sumi_value y = sumi_plan_attention(&s->plan, "attention", qkv, &attention);
    for (int i = 0; i < count; i++) expect_rows(s, y, c->bound, read[i].begin, read[i].count);
}
// The same behind keys and values that the plan itself computes and keeps, as build_attention_kept has them, by copies of
// two parts of their rows. c: columns of other values before the result, in the same rows
static void build_attention_kept_8bit(scene* s, const op_case* c)
{
    s->plan.weight_options.attention = SUMI_ATTENTION_8BIT;
    const int q = c->n, kv = c->b > 0 ? c->b : q, dim = c->k, m = c->m, count = c->a & THREE ? 3 : 1,
              kept_rows = c->d + 5, rows = count * m + 5, half = kept_rows / 2;
    const kept_sequences sequences = sequences_behind_kept(c);
    sumi_value prefix = normed_qkv(s, c, kept_rows, kept_rows, 64),
               kept = sumi_plan_value(&s->plan, "kept", SUMI_ELEMENT_ACTIVATION, kept_rows, 2 * kv * dim),
               k_and_v = sumi_plan_view(&s->plan, "k_and_v", prefix, (sumi_span){0, kept_rows},
                                        (sumi_span){q * dim, 2 * kv * dim});
    sumi_plan_copy_rows(&s->plan, &(sumi_plan_copy_args){.x = k_and_v, .y = kept, .rows = half});
    sumi_plan_copy_rows(&s->plan, &(sumi_plan_copy_args){
                                      .x = k_and_v, .x_row = half, .y = kept, .y_row = half, .rows = kept_rows - half});
    sumi_value qkv = normed_qkv(s, c, rows, rows, 64),
               y = sumi_plan_value(&s->plan, "attended", SUMI_ELEMENT_ACTIVATION, rows, c->c + q * dim);
    if (c->c > 0)
        sumi_plan_copy_rows(
            &s->plan,
            &(sumi_plan_copy_args){.x = activations(s, rows, c->c), .y = y, .rows = rows, .writes_some_columns = true});
    const sumi_attention attention = {.q_heads = q,
                                      .kv_heads = kv,
                                      .dim = dim,
                                      .scale = scale_of(c),
                                      .sequences = sequences.list,
                                      .sequence_count = count};
    sumi_plan_attention_into(
        &s->plan,
        &(sumi_plan_attention_args){
            .label = "attention", .qkv = qkv, .attention = &attention, .y = y, .y_column = c->c, .kept = kept});
    for (int i = 0; i < count; i++) expect_rows(s, y, c->bound, sequences.list[i].span[1].begin, m);
}
// m rows in windows of c rows, as in the vision tower; the last window may be shorter; n heads, k dim
static void build_windows(scene* s, const op_case* c)
{
    sumi_sequence list[128];
    int count = 0;
    for (int begin = 0; begin < c->m && count < 128; begin += c->c, count++)
        list[count] = (sumi_sequence){{{begin, c->m - begin < c->c ? c->m - begin : c->c}, {0, 0}}, 1, 1, 0, 0};
    sumi_value qkv = activations(s, c->m, 3 * c->n * c->k);
    sumi_attention attention = {.q_heads = c->n,
                                .kv_heads = c->n,
                                .dim = c->k,
                                .scale = 1.0f / sqrtf((float)c->k),
                                .sequences = list,
                                .sequence_count = count};
    expect(s, sumi_plan_attention(&s->plan, "attention", qkv, &attention), c->bound);
}
// A gated product beside attention, in one value. m rows, n heads of k; b: kept keys; d: columns of the gated product;
// a: the format of its weights, 1: int8
static void build_beside(scene* s, const op_case* c)
{
    const int dim = c->k, width = c->n * dim, depth = 192;
    s->plan.weight_options.weights = c->a == 1 ? SUMI_WEIGHTS_INT8 : SUMI_WEIGHTS_BF16;
    const sumi_sequence list[] = {c->b > 0 ? (sumi_sequence){{{1, c->b}, {0, c->m}}, 2, 1, 1, 0}
                                           : (sumi_sequence){{{0, c->m}, {0, 0}}, 1, 1, 0, 0}};
    const sumi_attention attention = {.q_heads = c->n,
                                      .kv_heads = c->n,
                                      .dim = dim,
                                      .scale = 1.0f / sqrtf((float)dim),
                                      .sequences = list,
                                      .sequence_count = 1};
    sumi_value qkv = activations(s, c->m, 3 * width), x = activations(s, c->m, depth);
    sumi_value joined = sumi_plan_value(&s->plan, "joined", SUMI_ELEMENT_ACTIVATION, c->m, width + c->d);
    sumi_plan_linear_gated_into(&s->plan,
                                &(sumi_plan_gated_args){.label = "gated",
                                                        .x = x,
                                                        .gate_up = stacked_weight(s, 2 * c->d, depth, 2, c->dtype,
                                                                                  1.0f / sqrtf((float)depth), 0.0f),
                                                        .activation = c->act,
                                                        .y = joined,
                                                        .y_column = width});
    sumi_plan_attention_into(
        &s->plan, &(sumi_plan_attention_args){.label = "attention",
                                              .qkv = qkv,
                                              .attention = &attention,
                                              .y = joined,
                                              .kept = c->b > 0 ? activations(s, c->b + 1, 2 * width) : SUMI_NO_VALUE});
    expect(s, joined, c->bound);
}
// Attention in 8 bits. e4m3: q, k, the probabilities and v are off by 2.5e-2 each. int8: q and k by 1e-2; the
// result is off by 1.5e-2 at most, that of e4m3 by 5.5e-2.
#define ATTENTION_8BIT 6.5e-2
// Where channels of v are not 0 on average (MEANS), most of the result is their mean, which is exact.
#define MEANS_8BIT 1.2e-2
// Scores that are four times as far apart: they are off by 0.14, and so are the probabilities. Tiles of keys raise the
// maxima of the tiles before.
#define SHARP_8BIT 0.25
// The probabilities are rounded to bfloat16 for the second product on tensor cores, so CHAINED.
static const op_case s_attention[] = {
    {"attention 1 query, 1 head of 8", build_attention, 1, 1, 8, .bound = CHAINED},
    {"attention 5 queries, 2 heads of 16", build_attention, 5, 2, 16, .bound = CHAINED},
    {"attention 65 queries, 3 heads of 20", build_attention, 65, 3, 20, .bound = CHAINED},
    {"attention 70 queries, 2 heads of 33", build_attention, 70, 2, 33, .bound = CHAINED},
    {"attention 130 queries, 3 heads of 64", build_attention, 130, 3, 64, .bound = CHAINED},
    {"attention 129 queries, 2 heads of 96, sharp", build_attention, 129, 2, 96, SHARP, .bound = CHAINED},
    {"attention 200 queries, 2 heads of 128, sharp", build_attention, 200, 2, 128, SHARP, .bound = CHAINED},
    {"attention 100 + 37, 3 heads of 64", build_attention, 100, 3, 64, TWO_SPANS, .d = 37, .bound = CHAINED},
    {"attention 100 of 137, 3 heads of 64", build_attention, 100, 3, 64, FIRST_SPAN, .d = 37, .bound = CHAINED},
    {"attention 64 + 1, 2 heads of 32", build_attention, 64, 2, 32, TWO_SPANS, .d = 1, .bound = CHAINED},
    {"attention 160 + 33, 2 heads of 128", build_attention, 160, 2, 128, TWO_SPANS, .d = 33, .bound = CHAINED},
    {"attention, three sequences, heads of 64", build_attention, 48, 2, 64, THREE, .d = 9, .bound = CHAINED},
    {"attention, three sequences, heads of 128", build_attention, 192, 2, 128, THREE, .d = 32, .bound = CHAINED},
    {"attention, causal, 4 of 2 heads of 32", build_attention, 77, 4, 32, CAUSAL, 2, .bound = CHAINED},
    {"attention, causal, 8 of 2 heads of 128", build_attention, 150, 8, 128, CAUSAL | SHARP, 2, .bound = CHAINED},
    {"attention, causal, 3 heads of 64", build_attention, 210, 3, 64, CAUSAL, .bound = CHAINED},
    {"attention, causal, 2 heads of 96", build_attention, 210, 2, 96, CAUSAL, .bound = CHAINED},
    {"attention, a shared beginning, 2 of 1 heads of 32", build_attention, 70, 2, 32, CAUSAL | LATER, 1, .d = 9,
     .bound = CHAINED},
    {"attention, a shared beginning, 3 heads of 128", build_attention, 129, 3, 128, CAUSAL | LATER, .d = 65,
     .bound = CHAINED},
    {"attention, a shared beginning, window 20, 2 heads of 33", build_attention, 90, 2, 33, CAUSAL | LATER, .c = 20,
     .d = 70, .bound = CHAINED},
    {"attention, a shared beginning, text 28 of 4 heads of 128, 1400", build_attention, 1400, 28, 128, CAUSAL | LATER,
     4, .d = 20, .bound = CHAINED},
    {"attention, blocks behind a beginning, 3 heads of 128", build_attention, 129, 3, 128, LATER, .d = 65,
     .bound = CHAINED},
    {"attention, blocks behind a beginning, 2 heads of 64", build_attention, 300, 2, 64, LATER, .d = 200,
     .bound = CHAINED},
    {"attention, kept keys, 3 heads of 33", build_attention_kept, 70, 3, 33, THREE, .d = 67, .bound = CHAINED},
    {"attention, kept keys, causal, 4 of 2 heads of 32", build_attention_kept, 70, 4, 32, CAUSAL | THREE, 2, .d = 130,
     .bound = CHAINED},
    {"attention, kept keys, 2 heads of 64", build_attention_kept, 129, 2, 64, THREE, .d = 128, .bound = CHAINED},
    {"attention, kept keys, 2 heads of 80", build_attention_kept, 200, 2, 80, THREE, .d = 5, .bound = CHAINED},
    {"attention, kept keys, 2 heads of 96", build_attention_kept, 200, 2, 96, THREE, .d = 77, .bound = CHAINED},
    {"attention, kept keys, 4 of 2 heads of 128, sharp", build_attention_kept, 200, 4, 128, SHARP | THREE, 2, .d = 300,
     .bound = CHAINED},
    {"attention, kept keys, causal, 3 heads of 128", build_attention_kept, 150, 3, 128, CAUSAL | THREE, .d = 129,
     .bound = CHAINED},
    {"attention, kept keys of the host, 8 bits, 4 heads of 128", build_attention_kept, 200, 4, 128, THREE, .d = 300,
     .e = 1, .bound = CHAINED},
    {"attention, kept keys, 64 with 4096, 32 heads of 128", build_attention_kept, 4096, 32, 128, .d = 64,
     .bound = CHAINED},
    {"attention 70 queries, 2 heads of 80", build_attention, 70, 2, 80, .bound = CHAINED},
    {"attention 70 queries, 2 heads of 72", build_attention, 70, 2, 72, .bound = CHAINED},
    {"attention, vision 4096, 16 heads of 72", build_attention, 4096, 16, 72, .bound = CHAINED},
    {"attention, windows of 64, 2 heads of 80", build_windows, 200, 2, 80, .c = 64, .bound = CHAINED},
    {"attention, 18 windows of 4, 2 heads of 32", build_windows, 70, 2, 32, .c = 4, .bound = CHAINED},
    {"attention, vision windows 5476, 16 heads of 80", build_windows, 5476, 16, 80, .c = 64, .bound = CHAINED},
    {"attention, vision 5476, 16 heads of 80", build_attention, 5476, 16, 80, .bound = CHAINED},
    {"attention 70 queries, 2 heads of 100", build_attention, 70, 2, 100, .bound = CHAINED},
    {"attention, causal, 1 query", build_attention, 1, 8, 128, CAUSAL, 2, .bound = CHAINED},
    {"attention, causal, window 20", build_attention, 90, 2, 32, CAUSAL, .c = 20, .bound = CHAINED},
    {"attention, window 17", build_attention, 90, 2, 64, 0, .c = 17, .bound = CHAINED},
    {"attention, one head of 512", build_attention, 300, 1, 512, .bound = CHAINED},
    {"attention, one head of 384", build_attention, 300, 1, 384, .bound = CHAINED},
    {"attention, one head of 512, sharp, 1000", build_attention, 1000, 1, 512, SHARP, .bound = CHAINED},
    {"attention 100 + 37, 4 of 2 heads of 512", build_attention, 100, 4, 512, TWO_SPANS, 2, .d = 37, .bound = CHAINED},
    {"attention, causal, one head of 512", build_attention, 140, 1, 512, CAUSAL, .bound = CHAINED},
    {"attention, one head of 384, 24 rows", build_attention, 24, 1, 384, .bound = CHAINED},
    {"attention, 2 of 1 heads of 384", build_attention, 129, 2, 384, 0, 1, .bound = CHAINED},
    {"attention, one head of 256", build_attention, 130, 1, 256, .bound = CHAINED},
    {"attention, text 32 of 8 heads of 128, 37", build_attention, 37, 32, 128, CAUSAL, 8, .bound = CHAINED},
    {"attention, text 32 of 8 heads of 128, 512", build_attention, 512, 32, 128, CAUSAL, 8, .bound = CHAINED},
    {"attention, text 32 of 8 heads of 128, 1100", build_attention, 1100, 32, 128, CAUSAL, 8, .bound = CHAINED},
    {"attention 1024 + 128, 30 heads of 128", build_attention, 1024, 30, 128, TWO_SPANS, .d = 128, .bound = CHAINED},
    {"attention 4096 + 128, 30 heads of 128", build_attention, 4096, 30, 128, TWO_SPANS, .d = 128, .bound = CHAINED},
    {"attention 4096 of 4197, 4 heads of 128", build_attention, 4096, 4, 128, FIRST_SPAN, .d = 101, .bound = CHAINED},
    {"attention, batch of three at 1024 + 64, 30 heads", build_attention, 1024, 30, 128, THREE, .d = 64,
     .bound = CHAINED},
    {"attention, vae 4157, one head of 384", build_attention, 4157, 1, 384, .bound = CHAINED},
    {"attention, vae 4096, one head of 512", build_attention, 4096, 1, 512, .bound = CHAINED},
    {"attention 1 query, 2 heads of 80", build_attention, 1, 2, 80, .bound = CHAINED},
    {"attention 300 queries, 3 heads of 80, sharp", build_attention, 300, 3, 80, SHARP, .bound = CHAINED},
    {"attention 160 + 33, 4 of 2 heads of 80", build_attention, 160, 4, 80, TWO_SPANS, 2, .d = 33, .bound = CHAINED},
    {"attention 100 of 137, 2 heads of 80", build_attention, 100, 2, 80, FIRST_SPAN, .d = 37, .bound = CHAINED},
    {"attention, three sequences, heads of 80", build_attention, 130, 2, 80, THREE, .d = 9, .bound = CHAINED},
    {"attention, causal, 2 heads of 80", build_attention, 150, 2, 80, CAUSAL, .bound = CHAINED},
    {"attention, 127 windows of 3, 2 heads of 80", build_windows, 380, 2, 80, .c = 3, .bound = CHAINED},
    {"attention, windows of 16, 2 heads of 80", build_windows, 150, 2, 80, .c = 16, .bound = CHAINED},
    {"attention 2000 queries, 5 heads of 80", build_attention, 2000, 5, 80, .bound = CHAINED},
    {"attention, causal, 1 query of 256", build_attention, 1, 4, 256, CAUSAL, 2, .bound = CHAINED},
    {"attention, causal, 4 of 2 heads of 256, sharp", build_attention, 70, 4, 256, CAUSAL | SHARP, 2, .bound = CHAINED},
    {"attention, causal, window 100, 2 heads of 256", build_attention, 70, 2, 256, CAUSAL, .c = 100, .bound = CHAINED},
    {"attention, causal, window 20, 2 heads of 256", build_attention, 70, 2, 256, CAUSAL, .c = 20, .bound = CHAINED},
    {"attention 60 + 33, 2 heads of 256, sharp", build_attention, 60, 2, 256, TWO_SPANS | SHARP, .d = 33,
     .bound = CHAINED},
    {"attention, a shared beginning, 2 of 1 heads of 256", build_attention, 70, 2, 256, CAUSAL | LATER, 1, .d = 9,
     .bound = CHAINED},
    {"attention, a shared beginning, 3 heads of 64", build_attention, 129, 3, 64, CAUSAL | LATER, .d = 65,
     .bound = CHAINED},
    {"attention, a shared beginning, 2 heads of 96", build_attention, 90, 2, 96, CAUSAL | LATER, .d = 33,
     .bound = CHAINED},
    {"attention, padded texts, 2 of 1 heads of 16", build_attention, 12, 2, 16, CAUSAL | PADDED, 1, .d = 100,
     .bound = CHAINED},
    {"attention, padded texts, 3 heads of 33", build_attention, 70, 3, 33, CAUSAL | PADDED, .d = 9, .bound = CHAINED},
    {"attention, padded texts, 3 heads of 64, sharp", build_attention, 65, 3, 64, CAUSAL | PADDED | SHARP, .d = 70,
     .bound = CHAINED},
    {"attention, padded texts, 2 heads of 96", build_attention, 40, 2, 96, CAUSAL | PADDED, .d = 33, .bound = CHAINED},
    {"attention, padded texts, 4 of 2 heads of 256", build_attention, 40, 4, 256, CAUSAL | PADDED, 2, .d = 33,
     .bound = CHAINED},
    {"attention, padded texts, not causal, 2 heads of 80", build_attention, 70, 2, 80, PADDED, .d = 130,
     .bound = CHAINED},
    {"attention, padded texts, not causal, one head of 384", build_attention, 70, 1, 384, PADDED, .d = 65,
     .bound = CHAINED},
    {"attention, padded texts, not causal, 2 heads of 128", build_attention, 130, 2, 128, PADDED, .d = 65,
     .bound = CHAINED},
    {"attention, text 32 of 8 heads of 128, 20 of 512", build_attention, 20, 32, 128, CAUSAL | PADDED, 8, .d = 492,
     .bound = CHAINED},
    {"attention, text 32 of 8 heads of 128, 1200 of 1300", build_attention, 1200, 32, 128, CAUSAL | PADDED, 8, .d = 100,
     .bound = CHAINED},
    {"8-bit attention 1 query, 2 heads", build_attention_8bit, 1, 2, 128, .bound = ATTENTION_8BIT},
    {"8-bit attention 70 queries, 2 heads", build_attention_8bit, 70, 2, 128, .bound = ATTENTION_8BIT},
    {"8-bit attention 300 queries, 4 of 2 heads, halves", build_attention_8bit, 300, 4, 128, 0, 2, .e = 1,
     .bound = ATTENTION_8BIT},
    {"8-bit attention 160 + 33, 2 heads, two streams", build_attention_8bit, 160, 2, 128, TWO_SPANS, .d = 33,
     .bound = ATTENTION_8BIT},
    {"8-bit attention 100 of 137, 3 heads", build_attention_8bit, 100, 3, 128, FIRST_SPAN, .d = 37,
     .bound = ATTENTION_8BIT},
    {"8-bit attention, three sequences", build_attention_8bit, 192, 2, 128, THREE, .d = 32, .bound = ATTENTION_8BIT},
    {"8-bit attention, batch of three at 1024 + 64, 30 heads", build_attention_8bit, 1024, 30, 128, THREE, .d = 64,
     .bound = ATTENTION_8BIT},
    {"8-bit attention 512, 2 heads, means", build_attention_8bit, 512, 2, 128, MEANS, .bound = MEANS_8BIT},
    {"8-bit attention 4096, 2 heads, means", build_attention_8bit, 4096, 2, 128, MEANS, .bound = MEANS_8BIT},
    {"8-bit attention 16384, 1 head, means", build_attention_8bit, 16384, 1, 128, MEANS, .bound = MEANS_8BIT},
    {"8-bit attention 4096, 2 heads of 96, means", build_attention_8bit, 4096, 2, 96, MEANS, .bound = MEANS_8BIT},
    {"8-bit attention 300 queries, 2 heads, sharp", build_attention_8bit, 300, 2, 128, SHARP, .bound = SHARP_8BIT},
    // One of 2.8 million elements is off by 8.2 times ATTENTION_8BIT, where one may be off by 8 times the bound.
    {"8-bit attention 301 + 33, 66 of 22 heads", build_attention_8bit, 301, 66, 128, TWO_SPANS, 22, .d = 33,
     .bound = 7.5e-2},
    {"8-bit attention 301 + 33, 66 of 22 heads, sharp", build_attention_8bit, 301, 66, 128, TWO_SPANS | SHARP, 22,
     .d = 33, .bound = SHARP_8BIT},
    {"8-bit attention 1013 + 250, 24 of 12 heads", build_attention_8bit, 1013, 24, 128, TWO_SPANS, 12, .d = 250,
     .bound = ATTENTION_8BIT},
    {"8-bit attention 1 query, 3 of 1 heads of 96", build_attention_8bit, 1, 3, 96, 0, 1, .bound = ATTENTION_8BIT},
    {"8-bit attention 77 queries, 2 heads of 96", build_attention_8bit, 77, 2, 96, .bound = ATTENTION_8BIT},
    {"8-bit attention 300 queries, 6 of 2 heads of 96, halves", build_attention_8bit, 300, 6, 96, 0, 2, .e = 1,
     .bound = ATTENTION_8BIT},
    {"8-bit attention 129 of 170, 3 heads of 96", build_attention_8bit, 129, 3, 96, FIRST_SPAN, .d = 41,
     .bound = ATTENTION_8BIT},
    {"8-bit attention, three sequences, 3 of 1 heads of 96", build_attention_8bit, 130, 3, 96, THREE, 1, .d = 65,
     .bound = ATTENTION_8BIT},
    {"8-bit attention 333 + 33, 4 of 2 heads of 96", build_attention_8bit, 333, 4, 96, TWO_SPANS, 2, .d = 33,
     .bound = ATTENTION_8BIT},
    {"8-bit attention 333 + 33, 4 of 2 heads of 96, sharp", build_attention_8bit, 333, 4, 96, TWO_SPANS | SHARP, 2,
     .d = 33, .bound = SHARP_8BIT},
    {"8-bit attention, three sequences, heads of 64", build_attention_8bit, 130, 3, 64, THREE, .d = 9,
     .bound = ATTENTION_8BIT},
    {"8-bit attention 4096 + 256, 24 of 8 heads of 96", build_attention_8bit, 4096, 24, 96, TWO_SPANS, 8, .d = 256,
     .bound = ATTENTION_8BIT},
    {"8-bit attention 1024 + 128, 30 heads", build_attention_8bit, 1024, 30, 128, TWO_SPANS, .d = 128,
     .bound = ATTENTION_8BIT},
    {"8-bit attention 4096 + 128, 30 heads", build_attention_8bit, 4096, 30, 128, TWO_SPANS, .d = 128,
     .bound = ATTENTION_8BIT},
    {"8-bit attention, kept keys, 1 query with 1", build_attention_kept_8bit, 1, 1, 128, .d = 1,
     .bound = ATTENTION_8BIT},
    {"8-bit attention, kept keys, 65 queries with 63, 2 of 1 heads", build_attention_kept_8bit, 65, 2, 128, 0, 1,
     .d = 63, .bound = ATTENTION_8BIT},
    {"8-bit attention, kept keys, 33 queries with 64, beside 64 columns, halves", build_attention_kept_8bit, 33, 1, 128,
     .c = 64, .d = 64, .e = 1, .bound = ATTENTION_8BIT},
    {"8-bit attention, kept keys, 20 queries with 17, heads of 96", build_attention_kept_8bit, 20, 1, 96, .d = 17,
     .bound = ATTENTION_8BIT},
    {"8-bit attention, kept keys, 301 queries with 127, 3 heads", build_attention_kept_8bit, 301, 3, 128, .d = 127,
     .bound = ATTENTION_8BIT},
    {"8-bit attention, kept keys, 192 queries with 128, 3 heads", build_attention_kept_8bit, 192, 3, 128, .d = 128,
     .bound = ATTENTION_8BIT},
    {"8-bit attention, kept keys, three of 200 queries with 129, 4 of 2 heads", build_attention_kept_8bit, 200, 4, 128,
     THREE, 2, .d = 129, .bound = ATTENTION_8BIT},
    {"8-bit attention, kept keys, three of 200 queries with 300, 66 of 22 heads, sharp", build_attention_kept_8bit, 200,
     66, 128, THREE | SHARP, 22, .d = 300, .bound = SHARP_8BIT},
    {"8-bit attention, kept keys, 333 queries with 1499, 2 heads", build_attention_kept_8bit, 333, 2, 128, .d = 1499,
     .bound = ATTENTION_8BIT},
    {"8-bit attention, kept keys, 333 queries with 1499, 2 heads, means", build_attention_kept_8bit, 333, 2, 128, MEANS,
     .d = 1499, .bound = MEANS_8BIT},
    {"8-bit attention, kept keys, 4096 queries with 301, 2 heads, means", build_attention_kept_8bit, 4096, 2, 128,
     MEANS, .d = 301, .bound = MEANS_8BIT},
    {"8-bit attention, kept keys, 257 queries with 12000, 2 heads", build_attention_kept_8bit, 257, 2, 128, .d = 12000,
     .bound = ATTENTION_8BIT},
    {"8-bit attention, kept keys, 4096 queries with 64, 32 heads", build_attention_kept_8bit, 4096, 32, 128, .d = 64,
     .bound = ATTENTION_8BIT},
    {"8-bit attention, kept keys, 1536 queries with 1024, 32 heads, beside 256 columns", build_attention_kept_8bit,
     1536, 32, 128, .c = 256, .d = 1024, .bound = ATTENTION_8BIT},
    {"attention, text 8 of 4 heads of 256, 256", build_attention, 256, 8, 256, CAUSAL, 4, .bound = CHAINED},
    {"attention, text 8 of 4 heads of 256, 512", build_attention, 512, 8, 256, CAUSAL, 4, .bound = CHAINED},
    {"attention, a shared beginning, text 8 of 4 heads of 256, 480", build_attention, 480, 8, 256, CAUSAL | LATER, 4,
     .d = 30, .bound = CHAINED},
    {"attention beside a gated product, 70 rows, heads of 33", build_beside, 70, 2, 33, .d = 51, .act = SUMI_ACT_SILU,
     .bound = CHAINED},
    {"attention beside a gated product, 100 rows, heads of 64", build_beside, 100, 3, 64, .d = 152,
     .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"attention beside a gated product, 100 rows, heads of 80, gelu", build_beside, 100, 2, 80, .d = 88,
     .act = SUMI_ACT_GELU_TANH, .bound = CHAINED},
    {"attention beside a gated product, 5 rows, heads of 24", build_beside, 5, 2, 24, .d = 144, .act = SUMI_ACT_SILU,
     .bound = CHAINED},
    {"attention beside a gated product, 700 rows, heads of 128", build_beside, 700, 4, 128, .d = 1536,
     .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"attention beside a gated product, 4608 rows, 24 heads of 128", build_beside, 4608, 24, 128, .d = 9216,
     .act = SUMI_ACT_SILU, .bound = CHAINED},
    // a gate multiplies two products that are off by INT8
    {"attention beside a gated product, 700 rows, heads of 128, int8", build_beside, 700, 4, 128, 1, .d = 1536,
     .act = SUMI_ACT_SILU, .bound = 2 * INT8},
    // heads that are wider than 512, and of 72
    {"attention 1 query, one head of 768", build_attention, 1, 1, 768, .bound = CHAINED},
    {"attention 31 queries, one head of 768", build_attention, 31, 1, 768, .bound = CHAINED},
    {"attention 65 queries, 4 of 2 heads of 768, sharp", build_attention, 65, 4, 768, SHARP, 2, .bound = CHAINED},
    {"attention 301 queries, one head of 768", build_attention, 301, 1, 768, .bound = CHAINED},
    {"attention 1030 queries, one head of 768, sharp", build_attention, 1030, 1, 768, SHARP, .bound = CHAINED},
    {"attention 1 query, one head of 1152", build_attention, 1, 1, 1152, .bound = CHAINED},
    {"attention 33 queries, one head of 1152", build_attention, 33, 1, 1152, .bound = CHAINED},
    {"attention 63 queries, one head of 1152", build_attention, 63, 1, 1152, .bound = CHAINED},
    {"attention 65 queries, 4 of 2 heads of 1152, sharp", build_attention, 65, 4, 1152, SHARP, 2, .bound = CHAINED},
    {"attention 301 queries, one head of 1152, sharp", build_attention, 301, 1, 1152, SHARP, .bound = CHAINED},
    {"attention 1030 queries, one head of 1152", build_attention, 1030, 1, 1152, .bound = CHAINED},
    {"attention 100 + 37, 2 heads of 1152", build_attention, 100, 2, 1152, TWO_SPANS, .d = 37, .bound = CHAINED},
    {"attention, three sequences, one head of 768", build_attention, 70, 1, 768, THREE, .d = 9, .bound = CHAINED},
    {"attention, padded texts, not causal, one head of 1152", build_attention, 70, 1, 1152, PADDED, .d = 65,
     .bound = CHAINED},
    {"attention, vae 4096, one head of 1152", build_attention, 4096, 1, 1152, .bound = CHAINED},
    {"attention 70 queries, 2 heads of 513", build_attention, 70, 2, 513, .bound = CHAINED},
    {"attention, causal, 65 queries, 4 of 2 heads of 640", build_attention, 65, 4, 640, CAUSAL, 2, .bound = CHAINED},
    {"attention, causal, 130 queries, one head of 1152", build_attention, 130, 1, 1152, CAUSAL | SHARP,
     .bound = CHAINED},
    {"attention, window 17, 90 queries, one head of 1100", build_attention, 90, 1, 1100, 0, .c = 17, .bound = CHAINED},
    {"attention, kept keys, 2 heads of 576", build_attention_kept, 70, 2, 576, THREE, .d = 67, .bound = CHAINED},
    {"attention 1 query, 2 heads of 72", build_attention, 1, 2, 72, .bound = CHAINED},
    {"attention 300 queries, 3 heads of 72, sharp", build_attention, 300, 3, 72, SHARP, .bound = CHAINED},
    {"attention 160 + 33, 4 of 2 heads of 72", build_attention, 160, 4, 72, TWO_SPANS, 2, .d = 33, .bound = CHAINED},
    {"attention, windows of 16, 2 heads of 72", build_windows, 150, 2, 72, .c = 16, .bound = CHAINED},
    {"attention, causal, 2 heads of 72", build_attention, 150, 2, 72, CAUSAL, .bound = CHAINED},
    // 67 pairs of 128 rows are more than one round of a Hopper GPU, which then takes its tiles of 256 rows.
    {"attention 1 query, 67 of 1 heads of 384", build_attention, 1, 67, 384, 0, 1, .bound = CHAINED},
    {"attention 63 queries, 67 of 1 heads of 384", build_attention, 63, 67, 384, 0, 1, .bound = CHAINED},
    {"attention 64 queries, 67 of 1 heads of 384", build_attention, 64, 67, 384, 0, 1, .bound = CHAINED},
    {"attention 65 queries, 68 of 2 heads of 384", build_attention, 65, 68, 384, 0, 2, .bound = CHAINED},
    {"attention 127 queries, 67 of 1 heads of 384, sharp", build_attention, 127, 67, 384, SHARP, 1, .bound = CHAINED},
    {"attention 301 queries, 23 heads of 384", build_attention, 301, 23, 384, .bound = CHAINED},
    {"attention, vae 4097, 3 of 1 heads of 384", build_attention, 4097, 3, 384, 0, 1, .bound = CHAINED},
    {"attention, kept keys, beside a gated product, 5 rows, heads of 24", build_beside, 5, 2, 24, .b = 9, .d = 144,
     .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"attention, kept keys, beside a gated product, 700 rows, heads of 128", build_beside, 700, 4, 128, .b = 300,
     .d = 1536, .act = SUMI_ACT_SILU, .bound = CHAINED},
};
CASE_TABLE(attention);
