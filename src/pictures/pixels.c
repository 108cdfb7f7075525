// Converting pictures exactly as the reference does. The resize is Pillow's: an output pixel of one axis is a weighted
// sum of the input pixels in a window. The weights are rounded to 22 fraction bits, and the result of each pass is
// rounded to 8 bits. Both roundings are visible in the encoder's input, so they are part of the algorithm:
//
//     source  --horizontal-->  8-bit rows of the new width  --vertical-->  new size
//
// A pass is skipped if the length of its axis does not change. When a picture shrinks, the window is wider: the
// filter's support times the scale. The windows (first input pixel, count) and weights are computed once per axis.
#include "pictures/pixels.h"
#include "base/assert.h"
#include "base/dtype.h"
#include "base/numbers.h"
#include <math.h>
#include <string.h>

enum { FRACTION_BITS = 22 };
static const double s_pi = 3.14159265358979323846;

// ---- Filters and weights --------------------------------------------------------------------------------------------

static double sinc(double x)
{
    if (x == 0.0) return 1.0;
    x *= s_pi;
    return sin(x) / x;
}

static double lanczos(double x) { return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

// Keys' cubic convolution with a = -0.5.
static double bicubic(double x)
{
    const double a = -0.5;
    if (x < 0.0) x = -x;
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

typedef struct axis_window {
    int32_t first, count;
} axis_window;
// Output i of an axis is the sum over j < windows[i].count of weights[i * stride + j] * input[windows[i].first + j].
typedef struct axis {
    axis_window* windows;
    int32_t* weights;
    size_t stride;
    int32_t length; // number of outputs
} axis;

static void axis_free(sumi_heap* heap, axis* a)
{
    sumi_free(heap, a->windows);
    sumi_free(heap, a->weights);
}

// The axis has its length already; `length` is that of the input.
static sumi_result axis_make(sumi_heap* heap, axis* a, int32_t length, sumi_filter filter, sumi_error* error)
{
    const int32_t new_length = a->length;
    SUMI_ASSERT(length >= 1 && new_length >= 1 && length != new_length);
    double scale = (double)length / new_length;
    double filter_scale = scale < 1.0 ? 1.0 : scale;
    double support = (filter == SUMI_FILTER_LANCZOS ? 3.0 : 2.0) * filter_scale;
    a->stride = (size_t)ceil(support) * 2 + 1;
    a->windows = sumi_alloc_array(heap, (size_t)new_length, sizeof *a->windows);
    a->weights = sumi_alloc_array(heap, (size_t)new_length * a->stride, sizeof *a->weights);
    double* exact = sumi_alloc_array(heap, a->stride, sizeof *exact);
    if (a->windows == NULL || a->weights == NULL || exact == NULL) {
        sumi_free(heap, exact);
        return sumi_out_of_memory(error, (size_t)new_length * a->stride * sizeof *a->weights,
                                  "the weights of an image's resize");
    }
    double step = 1.0 / filter_scale;
    for (int32_t i = 0; i < new_length; i++) {
        double center = (i + 0.5) * scale;
        int32_t first = (int32_t)(center - support + 0.5), end = (int32_t)(center + support + 0.5);
        if (first < 0) first = 0;
        if (end > length) end = length;
        double sum = 0.0;
        for (int32_t j = 0; j < end - first; j++) {
            double x = (j + first - center + 0.5) * step;
            exact[j] = filter == SUMI_FILTER_LANCZOS ? lanczos(x) : bicubic(x);
            sum += exact[j];
        }
        SUMI_ASSERT(first < end && (size_t)(end - first) <= a->stride);
        int32_t* weights = a->weights + (size_t)i * a->stride;
        for (int32_t j = 0; j < end - first; j++) {
            double weight = (sum != 0.0 ? exact[j] / sum : exact[j]) * (1 << FRACTION_BITS);
            weights[j] = (int32_t)(weight + (weight < 0.0 ? -0.5 : 0.5));
        }
        a->windows[i] = (axis_window){first, end - first};
    }
    sumi_free(heap, exact);
    return SUMI_OK;
}

// The weights add up to 2^22, and their absolute values to at most 1.6 times that (half a window at an edge), so 255
// times this sum fits 31 bits.
static inline uint8_t from_fixed(int32_t sum)
{
    if (sum < 0) return 0; // also because a shift of a negative number is not portable
    sum >>= FRACTION_BITS;
    return (uint8_t)(sum > 255 ? 255 : sum);
}

// Rows of bytes, row_bytes apart.
typedef struct byte_rows {
    const uint8_t* data;
    size_t row_bytes;
    int32_t count;
} byte_rows;

static inline void pass_horizontal_of(const int32_t channels, const axis* a, byte_rows source, uint8_t* into)
{
    const int32_t new_width = a->length;
    for (int32_t y = 0; y < source.count; y++) {
        const uint8_t* row = source.data + (size_t)y * source.row_bytes;
        for (int32_t x = 0; x < new_width; x++) {
            axis_window window = a->windows[x];
            const int32_t* weights = a->weights + (size_t)x * a->stride;
            const uint8_t* from = row + (size_t)window.first * (size_t)channels;
            int32_t sums[4] = {1 << (FRACTION_BITS - 1), 1 << (FRACTION_BITS - 1), 1 << (FRACTION_BITS - 1),
                               1 << (FRACTION_BITS - 1)};
            for (int32_t j = 0; j < window.count; j++) {
                for (int32_t c = 0; c < channels; c++) sums[c] += weights[j] * from[c];
                from += channels;
            }
            for (int32_t c = 0; c < channels; c++) *into++ = from_fixed(sums[c]);
        }
    }
}

// The loop exists once per channel count, so that the sums stay in registers.
static void pass_horizontal(const axis* a, byte_rows source, int32_t channels, uint8_t* into)
{
    SUMI_ASSERT(channels >= 1 && channels <= 4 && source.count >= 1 && source.row_bytes > 0);
    switch (channels) {
    case 1: pass_horizontal_of(1, a, source, into); break;
    case 2: pass_horizontal_of(2, a, source, into); break;
    case 3: pass_horizontal_of(3, a, source, into); break;
    default: pass_horizontal_of(4, a, source, into); break;
    }
}

// Computes whole rows: `sums` holds the accumulators of one row.
static void pass_vertical(const axis* a, byte_rows source, size_t row_values, uint8_t* into, int32_t* sums)
{
    SUMI_ASSERT(row_values > 0 && source.row_bytes >= row_values && a->length >= 1);
    const int32_t new_height = a->length;
    for (int32_t y = 0; y < new_height; y++) {
        axis_window window = a->windows[y];
        for (size_t i = 0; i < row_values; i++) sums[i] = 1 << (FRACTION_BITS - 1);
        for (int32_t j = 0; j < window.count; j++) {
            const int32_t weight = a->weights[(size_t)y * a->stride + (size_t)j];
            const uint8_t* row = source.data + (size_t)(window.first + j) * source.row_bytes;
            for (size_t i = 0; i < row_values; i++) sums[i] += weight * row[i];
        }
        for (size_t i = 0; i < row_values; i++) *into++ = from_fixed(sums[i]);
    }
}

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

sumi_result sumi_pixels_resize(sumi_heap* heap, const sumi_pixels* source, const sumi_resized_pixels* resized,
                               sumi_error* error)
{
    const int32_t channel_count = source->channel_count, width = source->width, height = source->height;
    const int32_t new_width = resized->width, new_height = resized->height;
    const sumi_filter filter = resized->filter;
    uint8_t* into = resized->into;
    if (channel_count < 1 || channel_count > 4) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "an image of %d channels cannot be resized: 1 to 4 are possible",
                         (int)channel_count);
    }
    SUMI_TRY(check_source(source, "the image to resize", error));
    SUMI_TRY(sumi_pixels_check_size(new_width, new_height, "the image", error));
    if (into == NULL) return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the resized image has no memory: into is NULL");
    if (filter != SUMI_FILTER_BICUBIC && filter != SUMI_FILTER_LANCZOS) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "filter %d is unknown: use SUMI_FILTER_BICUBIC or SUMI_FILTER_LANCZOS", (int)filter);
    }
    const bool resizes_width = new_width != width, resizes_height = new_height != height;
    const size_t new_row = (size_t)new_width * (size_t)channel_count, row_bytes = (size_t)source->row_bytes;
    const uint8_t* data = source->data;
    if (!resizes_width && !resizes_height) {
        for (int32_t y = 0; y < height; y++) memcpy(into + (size_t)y * new_row, data + (size_t)y * row_bytes, new_row);
        return SUMI_OK;
    }

    axis horizontal = {.length = new_width}, vertical = {.length = new_height};
    uint8_t* intermediate = NULL;
    int32_t* sums = NULL;
    const size_t intermediate_bytes = resizes_width && resizes_height ? new_row * (size_t)height : 0;
    sumi_result result = resizes_width ? axis_make(heap, &horizontal, width, filter, error) : SUMI_OK;
    if (result == SUMI_OK && resizes_height) result = axis_make(heap, &vertical, height, filter, error);
    if (result == SUMI_OK && resizes_height) {
        sums = sumi_alloc_array(heap, new_row, sizeof *sums);
        if (sums == NULL) result = sumi_out_of_memory(error, new_row * sizeof *sums, "a row of an image's resize");
    }
    if (result == SUMI_OK && intermediate_bytes > 0) {
        intermediate = sumi_alloc(heap, intermediate_bytes);
        if (intermediate == NULL)
            result = sumi_out_of_memory(error, intermediate_bytes, "the first pass of an image's resize");
    }
    if (result == SUMI_OK) {
        byte_rows rows = {data, row_bytes, height};
        if (resizes_width) {
            pass_horizontal(&horizontal, rows, channel_count, resizes_height ? intermediate : into);
            rows = (byte_rows){intermediate, new_row, height};
        }
        if (resizes_height) pass_vertical(&vertical, rows, new_row, into, sums);
    }
    sumi_free(heap, intermediate);
    sumi_free(heap, sums);
    axis_free(heap, &horizontal);
    axis_free(heap, &vertical);
    return result;
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
    const uint8_t* data = pixels->data;
    const size_t count = (size_t)width * (size_t)height;
    if (pixels->channel_count == 3) {
        const sumi_resized_pixels resized = {rgb, width, height, SUMI_FILTER_LANCZOS};
        return sumi_pixels_resize(heap, pixels, &resized, error);
    }
    // The grey picture is resized into the last third of rgb, then expanded from the start: reads stay ahead of writes.
    if (pixels->channel_count == 1) {
        uint8_t* grey = rgb + 2 * count;
        const sumi_resized_pixels resized = {grey, width, height, SUMI_FILTER_LANCZOS};
        SUMI_TRY(sumi_pixels_resize(heap, pixels, &resized, error));
        for (size_t i = 0; i < count; i++) {
            uint8_t value = grey[i];
            rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = value;
        }
        return SUMI_OK;
    }
    const bool has_same_size = width == pixels->width && height == pixels->height;
    const size_t source_count = (size_t)pixels->width * (size_t)pixels->height;
    uint8_t* colours = has_same_size ? rgb : sumi_alloc_array(heap, source_count, 3);
    if (colours == NULL) return sumi_out_of_memory(error, 3 * source_count, "an image without its alpha channel");
    uint8_t* to = colours;
    for (int32_t y = 0; y < pixels->height; y++) {
        const uint8_t* from = data + (size_t)y * (size_t)pixels->row_bytes;
        for (int32_t x = 0; x < pixels->width; x++, from += 4, to += 3) memcpy(to, from, 3);
    }
    if (has_same_size) return SUMI_OK;
    const sumi_pixels opaque = {colours, pixels->width, pixels->height, 3 * pixels->width, 3};
    const sumi_resized_pixels resized = {rgb, width, height, SUMI_FILTER_LANCZOS};
    sumi_result result = sumi_pixels_resize(heap, &opaque, &resized, error);
    sumi_free(heap, colours);
    return result;
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
        case SUMI_FORMAT_RGBA8: bytes[4 * i] = r, bytes[4 * i + 1] = g, bytes[4 * i + 2] = b; break;
        case SUMI_FORMAT_BGRA8: bytes[4 * i] = b, bytes[4 * i + 1] = g, bytes[4 * i + 2] = r; break;
        case SUMI_FORMAT_RGB8: bytes[3 * i] = r, bytes[3 * i + 1] = g, bytes[3 * i + 2] = b; break;
        case SUMI_FORMAT_RGB32F:
            for (size_t c = 0; c < 3; c++) values[3 * i + c] = (float)rgba[c] / 255.0f;
            break;
        case SUMI_FORMAT_RGBA16F:
            for (size_t c = 0; c < 4; c++) halves[4 * i + c] = sumi_float_to_f16((float)rgba[c] / 255.0f);
            break;
        }
        if (format == SUMI_FORMAT_RGBA8 || format == SUMI_FORMAT_BGRA8) bytes[4 * i + 3] = 255;
    }
}
