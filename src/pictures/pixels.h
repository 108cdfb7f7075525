// Pixels in: a resize identical to Pillow's (8-bit, two passes, 22-bit fixed point). Pixels out: previews and 8-bit
// pictures.
#ifndef SUMI_PICTURES_PIXELS_H
#define SUMI_PICTURES_PIXELS_H
#include "base/memory.h"
#include "pictures/resize.h"

// The longest side of any picture. Functions fail with SUMI_INVALID_ARGUMENT for sides outside 1 .. this, and for
// row_bytes less than a row of pixels.
#define SUMI_PIXELS_MAX_SIDE 32768

typedef struct sumi_resized_pixels {
    uint8_t* into; // tightly packed
    int32_t width, height;
    sumi_filter filter;
} sumi_resized_pixels;
// Resizes a picture of 1 to 4 channels, which may not overlap the resized one. The order of passes (horizontal, then
// vertical) and the rounding are those of Pillow 12. If the sizes are equal, the picture is copied. Channels do not
// mix: alpha is resized like a colour, and sumi_pixels_to_rgba resizes as alpha asks.
sumi_result sumi_pixels_resize(sumi_heap* heap, const sumi_pixels* source, const sumi_resized_pixels* resized,
                               sumi_error* error);
// Checks that both sides lie in 1 .. SUMI_PIXELS_MAX_SIDE. `what` names the picture in the message.
sumi_result sumi_pixels_check_size(int32_t width, int32_t height, const char* what, sumi_error* error);
// Checks that a picture of the host program can be read: data is not NULL, valid size, 1, 3 or 4 channels, row_bytes
// large enough. `what` names the picture in the message ("mask").
sumi_result sumi_pixels_check(const sumi_pixels* pixels, const char* what, sumi_error* error);
// Converts a picture of the host program (1, 3 or 4 channels; grey is repeated, alpha is dropped) to tightly packed RGB
// of width x height.
sumi_result sumi_pixels_to_rgb(sumi_heap* heap, const sumi_pixels* pixels, int32_t width, int32_t height, uint8_t* rgb,
                               sumi_error* error);

// ---- Pictures with alpha (alpha.c)

// Converts a picture of the host program (1, 3 or 4 channels; grey is repeated, alpha is 255 if there is none) to
// tightly packed RGBA with straight alpha. Colours with alpha are resized as Pillow resizes mode "RGBA": multiplied by
// alpha. If the sizes are equal, pixels are copied.
sumi_result sumi_pixels_to_rgba(sumi_heap* heap, const sumi_pixels* pixels, const sumi_resized_pixels* resized,
                                sumi_error* error);
// Its parts, for those who resize a range of rows at a time: colours times alpha / 255; and divided by it, in place.
void sumi_pixels_premultiply(const uint8_t* rgba, size_t count, uint8_t* into);
void sumi_pixels_divide_by_alpha(uint8_t* rgba, size_t count);
// RGBA with straight alpha in front of white. `rgb` may be `rgba`.
void sumi_pixels_over_white(const uint8_t* rgba, size_t count, uint8_t* rgb);

// A window of a picture, which it shares the pixels with.
sumi_pixels sumi_pixels_window(const sumi_pixels* pixels, int32_t left, int32_t top, int32_t width, int32_t height);

// Linear preview of the autoencoder's latents: rgb = sum over c of factors[c] * latent[c] + bias, in [-1, 1].
typedef struct sumi_preview_factors {
    int32_t channel_count;
    const float (*factors)[3];
    float bias[3];
} sumi_preview_factors;
// Converts three planes of a picture, [-1, 1] to 0 .. 255: clamp(x / 2 + 0.5, 0, 1) * 255, rounded to nearest, ties to
// even. NaN gives 0. Alpha is 255.
void sumi_planes_to_rgba(const float* planes, size_t pixel_count, uint8_t* rgba);
// Converts 8-bit pixels to any format of images; formats without alpha leave it out. `into` is aligned for the format and does not overlap `rgba`.
void sumi_rgba_to_format(const uint8_t* rgba, size_t pixel_count, sumi_format format, void* into);

// ---- Masks of the region that is repainted (masks.c)

// Converts a mask of the host program (white = repaint; 3 and 4 channels: luma as Pillow's mode "L") to width x height
// bytes of 0 or 1 (1 if the resized value is >= 128, a threshold of 0.5). Reference: diffusers
// VaeImageProcessor(do_binarize, do_convert_grayscale).
sumi_result sumi_pixels_to_mask(sumi_heap* heap, const sumi_pixels* pixels, int32_t width, int32_t height,
                                uint8_t* mask, sumi_error* error);
// Bytes that sumi_pixels_to_mask allocates temporarily, without the weights of the resize filter.
uint64_t sumi_pixels_mask_bytes(const sumi_pixels* pixels, int32_t width, int32_t height);

// How a mask gets the size of the latents, as torch.nn.functional.interpolate does it.
typedef enum sumi_mask_filter {
    SUMI_MASK_NEAREST = 0, // 0 or 1
    // without antialiasing, align_corners false: fractions at the mask's edge
    SUMI_MASK_BILINEAR = 1
} sumi_mask_filter;
typedef struct sumi_latent_mask {
    float* values; // [height][width]: from 0 (kept) to 1 (repainted)
    int32_t width, height;
    sumi_mask_filter filter;
} sumi_latent_mask;
// `mask`: width x height bytes of 0 or 1; the latent mask is not larger.
void sumi_mask_to_latents(const uint8_t* mask, int32_t width, int32_t height, const sumi_latent_mask* latent_mask);

// The mask of a control net for inpainting, in the size of the picture: from 0 (kept) to 255 (repainted).
typedef struct sumi_control_mask {
    uint8_t* greys; // [height][width]
    int32_t width, height;
} sumi_control_mask;
// Converts a mask of the host program, as above, by Lanczos to 0 and 255, or by bicubic with its greys. Reference: the
// pipelines of diffusers for the first, DiffSynth for the second.
sumi_result sumi_pixels_to_control_mask(sumi_heap* heap, const sumi_pixels* pixels, bool is_binary,
                                        const sumi_control_mask* mask, sumi_error* error);
// `masked` is the picture rgb with a fourth byte, 255. Where the mask is 128 or more it is black or, without
// with_black, 0 in all bytes, which PIXELS_IN (plan/ops.h) reads as the middle grey.
void sumi_control_mask_out(const sumi_control_mask* mask, bool with_black, const uint8_t* rgb, uint8_t* masked);
// What is kept, from 0 to 1, in the size of the latents: kept[height][width], the nearest pixel of each.
void sumi_control_mask_to_latents(const sumi_control_mask* mask, int32_t width, int32_t height, float* kept);

// For each pixel that a mask repaints, the distance to the nearest pixel that it keeps, in thirds of a pixel: 3 to a
// direct neighbour, 4 to a diagonal one (chamfer distance, Borgefors 1986), at most SUMI_FAR. Kept pixels have 0. Two
// passes are needed: all rows downward, from the first row on, then all rows upward (`upward`), from the last row on.
// One call may process any number of rows of a pass.
#define SUMI_FAR 65000
void sumi_mask_distances(const uint8_t* mask, int32_t width, int32_t height, int32_t row_begin, int32_t row_end,
                         bool upward, uint16_t* distances);
// Converts a mask to opacity: 0 for kept pixels, 255 for pixels at least `feather` pixels inside the repainted region,
// in proportion between. With distances NULL or feather 0, 255 for all repainted pixels.
void sumi_mask_opacity(const uint8_t* mask, const uint16_t* distances, size_t count, int32_t feather, uint8_t* opacity);
#endif
