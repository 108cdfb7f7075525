// Convolution for shapes that the tensor-core kernels do not support (output channels that are not a multiple of 8),
// and a copy that pads input channels, so that the tensor-core kernels can use them. bf16 NHWC, float sums.
#include "common.cuh"
#include "conv.h"

// y[p, o] = bias[o] + sum over taps, channels of x[..] * w[o][tap][c] (+ residual[p, o]). Any channel counts, 2-byte
// alignment. Weights [parity][out][taps][weight_pitch].
//   grid (ceil(pixels / 32), ceil(out / 8)), block 256: eight neighbouring threads compute eight outputs of one pixel
// Bound by loads: one of x and one of w per product. It is meant for small images and test models.
extern "C" __global__ void __launch_bounds__(SUMI_CONV_ANY_THREADS)
    sumi_conv_any(const __grid_constant__ sumi_conv_any_args args)
{
    const sumi_conv_args& a = args.conv;
    const int doubles = a.parities == 4, out_width = a.tile_width << doubles;
    const int64_t p =
        (int64_t)a.unit_begin + (int64_t)blockIdx.x * SUMI_CONV_ANY_PIXELS + threadIdx.x / SUMI_CONV_ANY_COLUMNS;
    const int o = blockIdx.y * SUMI_CONV_ANY_COLUMNS + threadIdx.x % SUMI_CONV_ANY_COLUMNS;
    if (p >= args.pixel_end || o >= a.out_channels) return;
    const int y = (int)(p / out_width), x = (int)(p % out_width), parity = doubles ? (y & 1) * 2 + (x & 1) : 0,
              taps = a.kernel * a.kernel;
    const int first_y = (doubles ? (y >> 1) + (y & 1) - 1 : y * a.stride - a.pad) + a.above,
              first_x = doubles ? (x >> 1) + (x & 1) - 1 : x * a.stride - a.pad;
    const int shift = args.upsamples_plain;
    const bf16* w = (const bf16*)a.weight + ((int64_t)parity * a.out_channels + o) * taps * a.weight_pitch;
    float sum = 0.0f;
    for (int tap = 0; tap < taps; tap++) {
        const int iy = first_y + tap / a.kernel, ix = first_x + tap % a.kernel;
        if (iy < 0 || ix < 0 || iy >= a.height << shift || ix >= a.width << shift) continue;
        const bf16* from = (const bf16*)a.x + ((int64_t)(iy >> shift) * a.width + (ix >> shift)) * a.x_pitch;
        const bf16* with = w + (int64_t)tap * a.weight_pitch;
        for (int c = 0; c < a.in_channels; c++) sum = fmaf(__bfloat162float(from[c]), __bfloat162float(with[c]), sum);
    }
    const int64_t at = p * a.y_pitch + o;
    if (a.bias) sum += ((const float*)a.bias)[o];
    if (a.residual) sum += __bfloat162float(((const bf16*)a.residual)[at]);
    ((bf16*)a.y)[at] = __float2bfloat16_rn(sum);
}

// x [pixels][channels] -> y [pixels][pitch], each pixel filled with zeros. The weights are padded the same way, so a
// convolution of 3 or 4 input channels runs on the tensor cores. Bound by bytes.
extern "C" __global__ void __launch_bounds__(256) sumi_conv_pad_channels(const __grid_constant__ sumi_conv_pad_args a)
{
    const int64_t count = a.pixels * a.pitch, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const int64_t p = i / a.pitch;
        const int c = (int)(i - p * a.pitch);
        ((bf16*)a.y)[i] = c < a.channels ? ((const bf16*)a.x)[p * a.channels + c] : __float2bfloat16_rn(0.0f);
    }
}
