#include "picture_base.h"
#include "utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool picture_allocate(picture_file* out, uint32_t width, uint32_t height, const char* path, char* message)
{
    if (width == 0 || height == 0 || width > PICTURE_MAX_SIDE || height > PICTURE_MAX_SIDE
        || (uint64_t)width * height > PICTURE_MAX_PIXELS)
        return picture_fail(message, "%s: %u x %u pixels are more than the %d this reader takes: scale it down", path,
                            width, height, PICTURE_MAX_PIXELS);
    out->width = (int32_t)width;
    out->height = (int32_t)height;
    out->pixels = malloc((size_t)width * height * 4);
    return out->pixels || picture_fail(message, "%s: no memory for %u x %u pixels", path, width, height);
}

// Of the stored picture:
//
//     1 as it is     2 mirrored left to right     3 turned by 180 degrees     4 mirrored top to bottom
//     5 rows and columns exchanged     6 turned right by 90 degrees     7 exchanged and turned by 180     8 turned left
bool picture_turn_upright(picture_file* out, int orientation, const char* path, char* message)
{
    if (orientation <= 1) return true;
    const bool exchanges = orientation >= 5;
    const int32_t from_width = out->width, from_height = out->height;
    const int32_t width = exchanges ? from_height : from_width, height = exchanges ? from_width : from_height;
    uint8_t* turned = malloc((size_t)width * (size_t)height * 4);
    if (!turned) return picture_fail(message, "%s: no memory to turn it upright", path);
    const bool flips_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8,
               flips_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    for (int32_t y = 0; y < height; y++) {
        for (int32_t x = 0; x < width; x++) {
            // The stored coordinates of this pixel: `along` its rows and `down` its columns.
            const int32_t along = exchanges ? y : x, down = exchanges ? x : y;
            const int32_t from_x = flips_x ? from_width - 1 - along : along,
                          from_y = flips_y ? from_height - 1 - down : down;
            memcpy(turned + ((size_t)y * (size_t)width + (size_t)x) * 4,
                   out->pixels + ((size_t)from_y * (size_t)from_width + (size_t)from_x) * 4, 4);
        }
    }
    free(out->pixels);
    out->pixels = turned;
    out->width = width;
    out->height = height;
    return true;
}

void picture_free(picture_file* freed)
{
    free(freed->pixels);
    free(freed->parameters);
    *freed = (picture_file){0};
}

bool picture_is_opaque(const picture_source* source)
{
    for (int32_t y = 0; y < source->height && source->channel_count == 4; y++) {
        const uint8_t* row = (const uint8_t*)source->pixels + (size_t)y * source->row_bytes;
        for (int32_t x = 0; x < source->width; x++) {
            if (row[4 * (size_t)x + 3] != 255) return false;
        }
    }
    return true;
}

bool picture_fail(char* message, const char* format, ...)
{
    char raw[PICTURE_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    utf8_show(message, PICTURE_MESSAGE_BYTES, raw); // of names of files and of what codecs say
    return false;
}
