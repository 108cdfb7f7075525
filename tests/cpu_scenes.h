// What tests of the CPU backend share: a scene is a plan of one op kind at odd sizes, what is fed and what must
// come out. It is run on every instruction set that this machine has, split into parts and by threads in every way, and
// gives the same bits each time.
#ifndef CPU_SCENES_H
#define CPU_SCENES_H
#include "base/memory.h"
#include "base/platform.h"
#include "cpu/cpu.h"
#include "plan/plan.h"
#include "plan/runner.h"
#include "plan/validate.h"
#include "test.h"

// ---- A bench: one plan, one runner ----------------------------------------------------------------------------------

static sumi_heap s_heap;
static const sumi_cpu_level s_levels[] = {SUMI_CPU_PORTABLE, SUMI_CPU_AVX2, SUMI_CPU_AVX512};
static const char* const s_level_names[] = {"portable", "AVX2", "AVX-512"};
static uint32_t s_random = 1;

static inline bool has_level(sumi_cpu_level level)
{
    const sumi_cpu_features features = sumi_cpu_detect();
    return level == SUMI_CPU_AVX512 ? features.avx512 : level == SUMI_CPU_AVX2 ? features.avx2_fma_f16c : true;
}

// As has_level, for an index of s_levels. Says once which of them are left out.
static inline bool runs_level(size_t index)
{
    static bool s_said[sizeof s_levels / sizeof *s_levels];
    const bool has = has_level(s_levels[index]);
    if (!has && !s_said[index]) printf("skip: level %s: this CPU does not have it\n", s_level_names[index]);
    s_said[index] = true;
    return has;
}

static inline float random_float(void) // in [-1, 1)
{
    s_random = s_random * 1664525u + 1013904223u;
    return (float)(int32_t)(s_random >> 8) / 8388608.0f - 1.0f;
}

static inline int random_below(int limit)
{
    s_random = s_random * 1664525u + 1013904223u;
    return (int)((s_random >> 8) % (uint32_t)limit);
}

static inline float* random_floats(size_t count, float scale)
{
    float* x = malloc((count + 1) * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = scale * random_float();
    return x;
}

static inline sumi_weight float_weight(const float* data, int rows, int cols)
{
    return (sumi_weight){.name = "w",
                         .rows = rows,
                         .cols = cols,
                         .tensor_count = 1,
                         .tensors = {{.data = data, .dtype = SUMI_DTYPE_F32, .rows = rows, .scale = 1.0f}}};
}

typedef struct bench {
    sumi_plan plan;
    sumi_workers* workers;
    sumi_runner* runner;
    sumi_error error;
    int step_cols;
    sumi_cpu_level level;
    int threads;
    bool is_cut; // the runner arranges the plan, as it does in the engine
} bench;

static inline void bench_begin(bench* b, sumi_cpu_level level, int threads)
{
    memset(b, 0, sizeof *b);
    b->level = level;
    b->threads = threads;
    sumi_plan_begin(&b->plan, &s_heap, 4);
    sumi_plan_section(&b->plan, SUMI_SECTION_DENOISE, 1, 0);
}

// A bound float value; its data is written by bench_run's caller through bench_write.
static inline sumi_value bench_value(bench* b, int rows, int cols)
{
    return sumi_plan_bound(&b->plan, "value", SUMI_ELEMENT_FLOAT, rows, cols);
}

static inline bool bench_ready(bench* b)
{
    bool is_ready = sumi_workers_create(&s_heap, NULL, b->threads, &b->error, &b->workers) == SUMI_OK
                 && sumi_cpu_create(&s_heap, b->workers, b->level, &b->error, &b->runner) == SUMI_OK;
    if (is_ready && b->is_cut) { // as sumi_runner_begin_plan does
        b->plan.arrange = b->runner->functions->arrange;
        b->plan.runner = b->runner;
    }
    is_ready = is_ready && sumi_plan_finish(&b->plan, &b->error) == SUMI_OK
            && sumi_plan_validate(&b->plan, &b->error) == SUMI_OK
            && b->runner->functions->reserve(b->runner, &b->plan, &b->error) == SUMI_OK;
    if (is_ready) {
        b->runner->functions->start(b->runner, &b->plan);
    } else {
        printf("  %s\n", b->error.text);
        CHECK(!"the bench is ready");
    }
    return is_ready;
}

static inline uint64_t value_bytes(const bench* b, sumi_value v) { return sumi_plan_info(&b->plan, v)->bytes; }

static inline void bench_write(bench* b, sumi_value v, const void* data)
{
    b->runner->functions->write(b->runner, &b->plan, v, 0, data, value_bytes(b, v));
}

static inline void* bench_read(bench* b, sumi_value v)
{
    void* data = malloc((size_t)value_bytes(b, v) + 1);
    b->runner->functions->read(b->runner, &b->plan, v, 0, data, value_bytes(b, v));
    return data;
}

// How the parts are handed over: whole ops, one part at a time, or random runs of parts.
typedef enum split { SPLIT_NONE, SPLIT_PARTS, SPLIT_RANDOM } split;

static inline void bench_run(bench* b, split how, int counter)
{
    if (how == SPLIT_NONE) {
        sumi_slice all = {.op_end = (int32_t)b->plan.op_count, .range_end = b->plan.ops[0].range_count};
        CHECK(b->runner->functions->run(b->runner, &b->plan, &all, counter, &b->error) == SUMI_OK);
        return;
    }
    for (int i = 0; i < (int)b->plan.op_count; i++) {
        for (int begin = 0; begin < b->plan.ops[i].range_count;) {
            int count = how == SPLIT_PARTS ? 1 : 1 + random_below(4 + b->plan.ops[i].range_count / 8);
            int end = begin + count < b->plan.ops[i].range_count ? begin + count : b->plan.ops[i].range_count;
            sumi_slice slice = {.op_begin = i, .op_end = i + 1, .range_begin = begin, .range_end = end};
            CHECK(b->runner->functions->run(b->runner, &b->plan, &slice, counter, &b->error) == SUMI_OK);
            begin = end;
        }
    }
}

static inline void bench_end(bench* b)
{
    if (b->runner != NULL) b->runner->functions->destroy(b->runner);
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
    int value_count, range_rows, counter;
    const double* expect;
    double absolute, relative;
    bool is_cut; // as of the bench
    // written by each run
    size_t bytes[MAX_SCENE_VALUES]; // of the values
    sumi_op op, last_op;            // the plan's first and last
} scene;

static inline void scene_once(scene* s, sumi_cpu_level level, int threads, split how, void** out)
{
    bench b;
    bench_begin(&b, level, threads);
    b.is_cut = s->is_cut;
    s->build(&b, s);
    for (size_t i = 0; i < b.plan.op_count && s->range_rows > 0 && b.plan.error.result == SUMI_OK; i++) {
        sumi_op* op = &b.plan.ops[i];
        if (op->kind == SUMI_OP_ATTENTION) {
            op->u.attention.query_block = s->range_rows;
            op->range_count = 0;
            for (int32_t k = 0; k < op->u.attention.sequence_count; k++) {
                const sumi_sequence* q = &op->u.attention.sequences[k];
                int32_t queries = sumi_sequence_queries(q);
                op->range_count += op->u.attention.q_heads * ((queries + s->range_rows - 1) / s->range_rows);
            }
            op->rows = op->range_count;
        } else if (op->kind != SUMI_OP_GROUP_SUMS && op->kind != SUMI_OP_TILE_BLEND && op->kind != SUMI_OP_POSTERIOR
                   && op->kind != SUMI_OP_PIXELS_OUT) {
            op->range_rows = s->range_rows;
            op->range_count = (op->rows + s->range_rows - 1) / s->range_rows;
        }
    }
    if (bench_ready(&b)) {
        for (int i = 0; i < s->value_count; i++) {
            void* zeros = calloc(1, (size_t)value_bytes(&b, s->values[i]) + 1);
            bench_write(&b, s->values[i], s->inputs[i] != NULL ? s->inputs[i] : zeros);
            free(zeros);
        }
        bench_run(&b, how, s->counter);
        for (int i = 0; i < s->value_count; i++) {
            out[i] = bench_read(&b, s->values[i]);
            s->bytes[i] = (size_t)value_bytes(&b, s->values[i]);
        }
        s->op = b.plan.ops[0];
        s->last_op = b.plan.ops[b.plan.op_count - 1];
    }
    bench_end(&b);
}

// Whether a run has left the same bits in all values; frees them.
static inline bool is_same_run(const scene* s, void** out, void* const* first)
{
    bool is_same = true;
    for (int i = 0; i < s->value_count; i++) {
        const bool is_equal = out[i] != NULL && memcmp(out[i], first[i], s->bytes[i]) == 0;
        if (!is_equal) printf("  value %d is another\n", i);
        is_same = is_same && is_equal;
        free(out[i]);
    }
    return is_same;
}

// Returns values[0] of the last level's first run, for further checks; the caller frees it.
static inline float* scene_run(scene* s)
{
    void* first[MAX_SCENE_VALUES] = {0};
    for (size_t l = 0; l < sizeof s_levels / sizeof *s_levels; l++) {
        if (!runs_level(l)) continue;
        for (int i = 0; i < MAX_SCENE_VALUES; i++) {
            free(first[i]);
            first[i] = NULL;
        }
        scene_once(s, s_levels[l], 1, SPLIT_NONE, first);
        if (first[0] == NULL) break;
        int shown = 0;
        for (size_t i = 0; s->expect != NULL && i < s->bytes[0] / sizeof(float); i++) {
            double got = (double)((float*)first[0])[i];
            if (!(fabs(got - s->expect[i]) <= s->absolute + s->relative * fabs(s->expect[i])) && shown++ < 3) {
                printf("  %s: element %zu is %.9g, want %.9g\n", s_level_names[l], i, got, s->expect[i]);
                CHECK(!"as the reference");
            }
        }
        for (int mode = 0; mode < 4; mode++) {
            void* other[MAX_SCENE_VALUES] = {0};
            scene_once(s, s_levels[l], mode == 0 || mode == 2 ? 3 : 1,
                       mode == 0   ? SPLIT_NONE
                       : mode == 3 ? SPLIT_RANDOM
                                   : SPLIT_PARTS,
                       other);
            if (!is_same_run(s, other, first)) {
                printf("  %s, mode %d\n", s_level_names[l], mode);
                CHECK(!"the same bits for any split and any number of threads");
            }
        }
    }
    for (int i = 1; i < MAX_SCENE_VALUES; i++) free(first[i]);
    return first[0];
}

// ---- LINEAR ---------------------------------------------------------------------------------------------------------

static inline double act_double(sumi_activation activation, double x)
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

static inline void build_linear(bench* b, scene* s)
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
        b->plan.ops[0].u.linear.is_adapter_product = c->accumulates;
        if (c->accumulates) { // an adapter's second product, as the verb does not write it
            b->plan.ops[0].in[1] = b->plan.ops[0].out;
            b->plan.ops[0].in[2] = c->has_gate ? s->values[2] : SUMI_NO_VALUE;
            if (c->has_gate) { b->plan.ops[0].u.linear.gate = (sumi_step_row){s->values[2], 5, true}; }
        }
        b->plan.ops[0].u.linear.scale = 0.25f;
    }
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

// A low-rank change of a weight of any type, and what merging it would give.
typedef struct changed_weight {
    sumi_weight weight;
    sumi_weight_change change;
    float *data, *up, *merged;
    uint16_t *rounded, *down;
} changed_weight;

static inline void make_changed(changed_weight* w, sumi_dtype dtype, int rows, int cols, int rank)
{
    const size_t count = (size_t)rows * (size_t)cols;
    w->data = random_floats(count, 1.0f);
    w->up = random_floats((size_t)rows * (size_t)rank, 1.0f);
    w->merged = random_floats(count, 0.0f);
    w->rounded = malloc(count * sizeof *w->rounded);
    w->down = malloc((size_t)rank * (size_t)cols * sizeof *w->down);
    for (int i = 0; i < rank * cols; i++) w->down[i] = sumi_float_to_bf16(random_float());
    sumi_floats_to_bf16(w->data, w->rounded, count);
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            const size_t at = (size_t)r * (size_t)cols + (size_t)c;
            double sum = dtype == SUMI_DTYPE_BF16 ? (double)sumi_bf16_to_float(w->rounded[at]) : (double)w->data[at];
            for (int k = 0; k < rank; k++)
                sum += 0.5 * (double)w->up[r * rank + k] * (double)sumi_bf16_to_float(w->down[k * cols + c]);
            w->merged[at] = (float)sum;
        }
    }
    w->change = (sumi_weight_change){.down = {.data = w->down, .dtype = SUMI_DTYPE_BF16, .rows = rank, .scale = 1.0f},
                                     .up = {.data = w->up, .dtype = SUMI_DTYPE_F32, .rows = rows, .scale = 0.5f}};
    w->weight = float_weight(w->data, rows, cols);
    w->weight.tensors[0].dtype = dtype;
    w->weight.tensors[0].data = dtype == SUMI_DTYPE_BF16 ? (const void*)w->rounded : w->data;
    w->weight.change = &w->change;
}

static inline void free_changed(changed_weight* w)
{
    free(w->data), free(w->up), free(w->merged), free(w->rounded), free(w->down);
}

// ---- ATTENTION ------------------------------------------------------------------------------------------------------

typedef struct attention_case {
    int rows;
    sumi_attention a;
} attention_case;

static inline void build_attention(bench* b, scene* s)
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

// ---- CONV, GROUP NORM -----------------------------------------------------------------------------------------------

typedef struct conv_case {
    sumi_op_conv conv;
    int ci, co;
    sumi_weight weight, bias;
    bool has_residual;
} conv_case;

static inline void conv_size(const conv_case* c, int* height, int* width)
{
    int scale = c->conv.upsamples ? 2 : 1;
    *height = c->conv.height * scale / c->conv.stride;
    *width = c->conv.width * scale / c->conv.stride;
}

static inline void build_conv(bench* b, scene* s)
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
    if (s->values[0].id != 0) b->plan.values[s->values[0].id - 1].bound = true;
}

typedef struct group_case {
    int rows, cols, groups;
    bool silu;
    sumi_weight w, b;
    int block_rows;
} group_case;

static inline void build_group(bench* b, scene* s)
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
    if (s->values[0].id == 0) return;
    b->plan.values[s->values[0].id - 1].bound = true;
    if (c->block_rows > 0) { // more blocks than the plan would make of so small a picture
        int blocks = (c->rows + c->block_rows - 1) / c->block_rows;
        b->plan.values[b->plan.ops[0].out.id - 1].rows = blocks;
        for (int i = 0; i < 2; i++) {
            b->plan.ops[i].u.group.block_rows = c->block_rows;
            b->plan.ops[i].u.group.block_count = blocks;
        }
        b->plan.ops[0].range_rows = c->block_rows;
        b->plan.ops[0].range_count = blocks;
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

static inline void build_row(bench* b, scene* s)
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
        if (p->op_count > 0) p->ops[0].u.norm.weight_plus_one = c->has_weight && !c->layer && c->has_steps;
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
    if (s->values[0].id != 0) p->values[s->values[0].id - 1].bound = true;
}
#endif
