// Masks of the region that is repainted.
#ifndef SUMI_PICTURES_MASKS_H
#define SUMI_PICTURES_MASKS_H
#include "pictures/pixels.h"

// Converts a mask of the host program (white = repaint; 3 and 4 channels: luma as Pillow's mode "L") to width x height
// bytes of 0 or 1 (1 if the resized value is >= 128, a threshold of 0.5). Also writes the mask at latent size (width /
// 8 x height / 8, nearest) as floats 0 or 1 to latent_mask, which may be NULL. Reference: diffusers
// VaeImageProcessor(do_binarize, do_convert_grayscale).
sumi_result sumi_pixels_to_mask(sumi_heap* heap, const sumi_pixels* pixels, int32_t width, int32_t height,
                                uint8_t* mask, float* latent_mask, sumi_error* error);
// Bytes that sumi_pixels_to_mask allocates temporarily, without the weights of the resize filter.
uint64_t sumi_pixels_mask_bytes(const sumi_pixels* pixels, int32_t width, int32_t height);

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
