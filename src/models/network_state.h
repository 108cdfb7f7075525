// The state of an opened checkpoint, for the room models only; the engine sees network.h.
#ifndef SUMI_MODELS_NETWORK_STATE_H
#define SUMI_MODELS_NETWORK_STATE_H
#include "files/checkpoint.h"
#include "models/recipe.h"
#include "text/tokenizer.h"

typedef struct sumi_network_encoder {
    void* model; // of the recipe's module; NULL: not open
    sumi_tokenizer* tokenizer;
    int32_t pad_id;       // of the template's pad_token
    int32_t dropped_rows; // of features, as the template says
} sumi_network_encoder;

struct sumi_network {
    sumi_heap* heap;
    sumi_file_cache cache;     // files of the host program that were requested
    const sumi_recipe* recipe; // NULL until the files have been opened
    sumi_checkpoint checkpoint;
    sumi_weight_list weights;
    sumi_network_info info;
    const sumi_variant* variant; // of the recipe; NULL: not known yet
    char requested_variant[32];  // "": the variant follows from the files
    sumi_preset_values presets[SUMI_PRESET_COUNT];
    char preset_fault[512], variant_note[1024], edit_hint[1024]; // as in sumi_network_info
    sumi_size sizes[SUMI_MAX_SIZES];
    bool without_text_encoder, without_vae_encoder;
    bool is_requested[SUMI_COMPONENT_COUNT]; // the desc has a path for the component, so it must be present
    // For components that not every family has: the name of the member of the desc that is not NULL; NULL: none.
    const char *text_encoder_2_option, *vision_option;
    int32_t stage; // of opening
    bool is_open;
    // The modules' models; NULL: not open.
    sumi_network_encoder encoders[SUMI_MAX_TEXT_ENCODERS];
    void *vision, *denoiser, *autoencoder;
};
#endif
