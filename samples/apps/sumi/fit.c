#include "fit.h"
#include "files.h"
#include <stdio.h>

// A picture that is larger than the image by less than this is cut to it, so that its pixels are used as they are.
#define EDGE 16

sumi_size fit_size(const picture_file* image, int32_t multiple, int32_t max_size)
{
    const int32_t longest = image->width > image->height ? image->width : image->height;
    const int32_t limit = longest > max_size ? max_size : longest; // of the longest side
    return (sumi_size){
        .width = (int32_t)((int64_t)image->width * limit / longest) / multiple * multiple,
        .height = (int32_t)((int64_t)image->height * limit / longest) / multiple * multiple,
    };
}

bool fit_reduces(const picture_file* image, int32_t max_size)
{
    return image->width > max_size || image->height > max_size;
}

// a * b / c, rounded, and at least 1
static int32_t scaled(int32_t a, int32_t b, int32_t c)
{
    const int64_t value = ((int64_t)a * b + c / 2) / c;
    return value < 1 ? 1 : (int32_t)value;
}

picture_part fit_part(const picture_file* image, sumi_size size, picture_fit fit)
{
    picture_part part = {0, 0, image->width, image->height};
    const int64_t across = (int64_t)image->width * size.height, down = (int64_t)image->height * size.width;
    if (fit == FIT_STRETCH || across == down) return part;
    const int32_t more_x = image->width - size.width, more_y = image->height - size.height;
    if (more_x >= 0 && more_x < EDGE && more_y >= 0 && more_y < EDGE)
        return (picture_part){more_x / 2, more_y / 2, size.width, size.height};
    if (across > down) part.width = scaled(image->height, size.width, size.height);
    if (across < down) part.height = scaled(image->width, size.height, size.width);
    part.x = (image->width - part.width) / 2;
    part.y = (image->height - part.height) / 2;
    return part;
}

picture_part fit_part_of(const picture_file* other, const picture_file* image, picture_part part)
{
    const int64_t right = part.x + part.width, bottom = part.y + part.height;
    picture_part same = {
        .x = (int32_t)((int64_t)part.x * other->width / image->width),
        .y = (int32_t)((int64_t)part.y * other->height / image->height),
    };
    // Rounded up, so that no part is empty.
    same.width = (int32_t)((right * other->width + image->width - 1) / image->width) - same.x;
    same.height = (int32_t)((bottom * other->height + image->height - 1) / image->height) - same.y;
    return same;
}

sumi_pixels fit_pixels(const picture_file* image, picture_part part)
{
    const int32_t row_bytes = image->width * image->channel_count;
    return (sumi_pixels){
        .data = image->pixels + (size_t)part.y * (size_t)row_bytes + (size_t)part.x * (size_t)image->channel_count,
        .width = part.width,
        .height = part.height,
        .row_bytes = row_bytes,
        .channel_count = image->channel_count,
    };
}

void fit_tell(const char* path, const picture_file* image, picture_part part, sumi_size size, bool is_reduced)
{
    const picture_part cropped = fit_part(image, size, FIT_CROP);
    const bool has_shape = cropped.width == image->width && cropped.height == image->height,
               is_cropped = part.width != image->width || part.height != image->height;
    if (has_shape && !is_reduced) return;
    fprintf(stderr, "sumi: %s, %dx%d, is ", shown(path), image->width, image->height);
    if (is_cropped) fprintf(stderr, "cropped to %dx%d%s", part.width, part.height, is_reduced ? " and " : "");
    else if (!has_shape) fprintf(stderr, "stretched to %dx%d", size.width, size.height);
    if (is_reduced && (is_cropped || has_shape)) fprintf(stderr, "resized to %dx%d", size.width, size.height);
    if (is_reduced) fprintf(stderr, ", the most that this model makes");
    fprintf(stderr, is_cropped ? "; --fit stretch takes all of it\n" : "\n");
}
