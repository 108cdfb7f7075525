// libspng decodes every PNG to RGBA8; the channels are then reduced in place. That needs one conversion of libspng
// instead of five.
#include "png.h"
#include "system.h"
#include <errno.h>
#include <spng.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)512 << 20)
#define TEXT_LIMIT ((size_t)16 << 20) // of one text chunk; limits the size of a decompressed text

SYSTEM_PRINTF(2, 3)
static bool fail(char* message, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, PNG_MESSAGE_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

// ---- Text: tEXt is Latin-1, iTXt is UTF-8 ---------------------------------------------------------------------------
static char* latin1_to_utf8(const char* text, size_t length)
{
    char* utf8 = malloc(2 * length + 1);
    size_t at = 0;
    for (size_t i = 0; utf8 && i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x80) {
            utf8[at++] = (char)c;
        } else {
            utf8[at++] = (char)(0xC0 | c >> 6);
            utf8[at++] = (char)(0x80 | (c & 0x3F));
        }
    }
    if (utf8) utf8[at] = 0;
    return utf8;
}

// Returns a copy in Latin-1, or NULL when the text has a character beyond U+00FF (or is not UTF-8).
static char* utf8_to_latin1(const char* text)
{
    char* latin1 = malloc(strlen(text) + 1);
    size_t at = 0;
    for (const unsigned char* c = (const unsigned char*)text; latin1 && *c; c++) {
        if (*c < 0x80) {
            latin1[at++] = (char)*c;
        } else if ((*c == 0xC2 || *c == 0xC3) && (c[1] & 0xC0) == 0x80) {
            latin1[at++] = (char)(*c << 6 | (c[1] & 0x3F));
            c++;
        } else {
            free(latin1);
            return NULL;
        }
    }
    if (latin1) latin1[at] = 0;
    return latin1;
}

static char* copy_parameters(spng_ctx* context)
{
    uint32_t count = 0;
    if (spng_get_text(context, NULL, &count) || count == 0) return NULL;
    struct spng_text* texts = calloc(count, sizeof *texts);
    char* found = NULL;
    if (texts && spng_get_text(context, texts, &count) == 0) {
        for (uint32_t i = 0; i < count && !found; i++) {
            if (strcmp(texts[i].keyword, "parameters") != 0) continue;
            if (texts[i].type != SPNG_ITXT) found = latin1_to_utf8(texts[i].text, texts[i].length);
            else if ((found = calloc(texts[i].length + 1, 1)) != NULL) memcpy(found, texts[i].text, texts[i].length);
        }
    }
    free(texts); // the strings in the array belong to the context
    return found;
}

// ---- Reading --------------------------------------------------------------------------------------------------------
static int bits_per_pixel(const struct spng_ihdr* header)
{
    static const int samples[7] = {1, 0, 3, 1, 2, 0, 4};
    return header->color_type < 7 ? samples[header->color_type] * header->bit_depth : 0;
}

// Inflating deflate data makes it at most 1032 times as large. A header with a larger image is damaged or an attack,
// and is refused before any allocation.
static bool size_is_possible(const struct spng_ihdr* header, size_t file_bytes)
{
    uint64_t row_bytes = ((uint64_t)header->width * (uint64_t)bits_per_pixel(header) + 7) / 8;
    return row_bytes * header->height / 1032 <= file_bytes;
}

static void narrow(png_image* image, int32_t channel_count)
{
    size_t count = (size_t)image->width * (size_t)image->height;
    const uint8_t* from = image->pixels;
    uint8_t* to = image->pixels;
    for (size_t i = 0; i < count; i++, from += 4, to += channel_count) {
        uint8_t red = from[0], green = from[1], blue = from[2];
        if (channel_count == 1) {
            to[0] = (uint8_t)((19595u * red + 38470u * green + 7471u * blue + 0x8000u) >> 16);
        } else {
            to[0] = red, to[1] = green, to[2] = blue;
        }
    }
    image->channel_count = channel_count;
}

static bool decode(spng_ctx* context, const void* data, size_t bytes, const char* path, int32_t channel_count,
                   png_image* image, char* message)
{
    spng_set_image_limits(context, PNG_MAX_SIDE, PNG_MAX_SIDE);
    spng_set_chunk_limits(context, TEXT_LIMIT, 2 * TEXT_LIMIT);
    int status = spng_set_png_buffer(context, data, bytes);
    struct spng_ihdr header;
    if (!status) status = spng_get_ihdr(context, &header);
    if (status) return fail(message, "%s: cannot read the PNG header: %s", path, spng_strerror(status));
    if ((uint64_t)header.width * header.height > PNG_MAX_PIXELS)
        return fail(message, "%s: %u x %u pixels are more than the %d this reader takes: scale it down", path,
                    header.width, header.height, PNG_MAX_PIXELS);
    if (!size_is_possible(&header, bytes))
        return fail(message,
                    "%s: the header promises %u x %u pixels, more than %zu bytes can hold: the file is damaged", path,
                    header.width, header.height, bytes);

    image->width = (int32_t)header.width;
    image->height = (int32_t)header.height;
    image->channel_count = 4;
    size_t pixel_bytes = (size_t)header.width * header.height * 4;
    image->pixels = malloc(pixel_bytes);
    if (!image->pixels) return fail(message, "%s: no memory for %u x %u pixels", path, header.width, header.height);
    status = spng_decode_image(context, image->pixels, pixel_bytes, SPNG_FMT_RGBA8, SPNG_DECODE_TRNS);
    if (!status) status = spng_decode_chunks(context); // chunks after the pixels: text is allowed, IEND is required
    if (status) return fail(message, "%s: cannot read the PNG: %s; the file is damaged", path, spng_strerror(status));
    image->parameters = copy_parameters(context);

    if (channel_count == 0) {
        struct spng_trns transparency;
        bool has_alpha = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA
                      || header.color_type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA
                      || spng_get_trns(context, &transparency) == 0;
        channel_count = has_alpha ? 4 : header.color_type == SPNG_COLOR_TYPE_GRAYSCALE ? 1 : 3;
    }
    if (channel_count < 4) narrow(image, channel_count);
    return true;
}

bool png_read_memory(const void* data, size_t bytes, const char* path, int32_t channel_count, png_image* image,
                     char* message)
{
    *image = (png_image){0};
    message[0] = 0;
    if (channel_count != 0 && channel_count != 1 && channel_count != 3 && channel_count != 4)
        return fail(message, "%s: %d channels: ask for 0, 1, 3 or 4", path, channel_count);
    if (bytes == 0) return fail(message, "%s is empty", path);
    if (bytes < 8 || memcmp(data, "\x89PNG\r\n\x1a\n", 8) != 0)
        return fail(message, "%s is not a PNG file: convert the picture to PNG first", path);
    spng_ctx* context = spng_ctx_new(0);
    if (!context) return fail(message, "%s: no memory to read the PNG", path);
    bool read = decode(context, data, bytes, path, channel_count, image, message);
    spng_ctx_free(context);
    if (!read) png_free(image);
    return read;
}

// Reads the whole file. Pipes work too, because the size is found by reading.
static unsigned char* read_all(const char* path, size_t* out_bytes, char* message)
{
    FILE* file = system_open(path, "rb");
    if (!file) return fail(message, "cannot open %s: %s", path, strerror(errno)), NULL;
    size_t capacity = 0, used = 0;
    unsigned char* data = NULL;
    for (;;) {
        if (used == capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            unsigned char* more = capacity <= FILE_LIMIT ? realloc(data, capacity) : NULL;
            if (!more) {
                fail(message, capacity > FILE_LIMIT ? "%s is too large for a PNG" : "%s: no memory to read it", path);
                break;
            }
            data = more;
        }
        size_t count = fread(data + used, 1, capacity - used, file);
        used += count;
        if (count == 0) {
            if (ferror(file)) {
                fail(message, "cannot read %s: %s", path, strerror(errno));
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

bool png_read(const char* path, int32_t channel_count, png_image* image, char* message)
{
    *image = (png_image){0};
    size_t bytes = 0;
    unsigned char* data = read_all(path, &bytes, message);
    bool read = data && png_read_memory(data, bytes, path, channel_count, image, message);
    free(data);
    return read;
}

void png_free(png_image* image)
{
    free(image->pixels);
    free(image->parameters);
    *image = (png_image){0};
}

// ---- Writing --------------------------------------------------------------------------------------------------------
#define STRATEGY 3 // zlib's Z_RLE: filtered rows of an image hold hardly any matches but runs

// Uses one filter for all rows instead of the best of five per row, and matches runs only: encoding 1024x1024 pixels
// then takes a quarter to a half of the time, and the file has about the same size.
static int encode(spng_ctx* context, const uint8_t* pixels, int32_t width, int32_t height, size_t row_bytes,
                  int32_t channel_count, struct spng_text* text)
{
    static const uint8_t color_types[5] = {0, SPNG_COLOR_TYPE_GRAYSCALE, 0, SPNG_COLOR_TYPE_TRUECOLOR,
                                           SPNG_COLOR_TYPE_TRUECOLOR_ALPHA};
    struct spng_ihdr header = {
        .width = (uint32_t)width, .height = (uint32_t)height, .bit_depth = 8, .color_type = color_types[channel_count]};
    int status = spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
    if (!status) status = spng_set_option(context, SPNG_FILTER_CHOICE, SPNG_FILTER_CHOICE_PAETH);
    if (!status) status = spng_set_option(context, SPNG_IMG_COMPRESSION_STRATEGY, STRATEGY);
    if (!status) status = spng_set_ihdr(context, &header);
    if (!status && text) status = spng_set_text(context, text, 1);
    if (!status)
        status = spng_encode_image(context, NULL, 0, SPNG_FMT_PNG, SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE);
    for (int32_t y = 0; y < height && !status; y++)
        status = spng_encode_row(context, pixels + (size_t)y * row_bytes, (size_t)width * (size_t)channel_count);
    return status == SPNG_EOI ? 0 : status; // spng_encode_row returns SPNG_EOI for the last row
}

static bool write_all(const char* path, const void* data, size_t bytes, char* message)
{
    FILE* file = system_open(path, "wb");
    if (!file) return fail(message, "cannot write %s: %s", path, strerror(errno));
    bool written = fwrite(data, 1, bytes, file) == bytes;
    int reason = errno;
    if (fclose(file) != 0 && written) written = false, reason = errno;
    return written || fail(message, "cannot write %s: %s", path, strerror(reason));
}

bool png_write(const char* path, const void* pixels, int32_t width, int32_t height, size_t row_bytes,
               int32_t channel_count, const char* parameters, char* message)
{
    message[0] = 0;
    if (!pixels || width < 1 || height < 1 || (channel_count != 1 && channel_count != 3 && channel_count != 4)
        || row_bytes < (size_t)width * (size_t)channel_count)
        return fail(message, "cannot write %s: %d x %d pixels of %d channels in rows of %zu bytes make no picture",
                    path, width, height, channel_count, row_bytes);
    spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
    if (!context) return fail(message, "cannot write %s: no memory", path);

    char* latin1 = parameters && parameters[0] ? utf8_to_latin1(parameters) : NULL;
    char empty[1] = "";
    struct spng_text text = {.keyword = "parameters",
                             .type = latin1 ? SPNG_TEXT : SPNG_ITXT,
                             .language_tag = empty,
                             .translated_keyword = empty};
    text.text = latin1 ? latin1 : (char*)(uintptr_t)parameters; // spng only reads the text; its struct lacks const
    text.length = text.text ? strlen(text.text) : 0;

    int status = encode(context, pixels, width, height, row_bytes, channel_count, text.length ? &text : NULL);
    size_t bytes = 0;
    void* data = status ? NULL : spng_get_png_buffer(context, &bytes, &status);
    bool written = data ? write_all(path, data, bytes, message)
                        : fail(message, "cannot write %s: %s", path, spng_strerror(status));
    free(data);
    free(latin1);
    spng_ctx_free(context);
    return written;
}
