// How large a picture is made before a network looks at it. Sizes are whole numbers of a multiple; quotients are
// rounded to the nearest whole number, halves to the even one, as the references do.
#ifndef SUMI_PICTURES_PICTURE_SIZES_H
#define SUMI_PICTURES_PICTURE_SIZES_H
#include "base/result.h"

typedef struct sumi_picture_size {
    int32_t width, height;
} sumi_picture_size;

// About `area` pixels with the picture's ratio of sides, which is what counts of it. Sizes outside 1 ..
// SUMI_PIXELS_MAX_SIDE, given or found, are SUMI_INVALID_ARGUMENT.
sumi_result sumi_picture_size_of_area(sumi_picture_size picture, int64_t area, int32_t multiple,
                                      sumi_picture_size* out_size, sumi_error* error);

typedef struct sumi_size_limits {
    int32_t multiple;
    int64_t min_area, max_area; // of the size that is found
    int32_t max_ratio;          // of the longer to the shorter side of the picture; beyond is SUMI_INVALID_ARGUMENT
} sumi_size_limits;
// The picture's own size if its area lies between the limits, else the nearest within them.
sumi_result sumi_picture_size_within(sumi_picture_size picture, const sumi_size_limits* limits,
                                     sumi_picture_size* out_size, sumi_error* error);
#endif
