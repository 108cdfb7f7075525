// Convolution for shapes that the tensor-core kernels do not support (output channels that are not a multiple of 8),
// and a copy that pads input channels, so that the tensor-core kernels can use them. bf16 NHWC, float sums.
#include "common.cuh"
#include "conv.h"

// y[p, o] = bias[o] + sum over taps, channels of x[..] * w[o][tap][c] (+ residual[p, o]). Any channel counts, 2-byte
// alignment. Weights [parity][out][taps][weight_pitch].
//   grid (ceil(pixels / 32), ceil(out / 8)), block 256: eight neighbouring threads compute eight outputs of one pixel
// Bound by loads: one of x and one of w per product. It is meant for small images and test models.
extern "C" __global__ void __launch_bounds__(SUMI_CONV_ANY_THREADS)
    sumi_conv_any(const __grid_constant__ sumi_conv_any_args any_args)
{
    const sumi_conv_args& args = any_args.conv;
    const int upsampling_shift = args.parities == 4, out_width = args.tile_width << upsampling_shift;
    const int64_t p =
        (int64_t)args.unit_begin + (int64_t)blockIdx.x * SUMI_CONV_ANY_PIXELS + threadIdx.x / SUMI_CONV_ANY_COLUMNS;
    const int o = blockIdx.y * SUMI_CONV_ANY_COLUMNS + threadIdx.x % SUMI_CONV_ANY_COLUMNS;
    if (p >= any_args.pixel_end || o >= args.out_channels) return;
    const int y = (int)(p / out_width), x = (int)(p % out_width),
              output_parity = upsampling_shift ? (y & 1) * 2 + (x & 1) : 0, taps = args.kernel * args.kernel;
    const int first_y = (upsampling_shift ? (y >> 1) + (y & 1) - 1 : y * args.stride - args.pad) + args.above,
              first_x = upsampling_shift ? (x >> 1) + (x & 1) - 1 : x * args.stride - args.pad;
    const int input_shift = any_args.upsamples_plain; // x is read as if it were twice as large
    const bf16* w =
        (const bf16*)args.weight + ((int64_t)output_parity * args.out_channels + o) * taps * args.weight_pitch;
    float sum = 0.0f;
    for (int tap = 0; tap < taps; tap++) {
        const int input_y = first_y + tap / args.kernel, input_x = first_x + tap % args.kernel;
        if (input_y < 0 || input_x < 0 || input_y >= args.height << input_shift || input_x >= args.width << input_shift)
            continue;
        const bf16* x_pixel =
            (const bf16*)args.x
            + ((int64_t)(input_y >> input_shift) * args.width + (input_x >> input_shift)) * args.x_pitch;
        const bf16* w_tap = w + (int64_t)tap * args.weight_pitch;
        for (int c = 0; c < args.in_channels; c++)
            sum = fmaf(__bfloat162float(x_pixel[c]), __bfloat162float(w_tap[c]), sum);
    }
    const int64_t index = p * args.y_pitch + o;
    if (args.bias) sum += ((const float*)args.bias)[o];
    if (args.residual) sum += __bfloat162float(((const bf16*)args.residual)[index]);
    ((bf16*)args.y)[index] = __float2bfloat16_rn(sum);
}

// x [pixels][channels] -> y [pixels][pitch], each pixel filled with zeros. The weights are padded the same way, so a
// convolution of 3 or 4 input channels runs on the tensor cores. Bound by bytes.
extern "C" __global__ void __launch_bounds__(256)
    sumi_conv_pad_channels(const __grid_constant__ sumi_conv_pad_args args)
{
    const int64_t count = args.pixels * args.pitch, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const int64_t p = i / args.pitch;
        const int c = (int)(i - p * args.pitch);
        ((bf16*)args.y)[i] =
            c < args.channels ? ((const bf16*)args.x)[p * args.channels + c] : __float2bfloat16_rn(0.0f);
    }
}
