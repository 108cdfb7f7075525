#ifndef SUMI_ENGINE_LORAS_H
#define SUMI_ENGINE_LORAS_H
#include "models/network.h"

struct sumi_lora {
    sumi_engine* engine;
    sumi_lora *next, **link;
    uint64_t serial;
    sumi_model* model;     // NULL: its model was closed, and the adapter can only be released
    sumi_file_cache cache; // files of the host program; `file` borrows from it
    sumi_adapter_file* file;
};

// Removes the adapter's weights from the device and closes its file. The caller holds the pump lock.
void sumi_lora_close(sumi_lora* lora);
void sumi_lora_free(sumi_lora* lora); // the caller holds the pump lock
#endif
