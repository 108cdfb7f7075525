// Launch contracts of the convolutions, shared by the kernels and by src/cuda/launch_pictures.c. Addresses are 64-bit
// device addresses; sizes are in pixels and channels. Images are bf16 [height][width][channels] (NHWC). A bias is float
// [out_channels], padded with zeros to a multiple of 8. Sums are float. A strip is a range of rows of an image that is
// convolved alone. Its x holds the neighbouring rows too: `above` rows before its first output row.
//
// The same on the CPU, in float32, which tests compare with: src/cpu/conv.c.
#ifndef SUMI_KERNELS_CONV_H
#define SUMI_KERNELS_CONV_H
#include <stdint.h>

// ---- conv_sm90.cu ---------------------------------------------------------------------------------------------------
// sumi_conv_sm90_n<columns>[_residual][_stats<channels per group>], columns 256 or 128. Of those with a residual none
// has _stats. For compute capability 9.0, and for what conv_halo_sm90.cu does not compute: stride 2, 1x1, few or other
// channels, upsampling with a residual to channels that 96 does not divide.
// Parameters, all by value: the tensor maps of x, weights, y and residual (y's map where there is no residual), then
// sumi_conv_sm90_args. All maps are bf16 with the 128-byte swizzle. Strides are in elements, from dimension 1 on.
//   width, height     of the image that the patches cover: the output, or the small input image when upsampling
//   x_height          rows of x
//   scale             1, or 2 when upsampling
//   x_pitch, y_pitch  elements from pixel to pixel of x and y
//
//   x, stride 1    4-D {in, width, x_height, 1}                 box {64, 16, 8, 1}
//                  strides {x_pitch, width * x_pitch, x_height * width * x_pitch}
//   x, stride 2    5-D {in, 2, width, 2, height}                box {64, 1, 16, 1, 8}
//                  strides {x_pitch, 2 * x_pitch, 2 * width * x_pitch, 4 * width * x_pitch}
//                  an input pixel is (row pair, row in the pair, column pair, column in the pair)
//   weights        2-D {taps * in, scale * scale * out}         box {64, columns / 2}
//                  memory [parity][out][tap][in]
//   y, residual    5-D {out, scale, width, scale, height}       box {64, 1, 16, 1, 4}
//                  strides {y_pitch, scale * y_pitch, scale * width * y_pitch, scale * scale * width * y_pitch}
//
// Work items: ceil(patches / 2) * parities * ceil(out / columns). An item is two neighbouring patches of 16 x 8 pixels,
// one parity and one tile of columns. Grid: even, at most 2 * items and at most the multiprocessors. Block 384. Cluster
// 2 (in the kernel). Dynamic shared memory: SUMI_CONV_SM90_N<columns>_SHARED. Bound by the tensor cores.
typedef struct sumi_conv_sm90_args {
    uint64_t bias; // 16-byte aligned
    // Used by the kernels with _stats (group sums): float [patches * parities * 8][32][2], see conv_sm90.cu.
    uint64_t stats;
    int32_t width, height; // of the image that the patches cover
    int32_t in_channels;   // multiple of 8; also the elements from tap to tap of the weights
    int32_t out_channels;  // multiple of 8
    int32_t kernel;        // taps per row and per column: 1, 3, or 2 with parities == 4
    // 1: the taps are centred on the output pixel; 2: they begin at the output pixel's first input pixel
    int32_t stride;
    int32_t parities; // 1, or 4: nearest upsampling by 2 is folded into the weights, see conv_sm90.cu
    int32_t item_begin, item_end;
    int32_t above; // rows of x before the first output row (strips)
    // Used by the kernels with _norm: float [out_channels], and what is added to the mean square.
    uint64_t norm;
    float norm_eps;
    int32_t reserved;
} sumi_conv_sm90_args;

#define SUMI_CONV_SM90_PATCHES(width, height) ((((width) + 15) / 16) * (((height) + 7) / 8))
#define SUMI_CONV_SM90_N256_SHARED 215104
#define SUMI_CONV_SM90_N128_SHARED 197728

// ---- conv_halo_sm90.cu ----------------------------------------------------------------------------------------------
// sumi_conv_halo_<pixels>x<columns>_c<channels>[_residual|_up_residual][_stats<channels per group>]: pixels (256: a
// patch of 16 x 16, 128: of 16 x 8) and columns of a tile, input channels of a k-block. 256x96_c96, 128x96_c96,
// 128x144_c96, 128x192_c64, 128x128_c64 and 128x96_c64. For compute capability 9.0; stride 1; kernel 3, or 2 with
// parities == 4, then without a residual or with _up_residual. in_channels is a multiple of <channels>, out_channels of
// <columns>; of 128x144_c96 in_channels may be half of <channels> more, and out_channels is 144. Only 128x128_c64 has
// forms with _stats, and it and 128x144_c96 have none with _up_residual.
// All kernels with the same <channels> add in the same order, so the choice between them changes no bits.
// 128x96_c96 and 128x192_c64 have a form _norm, which writes silu(rms norm(y) * norm) in place of y, where
// out_channels is <columns>. y is rounded to bf16 before.
// Parameters, all by value: the tensor maps of x, the tail of x, weights, the tail of the weights, y and residual (y's
// map where there is no residual), then sumi_conv_sm90_args, of which `stride` is not read. All maps are bf16.
// Dimensions and strides are those of conv_sm90.cu; the boxes and swizzles are
//
//   x               box {64, 18, rows of the patch + 2, 1}       128-byte swizzle
//   weights         box {64, columns / 2}                        128-byte swizzle
//   tails           the same with 32 channels                    64-byte swizzle; with c64 they are not read
//   y, residual     box {32, 1, 8, 1, 8}                         64-byte swizzle
//
// Work items: ceil(patches / 2) * parities * out / columns. An item is two neighbouring patches, one parity and one
// tile of columns. Grid: even, at most 2 * items and at most the multiprocessors. Block 384. Cluster 2 (in the kernel).
// Dynamic shared memory: SUMI_CONV_HALO_<tile>_SHARED. stats: float [patches * parities * 4][32][2]. Bound by the
// tensor cores.
#define SUMI_CONV_HALO_256X96_C96_SHARED 231536
#define SUMI_CONV_HALO_128X96_C96_SHARED 194688
#define SUMI_CONV_HALO_128X144_C96_SHARED 215168
#define SUMI_CONV_HALO_128X192_C64_SHARED 219280
#define SUMI_CONV_HALO_128X96_C64_SHARED 193712
#define SUMI_CONV_HALO_128X128_C64_SHARED 218304

// ---- conv.cu --------------------------------------------------------------------------------------------------------
// sumi_conv_n256, _n128w, _n128, _n96w, _n96, _n64. Parameter: sumi_conv_args. Grid (units of this launch); blocks and
// dynamic shared memory: the constants below. For compute capability 8.0 and newer; bound by mma.sync. A unit is
// SUMI_CONV_TILE_PIXELS pixels, a parity and a tile of 256, 128, 96 or 64 output channels. In the numbering of units the
// column tile changes fastest, then the parity. w: k-blocks of 64 channels instead of 32.
typedef struct sumi_conv_args {
    uint64_t x, weight, y;           // 16-byte aligned; weight [parity][out][tap][weight_pitch]
    uint64_t residual;               // like y; 0: no residual
    uint64_t bias;                   // 0: no bias
    int32_t width, height;           // of x
    int32_t tile_width, tile_height; // of the image that the tiles cover: the output, or x when upsampling
    int32_t in_channels;             // multiple of 8
    int32_t out_channels;            // multiple of 8
    int32_t weight_pitch;            // elements from tap to tap; equals in_channels for all kernels but sumi_conv_any
    int32_t kernel;                  // taps per row and per column: 1, 3, or 2 with parities == 4
    // The first tap of output pixel p is input pixel p * stride - pad. When upsampling it is p + parity - 1.
    int32_t stride, pad;
    int32_t parities; // 1, or 4: nearest upsampling by 2
    int32_t unit_begin;
    int32_t above; // rows of x before the first output row; added to the row of the first tap
    // Elements from pixel to pixel of x and y. Multiples of 8 for all kernels but sumi_conv_any. The residual has y's.
    int32_t x_pitch, y_pitch, reserved;
} sumi_conv_args;

enum {
    SUMI_CONV_TILE_PIXELS = 128,
    SUMI_CONV_N256_THREADS = 256,
    SUMI_CONV_N256_SHARED = 98304,
    SUMI_CONV_N128W_THREADS = 128,
    SUMI_CONV_N128W_SHARED = 98304,
    SUMI_CONV_N128_THREADS = 128,
    SUMI_CONV_N128_SHARED = 49152,
    SUMI_CONV_N96W_THREADS = 128,
    SUMI_CONV_N96W_SHARED = 86016,
    SUMI_CONV_N96_THREADS = 128,
    SUMI_CONV_N96_SHARED = 43008,
    SUMI_CONV_N64_THREADS = 128,
    SUMI_CONV_N64_SHARED = 36864
};

// ---- conv_any.cu ----------------------------------------------------------------------------------------------------
// sumi_conv_any: any channel counts, 2-byte alignment. Grid (ceil(pixels of this launch / 32), ceil(out_channels / 8)),
// block 256, no dynamic shared memory. The launch computes output pixels [conv.unit_begin, pixel_end). Bound by loads.
typedef struct sumi_conv_any_args {
    sumi_conv_args conv;
    // 1: nearest upsampling by 2 whose weights are not folded: x is read as if it were twice as large
    int32_t upsamples_plain;
    int32_t pixel_end;
} sumi_conv_any_args;
enum { SUMI_CONV_ANY_PIXELS = 32, SUMI_CONV_ANY_COLUMNS = 8, SUMI_CONV_ANY_THREADS = 256 };

// sumi_conv_pad_channels: copies x [pixels][channels] to y [pixels][pitch] and fills each pixel with zeros. Grid
// ceil(pixels * pitch / 256 / 8), block 256, grid-stride loop. Bound by bytes.
typedef struct sumi_conv_pad_args {
    uint64_t x, y;
    int64_t pixels;
    int32_t channels, pitch;
} sumi_conv_pad_args;

// ---- conv_narrow.cu -------------------------------------------------------------------------------------------------
// sumi_conv_narrow, _o4: 3x3, stride 1, at most 3 or 4 output channels. Grid (units of this launch), block 128, dynamic
// shared memory SUMI_CONV_NARROW_SHARED(in_channels) or SUMI_CONV_NARROW_O4_SHARED(in_channels). Bound by reading x. A
// unit is a strip of SUMI_CONV_NARROW_WIDTH columns and SUMI_CONV_NARROW_ROWS rows. Units are numbered row of strips by
// row of strips.
typedef struct sumi_conv_narrow_args {
    // x is 16-byte aligned; weight [out][9][weight_pitch]; bias and residual 0: none
    uint64_t x, weight, y, residual, bias;
    int32_t width, height, in_channels, out_channels; // in_channels: a multiple of 32; of 16 for _o4
    int32_t weight_pitch, unit_begin;
    int32_t x_pitch, reserved; // x_pitch: elements from pixel to pixel, a multiple of 8
} sumi_conv_narrow_args;
enum {
    SUMI_CONV_NARROW_THREADS = 128,
    SUMI_CONV_NARROW_WIDTH = 62,
    SUMI_CONV_NARROW_ROWS = 16,
    SUMI_CONV_NARROW_COLUMNS = 32,
    SUMI_CONV_NARROW_O4_COLUMNS = 40,
    SUMI_CONV_NARROW_MAX_CHANNELS = 256
};
// The weights, bf16 [32][in_channels + 32] (with this padding eight lanes read different banks), and four rows of 64 x
// 28 products in float.
#define SUMI_CONV_NARROW_SHARED(in_channels) (SUMI_CONV_NARROW_COLUMNS * ((in_channels) + 32) * 2 + 4 * 64 * 28 * 4)
// The same with bf16 [40][pitch] and products of 36 columns. The pitch is an odd multiple of 32 channels, so that two
// rows begin at different halves of the banks. 144 channels take 49,664 bytes: two blocks share the 100 KiB of a GeForce.
#define SUMI_CONV_NARROW_O4_WEIGHTS_PITCH(in_channels) ((((in_channels) + 31) / 32 | 1) * 32)
#define SUMI_CONV_NARROW_O4_SHARED(in_channels)                                                                        \
    (SUMI_CONV_NARROW_O4_COLUMNS * SUMI_CONV_NARROW_O4_WEIGHTS_PITCH(in_channels) * 2 + 4 * 64 * 36 * 4)
#endif
