// The kinds of NewBie-image cases: prompts through both text encoders, the transformer, adapters and whole pipelines.
#include "at_once.h"
#include "golden_flux_vae.h"
#include "golden_qwen_image.h"
#include "golden_watch.h"
#include "golden_xlm_roberta.h"
#include "merged_weights.h"
#include "models/network_state.h"
#include "models/next_dit.h"
#include "models/prompt_reader.h"
#include "models/recipe.h"
#include "plan_runner.h"
#include "sampling/schedule.h"
#include "text/tokenizer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MARK "<Prompt Start>"
enum { MAX_TOKENS = 512, MAX_PROMPTS = 4 };

static sumi_network* newbie_network(golden_case* c)
{
    char path[2200];
    join_path(path, sizeof path, c->folder, "../model");
    return open_network(c, path, NULL, &(sumi_network_desc){.path = path});
}

// ---- Prompts --------------------------------------------------------------------------------------------------------

typedef struct token_lists {
    int32_t ids[SUMI_MAX_TEXT_ENCODERS][MAX_TOKENS];
    int32_t count[SUMI_MAX_TEXT_ENCODERS];
} token_lists;

// Both encoders' ids of a text; at most so many.
static bool tokenise(golden_case* c, sumi_network* network, const char* text, size_t bytes, int32_t most,
                     token_lists* out)
{
    sumi_error error = {0};
    for (int32_t e = 0; e < SUMI_MAX_TEXT_ENCODERS; e++) {
        if (read_prompt(network, e, &(sumi_prompt_text){.text = text, .bytes = bytes},
                        &(sumi_prompt_ids){out->ids[e], most, NULL}, &out->count[e], &error)
            != SUMI_OK) {
            case_fails(c, "%s", error.text);
            return false;
        }
    }
    return true;
}

// A text with the words that the case has in front of it: none are said by the mark alone.
static char* with_system(const char* system, const node* text, size_t* out_bytes)
{
    const bool is_bare = (system == NULL || system[0] == 0) && text->text_bytes > 0;
    const char* before = is_bare ? MARK : system != NULL ? system : "";
    const size_t length = strlen(before);
    char* whole = calloc(length + text->text_bytes + 1, 1);
    memcpy(whole, before, length);
    memcpy(whole + length, text->text, text->text_bytes);
    *out_bytes = length + text->text_bytes;
    return whole;
}

static bool tokenise_case(golden_case* c, sumi_network* network, const char* text_key, const char* system_key,
                          token_lists* out)
{
    const node* text = json_get(c->json, text_key);
    if (text == NULL || text->type != NODE_TEXT) {
        case_fails(c, "the case lacks %s", text_key);
        return false;
    }
    size_t bytes;
    char* whole = with_system(json_text(c->json, system_key), text, &bytes);
    const bool good = tokenise(c, network, whole, bytes, MAX_TOKENS, out);
    free(whole);
    return good;
}

static bool same_as_tensor(const golden_case* c, const char* name, const int32_t* ids, int32_t count)
{
    array want = input(c, name);
    bool same = want.values != NULL && want.count == count;
    for (int32_t i = 0; same && i < count; i++) same = (int32_t)want.values[i] == ids[i];
    array_free(&want);
    return same;
}

static void compare_ids(golden_case* c, const token_lists* tokens, const char* what)
{
    static const char* const s_names[] = {"gemma_ids", "jina_ids"};
    for (int32_t e = 0; e < SUMI_MAX_TEXT_ENCODERS; e++) {
        char label[96];
        snprintf(label, sizeof label, "%s, %s", s_names[e], what);
        const bool same = same_as_tensor(c, s_names[e], tokens->ids[e], tokens->count[e]);
        report(c, label, same ? 0 : 1, 0, same);
    }
}

// What the library puts in front of a text by itself is what the case has.
static void compare_own_words(golden_case* c, sumi_network* network)
{
    const node* text = json_get(c->json, "prompt");
    const char* system = json_text(c->json, "system");
    const sumi_prompt_opening* opening = network->recipe->encoders[0].prompt.opening;
    token_lists tokens;
    if (system == NULL || text == NULL || text->type != NODE_TEXT) return;
    const bool is_markup = text->text[0] == '<';
    if (strcmp(system, text->text_bytes == 0 ? "" : is_markup ? opening->markup : opening->plain) != 0) return;
    if (tokenise(c, network, text->text, text->text_bytes, MAX_TOKENS, &tokens))
        compare_ids(c, &tokens, "of the text alone");
}

static void write_ids(plan_run* run)
{
    const token_lists* tokens = run->context;
    golden* g = run->c->g;
    for (int32_t e = 0; e < SUMI_MAX_TEXT_ENCODERS; e++) {
        const sumi_pipeline_rows* rows = &run->pipeline->ids[0][e];
        g->runner->functions->write(g->runner, run->plan, rows->value, (uint64_t)rows->row * 4, tokens->ids[e],
                                    (uint64_t)tokens->count[e] * 4);
    }
}

static void probe_nothing(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    (void)run, (void)op, (void)counter, (void)before;
}

// The rows of a matrix that input.rows lists.
static array listed_rows(const golden_case* c, const array* all)
{
    array rows = input(c, "rows");
    const int64_t cols = all->shape[1];
    array listed = array_make(NULL, 2, (const int64_t[]){rows.count, cols});
    for (int64_t i = 0; i < rows.count && rows.values[i] < all->shape[0]; i++)
        memcpy(listed.values + i * cols, all->values + (int64_t)rows.values[i] * cols, (size_t)cols * sizeof(float));
    array_free(&rows);
    return listed;
}

static void run_text(golden_case* c)
{
    sumi_network* network = newbie_network(c);
    token_lists tokens;
    if (network == NULL || !tokenise_case(c, network, "prompt", "system", &tokens)) return;
    if (!c->by_op) {
        compare_ids(c, &tokens, "with the case's words");
        compare_own_words(c, network);
        array mask = array_make(NULL, 1, (const int64_t[]){tokens.count[0]});
        for (int64_t i = 0; i < mask.count; i++) mask.values[i] = 1.0f;
        compare(c, "gemma_mask", &mask);
        array_free(&mask);
    }
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    const sumi_pipeline_prompt prompt = {.token_count = {tokens.count[0], tokens.count[1]}};
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_PROMPTS, .prompts = &prompt, .prompt_count = 1};
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_ids, .probe = probe_nothing, .context = &tokens};
    if (sumi_pipeline_write(network, &request, &plan, &pipeline, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        array hidden = read_array(&run, pipeline.features[0][0].value),
              pooled = read_array(&run, pipeline.features[0][1].value), kept = listed_rows(c, &hidden);
        compare(c, "gemma_hidden", &kept);
        compare(c, "jina_pooled", &pooled);
        array_free(&hidden);
        array_free(&pooled);
        array_free(&kept);
    }
    end_plan(c, &plan);
}

// Every string by itself, and what is left of long ones.
static void run_tokenize(golden_case* c)
{
    sumi_network* network = newbie_network(c);
    const char* what = json_text(c->json, "what");
    if (network == NULL || c->by_op) return;
    const int32_t e = what != NULL && strstr(what, "jina") != NULL ? 1 : 0;
    const node *strings = json_get(c->json, "strings"), *cut = json_get(c->json, "truncated");
    int64_t wrong = 0, longer = 0;
    array ids = array_make(NULL, 1, (const int64_t[]){65536}), counts = array_make(NULL, 1, (const int64_t[]){4096});
    ids.count = counts.count = 0;
    int32_t* made = calloc(65536, sizeof *made);
    for (const node* n = strings != NULL ? strings->first : NULL; n != NULL && counts.count < 4096; n = n->next) {
        const node* text = json_get(n, "text");
        size_t count = 0;
        sumi_error error = {0};
        if (text == NULL || text->type != NODE_TEXT
            || sumi_tokenizer_encode(network->encoders[e].tokenizer, text->text, text->text_bytes, true, made, 65536,
                                     &count, &error)
                   != SUMI_OK)
            case_fails(c, "%s", error.text);
        for (size_t i = 0; i < count && ids.count < 65536; i++) ids.values[ids.count++] = (float)made[i];
        counts.values[counts.count++] = (float)count;
    }
    ids.shape[0] = ids.count;
    counts.shape[0] = counts.count;
    compare(c, "ids", &ids);
    compare(c, "count", &counts);
    for (const node* n = cut != NULL ? cut->first : NULL; n != NULL; n = n->next, longer++) {
        const node *text = json_get(n, "text"), *want = json_get(n, "ids");
        token_lists tokens = {.count = {0}};
        size_t bytes;
        char* whole = with_system(NULL, text, &bytes);
        bool same = tokenise(c, network, whole, bytes, (int32_t)json_number(n, "max_length", 1), &tokens)
                 && want != NULL && want->count == tokens.count[e];
        int32_t i = 0;
        for (const node* id = same ? want->first : NULL; id != NULL; id = id->next)
            same = tokens.ids[e][i++] == (int32_t)id->number && same;
        wrong += !same;
        free(whole);
    }
    char label[64];
    snprintf(label, sizeof label, "%d texts that are cut", (int)longer);
    report(c, label, (double)wrong, 0, wrong == 0 && longer > 0);
    array_free(&ids);
    array_free(&counts);
    free(made);
}

// ---- The transformer ------------------------------------------------------------------------------------------------

// Latents, features and a time are given; one step of a solver leaves x = -v, the network's output.
typedef struct dit_job {
    int32_t count;
    array latents, captions[MAX_PROMPTS], pooled; // [count, ...]
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
    write_floats(run, run->pipeline->x, 0, job->latents.values, job->latents.count);
    for (int32_t i = 0; i < job->count; i++) {
        const int64_t width = job->pooled.count / job->count;
        const sumi_pipeline_rows *caption = &run->pipeline->features[i][0], *pooled = &run->pipeline->features[i][1];
        write_floats(run, caption->value, caption->row, job->captions[i].values, job->captions[i].count);
        write_floats(run, pooled->value, pooled->row, job->pooled.values + i * width, width);
    }
}

static void probe_dit(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    dit_job* job = run->context;
    if (job->w != NULL) watch_op(run, job->w, op, counter, before);
}

static bool run_dit_job(golden_case* c, const sumi_network* network, dit_job* job, const sumi_adapter_use* adapters,
                        int32_t adapter_count)
{
    const sumi_network_info* info = &network->info;
    sumi_pipeline_prompt prompts[MAX_PROMPTS];
    sumi_pipeline_item items[MAX_PROMPTS];
    const int32_t rank = job->latents.rank;
    for (int32_t i = 0; i < job->count; i++) {
        prompts[i] =
            (sumi_pipeline_prompt){.token_count = {(int32_t)job->captions[i].shape[0], 1}, .has_features = true};
        items[i] = (sumi_pipeline_item){i, -1};
    }
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                           .prompts = prompts,
                                           .prompt_count = job->count,
                                           .items = items,
                                           .item_count = job->count,
                                           .width = (int32_t)job->latents.shape[rank - 1] * info->vae_factor,
                                           .height = (int32_t)job->latents.shape[rank - 2] * info->vae_factor,
                                           .evaluation_count = 1,
                                           .adapters = adapters,
                                           .adapter_count = adapter_count};
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_dit, .probe = probe_dit, .context = job};
    bool good = sumi_pipeline_write_latents(network, &request, job->w != NULL, &plan, &pipeline, &error) == SUMI_OK;
    if (!good) case_fails(c, "%s", error.text);
    good = good && run_plan(&run, &plan);
    array_free(&job->out);
    if (good) {
        job->out = read_array(&run, pipeline.x);
        job->out.rank = rank;
        memcpy(job->out.shape, job->latents.shape, sizeof job->out.shape);
    }
    end_plan(c, &plan);
    return good;
}

static bool take_inputs(golden_case* c, dit_job* job)
{
    job->latents = input(c, "latent");
    job->pooled = input(c, "pooled");
    job->captions[0] = input(c, "cap");
    job->count = 1;
    if (job->captions[0].values == NULL) {
        char name[16];
        for (job->count = 0; job->count < MAX_PROMPTS; job->count++) {
            snprintf(name, sizeof name, "cap%d", (int)job->count);
            job->captions[job->count] = input(c, name);
            if (job->captions[job->count].values == NULL) break;
        }
    }
    array t = input(c, "t");
    const bool good = job->latents.rank >= 3 && job->pooled.values != NULL && job->count > 0 && t.count == 1;
    if (good) job->time = t.values[0];
    else case_fails(c, "the case lacks latent, cap, pooled or t");
    array_free(&t);
    return good;
}

static void free_dit(dit_job* job)
{
    for (int32_t i = 0; i < MAX_PROMPTS; i++) array_free(&job->captions[i]);
    array_free(&job->latents);
    array_free(&job->pooled);
    array_free(&job->out);
}

// The reference has the caption's rows first, the library the image's.
static void watch_dit(golden_case* c, watcher* w, int64_t image_rows, int64_t condition_width)
{
    static const struct {
        const char *name, *label;
        watch_kind kind;
    } s_table[] = {{"timestep_embedding", "t_embedder.time_embed", WATCH_ROWS},
                   {"time_text_embed", "time_text_embed.1", WATCH_ROWS},
                   {"cap_embedder", "cap_embedder.1", WATCH_ROWS},
                   {"x_embedder", "x_embedder", WATCH_ROWS},
                   {"rope_cos", "rope", WATCH_COS},
                   {"rope_sin", "rope", WATCH_SIN},
                   {"final_layer.adaLN_modulation", "final_layer.adaLN_modulation", WATCH_ROWS},
                   {"final_layer", "final_layer.linear", WATCH_ROWS}};
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = expected_name(c, i);
        char block[64];
        int index, used = 0;
        watch* one = NULL;
        if (name == NULL) continue;
        for (size_t k = 0; k < sizeof s_table / sizeof *s_table; k++)
            if (strcmp(name, s_table[k].name) == 0) one = add_watch(w, name, s_table[k].kind, "%s", s_table[k].label);
        // both are columns of one matrix
        if (strcmp(name, "t_embedder") == 0) {
            one = add_watch(w, name, WATCH_ROWS, "t_embedder.mlp.2");
            one->cols = condition_width;
        } else if (strcmp(name, "clip_text_pooled_proj") == 0) {
            one = add_watch(w, name, WATCH_ROWS, "clip_text_pooled_proj.1");
            one->first_col = condition_width;
        }
        if (sscanf(name, "%63[a-z_].%d%n", block, &index, &used) == 2 && used > 0) {
            const char* rest = name[used] == '.' ? name + used + 1 : "";
            const char* label = rest[0] == 0                          ? "ffn_norm2"
                              : strcmp(rest, "attention") == 0        ? "attention.out"
                              : strcmp(rest, "feed_forward") == 0     ? "feed_forward.w2"
                              : strcmp(rest, "adaLN_modulation") == 0 ? "adaLN_modulation"
                                                                      : NULL;
            if (label != NULL) one = add_watch(w, name, WATCH_ROWS, "%s.%d.%s", block, index, label);
            if (one != NULL && strcmp(block, "noise_refiner") == 0) one->rows = image_rows;
            if (one != NULL && strcmp(block, "layers") == 0 && strcmp(rest, "adaLN_modulation") != 0)
                one->turned = image_rows;
        }
        if (strncmp(name, "rope_", 5) == 0 || strcmp(name, "final_layer") == 0) one->turned = image_rows;
    }
}

static void run_dit(golden_case* c)
{
    sumi_network* network = newbie_network(c);
    dit_job job = {.count = 0};
    if (network != NULL && take_inputs(c, &job)) {
        const int32_t rank = job.latents.rank;
        watcher* w = calloc(1, sizeof *w);
        const sumi_next_dit* model = network->denoiser;
        watch_dit(c, w, job.latents.shape[rank - 1] / 2 * (job.latents.shape[rank - 2] / 2), model->condition_width);
        if (w->count > 0) {
            job.w = w;
            run_dit_job(c, network, &job, NULL, 0); // with the rows that nothing reads, for the intermediates
            compare_watches(c, w);
            job.w = NULL;
        }
        if (run_dit_job(c, network, &job, NULL, 0)) compare(c, "velocity", &job.out);
        if (!c->by_op && has_expected(c, "final_layer.norm_final"))
            not_checked(c, "expect.final_layer.norm_final", "the library's op norms and modulates in one");
        free(w);
    }
    free_dit(&job);
}

// Heads of the released size: norms, rotation and attention alone.
typedef struct attention_job {
    array qkv, rope;
    sumi_value qkv_value;
} attention_job;

static void write_attention(plan_run* run)
{
    const attention_job* job = run->context;
    write_floats(run, job->qkv_value, 0, job->qkv.values, job->qkv.count);
}

static sumi_weight vector_of(const array* values)
{
    return (sumi_weight){.name = "vector",
                         .rows = 1,
                         .cols = (int32_t)values->count,
                         .tensor_count = 1,
                         .tensors = {{.data = values->values, .dtype = SUMI_DTYPE_F32, .rows = 1, .scale = 1.0f}},
                         .index = -1};
}

// Pairs of values that rotate with each of the three axes, of the case's axes_dims. False after reporting.
static bool take_axes(golden_case* c, int32_t dim, int32_t pairs[3])
{
    const node* axes = json_get(c->json, "axes_dims");
    int32_t count = 0, sum = 0;
    for (const node* n = axes != NULL && axes->type == NODE_LIST ? axes->first : NULL; n != NULL; n = n->next) {
        if (count < 3) pairs[count] = (int32_t)n->number / 2;
        sum += (int32_t)n->number;
        count++;
    }
    if (count == 3 && sum == dim && dim > 0) return true;
    case_fails(c, "the case lacks axes_dims: three numbers whose sum is head_dim");
    return false;
}

static void run_attention(golden_case* c)
{
    attention_job job = {.qkv = input(c, "qkv")};
    array q = input(c, "q_norm"), k = input(c, "k_norm"), at = input(c, "position_ids");
    const int32_t heads = (int32_t)json_number(c->json, "heads", 0), kv = (int32_t)json_number(c->json, "kv_heads", 0),
                  dim = (int32_t)json_number(c->json, "head_dim", 0), rows = (int32_t)at.shape[0];
    const sumi_weight q_norm = vector_of(&q), k_norm = vector_of(&k);
    const sumi_next_dit_settings* settings = sumi_recipe_newbie.denoiser_settings;
    sumi_plan_rope_args rotary = {.axes = 3, .theta = settings->theta};
    if (!take_axes(c, dim, rotary.pairs)) {
        array* all[] = {&job.qkv, &q, &k, &at};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) array_free(all[i]);
        return;
    }
    int32_t* positions = calloc((size_t)at.count + 1, sizeof *positions);
    for (int64_t i = 0; i < at.count; i++) positions[i] = (int32_t)at.values[i];
    sumi_plan plan;
    sumi_error error = {0};
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
    job.qkv_value = sumi_plan_bound(&plan, "qkv", SUMI_ELEMENT_ACTIVATION, rows, (heads + 2 * kv) * dim);
    rotary.positions = sumi_plan_constant(&plan, "positions", SUMI_ELEMENT_INT, rows, 3, positions);
    sumi_value rope = sumi_plan_rope_table(&plan, &rotary);
    sumi_plan_qk_norm_rope(&plan, &(sumi_plan_qk_args){.label = "qk",
                                                       .qkv = job.qkv_value,
                                                       .rows = rows,
                                                       .q_heads = heads,
                                                       .kv_heads = kv,
                                                       .dim = dim,
                                                       .q_norm = &q_norm,
                                                       .k_norm = &k_norm,
                                                       .eps = settings->qk_eps,
                                                       .rope = rope,
                                                       .rotary = SUMI_ROTARY_INTERLEAVED});
    const sumi_sequence all = {.span = {{0, rows}}, .span_count = 1, .query_spans = 1};
    sumi_value out = sumi_plan_attention(&plan, "attention", job.qkv_value,
                                         &(sumi_attention){.q_heads = heads,
                                                           .kv_heads = kv,
                                                           .dim = dim,
                                                           .scale = (float)(1.0 / sqrt((double)dim)),
                                                           .sequences = &all,
                                                           .sequence_count = 1});
    if (out.id > 0 && (size_t)out.id <= plan.value_count) plan.values[out.id - 1].bound = true;
    plan_run run = {.c = c, .write = write_attention, .probe = probe_nothing, .context = &job};
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        array got = read_array(&run, out);
        compare(c, "out", &got);
        array_free(&got);
    }
    runner_release_weights(c->g->runner, (const sumi_weight* const[]){&q_norm, &k_norm}, 2);
    end_plan(c, &plan);
    array_free(&job.qkv);
    array_free(&q);
    array_free(&k);
    array_free(&at);
    free(positions);
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

// delta.MODULE.weight: the first rows of what the adapter adds.
static void compare_deltas(golden_case* c, const sumi_network* network, const sumi_adapter_use* use)
{
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = expected_name(c, i);
        char module[SUMI_NAME_BYTES], folded[SUMI_NAME_BYTES];
        if (name == NULL || strncmp(name, "delta.", 6) != 0) continue;
        const size_t length = strlen(name) - strlen("delta.") - strlen(".weight");
        snprintf(module, sizeof module, "%.*s", (int)length, name + 6);
        if (!sumi_fold_path(module, length, folded, sizeof folded)) continue;
        for (size_t t = 0; t < network->weights.target_count; t++) {
            const sumi_adapter_target* target = &network->weights.targets[t];
            if (strcmp(target->path, folded) != 0) continue;
            const sumi_weight* weight = network->weights.weights[target->weight_index];
            const int64_t rows = c->set.tensors[i].rank > 1 ? c->set.tensors[i].shape[0] : 1;
            array delta = array_make(NULL, 2, (const int64_t[]){rows, target->cols});
            float* plain = calloc((size_t)target->cols, sizeof *plain);
            for (int32_t r = 0; r < rows; r++) {
                float* row = delta.values + (int64_t)r * target->cols;
                merged_row(weight, use, 1, target->row_begin + r, row);
                sumi_weight_to_float(weight, target->row_begin + r, 1, plain, target->cols);
                for (int32_t k = 0; k < target->cols; k++) row[k] -= plain[k];
            }
            if (rows == 1) delta.count = c->set.tensors[i].shape[0]; // the first values of a vector
            compare(c, name, &delta);
            array_free(&delta);
            free(plain);
            break;
        }
    }
}

static void run_adapter(golden_case* c)
{
    sumi_network* network = newbie_network(c);
    const char* folder = json_text(c->json, "adapter");
    dit_job job = {.count = 0};
    char path[2400], where[2200];
    sumi_adapter_file* file = NULL;
    sumi_error error = {0};
    if (network == NULL || folder == NULL || !take_inputs(c, &job)) {
        free_dit(&job);
        return;
    }
    join_path(where, sizeof where, c->folder, "..");
    snprintf(path, sizeof path, "%s/%.180s", where, folder);
    if (open_adapter_file(&c->g->heap, network, path, &error, &file) == SUMI_OK) {
        const sumi_adapter_use use = {sumi_adapter_get(file), (float)json_number(c->json, "strength", 1.0)};
        if (run_dit_job(c, network, &job, NULL, 0)) compare(c, "velocity_base", &job.out);
        if (run_dit_job(c, network, &job, &use, 1)) compare(c, "velocity", &job.out);
        if (!c->by_op) compare_deltas(c, network, &use);
        if (!c->by_op)
            not_checked(c, "expect.velocity_merged_bf16",
                        "adapters are computed beside the weights, which are never rounded");
        for (int32_t d = 0; d < use.adapter->delta_count; d++)
            runner_release_weights(
                c->g->runner, (const sumi_weight* const[]){&use.adapter->deltas[d].down, &use.adapter->deltas[d].up},
                2);
    } else case_fails(c, "%s", error.text);
    sumi_adapter_close(file);
    free_dit(&job);
}

// ---- Schedules and solvers ------------------------------------------------------------------------------------------

// KIND.sSHIFT.nSTEPS
static void run_schedule(golden_case* c)
{
    static const struct {
        const char* name;
        sumi_sigma_grid grid;
        bool is_time; // N points of a rising time
    } s_kinds[] = {{"engine", SUMI_GRID_EVEN, false},
                   {"authors_t", SUMI_GRID_EVEN, true},
                   {"authors_dpm", SUMI_GRID_BELOW_ONE, false},
                   {"comfy_simple", SUMI_GRID_TABLE, false},
                   {"diffusers_default", SUMI_GRID_TWICE, false}};
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = expected_name(c, i);
        char kind[32];
        int shift = 0, points = 0;
        if (name == NULL || sscanf(name, "%31[a-z_].s%d.n%d", kind, &shift, &points) != 3
            || points > SUMI_SCHEDULE_MAX_STEPS)
            continue;
        for (size_t k = 0; k < sizeof s_kinds / sizeof *s_kinds; k++) {
            if (strcmp(kind, s_kinds[k].name) != 0) continue;
            const int32_t steps = points - s_kinds[k].is_time;
            const sumi_sigma_rule rule = {.shift = (float)shift, .grid = s_kinds[k].grid};
            float sigmas[SUMI_SCHEDULE_MAX_STEPS + 1];
            sumi_error error = {0};
            if (sumi_schedule_write(&rule, 0, steps, sigmas, &error) != SUMI_OK) case_fails(c, "%s", error.text);
            for (int32_t s = 0; s <= steps && s_kinds[k].is_time; s++) sigmas[s] = 1.0f - sigmas[s];
            array made = array_make(sigmas, 1, (const int64_t[]){steps + 1});
            compare(c, name, &made);
            array_free(&made);
        }
    }
}

// d x / d t of the recorded runs, with t = 1 - sigma.
static double recorded_field(double x, double t) { return -0.5 * x + sin(3.0 * t) + 0.25 * cos(x); }

// A solver's table of rows on x, which holds `count` numbers; out: x after each step.
static void follow(sumi_solver solver, const float* sigmas, int32_t steps, double* x, int64_t count, float* out)
{
    sumi_solver_row* rows = calloc((size_t)(steps * sumi_solver_max_rows(solver)) + 1, sizeof *rows);
    const int32_t evaluations = sumi_solver_rows(solver, sigmas, steps, rows);
    double *y = calloc((size_t)count, sizeof *y), *h = calloc((size_t)count, sizeof *h);
    memcpy(y, x, (size_t)count * sizeof *y);
    for (int32_t e = 0; e < evaluations; e++) {
        const sumi_solver_row* r = &rows[e];
        for (int64_t i = 0; i < count; i++) {
            const double v = -recorded_field(x[i], 1.0 - (double)r->sigma);
            const double next = (double)r->cx * x[i] + (double)r->cy * y[i] + (double)r->cv * v + (double)r->ch * h[i];
            h[i] = (double)r->hx * x[i] + (double)r->hv * v + (double)r->hh * h[i];
            if (r->keeps == 0.0f) y[i] = next;
            x[i] = next;
            if (r->keeps == 0.0f) out[r->step * count + i] = (float)next;
        }
    }
    free(rows);
    free(y);
    free(h);
}

// SOLVER.on_GRID
static void run_solver(golden_case* c)
{
    static const struct {
        const char* name;
        sumi_solver solver;
    } s_solvers[] = {{"euler", SUMI_SOLVER_EULER},       {"heun", SUMI_SOLVER_HEUN_FULL},
                     {"midpoint", SUMI_SOLVER_MIDPOINT}, {"rk4", SUMI_SOLVER_RK4},
                     {"dpmpp2m", SUMI_SOLVER_DPMPP_2M},  {"res_multistep", SUMI_SOLVER_RES_MULTISTEP}};
    array start = input(c, "x0");
    for (size_t i = 0; i < c->set.count && start.values != NULL; i++) {
        const char *name = expected_name(c, i), *on = name != NULL ? strstr(name, ".on_") : NULL;
        for (size_t k = 0; k < sizeof s_solvers / sizeof *s_solvers && on != NULL; k++) {
            if (strncmp(name, s_solvers[k].name, (size_t)(on - name)) != 0 || s_solvers[k].name[on - name] != 0)
                continue;
            char key[64];
            snprintf(key, sizeof key, "grid.%.50s", on + strlen(".on_"));
            array grid = input(c, key);
            const int32_t steps = (int32_t)grid.count - 1;
            double* x = calloc((size_t)start.count, sizeof *x);
            for (int64_t n = 0; n < start.count; n++) x[n] = (double)start.values[n];
            array made = array_make(NULL, 2, (const int64_t[]){steps > 0 ? steps : 0, start.count});
            if (steps > 0) follow(s_solvers[k].solver, grid.values, steps, x, start.count, made.values);
            compare(c, name, &made);
            array_free(&made);
            array_free(&grid);
            free(x);
        }
    }
    array_free(&start);
}

// ---- Whole pipelines ------------------------------------------------------------------------------------------------

typedef struct job {
    sumi_network* network;
    int32_t evaluations;
    sumi_solver_row* rows;
    float* times;
    bool* guided;
    token_lists prompts[2];
    array noise;
    int32_t step;
} job;

static void write_pipeline(plan_run* run)
{
    job* j = run->context;
    golden* g = run->c->g;
    const sumi_pipeline* p = run->pipeline;
    for (int32_t i = 0; i < 2; i++)
        for (int32_t e = 0; e < SUMI_MAX_TEXT_ENCODERS; e++)
            g->runner->functions->write(g->runner, run->plan, p->ids[i][e].value, (uint64_t)p->ids[i][e].row * 4,
                                        j->prompts[i].ids[e], (uint64_t)j->prompts[i].count[e] * 4);
    write_floats(run, p->times, 0, j->times, j->evaluations);
    write_floats(run, p->solver, 0, (const float*)(const void*)j->rows, j->evaluations * 12);
    write_floats(run, p->x, 0, j->noise.values, j->noise.count);
}

// Latents after each step.
static void probe_pipeline(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    job* j = run->context;
    if (before || op->kind != SUMI_OP_SOLVE
        || (counter + 1 < j->evaluations && j->rows[counter + 1].step == j->rows[counter].step))
        return;
    char name[32];
    snprintf(name, sizeof name, "latent%d", (int)j->rows[counter].step + 1);
    array x = read_array(run, op->out);
    if (has_expected(run->c, name)) compare(run->c, name, &x);
    array_free(&x);
}

static bool find_solver(golden_case* c, sumi_solver* out)
{
    static const struct {
        const char* name;
        sumi_solver solver;
    } s_table[] = {{"euler", SUMI_SOLVER_EULER},
                   {"flow_euler", SUMI_SOLVER_EULER},
                   {"midpoint", SUMI_SOLVER_MIDPOINT},
                   {"dpmpp2m", SUMI_SOLVER_DPMPP_2M},
                   {"res_multistep", SUMI_SOLVER_RES_MULTISTEP}};
    const char* name = json_text(c->json, "solver");
    for (size_t i = 0; i < sizeof s_table / sizeof *s_table && name != NULL; i++) {
        *out = s_table[i].solver;
        if (strcmp(name, s_table[i].name) == 0) return true;
    }
    case_fails(c, "the solver %s is not known to this program", name != NULL ? name : "(none)");
    return false;
}

// Noise levels by the network's own rule with the case's shift; rows, times and guidance of every evaluation.
static bool make_schedule(golden_case* c, job* j)
{
    const int32_t steps = (int32_t)json_number(c->json, "steps", 0);
    const node *grid = json_get(c->json, "grid_sigma"), *truncation = json_get(c->json, "cfg_trunc");
    sumi_solver solver;
    sumi_error error = {0};
    sumi_sigma_rule rule = j->network->info.sigmas;
    rule.shift = (float)json_number(c->json, "shift", (double)rule.shift);
    if (steps < 1 || steps > SUMI_SCHEDULE_MAX_STEPS || grid == NULL || grid->count != steps + 1
        || !find_solver(c, &solver)) {
        case_fails(c, "the case lacks a grid of its steps");
        return false;
    }
    float sigmas[SUMI_SCHEDULE_MAX_STEPS + 1];
    if (sumi_schedule_write(&rule, 0, steps, sigmas, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    double worst = 0;
    int32_t at = 0;
    for (const node* n = grid->first; n != NULL; n = n->next) {
        const double off = fabs(n->number - (double)sigmas[at++]);
        worst = off > worst ? off : worst;
    }
    if (!c->by_op) report(c, "the grid", worst, 1e-6, worst <= 1e-6); // the reference's tables are float32
    j->rows = calloc((size_t)(steps * sumi_solver_max_rows(solver)), sizeof *j->rows);
    j->evaluations = sumi_solver_rows(solver, sigmas, steps, j->rows);
    j->times = calloc((size_t)j->evaluations, sizeof *j->times);
    j->guided = calloc((size_t)j->evaluations, sizeof *j->guided);
    const double end = truncation != NULL && truncation->type == NODE_NUMBER ? truncation->number : 2.0;
    for (int32_t e = 0; e < j->evaluations; e++) {
        j->times[e] = sumi_network_time(j->network, j->rows[e].sigma);
        j->guided[e] = (double)j->times[e] <= end;
        // the op adds to the positive prediction, the case's number to the negative one
        j->rows[e].guidance = j->guided[e] ? (float)json_number(c->json, "guidance", 1.0) - 1.0f : 0.0f;
    }
    return true;
}

static void run_pipeline(golden_case* c)
{
    job j = {.network = newbie_network(c), .noise = input(c, "noise")};
    const bool good =
        j.network != NULL && j.noise.values != NULL && tokenise_case(c, j.network, "prompt", "system", &j.prompts[0])
        && tokenise_case(c, j.network, "negative_prompt", "negative_system", &j.prompts[1]) && make_schedule(c, &j);
    if (good) {
        const sumi_pipeline_prompt prompts[2] = {
            {.token_count = {j.prompts[0].count[0], j.prompts[0].count[1]}},
            {.token_count = {j.prompts[1].count[0], j.prompts[1].count[1]}},
        };
        const sumi_pipeline_item item = {0, 1};
        const int32_t width = (int32_t)json_number(c->json, "width", 0),
                      height = (int32_t)json_number(c->json, "height", 0);
        sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                         .prompts = prompts,
                                         .prompt_count = 2,
                                         .items = &item,
                                         .item_count = 1,
                                         .width = width,
                                         .height = height,
                                         .evaluation_count = j.evaluations,
                                         .guided = j.guided,
                                         .norm_limit = (float)json_number(c->json, "renorm_cfg", 0.0)};
        sumi_pipeline_needs(j.rows, j.evaluations, &request.has_base, &request.has_history);
        sumi_plan plan;
        sumi_pipeline pipeline;
        sumi_error error = {0};
        begin_plan(c, &plan);
        plan_run run = {.c = c, .pipeline = &pipeline, .write = write_pipeline, .probe = probe_pipeline, .context = &j};
        if (sumi_pipeline_write(j.network, &request, &plan, &pipeline, &error) != SUMI_OK)
            case_fails(c, "%s", error.text);
        else if (run_plan(&run, &plan)) {
            array image = read_planes(&run, pipeline.picture, height, width);
            for (int64_t i = 0; i < image.count; i++) { // the reference's is between 0 and 1
                const float v = (image.values[i] + 1.0f) * 0.5f;
                image.values[i] = v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v;
            }
            compare(c, "image", &image);
            array_free(&image);
        }
        end_plan(c, &plan);
    }
    array_free(&j.noise);
    free(j.rows);
    free(j.times);
    free(j.guided);
}

// ---- Dispatch -------------------------------------------------------------------------------------------------------

bool run_newbie_case(golden_case* c)
{
    const char* kind = c->kind;
    if (strcmp(kind, "tokenize") == 0) run_tokenize(c);
    else if (strcmp(kind, "text") == 0) run_text(c);
    else if (strcmp(kind, "dit") == 0) run_dit(c);
    else if (strcmp(kind, "op") == 0) run_attention(c);
    else if (strcmp(kind, "adapter") == 0) run_adapter(c);
    else if (strcmp(kind, "pipeline") == 0) run_pipeline(c);
    else if (strcmp(kind, "vae_decode") == 0) run_flux_vae_case(c, newbie_network(c), true, false);
    else if (strcmp(kind, "vae_encode") == 0) run_flux_vae_case(c, newbie_network(c), false, true);
    else if (strcmp(kind, "schedule") == 0) run_schedule(c);
    else if (strcmp(kind, "solver") == 0) run_solver(c);
    else {
        const bool is_known = run_language_model_case(c);
        return run_xlm_roberta_case(c) || is_known;
    }
    return true;
}
