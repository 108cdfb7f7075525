// JPEG, by libjpeg. A build without the library has the two functions all the same: they say so.
#include "picture_codecs.h"
#ifdef PICTURE_HAS_JPEG
#include "exif.h"
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
// jpeglib.h needs stdio.h before it
#include <jerror.h>
#include <jpeglib.h>

#define MAX_SCANS 100 // of a progressive file; each scan costs a pass over all pixels, and a small file can have many
#define MARKER_BYTES 65533   // the most that a marker holds
#define EXIF_PREFIX "Exif\0" // and the zero of the literal

// libjpeg reports errors by a call that must not return.
typedef struct jpeg_errors {
    struct jpeg_error_mgr manager; // first: libjpeg's pointer to it is a pointer to this struct
    jmp_buf recovery;
    const char *path, *doing; // of the message
    char* message;
} jpeg_errors;

static void stop(j_common_ptr codec)
{
    jpeg_errors* errors = (jpeg_errors*)codec->err;
    char reason[JMSG_LENGTH_MAX];
    codec->err->format_message(codec, reason);
    picture_fail(errors->message, "%s%s%s", errors->path, errors->doing, reason);
    longjmp(errors->recovery, 1);
}

// Warnings are not printed. Of data that is missing or damaged libjpeg makes grey, which nobody asked for: those stop.
static void warn(j_common_ptr codec, int level)
{
    if (level < 0 && (codec->err->msg_code == JWRN_JPEG_EOF || codec->err->msg_code == JWRN_HIT_MARKER)) stop(codec);
}

static struct jpeg_error_mgr* begin_errors(jpeg_errors* errors, const char* path, const char* doing, char* message)
{
    jpeg_std_error(&errors->manager);
    errors->manager.error_exit = stop;
    errors->manager.emit_message = warn;
    errors->path = path;
    errors->doing = doing;
    errors->message = message;
    return &errors->manager;
}

// ---- Reading --------------------------------------------------------------------------------------------------------

typedef struct jpeg_reading {
    struct jpeg_decompress_struct codec;
    int orientation;
    struct jpeg_progress_mgr progress;
    jpeg_errors errors;
} jpeg_reading;

static void limit_scans(j_common_ptr codec)
{
    if (((j_decompress_ptr)codec)->input_scan_number > MAX_SCANS) {
        jpeg_errors* errors = (jpeg_errors*)codec->err;
        picture_fail(errors->message, "%s has more than %d scans: the file is damaged or an attack", errors->path,
                     MAX_SCANS);
        longjmp(errors->recovery, 1);
    }
}

// CMYK as printers use it. Adobe's programs, which write nearly all such files, store it inverted, and so it is read
// with their marker or without it, as Pillow does.
static void convert_cmyk(uint8_t* rgba, const uint8_t* cmyk, size_t count)
{
    for (size_t i = 0; i < count; i++, rgba += 4, cmyk += 4) {
        for (int c = 0; c < 3; c++) rgba[c] = (uint8_t)((cmyk[c] * cmyk[3] + 127) / 255);
        rgba[3] = 255;
    }
}

static void read_rows(jpeg_reading* reading, picture_file* out)
{
    j_decompress_ptr codec = &reading->codec;
    const size_t channels = (size_t)codec->output_components;
    JSAMPARRAY row =
        codec->mem->alloc_sarray((j_common_ptr)codec, JPOOL_IMAGE, codec->output_width * (JDIMENSION)channels, 1);
    while (codec->output_scanline < codec->output_height) {
        uint8_t* to = out->pixels + (size_t)codec->output_scanline * codec->output_width * 4;
        jpeg_read_scanlines(codec, row, 1);
        const uint8_t* from = row[0];
        if (channels == 4) {
            convert_cmyk(to, from, codec->output_width);
            continue;
        }
        for (size_t x = 0; x < codec->output_width; x++, to += 4, from += channels) {
            to[0] = from[0];
            to[1] = from[channels == 3 ? 1 : 0];
            to[2] = from[channels == 3 ? 2 : 0];
            to[3] = 255;
        }
    }
}

static void read_header_and_rows(jpeg_reading* reading, const void* data, size_t bytes, const char* path,
                                 picture_file* out)
{
    j_decompress_ptr codec = &reading->codec;
    jpeg_create_decompress(codec);
    reading->progress.progress_monitor = limit_scans;
    codec->progress = &reading->progress;
    jpeg_save_markers(codec, JPEG_APP0 + 1, 0xFFFF);
    jpeg_mem_src(codec, data, (unsigned long)bytes);
    jpeg_read_header(codec, TRUE);
    for (const struct jpeg_marker_struct* marker = codec->marker_list; marker; marker = marker->next) {
        if (marker->data_length >= 6 && memcmp(marker->data, EXIF_PREFIX, 6) == 0)
            exif_read(marker->data, marker->data_length, &reading->orientation, &out->parameters);
    }
    if (!picture_allocate(out, codec->image_width, codec->image_height, path, reading->errors.message))
        longjmp(reading->errors.recovery, 1);
    const bool is_cmyk = codec->jpeg_color_space == JCS_CMYK || codec->jpeg_color_space == JCS_YCCK,
               is_grey = codec->jpeg_color_space == JCS_GRAYSCALE;
    codec->out_color_space = is_cmyk ? JCS_CMYK : is_grey ? JCS_GRAYSCALE : JCS_RGB;
    out->channel_count = is_grey ? 1 : 3;
    jpeg_start_decompress(codec);
    read_rows(reading, out);
    jpeg_finish_decompress(codec);
}

static bool try_to_read(jpeg_reading* reading, const void* data, size_t bytes, const char* path, picture_file* out)
{
    if (setjmp(reading->errors.recovery) != 0) return false;
    read_header_and_rows(reading, data, bytes, path, out);
    return true;
}

bool jpeg_decode(const void* data, size_t bytes, const char* path, picture_file* out, char* message)
{
    jpeg_reading* reading = calloc(1, sizeof *reading); // not on the stack: its content must survive longjmp
    if (!reading) return picture_fail(message, "%s: no memory to read the JPEG", path);
    reading->codec.err = begin_errors(&reading->errors, path, ": cannot read the JPEG: ", message);
    const bool is_read = try_to_read(reading, data, bytes, path, out);
    const int orientation = reading->orientation;
    jpeg_destroy_decompress(&reading->codec);
    free(reading);
    return is_read && picture_turn_upright(out, orientation, path, message);
}

// ---- Writing --------------------------------------------------------------------------------------------------------

typedef struct jpeg_writing {
    struct jpeg_compress_struct codec;
    jpeg_errors errors;
    unsigned char* data;
    unsigned long bytes;
    uint8_t *exif, *row;
} jpeg_writing;

// Writes "Exif", two zeros and the block; a text that is longer than a marker is left out.
static void write_parameters(jpeg_writing* writing, const char* parameters)
{
    size_t bytes = 0;
    uint8_t* block = exif_write(parameters, &bytes);
    if (!block) return;
    writing->exif = malloc(6 + bytes);
    if (writing->exif && 6 + bytes <= MARKER_BYTES) {
        memcpy(writing->exif, EXIF_PREFIX, 6);
        memcpy(writing->exif + 6, block, bytes);
        jpeg_write_marker(&writing->codec, JPEG_APP0 + 1, writing->exif, (unsigned)(6 + bytes));
    } else {
        picture_fail(writing->errors.message,
                     "the settings in the picture were left out: %zu bytes are more than a JPEG holds", bytes);
    }
    free(block);
}

static void draw_over_white(const uint8_t* rgba, uint8_t* rgb)
{
    for (int c = 0; c < 3; c++) rgb[c] = (uint8_t)((rgba[c] * rgba[3] + 255 * (255 - rgba[3]) + 127) / 255);
}

static void write_rows(jpeg_writing* writing, const picture_source* source)
{
    j_compress_ptr codec = &writing->codec;
    jpeg_create_compress(codec);
    jpeg_mem_dest(codec, &writing->data, &writing->bytes);
    codec->image_width = (JDIMENSION)source->width;
    codec->image_height = (JDIMENSION)source->height;
    codec->input_components = source->channel_count == 1 ? 1 : 3;
    codec->in_color_space = source->channel_count == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(codec);
    jpeg_set_quality(codec, source->quality, TRUE);
    codec->optimize_coding = TRUE;
    // Halved colour shows at red edges, so it stays for those who ask for small files.
    if (source->quality >= 90) codec->comp_info[0].h_samp_factor = codec->comp_info[0].v_samp_factor = 1;
    jpeg_start_compress(codec, TRUE);
    if (source->parameters) write_parameters(writing, source->parameters);
    for (int32_t y = 0; y < source->height; y++) {
        const uint8_t* from = (const uint8_t*)source->pixels + (size_t)y * source->row_bytes;
        for (int32_t x = 0; source->channel_count == 4 && x < source->width; x++)
            draw_over_white(from + 4 * (size_t)x, writing->row + 3 * (size_t)x);
        JSAMPROW row = source->channel_count == 4 ? writing->row : (JSAMPROW)(uintptr_t)from; // it is only read
        jpeg_write_scanlines(codec, &row, 1);
    }
    jpeg_finish_compress(codec);
}

static bool try_to_write(jpeg_writing* writing, const picture_source* source)
{
    if (setjmp(writing->errors.recovery) != 0) return false;
    write_rows(writing, source);
    return true;
}

bool jpeg_encode(const picture_source* source, void** out_data, size_t* out_bytes, char* message)
{
    jpeg_writing* writing = calloc(1, sizeof *writing);
    if (writing) writing->row = malloc(3 * (size_t)source->width);
    bool is_written = false;
    if (!writing || !writing->row) {
        picture_fail(message, "no memory");
    } else {
        writing->codec.err = begin_errors(&writing->errors, "", "", message);
        is_written = try_to_write(writing, source);
        jpeg_destroy_compress(&writing->codec);
        if (is_written) {
            *out_data = writing->data;
            *out_bytes = writing->bytes;
            if (message[0] == 0 && !picture_is_opaque(source))
                picture_fail(message, "a JPEG has no alpha: what is transparent was drawn over white; a PNG or WebP "
                                      "keeps it");
        } else {
            free(writing->data);
        }
        free(writing->exif);
        free(writing->row);
    }
    free(writing);
    return is_written;
}

bool jpeg_is_built(void) { return true; }
#else
bool jpeg_is_built(void) { return false; }

bool jpeg_decode(const void* data, size_t bytes, const char* path, picture_file* out, char* message)
{
    (void)data, (void)bytes, (void)out;
    return picture_fail(message, "%s: this build was made without libjpeg", path);
}

bool jpeg_encode(const picture_source* source, void** out_data, size_t* out_bytes, char* message)
{
    (void)source, (void)out_data, (void)out_bytes;
    return picture_fail(message, "this build was made without libjpeg");
}
#endif
