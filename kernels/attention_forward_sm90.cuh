// The attention of Hopper for head dims 64 to 128: the code that attention_sm90.cu (bf16) and attention_fp8_sm90.cu
// (e4m3) share. attention.h has the shapes and launches.
//
//   producer warpgroup     copies tiles of K and V by TMA into a ring buffer of STAGES stages, and groups of 64
//                          queries of q
//   consumer warpgroups    64 queries each:  S = q k^T (wgmma) -> online softmax with lazy rescaling, in registers
//                                            -> O += P v (wgmma, P stays in registers) -> TMA store
//
// In bf16 a tile's softmax comes before its P v. In e4m3 the softmax takes as long as both products, so a tile's keys
// are cut into PARTS: P v of a part is computed while the exponentials of the next part are, and P v of the last part
// while q k^T of the next tile is. So the maxima of a tile cannot be found before its exponentials. These use the maxima
// of the tiles before, and their sums, which are needed anyway, say whether that was right.
#pragma once
#include "attention_sm90.cuh"
#include "operands.cuh"

// The softmax state of a thread's two rows. With r = lane >> 2, a lane of warp w holds a quarter of the columns of rows
// 16 w + r and 16 w + r + 8 of the warpgroup's 64 rows (drawn in hopper.cuh). Names that end in 0 belong to the first
// of the two rows, and names that end in 1 to the second.
struct softmax_state {
    float row_max0, row_max1;               // the largest score * scale_log2, in all four lanes of the row
    float row_sum0, row_sum1;               // of this lane's columns only, until the end
    float rescale_factor0, rescale_factor1; // by which sums and output are multiplied when needs_rescale is set
    bool needs_rescale;
};

// What a tile computes. It is found from the tile's number wherever it is needed. Keeping it during the loop over keys
// would need registers that the kernel with three consumers does not have.
struct attention_tile {
    int sequence_index, row_tile, head;
    // The tile's groups of 64 queries are [first_group, first_group + group_count) of the sequence. group_count < 1
    // where there are no queries.
    int first_group, group_count;
};
template <bool CAUSAL, int CONSUMERS>
SUMI_DEVICE attention_tile find_tile(const sumi_attention_sm90_shape& shape, int tile_number)
{
    attention_tile tile = {0, 0, 0, 0, CONSUMERS};
    if (tile_number >= shape.split_begin) {
        // Block b of the n blocks that share a tile computes its groups from ceil(b * CONSUMERS / n) on.
        const int number_in_split_tiles = tile_number - shape.split_begin,
                  block_of_tile = number_in_split_tiles % shape.blocks_per_split_tile;
        tile_number = shape.split_begin + number_in_split_tiles / shape.blocks_per_split_tile;
        tile.first_group = (block_of_tile * CONSUMERS + shape.blocks_per_split_tile - 1) / shape.blocks_per_split_tile;
        tile.group_count =
            ((block_of_tile + 1) * CONSUMERS + shape.blocks_per_split_tile - 1) / shape.blocks_per_split_tile
            - tile.first_group;
    }
    while (tile_number >= shape.sequences[tile.sequence_index].tile_end) tile.sequence_index++;
    const sumi_attention_sm90_sequence& sequence = shape.sequences[tile.sequence_index];
    const int row_tiles = sequence.row_tiles,
              tile_in_sequence = tile_number - sequence.tile_end + shape.heads * row_tiles;
    if (CAUSAL) { // the rows with the most keys first
        tile.row_tile = row_tiles - 1 - tile_in_sequence / shape.heads;
        tile.head = tile_in_sequence % shape.heads;
    } else {
        tile.head = tile_in_sequence / row_tiles;
        tile.row_tile = tile_in_sequence % row_tiles;
    }
    tile.first_group += tile.row_tile * CONSUMERS;
    tile.group_count = min(tile.group_count, sequence.query_groups - tile.first_group);
    return tile;
}

// OVERLAP, POLYNOMIAL and CAUSAL: bf16 only (attention_sm90.cu). PARTS: e4m3 only.
template <int OPERANDS, int HEAD_DIM, int CONSUMERS, int STAGES, bool OVERLAP, int POLYNOMIAL, bool CAUSAL,
          int PARTS = 1>
struct attention_sm90 {
    static constexpr bool IS_E4M3 = OPERANDS == SUMI_OPERANDS_E4M3;
    static_assert(IS_E4M3 ? HEAD_DIM <= 128 && HEAD_DIM % 32 == 0 && PARTS > 1 && !OVERLAP && !POLYNOMIAL && !CAUSAL
                          : PARTS == 1,
                  "e4m3: a head is one slab, and there is the loop over parts only");
    static constexpr int ELEMENT_BYTES = IS_E4M3 ? 1 : 2;
    static constexpr int TILE_KEYS = 128;
    static constexpr int TILE_QUERIES = CONSUMERS * 64;
    // Channels of a slab of q and k, whose rows in shared memory have 128, 64 or 32 bytes.
    static constexpr int SLAB_CHANNELS = IS_E4M3 ? 128 : HEAD_DIM % 64 == 0 ? 64 : HEAD_DIM % 32 == 0 ? 32 : 16;
    static constexpr int SLAB_ROW_BYTES = SLAB_CHANNELS * ELEMENT_BYTES;
    static constexpr int SLABS = IS_E4M3 ? 1 : HEAD_DIM / SLAB_CHANNELS;
    static constexpr int QK_STEPS = HEAD_DIM * ELEMENT_BYTES / 32; // k-steps of S = q k^T
    static constexpr int LAYOUT = SLAB_ROW_BYTES == 128 ? 1 : SLAB_ROW_BYTES == 64 ? 2 : 3;
    static constexpr int EIGHT_ROWS_BYTES = 8 * SLAB_ROW_BYTES;                                      // of a slab
    static constexpr int OUT_SLAB_CHANNELS = HEAD_DIM % 64 == 0 ? 64 : HEAD_DIM % 32 == 0 ? 32 : 16; // it is bf16
    static constexpr int OUT_SLAB_ROW_BYTES = OUT_SLAB_CHANNELS * 2;
    static constexpr int OUT_SLABS = HEAD_DIM / OUT_SLAB_CHANNELS;
    static constexpr int OUT_GROUP_BYTES = 64 * HEAD_DIM * 2; // the output of one warpgroup
    static constexpr int K_TILE_BYTES = TILE_KEYS * SLABS * SLAB_ROW_BYTES;
    static constexpr int V_TILE_BYTES = TILE_KEYS * HEAD_DIM * ELEMENT_BYTES;
    static constexpr int QUERY_GROUP_BYTES = 64 * SLABS * SLAB_ROW_BYTES; // the queries of one warpgroup
    static constexpr int SCORE_COUNT = TILE_KEYS / 2;                     // floats of S per thread
    static constexpr int ACC_COUNT = HEAD_DIM / 2;                        // floats of O per thread
    static constexpr int PROBABILITY_WORDS =
        TILE_KEYS * ELEMENT_BYTES / 8; // words of P per thread, two bf16 or four e4m3 each
    static constexpr int PART_WORDS = PROBABILITY_WORDS / PARTS;
    static constexpr int PV_STEPS = TILE_KEYS * ELEMENT_BYTES / 32; // k-steps of P v
    // bf16: a row maximum that grows by more than this, as an exponent of 2, causes a rescale.
    static constexpr float RESCALE_THRESHOLD = 8.f;
    // Probabilities in e4m3 are multiplied by 2^E4M3_SHIFT. With the right maximum they are at most 16 then, and normal
    // down to 2^-10 of the largest one. The sum of a lane's up to 16 of a row is at most 256 then. While that sum stays
    // below 448, the largest value of e4m3, none of them is above it, whatever the maximum.
    static constexpr float E4M3_SHIFT = 4.f, E4M3_LARGEST = 448.f;

    // score * scale_log2, and for e4m3 + the exponent of the tile's v: a value of v is the stored one * 2^v_exponent. P
    // is then the probability * 2^v_exponent, P v has the scale of v, and the sum of the probabilities gets
    // P * 2^-v_exponent. So a tile's scale costs nothing per element.
    static SUMI_DEVICE float exponent_of(float score, float scale_log2, float v_exponent)
    {
        return IS_E4M3 ? fmaf(score, scale_log2, v_exponent) : score * scale_log2;
    }
    // Updates the row maxima and sums for the scores of a new tile, in e4m3 from group BEGIN of 8 columns on. FIRST: the
    // first tile, which sets them. In bf16 only if a maximum grew too much.
    template <bool FIRST, int BEGIN = 0>
    static SUMI_DEVICE void update_row_max(const float (&scores)[SCORE_COUNT], softmax_state& softmax, float scale_log2,
                                           float v_exponent)
    {
        // The maxima of this lane's columns: lane_max of the even groups of 8 columns, then of all of them.
        const float* first = scores + 4 * BEGIN;
        float lane_max0 = fmaxf(first[0], first[1]), lane_max1 = fmaxf(first[2], first[3]),
              odd_groups_max0 = fmaxf(first[4], first[5]), odd_groups_max1 = fmaxf(first[6], first[7]);
#pragma unroll
        for (int group = BEGIN + 2; group < SCORE_COUNT / 4; group += 2) {
            lane_max0 = fmaxf(lane_max0, fmaxf(scores[4 * group], scores[4 * group + 1]));
            lane_max1 = fmaxf(lane_max1, fmaxf(scores[4 * group + 2], scores[4 * group + 3]));
            odd_groups_max0 = fmaxf(odd_groups_max0, fmaxf(scores[4 * group + 4], scores[4 * group + 5]));
            odd_groups_max1 = fmaxf(odd_groups_max1, fmaxf(scores[4 * group + 6], scores[4 * group + 7]));
        }
        lane_max0 = fmaxf(lane_max0, odd_groups_max0);
        lane_max1 = fmaxf(lane_max1, odd_groups_max1);
        if constexpr (!IS_E4M3) {
            // To see whether any row's maximum grew too much, each lane's own columns suffice, without the maximum of
            // the whole row. So the common case exchanges no values between lanes: the tensor cores wait while this
            // code runs.
            softmax.needs_rescale = !FIRST
                                 && __any_sync(~0u, fmaxf(fmaf(lane_max0, scale_log2, -softmax.row_max0),
                                                          fmaf(lane_max1, scale_log2, -softmax.row_max1))
                                                        > RESCALE_THRESHOLD);
            if (!FIRST && !softmax.needs_rescale) return;
        }
        lane_max0 = fmaxf(lane_max0, __shfl_xor_sync(~0u, lane_max0, 1));
        lane_max1 = fmaxf(lane_max1, __shfl_xor_sync(~0u, lane_max1, 1));
        lane_max0 = fmaxf(lane_max0, __shfl_xor_sync(~0u, lane_max0, 2));
        lane_max1 = fmaxf(lane_max1, __shfl_xor_sync(~0u, lane_max1, 2));
        if (FIRST) {
            // A causal row may see no key of its block's first tile. A finite maximum then makes exp2(-inf - max)
            // equal 0, where -inf - -inf would be NaN.
            softmax.row_max0 = exponent_of(lane_max0, scale_log2, v_exponent);
            if (CAUSAL) softmax.row_max0 = fmaxf(softmax.row_max0, -1e30f);
            softmax.row_max1 = exponent_of(lane_max1, scale_log2, v_exponent);
            if (CAUSAL) softmax.row_max1 = fmaxf(softmax.row_max1, -1e30f);
            softmax.row_sum0 = softmax.row_sum1 = 0.f;
            return;
        }
        const float new_max0 = fmaxf(softmax.row_max0, exponent_of(lane_max0, scale_log2, v_exponent)),
                    new_max1 = fmaxf(softmax.row_max1, exponent_of(lane_max1, scale_log2, v_exponent));
        softmax.rescale_factor0 = exp2_fast(softmax.row_max0 - new_max0);
        softmax.rescale_factor1 = exp2_fast(softmax.row_max1 - new_max1);
        softmax.row_max0 = new_max0;
        softmax.row_max1 = new_max1;
        softmax.row_sum0 *= softmax.rescale_factor0;
        softmax.row_sum1 *= softmax.rescale_factor1;
    }
    // bf16: scores = exp2(scores * scale_log2 - row_max), which are added to the sums. With POLYNOMIAL n, one of n values
    // is computed on the FMA units, alternately in the thread's first and second row.
    static SUMI_DEVICE void exponentials(float (&scores)[SCORE_COUNT], softmax_state& softmax, float scale_log2)
    {
        float odd_sum0 = 0.f, odd_sum1 = 0.f;
#pragma unroll
        for (int group = 0; group < SCORE_COUNT / 4; group++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float x = fmaf(scores[4 * group + e], scale_log2, e < 2 ? -softmax.row_max0 : -softmax.row_max1);
                scores[4 * group + e] =
                    POLYNOMIAL && (4 * group + (e ^ (group & 2))) % POLYNOMIAL == 0 ? exp2_polynomial(x) : exp2_fast(x);
            }
            softmax.row_sum0 += scores[4 * group];
            odd_sum0 += scores[4 * group + 1];
            softmax.row_sum1 += scores[4 * group + 2];
            odd_sum1 += scores[4 * group + 3];
        }
        softmax.row_sum0 += odd_sum0;
        softmax.row_sum1 += odd_sum1;
    }
    // bf16: P as the A operand of P v. The accumulator layout of S is the A layout (drawn in attention.cu), so no lanes
    // exchange values.
    static SUMI_DEVICE void pack_probabilities(u32 (&probabilities)[PROBABILITY_WORDS],
                                               const float (&scores)[SCORE_COUNT])
    {
#pragma unroll
        for (int i = 0; i < PROBABILITY_WORDS; i++) probabilities[i] = pack_bf16(scores[2 * i], scores[2 * i + 1]);
    }
    // e4m3: words BEGIN .. END - 1 of P from the maxima that there are, and the sums of this lane's two rows of them;
    // the scores stay. A word of the A operand holds four neighbouring keys of a row, where S has keys 2 q, 2 q + 1 and
    // 2 q + 8, 2 q + 9 of 16 in one lane (q = lane & 3). So these four go into one word, and the tiles of v have their
    // keys in the same order (attention.h). Words 4 t .. 4 t + 3: the rows r and r + 8 of 16 keys, then those of the
    // next 16.
    template <int BEGIN, int END>
    static SUMI_DEVICE void find_probabilities(u32 (&probabilities)[PROBABILITY_WORDS], float (&sum)[2],
                                               const float (&scores)[SCORE_COUNT], const softmax_state& softmax,
                                               float scale_log2, float v_exponent)
    {
        const float shift = v_exponent + E4M3_SHIFT, added[2] = {shift - softmax.row_max0, shift - softmax.row_max1};
        float odd_sum[2] = {0.f, 0.f};
        sum[0] = sum[1] = 0.f;
#pragma unroll
        for (int i = BEGIN; i < END; i++) {
            const int first = i / 4 * 16 + (i & 2) * 4 + (i & 1) * 2;
            float p[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                p[e] = exp2_fast(fmaf(scores[first + (e & 1) + (e & 2) * 2], scale_log2, added[i & 1]));
            sum[i & 1] += p[0];
            odd_sum[i & 1] += p[1];
            sum[i & 1] += p[2];
            odd_sum[i & 1] += p[3];
            probabilities[i] = pack_e4m3(p[0], p[1], p[2], p[3]);
        }
        sum[0] += odd_sum[0];
        sum[1] += odd_sum[1];
    }
    // e4m3: the softmax of a tile's part PART, and of the parts after it, each followed by its P v. That of the last one
    // is in flight at the end. What runs beside a product has no branch, for which ptxas would serialise the wgmma
    // (C7520). So larger maxima wait until the product before has ended.
    template <int PART>
    static SUMI_DEVICE void compute_parts(float (&acc)[ACC_COUNT], u32 (&probabilities)[PROBABILITY_WORDS],
                                          float (&scores)[SCORE_COUNT], softmax_state& softmax, float scale_log2,
                                          float v_exponent, u32 v_low)
    {
        constexpr int BEGIN = PART * PART_WORDS, END = BEGIN + PART_WORDS; // also in groups of 8 columns
        float sum[2];
        find_probabilities<BEGIN, END>(probabilities, sum, scores, softmax, scale_log2, v_exponent);
        softmax.needs_rescale = __any_sync(~0u, fmaxf(sum[0], sum[1]) > E4M3_LARGEST);
        if constexpr (PART > 0) {
            WGMMA_WAIT(0);
            warpgroup_fence_operand(acc);
        }
        if (softmax.needs_rescale) {
            update_row_max<false, BEGIN>(scores, softmax, scale_log2, v_exponent);
            rescale_output(acc, softmax);
            find_probabilities<BEGIN, END>(probabilities, sum, scores, softmax, scale_log2, v_exponent);
        }
        softmax.row_sum0 = fmaf(sum[0], exp2_fast(-v_exponent), softmax.row_sum0);
        softmax.row_sum1 = fmaf(sum[1], exp2_fast(-v_exponent), softmax.row_sum1);
        if constexpr (PART + 1 == PARTS) warpgroup_fence_operand(scores);
        warpgroup_fence_operand(acc);
        WGMMA_FENCE();
        multiply_pv<PART * PV_STEPS / PARTS, (PART + 1) * PV_STEPS / PARTS>(acc, probabilities, v_low);
        WGMMA_COMMIT();
        if constexpr (PART + 1 < PARTS)
            compute_parts<PART + 1>(acc, probabilities, scores, softmax, scale_log2, v_exponent, v_low);
    }
    // e4m3: O += mean of v * sum of the row's probabilities. Of each group of 8 channels a lane has 2 (lane & 3) and + 1.
    static SUMI_DEVICE void add_means(float (&acc)[ACC_COUNT], const sumi_attention_sm90_shape& shape,
                                      const sumi_attention_fp8_values& values, const attention_tile& tile,
                                      float row_sum0, float row_sum1)
    {
        const int head = tile.sequence_index * (shape.heads / shape.group) + tile.head / shape.group;
        const float2* means = (const float2*)values.means + head * (HEAD_DIM / 2) + (threadIdx.x & 3);
        // P was multiplied by 2^E4M3_SHIFT like the sums; acc has that factor too.
#pragma unroll
        for (int group = 0; group < HEAD_DIM / 8; group++) {
            const float2 mean = means[4 * group];
            acc[4 * group] = fmaf(mean.x, row_sum0, acc[4 * group]);
            acc[4 * group + 1] = fmaf(mean.y, row_sum0, acc[4 * group + 1]);
            acc[4 * group + 2] = fmaf(mean.x, row_sum1, acc[4 * group + 2]);
            acc[4 * group + 3] = fmaf(mean.y, row_sum1, acc[4 * group + 3]);
        }
    }
    static SUMI_DEVICE void rescale_output(float (&acc)[ACC_COUNT], const softmax_state& softmax)
    {
#pragma unroll
        for (int group = 0; group < ACC_COUNT / 4; group++) {
            acc[4 * group] *= softmax.rescale_factor0;
            acc[4 * group + 1] *= softmax.rescale_factor0;
            acc[4 * group + 2] *= softmax.rescale_factor1;
            acc[4 * group + 3] *= softmax.rescale_factor1;
        }
    }
    // Sets the scores of columns >= limit0 in the thread's first row, and of columns >= limit1 in its second row, to
    // -inf.
    static SUMI_DEVICE void mask_scores(float (&scores)[SCORE_COUNT], int limit0, int limit1)
    {
        const int lane_column = (threadIdx.x & 3) * 2;
        const float minus_infinity = __int_as_float(0xff800000);
#pragma unroll
        for (int group = 0; group < SCORE_COUNT / 4; group++) {
            const int column = group * 8 + lane_column;
            if (column >= limit0) scores[4 * group] = minus_infinity;
            if (column + 1 >= limit0) scores[4 * group + 1] = minus_infinity;
            if (column >= limit1) scores[4 * group + 2] = minus_infinity;
            if (column + 1 >= limit1) scores[4 * group + 3] = minus_infinity;
        }
    }
    // q_low, k_low, v_low: the low 32 bits of matrix descriptors, which count units of 16 bytes. S = q k^T: a k-step is
    // 32 bytes of a slab's rows, and the next slab is 64 rows of q or TILE_KEYS rows of k further.
    static SUMI_DEVICE void multiply_qk(float (&scores)[SCORE_COUNT], u32 q_low, u32 k_low)
    {
#pragma unroll
        for (int k_step = 0; k_step < QK_STEPS; k_step++) {
            const int slab = k_step * 32 / SLAB_ROW_BYTES, byte = k_step * 32 % SLAB_ROW_BYTES;
            const u64 a = wgmma_swizzled_descriptor<LAYOUT, EIGHT_ROWS_BYTES>(
                          q_low + (slab * 64 * SLAB_ROW_BYTES + byte) / 16),
                      b = wgmma_swizzled_descriptor<LAYOUT, EIGHT_ROWS_BYTES>(
                          k_low + (slab * TILE_KEYS * SLAB_ROW_BYTES + byte) / 16);
            wgmma_shared<TILE_KEYS, OPERANDS>::mma(scores, a, b, k_step);
        }
    }
    // O += P v. A k-step is four words of P: 16 keys in bf16, which are rows of an N-major slab of v, or 32 keys in
    // e4m3, which are 32 bytes of K-major rows.
    template <int BEGIN = 0, int END = PV_STEPS>
    static SUMI_DEVICE void multiply_pv(float (&acc)[ACC_COUNT], const u32 (&probabilities)[PROBABILITY_WORDS],
                                        u32 v_low)
    {
#pragma unroll
        for (int k_step = BEGIN; k_step < END; k_step++) {
            const u64 b =
                wgmma_swizzled_descriptor<LAYOUT, EIGHT_ROWS_BYTES>(v_low + k_step * (IS_E4M3 ? 2 : SLAB_ROW_BYTES));
            wgmma_registers<HEAD_DIM, OPERANDS>::mma(acc, probabilities + 4 * k_step, b, 1);
        }
    }

    // Masks the keys of a tile that a row does not see, if there are any. query0: the warpgroup's first query.
    // visible_keys (causal only): the number of keys that this thread's first row sees.
    template <bool FIRST>
    static SUMI_DEVICE void mask_key_tile(float (&scores)[SCORE_COUNT], const sumi_attention_sm90_sequence& sequence,
                                          int key_tile, int query0, int visible_keys)
    {
        if (CAUSAL) { // keys past the sequence's end are also past the visible keys of every query
            if (FIRST || (key_tile + 1) * TILE_KEYS > query0 + 1)
                mask_scores(scores, visible_keys - key_tile * TILE_KEYS, visible_keys + 8 - key_tile * TILE_KEYS);
        } else if (FIRST) {
            if (sequence.last_tile_keys < TILE_KEYS)
                mask_scores(scores, sequence.last_tile_keys, sequence.last_tile_keys);
        } else {
            if (key_tile == sequence.boundary_tile) mask_scores(scores, sequence.boundary_keys, sequence.boundary_keys);
        }
    }

    // The last tile of keys that a row tile sees.
    static SUMI_DEVICE int find_last_key_tile(const sumi_attention_sm90_sequence& sequence, int row_tile)
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
    static SUMI_DEVICE int64_t first_value_tile(const sumi_attention_sm90_shape& shape,
                                                const sumi_attention_fp8_values& values, const attention_tile& tile)
    {
        return (int64_t)(tile.head / shape.group) * values.tile_count + values.first_tile[tile.sequence_index];
    }

    // The producer: one thread copies q, K and V of all tiles of this block, in the order in which they are used.
    static SUMI_DEVICE void produce(const sumi_attention_sm90_maps& maps, const sumi_attention_sm90_shape& shape,
                                    const sumi_attention_fp8_values* values, const shared_addresses& shared)
    {
        u32 stage = 0, parity = 1, q_parity = 1; // waiting for parity 1 of a new barrier returns at once
        for (int tile_number = shape.tile_begin + blockIdx.x; tile_number < shape.tile_end; tile_number += gridDim.x) {
            const attention_tile tile = find_tile<CAUSAL, CONSUMERS>(shape, tile_number);
            const sumi_attention_sm90_sequence& sequence = shape.sequences[tile.sequence_index];
            const int kv_slab = tile.head / shape.group * SLABS,
                      last_key_tile = find_last_key_tile(sequence, tile.row_tile);
            for (int key_tile = last_key_tile; key_tile >= 0; key_tile--) {
                const int span = !CAUSAL && key_tile >= sequence.first_span_key_tiles,
                          row = (span ? key_tile - sequence.first_span_key_tiles : key_tile) * TILE_KEYS;
                const sumi_attention_map* kv_map = &maps.kv[tile.sequence_index][span];
                mbarrier_wait(shared.k_empty + 8 * stage, parity);
                mbarrier_expect(shared.k_full + 8 * stage, K_TILE_BYTES);
                tma_load_3d(shared.k + stage * K_TILE_BYTES, kv_map, shared.k_full + 8 * stage, row,
                            shape.k_slab + kv_slab);
                if (key_tile == last_key_tile) { // the groups of q, each to the buffer of its warpgroup
                    mbarrier_wait(shared.q_empty, q_parity);
                    q_parity ^= 1;
                    mbarrier_expect(shared.q_full, max(tile.group_count, 0) * QUERY_GROUP_BYTES);
                    for (int consumer = 0; consumer < tile.group_count; consumer++) {
                        const int query_group = tile.first_group + consumer,
                                  span = query_group >= sequence.first_span_query_groups;
                        tma_load_3d(shared.q + consumer * QUERY_GROUP_BYTES, &maps.q[tile.sequence_index][span],
                                    shared.q_full,
                                    (span ? query_group - sequence.first_span_query_groups : query_group) * 64,
                                    tile.head * SLABS);
                    }
                }
                mbarrier_wait(shared.v_empty + 8 * stage, parity);
                mbarrier_expect(shared.v_full + 8 * stage, V_TILE_BYTES);
                if constexpr (IS_E4M3) {
                    const int64_t value_tile = first_value_tile(shape, *values, tile) + key_tile;
                    bulk_load(shared.v + stage * V_TILE_BYTES, (const void*)(values->tiles + value_tile * V_TILE_BYTES),
                              V_TILE_BYTES, shared.v_full + 8 * stage);
                } else {
                    tma_load_3d(shared.v + stage * V_TILE_BYTES, kv_map, shared.v_full + 8 * stage, row,
                                shape.v_slab + kv_slab);
                }
                if (++stage == STAGES) {
                    stage = 0;
                    parity ^= 1;
                }
            }
        }
    }

    // A consumer warpgroup: computes one group of 64 queries of each tile of this block.
    static SUMI_DEVICE void consume(const sumi_attention_sm90_maps& maps, const sumi_attention_sm90_shape& shape,
                                    const sumi_attention_fp8_values* values, const shared_addresses& shared)
    {
        const int consumer = uniform((int)(threadIdx.x >> 7) - 1), lane = threadIdx.x & 31,
                  warp = (threadIdx.x >> 5) & 3;
        const bool is_leader = (threadIdx.x & 127) == 0;
        const u32 out_staging = shared.out + consumer * OUT_GROUP_BYTES;
        const u32 q_low = wgmma_descriptor_low(shared.q + consumer * QUERY_GROUP_BYTES),
                  k_low = wgmma_descriptor_low(shared.k),
                  v_low = wgmma_descriptor_low(shared.v, IS_E4M3 ? 16 : TILE_KEYS * SLAB_ROW_BYTES); // e4m3: ignored
        const float scale_log2 = shape.scale_log2;
        u32 stage = 0, parity = 0, q_parity = 0;
        for (int tile_number = shape.tile_begin + blockIdx.x; tile_number < shape.tile_end; tile_number += gridDim.x) {
            const attention_tile tile = find_tile<CAUSAL, CONSUMERS>(shape, tile_number);
            const sumi_attention_sm90_sequence& sequence = shape.sequences[tile.sequence_index];
            const int query_group = tile.first_group + consumer;
            int key_tile = find_last_key_tile(sequence, tile.row_tile);
            mbarrier_wait(shared.q_full, q_parity);
            q_parity ^= 1;
            if (consumer >= tile.group_count) {
                // This warpgroup has no queries and only releases the stages of the ring buffer. All four warps have
                // seen this phase before the barrier is released.
                consumer_sync<CONSUMERS>(consumer);
                if (is_leader) mbarrier_arrive(shared.q_empty);
                for (; key_tile >= 0; key_tile--) {
                    if (warp == 0) {
                        mbarrier_wait(shared.k_full + 8 * stage, parity);
                        if (is_leader) mbarrier_arrive(shared.k_empty + 8 * stage);
                    }
                    if (warp == 0) {
                        mbarrier_wait(shared.v_full + 8 * stage, parity);
                        if (is_leader) mbarrier_arrive(shared.v_empty + 8 * stage);
                    }
                    if (++stage == STAGES) {
                        stage = 0;
                        parity ^= 1;
                    }
                }
                consumer_sync<CONSUMERS>(consumer);
                continue;
            }
            // visible_keys is used in causal kernels only, which have one span
            const int query0 = query_group * 64, visible_keys = query0 + warp * 16 + (lane >> 2) + 1;
            float acc[ACC_COUNT], scores[SCORE_COUNT];
            u32 probabilities[PROBABILITY_WORDS];
            softmax_state softmax;
            const float* v_exponents = nullptr; // of the tiles of v, e4m3 only
            float v_exponent = 0.f;
            if constexpr (IS_E4M3) {
                v_exponents = (const float*)values->exponents + first_value_tile(shape, *values, tile);
                v_exponent = v_exponents[key_tile];
            }
            // The first iteration: the last tile of keys, which may be incomplete.
            mbarrier_wait(shared.k_full + 8 * stage, parity);
            WGMMA_FENCE();
            multiply_qk(scores, opaque(q_low), k_low + stage * (K_TILE_BYTES / 16));
            WGMMA_COMMIT();
            WGMMA_WAIT(0);
            warpgroup_fence_operand(scores);
            if (is_leader) mbarrier_arrive(shared.k_empty + 8 * stage);
            mask_key_tile<true>(scores, sequence, key_tile, query0, visible_keys);
            update_row_max<true>(scores, softmax, scale_log2, v_exponent);
            if constexpr (!IS_E4M3) {
                exponentials(scores, softmax, scale_log2);
                pack_probabilities(probabilities, scores);
            }
            // The output is zeroed, although the first product could overwrite it: only so does ptxas find enough
            // registers (otherwise C7512).
#pragma unroll
            for (int i = 0; i < ACC_COUNT; i++) acc[i] = 0.f;
            if constexpr (IS_E4M3) {
                for (key_tile--; key_tile >= 0; key_tile--) {
                    mbarrier_wait(shared.v_full + 8 * stage, parity);
                    // of the next stage, here, because a wait while wgmma are in flight would serialise them (C7520)
                    const bool is_last_stage = stage + 1 == STAGES;
                    mbarrier_wait(shared.k_full + (is_last_stage ? 0 : 8 * (stage + 1)), parity ^ is_last_stage);
                    compute_parts<0>(acc, probabilities, scores, softmax, scale_log2, v_exponent,
                                     v_low + stage * (V_TILE_BYTES / 16));
                    const u32 v_stage = stage;
                    if (++stage == STAGES) {
                        stage = 0;
                        parity ^= 1;
                    }
                    multiply_qk(scores, opaque(q_low), k_low + stage * (K_TILE_BYTES / 16));
                    WGMMA_COMMIT();
                    v_exponent = v_exponents[key_tile];
                    WGMMA_WAIT(1);
                    warpgroup_fence_operand(acc);
                    if (is_leader) mbarrier_arrive(shared.v_empty + 8 * v_stage);
                    WGMMA_WAIT(0);
                    warpgroup_fence_operand(scores);
                    if (is_leader) mbarrier_arrive(shared.k_empty + 8 * stage);
                    mask_key_tile<false>(scores, sequence, key_tile, query0, visible_keys);
                }
                if (is_leader) mbarrier_arrive(shared.q_empty);
                mbarrier_wait(shared.v_full + 8 * stage, parity);
                compute_parts<0>(acc, probabilities, scores, softmax, scale_log2, v_exponent,
                                 v_low + stage * (V_TILE_BYTES / 16));
                WGMMA_WAIT(0);
                warpgroup_fence_operand(acc);
                if (is_leader) mbarrier_arrive(shared.v_empty + 8 * stage);
                if (++stage == STAGES) {
                    stage = 0;
                    parity ^= 1;
                }
            } else if constexpr (OVERLAP) {
                for (key_tile--; key_tile >= 0; key_tile--) {
                    u32 next_stage = stage + 1, next_parity = parity;
                    if (next_stage == STAGES) {
                        next_stage = 0;
                        next_parity ^= 1;
                    }
                    // was loaded before the next K, so this wait costs nothing
                    mbarrier_wait(shared.v_full + 8 * stage, parity);
                    mbarrier_wait(shared.k_full + 8 * next_stage, next_parity);
                    warpgroup_fence_operand(scores);
                    warpgroup_fence_operand(acc);
                    WGMMA_FENCE();
                    multiply_qk(scores, opaque(q_low), k_low + next_stage * (K_TILE_BYTES / 16));
                    WGMMA_COMMIT();
                    multiply_pv(acc, probabilities, v_low + stage * (V_TILE_BYTES / 16));
                    WGMMA_COMMIT();
                    WGMMA_WAIT(1);
                    warpgroup_fence_operand(scores);
                    if (is_leader) mbarrier_arrive(shared.k_empty + 8 * next_stage);
                    mask_key_tile<false>(scores, sequence, key_tile, query0, visible_keys);
                    update_row_max<false>(scores, softmax, scale_log2, v_exponent);
                    exponentials(scores, softmax, scale_log2);
                    WGMMA_WAIT(0);
                    warpgroup_fence_operand(acc);
                    if (is_leader) mbarrier_arrive(shared.v_empty + 8 * stage);
                    pack_probabilities(probabilities, scores);
                    if (softmax.needs_rescale) rescale_output(acc, softmax);
                    stage = next_stage;
                    parity = next_parity;
                }
                if (is_leader) mbarrier_arrive(shared.q_empty);
                mbarrier_wait(shared.v_full + 8 * stage, parity);
                warpgroup_fence_operand(acc);
                WGMMA_FENCE();
                multiply_pv(acc, probabilities, v_low + stage * (V_TILE_BYTES / 16));
                WGMMA_COMMIT();
                WGMMA_WAIT(0);
                warpgroup_fence_operand(acc);
                if (is_leader) mbarrier_arrive(shared.v_empty + 8 * stage);
                if (++stage == STAGES) {
                    stage = 0;
                    parity ^= 1;
                }
            } else {
                mbarrier_wait(shared.v_full + 8 * stage, parity);
                warpgroup_fence_operand(acc);
                WGMMA_FENCE();
                multiply_pv(acc, probabilities, v_low + stage * (V_TILE_BYTES / 16));
                WGMMA_COMMIT();
                WGMMA_WAIT(0);
                warpgroup_fence_operand(acc);
                if (is_leader) mbarrier_arrive(shared.v_empty + 8 * stage);
                if (++stage == STAGES) {
                    stage = 0;
                    parity ^= 1;
                }
                for (key_tile--; key_tile >= 0; key_tile--) {
                    mbarrier_wait(shared.k_full + 8 * stage, parity);
                    WGMMA_FENCE();
                    multiply_qk(scores, opaque(q_low), k_low + stage * (K_TILE_BYTES / 16));
                    WGMMA_COMMIT();
                    WGMMA_WAIT(0);
                    warpgroup_fence_operand(scores);
                    if (is_leader) mbarrier_arrive(shared.k_empty + 8 * stage);
                    mask_key_tile<false>(scores, sequence, key_tile, query0, visible_keys);
                    update_row_max<false>(scores, softmax, scale_log2, v_exponent);
                    if (softmax.needs_rescale) rescale_output(acc, softmax);
                    exponentials(scores, softmax, scale_log2);
                    pack_probabilities(probabilities, scores);
                    mbarrier_wait(shared.v_full + 8 * stage, parity);
                    warpgroup_fence_operand(acc);
                    WGMMA_FENCE();
                    multiply_pv(acc, probabilities, v_low + stage * (V_TILE_BYTES / 16));
                    WGMMA_COMMIT();
                    WGMMA_WAIT(0);
                    warpgroup_fence_operand(acc);
                    if (is_leader) mbarrier_arrive(shared.v_empty + 8 * stage);
                    if (++stage == STAGES) {
                        stage = 0;
                        parity ^= 1;
                    }
                }
                if (is_leader) mbarrier_arrive(shared.q_empty);
            }
            // The sums of the four lanes of a row are added.
            softmax.row_sum0 += __shfl_xor_sync(~0u, softmax.row_sum0, 1);
            softmax.row_sum0 += __shfl_xor_sync(~0u, softmax.row_sum0, 2);
            softmax.row_sum1 += __shfl_xor_sync(~0u, softmax.row_sum1, 1);
            softmax.row_sum1 += __shfl_xor_sync(~0u, softmax.row_sum1, 2);
            const float inverse_sum0 = 1.f / softmax.row_sum0, inverse_sum1 = 1.f / softmax.row_sum1;
            if constexpr (IS_E4M3) {
                add_means(acc, shape, *values, find_tile<CAUSAL, CONSUMERS>(shape, opaque(tile_number)),
                          softmax.row_sum0, softmax.row_sum1);
            }
            if (is_leader) TMA_STORE_WAIT_READ(); // the previous store has read the staging buffer
            consumer_sync<CONSUMERS>(consumer);
            // O as bf16 to the staging buffer. Lanes 8 i .. 8 i + 7 address matrix i of stmatrix.x4: matrix 0 has rows
            // 0-7 and channels 0-7 of the warp's 16 x 16 values, matrix 1 rows 8-15 and channels 0-7, matrices 2 and 3
            // channels 8-15. The swizzle exchanges the 16-byte units of a slab's row, as TMA does.
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 16; i++) { // 16 channels
                const int row = warp * 16 + (lane & 15), channel = i * 16 + (lane >> 4) * 8,
                          swizzle = (OUT_SLAB_ROW_BYTES == 128  ? row & 7
                                     : OUT_SLAB_ROW_BYTES == 64 ? row >> 1 & 3
                                                                : row >> 2 & 1)
                                 << 4;
                store_matrix_x4(out_staging + (channel / OUT_SLAB_CHANNELS) * 64 * OUT_SLAB_ROW_BYTES
                                    + row * OUT_SLAB_ROW_BYTES + (((channel % OUT_SLAB_CHANNELS) * 2) ^ swizzle),
                                pack_bf16(acc[8 * i] * inverse_sum0, acc[8 * i + 1] * inverse_sum0),
                                pack_bf16(acc[8 * i + 2] * inverse_sum1, acc[8 * i + 3] * inverse_sum1),
                                pack_bf16(acc[8 * i + 4] * inverse_sum0, acc[8 * i + 5] * inverse_sum0),
                                pack_bf16(acc[8 * i + 6] * inverse_sum1, acc[8 * i + 7] * inverse_sum1));
            }
            FENCE_PROXY_ASYNC();
            consumer_sync<CONSUMERS>(consumer);
            if (is_leader) { // TMA drops rows past the span's queries
                const attention_tile out_tile = find_tile<CAUSAL, CONSUMERS>(shape, opaque(tile_number));
                const int out_group = out_tile.first_group + consumer,
                          first_span_groups = shape.sequences[out_tile.sequence_index].first_span_query_groups,
                          span = out_group >= first_span_groups;
                tma_store_3d(&maps.out[out_tile.sequence_index][span], out_staging,
                             (span ? out_group - first_span_groups : out_group) * 64, out_tile.head * OUT_SLABS);
                TMA_STORE_COMMIT();
            }
        }
        if (is_leader) TMA_STORE_WAIT();
    }

    static SUMI_DEVICE void run(const sumi_attention_sm90_maps& maps, const sumi_attention_sm90_shape& shape,
                                const sumi_attention_fp8_values* values)
    {
        extern __shared__ unsigned char dynamic[];
        shared_addresses shared;
        shared.q = (smem_addr(dynamic) + 1023) & ~1023u;
        shared.k = shared.q + CONSUMERS * QUERY_GROUP_BYTES;
        shared.v = shared.k + STAGES * K_TILE_BYTES;
        shared.out = shared.v + STAGES * V_TILE_BYTES;
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
            for (int stage = 0; stage < STAGES; stage++) {
                mbarrier_init(shared.k_full + 8 * stage, 1);
                mbarrier_init(shared.v_full + 8 * stage, 1);
                mbarrier_init(shared.k_empty + 8 * stage, CONSUMERS);
                mbarrier_init(shared.v_empty + 8 * stage, CONSUMERS);
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
