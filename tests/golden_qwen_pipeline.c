// The Qwen-Image family from noise to picture, with what each step leaves; adapters; schedules.
//
// The reference in float32 tells the network sigma itself ("expect"). The released pipelines round it to bfloat16,
// twice, and so does this library ("expect_tb"). A plan takes times as they are, so a case is run with both.
#include "at_once.h"
#include "golden_qwen_pipe.h"
#include "merged_weights.h"
#include "models/config.h"
#include "models/network_state.h"
#include "pictures/pixels.h"
#include "plan_runner.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Packed latents -------------------------------------------------------------------------------------------------

// Of element `feature` of token `token`, in [channels, height * width]: channel slowest, then row and column of the
// patch.
static int64_t latent_at(int64_t height, int64_t width, int64_t token, int64_t feature)
{
    const int64_t columns = width / 2, y = token / columns * 2 + feature / 2 % 2, x = token % columns * 2 + feature % 2;
    return feature / 4 * height * width + y * width + x;
}

static array pack(const float* latents, int64_t channels, int64_t height, int64_t width)
{
    array tokens = array_make(NULL, 2, (const int64_t[]){height * width / 4, 4 * channels});
    for (int64_t t = 0; t < tokens.shape[0]; t++)
        for (int64_t k = 0; k < tokens.shape[1]; k++)
            tokens.values[t * tokens.shape[1] + k] = latents[latent_at(height, width, t, k)];
    return tokens;
}

static array unpack(const array* tokens, int64_t height, int64_t width)
{
    array latents = array_make(NULL, 2, (const int64_t[]){tokens->shape[1] / 4, height * width});
    for (int64_t t = 0; t < tokens->shape[0]; t++)
        for (int64_t k = 0; k < tokens->shape[1]; k++)
            latents.values[latent_at(height, width, t, k)] = tokens->values[t * tokens->shape[1] + k];
    return latents;
}

// ---- Schedules ------------------------------------------------------------------------------------------------------

bool read_case_rule(golden_case* c, const char* file_name, sumi_sigma_rule* rule)
{
    char path[2400];
    sumi_file file = {0};
    sumi_error error = {0};
    join_path(path, sizeof path, c->folder, file_name);
    bool good = sumi_file_open(&file, &c->g->heap, NULL, path, &error) == SUMI_OK
             && sumi_scheduler_read(file.data, (size_t)file.bytes, path, rule, &error) == SUMI_OK;
    if (!good) case_fails(c, "%s", error.text);
    sumi_file_close(&file);
    return good;
}

static void run_schedule(golden_case* c)
{
    for (size_t i = 0; i < c->set.count; i++) {
        // TAG.L<tokens>.N<steps>.WHAT
        const char* name = expected_name(c, i);
        char tag[16], what[16];
        int tokens, steps;
        if (name == NULL || sscanf(name, "%15[a-z].L%d.N%d.%15[a-z_0-9]", tag, &tokens, &steps, what) != 4 || steps < 1
            || steps > SUMI_SCHEDULE_MAX_STEPS)
            continue;
        sumi_sigma_rule rule = sumi_scheduler_defaults();
        const bool is_stock = strcmp(tag, "stock") == 0, has_end = strcmp(what, "sigmas") == 0;
        // an adapter's overrides are read over the model's own
        if (!read_case_rule(c, "../model/scheduler/scheduler_config.json", &rule)
            || (!is_stock && !read_case_rule(c, "../scheduler_lightning.json", &rule)))
            return;
        array got = array_make(NULL, 1, (const int64_t[]){steps + 1});
        sumi_error error = {0};
        if (sumi_schedule_write(&rule, tokens, steps, got.values, &error) != SUMI_OK) case_fails(c, "%s", error.text);
        for (int k = 0; k < steps && !has_end; k++)
            got.values[k] = strcmp(what, "timesteps") == 0    ? 1000.0f * got.values[k]
                          : strcmp(what, "t_model_bf16") == 0 ? sumi_recipe_qwen_image.time(got.values[k])
                                                              : NAN;
        got.count = got.shape[0] = steps + has_end;
        compare(c, name, &got);
        array_free(&got);
    }
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

// An adapter file of the folder beside the cases, NULL for none. False after reporting.
static bool open_adapter(golden_case* c, const sumi_network* network, const char* name, sumi_adapter_file** out)
{
    char path[2400];
    sumi_error error = {0};
    *out = NULL;
    if (name == NULL) return true;
    snprintf(path, sizeof path, "%.2000s/../%.300s", c->folder, name);
    if (open_adapter_file(&c->g->heap, network, path, &error, out) == SUMI_OK) return true;
    case_fails(c, "%s", error.text);
    return false;
}

static void close_adapter(golden_case* c, sumi_adapter_file* file)
{
    if (file == NULL) return;
    const sumi_adapter* adapter = sumi_adapter_get(file);
    for (int32_t d = 0; d < adapter->delta_count; d++)
        runner_release_weights(c->g->runner,
                               (const sumi_weight* const[]){&adapter->deltas[d].down, &adapter->deltas[d].up}, 2);
    sumi_adapter_close(file);
}

typedef struct forward_job {
    array latents, text;
    float time;
} forward_job;

static void write_forward(plan_run* run)
{
    const forward_job* job = run->context;
    const sumi_solver_row row = {.cv = 1.0f, .blend_sigma = -1.0f}; // leaves x = v
    write_floats(run, run->pipeline->times, 0, &job->time, 1);
    write_floats(run, run->pipeline->solver, 0, (const float*)(const void*)&row, 12);
    write_floats(run, run->pipeline->x, 0, job->latents.values, job->latents.count);
    write_floats(run, run->pipeline->features[0][0].value, 0, job->text.values, job->text.count);
}

// One evaluation with an adapter, as packed rows under the name `expected`.
static void run_forward(golden_case* c, const sumi_network* network, forward_job* job, sumi_size size,
                        const sumi_adapter_use* use, const char* expected)
{
    const sumi_pipeline_prompt prompt = {.token_count = {(int32_t)job->text.shape[0]}, .has_features = true};
    const sumi_pipeline_item item = {0, -1};
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                           .prompts = &prompt,
                                           .prompt_count = 1,
                                           .items = &item,
                                           .item_count = 1,
                                           .width = size.width,
                                           .height = size.height,
                                           .evaluation_count = 1,
                                           .adapters = use,
                                           .adapter_count = use != NULL};
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_forward, .context = job};
    if (sumi_pipeline_write_latents(network, &request, false, &plan, &pipeline, &error) != SUMI_OK)
        case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        array x = read_array(&run, pipeline.x),
              rows = pack(x.values, x.shape[0], pipeline.latent_height, pipeline.latent_width);
        compare(c, expected, &rows);
        array_free(&x);
        array_free(&rows);
    }
    end_plan(c, &plan);
}

static void run_adapters(golden_case* c)
{
    sumi_network* network = layered_network(c, "t2i");
    const node *list = json_get(c->json, "adapters"), *grid = json_get(c->json, "target_grid");
    array x = input(c, "x"), t = input(c, "t");
    forward_job job = {.text = input(c, "txt"), .time = t.count == 1 ? t.values[0] : 0};
    const bool good = network != NULL && list != NULL && grid != NULL && grid->count == 2 && x.rank == 2 && t.count == 1
                   && job.text.rank == 2;
    if (network != NULL && !good) case_fails(c, "the case lacks adapters, target_grid, x, txt or t");
    if (good) {
        const int32_t height = 2 * (int32_t)grid->first->number, width = 2 * (int32_t)grid->first->next->number,
                      factor = network->info.vae_factor;
        job.latents = unpack(&x, height, width);
        for (const node* n = list->first; n != NULL; n = n->next) {
            const char* tensor = json_text(n, "tensor");
            sumi_adapter_file* file;
            if (tensor == NULL || strncmp(tensor, "expect.", 7) != 0 || !has_expected(c, tensor + 7)) continue;
            if (!open_adapter(c, network, json_text(n, "file"), &file)) continue;
            const sumi_adapter_use use = {file != NULL ? sumi_adapter_get(file) : NULL,
                                          (float)json_number(n, "strength", 1)};
            run_forward(c, network, &job, (sumi_size){width * factor, height * factor}, file != NULL ? &use : NULL,
                        tensor + 7);
            close_adapter(c, file);
        }
    }
    array_free(&x);
    array_free(&t);
    array_free(&job.text);
    array_free(&job.latents);
}

// ---- Pipelines ------------------------------------------------------------------------------------------------------

enum { PREVIEW_STEP = 2 }; // whose preview is stored

// The linear preview of latents as they are.
static array preview_of(const sumi_network* network, const float* latents, int64_t pixels)
{
    const sumi_preview_factors* factors = network->info.preview;
    array rgb = array_make(NULL, 2, (const int64_t[]){3, pixels});
    for (int64_t p = 0; p < pixels; p++)
        for (int k = 0; k < 3; k++) {
            double sum = factors->bias[k];
            for (int32_t ch = 0; ch < factors->channel_count; ch++)
                sum += (double)factors->factors[ch][k] * latents[ch * pixels + p];
            rgb.values[k * pixels + p] = (float)sum;
        }
    return rgb;
}

// What the pipeline decodes from, and shows.
static void compare_shown(golden_case* c, const char* kind, const pipe_job* j, plan_run* run)
{
    const sumi_pipeline* p = run->pipeline;
    const int64_t height = p->latent_height, width = p->latent_width;
    array last = step_of(j, j->steps - 1), planes = unpack(&last, height, width);
    compare_with(c, kind, "preview_final.latent", &planes);
    array rgb = preview_of(j->network, planes.values, height * width);
    compare_with(c, kind, "preview_final.rgb", &rgb);
    if (j->previews.shape[0] > 3 * PREVIEW_STEP) {
        array shown = array_make(j->previews.values + 3 * PREVIEW_STEP * j->previews.shape[1], 2,
                                 (const int64_t[]){3, j->previews.shape[1]});
        compare_with(c, kind, "preview_step2.rgb", &shown);
        array_free(&shown);
    }
    if (has_tensor(c, kind, "preview_step2.latent")
        && j->steps > PREVIEW_STEP) { // x - sigma v, by the step that it made
        array before = step_of(j, PREVIEW_STEP - 1), after = step_of(j, PREVIEW_STEP);
        const float sigma = j->sigmas[PREVIEW_STEP], next = j->sigmas[PREVIEW_STEP + 1];
        for (int64_t i = 0; i < before.count; i++)
            before.values[i] -= sigma * (after.values[i] - before.values[i]) / (next - sigma);
        array clean = unpack(&before, height, width);
        compare_with(c, kind, "preview_step2.latent", &clean);
        array_free(&before);
        array_free(&after);
        array_free(&clean);
    }
    array* all[] = {&last, &planes, &rgb};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) array_free(all[i]);
}

static void compare_parts(golden_case* c, const char* kind, const pipe_job* j, plan_run* run)
{
    const int64_t height = run->pipeline->latent_height, width = run->pipeline->latent_width,
                  channels = j->network->info.latent_channels;
    if (!c->by_op && j->latent_mask != NULL && has_tensor(c, kind, "mask")) { // the same for every channel
        array planes = array_make(NULL, 2, (const int64_t[]){channels, height * width});
        for (int64_t i = 0; i < planes.count; i++) planes.values[i] = j->latent_mask[i % (height * width)];
        array mask = pack(planes.values, channels, height, width);
        compare_with(c, kind, "mask", &mask);
        array_free(&planes);
        array_free(&mask);
    }
    array last = step_of(j, j->steps - 1);
    if (strcmp(kind, "expect") == 0) compare_wrong(c, "latents_without_lora", &last);
    array_free(&last);
    compare_shown(c, kind, j, run);
}

// By the scheduler that the case names, or the network's own.
static bool make_schedule(golden_case* c, pipe_job* j)
{
    sumi_sigma_rule rule = j->network->info.sigmas;
    const char* scheduler = json_text(c->json, "scheduler");
    char path[400];
    snprintf(path, sizeof path, "../%.300s", scheduler != NULL ? scheduler : "");
    return (scheduler == NULL || read_case_rule(c, path, &rule)) && make_pipe_schedule(c, j, &rule, 0);
}

// Start picture and mask, by the names that the generator gives them; cases with references have other pictures.
static bool make_start(golden_case* c, pipe_job* j)
{
    const node* names = json_get(c->json, "images");
    if (j->posterior_noise.values == NULL) return true;
    picture_file picture = {0}, mask = {0};
    const sumi_network_info* info = &j->network->info;
    const int32_t width = j->width / info->vae_factor, height = j->height / info->vae_factor;
    sumi_error error = {0};
    bool good = names != NULL && names->first != NULL && read_case_png(c, names->first->text, &picture);
    if (good) {
        j->start = calloc(3 * (size_t)j->width * (size_t)j->height + 1, 1);
        const sumi_pixels pixels = {.data = picture.pixels,
                                    .width = picture.width,
                                    .height = picture.height,
                                    .row_bytes = 3 * picture.width,
                                    .channel_count = 3};
        good = sumi_pixels_to_rgb(&c->g->heap, &pixels, j->width, j->height, j->start, &error) == SUMI_OK;
    }
    if (good && names->first->next != NULL) {
        good = read_case_png(c, names->first->next->text, &mask);
        j->latent_mask = calloc((size_t)width * (size_t)height + 1, sizeof *j->latent_mask);
        uint8_t* whole = calloc((size_t)j->width * (size_t)j->height + 1, 1);
        const sumi_pixels pixels = {.data = mask.pixels,
                                    .width = mask.width,
                                    .height = mask.height,
                                    .row_bytes = 3 * mask.width,
                                    .channel_count = 3};
        good = good && sumi_pixels_to_mask(&c->g->heap, &pixels, j->width, j->height, whole, &error) == SUMI_OK;
        const int32_t factor = j->network->info.vae_factor;
        sumi_mask_to_latents(
            whole, j->width, j->height,
            &(sumi_latent_mask){j->latent_mask, j->width / factor, j->height / factor, SUMI_MASK_NEAREST});
        free(whole);
    }
    if (error.result != SUMI_OK) case_fails(c, "%s", error.text);
    picture_free(&picture);
    picture_free(&mask);
    return good;
}

// References, in the sizes that the case's areas give them, and the size of the picture where none was asked for.
static bool make_references(golden_case* c, pipe_job* j)
{
    const node* areas = json_get(c->json, "areas");
    if (areas == NULL) return true;
    // the first edit model shows its vision tower what its autoencoder reads
    const int64_t encoded = (int64_t)json_number(areas, "1024x1024", 0),
                  seen = (int64_t)json_number(areas, "384x384", (double)encoded);
    if (!make_pictures(c, j->network, json_get(c->json, "images"), (picture_areas){seen, encoded}, &j->pictures))
        return false;
    if (!c->by_op && json_number(c->json, "size_given", 1) == 0) {
        sumi_picture_size size = {0, 0};
        sumi_error error = {0};
        const bool same = sumi_picture_size_of_area(j->pictures.last, encoded, 32, &size, &error) == SUMI_OK
                       && size.width == j->width && size.height == j->height;
        report(c, "the picture's size", !same, 0, same);
    }
    return true;
}

// Weights as merging in bfloat16 leaves them, for as long as the plan with them runs.
typedef struct merged_weight {
    sumi_weight* weight;
    sumi_weight before;
    uint16_t* data;
} merged_weight;

static merged_weight merge(sumi_weight* weight, const sumi_adapter_use* use)
{
    merged_weight merged = {weight, *weight, calloc((size_t)weight->rows * (size_t)weight->cols, sizeof(uint16_t))};
    float* row = calloc((size_t)weight->cols, sizeof *row);
    for (int32_t r = 0; r < weight->rows; r++) {
        merged_row(weight, use, 1, r, row);
        for (int32_t k = 0; k < weight->cols; k++)
            merged.data[(size_t)r * (size_t)weight->cols + (size_t)k] = sumi_float_to_bf16(row[k]);
    }
    weight->tensor_count = 1;
    weight->tensors[0] =
        (sumi_stacked_tensor){.data = merged.data, .dtype = SUMI_DTYPE_BF16, .rows = weight->rows, .scale = 1.0f};
    free(row);
    return merged;
}

static void run_merged(golden_case* c, pipe_job* j, const sumi_adapter_use* use)
{
    sumi_weight_list* all = &j->network->weights;
    if (!has_tensor(c, "expect_mb", "latents_final")) return;
    if (c->g->is_gpu) {
        const sumi_tensor* tensor = sumi_tensor_find(&c->set, "expect_mb.latents_final");
        c->seen[tensor - c->set.tensors] = true;
        if (!c->by_op) not_checked(c, tensor->name, "no error in bfloat16 is stored for it");
        return;
    }
    merged_weight* merged = calloc(all->count + 1, sizeof *merged);
    size_t count = 0;
    for (int32_t d = 0; d < use->adapter->delta_count; d++) {
        // plans read it where it lies, in the parts' models
        sumi_weight* weight = (sumi_weight*)(uintptr_t)all->weights[use->adapter->deltas[d].weight_index];
        if (count == 0 || merged[count - 1].weight != weight) merged[count++] = merge(weight, use);
    }
    run_pipe(c, j, &(pipe_way){.kind = "expect_mb", .compare = compare_parts});
    for (size_t i = 0; i < count; i++) {
        *merged[i].weight = merged[i].before;
        free(merged[i].data);
    }
    free(merged);
}

static void run_pipeline(golden_case* c)
{
    const char *model = json_text(c->json, "model"), *lora = json_text(c->json, "lora");
    sumi_network* network = model != NULL ? layered_network(c, model) : NULL;
    sumi_adapter_file* file = NULL;
    pipe_job j = {.network = network,
                  .tokens = pack,
                  .width = (int32_t)json_number(c->json, "width", 0),
                  .height = (int32_t)json_number(c->json, "height", 0),
                  .noise = input(c, "noise"),
                  .posterior_noise = input(c, "posterior_noise")};
    const bool guides = json_get(c->json, "negative_prompt") != NULL && json_number(c->json, "true_cfg_scale", 1) > 1;
    j.prompt_count = guides ? 2 : 1;
    if (network != NULL && j.noise.values != NULL && make_references(c, &j) && make_start(c, &j)
        && tokenise_prompt(c, network, json_get(c->json, "prompt"), &j.pictures, &j.prompts[0])
        && (!guides || tokenise_prompt(c, network, json_get(c->json, "negative_prompt"), &j.pictures, &j.prompts[1]))
        && make_schedule(c, &j) && open_adapter(c, network, lora, &file)) {
        const sumi_adapter_use use = {file != NULL ? sumi_adapter_get(file) : NULL,
                                      (float)json_number(c->json, "lora_strength", 1)};
        const sumi_adapter_use* adapter = file != NULL ? &use : NULL;
        encode_job encode = {.prompts = j.prompts,
                             .prompt_count = j.prompt_count,
                             .pictures = j.pictures.count > 0 ? &j.pictures : NULL};
        compare_embed_tails(c, j.network, &encode);
        run_pipe(c, &j, &(pipe_way){.kind = "expect", .adapter = adapter, .compare = compare_parts});
        run_pipe(c, &j, &(pipe_way){.kind = "expect_tb", .rounds = true, .adapter = adapter, .compare = compare_parts});
        if (adapter != NULL) run_merged(c, &j, adapter);
    } else if (c->g->case_failed == 0) case_fails(c, "the case lacks a model or noise");
    close_adapter(c, file);
    free_pipe(&j);
}

bool run_qwen_pipeline_case(golden_case* c)
{
    const bool is_schedule = strcmp(c->kind, "schedule") == 0 && json_get(c->json, "rows") == NULL,
               is_adapter = strcmp(c->kind, "adapter") == 0, is_pipeline = strcmp(c->kind, "pipeline") == 0;
    if (is_schedule) run_schedule(c);
    if (is_adapter) run_adapters(c);
    if (is_pipeline) run_pipeline(c);
    return is_schedule || is_adapter || is_pipeline;
}
