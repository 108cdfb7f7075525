// A model family behind one face: what the engine knows of a network. Opening a checkpoint finds the family by its
// tensors; from then on the engine asks for facts (info), token ids, and plans (models/pipeline.h). A new family is one
// table of functions (sumi_family) and its own files; the engine does not change.
//
//   checkpoint files --open steps--> sumi_network { weights, tokenizer, facts } --sumi_pipeline_write--> plan
#ifndef SUMI_MODELS_FAMILY_H
#define SUMI_MODELS_FAMILY_H
#include "files/checkpoint.h"
#include "plan/plan.h"
#include "sampling/pixels.h"
#include "sampling/presets.h"
#include "sampling/schedule.h"

#define SUMI_MAX_TEXT_ENCODERS 2 // NewBie-image has two
#define SUMI_MAX_ITEMS 64        // pictures in one job
#define SUMI_MAX_PROMPTS 128     // distinct prompts in one job: a positive and a negative one per picture

typedef struct sumi_network sumi_network; // an opened checkpoint; the public sumi_model holds one

typedef struct sumi_network_desc {
    const char* path; // a diffusers folder or a single file; may be NULL when the parts below are complete
    // each overrides or completes `path`; NULL: from path
    const char *transformer_path, *text_encoder_path, *tokenizer_path, *vae_path;
    bool without_text_encoder; // neither tokenizer nor text encoder are opened; only features made before can be used
    bool without_vae_encoder;
} sumi_network_desc;

typedef struct sumi_network_info {
    const char* family;         // "z-image"
    const char* variant;        // "turbo" or "base"
    int32_t latent_channels;    // 16
    int32_t vae_factor;         // pixels per latent: 8
    int32_t size_multiple;      // width and height must be multiples of this: 16
    int32_t max_side;           // largest width or height
    int32_t max_prompt_tokens;  // ids beyond this are cut off: 512
    int32_t text_encoder_count; // matrices of features per prompt; 1 for most families
    int32_t feature_width[SUMI_MAX_TEXT_ENCODERS];
    bool has_text_encoder; // prompts can be encoded (tokenizer included)
    bool has_vae_decoder, has_vae_encoder;
    int32_t patch_size;     // latents along a side of an image token: 2
    sumi_sigma_rule sigmas; // the authors' schedule
    sumi_guidance_formula guidance_formula;
    float guidance_off;               // the number of guidance that means none
    sumi_guidance_rule guidance_rule; // the authors' own: never MODEL
    // SUMI_PRESET_COUNT of them, in pixels for this checkpoint; the first is what the authors say. Theirs too: the sizes
    // that they name, the best one first. Both live as long as the network
    const sumi_preset_values* presets;
    const sumi_size* sizes;
    int32_t size_count;
    int32_t sample_size; // side of the pictures the checkpoint was made for, in pixels: 1024
    // side of a tile in tiled decoding, in latents: sample_size / vae_factor, as the reference has it
    int32_t tile_latent;
    uint64_t weight_bytes;               // of all weights in use, in the files' types
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

// Token ids of a prompt for text encoder `encoder`, inside the family's template and cut to max_prompt_tokens.
// out_count is at most the capacity needed:
// max_prompt_tokens always suffices. Uses scratch of the network's tokenizer: one thread at a time per network.
sumi_result sumi_network_tokenise(sumi_network* network, int32_t encoder, const char* text, size_t bytes, int32_t* ids,
                                  int32_t capacity, int32_t* out_count, sumi_error* error);

// The time the network is told for a noise level; goes into the `times` table of a plan.
float sumi_network_time(const sumi_network* network, float sigma);

// ---- Adapters (LoRA) ------------------------------------------------------------------------------------------------

// A low-rank change read from a file for one network. The network must outlive it.
typedef struct sumi_adapter_file sumi_adapter_file;
sumi_result sumi_adapter_open(sumi_heap* heap, const sumi_files* files, const sumi_network* network, const char* path,
                              sumi_error* error, sumi_adapter_file** out_file);
void sumi_adapter_close(sumi_adapter_file* file); // accepts NULL
const sumi_adapter* sumi_adapter_get(const sumi_adapter_file* file);

// ---- What a family supplies (for models/ only) ----------------------------------------------------------------------

// A prompt's features inside a plan: rows [row, row + count) of `features`, one entry per text encoder.
typedef struct sumi_prompt_features {
    sumi_value value[SUMI_MAX_TEXT_ENCODERS];
    int32_t row[SUMI_MAX_TEXT_ENCODERS], count[SUMI_MAX_TEXT_ENCODERS];
} sumi_prompt_features;

// One evaluation of the network inside a batch: which item's latents it sees and which prompt it reads.
typedef struct sumi_evaluation {
    int32_t item, prompt;
} sumi_evaluation;

// What the pieces of one plan hand to each other. `state` is the family's own, zeroed, and lives while the plan is
// written.
typedef struct sumi_denoiser {
    int32_t height, width; // latent size
    const sumi_prompt_features* prompts;
    int32_t prompt_count;
    int32_t evaluation_count; // rows of times
    sumi_value times;         // [evaluations, 1]
    bool whole;               // compute rows that nothing reads too, as the reference does (for tests)
    void* state;
} sumi_denoiser;

typedef struct sumi_family {
    const char* name;
    bool (*recognises)(const sumi_checkpoint* checkpoint); // once its files are open
    // Opens in steps like sumi_network_open_step; `stage` counts from 0 and the function sets *out_done with the last
    // one.
    sumi_result (*open_step)(sumi_network* network, int32_t stage, size_t item_budget, bool* out_stage_done,
                             bool* out_done, float* out_progress, sumi_error* error);
    void (*close)(sumi_network* network);
    sumi_result (*tokenise)(sumi_network* network, int32_t encoder, const char* text, size_t bytes, int32_t* ids,
                            int32_t capacity, int32_t* out_count, sumi_error* error);
    float (*time)(const sumi_network* network, float sigma);
    // Text: ids of all prompts of encoder `encoder` in one matrix [sum of counts, 1]; returns the features of all [sum
    // of counts, width].
    sumi_value (*write_text)(const sumi_network* network, sumi_plan* plan, int32_t encoder, sumi_value ids,
                             const int32_t* counts, int32_t prompt_count);
    size_t state_bytes; // of sumi_denoiser.state
    // What depends neither on latents nor on the list of evaluations: captions, modulation tables of all evaluations at
    // once.
    void (*write_prepare)(const sumi_network* network, sumi_plan* plan, sumi_denoiser* denoiser);
    // What depends on the list of evaluations alone, such as rotary tables; `slot` (0 or 1) is handed back to
    // write_evaluation.
    void (*write_layout)(const sumi_network* network, sumi_plan* plan, sumi_denoiser* denoiser, int32_t slot,
                         const sumi_evaluation* list, int32_t count);
    // One evaluation of the whole batch: latents [items * channels, h * w] -> velocities d x / d sigma [count *
    // channels, h * w], in the list's order.
    sumi_value (*write_evaluation)(const sumi_network* network, sumi_plan* plan, sumi_denoiser* denoiser, int32_t slot,
                                   sumi_value latents, const sumi_evaluation* list, int32_t count);
    // Pixels of item `counter` of latents into picture [items * H * W, 3]; tile_latent 0: whole.
    void (*write_decode)(const sumi_network* network, sumi_plan* plan, sumi_value latents, int32_t height,
                         int32_t width, int32_t tile_latent, sumi_value picture);
    // 8-bit RGB [H * W, 3] -> moments picture [h * w, 2 * channels]; tile_latent 0: whole.
    sumi_value (*write_encode)(const sumi_network* network, sumi_plan* plan, sumi_value pixels, int32_t height,
                               int32_t width, int32_t tile_latent);
    // Moments and noise (SUMI_NO_VALUE: the mode) to latents [channels, h * w].
    void (*write_posterior)(const sumi_network* network, sumi_plan* plan, sumi_value moments, sumi_value eps,
                            sumi_value latents);
} sumi_family;
extern const sumi_family sumi_family_z_image;
#endif
