// A small model and its plan for tests of the CUDA runner (cuda/cuda.h) without the engine. The runner runs on the fake
// driver, whose kernels do nothing. A test includes fake_cuda.h itself: the build looks for that line.
//
//     open_small_plan   resets the driver, creates the runner, writes the plan and cuts it into slices
//     run_small_plan    uploads weights, makes graphs, runs every slice, reads the result
//     close_small_plan  destroys all of it, and checks that no memory is left and that no rule of the driver was broken
#ifndef RUNNER_FIXTURE_H
#define RUNNER_FIXTURE_H
#include "at_once.h"
#include "base/memory.h"
#include "cuda/cuda.h"
#include "fake_cuda.h"
#include "plan_runner.h"
#include "system.h"
#include "test.h"

// ---- A small model --------------------------------------------------------------------------------------------------

#define TOKENS 40
#define WIDTH 64
#define HIDDEN 48 // of the feed-forward network; its stacked weight [gate; up] has twice as many rows
#define STEPS 3

typedef struct small_model {
    uint16_t table[50 * WIDTH], gate[HIDDEN * WIDTH], up[HIDDEN * WIDTH], out[WIDTH * HIDDEN], odd[WIDTH * 20];
    float norm[WIDTH], bias[WIDTH];
    sumi_weight embedding, norm_weight, gate_up, down, bias_weight, narrow;
    const sumi_weight* list[6]; // all of the above, by index
    // An adapter with two Kronecker products and a changed norm. The plan uses it if use_count is 1.
    float left[8 * 8];
    sumi_delta deltas[3];
    sumi_adapter adapter;
    sumi_adapter_use use;
    int32_t use_count;
} small_model;

// Uniform random numbers from -0.5 to 0.5.
static inline void fill_bf16(uint16_t* into, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        into[i] = sumi_float_to_bf16((float)(int32_t)(seed >> 8) / 16777216.0f - 0.5f);
    }
}

// A weight of one tensor.
static inline sumi_weight make_weight(const char* name, int32_t rows, int32_t cols, const void* data, sumi_dtype dtype)
{
    return (sumi_weight){.name = name,
                         .rows = rows,
                         .cols = cols,
                         .tensor_count = 1,
                         .tensors = {{.data = data, .dtype = dtype, .rows = rows, .scale = 1.0f}}};
}

static inline void make_small_model(small_model* model)
{
    memset(model, 0, sizeof *model);
    fill_bf16(model->table, 50 * WIDTH, 1);
    fill_bf16(model->gate, HIDDEN * WIDTH, 2);
    fill_bf16(model->up, HIDDEN * WIDTH, 3);
    fill_bf16(model->out, WIDTH * HIDDEN, 4);
    fill_bf16(model->odd, WIDTH * 20, 5);
    for (int32_t i = 0; i < WIDTH; i++) model->norm[i] = 1.0f + (float)i / 64.0f, model->bias[i] = (float)i;
    model->embedding = make_weight("embedding", 50, WIDTH, model->table, SUMI_DTYPE_BF16);
    model->norm_weight = make_weight("norm", 1, WIDTH, model->norm, SUMI_DTYPE_F32);
    model->gate_up = make_weight("gate_up", HIDDEN, WIDTH, model->gate, SUMI_DTYPE_BF16);
    model->gate_up.rows = 2 * HIDDEN;
    model->gate_up.tensor_count = 2;
    model->gate_up.tensors[1] =
        (sumi_stacked_tensor){.data = model->up, .dtype = SUMI_DTYPE_BF16, .rows = HIDDEN, .scale = 1.0f};
    model->down = make_weight("down", WIDTH, HIDDEN, model->out, SUMI_DTYPE_BF16);
    model->bias_weight = make_weight("bias", 1, WIDTH, model->bias, SUMI_DTYPE_F32);
    model->narrow = make_weight("narrow", WIDTH, 20, model->odd, SUMI_DTYPE_BF16);
    const sumi_weight* list[] = {&model->embedding, &model->norm_weight, &model->gate_up,
                                 &model->down,      &model->bias_weight, &model->narrow};
    memcpy(model->list, list, sizeof list);
    for (int32_t i = 0; i < 6; i++) ((sumi_weight*)(uintptr_t)model->list[i])->index = i;
    for (int32_t i = 0; i < 64; i++) model->left[i] = (float)i;
    model->deltas[0] = (sumi_delta){.weight_index = model->norm_weight.index,
                                    .scale = 1.0f,
                                    .up = make_weight("norm.change", WIDTH, 1, model->bias, SUMI_DTYPE_F32),
                                    .kind = SUMI_DELTA_VECTOR};
    model->deltas[1] =
        (sumi_delta){.weight_index = model->gate_up.index,
                     .row_begin = HIDDEN,
                     .scale = 1.0f,
                     .up = make_weight("gate_up.w1", 6, 8, model->left, SUMI_DTYPE_F32),
                     .down = make_weight("gate_up.w2", HIDDEN / 6, WIDTH / 8, model->odd, SUMI_DTYPE_BF16),
                     .kind = SUMI_DELTA_KRONECKER};
    model->deltas[2] = (sumi_delta){.weight_index = model->down.index,
                                    .scale = 1.0f,
                                    .up = make_weight("down.w1", 8, 4, model->left, SUMI_DTYPE_F32),
                                    .down = make_weight("down.w2", WIDTH / 8, HIDDEN / 4, model->odd, SUMI_DTYPE_BF16),
                                    .kind = SUMI_DELTA_KRONECKER};
    model->adapter = (sumi_adapter){model->deltas, 3};
    model->use = (sumi_adapter_use){&model->adapter, 0.5f};
}

// ---- A runner and what it needs -------------------------------------------------------------------------------------

typedef struct runner_setup {
    sumi_heap heap;
    sumi_workers* workers;
    sumi_runner* runner;
    int32_t failing_allocation; // the n-th allocation of host memory from now on fails (1: the next); 0: none
} runner_setup;

static inline void* allocate_for_setup(size_t bytes, size_t alignment, void* user_data)
{
    runner_setup* setup = user_data;
    if (setup->failing_allocation > 0 && --setup->failing_allocation == 0) return NULL;
    return system_allocate(bytes, alignment);
}

static inline void free_for_setup(void* memory, size_t bytes, void* user_data)
{
    (void)bytes;
    (void)user_data;
    system_release(memory);
}

// The heap and the workers, without a runner.
static inline void open_setup(runner_setup* setup)
{
    memset(setup, 0, sizeof *setup);
    const sumi_allocator allocator = {allocate_for_setup, free_for_setup, setup};
    sumi_heap_init(&setup->heap, &allocator);
    CHECK(sumi_workers_create(&setup->heap, NULL, 2, NULL, &setup->workers) == SUMI_OK);
}

static inline sumi_result create_runner(runner_setup* setup, const sumi_cuda_options* options, sumi_error* error)
{
    const sumi_engine_desc desc = {.cuda = {.ordinal = -1}};
    SUMI_TRY(sumi_cuda_create(&setup->heap, setup->workers, &desc, options, error, &setup->runner));
    return runner_load(setup->runner, error);
}

// Destroys the runner, if there is one, and checks that nothing is left.
static inline void close_setup(runner_setup* setup)
{
    if (setup->runner != NULL) setup->runner->functions->destroy(setup->runner);
    sumi_workers_destroy(setup->workers);
    CHECK_NUMBER(atomic_load(&setup->heap.allocated_bytes), 0);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
    CHECK_NUMBER(fake_context_depth(), 0);
}

// ---- The plan of the small model ------------------------------------------------------------------------------------

// x = embed(ids); STEPS times: x = x + down(gated(norm(x))) + bias; y = x. `counts` is a constant. An op writes to it
// too, because only a value that an op writes can be read back.
typedef struct small_plan {
    sumi_plan plan;
    sumi_value ids, y, counts;
} small_plan;

static const int32_t s_counts[4] = {3, 1, 4, 1};

// slice_us: the longest predicted time of a slice, as in plan_slice()

static inline sumi_result write_small_plan(small_plan* small, runner_setup* setup, small_model* model, int32_t tokens,
                                           uint32_t slice_us, sumi_error* error)
{
    sumi_plan* plan = &small->plan;
    sumi_runner_begin_plan(setup->runner, plan, &setup->heap);
    sumi_plan_adapters(plan, &model->use, model->use_count);
    small->ids = sumi_plan_bound(plan, "ids", SUMI_ELEMENT_INT, tokens, 1);
    small->y = sumi_plan_bound(plan, "y", SUMI_ELEMENT_ACTIVATION, tokens, WIDTH);
    small->counts = sumi_plan_constant(plan, "counts", SUMI_ELEMENT_INT, 2, 2, s_counts);
    sumi_plan_section(plan, SUMI_SECTION_TEXT, 1, 0);
    sumi_value x = sumi_plan_embed_rows(plan, small->ids, &model->embedding, 1.0f);
    (void)sumi_plan_changed_vector(plan, &model->norm_weight);
    sumi_plan_section(plan, SUMI_SECTION_DENOISE, STEPS, 5);
    sumi_value normed = sumi_plan_norm(
        plan,
        &(sumi_plan_norm_args){.label = "norm", .x = x, .rows = tokens, .weight = &model->norm_weight, .eps = 1e-5f});
    sumi_value hidden = sumi_plan_linear_gated(plan, "mlp", normed, &model->gate_up, SUMI_ACT_SILU);
    x = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "down", .x = hidden, .weight = &model->down, .bias = &model->bias_weight, .residual = x});
    sumi_plan_section(plan, SUMI_SECTION_TRANSFER, 1, 0);
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = x, .y = small->y, .rows = tokens});
    sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = small->counts, .y = small->counts, .y_row = 1, .rows = 1});
    sumi_result result = sumi_plan_finish(plan, error);
    return result == SUMI_OK ? plan_slice(plan, &(sumi_rates){1e6, 1e6, 3.0}, slice_us, error) : result;
}

// ---- All of it -----------------------------------------------------------------------------------------------------

// Resets the fake driver and creates the model, the runner and the plan.
static inline void open_small_plan(runner_setup* setup, small_model* model, small_plan* small, uint32_t slice_us,
                                   sumi_error* error)
{
    fake_reset();
    make_small_model(model);
    open_setup(setup);
    CHECK(create_runner(setup, NULL, error) == SUMI_OK);
    CHECK(write_small_plan(small, setup, model, TOKENS, slice_us, error) == SUMI_OK);
}

static inline void close_small_plan(runner_setup* setup, small_plan* small)
{
    plan_release(setup->runner, &small->plan);
    sumi_plan_end(&small->plan);
    close_setup(setup);
}

static inline void write_ids(sumi_runner* runner, small_plan* small)
{
    int32_t ids[1024];
    const int32_t tokens = sumi_plan_info(&small->plan, small->ids)->rows;
    for (int32_t i = 0; i < tokens; i++) ids[i] = i % 50;
    runner->functions->write(runner, &small->plan, small->ids, 0, ids, (uint64_t)tokens * sizeof *ids);
}

static inline sumi_result run_small_plan(sumi_runner* runner, small_plan* small, sumi_error* error)
{
    SUMI_TRY(plan_ready(runner, &small->plan, error));
    runner->functions->start(runner, &small->plan);
    write_ids(runner, small);
    SUMI_TRY(plan_run_all(runner, &small->plan, NULL, error));
    uint16_t y[TOKENS * WIDTH];
    return plan_read(runner, &small->plan, small->y, y, error);
}
#endif
