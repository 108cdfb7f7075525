// The modules that a network consists of:
//
//   text encoders   token ids -> features                         language_model.h, xlm_roberta.h
//   vision tower    a picture -> rows that take the place of tokens in a prompt        qwen_vision.h, qwen3_vision.h
//   denoiser        latents, features, time -> velocities         next_dit.h, two_stream.h, flux_dit.h, prefix_dit.h
//   autoencoder     pixels <-> latents                            autoencoders.h; cut into tiles by vae_tiles.h
//
// Each kind of module is a table of functions over a model struct of the module's own. A module knows tensors and ops,
// but no family: whatever differs between two networks that use it comes from its settings, which the recipe gives
// (recipe.h), from the component's config.json, and from the shapes of the tensors.
//
// A model is zeroed memory of `model_bytes`, freed with the network. Memory beyond that comes from the binder's weight
// list. `bind` keeps its first failure in the binder.
#ifndef SUMI_MODELS_NETWORK_MODULES_H
#define SUMI_MODELS_NETWORK_MODULES_H
#include "models/block_residuals.h"
#include "models/config.h"
#include "models/limits.h"
#include "models/vae_tiles.h"
#include "models/weights.h"
#include "plan/plan.h"

// ---- Text encoders --------------------------------------------------------------------------------------------------

#define SUMI_MAX_DEEP_LEVELS 4

// A picture inside a prompt: grid_height * grid_width tokens from row `row` on, row by row. Their embeddings are the
// rows of `value` from value_row on. The same rows of deep[i] are added to theirs after layer i (DeepStack). The
// encoder has at least deep_count layers.
typedef struct sumi_text_picture {
    int32_t row;
    int32_t grid_height, grid_width;
    sumi_value value, deep[SUMI_MAX_DEEP_LEVELS]; // [.., row_width of the encoder]
    int32_t value_row, deep_count;
} sumi_text_picture;

typedef struct sumi_text_batch {
    sumi_value ids; // [rows, 1]: the prompts one after another, all but the first without their first `shared` tokens
    const int32_t* counts; // tokens of each prompt; each prompt is a separate sequence, from position 0 on
    int32_t prompt_count;
    // Rows of each prompt: the ids of its tokens are followed by ids of padding up to this number. Padding has
    // features too: it sees the tokens of its prompt and no other padding, and nothing sees it. 0: no prompt has
    // padding. Not with `shared`, and only if properties.takes_padding.
    int32_t padded_rows;
    // Number of tokens, pictures included, with which all prompts begin; less than the length of any prompt. 0 if not
    // properties.shares_beginning.
    int32_t shared;
    const sumi_text_picture* pictures; // sorted by row
    int32_t picture_count;
} sumi_text_batch;

typedef struct sumi_text_encoder_properties {
    int32_t width;      // of the features
    int32_t row_width;  // of the encoder's own rows, which rows of pictures may replace
    int32_t vocabulary; // ids are below this
    bool pools;         // one row of features per prompt instead of one per token
    bool takes_pictures;
    int32_t layer_count; // if takes_pictures: rows of pictures may be added after this many layers
    bool takes_padding;
    bool shares_beginning; // the features of a token depend only on the tokens before it (sumi_text_batch.shared)
} sumi_text_encoder_properties;

typedef struct sumi_text_encoder_module {
    size_t model_bytes;
    sumi_result (*bind)(void* model, const void* settings, sumi_binder* binder, const sumi_module_config* config);
    sumi_text_encoder_properties (*properties)(const void* model);
    // Returns [rows of ids, width], or [prompt_count, width] if the encoder pools.
    sumi_value (*write)(const void* model, sumi_plan* plan, const sumi_text_batch* batch);
} sumi_text_encoder_module;

// ---- Vision towers --------------------------------------------------------------------------------------------------

typedef struct sumi_vision_properties {
    int32_t width; // of its output rows
    int32_t cell;  // side in pixels of the square that one row represents
    int32_t deep_count;
    // The limits of a picture's area in pixels, between which it is resized.
    int64_t min_pixels, max_pixels;
} sumi_vision_properties;

// A picture's rows, [(height / cell) * (width / cell), width], row by row: as in sumi_text_picture.
typedef struct sumi_vision_rows {
    sumi_value value, deep[SUMI_MAX_DEEP_LEVELS]; // deep: deep_count of the properties
} sumi_vision_rows;

typedef struct sumi_vision_module {
    size_t model_bytes;
    // processor: preprocessor_config.json
    sumi_result (*bind)(void* model, const void* settings, sumi_binder* binder, const sumi_module_config* config,
                        const sumi_module_config* processor);
    sumi_vision_properties (*properties)(const void* model);
    // pixels: 8-bit RGB [height * width, 3], both sides multiples of the cell.
    sumi_vision_rows (*write)(const void* model, sumi_plan* plan, sumi_value pixels, int32_t height, int32_t width);
} sumi_vision_module;

// ---- Denoisers ------------------------------------------------------------------------------------------------------

// The features of a prompt inside a plan: rows [row, row + count) of `value`, one entry per text encoder. count is 1 if
// the encoder pools.
typedef struct sumi_prompt_features {
    sumi_value value[SUMI_MAX_TEXT_ENCODERS];
    int32_t row[SUMI_MAX_TEXT_ENCODERS], count[SUMI_MAX_TEXT_ENCODERS];
    // For denoisers that put references into the text: the rows that each reference replaces, counted from the prompt's
    // first row, in the order of the references. These rows are not read.
    sumi_span references[SUMI_MAX_REFERENCE_LATENTS];
    // Of its last rows: those that have positions and that no other row sees. 0: none.
    int32_t padding;
} sumi_prompt_features;

// One evaluation inside a batch: the item whose latents it reads, and its prompt.
typedef struct sumi_evaluation {
    int32_t item, prompt;
} sumi_evaluation;

// Evaluations that are written as one. A job has two such lists, slots 0 and 1.
typedef struct sumi_evaluation_list {
    const sumi_evaluation* evaluations;
    int32_t count, slot;
} sumi_evaluation_list;

// A reference picture as latents.
typedef struct sumi_reference_latents {
    sumi_value latents;    // [channels, height * width], clean
    int32_t height, width; // of the latents
} sumi_reference_latents;

// The parts of an evaluation that are written (block_residuals.h).
typedef enum sumi_evaluation_kind {
    SUMI_EVALUATION_PLAIN, // all blocks
    SUMI_EVALUATION_WHOLE, // all blocks, and keeps residuals for reused evaluations
    SUMI_EVALUATION_REUSED // the first block, and the residual of the others from the last whole evaluation
} sumi_evaluation_kind;

// State that the functions of one plan pass to each other. `state` belongs to the module, is zeroed at first, and lives
// while the plan is written.
typedef struct sumi_denoising {
    int32_t height, width; // of the latents
    const sumi_prompt_features* prompts;
    int32_t prompt_count;
    const sumi_reference_latents* references; // all items read all of them; up to SUMI_MAX_REFERENCE_LATENTS
    int32_t reference_count;
    // Number of rows, those of references included, with which the features of all prompts begin alike; less than any
    // prompt has. 0: not known.
    int32_t shared_rows;
    int32_t evaluation_count;  // rows of times
    sumi_value times;          // [evaluations, 1]
    bool computes_unused_rows; // also computes rows that nothing reads, as the reference does
    // Whether write_layout makes residuals[slot], which evaluations of the kinds WHOLE and REUSED need. Not together
    // with computes_unused_rows.
    bool keeps_residuals;
    sumi_evaluation_kind kind;                   // of the next call of write_evaluation
    const struct sumi_planned_control* controls; // nets that add hints (control_module.h); up to SUMI_MAX_CONTROLS
    int32_t control_count;
    uint32_t active_controls; // of the next call of write_evaluation: bit k for controls[k]
    sumi_block_residuals residuals[2];
    sumi_extrapolation extrapolation; // for WHOLE and REUSED
    // Written by write_evaluation of a WHOLE one: what it would have returned as a REUSED one.
    sumi_value reused_velocities;
    void* state;
} sumi_denoising;

typedef struct sumi_denoiser_properties {
    int32_t channels;     // of the latents
    int32_t patch;        // latents along the side of a token; sizes are multiples of it
    int32_t stream_width; // values in a row of the stream that control nets add to
    // width of the features that it reads from each text encoder; 0: none
    int32_t feature_width[SUMI_MAX_TEXT_ENCODERS];
    bool reads_pooled[SUMI_MAX_TEXT_ENCODERS]; // reads one row, from an encoder that pools
    bool takes_references;
    bool places_references; // reads sumi_prompt_features.references; with takes_references
} sumi_denoiser_properties;

typedef struct sumi_denoiser_module {
    size_t model_bytes, state_bytes;
    sumi_result (*bind)(void* model, const void* settings, sumi_binder* binder, const sumi_module_config* config);
    sumi_denoiser_properties (*properties)(const void* model);
    // Writes values that depend neither on latents nor on the list of evaluations: captions, and the modulation tables
    // of all evaluations.
    void (*write_prepare)(const void* model, sumi_plan* plan, sumi_denoising* job);
    // Writes values that depend only on the list of evaluations, such as rotary tables and residuals.
    void (*write_layout)(const void* model, sumi_plan* plan, sumi_denoising* job, const sumi_evaluation_list* list);
    // Writes one evaluation of the whole batch: latents [items * channels, h * w] -> velocities d x / d sigma [count *
    // channels, h * w], in the order of the list.
    sumi_value (*write_evaluation)(const void* model, sumi_plan* plan, sumi_denoising* job,
                                   const sumi_evaluation_list* list, sumi_value latents);
} sumi_denoiser_module;

// ---- Autoencoders ---------------------------------------------------------------------------------------------------

typedef struct sumi_autoencoder_properties {
    int32_t channels;         // of the denoiser's latents
    int32_t factor;           // pixels per latent along a side
    int32_t packing;          // of latents: sumi_vae_tiling
    int32_t picture_channels; // 3: RGB; 4: RGBA, straight alpha as a channel like the others
    int32_t sample_size;      // side of the pictures that it was made for, in pixels; 0: not given in its files
    bool has_encoder, has_decoder;
    bool has_long_strips; // long_strips of sumi_vae_tiling has an effect
} sumi_autoencoder_properties;

typedef struct sumi_autoencoder_module {
    size_t model_bytes;
    sumi_result (*bind)(void* model, const void* settings, sumi_binder* binder, const sumi_module_config* config,
                        bool without_encoder);
    sumi_autoencoder_properties (*properties)(const void* model);
    // For the functions of vae_tiles.h, which write decoders and encoders. It lives as long as the model.
    sumi_vae_tiling (*tiling)(const void* model);
} sumi_autoencoder_module;
#endif
