// Pictures with alpha, as Pillow handles them: colours are multiplied by alpha before a resize and divided by it
// afterwards, so that the colour of transparent pixels does not bleed into others. Colours in memory are straight.
#include "base/assert.h"
#include "pictures/pixels.h"
#include <string.h>

// value / 255, rounded to nearest, for 0 .. 255 * 255.
static inline uint8_t divide_255(uint32_t value)
{
    const uint32_t t = value + 128;
    return (uint8_t)(((t >> 8) + t) >> 8);
}

void sumi_pixels_premultiply(const uint8_t* rgba, size_t count, uint8_t* into)
{
    SUMI_ASSERT(count == 0 || (rgba != NULL && into != NULL));
    for (size_t i = 0; i < 4 * count; i += 4) {
        const uint32_t alpha = rgba[i + 3];
        for (size_t c = 0; c < 3; c++) into[i + c] = divide_255(rgba[i + c] * alpha);
        into[i + 3] = (uint8_t)alpha;
    }
}

void sumi_pixels_divide_by_alpha(uint8_t* rgba, size_t count)
{
    SUMI_ASSERT(count == 0 || rgba != NULL);
    for (size_t i = 0; i < 4 * count; i += 4) {
        const uint32_t alpha = rgba[i + 3];
        for (size_t c = 0; c < 3 && alpha != 0 && alpha != 255; c++) {
            const uint32_t colour = 255u * rgba[i + c] / alpha;
            rgba[i + c] = (uint8_t)(colour < 255 ? colour : 255);
        }
    }
}

void sumi_pixels_over_white(const uint8_t* rgba, size_t count, uint8_t* rgb)
{
    SUMI_ASSERT(count == 0 || (rgba != NULL && rgb != NULL));
    for (size_t i = 0; i < count; i++) {
        const uint32_t alpha = rgba[4 * i + 3];
        for (size_t c = 0; c < 3; c++) rgb[3 * i + c] = divide_255(rgba[4 * i + c] * alpha + 255 * (255 - alpha));
    }
}

// A picture without alpha is resized to the end of the result, then expanded from its start: reads stay ahead of writes.
static sumi_result resize_opaque(sumi_heap* heap, const sumi_pixels* pixels, const sumi_resized_pixels* resized,
                                 sumi_error* error)
{
    const size_t count = (size_t)resized->width * (size_t)resized->height, channels = (size_t)pixels->channel_count;
    uint8_t *rgba = resized->into, *from = rgba + (4 - channels) * count;
    SUMI_TRY(sumi_pixels_resize(heap, pixels,
                                &(sumi_resized_pixels){from, resized->width, resized->height, resized->filter}, error));
    for (size_t i = 0; i < count; i++, rgba += 4, from += channels) {
        const uint8_t red = from[0], green = from[channels > 1 ? 1 : 0], blue = from[channels > 1 ? 2 : 0];
        rgba[0] = red, rgba[1] = green, rgba[2] = blue, rgba[3] = 255;
    }
    return SUMI_OK;
}

sumi_result sumi_pixels_to_rgba(sumi_heap* heap, const sumi_pixels* pixels, const sumi_resized_pixels* resized,
                                sumi_error* error)
{
    SUMI_TRY(sumi_pixels_check(pixels, "the image", error));
    SUMI_TRY(sumi_pixels_check_size(resized->width, resized->height, "the image", error));
    if (resized->into == NULL)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the RGBA image has no memory: into is NULL");
    if (pixels->channel_count != 4) return resize_opaque(heap, pixels, resized, error);
    if (pixels->width == resized->width && pixels->height == resized->height)
        return sumi_pixels_resize(heap, pixels, resized, error); // a copy
    const size_t row = 4 * (size_t)pixels->width, bytes = row * (size_t)pixels->height;
    uint8_t* premultiplied = sumi_alloc(heap, bytes);
    if (premultiplied == NULL) return sumi_out_of_memory(error, bytes, "an image multiplied by its alpha");
    for (int32_t y = 0; y < pixels->height; y++) {
        sumi_pixels_premultiply((const uint8_t*)pixels->data + (size_t)y * (size_t)pixels->row_bytes,
                                (size_t)pixels->width, premultiplied + (size_t)y * row);
    }
    sumi_pixels source = *pixels;
    source.data = premultiplied;
    source.row_bytes = (int32_t)row;
    const sumi_result result = sumi_pixels_resize(heap, &source, resized, error);
    sumi_free(heap, premultiplied);
    if (result == SUMI_OK) sumi_pixels_divide_by_alpha(resized->into, (size_t)resized->width * (size_t)resized->height);
    return result;
}
