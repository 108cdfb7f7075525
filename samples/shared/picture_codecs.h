// The codecs behind picture.h. Each file format is a pair of functions in a file of its own, which picture.c chooses.
#ifndef PICTURE_CODECS_H
#define PICTURE_CODECS_H
#include "picture_base.h"

// Decode to RGBA8 and set channel_count to what the file has: 1, 3 or 4. On failure they write a sentence, and what
// `out` has allocated is freed by the caller.
bool png_decode(const void* data, size_t bytes, const char* path, picture_file* out, char* message);
bool jpeg_decode(const void* data, size_t bytes, const char* path, picture_file* out, char* message);
bool webp_decode(const void* data, size_t bytes, const char* path, picture_file* out, char* message);

// Encode a source that picture_encode has checked, with its quality filled in.
bool png_encode(const picture_source* source, void** out_data, size_t* out_bytes, char* message);
bool jpeg_encode(const picture_source* source, void** out_data, size_t* out_bytes, char* message);
bool webp_encode(const picture_source* source, void** out_data, size_t* out_bytes, char* message);
bool jpeg_is_built(void);
bool webp_is_built(void);
#endif
