// The numbers of a model's presets.
#ifndef SUMI_SAMPLING_PRESETS_H
#define SUMI_SAMPLING_PRESETS_H
#include "base/result.h"

#define SUMI_PRESET_COUNT 5 // number of values of sumi_preset

// The numbers of one preset, in an array ordered as sumi_preset. They are copied to the members of sumi_image_desc of
// the same names.
typedef struct sumi_preset_values {
    int32_t width, height; // 0 and 0: the size of a reference image
    int32_t step_count;
    float guidance; // as on the model card
    float guidance_begin, guidance_end;
    sumi_guidance_rule guidance_rule;
    float guidance_norm_limit;
    sumi_solver solver;
    float shift; // 0: the model's own rule
    float strength;
    const char* negative_text; // the authors' negative prompt for guidance; NULL: none
} sumi_preset_values;

// Scales sizes that are written for pictures of one side to a checkpoint that was made for another side.
typedef struct sumi_size_scale {
    int32_t written_side, sample_side; // the side that sizes are written for; the side that the checkpoint was made for
    int32_t multiple;                  // scaled sides are multiples of this
    int32_t max_side;                  // the longest scaled side
} sumi_size_scale;
sumi_size sumi_size_scaled(sumi_size size, const sumi_size_scale* scale);
void sumi_presets_scaled(const sumi_preset_values* from, const sumi_size_scale* scale, sumi_preset_values* to);
#endif
