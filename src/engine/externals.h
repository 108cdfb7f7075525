#ifndef SUMI_ENGINE_EXTERNALS_H
#define SUMI_ENGINE_EXTERNALS_H
#include "plan/runner.h"
#include <stdatomic.h>
#include <sumi.h>

// An imported texture of the host program, and the linear device memory in which a picture waits for the copy into the
// texture. The host program owns the object and releases it with sumi_external_release; the engine frees objects that
// are left when it is destroyed. Everything but next, link and is_used is constant after the import.
struct sumi_external {
    sumi_engine* engine;
    sumi_external *next, **link; // the engine's list (object_list.h); protected by `state_lock`
    sumi_import import;
    int32_t width, height; // pixels
    atomic_bool is_used;   // the target of a job that was neither fetched nor discarded
};

// The caller holds the pump lock, and no job uses the texture. Locks `state_lock` for a moment.
void sumi_external_free(sumi_external* external);
#endif
