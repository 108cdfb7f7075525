#include "base/assert.h"
#include "pictures/pixels.h"
#include <string.h>

// value * alpha / 255, rounded to nearest
static inline uint8_t multiply_by_alpha(uint32_t value, uint32_t alpha)
{
    uint32_t t = value * alpha + 128;
    return (uint8_t)(((t >> 8) + t) >> 8);
}

static inline uint8_t divide_by_alpha(uint32_t value, uint32_t alpha)
{
    if (alpha == 0 || alpha == 255) return (uint8_t)value;
    value = 255 * value / alpha;
    return (uint8_t)(value > 255 ? 255 : value);
}

// Pillow multiplies the colours of RGBA by alpha before it resizes, so that the colours of transparent pixels do not
// show at edges. Needed for masks that are painted on a transparent layer.
static sumi_result resize_rgba(sumi_heap* heap, const sumi_pixels* pixels, const sumi_resized_pixels* resized,
                               sumi_error* error)
{
    SUMI_ASSERT(pixels->channel_count == 4);
    const size_t source_count = (size_t)pixels->width * (size_t)pixels->height;
    uint8_t* multiplied = sumi_alloc_array(heap, source_count, 4);
    if (multiplied == NULL)
        return sumi_out_of_memory(error, 4 * source_count, "a mask multiplied by its alpha channel");
    uint8_t* to = multiplied;
    for (int32_t y = 0; y < pixels->height; y++) {
        const uint8_t* from = (const uint8_t*)pixels->data + (size_t)y * (size_t)pixels->row_bytes;
        for (int32_t x = 0; x < pixels->width; x++, from += 4, to += 4) {
            for (int c = 0; c < 3; c++) to[c] = multiply_by_alpha(from[c], from[3]);
            to[3] = from[3];
        }
    }
    const sumi_pixels source = {multiplied, pixels->width, pixels->height, 4 * pixels->width, 4};
    sumi_result result = sumi_pixels_resize(heap, &source, resized, error);
    sumi_free(heap, multiplied);
    if (result != SUMI_OK) return result;
    uint8_t* end = resized->into + (size_t)resized->width * (size_t)resized->height * 4;
    for (uint8_t* pixel = resized->into; pixel < end; pixel += 4) {
        for (int c = 0; c < 3; c++) pixel[c] = divide_by_alpha(pixel[c], pixel[3]);
    }
    return SUMI_OK;
}

// ITU-R 601-2 in fixed point with 16 fraction bits, as Pillow's mode "L".
static inline uint8_t luma(const uint8_t* rgb)
{
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

// In the references' order: resize, convert to grey.
static sumi_result resize_to_grey(sumi_heap* heap, const sumi_pixels* pixels, const sumi_resized_pixels* grey,
                                  sumi_error* error)
{
    const int32_t width = grey->width, height = grey->height;
    uint8_t* mask = grey->into;
    SUMI_TRY(sumi_pixels_check(pixels, "the mask", error));
    SUMI_TRY(sumi_pixels_check_size(width, height, "the mask", error));
    if (mask == NULL) return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the prepared mask has no memory: mask is NULL");
    const int32_t channels = pixels->channel_count;
    const size_t count = (size_t)width * (size_t)height;
    const bool has_same_size = width == pixels->width && height == pixels->height;
    uint8_t* resized = channels == 1 ? mask : sumi_alloc_array(heap, count, (size_t)channels);
    if (resized == NULL) return sumi_out_of_memory(error, count * (size_t)channels, "a mask's colours");
    const sumi_resized_pixels to = {resized, width, height, grey->filter};
    sumi_result result = channels == 4 && !has_same_size ? resize_rgba(heap, pixels, &to, error)
                                                         : sumi_pixels_resize(heap, pixels, &to, error);
    for (size_t i = 0; i < count && result == SUMI_OK && channels != 1; i++)
        mask[i] = luma(resized + i * (size_t)channels);
    if (channels != 1) sumi_free(heap, resized);
    return result;
}

sumi_result sumi_pixels_to_mask(sumi_heap* heap, const sumi_pixels* pixels, int32_t width, int32_t height,
                                uint8_t* mask, sumi_error* error)
{
    const sumi_resized_pixels grey = {mask, width, height, SUMI_FILTER_LANCZOS};
    SUMI_TRY(resize_to_grey(heap, pixels, &grey, error));
    for (size_t i = 0; i < (size_t)width * (size_t)height; i++) mask[i] = mask[i] >= 128;
    return SUMI_OK;
}

// The two pixels between which an element of an axis of the latents lies, and the share of the second one.
typedef struct place {
    int32_t first, second;
    float share;
} place;

static place place_of(int32_t i, int32_t count, int32_t pixel_count, sumi_mask_filter filter)
{
    const float scale = (float)pixel_count / (float)count;
    // less than pixel_count, because i + 1 <= count
    if (filter == SUMI_MASK_NEAREST) return (place){(int32_t)((float)i * scale), (int32_t)((float)i * scale), 0.0f};
    const float at = scale * ((float)i + 0.5f) - 0.5f, from = at > 0.0f ? at : 0.0f;
    const int32_t first = (int32_t)from, last = pixel_count - 1;
    return (place){first, first < last ? first + 1 : last, from - (float)first};
}

sumi_result sumi_pixels_to_control_mask(sumi_heap* heap, const sumi_pixels* pixels, bool is_binary,
                                        const sumi_control_mask* mask, sumi_error* error)
{
    const sumi_resized_pixels grey = {mask->greys, mask->width, mask->height,
                                      is_binary ? SUMI_FILTER_LANCZOS : SUMI_FILTER_BICUBIC};
    SUMI_TRY(resize_to_grey(heap, pixels, &grey, error));
    for (size_t i = 0; is_binary && i < (size_t)mask->width * (size_t)mask->height; i++)
        mask->greys[i] = mask->greys[i] >= 128 ? 255 : 0;
    return SUMI_OK;
}

void sumi_control_mask_out(const sumi_control_mask* mask, bool with_black, const uint8_t* rgb, uint8_t* masked)
{
    for (size_t i = 0; i < (size_t)mask->width * (size_t)mask->height; i++, rgb += 3, masked += 4) {
        const bool is_masked = mask->greys[i] >= 128;
        for (int c = 0; c < 3; c++) masked[c] = is_masked ? 0 : rgb[c];
        masked[3] = is_masked && !with_black ? 0 : 255;
    }
}

void sumi_control_mask_to_latents(const sumi_control_mask* mask, int32_t width, int32_t height, float* kept)
{
    SUMI_ASSERT(width >= 1 && width <= mask->width && height >= 1 && height <= mask->height);
    for (int32_t y = 0; y < height; y++) {
        for (int32_t x = 0; x < width; x++) {
            const place row = place_of(y, height, mask->height, SUMI_MASK_NEAREST),
                        column = place_of(x, width, mask->width, SUMI_MASK_NEAREST);
            kept[(size_t)y * (size_t)width + (size_t)x] =
                1.0f - (float)mask->greys[(size_t)row.first * (size_t)mask->width + (size_t)column.first] / 255.0f;
        }
    }
}

void sumi_mask_to_latents(const uint8_t* mask, int32_t width, int32_t height, const sumi_latent_mask* latent_mask)
{
    const int32_t columns = latent_mask->width, rows = latent_mask->height;
    SUMI_ASSERT(columns >= 0 && columns <= width && rows >= 0 && rows <= height);
    float* to = latent_mask->values;
    for (int32_t row = 0; row < rows; row++) {
        const place y = place_of(row, rows, height, latent_mask->filter);
        const uint8_t *above = mask + (size_t)y.first * (size_t)width, *below = mask + (size_t)y.second * (size_t)width;
        for (int32_t column = 0; column < columns; column++) {
            const place x = place_of(column, columns, width, latent_mask->filter);
            const float upper = (1.0f - x.share) * above[x.first] + x.share * above[x.second],
                        lower = (1.0f - x.share) * below[x.first] + x.share * below[x.second];
            *to++ = (1.0f - y.share) * upper + y.share * lower;
        }
    }
}

uint64_t sumi_pixels_mask_bytes(const sumi_pixels* pixels, int32_t width, int32_t height)
{
    const uint64_t channels = (uint64_t)pixels->channel_count, row = (uint64_t)width * channels;
    if (channels == 1) return 0;
    const bool multiplies = channels == 4 && (width != pixels->width || height != pixels->height); // see resize_rgba
    const uint64_t source = (uint64_t)pixels->height * ((uint64_t)pixels->width * channels + row);
    return row * (uint64_t)height + (multiplies ? source : 0);
}

static void keep_smaller(uint16_t* distance, int32_t candidate)
{
    if (candidate < *distance) *distance = (uint16_t)candidate;
}

void sumi_mask_distances(const uint8_t* mask, int32_t width, int32_t height, int32_t row_begin, int32_t row_end,
                         bool upward, uint16_t* distances)
{
    SUMI_ASSERT(0 <= row_begin && row_begin <= row_end && row_end <= height);
    const int32_t step = upward ? -1 : 1; // towards the next row and the next column
    for (int32_t i = row_begin; i < row_end; i++) {
        const int32_t y = upward ? row_begin + row_end - 1 - i : i;
        const bool has_before = y - step >= 0 && y - step < height;
        uint16_t *row = distances + (size_t)y * (size_t)width, *before = has_before ? row - step * width : row;
        for (int32_t k = 0; k < width; k++) {
            const int32_t x = upward ? width - 1 - k : k;
            if (!upward) row[x] = mask[(size_t)y * (size_t)width + (size_t)x] != 0 ? SUMI_FAR : 0;
            if (k > 0) keep_smaller(&row[x], row[x - step] + 3);
            if (!has_before) continue;
            keep_smaller(&row[x], before[x] + 3);
            if (x > 0) keep_smaller(&row[x], before[x - 1] + 4);
            if (x + 1 < width) keep_smaller(&row[x], before[x + 1] + 4);
        }
    }
}

void sumi_mask_opacity(const uint8_t* mask, const uint16_t* distances, size_t count, int32_t feather, uint8_t* opacity)
{
    for (size_t i = 0; i < count; i++) {
        const int32_t inside = distances != NULL ? distances[i] : SUMI_FAR;
        opacity[i] = mask[i] == 0                          ? 0
                   : feather == 0 || inside >= 3 * feather ? 255
                                                           : (uint8_t)(255 * inside / (3 * feather));
    }
}
