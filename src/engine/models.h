#ifndef SUMI_ENGINE_MODELS_H
#define SUMI_ENGINE_MODELS_H
#include "models/network.h"

struct sumi_model {
    sumi_engine* engine;
    sumi_model *next, **link; // link: what points to this one
    uint64_t serial;          // never repeats: in the keys of cached plans
    sumi_network* network;
    sumi_network_info info;                   // zero until it is open
    sumi_weight_format weights, text_weights; // on a device
};

// The negative prompt of the model's authors, "" where they name none: of items that name none. Lives with the model.
const char* sumi_model_negative_text(const sumi_model* model);
void sumi_model_free(sumi_model* model); // closes the network; no job uses it. Holds the work
#endif
