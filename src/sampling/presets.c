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
