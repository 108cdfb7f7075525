// What a preset means for a model, and how many steps fit a deadline.
#ifndef SUMI_SAMPLING_PRESETS_H
#define SUMI_SAMPLING_PRESETS_H
#include "base/result.h"

typedef enum sumi_preset_model { // models with settings of their own
    SUMI_PRESET_Z_IMAGE_TURBO,
    SUMI_PRESET_Z_IMAGE_BASE,
    SUMI_PRESET_MODEL_COUNT
} sumi_preset_model;

typedef struct sumi_preset_values {
    int32_t width, height, step_count;
    float guidance;      // the reference's s: prediction = pos + s (pos - neg). 0: no unconditional pass
    bool needs_negative; // guidance is on: a negative prompt (or the empty one) must be encoded
    // most that guidance may lengthen the prediction, as a factor of the conditional one's norm; 0: unbounded
    float cfg_normalization;
    float cfg_truncation; // guidance is on while model time (0 noise, 1 clean) is not above this; 1: to the end
    float shift;          // of the schedule; 0: what the checkpoint's scheduler says
    sumi_solver solver;
} sumi_preset_values;

// An unknown model gets Z-Image Turbo's values, an unknown preset SUMI_PRESET_MODEL's.
sumi_preset_values sumi_preset_get(sumi_preset_model model, sumi_preset preset);

// Most steps that end before deadline_seconds when everything but the steps takes fixed_seconds and each step runs
// evaluations_per_step network evaluations of seconds_per_evaluation. Always in [min_steps, max_steps]: a deadline that
// cannot be met gives min_steps. Without a deadline (zero or less) or without a measured speed (zero, less, not finite)
// it is max_steps.
int32_t sumi_deadline_steps(double seconds_per_evaluation, double fixed_seconds, double deadline_seconds,
                            int32_t min_steps, int32_t max_steps, double evaluations_per_step);
#endif
