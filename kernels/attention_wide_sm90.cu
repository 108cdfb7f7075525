// softmax(q k^T * scale) v with head dim 384 or 512 on Hopper (the middle block of a VAE: one head, 16384 tokens):
// bf16, float sums, grouped-query heads, one span. attention.h has the shapes and launches.
//
// An output row needs as many float accumulators as it has channels. So a block computes only 64 query rows, and its
// two consumer warpgroups hold half of the channels each. Both compute the whole 64 x 64 tile of scores: q k^T is
// computed twice, which costs less than exchanging halves of it. With 64 rows per block, L2 bandwidth would be the
// limit. So two blocks form a cluster, and each loads half of the channels of every K and V tile and multicasts them to
// both blocks. The two blocks of a cluster compute neighbouring row key_tiles of one head. The second row tile may lie
// past the last query: then its loads are zeros, and its store writes nothing.
//
//   warpgroup 0 of a block   producer (one thread)
//   warpgroups 1 and 2       consumers: the same 64 rows; channels [0, dim / 2) and [dim / 2, dim) of the output
//
// Fragments: a thread of a consumer holds two rows, 16 warp + r and 16 warp + r + 8 with r = lane >> 2, of S and of its
// half of O, as drawn in hopper.cuh. P stays in registers as the A operand of P v (drawn in attention.cu).
#include "attention_sm90.cuh"

static constexpr int TILE_QUERIES = 64, TILE_KEYS = 64,
                     SLAB_BYTES = 64 * 128; // a slab: 64 rows x 64 channels, 128 bytes per row

// One arrival at the barrier at this offset in each of the two blocks.
ATTENTION_DEVICE void arrive_pair(u32 bar)
{
    mbarrier_arrive_cluster(bar, 0);
    mbarrier_arrive_cluster(bar, 1);
}

// SLABS: slabs of 64 channels of a head.
template <int SLABS>
ATTENTION_DEVICE void attention_wide(const sumi_attention_map& q_map, const sumi_attention_map& kv_map,
                                     const sumi_attention_map& out_map, const sumi_attention_wide_shape& shape)
{
    // slabs and channels of a consumer's output; bytes of a K or V tile
    constexpr int HALF_SLABS = SLABS / 2, CHANNELS = 64 * HALF_SLABS, TILE_BYTES = SLABS * SLAB_BYTES;
    extern __shared__ unsigned char dynamic[];
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
    pair_sync();
    const int side = blockIdx.x & 1, pair = shape.pair_begin + (blockIdx.x >> 1), head = pair / shape.pairs,
              row = (pair % shape.pairs * 2 + side) * TILE_QUERIES;
    const int key_tiles = (shape.keys + TILE_KEYS - 1) / TILE_KEYS, q_slab = head * SLABS,
              kv_slab = head / shape.group * SLABS + side * HALF_SLABS;
    if (threadIdx.x < 128) {
        fewer_registers<24>();
        if (threadIdx.x == 0) {
            mbarrier_expect(q_full, TILE_BYTES);
            tensor_load(shared_q, &q_map, q_full, row, q_slab);
            tensor_load(shared_q + TILE_BYTES / 2, &q_map, q_full, row, q_slab + HALF_SLABS);
            u32 phase = 1;
            for (int key_tile = key_tiles - 1; key_tile >= 0; key_tile--, phase ^= 1) {
                mbarrier_wait(k_empty, phase);
                mbarrier_expect(k_full, TILE_BYTES);
                tensor_load_pair(shared_k + side * HALF_SLABS * SLAB_BYTES, &kv_map, k_full, key_tile * TILE_KEYS,
                                 shape.k_slab + kv_slab);
                mbarrier_wait(v_empty, phase);
                mbarrier_expect(v_full, TILE_BYTES);
                tensor_load_pair(shared_v + side * HALF_SLABS * SLAB_BYTES, &kv_map, v_full, key_tile * TILE_KEYS,
                                 shape.v_slab + kv_slab);
            }
        }
    } else {
        more_registers<240>();
        const int consumer = uniform((int)(threadIdx.x >> 7) - 1), lane = threadIdx.x & 31,
                  warp = (threadIdx.x >> 5) & 3;
        const bool is_leader = (threadIdx.x & 127) == 0;
        const float scale = shape.scale_log2;
        const u32 q = descriptor_low(shared_q, 16), k = descriptor_low(shared_k, 16),
                  v = descriptor_low(shared_v + consumer * HALF_SLABS * SLAB_BYTES, SLAB_BYTES);
        float acc[CHANNELS / 2], scores[32], row_max0 = -1e30f, row_max1 = -1e30f, row_sum0 = 0.f, row_sum1 = 0.f;
        u32 probabilities[16], phase = 0;
#pragma unroll
        for (int n = 0; n < CHANNELS / 2; n++) acc[n] = 0.f;
        mbarrier_wait(q_full, 0);
        for (int key_tile = key_tiles - 1; key_tile >= 0; key_tile--, phase ^= 1) {
            mbarrier_wait(k_full, phase);
            const u32 q_descriptor = opaque(q), k_descriptor = opaque(k);
            wgmma_fence();
#pragma unroll
            for (int t = 0; t < 4 * SLABS; t++)
                attention_wgmma<64>::ss(
                    scores, descriptor<1, 1024>(q_descriptor + (t >> 2) * (SLAB_BYTES / 16) + (t & 3) * 2),
                    descriptor<1, 1024>(k_descriptor + (t >> 2) * (SLAB_BYTES / 16) + (t & 3) * 2), t);
            wgmma_commit();
            wgmma_wait<0>();
            hold(scores);
            if (is_leader) arrive_pair(k_empty);
            // Only the first iteration (the last tile) can be incomplete. It has at least one key, so every row gets a
            // finite maximum.
            if ((key_tile + 1) * TILE_KEYS > shape.keys) {
#pragma unroll
                for (int n = 0; n < 32; n++)
                    if (key_tile * TILE_KEYS + (n >> 2) * 8 + (lane & 3) * 2 + (n & 1) >= shape.keys)
                        scores[n] = __int_as_float(0xff800000);
            }
            float largest0 = scores[0], largest1 = scores[2];
#pragma unroll
            for (int n = 0; n < 8; n++) {
                largest0 = fmaxf(largest0, fmaxf(scores[4 * n], scores[4 * n + 1]));
                largest1 = fmaxf(largest1, fmaxf(scores[4 * n + 2], scores[4 * n + 3]));
            }
            // Rescale only when a row maximum grew by more than a factor of 2^8.
            if (__any_sync(~0u, fmaxf(fmaf(largest0, scale, -row_max0), fmaf(largest1, scale, -row_max1)) > 8.f)) {
                largest0 = fmaxf(largest0, __shfl_xor_sync(~0u, largest0, 1));
                largest1 = fmaxf(largest1, __shfl_xor_sync(~0u, largest1, 1));
                largest0 = fmaxf(largest0, __shfl_xor_sync(~0u, largest0, 2));
                largest1 = fmaxf(largest1, __shfl_xor_sync(~0u, largest1, 2));
                const float new_max0 = fmaxf(row_max0, largest0 * scale), new_max1 = fmaxf(row_max1, largest1 * scale);
                const float rescale0 = exp2_fast(row_max0 - new_max0), rescale1 = exp2_fast(row_max1 - new_max1);
                row_max0 = new_max0;
                row_max1 = new_max1;
                row_sum0 *= rescale0;
                row_sum1 *= rescale1;
#pragma unroll
                for (int n = 0; n < CHANNELS / 8; n++) {
                    acc[4 * n] *= rescale0;
                    acc[4 * n + 1] *= rescale0;
                    acc[4 * n + 2] *= rescale1;
                    acc[4 * n + 3] *= rescale1;
                }
            }
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const float e0 = exp2_fast(fmaf(scores[4 * n], scale, -row_max0)),
                            e1 = exp2_fast(fmaf(scores[4 * n + 1], scale, -row_max0));
                const float e2 = exp2_fast(fmaf(scores[4 * n + 2], scale, -row_max1)),
                            e3 = exp2_fast(fmaf(scores[4 * n + 3], scale, -row_max1));
                row_sum0 += e0 + e1;
                row_sum1 += e2 + e3;
                probabilities[2 * n] = pack_bf16(e0, e1);
                probabilities[2 * n + 1] = pack_bf16(e2, e3);
            }
            mbarrier_wait(v_full, phase);
            hold(acc);
            wgmma_fence();
#pragma unroll
            for (int t = 0; t < 4; t++)
                attention_wgmma<CHANNELS>::rs(acc, probabilities + 4 * t, descriptor<1, 1024>(v + t * 128), 1);
            wgmma_commit();
            wgmma_wait<0>();
            hold(acc);
            if (is_leader) arrive_pair(v_empty);
        }
        row_sum0 += __shfl_xor_sync(~0u, row_sum0, 1);
        row_sum0 += __shfl_xor_sync(~0u, row_sum0, 2);
        row_sum1 += __shfl_xor_sync(~0u, row_sum1, 1);
        row_sum1 += __shfl_xor_sync(~0u, row_sum1, 2);
        const float inverse_sum0 = 1.f / row_sum0, inverse_sum1 = 1.f / row_sum1;
        // both warpgroups have finished reading q: its memory becomes the staging buffer of the output
        named_sync<4, 256>();
        // stmatrix to the swizzled slabs of the output, see attention_sm90.cu.
#pragma unroll
        for (int n = 0; n < CHANNELS / 16; n++) {
            const int tile_row = warp * 16 + (lane & 15), c = consumer * CHANNELS + n * 16 + (lane >> 4) * 8;
            store_matrix_x4(shared_q + (c >> 6) * SLAB_BYTES + tile_row * 128
                                + (((c & 63) * 2) ^ ((tile_row & 7) << 4)),
                            pack_bf16(acc[8 * n] * inverse_sum0, acc[8 * n + 1] * inverse_sum0),
                            pack_bf16(acc[8 * n + 2] * inverse_sum1, acc[8 * n + 3] * inverse_sum1),
                            pack_bf16(acc[8 * n + 4] * inverse_sum0, acc[8 * n + 5] * inverse_sum0),
                            pack_bf16(acc[8 * n + 6] * inverse_sum1, acc[8 * n + 7] * inverse_sum1));
        }
        FENCE_PROXY_ASYNC();
        if (consumer == 0) named_sync<5, 128>();
        else named_sync<6, 128>();
        if (is_leader) {
            tensor_store(&out_map, shared_q + consumer * HALF_SLABS * SLAB_BYTES, row, q_slab + consumer * HALF_SLABS);
            TMA_STORE_COMMIT();
            TMA_STORE_WAIT();
        }
    }
    pair_sync(); // no block ends while the other block may still signal its barriers
}

#define ATTENTION_WIDE(DIM)                                                                                            \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1) sumi_attention_sm90_d##DIM(         \
        const __grid_constant__ sumi_attention_map q_map, const __grid_constant__ sumi_attention_map kv_map,           \
        const __grid_constant__ sumi_attention_map out_map, const __grid_constant__ sumi_attention_wide_shape shape)   \
    {                                                                                                                  \
        attention_wide<DIM / 64>(q_map, kv_map, out_map, shape);                                                       \
    }
ATTENTION_WIDE(384)
ATTENTION_WIDE(512)
