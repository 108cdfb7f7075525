// Pictures with alpha, as Pillow handles them: colours are multiplied by alpha before a resize and divided by it
// afterwards, so that the colour of transparent pixels does not bleed into others. Colours in memory are straight.
#include "base/assert.h"
#include "pictures/pixels.h"
#include <string.h>

// The loops have no branches and take a pixel as one number, alpha in its highest byte: byte by byte, with a branch for
// alpha 0 and 255, they took three to five times as long (9 ns per pixel to multiply, 9 to divide; now 2 and 3).
static inline uint32_t read_pixel(const uint8_t* rgba)
{
    uint32_t pixel;
    memcpy(&pixel, rgba, sizeof pixel);
    return pixel;
}

// Two values of 16 bits, each divided by 255 and rounded to nearest, for 0 .. 255 * 255.
static inline uint32_t divide_255(uint32_t values)
{
    const uint32_t low = 0x00ff00ffu, t = values + 0x00800080u;
    return ((((t >> 8) & low) + t) >> 8) & low;
}

void sumi_pixels_premultiply(const uint8_t* rgba, size_t count, uint8_t* into)
{
    SUMI_ASSERT(count == 0 || (rgba != NULL && into != NULL));
    for (size_t i = 0; i < 4 * count; i += 4) {
        const uint32_t pixel = read_pixel(rgba + i), alpha = pixel >> 24,
                       red_blue = divide_255((pixel & 0x00ff00ffu) * alpha),
                       green = divide_255(((pixel >> 8) & 0xffu) * alpha),
                       multiplied = red_blue | green << 8 | (pixel & 0xff000000u);
        memcpy(into + i, &multiplied, sizeof multiplied);
    }
}

// 255 colour / alpha, rounded down. The quotient of floats is rounded, but it reaches no integer above it: it is at least
// 1 / alpha away from that, and its error is less than 255^2 / 2^24 of this.
static inline uint32_t quotient(uint32_t colour, float alpha)
{
    const int32_t value = (int32_t)((float)(int32_t)(255 * colour) / alpha);
    return (uint32_t)(value < 255 ? value : 255);
}

void sumi_pixels_divide_by_alpha(uint8_t* rgba, size_t count)
{
    SUMI_ASSERT(count == 0 || rgba != NULL);
    for (size_t i = 0; i < 4 * count; i += 4) {
        const uint32_t pixel = read_pixel(rgba + i), opacity = pixel >> 24;
        const float alpha = opacity == 0 ? 255.0f : (float)(int32_t)opacity; // colours of alpha 0 stay
        const uint32_t divided = quotient(pixel & 0xffu, alpha) | quotient(pixel >> 8 & 0xffu, alpha) << 8
                               | quotient(pixel >> 16 & 0xffu, alpha) << 16 | (pixel & 0xff000000u);
        memcpy(rgba + i, &divided, sizeof divided);
    }
}

void sumi_pixels_over_white(const uint8_t* rgba, size_t count, uint8_t* rgb)
{
    SUMI_ASSERT(count == 0 || (rgba != NULL && rgb != NULL));
    for (size_t i = 0; i < count; i++) {
        const uint32_t pixel = read_pixel(rgba + 4 * i), alpha = pixel >> 24, white = 255 * (255 - alpha),
                       red_blue = divide_255((pixel & 0x00ff00ffu) * alpha + white * 0x10001u),
                       green = divide_255(((pixel >> 8) & 0xffu) * alpha + white);
        rgb[3 * i] = (uint8_t)red_blue;
        rgb[3 * i + 1] = (uint8_t)green;
        rgb[3 * i + 2] = (uint8_t)(red_blue >> 16);
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
