// Qwen-Image-2.1, base and Turbo: a transformer whose text and references are a prefix that never sees the image,
// Qwen3-VL as text encoder, with its vision tower for references, and an autoencoder for RGBA pictures at a sixteenth of
// the size. One set of weights draws and edits. How they compute: docs/architectures/qwen-image-21.md.
#include "base/dtype.h"
#include "files/tensor_scaling.h"
#include "models/autoencoders.h"
#include "models/config.h"
#include "models/prefix_dit.h"
#include "models/qwen21_parts.h"
#include "models/recipe.h"
#include <string.h>

// ---- What the authors say -------------------------------------------------------------------------------------------

// In the order of sumi_preset. The base is distilled to need no guidance and is made for 40 steps; guidance with a
// negative prompt is possible, and its authors name no number for it. ComfyUI's templates have 25 steps. A second-order
// solver makes up for some of the steps that the preview preset leaves out. FAST is for an adapter that was distilled to
// 8 steps. Turbo is distilled to 8 steps whose noise levels are fixed, so only its preview preset differs, in its size.
#define EVERY_PRESET .guidance_end = 1.0f, .strength = 0.6f
static const sumi_preset_values s_base_presets[SUMI_PRESET_COUNT] = {
    [SUMI_PRESET_MODEL] = {1024, 1024, 40, 1.0f, EVERY_PRESET},
    [SUMI_PRESET_PREVIEW] = {768, 768, 16, 1.0f, EVERY_PRESET, .solver = SUMI_SOLVER_DPMPP_2M},
    [SUMI_PRESET_STANDARD] = {1024, 1024, 25, 1.0f, EVERY_PRESET},
    [SUMI_PRESET_QUALITY] = {1024, 1024, 50, 1.0f, EVERY_PRESET},
    [SUMI_PRESET_FAST] = {1024, 1024, 8, 1.0f, EVERY_PRESET},
};
static const sumi_preset_values s_turbo_presets[SUMI_PRESET_COUNT] = {
    [SUMI_PRESET_MODEL] = {1024, 1024, 8, 1.0f, EVERY_PRESET},
    [SUMI_PRESET_PREVIEW] = {512, 512, 8, 1.0f, EVERY_PRESET},
    [SUMI_PRESET_STANDARD] = {1024, 1024, 8, 1.0f, EVERY_PRESET},
    [SUMI_PRESET_QUALITY] = {1024, 1024, 8, 1.0f, EVERY_PRESET},
    [SUMI_PRESET_FAST] = {1024, 1024, 8, 1.0f, EVERY_PRESET},
};
// the pipelines' default, then the sizes of the model card
static const sumi_size s_sizes[] = {{1024, 1024}, {2048, 2048}, {2400, 1792}, {1792, 2400},
                                    {2528, 1696}, {1696, 2528}, {2752, 1536}, {1536, 2752}};
#define SIZE_COUNT ((int32_t)(sizeof s_sizes / sizeof *s_sizes))

static const sumi_variant s_base = {"base", 1024, s_base_presets, s_sizes, SIZE_COUNT, NULL};
static const sumi_variant s_turbo = {"turbo", 1024, s_turbo_presets, s_sizes, SIZE_COUNT, NULL};
static const sumi_variant* const s_variants[] = {&s_base, &s_turbo};

// The noise levels of Turbo, for files without the list in model_index.json.
static const float s_turbo_sigmas[] = {1.0f, 0.978453f, 0.95418f, 0.926626f, 0.89508f, 0.845148f, 0.704534f, 0.414568f};

static sumi_result describe_turbo(const sumi_checkpoint* checkpoint, sumi_sigma_rule* sigmas, sumi_error* error)
{
    _Static_assert(SUMI_CHECKPOINT_SIGMAS <= SUMI_SCHEDULE_MAX_LISTED, "every list of a file has room in a rule");
    const sumi_author_sigmas* given = &checkpoint->sigmas;
    const bool is_given = given->count > 0;
    sigmas->kind = SUMI_SHIFT_LISTED;
    sigmas->terminal = 0.0f;
    sigmas->listed.count = is_given ? given->count : (int32_t)(sizeof s_turbo_sigmas / sizeof *s_turbo_sigmas);
    memcpy(sigmas->listed.levels, is_given ? given->levels : s_turbo_sigmas,
           (size_t)sigmas->listed.count * sizeof(float));
    sumi_error detail = {.result = SUMI_OK};
    if (!given->is_no_list && sumi_sigma_rule_check(sigmas, &detail) == SUMI_OK) return SUMI_OK;
    return sumi_fail(error, SUMI_FILE_MALFORMED,
                     "%s/model_index.json: \"sample_sigmas\" cannot be used: %s; take the file that was released with "
                     "the model",
                     checkpoint->path, given->is_no_list ? "it is not a list of up to 64 numbers" : detail.text);
}

static sumi_result describe_qwen_image_21(const sumi_checkpoint* checkpoint, sumi_sigma_rule* sigmas,
                                          const sumi_variant** variant, sumi_error* error)
{
    const sumi_file* scheduler = &checkpoint->scheduler;
    const bool lists_sigmas = checkpoint->sigmas.count > 0 || checkpoint->sigmas.is_no_list;
    if (*variant == NULL) *variant = lists_sigmas ? &s_turbo : &s_base;
    *sigmas = sumi_scheduler_defaults();
    if (*variant == &s_turbo) return describe_turbo(checkpoint, sigmas, error);
    if (scheduler->data == NULL) *sigmas = sumi_scheduler_released_dynamic(); // single files
    return sumi_scheduler_read(scheduler->data, (size_t)scheduler->bytes, scheduler->path, sigmas, error);
}

// The released width, and the number of channels of its latents.
static const char* qwen_image_21_licence(const sumi_checkpoint* checkpoint)
{
    const sumi_component* transformer = &checkpoint->components[SUMI_COMPONENT_TRANSFORMER];
    const bool is_released = sumi_tensor_find_size(transformer, "img_in.weight", 0) == 4096
                          && sumi_tensor_find_size(transformer, "img_in.weight", 1) == 64;
    return is_released ? "Qwen Research License: not for commercial use" : NULL;
}

// ---- Parts ----------------------------------------------------------------------------------------------------------

static const sumi_prefix_dit_settings s_transformer = {.axis_share = {16, 56, 56}, .theta = 10000.0};

// The reference passes the time on in bfloat16, rounded as 1000 sigma and again after the division.
static float round_to_bf16(float value) { return sumi_bf16_to_float(sumi_float_to_bf16(value)); }
static float qwen_image_21_time(float sigma) { return round_to_bf16(round_to_bf16(1000.0f * sigma) / 1000.0f); }

const sumi_recipe sumi_recipe_qwen_image_21 = {
    .family = "qwen-image-2.1",
    .network = "qwen-image-2.1",
    .variants = s_variants,
    .variant_count = sizeof s_variants / sizeof *s_variants,
    .variant_note = "it is taken for the base model (40 steps); if it is Turbo (8 steps whose noise levels are fixed), "
                    "name the variant \"turbo\" (--variant turbo)",
    .encoders = {SUMI_QWEN21_ENCODER},
    .encoder_count = 1,
    .vision = &sumi_qwen3_vision_module,
    .vision_settings = &sumi_qwen21_vision,
    .vision_network = "qwen3-vl-vision",
    .denoiser = &sumi_prefix_dit_module,
    .denoiser_settings = &s_transformer,
    .autoencoder = &sumi_qwen_vae_21_module,
    .latent_factor = 16,
    .picture_channels = 4,
    .time = qwen_image_21_time,
    .size_multiple = 32,
    .max_side = 4096,
    .references =
        {.max_count = 10, .autoencoder_area = 1024 * 1024, .multiple = 32, .max_ratio = 200, .size_follows_last = true},
    // any number with bits in its low half, which is all that PyTorch's generator for the CPU reads of a seed
    .reference_seed = 0x9e3779b97f4a7c15u,
    .start = {.posterior = SUMI_POSTERIOR_MODE},
    .guidance_formula = SUMI_GUIDANCE_FROM_NEGATIVE,
    .guidance_off = 1.0f,
    .guidance_rule = SUMI_GUIDANCE_PLAIN,
    .preview = sumi_preview_qwen_21,
    .licence = qwen_image_21_licence,
    .describe = describe_qwen_image_21,
};
