// 3x3 convolution, stride 1, padding 1, to at most 3 channels: the picture at the end of a decoder. NHWC bf16, float
// sums.
//
//   y[p, o] = bias[o] + sum over taps t, channels c of x[p + shift(t), c] * w[o][t][c]   (+ residual[p, o])
//   x [h][w][in], in a multiple of 32, at most 256; y, residual [h][w][out]; w [out][9][pitch]. Grid, block, shared memory: conv.h.
//
// Bound by reading x once. As a matrix product over output pixels every x would be read nine times and 125 of 128
// columns wasted; so the product is made over
// *input* pixels, for all taps and outputs at once (9 * 3 = 27 of 32 columns), and each output adds up nine of those
// products from shared memory:
//
//      products[q][t * out + o] = sum over c of x[q, c] * w[o][t][c]          y[p, o] = bias[o] + sum over t of products[p + shift(t)][t * out + o]
//
// A block walks down a strip of 62 columns; each warp multiplies 16 of its 64 input pixels of a row. Four rows of
// products are kept in turn: a row is written while the three above it are still being read, so one barrier a row is
// enough. The order of the channels in a product is free: a lane's 16 bytes of x and of w, eight channels, serve two
// mma, and x goes from memory straight into registers. The next row is fetched before this row's outputs are written.
#include "conv.h"
#include "portable_sm80.cuh"

// PITCH: floats of a pixel's products; AHEAD: runs of 32 channels in registers
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

    for (int i = threadIdx.x; i < SUMI_CONV_NARROW_COLUMNS * a.in_channels / 8; i += SUMI_CONV_NARROW_THREADS) {
        const int column = i / (a.in_channels / 8), c = i % (a.in_channels / 8) * 8, tap = column / out,
                  o = column % out;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (tap < 9) v = *(const uint4*)((const u16*)a.weight + ((long long)o * 9 + tap) * a.weight_pitch + c);
        *(uint4*)(weights + column * weight_row + c) = v;
    }
    __syncthreads();

    // this lane's two pixels of the strip's row: `quad` and `quad` + 8 of the warp's 16
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
    for (int y = y0 - 1; y <= y_end; y++) { // y: the row of x; the row of outputs above it is complete then
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
                if (a.residual) sum += lo2(((const u16*)a.residual)[at]);
                ((u16*)a.y)[at] = (u16)pack2(sum, 0.0f);
            }
        }
    }
}
