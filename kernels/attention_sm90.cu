// softmax(q k^T * scale) v on Hopper: bf16, float sums, head dims 64, 80, 96, 128, grouped heads, one or two key spans,
// or causal over one. attention.h has shapes and launches. There is no e4m3 attention yet.
//
//   producer warpgroup    K, V tiles by TMA into a ring of STAGES; 64-query groups of q
//   CONSUMERS warpgroups  64 queries each:  S = q k^T (wgmma) -> lazy online softmax in registers -> O += P v (wgmma, P stays in registers) -> TMA store
//
// What made it fast, in order: three consumers without any ordering between them (the tensor cores always find one that
// is not in its softmax, and a K, V tile serves 192 queries); lazy rescaling, only when a row maximum grew by more than
// 2^8 (sums and output share the stale maximum, so nothing is approximated); persistent blocks (next q and K load
// during the last products, the output drains from its own staging memory under the next tile). Keys are walked from
// the last tile down, so the tail's mask stands in the peeled first step; a first span that ends inside a tile is
// masked when the walk gets there. Tiles of the same head are neighbours: resident blocks share K and V in L2. 4224 x
// 30 heads x 128 are 660 tiles: exactly 5 rounds of 132 multiprocessors.
//
// OVERLAP issues q k^T of the next tile before p v of this one: needed with two consumers, and for the short products
// of dim 64. POLYNOMIAL n computes every n-th exponential on the FMA units: a gain for dim 96 only. Dim 80 has dim 96's
// settings, unmeasured; with OVERLAP its registers do not suffice (C7512). Tried and slower: turns at the tensor cores
// (ping-pong), 80 .. 176 keys, q in registers, multicast in clusters. Where the last round leaves half of the device
// empty, its tiles are shared out by groups of queries, a warpgroup or two to a block. Cutting them along the keys is
// faster for some shapes, but would make a result depend on how an op is cut into slices.
//
// Traps. Any C75xx warning of ptxas means serialised products: a failed build. A barrier wait between q k^T and p v of
// one step gives C7520: wait for both tiles first. A warpgroup without queries must not let its four warps follow the
// ring freely: without wgmma nothing keeps them together and a late warp misses a phase.
#include "attention_sm90.cuh"

// Row maxima are kept times scale_log2. Each thread holds two rows, a quarter of the columns of each.
struct softmax_state {
    float max0, max1, sum0, sum1, fix0, fix1;
    bool rescale;
};

// Where a tile lies. Found from the tile's number wherever it is needed: kept through the key loop it would cost
// registers that the three-consumer kernel does not have.
// its groups of 64 queries: [first, first + count); less than one where there are no queries
struct attention_place {
    int sequence, row_tile, head, first, count;
};
template <bool CAUSAL, int CONSUMERS>
ATTENTION_DEVICE attention_place find_place(const sumi_attention_sm90_shape& shape, int tile)
{
    attention_place at = {0, 0, 0, 0, CONSUMERS};
    if (tile >= shape.cut_begin) { // one of shape.parts blocks that share a tile's groups
        const int n = tile - shape.cut_begin, part = n % shape.parts;
        tile = shape.cut_begin + n / shape.parts;
        at.first = (part * CONSUMERS + shape.parts - 1) / shape.parts;
        at.count = ((part + 1) * CONSUMERS + shape.parts - 1) / shape.parts - at.first;
    }
    while (tile >= shape.sequences[at.sequence].tile_end) at.sequence++;
    const int row_tiles = shape.sequences[at.sequence].row_tiles,
              inside = tile - shape.sequences[at.sequence].tile_end + shape.heads * row_tiles;
    if (CAUSAL) { // the rows with most keys first
        at.row_tile = row_tiles - 1 - inside / shape.heads;
        at.head = inside % shape.heads;
    } else {
        at.head = inside / row_tiles;
        at.row_tile = inside % row_tiles;
    }
    at.first += at.row_tile * CONSUMERS;
    at.count = min(at.count, shape.sequences[at.sequence].groups - at.first);
    return at;
}

template <int HEAD_DIM, int CONSUMERS, int STAGES, bool OVERLAP, int POLYNOMIAL, bool CAUSAL> struct attention_sm90 {
    static constexpr int KEYS = 128;
    static constexpr int ROWS = CONSUMERS * 64;
    // channels per swizzled slab: rows of 128, 64 or 32 bytes
    static constexpr int SLAB = HEAD_DIM % 64 == 0 ? 64 : HEAD_DIM % 32 == 0 ? 32 : 16;
    static constexpr int SLAB_BYTES = SLAB * 2;
    static constexpr int SLABS = HEAD_DIM / SLAB;
    static constexpr int LAYOUT = SLAB_BYTES == 128 ? 1 : SLAB_BYTES == 64 ? 2 : 3;
    static constexpr int OCTET = 8 * SLAB_BYTES; // bytes of 8 rows of a slab
    static constexpr int TILE_BYTES = KEYS * HEAD_DIM * 2;
    static constexpr int GROUP_BYTES = 64 * HEAD_DIM * 2; // one warpgroup's queries, or its output
    static constexpr int S_COUNT = KEYS / 2;              // registers per thread: scores,
    static constexpr int O_COUNT = HEAD_DIM / 2;          // output,
    static constexpr int P_COUNT = KEYS / 4;              // packed probabilities
    // growth of a row maximum, in powers of two, that forces a rescale
    static constexpr float LIMIT = 8.f;

    template <bool FIRST> ATTENTION_DEVICE void maxima(const float (&s)[S_COUNT], softmax_state& r, float scale)
    {
        float a0 = fmaxf(s[0], s[1]), a1 = fmaxf(s[2], s[3]), b0 = fmaxf(s[4], s[5]), b1 = fmaxf(s[6], s[7]);
#pragma unroll
        for (int n = 2; n < S_COUNT / 4; n += 2) {
            a0 = fmaxf(a0, fmaxf(s[4 * n], s[4 * n + 1]));
            a1 = fmaxf(a1, fmaxf(s[4 * n + 2], s[4 * n + 3]));
            b0 = fmaxf(b0, fmaxf(s[4 * n + 4], s[4 * n + 5]));
            b1 = fmaxf(b1, fmaxf(s[4 * n + 6], s[4 * n + 7]));
        }
        a0 = fmaxf(a0, b0);
        a1 = fmaxf(a1, b1);
        // Whether a row has grown needs no row's maximum, only any thread's: the common path exchanges nothing, and its
        // length is what the tensor cores wait for.
        r.rescale = !FIRST && __any_sync(~0u, fmaxf(fmaf(a0, scale, -r.max0), fmaf(a1, scale, -r.max1)) > LIMIT);
        if (!FIRST && !r.rescale) return;
        a0 = fmaxf(a0, __shfl_xor_sync(~0u, a0, 1));
        a1 = fmaxf(a1, __shfl_xor_sync(~0u, a1, 1));
        a0 = fmaxf(a0, __shfl_xor_sync(~0u, a0, 2));
        a1 = fmaxf(a1, __shfl_xor_sync(~0u, a1, 2));
        if (FIRST) {
            // Causal: a row may see no key of its block's first tile. A finite maximum then makes exp2(-inf - max) 0,
            // where -inf - -inf would be no number.
            r.max0 = CAUSAL ? fmaxf(a0 * scale, -1e30f) : a0 * scale;
            r.max1 = CAUSAL ? fmaxf(a1 * scale, -1e30f) : a1 * scale;
            r.sum0 = r.sum1 = 0.f;
            return;
        }
        const float n0 = fmaxf(r.max0, a0 * scale), n1 = fmaxf(r.max1, a1 * scale);
        r.fix0 = exp2_fast(r.max0 - n0);
        r.fix1 = exp2_fast(r.max1 - n1);
        r.max0 = n0;
        r.max1 = n1;
        r.sum0 *= r.fix0;
        r.sum1 *= r.fix1;
    }
    ATTENTION_DEVICE void exponentials(float (&s)[S_COUNT], softmax_state& r, float scale)
    {
        const float z0 = r.max0, z1 = r.max1;
        float t0 = 0.f, t1 = 0.f;
#pragma unroll
        for (int n = 0; n < S_COUNT / 4; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float x = fmaf(s[4 * n + i], scale, i < 2 ? -z0 : -z1);
                s[4 * n + i] = POLYNOMIAL && (4 * n + (i ^ (n & 2))) % (POLYNOMIAL ? POLYNOMIAL : 1) == 0
                                 ? exp2_polynomial(x)
                                 : exp2_fast(x);
            }
            r.sum0 += s[4 * n];
            t0 += s[4 * n + 1];
            r.sum1 += s[4 * n + 2];
            t1 += s[4 * n + 3];
        }
        r.sum0 += t0;
        r.sum1 += t1;
    }
    // The accumulator layout is the A fragment layout: no shuffles.
    ATTENTION_DEVICE void pack_scores(u32 (&p)[P_COUNT], const float (&s)[S_COUNT])
    {
#pragma unroll
        for (int n = 0; n < P_COUNT; n++) p[n] = pack_bf16(s[2 * n], s[2 * n + 1]);
    }
    ATTENTION_DEVICE void rescale_output(float (&o)[O_COUNT], const softmax_state& r)
    {
#pragma unroll
        for (int n = 0; n < O_COUNT / 4; n++) {
            o[4 * n] *= r.fix0;
            o[4 * n + 1] *= r.fix0;
            o[4 * n + 2] *= r.fix1;
            o[4 * n + 3] *= r.fix1;
        }
    }
    // Columns at and past limit0 (row 0) and limit1 (row 1) of the tile are masked.
    ATTENTION_DEVICE void mask_scores(float (&s)[S_COUNT], int limit0, int limit1)
    {
        const int lane = (threadIdx.x & 3) * 2;
        const float masked = __int_as_float(0xff800000); // -inf
#pragma unroll
        for (int n = 0; n < S_COUNT / 4; n++) {
            const int c = n * 8 + lane;
            if (c >= limit0) s[4 * n] = masked;
            if (c + 1 >= limit0) s[4 * n + 1] = masked;
            if (c >= limit1) s[4 * n + 2] = masked;
            if (c + 1 >= limit1) s[4 * n + 3] = masked;
        }
    }
    // q, k and v are low descriptor words.
    ATTENTION_DEVICE void multiply_qk(float (&s)[S_COUNT], u32 q, u32 k)
    {
#pragma unroll
        for (int t = 0; t < HEAD_DIM / 16; t++) {
            const int slab = t * 32 / SLAB_BYTES, at = t * 32 % SLAB_BYTES;
            const u64 a = descriptor<LAYOUT, OCTET>(q + (slab * 64 * SLAB_BYTES + at) / 16),
                      b = descriptor<LAYOUT, OCTET>(k + (slab * KEYS * SLAB_BYTES + at) / 16);
            attention_wgmma<KEYS>::ss(s, a, b, t);
        }
    }
    ATTENTION_DEVICE void multiply_pv(float (&o)[O_COUNT], const u32 (&p)[P_COUNT], u32 v)
    {
#pragma unroll
        for (int t = 0; t < KEYS / 16; t++)
            attention_wgmma<HEAD_DIM>::rs(o, p + 4 * t, descriptor<LAYOUT, OCTET>(v + t * SLAB_BYTES), 1);
    }
    ATTENTION_DEVICE void warpgroup_sync(int w)
    {
        if (w == 0) named_sync<1, 128>();
        else if (w == 1 || CONSUMERS == 2) named_sync<2, 128>();
        else named_sync<3, 128>();
    }

    // What of tile j a row does not see, when there is anything. `reach`: causal, the keys that this thread's first row
    // sees.
    template <bool FIRST>
    ATTENTION_DEVICE void mask(float (&s)[S_COUNT], const sumi_attention_sm90_sequence& sequence, int j, int row,
                               int reach)
    {
        if (CAUSAL) { // keys past the last one are past every query's reach
            if (FIRST || (j + 1) * KEYS > row + 1) mask_scores(s, reach - j * KEYS, reach + 8 - j * KEYS);
        } else if (FIRST) {
            if (sequence.tail < KEYS) mask_scores(s, sequence.tail, sequence.tail);
        } else {
            if (j == sequence.boundary) mask_scores(s, sequence.boundary_keys, sequence.boundary_keys);
        }
    }

    ATTENTION_DEVICE int last_key_tile(const sumi_attention_sm90_sequence& sequence, int row_tile)
    {
        return CAUSAL ? min(sequence.key_tiles, ((row_tile + 1) * ROWS + KEYS - 1) / KEYS) - 1 : sequence.key_tiles - 1;
    }

    // Addresses in shared memory: tiles and staging, and the barriers of q and of the rings (stage i: 8 i further on).
    struct places {
        u32 q, k, v, out, q_full, q_empty, k_full, k_empty, v_full, v_empty;
    };

    ATTENTION_DEVICE void produce(const sumi_attention_sm90_maps& maps, const sumi_attention_sm90_shape& shape,
                                  const places& in)
    {
        u32 stage = 0, phase = 1, q_phase = 1; // a fresh barrier counts as passed for parity 1
        for (int tile = shape.tile_begin + blockIdx.x; tile < shape.tile_end; tile += gridDim.x) {
            const attention_place at = find_place<CAUSAL, CONSUMERS>(shape, tile);
            const sumi_attention_sm90_sequence& sequence = shape.sequences[at.sequence];
            const int kv_slab = at.head / shape.group * SLABS, last = last_key_tile(sequence, at.row_tile);
            for (int j = last; j >= 0; j--) {
                const int span = !CAUSAL && j >= sequence.key_tiles0, row = (span ? j - sequence.key_tiles0 : j) * KEYS;
                const sumi_attention_map* map = &maps.kv[at.sequence][span];
                mb_wait(in.k_empty + 8 * stage, phase);
                mb_expect(in.k_full + 8 * stage, TILE_BYTES);
                tensor_load(in.k + stage * TILE_BYTES, map, in.k_full + 8 * stage, row, shape.k_slab + kv_slab);
                if (j == last) { // the groups of q that exist, into the warpgroups' own places
                    mb_wait(in.q_empty, q_phase);
                    q_phase ^= 1;
                    mb_expect(in.q_full, max(at.count, 0) * GROUP_BYTES);
                    for (int w = 0; w < at.count; w++) {
                        const int g = at.first + w, second = g >= sequence.groups0;
                        tensor_load(in.q + w * GROUP_BYTES, &maps.q[at.sequence][second], in.q_full,
                                    (second ? g - sequence.groups0 : g) * 64, at.head * SLABS);
                    }
                }
                mb_wait(in.v_empty + 8 * stage, phase);
                mb_expect(in.v_full + 8 * stage, TILE_BYTES);
                tensor_load(in.v + stage * TILE_BYTES, map, in.v_full + 8 * stage, row, shape.v_slab + kv_slab);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
        }
    }

    ATTENTION_DEVICE void consume(const sumi_attention_sm90_maps& maps, const sumi_attention_sm90_shape& shape,
                                  const places& in)
    {
        const int w = uniform((int)(threadIdx.x >> 7) - 1), lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
        const bool leader = (threadIdx.x & 127) == 0;
        const u32 o_stage = in.out + w * GROUP_BYTES;
        const u32 q = descriptor_low(in.q + w * GROUP_BYTES, 16), k = descriptor_low(in.k, 16),
                  v = descriptor_low(in.v, KEYS * SLAB_BYTES);
        const float scale = shape.scale_log2;
        u32 stage = 0, phase = 0, q_phase = 0;
        for (int tile = shape.tile_begin + blockIdx.x; tile < shape.tile_end; tile += gridDim.x) {
            const attention_place at = find_place<CAUSAL, CONSUMERS>(shape, tile);
            const sumi_attention_sm90_sequence& sequence = shape.sequences[at.sequence];
            const int group = at.first + w;
            int j = last_key_tile(sequence, at.row_tile);
            mb_wait(in.q_full, q_phase);
            q_phase ^= 1;
            if (w >= at.count) {   // no queries here: keep the ring turning
                warpgroup_sync(w); // all four warps have seen this phase before it is released
                if (leader) mb_arrive(in.q_empty);
                for (; j >= 0; j--) {
                    if (warp == 0) {
                        mb_wait(in.k_full + 8 * stage, phase);
                        if (leader) mb_arrive(in.k_empty + 8 * stage);
                    }
                    if (warp == 0) {
                        mb_wait(in.v_full + 8 * stage, phase);
                        if (leader) mb_arrive(in.v_empty + 8 * stage);
                    }
                    if (++stage == STAGES) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
                warpgroup_sync(w);
                continue;
            }
            const int row = group * 64, reach = row + warp * 16 + (lane >> 2) + 1; // causal only: one span
            float o[O_COUNT], s[S_COUNT];
            u32 p[P_COUNT];
            softmax_state r;
            // the first tile: may hold the tail of the keys
            mb_wait(in.k_full + 8 * stage, phase);
            wgmma_fence();
            multiply_qk(s, opaque(q), k + stage * (TILE_BYTES / 16));
            wgmma_commit();
            wgmma_wait<0>();
            hold(s);
            if (leader) mb_arrive(in.k_empty + 8 * stage);
            mask<true>(s, sequence, j, row, reach);
            maxima<true>(s, r, scale);
            exponentials(s, r, scale);
            pack_scores(p, s);
            // Zeroed, although the first product could overwrite it: so ptxas finds registers for everything (without:
            // C7512).
#pragma unroll
            for (int n = 0; n < O_COUNT; n++) o[n] = 0.f;
            if (OVERLAP) {
                for (j--; j >= 0; j--) {
                    u32 next = stage + 1, next_phase = phase;
                    if (next == STAGES) {
                        next = 0;
                        next_phase ^= 1;
                    }
                    mb_wait(in.v_full + 8 * stage, phase); // loaded before the next k: costs nothing here
                    mb_wait(in.k_full + 8 * next, next_phase);
                    hold(s);
                    hold(o);
                    wgmma_fence();
                    multiply_qk(s, opaque(q), k + next * (TILE_BYTES / 16));
                    wgmma_commit();
                    multiply_pv(o, p, v + stage * (TILE_BYTES / 16));
                    wgmma_commit();
                    wgmma_wait<1>();
                    hold(s);
                    if (leader) mb_arrive(in.k_empty + 8 * next);
                    mask<false>(s, sequence, j, row, reach);
                    maxima<false>(s, r, scale);
                    exponentials(s, r, scale);
                    wgmma_wait<0>();
                    hold(o);
                    if (leader) mb_arrive(in.v_empty + 8 * stage);
                    pack_scores(p, s);
                    if (r.rescale) rescale_output(o, r);
                    stage = next;
                    phase = next_phase;
                }
                if (leader) mb_arrive(in.q_empty);
                mb_wait(in.v_full + 8 * stage, phase);
                hold(o);
                wgmma_fence();
                multiply_pv(o, p, v + stage * (TILE_BYTES / 16));
                wgmma_commit();
                wgmma_wait<0>();
                hold(o);
                if (leader) mb_arrive(in.v_empty + 8 * stage);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            } else {
                mb_wait(in.v_full + 8 * stage, phase);
                hold(o);
                wgmma_fence();
                multiply_pv(o, p, v + stage * (TILE_BYTES / 16));
                wgmma_commit();
                wgmma_wait<0>();
                hold(o);
                if (leader) mb_arrive(in.v_empty + 8 * stage);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
                for (j--; j >= 0; j--) {
                    mb_wait(in.k_full + 8 * stage, phase);
                    wgmma_fence();
                    multiply_qk(s, opaque(q), k + stage * (TILE_BYTES / 16));
                    wgmma_commit();
                    wgmma_wait<0>();
                    hold(s);
                    if (leader) mb_arrive(in.k_empty + 8 * stage);
                    mask<false>(s, sequence, j, row, reach);
                    maxima<false>(s, r, scale);
                    if (r.rescale) rescale_output(o, r);
                    exponentials(s, r, scale);
                    pack_scores(p, s);
                    mb_wait(in.v_full + 8 * stage, phase);
                    hold(o);
                    wgmma_fence();
                    multiply_pv(o, p, v + stage * (TILE_BYTES / 16));
                    wgmma_commit();
                    wgmma_wait<0>();
                    hold(o);
                    if (leader) mb_arrive(in.v_empty + 8 * stage);
                    if (++stage == STAGES) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
                if (leader) mb_arrive(in.q_empty);
            }
            r.sum0 += __shfl_xor_sync(~0u, r.sum0, 1);
            r.sum0 += __shfl_xor_sync(~0u, r.sum0, 2);
            r.sum1 += __shfl_xor_sync(~0u, r.sum1, 1);
            r.sum1 += __shfl_xor_sync(~0u, r.sum1, 2);
            const float inv0 = 1.f / r.sum0, inv1 = 1.f / r.sum1;
            if (leader) TMA_STORE_WAIT_READ(); // the staging memory is free again
            warpgroup_sync(w);
#pragma unroll
            for (int n = 0; n < HEAD_DIM / 16; n++) {
                const int line = warp * 16 + (lane & 15), c = n * 16 + (lane >> 4) * 8,
                          swizzle = (SLAB_BYTES == 128  ? line & 7
                                     : SLAB_BYTES == 64 ? line >> 1 & 3
                                                        : line >> 2 & 1)
                                 << 4;
                stmatrix4(o_stage + (c / SLAB) * 64 * SLAB_BYTES + line * SLAB_BYTES + (((c % SLAB) * 2) ^ swizzle),
                          pack_bf16(o[8 * n] * inv0, o[8 * n + 1] * inv0),
                          pack_bf16(o[8 * n + 2] * inv1, o[8 * n + 3] * inv1),
                          pack_bf16(o[8 * n + 4] * inv0, o[8 * n + 5] * inv0),
                          pack_bf16(o[8 * n + 6] * inv1, o[8 * n + 7] * inv1));
            }
            FENCE_PROXY_ASYNC();
            warpgroup_sync(w);
            if (leader) { // rows past the span's queries are outside the map
                const attention_place to = find_place<CAUSAL, CONSUMERS>(shape, opaque(tile));
                const int g = to.first + w, groups0 = shape.sequences[to.sequence].groups0, second = g >= groups0;
                tensor_store(&maps.out[to.sequence][second], o_stage, (second ? g - groups0 : g) * 64, to.head * SLABS);
                TMA_STORE_COMMIT();
            }
        }
        if (leader) TMA_STORE_WAIT();
    }

    ATTENTION_DEVICE void run(const sumi_attention_sm90_maps& maps, const sumi_attention_sm90_shape& shape)
    {
        extern __shared__ unsigned char dynamic[];
        places in;
        in.q = (smem_addr(dynamic) + 1023) & ~1023u;
        in.k = in.q + CONSUMERS * GROUP_BYTES;
        in.v = in.k + STAGES * TILE_BYTES;
        in.out = in.v + STAGES * TILE_BYTES;
        __shared__ __align__(8) u64 barriers[2 + 4 * STAGES];
        in.q_full = smem_addr(barriers);
        in.q_empty = in.q_full + 8;
        in.k_full = in.q_empty + 8;
        in.k_empty = in.k_full + 8 * STAGES;
        in.v_full = in.k_empty + 8 * STAGES;
        in.v_empty = in.v_full + 8 * STAGES;
        if (threadIdx.x == 0) {
            prefetch_map(&maps.kv[0][0]);
            prefetch_map(&maps.q[0][0]);
            mb_init(in.q_full, 1);
            mb_init(in.q_empty, CONSUMERS);
            for (int i = 0; i < STAGES; i++) {
                mb_init(in.k_full + 8 * i, 1);
                mb_init(in.v_full + 8 * i, 1);
                mb_init(in.k_empty + 8 * i, CONSUMERS);
                mb_init(in.v_empty + 8 * i, CONSUMERS);
            }
            FENCE_MBAR_INIT();
        }
        __syncthreads();
        if (threadIdx.x < 128) {
            fewer_registers<CONSUMERS == 3 ? 32 : 24>();
            if (threadIdx.x < 32 && elect_one()) produce(maps, shape, in);
        } else {
            more_registers<CONSUMERS == 3 ? 160 : 240>();
            consume(maps, shape, in);
        }
    }
};

#define ATTENTION_KERNEL(NAME, DIM, CONSUMERS, STAGES, OVERLAP, POLYNOMIAL, CAUSAL)                                    \
    extern "C" __global__ void __launch_bounds__(128 * (CONSUMERS + 1), 1)                                             \
        NAME(const __grid_constant__ sumi_attention_sm90_maps maps,                                                    \
             const __grid_constant__ sumi_attention_sm90_shape shape)                                                  \
    {                                                                                                                  \
        attention_sm90<DIM, CONSUMERS, STAGES, OVERLAP, POLYNOMIAL, CAUSAL>::run(maps, shape);                         \
    }
//               name                         dim  consumers stages overlap polynomial causal
ATTENTION_KERNEL(sumi_attention_sm90_d128, 128, 3, 2, false, 0, false)
ATTENTION_KERNEL(sumi_attention_sm90_d128_c2, 128, 2, 2, true, 0, false)
ATTENTION_KERNEL(sumi_attention_sm90_d128_causal, 128, 3, 2, false, 0, true)
ATTENTION_KERNEL(sumi_attention_sm90_d96, 96, 3, 2, false, 8, false)
ATTENTION_KERNEL(sumi_attention_sm90_d96_causal, 96, 3, 2, false, 8, true)
ATTENTION_KERNEL(sumi_attention_sm90_d80, 80, 3, 4, false, 8, false)
ATTENTION_KERNEL(sumi_attention_sm90_d64, 64, 3, 4, true, 0, false)
ATTENTION_KERNEL(sumi_attention_sm90_d64_causal, 64, 3, 4, true, 0, true)
