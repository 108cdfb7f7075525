// Masks of what is repainted.
#ifndef SUMI_PICTURES_MASKS_H
#define SUMI_PICTURES_MASKS_H
#include "pictures/pixels.h"

// The host's mask (white = repaint; 3 channels: luma as Pillow's L; 4 channels: luma too) to width x height of 0 / 1
// (threshold 0.5 after the resize: >= 128), and nearest-resized to latent size (width/8 x height/8) as floats 0 / 1.
// Reference: diffusers VaeImageProcessor(do_binarize, do_convert_grayscale).
// latent_mask may be NULL.
sumi_result sumi_pixels_to_mask(sumi_heap* heap, const sumi_pixels* pixels, int32_t width, int32_t height,
                                uint8_t* mask, float* latent_mask, sumi_error* error);
// Bytes that it allocates meanwhile, but for the filter's weights.
uint64_t sumi_pixels_mask_bytes(const sumi_pixels* pixels, int32_t width, int32_t height);

// How far every pixel that a mask repaints is from one that it keeps, in thirds of a pixel: 3 to a neighbour, 4 across a
// corner (chamfer distance, Borgefors 1986), at most SUMI_FAR. 0 where it keeps. First all rows downward, from the first
// one on, then all upward, from the last one on, as many at a time as is wanted.
#define SUMI_FAR 65000
void sumi_mask_distances(const uint8_t* mask, int32_t width, int32_t height, int32_t row_begin, int32_t row_end,
                         bool upward, uint16_t* distances);
// What is repainted, as opacity: 0 where the mask keeps, 255 from so many pixels inside on, in proportion between.
// Without distances, or with a feather of 0, 255 wherever the mask repaints.
void sumi_mask_opacity(const uint8_t* mask, const uint16_t* distances, size_t count, int32_t feather, uint8_t* opacity);
#endif
