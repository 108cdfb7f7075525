// Reads and writes PNG files with libspng, for samples and tests. The library itself works with pixels, not with files.
#ifndef PNG_H
#define PNG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PNG_MAX_SIDE 32768
#define PNG_MAX_PIXELS (64 * 1024 * 1024) // 256 MiB of RGBA8
#define PNG_MESSAGE_BYTES 512

typedef struct png_image {
    uint8_t* pixels; // 8-bit, rows without gaps
    int32_t width, height;
    int32_t channel_count; // 1 grey, 3 RGB, 4 RGBA
    char* parameters;      // the "parameters" text chunk as UTF-8, or NULL
} png_image;

// Reads a PNG of any colour type and depth. 16-bit samples keep their high byte; gamma and profiles are ignored.
// channel_count 0 gives 4 when the file has transparency, 1 when it is grey, 3 otherwise; 1, 3 or 4 requests that:
// colour becomes grey by the ITU-R 601 luma as in Pillow's "L", grey is repeated, alpha is dropped or filled with 255.
// Returns false with the file and the reason in message (PNG_MESSAGE_BYTES) and an empty image. Call png_free either
// way.
bool png_read(const char* path, int32_t channel_count, png_image* image, char* message);
// The same from memory; path is for the message. Before anything is allocated, the decoded size is checked against the
// limits and against the largest size that `bytes` bytes can decode to.
bool png_read_memory(const void* data, size_t bytes, const char* path, int32_t channel_count, png_image* image,
                     char* message);
void png_free(png_image* image); // accepts an empty image

// Writes 8-bit pixels of 1, 3 or 4 channels. parameters (UTF-8, may be NULL) becomes the "parameters" text chunk that
// other tools read: tEXt when Latin-1 can hold it, iTXt otherwise. Returns false with the reason in message; a file
// that could not be written whole may be left behind.
bool png_write(const char* path, const void* pixels, int32_t width, int32_t height, size_t row_bytes,
               int32_t channel_count, const char* parameters, char* message);
#endif
