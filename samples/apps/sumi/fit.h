// How a start picture of another shape, and its mask, become an image of a given size: its middle is cropped out, or
// all of it is stretched.
#ifndef FIT_H
#define FIT_H
#include "picture.h"
#include <sumi.h>

typedef enum picture_fit { FIT_CROP, FIT_STRETCH } picture_fit;
#define FIT_OPTION(fit)                                                                                                \
    {                                                                                                                  \
        "--fit", OPTION_CHOICE, (fit), "crop|stretch", "what is done with a picture of another shape than the image",  \
            0, 0                                                                                                       \
    }

// The size of an image of this picture: whole multiples, at most max_size along a side. A side is 0 where the picture
// has less than one multiple there.
sumi_size fit_size(const picture_file* image, int32_t multiple, int32_t max_size);
bool fit_reduces(const picture_file* image, int32_t max_size); // whether it is smaller than the picture for max_size

// A part of a picture, in pixels.
typedef struct picture_part {
    int32_t x, y, width, height;
} picture_part;
// The part of a picture that is used for an image of this size.
picture_part fit_part(const picture_file* image, sumi_size size, picture_fit fit);
// The same part of another picture of the same scene, such as a mask, which may have other sides.
picture_part fit_part_of(const picture_file* other, const picture_file* image, picture_part part);
sumi_pixels fit_pixels(const picture_file* image, picture_part part);

// Says on stderr what becomes of a picture that is cropped, stretched, or scaled down to the most that the model makes
// (is_reduced). Says nothing when none of it is so.
void fit_tell(const char* path, const picture_file* image, picture_part part, sumi_size size, bool is_reduced);
#endif
