#include "sampling/presets.h"
#include "base/assert.h"

static int32_t scaled_side(int32_t side, const sumi_size_scale* scale)
{
    SUMI_ASSERT(scale->written_side > 0 && scale->sample_side > 0 && scale->multiple > 0
                && scale->max_side >= scale->multiple);
    int64_t pixels = (int64_t)side * scale->sample_side / scale->written_side;
    if (pixels > scale->max_side) pixels = scale->max_side;
    const int32_t rounded = (int32_t)(pixels / scale->multiple) * scale->multiple;
    return rounded > 0 ? rounded : scale->multiple;
}

sumi_size sumi_size_scaled(sumi_size size, const sumi_size_scale* scale)
{
    return (sumi_size){scaled_side(size.width, scale), scaled_side(size.height, scale)};
}

void sumi_presets_scaled(const sumi_preset_values* from, const sumi_size_scale* scale, sumi_preset_values* to)
{
    for (int i = 0; i < SUMI_PRESET_COUNT; i++) {
        to[i] = from[i];
        if (from[i].width == 0 && from[i].height == 0) continue;
        const sumi_size size = sumi_size_scaled((sumi_size){from[i].width, from[i].height}, scale);
        to[i].width = size.width;
        to[i].height = size.height;
    }
}

int32_t sumi_deadline_steps(double seconds_per_evaluation, double fixed_seconds, double deadline_seconds,
                            int32_t min_steps, int32_t max_steps, double evaluations_per_step)
{
    if (max_steps < min_steps) max_steps = min_steps;
    const double per_step = seconds_per_evaluation * evaluations_per_step;
    if (!(deadline_seconds > 0.0) || !(per_step > 0.0 && per_step < 1e18)) return max_steps;
    double remaining_seconds = deadline_seconds - (fixed_seconds > 0.0 ? fixed_seconds : 0.0);
    double steps = remaining_seconds / per_step * (1.0 + 1e-9); // the factor corrects a quotient just below an integer
    if (!(steps > min_steps)) return min_steps;
    if (steps >= max_steps) return max_steps;
    return (int32_t)steps;
}
