// The text tower of Jina CLIP by itself: token ids to one row, with what lies between.
#include "golden_xlm_roberta.h"
#include "golden_component.h"
#include "golden_watch.h"
#include "models/recipe.h"
#include "models/xlm_roberta.h"
#include <stdlib.h>
#include <string.h>

typedef struct tower_job {
    int32_t* ids;
    int32_t count;
    sumi_value ids_value;
    watcher w;
} tower_job;

static void write_ids(plan_run* run)
{
    const tower_job* job = run->context;
    golden* g = run->c->g;
    g->runner->functions->write(g->runner, run->plan, job->ids_value, 0, job->ids, (uint64_t)job->count * 4);
}

static void probe(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    watch_op(run, &((tower_job*)run->context)->w, op, counter, before);
}

static void watch_layers(const golden_case* c, watcher* w)
{
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = expected_name(c, i);
        int layer, used = 0;
        if (name == NULL) continue;
        if (strcmp(name, "embedding") == 0) add_watch(w, name, WATCH_ROWS, "pooled_text.embed_norm");
        if (sscanf(name, "layer%d%n", &layer, &used) == 1 && name[used] == 0)
            add_watch(w, name, WATCH_ROWS, "pooled_text.layers.%d.norm2", layer);
    }
}

// The prompt's row.
static array encode(golden_case* c, const sumi_xlm_roberta* model, tower_job* job)
{
    array pooled = {0};
    sumi_plan plan;
    sumi_error error = {0};
    begin_plan(c, &plan);
    plan_run run = {.c = c, .write = write_ids, .probe = probe, .context = job};
    sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
    job->ids_value = sumi_plan_bound(&plan, "ids", SUMI_ELEMENT_INT, job->count, 1);
    const sumi_value made = sumi_xlm_roberta_module.write(
        model, &plan, &(sumi_text_batch){.ids = job->ids_value, .counts = &job->count, .prompt_count = 1});
    if (made.id > 0 && (size_t)made.id <= plan.value_count) plan.values[made.id - 1].bound = true;
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) pooled = read_array(&run, made);
    end_plan(c, &plan);
    return pooled;
}

// The row by merged weights that are rounded to bfloat16, as a GPU has them.
static void compare_merged(golden_case* c, const array* pooled)
{
    if (c->g->is_gpu) compare(c, "pooled_merged_bf16", pooled);
    else if (!c->by_op && has_expected(c, "pooled_merged_bf16"))
        not_checked(c, "expect.pooled_merged_bf16",
                    "the CPU does not round merged weights; test_xlm_roberta compares a file that has them so");
}

bool run_xlm_roberta_case(golden_case* c)
{
    const sumi_tensor* tensor = sumi_tensor_find(&c->set, "input.ids");
    if (strcmp(c->kind, "encoder") != 0 || tensor == NULL || !has_expected(c, "pooled")) return false;
    case_component component = {0};
    sumi_xlm_roberta model = {0};
    sumi_error error = {0};
    tower_job* job = calloc(1, sizeof *job);
    array ids = array_of(tensor);
    job->ids = calloc((size_t)ids.count + 1, sizeof *job->ids);
    job->count = (int32_t)ids.count;
    for (int64_t i = 0; i < ids.count; i++) job->ids[i] = (int32_t)ids.values[i];
    if (open_component(c, SUMI_COMPONENT_TEXT_ENCODER_2, "the second text encoder", &component)) {
        component.binder.error = &error;
        if (sumi_xlm_roberta_module.bind(&model, sumi_recipe_newbie.encoders[1].settings, &component.binder,
                                         &component.config)
            != SUMI_OK)
            case_fails(c, "%s", error.text);
        else {
            watch_layers(c, &job->w);
            array pooled = encode(c, &model, job);
            compare_watches(c, &job->w);
            if (pooled.rank == 2 && pooled.shape[0] == 1) { // stored as a vector
                pooled.rank = 1;
                pooled.shape[0] = pooled.shape[1];
            }
            compare(c, "pooled", &pooled);
            compare_merged(c, &pooled);
            array_free(&pooled);
        }
    }
    close_component(c, &component);
    array_free(&ids);
    free(job->ids);
    free(job);
    return true;
}
