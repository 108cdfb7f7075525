// Cases of weights whose type alone does not say what their elements mean: blocks, rows or columns have factors,
// elements are 4-bit codes, or rows are rotated (files/tensor_scaling.h). The CPU expands them while it multiplies; for
// a GPU they are expanded while they are uploaded, to the form that the plan asks for.
#include "cuda_ops/quantised.h"
#include "cuda_ops/linear.h"
#include "cuda_ops/run.h"
#include "number_formats.h"

// ---- Weights --------------------------------------------------------------------------------------------------------

#define E2M1 0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f
#define INTEGERS 0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1
#define TABLE                                                                                                          \
    -1.0f, -0.7f, -0.53f, -0.4f, -0.28f, -0.18f, -0.09f, 0.0f, 0.08f, 0.16f, 0.25f, 0.34f, 0.44f, 0.56f, 0.72f, 1.0f

static const struct format {
    sumi_dtype dtype;
    float largest; // element; the factors make it four deviations
    int32_t rotation;
    bool has_row_scales, has_column_scales;
    float block_size;       // 0: of the factors of blocks follows from `largest`; otherwise about what they are
    sumi_decoding decoding; // without data; block_cols INT32_MAX: rows; scale_dtype NONE: no factors of blocks
} s_formats[FORMAT_COUNT] = {
    [FP8_BLOCKS] = {SUMI_DTYPE_F8_E4M3, 448.0f,
                    .decoding = {.scale_dtype = SUMI_DTYPE_BF16, .block_rows = 128, .block_cols = 128}},
    [FP8_BLOCKS_F32] = {SUMI_DTYPE_F8_E4M3, 448.0f,
                        .decoding = {.scale_dtype = SUMI_DTYPE_F32, .block_rows = 128, .block_cols = 128}},
    [FP8_ROWS] = {SUMI_DTYPE_F8_E4M3, 448.0f,
                  .decoding = {.scale_dtype = SUMI_DTYPE_BF16, .block_rows = 1, .block_cols = INT32_MAX}},
    [FP8_ROWS_F32] = {SUMI_DTYPE_F8_E4M3, 448.0f, .has_row_scales = true},
    [MXFP8] = {SUMI_DTYPE_F8_E4M3, 448.0f,
               .decoding = {.scale_dtype = SUMI_DTYPE_F8_E8M0, .block_rows = 1, .block_cols = 32, .is_tiled = true}},
    [NVFP4] = {SUMI_DTYPE_CODES4, 6.0f, .block_size = 40.0f,
               .decoding = {.scale_dtype = SUMI_DTYPE_F8_E4M3,
                            .block_rows = 1,
                            .block_cols = 16,
                            .is_tiled = true,
                            .has_codes = true,
                            .high_first = true,
                            .codes = {E2M1}}},
    [NVFP4_IN_ROWS] = {SUMI_DTYPE_CODES4, 6.0f, .block_size = 40.0f,
                       .decoding = {.scale_dtype = SUMI_DTYPE_F8_E4M3,
                                    .block_rows = 1,
                                    .block_cols = 16,
                                    .has_codes = true,
                                    .codes = {E2M1}}},
    [NVFP4_COLUMNS] = {SUMI_DTYPE_CODES4, 6.0f, .block_size = 40.0f, .has_column_scales = true,
                       .decoding = {.scale_dtype = SUMI_DTYPE_F8_E4M3,
                                    .block_rows = 1,
                                    .block_cols = 16,
                                    .has_codes = true,
                                    .codes = {E2M1}}},
    [ROTATED_W4A4] = {SUMI_DTYPE_CODES4, 8.0f, .rotation = 64, .has_row_scales = true,
                      .decoding = {.has_codes = true, .codes = {INTEGERS}}},
    [ROTATED_W4A8] = {SUMI_DTYPE_CODES4, 127.0f, .rotation = 64, .has_row_scales = true, .block_size = 110.0f,
                      .decoding = {.scale_dtype = SUMI_DTYPE_F16,
                                   .block_rows = 1,
                                   .block_cols = 64,
                                   .is_rounded = true,
                                   .has_codes = true,
                                   .codes = {TABLE}}},
    [ROTATED_INT8] = {SUMI_DTYPE_I8, 127.0f, .rotation = 64, .has_row_scales = true},
    [PLAIN_BF16] = {.dtype = SUMI_DTYPE_BF16},
};

// 0.8 to 1.25
static float random_factor(case_data* store) { return 0.8f + 0.45f * (float)(random_bits(store) >> 40) * 0x1p-24f; }

static void put_number(sumi_dtype dtype, unsigned char* to, uint64_t index, float value)
{
    const uint16_t half = dtype == SUMI_DTYPE_F16 ? float_to_f16(value) : sumi_float_to_bf16(value);
    const uint8_t quarter =
        dtype == SUMI_DTYPE_F8_E8M0 ? (uint8_t)(127 + (int)floorf(log2f(value))) : float_to_e4m3(value);
    const uint64_t size = sumi_dtype_bytes(dtype, 1);
    memcpy(to + index * size,
           size == 4   ? (const void*)&value
           : size == 2 ? (const void*)&half
                       : &quarter,
           (size_t)size);
}

// As in files, factors and elements have no alignment but that of their type. A block of one byte more, and its second
// byte.
static unsigned char* unaligned_block(scene* s, uint64_t bytes, bool* out_is_new)
{
    return (unsigned char*)next_block_of_case(s, (size_t)bytes + 1, out_is_new) + 1;
}

// Where the factor of block column `c` of block row `r` lies: in rows, or as cuBLAS draws its tiles.
static uint64_t factor_index(const sumi_decoding* d, int r, int c)
{
    if (!d->is_tiled) return (uint64_t)r * (uint64_t)d->pitch + (uint64_t)c;
    const uint64_t tile = (uint64_t)(r / 128) * (uint64_t)(d->pitch / 4) + (uint64_t)(c / 4);
    return tile * 512 + (uint64_t)(r % 32 * 16 + r / 32 % 4 * 4 + c % 4);
}

static int nearest_code(const float* codes, float value)
{
    int best = 0;
    for (int i = 1; i < SUMI_CODE_COUNT; i++)
        if (fabsf(codes[i] - value) < fabsf(codes[best] - value)) best = i;
    return best;
}

// Element c of a row of the tensor, rounded to its type: value is what the element times its factors should be.
static void put_element(const struct format* f, unsigned char* row, int c, float value)
{
    if (f->dtype != SUMI_DTYPE_CODES4) {
        if (f->dtype == SUMI_DTYPE_I8) {
            const float limited = value < -127.0f ? -127.0f : value > 127.0f ? 127.0f : value;
            row[c] = (unsigned char)(int8_t)rintf(limited);
        } else {
            put_number(f->dtype, row, (uint64_t)c, value);
        }
        return;
    }
    const int shift = (c % 2 == 0) == f->decoding.high_first ? 4 : 0;
    row[c / 2] = (unsigned char)((row[c / 2] & ~(15 << shift)) | nearest_code(f->decoding.codes, value) << shift);
}

// Factors of the blocks of a tensor, with the padding of tiles, which is NaN: no reader uses it.
static const float* make_factors(scene* s, const struct format* f, sumi_decoding* d, int rows, int cols, float size)
{
    bool is_new;
    const int block_cols = d->block_cols < cols ? d->block_cols : cols, count = (cols + block_cols - 1) / block_cols,
              block_rows = (rows + d->block_rows - 1) / d->block_rows;
    d->pitch = d->is_tiled ? (count + 3) / 4 * 4 : count;
    const uint64_t bytes = sumi_decoding_bytes(&(sumi_decoding){.scales = "",
                                                                .scale_dtype = d->scale_dtype,
                                                                .block_rows = d->block_rows,
                                                                .pitch = d->pitch,
                                                                .is_tiled = d->is_tiled},
                                               rows, cols);
    unsigned char* factors = unaligned_block(s, bytes, &is_new);
    d->scales = factors;
    float* kept = next_block_of_case(s, (size_t)block_rows * (size_t)count * sizeof *kept, &is_new);
    if (is_new) memset(factors, 0xFF, (size_t)bytes);
    for (int r = 0; is_new && r < block_rows; r++) {
        for (int c = 0; c < count; c++) {
            const uint64_t at = factor_index(d, r, c);
            put_number(f->decoding.scale_dtype, factors, at, size * random_factor(s->store));
            sumi_dtype_to_float(d->scale_dtype, factors + at * sumi_dtype_bytes(d->scale_dtype, 1),
                                &kept[r * count + c], 1);
        }
    }
    return kept;
}

// A tensor of normal numbers, quantised as the format's writers do: what the factors and the rotation make of the
// elements has the deviation `spread`.
static sumi_stacked_tensor quantised_tensor(scene* s, int format, int rows, int cols, float spread)
{
    const struct format* f = &s_formats[format];
    const bool has_blocks = f->decoding.scale_dtype != SUMI_DTYPE_NONE;
    const float unit = f->largest > 0.0f ? 4.0f * spread / f->largest : 1.0f; // of an element
    const float block_size = f->block_size > 0.0f ? f->block_size : unit;
    // the factor of the tensor, or of a row: what the factors of blocks leave
    const float rest = !has_blocks || f->block_size > 0.0f
                         ? f->decoding.is_rounded ? unit : unit / (has_blocks ? block_size : 1.0f)
                         : 1.0f;
    bool is_new;
    sumi_decoding* d = next_block_of_case(s, sizeof *d, &is_new);
    *d = f->decoding;
    const float* factors = has_blocks ? make_factors(s, f, d, rows, cols, block_size) : NULL;
    unsigned char* row_scales = f->has_row_scales ? unaligned_block(s, (uint64_t)rows * sizeof(float), &is_new) : NULL;
    for (int r = 0; row_scales != NULL && is_new && r < rows; r++)
        put_number(SUMI_DTYPE_F32, row_scales, (uint64_t)r, rest * random_factor(s->store));
    if (f->has_column_scales) {
        unsigned char* column_scales = unaligned_block(s, 2 * (uint64_t)cols, &is_new);
        for (int c = 0; is_new && c < cols; c++)
            put_number(SUMI_DTYPE_BF16, column_scales, (uint64_t)c, random_factor(s->store));
        d->column_scales = column_scales, d->column_dtype = SUMI_DTYPE_BF16;
    }
    const uint64_t row_bytes = sumi_dtype_bytes(f->dtype, (uint64_t)cols);
    unsigned char* data = unaligned_block(s, row_bytes * (uint64_t)rows, &is_new);
    for (int r = 0; is_new && r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            const int per_row = has_blocks && d->block_cols < cols ? (cols + d->block_cols - 1) / d->block_cols : 1;
            const float block = has_blocks ? factors[r / d->block_rows * per_row + c / d->block_cols] : 1.0f;
            put_element(f, data + (uint64_t)r * row_bytes, c, random_normal(s->store) * spread / rest / block);
        }
    }
    const bool is_decoded = has_blocks || d->has_codes || d->column_scales != NULL;
    return (sumi_stacked_tensor){.data = data,
                                 .dtype = f->dtype,
                                 .rows = rows,
                                 .scale = row_scales == NULL ? rest : 1.0f,
                                 .row_scales = row_scales,
                                 .rotation = f->rotation,
                                 .decoding = is_decoded ? d : NULL};
}

sumi_weight* quantised_weight(scene* s, int rows, int cols, int first_rows, int first, int second)
{
    if (s->next_weight == MAX_WEIGHTS) abort();
    const float spread = 1.0f / sqrtf((float)cols);
    sumi_weight w = {.name = "quantised", .rows = rows, .cols = cols, .tensor_count = 1, .index = s->next_weight};
    w.tensors[0] = quantised_tensor(s, first, second != NO_FORMAT ? first_rows : rows, cols, spread);
    if (second != NO_FORMAT) w.tensors[w.tensor_count++] = quantised_tensor(s, second, rows - first_rows, cols, spread);
    s->store->weights[s->next_weight] = w;
    return &s->store->weights[s->next_weight++];
}

// ---- Cases ----------------------------------------------------------------------------------------------------------

// a: one of sumi_weight_format. b: the format; c: of the tensor below it, if there is one
static void build_quantised(scene* s, const op_case* c)
{
    s->plan.weight_options.weights = (sumi_weight_format)c->a;
    sumi_weight *w = quantised_weight(s, c->n, c->k, c->n / 3, c->b, c->c), *b = bias_of(s, c->n, SUMI_DTYPE_BF16);
    expect(s,
           sumi_plan_linear(
               &s->plan,
               &(sumi_plan_linear_args){.label = "quantised", .x = activations(s, c->m, c->k), .weight = w, .bias = b}),
           c->bound);
}
// The gate is one tensor and up the other, so the form's rows alternate between them.
static void build_quantised_gated(scene* s, const op_case* c)
{
    s->plan.weight_options.weights = (sumi_weight_format)c->a;
    sumi_weight* w = quantised_weight(s, 2 * c->n, c->k, c->n, c->b, c->c);
    expect(s, sumi_plan_linear_gated(&s->plan, "gated", activations(s, c->m, c->k), w, SUMI_ACT_SILU), c->bound);
}
// A chain of products, d of them, so that few of the weights are needed at a time.
static void build_quantised_chain(scene* s, const op_case* c)
{
    s->plan.weight_options.weights = (sumi_weight_format)c->a;
    sumi_value x = activations(s, c->m, c->k);
    for (int i = 0; i < c->d; i++) {
        sumi_weight* w =
            quantised_weight(s, c->k, c->k, c->k / 2, i % 2 == 0 ? c->b : c->c, i % 3 == 0 ? c->c : NO_FORMAT);
        x = sumi_plan_linear(&s->plan, &(sumi_plan_linear_args){.label = "quantised", .x = x, .weight = w});
    }
    expect(s, x, c->bound);
}

// The CPU multiplies by the expanded floats; a GPU rounds them once to the form, so each bound is that of the form for
// any other weight, whose elements are normal as these. bfloat16: the weights are rounded as well as the output, as two
// roundings in a row. e4m3 and int8: weights and inputs are rounded to 8 bits (scene.h). Codes of 4 bits: stored.c.
// A simulation of the forms on the CPU gives at most 0.55, 0.85, 0.6 and 0.71 of these bounds. Rows of nvfp4 have few
// different values, so that their roundings to e4m3 are no average over many: 3.8e-2 to 4.4e-2, depending on the row.
#define FP8_OF_NVFP4 (1.2 * FP8)
#define INT4 0.11
#define OF_WEIGHT(name, m, n, k, form, first, second, most)                                                            \
    {                                                                                                                  \
        "quantised " name " " #m "x" #n "x" #k, build_quantised, m, n, k, SUMI_WEIGHTS_##form, first, second,          \
            .bound = most                                                                                              \
    }
#define OF_GATED(name, m, n, k, form, first, second, most)                                                             \
    {                                                                                                                  \
        "quantised " name " " #m "x" #n "x" #k, build_quantised_gated, m, n, k, SUMI_WEIGHTS_##form, first, second,    \
            .bound = 2 * most                                                                                          \
    }
// In each form: rows and columns as each needs them to be taken; in bfloat16 odd numbers, with short blocks at both
// ends. k: of that case. As stored, nvfp4 keeps its codes; the others become bfloat16, or are in stored.c.
#define EVERY_FORM(name, format, k, fp8)                                                                               \
    OF_WEIGHT(name ", bf16", 33, 151, k, BF16, format, 0, CHAINED),                                                    \
        OF_WEIGHT(name ", as stored", 7, 150, 320, AS_STORED, format, 0, CHAINED),                                     \
        OF_WEIGHT(name ", fp8", 19, 272, 192, FP8, format, 0, fp8),                                                    \
        OF_WEIGHT(name ", int8", 19, 272, 192, INT8, format, 0, INT8),                                                 \
        OF_WEIGHT(name ", int4", 19, 259, 192, INT4, format, 0, INT4)
// Two types in a stack, in each form.
#define EVERY_STACK(name, first, second)                                                                               \
    OF_WEIGHT(name ", bf16", 20, 149, 192, BF16, first, second, CHAINED),                                              \
        OF_WEIGHT(name ", as stored", 20, 149, 192, AS_STORED, first, second, CHAINED),                                \
        OF_WEIGHT(name ", fp8", 20, 272, 192, FP8, first, second, FP8),                                                \
        OF_WEIGHT(name ", int8", 20, 272, 192, INT8, first, second, INT8),                                             \
        OF_WEIGHT(name ", int4", 20, 259, 192, INT4, first, second, INT4),                                             \
        OF_GATED(name ", gated, bf16", 20, 152, 192, BF16, first, second, CHAINED),                                    \
        OF_GATED(name ", gated, as stored", 20, 152, 192, AS_STORED, first, second, CHAINED),                          \
        OF_GATED(name ", gated, fp8", 20, 152, 192, FP8, first, second, FP8),                                          \
        OF_GATED(name ", gated, int8", 20, 152, 192, INT8, first, second, INT8)
#define OF_CHAIN(count, form, most)                                                                                    \
    {                                                                                                                  \
        "quantised chain of " #count ", " #form, build_quantised_chain, 24, 256, 256, SUMI_WEIGHTS_##form, NVFP4,      \
            FP8_BLOCKS, count, .bound = most                                                                           \
    }
static const op_case s_quantised[] = {
    EVERY_FORM("fp8 in blocks", FP8_BLOCKS, 301, FP8),
    EVERY_FORM("fp8 in blocks, float", FP8_BLOCKS_F32, 129, FP8),
    EVERY_FORM("fp8 in rows", FP8_ROWS, 77, FP8),
    EVERY_FORM("fp8 in rows, float", FP8_ROWS_F32, 91, FP8),
    EVERY_FORM("mxfp8", MXFP8, 96, FP8),
    EVERY_FORM("nvfp4", NVFP4, 112, FP8_OF_NVFP4),
    EVERY_FORM("nvfp4 in rows", NVFP4_IN_ROWS, 144, FP8_OF_NVFP4),
    EVERY_FORM("nvfp4 and columns", NVFP4_COLUMNS, 176, FP8),
    EVERY_FORM("w4a4", ROTATED_W4A4, 64, FP8),
    EVERY_FORM("w4a8", ROTATED_W4A8, 192, FP8),
    EVERY_FORM("rotated int8", ROTATED_INT8, 192, FP8),
    EVERY_STACK("nvfp4 and fp8", NVFP4, FP8_BLOCKS),
    EVERY_STACK("mxfp8 and bf16", MXFP8, PLAIN_BF16),
    EVERY_STACK("w4a4 and nvfp4", ROTATED_W4A4, NVFP4_IN_ROWS),
    OF_CHAIN(4, BF16, 2 * CHAINED),
    // more than a buffer of a call without a budget, which has 8 MiB
    OF_WEIGHT("nvfp4, bf16", 130, 3840, 3840, BF16, NVFP4, 0, CHAINED),
    OF_WEIGHT("fp8 in blocks, fp8", 130, 3840, 3840, FP8, FP8_BLOCKS, 0, FP8),
    OF_WEIGHT("w4a8, int8", 130, 3840, 3840, INT8, ROTATED_W4A8, 0, INT8),
    OF_WEIGHT("nvfp4, int4", 130, 3840, 3840, INT4, NVFP4, 0, INT4),
};
CASE_TABLE(quantised);
// 3 MB of floats, which are uploaded in more than thirty pieces. The error of each product is added to that of its
// input: the root of twelve, and more in e4m3, for nvfp4.
static const op_case s_chains[] = {
    OF_CHAIN(12, BF16, 3.5 * CHAINED),
    OF_CHAIN(12, AS_STORED, 3.5 * CHAINED),
    OF_CHAIN(12, FP8, 4 * FP8),
    OF_CHAIN(12, INT4, 3.5 * INT4),
};
CASE_TABLE(chains);

// ---- Streamed -------------------------------------------------------------------------------------------------------

// The least memory that holds the plan.
static uint64_t least_memory(const sumi_runner* runner, const sumi_plan* plan, sumi_device_need* out_need)
{
    uint64_t low = 0, high = 0;
    CHECK(runner->functions->need(runner, plan, 0, out_need, NULL) == SUMI_OK && out_need->fits);
    for (high = out_need->device_bytes; low + 4096 < high;) {
        const uint64_t middle = low + (high - low) / 2;
        CHECK(runner->functions->need(runner, plan, middle, out_need, NULL) == SUMI_OK);
        if (out_need->fits) high = middle;
        else low = middle;
    }
    return high;
}

// With as little memory as holds the plan, weights are copied from pinned memory while the plan runs. Outputs must have
// the same bits.
void check_streamed_weights(const machine* m)
{
    for (size_t i = 0; i < sizeof s_chains / sizeof *s_chains; i++) {
        const op_case* c = &s_chains[i];
        case_data store = {.random = 0x9E3779B97F4A7C15u};
        scene s;
        void *whole[MAX_VALUES] = {0}, *streamed[MAX_VALUES] = {0};
        sumi_device_need need = {0};
        bool ok = run_case(c, &store, m, RUN_WHOLE, whole, &s);
        const uint64_t least = ok ? least_memory(m->runner, &s.plan, &need) : 0,
                       // for the plan that fills the arena with NaN, which has one row more
            limit = least + 65536;
        if (ok) CHECK(m->runner->functions->need(m->runner, &s.plan, limit, &need, NULL) == SUMI_OK && need.fits);
        CHECK(need.streamed_bytes > 0);
        sumi_plan_end(&s.plan);
        if (ok) {
            release_case_weights(m, &store);
            m->runner->functions->set_memory_limit(m->runner, limit);
            ok = run_case(c, &store, m, RUN_WHOLE, streamed, &s);
            if (ok) check_same_bits(c, &s, m->name, "streamed", streamed, whole);
            sumi_plan_end(&s.plan);
            m->runner->functions->set_memory_limit(m->runner, 0);
        }
        release_case_weights(m, &store);
        free_outs(whole);
        free_outs(streamed);
        for (int k = 0; k < store.block_count; k++) free(store.blocks[k]);
    }
}
