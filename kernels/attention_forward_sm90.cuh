// The attention of Hopper for head dims 64 to 128: the code that attention_sm90.cu (bf16) and attention_fp8_sm90.cu
// (e4m3) share. attention.h has the shapes and launches.
//
//   producer warpgroup     copies tiles of K and V by TMA into a ring buffer of STAGES stages, and groups of 64
//                          queries of q
//   consumer warpgroups    64 queries each:  S = q k^T (wgmma) -> online softmax with lazy rescaling, in registers
//                                            -> O += P v (wgmma, P stays in registers) -> TMA store
#pragma once
#include "attention_sm90.cuh"
#include "operands.cuh"

// The softmax state of a thread's two rows. With r = lane >> 2, a lane of warp w holds a quarter of the columns of rows
// 16 w + r (max0, sum0, rescale0) and 16 w + r + 8 (max1, sum1, rescale1) of the warpgroup's 64 rows. The accumulator
// is drawn in hopper.cuh. A maximum is the largest score * scale_log2, in all four lanes of the row. A sum covers this
// lane's columns only, until the end. rescale0, rescale1: the factors by which the sums and the output are multiplied
// when needs_rescale is set.
struct softmax_state {
    float max0, max1, sum0, sum1, rescale0, rescale1;
    bool needs_rescale;
};

// The scale of a tile of v in e4m3: v = (stored v) * 2^exponent; inverse = 2^-exponent. A score s of such a tile counts
// as s * scale_log2 + exponent: P is then the probability * 2^exponent, P v has the scale of v, and the sum of the
// probabilities gets P * inverse. So a tile's scale costs nothing per element.
struct alignas(8) tile_scale {
    float exponent, inverse;
};

// Sequence, row tile, head and groups of a tile. They are computed from the tile's number wherever they are needed.
// Keeping them during the loop over keys would need registers that the kernel with three consumers does not have. The
// tile's groups of 64 queries are [first, first + count) of the sequence; count < 1 where there are no queries.
struct tile_position {
    int sequence, row_tile, head, first, count;
};
template <bool CAUSAL, int CONSUMERS>
ATTENTION_DEVICE tile_position find_position(const sumi_attention_sm90_shape& shape, int tile)
{
    tile_position position = {0, 0, 0, 0, CONSUMERS};
    if (tile >= shape.cut_begin) { // shape.parts blocks share the groups of one tile
        const int number = tile - shape.cut_begin, part = number % shape.parts;
        tile = shape.cut_begin + number / shape.parts;
        position.first = (part * CONSUMERS + shape.parts - 1) / shape.parts;
        position.count = ((part + 1) * CONSUMERS + shape.parts - 1) / shape.parts - position.first;
    }
    while (tile >= shape.sequences[position.sequence].tile_end) position.sequence++;
    const int row_tiles = shape.sequences[position.sequence].row_tiles,
              inside = tile - shape.sequences[position.sequence].tile_end + shape.heads * row_tiles;
    if (CAUSAL) { // the rows with the most keys first
        position.row_tile = row_tiles - 1 - inside / shape.heads;
        position.head = inside % shape.heads;
    } else {
        position.head = inside / row_tiles;
        position.row_tile = inside % row_tiles;
    }
    position.first += position.row_tile * CONSUMERS;
    position.count = min(position.count, shape.sequences[position.sequence].groups - position.first);
    return position;
}

template <int OPERANDS, int HEAD_DIM, int CONSUMERS, int STAGES, bool OVERLAP, int POLYNOMIAL, bool CAUSAL>
struct attention_sm90 {
    static constexpr bool IS_E4M3 = OPERANDS == SUMI_OPERANDS_E4M3;
    static_assert(!IS_E4M3 || (HEAD_DIM == 128 && !OVERLAP && !CAUSAL),
                  "e4m3: one head dim, and v's scale is read in the plain loop");
    static constexpr int ELEMENT_BYTES = IS_E4M3 ? 1 : 2;
    static constexpr int TILE_KEYS = 128;
    static constexpr int TILE_QUERIES = CONSUMERS * 64;
    // Channels of a slab of q and k, whose rows in shared memory have 128, 64 or 32 bytes.
    static constexpr int SLAB = IS_E4M3 ? 128 : HEAD_DIM % 64 == 0 ? 64 : HEAD_DIM % 32 == 0 ? 32 : 16;
    static constexpr int SLAB_BYTES = SLAB * ELEMENT_BYTES;
    static constexpr int SLABS = HEAD_DIM / SLAB;
    static constexpr int LAYOUT = SLAB_BYTES == 128 ? 1 : SLAB_BYTES == 64 ? 2 : 3;
    static constexpr int EIGHT_ROWS_BYTES = 8 * SLAB_BYTES; // bytes of 8 rows of a slab
    static constexpr int OUT_SLAB = IS_E4M3 ? 64 : SLAB;    // the output is bf16
    static constexpr int OUT_SLAB_BYTES = OUT_SLAB * 2;
    static constexpr int OUT_SLABS = HEAD_DIM / OUT_SLAB;
    static constexpr int OUT_GROUP_BYTES = 64 * HEAD_DIM * 2; // the output of one warpgroup
    static constexpr int TILE_BYTES = TILE_KEYS * HEAD_DIM * ELEMENT_BYTES;
    static constexpr int QUERY_GROUP_BYTES = 64 * HEAD_DIM * ELEMENT_BYTES; // the queries of one warpgroup
    static constexpr int SCORE_COUNT = TILE_KEYS / 2;                       // floats of S per thread
    static constexpr int OUTPUT_COUNT = HEAD_DIM / 2;                       // floats of O per thread
    static constexpr int PROBABILITY_WORDS =
        TILE_KEYS * ELEMENT_BYTES / 8; // words of P per thread, two bf16 or four e4m3 each
    // A row maximum that grows by more than 2^RESCALE_LIMIT (as a factor of the exponentials) causes a rescale.
    static constexpr float RESCALE_LIMIT = IS_E4M3 ? 4.f : 8.f;
    // Probabilities in e4m3 are multiplied by 2^E4M3_SHIFT: they are at most 2^8 then, and normal down to 2^-10 of the
    // largest one.
    static constexpr float E4M3_SHIFT = 4.f;

    // score * scale, and for e4m3 + the exponent of the tile's v.
    ATTENTION_DEVICE float exponent_of(float score, float scale, const tile_scale& v_scale)
    {
        return IS_E4M3 ? fmaf(score, scale, v_scale.exponent) : score * scale;
    }
    // Updates the row maxima and sums for the scores of a new tile. FIRST: the first tile, which sets them.
    template <bool FIRST>
    ATTENTION_DEVICE void maxima(const float (&scores)[SCORE_COUNT], softmax_state& softmax, float scale,
                                 const tile_scale& v_scale)
    {
        float largest0 = fmaxf(scores[0], scores[1]), largest1 = fmaxf(scores[2], scores[3]),
              other_largest0 = fmaxf(scores[4], scores[5]), other_largest1 = fmaxf(scores[6], scores[7]);
#pragma unroll
        for (int n = 2; n < SCORE_COUNT / 4; n += 2) {
            largest0 = fmaxf(largest0, fmaxf(scores[4 * n], scores[4 * n + 1]));
            largest1 = fmaxf(largest1, fmaxf(scores[4 * n + 2], scores[4 * n + 3]));
            other_largest0 = fmaxf(other_largest0, fmaxf(scores[4 * n + 4], scores[4 * n + 5]));
            other_largest1 = fmaxf(other_largest1, fmaxf(scores[4 * n + 6], scores[4 * n + 7]));
        }
        largest0 = fmaxf(largest0, other_largest0);
        largest1 = fmaxf(largest1, other_largest1);
        const float offset = IS_E4M3 ? v_scale.exponent : -0.f; // x + -0 is x, also to the compiler
        // To see whether any row's maximum grew too much, each lane's own columns suffice, without the maximum of the
        // whole row. So the common case exchanges no values between lanes: the tensor cores wait while this code
        // runs.
        softmax.needs_rescale = !FIRST
                             && __any_sync(~0u, fmaxf(fmaf(largest0, scale, offset - softmax.max0),
                                                      fmaf(largest1, scale, offset - softmax.max1))
                                                    > RESCALE_LIMIT);
        if (!FIRST && !softmax.needs_rescale) return;
        largest0 = fmaxf(largest0, __shfl_xor_sync(~0u, largest0, 1));
        largest1 = fmaxf(largest1, __shfl_xor_sync(~0u, largest1, 1));
        largest0 = fmaxf(largest0, __shfl_xor_sync(~0u, largest0, 2));
        largest1 = fmaxf(largest1, __shfl_xor_sync(~0u, largest1, 2));
        if (FIRST) {
            // A causal row may see no key of its block's first tile. A finite maximum then makes exp2(-inf - max)
            // equal 0, where -inf - -inf would be NaN.
            softmax.max0 = exponent_of(largest0, scale, v_scale);
            if (CAUSAL) softmax.max0 = fmaxf(softmax.max0, -1e30f);
            softmax.max1 = exponent_of(largest1, scale, v_scale);
            if (CAUSAL) softmax.max1 = fmaxf(softmax.max1, -1e30f);
            softmax.sum0 = softmax.sum1 = 0.f;
            return;
        }
        const float new_max0 = fmaxf(softmax.max0, exponent_of(largest0, scale, v_scale)),
                    new_max1 = fmaxf(softmax.max1, exponent_of(largest1, scale, v_scale));
        softmax.rescale0 = exp2_fast(softmax.max0 - new_max0);
        softmax.rescale1 = exp2_fast(softmax.max1 - new_max1);
        softmax.max0 = new_max0;
        softmax.max1 = new_max1;
        softmax.sum0 *= softmax.rescale0;
        softmax.sum1 *= softmax.rescale1;
    }
    // s = exp2(s * scale - max), for e4m3 times 2^(v's exponent + E4M3_SHIFT), and adds s to the sums. With POLYNOMIAL
    // n, one of n values is computed on the FMA units, alternately in the thread's first and second row.
    ATTENTION_DEVICE void exponentials(float (&scores)[SCORE_COUNT], softmax_state& softmax, float scale,
                                       const tile_scale& v_scale)
    {
        const float shift = IS_E4M3 ? v_scale.exponent + E4M3_SHIFT : 0.f,
                    max0 = IS_E4M3 ? softmax.max0 - shift : softmax.max0,
                    max1 = IS_E4M3 ? softmax.max1 - shift : softmax.max1;
        float odd_sum0 = 0.f, odd_sum1 = 0.f, tile_sum0 = 0.f, tile_sum1 = 0.f; // the last two: e4m3
        float &even_sum0 = IS_E4M3 ? tile_sum0 : softmax.sum0, &even_sum1 = IS_E4M3 ? tile_sum1 : softmax.sum1;
#pragma unroll
        for (int n = 0; n < SCORE_COUNT / 4; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float x = fmaf(scores[4 * n + i], scale, i < 2 ? -max0 : -max1);
                scores[4 * n + i] = POLYNOMIAL && (4 * n + (i ^ (n & 2))) % (POLYNOMIAL ? POLYNOMIAL : 1) == 0
                                      ? exp2_polynomial(x)
                                      : exp2_fast(x);
            }
            even_sum0 += scores[4 * n];
            odd_sum0 += scores[4 * n + 1];
            even_sum1 += scores[4 * n + 2];
            odd_sum1 += scores[4 * n + 3];
        }
        even_sum0 += odd_sum0;
        even_sum1 += odd_sum1;
        if (IS_E4M3) {
            softmax.sum0 = fmaf(tile_sum0, v_scale.inverse, softmax.sum0);
            softmax.sum1 = fmaf(tile_sum1, v_scale.inverse, softmax.sum1);
        }
    }
    // P as the A operand of P v. For bf16 the accumulator layout of S is the A layout (drawn in attention.cu), so no
    // lanes exchange values. For e4m3 a word of A holds four neighbouring keys of a row, where S has keys 2 q, 2 q + 1
    // and 2 q + 8, 2 q + 9 of 16 in one lane (q = lane & 3). So these four go into one word, and the tiles of v have
    // their keys in the same order (attention.h).
    ATTENTION_DEVICE void pack_scores(u32 (&probabilities)[PROBABILITY_WORDS], const float (&scores)[SCORE_COUNT])
    {
#pragma unroll
        for (int n = 0; n < PROBABILITY_WORDS; n++) {
            if constexpr (IS_E4M3) { // words 4 t .. 4 t + 3: the rows r and r + 8 of 16 keys, then those of the next 16
                const int first = n / 4 * 16 + (n & 2) * 4 + (n & 1) * 2;
                probabilities[n] = pack_e4m3(scores[first], scores[first + 1], scores[first + 4], scores[first + 5]);
            } else {
                probabilities[n] = pack_bf16(scores[2 * n], scores[2 * n + 1]);
            }
        }
    }
    ATTENTION_DEVICE void rescale_output(float (&acc)[OUTPUT_COUNT], const softmax_state& softmax)
    {
#pragma unroll
        for (int n = 0; n < OUTPUT_COUNT / 4; n++) {
            acc[4 * n] *= softmax.rescale0;
            acc[4 * n + 1] *= softmax.rescale0;
            acc[4 * n + 2] *= softmax.rescale1;
            acc[4 * n + 3] *= softmax.rescale1;
        }
    }
    // Sets the scores of columns >= key_limit0 in the thread's first row, and of columns >= key_limit1 in its second
    // row, to -inf.
    ATTENTION_DEVICE void mask_scores(float (&scores)[SCORE_COUNT], int key_limit0, int key_limit1)
    {
        const int first_column = (threadIdx.x & 3) * 2;
        const float masked = __int_as_float(0xff800000); // -inf
#pragma unroll
        for (int n = 0; n < SCORE_COUNT / 4; n++) {
            const int c = n * 8 + first_column;
            if (c >= key_limit0) scores[4 * n] = masked;
            if (c + 1 >= key_limit0) scores[4 * n + 1] = masked;
            if (c >= key_limit1) scores[4 * n + 2] = masked;
            if (c + 1 >= key_limit1) scores[4 * n + 3] = masked;
        }
    }
    // q, k (and v in multiply_pv) are the low 32 bits of matrix descriptors. Here t counts k-steps of 32 bytes.
    ATTENTION_DEVICE void multiply_qk(float (&scores)[SCORE_COUNT], u32 q, u32 k)
    {
#pragma unroll
        for (int t = 0; t < HEAD_DIM * ELEMENT_BYTES / 32; t++) {
            const int slab = t * 32 / SLAB_BYTES, offset = t * 32 % SLAB_BYTES;
            const u64 a = descriptor<LAYOUT, EIGHT_ROWS_BYTES>(q + (slab * 64 * SLAB_BYTES + offset) / 16),
                      b = descriptor<LAYOUT, EIGHT_ROWS_BYTES>(k + (slab * TILE_KEYS * SLAB_BYTES + offset) / 16);
            if constexpr (IS_E4M3) attention_wgmma<TILE_KEYS>::ss_e4m3(scores, a, b, t);
            else attention_wgmma<TILE_KEYS>::ss(scores, a, b, t);
        }
    }
    // t counts k-steps of 16 keys in bf16, N-major, or of 32 keys in e4m3, K-major.
    ATTENTION_DEVICE void multiply_pv(float (&acc)[OUTPUT_COUNT], const u32 (&probabilities)[PROBABILITY_WORDS], u32 v)
    {
#pragma unroll
        for (int t = 0; t < TILE_KEYS * ELEMENT_BYTES / 32; t++) {
            const u64 b = descriptor<LAYOUT, EIGHT_ROWS_BYTES>(v + t * (IS_E4M3 ? 2 : SLAB_BYTES));
            if constexpr (IS_E4M3) attention_wgmma<HEAD_DIM>::rs_e4m3(acc, probabilities + 4 * t, b, 1);
            else attention_wgmma<HEAD_DIM>::rs(acc, probabilities + 4 * t, b, 1);
        }
    }
    // Waits for the 128 threads of a consumer warpgroup.
    ATTENTION_DEVICE void warpgroup_sync(int consumer)
    {
        if (consumer == 0) named_sync<1, 128>();
        else if (consumer == 1 || CONSUMERS == 2) named_sync<2, 128>();
        else named_sync<3, 128>();
    }

    // Masks the keys of this tile that a row does not see, if there are any. keys_seen (causal only): the number of
    // keys that this thread's first row sees.
    template <bool FIRST>
    ATTENTION_DEVICE void mask(float (&scores)[SCORE_COUNT], const sumi_attention_sm90_sequence& sequence, int key_tile,
                               int row, int keys_seen)
    {
        if (CAUSAL) { // keys past the sequence's end are also past what a query sees
            if (FIRST || (key_tile + 1) * TILE_KEYS > row + 1)
                mask_scores(scores, keys_seen - key_tile * TILE_KEYS, keys_seen + 8 - key_tile * TILE_KEYS);
        } else if (FIRST) {
            if (sequence.tail < TILE_KEYS) mask_scores(scores, sequence.tail, sequence.tail);
        } else {
            if (key_tile == sequence.boundary) mask_scores(scores, sequence.boundary_keys, sequence.boundary_keys);
        }
    }

    // The last tile of keys that a row tile sees.
    ATTENTION_DEVICE int last_key_tile(const sumi_attention_sm90_sequence& sequence, int row_tile)
    {
        return CAUSAL ? min(sequence.key_tiles, ((row_tile + 1) * TILE_QUERIES + TILE_KEYS - 1) / TILE_KEYS) - 1
                      : sequence.key_tiles - 1;
    }

    // Addresses in shared memory: the tiles, the staging buffer of the output, and the barriers of q and of the ring
    // buffers of K and V. The barrier of stage i is 8 * i bytes after the one of stage 0.
    struct shared_addresses {
        u32 q, k, v, out, q_full, q_empty, k_full, k_empty, v_full, v_empty;
    };

    // e4m3: the number of the first tile of v of this tile's sequence and head.
    ATTENTION_DEVICE int64_t value_tile(const sumi_attention_sm90_shape& shape, const sumi_attention_fp8_values& values,
                                        const tile_position& position)
    {
        return (int64_t)(position.head / shape.group) * values.tile_count + values.first_tile[position.sequence];
    }

    // The producer: one thread copies q, K and V of all tiles of this block, in the order in which they are used.
    ATTENTION_DEVICE void produce(const sumi_attention_sm90_maps& maps, const sumi_attention_sm90_shape& shape,
                                  const sumi_attention_fp8_values* values, const shared_addresses& shared)
    {
        u32 stage = 0, phase = 1, q_phase = 1; // waiting for parity 1 of a new barrier returns at once
        for (int tile = shape.tile_begin + blockIdx.x; tile < shape.tile_end; tile += gridDim.x) {
            const tile_position position = find_position<CAUSAL, CONSUMERS>(shape, tile);
            const sumi_attention_sm90_sequence& sequence = shape.sequences[position.sequence];
            const int kv_slab = position.head / shape.group * SLABS, last = last_key_tile(sequence, position.row_tile);
            for (int key_tile = last; key_tile >= 0; key_tile--) {
                const int span = !CAUSAL && key_tile >= sequence.key_tiles0,
                          row = (span ? key_tile - sequence.key_tiles0 : key_tile) * TILE_KEYS;
                const sumi_attention_map* map = &maps.kv[position.sequence][span];
                mbarrier_wait(shared.k_empty + 8 * stage, phase);
                mbarrier_expect(shared.k_full + 8 * stage, TILE_BYTES);
                tensor_load(shared.k + stage * TILE_BYTES, map, shared.k_full + 8 * stage, row, shape.k_slab + kv_slab);
                if (key_tile == last) { // the tile's groups of q, each to the buffer of the warpgroup that computes it
                    mbarrier_wait(shared.q_empty, q_phase);
                    q_phase ^= 1;
                    mbarrier_expect(shared.q_full, max(position.count, 0) * QUERY_GROUP_BYTES);
                    for (int consumer = 0; consumer < position.count; consumer++) {
                        const int group = position.first + consumer, is_second = group >= sequence.groups0;
                        tensor_load(shared.q + consumer * QUERY_GROUP_BYTES, &maps.q[position.sequence][is_second],
                                    shared.q_full, (is_second ? group - sequence.groups0 : group) * 64,
                                    position.head * SLABS);
                    }
                }
                mbarrier_wait(shared.v_empty + 8 * stage, phase);
                mbarrier_expect(shared.v_full + 8 * stage, TILE_BYTES);
                if constexpr (IS_E4M3) {
                    const int64_t number = value_tile(shape, *values, position) + key_tile;
                    bulk_load(shared.v + stage * TILE_BYTES,
                              (const void*)(values->tiles + number * SUMI_ATTENTION_FP8_TILE_BYTES), TILE_BYTES,
                              shared.v_full + 8 * stage);
                } else {
                    tensor_load(shared.v + stage * TILE_BYTES, map, shared.v_full + 8 * stage, row,
                                shape.v_slab + kv_slab);
                }
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            }
        }
    }

    // A consumer warpgroup: computes one group of 64 queries of each tile of this block.
    ATTENTION_DEVICE void consume(const sumi_attention_sm90_maps& maps, const sumi_attention_sm90_shape& shape,
                                  const sumi_attention_fp8_values* values, const shared_addresses& shared)
    {
        const int consumer = uniform((int)(threadIdx.x >> 7) - 1), lane = threadIdx.x & 31,
                  warp = (threadIdx.x >> 5) & 3;
        const bool is_leader = (threadIdx.x & 127) == 0;
        const u32 output_staging = shared.out + consumer * OUT_GROUP_BYTES;
        const u32 q = descriptor_low(shared.q + consumer * QUERY_GROUP_BYTES, 16), k = descriptor_low(shared.k, 16),
                  v = descriptor_low(shared.v, IS_E4M3 ? 16 : TILE_KEYS * SLAB_BYTES);
        const float scale = shape.scale_log2;
        u32 stage = 0, phase = 0, q_phase = 0;
        for (int tile = shape.tile_begin + blockIdx.x; tile < shape.tile_end; tile += gridDim.x) {
            const tile_position position = find_position<CAUSAL, CONSUMERS>(shape, tile);
            const sumi_attention_sm90_sequence& sequence = shape.sequences[position.sequence];
            const int group = position.first + consumer;
            int key_tile = last_key_tile(sequence, position.row_tile);
            mbarrier_wait(shared.q_full, q_phase);
            q_phase ^= 1;
            // This warpgroup has no queries: it only releases the stages of the ring buffer.
            if (consumer >= position.count) {
                warpgroup_sync(consumer); // all four warps have seen this phase before the barrier is released
                if (is_leader) mbarrier_arrive(shared.q_empty);
                for (; key_tile >= 0; key_tile--) {
                    if (warp == 0) {
                        mbarrier_wait(shared.k_full + 8 * stage, phase);
                        if (is_leader) mbarrier_arrive(shared.k_empty + 8 * stage);
                    }
                    if (warp == 0) {
                        mbarrier_wait(shared.v_full + 8 * stage, phase);
                        if (is_leader) mbarrier_arrive(shared.v_empty + 8 * stage);
                    }
                    if (++stage == STAGES) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
                warpgroup_sync(consumer);
                continue;
            }
            // keys_seen is used in causal kernels only, which have one span
            const int row = group * 64, keys_seen = row + warp * 16 + (lane >> 2) + 1;
            float acc[OUTPUT_COUNT], scores[SCORE_COUNT];
            u32 probabilities[PROBABILITY_WORDS];
            softmax_state softmax;
            const tile_scale* v_scales = nullptr;
            tile_scale v_scale = {0.f, 1.f};
            if constexpr (IS_E4M3) {
                v_scales = (const tile_scale*)values->scales + value_tile(shape, *values, position);
                v_scale = v_scales[key_tile];
            }
            // The first iteration: the last tile of keys, which may be incomplete.
            mbarrier_wait(shared.k_full + 8 * stage, phase);
            wgmma_fence();
            multiply_qk(scores, opaque(q), k + stage * (TILE_BYTES / 16));
            wgmma_commit();
            wgmma_wait<0>();
            hold(scores);
            if (is_leader) mbarrier_arrive(shared.k_empty + 8 * stage);
            mask<true>(scores, sequence, key_tile, row, keys_seen);
            maxima<true>(scores, softmax, scale, v_scale);
            exponentials(scores, softmax, scale, v_scale);
            pack_scores(probabilities, scores);
            // The output is zeroed, although the first product could overwrite it: only so does ptxas find enough
            // registers (otherwise C7512).
#pragma unroll
            for (int n = 0; n < OUTPUT_COUNT; n++) acc[n] = 0.f;
            if (OVERLAP) {
                for (key_tile--; key_tile >= 0; key_tile--) {
                    u32 next = stage + 1, next_phase = phase;
                    if (next == STAGES) {
                        next = 0;
                        next_phase ^= 1;
                    }
                    // was loaded before the next K, so this wait costs nothing
                    mbarrier_wait(shared.v_full + 8 * stage, phase);
                    mbarrier_wait(shared.k_full + 8 * next, next_phase);
                    hold(scores);
                    hold(acc);
                    wgmma_fence();
                    multiply_qk(scores, opaque(q), k + next * (TILE_BYTES / 16));
                    wgmma_commit();
                    multiply_pv(acc, probabilities, v + stage * (TILE_BYTES / 16));
                    wgmma_commit();
                    wgmma_wait<1>();
                    hold(scores);
                    if (is_leader) mbarrier_arrive(shared.k_empty + 8 * next);
                    mask<false>(scores, sequence, key_tile, row, keys_seen);
                    maxima<false>(scores, softmax, scale, v_scale);
                    exponentials(scores, softmax, scale, v_scale);
                    wgmma_wait<0>();
                    hold(acc);
                    if (is_leader) mbarrier_arrive(shared.v_empty + 8 * stage);
                    pack_scores(probabilities, scores);
                    if (softmax.needs_rescale) rescale_output(acc, softmax);
                    stage = next;
                    phase = next_phase;
                }
                if (is_leader) mbarrier_arrive(shared.q_empty);
                mbarrier_wait(shared.v_full + 8 * stage, phase);
                hold(acc);
                wgmma_fence();
                multiply_pv(acc, probabilities, v + stage * (TILE_BYTES / 16));
                wgmma_commit();
                wgmma_wait<0>();
                hold(acc);
                if (is_leader) mbarrier_arrive(shared.v_empty + 8 * stage);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
            } else {
                mbarrier_wait(shared.v_full + 8 * stage, phase);
                hold(acc);
                wgmma_fence();
                multiply_pv(acc, probabilities, v + stage * (TILE_BYTES / 16));
                wgmma_commit();
                wgmma_wait<0>();
                hold(acc);
                if (is_leader) mbarrier_arrive(shared.v_empty + 8 * stage);
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1;
                }
                for (key_tile--; key_tile >= 0; key_tile--) {
                    mbarrier_wait(shared.k_full + 8 * stage, phase);
                    wgmma_fence();
                    multiply_qk(scores, opaque(q), k + stage * (TILE_BYTES / 16));
                    wgmma_commit();
                    if constexpr (IS_E4M3) v_scale = v_scales[key_tile];
                    wgmma_wait<0>();
                    hold(scores);
                    if (is_leader) mbarrier_arrive(shared.k_empty + 8 * stage);
                    mask<false>(scores, sequence, key_tile, row, keys_seen);
                    maxima<false>(scores, softmax, scale, v_scale);
                    if (softmax.needs_rescale) rescale_output(acc, softmax);
                    exponentials(scores, softmax, scale, v_scale);
                    pack_scores(probabilities, scores);
                    mbarrier_wait(shared.v_full + 8 * stage, phase);
                    hold(acc);
                    wgmma_fence();
                    multiply_pv(acc, probabilities, v + stage * (TILE_BYTES / 16));
                    wgmma_commit();
                    wgmma_wait<0>();
                    hold(acc);
                    if (is_leader) mbarrier_arrive(shared.v_empty + 8 * stage);
                    if (++stage == STAGES) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
                if (is_leader) mbarrier_arrive(shared.q_empty);
            }
            // The sums of the four lanes of a row are added.
            softmax.sum0 += __shfl_xor_sync(~0u, softmax.sum0, 1);
            softmax.sum0 += __shfl_xor_sync(~0u, softmax.sum0, 2);
            softmax.sum1 += __shfl_xor_sync(~0u, softmax.sum1, 1);
            softmax.sum1 += __shfl_xor_sync(~0u, softmax.sum1, 2);
            const float inverse_sum0 = 1.f / softmax.sum0, inverse_sum1 = 1.f / softmax.sum1;
            if (is_leader) TMA_STORE_WAIT_READ(); // the previous store has read the staging buffer
            warpgroup_sync(consumer);
            // O as bf16 to the staging buffer. Lanes 8 i .. 8 i + 7 address matrix i of stmatrix.x4: matrix 0 has rows
            // 0-7 and channels 0-7 of the warp's 16 x 16 values, matrix 1 rows 8-15 and channels 0-7, matrices 2 and 3
            // channels 8-15.
#pragma unroll
            for (int n = 0; n < HEAD_DIM / 16; n++) {
                const int tile_row = warp * 16 + (lane & 15), c = n * 16 + (lane >> 4) * 8,
                          swizzle = (OUT_SLAB_BYTES == 128  ? tile_row & 7
                                     : OUT_SLAB_BYTES == 64 ? tile_row >> 1 & 3
                                                            : tile_row >> 2 & 1)
                                 << 4;
                store_matrix_x4(output_staging + (c / OUT_SLAB) * 64 * OUT_SLAB_BYTES + tile_row * OUT_SLAB_BYTES
                                    + (((c % OUT_SLAB) * 2) ^ swizzle),
                                pack_bf16(acc[8 * n] * inverse_sum0, acc[8 * n + 1] * inverse_sum0),
                                pack_bf16(acc[8 * n + 2] * inverse_sum1, acc[8 * n + 3] * inverse_sum1),
                                pack_bf16(acc[8 * n + 4] * inverse_sum0, acc[8 * n + 5] * inverse_sum0),
                                pack_bf16(acc[8 * n + 6] * inverse_sum1, acc[8 * n + 7] * inverse_sum1));
            }
            FENCE_PROXY_ASYNC();
            warpgroup_sync(consumer);
            if (is_leader) { // TMA drops rows past the span's queries
                const tile_position to = find_position<CAUSAL, CONSUMERS>(shape, opaque(tile));
                const int group = to.first + consumer, groups0 = shape.sequences[to.sequence].groups0,
                          is_second = group >= groups0;
                tensor_store(&maps.out[to.sequence][is_second], output_staging,
                             (is_second ? group - groups0 : group) * 64, to.head * OUT_SLABS);
                TMA_STORE_COMMIT();
            }
        }
        if (is_leader) TMA_STORE_WAIT();
    }

    ATTENTION_DEVICE void run(const sumi_attention_sm90_maps& maps, const sumi_attention_sm90_shape& shape,
                              const sumi_attention_fp8_values* values)
    {
        extern __shared__ unsigned char dynamic[];
        shared_addresses shared;
        shared.q = (smem_addr(dynamic) + 1023) & ~1023u;
        shared.k = shared.q + CONSUMERS * QUERY_GROUP_BYTES;
        shared.v = shared.k + STAGES * TILE_BYTES;
        shared.out = shared.v + STAGES * TILE_BYTES;
        __shared__ __align__(8) u64 barriers[2 + 4 * STAGES];
        shared.q_full = smem_addr(barriers);
        shared.q_empty = shared.q_full + 8;
        shared.k_full = shared.q_empty + 8;
        shared.k_empty = shared.k_full + 8 * STAGES;
        shared.v_full = shared.k_empty + 8 * STAGES;
        shared.v_empty = shared.v_full + 8 * STAGES;
        if (threadIdx.x == 0) {
            prefetch_map(&maps.kv[0][0]);
            prefetch_map(&maps.q[0][0]);
            mbarrier_init(shared.q_full, 1);
            mbarrier_init(shared.q_empty, CONSUMERS);
            for (int i = 0; i < STAGES; i++) {
                mbarrier_init(shared.k_full + 8 * i, 1);
                mbarrier_init(shared.v_full + 8 * i, 1);
                mbarrier_init(shared.k_empty + 8 * i, CONSUMERS);
                mbarrier_init(shared.v_empty + 8 * i, CONSUMERS);
            }
            FENCE_MBARRIER_INIT();
        }
        __syncthreads();
        if (threadIdx.x < 128) {
            fewer_registers<CONSUMERS == 3 ? 32 : 24>();
            if (threadIdx.x < 32 && elect_one()) produce(maps, shape, values, shared);
        } else {
            more_registers<CONSUMERS == 3 ? 160 : 240>();
            consume(maps, shape, values, shared);
        }
    }
};
