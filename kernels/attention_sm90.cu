// softmax(q k^T * scale) v on Hopper: bf16, float sums, head dims 64, 80, 96 and 128, grouped-query heads, sequences of
// one or two spans, or causal with one span. attention.h has the shapes and launches. There is no e4m3 attention yet.
//
//   producer warpgroup     copies tiles of K and V by TMA into a ring buffer of STAGES stages, and groups of 64
//                          queries of q
//   consumer warpgroups    64 queries each:  S = q k^T (wgmma) -> online softmax with lazy rescaling, in registers
//                                            -> O += P v (wgmma, P stays in registers) -> TMA store
//
// What made it fast, the largest gain first:
// - Three consumer warpgroups that are not ordered among each other: the tensor cores always find a warpgroup that is
// not computing its softmax, and a tile of K and V serves 192 queries.
// - Lazy rescaling: the sums and the output are rescaled only when a row maximum grew by more than a factor of 2^8.
// Both use the same older maximum until then, so nothing is approximated.
// - Persistent blocks: q and K of the block's next tile are loaded during the last products of the current one, and the
// output is stored from its own staging buffer while the next tile is computed.
//
// The keys are processed from the last tile to the first, so the mask for the incomplete last tile is in the first
// iteration, which is written separately. If the first span ends inside a tile of keys, that tile is masked in its
// iteration. Tiles of the same head have neighbouring numbers, so the resident blocks share K and V in L2. A sequence
// of 4224 tokens with 30 heads of 128 channels is 660 tiles: exactly 5 rounds of 132 multiprocessors.
//
// OVERLAP issues q k^T of the next tile before P v of the current tile. It is needed with two consumers, and for the
// short products of dim 64. POLYNOMIAL = n computes every n-th exponential on the FMA units. It was faster for dim 96
// only. Dim 80 has the settings of dim 96, unmeasured; with OVERLAP it runs out of registers (C7512). Tried and slower:
// consumers that take turns at the tensor cores (ping-pong), tiles of 80 .. 176 keys, q in registers, multicast in
// clusters.
//
// If the last round of tiles would leave at least half of the multiprocessors idle, the groups of 64 queries of its
// tiles are distributed over more blocks, one or two groups per block. Dividing the keys of these tiles among blocks is
// faster for some shapes, but then a result would depend on how an op is cut into slices.
//
// Pitfalls. Any C75xx warning of ptxas means that the wgmma are serialised: the build counts as failed. With OVERLAP, a
// barrier wait between q k^T and P v of one iteration gives C7520, so the loop waits for both tiles first. In a
// warpgroup without queries, the four warps must not follow the ring buffer independently: no wgmma keeps them
// together, and a late warp would miss a phase of a barrier.
#include "attention_sm90.cuh"

// The softmax state of a thread's two rows. With r = lane >> 2, a lane of warp w holds a quarter of the columns of rows
// 16 w + r (max0, sum0, fix0) and 16 w + r + 8 (max1, sum1, fix1) of the warpgroup's 64 rows. The accumulator is drawn
// in hopper.cuh. A maximum is the largest score * scale_log2, in all four lanes of the row. A sum covers this lane's
// columns only, until the end. fix: the factor by which the sums and the output are multiplied when `rescale` is set.
struct softmax_state {
    float max0, max1, sum0, sum1, fix0, fix1;
    bool rescale;
};

// Sequence, row tile, head and groups of a tile. They are computed from the tile's number wherever they are needed.
// Keeping them during the loop over keys would need registers that the kernel with three consumers does not have. The
// tile's groups of 64 queries are [first, first + count) of the sequence; count < 1 where there are no queries.
struct attention_place {
    int sequence, row_tile, head, first, count;
};
template <bool CAUSAL, int CONSUMERS>
ATTENTION_DEVICE attention_place find_place(const sumi_attention_sm90_shape& shape, int tile)
{
    attention_place at = {0, 0, 0, 0, CONSUMERS};
    if (tile >= shape.cut_begin) { // shape.parts blocks share the groups of one tile
        const int n = tile - shape.cut_begin, part = n % shape.parts;
        tile = shape.cut_begin + n / shape.parts;
        at.first = (part * CONSUMERS + shape.parts - 1) / shape.parts;
        at.count = ((part + 1) * CONSUMERS + shape.parts - 1) / shape.parts - at.first;
    }
    while (tile >= shape.sequences[at.sequence].tile_end) at.sequence++;
    const int row_tiles = shape.sequences[at.sequence].row_tiles,
              inside = tile - shape.sequences[at.sequence].tile_end + shape.heads * row_tiles;
    if (CAUSAL) { // the rows with the most keys first
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
    // Channels of a slab, whose rows in shared memory have 128, 64 or 32 bytes.
    static constexpr int SLAB = HEAD_DIM % 64 == 0 ? 64 : HEAD_DIM % 32 == 0 ? 32 : 16;
    static constexpr int SLAB_BYTES = SLAB * 2;
    static constexpr int SLABS = HEAD_DIM / SLAB;
    static constexpr int LAYOUT = SLAB_BYTES == 128 ? 1 : SLAB_BYTES == 64 ? 2 : 3;
    static constexpr int OCTET = 8 * SLAB_BYTES; // bytes of 8 rows of a slab
    static constexpr int TILE_BYTES = KEYS * HEAD_DIM * 2;
    static constexpr int GROUP_BYTES = 64 * HEAD_DIM * 2; // the queries of one warpgroup, or its output
    static constexpr int S_COUNT = KEYS / 2;              // floats of S per thread
    static constexpr int O_COUNT = HEAD_DIM / 2;          // floats of O per thread
    static constexpr int P_COUNT = KEYS / 4;              // words of P per thread, two bf16 each
    // A row maximum that grows by more than 2^LIMIT (as a factor of the exponentials) causes a rescale.
    static constexpr float LIMIT = 8.f;

    // Updates the row maxima and sums for the scores of a new tile. FIRST: the first tile, which sets them.
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
        // To see whether any row's maximum grew too much, each lane's own columns suffice, without the maximum of the
        // whole row. So the common case exchanges no values between lanes: the tensor cores wait while this code
        // runs.
        r.rescale = !FIRST && __any_sync(~0u, fmaxf(fmaf(a0, scale, -r.max0), fmaf(a1, scale, -r.max1)) > LIMIT);
        if (!FIRST && !r.rescale) return;
        a0 = fmaxf(a0, __shfl_xor_sync(~0u, a0, 1));
        a1 = fmaxf(a1, __shfl_xor_sync(~0u, a1, 1));
        a0 = fmaxf(a0, __shfl_xor_sync(~0u, a0, 2));
        a1 = fmaxf(a1, __shfl_xor_sync(~0u, a1, 2));
        if (FIRST) {
            // A causal row may see no key of its block's first tile. A finite maximum then makes exp2(-inf - max)
            // equal 0, where -inf - -inf would be NaN.
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
    // s = exp2(s * scale - max), and adds s to the sums. With POLYNOMIAL n, one of n values is computed on the FMA
    // units, alternately in the thread's first and second row.
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
    // P as the A operand of P v. The accumulator layout of S is the A layout (drawn in attention.cu), so no lanes
    // exchange values.
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
    // Sets the scores of columns >= limit0 in the thread's first row, and of columns >= limit1 in its second row, to
    // -inf.
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
    // q, k (and v in multiply_pv) are the low 32 bits of matrix descriptors. Here t counts k-steps of 16 channels.
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
    // t counts k-steps of 16 keys.
    ATTENTION_DEVICE void multiply_pv(float (&o)[O_COUNT], const u32 (&p)[P_COUNT], u32 v)
    {
#pragma unroll
        for (int t = 0; t < KEYS / 16; t++)
            attention_wgmma<HEAD_DIM>::rs(o, p + 4 * t, descriptor<LAYOUT, OCTET>(v + t * SLAB_BYTES), 1);
    }
    // Waits for the 128 threads of consumer warpgroup w.
    ATTENTION_DEVICE void warpgroup_sync(int w)
    {
        if (w == 0) named_sync<1, 128>();
        else if (w == 1 || CONSUMERS == 2) named_sync<2, 128>();
        else named_sync<3, 128>();
    }

    // Masks the keys of tile j that a row does not see, if there are any. reach (causal only): the number of keys that
    // this thread's first row sees.
    template <bool FIRST>
    ATTENTION_DEVICE void mask(float (&s)[S_COUNT], const sumi_attention_sm90_sequence& sequence, int j, int row,
                               int reach)
    {
        if (CAUSAL) { // keys past the sequence's end are also past every query's reach
            if (FIRST || (j + 1) * KEYS > row + 1) mask_scores(s, reach - j * KEYS, reach + 8 - j * KEYS);
        } else if (FIRST) {
            if (sequence.tail < KEYS) mask_scores(s, sequence.tail, sequence.tail);
        } else {
            if (j == sequence.boundary) mask_scores(s, sequence.boundary_keys, sequence.boundary_keys);
        }
    }

    // The last tile of keys that a row tile sees.
    ATTENTION_DEVICE int last_key_tile(const sumi_attention_sm90_sequence& sequence, int row_tile)
    {
        return CAUSAL ? min(sequence.key_tiles, ((row_tile + 1) * ROWS + KEYS - 1) / KEYS) - 1 : sequence.key_tiles - 1;
    }

    // Addresses in shared memory: the tiles, the staging buffer of the output, and the barriers of q and of the ring
    // buffers of K and V. The barrier of stage i is 8 * i bytes after the one of stage 0.
    struct places {
        u32 q, k, v, out, q_full, q_empty, k_full, k_empty, v_full, v_empty;
    };

    // The producer: one thread copies q, K and V of all tiles of this block, in the order in which they are used.
    ATTENTION_DEVICE void produce(const sumi_attention_sm90_maps& maps, const sumi_attention_sm90_shape& shape,
                                  const places& in)
    {
        u32 stage = 0, phase = 1, q_phase = 1; // waiting for parity 1 of a new barrier returns at once
        for (int tile = shape.tile_begin + blockIdx.x; tile < shape.tile_end; tile += gridDim.x) {
            const attention_place at = find_place<CAUSAL, CONSUMERS>(shape, tile);
            const sumi_attention_sm90_sequence& sequence = shape.sequences[at.sequence];
            const int kv_slab = at.head / shape.group * SLABS, last = last_key_tile(sequence, at.row_tile);
            for (int j = last; j >= 0; j--) {
                const int span = !CAUSAL && j >= sequence.key_tiles0, row = (span ? j - sequence.key_tiles0 : j) * KEYS;
                const sumi_attention_map* map = &maps.kv[at.sequence][span];
                mbarrier_wait(in.k_empty + 8 * stage, phase);
                mbarrier_expect(in.k_full + 8 * stage, TILE_BYTES);
                tensor_load(in.k + stage * TILE_BYTES, map, in.k_full + 8 * stage, row, shape.k_slab + kv_slab);
                if (j == last) { // the tile's groups of q, each to the buffer of the warpgroup that computes it
                    mbarrier_wait(in.q_empty, q_phase);
                    q_phase ^= 1;
                    mbarrier_expect(in.q_full, max(at.count, 0) * GROUP_BYTES);
                    for (int w = 0; w < at.count; w++) {
                        const int g = at.first + w, second = g >= sequence.groups0;
                        tensor_load(in.q + w * GROUP_BYTES, &maps.q[at.sequence][second], in.q_full,
                                    (second ? g - sequence.groups0 : g) * 64, at.head * SLABS);
                    }
                }
                mbarrier_wait(in.v_empty + 8 * stage, phase);
                mbarrier_expect(in.v_full + 8 * stage, TILE_BYTES);
                tensor_load(in.v + stage * TILE_BYTES, map, in.v_full + 8 * stage, row, shape.v_slab + kv_slab);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
        }
    }

    // A consumer warpgroup: computes one group of 64 queries of each tile of this block.
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
            mbarrier_wait(in.q_full, q_phase);
            q_phase ^= 1;
            if (w >= at.count) {   // this warpgroup has no queries: only release the stages of the ring buffer
                warpgroup_sync(w); // all four warps have seen this phase before the barrier is released
                if (leader) mbarrier_arrive(in.q_empty);
                for (; j >= 0; j--) {
                    if (warp == 0) {
                        mbarrier_wait(in.k_full + 8 * stage, phase);
                        if (leader) mbarrier_arrive(in.k_empty + 8 * stage);
                    }
                    if (warp == 0) {
                        mbarrier_wait(in.v_full + 8 * stage, phase);
                        if (leader) mbarrier_arrive(in.v_empty + 8 * stage);
                    }
                    if (++stage == STAGES) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
                warpgroup_sync(w);
                continue;
            }
            // reach is used in causal kernels only, which have one span
            const int row = group * 64, reach = row + warp * 16 + (lane >> 2) + 1;
            float o[O_COUNT], s[S_COUNT];
            u32 p[P_COUNT];
            softmax_state r;
            // The first iteration: the last tile of keys, which may be incomplete.
            mbarrier_wait(in.k_full + 8 * stage, phase);
            wgmma_fence();
            multiply_qk(s, opaque(q), k + stage * (TILE_BYTES / 16));
            wgmma_commit();
            wgmma_wait<0>();
            hold(s);
            if (leader) mbarrier_arrive(in.k_empty + 8 * stage);
            mask<true>(s, sequence, j, row, reach);
            maxima<true>(s, r, scale);
            exponentials(s, r, scale);
            pack_scores(p, s);
            // The output is zeroed, although the first product could overwrite it: only so does ptxas find enough
            // registers (otherwise C7512).
#pragma unroll
            for (int n = 0; n < O_COUNT; n++) o[n] = 0.f;
            if (OVERLAP) {
                for (j--; j >= 0; j--) {
                    u32 next = stage + 1, next_phase = phase;
                    if (next == STAGES) {
                        next = 0;
                        next_phase ^= 1;
                    }
                    // was loaded before the next K, so this wait costs nothing
                    mbarrier_wait(in.v_full + 8 * stage, phase);
                    mbarrier_wait(in.k_full + 8 * next, next_phase);
                    hold(s);
                    hold(o);
                    wgmma_fence();
                    multiply_qk(s, opaque(q), k + next * (TILE_BYTES / 16));
                    wgmma_commit();
                    multiply_pv(o, p, v + stage * (TILE_BYTES / 16));
                    wgmma_commit();
                    wgmma_wait<1>();
                    hold(s);
                    if (leader) mbarrier_arrive(in.k_empty + 8 * next);
                    mask<false>(s, sequence, j, row, reach);
                    maxima<false>(s, r, scale);
                    exponentials(s, r, scale);
                    wgmma_wait<0>();
                    hold(o);
                    if (leader) mbarrier_arrive(in.v_empty + 8 * stage);
                    pack_scores(p, s);
                    if (r.rescale) rescale_output(o, r);
                    stage = next;
                    phase = next_phase;
                }
                if (leader) mbarrier_arrive(in.q_empty);
                mbarrier_wait(in.v_full + 8 * stage, phase);
                hold(o);
                wgmma_fence();
                multiply_pv(o, p, v + stage * (TILE_BYTES / 16));
                wgmma_commit();
                wgmma_wait<0>();
                hold(o);
                if (leader) mbarrier_arrive(in.v_empty + 8 * stage);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            } else {
                mbarrier_wait(in.v_full + 8 * stage, phase);
                hold(o);
                wgmma_fence();
                multiply_pv(o, p, v + stage * (TILE_BYTES / 16));
                wgmma_commit();
                wgmma_wait<0>();
                hold(o);
                if (leader) mbarrier_arrive(in.v_empty + 8 * stage);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
                for (j--; j >= 0; j--) {
                    mbarrier_wait(in.k_full + 8 * stage, phase);
                    wgmma_fence();
                    multiply_qk(s, opaque(q), k + stage * (TILE_BYTES / 16));
                    wgmma_commit();
                    wgmma_wait<0>();
                    hold(s);
                    if (leader) mbarrier_arrive(in.k_empty + 8 * stage);
                    mask<false>(s, sequence, j, row, reach);
                    maxima<false>(s, r, scale);
                    if (r.rescale) rescale_output(o, r);
                    exponentials(s, r, scale);
                    pack_scores(p, s);
                    mbarrier_wait(in.v_full + 8 * stage, phase);
                    hold(o);
                    wgmma_fence();
                    multiply_pv(o, p, v + stage * (TILE_BYTES / 16));
                    wgmma_commit();
                    wgmma_wait<0>();
                    hold(o);
                    if (leader) mbarrier_arrive(in.v_empty + 8 * stage);
                    if (++stage == STAGES) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
                if (leader) mbarrier_arrive(in.q_empty);
            }
            // The sums of the four lanes of a row are added.
            r.sum0 += __shfl_xor_sync(~0u, r.sum0, 1);
            r.sum0 += __shfl_xor_sync(~0u, r.sum0, 2);
            r.sum1 += __shfl_xor_sync(~0u, r.sum1, 1);
            r.sum1 += __shfl_xor_sync(~0u, r.sum1, 2);
            const float inv0 = 1.f / r.sum0, inv1 = 1.f / r.sum1;
            if (leader) TMA_STORE_WAIT_READ(); // the previous store has read the staging buffer
            warpgroup_sync(w);
            // O as bf16 to the staging buffer. Lanes 8 i .. 8 i + 7 address matrix i of stmatrix.x4: matrix 0 has rows
            // 0-7 and channels 0-7 of the warp's 16 x 16 values, matrix 1 rows 8-15 and channels 0-7, matrices 2 and 3
            // channels 8-15.
#pragma unroll
            for (int n = 0; n < HEAD_DIM / 16; n++) {
                const int line = warp * 16 + (lane & 15), c = n * 16 + (lane >> 4) * 8,
                          swizzle = (SLAB_BYTES == 128  ? line & 7
                                     : SLAB_BYTES == 64 ? line >> 1 & 3
                                                        : line >> 2 & 1)
                                 << 4;
                store_matrix_x4(o_stage + (c / SLAB) * 64 * SLAB_BYTES + line * SLAB_BYTES
                                    + (((c % SLAB) * 2) ^ swizzle),
                                pack_bf16(o[8 * n] * inv0, o[8 * n + 1] * inv0),
                                pack_bf16(o[8 * n + 2] * inv1, o[8 * n + 3] * inv1),
                                pack_bf16(o[8 * n + 4] * inv0, o[8 * n + 5] * inv0),
                                pack_bf16(o[8 * n + 6] * inv1, o[8 * n + 7] * inv1));
            }
            FENCE_PROXY_ASYNC();
            warpgroup_sync(w);
            if (leader) { // TMA drops rows past the span's queries
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
            mbarrier_init(in.q_full, 1);
            mbarrier_init(in.q_empty, CONSUMERS);
            for (int i = 0; i < STAGES; i++) {
                mbarrier_init(in.k_full + 8 * i, 1);
                mbarrier_init(in.v_full + 8 * i, 1);
                mbarrier_init(in.k_empty + 8 * i, CONSUMERS);
                mbarrier_init(in.v_empty + 8 * i, CONSUMERS);
            }
            FENCE_MBARRIER_INIT();
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
