// What an opened checkpoint is made of. For models/ only: the engine sees family.h.
#ifndef SUMI_MODELS_NETWORK_H
#define SUMI_MODELS_NETWORK_H
#include "files/checkpoint.h"
#include "models/family.h"
#include "models/weights.h"

struct sumi_network {
    sumi_heap* heap;
    const sumi_files* files;
    const sumi_family* family; // NULL until the files have been opened
    sumi_checkpoint checkpoint;
    sumi_weight_list weights;
    sumi_network_info info;
    bool without_text_encoder, without_vae_encoder;
    bool asked_for[SUMI_PART_COUNT]; // by a path of its own: then it must be there
    // of the components that not every family has, the member of the desc that was given; NULL: none was
    const char *asked_for_text_encoder_2, *asked_for_vision;
    int32_t stage; // of the family's opening
    bool is_open;
    void* model; // the family's own
};
#endif
