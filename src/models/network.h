// An opened checkpoint: what the engine knows of a network. Opening finds the recipe by the tensors (recipe.h) and binds
// its parts; from then on the engine asks for facts (info), token ids, and plans (models/pipeline.h). No family's name,
// rule or number is known here.
//
//   checkpoint files --open steps--> sumi_network { parts, weights, tokenizers, info } --sumi_pipeline_write--> plan
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
    const char* path; // a diffusers folder or a single file; may be NULL when the parts below are complete
    // Each overrides or completes `path`; NULL: from path. Components that the recipe has no use for are refused.
    const char *transformer_path, *text_encoder_path, *text_encoder_2_path, *vision_path, *vae_path;
    const char *tokenizer_path, *tokenizer_2_path, *processor_path;
    const char* variant; // a variant of the family, for files that do not say which they are; NULL: by the files
    // neither tokenizers, text encoders nor a vision tower are opened; only features made before can be used
    bool without_text_encoder;
    bool without_vae_encoder;
} sumi_network_desc;

typedef struct sumi_network_info {
    const char* family;                                // "z-image"
    const char* variant;                               // "turbo" or "base"
    int32_t latent_channels;                           // 16
    int32_t vae_factor;                                // pixels per latent: 8
    int32_t size_multiple;                             // width and height must be multiples of this: 16
    int32_t max_side;                                  // largest width or height
    int32_t max_prompt_tokens;                         // ids beyond this are cut off
    int32_t min_prompt_tokens[SUMI_MAX_TEXT_ENCODERS]; // fewer make no features
    int32_t text_encoder_count;                        // matrices of features per prompt; 1 for most families
    int32_t feature_width[SUMI_MAX_TEXT_ENCODERS];
    bool is_pooled[SUMI_MAX_TEXT_ENCODERS]; // features are one row for the whole prompt, not one for each token
    int32_t min_references, max_references; // pictures that a job refers to; 0: none
    // without a size of its own a picture gets that of its last reference; else of its first
    bool size_follows_last_reference;
    bool has_text_encoder; // prompts can be encoded (tokenizer included)
    bool has_vision;       // prompts with references can be encoded
    bool has_vae_decoder, has_vae_encoder;
    int32_t patch_size;     // latents along a side of an image token: 2
    sumi_sigma_rule sigmas; // the authors' schedule
    sumi_guidance_formula guidance_formula;
    float guidance_off;               // the number of guidance that means none
    sumi_guidance_rule guidance_rule; // the authors' own: never MODEL
    // SUMI_PRESET_COUNT of them, in pixels for this checkpoint; the first is what the authors say. Theirs too: the sizes
    // that they name, the best one first. Both live as long as the network.
    const sumi_preset_values* presets;
    const sumi_size* sizes;
    int32_t size_count;
    int32_t sample_size; // side of the pictures the checkpoint was made for, in pixels: 1024
    // side of a tile in tiled decoding, in latents: sample_size / vae_factor, as the reference has it
    int32_t tile_latent;
    uint64_t weight_bytes; // of all weights in use, in the files' types
    // The same of the denoiser alone, and how many numbers it has.
    uint64_t denoiser_bytes, denoiser_values;
    const sumi_preview_factors* preview; // NULL: none known for this latent
} sumi_network_info;

// Opening in pieces, so that it fits into a host's frames: begin, then step until *out_done. A step stops soon after
// budget_us (one piece of work is below a few milliseconds). After a failure, or to cancel, close the network. `desc`
// and its texts are copied. progress is 0..1.
sumi_result sumi_network_open_begin(sumi_heap* heap, const sumi_files* files, const sumi_network_desc* desc,
                                    sumi_error* error, sumi_network** out_network);
sumi_result sumi_network_open_step(sumi_network* network, uint32_t budget_us, bool* out_done, float* out_progress,
                                   sumi_error* error);
void sumi_network_close(sumi_network* network); // accepts NULL and half-opened ones. No plan of it may be in use

const sumi_network_info* sumi_network_get_info(const sumi_network* network); // valid once open is done
// Every weight that plans of this network may use, for residency; index i has weight->index == i.
const sumi_weight* const* sumi_network_weights(const sumi_network* network, int32_t* out_count);

// Token ids of a prompt for text encoder `encoder`, inside the recipe's template and cut to max_prompt_tokens, which
// always suffice as capacity. Uses scratch of the network's tokenizer: one thread at a time per network.
sumi_result sumi_network_tokenise(sumi_network* network, int32_t encoder, const char* text, size_t bytes, int32_t* ids,
                                  int32_t capacity, int32_t* out_count, sumi_error* error);

// The same with pictures in the prompt.
typedef struct sumi_prompt_text {
    const char* text;
    size_t bytes;
    // Tokens that each reference takes: as many as the vision tower makes rows of it.
    const int32_t* picture_tokens;
    int32_t picture_count;
    // NULL, or where to write how many tokens the encoder or the transformer has no place for: ids that were cut off,
    // and rows of features that will not be handed on.
    int32_t* out_cut;
} sumi_prompt_text;
// out_picture_rows: picture_count indices into ids, where the tokens of each begin. max_prompt_tokens and all
// picture_tokens together always suffice as capacity.
sumi_result sumi_network_tokenise_pictures(sumi_network* network, int32_t encoder, const sumi_prompt_text* prompt,
                                           int32_t* ids, int32_t capacity, int32_t* out_count,
                                           int32_t* out_picture_rows, sumi_error* error);

// The sizes in which a network that takes references sees a picture. first and vision are zero when no vision tower was
// opened.
typedef struct sumi_reference_sizes {
    sumi_picture_size autoencoder; // by Lanczos from the picture
    sumi_picture_size first;       // likewise, before the vision tower's own resize
    sumi_picture_size vision;      // by bicubic from `first`: whole cells of the tower within its limits
    int32_t tokens;                // that the picture takes in a prompt
} sumi_reference_sizes;
// SUMI_INVALID_ARGUMENT: the picture is too long and narrow.
sumi_result sumi_network_reference_sizes(const sumi_network* network, sumi_picture_size picture,
                                         sumi_reference_sizes* out_sizes, sumi_error* error);

// How many rows of features a text encoder hands on for so many ids.
int32_t sumi_network_feature_rows(const sumi_network* network, int32_t encoder, int32_t token_count);

// The time the network is told for a noise level; goes into the `times` table of a plan.
float sumi_network_time(const sumi_network* network, float sigma);

// ---- Adapters (LoRA, LoKr) ------------------------------------------------------------------------------------------

// Changes of weights read from a file, or from the folder that it was saved in, for one network, which must outlive
// them.
typedef struct sumi_adapter_file sumi_adapter_file;
// SUMI_TIMEOUT, of a sumi_file_cache's files: nothing was done, and a file has to be read before the next call.
sumi_result sumi_adapter_open(sumi_heap* heap, const sumi_files* files, const sumi_network* network, const char* path,
                              sumi_error* error, sumi_adapter_file** out_file);
void sumi_adapter_close(sumi_adapter_file* file); // accepts NULL
const sumi_adapter* sumi_adapter_get(const sumi_adapter_file* file);
#endif
