// Z-Image (Turbo and Base): a single-stream transformer, Qwen3-4B as text encoder, the autoencoder of Flux. How they
// compute: docs/architectures/z-image.md.
#include "models/autoencoders.h"
#include "models/config.h"
#include "models/control_module.h"
#include "models/language_model.h"
#include "models/next_dit.h"
#include "models/recipe.h"

// a schedule with a shift above this is the base model's (6), below it the distilled model's (3)
#define BASE_SHIFT 4.5f
#define MAX_SHIFT 1000.0f

// ---- What the authors say -------------------------------------------------------------------------------------------

// Presets for pictures of 1024 x 1024, in the order of sumi_preset. The schedule is the checkpoint's own: Turbo has
// shift 3, Base 6, and a finetune may have another.
//
// Turbo is distilled for 8 evaluations without guidance. 4 still give a recognisable picture. With more than 8 only the
// last step gets smaller: sigma goes from 0.30 to 0 with 8 steps, from 0.21 to 0 with 12, for 1.5 times the work. The
// model was not trained to gain from more steps, so the quality preset stops there. It uses Euler, the solver of its
// distillation: the steps are not small, and the model has not learnt the second-order correction of another solver.
//
// Base is an ordinary flow model. Its authors give 28 to 50 steps, guidance 3 to 5, and normalisation of guidance on
// for realistic and off for stylised pictures. 16 steps are few enough that a second-order solver pays, and
// DPM-Solver++ 2M needs no more evaluations.
#define EVERY_PRESET .guidance_end = 1.0f, .strength = 0.6f
static const sumi_preset_values s_turbo_presets[SUMI_PRESET_COUNT] = {
    [SUMI_PRESET_MODEL] = {1024, 1024, 8, EVERY_PRESET},    [SUMI_PRESET_PREVIEW] = {768, 768, 4, EVERY_PRESET},
    [SUMI_PRESET_STANDARD] = {1024, 1024, 8, EVERY_PRESET}, [SUMI_PRESET_QUALITY] = {1024, 1024, 12, EVERY_PRESET},
    [SUMI_PRESET_FAST] = {1024, 1024, 8, EVERY_PRESET},
};
static const sumi_preset_values s_base_presets[SUMI_PRESET_COUNT] = {
    [SUMI_PRESET_MODEL] = {1024, 1024, 50, 4.0f, EVERY_PRESET},
    [SUMI_PRESET_PREVIEW] = {768, 768, 16, 4.0f, EVERY_PRESET, .solver = SUMI_SOLVER_DPMPP_2M},
    [SUMI_PRESET_STANDARD] = {1024, 1024, 28, 4.0f, EVERY_PRESET},
    [SUMI_PRESET_QUALITY] = {1024, 1024, 50, 4.0f, EVERY_PRESET, .guidance_norm_limit = 1.0f},
    // with an adapter that was distilled like Turbo
    [SUMI_PRESET_FAST] = {1024, 1024, 8, EVERY_PRESET, .shift = 3.0f},
};
// the pipelines' default, then the sizes of the model card
static const sumi_size s_sizes[] = {{1024, 1024}, {720, 1280}, {1280, 720}};

static const sumi_variant s_turbo = {"turbo", 1024, s_turbo_presets, s_sizes, 1, NULL};
static const sumi_variant s_base = {"base", 1024, s_base_presets, s_sizes, sizeof s_sizes / sizeof *s_sizes, NULL};
static const sumi_variant* const s_variants[] = {&s_turbo, &s_base};

static sumi_result describe_z_image(const sumi_checkpoint* checkpoint, sumi_sigma_rule* sigmas,
                                    const sumi_variant** variant, sumi_error* error)
{
    const sumi_file* scheduler = &checkpoint->scheduler;
    *sigmas = sumi_scheduler_defaults();
    sigmas->shift = *variant == &s_base ? 6.0f : 3.0f;
    SUMI_TRY(sumi_scheduler_read(scheduler->data, (size_t)scheduler->bytes, scheduler->path, sigmas, error));
    if (sigmas->kind != SUMI_SHIFT_STATIC || sigmas->shift >= MAX_SHIFT) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: Z-Image needs a static shift between 0 and %g",
                         scheduler->path, (double)MAX_SHIFT);
    }
    if (*variant == NULL) *variant = sigmas->shift > BASE_SHIFT ? &s_base : &s_turbo;
    return SUMI_OK;
}

// ---- Parts ----------------------------------------------------------------------------------------------------------

// hidden_states[-2]: the last layer and the final norm are not run
static const sumi_language_model_settings s_qwen3 = {
    .name = "Qwen3", .unused_layers = 1, .has_qk_norm = true, .activation = SUMI_ACT_SILU, .theta = 1e6};

static const sumi_next_dit_settings s_transformer = {.name = "Z-Image",
                                                     .x_embedder = "all_x_embedder.2-1",
                                                     .final_layer = "all_final_layer.2-1",
                                                     .modulation = "adaLN_modulation.0",
                                                     .pad_multiple = 32,
                                                     .first_frame = 1,
                                                     .theta = 256.0,
                                                     .time_scale = 1000.0,
                                                     .axes = {32, 48, 48}};

static const sumi_control_module* const s_controls[] = {&sumi_next_dit_fun_module, NULL};

// In float, like the reference: timestep = 1000 sigma, t = (1000 - timestep) / 1000.
static float z_image_time(float sigma) { return (1000.0f - sigma * 1000.0f) / 1000.0f; }

const sumi_recipe sumi_recipe_z_image = {
    .family = "z-image",
    .network = "z-image",
    .variants = s_variants,
    .variant_count = sizeof s_variants / sizeof *s_variants,
    .variant_note = "it is taken for Turbo (8 steps, no guidance, shift 3); if it is Z-Image Base (50 steps, guidance "
                    "4, shift 6), name the variant \"base\" (--variant base)",
    .encoders = {{.module = &sumi_language_model_module,
                  .settings = &s_qwen3,
                  .network = "qwen3",
                  // No system turn and no <think> block: Qwen3's template writes an empty one only if thinking is
                  // switched off, and the model was trained with it on.
                  .prompt = {.before = "<|im_start|>user\n",
                             .after = "<|im_end|>\n<|im_start|>assistant\n",
                             .max_tokens = 512}}},
    .encoder_count = 1,
    .denoiser = &sumi_next_dit_module,
    .denoiser_settings = &s_transformer,
    .controls = s_controls,
    .autoencoder = &sumi_flux_vae_module,
    .time = z_image_time,
    .max_side = 4096,
    .guidance_formula = SUMI_GUIDANCE_FROM_POSITIVE,
    .guidance_off = 0.0f,
    .guidance_rule = SUMI_GUIDANCE_NORM_LIMIT,
    .preview = sumi_preview_flux,
    .describe = describe_z_image,
};
