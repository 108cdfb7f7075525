// An opened checkpoint: what the engine knows of a network. Opening finds the recipe by the tensors (recipe.h) and
// binds its modules. After that the engine asks for properties (info), token ids, and plans (models/pipeline.h). This
// file knows no family's name, rules or numbers.
//
//   checkpoint files --open steps--> sumi_network { modules, weights, tokenizers, info } --sumi_pipeline_write--> plan
#ifndef SUMI_MODELS_NETWORK_H
#define SUMI_MODELS_NETWORK_H
#include "files/checkpoint.h"
#include "models/limits.h"
#include "pictures/picture_sizes.h"
#include "pictures/pixels.h"
#include "plan/plan.h"
#include "sampling/presets.h"
#include "sampling/schedule.h"

typedef struct sumi_network sumi_network; // an opened checkpoint; the public sumi_model holds one

typedef struct sumi_network_desc {
    const char* path; // a diffusers folder or a single file; may be NULL if the paths below are complete
    // Each of these overrides or completes `path`; NULL: taken from `path`. Components that the recipe does not use are
    // refused.
    const char *transformer_path, *text_encoder_path, *text_encoder_2_path, *vision_path, *vae_path;
    const char *tokenizer_path, *tokenizer_2_path, *processor_path;
    // name of a variant of the family, for files that do not show which one they are; NULL: found from the files
    const char* variant;
    // Opens no tokenizers, text encoders or vision tower; only features that were encoded before can be used.
    bool without_text_encoder;
    bool without_vae_encoder;
} sumi_network_desc;

// How a job of the family uses a start image. All zero: as most families.
typedef struct sumi_start_rule {
    sumi_posterior posterior;     // what sumi_image_defaults chooses
    sumi_mask_filter mask_filter; // how a mask gets the size of the latents
    // With a mask, the start image is the first reference too, before the host program's. It is read as the start image
    // is, resized and not cropped.
    bool is_reference;
} sumi_start_rule;

typedef struct sumi_network_info {
    const char* family;                                // "z-image"
    const char* variant;                               // "turbo" or "base"
    int32_t latent_channels;                           // 16
    int32_t vae_factor;                                // pixels per latent: 8
    int32_t picture_channels;                          // of the autoencoder's pictures; 3: RGB; 4: RGBA
    int32_t packing;                                   // of the latents (vae_tiles.h): 1
    int32_t size_multiple;                             // width and height must be multiples of this: 16
    int32_t max_side;                                  // largest width or height
    int32_t max_prompt_tokens;                         // tokens beyond this number are cut off
    int32_t min_prompt_tokens[SUMI_MAX_TEXT_ENCODERS]; // shorter prompts have no features
    int32_t text_encoder_count; // also the number of feature matrices per prompt; 1 for most families
    int32_t feature_width[SUMI_MAX_TEXT_ENCODERS];
    bool is_pooled[SUMI_MAX_TEXT_ENCODERS]; // features are one row for the whole prompt, not one row per token
    int32_t min_references, max_references; // reference pictures of a job; 0: none
    // References are part of prompts: a prompt is encoded with those of its job. False: any prompt goes with any
    // references.
    bool prompts_read_references;
    // The denoiser puts references into the rows of a prompt's features at which the text encoder read them, so an
    // encoded prompt has to say which rows these are. Only with prompts_read_references.
    bool prompts_place_references;
    // True: by default an image with references gets the size of the last one. False: of the first one.
    bool size_follows_last_reference;
    uint64_t reference_seed; // see sumi_network_noise_seed
    bool has_text_encoder;   // prompts can be encoded (tokenizer included)
    bool has_vision;         // prompts that read references can be encoded
    bool has_vae_decoder, has_vae_encoder;
    int32_t patch_size;     // latents along a side of an image token: 2
    sumi_sigma_rule sigmas; // the authors' schedule
    sumi_guidance_formula guidance_formula;
    float guidance_off;               // the value of guidance that means no guidance
    bool ignores_guidance;            // every other value is taken for that one
    sumi_guidance_rule guidance_rule; // the authors' own rule, never MODEL
    sumi_start_rule start;
    // SUMI_PRESET_COUNT presets in pixels for this checkpoint; the first one is the authors'. Then the sizes that the
    // authors name, the best one first. Both live as long as the network.
    const sumi_preset_values* presets;
    const char* preset_fault; // a sentence about presets in model_index.json that cannot be used; "": none
    // sentences about a file that does not say which of several models it is: what it is taken for; and why it takes no
    // references, and which variants do. "": none
    const char *variant_note, *edit_hint;
    const sumi_size* sizes;
    int32_t size_count;
    int32_t sample_size; // side of the pictures that the checkpoint was made for, in pixels: 1024
    // Side of a tile in tiled decoding, in latents: sample_size / vae_factor, as diffusers has it for the Flux
    // autoencoder. Its tiles for Qwen-Image are smaller, 32 latents. tile_latent * packing is a multiple of 4.
    int32_t tile_latent;
    bool has_long_strips;  // of the autoencoder: sumi_pipeline_request.long_strips has an effect
    uint64_t weight_bytes; // of all weights in use, in the types of the files
    // The same for the denoiser only, and its number of values.
    uint64_t denoiser_bytes, denoiser_values;
    // NULL: no factors are known for these latents, or previews would not have the size that sumi.h promises
    const sumi_preview_factors* preview;
    int32_t preview_scale; // pixels of a preview along a side for each pixel that the factors give: 1, or 2 and so on
} sumi_network_info;

#define SUMI_PREVIEW_FACTOR 8 // pixels of an image along a side for each of its preview

// The sides of VAE tiles to try, in latents, the largest first: the model's own, then halves of it, down to the
// smallest that is useful. tile: the side before it, 0 for the first one. Returns 0 after the last.
int32_t sumi_network_smaller_tile(const sumi_network_info* info, int32_t tile);

// Opening in steps, so that it fits into frames of the host program: begin, then step until *out_done. A step stops
// soon after budget_us; one piece of work takes less than a few milliseconds. After a failure, or to cancel, close the
// network. `desc` and its texts are copied. progress is 0..1.
sumi_result sumi_network_open_begin(sumi_heap* heap, const sumi_files* files, const sumi_network_desc* desc,
                                    sumi_error* error, sumi_network** out_network);
sumi_result sumi_network_open_step(sumi_network* network, uint32_t budget_us, bool* out_done, float* out_progress,
                                   sumi_error* error);
// accepts NULL and half-opened networks; no plan of the network may be in use
void sumi_network_close(sumi_network* network);

const sumi_network_info* sumi_network_get_info(const sumi_network* network); // valid once opening is done
// All weights that plans of this network may use. The weight at index i has weight->index == i.
const sumi_weight* const* sumi_network_weights(const sumi_network* network, int32_t* out_count);

// The sizes in which a network reads a reference picture. first and vision are zero if no vision tower was opened.
typedef struct sumi_reference_sizes {
    sumi_picture_size resized;     // by Lanczos from the picture
    int32_t left, top;             // of the window of the resized picture that the autoencoder reads
    sumi_picture_size autoencoder; // the size of this window
    sumi_picture_size first;       // resized by Lanczos from the picture; before the vision tower's own resize
    sumi_picture_size vision;      // resized by bicubic from `first`; whole cells of the tower, within its limits
    int32_t tokens;                // tokens of the picture in a prompt
} sumi_reference_sizes;
// SUMI_INVALID_ARGUMENT: the picture is too long and narrow, or too small.
sumi_result sumi_network_reference_sizes(const sumi_network* network, sumi_picture_size picture,
                                         sumi_reference_sizes* out_sizes, sumi_error* error);
// The size of an image without one whose start image is its first reference (sumi_start_rule). Fails as above.
sumi_result sumi_network_start_size(const sumi_network* network, sumi_picture_size picture, sumi_picture_size* out_size,
                                    sumi_error* error);

// How many ids a text encoder reads for a prompt of this many tokens: one for each token, and those of padding.
int32_t sumi_network_id_rows(const sumi_network* network, int32_t encoder, int32_t token_count);

// How many rows of features a text encoder passes on for a prompt of this many tokens, padding not counted in.
int32_t sumi_network_feature_rows(const sumi_network* network, int32_t encoder, int32_t token_count);

// The row of a prompt's features that a token becomes. Below 0: it belongs to the beginning of the template that is not
// passed on.
int32_t sumi_network_feature_row(const sumi_network* network, int32_t encoder, int32_t token);

// The seed with which the noise of an image is drawn. Some models tend to return a reference as it is if an edit begins
// with the very noise from which that reference was drawn, that is, with its seed. Their edits draw another noise.
static inline uint64_t sumi_network_noise_seed(const sumi_network_info* info, uint64_t seed, bool has_references)
{
    return has_references ? seed ^ info->reference_seed : seed;
}

// The time input of the network for a noise level; it goes into the `times` table of a plan.
float sumi_network_time(const sumi_network* network, float sigma);

// ---- Adapters -------------------------------------------------------------------------------------------------------

// Changes of weights, read from a file or from a folder, for one network, which must outlive them.
typedef struct sumi_adapter_file sumi_adapter_file;
// Opening in steps: begin, then step until *out_done. A step ends soon after budget_us; one layer takes milliseconds, or
// a few tenths of a second if it has norms (DoRA) and is large. After a failure, or to cancel, close the file.
// SUMI_TIMEOUT of begin, only with the files of a sumi_file_cache: nothing was done, and a file has to be read before
// the next call.
sumi_result sumi_adapter_open_begin(sumi_heap* heap, const sumi_files* files, const sumi_network* network,
                                    const char* path, sumi_error* error, sumi_adapter_file** out_file);
sumi_result sumi_adapter_open_step(sumi_adapter_file* file, uint32_t budget_us, bool* out_done, float* out_progress,
                                   sumi_error* error);
void sumi_adapter_close(sumi_adapter_file* file); // accepts NULL and half-opened files
// The changes of the denoiser, and those of the text encoders. None before opening is done.
const sumi_adapter* sumi_adapter_get(const sumi_adapter_file* file);
const sumi_adapter* sumi_adapter_get_text(const sumi_adapter_file* file);
// What was left out of the file, as a sentence for the log; "" if nothing was.
const char* sumi_adapter_notice(const sumi_adapter_file* file);
#endif
