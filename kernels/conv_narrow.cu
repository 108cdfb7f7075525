// 3x3 convolution, stride 1, padding 1, to at most 3 channels: the image at the end of a VAE decoder. NHWC bf16, float
// sums.
//
//   y[p, o] = bias[o] + sum over taps t, channels c of x[p + shift(t), c] * w[o][t][c]   (+ residual[p, o])
//   x [h][w][in], in a multiple of 32, at most 256; y, residual [h][w][out]; w [out][9][pitch].
//   Grid, block, shared memory: conv.h.
//
// Bound by reading x once. As a matrix product over output pixels, every x would be read nine times, and 125 of 128
// columns would be wasted. So the product is computed over *input* pixels, for all taps and outputs at once (9 * 3 = 27
// of 32 columns). Each output then adds up nine of these products, which are in shared memory:
//
//      products[q][t * out + o] = sum over c of x[q, c] * w[o][t][c]
//      y[p, o] = bias[o] + sum over t of products[p + shift(t)][t * out + o]
//
// A block goes down a strip of 62 columns, row by row. Each of its warps multiplies 16 of the 64 input pixels of a row.
// The products of four rows are kept in a ring buffer: while one row is written, the three rows above it are still
// read, so one barrier per row is enough. The next row of x is loaded before the outputs of this row are written.
//
// Fragments (r = lane >> 2, u = lane & 3; a0 .. b1 and d0 .. d3 are drawn in portable_sm80.cuh, where u is q). The
// order of the channels in a sum does not matter, as long as it is the same in x and w. So a lane loads 16 bytes, that
// is eight consecutive channels 8 u .. 8 u + 7 of a run of 32, and uses them in two mma, straight from memory and
// without ldmatrix:
//
//      16-byte load        word x                word y                word z                word w
//      channels of a run   8 u, 8 u + 1          8 u + 2, 8 u + 3      8 u + 4, 8 u + 5      8 u + 6, 8 u + 7
//      x, pixels r, r + 8  first mma: a0, a1     first: a2, a3         second: a0, a1        second: a2, a3
//      w, column 8 n + r   first mma: b0         first: b1             second: b0            second: b1
//
//      acc[n]: pixel r in d0, d1; pixel r + 8 in d2, d3; columns 8 n + 2 u, 8 n + 2 u + 1 of t * out + o
#include "conv.h"
#include "portable_sm80.cuh"

// PIXELS: input pixels of a row of the strip, with one more on each side. PITCH: floats of a pixel's products. SLOTS:
// rows of products in the ring buffer. AHEAD: runs of 32 channels in registers.
enum { PIXELS = SUMI_CONV_NARROW_WIDTH + 2, PITCH = 28, SLOTS = 4, AHEAD = 4 };

extern "C" __global__ void __launch_bounds__(SUMI_CONV_NARROW_THREADS)
    sumi_conv_narrow(const __grid_constant__ sumi_conv_narrow_args a)
{
    extern __shared__ __align__(128) u8 shared[];
    float* const products = (float*)shared;                         // [SLOTS][PIXELS][PITCH]
    u16* const weights = (u16*)(products + SLOTS * PIXELS * PITCH); // [32][in + 32]
    const int weight_row = a.in_channels + 32, runs = a.in_channels / 32, out = a.out_channels;
    const int strips = (a.width + SUMI_CONV_NARROW_WIDTH - 1) / SUMI_CONV_NARROW_WIDTH,
              unit = a.unit_begin + blockIdx.x;
    const int x0 = unit % strips * SUMI_CONV_NARROW_WIDTH, y0 = unit / strips * SUMI_CONV_NARROW_ROWS,
              y_end = min(y0 + SUMI_CONV_NARROW_ROWS, a.height);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, quad = lane >> 2, part = (lane & 3) * 8;

    // The weights to shared memory, one row for each column t * out + o; the columns past the last tap are zero.
    for (int i = threadIdx.x; i < SUMI_CONV_NARROW_COLUMNS * a.in_channels / 8; i += SUMI_CONV_NARROW_THREADS) {
        const int column = i / (a.in_channels / 8), c = i % (a.in_channels / 8) * 8, tap = column / out,
                  o = column % out;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (tap < 9) v = *(const uint4*)((const u16*)a.weight + ((long long)o * 9 + tap) * a.weight_pitch + c);
        *(uint4*)(weights + column * weight_row + c) = v;
    }
    __syncthreads();

    // The image columns of this lane's two pixels: pixels `quad` and `quad` + 8 of the warp's 16.
    const int px[2] = {x0 - 1 + warp * 16 + quad, x0 - 1 + warp * 16 + quad + 8};
    uint4 v[2][AHEAD];
    auto fetch = [&](int y, int run) {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                v[h][k] = make_uint4(0, 0, 0, 0);
                if (y >= 0 && y < a.height && px[h] >= 0 && px[h] < a.width && run + k < runs)
                    v[h][k] = *(const uint4*)((const u16*)a.x + ((long long)y * a.width + px[h]) * a.x_pitch
                                              + (run + k) * 32 + part);
            }
    };
    fetch(y0 - 1, 0);
    // y: the row of x. After its products, the outputs of row y - 1 can be computed.
    for (int y = y0 - 1; y <= y_end; y++) {
        float acc[4][4] = {};
        for (int run = 0; run < runs; run += AHEAD) {
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                if (run + k < runs) {
                    const u32 first[4] = {v[0][k].x, v[1][k].x, v[0][k].y, v[1][k].y},
                              second[4] = {v[0][k].z, v[1][k].z, v[0][k].w, v[1][k].w};
#pragma unroll
                    for (int n = 0; n < 4; n++) {
                        const uint4 w = *(const uint4*)(weights + (n * 8 + quad) * weight_row + (run + k) * 32 + part);
                        mma<SUMI_OPERANDS_BF16>(acc[n], first, w.x, w.y);
                        mma<SUMI_OPERANDS_BF16>(acc[n], second, w.z, w.w);
                    }
                }
            }
            if (run + AHEAD < runs) fetch(y, run + AHEAD);
            else if (y < y_end) fetch(y + 1, 0);
        }
        float* row = products + (y - y0 + 1) % SLOTS * (PIXELS * PITCH) + (warp * 16 + quad) * PITCH + (lane & 3) * 2;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            if (n == 3 && (lane & 3) > 1) break; // columns 28 .. 31 do not exist
            *(float2*)(row + n * 8) = make_float2(acc[n][0], acc[n][1]);
            *(float2*)(row + 8 * PITCH + n * 8) = make_float2(acc[n][2], acc[n][3]);
        }
        __syncthreads();
        if (y > y0) {
            for (int i = threadIdx.x; i < SUMI_CONV_NARROW_WIDTH * out; i += SUMI_CONV_NARROW_THREADS) {
                const int p = i / out, o = i % out;
                if (x0 + p >= a.width) break;
                float sum = a.bias ? ((const float*)a.bias)[o] : 0.0f;
#pragma unroll
                for (int t = 0; t < 9; t++)
                    sum +=
                        products[(y - y0 - 1 + t / 3) % SLOTS * (PIXELS * PITCH) + (p + t % 3) * PITCH + t * out + o];
                const long long at = ((long long)(y - 1) * a.width + x0 + p) * out + o;
                if (a.residual) sum += bf16_low(((const u16*)a.residual)[at]);
                ((u16*)a.y)[at] = (u16)pack_bf16(sum, 0.0f);
            }
        }
    }
}
