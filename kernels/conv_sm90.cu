// Convolution of 3x3 (stride 1 or 2) or 1x1 on Hopper, NHWC bf16, as an implicit GEMM on the pipeline of gemm_sm90.cuh.
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
// reads small pixels (y+a-1 .. y+a, x+b-1 .. x+b). Weights [a*2+b][out][2][2][in].
//   rows:  a = 0: tap 0 <- w0, tap 1 <- w1 + w2       a = 1: tap 0 <- w0 + w1, tap 1 <- w2      (columns alike with b)
// The 5-D maps of output and residual {c, b, x, a, y} place the pixels of one parity two apart.
//
// Group sums for a GroupNorm of 32 groups (kernels with _stats): every warp writes the sums and sums of squares of its
// 64 pixels to stats[((patch * parities + parity) * 8 + warp) * 32 + group][2]. There are no atomics, so equal inputs
// give equal bits. Pixels outside the image count as 0. sumi_group_sums_conv (group_norm.cu) reads them.
//
// Bound by the tensor cores (and by the card's power limit). Three stages with a staging buffer for the whole tile beat
// four stages with half of it by 0-2 %. 16x16 patches for 128 columns were 1 % slower.
#include "conv.h"
#include "gemm_sm90.cuh"

// One step of a sum over lanes. It adds each of values[0 .. VALUES) over the two lanes that differ in bit BIT, and
// divides them between these: the lane with the bit keeps the upper half, the other lane the lower half, in
// values[0 .. VALUES / 2). Steps for bits 16, 8, 4, 2 and 1 sum 32 values over the warp with 31 shuffles instead of 160.
// Lane l then has sum l.
template <int VALUES, int BIT> __device__ __forceinline__ void reduce_step(float* values, int lane)
{
#pragma unroll
    for (int i = 0; i < VALUES / 2; i++) {
        const bool is_upper = lane & BIT;
        const float send = is_upper ? values[i] : values[i + VALUES / 2],
                    keep = is_upper ? values[i + VALUES / 2] : values[i];
        values[i] = keep + __shfl_xor_sync(~0u, send, BIT);
    }
}

// GROUP_CHANNELS: channels per group (out / 32); 0: no group sums. T: the tile (gemm_sm90.cuh).
template <class TILE, int GROUP_CHANNELS>
__device__ __forceinline__ void conv(const sumi_tensor_map& x_map, const sumi_tensor_map& w_map,
                                     const sumi_tensor_map& y_map, const sumi_tensor_map& residual_map,
                                     const sumi_conv_sm90_args& args)
{
    const u32 base = shared_base(), rank = cluster_rank();
    const int warpgroup = uniform(threadIdx.x >> 7) - 1;
    const int patch_columns = (args.width + 15) / 16, patch_rows = (args.height + 7) / 8,
              tiles = patch_columns * patch_rows,
              column_tiles = (args.out_channels + TILE::TILE_COLUMNS - 1) / TILE::TILE_COLUMNS;
    const int chunks = (args.in_channels + 63) / 64;
    // At least STAGES k-blocks, because of vectors_load. K-blocks past the last tap are zeros.
    const int k_blocks = max(args.kernel * args.kernel * chunks, TILE::STAGES);
    int stage = 0;
    u32 phase = 0;
    barriers_init<TILE>(base);
// Of a work item: its first output channel; its parity, of rows and of columns; its patch, which may be one past the
// last; `tile`, the patch that is computed, and the first pixel of that. Columns and parities change fastest, so items
// that run at the same time read the same patch.
#define ITEM(item)                                                                                                     \
    const int first_channel = (item) % column_tiles * TILE::TILE_COLUMNS,                                              \
              parity_index = (item) / column_tiles % args.parities,                                                    \
              patch = (item) / column_tiles / args.parities * 2 + rank, tile = min(patch, tiles - 1),                  \
              patch_x = tile % patch_columns * 16, patch_y = tile / patch_columns * 8, row_parity = parity_index >> 1, \
              column_parity = parity_index & 1
    if (warpgroup < 0) {
        SUMI_REGISTERS_PRODUCER();
        if (uniform(threadIdx.x >> 5) == 0 && elect_one()) {
            const u32 full = base + TILE::BARRIERS_OFFSET, empty = full + 8 * TILE::STAGES;
            int vector_buffer = 0;
            for (int item = args.item_begin + (blockIdx.x >> 1); item < args.item_end;
                 item += gridDim.x >> 1, vector_buffer ^= 1) {
                ITEM(item);
                const int x_offset = args.kernel == 2 ? column_parity - 1
                                   : args.kernel == 3 ? -1
                                                      : 0,
                          y_offset = (args.kernel == 2 ? row_parity - 1 : x_offset) + args.above;
                const int row = parity_index * args.out_channels + first_channel + rank * (TILE::TILE_COLUMNS / 2);
                for (int k_block = 0, tap = 0, tap_y = 0, tap_x = 0, chunk = 0; k_block < k_blocks; k_block++) {
                    const u32 a = base + stage * TILE::STAGE_BYTES, b = a + TILE::A_BYTES, barrier = full + 8 * stage;
                    mbarrier_wait(empty + 8 * stage, phase ^ 1);
                    if (k_block == 0) {
                        const int columns = min(TILE::TILE_COLUMNS, args.out_channels - first_channel);
                        mbarrier_expect(barrier, TILE::STAGE_BYTES + vectors_bytes<TILE>(columns, 0));
                        vectors_load<TILE>(base + TILE::VECTORS_OFFSET + vector_buffer * TILE::VECTOR_BYTES, barrier,
                                           (const float*)args.bias, nullptr, nullptr, nullptr, first_channel, columns,
                                           0, 0);
                    } else mbarrier_expect(barrier, TILE::STAGE_BYTES);
                    // Past the last tap, both operands lie outside their maps and become zeros. Both, so that no
                    // infinity is multiplied by 0.
                    const int channel = tap_y < args.kernel ? chunk * 64 : args.in_channels;
                    tma_load_2d_multicast(b + rank * (TILE::B_BYTES / 2), &w_map, barrier,
                                          tap * args.in_channels + chunk * 64, row, 3);
                    if (args.stride == 2)
                        tma_load_5d(a, &x_map, barrier, channel, tap_x & 1, patch_x + (tap_x >> 1), tap_y & 1,
                                    patch_y + (tap_y >> 1));
                    else
                        tma_load_4d(a, &x_map, barrier, channel, patch_x + x_offset + tap_x, patch_y + y_offset + tap_y,
                                    0);
                    if (++chunk == chunks) {
                        chunk = 0;
                        tap++;
                        if (++tap_x == args.kernel) {
                            tap_x = 0;
                            tap_y++;
                        }
                    }
                    if (++stage == TILE::STAGES) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
            }
        }
    } else {
        SUMI_REGISTERS_CONSUMER();
        const int lane = threadIdx.x & 31, warp = uniform((threadIdx.x & 127) >> 5);
        int count = 0;
        float acc[TILE::ROW_BLOCKS][TILE::TILE_COLUMNS / 2];
        for (int item = args.item_begin + (blockIdx.x >> 1); item < args.item_end; item += gridDim.x >> 1, count++) {
            ITEM(item);
            const int group_y = patch_y + warpgroup * 4;
            const bool idle = patch >= tiles;
            // A patch that is computed twice is stored once (see gemm_sm90.cuh).
            const int store_y = idle ? 1 << 30 : group_y;
            // Copies pass `pass` of the residual's tile to this warpgroup's staging buffer.
            auto fetch = [&](int pass) {
                const u32 barrier = base + TILE::BARRIERS_OFFSET + 16 * TILE::STAGES + 8 * warpgroup,
                          staging = base + TILE::STAGING_OFFSET + warpgroup * TILE::STAGING_BYTES;
                TMA_STORE_WAIT_READ();
                mbarrier_expect(barrier, TILE::STAGING_BYTES);
#pragma unroll
                for (int slab = 0; slab < TILE::SLABS; slab++)
                    tma_load_5d(staging + slab * TILE::SLAB_BYTES, &residual_map, barrier,
                                first_channel + (pass * TILE::SLABS + slab) * TILE::SLAB_COLUMNS, column_parity,
                                patch_x, row_parity, group_y);
            };
            mainloop<TILE>(acc, base, warpgroup, k_blocks, stage, phase, [&] {
                if ((TILE::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) && warp == 0 && elect_one()) fetch(0);
            });
            // This lane's sums and sums of squares, in pairs, per group. GROUP_CHANNELS = 4: a lane's two columns of
            // an 8-column block belong to one of the block's two groups, so there is one pair per block.
            constexpr int VALUES = GROUP_CHANNELS == 0  ? 1
                                 : GROUP_CHANNELS == 16 ? TILE::TILE_COLUMNS / 8
                                                        : TILE::TILE_COLUMNS / 4;
            float sums[VALUES];
#pragma unroll
            for (int k = 0; k < VALUES; k++) sums[k] = 0.f;
            epilogue<TILE>(
                acc, base, warpgroup, count & 1, count,
                [&](u32 source, int column) {
                    tma_store_5d(&y_map, source, first_channel + column, column_parity, patch_x, row_parity, store_y);
                },
                [&](int i, int o, float* x) {
                    // The 16 rows of a warp in an m64 block are one image row of the patch. With r = lane >> 2, a
                    // lane has pixels r (x[0], x[1]) and r + 8 (x[2], x[3]), and of the 8-column block o the columns
                    // 2 (lane & 3) and + 1 (drawn in hopper.cuh).
                    if (GROUP_CHANNELS) {
                        const bool is_inside = group_y + i * 4 + warp < args.height;
                        const int pixel_x = patch_x + (lane >> 2), k = GROUP_CHANNELS == 16 ? o / 2 : o;
                        const float weight0 = is_inside && pixel_x < args.width ? 1.f : 0.f,
                                    weight1 = is_inside && pixel_x + 8 < args.width ? 1.f : 0.f;
                        sums[2 * k] += weight0 * (x[0] + x[1]) + weight1 * (x[2] + x[3]);
                        sums[2 * k + 1] +=
                            weight0 * (x[0] * x[0] + x[1] * x[1]) + weight1 * (x[2] * x[2] + x[3] * x[3]);
                    }
                },
                fetch);
            if (GROUP_CHANNELS) {
                // Bits 4, 3 and 2 of the lane number select the pixels of the row, bits 1 and 0 the columns.
                reduce_step<VALUES, 16>(sums, lane);
                reduce_step<VALUES / 2, 8>(sums, lane);
                reduce_step<VALUES / 4, 4>(sums, lane);
                float* out = (float*)args.stats
                           + (((size_t)tile * args.parities + parity_index) * 8 + warpgroup * 4 + warp) * 64
                           + first_channel / (GROUP_CHANNELS ? GROUP_CHANNELS : 1) * 2;
                if (GROUP_CHANNELS == 4) { // bit 1 of the lane says which of the two groups of an 8-column block it has
                    reduce_step<VALUES / 8, 1>(sums, lane);
                    const int o = (lane >> 4 & 1) * 8 + (lane >> 3 & 1) * 4 + (lane >> 2 & 1) * 2 + (lane & 1);
                    if (!idle) *(float2*)(out + (2 * o + (lane >> 1 & 1)) * 2) = make_float2(sums[0], sums[1]);
                } else {
                    reduce_step<VALUES / 8, 2>(sums, lane);
                    reduce_step<VALUES / 16, 1>(sums, lane);
                    if (!idle) {
                        if (VALUES == 64) *(float2*)(out + lane * 2) = make_float2(sums[0], sums[1]);
                        else out[lane] = sums[0];
                    }
                }
            }
        }
        if (warp == 0 && elect_one()) TMA_STORE_WAIT();
    }
    cluster_sync();
}

#define SUMI_CONV_KERNEL(name, TILE_COLUMNS, STAGES, EPILOGUE, GROUP_CHANNELS)                                         \
    static_assert(sumi_tile<1, TILE_COLUMNS, STAGES, 1, 64, EPILOGUE, 0>::SHARED_BYTES                                 \
                      == SUMI_CONV_SM90_N##TILE_COLUMNS##_SHARED,                                                      \
                  "conv.h");                                                                                           \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)                                     \
        name(const __grid_constant__ sumi_tensor_map x_map, const __grid_constant__ sumi_tensor_map w_map,             \
             const __grid_constant__ sumi_tensor_map y_map, const __grid_constant__ sumi_tensor_map residual_map,      \
             const __grid_constant__ sumi_conv_sm90_args args)                                                         \
    {                                                                                                                  \
        conv<sumi_tile<1, TILE_COLUMNS, STAGES, 1, 64, EPILOGUE, 0>, GROUP_CHANNELS>(x_map, w_map, y_map,              \
                                                                                     residual_map, args);              \
    }

#define BIAS SUMI_EPILOGUE_BIAS
#define BIAS_RESIDUAL (SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_RESIDUAL)
//                                                 columns, stages, epilogue, channels per group
SUMI_CONV_KERNEL(sumi_conv_sm90_n256, 256, 3, BIAS, 0)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_stats16, 256, 3, BIAS, 16)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_stats8, 256, 3, BIAS, 8)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_residual, 256, 3, BIAS_RESIDUAL, 0)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_residual_stats16, 256, 3, BIAS_RESIDUAL, 16)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_residual_stats8, 256, 3, BIAS_RESIDUAL, 8)
SUMI_CONV_KERNEL(sumi_conv_sm90_n128, 128, 5, BIAS, 0)
SUMI_CONV_KERNEL(sumi_conv_sm90_n128_stats4, 128, 5, BIAS, 4)
SUMI_CONV_KERNEL(sumi_conv_sm90_n128_residual, 128, 5, BIAS_RESIDUAL, 0)
SUMI_CONV_KERNEL(sumi_conv_sm90_n128_residual_stats4, 128, 5, BIAS_RESIDUAL, 4)
