// What tests of the CUDA runner on the fake driver (fake_cuda.h, which each test includes itself) share: a small model with one weight of each kind, a network of a few ops
// that uses it, and a runner with services that count.
#ifndef RUNNER_FIXTURE_H
#define RUNNER_FIXTURE_H
#include "base/memory.h"
#include "base/platform.h"
#include "cuda/cuda.h"
#include "cuda/state.h"
#include "plan_runner.h"
#include "test.h"

// ---- A small model --------------------------------------------------------------------------------------------------

#define TOKENS 40
#define WIDTH 64
#define HIDDEN 48 // 96 stacked rows of [gate; up]
#define STEPS 3

typedef struct model {
    uint16_t table[50 * WIDTH], gate[HIDDEN * WIDTH], up[HIDDEN * WIDTH], out[WIDTH * HIDDEN], odd[WIDTH * 20];
    float norm[WIDTH], bias[WIDTH];
    sumi_weight embedding, norm_weight, gate_up, down, bias_weight, narrow;
    const sumi_weight* list[6];
    // two Kronecker products and a changed norm, used when use_count is 1
    float left[8 * 8];
    sumi_delta deltas[3];
    sumi_adapter adapter;
    sumi_adapter_use use;
    int32_t use_count;
} model;

static inline void fill(uint16_t* into, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        into[i] = sumi_float_to_bf16((float)(int32_t)(seed >> 8) / 16777216.0f - 0.5f);
    }
}

static inline sumi_weight weight_of(const char* name, int32_t rows, int32_t cols, const void* data, sumi_dtype dtype)
{
    return (sumi_weight){.name = name,
                         .rows = rows,
                         .cols = cols,
                         .tensor_count = 1,
                         .tensors = {{.data = data, .dtype = dtype, .rows = rows, .scale = 1.0f}}};
}

static inline void make_model(model* m)
{
    memset(m, 0, sizeof *m);
    fill(m->table, 50 * WIDTH, 1);
    fill(m->gate, HIDDEN * WIDTH, 2);
    fill(m->up, HIDDEN * WIDTH, 3);
    fill(m->out, WIDTH * HIDDEN, 4);
    fill(m->odd, WIDTH * 20, 5);
    for (int32_t i = 0; i < WIDTH; i++) m->norm[i] = 1.0f + (float)i / 64.0f, m->bias[i] = (float)i;
    m->embedding = weight_of("embedding", 50, WIDTH, m->table, SUMI_DTYPE_BF16);
    m->norm_weight = weight_of("norm", 1, WIDTH, m->norm, SUMI_DTYPE_F32);
    m->gate_up = weight_of("gate_up", HIDDEN, WIDTH, m->gate, SUMI_DTYPE_BF16);
    m->gate_up.rows = 2 * HIDDEN;
    m->gate_up.tensor_count = 2;
    m->gate_up.tensors[1] =
        (sumi_stacked_tensor){.data = m->up, .dtype = SUMI_DTYPE_BF16, .rows = HIDDEN, .scale = 1.0f};
    m->down = weight_of("down", WIDTH, HIDDEN, m->out, SUMI_DTYPE_BF16);
    m->bias_weight = weight_of("bias", 1, WIDTH, m->bias, SUMI_DTYPE_F32);
    m->narrow = weight_of("narrow", WIDTH, 20, m->odd, SUMI_DTYPE_BF16);
    const sumi_weight* list[] = {&m->embedding, &m->norm_weight, &m->gate_up, &m->down, &m->bias_weight, &m->narrow};
    memcpy(m->list, list, sizeof list);
    for (int32_t i = 0; i < 6; i++) ((sumi_weight*)(uintptr_t)m->list[i])->index = i;
    for (int32_t i = 0; i < 64; i++) m->left[i] = (float)i;
    m->deltas[0] = (sumi_delta){.weight_index = m->norm_weight.index,
                                .scale = 1.0f,
                                .up = weight_of("norm.change", WIDTH, 1, m->bias, SUMI_DTYPE_F32),
                                .kind = SUMI_DELTA_VECTOR};
    m->deltas[1] = (sumi_delta){.weight_index = m->gate_up.index,
                                .row_begin = HIDDEN,
                                .scale = 1.0f,
                                .up = weight_of("gate_up.w1", 6, 8, m->left, SUMI_DTYPE_F32),
                                .down = weight_of("gate_up.w2", HIDDEN / 6, WIDTH / 8, m->odd, SUMI_DTYPE_BF16),
                                .kind = SUMI_DELTA_KRONECKER};
    m->deltas[2] = (sumi_delta){.weight_index = m->down.index,
                                .scale = 1.0f,
                                .up = weight_of("down.w1", 8, 4, m->left, SUMI_DTYPE_F32),
                                .down = weight_of("down.w2", WIDTH / 8, HIDDEN / 4, m->odd, SUMI_DTYPE_BF16),
                                .kind = SUMI_DELTA_KRONECKER};
    m->adapter = (sumi_adapter){m->deltas, 3};
    m->use = (sumi_adapter_use){&m->adapter, 0.5f};
}

typedef struct bench {
    sumi_heap heap;
    sumi_workers* workers;
    sumi_runner* runner;
    int32_t fails_at; // the n-th allocation of host memory fails; 0: none
} bench;

// x = embed(ids); STEPS times: x = x + down(gated(norm(x))) + bias; y = x. `counts` is a constant that an op writes
// too, so that it can be fetched.
typedef struct network {
    sumi_plan plan;
    sumi_value ids, y, counts;
} network;

static const int32_t s_counts[4] = {3, 1, 4, 1};

static inline sumi_result write_network(network* n, bench* b, model* m, int32_t tokens, uint32_t slice_us,
                                        sumi_error* error)
{
    sumi_plan* plan = &n->plan;
    sumi_runner_begin_plan(b->runner, plan, &b->heap);
    sumi_plan_adapters(plan, &m->use, m->use_count);
    n->ids = sumi_plan_bound(plan, "ids", SUMI_ELEMENT_INT, tokens, 1);
    n->y = sumi_plan_bound(plan, "y", SUMI_ELEMENT_ACTIVATION, tokens, WIDTH);
    n->counts = sumi_plan_constant(plan, "counts", SUMI_ELEMENT_INT, 2, 2, s_counts);
    sumi_plan_section(plan, SUMI_SECTION_TEXT, 1, 0);
    sumi_value x = sumi_plan_embed_rows(plan, n->ids, &m->embedding, 1.0f);
    (void)sumi_plan_changed_vector(plan, &m->norm_weight);
    sumi_plan_section(plan, SUMI_SECTION_DENOISE, STEPS, 5);
    sumi_value normed = sumi_plan_norm(
        plan, &(sumi_plan_norm_args){.label = "norm", .x = x, .rows = tokens, .weight = &m->norm_weight, .eps = 1e-5f});
    sumi_value hidden = sumi_plan_linear_gated(plan, "mlp", normed, &m->gate_up, SUMI_ACT_SILU);
    x = sumi_plan_linear(plan,
                         &(sumi_plan_linear_args){
                             .label = "down", .x = hidden, .weight = &m->down, .bias = &m->bias_weight, .residual = x});
    sumi_plan_section(plan, SUMI_SECTION_TRANSFER, 1, 0);
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = x, .y = n->y, .rows = tokens});
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = n->counts, .y = n->counts, .y_row = 1, .rows = 1});
    sumi_result result = sumi_plan_finish(plan, error);
    return result == SUMI_OK ? sumi_plan_slice(plan, &(sumi_rates){1e6, 1e6, 3.0}, slice_us, error) : result;
}

// ---- A runner and its services --------------------------------------------------------------------------------------

static inline void* bench_allocate(size_t bytes, size_t alignment, void* user_data)
{
    bench* b = user_data;
    if (b->fails_at > 0 && --b->fails_at == 0) return NULL;
    return aligned_alloc(alignment, bytes);
}
static inline void bench_release(void* memory, size_t bytes, void* user_data)
{
    (void)bytes;
    (void)user_data;
    free(memory);
}

static inline void open_services(bench* b)
{
    memset(b, 0, sizeof *b);
    const sumi_allocator allocator = {bench_allocate, bench_release, b};
    sumi_heap_init(&b->heap, &allocator);
    CHECK(sumi_workers_create(&b->heap, NULL, 2, NULL, &b->workers) == SUMI_OK);
}

static inline sumi_result open_runner(bench* b, const sumi_cuda_options* options, sumi_error* error)
{
    const sumi_engine_desc desc = {.cuda = {.ordinal = -1}};
    SUMI_TRY(sumi_cuda_create(&b->heap, b->workers, &desc, options, error, &b->runner));
    return runner_load(b->runner, error);
}

static inline void close_bench(bench* b)
{
    if (b->runner != NULL) b->runner->functions->destroy(b->runner);
    sumi_workers_destroy(b->workers);
    CHECK_NUMBER(atomic_load(&b->heap.held), 0);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
    CHECK_NUMBER(fake_context_depth(), 0);
}

// The fake driver at its beginning, a runner, and the network's plan in slices of `slice_us`.
static inline void open_network(bench* b, model* m, network* n, uint32_t slice_us, sumi_error* error)
{
    fake_reset();
    make_model(m);
    open_services(b);
    CHECK(open_runner(b, NULL, error) == SUMI_OK);
    CHECK(write_network(n, b, m, TOKENS, slice_us, error) == SUMI_OK);
}

static inline void close_network(bench* b, network* n)
{
    plan_forget(b->runner, &n->plan);
    sumi_plan_end(&n->plan);
    close_bench(b);
}

static inline void write_ids(sumi_runner* runner, network* n)
{
    int32_t ids[1024];
    const int32_t tokens = sumi_plan_info(&n->plan, n->ids)->rows;
    for (int32_t i = 0; i < tokens; i++) ids[i] = i % 50;
    runner->functions->write(runner, &n->plan, n->ids, 0, ids, (uint64_t)tokens * sizeof *ids);
}

static inline sumi_result run_network(sumi_runner* runner, network* n, sumi_error* error)
{
    SUMI_TRY(plan_ready(runner, &n->plan, error));
    runner->functions->start(runner, &n->plan);
    write_ids(runner, n);
    SUMI_TRY(plan_run_all(runner, &n->plan, NULL, error));
    uint16_t y[TOKENS * WIDTH];
    return plan_read(runner, &n->plan, n->y, y, error);
}
#endif
