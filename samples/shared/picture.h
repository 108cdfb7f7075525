// Reads and writes picture files for samples and tests: PNG, JPEG and WebP, through their libraries (libspng, libjpeg,
// libwebp). The library itself works with pixels, not with files.
#ifndef PICTURE_H
#define PICTURE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICTURE_MAX_SIDE 32768
#define PICTURE_MAX_PIXELS (64 * 1024 * 1024) // 256 MiB of RGBA8
#define PICTURE_MESSAGE_BYTES 512             // size of every `message` below

typedef enum picture_format { PICTURE_UNKNOWN, PICTURE_PNG, PICTURE_JPEG, PICTURE_WEBP } picture_format;

typedef struct picture_file {
    uint8_t* pixels; // 8-bit, rows without gaps
    int32_t width, height;
    int32_t channel_count; // 1 grey, 3 RGB, 4 RGBA
    picture_format format; // of the file
    char* parameters;      // the text about how it was made (parameters.h) as UTF-8, or NULL
} picture_file;

// Reads a picture whose format is found by its first bytes, not by its name. 16-bit samples keep their high byte; gamma
// and profiles are ignored; a JPEG is turned upright as its EXIF orientation says. channel_count 0 gives 4 when the file
// has transparency, 1 when it is grey, 3 otherwise; 1, 3 or 4 requests that: colour becomes grey by the ITU-R 601 luma
// as in Pillow's "L", grey is repeated, alpha is dropped or filled with 255.
// Returns false with the file and the reason in message and an empty picture. Call picture_free either way.
bool picture_read(const char* path, int32_t channel_count, picture_file* out, char* message);
// The same from memory; path is for the message. Before anything is allocated, the decoded size is checked against the
// limits and, for a PNG, against the largest size that `bytes` bytes can decode to.
bool picture_read_memory(const void* data, size_t bytes, const char* path, int32_t channel_count, picture_file* out,
                         char* message);
bool picture_is_one(const char* path);  // whether the file begins as a PNG, JPEG or WebP does
void picture_free(picture_file* freed); // accepts an empty picture

typedef struct picture_source {
    const void* pixels; // 8-bit
    int32_t width, height;
    size_t row_bytes;
    int32_t channel_count;  // 1, 3 or 4; a JPEG drops alpha, and so does any format where it is 255 everywhere
    const char* parameters; // UTF-8 or NULL; stays in the file as other tools read it (below)
    int32_t quality;        // of JPEG and WebP, 1 to 100; 0: 92. WebP with 100 is lossless
} picture_source;

// The format that the extension of a path stands for: .png, .jpg, .jpeg, .webp in any case.
picture_format picture_format_of_path(const char* path);
// Returns false with a sentence when the extension is none of these, or when this build has no library for its format.
bool picture_path_is_possible(const char* path, char* message);

// Encodes into memory, which the caller frees with free(). The parameters become a text chunk "parameters" of a PNG
// (tEXt when Latin-1 can hold it, iTXt otherwise), and the EXIF UserComment of a JPEG or WebP, as in AUTOMATIC1111's
// web UI. Returns false with the reason in message. When it returns true, message is empty, or says that the parameters
// were left out because they are longer than the 64 KB of a JPEG's EXIF.
bool picture_encode(picture_format format, const picture_source* source, void** out_data, size_t* out_bytes,
                    char* message);
// Encodes by the extension of the path and writes the file. A file that could not be written whole may be left behind.
bool picture_write(const char* path, const picture_source* source, char* message);
#endif
