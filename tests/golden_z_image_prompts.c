// Prompts of Z-Image and of families with the same text encoder: text to ids, ids to features, through the text encoder
// layer by layer.
#include "at_once.h"
#include "golden_z_image.h"
#include "models/network_state.h"
#include "models/prompt_reader.h"
#include "models/recipe.h"
#include "text/tokenizer.h"
#include <stdlib.h>
#include <string.h>

bool tokenise_text(golden_case* c, sumi_network* network, const char* text, size_t bytes, token_list* out)
{
    sumi_error error = {0};
    if (read_prompt(network, 0, &(sumi_prompt_text){.text = text, .bytes = bytes},
                    &(sumi_prompt_ids){out->ids, 512, NULL}, &out->count, &error)
        == SUMI_OK)
        return true;
    case_fails(c, "%s", error.text);
    return false;
}

typedef struct text_job {
    int32_t* ids; // with those of padding
    watcher* w;
    array features;
} text_job;

static void write_ids(plan_run* run)
{
    text_job* job = run->context;
    golden* g = run->c->g;
    const sumi_pipeline_rows* rows = &run->pipeline->ids[0][0];
    g->runner->functions->write(g->runner, run->plan, rows->value, (uint64_t)rows->row * 4, job->ids,
                                (uint64_t)rows->count * 4);
}

static void probe_text(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    text_job* job = run->context;
    if (job->w != NULL) watch_op(run, job->w, op, counter, before);
}

array encode_text(golden_case* c, const sumi_network* network, const int32_t* ids, int32_t count, watcher* w)
{
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    const int32_t rows = sumi_network_id_rows(network, 0, count);
    text_job job = {.ids = calloc((size_t)rows + 1, sizeof *ids), .w = w};
    memcpy(job.ids, ids, (size_t)count * sizeof *ids);
    for (int32_t i = count; i < rows; i++) job.ids[i] = network->encoders[0].pad_id;
    sumi_pipeline_prompt prompt = {.token_count = {count}};
    sumi_pipeline_request request = {.goal = SUMI_GOAL_PROMPTS, .prompts = &prompt, .prompt_count = 1};
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_ids, .probe = probe_text, .context = &job};
    if (sumi_pipeline_write(network, &request, &plan, &pipeline, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) job.features = read_array(&run, pipeline.features[0][0].value);
    end_plan(c, &plan);
    free(job.ids);
    return job.features;
}

static void run_text(golden_case* c)
{
    sumi_network* network = case_network(c, c->json);
    if (network == NULL) return;
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = c->set.tensors[i].name;
        if (strncmp(name, "input.ids.", 10) != 0) continue;
        const char* key = name + 10;
        array ids = array_of(&c->set.tensors[i]);
        int32_t* list = calloc((size_t)ids.count + 1, sizeof *list);
        for (int64_t k = 0; k < ids.count; k++) list[k] = (int32_t)ids.values[k];
        const node* prompt = json_get(json_get(c->json, "prompts"), key);
        token_list made;
        if (!c->by_op && prompt != NULL && prompt->type == NODE_TEXT
            && tokenise_text(c, network, prompt->text, prompt->text_bytes, &made)) {
            bool same = made.count == ids.count && memcmp(made.ids, list, (size_t)ids.count * sizeof *list) == 0;
            char label[160];
            snprintf(label, sizeof label, "ids of \"%s\"", key);
            report(c, label, same ? 0 : 1, 0, same);
        }
        array features = encode_text(c, network, list, (int32_t)ids.count, NULL);
        char want[200];
        if (features.values != NULL) {
            snprintf(want, sizeof want, "embeds.%s", key);
            if (has_expected(c, want)) compare(c, want, &features);
            snprintf(want, sizeof want, "embeds_head.%s", key);
            if (has_expected(c, want)) compare(c, want, &features);
            snprintf(want, sizeof want, "embeds_tail.%s", key);
            const sumi_tensor* tail = NULL;
            char full[220];
            snprintf(full, sizeof full, "expect.%s", want);
            if ((tail = sumi_tensor_find(&c->set, full)) != NULL && tail->rank > 0
                && tail->shape[0] <= features.shape[0]) {
                array end = array_make(features.values + (features.shape[0] - tail->shape[0]) * features.shape[1], 2,
                                       (const int64_t[]){tail->shape[0], features.shape[1]});
                compare(c, want, &end);
                array_free(&end);
            }
        }
        array_free(&features);
        array_free(&ids);
        free(list);
    }
}

void watch_encoder(const golden_case* c, watcher* w)
{
    w->halves = true;
    // heads are told by the stored shapes: [n, heads, head_dim]
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = expected_name(c, i);
        const sumi_tensor* tensor = &c->set.tensors[i];
        int layer = 0, used = 0;
        if (name == NULL) continue;
        const char* rest = sscanf(name, "layer%d.%n", &layer, &used) == 1 && used > 0 ? name + used : "";
        if (strcmp(rest, "q_normed") == 0 && tensor->rank == 3)
            w->q_heads = (int32_t)tensor->shape[1], w->head_dim = (int32_t)tensor->shape[2];
        if (strcmp(rest, "k_normed") == 0 && tensor->rank == 3) w->kv_heads = (int32_t)tensor->shape[1];
        static const struct {
            const char *rest, *label;
            watch_kind kind;
        } s_table[] = {{"input_norm", "input_norm", WATCH_ROWS},
                       {"q_normed", "attention.qk_norm_rope", WATCH_Q},
                       {"k_normed", "attention.qk_norm_rope", WATCH_K},
                       {"v", "attention.qkv", WATCH_V},
                       {"attention", "attention", WATCH_ROWS},
                       {"o_proj", "attention.out", WATCH_BRANCH},
                       {"mlp", "mlp.down", WATCH_BRANCH},
                       {"out", "mlp.down", WATCH_ROWS}};
        for (size_t k = 0; k < sizeof s_table / sizeof *s_table; k++)
            if (strcmp(rest, s_table[k].rest) == 0)
                add_watch(w, name, s_table[k].kind, "text.layers.%d.%s", layer, s_table[k].label);
        if (strcmp(name, "embedding") == 0) add_watch(w, name, WATCH_ROWS, "text.embed");
    }
}

void compare_ids_of_prompt(golden_case* c, sumi_network* network, const int32_t* ids, int32_t count)
{
    token_list made;
    const node* prompt = json_get(c->json, "prompt");
    if (!c->by_op && prompt != NULL && prompt->type == NODE_TEXT
        && tokenise_text(c, network, prompt->text, prompt->text_bytes, &made)) {
        bool same = made.count == count && memcmp(made.ids, ids, (size_t)count * sizeof *ids) == 0;
        report(c, "ids of the prompt", same ? 0 : 1, 0, same);
    }
}

static void run_encoder(golden_case* c)
{
    sumi_network* network = case_network(c, c->json);
    array ids = input(c, "ids");
    if (network == NULL || ids.values == NULL) {
        array_free(&ids);
        return;
    }
    int32_t* list = calloc((size_t)ids.count + 1, sizeof *list);
    for (int64_t k = 0; k < ids.count; k++) list[k] = (int32_t)ids.values[k];
    watcher* w = calloc(1, sizeof *w);
    watch_encoder(c, w);
    array features = encode_text(c, network, list, (int32_t)ids.count, w);
    compare_watches(c, w);
    compare(c, "used_layer.out", &features);
    compare_ids_of_prompt(c, network, list, (int32_t)ids.count);
    array_free(&features);
    array_free(&ids);
    free(list);
    free(w);
}

static sumi_tokenizer* open_model_tokenizer(golden_case* c, sumi_file* file)
{
    char folder[2048], path[2200];
    const char* model = json_text(c->json, "model");
    join_path(folder, sizeof folder, c->folder, model != NULL ? model : ".");
    snprintf(path, sizeof path, "%s/tokenizer/tokenizer.json", folder);
    return open_tokenizer(c, path, file);
}

// The ids of one entry against its list; `cut` entries keep only the first ids.
static bool same_ids(golden_case* c, sumi_tokenizer* tokenizer, const char* text, size_t bytes, const node* ids,
                     int32_t before_cut)
{
    size_t capacity = bytes * 4 + 64, count = 0;
    int32_t* made = calloc(capacity, sizeof *made);
    sumi_error error = {0};
    bool same =
        sumi_tokenizer_encode(tokenizer, text, bytes, false, made, capacity, &count, &error) == SUMI_OK && ids != NULL;
    if (error.result != SUMI_OK) case_fails(c, "%s", error.text);
    same = same
        && (before_cut >= 0 ? (int64_t)count == before_cut && (size_t)ids->count <= count
                            : count == (size_t)ids->count);
    size_t i = 0;
    for (const node* n = ids != NULL ? ids->first : NULL; same && n != NULL; n = n->next)
        same = made[i++] == (int32_t)n->number;
    free(made);
    return same;
}

void run_tokenize(golden_case* c)
{
    sumi_network* network = case_network(c, c->json);
    sumi_file file = {0};
    sumi_tokenizer* tokenizer = network != NULL ? open_model_tokenizer(c, &file) : NULL;
    if (tokenizer != NULL) {
        int strings = 0, wrong = 0;
        const node* list = json_get(c->json, "strings");
        for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
            const node* text = json_get(n, "text");
            bool same = text != NULL && text->type == NODE_TEXT
                     && same_ids(c, tokenizer, text->text, text->text_bytes, json_get(n, "ids"), -1);
            if (!same) printf("  other ids for \"%s\"\n", text != NULL && text->text != NULL ? text->text : "?");
            strings++;
            wrong += !same;
        }
        char label[64];
        snprintf(label, sizeof label, "%d strings", strings);
        report(c, label, wrong, 0, wrong == 0);
        int prompts = 0;
        wrong = 0;
        list = json_get(c->json, "prompts");
        const sumi_prompt_template around = network->recipe->encoders[0].prompt;
        for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
            const node *prompt = json_get(n, "prompt"), *templated = json_get(n, "templated"),
                       *ids = json_get(n, "ids");
            token_list made = {.count = 0};
            bool same = prompt != NULL && prompt->type == NODE_TEXT && ids != NULL
                     && tokenise_text(c, network, prompt->text, prompt->text_bytes, &made) && made.count == ids->count;
            int32_t i = 0;
            for (const node* id = same ? ids->first : NULL; id != NULL; id = id->next)
                same = made.ids[i++] == (int32_t)id->number && same;
            if (same && templated != NULL && templated->type == NODE_TEXT) {
                size_t before = strlen(around.before), after = strlen(around.after);
                same = templated->text_bytes == before + prompt->text_bytes + after
                    && memcmp(templated->text, around.before, before) == 0
                    && memcmp(templated->text + before + prompt->text_bytes, around.after, after) == 0
                    && same_ids(c, tokenizer, templated->text, templated->text_bytes, ids,
                                (int32_t)json_number(n, "ids_before_truncation", -1));
            }
            if (!same)
                printf("  other ids for the prompt \"%.60s\"\n",
                       prompt != NULL && prompt->text != NULL ? prompt->text : "?");
            prompts++;
            wrong += !same;
        }
        snprintf(label, sizeof label, "%d prompts in the template", prompts);
        report(c, label, wrong, 0, wrong == 0);
    }
    sumi_tokenizer_destroy(tokenizer);
    sumi_file_close(&file);
}

bool run_z_image_prompt_case(golden_case* c)
{
    if (strcmp(c->kind, "tokenize") == 0) run_tokenize(c);
    else if (strcmp(c->kind, "text") == 0) run_text(c);
    else if (strcmp(c->kind, "encoder") == 0) run_encoder(c);
    else return false;
    return true;
}
