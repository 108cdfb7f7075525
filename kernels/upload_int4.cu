// Quantises a piece of a weight to 4-bit codes in quantisation blocks of 32 elements with a half-precision scale: the
// layout of IQ4_NL (src/base/dtype.c).
//   from   [row_count][cols] in the type args.type, dense, cols a multiple of 32
//   to     [stack_rows][cols / 32][18 bytes]: the scale, then 16 bytes of codes
//   grid   one block per row of the piece      block SUMI_UPLOAD_THREADS      no shared memory
// Bound by the bus that brings the piece. A thread makes a whole quantisation block. It tries 15 scales around the one
// that maps the largest element to the end of the codebook. For the codes of each, the best scale follows by least
// squares. The pair of codes and scale with the least squared error is kept; the elements are then coded with that
// scale.
#include "upload.cuh"

// The code (0..15) of the codebook value nearest to v. `middles`: twice the midpoints between neighbouring values.
SUMI_DEVICE int int4_code(float v)
{
    constexpr int middles[15] = {-231, -187, -148, -114, -84, -57, -32, -9, 14, 38, 63, 91, 122, 158, 202};
    const float twice = 2.0f * v;
    int code = 0;
#pragma unroll
    for (int i = 0; i < 15; i++) code += twice > (float)middles[i] ? 1 : 0;
    return code;
}
// The codebook value of a code.
SUMI_DEVICE float int4_value(int code)
{
    // -127 -104 -83 -65   -49 -35 -22 -10   1 13 25 38   53 69 89 113, stored with 128 added, as unsigned bytes
    const uint32_t byte = (uint32_t)code & 7u, low = __byte_perm(0x3f2d1801u, 0x766a5d4fu, byte),
                   high = __byte_perm(0xa6998d81u, 0xf1d9c5b5u, byte);
    return (float)(int)((code < 8 ? low : high) & 255u) - 128.0f;
}

extern "C" __global__ void __launch_bounds__(SUMI_UPLOAD_THREADS) sumi_upload_rows_int4(const sumi_upload_args args)
{
    enum { STEPS = 7 }; // scales that are tried on each side of the first
    const int blocks = args.cols / 32;
    for (int b = (int)threadIdx.x; b < blocks; b += SUMI_UPLOAD_THREADS) {
        const int64_t from = (int64_t)blockIdx.x * args.cols + 32 * b;
        float v[32], largest = 0.0f, best_gain = 0.0f, best_scale = 0.0f, zero_or_nan = 0.0f;
#pragma unroll
        for (int i = 0; i < 32; i++) {
            v[i] = upload_element(args, from + i);
            largest = fabsf(v[i]) > fabsf(largest) ? v[i] : largest;
            zero_or_nan += v[i] - v[i]; // NaN of NaN and of infinity
        }
        // All zero, or so small that the scale would be no half-precision number above zero.
        const bool is_zero = !(fabsf(largest) > 1e-7f);
        for (int step = -STEPS; step <= STEPS && !is_zero; step++) {
            const float inverse = (step - 127.0f) / largest;
            float products = 0.0f, squares = 0.0f;
#pragma unroll
            for (int i = 0; i < 32; i++) {
                const float value = int4_value(int4_code(v[i] * inverse));
                products += v[i] * value, squares += value * value;
            }
            // The squared error is sum(v^2) - products^2 / squares: the largest gain, products^2 / squares,
            // has the least error.
            if (squares > 0.0f && products * products > best_gain * squares)
                best_gain = products * products / squares, best_scale = products / squares;
        }
        // No code is NaN, and no value of the codebook is 0: the scale makes all of the block NaN.
        const __half half_scale = __float2half_rn(best_scale + zero_or_nan);
        const float scale = __half2float(half_scale), inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
        unsigned short* to =
            (unsigned short*)((uint8_t*)args.to + (int64_t)(args.row_begin + (int)blockIdx.x) * blocks * 18 + 18 * b);
        to[0] = __half_as_ushort(half_scale);
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            const int first = int4_code(v[i] * inverse) | int4_code(v[16 + i] * inverse) << 4,
                      second = int4_code(v[i + 1] * inverse) | int4_code(v[17 + i] * inverse) << 4;
            to[1 + i / 2] = (unsigned short)(first | second << 8);
        }
    }
}
