// The attention with mma.sync: the code that attention.cu (bf16) and attention_int8.cu (q k^T in int8) share.
#pragma once
#include "attention_sequences.cuh"
#include "common.cuh"
#include "portable_sm80.cuh"

// Which keys a query sees: all; those up to its own position; or one of the two, as args.is_causal says.
enum { NOT_CAUSAL, CAUSAL, EITHER };

// Rounds four floats of -127 .. 127 to int8, ties to even, the first one in the lowest byte. Adding 1.5 * 2^23 leaves
// the integer in the lowest byte of the float.
SUMI_DEVICE u32 pack_int8(float a, float b, float c, float d)
{
    const float magic = 12582912.f;
    return __byte_perm(__byte_perm(__float_as_uint(a + magic), __float_as_uint(b + magic), 0x0040),
                       __byte_perm(__float_as_uint(c + magic), __float_as_uint(d + magic), 0x0040), 0x5410);
}
// Quantises 16 queries of a warp to int8 with a scale per row, (largest magnitude) / 127. rows: the A fragments in
// bf16, one for each 16 channels. out_scale gets the scales of the lane's rows r and r + 8, times scale_log2.
//
// A word of bf16 holds 2 channels of a row, a word of int8 holds 4. With u = lane & 3, a lane has these of 16 channels:
//
//     bf16    a0 (row r), a1 (row r + 8):    2 u, 2 u + 1        a2, a3:    2 u + 8, 2 u + 9
//     int8    bytes 4 u .. 4 u + 3:          2 u, 2 u + 1, 2 u + 8, 2 u + 9
//
// so no lanes exchange values, and the channels of a packed key are in the same order.
template <int K_STEPS>
SUMI_DEVICE void quantize_queries(u32 (&out)[K_STEPS][4], float (&out_scale)[2], const u32 (&rows)[2 * K_STEPS][4],
                                  float scale_log2)
{
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float largest = 1e-12f;
#pragma unroll
        for (int j = 0; j < 2 * K_STEPS; j++)
#pragma unroll
            for (int w = half; w < 4; w += 2)
                largest = fmaxf(largest, fmaxf(fabsf(bf16_low(rows[j][w])), fabsf(bf16_high(rows[j][w]))));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
        factor[half] = 127.f / largest;
        out_scale[half] = largest * (1.f / 127.f) * scale_log2;
    }
#pragma unroll
    for (int k_step = 0; k_step < K_STEPS; k_step++)
#pragma unroll
        for (int w = 0; w < 4; w++) { // a0, a1: channels 0 .. 15; a2, a3: 16 .. 31
            const u32 first = rows[2 * k_step + w / 2][w % 2], second = rows[2 * k_step + w / 2][w % 2 + 2];
            const float f = factor[w % 2];
            out[k_step][w] =
                pack_int8(bf16_low(first) * f, bf16_high(first) * f, bf16_low(second) * f, bf16_high(second) * f);
        }
}

// QUERY_WARPS: warps along the queries. KEY_WARPS: warps along the keys. QUERY_BLOCKS: blocks of 16 queries per warp.
// QK_INT8: q k^T in int8 (attention_int8.cu); then all fragments of q are in registers, and row maxima are exponents,
// because tiles of keys have scales of their own. KEPT: the first span of every sequence is rows of args.kept. Kernels
// without it do not pay for the choice of the matrix. CHANNELS: of a head in memory, a multiple of 8; the channels from
// there to HEAD_DIM are zeros in shared memory, and are not stored.
template <int HEAD_DIM, int TILE_KEYS, int QUERY_WARPS, int KEY_WARPS, int QUERY_BLOCKS, int Q_FRAGMENTS_IN_REGISTERS,
          int CAUSALITY, bool QK_INT8, bool KEPT = false, int CHANNELS = HEAD_DIM>
SUMI_DEVICE void attention(const sumi_attention_args& args)
{
    constexpr int TILE_QUERIES = QUERY_WARPS * QUERY_BLOCKS * 16, THREADS = QUERY_WARPS * KEY_WARPS * 32;
    constexpr int ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16; // of q, K and V; chunks of 16 bytes
    constexpr int K_ROW_BYTES = QK_INT8 ? HEAD_DIM : ROW_BYTES;
    constexpr int K_TILE_BYTES = TILE_KEYS * K_ROW_BYTES, V_TILE_BYTES = TILE_KEYS * ROW_BYTES;
    constexpr int BUFFER_BYTES = K_TILE_BYTES + V_TILE_BYTES;
    constexpr int WARP_KEYS = TILE_KEYS / KEY_WARPS;                         // keys of a tile that one warp computes
    constexpr int K_STEPS = HEAD_DIM / (QK_INT8 ? 32 : 16);                  // of 32 bytes, for S
    constexpr int KEY_GROUPS = WARP_KEYS / 8, CHANNEL_GROUPS = HEAD_DIM / 8; // 8-column groups of S and of O
    constexpr bool Q_IN_SHARED = Q_FRAGMENTS_IN_REGISTERS < K_STEPS;         // some or all of its fragments
    // bytes per row of q in shared memory
    constexpr int Q_ROW_BYTES = Q_IN_SHARED ? (K_STEPS - Q_FRAGMENTS_IN_REGISTERS) * 32 : ROW_BYTES;
    // q is copied through the second buffers of K and V while the first ones fill
    constexpr bool Q_IN_SECOND_BUFFERS = !QK_INT8 && TILE_QUERIES <= 2 * TILE_KEYS;
    // with so few products per k-step, two alternating accumulators avoid waiting for the previous product
    constexpr int SCORE_SETS = QUERY_BLOCKS * KEY_GROUPS <= 2 ? 2 : 1;
    static_assert(CHANNELS == HEAD_DIM || (KEY_WARPS == 1 && !QK_INT8 && !KEPT && Q_FRAGMENTS_IN_REGISTERS == K_STEPS),
                  "padded heads");
    static_assert(KEY_WARPS == 1 || (QUERY_BLOCKS == 1 && !Q_FRAGMENTS_IN_REGISTERS), "combining the key warps");
    extern __shared__ __align__(1024) u8 shared[];
    // Shared memory: the fragments of q that are not in registers, then two buffers, each with a tile of K and a tile
    // of V.
    const u32 shared_q = (u32)__cvta_generic_to_shared(shared),
              shared_k = shared_q + (Q_IN_SHARED ? TILE_QUERIES * Q_ROW_BYTES : 0), shared_v = shared_k + K_TILE_BYTES;
    const int query_warp = KEY_WARPS == 1 ? threadIdx.x >> 5 : (threadIdx.x >> 5) % QUERY_WARPS,
              key_warp = KEY_WARPS == 1 ? 0 : threadIdx.x / (32 * QUERY_WARPS), lane = threadIdx.x & 31;
    const bool is_causal = CAUSALITY == EITHER ? args.is_causal != 0 : CAUSALITY == CAUSAL;
    const int tile = args.tile_begin + blockIdx.x;
    const sumi_attention_sequence& sequence = args.sequences[sequence_of(args, tile)];
    const int tile_in_sequence = tile - sequence.tile_end + sequence.row_tiles * args.heads,
              head = tile_in_sequence / sequence.row_tiles, row_tile = tile_in_sequence - head * sequence.row_tiles;
    // The tile's first query. Causal: the rows with the most keys come first, so that the longest tiles start early.
    const int query0 = sequence.first_query + (is_causal ? sequence.row_tiles - 1 - row_tile : row_tile) * TILE_QUERIES,
              kv_head = head / args.group;
    const u16* qkv = (const u16*)args.qkv + (int64_t)sequence.begin * args.pitch;
    const u16* q = qkv + args.q_column + head * CHANNELS;
    const u16* k = qkv + args.k_column + kv_head * CHANNELS;
    const u16* v = qkv + args.v_column + kv_head * CHANNELS;
    const u16* kept_k = KEPT ? (const u16*)args.kept + kv_head * HEAD_DIM : nullptr;
    const u16* kept_v = KEPT ? kept_k + args.heads / args.group * HEAD_DIM : nullptr;
    // Copies `tokens` tokens from token0 on to the tile at `to`; tokens from `token_end` on become zeros.
    // kept: of k or v, for KEPT.
    auto copy = [&](u32 to, const u16* from, const u16* kept, int token0, int token_end, int tokens) {
#pragma unroll
        for (int i = 0; i < (tokens * ROW_CHUNKS + THREADS - 1) / THREADS; i++) {
            const int chunk_of_tile = i * THREADS + threadIdx.x, row = chunk_of_tile / ROW_CHUNKS,
                      chunk = chunk_of_tile - row * ROW_CHUNKS;
            if (tokens * ROW_CHUNKS % THREADS == 0 || chunk_of_tile < tokens * ROW_CHUNKS)
                copy_async_16(to + swizzled_offset<ROW_BYTES>(row, chunk),
                              (KEPT && kept != nullptr && token0 + row < sequence.first_span_tokens
                                   ? kept_row_of(args, sequence, kept, token0 + row)
                                   : from + (int64_t)row_of(sequence, min(token0 + row, token_end - 1)) * args.pitch)
                                  + chunk * 8,
                              token0 + row < token_end && (CHANNELS == HEAD_DIM || chunk < CHANNELS / 8) ? 16 : 0);
        }
    };
    // The end of the keys that any query of the tile sees.
    const int key_end = is_causal ? min(sequence.keys, query0 + TILE_QUERIES) : sequence.keys,
              last_key_tile = (key_end - 1) / TILE_KEYS;
    // int8: the number of the sequence's first packed tile of keys; a packed tile has whole tiles of this kernel
    const int64_t packed_tile = (int64_t)kv_head * args.packed_tiles + sequence.first_packed_tile;
    static_assert(!QK_INT8 || SUMI_ATTENTION_INT8_KEYS % TILE_KEYS == 0, "tiles of keys");
    auto copy_packed_keys = [&](u32 to, int key_tile) {
        const u8* from = (const u8*)args.packed_keys
                       + (packed_tile * SUMI_ATTENTION_INT8_KEYS + (int64_t)key_tile * TILE_KEYS) * HEAD_DIM;
#pragma unroll
        for (int i = 0; i < (K_TILE_BYTES / 16 + THREADS - 1) / THREADS; i++) {
            const int chunk_of_tile = i * THREADS + threadIdx.x, row = chunk_of_tile / (K_ROW_BYTES / 16),
                      chunk = chunk_of_tile - row * (K_ROW_BYTES / 16);
            if (K_TILE_BYTES / 16 % THREADS == 0 || chunk_of_tile < K_TILE_BYTES / 16)
                copy_async_16(to + swizzled_offset<K_ROW_BYTES>(row, chunk), from + chunk_of_tile * 16, 16);
        }
    };
    // Copies a tile of K and V into a buffer, 0 or 1.
    auto load_key_tile = [&](int buffer, int key_tile) {
        if constexpr (QK_INT8) copy_packed_keys(shared_k + buffer * BUFFER_BYTES, key_tile);
        else copy(shared_k + buffer * BUFFER_BYTES, k, kept_k, key_tile * TILE_KEYS, sequence.keys, TILE_KEYS);
        copy(shared_v + buffer * BUFFER_BYTES, v, kept_v, key_tile * TILE_KEYS, sequence.keys, TILE_KEYS);
        copy_async_commit();
    };
    u32 q_fragments[QUERY_BLOCKS][Q_FRAGMENTS_IN_REGISTERS ? Q_FRAGMENTS_IN_REGISTERS : 1][4];
    float q_scale[QUERY_BLOCKS][2]; // int8: of the lane's rows, times scale_log2
    (void)q_scale;
    if (Q_IN_SHARED && Q_FRAGMENTS_IN_REGISTERS) // the channels of q that stay in shared memory
        for (int i = threadIdx.x; i < TILE_QUERIES * Q_ROW_BYTES / 16; i += THREADS) {
            const int row = i / (Q_ROW_BYTES / 16), chunk = i - row * (Q_ROW_BYTES / 16);
            copy_async_16(shared_q + swizzled_offset<Q_ROW_BYTES>(row, chunk),
                          q + (int64_t)row_of(sequence, min(query0 + row, sequence.queries - 1)) * args.pitch
                              + Q_FRAGMENTS_IN_REGISTERS * 16 + chunk * 8,
                          query0 + row < sequence.queries ? 16 : 0);
        }
    // The other channels of q pass through the buffers of K and V into registers. int8: q is as large as in bf16, so
    // the launch may need more shared memory than the buffers take (attention.h has the larger of both).
    if (Q_FRAGMENTS_IN_REGISTERS) {
        static_assert(!Q_FRAGMENTS_IN_REGISTERS || QK_INT8 || TILE_QUERIES <= 4 * TILE_KEYS, "q fits in the buffers");
        const u32 q_buffer = shared_k + (Q_IN_SECOND_BUFFERS ? BUFFER_BYTES : 0);
        copy(q_buffer, q, nullptr, query0, sequence.queries, TILE_QUERIES);
        copy_async_commit();
        if (Q_IN_SECOND_BUFFERS) {
            load_key_tile(0, last_key_tile);
            copy_async_wait<1>();
        } else {
            copy_async_wait<0>();
        }
        __syncthreads();
        const u32 q_address =
            q_buffer + swizzled_offset<ROW_BYTES>(query_warp * QUERY_BLOCKS * 16 + (lane & 15), lane >> 4);
#pragma unroll
        for (int i = 0; i < QUERY_BLOCKS; i++)
            if constexpr (QK_INT8) {
                u32 rows[2 * K_STEPS][4];
#pragma unroll
                for (int j = 0; j < 2 * K_STEPS; j++)
                    load_matrix_x4(rows[j], swizzled_step<ROW_BYTES>(q_address, j) + i * 16 * ROW_BYTES);
                quantize_queries<K_STEPS>(q_fragments[i], q_scale[i], rows, args.scale_log2);
            } else {
#pragma unroll
                for (int k_step = 0; k_step < Q_FRAGMENTS_IN_REGISTERS; k_step++)
                    load_matrix_x4(q_fragments[i][k_step],
                                   swizzled_step<ROW_BYTES>(q_address, k_step) + i * 16 * ROW_BYTES);
            }
        // All warps have read q before K and V overwrite it. With Q_IN_SECOND_BUFFERS the barrier of the first
        // iteration ensures it.
        if (!Q_IN_SECOND_BUFFERS) __syncthreads();
    } else {
        copy(shared_q, q, nullptr, query0, sequence.queries, TILE_QUERIES);
    }
    if (!Q_FRAGMENTS_IN_REGISTERS || !Q_IN_SECOND_BUFFERS) load_key_tile(0, last_key_tile);
    // The address that this lane gives ldmatrix for q (the matrices are drawn at the top).
    const u32 shared_q_address =
        shared_q + swizzled_offset<Q_ROW_BYTES>(query_warp * QUERY_BLOCKS * 16 + (lane & 15), lane >> 4);
    float acc[QUERY_BLOCKS][CHANNEL_GROUPS][4], row_max[QUERY_BLOCKS][2], row_sum[QUERY_BLOCKS][2];
#pragma unroll
    for (int i = 0; i < QUERY_BLOCKS; i++) {
        row_max[i][0] = row_max[i][1] = -1e30f;
        row_sum[i][0] = row_sum[i][1] = 0.f;
#pragma unroll
        for (int d = 0; d < CHANNEL_GROUPS; d++) acc[i][d][0] = acc[i][d][1] = acc[i][d][2] = acc[i][d][3] = 0.f;
    }
    // The same for K and V, relative to their buffers.
    const u32 k_offset = key_warp * WARP_KEYS * K_ROW_BYTES
                       + swizzled_offset<K_ROW_BYTES>((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1),
              v_offset = key_warp * WARP_KEYS * ROW_BYTES + swizzled_offset<ROW_BYTES>(lane & 15, lane >> 4);
    // scale_log2 converts a score to a power of 2; a maximum is updated when it grows by more than rescale_threshold,
    // which is 8 as an exponent.
    const float scale_log2 = args.scale_log2, rescale_threshold = 8.f / scale_log2;
    for (int key_tile = last_key_tile; key_tile >= 0; key_tile--) {
        const int buffer = (last_key_tile - key_tile) & 1;
        const u32 k_address = shared_k + buffer * BUFFER_BYTES + k_offset,
                  v_address = shared_v + buffer * BUFFER_BYTES + v_offset;
        copy_async_wait<0>();
        // this tile has arrived (q too, in the first iteration), and all warps have finished with the other buffer
        __syncthreads();
        if (key_tile > 0) load_key_tile(buffer ^ 1, key_tile - 1);
        float score_sets[SCORE_SETS][QUERY_BLOCKS][KEY_GROUPS][4];
        float(&scores)[QUERY_BLOCKS][KEY_GROUPS][4] = score_sets[0];
#pragma unroll
        for (int set = 0; set < SCORE_SETS; set++)
#pragma unroll
            for (int i = 0; i < QUERY_BLOCKS; i++)
#pragma unroll
                for (int n = 0; n < KEY_GROUPS; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) score_sets[set][i][n][e] = 0.f;
        float k_scale = 1.f; // int8: of this tile of keys
        (void)k_scale;
        if constexpr (QK_INT8) {
            k_scale =
                ((const float*)args.packed_scales)[packed_tile + key_tile / (SUMI_ATTENTION_INT8_KEYS / TILE_KEYS)];
            int sums[QUERY_BLOCKS][KEY_GROUPS][4];
#pragma unroll
            for (int i = 0; i < QUERY_BLOCKS; i++)
#pragma unroll
                for (int n = 0; n < KEY_GROUPS; n++) sums[i][n][0] = sums[i][n][1] = sums[i][n][2] = sums[i][n][3] = 0;
#pragma unroll
            for (int k_step = 0; k_step < K_STEPS; k_step++)
#pragma unroll
                for (int key_pair = 0; key_pair < KEY_GROUPS / 2; key_pair++) {
                    u32 k_fragments[4]; // b0, b1 of key group 2 * key_pair, then of the next one
                    load_matrix_x4(k_fragments,
                                   swizzled_step<K_ROW_BYTES>(k_address, k_step) + key_pair * 16 * K_ROW_BYTES);
#pragma unroll
                    for (int i = 0; i < QUERY_BLOCKS; i++) {
                        const u32(&q_fragment)[4] = q_fragments[i][k_step];
                        mma<SUMI_OPERANDS_INT8>(sums[i][2 * key_pair], q_fragment, k_fragments[0], k_fragments[1]);
                        mma<SUMI_OPERANDS_INT8>(sums[i][2 * key_pair + 1], q_fragment, k_fragments[2], k_fragments[3]);
                    }
                }
#pragma unroll
            for (int i = 0; i < QUERY_BLOCKS; i++)
#pragma unroll
                for (int n = 0; n < KEY_GROUPS; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) scores[i][n][e] = (float)sums[i][n][e];
        } else {
#pragma unroll
            for (int k_step = 0; k_step < K_STEPS; k_step++) {
                u32 loaded_q[QUERY_BLOCKS][4]; // the fragments of this k-step, if they are in shared memory
#pragma unroll
                for (int i = 0; i < QUERY_BLOCKS; i++)
                    if (k_step >= Q_FRAGMENTS_IN_REGISTERS)
                        load_matrix_x4(loaded_q[i],
                                       swizzled_step<Q_ROW_BYTES>(shared_q_address, k_step - Q_FRAGMENTS_IN_REGISTERS)
                                           + i * 16 * Q_ROW_BYTES);
#pragma unroll
                for (int key_pair = 0; key_pair < KEY_GROUPS / 2; key_pair++) {
                    u32 k_fragments[4]; // b0, b1 of key group 2 * key_pair, then of the next one
                    load_matrix_x4(k_fragments,
                                   swizzled_step<ROW_BYTES>(k_address, k_step) + key_pair * 16 * ROW_BYTES);
#pragma unroll
                    for (int i = 0; i < QUERY_BLOCKS; i++) {
                        const bool is_in_registers = k_step < Q_FRAGMENTS_IN_REGISTERS;
                        const u32(&q_fragment)[4] =
                            is_in_registers ? q_fragments[i][is_in_registers ? k_step : 0] : loaded_q[i];
                        float(&sums)[KEY_GROUPS][4] = score_sets[k_step % SCORE_SETS][i];
                        mma<SUMI_OPERANDS_BF16>(sums[2 * key_pair], q_fragment, k_fragments[0], k_fragments[1]);
                        mma<SUMI_OPERANDS_BF16>(sums[2 * key_pair + 1], q_fragment, k_fragments[2], k_fragments[3]);
                    }
                }
            }
        }
        if (SCORE_SETS == 2)
#pragma unroll
            for (int i = 0; i < QUERY_BLOCKS; i++)
#pragma unroll
                for (int n = 0; n < KEY_GROUPS; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) scores[i][n][e] += score_sets[SCORE_SETS - 1][i][n][e];
        if ((key_tile + 1) * TILE_KEYS > sequence.keys || (is_causal && (key_tile + 1) * TILE_KEYS > query0 + 1)) {
#pragma unroll
            for (int i = 0; i < QUERY_BLOCKS; i++)
#pragma unroll
                for (int n = 0; n < KEY_GROUPS; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const int key = key_tile * TILE_KEYS + key_warp * WARP_KEYS + n * 8 + (lane & 3) * 2 + (e & 1),
                                  query = query0 + (query_warp * QUERY_BLOCKS + i) * 16 + (lane >> 2) + (e >> 1) * 8;
                        if (key >= sequence.keys || (is_causal && key > query))
                            scores[i][n][e] = __int_as_float(0xff800000); // -inf
                    }
        }
        float lane_max[QUERY_BLOCKS][2]; // the maxima of this lane's scores in rows r and r + 8
        bool exceeds_threshold = false;
#pragma unroll
        for (int i = 0; i < QUERY_BLOCKS; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) { // of the 16 rows: r or r + 8
                float score_max = scores[i][0][half * 2];
#pragma unroll
                for (int n = 0; n < KEY_GROUPS; n++)
                    score_max = fmaxf(score_max, fmaxf(scores[i][n][half * 2], scores[i][n][half * 2 + 1]));
                lane_max[i][half] = score_max;
                if (QK_INT8) {
                    lane_max[i][half] = score_max * (q_scale[i][half] * k_scale);
                    exceeds_threshold |= lane_max[i][half] > row_max[i][half] + 8.f;
                } else {
                    exceeds_threshold |= score_max > row_max[i][half] + rescale_threshold;
                }
            }
        if (__any_sync(~0u, exceeds_threshold)) {
#pragma unroll
            for (int i = 0; i < QUERY_BLOCKS; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float new_max = lane_max[i][half];
                    new_max = fmaxf(new_max, __shfl_xor_sync(~0u, new_max, 1));
                    new_max = fmaxf(new_max, __shfl_xor_sync(~0u, new_max, 2));
                    new_max = fmaxf(new_max, row_max[i][half]);
                    const float factor = exp2_fast((row_max[i][half] - new_max) * (QK_INT8 ? 1.f : scale_log2));
                    row_max[i][half] = new_max;
                    row_sum[i][half] *= factor;
#pragma unroll
                    for (int d = 0; d < CHANNEL_GROUPS; d++)
                        acc[i][d][half * 2] *= factor, acc[i][d][half * 2 + 1] *= factor;
                }
        }
        u32 probabilities[QUERY_BLOCKS][KEY_GROUPS / 2][4];
#pragma unroll
        for (int i = 0; i < QUERY_BLOCKS; i++) {
            const float max0 = QK_INT8 ? row_max[i][0] : row_max[i][0] * scale_log2,
                        max1 = QK_INT8 ? row_max[i][1] : row_max[i][1] * scale_log2,
                        scale0 = QK_INT8 ? q_scale[i][0] * k_scale : scale_log2,
                        scale1 = QK_INT8 ? q_scale[i][1] * k_scale : scale_log2;
#pragma unroll
            for (int n = 0; n < KEY_GROUPS; n++) {
                const float p0 = exp2_fast(fmaf(scores[i][n][0], scale0, -max0)),
                            p1 = exp2_fast(fmaf(scores[i][n][1], scale0, -max0)),
                            p2 = exp2_fast(fmaf(scores[i][n][2], scale1, -max1)),
                            p3 = exp2_fast(fmaf(scores[i][n][3], scale1, -max1));
                row_sum[i][0] += p0 + p1;
                row_sum[i][1] += p2 + p3;
                probabilities[i][n / 2][n % 2 * 2] = pack_bf16(p0, p1);
                probabilities[i][n / 2][n % 2 * 2 + 1] = pack_bf16(p2, p3);
            }
        }
#pragma unroll
        for (int key_pair = 0; key_pair < KEY_GROUPS / 2; key_pair++)
#pragma unroll
            for (int channel_pair = 0; channel_pair < CHANNEL_GROUPS / 2; channel_pair++) {
                u32 v_fragments[4]; // b0, b1 of channel group 2 * channel_pair, then of the next one
                load_matrix_x4_transposed(v_fragments, swizzled_step<ROW_BYTES>(v_address, channel_pair)
                                                           + key_pair * 16 * ROW_BYTES);
#pragma unroll
                for (int i = 0; i < QUERY_BLOCKS; i++) {
                    const u32(&p_fragment)[4] = probabilities[i][key_pair];
                    mma<SUMI_OPERANDS_BF16>(acc[i][2 * channel_pair], p_fragment, v_fragments[0], v_fragments[1]);
                    mma<SUMI_OPERANDS_BF16>(acc[i][2 * channel_pair + 1], p_fragment, v_fragments[2], v_fragments[3]);
                }
            }
    }
    // Each warp writes the WARP_CHANNEL_GROUPS channel groups from key_warp * WARP_CHANNEL_GROUPS on of its rows. With
    // KEY_WARPS = 1 these are all groups.
    constexpr int WARP_CHANNEL_GROUPS = CHANNEL_GROUPS / KEY_WARPS;
    float output[QUERY_BLOCKS][WARP_CHANNEL_GROUPS][4];
    if constexpr (KEY_WARPS == 1) {
#pragma unroll
        for (int i = 0; i < QUERY_BLOCKS; i++)
#pragma unroll
            for (int d = 0; d < WARP_CHANNEL_GROUPS; d++)
#pragma unroll
                for (int e = 0; e < 4; e++) output[i][d][e] = acc[i][d][e];
    } else {
        // The partial outputs overwrite K and V in shared memory, as one array of 32 x 16 bytes per warp and channel
        // group. The partial maxima and sums overwrite q.
        static_assert(QUERY_WARPS * KEY_WARPS * CHANNEL_GROUPS * 512 <= 2 * BUFFER_BYTES
                          && QUERY_WARPS * KEY_WARPS * 512 <= TILE_QUERIES * Q_ROW_BYTES
                          && CHANNEL_GROUPS % KEY_WARPS == 0 && !QK_INT8,
                      "partial results");
        const int outputs_offset = Q_IN_SHARED ? TILE_QUERIES * Q_ROW_BYTES : 0;
        // float4 [key warp][query warp][channel group][lane]
        float4* partial_outputs = (float4*)(shared + outputs_offset) + lane;
        // float4 [key warp][query warp][lane]; x, y: the maxima of the lane's rows r and r + 8; z, w: their sums
        float4* partial_max_sums = (float4*)shared + lane;
        __syncthreads(); // all warps have finished reading q, k and v
        partial_max_sums[(key_warp * QUERY_WARPS + query_warp) * 32] =
            make_float4(row_max[0][0], row_max[0][1], row_sum[0][0], row_sum[0][1]);
#pragma unroll
        for (int d = 0; d < CHANNEL_GROUPS; d++)
            partial_outputs[((key_warp * QUERY_WARPS + query_warp) * CHANNEL_GROUPS + d) * 32] =
                make_float4(acc[0][d][0], acc[0][d][1], acc[0][d][2], acc[0][d][3]);
        __syncthreads(); // all partial results are written
        float4 max_sums[KEY_WARPS];
#pragma unroll
        for (int warp = 0; warp < KEY_WARPS; warp++) {
            max_sums[warp] = partial_max_sums[(warp * QUERY_WARPS + query_warp) * 32];
            row_max[0][0] = fmaxf(row_max[0][0], max_sums[warp].x);
            row_max[0][1] = fmaxf(row_max[0][1], max_sums[warp].y);
        }
        row_sum[0][0] = row_sum[0][1] = 0.f;
#pragma unroll
        for (int d = 0; d < WARP_CHANNEL_GROUPS; d++)
            output[0][d][0] = output[0][d][1] = output[0][d][2] = output[0][d][3] = 0.f;
#pragma unroll
        for (int warp = 0; warp < KEY_WARPS; warp++) {
            const float factor0 = exp2_fast((max_sums[warp].x - row_max[0][0]) * scale_log2),
                        factor1 = exp2_fast((max_sums[warp].y - row_max[0][1]) * scale_log2);
            row_sum[0][0] = fmaf(max_sums[warp].z, factor0, row_sum[0][0]);
            row_sum[0][1] = fmaf(max_sums[warp].w, factor1, row_sum[0][1]);
#pragma unroll
            for (int d = 0; d < WARP_CHANNEL_GROUPS; d++) {
                const int group = key_warp * WARP_CHANNEL_GROUPS + d;
                const float4 partial =
                    partial_outputs[((warp * QUERY_WARPS + query_warp) * CHANNEL_GROUPS + group) * 32];
                output[0][d][0] = fmaf(partial.x, factor0, output[0][d][0]);
                output[0][d][1] = fmaf(partial.y, factor0, output[0][d][1]);
                output[0][d][2] = fmaf(partial.z, factor1, output[0][d][2]);
                output[0][d][3] = fmaf(partial.w, factor1, output[0][d][3]);
            }
        }
    }
    u16* out = (u16*)args.out + (int64_t)sequence.begin * args.out_pitch + head * CHANNELS
             + key_warp * WARP_CHANNEL_GROUPS * 8;
#pragma unroll
    for (int i = 0; i < QUERY_BLOCKS; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = row_sum[i][half];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            const float inverse_sum = 1.f / sum; // the sum is not 0: every query sees at least one key
            const int query = query0 + (query_warp * QUERY_BLOCKS + i) * 16 + half * 8 + (lane >> 2);
            // Four channel groups at a time are transposed within quads (quads.cuh), so a lane stores the 8 channels
            // of group d + (lane & 3).
#pragma unroll
            for (int d = 0; d < WARP_CHANNEL_GROUPS; d += 4) {
                u32 words[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const bool exists = d + j < WARP_CHANNEL_GROUPS;
                    const float(&group)[4] = output[i][exists ? d + j : 0];
                    words[j] = exists ? pack_bf16(group[half * 2] * inverse_sum, group[half * 2 + 1] * inverse_sum) : 0;
                }
                quad_transpose(words[0], words[1], words[2], words[3], lane);
                constexpr int STORED_GROUPS = CHANNELS == HEAD_DIM ? WARP_CHANNEL_GROUPS : CHANNELS / 8;
                if (query < sequence.queries && (d + 4 <= STORED_GROUPS || d + (lane & 3) < STORED_GROUPS))
                    store16(out + (int64_t)row_of(sequence, query) * args.out_pitch + (d + (lane & 3)) * 8,
                            make_uint4(words[0], words[1], words[2], words[3]));
            }
        }
}
