// Launch contracts of pictures.cu: tiles of images, shortcuts and 8-bit pixels. All kernels: block 256, grid as
// stated, grid-stride loops, no dynamic shared memory, bound by bytes. Images are NHWC, their pixels are rows of 3
// values unless stated.
// Alignment is that of an element unless stated.
//
// The same on the CPU, in float32, which tests compare with: src/cpu/pictures.c.
#ifndef SUMI_KERNELS_PICTURES_H
#define SUMI_KERNELS_PICTURES_H
#include <stdint.h>

enum { SUMI_PICTURES_THREADS = 256, SUMI_PICTURES_VALUES = 8 }; // values per thread

// sumi_pixels_in: bytes [..][picture_width][cols] -> bf16 [rows][channels], both 3 or 4, for rows (pixels) [row_begin,
// row_end) of a tile of `width` columns that begins at pixel (top, left) of the image. Grid ceil(rows * channels / 256).
typedef struct sumi_pixels_in_args {
    uint64_t bytes, y, counter;
    // per_item 1: the image of item `counter` begins counter * item_rows pixels after the first image
    int64_t item_rows;
    int32_t width, top, left, picture_width, row_begin, row_end, per_item, cols, channels, reserved;
} sumi_pixels_in_args;

// sumi_patches_in: bytes [..][width][3] -> bf16 [rows][3 * frames * patch^2], for rows [row_begin, row_end). A cell is
// a square of `cell` x `cell` patches. Row (i * cell + y) * cell + x is patch (y, x) of cell cells[i]. A cell number
// outside [0, cell_count) gives rows of NaN. Grid ceil(rows * 3 * patch^2 / 256).
typedef struct sumi_patches_in_args {
    uint64_t bytes, cells, y;
    int32_t width, patch, cell, frames, cells_across, cell_count, row_begin, row_end;
    float mean[3], deviation[3];
} sumi_patches_in_args;

// sumi_composite: pixels [row_begin, row_end) of `pictures`, bf16 [n * rows][cols], are drawn over `beneath`, bytes
// [rows][cols], with `opacity`, bytes [rows]. cols: 3 or 4. Grid ceil(pixels / 256).
typedef struct sumi_composite_args {
    uint64_t pictures, beneath, opacity;
    int32_t rows, row_begin, row_end, cols;
} sumi_composite_args;

// sumi_pixels_out: bf16 -> bytes, values [begin, end) of both. Adds the number of values that are not finite to
// *not_finite, an int32 (address 0: not counted). x is 16-byte and bytes 8-byte aligned. Grid ceil(values / 2048).
typedef struct sumi_pixels_out_args {
    uint64_t x, bytes, not_finite;
    int64_t begin, end; // begin is a multiple of 8
} sumi_pixels_out_args;

// sumi_shortcut: bf16 [pixels][in_channels] -> bf16 [pixels][out_channels], rows [row_begin, row_end) of the result;
// `width`: pixels of a row of x. upsamples 1: each channel of x is copied `size` times into the channels, frames and
// pixels (2 x 2) of y, of which the last frame exists; 0: a channel of y is the mean of `size` values of x, of which the
// frames before the last are zeros. A thread computes `vector` channels: 1; or 8, with y 16-byte aligned and
// out_channels a multiple of 8. Grid ceil(rows * out_channels / vector / 256).
typedef struct sumi_shortcut_args {
    uint64_t x, y;
    int32_t width, in_channels, out_channels, frames, scale, upsamples, size, vector, row_begin, row_end;
} sumi_shortcut_args;

// sumi_pixels_to: one image in the pixel format of the host program, `pitch` bytes from row to row. Formats with alpha
// have the image's, in floats from 0 to 1, or that of opaque pixels if the image has 3 channels; formats without alpha
// have the colours alone. Grid (ceil(width / 256), height).
enum { SUMI_PIXELS_RGBA8, SUMI_PIXELS_RGB8, SUMI_PIXELS_RGB32F, SUMI_PIXELS_BGRA8, SUMI_PIXELS_RGBA16F };
typedef struct sumi_pixels_to_args {
    uint64_t from; // the image's first pixel: bytes [height][width][channels]; for RGB32F and RGBA16F: bf16
    // Multiples of 4 for all formats but RGB8. The pitch is added modulo 2^64, so it may be negative (bottom-up rows).
    uint64_t to, pitch;
    int32_t width, format, channels, reserved; // channels: 3 or 4
} sumi_pixels_to_args;

// sumi_tile_place: copies rows [row_begin, row_end) of the part of a tile that is kept to the image, row_elements per
// row. An element is 16, 4 or 2 bytes (the widest that both alignments allow); all sizes are in elements. Grid
// ceil(rows * row_elements / 256).
typedef struct sumi_tile_place_args {
    uint64_t tile, picture, counter;
    int64_t item_elements; // per_item 1: elements of a whole image; the tile goes to the image of item `counter`
    int64_t picture_first; // where the first kept row goes
    int32_t tile_pitch, picture_pitch, row_elements, row_begin, row_end, per_item, element_bytes, reserved;
} sumi_tile_place_args;

// sumi_tile_blend: blends the first above_count rows and left_count columns of a tile with the neighbouring tiles, in
// place. Grid ceil(values / 256), values = channels * (above_count * width + (height - above_count) * left_count).
typedef struct sumi_tile_blend_args {
    uint64_t tile, above, left; // bf16 or float [rows][columns][channels]; above, left: the neighbouring tiles, 0: none
    int32_t height, width, channels, above_height, left_width, above_count, left_count, is_float;
} sumi_tile_blend_args;
#endif
