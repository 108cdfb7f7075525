#ifndef SUMI_ENGINE_LORAS_H
#define SUMI_ENGINE_LORAS_H
#include "models/network.h"

struct sumi_lora {
    sumi_engine* engine;
    sumi_lora *next, **link;
    uint64_t serial;
    sumi_model* model;     // NULL: its model was closed, it can only be released
    sumi_file_cache cache; // what the host's files were asked for; the file borrows from it
    sumi_adapter_file* file;
};

void sumi_lora_close(sumi_lora* lora); // takes its weights off a device and closes its file. Holds the work
void sumi_lora_free(sumi_lora* lora);  // holds the work
#endif
