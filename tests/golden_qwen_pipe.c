#include "golden_qwen_pipe.h"
#include "models/network_state.h"
#include "plan_runner.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void free_taken(pipe_job* j)
{
    array* taken[] = {&j->latents,      &j->start_latents, &j->clean,   &j->velocities,
                      &j->decoded_from, &j->references,    &j->previews};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) array_free(taken[i]);
}

void free_pipe(pipe_job* j)
{
    free_taken(j);
    array_free(&j->noise);
    array_free(&j->posterior_noise);
    free_pictures(&j->pictures);
    for (int p = 0; p < 2; p++) free(j->prompts[p].ids);
    free(j->sigmas);
    free(j->rows);
    free(j->times);
    free(j->guided);
    free(j->start);
    free(j->latent_mask);
}

bool make_pipe_schedule(golden_case* c, pipe_job* j, const sumi_sigma_rule* rule, int32_t usual_steps)
{
    const sumi_network_info* info = &j->network->info;
    const int32_t cell = info->vae_factor * info->patch_size;
    sumi_error error = {0};
    j->all_steps = (int32_t)json_number(c->json, "num_inference_steps", usual_steps);
    if (j->all_steps < 1 || j->all_steps > SUMI_SCHEDULE_MAX_STEPS) {
        case_fails(c, "the case lacks num_inference_steps");
        return false;
    }
    j->sigmas = calloc((size_t)j->all_steps + 1, sizeof *j->sigmas);
    if (sumi_schedule_write(rule, j->width / cell * (j->height / cell), j->all_steps, j->sigmas, &error) != SUMI_OK) {
        case_fails(c, "%s", error.text);
        return false;
    }
    const int32_t first =
        j->start != NULL ? sumi_schedule_first_index(j->all_steps, (float)json_number(c->json, "strength", 1)) : 0;
    if (!c->by_op && first != (int32_t)json_number(c->json, "start_index", first))
        case_fails(c, "the first step is %d", (int)first);
    j->steps = j->all_steps - first;
    j->rows = calloc((size_t)j->steps + 1, sizeof *j->rows);
    j->times = calloc((size_t)j->steps + 1, sizeof *j->times);
    j->guided = calloc((size_t)j->steps + 1, sizeof *j->guided);
    sumi_solver_rows(SUMI_SOLVER_EULER, j->sigmas + first, j->steps, j->rows);
    for (int32_t s = 0; s < j->steps; s++) {
        j->guided[s] = j->prompt_count == 2;
        j->rows[s].guidance = // of the op, which begins at 0
            j->guided[s] ? (float)json_number(c->json, "true_cfg_scale", 1) - info->guidance_off : 0.0f;
    }
    return true;
}

// ---- Running --------------------------------------------------------------------------------------------------------

static void write_pipe(plan_run* run)
{
    const pipe_job* j = run->context;
    sumi_runner* runner = run->c->g->runner;
    const sumi_pipeline* p = run->pipeline;
    write_prompt_ids(run, j->prompts, j->prompt_count);
    write_pictures(run, &j->pictures);
    write_floats(run, p->times, 0, j->times, j->steps);
    write_floats(run, p->solver, 0, (const float*)(const void*)j->rows, j->steps * 12);
    write_floats(run, p->noise.id != 0 ? p->noise : p->x, 0, j->noise.values, j->noise.count);
    if (p->eps.id != 0) write_floats(run, p->eps, 0, j->posterior_noise.values, j->posterior_noise.count);
    if (p->mask.id != 0) write_floats(run, p->mask, 0, j->latent_mask, sumi_plan_info(run->plan, p->mask)->cols);
    if (p->pixels.id != 0)
        runner->functions->write(runner, run->plan, p->pixels, 0, j->start,
                                 (uint64_t)j->network->info.picture_channels * (uint64_t)j->width
                                     * (uint64_t)j->height);
}

static array read_tokens(plan_run* run, sumi_value value, int64_t height, int64_t width)
{
    const pipe_job* j = run->context;
    array latents = read_array(run, value),
          tokens = j->tokens(latents.values, j->network->info.latent_channels, height, width);
    array_free(&latents);
    return tokens;
}

// References are made one after another: the tokens that are there say which one the next is.
static void take_reference(plan_run* run, sumi_value value)
{
    pipe_job* j = run->context;
    const int32_t factor = j->network->info.vae_factor, cell = factor * j->network->info.patch_size;
    int32_t index = 0;
    for (int64_t rows = 0; index < j->pictures.count && rows < j->references.shape[0]; index++)
        rows += (int64_t)(j->pictures.references[index].width / cell) * (j->pictures.references[index].height / cell);
    const sumi_pipeline_reference* one = &j->pictures.references[index < j->pictures.count ? index : 0];
    append_rows(&j->references, read_tokens(run, value, one->height / factor, one->width / factor));
}

static void probe_pipe(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    pipe_job* j = run->context;
    const sumi_pipeline* p = run->pipeline;
    const int64_t height = p->latent_height, width = p->latent_width;
    if (before) return;
    if (op->kind == SUMI_OP_ADD_NOISE) {
        j->start_latents = read_tokens(run, op->out, height, width);
        j->clean = read_array(run, p->clean);
    }
    if (op->kind == SUMI_OP_UNPATCHIFY && counter == 0) { // of the prompts, one below the other
        array_free(&j->velocities);
        j->velocities = read_array(run, op->out);
    }
    if (op->kind == SUMI_OP_PREVIEW) append_rows(&j->previews, read_array(run, op->out));
    if (op->kind == SUMI_OP_SOLVE) append_rows(&j->latents, read_tokens(run, op->out, height, width));
    if (strcmp(op->label, "decoder.latent_in") == 0) j->decoded_from = read_planes(run, op->out, height, width);
    if (strcmp(sumi_plan_info(run->plan, op->out)->name, "reference_latents") == 0) take_reference(run, op->out);
}

// ---- Comparing ------------------------------------------------------------------------------------------------------

array step_of(const pipe_job* j, int32_t step)
{
    const int64_t tokens = j->latents.shape[0] / j->steps, width = j->latents.shape[1];
    return array_make(j->latents.values + step * tokens * width, 2, (const int64_t[]){tokens, width});
}

// The first rows of the picture in float, the whole picture in bytes, and that all of it is finite.
static void compare_picture(golden_case* c, const char* kind, const pipe_job* j, plan_run* run)
{
    const sumi_pipeline* p = run->pipeline;
    array image = read_planes(run, p->picture, j->height, j->width), bytes = read_array(run, p->bytes),
          bad = read_array(run, p->not_finite);
    int32_t count;
    memcpy(&count, bad.values, sizeof count);
    if (count != 0) case_fails(c, "%d values of the picture are not finite", (int)count);
    char name[64], file[300], path[2400];
    snprintf(name, sizeof name, "%s.image_rows", kind);
    const sumi_tensor* want = sumi_tensor_find(&c->set, name);
    if (want != NULL && want->rank == 3 && want->shape[1] <= j->height) {
        const int64_t channels = image.shape[0], rows = want->shape[1], row = j->width;
        array top = array_make(NULL, 3, (const int64_t[]){channels, rows, row});
        for (int64_t i = 0; i < top.count; i++) {
            top.values[i] = image.values[i / (rows * row) * j->height * row + i % (rows * row)];
            top.values[i] = fminf(fmaxf(top.values[i], -1.0f), 1.0f); // as the reference's decoder ends
        }
        compare_with(c, kind, "image_rows", &top);
        array_free(&top);
    }
    const char* case_name = json_text(c->json, "case");
    snprintf(file, sizeof file, "%.60s.out.png", case_name != NULL ? case_name : "");
    join_path(path, sizeof path, c->folder, file);
    if (strcmp(kind, "expect") == 0 && sumi_file_exists(NULL, path)) {
        const node *tensors = json_get(c->json, "tensors"), *about = json_get(tensors, "expect.image_rows");
        if (about == NULL) about = json_get(tensors, "expect.latents");
        compare_png(c, file, &bytes, json_number(about, "bf16_rel_l2", 0));
    }
    array_free(&image);
    array_free(&bytes);
    array_free(&bad);
}

static void compare_pipe(golden_case* c, const pipe_way* way, const pipe_job* j, plan_run* run)
{
    const sumi_pipeline* p = run->pipeline;
    const int64_t height = p->latent_height, width = p->latent_width, channels = j->network->info.latent_channels;
    if (!c->by_op) {
        array sigmas = array_make(j->sigmas, 1, (const int64_t[]){j->all_steps + 1}),
              times = array_make(j->times, 1, (const int64_t[]){j->steps});
        compare_with(c, way->kind, "sigmas", &sigmas);
        compare_with(c, way->kind, "timestep", &times);
        array_free(&sigmas);
        array_free(&times);
    }
    for (int32_t i = 0; i < j->prompt_count && j->velocities.values != NULL; i++) {
        array v = j->tokens(j->velocities.values + i * channels * height * width, channels, height, width);
        compare_with(c, way->kind, i == 0 ? "v_cond.0" : "v_neg.0", &v);
        array_free(&v);
    }
    compare_with(c, way->kind, "z0", &j->clean);
    compare_with(c, way->kind, "start_latents", &j->start_latents);
    compare_with(c, way->kind, "ref_tokens", &j->references);
    compare_with(c, way->kind, "latents", &j->latents);
    compare_with(c, way->kind, "vae_in", &j->decoded_from);
    array last = step_of(j, j->steps - 1);
    compare_with(c, way->kind, "latents_final", &last);
    array_free(&last);
    way->compare(c, way->kind, j, run);
    compare_picture(c, way->kind, j, run);
}

void run_pipe(golden_case* c, pipe_job* j, const pipe_way* way)
{
    sumi_pipeline_prompt prompts[2] = {{.token_count = {j->prompts[0].count}}, {.token_count = {j->prompts[1].count}}};
    for (int p = 0; p < 2; p++)
        memcpy(prompts[p].reference_row, j->prompts[p].picture_rows, sizeof prompts[p].reference_row);
    const sumi_pipeline_item item = {0, j->prompt_count == 2 ? 1 : -1};
    sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                     .prompts = prompts,
                                     .prompt_count = j->prompt_count,
                                     .items = &item,
                                     .item_count = 1,
                                     .references = j->pictures.count > 0 ? j->pictures.references : NULL,
                                     .reference_count = j->pictures.count,
                                     .width = j->width,
                                     .height = j->height,
                                     .evaluation_count = j->steps,
                                     .guided = j->guided,
                                     .adapters = way->adapter,
                                     .adapter_count = way->adapter != NULL,
                                     .starts_from_image = j->start != NULL,
                                     .samples_posterior = j->posterior_noise.values != NULL,
                                     .inpaints = j->latent_mask != NULL,
                                     .previews = j->network->info.preview != NULL};
    if (way->shares) {
        request.shared_tokens[0] = sumi_pipeline_shared(j->network, &request, 0);
        if (request.shared_tokens[0] == 0) case_fails(c, "the prompts share nothing");
    }
    for (int32_t s = 0; s < j->steps; s++)
        j->times[s] = way->rounds ? sumi_network_time(j->network, j->rows[s].sigma) : j->rows[s].sigma;
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    free_taken(j);
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_pipe, .probe = probe_pipe, .context = j};
    if (sumi_pipeline_write(j->network, &request, &plan, &pipeline, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) compare_pipe(c, way, j, &run);
    end_plan(c, &plan);
}
