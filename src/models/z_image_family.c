// Z-Image as a family: transformer, Qwen3 text encoder and Flux VAE under the table of family.h.
#include "models/config.h"
#include "models/flux_vae.h"
#include "models/network.h"
#include "models/qwen3.h"
#include "models/scheduler.h"
#include "models/z_image.h"
#include "text/template.h"
#include "text/tokenizer.h"
#include <string.h>

#define MAX_PROMPT_TOKENS 512
#define MAX_SIDE 4096
#define BASE_SHIFT 4.5f // schedules with a shift above this are the base model's (6), below the distilled one's (3)
#define MOST_SHIFT 1000.0f

// Presets, in the order of sumi_preset, for pictures of 1024 x 1024. The schedule stays the checkpoint's own: Turbo
// ships shift 3, Base 6, and a finetune may ship another.
//
// Turbo is distilled for 8 evaluations without guidance; 4 still give a readable picture, and above 8 only the last
// jump gets finer: sigma ends
// 0.30 -> 0 with 8 steps, 0.21 -> 0 with 12, for 1.5 times the work. It was never trained to gain from more, so quality
// stops there. It stays with Euler, the solver of its distillation: a step is not a small one, and a second-order
// correction of it is not what it learnt.
//
// Base is an ordinary flow: its authors say 28 to 50 steps, guidance 3 to 5, normalisation on for realistic and off for
// stylised pictures. 16 steps are few enough that a second-order solver pays, and DPM-Solver++ 2M costs no further
// evaluation.
#define MADE_FOR 1024
#define EVERY_PRESET .guidance_end = 1.0f, .strength = 0.6f
static const sumi_preset_values s_turbo[SUMI_PRESET_COUNT] = {
    [SUMI_PRESET_MODEL] = {1024, 1024, 8, EVERY_PRESET},
    [SUMI_PRESET_PREVIEW] = {768, 768, 4, EVERY_PRESET},
    [SUMI_PRESET_STANDARD] = {1024, 1024, 8, EVERY_PRESET},
    [SUMI_PRESET_QUALITY] = {1024, 1024, 12, EVERY_PRESET},
};
static const sumi_preset_values s_base[SUMI_PRESET_COUNT] = {
    [SUMI_PRESET_MODEL] = {1024, 1024, 50, 4.0f, EVERY_PRESET},
    [SUMI_PRESET_PREVIEW] = {768, 768, 16, 4.0f, EVERY_PRESET, .solver = SUMI_SOLVER_DPMPP_2M},
    [SUMI_PRESET_STANDARD] = {1024, 1024, 28, 4.0f, EVERY_PRESET},
    [SUMI_PRESET_QUALITY] = {1024, 1024, 50, 4.0f, EVERY_PRESET, .guidance_norm_limit = 1.0f},
};
static const sumi_size s_sizes[] = {{1024, 1024}, {720, 1280}, {1280, 720}}; // the pipelines' default, then the card's
#define SIZE_COUNT ((int32_t)(sizeof s_sizes / sizeof *s_sizes))

typedef struct z_image_model {
    sumi_z_image transformer;
    sumi_qwen3 text;
    sumi_flux_vae vae;
    sumi_tokenizer* tokenizer;
    char* prompt;
    // the text inside its template: kept, so that a prompt as long as an earlier one allocates nothing
    size_t prompt_capacity;
    sumi_preset_values presets[SUMI_PRESET_COUNT];
    sumi_size sizes[SIZE_COUNT];
} z_image_model;

static bool recognises(const sumi_checkpoint* checkpoint)
{
    return checkpoint->parts[SUMI_PART_TRANSFORMER].present && strcmp(checkpoint->family, "z-image") == 0;
}

// ---- Opening --------------------------------------------------------------------------------------------------------

static sumi_binder binder_for(sumi_network* network, sumi_part_kind kind, const char* what, bool adaptable,
                              sumi_error* error)
{
    return (sumi_binder){.list = &network->weights,
                         .part = &network->checkpoint.parts[kind],
                         .what = what,
                         .adaptable = adaptable,
                         .error = error};
}

// Presets and sizes in pixels for this checkpoint, which may be made for another side than the released ones.
static void set_sizes(sumi_network* network, bool is_base)
{
    z_image_model* model = network->model;
    sumi_network_info* info = &network->info;
    const sumi_size_scale scale = {MADE_FOR, info->sample_size, info->size_multiple, info->max_side};
    sumi_presets_scaled(is_base ? s_base : s_turbo, &scale, model->presets);
    info->size_count = is_base ? SIZE_COUNT : 1;
    for (int32_t i = 0; i < info->size_count; i++) model->sizes[i] = sumi_size_scaled(s_sizes[i], &scale);
}

static sumi_result open_transformer(sumi_network* network, sumi_error* error)
{
    z_image_model* model = network->model = sumi_alloc_zero(network->heap, sizeof *model);
    if (model == NULL) { return sumi_out_of_memory(error, sizeof *model, "a model"); }
    const sumi_part* part = &network->checkpoint.parts[SUMI_PART_TRANSFORMER];
    sumi_binder binder = binder_for(network, SUMI_PART_TRANSFORMER, "the transformer", true, error);
    SUMI_TRY(sumi_z_image_bind(&model->transformer, &binder, part->config.data, (size_t)part->config.bytes,
                               part->config.path != NULL ? part->config.path : part->path));

    sumi_sigma_rule sigmas = sumi_scheduler_defaults();
    sigmas.shift = 3.0f;
    const sumi_file* scheduler = &network->checkpoint.scheduler;
    SUMI_TRY(sumi_scheduler_read(scheduler->data, (size_t)scheduler->bytes, scheduler->path, &sigmas, error));
    if (sigmas.kind != SUMI_SHIFT_STATIC || sigmas.shift >= MOST_SHIFT) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: Z-Image needs a static shift between 0 and %g",
                         scheduler->path, (double)MOST_SHIFT);
    }
    const bool is_base = sigmas.shift > BASE_SHIFT;
    network->info = (sumi_network_info){.family = "z-image",
                                        .variant = is_base ? "base" : "turbo",
                                        .latent_channels = model->transformer.channels,
                                        .vae_factor = 8,
                                        .size_multiple = 16,
                                        .max_side = MAX_SIDE,
                                        .max_prompt_tokens = MAX_PROMPT_TOKENS,
                                        .text_encoder_count = 1,
                                        .feature_width = {model->transformer.feature_width},
                                        .patch_size = 2,
                                        .sigmas = sigmas,
                                        .guidance_formula = SUMI_GUIDANCE_FROM_POSITIVE,
                                        .guidance_off = 0.0f,
                                        .guidance_rule = SUMI_GUIDANCE_NORM_LIMIT,
                                        .presets = model->presets,
                                        .sizes = model->sizes,
                                        .sample_size = MADE_FOR,
                                        .tile_latent = 128};
    set_sizes(network, is_base);
    const sumi_preview_factors* preview = sumi_preview_flux();
    network->info.preview = preview->channel_count == network->info.latent_channels ? preview : NULL;
    return SUMI_OK;
}

static sumi_result open_text_encoder(sumi_network* network, sumi_error* error)
{
    z_image_model* model = network->model;
    const sumi_part* part = &network->checkpoint.parts[SUMI_PART_TEXT_ENCODER];
    const sumi_file* json = &network->checkpoint.tokenizer;
    if (network->without_text_encoder || !part->present) { return SUMI_OK; }
    if (json->data == NULL) {
        return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                         "%s: the text encoder needs a tokenizer.json; give tokenizer_path, or open the model without "
                         "its text encoder",
                         part->path);
    }
    sumi_binder binder = binder_for(network, SUMI_PART_TEXT_ENCODER, "the text encoder", false, error);
    SUMI_TRY(sumi_qwen3_bind(&model->text, &binder, part->config.data, (size_t)part->config.bytes,
                             part->config.path != NULL ? part->config.path : part->path));
    if (model->text.width != model->transformer.feature_width) {
        return sumi_fail(
            error, SUMI_TENSOR_MISMATCH,
            "%s: the text encoder makes features of %d values, the transformer reads %d; they do not belong together",
            part->path, (int)model->text.width, (int)model->transformer.feature_width);
    }
    return sumi_tokenizer_begin(network->heap, json->data, (size_t)json->bytes, json->path, error, &model->tokenizer);
}

static sumi_result step_tokenizer(sumi_network* network, size_t item_budget, bool* out_done, float* out_progress,
                                  sumi_error* error)
{
    z_image_model* model = network->model;
    *out_done = true;
    if (model->tokenizer == NULL) { return SUMI_OK; }
    SUMI_TRY(sumi_tokenizer_step(model->tokenizer, item_budget, out_done, out_progress, error));
    if (*out_done && sumi_tokenizer_size(model->tokenizer) > (size_t)model->text.vocabulary) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s has %zu ids, the text encoder in %s %d embeddings; they do not belong together",
                         network->checkpoint.tokenizer.path, sumi_tokenizer_size(model->tokenizer),
                         network->checkpoint.parts[SUMI_PART_TEXT_ENCODER].path, (int)model->text.vocabulary);
    }
    network->info.has_text_encoder = *out_done;
    return SUMI_OK;
}

static sumi_result open_vae(sumi_network* network, sumi_error* error)
{
    z_image_model* model = network->model;
    const sumi_part* part = &network->checkpoint.parts[SUMI_PART_VAE];
    if (!part->present) { return SUMI_OK; }
    sumi_binder binder = binder_for(network, SUMI_PART_VAE, "the VAE", false, error);
    SUMI_TRY(sumi_flux_vae_bind(&model->vae, &binder, part->config.data, (size_t)part->config.bytes,
                                part->config.path != NULL ? part->config.path : part->path,
                                network->without_vae_encoder));
    if (model->vae.latent_channels != model->transformer.channels) {
        return sumi_fail(error, SUMI_TENSOR_MISMATCH,
                         "%s: the VAE's latents have %d channels, the transformer's %d; they do not belong together",
                         part->path, (int)model->vae.latent_channels, (int)model->transformer.channels);
    }
    network->info.vae_factor = model->vae.factor;
    network->info.size_multiple = 2 * model->vae.factor; // patches of 2x2 latents
    // else the config says nothing useful
    if (model->vae.sample_size >= 4 * network->info.size_multiple && model->vae.sample_size <= MAX_SIDE) {
        network->info.sample_size = model->vae.sample_size;
        network->info.tile_latent = model->vae.sample_size / model->vae.factor / 4 * 4;
    }
    set_sizes(network, network->info.sigmas.shift > BASE_SHIFT);
    network->info.has_vae_decoder = model->vae.decoder.is_present;
    network->info.has_vae_encoder = model->vae.encoder.is_present;
    return SUMI_OK;
}

static sumi_result open_step(sumi_network* network, int32_t stage, size_t item_budget, bool* out_stage_done,
                             bool* out_done, float* out_progress, sumi_error* error)
{
    float tokens = 0.0f;
    *out_stage_done = true;
    switch (stage) {
    case 0: *out_progress = 0.1f; return open_transformer(network, error);
    case 1: *out_progress = 0.2f; return open_vae(network, error);
    case 2: *out_progress = 0.3f; return open_text_encoder(network, error);
    default:
        SUMI_TRY(step_tokenizer(network, item_budget, out_stage_done, &tokens, error));
        *out_progress = 0.3f + 0.7f * tokens;
        *out_done = *out_stage_done;
        return SUMI_OK;
    }
}

static void close_model(sumi_network* network)
{
    z_image_model* model = network->model;
    if (model != NULL) {
        sumi_tokenizer_destroy(model->tokenizer);
        sumi_free(network->heap, model->prompt);
        sumi_free(network->heap, model);
    }
}

// ---- Prompts --------------------------------------------------------------------------------------------------------

static sumi_result tokenise(sumi_network* network, int32_t encoder, const char* text, size_t bytes, int32_t* ids,
                            int32_t capacity, int32_t* out_count, sumi_error* error)
{
    (void)encoder;
    z_image_model* model = network->model;
    sumi_template_parts around = sumi_template_get(SUMI_TEMPLATE_Z_IMAGE);
    size_t before = strlen(around.before), after = strlen(around.after);
    if (bytes > SIZE_MAX / 2) { return sumi_fail(error, SUMI_TEXT_INVALID, "the prompt is too long"); }
    SUMI_TRY(
        sumi_grow(network->heap, (void**)&model->prompt, &model->prompt_capacity, before + bytes + after, 1, error));
    char* whole = model->prompt;
    memcpy(whole, around.before, before);
    if (bytes > 0) { memcpy(whole + before, text, bytes); }
    memcpy(whole + before + bytes, around.after, after);
    size_t most = capacity < MAX_PROMPT_TOKENS ? (size_t)capacity : MAX_PROMPT_TOKENS, count = 0;
    sumi_result result =
        sumi_tokenizer_encode(model->tokenizer, whole, before + bytes + after, false, ids, most, &count, error);
    if (result == SUMI_OK) {
        // the first ids are kept: a longer prompt loses the end of the template, as in the reference
        *out_count = (int32_t)(count < most ? count : most);
    }
    return result;
}

// Float arithmetic as the reference's: timestep = 1000 sigma, t = (1000 - timestep) / 1000.
static float time_of(const sumi_network* network, float sigma)
{
    (void)network;
    return (1000.0f - sigma * 1000.0f) / 1000.0f;
}

// ---- Plans ----------------------------------------------------------------------------------------------------------

static sumi_value write_text(const sumi_network* network, sumi_plan* plan, int32_t encoder, sumi_value ids,
                             const int32_t* counts, int32_t prompt_count)
{
    (void)encoder;
    const z_image_model* model = network->model;
    return sumi_qwen3_write(&model->text, plan, ids, counts, prompt_count);
}

static void write_prepare(const sumi_network* network, sumi_plan* plan, sumi_denoiser* denoiser)
{
    const z_image_model* model = network->model;
    sumi_z_image_write_prepare(&model->transformer, plan, denoiser);
}

static void write_layout(const sumi_network* network, sumi_plan* plan, sumi_denoiser* denoiser, int32_t slot,
                         const sumi_evaluation* list, int32_t count)
{
    const z_image_model* model = network->model;
    sumi_z_image_write_layout(&model->transformer, plan, denoiser, slot, list, count);
}

static sumi_value write_evaluation(const sumi_network* network, sumi_plan* plan, sumi_denoiser* denoiser, int32_t slot,
                                   sumi_value latents, const sumi_evaluation* list, int32_t count)
{
    const z_image_model* model = network->model;
    return sumi_z_image_write_evaluation(&model->transformer, plan, denoiser, slot, latents, list, count);
}

static void write_decode(const sumi_network* network, sumi_plan* plan, sumi_value latents, int32_t height,
                         int32_t width, int32_t tile_latent, sumi_value picture)
{
    const z_image_model* model = network->model;
    sumi_flux_vae_write_decode(&model->vae, plan, latents, height, width, tile_latent, picture);
}

static sumi_value write_encode(const sumi_network* network, sumi_plan* plan, sumi_value pixels, int32_t height,
                               int32_t width, int32_t tile_latent)
{
    const z_image_model* model = network->model;
    return sumi_flux_vae_write_encode(&model->vae, plan, pixels, height, width, tile_latent);
}

static void write_posterior(const sumi_network* network, sumi_plan* plan, sumi_value moments, sumi_value eps,
                            sumi_value latents)
{
    const z_image_model* model = network->model;
    sumi_plan_posterior(plan, &(sumi_plan_posterior_args){.moments = moments,
                                                          .eps = eps,
                                                          .channels = model->vae.latent_channels,
                                                          .statistics = {&model->vae.scaling, &model->vae.shift, 1},
                                                          .latents = latents});
}

const sumi_family sumi_family_z_image = {.name = "z-image",
                                         .recognises = recognises,
                                         .open_step = open_step,
                                         .close = close_model,
                                         .tokenise = tokenise,
                                         .time = time_of,
                                         .write_text = write_text,
                                         .state_bytes = sizeof(sumi_z_image_state),
                                         .write_prepare = write_prepare,
                                         .write_layout = write_layout,
                                         .write_evaluation = write_evaluation,
                                         .write_decode = write_decode,
                                         .write_encode = write_encode,
                                         .write_posterior = write_posterior};
