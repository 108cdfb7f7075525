#include "picture.h"
#include "picture_codecs.h"
#include "system.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)512 << 20)
#define DEFAULT_QUALITY 92

// ---- Reading --------------------------------------------------------------------------------------------------------

// The codecs give RGBA8, so this one conversion, in place, is all that channel_count needs.
static void reduce_channels(picture_file* reduced, int32_t channel_count)
{
    const size_t count = (size_t)reduced->width * (size_t)reduced->height;
    const uint8_t* from = reduced->pixels;
    uint8_t* to = reduced->pixels;
    reduced->channel_count = channel_count;
    if (channel_count == 4) return;
    for (size_t i = 0; i < count; i++, from += 4, to += channel_count) {
        const uint8_t red = from[0], green = from[1], blue = from[2];
        if (channel_count == 1) {
            to[0] = (uint8_t)((19595u * red + 38470u * green + 7471u * blue + 0x8000u) >> 16);
        } else {
            to[0] = red, to[1] = green, to[2] = blue;
        }
    }
}

static picture_format format_of_bytes(const uint8_t* data, size_t bytes)
{
    if (bytes >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0) return PICTURE_PNG;
    if (bytes >= 3 && memcmp(data, "\xFF\xD8\xFF", 3) == 0) return PICTURE_JPEG;
    if (bytes >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0) return PICTURE_WEBP;
    return PICTURE_UNKNOWN;
}

static bool format_is_built(picture_format format)
{
    return format == PICTURE_PNG || (format == PICTURE_JPEG && jpeg_is_built())
        || (format == PICTURE_WEBP && webp_is_built());
}

static bool fail_without_codec(picture_format format, const char* path, char* message)
{
    return picture_fail(message,
                        "%s is a %s, which this build has no codec for: build it with %s installed, or use PNG", path,
                        format == PICTURE_JPEG ? "JPEG" : "WebP", format == PICTURE_JPEG ? "libjpeg" : "libwebp");
}

bool picture_read_memory(const void* data, size_t bytes, const char* path, int32_t channel_count, picture_file* out,
                         char* message)
{
    *out = (picture_file){0};
    message[0] = 0;
    if (channel_count != 0 && channel_count != 1 && channel_count != 3 && channel_count != 4)
        return picture_fail(message, "%s: %d channels: ask for 0, 1, 3 or 4", path, channel_count);
    if (bytes == 0) return picture_fail(message, "%s is empty", path);
    const picture_format format = format_of_bytes(data, bytes);
    if (format == PICTURE_UNKNOWN)
        return picture_fail(message, "%s is not a PNG, JPEG or WebP file: convert the picture first", path);
    if (!format_is_built(format)) return fail_without_codec(format, path, message);
    const bool is_read = format == PICTURE_PNG  ? png_decode(data, bytes, path, out, message)
                       : format == PICTURE_JPEG ? jpeg_decode(data, bytes, path, out, message)
                                                : webp_decode(data, bytes, path, out, message);
    if (is_read) {
        out->format = format;
        reduce_channels(out, channel_count ? channel_count : out->channel_count);
    } else {
        picture_free(out);
    }
    return is_read;
}

// Reads the whole file. Pipes work too, because the size is found by reading.
static unsigned char* read_all(const char* path, size_t* out_bytes, char* message)
{
    FILE* file = system_open(path, "rb");
    if (!file) return picture_fail(message, "cannot open %s: %s", path, strerror(errno)), NULL;
    size_t capacity = 0, used = 0;
    unsigned char* data = NULL;
    for (;;) {
        if (used == capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            unsigned char* more = capacity <= FILE_LIMIT ? realloc(data, capacity) : NULL;
            if (!more) {
                picture_fail(message,
                             capacity > FILE_LIMIT ? "%s is too large for a picture" : "%s: no memory to read it",
                             path);
                break;
            }
            data = more;
        }
        const size_t count = fread(data + used, 1, capacity - used, file);
        used += count;
        if (count == 0) {
            if (ferror(file)) {
                picture_fail(message, "cannot read %s: %s", path, strerror(errno));
                break;
            }
            fclose(file);
            *out_bytes = used;
            return data;
        }
    }
    fclose(file);
    free(data);
    return NULL;
}

bool picture_read(const char* path, int32_t channel_count, picture_file* out, char* message)
{
    *out = (picture_file){0};
    size_t bytes = 0;
    unsigned char* data = read_all(path, &bytes, message);
    const bool is_read = data && picture_read_memory(data, bytes, path, channel_count, out, message);
    free(data);
    return is_read;
}

bool picture_is_one(const char* path)
{
    uint8_t begin[12];
    FILE* file = system_open(path, "rb");
    const size_t bytes = file ? fread(begin, 1, sizeof begin, file) : 0;
    if (file) fclose(file);
    return format_of_bytes(begin, bytes) != PICTURE_UNKNOWN;
}

// ---- Writing --------------------------------------------------------------------------------------------------------

picture_format picture_format_of_path(const char* path)
{
    static const struct {
        const char* extension;
        picture_format format;
    } s_known[] = {{".png", PICTURE_PNG}, {".jpg", PICTURE_JPEG}, {".jpeg", PICTURE_JPEG}, {".webp", PICTURE_WEBP}};
    const char* dot = strrchr(system_file_name(path), '.');
    char lower[8] = "";
    if (!dot || strlen(dot) >= sizeof lower) return PICTURE_UNKNOWN;
    for (size_t i = 0; dot[i]; i++) lower[i] = (char)tolower((unsigned char)dot[i]);
    for (size_t i = 0; i < sizeof s_known / sizeof *s_known; i++) {
        if (strcmp(lower, s_known[i].extension) == 0) return s_known[i].format;
    }
    return PICTURE_UNKNOWN;
}

bool picture_path_is_possible(const char* path, char* message)
{
    message[0] = 0;
    const picture_format format = picture_format_of_path(path);
    if (format == PICTURE_UNKNOWN)
        return picture_fail(
            message, "%s: the extension decides the format of a picture: write .png, .jpg, .jpeg or .webp", path);
    return format_is_built(format) || fail_without_codec(format, path, message);
}

bool picture_encode(picture_format format, const picture_source* source, void** out_data, size_t* out_bytes,
                    char* message)
{
    *out_data = NULL;
    *out_bytes = 0;
    message[0] = 0;
    if (!source->pixels || source->width < 1 || source->height < 1
        || (source->channel_count != 1 && source->channel_count != 3 && source->channel_count != 4)
        || source->row_bytes < (size_t)source->width * (size_t)source->channel_count || source->quality < 0
        || source->quality > 100)
        return picture_fail(message, "%d x %d pixels of %d channels in rows of %zu bytes, quality %d, make no picture",
                            source->width, source->height, source->channel_count, source->row_bytes, source->quality);
    if (!format_is_built(format)) {
        if (format == PICTURE_UNKNOWN) return picture_fail(message, "no known format of pictures");
        return fail_without_codec(format, "the output", message);
    }
    picture_source filled = *source;
    if (filled.quality == 0) filled.quality = DEFAULT_QUALITY;
    if (filled.parameters && !filled.parameters[0]) filled.parameters = NULL;
    return format == PICTURE_PNG  ? png_encode(&filled, out_data, out_bytes, message)
         : format == PICTURE_JPEG ? jpeg_encode(&filled, out_data, out_bytes, message)
                                  : webp_encode(&filled, out_data, out_bytes, message);
}

bool picture_write(const char* path, const picture_source* source, char* message)
{
    void* data;
    size_t bytes;
    char reason[PICTURE_MESSAGE_BYTES - 64];
    if (!picture_path_is_possible(path, message)) return false;
    if (!picture_encode(picture_format_of_path(path), source, &data, &bytes, message)) {
        snprintf(reason, sizeof reason, "%s", message);
        return picture_fail(message, "cannot write %s: %s", path, reason);
    }
    FILE* file = system_open(path, "wb");
    bool is_written = file && fwrite(data, 1, bytes, file) == bytes;
    int error = errno;
    if (file && fclose(file) != 0 && is_written) is_written = false, error = errno;
    free(data);
    return is_written || picture_fail(message, "cannot write %s: %s", path, strerror(error));
}
