// Language models by themselves: token ids to features, with what lies between.
#include "golden_qwen_image.h"
#include "golden_watch.h"
#include "models/language_model.h"
#include "models/recipe.h"
#include <stdlib.h>
#include <string.h>

typedef struct encoder_job {
    const int32_t* ids;
    int32_t count;
    sumi_value ids_value;
    watcher* w;
} encoder_job;

static void write_ids(plan_run* run)
{
    const encoder_job* job = run->context;
    golden* g = run->c->g;
    g->runner->functions->write(g->runner, run->plan, job->ids_value, 0, job->ids, (uint64_t)job->count * 4);
}

static void probe(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    watch_op(run, ((encoder_job*)run->context)->w, op, counter, before);
}

// Runs the model on one prompt and takes what is watched; returns the features.
static array encode(golden_case* c, const sumi_language_model* model, const int32_t* ids, int32_t count, watcher* w)
{
    array features = {0};
    sumi_plan plan;
    sumi_error error = {0};
    encoder_job job = {.ids = ids, .count = count, .w = w};
    w->q_heads = model->q_heads;
    w->kv_heads = model->kv_heads;
    w->head_dim = model->head_dim;
    w->halves = true;
    begin_plan(c, &plan);
    plan_run run = {.c = c, .write = write_ids, .probe = probe, .context = &job};
    sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
    job.ids_value = sumi_plan_bound(&plan, "ids", SUMI_ELEMENT_INT, count, 1);
    const sumi_value made = sumi_language_model_module.write(
        model, &plan, &(sumi_text_batch){.ids = job.ids_value, .counts = &count, .prompt_count = 1});
    if (made.id > 0 && (size_t)made.id <= plan.value_count) plan.values[made.id - 1].bound = true;
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) features = read_array(&run, made);
    end_plan(c, &plan);
    return features;
}

static int32_t* take_ids(const sumi_tensor* tensor, int32_t* out_count)
{
    array ids = array_of(tensor);
    int32_t* list = calloc((size_t)ids.count + 1, sizeof *list);
    for (int64_t i = 0; i < ids.count; i++) list[i] = (int32_t)ids.values[i];
    *out_count = (int32_t)ids.count;
    array_free(&ids);
    return list;
}

// Ids of a prompt of another case of the same folder. NULL after reporting.
static int32_t* ids_of_case(golden_case* c, const char* name, const char* tensor_name, int32_t* out_count)
{
    char path[2400];
    sumi_error error = {0};
    sumi_tensor_set set;
    int32_t* list = NULL;
    snprintf(path, sizeof path, "%.2000s/%s.safetensors", c->folder, name);
    sumi_tensor_set_init(&set, &c->g->heap, NULL);
    if (sumi_tensor_set_open(&set, path, &error) == SUMI_OK) {
        const sumi_tensor* tensor = sumi_tensor_find(&set, tensor_name);
        if (tensor != NULL) list = take_ids(tensor, out_count);
    }
    if (list == NULL) case_fails(c, "%s has no %s", path, tensor_name);
    sumi_tensor_set_close(&set);
    return list;
}

void watch_language_model(const golden_case* c, watcher* w, const char* whose, int32_t layer_count)
{
    static const struct {
        const char *name, *label;
        watch_kind kind;
    } s_table[] = {{"embeds", "text.embed", WATCH_ROWS},
                   {"q0", "text.layers.0.attention.qk_norm_rope", WATCH_Q},
                   {"k0", "text.layers.0.attention.qk_norm_rope", WATCH_K},
                   {"attn0", "text.layers.0.attention.out", WATCH_BRANCH},
                   {"layer0", "text.layers.0.mlp.down", WATCH_ROWS},
                   {"cos", "text.rope", WATCH_COS},
                   {"sin", "text.rope", WATCH_SIN}};
    char name[64];
    snprintf(name, sizeof name, "%s.first_row", whose);
    array first = input(c, name);
    for (size_t i = 0; i <= sizeof s_table / sizeof *s_table; i++) {
        const bool is_last = i == sizeof s_table / sizeof *s_table;
        snprintf(name, sizeof name, "%s.%s", whose, is_last ? "last" : s_table[i].name);
        if (!has_expected(c, name)) continue;
        watch* one = is_last ? add_watch(w, name, WATCH_ROWS, "text.layers.%d.mlp.down", (int)layer_count - 1)
                             : add_watch(w, name, s_table[i].kind, "%s", s_table[i].label);
        if (one == NULL || first.values == NULL) continue;
        char full[80];
        snprintf(full, sizeof full, "expect.%s", name);
        one->first = (int64_t)first.values[0];
        one->rows = sumi_tensor_find(&c->set, full)->shape[0];
    }
    array_free(&first);
}

static void watch_layers(const golden_case* c, watcher* w)
{
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = expected_name(c, i);
        int layer, used = 0;
        if (name == NULL) continue;
        if (strcmp(name, "embedding") == 0) add_watch(w, name, WATCH_ROWS, "text.embed");
        if (sscanf(name, "layer%d%n", &layer, &used) != 1 || used == 0) continue;
        const char* label = name[used] == 0                        ? "mlp.down_norm"
                          : strcmp(name + used, ".attention") == 0 ? "attention.out"
                          : strcmp(name + used, ".mlp") == 0       ? "mlp.down"
                                                                   : NULL;
        if (label != NULL) add_watch(w, name, WATCH_ROWS, "text.layers.%d.%s", layer, label);
    }
}

static bool bind_model(golden_case* c, const sumi_language_model_settings* settings, case_component* component,
                       sumi_language_model* model)
{
    sumi_error error = {0};
    if (!open_component(c, SUMI_COMPONENT_TEXT_ENCODER, "the text encoder", component)) return false;
    component->binder.error = &error;
    if (sumi_language_model_module.bind(model, settings, &component->binder, &component->config) == SUMI_OK)
        return true;
    case_fails(c, "%s", error.text);
    return false;
}

static void run_lm(golden_case* c)
{
    case_component component = {0};
    sumi_language_model model = {0};
    watcher* w = calloc(1, sizeof *w);
    int32_t count = 0;
    int32_t* ids = ids_of_case(c, "text-t2i", "input.short.ids", &count);
    if (ids != NULL && bind_model(c, sumi_recipe_qwen_image.encoders[0].settings, &component, &model)) {
        watch_language_model(c, w, "text", model.layer_count);
        array features = encode(c, &model, ids, count, w);
        compare_watches(c, w);
        array_free(&features);
    }
    close_component(c, &component);
    free(ids);
    free(w);
}

static void run_gemma(golden_case* c)
{
    case_component component = {0};
    sumi_language_model model = {0};
    watcher* w = calloc(1, sizeof *w);
    const sumi_tensor* tensor = sumi_tensor_find(&c->set, "input.ids");
    int32_t count = 0;
    int32_t* ids = take_ids(tensor, &count);
    if (bind_model(c, sumi_recipe_newbie.encoders[0].settings, &component, &model)) {
        watch_layers(c, w);
        array features = encode(c, &model, ids, count, w);
        compare_watches(c, w);
        compare(c, "used", &features);
        array_free(&features);
    }
    close_component(c, &component);
    free(ids);
    free(w);
}

// Kept rows of the features of every prompt of a text-to-image case: all, the last ones, or those that "rows" lists.
static void run_prompts(golden_case* c)
{
    case_component component = {0};
    sumi_language_model model = {0};
    if (bind_model(c, sumi_recipe_qwen_image.encoders[0].settings, &component, &model)) {
        for (size_t i = 0; i < c->set.count; i++) {
            char key[64];
            int used = 0;
            if (sscanf(c->set.tensors[i].name, "input.%60[a-z0-9].ids%n", key, &used) != 1 || used == 0) continue;
            int32_t count = 0;
            int32_t* ids = take_ids(&c->set.tensors[i], &count);
            watcher* w = calloc(1, sizeof *w);
            array features = encode(c, &model, ids, count, w);
            char name[96];
            snprintf(name, sizeof name, "%s.rows", key);
            array rows = input(c, name);
            static const char* const s_forms[] = {"embeds", "embeds_tail", "embeds_rows"};
            for (int form = 0; form < 3 && features.values != NULL; form++) {
                snprintf(name, sizeof name, "expect.%s.%s", key, s_forms[form]);
                const sumi_tensor* want = sumi_tensor_find(&c->set, name);
                if (want == NULL || want->rank != 2 || want->shape[0] > count) continue;
                const int64_t cols = features.shape[1], n = want->shape[0];
                array part = array_make(features.values + (count - n) * cols, 2, (const int64_t[]){n, cols});
                for (int64_t r = 0; form == 2 && r < n && r < rows.count; r++) {
                    // counted from the first kept row on
                    const int64_t from =
                        sumi_recipe_qwen_image.encoders[0].prompt.dropped_feature_rows + (int64_t)rows.values[r];
                    if (from < count)
                        memcpy(part.values + r * cols, features.values + from * cols, (size_t)cols * sizeof(float));
                }
                compare(c, name + strlen("expect."), &part);
                array_free(&part);
            }
            array_free(&rows);
            array_free(&features);
            free(w);
            free(ids);
        }
    }
    close_component(c, &component);
}

bool run_language_model_case(golden_case* c)
{
    const bool is_gemma = strcmp(c->kind, "encoder") == 0 && sumi_tensor_find(&c->set, "expect.used") != NULL;
    const bool is_lm = strcmp(c->kind, "encoder") == 0 && sumi_tensor_find(&c->set, "expect.text.last") != NULL;
    const bool is_text = strcmp(c->kind, "text") == 0 && sumi_tensor_find(&c->set, "input.short.ids") != NULL;
    if (is_gemma) run_gemma(c);
    if (is_lm) run_lm(c);
    if (is_text) run_prompts(c);
    return is_gemma || is_lm || is_text;
}
