// One axis of a resize that is identical to Pillow's (pixels.h), a range of rows at a time. Sums are of integers, so the
// bits depend neither on the ranges nor on the number of workers nor on the instructions of the CPU.
#ifndef SUMI_PICTURES_RESIZE_H
#define SUMI_PICTURES_RESIZE_H
#include "base/workers.h"
#include <stddef.h>

typedef enum sumi_filter { SUMI_FILTER_BICUBIC, SUMI_FILTER_LANCZOS } sumi_filter;

// The window and the weights of each output pixel along an axis.
typedef struct sumi_resize_axis sumi_resize_axis;
// Bytes of an axis that is resized from a length to a new one.
uint64_t sumi_resize_axis_bytes(int32_t length, int32_t new_length, sumi_filter filter);
// Makes an axis in memory of the caller, sumi_resize_axis_bytes large and aligned to SUMI_ALIGNMENT.
const sumi_resize_axis* sumi_resize_axis_make(void* memory, int32_t length, int32_t new_length, sumi_filter filter);

// Resizes the rows of a picture, or its columns. Pixels out are tightly packed and do not overlap the pixels in.
typedef struct sumi_resize_pass {
    const sumi_resize_axis* axis; // NULL: the length does not change, pixels are copied
    const uint8_t* from;
    size_t from_row_bytes;
    uint8_t* into;
    int32_t width;                   // of the pixels in; of rows also without an axis
    int32_t from_channels, channels; // of a pixel in and out, 1 to 4. Only rows may have fewer channels out
} sumi_resize_pass;
// Resizes rows [begin, end) of the pixels in. workers NULL: only the caller works.
void sumi_resize_rows(const sumi_resize_pass* pass, sumi_workers* workers, int32_t begin, int32_t end);
// Resizes all columns, and writes rows [begin, end) of the pixels out.
void sumi_resize_columns(const sumi_resize_pass* pass, sumi_workers* workers, int32_t begin, int32_t end);
#endif
