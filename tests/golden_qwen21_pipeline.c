// Qwen-Image-2.1 from noise to picture, with what each step leaves: text to image, guidance, the listed steps of Turbo,
// edits with references, image to image; and schedules.
//
// The reference in float32 tells the network sigma itself ("expect"). The released pipeline rounds it to bfloat16,
// twice, and so does this library ("expect_tb"). A plan takes times as they are, so a case is run with both. With
// guidance the first of these runs computes the rows up to the last reference once, the second one for each prompt.
#include "at_once.h"
#include "golden_pictures.h"
#include "golden_qwen_image.h"
#include "golden_qwen_image_21.h"
#include "models/config.h"
#include "models/network_state.h"
#include "models/recipe.h"
#include "pictures/pixels.h"
#include "sampling/schedule.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Schedules ------------------------------------------------------------------------------------------------------

// WHAT of the levels: "sigmas", "timesteps", or what the network is told.
static void compare_levels(golden_case* c, const sumi_network* network, const char* name, const char* what,
                           int32_t tokens, int32_t steps)
{
    const bool has_end = strcmp(what, "sigmas") == 0;
    array got = array_make(NULL, 1, (const int64_t[]){steps + 1});
    sumi_error error = {0};
    if (sumi_schedule_write(&network->info.sigmas, tokens, steps, got.values, &error) != SUMI_OK)
        case_fails(c, "%s", error.text);
    for (int32_t k = 0; k < steps && !has_end; k++)
        got.values[k] = strcmp(what, "timesteps") == 0    ? 1000.0f * got.values[k]
                      : strcmp(what, "t_model_bf16") == 0 ? sumi_network_time(network, got.values[k])
                                                          : NAN;
    got.count = got.shape[0] = steps + has_end;
    compare(c, name, &got);
    array_free(&got);
}

static void run_schedule(golden_case* c)
{
    sumi_network* network = layered_network(c, "t2i");
    for (size_t i = 0; i < c->set.count && network != NULL; i++) {
        // stock.L<tokens>.N<steps>.WHAT
        const char* name = expected_name(c, i);
        char what[16];
        int tokens, steps;
        if (name != NULL && sscanf(name, "stock.L%d.N%d.%15[a-z_0-9]", &tokens, &steps, what) == 3 && steps >= 1
            && steps <= SUMI_SCHEDULE_MAX_STEPS)
            compare_levels(c, network, name, what, tokens, steps);
    }
    network = layered_network(c, "turbo");
    if (network == NULL) return;
    const int32_t steps = sumi_sigma_rule_steps(&network->info.sigmas);
    report(c, "the steps that Turbo's list fixes", steps, 8, steps == 8);
    if (steps < 1) return;
    compare_levels(c, network, "turbo.sigmas", "sigmas", 16, steps);
    compare_levels(c, network, "turbo.timesteps", "timesteps", 4096, steps);
}

// ---- Packed latents -------------------------------------------------------------------------------------------------

// [channels, tokens] -> [tokens, channels], or back.
static array transposed(const float* values, int64_t rows, int64_t cols)
{
    array out = array_make(NULL, 2, (const int64_t[]){cols, rows});
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++) out.values[k * rows + r] = values[r * cols + k];
    return out;
}

// ---- A job ----------------------------------------------------------------------------------------------------------

typedef struct pipe_job {
    sumi_network* network;
    int32_t width, height, steps, all_steps; // steps: those that are run, of all_steps
    float* sigmas;                           // of all steps
    sumi_solver_row* rows;
    float* times;
    bool* guided;
    case_prompt prompts[2];
    int32_t prompt_count; // 2: guided
    case_pictures pictures;
    array noise;
    uint8_t* start; // RGBA of the start picture; NULL: none
    // taken while it runs
    array latents, start_latents, clean, velocities, decoded_from, references, previews;
} pipe_job;

static void free_taken(pipe_job* j)
{
    array* taken[] = {&j->latents,      &j->start_latents, &j->clean,   &j->velocities,
                      &j->decoded_from, &j->references,    &j->previews};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) array_free(taken[i]);
}

static void free_pipe(pipe_job* j)
{
    free_taken(j);
    array_free(&j->noise);
    free_pictures(&j->pictures);
    for (int p = 0; p < 2; p++) free(j->prompts[p].ids);
    free(j->sigmas);
    free(j->rows);
    free(j->times);
    free(j->guided);
    free(j->start);
    free(j);
}

// ---- Inputs ---------------------------------------------------------------------------------------------------------

static bool read_rgba(golden_case* c, const char* name, picture_file* out)
{
    char path[2400], message[PICTURE_MESSAGE_BYTES];
    join_path(path, sizeof path, c->folder, name);
    if (picture_read(path, 4, out, message)) return true;
    case_fails(c, "%s", message);
    return false;
}

// A picture of the case, resized; NULL after reporting. *out_own: its own size.
static uint8_t* read_resized(golden_case* c, const char* name, sumi_picture_size size, sumi_picture_size* out_own)
{
    picture_file file = {0};
    uint8_t* rgba = NULL;
    sumi_error error = {0};
    if (read_rgba(c, name, &file)) {
        *out_own = (sumi_picture_size){file.width, file.height};
        rgba = calloc((size_t)size.width * (size_t)size.height + 1, 4);
        if (sumi_pixels_to_rgba(&c->g->heap, &(sumi_pixels){file.pixels, file.width, file.height, 4 * file.width, 4},
                                &(sumi_resized_pixels){rgba, size.width, size.height, SUMI_FILTER_LANCZOS}, &error)
            != SUMI_OK) {
            case_fails(c, "%s", error.text);
            free(rgba);
            rgba = NULL;
        }
    }
    picture_free(&file);
    return rgba;
}

// One resize serves the vision tower, over white, and the autoencoder. The recipe's rule is for an output resolution of
// 1024; cases have smaller ones.
static bool make_references(golden_case* c, pipe_job* j, const node* names)
{
    const int32_t cell = j->network->recipe->vision->properties(j->network->vision).cell;
    const int64_t resolution = (int64_t)json_number(c->json, "output_resolution", 1024);
    sumi_picture_size size = {0, 0};
    for (const node* n = names->first; n != NULL && j->pictures.count < SUMI_MAX_REFERENCES; n = n->next) {
        const int32_t i = j->pictures.count;
        sumi_error error = {0};
        picture_file file = {0};
        if (!read_rgba(c, n->text, &file)) return false;
        sumi_picture_size own = {file.width, file.height};
        picture_free(&file);
        if (sumi_picture_size_of_area(own, resolution * resolution, j->network->recipe->references.multiple, &size,
                                      &error)
            != SUMI_OK) {
            case_fails(c, "%s", error.text);
            return false;
        }
        j->pictures.pixels[i] = read_resized(c, n->text, size, &own);
        j->pictures.seen[i] = calloc((size_t)size.width * (size_t)size.height + 1, 3);
        j->pictures.tokens[i] = size.height / cell * (size.width / cell);
        j->pictures.references[i] = (sumi_pipeline_reference){size.width, size.height, size.width, size.height};
        j->pictures.count++;
        if (j->pictures.pixels[i] == NULL) return false;
        sumi_pixels_over_white(j->pictures.pixels[i], (size_t)size.width * (size_t)size.height, j->pictures.seen[i]);
    }
    if (!c->by_op && json_number(c->json, "size_given", 1) == 0) {
        const bool same = size.width == j->width && size.height == j->height;
        report(c, "the size of the last reference", !same, 0, same);
    }
    return true;
}

static bool make_pictures_of(golden_case* c, pipe_job* j)
{
    const node* names = json_get(c->json, "images");
    sumi_picture_size own;
    if (names == NULL) return true;
    if (json_get(c->json, "strength") == NULL) return make_references(c, j, names);
    j->start = read_resized(c, names->first->text, (sumi_picture_size){j->width, j->height}, &own);
    return j->start != NULL;
}

static bool make_schedule(golden_case* c, pipe_job* j)
{
    const sumi_network_info* info = &j->network->info;
    const int32_t listed = sumi_sigma_rule_steps(&info->sigmas), factor = info->vae_factor;
    sumi_error error = {0};
    j->all_steps = (int32_t)json_number(c->json, "num_inference_steps", listed);
    if (j->all_steps < 1 || j->all_steps > SUMI_SCHEDULE_MAX_STEPS) {
        case_fails(c, "the case lacks num_inference_steps");
        return false;
    }
    j->sigmas = calloc((size_t)j->all_steps + 1, sizeof *j->sigmas);
    if (sumi_schedule_write(&info->sigmas, j->width / factor * (j->height / factor), j->all_steps, j->sigmas, &error)
        != SUMI_OK) {
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

// A prompt's last ids, where the plan takes the first ones from another prompt.
static void write_ids(plan_run* run, const pipe_job* j)
{
    sumi_runner* runner = run->c->g->runner;
    for (int32_t p = 0; p < j->prompt_count; p++) {
        const sumi_pipeline_rows* rows = &run->pipeline->ids[p][0];
        runner->functions->write(runner, run->plan, rows->value, 4 * (uint64_t)rows->row,
                                 j->prompts[p].ids + (j->prompts[p].count - rows->count), 4 * (uint64_t)rows->count);
    }
}

static void write_pipe(plan_run* run)
{
    const pipe_job* j = run->context;
    sumi_runner* runner = run->c->g->runner;
    const sumi_pipeline* p = run->pipeline;
    write_ids(run, j);
    write_pictures(run, &j->pictures);
    write_floats(run, p->times, 0, j->times, j->steps);
    write_floats(run, p->solver, 0, (const float*)(const void*)j->rows, j->steps * 12);
    write_floats(run, p->noise.id != 0 ? p->noise : p->x, 0, j->noise.values, j->noise.count);
    if (p->pixels.id != 0)
        runner->functions->write(runner, run->plan, p->pixels, 0, j->start,
                                 4 * (uint64_t)j->width * (uint64_t)j->height);
}

static array read_tokens(plan_run* run, sumi_value value)
{
    array planes = read_array(run, value), tokens = transposed(planes.values, planes.shape[0], planes.shape[1]);
    array_free(&planes);
    return tokens;
}

static void probe_pipe(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    pipe_job* j = run->context;
    const sumi_pipeline* p = run->pipeline;
    if (before) return;
    if (op->kind == SUMI_OP_ADD_NOISE) {
        j->start_latents = read_tokens(run, op->out);
        j->clean = read_array(run, p->clean);
    }
    if (op->kind == SUMI_OP_UNPATCHIFY && counter == 0) { // of the prompts, one behind the other
        array_free(&j->velocities);
        j->velocities = read_array(run, op->out);
    }
    if (op->kind == SUMI_OP_PREVIEW) append_rows(&j->previews, read_array(run, op->out));
    if (op->kind == SUMI_OP_SOLVE) append_rows(&j->latents, read_tokens(run, op->out));
    if (strcmp(op->label, "decoder.latent_in") == 0)
        j->decoded_from = read_planes(run, op->out, p->latent_height, p->latent_width);
    if (strcmp(sumi_plan_info(run->plan, op->out)->name, "reference_latents") == 0)
        append_rows(&j->references, read_tokens(run, op->out));
}

// The preview of the last step is the factors' sum over its estimate of the clean latents, which at sigma 0 is the
// latent itself.
static void compare_preview(golden_case* c, const pipe_job* j, const array* last)
{
    const sumi_preview_factors* factors = j->network->info.preview;
    const int64_t tokens = last->shape[0], channels = last->shape[1];
    if (j->previews.values == NULL) return;
    double difference = 0, sum = 0;
    for (int64_t t = 0; t < tokens; t++) {
        for (int k = 0; k < 3; k++) {
            double want = (double)factors->bias[k];
            for (int64_t ch = 0; ch < channels; ch++)
                want += (double)factors->factors[ch][k] * (double)last->values[t * channels + ch];
            const double d = (double)j->previews.values[j->previews.count - (3 - k) * tokens + t] - want;
            difference += d * d;
            sum += want * want;
        }
    }
    const double error = sqrt(difference / sum);
    report(c, "the last preview", error, 1e-5, error <= 1e-5);
}

static void compare_picture(golden_case* c, const char* kind, plan_run* run, const pipe_job* j)
{
    const sumi_pipeline* p = run->pipeline;
    array image = read_planes(run, p->picture, j->height, j->width), bytes = read_array(run, p->bytes),
          bad = read_array(run, p->not_finite);
    int32_t count;
    memcpy(&count, bad.values, sizeof count);
    if (count != 0) case_fails(c, "%d values of the picture are not finite", (int)count);
    char name[64];
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
    char file[300];
    snprintf(file, sizeof file, "%.60s.out.png", json_text(c->json, "case"));
    const node *tensors = json_get(c->json, "tensors"), *about = json_get(tensors, "expect.image_rows");
    if (about == NULL) about = json_get(tensors, "expect.latents");
    if (strcmp(kind, "expect") == 0) compare_png(c, file, &bytes, json_number(about, "bf16_rel_l2", 0));
    array_free(&image);
    array_free(&bytes);
    array_free(&bad);
}

static void compare_pipe(golden_case* c, const char* kind, const pipe_job* j, plan_run* run)
{
    const int64_t tokens = (int64_t)run->pipeline->latent_height * run->pipeline->latent_width,
                  channels = j->network->info.latent_channels;
    if (!c->by_op) {
        array sigmas = array_make(j->sigmas, 1, (const int64_t[]){j->all_steps + 1}),
              times = array_make(j->times, 1, (const int64_t[]){j->steps});
        compare_with(c, kind, "sigmas", &sigmas);
        compare_with(c, kind, "timestep", &times);
        array_free(&sigmas);
        array_free(&times);
    }
    for (int32_t i = 0; i < j->prompt_count && j->velocities.values != NULL; i++) {
        array v = transposed(j->velocities.values + i * channels * tokens, channels, tokens);
        compare_with(c, kind, i == 0 ? "v_cond.0" : "v_neg.0", &v);
        array_free(&v);
    }
    compare_with(c, kind, "z0", &j->clean);
    compare_with(c, kind, "start_latents", &j->start_latents);
    compare_with(c, kind, "ref_tokens", &j->references);
    compare_with(c, kind, "latents", &j->latents);
    compare_with(c, kind, "vae_in", &j->decoded_from);
    array last =
        array_make(j->latents.values + (j->steps - 1) * tokens * channels, 2, (const int64_t[]){tokens, channels});
    compare_with(c, kind, "latents_final", &last);
    if (!c->g->is_gpu) compare_preview(c, j, &last);
    array_free(&last);
    compare_picture(c, kind, run, j);
}

// One run, whose results are those of KIND. rounds: the times as the library's recipe has them. shares: the prompts'
// beginning is computed once.
static void run_pipe(golden_case* c, pipe_job* j, const char* kind, bool rounds, bool shares)
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
                                     .starts_from_image = j->start != NULL,
                                     .previews = j->network->info.preview != NULL};
    if (shares) {
        request.shared_tokens[0] = sumi_pipeline_shared(j->network, &request, 0);
        if (request.shared_tokens[0] == 0) case_fails(c, "the prompts share nothing");
    }
    for (int32_t s = 0; s < j->steps; s++)
        j->times[s] = rounds ? sumi_network_time(j->network, j->rows[s].sigma) : j->rows[s].sigma;
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    free_taken(j);
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_pipe, .probe = probe_pipe, .context = j};
    if (sumi_pipeline_write(j->network, &request, &plan, &pipeline, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) compare_pipe(c, kind, j, &run);
    end_plan(c, &plan);
}

static void run_pipeline(golden_case* c)
{
    const node* negative = json_get(c->json, "negative_prompt");
    const bool guides = negative != NULL && json_number(c->json, "true_cfg_scale", 1) > 1;
    pipe_job* j = calloc(1, sizeof *j);
    j->network = layered_network(c, json_text(c->json, "overlay") != NULL ? "turbo" : "t2i");
    j->width = (int32_t)json_number(c->json, "width", 0);
    j->height = (int32_t)json_number(c->json, "height", 0);
    j->noise = input(c, "noise");
    j->prompt_count = guides ? 2 : 1;
    if (j->network != NULL && j->noise.values != NULL && make_pictures_of(c, j)
        && tokenise_prompt(c, j->network, json_get(c->json, "prompt"), &j->pictures, &j->prompts[0])
        && (!guides || tokenise_prompt(c, j->network, negative, &j->pictures, &j->prompts[1])) && make_schedule(c, j)) {
        encode_job encode = {.prompts = j->prompts,
                             .prompt_count = j->prompt_count,
                             .pictures = j->pictures.count > 0 ? &j->pictures : NULL};
        compare_embed_tails(c, j->network, &encode);
        run_pipe(c, j, "expect", false, guides && j->pictures.count > 0);
        run_pipe(c, j, "expect_tb", true, false);
    } else if (c->g->case_failed == 0) case_fails(c, "the case lacks a model, noise or a prompt");
    free_pipe(j);
}

bool run_qwen21_pipeline_case(golden_case* c)
{
    const bool is_schedule = strcmp(c->kind, "schedule") == 0 && json_get(c->json, "rows") == NULL,
               is_pipeline = strcmp(c->kind, "pipeline") == 0;
    if (is_schedule) run_schedule(c);
    if (is_pipeline) run_pipeline(c);
    return is_schedule || is_pipeline;
}
