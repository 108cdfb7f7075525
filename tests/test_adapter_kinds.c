// Every kind of change that an adapter's file can have, against weights that the test changes itself in double: the
// latents of a job with the adapter are those of the job with the changed weights.
#include "models/adapter_names.h"
#include "models/network_state.h"
#include "models/pipeline.h"
#include "network_fixture.h"

#define QWEN "tests/golden/qwen-image/model"
#define NEWBIE "tests/golden/newbie/model"
enum { MOST_VALUES = 192 * 256, MOST_TENSORS = 12 };

typedef enum kind { LORA, LOHA, LOHA_LARGE, LOKR, LOKR_LARGE, DIFF, NO_MATRIX } kind;
typedef enum base { AS_STORED, INT8_ROWS, FP8_SCALE } base; // what the model's weight is stored in

typedef struct kind_case {
    const char *prefix, *module; // the module as a path of the model
    kind kind;
    const char *down, *up; // of LORA: how the names end
    const char* magnitude; // DoRA: how its name ends, or NULL
    bool is_by_input;      // its shape is [1, in]
    const char* bias;      // ".diff_b" or ".lora_B.bias", or NULL
    sumi_dtype dtype;      // NONE: float32
    base base;
} kind_case;

// A file that is being made, and what it adds to the weight at strength 1.
typedef struct made_file {
    char names[MOST_TENSORS][160];
    sumi_tensor tensors[MOST_TENSORS];
    void* stored[MOST_TENSORS];
    size_t count;
    uint32_t seed;
    double dw[MOST_VALUES], db[512];
} made_file;

static made_file s_file;

// Stores values in +-2 * size as a tensor, and returns them as they are stored.
static float* put(const kind_case* c, const char* suffix, int rows, int cols, float size)
{
    const size_t count = (size_t)rows * (size_t)cols, i = s_file.count++;
    const sumi_dtype dtype = c->dtype == SUMI_DTYPE_NONE ? SUMI_DTYPE_F32 : c->dtype;
    float* values = malloc(count * sizeof *values);
    fill(values, count, s_file.seed += 77);
    unsigned char* stored = malloc(count * sizeof(float));
    for (size_t k = 0; k < count; k++) {
        values[k] *= size;
        if (dtype == SUMI_DTYPE_F32) {
            memcpy(stored + k * sizeof(float), &values[k], sizeof(float));
        } else { // the nearest of the 256 values of the type
            float nearest = 0;
            for (int byte = 0; byte < 256; byte++) {
                const unsigned char b = (unsigned char)byte;
                float value;
                sumi_dtype_to_float(dtype, &b, &value, 1);
                if (byte > 0 && !(fabsf(value - values[k]) < fabsf(nearest - values[k]))) continue;
                nearest = value;
                stored[k] = b;
            }
            values[k] = nearest;
        }
    }
    snprintf(s_file.names[i], sizeof s_file.names[i], "%s%s%s", c->prefix, c->module, suffix);
    s_file.stored[i] = stored;
    s_file.tensors[i] = (sumi_tensor){.name = s_file.names[i],
                                      .dtype = dtype,
                                      .rank = 2,
                                      .shape = {rows, cols},
                                      .data = stored,
                                      .bytes = count * sumi_dtype_bytes(dtype, 1)};
    return values;
}

static void put_alpha(const kind_case* c, float alpha)
{
    kind_case plain = *c;
    plain.dtype = SUMI_DTYPE_NONE;
    float* values = put(&plain, ".alpha", 1, 1, 1);
    memcpy(s_file.stored[s_file.count - 1], &alpha, sizeof alpha);
    s_file.tensors[s_file.count - 1].rank = 0;
    free(values);
}

// into [rows, cols] = left [rows, inner] right [inner, cols]
static void multiply(const float* left, const float* right, int rows, int inner, int cols, double* into)
{
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            double sum = 0;
            for (int k = 0; k < inner; k++) sum += (double)left[r * inner + k] * (double)right[k * cols + c];
            into[r * cols + c] = sum;
        }
    }
}

static void make_lora(const kind_case* c, int rows, int cols)
{
    float *down = put(c, c->down, 4, cols, 0.15f), *up = put(c, c->up, rows, 4, 0.15f);
    put_alpha(c, 6);
    multiply(up, down, rows, 4, cols, s_file.dw);
    for (int i = 0; i < rows * cols; i++) s_file.dw[i] *= 1.5;
    free(down), free(up);
}

static void make_loha(const kind_case* c, int rows, int cols)
{
    static double s_second[MOST_VALUES];
    const int rank = c->kind == LOHA ? 2 : 12;
    float *a1 = put(c, ".hada_w1_a", rows, rank, 0.3f), *b1 = put(c, ".hada_w1_b", rank, cols, 0.3f),
          *a2 = put(c, ".hada_w2_a", rows, rank + 1, 0.3f), *b2 = put(c, ".hada_w2_b", rank + 1, cols, 0.3f);
    put_alpha(c, (float)rank / 2);
    multiply(a1, b1, rows, rank, cols, s_file.dw);
    multiply(a2, b2, rows, rank + 1, cols, s_second);
    for (int i = 0; i < rows * cols; i++) s_file.dw[i] *= 0.5 * s_second[i];
    free(a1), free(b1), free(a2), free(b2);
}

// Both factors as products, of two ranks; alpha is divided by the second one.
static void make_lokr(const kind_case* c, int rows, int cols)
{
    static double s_w1[64 * 64], s_w2[64 * 64];
    const int r1 = c->kind == LOKR ? 1 : 3, r2 = c->kind == LOKR ? 2 : 5, a = 8, d = 8, b = rows / a, k = cols / d;
    float *a1 = put(c, ".lokr_w1_a", a, r1, 0.3f), *b1 = put(c, ".lokr_w1_b", r1, d, 0.3f),
          *a2 = put(c, ".lokr_w2_a", b, r2, 0.3f), *b2 = put(c, ".lokr_w2_b", r2, k, 0.3f);
    put_alpha(c, (float)r2 / 2);
    multiply(a1, b1, a, r1, d, s_w1);
    multiply(a2, b2, b, r2, k, s_w2);
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < cols; i++)
            s_file.dw[r * cols + i] = 0.5 * s_w1[r / b * d + i / k] * s_w2[r % b * k + i % k];
    }
    free(a1), free(b1), free(a2), free(b2);
}

// dw becomes m (W + dw) / |W + dw| - W, with magnitudes near the norms of W.
static void make_dora(const kind_case* c, const float* w, int rows, int cols)
{
    const int count = c->is_by_input ? cols : rows;
    float* m = put(c, c->magnitude, c->is_by_input ? 1 : rows, c->is_by_input ? cols : 1, 0.2f);
    sumi_tensor* tensor = &s_file.tensors[s_file.count - 1];
    if (!c->is_by_input && strcmp(c->magnitude, ".dora_scale") != 0) tensor->rank = 1; // [out]
    for (int n = 0; n < count; n++) {
        double plain = 0, changed = 0;
        for (int i = 0; i < (c->is_by_input ? rows : cols); i++) {
            const int at = c->is_by_input ? i * cols + n : n * cols + i;
            plain += (double)w[at] * (double)w[at];
            changed += ((double)w[at] + s_file.dw[at]) * ((double)w[at] + s_file.dw[at]);
        }
        m[n] = (1 + m[n]) * (float)sqrt(plain);
        memcpy((unsigned char*)s_file.stored[s_file.count - 1] + (size_t)n * sizeof m[n], &m[n], sizeof m[n]);
        const double g = (double)m[n] / sqrt(changed);
        for (int i = 0; i < (c->is_by_input ? rows : cols); i++) {
            const int at = c->is_by_input ? i * cols + n : n * cols + i;
            s_file.dw[at] = g * ((double)w[at] + s_file.dw[at]) - (double)w[at];
        }
    }
    free(m);
}

static void make_file(const kind_case* c, const float* w, int rows, int cols)
{
    float* values;
    memset(s_file.dw, 0, sizeof s_file.dw);
    memset(s_file.db, 0, sizeof s_file.db);
    s_file.count = 0;
    switch (c->kind) {
    case LORA: make_lora(c, rows, cols); break;
    case LOHA:
    case LOHA_LARGE: make_loha(c, rows, cols); break;
    case LOKR:
    case LOKR_LARGE: make_lokr(c, rows, cols); break;
    case DIFF:
        values = put(c, ".diff", rows, cols, 0.03f);
        for (int i = 0; i < rows * cols; i++) s_file.dw[i] = (double)values[i];
        free(values);
        break;
    case NO_MATRIX: break;
    }
    if (c->magnitude != NULL) make_dora(c, w, rows, cols);
    if (c->bias != NULL) {
        values = put(c, c->bias, rows, 1, 0.2f);
        s_file.tensors[s_file.count - 1].rank = 1;
        // the bias of a factor is scaled as the factor is
        for (int i = 0; i < rows; i++) s_file.db[i] = (double)values[i] * (strcmp(c->bias, ".diff_b") == 0 ? 1.0 : 1.5);
        free(values);
    }
    write_tensors(scratch("adapter.safetensors"), s_file.tensors, s_file.count, NULL, 0);
    for (size_t i = 0; i < s_file.count; i++) free(s_file.stored[i]);
}

// ---- Models ---------------------------------------------------------------------------------------------------------

// The text encoder of a case, counted from 1; 0: the denoiser.
static int32_t encoder_of(const kind_case* c)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s", c->prefix, c->module);
    const int32_t encoder = sumi_adapter_encoder(name, strlen(name));
    return encoder == SUMI_ADAPTER_ANY_ENCODER ? 1 : encoder;
}

static const sumi_adapter_target* target_of(const sumi_network* network, const kind_case* c)
{
    char folded[SUMI_NAME_BYTES];
    sumi_fold_path(c->module, strlen(c->module), folded, sizeof folded);
    for (size_t i = 0; i < network->weights.target_count; i++) {
        const sumi_adapter_target* target = &network->weights.targets[i];
        if (target->encoder == encoder_of(c) && strcmp(target->path, folded) == 0) return target;
    }
    printf("  no layer %s\n", c->module);
    CHECK(!"the layer is there");
    return NULL;
}

typedef struct bench {
    sumi_network* network;
    job job;
    sumi_pipeline_prompt prompt;
    sumi_pipeline_item item;
    int32_t ids[2][512]; // for each text encoder
    float noise[16 * 6 * 8];
} bench;
enum { LATENTS = 16 * 6 * 8 };

static bench* open_bench(const char* path)
{
    bench* b = calloc(1, sizeof *b);
    sumi_error error = {0};
    int32_t count = 0;
    b->network = open_path(path);
    if (b->network == NULL) {
        CHECK(!"the model opens");
        return b;
    }
    CHECK_NUMBER(read_prompt(b->network, 0, &(sumi_prompt_text){.text = "a cat", .bytes = 5},
                             &(sumi_prompt_ids){b->ids[0], 512, NULL}, &count, &error),
                 SUMI_OK);
    fill(b->noise, LATENTS, 9);
    b->prompt.token_count[0] = count;
    if (sumi_network_get_info(b->network)->text_encoder_count > 1) {
        CHECK_NUMBER(read_prompt(b->network, 1, &(sumi_prompt_text){.text = "a cat", .bytes = 5},
                                 &(sumi_prompt_ids){b->ids[1], 512, NULL}, &b->prompt.token_count[1], &error),
                     SUMI_OK);
    }
    b->job = (job){
        .r = {.prompts = &b->prompt, .prompt_count = 1, .items = &b->item, .item_count = 1, .width = 64, .height = 48},
        .ids = (const int32_t(*)[512])b->ids,
        .second_ids = (const int32_t(*)[512])b->ids + 1,
        .noise = b->noise,
        .stops_at_latents = true};
    b->item.negative = -1;
    set_schedule(&b->job, b->network, SUMI_SOLVER_EULER, 2, 0.0f);
    return b;
}

static void close_bench(bench* b)
{
    sumi_network_close(b->network);
    free(b);
}

// The bias of the product that reads a weight, or NULL.
static sumi_weight* bias_of(const bench* b, const sumi_weight* weight)
{
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    const sumi_weight* bias = NULL;
    sumi_plan_begin(&plan, &s_heap, 4);
    CHECK_NUMBER(sumi_pipeline_write_latents(b->network, &b->job.r, false, &plan, &pipeline, &error), SUMI_OK);
    for (size_t i = 0; i < plan.op_count; i++) {
        if (plan.ops[i].weight == weight) bias = plan.ops[i].bias;
    }
    sumi_plan_end(&plan);
    return (sumi_weight*)(uintptr_t)bias;
}

// Stores a weight of the model in 8 bits instead, with random values of its size. Returns their memory.
static unsigned char* store_in_8_bits(sumi_weight* weight, base form)
{
    const size_t count = (size_t)weight->rows * (size_t)weight->cols;
    unsigned char* bytes = malloc(count + (size_t)weight->rows * sizeof(float));
    float* scales = (float*)(void*)(bytes + count);
    uint32_t state = 5;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(state >> 24);
        if (form == FP8_SCALE && (bytes[i] & 0x7f) == 0x7f) bytes[i] = 0x11; // NaN
        if (form == FP8_SCALE && (bytes[i] & 0x7f) > 0x48) bytes[i] &= 0xc8; // at most 4
    }
    for (int32_t r = 0; r < weight->rows; r++) scales[r] = 0.001f + 0.00001f * (float)r;
    weight->tensor_count = 1;
    weight->tensors[0] = (sumi_stacked_tensor){.data = bytes,
                                               .dtype = form == INT8_ROWS ? SUMI_DTYPE_I8 : SUMI_DTYPE_F8_E4M3,
                                               .rows = weight->rows,
                                               .scale = form == INT8_ROWS ? 1.0f : 0.07f,
                                               .row_scales = form == INT8_ROWS ? scales : NULL};
    return bytes;
}

static sumi_weight float_matrix(const sumi_weight* weight, const float* values)
{
    sumi_weight changed = *weight;
    changed.tensor_count = 1;
    changed.change = NULL;
    changed.tensors[0] =
        (sumi_stacked_tensor){.data = values, .dtype = SUMI_DTYPE_F32, .rows = weight->rows, .scale = 1.0f};
    return changed;
}

// The latents with the changes added to the weights in double.
static float* run_merged(bench* b, const sumi_adapter_target* target, double strength, const float* w)
{
    sumi_error error = {0};
    sumi_weight *weight = (sumi_weight*)(uintptr_t)b->network->weights.weights[target->weight_index],
                *bias = bias_of(b, weight);
    const size_t count = (size_t)weight->rows * (size_t)weight->cols, first = (size_t)target->row_begin;
    float *changed = malloc(count * sizeof *changed), *changed_bias = NULL;
    for (size_t i = 0; i < count; i++) changed[i] = w[i];
    for (size_t i = 0; i < (size_t)target->rows * (size_t)weight->cols; i++) {
        const size_t at = first * (size_t)weight->cols + i;
        changed[at] = (float)((double)w[at] + strength * s_file.dw[i]);
    }
    const sumi_weight before = *weight, bias_before = bias != NULL ? *bias : *weight;
    *weight = float_matrix(weight, changed);
    if (bias != NULL) {
        changed_bias = malloc((size_t)bias->cols * sizeof *changed_bias);
        sumi_weight_to_float(bias, 0, 1, changed_bias, bias->cols);
        for (int32_t r = 0; r < target->rows; r++) {
            changed_bias[target->row_begin + r] =
                (float)((double)changed_bias[target->row_begin + r] + strength * s_file.db[r]);
        }
        *bias = float_matrix(bias, changed_bias);
    }
    float* latents = run_job(b->network, &b->job, 0, NULL, &error);
    if (latents == NULL) printf("  %s\n", error.text);
    *weight = before;
    if (bias != NULL) *bias = bias_before;
    free(changed), free(changed_bias);
    return latents;
}

static void try_strength(bench* b, const kind_case* c, const sumi_adapter_file* file, float strength, const float* w,
                         const float* plain)
{
    sumi_error error = {0};
    const bool is_text = encoder_of(c) != 0;
    // the part of the file that the case is not about has another strength, and no changes
    const sumi_adapter_use use = {sumi_adapter_get(file), is_text ? 3.0f : strength},
                           text_use = {sumi_adapter_get_text(file), is_text ? strength : 3.0f};
    CHECK((use.adapter->delta_count == 0) == is_text && (text_use.adapter->delta_count == 0) == !is_text);
    b->job.r.adapters = &use;
    b->job.r.text_adapters = &text_use;
    b->job.r.adapter_count = 1;
    float* with = run_job(b->network, &b->job, 0, NULL, &error);
    b->job.r.adapter_count = 0;
    float* merged = run_merged(b, target_of(b->network, c), (double)strength, w);
    // Large differences are rounded to bfloat16; half a unit of its 8 bits is 2e-3 of the change.
    const bool is_rounded = c->kind == LOHA_LARGE || c->is_by_input || (c->magnitude != NULL && c->kind == LOKR_LARGE);
    if (with == NULL || merged == NULL) {
        CHECK(!"the job runs");
        printf("  %s\n", error.text);
    } else {
        const double error_of = distance(with, merged, LATENTS), effect = distance(plain, merged, LATENTS);
        CHECK(error_of < (is_rounded ? 3e-3 * effect : 2e-6));
        CHECK(effect > 1e-4);
        if (error_of >= (is_rounded ? 3e-3 * effect : 2e-6) || effect <= 1e-4)
            printf("  at %g: %g from the changed weights, which are %g from the model's\n", (double)strength, error_of,
                   effect);
    }
    free(with), free(merged);
}

static void try_kind(bench* b, const kind_case* c)
{
    const sumi_adapter_target* target = target_of(b->network, c);
    if (target == NULL) return;
    sumi_weight* weight = (sumi_weight*)(uintptr_t)b->network->weights.weights[target->weight_index];
    const sumi_weight before = *weight;
    unsigned char* bytes = c->base != AS_STORED ? store_in_8_bits(weight, c->base) : NULL;
    float* w = malloc((size_t)weight->rows * (size_t)weight->cols * sizeof *w);
    sumi_weight_to_float(weight, 0, weight->rows, w, weight->cols);
    make_file(c, w + (size_t)target->row_begin * (size_t)weight->cols, target->rows, target->cols);
    sumi_error error = {0};
    sumi_adapter_file* file = NULL;
    CHECK_NUMBER(open_adapter_file(&s_heap, b->network, scratch("adapter.safetensors"), &error, &file), SUMI_OK);
    if (file == NULL) {
        printf("  %s\n", error.text);
    } else {
        static const float s_strengths[] = {1.0f, 0.5f, -1.0f};
        float* plain = run_job(b->network, &b->job, 0, NULL, &error);
        for (size_t i = 0; i < 3; i++) try_strength(b, c, file, s_strengths[i], w, plain);
        free(plain);
    }
    sumi_adapter_close(file);
    *weight = before;
    free(w), free(bytes);
}

static void try_kinds(const char* path, const kind_case* cases, size_t count)
{
    bench* b = open_bench(path);
    for (size_t i = 0; i < count && b->network != NULL; i++) {
        const int errors = t_errors;
        try_kind(b, &cases[i]);
        if (t_errors > errors) printf("  case %d: %s%s\n", (int)i, cases[i].prefix, cases[i].module);
    }
    close_bench(b);
}

// clang-format off
#define LORA_NAMES .down = ".lora_A.weight", .up = ".lora_B.weight"
#define KOHYA_NAMES .down = ".lora_down.weight", .up = ".lora_up.weight"

TEST(factors_and_differences_give_the_latents_of_changed_weights)
{
    static const kind_case s_cases[] = {
        // names
        {.prefix = "base_model.model.", .module = "layers.0.attention.to_q", .down = ".lora_A.my_style.weight", .up = ".lora_B.my_style.weight"},
        {.prefix = "diffusion_model.", .module = "layers.0.attention.qkv", .down = ".lora_A", .up = ".lora_B"},
        {.prefix = "pipe.dit.", .module = "layers.1.feed_forward.w2", .down = ".lora_A.default.weight", .up = ".lora_B.default.weight"},
        {.prefix = "lora_unet__", .module = "layers_1_feed_forward_w3", .down = ".lora_down.weight", .up = ".lora_up.weight"},
        {.prefix = "lora_transformer_", .module = "layers_1_attention_to_out_0", .down = ".lora_down.weight", .up = ".lora_up.weight"},
        // 8 bits
        {.prefix = "transformer.", .module = "layers.0.attention.to_k", .down = ".lora_A.weight", .up = ".lora_B.weight", .dtype = SUMI_DTYPE_F8_E4M3},
        {.prefix = "transformer.", .module = "layers.0.feed_forward.w1", .down = ".lora_A.weight", .up = ".lora_B.weight", .dtype = SUMI_DTYPE_F8_E5M2},
        {.prefix = "transformer.", .module = "layers.0.attention.to_v", .kind = DIFF, .dtype = SUMI_DTYPE_F8_E4M3},
        // whole differences
        {.prefix = "diffusion_model.", .module = "layers.0.attention.to_v", .kind = DIFF},
        {.prefix = "diffusion_model.", .module = "layers.1.attention.qkv", .kind = DIFF},
        {.prefix = "diffusion_model.", .module = "layers.1.feed_forward.w2", .kind = DIFF, .base = INT8_ROWS},
        {.prefix = "diffusion_model.", .module = "layers.0.adaLN_modulation.0", .kind = DIFF, .bias = ".diff_b"},
        {.prefix = "diffusion_model.", .module = "layers.1.adaLN_modulation.0", .kind = NO_MATRIX, .bias = ".diff_b"},
        {.prefix = "diffusion_model.", .module = "layers.1.adaLN_modulation.0", KOHYA_NAMES, .bias = ".lora_up.bias"},
        // LoHa, LoKr
        {.prefix = "lycoris_", .module = "layers.0.attention.to_q", .kind = LOHA},
        {.prefix = "lora_unet_", .module = "layers_0_feed_forward_w3", .kind = LOHA_LARGE},
        {.prefix = "lycoris_", .module = "layers.0.attention.qkv", .kind = LOHA, .base = FP8_SCALE},
        {.prefix = "lycoris_", .module = "layers.0.attention.to_k", .kind = LOKR},
        {.prefix = "lycoris_", .module = "layers.0.attention.qkv", .kind = LOKR_LARGE},
    };
    try_kinds(GOLDEN "model", s_cases, sizeof s_cases / sizeof *s_cases);
}

TEST(dora_gives_the_latents_of_weights_with_its_norms)
{
    static const kind_case s_cases[] = {
        {.prefix = "diffusion_model.", .module = "layers.0.attention.to_q", LORA_NAMES, .magnitude = ".dora_scale"},
        {.prefix = "diffusion_model.", .module = "layers.0.attention.qkv", LORA_NAMES, .magnitude = ".dora_scale"},
        {.prefix = "base_model.model.", .module = "layers.1.attention.to_v", LORA_NAMES, .magnitude = ".lora_magnitude_vector"},
        {.prefix = "base_model.model.", .module = "layers.1.feed_forward.w1", LORA_NAMES, .magnitude = ".lora_magnitude_vector.weight"},
        {.prefix = "base_model.model.", .module = "layers.1.feed_forward.w2", LORA_NAMES, .magnitude = ".lora_magnitude_vector.default.weight"},
        {.prefix = "diffusion_model.", .module = "layers.0.attention.to_k", LORA_NAMES, .magnitude = ".magnitude"},
        {.prefix = "diffusion_model.", .module = "layers.0.adaLN_modulation.0", LORA_NAMES, .magnitude = ".dora_scale", .bias = ".diff_b"},
        // by inputs
        {.prefix = "lycoris_", .module = "layers.0.attention.to_k", KOHYA_NAMES, .magnitude = ".dora_scale", .is_by_input = true},
        {.prefix = "lycoris_", .module = "layers.1.feed_forward.w3", KOHYA_NAMES, .magnitude = ".dora_scale", .is_by_input = true},
        {.prefix = "lycoris_", .module = "layers.1.attention.qkv", KOHYA_NAMES, .magnitude = ".dora_scale", .is_by_input = true},
        // other kinds of changes
        {.prefix = "lycoris_", .module = "layers.0.attention.to_v", .kind = LOHA, .magnitude = ".dora_scale"},
        {.prefix = "lycoris_", .module = "layers.0.attention.to_v", .kind = LOKR, .magnitude = ".dora_scale"},
        {.prefix = "lycoris_", .module = "layers.0.attention.to_v", .kind = LOKR_LARGE, .magnitude = ".dora_scale"},
        // weights in 8 bits
        {.prefix = "diffusion_model.", .module = "layers.0.attention.to_v", LORA_NAMES, .magnitude = ".dora_scale", .base = INT8_ROWS},
        {.prefix = "diffusion_model.", .module = "layers.0.attention.to_v", LORA_NAMES, .magnitude = ".dora_scale", .base = FP8_SCALE},
        {.prefix = "diffusion_model.", .module = "layers.1.feed_forward.w3", LORA_NAMES, .magnitude = ".dora_scale", .is_by_input = true, .base = INT8_ROWS},
    };
    try_kinds(GOLDEN "model", s_cases, sizeof s_cases / sizeof *s_cases);
}

// Every layer of Qwen-Image has a bias; products have gates, activations and parts of a fused weight.
TEST(biases_change_where_the_product_has_a_gate_or_an_activation)
{
#define BLOCK "transformer_blocks.0."
    static const kind_case s_cases[] = {
        {.prefix = "diffusion_model.", .module = BLOCK "attn.to_out.0", KOHYA_NAMES, .bias = ".diff_b"},
        {.prefix = "diffusion_model.", .module = BLOCK "attn.to_k", KOHYA_NAMES, .bias = ".diff_b"},
        {.prefix = "diffusion_model.", .module = BLOCK "attn.add_v_proj", .kind = NO_MATRIX, .bias = ".diff_b"},
        {.prefix = "diffusion_model.", .module = BLOCK "img_mlp.net.0.proj", KOHYA_NAMES, .bias = ".diff_b"},
        {.prefix = "diffusion_model.", .module = BLOCK "img_mlp.net.2", .kind = DIFF, .bias = ".diff_b"},
        {.prefix = "diffusion_model.", .module = BLOCK "txt_mlp.net.2", .kind = NO_MATRIX, .bias = ".diff_b"},
        {.prefix = "transformer.", .module = BLOCK "attn.to_v", LORA_NAMES, .bias = ".lora_B.bias"},
        {.prefix = "diffusion_model.", .module = BLOCK "img_mod.1", KOHYA_NAMES, .bias = ".diff_b"},
        {.prefix = "diffusion_model.", .module = "proj_out", .kind = DIFF, .bias = ".diff_b"},
        {.prefix = "transformer.", .module = BLOCK "img_mlp.net.0.proj", LORA_NAMES, .magnitude = ".lora_magnitude_vector"},
        {.prefix = "transformer.", .module = BLOCK "attn.to_q", LORA_NAMES, .magnitude = ".lora_magnitude_vector", .base = FP8_SCALE},
    };
    try_kinds(QWEN, s_cases, sizeof s_cases / sizeof *s_cases);
}

// Text encoders: Qwen3 without biases, Qwen2.5-VL with them, Gemma with norms that are stored without their 1, and the
// second encoder of NewBie-image.
TEST(text_encoders_change_as_denoisers_do)
{
    static const kind_case s_qwen3[] = {
        {.prefix = "text_encoder.", .module = "model.layers.0.self_attn.q_proj", LORA_NAMES},
        {.prefix = "text_encoder.base_model.model.", .module = "layers.0.self_attn.k_proj", LORA_NAMES},
        {.prefix = "base_model.model.text_encoder.", .module = "model.layers.0.self_attn.v_proj", LORA_NAMES},
        {.prefix = "lora_te_", .module = "model_layers_0_self_attn_qkv_proj", KOHYA_NAMES},
        {.prefix = "lora_te1_", .module = "layers_0_self_attn_o_proj", KOHYA_NAMES},
        {.prefix = "text_encoders.qwen3_4b.transformer.", .module = "model.layers.0.mlp.gate_proj", KOHYA_NAMES},
        {.prefix = "text_encoders.qwen3_4b.transformer.", .module = "model.layers.0.mlp.up_proj", .kind = DIFF},
        {.prefix = "lora_te1_", .module = "model_layers_0_mlp_gate_up_proj", .kind = LOHA},
        {.prefix = "te1.", .module = "model.layers.0.mlp.down_proj", .kind = LOKR},
        {.prefix = "lora_te1_", .module = "model_layers_0_self_attn_q_proj", .kind = LOKR_LARGE},
        {.prefix = "text_encoder.", .module = "model.layers.0.self_attn.v_proj", LORA_NAMES, .magnitude = ".dora_scale"},
        {.prefix = "text_encoder.", .module = "model.layers.0.input_layernorm", .kind = DIFF},
        {.prefix = "text_encoder.", .module = "model.layers.0.self_attn.q_norm", .kind = DIFF},
    };
    static const kind_case s_qwen25[] = {
        {.prefix = "text_encoder.", .module = "model.layers.0.self_attn.q_proj", LORA_NAMES},
        {.prefix = "text_encoder.", .module = "model.language_model.layers.0.self_attn.k_proj", LORA_NAMES, .bias = ".diff_b"},
        {.prefix = "lora_te1_", .module = "model_layers_0_self_attn_qkv_proj", KOHYA_NAMES},
        {.prefix = "lora_te1_", .module = "model_layers_0_mlp_up_proj", KOHYA_NAMES, .magnitude = ".dora_scale"},
    };
    static const kind_case s_newbie[] = {
        {.prefix = "text_encoder.", .module = "model.layers.0.self_attn.q_proj", LORA_NAMES},
        {.prefix = "lora_te1_", .module = "model_layers_0_self_attn_qkv_proj", KOHYA_NAMES},
        {.prefix = "lora_te1_", .module = "model_layers_0_mlp_down_proj", KOHYA_NAMES},
        {.prefix = "text_encoder.", .module = "model.layers.0.input_layernorm", .kind = DIFF},
        {.prefix = "text_encoder.", .module = "model.layers.0.post_feedforward_layernorm", .kind = DIFF},
        {.prefix = "text_encoder_2.", .module = "text_model.transformer.roberta.encoder.layers.0.mixer.Wqkv", LORA_NAMES},
        {.prefix = "lora_te2_", .module = "text_model_transformer_roberta_encoder_layers_0_mlp_fc1", KOHYA_NAMES},
    };
    try_kinds(GOLDEN "model", s_qwen3, sizeof s_qwen3 / sizeof *s_qwen3);
    try_kinds(QWEN, s_qwen25, sizeof s_qwen25 / sizeof *s_qwen25);
    try_kinds(NEWBIE, s_newbie, sizeof s_newbie / sizeof *s_newbie);
}
// clang-format on

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(1)) return 1;
    RUN(factors_and_differences_give_the_latents_of_changed_weights);
    RUN(dora_gives_the_latents_of_weights_with_its_norms);
    RUN(biases_change_where_the_product_has_a_gate_or_an_activation);
    RUN(text_encoders_change_as_denoisers_do);
    end_networks();
    TEST_END();
}
