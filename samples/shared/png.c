// PNG, by libspng, which decodes every colour type and depth to RGBA8.
#include "exif.h"
#include "picture_codecs.h"
#include "utf8.h"
#include <spng.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_LIMIT ((size_t)16 << 20) // of one text chunk; limits the size of a decompressed text

// ---- Reading --------------------------------------------------------------------------------------------------------

// tEXt is Latin-1, iTXt is UTF-8.
static char* copy_parameters(spng_ctx* context)
{
    uint32_t count = 0;
    if (spng_get_text(context, NULL, &count) || count == 0) return NULL;
    struct spng_text* texts = calloc(count, sizeof *texts);
    char* found = NULL;
    if (texts && spng_get_text(context, texts, &count) == 0) {
        for (uint32_t i = 0; i < count && !found; i++) {
            if (strcmp(texts[i].keyword, "parameters") != 0) continue;
            if (texts[i].type != SPNG_ITXT) found = utf8_from_latin1(texts[i].text, texts[i].length);
            else if ((found = calloc(texts[i].length + 1, 1)) != NULL) memcpy(found, texts[i].text, texts[i].length);
        }
    }
    free(texts); // the strings in the array belong to the context
    return found;
}

static int bits_per_pixel(const struct spng_ihdr* header)
{
    static const int s_samples[7] = {1, 0, 3, 1, 2, 0, 4};
    return header->color_type < 7 ? s_samples[header->color_type] * header->bit_depth : 0;
}

// Inflating deflate data makes it at most 1032 times as large. A header with a larger image is damaged or an attack,
// and is refused before any allocation.
static bool size_is_possible(const struct spng_ihdr* header, size_t file_bytes)
{
    uint64_t row_bytes = ((uint64_t)header->width * (uint64_t)bits_per_pixel(header) + 7) / 8;
    return row_bytes * header->height / 1032 <= file_bytes;
}

static bool decode(spng_ctx* context, const void* data, size_t bytes, const char* path, picture_file* out,
                   char* message)
{
    spng_set_image_limits(context, PICTURE_MAX_SIDE, PICTURE_MAX_SIDE);
    spng_set_chunk_limits(context, TEXT_LIMIT, 2 * TEXT_LIMIT);
    int status = spng_set_png_buffer(context, data, bytes);
    struct spng_ihdr header;
    if (!status) status = spng_get_ihdr(context, &header);
    if (status) return picture_fail(message, "%s: cannot read the PNG header: %s", path, spng_strerror(status));
    if (!size_is_possible(&header, bytes))
        return picture_fail(message,
                            "%s: the header promises %u x %u pixels, more than %zu bytes can hold: the file is damaged",
                            path, header.width, header.height, bytes);
    if (!picture_allocate(out, header.width, header.height, path, message)) return false;
    status = spng_decode_image(context, out->pixels, (size_t)header.width * header.height * 4, SPNG_FMT_RGBA8,
                               SPNG_DECODE_TRNS);
    if (!status) status = spng_decode_chunks(context); // chunks after the pixels: text is allowed, IEND is required
    if (status)
        return picture_fail(message, "%s: cannot read the PNG: %s; the file is damaged", path, spng_strerror(status));
    out->parameters = copy_parameters(context);
    struct spng_trns transparency;
    const bool has_alpha = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA
                        || header.color_type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA
                        || spng_get_trns(context, &transparency) == 0;
    out->channel_count = has_alpha ? 4 : header.color_type == SPNG_COLOR_TYPE_GRAYSCALE ? 1 : 3;
    struct spng_exif block;
    int orientation = 0;
    if (spng_get_exif(context, &block) == 0)
        exif_read((const uint8_t*)block.data, block.length, &orientation, &out->parameters);
    return picture_turn_upright(out, orientation, path, message);
}

bool png_decode(const void* data, size_t bytes, const char* path, picture_file* out, char* message)
{
    spng_ctx* context = spng_ctx_new(0);
    if (!context) return picture_fail(message, "%s: no memory to read the PNG", path);
    const bool is_read = decode(context, data, bytes, path, out, message);
    spng_ctx_free(context);
    return is_read;
}

// ---- Writing --------------------------------------------------------------------------------------------------------
#define STRATEGY 3 // zlib's Z_RLE: filtered rows of an image hold hardly any matches but runs

static int encode_rows(spng_ctx* context, const picture_source* source, uint8_t* rgb)
{
    int status = 0;
    const size_t row_bytes = (size_t)source->width * (size_t)(rgb ? 3 : source->channel_count);
    for (int32_t y = 0; y < source->height && !status; y++) {
        const uint8_t* row = (const uint8_t*)source->pixels + (size_t)y * source->row_bytes;
        for (int32_t x = 0; x < source->width && rgb; x++) memcpy(rgb + 3 * (size_t)x, row + 4 * (size_t)x, 3);
        status = spng_encode_row(context, rgb ? rgb : row, row_bytes);
    }
    return status == SPNG_EOI ? 0 : status; // spng_encode_row returns SPNG_EOI for the last row
}

// Uses one filter for all rows instead of the best of five per row, and matches runs only: encoding 1024x1024 pixels
// then takes a quarter to a half of the time, and the file has about the same size.
// rgb: memory for a row of three channels, to which the four of the source are reduced; NULL: they stay.
static int encode(spng_ctx* context, const picture_source* source, struct spng_text* text, uint8_t* rgb)
{
    static const uint8_t s_color_types[5] = {0, SPNG_COLOR_TYPE_GRAYSCALE, 0, SPNG_COLOR_TYPE_TRUECOLOR,
                                             SPNG_COLOR_TYPE_TRUECOLOR_ALPHA};
    struct spng_ihdr header = {.width = (uint32_t)source->width,
                               .height = (uint32_t)source->height,
                               .bit_depth = 8,
                               .color_type = s_color_types[rgb ? 3 : source->channel_count]};
    int status = spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
    if (!status) status = spng_set_option(context, SPNG_FILTER_CHOICE, SPNG_FILTER_CHOICE_PAETH);
    if (!status) status = spng_set_option(context, SPNG_IMG_COMPRESSION_STRATEGY, STRATEGY);
    if (!status) status = spng_set_ihdr(context, &header);
    if (!status && text) status = spng_set_text(context, text, 1);
    if (!status)
        status = spng_encode_image(context, NULL, 0, SPNG_FMT_PNG, SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE);
    return status ? status : encode_rows(context, source, rgb);
}

bool png_encode(const picture_source* source, void** out_data, size_t* out_bytes, char* message)
{
    const bool drops_alpha = source->channel_count == 4 && picture_is_opaque(source);
    uint8_t* rgb = drops_alpha ? malloc((size_t)source->width * 3) : NULL;
    spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
    if (!context || (drops_alpha && !rgb)) {
        spng_ctx_free(context);
        free(rgb);
        return picture_fail(message, "no memory");
    }
    char* latin1 = source->parameters ? utf8_to_latin1(source->parameters) : NULL;
    char empty[1] = "";
    struct spng_text text = {.keyword = "parameters",
                             .type = latin1 ? SPNG_TEXT : SPNG_ITXT,
                             .language_tag = empty,
                             .translated_keyword = empty};
    text.text = latin1 ? latin1 : (char*)(uintptr_t)source->parameters; // spng only reads it; its struct lacks const
    text.length = text.text ? strlen(text.text) : 0;
    int status = encode(context, source, text.length ? &text : NULL, rgb);
    *out_data = status ? NULL : spng_get_png_buffer(context, out_bytes, &status); // the caller's, from malloc
    free(latin1);
    free(rgb);
    spng_ctx_free(context);
    return *out_data || picture_fail(message, "%s", spng_strerror(status));
}
