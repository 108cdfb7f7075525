// Z-Image (Turbo and Base): a single-stream transformer, Qwen3-4B as text encoder, the autoencoder of Flux. Spec
// z-image.md.
#include "models/config.h"
#include "models/flux_vae.h"
#include "models/language_model.h"
#include "models/next_dit.h"
#include "models/recipe.h"

#define MAX_SIDE 4096
#define BASE_SHIFT 4.5 // schedules with a shift above this are the base model's (6), below the distilled one's (3)

// hidden_states[-2]: the last layer and the final norm are not run
static const sumi_language_model_settings s_qwen3 = {
    .name = "Qwen3", .unused_layers = 1, .has_qk_norm = true, .activation = SUMI_ACT_SILU, .theta = 1e6};

static const sumi_next_dit_settings s_transformer = {
    .name = "Z-Image", .pad_multiple = 32, .theta = 256.0, .time_scale = 1000.0, .axes = {32, 48, 48}};

// Float arithmetic as the reference's: timestep = 1000 sigma, t = (1000 - timestep) / 1000.
static float time_of(float sigma) { return (1000.0f - sigma * 1000.0f) / 1000.0f; }

static sumi_result describe(const sumi_checkpoint* checkpoint, sumi_network_info* info, sumi_error* error)
{
    double shift = 3.0;
    bool is_dynamic = false;
    const sumi_file* scheduler = &checkpoint->scheduler;
    const sumi_config_field fields[] = {{"shift", SUMI_CONFIG_NUMBER, &shift, 0, NULL},
                                        {"use_dynamic_shifting", SUMI_CONFIG_BOOL, &is_dynamic, 0, NULL}};
    SUMI_TRY(sumi_config_read(scheduler->data, (size_t)scheduler->bytes, scheduler->path, fields, 2, error));
    if (is_dynamic || !(shift > 0.0) || !(shift < 1000.0)) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: Z-Image needs a static shift between 0 and 1000",
                         scheduler->path);
    }
    bool is_base = shift > BASE_SHIFT;
    info->variant = is_base ? "base" : "turbo";
    info->max_side = MAX_SIDE;
    info->uses_guidance = is_base;
    info->guidance = is_base ? 4.0f : 0.0f;
    info->step_count = is_base ? 50 : 8;
    info->shift = (float)shift;
    info->sample_size = 1024;
    const sumi_preview_factors* preview = sumi_preview_flux();
    info->preview = preview->channel_count == info->latent_channels ? preview : NULL;
    return SUMI_OK;
}

const sumi_recipe sumi_recipe_z_image = {
    .family = "z-image",
    .encoders = {{.part = &sumi_language_model_part,
                  .settings = &s_qwen3,
                  // No system turn, and no <think> block: Qwen3's template writes an empty one only when thinking is
                  // switched off, and the model was trained with it on.
                  .prompt = {.before = "<|im_start|>user\n",
                             .after = "<|im_end|>\n<|im_start|>assistant\n",
                             .max_tokens = 512}}},
    .encoder_count = 1,
    .denoiser = &sumi_next_dit_part,
    .denoiser_settings = &s_transformer,
    .autoencoder = &sumi_flux_vae_part,
    .time = time_of,
    .describe = describe,
};
