// The kinds of Z-Image cases; here schedules, the transformer and adapters. Stages run through the same plans as the
// library's jobs (models/pipeline.h), as the engine runs them and then one op at a time; intermediates are read off the
// ops by their labels as they are made.
#include "golden_z_image.h"
#include "at_once.h"
#include "golden_control.h"
#include "golden_flux_vae.h"
#include "merged_weights.h"
#include "models/network_state.h"
#include "models/next_dit.h"
#include "models/recipe.h"
#include "pictures/pixels.h"
#include "plan_runner.h"
#include "sampling/schedule.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static bool run_dit_job(golden_case* c, const sumi_network* network, dit_job* job, bool computes_unused_rows,
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
        prompts[i] = (sumi_pipeline_prompt){.token_count = {(int32_t)job->features[i].shape[0]}, .has_features = true};
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
                                     .adapters = adapters,
                                     .adapter_count = adapter_count};
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_dit, .probe = probe_dit, .context = job};
    bool good =
        sumi_pipeline_write_latents(network, &request, computes_unused_rows, &plan, &pipeline, &error) == SUMI_OK;
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
        if (strcmp(name, "cap_embed") == 0) add_watch(w, name, WATCH_ROWS, "caption_pad.fill");
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
        } s_table[] = {{"mod", "adaLN_modulation", WATCH_ROWS},         {"q_normed", "attention.qk_norm_rope", WATCH_Q},
                       {"k_normed", "attention.qk_norm_rope", WATCH_K}, {"attn", "attention.out", WATCH_ROWS},
                       {"ffn", "feed_forward.w2", WATCH_ROWS},          {"out", "ffn_norm2", WATCH_ROWS}};
        if (strcmp(rest, "q_normed") == 0 && tensor->rank == 3)
            w->q_heads = (int32_t)tensor->shape[1], w->head_dim = (int32_t)tensor->shape[2];
        if (strcmp(rest, "k_normed") == 0 && tensor->rank == 3) w->kv_heads = (int32_t)tensor->shape[1];
        for (size_t k = 0; k < sizeof s_table / sizeof *s_table; k++) {
            if (strcmp(rest, s_table[k].rest) != 0) continue;
            watch* one = add_watch(w, name, s_table[k].kind, "%s.%d.%s", block, index, s_table[k].label);
            if (one != NULL && strcmp(block, "noise_refiner") == 0 && strcmp(rest, "out") == 0) one->rows = image_rows;
        }
    }
}

// Pads exist only where tokens are not a multiple of so many; without them the embedder's own output is the one.
static void watch_embedders(watcher* w, int64_t tokens, int64_t caption, int64_t multiple)
{
    for (int i = 0; i < w->count; i++) {
        if (strcmp(w->list[i].label, "image_pad.fill") == 0 && tokens % multiple == 0)
            snprintf(w->list[i].label, sizeof w->list[i].label, "x_embedder");
        if (strcmp(w->list[i].label, "caption_pad.fill") == 0 && caption % multiple == 0)
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
    const sumi_next_dit_settings* settings = network->recipe->denoiser_settings;
    const int64_t multiple = settings->pad_multiple;
    watch_dit(c, w, (tokens + multiple - 1) / multiple * multiple);
    watch_embedders(w, tokens, job.features[0].shape[0], multiple);
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
                merged_row(weight, uses, use_count, target->row_begin + r, merged.values + (int64_t)r * target->cols);
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
        if (open_adapter_file(&c->g->heap, network, path, &error, &files[count]) == SUMI_OK) {
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
            runner_release_weights(c->g->runner,
                                   (const sumi_weight* const[]){&adapter->deltas[d].down, &adapter->deltas[d].up}, 2);
        sumi_adapter_close(files[i]);
    }
    sumi_tensor_set_close(&source.set);
}

// ---- Dispatch -------------------------------------------------------------------------------------------------------

bool run_z_image_case(golden_case* c)
{
    const char* kind = c->kind;
    if (strcmp(kind, "schedule") == 0) run_schedule(c);
    else if (strcmp(kind, "dit") == 0) run_dit(c);
    else if (strcmp(kind, "adapter") == 0) run_adapter(c);
    else if (strcmp(kind, "vae_decode") == 0) run_flux_vae_case(c, case_network(c, c->json), true, false);
    else if (strcmp(kind, "vae_encode") == 0) run_flux_vae_case(c, case_network(c, c->json), false, true);
    else if (strcmp(kind, "vae_tiled") == 0) run_flux_vae_case(c, case_network(c, c->json), true, true);
    else return run_z_image_prompt_case(c) || run_z_image_pipeline_case(c) || run_control_case(c);
    return true;
}
