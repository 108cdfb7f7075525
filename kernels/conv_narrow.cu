// 3x3 convolution, stride 1, padding 1, to at most 3 or 4 channels: the image at the end of a VAE decoder. NHWC bf16,
// float sums.
//
//   y[p, o] = bias[o] + sum over taps t, channels c of x[p + shift(t), c] * w[o][t][c]   (+ residual[p, o])
//   x [h][w][in], in at most 256, a multiple of 32, or of 16 for 4 channels; y, residual [h][w][out]; w [out][9][pitch].
//   Grid, block, shared memory: conv.h.
//
// Bound by reading x once. As a matrix product over output pixels, every x would be read nine times, and 125 of 128
// columns would be wasted. So the product is computed over *input* pixels, for all taps and outputs at once (9 * 3 = 27
// of 32 columns, or 9 * 4 = 36 of 40). Each output then adds up nine of these products, which are in shared memory:
//
//      products[i][t * out + o] = sum over c of x[i, c] * w[o][t][c]
//      y[p, o] = bias[o] + sum over t of products[p + shift(t)][t * out + o]
//
// A block goes down a strip of 62 columns, row by row. Each of its warps multiplies 16 of the 64 input pixels of a row.
// The products of four rows are kept in a ring buffer: while one row is written, the three rows above it are still
// read, so one barrier per row is enough. The next row of x is loaded before the outputs of this row are written.
//
// Fragments (a0 .. b1 and d0 .. d3 are drawn in portable_sm80.cuh). r = lane >> 2 is lane_row in the code, and q =
// lane & 3 is lane_in_quad. The order of the channels in a sum does not matter, as long as it is the same in x and w.
// So a lane loads 16 bytes, that is eight consecutive channels 8 q .. 8 q + 7 of a run of 32, and uses them in two mma,
// straight from memory and without ldmatrix:
//
//      16-byte load        word x                word y                word z                word w
//      channels of a run   8 q, 8 q + 1          8 q + 2, 8 q + 3      8 q + 4, 8 q + 5      8 q + 6, 8 q + 7
//      x, pixels r, r + 8  first mma: a0, a1     first: a2, a3         second: a0, a1        second: a2, a3
//      w, column 8 j + r   first mma: b0         first: b1             second: b0            second: b1
//
//      acc[j]: pixel r in d0, d1; pixel r + 8 in d2, d3; columns 8 j + 2 q, 8 j + 2 q + 1 of t * out + o
//
// If the last run has 16 channels, the lanes of the other 16 have zeros.
#include "conv.h"
#include "portable_sm80.cuh"

enum {
    ROW_PIXELS = SUMI_CONV_NARROW_WIDTH + 2, // input pixels of a row of the strip: one more on each side
    SLOTS = 4,                               // rows of products in the ring buffer
    RUNS_AHEAD = 4                           // runs of 32 channels in registers
};

// MAX_OUT: 3 or 4. The last of the blocks of 8 columns is half empty.
template <int MAX_OUT> SUMI_DEVICE void conv_narrow(const sumi_conv_narrow_args& args)
{
    constexpr int COLUMNS = MAX_OUT == 3 ? SUMI_CONV_NARROW_COLUMNS : SUMI_CONV_NARROW_O4_COLUMNS, BLOCKS = COLUMNS / 8;
    constexpr int PRODUCTS_PITCH = COLUMNS - 4; // floats from pixel to pixel of the products
    constexpr int ROW_PRODUCTS = ROW_PIXELS * PRODUCTS_PITCH;
    static_assert(9 * MAX_OUT <= PRODUCTS_PITCH, "all products are kept");
    extern __shared__ __align__(128) u8 shared[];
    float* const products = (float*)shared;                       // [SLOTS][ROW_PIXELS][PRODUCTS_PITCH]
    u16* const weights = (u16*)(products + SLOTS * ROW_PRODUCTS); // [COLUMNS][weights_pitch]
    const int runs = (args.in_channels + 31) / 32, padded = runs * 32, out = args.out_channels,
              weights_pitch =
                  MAX_OUT == 3 ? args.in_channels + 32 : SUMI_CONV_NARROW_O4_WEIGHTS_PITCH(args.in_channels);
    const int strips = (args.width + SUMI_CONV_NARROW_WIDTH - 1) / SUMI_CONV_NARROW_WIDTH,
              unit = args.unit_begin + blockIdx.x;
    const int x0 = unit % strips * SUMI_CONV_NARROW_WIDTH, y0 = unit / strips * SUMI_CONV_NARROW_ROWS,
              y_end = min(y0 + SUMI_CONV_NARROW_ROWS, args.height);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, lane_row = lane >> 2, lane_in_quad = lane & 3;
    const int lane_channel = lane_in_quad * 8; // the first of the lane's 8 channels in a run

    // The weights to shared memory, one row for each column t * out + o; the columns past the last tap are zero.
    for (int i = threadIdx.x; i < COLUMNS * padded / 8; i += SUMI_CONV_NARROW_THREADS) {
        const int column = i / (padded / 8), c = i % (padded / 8) * 8, tap = column / out, o = column % out;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (tap < 9 && c < args.in_channels)
            v = *(const uint4*)((const u16*)args.weight + ((long long)o * 9 + tap) * args.weight_pitch + c);
        *(uint4*)(weights + column * weights_pitch + c) = v;
    }
    __syncthreads();

    // The image columns of this lane's two pixels: pixels lane_row and lane_row + 8 of the warp's 16.
    const int pixel_x[2] = {x0 - 1 + warp * 16 + lane_row, x0 - 1 + warp * 16 + lane_row + 8};
    uint4 x_chunk[2][RUNS_AHEAD];
    auto fetch = [&](int y, int run) {
#pragma unroll
        for (int half = 0; half < 2; half++) // of the 16 pixels
#pragma unroll
            for (int i = 0; i < RUNS_AHEAD; i++) {
                x_chunk[half][i] = make_uint4(0, 0, 0, 0);
                if (y >= 0 && y < args.height && pixel_x[half] >= 0 && pixel_x[half] < args.width && run + i < runs
                    && (MAX_OUT == 3 || (run + i) * 32 + lane_channel < args.in_channels))
                    x_chunk[half][i] =
                        *(const uint4*)((const u16*)args.x + ((long long)y * args.width + pixel_x[half]) * args.x_pitch
                                        + (run + i) * 32 + lane_channel);
            }
    };
    fetch(y0 - 1, 0);
    // y: the row of x. After its products, the outputs of row y - 1 can be computed.
    for (int y = y0 - 1; y <= y_end; y++) {
        float acc[BLOCKS][4] = {};
        for (int run = 0; run < runs; run += RUNS_AHEAD) {
#pragma unroll
            for (int i = 0; i < RUNS_AHEAD; i++) {
                if (run + i < runs) {
                    const u32 a_first[4] = {x_chunk[0][i].x, x_chunk[1][i].x, x_chunk[0][i].y, x_chunk[1][i].y},
                              a_second[4] = {x_chunk[0][i].z, x_chunk[1][i].z, x_chunk[0][i].w, x_chunk[1][i].w};
#pragma unroll
                    for (int j = 0; j < BLOCKS; j++) {
                        const uint4 w = *(const uint4*)(weights + (j * 8 + lane_row) * weights_pitch + (run + i) * 32
                                                        + lane_channel);
                        mma<SUMI_OPERANDS_BF16>(acc[j], a_first, w.x, w.y);
                        mma<SUMI_OPERANDS_BF16>(acc[j], a_second, w.z, w.w);
                    }
                }
            }
            if (run + RUNS_AHEAD < runs) fetch(y, run + RUNS_AHEAD);
            else if (y < y_end) fetch(y + 1, 0);
        }
        // The products of row y of x are in slot (y - y0 + 1) % SLOTS.
        float* products_of_lane =
            products + (y - y0 + 1) % SLOTS * ROW_PRODUCTS + (warp * 16 + lane_row) * PRODUCTS_PITCH + lane_in_quad * 2;
#pragma unroll
        for (int j = 0; j < BLOCKS; j++) {
            if (j == BLOCKS - 1 && (lane & 3) > 1) break; // the last four columns do not exist
            *(float2*)(products_of_lane + j * 8) = make_float2(acc[j][0], acc[j][1]);
            *(float2*)(products_of_lane + 8 * PRODUCTS_PITCH + j * 8) = make_float2(acc[j][2], acc[j][3]);
        }
        __syncthreads();
        if (y > y0) {
            for (int i = threadIdx.x; i < SUMI_CONV_NARROW_WIDTH * out; i += SUMI_CONV_NARROW_THREADS) {
                const int strip_x = i / out, o = i % out;
                if (x0 + strip_x >= args.width) break;
                float sum = args.bias ? ((const float*)args.bias)[o] : 0.0f;
                // The strip's input pixels begin one further left than its outputs.
#pragma unroll
                for (int t = 0; t < 9; t++)
                    sum += products[(y - y0 - 1 + t / 3) % SLOTS * ROW_PRODUCTS + (strip_x + t % 3) * PRODUCTS_PITCH
                                    + t * out + o];
                const long long index = ((long long)(y - 1) * args.width + x0 + strip_x) * out + o;
                if (args.residual) sum += bf16_low(((const u16*)args.residual)[index]);
                ((u16*)args.y)[index] = (u16)pack_bf16(sum, 0.0f);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(SUMI_CONV_NARROW_THREADS)
    sumi_conv_narrow(const __grid_constant__ sumi_conv_narrow_args args)
{
    conv_narrow<3>(args);
}
extern "C" __global__ void __launch_bounds__(SUMI_CONV_NARROW_THREADS)
    sumi_conv_narrow_o4(const __grid_constant__ sumi_conv_narrow_args args)
{
    conv_narrow<4>(args);
}
