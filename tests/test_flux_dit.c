// What files of a flux transformer may say, each in a small random one: modulation of each block, biases, MLPs with a
// gate or GELU, three or four axes, numbers of blocks. A plain loop in double computes the same. The numbers of released
// families are golden_run's business.
#include "cpu_runner.h"
#include "files/tensors.h"
#include "models/flux_dit.h"
#include <math.h>

enum {
    HEADS = 2,
    HEAD = 16,
    DIM = HEADS * HEAD,
    HIDDEN = 40,
    CHANNELS = 8,
    FEATURES = 20,
    TIME = 16,
    TIME_HIDDEN = 24,
    HEIGHT = 3,
    WIDTH = 5,
    IMAGE = HEIGHT * WIDTH,
    REFERENCE = 4, // of 2 x 2
    TEXT = 7,
    MAX_ROWS = IMAGE + REFERENCE + TEXT,
    MAX_TENSORS = 256
};
#define THETA 500.0

typedef struct options {
    const char* name;
    bool has_block_modulation, has_biases, is_gated;
    int axes, doubles, singles, references;
    bool keeps; // keys and values of the reference, which sees itself alone, at time 0
} options;

// ---- The file -------------------------------------------------------------------------------------------------------

typedef struct made_tensor {
    char name[96];
    float* values;
    int rows, cols; // rows 0: a vector
} made_tensor;

typedef struct made {
    options o;
    made_tensor tensors[MAX_TENSORS];
    int count;
} made;

static float random_float(void) // in [-1, 1)
{
    static uint32_t s_random = 1;
    s_random = s_random * 1664525u + 1013904223u;
    return (float)(int32_t)(s_random >> 8) / 8388608.0f - 1.0f;
}

static void add(made* m, const char* name, int rows, int cols)
{
    made_tensor* t = &m->tensors[m->count++];
    const size_t count = (size_t)(rows > 0 ? rows : 1) * (size_t)cols;
    CHECK(m->count <= MAX_TENSORS);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->values = malloc(count * sizeof *t->values);
    t->rows = rows;
    t->cols = cols;
    const bool is_norm = strstr(name, "norm_") != NULL && rows == 0 && cols == HEAD;
    for (size_t i = 0; i < count; i++)
        t->values[i] = is_norm   ? 1.0f + 0.3f * random_float()
                     : rows == 0 ? 0.3f * random_float()
                                 : 1.2f / sqrtf((float)cols) * random_float();
}

// A matrix, and a bias if the file has them.
static void add_linear(made* m, const char* prefix, const char* module, int rows, int cols)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s.weight", prefix, module);
    add(m, name, rows, cols);
    snprintf(name, sizeof name, "%s%s.bias", prefix, module);
    if (m->o.has_biases) add(m, name, 0, rows);
}

static void add_norm(made* m, const char* prefix, const char* module)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s.weight", prefix, module);
    add(m, name, 0, HEAD);
}

static const char *const
    s_modulation[2] = {"norm1.linear", "norm1_context.linear"},
    *const s_qkv[2][3] = {{"attn.to_q", "attn.to_k", "attn.to_v"},
                          {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"}},
    *const s_qk[2][2] = {{"attn.norm_q", "attn.norm_k"}, {"attn.norm_added_q", "attn.norm_added_k"}},
    *const s_out[2] = {"attn.to_out.0", "attn.to_add_out"},
    *const s_mlp[2][2][2] = {{{"ff.net.0.proj", "ff.net.2"}, {"ff_context.net.0.proj", "ff_context.net.2"}},
                             {{"ff.linear_in", "ff.linear_out"}, {"ff_context.linear_in", "ff_context.linear_out"}}},
    *const s_shared[3] = {"double_stream_modulation_img.linear", "double_stream_modulation_txt.linear",
                          "single_stream_modulation.linear"},
    *const s_time[2] = {"time_guidance_embed.timestep_embedder.linear_", "time_text_embed.timestep_embedder.linear_"};

static int mlp_rows(const options* o) { return o->is_gated ? 2 * HIDDEN : HIDDEN; }

static void make_file(made* m, options o)
{
    char prefix[64];
    m->o = o;
    m->count = 0;
    add_linear(m, "", "x_embedder", DIM, CHANNELS);
    add_linear(m, "", "context_embedder", DIM, FEATURES);
    add_linear(m, s_time[o.has_block_modulation], "1", TIME_HIDDEN, TIME);
    add_linear(m, s_time[o.has_block_modulation], "2", DIM, TIME_HIDDEN);
    for (int i = 0; i < 3 && !o.has_block_modulation; i++) add_linear(m, "", s_shared[i], (i < 2 ? 6 : 3) * DIM, DIM);
    for (int b = 0; b < o.doubles; b++) {
        snprintf(prefix, sizeof prefix, "transformer_blocks.%d.", b);
        for (int side = 0; side < 2; side++) {
            if (o.has_block_modulation) add_linear(m, prefix, s_modulation[side], 6 * DIM, DIM);
            for (int i = 0; i < 3; i++) add_linear(m, prefix, s_qkv[side][i], DIM, DIM);
            for (int i = 0; i < 2; i++) add_norm(m, prefix, s_qk[side][i]);
            add_linear(m, prefix, s_out[side], DIM, DIM);
            add_linear(m, prefix, s_mlp[o.is_gated][side][0], mlp_rows(&o), DIM);
            add_linear(m, prefix, s_mlp[o.is_gated][side][1], DIM, HIDDEN);
        }
    }
    for (int b = 0; b < o.singles; b++) {
        snprintf(prefix, sizeof prefix, "single_transformer_blocks.%d.", b);
        if (o.has_block_modulation) {
            add_linear(m, prefix, "norm.linear", 3 * DIM, DIM);
            for (int i = 0; i < 3; i++) add_linear(m, prefix, s_qkv[0][i], DIM, DIM);
            add_linear(m, prefix, "proj_mlp", mlp_rows(&o), DIM);
        } else add_linear(m, prefix, "attn.to_qkv_mlp_proj", 3 * DIM + mlp_rows(&o), DIM);
        for (int i = 0; i < 2; i++) add_norm(m, prefix, s_qk[0][i]);
        add_linear(m, prefix, o.has_block_modulation ? "proj_out" : "attn.to_out", DIM, DIM + HIDDEN);
    }
    add_linear(m, "", "norm_out.linear", 2 * DIM, DIM);
    add_linear(m, "", "proj_out", CHANNELS, DIM);
}

static void free_file(made* m)
{
    for (int i = 0; i < m->count; i++) free(m->tensors[i].values);
}

// ---- The same, plainly ----------------------------------------------------------------------------------------------

static const made_tensor* find(const made* m, const char* prefix, const char* module, const char* end)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s.%s", prefix, module, end);
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->tensors[i].name, name) == 0) return &m->tensors[i];
    return NULL;
}

// y = rows [first, first + count) of the layer, of x
static void layer_rows(const made* m, const char* prefix, const char* module, int first, int count, const double* x,
                       double* y)
{
    const made_tensor *w = find(m, prefix, module, "weight"), *bias = find(m, prefix, module, "bias");
    if (w == NULL) {
        CHECK(w != NULL);
        return;
    }
    for (int r = 0; r < count; r++) {
        y[r] = bias != NULL ? (double)bias->values[first + r] : 0.0;
        for (int c = 0; c < w->cols; c++) y[r] += (double)w->values[(first + r) * w->cols + c] * x[c];
    }
}

static void layer(const made* m, const char* prefix, const char* module, const double* x, double* y)
{
    const made_tensor* w = find(m, prefix, module, "weight");
    layer_rows(m, prefix, module, 0, w != NULL ? w->rows : 0, x, y);
}

static double silu(double x) { return x / (1.0 + exp(-x)); }
static double gelu(double x) { return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

// ln(x) * (1 + scale) + shift
static void plain_modulate(const double* x, const double* scale, const double* shift, double* y)
{
    double mean = 0.0, square = 0.0;
    for (int i = 0; i < DIM; i++) mean += x[i] / DIM;
    for (int i = 0; i < DIM; i++) square += (x[i] - mean) * (x[i] - mean) / DIM;
    for (int i = 0; i < DIM; i++) y[i] = (x[i] - mean) / sqrt(square + 1e-6) * (1.0 + scale[i]) + shift[i];
}

static void act(const options* o, const double* x, double* y) // [mlp_rows] -> [HIDDEN]
{
    for (int i = 0; i < HIDDEN; i++) y[i] = o->is_gated ? silu(x[i]) * x[HIDDEN + i] : gelu(x[i]);
}

// Norms a head and rotates its pairs by the axes' shares: 8, 4, 4 of three axes, 4 of each of four.
static void norm_and_rotate(const made* m, const char* prefix, const char* norm, const int* position, double* head)
{
    const made_tensor* weight = find(m, prefix, norm, "weight");
    const int three[] = {8, 4, 4}, four[] = {4, 4, 4, 4}, *share = m->o.axes == 3 ? three : four;
    double square = 0.0;
    for (int i = 0; i < HEAD; i++) square += head[i] * head[i] / HEAD;
    for (int i = 0; i < HEAD; i++) head[i] *= (double)weight->values[i] / sqrt(square + 1e-6);
    for (int a = 0, at = 0; a < m->o.axes; at += share[a++]) {
        for (int k = 0; k < share[a] / 2; k++) {
            const double angle = position[a] * pow(THETA, -2.0 * k / share[a]), p = head[at + 2 * k],
                         q = head[at + 2 * k + 1];
            head[at + 2 * k] = p * cos(angle) - q * sin(angle);
            head[at + 2 * k + 1] = q * cos(angle) + p * sin(angle);
        }
    }
}

typedef struct rows {
    int count, side[MAX_ROWS], position[MAX_ROWS][4];
    bool is_kept[MAX_ROWS];
    double x[MAX_ROWS][DIM];
} rows;

static double s_q[MAX_ROWS][3 * DIM], s_attended[MAX_ROWS][DIM];
static void attend(const rows* r)
{
    for (int i = 0; i < r->count; i++) {
        for (int h = 0; h < HEADS; h++) {
            double p[MAX_ROWS], sum = 0.0;
            for (int j = 0; j < r->count; j++) {
                p[j] = 0.0;
                if (r->is_kept[i] && !r->is_kept[j]) continue;
                for (int c = 0; c < HEAD; c++) p[j] += s_q[i][h * HEAD + c] * s_q[j][DIM + h * HEAD + c];
                sum += p[j] = exp(p[j] / sqrt((double)HEAD));
            }
            for (int c = 0; c < HEAD; c++) {
                double y = 0.0;
                for (int j = 0; j < r->count; j++) y += p[j] / sum * s_q[j][2 * DIM + h * HEAD + c];
                s_attended[i][h * HEAD + c] = y;
            }
        }
    }
}

// condition: of the time, and of time 0
static void plain_double(const made* m, const char* prefix, double condition[2][DIM], rows* r)
{
    double modulation[2][2][6 * DIM], y[DIM], hidden[2 * HIDDEN], active[HIDDEN];
    for (int i = 0; i < 4; i++)
        layer(m, m->o.has_block_modulation ? prefix : "",
              m->o.has_block_modulation ? s_modulation[i % 2] : s_shared[i % 2], condition[i / 2],
              modulation[i / 2][i % 2]);
    for (int i = 0; i < r->count; i++) {
        const int side = r->side[i];
        const double* v = modulation[r->is_kept[i]][side];
        plain_modulate(r->x[i], v + DIM, v, y);
        for (int k = 0; k < 3; k++) layer(m, prefix, s_qkv[side][k], y, s_q[i] + k * DIM);
        for (int k = 0; k < 2 * HEADS; k++)
            norm_and_rotate(m, prefix, s_qk[side][k / HEADS], r->position[i], s_q[i] + k * HEAD);
    }
    attend(r);
    for (int i = 0; i < r->count; i++) {
        const int side = r->side[i];
        const double* v = modulation[r->is_kept[i]][side];
        layer(m, prefix, s_out[side], s_attended[i], y);
        for (int c = 0; c < DIM; c++) r->x[i][c] += v[2 * DIM + c] * y[c];
        plain_modulate(r->x[i], v + 4 * DIM, v + 3 * DIM, y);
        layer(m, prefix, s_mlp[m->o.is_gated][side][0], y, hidden);
        act(&m->o, hidden, active);
        layer(m, prefix, s_mlp[m->o.is_gated][side][1], active, y);
        for (int c = 0; c < DIM; c++) r->x[i][c] += v[5 * DIM + c] * y[c];
    }
}

static void plain_single(const made* m, const char* prefix, double condition[2][DIM], rows* r)
{
    static double s_hidden[MAX_ROWS][2 * HIDDEN];
    double both[2][3 * DIM], y[DIM], joined[DIM + HIDDEN];
    const bool is_fused = !m->o.has_block_modulation;
    for (int i = 0; i < 2; i++)
        layer(m, is_fused ? "" : prefix, is_fused ? s_shared[2] : "norm.linear", condition[i], both[i]);
    for (int i = 0; i < r->count; i++) {
        const double* v = both[r->is_kept[i]];
        plain_modulate(r->x[i], v + DIM, v, y);
        if (is_fused) layer_rows(m, prefix, "attn.to_qkv_mlp_proj", 0, 3 * DIM, y, s_q[i]);
        for (int k = 0; k < 3 && !is_fused; k++) layer(m, prefix, s_qkv[0][k], y, s_q[i] + k * DIM);
        for (int k = 0; k < 2 * HEADS; k++)
            norm_and_rotate(m, prefix, s_qk[0][k / HEADS], r->position[i], s_q[i] + k * HEAD);
        if (is_fused) layer_rows(m, prefix, "attn.to_qkv_mlp_proj", 3 * DIM, mlp_rows(&m->o), y, s_hidden[i]);
        else layer(m, prefix, "proj_mlp", y, s_hidden[i]);
    }
    attend(r);
    for (int i = 0; i < r->count; i++) {
        memcpy(joined, s_attended[i], sizeof s_attended[i]);
        act(&m->o, s_hidden[i], joined + DIM);
        layer(m, prefix, is_fused ? "attn.to_out" : "proj_out", joined, y);
        for (int c = 0; c < DIM; c++) r->x[i][c] += both[r->is_kept[i]][2 * DIM + c] * y[c];
    }
}

typedef struct inputs {
    float latents[CHANNELS * IMAGE], reference[CHANNELS * REFERENCE], text[TEXT * FEATURES], time;
} inputs;

// SiLU of the embedded time.
static void plain_condition(const made* m, double time, double* condition)
{
    double e[TIME], hidden[TIME_HIDDEN];
    for (int k = 0; k < TIME / 2; k++) {
        const double angle = time * exp(-log(10000.0) * k / (TIME / 2));
        e[k] = cos(angle);
        e[TIME / 2 + k] = sin(angle);
    }
    layer(m, s_time[m->o.has_block_modulation], "1", e, hidden);
    for (int i = 0; i < TIME_HIDDEN; i++) hidden[i] = silu(hidden[i]);
    layer(m, s_time[m->o.has_block_modulation], "2", hidden, condition);
    for (int i = 0; i < DIM; i++) condition[i] = silu(condition[i]);
}

static void fill_inputs(inputs* in)
{
    float* const parts[] = {in->latents, in->reference, in->text};
    const int counts[] = {CHANNELS * IMAGE, CHANNELS * REFERENCE, TEXT * FEATURES};
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < counts[p]; i++) parts[p][i] = random_float();
    in->time = 613.0f;
}

// The velocity, [CHANNELS][IMAGE].
static void plain_forward(const made* m, const inputs* in, double* out)
{
    static rows s_rows;
    rows* r = &s_rows;
    double condition[2][DIM], from[FEATURES], v[2 * DIM];
    char prefix[64];
    memset(r, 0, sizeof *r);
    for (int i = 0; i < IMAGE + (m->o.references > 0 ? REFERENCE : 0); i++) {
        const bool is_target = i < IMAGE;
        const int at = is_target ? i : i - IMAGE, width = is_target ? WIDTH : 2;
        for (int c = 0; c < CHANNELS; c++)
            from[c] = (double)(is_target ? in->latents[c * IMAGE + at] : in->reference[c * REFERENCE + at]);
        layer(m, "", "x_embedder", from, r->x[r->count]);
        r->is_kept[r->count] = !is_target && m->o.keeps;
        const int position[4] = {is_target ? 0 : 10, at / width, at % width, 0};
        memcpy(r->position[r->count++], position, sizeof position);
    }
    for (int i = 0; i < TEXT; i++) {
        for (int c = 0; c < FEATURES; c++) from[c] = (double)in->text[i * FEATURES + c];
        layer(m, "", "context_embedder", from, r->x[r->count]);
        r->side[r->count] = 1;
        r->position[r->count++][3] = i;
    }
    plain_condition(m, (double)in->time, condition[0]);
    plain_condition(m, 0.0, condition[1]);
    for (int b = 0; b < m->o.doubles; b++) {
        snprintf(prefix, sizeof prefix, "transformer_blocks.%d.", b);
        plain_double(m, prefix, condition, r);
    }
    for (int b = 0; b < m->o.singles; b++) {
        snprintf(prefix, sizeof prefix, "single_transformer_blocks.%d.", b);
        plain_single(m, prefix, condition, r);
    }
    layer(m, "", "norm_out.linear", condition[0], v); // scale, then shift
    for (int i = 0; i < IMAGE; i++) {
        double y[DIM], channels[CHANNELS];
        plain_modulate(r->x[i], v, v + DIM, y);
        layer(m, "", "proj_out", y, channels);
        for (int c = 0; c < CHANNELS; c++) out[c * IMAGE + i] = channels[c];
    }
}

// ---- The module -----------------------------------------------------------------------------------------------------

typedef struct bound {
    sumi_tensor_set set;
    sumi_component part;
    sumi_weight_list list;
    sumi_flux_dit model;
    sumi_flux_dit_settings settings;
    sumi_error error;
} bound;

static sumi_result bind_file(bound* b, const made* m, const char* config)
{
    static char s_no_prefix[] = "";
    memset(b, 0, sizeof *b);
    sumi_tensor_set_init(&b->set, &s_heap, NULL);
    sumi_weight_list_init(&b->list, &s_heap);
    for (int i = 0; i < m->count; i++) {
        const made_tensor* t = &m->tensors[i];
        const sumi_tensor tensor = {.dtype = SUMI_DTYPE_F32,
                                    .rank = t->rows > 0 ? 2 : 1,
                                    .shape = {t->rows > 0 ? t->rows : t->cols, t->cols},
                                    .data = t->values,
                                    .bytes = (uint64_t)(t->rows > 0 ? t->rows : 1) * (uint64_t)t->cols * sizeof(float),
                                    .file_index = -1};
        CHECK_NUMBER(sumi_tensor_set_add(&b->set, t->name, strlen(t->name), &tensor, "set", &b->error), SUMI_OK);
    }
    b->settings = (sumi_flux_dit_settings){.axis_count = m->o.axes,
                                           .axis_share = {m->o.axes == 3 ? 2 : 1, 1, 1, m->o.axes == 3 ? 0 : 1},
                                           .theta = THETA,
                                           .reference_frame = 10,
                                           .keeps_references = m->o.keeps};
    b->part = (sumi_component){.present = true, .set = &b->set, .prefix = s_no_prefix, .path = "flux.safetensors"};
    sumi_binder binder = {.list = &b->list, .component = &b->part, .what = "the transformer", .error = &b->error};
    const sumi_module_config read = {config, config != NULL ? strlen(config) : 0, "made.json"};
    return sumi_flux_dit_module.bind(&b->model, &b->settings, &binder, &read);
}

static void close_file(bound* b)
{
    sumi_weight_list_close(&b->list);
    sumi_tensor_set_close(&b->set);
}

static void forward(bound* b, const inputs* in, bool has_reference, float* out)
{
    sumi_plan plan;
    sumi_error error = {0};
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, CHANNELS, IMAGE),
                     text = sumi_plan_bound(&plan, "features", SUMI_ELEMENT_ACTIVATION, TEXT, FEATURES),
                     times = sumi_plan_bound(&plan, "times", SUMI_ELEMENT_FLOAT, 1, 1),
                     reference = has_reference
                                   ? sumi_plan_bound(&plan, "reference", SUMI_ELEMENT_FLOAT, CHANNELS, REFERENCE)
                                   : SUMI_NO_VALUE;
    const sumi_prompt_features prompt = {.value = {text}, .count = {TEXT}};
    const sumi_reference_latents references[] = {{reference, 2, 2}};
    const sumi_evaluation evaluation = {0, 0};
    const sumi_evaluation_list list = {&evaluation, 1, 0};
    sumi_denoising job = {.height = HEIGHT,
                          .width = WIDTH,
                          .prompts = &prompt,
                          .prompt_count = 1,
                          .references = references,
                          .reference_count = has_reference,
                          .evaluation_count = 1,
                          .times = times,
                          .state = calloc(1, sumi_flux_dit_module.state_bytes)};
    sumi_flux_dit_module.write_prepare(&b->model, &plan, &job);
    sumi_flux_dit_module.write_layout(&b->model, &plan, &job, &list);
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
    const sumi_value v = sumi_flux_dit_module.write_evaluation(&b->model, &plan, &job, &list, x);
    if (v.id != 0) plan.values[v.id - 1].bound = true;
    free(job.state);
    const sumi_rates rates = s_runner->functions->rates(s_runner);
    sumi_result result = sumi_plan_finish(&plan, &error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, 1000, &error);
    if (result == SUMI_OK) result = plan_ready(s_runner, &plan, &error);
    if (result == SUMI_OK) {
        s_runner->functions->start(s_runner, &plan);
        plan_write_floats(s_runner, &plan, x, 0, in->latents, CHANNELS * IMAGE);
        plan_write_floats(s_runner, &plan, text, 0, in->text, TEXT * FEATURES);
        plan_write_floats(s_runner, &plan, times, 0, &in->time, 1);
        if (has_reference) plan_write_floats(s_runner, &plan, reference, 0, in->reference, CHANNELS * REFERENCE);
        result = plan_run_all(s_runner, &plan, NULL, &error);
        if (result == SUMI_OK) result = plan_read(s_runner, &plan, v, out, &error);
    }
    CHECK_NUMBER(result, SUMI_OK);
    CHECK_TEXT(error.text, "");
    plan_release(s_runner, &plan);
    sumi_plan_end(&plan);
}

// ---- Tests ----------------------------------------------------------------------------------------------------------

// The last three as FLUX.1 [schnell], LongCat and Ovis have them, as far as these sizes go.
static const options s_options[] = {
    {"FLUX.2", false, false, true, 4, 2, 2, 0, false},
    {"FLUX.2 with a reference", false, false, true, 4, 1, 3, 1, false},
    {"FLUX.2 with a reference that is kept", false, false, true, 4, 2, 3, 1, true},
    {"shared modulation, GELU, a kept reference", false, false, false, 4, 1, 1, 1, true},
    {"shared modulation, GELU", false, false, false, 4, 1, 1, 0, false},
    {"shared modulation, three axes", false, false, true, 3, 1, 2, 1, false},
    {"block modulation", true, false, true, 4, 2, 1, 0, false},
    {"block modulation, biases, gate", true, true, true, 4, 1, 2, 1, false},
    {"block modulation, biases, GELU, three axes", true, true, false, 3, 2, 4, 0, false},
    {"the same, fewer double blocks", true, true, false, 3, 1, 5, 0, false}};

TEST(every_option_computes_what_plain_loops_do)
{
    static made s_file;
    static inputs s_in;
    static bound s_bound;
    fill_inputs(&s_in);
    for (size_t i = 0; i < sizeof s_options / sizeof *s_options; i++) {
        float got[CHANNELS * IMAGE] = {0};
        double want[CHANNELS * IMAGE], error = 0.0, size = 0.0;
        make_file(&s_file, s_options[i]);
        CHECK_NUMBER(bind_file(&s_bound, &s_file, NULL), SUMI_OK);
        CHECK_TEXT(s_bound.error.text, "");
        CHECK_NUMBER(s_bound.model.double_count, s_options[i].doubles);
        CHECK_NUMBER(s_bound.model.single_count, s_options[i].singles);
        plain_forward(&s_file, &s_in, want);
        forward(&s_bound, &s_in, s_options[i].references > 0, got);
        for (int k = 0; k < CHANNELS * IMAGE; k++) {
            error += ((double)got[k] - want[k]) * ((double)got[k] - want[k]);
            size += want[k] * want[k];
        }
        printf("  %s: %.2g\n", s_options[i].name, sqrt(error / size));
        CHECK(size > 0.1 && sqrt(error / size) < 5e-6); // rounding in float was seen to give up to 1e-6
        close_file(&s_bound);
        free_file(&s_file);
    }
}

// Two items, whose rows have others between them if the reference is kept. A reused evaluation of the same latents at
// the same time, which extrapolates nothing, gives the whole one's velocities but for rounding, and so does what the whole
// one says that a reused one would have given, if it had kept what it has now.
static void check_reuse(bound* b, const inputs* in)
{
    static const sumi_evaluation_kind s_kinds[] = {SUMI_EVALUATION_PLAIN, SUMI_EVALUATION_WHOLE, SUMI_EVALUATION_REUSED,
                                                   SUMI_EVALUATION_WHOLE};
    static const sumi_evaluation s_both[] = {{0, 0}, {1, 0}};
    enum { KINDS = 4, COUNT = 2 * CHANNELS * IMAGE };
    const float sigmas[2] = {0.5f, 0.5f};
    float latents[COUNT], got[KINDS][COUNT];
    for (int i = 0; i < COUNT; i++) latents[i] = in->latents[i % (CHANNELS * IMAGE)] * (i < COUNT / 2 ? 1.0f : -0.5f);
    sumi_plan plan;
    sumi_error error = {0};
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, 2 * CHANNELS, IMAGE),
                     text = sumi_plan_bound(&plan, "features", SUMI_ELEMENT_ACTIVATION, TEXT, FEATURES),
                     times = sumi_plan_bound(&plan, "times", SUMI_ELEMENT_FLOAT, 1, 1),
                     reference = sumi_plan_bound(&plan, "reference", SUMI_ELEMENT_FLOAT, CHANNELS, REFERENCE);
    const sumi_prompt_features prompt = {.value = {text}, .count = {TEXT}};
    const sumi_reference_latents references[] = {{reference, 2, 2}};
    const sumi_evaluation_list list = {s_both, 2, 0};
    sumi_denoising job = {
        .height = HEIGHT,
        .width = WIDTH,
        .prompts = &prompt,
        .prompt_count = 1,
        .references = references,
        .reference_count = 1,
        .evaluation_count = 1,
        .times = times,
        .keeps_residuals = true,
        .extrapolation = {.sigma = {times, 0, true},
                          .whole_sigmas = sumi_plan_constant(&plan, "sigmas", SUMI_ELEMENT_FLOAT, 2, 1, sigmas),
                          .most_ahead = 1.0f},
        .state = calloc(1, sumi_flux_dit_module.state_bytes)};
    sumi_value v[KINDS];
    sumi_flux_dit_module.write_prepare(&b->model, &plan, &job);
    sumi_flux_dit_module.write_layout(&b->model, &plan, &job, &list);
    for (int i = 0; i < KINDS; i++) {
        job.kind = s_kinds[i];
        v[i] = sumi_flux_dit_module.write_evaluation(&b->model, &plan, &job, &list, x);
        if (i == 3) v[i] = job.reused_velocities;
        if (v[i].id != 0) plan.values[v[i].id - 1].bound = true;
    }
    free(job.state);
    const sumi_rates rates = s_runner->functions->rates(s_runner);
    sumi_result result = sumi_plan_finish(&plan, &error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, 1000, &error);
    if (result == SUMI_OK) result = plan_ready(s_runner, &plan, &error);
    if (result == SUMI_OK) {
        s_runner->functions->start(s_runner, &plan);
        plan_write_floats(s_runner, &plan, x, 0, latents, COUNT);
        plan_write_floats(s_runner, &plan, text, 0, in->text, TEXT * FEATURES);
        plan_write_floats(s_runner, &plan, times, 0, &in->time, 1);
        plan_write_floats(s_runner, &plan, reference, 0, in->reference, CHANNELS * REFERENCE);
        result = plan_run_all(s_runner, &plan, NULL, &error);
        for (int i = 0; i < KINDS && result == SUMI_OK; i++) result = plan_read(s_runner, &plan, v[i], got[i], &error);
    }
    CHECK_NUMBER(result, SUMI_OK);
    CHECK_TEXT(error.text, "");
    for (int i = 1; i < KINDS && result == SUMI_OK; i++) {
        double difference = 0.0, size = 0.0;
        for (int k = 0; k < COUNT; k++) {
            difference = fmax(difference, fabs((double)got[i][k] - (double)got[0][k]));
            size = fmax(size, fabs((double)got[0][k]));
        }
        if (i == 1) CHECK(difference == 0.0);
        if (!(difference <= 1e-5 * size)) printf("  evaluation %d is off by %g of %g\n", i, difference, size);
        CHECK(difference <= 1e-5 * size && size > 0.1);
    }
    plan_release(s_runner, &plan);
    sumi_plan_end(&plan);
}

TEST(a_reused_evaluation_adds_what_the_whole_one_kept)
{
    static const options s_cases[] = {{"", false, false, true, 4, 2, 2, 1, false},
                                      {"", false, false, true, 4, 2, 2, 1, true}};
    static made s_file;
    static inputs s_in;
    static bound s_bound;
    fill_inputs(&s_in);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        make_file(&s_file, s_cases[i]);
        CHECK_NUMBER(bind_file(&s_bound, &s_file, NULL), SUMI_OK);
        check_reuse(&s_bound, &s_in);
        close_file(&s_bound);
        free_file(&s_file);
    }
}

TEST(what_is_not_there_is_refused)
{
    static made s_file;
    static bound s_bound;
    static const struct {
        options o;
        const char *config, *says;
    } s_cases[] = {
        {{"", false, true, true, 4, 1, 1, 0, false}, NULL, "biases"},
        {{"", true, false, true, 4, 1, 1, 1, true}, NULL, "keeps the keys and values of references"},
        {{"", false, false, true, 4, 1, 1, 0, false}, "{\"guidance_embeds\": true}", "guidance_embeds"},
        {{"", false, false, true, 4, 1, 1, 0, false}, "{\"axes_dims_rope\": [8, 4, 4]}", "axes_dims_rope"},
        {{"", false, false, true, 4, 1, 1, 0, false}, "{\"axes_dims_rope\": [4, 4, 4, 6]}", "axes_dims_rope"},
        {{"", false, false, true, 4, 1, 1, 0, false}, "{\"num_layers\": 2}", "transformer_blocks.1."},
        {{"", false, false, true, 4, 1, 2, 0, false}, "{\"num_single_layers\": 1}", "num_single_layers"},
        {{"", false, false, true, 4, 0, 1, 0, false}, NULL, "transformer_blocks.0."},
        {{"", false, false, true, 4, 1, 1, 0, false}, "{\"patch_size\": 2}", "patch_size is 2"},
        {{"", false, false, true, 4, 1, 1, 0, false}, "{\"rope_theta\": 1}", "rope_theta is 1"}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        make_file(&s_file, s_cases[i].o);
        CHECK(bind_file(&s_bound, &s_file, s_cases[i].config) != SUMI_OK);
        if (strstr(s_bound.error.text, s_cases[i].says) == NULL) printf("  \"%s\"\n", s_bound.error.text);
        CHECK(strstr(s_bound.error.text, s_cases[i].says) != NULL);
        close_file(&s_bound);
        free_file(&s_file);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(0)) return 1;
    RUN(every_option_computes_what_plain_loops_do);
    RUN(a_reused_evaluation_adds_what_the_whole_one_kept);
    RUN(what_is_not_there_is_refused);
    end_cpu();
    TEST_END();
}
