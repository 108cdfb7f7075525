// WebP, by libwebp. A build without the library has the two functions all the same: they say so.
#include "picture_codecs.h"
#ifdef PICTURE_HAS_WEBP
#include "exif.h"
#include <stdlib.h>
#include <string.h>
#include <webp/decode.h>
#include <webp/encode.h>
#include <webp/mux.h>

// Reads the EXIF chunks of the file, of which libwebp's mux refuses a second one: each has four letters, a size and its
// bytes, with one more behind an odd number. Returns the orientation, 0 if there is none.
static int read_exif(const uint8_t* data, size_t bytes, char** parameters)
{
    int orientation = 0;
    for (size_t at = 12; at + 8 <= bytes;) {
        const size_t size =
            data[at + 4] | (size_t)data[at + 5] << 8 | (size_t)data[at + 6] << 16 | (size_t)data[at + 7] << 24;
        if (size > bytes - at - 8) break;
        if (memcmp(data + at, "EXIF", 4) == 0) exif_read(data + at + 8, size, &orientation, parameters);
        at += 8 + size + size % 2;
    }
    return orientation;
}

bool webp_decode(const void* data, size_t bytes, const char* path, picture_file* out, char* message)
{
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(data, bytes, &features) != VP8_STATUS_OK)
        return picture_fail(message, "%s: cannot read the WebP header: the file is damaged", path);
    if (features.has_animation)
        return picture_fail(message, "%s is an animation: save one of its pictures and give that", path);
    if (!picture_allocate(out, (uint32_t)features.width, (uint32_t)features.height, path, message)) return false;
    const size_t row_bytes = (size_t)out->width * 4;
    if (!WebPDecodeRGBAInto(data, bytes, out->pixels, row_bytes * (size_t)out->height, (int)row_bytes))
        return picture_fail(message, "%s: cannot read the WebP: the file is damaged or cut short", path);
    out->channel_count = features.has_alpha ? 4 : 3;
    return picture_turn_upright(out, read_exif(data, bytes, &out->parameters), path, message);
}

static bool import_pixels(WebPPicture* to, const picture_source* source)
{
    const int row_bytes = (int)source->row_bytes;
    if (source->channel_count == 4) return WebPPictureImportRGBA(to, source->pixels, row_bytes);
    if (source->channel_count == 3) return WebPPictureImportRGB(to, source->pixels, row_bytes);
    uint8_t* rgb = malloc(3 * (size_t)source->width * (size_t)source->height);
    for (int32_t y = 0; rgb && y < source->height; y++) {
        for (int32_t x = 0; x < source->width; x++)
            memset(rgb + 3 * ((size_t)y * (size_t)source->width + (size_t)x),
                   ((const uint8_t*)source->pixels)[(size_t)y * source->row_bytes + (size_t)x], 3);
    }
    const bool is_done = rgb && WebPPictureImportRGB(to, rgb, 3 * source->width);
    free(rgb);
    return is_done;
}

static bool encode_pixels(const picture_source* source, WebPMemoryWriter* writer, char* message)
{
    WebPConfig config;
    WebPPicture pixels;
    if (!WebPConfigInit(&config) || !WebPPictureInit(&pixels))
        return picture_fail(message, "libwebp has another version than its headers");
    config.quality = (float)source->quality;
    config.lossless = config.exact = source->quality == 100; // exact: transparent pixels keep their colours, too
    if (config.lossless) config.quality = 75.0f;             // of a lossless file it is the effort
    pixels.use_argb = config.lossless;
    pixels.width = source->width;
    pixels.height = source->height;
    pixels.writer = WebPMemoryWrite;
    pixels.custom_ptr = writer;
    bool is_done = import_pixels(&pixels, source) && WebPEncode(&config, &pixels);
    if (!is_done && pixels.error_code == VP8_ENC_ERROR_BAD_DIMENSION)
        picture_fail(message, "a WebP has at most %d pixels along a side: write a PNG", WEBP_MAX_DIMENSION);
    else if (!is_done) picture_fail(message, "libwebp failed with error %d", (int)pixels.error_code);
    WebPPictureFree(&pixels);
    return is_done;
}

static bool copy_out(const WebPData* file, void** out_data, size_t* out_bytes, char* message)
{
    *out_data = malloc(file->size);
    if (!*out_data) return picture_fail(message, "no memory");
    memcpy(*out_data, file->bytes, file->size);
    *out_bytes = file->size;
    return true;
}

bool webp_encode(const picture_source* source, void** out_data, size_t* out_bytes, char* message)
{
    if (source->width > WEBP_MAX_DIMENSION || source->height > WEBP_MAX_DIMENSION)
        return picture_fail(message, "a WebP has at most %d pixels along a side: write a PNG", WEBP_MAX_DIMENSION);
    WebPMemoryWriter writer;
    WebPMemoryWriterInit(&writer);
    bool is_done = encode_pixels(source, &writer, message);
    const WebPData image = {writer.mem, writer.size};
    if (is_done && !source->parameters) {
        is_done = copy_out(&image, out_data, out_bytes, message);
    } else if (is_done) {
        WebPMux* mux = WebPMuxNew();
        WebPData file = {NULL, 0}, block = {NULL, 0};
        uint8_t* exif = exif_write(source->parameters, &block.size);
        block.bytes = exif;
        is_done = mux && exif && WebPMuxSetImage(mux, &image, 0) == WEBP_MUX_OK
               && WebPMuxSetChunk(mux, "EXIF", &block, 0) == WEBP_MUX_OK && WebPMuxAssemble(mux, &file) == WEBP_MUX_OK;
        if (is_done) is_done = copy_out(&file, out_data, out_bytes, message);
        else picture_fail(message, "no memory");
        WebPDataClear(&file);
        WebPMuxDelete(mux);
        free(exif);
    }
    WebPMemoryWriterClear(&writer);
    return is_done;
}

bool webp_is_built(void) { return true; }
#else
bool webp_is_built(void) { return false; }

bool webp_decode(const void* data, size_t bytes, const char* path, picture_file* out, char* message)
{
    (void)data, (void)bytes, (void)out;
    return picture_fail(message, "%s: this build was made without libwebp", path);
}

bool webp_encode(const picture_source* source, void** out_data, size_t* out_bytes, char* message)
{
    (void)source, (void)out_data, (void)out_bytes;
    return picture_fail(message, "this build was made without libwebp");
}
#endif
