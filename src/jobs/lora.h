// An adapter, as jobs read it. engine/loras.h reads and releases it.
#ifndef SUMI_JOBS_LORA_H
#define SUMI_JOBS_LORA_H
#include "base/file.h"
#include "models/network.h"

struct sumi_lora {
    sumi_engine* engine;
    sumi_lora *next, **link;
    uint64_t serial;
    sumi_model* model;     // NULL: its model was closed, and the adapter can only be released
    sumi_file_cache cache; // files of the host program; `file` borrows from it
    sumi_adapter_file* file;
};
#endif
