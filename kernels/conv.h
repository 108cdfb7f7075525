// Launch contracts of the convolutions, shared by the kernels and by src/cuda/launch_pictures.c. Addresses are 64-bit
// integers; sizes are in pixels and channels. Pictures are bf16 [height][width][channels] (NHWC), a bias is float
// [out_channels] padded with zeros to a multiple of 8.
#ifndef SUMI_KERNELS_CONV_H
#define SUMI_KERNELS_CONV_H
#include <stdint.h>

// ---- conv_sm90.cu ---------------------------------------------------------------------------------------------------
// Parameters: four tensor maps (x, weights, y, residual; y's where there is no residual), then this struct. `pw`, `ph`
// is the picture that patches tile: the output, or the small picture when upsampling (p = 2, else p = 1):
//   x          4-D {in, w, h, 1}, strides {px, w * px, h * w * px} (px: elements from pixel to pixel), box {64, 16, 8, 1};  stride 2: 5-D {in, 2, pw, 2, ph}, strides {px, 2 * px, 2 * pw * px,
//              4 * pw * px} (in elements), box {64, 1, 16, 1, 8}: an input pixel is (row pair, row of two, column pair, column of two)
//   weights    2-D {taps * in, p * p * out}, box {64, columns / 2}: [parity][out][tap][in]
//   y, residual 5-D {out, p, pw, p, ph}, strides {py, p * py, p * pw * py, p * p * pw * py}, box {64, 1, 16, 1, 4}
//   all bf16, 128-byte swizzle.   Grid: even, at most 2 * items and the device's multiprocessors; block 384; cluster 2
//                                 (in the kernel)
// Work items: ceil(patches / 2) * parities * ceil(out / columns), each two neighbouring patches of 16 x 8 pixels, one
// parity, one tile of columns.
typedef struct sumi_conv_sm90_args {
    uint64_t bias; // 16-byte aligned
    // of the kernels with group sums: float [patches * parities * 8][32][2], see conv_sm90.cu
    uint64_t stats;
    int32_t width, height; // pw, ph
    int32_t in_channels;   // multiple of 8; also the elements between taps of the weights
    int32_t out_channels;  // multiple of 8
    int32_t kernel;        // taps across: 1, 3, or 2 with parities == 4
    int32_t stride;        // 1: centred; 2: taps begin at the output pixel's first input pixel
    int32_t parities;      // 1, or 4: nearest upsampling by 2 folded in
    int32_t item_begin, item_end;
    int32_t above; // rows of x above the first patch's
} sumi_conv_sm90_args;

#define SUMI_CONV_SM90_PATCHES(pw, ph) ((((pw) + 15) / 16) * (((ph) + 7) / 8))
#define SUMI_CONV_SM90_N256_SHARED 215104
#define SUMI_CONV_SM90_N128_SHARED 197728

// ---- conv.cu --------------------------------------------------------------------------------------------------------
// sumi_conv_n256, _n128, _n64. Grid: units of the launch; block and shared memory below. Units: SUMI_CONV_UNITS; column
// tiles run fastest, then parities.
typedef struct sumi_conv_args {
    uint64_t x, weight, y;           // 16-byte aligned; weight [parity][out][tap][weight_pitch]
    uint64_t residual;               // like y; 0: none
    uint64_t bias;                   // 0: none
    int32_t width, height;           // of x
    int32_t tile_width, tile_height; // of the pixels that tiles cover: the output, or x when upsampling
    int32_t in_channels;             // multiple of 8
    int32_t out_channels;            // multiple of 8
    int32_t weight_pitch;            // elements between taps; in_channels but for conv_any.cu
    int32_t kernel;                  // taps across: 1, 3, or 2 with parities == 4
    // the first tap of output pixel p lies at p * stride - pad; upsampling: at p + parity - 1
    int32_t stride, pad;
    int32_t parities; // 1, or 4
    int32_t unit_begin;
    int32_t above; // rows of x above the first tile row's: added to the first tap's
    // elements from pixel to pixel, multiples of 8 but for conv_any.cu; the residual's is y's
    int32_t x_pitch, y_pitch, reserved;
} sumi_conv_args;

enum {
    SUMI_CONV_TILE_PIXELS = 128,
    SUMI_CONV_N256_THREADS = 256,
    SUMI_CONV_N256_SHARED = 98304,
    SUMI_CONV_N128_THREADS = 128,
    SUMI_CONV_N128_SHARED = 49152,
    SUMI_CONV_N64_THREADS = 128,
    SUMI_CONV_N64_SHARED = 36864
};

// ---- conv_any.cu ----------------------------------------------------------------------------------------------------
// sumi_conv_any: any channel counts and alignments (2 bytes). Grid (ceil(pixels of the launch / 32), ceil(out_channels
// / 8)), block 256.
// conv.unit_begin: the launch's first output pixel; it ends at pixel_end.
typedef struct sumi_conv_any_args {
    sumi_conv_args conv;
    int32_t upsamples_plain; // 1: a kernel that is not folded on a picture seen twice as large
    int32_t pixel_end;
} sumi_conv_any_args;
enum { SUMI_CONV_ANY_PIXELS = 32, SUMI_CONV_ANY_COLUMNS = 8, SUMI_CONV_ANY_THREADS = 256 };

// sumi_conv_pad_channels: x [pixels][channels] -> y [pixels][pitch], zeros behind. Grid: ceil(pixels * pitch / 256 /
// 8), block 256, grid-stride.
typedef struct sumi_conv_pad_args {
    uint64_t x, y;
    int64_t pixels;
    int32_t channels, pitch;
} sumi_conv_pad_args;

// ---- conv_narrow.cu -------------------------------------------------------------------------------------------------
// sumi_conv_narrow: 3x3, stride 1, to at most 3 channels. Grid: units of the launch, block 128, shared
// SUMI_CONV_NARROW_SHARED(in_channels).
// Units: strips of SUMI_CONV_NARROW_WIDTH columns and SUMI_CONV_NARROW_ROWS rows; strips of a row run fastest.
typedef struct sumi_conv_narrow_args {
    uint64_t x, weight, y, residual, bias; // x 16-byte aligned; weight [out][9][weight_pitch]; bias, residual 0: none
    int32_t width, height, in_channels, out_channels; // in_channels: multiple of 32
    int32_t weight_pitch, unit_begin;
    int32_t x_pitch, reserved; // elements from pixel to pixel, a multiple of 8
} sumi_conv_narrow_args;
enum {
    SUMI_CONV_NARROW_THREADS = 128,
    SUMI_CONV_NARROW_WIDTH = 62,
    SUMI_CONV_NARROW_ROWS = 16,
    SUMI_CONV_NARROW_COLUMNS = 32,
    SUMI_CONV_NARROW_MAX_CHANNELS = 256
};
// Weights [32][in_channels + 32] bf16 (the padding keeps eight lanes in different banks), four rows of 64 x 28 products
// in float.
#define SUMI_CONV_NARROW_SHARED(in_channels) (SUMI_CONV_NARROW_COLUMNS * ((in_channels) + 32) * 2 + 4 * 64 * 28 * 4)
#endif
