// The common folder: tokenizers, random numbers, files good and bad, single operations, pictures. Manifests say what
// there is.
#include "at_once.h"
#include "files/tensors.h"
#include "golden_support.h"
#include "number_formats.h"
#include "picture.h"
#include "sampling/noise.h"
#include "system.h"
#include "text/tokenizer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static golden_case plain_case(golden* g) { return (golden_case){.g = g, .kind = ""}; }

static node* manifest_of(golden_case* c, const char* folder, const char* name)
{
    char path[2400], message[SUMI_ERROR_TEXT_BYTES];
    sumi_path_join(path, sizeof path, folder, name);
    node* tree = json_read(path, message, sizeof message);
    if (tree == NULL) case_fails(c, "%s", message);
    return tree;
}

static bool open_set(golden_case* c, sumi_tensor_set* set, const char* folder, const char* name)
{
    char path[2400];
    sumi_error error = {0};
    sumi_path_join(path, sizeof path, folder, name);
    sumi_tensor_set_init(set, &c->g->heap, NULL);
    if (sumi_tensor_set_open(set, path, &error) == SUMI_OK) return true;
    case_fails(c, "%s", error.text);
    sumi_tensor_set_close(set);
    return false;
}

// ---- Tokenizers -----------------------------------------------------------------------------------------------------

// The lines of a .jsonl file, one tree each.
typedef struct lines {
    node** list;
    size_t count;
} lines;

static lines read_lines(golden_case* c, const char* path)
{
    lines l = {0};
    sumi_file file = {0};
    sumi_error error = {0};
    char message[SUMI_ERROR_TEXT_BYTES];
    if (sumi_file_open(&file, &c->g->heap, NULL, path, &error) != SUMI_OK) return l;
    const char *at = (const char*)file.data, *end = at + file.bytes;
    while (at < end) {
        const char* stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop != NULL ? stop : end;
        if (stop > at) {
            l.list = realloc(l.list, (l.count + 1) * sizeof *l.list);
            node* tree = json_parse(at, (size_t)(stop - at), message, sizeof message);
            if (tree != NULL) l.list[l.count++] = tree;
            else case_fails(c, "%s: %s", path, message);
        }
        at = stop + 1;
    }
    sumi_file_close(&file);
    return l;
}

static void free_lines(lines* l)
{
    for (size_t i = 0; i < l->count; i++) json_free(l->list[i]);
    free(l->list);
}

static void check_lines(golden_case* c, sumi_tokenizer* tokenizer, const lines* l, const char* what)
{
    int wrong = 0;
    for (size_t i = 0; i < l->count; i++) {
        const node *text = json_get(l->list[i], "text"), *ids = json_get(l->list[i], "ids");
        if (text == NULL || ids == NULL) continue;
        size_t capacity = text->text_bytes * 4 + 64, count = 0, k = 0;
        int32_t* made = calloc(capacity, sizeof *made);
        sumi_error error = {0};
        bool same = sumi_tokenizer_encode(tokenizer, text->text, text->text_bytes, true, made, capacity, &count, &error)
                     == SUMI_OK
                 && count == (size_t)ids->count;
        for (const node* id = ids->first; same && id != NULL; id = id->next) same = made[k++] == (int32_t)id->number;
        if (!same && wrong++ < 3) printf("  other ids for \"%.80s\"\n", text->text);
        free(made);
    }
    char label[300];
    snprintf(label, sizeof label, "%s: %zu texts", what, l->count);
    report(c, label, wrong, 0, wrong == 0 && l->count > 0);
}

// Bytes that are no UTF-8: any ids or a refusal, but nothing else.
static void check_invalid(golden_case* c, sumi_tokenizer* tokenizer, const lines* l, const char* what)
{
    int wrong = 0;
    for (size_t i = 0; i < l->count; i++) {
        const char* hex = json_text(l->list[i], "hex");
        size_t bytes = hex != NULL ? strlen(hex) / 2 : 0, count = 0;
        char* text = calloc(bytes + 1, 1);
        int32_t* made = calloc(bytes * 8 + 64, sizeof *made);
        for (size_t k = 0; k < bytes; k++) {
            unsigned value = 0;
            sscanf(hex + 2 * k, "%2x", &value);
            text[k] = (char)value;
        }
        sumi_error error = {0};
        sumi_result result = sumi_tokenizer_encode(tokenizer, text, bytes, true, made, bytes * 8 + 64, &count, &error);
        wrong += result != SUMI_OK && result != SUMI_TEXT_INVALID;
        free(text);
        free(made);
    }
    char label[300];
    snprintf(label, sizeof label, "%s: %zu texts of invalid UTF-8 survived", what, l->count);
    report(c, label, wrong, 0, wrong == 0);
}

static sumi_tokenizer* finish_tokenizer(golden_case* c, sumi_tokenizer* tokenizer, sumi_result result,
                                        sumi_error* error)
{
    float progress;
    for (bool done = false; result == SUMI_OK && !done;)
        result = sumi_tokenizer_step(tokenizer, 1000, &done, &progress, error);
    if (result == SUMI_OK) return tokenizer;
    case_fails(c, "%s", error->text);
    sumi_tokenizer_destroy(tokenizer);
    return NULL;
}

static bool open_file(golden_case* c, sumi_file* file, const char* folder, const char* name)
{
    char path[2400];
    sumi_error error = {0};
    sumi_path_join(path, sizeof path, folder, name);
    return sumi_file_exists(NULL, path) && sumi_file_open(file, &c->g->heap, NULL, path, &error) == SUMI_OK;
}

static sumi_tokenizer_bytes bytes_of(const sumi_file* file)
{
    return (sumi_tokenizer_bytes){file->data, (size_t)file->bytes, file->path};
}

// The same ids from another form of the tokenizer, with all the files beside it.
static void run_other_form(golden_case* c, const char* folder, const char* name, const char* main, const lines* l)
{
    static const char* const s_names[] = {"merges.txt", "tokenizer_config.json", "added_tokens.json",
                                          "special_tokens_map.json"};
    sumi_file file[5] = {{0}};
    if (open_file(c, &file[0], folder, main)) {
        for (int i = 0; i < 4; i++) open_file(c, &file[i + 1], folder, s_names[i]);
        const sumi_tokenizer_files files = {bytes_of(&file[0]), bytes_of(&file[1]), bytes_of(&file[2]),
                                            bytes_of(&file[3]), bytes_of(&file[4])};
        sumi_error error = {0};
        sumi_tokenizer* tokenizer = NULL;
        sumi_result result = strstr(main, ".model")
                               ? sumi_tokenizer_begin_sentencepiece(&c->g->heap, &files, &error, &tokenizer)
                               : sumi_tokenizer_begin_files(&c->g->heap, &files, &error, &tokenizer);
        char label[300];
        snprintf(label, sizeof label, "%s from %s", name, main);
        if ((tokenizer = finish_tokenizer(c, tokenizer, result, &error)) != NULL) check_lines(c, tokenizer, l, label);
        sumi_tokenizer_destroy(tokenizer);
    }
    for (int i = 0; i < 5; i++) sumi_file_close(&file[i]);
}

// Where tokenizer.json is: in the folder of the cases, or in the tiny checkpoint whose tokenizer it is.
static void find_tokenizer(const char* folder, const char* name, char* out_folder, size_t capacity)
{
    static const struct {
        const char *name, *place;
    } s_places[] = {{"newbie-gemma", "newbie/model/text_encoder"},
                    {"newbie-jina", "newbie/model/clip_model"},
                    {"qwen-image", "qwen-image/model-edit/processor"}};
    snprintf(out_folder, capacity, "%s", folder);
    for (size_t i = 0; i < sizeof s_places / sizeof *s_places; i++) {
        if (strcmp(name, s_places[i].name) == 0)
            snprintf(out_folder, capacity, "%s/../../../%s", folder, s_places[i].place);
    }
}

static void run_tokenizer(golden_case* c, const char* folder, const char* name, const lines* invalid)
{
    char path[2600];
    snprintf(path, sizeof path, "%s/cases.jsonl", folder);
    lines l = read_lines(c, path);
    find_tokenizer(folder, name, path, sizeof path);
    sumi_file json = {0};
    sumi_error error = {0};
    sumi_tokenizer* tokenizer = NULL;
    if (open_file(c, &json, path, "tokenizer.json")) {
        sumi_result result =
            sumi_tokenizer_begin(&c->g->heap, json.data, (size_t)json.bytes, folder, &error, &tokenizer);
        if ((tokenizer = finish_tokenizer(c, tokenizer, result, &error)) != NULL) {
            check_lines(c, tokenizer, &l, name);
            check_invalid(c, tokenizer, invalid, name);
        }
        sumi_tokenizer_destroy(tokenizer);
    }
    run_other_form(c, folder, name, "vocab.json", &l);
    run_other_form(c, folder, name, "sentencepiece.bpe.model", &l);
    run_other_form(c, folder, name, "tokenizer.model", &l);
    sumi_file_close(&json);
    free_lines(&l);
}

static void run_tokenizers(golden_case* c, const char* folder)
{
    char path[2400];
    snprintf(path, sizeof path, "%s/invalid_utf8.jsonl", folder);
    lines invalid = read_lines(c, path);
    int count;
    char** names = system_list(folder, &count);
    for (int i = 0; i < count; i++) {
        sumi_path_join(path, sizeof path, folder, names[i]);
        if (sumi_path_is_folder(path)) run_tokenizer(c, path, names[i], &invalid);
    }
    system_free_list(names, count);
    free_lines(&invalid);
    not_checked(c, "unicode.json", "its facts are in the ids above");
}

// ---- Random numbers -------------------------------------------------------------------------------------------------

// One call on a generator, as floats. 16-bit draws of 16 and more values are whole groups, then one more group over the
// last 16 places.
static void draw(sumi_torch_cpu_generator* generator, const char* dtype, size_t count, float* into)
{
    if (strcmp(dtype, "bfloat16") == 0) {
        uint16_t* bits = calloc(count + 1, sizeof *bits);
        sumi_torch_cpu_randn_bf16(generator, bits, count);
        for (size_t i = 0; i < count; i++) into[i] = sumi_bf16_to_float(bits[i]);
        free(bits);
        return;
    }
    size_t whole = strcmp(dtype, "float16") != 0 || count < 16 ? count : count / 16 * 16;
    sumi_torch_cpu_randn(generator, into, whole);
    if (whole != count) sumi_torch_cpu_randn(generator, into + count - 16, 16);
    for (size_t i = 0; i < count && strcmp(dtype, "float16") == 0; i++)
        into[i] = sumi_f16_to_float(float_to_f16(into[i]));
}

static uint64_t seed_of(const node* row)
{
    const node* seed = json_get(row, "seed");
    return seed != NULL ? seed->integer : 0;
}

static void run_cpu_noise(golden_case* c, const char* folder, const char* stem)
{
    char name[300];
    sumi_tensor_set set;
    snprintf(name, sizeof name, "%s.json", stem);
    node* tree = manifest_of(c, folder, name);
    snprintf(name, sizeof name, "%s.safetensors", stem);
    if (tree == NULL || !open_set(c, &set, folder, name)) {
        json_free(tree);
        return;
    }
    int calls = 0, wrong = 0;
    const node* rows = json_get(tree, "rows");
    for (const node* row = rows != NULL ? rows->first : NULL; row != NULL; row = row->next) {
        sumi_torch_cpu_generator generator;
        sumi_torch_cpu_seed(&generator, seed_of(row));
        const node* list = json_get(row, "calls");
        for (const node* call = list != NULL ? list->first : NULL; call != NULL; call = call->next, calls++) {
            size_t count = (size_t)json_number(call, "count", 0);
            const char *dtype = json_text(call, "dtype"), *tensor = json_text(call, "tensor");
            array want = array_of(tensor != NULL ? sumi_tensor_find(&set, tensor) : NULL);
            float* made = calloc(count + 1, sizeof *made);
            draw(&generator, dtype != NULL ? dtype : "float32", count, made);
            wrong += want.count != (int64_t)count || memcmp(made, want.values, count * sizeof *made) != 0;
            free(made);
            array_free(&want);
        }
    }
    snprintf(name, sizeof name, "%s: %d draws, bit for bit", stem, calls);
    report(c, name, wrong, 0, wrong == 0 && calls > 0);
    sumi_tensor_set_close(&set);
    json_free(tree);
}

static void run_cuda_noise(golden_case* c, const char* folder, const char* stem)
{
    char name[300], message[SUMI_ERROR_TEXT_BYTES];
    sumi_tensor_set set;
    snprintf(name, sizeof name, "%s.json", stem);
    node* device = manifest_of(c, folder, name);
    snprintf(name, sizeof name, "%s.safetensors", stem);
    if (device == NULL || !open_set(c, &set, folder, name)) {
        json_free(device);
        return;
    }
    const char* text = sumi_metadata_find(&set, "rows");
    node* rows = text != NULL ? json_parse(text, strlen(text), message, sizeof message) : NULL;
    double worst = 0;
    int draws = 0;
    bool offsets = true;
    for (const node* row = rows != NULL ? rows->first : NULL; row != NULL; row = row->next) {
        const char *key = json_text(row, "name"), *dtype = json_text(row, "dtype");
        if (key == NULL || dtype == NULL) continue;
        snprintf(name, sizeof name, "%s.index", key);
        array index = array_of(sumi_tensor_find(&set, name));
        snprintf(name, sizeof name, "%s.value", key);
        array value = array_of(sumi_tensor_find(&set, name));
        size_t count = (size_t)json_number(row, "count", 0);
        float* made = calloc(count + 1, sizeof *made);
        sumi_torch_cuda_generator generator;
        sumi_torch_cuda_seed(&generator, seed_of(row), (int32_t)json_number(device, "sm_count", 0),
                             (int32_t)json_number(device, "max_threads_per_sm", 0));
        generator.offset = (uint64_t)json_number(row, "offset_before", 0);
        torch_cuda_randn(&generator, made, count);
        offsets = offsets && generator.offset == (uint64_t)json_number(row, "offset_after", (double)generator.offset);
        // a 16-bit draw is the rounded float32 draw: half a step of the type more
        double step = strcmp(dtype, "bfloat16") == 0 ? 1.0 / 128 : strcmp(dtype, "float16") == 0 ? 1.0 / 1024 : 0.0;
        for (int64_t i = 0; i < index.count && i < value.count; i++) {
            size_t at = (size_t)index.values[i];
            double off = at < count ? fabs((double)made[at] - (double)value.values[i])
                                          - 0.52 * step * fabs((double)value.values[i])
                                    : NAN;
            worst = off > worst || off != off ? off : worst;
        }
        draws++;
        free(made);
        array_free(&index);
        array_free(&value);
    }
    snprintf(name, sizeof name, "%s: %d draws", stem, draws);
    report(c, name, worst, 1.2e-6, worst <= 1.2e-6 && draws > 0 && offsets);
    json_free(rows);
    json_free(device);
    sumi_tensor_set_close(&set);
}

static void run_rng(golden_case* c, const char* folder)
{
    int count;
    char** names = system_list(folder, &count);
    for (int i = 0; i < count; i++) {
        char stem[256];
        size_t length = strlen(names[i]);
        if (length < 6 || strcmp(names[i] + length - 5, ".json") != 0) continue;
        snprintf(stem, sizeof stem, "%.*s", (int)(length - 5), names[i]);
        if (strncmp(stem, "cuda", 4) == 0) run_cuda_noise(c, folder, stem);
        else if (strstr(stem, "older") != NULL)
            not_checked(c, stem, "the library draws 16-bit noise as torch 2.13 and newer do");
        else run_cpu_noise(c, folder, stem);
    }
    system_free_list(names, count);
}

// ---- Files ----------------------------------------------------------------------------------------------------------

// What was opened is what the manifest says: names, types, shapes and, where given, bytes.
static bool same_content(const sumi_tensor_set* set, const node* entry)
{
    const node* list = json_get(entry, "tensors");
    bool same = list == NULL || (size_t)list->count == set->count;
    for (const node* n = list != NULL ? list->first : NULL; n != NULL && same; n = n->next) {
        const sumi_tensor* tensor = sumi_tensor_find(set, n->key);
        const node* shape = json_get(n, "shape");
        const char *dtype = json_text(n, "dtype") != NULL ? json_text(n, "dtype") : json_text(n, "type"),
                   *bytes = json_text(n, "bytes");
        same = tensor != NULL && shape != NULL && tensor->rank == shape->count && dtype != NULL
            && strcmp(sumi_dtype_get(tensor->dtype)->name, dtype) == 0;
        int32_t axis = 0;
        for (const node* d = same ? shape->first : NULL; d != NULL; d = d->next)
            same = same && tensor->shape[axis++] == (int64_t)d->number;
        for (size_t i = 0; same && bytes != NULL && i < tensor->bytes; i++) {
            unsigned value = 0;
            same = 2 * i + 1 < strlen(bytes) && sscanf(bytes + 2 * i, "%2x", &value) == 1
                && ((const uint8_t*)tensor->data)[i] == value;
        }
    }
    return same;
}

static void run_verdicts(golden_case* c, const char* folder, const char* what)
{
    node* tree = manifest_of(c, folder, "manifest.json");
    const node* list = json_get(tree, "files") != NULL ? json_get(tree, "files") : tree;
    int count = 0, wrong = 0;
    for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next, count++) {
        const char *file = json_text(n, "file"), *sub = json_text(n, "folder"),
                   *expect = json_text(n, "sumi") != NULL ? json_text(n, "sumi") : json_text(n, "expect");
        char path[2600];
        snprintf(path, sizeof path, "%s/%s", folder, file != NULL ? file : sub != NULL ? sub : "");
        sumi_tensor_set set;
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &c->g->heap, NULL);
        sumi_result result =
            sub != NULL ? open_tensor_folder(&set, path, "model", &error) : sumi_tensor_set_open(&set, path, &error);
        bool free_choice = expect == NULL || (strcmp(expect, "accept") != 0 && strcmp(expect, "reject") != 0);
        bool good = free_choice ? result == SUMI_OK || error.text[0] != 0
                  : strcmp(expect, "accept") == 0
                      ? result == SUMI_OK && same_content(&set, n)
                      : result != SUMI_OK
                            && strstr(error.text,
                                      file != NULL ? strrchr(file, '/') != NULL ? strrchr(file, '/') + 1 : file : sub)
                                   != NULL;
        if (!good && wrong++ < 10)
            printf("  %s should be: %s; result %d, \"%s\"\n", path, expect != NULL ? expect : "?", (int)result,
                   error.text);
        sumi_tensor_set_close(&set);
    }
    char label[300];
    snprintf(label, sizeof label, "%s: %d verdicts", what, count);
    report(c, label, wrong, 0, wrong == 0 && count > 0);
    json_free(tree);
}

// Dequantised values: STEM.TENSOR of expected.safetensors.
static void run_gguf_values(golden_case* c, const char* folder)
{
    sumi_tensor_set expected;
    if (!open_set(c, &expected, folder, "expected.safetensors")) return;
    int count = 0, wrong = 0;
    for (size_t i = 0; i < expected.count; i++) {
        const char *name = expected.tensors[i].name, *dot = strchr(name, '.');
        if (dot == NULL) continue;
        char path[2600];
        sumi_tensor_set set;
        sumi_error error = {0};
        snprintf(path, sizeof path, "%s/%.*s.gguf", folder, (int)(dot - name), name);
        sumi_tensor_set_init(&set, &c->g->heap, NULL);
        bool opened = sumi_file_exists(NULL, path) && sumi_tensor_set_open(&set, path, &error) == SUMI_OK;
        const sumi_tensor* tensor = opened ? sumi_tensor_find(&set, dot + 1) : NULL;
        array want = array_of(&expected.tensors[i]), got = array_of(tensor);
        bool same =
            want.count == got.count && memcmp(want.values, got.values, (size_t)want.count * sizeof *want.values) == 0;
        if (!same && wrong++ < 10) printf("  %s of %s has other values\n", dot + 1, path);
        count++;
        array_free(&want);
        array_free(&got);
        sumi_tensor_set_close(&set);
    }
    char label[64];
    snprintf(label, sizeof label, "gguf: %d tensors dequantised", count);
    report(c, label, wrong, 0, wrong == 0 && count > 0);
    sumi_tensor_set_close(&expected);
}

static void run_files(golden_case* c, const char* folder)
{
    static const char* const s_parts[] = {"safetensors", "index", "gguf"};
    for (size_t i = 0; i < 3; i++) {
        char path[2400];
        snprintf(path, sizeof path, "%s/%s", folder, s_parts[i]);
        if (!sumi_path_is_folder(path)) continue;
        run_verdicts(c, path, s_parts[i]);
        if (i == 2) run_gguf_values(c, path);
    }
}

// ---- Pictures -------------------------------------------------------------------------------------------------------

static void run_images(golden_case* c, const char* folder)
{
    node* tree = manifest_of(c, folder, "manifest.json");
    sumi_tensor_set expected;
    if (tree == NULL || !open_set(c, &expected, folder, "expected.safetensors")) {
        json_free(tree);
        return;
    }
    int count = 0, wrong = 0;
    char path[2600], message[PICTURE_MESSAGE_BYTES], label[300];
    const node* list = json_get(tree, "good");
    for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next, count++) {
        const char* file = json_text(n, "file");
        picture_file image = {0};
        snprintf(path, sizeof path, "%s/%s", folder, file != NULL ? file : "");
        snprintf(label, sizeof label, "%.*s.rgba8", file != NULL ? (int)strcspn(file, ".") : 0,
                 file != NULL ? file : "");
        const sumi_tensor* tensor = sumi_tensor_find(&expected, label);
        bool same = picture_read(path, 4, &image, message) && tensor != NULL && tensor->rank == 3
                 && image.height == tensor->shape[0] && image.width == tensor->shape[1]
                 && memcmp(image.pixels, tensor->data, tensor->bytes) == 0;
        if (!same && wrong++ < 10) printf("  %s has other pixels\n", path);
        picture_free(&image);
    }
    snprintf(label, sizeof label, "%d pictures", count);
    report(c, label, wrong, 0, wrong == 0 && count > 0);
    count = wrong = 0;
    list = json_get(tree, "malformed");
    for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next, count++) {
        const char *file = json_text(n, "file"), *expect = json_text(n, "expect");
        picture_file image = {0};
        snprintf(path, sizeof path, "%s/%s", folder, file != NULL ? file : "");
        bool read = picture_read(path, 4, &image, message),
             must_refuse = expect != NULL && strcmp(expect, "reject") == 0;
        if (read && must_refuse && wrong++ < 10) printf("  %s should be refused\n", path);
        picture_free(&image);
    }
    snprintf(label, sizeof label, "%d damaged pictures", count);
    report(c, label, wrong, 0, wrong == 0);
    sumi_tensor_set_close(&expected);
    json_free(tree);
}

// ---- Single operations ----------------------------------------------------------------------------------------------

typedef struct operation {
    golden_case* c;
    const sumi_tensor_set* set;
    const char* name;
    const node* entry;
    sumi_plan plan;
    sumi_value out, in[4];
    array data[4];
    array got;
    bool planes;
    int64_t height, width;
} operation;

static const sumi_tensor* op_tensor(const operation* o, const char* key)
{
    char name[300];
    snprintf(name, sizeof name, "%s.%s", o->name, key);
    return sumi_tensor_find(o->set, name);
}

static sumi_weight weight_of(const sumi_tensor* tensor)
{
    sumi_weight w = {.name = tensor->name,
                     .rows = tensor->rank > 1 ? (int32_t)tensor->shape[0] : 1,
                     .cols = 1,
                     .tensor_count = 1,
                     .index = -1};
    for (int32_t i = tensor->rank > 1 ? 1 : 0; i < tensor->rank; i++) w.cols *= (int32_t)tensor->shape[i];
    w.tensors[0] = (sumi_stacked_tensor){.data = tensor->data, .dtype = tensor->dtype, .rows = w.rows, .scale = 1.0f};
    return w;
}

static void write_operation(plan_run* run)
{
    operation* o = run->context;
    for (int i = 0; i < 4; i++)
        if (o->in[i].id != 0) write_floats(run, o->in[i], 0, o->data[i].values, o->data[i].count);
}

static sumi_value bind_rows(operation* o, int i, const array* a, int64_t rows, int64_t cols)
{
    o->data[i] = array_make(a->values, 2, (const int64_t[]){rows, cols});
    return o->in[i] = sumi_plan_bound(&o->plan, "input", SUMI_ELEMENT_ACTIVATION, (int32_t)rows, (int32_t)cols);
}

// A picture [1, c, h, w] as rows of pixels.
static sumi_value bind_picture(operation* o, const array* a)
{
    int64_t channels = a->shape[1], pixels = a->shape[2] * a->shape[3];
    array rows = array_make(NULL, 2, (const int64_t[]){pixels, channels});
    for (int64_t k = 0; k < channels; k++)
        for (int64_t p = 0; p < pixels; p++) rows.values[p * channels + k] = a->values[k * pixels + p];
    sumi_value value = bind_rows(o, 0, &rows, pixels, channels);
    array_free(&rows);
    return value;
}

static double number_after(const char* text, const char* mark, double otherwise)
{
    const char* at = text != NULL ? strstr(text, mark) : NULL;
    return at != NULL ? strtod(at + strlen(mark), NULL) : otherwise;
}

// Runs the plan; o->got is the output, as planes when it is a picture.
static bool run_operation(operation* o)
{
    sumi_error error = {0};
    plan_run run = {.c = o->c, .write = write_operation, .context = o};
    if (o->out.id != 0 && o->plan.error.result == SUMI_OK) o->plan.values[o->out.id - 1].bound = true;
    if (sumi_plan_finish(&o->plan, &error) != SUMI_OK || !run_plan(&run, &o->plan)) return false;
    o->got = o->planes ? read_planes(&run, o->out, o->height, o->width) : read_array(&run, o->out);
    return true;
}

static bool starts(const char* text, const char* with) { return strncmp(text, with, strlen(with)) == 0; }

// q, k, v [heads, n, d] in one matrix whose first rows are the queries'. mask: keys that take part.
static const char* write_attention(operation* o, const array* q, const array* k, const array* v, const array* mask,
                                   const char* text)
{
    int64_t heads = q->shape[0], queries = q->shape[1], dim = q->shape[2], kv = k->shape[0], keys = 0;
    int64_t* kept = calloc((size_t)k->shape[1] + 1, sizeof *kept);
    for (int64_t i = 0; i < k->shape[1]; i++)
        if (mask->values == NULL || mask->values[i] != 0) kept[keys++] = i;
    if (keys < queries) {
        free(kept);
        return "fewer keys than queries are not possible in the op: queries are keys of their sequence";
    }
    int64_t cols = (heads + 2 * kv) * dim;
    array rows = array_make(NULL, 2, (const int64_t[]){keys, cols});
    for (int64_t r = 0; r < keys; r++) {
        for (int64_t h = 0; h < heads && r < queries; h++)
            memcpy(rows.values + r * cols + h * dim, q->values + (h * queries + r) * dim, (size_t)dim * sizeof(float));
        for (int64_t h = 0; h < kv; h++) {
            memcpy(rows.values + r * cols + (heads + h) * dim, k->values + (h * k->shape[1] + kept[r]) * dim,
                   (size_t)dim * sizeof(float));
            memcpy(rows.values + r * cols + (heads + kv + h) * dim, v->values + (h * k->shape[1] + kept[r]) * dim,
                   (size_t)dim * sizeof(float));
        }
    }
    free(kept);
    sumi_sequence sequence = {.span = {{0, (int32_t)queries}, {(int32_t)queries, (int32_t)(keys - queries)}},
                              .span_count = keys > queries ? 2 : 1,
                              .query_spans = 1};
    double scale = strstr(text, "scale 0") != NULL ? number_after(text, "scale ", 0) : 1.0 / sqrt((double)dim);
    sumi_attention attention = {.q_heads = (int32_t)heads,
                                .kv_heads = (int32_t)kv,
                                .dim = (int32_t)dim,
                                .scale = (float)scale,
                                .causal = strstr(o->name, "causal") != NULL,
                                .sequences = &sequence,
                                .sequence_count = 1};
    o->out = sumi_plan_attention(&o->plan, "attention", bind_rows(o, 0, &rows, keys, cols), &attention);
    array_free(&rows);
    return NULL;
}

// Rows [n, heads * d] of attention's output to [heads, n, d].
static void to_heads(array* got, int64_t heads, int64_t queries)
{
    int64_t dim = got->shape[1] / heads;
    array out = array_make(NULL, 3, (const int64_t[]){heads, queries, dim});
    for (int64_t h = 0; h < heads; h++)
        for (int64_t r = 0; r < queries; r++)
            memcpy(out.values + (h * queries + r) * dim, got->values + r * got->shape[1] + h * dim,
                   (size_t)dim * sizeof(float));
    array_free(got);
    *got = out;
}

// x rotated as the q part of a matrix whose k and v parts are empty heads.
static void write_rotary(operation* o, const array* x, const array* cosine, const array* sine, sumi_rotary rotary)
{
    int64_t n = x->shape[0], heads = x->shape[1], dim = x->shape[2], cols = (heads + 2) * dim;
    array rows = array_make(NULL, 2, (const int64_t[]){n, cols}),
          table = array_make(NULL, 2, (const int64_t[]){n, dim});
    for (int64_t r = 0; r < n; r++) {
        memcpy(rows.values + r * cols, x->values + r * heads * dim, (size_t)(heads * dim) * sizeof(float));
        for (int64_t k = 0; k < dim / 2; k++) {
            table.values[r * dim + 2 * k] = cosine->values[r * dim / 2 + k];
            table.values[r * dim + 2 * k + 1] = sine->values[r * dim / 2 + k];
        }
    }
    sumi_value qkv = bind_rows(o, 0, &rows, n, cols);
    o->data[1] = array_make(table.values, 2, table.shape);
    o->in[1] = sumi_plan_bound(&o->plan, "rope", SUMI_ELEMENT_FLOAT, (int32_t)n, (int32_t)dim);
    sumi_plan_qk_norm_rope(&o->plan, &(sumi_plan_qk_args){.label = "rotary",
                                                          .qkv = qkv,
                                                          .rows = (int32_t)n,
                                                          .q_heads = (int32_t)heads,
                                                          .kv_heads = 1,
                                                          .dim = (int32_t)dim,
                                                          .eps = 1e-6f,
                                                          .rope = o->in[1],
                                                          .rotary = rotary});
    o->out = qkv;
    array_free(&rows);
    array_free(&table);
}

static void write_picture_op(operation* o, const array* x, const sumi_weight* w, const sumi_weight* b, const char* name)
{
    bool down = strstr(name, "down") != NULL, up = starts(name, "upsample");
    sumi_op_conv conv = {.height = (int32_t)x->shape[2],
                         .width = (int32_t)x->shape[3],
                         .kernel = starts(name, "conv1x1") ? 1 : 3,
                         .stride = down ? 2 : 1,
                         .upsamples = up,
                         .pads_end = down};
    sumi_value in = bind_picture(o, x);
    o->planes = true;
    o->height = x->shape[2];
    o->width = x->shape[3];
    if (starts(name, "group_norm")) {
        o->out = sumi_plan_group_norm(
            &o->plan,
            &(sumi_plan_group_norm_args){.label = "group_norm",
                                         .x = in,
                                         .weight = w,
                                         .bias = b,
                                         .groups = 32,
                                         .eps = (float)number_after(json_text(o->entry, "op"), "eps ", 1e-6)});
        return;
    }
    o->out = sumi_plan_conv(&o->plan,
                            &(sumi_plan_conv_args){.label = "conv", .x = in, .weight = w, .bias = b, .shape = conv});
    o->height = o->height * (up ? 2 : 1) / conv.stride;
    o->width = o->width * (up ? 2 : 1) / conv.stride;
}

// Writes the op of a case. Returns why it cannot, NULL when it did.
static const char* write_case(operation* o, const char* text, sumi_weight weights[2], array in[4])
{
    const char* name = o->name;
    static const struct {
        const char* name;
        sumi_activation activation;
    } s_activations[] = {{"silu", SUMI_ACT_SILU},
                         {"gelu_tanh", SUMI_ACT_GELU_TANH},
                         {"gelu_erf", SUMI_ACT_GELU_ERF},
                         {"tanh", SUMI_ACT_TANH}};
    // upsampling as a convolution that does nothing else
    static const float s_identity[3 * 3 * 9] = {[4] = 1, [27 + 9 + 4] = 1, [54 + 18 + 4] = 1};
    const sumi_tensor *w = op_tensor(o, "input.w"), *b = op_tensor(o, "input.b");
    if (w != NULL) weights[0] = weight_of(w);
    if (b != NULL) weights[1] = weight_of(b);
    in[0] = array_of(op_tensor(o, "input.x"));
    sumi_plan_section(&o->plan, SUMI_SECTION_PREPARE, 1, 0);
    if (starts(name, "rms_norm") || starts(name, "layer_norm")) {
        sumi_value x = bind_rows(o, 0, &in[0], in[0].shape[0], in[0].shape[1]);
        o->out = sumi_plan_norm(&o->plan,
                                &(sumi_plan_norm_args){.label = "norm",
                                                       .x = x,
                                                       .rows = (int32_t)in[0].shape[0],
                                                       .norm = starts(name, "rms") ? SUMI_NORM_RMS : SUMI_NORM_LAYER,
                                                       .weight = w != NULL ? &weights[0] : NULL,
                                                       .eps = (float)number_after(text, "eps ", 1e-6)});
        if (strstr(name, "plus_one") != NULL && o->plan.op_count > 0)
            o->plan.ops[o->plan.op_count - 1].u.norm.weight_plus_one = true;
        return NULL;
    }
    for (size_t i = 0; i < 4; i++)
        if (starts(name, s_activations[i].name)) {
            o->out = sumi_plan_activate(&o->plan, bind_rows(o, 0, &in[0], 1, in[0].count), s_activations[i].activation);
            return NULL;
        }
    if (starts(name, "linear") && w != NULL) {
        o->out = sumi_plan_linear(&o->plan,
                                  &(sumi_plan_linear_args){.label = "linear",
                                                           .x = bind_rows(o, 0, &in[0], in[0].shape[0], in[0].shape[1]),
                                                           .weight = &weights[0],
                                                           .bias = b != NULL ? &weights[1] : NULL});
        return NULL;
    }
    if (starts(name, "sdpa")) {
        in[1] = array_of(op_tensor(o, "input.q"));
        in[2] = array_of(op_tensor(o, "input.k"));
        in[3] = array_of(op_tensor(o, "input.v"));
        array mask = array_of(op_tensor(o, "input.mask"));
        const char* why = write_attention(o, &in[1], &in[2], &in[3], &mask, text);
        array_free(&mask);
        return why;
    }
    if (starts(name, "rotary")) {
        in[1] = array_of(op_tensor(o, "input.cos"));
        in[2] = array_of(op_tensor(o, "input.sin"));
        write_rotary(o, &in[0], &in[1], &in[2],
                     strstr(name, "half") != NULL ? SUMI_ROTARY_HALVES : SUMI_ROTARY_INTERLEAVED);
        return NULL;
    }
    if (starts(name, "timestep")) {
        const sumi_tensor* expect = op_tensor(o, "expect");
        if (strstr(name, "shift1") != NULL) return "no model of this library spaces its frequencies so";
        in[0] = array_of(op_tensor(o, "input.t"));
        o->data[0] = array_make(in[0].values, 2, (const int64_t[]){in[0].count, 1});
        // float on a GPU, too
        o->in[0] = sumi_plan_bound(&o->plan, "times", SUMI_ELEMENT_FLOAT, (int32_t)in[0].count, 1);
        o->out = sumi_plan_time_embed(&o->plan,
                                      &(sumi_plan_time_args){.times = o->in[0],
                                                             .width = expect != NULL ? (int32_t)expect->shape[1] : 2,
                                                             .scale = 1.0f,
                                                             .max_period = 10000.0f,
                                                             .cos_first = starts(name + 9, "cos")});
        return NULL;
    }
    if (starts(name, "upsample") && in[0].rank == 4 && in[0].shape[1] == 3) {
        weights[0] =
            (sumi_weight){.name = "identity",
                          .rows = 3,
                          .cols = 27,
                          .tensor_count = 1,
                          .tensors = {{.data = s_identity, .dtype = SUMI_DTYPE_F32, .rows = 3, .scale = 1.0f}}};
        write_picture_op(o, &in[0], &weights[0], NULL, name);
        return NULL;
    }
    if ((starts(name, "conv") || starts(name, "group_norm")) && !starts(name, "convert") && w != NULL
        && in[0].rank == 4) {
        write_picture_op(o, &in[0], &weights[0], b != NULL ? &weights[1] : NULL, name);
        return NULL;
    }
    return starts(name, "softmax") ? "it is a part of the attention op, not one of its own"
                                   : "this program does not know the operation";
}

// "abs 1e-6 + rel 1e-5", "abs 1e-4: ...", "exact"
static void compare_operation(operation* o, const array* want)
{
    const char* text = json_text(o->entry, "tolerance");
    double absolute = number_after(text, "abs ", 0), relative = number_after(text, "rel ", 0), worst = 0;
    bool same_size = want->count == o->got.count;
    for (int64_t i = 0; i < want->count && same_size; i++) {
        double a = o->got.values[i], b = want->values[i];
        double over = (a != a) != (b != b) ? INFINITY : a == b || a != a ? 0 : fabs(a - b) - relative * fabs(b);
        worst = over > worst ? over : worst;
    }
    report(o->c, o->name, same_size ? worst : INFINITY, absolute, same_size && worst <= absolute);
}

static void run_operation_case(golden_case* c, const sumi_tensor_set* set, const node* entry)
{
    operation o = {.c = c, .set = set, .name = json_text(entry, "case"), .entry = entry};
    array in[4] = {{0}};
    sumi_weight weights[2] = {{0}};
    sumi_plan_begin(&o.plan, &c->g->heap, 4);
    array want = array_of(op_tensor(&o, "expect"));
    const char* why =
        want.values == NULL ? "no expected tensor of its name" : write_case(&o, json_text(entry, "op"), weights, in);
    if (why != NULL) not_checked(c, o.name, why);
    else if (run_operation(&o)) {
        if (starts(o.name, "sdpa")) to_heads(&o.got, in[1].shape[0], in[1].shape[1]);
        if (starts(o.name, "rotary")) { // the q columns alone
            int64_t n = in[0].shape[0], cols = in[0].shape[1] * in[0].shape[2];
            for (int64_t r = 0; r < n; r++)
                memmove(o.got.values + r * cols, o.got.values + r * o.got.shape[1], (size_t)cols * sizeof(float));
            o.got.count = n * cols;
        }
        compare_operation(&o, &want);
    } else {
        case_fails(c, "%s: the plan did not run", o.name);
    }
    for (int i = 0; i < 4; i++) {
        array_free(&in[i]);
        array_free(&o.data[i]);
    }
    array_free(&want);
    array_free(&o.got);
    sumi_plan_end(&o.plan);
}

static int64_t bits_at(const sumi_tensor* tensor, int64_t i)
{
    if (tensor->dtype == SUMI_DTYPE_I8 || tensor->dtype == SUMI_DTYPE_U8) return ((const uint8_t*)tensor->data)[i];
    if (tensor->dtype == SUMI_DTYPE_I16 || tensor->dtype == SUMI_DTYPE_U16) {
        uint16_t value;
        memcpy(&value, (const uint8_t*)tensor->data + 2 * i, 2);
        return value;
    }
    uint32_t value;
    memcpy(&value, (const uint8_t*)tensor->data + 4 * i, 4);
    return value;
}

static bool is_nan_bits(uint32_t bits) { return (bits & 0x7f800000u) == 0x7f800000u && (bits & 0x7fffffu) != 0; }

// Bit patterns of conversions. NaN may be any NaN.
static void run_conversions(golden_case* c, const sumi_tensor_set* set)
{
    const sumi_tensor *from = sumi_tensor_find(set, "convert.from_f32.bits"),
                      *halves = sumi_tensor_find(set, "convert.f16.input.bits");
    static const char* const s_names[] = {"f32_to_bf16",      "f32_to_f16",     "f32_to_f8_e4m3fn", "f32_to_f8_e5m2",
                                          "f8_e4m3fn_to_f32", "f8_e5m2_to_f32", "f16_to_f32",       "bf16_to_f32"};
    for (int k = 0; k < 8; k++) {
        char name[128];
        snprintf(name, sizeof name, "convert.%s.bits", s_names[k]);
        const sumi_tensor* want = sumi_tensor_find(set, name);
        const sumi_tensor* source = k < 4 ? from : halves;
        if (want == NULL || (k != 4 && k != 5 && source == NULL)) continue;
        int64_t count = want->shape[0], wrong = 0;
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits = k == 4 || k == 5 ? (uint32_t)i : (uint32_t)bits_at(source, i), made,
                     wanted = (uint32_t)bits_at(want, i);
            float value;
            memcpy(&value, &bits, sizeof value);
            switch (k) {
            case 0: made = sumi_float_to_bf16(value); break;
            case 1: made = float_to_f16(value); break;
            case 2: made = float_to_e4m3(value); break;
            case 3: made = float_to_e5m2(value); break;
            default: {
                float decoded = k == 4 ? e4m3_to_float((uint8_t)bits)
                              : k == 5 ? e5m2_to_float((uint8_t)bits)
                              : k == 6 ? sumi_f16_to_float((uint16_t)bits)
                                       : sumi_bf16_to_float((uint16_t)bits);
                memcpy(&made, &decoded, sizeof made);
            }
            }
            bool both_nan = k < 4 ? is_nan_bits(bits) : is_nan_bits(made) && is_nan_bits(wanted);
            wrong += made != wanted && !both_nan;
        }
        report(c, name, (double)wrong, 0, wrong == 0);
    }
}

static void run_numerics(golden_case* c, const char* folder)
{
    node* tree = manifest_of(c, folder, "ops.json");
    sumi_tensor_set set;
    if (tree == NULL || !open_set(c, &set, folder, "ops.safetensors")) {
        json_free(tree);
        return;
    }
    const node* list = json_get(tree, "cases");
    for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
        const char* name = json_text(n, "case");
        if (name != NULL && !starts(name, "convert")) run_operation_case(c, &set, n);
    }
    run_conversions(c, &set);
    sumi_tensor_set_close(&set);
    json_free(tree);
}

void run_common(golden* g, const char* folder, const char* part)
{
    // Float32 tolerances: a GPU's ops have test_cuda_ops.
    sumi_runner* runner = g->runner;
    bool is_gpu = g->is_gpu;
    g->runner = g->cpu;
    g->is_gpu = false;
    golden_case c = plain_case(g);
    printf("%s: %s\n", part, folder);
    g->case_failed = 0;
    if (strcmp(part, "tokenizers") == 0) run_tokenizers(&c, folder);
    else if (strcmp(part, "rng") == 0) run_rng(&c, folder);
    else if (strcmp(part, "files") == 0) run_files(&c, folder);
    else if (strcmp(part, "numerics") == 0) run_numerics(&c, folder);
    else run_images(&c, folder);
    g->runner = runner;
    g->is_gpu = is_gpu;
    finish_case(&c);
    g->cases++;
    if (g->case_failed > 0) printf("  -> %s FAILED\n", part);
}
