// The CUDA runner on a driver that is none (fake_cuda): what it asks of a driver, in which order, and what it does when
// the driver refuses. Kernels do nothing there; what they compute is the subject of test_cuda_ops.c.
#include "test.h"
#ifdef SUMI_HAS_CUDA
#include "base/memory.h"
#include "base/platform.h"
#include "cuda/arrange.h"
#include "cuda/balance.h"
#include "cuda/cuda.h"
#include "cuda/launch.h"
#include "cuda/plan_records.h"
#include "cuda/state.h"
#include "cuda/stored.h"
#include "cuda/weight_forms.h"
#include "fake_cuda.h"
#include "kernels/upload.h"
#include "plan_runner.h"

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

static void fill(uint16_t* into, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        into[i] = sumi_float_to_bf16((float)(int32_t)(seed >> 8) / 16777216.0f - 0.5f);
    }
}

static sumi_weight weight_of(const char* name, int32_t rows, int32_t cols, const void* data, sumi_dtype dtype)
{
    return (sumi_weight){.name = name,
                         .rows = rows,
                         .cols = cols,
                         .tensor_count = 1,
                         .tensors = {{.data = data, .dtype = dtype, .rows = rows, .scale = 1.0f}}};
}

static void make_model(model* m)
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

static sumi_result write_network(network* n, bench* b, model* m, int32_t tokens, uint32_t slice_us, sumi_error* error)
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

static void* bench_allocate(size_t bytes, size_t alignment, void* user_data)
{
    bench* b = user_data;
    if (b->fails_at > 0 && --b->fails_at == 0) return NULL;
    return aligned_alloc(alignment, bytes);
}
static void bench_release(void* memory, size_t bytes, void* user_data)
{
    (void)bytes;
    (void)user_data;
    free(memory);
}

static void open_services(bench* b)
{
    memset(b, 0, sizeof *b);
    const sumi_allocator allocator = {bench_allocate, bench_release, b};
    sumi_heap_init(&b->heap, &allocator);
    CHECK(sumi_workers_create(&b->heap, NULL, 2, NULL, &b->workers) == SUMI_OK);
}

static sumi_result open_runner(bench* b, const sumi_cuda_options* options, sumi_error* error)
{
    const sumi_engine_desc desc = {.cuda = {.ordinal = -1}};
    SUMI_TRY(sumi_cuda_create(&b->heap, b->workers, &desc, options, error, &b->runner));
    return runner_load(b->runner, error);
}

static void close_bench(bench* b)
{
    if (b->runner != NULL) b->runner->functions->destroy(b->runner);
    sumi_workers_destroy(b->workers);
    CHECK_NUMBER(atomic_load(&b->heap.held), 0);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
    CHECK_NUMBER(fake_context_depth(), 0);
}

// The fake driver at its beginning, a runner, and the network's plan in slices of `slice_us`.
static void open_network(bench* b, model* m, network* n, uint32_t slice_us, sumi_error* error)
{
    fake_reset();
    make_model(m);
    open_services(b);
    CHECK(open_runner(b, NULL, error) == SUMI_OK);
    CHECK(write_network(n, b, m, TOKENS, slice_us, error) == SUMI_OK);
}

static void close_network(bench* b, network* n)
{
    plan_forget(b->runner, &n->plan);
    sumi_plan_end(&n->plan);
    close_bench(b);
}

static void write_ids(sumi_runner* runner, network* n)
{
    int32_t ids[1024];
    const int32_t tokens = sumi_plan_info(&n->plan, n->ids)->rows;
    for (int32_t i = 0; i < tokens; i++) ids[i] = i % 50;
    runner->functions->write(runner, &n->plan, n->ids, 0, ids, (uint64_t)tokens * sizeof *ids);
}

static sumi_result run_network(sumi_runner* runner, network* n, sumi_error* error)
{
    SUMI_TRY(plan_ready(runner, &n->plan, error));
    runner->functions->start(runner, &n->plan);
    write_ids(runner, n);
    SUMI_TRY(plan_run_all(runner, &n->plan, NULL, error));
    uint16_t y[TOKENS * WIDTH];
    return plan_read(runner, &n->plan, n->y, y, error);
}

// ---- What the driver sees -------------------------------------------------------------------------------------------

TEST(leaves_nothing_behind)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 100, &error);
    CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
    CHECK_TEXT(error.text, "");
    sumi_plan_end(&n.plan); // not forgotten: the runner must not look at it when it goes
    close_bench(&b);
}

TEST(graphs_launch_what_the_ops_launch)
{
    bench b;
    static model m;
    uint64_t launches[2];
    make_model(&m);
    for (int graphs = 0; graphs < 2; graphs++) {
        for (uint32_t slice_us = 0; slice_us < 8; slice_us += 7) {
            fake_reset();
            network n;
            sumi_error error = {0};
            open_services(&b);
            CHECK(open_runner(&b, &(sumi_cuda_options){.without_graphs = graphs == 0}, &error) == SUMI_OK);
            CHECK(write_network(&n, &b, &m, TOKENS, slice_us, &error) == SUMI_OK);
            fake_count_launches(true);
            CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
            uint64_t hash = fake_launch_hash();
            CHECK(graphs == 0 ? fake_graph_launches() == 0 : fake_graph_launches() > STEPS);
            CHECK(fake_launch_count() > STEPS);
            if (slice_us == 0) launches[graphs] = hash;
            plan_forget(b.runner, &n.plan);
            sumi_plan_end(&n.plan);
            close_bench(&b);
        }
    }
    CHECK(launches[0] == launches[1]);
}

TEST(runs_without_graphs_when_the_driver_makes_none)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 100, &error);
    fake_refuse_graphs(true);
    CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
    CHECK_NUMBER(fake_graph_launches(), 0);
    CHECK(fake_launch_count() > STEPS);
    close_network(&b, &n);
}

TEST(a_warm_run_allocates_nothing)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 100, &error);
    CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
    const uint64_t host = atomic_load(&b.heap.count), device = fake_allocation_count();
    CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
    CHECK_NUMBER(atomic_load(&b.heap.count), host);
    CHECK_NUMBER(fake_allocation_count(), device);
    close_network(&b, &n);
}

// Everything that a run needs goes, so that the next one begins at the beginning.
static void forget_all(bench* b, network* n, const model* m)
{
    plan_forget(b->runner, &n->plan);
    b->runner->functions->release_weights(b->runner, m->list, 6);
    b->runner->functions->release(b->runner);
}

TEST(every_allocation_of_creation_may_fail)
{
    bool fails = true;
    for (int32_t nth = 1; fails && nth < 100; nth++) {
        for (int kind = 0; kind < 2; kind++) {
            fake_reset();
            bench b;
            sumi_error error = {0};
            open_services(&b);
            if (kind == 0) fake_fail_allocation(nth);
            else b.fails_at = nth;
            const sumi_engine_desc desc = {.cuda = {.ordinal = -1}};
            const sumi_result result = sumi_cuda_create(&b.heap, b.workers, &desc, NULL, &error, &b.runner);
            const bool has_failed = kind == 0 ? fake_fail_allocation(0) : b.fails_at == 0;
            CHECK(result == (!has_failed ? SUMI_OK : kind == 0 ? SUMI_OUT_OF_DEVICE_MEMORY : SUMI_OUT_OF_HOST_MEMORY));
            CHECK((result == SUMI_OK) == (b.runner != NULL));
            if (kind == 1) fails = has_failed;
            b.fails_at = 0;
            close_bench(&b);
        }
    }
    CHECK(!fails);
}

// In one runner, so that each failure is also followed by a success.
TEST(every_allocation_of_a_run_may_fail)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 100, &error);
    for (int kind = 0; kind < 2 && b.runner != NULL; kind++) {
        bool fails = true;
        int32_t nth = 1;
        for (; fails && nth < 400; nth++) {
            error = (sumi_error){0};
            if (kind == 0) fake_fail_allocation(nth);
            else b.fails_at = nth;
            const sumi_result result = run_network(b.runner, &n, &error);
            fails = kind == 0 ? fake_fail_allocation(0) : b.fails_at == 0;
            b.fails_at = 0;
            if (!fails) CHECK(result == SUMI_OK);
            else if (kind == 1) CHECK(result == SUMI_OUT_OF_HOST_MEMORY);
            // ok: smaller blocks were had
            else CHECK(result == SUMI_OK || result == SUMI_OUT_OF_DEVICE_MEMORY || result == SUMI_OUT_OF_HOST_MEMORY);
            error = (sumi_error){0};
            CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
            CHECK_TEXT(error.text, "");
            forget_all(&b, &n, &m);
        }
        CHECK(!fails && nth > 6);
    }
    sumi_plan_end(&n.plan);
    close_bench(&b);
}

TEST(a_larger_plan_takes_the_arena_over_and_graphs_follow)
{
    fake_reset();
    bench b;
    static model m;
    network small, large;
    sumi_error error = {0};
    make_model(&m);
    open_services(&b);
    CHECK(open_runner(&b, NULL, &error) == SUMI_OK);
    CHECK(write_network(&small, &b, &m, 8, 100, &error) == SUMI_OK);
    CHECK(write_network(&large, &b, &m, 1000, 100, &error) == SUMI_OK);
    CHECK(run_network(b.runner, &small, &error) == SUMI_OK);
    sumi_cuda* cuda = (sumi_cuda*)b.runner;
    const CUdeviceptr before = cuda->arena.address;
    CHECK(plan_ready(b.runner, &large.plan, &error) == SUMI_OK);
    CHECK(cuda->arena.address != before || cuda->arena.bytes >= large.plan.arena_bytes);
    CHECK_NUMBER(sumi_cuda_find_plan(cuda, &small.plan)->graph_count, 0);
    CHECK(run_network(b.runner, &small, &error) == SUMI_OK);
    CHECK_NUMBER(sumi_cuda_find_plan(cuda, &small.plan)->graph_count, small.plan.slice_count);
    CHECK_NUMBER(sumi_cuda_find_plan(cuda, &large.plan)->graph_count, large.plan.slice_count);

    // A larger one for which there is no room, not even after the old one has gone: a clear result, and the small one
    // works again.
    network huge;
    CHECK(write_network(&huge, &b, &m, 1024 * 1024, 100, &error) == SUMI_OK);
    fake_limit_device_bytes(64u << 20);
    CHECK(plan_prepare(b.runner, &huge.plan, &error) == SUMI_OK);
    const sumi_result refused = b.runner->functions->reserve(b.runner, &huge.plan, &error);
    CHECK(refused == SUMI_OUT_OF_DEVICE_MEMORY || refused == SUMI_OUT_OF_HOST_MEMORY); // whichever is asked for first
    error = (sumi_error){0};
    CHECK(run_network(b.runner, &small, &error) == SUMI_OK);
    fake_limit_device_bytes(0);
    plan_forget(b.runner, &huge.plan);
    plan_forget(b.runner, &large.plan);
    plan_forget(b.runner, &small.plan);
    sumi_plan_end(&huge.plan);
    sumi_plan_end(&large.plan);
    sumi_plan_end(&small.plan);
    close_bench(&b);
}

// ---- Weights --------------------------------------------------------------------------------------------------------

TEST(weights_arrive_and_go)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 100, &error);
    const sumi_cuda* cuda = (const sumi_cuda*)b.runner;
    const sumi_runner_functions* f = b.runner->functions;
    sumi_device_facts facts;
    sumi_device_need need;
    CHECK(f->need(b.runner, &n.plan, 0, &need, &error) == SUMI_OK && need.fits && need.streamed_bytes == 0);
    const uint64_t needed = need.weight_bytes;
    CHECK(plan_prepare(b.runner, &n.plan, &error) == SUMI_OK);
    f->facts(b.runner, &facts);
    CHECK_NUMBER(facts.held_bytes[SUMI_MEMORY_WEIGHTS], needed);
    CHECK_NUMBER(facts.held_bytes[SUMI_MEMORY_STAGING], 0); // the way there is given back

    const sumi_cuda_resident* table = sumi_cuda_weights_find(&cuda->weights, &m.embedding, SUMI_CUDA_FORM_MATRIX);
    // the fake's device memory is the host's
    CHECK(table != NULL && memcmp((const void*)(uintptr_t)table->on_device.data, m.table, sizeof m.table) == 0);
    const sumi_cuda_resident* gated = sumi_cuda_weights_find(&cuda->weights, &m.gate_up, SUMI_CUDA_FORM_GATED);
    CHECK(gated != NULL && gated->on_device.data % 512 == 0 && gated->on_device.pitch == WIDTH);
    CHECK(sumi_cuda_weights_find(&cuda->weights, &m.gate_up, SUMI_CUDA_FORM_MATRIX) == NULL);
    CHECK(sumi_cuda_weights_find(&cuda->weights, &m.bias_weight, SUMI_CUDA_FORM_VECTOR) != NULL);
    CHECK(sumi_cuda_weights_find(&cuda->weights, &m.narrow, SUMI_CUDA_FORM_MATRIX) == NULL); // the plan does not use it

    f->release_weights(b.runner, m.list, 3);
    CHECK(sumi_cuda_weights_find(&cuda->weights, &m.embedding, SUMI_CUDA_FORM_MATRIX) == NULL);
    CHECK(sumi_cuda_weights_find(&cuda->weights, &m.down, SUMI_CUDA_FORM_MATRIX) != NULL);
    CHECK(run_network(b.runner, &n, &error) == SUMI_OK); // brings them again
    f->release_weights(b.runner, m.list, 6);
    f->facts(b.runner, &facts);
    CHECK_NUMBER(facts.held_bytes[SUMI_MEMORY_WEIGHTS], 0);
    CHECK_NUMBER(facts.capability, 90);
    close_network(&b, &n);
}

TEST(large_weights_come_in_pieces_from_any_address)
{
    fake_reset();
    bench b;
    sumi_error error = {0};
    enum { ROWS = 6000, COLS = 1504 }; // 18 MB: several slots
    unsigned char* file = malloc((size_t)ROWS * COLS * 2 + 1);
    for (size_t i = 0; i < (size_t)ROWS * COLS * 2 + 1; i++) file[i] = (unsigned char)(i * 2654435761u >> 13);
    sumi_weight weight = weight_of("large", ROWS, COLS, file + 1, SUMI_DTYPE_BF16);
    weight.tensors[0].rows = ROWS / 3;
    weight.tensor_count = 2;
    weight.tensors[1] = (sumi_stacked_tensor){.data = file + 1 + (size_t)(ROWS / 3) * COLS * 2,
                                              .dtype = SUMI_DTYPE_BF16,
                                              .rows = ROWS - ROWS / 3,
                                              .scale = 1.0f};
    open_services(&b);
    CHECK(open_runner(&b, NULL, &error) == SUMI_OK);
    sumi_plan plan;
    sumi_runner_begin_plan(b.runner, &plan, &b.heap);
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 4, COLS);
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "large", .x = x, .weight = &weight});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    bool is_done = false;
    int32_t calls = 0;
    for (float progress = 0.0f, last = 0.0f; !is_done && calls < 1000; calls++, last = progress) {
        CHECK(b.runner->functions->prepare(b.runner, &plan, 0, &is_done, &progress, &error) == SUMI_OK);
        CHECK(progress >= last);
    }
    CHECK(calls > 8 && is_done); // at least a megabyte each time
    const sumi_cuda_resident* there =
        sumi_cuda_weights_find(&((const sumi_cuda*)b.runner)->weights, &weight, SUMI_CUDA_FORM_MATRIX);
    CHECK(there != NULL
          && memcmp((const void*)(uintptr_t)there->on_device.data, file + 1, (size_t)ROWS * COLS * 2) == 0);
    plan_forget(b.runner, &plan);
    sumi_plan_end(&plan);
    close_bench(&b);
    free(file);
}

// A stack of two types of blocks stays as the file has it, byte for byte; without them it is bfloat16.
TEST(weights_of_block_types_stay_as_their_file_has_them)
{
    fake_reset();
    bench b;
    sumi_error error = {0};
    enum { ROWS = 1000, COLS = 2304, FIRST = 333, BYTES_Q6 = COLS / 256 * 210, BYTES_Q4 = COLS / 256 * 144 };
    enum { ALL = FIRST * BYTES_Q6 + (ROWS - FIRST) * BYTES_Q4 };
    unsigned char* file = malloc(ALL + 2);
    for (size_t i = 0; i < ALL + 2; i++) file[i] = (unsigned char)(i * 2654435761u >> 13);
    sumi_weight weight = weight_of("stack", ROWS, COLS, file + 2, SUMI_DTYPE_Q6_K);
    weight.tensors[0].rows = FIRST;
    weight.tensor_count = 2;
    weight.tensors[1] = (sumi_stacked_tensor){
        .data = file + 2 + FIRST * BYTES_Q6, .dtype = SUMI_DTYPE_Q4_K, .rows = ROWS - FIRST, .scale = 1.0f};
    open_services(&b);
    CHECK(open_runner(&b, NULL, &error) == SUMI_OK);
    sumi_plan plan;
    sumi_runner_begin_plan(b.runner, &plan, &b.heap);
    plan.weight_options.weights = SUMI_WEIGHTS_AS_STORED;
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0); // a text encoder's too
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 4, COLS);
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "stack", .x = x, .weight = &weight});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    CHECK(plan.ops[0].marks == SUMI_CUDA_OP_STORED);
    CHECK(plan_prepare(b.runner, &plan, &error) == SUMI_OK);
    const sumi_cuda_resident* there =
        sumi_cuda_weights_find(&((const sumi_cuda*)b.runner)->weights, &weight, SUMI_CUDA_FORM_STORED);
    sumi_cuda_stored_tensor parts[SUMI_WEIGHT_MAX_TENSORS];
    CHECK_NUMBER(sumi_cuda_stored_tensors(&weight, SUMI_CUDA_FORM_STORED, parts), 2);
    CHECK(parts[1].offset % 16 == 0 && parts[1].offset >= (uint64_t)FIRST * BYTES_Q6);
    CHECK(there != NULL && there->bytes <= ALL + 1024);
    for (int p = 0; p < 2 && there != NULL; p++) {
        const unsigned char* its = (const unsigned char*)(uintptr_t)there->on_device.data + parts[p].offset;
        CHECK(memcmp(its, weight.tensors[p].data, (size_t)(parts[p].row_bytes * (uint64_t)parts[p].rows)) == 0);
    }
    plan_forget(b.runner, &plan);
    sumi_plan_end(&plan);
    close_bench(&b);
    free(file);
}

TEST(what_is_kept_as_stored_follows_from_the_weight)
{
    static const sumi_weight_change change = {.down = {.rows = 4}, .up = {.rows = 512}};
    static const float scales[512];
    sumi_weight q4 = weight_of("q4", 512, 256, NULL, SUMI_DTYPE_Q4_0), odd = weight_of("odd", 512, 48, NULL, 0),
                changed = q4, scaled = weight_of("scaled", 512, 256, NULL, SUMI_DTYPE_F8_E4M3), rows = scaled,
                half = weight_of("half", 512, 256, NULL, SUMI_DTYPE_F16);
    odd.tensors[0].dtype = SUMI_DTYPE_F8_E5M2;
    changed.change = &change;
    scaled.tensors[0].scale = 0.25f;
    rows.tensors[0].row_scales = scales;
    CHECK(sumi_cuda_is_storable(&q4) && sumi_cuda_is_storable(&scaled));
    CHECK(!sumi_cuda_is_storable(&odd) && !sumi_cuda_is_storable(&changed) && !sumi_cuda_is_storable(&rows)
          && !sumi_cuda_is_storable(&half));
    CHECK(sumi_cuda_form_bytes(&q4, SUMI_CUDA_FORM_STORED) <= 512 * 256 / 32 * 18 + 1024);
    CHECK(sumi_cuda_form_bytes(&half, SUMI_CUDA_FORM_INT4) <= 512 * 256 / 32 * 18 + 1024);
    CHECK(sumi_cuda_host_makes(&q4, SUMI_CUDA_FORM_STORED) && !sumi_cuda_host_makes(&half, SUMI_CUDA_FORM_INT4));
}

// What kernels that convert rows find: the sums, as floats, each row once.
typedef struct sums_seen {
    const sumi_weight* weight;
    int32_t rows, wrong;
} sums_seen;

static void look_at_sums(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data)
{
    sums_seen* seen = user_data;
    sumi_upload_args args;
    if (strncmp(kernel, "sumi_upload_", 12) != 0) return;
    CHECK(bytes >= sizeof args);
    memcpy(&args, parameters, sizeof args);
    const int32_t cols = seen->weight->cols;
    if (args.cols != cols) return;
    float* want = malloc((size_t)cols * sizeof *want);
    for (int32_t r = 0; r < args.row_count; r++) {
        sumi_weight_to_float(seen->weight, args.row_begin + r, 1, want, cols);
        seen->wrong +=
            memcmp((const float*)(uintptr_t)args.from + (size_t)r * (size_t)cols, want, (size_t)cols * sizeof *want)
            != 0;
    }
    seen->wrong += args.type != SUMI_UPLOAD_F32 || args.scale != 1.0f || args.row_begin != seen->rows;
    seen->rows += args.row_count;
    free(want);
}

static void check_floats(const sumi_weight* weight)
{
    fake_reset();
    bench b;
    sumi_error error = {0};
    open_services(&b);
    CHECK(open_runner(&b, NULL, &error) == SUMI_OK);
    sumi_plan plan;
    sumi_runner_begin_plan(b.runner, &plan, &b.heap);
    sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 4, weight->cols);
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = weight->name, .x = x, .weight = weight});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    sums_seen seen = {.weight = weight};
    fake_on_launch(look_at_sums, &seen);
    CHECK(plan_prepare(b.runner, &plan, &error) == SUMI_OK);
    fake_on_launch(NULL, NULL);
    CHECK_NUMBER(seen.rows, weight->rows);
    CHECK_NUMBER(seen.wrong, 0);
    plan_forget(b.runner, &plan);
    sumi_plan_end(&plan);
    close_bench(&b);
}

// 9 MB of floats: several slots.
enum { FLOAT_ROWS = 1500, FLOAT_COLS = 1504 };

TEST(weights_with_a_change_come_as_floats_of_the_sums)
{
    enum { RANK = 4 };
    static uint16_t data[FLOAT_ROWS * FLOAT_COLS], down[RANK * FLOAT_COLS], up[FLOAT_ROWS * RANK];
    fill(data, FLOAT_ROWS * FLOAT_COLS, 6);
    fill(down, RANK * FLOAT_COLS, 7);
    fill(up, FLOAT_ROWS * RANK, 8);
    const sumi_weight_change change = {.down = {.data = down, .dtype = SUMI_DTYPE_BF16, .rows = RANK, .scale = 1.0f},
                                       .up = {.data = up, .dtype = SUMI_DTYPE_BF16, .rows = FLOAT_ROWS, .scale = 0.5f}};
    sumi_weight weight = weight_of("changed", FLOAT_ROWS, FLOAT_COLS, data, SUMI_DTYPE_BF16);
    weight.change = &change;
    check_floats(&weight);
}

TEST(weights_with_scales_of_rows_or_rotated_come_as_floats)
{
    static unsigned char data[FLOAT_ROWS * FLOAT_COLS];
    static float scales[FLOAT_ROWS];
    for (int i = 0; i < FLOAT_ROWS * FLOAT_COLS; i++) data[i] = (unsigned char)(i * 37 % 127); // no NaN as e4m3
    for (int i = 0; i < FLOAT_ROWS; i++) scales[i] = 0.25f + (float)(i % 9) / 8.0f;
    sumi_weight weight = weight_of("fp8 rows", FLOAT_ROWS, FLOAT_COLS, data, SUMI_DTYPE_F8_E4M3);
    weight.tensors[0].row_scales = scales;
    check_floats(&weight);
    weight = weight_of("rotated", FLOAT_ROWS, FLOAT_COLS, data, SUMI_DTYPE_I8);
    weight.tensors[0].row_scales = scales;
    weight.tensors[0].rotation = 16;
    check_floats(&weight);
}

TEST(a_balance_is_the_root_of_what_a_norm_multiplies_by)
{
    static const float values[8] = {4.0f, -4.0f, 16.0f, 0.0f, 1e-3f, 4.0f, -100.0f, 0.25f};
    const float mean = 128.251f / 8.0f, least = mean / 16.0f;
    const sumi_weight norm = weight_of("norm", 1, 8, values, SUMI_DTYPE_F32);
    float got[8];
    sumi_cuda_balance(&norm, got);
    for (int32_t c = 0; c < 8; c++) {
        const float size = fabsf(values[c]) < least ? least : fabsf(values[c]);
        CHECK_NEAR(got[c] * sqrtf(size), 1.0, 1e-5, 0);
    }
    static const float zeros[8] = {0};
    const sumi_weight none = weight_of("zeros", 1, 8, zeros, SUMI_DTYPE_F32);
    sumi_cuda_balance(&none, got);
    for (int32_t c = 0; c < 8; c++) CHECK(isfinite(got[c]) && got[c] > 0.0f);
}

// What kernels that convert rows find of a balance: it is there before the first of them.
typedef struct balances_seen {
    const float* want;
    int32_t cols, rows, vectors, wrong;
} balances_seen;

static void look_at_balances(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data)
{
    balances_seen* seen = user_data;
    sumi_upload_args args;
    if (strncmp(kernel, "sumi_upload_", 12) != 0) return;
    CHECK(bytes >= sizeof args);
    memcpy(&args, parameters, sizeof args);
    const float *balance = (const float*)(uintptr_t)args.balance, *from = (const float*)(uintptr_t)args.from;
    seen->wrong += balance == NULL || args.balance % 16 != 0
                || memcmp(balance, seen->want, (size_t)seen->cols * sizeof *balance) != 0;
    if (args.stack_rows == 1) seen->vectors++;
    for (int32_t r = 0; r < args.row_count && args.stack_rows > 1; r++)
        seen->wrong += from[(size_t)r * (size_t)args.cols] != (float)(args.row_begin + r);
    seen->rows += args.stack_rows > 1 ? args.row_count : 0;
}

TEST(a_balance_arrives_before_the_rows_that_it_is_for)
{
    enum { ROWS = 1504, COLS = 1520 }; // 9 MB: several slots
    fake_reset();
    bench b;
    sumi_error error = {0};
    static float values[COLS], want[COLS];
    float* file = calloc((size_t)ROWS * COLS, sizeof *file);
    for (int32_t c = 0; c < COLS; c++) values[c] = c % 30 == 7 ? 40.0f : 1.0f + (float)c / COLS;
    for (int32_t r = 0; r < ROWS; r++) file[(size_t)r * COLS] = (float)r;
    sumi_weight norm = weight_of("norm", 1, COLS, values, SUMI_DTYPE_F32),
                product = weight_of("product", ROWS, COLS, file, SUMI_DTYPE_F32);
    product.balance = &norm;
    sumi_cuda_balance(&norm, want);
    open_services(&b);
    CHECK(open_runner(&b, NULL, &error) == SUMI_OK);
    sumi_plan plan;
    sumi_runner_begin_plan(b.runner, &plan, &b.heap);
    plan.weight_options.weights = SUMI_WEIGHTS_INT8;
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 4, COLS);
    sumi_value n = sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "n", .x = x, .weight = &norm, .eps = 1e-5f});
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "product", .x = n, .weight = &product});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    balances_seen seen = {.want = want, .cols = COLS};
    fake_on_launch(look_at_balances, &seen);
    CHECK(plan_prepare(b.runner, &plan, &error) == SUMI_OK);
    fake_on_launch(NULL, NULL);
    CHECK_TEXT(error.text, "");
    CHECK_NUMBER(seen.rows, ROWS);
    CHECK_NUMBER(seen.vectors, 1);
    CHECK_NUMBER(seen.wrong, 0);
    const sumi_cuda_form forms[] = {SUMI_CUDA_FORM_VECTOR_BALANCED, SUMI_CUDA_FORM_MATRIX_INT8};
    for (int32_t i = 0; i < 2; i++) { // behind all else of the form
        const sumi_cuda_resident* there =
            sumi_cuda_weights_find(&((const sumi_cuda*)b.runner)->weights, i == 0 ? &norm : &product, forms[i]);
        CHECK(there != NULL && there->on_device.balance >= there->on_device.data + (i == 0 ? COLS * 4 : 0)
              && there->on_device.balance >= there->on_device.scales + (i == 0 ? 0 : ROWS * 4)
              && there->on_device.balance + COLS * 4 <= there->on_device.data + there->bytes);
    }
    plan_forget(b.runner, &plan);
    sumi_plan_end(&plan);
    close_bench(&b);
    free(file);
}

// A host calls in its frames: however much has to be pinned, weights' slots and the pages of inputs and results, a call
// has about a millisecond of it.
TEST(no_call_pins_long)
{
    // 36 MiB of floats; x: 3 MiB of activations
    enum { PIN_US = 2000, BUDGET_US = 500, ROWS = 4096, COLS = 2304, TOKENS_OF_X = 700 };
    fake_reset();
    fake_pinning_takes(PIN_US);
    bench b;
    sumi_error error = {0};
    float* file = malloc((size_t)ROWS * COLS * sizeof *file);
    for (size_t i = 0; i < (size_t)ROWS * COLS; i++) file[i] = (float)i;
    const sumi_weight weight = weight_of("large", ROWS, COLS, file, SUMI_DTYPE_F32);
    open_services(&b);
    CHECK(open_runner(&b, NULL, &error) == SUMI_OK);
    const sumi_runner_functions* f = b.runner->functions;
    sumi_plan plan;
    sumi_runner_begin_plan(b.runner, &plan, &b.heap);
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
    const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, TOKENS_OF_X, COLS);
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "large", .x = x, .weight = &weight});
    // written, so that it can be fetched
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = x, .y = x, .y_row = 1, .rows = 1});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK
          && sumi_plan_slice(&plan, &(sumi_rates){1e6, 1e6, 3.0}, 0, &error) == SUMI_OK);
    uint64_t longest = 0;
    for (int32_t round = 0; round < 2; round++) { // a model job brings weights, a picture's job adds the rest
        bool is_done = false;
        float progress;
        for (int32_t calls = 0; !is_done && calls < 1000; calls++) {
            const uint64_t before = fake_pinning_us();
            CHECK(f->prepare(b.runner, &plan, BUDGET_US, &is_done, &progress, &error) == SUMI_OK);
            const uint64_t spent = fake_pinning_us() - before;
            longest = spent > longest ? spent : longest;
        }
        CHECK(is_done);
        const uint64_t before = fake_pinning_us();
        if (round == 0) CHECK(f->reserve(b.runner, &plan, &error) == SUMI_OK);
        CHECK_NUMBER(fake_pinning_us() - before, 0);
    }
    CHECK_NUMBER(longest, PIN_US);                        // one megabyte
    CHECK(fake_pinning_us() >= (4 + 4 + 3 + 4) * PIN_US); // slots, there and gone, the ring, x

    const uint64_t bytes = sumi_plan_info(&plan, x)->bytes;
    CHECK(bytes > 3 << 20);
    f->start(b.runner, &plan);
    for (uint64_t at = 0; at < bytes; at += 1000001) { // over the ends of pages, twice around the ring
        const uint64_t piece = bytes - at < 1000001 ? bytes - at : 1000001;
        f->write(b.runner, &plan, x, at, (const unsigned char*)file + (3 << 20), piece);
        f->write(b.runner, &plan, x, at, (const unsigned char*)file + at, piece);
    }
    CHECK(f->start_read(b.runner, &plan, x, &error) == SUMI_OK);
    unsigned char* back = malloc((size_t)bytes);
    f->read(b.runner, &plan, x, 0, back, 77);
    f->read(b.runner, &plan, x, 77, back + 77, bytes - 77);
    CHECK(memcmp(back, file, (size_t)bytes) == 0);
    free(back);
    plan_forget(b.runner, &plan);
    sumi_plan_end(&plan);
    close_bench(&b);
    free(file);
}

TEST(what_did_not_go_goes_again)
{
    static model m;
    make_model(&m);
    const char* const calls[] = {"cuMemcpyHtoDAsync", "cuLaunchKernel", "cuEventRecord"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fake_reset();
        bench b;
        network n;
        sumi_error error = {0};
        open_services(&b);
        CHECK(open_runner(&b, NULL, &error) == SUMI_OK);
        CHECK(write_network(&n, &b, &m, TOKENS, 100, &error) == SUMI_OK);
        fake_fail_call(calls[i], 1, 1); // CUDA_ERROR_INVALID_VALUE
        CHECK(plan_prepare(b.runner, &n.plan, &error) == SUMI_INTERNAL);
        CHECK(fake_fail_call(NULL, 0, 0));
        error = (sumi_error){0};
        CHECK(plan_prepare(b.runner, &n.plan, &error) == SUMI_OK);
        const sumi_cuda_resident* table =
            sumi_cuda_weights_find(&((const sumi_cuda*)b.runner)->weights, &m.embedding, SUMI_CUDA_FORM_MATRIX);
        CHECK(table != NULL && memcmp((const void*)(uintptr_t)table->on_device.data, m.table, sizeof m.table) == 0);
        plan_forget(b.runner, &n.plan);
        sumi_plan_end(&n.plan);
        close_bench(&b);
    }
}

// ---- Inputs and results ---------------------------------------------------------------------------------------------

TEST(inputs_go_through_the_ring_whole)
{
    fake_reset();
    fake_complete_after(3); // copies are slow: the ring fills
    bench b;
    sumi_error error = {0};
    open_services(&b);
    CHECK(open_runner(&b, NULL, &error) == SUMI_OK);
    enum { ROWS = 3000, COLS = 1024 }; // 12 MB: more than the ring
    sumi_plan plan;
    sumi_runner_begin_plan(b.runner, &plan, &b.heap);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, ROWS, COLS);
    sumi_value y = sumi_plan_bound(&plan, "y", SUMI_ELEMENT_FLOAT, ROWS, COLS);
    const int32_t others[3] = {7, 8, 9};
    sumi_value first = sumi_plan_constant(&plan, "first", SUMI_ELEMENT_INT, 3, 1, others);
    sumi_value c = sumi_plan_constant(&plan, "c", SUMI_ELEMENT_INT, 2, 2, s_counts);
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = first, .y = first, .y_row = 2, .rows = 1});
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = x, .y = y, .rows = ROWS});
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = c, .y = c, .y_row = 1, .rows = 1});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    CHECK(sumi_plan_slice(&plan, &(sumi_rates){1e6, 1e6, 3.0}, 0, &error) == SUMI_OK);
    CHECK(plan_ready(b.runner, &plan, &error) == SUMI_OK);
    unsigned char *from = malloc((size_t)ROWS * COLS * 4), *into = malloc((size_t)ROWS * COLS * 4);
    for (size_t i = 0; i < (size_t)ROWS * COLS * 4; i++) from[i] = (unsigned char)(i * 2654435761u >> 11);
    b.runner->functions->start(b.runner, &plan);
    uint64_t at = 0;
    for (uint64_t piece = 1; at < (uint64_t)ROWS * COLS * 4; at += piece, piece = piece * 3 + 1) {
        if (piece > (uint64_t)ROWS * COLS * 4 - at) piece = (uint64_t)ROWS * COLS * 4 - at;
        b.runner->functions->write(b.runner, &plan, y, at, from + at, piece);
    }
    CHECK(b.runner->functions->health(b.runner, &error) == SUMI_OK);
    CHECK(plan_read(b.runner, &plan, y, into, &error) == SUMI_OK); // no kernel has written over it: there are none here
    CHECK(memcmp(from, into, (size_t)ROWS * COLS * 4) == 0);
    int32_t counts[4] = {0};
    CHECK(plan_read(b.runner, &plan, c, counts, &error) == SUMI_OK);
    CHECK(memcmp(counts, s_counts, sizeof counts) == 0);
    CHECK(plan_read(b.runner, &plan, first, counts, &error) == SUMI_OK);
    CHECK(memcmp(counts, others, sizeof others) == 0);
    CHECK(b.runner->functions->start_read(b.runner, &plan, x, &error) == SUMI_INTERNAL); // nothing writes it
    free(from);
    free(into);
    plan_forget(b.runner, &plan);
    sumi_plan_end(&plan);
    close_bench(&b);
}

TEST(slices_are_reported_in_order_when_they_are_over)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 0, &error);
    CHECK(plan_ready(b.runner, &n.plan, &error) == SUMI_OK);
    const sumi_runner_functions* f = b.runner->functions;
    f->start(b.runner, &n.plan);
    write_ids(b.runner, &n);
    sumi_slice_time time = {.us = -1.0};
    CHECK(!f->collect(b.runner, &time) && f->pending(b.runner) == 0);
    f->wait(b.runner, 1); // returns at once
    fake_complete_after(2);
    CHECK(f->run(b.runner, &n.plan, &n.plan.slices[0], 0, &error) == SUMI_OK);
    CHECK(f->start_read(b.runner, &n.plan, n.y, &error) == SUMI_OK);
    CHECK(f->run(b.runner, &n.plan, &n.plan.slices[1], 5, &error) == SUMI_OK);
    CHECK_NUMBER(f->pending(b.runner), 2);
    CHECK(!f->idle(b.runner));
    int32_t asked = 1;
    while (!f->collect(b.runner, &time) && asked < 20) asked++;
    CHECK(asked > 3 && asked < 20); // the slice, then the copy behind it
    CHECK(time.us >= 0.0);
    CHECK_NUMBER(f->pending(b.runner), 1);
    f->wait(b.runner, 1);
    CHECK(f->collect(b.runner, &time));
    CHECK_NUMBER(f->pending(b.runner), 0);
    uint16_t y[TOKENS * WIDTH];
    f->read(b.runner, &n.plan, n.y, 0, y, sizeof y);
    CHECK(f->idle(b.runner));
    fake_complete_after(0);
    for (int32_t i = 0; i < SUMI_RUNNER_DEPTH; i++)
        CHECK(f->run(b.runner, &n.plan, &n.plan.slices[0], 0, &error) == SUMI_OK);
    CHECK(f->run(b.runner, &n.plan, &n.plan.slices[0], 0, &error) == SUMI_INTERNAL); // the engine never does that
    CHECK(runner_drain(b.runner, 0, NULL, NULL) == SUMI_OK);
    close_network(&b, &n);
}

TEST(a_lost_device_is_said_and_stays_lost)
{
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 100, &error);
    CHECK(plan_ready(b.runner, &n.plan, &error) == SUMI_OK);
    const sumi_runner_functions* f = b.runner->functions;
    f->start(b.runner, &n.plan);
    write_ids(b.runner, &n);
    CHECK(f->run(b.runner, &n.plan, &n.plan.slices[0], 0, &error) == SUMI_OK);
    fake_lose_device();
    sumi_slice_time time;
    CHECK(!f->collect(b.runner, &time));
    CHECK(f->health(b.runner, &error) == SUMI_DEVICE_LOST);
    CHECK(error.text[0] != 0);
    CHECK_NUMBER(f->pending(b.runner), 0); // nothing to wait for
    f->wait(b.runner, 1);
    CHECK(f->idle(b.runner));
    error = (sumi_error){0};
    CHECK(f->run(b.runner, &n.plan, &n.plan.slices[0], 0, &error) == SUMI_DEVICE_LOST);
    bool is_done;
    float progress;
    CHECK(f->prepare(b.runner, &n.plan, 1000, &is_done, &progress, NULL) == SUMI_DEVICE_LOST);
    f->start(b.runner, &n.plan);
    write_ids(b.runner, &n);
    uint16_t y[TOKENS * WIDTH];
    f->read(b.runner, &n.plan, n.y, 0, y, sizeof y); // anything, but no crash
    CHECK(f->health(b.runner, NULL) == SUMI_DEVICE_LOST);
    plan_forget(b.runner, &n.plan);
    f->release_weights(b.runner, m.list, 6);
    sumi_plan_end(&n.plan);
    close_bench(&b);
}

// ---- What launchers are told ----------------------------------------------------------------------------------------

// The backend's pass, of a device of 9.0, for plans that nothing runs.
static void arrange_for_90(const sumi_runner* runner, sumi_plan* plan)
{
    (void)runner;
    sumi_cuda_arrange(&(sumi_cuda_device){.capability = 90}, plan);
}
static void arrange_for_86(const sumi_runner* runner, sumi_plan* plan)
{
    (void)runner;
    sumi_cuda_arrange(&(sumi_cuda_device){.capability = 86}, plan);
}
static void begin_for_90(sumi_plan* plan, sumi_heap* heap)
{
    sumi_plan_begin(plan, heap, 2);
    plan->arrange = arrange_for_90;
}

TEST(forms_follow_from_the_ops)
{
    static model m;
    bench b;
    network n;
    sumi_error error = {0};
    open_network(&b, &m, &n, 0, &error);
    const sumi_plan* plan = &n.plan;
    int32_t linear = 0;
    while (plan->ops[linear].kind != SUMI_OP_LINEAR) linear++;
    CHECK(sumi_cuda_is_fused_gated(plan, linear) && sumi_cuda_is_fused_gated(plan, linear + 1));
    CHECK(!sumi_cuda_is_fused_gated(plan, linear - 1) && !sumi_cuda_is_fused_gated(plan, linear + 2));
    const sumi_value_info *x = sumi_plan_info(plan, plan->ops[linear].in[0]),
                          *y = sumi_plan_info(plan, plan->ops[linear + 1].out);
    // what the fused kernel reads and writes
    CHECK(y->offset >= x->offset + x->bytes || x->offset >= y->offset + y->bytes);
    for (size_t v = 0; v < plan->value_count; v++) {
        const bool is_it = (int32_t)v == plan->ops[linear].out.id - 1;
        CHECK_NUMBER(plan->values[v].marks, is_it ? SUMI_CUDA_VALUE_GATED : 0);
        CHECK_NUMBER(plan->values[v].is_unstored, is_it);
    }
    close_network(&b, &n);
}

// 8 bits take what is large of the denoising section: e4m3 where a device can, int8 anywhere.
static void check_8bit_marks(sumi_weight_format weights, sumi_cuda_form gated, sumi_cuda_form plain, bool has_old)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    sumi_weight a = weight_of("a", 512, 256, NULL, SUMI_DTYPE_BF16),
                b = weight_of("b", 256, 256, NULL, SUMI_DTYPE_BF16),
                small = weight_of("small", 48, 256, NULL, SUMI_DTYPE_BF16),
                kept = weight_of("kept", 256, 256, NULL, SUMI_DTYPE_BF16);
    kept.keeps_precision = true;
    sumi_plan plan;
    begin_for_90(&plan, &heap);
    plan.weight_options.weights = weights;
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_value in = sumi_plan_bound(&plan, "in", SUMI_ELEMENT_ACTIVATION, 32, 256);
    // 0, in another section
    sumi_value x = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "before", .x = in, .weight = &b});
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
    sumi_value n = sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "n", .x = x, .eps = 1e-5f}); // 1
    // 2, 3
    sumi_value g = sumi_plan_linear_gated(&plan, "a", n, &a, SUMI_ACT_SILU);
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "b", .x = g, .weight = &b});                // 4
    sumi_value shared = sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "shared", .x = x, .eps = 1e-5f}); // 5
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "b", .x = shared, .weight = &b});           // 6
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "small", .x = shared, .weight = &small});   // 7
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "kept", .x = shared, .weight = &kept});     // 8
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    const bool expected[] = {false, false, true, false, true, false, true, false, false};
    for (int32_t i = 0; i < 9; i++) CHECK(((plan.ops[i].marks & SUMI_CUDA_OP_8BIT) != 0) == expected[i]);
    CHECK(sumi_plan_info(&plan, n)->marks == SUMI_CUDA_VALUE_8BIT);
    // shared has a reader that wants bfloat16, g is no norm's
    CHECK(sumi_plan_info(&plan, shared)->marks == 0 && sumi_plan_info(&plan, g)->marks == 0
          && sumi_plan_info(&plan, x)->marks == 0);
    const sumi_weight* weight;
    sumi_cuda_form form;
    CHECK(sumi_cuda_op_weight(&plan, 2, 0, &weight, &form) && form == gated);
    CHECK(sumi_cuda_op_weight(&plan, 4, 0, &weight, &form) && form == plain);
    CHECK(sumi_cuda_op_weight(&plan, 0, 0, &weight, &form) && form == SUMI_CUDA_FORM_MATRIX);
    plan.arrange = arrange_for_86;
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    for (int32_t i = 0; i < 9; i++) CHECK(((plan.ops[i].marks & SUMI_CUDA_OP_8BIT) != 0) == (has_old && expected[i]));
    CHECK((sumi_plan_info(&plan, n)->marks != 0) == has_old && plan.ops[2].is_first_of_pair);
    // a plan that no backend arranges is done op by op
    plan.arrange = NULL;
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    CHECK(sumi_cuda_op_weight(&plan, 2, 0, &weight, &form) && form == SUMI_CUDA_FORM_MATRIX);
    CHECK(!sumi_cuda_is_fused_gated(&plan, 2));
    sumi_plan_end(&plan);
}

TEST(eight_bits_take_large_weights_of_the_denoising_section)
{
    check_8bit_marks(SUMI_WEIGHTS_FP8, SUMI_CUDA_FORM_GATED_FP8, SUMI_CUDA_FORM_MATRIX_FP8, false);
    check_8bit_marks(SUMI_WEIGHTS_INT8, SUMI_CUDA_FORM_GATED_INT8, SUMI_CUDA_FORM_MATRIX_INT8, true);
}

// Texts and pictures in prompts have a format, denoising has one, and what else there is has none. A value in 8 bits is
// read by ops of its own format only.
TEST(text_encoders_have_a_format_of_their_own)
{
    static const float values[256];
    static const struct {
        sumi_weight_format weights, text_weights;
        sumi_cuda_form forms[4]; // vision, text, prepare, denoise
        uint8_t text_marks;      // of what the text's norm writes
    } s_cases[] = {
        {SUMI_WEIGHTS_BF16,
         SUMI_WEIGHTS_INT8,
         {SUMI_CUDA_FORM_MATRIX_INT8, SUMI_CUDA_FORM_MATRIX_INT8, SUMI_CUDA_FORM_MATRIX, SUMI_CUDA_FORM_MATRIX},
         SUMI_CUDA_VALUE_8BIT | SUMI_CUDA_VALUE_BALANCED},
        {SUMI_WEIGHTS_INT8,
         SUMI_WEIGHTS_BF16,
         {SUMI_CUDA_FORM_MATRIX, SUMI_CUDA_FORM_MATRIX, SUMI_CUDA_FORM_MATRIX, SUMI_CUDA_FORM_MATRIX_INT8},
         0},
        {SUMI_WEIGHTS_INT8,
         SUMI_WEIGHTS_FP8,
         {SUMI_CUDA_FORM_MATRIX_FP8, SUMI_CUDA_FORM_MATRIX_FP8, SUMI_CUDA_FORM_MATRIX, SUMI_CUDA_FORM_MATRIX_INT8},
         SUMI_CUDA_VALUE_8BIT},
        {SUMI_WEIGHTS_FP8,
         SUMI_WEIGHTS_INT4,
         {SUMI_CUDA_FORM_INT4, SUMI_CUDA_FORM_INT4, SUMI_CUDA_FORM_MATRIX, SUMI_CUDA_FORM_MATRIX_FP8},
         0},
        {SUMI_WEIGHTS_AS_STORED,
         SUMI_WEIGHTS_INT8,
         {SUMI_CUDA_FORM_MATRIX_INT8, SUMI_CUDA_FORM_MATRIX_INT8, SUMI_CUDA_FORM_STORED, SUMI_CUDA_FORM_STORED},
         SUMI_CUDA_VALUE_8BIT | SUMI_CUDA_VALUE_BALANCED},
        {SUMI_WEIGHTS_INT4,
         SUMI_WEIGHTS_AS_STORED,
         {SUMI_CUDA_FORM_STORED, SUMI_CUDA_FORM_STORED, SUMI_CUDA_FORM_MATRIX, SUMI_CUDA_FORM_INT4},
         0}};
    static const sumi_section_kind kinds[] = {SUMI_SECTION_VISION, SUMI_SECTION_TEXT, SUMI_SECTION_PREPARE,
                                              SUMI_SECTION_DENOISE};
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    sumi_weight norm = weight_of("norm", 1, 256, values, SUMI_DTYPE_F32), products[4];
    for (int32_t s = 0; s < 4; s++) {
        products[s] = weight_of("product", 256, 256, values, SUMI_DTYPE_Q8_0); // nothing reads it
        products[s].balance = &norm;
    }
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_plan plan;
        begin_for_90(&plan, &heap);
        plan.weight_options.weights = s_cases[i].weights;
        plan.weight_options.text_weights = s_cases[i].text_weights;
        sumi_value normed[4], x = SUMI_NO_VALUE;
        for (int32_t s = 0; s < 4; s++) {
            sumi_plan_section(&plan, kinds[s], 1, 0);
            if (s == 0) x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 32, 256);
            normed[s] =
                sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "n", .x = x, .weight = &norm, .eps = 1e-5f});
            // what denoising reads of a norm of the text's is in bfloat16 unless both have one format
            if (s == 3 && i % 2 == 0) {
                (void)sumi_plan_linear(
                    &plan, &(sumi_plan_linear_args){.label = "across", .x = normed[0], .weight = &products[3]});
            }
            x = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "p", .x = normed[s], .weight = &products[s]});
        }
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
        CHECK_TEXT(error.text, "");
        for (int32_t k = 0; k < (int32_t)plan.op_count; k++) {
            const sumi_weight* weight = NULL;
            sumi_cuda_form form;
            if (plan.ops[k].kind != SUMI_OP_LINEAR || !sumi_cuda_op_weight(&plan, k, 0, &weight, &form)) continue;
            CHECK_NUMBER(form, s_cases[i].forms[weight - products]);
        }
        CHECK_NUMBER(sumi_plan_info(&plan, normed[0])->marks, i % 2 == 0 ? 0 : s_cases[i].text_marks);
        CHECK_NUMBER(sumi_plan_info(&plan, normed[1])->marks, s_cases[i].text_marks);
        CHECK_NUMBER(sumi_plan_info(&plan, normed[2])->marks, 0);
        sumi_plan_end(&plan);
    }
}

// A matrix in int8 is balanced by its norm in every plan. The norm balances what it writes when nothing else reads that,
// and else writes bfloat16.
TEST(a_norm_balances_what_it_writes_for_balanced_products_alone)
{
    enum { ALONE, PLAIN_TOO, PRECISE_TOO, ADAPTED, NORM_ADAPTED, SHIFTED, OTHER_NORM, IN_FP8, CASES };
    static const float values[16 * 256];
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    sumi_weight norm = weight_of("norm", 1, 256, values, SUMI_DTYPE_F32),
                other_norm = weight_of("other norm", 1, 256, values, SUMI_DTYPE_F32),
                wide = weight_of("wide", 512, 256, NULL, SUMI_DTYPE_BF16),
                second = weight_of("second", 256, 256, NULL, SUMI_DTYPE_BF16);
    wide.balance = &norm;
    wide.index = 7;
    norm.index = 8;
    const sumi_delta deltas[] = {{.weight_index = 7,
                                  .scale = 1.0f,
                                  .down = weight_of("down", 4, 256, NULL, SUMI_DTYPE_BF16),
                                  .up = weight_of("up", 512, 4, NULL, SUMI_DTYPE_BF16)},
                                 {.weight_index = 8,
                                  .scale = 1.0f,
                                  .up = weight_of("change", 256, 1, values, SUMI_DTYPE_F32),
                                  .kind = SUMI_DELTA_VECTOR}};
    for (int32_t i = 0; i < CASES; i++) {
        const sumi_adapter adapter = {i == NORM_ADAPTED ? &deltas[1] : &deltas[0], 1};
        const sumi_adapter_use use = {&adapter, 0.5f};
        sumi_plan plan;
        begin_for_90(&plan, &heap);
        plan.weight_options.weights = i == IN_FP8 ? SUMI_WEIGHTS_FP8 : SUMI_WEIGHTS_INT8;
        sumi_plan_adapters(&plan, &use, i == ADAPTED || i == NORM_ADAPTED);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 32, 256),
                   table = sumi_plan_bound(&plan, "table", SUMI_ELEMENT_FLOAT, 2, 256);
        sumi_value n = sumi_plan_norm(
            &plan, &(sumi_plan_norm_args){.label = "n",
                                          .x = x,
                                          .eps = 1e-5f,
                                          .weight = i == OTHER_NORM ? &other_norm : &norm,
                                          .scale = {table, 0, true},
                                          .shift = i == SHIFTED ? (sumi_step_row){table, 0, true} : SUMI_NO_ROW});
        sumi_value y = sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "wide", .x = n, .weight = &wide});
        second.keeps_precision = i == PRECISE_TOO;
        if (i == PLAIN_TOO || i == PRECISE_TOO)
            (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "second", .x = n, .weight = &second});
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK_NUMBER(sumi_plan_info(&plan, n)->marks, i == ALONE    ? SUMI_CUDA_VALUE_8BIT | SUMI_CUDA_VALUE_BALANCED
                                                      : i == IN_FP8 ? SUMI_CUDA_VALUE_8BIT
                                                                    : 0);
        CHECK_NUMBER(sumi_plan_info(&plan, y)->marks, 0);
        int32_t norms = 0, products = 0;
        for (int32_t k = 0; k < (int32_t)plan.op_count; k++) {
            const sumi_weight* weight = NULL;
            sumi_cuda_form form;
            if (!sumi_cuda_op_weight(&plan, k, 0, &weight, &form)) continue;
            if (weight == &norm && plan.ops[k].kind == SUMI_OP_NORM_MODULATE) {
                CHECK(form == (i == ALONE ? SUMI_CUDA_FORM_VECTOR_BALANCED : SUMI_CUDA_FORM_VECTOR));
                norms++;
            }
            if (weight != &wide) continue;
            CHECK(form == (i == IN_FP8 ? SUMI_CUDA_FORM_MATRIX_FP8 : SUMI_CUDA_FORM_MATRIX_INT8));
            CHECK((sumi_cuda_place_at(512, weight, form).balance != 0) == (i != IN_FP8));
            products++;
        }
        // a norm that an adapter changes has a value in the weight's place
        CHECK(norms == (i != OTHER_NORM && i != NORM_ADAPTED) && products == 1);
        sumi_plan_end(&plan);
    }
}

TEST(an_adapter_between_product_and_gate_keeps_them_two_kernels)
{
    static model m;
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    make_model(&m);
    network n;
    sumi_error error = {0};
    sumi_delta delta = {.weight_index = m.gate_up.index,
                        .row_begin = HIDDEN,
                        .scale = 1.0f,
                        .down = weight_of("lora.down", 4, WIDTH, m.odd, SUMI_DTYPE_BF16),
                        .up = weight_of("lora.up", HIDDEN, 4, m.odd, SUMI_DTYPE_BF16)};
    const sumi_adapter adapter = {&delta, 1};
    const sumi_adapter_use use = {&adapter, 0.5f};
    memset(&n, 0, sizeof n);
    begin_for_90(&n.plan, &heap);
    sumi_plan_adapters(&n.plan, &use, 1);
    sumi_plan_section(&n.plan, SUMI_SECTION_DENOISE, 1, 0);
    sumi_value x = sumi_plan_bound(&n.plan, "x", SUMI_ELEMENT_ACTIVATION, 8, WIDTH);
    (void)sumi_plan_linear_gated(&n.plan, "mlp", x, &m.gate_up, SUMI_ACT_SILU);
    CHECK(sumi_plan_finish(&n.plan, &error) == SUMI_OK);
    CHECK_NUMBER(n.plan.op_count, 4);
    for (int32_t i = 0; i < 4; i++) CHECK(!sumi_cuda_is_fused_gated(&n.plan, i));
    // the adapter adds to interleaved columns
    CHECK(sumi_plan_info(&n.plan, n.plan.ops[0].out)->marks == SUMI_CUDA_VALUE_GATED);
    const sumi_weight* weight;
    sumi_cuda_form form;
    CHECK(sumi_cuda_op_weight(&n.plan, 0, 0, &weight, &form) && form == SUMI_CUDA_FORM_GATED);
    CHECK(sumi_cuda_op_weight(&n.plan, 2, 0, &weight, &form) && form == SUMI_CUDA_FORM_MATRIX);
    sumi_plan_end(&n.plan);
}

// The factors of a Kronecker product: precise, one as it is multiplied with, the other as floats; the sums go to
// interleaved columns. A view of what a norm writes keeps that from e4m3.
TEST(a_kronecker_product_keeps_its_forms)
{
    static model m;
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    make_model(&m);
    sumi_error error = {0};
    sumi_weight wide = weight_of("wide", 512, 256, NULL, SUMI_DTYPE_BF16);
    wide.index = 9;
    const sumi_delta delta = {.weight_index = 9,
                              .scale = 1.0f,
                              .up = weight_of("w1", 2, 2, m.left, SUMI_DTYPE_F32),
                              .down = weight_of("w2", 256, 128, NULL, SUMI_DTYPE_BF16),
                              .kind = SUMI_DELTA_KRONECKER};
    const sumi_adapter adapter = {&delta, 1};
    const sumi_adapter_use use = {&adapter, 0.5f};
    for (int32_t uses = 0; uses < 2; uses++) {
        sumi_plan plan;
        begin_for_90(&plan, &heap);
        plan.weight_options.weights = SUMI_WEIGHTS_FP8;
        sumi_plan_adapters(&plan, &use, uses);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 32, 256);
        sumi_value n = sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "n", .x = x, .eps = 1e-5f});
        (void)sumi_plan_linear_gated(&plan, "wide", n, &wide, SUMI_ACT_SILU);
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
        CHECK_NUMBER(plan.op_count, uses == 0 ? 3 : 5);
        CHECK(sumi_cuda_is_fused_gated(&plan, 1) == (uses == 0));
        CHECK((plan.ops[1].marks & SUMI_CUDA_OP_8BIT) != 0);
        CHECK_NUMBER(sumi_plan_info(&plan, n)->marks, uses == 0 ? SUMI_CUDA_VALUE_8BIT : 0);
        for (size_t i = 0; i < plan.op_count; i++)
            CHECK(sumi_cuda_is_adapter_op(&plan, i) == (uses == 1 && (i == 2 || i == 3)));
        if (uses == 1) {
            const sumi_weight* weight;
            sumi_cuda_form form;
            CHECK(plan.ops[3].kind == SUMI_OP_KRONECKER_ADD && plan.ops[2].marks == 0);
            CHECK_NUMBER(sumi_plan_info(&plan, plan.ops[1].out)->marks, SUMI_CUDA_VALUE_GATED);
            CHECK(sumi_cuda_op_weight(&plan, 2, 0, &weight, &form) && weight == &delta.down
                  && form == SUMI_CUDA_FORM_MATRIX);
            CHECK(sumi_cuda_op_weight(&plan, 3, 0, &weight, &form) && weight == &delta.up
                  && form == SUMI_CUDA_FORM_VECTOR);
        }
        sumi_plan_end(&plan);
    }
}

TEST(factors_and_changed_norms_run_and_go)
{
    bench b;
    static model m;
    uint64_t launches[2] = {0, 0};
    make_model(&m);
    m.use_count = 1;
    for (int graphs = 0; graphs < 2; graphs++) {
        for (uint32_t slice_us = 0; slice_us < 8; slice_us += 7) {
            fake_reset();
            network n;
            sumi_error error = {0};
            open_services(&b);
            CHECK(open_runner(&b, &(sumi_cuda_options){.without_graphs = graphs == 0}, &error) == SUMI_OK);
            CHECK(write_network(&n, &b, &m, TOKENS, slice_us, &error) == SUMI_OK);
            fake_count_launches(true);
            CHECK(run_network(b.runner, &n, &error) == SUMI_OK);
            CHECK_TEXT(error.text, "");
            if (slice_us == 0) launches[graphs] = fake_launch_hash();
            const sumi_cuda* cuda = (const sumi_cuda*)b.runner;
            for (int32_t d = 0; d < 3; d++) {
                const sumi_cuda_form up = d == 0 ? SUMI_CUDA_FORM_MATRIX : SUMI_CUDA_FORM_VECTOR;
                const sumi_cuda_resident* resident = sumi_cuda_weights_find(&cuda->weights, &m.deltas[d].up, up);
                CHECK(resident != NULL && resident->is_adapter && resident->on_device.data != 0);
                resident = sumi_cuda_weights_find(&cuda->weights, &m.deltas[d].down, SUMI_CUDA_FORM_MATRIX);
                CHECK(d == 0 ? resident == NULL : resident != NULL && resident->is_adapter);
            }
            plan_forget(b.runner, &n.plan);
            sumi_plan_end(&n.plan);
            for (int32_t d = 0; d < 3; d++) { // as an adapter that is released
                const sumi_weight* pair[] = {&m.deltas[d].down, &m.deltas[d].up};
                b.runner->functions->release_weights(b.runner, pair, 2);
                CHECK(sumi_cuda_weights_find(&cuda->weights, &m.deltas[d].up, SUMI_CUDA_FORM_VECTOR) == NULL);
            }
            close_bench(&b);
        }
    }
    CHECK(launches[0] == launches[1] && launches[0] != 0);
}

TEST(a_sum_and_the_norm_of_its_rows_are_one_kernel)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    // columns, rows and first row of the norm, whether its input is the sum, whether another op stands between; the sum
    // writes rows 2 .. 34 of 40
    static const struct {
        int32_t cols, rows, row;
        bool is_same, is_apart, expected;
    } cases[] = {{256, 32, 2, true, false, true},   {4096, 32, 2, true, false, true}, {4104, 32, 2, true, false, false},
                 {252, 32, 2, true, false, false},  {256, 31, 2, true, false, false}, {256, 32, 3, true, false, false},
                 {256, 32, 2, false, false, false}, {256, 32, 2, true, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sumi_plan plan;
        begin_for_90(&plan, &heap);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 40, cases[i].cols),
                   other = sumi_plan_bound(&plan, "other", SUMI_ELEMENT_ACTIVATION, 40, cases[i].cols);
        // its last reader is the sum: did the pair not keep it apart, the norm would lie in its place
        sumi_value b = sumi_plan_activate(&plan, other, SUMI_ACT_SILU);
        sumi_plan_norm_gate_add(&plan, &(sumi_plan_norm_gate_add_args){
                                           .label = "sum", .x = x, .x_row = 2, .branch = b, .rows = 32, .eps = 1e-5f});
        int32_t sum = (int32_t)plan.op_count - 1;
        if (cases[i].is_apart) (void)sumi_plan_activate(&plan, other, SUMI_ACT_SILU);
        (void)sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "norm",
                                                           .x = cases[i].is_same ? x : other,
                                                           .x_row = cases[i].row,
                                                           .rows = cases[i].rows,
                                                           .eps = 1e-5f});
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
        CHECK(sumi_cuda_is_fused_norm(&plan, sum) == cases[i].expected
              && sumi_cuda_is_fused_norm(&plan, sum + 1) == cases[i].expected);
        CHECK(!sumi_cuda_is_fused_norm(&plan, sum - 1) && !sumi_cuda_is_fused_norm(&plan, sum + 2));
        sumi_plan_end(&plan);
    }
}

TEST(shares_cover_every_unit_once)
{
    sumi_op op = {.range_count = 13};
    sumi_cuda_run run = {.op = &op};
    for (int32_t units = 0; units < 40; units++) {
        for (int32_t step = 1; step <= 13; step++) {
            int32_t at = 0, begin, end;
            for (int32_t p = 0; p < 13; p += step) {
                run.range_begin = p;
                run.range_end = p + step < 13 ? p + step : 13;
                sumi_cuda_share(&run, units, &begin, &end);
                CHECK(begin == at && end >= begin);
                at = end;
            }
            CHECK_NUMBER(at, units);
        }
    }
}

TEST(the_hosts_context_stays_current)
{
    fake_reset();
    bench b;
    static model m;
    network n;
    sumi_error error = {0};
    make_model(&m);
    struct CUctx_st* host = fake_host_context(0);
    fake_make_current(host);
#define CHECK_CURRENT(call)                                                                                            \
    do {                                                                                                               \
        call;                                                                                                          \
        CHECK(fake_current() == host && fake_context_depth() == 0);                                                    \
    } while (0)
    open_services(&b);
    CHECK_CURRENT(CHECK(open_runner(&b, NULL, &error) == SUMI_OK));
    const sumi_runner_functions* f = b.runner->functions;
    CHECK(write_network(&n, &b, &m, TOKENS, 100, &error) == SUMI_OK);
    CHECK_CURRENT(CHECK(plan_prepare(b.runner, &n.plan, &error) == SUMI_OK));
    CHECK_CURRENT(CHECK(f->reserve(b.runner, &n.plan, &error) == SUMI_OK));
    CHECK_CURRENT(CHECK(plan_prepare(b.runner, &n.plan, &error) == SUMI_OK));
    CHECK_CURRENT(f->start(b.runner, &n.plan));
    CHECK_CURRENT(write_ids(b.runner, &n));
    CHECK_CURRENT(CHECK(f->run(b.runner, &n.plan, &n.plan.slices[0], 0, &error) == SUMI_OK));
    CHECK_CURRENT(CHECK(f->run(b.runner, &n.plan, &n.plan.slices[1], 99, &error) == SUMI_OK));
    CHECK_CURRENT(CHECK(f->start_read(b.runner, &n.plan, n.y, &error) == SUMI_OK));
    CHECK_CURRENT(f->wait(b.runner, 1));
    sumi_slice_time time;
    CHECK_CURRENT(f->collect(b.runner, &time));
    CHECK_CURRENT(f->collect(b.runner, &time));
    CHECK_CURRENT((void)f->idle(b.runner));
    CHECK_CURRENT(f->health(b.runner, &error));
    uint16_t y[TOKENS * WIDTH];
    CHECK_CURRENT(f->read(b.runner, &n.plan, n.y, 0, y, sizeof y));
    CHECK_CURRENT(f->release(b.runner));
    CHECK_CURRENT(f->release_weights(b.runner, m.list, 6));
    CHECK_CURRENT(f->release_plan(b.runner, &n.plan));
    sumi_plan_end(&n.plan);
    CHECK_CURRENT(f->destroy(b.runner));
    b.runner = NULL;
    fake_make_current(NULL);
    fake_host_release(host);
    close_bench(&b);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(leaves_nothing_behind);
    RUN(the_hosts_context_stays_current);
    RUN(graphs_launch_what_the_ops_launch);
    RUN(runs_without_graphs_when_the_driver_makes_none);
    RUN(a_warm_run_allocates_nothing);
    RUN(every_allocation_of_creation_may_fail);
    RUN(every_allocation_of_a_run_may_fail);
    RUN(a_larger_plan_takes_the_arena_over_and_graphs_follow);
    RUN(weights_arrive_and_go);
    RUN(large_weights_come_in_pieces_from_any_address);
    RUN(weights_of_block_types_stay_as_their_file_has_them);
    RUN(what_is_kept_as_stored_follows_from_the_weight);
    RUN(weights_with_a_change_come_as_floats_of_the_sums);
    RUN(weights_with_scales_of_rows_or_rotated_come_as_floats);
    RUN(a_balance_is_the_root_of_what_a_norm_multiplies_by);
    RUN(a_balance_arrives_before_the_rows_that_it_is_for);
    RUN(no_call_pins_long);
    RUN(what_did_not_go_goes_again);
    RUN(inputs_go_through_the_ring_whole);
    RUN(slices_are_reported_in_order_when_they_are_over);
    RUN(a_lost_device_is_said_and_stays_lost);
    RUN(forms_follow_from_the_ops);
    RUN(eight_bits_take_large_weights_of_the_denoising_section);
    RUN(text_encoders_have_a_format_of_their_own);
    RUN(a_norm_balances_what_it_writes_for_balanced_products_alone);
    RUN(an_adapter_between_product_and_gate_keeps_them_two_kernels);
    RUN(a_kronecker_product_keeps_its_forms);
    RUN(factors_and_changed_norms_run_and_go);
    RUN(a_sum_and_the_norm_of_its_rows_are_one_kernel);
    RUN(shares_cover_every_unit_once);
    TEST_END();
}
#else
TEST(the_runner) { SKIP("this build has no CUDA backend"); }

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(the_runner);
    TEST_END();
}
#endif
