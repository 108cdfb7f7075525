#ifndef SUMI_ENGINE_EXTERNALS_H
#define SUMI_ENGINE_EXTERNALS_H
#include "plan/runner.h"
#include <stdatomic.h>
#include <sumi.h>

struct sumi_external {
    sumi_engine* engine;
    sumi_external *next, **link;
    sumi_import import;
    int32_t width, height;
    atomic_bool is_used; // by a job that was neither fetched nor discarded
};

void sumi_external_free(sumi_external* external); // no job uses it. Holds the work
#endif
