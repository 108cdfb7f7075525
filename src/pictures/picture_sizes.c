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

static sumi_result check_ratio(sumi_picture_size picture, int32_t max_ratio, sumi_error* error)
{
    const double width = picture.width, height = picture.height;
    if (fmax(width, height) / fmin(width, height) <= max_ratio) return SUMI_OK;
    return sumi_fail(
        error, SUMI_INVALID_ARGUMENT,
        "an image of %d x %d pixels has one side more than %d times as long as the other: give one that is "
        "closer to a square",
        (int)picture.width, (int)picture.height, (int)max_ratio);
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
    SUMI_TRY(check_ratio(picture, limits->max_ratio, error));
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

sumi_result sumi_picture_crop_within(sumi_picture_size picture, const sumi_crop_rule* rule, sumi_picture_crop* out_crop,
                                     sumi_error* error)
{
    const int32_t multiple = rule->multiple;
    SUMI_ASSERT(multiple >= 1 && rule->max_area >= 1 && rule->min_side >= 0 && rule->max_ratio >= 0);
    SUMI_TRY(check_picture(picture, error));
    if (picture.width < rule->min_side || picture.height < rule->min_side) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "an image of %d x %d pixels is too small: give one with at least %d pixels along each side",
                         (int)picture.width, (int)picture.height, (int)rule->min_side);
    }
    if (rule->max_ratio > 0) SUMI_TRY(check_ratio(picture, rule->max_ratio, error));
    sumi_picture_size resized = picture;
    const int64_t area = (int64_t)picture.width * picture.height;
    if (area > rule->max_area) {
        const double shrink = sqrt((double)rule->max_area / (double)area);
        resized = (sumi_picture_size){(int32_t)(picture.width * shrink), (int32_t)(picture.height * shrink)};
    }
    const sumi_picture_size size = {resized.width / multiple * multiple, resized.height / multiple * multiple};
    if (size.width < multiple || size.height < multiple) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "an image of %d x %d pixels%s has less than %d pixels along a side: give a larger one, or one "
                         "that is closer to a square",
                         (int)picture.width, (int)picture.height, area > rule->max_area ? ", once it is shrunk," : "",
                         (int)multiple);
    }
    *out_crop = (sumi_picture_crop){.resized = resized,
                                    .size = size,
                                    .left = (resized.width - size.width) / 2,
                                    .top = (resized.height - size.height) / 2};
    return SUMI_OK;
}
