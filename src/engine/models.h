#ifndef SUMI_ENGINE_MODELS_H
#define SUMI_ENGINE_MODELS_H
#include "models/network.h"

struct sumi_model {
    sumi_engine* engine;
    sumi_model *next, **link; // link: the pointer that points to this object
    uint64_t serial;          // unique for the life of the engine; part of the keys of cached plans
    sumi_network* network;
    sumi_network_info info;                   // zero until the model is open
    sumi_weight_format weights, text_weights; // the formats on a device
    sumi_attention_format attention;          // likewise
    // By how much residuals changed per unit of sigma, on average over the newest job with a step cache (step_cache.h);
    // 0: none has ended. Touched by the thread that holds the pump lock.
    double residual_speed;
};

// The negative prompt of the model's authors, for items that name none; "" if the authors give none. Valid as long as
// the model.
const char* sumi_model_negative_text(const sumi_model* model);
// Side in pixels of a square image of the model's native size, in whole multiples of its size_multiple.
int32_t sumi_native_side(const sumi_model* model);
void sumi_model_free(sumi_model* model); // closes the network; no job may use it. The caller holds the pump lock
#endif
