#include "engine/desc_checks.h"
#include "base/result.h"
#include "engine/calls.h"
#include "jobs/buffers.h"
#include "jobs/objects.h"
#include "models/network.h"
#include "pictures/pixels.h"
#include <math.h>
#include <string.h>

sumi_result sumi_check_model(const sumi_engine* engine, const sumi_model* model, sumi_error* error)
{
    SUMI_REFUSE(model == NULL, SUMI_INVALID_ARGUMENT, "model is NULL: fetch a model first");
    SUMI_REFUSE(model->engine != engine, SUMI_INVALID_ARGUMENT, "model belongs to another engine");
    return SUMI_OK;
}

sumi_result sumi_check_size(const sumi_model* model, int32_t width, int32_t height, sumi_error* error)
{
    const int32_t size_multiple = model->info.size_multiple, max_side = model->info.max_side;
    SUMI_REFUSE(width < size_multiple || width > max_side || width % size_multiple != 0, SUMI_INVALID_ARGUMENT,
                "width is %d: give a multiple of %d up to %d", (int)width, (int)size_multiple, (int)max_side);
    SUMI_REFUSE(height < size_multiple || height > max_side || height % size_multiple != 0, SUMI_INVALID_ARGUMENT,
                "height is %d: give a multiple of %d up to %d", (int)height, (int)size_multiple, (int)max_side);
    return SUMI_OK;
}

sumi_result sumi_check_finite(const float* values, uint64_t count, const char* member, sumi_error* error)
{
    for (uint64_t i = 0; values != NULL && i < count; i++) {
        SUMI_REFUSE(!isfinite(values[i]), SUMI_INVALID_ARGUMENT, "%s[%llu] is %g: give finite numbers", member,
                    (unsigned long long)i, (double)values[i]);
    }
    return SUMI_OK;
}

sumi_pixels sumi_pixels_with_row_bytes(const sumi_pixels* pixels)
{
    sumi_pixels result = *pixels;
    bool is_plausible = pixels->width > 0 && pixels->width <= SUMI_PIXELS_MAX_SIDE && pixels->channel_count > 0
                     && pixels->channel_count <= 4;
    if (result.row_bytes == 0 && is_plausible) result.row_bytes = pixels->width * pixels->channel_count;
    return result;
}

sumi_pixels sumi_pixels_copy(sumi_packer* packer, const sumi_pixels* pixels)
{
    sumi_pixels copy = sumi_pixels_with_row_bytes(pixels);
    const unsigned char* from = copy.data;
    const int32_t source_row_bytes = copy.row_bytes;
    copy.row_bytes = copy.width * copy.channel_count;
    unsigned char* to = sumi_pack(packer, NULL, (uint64_t)copy.row_bytes * (uint64_t)copy.height);
    for (int32_t y = 0; to != NULL && y < copy.height; y++)
        memcpy(to + (size_t)y * (size_t)copy.row_bytes, from + (size_t)y * (size_t)source_row_bytes,
               (size_t)copy.row_bytes);
    copy.data = to;
    return copy;
}
