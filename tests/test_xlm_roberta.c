// The text tower of Jina CLIP: its files under every name, the adapter in them, prompts in a batch. The numbers of
// every stage are golden_run's business.
#include "cpu_runner.h"
#include "failing.h"
#include "files/tensors.h"
#include "models/signatures.h"
#include "models/xlm_roberta.h"
#include "system.h"
#include <stdatomic.h>

#define GOLDEN "tests/golden/newbie/"
#define ROOT "text_model.transformer.roberta."
#define ORIGINAL ".parametrizations.weight.original"
#define LAYERS 2

static const sumi_xlm_roberta_settings s_settings = {
    .name = "Jina CLIP", .head_dim = 64, .eps = 1e-5f, .theta = 20000.0};

// ---- A tower, bound -------------------------------------------------------------------------------------------------

typedef struct tower {
    sumi_heap* heap;
    sumi_checkpoint checkpoint;
    sumi_component part;
    sumi_weight_list list;
    sumi_module_config config;
    sumi_xlm_roberta model;
    sumi_error error;
} tower;

// The released files, not bound yet.
static sumi_result open_tower(tower* t, sumi_heap* heap)
{
    memset(t, 0, sizeof *t);
    t->heap = heap;
    sumi_checkpoint_desc desc = {.component_paths = {[SUMI_COMPONENT_TEXT_ENCODER_2] = GOLDEN "model/clip_model"}};
    desc.signatures = sumi_signatures(&desc.signature_count);
    desc.class_words = sumi_class_words();
    sumi_weight_list_init(&t->list, heap);
    const sumi_result result = sumi_checkpoint_open(&t->checkpoint, heap, NULL, &desc, &t->error);
    t->part = t->checkpoint.components[SUMI_COMPONENT_TEXT_ENCODER_2];
    t->config = (sumi_module_config){t->part.config.data, (size_t)t->part.config.bytes, "clip_model/config.json"};
    return result;
}

static sumi_result bind_tower(tower* t)
{
    sumi_binder binder = {
        .list = &t->list, .component = &t->part, .what = "the second text encoder", .error = &t->error};
    return sumi_xlm_roberta_module.bind(&t->model, &s_settings, &binder, &t->config);
}

static void close_tower(tower* t)
{
    sumi_weight_list_close(&t->list);
    sumi_checkpoint_close(&t->checkpoint);
}

// One row per prompt, to be freed; NULL after a failure. ids: of all prompts, one behind the other.
static float* encode(tower* t, const int32_t* ids, const int32_t* counts, int32_t prompt_count)
{
    sumi_plan plan;
    sumi_error error = {0};
    int32_t rows = 0;
    float* out = NULL;
    for (int32_t p = 0; p < prompt_count; p++) rows += counts[p];
    sumi_plan_begin(&plan, t->heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
    sumi_value ids_value = sumi_plan_bound(&plan, "ids", SUMI_ELEMENT_INT, rows, 1);
    sumi_value made = sumi_xlm_roberta_module.write(
        &t->model, &plan, &(sumi_text_batch){.ids = ids_value, .counts = counts, .prompt_count = prompt_count});
    if (made.id != 0) plan.values[made.id - 1].bound = true;
    const sumi_rates rates = s_runner->functions->rates(s_runner);
    sumi_result result = sumi_plan_finish(&plan, &error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, 1000, &error);
    if (result == SUMI_OK) result = plan_ready(s_runner, &plan, &error);
    if (result == SUMI_OK) {
        CHECK_NUMBER(sumi_plan_info(&plan, made)->rows, prompt_count);
        CHECK_NUMBER(sumi_plan_info(&plan, made)->cols, t->model.width);
        out = malloc((size_t)prompt_count * (size_t)t->model.width * sizeof *out);
        s_runner->functions->start(s_runner, &plan);
        s_runner->functions->write(s_runner, &plan, ids_value, 0, ids, (uint64_t)rows * 4);
        result = plan_run_all(s_runner, &plan, NULL, &error);
        if (result == SUMI_OK) result = plan_read(s_runner, &plan, made, out, &error);
    }
    CHECK_NUMBER(result, SUMI_OK);
    CHECK_TEXT(error.text, "");
    plan_release(s_runner, &plan);
    sumi_plan_end(&plan);
    return out;
}

static double distance(const float* a, const float* b, int32_t count)
{
    double difference = 0, size = 0;
    for (int32_t i = 0; i < count && a != NULL && b != NULL; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return size > 0 ? sqrt(difference / size) : HUGE_VAL;
}

// The golden case: ids of a prompt, and what the reference makes of them.
static int32_t s_ids[64], s_count;
static float s_pooled[128], s_pooled_merged[128];

static bool read_golden(void)
{
    sumi_tensor_set set;
    sumi_error error = {0};
    sumi_tensor_set_init(&set, &s_heap, NULL);
    bool good = sumi_tensor_set_open(&set, GOLDEN "cases/enc_jina.safetensors", &error) == SUMI_OK;
    const sumi_tensor *ids = sumi_tensor_find(&set, "input.ids"), *pooled = sumi_tensor_find(&set, "expect.pooled"),
                      *merged = sumi_tensor_find(&set, "expect.pooled_merged_bf16");
    good = good && ids != NULL && ids->shape[0] <= 64 && pooled != NULL && pooled->shape[0] == 128 && merged != NULL
        && merged->shape[0] == 128;
    if (good) {
        s_count = (int32_t)ids->shape[0];
        memcpy(s_ids, ids->data, (size_t)s_count * 4);
        memcpy(s_pooled, pooled->data, sizeof s_pooled);
        memcpy(s_pooled_merged, merged->data, sizeof s_pooled_merged);
    }
    sumi_tensor_set_close(&set);
    return good;
}

// ---- Files under other names ----------------------------------------------------------------------------------------

#define MOST 80
typedef struct copies {
    sumi_tensor tensors[MOST];
    char names[MOST][160];
    float* data[MOST];
    size_t count;
} copies;

static const sumi_tensor* factor_of(const sumi_tensor_set* set, const char* original, const char* which)
{
    char name[200];
    snprintf(name, sizeof name, "%.*s.0.%s", (int)(strlen(original) - strlen(".original")), original, which);
    return sumi_tensor_find(set, name);
}

// original + scaling * B A (of embeddings A B), as floats that hold values of bfloat16 where it is told to round.
static float* merge(const sumi_tensor_set* set, const sumi_tensor* original, float scaling, bool rounds)
{
    const bool is_table = strstr(original->name, "embeddings.") != NULL;
    const sumi_tensor* left = factor_of(set, original->name, is_table ? "lora_A" : "lora_B");
    const sumi_tensor* right = factor_of(set, original->name, is_table ? "lora_B" : "lora_A");
    const int64_t rows = original->shape[0], cols = original->shape[1], rank = right->shape[1];
    float *w = malloc((size_t)(rows * cols) * sizeof *w), *a = malloc((size_t)(rows * rank) * sizeof *a),
          *b = malloc((size_t)(rank * cols) * sizeof *b);
    sumi_dtype_to_float(original->dtype, original->data, w, (size_t)(rows * cols));
    sumi_dtype_to_float(left->dtype, left->data, a, (size_t)(rows * rank));
    sumi_dtype_to_float(right->dtype, right->data, b, (size_t)(rank * cols));
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0;
            for (int64_t k = 0; k < rank; k++) sum += (double)a[r * rank + k] * (double)b[k * cols + c];
            w[r * cols + c] += scaling * (float)sum;
            if (rounds) w[r * cols + c] = sumi_bf16_to_float(sumi_float_to_bf16(w[r * cols + c]));
        }
    }
    free(a);
    free(b);
    return w;
}

typedef enum naming { NAMED_PLAIN, NAMED_PLAIN_REPACKED, NAMED_RELEASED, NAMED_RELEASED_REPACKED } naming;
typedef enum merging { MERGED_NOT, MERGED, MERGED_ROUNDED } merging;

// The text tower's tensors under other names. Plain names are of merged weights, or of those without the adapter.
static void copy_tensors(copies* out, const sumi_tensor_set* set, naming how, merging merges, float scaling)
{
    const bool is_plain = how == NAMED_PLAIN || how == NAMED_PLAIN_REPACKED,
               is_repacked = how == NAMED_PLAIN_REPACKED || how == NAMED_RELEASED_REPACKED;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < set->count; i++) {
        const sumi_tensor* from = &set->tensors[i];
        const char* original = strstr(from->name, ORIGINAL);
        if (strncmp(from->name, ROOT, strlen(ROOT)) != 0 || (is_plain && strstr(from->name, ".lora_") != NULL))
            continue;
        if (out->count == MOST) abort();
        sumi_tensor* to = &out->tensors[out->count];
        char* name = out->names[out->count];
        *to = *from;
        snprintf(name, sizeof out->names[0], "%s%s", is_repacked ? "model." : ROOT, from->name + strlen(ROOT));
        if (original != NULL && is_plain) snprintf(strstr(name, ORIGINAL), 8, ".weight");
        if (original != NULL && is_plain && merges != MERGED_NOT) {
            to->data = out->data[out->count] = merge(set, from, scaling, merges == MERGED_ROUNDED);
            to->dtype = SUMI_DTYPE_F32;
            to->bytes = (uint64_t)(to->shape[0] * to->shape[1]) * 4;
        }
        to->name = name;
        to->file_index = -1;
        out->count++;
    }
}

static void free_copies(copies* c)
{
    for (size_t i = 0; i < c->count; i++) free(c->data[i]);
}

// The golden prompt's row by a file with these tensors; NULL after a failure.
static float* encode_copies(const copies* c, const sumi_module_config* config)
{
    tower t;
    float* out = NULL;
    sumi_tensor_set set;
    CHECK_NUMBER(open_tower(&t, &s_heap), SUMI_OK);
    sumi_tensor_set_init(&set, &s_heap, NULL);
    for (size_t i = 0; i < c->count; i++) {
        const char* name = c->tensors[i].name;
        CHECK_NUMBER(sumi_tensor_set_add(&set, name, strlen(name), &c->tensors[i], "set", &t.error), SUMI_OK);
    }
    t.part.set = &set;
    t.config = *config;
    CHECK_NUMBER(bind_tower(&t), SUMI_OK);
    CHECK_TEXT(t.error.text, "");
    if (t.error.result == SUMI_OK) out = encode(&t, s_ids, &s_count, 1);
    close_tower(&t);
    sumi_tensor_set_close(&set);
    return out;
}

static const sumi_module_config s_no_config = {.path = "no config.json"};

TEST(released_files_bind_with_their_adapter)
{
    tower t;
    CHECK_NUMBER(open_tower(&t, &s_heap), SUMI_OK);
    CHECK_TEXT(sumi_component_network(&t.part), "jina-clip");
    CHECK_NUMBER(bind_tower(&t), SUMI_OK);
    CHECK_TEXT(t.error.text, "");
    CHECK_NUMBER(t.model.layer_count, LAYERS);
    CHECK_NUMBER(t.model.heads, 2);
    CHECK_NUMBER(t.model.hidden, 64);
    CHECK(t.model.embedding.change != NULL && t.model.type.change != NULL && t.model.scaling == 1.0f);
    CHECK(t.model.layers[1].fc2.weight.change != NULL && t.model.layers[1].fc2.weight.change->down.rows == 4);
    uint64_t bytes = 0, file_bytes = 0; // of the tower: all of it is read, its factors too
    for (size_t i = 0; i < t.list.count; i++) bytes += sumi_weight_bytes(t.list.weights[i]);
    for (size_t i = 0; i < t.part.set->count; i++) {
        const sumi_tensor* tensor = &t.part.set->tensors[i];
        file_bytes += strncmp(tensor->name, ROOT, strlen(ROOT)) == 0 ? tensor->bytes : 0;
    }
    CHECK_NUMBER(t.list.weight_bytes, bytes);
    CHECK_NUMBER(bytes, file_bytes);
    const sumi_text_encoder_properties properties = sumi_xlm_roberta_module.properties(&t.model);
    CHECK(properties.pools && !properties.takes_pictures && !properties.shares_beginning);
    CHECK_NUMBER(properties.width, 128);
    CHECK_NUMBER(properties.vocabulary, 402);
    float* got = encode(&t, s_ids, &s_count, 1);
    CHECK(distance(got, s_pooled, 128) < 2e-5);
    free(got);
    close_tower(&t);
}

TEST(plain_names_have_no_adapter)
{
    tower t;
    CHECK_NUMBER(open_tower(&t, &s_heap), SUMI_OK);
    static copies s_c;
    float* rows[6];
    const struct {
        naming how;
        merging merges;
    } files[6] = {{NAMED_RELEASED, MERGED_NOT},   {NAMED_RELEASED_REPACKED, MERGED_NOT},
                  {NAMED_PLAIN, MERGED_NOT},      {NAMED_PLAIN_REPACKED, MERGED_NOT},
                  {NAMED_PLAIN_REPACKED, MERGED}, {NAMED_PLAIN, MERGED_ROUNDED}};
    for (int i = 0; i < 6; i++) {
        copy_tensors(&s_c, t.part.set, files[i].how, files[i].merges, 1.0f);
        rows[i] = encode_copies(&s_c, &s_no_config);
        free_copies(&s_c);
    }
    CHECK(distance(rows[0], s_pooled, 128) < 2e-5);
    CHECK_NUMBER(memcmp(rows[1], rows[0], sizeof s_pooled), 0);
    CHECK(distance(rows[2], s_pooled, 128) > 0.05);
    CHECK_NUMBER(memcmp(rows[3], rows[2], sizeof s_pooled), 0);
    CHECK(distance(rows[4], s_pooled, 128) < 2e-5);
    CHECK(distance(rows[5], s_pooled_merged, 128) < 2e-5);
    for (int i = 0; i < 6; i++) free(rows[i]);
    close_tower(&t);
}

static sumi_module_config config_of(const char* text) { return (sumi_module_config){text, strlen(text), "made.json"}; }

// alpha / rank, where a config.json says them: embeddings, token type and products alike.
TEST(alpha_scales_the_adapter)
{
    tower t;
    CHECK_NUMBER(open_tower(&t, &s_heap), SUMI_OK);
    static copies s_c;
    const sumi_module_config config =
        config_of("{\"text_config\": {\"hf_model_config_kwargs\": {\"lora_alpha\": 10}}}");
    copy_tensors(&s_c, t.part.set, NAMED_RELEASED, MERGED_NOT, 1.0f);
    float* got = encode_copies(&s_c, &config);
    copy_tensors(&s_c, t.part.set, NAMED_PLAIN, MERGED, 2.5f);
    float* want = encode_copies(&s_c, &config); // of plain names it says nothing
    CHECK(distance(got, want, 128) < 2e-5);
    CHECK(distance(got, s_pooled, 128) > 0.05);
    free_copies(&s_c);
    free(got);
    free(want);
    close_tower(&t);
}

TEST(configs_that_do_not_belong_to_the_tensors_are_refused)
{
    static const struct {
        const char *json, *says;
        sumi_result result;
    } s_rows[] = {
        {"{\"text_config\": {\"embed_dim\": 256}}", "text_config.embed_dim is 256", SUMI_TENSOR_MISMATCH},
        {"{\"text_config\": {\"hf_model_config_kwargs\": {\"lora_rank\": 8}}}", "lora_rank is 8", SUMI_TENSOR_MISMATCH},
        {"{\"text_config\": {\"hf_model_config_kwargs\": {\"lora_alpha\": -4}}}", "lora_alpha", SUMI_NOT_SUPPORTED},
        {"{\"text_config\": {\"embed_dim\": \"wide\"}}", "expected a number", SUMI_FILE_MALFORMED}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        tower t;
        CHECK_NUMBER(open_tower(&t, &s_heap), SUMI_OK);
        t.config = config_of(s_rows[i].json);
        CHECK_NUMBER(bind_tower(&t), s_rows[i].result);
        if (strstr(t.error.text, s_rows[i].says) == NULL) printf("  \"%s\"\n", t.error.text);
        CHECK(strstr(t.error.text, s_rows[i].says) != NULL && strstr(t.error.text, "made.json") != NULL);
        close_tower(&t);
    }
}

// ---- Files that are not whole ---------------------------------------------------------------------------------------

TEST(every_missing_or_misshapen_tensor_is_named)
{
    tower t;
    CHECK_NUMBER(open_tower(&t, &s_heap), SUMI_OK);
    const size_t count = t.part.set->count;
    size_t tried = 0;
    close_tower(&t);
    for (size_t i = 0; i < count; i++) {
        for (int how = 0; how < 4; how++) {
            if (open_tower(&t, &s_heap) != SUMI_OK) return;
            sumi_tensor* tensor = (sumi_tensor*)&t.part.set->tensors[i];
            char name[200];
            snprintf(name, sizeof name, "%s", tensor->name);
            const bool is_of_tower = strncmp(name, ROOT, strlen(ROOT)) == 0;
            if (how == 0) tensor->name = "gone";
            else if (how == 1 && tensor->rank > 0) tensor->shape[0] *= 2;
            else if (how == 2 && tensor->rank > 0) tensor->shape[tensor->rank - 1] /= 2;
            else if (how == 3) tensor->rank = 0;
            t.config = s_no_config;
            const sumi_result result = bind_tower(&t);
            const bool expected =
                is_of_tower ? result == (how == 0 ? SUMI_TENSOR_MISSING : SUMI_TENSOR_MISMATCH) : result == SUMI_OK;
            if (!expected) printf("  %s, %d: result %d, \"%s\"\n", name, how, (int)result, t.error.text);
            CHECK(expected);
            CHECK(result == SUMI_OK || strstr(t.error.text, "clip_model") != NULL);
            // half of an adapter is missing by name
            CHECK(how > 0 || strstr(name, ".lora_") == NULL || strstr(t.error.text, name) != NULL);
            tried += is_of_tower;
            close_tower(&t);
            CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
        }
    }
    CHECK(tried > 100);
}

// Elements of the factor with the weight's rows are read one by one.
TEST(factors_of_rows_in_blocks_are_refused)
{
    tower t;
    CHECK_NUMBER(open_tower(&t, &s_heap), SUMI_OK);
    const size_t count = t.part.set->count;
    int tried = 0;
    close_tower(&t);
    for (size_t i = 0; i < count; i++) {
        CHECK_NUMBER(open_tower(&t, &s_heap), SUMI_OK);
        sumi_tensor* tensor = (sumi_tensor*)&t.part.set->tensors[i];
        if (strncmp(tensor->name, ROOT, strlen(ROOT)) == 0 && strstr(tensor->name, ".lora_") != NULL) {
            const bool is_up = strstr(tensor->name, "embeddings.") != NULL ? strstr(tensor->name, ".lora_A") != NULL
                                                                           : strstr(tensor->name, ".lora_B") != NULL;
            tensor->dtype = SUMI_DTYPE_Q8_0;
            CHECK_NUMBER(bind_tower(&t), is_up ? SUMI_NOT_SUPPORTED : SUMI_OK);
            CHECK(!is_up || (strstr(t.error.text, tensor->name) != NULL && strstr(t.error.text, "merged") != NULL));
            tried += is_up;
        }
        close_tower(&t);
    }
    CHECK_NUMBER(tried, 2 + 4 * LAYERS);
}

TEST(heads_that_do_not_divide_the_width_are_refused)
{
    tower t;
    CHECK_NUMBER(open_tower(&t, &s_heap), SUMI_OK);
    sumi_binder binder = {.list = &t.list, .component = &t.part, .what = "the second text encoder", .error = &t.error};
    const sumi_xlm_roberta_settings odd = {.name = "Jina CLIP", .head_dim = 48, .eps = 1e-5f, .theta = 20000.0};
    CHECK_NUMBER(sumi_xlm_roberta_module.bind(&t.model, &odd, &binder, &t.config), SUMI_TENSOR_MISMATCH);
    CHECK(strstr(t.error.text, "heads of 48") != NULL);
    close_tower(&t);
}

// Files of every naming are told by their tensors alone.
TEST(files_of_every_naming_are_recognised)
{
    char folder[192], path[256];
    CHECK(system_make_scratch(folder, sizeof folder, "sumi-xlm-roberta"));
    snprintf(path, sizeof path, "%s/encoder.safetensors", folder);
    tower t;
    CHECK_NUMBER(open_tower(&t, &s_heap), SUMI_OK);
    for (int how = 0; how < 4; how++) {
        static copies s_c;
        copy_tensors(&s_c, t.part.set, (naming)how, MERGED_NOT, 1.0f);
        const uint64_t bytes = sumi_safetensors_write(s_c.tensors, s_c.count, NULL, 0, NULL, 0);
        void* image = malloc((size_t)bytes);
        sumi_safetensors_write(s_c.tensors, s_c.count, NULL, 0, image, bytes);
        FILE* file = fopen(path, "wb");
        CHECK(file != NULL && fwrite(image, 1, (size_t)bytes, file) == bytes);
        if (file != NULL) fclose(file);
        free(image);
        sumi_checkpoint_desc desc = {.path = path};
        sumi_checkpoint checkpoint = {0};
        sumi_error error = {0};
        desc.signatures = sumi_signatures(&desc.signature_count);
        desc.class_words = sumi_class_words();
        CHECK_NUMBER(sumi_checkpoint_open(&checkpoint, &s_heap, NULL, &desc, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        const sumi_component* part = &checkpoint.components[SUMI_COMPONENT_TEXT_ENCODER_2];
        CHECK(part->present && !checkpoint.components[SUMI_COMPONENT_TEXT_ENCODER].present);
        CHECK_TEXT(sumi_component_network(part), "jina-clip");
        sumi_checkpoint_close(&checkpoint);
    }
    close_tower(&t);
    remove(path);
    remove(folder);
}

// ---- Prompts --------------------------------------------------------------------------------------------------------

TEST(a_batch_of_prompts_equals_single_prompts)
{
    static const int32_t s_counts[3] = {27, 2, 131}; // fewer rows than a tile, more than a block of queries
    int32_t ids[160];
    tower t;
    CHECK_NUMBER(open_tower(&t, &s_heap), SUMI_OK);
    CHECK_NUMBER(bind_tower(&t), SUMI_OK);
    for (int i = 0; i < 160; i++) ids[i] = (i * 97 + 13) % 402;
    float* all = encode(&t, ids, s_counts, 3);
    int32_t row = 0;
    for (int p = 0; p < 3; row += s_counts[p++]) {
        float* one = encode(&t, ids + row, &s_counts[p], 1);
        CHECK(all != NULL && one != NULL && memcmp(all + 128 * p, one, 128 * sizeof *one) == 0);
        free(one);
    }
    CHECK(distance(all, all + 128, 128) > 0.1 && distance(all + 128, all + 256, 128) > 0.1);
    free(all);
    close_tower(&t);
}

// A token counts by its position, and the ones behind it count for those before it.
TEST(positions_and_later_tokens_matter)
{
    static const int32_t s_swapped[4][5] = {{0, 5, 6, 7, 2}, {0, 6, 5, 7, 2}, {0, 5, 6, 8, 2}, {0, 5, 6, 7, 2}};
    const int32_t count = 5;
    float* rows[4];
    tower t;
    CHECK_NUMBER(open_tower(&t, &s_heap), SUMI_OK);
    CHECK_NUMBER(bind_tower(&t), SUMI_OK);
    for (int i = 0; i < 4; i++) rows[i] = encode(&t, s_swapped[i], &count, 1);
    CHECK(distance(rows[1], rows[0], 128) > 1e-3);
    CHECK(distance(rows[2], rows[0], 128) > 1e-3);
    CHECK_NUMBER(memcmp(rows[3], rows[0], sizeof s_pooled), 0);
    for (int i = 0; i < 4; i++) free(rows[i]);
    close_tower(&t);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

TEST(every_failing_allocation_is_survived)
{
    static const int32_t s_counts[2] = {3, 2};
    bool finished = false;
    long n = 0;
    for (; n < 10000 && !finished; n++) {
        failing f = {.left = n};
        const sumi_allocator allocator = failing_allocator(&f);
        sumi_heap heap;
        sumi_heap_init(&heap, &allocator);
        tower t;
        sumi_plan plan = {0};
        sumi_result result = open_tower(&t, &heap);
        if (result == SUMI_OK) result = bind_tower(&t);
        if (result == SUMI_OK) {
            sumi_plan_begin(&plan, &heap, 4);
            sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
            sumi_value ids = sumi_plan_bound(&plan, "ids", SUMI_ELEMENT_INT, 5, 1);
            sumi_xlm_roberta_module.write(&t.model, &plan,
                                          &(sumi_text_batch){.ids = ids, .counts = s_counts, .prompt_count = 2});
            result = sumi_plan_finish(&plan, &t.error);
        }
        finished = f.refused == 0;
        if (result != (finished ? SUMI_OK : SUMI_OUT_OF_HOST_MEMORY)) {
            printf("  allocation %ld: result %d, \"%s\"\n", n, (int)result, t.error.text);
            CHECK(!"a failed allocation is reported as one");
            finished = true;
        }
        sumi_plan_end(&plan);
        close_tower(&t);
        CHECK_NUMBER(f.held, 0);
    }
    CHECK(finished && n > 30);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(0) || !read_golden()) return 1;
    RUN(released_files_bind_with_their_adapter);
    RUN(plain_names_have_no_adapter);
    RUN(alpha_scales_the_adapter);
    RUN(configs_that_do_not_belong_to_the_tensors_are_refused);
    RUN(every_missing_or_misshapen_tensor_is_named);
    RUN(factors_of_rows_in_blocks_are_refused);
    RUN(heads_that_do_not_divide_the_width_are_refused);
    RUN(files_of_every_naming_are_recognised);
    RUN(a_batch_of_prompts_equals_single_prompts);
    RUN(positions_and_later_tokens_matter);
    RUN(every_failing_allocation_is_survived);
    end_cpu();
    TEST_END();
}
