// Prompts of the Qwen-Image family as a whole: text and pictures to token ids, positions and features.
#include "at_once.h"
#include "golden_qwen_image.h"
#include "models/language_model.h"
#include "models/network_state.h"
#include "models/prompt_reader.h"
#include "models/qwen_vision.h"
#include "plan_runner.h"
#include <stdlib.h>
#include <string.h>

// ---- Tokens ---------------------------------------------------------------------------------------------------------

bool tokenise_prompt(golden_case* c, sumi_network* network, const node* text, const case_pictures* pictures,
                     case_prompt* out)
{
    memset(out, 0, sizeof *out);
    if (text == NULL || text->type != NODE_TEXT) {
        case_fails(c, "the json lacks a prompt");
        return false;
    }
    int32_t capacity = network->info.max_prompt_tokens;
    sumi_prompt_text prompt = {.text = text->text, .bytes = text->text_bytes};
    if (pictures != NULL) {
        prompt.picture_count = pictures->count;
        prompt.picture_tokens = pictures->tokens;
        for (int32_t i = 0; i < pictures->count; i++) capacity += pictures->tokens[i];
    }
    out->ids = calloc((size_t)capacity, sizeof *out->ids);
    sumi_error error = {0};
    if (read_prompt(network, 0, &prompt, &(sumi_prompt_ids){out->ids, capacity, out->picture_rows}, &out->count, &error)
        == SUMI_OK)
        return true;
    case_fails(c, "%s", error.text);
    return false;
}

static void compare_ids(golden_case* c, const char* name, const int32_t* got, int64_t count, const array* want)
{
    char label[96];
    int64_t different = count != want->count;
    for (int64_t i = 0; i < count && i < want->count; i++) different += got[i] != (int32_t)want->values[i];
    snprintf(label, sizeof label, "%s.ids", name);
    report(c, label, (double)different, 0, different == 0);
}

// ---- Features -------------------------------------------------------------------------------------------------------

void write_prompt_ids(plan_run* run, const case_prompt* prompts, int32_t prompt_count)
{
    sumi_runner* runner = run->c->g->runner;
    for (int32_t p = 0; p < prompt_count; p++) {
        const sumi_pipeline_rows* rows = &run->pipeline->ids[p][0];
        if (rows->value.id != 0)
            runner->functions->write(runner, run->plan, rows->value, (uint64_t)rows->row * 4,
                                     prompts[p].ids + (prompts[p].count - rows->count), (uint64_t)rows->count * 4);
    }
}

static void write_prompts(plan_run* run)
{
    const encode_job* job = run->context;
    write_prompt_ids(run, job->prompts, job->prompt_count);
    if (job->pictures != NULL) write_pictures(run, job->pictures);
}

static void probe_prompts(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    encode_job* job = run->context;
    if (job->w != NULL) watch_op(run, job->w, op, counter, before);
    if (before || !run->c->by_op || op->kind != SUMI_OP_ROPE_TABLE || strcmp(op->label, "text.rope") != 0) return;
    array_free(&job->positions);
    job->positions = read_integers(run, op->in[0]);
}

void encode_prompts(golden_case* c, const sumi_network* network, encode_job* job)
{
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    sumi_pipeline_prompt prompts[4] = {{.has_features = false}};
    const int32_t pictures = job->pictures != NULL ? job->pictures->count : 0;
    for (int32_t p = 0; p < job->prompt_count; p++) {
        prompts[p].token_count[0] = job->prompts[p].count;
        memcpy(prompts[p].reference_row, job->prompts[p].picture_rows, sizeof prompts[p].reference_row);
    }
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_PROMPTS,
                                           .prompts = prompts,
                                           .prompt_count = job->prompt_count,
                                           .references = pictures > 0 ? job->pictures->references : NULL,
                                           .reference_count = pictures};
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_prompts, .probe = probe_prompts, .context = job};
    if (sumi_pipeline_write(network, &request, &plan, &pipeline, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        for (int32_t p = 0; p < job->prompt_count; p++) {
            const sumi_pipeline_rows* rows = &pipeline.features[p][0];
            array all = read_array(&run, rows->value);
            job->features[p] =
                array_make(all.values + rows->row * all.shape[1], 2, (const int64_t[]){rows->count, all.shape[1]});
            array_free(&all);
        }
    }
    end_plan(c, &plan);
}

void free_encoded(encode_job* job)
{
    for (int32_t p = 0; p < job->prompt_count; p++) array_free(&job->features[p]);
    array_free(&job->positions);
}

void append_rows(array* list, array more)
{
    list->values = realloc(list->values, (size_t)(list->count + more.count + 1) * sizeof *list->values);
    memcpy(list->values + list->count, more.values, (size_t)more.count * sizeof *more.values);
    list->count += more.count;
    list->rank = 2;
    list->shape[0] += more.shape[0];
    list->shape[1] = more.shape[1];
    array_free(&more);
}

void compare_embed_tails(golden_case* c, const sumi_network* network, encode_job* job)
{
    static const char* const s_names[] = {"prompt_embeds_tail", "negative_embeds_tail"};
    if (!has_expected(c, s_names[0])) return;
    encode_prompts(c, network, job);
    for (int32_t p = 0; p < job->prompt_count && job->features[p].values != NULL; p++) {
        const int64_t width = job->features[p].shape[1], rows = job->features[p].shape[0];
        char full[64];
        snprintf(full, sizeof full, "expect.%s", s_names[p]);
        const sumi_tensor* want = sumi_tensor_find(&c->set, full);
        const int64_t kept = want != NULL && want->shape[0] < rows ? want->shape[0] : rows;
        array tail = array_make(job->features[p].values + (rows - kept) * width, 2, (const int64_t[]){kept, width});
        compare(c, s_names[p], &tail);
        array_free(&tail);
    }
    free_encoded(job);
}

// The last rows of the features, as many as KIND.NAME has; no values: it is not stored.
static array tail_of(const golden_case* c, const char* kind, const char* name, const array* features)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", kind, name);
    const sumi_tensor* want = sumi_tensor_find(&c->set, full);
    if (want == NULL || want->rank != 2 || features->values == NULL || want->shape[0] > features->shape[0])
        return (array){0};
    return array_make(features->values + (features->shape[0] - want->shape[0]) * features->shape[1], 2,
                      (const int64_t[]){want->shape[0], features->shape[1]});
}

static void compare_features(golden_case* c, const char* name, const array* features)
{
    static const char* const s_forms[][2] = {
        {"expect", "embeds"}, {"expect", "embeds_tail"}, {"wrong", "embeds_tail_1d_positions"}};
    for (size_t i = 0; i < sizeof s_forms / sizeof *s_forms; i++) {
        char full[96];
        snprintf(full, sizeof full, "%s.%s", name, s_forms[i][1]);
        array tail = tail_of(c, s_forms[i][0], full, features);
        if (strcmp(s_forms[i][1], "embeds") == 0 && tail.values != NULL && tail.count != features->count)
            case_fails(c, "%s has %lld rows of features", name, (long long)features->shape[0]);
        if (i < 2) compare(c, full, &tail);
        else compare_wrong(c, full, &tail);
        array_free(&tail);
    }
}

// ---- Kinds ----------------------------------------------------------------------------------------------------------

// M-RoPE positions, and the pictures' grids in patches.
static void compare_positions(golden_case* c, const char* name, const array* got, const case_pictures* pictures,
                              int32_t patch)
{
    char full[96];
    snprintf(full, sizeof full, "%s.position_ids", name);
    array want = input(c, full);
    int64_t different = 0;
    if (want.values != NULL && got->values != NULL) {
        const int64_t count = want.shape[1];
        different += got->shape[0] != count || got->shape[1] != 3;
        for (int64_t i = 0; i < count && different == 0; i++)
            for (int64_t axis = 0; axis < 3; axis++)
                different += got->values[3 * i + axis] != want.values[axis * count + i];
        report(c, full, (double)different, 0, different == 0);
    }
    array_free(&want);
    if (c->by_op) return;
    snprintf(full, sizeof full, "%s.grid_thw", name);
    want = input(c, full);
    different = want.values != NULL && want.shape[0] != pictures->count;
    for (int64_t i = 0; want.values != NULL && i < pictures->count && different == 0; i++)
        different += want.values[3 * i] != 1
                  || want.values[3 * i + 1] * (float)patch != (float)pictures->references[i].vision_height
                  || want.values[3 * i + 2] * (float)patch != (float)pictures->references[i].vision_width;
    if (want.values != NULL) report(c, full, (double)different, 0, different == 0);
    array_free(&want);
}

// One prompt with its pictures, which have the pipeline's size already.
static void run_edit_prompt(golden_case* c, const node* about)
{
    const char *name = json_text(about, "name"), *template_name = json_text(about, "template");
    if (name == NULL || template_name == NULL) {
        case_fails(c, "a prompt has no name or no template");
        return;
    }
    sumi_network* network = layered_network(c, strcmp(template_name, "edit") == 0 ? "edit" : "edit-2509");
    case_pictures pictures = {.count = 0};
    case_prompt prompt = {.ids = NULL};
    if (network != NULL && make_pictures(c, network, json_get(about, "images"), (picture_areas){0, -1}, &pictures)
        && tokenise_prompt(c, network, json_get(about, "prompt"), &pictures, &prompt)) {
        char full[96];
        snprintf(full, sizeof full, "%s.ids", name);
        array ids = input(c, full);
        if (!c->by_op) compare_ids(c, name, prompt.ids, prompt.count, &ids);
        encode_job job = {.prompts = &prompt, .prompt_count = 1, .pictures = &pictures};
        encode_prompts(c, network, &job);
        compare_features(c, name, &job.features[0]);
        compare_positions(c, name, &job.positions, &pictures, ((const sumi_qwen_vision*)network->vision)->tower.patch);
        free_encoded(&job);
        array_free(&ids);
    }
    free(prompt.ids);
    free_pictures(&pictures);
}

// A text that the json has once and means several times.
static node repeated(const node* text, int times, char** out_memory)
{
    node all = *text;
    all.text_bytes = text->text_bytes * (size_t)times;
    all.text = *out_memory = calloc(all.text_bytes + 1, 1);
    for (int i = 0; i < times; i++) memcpy(all.text + (size_t)i * text->text_bytes, text->text, text->text_bytes);
    return all;
}

static const node* find_prompt(const golden_case* c, const char* text)
{
    const node* list = json_get(c->json, "prompts");
    for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
        const char* one = json_text(n, "prompt");
        if (one != NULL && strcmp(one, text) == 0) return n;
    }
    return NULL;
}

// Every prompt's ids; then the two of the json's "batch" in one plan, each with rows of its own.
static void run_prompts_of_text(golden_case* c)
{
    sumi_network* network = layered_network(c, "t2i");
    const node *list = json_get(c->json, "prompts"), *batch = json_get(c->json, "batch");
    for (const node* n = list != NULL && network != NULL && !c->by_op ? list->first : NULL; n != NULL; n = n->next) {
        char full[96], *memory = NULL;
        snprintf(full, sizeof full, "%.60s.ids", json_text(n, "name"));
        array ids = input(c, full);
        const node text = repeated(json_get(n, "prompt"), (int)json_number(n, "repeat", 1), &memory);
        case_prompt prompt;
        if (tokenise_prompt(c, network, &text, NULL, &prompt))
            compare_ids(c, json_text(n, "name"), prompt.ids, prompt.count, &ids);
        free(prompt.ids);
        free(memory);
        array_free(&ids);
    }
    if (network == NULL || batch == NULL || batch->count != 2) return;
    case_prompt prompts[2] = {{.ids = NULL}};
    if (tokenise_prompt(c, network, batch->first, NULL, &prompts[0])
        && tokenise_prompt(c, network, batch->first->next, NULL, &prompts[1])) {
        encode_job job = {.prompts = prompts, .prompt_count = 2};
        encode_prompts(c, network, &job);
        const node* text = batch->first;
        for (int p = 0; p < 2; p++, text = text->next) {
            const node* about = find_prompt(c, text->text);
            if (about != NULL && job.features[p].values != NULL) {
                const int32_t kept = (int32_t)json_number(about, "kept", -1), rows = (int32_t)job.features[p].shape[0];
                if (!c->by_op) report(c, "rows that are kept", rows, kept, rows == kept);
                compare_features(c, json_text(about, "name"), &job.features[p]);
            }
        }
        free_encoded(&job);
    }
    free(prompts[0].ids);
    free(prompts[1].ids);
}

// What lies inside the language model for the first prompt with a picture.
static void run_picture_inside(golden_case* c)
{
    char path[2400], message[SUMI_ERROR_TEXT_BYTES];
    snprintf(path, sizeof path, "%.2000s/text-edit.json", c->folder);
    node* prompts = json_read(path, message, sizeof message);
    const node *list = json_get(prompts, "prompts"), *about = list != NULL ? list->first : NULL;
    sumi_network* network = layered_network(c, "edit");
    case_pictures pictures = {.count = 0};
    case_prompt prompt = {.ids = NULL};
    if (about == NULL) case_fails(c, "%s has no prompts", path);
    else if (network != NULL && make_pictures(c, network, json_get(about, "images"), (picture_areas){0, -1}, &pictures)
             && tokenise_prompt(c, network, json_get(about, "prompt"), &pictures, &prompt)) {
        const sumi_language_model* model = network->encoders[0].model;
        watcher* w = calloc(1, sizeof *w);
        w->q_heads = model->q_heads;
        w->kv_heads = model->kv_heads;
        w->head_dim = model->head_dim;
        w->halves = true;
        watch_language_model(c, w, "image", model->layer_count);
        for (int i = 0; i < w->count; i++) // the embeddings of text, until the pictures' rows are among them
            if (strcmp(w->list[i].label, "text.embed") == 0)
                snprintf(w->list[i].label, sizeof w->list[i].label, "text.copy");
        encode_job job = {.prompts = &prompt, .prompt_count = 1, .pictures = &pictures, .w = w};
        encode_prompts(c, network, &job);
        compare_watches(c, w);
        free_encoded(&job);
        free(w);
    }
    free(prompt.ids);
    free_pictures(&pictures);
    json_free(prompts);
}

static bool same_ids(sumi_tokenizer* tokenizer, const node* text, const node* want)
{
    if (text == NULL || text->type != NODE_TEXT || want == NULL) return false;
    const size_t capacity = text->text_bytes + 64;
    int32_t* ids = calloc(capacity, sizeof *ids);
    size_t count = 0, i = 0;
    bool same =
        sumi_tokenizer_encode(tokenizer, text->text, text->text_bytes, false, ids, capacity, &count, NULL) == SUMI_OK
        && count == (size_t)want->count;
    for (const node* n = want->first; same && n != NULL; n = n->next) same = ids[i++] == (int32_t)n->number;
    free(ids);
    return same;
}

static void compare_texts(golden_case* c, const char* label, sumi_tokenizer* tokenizer)
{
    const node* list = json_get(c->json, "rows");
    static char s_picture[] = "Picture 1: ";
    const node picture = {.type = NODE_TEXT, .text = s_picture, .text_bytes = sizeof s_picture - 1};
    int wrong = !same_ids(tokenizer, &picture, json_get(c->json, "picture_1"));
    for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
        const bool same = same_ids(tokenizer, json_get(n, "text"), json_get(n, "ids"));
        if (!same) printf("  other ids for \"%s\"\n", json_text(n, "text"));
        wrong += !same;
    }
    report(c, label, wrong, 0, wrong == 0 && list != NULL && list->count > 0);
}

// The rows that a recipe drops are its template's first tokens.
static void compare_prefix(golden_case* c, const sumi_network* network, const char* key)
{
    const sumi_prompt_template* around = &network->recipe->encoders[0].prompt;
    int32_t ids[256];
    size_t count = 0;
    (void)sumi_tokenizer_encode(network->encoders[0].tokenizer, around->before, strlen(around->before), false, ids, 256,
                                &count, NULL);
    const double want = json_number(json_get(c->json, "prefix_tokens"), key, -1);
    report(c, key, (double)count, want, (double)count == want && around->dropped_feature_rows == (int32_t)count);
}

static sumi_tokenizer* open_json_tokenizer(golden_case* c, sumi_file* file)
{
    char path[2400];
    snprintf(path, sizeof path, "%.2000s/../model-edit/processor/tokenizer.json", c->folder);
    return open_tokenizer(c, path, file);
}

static void run_tokenize(golden_case* c)
{
    static const char* const s_models[][2] = {{"t2i", "t2i"}, {"edit", "edit"}, {"edit-2509", "edit"}};
    for (size_t i = 0; i < sizeof s_models / sizeof *s_models; i++) {
        sumi_network* network = layered_network(c, s_models[i][0]);
        if (network == NULL || network->encoders[0].tokenizer == NULL) continue;
        char label[64];
        snprintf(label, sizeof label, "texts by the tokenizer of %s", s_models[i][0]);
        compare_texts(c, label, network->encoders[0].tokenizer);
        compare_prefix(c, network, s_models[i][1]);
    }
    sumi_file file = {0};
    sumi_tokenizer* tokenizer = open_json_tokenizer(c, &file);
    if (tokenizer != NULL) compare_texts(c, "texts by the processor's tokenizer.json", tokenizer);
    sumi_tokenizer_destroy(tokenizer);
    sumi_file_close(&file);
}

// The table at the released sizes, whose frequencies go on from one axis to the next.
static void run_sections(golden_case* c)
{
    array positions = input(c, "mrope.position_ids");
    const int32_t rows = positions.rank == 2 ? (int32_t)positions.shape[1] : 0;
    int32_t* numbers = calloc(3 * (size_t)rows + 1, sizeof *numbers);
    for (int32_t r = 0; r < rows; r++)
        for (int32_t axis = 0; axis < 3; axis++) numbers[3 * r + axis] = (int32_t)positions.values[axis * rows + r];
    watcher* w = calloc(1, sizeof *w);
    encode_job job = {.w = w};
    sumi_plan plan;
    sumi_error error = {0};
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
    const sumi_value at = sumi_plan_constant(&plan, "positions", SUMI_ELEMENT_INT, rows, 3, numbers);
    sumi_plan_rope_table(
        &plan, &(sumi_plan_rope_args){
                   .positions = at, .axes = 3, .pairs = {16, 24, 24}, .theta = 1e6, .order = SUMI_ROPE_CONTINUED});
    add_watch(w, "mrope.cos", WATCH_COS, "rope");
    add_watch(w, "mrope.sin", WATCH_SIN, "rope");
    plan_run run = {.c = c, .probe = probe_prompts, .context = &job};
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) compare_watches(c, w);
    end_plan(c, &plan);
    free(numbers);
    free(w);
    array_free(&positions);
}

bool run_qwen_prompt_case(golden_case* c)
{
    const node* prompts = json_get(c->json, "prompts");
    const bool is_text = strcmp(c->kind, "text") == 0 && prompts != NULL && prompts->first != NULL,
               has_templates = is_text && json_text(prompts->first, "template") != NULL,
               is_inside = strcmp(c->kind, "encoder") == 0 && has_expected(c, "image.last"),
               is_tokenize = strcmp(c->kind, "tokenize") == 0;
    for (const node* n = has_templates ? prompts->first : NULL; n != NULL; n = n->next) run_edit_prompt(c, n);
    if (is_text && !has_templates) run_prompts_of_text(c);
    if (is_inside) run_picture_inside(c);
    if (is_tokenize) run_tokenize(c);
    if (strcmp(c->kind, "op") == 0 && has_expected(c, "mrope.cos")) run_sections(c);
    return is_text || is_inside || is_tokenize;
}
