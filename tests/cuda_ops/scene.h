// The cases of test_cuda_ops: a case is a plan of one op, or of the few ops that belong together, with random inputs. Each
// file of this folder has the cases of one subject: builders, which write the plans with the functions below, and tables
// of cases. test_cuda_ops.c runs the tables.
#ifndef TEST_CUDA_OPS_SCENE_H
#define TEST_CUDA_OPS_SCENE_H
#ifndef TEST_STATE
#define TEST_STATE extern // test_cuda_ops.c has the counters of test.h
#endif
#include "base/memory.h"
#include "plan_runner.h"
#include "test.h"

// Bounds of the error of an output, in norm and, eightfold, for single elements; see test_cuda_ops.c.
#define EXACT 0.0
#define STORED 2.6e-3
#define CHAINED 4.5e-3
// float32 results: the order of sums, and functions that are good to a few units of the last place
#define FLOATING 4e-6
#define PRODUCT 2e-5 // float32 results of tensor cores, which cut the lowest bits off while they sum
#define FP8 4.6e-2   // e4m3 (4 bits) is off by 2.5e-2 in norm; weights and inputs both are
#define INT8 1.8e-2  // 127 steps to 4 deviations are off by 0.9e-2; weights and inputs both are
// int8, where a norm's outliers are balanced: simulated 3.6e-3 to 5.5e-3; without balancing 7.9e-3 to 1.3e-2
#define BALANCED 7e-3

// ---- A case ---------------------------------------------------------------------------------------------------------
#define MAX_BLOCKS 128
#define MAX_VALUES 16
#define MAX_WEIGHTS 96

// Random data of a case, made once and given to every runner.
typedef struct case_data {
    void* blocks[MAX_BLOCKS];
    int block_count;
    sumi_weight weights[MAX_WEIGHTS];          // known to runners by their address
    const sumi_weight* noted[MAX_WEIGHTS * 2]; // those that plans named: an adapter's are copies
    int noted_count;
    uint64_t random;
    bool is_hollow; // shapes alone are wanted: no data is made
} case_data;

typedef struct scene scene;
typedef struct op_case {
    const char* name;
    void (*build)(scene* s, const struct op_case* c);
    int m, n, k;       // rows, columns, depth; or what the builder says
    int a, b, c, d, e; // likewise
    sumi_activation act;
    sumi_dtype dtype; // of weights; 0: bfloat16
    int repeat, counter;
    double bound;
} op_case;

struct scene {
    sumi_plan plan;
    case_data* store;
    int next_block, next_weight;
    bool fills; // the store is being made
    struct {
        sumi_value value;
        const void* data;
        bool is_raw;
    } inputs[MAX_VALUES];
    int input_count;
    struct {
        sumi_value value;
        sumi_span rows;
        double bound;
    } outputs[MAX_VALUES];
    int output_count;
    struct {
        int a, b;
        bool is_bf16; // they have where weights are kept in bfloat16, which a processor does not do
    } equal_pairs[2]; // outputs of one shape that must have the same bits
    int equal_pair_count;
};

// A subject's cases.
typedef struct case_table {
    const op_case* cases;
    size_t count;
} case_table;
#define CASE_TABLE(name) const case_table name##_cases = {s_##name, sizeof s_##name / sizeof *s_##name}
extern const case_table moving_rows_cases, linear_cases, gated_cases, fp8_cases, int8_cases, balanced_cases,
    stored_cases, norms_cases, rotary_and_tables_cases, attention_cases, latents_cases, conv_cases, strips_cases,
    group_norm_cases, pictures_cases, autoencoder_cases;

// ---- Functions for builders -----------------------------------------------------------------------------------------
// The next block of memory of the case: new and to be filled (*out_fresh) for the first machine, the same for the others.
void* next_block_of_case(scene* s, size_t bytes, bool* out_fresh);
// About normal: the sum of four uniform numbers.
float random_normal(case_data* store);
uint64_t random_bits(case_data* store);
float rounded(float value);
sumi_value add_input(scene* s, sumi_element element, int rows, int cols, const void* data, bool is_raw);
// Normal numbers times spread plus centre, rounded to bfloat16 so that every backend sees the same.
float* random_numbers(scene* s, size_t count, float spread, float centre);
sumi_value activations_of(scene* s, int rows, int cols, float spread, float centre);
sumi_value activations(scene* s, int rows, int cols);
sumi_value floats(scene* s, int rows, int cols);
sumi_value integers(scene* s, int rows, int cols, int limit);
sumi_value random_bytes(scene* s, int rows, int cols);
// A table of per-step rows of `cols` columns from column 3 on: nothing is aligned by luck.
sumi_step_row step_row(scene* s, sumi_element element, int cols, bool per_step);
sumi_step_row aligned_row(scene* s, sumi_element element, int cols, bool per_step);
// Rows of random numbers in one to three parts of the file's type. A matrix's spread keeps its products near 1.
sumi_weight* stacked_weight(scene* s, int rows, int cols, int parts, sumi_dtype dtype, float spread, float centre);
sumi_weight* matrix_weight(scene* s, int rows, int cols, sumi_dtype dtype);
sumi_weight* norm_weight(scene* s, int cols, sumi_dtype dtype);
sumi_weight* bias_of(scene* s, int cols, sumi_dtype dtype);
void expect_rows(scene* s, sumi_value value, double bound, int begin, int count);
void expect(scene* s, sumi_value value, double bound);
// Keeps of a convolution over time only the last of its three slices.
sumi_weight* one_time_slice(sumi_weight* w);
#endif
