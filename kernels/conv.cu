// Convolution for compute capability 8.0 and newer: 3x3 or 1x1, stride 1 or 2, with nearest upsampling folded in, NHWC
// bf16, as an implicit GEMM on the main loop of portable_gemm.cuh.
//
//   y[p, o] = bias[o] + sum over taps t, channels c of x[pixel of (p, t), c] * w[o][t][c]   (+ residual[p, o])
//   x [h][w][in], y and residual [..][out], w [parity][out][taps][in], all bf16 and 16-byte aligned, in and out
//   multiples of 8; float sums. Arguments, grid and tiles: conv.h.
//
// A tile is 128 pixels, in the order of the image's rows, by 256, 128, 96 or 64 output channels. For each row of its
// tile, a thread's loader keeps the address of the first tap and a mask of the taps that lie inside the image. k goes
// through the taps, and for each tap through the channels, 32 or, in the kernels with w in their names, 64 at a time.
// For taps outside the image cp.async writes zeros. Row and column numbers past the end read the last row or column,
// and their results are dropped, so the loop has no conditions. Upsampling is four 2x2 convolutions of the small image,
// see conv_sm90.cu.
//
// Bound by mma.sync (64x64 per warp; 380-467 TFLOP/s of 650 on an H100 for 128 to 512 channels). 256 columns need 96
// KiB of shared memory; 96 and 64 columns fit in a context limited to 47 KiB.
#include "conv.h"
#include "portable_gemm.cuh"

// The constants of a kernel. NUMBERS: as in SUMI_GEMM_PORTABLE_TILES (gemm.h). The rows of a tile are pixels, its
// columns output channels.
template <int... NUMBERS> struct conv_tile : sumi_portable_tile<NUMBERS..., 0, SUMI_OPERANDS_BF16, false> {
};

// What a block computes: the first pixel and output channel of its tile, and the output parity.
struct conv_work {
    int m0, n0, output_parity;
};

// The main loop's loader for convolutions. A k-block is 32 or 64 channels of one tap. A thread copies the same chunk of every
// COPY_ROWS-th row. All offsets and pitches are in 16-byte chunks, so an int reaches 32 GiB.
template <int... NUMBERS> struct sumi_loader<conv_tile<NUMBERS...>> {
    typedef conv_tile<NUMBERS...> T;
    const u8 *x, *w;
    int x_offset[T::X_COPIES], w_offset[T::W_COPIES]; // of the thread's rows: input pixel, output channel
    u32 taps_inside[T::X_COPIES];                     // bit t: tap t of this row lies in the image
    u32 dst;                                          // the thread's first chunk in stage 0
    int chunk, chunks;                                // the thread's chunk in a k-block; chunks of all channels
    int pixel_pitch, row_pitch;                       // from pixel to pixel and from row to row of x
    int kernel;                                       // taps per row and per column
    // The next k-block: tap, its column in the kernel, the block of channels; tap_offset: of the tap from input pixel
    // p * stride (p when upsampling).
    int tap, tap_column, channel_block, tap_offset;

    SUMI_DEVICE sumi_loader(const sumi_conv_args& args, const conv_work& work, u32 smem)
    {
        const int row = threadIdx.x / T::ROW_CHUNKS;
        chunk = threadIdx.x % T::ROW_CHUNKS;
        dst = smem + swizzled_offset<T::K_BLOCK_BYTES>(row, chunk);
        chunks = args.in_channels / 8;
        pixel_pitch = args.x_pitch / 8;
        row_pitch = args.width * pixel_pitch;
        kernel = args.kernel;
        tap = tap_column = channel_block = 0;
        const int taps = kernel * kernel;
        x = (const u8*)args.x;
        w = (const u8*)args.weight + (u64)work.output_parity * args.out_channels * taps * chunks * 16;
        // The first tap, relative to the input pixel of tap_offset.
        const int first_y = (args.parities == 4 ? (work.output_parity >> 1) - 1 : -args.pad) + args.above,
                  first_x = args.parities == 4 ? (work.output_parity & 1) - 1 : -args.pad;
        tap_offset = first_y * row_pitch + first_x * pixel_pitch;
        const int pixels = args.tile_width * args.tile_height;
#pragma unroll
        for (int i = 0; i < T::X_COPIES; i++) {
            const int p = min(work.m0 + row + i * T::COPY_ROWS, pixels - 1),
                      pixel_y = p / args.tile_width * args.stride, pixel_x = p % args.tile_width * args.stride;
            u32 inside = 0;
            for (int dy = 0, t = 0; dy < kernel; dy++)
                for (int dx = 0; dx < kernel; dx++, t++)
                    inside |= (u32)((u32)(pixel_y + first_y + dy) < (u32)args.height
                                    && (u32)(pixel_x + first_x + dx) < (u32)args.width)
                           << t;
            taps_inside[i] = inside;
            x_offset[i] = pixel_y * row_pitch + pixel_x * pixel_pitch + chunk;
        }
#pragma unroll
        for (int i = 0; i < T::W_COPIES; i++)
            w_offset[i] = min(work.n0 + row + i * T::COPY_ROWS, args.out_channels - 1) * chunks * taps + chunk;
    }
    SUMI_DEVICE void fetch(int stage) // each call copies the next k-block
    {
        const u32 x_dst = dst + stage * T::STAGE_BYTES;
        const int first_chunk = channel_block * T::ROW_CHUNKS; // of the k-block, in the tap's channels
        const bool exists = first_chunk + chunk < chunks;
        const int x_advance = tap_offset + first_chunk, w_advance = tap * chunks + first_chunk;
#pragma unroll
        for (int i = 0; i < T::X_COPIES; i++) {
            const bool is_inside = exists && (taps_inside[i] >> tap & 1);
            copy_async_16(x_dst + i * T::COPY_ROWS * T::K_BLOCK_BYTES,
                          x + ((long long)(is_inside ? x_offset[i] + x_advance : 0) << 4), is_inside ? 16 : 0);
        }
#pragma unroll
        for (int i = 0; i < T::W_COPIES; i++)
            copy_async_16(x_dst + (T::TILE_ROWS + i * T::COPY_ROWS) * T::K_BLOCK_BYTES,
                          w + ((u64)(exists ? w_offset[i] + w_advance : 0) << 4), exists ? 16 : 0);
        if (first_chunk + T::ROW_CHUNKS < chunks) {
            channel_block++;
            return;
        }
        channel_block = 0;
        tap++;
        tap_offset += pixel_pitch;
        if (++tap_column == kernel) {
            tap_column = 0;
            tap_offset += row_pitch - kernel * pixel_pitch;
        }
    }
};

// Writes the warp's tile. In acc[i][j] the lane 4 r + q has rows r and r + 8 of m16 tile i and columns 2 q, 2 q + 1 of
// 8-column group j (drawn in portable_sm80.cuh). Four groups at a time are transposed within quads (quads.cuh), so each
// lane stores 16 bytes: the 8 columns of group `group` + q. out_channels is a multiple of 8, so a lane stores all of
// them or none.
template <class T>
SUMI_DEVICE void conv_store(const sumi_conv_args& args, float (&acc)[T::M16_TILES][T::N8_GROUPS][4], int m0, int n0,
                            int output_parity)
{
    const int lane = threadIdx.x & 31, lane_in_quad = lane & 3, pixels = args.tile_width * args.tile_height;
    const float* bias = (const float*)args.bias;
    const u16* residual = (const u16*)args.residual;
    u16* y = (u16*)args.y;
    int rows[T::M16_TILES][2]; // output pixel of a row; -1: the row is past the last pixel
#pragma unroll
    for (int i = 0; i < T::M16_TILES; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) { // of the 16 rows
            const int m = m0 + i * 16 + half * 8 + (lane >> 2);
            int p = m;
            if (args.parities == 4) {
                const int small_y = m / args.tile_width, small_x = m - small_y * args.tile_width;
                p = (2 * small_y + (output_parity >> 1)) * (2 * args.tile_width) + 2 * small_x + (output_parity & 1);
            }
            rows[i][half] = m < pixels ? p : -1;
        }
#pragma unroll
    for (int group = 0; group < T::N8_GROUPS; group += 4) {
        float group_bias[4][2];
        u32 base[T::M16_TILES][2][4]; // two bf16 of the residual, or 0
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int column = n0 + (group + j) * 8 + lane_in_quad * 2;
            const bool exists = group + j < T::N8_GROUPS && column < args.out_channels;
            group_bias[j][0] = exists && bias ? bias[column] : 0.f;
            group_bias[j][1] = exists && bias ? bias[column + 1] : 0.f;
            // the residual is read before the stores: between them, each read would wait for a round trip to memory
#pragma unroll
            for (int i = 0; i < T::M16_TILES; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const bool reads = residual && exists && rows[i][half] >= 0;
                    base[i][half][j] =
                        reads ? *(const u32*)(residual + (long long)rows[i][half] * args.y_pitch + column) : 0u;
                }
        }
#pragma unroll
        for (int i = 0; i < T::M16_TILES; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 out[4] = {};
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    if (group + j >= T::N8_GROUPS) continue; // a warp tile of 48 columns has six groups
                    out[j] =
                        pack_bf16(acc[i][group + j][half * 2] + group_bias[j][0] + bf16_low(base[i][half][j]),
                                  acc[i][group + j][half * 2 + 1] + group_bias[j][1] + bf16_high(base[i][half][j]));
                }
                quad_transpose(out[0], out[1], out[2], out[3], lane);
                const int column = n0 + group * 8 + lane_in_quad * 8;
                if (rows[i][half] >= 0 && group + lane_in_quad < T::N8_GROUPS && column < args.out_channels)
                    *(uint4*)(y + (long long)rows[i][half] * args.y_pitch + column) =
                        make_uint4(out[0], out[1], out[2], out[3]);
            }
    }
}

template <class T> SUMI_DEVICE void conv(const sumi_conv_args& args)
{
    extern __shared__ __align__(128) u8 shared[];
    const u32 smem = (u32)__cvta_generic_to_shared(shared);
    // unit = (pixel tile * parities + output parity) * tiles_n + column tile. Column tiles have neighbouring unit
    // numbers, so the blocks that read the same pixels run at the same time.
    const int tiles_n = (args.out_channels + T::TILE_COLUMNS - 1) / T::TILE_COLUMNS,
              unit = args.unit_begin + blockIdx.x;
    const conv_work work = {unit / tiles_n / args.parities * T::TILE_ROWS, unit % tiles_n * T::TILE_COLUMNS,
                            unit / tiles_n % args.parities};
    const int warp = threadIdx.x >> 5, warp_m = warp % T::WARPS_M * T::WARP_ROWS,
              warp_n = warp / T::WARPS_M * T::WARP_COLUMNS;
    float acc[T::M16_TILES][T::N8_GROUPS][4];
    {
        sumi_loader<T> load(args, work, smem);
        const int taps = args.kernel * args.kernel,
                  k_blocks_per_tap = (args.in_channels * 2 + T::K_BLOCK_BYTES - 1) / T::K_BLOCK_BYTES;
        sumi_mainloop<T>(load, acc, smem, taps * k_blocks_per_tap, warp_m, warp_n);
    }
    conv_store<T>(args, acc, work.m0 + warp_m, work.n0 + warp_n, work.output_parity);
}

// name: of the kernel. NAME: the beginning of its constants in conv.h. `...` are the numbers of its conv_tile.
#define SUMI_CONV_KERNEL(name, NAME, ...)                                                                              \
    static_assert(conv_tile<__VA_ARGS__>::SHARED_BYTES == NAME##_SHARED                                                \
                      && conv_tile<__VA_ARGS__>::THREADS == NAME##_THREADS                                             \
                      && conv_tile<__VA_ARGS__>::TILE_ROWS == SUMI_CONV_TILE_PIXELS,                                   \
                  "conv.h");                                                                                           \
    extern "C" __global__ void __launch_bounds__(NAME##_THREADS, conv_tile<__VA_ARGS__>::MIN_BLOCKS)                   \
        name(const __grid_constant__ sumi_conv_args args)                                                              \
    {                                                                                                                  \
        conv<conv_tile<__VA_ARGS__>>(args);                                                                            \
    }
SUMI_CONV_KERNEL(sumi_conv_n256, SUMI_CONV_N256, 128, 256, 64, 4, 64, 64, 1)
SUMI_CONV_KERNEL(sumi_conv_n128w, SUMI_CONV_N128W, 128, 128, 128, 3, 64, 64, 2)
SUMI_CONV_KERNEL(sumi_conv_n128, SUMI_CONV_N128, 128, 128, 64, 3, 64, 64, 2)
SUMI_CONV_KERNEL(sumi_conv_n96w, SUMI_CONV_N96W, 128, 96, 128, 3, 64, 48, 2)
SUMI_CONV_KERNEL(sumi_conv_n96, SUMI_CONV_N96, 128, 96, 64, 3, 64, 48, 2)
SUMI_CONV_KERNEL(sumi_conv_n64, SUMI_CONV_N64, 128, 64, 64, 3, 64, 32, 2)
