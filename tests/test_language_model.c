// A language model as a text encoder, on a small random one: features after several layers, layers that are missing or
// not read, padding, configs. A plain loop in double computes the same. The numbers of released families are
// golden_run's business.
#include "cpu_runner.h"
#include "files/tensors.h"
#include "models/language_model.h"
#include <math.h>

enum {
    WIDTH = 24,
    HIDDEN = 40,
    HEADS = 4,
    KEY_HEADS = 2,
    DIM = 8,
    WORDS = 50,
    LAYERS = 6,
    TENSORS_PER_LAYER = 11,
    MAX_ROWS = 40
};
static const double s_theta = 1000.0;

// ---- The file -------------------------------------------------------------------------------------------------------

typedef struct layer_tensor {
    const char* name;
    int rows, cols; // rows 0: a vector
} layer_tensor;
enum { INPUT_NORM, Q, K, V, Q_NORM, K_NORM, OUT, MLP_NORM, GATE, UP, DOWN };
static const layer_tensor s_tensors[TENSORS_PER_LAYER] = {{"input_layernorm", 0, WIDTH},
                                                          {"self_attn.q_proj", HEADS* DIM, WIDTH},
                                                          {"self_attn.k_proj", KEY_HEADS* DIM, WIDTH},
                                                          {"self_attn.v_proj", KEY_HEADS* DIM, WIDTH},
                                                          {"self_attn.q_norm", 0, DIM},
                                                          {"self_attn.k_norm", 0, DIM},
                                                          {"self_attn.o_proj", WIDTH, HEADS* DIM},
                                                          {"post_attention_layernorm", 0, WIDTH},
                                                          {"mlp.gate_proj", HIDDEN, WIDTH},
                                                          {"mlp.up_proj", HIDDEN, WIDTH},
                                                          {"mlp.down_proj", WIDTH, HIDDEN}};

static float s_embedding[WORDS * WIDTH], s_final_norm[WIDTH];
static float s_values[LAYERS][TENSORS_PER_LAYER][HIDDEN * WIDTH];

static float random_float(void) // in [-1, 1)
{
    static uint32_t s_random = 1;
    s_random = s_random * 1664525u + 1013904223u;
    return (float)(int32_t)(s_random >> 8) / 8388608.0f - 1.0f;
}

static void make_values(void)
{
    for (int i = 0; i < WORDS * WIDTH; i++) s_embedding[i] = random_float();
    for (int i = 0; i < WIDTH; i++) s_final_norm[i] = 1.0f + 0.2f * random_float();
    for (int l = 0; l < LAYERS; l++) {
        for (int t = 0; t < TENSORS_PER_LAYER; t++) {
            const layer_tensor* tensor = &s_tensors[t];
            const bool is_norm = tensor->rows == 0;
            const float scale = is_norm ? 0.3f : 1.5f / sqrtf((float)tensor->cols);
            for (int i = 0; i < (is_norm ? 1 : tensor->rows) * tensor->cols; i++)
                s_values[l][t][i] = (is_norm ? 1.0f : 0.0f) + scale * random_float();
        }
    }
}

typedef struct encoder {
    sumi_tensor_set set;
    sumi_component part;
    sumi_weight_list list;
    sumi_language_model model;
    sumi_error error;
} encoder;

static void add_tensor(encoder* e, const char* name, const float* values, int rows, int cols)
{
    const sumi_tensor tensor = {.dtype = SUMI_DTYPE_F32,
                                .rank = rows > 0 ? 2 : 1,
                                .shape = {rows > 0 ? rows : cols, cols},
                                .data = values,
                                .bytes = (uint64_t)(rows > 0 ? rows : 1) * (uint64_t)cols * sizeof(float),
                                .file_index = -1};
    CHECK_NUMBER(sumi_tensor_set_add(&e->set, name, strlen(name), &tensor, "set", &e->error), SUMI_OK);
}

// Binds a file that has the first `layers` layers, with config.json or NULL.
static sumi_result open_encoder(encoder* e, const sumi_language_model_settings* settings, int layers,
                                const char* config)
{
    memset(e, 0, sizeof *e);
    sumi_tensor_set_init(&e->set, &s_heap, NULL);
    sumi_weight_list_init(&e->list, &s_heap);
    add_tensor(e, "model.embed_tokens.weight", s_embedding, WORDS, WIDTH);
    add_tensor(e, "model.norm.weight", s_final_norm, 0, WIDTH);
    for (int l = 0; l < layers; l++) {
        for (int t = 0; t < TENSORS_PER_LAYER; t++) {
            char name[96];
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", l, s_tensors[t].name);
            add_tensor(e, name, s_values[l][t], s_tensors[t].rows, s_tensors[t].cols);
        }
    }
    static char s_no_prefix[] = "";
    e->part = (sumi_component){.present = true, .set = &e->set, .prefix = s_no_prefix, .path = "encoder.safetensors"};
    sumi_binder binder = {.list = &e->list, .component = &e->part, .what = "the text encoder", .error = &e->error};
    const sumi_module_config read = {config, config != NULL ? strlen(config) : 0, "made.json"};
    return sumi_language_model_module.bind(&e->model, settings, &binder, &read);
}

static void close_encoder(encoder* e)
{
    sumi_weight_list_close(&e->list);
    sumi_tensor_set_close(&e->set);
}

// The features of all rows, to be freed; NULL after a failure. ids: as the encoder reads them, with padding.
static float* encode(encoder* e, const int32_t* ids, const int32_t* counts, int32_t prompts, int32_t padded)
{
    sumi_plan plan;
    sumi_error error = {0};
    float* out = NULL;
    int32_t rows = 0;
    for (int32_t p = 0; p < prompts; p++) rows += padded > 0 ? padded : counts[p];
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
    const sumi_value read = sumi_plan_bound(&plan, "ids", SUMI_ELEMENT_INT, rows, 1),
                     made = sumi_language_model_module.write(
                         &e->model, &plan,
                         &(sumi_text_batch){
                             .ids = read, .counts = counts, .prompt_count = prompts, .padded_rows = padded});
    if (made.id != 0) plan.values[made.id - 1].bound = true;
    const sumi_rates rates = s_runner->functions->rates(s_runner);
    sumi_result result = sumi_plan_finish(&plan, &error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, 1000, &error);
    if (result == SUMI_OK) result = plan_ready(s_runner, &plan, &error);
    if (result == SUMI_OK) {
        const int32_t width = sumi_language_model_module.properties(&e->model).width;
        CHECK_NUMBER(sumi_plan_info(&plan, made)->rows, rows);
        CHECK_NUMBER(sumi_plan_info(&plan, made)->cols, width);
        out = malloc((size_t)rows * (size_t)width * sizeof *out);
        s_runner->functions->start(s_runner, &plan);
        s_runner->functions->write(s_runner, &plan, read, 0, ids, (uint64_t)rows * 4);
        result = plan_run_all(s_runner, &plan, NULL, &error);
        if (result == SUMI_OK) result = plan_read(s_runner, &plan, made, out, &error);
    }
    CHECK_NUMBER(result, SUMI_OK);
    CHECK_TEXT(error.text, "");
    plan_release(s_runner, &plan);
    sumi_plan_end(&plan);
    return out;
}

// ---- The same, plainly ----------------------------------------------------------------------------------------------

static void plain_norm(const double* x, const float* weight, int count, double* y)
{
    double square = 0;
    for (int i = 0; i < count; i++) square += x[i] * x[i];
    const double factor = 1.0 / sqrt(square / count + 1e-6);
    for (int i = 0; i < count; i++) y[i] = x[i] * factor * (double)weight[i];
}

static void plain_product(const double* x, const float* weight, const layer_tensor* shape, double* y)
{
    for (int r = 0; r < shape->rows; r++) {
        y[r] = 0;
        for (int c = 0; c < shape->cols; c++) y[r] += (double)weight[r * shape->cols + c] * x[c];
    }
}

static void plain_rotate(double* head, int position)
{
    for (int k = 0; k < DIM / 2; k++) {
        const double angle = position * pow(s_theta, -2.0 * k / DIM), a = head[k], b = head[k + DIM / 2];
        head[k] = a * cos(angle) - b * sin(angle);
        head[k + DIM / 2] = b * cos(angle) + a * sin(angle);
    }
}

// h after every layer, [LAYERS + 1][MAX_ROWS][WIDTH], for `count` tokens and padding up to `rows`. Row i sees the keys
// of the tokens 0 to i, and padding those of all tokens.
static double s_h[LAYERS + 1][MAX_ROWS][WIDTH];
static void plain_encode(const int32_t* ids, int count, int rows)
{
    static double s_q[MAX_ROWS][HEADS * DIM], s_k[MAX_ROWS][KEY_HEADS * DIM], s_v[MAX_ROWS][KEY_HEADS * DIM];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < WIDTH; c++) s_h[0][r][c] = (double)s_embedding[ids[r] * WIDTH + c];
    for (int l = 0; l < LAYERS; l++) {
        float(*w)[HIDDEN * WIDTH] = s_values[l];
        double normed[WIDTH], head[DIM];
        for (int r = 0; r < rows; r++) {
            plain_norm(s_h[l][r], w[INPUT_NORM], WIDTH, normed);
            plain_product(normed, w[Q], &s_tensors[Q], s_q[r]);
            plain_product(normed, w[K], &s_tensors[K], s_k[r]);
            plain_product(normed, w[V], &s_tensors[V], s_v[r]);
            for (int i = 0; i < HEADS + KEY_HEADS; i++) {
                double* values = i < HEADS ? &s_q[r][i * DIM] : &s_k[r][(i - HEADS) * DIM];
                plain_norm(values, w[i < HEADS ? Q_NORM : K_NORM], DIM, head);
                plain_rotate(head, r);
                memcpy(values, head, sizeof head);
            }
        }
        for (int r = 0; r < rows; r++) {
            const int keys = r < count ? r + 1 : count;
            double mixed[HEADS * DIM] = {0}, y[HIDDEN], gate[HIDDEN], up[HIDDEN];
            for (int i = 0; i < HEADS; i++) {
                const int of = i / (HEADS / KEY_HEADS) * DIM;
                double p[MAX_ROWS], sum = 0;
                for (int k = 0; k < keys; k++) {
                    double score = 0;
                    for (int d = 0; d < DIM; d++) score += s_q[r][i * DIM + d] * s_k[k][of + d];
                    sum += p[k] = exp(score / sqrt((double)DIM));
                }
                for (int k = 0; k < keys; k++)
                    for (int d = 0; d < DIM; d++) mixed[i * DIM + d] += p[k] / sum * s_v[k][of + d];
            }
            plain_product(mixed, w[OUT], &s_tensors[OUT], y);
            double* h = s_h[l + 1][r];
            for (int c = 0; c < WIDTH; c++) h[c] = s_h[l][r][c] + y[c];
            plain_norm(h, w[MLP_NORM], WIDTH, normed);
            plain_product(normed, w[GATE], &s_tensors[GATE], gate);
            plain_product(normed, w[UP], &s_tensors[UP], up);
            for (int i = 0; i < HIDDEN; i++) gate[i] *= up[i] / (1.0 + exp(-gate[i]));
            plain_product(gate, w[DOWN], &s_tensors[DOWN], y);
            for (int c = 0; c < WIDTH; c++) h[c] += y[c];
        }
    }
}

// Float sums of up to 40 products in 6 layers; 2e-7 is what is seen.
#define TOLERANCE 3e-6

// How far features of `rows` rows are from the plain ones after the layers `taps`, in parts of their size.
static double distance(const float* features, int rows, const int32_t* taps, int tap_count)
{
    double difference = 0, size = 0;
    for (int r = 0; r < rows && features != NULL; r++) {
        for (int c = 0; c < tap_count * WIDTH; c++) {
            const double want = s_h[taps[c / WIDTH]][r][c % WIDTH];
            difference += pow((double)features[r * tap_count * WIDTH + c] - want, 2);
            size += want * want;
        }
    }
    return size > 0 ? sqrt(difference / size) : HUGE_VAL;
}

static void make_ids(int32_t* ids, int count, int rows, int seed)
{
    for (int i = 0; i < rows; i++) ids[i] = i < count ? (i * 7 + seed) % (WORDS - 1) : WORDS - 1;
}

// ---- Taps -----------------------------------------------------------------------------------------------------------

static const sumi_language_model_settings s_tapped = {.name = "a tapped model",
                                                      .tap_count = 3,
                                                      .taps = {1, 3, 4},
                                                      .has_qk_norm = true,
                                                      .activation = SUMI_ACT_SILU,
                                                      .theta = 1000.0};

TEST(features_after_several_layers_stand_side_by_side)
{
    const int32_t count = 11;
    int32_t ids[MAX_ROWS];
    encoder e;
    make_ids(ids, count, count, 3);
    plain_encode(ids, count, count);
    CHECK_NUMBER(open_encoder(&e, &s_tapped, LAYERS, NULL), SUMI_OK);
    const sumi_text_encoder_properties properties = sumi_language_model_module.properties(&e.model);
    CHECK_NUMBER(properties.width, 3 * WIDTH);
    CHECK_NUMBER(properties.row_width, WIDTH);
    CHECK(properties.takes_padding);
    float* features = encode(&e, ids, &count, 1, 0);
    CHECK(distance(features, count, s_tapped.taps, 3) < TOLERANCE);
    free(features);
    close_encoder(&e);
}

TEST(one_tap_ends_the_network)
{
    const int32_t count = 5;
    int32_t ids[MAX_ROWS];
    sumi_language_model_settings settings = s_tapped;
    settings.tap_count = 1;
    settings.taps[0] = 2;
    encoder e;
    make_ids(ids, count, count, 3);
    plain_encode(ids, count, count);
    CHECK_NUMBER(open_encoder(&e, &settings, LAYERS, NULL), SUMI_OK);
    CHECK_NUMBER(e.model.layer_count, 2);
    float* features = encode(&e, ids, &count, 1, 0);
    CHECK(distance(features, count, settings.taps, 1) < TOLERANCE);
    free(features);
    close_encoder(&e);
}

// Whether a file has them or not, nothing of them is bound.
TEST(layers_after_the_last_tap_are_not_read)
{
    static const char* const s_configs[] = {NULL, "{\"num_hidden_layers\": 6}"};
    const int32_t count = 9;
    int32_t ids[MAX_ROWS];
    float* features[2];
    uint64_t bytes[2];
    make_ids(ids, count, count, 5);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) {
            encoder e;
            CHECK_NUMBER(open_encoder(&e, &s_tapped, k == 0 ? LAYERS : 4, s_configs[i]), SUMI_OK);
            CHECK_TEXT(e.error.text, "");
            CHECK_NUMBER(e.model.layer_count, 4);
            for (size_t w = 0; w < e.list.count; w++) {
                CHECK(strstr(e.list.weights[w]->name, "layers.4") == NULL);
                CHECK(strstr(e.list.weights[w]->name, "model.norm") == NULL);
            }
            bytes[k] = e.list.weight_bytes;
            features[k] = encode(&e, ids, &count, 1, 0);
            close_encoder(&e);
        }
        CHECK_NUMBER(bytes[0], bytes[1]);
        CHECK(features[0] != NULL && features[1] != NULL);
        CHECK_NUMBER(memcmp(features[0], features[1], (size_t)count * 3 * WIDTH * sizeof(float)), 0);
        free(features[0]), free(features[1]);
    }
}

TEST(a_file_with_too_few_layers_is_refused)
{
    static const struct {
        int layers;
        const char *config, *says;
        sumi_result result;
    } s_cases[] = {{3, NULL, "has 3 layers, and the model reads its features after layer 4", SUMI_TENSOR_MISMATCH},
                   {6, "{\"num_hidden_layers\": 6}", "", SUMI_OK},
                   {3, "{\"num_hidden_layers\": 3}", "has 3 layers", SUMI_TENSOR_MISMATCH},
                   {3, "{\"num_hidden_layers\": 6}", "model.layers.3.input_layernorm.weight", SUMI_TENSOR_MISSING},
                   {6, "{\"num_hidden_layers\": 5}", "num_hidden_layers is 5", SUMI_TENSOR_MISMATCH}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        encoder e;
        CHECK_NUMBER(open_encoder(&e, &s_tapped, s_cases[i].layers, s_cases[i].config), s_cases[i].result);
        if (strstr(e.error.text, s_cases[i].says) == NULL) printf("  \"%s\"\n", e.error.text);
        CHECK(strstr(e.error.text, s_cases[i].says) != NULL);
        close_encoder(&e);
    }
}

// ---- Padding --------------------------------------------------------------------------------------------------------

TEST(padding_has_features_of_the_tokens_before_it)
{
    enum { PADDED = 37 };
    static const int32_t s_counts[] = {1, 12, 36, 37};
    int32_t ids[MAX_ROWS];
    encoder e;
    CHECK_NUMBER(open_encoder(&e, &s_tapped, LAYERS, NULL), SUMI_OK);
    for (size_t i = 0; i < sizeof s_counts / sizeof *s_counts; i++) {
        make_ids(ids, s_counts[i], PADDED, 11);
        plain_encode(ids, s_counts[i], PADDED);
        float* features = encode(&e, ids, &s_counts[i], 1, PADDED);
        CHECK(distance(features, PADDED, s_tapped.taps, 3) < TOLERANCE);
        // The tokens have the bits of a text without padding, except of a few tokens: products of few rows add in
        // another order.
        float* alone = encode(&e, ids, &s_counts[i], 1, 0);
        CHECK(features != NULL && alone != NULL);
        CHECK(s_counts[i] < 8 || memcmp(features, alone, (size_t)s_counts[i] * 3 * WIDTH * sizeof(float)) == 0);
        free(features), free(alone);
    }
    close_encoder(&e);
}

TEST(padded_prompts_of_a_batch_equal_single_ones)
{
    enum { PADDED = 20, PROMPTS = 4 };
    static const int32_t s_counts[PROMPTS] = {3, 20, 1, 13};
    int32_t ids[PROMPTS * PADDED];
    encoder e;
    CHECK_NUMBER(open_encoder(&e, &s_tapped, LAYERS, NULL), SUMI_OK);
    for (int p = 0; p < PROMPTS; p++) make_ids(ids + p * PADDED, s_counts[p], PADDED, p);
    float* all = encode(&e, ids, s_counts, PROMPTS, PADDED);
    for (int p = 0; p < PROMPTS; p++) {
        float* one = encode(&e, ids + p * PADDED, &s_counts[p], 1, PADDED);
        CHECK(all != NULL && one != NULL);
        CHECK_NUMBER(memcmp(all + p * PADDED * 3 * WIDTH, one, PADDED * 3 * WIDTH * sizeof *one), 0);
        free(one);
    }
    free(all);
    close_encoder(&e);
}

// ---- Configs --------------------------------------------------------------------------------------------------------

// Older and newer versions of transformers write the same in other places.
TEST(configs_of_all_versions_are_read)
{
    static const struct {
        const char *config, *says;
        double theta;
    } s_cases[] = {
        {"{\"torch_dtype\": \"bfloat16\", \"num_hidden_layers\": 6, \"rope_theta\": 5000, \"rope_scaling\": null, "
         "\"sliding_window\": null, \"use_sliding_window\": false, \"max_window_layers\": 6}",
         "", 5000},
        {"{\"dtype\": \"bfloat16\", \"num_hidden_layers\": 6, \"rope_parameters\": {\"rope_theta\": 7000.0, "
         "\"rope_type\": \"default\"}, \"sliding_window\": null, \"layer_types\": [\"full_attention\", "
         "\"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]}",
         "", 7000},
        {"{\"rope_parameters\": {\"rope_theta\": 7000.0, \"rope_type\": \"yarn\", \"factor\": 4.0}}",
         "rope_scaling is \"yarn\", which is not supported", 0},
        {"{\"layer_types\": [\"full_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"]}",
         "sliding windows are not supported", 0},
        {"{\"rms_norm_eps\": 1e-6, \"hidden_size\": 32}", "hidden_size is 32", 0}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        encoder e;
        const sumi_result result = open_encoder(&e, &s_tapped, LAYERS, s_cases[i].config);
        CHECK((result == SUMI_OK) == (s_cases[i].theta > 0));
        if (strstr(e.error.text, s_cases[i].says) == NULL) printf("  %d, \"%s\"\n", (int)result, e.error.text);
        CHECK(strstr(e.error.text, s_cases[i].says) != NULL);
        if (result == SUMI_OK) CHECK(e.model.theta == s_cases[i].theta);
        close_encoder(&e);
    }
}

// The axes of the rotation: where the config has them, at the top or in text_config, in the older form or the newer one.
TEST(axes_of_the_rotation_are_read_from_every_form_of_config)
{
    static const struct {
        const char *config, *says;
        double theta;
        int32_t frames;
        bool interleaves;
    } s_cases[] = {
        {NULL, "", 9000, 2, true},
        {"{\"rope_theta\": 1000000}", "made.json: has no mrope_section, so this is not Qwen3-VL", 0, 0, false},
        {"{\"text_config\": {\"rope_theta\": 5000, \"rope_scaling\": {\"mrope_interleaved\": true, "
         "\"mrope_section\": [1, 2, 1], \"rope_type\": \"default\"}}}",
         "", 5000, 1, true},
        {"{\"text_config\": {\"rope_parameters\": {\"rope_theta\": 5000, \"mrope_interleaved\": true, "
         "\"mrope_section\": [1, 2, 1], \"rope_type\": \"default\"}}}",
         "", 5000, 1, true},
        {"{\"rope_scaling\": {\"mrope_interleaved\": false, \"mrope_section\": [1, 2, 1]}}", "", 9000, 1, false},
        {"{\"text_config\": {\"rope_scaling\": {\"mrope_section\": [1, 2, 2]}}}", "whose sum is 4", 0, 0, false},
        {"{\"text_config\": {\"rope_scaling\": {\"mrope_interleaved\": 1}}}", "expected true or false", 0, 0, false}};
    const sumi_language_model_settings settings = {.name = "Qwen3-VL",
                                                   .has_qk_norm = true,
                                                   .takes_pictures = true,
                                                   .activation = SUMI_ACT_SILU,
                                                   .theta = 9000,
                                                   .sections = {24, 12, 12},
                                                   .interleaves_axes = true};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        encoder e;
        const sumi_result result = open_encoder(&e, &settings, LAYERS, s_cases[i].config);
        CHECK((result == SUMI_OK) == (s_cases[i].theta > 0));
        if (strstr(e.error.text, s_cases[i].says) == NULL) printf("  %d, \"%s\"\n", (int)result, e.error.text);
        CHECK(strstr(e.error.text, s_cases[i].says) != NULL);
        if (result == SUMI_OK) {
            CHECK(e.model.theta == s_cases[i].theta);
            CHECK_NUMBER(e.model.sections[0], s_cases[i].frames);
            CHECK(e.model.interleaves_axes == s_cases[i].interleaves);
        }
        close_encoder(&e);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(0)) return 1;
    make_values();
    RUN(features_after_several_layers_stand_side_by_side);
    RUN(one_tap_ends_the_network);
    RUN(layers_after_the_last_tap_are_not_read);
    RUN(a_file_with_too_few_layers_is_refused);
    RUN(padding_has_features_of_the_tokens_before_it);
    RUN(padded_prompts_of_a_batch_equal_single_ones);
    RUN(configs_of_all_versions_are_read);
    RUN(axes_of_the_rotation_are_read_from_every_form_of_config);
    end_cpu();
    TEST_END();
}
