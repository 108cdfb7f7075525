// Converting pictures exactly as the reference does. The resize is Pillow's: an output pixel of one axis is a weighted
// sum of the input pixels in a window. The weights are rounded to 22 fraction bits, and the result of each pass is
// rounded to 8 bits. Both roundings are visible in the encoder's input, so they are part of the algorithm:
//
//     source  --horizontal-->  8-bit rows of the new width  --vertical-->  new size
//
// A pass is skipped if the length of its axis does not change. When a picture shrinks, the window is wider: the
// filter's support times the scale. The windows and weights are computed once per axis (resize.h).
#include "pictures/pixels.h"
#include "base/assert.h"
#include "base/dtype.h"
#include "base/numbers.h"
#include <string.h>

// ---- Resize ---------------------------------------------------------------------------------------------------------

static bool is_side(int32_t side) { return side >= 1 && side <= SUMI_PIXELS_MAX_SIDE; }

static sumi_result check_source(const sumi_pixels* pixels, const char* what, sumi_error* error)
{
    const int32_t width = pixels->width, height = pixels->height, channels = pixels->channel_count;
    SUMI_ASSERT(what != NULL && channels >= 1 && channels <= 4);
    if (pixels->data == NULL) return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%s has no pixels: data is NULL", what);
    if (!is_side(width) || !is_side(height)) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%s is %d x %d: each side must be 1 to %d pixels", what,
                         (int)width, (int)height, SUMI_PIXELS_MAX_SIDE);
    }
    if (pixels->row_bytes < width * channels) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "%s has row_bytes %d, but a row of %d pixels with %d channels takes %d bytes", what,
                         (int)pixels->row_bytes, (int)width, (int)channels, (int)(width * channels));
    }
    return SUMI_OK;
}

sumi_result sumi_pixels_check_size(int32_t width, int32_t height, const char* what, sumi_error* error)
{
    if (is_side(width) && is_side(height)) return SUMI_OK;
    return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%s cannot be resized to %d x %d: each side must be 1 to %d pixels",
                     what, (int)width, (int)height, SUMI_PIXELS_MAX_SIDE);
}

// Both pictures have been checked. Channels of the source after the first `channels` are left out.
static sumi_result resize(sumi_heap* heap, const sumi_pixels* source, int32_t channels,
                          const sumi_resized_pixels* resized, sumi_error* error)
{
    const int32_t width = resized->width, height = resized->height, from_width = source->width,
                  from_height = source->height;
    const bool resizes_width = width != from_width, resizes_height = height != from_height,
               passes_rows = resizes_width || !resizes_height || channels != source->channel_count;
    const size_t row = (size_t)width * (size_t)channels;
    const uint64_t rows_axis = resizes_width ? sumi_resize_axis_bytes(from_width, width, resized->filter) : 0,
                   columns_axis = resizes_height ? sumi_resize_axis_bytes(from_height, height, resized->filter) : 0,
                   columns_at = sumi_align(rows_axis, SUMI_ALIGNMENT),
                   between_at = sumi_align(columns_at + columns_axis, SUMI_ALIGNMENT),
                   bytes = between_at + (passes_rows && resizes_height ? (uint64_t)row * (uint64_t)from_height : 0);
    unsigned char* memory = bytes > 0 ? sumi_alloc(heap, (size_t)bytes) : NULL;
    if (bytes > 0 && memory == NULL)
        return sumi_out_of_memory(error, (size_t)bytes, "an image between two passes of its resize");
    const sumi_resize_pass rows = {
        .axis = resizes_width ? sumi_resize_axis_make(memory, from_width, width, resized->filter) : NULL,
        .from = source->data,
        .from_row_bytes = (size_t)source->row_bytes,
        .into = resizes_height ? memory + between_at : resized->into,
        .width = from_width,
        .from_channels = source->channel_count,
        .channels = channels};
    if (passes_rows) sumi_resize_rows(&rows, NULL, 0, from_height);
    if (resizes_height) {
        const sumi_resize_pass columns = {
            .axis = sumi_resize_axis_make(memory + columns_at, from_height, height, resized->filter),
            .from = passes_rows ? rows.into : rows.from,
            .from_row_bytes = passes_rows ? row : rows.from_row_bytes,
            .into = resized->into,
            .width = width,
            .from_channels = channels,
            .channels = channels};
        sumi_resize_columns(&columns, NULL, 0, height);
    }
    sumi_free(heap, memory);
    return SUMI_OK;
}

sumi_result sumi_pixels_resize(sumi_heap* heap, const sumi_pixels* source, const sumi_resized_pixels* resized,
                               sumi_error* error)
{
    if (source->channel_count < 1 || source->channel_count > 4) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "an image of %d channels cannot be resized: 1 to 4 are possible",
                         (int)source->channel_count);
    }
    SUMI_TRY(check_source(source, "the image to resize", error));
    SUMI_TRY(sumi_pixels_check_size(resized->width, resized->height, "the image", error));
    if (resized->into == NULL)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the resized image has no memory: into is NULL");
    if (resized->filter != SUMI_FILTER_BICUBIC && resized->filter != SUMI_FILTER_LANCZOS) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "filter %d is unknown: use SUMI_FILTER_BICUBIC or SUMI_FILTER_LANCZOS", (int)resized->filter);
    }
    return resize(heap, source, source->channel_count, resized, error);
}

// ---- Pictures of the host program -----------------------------------------------------------------------------------

sumi_result sumi_pixels_check(const sumi_pixels* pixels, const char* what, sumi_error* error)
{
    if (pixels == NULL) return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%s is NULL", what);
    if (pixels->channel_count != 1 && pixels->channel_count != 3 && pixels->channel_count != 4) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%s has %d channels: give 1 (grey), 3 (RGB) or 4 (RGBA)", what,
                         (int)pixels->channel_count);
    }
    return check_source(pixels, what, error);
}

sumi_result sumi_pixels_to_rgb(sumi_heap* heap, const sumi_pixels* pixels, int32_t width, int32_t height, uint8_t* rgb,
                               sumi_error* error)
{
    SUMI_TRY(sumi_pixels_check(pixels, "the image", error));
    SUMI_TRY(sumi_pixels_check_size(width, height, "the image", error));
    if (rgb == NULL) return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the RGB image has no memory: rgb is NULL");
    if (pixels->channel_count != 1) {
        const sumi_resized_pixels resized = {rgb, width, height, SUMI_FILTER_LANCZOS};
        return resize(heap, pixels, 3, &resized, error);
    }
    // The grey picture is resized into the last third of rgb, then expanded from the start: reads stay ahead of writes.
    const size_t count = (size_t)width * (size_t)height;
    uint8_t* grey = rgb + 2 * count;
    const sumi_resized_pixels resized = {grey, width, height, SUMI_FILTER_LANCZOS};
    SUMI_TRY(resize(heap, pixels, 1, &resized, error));
    for (size_t i = 0; i < count; i++) {
        uint8_t value = grey[i];
        rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = value;
    }
    return SUMI_OK;
}

sumi_pixels sumi_pixels_window(const sumi_pixels* pixels, int32_t left, int32_t top, int32_t width, int32_t height)
{
    SUMI_ASSERT(left >= 0 && top >= 0 && width >= 1 && height >= 1);
    SUMI_ASSERT(left <= pixels->width - width && top <= pixels->height - height);
    sumi_pixels window = *pixels;
    window.data = (const uint8_t*)pixels->data + (size_t)top * (size_t)pixels->row_bytes
                + (size_t)left * (size_t)pixels->channel_count;
    window.width = width;
    window.height = height;
    return window;
}

// ---- Pixels out -----------------------------------------------------------------------------------------------------

// Compares the bits of floats, which compiles to conditional moves: in a preview of noise, half of the branches would
// be mispredicted.
static inline uint8_t from_unit(float value)
{
    const int32_t one = 0x3f800000, half = 0x3f000000, infinity = 0x7f800000;
    int32_t bits = (int32_t)sumi_bits_of_float(value * 0.5f + 0.5f);
    bits = bits > infinity ? 0 : bits; // NaN
    bits = bits > 0 ? bits : 0;        // also the bits of negative floats
    bits = bits > one ? one : bits;
    float unit;
    memcpy(&unit, &bits, sizeof unit);
    const float scaled = unit * 255.0f;
    const int32_t floor_value = (int32_t)scaled,
                  fraction_bits = (int32_t)sumi_bits_of_float(scaled - (float)floor_value);
    return (uint8_t)(floor_value + ((fraction_bits > half) | ((fraction_bits == half) & (floor_value & 1))));
}

void sumi_planes_to_rgba(const float* planes, size_t pixel_count, uint8_t* rgba)
{
    SUMI_ASSERT(pixel_count == 0 || (planes != NULL && rgba != NULL));
    for (size_t i = 0; i < pixel_count; i++, rgba += 4) {
        for (size_t c = 0; c < 3; c++) rgba[c] = from_unit(planes[c * pixel_count + i]);
        rgba[3] = 255;
    }
}

void sumi_rgba_to_format(const uint8_t* rgba, size_t pixel_count, sumi_format format, void* into)
{
    uint8_t* bytes = into;
    float* values = into;
    uint16_t* halves = into;
    for (size_t i = 0; i < pixel_count; i++, rgba += 4) {
        const uint8_t r = rgba[0], g = rgba[1], b = rgba[2];
        switch (format) {
        case SUMI_FORMAT_RGBA8: memcpy(bytes + 4 * i, rgba, 4); break;
        case SUMI_FORMAT_BGRA8:
            bytes[4 * i] = b, bytes[4 * i + 1] = g, bytes[4 * i + 2] = r, bytes[4 * i + 3] = rgba[3];
            break;
        case SUMI_FORMAT_RGB8: bytes[3 * i] = r, bytes[3 * i + 1] = g, bytes[3 * i + 2] = b; break;
        case SUMI_FORMAT_RGB32F:
            for (size_t c = 0; c < 3; c++) values[3 * i + c] = (float)rgba[c] / 255.0f;
            break;
        case SUMI_FORMAT_RGBA16F:
            for (size_t c = 0; c < 4; c++) halves[4 * i + c] = sumi_float_to_f16((float)rgba[c] / 255.0f);
            break;
        }
    }
}
