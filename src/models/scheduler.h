// A scheduler_config.json as diffusers writes it for FlowMatchEulerDiscreteScheduler (spec qwen-image.md section 6.1).
#ifndef SUMI_MODELS_SCHEDULER_H
#define SUMI_MODELS_SCHEDULER_H
#include "sampling/schedule.h"

// What a file without a member says, by the reference: static shift 1, dynamic shift off.
sumi_sigma_rule sumi_scheduler_defaults(void);

// Changes the members of `rule` that the file names, so that the overrides of an adapter are read over the model's own.
// A shift_terminal of null means no stretch; any other null counts as absent. json NULL: nothing is read.
// SUMI_FILE_MALFORMED: it is no such file. SUMI_NOT_SUPPORTED: it asks for what sumi_sigma_rule cannot say (another
// class, other sigmas, noise between steps), or for numbers that make no schedule. `rule` is unchanged then.
sumi_result sumi_scheduler_read(const void* json, size_t bytes, const char* path, sumi_sigma_rule* rule,
                                sumi_error* error);
#endif
