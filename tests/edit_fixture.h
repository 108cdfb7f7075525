// A model that takes references, out of the tiny Z-Image checkpoint and parts of the tests' own: its recipe is changed
// once it is open. The parts compute nothing useful, but every pixel of a reference reaches the picture:
//
//   vision tower   the pixel in the upper left corner of each cell, as a row of features
//   text encoder   the checkpoint's, whose features of picture tokens are replaced by those rows
//   denoiser       the checkpoint's, on latents into which those of references of the picture's size are mixed
#ifndef EDIT_FIXTURE_H
#define EDIT_FIXTURE_H
#include "engine_fixture.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "models/language_model.h"
#include "models/network_state.h"
#include "models/next_dit.h"

#define EDIT_PICTURE_TOKEN 876 // <|image_pad|>
#define EDIT_WIDTH 96          // of the checkpoint's features

static sumi_vision_properties edit_vision_properties(const void* model)
{
    return *(const sumi_vision_properties*)model;
}

static sumi_vision_rows edit_vision_write(const void* model, sumi_plan* plan, sumi_value pixels, int32_t height,
                                          int32_t width)
{
    static float s_values[EDIT_WIDTH * 3];
    for (int i = 0; i < EDIT_WIDTH * 3; i++) s_values[i] = (float)(i * 29 % 17 - 8) * 0.05f;
    static const sumi_weight s_weight = {
        .name = "vision",
        .rows = EDIT_WIDTH,
        .cols = 3,
        .tensor_count = 1,
        .tensors = {{.data = s_values, .dtype = SUMI_DTYPE_F32, .rows = EDIT_WIDTH, .scale = 1.0f}}};
    const int32_t cell = ((const sumi_vision_properties*)model)->cell;
    sumi_value picture = sumi_plan_pixels_in(plan, pixels, width, (sumi_tile){0, 0, height, width}, 3);
    sumi_value all =
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "vision", .x = picture, .weight = &s_weight});
    sumi_value rows =
        sumi_plan_value(plan, "vision_rows", SUMI_ELEMENT_ACTIVATION, (height / cell) * (width / cell), EDIT_WIDTH);
    for (int32_t y = 0, at = 0; y < height / cell; y++) {
        for (int32_t x = 0; x < width / cell; x++, at++) {
            sumi_plan_copy_rows(plan,
                                &(sumi_plan_copy_args){
                                    .x = all, .x_row = y * cell * width + x * cell, .y = rows, .y_row = at, .rows = 1});
        }
    }
    return (sumi_vision_rows){.value = rows};
}

static sumi_value edit_text_write(const void* model, sumi_plan* plan, const sumi_text_batch* batch)
{
    sumi_text_batch plain = *batch;
    plain.picture_count = 0;
    sumi_value features = sumi_language_model_module.write(model, plan, &plain);
    for (int32_t i = 0; i < batch->picture_count; i++) {
        const sumi_text_picture* picture = &batch->pictures[i];
        sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = picture->value,
                                                         .x_row = picture->value_row,
                                                         .y = features,
                                                         .y_row = picture->row,
                                                         .rows = picture->grid_height * picture->grid_width});
    }
    return features;
}

static void edit_prepare(const void* model, sumi_plan* plan, sumi_denoising* job)
{
    const int32_t count = job->reference_count;
    job->reference_count = 0; // the checkpoint's own part refuses them
    sumi_next_dit_module.write_prepare(model, plan, job);
    job->reference_count = count;
}

static sumi_value edit_evaluation(const void* model, sumi_plan* plan, sumi_denoising* job,
                                  const sumi_evaluation_list* list, sumi_value latents)
{
    const int32_t rows = sumi_plan_info(plan, latents)->rows, cols = sumi_plan_info(plan, latents)->cols;
    for (int32_t i = 0; i < job->reference_count; i++) {
        const sumi_reference_latents* one = &job->references[i];
        const int32_t channels = sumi_plan_info(plan, one->latents)->rows;
        if (one->height != job->height || one->width != job->width) continue;
        sumi_value mixed = sumi_plan_value(plan, "mixed", SUMI_ELEMENT_FLOAT, rows, cols),
                   item = sumi_plan_value(plan, "mixed_item", SUMI_ELEMENT_FLOAT, channels, cols),
                   both = sumi_plan_value(plan, "mixed_both", SUMI_ELEMENT_FLOAT, channels, cols);
        for (int32_t row = 0; row < rows; row += channels) {
            sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = latents, .x_row = row, .y = item, .rows = channels});
            sumi_plan_add_noise(plan, item, one->latents, (sumi_step_row){job->times, 0, true}, both);
            sumi_plan_copy_rows(plan, &(sumi_plan_copy_args){.x = both, .y = mixed, .y_row = row, .rows = channels});
        }
        latents = mixed;
    }
    return sumi_next_dit_module.write_evaluation(model, plan, job, list, latents);
}

// How Edit-Plus does it, in small: pictures for the autoencoder and the vision tower of two areas, up to three of them
// or none, and the picture follows the last one.
static const sumi_reference_rule s_several = {.max_count = 3,
                                              .autoencoder_area = 32 * 32,
                                              .vision_area = 16 * 16,
                                              .multiple = 16,
                                              .max_ratio = 10,
                                              .size_follows_last = true};
// How Edit does it: one area for both, and at least one picture.
static const sumi_reference_rule s_needed = {.min_count = 1,
                                             .max_count = 2,
                                             .autoencoder_area = 32 * 32,
                                             .vision_area = 32 * 32,
                                             .multiple = 16,
                                             .max_ratio = 10};
static const sumi_vision_properties s_cells = {.width = EDIT_WIDTH, .cell = 5, .min_pixels = 50, .max_pixels = 2000};

// Plans are cached by the model: one rule for each engine.
static inline void make_edit_model(sumi_model* model, const sumi_reference_rule* rule,
                                   const sumi_vision_properties* properties)
{
    static sumi_recipe s_recipe;
    static sumi_vision_module s_vision;
    static sumi_text_encoder_module s_text;
    static sumi_denoiser_module s_denoiser;
    sumi_network* network = model->network;
    s_recipe = sumi_recipe_z_image;
    s_vision = (sumi_vision_module){.properties = edit_vision_properties, .write = edit_vision_write};
    s_text = sumi_language_model_module;
    s_text.write = edit_text_write;
    s_denoiser = sumi_next_dit_module;
    s_denoiser.write_prepare = edit_prepare;
    s_denoiser.write_evaluation = edit_evaluation;
    s_recipe.vision = &s_vision;
    s_recipe.denoiser = &s_denoiser;
    s_recipe.encoders[0].module = &s_text;
    s_recipe.encoders[0].prompt.picture = "Picture #: <|vision_start|><|image_pad|><|vision_end|>";
    s_recipe.encoders[0].prompt.picture_token = "<|image_pad|>";
    s_recipe.references = *rule;
    network->recipe = &s_recipe;
    if (properties != NULL) {                                            // else as if no vision tower had been opened
        network->vision = sumi_alloc(network->heap, sizeof *properties); // freed with the network
        memcpy(network->vision, properties, sizeof *properties);
    }
    network->info.has_vision = properties != NULL;
    network->info.prompts_read_references = true;
    network->info.min_references = rule->min_count;
    network->info.max_references = rule->max_count;
    network->info.size_follows_last_reference = rule->size_follows_last;
    model->info = network->info;
}

// Photographs of odd sizes: one with alpha and room between its rows, one grey, one in RGB.
static inline const sumi_pixels* edit_pictures(void)
{
    static uint8_t s_data[3][64 * 64 * 4];
    static sumi_pixels s_pictures[3];
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < sizeof s_data[k]; i++)
            s_data[k][i] = (uint8_t)((i * (31 + k) + i / 97 + (i / 7) * k) & 255);
    }
    s_pictures[0] = (sumi_pixels){s_data[0], 60, 20, 60 * 4 + 8, 4};
    s_pictures[1] = (sumi_pixels){s_data[1], 29, 31, 0, 1};
    s_pictures[2] = (sumi_pixels){s_data[2], 21, 63, 0, 3};
    return s_pictures;
}
#endif
