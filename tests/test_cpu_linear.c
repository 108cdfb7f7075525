// Products on the CPU against a plain double reference: odd shapes, every epilogue, adapters, every weight type.
#include "base/memory.h"
#include "cpu/cpu.h"
#include "cpu_scenes.h"
#include "merged_weights.h"
#include "number_formats.h"
#include "plan/plan.h"

// ---- LINEAR ---------------------------------------------------------------------------------------------------------

static void check_linear(linear_case* c, const float* w, float tolerance)
{
    int pad = c->is_into ? 3 : 0, x_row = pad, y_row = pad > 0 ? 1 : 0;
    float *x = random_floats((size_t)(c->m + pad) * c->k, 1.0f), *y = random_floats((size_t)(c->m + pad) * c->n, 1.0f),
          *gates = random_floats((size_t)4 * (c->n + 5), 1.0f);
    float* bias = random_floats((size_t)c->n, 1.0f);
    c->bias = float_weight(bias, 1, c->n);
    double* expect = malloc((size_t)(c->m + pad) * c->n * sizeof *expect);
    for (int i = 0; i < (c->m + pad) * c->n; i++) expect[i] = (double)y[i];
    for (int r = 0; r < c->m; r++) {
        for (int j = 0; j < c->n; j++) {
            double sum = 0.0;
            for (int k = 0; k < c->k; k++) sum += (double)x[(x_row + r) * c->k + k] * (double)w[j * c->k + k];
            double* out = &expect[(y_row + r) * c->n + j];
            if (c->accumulates) {
                double gate = c->has_gate ? (double)gates[2 * (c->n + 5) + 5 + j] : 1.0;
                *out += 0.25 * gate * sum;
            } else {
                double v = act_double(c->activation, sum + (c->has_bias ? (double)bias[j] : 0.0));
                *out = c->is_residual ? *out + v * (c->has_gate ? (double)gates[2 * (c->n + 5) + 5 + j] : 1.0) : v;
            }
        }
    }
    scene s = {.build = build_linear,
               .context = c,
               .inputs = {y, x, gates},
               .range_rows = c->m > 40 ? 16 : 3,
               .counter = 2,
               .expect = expect,
               .absolute = (double)tolerance,
               .relative = 1e-5};
    free(scene_run(&s));
    free(x), free(y), free(gates), free(bias), free(expect);
}

static void linear_of_shape(int m, int n, int k, int variant)
{
    float* w = random_floats((size_t)n * k, 1.0f);
    linear_case c = {.m = m, .n = n, .k = k, .weight = float_weight(w, n, k)};
    c.has_bias = variant & 1;
    c.is_residual = (variant & 6) == 2;
    c.accumulates = (variant & 6) == 4;
    c.has_gate = variant & 1;
    c.is_into = (variant & 6) == 6;
    c.activation = variant == 1 ? SUMI_ACT_SILU : variant == 7 ? SUMI_ACT_GELU_TANH : SUMI_ACT_NONE;
    if (c.accumulates) c.has_bias = false;
    check_linear(&c, w, 2e-7f * (float)k + 1e-6f);
    free(w);
}

TEST(linear_agrees_with_the_reference_at_odd_shapes)
{
    static const int s_shapes[][3] = {{1, 1, 1},   {1, 70, 33},   {5, 129, 300},  {8, 40, 17},   {9, 33, 257},
                                      {13, 3, 40}, {31, 65, 100}, {47, 300, 520}, {130, 31, 37}, {517, 40, 16}};
    for (size_t i = 0; i < sizeof s_shapes / sizeof *s_shapes; i++) {
        for (int variant = 0; variant < 8; variant++)
            linear_of_shape(s_shapes[i][0], s_shapes[i][1], s_shapes[i][2], variant);
    }
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

// Under every epilogue the result is that of merged weights. A case's deltas: what part of the weight's rows each
// covers.
typedef enum merged_epilogue {
    MERGED_PLAIN,
    MERGED_BIAS,
    MERGED_ACTIVATION,
    MERGED_ACTIVATION_INTO_ROWS,
    MERGED_INTO_ROWS,
    MERGED_INTO_COLUMNS,
    MERGED_RESIDUAL,
    MERGED_GATED_RESIDUAL,
    MERGED_TWO_HALVES, // SwiGLU
    MERGED_EPILOGUES
} merged_epilogue;

enum { MERGED_ROWS = 24, MERGED_DEPTH = 56, MERGED_COLS = 40, MERGED_X_ROW = 3, MERGED_Y_ROW = 2, MERGED_COLUMN = 7 };
enum { MERGED_DELTAS = 3 };

typedef struct merged_case {
    merged_epilogue epilogue;
    sumi_activation activation;
    int rows; // of the product: some take another way than many
    int delta_count;
    sumi_span spans[MERGED_DELTAS]; // rows of the weight; count 0: all of them
    int rank;                       // 0: Kronecker products
    int folds[MERGED_DELTAS];       // of those: columns of the left factor
    sumi_weight weight, bias;
    sumi_delta deltas[MERGED_DELTAS];
    sumi_adapter adapters[MERGED_DELTAS];
    sumi_adapter_use uses[MERGED_DELTAS];
} merged_case;

static bool merged_into_rows(const merged_case* c)
{
    return c->epilogue == MERGED_ACTIVATION_INTO_ROWS || c->epilogue == MERGED_INTO_ROWS;
}

static bool merged_activates(const merged_case* c)
{
    return c->epilogue == MERGED_ACTIVATION || c->epilogue == MERGED_ACTIVATION_INTO_ROWS;
}

static int merged_y_cols(const merged_case* c)
{
    return c->epilogue == MERGED_INTO_COLUMNS ? MERGED_COLS + 2 * MERGED_COLUMN
         : c->epilogue == MERGED_TWO_HALVES   ? MERGED_COLS / 2
                                              : MERGED_COLS;
}

static void build_merged(bench* b, scene* s)
{
    const merged_case* c = s->context;
    const bool into_rows = merged_into_rows(c), has_residual = c->epilogue == MERGED_RESIDUAL,
               is_gated = c->epilogue == MERGED_GATED_RESIDUAL;
    s->values[1] = bench_value(b, c->rows + (into_rows ? MERGED_X_ROW : 0), MERGED_DEPTH);
    s->values[2] = bench_value(b, 4, MERGED_COLS + 5); // the gate's table
    s->value_count = 3;
    sumi_plan_adapters(&b->plan, c->uses, c->delta_count);
    if (c->epilogue == MERGED_TWO_HALVES) {
        s->values[0] = sumi_plan_linear_gated(&b->plan, "linear", s->values[1], &c->weight, SUMI_ACT_SILU);
        if (s->values[0].id != 0) b->plan.values[s->values[0].id - 1].bound = true;
        return;
    }
    s->values[0] = bench_value(b, c->rows + (into_rows ? MERGED_Y_ROW + 1 : 0), merged_y_cols(c));
    sumi_plan_linear(&b->plan,
                     &(sumi_plan_linear_args){.label = "linear",
                                              .x = s->values[1],
                                              .x_row = into_rows ? MERGED_X_ROW : 0,
                                              .rows = c->rows,
                                              .weight = &c->weight,
                                              .bias = c->epilogue == MERGED_PLAIN ? NULL : &c->bias,
                                              .activation = merged_activates(c) ? c->activation : SUMI_ACT_NONE,
                                              .y = has_residual || is_gated ? SUMI_NO_VALUE : s->values[0],
                                              .y_row = into_rows ? MERGED_Y_ROW : 0,
                                              .writes_some_columns = c->epilogue == MERGED_INTO_COLUMNS,
                                              .y_column = c->epilogue == MERGED_INTO_COLUMNS ? MERGED_COLUMN : 0,
                                              .residual = has_residual || is_gated ? s->values[0] : SUMI_NO_VALUE,
                                              .gate = is_gated ? (sumi_step_row){s->values[2], 5, true} : SUMI_NO_ROW});
}

// Rows with one of the changes alone, against what a Kronecker product is.
static void check_kronecker_rows(const merged_case* c, int d, const float* w)
{
    const sumi_delta* delta = &c->deltas[d];
    const float *left = delta->up.tensors[0].data, *right = delta->down.tensors[0].data;
    const int columns = delta->down.cols, runs = delta->down.rows;
    float row[MERGED_DEPTH];
    for (int j = 0; j < MERGED_COLS; j++) {
        merged_row(&c->weight, &c->uses[d], 1, j, row);
        const int local = j - delta->row_begin;
        for (int k = 0; k < MERGED_DEPTH; k++) {
            double sum = (double)w[j * MERGED_DEPTH + k];
            if (local >= 0 && local < delta->up.rows * runs) {
                sum += (double)c->uses[d].scale * (double)delta->scale
                     * (double)left[local / runs * delta->up.cols + k / columns]
                     * (double)right[local % runs * columns + k % columns];
            }
            CHECK_NEAR(row[k], sum, 1e-6, 1e-6);
        }
    }
}

static void try_merged(merged_case* c)
{
    const int y_cols = merged_y_cols(c), into_rows = merged_into_rows(c), x_row = into_rows ? MERGED_X_ROW : 0,
              y_row = into_rows ? MERGED_Y_ROW : 0, y_rows = c->rows + (into_rows ? MERGED_Y_ROW + 1 : 0);
    float *w = random_floats((size_t)MERGED_COLS * MERGED_DEPTH, 1.0f), *bias = random_floats(MERGED_COLS, 1.0f),
          *x = random_floats((size_t)(c->rows + x_row) * MERGED_DEPTH, 1.0f),
          *y = random_floats((size_t)y_rows * (size_t)y_cols, 1.0f),
          *gates = random_floats((size_t)4 * (MERGED_COLS + 5), 1.0f), *down[MERGED_DELTAS], *up[MERGED_DELTAS];
    c->weight = float_weight(w, MERGED_COLS, MERGED_DEPTH);
    c->weight.index = 3;
    c->bias = float_weight(bias, 1, MERGED_COLS);
    for (int d = 0; d < c->delta_count; d++) {
        const sumi_span span = c->spans[d].count > 0 ? c->spans[d] : (sumi_span){0, MERGED_COLS};
        if (c->rank == 0) {
            const int folds = c->folds[d], runs = span.count % 4 == 0 ? 4 : 3, right = span.count / runs;
            up[d] = random_floats((size_t)(runs * folds), 0.5f);
            down[d] = random_floats((size_t)(right * (MERGED_DEPTH / folds)), 0.5f);
            c->deltas[d] = (sumi_delta){.weight_index = 3,
                                        .row_begin = span.begin,
                                        .scale = 0.5f + 0.25f * (float)d,
                                        .up = float_weight(up[d], runs, folds),
                                        .down = float_weight(down[d], right, MERGED_DEPTH / folds),
                                        .kind = SUMI_DELTA_KRONECKER};
        }
        const int rank = c->rank + d; // adapters of several ranks
        if (c->rank > 0) {
            down[d] = random_floats((size_t)rank * MERGED_DEPTH, 0.5f);
            up[d] = random_floats((size_t)span.count * (size_t)rank, 0.5f);
            c->deltas[d] = (sumi_delta){.weight_index = 3,
                                        .row_begin = span.begin,
                                        .scale = 0.5f + 0.25f * (float)d,
                                        .down = float_weight(down[d], rank, MERGED_DEPTH),
                                        .up = float_weight(up[d], span.count, rank)};
        }
        c->adapters[d] = (sumi_adapter){&c->deltas[d], 1};
        c->uses[d] = (sumi_adapter_use){&c->adapters[d], d == 1 ? -1.5f : 0.75f};
    }
    float* merged = malloc((size_t)MERGED_COLS * MERGED_DEPTH * sizeof *merged);
    for (int j = 0; j < MERGED_COLS; j++)
        merged_row(&c->weight, c->uses, c->delta_count, j, merged + (size_t)j * MERGED_DEPTH);
    for (int d = 0; d < c->delta_count && c->rank == 0; d++) check_kronecker_rows(c, d, w);
    double* expect = malloc((size_t)y_rows * (size_t)y_cols * sizeof *expect);
    for (int i = 0; i < y_rows * y_cols; i++) expect[i] = (double)y[i];
    for (int r = 0; r < c->rows; r++) {
        double p[MERGED_COLS];
        for (int j = 0; j < MERGED_COLS; j++) {
            p[j] = c->epilogue == MERGED_PLAIN || c->epilogue == MERGED_TWO_HALVES ? 0.0 : (double)bias[j];
            for (int k = 0; k < MERGED_DEPTH; k++)
                p[j] += (double)x[(x_row + r) * MERGED_DEPTH + k] * (double)merged[j * MERGED_DEPTH + k];
        }
        double* out = expect + (size_t)(y_row + r) * (size_t)y_cols;
        for (int j = 0; j < MERGED_COLS; j++) {
            switch (c->epilogue) {
            case MERGED_INTO_COLUMNS: out[MERGED_COLUMN + j] = p[j]; break;
            case MERGED_RESIDUAL: out[j] += p[j]; break;
            case MERGED_GATED_RESIDUAL: out[j] += (double)gates[2 * (MERGED_COLS + 5) + 5 + j] * p[j]; break;
            case MERGED_TWO_HALVES:
                if (j < y_cols) out[j] = act_double(SUMI_ACT_SILU, p[j]) * p[j + y_cols];
                break;
            default: out[j] = act_double(merged_activates(c) ? c->activation : SUMI_ACT_NONE, p[j]); break;
            }
        }
    }
    scene s = {.build = build_merged,
               .context = c,
               .inputs = {y, x, gates},
               .range_rows = 5,
               .counter = 2,
               .expect = expect,
               .absolute = 4e-5, // sums of up to 3 * 35 * 56 numbers below 1
               .relative = 1e-5};
    const int errors = t_errors;
    free(scene_run(&s));
    if (t_errors > errors) {
        printf("  epilogue %d, activation %d, %d rows, %d deltas, rank %d\n", (int)c->epilogue, (int)c->activation,
               c->rows, c->delta_count, c->rank);
    }
    for (int d = 0; d < c->delta_count; d++) free(down[d]), free(up[d]);
    free(w), free(bias), free(x), free(y), free(gates), free(merged), free(expect);
}

TEST(adapters_do_what_merged_weights_would_under_every_epilogue)
{
    static const struct {
        int count;
        sumi_span spans[MERGED_DELTAS];
    } s_covers[] = {
        {1, {{0}}},
        {2, {{0}, {0}}},
        {1, {{8, 16}}},                   // some rows, so no delta reaches all
        {2, {{0}, {20, 20}}},             // the last one does not
        {2, {{3, 9}, {0}}},               // the last one does
        {3, {{0, 8}, {8, 16}, {24, 16}}}, // the parts of a stack, each with its own
    };
    static const int s_ranks[] = {1, 4, 33, 0}, s_rows[] = {5, MERGED_ROWS};
    for (int e = 0; e < MERGED_EPILOGUES; e++) {
        for (size_t v = 0; v < sizeof s_covers / sizeof *s_covers; v++) {
            for (size_t k = 0; k < sizeof s_ranks / sizeof *s_ranks; k++) {
                for (size_t r = 0; r < sizeof s_rows / sizeof *s_rows; r++) {
                    merged_case c = {.epilogue = (merged_epilogue)e,
                                     .rows = s_rows[r],
                                     .delta_count = s_covers[v].count,
                                     .rank = s_ranks[k],
                                     .folds = {8, 7, 56},
                                     .activation = (sumi_activation)(SUMI_ACT_SILU + (k + r + v) % 5)};
                    memcpy(c.spans, s_covers[v].spans, sizeof c.spans);
                    try_merged(&c);
                }
            }
        }
    }
}

// [[1, 2], [3, 4]] (x) [[0, 5], [6, 7]]
TEST(a_kronecker_product_is_what_it_is_known_to_be)
{
    static const float s_left[] = {1, 2, 3, 4}, s_right[] = {0, 5, 6, 7}, s_w[16] = {0},
                       s_expect[4][4] = {{0, 5, 0, 10}, {6, 7, 12, 14}, {0, 15, 0, 20}, {18, 21, 24, 28}};
    sumi_weight weight = float_weight(s_w, 4, 4);
    weight.index = 0;
    const sumi_delta delta = {.scale = 1.0f,
                              .up = float_weight(s_left, 2, 2),
                              .down = float_weight(s_right, 2, 2),
                              .kind = SUMI_DELTA_KRONECKER};
    const sumi_adapter adapter = {&delta, 1};
    const sumi_adapter_use use = {&adapter, 1.0f};
    static const float s_unit[16] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
    bench b;
    bench_begin(&b, SUMI_CPU_AUTO, 2);
    sumi_plan_adapters(&b.plan, &use, 1);
    sumi_value x = bench_value(&b, 4, 4), y = bench_value(&b, 4, 4);
    sumi_plan_linear(&b.plan, &(sumi_plan_linear_args){.label = "linear", .x = x, .weight = &weight, .y = y});
    CHECK_NUMBER(b.plan.op_count, 3);
    if (bench_ready(&b)) {
        bench_write(&b, x, s_unit);
        bench_run(&b, SPLIT_NONE, 0);
    }
    float* product = bench_read(&b, y);
    bench_end(&b);
    for (int r = 0; r < 4; r++) {
        float row[4];
        merged_row(&weight, &use, 1, r, row);
        for (int k = 0; k < 4; k++) {
            CHECK_NEAR(row[k], (double)s_expect[r][k], 0, 0);
            CHECK_NEAR(product[4 * k + r], (double)s_expect[r][k], 0, 0); // x is the unit matrix: y is transposed
        }
    }
    free(product);
}

// Twice the same adapter, one that is off, and one of another weight.
TEST(an_adapter_counts_as_often_as_it_is_used)
{
    enum { ROWS = 9, N = 24, K = 32, RANK = 4 };
    float *w = random_floats(N * K, 1.0f), *down = random_floats(RANK * K, 1.0f), *up = random_floats(N * RANK, 1.0f),
          *x = random_floats(ROWS * K, 1.0f);
    sumi_weight weight = float_weight(w, N, K);
    weight.index = 1;
    sumi_delta delta = {1, 0, 0.5f, float_weight(down, RANK, K), float_weight(up, N, RANK), SUMI_DELTA_LOW_RANK},
               other = delta;
    other.weight_index = 2;
    const sumi_adapter adapter = {&delta, 1}, others = {&other, 1};
    const sumi_adapter_use once[] = {{&adapter, 1.0f}},
                           often[] = {{&adapter, 0.5f}, {&adapter, 0.0f}, {&others, 1.0f}, {&adapter, 0.5f}};
    float* results[2];
    for (int i = 0; i < 2; i++) {
        bench b;
        bench_begin(&b, SUMI_CPU_AUTO, 2);
        sumi_plan_adapters(&b.plan, i == 0 ? once : often, i == 0 ? 1 : 4);
        sumi_value from = bench_value(&b, ROWS, K), y = bench_value(&b, ROWS, N);
        sumi_plan_linear(
            &b.plan, &(sumi_plan_linear_args){
                         .label = "linear", .x = from, .weight = &weight, .activation = SUMI_ACT_GELU_TANH, .y = y});
        CHECK_NUMBER(b.plan.op_count, i == 0 ? 4 : 6); // the last one activates
        if (bench_ready(&b)) {
            bench_write(&b, from, x);
            bench_run(&b, SPLIT_NONE, 0);
        }
        results[i] = bench_read(&b, y);
        bench_end(&b);
    }
    for (int i = 0; i < ROWS * N; i++) CHECK_NEAR(results[1][i], results[0][i], 2e-5, 1e-5);
    free(results[0]), free(results[1]), free(w), free(down), free(up), free(x);
}

TEST(linear_reads_every_weight_type)
{
    static const sumi_dtype s_types[] = {SUMI_DTYPE_F64,     SUMI_DTYPE_F32,     SUMI_DTYPE_F16,   SUMI_DTYPE_BF16,
                                         SUMI_DTYPE_F8_E4M3, SUMI_DTYPE_F8_E5M2, SUMI_DTYPE_I8,    SUMI_DTYPE_Q4_0,
                                         SUMI_DTYPE_Q4_1,    SUMI_DTYPE_Q5_0,    SUMI_DTYPE_Q5_1,  SUMI_DTYPE_Q8_0,
                                         SUMI_DTYPE_Q2_K,    SUMI_DTYPE_Q3_K,    SUMI_DTYPE_Q4_K,  SUMI_DTYPE_Q5_K,
                                         SUMI_DTYPE_Q6_K,    SUMI_DTYPE_IQ4_NL,  SUMI_DTYPE_IQ4_XS};
    for (size_t t = 0; t < sizeof s_types / sizeof *s_types; t++) {
        for (int m = 3; m <= 20; m += 17) { // both products
            int n = 37, k = 512;
            const sumi_dtype_info* info = sumi_dtype_get(s_types[t]);
            size_t bytes = (size_t)sumi_dtype_bytes(s_types[t], (uint64_t)n * (uint64_t)k);
            unsigned char* data = malloc(bytes + 1); // read at an odd address
            float* w = malloc((size_t)n * k * sizeof *w);
            for (size_t i = 0; i < bytes; i++) data[1 + i] = (unsigned char)random_below(256);
            if (s_types[t] == SUMI_DTYPE_F64) {
                for (size_t i = 0; i < bytes / 8; i++) {
                    double value = (double)random_float();
                    memcpy(data + 1 + 8 * i, &value, 8);
                }
            } else if (s_types[t] == SUMI_DTYPE_F32) {
                for (size_t i = 0; i < bytes / 4; i++) {
                    float value = random_float();
                    memcpy(data + 1 + 4 * i, &value, 4);
                }
            } else if (s_types[t] == SUMI_DTYPE_F16 || s_types[t] == SUMI_DTYPE_BF16) {
                for (size_t i = 0; i < bytes / 2; i++) {
                    uint16_t bits = s_types[t] == SUMI_DTYPE_F16 ? float_to_f16(random_float())
                                                                 : sumi_float_to_bf16(random_float());
                    memcpy(data + 1 + 2 * i, &bits, 2);
                }
            } else if (s_types[t] == SUMI_DTYPE_F8_E4M3 || s_types[t] == SUMI_DTYPE_F8_E5M2) {
                for (size_t i = 0; i < bytes; i++) {
                    data[1 + i] = s_types[t] == SUMI_DTYPE_F8_E4M3 ? float_to_e4m3(random_float())
                                                                   : float_to_e5m2(random_float());
                }
            } else if (info->block
                       > 1) { // the scales are halves: keep them small and finite by clearing the top exponent bits
                for (size_t block = 0; block < bytes / (size_t)info->block_bytes; block++) {
                    unsigned char* at = data + 1 + block * (size_t)info->block_bytes;
                    size_t scale_at = s_types[t] == SUMI_DTYPE_Q6_K || s_types[t] == SUMI_DTYPE_Q3_K
                                        ? (size_t)info->block_bytes - 2
                                    : s_types[t] == SUMI_DTYPE_Q2_K ? (size_t)info->block_bytes - 4
                                                                    : 0;
                    at[scale_at + 1] = (unsigned char)(at[scale_at + 1] & 0x9f);
                    at[scale_at + 3 < (size_t)info->block_bytes ? scale_at + 3 : scale_at + 1] &= 0x9f;
                }
            }
            sumi_dtype_to_float(s_types[t], data + 1, w, (size_t)n * k);
            float scale = s_types[t] == SUMI_DTYPE_F8_E4M3 ? 0.5f : 1.0f;
            double largest = 0.0;
            for (int i = 0; i < n * k; i++) {
                w[i] *= scale;
                largest = fabs((double)w[i]) > largest ? fabs((double)w[i]) : largest;
            }
            linear_case c = {
                .m = m,
                .n = n,
                .k = k,
                .weight = {.name = "w",
                           .rows = n,
                           .cols = k,
                           .tensor_count = 1,
                           .tensors = {{.data = data + 1, .dtype = s_types[t], .rows = n, .scale = scale}}}};
            check_linear(&c, w, (float)(largest * 1e-4));
            free(data), free(w);
        }
    }
}

TEST(linear_reads_weights_stacked_of_different_types)
{
    enum { N = 70, K = 96 };
    float* w = random_floats(N * K, 1.0f);
    uint16_t* half = malloc(30 * K * sizeof *half);
    for (int i = 0; i < 30 * K; i++) {
        half[i] = sumi_float_to_bf16(w[11 * K + i]);
        w[11 * K + i] = sumi_bf16_to_float(half[i]);
    }
    for (int m = 4; m <= 24; m += 20) {
        linear_case c = {.m = m, .n = N, .k = K};
        c.weight = (sumi_weight){.name = "w",
                                 .rows = N,
                                 .cols = K,
                                 .tensor_count = 3,
                                 .tensors = {{.data = w, .dtype = SUMI_DTYPE_F32, .rows = 11, .scale = 1.0f},
                                             {.data = half, .dtype = SUMI_DTYPE_BF16, .rows = 30, .scale = 1.0f},
                                             {.data = w + 41 * K, .dtype = SUMI_DTYPE_F32, .rows = 29, .scale = 1.0f}}};
        check_linear(&c, w, 1e-4f);
    }
    free(w), free(half);
}

TEST(linear_reads_rotated_int8_rows)
{
    enum { N = 70, K = 512, Q = 45 };
    float *w = random_floats(N * K, 1.0f), *scales = random_floats(Q, 0.1f);
    signed char* q = malloc(Q * K);
    linear_case c = {.n = N, .k = K};
    c.weight = (sumi_weight){
        .name = "w",
        .rows = N,
        .cols = K,
        .tensor_count = 2,
        .tensors = {
            {.data = q, .dtype = SUMI_DTYPE_I8, .rows = Q, .scale = 1.0f, .row_scales = scales, .rotation = 256},
            {.data = w + Q * K, .dtype = SUMI_DTYPE_F32, .rows = N - Q, .scale = 1.0f}}};
    for (int i = 0; i < Q * K; i++) q[i] = (signed char)(random_below(255) - 127);
    // element (i, j) of a regular Hadamard matrix of 4^n is 2^-n, negative where an odd number of i's and j's digits to
    // the base of 4 add up to 3
    for (int r = 0; r < Q; r++) {
        for (int k = 0; k < K; k++) {
            double sum = 0.0;
            for (int j = 0; j < 256; j++) {
                bool is_negative = false;
                for (int digits = j ^ (k % 256); digits > 0; digits /= 4) is_negative ^= digits % 4 == 3;
                sum += (is_negative ? -1.0 : 1.0) / 16.0 * (double)q[r * K + k / 256 * 256 + j];
            }
            w[r * K + k] = (float)(sum * (double)scales[r]);
        }
    }
    for (c.m = 3; c.m <= 20; c.m += 17) { check_linear(&c, w, 2e-7f * K * 40); } // values are up to 40
    free(w), free(scales), free(q);
}

TEST(linear_reads_a_weight_with_its_change)
{
    static const sumi_dtype s_types[] = {SUMI_DTYPE_BF16, SUMI_DTYPE_F32};
    static const int s_rows[] = {1, 7, 8, 700}; // both products, more than a block of rows
    for (size_t t = 0; t < 2; t++) {
        for (size_t i = 0; i < 4; i++) {
            enum { N = 70, K = 300 };
            changed_weight w;
            make_changed(&w, s_types[t], N, K, i % 2 == 0 ? 4 : 5);
            linear_case c = {.m = s_rows[i], .n = N, .k = K, .weight = w.weight, .has_bias = true};
            check_linear(&c, w.merged, 4e-7f * (float)K);
            free_changed(&w);
        }
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(linear_agrees_with_the_reference_at_odd_shapes);
    RUN(adapters_do_what_merged_weights_would_under_every_epilogue);
    RUN(a_kronecker_product_is_what_it_is_known_to_be);
    RUN(an_adapter_counts_as_often_as_it_is_used);
    RUN(linear_reads_every_weight_type);
    RUN(linear_reads_weights_stacked_of_different_types);
    RUN(linear_reads_a_weight_with_its_change);
    RUN(linear_reads_rotated_int8_rows);
    TEST_END();
}
