// What a preset says, as data that each model brings, and how many steps fit a deadline.
#ifndef SUMI_SAMPLING_PRESETS_H
#define SUMI_SAMPLING_PRESETS_H
#include "base/result.h"

#define SUMI_PRESET_COUNT 5 // of sumi_preset

// One for each sumi_preset, in its order. The members go to those of sumi_image_desc that have their names.
typedef struct sumi_preset_values {
    int32_t width, height; // 0 and 0: those of a reference
    int32_t step_count;
    float guidance; // as the model's card has it
    float guidance_begin, guidance_end;
    sumi_guidance_rule guidance_rule;
    float guidance_norm_limit;
    sumi_solver solver;
    float shift; // 0: the model's own rule
    float strength;
    const char* negative_text; // what the authors give beside guidance; NULL: nothing
} sumi_preset_values;

// Sizes are written for pictures of one side; a checkpoint made for another gets the same share of its own.
typedef struct sumi_size_scale {
    int32_t from, to; // sides: what the sizes are written for, what the checkpoint was made for
    int32_t multiple; // of which every size is one
    int32_t most;     // along a side
} sumi_size_scale;
sumi_size sumi_size_scaled(sumi_size size, const sumi_size_scale* scale);
void sumi_presets_scaled(const sumi_preset_values* from, const sumi_size_scale* scale, sumi_preset_values* to);

// Most steps that end before deadline_seconds when everything but the steps takes fixed_seconds and each step runs
// evaluations_per_step network evaluations of seconds_per_evaluation. Always in [min_steps, max_steps]: a deadline that
// cannot be met gives min_steps. Without a deadline (zero or less) or without a measured speed (zero, less, not finite)
// it is max_steps.
int32_t sumi_deadline_steps(double seconds_per_evaluation, double fixed_seconds, double deadline_seconds,
                            int32_t min_steps, int32_t max_steps, double evaluations_per_step);
#endif
