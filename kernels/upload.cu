// Converts a piece of a weight from its file's type to what the other kernels read: bf16 matrices with padded and
// interleaved rows, float vectors, permuted and folded convolutions.
//   from   [row_count][cols] in the type args.type, dense      to  see each kernel; pitches in elements
//   grid   one block per row of the piece (vectors: any number of blocks)      block SUMI_UPLOAD_THREADS
//   shared none
// Bound by the bus that brings the piece to the device, so one plain pass, element by element, is enough. Floats are
// rounded to bf16 once, to nearest even.
#include "upload.cuh"

// A matrix: to [stack_rows][pitch] bf16, columns from `cols` on zero.
extern "C" __global__ void __launch_bounds__(SUMI_UPLOAD_THREADS) sumi_upload_rows(const sumi_upload_args args)
{
    bf16* to = (bf16*)args.to + upload_row(args, args.row_begin + (int)blockIdx.x) * args.pitch;
    const int64_t from = (int64_t)blockIdx.x * args.cols;
    for (int c = (int)threadIdx.x; c < args.pitch; c += SUMI_UPLOAD_THREADS)
        to[c] = __float2bfloat16_rn(c < args.cols ? upload_element(args, from + c) : 0.0f);
}

// A vector: to [pitch] float, multiplied by balance if there is one. The piece with the last row also writes zeros into
// the padding.
extern "C" __global__ void __launch_bounds__(SUMI_UPLOAD_THREADS) sumi_upload_vector(const sumi_upload_args args)
{
    const int64_t first_element = (int64_t)args.row_begin * args.cols, count = (int64_t)args.row_count * args.cols;
    const int64_t end = args.row_begin + args.row_count == args.stack_rows ? args.pitch - first_element : count;
    float* to = (float*)args.to + first_element;
    for (int64_t i = (int64_t)blockIdx.x * SUMI_UPLOAD_THREADS + threadIdx.x; i < end;
         i += (int64_t)gridDim.x * SUMI_UPLOAD_THREADS)
        to[i] = i < count ? upload_element(args, i)
                                * (args.balance != 0 ? ((const float*)args.balance)[first_element + i] : 1.0f)
                          : 0.0f;
}

// A 3x3 convolution: from [co][ci][3][3], to [co][tap][pitch] bf16, channels from ci on zero. co, ci: output and input
// channels.
extern "C" __global__ void __launch_bounds__(SUMI_UPLOAD_THREADS) sumi_upload_conv(const sumi_upload_args args)
{
    const int channels = args.cols / SUMI_UPLOAD_TAPS, row_elements = SUMI_UPLOAD_TAPS * args.pitch;
    bf16* to = (bf16*)args.to + (int64_t)(args.row_begin + (int)blockIdx.x) * row_elements;
    const int64_t from = (int64_t)blockIdx.x * args.cols;
    for (int i = (int)threadIdx.x; i < row_elements; i += SUMI_UPLOAD_THREADS) {
        const int tap = i / args.pitch, c = i % args.pitch;
        to[i] = __float2bfloat16_rn(c < channels ? upload_element(args, from + c * SUMI_UPLOAD_TAPS + tap) : 0.0f);
    }
}

// A 3x3 convolution folded with the nearest upsampling in front of it. A 3x3 convolution of an image that was upsampled
// to twice its size is four 2x2 convolutions of the small image, one for each parity (a, b) of the output's row and
// column. Taps that fall on the same pixel of the small image are added. For the rows of taps (the columns likewise,
// with b):
//     a = 0: tap 0 <- w0, tap 1 <- w1 + w2        a = 1: tap 0 <- w0 + w1, tap 1 <- w2
// from [co][ci][3][3], to [2 a + b][co][2 * 2][pitch] bf16, channels from ci on zero. The sums are taken in float, in
// the order of the taps, and rounded once.
extern "C" __global__ void __launch_bounds__(SUMI_UPLOAD_THREADS) sumi_upload_conv_up(const sumi_upload_args args)
{
    const int channels = args.cols / SUMI_UPLOAD_TAPS, row_elements = 4 * args.pitch; // of one parity
    const int64_t from = (int64_t)blockIdx.x * args.cols;
    for (int i = (int)threadIdx.x; i < 4 * row_elements; i += SUMI_UPLOAD_THREADS) {
        const int parity = i / row_elements, tap = i % row_elements / args.pitch, c = i % args.pitch;
        // taps of the 3x3 kernel below split_y and split_x fall on the first pixel of the small image
        const int split_y = (parity >> 1) ? 2 : 1, split_x = (parity & 1) ? 2 : 1;
        const int y_begin = (tap >> 1) ? split_y : 0, y_end = (tap >> 1) ? 3 : split_y,
                  x_begin = (tap & 1) ? split_x : 0, x_end = (tap & 1) ? 3 : split_x;
        float sum = 0.0f;
        for (int y = y_begin; y < y_end && c < channels; y++) {
            for (int x = x_begin; x < x_end; x++) sum += upload_element(args, from + c * SUMI_UPLOAD_TAPS + y * 3 + x);
        }
        ((bf16*)args.to)[((int64_t)parity * args.stack_rows + args.row_begin + (int)blockIdx.x) * row_elements
                         + i % row_elements] = __float2bfloat16_rn(sum);
    }
}
