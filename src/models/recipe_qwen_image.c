// Qwen-Image, Qwen-Image-Edit (one reference) and its successors Edit-Plus (several): a two-stream transformer;
// Qwen2.5-VL as text encoder, with its vision tower for references; its own autoencoder. The three families share
// all modules and differ in prompts, references and presets. How they compute: docs/architectures/qwen-image.md.
#include "base/dtype.h"
#include "models/autoencoders.h"
#include "models/config.h"
#include "models/control_module.h"
#include "models/language_model.h"
#include "models/qwen_vision.h"
#include "models/recipe.h"
#include "models/two_stream.h"
#include <string.h>

// ---- What the authors say -------------------------------------------------------------------------------------------

// In the order of sumi_preset. 50 steps with guidance 4 are the authors'. A second-order solver makes up for some of
// the steps that the preview preset leaves out. FAST is for the 4-step adapters, whose schedule has the static shift 3
// and no terminal sigma, and which are used without guidance.
#define EVERY_PRESET .guidance_end = 1.0f, .strength = 0.6f
#define PRESETS(side, preview_side, steps, negative)                                                                   \
    {                                                                                                                  \
        [SUMI_PRESET_MODEL] = {side, side, steps, 4.0f, EVERY_PRESET, .negative_text = negative},                      \
        [SUMI_PRESET_PREVIEW] = {preview_side,                                                                         \
                                 preview_side,                                                                         \
                                 12,                                                                                   \
                                 4.0f,                                                                                 \
                                 EVERY_PRESET,                                                                         \
                                 .solver = SUMI_SOLVER_DPMPP_2M,                                                       \
                                 .negative_text = negative},                                                           \
        [SUMI_PRESET_STANDARD] = {side, side, 30, 4.0f, EVERY_PRESET, .negative_text = negative},                      \
        [SUMI_PRESET_QUALITY] = {side, side, 50, 4.0f, EVERY_PRESET, .negative_text = negative},                       \
        [SUMI_PRESET_FAST] = {                                                                                         \
            side,                                                                                                      \
            side,                                                                                                      \
            4,                                                                                                         \
            1.0f,                                                                                                      \
            EVERY_PRESET,                                                                                              \
            .shift = 3.0f                                                                                              \
        }                                                                                                              \
    }

static const sumi_preset_values s_first_presets[SUMI_PRESET_COUNT] = PRESETS(1328, 768, 50, " ");
static const sumi_preset_values s_2512_presets[SUMI_PRESET_COUNT] =
    PRESETS(1328, 768, 50,
            "低分辨率，低画质，肢体畸形，手指畸形，画面过饱和，蜡像感，人脸无细节，过度光滑，画面具有AI感。构图混乱。文"
            "字模糊，扭曲"
            "。");
// 0: the size of a reference
static const sumi_preset_values s_edit_presets[SUMI_PRESET_COUNT] = PRESETS(0, 0, 50, " ");
static const sumi_preset_values s_edit_plus_presets[SUMI_PRESET_COUNT] = PRESETS(0, 0, 40, " ");
static const sumi_size s_sizes[] = {{1328, 1328}, {1664, 928},  {928, 1664}, {1472, 1104},
                                    {1104, 1472}, {1584, 1056}, {1056, 1584}};
#define SIZE_COUNT ((int32_t)(sizeof s_sizes / sizeof *s_sizes))

// The files of the first model and of 2512 do not show which one they are; the caller may say so.
static const sumi_variant s_first = {"first", 1328, s_first_presets, s_sizes, SIZE_COUNT, NULL};
static const sumi_variant s_2512 = {"2512", 1328, s_2512_presets, s_sizes, SIZE_COUNT, NULL};
static const sumi_variant s_edit = {"edit", 1024, s_edit_presets, NULL, 0, NULL};
static const sumi_variant s_edit_2509 = {"edit-2509", 1024, s_edit_plus_presets, NULL, 0, NULL};
// Converted files of 2511 have lost the mark that references are modulated by time 0.
static const sumi_two_stream_settings s_zero_cond = {.zero_cond = true};
static const sumi_variant s_edit_2511 = {"edit-2511", 1024, s_edit_plus_presets, NULL, 0, &s_zero_cond};
static const sumi_variant* const s_variants[] = {&s_first, &s_2512};
static const sumi_variant* const s_edit_variants[] = {&s_edit};
static const sumi_variant* const s_edit_plus_variants[] = {&s_edit_2509, &s_edit_2511};

// ---- Which of them a checkpoint is ----------------------------------------------------------------------------------

// Whether references are modulated by time 0, which is true for 2511 only.
static bool has_zero_cond(const sumi_checkpoint* checkpoint)
{
    const sumi_component* transformer = &checkpoint->components[SUMI_COMPONENT_TRANSFORMER];
    bool is_set = false;
    const sumi_config_field field = {"zero_cond_t", SUMI_CONFIG_BOOL, &is_set, 0, NULL};
    sumi_error ignored = {0}; // the transformer reads the same file and reports its faults
    const sumi_module_config config = {transformer->config.data, (size_t)transformer->config.bytes,
                                       transformer->config.path};
    (void)sumi_config_read(&config, &field, 1, &ignored);
    return is_set || sumi_component_find(transformer, "__index_timestep_zero__") != NULL;
}

static bool is_edit_plus_family(const sumi_checkpoint* checkpoint)
{
    return strcmp(checkpoint->class_name, "QwenImageEditPlusPipeline") == 0
        || (strncmp(checkpoint->class_name, "QwenImageEdit", 13) != 0 && has_zero_cond(checkpoint));
}

static bool is_edit_family(const sumi_checkpoint* checkpoint)
{
    return strncmp(checkpoint->class_name, "QwenImageEdit", 13) == 0;
}

static sumi_result read_schedule(const sumi_checkpoint* checkpoint, sumi_sigma_rule* sigmas, sumi_error* error)
{
    const sumi_file* scheduler = &checkpoint->scheduler;
    *sigmas = sumi_scheduler_defaults();
    if (scheduler->data == NULL) *sigmas = sumi_scheduler_released_dynamic(); // single files
    return sumi_scheduler_read(scheduler->data, (size_t)scheduler->bytes, scheduler->path, sigmas, error);
}

static sumi_result describe_qwen_image(const sumi_checkpoint* checkpoint, sumi_sigma_rule* sigmas,
                                       const sumi_variant** variant, sumi_error* error)
{
    if (*variant == NULL) *variant = &s_first;
    return read_schedule(checkpoint, sigmas, error);
}

static sumi_result describe_edit(const sumi_checkpoint* checkpoint, sumi_sigma_rule* sigmas,
                                 const sumi_variant** variant, sumi_error* error)
{
    if (*variant == NULL) *variant = &s_edit;
    return read_schedule(checkpoint, sigmas, error);
}

static sumi_result describe_edit_plus(const sumi_checkpoint* checkpoint, sumi_sigma_rule* sigmas,
                                      const sumi_variant** variant, sumi_error* error)
{
    if (*variant == NULL) *variant = has_zero_cond(checkpoint) ? &s_edit_2511 : &s_edit_2509;
    return read_schedule(checkpoint, sigmas, error);
}

// ---- Parts ----------------------------------------------------------------------------------------------------------

static const sumi_language_model_settings s_language_model = {.name = "Qwen2.5-VL",
                                                              .norms_features = true,
                                                              .has_qkv_bias = true,
                                                              .takes_pictures = true,
                                                              .activation = SUMI_ACT_SILU,
                                                              .theta = 1e6,
                                                              .sections = {16, 24, 24}};

// The released tower, for files without configs. mean and deviation are those of CLIP.
static const sumi_qwen_vision_settings s_vision = {.tower = {.heads = 16,
                                                             .min_pixels = 3136,
                                                             .max_pixels = 12845056,
                                                             .mean = {0.48145466, 0.4578275, 0.40821073},
                                                             .deviation = {0.26862954, 0.26130258, 0.27577711}},
                                                   .window = 112,
                                                   .full_blocks = {7, 15, 23, 31},
                                                   .full_block_count = 4};

// The reference passes the time on in bfloat16, rounded as 1000 sigma and again after the division.
static float round_to_bf16(float value) { return sumi_bf16_to_float(sumi_float_to_bf16(value)); }
static float qwen_image_time(float sigma) { return round_to_bf16(round_to_bf16(1000.0f * sigma) / 1000.0f); }

#define DESCRIBE                                                                                                       \
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "    \
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n"
#define EDIT                                                                                                           \
    "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, texture, objects, "         \
    "background), then explain how the user's text instruction should alter or modify the image. Generate a new "      \
    "image "                                                                                                           \
    "that meets the user's requirements while maintaining consistency with the original input where "                  \
    "appropriate.<|im_end|>\n<|im_start|>user\n"
#define ANSWER "<|im_end|>\n<|im_start|>assistant\n"
#define PICTURE "<|vision_start|><|image_pad|><|vision_end|>"

static const sumi_control_module* const s_controls[] = {&sumi_two_stream_fun_module, &sumi_instantx_module,
                                                        &sumi_blockwise_module, NULL};

#define EVERY_RECIPE                                                                                                   \
    .network = "qwen-image", .encoder_count = 1, .denoiser = &sumi_two_stream_module, .controls = s_controls,          \
    .autoencoder = &sumi_qwen_vae_module, .time = qwen_image_time, .max_side = 4096,                                   \
    .guidance_formula = SUMI_GUIDANCE_FROM_NEGATIVE, .guidance_off = 1.0f,                                             \
    .guidance_rule = SUMI_GUIDANCE_NORM_RESCALE, .preview = sumi_preview_wan
#define VARIANTS(list) .variants = list, .variant_count = sizeof list / sizeof *list

// The features of all tokens up to and including the line "user" belong to the template: 34 tokens, 64 for the edit
// models. Prompts of the first model are cut to 1024 tokens without the template, and their features to 512; prompts of
// the edit models only to a reasonable length.
const sumi_recipe sumi_recipe_qwen_image = {
    .family = "qwen-image",
    EVERY_RECIPE,
    VARIANTS(s_variants),
    .encoders = {{.module = &sumi_language_model_module,
                  .settings = &s_language_model,
                  .network = "qwen2.5-vl",
                  .prompt = {.before = DESCRIBE,
                             .after = ANSWER,
                             .max_tokens = 1024 + 34,
                             .dropped_feature_rows = 34,
                             .max_feature_rows = 512}}},
    .describe = describe_qwen_image,
};

const sumi_recipe sumi_recipe_qwen_image_edit = {
    .family = "qwen-image-edit",
    EVERY_RECIPE,
    VARIANTS(s_edit_variants),
    .is_this_family = is_edit_family,
    .encoders = {{.module = &sumi_language_model_module,
                  .settings = &s_language_model,
                  .network = "qwen2.5-vl",
                  .prompt = {.before = EDIT,
                             .after = ANSWER,
                             .picture = PICTURE,
                             .picture_token = "<|image_pad|>",
                             .max_tokens = 2048,
                             .dropped_feature_rows = 64}}},
    .vision = &sumi_qwen_vision_module,
    .vision_settings = &s_vision,
    .vision_network = "qwen2.5-vl-vision",
    .references = {.min_count = 1,
                   .max_count = 1,
                   .autoencoder_area = 1024 * 1024,
                   .vision_area = 1024 * 1024,
                   .multiple = 32,
                   .max_ratio = 200},
    .describe = describe_edit,
};

const sumi_recipe sumi_recipe_qwen_image_edit_plus = {
    .family = "qwen-image-edit-plus",
    EVERY_RECIPE,
    VARIANTS(s_edit_plus_variants),
    .is_this_family = is_edit_plus_family,
    .encoders = {{.module = &sumi_language_model_module,
                  .settings = &s_language_model,
                  .network = "qwen2.5-vl",
                  .prompt = {.before = EDIT,
                             .after = ANSWER,
                             .picture = "Picture #: " PICTURE,
                             .picture_token = "<|image_pad|>",
                             .max_tokens = 2048,
                             .dropped_feature_rows = 64}}},
    .vision = &sumi_qwen_vision_module,
    .vision_settings = &s_vision,
    .vision_network = "qwen2.5-vl-vision",
    .references = {.max_count = 3,
                   .autoencoder_area = 1024 * 1024,
                   .vision_area = 384 * 384,
                   .multiple = 32,
                   .max_ratio = 200,
                   .size_follows_last = true},
    .describe = describe_edit_plus,
};
