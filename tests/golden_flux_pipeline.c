// FLUX.2 [klein] from noise to picture, with the latents after every step: text to image, edits with references,
// guidance, inpainting.
//
// The reference in float32 tells the network the time itself ("expect"). Its pipelines in bfloat16 round it, and so does
// this library ("expect_tb"). A plan takes times as they are, so a case is run with both.
#include "golden_flux_pipeline.h"
#include "at_once.h"
#include "golden_flux_references.h"
#include "models/network_state.h"
#include "pictures/pixels.h"
#include "plan_runner.h"
#include "sampling/schedule.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT_ROWS = 1024 };

typedef struct pipe_job {
    sumi_network* network;
    int32_t width, height, steps; // steps that are run
    float* sigmas;                // of these steps
    sumi_solver_row* rows;
    float* times;
    bool* guided;
    int32_t ids[2][PROMPT_ROWS], id_counts[2];
    int32_t prompt_count; // 2: guided
    array noise;
    inpaint_inputs start; // rgb NULL: none
    sumi_pipeline_reference references[SUMI_MAX_REFERENCES];
    uint8_t* reference_rgb[SUMI_MAX_REFERENCES];
    int32_t reference_count;
    // taken while it runs
    array latents, previews, velocities, prediction, clean, start_latents,
        reference_latents[SUMI_MAX_REFERENCE_LATENTS];
    int32_t reference_latent_count;
} pipe_job;

static void free_taken(pipe_job* j)
{
    array* taken[] = {&j->latents, &j->previews, &j->velocities, &j->prediction, &j->clean, &j->start_latents};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) array_free(taken[i]);
    for (int32_t i = 0; i < j->reference_latent_count; i++) array_free(&j->reference_latents[i]);
    j->reference_latent_count = 0;
}

static void free_pipe(pipe_job* j)
{
    free_taken(j);
    array_free(&j->noise);
    free_inpaint_inputs(&j->start);
    for (int32_t i = 0; i < j->reference_count; i++) free(j->reference_rgb[i]);
    free(j->sigmas);
    free(j->rows);
    free(j->times);
    free(j->guided);
}

// ---- Inputs ---------------------------------------------------------------------------------------------------------

// Shrinks and crops one picture of the case as the network's rule says.
static bool make_reference(golden_case* c, pipe_job* j, const char* name)
{
    array picture = input(c, name);
    sumi_reference_sizes sizes;
    sumi_error error = {0};
    const int32_t i = j->reference_count;
    bool good = picture.rank == 3 && picture.shape[2] == 3 && i < SUMI_MAX_REFERENCES;
    if (!good) {
        case_fails(c, "%s is no picture, or there are too many", name);
        array_free(&picture);
        return false;
    }
    const sumi_picture_size own = {(int32_t)picture.shape[1], (int32_t)picture.shape[0]};
    uint8_t* source = calloc((size_t)picture.count, 1);
    for (int64_t k = 0; k < picture.count; k++) source[k] = (uint8_t)picture.values[k];
    good = sumi_network_reference_sizes(j->network, own, &sizes, &error) == SUMI_OK;
    if (good) {
        uint8_t* resized = calloc(3 * (size_t)sizes.resized.width * (size_t)sizes.resized.height + 1, 1);
        good =
            sumi_pixels_resize(
                &c->g->heap, &(sumi_pixels){source, own.width, own.height, 3 * own.width, 3},
                &(sumi_resized_pixels){resized, sizes.resized.width, sizes.resized.height, SUMI_FILTER_LANCZOS}, &error)
            == SUMI_OK;
        const int32_t width = sizes.autoencoder.width, height = sizes.autoencoder.height;
        j->reference_rgb[i] = calloc(3 * (size_t)width * (size_t)height + 1, 1);
        for (int32_t y = 0; y < height; y++)
            memcpy(j->reference_rgb[i] + 3 * (size_t)(y * width),
                   resized + 3 * (size_t)((y + sizes.top) * sizes.resized.width + sizes.left), 3 * (size_t)width);
        free(resized);
        j->references[i] = (sumi_pipeline_reference){.width = width, .height = height};
        j->reference_count++;
    }
    if (!good) case_fails(c, "%s", error.text);
    free(source);
    array_free(&picture);
    return good;
}

static bool make_references(golden_case* c, pipe_job* j)
{
    const node* list = json_get(c->json, "references");
    for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
        if (n->type != NODE_TEXT) return false;
        if (strcmp(n->text, "image") != 0 && !make_reference(c, j, n->text)) return false;
    }
    const node* given = json_get(c->json, "size_given");
    if (!c->by_op && given != NULL && given->number == 0 && j->reference_count > 0) {
        const bool same = j->references[0].width == j->width && j->references[0].height == j->height;
        report(c, "the size of the first reference", !same, 0, same);
    }
    return true;
}

static bool tokenise(golden_case* c, pipe_job* j, const char* text)
{
    sumi_error error = {0};
    const int32_t p = j->prompt_count;
    if (read_prompt(j->network, 0, &(sumi_prompt_text){.text = text, .bytes = strlen(text)},
                    &(sumi_prompt_ids){j->ids[p], PROMPT_ROWS, NULL}, &j->id_counts[p], &error)
        != SUMI_OK) {
        case_fails(c, "%s", error.text);
        return false;
    }
    j->prompt_count++;
    return true;
}

static bool make_schedule(golden_case* c, pipe_job* j)
{
    const sumi_network_info* info = sumi_network_get_info(j->network);
    const int32_t all = (int32_t)json_number(c->json, "steps", 0), multiple = info->size_multiple;
    if (all < 1 || all > SUMI_SCHEDULE_MAX_STEPS) {
        case_fails(c, "the case lacks steps");
        return false;
    }
    float* sigmas = calloc((size_t)all + 1, sizeof *sigmas);
    sumi_error error = {0};
    if (sumi_schedule_write(&info->sigmas, j->width / multiple * (j->height / multiple), all, sigmas, &error)
        != SUMI_OK)
        case_fails(c, "%s", error.text);
    const int32_t first =
        j->start.rgb != NULL ? sumi_schedule_first_index(all, (float)json_number(c->json, "strength", 1)) : 0;
    j->steps = all - first;
    j->sigmas = calloc((size_t)j->steps + 1, sizeof *j->sigmas);
    j->rows = calloc((size_t)j->steps + 1, sizeof *j->rows);
    j->times = calloc((size_t)j->steps + 1, sizeof *j->times);
    j->guided = calloc((size_t)j->steps + 1, sizeof *j->guided);
    memcpy(j->sigmas, sigmas + first, ((size_t)j->steps + 1) * sizeof *sigmas);
    free(sigmas);
    sumi_solver_rows(SUMI_SOLVER_EULER, j->sigmas, j->steps, j->rows);
    for (int32_t s = 0; s < j->steps; s++) {
        j->guided[s] = j->prompt_count == 2;
        j->rows[s].guidance = // of the op, which begins at 0
            j->guided[s] ? (float)json_number(c->json, "guidance", 1) - info->guidance_off : 0.0f;
    }
    return c->g->case_failed == 0;
}

// ---- Running --------------------------------------------------------------------------------------------------------

static void write_bytes(plan_run* run, sumi_value value, const uint8_t* bytes, int64_t count)
{
    sumi_runner* runner = run->c->g->runner;
    runner->functions->write(runner, run->plan, value, 0, bytes, (uint64_t)count);
}

static void write_pipe(plan_run* run)
{
    const pipe_job* j = run->context;
    sumi_runner* runner = run->c->g->runner;
    const sumi_pipeline* p = run->pipeline;
    for (int32_t i = 0; i < j->prompt_count; i++) {
        const sumi_pipeline_rows* rows = &p->ids[i][0];
        runner->functions->write(runner, run->plan, rows->value, 4 * (uint64_t)rows->row, j->ids[i],
                                 4 * (uint64_t)rows->count);
    }
    for (int32_t i = 0; i < j->reference_count; i++)
        write_bytes(run, p->reference_pixels[i], j->reference_rgb[i],
                    3 * (int64_t)j->references[i].width * j->references[i].height);
    write_floats(run, p->times, 0, j->times, j->steps);
    write_floats(run, p->solver, 0, (const float*)(const void*)j->rows, j->steps * 12);
    write_floats(run, p->noise.id != 0 ? p->noise : p->x, 0, j->noise.values, j->noise.count);
    if (p->mask.id != 0) write_floats(run, p->mask, 0, j->start.mask.values, j->start.mask.count);
    if (p->pixels.id != 0) write_bytes(run, p->pixels, j->start.rgb, 3 * (int64_t)j->width * j->height);
}

// Puts the values of `more` after those of `list`, and frees them.
static void append(array* list, array more)
{
    list->values = realloc(list->values, (size_t)(list->count + more.count + 1) * sizeof *list->values);
    memcpy(list->values + list->count, more.values, (size_t)more.count * sizeof *more.values);
    list->count += more.count;
    list->rank = 1;
    list->shape[0] = list->count;
    array_free(&more);
}

static void probe_pipe(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    pipe_job* j = run->context;
    const sumi_pipeline* p = run->pipeline;
    if (before) return;
    if (op->kind == SUMI_OP_ADD_NOISE) {
        j->start_latents = read_array(run, op->out);
        j->clean = read_array(run, p->clean);
    }
    if (op->kind == SUMI_OP_UNPATCHIFY && counter == 0) { // of the prompts, one after another
        array_free(&j->velocities);
        j->velocities = read_array(run, op->out);
    }
    if (op->kind == SUMI_OP_GUIDE && counter == 0) {
        array_free(&j->prediction);
        j->prediction = read_array(run, op->out);
    }
    if (op->kind == SUMI_OP_PREVIEW) append(&j->previews, read_array(run, op->out));
    if (op->kind == SUMI_OP_SOLVE) append(&j->latents, read_array(run, op->out));
    if (op->kind == SUMI_OP_POSTERIOR && strcmp(sumi_plan_info(run->plan, op->out)->name, "reference_latents") == 0
        && j->reference_latent_count < SUMI_MAX_REFERENCE_LATENTS)
        j->reference_latents[j->reference_latent_count++] = read_array(run, op->out);
}

static void compare_velocities(golden_case* c, const char* kind, const pipe_job* j)
{
    const int64_t size = j->noise.count;
    if (j->velocities.count != size * j->prompt_count) return;
    array one = array_make(j->velocities.values, 3, j->noise.shape);
    compare_with(c, kind, j->prompt_count == 2 ? "positive_first" : "prediction_first", &one);
    array_free(&one);
    if (j->prompt_count < 2) return;
    one = array_make(j->velocities.values + size, 3, j->noise.shape);
    compare_with(c, kind, "negative_first", &one);
    array_free(&one);
    compare_with(c, kind, "prediction_first", &j->prediction);
}

static void compare_previews(golden_case* c, const char* kind, const pipe_job* j)
{
    compare_with(c, kind, "preview_rgb", &j->previews);
    const int64_t pixels = j->previews.count / (3 * j->steps);
    if (!has_tensor(c, kind, "preview_u8") || j->previews.count == 0) return;
    array bytes = array_make(NULL, 1, (const int64_t[]){j->previews.count});
    for (int64_t s = 0; s < j->steps; s++)
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t k = 0; k < 3; k++) {
                const float value = j->previews.values[(s * 3 + k) * pixels + p] * 0.5f + 0.5f;
                bytes.values[(s * pixels + p) * 3 + k] = rintf(255.0f * fminf(fmaxf(value, 0.0f), 1.0f));
            }
    compare_with(c, kind, "preview_u8", &bytes);
    array_free(&bytes);
}

static void compare_pipe(golden_case* c, const char* kind, const pipe_job* j, plan_run* run)
{
    const sumi_pipeline* p = run->pipeline;
    compare_velocities(c, kind, j);
    compare_with(c, kind, "clean", &j->clean);
    compare_with(c, kind, "start", &j->start_latents);
    for (int32_t i = 0; i < j->reference_latent_count; i++) {
        char name[40];
        snprintf(name, sizeof name, "reference_latent.%d", (int)i);
        compare_with(c, kind, name, &j->reference_latents[i]);
    }
    compare_with(c, kind, "latents", &j->latents);
    compare_previews(c, kind, j);
    array image = read_planes(run, p->picture, j->height, j->width), bytes = read_array(run, p->bytes),
          bad = read_array(run, p->not_finite);
    int32_t count;
    memcpy(&count, bad.values, sizeof count);
    if (count != 0) case_fails(c, "%d values of the picture are not finite", (int)count);
    compare_with(c, kind, "image", &image);
    compare_with(c, kind, "image_u8", &bytes);
    array_free(&image);
    array_free(&bytes);
    array_free(&bad);
}

// One run, whose results are those of KIND; rounds: the times as the library's recipe has them.
static void run_pipe(golden_case* c, pipe_job* j, const char* kind, bool rounds)
{
    const sumi_pipeline_prompt prompts[2] = {{.token_count = {j->id_counts[0]}}, {.token_count = {j->id_counts[1]}}};
    const sumi_pipeline_item item = {0, j->prompt_count == 2 ? 1 : -1};
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                           .prompts = prompts,
                                           .prompt_count = j->prompt_count,
                                           .items = &item,
                                           .item_count = 1,
                                           .references = j->reference_count > 0 ? j->references : NULL,
                                           .reference_count = j->reference_count,
                                           .width = j->width,
                                           .height = j->height,
                                           .evaluation_count = j->steps,
                                           .guided = j->guided,
                                           .starts_from_image = j->start.rgb != NULL,
                                           .start_is_reference = j->start.rgb != NULL,
                                           .inpaints = j->start.mask.values != NULL,
                                           .previews = j->network->info.preview != NULL};
    for (int32_t s = 0; s < j->steps; s++)
        j->times[s] = rounds ? sumi_network_time(j->network, j->rows[s].sigma) : 1000.0f * j->rows[s].sigma;
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

// The rows of features that the case has stored.
static void write_ids(plan_run* run)
{
    const pipe_job* j = run->context;
    golden* g = run->c->g;
    const sumi_pipeline_rows* rows = &run->pipeline->ids[0][0];
    g->runner->functions->write(g->runner, run->plan, rows->value, 4 * (uint64_t)rows->row, j->ids[0],
                                4 * (uint64_t)rows->count);
}

static void compare_text_rows(golden_case* c, pipe_job* j)
{
    const node* rows = json_get(c->json, "rows");
    if (rows == NULL || !has_expected(c, "text_rows")) return;
    const sumi_pipeline_prompt prompt = {.token_count = {j->id_counts[0]}};
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_PROMPTS, .prompts = &prompt, .prompt_count = 1};
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_ids, .context = j};
    if (sumi_pipeline_write(j->network, &request, &plan, &pipeline, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        array all = read_array(&run, pipeline.features[0][0].value);
        const int64_t width = all.shape[1];
        array some = array_make(NULL, 2, (const int64_t[]){rows->count, width});
        int64_t to = 0;
        for (const node* n = rows->first; n != NULL; n = n->next, to++) {
            const int64_t from = (int64_t)n->number;
            if (from < all.shape[0])
                memcpy(some.values + to * width, all.values + from * width, (size_t)width * sizeof(float));
            else case_fails(c, "the features have %lld rows", (long long)all.shape[0]);
        }
        compare(c, "text_rows", &some);
        array_free(&all);
        array_free(&some);
    }
    end_plan(c, &plan);
}

// The case's checkpoint, as the variant that it names: only model_index.json differs between them.
static sumi_network* variant_network(golden_case* c)
{
    const char *model = json_text(c->json, "model"), *variant = json_text(c->json, "variant");
    char path[2048], key[sizeof c->g->network_key];
    if (model == NULL) {
        case_fails(c, "the case names no model");
        return NULL;
    }
    join_path(path, sizeof path, c->folder, model);
    snprintf(key, sizeof key, "%.2000s|%.100s", path, variant != NULL ? variant : "");
    return open_network(c, key, NULL, &(sumi_network_desc){.path = path, .variant = variant});
}

bool run_flux_pipeline_case(golden_case* c)
{
    if (strcmp(c->kind, "pipeline") != 0) return false;
    const char *prompt = json_text(c->json, "prompt"), *mode = json_text(c->json, "mode");
    pipe_job* j = calloc(1, sizeof *j);
    j->network = variant_network(c);
    j->width = (int32_t)json_number(c->json, "width", 0);
    j->height = (int32_t)json_number(c->json, "height", 0);
    j->noise = input(c, "noise");
    const bool guides = json_number(c->json, "guidance", 1) > 1,
               inpaints = mode != NULL && strcmp(mode, "inpaint") == 0;
    if (j->network != NULL && prompt != NULL && j->noise.rank == 3 && make_references(c, j)
        && (!inpaints || make_inpaint_inputs(c, j->network, &j->start)) && tokenise(c, j, prompt)
        && (!guides || tokenise(c, j, "")) && make_schedule(c, j)) {
        compare_text_rows(c, j);
        run_pipe(c, j, "expect", false);
        run_pipe(c, j, "expect_tb", true);
    } else if (c->g->case_failed == 0) case_fails(c, "the case lacks a model, a prompt or noise");
    free_pipe(j);
    free(j);
    return true;
}
