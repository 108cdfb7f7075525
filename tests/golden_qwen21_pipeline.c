// Qwen-Image-2.1 from noise to picture, with what each step leaves: text to image, guidance, the listed steps of Turbo,
// edits with references, image to image; and schedules.
//
// The reference in float32 tells the network sigma itself ("expect"). The released pipeline rounds it to bfloat16,
// twice, and so does this library ("expect_tb"). A plan takes times as they are, so a case is run with both. With
// guidance the first of these runs computes the rows up to the last reference once, the second one for each prompt.
#include "at_once.h"
#include "golden_pictures.h"
#include "golden_qwen_image_21.h"
#include "golden_qwen_pipe.h"
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

// [channels, height * width] -> [tokens, channels].
static array transposed(const float* latents, int64_t channels, int64_t height, int64_t width)
{
    const int64_t tokens = height * width;
    array out = array_make(NULL, 2, (const int64_t[]){tokens, channels});
    for (int64_t k = 0; k < channels; k++)
        for (int64_t t = 0; t < tokens; t++) out.values[t * channels + k] = latents[k * tokens + t];
    return out;
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

// ---- A case ---------------------------------------------------------------------------------------------------------

// The preview of the last step is the factors' sum over its estimate of the clean latents, which at sigma 0 is the
// latent itself.
static void compare_preview(golden_case* c, const char* kind, const pipe_job* j, plan_run* run)
{
    (void)kind, (void)run;
    const sumi_preview_factors* factors = j->network->info.preview;
    if (c->g->is_gpu || j->previews.values == NULL) return;
    array last = step_of(j, j->steps - 1);
    const int64_t tokens = last.shape[0], channels = last.shape[1];
    double difference = 0, sum = 0;
    for (int64_t t = 0; t < tokens; t++) {
        for (int k = 0; k < 3; k++) {
            double want = (double)factors->bias[k];
            for (int64_t ch = 0; ch < channels; ch++)
                want += (double)factors->factors[ch][k] * (double)last.values[t * channels + ch];
            const double d = (double)j->previews.values[j->previews.count - (3 - k) * tokens + t] - want;
            difference += d * d;
            sum += want * want;
        }
    }
    const double error = sqrt(difference / sum);
    report(c, "the last preview", error, 1e-5, error <= 1e-5);
    array_free(&last);
}

static void run_pipeline(golden_case* c)
{
    const node* negative = json_get(c->json, "negative_prompt");
    const bool guides = negative != NULL && json_number(c->json, "true_cfg_scale", 1) > 1;
    pipe_job* j = calloc(1, sizeof *j);
    j->tokens = transposed;
    j->network = layered_network(c, json_text(c->json, "overlay") != NULL ? "turbo" : "t2i");
    j->width = (int32_t)json_number(c->json, "width", 0);
    j->height = (int32_t)json_number(c->json, "height", 0);
    j->noise = input(c, "noise");
    j->prompt_count = guides ? 2 : 1;
    if (j->network != NULL && j->noise.values != NULL && make_pictures_of(c, j)
        && tokenise_prompt(c, j->network, json_get(c->json, "prompt"), &j->pictures, &j->prompts[0])
        && (!guides || tokenise_prompt(c, j->network, negative, &j->pictures, &j->prompts[1]))
        && make_pipe_schedule(c, j, &j->network->info.sigmas, sumi_sigma_rule_steps(&j->network->info.sigmas))) {
        encode_job encode = {.prompts = j->prompts,
                             .prompt_count = j->prompt_count,
                             .pictures = j->pictures.count > 0 ? &j->pictures : NULL};
        compare_embed_tails(c, j->network, &encode);
        run_pipe(c, j,
                 &(pipe_way){.kind = "expect", .shares = guides && j->pictures.count > 0, .compare = compare_preview});
        run_pipe(c, j, &(pipe_way){.kind = "expect_tb", .rounds = true, .compare = compare_preview});
    } else if (c->g->case_failed == 0) case_fails(c, "the case lacks a model, noise or a prompt");
    free_pipe(j);
    free(j);
}

bool run_qwen21_pipeline_case(golden_case* c)
{
    const bool is_schedule = strcmp(c->kind, "schedule") == 0 && json_get(c->json, "rows") == NULL,
               is_pipeline = strcmp(c->kind, "pipeline") == 0;
    if (is_schedule) run_schedule(c);
    if (is_pipeline) run_pipeline(c);
    return is_schedule || is_pipeline;
}
