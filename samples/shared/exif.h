// The two entries of an EXIF block (a small TIFF file inside a JPEG or WebP; CIPA DC-008) that picture files need: how
// the picture is turned, and the comment in which other tools keep the parameters.
#ifndef EXIF_H
#define EXIF_H
#include <stddef.h>
#include <stdint.h>

// Reads a block with or without "Exif\0\0" before it. *orientation is 1 to 8, 1 when the block does not say; *comment
// is UTF-8, which the caller frees, or NULL. A damaged block gives what can be read.
void exif_read(const uint8_t* block, size_t bytes, int* orientation, char** comment);
// A block (without "Exif\0\0") with a UserComment in UTF-16; the caller frees it. NULL: no memory.
uint8_t* exif_write(const char* comment, size_t* out_bytes);
#endif
