// Reads and writes picture files for samples and tests: PNG, JPEG and WebP, through their libraries (libspng, libjpeg,
// libwebp). The library itself works with pixels, not with files.
#ifndef PICTURE_H
#define PICTURE_H
#include "picture_base.h"

// Reads a picture whose format is found by its first bytes, not by its name. 16-bit samples keep their high byte; gamma
// and profiles are ignored; a picture is turned upright as its EXIF orientation says. channel_count 0 gives 4 when the
// file has transparency, 1 when it is grey, 3 otherwise; 1, 3 or 4 requests that: colour becomes grey by the ITU-R 601
// luma as in Pillow's "L", grey is repeated, alpha, which is straight, is dropped or filled with 255.
// Returns false with the file and the reason in message and an empty picture. Call picture_free either way.
bool picture_read(const char* path, int32_t channel_count, picture_file* out, char* message);
// The same from memory; path is for the message. Before anything is allocated, the decoded size is checked against the
// limits and, for a PNG, against the largest size that `bytes` bytes can decode to.
bool picture_read_memory(const void* data, size_t bytes, const char* path, int32_t channel_count, picture_file* out,
                         char* message);
bool picture_is_one(const char* path); // whether the file begins as a PNG, JPEG or WebP does

// The format that the extension of a path stands for: .png, .jpg, .jpeg, .webp in any case.
picture_format picture_format_of_path(const char* path);
// Returns false with a sentence when the extension is none of these, or when this build has no library for its format.
bool picture_path_is_possible(const char* path, char* message);

// Encodes into memory, which the caller frees with free(). The parameters become a text chunk "parameters" of a PNG
// (tEXt when Latin-1 can hold it, iTXt otherwise), and the EXIF UserComment of a JPEG or WebP, as in AUTOMATIC1111's
// web UI. Returns false with the reason in message. When it returns true, message is empty, or says what a JPEG cannot
// keep: transparent pixels, which are drawn over white, or parameters that are longer than the 64 KB of its EXIF.
bool picture_encode(picture_format format, const picture_source* source, void** out_data, size_t* out_bytes,
                    char* message);
// Encodes by the extension of the path and writes the file. A file that could not be written whole may be left behind.
bool picture_write(const char* path, const picture_source* source, char* message);
#endif
