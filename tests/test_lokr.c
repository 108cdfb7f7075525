// Adapters as Kronecker products: factors in every form, files of a trainer, and the picture of merged weights.
#include "merged_weights.h"
#include "models/network_state.h"
#include "models/pipeline.h"
#include "network_fixture.h"
#include <stdatomic.h>

// ---- LoKr ----------------------------------------------------------------------------------------------------------

// A factor of a case: whole when rank is 0.
typedef struct stored_factor {
    int rows, cols, rank;
} stored_factor;

typedef struct lokr_case {
    const char* module; // as a path of the file
    const char* weight; // that is changed
    stored_factor w1, w2;
    float alpha;        // 0: no tensor
    const char* header; // lora_alpha in the file's header, or NULL
    double scale;
    int row_begin; // of the change
    int rank;      // of the low-rank change that is made of it; 0: it is kept as factors
    sumi_dtype dtype;
} lokr_case;

typedef struct lokr_file {
    char names[5][96];
    float floats[5][64 * 192];
    uint16_t halves[4][64 * 192];
    sumi_tensor tensors[5];
    int count;
} lokr_file;

static void store(lokr_file* f, const char* module, const char* suffix, int rows, int cols, sumi_dtype dtype, int seed)
{
    float* x = f->floats[f->count];
    fill(x, (size_t)rows * (size_t)cols, seed);
    if (dtype == SUMI_DTYPE_BF16) { // floats keep what bfloat16 holds
        for (int i = 0; i < rows * cols; i++) {
            f->halves[f->count][i] = sumi_float_to_bf16(x[i]);
            x[i] = sumi_bf16_to_float(f->halves[f->count][i]);
        }
    }
    snprintf(f->names[f->count], sizeof f->names[0], "%s%s", module, suffix);
    f->tensors[f->count] =
        (sumi_tensor){.name = f->names[f->count],
                      .dtype = dtype,
                      .rank = 2,
                      .shape = {rows, cols},
                      .data = dtype == SUMI_DTYPE_BF16 ? (const void*)f->halves[f->count] : (const void*)x,
                      .bytes = (uint64_t)(rows * cols) * (dtype == SUMI_DTYPE_BF16 ? 2 : 4)};
    f->count++;
}

// The factor in double, from what is stored of it.
static void store_factor(lokr_file* f, const lokr_case* c, int which, double* out)
{
    const stored_factor* s = which == 1 ? &c->w1 : &c->w2;
    char suffix[16];
    const float *a = f->floats[f->count], *b = f->floats[f->count + 1];
    snprintf(suffix, sizeof suffix, ".lokr_w%d%s", which, s->rank > 0 ? "_a" : "");
    store(f, c->module, suffix, s->rows, s->rank > 0 ? s->rank : s->cols, c->dtype, 11 * which);
    if (s->rank > 0) {
        snprintf(suffix, sizeof suffix, ".lokr_w%d_b", which);
        store(f, c->module, suffix, s->rank, s->cols, c->dtype, 11 * which + 1);
    }
    for (int i = 0; i < s->rows; i++) {
        for (int j = 0; j < s->cols; j++) {
            double sum = s->rank > 0 ? 0.0 : (double)a[i * s->cols + j];
            for (int k = 0; k < s->rank; k++) sum += (double)a[i * s->rank + k] * (double)b[k * s->cols + j];
            out[i * s->cols + j] = sum;
        }
    }
}

static void try_lokr(const sumi_network* network, const lokr_case* c)
{
    static lokr_file s_f;
    static double s_w1[64 * 192], s_w2[64 * 192];
    s_f.count = 0;
    store_factor(&s_f, c, 1, s_w1);
    store_factor(&s_f, c, 2, s_w2);
    if (c->alpha != 0) {
        store(&s_f, c->module, ".alpha", 1, 1, SUMI_DTYPE_F32, 1);
        s_f.tensors[s_f.count - 1].rank = 0;
        s_f.floats[s_f.count - 1][0] = c->alpha;
    }
    const sumi_metadata header = {"lora_alpha", c->header};
    write_tensors(scratch("lokr.safetensors"), s_f.tensors, (size_t)s_f.count, &header, c->header != NULL);
    sumi_error error = {0};
    sumi_adapter_file* file = NULL;
    CHECK_NUMBER(open_adapter_file(&s_heap, network, scratch("lokr.safetensors"), &error, &file), SUMI_OK);
    if (file == NULL) {
        printf("  %s: %s\n", c->module, error.text);
        return;
    }
    const sumi_adapter* adapter = sumi_adapter_get(file);
    CHECK_NUMBER(adapter->delta_count, 1);
    const sumi_delta* delta = &adapter->deltas[0];
    const sumi_weight* weight = network->weights.weights[delta->weight_index];
    CHECK_TEXT(weight->name, c->weight);
    CHECK_NUMBER(delta->row_begin, c->row_begin);
    CHECK_NUMBER(delta->kind, c->rank > 0 ? SUMI_DELTA_LOW_RANK : SUMI_DELTA_KRONECKER);
    CHECK_NEAR(delta->scale, c->scale, 1e-6, 0);
    const int rows = c->w1.rows * c->w2.rows, cols = c->w1.cols * c->w2.cols;
    CHECK_NUMBER(cols, weight->cols);
    if (c->rank > 0) CHECK_NUMBER(delta->down.rows, c->rank);
    const sumi_adapter_use use = {adapter, -0.7f};
    float merged[192], plain[192];
    for (int r = 0; r < weight->rows; r++) {
        sumi_weight_to_float(weight, r, 1, plain, cols);
        merged_row(weight, &use, 1, r, merged);
        const int local = r - c->row_begin, b = c->w2.rows, d = c->w2.cols;
        for (int k = 0; k < cols; k++) {
            double change = local < 0 || local >= rows
                              ? 0.0
                              : -0.7 * c->scale * s_w1[local / b * c->w1.cols + k / d] * s_w2[local % b * d + k % d];
            CHECK_NEAR(merged[k], (double)plain[k] + change, 3e-6, 1e-6);
        }
    }
    sumi_adapter_close(file);
}

TEST(lokr_factors_become_the_change_that_they_describe)
{
    static const lokr_case s_cases[] = {
        // one factored, r = 2 of a layer of 64 x 64: unit matrices on the smaller side
        {"lycoris_layers_0_attention_to_q",
         "layers.0.attention.qkv",
         {8, 8, 0},
         {8, 8, 2},
         1.0f,
         NULL,
         0.5,
         0,
         16,
         SUMI_DTYPE_F32},
        {"lycoris_layers_0_attention_to_k",
         "layers.0.attention.qkv",
         {16, 4, 0},
         {4, 16, 2},
         6.0f,
         NULL,
         3.0,
         64,
         8,
         SUMI_DTYPE_BF16},
        {"layers.0.attention.to_v",
         "layers.0.attention.qkv",
         {2, 32, 0},
         {32, 2, 1},
         0,
         NULL,
         1.0,
         128,
         2,
         SUMI_DTYPE_F32},
        {"base_model.model.layers.0.attention.qkv",
         "layers.0.attention.qkv",
         {8, 8, 0},
         {24, 8, 2},
         0,
         "1",
         0.5,
         0,
         16,
         SUMI_DTYPE_F32},
        {"lycoris_layers_1_attention_out",
         "layers.1.attention.to_out.0",
         {8, 8, 2},
         {8, 8, 2},
         1.0f,
         "7",
         0.5,
         0,
         4,
         SUMI_DTYPE_F32},
        // kept as factors: whole ones, whose alpha says nothing, and products that are not small
        {"lycoris_layers_0_attention_to_q",
         "layers.0.attention.qkv",
         {8, 8, 0},
         {8, 8, 0},
         5.0f,
         "7",
         1.0,
         0,
         0,
         SUMI_DTYPE_F32},
        {"lycoris_layers_0_attention_qkv",
         "layers.0.attention.qkv",
         {3, 2, 0},
         {64, 32, 0},
         0,
         NULL,
         1.0,
         0,
         0,
         SUMI_DTYPE_BF16},
        {"lycoris_layers_0_feed_forward_w3",
         "layers.0.feed_forward.w1w3",
         {8, 4, 0},
         {16, 16, 5},
         2.0f,
         NULL,
         0.4,
         128,
         0,
         SUMI_DTYPE_F32},
        {"lycoris_layers_1_attention_out",
         "layers.1.attention.to_out.0",
         {8, 8, 3},
         {8, 8, 0},
         6.0f,
         NULL,
         2.0,
         0,
         0,
         SUMI_DTYPE_BF16},
        {"lycoris_layers_1_attention_out",
         "layers.1.attention.to_out.0",
         {8, 8, 5},
         {8, 8, 5},
         1.0f,
         "7",
         0.2,
         0,
         0,
         SUMI_DTYPE_F32},
        // both whole, and small
        {"lycoris_layers_1_attention_out",
         "layers.1.attention.to_out.0",
         {64, 1, 0},
         {1, 64, 0},
         5.0f,
         "7",
         1.0,
         0,
         1,
         SUMI_DTYPE_F32},
    };
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    const uint64_t held = atomic_load(&s_heap.allocated_bytes);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        const int errors = t_errors;
        try_lokr(network, &s_cases[i]);
        if (t_errors > errors) printf("  case %d\n", (int)i);
    }
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), held);
    sumi_network_close(network);
}

// Files as a trainer saves them, for a transformer of which the tensors' names and shapes are all that is needed here.
TEST(files_of_a_trainer_are_read_whole)
{
    static const struct {
        const char* path;
        int32_t count, norms, factors; // of its changes: all, of norms, kept as factors
        float scale;                   // of those of layers
    } s_cases[] = {{"tests/golden/newbie/adapters/lora_peft", 20, 0, 0, 0.5f},
                   {"tests/golden/newbie/adapters/lokr_full", 38, 18, 20, 1.0f},
                   {"tests/golden/newbie/adapters/lokr_low/adapter_model.safetensors", 20, 0, 0, 0.5f}};
    enum { MOST = 256 };
    static sumi_weight s_weights[MOST];
    static const sumi_weight* s_list[MOST];
    static sumi_adapter_target s_targets[MOST];
    static char s_paths[MOST][SUMI_NAME_BYTES];
    sumi_tensor_set set;
    if (!read_tensors(&set, "tests/golden/newbie/model/transformer", "diffusion_pytorch_model")) {
        CHECK(!"the transformer opens");
        return;
    }
    sumi_network network = {.heap = &s_heap, .is_open = true};
    network.info.family = "newbie";
    network.weights = (sumi_weight_list){.weights = s_list, .targets = s_targets};
    for (size_t i = 0; i < set.count; i++) {
        const sumi_tensor* t = &set.tensors[i];
        const size_t length = strlen(t->name), k = network.weights.count;
        if (length < 7 || strcmp(t->name + length - 7, ".weight") != 0 || t->rank > 2 || k == MOST) continue;
        const int32_t rows = t->rank == 2 ? (int32_t)t->shape[0] : 1, cols = (int32_t)t->shape[t->rank - 1];
        s_weights[k] = (sumi_weight){.name = t->name, .rows = rows, .cols = cols, .index = (int32_t)k};
        s_list[k] = &s_weights[k];
        CHECK(sumi_fold_path(t->name, length - 7, s_paths[k], sizeof s_paths[k]));
        s_targets[k] = (sumi_adapter_target){
            .path = s_paths[k], .weight_index = (int32_t)k, .rows = rows, .cols = cols, .is_vector = t->rank == 1};
        network.weights.target_count = ++network.weights.count;
    }
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_error error = {0};
        sumi_adapter_file* file = NULL;
        CHECK_NUMBER(open_adapter_file(&s_heap, &network, s_cases[i].path, &error, &file), SUMI_OK);
        if (file == NULL) {
            printf("  %s\n", error.text);
            continue;
        }
        const sumi_adapter* adapter = sumi_adapter_get(file);
        int32_t norms = 0, factors = 0;
        for (int32_t d = 0; d < adapter->delta_count; d++) {
            const sumi_delta* delta = &adapter->deltas[d];
            norms += delta->kind == SUMI_DELTA_VECTOR;
            factors += delta->kind == SUMI_DELTA_KRONECKER;
            CHECK_NEAR(delta->scale, delta->kind == SUMI_DELTA_VECTOR ? 1.0 : (double)s_cases[i].scale, 0, 0);
            CHECK_NUMBER(sumi_delta_rows(delta), s_weights[delta->weight_index].rows);
        }
        CHECK_NUMBER(adapter->delta_count, s_cases[i].count);
        CHECK_NUMBER(norms, s_cases[i].norms);
        CHECK_NUMBER(factors, s_cases[i].factors);
        sumi_adapter_close(file);
    }
    sumi_tensor_set_close(&set);
}

// ---- Plans ----------------------------------------------------------------------------------------------------------

// One file with a change of everything that can be changed, each as its kind is stored.
typedef struct whole_file {
    char (*names)[128];
    sumi_tensor* tensors;
    size_t count, vectors;
} whole_file;

static int divisor_below(int of, int most)
{
    while (of % most != 0) most--;
    return most;
}

static void put(whole_file* f, const sumi_adapter_target* target, const char* suffix, int rows, int cols, int rank)
{
    sumi_tensor* t = &f->tensors[f->count];
    float* data = malloc((size_t)rows * (size_t)cols * sizeof *data);
    fill(data, (size_t)rows * (size_t)cols, (uint32_t)f->count + 7);
    for (int i = 0; i < rows * cols; i++) data[i] *= 0.15f;
    char prefix[16] = "lycoris_";
    if (target->encoder > 0) snprintf(prefix, sizeof prefix, "lora_te%d_", (int)target->encoder);
    snprintf(f->names[f->count], sizeof f->names[0], "%s%s%s", prefix, target->path, suffix);
    *t = (sumi_tensor){.name = f->names[f->count],
                       .dtype = SUMI_DTYPE_F32,
                       .rank = rank,
                       .shape = {rows, cols},
                       .data = data,
                       .bytes = (uint64_t)(rows * cols) * 4};
    f->count++;
}

// Whether a target has the rows of several others, as q, k and v in one matrix.
static bool is_fused(const sumi_network* network, const sumi_adapter_target* t)
{
    for (size_t i = 0; i < network->weights.target_count; i++) {
        const sumi_adapter_target* other = &network->weights.targets[i];
        if (other->weight_index == t->weight_index && other->rows < t->rows) return true;
    }
    return false;
}

static void write_whole_file(const sumi_network* network, const char* path, bool has_matrices, bool has_norms)
{
    const size_t targets = network->weights.target_count;
    whole_file f = {.names = calloc(2 * targets, sizeof *f.names), .tensors = calloc(2 * targets, sizeof *f.tensors)};
    for (size_t i = 0; i < targets; i++) {
        const sumi_adapter_target* t = &network->weights.targets[i];
        bool is_alias = is_fused(network, t);
        for (size_t k = 0; k < i; k++) {
            const sumi_adapter_target* other = &network->weights.targets[k];
            is_alias = is_alias
                    || (other->weight_index == t->weight_index && other->row_begin == t->row_begin
                        && !is_fused(network, other));
        }
        if (is_alias || !(t->is_vector ? has_norms : has_matrices)) continue;
        if (t->is_vector) {
            put(&f, t, ".w_norm", t->cols, 1, 1);
            continue;
        }
        const int runs = divisor_below(t->rows, 8), folds = divisor_below(t->cols, 4);
        put(&f, t, ".lokr_w1", runs, folds, 2);
        put(&f, t, ".lokr_w2", t->rows / runs, t->cols / folds, 2);
    }
    write_tensors(path, f.tensors, f.count, NULL, 0);
    for (size_t i = 0; i < f.count; i++) free((void*)(uintptr_t)f.tensors[i].data);
    free(f.tensors);
    free(f.names);
}

// LoKr of every layer and changes of every norm, of the denoiser and of the text encoder with scales of its own, two files
// at once: the picture of merged weights.
TEST(lokr_and_changed_norms_give_the_image_of_merged_weights)
{
    scene* s = open_scene();
    if (s->network == NULL) {
        close_scene(s);
        return;
    }
    write_whole_file(s->network, scratch("all_changed.safetensors"), true, true);
    write_whole_file(s->network, scratch("norms.safetensors"), false, true);
    sumi_error error = {0};
    sumi_adapter_file* files[2] = {NULL, NULL};
    CHECK_NUMBER(open_adapter_file(&s_heap, s->network, scratch("all_changed.safetensors"), &error, &files[0]),
                 SUMI_OK);
    CHECK_NUMBER(open_adapter_file(&s_heap, s->network, scratch("norms.safetensors"), &error, &files[1]), SUMI_OK);
    if (files[0] == NULL || files[1] == NULL) {
        printf("  %s\n", error.text);
        sumi_adapter_close(files[0]);
        close_scene(s);
        return;
    }
    const size_t size = 16 * 6 * 8;
    sumi_pipeline_prompt prompts[2] = {{.token_count = {s->counts[0]}}, {.token_count = {s->counts[2]}}};
    sumi_pipeline_item item = {0, 1};
    int32_t ids[2][512];
    memcpy(ids[0], s->ids[0], sizeof ids[0]);
    memcpy(ids[1], s->ids[2], sizeof ids[1]);
    const sumi_adapter_use uses[4] = {{sumi_adapter_get(files[0]), 0.4f},
                                      {sumi_adapter_get(files[1]), -0.3f},
                                      {sumi_adapter_get_text(files[0]), 0.2f},
                                      {sumi_adapter_get_text(files[1]), -0.15f}},
                           off[2] = {{sumi_adapter_get(files[0]), 0.0f}, {sumi_adapter_get(files[1]), 0.0f}};
    job j = {.r = {.prompts = prompts, .prompt_count = 2, .items = &item, .item_count = 1, .width = 64, .height = 48},
             .ids = (const int32_t(*)[512])ids,
             .noise = s->noise};
    set_schedule(&j, s->network, SUMI_SOLVER_EULER, 3, 3.0f);
    float* plain = run_job(s->network, &j, 0, NULL, &error);
    CHECK(uses[2].adapter->delta_count > 0 && uses[3].adapter->delta_count > 0);
    j.r.adapters = uses;
    j.r.text_adapters = uses + 2;
    j.r.adapter_count = 2;
    float *changed = run_job(s->network, &j, 0, NULL, &error), *sliced = run_job(s->network, &j, 3, NULL, &error);
    j.r.adapters = off;
    j.r.text_adapters = NULL;
    float* unchanged = run_job(s->network, &j, 0, NULL, &error);
    j.r.adapter_count = 0;
    // plans read the weights where they lie, in the parts' models
    const size_t count = s->network->weights.count;
    sumi_weight* before = calloc(count, sizeof *before);
    for (size_t i = 0; i < count; i++) {
        sumi_weight* weight = (sumi_weight*)(uintptr_t)s->network->weights.weights[i];
        before[i] = *weight;
        float* rows = malloc((size_t)weight->rows * (size_t)weight->cols * sizeof *rows);
        bool differs = false;
        for (int32_t r = 0; r < weight->rows && sumi_weight_is_dense(weight); r++) {
            float* row = rows + (size_t)r * (size_t)weight->cols;
            merged_row(weight, uses, 4, r, row);
            float* was = malloc((size_t)weight->cols * sizeof *was);
            sumi_weight_to_float(weight, r, 1, was, weight->cols);
            differs = differs || memcmp(was, row, (size_t)weight->cols * sizeof *row) != 0;
            free(was);
        }
        if (differs) {
            weight->tensor_count = 1;
            weight->tensors[0] =
                (sumi_stacked_tensor){.data = rows, .dtype = SUMI_DTYPE_F32, .rows = weight->rows, .scale = 1.0f};
        } else {
            free(rows);
        }
    }
    float* merged = run_job(s->network, &j, 0, NULL, &error);
    for (size_t i = 0; i < count; i++) {
        sumi_weight* weight = (sumi_weight*)(uintptr_t)s->network->weights.weights[i];
        if (weight->tensors[0].data != before[i].tensors[0].data) free((void*)(uintptr_t)weight->tensors[0].data);
        *weight = before[i];
    }
    free(before);
    CHECK(plain != NULL && changed != NULL && sliced != NULL && unchanged != NULL && merged != NULL);
    if (plain != NULL && changed != NULL && sliced != NULL && unchanged != NULL && merged != NULL) {
        CHECK(memcmp(plain, unchanged, size * sizeof *plain) == 0);
        CHECK(memcmp(changed, sliced, size * sizeof *plain) == 0);
        CHECK(distance(changed, merged, size) < 1e-5);
        CHECK(distance(plain, merged, size) > 1e-2);
        if (distance(changed, merged, size) >= 1e-5 || distance(plain, merged, size) <= 1e-2)
            printf("  %g from merged weights, which are %g from the model's\n", distance(changed, merged, size),
                   distance(plain, merged, size));
    }
    if (error.result != SUMI_OK) printf("  %s\n", error.text);
    free(plain), free(changed), free(sliced), free(unchanged), free(merged);
    sumi_adapter_close(files[0]);
    sumi_adapter_close(files[1]);
    close_scene(s);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(1)) return 1;
    RUN(lokr_factors_become_the_change_that_they_describe);
    RUN(files_of_a_trainer_are_read_whole);
    RUN(lokr_and_changed_norms_give_the_image_of_merged_weights);
    end_networks();
    TEST_END();
}
