// Convolution for compute capability 8.0 and newer: 3x3 or 1x1, stride 1 or 2, with nearest upsampling folded in, NHWC
// bf16, as an implicit GEMM on the main loop of portable_gemm.cuh.
//
//   y[p, o] = bias[o] + sum over taps t, channels c of x[pixel of (p, t), c] * w[o][t][c]   (+ residual[p, o])
//   x [h][w][in], y and residual [..][out], w [parity][out][taps][in], all bf16 and 16-byte aligned, in and out
//   multiples of 8; float sums. Arguments, grid and tiles: conv.h.
//
// A tile is 128 pixels, in the order of the image's rows, by 256, 128 or 64 output channels. For each row of its tile,
// a thread's loader keeps the address of the first tap and a mask of the taps that lie inside the image. k goes through
// the taps, and for each tap through the channels, 32 at a time. For taps outside the image cp.async writes zeros. Row
// and column numbers past the end read the last row or column, and their results are dropped, so the loop has no
// conditions. Upsampling is four 2x2 convolutions of the small image, see conv_sm90.cu.
//
// Bound by mma.sync (64x64 per warp; 400-440 TFLOP/s of 632 on an H200 for 128 to 512 channels). 256 columns need 96
// KiB of shared memory; 64 columns fit in a context limited to 47 KiB.
#include "conv.h"
#include "portable_gemm.cuh"

// BM, BN: rows (pixels) and columns (output channels) of a block's tile. RB: bytes of k per stage. ST: stages. WM, WN:
// rows and columns of a warp's tile. MINB: blocks per multiprocessor.
template <int BM_, int BN_, int RB_, int ST_, int WM_, int WN_, int MINB_>
struct conv_tile : sumi_ptile<BM_, BN_, RB_, ST_, WM_, WN_, 0, 0, 0, MINB_> {
};

// A block's tile: its first pixel and output channel, and its parity.
struct conv_place {
    int m0, n0, parity;
};

// The main loop's loader for convolutions. A k-block is 32 channels of one tap.
template <int BM_, int BN_, int RB_, int ST_, int WM_, int WN_, int MINB_>
struct sumi_loader<conv_tile<BM_, BN_, RB_, ST_, WM_, WN_, MINB_>> {
    typedef conv_tile<BM_, BN_, RB_, ST_, WM_, WN_, MINB_> T;
    const u8 *x, *w;
    int x_at[T::XC], w_at[T::WC]; // offsets in 16-byte chunks, so an int reaches 32 GiB
    u32 inside[T::XC];            // bit t: tap t of this row lies in the image
    u32 dst;
    // In 16-byte chunks: this thread's chunk in a k-block; a pixel's channels; from pixel to pixel of x; from row to
    // row of x.
    int chunk, chunks, pixel, row;
    // The next k-block: tap, its column in the kernel, the block of channels; tap_at: the offset of the tap from input
    // pixel p * stride (p when upsampling), in chunks.
    int kernel, tap, tap_x, block, tap_at;

    SUMI_DEVICE sumi_loader(const sumi_conv_args& a, const conv_place& place, u32 smem)
    {
        const int r = threadIdx.x / T::CH;
        chunk = threadIdx.x % T::CH;
        dst = smem + at<T::RB>(r, chunk);
        chunks = a.in_channels / 8;
        pixel = a.x_pitch / 8;
        row = a.width * pixel;
        kernel = a.kernel;
        tap = tap_x = block = 0;
        const int taps = kernel * kernel;
        x = (const u8*)a.x;
        w = (const u8*)a.weight + (u64)place.parity * a.out_channels * taps * chunks * 16;
        const int first_y = (a.parities == 4 ? (place.parity >> 1) - 1 : -a.pad) + a.above,
                  first_x = a.parities == 4 ? (place.parity & 1) - 1 : -a.pad;
        tap_at = first_y * row + first_x * pixel;
        const int pixels = a.tile_width * a.tile_height;
#pragma unroll
        for (int i = 0; i < T::XC; i++) {
            const int p = min(place.m0 + r + i * T::ROWS, pixels - 1), py = p / a.tile_width * a.stride,
                      px = p % a.tile_width * a.stride;
            u32 in = 0;
            for (int ty = 0, t = 0; ty < kernel; ty++)
                for (int tx = 0; tx < kernel; tx++, t++)
                    in |= (u32)((u32)(py + first_y + ty) < (u32)a.height && (u32)(px + first_x + tx) < (u32)a.width)
                       << t;
            inside[i] = in;
            x_at[i] = py * row + px * pixel + chunk;
        }
#pragma unroll
        for (int i = 0; i < T::WC; i++)
            w_at[i] = min(place.n0 + r + i * T::ROWS, a.out_channels - 1) * chunks * taps + chunk;
    }
    SUMI_DEVICE void fetch(int stage) // each call copies the next k-block
    {
        const u32 d = dst + stage * T::STAGE;
        const int c = block * T::CH;
        const bool in = c + chunk < chunks;
        const int dx = tap_at + c, dw = tap * chunks + c;
#pragma unroll
        for (int i = 0; i < T::XC; i++) {
            const bool ok = in && (inside[i] >> tap & 1);
            copy_async_16(d + i * T::ROWS * T::RB, x + ((long long)(ok ? x_at[i] + dx : 0) << 4), ok ? 16 : 0);
        }
#pragma unroll
        for (int i = 0; i < T::WC; i++)
            copy_async_16(d + (T::BM + i * T::ROWS) * T::RB, w + ((u64)(in ? w_at[i] + dw : 0) << 4), in ? 16 : 0);
        if (c + T::CH < chunks) {
            block++;
            return;
        }
        block = 0;
        tap++;
        tap_at += pixel;
        if (++tap_x == kernel) {
            tap_x = 0;
            tap_at += row - kernel * pixel;
        }
    }
};

// Writes the warp's tile. In acc[i][j] the lane 4 r + q has rows r and r + 8 of m16 block i and columns 2 q, 2 q + 1 of
// 8-column group j (drawn in portable_sm80.cuh). Four groups at a time are transposed within quads (quads.cuh), so each
// lane stores 16 bytes: the 8 columns of group g + q. out_channels is a multiple of 8, so a lane stores all of them or
// none.
template <class T>
SUMI_DEVICE void conv_store(const sumi_conv_args& a, float (&acc)[T::MT][T::NT][4], int m0, int n0, int parity)
{
    const int lane = threadIdx.x & 31, q = lane & 3, pixels = a.tile_width * a.tile_height;
    const float* bias = (const float*)a.bias;
    const u16* residual = (const u16*)a.residual;
    u16* y = (u16*)a.y;
    int rows[T::MT][2]; // output pixel of a row; -1: the row is past the last pixel
#pragma unroll
    for (int i = 0; i < T::MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int m = m0 + i * 16 + h * 8 + (lane >> 2);
            int p = m;
            if (a.parities == 4) {
                const int py = m / a.tile_width, px = m - py * a.tile_width;
                p = (2 * py + (parity >> 1)) * (2 * a.tile_width) + 2 * px + (parity & 1);
            }
            rows[i][h] = m < pixels ? p : -1;
        }
#pragma unroll
    for (int g = 0; g < T::NT; g += 4) {
        float b[4][2];
        u32 r[T::MT][2][4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int c = n0 + (g + j) * 8 + q * 2;
            const bool ok = c < a.out_channels;
            b[j][0] = ok && bias ? bias[c] : 0.f;
            b[j][1] = ok && bias ? bias[c + 1] : 0.f;
            // the residual is read before the stores: between them, each read would wait for a round trip to memory
#pragma unroll
            for (int i = 0; i < T::MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const bool reads = residual && ok && rows[i][h] >= 0;
                    r[i][h][j] = reads ? *(const u32*)(residual + (long long)rows[i][h] * a.y_pitch + c) : 0u;
                }
        }
#pragma unroll
        for (int i = 0; i < T::MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 o[4];
#pragma unroll
                for (int j = 0; j < 4; j++)
                    o[j] = pack_bf16(acc[i][g + j][h * 2] + b[j][0] + bf16_low(r[i][h][j]),
                                     acc[i][g + j][h * 2 + 1] + b[j][1] + bf16_high(r[i][h][j]));
                quad_transpose(o[0], o[1], o[2], o[3], lane);
                const int c = n0 + g * 8 + q * 8;
                if (rows[i][h] >= 0 && c < a.out_channels)
                    *(uint4*)(y + (long long)rows[i][h] * a.y_pitch + c) = make_uint4(o[0], o[1], o[2], o[3]);
            }
    }
}

template <class T> SUMI_DEVICE void conv(const sumi_conv_args& a)
{
    extern __shared__ __align__(128) u8 shared[];
    const u32 smem = (u32)__cvta_generic_to_shared(shared);
    // Column tiles have neighbouring unit numbers, so the blocks that read the same pixels run at the same time.
    const int tn = (a.out_channels + T::BN - 1) / T::BN, unit = a.unit_begin + blockIdx.x;
    const conv_place place = {unit / tn / a.parities * T::BM, unit % tn * T::BN, unit / tn % a.parities};
    const int warp = threadIdx.x >> 5, wm = warp % (T::BM / T::WM) * T::WM, wn = warp / (T::BM / T::WM) * T::WN;
    float acc[T::MT][T::NT][4];
    {
        sumi_loader<T> load(a, place, smem);
        sumi_mainloop<T>(load, acc, smem, a.kernel * a.kernel * ((a.in_channels * 2 + T::RB - 1) / T::RB), wm, wn);
    }
    conv_store<T>(a, acc, place.m0 + wm, place.n0 + wn, place.parity);
}

#define SUMI_CONV_KERNEL(name, NAME, ...)                                                                              \
    static_assert(conv_tile<__VA_ARGS__>::SMEM == NAME##_SHARED && conv_tile<__VA_ARGS__>::THREADS == NAME##_THREADS   \
                      && conv_tile<__VA_ARGS__>::BM == SUMI_CONV_TILE_PIXELS,                                          \
                  "conv.h");                                                                                           \
    extern "C" __global__ void __launch_bounds__(NAME##_THREADS, conv_tile<__VA_ARGS__>::MINB)                         \
        name(const __grid_constant__ sumi_conv_args a)                                                                 \
    {                                                                                                                  \
        conv<conv_tile<__VA_ARGS__>>(a);                                                                               \
    }
SUMI_CONV_KERNEL(sumi_conv_n256, SUMI_CONV_N256, 128, 256, 64, 4, 64, 64, 1)
SUMI_CONV_KERNEL(sumi_conv_n128, SUMI_CONV_N128, 128, 128, 64, 3, 64, 64, 2)
SUMI_CONV_KERNEL(sumi_conv_n64, SUMI_CONV_N64, 128, 64, 64, 3, 64, 32, 2)
