// The cases of test_cuda_ops. A case is a plan of one op, or of a few ops that belong together, with random inputs.
// Each file of this folder has the cases of one subject: builders, which write the plans, and tables of cases.
// test_cuda_ops.c runs the tables.
//
//     op_case     a row of a table: a name, a builder, and numbers whose meaning the builder defines
//     case_data   random inputs and weights of a case, made once and used by every runner
//     scene       the plan that the builder writes for one runner, with its inputs and the outputs that are compared
//
// To add an op: write a builder that adds inputs, calls a function of plan/plan.h and ends with expect(); append rows
// to a table. A new table is declared below and listed in test_cuda_ops.c.
#ifndef TEST_CUDA_OPS_SCENE_H
#define TEST_CUDA_OPS_SCENE_H
#ifndef TEST_STATE
#define TEST_STATE extern // test_cuda_ops.c has the counters of test.h
#endif
#include "base/memory.h"
#include "plan_runner.h"
#include "test.h"

// Bounds of the relative error of an output in norm (test_cuda_ops.c says why). compare_output() derives the bound of
// single elements from them.
#define EXACT 0.0
#define STORED 2.6e-3
#define CHAINED 4.5e-3
// float32 results: sums in another order, and functions that are exact to a few units in the last place
#define FLOATING 4e-6
#define PRODUCT 2e-5 // float32 results of tensor cores, which truncate while they sum
#define FP8 4.6e-2   // e4m3 (4 bits of significand) is off by 2.5e-2 in norm, of weights and of inputs
#define INT8 1.8e-2  // 127 steps for 4 deviations are off by 0.9e-2, of weights and of inputs
// int8 with outliers of a norm that are balanced: 3.6e-3 to 5.5e-3 in a simulation, 7.9e-3 to 1.3e-2 without balancing
#define BALANCED 7e-3

// ---- A case ---------------------------------------------------------------------------------------------------------
#define MAX_BLOCKS 128
#define MAX_VALUES 16
#define MAX_WEIGHTS 96

// Random data of a case, made for the first runner and used by all.
typedef struct case_data {
    void* blocks[MAX_BLOCKS];
    int block_count;
    sumi_weight weights[MAX_WEIGHTS];                 // runners know weights by their address
    const sumi_weight* used_weights[MAX_WEIGHTS * 2]; // all that ops read, also copies inside adapters
    int used_weight_count;
    uint64_t random;
    bool shapes_only; // the data is not needed and stays zero
} case_data;

typedef struct scene scene;
typedef struct op_case {
    const char* name;
    void (*build)(scene* s, const struct op_case* c);
    int m, n, k;       // rows, columns, depth, unless the builder says otherwise
    int a, b, c, d, e; // as the builder says
    sumi_activation act;
    sumi_dtype dtype;    // of weights; 0: bfloat16
    int repeat, counter; // of the plan's section; repeat 0: once
    double bound;        // of the output
} op_case;

struct scene {
    sumi_plan plan;
    case_data* store;
    int next_block, next_weight;
    bool makes_data; // this is the first runner: random data is made
    struct {
        sumi_value value;
        const void* data;
        bool is_raw; // the data has the type of the value; otherwise floats are converted
    } inputs[MAX_VALUES];
    int input_count;
    struct {
        sumi_value value;
        sumi_span rows; // the rows that are compared
        double bound;
    } outputs[MAX_VALUES];
    int output_count;
    struct {
        int a, b;
        bool is_bf16; // only where weights are kept in bfloat16, as on a GPU
    } equal_pairs[2]; // pairs of outputs that must have the same bits
    int equal_pair_count;
};

// A subject's cases.
typedef struct case_table {
    const op_case* cases;
    size_t count;
} case_table;
#define CASE_TABLE(name) const case_table name##_cases = {s_##name, sizeof s_##name / sizeof *s_##name}
extern const case_table moving_rows_cases, linear_cases, gated_cases, fp8_cases, int8_cases, balanced_cases,
    stored_cases, quantised_cases, chains_cases, norms_cases, rotary_and_tables_cases, attention_cases, latents_cases,
    conv_cases, strips_cases, group_norm_cases, pictures_cases, autoencoder_cases;

// ---- Functions for builders -----------------------------------------------------------------------------------------
// The next block of data of the case. For the first runner it is new, and the caller fills it if *out_is_new; the
// others get the same blocks in the same order.
void* next_block_of_case(scene* s, size_t bytes, bool* out_is_new);
// Nearly normal: the sum of four uniform numbers.
float random_normal(case_data* store);
uint64_t random_bits(case_data* store);
float round_to_bf16(float value);
sumi_value add_input(scene* s, sumi_element element, int rows, int cols, const void* data, bool is_raw);
// Normal numbers times spread plus centre, rounded to bfloat16 so that every backend sees the same.
float* random_numbers(scene* s, size_t count, float spread, float centre);
sumi_value activations_of(scene* s, int rows, int cols, float spread, float centre);
sumi_value activations(scene* s, int rows, int cols);
sumi_value floats(scene* s, int rows, int cols);
sumi_value integers(scene* s, int rows, int cols, int limit);
sumi_value random_bytes(scene* s, int rows, int cols);
// A row of `cols` columns of a table, from column 3 on, so that it is not aligned. aligned_row() is aligned.
sumi_step_row step_row(scene* s, sumi_element element, int cols, bool per_step);
sumi_step_row aligned_row(scene* s, sumi_element element, int cols, bool per_step);
// A weight of random numbers, stacked of one to three tensors. The spread of a matrix keeps its products near 1.
sumi_weight* stacked_weight(scene* s, int rows, int cols, int parts, sumi_dtype dtype, float spread, float centre);
sumi_weight* matrix_weight(scene* s, int rows, int cols, sumi_dtype dtype);
sumi_weight* norm_weight(scene* s, int cols, sumi_dtype dtype);
sumi_weight* bias_of(scene* s, int cols, sumi_dtype dtype);
// Declares an output: value (or rows of it) is compared with that of the CPU.
void expect_rows(scene* s, sumi_value value, double bound, int begin, int count);
void expect(scene* s, sumi_value value, double bound);
// Uses only the last of the three slices of a convolution over time.
sumi_weight* one_time_slice(sumi_weight* w);
#endif
