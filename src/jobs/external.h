// Memory or a semaphore of a graphics API, as jobs read it. engine/externals.h imports and releases it.
#ifndef SUMI_JOBS_EXTERNAL_H
#define SUMI_JOBS_EXTERNAL_H
#include "interop/interop.h"
#include <stdatomic.h>
#include <sumi.h>

// Imported memory of the host program, with the linear device memory in which a picture waits for the copy into it; or
// an imported semaphore. The host program owns the object and releases it with sumi_external_release; the engine frees
// objects that are left when it is destroyed. Everything but next, link, is_used and the import's has_copied is
// constant after the import.
struct sumi_external {
    sumi_engine* engine;
    sumi_external *next, **link; // the engine's list (object_list.h); protected by `state_lock`
    sumi_imported import;
    atomic_bool is_used; // the target of a job that was neither fetched nor discarded
};
#endif
