// The GPU backend op by op against the processor's: every kind at odd, tiny and real shapes, from the same inputs
// (rounded to bfloat16 before), compared by norm and element by element; and against itself, bit for bit: run again,
// with and without graphs, cut into slices of any size that run in another order.
//
//     test_cuda_ops [--small | --cublaslt] [--list-kernels] [TEST [CASE]]     parts of names; every case prints its error
//     test_cuda_ops --list                                                   the tests' names
//
//     --small          small cases alone, for slow tools
//     --cublaslt       products by that library wherever it can
//     --list-kernels   which kernels were used, for tests/check_kernels.sh
//
// A case is a plan of one op or of the few ops that belong together. Before each run every byte of the arena is 0xFF,
// which is NaN in both floating types: what an op reads without having been given it shows, and so does what it should
// have written. Without a GPU the cases are rehearsed: the processor plays the GPU and rounds what it stores to
// bfloat16, which keeps cases and bounds sound.
//
// Bounds. Storing in bfloat16 (8 bits of significand) is off by at most 2^-8 of the value and by 1.7e-3 in norm,
// whatever the op; inputs are exact and sums are float, so that is all there should be: STORED. An op that reads what
// another rounded adds as much again: CHAINED. Where nothing is computed the bits must agree: EXACT.
#include "base/memory.h"
#include "base/platform.h"
#include "cpu/cpu.h"
#include "cuda/cuda.h"
#include "models/flux_vae.h"
#include "models/qwen_vae.h"
#include "plan_runner.h"
#include "test.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/linear.h"
#include "cuda/state.h"
#endif

#define EXACT 0.0
#define STORED 2.6e-3
#define CHAINED 4.5e-3
// float32 results: the order of sums, and functions that are good to a few units of the last place
#define FLOATING 4e-6
#define PRODUCT 2e-5 // float32 results of tensor cores, which cut the lowest bits off while they sum
#define FP8 4.6e-2   // e4m3 (4 bits) is off by 2.5e-2 in norm; weights and inputs both are
#define INT8 1.8e-2  // 127 steps to 4 deviations are off by 0.9e-2; weights and inputs both are
#define BALANCED                                                                                                       \
    7e-3 // int8, where a norm's outliers are balanced: simulated 3.6e-3 to 5.5e-3; without it 7.9e-3 to 1.3e-2
#define SMALL 300000   // elements of all values and weights: what is rehearsed, and what --small leaves
#define LARGE 20000000 // not run in every manner

static sumi_heap s_heap;
static sumi_workers* s_workers;

// ---- A case ---------------------------------------------------------------------------------------------------------
#define MAX_BLOCKS 128
#define MAX_VALUES 16
#define MAX_WEIGHTS 96

// Random data of a case, made once and given to every runner.
typedef struct stock {
    void* blocks[MAX_BLOCKS];
    int block_count;
    sumi_weight weights[MAX_WEIGHTS];         // known to runners by their address
    const sumi_weight* seen[MAX_WEIGHTS * 2]; // those that plans named: an adapter's are copies
    int seen_count;
    uint64_t random;
    bool is_hollow; // shapes alone are wanted: no data is made
} stock;

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
    stock* store;
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
    } twins[2];       // outputs of one shape that must have the same bits
    int twin_count;
};

static uint64_t draw(stock* store)
{
    uint64_t x = store->random;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    store->random = x;
    return x * 0x2545F4914F6CDD1Du;
}
static float normal(stock* store) // four uniform numbers: close enough, and quick
{
    uint64_t d = draw(store);
    return (float)((int32_t)(d & 0xFFFF) + (int32_t)(d >> 16 & 0xFFFF) + (int32_t)(d >> 32 & 0xFFFF)
                   + (int32_t)(d >> 48) - 2 * 65535)
         * (1.7320508f / 65536.0f);
}
static float rounded(float value) { return sumi_bf16_to_float(sumi_float_to_bf16(value)); }

// The next block of the case: new and to be filled (*out_fresh) for the first runner, what it was for the others.
static void* block(scene* s, size_t bytes, bool* out_fresh)
{
    bool is_hollow = s->store->is_hollow;
    *out_fresh = s->fills && !is_hollow;
    if (s->next_block == MAX_BLOCKS) abort();
    if (s->fills)
        s->store->blocks[s->store->block_count++] = calloc(1, (is_hollow && bytes > 4096 ? 4096 : bytes) + 64);
    return s->store->blocks[s->next_block++];
}

// ---- Words for builders ---------------------------------------------------------------------------------------------
static sumi_value give(scene* s, sumi_element element, int rows, int cols, const void* data, bool is_raw)
{
    sumi_value value = sumi_plan_bound(&s->plan, "input", element, rows, cols);
    if (s->input_count == MAX_VALUES) abort();
    s->inputs[s->input_count].value = value;
    s->inputs[s->input_count].data = data;
    s->inputs[s->input_count++].is_raw = is_raw;
    return value;
}
// Normal numbers times spread plus centre, rounded to bfloat16 so that every backend sees the same.
static float* numbers(scene* s, size_t count, float spread, float centre)
{
    bool fresh;
    float* x = block(s, count * sizeof *x, &fresh);
    for (size_t i = 0; fresh && i < count; i++) x[i] = rounded(centre + spread * normal(s->store));
    return x;
}
static sumi_value activations_of(scene* s, int rows, int cols, float spread, float centre)
{
    return give(s, SUMI_ELEMENT_ACTIVATION, rows, cols, numbers(s, (size_t)rows * (size_t)cols, spread, centre), false);
}
static sumi_value activations(scene* s, int rows, int cols) { return activations_of(s, rows, cols, 1.0f, 0.0f); }
static sumi_value floats(scene* s, int rows, int cols)
{
    return give(s, SUMI_ELEMENT_FLOAT, rows, cols, numbers(s, (size_t)rows * (size_t)cols, 1.0f, 0.0f), false);
}
static sumi_value integers(scene* s, int rows, int cols, int limit)
{
    bool fresh;
    int32_t* x = block(s, (size_t)rows * (size_t)cols * sizeof *x, &fresh);
    for (int i = 0; fresh && i < rows * cols; i++) x[i] = i == 0 ? limit - 1 : (int32_t)(draw(s->store) >> 33) % limit;
    return give(s, SUMI_ELEMENT_INT, rows, cols, x, true);
}
static sumi_value bytes_of(scene* s, int rows, int cols)
{
    bool fresh;
    uint8_t* x = block(s, (size_t)rows * (size_t)cols, &fresh);
    for (int i = 0; fresh && i < rows * cols; i++) x[i] = (uint8_t)(draw(s->store) >> 56);
    return give(s, SUMI_ELEMENT_BYTE, rows, cols, x, true);
}
// A table of per-step rows of `cols` columns from column 3 on: nothing is aligned by luck.
static sumi_step_row step_row(scene* s, sumi_element element, int cols, bool per_step)
{
    sumi_value table = give(s, element, 6, cols + 5, numbers(s, 6 * (size_t)(cols + 5), 0.5f, 0.0f), false);
    return (sumi_step_row){table, 3, per_step};
}
static sumi_step_row aligned_row(scene* s, sumi_element element, int cols, bool per_step)
{
    sumi_value table = give(s, element, 6, 4 * cols, numbers(s, 24 * (size_t)cols, 0.5f, 0.0f), false);
    return (sumi_step_row){table, 2 * cols, per_step};
}

// Blocks of one of GGUF's types: random codes with scales that make numbers of about `spread`. The scales are powers of
// two, so that values, and sums of their products with small integers, are exact.
static void fill_blocks(stock* store, sumi_dtype dtype, unsigned char* to, size_t count, float spread)
{
    // where the scale and the offset's scale are, -1: none; the size of what they multiply
    static const struct {
        int d, minimum;
        float size;
    } types[SUMI_DTYPE_COUNT] = {[SUMI_DTYPE_Q8_0] = {0, -1, 74.0f},   [SUMI_DTYPE_Q4_0] = {0, -1, 4.6f},
                                 [SUMI_DTYPE_Q4_1] = {0, 2, 4.6f},     [SUMI_DTYPE_Q5_0] = {0, -1, 9.2f},
                                 [SUMI_DTYPE_Q5_1] = {0, 2, 9.2f},     [SUMI_DTYPE_Q2_K] = {80, 82, 13.0f},
                                 [SUMI_DTYPE_Q3_K] = {108, -1, 42.0f}, [SUMI_DTYPE_Q4_K] = {0, 2, 240.0f},
                                 [SUMI_DTYPE_Q5_K] = {0, 2, 480.0f},   [SUMI_DTYPE_Q6_K] = {208, -1, 1370.0f},
                                 [SUMI_DTYPE_IQ4_NL] = {0, -1, 75.0f}, [SUMI_DTYPE_IQ4_XS] = {0, -1, 1390.0f}};
    const sumi_dtype_info* info = sumi_dtype_get(dtype);
    const float d = exp2f(floorf(log2f(spread / types[dtype].size)));
    for (size_t i = 0; i < count / (size_t)info->block; i++, to += info->block_bytes) {
        for (int k = 0; k < info->block_bytes; k++) to[k] = (unsigned char)(draw(store) >> 56);
        const uint16_t scale = sumi_float_to_f16(draw(store) >> 63 ? d : -d), minimum = sumi_float_to_f16(8.0f * d),
                       offset = sumi_float_to_f16(-8.0f * d);
        memcpy(to + types[dtype].d, &scale, 2);
        // the K types subtract it, the others add it
        if (types[dtype].minimum >= 0) memcpy(to + types[dtype].minimum, info->block > 32 ? &minimum : &offset, 2);
    }
}

// Rows of random numbers in one to three parts of the file's type. A matrix's spread keeps its products near 1.
static sumi_weight* stack(scene* s, int rows, int cols, int parts, sumi_dtype dtype, float spread, float centre)
{
    if (s->next_weight == MAX_WEIGHTS) abort();
    sumi_weight* w = &s->store->weights[s->next_weight];
    if (dtype == SUMI_DTYPE_NONE) dtype = SUMI_DTYPE_BF16;
    bool is_fp8 = dtype == SUMI_DTYPE_F8_E4M3 || dtype == SUMI_DTYPE_F8_E5M2;
    const bool is_block = sumi_dtype_get(dtype)->block > 1;
    size_t size = is_block ? 2 : (size_t)sumi_dtype_bytes(dtype, 1);
    sumi_weight made = {.name = "weight", .rows = rows, .cols = cols, .tensor_count = parts, .index = s->next_weight};
    for (int p = 0, begin = 0; p < parts; p++) {
        int end = p + 1 == parts ? rows : rows / parts * (p + 1);
        size_t count = (size_t)(end - begin) * (size_t)cols;
        bool fresh;
        // files promise no alignment beyond the element's
        unsigned char* data =
            (unsigned char*)block(s, is_block ? (size_t)sumi_dtype_bytes(dtype, count) : count * size, &fresh) + size;
        if (fresh && is_block) fill_blocks(s->store, dtype, data, count, spread);
        for (size_t i = 0; fresh && !is_block && i < count; i++) {
            float value = centre + spread * normal(s->store);
            uint16_t half = dtype == SUMI_DTYPE_F16 ? sumi_float_to_f16(value) : sumi_float_to_bf16(value);
            uint8_t quarter = dtype == SUMI_DTYPE_F8_E4M3 ? sumi_float_to_e4m3(value * 16.0f / spread)
                                                          : sumi_float_to_e5m2(value * 16.0f / spread);
            float exact = rounded(value); // a GPU keeps matrices in bfloat16
            memcpy(data + i * size, size == 4 ? (const void*)&exact : size == 2 ? (const void*)&half : &quarter, size);
        }
        made.tensors[p] = (sumi_stacked_tensor){
            .data = data, .dtype = dtype, .rows = end - begin, .scale = is_fp8 ? spread / 16.0f : 1.0f};
        begin = end;
    }
    *w = made;
    s->next_weight++;
    return w;
}
static sumi_weight* matrix(scene* s, int rows, int cols, sumi_dtype dtype)
{
    return stack(s, rows, cols, 1, dtype, 1.0f / sqrtf((float)cols), 0.0f);
}
static sumi_weight* norm_weight(scene* s, int cols, sumi_dtype dtype)
{
    return stack(s, 1, cols, 1, dtype, 0.3f, 1.0f);
}
static sumi_weight* bias_of(scene* s, int cols, sumi_dtype dtype) { return stack(s, 1, cols, 1, dtype, 0.5f, 0.0f); }

static void check_rows(scene* s, sumi_value value, double bound, int begin, int count)
{
    if (value.id == 0) return; // the plan has its error
    if (s->output_count == MAX_VALUES) abort();
    s->plan.values[value.id - 1].bound = true;
    s->outputs[s->output_count].value = value;
    s->outputs[s->output_count].bound = bound;
    s->outputs[s->output_count++].rows = (sumi_span){begin, count};
}
static void check(scene* s, sumi_value value, double bound)
{
    check_rows(s, value, bound, 0, sumi_plan_info(&s->plan, value)->rows);
}

// ---- Running --------------------------------------------------------------------------------------------------------
typedef struct machine {
    const char* name;
    sumi_runner* runner;
    bool rounds; // the rehearsal: activations are rounded after every slice
} machine;

typedef enum manner { MANNER_WHOLE, MANNER_AGAIN, MANNER_PARTS, MANNER_SMALL, MANNER_COUNT } manner;
static const char* const s_manners[] = {"whole ops", "the same plan again", "parts in another order", "small slices"};

static void scene_begin(scene* s, const op_case* c, stock* store, const machine* m)
{
    memset(s, 0, sizeof *s);
    s->store = store;
    s->fills = store->block_count == 0;
    sumi_runner_begin_plan(m->runner, &s->plan, &s_heap);
    sumi_plan_section(&s->plan, SUMI_SECTION_DENOISE, c->repeat > 0 ? c->repeat : 1, c->counter);
    c->build(s, c);
}

static void see(stock* store, const sumi_weight* weight)
{
    for (int i = 0; i < store->seen_count; i++)
        if (store->seen[i] == weight) return;
    if (weight == NULL) return;
    if (store->seen_count == MAX_WEIGHTS * 2) abort();
    store->seen[store->seen_count++] = weight;
}
static void see_weights(stock* store, const sumi_plan* plan)
{
    for (size_t i = 0; i < plan->op_count; i++) {
        see(store, plan->ops[i].weight);
        see(store, plan->ops[i].bias);
        if (plan->ops[i].kind == SUMI_OP_QK_NORM_ROPE) see(store, plan->ops[i].u.qk.k_weight);
    }
}

// Up to 12 slices per op, of uneven sizes.
static sumi_result slice_by_parts(sumi_plan* plan, sumi_error* error)
{
    sumi_section* section = &plan->sections[0];
    plan->slice_count = 0;
    for (int32_t i = 0; i < (int32_t)plan->op_count; i++) {
        int32_t parts = plan->ops[i].range_count, step = (parts + 9) / 10, count = 0;
        for (int32_t begin = 0; begin < parts; count++) {
            int32_t length = step + (step > 1 ? count % 3 - 1 : 0),
                    end = parts - begin < length || count == 11 ? parts : begin + length;
            sumi_result result = sumi_grow(plan->heap, (void**)&plan->slices, &plan->slice_capacity,
                                           plan->slice_count + 1, sizeof *plan->slices, error);
            if (result != SUMI_OK) return result;
            plan->slices[plan->slice_count++] = (sumi_slice){i, i + 1, begin, end, 1.0f};
            begin = end;
        }
    }
    section->slice_begin = 0;
    section->slice_end = (int32_t)plan->slice_count;
    return SUMI_OK;
}

static void write_all(const machine* m, const sumi_plan* plan, sumi_value value, const unsigned char* data,
                      uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += 1 << 20)
        m->runner->functions->write(m->runner, plan, value, at, data + at, bytes - at < 1 << 20 ? bytes - at : 1 << 20);
}

// Fills the arena with 0xFF: a plan with one value as large, which leaves the arena in place for the next plan.
static sumi_result poison(const machine* m, uint64_t arena_bytes, sumi_error* error)
{
    sumi_plan plan;
    sumi_runner_begin_plan(m->runner, &plan, &s_heap);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_value all = sumi_plan_bound(&plan, "poison", SUMI_ELEMENT_BYTE, (int32_t)(arena_bytes / 4096 + 1), 4096);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 1, 64); // a plan needs an op
    sumi_plan_copy_rows(
        &plan,
        &(sumi_plan_copy_args){.x = x, .y = sumi_plan_bound(&plan, "y", SUMI_ELEMENT_ACTIVATION, 1, 64), .rows = 1});
    sumi_rates rates = m->runner->functions->rates(m->runner);
    sumi_result result = sumi_plan_finish(&plan, error);
    if (result == SUMI_OK) result = sumi_plan_slice(&plan, &rates, 0, error);
    if (result == SUMI_OK) result = plan_ready(m->runner, &plan, error);
    if (result == SUMI_OK) {
        uint64_t bytes = sumi_plan_info(&plan, all)->bytes;
        unsigned char* data = malloc((size_t)bytes);
        memset(data, 0xFF, (size_t)bytes);
        m->runner->functions->start(m->runner, &plan);
        write_all(m, &plan, all, data, bytes);
        write_all(m, &plan, x, data, sumi_plan_info(&plan, x)->bytes);
        result = plan_run_all(m->runner, &plan, NULL, error);
        free(data);
    }
    plan_forget(m->runner, &plan);
    sumi_plan_end(&plan);
    return result;
}

static void write_inputs(const scene* s, const machine* m)
{
    m->runner->functions->start(m->runner, &s->plan);
    for (int i = 0; i < s->input_count; i++) {
        const sumi_value_info* info = sumi_plan_info(&s->plan, s->inputs[i].value);
        if (s->inputs[i].is_raw) {
            write_all(m, &s->plan, s->inputs[i].value, s->inputs[i].data, info->bytes);
            continue;
        }
        const float* x = s->inputs[i].data;
        uint64_t count = (uint64_t)info->rows * (uint64_t)info->cols;
        for (uint64_t at = 0; at < count; at += 1 << 18)
            plan_write_floats(m->runner, &s->plan, s->inputs[i].value, at, x + at,
                              count - at < 1 << 18 ? count - at : 1 << 18);
    }
}

// What a GPU would have stored. Rounding twice changes nothing, so whole values are rounded whatever the slice wrote.
static void round_output(const scene* s, const machine* m, int32_t op_index)
{
    sumi_value out = s->plan.ops[op_index].out;
    const sumi_value_info* info = sumi_plan_info(&s->plan, out);
    if (info->element != SUMI_ELEMENT_ACTIVATION) return;
    float* x = malloc((size_t)info->bytes);
    m->runner->functions->read(m->runner, &s->plan, out, 0, x, info->bytes);
    for (uint64_t k = 0; k < info->bytes / 4; k++) x[k] = rounded(x[k]);
    m->runner->functions->write(m->runner, &s->plan, out, 0, x, info->bytes);
    free(x);
}

static sumi_result run_once(const scene* s, const machine* m, bool backwards, sumi_error* error)
{
    const sumi_section* section = &s->plan.sections[0];
    sumi_result result = SUMI_OK;
    for (int32_t k = 0; k < section->repeat; k++) {
        for (int32_t i = section->slice_begin; result == SUMI_OK && i < section->slice_end;) {
            int32_t end = i + 1; // slices of one op may change places
            while (backwards && end < section->slice_end && s->plan.slices[end].op_begin == s->plan.slices[i].op_begin)
                end++;
            for (int32_t j = end - 1; result == SUMI_OK && j >= i; j--) {
                const sumi_slice* slice = &s->plan.slices[j];
                if (!m->rounds) {
                    result = plan_run_slice(m->runner, &s->plan, slice, section->first_counter + k, NULL, error);
                    continue;
                }
                // rounded between ops, too
                for (int32_t op = slice->op_begin; result == SUMI_OK && op < slice->op_end; op++) {
                    sumi_slice one = *slice;
                    if (slice->op_end - slice->op_begin > 1)
                        one = (sumi_slice){op, op + 1, 0, s->plan.ops[op].range_count, 0.0f};
                    result = plan_run_slice(m->runner, &s->plan, &one, section->first_counter + k, NULL, error);
                    round_output(s, m, op);
                }
            }
            i = end;
        }
    }
    return result == SUMI_OK ? runner_drain(m->runner, 0, NULL, error) : result;
}

// The outputs as they lie in memory, for the caller to free. False after saying why.
static bool run_case(const op_case* c, stock* store, const machine* m, manner how, void** outs, scene* s)
{
    sumi_error error = {0};
    scene_begin(s, c, store, m);
    sumi_rates rates = m->runner->functions->rates(m->runner);
    sumi_result result = sumi_plan_finish(&s->plan, &error);
    see_weights(store, &s->plan);
    double us = 0.0;
    for (size_t i = 0; i < s->plan.op_count && result == SUMI_OK; i++)
        us += (double)sumi_plan_predict_us(&s->plan, &s->plan.ops[i], &rates);
    if (result == SUMI_OK)
        result = how == MANNER_PARTS
                   ? slice_by_parts(&s->plan, &error)
                   : sumi_plan_slice(&s->plan, &rates, how == MANNER_SMALL ? (uint32_t)(us / 5.0) + 1 : 0, &error);
    if (result == SUMI_OK) result = poison(m, s->plan.arena_bytes, &error);
    if (result == SUMI_OK) result = plan_ready(m->runner, &s->plan, &error);
    for (int again = how == MANNER_AGAIN ? 0 : 1; again < 2 && result == SUMI_OK; again++) {
        write_inputs(s, m);
        result = run_once(s, m, how == MANNER_PARTS, &error);
    }
    for (int i = 0; i < s->output_count && result == SUMI_OK; i++) {
        outs[i] = malloc((size_t)sumi_plan_info(&s->plan, s->outputs[i].value)->bytes + 1);
        result = plan_read(m->runner, &s->plan, s->outputs[i].value, outs[i], &error);
    }
    plan_forget(m->runner, &s->plan);
    if (result != SUMI_OK) printf("  %s on %s: %s\n", c->name, m->name, error.text);
    CHECK(result == SUMI_OK);
    return result == SUMI_OK;
}

static void free_outs(void** outs)
{
    for (int i = 0; i < MAX_VALUES; i++) free(outs[i]), outs[i] = NULL;
}

// ---- Comparing ------------------------------------------------------------------------------------------------------

// Output i of `got` (by m) against `want` (by the processor) over the rows that the op writes.
static void compare_output(const op_case* c, const scene* s, int i, const machine* m, const void* got,
                           const machine* reference, const void* want, double* out_error)
{
    const sumi_value_info* info = sumi_plan_info(&s->plan, s->outputs[i].value);
    size_t cols = (size_t)info->cols, first = (size_t)s->outputs[i].rows.begin * cols,
           count = (size_t)s->outputs[i].rows.count * cols, all = (size_t)info->rows * cols;
    float *a = malloc(all * 4 + 4), *b = malloc(all * 4 + 4);
    plan_floats(m->runner, info->element, got, a, all);
    plan_floats(reference->runner, info->element, want, b, all);
    double difference = 0.0, size = 0.0, bound = s->outputs[i].bound;
    for (size_t k = first; k < first + count; k++) size += (double)b[k] * (double)b[k];
    double rms = sqrt(size / (double)count);
    // One element: half a unit of the stored type, twice for a tie decided the other way, as often as the bound allows
    // for roundings one after the other; and what the whole may be off by, eightfold, for the unluckiest.
    double roundings = bound > STORED ? bound / STORED : 1.0;
    double relative = bound == EXACT                           ? 0.0
                    : info->element == SUMI_ELEMENT_ACTIVATION ? roundings / 128
                                                               : 8 * bound,
           absolute = 8 * bound * rms;
    int shown = 0;
    bool is_bytes = info->element == SUMI_ELEMENT_BYTE;
    for (size_t k = first; k < first + count; k++) {
        double d = fabs((double)a[k] - (double)b[k]);
        difference += d * d;
        bool is_good = is_bytes ? d <= 1.0
                                : d <= relative * fabs((double)b[k]) + absolute
                                      || (bound == EXACT && memcmp(&a[k], &b[k], 4) == 0);
        if (!is_good && shown++ < 3)
            printf("  %s on %s: output %d, row %zu, column %zu: %.9g, want %.9g\n", c->name, m->name, i, k / cols,
                   k % cols, (double)a[k], (double)b[k]);
    }
    double error = size > 0.0 ? sqrt(difference / size) : sqrt(difference);
    if (!(error <= *out_error)) *out_error = error; // NaN too
    if (is_bytes) bound = 2e-3;
    if (shown > 0 || !(error <= bound))
        printf("  %s on %s: output %d is off by %.3g, bound %.3g\n", c->name, m->name, i, error, bound);
    CHECK(shown == 0);
    CHECK(error <= bound);
    free(a);
    free(b);
}

static void same_bits(const op_case* c, const scene* s, const char* name, const char* how, void** got, void** want)
{
    for (int i = 0; i < s->output_count; i++) {
        const sumi_value_info* info = sumi_plan_info(&s->plan, s->outputs[i].value);
        size_t row = (size_t)(info->bytes / (uint64_t)info->rows);
        const unsigned char *a = (const unsigned char*)got[i] + (size_t)s->outputs[i].rows.begin * row,
                            *b = (const unsigned char*)want[i] + (size_t)s->outputs[i].rows.begin * row;
        bool same = memcmp(a, b, (size_t)s->outputs[i].rows.count * row) == 0;
        size_t at = 0;
        while (!same && a[at] == b[at]) at++;
        if (!same)
            printf("  %s on %s, %s: output %d has other bits, first in row %zu, byte %zu of it\n", c->name, name, how,
                   i, at / row, at % row);
        CHECK(same);
    }
}

static sumi_cublaslt s_cublaslt;

static void same_twins(const op_case* c, const scene* s, const machine* m, void** got)
{
    if (s_cublaslt == SUMI_CUBLASLT_ALWAYS) return; // it chooses by the number of rows, which the twin has fewer of
    for (int i = 0; i < s->twin_count; i++) {
        int a = s->twins[i].a, b = s->twins[i].b;
        if (s->twins[i].is_bf16 && m->rounds) continue;
        bool same = memcmp(got[a], got[b], (size_t)sumi_plan_info(&s->plan, s->outputs[a].value)->bytes) == 0;
        if (!same) printf("  %s on %s: outputs %d and %d have other bits\n", c->name, m->name, a, b);
        CHECK(same);
    }
}

#define MAX_MACHINES 4
static machine s_reference, s_machines[MAX_MACHINES]; // the first of a kind of kernels; `same` of it must have its bits
static int s_machine_count;
static int s_same_as[MAX_MACHINES]; // another machine with the same kernels, or -1

static void forget(const machine* m, const stock* store)
{
    runner_forget_weights(m->runner, store->seen, (size_t)store->seen_count);
}

// Of the values, and of the weights once for every op that reads them.
static uint64_t count_elements(const sumi_plan* plan)
{
    uint64_t count = 0;
    for (size_t v = 0; v < plan->value_count; v++)
        count += plan->values[v].base.id != 0 ? 0 : (uint64_t)plan->values[v].rows * (uint64_t)plan->values[v].cols;
    for (size_t i = 0; i < plan->op_count; i++)
        count +=
            plan->ops[i].weight != NULL ? (uint64_t)plan->ops[i].weight->rows * (uint64_t)plan->ops[i].weight->cols : 0;
    return count;
}

static void try_case(const op_case* c, const machine* reference, const machine* machines, const int* same_as,
                     int machine_count)
{
    stock store = {.random = 0x9E3779B97F4A7C15u};
    scene s;
    void *want[MAX_VALUES] = {0}, *first[MAX_MACHINES][MAX_VALUES] = {{0}};
    bool good = run_case(c, &store, reference, MANNER_WHOLE, want, &s);
    uint64_t elements = count_elements(&s.plan);
    sumi_plan_end(&s.plan);
    for (int k = 0; k < machine_count && good; k++) {
        const machine* m = &machines[k];
        double error = 0.0;
        for (manner how = MANNER_WHOLE; how < MANNER_COUNT && good; how++) {
            if ((same_as[k] >= 0 && how != MANNER_WHOLE && how != MANNER_SMALL)
                || (elements > LARGE && how == MANNER_SMALL))
                continue;
            void* outs[MAX_VALUES] = {0};
            good = run_case(c, &store, m, how, outs, &s);
            if (good && how == MANNER_WHOLE && same_as[k] < 0)
                for (int i = 0; i < s.output_count; i++)
                    compare_output(c, &s, i, m, outs[i], reference, want[i], &error);
            if (good) same_twins(c, &s, m, outs);
            if (good && (how != MANNER_WHOLE || same_as[k] >= 0))
                same_bits(c, &s, m->name, s_manners[how], outs, first[same_as[k] >= 0 ? same_as[k] : k]);
            if (good && how == MANNER_WHOLE) memcpy(first[k], outs, sizeof outs), memset(outs, 0, sizeof outs);
            free_outs(outs);
            sumi_plan_end(&s.plan);
        }
        if (same_as[k] < 0) printf("  %-52s %-22s %.3g\n", c->name, m->name, error);
        forget(m, &store);
    }
    forget(reference, &store);
    for (int k = 0; k < MAX_MACHINES; k++) free_outs(first[k]);
    free_outs(want);
    for (int i = 0; i < store.block_count; i++) free(store.blocks[i]);
}

static uint64_t s_most_elements = UINT64_MAX;
static const char *s_case_filter, *s_absent; // why there is no GPU to test; NULL: there is
static int s_tried;                          // cases

// Elements of a case, without making its data. Kinds of ops that it has are set in `covered` (NULL: not asked).
static uint64_t cost_of(const op_case* c, bool* covered)
{
    scene s;
    stock store = {.is_hollow = true};
    scene_begin(&s, c, &store, &s_reference);
    CHECK_TEXT(s.plan.error.text, "");
    uint64_t elements = count_elements(&s.plan);
    for (size_t k = 0; k < s.plan.op_count && covered != NULL; k++) covered[s.plan.ops[k].kind] = true;
    sumi_plan_end(&s.plan);
    for (int k = 0; k < store.block_count; k++) free(store.blocks[k]);
    return elements;
}

static void try_cases(const op_case* cases, size_t count)
{
    int tried = 0;
    for (size_t i = 0; i < count; i++) {
        if ((s_case_filter != NULL && strstr(cases[i].name, s_case_filter) == NULL)
            || cost_of(&cases[i], NULL) > s_most_elements)
            continue;
        try_case(&cases[i], &s_reference, s_machines, s_same_as, s_machine_count);
        tried++;
    }
    s_tried += tried;
    if (tried == 0 && s_case_filter == NULL) SKIP("none of its cases is small");
}

#define CASES(kind)                                                                                                    \
    TEST(kind)                                                                                                         \
    {                                                                                                                  \
        if (s_absent != NULL) SKIP(s_absent);                                                                          \
        try_cases(s_##kind, sizeof s_##kind / sizeof *s_##kind);                                                       \
    }

// ---- Rows: embedding, filling, copying ------------------------------------------------------------------------------
static void build_embed(scene* s, const op_case* c)
{
    sumi_weight* table = stack(s, c->n, c->k, 1, c->dtype, 1.0f, 0.0f);
    check(s, sumi_plan_embed_rows(&s->plan, integers(s, c->m, 1, c->n), table, c->a ? 0.3f : 1.0f), c->bound);
}
static void build_embed_biased(scene* s, const op_case* c)
{
    sumi_weight *table = stack(s, c->n, c->k, 1, c->dtype, 1.0f, 0.0f), *bias = bias_of(s, c->k, c->dtype);
    check(s, sumi_plan_embed_rows_biased(&s->plan, integers(s, c->m, 1, c->n), table, bias), c->bound);
}
// k spans of several lengths, which overlap, of m rows of n columns. a: of floats
static void build_mean(scene* s, const op_case* c)
{
    enum { MOST = 80 };
    sumi_span spans[MOST];
    const int count = c->k;
    if (count > MOST) abort();
    for (int i = 0; i < count; i++) {
        const int begin = i * 7 % c->m;
        spans[i] = (sumi_span){begin, i % 5 == 4 ? 1 : c->m - begin};
    }
    sumi_value x = c->a ? floats(s, c->m, c->n) : activations(s, c->m, c->n);
    check(s, sumi_plan_mean_rows(&s->plan, "mean", x, spans, count), c->bound);
}
static void build_gather(scene* s, const op_case* c)
{
    check(s, sumi_plan_gather_rows(&s->plan, "gather", integers(s, c->m, 1, c->n), activations(s, c->n, c->k)),
          c->bound);
}
static void build_fill(scene* s, const op_case* c)
{
    sumi_value y = activations(s, c->m, c->n);
    const sumi_span spans[] = {{1, 3}, {c->m - 2, 2}, {5, 0}, {6, 1}};
    sumi_plan_fill_rows(&s->plan, y, norm_weight(s, c->n, c->dtype), spans, 4);
    check(s, y, EXACT);
}
static void build_copy(scene* s, const op_case* c)
{
    sumi_element element = c->a ? SUMI_ELEMENT_FLOAT : SUMI_ELEMENT_ACTIVATION;
    sumi_value x = c->a ? floats(s, c->m + 3, c->n) : activations(s, c->m + 3, c->n);
    sumi_value y = give(s, element, c->m + 4, c->n, numbers(s, (size_t)(c->m + 4) * (size_t)c->n, 1.0f, 0.0f), false);
    sumi_plan_copy_rows(&s->plan, &(sumi_plan_copy_args){.x = x, .x_row = 2, .y = y, .y_row = 3, .rows = c->m});
    check(s, y, EXACT);
}
static const op_case s_moving_rows[] = {
    {"embed, bf16", build_embed, 77, 1000, 2560, .bound = EXACT},
    {"embed, bf16, odd width, scaled", build_embed, 9, 30, 21, 1, .bound = STORED},
    {"embed, f32 of bf16 numbers", build_embed, 33, 300, 192, .dtype = SUMI_DTYPE_F32, .bound = EXACT},
    {"embed, f16", build_embed, 33, 300, 100, .dtype = SUMI_DTYPE_F16, .bound = STORED},
    {"embed, e4m3 with a scale", build_embed, 33, 300, 64, .dtype = SUMI_DTYPE_F8_E4M3, .bound = STORED},
    {"embed and bias, bf16", build_embed_biased, 77, 1000, 1024, .bound = STORED},
    {"embed and bias, odd width", build_embed_biased, 9, 30, 21, .bound = STORED},
    {"embed and bias, f32 of bf16 numbers", build_embed_biased, 33, 300, 192, .dtype = SUMI_DTYPE_F32, .bound = STORED},
    {"embed and bias, 4 columns", build_embed_biased, 33, 300, 4, .bound = STORED},
    {"means, 3 spans of 1024", build_mean, 512, 1024, 3, .bound = STORED},
    {"means, 9 spans of an odd width", build_mean, 40, 21, 9, .bound = STORED},
    {"means, 80 spans", build_mean, 70, 128, 80, .bound = STORED},
    {"means of floats", build_mean, 300, 72, 5, 1, .bound = STORED},
    {"gather, 3584", build_gather, 196, 196, 3584, .bound = EXACT},
    {"gather, odd width", build_gather, 9, 30, 21, .bound = EXACT},
    {"fill, 3840", build_fill, 64, 3840, .bound = EXACT},
    {"fill, odd width", build_fill, 12, 21, .dtype = SUMI_DTYPE_BF16},
    {"copy, 3840", build_copy, 128, 3840, .bound = EXACT},
    {"copy, odd width", build_copy, 7, 21, .bound = EXACT},
    {"copy of floats", build_copy, 16, 16384, .a = 1},
    {"copy of floats, odd width", build_copy, 5, 35, .a = 1},
};
CASES(moving_rows)

// ---- LINEAR ---------------------------------------------------------------------------------------------------------
enum {
    BIASED = 1,
    INTO = 2,
    RESIDUAL = 4,
    GATED_RESIDUAL = 8,
    TO_FLOAT = 16,
    STACKED = 32,
    ADAPTED = 64,
    FLOAT_TABLE = 128
};
enum {
    ALIGNED = 256,
    IN_FP8 = 512,
    PADDED = 1024,
    INTO_COLUMNS = 2048,
    ADDING = 4096,
    IN_INT8 = 8192,
    IN_STORED = 16384
};

static sumi_weight_format weights_of(int flags)
{
    return flags & IN_FP8    ? SUMI_WEIGHTS_FP8
         : flags & IN_INT8   ? SUMI_WEIGHTS_INT8
         : flags & IN_STORED ? SUMI_WEIGHTS_AS_STORED
                             : SUMI_WEIGHTS_AUTO;
}

typedef struct adapters {
    sumi_delta deltas[2];
    sumi_adapter adapters[2];
    sumi_adapter_use uses[2];
} adapters;

static void use_adapters(scene* s, adapters* a)
{
    for (int i = 0; i < 2; i++) {
        a->adapters[i] = (sumi_adapter){&a->deltas[i], 1};
        a->uses[i] = (sumi_adapter_use){&a->adapters[i], i == 0 ? 0.8f : -1.5f};
    }
    sumi_plan_adapters(&s->plan, a->uses, 2);
}

// A Kronecker product for `rows` rows from `begin` on, whose left factor has `folds` columns and, where it can be, `runs`
// rows.
static sumi_delta kronecker(scene* s, const sumi_weight* w, int begin, int rows, int folds, int runs, float scale)
{
    while (rows % runs != 0) runs--;
    return (sumi_delta){.weight_index = w->index,
                        .row_begin = begin,
                        .scale = scale,
                        .up = *matrix(s, runs, folds, SUMI_DTYPE_F32),
                        .down = *matrix(s, rows / runs, w->cols / folds, SUMI_DTYPE_BF16),
                        .kind = SUMI_DELTA_KRONECKER};
}

// Two adapters: one over all rows, one over a middle range, with negative strength. A rank below 0: Kronecker products
// instead, whose left factors have so many columns.
static void adapt(scene* s, const sumi_weight* w, int rank)
{
    bool fresh;
    adapters* a = block(s, sizeof *a, &fresh);
    int begin = w->rows / 3 / 4 * 4, rows = w->rows / 3;
    if (rank < 0) {
        a->deltas[0] = kronecker(s, w, 0, w->rows, -rank, 8, 0.5f);
        a->deltas[1] = kronecker(s, w, begin, rows, -rank, 11, 0.25f);
    } else {
        a->deltas[0] = (sumi_delta){.weight_index = w->index,
                                    .scale = 0.5f,
                                    .down = *matrix(s, rank, w->cols, SUMI_DTYPE_F32),
                                    .up = *matrix(s, w->rows, rank, SUMI_DTYPE_BF16)};
        a->deltas[1] = (sumi_delta){.weight_index = w->index,
                                    .row_begin = begin,
                                    .scale = 0.25f,
                                    .down = *matrix(s, 3, w->cols, SUMI_DTYPE_BF16),
                                    .up = *matrix(s, rows < 1 ? 1 : rows, 3, SUMI_DTYPE_F32)};
    }
    use_adapters(s, a);
}

// Two adapters that change a norm each, or one both times.
static void adapt_norms(scene* s, const sumi_weight* first, const sumi_weight* second)
{
    bool fresh;
    adapters* a = block(s, sizeof *a, &fresh);
    const sumi_weight* norms[2] = {first, second};
    for (int i = 0; i < 2; i++) {
        a->deltas[i] = (sumi_delta){.weight_index = norms[i]->index,
                                    .scale = 0.5f,
                                    .up = *stack(s, norms[i]->cols, 1, 1, SUMI_DTYPE_F32, 0.5f, 0.0f),
                                    .kind = SUMI_DELTA_VECTOR};
    }
    use_adapters(s, a);
}
// Columns of zeros behind the first `cols`, up to the next multiple of 8.
static sumi_value padded_activations(scene* s, int rows, int cols)
{
    bool fresh;
    const int pitch = (cols + 7) / 8 * 8;
    float* x = block(s, (size_t)rows * (size_t)pitch * sizeof *x, &fresh);
    for (int i = 0; fresh && i < rows * pitch; i++) x[i] = i % pitch < cols ? rounded(normal(s->store)) : 0.0f;
    return give(s, SUMI_ELEMENT_ACTIVATION, rows, pitch, x, false);
}
// The weights that a plan sees are those inside the deltas: copies, which have addresses of their own.
static void build_linear(scene* s, const op_case* c)
{
    int m = c->m, n = c->n, k = c->k, flags = c->a;
    s->plan.weight_options.weights = weights_of(flags);
    sumi_weight* w = stack(s, n, k, flags & STACKED ? 3 : 1, c->dtype, 1.0f / sqrtf((float)k), 0.0f);
    sumi_weight* b =
        flags & BIASED ? bias_of(s, n, c->dtype == SUMI_DTYPE_F16 ? SUMI_DTYPE_F16 : SUMI_DTYPE_BF16) : NULL;
    sumi_value x = flags & PADDED ? padded_activations(s, m, k) : activations(s, flags & INTO ? m + 5 : m, k), y;
    if (flags & ADAPTED) adapt(s, w, c->b != 0 ? c->b : 16);
    if (flags & (RESIDUAL | GATED_RESIDUAL)) {
        sumi_element element = flags & FLOAT_TABLE ? SUMI_ELEMENT_FLOAT : SUMI_ELEMENT_ACTIVATION;
        sumi_step_row gate = flags & GATED_RESIDUAL
                               ? flags & ALIGNED ? aligned_row(s, element, n, true) : step_row(s, element, n, true)
                               : SUMI_NO_ROW;
        y = sumi_plan_linear(
            &s->plan,
            &(sumi_plan_linear_args){
                .label = "linear", .x = x, .weight = w, .bias = b, .gate = gate, .residual = activations(s, m, n)});
        if (flags & ADDING && s->plan.op_count > 0) { // an adapter's second product alone
            s->plan.ops[0].u.linear.accumulates = true;
            s->plan.ops[0].u.linear.scale = 0.5f;
        }
    } else if (flags & INTO_COLUMNS) {
        y = activations(s, m, n + 40);
        sumi_plan_linear(&s->plan, &(sumi_plan_linear_args){.label = "linear",
                                                            .x = x,
                                                            .weight = w,
                                                            .bias = b,
                                                            .y = y,
                                                            .writes_some_columns = true,
                                                            .y_column = 24});
    } else if (flags & INTO) {
        y = activations(s, m + 4, n);
        sumi_plan_linear(&s->plan, &(sumi_plan_linear_args){.label = "linear",
                                                            .x = x,
                                                            .x_row = 3,
                                                            .rows = m,
                                                            .weight = w,
                                                            .bias = b,
                                                            .activation = c->act,
                                                            .y = y,
                                                            .y_row = 2});
    } else if (flags & TO_FLOAT) {
        y = sumi_plan_value(&s->plan, "table", SUMI_ELEMENT_FLOAT, m, n);
        sumi_plan_linear(
            &s->plan, &(sumi_plan_linear_args){
                          .label = "linear", .x = x, .rows = m, .weight = w, .bias = b, .activation = c->act, .y = y});
    } else {
        y = sumi_plan_linear(&s->plan, &(sumi_plan_linear_args){
                                           .label = "linear", .x = x, .weight = w, .bias = b, .activation = c->act});
    }
    check(s, y, c->bound);
}
static const op_case s_linear[] = {
    {"linear 1x1x1", build_linear, 1, 1, 1, .bound = STORED},
    {"linear 1x3x5, bias", build_linear, 1, 3, 5, BIASED, .bound = STORED},
    {"linear 7x13x17", build_linear, 7, 13, 17, .bound = STORED},
    {"linear 33x21x40, bias, silu", build_linear, 33, 21, 40, BIASED, .act = SUMI_ACT_SILU, .bound = STORED},
    {"linear 5x64x24, gelu tanh", build_linear, 5, 64, 24, BIASED, .act = SUMI_ACT_GELU_TANH, .bound = STORED},
    {"linear 65x129x72, gelu erf", build_linear, 65, 129, 72, BIASED, .act = SUMI_ACT_GELU_ERF, .bound = STORED},
    {"linear 16x32x33, quick gelu", build_linear, 16, 32, 33, .act = SUMI_ACT_QUICK_GELU, .bound = STORED},
    {"linear 16x40x32, tanh", build_linear, 16, 40, 32, BIASED, .act = SUMI_ACT_TANH, .bound = STORED},
    {"linear 130x136x264, stacked, residual", build_linear, 130, 136, 264, STACKED | RESIDUAL, .bound = STORED},
    {"linear 131x100x64, gated residual", build_linear, 131, 100, 64, BIASED | GATED_RESIDUAL, .counter = 3,
     .bound = STORED},
    {"linear 131x104x64, gated residual, float table", build_linear, 131, 104, 64, GATED_RESIDUAL | FLOAT_TABLE,
     .counter = 2, .bound = STORED},
    {"linear 256x256x128, gated residual, aligned", build_linear, 256, 256, 128, GATED_RESIDUAL | FLOAT_TABLE | ALIGNED,
     .repeat = 2, .counter = 1, .bound = CHAINED},
    {"linear 40x64x48 into rows", build_linear, 40, 64, 48, BIASED | INTO, .bound = STORED},
    {"linear 7x9x11 into rows", build_linear, 7, 9, 11, INTO, .bound = STORED},
    {"linear, modulation table 8x15360x256", build_linear, 8, 15360, 256, BIASED | TO_FLOAT, .bound = PRODUCT},
    {"linear, modulation table 1x28x24", build_linear, 1, 28, 24, BIASED | TO_FLOAT, .bound = PRODUCT},
    {"linear, modulation table 100x768x192", build_linear, 100, 768, 192, BIASED | TO_FLOAT, .bound = PRODUCT},
    {"linear 45x96x80, f32 weights", build_linear, 45, 96, 80, BIASED, .dtype = SUMI_DTYPE_F32, .bound = STORED},
    {"linear 45x96x80, f16 weights", build_linear, 45, 96, 80, BIASED, .dtype = SUMI_DTYPE_F16, .bound = CHAINED},
    {"linear 45x96x80, e4m3 weights with a scale", build_linear, 45, 96, 80, STACKED, .dtype = SUMI_DTYPE_F8_E4M3,
     .bound = CHAINED},
    {"linear 45x96x80, e5m2 weights with a scale", build_linear, 45, 96, 80, BIASED, .dtype = SUMI_DTYPE_F8_E5M2,
     .bound = CHAINED},
    {"linear 50x96x64, two adapters", build_linear, 50, 96, 64, ADAPTED, 16, .bound = CHAINED},
    {"linear 50x39x30, two adapters, rank 5, silu", build_linear, 50, 39, 30, ADAPTED, 5, .act = SUMI_ACT_SILU,
     .bound = 6e-3},
    {"linear 50x96x64, two adapters, residual", build_linear, 50, 96, 64, ADAPTED | RESIDUAL, 4, .bound = CHAINED},
    {"linear 50x96x64, adapters, gelu", build_linear, 50, 96, 64, ADAPTED | BIASED, 8, .act = SUMI_ACT_GELU_TANH,
     .bound = 6e-3},
    {"linear 9x104x64, adapters, rank 33, quick gelu", build_linear, 9, 104, 64, ADAPTED, 33,
     .act = SUMI_ACT_QUICK_GELU, .bound = 6e-3},
    {"linear 131x100x64, adapters, gated residual", build_linear, 131, 100, 64, ADAPTED | BIASED | GATED_RESIDUAL, 16,
     .counter = 3, .bound = CHAINED},
    {"linear 131x104x64, adapters, rank 1, float gate", build_linear, 131, 104, 64,
     ADAPTED | GATED_RESIDUAL | FLOAT_TABLE, 1, .counter = 2, .bound = CHAINED},
    {"linear 256x256x128, adapters, aligned gate", build_linear, 256, 256, 128,
     ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, 32, .repeat = 2, .counter = 1, .bound = 6e-3},
    {"linear 40x64x48 into rows, adapters, gelu", build_linear, 40, 64, 48, ADAPTED | BIASED | INTO, 16,
     .act = SUMI_ACT_GELU_TANH, .bound = 6e-3},
    {"linear 40x63x48 into rows, adapters, silu", build_linear, 40, 63, 48, ADAPTED | INTO, 4, .act = SUMI_ACT_SILU,
     .bound = 6e-3},
    {"linear 50x96x64 into columns", build_linear, 50, 96, 64, INTO_COLUMNS | BIASED, .bound = STORED},
    {"linear 50x96x64 into columns, adapters", build_linear, 50, 96, 64, ADAPTED | STACKED | INTO_COLUMNS | BIASED, 16,
     .bound = CHAINED},
    {"linear 50x39x64 into columns, adapters, rank 33", build_linear, 50, 39, 64, ADAPTED | INTO_COLUMNS, 33,
     .bound = CHAINED},
    {"linear, modulation table 8x768x192, adapters", build_linear, 8, 768, 192, ADAPTED | BIASED | TO_FLOAT, 16,
     .bound = CHAINED},
    {"linear, modulation table 4x96x64, adapters, silu", build_linear, 4, 96, 64, ADAPTED | BIASED | TO_FLOAT, 4,
     .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"linear, fp8 64x256x128, adapters, gate", build_linear, 64, 256, 128,
     IN_FP8 | ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, 16, .counter = 1, .bound = FP8},
    {"linear, int8 64x256x384, adapters, gate", build_linear, 64, 256, 384,
     IN_INT8 | ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, 16, .counter = 1, .bound = INT8},
    {"linear, int8 64x256x128, adapters, gelu", build_linear, 64, 256, 128, IN_INT8 | ADAPTED | BIASED, 16,
     .act = SUMI_ACT_GELU_TANH, .bound = 2 * INT8},
    {"linear, fp8 64x256x128, adapters, gelu", build_linear, 64, 256, 128, IN_FP8 | ADAPTED | BIASED, 16,
     .act = SUMI_ACT_GELU_TANH, .bound = 2 * FP8},
    {"linear, mlp in 4096x12288x3072, adapters, gelu", build_linear, 4096, 12288, 3072, ADAPTED | BIASED, 64,
     .act = SUMI_ACT_GELU_TANH, .bound = 6e-3},
    {"linear, mlp out 4096x3072x12288, adapters, gate", build_linear, 4096, 3072, 12288,
     ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, 64, .counter = 2, .bound = CHAINED},
    {"linear 50x96x64, LoKr", build_linear, 50, 96, 64, ADAPTED | STACKED, -8, .bound = CHAINED},
    {"linear 1x96x64, LoKr", build_linear, 1, 96, 64, ADAPTED | BIASED, -4, .bound = CHAINED},
    {"linear 50x39x30, LoKr, silu", build_linear, 50, 39, 30, ADAPTED, -5, .act = SUMI_ACT_SILU, .bound = 6e-3},
    {"linear 50x96x64, LoKr, residual", build_linear, 50, 96, 64, ADAPTED | RESIDUAL, -2, .bound = CHAINED},
    {"linear 131x100x64, LoKr, gated residual", build_linear, 131, 100, 64, ADAPTED | BIASED | GATED_RESIDUAL, -8,
     .counter = 3, .bound = CHAINED},
    {"linear 131x104x64, LoKr, float gate", build_linear, 131, 104, 64, ADAPTED | GATED_RESIDUAL | FLOAT_TABLE, -64,
     .counter = 2, .bound = CHAINED},
    {"linear 256x256x128, LoKr, aligned gate", build_linear, 256, 256, 128,
     ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, -8, .repeat = 2, .counter = 1, .bound = 6e-3},
    {"linear 40x64x48 into rows, LoKr, gelu", build_linear, 40, 64, 48, ADAPTED | BIASED | INTO, -6,
     .act = SUMI_ACT_GELU_TANH, .bound = 6e-3},
    {"linear 50x96x64 into columns, LoKr", build_linear, 50, 96, 64, ADAPTED | STACKED | INTO_COLUMNS | BIASED, -8,
     .bound = CHAINED},
    {"linear 50x39x64 into columns, LoKr", build_linear, 50, 39, 64, ADAPTED | INTO_COLUMNS, -4, .bound = CHAINED},
    {"linear, modulation table 8x768x192, LoKr", build_linear, 8, 768, 192, ADAPTED | BIASED | TO_FLOAT, -8,
     .bound = CHAINED},
    {"linear, fp8 64x256x128, LoKr, gate", build_linear, 64, 256, 128,
     IN_FP8 | ADAPTED | BIASED | GATED_RESIDUAL | FLOAT_TABLE | ALIGNED, -8, .counter = 1, .bound = FP8},
    {"linear, LoKr 1153x3840x3840", build_linear, 1153, 3840, 3840, ADAPTED | STACKED, -8, .bound = CHAINED},
    {"linear, LoKr 1152x3840x2304, 64 folds", build_linear, 1152, 3840, 2304, ADAPTED, -64, .bound = CHAINED},
    {"linear, patches 4096x3840x64", build_linear, 4096, 3840, 64, BIASED, .bound = STORED},
    {"linear, to patches 4096x64x3840", build_linear, 4096, 64, 3840, BIASED, .bound = STORED},
    {"linear, caption 128x3840x2560", build_linear, 128, 3840, 2560, BIASED, .bound = STORED},
    {"linear, text qkv 37x6144x2560", build_linear, 37, 6144, 2560, STACKED, .bound = STORED},
    {"linear, text out 200x2560x4096, residual", build_linear, 200, 2560, 4096, RESIDUAL, .bound = STORED},
    {"linear, text down 512x2560x9728, residual", build_linear, 512, 2560, 9728, RESIDUAL, .bound = STORED},
    {"linear, text 1x2560x4096, residual", build_linear, 1, 2560, 4096, RESIDUAL, .bound = STORED},
    {"linear, qkv 4224x11520x3840", build_linear, 4224, 11520, 3840, STACKED, .bound = STORED},
    {"linear, out 4224x3840x3840", build_linear, 4224, 3840, 3840, .bound = STORED},
    {"linear, down 4224x3840x10240", build_linear, 4224, 3840, 10240, .bound = STORED},
    {"linear, out 2432x3840x3840", build_linear, 2432, 3840, 3840, .bound = STORED},
    {"linear, out 1152x3840x3840", build_linear, 1152, 3840, 3840, .bound = STORED},
    {"linear, three consumers 1100x3848x520", build_linear, 1100, 3848, 520, .bound = STORED},
    {"linear, out 1153x3840x3840, adapters", build_linear, 1153, 3840, 3840, ADAPTED, 16, .bound = CHAINED},
    {"linear, batch of four 16896x3840x3840", build_linear, 16896, 3840, 3840, .bound = STORED},
    {"linear 33x24x20, zeros behind x", build_linear, 33, 24, 20, PADDED | BIASED, .bound = STORED},
    {"linear 130x136x76, zeros behind x, residual", build_linear, 130, 136, 76, PADDED | BIASED | RESIDUAL,
     .bound = STORED},
    {"linear 5x39x30, zeros behind x, adapters", build_linear, 5, 39, 30, PADDED | ADAPTED, 5, .bound = CHAINED},
    {"linear, vision patches 5476x1280x1176", build_linear, 5476, 1280, 1176, .bound = STORED},
    {"linear, vision down 5476x1280x3420, residual", build_linear, 5476, 1280, 3420, PADDED | BIASED | RESIDUAL,
     .bound = STORED},
    {"linear, vision down 784x1280x3420, residual", build_linear, 784, 1280, 3420, PADDED | BIASED | RESIDUAL,
     .bound = STORED},
    {"linear, merger 1369x5120x5120, gelu erf", build_linear, 1369, 5120, 5120, BIASED, .act = SUMI_ACT_GELU_ERF,
     .bound = STORED},
    {"linear, demo 288x576x192", build_linear, 288, 576, 192, STACKED, .bound = STORED},
    {"linear, vae qkv 4096x1536x512, bias", build_linear, 4096, 1536, 512, BIASED | STACKED, .bound = STORED},
    {"linear, vae out 4096x512x512, bias, residual", build_linear, 4096, 512, 512, BIASED | RESIDUAL, .bound = STORED},
    {"linear, vae shortcut 16384x256x512", build_linear, 16384, 256, 512, BIASED, .bound = STORED},
};
CASES(linear)

// ---- GATED, ACTIVATE, products in 8 bits ----------------------------------------------------------------------------
static void build_gated(scene* s, const op_case* c)
{
    sumi_weight* w = stack(s, 2 * c->n, c->k, 2, c->dtype, 1.0f / sqrtf((float)c->k), 0.0f);
    s->plan.weight_options.weights = weights_of(c->a);
    if (c->a & ADAPTED) adapt(s, w, c->b != 0 ? c->b : 16); // the sums land in a value that may be interleaved
    check(s, sumi_plan_linear_gated(&s->plan, "gated", activations(s, c->m, c->k), w, c->act), c->bound);
}
static void build_gated_bias(scene* s, const op_case* c)
{
    sumi_weight *w = stack(s, 2 * c->n, c->k, 2, c->dtype, 1.0f / sqrtf((float)c->k), 0.0f),
                *b = bias_of(s, 2 * c->n, c->dtype);
    sumi_value both = sumi_plan_linear(
        &s->plan,
        &(sumi_plan_linear_args){.label = "gate_up", .x = activations(s, c->m, c->k), .weight = w, .bias = b});
    check(s, sumi_plan_gated(&s->plan, "gated", both, c->act), c->bound);
}
static void build_activate(scene* s, const op_case* c)
{
    sumi_value x = c->a ? floats(s, c->m, c->n) : activations_of(s, c->m, c->n, 3.0f, 0.0f);
    check(s, sumi_plan_activate(&s->plan, x, c->act), c->bound);
}
// a: what follows the norm, and IN_INT8; otherwise fp8
static void build_8bit_block(scene* s, const op_case* c)
{
    sumi_plan* p = &s->plan;
    const int what = c->a & ~IN_INT8;
    p->weight_options.weights = c->a & IN_INT8 ? SUMI_WEIGHTS_INT8 : SUMI_WEIGHTS_FP8;
    sumi_value x = activations(s, c->m, c->k);
    sumi_step_row scale = aligned_row(s, SUMI_ELEMENT_FLOAT, c->k, true);
    sumi_value n = sumi_plan_norm(
        p, &(sumi_plan_norm_args){
               .label = "norm", .x = x, .weight = norm_weight(s, c->k, 0), .eps = 1e-5f, .scale = scale});
    if (what == 0) { // norm -> qkv
        check(s,
              sumi_plan_linear(p, &(sumi_plan_linear_args){.label = "qkv",
                                                           .x = n,
                                                           .weight = stack(s, 3 * c->n, c->k, 3, c->dtype,
                                                                           1.0f / sqrtf((float)c->k), 0.0f)}),
              c->bound);
        return;
    }
    if (what == 2) { // two readers of one norm
        check(s,
              sumi_plan_linear(
                  p, &(sumi_plan_linear_args){.label = "first", .x = n, .weight = matrix(s, c->n, c->k, c->dtype)}),
              c->bound);
        check(
            s,
            sumi_plan_linear(
                p, &(sumi_plan_linear_args){.label = "second", .x = n, .weight = matrix(s, 2 * c->n, c->k, c->dtype)}),
            c->bound);
        return;
    }
    if (what == 3) { // a weight that stays precise beside one that does not: the norm cannot be in 8 bits then
        sumi_weight* precise = matrix(s, c->n, c->k, c->dtype);
        precise->keeps_precision = true;
        check(s, sumi_plan_linear(p, &(sumi_plan_linear_args){.label = "precise", .x = n, .weight = precise}), CHAINED);
        check(
            s,
            sumi_plan_linear(
                p, &(sumi_plan_linear_args){.label = "second", .x = n, .weight = matrix(s, 2 * c->n, c->k, c->dtype)}),
            c->bound);
        return;
    }
    sumi_weight* both = stack(s, 2 * c->n, c->k, 2, c->dtype, 1.0f / sqrtf((float)c->k), 0.0f);
    if (c->b) adapt(s, both, c->b > 0 ? 16 : c->b);
    sumi_value g = sumi_plan_linear_gated(p, "gated", n, both, SUMI_ACT_SILU);
    sumi_plan_adapters(p, NULL, 0);
    check(s,
          sumi_plan_linear(
              p, &(sumi_plan_linear_args){.label = "down", .x = g, .weight = matrix(s, c->k, c->n, c->dtype)}),
          c->bound);
}
// A norm whose weight has outliers, one channel of 30 at 40 times the others, and the products that it balances.
enum {
    TO_PRODUCT, // written in 8 bits by the norm, and so the next three
    TO_GATED,
    OF_SUM, // by the kernel that adds and norms
    TO_PRODUCTS,
    TO_ADAPTED, // written in bfloat16, for adapters read it; rounded in front of the product, and so all others
    TO_ADAPTED_GATED,
    TO_PRECISE,    // a precise weight reads it
    TO_UNBALANCED, // a matrix that this norm does not balance reads it
    OF_ADAPTED,    // an adapter changes the norm
    OF_SHIFTED     // the norm adds a shift
};
static sumi_weight* outlier_norm(scene* s, int cols)
{
    bool fresh;
    uint16_t* data = block(s, (size_t)cols * sizeof *data, &fresh);
    for (int c = 0; fresh && c < cols; c++)
        data[c] = sumi_float_to_bf16((1.0f + 0.3f * normal(s->store)) * (c % 30 == 7 ? 40.0f : 1.0f));
    sumi_weight* w = norm_weight(s, cols, 0);
    w->tensors[0].data = data;
    return w;
}
static sumi_value balanced_product(scene* s, sumi_value x, sumi_weight* w, const sumi_weight* norm, bool is_gated)
{
    w->balance = norm;
    return is_gated ? sumi_plan_linear_gated(&s->plan, "gated", x, w, SUMI_ACT_SILU)
                    : sumi_plan_linear(&s->plan, &(sumi_plan_linear_args){.label = "product", .x = x, .weight = w});
}
static void build_balanced(scene* s, const op_case* c) // a: one of these
{
    sumi_plan* p = &s->plan;
    const bool is_gated = c->a == TO_GATED || c->a == TO_ADAPTED_GATED;
    p->weight_options.weights = SUMI_WEIGHTS_INT8;
    sumi_value x = activations(s, c->m, c->k);
    sumi_weight* norm = outlier_norm(s, c->k);
    sumi_step_row scale = aligned_row(s, SUMI_ELEMENT_FLOAT, c->k, true),
                  shift = c->a == OF_SHIFTED ? aligned_row(s, SUMI_ELEMENT_FLOAT, c->k, true) : SUMI_NO_ROW;
    sumi_weight* w = stack(s, c->n, c->k, 2, c->dtype, 1.0f / sqrtf((float)c->k), 0.0f);
    if (c->a == OF_SUM)
        sumi_plan_norm_gate_add(p, &(sumi_plan_norm_gate_add_args){.label = "sum",
                                                                   .x = x,
                                                                   .branch = activations(s, c->m, c->k),
                                                                   .weight = norm_weight(s, c->k, 0),
                                                                   .eps = 1e-5f});
    if (c->a == OF_ADAPTED) adapt_norms(s, norm, norm);
    sumi_value n = sumi_plan_norm(
        p,
        &(sumi_plan_norm_args){.label = "norm", .x = x, .weight = norm, .eps = 1e-5f, .scale = scale, .shift = shift});
    if (c->a == TO_ADAPTED || c->a == TO_ADAPTED_GATED) adapt(s, w, 16);
    check(s, balanced_product(s, n, w, norm, is_gated), c->bound);
    sumi_plan_adapters(p, NULL, 0);
    if (c->a == TO_PRODUCTS) check(s, balanced_product(s, n, matrix(s, c->n, c->k, 0), norm, false), c->bound);
    if (c->a != TO_PRECISE && c->a != TO_UNBALANCED) return;
    sumi_weight* other = matrix(s, c->n, c->k, 0);
    other->keeps_precision = c->a == TO_PRECISE;
    check(s, balanced_product(s, n, other, NULL, false), c->a == TO_PRECISE ? CHAINED : INT8);
}
static const op_case s_gated[] = {
    // 3 columns cannot be interleaved by 8
    {"gated 5x3x7", build_gated, 5, 3, 7, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated 33x8x16", build_gated, 33, 8, 16, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated 70x44x50, gelu tanh", build_gated, 70, 44, 50, .act = SUMI_ACT_GELU_TANH, .bound = CHAINED},
    {"gated 130x88x72", build_gated, 130, 88, 72, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated 130x88x72, f32 weights", build_gated, 130, 88, 72, .act = SUMI_ACT_GELU_ERF, .dtype = SUMI_DTYPE_F32,
     .bound = CHAINED},
    {"gated 65x48x40, adapters", build_gated, 65, 48, 40, ADAPTED, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated 65x45x40, adapters", build_gated, 65, 45, 40, ADAPTED, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated 65x48x40, LoKr", build_gated, 65, 48, 40, ADAPTED, -8, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated 65x45x40, LoKr", build_gated, 65, 45, 40, ADAPTED, -5, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated 65x64x64, LoKr", build_gated, 65, 64, 64, ADAPTED, -8, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated 1152x6144x2304, LoKr", build_gated, 1152, 6144, 2304, ADAPTED, -8, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated with biases 33x12x20", build_gated_bias, 33, 12, 20, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated with biases 70x80x64", build_gated_bias, 70, 80, 64, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated with biases, vision 5476x3424x1280", build_gated_bias, 5476, 3424, 1280, .act = SUMI_ACT_SILU,
     .bound = CHAINED},
    {"gated, demo 288x512x192", build_gated, 288, 512, 192, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated, text 37x9728x2560", build_gated, 37, 9728, 2560, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated, three consumers 1100x1504x520", build_gated, 1100, 1504, 520, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated, 1152x10240x3840", build_gated, 1152, 10240, 3840, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"gated, 1152x10240x3840, adapters", build_gated, 1152, 10240, 3840, ADAPTED, .act = SUMI_ACT_SILU, .bound = 8e-3},
    {"gated, 4224x10240x3840", build_gated, 4224, 10240, 3840, .act = SUMI_ACT_SILU, .bound = CHAINED},
    {"activate, none", build_activate, 37, 43, .act = SUMI_ACT_NONE, .bound = EXACT},
    {"activate, silu", build_activate, 37, 43, .act = SUMI_ACT_SILU, .bound = STORED},
    {"activate, gelu tanh", build_activate, 37, 43, .act = SUMI_ACT_GELU_TANH, .bound = STORED},
    {"activate, gelu erf", build_activate, 37, 43, .act = SUMI_ACT_GELU_ERF, .bound = STORED},
    {"activate, quick gelu", build_activate, 37, 43, .act = SUMI_ACT_QUICK_GELU, .bound = STORED},
    {"activate, tanh", build_activate, 37, 43, .act = SUMI_ACT_TANH, .bound = STORED},
    {"activate, silu 100x256", build_activate, 100, 256, .act = SUMI_ACT_SILU, .bound = STORED},
    {"activate, silu of floats", build_activate, 9, 256, .a = 1, .act = SUMI_ACT_SILU, .bound = 2e-5},
};
CASES(gated)
static const op_case s_fp8[] = {
    {"fp8, norm and qkv 130x96x128", build_8bit_block, 130, 96, 128, 0, .bound = FP8},
    {"fp8, norm and feed-forward 130x96x128", build_8bit_block, 130, 96, 128, 1, .bound = 2 * FP8},
    {"fp8, norm and feed-forward with adapters", build_8bit_block, 130, 96, 128, 1, 1, .bound = 2 * FP8},
    {"fp8, norm and feed-forward with LoKr", build_8bit_block, 130, 96, 128, 1, -8, .bound = 2 * FP8},
    {"fp8, two readers", build_8bit_block, 77, 112, 144, 2, .bound = FP8},
    {"fp8, a precise reader", build_8bit_block, 77, 112, 144, 3, .bound = FP8},
    {"fp8, shapes that are no multiple of 16", build_8bit_block, 50, 36, 52, 1, .bound = 2 * FP8},
    {"fp8, of e4m3 files", build_8bit_block, 130, 96, 128, 0, .dtype = SUMI_DTYPE_F8_E4M3, .bound = FP8},
    {"fp8, norm of 1008 and qkv", build_8bit_block, 40, 96, 1008, 0, .bound = FP8},
    {"fp8, norm of 8000 and qkv", build_8bit_block, 20, 96, 8000, 0, .bound = FP8},
    {"fp8, norm of 8208 and qkv", build_8bit_block, 20, 96, 8208, 0, .bound = FP8},
    {"fp8, norm and qkv 1152x3840x3840", build_8bit_block, 1152, 3840, 3840, 0, .bound = FP8},
    {"fp8, norm and feed-forward 1152x10240x3840", build_8bit_block, 1152, 10240, 3840, 1, .bound = 2 * FP8},
    {"fp8, norm and qkv 4224x3840x3840", build_8bit_block, 4224, 3840, 3840, 0, .bound = FP8},
    {"fp8, norm and qkv 4096x3072x3072", build_8bit_block, 4096, 3072, 3072, 0, .bound = FP8},
    {"fp8, norm of 2304 and qkv", build_8bit_block, 1500, 272, 2304, 0, .bound = FP8},
    {"fp8, norm of 784 and qkv", build_8bit_block, 2900, 272, 784, 0, .bound = FP8},
};
CASES(fp8)
static const op_case s_int8[] = {
    {"int8, norm and qkv 130x96x256", build_8bit_block, 130, 96, 256, IN_INT8, .bound = INT8},
    {"int8, a block filled up, 130x96x272", build_8bit_block, 130, 96, 272, IN_INT8, .bound = INT8},
    {"int8, no room for the scales, 130x96x128", build_8bit_block, 130, 96, 128, IN_INT8, .bound = INT8},
    {"int8, norm and feed-forward 130x272x256", build_8bit_block, 130, 272, 256, IN_INT8 | 1, .bound = 2 * INT8},
    {"int8, norm and feed-forward with adapters", build_8bit_block, 130, 96, 256, IN_INT8 | 1, 1, .bound = 2 * INT8},
    {"int8, norm and feed-forward with LoKr", build_8bit_block, 130, 96, 256, IN_INT8 | 1, -8, .bound = 2 * INT8},
    {"int8, two readers", build_8bit_block, 77, 256, 400, IN_INT8 | 2, .bound = INT8},
    {"int8, a precise reader", build_8bit_block, 77, 256, 400, IN_INT8 | 3, .bound = INT8},
    {"int8, shapes that are no multiple of 16", build_8bit_block, 50, 36, 52, IN_INT8 | 1, .bound = 2 * INT8},
    {"int8, of e4m3 files", build_8bit_block, 130, 96, 256, IN_INT8, .dtype = SUMI_DTYPE_F8_E4M3, .bound = INT8},
    {"int8, norm of 1008 and qkv", build_8bit_block, 40, 96, 1008, IN_INT8, .bound = INT8},
    {"int8, norm of 8000 and qkv", build_8bit_block, 20, 96, 8000, IN_INT8, .bound = INT8},
    {"int8, norm of 8208 and qkv", build_8bit_block, 20, 96, 8208, IN_INT8, .bound = INT8},
    {"int8, norm and qkv 1152x3840x3840", build_8bit_block, 1152, 3840, 3840, IN_INT8, .bound = INT8},
    {"int8, norm and feed-forward 1152x10240x3840", build_8bit_block, 1152, 10240, 3840, IN_INT8 | 1,
     .bound = 2 * INT8},
    {"int8, norm and feed-forward 20x15616x256", build_8bit_block, 20, 15616, 256, IN_INT8 | 1, .bound = 2 * INT8},
    {"int8, norm and feed-forward 270x12304x3072", build_8bit_block, 270, 12304, 3072, IN_INT8 | 1, .bound = 2 * INT8},
    {"int8, norm and qkv 4224x3840x3840", build_8bit_block, 4224, 3840, 3840, IN_INT8, .bound = INT8},
    {"int8, norm and qkv 4096x3072x3072", build_8bit_block, 4096, 3072, 3072, IN_INT8, .bound = INT8},
    {"int8, norm of 2304 and qkv", build_8bit_block, 1500, 272, 2304, IN_INT8, .bound = INT8},
    {"int8, norm of 784 and qkv", build_8bit_block, 2900, 272, 784, IN_INT8, .bound = INT8},
};
CASES(int8)
static const op_case s_balanced[] = {
    {"balanced, norm and product 130x288x256", build_balanced, 130, 288, 256, TO_PRODUCT, .bound = BALANCED},
    {"balanced, a block filled up, 130x288x272", build_balanced, 130, 288, 272, TO_PRODUCT, .bound = BALANCED},
    {"balanced, no room for the scales, 130x256x128", build_balanced, 130, 256, 128, TO_PRODUCT, .bound = BALANCED},
    {"balanced, of e4m3 files", build_balanced, 130, 288, 256, TO_PRODUCT, .dtype = SUMI_DTYPE_F8_E4M3,
     .bound = BALANCED},
    {"balanced, of f32 files", build_balanced, 130, 288, 256, TO_PRODUCT, .dtype = SUMI_DTYPE_F32, .bound = BALANCED},
    {"balanced, norm and gated product 77x272x256", build_balanced, 77, 544, 256, TO_GATED, .bound = 1.4 * BALANCED},
    {"balanced, sum, norm and product 130x288x272", build_balanced, 130, 288, 272, OF_SUM, .bound = BALANCED},
    {"balanced, two products 77x256x272", build_balanced, 77, 256, 272, TO_PRODUCTS, .bound = BALANCED},
    {"balanced, adapters 130x288x272", build_balanced, 130, 288, 272, TO_ADAPTED, .bound = BALANCED},
    {"balanced, gated product with adapters 77x272x256", build_balanced, 77, 544, 256, TO_ADAPTED_GATED,
     .bound = 1.4 * BALANCED},
    {"balanced, a precise reader", build_balanced, 77, 256, 272, TO_PRECISE, .bound = BALANCED},
    {"balanced, a reader that is not", build_balanced, 77, 256, 272, TO_UNBALANCED, .bound = BALANCED},
    {"balanced, a changed norm 77x256x400", build_balanced, 77, 256, 400, OF_ADAPTED, .bound = BALANCED},
    {"balanced, a norm with a shift 77x256x400", build_balanced, 77, 256, 400, OF_SHIFTED, .bound = BALANCED},
    {"balanced, norm of 8208", build_balanced, 20, 288, 8208, TO_PRODUCT, .bound = BALANCED},
    {"balanced, adapters 40x288x10240", build_balanced, 40, 288, 10240, TO_ADAPTED, .bound = BALANCED},
    {"balanced, adapters 20x288x16400", build_balanced, 20, 288, 16400, TO_ADAPTED, .bound = BALANCED},
    {"balanced, norm and product 1152x3840x3840", build_balanced, 1152, 3840, 3840, TO_PRODUCT, .bound = BALANCED},
    {"balanced, adapters 1152x3840x3840", build_balanced, 1152, 3840, 3840, TO_ADAPTED, .bound = BALANCED},
    {"balanced, sum, norm and product 1152x11520x3840", build_balanced, 1152, 11520, 3840, OF_SUM, .bound = BALANCED},
};
CASES(balanced)

// ---- Weights as stored, and in 4 bits -------------------------------------------------------------------------------
enum {
    OF_FEW = 1,
    FROM_PARTS = 2,
    OF_TWO_TYPES = 4,
    INTO_A_GATE = 8,
    WITH_BIAS = 16,
    WITH_RESIDUAL = 32,
    AS_INT4 = 64
};

// The weight's rows as bfloat16, as which a device keeps it otherwise.
static sumi_weight* rounded_twin(scene* s, const sumi_weight* of)
{
    bool fresh;
    if (s->next_weight == MAX_WEIGHTS) abort();
    uint16_t* data = block(s, (size_t)of->rows * (size_t)of->cols * sizeof *data, &fresh);
    float* row = malloc((size_t)of->cols * sizeof *row);
    for (int r = 0; fresh && r < of->rows; r++) {
        sumi_weight_to_float(of, r, 1, row, of->cols);
        sumi_floats_to_bf16(row, data + (size_t)r * (size_t)of->cols, (size_t)of->cols);
    }
    free(row);
    sumi_weight* w = &s->store->weights[s->next_weight];
    *w = (sumi_weight){.name = "twin",
                       .rows = of->rows,
                       .cols = of->cols,
                       .tensor_count = 1,
                       .tensors = {{.data = data, .dtype = SUMI_DTYPE_BF16, .rows = of->rows, .scale = 1.0f}},
                       .index = s->next_weight++};
    return w;
}

static sumi_value stored_product(scene* s, const op_case* c, sumi_value x, sumi_weight* w, sumi_weight* b,
                                 sumi_value residual)
{
    if (c->a & INTO_A_GATE) return sumi_plan_linear_gated(&s->plan, "gated", x, w, SUMI_ACT_SILU);
    return sumi_plan_linear(
        &s->plan, &(sumi_plan_linear_args){
                      .label = "stored", .x = x, .weight = w, .bias = b, .residual = residual, .activation = c->act});
}

// A product with a weight as its file has it, and with the same weight in bfloat16. Small integers times exact weights
// have exact sums, so that the order in which a kernel adds does not matter. OF_FEW: the sums of fp8 weights are not
// exact, and the kernels of few rows have an order of their own; they also have the sigmoid of SwiGLU from another
// instruction.
static void build_stored(scene* s, const op_case* c)
{
    const int parts = c->a & (FROM_PARTS | INTO_A_GATE) ? 2 : 1;
    s->plan.weight_options.weights = c->a & AS_INT4 ? SUMI_WEIGHTS_INT4 : SUMI_WEIGHTS_AS_STORED;
    sumi_weight* w = stack(s, c->n, c->k, parts, c->dtype, 1.0f / sqrtf((float)c->k), 0.0f);
    if (c->a & OF_TWO_TYPES) {
        sumi_weight* other = stack(s, c->n, c->k, parts, SUMI_DTYPE_Q6_K, 1.0f / sqrtf((float)c->k), 0.0f);
        w->tensors[1] = other->tensors[1];
    }
    bool fresh;
    float* data = block(s, (size_t)c->m * (size_t)c->k * sizeof *data, &fresh);
    for (int i = 0; fresh && i < c->m * c->k; i++) data[i] = (float)((int)(draw(s->store) >> 33) % 3 - 1);
    sumi_value x = give(s, SUMI_ELEMENT_ACTIVATION, c->m, c->k, data, false),
               residual = c->a & WITH_RESIDUAL ? activations(s, c->m, c->n) : SUMI_NO_VALUE;
    sumi_weight* b = c->a & WITH_BIAS ? bias_of(s, c->n, SUMI_DTYPE_BF16) : NULL;
    check(s, stored_product(s, c, x, w, b, residual), c->bound);
    if (c->a & AS_INT4) return;
    check(s, stored_product(s, c, x, rounded_twin(s, w), b, residual), c->bound);
    s->twins[0].a = 0, s->twins[0].b = 1, s->twins[0].is_bf16 = true;
    s->twin_count = c->a & OF_FEW ? 0 : 1;
}
static void build_stored_embed(scene* s, const op_case* c)
{
    s->plan.weight_options.weights = SUMI_WEIGHTS_AS_STORED;
    sumi_weight *w = stack(s, c->n, c->k, 1, c->dtype, 1.0f, 0.0f), *b = c->a ? bias_of(s, c->k, 0) : NULL;
    sumi_value ids = integers(s, c->m, 1, c->n);
    for (int i = 0; i < 2; i++) {
        sumi_weight* table = i == 0 ? w : rounded_twin(s, w);
        check(s,
              b != NULL ? sumi_plan_embed_rows_biased(&s->plan, ids, table, b)
                        : sumi_plan_embed_rows(&s->plan, ids, table, 0.7f),
              c->bound);
    }
    s->twins[0].a = 0, s->twins[0].b = 1, s->twins[0].is_bf16 = true;
    s->twin_count = 1;
}
// Weights in bfloat16 against the file's own precision. The products of 4-bit codes are off by what the codes are.
#define UNPACKED 5.2e-3
#define INT4 0.11
// Every type by the kernel of few rows, each of its tiles, with parts of k and without, and after unpacking.
#define OF_A_TYPE(name, type, few)                                                                                     \
    {"stored " name ", embed", build_stored_embed, 40, 300, 512, .dtype = type, .bound = UNPACKED},                    \
        {"stored " name " 5x80x512", build_stored, 5, 80, 512, few, .dtype = type, .bound = UNPACKED},                 \
        {"stored " name " 50x320x768", build_stored, 50, 320, 768, few, .dtype = type, .bound = UNPACKED},             \
        {"stored " name " 130x192x1024", build_stored, 130, 192, 1024, few, .dtype = type, .bound = UNPACKED},         \
        {"stored " name " 30x6200x512", build_stored, 30, 6200, 512, few, .dtype = type, .bound = UNPACKED},           \
        {"stored " name " 100x6200x512", build_stored, 100, 6200, 512, few, .dtype = type, .bound = UNPACKED},         \
        {"stored " name " 200x12300x256", build_stored, 200, 12300, 256, few, .dtype = type, .bound = UNPACKED},       \
    {                                                                                                                  \
        "stored " name " 300x200x256", build_stored, 300, 200, 256, 0, .dtype = type, .bound = UNPACKED                \
    }
static const op_case s_stored[] = {
    OF_A_TYPE("q8_0", SUMI_DTYPE_Q8_0, 0),
    OF_A_TYPE("q4_0", SUMI_DTYPE_Q4_0, 0),
    OF_A_TYPE("q4_1", SUMI_DTYPE_Q4_1, 0),
    OF_A_TYPE("q5_0", SUMI_DTYPE_Q5_0, 0),
    OF_A_TYPE("q5_1", SUMI_DTYPE_Q5_1, 0),
    OF_A_TYPE("q2_k", SUMI_DTYPE_Q2_K, 0),
    OF_A_TYPE("q3_k", SUMI_DTYPE_Q3_K, 0),
    OF_A_TYPE("q4_k", SUMI_DTYPE_Q4_K, 0),
    OF_A_TYPE("q5_k", SUMI_DTYPE_Q5_K, 0),
    OF_A_TYPE("q6_k", SUMI_DTYPE_Q6_K, 0),
    OF_A_TYPE("iq4_nl", SUMI_DTYPE_IQ4_NL, 0),
    OF_A_TYPE("iq4_xs", SUMI_DTYPE_IQ4_XS, 0),
    OF_A_TYPE("e4m3", SUMI_DTYPE_F8_E4M3, OF_FEW),
    OF_A_TYPE("e5m2", SUMI_DTYPE_F8_E5M2, OF_FEW),
    // blocks of 32 in rows that are no multiple of 256; of 64 neither
    {"stored q8_0 20x96x320", build_stored, 20, 96, 320, 0, .dtype = SUMI_DTYPE_Q8_0, .bound = UNPACKED},
    {"stored q4_0 100x72x1088", build_stored, 100, 72, 1088, 0, .dtype = SUMI_DTYPE_Q4_0, .bound = UNPACKED},
    {"stored q5_1 20x96x96", build_stored, 20, 96, 96, 0, .dtype = SUMI_DTYPE_Q5_1, .bound = UNPACKED},
    {"stored q4_1 300x96x96", build_stored, 300, 96, 96, 0, .dtype = SUMI_DTYPE_Q4_1, .bound = UNPACKED},
    {"stored iq4_nl, embed of 96, bias", build_stored_embed, 9, 30, 96, 1, .dtype = SUMI_DTYPE_IQ4_NL,
     .bound = UNPACKED},
    {"stored q4_k 77x520x512, parts, bias, residual", build_stored, 77, 520, 512,
     FROM_PARTS | WITH_BIAS | WITH_RESIDUAL, .dtype = SUMI_DTYPE_Q4_K, .bound = UNPACKED},
    {"stored q6_k 77x520x512, parts, silu", build_stored, 77, 520, 512, FROM_PARTS | WITH_BIAS, .act = SUMI_ACT_SILU,
     .dtype = SUMI_DTYPE_Q6_K, .bound = UNPACKED},
    {"stored q3_k 7x520x512, parts", build_stored, 7, 520, 512, FROM_PARTS, .dtype = SUMI_DTYPE_Q3_K,
     .bound = UNPACKED},
    {"stored q4_k and q6_k 77x520x512", build_stored, 77, 520, 512, FROM_PARTS | OF_TWO_TYPES | WITH_BIAS,
     .dtype = SUMI_DTYPE_Q4_K, .bound = UNPACKED},
    {"stored q4_k and q6_k, gated 300x512x512", build_stored, 300, 512, 512, OF_TWO_TYPES | INTO_A_GATE,
     .dtype = SUMI_DTYPE_Q4_K, .bound = 2 * UNPACKED},
    {"stored e4m3 300x520x512, parts", build_stored, 300, 520, 512, FROM_PARTS, .dtype = SUMI_DTYPE_F8_E4M3,
     .bound = UNPACKED},
    {"stored q4_k, gated 12x512x512", build_stored, 12, 512, 512, OF_FEW | INTO_A_GATE, .dtype = SUMI_DTYPE_Q4_K,
     .bound = 2 * UNPACKED},
    {"stored q5_k, gated 100x416x256", build_stored, 100, 416, 256, OF_FEW | INTO_A_GATE, .dtype = SUMI_DTYPE_Q5_K,
     .bound = 2 * UNPACKED},
    {"stored q8_0, gated 260x512x512", build_stored, 260, 512, 512, INTO_A_GATE, .dtype = SUMI_DTYPE_Q8_0,
     .bound = 2 * UNPACKED},
    {"stored e4m3, gated 100x416x256", build_stored, 100, 416, 256, OF_FEW | INTO_A_GATE, .dtype = SUMI_DTYPE_F8_E4M3,
     .bound = 2 * UNPACKED},
    {"stored q8_0, adapters 70x96x128", build_linear, 70, 96, 128, IN_STORED | ADAPTED | BIASED, 16,
     .dtype = SUMI_DTYPE_Q8_0, .bound = UNPACKED},
    {"stored q4_k, adapters, gated 40x64x256", build_gated, 40, 64, 256, IN_STORED | ADAPTED, .act = SUMI_ACT_SILU,
     .dtype = SUMI_DTYPE_Q4_K, .bound = 2 * UNPACKED},
    {"stored q4_0, float table 40x768x192", build_linear, 40, 768, 192, IN_STORED | BIASED | TO_FLOAT,
     .dtype = SUMI_DTYPE_Q4_0, .bound = UNPACKED},
    {"int4 70x256x384", build_stored, 70, 256, 384, AS_INT4, .bound = INT4},
    {"int4 300x256x384, parts", build_stored, 300, 256, 384, AS_INT4 | FROM_PARTS | WITH_BIAS, .dtype = SUMI_DTYPE_F16,
     .bound = INT4},
    {"int4, gated 300x512x256", build_stored, 300, 512, 256, AS_INT4 | INTO_A_GATE, .bound = 2 * INT4},
    {"int4, gated 40x512x256, of q8_0", build_stored, 40, 512, 256, AS_INT4 | INTO_A_GATE, .dtype = SUMI_DTYPE_Q8_0,
     .bound = 2 * INT4},
    // Hopper's kernels: parts, biases, residuals, rows that are no multiple of a tile's
    {"stored q6_k 64x6200x768, bias, residual", build_stored, 64, 6200, 768, WITH_BIAS | WITH_RESIDUAL,
     .dtype = SUMI_DTYPE_Q6_K, .bound = UNPACKED},
    {"stored q8_0 128x6144x1024, parts", build_stored, 128, 6144, 1024, FROM_PARTS, .dtype = SUMI_DTYPE_Q8_0,
     .bound = UNPACKED},
    {"stored q4_0 200x12288x512, silu", build_stored, 200, 12288, 512, WITH_BIAS, .dtype = SUMI_DTYPE_Q4_0,
     .act = SUMI_ACT_SILU, .bound = UNPACKED},
    {"stored iq4_nl 60x6200x640", build_stored, 60, 6200, 640, 0, .dtype = SUMI_DTYPE_IQ4_NL, .bound = UNPACKED},
    // tiles that the blocks of a cluster share: of eight, of five, of unequal parts, results that are not aligned
    {"stored q4_k 77x1536x4096, parts, bias, residual", build_stored, 77, 1536, 4096,
     FROM_PARTS | WITH_BIAS | WITH_RESIDUAL, .dtype = SUMI_DTYPE_Q4_K, .bound = UNPACKED},
    {"stored q8_0 40x1600x2112, silu", build_stored, 40, 1600, 2112, WITH_BIAS, .dtype = SUMI_DTYPE_Q8_0,
     .act = SUMI_ACT_SILU, .bound = UNPACKED},
    {"stored iq4_nl 250x1208x2816, residual", build_stored, 250, 1208, 2816, WITH_RESIDUAL, .dtype = SUMI_DTYPE_IQ4_NL,
     .bound = UNPACKED},
    {"stored e4m3 130x1500x2304, bias, residual", build_stored, 130, 1500, 2304, OF_FEW | WITH_BIAS | WITH_RESIDUAL,
     .dtype = SUMI_DTYPE_F8_E4M3, .bound = UNPACKED},
    {"stored q6_k, gated 230x2048x1792", build_stored, 230, 2048, 1792, OF_FEW | INTO_A_GATE, .dtype = SUMI_DTYPE_Q6_K,
     .bound = 2 * UNPACKED},
    {"stored q5_k, gated 77x6400x512", build_stored, 77, 6400, 512, OF_FEW | INTO_A_GATE, .dtype = SUMI_DTYPE_Q5_K,
     .bound = 2 * UNPACKED},
    {"stored q4_k 4096x3840x3840", build_stored, 4096, 3840, 3840, 0, .dtype = SUMI_DTYPE_Q4_K, .bound = UNPACKED},
    {"stored q6_k, gated 520x20480x3840", build_stored, 520, 20480, 3840, INTO_A_GATE, .dtype = SUMI_DTYPE_Q6_K,
     .bound = 2 * UNPACKED},
    {"stored q4_k 200x3072x12288", build_stored, 200, 3072, 12288, OF_FEW, .dtype = SUMI_DTYPE_Q4_K, .bound = UNPACKED},
};
CASES(stored)

// ---- Norms, rotary, tables ------------------------------------------------------------------------------------------
// Thirds of the rows that read other rows of their tables, or none. Counters are at most 2 then.
#define BANDED 2048
typedef struct thirds {
    sumi_row_band list[3];
    int32_t count;
} thirds;
static thirds bands_of(const op_case* c, int rows)
{
    thirds bands = {{{rows / 3, 2}, {2 * rows / 3, 0}, {rows, 3}}, c->a & BANDED ? 3 : 0};
    return bands;
}
static void build_norm(scene* s, const op_case* c)
{
    // a: 1 layer norm, 2 no weight, 4 scale, 8 shift, 16 rows from row 3 on, 32 a mean of 50, 64 tables of activations,
    // 128 not per step, 256 SiLU, 512 in place, 1024 a bias, BANDED
    const thirds bands = bands_of(c, c->m);
    int before = c->a & 16 ? 3 : 0;
    sumi_element element = c->a & 64 ? SUMI_ELEMENT_ACTIVATION : SUMI_ELEMENT_FLOAT;
    sumi_value x = activations_of(s, c->m + before, c->n, 1.0f, c->a & 32 ? 50.0f : 0.0f);
    sumi_step_row scale =
        c->a & 4 ? c->b ? aligned_row(s, element, c->n, !(c->a & 128)) : step_row(s, element, c->n, !(c->a & 128))
                 : SUMI_NO_ROW;
    sumi_step_row shift = c->a & 8 ? step_row(s, element, c->n, !(c->a & 128)) : SUMI_NO_ROW;
    sumi_weight* weight = c->a & 2 ? NULL : norm_weight(s, c->n, c->dtype);
    if (c->e) adapt_norms(s, weight, weight);
    check(s,
          sumi_plan_norm(&s->plan, &(sumi_plan_norm_args){.label = "norm",
                                                          .x = x,
                                                          .x_row = before,
                                                          .rows = c->m,
                                                          .norm = c->a & 1 ? SUMI_NORM_LAYER : SUMI_NORM_RMS,
                                                          .weight = weight,
                                                          .bias = c->a & 1024 ? bias_of(s, c->n, c->dtype) : NULL,
                                                          .eps = 1e-5f,
                                                          .scale = scale,
                                                          .shift = shift,
                                                          .bands = bands.list,
                                                          .band_count = bands.count,
                                                          .silu = (c->a & 256) != 0,
                                                          .y = c->a & 512 ? x : SUMI_NO_VALUE}),
          c->bound);
}
static void build_gate_add(scene* s, const op_case* c)
{
    // a: 2 no weight, 4 gate, 16 rows from row 3 on, 64 a table of activations, 128 not per step, BANDED
    const thirds bands = bands_of(c, c->m);
    int before = c->a & 16 ? 3 : 0;
    sumi_element element = c->a & 64 ? SUMI_ELEMENT_ACTIVATION : SUMI_ELEMENT_FLOAT;
    sumi_value x = activations(s, c->m + before + 1, c->n), branch = activations_of(s, c->m + 2, c->n, 3.0f, 0.0f);
    sumi_step_row gate =
        c->a & 4 ? c->b ? aligned_row(s, element, c->n, !(c->a & 128)) : step_row(s, element, c->n, !(c->a & 128))
                 : SUMI_NO_ROW;
    sumi_weight* weight = c->a & 2 ? NULL : norm_weight(s, c->n, c->dtype);
    if (c->e) adapt_norms(s, weight, weight);
    sumi_plan_norm_gate_add(&s->plan, &(sumi_plan_norm_gate_add_args){.label = "gate_add",
                                                                      .x = x,
                                                                      .x_row = before,
                                                                      .branch = branch,
                                                                      .rows = c->m,
                                                                      .weight = weight,
                                                                      .eps = 1e-5f,
                                                                      .gate = gate,
                                                                      .bands = bands.list,
                                                                      .band_count = bands.count});
    check(s, x, c->bound);
}
// A sum and a norm behind it, which a GPU does in one kernel when the norm reads the rows that the sum wrote; and both
// again with another op between them, in two. a: 1 layer norm, 2 no weights, 4 gate and scale, 8 shift, 16 rows from
// row 3 on, 32 the norm reads one row further, 64 tables of activations, 128 fewer rows in the norm, 512 other bands in
// the norm, BANDED;
// b: aligned tables; k: the norm is in 8 bits, for a product with k columns; 1024: int8 instead of e4m3
static void build_norm_pair(scene* s, const op_case* c)
{
    sumi_plan* p = &s->plan;
    p->weight_options.weights = c->k == 0 ? SUMI_WEIGHTS_AUTO : c->a & 1024 ? SUMI_WEIGHTS_INT8 : SUMI_WEIGHTS_FP8;
    int before = c->a & 16 ? 3 : 0, from = before + (c->a & 32 ? 1 : 0), rows = c->m - (c->a & 128 ? 1 : 0);
    sumi_element element = c->a & 64 ? SUMI_ELEMENT_ACTIVATION : SUMI_ELEMENT_FLOAT;
    float* data = numbers(s, (size_t)(c->m + before + 1) * (size_t)c->n, 1.0f, 0.5f);
    sumi_value branch = activations_of(s, c->m + 2, c->n, 3.0f, 0.0f);
    sumi_step_row gate =
        c->a & 4 ? c->b ? aligned_row(s, element, c->n, true) : step_row(s, element, c->n, true) : SUMI_NO_ROW;
    const bool has_bias = (c->a & 256) != 0; // of the norm, in place of tables
    sumi_step_row scale = (c->a & 4) && !has_bias
                            ? c->b ? aligned_row(s, element, c->n, true) : step_row(s, element, c->n, true)
                            : SUMI_NO_ROW;
    sumi_step_row shift = c->a & 8 ? step_row(s, element, c->n, true) : SUMI_NO_ROW;
    sumi_weight *of_sum = c->a & 2 ? NULL : norm_weight(s, c->n, c->dtype),
                *of_norm = c->a & 2 ? NULL : norm_weight(s, c->n, c->dtype),
                *bias = has_bias ? bias_of(s, c->n, c->dtype) : NULL;
    if (c->e) { // the sums first, so that nothing stands between the pair
        adapt_norms(s, of_sum, of_norm);
        sumi_plan_changed_vector(p, of_sum);
        sumi_plan_changed_vector(p, of_norm);
    }
    sumi_weight* product = c->k > 0 ? matrix(s, c->k, c->n, 0) : NULL;
    sumi_value between = activations(s, 24, 40);
    const thirds of_rows = bands_of(c, c->m), others = c->a & 512 ? (thirds){{{rows, 1}}, 1} : bands_of(c, rows);
    for (int i = 0; i < 2; i++) {
        sumi_value x = give(s, SUMI_ELEMENT_ACTIVATION, c->m + before + 1, c->n, data, false);
        sumi_plan_norm_gate_add(p, &(sumi_plan_norm_gate_add_args){.label = "sum",
                                                                   .x = x,
                                                                   .x_row = before,
                                                                   .branch = branch,
                                                                   .rows = c->m,
                                                                   .weight = of_sum,
                                                                   .eps = 1e-5f,
                                                                   .gate = gate,
                                                                   .bands = of_rows.list,
                                                                   .band_count = of_rows.count});
        if (i == 1) check(s, sumi_plan_activate(p, between, SUMI_ACT_SILU), STORED);
        sumi_value y = sumi_plan_norm(p, &(sumi_plan_norm_args){.label = "norm",
                                                                .x = x,
                                                                .x_row = from,
                                                                .rows = rows,
                                                                .norm = c->a & 1 ? SUMI_NORM_LAYER : SUMI_NORM_RMS,
                                                                .weight = of_norm,
                                                                .bias = bias,
                                                                .eps = 1e-5f,
                                                                .scale = scale,
                                                                .shift = shift,
                                                                .bands = others.list,
                                                                .band_count = others.count});
        s->twins[0].a = s->twins[0].b, s->twins[0].b = s->output_count;
        check(s, x, c->repeat > 1 ? CHAINED : STORED); // the sum is stored in every repetition
        s->twins[1].a = s->twins[1].b, s->twins[1].b = s->output_count;
        if (product != NULL) {
            y = sumi_plan_linear(p, &(sumi_plan_linear_args){.label = "product", .x = y, .weight = product});
        }
        check(s, y, c->bound);
    }
    s->twin_count = 2;
}
static void build_qk(scene* s, const op_case* c)
{
    // m rows, n heads, k dim; a: 1 halves, 2 no rotary, 4 no norms, 8 only q has a norm, 16 offsets; b: key heads
    int q = c->n, kv = c->b > 0 ? c->b : q, dim = c->k, before = c->a & 16 ? 2 : 0;
    sumi_value qkv = activations(s, c->m + 2 * before, (q + 2 * kv) * dim);
    sumi_value rope =
        c->a & 2 ? SUMI_NO_VALUE
                 // the table is float: exact here
                 : sumi_plan_rope_table(&s->plan, &(sumi_plan_rope_args){.positions = integers(s, c->m + 3, 1, 400),
                                                                         .axes = 1,
                                                                         .pairs = {dim / 2},
                                                                         .theta = 10000.0});
    sumi_weight* k_norm = c->a & (4 | 8) ? NULL : norm_weight(s, dim, c->dtype);
    sumi_weight* q_norm = c->a & 4 ? NULL : norm_weight(s, dim, c->dtype);
    if (c->e) adapt_norms(s, q_norm, k_norm != NULL ? k_norm : q_norm);
    sumi_plan_qk_norm_rope(&s->plan, &(sumi_plan_qk_args){.label = "qk",
                                                          .qkv = qkv,
                                                          .row = before,
                                                          .rows = c->m,
                                                          .q_heads = q,
                                                          .kv_heads = kv,
                                                          .dim = dim,
                                                          .q_norm = q_norm,
                                                          .k_norm = k_norm,
                                                          .eps = 1e-6f,
                                                          .rope = rope,
                                                          .rope_row = c->a & 2 ? 0 : 3,
                                                          .rotary = c->a & 2 ? SUMI_ROTARY_NONE
                                                                  : c->a & 1 ? SUMI_ROTARY_HALVES
                                                                             : SUMI_ROTARY_INTERLEAVED});
    check(s, qkv, c->bound);
}
static void build_rope(scene* s, const op_case* c)
{
    const int32_t pairs[4] = {c->a, c->b, c->c, c->d};
    sumi_plan_rope_args args = {.positions = integers(s, c->m, c->n, c->k), .axes = c->n, .theta = 256.0};
    memcpy(args.pairs, pairs, (size_t)c->n * sizeof *pairs);
    check(s, sumi_plan_rope_table(&s->plan, &args), c->bound);
}
static void build_time(scene* s, const op_case* c)
{
    bool fresh;
    float* t = block(s, 4 * (size_t)c->m, &fresh);
    for (int i = 0; fresh && i < c->m; i++) t[i] = i == 0 ? 0.0f : 1.0f - (float)i / (float)c->m;
    sumi_value times = give(s, SUMI_ELEMENT_FLOAT, c->m, 1, t, true);
    check(s,
          sumi_plan_time_embed(
              &s->plan,
              &(sumi_plan_time_args){
                  .times = times, .width = c->n, .scale = 1000.0f, .max_period = 10000.0f, .cos_first = c->a != 0}),
          c->bound);
}
static void build_finish(scene* s, const op_case* c)
{
    // a: 1 gates, else scales; 2 sixths, the row of the step as a value of its own; 4 that, as activations
    sumi_value table = c->b ? activations(s, c->m, c->n) : floats(s, c->m, c->n);
    if (c->a & 2) {
        table = sumi_plan_modulation(
            &s->plan, &(sumi_plan_modulation_args){.label = "modulation",
                                                   .table = table,
                                                   .vector_count = 6,
                                                   .adds_one = 1 << 1 | 1 << 4,
                                                   .applies_tanh = 1 << 5,
                                                   .rows = 1,
                                                   .x_row = 1,
                                                   .per_step = true,
                                                   .element = c->a & 4 ? SUMI_ELEMENT_ACTIVATION : SUMI_ELEMENT_FLOAT});
    } else {
        sumi_plan_finish_modulation(&s->plan, table, c->a != 0);
    }
    check(s, table, c->bound);
}
static const op_case s_norms[] = {
    {"rms 5x3", build_norm, 5, 3, .bound = STORED},
    {"rms 33x21, scale, shift, offset", build_norm, 33, 21, .a = 4 | 8 | 16, .counter = 2, .bound = STORED},
    {"rms 9x100, no weight, scale of activations", build_norm, 9, 100, .a = 2 | 4 | 64, .counter = 5, .bound = STORED},
    {"layer 17x72, mean 50, scale and shift", build_norm, 17, 72, .a = 1 | 4 | 8 | 32, .counter = 1, .bound = STORED},
    {"layer 17x75, weight, not per step", build_norm, 17, 75, .a = 1 | 4 | 128, .counter = 4, .bound = STORED},
    {"rms 33x21, adapters", build_norm, 33, 21, .a = 4 | 8 | 16, .e = 1, .counter = 2, .bound = STORED},
    {"rms 33x64, adapters", build_norm, 33, 64, .a = 4, .e = 1, .repeat = 2, .bound = STORED},
    {"layer 17x75, adapters", build_norm, 17, 75, .a = 1 | 4 | 128, .e = 1, .counter = 4, .bound = STORED},
    {"gate add 33x24, adapters", build_gate_add, 33, 24, .a = 4, .e = 1, .counter = 1, .bound = STORED},
    {"rms 77x2560", build_norm, 77, 2560, .bound = STORED},
    {"rms 4224x3840, scale", build_norm, 4224, 3840, .a = 4, .b = 1, .counter = 3, .bound = STORED},
    {"rms 1153x3840, unaligned scale", build_norm, 1153, 3840, .a = 4, .counter = 3, .bound = STORED},
    {"layer 4096x3840, no weight, scale", build_norm, 4096, 3840, .a = 1 | 2 | 4, .b = 1, .counter = 5,
     .bound = STORED},
    {"rms 288x192, demo, scale", build_norm, 288, 192, .a = 4, .b = 1, .counter = 1, .bound = STORED},
    {"rms 3x20000", build_norm, 3, 20000, .bound = STORED},
    {"rms 33x72, three bands, scale, shift, offset", build_norm, 33, 72, .a = 4 | 8 | 16 | BANDED, .counter = 2,
     .bound = STORED},
    {"layer 34x21, three bands, table of activations", build_norm, 34, 21, .a = 1 | 4 | 64 | BANDED, .counter = 1,
     .bound = STORED},
    {"rms 4224x2304, three bands, scale", build_norm, 4224, 2304, .a = 4 | BANDED, .b = 1, .counter = 2,
     .bound = STORED},
    {"rms 40x72, in place", build_norm, 40, 72, .a = 512, .bound = STORED},
    {"layer 33x21, bias, in place", build_norm, 33, 21, .a = 1 | 512 | 1024, .bound = STORED},
    {"layer 17x72, bias, mean 50", build_norm, 17, 72, .a = 1 | 32 | 1024, .bound = STORED},
    {"layer 29x128, bias, no weight, offset", build_norm, 29, 128, .a = 1 | 2 | 16 | 1024, .bound = STORED},
    {"layer 512x1024, bias, in place", build_norm, 512, 1024, .a = 1 | 512 | 1024, .bound = STORED},
    {"rms 9x4096, bias", build_norm, 9, 4096, .a = 1024, .bound = STORED},
    {"layer 3x20000, bias", build_norm, 3, 20000, .a = 1 | 1024, .bound = STORED},
    {"silu 33x21, in place", build_norm, 33, 21, .a = 256 | 512, .bound = STORED},
    {"silu 53x8", build_norm, 53, 8, .a = 256, .bound = STORED},
    {"silu 49x96, offset", build_norm, 49, 96, .a = 16 | 256, .bound = STORED},
    {"silu 71x96, in place", build_norm, 71, 96, .a = 256 | 512, .bound = STORED},
    {"silu 1x128, no weight", build_norm, 1, 128, .a = 2 | 256, .bound = STORED},
    {"silu 37x192, in place", build_norm, 37, 192, .a = 256 | 512, .bound = STORED},
    {"silu 29x384, layer, mean 50", build_norm, 29, 384, .a = 1 | 32 | 256, .bound = STORED},
    {"silu 13x384, in place", build_norm, 13, 384, .a = 256 | 512, .bound = STORED},
    {"silu 9x520, in place", build_norm, 9, 520, .a = 256 | 512, .bound = STORED},
    {"silu 65537x96, in place", build_norm, 65537, 96, .a = 256 | 512, .bound = STORED},
    {"silu 30011x192", build_norm, 30011, 192, .a = 256, .bound = STORED},
    {"silu 16389x384", build_norm, 16389, 384, .a = 256, .bound = STORED},
    {"gate add 5x3", build_gate_add, 5, 3, .bound = STORED},
    {"gate add 33x21, gate, offset", build_gate_add, 33, 21, .a = 4 | 16, .counter = 2, .bound = STORED},
    {"gate add 33x24, gate, three times", build_gate_add, 33, 24, .a = 4, .b = 1, .repeat = 3, .counter = 1,
     .bound = CHAINED},
    {"gate add 9x100, no weight, gate of activations", build_gate_add, 9, 100, .a = 2 | 4 | 64, .counter = 5,
     .bound = STORED},
    {"gate add 4224x3840, gate", build_gate_add, 4224, 3840, .a = 4, .b = 1, .counter = 3, .bound = STORED},
    {"gate add 288x192, demo, gate", build_gate_add, 288, 192, .a = 4, .b = 1, .counter = 1, .bound = STORED},
    {"gate add 128x3840, no gate", build_gate_add, 128, 3840, .bound = STORED},
    {"gate add 3x20000", build_gate_add, 3, 20000, .a = 4, .bound = STORED},
    {"gate add 50x21, three bands, offset", build_gate_add, 50, 21, .a = 4 | 16 | BANDED, .counter = 2,
     .bound = STORED},
    {"gate add 4224x2304, three bands, three times", build_gate_add, 4224, 2304, .a = 4 | BANDED, .b = 1, .repeat = 3,
     .bound = CHAINED},
    {"gate add and norm 33x72, three bands", build_norm_pair, 33, 72, .a = 4 | 8 | 16 | BANDED, .counter = 2,
     .bound = CHAINED},
    {"gate add and norm 33x72, other bands, two kernels", build_norm_pair, 33, 72, .a = 4 | 8 | 512 | BANDED,
     .counter = 2, .bound = CHAINED},
    {"gate add and norm 4224x2304, three bands", build_norm_pair, 4224, 2304, .a = 4 | BANDED, .b = 1, .counter = 1,
     .bound = CHAINED},
    {"gate add and norm, fp8 1153x2304, three bands", build_norm_pair, 1153, 2304, 256, .a = 4 | BANDED, .b = 1,
     .counter = 2, .bound = FP8},
    {"gate add and norm 5x8", build_norm_pair, 5, 8, .bound = CHAINED},
    {"gate add and norm 33x21, two kernels", build_norm_pair, 33, 21, .a = 4 | 16, .counter = 2, .bound = CHAINED},
    {"gate add and norm 33x72, offset", build_norm_pair, 33, 72, .a = 4 | 8 | 16, .counter = 2, .bound = CHAINED},
    {"gate add and norm 33x72, adapters", build_norm_pair, 33, 72, .a = 4 | 8 | 16, .e = 1, .counter = 2,
     .bound = CHAINED},
    {"gate add and norm 33x72, another row, two kernels", build_norm_pair, 33, 72, .a = 4 | 16 | 32, .b = 1,
     .counter = 2, .bound = CHAINED},
    {"gate add and norm 33x72, fewer rows, two kernels", build_norm_pair, 33, 72, .a = 4 | 16 | 128, .b = 1,
     .counter = 2, .bound = CHAINED},
    {"gate add and layer norm 70x264, tables of activations", build_norm_pair, 70, 264, .a = 1 | 4 | 8 | 16 | 64,
     .counter = 5, .bound = CHAINED},
    {"gate add and layer norm 19x1000, no weights", build_norm_pair, 19, 1000, .a = 1 | 2 | 4, .b = 1, .counter = 1,
     .bound = CHAINED},
    {"gate add and norm 41x1160, three times", build_norm_pair, 41, 1160, .a = 4 | 8, .b = 1, .repeat = 3, .counter = 1,
     .bound = 2 * CHAINED},
    {"gate add and layer norm 33x72, bias", build_norm_pair, 33, 72, .a = 1 | 4 | 256, .counter = 2, .bound = CHAINED},
    {"gate add and layer norm 70x1024, bias", build_norm_pair, 70, 1024, .a = 1 | 256, .bound = CHAINED},
    {"gate add and layer norm, fp8 77x144, bias", build_norm_pair, 77, 144, 256, .a = 1 | 4 | 256, .b = 1, .counter = 3,
     .bound = FP8},
    {"gate add and norm 9x4104, two kernels", build_norm_pair, 9, 4104, .a = 4, .b = 1, .bound = CHAINED},
    {"gate add and norm 288x192, demo", build_norm_pair, 288, 192, .a = 4, .b = 1, .counter = 1, .bound = CHAINED},
    {"gate add and norm 4224x3840", build_norm_pair, 4224, 3840, .a = 4, .b = 1, .counter = 3, .bound = CHAINED},
    {"gate add and layer norm 1153x3840, offset", build_norm_pair, 1153, 3840, .a = 1 | 2 | 4 | 16, .counter = 3,
     .bound = CHAINED},
    {"gate add and norm, fp8 77x144", build_norm_pair, 77, 144, 256, .a = 4, .b = 1, .counter = 3, .bound = FP8},
    {"gate add and norm, fp8 70x272, shift", build_norm_pair, 70, 272, 256, .a = 4 | 8 | 16, .counter = 3,
     .bound = FP8},
    {"gate add and norm, fp8 33x1008", build_norm_pair, 33, 1008, 256, .a = 4, .b = 1, .counter = 3, .bound = FP8},
    {"gate add and layer norm, fp8 33x1040", build_norm_pair, 33, 1040, 256, .a = 1 | 4, .counter = 3, .bound = FP8},
    {"gate add and norm, fp8 1152x3840", build_norm_pair, 1152, 3840, 512, .a = 4, .b = 1, .counter = 3, .bound = FP8},
    {"gate add and norm, int8 1153x2304, three bands", build_norm_pair, 1153, 2304, 256, .a = 4 | 1024 | BANDED, .b = 1,
     .counter = 2, .bound = INT8},
    {"gate add and layer norm, int8 77x288, bias", build_norm_pair, 77, 288, 256, .a = 1 | 4 | 256 | 1024, .b = 1,
     .counter = 3, .bound = INT8},
    {"gate add and norm, int8 70x272, shift", build_norm_pair, 70, 272, 256, .a = 4 | 8 | 16 | 1024, .counter = 3,
     .bound = INT8},
    {"gate add and layer norm, int8 33x1040", build_norm_pair, 33, 1040, 256, .a = 1 | 4 | 1024, .counter = 3,
     .bound = INT8},
    {"gate add and norm, int8 1152x3840", build_norm_pair, 1152, 3840, 512, .a = 4 | 1024, .b = 1, .counter = 3,
     .bound = INT8},
    // widths beside those that fill the lanes of a block, and rows that a block has several of
    {"layer 4096x3072, no weight, scale and shift", build_norm, 4096, 3072, .a = 1 | 2 | 4 | 8, .b = 1, .counter = 3,
     .bound = STORED},
    {"layer 1500x768, scale and shift", build_norm, 1500, 768, .a = 1 | 4 | 8, .b = 1, .counter = 1, .bound = STORED},
    {"rms 1500x776, scale, three times", build_norm, 1500, 776, .a = 4, .counter = 2, .repeat = 3, .bound = STORED},
    {"layer 700x8192, mean 50, shift", build_norm, 700, 8192, .a = 1 | 8 | 32, .b = 1, .counter = 2, .bound = STORED},
    {"rms 900x1536, in place", build_norm, 900, 1536, .a = 512, .bound = STORED},
    {"gate add 700x8192, gate", build_gate_add, 700, 8192, .a = 4, .b = 1, .counter = 1, .bound = STORED},
    {"gate add and norm 2500x776, shift", build_norm_pair, 2500, 776, .a = 4 | 8 | 16, .counter = 2, .bound = CHAINED},
    {"gate add and norm 1500x4096", build_norm_pair, 1500, 4096, .a = 4, .b = 1, .counter = 2, .bound = CHAINED},
};
CASES(norms)
static const op_case s_rotary_and_tables[] = {
    {"qk 5 rows, 2 heads of 6", build_qk, 5, 2, 6, .bound = STORED},
    {"qk 9 rows, 4 and 2 heads of 32, halves, offset", build_qk, 9, 4, 32, 1 | 16, 2, .bound = STORED},
    {"qk 9 rows, 3 heads of 20, interleaved, offset", build_qk, 9, 3, 20, 16, .bound = STORED},
    {"qk 9 rows, 4 and 2 heads of 32, adapters", build_qk, 9, 4, 32, 1 | 16, 2, .e = 1, .bound = STORED},
    {"qk 9 rows, 3 heads of 20, adapters of q", build_qk, 9, 3, 20, 8 | 16, .e = 1, .bound = STORED},
    {"qk 33 rows, 3 heads of 64", build_qk, 33, 3, 64, .bound = STORED},
    {"qk 33 rows, 3 heads of 64, halves", build_qk, 33, 3, 64, 1, .bound = STORED},
    {"qk 33 rows, 2 heads of 256", build_qk, 33, 2, 256, .bound = STORED},
    {"qk 33 rows, 4 and 1 heads of 256, halves", build_qk, 33, 4, 256, 1, 1, .bound = STORED},
    {"qk 7 rows, 3 heads of 17, norms alone", build_qk, 7, 3, 17, 2, .bound = STORED},
    {"qk 7 rows, 3 heads of 16, rotary alone", build_qk, 7, 3, 16, 4, .bound = STORED},
    {"qk 7 rows, 3 heads of 96, halves, q's norm alone", build_qk, 7, 3, 96, 1 | 8, .bound = STORED},
    {"qk 70 rows, 2 heads of 80, halves, rotary alone", build_qk, 70, 2, 80, 1 | 4, .bound = STORED},
    {"qk 5476 rows, 16 heads of 80, halves, rotary alone", build_qk, 5476, 16, 80, 1 | 4, .bound = STORED},
    {"qk 77 rows, 32 and 8 heads of 128, halves", build_qk, 77, 32, 128, 1, 8, .bound = STORED},
    {"qk 4224 rows, 30 heads of 128", build_qk, 4224, 30, 128, .bound = STORED},
    {"qk 128 rows, 30 heads of 128, f32 norms", build_qk, 128, 30, 128, .dtype = SUMI_DTYPE_F32, .bound = STORED},
    {"rope table, 9 rows", build_rope, 9, 3, 500, 3, 2, 4, .bound = 2e-6},
    {"rope table, 4224 rows", build_rope, 4224, 3, 1200, 16, 24, 24, .bound = 2e-6},
    {"rope table, text", build_rope, 512, 1, 512, 64, .bound = 2e-6},
    {"rope table, vision", build_rope, 5476, 2, 74, 20, 20, .bound = 2e-6},
    {"rope table, four axes", build_rope, 7, 4, 40, 1, 1, 2, 3, .bound = 2e-6},
    {"time embedding, 8 x 256", build_time, 8, 256, .a = 1, .bound = FLOATING},
    {"time embedding, sine first, 100 x 256", build_time, 100, 256, .bound = FLOATING},
    {"time embedding, 3 x 24", build_time, 3, 24, .a = 1, .bound = FLOATING},
    {"modulation, gates, 8 x 15360", build_finish, 8, 15360, .a = 1, .bound = FLOATING},
    {"modulation, gates, 5 x 28", build_finish, 5, 28, .a = 1, .bound = FLOATING},
    {"modulation, scales, 5 x 27", build_finish, 5, 27, .bound = FLOATING},
    {"modulation of activations", build_finish, 5, 28, .a = 1, .b = 1, .bound = STORED},
    {"modulation, a step's row, 5 x 30", build_finish, 5, 30, .a = 2, .counter = 3, .bound = FLOATING},
    {"modulation, a step's row of activations, 50 x 18432", build_finish, 50, 18432, .a = 2, .b = 1, .counter = 48,
     .bound = FLOATING},
    {"modulation, a step's row as activations, 7 x 3078", build_finish, 7, 3078, .a = 2 | 4, .b = 1, .counter = 2,
     .bound = STORED},
    // several turns to a row, several rows to a block
    {"qk 4096 rows, 24 heads of 128, offset", build_qk, 4096, 24, 128, 16, .bound = STORED},
    {"qk 4352 rows, 24 and 8 heads of 96", build_qk, 4352, 24, 96, .b = 8, .bound = STORED},
    {"qk 4099 rows, 5 and 2 heads of 64, halves, offset", build_qk, 4099, 5, 64, 1 | 16, 2, .bound = STORED},
    {"qk 3000 rows, 9 heads of 32, no rotary", build_qk, 3000, 9, 32, 2, .bound = STORED},
};
CASES(rotary_and_tables)

// ---- ATTENTION ------------------------------------------------------------------------------------------------------
enum { CAUSAL = 1, SHARP = 2, TWO_SPANS = 4, FIRST_SPAN = 8, THREE = 16, LATER = 32 };

// m queries, n heads, k dim; a: flags; b: key heads; c: window; d: rows of the second span
static void build_attention(scene* s, const op_case* c)
{
    int q = c->n, kv = c->b > 0 ? c->b : q, dim = c->k, m = c->m, rows = m + 3;
    sumi_sequence list[3] = {{{{2, m}, {0, 0}}, 1, 1, 0}};
    int count = 1;
    sumi_span read[3] = {{2, m}};
    int read_count = 1;
    if (c->a & (TWO_SPANS | FIRST_SPAN)) { // image rows, something else, caption rows
        rows = m + c->d + 7;
        list[0] = (sumi_sequence){{{3, m}, {m + 5, c->d}}, 2, c->a & FIRST_SPAN ? 1 : 2, 0};
        read[0] = (sumi_span){3, m};
        if (!(c->a & FIRST_SPAN)) read[read_count++] = (sumi_span){m + 5, c->d};
    }
    if (c->a & THREE) { // a batch: pictures, then captions of different lengths
        int tail = 3 * m;
        rows = tail + 3 * c->d + 3;
        count = read_count = 3;
        for (int i = 0; i < 3; i++) {
            list[i] = (sumi_sequence){{{i * m, m}, {tail, c->d + i}}, 2, i == 1 ? 1 : 2, 0};
            read[i] = (sumi_span){i * m, m};
            tail += c->d + i;
        }
    }
    if (c->a & LATER) { // two that begin with the first one's rows, but for the last of these
        rows = m + 2 * c->d + 5;
        count = 3;
        read[0] = (sumi_span){2, m + 2 * c->d};
        list[1] = (sumi_sequence){{{2, m - 1}, {m + 2, c->d}}, 2, 1, 1};
        list[2] = (sumi_sequence){{{2, m - 1}, {m + 2 + c->d, c->d}}, 2, 1, 1};
    }
    sumi_value qkv = activations_of(s, rows, (q + 2 * kv) * dim, c->a & SHARP ? 2.5f : 1.0f, 0.0f);
    sumi_attention attention = {q, kv, dim, 1.0f / sqrtf((float)dim), (c->a & CAUSAL) != 0, c->c, list, count};
    sumi_value y = sumi_plan_attention(&s->plan, "attention", qkv, &attention);
    for (int i = 0; i < read_count; i++) check_rows(s, y, c->bound, read[i].begin, read[i].count);
}
// m rows in windows of c rows, the last of what is left, n heads, k dim: as the vision tower has them
static void build_windows(scene* s, const op_case* c)
{
    sumi_sequence list[128];
    int count = 0;
    for (int begin = 0; begin < c->m && count < 128; begin += c->c, count++)
        list[count] = (sumi_sequence){{{begin, c->m - begin < c->c ? c->m - begin : c->c}, {0, 0}}, 1, 1, 0};
    sumi_value qkv = activations(s, c->m, 3 * c->n * c->k);
    sumi_attention attention = {.q_heads = c->n,
                                .kv_heads = c->n,
                                .dim = c->k,
                                .scale = 1.0f / sqrtf((float)c->k),
                                .sequences = list,
                                .sequence_count = count};
    check(s, sumi_plan_attention(&s->plan, "attention", qkv, &attention), c->bound);
}
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
    {"attention 70 queries, 2 heads of 80", build_attention, 70, 2, 80, .bound = CHAINED},
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
    {"attention, text 8 of 4 heads of 256, 256", build_attention, 256, 8, 256, CAUSAL, 4, .bound = CHAINED},
    {"attention, text 8 of 4 heads of 256, 512", build_attention, 512, 8, 256, CAUSAL, 4, .bound = CHAINED},
    {"attention, a shared beginning, text 8 of 4 heads of 256, 480", build_attention, 480, 8, 256, CAUSAL | LATER, 4,
     .d = 30, .bound = CHAINED},
};
CASES(attention)

// ---- Latents --------------------------------------------------------------------------------------------------------
static void build_patches(scene* s, const op_case* c)
{
    // m x n latents of k channels; a: 1 back, else there; 2 by channel
    const int tokens = c->m / 2 * (c->n / 2);
    const int32_t items[3] = {1, 0, 1}, begins[3] = {2 * tokens + 3, 0, tokens + 1};
    sumi_patch_layout layout = {c->m, c->n, c->k, 3, items, begins, (c->a & 2) != 0};
    if ((c->a & 1) == 0) {
        sumi_value rows = activations(s, 3 * tokens + 5, 4 * c->k);
        sumi_plan_patchify(&s->plan, floats(s, 2 * c->k, c->m * c->n), &layout, rows);
        check(s, rows, EXACT);
    } else {
        check(s, sumi_plan_unpatchify(&s->plan, activations(s, 3 * tokens + 5, 4 * c->k), &layout, -1.0f), EXACT);
    }
}
static void build_noise(scene* s, const op_case* c)
{
    sumi_value x = sumi_plan_value(&s->plan, "x", SUMI_ELEMENT_FLOAT, c->m, c->n);
    sumi_plan_add_noise(&s->plan, floats(s, c->m, c->n), floats(s, c->m, c->n),
                        step_row(s, SUMI_ELEMENT_FLOAT, 1, c->a != 0), x);
    check(s, x, c->bound);
}
static void build_guide(scene* s, const op_case* c)
{
    // m items of n channels x k; a: 1 a limit, 2 the scale is 0, 4 tokens of b x b in rows of c are rescaled
    bool fresh;
    float* table = block(s, 4 * 6 * 14, &fresh);
    for (int i = 0; fresh && i < 6 * 14; i++) table[i] = c->a & 2 ? 0.0f : 1.5f + 0.25f * (float)(i / 14);
    sumi_step_row row = {give(s, SUMI_ELEMENT_FLOAT, 6, 14, table, true), 10, true};
    int32_t positive[8], negative[8];
    for (int i = 0; i < c->m; i++) positive[i] = 2 * i, negative[i] = i == 1 ? -1 : 2 * i + 1;
    check(s,
          sumi_plan_guide(&s->plan, &(sumi_plan_guide_args){.predictions = floats(s, 2 * c->m * c->n, c->k),
                                                            .item_count = c->m,
                                                            .channels = c->n,
                                                            .positive = positive,
                                                            .negative = negative,
                                                            .scale = row,
                                                            .rule = c->a & 4 ? SUMI_GUIDANCE_NORM_RESCALE
                                                                  : c->a & 1 ? SUMI_GUIDANCE_NORM_LIMIT
                                                                             : SUMI_GUIDANCE_PLAIN,
                                                            .norm_limit = c->a & 1 ? 0.9f : 0.0f,
                                                            .width = c->c,
                                                            .patch_size = c->b}),
          c->bound);
}
static void build_solve(scene* s, const op_case* c)
{
    // m items of n channels x k; a: 1 a mask, 2 keeps y, 4 unused states hold NaN, 8 no y and h
    bool fresh;
    float* table = block(s, 4 * 6 * 14, &fresh);
    for (int i = 0; fresh && i < 6 * 14; i++) table[i] = rounded(normal(s->store));
    for (int r = 0; fresh && r < 6; r++) {
        float* row = table + r * 14 + 2;
        row[7] = c->a & 2 ? 1.0f : 0.0f;
        row[9] = c->a & 1 ? 0.25f : -1.0f;
        if (c->a & (4 | 8)) row[0] = 1.0f, row[1] = row[3] = row[4] = row[5] = row[6] = 0.0f;
    }
    sumi_step_row row = {give(s, SUMI_ELEMENT_FLOAT, 6, 14, table, true), 2, true};
    int rows = c->m * c->n;
    float* nan = block(s, 4 * (size_t)rows * (size_t)c->k, &fresh);
    for (size_t i = 0; fresh && i < (size_t)rows * (size_t)c->k; i++)
        nan[i] = c->a & 4 ? NAN : rounded(normal(s->store));
    sumi_plan_solve_args solve = {.x = floats(s, rows, c->k), .v = floats(s, rows, c->k), .row = row, .channels = c->n};
    if (!(c->a & 8)) {
        solve.y = give(s, SUMI_ELEMENT_FLOAT, rows, c->k, nan, true);
        solve.h = give(s, SUMI_ELEMENT_FLOAT, rows, c->k, nan, true);
    }
    if (c->a & 1) {
        solve.noise = floats(s, rows, c->k);
        solve.clean = floats(s, rows, c->k);
        solve.mask = floats(s, c->m, c->k);
    }
    sumi_plan_solve(&s->plan, &solve);
    check(s, solve.x, c->bound);
    // Runners hand out what ops name as their output; the other two states are looked at in copies.
    sumi_value states[] = {solve.h, (c->a & 2) && (c->a & 4) ? SUMI_NO_VALUE : solve.y};
    for (int i = 0; i < 2; i++) {
        if (states[i].id == 0) continue;
        sumi_value copy = sumi_plan_value(&s->plan, "copy", SUMI_ELEMENT_FLOAT, rows, c->k);
        sumi_plan_copy_rows(&s->plan, &(sumi_plan_copy_args){.x = states[i], .y = copy, .rows = rows});
        check(s, copy, c->bound);
    }
}
static void build_preview(scene* s, const op_case* c)
{
    const float bias[3] = {0.1f, -0.2f, 0.3f};
    float* factors = numbers(s, 3 * (size_t)c->n, 0.2f, 0.0f);
    sumi_value rgb = sumi_plan_value(&s->plan, "rgb", SUMI_ELEMENT_FLOAT, 3 * c->m, c->k);
    sumi_plan_preview(&s->plan, &(sumi_plan_preview_args){.x = floats(s, c->m * c->n, c->k),
                                                          .v = floats(s, c->m * c->n, c->k),
                                                          .sigma = step_row(s, SUMI_ELEMENT_FLOAT, 1, true),
                                                          .channels = c->n,
                                                          .factors = factors,
                                                          .bias = bias,
                                                          .rgb = rgb});
    check(s, rgb, c->bound);
}
// Of up to 16 channels: a pair for each with d, else one for all.
static sumi_latent_statistics statistics_of(const op_case* c, int channels)
{
    static const float scale[16] = {0.3611f, 2.8184f, -1.4541f, 0.375f, 1.2196f, 0.7f,     2.6052f, 1.0f,
                                    3.2687f, 0.4646f, 2.8652f,  0.642f, 0.6104f, -0.8887f, 0.354f,  1.916f},
                       shift[16] = {0.1159f, -0.7571f, -0.7089f, 0.0f,    -0.1745f, 0.9653f,  -0.1517f, 1.5508f,
                                    0.4134f, -0.0715f, 0.5517f,  -0.363f, -0.1922f, -0.9497f, 0.2503f,  -0.2921f};
    return (sumi_latent_statistics){scale, shift, c->d != 0 ? channels : 1};
}
static void build_posterior(scene* s, const op_case* c)
{
    sumi_value latents = sumi_plan_value(&s->plan, "latents", SUMI_ELEMENT_FLOAT, c->n, c->m);
    sumi_value moments = activations_of(s, c->m, 2 * c->n, 2.0f, 0.0f);
    sumi_plan_posterior(&s->plan, &(sumi_plan_posterior_args){.moments = moments,
                                                              .eps = c->a ? floats(s, c->n, c->m) : SUMI_NO_VALUE,
                                                              .channels = c->n,
                                                              .statistics = statistics_of(c, c->n),
                                                              .latents = latents});
    check(s, latents, c->bound);
}
static void build_latent_in(scene* s, const op_case* c)
{
    // m x n latents of k channels, three items; a: per item; b: a tile
    sumi_tile tile = c->b ? (sumi_tile){1, 2, c->m - 2, c->n - 3} : (sumi_tile){0, 0, c->m, c->n};
    check(s,
          sumi_plan_latent_in(&s->plan, &(sumi_plan_latent_args){.latents = floats(s, 3 * c->k, c->m * c->n),
                                                                 .channels = c->k,
                                                                 .height = c->m,
                                                                 .width = c->n,
                                                                 .tile = tile,
                                                                 .statistics = statistics_of(c, c->k),
                                                                 .per_item = c->a != 0}),
          c->bound);
}
static const op_case s_latents[] = {
    {"patchify 4x6x5", build_patches, 4, 6, 5, .bound = EXACT},
    {"patchify 128x128x16", build_patches, 128, 128, 16, .bound = EXACT},
    {"patchify 4x6x5, by channel", build_patches, 4, 6, 5, 2, .bound = EXACT},
    {"patchify 128x128x16, by channel", build_patches, 128, 128, 16, 2, .bound = EXACT},
    {"unpatchify 4x6x5, by channel", build_patches, 4, 6, 5, 3, .bound = EXACT},
    {"unpatchify 128x96x16, by channel", build_patches, 128, 96, 16, 3, .bound = EXACT},
    {"unpatchify 4x6x5", build_patches, 4, 6, 5, 1, .bound = EXACT},
    {"unpatchify 128x96x16", build_patches, 128, 96, 16, 1, .bound = EXACT},
    {"add noise 8x35", build_noise, 8, 35, .a = 1, .counter = 2, .bound = FLOATING},
    {"add noise 64x16384", build_noise, 64, 16384, .counter = 3, .bound = FLOATING},
    {"guide, 2 items of 4 x 35", build_guide, 2, 4, 35, .counter = 1, .bound = FLOATING},
    {"guide, 3 items of 5 x 33, limited", build_guide, 3, 5, 33, 1, .counter = 2, .bound = FLOATING},
    {"guide, scale 0", build_guide, 2, 4, 35, 2, .bound = EXACT},
    {"guide, 4 items of 16 x 16384, limited", build_guide, 4, 16, 16384, 1, .counter = 5, .bound = FLOATING},
    {"guide, 2 items of 4 x 48, rescaled", build_guide, 2, 4, 48, 4, 2, 8, .counter = 1, .bound = FLOATING},
    {"guide, 3 items of 5 x 54, rescaled by 3 x 3", build_guide, 3, 5, 54, 4, 3, 9, .counter = 2, .bound = FLOATING},
    {"guide, rescaled, scale 0", build_guide, 2, 4, 48, 2 | 4, 2, 8, .bound = EXACT},
    {"guide, 4 items of 16 x 16384, rescaled", build_guide, 4, 16, 16384, 4, 2, 128, .counter = 5, .bound = FLOATING},
    {"solve, 2 items of 4 x 35", build_solve, 2, 4, 35, .counter = 1, .bound = FLOATING},
    {"solve, keeps y, mask", build_solve, 2, 4, 35, 1 | 2, .counter = 2, .bound = FLOATING},
    {"solve, three times", build_solve, 2, 3, 17, 1, .repeat = 3, .counter = 1, .bound = 4 * FLOATING},
    {"solve, unused states hold NaN", build_solve, 2, 4, 35, 4, .counter = 1, .bound = FLOATING},
    {"solve, Euler, 4 items of 16 x 16384", build_solve, 4, 16, 16384, 8, .counter = 4, .bound = FLOATING},
    {"preview, 2 items of 4 x 35", build_preview, 2, 4, 35, .counter = 1, .bound = FLOATING},
    {"preview, 1 item of 16 x 16384", build_preview, 1, 16, 16384, .counter = 2, .bound = FLOATING},
    {"posterior 35 x 4", build_posterior, 35, 4, .bound = FLOATING},
    {"posterior 4096 x 16, sampled", build_posterior, 4096, 16, .a = 1, .bound = FLOATING},
    {"posterior 1023 x 16, sampled, by channel", build_posterior, 1023, 16, .a = 1, .d = 1, .bound = FLOATING},
    {"latents in, 5x7x4, tile, item 2", build_latent_in, 5, 7, 4, 1, 1, .counter = 2, .bound = STORED},
    {"latents in, 128x128x16", build_latent_in, 128, 128, 16, .bound = STORED},
    {"latents in, 5x7x3, by channel", build_latent_in, 5, 7, 3, .d = 1, .bound = STORED},
    {"latents in, 104x72x16, tile, item 1, by channel", build_latent_in, 104, 72, 16, 1, 1, .d = 1, .counter = 1,
     .bound = STORED},
};
CASES(latents)

// ---- Pictures -------------------------------------------------------------------------------------------------------
enum { DOWN = 1, UP = 2, PLUS = 4, UNBIASED = 8, SLICED = 16 };

// m x n pixels, k -> a channels; b: kernel; c: flags
// The last of three slices in time of every kernel.
static sumi_weight* sliced(sumi_weight* w)
{
    sumi_stacked_tensor* part = &w->tensors[0];
    part->chunk = 9;
    part->chunk_stride = 27;
    part->data = (const unsigned char*)part->data + sumi_dtype_bytes(part->dtype, 18);
    w->cols /= 3;
    return w;
}
static void build_conv(scene* s, const op_case* c)
{
    int out_height = c->c & UP   ? 2 * c->m
                   : c->c & DOWN ? c->m / 2
                                 : c->m,
        out_width = c->c & UP   ? 2 * c->n
                  : c->c & DOWN ? c->n / 2
                                : c->n;
    sumi_op_conv conv = {.height = c->m, .width = c->n, .kernel = c->b, .stride = c->c & DOWN ? 2 : 1};
    conv.upsamples = (c->c & UP) != 0;
    conv.pads_end = (c->c & DOWN) != 0;
    sumi_weight* w = c->c & SLICED ? sliced(matrix(s, c->a, 3 * c->k * c->b * c->b, c->dtype))
                                   : matrix(s, c->a, c->k * c->b * c->b, c->dtype);
    sumi_value x = activations(s, c->m * c->n, c->k),
               residual = c->c & PLUS ? activations(s, out_height * out_width, c->a) : SUMI_NO_VALUE;
    check(s,
          sumi_plan_conv(&s->plan, &(sumi_plan_conv_args){.label = "conv",
                                                          .x = x,
                                                          .weight = w,
                                                          .bias = c->c & UNBIASED ? NULL : bias_of(s, c->a, 0),
                                                          .shape = conv,
                                                          .residual = residual}),
          c->bound);
}
// Weights of an upsampling convolution may be folded, sums of up to four of them rounded once: as another rounding of
// all weights.
static const op_case s_conv[] = {
    {"conv 1x1 pixel, 3 -> 5", build_conv, 1, 1, 3, 5, 3, .bound = STORED},
    {"conv 5x7, 3 -> 8", build_conv, 5, 7, 3, 8, 3, .bound = STORED},
    {"conv 9x6, 13 -> 11", build_conv, 9, 6, 13, 11, 3, PLUS, .bound = STORED},
    {"conv 16x16, 16 -> 64", build_conv, 16, 16, 16, 64, 3, .bound = STORED},
    {"conv 20x12, 64 -> 3", build_conv, 20, 12, 64, 3, 3, .bound = STORED},
    {"conv 17x19, 32 -> 32, residual", build_conv, 17, 19, 32, 32, 3, PLUS, .bound = STORED},
    {"conv 17x19, 32 -> 32, no bias, f32", build_conv, 17, 19, 32, 32, 3, UNBIASED, .dtype = SUMI_DTYPE_F32,
     .bound = STORED},
    {"conv 1x1, 9x5, 24 -> 40", build_conv, 9, 5, 24, 40, 1, .bound = STORED},
    {"conv 1x1, 9x5, 7 -> 9, residual", build_conv, 9, 5, 7, 9, 1, PLUS, .bound = STORED},
    {"conv down, 8x10, 16 -> 16", build_conv, 8, 10, 16, 16, 3, DOWN, .bound = STORED},
    {"conv down, 9x7, 5 -> 6", build_conv, 9, 7, 5, 6, 3, DOWN, .bound = STORED},
    {"conv up, 5x6, 16 -> 16", build_conv, 5, 6, 16, 16, 3, UP, .bound = CHAINED},
    {"conv up, 5x7, 6 -> 10", build_conv, 5, 7, 6, 10, 3, UP, .bound = CHAINED},
    {"conv up, 24x40, 64 -> 64", build_conv, 24, 40, 64, 64, 3, UP, .bound = CHAINED},
    {"conv up, 1x1 pixel, 8 -> 8", build_conv, 1, 1, 8, 8, 3, UP, .bound = CHAINED},
    {"conv 9x7, 12 -> 10, a slice in time", build_conv, 9, 7, 12, 10, 3, SLICED, .bound = STORED},
    {"conv 17x19, 32 -> 32, a slice in time, f32", build_conv, 17, 19, 32, 32, 3, SLICED, .dtype = SUMI_DTYPE_F32,
     .bound = STORED},
    {"conv up, 5x6, 16 -> 8, a slice in time, f16", build_conv, 5, 6, 16, 8, 3, UP | SLICED, .dtype = SUMI_DTYPE_F16,
     .bound = CHAINED},
    {"conv 12x20, 40 -> 24, a slice in time, e4m3", build_conv, 12, 20, 40, 24, 3, SLICED, .dtype = SUMI_DTYPE_F8_E4M3,
     .bound = STORED},
    {"conv 256x256, 96 -> 96, a slice in time", build_conv, 256, 256, 96, 96, 3, PLUS | SLICED, .bound = STORED},
    {"conv 128x128, 192 -> 192, a slice in time", build_conv, 128, 128, 192, 192, 3, PLUS | SLICED, .bound = STORED},
    {"conv 64x64, 384 -> 384, a slice in time", build_conv, 64, 64, 384, 384, 3, PLUS | SLICED, .bound = STORED},
    {"conv 256x256, 96 -> 3, a slice in time", build_conv, 256, 256, 96, 3, 3, SLICED, .bound = STORED},
    {"conv up, 128x128, 192 -> 96", build_conv, 128, 128, 192, 96, 3, UP, .bound = CHAINED},
    {"conv down, 256x256, 96 -> 96", build_conv, 256, 256, 96, 96, 3, DOWN, .bound = STORED},
    {"conv 128x128, 16 -> 512", build_conv, 128, 128, 16, 512, 3, .bound = STORED},
    {"conv 128x128, 512 -> 512, residual", build_conv, 128, 128, 512, 512, 3, PLUS, .bound = STORED},
    {"conv 96x64, 512 -> 512", build_conv, 96, 64, 512, 512, 3, .bound = STORED},
    {"conv 37x53, 512 -> 256", build_conv, 37, 53, 512, 256, 3, .bound = STORED},
    {"conv 256x256, 256 -> 256", build_conv, 256, 256, 256, 256, 3, PLUS, .bound = STORED},
    {"conv 512x512, 128 -> 128", build_conv, 512, 512, 128, 128, 3, .bound = STORED},
    {"conv 512x512, 128 -> 3", build_conv, 512, 512, 128, 3, 3, .bound = STORED},
    {"conv up, 64x64, 512 -> 512", build_conv, 64, 64, 512, 512, 3, UP, .bound = CHAINED},
    {"conv up, 128x128, 256 -> 256", build_conv, 128, 128, 256, 256, 3, UP, .bound = CHAINED},
    {"conv down, 256x256, 128 -> 128", build_conv, 256, 256, 128, 128, 3, DOWN, .bound = STORED},
    {"conv 256x256, 3 -> 128", build_conv, 256, 256, 3, 128, 3, .bound = STORED},
};
CASES(conv)

// A picture of m x n pixels, k -> a channels, whole and by strips of b rows of the input, the last ones first; c:
// flags. Output and residual of the strips are every second run of a columns of a wider value, the residual is what the
// result replaces.
static void build_strips(scene* s, const op_case* c)
{
    int scale = c->c & UP ? 2 : 1, width = scale * c->n, pixels = scale * c->m * width;
    bool adds = (c->c & PLUS) != 0;
    sumi_weight *w = matrix(s, c->a, c->k * 9, c->dtype), *bias = bias_of(s, c->a, 0);
    sumi_value x = activations(s, c->m * c->n, c->k), residual = adds ? activations(s, pixels, c->a) : SUMI_NO_VALUE;
    sumi_op_conv conv = {.height = c->m, .width = c->n, .upsamples = scale == 2};
    sumi_value whole = sumi_plan_conv(
        &s->plan, &(sumi_plan_conv_args){
                      .label = "conv", .x = x, .weight = w, .bias = bias, .shape = conv, .residual = residual});
    sumi_value from = sumi_plan_value(&s->plan, "x", SUMI_ELEMENT_ACTIVATION, c->m * c->n, c->k);
    sumi_plan_copy_rows(&s->plan, &(sumi_plan_copy_args){.x = x, .y = from}); // what is bound has no views
    sumi_weight *one = matrix(s, c->a, c->a, c->dtype), *norm = norm_weight(s, c->a, c->dtype),
                *norm_bias = bias_of(s, c->a, c->dtype);
    sumi_value wide = sumi_plan_value(&s->plan, "wide", SUMI_ELEMENT_ACTIVATION, pixels, 2 * c->a);
    sumi_value start = adds ? residual : whole;
    sumi_plan_linear(&s->plan, &(sumi_plan_linear_args){
                                   .label = "left", .x = start, .weight = one, .y = wide, .writes_some_columns = true});
    sumi_plan_linear(
        &s->plan,
        &(sumi_plan_linear_args){
            .label = "right", .x = start, .weight = one, .y = wide, .writes_some_columns = true, .y_column = c->a});
    sumi_value right = sumi_plan_view(&s->plan, "right", wide, (sumi_span){0, pixels}, (sumi_span){c->a, c->a});
    for (int end = c->m; end > 0;) {
        int row = (end - 1) / c->b * c->b, above = row > 0, below = end < c->m, rows = above + end - row + below,
            first = scale * row * width;
        sumi_op_conv strip = {.height = rows, .width = c->n, .upsamples = scale == 2, .above = above, .below = below};
        const sumi_span read_rows = {(row - above) * c->n, rows * c->n};
        const sumi_span made_rows = {first, scale * (end - row) * width};
        sumi_value y = sumi_plan_view(&s->plan, "strip", right, made_rows, (sumi_span){0, c->a});
        sumi_plan_conv(&s->plan, &(sumi_plan_conv_args){
                                     .label = "conv",
                                     .x = sumi_plan_view(&s->plan, "strip", from, read_rows, (sumi_span){0, c->k}),
                                     .weight = w,
                                     .bias = bias,
                                     .shape = strip,
                                     .residual = adds ? y : SUMI_NO_VALUE,
                                     .y = y});
        end = row;
    }
    // groups of channels, as the decoder's: the sums of what the strips made
    sumi_plan_group_norm(&s->plan,
                         &(sumi_plan_group_norm_args){.label = "norm",
                                                      .x = right,
                                                      .sums = sumi_plan_group_sums(&s->plan, "norm", right, 32),
                                                      .weight = norm,
                                                      .bias = norm_bias,
                                                      .groups = 32,
                                                      .eps = 1e-6f,
                                                      .silu = true,
                                                      .y = right});
    check(s, wide, adds ? 2 * c->bound : c->bound);
}
static const op_case s_strips[] = {
    {"strips 37x20, 32 -> 32", build_strips, 37, 20, 32, 32, 16, .bound = CHAINED},
    {"strips 40x10, 32 -> 64, residual", build_strips, 40, 10, 32, 64, 16, PLUS, .bound = CHAINED},
    {"strips up, 20x12, 64 -> 32", build_strips, 20, 12, 64, 32, 8, UP, .bound = 2 * CHAINED},
    {"strips 64x48, 256 -> 128", build_strips, 64, 48, 256, 128, 16, .bound = CHAINED},
    {"strips 72x48, 128 -> 128, residual", build_strips, 72, 48, 128, 128, 24, PLUS, .bound = CHAINED},
    {"strips up, 40x32, 256 -> 256", build_strips, 40, 32, 256, 256, 8, UP, .bound = 2 * CHAINED},
};
CASES(strips)

// m rows, n channels, k groups; a: SiLU; b: a mean of 30
static void build_group(scene* s, const op_case* c)
{
    sumi_value x = activations_of(s, c->m, c->n, 1.0f, c->b ? 30.0f : 0.0f);
    sumi_weight *w = norm_weight(s, c->n, c->dtype), *b = bias_of(s, c->n, c->dtype);
    check(s,
          sumi_plan_group_norm(
              &s->plan,
              &(sumi_plan_group_norm_args){
                  .label = "norm", .x = x, .weight = w, .bias = b, .groups = c->k, .eps = 1e-6f, .silu = c->a != 0}),
          c->bound);
}
static const op_case s_group_norm[] = {
    {"group norm 1 x 4, 2 groups", build_group, 1, 4, 2, .bound = STORED},
    {"group norm 35 x 12, 3 groups, SiLU", build_group, 35, 12, 3, 1, .bound = STORED},
    {"group norm 77 x 21, 7 groups", build_group, 77, 21, 7, .bound = STORED},
    {"group norm 300 x 64, 32 groups, mean 30", build_group, 300, 64, 32, 0, 1, .bound = STORED},
    {"group norm 5000 x 32, 8 groups, SiLU, mean 30", build_group, 5000, 32, 8, 1, 1, .bound = STORED},
    {"group norm 16384 x 512, 32 groups, SiLU", build_group, 16384, 512, 32, 1, .bound = STORED},
    {"group norm 16384 x 512, 32 groups, mean 30", build_group, 16384, 512, 32, 0, 1, .bound = STORED},
    {"group norm 65536 x 256, 32 groups, SiLU", build_group, 65536, 256, 32, 1, .bound = STORED},
    {"group norm 262144 x 128, 32 groups, SiLU", build_group, 262144, 128, 32, 1, .bound = STORED},
};
CASES(group_norm)

static void build_blend(scene* s, const op_case* c)
{
    // m x n tile of k channels; a: rows above; b: columns left; c: extent
    sumi_value tile = activations(s, c->m * c->n, c->k),
               above = c->a ? activations(s, c->a * c->n, c->k) : SUMI_NO_VALUE,
               left = c->b ? activations(s, c->m * c->b, c->k) : SUMI_NO_VALUE;
    sumi_plan_tile_blend(&s->plan, &(sumi_plan_blend_args){.tile = tile,
                                                           .height = c->m,
                                                           .width = c->n,
                                                           .above = above,
                                                           .above_height = c->a,
                                                           .left = left,
                                                           .left_width = c->b,
                                                           .extent = c->c});
    check(s, tile, c->bound); // the corner is blended, and may be stored, twice
}
static void build_place(scene* s, const op_case* c)
{
    // m x n kept of an m x (n + 3) tile of k channels into the second of two pictures
    sumi_value picture = activations(s, 2 * (c->m + 5) * (c->n + 4), c->k);
    sumi_plan_tile_place(&s->plan, &(sumi_plan_place_args){.tile = activations(s, c->m * (c->n + 3), c->k),
                                                           .tile_width = c->n + 3,
                                                           .picture = picture,
                                                           .picture_height = c->m + 5,
                                                           .picture_width = c->n + 4,
                                                           .copied = (sumi_tile){4, 2, c->m, c->n},
                                                           .per_item = c->a != 0});
    check(s, picture, EXACT);
}
static void build_pixels_in(scene* s, const op_case* c)
{
    sumi_value bytes = bytes_of(s, (c->m + 3) * (c->n + 2), 3);
    check(s, sumi_plan_pixels_in(&s->plan, bytes, c->n + 2, (sumi_tile){2, 1, c->m, c->n}), c->bound);
}
// m x n cells of a x a patches of k x k pixels, b frames; the cells from the last to the first
static void build_patches_in(scene* s, const op_case* c)
{
    bool fresh;
    const int cells = c->m * c->n, side = c->k * c->a;
    int32_t* order = block(s, (size_t)cells * sizeof *order, &fresh);
    for (int i = 0; fresh && i < cells; i++) order[i] = cells - 1 - i;
    sumi_op_patches_in layout = {.height = c->m * side,
                                 .width = c->n * side,
                                 .patch = c->k,
                                 .cell = c->a,
                                 .frames = c->b,
                                 .mean = {0.48f, 0.25f, 0.41f},
                                 .deviation = {0.27f, 0.5f, 1.0f}};
    check(s,
          sumi_plan_patches_in(&s->plan, bytes_of(s, layout.height * layout.width, 3),
                               give(s, SUMI_ELEMENT_INT, cells, 1, order, true), &layout),
          c->bound);
}
static void build_pixels_out(scene* s, const op_case* c)
{
    bool fresh;
    size_t count = (size_t)c->m * 3;
    float* x = block(s, 4 * count, &fresh);
    for (size_t i = 0; fresh && i < count; i++) x[i] = rounded(0.7f * normal(s->store));
    if (fresh && c->a) x[0] = NAN, x[count / 2] = INFINITY, x[count - 1] = -INFINITY;
    int32_t* five = block(s, 4, &fresh);
    *five = 5;
    sumi_value bad = give(s, SUMI_ELEMENT_INT, 1, 1, five, true),
               bytes = sumi_plan_value(&s->plan, "bytes", SUMI_ELEMENT_BYTE, c->m, 3);
    sumi_plan_pixels_out(&s->plan, give(s, SUMI_ELEMENT_ACTIVATION, c->m, 3, x, false), bytes, bad);
    check(s, bytes, EXACT);
    check(s, bad, EXACT);
}
// m pixels, n pictures
static void build_composite(scene* s, const op_case* c)
{
    sumi_value pictures = activations(s, c->n * c->m, 3);
    bool fresh;
    uint8_t* opacity = block(s, (size_t)c->m, &fresh);
    for (int i = 0; fresh && i < c->m; i++) opacity[i] = (uint8_t)(i % 5 == 0 ? 0 : i % 5 == 1 ? 255 : i * 37);
    sumi_plan_composite(&s->plan, pictures, bytes_of(s, c->m, 3), give(s, SUMI_ELEMENT_BYTE, c->m, 1, opacity, true));
    check(s, pictures, c->bound);
}
static const op_case s_pictures[] = {
    {"blend 6x5x2, above 4, left 3", build_blend, 6, 5, 2, 4, 3, 4, .bound = CHAINED},
    {"blend 64x64x3, above 64, left 64", build_blend, 64, 64, 3, 64, 64, 16, .bound = CHAINED},
    {"blend 30x20x3, above alone", build_blend, 30, 20, 3, 30, 0, 8, .bound = CHAINED},
    {"blend 30x20x3, left alone, short", build_blend, 30, 20, 3, 0, 5, 8, .bound = CHAINED},
    {"place 3x2x2", build_place, 3, 2, 2, .counter = 1},
    {"place 3x2x2, item 1", build_place, 3, 2, 2, 1, .counter = 1},
    {"place 200x300x3, item 1", build_place, 200, 300, 3, 1, .counter = 1},
    {"place 20x30x32, first", build_place, 20, 30, 32, .bound = EXACT},
    {"pixels in 3x5", build_pixels_in, 3, 5, .bound = STORED},
    {"pixels in 200x301", build_pixels_in, 200, 301, .bound = STORED},
    {"patches in, 1x1 cell of 1", build_patches_in, 1, 1, 1, 1, 1, .bound = STORED},
    {"patches in, 2x3 cells of 3x3 of 5", build_patches_in, 2, 3, 5, 3, 3, .bound = STORED},
    {"patches in, 3x4 cells of 2x2 of 14", build_patches_in, 3, 4, 14, 2, 2, .bound = STORED},
    {"patches in, vision 37x37", build_patches_in, 37, 37, 14, 2, 2, .bound = STORED},
    {"composite, 20", build_composite, 20, 1, .bound = STORED},
    {"composite, 3 pictures of 333x77", build_composite, 333 * 77, 3, .bound = STORED},
    {"composite, 1024x1024", build_composite, 1048576, 1, .bound = STORED},
    {"pixels out, 20", build_pixels_out, 20, .a = 1},
    {"pixels out, 1024x1024", build_pixels_out, 1048576, .bound = EXACT},
    {"pixels out, 333x77, three not finite", build_pixels_out, 333 * 77, .a = 1},
};
CASES(pictures)

// ---- A small autoencoder, whole and by strips -----------------------------------------------------------------------
static void give_conv(scene* s, sumi_weight* w, sumi_weight* bias, int in, int out, int kernel)
{
    *w = *matrix(s, out, in * kernel * kernel, 0);
    *bias = *bias_of(s, out, 0);
}
static void give_norm(scene* s, sumi_weight* w, sumi_weight* bias, int channels)
{
    *w = *norm_weight(s, channels, 0);
    *bias = *bias_of(s, channels, 0);
}
static void give_block(scene* s, sumi_vae_block* b, int in, int out)
{
    give_norm(s, &b->norm1, &b->norm1_bias, in);
    give_conv(s, &b->conv1, &b->conv1_bias, in, out, 3);
    give_norm(s, &b->norm2, &b->norm2_bias, out);
    give_conv(s, &b->conv2, &b->conv2_bias, out, out, 3);
    b->has_shortcut = in != out;
    if (b->has_shortcut) give_conv(s, &b->shortcut, &b->shortcut_bias, in, out, 1);
}
// Two stages of `many` and `few` channels, two blocks each.
static void give_half(scene* s, sumi_vae_half* half, int first, int second, int middle, int in, int out)
{
    half->is_present = true;
    half->stage_count = 2;
    give_conv(s, &half->conv_in, &half->conv_in_bias, in, middle == second ? first : middle, 3);
    for (int i = 0; i < 2; i++) give_block(s, &half->middle[i], middle, middle);
    give_norm(s, &half->attention_norm, &half->attention_norm_bias, middle);
    give_conv(s, &half->attention.qkv, &half->attention.qkv_bias, middle, 3 * middle, 1);
    give_conv(s, &half->attention.out, &half->attention.out_bias, middle, middle, 1);
    for (int stage = 0; stage < 2; stage++) {
        int channels = stage == 0 ? first : second;
        half->stages[stage].block_count = 2;
        for (int i = 0; i < 2; i++)
            give_block(s, &half->stages[stage].blocks[i], stage == 1 && i == 0 ? first : channels, channels);
    }
    half->stages[0].resamples = true;
    give_conv(s, &half->stages[0].resample, &half->stages[0].resample_bias, first, first, 3);
    give_norm(s, &half->norm_out, &half->norm_out_bias, second == middle ? middle : second);
    give_conv(s, &half->conv_out, &half->conv_out_bias, second == middle ? middle : second, out, 3);
}
// Pictures of m x n pixels, k and 2 k channels, a groups; b: strips of so many bytes; c: decodes
static void build_autoencoder(scene* s, const op_case* c)
{
    bool decodes = c->c != 0;
    static sumi_flux_vae s_vae[2]; // plans name its weights
    sumi_flux_vae* vae = &s_vae[decodes];
    *vae = (sumi_flux_vae){.latent_channels = 4, .groups = c->a, .factor = 2, .scaling = 0.5f, .shift = 0.1f};
    if (decodes) give_half(s, &vae->decoder, 2 * c->k, c->k, 2 * c->k, 4, 3);
    else give_half(s, &vae->encoder, c->k, 2 * c->k, 2 * c->k, 3, 8);
    sumi_value from = decodes ? floats(s, 4, c->m / 2 * (c->n / 2)) : bytes_of(s, c->m * c->n, 3);
    for (int i = 0; i < 2; i++) {
        vae->strip_bytes = i == 0 ? UINT64_MAX : (uint64_t)c->b;
        sumi_value out;
        if (decodes) {
            out = sumi_plan_value(&s->plan, "picture", SUMI_ELEMENT_ACTIVATION, c->m * c->n, 3);
            sumi_flux_vae_write_decode(vae, &s->plan, from, c->m / 2, c->n / 2, 0, out);
        } else {
            out = sumi_flux_vae_write_encode(vae, &s->plan, from, c->m, c->n, 0);
        }
        check(s, out, c->bound);
    }
    s->twins[0].a = 0, s->twins[0].b = 1;
    s->twin_count = 1;
}
// The same of the autoencoder whose norms are of one pixel.
static void give_pixel_block(scene* s, sumi_qwen_vae_block* b, int in, int out)
{
    b->norm1 = *norm_weight(s, in, 0);
    b->conv1 = *sliced(matrix(s, out, 27 * in, 0));
    b->conv1_bias = *bias_of(s, out, 0);
    b->norm2 = *norm_weight(s, out, 0);
    b->conv2 = *sliced(matrix(s, out, 27 * out, 0));
    b->conv2_bias = *bias_of(s, out, 0);
    b->has_shortcut = in != out;
    if (b->has_shortcut) give_conv(s, &b->shortcut, &b->shortcut_bias, in, out, 1);
}
static void give_pixel_half(scene* s, sumi_qwen_vae_half* half, int first, int second, int middle, int in, int out)
{
    const bool decodes = middle == first;
    half->is_present = true;
    half->stage_count = 2;
    give_conv(s, &half->conv_in, &half->conv_in_bias, in, first, 3);
    for (int i = 0; i < 2; i++) give_pixel_block(s, &half->middle[i], middle, middle);
    half->attention_norm = *norm_weight(s, middle, 0);
    give_conv(s, &half->attention.qkv, &half->attention.qkv_bias, middle, 3 * middle, 1);
    give_conv(s, &half->attention.out, &half->attention.out_bias, middle, middle, 1);
    for (int stage = 0; stage < 2; stage++) {
        half->stages[stage].block_count = 2;
        for (int i = 0; i < 2; i++)
            give_pixel_block(s, &half->stages[stage].blocks[i],
                             stage == 1 && i == 0 && !decodes ? first
                             : stage == 0                     ? first
                                                              : second,
                             stage == 0 ? first : second);
    }
    half->stages[0].resamples = true;
    give_conv(s, &half->stages[0].resample, &half->stages[0].resample_bias, first, decodes ? second : first, 3);
    half->norm_out = *norm_weight(s, second, 0);
    give_conv(s, &half->conv_out, &half->conv_out_bias, second, out, 3);
    const int joint = decodes ? in : out;
    give_conv(s, &half->quant, &half->quant_bias, joint, joint, 1);
}
// Pictures of m x n pixels, k and 2 k channels; b: strips of so many bytes; c: decodes
static void build_pixel_autoencoder(scene* s, const op_case* c)
{
    bool decodes = c->c != 0;
    static sumi_qwen_vae s_vae[2]; // plans name its weights
    sumi_qwen_vae* vae = &s_vae[decodes];
    *vae = (sumi_qwen_vae){.channels = 4, .factor = 2, .tiles = {3, 4}};
    for (int i = 0; i < 4; i++) vae->scale[i] = 0.5f + 0.25f * (float)i, vae->shift[i] = 0.1f * (float)i;
    if (decodes) give_pixel_half(s, &vae->decoder, 2 * c->k, c->k, 2 * c->k, 4, 3);
    else give_pixel_half(s, &vae->encoder, c->k, 2 * c->k, 2 * c->k, 3, 8);
    sumi_value from = decodes ? floats(s, 4, c->m / 2 * (c->n / 2)) : bytes_of(s, c->m * c->n, 3);
    for (int i = 0; i < 2; i++) {
        vae->strip_bytes = i == 0 ? UINT64_MAX : (uint64_t)c->b;
        sumi_value out;
        if (decodes) {
            out = sumi_plan_value(&s->plan, "picture", SUMI_ELEMENT_ACTIVATION, c->m * c->n, 3);
            sumi_qwen_vae_module.write_decode(vae, &s->plan, from, c->m / 2, c->n / 2, 0, out);
        } else {
            out = sumi_qwen_vae_module.write_encode(vae, &s->plan, from, c->m, c->n, 0);
        }
        check(s, out, c->bound);
    }
    s->twins[0].a = 0, s->twins[0].b = 1;
    s->twin_count = 1;
}
static const op_case s_autoencoder[] = {
    {"pixel norms, decoder 72x8, 8 channels", build_pixel_autoencoder, 72, 8, 8, 0, 1, 1, .bound = 3e-2},
    {"pixel norms, encoder 40x12, 8 channels", build_pixel_autoencoder, 40, 12, 8, 0, 1, 0, .bound = 3e-2},
    {"pixel norms, decoder 128x96, 96 channels", build_pixel_autoencoder, 128, 96, 96, 0, 1, 1, .bound = 3e-2},
    {"pixel norms, decoder 64x96, 192 channels", build_pixel_autoencoder, 64, 96, 192, 0, 1, 1, .bound = 3e-2},
    {"pixel norms, encoder 128x96, 96 channels", build_pixel_autoencoder, 128, 96, 96, 0, 1, 0, .bound = 3e-2},

    {"decoder 72x8, 8 channels", build_autoencoder, 72, 8, 8, 4, 1, 1, .bound = 3e-2},
    {"encoder 40x12, 8 channels", build_autoencoder, 40, 12, 8, 4, 1, 0, .bound = 3e-2},
    {"decoder 128x96, 128 channels", build_autoencoder, 128, 96, 128, 32, 1, 1, .bound = 3e-2},
    {"decoder 64x48, 256 channels", build_autoencoder, 64, 48, 256, 32, 1, 1, .bound = 3e-2},
    {"encoder 128x96, 128 channels", build_autoencoder, 128, 96, 128, 32, 1, 0, .bound = 3e-2},
};
CASES(autoencoder)

// ---- Every kernel of a product --------------------------------------------------------------------------------------
#ifdef SUMI_HAS_CUDA
static sumi_cuda_device* device_of(const machine* m) { return &((sumi_cuda*)m->runner)->device; }

// One shape for all, with more than one tile of every kernel and a last one that is not full.
#define PRODUCT_SHAPE 300, 560, 512
enum { GATED_BY_TABLE = GATED_RESIDUAL | FLOAT_TABLE | ALIGNED };
typedef struct product_case {
    op_case op;
    sumi_cuda_epilogue epilogue;
} product_case;
static const product_case s_products[] = {
    {{"product, plain", build_linear, PRODUCT_SHAPE, .bound = STORED}, SUMI_CUDA_EPILOGUE_plain},
    {{"product, bias", build_linear, PRODUCT_SHAPE, BIASED, .bound = STORED}, SUMI_CUDA_EPILOGUE_bias},
    {{"product, bias, gelu", build_linear, PRODUCT_SHAPE, BIASED, .act = SUMI_ACT_GELU_TANH, .bound = STORED},
     SUMI_CUDA_EPILOGUE_gelu},
    {{"product, gated", build_gated, 300, 280, 512, .act = SUMI_ACT_SILU, .bound = CHAINED}, SUMI_CUDA_EPILOGUE_swiglu},
    {{"product, residual", build_linear, PRODUCT_SHAPE, RESIDUAL, .bound = STORED}, SUMI_CUDA_EPILOGUE_resid},
    {{"product, bias, residual", build_linear, PRODUCT_SHAPE, BIASED | RESIDUAL, .bound = STORED},
     SUMI_CUDA_EPILOGUE_resid_bias},
    {{"product, gated residual", build_linear, PRODUCT_SHAPE, GATED_BY_TABLE, .counter = 2, .bound = STORED},
     SUMI_CUDA_EPILOGUE_gate},
    {{"product, bias, gated residual", build_linear, PRODUCT_SHAPE, BIASED | GATED_BY_TABLE, .counter = 2,
      .bound = STORED},
     SUMI_CUDA_EPILOGUE_gate_bias},
    {{"product, bias, silu", build_linear, PRODUCT_SHAPE, BIASED, .act = SUMI_ACT_SILU, .bound = STORED},
     SUMI_CUDA_EPILOGUE_any},
    {{"product, added", build_linear, PRODUCT_SHAPE, RESIDUAL | ADDING, .bound = STORED}, SUMI_CUDA_EPILOGUE_any},
    {{"product, added under a gate", build_linear, PRODUCT_SHAPE, GATED_BY_TABLE | ADDING, .counter = 2,
      .bound = STORED},
     SUMI_CUDA_EPILOGUE_any},
    {{"product 300x555x512, added under a gate", build_linear, 300, 555, 512, GATED_RESIDUAL | ADDING, .counter = 2,
      .bound = STORED},
     SUMI_CUDA_EPILOGUE_any},
    // few rows, as a prompt's, and of depth enough for many parts
    {{"product 77x560x2560, plain", build_linear, 77, 560, 2560, .bound = STORED}, SUMI_CUDA_EPILOGUE_plain},
    {{"product 1x272x2064, bias", build_linear, 1, 272, 2064, BIASED, .bound = STORED}, SUMI_CUDA_EPILOGUE_bias},
    {{"product 16x560x2064, residual", build_linear, 16, 560, 2064, RESIDUAL, .bound = STORED},
     SUMI_CUDA_EPILOGUE_resid},
    {{"product 129x1120x2064, gated", build_gated, 129, 560, 2064, .act = SUMI_ACT_SILU, .bound = CHAINED},
     SUMI_CUDA_EPILOGUE_swiglu},
    {{"product 200x560x2064, bias, gelu erf", build_linear, 200, 560, 2064, BIASED, .act = SUMI_ACT_GELU_ERF,
      .bound = STORED},
     SUMI_CUDA_EPILOGUE_any},
    {{"product 12x560x512, added under a gate", build_linear, 12, 560, 512, GATED_BY_TABLE | ADDING, .counter = 2,
      .bound = STORED},
     SUMI_CUDA_EPILOGUE_any},
};

// The case by every kernel and every number of parts of k that can take it, whole and in slices.
static void try_product(const product_case* product, const machine* m, sumi_cuda_operands operands)
{
    static sumi_cuda_linear_choice list[512];
    static const char* const names[] = {"bf16", "fp8", "int8"};
    op_case c = product->op;
    const bool is_gated = product->epilogue == SUMI_CUDA_EPILOGUE_swiglu;
    if (operands != SUMI_CUDA_BF16) {
        const double bound = operands == SUMI_CUDA_INT8 ? INT8 : FP8;
        c.a |= operands == SUMI_CUDA_INT8 ? IN_INT8 : IN_FP8;
        c.bound = c.act == SUMI_ACT_NONE ? bound : 2 * bound; // as of a block's feed-forward
    }
    const sumi_cuda_shape shape = {c.m, is_gated ? 2 * c.n : c.n, c.k, operands, true, product->epilogue};
    sumi_cuda_device* device = device_of(m);
    const int32_t count = sumi_cuda_list_linear(device, true, &shape, list, 512);
    CHECK(count > 0);
    stock store = {.random = 0x9E3779B97F4A7C15u};
    scene s;
    void *want[MAX_VALUES] = {0}, *whole[MAX_VALUES] = {0}, *slices[MAX_VALUES] = {0};
    double error = 0.0;
    bool good = run_case(&c, &store, &s_reference, MANNER_WHOLE, want, &s);
    sumi_plan_end(&s.plan);
    for (int32_t i = 0; i < count && good; i++) {
        if (list[i].method == SUMI_CUDA_METHOD_CUBLASLT) continue;
        const int errors = t_errors;
        device->forced_linear = &list[i];
        good = run_case(&c, &store, m, MANNER_WHOLE, whole, &s);
        for (int k = 0; k < s.output_count && good; k++)
            compare_output(&c, &s, k, m, whole[k], &s_reference, want[k], &error);
        sumi_plan_end(&s.plan);
        good = run_case(&c, &store, m, MANNER_SMALL, slices, &s) && good;
        if (good) same_bits(&c, &s, m->name, s_manners[MANNER_SMALL], slices, whole);
        sumi_plan_end(&s.plan);
        free_outs(whole);
        free_outs(slices);
        if (t_errors > errors)
            printf("  %s, %s: method %d, kernel %d, %d parts of k\n", c.name, names[operands], (int)list[i].method,
                   (int)list[i].kernel, (int)list[i].split);
    }
    device->forced_linear = NULL;
    printf("  %-30s %-6s %3d ways                       %.3g\n", c.name, names[operands], (int)count, error);
    forget(m, &store);
    forget(&s_reference, &store);
    free_outs(want);
    for (int i = 0; i < store.block_count; i++) free(store.blocks[i]);
}

TEST(products_by_every_kernel)
{
    if (s_absent != NULL) SKIP(s_absent);
    if (s_machine_count == 0) return; // a device that cannot be used has failed already
    for (size_t i = 0; i < sizeof s_products / sizeof *s_products; i++) {
        if (s_case_filter != NULL && strstr(s_products[i].op.name, s_case_filter) == NULL) continue;
        try_product(&s_products[i], &s_machines[0], SUMI_CUDA_BF16);
        // what is added keeps its precision
        for (int o = SUMI_CUDA_E4M3; o <= SUMI_CUDA_INT8 && (s_products[i].op.a & ADDING) == 0; o++) {
            if (o == SUMI_CUDA_E4M3 && device_of(&s_machines[0])->capability < 89) continue;
            try_product(&s_products[i], &s_machines[0], (sumi_cuda_operands)o);
        }
        s_tried++;
    }
}
#endif

// ---- Pictures for the host's memory ---------------------------------------------------------------------------------
enum { PUBLISHED_WIDTH = 77, PUBLISHED_HEIGHT = 5, PUBLISHED_ROW = PUBLISHED_WIDTH * 12 + 20, PUBLISHED_BEFORE = 9 };

// What row y of the picture is in the host's memory; `x` is the value's content: bytes or bfloat16.
static void publish_row(sumi_format format, const void* x, int y, unsigned char* into)
{
    for (int p = 0; p < PUBLISHED_WIDTH; p++) {
        const size_t from = 3 * ((size_t)PUBLISHED_BEFORE + (size_t)y * PUBLISHED_WIDTH + (size_t)p);
        const uint8_t* bytes = (const uint8_t*)x + from;
        for (int k = 0; k < 3; k++) {
            if (format == SUMI_FORMAT_RGBA8) into[4 * p + k] = bytes[k];
            else if (format == SUMI_FORMAT_BGRA8) into[4 * p + k] = bytes[2 - k];
            else if (format == SUMI_FORMAT_RGB8) into[3 * p + k] = bytes[k];
            else {
                const float value = sumi_bf16_to_float(((const uint16_t*)x)[from + (size_t)k]) * 0.5f + 0.5f;
                memcpy(into + 12 * p + 4 * k, &value, 4);
            }
        }
        if (format == SUMI_FORMAT_RGBA8 || format == SUMI_FORMAT_BGRA8) into[4 * p + 3] = 255;
    }
}

// A picture of x goes to `into`, whose rows are longer than the picture's: what lies between is left alone. An op
// copies it to where it can be read.
static void try_publication(const machine* m, sumi_format format)
{
    enum { PIXELS = PUBLISHED_BEFORE + PUBLISHED_WIDTH * PUBLISHED_HEIGHT, BYTES = PUBLISHED_ROW * PUBLISHED_HEIGHT };
    static unsigned char x[PIXELS * 3 * 2], got[BYTES], want[BYTES];
    const sumi_element element = format == SUMI_FORMAT_RGB32F ? SUMI_ELEMENT_ACTIVATION : SUMI_ELEMENT_BYTE;
    stock store = {.random = 0x9E3779B97F4A7C15u};
    sumi_plan plan;
    sumi_error error = {0};
    const sumi_rates rates = m->runner->functions->rates(m->runner);
    for (int i = 0; i < PIXELS * 3; i++) {
        const uint16_t half = sumi_float_to_bf16(normal(&store));
        if (element == SUMI_ELEMENT_BYTE) x[i] = (unsigned char)(draw(&store) >> 56);
        else memcpy(x + 2 * i, &half, 2);
    }
    memset(want, 0xA5, sizeof want);
    memset(got, 0, sizeof got);
    sumi_runner_begin_plan(m->runner, &plan, &s_heap);
    sumi_plan_section(&plan, SUMI_SECTION_TRANSFER, 1, 0);
    sumi_value from = sumi_plan_bound(&plan, "x", element, PIXELS, 3),
               into = sumi_plan_bound(&plan, "into", SUMI_ELEMENT_BYTE, PUBLISHED_HEIGHT, PUBLISHED_ROW),
               out = sumi_plan_bound(&plan, "out", SUMI_ELEMENT_BYTE, PUBLISHED_HEIGHT, PUBLISHED_ROW);
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = into, .y = out, .rows = PUBLISHED_HEIGHT});
    sumi_result result = sumi_plan_finish(&plan, &error);
    if (result == SUMI_OK) result = sumi_plan_slice(&plan, &rates, 0, &error);
    if (result == SUMI_OK) result = plan_ready(m->runner, &plan, &error);
    if (result == SUMI_OK) {
        const sumi_publication picture = {.value = from,
                                          .first_pixel = PUBLISHED_BEFORE,
                                          .width = PUBLISHED_WIDTH,
                                          .height = PUBLISHED_HEIGHT,
                                          .format = format,
                                          .into = into,
                                          .row_bytes = PUBLISHED_ROW};
        m->runner->functions->start(m->runner, &plan);
        m->runner->functions->write(m->runner, &plan, from, 0, x, sumi_plan_info(&plan, from)->bytes);
        m->runner->functions->write(m->runner, &plan, into, 0, want, sizeof want);
        result = m->runner->functions->publish(m->runner, &plan, &picture, &error);
    }
    if (result == SUMI_OK) result = plan_run_all(m->runner, &plan, NULL, &error);
    if (result == SUMI_OK) result = plan_read(m->runner, &plan, out, got, &error);
    for (int y = 0; y < PUBLISHED_HEIGHT; y++) publish_row(format, x, y, want + y * PUBLISHED_ROW);
    CHECK_TEXT(error.text, "");
    CHECK(memcmp(got, want, sizeof want) == 0);
    plan_forget(m->runner, &plan);
    sumi_plan_end(&plan);
}

TEST(publications)
{
    if (s_absent != NULL) SKIP(s_absent);
    for (int i = 0; i < s_machine_count; i++) {
        try_publication(&s_machines[i], SUMI_FORMAT_RGBA8);
        try_publication(&s_machines[i], SUMI_FORMAT_RGB8);
        try_publication(&s_machines[i], SUMI_FORMAT_RGB32F);
        try_publication(&s_machines[i], SUMI_FORMAT_BGRA8);
    }
}

// ---- Without a GPU --------------------------------------------------------------------------------------------------
TEST(the_cases_are_sound)
{
    static const struct {
        const op_case* list;
        size_t count;
    } all[] = {
#define LIST(kind) {s_##kind, sizeof s_##kind / sizeof *s_##kind}
        LIST(moving_rows), LIST(linear),     LIST(gated),
        LIST(fp8),         LIST(int8),       LIST(balanced),
        LIST(stored),      LIST(norms),      LIST(rotary_and_tables),
        LIST(attention),   LIST(latents),    LIST(conv),
        LIST(strips),      LIST(group_norm), LIST(pictures),
        LIST(autoencoder)};
    bool covered[SUMI_OP_KIND_COUNT] = {false};
    machine player = {"rehearsal", NULL, true};
    sumi_error error = {0};
    CHECK(sumi_cpu_create(&s_heap, s_workers, SUMI_CPU_AUTO, &error, &player.runner) == SUMI_OK);
    for (size_t l = 0; l < sizeof all / sizeof *all && player.runner != NULL; l++) {
        for (size_t i = 0; i < all[l].count; i++) {
            const int alone[] = {-1};
            if (cost_of(&all[l].list[i], covered) <= SMALL) try_case(&all[l].list[i], &s_reference, &player, alone, 1);
        }
    }
    for (int k = 0; k < SUMI_OP_KIND_COUNT; k++) {
        if (!covered[k]) printf("  no case has the op %s\n", sumi_op_name((sumi_op_kind)k));
        CHECK(covered[k]);
    }
    if (player.runner != NULL) player.runner->functions->destroy(player.runner);
}

// ---- The machines ---------------------------------------------------------------------------------------------------
static char s_reason[700];

static bool add_machine(const char* name, const sumi_cuda_options* options, int same_as)
{
    sumi_error error = {0};
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CUDA;
    desc.cuda.cublaslt = s_cublaslt;
    sumi_runner* runner = NULL;
    sumi_result result = sumi_cuda_create(&s_heap, s_workers, &desc, options, &error, &runner);
    if (result == SUMI_OK) result = runner_load(runner, &error);
    if (result == SUMI_OK && s_cublaslt == SUMI_CUBLASLT_ALWAYS && !runner->functions->has_cublaslt(runner))
        result = sumi_fail(&error, SUMI_NOT_SUPPORTED, "there is no cuBLASLt to be opened");
    if (result != SUMI_OK) {
        // No device and no CUDA in this build are reasons to skip; a device that cannot be used is a failure.
        bool is_absent = s_machine_count == 0
                      && (result == SUMI_NO_DEVICE || result == SUMI_NOT_SUPPORTED || result == SUMI_DRIVER_TOO_OLD
                          || result == SUMI_DEVICE_UNSUPPORTED);
        snprintf(s_reason, sizeof s_reason, "%s", error.text);
        if (is_absent) s_absent = s_reason;
        else printf("  %s: %s\n", name, error.text), t_failed++;
        if (runner != NULL) runner->functions->destroy(runner);
        return false;
    }
    if (s_machine_count == 0) printf("%s\n", runner->functions->device(runner));
    s_same_as[s_machine_count] = same_as;
    s_machines[s_machine_count++] = (machine){name, runner, false};
    return true;
}

static int32_t capability(const sumi_runner* runner)
{
    sumi_device_facts facts;
    runner->functions->facts(runner, &facts);
    return facts.capability;
}

int main(int argc, char** argv)
{
    bool lists_kernels = false;
    for (; argc > 1 && argv[1][0] == '-' && strcmp(argv[1], "--list") != 0; argv[1] = argv[0], argv++, argc--) {
        if (strcmp(argv[1], "--small") == 0) s_most_elements = SMALL;
        else if (strcmp(argv[1], "--cublaslt") == 0) s_cublaslt = SUMI_CUBLASLT_ALWAYS;
        else if (strcmp(argv[1], "--list-kernels") == 0) lists_kernels = true;
        else
            return fprintf(stderr,
                           "usage: test_cuda_ops [--small | --cublaslt] [--list-kernels] [--list | TEST [CASE]]\n"),
                   2;
    }
    TEST_BEGIN(argc, argv);
    s_case_filter = argc > 2 ? argv[2] : NULL;
    sumi_error error = {0};
    sumi_heap_init(&s_heap, NULL);
    s_reference.name = "processor";
    if (sumi_workers_create(&s_heap, NULL, 0, &error, &s_workers) != SUMI_OK
        || sumi_cpu_create(&s_heap, s_workers, SUMI_CPU_AUTO, &error, &s_reference.runner) != SUMI_OK) {
        printf("%s\n", error.text);
        return 1;
    }
    if (add_machine("the best kernels", NULL, -1)) {
        add_machine("without graphs", &(sumi_cuda_options){.without_graphs = true}, 0);
        if (capability(s_machines[0].runner) == 90) {
            add_machine("portable kernels", &(sumi_cuda_options){.without_hopper = true}, -1);
        }
#ifdef SUMI_HAS_CUDA
        // What a consumer's card has: 100 KiB of shared memory on a multiprocessor, of which a block may have 99.
        if (add_machine("kernels for less memory", &(sumi_cuda_options){.without_hopper = true}, -1)) {
            sumi_cuda_device* device = device_of(&s_machines[s_machine_count - 1]);
            device->shared_per_multiprocessor =
                device->shared_per_multiprocessor < 102400 ? device->shared_per_multiprocessor : 102400;
            device->shared_per_block = device->shared_per_block < 101376 ? device->shared_per_block : 101376;
        }
#endif
    } else if (s_absent == NULL) {
        s_absent = s_reason;
    }
    RUN(the_cases_are_sound);
    RUN(moving_rows);
    RUN(linear);
    RUN(gated);
    RUN(fp8);
    RUN(int8);
    RUN(balanced);
    RUN(stored);
    RUN(norms);
    RUN(rotary_and_tables);
    RUN(attention);
    RUN(latents);
    RUN(conv);
    RUN(strips);
    RUN(group_norm);
    RUN(pictures);
    RUN(autoencoder);
#ifdef SUMI_HAS_CUDA
    RUN(products_by_every_kernel);
#endif
    RUN(publications);
    if (s_case_filter != NULL && s_tried == 0 && s_absent == NULL)
        printf("FAILED: no case has %s in its name\n", s_case_filter), t_failed++;
    for (int i = 0; i < s_machine_count && lists_kernels; i++) print_kernels(s_machines[i].runner);
    for (int i = 0; i < s_machine_count; i++) s_machines[i].runner->functions->destroy(s_machines[i].runner);
    s_reference.runner->functions->destroy(s_reference.runner);
    sumi_workers_destroy(s_workers);
    if (atomic_load(&s_heap.held) != 0)
        printf("  %llu bytes were not given back\n", (unsigned long long)atomic_load(&s_heap.held)), t_failed++;
    TEST_END();
}
