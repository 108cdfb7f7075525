// Convolution of 3x3 (stride 1 or 2) or 1x1 on Hopper, NHWC bf16, as an implicit GEMM on the pipeline of gemm_sm90.cuh.
// conv_halo_sm90.cu is faster where stride and channels allow it.
//
//   y[p, o] = bias[o] + sum over taps (r, s), channels c of x[p * stride + (r, s) - pad, c] * w[o][r][s][c]
//             (+ residual[p, o])
//   x [h][w][in], y and residual [h][w][out], w [out][3][3][in], all bf16; in and out multiples of 8; float sums.
//   Maps, grid and arguments: conv.h. y may be the residual.
//
// pad is 1. With stride 2 it is 0: then zeros are needed at the right and lower edge only. A strip of an image has real
// rows of x above and below it instead of zeros.
//
// A tile is a patch of 16 x 8 pixels. Its A operand for one tap and 64 channels is one 4-D TMA box {64 c, 16 x, 8 y, 1}
// of x: the patch, shifted by the tap. Outside the image TMA writes zeros, which is the padding. k goes through the
// taps, and for each tap through the channels. The two blocks of a cluster compute neighbouring patches and share the
// weights: each block loads half of them and multicasts this half to both. With stride 2 the map splits rows and
// columns into pairs, so every second pixel is a plain box again. Tap 2 is the first pixel of the next pair.
//
// Nearest upsampling by 2 followed by a 3x3 convolution equals four 2x2 convolutions of the small image, one per output
// parity (a, b). Taps that fall on the same small pixel are added into one weight beforehand. Output pixel (2y+a, 2x+b)
// reads small pixels (y+a-1 .. y+a, x+b-1 .. x+b). Weights [a*2+b][out][2][2][in]. In the code a is parity_y and b is
// parity_x.
//   rows:  a = 0: tap 0 <- w0, tap 1 <- w1 + w2       a = 1: tap 0 <- w0 + w1, tap 1 <- w2      (columns alike with b)
// The 5-D maps of output and residual {c, b, x, a, y} place the pixels of one parity two apart.
//
// Group sums for a GroupNorm of 32 groups (kernels with _stats, conv_sums_sm90.cuh): every warp writes the sums and
// sums of squares of its 16 pixels to stats[((patch * parities + parity) * 8 + warp) * 32 + group][2]. Pixels outside
// the image count as 0. sumi_group_sums_conv (group_norm.cu) reads them.
//
// Bound by the tensor cores (and by the card's power limit). Three stages with a staging buffer for the whole tile beat
// four stages with half of it by 0-2 %. 16x16 patches for 128 columns were 1 % slower.
#include "conv.h"
#include "conv_sums_sm90.cuh"
#include "gemm_sm90.cuh"

// What a block computes of a work item, which is two neighbouring patches, one output parity and one tile of columns.
struct conv_work {
    int n0;                                // first output channel
    int output_parity, parity_y, parity_x; // output_parity = parity_y * 2 + parity_x
    int index, patch;                      // the patch; index may be one past the last, and patch is the last then
    int x0, y0;                            // first pixel of the patch
};
// Columns and parities change fastest, so items that run at the same time read the same patch.
SUMI_DEVICE conv_work conv_work_of(int item, int tiles_n, int tile_columns, int parities, int patches_x, int patches,
                                   int rank)
{
    conv_work work;
    work.n0 = item % tiles_n * tile_columns;
    work.output_parity = item / tiles_n % parities;
    work.index = item / tiles_n / parities * 2 + rank;
    work.patch = min(work.index, patches - 1);
    work.x0 = work.patch % patches_x * 16;
    work.y0 = work.patch / patches_x * 8;
    work.parity_y = work.output_parity >> 1;
    work.parity_x = work.output_parity & 1;
    return work;
}

// GROUP_CHANNELS: channels per group (out / 32); 0: no group sums. T: the tile (gemm_sm90.cuh).
template <class T, int GROUP_CHANNELS>
__device__ __forceinline__ void conv(const sumi_tensor_map& x_map, const sumi_tensor_map& w_map,
                                     const sumi_tensor_map& y_map, const sumi_tensor_map& residual_map,
                                     const sumi_conv_sm90_args& args)
{
    const u32 smem = smem_base(), rank = cluster_rank();
    const int consumer = uniform(threadIdx.x >> 7) - 1; // -1: the producer
    const int patches_x = (args.width + 15) / 16, patches_y = (args.height + 7) / 8, patches = patches_x * patches_y,
              tiles_n = (args.out_channels + T::TILE_COLUMNS - 1) / T::TILE_COLUMNS;
    const int channel_chunks = (args.in_channels + 63) / 64;
    // At least STAGES k-blocks, because of vectors_load. K-blocks past the last tap are zeros.
    const int k_blocks = max(args.kernel * args.kernel * channel_chunks, T::STAGES);
    int stage = 0;
    u32 parity = 0;
    barriers_init<T>(smem);
    if (consumer < 0) {
        SUMI_REGISTERS_PRODUCER();
        if (uniform(threadIdx.x >> 5) == 0 && elect_one()) {
            const u32 full = smem + T::BARRIERS_OFFSET, empty = full + 8 * T::STAGES;
            int vector_buffer = 0;
            for (int item = args.item_begin + (blockIdx.x >> 1); item < args.item_end;
                 item += gridDim.x >> 1, vector_buffer ^= 1) {
                const conv_work work =
                    conv_work_of(item, tiles_n, T::TILE_COLUMNS, args.parities, patches_x, patches, rank);
                // The first tap's place relative to the output pixel.
                const int tap_x0 = args.kernel == 2 ? work.parity_x - 1
                                 : args.kernel == 3 ? -1
                                                    : 0,
                          tap_y0 = (args.kernel == 2 ? work.parity_y - 1 : tap_x0) + args.above;
                const int weight_row = work.output_parity * args.out_channels + work.n0 + rank * (T::TILE_COLUMNS / 2);
                // tap = tap_row * kernel + tap_column; chunk: of 64 channels.
                for (int k_block = 0, tap = 0, tap_row = 0, tap_column = 0, chunk = 0; k_block < k_blocks; k_block++) {
                    const u32 a = smem + stage * T::STAGE_BYTES, b = a + T::A_BYTES, barrier = full + 8 * stage;
                    mbarrier_wait(empty + 8 * stage, parity ^ 1);
                    if (k_block == 0) {
                        const int columns = min(T::TILE_COLUMNS, args.out_channels - work.n0);
                        mbarrier_expect(barrier, T::STAGE_BYTES + vectors_bytes<T>(columns, 0));
                        vectors_load<T>(smem + T::VECTORS_OFFSET + vector_buffer * T::VECTORS_BYTES, barrier,
                                        (const float*)args.bias, nullptr, nullptr, nullptr, work.n0, columns, 0, 0);
                    } else mbarrier_expect(barrier, T::STAGE_BYTES);
                    // Past the last tap, both operands lie outside their maps and become zeros. Both, so that no
                    // infinity is multiplied by 0.
                    const int channel = tap_row < args.kernel ? chunk * 64 : args.in_channels;
                    tma_load_2d_multicast(b + rank * (T::B_BYTES / 2), &w_map, barrier,
                                          tap * args.in_channels + chunk * 64, weight_row, 3);
                    if (args.stride == 2)
                        tma_load_5d(a, &x_map, barrier, channel, tap_column & 1, work.x0 + (tap_column >> 1),
                                    tap_row & 1, work.y0 + (tap_row >> 1));
                    else
                        tma_load_4d(a, &x_map, barrier, channel, work.x0 + tap_x0 + tap_column,
                                    work.y0 + tap_y0 + tap_row, 0);
                    if (++chunk == channel_chunks) {
                        chunk = 0;
                        tap++;
                        if (++tap_column == args.kernel) {
                            tap_column = 0;
                            tap_row++;
                        }
                    }
                    if (++stage == T::STAGES) {
                        stage = 0;
                        parity ^= 1;
                    }
                }
            }
        }
    } else {
        SUMI_REGISTERS_2_CONSUMERS();
        const int lane = threadIdx.x & 31, warp = uniform((threadIdx.x & 127) >> 5);
        int finished_tiles = 0;
        float acc[T::M64_TILES][T::TILE_COLUMNS / 2];
        for (int item = args.item_begin + (blockIdx.x >> 1); item < args.item_end;
             item += gridDim.x >> 1, finished_tiles++) {
            const conv_work work =
                conv_work_of(item, tiles_n, T::TILE_COLUMNS, args.parities, patches_x, patches, rank);
            const int y0 = work.y0 + consumer * 4; // the consumer has four rows of the patch
            const bool is_idle = work.index >= patches;
            // A patch that is computed twice is stored once (see gemm_sm90.cuh).
            const int store_y = is_idle ? 1 << 30 : y0;
            // Copies the residual of a store pass to this warpgroup's staging memory.
            auto fetch_residual = [&](int pass) {
                const u32 barrier = residual_barrier<T>(smem, consumer),
                          staging = smem + T::STAGING_OFFSET + consumer * T::STAGING_BYTES;
                TMA_STORE_WAIT_READ();
                mbarrier_expect(barrier, T::STAGING_BYTES);
#pragma unroll
                for (int slab = 0; slab < T::SLABS; slab++)
                    tma_load_5d(staging + slab * T::SLAB_BYTES, &residual_map, barrier,
                                work.n0 + (pass * T::SLABS + slab) * T::SLAB_COLUMNS, work.parity_x, work.x0,
                                work.parity_y, y0);
            };
            mainloop<T>(acc, smem, consumer, k_blocks, stage, parity, [&] {
                if ((T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) && warp == 0 && elect_one()) fetch_residual(0);
            });
            conv_sums<T::TILE_COLUMNS, GROUP_CHANNELS> sums;
            epilogue<T>(
                acc, smem, consumer, finished_tiles & 1, finished_tiles,
                [&](u32 slab, int column) {
                    tma_store_5d(&y_map, slab, work.n0 + column, work.parity_x, work.x0, work.parity_y, store_y);
                },
                [&](int m64_tile, int column_block, float* v) {
                    // The 16 rows of a warp in an m64 tile are one image row of the patch. With r = lane >> 2, a
                    // lane has pixels r (v[0], v[1]) and r + 8 (v[2], v[3]), and of the 8-column block the columns
                    // 2 (lane & 3) and + 1 (drawn in hopper.cuh).
                    if (GROUP_CHANNELS) {
                        const bool is_row_inside = y0 + m64_tile * 4 + warp < args.height;
                        const int x = work.x0 + (lane >> 2);
                        const float inside_0 = is_row_inside && x < args.width ? 1.f : 0.f,
                                    inside_1 = is_row_inside && x + 8 < args.width ? 1.f : 0.f;
                        sums.add(column_block, v, inside_0, inside_1);
                    }
                },
                fetch_residual);
            if (GROUP_CHANNELS)
                sums.store((float*)args.stats
                               + (((size_t)work.patch * args.parities + work.output_parity) * 8 + consumer * 4 + warp)
                                     * 64,
                           work.n0, lane, !is_idle);
        }
        if (warp == 0 && elect_one()) TMA_STORE_WAIT();
    }
    cluster_sync();
}

#define SUMI_CONV_KERNEL(name, TILE_COLUMNS, STAGES, EPILOGUE, GROUP_CHANNELS)                                         \
    static_assert(sumi_tile<1, TILE_COLUMNS, STAGES, 1, 64, EPILOGUE, SUMI_OPERANDS_BF16>::SHARED_BYTES                \
                      == SUMI_CONV_SM90_N##TILE_COLUMNS##_SHARED,                                                      \
                  "conv.h");                                                                                           \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)                                     \
        name(const __grid_constant__ sumi_tensor_map x_map, const __grid_constant__ sumi_tensor_map w_map,             \
             const __grid_constant__ sumi_tensor_map y_map, const __grid_constant__ sumi_tensor_map residual_map,      \
             const __grid_constant__ sumi_conv_sm90_args args)                                                         \
    {                                                                                                                  \
        conv<sumi_tile<1, TILE_COLUMNS, STAGES, 1, 64, EPILOGUE, SUMI_OPERANDS_BF16>, GROUP_CHANNELS>(                 \
            x_map, w_map, y_map, residual_map, args);                                                                  \
    }

#define BIAS SUMI_EPILOGUE_BIAS
#define RESIDUAL (SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_RESIDUAL)
//                                                 columns, stages, epilogue, channels per group
SUMI_CONV_KERNEL(sumi_conv_sm90_n256, 256, 3, BIAS, 0)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_stats16, 256, 3, BIAS, 16)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_stats8, 256, 3, BIAS, 8)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_residual, 256, 3, RESIDUAL, 0)
SUMI_CONV_KERNEL(sumi_conv_sm90_n128, 128, 5, BIAS, 0)
SUMI_CONV_KERNEL(sumi_conv_sm90_n128_stats4, 128, 5, BIAS, 4)
SUMI_CONV_KERNEL(sumi_conv_sm90_n128_residual, 128, 5, RESIDUAL, 0)
