#ifndef SUMI_ENGINE_EXTERNALS_H
#define SUMI_ENGINE_EXTERNALS_H
#include "base/result.h"
#include <sumi.h>

// Checks a target that has an external: that it fits an image of this size, that its semaphores are semaphores, and
// that no job has it. `name` is the target's in messages.
sumi_result sumi_external_check(const sumi_engine* engine, const sumi_target* target, const char* name, sumi_size size,
                                sumi_error* error);
// Submits the copy of an image (a preview: from the pinned memory) into the target's external, with its wait and
// signal.
sumi_result sumi_external_copy(sumi_engine* engine, const sumi_target* target, bool is_preview, sumi_error* error);
// Checks a depth buffer that has an external: its members that only an external has or must not have, and that no job
// has it.
sumi_result sumi_external_check_depth(const sumi_engine* engine, const sumi_depth* depth, const char* name,
                                      sumi_error* error);
// Submits the copy of the depth to memory of sumi, with its wait and signal.
sumi_result sumi_external_read_depth(sumi_engine* engine, const sumi_depth* depth, sumi_error* error);
// Frees all externals, when no job uses them any more. The caller holds the pump lock.
void sumi_externals_close(sumi_engine* engine);
#endif
