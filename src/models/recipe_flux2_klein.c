// FLUX.2 [klein], 4B and 9B, distilled and base, and 9B-kv: a transformer with double and single blocks, Qwen3 as text
// encoder, the autoencoder of FLUX.2. References are rows of the transformer beside the target; 9B-kv computes them once
// per job. How they compute: docs/architectures/flux2-klein.md.
#include "base/dtype.h"
#include "files/tensor_scaling.h"
#include "models/autoencoders.h"
#include "models/config.h"
#include "models/flux_dit.h"
#include "models/language_model.h"
#include "models/recipe.h"
#include <string.h>

// ---- What the authors say -------------------------------------------------------------------------------------------

// For pictures of 1024 x 1024, in the order of sumi_preset. Distilled: 4 steps, no guidance; the preset PREVIEW differs
// in its size. Base: 50 steps with guidance 4. A second-order solver makes up for some of the steps that its preview
// preset leaves out; FAST is for an adapter that was distilled like the other variant.
#define EVERY_PRESET .guidance_end = 1.0f, .strength = 0.6f
static const sumi_preset_values s_distilled_presets[SUMI_PRESET_COUNT] = {
    [SUMI_PRESET_MODEL] = {1024, 1024, 4, 1.0f, EVERY_PRESET},
    [SUMI_PRESET_PREVIEW] = {512, 512, 4, 1.0f, EVERY_PRESET},
    [SUMI_PRESET_STANDARD] = {1024, 1024, 4, 1.0f, EVERY_PRESET},
    [SUMI_PRESET_QUALITY] = {1024, 1024, 8, 1.0f, EVERY_PRESET},
    [SUMI_PRESET_FAST] = {1024, 1024, 4, 1.0f, EVERY_PRESET},
};
static const sumi_preset_values s_base_presets[SUMI_PRESET_COUNT] = {
    [SUMI_PRESET_MODEL] = {1024, 1024, 50, 4.0f, EVERY_PRESET},
    [SUMI_PRESET_PREVIEW] = {768, 768, 16, 4.0f, EVERY_PRESET, .solver = SUMI_SOLVER_DPMPP_2M},
    [SUMI_PRESET_STANDARD] = {1024, 1024, 28, 4.0f, EVERY_PRESET},
    [SUMI_PRESET_QUALITY] = {1024, 1024, 50, 4.0f, EVERY_PRESET},
    [SUMI_PRESET_FAST] = {1024, 1024, 4, 1.0f, EVERY_PRESET},
};
static const sumi_size s_sizes[] = {{1024, 1024}};

static const sumi_flux_dit_settings s_kv_transformer; // below

static const sumi_variant s_distilled = {"distilled", 1024, s_distilled_presets, s_sizes, 1, NULL};
static const sumi_variant s_base = {"base", 1024, s_base_presets, s_sizes, 1, NULL};
static const sumi_variant s_kv = {"kv", 1024, s_distilled_presets, s_sizes, 1, &s_kv_transformer};
static const sumi_variant* const s_variants[] = {&s_distilled, &s_base, &s_kv};

// The numbers of the authors' schedule are in no file: scheduler_config.json says that the shift moves, and its own
// numbers for that are those of another model. A file that says that it does not move has the static shift in it, as for
// the reference.
static sumi_result describe_klein(const sumi_checkpoint* checkpoint, sumi_sigma_rule* sigmas,
                                  const sumi_variant** variant, sumi_error* error)
{
    const sumi_file* scheduler = &checkpoint->scheduler;
    *sigmas = sumi_scheduler_defaults();
    sigmas->kind = SUMI_SHIFT_EMPIRICAL;
    sigmas->empirical.few = (sumi_shift_line){8.73809524e-05, 1.89833333};
    sigmas->empirical.many = (sumi_shift_line){0.00016927, 0.45666666};
    sigmas->empirical.few_steps = 10;
    sigmas->empirical.many_steps = 200;
    sigmas->empirical.max_tokens = 4300;
    // the class tells the model that keeps references; a folder without the mark is base; a single file shows neither
    if (*variant == NULL && strcmp(checkpoint->class_name, "Flux2KleinKVPipeline") == 0) *variant = &s_kv;
    if (*variant == NULL) *variant = checkpoint->has_model_index && !checkpoint->is_distilled ? &s_base : &s_distilled;
    return sumi_scheduler_read(scheduler->data, (size_t)scheduler->bytes, scheduler->path, sigmas, error);
}

// 4B has a width of 3072, 9B of 4096. The files of 9B may not be used commercially.
static const char* klein_licence(const sumi_checkpoint* checkpoint)
{
    static const char* const s_names[] = {"context_embedder.weight", "txt_in.weight"};
    const sumi_component* transformer = &checkpoint->components[SUMI_COMPONENT_TRANSFORMER];
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        const int64_t width = sumi_tensor_find_size(transformer, s_names[i], 0),
                      feature_width = sumi_tensor_find_size(transformer, s_names[i], 1);
        if (width == 3072 && feature_width == 3 * 2560) return "apache-2.0";
        if (width == 4096 && feature_width == 3 * 4096) return "FLUX Non-Commercial License: not for commercial use";
    }
    return NULL;
}

// ---- Parts ----------------------------------------------------------------------------------------------------------

static const sumi_language_model_settings s_qwen3 = {.name = "Qwen3",
                                                     .tap_count = 3,
                                                     .taps = {9, 18, 27},
                                                     .has_qk_norm = true,
                                                     .activation = SUMI_ACT_SILU,
                                                     .theta = 1e6};

#define TRANSFORMER                                                                                                    \
    .axis_count = 4, .axis_share = {1, 1, 1, 1}, .theta = 2000.0, .reference_frame = 10,                               \
    .guidance_advice = "it is FLUX.2 [dev] or made of it: use FLUX.2-klein-4B"
static const sumi_flux_dit_settings s_transformer = {TRANSFORMER};
static const sumi_flux_dit_settings s_kv_transformer = {TRANSFORMER, .keeps_references = true};

// 1000 sigma, which the reference passes on in bfloat16: rounded, divided by 1000, and multiplied again.
static float round_to_bf16(float value) { return sumi_bf16_to_float(sumi_float_to_bf16(value)); }
static float klein_time(float sigma)
{
    return round_to_bf16(1000.0f * round_to_bf16(round_to_bf16(1000.0f * sigma) / 1000.0f));
}

// A text always has 512 rows: those of padding are read like the others.
const sumi_recipe sumi_recipe_flux2_klein = {
    .family = "flux2-klein",
    .network = "flux2",
    .variants = s_variants,
    .variant_count = sizeof s_variants / sizeof *s_variants,
    .variant_note = "it is taken for the distilled model (4 steps, no guidance); if it is a base model (50 steps, "
                    "guidance 4), name the variant \"base\" (--variant base), and if it is 9b-kv, \"kv\"",
    .encoders = {{.module = &sumi_language_model_module,
                  .settings = &s_qwen3,
                  .network = "qwen3",
                  .prompt = {.before = "<|im_start|>user\n",
                             .after = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
                             .max_tokens = 512,
                             .padded_tokens = 512,
                             .pad_token = "<|endoftext|>"}}},
    .encoder_count = 1,
    .denoiser = &sumi_flux_dit_module,
    .denoiser_settings = &s_transformer,
    .autoencoder = &sumi_flux_vae_module,
    .latent_factor = 16,
    .latent_packing = 2,
    .time = klein_time,
    .max_side = 4096,
    .references = {.max_count = 10,
                   .fit = SUMI_REFERENCE_CROPPED,
                   .autoencoder_area = 1024 * 1024,
                   .multiple = 16,
                   .max_ratio = 8,
                   .min_side = 64},
    .start = {.posterior = SUMI_POSTERIOR_MODE, .mask_filter = SUMI_MASK_BILINEAR, .is_reference = true},
    .guidance_formula = SUMI_GUIDANCE_FROM_NEGATIVE,
    .guidance_off = 1.0f,
    .may_ignore_guidance = true,
    .guidance_rule = SUMI_GUIDANCE_PLAIN,
    .preview = sumi_preview_flux2,
    .licence = klein_licence,
    .describe = describe_klein,
};
