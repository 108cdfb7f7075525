// softmax(q k^T * scale) v with head dim 384 or 512 on Hopper (the middle block of a VAE: one head, 16384 tokens at
// 1024 x 1024): bf16, float sums, grouped-query heads, one span. attention.h has the shapes and launches.
//
// An output row needs as many float accumulators as it has channels, and all operands of wgmma in shared memory share
// its 128 bytes per clock. There are two forms.
//
// attention_wide, heads of 512, and of 384 where one round of the device has all rows: a block has 64 query rows, and
// its two consumer warpgroups hold half of the channels each. Both compute the whole 64 x 64 tile of scores: q k^T is
// computed twice.
//
// In this form two blocks form a cluster, and each loads half of the channels of every K and V tile and multicasts them
// to both blocks; otherwise L2 bandwidth would be the limit. The two blocks of a cluster compute neighbouring row tiles
// of one head. The second row tile may lie past the last query: then its loads are zeros, and its store writes nothing.
//
// sumi_attention_sm90_d384_m2: a block has 128 query rows, and each consumer holds 64 rows with all 384 channels, in 192
// accumulators of a thread. No product is computed twice, and a tile of K and V serves twice as many rows, but a block
// has twice the work. A tile has 32 keys: with 48, ptxas needs more than the 240 registers of a consumer, and would
// serialise the wgmma (C7512). Of 1536 clocks of the tensor cores for a tile, shared memory then takes 1920: 384 for the
// copies, 1152 for q k^T (3 KiB for 16 clocks of products) and 384 for P v.
//
// Milliseconds on one H200, one head, medians of rounds of 30 ms, all forms in turns (tests/bench.md has more):
//
//   tokens                                                        4096   8448  16384  98596
//   attention_wide, 64 rows                                      0.111  0.237  1.009  36.09
//   sumi_attention_sm90_d384_m2                                  0.147  0.298  0.640  22.92
//   in clusters of two that multicast K and V                    0.150  0.333  0.656  23.37
//   the same, the consumers taking turns at the tensor cores     0.149  0.308  0.645  23.05
//   48 keys, no producer warpgroup (255 registers), in turns     0.159  0.321  0.685  24.77
//   64 keys, the same                                            0.325  0.665  1.324  45.78
//
//   warpgroup 0 of a block   producer (one thread)
//   warpgroups 1 and 2       consumers. attention_wide: the same 64 rows; channels [0, dim / 2) and [dim / 2, dim) of the
//                            output. sumi_attention_sm90_d384_m2: rows [0, 64) and [64, 128); all channels
//
// Fragments: a thread of a consumer holds two rows, 16 warp + r and 16 warp + r + 8 with r = lane >> 2, of S and of its
// part of O, as drawn in hopper.cuh. Names that end in 0 belong to the first of the two rows, and names that end in 1
// to the second. P stays in registers as the A operand of P v (drawn in attention.cu).
#include "attention_sm90.cuh"

// wgmma with 32 columns, for tiles of 32 keys. Other kernels have wider ones (hopper.cuh).
#define SUMI_ASM_REGISTERS_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define SUMI_ASM_OUTPUTS_16(C, d) SUMI_ASM_OUTPUTS_8_FROM(C, d, 0), SUMI_ASM_OUTPUTS_8_FROM(C, d, 8)
SUMI_WGMMA_OF(32, 16, 16, 17, 18, SUMI_OPERANDS_BF16, float, "+f", "k16.f32.bf16.bf16", ",1,1,0,0")

static constexpr int TILE_QUERIES = 64, TILE_KEYS = 64; // of a block
static constexpr int SLAB_BYTES = 64 * 128;             // 64 rows of 64 channels
extern __shared__ unsigned char dynamic[];

// One arrival at the barrier at this offset in each of the two blocks.
SUMI_DEVICE void arrive_pair(u32 barrier)
{
    mbarrier_arrive_cluster(barrier, 0);
    mbarrier_arrive_cluster(barrier, 1);
}

// ---- 64 rows per block ----------------------------------------------------------------------------------------------
// SLABS: slabs of 64 channels of a head.
template <int SLABS>
SUMI_DEVICE void attention_wide(const sumi_attention_map& q_map, const sumi_attention_map& kv_map,
                                const sumi_attention_map& out_map, const sumi_attention_wide_shape& shape)
{
    // slabs and channels of a consumer's half of the output
    constexpr int CONSUMER_SLABS = SLABS / 2, CONSUMER_CHANNELS = 64 * CONSUMER_SLABS;
    constexpr int TILE_BYTES = SLABS * SLAB_BYTES; // of q, K or V
    const u32 shared_q = (smem_addr(dynamic) + 1023) & ~1023u, shared_k = shared_q + TILE_BYTES,
              shared_v = shared_k + TILE_BYTES;
    __shared__ __align__(8) u64 barriers[5];
    const u32 q_full = smem_addr(barriers), k_full = q_full + 8, v_full = q_full + 16, k_empty = q_full + 24,
              v_empty = q_full + 32;
    if (threadIdx.x == 0) {
        mbarrier_init(q_full, 1);
        mbarrier_init(k_full, 1);
        mbarrier_init(v_full, 1);
        mbarrier_init(k_empty, 4); // two consumer warpgroups in each of two blocks
        mbarrier_init(v_empty, 4);
        FENCE_MBARRIER_INIT();
    }
    cluster_sync_aligned();
    const int rank = blockIdx.x & 1; // of the block in its cluster
    const int tile = shape.tile_begin + (blockIdx.x >> 1), head = tile / shape.tiles_per_head,
              query0 = (tile % shape.tiles_per_head * 2 + rank) * TILE_QUERIES;
    const int key_tiles = (shape.keys + TILE_KEYS - 1) / TILE_KEYS, q_slab = head * SLABS,
              kv_slab = head / shape.group * SLABS + rank * CONSUMER_SLABS;
    if (threadIdx.x < 128) {
        fewer_registers<24>();
        if (threadIdx.x == 0) {
            mbarrier_expect(q_full, TILE_BYTES);
            tma_load_3d(shared_q, &q_map, q_full, query0, q_slab);
            tma_load_3d(shared_q + TILE_BYTES / 2, &q_map, q_full, query0, q_slab + CONSUMER_SLABS);
            u32 parity = 1;
            for (int key_tile = key_tiles - 1; key_tile >= 0; key_tile--, parity ^= 1) {
                mbarrier_wait(k_empty, parity);
                mbarrier_expect(k_full, TILE_BYTES);
                tma_load_3d_pair(shared_k + rank * CONSUMER_SLABS * SLAB_BYTES, &kv_map, k_full, key_tile * TILE_KEYS,
                                 shape.k_slab + kv_slab);
                mbarrier_wait(v_empty, parity);
                mbarrier_expect(v_full, TILE_BYTES);
                tma_load_3d_pair(shared_v + rank * CONSUMER_SLABS * SLAB_BYTES, &kv_map, v_full, key_tile * TILE_KEYS,
                                 shape.v_slab + kv_slab);
            }
        }
    } else {
        more_registers<240>();
        const int consumer = uniform((int)(threadIdx.x >> 7) - 1), lane = threadIdx.x & 31,
                  warp = (threadIdx.x >> 5) & 3;
        const bool is_leader = (threadIdx.x & 127) == 0;
        const float scale_log2 = shape.scale_log2;
        const u32 q_low = wgmma_descriptor_low(shared_q), k_low = wgmma_descriptor_low(shared_k),
                  v_low = wgmma_descriptor_low(shared_v + consumer * CONSUMER_SLABS * SLAB_BYTES, SLAB_BYTES);
        float acc[CONSUMER_CHANNELS / 2], scores[TILE_KEYS / 2];
        float row_max0 = -1e30f, row_max1 = -1e30f, row_sum0 = 0.f, row_sum1 = 0.f;
        u32 probabilities[TILE_KEYS / 4], parity = 0;
#pragma unroll
        for (int i = 0; i < CONSUMER_CHANNELS / 2; i++) acc[i] = 0.f;
        mbarrier_wait(q_full, 0);
        for (int key_tile = key_tiles - 1; key_tile >= 0; key_tile--, parity ^= 1) {
            mbarrier_wait(k_full, parity);
            const u32 q = opaque(q_low), k = opaque(k_low);
            // S = q k^T, in k-steps of 16 channels: four in the 128-byte rows of a slab, 32 bytes apart.
            WGMMA_FENCE();
#pragma unroll
            for (int k_step = 0; k_step < 4 * SLABS; k_step++)
                wgmma_shared<64, SUMI_OPERANDS_BF16>::mma(
                    scores, wgmma_descriptor(q + (k_step >> 2) * (SLAB_BYTES / 16) + (k_step & 3) * 2),
                    wgmma_descriptor(k + (k_step >> 2) * (SLAB_BYTES / 16) + (k_step & 3) * 2), k_step);
            WGMMA_COMMIT();
            WGMMA_WAIT(0);
            warpgroup_fence_operand(scores);
            if (is_leader) arrive_pair(k_empty);
            // Only the first iteration (the last tile) can be incomplete. It has at least one key, so every row gets a
            // finite maximum.
            if ((key_tile + 1) * TILE_KEYS > shape.keys) {
#pragma unroll
                for (int i = 0; i < TILE_KEYS / 2; i++) // score i & 3 of key group i >> 2
                    if (key_tile * TILE_KEYS + (i >> 2) * 8 + (lane & 3) * 2 + (i & 1) >= shape.keys)
                        scores[i] = __int_as_float(0xff800000); // -inf
            }
            float lane_max0 = scores[0], lane_max1 = scores[2];
#pragma unroll
            for (int group = 0; group < TILE_KEYS / 8; group++) {
                lane_max0 = fmaxf(lane_max0, fmaxf(scores[4 * group], scores[4 * group + 1]));
                lane_max1 = fmaxf(lane_max1, fmaxf(scores[4 * group + 2], scores[4 * group + 3]));
            }
            // Rescale only when a row maximum grew by more than a factor of 2^8.
            if (__any_sync(~0u, fmaxf(fmaf(lane_max0, scale_log2, -row_max0), fmaf(lane_max1, scale_log2, -row_max1))
                                    > 8.f)) {
                lane_max0 = fmaxf(lane_max0, __shfl_xor_sync(~0u, lane_max0, 1));
                lane_max1 = fmaxf(lane_max1, __shfl_xor_sync(~0u, lane_max1, 1));
                lane_max0 = fmaxf(lane_max0, __shfl_xor_sync(~0u, lane_max0, 2));
                lane_max1 = fmaxf(lane_max1, __shfl_xor_sync(~0u, lane_max1, 2));
                const float new_max0 = fmaxf(row_max0, lane_max0 * scale_log2),
                            new_max1 = fmaxf(row_max1, lane_max1 * scale_log2);
                const float rescale_factor0 = exp2_fast(row_max0 - new_max0),
                            rescale_factor1 = exp2_fast(row_max1 - new_max1);
                row_max0 = new_max0;
                row_max1 = new_max1;
                row_sum0 *= rescale_factor0;
                row_sum1 *= rescale_factor1;
#pragma unroll
                for (int group = 0; group < CONSUMER_CHANNELS / 8; group++) {
                    acc[4 * group] *= rescale_factor0;
                    acc[4 * group + 1] *= rescale_factor0;
                    acc[4 * group + 2] *= rescale_factor1;
                    acc[4 * group + 3] *= rescale_factor1;
                }
            }
#pragma unroll
            for (int group = 0; group < TILE_KEYS / 8; group++) {
                const float p0 = exp2_fast(fmaf(scores[4 * group], scale_log2, -row_max0)),
                            p1 = exp2_fast(fmaf(scores[4 * group + 1], scale_log2, -row_max0));
                const float p2 = exp2_fast(fmaf(scores[4 * group + 2], scale_log2, -row_max1)),
                            p3 = exp2_fast(fmaf(scores[4 * group + 3], scale_log2, -row_max1));
                row_sum0 += p0 + p1;
                row_sum1 += p2 + p3;
                probabilities[2 * group] = pack_bf16(p0, p1);
                probabilities[2 * group + 1] = pack_bf16(p2, p3);
            }
            mbarrier_wait(v_full, parity);
            warpgroup_fence_operand(acc);
            WGMMA_FENCE();
            // O += P v, in k-steps of 16 keys, which are 16 rows of 128 bytes apart.
#pragma unroll
            for (int k_step = 0; k_step < TILE_KEYS / 16; k_step++)
                wgmma_registers<CONSUMER_CHANNELS, SUMI_OPERANDS_BF16>::mma(acc, probabilities + 4 * k_step,
                                                                            wgmma_descriptor(v_low + k_step * 128), 1);
            WGMMA_COMMIT();
            WGMMA_WAIT(0);
            warpgroup_fence_operand(acc);
            if (is_leader) arrive_pair(v_empty);
        }
        row_sum0 += __shfl_xor_sync(~0u, row_sum0, 1);
        row_sum0 += __shfl_xor_sync(~0u, row_sum0, 2);
        row_sum1 += __shfl_xor_sync(~0u, row_sum1, 1);
        row_sum1 += __shfl_xor_sync(~0u, row_sum1, 2);
        const float inverse_sum0 = 1.f / row_sum0, inverse_sum1 = 1.f / row_sum1;
        // both warpgroups have finished reading q: its memory becomes the staging buffer of the output
        named_sync<4, 256>();
        // stmatrix to the swizzled slabs of the output, see attention_forward_sm90.cuh.
#pragma unroll
        for (int i = 0; i < CONSUMER_CHANNELS / 16; i++) { // 16 channels
            const int row = warp * 16 + (lane & 15), channel = consumer * CONSUMER_CHANNELS + i * 16 + (lane >> 4) * 8;
            store_matrix_x4(shared_q + (channel >> 6) * SLAB_BYTES + row * 128
                                + (((channel & 63) * 2) ^ ((row & 7) << 4)),
                            pack_bf16(acc[8 * i] * inverse_sum0, acc[8 * i + 1] * inverse_sum0),
                            pack_bf16(acc[8 * i + 2] * inverse_sum1, acc[8 * i + 3] * inverse_sum1),
                            pack_bf16(acc[8 * i + 4] * inverse_sum0, acc[8 * i + 5] * inverse_sum0),
                            pack_bf16(acc[8 * i + 6] * inverse_sum1, acc[8 * i + 7] * inverse_sum1));
        }
        FENCE_PROXY_ASYNC();
        if (consumer == 0) named_sync<5, 128>();
        else named_sync<6, 128>();
        if (is_leader) {
            tma_store_3d(&out_map, shared_q + consumer * CONSUMER_SLABS * SLAB_BYTES, query0,
                         q_slab + consumer * CONSUMER_SLABS);
            TMA_STORE_COMMIT();
            TMA_STORE_WAIT();
        }
    }
    cluster_sync_aligned(); // no block ends while the other block may still signal its barriers
}

#define ATTENTION_WIDE(DIM, NAME)                                                                                      \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1) NAME(                               \
        const __grid_constant__ sumi_attention_map q_map, const __grid_constant__ sumi_attention_map kv_map,           \
        const __grid_constant__ sumi_attention_map out_map, const __grid_constant__ sumi_attention_wide_shape shape)   \
    {                                                                                                                  \
        attention_wide<DIM / 64>(q_map, kv_map, out_map, shape);                                                       \
    }
ATTENTION_WIDE(384, sumi_attention_sm90_d384_m1)
ATTENTION_WIDE(512, sumi_attention_sm90_d512)

// ---- 128 rows per block ---------------------------------------------------------------------------------------------
static constexpr int TALL_SLABS = 6, TALL_ROWS = 2 * TILE_QUERIES;
static constexpr int TALL_KEYS = SUMI_ATTENTION_TALL_KEYS, TALL_STAGES = 5;
static constexpr int KV_SLAB_BYTES = TALL_KEYS * 128, KV_TILE_BYTES = TALL_SLABS * KV_SLAB_BYTES;   // of K or V
static constexpr int HALVES = 2, HALF_SLABS = TALL_SLABS / HALVES, HALF_CHANNELS = 64 * HALF_SLABS; // of the output

// full and empty: of stage 0; the other stages' are 8 bytes apart.
struct tall_shared {
    u32 q, ring, q_full, full, empty;
};

// One thread loads q, and then of each tile of keys, from the last one on, K and V.
SUMI_DEVICE void tall_produce(const sumi_attention_map& q_map, const sumi_attention_map& kv_map,
                              const sumi_attention_wide_shape& shape, const tall_shared& shared, int head, int query0)
{
    mbarrier_expect(shared.q_full, 2 * TALL_SLABS * SLAB_BYTES);
#pragma unroll
    for (int i = 0; i < 4; i++) // half of the channels of rows [0, 64), the other half, and the same of the other rows
        tma_load_3d(shared.q + i * HALF_SLABS * SLAB_BYTES, &q_map, shared.q_full, query0 + (i >> 1) * TILE_QUERIES,
                    head * TALL_SLABS + (i & 1) * HALF_SLABS);
    const int own_slab = head / shape.group * TALL_SLABS;
    u32 stage = 0, parity = 1;
    for (int key_tile = (shape.keys + TALL_KEYS - 1) / TALL_KEYS - 1; key_tile >= 0; key_tile--)
#pragma unroll
        for (int is_v = 0; is_v < 2; is_v++) {
            mbarrier_wait(shared.empty + 8 * stage, parity);
            mbarrier_expect(shared.full + 8 * stage, KV_TILE_BYTES);
#pragma unroll
            for (int half = 0; half < HALVES; half++)
                tma_load_3d(shared.ring + stage * KV_TILE_BYTES + half * HALF_SLABS * KV_SLAB_BYTES, &kv_map,
                            shared.full + 8 * stage, key_tile * TALL_KEYS,
                            (is_v ? shape.v_slab : shape.k_slab) + own_slab + half * HALF_SLABS);
            if (++stage == TALL_STAGES) {
                stage = 0;
                parity ^= 1;
            }
        }
}

// A consumer warpgroup: 64 rows of the output.
SUMI_DEVICE void tall_consume(const sumi_attention_map& out_map, const sumi_attention_wide_shape& shape,
                              const tall_shared& shared, int head, int query0, int consumer)
{
    const int lane = threadIdx.x & 31;
    const bool is_leader = (threadIdx.x & 127) == 0;
    const float scale_log2 = shape.scale_log2;
    const u32 own_q = shared.q + consumer * TALL_SLABS * SLAB_BYTES, q_low = wgmma_descriptor_low(own_q),
              k_low = wgmma_descriptor_low(shared.ring), v_low = wgmma_descriptor_low(shared.ring, KV_SLAB_BYTES);
    float acc[HALVES][HALF_CHANNELS / 2], row_max0 = -1e30f, row_max1 = -1e30f, row_sum0 = 0.f, row_sum1 = 0.f;
    u32 stage = 0, parity = 0;
#pragma unroll
    for (int half = 0; half < HALVES; half++)
#pragma unroll
        for (int i = 0; i < HALF_CHANNELS / 2; i++) acc[half][i] = 0.f;
    mbarrier_wait(shared.q_full, 0);
    for (int key_tile = (shape.keys + TALL_KEYS - 1) / TALL_KEYS - 1; key_tile >= 0; key_tile--) {
        // S = q k^T, in k-steps of 16 channels: four in the 128-byte rows of a slab, 32 bytes apart.
        float scores[TALL_KEYS / 2];
        mbarrier_wait(shared.full + 8 * stage, parity);
        const u32 q = opaque(q_low), k = k_low + stage * (KV_TILE_BYTES / 16);
        WGMMA_FENCE();
#pragma unroll
        for (int k_step = 0; k_step < 4 * TALL_SLABS; k_step++)
            wgmma_shared<TALL_KEYS, SUMI_OPERANDS_BF16>::mma(
                scores, wgmma_descriptor(q + (k_step >> 2) * (SLAB_BYTES / 16) + (k_step & 3) * 2),
                wgmma_descriptor(k + (k_step >> 2) * (KV_SLAB_BYTES / 16) + (k_step & 3) * 2), k_step);
        WGMMA_COMMIT();
        WGMMA_WAIT(0);
        warpgroup_fence_operand(scores);
        if (is_leader) mbarrier_arrive(shared.empty + 8 * stage);
        if (++stage == TALL_STAGES) {
            stage = 0;
            parity ^= 1;
        }
        // Only the first iteration (the last tile) can be incomplete. It has at least one key, so every row gets a
        // finite maximum.
        if ((key_tile + 1) * TALL_KEYS > shape.keys) {
#pragma unroll
            for (int i = 0; i < TALL_KEYS / 2; i++) // score i & 3 of key group i >> 2
                if (key_tile * TALL_KEYS + (i >> 2) * 8 + (lane & 3) * 2 + (i & 1) >= shape.keys)
                    scores[i] = __int_as_float(0xff800000); // -inf
        }
        float lane_max0 = scores[0], lane_max1 = scores[2];
#pragma unroll
        for (int group = 0; group < TALL_KEYS / 8; group++) {
            lane_max0 = fmaxf(lane_max0, fmaxf(scores[4 * group], scores[4 * group + 1]));
            lane_max1 = fmaxf(lane_max1, fmaxf(scores[4 * group + 2], scores[4 * group + 3]));
        }
        // Rescale only when a row maximum grew by more than a factor of 2^8.
        if (__any_sync(~0u,
                       fmaxf(fmaf(lane_max0, scale_log2, -row_max0), fmaf(lane_max1, scale_log2, -row_max1)) > 8.f)) {
            lane_max0 = fmaxf(lane_max0, __shfl_xor_sync(~0u, lane_max0, 1));
            lane_max1 = fmaxf(lane_max1, __shfl_xor_sync(~0u, lane_max1, 1));
            lane_max0 = fmaxf(lane_max0, __shfl_xor_sync(~0u, lane_max0, 2));
            lane_max1 = fmaxf(lane_max1, __shfl_xor_sync(~0u, lane_max1, 2));
            const float new_max0 = fmaxf(row_max0, lane_max0 * scale_log2),
                        new_max1 = fmaxf(row_max1, lane_max1 * scale_log2);
            const float rescale_factor0 = exp2_fast(row_max0 - new_max0),
                        rescale_factor1 = exp2_fast(row_max1 - new_max1);
            row_max0 = new_max0;
            row_max1 = new_max1;
            row_sum0 *= rescale_factor0;
            row_sum1 *= rescale_factor1;
#pragma unroll
            for (int half = 0; half < HALVES; half++)
#pragma unroll
                for (int i = 0; i < HALF_CHANNELS / 2; i++) acc[half][i] *= i & 2 ? rescale_factor1 : rescale_factor0;
        }
        u32 probabilities[TALL_KEYS / 4];
#pragma unroll
        for (int group = 0; group < TALL_KEYS / 8; group++) {
            const float p0 = exp2_fast(fmaf(scores[4 * group], scale_log2, -row_max0)),
                        p1 = exp2_fast(fmaf(scores[4 * group + 1], scale_log2, -row_max0)),
                        p2 = exp2_fast(fmaf(scores[4 * group + 2], scale_log2, -row_max1)),
                        p3 = exp2_fast(fmaf(scores[4 * group + 3], scale_log2, -row_max1));
            row_sum0 += p0 + p1;
            row_sum1 += p2 + p3;
            probabilities[2 * group] = pack_bf16(p0, p1);
            probabilities[2 * group + 1] = pack_bf16(p2, p3);
        }
        // O += P v, in k-steps of 16 keys, which are 16 rows of 128 bytes apart.
        mbarrier_wait(shared.full + 8 * stage, parity);
        const u32 v = v_low + stage * (KV_TILE_BYTES / 16);
#pragma unroll
        for (int half = 0; half < HALVES; half++) warpgroup_fence_operand(acc[half]);
        WGMMA_FENCE();
#pragma unroll
        for (int half = 0; half < HALVES; half++)
#pragma unroll
            for (int k_step = 0; k_step < TALL_KEYS / 16; k_step++)
                wgmma_registers<HALF_CHANNELS, SUMI_OPERANDS_BF16>::mma(
                    acc[half], probabilities + 4 * k_step,
                    wgmma_descriptor(v + half * HALF_SLABS * (KV_SLAB_BYTES / 16) + k_step * 128), 1);
        WGMMA_COMMIT();
        WGMMA_WAIT(0);
#pragma unroll
        for (int half = 0; half < HALVES; half++) warpgroup_fence_operand(acc[half]);
        if (is_leader) mbarrier_arrive(shared.empty + 8 * stage);
        if (++stage == TALL_STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    row_sum0 += __shfl_xor_sync(~0u, row_sum0, 1);
    row_sum0 += __shfl_xor_sync(~0u, row_sum0, 2);
    row_sum1 += __shfl_xor_sync(~0u, row_sum1, 1);
    row_sum1 += __shfl_xor_sync(~0u, row_sum1, 2);
    const float inverse_sum0 = 1.f / row_sum0, inverse_sum1 = 1.f / row_sum1;
    // Only this warpgroup reads these rows of q. Once all of its warps have done so, the memory becomes the staging
    // buffer of the output.
    consumer_sync(consumer);
    // stmatrix to the swizzled slabs of the output, see attention_forward_sm90.cuh.
#pragma unroll
    for (int i = 0; i < 4 * TALL_SLABS; i++) { // 16 channels
        const int row = (threadIdx.x & 96) / 2 + (lane & 15), channel = i * 16 + (lane >> 4) * 8;
        const float* o = &acc[i / (HALF_CHANNELS / 16)][i % (HALF_CHANNELS / 16) * 8];
        store_matrix_x4(
            own_q + (channel >> 6) * SLAB_BYTES + row * 128 + (((channel & 63) * 2) ^ ((row & 7) << 4)),
            pack_bf16(o[0] * inverse_sum0, o[1] * inverse_sum0), pack_bf16(o[2] * inverse_sum1, o[3] * inverse_sum1),
            pack_bf16(o[4] * inverse_sum0, o[5] * inverse_sum0), pack_bf16(o[6] * inverse_sum1, o[7] * inverse_sum1));
    }
    FENCE_PROXY_ASYNC();
    consumer_sync(consumer);
    if (is_leader) { // TMA drops rows past the last query
#pragma unroll
        for (int half = 0; half < HALVES; half++)
            tma_store_3d(&out_map, own_q + half * HALF_SLABS * SLAB_BYTES, query0 + consumer * TILE_QUERIES,
                         head * TALL_SLABS + half * HALF_SLABS);
        TMA_STORE_COMMIT();
        TMA_STORE_WAIT();
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    sumi_attention_sm90_d384_m2(const __grid_constant__ sumi_attention_map q_map,
                                const __grid_constant__ sumi_attention_map kv_map,
                                const __grid_constant__ sumi_attention_map out_map,
                                const __grid_constant__ sumi_attention_wide_shape shape)
{
    __shared__ __align__(8) u64 barriers[1 + 2 * TALL_STAGES];
    tall_shared shared;
    shared.q = (smem_addr(dynamic) + 1023) & ~1023u;
    shared.ring = shared.q + 2 * TALL_SLABS * SLAB_BYTES;
    shared.q_full = smem_addr(barriers);
    shared.full = shared.q_full + 8;
    shared.empty = shared.full + 8 * TALL_STAGES;
    if (threadIdx.x == 0) {
        mbarrier_init(shared.q_full, 1);
        for (int stage = 0; stage < TALL_STAGES; stage++) {
            mbarrier_init(shared.full + 8 * stage, 1);
            mbarrier_init(shared.empty + 8 * stage, 2); // the consumer warpgroups
        }
        FENCE_MBARRIER_INIT();
    }
    __syncthreads();
    const int tile = shape.tile_begin + blockIdx.x, head = tile / shape.tiles_per_head,
              query0 = tile % shape.tiles_per_head * TALL_ROWS;
    if (threadIdx.x < 128) {
        fewer_registers<24>();
        if (threadIdx.x < 32 && elect_one()) tall_produce(q_map, kv_map, shape, shared, head, query0);
    } else {
        more_registers<240>();
        tall_consume(out_map, shape, shared, head, query0, uniform((int)(threadIdx.x >> 7) - 1));
    }
}
