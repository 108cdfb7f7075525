// softmax(q k^T * scale) v with head dim 384 or 512 on Hopper (the middle block of a VAE: one head, 16384 tokens):
// bf16, float sums, grouped-query heads, one span. attention.h has the shapes and launches.
//
// An output row needs as many float accumulators as it has channels. So a block computes only 64 query rows, and its
// two consumer warpgroups hold half of the channels each. Both compute the whole 64 x 64 tile of scores: q k^T is
// computed twice, which costs less than exchanging halves of it. With 64 rows per block, L2 bandwidth would be the
// limit. So two blocks form a cluster, and each loads half of the channels of every K and V tile and multicasts them to
// both blocks. The two blocks of a cluster compute neighbouring row tiles of one head. The second row tile may lie past
// the last query: then its loads are zeros, and its store writes nothing.
//
//   warpgroup 0 of a block   producer (one thread)
//   warpgroups 1 and 2       consumers: the same 64 rows; channels [0, dim / 2) and [dim / 2, dim) of the output
//
// Fragments: a thread of a consumer holds two rows, 16 warp + r and 16 warp + r + 8 with r = lane >> 2, of S and of its
// half of O, as drawn in hopper.cuh. P stays in registers as the A operand of P v (drawn in attention.cu).
#include "attention_sm90.cuh"

static constexpr int ROWS = 64, KEYS = 64, SLAB_TILE = 64 * 128; // a slab: 64 rows x 64 channels, 128 bytes per row

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
    constexpr int HALF = SLABS / 2, CHANNELS = 64 * HALF, TILE_BYTES = SLABS * SLAB_TILE;
    extern __shared__ unsigned char dynamic[];
    const u32 q_at = (smem_addr(dynamic) + 1023) & ~1023u, k_at = q_at + TILE_BYTES, v_at = k_at + TILE_BYTES;
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
              row = (pair % shape.pairs * 2 + side) * ROWS;
    const int tiles = (shape.keys + KEYS - 1) / KEYS, q_slab = head * SLABS,
              kv_slab = head / shape.group * SLABS + side * HALF;
    if (threadIdx.x < 128) {
        fewer_registers<24>();
        if (threadIdx.x == 0) {
            mbarrier_expect(q_full, TILE_BYTES);
            tensor_load(q_at, &q_map, q_full, row, q_slab);
            tensor_load(q_at + TILE_BYTES / 2, &q_map, q_full, row, q_slab + HALF);
            u32 phase = 1;
            for (int j = tiles - 1; j >= 0; j--, phase ^= 1) {
                mbarrier_wait(k_empty, phase);
                mbarrier_expect(k_full, TILE_BYTES);
                tensor_load_pair(k_at + side * HALF * SLAB_TILE, &kv_map, k_full, j * KEYS, shape.k_slab + kv_slab);
                mbarrier_wait(v_empty, phase);
                mbarrier_expect(v_full, TILE_BYTES);
                tensor_load_pair(v_at + side * HALF * SLAB_TILE, &kv_map, v_full, j * KEYS, shape.v_slab + kv_slab);
            }
        }
    } else {
        more_registers<240>();
        const int w = uniform((int)(threadIdx.x >> 7) - 1), lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
        const bool leader = (threadIdx.x & 127) == 0;
        const float scale = shape.scale_log2;
        const u32 q = descriptor_low(q_at, 16), k = descriptor_low(k_at, 16),
                  v = descriptor_low(v_at + w * HALF * SLAB_TILE, SLAB_TILE);
        float o[CHANNELS / 2], s[32], max0 = -1e30f, max1 = -1e30f, sum0 = 0.f, sum1 = 0.f;
        u32 p[16], phase = 0;
#pragma unroll
        for (int n = 0; n < CHANNELS / 2; n++) o[n] = 0.f;
        mbarrier_wait(q_full, 0);
        for (int j = tiles - 1; j >= 0; j--, phase ^= 1) {
            mbarrier_wait(k_full, phase);
            const u32 qd = opaque(q), kd = opaque(k);
            wgmma_fence();
#pragma unroll
            for (int t = 0; t < 4 * SLABS; t++)
                attention_wgmma<64>::ss(s, descriptor<1, 1024>(qd + (t >> 2) * (SLAB_TILE / 16) + (t & 3) * 2),
                                        descriptor<1, 1024>(kd + (t >> 2) * (SLAB_TILE / 16) + (t & 3) * 2), t);
            wgmma_commit();
            wgmma_wait<0>();
            hold(s);
            if (leader) arrive_pair(k_empty);
            // Only the first iteration (the last tile) can be incomplete. It has at least one key, so every row gets a
            // finite maximum.
            if ((j + 1) * KEYS > shape.keys) {
#pragma unroll
                for (int n = 0; n < 32; n++)
                    if (j * KEYS + (n >> 2) * 8 + (lane & 3) * 2 + (n & 1) >= shape.keys)
                        s[n] = __int_as_float(0xff800000);
            }
            float a0 = s[0], a1 = s[2];
#pragma unroll
            for (int n = 0; n < 8; n++) {
                a0 = fmaxf(a0, fmaxf(s[4 * n], s[4 * n + 1]));
                a1 = fmaxf(a1, fmaxf(s[4 * n + 2], s[4 * n + 3]));
            }
            // Rescale only when a row maximum grew by more than a factor of 2^8.
            if (__any_sync(~0u, fmaxf(fmaf(a0, scale, -max0), fmaf(a1, scale, -max1)) > 8.f)) {
                a0 = fmaxf(a0, __shfl_xor_sync(~0u, a0, 1));
                a1 = fmaxf(a1, __shfl_xor_sync(~0u, a1, 1));
                a0 = fmaxf(a0, __shfl_xor_sync(~0u, a0, 2));
                a1 = fmaxf(a1, __shfl_xor_sync(~0u, a1, 2));
                const float n0 = fmaxf(max0, a0 * scale), n1 = fmaxf(max1, a1 * scale);
                const float c0 = exp2_fast(max0 - n0), c1 = exp2_fast(max1 - n1);
                max0 = n0;
                max1 = n1;
                sum0 *= c0;
                sum1 *= c1;
#pragma unroll
                for (int n = 0; n < CHANNELS / 8; n++) {
                    o[4 * n] *= c0;
                    o[4 * n + 1] *= c0;
                    o[4 * n + 2] *= c1;
                    o[4 * n + 3] *= c1;
                }
            }
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const float e0 = exp2_fast(fmaf(s[4 * n], scale, -max0)),
                            e1 = exp2_fast(fmaf(s[4 * n + 1], scale, -max0));
                const float e2 = exp2_fast(fmaf(s[4 * n + 2], scale, -max1)),
                            e3 = exp2_fast(fmaf(s[4 * n + 3], scale, -max1));
                sum0 += e0 + e1;
                sum1 += e2 + e3;
                p[2 * n] = pack_bf16(e0, e1);
                p[2 * n + 1] = pack_bf16(e2, e3);
            }
            mbarrier_wait(v_full, phase);
            hold(o);
            wgmma_fence();
#pragma unroll
            for (int t = 0; t < 4; t++)
                attention_wgmma<CHANNELS>::rs(o, p + 4 * t, descriptor<1, 1024>(v + t * 128), 1);
            wgmma_commit();
            wgmma_wait<0>();
            hold(o);
            if (leader) arrive_pair(v_empty);
        }
        sum0 += __shfl_xor_sync(~0u, sum0, 1);
        sum0 += __shfl_xor_sync(~0u, sum0, 2);
        sum1 += __shfl_xor_sync(~0u, sum1, 1);
        sum1 += __shfl_xor_sync(~0u, sum1, 2);
        const float inv0 = 1.f / sum0, inv1 = 1.f / sum1;
        // both warpgroups have finished reading q: its memory becomes the staging buffer of the output
        named_sync<4, 256>();
        // stmatrix to the swizzled slabs of the output, see attention_sm90.cu.
#pragma unroll
        for (int n = 0; n < CHANNELS / 16; n++) {
            const int line = warp * 16 + (lane & 15), c = w * CHANNELS + n * 16 + (lane >> 4) * 8;
            store_matrix_x4(q_at + (c >> 6) * SLAB_TILE + line * 128 + (((c & 63) * 2) ^ ((line & 7) << 4)),
                            pack_bf16(o[8 * n] * inv0, o[8 * n + 1] * inv0),
                            pack_bf16(o[8 * n + 2] * inv1, o[8 * n + 3] * inv1),
                            pack_bf16(o[8 * n + 4] * inv0, o[8 * n + 5] * inv0),
                            pack_bf16(o[8 * n + 6] * inv1, o[8 * n + 7] * inv1));
        }
        FENCE_PROXY_ASYNC();
        if (w == 0) named_sync<5, 128>();
        else named_sync<6, 128>();
        if (leader) {
            tensor_store(&out_map, q_at + w * HALF * SLAB_TILE, row, q_slab + w * HALF);
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
