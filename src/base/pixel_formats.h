// Properties of image formats, the same for host memory, device memory and graphics APIs.
#ifndef SUMI_BASE_PIXEL_FORMATS_H
#define SUMI_BASE_PIXEL_FORMATS_H
#include <sumi.h>

// Bytes per pixel; 0: no such format.
static inline int32_t sumi_format_bytes(sumi_format format)
{
    switch (format) {
    case SUMI_FORMAT_RGBA8:
    case SUMI_FORMAT_BGRA8: return 4;
    case SUMI_FORMAT_RGB8: return 3;
    case SUMI_FORMAT_RGB32F: return 12;
    case SUMI_FORMAT_RGBA16F: return 8;
    }
    return 0;
}

// Whether the format has values that were not rounded to 8 bits.
static inline bool sumi_format_is_float(sumi_format format)
{
    return format == SUMI_FORMAT_RGB32F || format == SUMI_FORMAT_RGBA16F;
}

static inline bool sumi_format_has_alpha(sumi_format format)
{
    return format == SUMI_FORMAT_RGBA8 || format == SUMI_FORMAT_BGRA8 || format == SUMI_FORMAT_RGBA16F;
}
#endif
