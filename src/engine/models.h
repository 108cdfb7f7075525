#ifndef SUMI_ENGINE_MODELS_H
#define SUMI_ENGINE_MODELS_H
#include <sumi.h>

// The negative prompt of the model's authors, for items that name none; "" if the authors give none. Valid as long as
// the model.
const char* sumi_model_negative_text(const sumi_model* model);
// Side in pixels of a square image of the model's native size, in whole multiples of its size_multiple.
int32_t sumi_native_side(const sumi_model* model);
void sumi_model_free(sumi_model* model); // closes the network; no job may use it. The caller holds the pump lock
#endif
