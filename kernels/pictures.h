// Launch contracts of pictures.cu: tiles and 8-bit pixels. All kernels: block 256, grid as said, grid-stride loops.
#ifndef SUMI_KERNELS_PICTURES_H
#define SUMI_KERNELS_PICTURES_H
#include <stdint.h>

enum { SUMI_PICTURES_THREADS = 256, SUMI_PICTURES_VALUES = 8 }; // values per thread

// sumi_pixels_in: bytes [.. picture_width][3] -> bf16 [rows][3]; rows [row_begin, row_end) of the tile. Grid ceil(rows
// * 3 / 256)
typedef struct sumi_pixels_in_args {
    uint64_t bytes, y, counter;
    int64_t item_rows; // with per_item: pixels before item `counter`
    int32_t width, top, left, picture_width, row_begin, row_end, per_item, reserved;
} sumi_pixels_in_args;

// sumi_patches_in: bytes [.. width][3] -> bf16 [rows][3 * frames * patch^2]; rows [row_begin, row_end), row (i * cell +
// y) * cell + x is patch (y, x) of cell cells[i]. A number that no cell has makes rows of NaN. Grid ceil(rows * 3 *
// patch^2 / 256)
typedef struct sumi_patches_in_args {
    uint64_t bytes, cells, y;
    int32_t width, patch, cell, frames, cells_across, cell_count, row_begin, row_end;
    float mean[3], deviation[3];
} sumi_patches_in_args;

// sumi_composite: pixels [row_begin, row_end) of pictures bf16 [n * rows][3] over one of bytes [rows][3], by its opacity,
// bytes [rows]. Grid ceil(pixels / 256)
typedef struct sumi_composite_args {
    uint64_t pictures, beneath, opacity;
    int32_t rows, row_begin, row_end, reserved;
} sumi_composite_args;

// sumi_pixels_out: bf16 -> bytes, values [begin, end) of both; adds how many values are not finite to *not_finite (0:
// none). Grid ceil(values / 2048)
typedef struct sumi_pixels_out_args {
    uint64_t x, bytes, not_finite;
    int64_t begin, end; // begin a multiple of 8
} sumi_pixels_out_args;

// sumi_pixels_to: one picture as the host wants it, rows `pitch` bytes apart. Grid (ceil(width / 256), height)
enum { SUMI_PIXELS_RGBA8, SUMI_PIXELS_RGB8, SUMI_PIXELS_RGB32F, SUMI_PIXELS_BGRA8 };
typedef struct sumi_pixels_to_args {
    uint64_t from;      // the picture's first pixel: bytes [height][width][3], of RGB32F bf16
    uint64_t to, pitch; // of all but RGB8 multiples of 4; the pitch is added modulo 2^64, so that rows may go upwards
    int32_t width, format;
} sumi_pixels_to_args;

// sumi_tile_place: rows [row_begin, row_end) of the kept part of a tile, `row_elements` each. Elements are 16, 4 or 2
// bytes (whatever both sides allow), all sizes in elements. Grid ceil(rows * row_elements / 256)
typedef struct sumi_tile_place_args {
    uint64_t tile, picture, counter;
    int64_t item_elements; // of a whole picture, with per_item
    int64_t picture_first; // of the first kept row
    int32_t tile_pitch, picture_pitch, row_elements, row_begin, row_end, per_item, element_bytes, reserved;
} sumi_tile_place_args;

// sumi_tile_blend: the first above_count rows and left_count columns of a tile, in place. Grid ceil(values / 256),
// values = channels * (above_count * width + (height - above_count) * left_count)
typedef struct sumi_tile_blend_args {
    uint64_t tile, above, left; // bf16 or float; 0: none
    int32_t height, width, channels, above_height, left_width, above_count, left_count, is_float;
} sumi_tile_blend_args;
#endif
