#ifndef SUMI_ENGINE_EXTERNALS_H
#define SUMI_ENGINE_EXTERNALS_H
#include "interop/interop.h"
#include <stdatomic.h>
#include <sumi.h>

// Imported memory of the host program, with the linear device memory in which a picture waits for the copy into it; or
// an imported semaphore. The host program owns the object and releases it with sumi_external_release; the engine frees
// objects that are left when it is destroyed. Everything but next, link, is_used and the import's has_copied is constant
// after the import.
struct sumi_external {
    sumi_engine* engine;
    sumi_external *next, **link; // the engine's list (object_list.h); protected by `state_lock`
    sumi_imported import;
    atomic_bool is_used; // the target of a job that was neither fetched nor discarded
};

// Checks a target that has an external: that it fits an image of this size, that its semaphores are semaphores, and
// that no job has it. `name` is the target's in messages.
sumi_result sumi_external_check(const sumi_engine* engine, const sumi_target* target, const char* name, int32_t width,
                                int32_t height, sumi_error* error);
// Submits the copy of an image (a preview: from the pinned memory) into the target's external, with its wait and signal.
sumi_result sumi_external_copy(sumi_engine* engine, const sumi_target* target, bool is_preview, sumi_error* error);
// Whether the target names the external, as memory or as a semaphore.
bool sumi_target_uses(const sumi_target* target, const sumi_external* external);
void sumi_target_forget_externals(sumi_target* target);
// The caller holds the pump lock, and no job uses the external. Locks `state_lock` for a moment.
void sumi_external_free(sumi_external* external);
// The same for all that are left: memory first, because its copies use the semaphores.
void sumi_externals_close(sumi_engine* engine);
#endif
