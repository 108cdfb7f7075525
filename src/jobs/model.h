// An opened model, as jobs read it. engine/models.h opens and closes it.
#ifndef SUMI_JOBS_MODEL_H
#define SUMI_JOBS_MODEL_H
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
#endif
