// NewBie-image-Exp0.1: a transformer related to Lumina 2's; two text encoders, Gemma 3 (4B) for features of each token
// and the text tower of Jina CLIP v2 for one vector of the whole prompt; the autoencoder of Flux.
// How they compute: docs/architectures/newbie-image.md.
#include "models/autoencoders.h"
#include "models/config.h"
#include "models/language_model.h"
#include "models/next_dit.h"
#include "models/recipe.h"
#include "models/xlm_roberta.h"

#define MAX_SHIFT 1000.0f

// ---- What the authors say -------------------------------------------------------------------------------------------

// In the order of sumi_preset. MODEL is the authors' demo: 18 points of time, which are 17 steps, of the midpoint rule,
// with guidance while the time is below 0.25. STANDARD is the authors' workflow for ComfyUI, with similar quality in 20
// evaluations and 20 more for guidance instead of 34 and 23. The preset for previews has fewer steps. No adapter exists
// yet for FAST; the preset is a few steps without guidance.
#define EVERY_PRESET .strength = 0.6f
#define WHOLE_WAY .guidance_end = 1.0f
#define NOISY_PART .guidance_end = 0.25f
static const sumi_preset_values s_presets[SUMI_PRESET_COUNT] = {
    [SUMI_PRESET_MODEL] = {1024, 1024, 17, 5.0f, NOISY_PART, EVERY_PRESET, .solver = SUMI_SOLVER_MIDPOINT},
    [SUMI_PRESET_PREVIEW] = {768, 768, 12, 5.5f, WHOLE_WAY, EVERY_PRESET, .solver = SUMI_SOLVER_RES_MULTISTEP},
    [SUMI_PRESET_STANDARD] = {1024, 1024, 20, 5.5f, WHOLE_WAY, EVERY_PRESET, .solver = SUMI_SOLVER_RES_MULTISTEP},
    [SUMI_PRESET_QUALITY] = {1024, 1024, 27, 5.0f, NOISY_PART, EVERY_PRESET, .solver = SUMI_SOLVER_MIDPOINT},
    [SUMI_PRESET_FAST] = {1024, 1024, 8, 1.0f, WHOLE_WAY, EVERY_PRESET},
};

// The demo's sizes: multiples of 64 with about 1024 x 1024 pixels, and the size of the workflow.
#define BOTH_WAYS(a, b)                                                                                                \
    {a, b}, { b, a }
static const sumi_size s_sizes[] = {
    {1024, 1024},         BOTH_WAYS(1024, 1536), BOTH_WAYS(1088, 960), BOTH_WAYS(1024, 960), BOTH_WAYS(1152, 896),
    BOTH_WAYS(1088, 896), BOTH_WAYS(1216, 832),  BOTH_WAYS(1152, 832), BOTH_WAYS(1344, 768), BOTH_WAYS(1280, 768),
    BOTH_WAYS(1216, 768), BOTH_WAYS(1472, 704),  BOTH_WAYS(1408, 704), BOTH_WAYS(1344, 704), BOTH_WAYS(1600, 640),
    BOTH_WAYS(1536, 640), BOTH_WAYS(1472, 640),  BOTH_WAYS(1792, 576), BOTH_WAYS(1728, 576), BOTH_WAYS(1664, 576),
    BOTH_WAYS(1600, 576), BOTH_WAYS(2048, 512),  BOTH_WAYS(1984, 512), BOTH_WAYS(1920, 512), BOTH_WAYS(1856, 512),
    BOTH_WAYS(1792, 512)};

static const sumi_variant s_exp = {"exp0.1", 1024, s_presets, s_sizes, sizeof s_sizes / sizeof *s_sizes, NULL};
static const sumi_variant* const s_variants[] = {&s_exp};

// Released folders may have no scheduler; the shift is then the one that the authors' programs use.
static sumi_result describe_newbie(const sumi_checkpoint* checkpoint, sumi_sigma_rule* sigmas,
                                   const sumi_variant** variant, sumi_error* error)
{
    const sumi_file* scheduler = &checkpoint->scheduler;
    *sigmas = sumi_scheduler_defaults();
    sigmas->shift = 6.0f;
    SUMI_TRY(sumi_scheduler_read(scheduler->data, (size_t)scheduler->bytes, scheduler->path, sigmas, error));
    if (sigmas->kind != SUMI_SHIFT_STATIC || sigmas->shift >= MAX_SHIFT) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: NewBie-image needs a static shift between 0 and %g",
                         scheduler->path, (double)MAX_SHIFT);
    }
    *variant = &s_exp;
    return SUMI_OK;
}

// ---- Parts ----------------------------------------------------------------------------------------------------------

// hidden_states[-2]: the last layer and the final norm are not run
static const sumi_language_model_settings s_gemma3 = {.name = "Gemma 3",
                                                      .unused_layers = 1,
                                                      .has_qk_norm = true,
                                                      .norms_branches = true,
                                                      .adds_one = true,
                                                      .scales_embedding = true,
                                                      .activation = SUMI_ACT_GELU_TANH,
                                                      .theta = 1e6,
                                                      .window = 1024,
                                                      .full_every = 6,
                                                      .window_theta = 1e4,
                                                      .position_divisor = 8.0};

static const sumi_xlm_roberta_settings s_jina_clip = {
    .name = "Jina CLIP v2", .head_dim = 64, .theta = 20000.0, .eps = 1e-5f};

static const sumi_next_dit_settings s_transformer = {.name = "NewBie-image",
                                                     .x_embedder = "x_embedder",
                                                     .final_layer = "final_layer",
                                                     .modulation = "adaLN_modulation.1",
                                                     .pad_multiple = 1,
                                                     .reads_pooled = true,
                                                     .activates_condition = true,
                                                     .qk_eps = 1e-6f,
                                                     .theta = 10000.0,
                                                     .time_scale = 1.0,
                                                     .axes = {32, 32, 32}};

static float newbie_time(float sigma) { return 1.0f - sigma; }

// How captions began in training, those in XML and all others. The encoder of the pooled vector never read these words.
#define ASSISTANT "You are an assistant designed to generate high-quality anime images "
#define START "<Prompt Start>"
static const sumi_prompt_opening s_system = {
    .plain = ASSISTANT "with the highest degree of image-text alignment based on textual prompts. " START " ",
    .markup = ASSISTANT "based on xml format prompts. " START " ",
    .end_mark = START,
};

const sumi_recipe sumi_recipe_newbie = {
    .family = "newbie-image",
    .network = "newbie-image",
    .variants = s_variants,
    .variant_count = sizeof s_variants / sizeof *s_variants,
    .encoders = {{.module = &sumi_language_model_module,
                  .settings = &s_gemma3,
                  .network = "gemma3",
                  .token = "<bos>",
                  .token_id = 2,
                  .prompt = {.opening = &s_system, .max_tokens = 512, .adds_special = true}},
                 {.module = &sumi_xlm_roberta_module,
                  .settings = &s_jina_clip,
                  .network = "jina-clip",
                  .token = "<s>",
                  .token_id = 0,
                  .prompt = {.opening = &s_system,
                             .skips_opening = true,
                             .max_tokens = 512,
                             .adds_special = true,
                             .keeps_end_token = true}}},
    .encoder_count = 2,
    .denoiser = &sumi_next_dit_module,
    .denoiser_settings = &s_transformer,
    .autoencoder = &sumi_flux_vae_module,
    .time = newbie_time,
    .max_side = 4096,
    .guidance_formula = SUMI_GUIDANCE_FROM_NEGATIVE,
    .guidance_off = 1.0f,
    .guidance_rule = SUMI_GUIDANCE_NORM_LIMIT,
    .preview = sumi_preview_flux,
    .describe = describe_newbie,
};
