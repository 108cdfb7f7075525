// The kinds of Z-Image cases. Stages run through the same plans as the library's jobs (models/pipeline.h), as the
// engine runs them and then one op at a time; intermediates are read off the ops by their labels as they are made.
#include "golden_flux_vae.h"
#include "golden_support.h"
#include "golden_watch.h"
#include "models/network_state.h"
#include "models/recipe.h"
#include "pictures/masks.h"
#include "plan_runner.h"
#include "sampling/schedule.h"
#include "text/tokenizer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Prompts --------------------------------------------------------------------------------------------------------

typedef struct token_list {
    int32_t ids[512];
    int32_t count;
} token_list;

static bool tokenise(golden_case* c, sumi_network* network, const char* text, size_t bytes, token_list* out)
{
    sumi_error error = {0};
    if (sumi_network_tokenise(network, 0, text, bytes, out->ids, 512, &out->count, &error) == SUMI_OK) return true;
    case_fails(c, "%s", error.text);
    return false;
}

typedef struct text_job {
    const int32_t* ids;
    int32_t count;
    watcher* w;
    array features;
} text_job;

static void write_ids(plan_run* run)
{
    text_job* job = run->context;
    golden* g = run->c->g;
    const sumi_pipeline_rows* rows = &run->pipeline->ids[0][0];
    g->runner->functions->write(g->runner, run->plan, rows->value, (uint64_t)rows->row * 4, job->ids,
                                (uint64_t)job->count * 4);
}

static void probe_text(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    text_job* job = run->context;
    if (job->w != NULL) watch_op(run, job->w, op, counter, before);
}

// Ids to features.
static array encode(golden_case* c, const sumi_network* network, const int32_t* ids, int32_t count, watcher* w)
{
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    text_job job = {.ids = ids, .count = count, .w = w};
    sumi_pipeline_prompt prompt = {.token_count = {count}};
    sumi_pipeline_request request = {.goal = SUMI_GOAL_PROMPTS, .prompts = &prompt, .prompt_count = 1};
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_ids, .probe = probe_text, .context = &job};
    if (sumi_pipeline_write(network, &request, &plan, &pipeline, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) job.features = read_array(&run, pipeline.features[0][0].value);
    end_plan(c, &plan);
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
            && tokenise(c, network, prompt->text, prompt->text_bytes, &made)) {
            bool same = made.count == ids.count && memcmp(made.ids, list, (size_t)ids.count * sizeof *list) == 0;
            char label[160];
            snprintf(label, sizeof label, "ids of \"%s\"", key);
            report(c, label, same ? 0 : 1, 0, same);
        }
        array features = encode(c, network, list, (int32_t)ids.count, NULL);
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
    // heads are told by the stored shapes: [n, heads, head_dim]
    watcher* w = calloc(1, sizeof *w);
    w->halves = true;
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
        } table[] = {{"input_norm", "input_norm", WATCH_ROWS},
                     {"q_normed", "attention.qk_norm_rope", WATCH_Q},
                     {"k_normed", "attention.qk_norm_rope", WATCH_K},
                     {"v", "attention.qkv", WATCH_V},
                     {"attention", "attention", WATCH_ROWS},
                     {"o_proj", "attention.out", WATCH_BRANCH},
                     {"mlp", "mlp.down", WATCH_BRANCH},
                     {"out", "mlp.down", WATCH_ROWS}};
        for (size_t k = 0; k < sizeof table / sizeof *table; k++)
            if (strcmp(rest, table[k].rest) == 0)
                add_watch(w, name, table[k].kind, "text.layers.%d.%s", layer, table[k].label);
        if (strcmp(name, "embedding") == 0) add_watch(w, name, WATCH_ROWS, "text.embed");
    }
    array features = encode(c, network, list, (int32_t)ids.count, w);
    compare_watches(c, w);
    compare(c, "used_layer.out", &features);
    token_list made;
    const node* prompt = json_get(c->json, "prompt");
    if (!c->by_op && prompt != NULL && prompt->type == NODE_TEXT
        && tokenise(c, network, prompt->text, prompt->text_bytes, &made)) {
        bool same = made.count == ids.count && memcmp(made.ids, list, (size_t)ids.count * sizeof *list) == 0;
        report(c, "ids of the prompt", same ? 0 : 1, 0, same);
    }
    array_free(&features);
    array_free(&ids);
    free(list);
    free(w);
}

static sumi_tokenizer* open_tokenizer(golden_case* c, sumi_file* file)
{
    char folder[2048], path[2200];
    const char* model = json_text(c->json, "model");
    sumi_error error = {0};
    sumi_tokenizer* tokenizer = NULL;
    join_path(folder, sizeof folder, c->folder, model != NULL ? model : ".");
    snprintf(path, sizeof path, "%s/tokenizer/tokenizer.json", folder);
    sumi_result result = sumi_file_open(file, &c->g->heap, NULL, path, &error);
    if (result == SUMI_OK)
        result = sumi_tokenizer_begin(&c->g->heap, file->data, (size_t)file->bytes, path, &error, &tokenizer);
    float progress;
    for (bool done = false; result == SUMI_OK && !done;)
        result = sumi_tokenizer_step(tokenizer, SIZE_MAX, &done, &progress, &error);
    if (result == SUMI_OK) return tokenizer;
    case_fails(c, "%s", error.text);
    sumi_tokenizer_destroy(tokenizer);
    return NULL;
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

static void run_tokenize(golden_case* c)
{
    sumi_network* network = case_network(c, c->json);
    sumi_file file = {0};
    sumi_tokenizer* tokenizer = network != NULL ? open_tokenizer(c, &file) : NULL;
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
        const sumi_prompt_template around = sumi_recipe_z_image.encoders[0].prompt;
        for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
            const node *prompt = json_get(n, "prompt"), *templated = json_get(n, "templated"),
                       *ids = json_get(n, "ids");
            token_list made = {.count = 0};
            bool same = prompt != NULL && prompt->type == NODE_TEXT && ids != NULL
                     && tokenise(c, network, prompt->text, prompt->text_bytes, &made) && made.count == ids->count;
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

// ---- Schedules ------------------------------------------------------------------------------------------------------

static void run_schedule(golden_case* c)
{
    for (size_t i = 0; i < c->set.count; i++) {
        // WHAT.shiftS.nN
        const char *name = expected_name(c, i), *at = name != NULL ? strstr(name, ".shift") : NULL,
                   *end = at != NULL ? strrchr(name, 'n') : NULL;
        char what[32];
        if (end == NULL || end < at + 7 || end[-1] != '.' || (size_t)(at - name) >= sizeof what) continue;
        snprintf(what, sizeof what, "%.*s", (int)(at - name), name);
        double shift = strtod(at + 6, NULL);
        int steps = atoi(end + 1);
        if (steps < 1 || steps > 10000 || !(shift > 0)) continue;
        float* sigmas = calloc((size_t)steps + 1, sizeof *sigmas);
        (void)sumi_schedule_write(&(sumi_sigma_rule){.shift = (float)shift}, 0, steps, sigmas, NULL);
        array want = array_of(&c->set.tensors[i]);
        double worst = 0, tolerance = strcmp(what, "timesteps") == 0 ? 2e-4 : 2e-7;
        bool known = want.count <= steps + 1;
        for (int64_t k = 0; k < want.count && known; k++) {
            double made = 0;
            if (strcmp(what, "sigmas") == 0) made = sigmas[k];
            else if (strcmp(what, "timesteps") == 0) made = sigmas[k] * 1000.0f;
            else if (strcmp(what, "model_time") == 0) made = sumi_recipe_z_image.time(sigmas[k]);
            else known = false;
            worst = fmax(worst, fabs(made - want.values[k]));
        }
        if (known) {
            c->seen[i] = true;
            report(c, name, worst, tolerance, worst <= tolerance);
        }
        array_free(&want);
        free(sigmas);
    }
    int rows = 0, wrong = 0;
    const node* list = json_get(c->json, "img2img");
    for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next, rows++) {
        int32_t steps = (int32_t)json_number(n, "steps", 0);
        int32_t first = sumi_schedule_first_index(steps, (float)json_number(n, "strength", 0));
        wrong += first != (int32_t)json_number(n, "first_index", -1)
              || steps - first != (int32_t)json_number(n, "steps_run", steps - first);
    }
    if (rows > 0) report(c, "first index of image to image", wrong, 0, wrong == 0);
}

// ---- The transformer ------------------------------------------------------------------------------------------------

// A request with latents, features and times given, one evaluation. Its one step of the solver leaves x = -v: the
// network's output.
typedef struct dit_job {
    int32_t count;
    array latent[8], features[8];
    float time;
    watcher* w;
    array out;
} dit_job;

static void write_dit(plan_run* run)
{
    dit_job* job = run->context;
    const sumi_solver_row row = {.cv = -1.0f, .blend_sigma = -1.0f};
    write_floats(run, run->pipeline->times, 0, &job->time, 1);
    write_floats(run, run->pipeline->solver, 0, (const float*)(const void*)&row, 12);
    for (int32_t i = 0; i < job->count; i++) {
        write_floats(run, run->pipeline->x, i * job->latent[i].shape[0], job->latent[i].values, job->latent[i].count);
        const sumi_pipeline_rows* rows = &run->pipeline->features[i][0];
        write_floats(run, rows->value, rows->row, job->features[i].values, job->features[i].count);
    }
}

static void probe_dit(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    dit_job* job = run->context;
    if (job->w != NULL) watch_op(run, job->w, op, counter, before);
}

static bool run_dit_job(golden_case* c, const sumi_network* network, dit_job* job, bool whole,
                        const sumi_adapter_use* adapters, int32_t adapter_count)
{
    const sumi_network_info* info = sumi_network_get_info(network);
    sumi_pipeline_prompt prompts[8];
    sumi_pipeline_item items[8];
    for (int32_t i = 0; i < job->count; i++) {
        if (job->latent[i].rank != 3 || job->features[i].rank != 2 || job->latent[i].shape[0] != info->latent_channels
            || job->features[i].shape[1] != info->feature_width[0]) {
            case_fails(c, "latents or features have another shape than the model's");
            return false;
        }
        prompts[i] = (sumi_pipeline_prompt){.token_count = {(int32_t)job->features[i].shape[0]}, .given = true};
        items[i] = (sumi_pipeline_item){i, -1};
    }
    sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                     .prompts = prompts,
                                     .prompt_count = job->count,
                                     .items = items,
                                     .item_count = job->count,
                                     .width = (int32_t)job->latent[0].shape[2] * info->vae_factor,
                                     .height = (int32_t)job->latent[0].shape[1] * info->vae_factor,
                                     .evaluation_count = 1,
                                     .without_decode = true,
                                     .adapters = adapters,
                                     .adapter_count = adapter_count};
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_dit, .probe = probe_dit, .context = job};
    bool good =
        (whole ? sumi_pipeline_write_every_row : sumi_pipeline_write)(network, &request, &plan, &pipeline, &error)
        == SUMI_OK;
    if (!good) case_fails(c, "%s", error.text);
    good = good && run_plan(&run, &plan);
    array_free(&job->out);
    if (good) job->out = read_array(&run, pipeline.x);
    end_plan(c, &plan);
    return good;
}

static void free_dit(dit_job* job)
{
    for (int32_t i = 0; i < 8; i++) {
        array_free(&job->latent[i]);
        array_free(&job->features[i]);
    }
    array_free(&job->out);
}

static bool take_inputs(golden_case* c, dit_job* job, int32_t i, const char* suffix)
{
    char name[64];
    snprintf(name, sizeof name, "latent%s", suffix);
    job->latent[i] = input(c, name);
    snprintf(name, sizeof name, "cap_feats%s", suffix);
    job->features[i] = input(c, name);
    snprintf(name, sizeof name, "t%s", suffix);
    array t = input(c, name);
    bool good = job->latent[i].values != NULL && job->features[i].values != NULL && t.count == 1;
    if (good) job->time = t.values[0];
    array_free(&t);
    return good;
}

static void watch_dit(golden_case* c, watcher* w, int64_t image_rows)
{
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = expected_name(c, i);
        const sumi_tensor* tensor = &c->set.tensors[i];
        char block[64];
        int index, used = 0;
        if (name == NULL) continue;
        if (strcmp(name, "t_sinusoid") == 0) add_watch(w, name, WATCH_ROWS, "t_embedder.time_embed");
        if (strcmp(name, "t_embed") == 0) add_watch(w, name, WATCH_ROWS, "t_embedder.mlp.2");
        if (strcmp(name, "cap_embed") == 0) { add_watch(w, name, WATCH_ROWS, "caption_pad.fill"); }
        if (strcmp(name, "rope_cos") == 0) add_watch(w, name, WATCH_COS, "rope");
        if (strcmp(name, "rope_sin") == 0) add_watch(w, name, WATCH_SIN, "rope");
        if (strcmp(name, "final") == 0) add_watch(w, name, WATCH_ROWS, "final_layer.linear");
        if (strcmp(name, "x_embed") == 0) {
            watch* one = add_watch(w, name, WATCH_ROWS, "image_pad.fill");
            if (one != NULL) one->rows = image_rows;
        }
        if (sscanf(name, "%63[a-z_].%d%n", block, &index, &used) != 2 || used == 0) continue;
        const char* rest = name[used] == '.' ? name + used + 1 : "out";
        static const struct {
            const char *rest, *label;
            watch_kind kind;
        } table[] = {{"mod", "adaLN_modulation", WATCH_ROWS},         {"q_normed", "attention.qk_norm_rope", WATCH_Q},
                     {"k_normed", "attention.qk_norm_rope", WATCH_K}, {"attn", "attention.out", WATCH_ROWS},
                     {"ffn", "feed_forward.w2", WATCH_ROWS},          {"out", "ffn_norm2", WATCH_ROWS}};
        if (strcmp(rest, "q_normed") == 0 && tensor->rank == 3)
            w->q_heads = (int32_t)tensor->shape[1], w->head_dim = (int32_t)tensor->shape[2];
        if (strcmp(rest, "k_normed") == 0 && tensor->rank == 3) w->kv_heads = (int32_t)tensor->shape[1];
        for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
            if (strcmp(rest, table[k].rest) != 0) continue;
            watch* one = add_watch(w, name, table[k].kind, "%s.%d.%s", block, index, table[k].label);
            if (one != NULL && strcmp(block, "noise_refiner") == 0 && strcmp(rest, "out") == 0) one->rows = image_rows;
        }
    }
}

// Pads exist only where tokens are not a multiple of 32; without them the embedder's own output is the one.
static void watch_embedders(watcher* w, int64_t tokens, int64_t caption)
{
    for (int i = 0; i < w->count; i++) {
        if (strcmp(w->list[i].label, "image_pad.fill") == 0 && tokens % 32 == 0)
            snprintf(w->list[i].label, sizeof w->list[i].label, "x_embedder");
        if (strcmp(w->list[i].label, "caption_pad.fill") == 0 && caption % 32 == 0)
            snprintf(w->list[i].label, sizeof w->list[i].label, "cap_embedder.1");
    }
}

// Another case's inputs: opens NAME.safetensors beside this case.
static bool open_inputs_of(golden_case* c, golden_case* other)
{
    const char* name = json_text(c->json, "inputs_of");
    *other = *c;
    memset(&other->set, 0, sizeof other->set);
    if (name == NULL) return false;
    char path[2400];
    sumi_error error = {0};
    snprintf(path, sizeof path, "%s/%s.safetensors", c->folder, name);
    sumi_tensor_set_init(&other->set, &c->g->heap, NULL);
    if (sumi_tensor_set_open(&other->set, path, &error) == SUMI_OK) return true;
    case_fails(c, "%s", error.text);
    sumi_tensor_set_close(&other->set);
    return false;
}

static void run_dit_single(golden_case* c, const sumi_network* network, golden_case* source)
{
    dit_job job = {.count = 1};
    if (!take_inputs(source, &job, 0, "")) {
        case_fails(c, "the case lacks latent, cap_feats or t");
        free_dit(&job);
        return;
    }
    watcher* w = calloc(1, sizeof *w);
    int64_t tokens = job.latent[0].shape[1] / 2 * (job.latent[0].shape[2] / 2);
    watch_dit(c, w, (tokens + 31) / 32 * 32);
    watch_embedders(w, tokens, job.features[0].shape[0]);
    if (w->count > 0) {
        job.w = w;
        run_dit_job(c, network, &job, true, NULL, 0); // with the rows that nothing reads, for the intermediates
        compare_watches(c, w);
        job.w = NULL;
    }
    if (run_dit_job(c, network, &job, false, NULL, 0)) compare(c, "out", &job.out);
    free(w);
    free_dit(&job);
}

static void run_dit_batch(golden_case* c, const sumi_network* network)
{
    dit_job job = {0};
    float times[8];
    bool joint = true;
    while (job.count < 8) {
        char suffix[16];
        snprintf(suffix, sizeof suffix, ".%d", (int)job.count);
        if (!take_inputs(c, &job, job.count, suffix)) {
            array_free(&job.latent[job.count]);
            array_free(&job.features[job.count]);
            break;
        }
        times[job.count] = job.time;
        joint = joint && times[0] == job.time
             && memcmp(job.latent[0].shape, job.latent[job.count].shape, sizeof job.latent[0].shape) == 0;
        job.count++;
    }
    int32_t count = job.count;
    if (count == 0) case_fails(c, "the case lacks latent, cap_feats or t");
    if (joint && count > 0 && run_dit_job(c, network, &job, false, NULL, 0)) {
        int64_t size = job.out.count / count;
        for (int32_t i = 0; i < count; i++) {
            char name[32];
            snprintf(name, sizeof name, "out.%d", (int)i);
            array one = array_make(job.out.values + i * size, 3, job.latent[i].shape);
            compare(c, name, &one);
            array_free(&one);
        }
    }
    if (!joint) printf("  sizes or times differ: the items run one by one\n");
    for (int32_t i = 0; i < count && !joint; i++) {
        dit_job single = {.count = 1, .time = times[i], .latent = {job.latent[i]}, .features = {job.features[i]}};
        char name[32];
        snprintf(name, sizeof name, "out.%d", (int)i);
        if (run_dit_job(c, network, &single, false, NULL, 0)) compare(c, name, &single.out);
        array_free(&single.out);
    }
    free_dit(&job);
}

static void run_dit(golden_case* c)
{
    sumi_network* network = case_network(c, c->json);
    if (network == NULL) return;
    golden_case source;
    if (json_text(c->json, "inputs_of") != NULL) {
        if (open_inputs_of(c, &source)) {
            run_dit_single(c, network, &source);
            sumi_tensor_set_close(&source.set);
        }
    } else if (sumi_tensor_find(&c->set, "input.latent") != NULL) {
        run_dit_single(c, network, c);
    } else {
        run_dit_batch(c, network);
    }
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

// merged.MODULE: the first rows of W with all adapters merged.
static void compare_merged(golden_case* c, const sumi_network* network, const sumi_adapter_use* uses, int32_t use_count)
{
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = expected_name(c, i);
        char folded[SUMI_NAME_BYTES];
        if (name == NULL || strncmp(name, "merged.", 7) != 0
            || !sumi_fold_path(name + 7, strlen(name + 7), folded, sizeof folded))
            continue;
        for (size_t t = 0; t < network->weights.target_count; t++) {
            const sumi_adapter_target* target = &network->weights.targets[t];
            if (strcmp(target->path, folded) != 0) continue;
            const sumi_weight* weight = network->weights.weights[target->weight_index];
            int64_t rows = c->set.tensors[i].rank > 0 && c->set.tensors[i].shape[0] < target->rows
                             ? c->set.tensors[i].shape[0]
                             : target->rows;
            array merged = array_make(NULL, 2, (const int64_t[]){rows, target->cols});
            for (int32_t r = 0; r < rows; r++)
                sumi_weight_merged_row(weight, uses, use_count, target->row_begin + r,
                                       merged.values + (int64_t)r * target->cols);
            compare(c, name, &merged);
            array_free(&merged);
            break;
        }
    }
}

static void run_adapter(golden_case* c)
{
    sumi_network* network = case_network(c, c->json);
    const node* list = json_get(c->json, "adapters");
    golden_case source;
    if (network == NULL || list == NULL || !open_inputs_of(c, &source)) {
        if (network != NULL && c->g->case_failed == 0) case_fails(c, "the case names no adapters or no inputs");
        return;
    }
    sumi_adapter_file* files[8] = {NULL};
    sumi_adapter_use uses[8];
    int32_t count = 0;
    sumi_error error = {0};
    for (const node* n = list->first; n != NULL && count < 8 && error.result == SUMI_OK; n = n->next) {
        char path[2400];
        const char* file = json_text(n, "file");
        join_path(path, sizeof path, c->folder, file != NULL ? file : "");
        if (sumi_adapter_open(&c->g->heap, NULL, network, path, &error, &files[count]) == SUMI_OK) {
            uses[count] = (sumi_adapter_use){sumi_adapter_get(files[count]), (float)json_number(n, "strength", 1.0)};
            count++;
        }
    }
    dit_job job = {.count = 1};
    if (error.result != SUMI_OK) case_fails(c, "%s", error.text);
    else if (!take_inputs(&source, &job, 0, ""))
        case_fails(c, "%s lacks latent, cap_feats or t", json_text(c->json, "inputs_of"));
    else {
        if (run_dit_job(c, network, &job, false, uses, count)) compare(c, "out", &job.out);
        if (!c->by_op) compare_merged(c, network, uses, count);
    }
    free_dit(&job);
    for (int32_t i = 0; i < count; i++) {
        const sumi_adapter* adapter = sumi_adapter_get(files[i]);
        for (int32_t d = 0; d < adapter->delta_count; d++)
            runner_forget_weights(c->g->runner,
                                  (const sumi_weight* const[]){&adapter->deltas[d].down, &adapter->deltas[d].up}, 2);
        sumi_adapter_close(files[i]);
    }
    sumi_tensor_set_close(&source.set);
}

// ---- Pictures in ----------------------------------------------------------------------------------------------------

static uint8_t* to_bytes(const array* a)
{
    uint8_t* bytes = calloc((size_t)a->count + 1, 1);
    for (int64_t i = 0; i < a->count; i++) bytes[i] = (uint8_t)a->values[i];
    return bytes;
}

static array of_bytes(const uint8_t* bytes, int32_t rank, const int64_t* shape)
{
    array a = array_make(NULL, rank, shape);
    for (int64_t i = 0; i < a.count; i++) a.values[i] = bytes[i];
    return a;
}

// A picture tensor [h, w] or [h, w, c] as the library takes it; `bytes` is to be freed.
static sumi_pixels pixels_of(const array* a, uint8_t** bytes)
{
    *bytes = to_bytes(a);
    int32_t channels = a->rank == 3 ? (int32_t)a->shape[2] : 1;
    return (sumi_pixels){.data = *bytes,
                         .width = (int32_t)a->shape[1],
                         .height = (int32_t)a->shape[0],
                         .row_bytes = (int32_t)a->shape[1] * channels,
                         .channel_count = channels};
}

static void run_preprocess(golden_case* c)
{
    sumi_network* network = case_network(c, c->json);
    array image = input(c, "image"), mask = input(c, "mask");
    if (network != NULL && image.values != NULL) {
        int32_t multiple = network->info.size_multiple, factor = network->info.vae_factor;
        int32_t width = (int32_t)json_number(c->json, "width", (double)(image.shape[1] / multiple * multiple)),
                height = (int32_t)json_number(c->json, "height", (double)(image.shape[0] / multiple * multiple));
        uint8_t *bytes = NULL, *rgb = calloc((size_t)width * (size_t)height * 3 + 1, 1),
                *made = calloc((size_t)width * (size_t)height + 1, 1);
        float* small = calloc((size_t)(width / factor) * (size_t)(height / factor) + 1, sizeof *small);
        sumi_error error = {0};
        sumi_pixels pixels = pixels_of(&image, &bytes);
        if (sumi_pixels_to_rgb(&c->g->heap, &pixels, width, height, rgb, &error) != SUMI_OK)
            case_fails(c, "%s", error.text);
        array got = of_bytes(rgb, 3, (const int64_t[]){height, width, 3});
        compare(c, "image_u8", &got);
        array_free(&got);
        free(bytes);
        if (mask.values != NULL) {
            pixels = pixels_of(&mask, &bytes);
            if (sumi_pixels_to_mask(&c->g->heap, &pixels, width, height, made, small, &error) != SUMI_OK)
                case_fails(c, "%s", error.text);
            got = of_bytes(made, 2, (const int64_t[]){height, width});
            compare(c, "mask", &got);
            array_free(&got);
            got = array_make(small, 2, (const int64_t[]){height / factor, width / factor});
            compare(c, "mask_latent", &got);
            array_free(&got);
            free(bytes);
        }
        free(rgb);
        free(made);
        free(small);
    }
    array_free(&image);
    array_free(&mask);
}

// ---- Whole pipelines ------------------------------------------------------------------------------------------------

typedef struct job {
    sumi_network* network;
    int32_t steps, evaluations;
    float* sigmas; // from the first that is used
    sumi_solver_row* rows;
    float* times;
    bool* guided;
    token_list positive, negative;
    array noise, eps, image, mask;
    float* latent_mask;
    array latents, previews, latent_previews, first_prediction, first_output, start, clean; // taken while it runs
} job;

static void write_pipeline(plan_run* run)
{
    job* j = run->context;
    golden* g = run->c->g;
    const sumi_pipeline* p = run->pipeline;
    const sumi_runner_functions* f = g->runner->functions;
    f->write(g->runner, run->plan, p->ids[0][0].value, (uint64_t)p->ids[0][0].row * 4, j->positive.ids,
             (uint64_t)j->positive.count * 4);
    if (p->ids[1][0].value.id != 0)
        f->write(g->runner, run->plan, p->ids[1][0].value, (uint64_t)p->ids[1][0].row * 4, j->negative.ids,
                 (uint64_t)j->negative.count * 4);
    write_floats(run, p->times, 0, j->times, j->evaluations);
    write_floats(run, p->solver, 0, (const float*)(const void*)j->rows, j->evaluations * 12);
    write_floats(run, p->noise.id != 0 ? p->noise : p->x, 0, j->noise.values, j->noise.count);
    if (p->eps.id != 0) write_floats(run, p->eps, 0, j->eps.values, j->eps.count);
    if (p->mask.id != 0) write_floats(run, p->mask, 0, j->latent_mask, sumi_plan_info(run->plan, p->mask)->cols);
    if (p->pixels.id != 0) {
        uint8_t* bytes = to_bytes(&j->image);
        f->write(g->runner, run->plan, p->pixels, 0, bytes, (uint64_t)j->image.count);
        free(bytes);
    }
}

// Appends a value's content to a growing [n, ...] array.
static void append(array* list, const array* one, const int64_t* shape, int32_t rank)
{
    list->values = realloc(list->values, (size_t)(list->count + one->count + 1) * sizeof *list->values);
    memcpy(list->values + list->count, one->values, (size_t)one->count * sizeof *one->values);
    list->count += one->count;
    list->rank = rank + 1;
    list->shape[0]++;
    for (int32_t i = 0; i < rank; i++) list->shape[i + 1] = shape[i];
}

static void negate(array* a)
{
    for (int64_t i = 0; i < a->count; i++) a->values[i] = -a->values[i];
}

// The preview of latents as they are.
static array preview_of(const job* j, const array* latents, int64_t pixels)
{
    const sumi_preview_factors* factors = j->network->info.preview;
    array rgb = array_make(NULL, 2, (const int64_t[]){3, pixels});
    for (int64_t p = 0; p < pixels; p++)
        for (int k = 0; k < 3; k++) {
            double sum = factors->bias[k];
            for (int32_t ch = 0; ch < factors->channel_count; ch++)
                sum += (double)factors->factors[ch][k] * latents->values[ch * pixels + p];
            rgb.values[k * pixels + p] = (float)sum;
        }
    return rgb;
}

static void probe_pipeline(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    job* j = run->context;
    const sumi_pipeline* p = run->pipeline;
    int64_t height = p->latent_height, width = p->latent_width, channels = j->network->info.latent_channels;
    if (before) return;
    if (op->kind == SUMI_OP_ADD_NOISE) {
        j->start = read_array(run, op->out);
        j->clean = read_array(run, p->clean);
    }
    if (op->kind == SUMI_OP_UNPATCHIFY && counter == 0) {
        j->first_output = read_array(run, op->out);
        negate(&j->first_output);
        j->first_output.count = channels * height * width; // the positive prompt's
    }
    if ((op->kind == SUMI_OP_GUIDE || (op->kind == SUMI_OP_UNPATCHIFY && !j->guided[0])) && counter == 0) {
        array_free(&j->first_prediction);
        j->first_prediction = read_array(run, op->out);
        negate(&j->first_prediction);
    }
    if (op->kind == SUMI_OP_PREVIEW) {
        array rgb = read_array(run, op->out);
        append(&j->previews, &rgb, (const int64_t[]){3, height, width}, 3);
        array_free(&rgb);
    }
    bool ends_step = op->kind == SUMI_OP_SOLVE
                  && (counter + 1 == j->evaluations || j->rows[counter + 1].step != j->rows[counter].step);
    if (ends_step) {
        array x = read_array(run, op->out);
        append(&j->latents, &x, (const int64_t[]){channels, height, width}, 3);
        if (j->network->info.preview != NULL) {
            array rgb = preview_of(j, &x, height * width);
            append(&j->latent_previews, &rgb, (const int64_t[]){3, height, width}, 3);
            array_free(&rgb);
        }
        array_free(&x);
    }
}

static sumi_solver solver_of(golden_case* c)
{
    const char* name = json_text(c->json, "solver");
    if (name == NULL || strcmp(name, "euler") == 0) return SUMI_SOLVER_EULER;
    if (strcmp(name, "heun") == 0) return SUMI_SOLVER_HEUN;
    if (strcmp(name, "midpoint") == 0) return SUMI_SOLVER_MIDPOINT;
    if (strcmp(name, "dpmpp_2m") == 0) return SUMI_SOLVER_DPMPP_2M;
    case_fails(c, "the solver %s is not known to this program", name);
    return SUMI_SOLVER_EULER;
}

// Sigmas, times, solver rows and guidance of the case.
static void make_schedule(golden_case* c, job* j)
{
    const node* given = json_get(c->json, "sigmas");
    double shift = json_number(c->json, "shift", (double)j->network->info.sigmas.shift),
           truncation = json_number(c->json, "cfg_truncation", 1.0), scale = json_number(c->json, "guidance", 0.0);
    int32_t steps = (int32_t)json_number(c->json, "steps", 1);
    if (given != NULL && given->type == NODE_LIST && given->count > 1) steps = given->count - 1;
    if (steps < 1 || steps > 1000) steps = 1;
    float* all = calloc((size_t)steps + 1, sizeof *all);
    (void)sumi_schedule_write(&(sumi_sigma_rule){.shift = (float)shift}, 0, steps, all, NULL);
    int32_t at = 0;
    for (const node* n = given != NULL && given->type == NODE_LIST ? given->first : NULL; n != NULL && at <= steps;
         n = n->next)
        all[at++] = (float)n->number;
    int32_t first =
        j->image.values != NULL ? sumi_schedule_first_index(steps, (float)json_number(c->json, "strength", 1.0)) : 0;
    if (first >= steps) first = steps - 1;
    j->steps = steps - first;
    j->sigmas = calloc((size_t)j->steps + 1, sizeof *j->sigmas);
    memcpy(j->sigmas, all + first, ((size_t)j->steps + 1) * sizeof *all);
    free(all);
    sumi_solver solver = solver_of(c);
    j->evaluations = sumi_solver_evaluations(solver, j->sigmas, j->steps);
    j->rows = calloc((size_t)j->evaluations + 1, sizeof *j->rows);
    j->times = calloc((size_t)j->evaluations + 1, sizeof *j->times);
    j->guided = calloc((size_t)j->evaluations + 1, sizeof *j->guided);
    sumi_solver_rows(solver, j->sigmas, j->steps, j->rows);
    for (int32_t e = 0; e < j->evaluations; e++) {
        j->times[e] = sumi_network_time(j->network, j->rows[e].sigma);
        j->guided[e] = scale > 0 && !(truncation <= 1.0 && j->times[e] > (float)truncation);
        j->rows[e].guidance = j->guided[e] ? (float)scale : 0.0f;
    }
}

static void compare_features(golden_case* c, const job* j)
{
    if (has_expected(c, "cap_feats")) {
        array features = encode(c, j->network, j->positive.ids, j->positive.count, NULL);
        compare(c, "cap_feats", &features);
        array_free(&features);
    }
    if (has_expected(c, "neg_feats")) {
        array features = encode(c, j->network, j->negative.ids, j->negative.count, NULL);
        compare(c, "neg_feats", &features);
        array_free(&features);
    }
}

static void compare_pipeline(golden_case* c, job* j, plan_run* run)
{
    const sumi_pipeline* p = run->pipeline;
    int64_t height = (int64_t)json_number(c->json, "height", 0), width = (int64_t)json_number(c->json, "width", 0);
    compare(c, "clean", &j->clean);
    compare(c, "start", &j->start);
    compare(c, "model_out_first", &j->first_output);
    compare(c, "prediction_first", &j->first_prediction);
    compare(c, "latents", &j->latents);
    compare(c, "preview_rgb", &j->previews);
    compare(c, "preview_rgb_of_latents", &j->latent_previews);
    if (!c->by_op && j->latent_mask != NULL) {
        array mask = array_make(j->latent_mask, 2, (const int64_t[]){p->latent_height, p->latent_width});
        compare(c, "mask", &mask);
        array_free(&mask);
    }
    if (j->previews.values != NULL) { // [step, 3, h, w] -> 8 bit [step, h, w, 3]
        int64_t pixels = j->previews.shape[2] * j->previews.shape[3];
        array bytes =
            array_make(NULL, 4, (const int64_t[]){j->previews.shape[0], j->previews.shape[2], j->previews.shape[3], 3});
        for (int64_t s = 0; s < bytes.shape[0]; s++)
            for (int64_t i = 0; i < pixels; i++)
                for (int64_t k = 0; k < 3; k++)
                    bytes.values[(s * pixels + i) * 3 + k] =
                        sumi_pixel_from_unit(j->previews.values[(s * 3 + k) * pixels + i]);
        compare(c, "preview_u8", &bytes);
        array_free(&bytes);
    }
    if (!c->by_op && has_expected(c, "branches")) {
        array branches = array_make(NULL, 1, (const int64_t[]){j->evaluations});
        for (int32_t e = 0; e < j->evaluations; e++) branches.values[e] = j->guided[e] ? 2 : 1;
        compare(c, "branches", &branches);
        array_free(&branches);
    }
    array image = read_planes(run, p->picture, height, width), bytes = read_array(run, p->bytes),
          bad = read_array(run, p->not_finite);
    int32_t count;
    memcpy(&count, bad.values, sizeof count);
    if (count != 0) case_fails(c, "%d values of the picture are not finite", (int)count);
    compare(c, "image", &image);
    compare(c, "image_u8", &bytes);
    array_free(&image);
    array_free(&bytes);
    array_free(&bad);
}

static void free_job(job* j)
{
    array* arrays[] = {&j->noise,
                       &j->eps,
                       &j->image,
                       &j->mask,
                       &j->latents,
                       &j->previews,
                       &j->latent_previews,
                       &j->first_prediction,
                       &j->first_output,
                       &j->start,
                       &j->clean};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) array_free(arrays[i]);
    free(j->sigmas);
    free(j->rows);
    free(j->times);
    free(j->guided);
    free(j->latent_mask);
}

static bool make_mask(golden_case* c, job* j, int32_t width, int32_t height)
{
    if (j->mask.values == NULL) return true;
    int32_t factor = j->network->info.vae_factor;
    uint8_t *bytes, *full = calloc((size_t)width * (size_t)height + 1, 1);
    j->latent_mask = calloc((size_t)(width / factor) * (size_t)(height / factor) + 1, sizeof *j->latent_mask);
    sumi_error error = {0};
    sumi_pixels pixels = pixels_of(&j->mask, &bytes);
    if (sumi_pixels_to_mask(&c->g->heap, &pixels, width, height, full, j->latent_mask, &error) != SUMI_OK)
        case_fails(c, "%s", error.text);
    free(bytes);
    free(full);
    return error.result == SUMI_OK;
}

static void run_pipeline(golden_case* c)
{
    sumi_network* network = case_network(c, c->json);
    if (network == NULL) return;
    job j = {.network = network,
             .noise = input(c, "noise"),
             .eps = input(c, "eps"),
             .image = input(c, "image"),
             .mask = input(c, "mask_image")};
    int32_t width = (int32_t)json_number(c->json, "width", 0), height = (int32_t)json_number(c->json, "height", 0);
    const node *prompt = json_get(c->json, "prompt"), *negative = json_get(c->json, "negative_prompt");
    bool good = j.noise.values != NULL && prompt != NULL && prompt->type == NODE_TEXT
             && tokenise(c, network, prompt->text, prompt->text_bytes, &j.positive);
    bool has_text = negative != NULL && negative->type == NODE_TEXT;
    good = good
        && tokenise(c, network, has_text ? negative->text : "", has_text ? negative->text_bytes : 0, &j.negative)
        && make_mask(c, &j, width, height);
    if (!good) {
        case_fails(c, "the case lacks noise or a prompt");
        free_job(&j);
        return;
    }
    make_schedule(c, &j);
    bool guides = false;
    for (int32_t e = 0; e < j.evaluations; e++) guides = guides || j.guided[e];
    sumi_pipeline_prompt prompts[2] = {{.token_count = {j.positive.count}}, {.token_count = {j.negative.count}}};
    sumi_pipeline_item item = {0, guides ? 1 : -1};
    sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                     .prompts = prompts,
                                     .prompt_count = guides ? 2 : 1,
                                     .items = &item,
                                     .item_count = 1,
                                     .width = width,
                                     .height = height,
                                     .evaluation_count = j.evaluations,
                                     .guided = j.guided,
                                     .norm_limit = (float)json_number(c->json, "cfg_normalization", 0.0),
                                     .starts_from_image = j.image.values != NULL,
                                     .samples_posterior = j.eps.values != NULL,
                                     .inpaints = j.mask.values != NULL,
                                     .previews = network->info.preview != NULL};
    sumi_pipeline_needs(j.rows, j.evaluations, &request.has_base, &request.has_history);
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_pipeline, .probe = probe_pipeline, .context = &j};
    if (sumi_pipeline_write(network, &request, &plan, &pipeline, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) compare_pipeline(c, &j, &run);
    end_plan(c, &plan);
    compare_features(c, &j);
    free_job(&j);
}

// ---- Dispatch -------------------------------------------------------------------------------------------------------

bool run_z_image_case(golden_case* c)
{
    const char* kind = c->kind;
    if (strcmp(kind, "tokenize") == 0) run_tokenize(c);
    else if (strcmp(kind, "text") == 0) run_text(c);
    else if (strcmp(kind, "encoder") == 0) run_encoder(c);
    else if (strcmp(kind, "schedule") == 0) run_schedule(c);
    else if (strcmp(kind, "dit") == 0) run_dit(c);
    else if (strcmp(kind, "adapter") == 0) run_adapter(c);
    else if (strcmp(kind, "vae_decode") == 0) run_flux_vae_case(c, case_network(c, c->json), true, false);
    else if (strcmp(kind, "vae_encode") == 0) run_flux_vae_case(c, case_network(c, c->json), false, true);
    else if (strcmp(kind, "vae_tiled") == 0) run_flux_vae_case(c, case_network(c, c->json), true, true);
    else if (strcmp(kind, "preprocess") == 0) run_preprocess(c);
    else if (strcmp(kind, "pipeline") == 0) run_pipeline(c);
    else return false;
    return true;
}
