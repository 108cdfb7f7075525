// Pictures and masks that become what a control net reads, and whole pipelines with a net, for all families that have
// nets.
#include "golden_control.h"
#include "golden_qwen_image.h"
#include "models/network_state.h"
#include "pictures/pixels.h"
#include "sampling/schedule.h"
#include <stdlib.h>
#include <string.h>

// The pictures of a net, as a job has them.
typedef struct net_pictures {
    bool has_picture, has_mask, samples;
    uint8_t *rgb, *masked;
    float* kept;
} net_pictures;

typedef struct control_job {
    sumi_network* network;
    int32_t width, height, steps;
    sumi_solver_row* rows;
    float* times;
    bool* guided;
    uint8_t* active;
    case_prompt prompts[2];
    int32_t prompt_count; // 2: guided
    array noise, eps;
    case_controls controls;
    int32_t first_control, control_count; // those of `controls` that are used
    net_pictures pictures;                // of the first one
    array latents, velocities, planes;    // taken while it runs
} control_job;

// ---- Pictures -------------------------------------------------------------------------------------------------------

// A picture tensor [h, w] or [h, w, c] as the library takes it; `bytes` is to be freed.
static sumi_pixels pixels_of(const array* a, uint8_t** bytes)
{
    *bytes = calloc((size_t)a->count + 1, 1);
    for (int64_t i = 0; i < a->count; i++) (*bytes)[i] = (uint8_t)a->values[i];
    const int32_t channels = a->rank == 3 ? (int32_t)a->shape[2] : 1;
    return (sumi_pixels){.data = *bytes,
                         .width = (int32_t)a->shape[1],
                         .height = (int32_t)a->shape[0],
                         .row_bytes = (int32_t)a->shape[1] * channels,
                         .channel_count = channels};
}

static bool to_rgb(golden_case* c, const control_job* j, const char* name, uint8_t* rgb)
{
    array picture = input(c, name);
    uint8_t* bytes = NULL;
    sumi_error error = {0};
    const sumi_pixels pixels = picture.values != NULL ? pixels_of(&picture, &bytes) : (sumi_pixels){0};
    const bool good =
        picture.values != NULL && sumi_pixels_to_rgb(&c->g->heap, &pixels, j->width, j->height, rgb, &error) == SUMI_OK;
    if (!good) case_fails(c, "input.%s: %s", name, picture.values != NULL ? error.text : "there is none");
    free(bytes);
    array_free(&picture);
    return good;
}

static void free_net_pictures(net_pictures* p)
{
    free(p->rgb);
    free(p->masked);
    free(p->kept);
    *p = (net_pictures){.has_picture = false};
}

// inpaints: as far as the net can. The picture to repaint is the control picture of nets that read nothing else.
static bool make_net_pictures(golden_case* c, control_job* j, bool inpaints, bool samples)
{
    const sumi_control_net_info* info = sumi_control_net_get_info(j->controls.nets[j->first_control]);
    const bool reads_masked_only = info->planes == SUMI_PLANES_MASKED_MASK;
    const size_t pixels = (size_t)j->width * (size_t)j->height;
    const int32_t factor = j->network->info.vae_factor, width = j->width / factor, height = j->height / factor;
    net_pictures* p = &j->pictures;
    free_net_pictures(p);
    p->has_picture = !reads_masked_only;
    p->has_mask = reads_masked_only || (inpaints && info->planes != SUMI_PLANES_PICTURE);
    p->samples = samples;
    p->rgb = calloc(3 * pixels + 1, 1);
    p->masked = calloc(4 * pixels + 1, 1);
    p->kept = calloc((size_t)width * (size_t)height + 1, sizeof *p->kept);
    uint8_t *repainted = calloc(3 * pixels + 1, 1), *greys = calloc(pixels + 1, 1), *bytes = NULL;
    bool good = !p->has_picture || to_rgb(c, j, "picture", p->rgb);
    if (good && p->has_mask) {
        array mask = input(c, "mask");
        sumi_error error = {0};
        const sumi_control_mask to = {greys, j->width, j->height};
        const sumi_pixels from = mask.values != NULL ? pixels_of(&mask, &bytes) : (sumi_pixels){0};
        good = mask.values != NULL && to_rgb(c, j, reads_masked_only ? "picture" : "inpaint", repainted)
            && sumi_pixels_to_control_mask(&c->g->heap, &from, info->has_binary_mask, &to, &error) == SUMI_OK;
        if (!good) case_fails(c, "input.mask: %s", mask.values != NULL ? error.text : "there is none");
        if (good) sumi_control_mask_out(&to, info->masks_with_black, repainted, p->masked);
        if (good) sumi_control_mask_to_latents(&to, width, height, p->kept);
        array_free(&mask);
    }
    free(repainted);
    free(greys);
    free(bytes);
    return good;
}

// ---- Running --------------------------------------------------------------------------------------------------------

static void write_job(plan_run* run)
{
    const control_job* j = run->context;
    const sumi_pipeline* p = run->pipeline;
    sumi_runner* runner = run->c->g->runner;
    const uint64_t pixels = (uint64_t)j->width * (uint64_t)j->height;
    write_prompt_ids(run, j->prompts, j->prompt_count);
    write_floats(run, p->times, 0, j->times, j->steps);
    write_floats(run, p->solver, 0, (const float*)(const void*)j->rows, j->steps * 12);
    write_floats(run, p->x, 0, j->noise.values, j->noise.count);
    case_controls used = {.count = j->control_count};
    memcpy(used.strengths, j->controls.strengths + j->first_control, sizeof(float) * (size_t)used.count);
    write_strengths(run, &used, p->strengths, p->strength_width);
    for (int32_t k = 0; k < j->control_count; k++) {
        if (p->control_pixels[k][0].id != 0)
            runner->functions->write(runner, run->plan, p->control_pixels[k][0], 0, j->pictures.rgb, 3 * pixels);
        if (p->masked_pixels[k][0].id != 0) {
            runner->functions->write(runner, run->plan, p->masked_pixels[k][0], 0, j->pictures.masked, 4 * pixels);
            write_floats(run, p->control_mask[k][0], 0, j->pictures.kept,
                         sumi_plan_info(run->plan, p->control_mask[k][0])->cols);
        }
        if (p->control_eps[k][0].id != 0) write_floats(run, p->control_eps[k][0], 0, j->eps.values, j->eps.count);
    }
}

// Latents or control planes as the case has them.
static array as_case_has(const golden_case* c, const sumi_pipeline* p, const array* planes, int64_t channels)
{
    return is_packed(c) ? pack_planes(planes->values, channels, p->latent_height, p->latent_width)
                        : array_make(planes->values, 3, (const int64_t[]){channels, p->latent_height, p->latent_width});
}

// Appends to a growing [n, ...] array, and frees what was appended.
static void append_step(array* list, array more)
{
    list->values = realloc(list->values, (size_t)(list->count + more.count + 1) * sizeof *list->values);
    memcpy(list->values + list->count, more.values, (size_t)more.count * sizeof *more.values);
    list->count += more.count;
    list->rank = more.rank + 1;
    list->shape[0]++;
    for (int32_t i = 0; i < more.rank; i++) list->shape[i + 1] = more.shape[i];
    array_free(&more);
}

static void probe_job(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    control_job* j = run->context;
    const sumi_pipeline* p = run->pipeline;
    if (before) return;
    // written by several ops, the last of which leaves it complete
    if (op->out.id == p->control_planes[0].id) {
        array_free(&j->planes);
        j->planes = read_array(run, op->out);
    }
    if (op->kind == SUMI_OP_UNPATCHIFY && counter == 0) {
        array_free(&j->velocities);
        j->velocities = read_array(run, op->out);
    }
    if (op->kind == SUMI_OP_SOLVE) {
        array x = read_array(run, op->out);
        append_step(&j->latents, as_case_has(run->c, p, &x, j->network->info.latent_channels));
        array_free(&x);
    }
}

static void free_taken(control_job* j)
{
    array* taken[] = {&j->latents, &j->velocities, &j->planes};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) array_free(taken[i]);
}

static void compare_planes(golden_case* c, const control_job* j, const sumi_pipeline* p, const char* kind,
                           const char* name)
{
    if (!c->by_op || j->planes.values == NULL) return;
    array planes = as_case_has(c, p, &j->planes, j->planes.shape[0]);
    compare_with(c, kind, name, &planes);
    array_free(&planes);
}

static void compare_job(golden_case* c, const control_job* j, plan_run* run, const char* kind)
{
    const sumi_pipeline* p = run->pipeline;
    compare_planes(c, j, p, kind, "control");
    compare_with(c, kind, "latents", &j->latents);
    if (j->velocities.values != NULL) {
        array first = as_case_has(c, p, &j->velocities, j->network->info.latent_channels);
        compare_with(c, kind, "v_cond.0", &first);
        array_free(&first);
    }
    array bytes = read_array(run, p->bytes);
    compare_with(c, kind, "image_u8", &bytes);
    array_free(&bytes);
}

// One run, whose results are those of KIND. only_planes: of a single step, and the tensor is KIND.only_planes.
static void run_job(golden_case* c, control_job* j, const char* kind, const char* only_planes)
{
    const sumi_pipeline_prompt prompts[2] = {{.token_count = {j->prompts[0].count}},
                                             {.token_count = {j->prompts[1].count}}};
    const sumi_pipeline_item item = {0, j->prompt_count == 2 ? 1 : -1};
    sumi_pipeline_control controls[MAX_CASE_CONTROLS];
    for (int32_t k = 0; k < j->control_count; k++) {
        controls[k] = (sumi_pipeline_control){.net = j->controls.nets[j->first_control + k],
                                              .picture_count = 1,
                                              .has_picture = j->pictures.has_picture,
                                              .has_mask = j->pictures.has_mask,
                                              .samples_posterior = j->pictures.samples};
    }
    const sumi_pipeline_request request = {.goal = SUMI_GOAL_IMAGES,
                                           .prompts = prompts,
                                           .prompt_count = j->prompt_count,
                                           .items = &item,
                                           .item_count = 1,
                                           .width = j->width,
                                           .height = j->height,
                                           .evaluation_count = j->steps,
                                           .guided = j->guided,
                                           .controls = controls,
                                           .control_count = j->control_count,
                                           .active_controls = j->active};
    sumi_plan plan;
    sumi_pipeline pipeline;
    sumi_error error = {0};
    free_taken(j);
    begin_plan(c, &plan);
    plan_run run = {.c = c, .pipeline = &pipeline, .write = write_job, .probe = probe_job, .context = j};
    if (sumi_pipeline_write(j->network, &request, &plan, &pipeline, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (!run_plan(&run, &plan)) case_fails(c, "the plan did not run");
    else if (only_planes != NULL) compare_planes(c, j, &pipeline, kind, only_planes);
    else compare_job(c, j, &run, kind);
    end_plan(c, &plan);
}

// ---- Cases ----------------------------------------------------------------------------------------------------------

static void free_job(golden_case* c, control_job* j)
{
    free_taken(j);
    free_net_pictures(&j->pictures);
    array_free(&j->noise);
    array_free(&j->eps);
    free(j->prompts[0].ids);
    free(j->prompts[1].ids);
    free(j->rows);
    free(j->times);
    free(j->guided);
    free(j->active);
    close_controls(c, &j->controls);
}

// Sigmas, solver rows, guidance, and the steps in which each net adds its hints.
static bool make_schedule(golden_case* c, control_job* j)
{
    const sumi_network_info* info = &j->network->info;
    const char* scheduler = json_text(c->json, "scheduler");
    const double scale = json_number(c->json, "guidance", 0);
    char path[600];
    float sigmas[SUMI_SCHEDULE_MAX_STEPS + 1];
    sumi_sigma_rule rule = info->sigmas;
    sumi_error error = {0};
    snprintf(path, sizeof path, "%.500s/scheduler_config.json", scheduler != NULL ? scheduler : "");
    if (scheduler != NULL && !read_case_rule(c, path, &rule)) return false;
    j->steps = (int32_t)json_number(c->json, "steps", 1);
    const int32_t multiple = info->size_multiple;
    if (j->steps < 1 || j->steps > SUMI_SCHEDULE_MAX_STEPS
        || sumi_schedule_write(&rule, j->width / multiple * (j->height / multiple), j->steps, sigmas, &error)
               != SUMI_OK) {
        case_fails(c, "%d steps: %s", (int)j->steps, error.text);
        return false;
    }
    j->rows = calloc((size_t)j->steps + 1, sizeof *j->rows);
    j->times = calloc((size_t)j->steps + 1, sizeof *j->times);
    j->guided = calloc((size_t)j->steps + 1, sizeof *j->guided);
    j->active = calloc((size_t)j->steps + 1, sizeof *j->active);
    sumi_solver_rows(SUMI_SOLVER_EULER, sigmas, j->steps, j->rows);
    for (int32_t s = 0; s < j->steps; s++) {
        j->guided[s] = j->prompt_count == 2;
        j->rows[s].guidance = j->guided[s] ? (float)scale - info->guidance_off : 0.0f; // of the op, which begins at 0
    }
    for (int32_t k = 0; k < j->controls.count; k++) {
        const node* active = json_get(j->controls.nodes[k], "active");
        int32_t s = 0;
        for (const node* n = active != NULL ? active->first : NULL; n != NULL && s < j->steps; n = n->next, s++)
            j->active[s] |= (uint8_t)((n->number != 0) << k);
        if (active == NULL) memset(j->active, 0xff, (size_t)j->steps);
    }
    return true;
}

// rounds: the times as the library's recipe has them.
static void make_times(control_job* j, bool rounds)
{
    for (int32_t s = 0; s < j->steps; s++)
        j->times[s] = rounds ? sumi_network_time(j->network, j->rows[s].sigma) : j->rows[s].sigma;
}

static bool begin_job(golden_case* c, control_job* j, const node* prompt)
{
    const node* negative = json_get(c->json, "negative_prompt");
    j->network = case_network(c, c->json);
    j->width = (int32_t)json_number(c->json, "width", 0);
    j->height = (int32_t)json_number(c->json, "height", 0);
    if (j->network == NULL) return false;
    const bool guides = negative != NULL && negative->type == NODE_TEXT
                     && json_number(c->json, "guidance", 0) > (double)j->network->info.guidance_off;
    j->prompt_count = guides ? 2 : 1;
    j->noise = input(c, "noise");
    j->eps = input(c, "eps");
    if (j->noise.values == NULL) {
        const int32_t factor = j->network->info.vae_factor;
        j->noise = array_make(
            NULL, 3, (const int64_t[]){j->network->info.latent_channels, j->height / factor, j->width / factor});
    }
    if (prompt == NULL || j->width < 1 || j->height < 1) {
        case_fails(c, "the case lacks a prompt or a size");
        return false;
    }
    return tokenise_prompt(c, j->network, prompt, NULL, &j->prompts[0])
        && (!guides || tokenise_prompt(c, j->network, negative, NULL, &j->prompts[1]))
        && open_controls(c, j->network, &j->controls) && make_schedule(c, j);
}

static bool samples(const control_job* j, int32_t control)
{
    return j->eps.values != NULL
        && strcmp(sumi_control_net_get_info(j->controls.nets[control])->kind, "qwen-instantx") == 0;
}

// The planes that each net reads. Nets that read a masked picture beside the control picture have one in a run of its
// own.
void run_control_input(golden_case* c)
{
    char message[SUMI_ERROR_TEXT_BYTES];
    node* prompt = json_parse("\"a\"", 3, message, sizeof message);
    control_job j = {.control_count = 1};
    if (begin_job(c, &j, prompt)) {
        make_times(&j, true);
        for (j.first_control = 0; j.first_control < j.controls.count; j.first_control++) {
            const char* name = json_text(j.controls.nodes[j.first_control], "name");
            const bool draws = samples(&j, j.first_control);
            const char* plain = name != NULL ? name : "plain";
            memset(j.active, 0, (size_t)j.steps);
            if (make_net_pictures(c, &j, false, draws)) run_job(c, &j, "expect", plain);
            if (has_tensor(c, "expect_mode", plain) && make_net_pictures(c, &j, false, false))
                run_job(c, &j, "expect_mode", plain);
            if (name == NULL && make_net_pictures(c, &j, true, draws)) run_job(c, &j, "expect", "inpaint");
        }
        leave_out(c, "expect_grey.plain", "the planes of what is not given are zero, as the nets were trained");
    }
    json_free(prompt);
    free_job(c, &j);
}

void run_control_pipeline(golden_case* c)
{
    control_job j = {.control_count = 0};
    if (begin_job(c, &j, json_get(c->json, "prompt"))) {
        array inpaint = input(c, "inpaint");
        j.control_count = j.controls.count < SUMI_MAX_CONTROLS ? j.controls.count : SUMI_MAX_CONTROLS;
        // The reference of Qwen-Image in float32 tells the network sigma itself.
        make_times(&j, !is_packed(c));
        if (make_net_pictures(c, &j, inpaint.values != NULL, samples(&j, 0))) run_job(c, &j, "expect", NULL);
        if (is_packed(c)) {
            make_times(&j, true);
            run_job(c, &j, "expect_tb", NULL);
        }
        leave_out(c, "expect_diffusers.latents_final",
                  "diffusers keeps the refiner's hints from the denoiser; the nets were trained by the authors' rule");
        array_free(&inpaint);
    }
    free_job(c, &j);
}
