// The two entries of an EXIF block (a small TIFF file inside a PNG, JPEG or WebP; CIPA DC-008) that picture files need:
// how the picture is turned, and the comment in which other tools keep the parameters.
#ifndef EXIF_H
#define EXIF_H
#include <stddef.h>
#include <stdint.h>

// Reads a block with or without "Exif\0\0" before it. Sets *orientation, 1 to 8, if it is 0, and *comment, UTF-8 that
// the caller frees, if it is NULL; what the block does not say stays. So of several blocks the first one that says a
// thing counts. Where a folder has an entry twice, the last one counts, as in Pillow. A damaged block gives what can be
// read.
void exif_read(const uint8_t* block, size_t bytes, int* orientation, char** comment);
// A block (without "Exif\0\0") with a UserComment in UTF-16; the caller frees it. NULL: no memory.
uint8_t* exif_write(const char* comment, size_t* out_bytes);
#endif
