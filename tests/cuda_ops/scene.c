// Random data of cases, and the functions by which builders add inputs, weights and outputs to a plan.
#include "cuda_ops/scene.h"
#include "number_formats.h"

uint64_t random_bits(case_data* store)
{
    uint64_t x = store->random;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    store->random = x;
    return x * 0x2545F4914F6CDD1Du;
}
float random_normal(case_data* store)
{
    uint64_t d = random_bits(store);
    return (float)((int32_t)(d & 0xFFFF) + (int32_t)(d >> 16 & 0xFFFF) + (int32_t)(d >> 32 & 0xFFFF)
                   + (int32_t)(d >> 48) - 2 * 65535)
         * (1.7320508f / 65536.0f);
}
float round_to_bf16(float value) { return sumi_bf16_to_float(sumi_float_to_bf16(value)); }

void* next_block_of_case(scene* s, size_t bytes, bool* out_is_new)
{
    bool shapes_only = s->store->shapes_only;
    *out_is_new = s->makes_data && !shapes_only;
    if (s->next_block == MAX_BLOCKS) abort();
    if (s->makes_data)
        s->store->blocks[s->store->block_count++] = calloc(1, (shapes_only && bytes > 4096 ? 4096 : bytes) + 64);
    return s->store->blocks[s->next_block++];
}
sumi_value add_input(scene* s, sumi_element element, int rows, int cols, const void* data, bool is_raw)
{
    sumi_value value = sumi_plan_bound(&s->plan, "input", element, rows, cols);
    if (s->input_count == MAX_VALUES) abort();
    s->inputs[s->input_count].value = value;
    s->inputs[s->input_count].data = data;
    s->inputs[s->input_count++].is_raw = is_raw;
    return value;
}
float* random_numbers(scene* s, size_t count, float spread, float centre)
{
    bool is_new;
    float* x = next_block_of_case(s, count * sizeof *x, &is_new);
    for (size_t i = 0; is_new && i < count; i++) x[i] = round_to_bf16(centre + spread * random_normal(s->store));
    return x;
}
sumi_value activations_of(scene* s, int rows, int cols, float spread, float centre)
{
    return add_input(s, SUMI_ELEMENT_ACTIVATION, rows, cols,
                     random_numbers(s, (size_t)rows * (size_t)cols, spread, centre), false);
}
sumi_value activations(scene* s, int rows, int cols) { return activations_of(s, rows, cols, 1.0f, 0.0f); }
sumi_value floats(scene* s, int rows, int cols)
{
    return add_input(s, SUMI_ELEMENT_FLOAT, rows, cols, random_numbers(s, (size_t)rows * (size_t)cols, 1.0f, 0.0f),
                     false);
}
sumi_value integers(scene* s, int rows, int cols, int limit)
{
    bool is_new;
    int32_t* x = next_block_of_case(s, (size_t)rows * (size_t)cols * sizeof *x, &is_new);
    for (int i = 0; is_new && i < rows * cols; i++)
        x[i] = i == 0 ? limit - 1 : (int32_t)(random_bits(s->store) >> 33) % limit;
    return add_input(s, SUMI_ELEMENT_INT, rows, cols, x, true);
}
sumi_value random_bytes(scene* s, int rows, int cols)
{
    bool is_new;
    uint8_t* x = next_block_of_case(s, (size_t)rows * (size_t)cols, &is_new);
    for (int i = 0; is_new && i < rows * cols; i++) x[i] = (uint8_t)(random_bits(s->store) >> 56);
    return add_input(s, SUMI_ELEMENT_BYTE, rows, cols, x, true);
}
sumi_step_row step_row(scene* s, sumi_element element, int cols, bool per_step)
{
    sumi_value table = add_input(s, element, 6, cols + 5, random_numbers(s, 6 * (size_t)(cols + 5), 0.5f, 0.0f), false);
    return (sumi_step_row){table, 3, per_step};
}
sumi_step_row aligned_row(scene* s, sumi_element element, int cols, bool per_step)
{
    sumi_value table = add_input(s, element, 6, 4 * cols, random_numbers(s, 24 * (size_t)cols, 0.5f, 0.0f), false);
    return (sumi_step_row){table, 2 * cols, per_step};
}

// Blocks of a GGUF type with random codes and scales, of values of about `spread`. The scales are powers of two, so
// that values, and sums of their products with small integers, are exact.
static void fill_blocks(case_data* store, sumi_dtype dtype, unsigned char* to, size_t count, float spread)
{
    // d, minimum: byte offsets of the scale and of the scale of the offsets, -1: none; size: of what they multiply
    static const struct {
        int d, minimum;
        float size;
    } s_types[SUMI_DTYPE_COUNT] = {[SUMI_DTYPE_Q8_0] = {0, -1, 74.0f},   [SUMI_DTYPE_Q4_0] = {0, -1, 4.6f},
                                   [SUMI_DTYPE_Q4_1] = {0, 2, 4.6f},     [SUMI_DTYPE_Q5_0] = {0, -1, 9.2f},
                                   [SUMI_DTYPE_Q5_1] = {0, 2, 9.2f},     [SUMI_DTYPE_Q2_K] = {80, 82, 13.0f},
                                   [SUMI_DTYPE_Q3_K] = {108, -1, 42.0f}, [SUMI_DTYPE_Q4_K] = {0, 2, 240.0f},
                                   [SUMI_DTYPE_Q5_K] = {0, 2, 480.0f},   [SUMI_DTYPE_Q6_K] = {208, -1, 1370.0f},
                                   [SUMI_DTYPE_IQ4_NL] = {0, -1, 75.0f}, [SUMI_DTYPE_IQ4_XS] = {0, -1, 1390.0f}};
    const sumi_dtype_info* info = sumi_dtype_get(dtype);
    const float d = exp2f(floorf(log2f(spread / s_types[dtype].size)));
    for (size_t i = 0; i < count / (size_t)info->block; i++, to += info->block_bytes) {
        for (int k = 0; k < info->block_bytes; k++) to[k] = (unsigned char)(random_bits(store) >> 56);
        const uint16_t scale = float_to_f16(random_bits(store) >> 63 ? d : -d), minimum = float_to_f16(8.0f * d),
                       offset = float_to_f16(-8.0f * d);
        memcpy(to + s_types[dtype].d, &scale, 2);
        // the K types subtract it, the others add it
        if (s_types[dtype].minimum >= 0) memcpy(to + s_types[dtype].minimum, info->block > 32 ? &minimum : &offset, 2);
    }
}

sumi_weight* stacked_weight(scene* s, int rows, int cols, int parts, sumi_dtype dtype, float spread, float centre)
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
        bool is_new;
        // as in files: aligned to an element, no further
        unsigned char* data = (unsigned char*)next_block_of_case(
                                  s, is_block ? (size_t)sumi_dtype_bytes(dtype, count) : count * size, &is_new)
                            + size;
        if (is_new && is_block) fill_blocks(s->store, dtype, data, count, spread);
        for (size_t i = 0; is_new && !is_block && i < count; i++) {
            float value = centre + spread * random_normal(s->store);
            uint16_t half = dtype == SUMI_DTYPE_F16 ? float_to_f16(value) : sumi_float_to_bf16(value);
            uint8_t quarter = dtype == SUMI_DTYPE_F8_E4M3 ? float_to_e4m3(value * 16.0f / spread)
                                                          : float_to_e5m2(value * 16.0f / spread);
            float exact = round_to_bf16(value); // a GPU keeps matrices in bfloat16
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
sumi_weight* matrix_weight(scene* s, int rows, int cols, sumi_dtype dtype)
{
    return stacked_weight(s, rows, cols, 1, dtype, 1.0f / sqrtf((float)cols), 0.0f);
}
sumi_weight* norm_weight(scene* s, int cols, sumi_dtype dtype)
{
    return stacked_weight(s, 1, cols, 1, dtype, 0.3f, 1.0f);
}
sumi_weight* bias_of(scene* s, int cols, sumi_dtype dtype) { return stacked_weight(s, 1, cols, 1, dtype, 0.5f, 0.0f); }

void expect_rows(scene* s, sumi_value value, double bound, int begin, int count)
{
    if (value.id == 0) return; // the plan has recorded an error
    if (s->output_count == MAX_VALUES) abort();
    s->plan.values[value.id - 1].bound = true;
    s->outputs[s->output_count].value = value;
    s->outputs[s->output_count].bound = bound;
    s->outputs[s->output_count++].rows = (sumi_span){begin, count};
}
void expect(scene* s, sumi_value value, double bound)
{
    expect_rows(s, value, bound, 0, sumi_plan_info(&s->plan, value)->rows);
}

sumi_weight* one_time_slice(sumi_weight* w)
{
    sumi_stacked_tensor* part = &w->tensors[0];
    part->chunk = 9;
    part->chunk_stride = 27;
    part->data = (const unsigned char*)part->data + sumi_dtype_bytes(part->dtype, 18);
    w->cols /= 3;
    return w;
}
