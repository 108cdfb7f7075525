// A recipe describes a family of networks: its modules with their settings, and its rules. Only recipes have a family's
// name and numbers. A new family made of known modules is one file recipe_*.c with such a struct, and a line in
// recipes.c.
#ifndef SUMI_MODELS_RECIPE_H
#define SUMI_MODELS_RECIPE_H
#include "files/checkpoint.h"
#include "models/network.h"
#include "models/network_modules.h"
#include "pictures/pixels.h"

// Words before a text that depend on the kind of text. An empty text has none.
typedef struct sumi_prompt_opening {
    const char* plain;  // for most texts
    const char* markup; // for a text whose first character after blanks is '<'
    // The end of these words. A text that contains it has its own opening, and nothing is put in front. If a text
    // begins with it, the text has no opening, and the mark is removed.
    const char* end_mark;
} sumi_prompt_opening;

// The template that a prompt's text is put into before it becomes tokens.
typedef struct sumi_prompt_template {
    const char *before, *after;         // NULL: nothing
    const sumi_prompt_opening* opening; // NULL: none
    bool skips_opening;                 // this encoder reads only the text after the opening words
    bool keeps_end_token;               // a text that is cut off keeps its last token, the one that adds_special adds
    // Put before the text once for each reference, with the reference's number, from 1 on, in place of '#'. NULL:
    // references are not part of prompts. picture_token is the token in it that stands for the picture; it is repeated
    // once for each row of the picture. later_picture is for the references after the first one; NULL: the same.
    const char *picture, *later_picture, *picture_token;
    const char* empty_text; // takes the place of an empty text; NULL: nothing
    int32_t max_tokens; // tokens beyond this number are cut off, the end of the template included, as in the references
    bool adds_special;  // adds the tokens that the tokenizer's own rules put around a text (BOS, EOS)
    // The features of this many tokens at the beginning belong to the template and are not passed on. Or of the tokens
    // of dropped_text, with which `before` begins: they are counted by the tokenizer, because vocabularies differ.
    int32_t dropped_feature_rows;
    const char* dropped_text; // NULL: dropped_feature_rows says it
    int32_t max_feature_rows; // of features that are passed on; 0: all
    // A shorter text is followed by pad_token up to this number of tokens, which is at most max_tokens. Padding has rows
    // of features like the tokens, see sumi_text_batch. 0: texts are not padded.
    int32_t padded_tokens;
    const char* pad_token;
} sumi_prompt_template;

typedef struct sumi_recipe_encoder {
    const sumi_text_encoder_module* module;
    const void* settings;
    const char* network; // name of its tensors in signatures.c
    // A token that identifies its tokenizer, because the ids of another encoder's tokenizer would be mistaken for its
    // own. NULL: none.
    const char* token;
    int32_t token_id;
    sumi_prompt_template prompt;
} sumi_recipe_encoder;

// How a reference picture gets the size in which the autoencoder reads it.
typedef enum sumi_reference_fit {
    SUMI_REFERENCE_RESIZED = 0, // to about the area, from any size, in multiples
    // Shrunk to the area if it is larger, never enlarged; then the largest window in its middle whose sides are
    // multiples.
    SUMI_REFERENCE_CROPPED = 1
} sumi_reference_fit;

// Which references a job of the family may have, and the sizes in which the network reads them. All zero: none.
typedef struct sumi_reference_rule {
    int32_t min_count, max_count;
    sumi_reference_fit fit;
    // Areas in pixels to which a picture is resized: for the autoencoder; and for the vision tower, before the tower
    // resizes it to whole cells within its own limits. Both keep the aspect ratio, in multiples of `multiple`. The
    // autoencoder's area is for the sample_size of the variant; it is scaled for a checkpoint that was made for another
    // side. vision_area 0, with SUMI_REFERENCE_RESIZED: the tower reads the pixels that the autoencoder reads.
    int64_t autoencoder_area, vision_area;
    int32_t multiple;
    // The largest ratio of the longer to the shorter side: with SUMI_REFERENCE_RESIZED that the vision tower accepts;
    // with SUMI_REFERENCE_CROPPED of the picture, 0: any.
    int32_t max_ratio;
    int32_t min_side; // with SUMI_REFERENCE_CROPPED, of the picture in pixels; 0: any
    // An image without a size gets the size of the last reference, as the autoencoder reads it; otherwise of the first.
    bool size_follows_last;
} sumi_reference_rule;

// The differences between the checkpoints of one family, from their authors' documentation.
typedef struct sumi_variant {
    const char* name;
    // side in pixels of the pictures that presets and sizes are for; for other checkpoints they are scaled
    int32_t sample_size;
    const sumi_preset_values* presets; // SUMI_PRESET_COUNT of them, in the order of sumi_preset
    const sumi_size* sizes;            // up to SUMI_MAX_SIZES, the best one first
    int32_t size_count;
    const void* denoiser_settings; // replace the recipe's; NULL: the recipe's apply
} sumi_variant;

typedef struct sumi_recipe {
    const char* family;  // "z-image"
    const char* network; // name of its transformer's tensors in signatures.c
    // If several families share a transformer: whether the checkpoint belongs to this one. NULL: it does.
    bool (*is_this_family)(const sumi_checkpoint* checkpoint);
    const sumi_variant* const* variants; // a caller may request one by name
    int32_t variant_count;
    // What a transformer without a scheduler_config.json is taken for, as a sentence with the numbers that follow from
    // it, if the files of other variants cannot be told from it. NULL: a wrong guess changes little.
    const char* variant_note;
    sumi_recipe_encoder encoders[SUMI_MAX_TEXT_ENCODERS];
    int32_t encoder_count;
    const sumi_vision_module* vision; // NULL: none
    const void* vision_settings;
    const char* vision_network; // name of its tensors in signatures.c
    const sumi_denoiser_module* denoiser;
    const void* denoiser_settings;
    // The kinds of control nets that there are for this denoiser, ended by NULL. NULL: none.
    const struct sumi_control_module* const* controls;
    const sumi_autoencoder_module* autoencoder;
    const void* autoencoder_settings;
    // Pixels per latent along a side, and the packing of the latents (vae_tiles.h), for a model that is opened without
    // an autoencoder. 0: 8 and 1.
    int32_t latent_factor, latent_packing;
    int32_t picture_channels; // of the autoencoder's pictures, also where a checkpoint has none: 4 with alpha; 0: 3
    // The time input of the network for a noise level.
    float (*time)(float sigma);
    int32_t size_multiple; // width and height are multiples of this many pixels; 0: of a token's side
    int32_t max_side;      // the most pixels along one side
    sumi_reference_rule references;
    // An image with references draws its noise with seed XOR this number; 0: with the seed itself.
    uint64_t reference_seed;
    sumi_start_rule start;
    sumi_guidance_formula guidance_formula;
    float guidance_off; // the value of guidance that means no guidance
    // Variants whose authors use no guidance run without it, whatever the number.
    bool may_ignore_guidance;
    sumi_guidance_rule guidance_rule;
    const sumi_preview_factors* (*preview)(void);
    // The licence of the released model whose sizes the checkpoint has, NULL if there is none. A NULL function: the
    // sizes do not tell.
    const char* (*licence)(const sumi_checkpoint* checkpoint);
    // Called before any module is bound. Finds the schedule in the checkpoint's files, and the variant if *variant is
    // NULL; otherwise the caller has given it.
    sumi_result (*describe)(const sumi_checkpoint* checkpoint, sumi_sigma_rule* sigmas, const sumi_variant** variant,
                            sumi_error* error);
} sumi_recipe;

// Recipe number `index` of this library; NULL after the last one.
const sumi_recipe* sumi_recipe_get(int32_t index);

// Whether this library was built without the recipes for a transformer that signatures.c knows.
bool sumi_recipe_is_left_out(const char* network);

extern const sumi_recipe sumi_recipe_z_image, sumi_recipe_newbie, sumi_recipe_flux2_klein;
extern const sumi_recipe sumi_recipe_qwen_image, sumi_recipe_qwen_image_edit, sumi_recipe_qwen_image_edit_plus;
extern const sumi_recipe sumi_recipe_qwen_image_21;

// ---- Previews (preview_factors.c)

// Linear factors from latents of the autoencoder to colours, for previews without decoding. Other projects fitted them to
// pictures and their latents; they are in common use.

const sumi_preview_factors* sumi_preview_flux(void);  // for the latents of the Flux.1 autoencoder
const sumi_preview_factors* sumi_preview_flux2(void); // for the latents of the Flux.2 autoencoder, normalised, unpacked
const sumi_preview_factors* sumi_preview_wan(void);   // for the latents of the Wan 2.1 autoencoder (Qwen-Image)
const sumi_preview_factors* sumi_preview_qwen_21(void); // for the latents of the Qwen-Image-2.1 autoencoder
#endif
