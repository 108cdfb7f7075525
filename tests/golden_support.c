#include "golden_support.h"
#include "at_once.h"
#include "files/json.h"
#include "models/network_state.h"
#include "plan_runner.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// ---- json -----------------------------------------------------------------------------------------------------------

static char* decode(const sumi_json_text* text, size_t* out_bytes)
{
    char* out = calloc(text->bytes + 1, 1);
    *out_bytes = sumi_json_decode(text, out, text->bytes);
    out[*out_bytes] = 0;
    return out;
}

static node* read_node(sumi_json* json)
{
    node* n = calloc(1, sizeof *n);
    node** tail = &n->first;
    sumi_json_text text = {0};
    switch (sumi_json_peek(json)) {
    case SUMI_JSON_OBJECT:
        n->type = NODE_OBJECT;
        if (sumi_json_object(json)) {
            while (sumi_json_key(json, &text)) {
                size_t bytes;
                char* key = decode(&text, &bytes);
                *tail = read_node(json);
                (*tail)->key = key;
                tail = &(*tail)->next;
                n->count++;
            }
        }
        break;
    case SUMI_JSON_ARRAY:
        n->type = NODE_LIST;
        if (sumi_json_array(json)) {
            while (sumi_json_item(json)) {
                *tail = read_node(json);
                tail = &(*tail)->next;
                n->count++;
            }
        }
        break;
    case SUMI_JSON_STRING:
        n->type = NODE_TEXT;
        if (sumi_json_string(json, &text)) n->text = decode(&text, &n->text_bytes);
        break;
    case SUMI_JSON_NUMBER: {
        const char* at = json->at;
        bool negative = *at == '-';
        for (at += negative; at < json->end && *at >= '0' && *at <= '9'; at++)
            n->integer = n->integer * 10 + (uint64_t)(*at - '0');
        n->integer = negative ? 0 - n->integer : n->integer;
        n->type = NODE_NUMBER;
        n->number = sumi_json_number(json);
        break;
    }
    case SUMI_JSON_TRUE:
    case SUMI_JSON_FALSE:
        n->type = NODE_BOOL;
        n->number = sumi_json_bool(json);
        break;
    default: sumi_json_skip(json); break;
    }
    return n;
}

node* json_parse(const void* text, size_t bytes, char* message, size_t message_bytes)
{
    sumi_error error = {0};
    sumi_json json;
    sumi_json_begin(&json, text, bytes, &error);
    node* tree = read_node(&json);
    if (sumi_json_end(&json) != SUMI_OK) {
        json_free(tree);
        tree = NULL;
    }
    snprintf(message, message_bytes, "%s", error.text);
    return tree;
}

node* json_read(const char* path, char* message, size_t message_bytes)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_file file = {0};
    sumi_error error = {0};
    if (sumi_file_open(&file, &heap, NULL, path, &error) != SUMI_OK) {
        snprintf(message, message_bytes, "%s", error.text);
        return NULL;
    }
    node* tree = json_parse(file.data, (size_t)file.bytes, message, message_bytes);
    sumi_file_close(&file);
    return tree;
}

void json_free(node* tree)
{
    while (tree != NULL) {
        node* next = tree->next;
        json_free(tree->first);
        free(tree->key);
        free(tree->text);
        free(tree);
        tree = next;
    }
}

const node* json_get(const node* object, const char* key)
{
    for (const node* n = object != NULL && object->type == NODE_OBJECT ? object->first : NULL; n != NULL; n = n->next)
        if (strcmp(n->key, key) == 0) return n;
    return NULL;
}

const char* json_text(const node* object, const char* key)
{
    const node* n = json_get(object, key);
    return n != NULL && n->type == NODE_TEXT ? n->text : NULL;
}

double json_number(const node* object, const char* key, double otherwise)
{
    const node* n = json_get(object, key);
    return n != NULL && (n->type == NODE_NUMBER || n->type == NODE_BOOL) ? n->number : otherwise;
}

// ---- Tensors --------------------------------------------------------------------------------------------------------

array array_make(const float* values, int32_t rank, const int64_t* shape)
{
    array a = {.count = 1, .rank = rank};
    for (int32_t i = 0; i < rank; i++) a.count *= a.shape[i] = shape[i];
    a.values = calloc((size_t)a.count + 1, sizeof *a.values);
    if (values != NULL) memcpy(a.values, values, (size_t)a.count * sizeof *values);
    return a;
}

array array_of(const sumi_tensor* tensor)
{
    if (tensor == NULL) return (array){0};
    array a = array_make(NULL, tensor->rank, tensor->shape);
    sumi_dtype_to_float(tensor->dtype, tensor->data, a.values, (size_t)a.count);
    return a;
}

void array_free(array* a)
{
    free(a->values);
    *a = (array){0};
}

bool join_path(char* out, size_t bytes, const char* folder, const char* name)
{
    if (name[0] == '/') return snprintf(out, bytes, "%s", name) < (int)bytes;
    return sumi_path_join(out, bytes, folder, name);
}

// ---- Reporting ------------------------------------------------------------------------------------------------------

void report(golden_case* c, const char* what, double error, double tolerance, bool good)
{
    char label[700];
    snprintf(label, sizeof label, "%s%s", what, c->by_op ? ", op by op" : "");
    printf("  %-44s %-4s error %.3g, tolerance %.3g\n", label, good ? "ok" : "OVER", error, tolerance);
    c->g->passed += good;
    c->g->failed += !good;
    c->g->case_failed += !good;
}

void not_checked(golden_case* c, const char* name, const char* why)
{
    printf("  %-44s not checked: %s\n", name, why);
    c->g->not_checked++;
    const sumi_tensor* tensor = sumi_tensor_find(&c->set, name);
    if (tensor != NULL) c->seen[tensor - c->set.tensors] = true;
}

void case_fails(golden_case* c, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("  FAILED: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    c->g->failed++;
    c->g->case_failed++;
}

static const sumi_tensor* find(const golden_case* c, const char* kind, const char* name)
{
    char full[512];
    snprintf(full, sizeof full, "%s.%s", kind, name);
    return sumi_tensor_find(&c->set, full);
}

array input(const golden_case* c, const char* name) { return array_of(find(c, "input", name)); }
bool has_tensor(const golden_case* c, const char* kind, const char* name) { return find(c, kind, name) != NULL; }
bool has_expected(const golden_case* c, const char* name) { return has_tensor(c, "expect", name); }

// The json's description of KIND.NAME.
static const node* describe(const golden_case* c, const char* kind, const char* name)
{
    char full[512];
    snprintf(full, sizeof full, "%s.%s", kind, name);
    return json_get(json_get(c->json, "tensors"), full);
}

// Its prose; "likewise" means that of the entry before it.
static const char* about_of(const golden_case* c, const node* description)
{
    const node* list = json_get(c->json, "tensors");
    const char* about = NULL;
    for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
        const char* text = json_text(n, "about");
        if (text != NULL && strstr(text, "likewise") == NULL) about = text;
        if (n == description) return about != NULL ? about : json_text(n, "meaning");
    }
    return NULL;
}

// Which row of the whole matrix row r of what was stored is. The description says it: "token rows 0,1,251", "every 4th
// token", "first 4 and last 4 tokens", else the leading ones.
static int64_t stored_row(const char* about, int64_t r, int64_t stored, int64_t whole)
{
    if (stored == whole || about == NULL) return r;
    const char* every = strstr(about, "every ");
    int step = 0, head = 0, tail = 0;
    const char* list = strstr(about, "token rows ");
    if (list != NULL) {
        list += strlen("token rows ");
        for (int64_t i = 0; i < r && list != NULL; i++) list = strchr(list, ',') != NULL ? strchr(list, ',') + 1 : NULL;
        return list != NULL ? atoll(list) : -1;
    }
    if (every != NULL && sscanf(every, "every %d", &step) == 1 && step > 0) return r * step;
    const char* first = strstr(about, "first ");
    if (first != NULL && sscanf(first, "first %d and last %d", &head, &tail) == 2)
        return r < head && r < whole ? r : whole - stored + r; // of few rows some are stored twice
    if (strstr(about, "last ") != NULL && first == NULL) return whole - stored + r;
    return r;
}

// What a backend in bfloat16 may be off by. The factor is the golden data's own rule, and holds for weights as they are
// stored too, which are unpacked to the same bfloat16. With weights in 8 or 4 bits nothing is stored to go by, and the
// bound only says that nothing is broken. int4's is one and a half times the largest that the CPU has with the same
// matrices from a file in IQ4_NL (samples/instruments/bench/quantise.py): 0.30 in the latents of z-image-wide, 0.17 in
// NewBie-image's, 0.135 in a prediction. With text encoders in int8 too (--text), the largest error on an H200 is
// 0.084, behind two layers of the tiny XLM-RoBERTa tower, by Hopper's kernels and the portable ones alike; fp8 has 0.66
// in that tower's pooled vector.
#define BF16_FACTOR 1.5
double error_of_format(const golden_case* c)
{
    switch (c->g->weights) {
    case SUMI_WEIGHTS_FP8: return 0.15;
    case SUMI_WEIGHTS_INT8: return c->g->has_text_weights ? 0.12 : c->g->attention == SUMI_ATTENTION_8BIT ? 0.15 : 0.06;
    case SUMI_WEIGHTS_INT4: return 0.45;
    default: return c->g->attention == SUMI_ATTENTION_8BIT ? 0.15 : 0.0;
    }
}

// The reference's error in bfloat16 for the pooled vector of the case enc_jina; -1: there is no such case.
//
// How far roundings carry this vector of the tiny tower is chance, and differs from prompt to prompt: the reference's
// own error goes from 0.0067 to 0.0148 over eight prompts (0.0097 in the quadratic mean), an H200's from 0.0050 to
// 0.0179 (0.0104 in the mean, with kernels of its own or portable ones). So a prompt is held against the larger one of
// its own and of enc_jina's, 0.0148: with its own alone two of the eight would be at 1.7 and 2.0 times the reference's
// error.
static double pooled_error(const golden_case* c)
{
    char path[2400], message[256];
    snprintf(path, sizeof path, "%.2000s/enc_jina.json", c->folder);
    node* json = json_read(path, message, sizeof message);
    const node* about = json != NULL ? json_get(json_get(json, "tensors"), "expect.pooled") : NULL;
    const double error = json_number(about, "bf16_rel_l2", -1);
    json_free(json);
    return error;
}

// The error in bfloat16 that is stored for an expected tensor; -1: none. For some none is stored, but for one that is
// made in the same way beside it, or out of it and little else, and that one's holds.
static double error_of_reference(const golden_case* c, const char* name, const node* about)
{
    static const char* const s_alike[][2] = {{"velocity_base", "velocity"},  // without and with an adapter
                                             {"layer0.attention", "layer0"}, // inside of the layer
                                             {"layer0.mlp", "layer0"},
                                             {"layer5.attention", "layer5"},
                                             {"unscaled", "decoder.conv_in"}}; // what the first convolution reads
    const double stored = json_number(about, "bf16_rel_l2", -1);
    if (stored >= 0 && strcmp(name, "jina_pooled") == 0) return fmax(stored, pooled_error(c));
    for (size_t i = 0; i < sizeof s_alike / sizeof *s_alike && stored < 0; i++) {
        if (strcmp(name, s_alike[i][0]) == 0)
            return json_number(describe(c, "expect", s_alike[i][1]), "bf16_rel_l2", -1);
    }
    return stored;
}

// 8-bit pictures of a backend in bfloat16: NAME_u8 is off by what NAME may be, and by rounding. Where NAME is not
// stored, the number is printed.
static void compare_bytes(golden_case* c, const char* name, double root_mean_square, double sum_of_squares,
                          int64_t count)
{
    char whole[160], text[120];
    snprintf(whole, sizeof whole, "%.*s", (int)(strlen(name) > 3 ? strlen(name) - 3 : 0), name);
    double of_reference = json_number(describe(c, "expect", whole), "bf16_rel_l2", -1);
    if (of_reference >= 0) {
        double allowed = BF16_FACTOR * of_reference;
        allowed = fmax(allowed, error_of_format(c));
        // bytes are larger than values about 0, so this is the wider of two ways to say it
        allowed = allowed * sqrt(sum_of_squares / (double)count) + 0.6;
        report(c, name, root_mean_square, allowed, root_mean_square <= allowed);
        return;
    }
    snprintf(text, sizeof text, "no error in bfloat16 is stored for it; it is off by %.2f of 255", root_mean_square);
    not_checked(c, name, text);
}

static void compare_tensor(golden_case* c, const char* kind, const char* name, const array* got, int64_t rows_known)
{
    const sumi_tensor* tensor = find(c, kind, name);
    if (tensor == NULL || got->values == NULL) return;
    c->seen[tensor - c->set.tensors] = true;
    const node* about = describe(c, kind, name);
    const node* tolerance = json_get(about, "tolerance");
    if (strcmp(kind, "expect") != 0) name = tensor->name;
    array want = array_of(tensor);
    int64_t rows = want.rank > 0 && want.shape[0] > 0 ? want.shape[0] : 1, width = want.count / rows;
    if (want.count != got->count && want.rank == 1) rows = 1, width = want.count;
    int64_t whole = width > 0 ? got->count / width : 0;
    const char* prose = about_of(c, about);
    const bool may_repeat = prose != NULL && strstr(prose, "first ") != NULL;
    if (width == 0 || got->count % width != 0 || whole < 1 || (whole < rows && !may_repeat)) {
        report(c, name, (double)got->count, (double)want.count, false);
        case_fails(c, "%s: made %lld values where %lld are stored", name, (long long)got->count, (long long)want.count);
        array_free(&want);
        return;
    }
    double difference = 0, size = 0, largest = 0;
    int64_t compared = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t from = stored_row(prose, r, rows, whole);
        if (from < 0 || from >= whole) {
            difference = NAN;
            break;
        }
        if (rows_known >= 0 && from >= rows_known) continue;
        compared++;
        for (int64_t i = 0; i < width; i++) {
            double a = got->values[from * width + i], b = want.values[r * width + i], d = fabs(a - b);
            difference += d * d;
            size += b * b;
            largest = d > largest || !(d == d) ? d : largest;
        }
    }
    double relative = sqrt(difference) / (size > 0 ? sqrt(size) : 1.0), allowed,
           of_reference = error_of_reference(c, name, about);
    // where the tensors are not described one by one
    const double of_case =
        about == NULL && json_get(c->json, "tensors") == NULL ? json_number(c->json, "fp32_tolerance_rel_l2", -1) : -1;
    char label[600];
    if (compared == rows) snprintf(label, sizeof label, "%s", name);
    else
        snprintf(label, sizeof label, "%s (%lld of %lld rows: the others feed nothing)", name, (long long)compared,
                 (long long)rows);
    if (c->g->is_gpu && of_reference >= 0) {
        allowed = fmax(BF16_FACTOR * of_reference, json_number(tolerance, "rel_l2", 0));
        allowed = fmax(allowed, error_of_format(c));
        report(c, label, relative, allowed, relative <= allowed);
    } else if (c->g->is_gpu && tensor->dtype == SUMI_DTYPE_U8 && strcmp(c->kind, "preprocess") != 0)
        compare_bytes(c, name, sqrt(difference / (double)want.count), size, want.count);
    else if (json_number(tolerance, "exact", 0) != 0) report(c, label, largest, 0, largest == 0 && difference == 0);
    else if ((allowed = json_number(tolerance, "max_diff", json_number(about, "tol_max_diff", -1))) >= 0)
        report(c, label, largest, allowed, largest <= allowed && difference == difference);
    else if ((allowed = json_number(tolerance, "abs", json_number(tolerance, "max_abs", -1))) >= 0)
        report(c, label, largest, allowed, largest <= allowed && difference == difference);
    else if ((allowed = json_number(tolerance, "rel_l2", json_number(about, "tol_rel_l2", of_case))) >= 0)
        report(c, label, relative, allowed, relative <= allowed);
    else not_checked(c, name, "the json states no tolerance");
    array_free(&want);
}

void compare_partly(golden_case* c, const char* name, const array* got, int64_t rows_known)
{
    compare_tensor(c, "expect", name, got, rows_known);
}

void compare(golden_case* c, const char* name, const array* got) { compare_tensor(c, "expect", name, got, -1); }

void compare_with(golden_case* c, const char* kind, const char* name, const array* got)
{
    compare_tensor(c, kind, name, got, -1);
}

void compare_wrong(golden_case* c, const char* name, const array* got)
{
    const sumi_tensor* tensor = find(c, "wrong", name);
    if (tensor == NULL || got->values == NULL) return;
    c->seen[tensor - c->set.tensors] = true;
    array wrong = array_of(tensor);
    double difference = 0, size = 0;
    for (int64_t i = 0; i < wrong.count && i < got->count; i++) {
        const double b = wrong.values[i], d = got->values[i] - b;
        difference += d * d;
        size += b * b;
    }
    // a hundred times what rounding in float32 does; in bfloat16 the reference itself is off by 8e-3
    const double error = sqrt(difference / size), least = c->g->is_gpu ? 1.5e-2 : 1e-3;
    char label[700];
    snprintf(label, sizeof label, "%s differs", tensor->name);
    report(c, label, error, least, wrong.count == got->count && error > least);
    array_free(&wrong);
}

void finish_case(golden_case* c)
{
    for (size_t i = 0; i < c->set.count; i++)
        if (strncmp(c->set.tensors[i].name, "input.", 6) != 0 && !c->seen[i])
            not_checked(c, c->set.tensors[i].name, "this program does not know how to make it");
    for (size_t i = 0; i < c->kept_count; i++) free(c->kept[i].data);
    free(c->kept);
}

void close_network(golden* g)
{
    if (g->network != NULL) runner_release_weights(g->runner, g->network->weights.weights, g->network->weights.count);
    sumi_network_close(g->network);
    g->network = NULL;
}

sumi_tokenizer* open_tokenizer(golden_case* c, const char* path, sumi_file* out_file)
{
    sumi_error error = {0};
    sumi_tokenizer* tokenizer = NULL;
    sumi_result result = sumi_file_open(out_file, &c->g->heap, NULL, path, &error);
    if (result == SUMI_OK)
        result = sumi_tokenizer_begin(&c->g->heap, out_file->data, (size_t)out_file->bytes, path, &error, &tokenizer);
    for (bool done = false; result == SUMI_OK && !done;)
        result = sumi_tokenizer_step(tokenizer, SIZE_MAX, &done, NULL, &error);
    if (result == SUMI_OK) return tokenizer;
    case_fails(c, "%s", error.text);
    sumi_tokenizer_destroy(tokenizer);
    return NULL;
}

sumi_network* open_network(golden_case* c, const char* key, const sumi_files* files, const sumi_network_desc* desc)
{
    golden* g = c->g;
    if (g->network != NULL && strcmp(key, g->network_key) == 0) return g->network;
    close_network(g);
    sumi_error error = {0};
    sumi_network* network = NULL;
    sumi_result result = sumi_network_open_begin(&g->heap, files, desc, &error, &network);
    float progress;
    for (bool done = false; result == SUMI_OK && !done;)
        result = sumi_network_open_step(network, 1000, &done, &progress, &error);
    if (result != SUMI_OK) {
        case_fails(c, "%s", error.text);
        sumi_network_close(network);
        return NULL;
    }
    snprintf(g->network_key, sizeof g->network_key, "%s", key);
    return g->network = network;
}

sumi_network* case_network(golden_case* c, const node* json)
{
    const char *model = json_text(json, "model"), *vae = json_text(json, "vae"),
               *text = json_text(json, "text_encoder"), *tokenizer = json_text(json, "tokenizer");
    if (model == NULL) {
        case_fails(c, "the case names no model");
        return NULL;
    }
    char path[4][2048] = {"", "", "", ""};
    const char* given[4] = {model, vae, text, tokenizer};
    for (int i = 0; i < 4; i++)
        if (given[i] != NULL) join_path(path[i], sizeof path[i], c->folder, given[i]);
    // a VAE beside a single-file transformer is used by the vae_* cases only, and those name a folder
    if (strcmp(c->kind, "dit") == 0) path[1][0] = 0;
    char key[sizeof c->g->network_key];
    snprintf(key, sizeof key, "%.1000s|%.1000s|%.1000s|%.1000s", path[0], path[1], path[2], path[3]);
    const sumi_network_desc desc = {.path = path[0],
                                    .vae_path = path[1][0] ? path[1] : NULL,
                                    .text_encoder_path = path[2][0] ? path[2] : NULL,
                                    .tokenizer_path = path[3][0] ? path[3] : NULL};
    return open_network(c, key, NULL, &desc);
}

// ---- Plans ----------------------------------------------------------------------------------------------------------

void begin_plan(const golden_case* c, sumi_plan* plan)
{
    sumi_runner_begin_plan(c->g->runner, plan, &c->g->heap);
    plan->weight_options.weights = c->g->weights;
    if (c->g->has_text_weights) plan->weight_options.text_weights = c->g->weights;
    plan->weight_options.attention = c->g->attention;
}

void end_plan(const golden_case* c, sumi_plan* plan)
{
    plan_release(c->g->runner, plan);
    sumi_plan_end(plan);
}

// Of the values that are bound when the plan comes, those that some op writes; the caller frees the list.
static int32_t* list_results(const sumi_plan* plan, size_t* out_count)
{
    int32_t* list = calloc(plan->value_count + 1, sizeof *list);
    *out_count = 0;
    for (size_t v = 0; v < plan->value_count; v++) {
        const int32_t id = (int32_t)v + 1;
        bool is_written = false;
        for (size_t i = 0; i < plan->op_count && !is_written; i++) {
            const sumi_op* op = &plan->ops[i];
            is_written = op->out.id == id || (op->kind == SUMI_OP_PIXELS_OUT && op->in[1].id == id);
        }
        if (plan->values[v].bound && is_written) list[(*out_count)++] = id;
    }
    return list;
}

// The bits of a plan's results: kept the first time, compared the second.
static void compare_bits(plan_run* run, const int32_t* results, size_t count)
{
    golden_case* c = run->c;
    sumi_error error = {0};
    int different = 0;
    if (!c->by_op) c->kept = realloc(c->kept, (c->kept_count + count + 1) * sizeof *c->kept);
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = (size_t)run->plan->values[results[i] - 1].bytes;
        void* data = calloc(bytes + 1, 1);
        if (plan_read(c->g->runner, run->plan, (sumi_value){results[i]}, data, &error) != SUMI_OK)
            case_fails(c, "%s", error.text);
        if (!c->by_op) {
            c->kept[c->kept_count++] = (kept_bits){data, bytes};
            continue;
        }
        const kept_bits* first = c->kept_next < c->kept_count ? &c->kept[c->kept_next++] : NULL;
        const bool same = first != NULL && first->bytes == bytes && memcmp(first->data, data, bytes) == 0;
        if (!same) printf("  %s has other bits than as the engine runs it\n", run->plan->values[results[i] - 1].name);
        different += !same;
        free(data);
    }
    if (c->by_op) report(c, "the same bits", different, 0, different == 0);
}

// After a slice of a job: of the ops that end in it, those whose result stays as they leave it.
static void probe_results(plan_run* run, const sumi_slice* slice, int32_t counter)
{
    const sumi_plan* plan = run->plan;
    for (int32_t i = slice->op_begin; i < slice->op_end; i++) {
        const sumi_op* op = &plan->ops[i];
        bool stays = sumi_plan_info(plan, op->out)->bound
                  && (slice->op_end > slice->op_begin + 1 || slice->range_end == op->range_count);
        for (int32_t k = i + 1; k < slice->op_end; k++) stays = stays && plan->ops[k].out.id != op->out.id;
        if (stays) run->probe(run, op, counter, false);
    }
}

static sumi_result run_slice(plan_run* run, const sumi_slice* slice, int32_t counter, sumi_error* error)
{
    const bool probes_op = run->probe != NULL && run->c->by_op;
    const sumi_op* op = &run->plan->ops[slice->op_begin];
    if (probes_op) run->probe(run, op, counter, true);
    SUMI_TRY(plan_run_slice(run->c->g->runner, run->plan, slice, counter, NULL, error));
    if (probes_op) run->probe(run, op, counter, false);
    else if (run->probe != NULL) probe_results(run, slice, counter);
    return SUMI_OK;
}

bool run_plan(plan_run* run, sumi_plan* plan)
{
    golden* g = run->c->g;
    const sumi_runner_functions* f = g->runner->functions;
    const bool by_op = run->c->by_op;
    sumi_error error = {0};
    run->plan = plan;
    run->c->plans++;
    sumi_rates rates = f->rates(g->runner);
    size_t result_count;
    int32_t* results = list_results(plan, &result_count);
    for (size_t v = 0; v < plan->value_count && by_op; v++) plan->values[v].bound = true;
    sumi_result result = by_op ? sumi_plan_finish(plan, &error) : SUMI_OK;
    if (result == SUMI_OK) result = plan_slice(plan, &rates, by_op ? 0 : sumi_engine_defaults().max_slice_us, &error);
    if (result == SUMI_OK) result = plan_ready(g->runner, plan, &error);
    if (result == SUMI_OK) {
        f->start(g->runner, plan);
        if (run->write != NULL) run->write(run);
    }
    for (size_t s = 0; result == SUMI_OK && s < plan->section_count; s++) {
        const sumi_section* section = &plan->sections[s];
        for (int32_t k = 0; result == SUMI_OK && k < section->repeat; k++)
            for (int32_t i = section->slice_begin; result == SUMI_OK && i < section->slice_end; i++)
                result = run_slice(run, &plan->slices[i], section->first_counter + k, &error);
    }
    if (result == SUMI_OK) result = runner_drain(g->runner, 0, NULL, &error);
    if (result != SUMI_OK) case_fails(run->c, "%s", error.text);
    else if (!g->is_gpu) compare_bits(run, results, result_count);
    free(results);
    return result == SUMI_OK;
}

void write_floats(plan_run* run, sumi_value value, int64_t first_row, const float* values, int64_t count)
{
    plan_write_floats(run->c->g->runner, run->plan, value,
                      (uint64_t)first_row * (uint64_t)sumi_plan_info(run->plan, value)->cols, values, (uint64_t)count);
}

// The rows of a view, out of its base: only whole values are read from a runner.
static float* read_view(plan_run* run, const sumi_value_info* info)
{
    float *base = read_floats(run, info->base), *out = calloc((size_t)info->rows * (size_t)info->cols + 1, sizeof *out);
    for (int64_t r = 0; r < info->rows; r++)
        memcpy(out + r * info->cols, base + (int64_t)info->base_element + r * info->pitch,
               (size_t)info->cols * sizeof *out);
    free(base);
    return out;
}

float* read_floats(plan_run* run, sumi_value value)
{
    golden* g = run->c->g;
    const sumi_value_info* info = sumi_plan_info(run->plan, value);
    if (info->base.id != 0) return read_view(run, info);
    size_t count = (size_t)info->rows * (size_t)info->cols;
    float* out = calloc(count + 1, sizeof *out);
    void* raw = calloc((size_t)info->bytes + 1, 1);
    sumi_error error = {0};
    if (plan_read(g->runner, run->plan, value, raw, &error) != SUMI_OK) case_fails(run->c, "%s", error.text);
    if (info->element == SUMI_ELEMENT_INT) memcpy(out, raw, count * sizeof *out); // as they are in memory
    else plan_floats(g->runner, info->element, raw, out, count);
    free(raw);
    return out;
}

array read_array(plan_run* run, sumi_value value)
{
    const sumi_value_info* info = sumi_plan_info(run->plan, value);
    array a = {.values = read_floats(run, value),
               .count = (int64_t)info->rows * info->cols,
               .rank = 2,
               .shape = {info->rows, info->cols}};
    return a;
}

array read_integers(plan_run* run, sumi_value value)
{
    array numbers = read_array(run, value);
    for (int64_t i = 0; i < numbers.count; i++) {
        int32_t number;
        memcpy(&number, &numbers.values[i], sizeof number);
        numbers.values[i] = (float)number;
    }
    return numbers;
}

array read_planes(plan_run* run, sumi_value picture, int64_t height, int64_t width)
{
    array rows = read_array(run, picture);
    int64_t channels = rows.shape[1], pixels = height * width;
    array planes = array_make(NULL, 3, (const int64_t[]){channels, height, width});
    for (int64_t p = 0; p < pixels && p < rows.shape[0]; p++)
        for (int64_t k = 0; k < channels; k++) planes.values[k * pixels + p] = rows.values[p * channels + k];
    array_free(&rows);
    return planes;
}

bool run_denoiser(plan_run* run, const sumi_denoiser_module* module, const void* model, sumi_plan* plan,
                  sumi_denoising* job, const sumi_evaluation_list* list, sumi_value x, array* out)
{
    golden_case* c = run->c;
    sumi_error error = {0};
    job->state = calloc(1, module->state_bytes);
    module->write_prepare(model, plan, job);
    module->write_layout(model, plan, job, list);
    sumi_plan_section(plan, SUMI_SECTION_DENOISE, job->evaluation_count, 0);
    sumi_value v = module->write_evaluation(model, plan, job, list, x);
    if (v.id != 0) plan->values[v.id - 1].bound = true;
    free(job->state);
    bool good = sumi_plan_finish(plan, &error) == SUMI_OK;
    if (!good) case_fails(c, "%s", error.text);
    good = good && run_plan(run, plan);
    array_free(out);
    if (good) *out = read_array(run, v);
    end_plan(c, plan);
    return good;
}
