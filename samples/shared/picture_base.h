// Pictures in memory: what picture.h and the codecs below it share.
#ifndef PICTURE_BASE_H
#define PICTURE_BASE_H
#include "system.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICTURE_MAX_SIDE 32768
#define PICTURE_MAX_PIXELS (64 * 1024 * 1024) // 256 MiB of RGBA8
#define PICTURE_MESSAGE_BYTES 512             // size of every `message` below and in picture.h

typedef enum picture_format { PICTURE_UNKNOWN, PICTURE_PNG, PICTURE_JPEG, PICTURE_WEBP } picture_format;

typedef struct picture_file {
    uint8_t* pixels; // 8-bit, rows without gaps
    int32_t width, height;
    int32_t channel_count; // 1 grey, 3 RGB, 4 RGBA
    picture_format format; // of the file
    char* parameters;      // the text about how it was made (parameters.h) as UTF-8, or NULL
} picture_file;

typedef struct picture_source {
    const void* pixels; // 8-bit
    int32_t width, height;
    size_t row_bytes;
    // 1, 3, or 4 with straight alpha, which any format leaves out where it is 255 everywhere. A JPEG has none: the
    // pixels are drawn over white.
    int32_t channel_count;
    const char* parameters; // UTF-8 or NULL; stays in the file as other tools read it (picture_encode)
    int32_t quality;        // of JPEG and WebP, 1 to 100; 0: 92. WebP with 100 is lossless
} picture_source;

// Checks the size of a header against the limits and allocates width * height RGBA8 pixels.
bool picture_allocate(picture_file* out, uint32_t width, uint32_t height, const char* path, char* message);
// Turns RGBA8 pixels by an orientation as TIFF and EXIF number them; 0 and 1: they stay. Returns false without memory.
bool picture_turn_upright(picture_file* out, int orientation, const char* path, char* message);
void picture_free(picture_file* freed); // accepts an empty picture
// Whether no pixel is transparent, if there is alpha at all.
bool picture_is_opaque(const picture_source* source);
// Writes a sentence into a message and returns false.
bool picture_fail(char* message, const char* format, ...) SYSTEM_PRINTF(2, 3);
#endif
