// The size to which a picture is resized or cropped before a network reads it. Both sides are multiples of a given
// number. Quotients are rounded as in the reference implementations: for a resize to the nearest integer, ties to even;
// for a crop downward.
#ifndef SUMI_PICTURES_PICTURE_SIZES_H
#define SUMI_PICTURES_PICTURE_SIZES_H
#include "base/result.h"

typedef struct sumi_picture_size {
    int32_t width, height;
} sumi_picture_size;

// The size of about `area` pixels with the picture's aspect ratio; only this ratio of `picture` is used. Fails with
// SUMI_INVALID_ARGUMENT if a given or a computed side lies outside 1 .. SUMI_PIXELS_MAX_SIDE.
sumi_result sumi_picture_size_of_area(sumi_picture_size picture, int64_t area, int32_t multiple,
                                      sumi_picture_size* out_size, sumi_error* error);

typedef struct sumi_size_limits {
    int32_t multiple;
    int64_t min_area, max_area; // of the computed size, in pixels
    // Longer side of the picture divided by its shorter side; above max_ratio the call fails with
    // SUMI_INVALID_ARGUMENT.
    int32_t max_ratio;
} sumi_size_limits;
// The picture's own size, rounded to multiples, if its area lies within the limits; otherwise about the nearest size
// whose area does.
sumi_result sumi_picture_size_within(sumi_picture_size picture, const sumi_size_limits* limits,
                                     sumi_picture_size* out_size, sumi_error* error);

typedef struct sumi_crop_rule {
    int64_t max_area; // a picture with more pixels is resized to about this many; a smaller one is never enlarged
    int32_t multiple;
    // Pictures beyond these limits are refused with SUMI_INVALID_ARGUMENT. 0: no limit. max_ratio: as above.
    int32_t min_side, max_ratio;
} sumi_crop_rule;
typedef struct sumi_picture_crop {
    sumi_picture_size resized; // the picture's own size, or a smaller one; no multiples
    sumi_picture_size size;    // of the window in the middle of the resized picture
    int32_t left, top;
} sumi_picture_crop;
// Fails with SUMI_INVALID_ARGUMENT also if no multiple fits into the picture.
sumi_result sumi_picture_crop_within(sumi_picture_size picture, const sumi_crop_rule* rule, sumi_picture_crop* out_crop,
                                     sumi_error* error);
#endif
