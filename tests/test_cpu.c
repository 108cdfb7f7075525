// The processor backend: every op kind against a plain double reference at odd sizes, on every instruction set this
// machine has; any split into parts and any number of threads gives the same bits; every weight type; the golden single
// operations; every allocation failing.
#include "base/memory.h"
#include "base/platform.h"
#include "cpu/cpu.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include "plan/validate.h"
#include "system.h"
#include "test.h"

// ---- A bench: one plan, one runner ----------------------------------------------------------------------------------
static sumi_heap s_heap;
static const sumi_cpu_level s_levels[] = {SUMI_CPU_PORTABLE, SUMI_CPU_AVX2, SUMI_CPU_AVX512};
static const char* const s_level_names[] = {"portable", "AVX2", "AVX-512"};
static sumi_cpu_level s_level; // of the running test
static int s_threads = 2;

static uint32_t s_random = 1;
static float random_float(void) // in [-1, 1)
{
    s_random = s_random * 1664525u + 1013904223u;
    return (float)(int32_t)(s_random >> 8) / 8388608.0f - 1.0f;
}
static int random_below(int limit)
{
    s_random = s_random * 1664525u + 1013904223u;
    return (int)((s_random >> 8) % (uint32_t)limit);
}
static float* random_floats(size_t count, float scale)
{
    float* x = malloc((count + 1) * sizeof *x);
    for (size_t i = 0; i < count; i++) { x[i] = scale * random_float(); }
    return x;
}

static sumi_weight float_weight(const float* data, int rows, int cols)
{
    return (sumi_weight){.name = "w",
                         .rows = rows,
                         .cols = cols,
                         .part_count = 1,
                         .parts = {{.data = data, .dtype = SUMI_DTYPE_F32, .rows = rows, .scale = 1.0f}}};
}

typedef struct bench {
    sumi_plan plan;
    sumi_workers* workers;
    sumi_runner* runner;
    sumi_error error;
    int step_cols;
} bench;

static void bench_begin(bench* b)
{
    memset(b, 0, sizeof *b);
    sumi_plan_begin(&b->plan, &s_heap, 4);
    sumi_plan_section(&b->plan, SUMI_SECTION_DENOISE, 1, 0);
}

// A bound float value; its data is written by bench_run's caller through bench_write.
static sumi_value bench_value(bench* b, int rows, int cols)
{
    return sumi_plan_bound(&b->plan, "value", SUMI_ELEMENT_FLOAT, rows, cols);
}

static bool bench_ready(bench* b)
{
    if (sumi_plan_finish(&b->plan, &b->error) != SUMI_OK || sumi_plan_validate(&b->plan, &b->error) != SUMI_OK
        || sumi_workers_create(&s_heap, NULL, s_threads, &b->error, &b->workers) != SUMI_OK
        || sumi_cpu_create(&s_heap, b->workers, s_level, &b->error, &b->runner) != SUMI_OK
        || b->runner->functions->reserve(b->runner, &b->plan, &b->error) != SUMI_OK) {
        printf("  %s\n", b->error.text);
        CHECK(!"the bench is ready");
        return false;
    }
    b->runner->functions->start(b->runner, &b->plan);
    return true;
}
static uint64_t value_bytes(const bench* b, sumi_value v) { return sumi_plan_info(&b->plan, v)->bytes; }
static void bench_write(bench* b, sumi_value v, const void* data)
{
    b->runner->functions->write(b->runner, &b->plan, v, 0, data, value_bytes(b, v));
}
static void* bench_read(bench* b, sumi_value v)
{
    void* data = malloc((size_t)value_bytes(b, v) + 1);
    b->runner->functions->read(b->runner, &b->plan, v, 0, data, value_bytes(b, v));
    return data;
}

// How the parts are handed over: whole ops, one part at a time, or random runs of parts.
typedef enum split { SPLIT_NONE, SPLIT_PARTS, SPLIT_RANDOM } split;
static void bench_run(bench* b, split how, int counter)
{
    if (how == SPLIT_NONE) {
        sumi_slice all = {0, (int32_t)b->plan.op_count, 0, b->plan.ops[0].part_count, 0.0f};
        CHECK(b->runner->functions->run(b->runner, &b->plan, &all, counter, &b->error) == SUMI_OK);
        return;
    }
    for (int i = 0; i < (int)b->plan.op_count; i++) {
        for (int begin = 0; begin < b->plan.ops[i].part_count;) {
            int count = how == SPLIT_PARTS ? 1 : 1 + random_below(4);
            int end = begin + count < b->plan.ops[i].part_count ? begin + count : b->plan.ops[i].part_count;
            sumi_slice slice = {i, i + 1, begin, end, 0.0f};
            CHECK(b->runner->functions->run(b->runner, &b->plan, &slice, counter, &b->error) == SUMI_OK);
            begin = end;
        }
    }
}
static void bench_end(bench* b)
{
    if (b->runner != NULL) { b->runner->functions->destroy(b->runner); }
    sumi_workers_destroy(b->workers);
    sumi_plan_end(&b->plan);
}

// ---- A scene: what to build, what to feed, what must come out -------------------------------------------------------
// The scene is run on every level; the first run (one thread, whole ops) is compared with `expect`, all others
// (threads, splits) with the first, bit for bit.
#define MAX_SCENE_VALUES 10
typedef struct scene {
    void (*build)(bench* b, struct scene* scene); // fills values[]; values[0] is checked
    void* context;
    const void* inputs[MAX_SCENE_VALUES]; // what to write into values[i]; NULL: zeros
    sumi_value values[MAX_SCENE_VALUES];
    int value_count, part_rows, counter;
    const double* expect;
    double absolute, relative;
} scene;

static void scene_once(scene* s, int threads, split how, void** out)
{
    bench b;
    s_threads = threads;
    bench_begin(&b);
    s->build(&b, s);
    for (size_t i = 0; i < b.plan.op_count && s->part_rows > 0 && b.plan.error.result == SUMI_OK; i++) {
        sumi_op* op = &b.plan.ops[i];
        if (op->kind == SUMI_OP_ATTENTION) {
            op->u.attention.query_block = s->part_rows;
            op->part_count = 0;
            for (int32_t k = 0; k < op->u.attention.sequence_count; k++) {
                const sumi_sequence* q = &op->u.attention.sequences[k];
                int32_t queries = sumi_sequence_queries(q);
                op->part_count += op->u.attention.q_heads * ((queries + s->part_rows - 1) / s->part_rows);
            }
            op->rows = op->part_count;
        } else if (op->kind != SUMI_OP_GROUP_SUMS && op->kind != SUMI_OP_TILE_BLEND && op->kind != SUMI_OP_POSTERIOR
                   && op->kind != SUMI_OP_PIXELS_OUT) {
            op->part_rows = s->part_rows;
            op->part_count = (op->rows + s->part_rows - 1) / s->part_rows;
        }
    }
    if (bench_ready(&b)) {
        for (int i = 0; i < s->value_count; i++) {
            void* zeros = calloc(1, (size_t)value_bytes(&b, s->values[i]) + 1);
            bench_write(&b, s->values[i], s->inputs[i] != NULL ? s->inputs[i] : zeros);
            free(zeros);
        }
        bench_run(&b, how, s->counter);
        for (int i = 0; i < s->value_count; i++) { out[i] = bench_read(&b, s->values[i]); }
    }
    bench_end(&b);
}

// Returns values[0] of the last level's first run, for further checks; the caller frees it.
static float* scene_run(scene* s)
{
    void* first[MAX_SCENE_VALUES] = {0};
    for (size_t l = 0; l < sizeof s_levels / sizeof *s_levels; l++) {
        s_level = s_levels[l];
        sumi_cpu_features features = sumi_cpu_detect();
        if ((s_level == SUMI_CPU_AVX2 && !features.avx2_fma_f16c) || (s_level == SUMI_CPU_AVX512 && !features.avx512)) {
            static bool said[3];
            if (!said[l]) { printf("skip: level %s: this processor does not have it\n", s_level_names[l]); }
            said[l] = true;
            continue;
        }
        for (int i = 0; i < MAX_SCENE_VALUES; i++) {
            free(first[i]);
            first[i] = NULL;
        }
        scene_once(s, 1, SPLIT_NONE, first);
        if (first[0] == NULL) { break; }
        bench b; // only for the size of value 0
        bench_begin(&b);
        s->build(&b, s);
        CHECK(sumi_plan_finish(&b.plan, &b.error) == SUMI_OK);
        size_t bytes[MAX_SCENE_VALUES];
        for (int i = 0; i < s->value_count; i++) { bytes[i] = (size_t)value_bytes(&b, s->values[i]); }
        bench_end(&b);
        int shown = 0;
        for (size_t i = 0; s->expect != NULL && i < bytes[0] / sizeof(float); i++) {
            double got = (double)((float*)first[0])[i];
            if (!(fabs(got - s->expect[i]) <= s->absolute + s->relative * fabs(s->expect[i])) && shown++ < 3) {
                printf("  %s: element %zu is %.9g, want %.9g\n", s_level_names[l], i, got, s->expect[i]);
                CHECK(!"as the reference");
            }
        }
        for (int mode = 0; mode < 4; mode++) {
            void* other[MAX_SCENE_VALUES] = {0};
            scene_once(s, mode == 0 || mode == 2 ? 3 : 1,
                       mode == 0   ? SPLIT_NONE
                       : mode == 3 ? SPLIT_RANDOM
                                   : SPLIT_PARTS,
                       other);
            for (int i = 0; i < s->value_count; i++) {
                if (other[i] == NULL || memcmp(other[i], first[i], bytes[i]) != 0) {
                    printf("  %s, mode %d, value %d\n", s_level_names[l], mode, i);
                    CHECK(!"the same bits for any split and any number of threads");
                }
                free(other[i]);
            }
        }
    }
    for (int i = 1; i < MAX_SCENE_VALUES; i++) { free(first[i]); }
    return first[0];
}

// ---- LINEAR ---------------------------------------------------------------------------------------------------------
static double act_double(sumi_activation activation, double x)
{
    switch (activation) {
    case SUMI_ACT_SILU: return x / (1.0 + exp(-x));
    case SUMI_ACT_QUICK_GELU: return x / (1.0 + exp(-1.702 * x));
    case SUMI_ACT_GELU_TANH: return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case SUMI_ACT_GELU_ERF: return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    case SUMI_ACT_TANH: return tanh(x);
    case SUMI_ACT_NONE: break;
    }
    return x;
}

typedef struct linear_case {
    int m, n, k;
    sumi_weight weight, bias;
    bool has_bias, accumulates, is_residual, has_gate, is_into;
    sumi_activation activation;
} linear_case;

static void build_linear(bench* b, scene* s)
{
    const linear_case* c = s->context;
    int pad = c->is_into ? 3 : 0;
    s->values[0] = bench_value(b, c->m + pad, c->n);
    s->values[1] = bench_value(b, c->m + pad, c->k);
    s->values[2] = bench_value(b, 4, c->n + 5); // the step table of gates
    s->value_count = 3;
    if (c->is_residual) {
        sumi_plan_linear(&b->plan, &(sumi_plan_linear_args){.label = "linear",
                                                            .x = s->values[1],
                                                            .weight = &c->weight,
                                                            .bias = c->has_bias ? &c->bias : NULL,
                                                            .gate = c->has_gate ? (sumi_step_row){s->values[2], 5, true}
                                                                                : SUMI_NO_ROW,
                                                            .residual = s->values[0]});
        return;
    }
    sumi_plan_linear(&b->plan, &(sumi_plan_linear_args){.label = "linear",
                                                        .x = s->values[1],
                                                        .x_row = pad,
                                                        .rows = c->m,
                                                        .weight = &c->weight,
                                                        .bias = c->has_bias ? &c->bias : NULL,
                                                        .activation = c->activation,
                                                        .y = s->values[0],
                                                        .y_row = pad > 0 ? 1 : 0});
    if (b->plan.op_count > 0) {
        b->plan.ops[0].u.linear.accumulates = c->accumulates;
        if (c->accumulates) { // an adapter's second product, as the verb does not write it
            b->plan.ops[0].in[1] = b->plan.ops[0].out;
            b->plan.ops[0].in[2] = c->has_gate ? s->values[2] : SUMI_NO_VALUE;
            if (c->has_gate) { b->plan.ops[0].u.linear.gate = (sumi_step_row){s->values[2], 5, true}; }
        }
        b->plan.ops[0].u.linear.scale = 0.25f;
    }
}

static void check_linear(linear_case* c, const float* w, float tolerance)
{
    int pad = c->is_into ? 3 : 0, x_row = pad, y_row = pad > 0 ? 1 : 0;
    float *x = random_floats((size_t)(c->m + pad) * c->k, 1.0f), *y = random_floats((size_t)(c->m + pad) * c->n, 1.0f),
          *gates = random_floats((size_t)4 * (c->n + 5), 1.0f);
    float* bias = random_floats((size_t)c->n, 1.0f);
    c->bias = float_weight(bias, 1, c->n);
    double* expect = malloc((size_t)(c->m + pad) * c->n * sizeof *expect);
    for (int i = 0; i < (c->m + pad) * c->n; i++) { expect[i] = (double)y[i]; }
    for (int r = 0; r < c->m; r++) {
        for (int j = 0; j < c->n; j++) {
            double sum = 0.0;
            for (int k = 0; k < c->k; k++) { sum += (double)x[(x_row + r) * c->k + k] * (double)w[j * c->k + k]; }
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
               .part_rows = c->m > 40 ? 16 : 3,
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
    if (c.accumulates) { c.has_bias = false; }
    check_linear(&c, w, 2e-7f * (float)k + 1e-6f);
    free(w);
}

TEST(linear_agrees_with_the_reference_at_odd_shapes)
{
    static const int shapes[][3] = {{1, 1, 1},   {1, 70, 33},   {5, 129, 300},  {8, 40, 17},   {9, 33, 257},
                                    {13, 3, 40}, {31, 65, 100}, {47, 300, 520}, {130, 31, 37}, {517, 40, 16}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int variant = 0; variant < 8; variant++) {
            linear_of_shape(shapes[i][0], shapes[i][1], shapes[i][2], variant);
        }
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
        if (s->values[0].id != 0) { b->plan.values[s->values[0].id - 1].bound = true; }
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
                                              .keeps_columns = c->epilogue == MERGED_INTO_COLUMNS,
                                              .y_column = c->epilogue == MERGED_INTO_COLUMNS ? MERGED_COLUMN : 0,
                                              .residual = has_residual || is_gated ? s->values[0] : SUMI_NO_VALUE,
                                              .gate = is_gated ? (sumi_step_row){s->values[2], 5, true} : SUMI_NO_ROW});
}

// Rows with one of the changes alone, against what a Kronecker product is.
static void check_kronecker_rows(const merged_case* c, int d, const float* w)
{
    const sumi_delta* delta = &c->deltas[d];
    const float *left = delta->up.parts[0].data, *right = delta->down.parts[0].data;
    const int columns = delta->down.cols, runs = delta->down.rows;
    float row[MERGED_DEPTH];
    for (int j = 0; j < MERGED_COLS; j++) {
        sumi_weight_merged_row(&c->weight, &c->uses[d], 1, j, row);
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
    for (int j = 0; j < MERGED_COLS; j++) {
        sumi_weight_merged_row(&c->weight, c->uses, c->delta_count, j, merged + (size_t)j * MERGED_DEPTH);
    }
    for (int d = 0; d < c->delta_count && c->rank == 0; d++) { check_kronecker_rows(c, d, w); }
    double* expect = malloc((size_t)y_rows * (size_t)y_cols * sizeof *expect);
    for (int i = 0; i < y_rows * y_cols; i++) { expect[i] = (double)y[i]; }
    for (int r = 0; r < c->rows; r++) {
        double p[MERGED_COLS];
        for (int j = 0; j < MERGED_COLS; j++) {
            p[j] = c->epilogue == MERGED_PLAIN || c->epilogue == MERGED_TWO_HALVES ? 0.0 : (double)bias[j];
            for (int k = 0; k < MERGED_DEPTH; k++) {
                p[j] += (double)x[(x_row + r) * MERGED_DEPTH + k] * (double)merged[j * MERGED_DEPTH + k];
            }
        }
        double* out = expect + (size_t)(y_row + r) * (size_t)y_cols;
        for (int j = 0; j < MERGED_COLS; j++) {
            switch (c->epilogue) {
            case MERGED_INTO_COLUMNS: out[MERGED_COLUMN + j] = p[j]; break;
            case MERGED_RESIDUAL: out[j] += p[j]; break;
            case MERGED_GATED_RESIDUAL: out[j] += (double)gates[2 * (MERGED_COLS + 5) + 5 + j] * p[j]; break;
            case MERGED_TWO_HALVES:
                if (j < y_cols) { out[j] = act_double(SUMI_ACT_SILU, p[j]) * p[j + y_cols]; }
                break;
            default: out[j] = act_double(merged_activates(c) ? c->activation : SUMI_ACT_NONE, p[j]); break;
            }
        }
    }
    scene s = {.build = build_merged,
               .context = c,
               .inputs = {y, x, gates},
               .part_rows = 5,
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
    for (int d = 0; d < c->delta_count; d++) { free(down[d]), free(up[d]); }
    free(w), free(bias), free(x), free(y), free(gates), free(merged), free(expect);
}

TEST(adapters_do_what_merged_weights_would_under_every_epilogue)
{
    static const struct {
        int count;
        sumi_span spans[MERGED_DELTAS];
    } covers[] = {
        {1, {{0}}},
        {2, {{0}, {0}}},
        {1, {{8, 16}}},                   // some rows, so no delta reaches all
        {2, {{0}, {20, 20}}},             // the last one does not
        {2, {{3, 9}, {0}}},               // the last one does
        {3, {{0, 8}, {8, 16}, {24, 16}}}, // the parts of a stack, each with its own
    };
    static const int ranks[] = {1, 4, 33, 0}, rows[] = {5, MERGED_ROWS};
    for (int e = 0; e < MERGED_EPILOGUES; e++) {
        for (size_t v = 0; v < sizeof covers / sizeof *covers; v++) {
            for (size_t k = 0; k < sizeof ranks / sizeof *ranks; k++) {
                for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                    merged_case c = {.epilogue = (merged_epilogue)e,
                                     .rows = rows[r],
                                     .delta_count = covers[v].count,
                                     .rank = ranks[k],
                                     .folds = {8, 7, 56},
                                     .activation = (sumi_activation)(SUMI_ACT_SILU + (k + r + v) % 5)};
                    memcpy(c.spans, covers[v].spans, sizeof c.spans);
                    try_merged(&c);
                }
            }
        }
    }
}

// [[1, 2], [3, 4]] (x) [[0, 5], [6, 7]]
TEST(a_kronecker_product_is_what_it_is_known_to_be)
{
    static const float left[] = {1, 2, 3, 4}, right[] = {0, 5, 6, 7}, w[16] = {0},
                       expect[4][4] = {{0, 5, 0, 10}, {6, 7, 12, 14}, {0, 15, 0, 20}, {18, 21, 24, 28}};
    sumi_weight weight = float_weight(w, 4, 4);
    weight.index = 0;
    const sumi_delta delta = {
        .scale = 1.0f, .up = float_weight(left, 2, 2), .down = float_weight(right, 2, 2), .kind = SUMI_DELTA_KRONECKER};
    const sumi_adapter adapter = {&delta, 1};
    const sumi_adapter_use use = {&adapter, 1.0f};
    static const float unit[16] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
    bench b;
    s_level = SUMI_CPU_AUTO;
    bench_begin(&b);
    sumi_plan_adapters(&b.plan, &use, 1);
    sumi_value x = bench_value(&b, 4, 4), y = bench_value(&b, 4, 4);
    sumi_plan_linear(&b.plan, &(sumi_plan_linear_args){.label = "linear", .x = x, .weight = &weight, .y = y});
    CHECK_NUMBER(b.plan.op_count, 3);
    if (bench_ready(&b)) {
        bench_write(&b, x, unit);
        bench_run(&b, SPLIT_NONE, 0);
    }
    float* product = bench_read(&b, y);
    bench_end(&b);
    for (int r = 0; r < 4; r++) {
        float row[4];
        sumi_weight_merged_row(&weight, &use, 1, r, row);
        for (int k = 0; k < 4; k++) {
            CHECK_NEAR(row[k], (double)expect[r][k], 0, 0);
            CHECK_NEAR(product[4 * k + r], (double)expect[r][k], 0, 0); // x is the unit matrix: y is transposed
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
    s_level = SUMI_CPU_AUTO;
    for (int i = 0; i < 2; i++) {
        bench b;
        bench_begin(&b);
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
    for (int i = 0; i < ROWS * N; i++) { CHECK_NEAR(results[1][i], results[0][i], 2e-5, 1e-5); }
    free(results[0]), free(results[1]), free(w), free(down), free(up), free(x);
}

// A prompt of eight tokens, the shortest that networks make products of, sums alone as it does beside others: a batch gives the bits of
// single jobs.
TEST(eight_rows_have_the_same_bits_alone_and_among_more)
{
    enum { N = 70, K = 300, MANY = 40 };
    float *w = random_floats((size_t)N * K, 1.0f), *x = random_floats((size_t)MANY * K, 1.0f);
    for (size_t l = 0; l < sizeof s_levels / sizeof *s_levels; l++) {
        s_level = s_levels[l];
        sumi_cpu_features features = sumi_cpu_detect();
        if ((s_level == SUMI_CPU_AVX2 && !features.avx2_fma_f16c) || (s_level == SUMI_CPU_AVX512 && !features.avx512))
            continue;
        void* y[2] = {NULL, NULL};
        for (int i = 0; i < 2; i++) {
            linear_case c = {.m = i == 0 ? 8 : MANY, .n = N, .k = K, .weight = float_weight(w, N, K)};
            scene s = {.build = build_linear, .context = &c, .inputs = {NULL, x, NULL}};
            void* out[MAX_SCENE_VALUES] = {0};
            scene_once(&s, 1, SPLIT_NONE, out);
            y[i] = out[0];
            free(out[1]), free(out[2]);
        }
        CHECK(y[0] != NULL && y[1] != NULL && memcmp(y[0], y[1], sizeof(float) * 8 * N) == 0);
        free(y[0]), free(y[1]);
    }
    free(w), free(x);
}

TEST(linear_reads_every_weight_type)
{
    static const sumi_dtype types[] = {SUMI_DTYPE_F64,     SUMI_DTYPE_F32,     SUMI_DTYPE_F16,   SUMI_DTYPE_BF16,
                                       SUMI_DTYPE_F8_E4M3, SUMI_DTYPE_F8_E5M2, SUMI_DTYPE_I8,    SUMI_DTYPE_Q4_0,
                                       SUMI_DTYPE_Q4_1,    SUMI_DTYPE_Q5_0,    SUMI_DTYPE_Q5_1,  SUMI_DTYPE_Q8_0,
                                       SUMI_DTYPE_Q2_K,    SUMI_DTYPE_Q3_K,    SUMI_DTYPE_Q4_K,  SUMI_DTYPE_Q5_K,
                                       SUMI_DTYPE_Q6_K,    SUMI_DTYPE_IQ4_NL,  SUMI_DTYPE_IQ4_XS};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int m = 3; m <= 20; m += 17) { // both products
            int n = 37, k = 512;
            const sumi_dtype_info* info = sumi_dtype_get(types[t]);
            size_t bytes = (size_t)sumi_dtype_bytes(types[t], (uint64_t)n * (uint64_t)k);
            unsigned char* data = malloc(bytes + 1); // read at an odd address
            float* w = malloc((size_t)n * k * sizeof *w);
            for (size_t i = 0; i < bytes; i++) { data[1 + i] = (unsigned char)random_below(256); }
            if (types[t] == SUMI_DTYPE_F64) {
                for (size_t i = 0; i < bytes / 8; i++) {
                    double value = (double)random_float();
                    memcpy(data + 1 + 8 * i, &value, 8);
                }
            } else if (types[t] == SUMI_DTYPE_F32) {
                for (size_t i = 0; i < bytes / 4; i++) {
                    float value = random_float();
                    memcpy(data + 1 + 4 * i, &value, 4);
                }
            } else if (types[t] == SUMI_DTYPE_F16 || types[t] == SUMI_DTYPE_BF16) {
                for (size_t i = 0; i < bytes / 2; i++) {
                    uint16_t bits = types[t] == SUMI_DTYPE_F16 ? sumi_float_to_f16(random_float())
                                                               : sumi_float_to_bf16(random_float());
                    memcpy(data + 1 + 2 * i, &bits, 2);
                }
            } else if (types[t] == SUMI_DTYPE_F8_E4M3 || types[t] == SUMI_DTYPE_F8_E5M2) {
                for (size_t i = 0; i < bytes; i++) {
                    data[1 + i] = types[t] == SUMI_DTYPE_F8_E4M3 ? sumi_float_to_e4m3(random_float())
                                                                 : sumi_float_to_e5m2(random_float());
                }
            } else if (info->block
                       > 1) { // the scales are halves: keep them small and finite by clearing the top exponent bits
                for (size_t block = 0; block < bytes / (size_t)info->block_bytes; block++) {
                    unsigned char* at = data + 1 + block * (size_t)info->block_bytes;
                    size_t scale_at = types[t] == SUMI_DTYPE_Q6_K || types[t] == SUMI_DTYPE_Q3_K
                                        ? (size_t)info->block_bytes - 2
                                    : types[t] == SUMI_DTYPE_Q2_K ? (size_t)info->block_bytes - 4
                                                                  : 0;
                    at[scale_at + 1] = (unsigned char)(at[scale_at + 1] & 0x9f);
                    at[scale_at + 3 < (size_t)info->block_bytes ? scale_at + 3 : scale_at + 1] &= 0x9f;
                }
            }
            sumi_dtype_to_float(types[t], data + 1, w, (size_t)n * k);
            float scale = types[t] == SUMI_DTYPE_F8_E4M3 ? 0.5f : 1.0f;
            double largest = 0.0;
            for (int i = 0; i < n * k; i++) {
                w[i] *= scale;
                largest = fabs((double)w[i]) > largest ? fabs((double)w[i]) : largest;
            }
            linear_case c = {.m = m,
                             .n = n,
                             .k = k,
                             .weight = {.name = "w",
                                        .rows = n,
                                        .cols = k,
                                        .part_count = 1,
                                        .parts = {{.data = data + 1, .dtype = types[t], .rows = n, .scale = scale}}}};
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
                                 .part_count = 3,
                                 .parts = {{.data = w, .dtype = SUMI_DTYPE_F32, .rows = 11, .scale = 1.0f},
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
        .part_count = 2,
        .parts = {{.data = q, .dtype = SUMI_DTYPE_I8, .rows = Q, .scale = 1.0f, .row_scales = scales, .rotation = 256},
                  {.data = w + Q * K, .dtype = SUMI_DTYPE_F32, .rows = N - Q, .scale = 1.0f}}};
    for (int i = 0; i < Q * K; i++) { q[i] = (signed char)(random_below(255) - 127); }
    // element (i, j) of a regular Hadamard matrix of 4^n is 2^-n, negative where an odd number of i's and j's digits to
    // the base of 4 add up to 3
    for (int r = 0; r < Q; r++) {
        for (int k = 0; k < K; k++) {
            double sum = 0.0;
            for (int j = 0; j < 256; j++) {
                bool is_negative = false;
                for (int digits = j ^ (k % 256); digits > 0; digits /= 4) { is_negative ^= digits % 4 == 3; }
                sum += (is_negative ? -1.0 : 1.0) / 16.0 * (double)q[r * K + k / 256 * 256 + j];
            }
            w[r * K + k] = (float)(sum * (double)scales[r]);
        }
    }
    for (c.m = 3; c.m <= 20; c.m += 17) { check_linear(&c, w, 2e-7f * K * 40); } // values are up to 40
    free(w), free(scales), free(q);
}

// A low-rank change of a weight of any type, and what merging it would give.
typedef struct changed_weight {
    sumi_weight weight;
    sumi_weight_change change;
    float *data, *up, *merged;
    uint16_t *rounded, *down;
} changed_weight;

static void make_changed(changed_weight* w, sumi_dtype dtype, int rows, int cols, int rank)
{
    const size_t count = (size_t)rows * (size_t)cols;
    w->data = random_floats(count, 1.0f);
    w->up = random_floats((size_t)rows * (size_t)rank, 1.0f);
    w->merged = random_floats(count, 0.0f);
    w->rounded = malloc(count * sizeof *w->rounded);
    w->down = malloc((size_t)rank * (size_t)cols * sizeof *w->down);
    for (int i = 0; i < rank * cols; i++) { w->down[i] = sumi_float_to_bf16(random_float()); }
    sumi_floats_to_bf16(w->data, w->rounded, count);
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            const size_t at = (size_t)r * (size_t)cols + (size_t)c;
            double sum = dtype == SUMI_DTYPE_BF16 ? (double)sumi_bf16_to_float(w->rounded[at]) : (double)w->data[at];
            for (int k = 0; k < rank; k++) {
                sum += 0.5 * (double)w->up[r * rank + k] * (double)sumi_bf16_to_float(w->down[k * cols + c]);
            }
            w->merged[at] = (float)sum;
        }
    }
    w->change = (sumi_weight_change){.down = {.data = w->down, .dtype = SUMI_DTYPE_BF16, .rows = rank, .scale = 1.0f},
                                     .up = {.data = w->up, .dtype = SUMI_DTYPE_F32, .rows = rows, .scale = 0.5f}};
    w->weight = float_weight(w->data, rows, cols);
    w->weight.parts[0].dtype = dtype;
    w->weight.parts[0].data = dtype == SUMI_DTYPE_BF16 ? (const void*)w->rounded : w->data;
    w->weight.change = &w->change;
}

static void free_changed(changed_weight* w)
{
    free(w->data), free(w->up), free(w->merged), free(w->rounded), free(w->down);
}

TEST(linear_reads_a_weight_with_its_change)
{
    static const sumi_dtype types[] = {SUMI_DTYPE_BF16, SUMI_DTYPE_F32};
    static const int rows[] = {1, 7, 8, 700}; // both products, more than a block of rows
    for (size_t t = 0; t < 2; t++) {
        for (size_t i = 0; i < 4; i++) {
            enum { N = 70, K = 300 };
            changed_weight w;
            make_changed(&w, types[t], N, K, i % 2 == 0 ? 4 : 5);
            linear_case c = {.m = rows[i], .n = N, .k = K, .weight = w.weight, .has_bias = true};
            check_linear(&c, w.merged, 4e-7f * (float)K);
            free_changed(&w);
        }
    }
}

// ---- ATTENTION ------------------------------------------------------------------------------------------------------
typedef struct attention_case {
    int rows;
    sumi_attention a;
} attention_case;

static void build_attention(bench* b, scene* s)
{
    const attention_case* c = s->context;
    s->values[1] = bench_value(b, c->rows, (c->a.q_heads + 2 * c->a.kv_heads) * c->a.dim);
    s->values[0] = sumi_plan_attention(&b->plan, "attention", s->values[1], &c->a);
    s->value_count = 2;
    if (s->values[0].id != 0) {
        // written before the run, so that rows outside every sequence are known
        b->plan.values[s->values[0].id - 1].bound = true;
    }
}

static void check_attention(attention_case* c, int part_rows, float spread)
{
    int cols = (c->a.q_heads + 2 * c->a.kv_heads) * c->a.dim, dim = c->a.dim, out_cols = c->a.q_heads * dim;
    float* qkv = random_floats((size_t)c->rows * cols, spread);
    double *expect = calloc((size_t)c->rows * out_cols, sizeof *expect), *p = malloc((size_t)c->rows * sizeof *p),
           largest = 0.0;
    for (int i = 0; i < c->a.sequence_count; i++) {
        const sumi_sequence* q = &c->a.sequences[i];
        int list[4096], keys = 0, queries = 0;
        for (int k = 0; k < q->span_count; k++) {
            for (int r = 0; r < q->span[k].count; r++) { list[keys++] = q->span[k].begin + r; }
            queries = k < q->query_first + q->query_spans ? keys : queries;
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
                for (int k = 0; k < keys; k++) { sum += p[k] = exp(p[k] - max); }
                for (int d = 0; d < dim; d++) {
                    double v = 0.0;
                    for (int k = 0; k < keys; k++) {
                        v += p[k] * (double)qkv[list[k] * cols + (c->a.q_heads + c->a.kv_heads + kv) * dim + d];
                    }
                    expect[list[r] * out_cols + h * dim + d] = v / sum;
                }
            }
        }
    }
    scene s = {.build = build_attention,
               .context = c,
               .inputs = {NULL, qkv},
               .part_rows = part_rows,
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
    static const int dims[] = {1, 7, 32, 40, 64, 96, 128, 200, 256, 300, 512};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        attention_case c = {70, {2, 1, dims[i], 1.0f / sqrtf((float)dims[i]), i % 2 == 1, 0, &whole, 1}};
        check_attention(&c, 16, 1.0f);
    }
}

TEST(attention_runs_two_spans_windows_and_many_keys)
{
    // the first: its caption rows are keys only
    sumi_sequence two[] = {{{{300, 40}, {0, 21}}, 2, 1, 0}, {{{30, 250}, {290, 5}}, 2, 2, 0}};
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
        {{{2, 300}, {0, 0}}, 1, 1, 0}, {{{2, 270}, {310, 41}}, 2, 1, 1}, {{{2, 270}, {351, 1}}, 2, 1, 1}};
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
                        own = {.span = {{0, SHARED}, {SHARED, ROWS - SHARED}}, 2, 1, 1};
    float *values = random_floats(ROWS * COLS, 1.0f), *results[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        bench b;
        s_threads = 2;
        bench_begin(&b);
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

// ---- CONV, GROUP NORM -----------------------------------------------------------------------------------------------
typedef struct conv_case {
    sumi_op_conv conv;
    int ci, co;
    sumi_weight weight, bias;
    bool has_residual;
} conv_case;

static void conv_size(const conv_case* c, int* height, int* width)
{
    int scale = c->conv.upsamples ? 2 : 1;
    *height = c->conv.height * scale / c->conv.stride;
    *width = c->conv.width * scale / c->conv.stride;
}

static void build_conv(bench* b, scene* s)
{
    const conv_case* c = s->context;
    int height, width;
    conv_size(c, &height, &width);
    s->values[1] = bench_value(b, c->conv.height * c->conv.width, c->ci);
    s->values[2] = bench_value(b, height * width, c->co);
    s->values[0] =
        sumi_plan_conv(&b->plan, &(sumi_plan_conv_args){.label = "conv",
                                                        .x = s->values[1],
                                                        .weight = &c->weight,
                                                        .bias = &c->bias,
                                                        .shape = c->conv,
                                                        .residual = c->has_residual ? s->values[2] : SUMI_NO_VALUE});
    s->value_count = 3;
    if (s->values[0].id != 0) { b->plan.values[s->values[0].id - 1].bound = true; }
}

static void check_conv(sumi_op_conv conv, int ci, int co, bool has_residual)
{
    conv_case c = {.conv = conv, .ci = ci, .co = co, .has_residual = has_residual};
    int height, width, kernel = conv.kernel, taps = kernel * kernel, scale = conv.upsamples ? 2 : 1,
                       pad = conv.pads_end ? 0 : kernel / 2;
    conv_size(&c, &height, &width);
    float *x = random_floats((size_t)conv.height * conv.width * ci, 1.0f),
          *w = random_floats((size_t)co * ci * taps, 1.0f), *bias = random_floats((size_t)co, 1.0f);
    float* residual = random_floats((size_t)height * width * co, 1.0f);
    c.weight = float_weight(w, co, ci * taps);
    c.bias = float_weight(bias, 1, co);
    double* expect = malloc((size_t)height * width * co * sizeof *expect);
    for (int y = 0; y < height; y++) {
        for (int z = 0; z < width; z++) {
            for (int o = 0; o < co; o++) {
                double sum = (double)bias[o];
                for (int t = 0; t < taps; t++) {
                    int iy = y * conv.stride + t / kernel - pad, ix = z * conv.stride + t % kernel - pad;
                    if (iy < 0 || ix < 0 || iy >= conv.height * scale || ix >= conv.width * scale) { continue; }
                    for (int i = 0; i < ci; i++) {
                        sum += (double)x[(iy / scale * conv.width + ix / scale) * ci + i]
                             * (double)w[(o * ci + i) * taps + t];
                    }
                }
                expect[(y * width + z) * co + o] =
                    sum + (has_residual ? (double)residual[(y * width + z) * co + o] : 0.0);
            }
        }
    }
    scene s = {.build = build_conv,
               .context = &c,
               .inputs = {NULL, x, residual},
               .part_rows = 2 * width,
               .expect = expect,
               .absolute = 2e-7 * ci * taps + 1e-6,
               .relative = 1e-5};
    free(scene_run(&s));
    free(x), free(w), free(bias), free(residual), free(expect);
}

TEST(conv_agrees_with_the_reference)
{
    check_conv((sumi_op_conv){5, 7, 3, 1, false, false, 0, 0}, 3, 5, false);
    check_conv((sumi_op_conv){6, 5, 3, 1, false, false, 0, 0}, 16, 33, true);
    check_conv((sumi_op_conv){9, 11, 3, 1, false, false, 0, 0}, 40, 3, false);
    check_conv((sumi_op_conv){9, 31, 3, 1, false, false, 0, 0}, 70, 8, true);
    check_conv((sumi_op_conv){1, 1, 3, 1, false, false, 0, 0}, 4, 4, false);
    check_conv((sumi_op_conv){5, 4, 3, 1, true, false, 0, 0}, 24, 20, false);
    check_conv((sumi_op_conv){8, 6, 3, 2, false, true, 0, 0}, 17, 34, false);
    check_conv((sumi_op_conv){7, 9, 1, 1, false, false, 0, 0}, 50, 70, true);
    check_conv((sumi_op_conv){4, 4, 1, 1, false, false, 0, 0}, 300, 8, false);
    check_conv((sumi_op_conv){30, 29, 3, 1, false, false, 0, 0}, 32, 64, false);
}

TEST(a_new_run_packs_the_weights_anew)
{
    float w[9 * 16], bias[16] = {0}, x[25];
    for (int i = 0; i < 25; i++) { x[i] = 1.0f; }
    for (int i = 0; i < 9 * 16; i++) { w[i] = 1.0f; }
    conv_case c = {.conv = {5, 5, 3, 1, false, false, 0, 0},
                   .ci = 1,
                   .co = 16,
                   .weight = float_weight(w, 16, 9),
                   .bias = float_weight(bias, 1, 16)};
    scene s = {.context = &c};
    bench b;
    s_level = SUMI_CPU_AUTO;
    bench_begin(&b);
    build_conv(&b, &s);
    if (bench_ready(&b)) {
        for (int run = 1; run <= 2; run++) {
            b.runner->functions->start(b.runner, &b.plan);
            bench_write(&b, s.values[1], x);
            bench_run(&b, SPLIT_NONE, 0);
            float* y = bench_read(&b, s.values[0]);
            CHECK(y[12 * 16 + 3] == 9.0f * (float)run);
            free(y);
            for (int i = 0; i < 9 * 16; i++) { // as if the model had been closed and another one lay at the same place
                w[i] = 2.0f;
            }
        }
    }
    bench_end(&b);
}

typedef struct group_case {
    int rows, cols, groups;
    bool silu;
    sumi_weight w, b;
    int block_rows;
} group_case;
static void build_group(bench* b, scene* s)
{
    const group_case* c = s->context;
    s->values[1] = bench_value(b, c->rows, c->cols);
    s->values[0] = sumi_plan_group_norm(&b->plan, &(sumi_plan_group_norm_args){.label = "norm",
                                                                               .x = s->values[1],
                                                                               .weight = &c->w,
                                                                               .bias = &c->b,
                                                                               .groups = c->groups,
                                                                               .eps = 1e-6f,
                                                                               .silu = c->silu});
    s->value_count = 2;
    if (s->values[0].id == 0) { return; }
    b->plan.values[s->values[0].id - 1].bound = true;
    if (c->block_rows > 0) { // more blocks than the plan would make of so small a picture
        int blocks = (c->rows + c->block_rows - 1) / c->block_rows;
        b->plan.values[b->plan.ops[0].out.id - 1].rows = blocks;
        for (int i = 0; i < 2; i++) {
            b->plan.ops[i].u.group.block_rows = c->block_rows;
            b->plan.ops[i].u.group.block_count = blocks;
        }
        b->plan.ops[0].part_rows = c->block_rows;
        b->plan.ops[0].part_count = blocks;
    }
}

TEST(group_norm_agrees_with_the_reference_also_with_a_large_mean)
{
    static const int shapes[][4] = {{15, 32, 32, 0}, {7, 96, 32, 3}, {300, 64, 4, 70}, {1000, 12, 3, 64}};
    for (int i = 0; i < 8; i++) {
        group_case c = {shapes[i / 2][0], shapes[i / 2][1], shapes[i / 2][2], i % 2 == 1, {0}, {0}, shapes[i / 2][3]};
        float *x = random_floats((size_t)c.rows * c.cols, 1.0f), *w = random_floats((size_t)c.cols, 1.0f),
              *bias = random_floats((size_t)c.cols, 1.0f);
        for (int k = 0; k < c.rows * c.cols; k++) { x[k] += (float)(50 * (i % 3)); }
        c.w = float_weight(w, 1, c.cols);
        c.b = float_weight(bias, 1, c.cols);
        double* expect = malloc((size_t)c.rows * c.cols * sizeof *expect);
        int size = c.cols / c.groups;
        for (int g = 0; g < c.groups; g++) {
            double mean = 0.0, variance = 0.0, n = (double)c.rows * size;
            for (int pass = 0; pass < 2; pass++) {
                for (int r = 0; r < c.rows; r++) {
                    for (int k = 0; k < size; k++) {
                        double v = (double)x[r * c.cols + g * size + k];
                        if (pass == 0) {
                            mean += v / n;
                        } else {
                            variance += (v - mean) * (v - mean) / n;
                        }
                    }
                }
            }
            for (int r = 0; r < c.rows; r++) {
                for (int k = g * size; k < (g + 1) * size; k++) {
                    double v =
                        ((double)x[r * c.cols + k] - mean) / sqrt(variance + 1e-6) * (double)w[k] + (double)bias[k];
                    expect[r * c.cols + k] = c.silu ? act_double(SUMI_ACT_SILU, v) : v;
                }
            }
        }
        scene s = {.build = build_group,
                   .context = &c,
                   .inputs = {NULL, x},
                   .part_rows = 5,
                   .expect = expect,
                   .absolute = i % 3 > 0 ? 3e-5 : 2e-6,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(x), free(w), free(bias), free(expect);
    }
}

// ---- Row ops --------------------------------------------------------------------------------------------------------
typedef struct row_case {
    int kind, rows, cols, row; // row: of x where the op begins
    sumi_weight w, w2;
    bool has_weight, has_bias, has_steps, has_bands, layer, silu, in_place; // has_bands: half the rows read another row
    float eps;                                                              // 0: 1e-6
    int q_heads, kv_heads, dim;
    sumi_rotary rotary;
    sumi_activation activation;
} row_case;

static void build_row(bench* b, scene* s)
{
    row_case* c = s->context;
    sumi_plan* p = &b->plan;
    const sumi_row_band bands[2] = {{c->rows / 2, 1}, {c->rows, 0}};
    s->value_count = 3;
    switch (c->kind) {
    case SUMI_OP_NORM_MODULATE:
        s->values[1] = bench_value(b, c->rows + c->row, c->cols);
        s->values[2] = bench_value(b, 3, 2 * c->cols);
        s->values[0] = sumi_plan_norm(
            p,
            &(sumi_plan_norm_args){.label = "norm",
                                   .x = s->values[1],
                                   .x_row = c->row,
                                   .rows = c->rows,
                                   .norm = c->layer ? SUMI_NORM_LAYER : SUMI_NORM_RMS,
                                   .weight = c->has_weight ? &c->w : NULL,
                                   .bias = c->has_bias ? &c->w2 : NULL,
                                   .eps = c->eps > 0 ? c->eps : 1e-6f,
                                   .scale = c->has_steps ? (sumi_step_row){s->values[2], 0, true} : SUMI_NO_ROW,
                                   .shift = c->has_steps ? (sumi_step_row){s->values[2], c->cols, true} : SUMI_NO_ROW,
                                   .bands = bands,
                                   .band_count = c->has_bands ? 2 : 0,
                                   .silu = c->silu,
                                   .y = c->in_place ? s->values[1] : SUMI_NO_VALUE});
        if (p->op_count > 0) { p->ops[0].u.norm.weight_plus_one = c->has_weight && !c->layer && c->has_steps; }
        break;
    case SUMI_OP_NORM_GATE_ADD:
        s->values[0] = bench_value(b, c->rows + c->row, c->cols);
        s->values[1] = bench_value(b, c->rows, c->cols);
        s->values[2] = bench_value(b, 3, 2 * c->cols);
        sumi_plan_norm_gate_add(p,
                                &(sumi_plan_norm_gate_add_args){
                                    .label = "gate",
                                    .x = s->values[0],
                                    .x_row = c->row,
                                    .branch = s->values[1],
                                    .rows = c->rows,
                                    .weight = c->has_weight ? &c->w : NULL,
                                    .eps = 1e-5f,
                                    .gate = c->has_steps ? (sumi_step_row){s->values[2], c->cols, true} : SUMI_NO_ROW,
                                    .bands = bands,
                                    .band_count = c->has_bands ? 2 : 0});
        break;
    case SUMI_OP_QK_NORM_ROPE:
        s->values[0] = bench_value(b, c->rows + c->row, (c->q_heads + 2 * c->kv_heads) * c->dim);
        s->values[1] = bench_value(b, c->rows + 2, c->dim);
        s->values[2] = bench_value(b, 1, 1);
        sumi_plan_qk_norm_rope(p, &(sumi_plan_qk_args){.label = "qk",
                                                       .qkv = s->values[0],
                                                       .row = c->row,
                                                       .rows = c->rows,
                                                       .q_heads = c->q_heads,
                                                       .kv_heads = c->kv_heads,
                                                       .dim = c->dim,
                                                       .q_norm = c->has_weight ? &c->w : NULL,
                                                       .k_norm = c->has_weight ? &c->w2 : NULL,
                                                       .eps = 1e-6f,
                                                       .rope = s->values[1],
                                                       .rope_row = 2,
                                                       .rotary = c->rotary});
        break;
    case SUMI_OP_GATED:
        s->values[1] = bench_value(b, c->rows, 2 * c->cols);
        s->values[2] = bench_value(b, 1, 1);
        // the verb makes the product too: write the op alone, from the ACTIVATE verb's
        s->values[0] = bench_value(b, c->rows, c->cols);
        sumi_plan_activate(p, s->values[0], c->activation);
        if (p->op_count > 0) {
            p->ops[0].kind = SUMI_OP_GATED;
            p->ops[0].in[0] = s->values[1];
            p->ops[0].out = s->values[0];
            p->ops[0].u.gated.activation = c->activation;
        }
        break;
    default:
        s->values[1] = bench_value(b, c->rows, c->cols);
        s->values[2] = bench_value(b, 1, 1);
        s->values[0] = sumi_plan_activate(p, s->values[1], c->activation);
        break;
    }
    if (s->values[0].id != 0) { p->values[s->values[0].id - 1].bound = true; }
}

TEST(norms_agree_with_the_reference)
{
    static const int sizes[][2] = {{1, 1}, {3, 37}, {9, 256}, {40, 131}, {7, 1000}};
    for (int i = 0; i < 80; i++) {
        row_case c = {.kind = i & 1 ? SUMI_OP_NORM_GATE_ADD : SUMI_OP_NORM_MODULATE,
                      .rows = sizes[i / 8 % 5][0],
                      .cols = sizes[i / 8 % 5][1],
                      .row = i & 2 ? 2 : 0,
                      .has_bands = i >= 40 && sizes[i / 8 % 5][0] > 1};
        c.has_weight = i & 4;
        c.has_steps = !(i & 2);
        c.layer = c.kind == SUMI_OP_NORM_MODULATE && i & 2;
        bool is_modulate = c.kind == SUMI_OP_NORM_MODULATE;
        size_t x_count = (size_t)(c.rows + c.row) * (size_t)c.cols, b_count = (size_t)c.rows * (size_t)c.cols;
        float *x = random_floats(x_count, 3.0f), *branch = random_floats(b_count, 3.0f),
              *steps = random_floats((size_t)6 * (size_t)c.cols, 1.0f), *w = random_floats((size_t)c.cols, 1.0f);
        c.w = float_weight(w, 1, c.cols);
        double* expect = malloc(x_count * sizeof *expect);
        for (size_t k = 0; k < x_count; k++) { expect[k] = (double)x[k]; }
        for (int r = 0; r < c.rows; r++) {
            const float* from = is_modulate ? x + (r + c.row) * c.cols : branch + r * c.cols;
            double mean = 0.0, square = 0.0;
            for (int k = 0; k < c.cols; k++) { mean += c.layer ? (double)from[k] / c.cols : 0.0; }
            for (int k = 0; k < c.cols; k++) { square += ((double)from[k] - mean) * ((double)from[k] - mean) / c.cols; }
            for (int k = 0; k < c.cols; k++) {
                double v = ((double)from[k] - mean) / sqrt(square + (is_modulate ? 1e-6 : 1e-5));
                double plus = is_modulate && c.has_weight && !c.layer && c.has_steps ? 1.0 : 0.0;
                v *= c.has_weight ? (double)w[k] + plus : 1.0;
                // row 1: the counter
                const float* step = steps + (c.has_bands && r < c.rows / 2 ? 4 : 2) * c.cols;
                double first = (double)step[k], second = (double)step[c.cols + k];
                if (is_modulate) {
                    expect[r * c.cols + k] = c.has_steps ? v * first + second : v;
                } else {
                    expect[(r + c.row) * c.cols + k] += c.has_steps ? v * second : v;
                }
            }
        }
        scene s = {.build = build_row,
                   .context = &c,
                   .inputs = {is_modulate ? NULL : x, is_modulate ? x : branch, steps},
                   .part_rows = 2,
                   .counter = 1,
                   .expect = expect,
                   .absolute = 2e-6,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(x), free(branch), free(steps), free(w), free(expect);
    }
}

TEST(norms_with_a_bias_agree_with_the_reference)
{
    static const int widths[] = {1, 3, 8, 37, 96, 1000};
    for (int i = 0; i < 48; i++) {
        row_case c = {.kind = SUMI_OP_NORM_MODULATE, .rows = 11, .cols = widths[i / 8], .eps = 1e-5f};
        c.layer = i & 1;
        c.in_place = i & 2;
        c.has_weight = i & 4;
        c.has_bias = true;
        size_t count = (size_t)c.rows * (size_t)c.cols;
        float *x = random_floats(count, 3.0f), *w = random_floats((size_t)c.cols, 1.0f),
              *bias = random_floats((size_t)c.cols, 1.0f);
        for (size_t k = 0; k < count; k++) { x[k] += 20.0f; }
        c.w = float_weight(w, 1, c.cols);
        c.w2 = float_weight(bias, 1, c.cols);
        double* expect = malloc(count * sizeof *expect);
        for (int r = 0; r < c.rows; r++) {
            const float* from = x + r * c.cols;
            double mean = 0.0, square = 0.0;
            for (int k = 0; k < c.cols && c.layer; k++) { mean += (double)from[k] / c.cols; }
            for (int k = 0; k < c.cols; k++) { square += ((double)from[k] - mean) * ((double)from[k] - mean) / c.cols; }
            for (int k = 0; k < c.cols; k++) {
                double v = ((double)from[k] - mean) / sqrt(square + 1e-5);
                expect[r * c.cols + k] = v * (c.has_weight ? (double)w[k] : 1.0) + (double)bias[k];
            }
        }
        scene s = {.build = build_row,
                   .context = &c,
                   .inputs = {NULL, x},
                   .part_rows = 2,
                   .expect = expect,
                   .absolute = 1e-5,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(x), free(w), free(bias), free(expect);
    }
}

// A picture's norm: x / max(|x|, 1e-12) * sqrt(columns) * w, which an eps far below any square expresses; then SiLU.
// A pixel of zeros stays one; a short one is not drawn, for random lengths come down to where the eps begins to count.
TEST(norms_with_silu_agree_with_the_reference)
{
    static const int widths[] = {1, 3, 8, 37, 96, 384};
    for (int i = 0; i < 24; i++) {
        row_case c = {.kind = SUMI_OP_NORM_MODULATE, .rows = 11, .cols = widths[i / 4], .has_weight = true};
        c.silu = true;
        c.layer = i & 1;
        c.in_place = i & 2;
        c.eps = c.layer ? 1e-6f : 1e-24f / (float)c.cols;
        size_t count = (size_t)c.rows * (size_t)c.cols;
        float *x = random_floats(count, 3.0f), *w = random_floats((size_t)c.cols, 1.0f);
        for (int k = 0; k < c.cols; k++) { x[4 * c.cols + k] = 0.0f, x[5 * c.cols + k] = 1e-9f * (float)(1 + k % 3); }
        c.w = float_weight(w, 1, c.cols);
        double* expect = malloc(count * sizeof *expect);
        for (int r = 0; r < c.rows; r++) {
            const float* from = x + r * c.cols;
            double mean = 0.0, square = 0.0;
            for (int k = 0; k < c.cols && c.layer; k++) { mean += (double)from[k] / c.cols; }
            for (int k = 0; k < c.cols; k++) { square += ((double)from[k] - mean) * ((double)from[k] - mean); }
            double factor = c.layer ? 1.0 / sqrt(square / c.cols + 1e-6) : sqrt(c.cols) / fmax(sqrt(square), 1e-12);
            for (int k = 0; k < c.cols; k++) {
                double v = ((double)from[k] - mean) * factor * (double)w[k];
                expect[r * c.cols + k] = v / (1.0 + exp(-v));
            }
        }
        scene s = {.build = build_row,
                   .context = &c,
                   .inputs = {NULL, x},
                   .part_rows = 2,
                   .expect = expect,
                   .absolute = 2e-6,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(x), free(w), free(expect);
    }
}

TEST(qk_norm_rope_agrees_with_the_reference)
{
    static const int dims[] = {2, 6, 32, 64, 96, 128, 134};
    for (int i = 0; i < 28; i++) {
        row_case c = {.kind = SUMI_OP_QK_NORM_ROPE,
                      .rows = 11,
                      .row = i % 3,
                      .q_heads = 4,
                      .kv_heads = 2,
                      .dim = dims[i / 4],
                      .has_weight = i & 1,
                      .rotary = i & 2 ? SUMI_ROTARY_HALVES : SUMI_ROTARY_INTERLEAVED};
        int cols = 8 * c.dim, dim = c.dim, pairs = dim / 2;
        size_t count = (size_t)(c.rows + c.row) * (size_t)cols;
        float *x = random_floats(count, 2.0f), *rope = random_floats((size_t)(c.rows + 2) * (size_t)dim, 1.0f),
              *wq = random_floats((size_t)dim, 1.0f), *wk = random_floats((size_t)dim, 1.0f);
        c.w = float_weight(wq, 1, dim);
        c.w2 = float_weight(wk, 1, dim);
        double* expect = malloc(count * sizeof *expect);
        for (size_t k = 0; k < count; k++) { expect[k] = (double)x[k]; }
        for (int r = 0; r < c.rows; r++) {
            for (int h = 0; h < 6; h++) {
                double* v = expect + (size_t)(r + c.row) * (size_t)cols + (size_t)(h * dim);
                double square = 0.0;
                for (int d = 0; d < dim; d++) { square += v[d] * v[d] / dim; }
                for (int d = 0; d < dim && c.has_weight; d++) {
                    v[d] *= (double)(h < 4 ? wq : wk)[d] / sqrt(square + 1e-6);
                }
                for (int k = 0; k < pairs; k++) {
                    double cosine = (double)rope[(r + 2) * dim + 2 * k], sine = (double)rope[(r + 2) * dim + 2 * k + 1];
                    double *a = c.rotary == SUMI_ROTARY_HALVES ? v + k : v + 2 * k,
                           *b = c.rotary == SUMI_ROTARY_HALVES ? v + k + pairs : v + 2 * k + 1, p = *a, q = *b;
                    *a = p * cosine - q * sine;
                    *b = p * sine + q * cosine;
                }
            }
        }
        scene s = {.build = build_row,
                   .context = &c,
                   .inputs = {x, rope, NULL},
                   .part_rows = 3,
                   .expect = expect,
                   .absolute = 3e-6,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(x), free(rope), free(wq), free(wk), free(expect);
    }
}

TEST(activations_and_gating_agree_with_the_reference_to_the_ends_of_the_range)
{
    static const float special[] = {0.0f,    -0.0f, 1e-30f, -1e-30f, 87.0f,  -87.0f, 89.0f,  -89.0f, 200.0f,
                                    -200.0f, 1e30f, -1e30f, 3e38f,   -3e38f, 17.3f,  -17.3f, 9.0f,   -9.0f};
    for (int a = SUMI_ACT_NONE; a <= SUMI_ACT_TANH; a++) {
        for (int is_gated = 0; is_gated < 2; is_gated++) {
            row_case c = {.kind = is_gated ? SUMI_OP_GATED : SUMI_OP_ACTIVATE,
                          .rows = 37,
                          .cols = 43,
                          .activation = (sumi_activation)a};
            int x_cols = is_gated ? 86 : 43;
            float* x = random_floats(37 * 86, 12.0f);
            for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
                x[(i / 9) * (size_t)x_cols + i % 9] = special[i];
                x[(i / 9) * (size_t)x_cols + i % 9 + 43] = is_gated ? 0.5f : x[(i / 9) * (size_t)x_cols + i % 9 + 43];
            }
            double expect[37 * 43];
            for (int i = 0; i < 37 * 43; i++) {
                expect[i] = act_double(c.activation, (double)x[i / 43 * x_cols + i % 43])
                          * (is_gated ? (double)x[i / 43 * x_cols + i % 43 + 43] : 1.0);
            }
            scene s = {.build = build_row,
                       .context = &c,
                       .inputs = {NULL, x, NULL},
                       .part_rows = 3,
                       .expect = expect,
                       .absolute = is_gated ? 1e-5 : 1e-6,
                       .relative = 1e-6};
            free(scene_run(&s));
            free(x);
        }
    }
}

// ---- Embedding, copies, tables --------------------------------------------------------------------------------------
typedef struct misc_case {
    int kind;
    sumi_weight w, bias;
    sumi_span spans[2];
    int flag;
} misc_case;
static const int32_t s_pairs[3] = {3, 2, 4};
static const int32_t s_items[3] = {1, 0, 1}, s_begins[3] = {14, 0, 7};

static void build_misc(bench* b, scene* s)
{
    misc_case* c = s->context;
    sumi_plan* p = &b->plan;
    sumi_patch_layout layout = {4, 6, 5, 3, s_items, s_begins, c->flag != 0};
    s->value_count = 2;
    switch (c->kind) {
    case SUMI_OP_EMBED_ROWS:
        s->values[1] = sumi_plan_bound(p, "ids", SUMI_ELEMENT_INT, 9, 1);
        s->values[0] = c->flag ? sumi_plan_embed_rows_biased(p, s->values[1], &c->w, &c->bias)
                               : sumi_plan_embed_rows(p, s->values[1], &c->w, 0.5f);
        break;
    case SUMI_OP_MEAN_ROWS:
        s->values[1] = bench_value(b, 300, 21);
        s->values[0] = sumi_plan_mean_rows(p, "means", s->values[1], c->spans, 2);
        break;
    case SUMI_OP_FILL_ROWS:
        s->values[0] = bench_value(b, 12, 21);
        s->value_count = 1;
        sumi_plan_fill_rows(p, s->values[0], &c->w, c->spans, 2);
        break;
    case SUMI_OP_COPY_ROWS:
        s->values[0] = bench_value(b, 12, 21);
        s->values[1] = bench_value(b, 9, 21);
        sumi_plan_copy_rows(
            p, &(sumi_plan_copy_args){.x = s->values[1], .x_row = 2, .y = s->values[0], .y_row = 5, .rows = 7});
        break;
    case SUMI_OP_ROPE_TABLE:
        s->values[1] = sumi_plan_bound(p, "positions", SUMI_ELEMENT_INT, 9, 3);
        s->values[0] = sumi_plan_rope_table(p, &(sumi_plan_rope_args){.positions = s->values[1],
                                                                      .axes = 3,
                                                                      .pairs = {s_pairs[0], s_pairs[1], s_pairs[2]},
                                                                      .theta = 256.0});
        break;
    case SUMI_OP_TIME_EMBED:
        s->values[1] = bench_value(b, 5, 1);
        s->values[0] = sumi_plan_time_embed(p, &(sumi_plan_time_args){.times = s->values[1],
                                                                      .width = 256,
                                                                      .scale = 1000.0f,
                                                                      .max_period = 10000.0f,
                                                                      .cos_first = c->flag != 0});
        break;
    case SUMI_OP_FINISH_MODULATION:
        s->values[0] = bench_value(b, 5, 28);
        s->value_count = 1;
        if (c->flag != 2) {
            sumi_plan_finish_modulation(p, s->values[0], c->flag != 0);
            break;
        }
        s->value_count = 2;
        s->values[1] = s->values[0];
        s->values[0] = sumi_plan_modulation(p, &(sumi_plan_modulation_args){.label = "row",
                                                                            .table = s->values[1],
                                                                            .parts = 7,
                                                                            .adds_one = 1 << 1 | 1 << 5,
                                                                            .squashes = 1 << 6,
                                                                            .rows = 2,
                                                                            .x_row = 1,
                                                                            .per_step = true});
        break;
    case SUMI_OP_PATCHIFY:
        s->values[0] = bench_value(b, 21, 20);
        s->values[1] = bench_value(b, 10, 24);
        sumi_plan_patchify(p, s->values[1], &layout, s->values[0]);
        break;
    default: // there and back: sequences keep their own planes
        s->values[1] = bench_value(b, 10, 24);
        s->values[2] = bench_value(b, 21, 20);
        s->value_count = 3;
        sumi_plan_patchify(p, s->values[1], &layout, s->values[2]);
        s->values[0] = sumi_plan_unpatchify(p, s->values[2], &layout, -1.0f);
        break;
    }
    if (s->values[0].id != 0) { p->values[s->values[0].id - 1].bound = true; }
}

TEST(embedding_filling_and_copying_move_the_right_rows)
{
    float *table = random_floats(30 * 21, 1.0f), *y = random_floats(12 * 21, 1.0f);
    int32_t ids[9];
    double expect[12 * 21];
    misc_case c = {.kind = SUMI_OP_EMBED_ROWS, .w = float_weight(table, 30, 21)};
    for (int i = 0; i < 9; i++) {
        ids[i] = i == 4 ? 29 : random_below(30);
        for (int k = 0; k < 21; k++) { expect[i * 21 + k] = 0.5 * (double)table[ids[i] * 21 + k]; }
    }
    scene s = {.build = build_misc, .context = &c, .inputs = {NULL, ids}, .part_rows = 2, .expect = expect};
    free(scene_run(&s));
    ids[3] = 30; // one too far
    bench b;
    bench_begin(&b);
    build_misc(&b, &s);
    if (bench_ready(&b)) {
        bench_write(&b, s.values[1], ids);
        sumi_slice all = {0, 1, 0, b.plan.ops[0].part_count, 0.0f};
        CHECK(b.runner->functions->run(b.runner, &b.plan, &all, 0, &b.error) == SUMI_INTERNAL);
    }
    bench_end(&b);

    c = (misc_case){.kind = SUMI_OP_FILL_ROWS, .w = float_weight(table, 1, 21), .spans = {{1, 3}, {10, 2}}};
    for (int i = 0; i < 12 * 21; i++) {
        bool is_filled = (i / 21 >= 1 && i / 21 < 4) || i / 21 >= 10;
        expect[i] = (double)(is_filled ? table[i % 21] : y[i]);
    }
    scene fill = {.build = build_misc, .context = &c, .inputs = {y}, .part_rows = 1, .expect = expect};
    free(scene_run(&fill));
    c.kind = SUMI_OP_COPY_ROWS;
    for (int i = 0; i < 12 * 21; i++) { expect[i] = (double)(i / 21 >= 5 ? table[i - 3 * 21] : y[i]); }
    scene copy = {.build = build_misc, .context = &c, .inputs = {y, table}, .part_rows = 2, .expect = expect};
    free(scene_run(&copy));
    free(table), free(y);
}

TEST(a_bias_is_added_to_every_embedded_row)
{
    float *table = random_floats(30 * 21, 1.0f), *bias = random_floats(21, 1.0f);
    int32_t ids[9];
    double expect[9 * 21];
    misc_case c = {.kind = SUMI_OP_EMBED_ROWS, .flag = 1};
    c.w = float_weight(table, 30, 21);
    c.bias = float_weight(bias, 1, 21);
    for (int i = 0; i < 9 * 21; i++) {
        if (i % 21 == 0) { ids[i / 21] = random_below(30); }
        expect[i] = (double)(table[ids[i / 21] * 21 + i % 21] + bias[i % 21]);
    }
    scene s = {.build = build_misc, .context = &c, .inputs = {NULL, ids}, .part_rows = 2, .expect = expect};
    free(scene_run(&s));
    free(table), free(bias);
}

TEST(embedded_rows_and_their_bias_have_their_changes)
{
    changed_weight table, bias;
    int32_t ids[9];
    double expect[9 * 21];
    make_changed(&table, SUMI_DTYPE_BF16, 30, 21, 3);
    make_changed(&bias, SUMI_DTYPE_BF16, 1, 21, 2);
    misc_case c = {.kind = SUMI_OP_EMBED_ROWS, .flag = 1, .w = table.weight, .bias = bias.weight};
    for (int i = 0; i < 9 * 21; i++) {
        if (i % 21 == 0) { ids[i / 21] = random_below(30); }
        expect[i] = (double)table.merged[ids[i / 21] * 21 + i % 21] + (double)bias.merged[i % 21];
    }
    scene s = {.build = build_misc,
               .context = &c,
               .inputs = {NULL, ids},
               .part_rows = 2,
               .expect = expect,
               .absolute = 1e-6,
               .relative = 1e-6};
    free(scene_run(&s));
    free_changed(&table);
    free_changed(&bias);
}

TEST(means_are_of_their_spans_alone)
{
    float* x = random_floats(300 * 21, 1.0f);
    double expect[2 * 21] = {0};
    misc_case c = {.kind = SUMI_OP_MEAN_ROWS, .spans = {{40, 1}, {7, 290}}};
    for (int k = 0; k < 21; k++) {
        expect[k] = (double)x[40 * 21 + k];
        for (int r = 7; r < 297; r++) { expect[21 + k] += (double)x[r * 21 + k] / 290; }
    }
    scene s = {.build = build_misc, .context = &c, .inputs = {NULL, x}, .expect = expect, .absolute = 1e-6};
    free(scene_run(&s));
    free(x);
}

TEST(rotary_time_and_modulation_tables_agree_with_the_reference)
{
    int32_t positions[27];
    double expect[9 * 18];
    for (int i = 0; i < 27; i++) { positions[i] = i * 37 % 500; }
    for (int r = 0; r < 9; r++) {
        int pair = 0;
        for (int axis = 0; axis < 3; axis++) {
            for (int k = 0; k < s_pairs[axis]; k++, pair++) {
                double angle = (double)(float)(positions[r * 3 + axis] * pow(256.0, -(double)k / s_pairs[axis]));
                expect[r * 18 + 2 * pair] = cos(angle);
                expect[r * 18 + 2 * pair + 1] = sin(angle);
            }
        }
    }
    misc_case c = {.kind = SUMI_OP_ROPE_TABLE};
    scene rope = {// an angle of 500 in float
                  .build = build_misc, .context = &c,    .inputs = {NULL, positions},
                  .part_rows = 2,      .expect = expect, .absolute = 4e-5};
    free(scene_run(&rope));

    // values from the reference, for 1000 t = 45.45458984
    float times[5] = {0.0f, 0.04545459f, 0.1f, 0.5f, 1.0f};
    for (int cos_first = 0; cos_first < 2; cos_first++) {
        c = (misc_case){.kind = SUMI_OP_TIME_EMBED, .flag = cos_first};
        scene time = {.build = build_misc, .context = &c, .inputs = {NULL, times}, .part_rows = 2};
        float* e = scene_run(&time);
        static const int at[] = {0, 1, 2, 64, 127, 128, 129, 192, 255};
        static const double want[] = {0.09834, -0.11249, -0.09201, 0.89846, 0.99999,
                                      0.99515, -0.99365, 0.43905,  0.00488};
        for (int i = 0; i < 9; i++) {
            CHECK_NEAR((double)e[256 + (cos_first ? at[i] : (at[i] + 128) % 256)], want[i], 2e-5, 0.0);
            CHECK_NEAR((double)e[(cos_first ? at[i] : (at[i] + 128) % 256)], at[i] < 128 ? 1.0 : 0.0, 0.0, 0.0);
        }
        free(e);
    }

    float* table = random_floats(5 * 28, 2.0f);
    for (int has_gates = 0; has_gates < 2; has_gates++) {
        for (int i = 0; i < 5 * 28; i++) {
            expect[i] = has_gates && i % 28 / 7 % 2 == 1 ? tanh((double)table[i]) : 1.0 + (double)table[i];
        }
        c = (misc_case){.kind = SUMI_OP_FINISH_MODULATION, .flag = has_gates};
        scene finish = {
            .build = build_misc, .context = &c, .inputs = {table}, .part_rows = 2, .expect = expect, .absolute = 1e-6};
        free(scene_run(&finish));
    }
    // two rows of their own, from the row behind the step's on
    for (int i = 0; i < 2 * 28; i++) {
        double v = (double)table[3 * 28 + i];
        expect[i] = i % 28 / 4 == 6 ? tanh(v) : i % 28 / 4 == 1 || i % 28 / 4 == 5 ? 1.0 + v : v;
    }
    c.flag = 2;
    scene rows = {.build = build_misc,
                  .context = &c,
                  .inputs = {NULL, table},
                  .part_rows = 1,
                  .counter = 2,
                  .expect = expect,
                  .absolute = 1e-6};
    free(scene_run(&rows));
    free(table);
}

TEST(patches_put_channels_or_pixels_fastest_and_come_back)
{
    float* latents = random_floats(10 * 24, 1.0f);
    double rows[21 * 20] = {0}, planes[15 * 24], by_channel[21 * 20] = {0};
    for (int s = 0; s < 3; s++) {
        for (int t = 0; t < 6; t++) {
            for (int f = 0; f < 20; f++) {
                int y = t / 3 * 2 + f / 10, x = t % 3 * 2 + f / 5 % 2, channel = f % 5;
                double value = (double)latents[(s_items[s] * 5 + channel) * 24 + y * 6 + x];
                rows[(s_begins[s] + t) * 20 + f] = value;
                by_channel[(s_begins[s] + t) * 20 + channel * 4 + f / 5] = value;
            }
        }
        for (int i = 0; i < 5 * 24; i++) { planes[s * 120 + i] = -(double)latents[s_items[s] * 120 + i]; }
    }
    misc_case c = {.kind = SUMI_OP_PATCHIFY};
    scene there = {.build = build_misc, .context = &c, .inputs = {NULL, latents}, .part_rows = 1, .expect = rows};
    free(scene_run(&there));
    c.kind = SUMI_OP_UNPATCHIFY;
    scene back = {.build = build_misc, .context = &c, .inputs = {NULL, latents}, .part_rows = 1, .expect = planes};
    free(scene_run(&back));
    c.flag = 1;
    free(scene_run(&back));
    c.kind = SUMI_OP_PATCHIFY;
    there.expect = by_channel;
    free(scene_run(&there));
    free(latents);
}

// ---- Latents --------------------------------------------------------------------------------------------------------
typedef struct latent_case {
    int kind;
    bool has_mask;
    float limit;
    int flag;
    bool per_channel; // statistics
} latent_case;
static const float s_scales[4] = {0.3611f, -1.5f, 2.25f, 0.7f}, s_shifts[4] = {0.1159f, 0.75f, -0.5f, 0.0f};
static sumi_latent_statistics statistics_of(const latent_case* c)
{
    return (sumi_latent_statistics){s_scales, s_shifts, c->per_channel ? 4 : 1};
}
static const int32_t s_positive[2] = {2, 0}, s_negative[2] = {1, -1};
static const float s_bias[3] = {0.1f, -0.2f, 0.3f};

static void build_latent(bench* b, scene* s)
{
    latent_case* c = s->context;
    sumi_plan* p = &b->plan;
    enum { PLANE = 35, CHANNELS = 4, ITEMS = 2 };
    sumi_value step = bench_value(b, 3, 14), x = bench_value(b, ITEMS * CHANNELS, PLANE);
    s->values[1] = step;
    s->values[2] = x;
    s->value_count = 3;
    sumi_step_row row = {step, 2, true};
    switch (c->kind) {
    case SUMI_OP_ADD_NOISE:
        s->values[3] = bench_value(b, ITEMS * CHANNELS, PLANE);
        s->values[0] = bench_value(b, ITEMS * CHANNELS, PLANE);
        s->value_count = 4;
        sumi_plan_add_noise(p, x, s->values[3], row, s->values[0]);
        break;
    case SUMI_OP_SOLVE: // x, y, h, v, noise, clean, mask
        s->values[0] = x;
        for (int i = 2; i < 7; i++) { s->values[i] = bench_value(b, ITEMS * CHANNELS, PLANE); }
        s->values[7] = bench_value(b, ITEMS, PLANE);
        s->value_count = 8;
        sumi_plan_solve(p, &(sumi_plan_solve_args){.x = x,
                                                   .y = s->values[2],
                                                   .h = s->values[3],
                                                   .v = s->values[4],
                                                   .noise = s->values[5],
                                                   .clean = s->values[6],
                                                   .mask = c->has_mask ? s->values[7] : SUMI_NO_VALUE,
                                                   .row = row,
                                                   .channels = CHANNELS});
        break;
    case SUMI_OP_GUIDE:
        s->values[2] = bench_value(b, 3 * CHANNELS, PLANE);
        s->values[0] = sumi_plan_guide(p, &(sumi_plan_guide_args){.predictions = s->values[2],
                                                                  .item_count = 2,
                                                                  .channels = CHANNELS,
                                                                  .positive = s_positive,
                                                                  .negative = s_negative,
                                                                  .scale = row,
                                                                  .rule = SUMI_GUIDANCE_NORM_LIMIT,
                                                                  .norm_limit = c->limit});
        break;
    case SUMI_OP_PREVIEW:
        s->values[3] = bench_value(b, ITEMS * CHANNELS, PLANE);
        s->values[0] = bench_value(b, ITEMS * 3, PLANE);
        s->value_count = 4;
        sumi_plan_preview(p, &(sumi_plan_preview_args){.x = x,
                                                       .v = s->values[3],
                                                       .sigma = row,
                                                       .channels = CHANNELS,
                                                       .factors = (const float*)s->inputs[4],
                                                       .bias = s_bias,
                                                       .rgb = s->values[0]});
        break;
    case SUMI_OP_POSTERIOR:
        s->values[2] = bench_value(b, PLANE, 2 * CHANNELS);
        s->values[3] = bench_value(b, CHANNELS, PLANE);
        s->values[0] = bench_value(b, CHANNELS, PLANE);
        s->value_count = 4;
        sumi_plan_posterior(p, &(sumi_plan_posterior_args){.moments = s->values[2],
                                                           .eps = c->flag ? s->values[3] : SUMI_NO_VALUE,
                                                           .channels = CHANNELS,
                                                           .statistics = statistics_of(c),
                                                           .latents = s->values[0]});
        break;
    default: // a 3 x 4 tile of 5 x 7 latents
        s->values[0] = sumi_plan_latent_in(p, &(sumi_plan_latent_args){.latents = x,
                                                                       .channels = CHANNELS,
                                                                       .height = 5,
                                                                       .width = 7,
                                                                       .tile = (sumi_tile){1, 2, 3, 4},
                                                                       .statistics = statistics_of(c),
                                                                       .per_item = c->flag != 0});
        break;
    }
    if (s->values[0].id != 0) { p->values[s->values[0].id - 1].bound = true; }
}

TEST(noise_guidance_and_preview_agree_with_the_reference)
{
    enum { PLANE = 35, ALL = 8 * PLANE };
    float *a = random_floats(ALL * 2, 1.0f), *d = random_floats(ALL, 1.0f), *steps = random_floats(3 * 14, 1.0f),
          *factors = random_floats(12, 1.0f);
    double expect[ALL];
    double sigma = (double)steps[14 + 2];
    latent_case c = {.kind = SUMI_OP_ADD_NOISE};
    for (int i = 0; i < ALL; i++) { expect[i] = sigma * (double)a[i] + (1.0 - sigma) * (double)d[i]; }
    scene noise = {.build = build_latent,
                   .context = &c,
                   .inputs = {NULL, steps, a, d},
                   .part_rows = 3,
                   .counter = 1,
                   .expect = expect,
                   .absolute = 1e-6};
    free(scene_run(&noise));

    steps[14 + 2] = 1.7f;
    for (int limited = 0; limited < 2; limited++) {
        c = (latent_case){.kind = SUMI_OP_GUIDE, .limit = limited ? 0.9f : 0.0f};
        double before = 0.0, after = 0.0;
        for (int i = 0; i < 4 * PLANE; i++) {
            double positive = (double)a[8 * PLANE + i], negative = (double)a[4 * PLANE + i];
            expect[i] = positive + (double)1.7f * (positive - negative);
            before += positive * positive;
            after += expect[i] * expect[i];
            expect[4 * PLANE + i] = (double)a[i]; // no negative
        }
        for (int i = 0; limited && i < 4 * PLANE; i++) { expect[i] *= sqrt(before / after) * (double)0.9f; }
        scene guide = {.build = build_latent,
                       .context = &c,
                       .inputs = {NULL, steps, a},
                       .part_rows = 1,
                       .counter = 1,
                       .expect = expect,
                       .absolute = 1e-6,
                       .relative = 1e-6};
        free(scene_run(&guide));
    }

    c = (latent_case){.kind = SUMI_OP_PREVIEW};
    for (int item = 0; item < 2; item++) {
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < PLANE; i++) {
                double sum = (double)s_bias[k];
                for (int ch = 0; ch < 4; ch++) {
                    int at = (item * 4 + ch) * PLANE + i;
                    sum += ((double)a[at] - (double)1.7f * (double)d[at]) * (double)factors[ch * 3 + k];
                }
                expect[(item * 3 + k) * PLANE + i] = sum;
            }
        }
    }
    scene preview = {.build = build_latent,
                     .context = &c,
                     .inputs = {NULL, steps, a, d, factors},
                     .part_rows = 1,
                     .counter = 1,
                     .expect = expect,
                     .absolute = 2e-6};
    free(scene_run(&preview));
    free(a), free(d), free(steps), free(factors);
}

typedef struct rescale_case {
    int height, width, channels, patch;
} rescale_case;
static void build_rescale(bench* b, scene* s)
{
    const rescale_case* c = s->context;
    s->values[1] = bench_value(b, 3, 14);
    s->values[2] = bench_value(b, 3 * c->channels, c->height * c->width);
    s->value_count = 3;
    s->values[0] = sumi_plan_guide(&b->plan, &(sumi_plan_guide_args){.predictions = s->values[2],
                                                                     .item_count = 2,
                                                                     .channels = c->channels,
                                                                     .positive = s_positive,
                                                                     .negative = s_negative,
                                                                     .scale = {s->values[1], 2, true},
                                                                     .rule = SUMI_GUIDANCE_NORM_RESCALE,
                                                                     .width = c->width,
                                                                     .patch_size = c->patch});
    if (s->values[0].id != 0) { b->plan.values[s->values[0].id - 1].bound = true; }
}

// Each token ends as long as the positive prediction's, in the direction of the guided one; one that guidance makes
// zero stays zero.
TEST(guidance_rescales_each_token)
{
    static const rescale_case cases[] = {{6, 8, 4, 2}, {5, 7, 3, 1}, {6, 9, 2, 3}, {2, 2, 16, 2}};
    float* steps = random_floats(3 * 14, 1.0f);
    steps[14 + 2] = 3.0f;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        rescale_case c = cases[k];
        const int plane = c.height * c.width, count = c.channels * plane, columns = c.width / c.patch;
        const int token_count = plane / (c.patch * c.patch);
        float* x = random_floats(3 * count, 1.0f);
        double *expect = calloc(2 * (size_t)count, sizeof *expect),
               *before = calloc((size_t)token_count, sizeof(double)),
               *after = calloc((size_t)token_count, sizeof(double));
        for (int i = 0; i < count; i++) { // positive is sequence 2, negative 1; the second item has no negative
            const int y = i % plane / c.width, column = i % c.width, t = y / c.patch * columns + column / c.patch;
            if (t == 1) { x[2 * count + i] = x[count + i] = 0.0f; }
            const double p = (double)x[2 * count + i], n = (double)x[count + i];
            expect[i] = p + 3.0 * (p - n);
            expect[count + i] = (double)x[i];
            before[t] += p * p;
            after[t] += expect[i] * expect[i];
        }
        for (int i = 0; i < count; i++) {
            const int y = i % plane / c.width, column = i % c.width, t = y / c.patch * columns + column / c.patch;
            expect[i] *= after[t] > 0.0 ? sqrt(before[t] / after[t]) : 0.0;
        }
        scene s = {.build = build_rescale,
                   .context = &c,
                   .inputs = {NULL, steps, x},
                   .part_rows = 1,
                   .counter = 1,
                   .expect = expect,
                   .absolute = 1e-6,
                   .relative = 1e-6};
        free(scene_run(&s));
        free(x), free(expect), free(before), free(after);
    }
    free(steps);
}

TEST(solver_rows_update_all_states_and_ignore_unwritten_ones)
{
    enum { PLANE = 35, ALL = 8 * PLANE };
    float *v[6], *mask = random_floats(2 * PLANE, 1.0f), *steps = random_floats(3 * 14, 1.0f);
    for (int i = 0; i < 6; i++) { v[i] = random_floats(ALL, 1.0f); }
    for (int i = 0; i < 2 * PLANE; i++) { mask[i] = mask[i] > 0.0f ? 1.0f : 0.0f; }
    double expect[ALL];
    for (int mode = 0; mode < 4; mode++) {
        float* r = steps + 14 + 2; // counter 1, column 2: cx cy cv ch hx hv hh keeps sigma blend ...
        r[7] = mode & 1 ? 1.0f : 0.0f;
        r[9] = mode & 2 ? 0.25f : -1.0f;
        latent_case c = {.kind = SUMI_OP_SOLVE, .has_mask = true};
        for (int i = 0; i < ALL; i++) {
            double x = (double)r[0] * (double)v[0][i] + (double)r[1] * (double)v[1][i] + (double)r[2] * (double)v[3][i]
                     + (double)r[3] * (double)v[2][i];
            double m = (double)mask[i / (4 * PLANE) * PLANE + i % PLANE];
            expect[i] = mode & 2 ? (1.0 - m) * (0.25 * (double)v[4][i] + 0.75 * (double)v[5][i]) + m * x : x;
        }
        scene s = {.build = build_latent,
                   .context = &c,
                   .inputs = {v[0], steps, v[1], v[2], v[3], v[4], v[5], mask},
                   .part_rows = 3,
                   .counter = 1,
                   .expect = expect,
                   .absolute = 1e-6};
        void* out[MAX_SCENE_VALUES] = {0};
        free(scene_run(&s));
        s_level = SUMI_CPU_PORTABLE;
        scene_once(&s, 1, SPLIT_NONE, out);
        for (int i = 0; i < ALL && out[0] != NULL; i++) {
            double h = (double)r[4] * (double)v[0][i] + (double)r[5] * (double)v[3][i] + (double)r[6] * (double)v[2][i];
            CHECK_NEAR((double)((float*)out[3])[i], h, 1e-6, 0.0);
            CHECK(((float*)out[2])[i] == (mode & 1 ? v[1][i] : ((float*)out[0])[i]));
        }
        for (int i = 0; i < MAX_SCENE_VALUES; i++) { free(out[i]); }
    }
    // Euler, x' = x + d v: exactly the float result, with states that hold NaN
    memset(steps + 14 + 2, 0, 12 * sizeof(float));
    steps[14 + 2] = 1.0f;
    steps[14 + 4] = -0.045454558f;
    steps[14 + 2 + 9] = -1.0f;
    for (int i = 0; i < ALL; i++) {
        v[1][i] = v[2][i] = NAN;
        float step = steps[14 + 4] * v[3][i];
        expect[i] = (double)(v[0][i] + step);
    }
    latent_case c = {.kind = SUMI_OP_SOLVE};
    scene s = {.build = build_latent,
               .context = &c,
               .inputs = {v[0], steps, v[1], v[2], v[3], v[4], v[5], mask},
               .part_rows = 3,
               .counter = 1,
               .expect = expect};
    free(scene_run(&s));
    for (int i = 0; i < 6; i++) { free(v[i]); }
    free(mask), free(steps);
}

TEST(latents_enter_and_leave_the_vae)
{
    enum { PLANE = 35 };
    float *moments = random_floats(PLANE * 8, 1.0f), *eps = random_floats(4 * PLANE, 1.0f),
          *latents = random_floats(8 * PLANE, 1.0f);
    moments[4] = 100.0f; // clamped at 20
    double expect[8 * PLANE];
    for (int mode = 0; mode < 4; mode++) {
        const int has_noise = mode & 1;
        const bool per_channel = (mode & 2) != 0;
        latent_case c = {.kind = SUMI_OP_POSTERIOR, .flag = has_noise, .per_channel = per_channel};
        for (int ch = 0; ch < 4; ch++) {
            for (int i = 0; i < PLANE; i++) {
                double variance = (double)moments[i * 8 + 4 + ch];
                double z =
                    (double)moments[i * 8 + ch]
                    + (has_noise ? exp(0.5 * (variance > 20.0 ? 20.0 : variance)) * (double)eps[ch * PLANE + i] : 0.0);
                expect[ch * PLANE + i] =
                    (z - (double)s_shifts[per_channel ? ch : 0]) * (double)s_scales[per_channel ? ch : 0];
            }
        }
        scene s = {.build = build_latent,
                   .context = &c,
                   .inputs = {NULL, NULL, moments, eps},
                   .expect = expect,
                   .absolute = 1e-6,
                   .relative = 1e-6};
        free(scene_run(&s));
        c = (latent_case){.kind = SUMI_OP_LATENT_IN, .flag = has_noise, .per_channel = per_channel};
        for (int i = 0; i < 12 * 4; i++) {
            int y = 1 + i / 16, x = 2 + i / 4 % 4, item = has_noise ? 1 : 0, channel = per_channel ? i % 4 : 0;
            expect[i] = (double)latents[(item * 4 + i % 4) * PLANE + y * 7 + x] / (double)s_scales[channel]
                      + (double)s_shifts[channel];
        }
        scene in = {.build = build_latent,
                    .context = &c,
                    .inputs = {NULL, NULL, latents},
                    .part_rows = 5,
                    .counter = 1,
                    .expect = expect,
                    .absolute = 1e-6};
        free(scene_run(&in));
    }
    free(moments), free(eps), free(latents);
}

// ---- Pixels and tiles -----------------------------------------------------------------------------------------------
typedef struct tile_case {
    int kind;
} tile_case;
static void build_tile(bench* b, scene* s)
{
    const tile_case* c = s->context;
    sumi_plan* p = &b->plan;
    s->value_count = 2;
    switch (c->kind) {
    case SUMI_OP_PIXELS_IN: // rows 2..4, columns 1..5 of a 6 x 7 picture
        s->values[1] = sumi_plan_bound(p, "bytes", SUMI_ELEMENT_BYTE, 42, 3);
        s->values[0] = sumi_plan_pixels_in(p, s->values[1], 7, (sumi_tile){2, 1, 3, 5});
        break;
    case SUMI_OP_COMPOSITE: // three pictures of 7 pixels
        s->values[0] = bench_value(b, 21, 3);
        s->values[1] = sumi_plan_bound(p, "beneath", SUMI_ELEMENT_BYTE, 7, 3);
        s->values[2] = sumi_plan_bound(p, "opacity", SUMI_ELEMENT_BYTE, 7, 1);
        s->value_count = 3;
        sumi_plan_composite(p, s->values[0], s->values[1], s->values[2]);
        break;
    case SUMI_OP_PIXELS_OUT:
        s->values[1] = bench_value(b, 20, 3);
        s->values[2] = sumi_plan_bound(p, "bad", SUMI_ELEMENT_INT, 1, 1);
        s->values[0] = sumi_plan_bound(p, "bytes", SUMI_ELEMENT_BYTE, 20, 3);
        s->value_count = 3;
        sumi_plan_pixels_out(p, s->values[1], s->values[0], s->values[2]);
        break;
    case SUMI_OP_TILE_BLEND: // 6 x 5, above 4 high, left 3 wide
        s->values[0] = bench_value(b, 30, 2);
        s->values[1] = bench_value(b, 20, 2);
        s->values[2] = bench_value(b, 18, 2);
        s->value_count = 3;
        sumi_plan_tile_blend(p, &(sumi_plan_blend_args){.tile = s->values[0],
                                                        .height = 6,
                                                        .width = 5,
                                                        .above = s->values[1],
                                                        .above_height = 4,
                                                        .left = s->values[2],
                                                        .left_width = 3,
                                                        .extent = 4});
        break;
    default: // 3 x 2 of a 4 x 5 tile into the second of two 7 x 6 pictures
        s->values[0] = bench_value(b, 84, 2);
        s->values[1] = bench_value(b, 20, 2);
        sumi_plan_tile_place(p, &(sumi_plan_place_args){.tile = s->values[1],
                                                        .tile_width = 5,
                                                        .picture = s->values[0],
                                                        .picture_height = 7,
                                                        .picture_width = 6,
                                                        .kept = (sumi_tile){4, 3, 3, 2},
                                                        .per_item = true});
        break;
    }
    if (s->values[0].id != 0) { p->values[s->values[0].id - 1].bound = true; }
}

TEST(pixels_tiles_and_seams_agree_with_the_reference)
{
    uint8_t bytes[126];
    double expect[168];
    for (int i = 0; i < 126; i++) { bytes[i] = (uint8_t)(i * 2 + 5); }
    for (int i = 0; i < 45; i++) { expect[i] = bytes[((2 + i / 15) * 7 + 1 + i / 3 % 5) * 3 + i % 3] / 127.5 - 1.0; }
    tile_case c = {SUMI_OP_PIXELS_IN};
    scene in = {.build = build_tile,
                .context = &c,
                .inputs = {NULL, bytes},
                .part_rows = 4,
                .expect = expect,
                .absolute = 1e-6};
    free(scene_run(&in));

    float* picture = random_floats(60, 1.3f);
    picture[7] = NAN;
    picture[9] = INFINITY;
    picture[11] = -INFINITY;
    picture[12] = 2.0f * (0.5f / 255.0f) - 1.0f; // half way between 0 and 1: to even
    int32_t bad = 5;
    c.kind = SUMI_OP_PIXELS_OUT;
    scene out = {.build = build_tile, .context = &c, .inputs = {NULL, picture, &bad}};
    uint8_t* got = (uint8_t*)(void*)scene_run(&out);
    for (int i = 0; i < 60 && got != NULL; i++) {
        float v = fminf(fmaxf(picture[i] * 0.5f + 0.5f, 0.0f), 1.0f) * 255.0f;
        CHECK_NUMBER(got[i], i == 7 ? 0 : (int)nearbyintf(v));
    }
    free(got);
    void* all[MAX_SCENE_VALUES] = {0};
    scene_once(&out, 1, SPLIT_NONE, all);
    CHECK(all[2] != NULL && *(int32_t*)all[2] == 8);
    for (int i = 0; i < MAX_SCENE_VALUES; i++) { free(all[i]); }
    free(picture);

    float* pictures = random_floats(63, 1.0f);
    uint8_t opacity[7] = {0, 255, 128, 1, 254, 0, 255};
    for (int i = 0; i < 63; i++) {
        const double b = bytes[i % 21] / 127.5 - 1.0, share = opacity[i / 3 % 7] / 255.0;
        expect[i] = b + share * ((double)pictures[i] - b);
    }
    c.kind = SUMI_OP_COMPOSITE;
    scene over = {.build = build_tile,
                  .context = &c,
                  .inputs = {pictures, bytes, opacity},
                  .part_rows = 4,
                  .expect = expect,
                  .absolute = 1e-6};
    free(scene_run(&over));
    free(pictures);

    float *tile = random_floats(60, 1.0f), *above = random_floats(40, 1.0f), *left = random_floats(36, 1.0f),
          *whole = random_floats(168, 1.0f);
    for (int i = 0; i < 60; i++) { expect[i] = (double)tile[i]; }
    for (int i = 0; i < 4 * 10; i++) { // above: extent 4, all of it
        double t = i / 10 / 4.0;
        expect[i] = (double)above[i] * (1.0 - t) + expect[i] * t;
    }
    for (int y = 0; y < 6; y++) { // left: 3 columns are all there are
        for (int i = 0; i < 6; i++) {
            double t = i / 2 / 3.0;
            expect[y * 10 + i] = (double)left[y * 6 + i] * (1.0 - t) + expect[y * 10 + i] * t;
        }
    }
    c.kind = SUMI_OP_TILE_BLEND;
    scene blend = {
        .build = build_tile, .context = &c, .inputs = {tile, above, left}, .expect = expect, .absolute = 1e-6};
    free(scene_run(&blend));
    for (int i = 0; i < 168; i++) {
        int y = i / 12 - 7 - 4, x = i % 12 / 2 - 3;
        expect[i] = y >= 0 && y < 3 && x >= 0 && x < 2 ? (double)tile[(y * 5 + x) * 2 + i % 2] : (double)whole[i];
    }
    c.kind = SUMI_OP_TILE_PLACE;
    scene place = {
        .build = build_tile, .context = &c, .inputs = {whole, tile}, .part_rows = 2, .counter = 1, .expect = expect};
    free(scene_run(&place));
    free(tile), free(above), free(left), free(whole);
}

// ---- Golden single operations ---------------------------------------------------------------------------------------
#define GOLDEN "tests/golden/common/numerics/ops.safetensors"
static char* s_golden; // the file
static size_t s_golden_bytes;
static void* s_golden_tensors[256]; // copies handed out, freed at the end
static int s_golden_count;

// The floats of a tensor and their number; the test fails when it is missing. The header is JSON without escapes: a
// search is enough here.
static const float* golden(const char* name, int* out_count)
{
    static const float none[1] = {0};
    uint64_t header;
    char key[128];
    snprintf(key, sizeof key, "\"%s\":{", name);
    memcpy(&header, s_golden, 8);
    char saved = s_golden[8 + header];
    s_golden[8 + header] = 0;
    const char* at = strstr(s_golden + 8, key);
    const char* offsets = at == NULL ? NULL : strstr(at, "\"data_offsets\":[");
    unsigned long long begin = 0, end = 0;
    bool is_found = offsets != NULL && sscanf(offsets, "\"data_offsets\":[%llu,%llu]", &begin, &end) == 2;
    s_golden[8 + header] = saved;
    if (!is_found || 8 + header + end > s_golden_bytes) {
        printf("  no tensor %s\n", name);
        CHECK(!"a golden tensor");
        *out_count = 0;
        return none;
    }
    float* data = malloc((size_t)(end - begin) + 4);
    if (s_golden_count < 256) { s_golden_tensors[s_golden_count++] = data; }
    memcpy(data, s_golden + 8 + header + begin, (size_t)(end - begin));
    *out_count = (int)((end - begin) / sizeof(float));
    return data;
}
static const float* golden_of(const char* test, const char* part, int* out_count)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", test, part);
    return golden(name, out_count);
}
static bool golden_open(void)
{
    if (s_golden == NULL) {
        FILE* file = fopen(GOLDEN, "rb");
        if (file == NULL) { return false; }
        fseek(file, 0, SEEK_END);
        s_golden_bytes = (size_t)ftell(file);
        fseek(file, 0, SEEK_SET);
        s_golden = malloc(s_golden_bytes + 1);
        s_golden_bytes = fread(s_golden, 1, s_golden_bytes, file);
        fclose(file);
    }
    return s_golden_bytes > 8;
}
static double* doubles(const float* x, int count)
{
    double* d = malloc(((size_t)count + 1) * sizeof *d);
    for (int i = 0; i < count; i++) { d[i] = (double)x[i]; }
    return d;
}
static double* golden_doubles(const char* test, const char* part)
{
    int count;
    const float* x = golden_of(test, part, &count);
    return doubles(x, count);
}
// [channels][pixels] to [pixels][channels]
static float* channels_last(const float* x, int channels, int pixels)
{
    float* y = malloc((size_t)channels * (size_t)pixels * sizeof *y);
    for (int i = 0; i < channels * pixels; i++) { y[i % pixels * channels + i / pixels] = x[i]; }
    return y;
}

TEST(golden_norms_and_activations)
{
    if (!golden_open()) { SKIP(GOLDEN " is not there: run from the repository's root"); }
    static const struct {
        const char* name;
        int rows;
        double eps;
        bool is_layer, plus_one;
        double absolute, relative;
    } norms[] = {{"rms_norm.3x37.f32", 3, 1e-6, false, false, 1e-6, 1e-5},
                 {"rms_norm.5x256.f32", 5, 1e-5, false, false, 1e-6, 1e-5},
                 {"rms_norm.1x3.f32", 1, 1e-6, false, false, 1e-6, 1e-5},
                 {"rms_norm_large.f32", 2, 1e-6, false, false, 1e-6, 1e-5},
                 {"rms_norm_plus_one.3x37.f32", 3, 1e-6, false, true, 1e-6, 1e-5},
                 {"rms_norm_plus_one.5x256.f32", 5, 1e-5, false, true, 1e-6, 1e-5},
                 {"rms_norm_plus_one.1x3.f32", 1, 1e-6, false, true, 1e-6, 1e-5},
                 {"layer_norm.3x37.f32", 3, 1e-6, true, false, 1e-6, 1e-5},
                 {"layer_norm.5x256.f32", 5, 1e-6, true, false, 1e-6, 1e-5},
                 {"layer_norm.1x3.f32", 1, 1e-6, true, false, 1e-6, 1e-5},
                 {"layer_norm_offset.f32", 2, 1e-6, true, false, 1e-4, 1e-4}};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        int count, w_count = 0;
        const float *x = golden_of(norms[i].name, "input.x", &count),
                    *want = golden_of(norms[i].name, "expect", &count),
                    *w = norms[i].is_layer ? NULL : golden_of(norms[i].name, "input.w", &w_count);
        double* expect = doubles(want, count);
        bench b; // written by hand: eps and weight_plus_one are the op's
        for (size_t l = 0; l < 3; l++) {
            s_level = s_levels[l];
            sumi_cpu_features features = sumi_cpu_detect();
            if ((l == 1 && !features.avx2_fma_f16c) || (l == 2 && !features.avx512)) { continue; }
            bench_begin(&b);
            int cols = count / norms[i].rows;
            sumi_weight weight = float_weight(w, 1, cols);
            sumi_value in = bench_value(&b, norms[i].rows, cols);
            sumi_value out = sumi_plan_norm(
                &b.plan, &(sumi_plan_norm_args){.label = "norm",
                                                .x = in,
                                                .rows = norms[i].rows,
                                                .norm = norms[i].is_layer ? SUMI_NORM_LAYER : SUMI_NORM_RMS,
                                                .weight = w == NULL ? NULL : &weight,
                                                .eps = (float)norms[i].eps});
            b.plan.ops[0].u.norm.weight_plus_one = norms[i].plus_one;
            b.plan.values[out.id - 1].bound = true;
            if (bench_ready(&b)) {
                bench_write(&b, in, x);
                bench_run(&b, SPLIT_NONE, 0);
                float* got = bench_read(&b, out);
                for (int k = 0; k < count; k++) {
                    CHECK_NEAR((double)got[k], expect[k], norms[i].absolute, norms[i].relative);
                }
                free(got);
            }
            bench_end(&b);
        }
        free(expect);
    }
    static const struct {
        const char* name;
        sumi_activation activation;
    } acts[] = {{"silu.f32", SUMI_ACT_SILU},
                {"gelu_tanh.f32", SUMI_ACT_GELU_TANH},
                {"gelu_erf.f32", SUMI_ACT_GELU_ERF},
                {"tanh.f32", SUMI_ACT_TANH}};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        int count;
        const float* x = golden_of(acts[i].name, "input.x", &count);
        double* expect = golden_doubles(acts[i].name, "expect");
        row_case c = {.kind = SUMI_OP_ACTIVATE, .rows = 1, .cols = count, .activation = acts[i].activation};
        scene s = {.build = build_row,
                   .context = &c,
                   .inputs = {NULL, x},
                   .expect = expect,
                   .absolute = 1e-6,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(expect);
    }
    static const struct {
        const char* name;
        int cols, pixels;
    } groups[] = {
        {"group_norm.32x3x5.f32", 32, 15}, {"group_norm.64x2x3.f32", 64, 6}, {"group_norm.96x1x7.f32", 96, 7}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        int count, n;
        float* x = channels_last(golden_of(groups[i].name, "input.x", &count), groups[i].cols, groups[i].pixels);
        float* want = channels_last(golden_of(groups[i].name, "expect", &count), groups[i].cols, groups[i].pixels);
        double* expect = doubles(want, count);
        group_case c = {groups[i].pixels,
                        groups[i].cols,
                        32,
                        false,
                        float_weight(golden_of(groups[i].name, "input.w", &n), 1, groups[i].cols),
                        float_weight(golden_of(groups[i].name, "input.b", &n), 1, groups[i].cols),
                        i == 0 ? 4 : 0};
        scene s = {.build = build_group,
                   .context = &c,
                   .inputs = {NULL, x},
                   .expect = expect,
                   .absolute = 1e-6,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(x), free(want), free(expect);
    }
}

TEST(golden_products_and_convolutions)
{
    if (!golden_open()) { SKIP(GOLDEN " is not there: run from the repository's root"); }
    for (int i = 0; i < 2; i++) {
        const char* name = i == 0 ? "linear.f32" : "linear_one_row.f32";
        int n;
        const float *x = golden_of(name, "input.x", &n), *w = golden_of(name, "input.w", &n);
        linear_case c = {.m = i == 0 ? 5 : 1, .n = i == 0 ? 45 : 3, .k = i == 0 ? 67 : 129, .has_bias = i == 0};
        c.weight = float_weight(w, c.n, c.k);
        if (c.has_bias) { c.bias = float_weight(golden_of(name, "input.b", &n), 1, c.n); }
        double* expect = golden_doubles(name, "expect");
        scene s = {.build = build_linear,
                   .context = &c,
                   .inputs = {NULL, x, NULL},
                   .expect = expect,
                   .absolute = 1e-5,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(expect);
    }
    static const struct {
        const char* name;
        sumi_op_conv conv;
    } convs[] = {{"conv3x3.f32", {6, 9, 3, 1, false, false, 0, 0}},
                 {"conv3x3_down_even.f32", {8, 10, 3, 2, false, true, 0, 0}},
                 {"conv1x1.f32", {3, 5, 1, 1, false, false, 0, 0}}};
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++) {
        int count, n, x_count;
        const float* x = golden_of(convs[i].name, "input.x", &x_count);
        conv_case c = {.conv = convs[i].conv, .ci = 5, .co = 7};
        c.weight = float_weight(golden_of(convs[i].name, "input.w", &n), 7, 5 * c.conv.kernel * c.conv.kernel);
        c.bias = float_weight(golden_of(convs[i].name, "input.b", &n), 1, 7);
        float* nhwc = channels_last(x, 5, x_count / 5);
        const float* nchw = golden_of(convs[i].name, "expect", &count);
        float* want = channels_last(nchw, 7, count / 7);
        double* expect = doubles(want, count);
        scene s = {.build = build_conv,
                   .context = &c,
                   .inputs = {NULL, nhwc, NULL},
                   .expect = expect,
                   .absolute = 1e-5,
                   .relative = 1e-5};
        free(scene_run(&s));
        free(nhwc), free(want), free(expect);
    }
    // nearest upsampling is folded into the convolution: with a 1x1 identity it is upsampling alone, exactly
    static const float identity[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, zeros[3];
    int count, x_count;
    const float *x = golden("upsample_nearest_2x.f32.input.x", &x_count),
                *up = golden("upsample_nearest_2x.f32.expect", &count);
    conv_case c = {.conv = {.height = 3, .width = 5, .kernel = 1, .stride = 1, .upsamples = true},
                   .ci = 3,
                   .co = 3,
                   .weight = float_weight(identity, 3, 3),
                   .bias = float_weight(zeros, 1, 3)};
    float *nhwc = channels_last(x, 3, 15), *want = channels_last(up, 3, 60);
    double* expect = doubles(want, count);
    scene s = {.build = build_conv, .context = &c, .inputs = {NULL, nhwc, NULL}, .expect = expect};
    free(scene_run(&s));
    free(nhwc), free(want), free(expect);
}

// q, k, v of a golden case as rows of one matrix; keys without a mask are left out. The op's keys are its queries' rows
// and more, so the queries are the leading rows.
static void golden_attention(const char* name, int q_heads, int kv_heads, int dim, int queries, int keys, float scale,
                             bool causal, double absolute)
{
    int count, cols = (q_heads + 2 * kv_heads) * dim, kept = 0, n;
    const float *q = golden_of(name, "input.q", &n), *k = golden_of(name, "input.k", &n),
                *v = golden_of(name, "input.v", &n), *want = golden_of(name, "expect", &count);
    const uint8_t* mask = strstr(name, "mask") ? (const uint8_t*)(const void*)golden_of(name, "input.mask", &n) : NULL;
    float* qkv = calloc((size_t)keys * (size_t)cols, sizeof *qkv);
    for (int i = 0; i < keys; i++) {
        if (mask != NULL && mask[i] == 0) { continue; }
        for (int h = 0; h < kv_heads; h++) {
            memcpy(qkv + kept * cols + (q_heads + h) * dim, k + (h * keys + i) * dim, (size_t)dim * sizeof *qkv);
            memcpy(qkv + kept * cols + (q_heads + kv_heads + h) * dim, v + (h * keys + i) * dim,
                   (size_t)dim * sizeof *qkv);
        }
        kept++;
    }
    CHECK(kept >= queries);
    for (int i = 0; i < queries; i++) {
        for (int h = 0; h < q_heads; h++) {
            memcpy(qkv + i * cols + h * dim, q + (h * queries + i) * dim, (size_t)dim * sizeof *qkv);
        }
    }
    sumi_sequence whole = {.span = {{0, kept}}, .span_count = 1, .query_spans = 1};
    attention_case c = {kept, {q_heads, kv_heads, dim, scale, causal, 0, &whole, 1}};
    scene s = {.build = build_attention, .context = &c, .inputs = {NULL, qkv}, .part_rows = 5};
    float* got = scene_run(&s);
    for (int i = 0; i < q_heads * queries * dim && got != NULL; i++) {
        CHECK_NEAR((double)got[i / dim % queries * q_heads * dim + i / dim / queries * dim + i % dim], (double)want[i],
                   absolute, 1e-5);
    }
    free(got), free(qkv);
}

TEST(golden_attention_rotary_and_times)
{
    if (!golden_open()) { SKIP(GOLDEN " is not there: run from the repository's root"); }
    golden_attention("sdpa_gqa.f32", 6, 2, 32, 13, 13, 1.0f / sqrtf(32.0f), false, 1e-6);
    golden_attention("sdpa_gqa_causal.f32", 6, 2, 32, 13, 13, 1.0f / sqrtf(32.0f), true, 1e-6);
    golden_attention("sdpa_key_mask.f32", 6, 2, 32, 13, 17, 1.0f / sqrtf(32.0f), false, 1e-6);
    golden_attention("sdpa_one_query.f32", 6, 2, 32, 1, 13, 1.0f / sqrtf(32.0f), false, 1e-6);
    golden_attention("sdpa_scale.f32", 6, 2, 32, 13, 13, 0.0625f, false, 1e-5);
    golden_attention("sdpa_d120.f32", 2, 1, 120, 9, 9, 1.0f / sqrtf(120.0f), false, 1e-6);

    // softmax: keys and values are the identity, so that the scores are the row and the result its softmax
    int count, n;
    const float *x = golden("softmax.f32.input.x", &count), *want = golden("softmax.f32.expect", &count);
    float* qkv = calloc(33 * 99, sizeof *qkv);
    for (int i = 0; i < 33; i++) {
        for (int k = 0; k < 33; k++) { qkv[i * 99 + k] = i < 6 ? x[i * 33 + k] : 0.0f; }
        qkv[i * 99 + 33 + i] = qkv[i * 99 + 66 + i] = 1.0f;
    }
    sumi_sequence whole = {.span = {{0, 33}}, .span_count = 1, .query_spans = 1};
    attention_case c = {33, {1, 1, 33, 1.0f, false, 0, &whole, 1}};
    scene s = {.build = build_attention, .context = &c, .inputs = {NULL, qkv}};
    float* got = scene_run(&s);
    for (int i = 0; i < 6 * 33 && got != NULL; i++) { CHECK_NEAR((double)got[i], (double)want[i], 1e-6, 1e-5); }
    free(got), free(qkv);

    for (int i = 0; i < 2; i++) {
        const char* name = i == 0 ? "rotary_interleaved.f32" : "rotary_half.f32";
        const float *from = golden_of(name, "input.x", &count), *cosines = golden_of(name, "input.cos", &n),
                    *sines = golden_of(name, "input.sin", &n);
        row_case r = {.kind = SUMI_OP_QK_NORM_ROPE,
                      .rows = 7,
                      .q_heads = 2,
                      .kv_heads = 1,
                      .dim = 24,
                      .rotary = i == 0 ? SUMI_ROTARY_INTERLEAVED : SUMI_ROTARY_HALVES};
        float rows[7 * 96] = {0}, rope[9 * 24] = {0}; // the scene's table begins two rows early
        const float* expect = golden_of(name, "expect", &count);
        for (int k = 0; k < 7 * 72; k++) { rows[k / 72 * 96 + k % 72] = from[k]; }
        for (int k = 0; k < 7 * 12; k++) {
            rope[48 + 2 * k] = cosines[k];
            rope[48 + 2 * k + 1] = sines[k];
        }
        scene rotary = {.build = build_row, .context = &r, .inputs = {rows, rope, NULL}, .part_rows = 2};
        got = scene_run(&rotary);
        for (int k = 0; k < 7 * 72 && got != NULL; k++) {
            CHECK_NEAR((double)got[k / 72 * 96 + k % 72], (double)expect[k], 1e-6, 1e-5);
        }
        free(got);
    }

    static const struct {
        const char* name;
        int width;
        bool cos_first;
    } times[] = {
        {"timestep.cos_sin_256", 256, true}, {"timestep.sin_cos_256", 256, false}, {"timestep.cos_sin_32", 32, true}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        const float *t = golden_of(times[i].name, "input.t", &n), *expect = golden_of(times[i].name, "expect", &count);
        bench b;
        s_level = SUMI_CPU_AUTO;
        bench_begin(&b);
        sumi_value in = bench_value(&b, n, 1),
                   out = sumi_plan_time_embed(&b.plan, &(sumi_plan_time_args){.times = in,
                                                                              .width = times[i].width,
                                                                              .scale = 1.0f,
                                                                              .max_period = 10000.0f,
                                                                              .cos_first = times[i].cos_first});
        b.plan.values[out.id - 1].bound = true;
        if (bench_ready(&b)) {
            bench_write(&b, in, t);
            bench_run(&b, SPLIT_NONE, 0);
            float* e = bench_read(&b, out);
            for (int k = 0; k < count; k++) { CHECK_NEAR((double)e[k], (double)expect[k], 1e-4, 0.0); }
            free(e);
        }
        bench_end(&b);
    }
}

// ---- Memory ---------------------------------------------------------------------------------------------------------
typedef struct counting {
    int until_failure;
    long blocks;
} counting;
static void* counting_allocate(size_t bytes, size_t alignment, void* user_data)
{
    counting* c = user_data;
    if (c->until_failure-- == 0) { return NULL; }
    c->blocks++;
    return system_allocate(bytes, alignment);
}
static void counting_release(void* memory, size_t bytes, void* user_data)
{
    (void)bytes;
    ((counting*)user_data)->blocks--;
    system_release(memory);
}

TEST(every_allocation_may_fail_and_a_run_makes_none)
{
    float* w = random_floats(64 * 64, 1.0f);
    sumi_weight weight = float_weight(w, 64, 64);
    int successes = 0;
    for (int n = 0; n < 40 && successes == 0; n++) {
        counting c = {n, 0};
        sumi_heap heap;
        sumi_allocator allocator = {0};
        allocator.allocate = counting_allocate;
        allocator.release = counting_release;
        allocator.user_data = &c;
        sumi_heap_init(&heap, &allocator);
        sumi_error error = {0};
        sumi_workers* workers = NULL;
        sumi_runner* runner = NULL;
        sumi_plan plan;
        sumi_plan_begin(&plan, &heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, 20, 64);
        sumi_plan_linear(
            &plan, &(sumi_plan_linear_args){.label = "linear", .x = x, .weight = &weight, .activation = SUMI_ACT_SILU});
        sumi_result result = sumi_plan_finish(&plan, &error);
        result = result != SUMI_OK ? result : sumi_workers_create(&heap, NULL, 2, &error, &workers);
        result = result != SUMI_OK ? result : sumi_cpu_create(&heap, workers, SUMI_CPU_AUTO, &error, &runner);
        if (result == SUMI_OK) {
            uint64_t before = heap.held, promised = plan.arena_bytes + runner->functions->scratch_bytes(runner, &plan);
            result = runner->functions->reserve(runner, &plan, &error);
            if (result == SUMI_OK) {
                // and the two blocks' headers
                CHECK(heap.held - before >= promised && heap.held - before < promised + 512);
                uint64_t count = heap.count;
                runner->functions->start(runner, &plan);
                sumi_slice all = {0, 1, 0, plan.ops[0].part_count, 0.0f};
                CHECK(runner->functions->run(runner, &plan, &all, 0, &error) == SUMI_OK);
                CHECK(runner->functions->reserve(runner, &plan, &error) == SUMI_OK); // room enough already
                CHECK(heap.count == count);
                CHECK(runner->functions->idle(runner));
                CHECK_TEXT(runner->functions->name(runner), "cpu");
                CHECK(runner->functions->rates(runner).flops_per_us > 0.0);
                runner->functions->release(runner);
                CHECK(heap.held == before);
                c.until_failure = -1; // from here on there is memory
                CHECK(runner->functions->reserve(runner, &plan, &error) == SUMI_OK);
                successes++;
            }
        }
        if (result != SUMI_OK) {
            CHECK_NUMBER(result, SUMI_OUT_OF_HOST_MEMORY);
            CHECK(error.text[0] != 0);
        }
        if (runner != NULL) { runner->functions->destroy(runner); }
        sumi_workers_destroy(workers);
        sumi_plan_end(&plan);
        CHECK_NUMBER(c.blocks, 0);
    }
    CHECK(successes == 1);
    free(w);
}

TEST(a_level_that_the_processor_lacks_is_refused)
{
    sumi_cpu_features features = sumi_cpu_detect();
    if (features.avx512) { SKIP("this processor has every level"); }
    sumi_error error = {0};
    sumi_workers* workers;
    sumi_runner* runner;
    CHECK(sumi_workers_create(&s_heap, NULL, 1, &error, &workers) == SUMI_OK);
    CHECK(sumi_cpu_create(&s_heap, workers, SUMI_CPU_AVX512, &error, &runner) == SUMI_NOT_SUPPORTED && runner == NULL);
    sumi_workers_destroy(workers);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(linear_agrees_with_the_reference_at_odd_shapes);
    RUN(adapters_do_what_merged_weights_would_under_every_epilogue);
    RUN(a_kronecker_product_is_what_it_is_known_to_be);
    RUN(an_adapter_counts_as_often_as_it_is_used);
    RUN(eight_rows_have_the_same_bits_alone_and_among_more);
    RUN(linear_reads_every_weight_type);
    RUN(linear_reads_weights_stacked_of_different_types);
    RUN(attention_agrees_with_the_reference);
    RUN(attention_runs_two_spans_windows_and_many_keys);
    RUN(attention_runs_queries_behind_a_shared_beginning);
    RUN(a_shared_beginning_changes_no_bit);
    RUN(conv_agrees_with_the_reference);
    RUN(a_new_run_packs_the_weights_anew);
    RUN(group_norm_agrees_with_the_reference_also_with_a_large_mean);
    RUN(norms_agree_with_the_reference);
    RUN(norms_with_silu_agree_with_the_reference);
    RUN(qk_norm_rope_agrees_with_the_reference);
    RUN(activations_and_gating_agree_with_the_reference_to_the_ends_of_the_range);
    RUN(embedding_filling_and_copying_move_the_right_rows);
    RUN(rotary_time_and_modulation_tables_agree_with_the_reference);
    RUN(patches_put_channels_or_pixels_fastest_and_come_back);
    RUN(noise_guidance_and_preview_agree_with_the_reference);
    RUN(guidance_rescales_each_token);
    RUN(solver_rows_update_all_states_and_ignore_unwritten_ones);
    RUN(latents_enter_and_leave_the_vae);
    RUN(pixels_tiles_and_seams_agree_with_the_reference);
    RUN(norms_with_a_bias_agree_with_the_reference);
    RUN(a_bias_is_added_to_every_embedded_row);
    RUN(means_are_of_their_spans_alone);
    RUN(golden_norms_and_activations);
    RUN(golden_products_and_convolutions);
    RUN(golden_attention_rotary_and_times);
    RUN(every_allocation_may_fail_and_a_run_makes_none);
    RUN(a_level_that_the_processor_lacks_is_refused);
    RUN(linear_reads_a_weight_with_its_change);
    RUN(embedded_rows_and_their_bias_have_their_changes);
    RUN(linear_reads_rotated_int8_rows);
    for (int i = 0; i < s_golden_count; i++) { free(s_golden_tensors[i]); }
    free(s_golden);
    TEST_END();
}
