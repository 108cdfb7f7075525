// Pixels in: resize exactly as Pillow (8-bit Lanczos, two passes, 22-bit fixed point), and pixels out: previews
// and 8-bit pictures.
#ifndef SUMI_PICTURES_PIXELS_H
#define SUMI_PICTURES_PIXELS_H
#include "base/memory.h"

// of any picture; sizes outside 1 .. this, and rows shorter than their pixels, are SUMI_INVALID_ARGUMENT
#define SUMI_PIXELS_MAX_SIDE 32768

typedef enum sumi_filter { SUMI_FILTER_BICUBIC, SUMI_FILTER_LANCZOS } sumi_filter;
// 8-bit, channel_count 1..4, rows `row_bytes` apart; `into` is tightly packed and may not overlap source. Pass order
// and rounding of Pillow 12 (horizontal, then vertical). Equal sizes copy. Channels do not mix: alpha is resized like a
// colour.
sumi_result sumi_pixels_resize(sumi_heap* heap, const uint8_t* source, int32_t width, int32_t height, int32_t row_bytes,
                               int32_t channel_count, uint8_t* into, int32_t new_width, int32_t new_height,
                               sumi_filter filter, sumi_error* error);
// Whether a side lies in 1 .. SUMI_PIXELS_MAX_SIDE. `what` names the picture in the message.
sumi_result sumi_pixels_check_size(int32_t width, int32_t height, const char* what, sumi_error* error);
// Whether the host's picture is one we can read: memory, size, 1, 3 or 4 channels, rows long enough. `what` names it in
// the message ("mask").
sumi_result sumi_pixels_check(const sumi_pixels* pixels, const char* what, sumi_error* error);
// The host's picture (1, 3 or 4 channels; alpha is dropped, grey is repeated) to tightly packed RGB of width x height.
sumi_result sumi_pixels_to_rgb(sumi_heap* heap, const sumi_pixels* pixels, int32_t width, int32_t height, uint8_t* rgb,
                               sumi_error* error);

// Linear preview: rgb = sum over c of factors[c] * latent[c] + bias, in [-1, 1]. gpu.md G.2.
typedef struct sumi_preview_factors {
    int32_t channel_count;
    const float (*factors)[3];
    float bias[3];
} sumi_preview_factors;
uint8_t sumi_pixel_from_unit(float value); // [-1, 1] -> clamp(x/2 + 0.5, 0, 1) * 255, nearest even; NaN gives 0
// the same for three planes of a picture; alpha is 255
void sumi_planes_to_rgba(const float* planes, size_t pixel_count, uint8_t* rgba);
#endif
