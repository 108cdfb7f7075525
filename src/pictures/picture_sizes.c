#include "pictures/picture_sizes.h"
#include "base/assert.h"
#include "pictures/pixels.h"
#include <math.h>

static bool is_side(double side) { return side >= 1.0 && side <= SUMI_PIXELS_MAX_SIDE; }

static sumi_result check_picture(sumi_picture_size picture, sumi_error* error)
{
    if (is_side(picture.width) && is_side(picture.height)) return SUMI_OK;
    return sumi_fail(error, SUMI_INVALID_ARGUMENT, "an image has %d x %d pixels: give it sides of 1 to %d",
                     (int)picture.width, (int)picture.height, SUMI_PIXELS_MAX_SIDE);
}

static sumi_result check_size(sumi_picture_size picture, double width, double height, sumi_picture_size* out_size,
                              sumi_error* error)
{
    if (!is_side(width) || !is_side(height)) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "an image of %d x %d pixels would be resized to %.0f x %.0f: it is too long and narrow, "
                         "give one that is closer to a square",
                         (int)picture.width, (int)picture.height, width, height);
    }
    *out_size = (sumi_picture_size){(int32_t)width, (int32_t)height};
    return SUMI_OK;
}

sumi_result sumi_picture_size_of_area(sumi_picture_size picture, int64_t area, int32_t multiple,
                                      sumi_picture_size* out_size, sumi_error* error)
{
    SUMI_ASSERT(area >= 1 && multiple >= 1);
    SUMI_TRY(check_picture(picture, error));
    // in double; the height is computed from the width before rounding
    const double ratio = (double)picture.width / picture.height, width = sqrt((double)area * ratio),
                 height = width / ratio;
    return check_size(picture, nearbyint(width / multiple) * multiple, nearbyint(height / multiple) * multiple,
                      out_size, error);
}

sumi_result sumi_picture_size_within(sumi_picture_size picture, const sumi_size_limits* limits,
                                     sumi_picture_size* out_size, sumi_error* error)
{
    SUMI_ASSERT(limits->multiple >= 1 && limits->max_area >= limits->min_area && limits->max_ratio >= 1);
    SUMI_TRY(check_picture(picture, error));
    const double width = picture.width, height = picture.height, multiple = limits->multiple;
    if (fmax(width, height) / fmin(width, height) > limits->max_ratio) {
        return sumi_fail(
            error, SUMI_INVALID_ARGUMENT,
            "an image of %d x %d pixels has one side more than %d times as long as the other: give one that is "
            "closer to a square",
            (int)picture.width, (int)picture.height, (int)limits->max_ratio);
    }
    double wide = fmax(multiple, nearbyint(width / multiple) * multiple),
           high = fmax(multiple, nearbyint(height / multiple) * multiple);
    if (wide * high > (double)limits->max_area) {
        const double shrink = sqrt(height * width / (double)limits->max_area);
        wide = fmax(multiple, floor(width / shrink / multiple) * multiple);
        high = fmax(multiple, floor(height / shrink / multiple) * multiple);
    } else if (wide * high < (double)limits->min_area) {
        const double grow = sqrt((double)limits->min_area / (height * width));
        wide = ceil(width * grow / multiple) * multiple;
        high = ceil(height * grow / multiple) * multiple;
    }
    return check_size(picture, wide, high, out_size, error);
}
