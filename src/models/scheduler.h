// A scheduler_config.json as diffusers writes it for FlowMatchEulerDiscreteScheduler. The released values:
// docs/architectures/qwen-image.md, "Schedule and guidance".
#ifndef SUMI_MODELS_SCHEDULER_H
#define SUMI_MODELS_SCHEDULER_H
#include "sampling/schedule.h"

// The reference's values for members that a file does not have: static shift 1, no dynamic shift.
sumi_sigma_rule sumi_scheduler_defaults(void);

// Changes the members of `rule` that the file contains, so that an adapter's overrides can be read over the model's own
// values. shift_terminal null means no stretch; any other null counts as absent. json NULL: nothing is read.
// SUMI_FILE_MALFORMED: not a file of this kind. SUMI_NOT_SUPPORTED: the file has settings that sumi_sigma_rule cannot
// express (another class, other sigmas, noise between steps), or numbers that give no schedule. `rule` is then
// unchanged.
sumi_result sumi_scheduler_read(const void* json, size_t bytes, const char* path, sumi_sigma_rule* rule,
                                sumi_error* error);
#endif
