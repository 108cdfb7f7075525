// A recipe says what a family of networks is: its parts, with their settings, and its rules. It is the only place with
// a family's name and numbers. A new family of known parts is one file recipe_*.c with one of these, and a line in
// recipes.c.
#ifndef SUMI_MODELS_RECIPE_H
#define SUMI_MODELS_RECIPE_H
#include "files/checkpoint.h"
#include "models/network.h"
#include "models/network_modules.h"

// Words in front of a text that depend on what the text is. An empty text has none.
typedef struct sumi_prompt_opening {
    const char* plain;  // of most texts
    const char* markup; // of one whose first character, blanks aside, is '<'
    // What the words end with. A text that holds it brings its own: what is in front of it stays as it is. One that
    // begins with it has none, and the mark itself goes.
    const char* mark;
} sumi_prompt_opening;

// What a prompt's text is put into before it becomes tokens.
typedef struct sumi_prompt_template {
    const char *before, *after;         // NULL: nothing
    const sumi_prompt_opening* opening; // NULL: none
    bool skips_opening;                 // this encoder reads what is behind the words of the opening alone
    bool keeps_last;                    // a text that is cut off keeps the token behind its end, as adds_special has it
    // In front of the text, once for every reference: `picture`, with the reference's number from 1 on in place of '#'.
    // NULL: references do not stand in prompts. picture_token is the token in there that stands for the picture; there
    // become as many of it as the picture has rows.
    const char *picture, *picture_token;
    int32_t max_tokens; // ids beyond are cut off, the end of the template with them, as the references do
    bool adds_special;  // the tokens that the tokenizer's own rules put around a text (BOS, EOS)
    // Features of the first so many tokens, which are the template's, are not handed on.
    int32_t dropped_rows;
    int32_t max_rows; // of features that are handed on; 0: all
} sumi_prompt_template;

typedef struct sumi_recipe_encoder {
    const sumi_text_encoder_module* part;
    const void* settings;
    const char* network; // of its tensors in signatures.c
    // A token of its tokenizer, by which another encoder's is told: their ids would be taken for its own. NULL: none.
    const char* token;
    int32_t token_id;
    sumi_prompt_template prompt;
} sumi_recipe_encoder;

// What pictures a job of the family may refer to, and in what sizes the network sees them. All zero: it takes none.
typedef struct sumi_reference_rule {
    int32_t min_count, max_count;
    // Areas in pixels of what is made of a picture: for the autoencoder, and for the vision tower before that brings it
    // to whole cells within its own limits. Both keep the picture's ratio of sides, in multiples of `multiple`.
    int64_t autoencoder_area, first_area;
    int32_t multiple;
    // Of the longer to the shorter side, beyond which the vision tower takes no picture.
    int32_t max_ratio;
    // A picture for which nobody gives a size gets that of the last reference, as the autoencoder sees it; else of the
    // first.
    bool size_follows_last;
} sumi_reference_rule;

// What the checkpoints of one family differ in by their authors' word.
typedef struct sumi_variant {
    const char* name;
    int32_t made_for; // side in pixels of the pictures that presets and sizes are for; other checkpoints scale them
    const sumi_preset_values* presets; // SUMI_PRESET_COUNT of them, in the order of sumi_preset
    const sumi_size* sizes;            // up to SUMI_MAX_SIZES, the best one first
    int32_t size_count;
    const void* denoiser_settings; // in place of the recipe's; NULL: those
} sumi_variant;

typedef struct sumi_recipe {
    const char* family;  // "z-image"
    const char* network; // of its transformer in signatures.c
    // Whether a checkpoint with this transformer is of this family, where several families share one. NULL: it is.
    bool (*claims)(const sumi_checkpoint* checkpoint);
    const sumi_variant* const* variants; // a caller may ask for one by name
    int32_t variant_count;
    sumi_recipe_encoder encoders[SUMI_MAX_TEXT_ENCODERS];
    int32_t encoder_count;
    const sumi_vision_module* vision; // NULL: none
    const void* vision_settings;
    const sumi_denoiser_module* denoiser;
    const void* denoiser_settings;
    const sumi_autoencoder_module* autoencoder;
    const void* autoencoder_settings;
    // The time that the network is told for a noise level.
    float (*time)(float sigma);
    int32_t max_side; // most pixels along one side
    sumi_reference_rule references;
    sumi_guidance_formula guidance_formula;
    float guidance_off; // the number of guidance that means none
    sumi_guidance_rule guidance_rule;
    const sumi_preview_factors* (*preview)(void);
    // Before any part is bound: the schedule by the checkpoint's files, and which variant it is, if *variant is NULL;
    // else the caller has said.
    sumi_result (*describe)(const sumi_checkpoint* checkpoint, sumi_sigma_rule* sigmas, const sumi_variant** variant,
                            sumi_error* error);
} sumi_recipe;

// The recipe number `index` of those that this library has; NULL behind the last one.
const sumi_recipe* sumi_recipe_get(int32_t index);

// Whether this library was built without the recipes for a transformer that signatures.c knows.
bool sumi_recipe_is_left_out(const char* network);

extern const sumi_recipe sumi_recipe_z_image, sumi_recipe_newbie;
extern const sumi_recipe sumi_recipe_qwen_image, sumi_recipe_qwen_image_edit, sumi_recipe_qwen_image_edit_plus;
#endif
