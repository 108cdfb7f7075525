// Z-Image's pictures in, and whole pipelines: every step's latents, previews, pixels.
#include "at_once.h"
#include "golden_z_image.h"
#include "models/network_state.h"
#include "pictures/pixels.h"
#include "sampling/schedule.h"
#include <stdlib.h>
#include <string.h>

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
            if (sumi_pixels_to_mask(&c->g->heap, &pixels, width, height, made, &error) != SUMI_OK)
                case_fails(c, "%s", error.text);
            sumi_mask_to_latents(made, width, height,
                                 &(sumi_latent_mask){small, width / factor, height / factor, SUMI_MASK_NEAREST});
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
    j->rows = calloc((size_t)(j->steps * sumi_solver_max_rows(solver)) + 1, sizeof *j->rows);
    j->evaluations = sumi_solver_rows(solver, j->sigmas, j->steps, j->rows);
    j->times = calloc((size_t)j->evaluations + 1, sizeof *j->times);
    j->guided = calloc((size_t)j->evaluations + 1, sizeof *j->guided);
    for (int32_t e = 0; e < j->evaluations; e++) {
        j->times[e] = sumi_network_time(j->network, j->rows[e].sigma);
        j->guided[e] = scale > 0 && !(truncation <= 1.0 && j->times[e] > (float)truncation);
        j->rows[e].guidance = j->guided[e] ? (float)scale : 0.0f;
    }
}

static void compare_features(golden_case* c, const job* j)
{
    if (has_expected(c, "cap_feats")) {
        array features = encode_text(c, j->network, j->positive.ids, j->positive.count, NULL);
        compare(c, "cap_feats", &features);
        array_free(&features);
    }
    if (has_expected(c, "neg_feats")) {
        array features = encode_text(c, j->network, j->negative.ids, j->negative.count, NULL);
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
                        pixel_from_unit(j->previews.values[(s * 3 + k) * pixels + i]);
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
    if (sumi_pixels_to_mask(&c->g->heap, &pixels, width, height, full, &error) != SUMI_OK)
        case_fails(c, "%s", error.text);
    sumi_mask_to_latents(full, width, height,
                         &(sumi_latent_mask){j->latent_mask, width / factor, height / factor, SUMI_MASK_NEAREST});
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
             && tokenise_text(c, network, prompt->text, prompt->text_bytes, &j.positive);
    bool has_text = negative != NULL && negative->type == NODE_TEXT;
    good = good
        && tokenise_text(c, network, has_text ? negative->text : "", has_text ? negative->text_bytes : 0, &j.negative)
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

bool run_z_image_pipeline_case(golden_case* c)
{
    if (strcmp(c->kind, "preprocess") == 0) run_preprocess(c);
    else if (strcmp(c->kind, "pipeline") == 0) run_pipeline(c);
    else return false;
    return true;
}
