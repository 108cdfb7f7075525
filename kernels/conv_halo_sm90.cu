// Convolution of 3x3 with stride 1 on Hopper, NHWC bf16, for the channels of autoencoders. Each patch of the picture is
// loaded with its border (halo) once, and all nine taps read it from shared memory.
//
//   y[p, o] = bias[o] + sum over taps (r, s), channels c of x[p + (r, s) - 1, c] * w[o][r][s][c] (+ residual[p, o])
//   x [h][w][in], y and residual [h][w][out], w [out][3][3][in], all bf16; float sums. y may be the residual.
//   Maps, channels, grid and arguments: conv.h.
//
// Nearest upsampling by 2 is folded into four convolutions of 2x2 as in conv_sm90.cu. Only the kernels with _up_residual
// add a residual to these; the other ones with a residual need no registers for the parity. Rows of a strip's neighbours
// and group sums are also as there, but for the number of sums of a patch: a warp has 32 pixels and writes
// stats[((patch * parities + parity) * 4 + warp) * 32 + group][2].
//
// conv_sm90.cu loads the patch again for every tap, and its tiles have 128 or 256 columns, so that from 96 channels to
// 96 channels only 0.56 of its products are of the picture (96 / 128 for k-blocks of 64 channels, and again for
// columns). Here tiles have 96, 128 or 192 columns and k-blocks 96 or 64 channels, which divide the channels evenly. A
// tile of 144 columns is for pictures of 144 channels: the second k-block of 144 channels is half of one, of which only
// the products that are there are computed, and TMA drops the columns of the last group that are not there.
//
// One work item is a patch of 16 x 8 (or 16 x 16) pixels, a parity and a tile of columns, for each of the two blocks of
// a cluster, which share the weights. The two consumers of a block take turns (ping-pong): while one multiplies, the
// other stores its item. k goes through the slabs of CHANNELS channels, and for each slab through the taps:
//
//     global --TMA--> patch [18 x 10 pixels, 64 channels | 32 channels], one of PATCHES, for all taps  --+
//                                                                                                        |--wgmma-->
//     global --TMA--> stage [COLUMNS rows, 64 channels | 32 channels], one of STAGES, for one tap      --+
//
// The A operand of a wgmma is 8 x 8 pixels: eight groups of eight rows, a row being a pixel of 128 bytes (64 channels).
// Pixels of a picture's row follow one another in shared memory, and the next group is BOX_WIDTH pixels further. So a
// descriptor whose groups are BOX_WIDTH * 128 bytes apart reads 8 x 8 pixels anywhere in the patch, and another tap is
// another start. The 128-byte swizzle allows this although starts and groups are not multiples of 1024 bytes: units of
// 16 bytes are exchanged by bits 7 to 9 of their address in shared memory, in TMA's writes and in wgmma's reads alike.
// The same holds for the 32 channels that are left of 96, with rows of 64 bytes and the 64-byte swizzle (bits 7 and 8).
//
// Barriers, beside those that gemm_sm90.cuh explains for stages:
//   patch_full[patch]    1 arrival, which announces LOADED_BYTES, and the bytes
//   patch_empty[patch]   1 arrival: of the one consumer that used it, in the same block, because patches are not shared
//   residual_full[consumer][slot]   1 arrival and the bytes of a group of columns of the residual
// Named barriers 3 and 4 pass the turn from consumer to consumer.
//
// With a norm, which needs all channels of a pixel, a tile has all columns. They are in the registers of four lanes: each
// adds its squares in the order of its columns, then two shuffles add the lanes. The order depends on the channels alone.
// 256x96_c96 would spill with a norm.
//
// The epilogue goes through groups of 64 pixels x GROUP_COLUMNS columns, which are staged in SLOTS slots of shared
// memory, so that several stores may be in flight. Slots hold pieces of 32 columns: 64 rows (pixels) of 64 bytes in the
// 64-byte swizzle.
//
// TFLOP/s on one H200, of the kernel that is chosen beside conv_sm90.cu; pictures alone, without norms between:
//
//                                         here   conv_sm90.cu
//     96 to 96, 1024x1024                  735    307    the same bits
//     96 to 96, 1024x112 (a strip)         610    281    the same bits
//     192 to 96, upsampled to 1024x1024    687    464
//     192 to 192, 512x512                  762    532
//     384 to 192, upsampled to 512x512     755    556
//     192 to 384, 256x256                  751    660
//     384 to 384, 256x256                  777    688
//     384 to 384, 128x128                  750    668
//     128 to 128, 1024x1024                808    680    without a residual and sums; cooler card
//     256 to 256, 512x512                  806    771
//     512 to 512, 256x256                  839    823
//     512 to 512, 64x64                    701    394
//
// The other order of sums changes the last bit of 0.03 to 0.17 % of the values; the error against double is the same
// (1.63e-3 to 1.72e-3, the rounding of bf16).
//
// Tried and slower, TFLOP/s:                                             384 to 384, 256x256   192 to 192, 512x512
//     128x192_c64, chosen                                                        777                   762
//     both consumers on one tile: nothing is multiplied in the epilogue          752                   713
//     the same, with 96 columns                                                  707                   707
//     the same, with patches of 16 x 8 pixels                                    730                   697
//     256 pixels x 96 columns, c64                                               733                   697
//     256x96_c96                                                                 727                   748
//     a patch is loaded for every column of taps, without a border
//     at the left and right, so that starts are multiples of a row               734                   696
// The last one for 96 channels: 566 where 256x96_c96 does 735 (1024x1024).
#include "conv.h"
#include "conv_sums_sm90.cuh"
#include "gemm_sm90.cuh"

// The constants of a kernel.
//   COLUMNS      output channels of a tile
//   CHANNELS     input channels of a k-block: 64, or 96 (64 and a tail of 32)
//   M64_TILES    wgmma tiles of 8 x 8 pixels in a patch, two side by side
//   STAGES       k-blocks of weights in shared memory
//   SLOTS        groups of columns that a consumer stages for stores
//   PATCHES      patches in shared memory
template <int COLUMNS_, int CHANNELS_, int M64_TILES_, int STAGES_, int SLOTS_, int PATCHES_> struct conv_halo_tile {
    static constexpr int COLUMNS = COLUMNS_, CHANNELS = CHANNELS_, M64_TILES = M64_TILES_, STAGES = STAGES_,
                         SLOTS = SLOTS_, PATCHES = PATCHES_;
    static constexpr bool HAS_TAIL = CHANNELS == 96;
    static constexpr bool TAKES_HALF = COLUMNS == 144;                  // the last k-block may have 48 channels
    static constexpr int HEAD_STEPS = 4, TAIL_STEPS = HAS_TAIL ? 2 : 0; // k-steps of 16 channels
    static constexpr int PATCH_WIDTH = 16, PATCH_HEIGHT = 4 * M64_TILES;
    static constexpr int BOX_WIDTH = PATCH_WIDTH + 2, BOX_HEIGHT = PATCH_HEIGHT + 2; // with the border
    static constexpr u32 HEAD_BYTES = (BOX_WIDTH * BOX_HEIGHT * 128 + 1023) / 1024 * 1024,
                         TAIL_BYTES = HAS_TAIL ? (BOX_WIDTH * BOX_HEIGHT * 64 + 1023) / 1024 * 1024 : 0,
                         PATCH_BYTES = HEAD_BYTES + TAIL_BYTES;                            // with the gaps between
    static constexpr u32 LOADED_BYTES = BOX_WIDTH * BOX_HEIGHT * CHANNELS * 2;             // that TMA announces
    static constexpr u32 STAGE_BYTES = COLUMNS * CHANNELS * 2, STAGE_TAIL = COLUMNS * 128; // of weights
    static constexpr int GROUP_COLUMNS = COLUMNS % 96 == 0 ? 96 : 64, PIECES = GROUP_COLUMNS / 32;
    static constexpr int TILE_GROUPS = (COLUMNS + GROUP_COLUMNS - 1) / GROUP_COLUMNS; // of a wgmma tile
    static constexpr int GROUPS = M64_TILES * TILE_GROUPS;                            // of a patch
    static constexpr u32 PIECE_BYTES = 64 * 64, GROUP_BYTES = PIECES * PIECE_BYTES;
    static constexpr u32 STAGES_OFFSET = PATCHES * PATCH_BYTES, STAGING_OFFSET = STAGES_OFFSET + STAGES * STAGE_BYTES,
                         BARRIERS_OFFSET = STAGING_OFFSET + 2 * SLOTS * GROUP_BYTES,
                         BARRIERS = 2 * PATCHES + 2 * STAGES + 2 * SLOTS, SHARED_BYTES = BARRIERS_OFFSET + 8 * BARRIERS;
    static_assert(SHARED_BYTES <= 232448, "shared memory");
    static_assert(SLOTS >= 2 && SLOTS <= GROUPS && M64_TILES % 2 == 0, "slots and tiles");
    // The place of wgmma tile i in the patch, and its first pixel's distance from the patch's, counted with the border.
    static constexpr SUMI_DEVICE int tile_x(int i) { return (i & 1) * 8; }
    static constexpr SUMI_DEVICE int tile_y(int i) { return (i >> 1) * 8; }
    static constexpr SUMI_DEVICE int tile_pixel(int i) { return tile_y(i) * BOX_WIDTH + tile_x(i); }
};

// A descriptor as in hopper.cuh, with another swizzle (1: 128 bytes, 2: 64 bytes) and distance of groups of 8 rows.
SUMI_DEVICE u64 conv_halo_descriptor(u32 low, u32 swizzle, u32 group_bytes)
{
    return (u64)(swizzle << 30 | group_bytes >> 4) << 32 | low;
}

// What a block computes of a work item, which is two neighbouring patches, one output parity and one tile of columns.
struct conv_halo_work {
    int n0, output_parity, parity_y, parity_x, patch;
    int x0, y0;
    bool is_idle; // computes the last patch once more, without storing it
};
// Columns and parities change fastest, so items that run at the same time read the same patch.
template <class T> SUMI_DEVICE conv_halo_work conv_halo_work_of(const sumi_conv_sm90_args& args, int item, int rank)
{
    const int tiles_n = args.out_channels / T::COLUMNS, patches_x = (args.width + T::PATCH_WIDTH - 1) / T::PATCH_WIDTH,
              patches = patches_x * ((args.height + T::PATCH_HEIGHT - 1) / T::PATCH_HEIGHT);
    conv_halo_work work;
    work.n0 = item % tiles_n * T::COLUMNS;
    work.output_parity = item / tiles_n % args.parities;
    const int index = item / tiles_n / args.parities * 2 + rank;
    work.patch = min(index, patches - 1);
    work.is_idle = index >= patches;
    work.x0 = work.patch % patches_x * T::PATCH_WIDTH;
    work.y0 = work.patch / patches_x * T::PATCH_HEIGHT;
    work.parity_y = work.output_parity >> 1;
    work.parity_x = work.output_parity & 1;
    return work;
}

// The place in a ring of COUNT stages or patches, and the parity of the phase that a user waits for.
template <int COUNT> struct conv_halo_ring {
    int index = 0;
    u32 parity;
    SUMI_DEVICE explicit conv_halo_ring(u32 first_parity) : parity(first_parity) {}
    SUMI_DEVICE void next()
    {
        if (++index == COUNT) {
            index = 0;
            parity ^= 1;
        }
    }
    SUMI_DEVICE void skip(int count)
    {
        index += count;
        parity ^= index / COUNT & 1;
        index %= COUNT;
    }
};

struct conv_halo_maps {
    const sumi_tensor_map *x, *x_tail, *w, *w_tail, *y, *residual;
};

// Not ld.global.nc: ptxas would move the loads, and the sums that need them, before the barrier of their group, where
// registers are short.
SUMI_DEVICE float2 conv_halo_bias(const float2* p)
{
    float2 v;
    asm volatile("ld.global.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p) : "memory");
    return v;
}
template <int PENDING> SUMI_DEVICE void conv_halo_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
SUMI_DEVICE void conv_halo_await_turn(int consumer)
{
    if (consumer == 0) asm volatile("bar.sync 3, 256;" ::: "memory");
    else asm volatile("bar.sync 4, 256;" ::: "memory");
}
SUMI_DEVICE void conv_halo_pass_turn(int consumer)
{
    if (consumer == 0) asm volatile("bar.arrive 4, 256;" ::: "memory");
    else asm volatile("bar.arrive 3, 256;" ::: "memory");
}

// The warp that loads patches.
template <class T>
SUMI_DEVICE void conv_halo_load_patches(const conv_halo_maps& maps, const sumi_conv_sm90_args& args, u32 smem, u32 full)
{
    const int clusters = gridDim.x >> 1, rank = cluster_rank();
    conv_halo_ring<T::PATCHES> ring(1);
    for (int item = args.item_begin + (blockIdx.x >> 1); item < args.item_end; item += clusters) {
        const conv_halo_work work = conv_halo_work_of<T>(args, item, rank);
        const int x = work.x0 + (args.kernel == 2 ? work.parity_x - 1 : -1),
                  y = work.y0 + (args.kernel == 2 ? work.parity_y - 1 : -1) + args.above;
        for (int channel = 0; channel < args.in_channels; channel += T::CHANNELS) {
            const u32 patch = smem + ring.index * T::PATCH_BYTES, barrier = full + 8 * ring.index;
            mbarrier_wait(barrier + 8 * T::PATCHES, ring.parity);
            mbarrier_expect(barrier, T::LOADED_BYTES);
            tma_load_4d(patch, maps.x, barrier, channel, x, y, 0);
            if (T::HAS_TAIL) tma_load_4d(patch + T::HEAD_BYTES, maps.x_tail, barrier, channel + 64, x, y, 0);
            ring.next();
        }
    }
}
// The warp that loads half of each k-block of weights, to both blocks.
template <class T>
SUMI_DEVICE void conv_halo_load_weights(const conv_halo_maps& maps, const sumi_conv_sm90_args& args, u32 smem, u32 full)
{
    const int clusters = gridDim.x >> 1, rank = cluster_rank(), taps = args.kernel * args.kernel;
    conv_halo_ring<T::STAGES> ring(1);
    for (int item = args.item_begin + (blockIdx.x >> 1); item < args.item_end; item += clusters) {
        const conv_halo_work work = conv_halo_work_of<T>(args, item, rank);
        const int row = work.output_parity * args.out_channels + work.n0 + rank * (T::COLUMNS / 2);
        for (int channel = 0; channel < args.in_channels; channel += T::CHANNELS) {
            for (int tap = 0; tap < taps; tap++) {
                const u32 head = smem + T::STAGES_OFFSET + ring.index * T::STAGE_BYTES, tail = head + T::STAGE_TAIL,
                          barrier = full + 8 * ring.index;
                const int column = tap * args.in_channels + channel;
                mbarrier_wait(barrier + 8 * T::STAGES, ring.parity);
                mbarrier_expect(barrier, T::STAGE_BYTES);
                tma_load_2d_multicast(head + rank * (T::COLUMNS / 2 * 128), maps.w, barrier, column, row, 3);
                if (T::HAS_TAIL)
                    tma_load_2d_multicast(tail + rank * (T::COLUMNS / 2 * 64), maps.w_tail, barrier, column + 64, row,
                                          3);
                ring.next();
            }
        }
    }
}

// The factors of the RMS norms of a lane's two pixels, from its accumulators of a wgmma tile. bias: of the lane's first
// column. The rounded values are not kept: ptxas would serialise the wgmma if anything else wrote to the accumulators
// (C7514), and has no registers for a copy.
template <int COLUMNS> SUMI_DEVICE float2 conv_halo_norm_factors(const float* acc, const float2* bias, float eps)
{
    float squares_0 = 0.f, squares_1 = 0.f;
#pragma unroll
    for (int block = 0; block < COLUMNS / 8; block++) { // of 8 columns, of which a lane has two
        const float* from = acc + 4 * block;
        const float2 b = conv_halo_bias(bias + 4 * block);
        const u32 y_0 = pack_bf16(from[0] + b.x, from[1] + b.y), y_1 = pack_bf16(from[2] + b.x, from[3] + b.y);
        squares_0 = fmaf(bf16_high(y_0), bf16_high(y_0), fmaf(bf16_low(y_0), bf16_low(y_0), squares_0));
        squares_1 = fmaf(bf16_high(y_1), bf16_high(y_1), fmaf(bf16_low(y_1), bf16_low(y_1), squares_1));
    }
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
        squares_0 += __shfl_xor_sync(~0u, squares_0, mask);
        squares_1 += __shfl_xor_sync(~0u, squares_1, mask);
    }
    return make_float2(rsqrtf(fmaf(squares_0, 1.0f / COLUMNS, eps)), rsqrtf(fmaf(squares_1, 1.0f / COLUMNS, eps)));
}
// silu(y * factor * w) of two neighbouring columns of a pixel; y: two bf16.
SUMI_DEVICE u32 conv_halo_normed(u32 y, float factor, float2 w)
{
    const float low = bf16_low(y) * factor * w.x, high = bf16_high(y) * factor * w.y;
    return pack_bf16(low * epilogue_sigmoid(low), high * epilogue_sigmoid(high));
}

// GROUP_CHANNELS: as in conv_sm90.cu, for tiles of 128 columns. HAS_PARITIES: args.parities may be 4. HAS_NORM: neither
// with a residual nor with sums.
template <class T, bool HAS_RESIDUAL, bool HAS_PARITIES, int GROUP_CHANNELS, bool HAS_NORM>
SUMI_DEVICE void conv_halo(const conv_halo_maps& maps, const sumi_conv_sm90_args& args)
{
    const u32 smem = smem_base();
    const int consumer = uniform(threadIdx.x >> 7) - 1, warp = uniform((threadIdx.x & 127) >> 5);
    const u32 patch_full = smem + T::BARRIERS_OFFSET, patch_empty = patch_full + 8 * T::PATCHES,
              full = patch_empty + 8 * T::PATCHES, empty = full + 8 * T::STAGES,
              residual_full = empty + 8 * T::STAGES; // [consumer][SLOTS]
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::PATCHES; i++) {
            mbarrier_init(patch_full + 8 * i, 1);
            mbarrier_init(patch_empty + 8 * i, 1);
        }
        for (int i = 0; i < T::STAGES; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(empty + 8 * i, 2);
        }
        for (int i = 0; i < 2 * T::SLOTS; i++) mbarrier_init(residual_full + 8 * i, 1);
        FENCE_MBARRIER_INIT();
    }
    cluster_sync();
    if (consumer < 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (warp == 0 && elect_one()) conv_halo_load_patches<T>(maps, args, smem, patch_full);
        else if (warp == 1 && elect_one()) conv_halo_load_weights<T>(maps, args, smem, full);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        const int thread = threadIdx.x & 127, lane = thread & 31;
        const int clusters = gridDim.x >> 1, kernel = args.kernel, taps = kernel * kernel,
                  slabs = (args.in_channels + T::CHANNELS - 1) / T::CHANNELS;
        const bool ends_half = T::TAKES_HALF && args.in_channels % T::CHANNELS != 0;
        const u32 staging = smem + T::STAGING_OFFSET + consumer * (T::SLOTS * T::GROUP_BYTES),
                  my_residual = residual_full + consumer * (8 * T::SLOTS);
        conv_halo_ring<T::STAGES> stage(0);
        conv_halo_ring<T::PATCHES> patch(0);
        u32 residual_parity = 0; // a bit per slot
        float acc[T::M64_TILES][T::COLUMNS / 2];
        if (consumer == 1) {
            conv_halo_pass_turn(1); // consumer 0 has the first turn
            stage.skip(slabs * taps);
            patch.skip(slabs);
        }
        for (int item = args.item_begin + (blockIdx.x >> 1) + consumer * clusters; item < args.item_end;
             item += 2 * clusters) {
            int n0, x0, y0, parity_x, parity_y, entry;
            // Copies the residual of a group of columns to its slot.
            const auto fetch_residual = [&](int group) {
                const int i = group / T::TILE_GROUPS, column = group % T::TILE_GROUPS * T::GROUP_COLUMNS,
                          slot = group % T::SLOTS;
                mbarrier_expect(my_residual + 8 * slot, T::GROUP_BYTES);
#pragma unroll
                for (int piece = 0; piece < T::PIECES; piece++)
                    tma_load_5d(staging + slot * T::GROUP_BYTES + piece * T::PIECE_BYTES, maps.residual,
                                my_residual + 8 * slot, n0 + column + piece * 32, parity_x, x0 + T::tile_x(i), parity_y,
                                y0 + T::tile_y(i));
            };
            // ---- the main loop
            conv_halo_await_turn(consumer);
            int previous_stage = 0, previous_patch = 0, k_block = 0;
            for (int slab = 0; slab < slabs; slab++) {
                mbarrier_wait(patch_full + 8 * patch.index, patch.parity);
                // Low words of the descriptors of the first wgmma tile and tap; others are at constant distances.
                const u32 head = wgmma_descriptor_low(smem + patch.index * T::PATCH_BYTES),
                          tail = head + (T::HEAD_BYTES >> 4);
                const bool is_half = ends_half && slab + 1 == slabs; // its last three k-steps are not there
                for (int tap = 0, tap_pixel = 0, tap_column = 0; tap < taps; tap++, k_block++) {
                    mbarrier_wait(full + 8 * stage.index, stage.parity);
                    const u32 weights =
                        wgmma_descriptor_low(smem + T::STAGES_OFFSET) + stage.index * (T::STAGE_BYTES >> 4);
                    const auto multiply_head = [&](int k_step) {
#pragma unroll
                        for (int i = 0; i < T::M64_TILES; i++)
                            wgmma_shared<T::COLUMNS, SUMI_OPERANDS_BF16>::mma(
                                acc[i],
                                conv_halo_descriptor(head + (tap_pixel + T::tile_pixel(i)) * 8 + k_step * 2, 1,
                                                     T::BOX_WIDTH * 128),
                                conv_halo_descriptor(weights + k_step * 2, 1, 1024), k_block | k_step);
                    };
                    const auto multiply_tail = [&](int k_step) {
#pragma unroll
                        for (int i = 0; i < T::M64_TILES; i++)
                            wgmma_shared<T::COLUMNS, SUMI_OPERANDS_BF16>::mma(
                                acc[i],
                                conv_halo_descriptor(tail + (tap_pixel + T::tile_pixel(i)) * 4 + k_step * 2, 2,
                                                     T::BOX_WIDTH * 64),
                                conv_halo_descriptor(weights + (T::STAGE_TAIL >> 4) + k_step * 2, 2, 512), 1);
                    };
                    WGMMA_FENCE();
#pragma unroll
                    for (int k_step = 0; k_step < (T::TAKES_HALF ? 3 : T::HEAD_STEPS); k_step++) multiply_head(k_step);
                    if (!is_half) {
                        if (T::TAKES_HALF) {
                            WGMMA_FENCE(); // ptxas wants one in each part of the code
                            multiply_head(3);
                        }
#pragma unroll
                        for (int k_step = 0; k_step < T::TAIL_STEPS; k_step++) multiply_tail(k_step);
                    }
                    if (T::TAKES_HALF) WGMMA_FENCE();
                    WGMMA_COMMIT();
                    if (k_block > 0) {
                        WGMMA_WAIT(1);
                        if (thread < 2) mbarrier_arrive_cluster(empty + 8 * previous_stage, thread);
                        if (tap == 0 && thread == 2)
                            mbarrier_arrive_cluster(patch_empty + 8 * previous_patch, cluster_rank());
                    }
                    if (k_block == 2) { // while products run; an item has four k-blocks at least
                        const conv_halo_work work = conv_halo_work_of<T>(args, item, cluster_rank());
                        n0 = work.n0;
                        x0 = work.x0;
                        y0 = work.y0;
                        parity_x = HAS_PARITIES ? work.parity_x : 0;
                        parity_y = HAS_PARITIES ? work.parity_y : 0;
                        entry = GROUP_CHANNELS ? work.patch * args.parities + work.output_parity : 0;
                        // Past the last row TMA loads zeros and drops stores.
                        if (work.is_idle) y0 = 1 << 30;
                        asm volatile("" : "+r"(n0), "+r"(x0), "+r"(y0), "+r"(entry));
                        if (HAS_RESIDUAL && warp == 0 && elect_one()) {
                            TMA_STORE_WAIT_READ();
#pragma unroll
                            for (int group = 0; group < T::SLOTS; group++) fetch_residual(group);
                        }
                    }
                    previous_stage = stage.index;
                    stage.next();
                    tap_pixel++;
                    if (++tap_column == kernel) {
                        tap_column = 0;
                        tap_pixel += T::BOX_WIDTH - kernel;
                    }
                }
                previous_patch = patch.index;
                patch.next();
            }
            conv_halo_pass_turn(consumer);
            WGMMA_WAIT(0);
            if (thread < 2) mbarrier_arrive_cluster(empty + 8 * previous_stage, thread);
            if (thread == 2) mbarrier_arrive_cluster(patch_empty + 8 * previous_patch, cluster_rank());
            // ---- the epilogue. Unit u of 16 bytes of a row is at u ^ (row >> 1 & 3).
            const int row = warp * 16 + (lane & 15);
            conv_sums<T::COLUMNS, GROUP_CHANNELS> sums;
            float2 norm_factors; // of the two pixels of a lane in a wgmma tile
#pragma unroll
            for (int group = 0; group < T::GROUPS; group++) {
                const int i = group / T::TILE_GROUPS, column = group % T::TILE_GROUPS * T::GROUP_COLUMNS,
                          slot = group % T::SLOTS;
                // Stores that may still read when a later group's residual is fetched. With two slots the store before
                // this group has to have read its slot.
                constexpr int LAG = T::SLOTS > 2 ? 2 : 1;
                if (warp == 0 && elect_one()) {
                    if (!HAS_RESIDUAL) conv_halo_wait_read<T::SLOTS - 1>();
                    else if (group >= LAG && group - LAG + T::SLOTS < T::GROUPS) {
                        conv_halo_wait_read<LAG - 1>();
                        fetch_residual(group - LAG + T::SLOTS);
                    }
                }
                consumer_sync(consumer);
                if (HAS_RESIDUAL) {
                    mbarrier_wait(my_residual + 8 * slot, residual_parity >> slot & 1);
                    residual_parity ^= 1u << slot;
                }
                if (HAS_NORM && column == 0)
                    norm_factors = conv_halo_norm_factors<T::COLUMNS>(acc[i], (const float2*)args.bias + (lane & 3),
                                                                      args.norm_eps);
                const u32 slot_base = after_sync(staging + slot * T::GROUP_BYTES + row * 64);
                const float2* bias = (const float2*)((const float*)args.bias + n0 + column) + (lane & 3);
                // A lane has pixel (lane >> 2, 2 warp) of the wgmma tile (v[0], v[1]) and the one below (v[2], v[3]).
                const int x = x0 + T::tile_x(i) + (lane >> 2), y = y0 + T::tile_y(i) + 2 * warp;
                const float inside_0 = x < args.width && y < args.height ? 1.f : 0.f,
                            inside_1 = x < args.width && y + 1 < args.height ? 1.f : 0.f;
#pragma unroll
                for (int chunk = 0; chunk < T::GROUP_COLUMNS / 16; chunk++) { // of 16 columns
                    if (column + chunk * 16 >= T::COLUMNS) break;
                    const u32 address = slot_base + (chunk >> 1) * T::PIECE_BYTES
                                      + ((((chunk & 1) * 2 + (lane >> 4)) ^ (row >> 1 & 3)) << 4);
                    u32 out[4], residual[4];
                    if (HAS_RESIDUAL) load_matrix_x4(address, residual[0], residual[1], residual[2], residual[3]);
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const float* from = acc[i] + 4 * (column / 8 + chunk * 2 + half);
                        const float2 b = conv_halo_bias(bias + chunk * 8 + half * 4);
                        float v[4] = {from[0] + b.x, from[1] + b.y, from[2] + b.x, from[3] + b.y};
                        if (HAS_RESIDUAL) {
                            v[0] += bf16_low(residual[2 * half]);
                            v[1] += bf16_high(residual[2 * half]);
                            v[2] += bf16_low(residual[2 * half + 1]);
                            v[3] += bf16_high(residual[2 * half + 1]);
                        }
                        if (GROUP_CHANNELS) sums.add(column / 8 + chunk * 2 + half, v, inside_0, inside_1);
                        out[2 * half] = pack_bf16(v[0], v[1]);
                        out[2 * half + 1] = pack_bf16(v[2], v[3]);
                        if (HAS_NORM) {
                            const float2 w = conv_halo_bias((const float2*)((const float*)args.norm + column)
                                                            + (lane & 3) + chunk * 8 + half * 4);
                            out[2 * half] = conv_halo_normed(out[2 * half], norm_factors.x, w);
                            out[2 * half + 1] = conv_halo_normed(out[2 * half + 1], norm_factors.y, w);
                        }
                    }
                    store_matrix_x4(address, out[0], out[1], out[2], out[3]);
                }
                FENCE_PROXY_ASYNC();
                consumer_sync(consumer);
                if (warp == 0 && elect_one()) {
#pragma unroll
                    for (int piece = 0; piece < T::PIECES; piece++)
                        tma_store_5d(maps.y, staging + slot * T::GROUP_BYTES + piece * T::PIECE_BYTES,
                                     n0 + column + piece * 32, parity_x, x0 + T::tile_x(i), parity_y,
                                     y0 + T::tile_y(i));
                    TMA_STORE_COMMIT();
                }
            }
            if (GROUP_CHANNELS)
                sums.store((float*)args.stats + ((size_t)entry * 4 + warp) * 64, n0, lane, y0 < 1 << 30);
            stage.skip(slabs * taps); // the other consumer's item
            patch.skip(slabs);
        }
        if (warp == 0 && elect_one()) TMA_STORE_WAIT();
    }
    cluster_sync();
}

#define SUMI_CONV_HALO_KERNEL(name, SHARED, RESIDUAL, PARITIES, GROUP_CHANNELS, NORM, ...)                             \
    static_assert(conv_halo_tile<__VA_ARGS__>::SHARED_BYTES == SHARED, "conv.h");                                      \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)                                     \
        name(const __grid_constant__ sumi_tensor_map x, const __grid_constant__ sumi_tensor_map x_tail,                \
             const __grid_constant__ sumi_tensor_map w, const __grid_constant__ sumi_tensor_map w_tail,                \
             const __grid_constant__ sumi_tensor_map y, const __grid_constant__ sumi_tensor_map residual,              \
             const __grid_constant__ sumi_conv_sm90_args args)                                                         \
    {                                                                                                                  \
        conv_halo<conv_halo_tile<__VA_ARGS__>, RESIDUAL, PARITIES, GROUP_CHANNELS, NORM>(                              \
            {&x, &x_tail, &w, &w_tail, &y, &residual}, args);                                                          \
    }
#define SUMI_CONV_HALO_KERNELS(name, SHARED, ...)                                                                      \
    SUMI_CONV_HALO_KERNEL(name, SHARED, false, true, 0, false, __VA_ARGS__)                                            \
    SUMI_CONV_HALO_KERNEL(name##_residual, SHARED, true, false, 0, false, __VA_ARGS__)
#define SUMI_CONV_HALO_UP_KERNELS(name, SHARED, ...)                                                                   \
    SUMI_CONV_HALO_KERNELS(name, SHARED, __VA_ARGS__)                                                                  \
    SUMI_CONV_HALO_KERNEL(name##_up_residual, SHARED, true, true, 0, false, __VA_ARGS__)
#define SUMI_CONV_HALO_NORM_KERNEL(name, SHARED, ...)                                                                  \
    SUMI_CONV_HALO_KERNEL(name##_norm, SHARED, false, false, 0, true, __VA_ARGS__)
#define SUMI_CONV_HALO_STATS_KERNELS(name, SHARED, GROUP_CHANNELS, ...)                                                \
    SUMI_CONV_HALO_KERNEL(name##_stats##GROUP_CHANNELS, SHARED, false, true, GROUP_CHANNELS, false, __VA_ARGS__)       \
    SUMI_CONV_HALO_KERNEL(name##_residual_stats##GROUP_CHANNELS, SHARED, true, false, GROUP_CHANNELS, false,           \
                          __VA_ARGS__)

//  pixels x columns, channels; its shared memory                                    columns, channels, wgmma tiles,
//                                                                                                stages, slots, patches
SUMI_CONV_HALO_UP_KERNELS(sumi_conv_halo_256x96_c96, SUMI_CONV_HALO_256X96_C96_SHARED, 96, 96, 4, 3, 2, 2)
SUMI_CONV_HALO_UP_KERNELS(sumi_conv_halo_128x96_c96, SUMI_CONV_HALO_128X96_C96_SHARED, 96, 96, 2, 4, 2, 2)
SUMI_CONV_HALO_NORM_KERNEL(sumi_conv_halo_128x96_c96, SUMI_CONV_HALO_128X96_C96_SHARED, 96, 96, 2, 4, 2, 2)
SUMI_CONV_HALO_KERNELS(sumi_conv_halo_128x144_c96, SUMI_CONV_HALO_128X144_C96_SHARED, 144, 96, 2, 4, 2, 2)
SUMI_CONV_HALO_UP_KERNELS(sumi_conv_halo_128x192_c64, SUMI_CONV_HALO_128X192_C64_SHARED, 192, 64, 2, 4, 3, 2)
SUMI_CONV_HALO_NORM_KERNEL(sumi_conv_halo_128x192_c64, SUMI_CONV_HALO_128X192_C64_SHARED, 192, 64, 2, 4, 3, 2)
SUMI_CONV_HALO_UP_KERNELS(sumi_conv_halo_128x96_c64, SUMI_CONV_HALO_128X96_C64_SHARED, 96, 64, 2, 6, 2, 3)
SUMI_CONV_HALO_KERNELS(sumi_conv_halo_128x128_c64, SUMI_CONV_HALO_128X128_C64_SHARED, 128, 64, 2, 5, 4, 3)
SUMI_CONV_HALO_STATS_KERNELS(sumi_conv_halo_128x128_c64, SUMI_CONV_HALO_128X128_C64_SHARED, 4, 128, 64, 2, 5, 4, 3)
SUMI_CONV_HALO_STATS_KERNELS(sumi_conv_halo_128x128_c64, SUMI_CONV_HALO_128X128_C64_SHARED, 8, 128, 64, 2, 5, 4, 3)
SUMI_CONV_HALO_STATS_KERNELS(sumi_conv_halo_128x128_c64, SUMI_CONV_HALO_128X128_C64_SHARED, 16, 128, 64, 2, 5, 4, 3)
