// FLUX.2 [klein]'s prompts: text to ids and padding, ids to the features of all rows, through the text encoder layer by
// layer. Of the rows only those are stored that "rows" names.
#include "golden_klein_prompts.h"
#include "golden_z_image.h"
#include "models/language_model.h"
#include "models/network_state.h"
#include <stdlib.h>
#include <string.h>

// Replaces rows by those that `list` names, all of their columns or `cols` from `first_col` on. False: there is no such
// row, or no list.
static bool keep_rows(array* rows, const node* list, int64_t first_col, int64_t cols)
{
    if (rows->values == NULL || list == NULL || list->type != NODE_LIST || list->count == 0) return false;
    const int64_t width = rows->count / rows->shape[0];
    cols = cols == 0 ? width : cols;
    array kept = array_make(NULL, 2, (const int64_t[]){list->count, cols});
    int64_t at = 0;
    bool good = first_col + cols <= width;
    for (const node* n = list->first; n != NULL && good; n = n->next, at++) {
        const int64_t row = (int64_t)n->number;
        good = row >= 0 && row < rows->shape[0];
        if (good) memcpy(kept.values + at * cols, rows->values + row * width + first_col, (size_t)cols * sizeof(float));
    }
    array_free(rows);
    *rows = kept;
    return good;
}

static int32_t* ids_of(const array* ids)
{
    int32_t* list = calloc((size_t)ids->count + 1, sizeof *list);
    for (int64_t i = 0; i < ids->count; i++) list[i] = (int32_t)ids->values[i];
    return list;
}

// The library's ids of a prompt's tokens.
static void compare_ids(golden_case* c, sumi_network* network, const char* key, const int32_t* ids, int32_t count)
{
    const node* prompt = json_get(json_get(c->json, "prompts"), key);
    token_list made;
    if (c->by_op || prompt == NULL || prompt->type != NODE_TEXT
        || !tokenise_text(c, network, prompt->text, prompt->text_bytes, &made))
        return;
    bool same = made.count == count && memcmp(made.ids, ids, (size_t)count * sizeof *ids) == 0;
    char label[160];
    snprintf(label, sizeof label, "ids of \"%s\"", key);
    report(c, label, same ? 0 : 1, 0, same);
}

static void run_text(golden_case* c)
{
    sumi_network* network = case_network(c, c->json);
    for (size_t i = 0; i < c->set.count && network != NULL; i++) {
        const char *name = c->set.tensors[i].name, *key = name + strlen("input.ids.");
        if (strncmp(name, "input.ids.", strlen("input.ids.")) != 0) continue;
        array ids = array_of(&c->set.tensors[i]);
        int32_t* list = ids_of(&ids);
        compare_ids(c, network, key, list, (int32_t)ids.count);
        array features = encode_text(c, network, list, (int32_t)ids.count, NULL);
        const int64_t rows = features.values != NULL ? features.shape[0] : 0,
                      stored_rows = (int64_t)json_number(c->json, "text_rows", 0);
        char want[200];
        snprintf(want, sizeof want, "rows.%s", key);
        if (rows != stored_rows)
            case_fails(c, "%s has %lld rows of features, not %lld", key, (long long)rows, (long long)stored_rows);
        else if (!keep_rows(&features, json_get(json_get(c->json, "rows"), key), 0, 0))
            case_fails(c, "the rows of %s are not named, or are no rows of its features", key);
        else compare(c, want, &features);
        array_free(&features);
        array_free(&ids);
        free(list);
    }
}

static void run_encoder(golden_case* c)
{
    sumi_network* network = case_network(c, c->json);
    array ids = input(c, "ids");
    const node* rows = json_get(c->json, "rows");
    if (network == NULL || ids.values == NULL) {
        array_free(&ids);
        return;
    }
    int32_t* list = ids_of(&ids);
    watcher* w = calloc(1, sizeof *w);
    watch_encoder(c, w);
    array features = encode_text(c, network, list, (int32_t)ids.count, w);
    for (int i = 0; i < w->count; i++) {
        array* got = &w->list[i].got;
        if (got->values != NULL && !keep_rows(got, rows, 0, 0))
            case_fails(c, "%s has no such rows", w->list[i].expected);
    }
    compare_watches(c, w);
    // The parts of the features, as the engine makes them, are what the tapped layers leave.
    const sumi_language_model_settings* settings = network->recipe->encoders[0].settings;
    for (int32_t t = 0; t < settings->tap_count && features.values != NULL && !c->by_op; t++) {
        const int64_t width = features.shape[1] / settings->tap_count;
        array part = array_make(features.values, 2, features.shape);
        char name[32];
        snprintf(name, sizeof name, "layer%d.out", (int)settings->taps[t] - 1);
        if (has_expected(c, name) && keep_rows(&part, rows, t * width, width)) compare(c, name, &part);
        array_free(&part);
    }
    compare_ids_of_prompt(c, network, list, (int32_t)ids.count);
    array_free(&features);
    array_free(&ids);
    free(list);
    free(w);
}

// What a text is filled up with.
static void compare_padding(golden_case* c)
{
    sumi_network* network = case_network(c, c->json);
    token_list made;
    if (network == NULL || c->by_op || !tokenise_text(c, network, "", 0, &made)) return;
    const int32_t rows = (int32_t)json_number(c->json, "text_rows", 0),
                  pad = (int32_t)json_number(c->json, "pad_id", -1);
    bool same = sumi_network_id_rows(network, 0, made.count) == rows
             && rows <= (int32_t)(sizeof made.ids / sizeof *made.ids) && made.count < rows;
    for (int32_t i = made.count; i < rows && same; i++) same = made.ids[i] == pad;
    report(c, "padding", same ? 0 : 1, 0, same);
}

bool run_klein_prompt_case(golden_case* c)
{
    if (strcmp(c->kind, "text") == 0) run_text(c);
    else if (strcmp(c->kind, "encoder") == 0) run_encoder(c);
    else if (strcmp(c->kind, "tokenize") == 0) {
        run_tokenize(c);
        compare_padding(c);
    } else return false;
    return true;
}
