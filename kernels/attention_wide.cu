// softmax(q k^T * scale) v with head dim 384, 512, 768 or 1152 for compute capability 8.0 and newer (the middle block of
// a VAE: one head, 16384 tokens): bf16, float sums, grouped-query heads, one or two spans, not causal. attention.h has
// the shapes and launches; attention_wide_sm90.cu is the same for Hopper at 384 and 512.
//
// An output row needs as many float accumulators as it has channels, so a block computes 64 query rows: 128 registers of
// each of its 256 threads at 512 channels. The output of a wider head is cut into two parts of its channels, which are
// two tiles. Each computes the scores of its 64 rows by itself, which makes the work one and a half times as much. A tile
// of 32 rows and all channels would compute them once, but it would use what it reads of k and v for half as many rows:
// a third more bytes from L2, and more traffic of shared memory for each product.
//
// The 8 warps of a block divide the two products differently:
//
//   for each tile of 128 keys
//       64 channels of q and k at a time -> S    each warp: 32 queries x 32 keys
//       softmax                                  the four warps of a row exchange its maximum; P goes to shared memory
//       16 keys of v at a time -> O += P v       each warp: all 64 queries x an eighth of the part's channels
//
// All operands pass through stages of shared memory, each of which holds one of these pieces. Reading q again for every
// tile is a fifth of the traffic, and it leaves enough shared memory on a GeForce (99 KiB). Where there is more, a piece
// is twice as long: half the barriers.
//
// 16384 tokens with one head of 512: 1.93 ms on an H100 with long pieces, 2.19 with short ones, 7.4 by attention_any.cu.
// Bound by shared memory, which the products of q and k read 1.2 times as long as tensor cores take for them, and by
// barriers, for a multiprocessor holds one block.
#include "attention_sequences.cuh"
#include "common.cuh"
#include "portable_sm80.cuh"

static constexpr int TILE_QUERIES = 64, TILE_KEYS = 128, THREADS = 256;

// Where things lie in shared memory: the stages, P as rows of 256 bytes, for each row its maximum or sum over the keys
// of each of four warps, and the factor by which sums so far are multiplied. A stage holds QK_STEPS * 16 channels of 64
// rows of q, then of 128 rows of k; or PV_STEPS * 16 keys of v.
template <int DIM_, int QK_STEPS_, int STAGES_, int PARTS_ = 1> struct wide {
    static constexpr int DIM = DIM_, QK_STEPS = QK_STEPS_, STAGES = STAGES_, PV_STEPS = QK_STEPS / 4, PARTS = PARTS_,
                         PART = DIM / PARTS; // channels of the output that a block computes
    static constexpr int QK_PIECES = DIM / (QK_STEPS * 16), PV_PIECES = TILE_KEYS / (PV_STEPS * 16);
    static constexpr int QK_ROW_BYTES = QK_STEPS * 32, Q_BYTES = TILE_QUERIES * QK_ROW_BYTES,
                         STAGE_BYTES = Q_BYTES + TILE_KEYS * QK_ROW_BYTES;
    static constexpr int P_OFFSET = STAGES * STAGE_BYTES, WARP_ROWS_OFFSET = P_OFFSET + TILE_QUERIES * TILE_KEYS * 2,
                         FACTORS_OFFSET = WARP_ROWS_OFFSET + 4 * TILE_QUERIES * 4,
                         SHARED_BYTES = FACTORS_OFFSET + TILE_QUERIES * 4;
    static_assert(PV_STEPS * 16 * PART * 2 <= STAGE_BYTES, "a piece of v fits a stage");
    static_assert(DIM % (QK_STEPS * 16) == 0 && PART % 64 == 0, "pieces are whole, and warps have whole groups");
};

// Copies the pieces to the stages, one per call: of each tile of keys those of q and k, then those of v.
template <class W> struct wide_loader {
    const u16 *q, *k, *v;
    u32 shared;
    int pitch_units; // of 16 bytes, from row to row
    int first_span_tokens, second_span_offset, keys, queries, query0;
    int key0 = 0, piece = 0, stage = 0; // of the next call

    SUMI_DEVICE void copy(u32 to, const u16* head, int token, int token_end, int unit) const
    {
        const bool is_inside = token < token_end;
        const int row = token + (token >= first_span_tokens ? second_span_offset : 0); // row_of
        copy_async_16(to, (const u8*)head + ((int64_t)(is_inside ? row * pitch_units + unit : 0) << 4),
                      is_inside ? 16 : 0);
    }
    SUMI_DEVICE void next()
    {
        if (key0 < keys) {
            const u32 to = shared + stage * W::STAGE_BYTES;
            if (piece < W::QK_PIECES) {
                constexpr int UNITS = W::QK_ROW_BYTES / 16, ROWS = THREADS / UNITS;
                const int row = threadIdx.x / UNITS, unit = threadIdx.x % UNITS;
                const u32 first = to + swizzled_offset<W::QK_ROW_BYTES>(row, unit);
#pragma unroll
                for (int i = 0; i < TILE_QUERIES / ROWS; i++)
                    copy(first + i * ROWS * W::QK_ROW_BYTES, q, query0 + row + i * ROWS, queries, piece * UNITS + unit);
#pragma unroll
                for (int i = 0; i < TILE_KEYS / ROWS; i++)
                    copy(first + W::Q_BYTES + i * ROWS * W::QK_ROW_BYTES, k, key0 + row + i * ROWS, keys,
                         piece * UNITS + unit);
            } else {
                constexpr int UNITS = W::PV_STEPS * 16 * (W::PART / 8);
                const int piece0 = key0 + (piece - W::QK_PIECES) * (W::PV_STEPS * 16);
#pragma unroll
                for (int i = 0; i < (UNITS + THREADS - 1) / THREADS; i++) {
                    const int row = (i * THREADS + threadIdx.x) / (W::PART / 8),
                              unit = (i * THREADS + threadIdx.x) % (W::PART / 8);
                    if (UNITS % THREADS == 0 || i * THREADS + threadIdx.x < UNITS)
                        copy(to + swizzled_offset<W::PART * 2>(row, unit), v, piece0 + row, keys, unit);
                }
            }
            if (++piece == W::QK_PIECES + W::PV_PIECES) piece = 0, key0 += TILE_KEYS;
            stage = stage + 1 == W::STAGES ? 0 : stage + 1;
        }
        copy_async_commit(); // an empty group after the last piece, so that the number of groups in flight stays the same
    }
};

template <class W> SUMI_DEVICE void attention_wide(const sumi_attention_args& args)
{
    constexpr int DIM = W::DIM, PART = W::PART, GROUPS = PART / 64; // 8-channel groups of a warp's share of the output
    extern __shared__ __align__(1024) u8 shared[];
    const u32 shared_address = (u32)__cvta_generic_to_shared(shared);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, query_half = warp & 1, key_quarter = warp >> 1;
    const int tile = args.tile_begin + blockIdx.x;
    const sumi_attention_sequence& sequence = args.sequences[sequence_of(args, tile)];
    const int tile_in_sequence = tile - sequence.tile_end + sequence.row_tiles * args.heads,
              head = tile_in_sequence / sequence.row_tiles, row_tile = tile_in_sequence - head * sequence.row_tiles,
              kv_head = head / args.group, keys = sequence.keys;
    // The parts of the same rows follow one another. part0: the first channel of this one.
    const int query0 = sequence.first_query + row_tile / W::PARTS * TILE_QUERIES, part0 = row_tile % W::PARTS * PART;
    const float scale_log2 = args.scale_log2;
    const u16* qkv = (const u16*)args.qkv + (int64_t)sequence.begin * args.pitch;
    wide_loader<W> loader = {qkv + args.q_column + head * DIM,
                             qkv + args.k_column + kv_head * DIM,
                             qkv + args.v_column + kv_head * DIM + part0,
                             shared_address,
                             args.pitch / 8,
                             sequence.first_span_tokens,
                             sequence.second_span_offset,
                             keys,
                             sequence.queries,
                             query0};
#pragma unroll
    for (int i = 0; i < W::STAGES - 1; i++) loader.next();

    // acc[i][group]: rows 16 i .. 16 i + 15, a group of 8 channels of this warp's share. The other state is of the
    // lane's rows in S: row 32 query_half + 16 i + 8 half + (lane >> 2).
    float acc[4][GROUPS][4], row_max[2][2], row_sum[2][2];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int group = 0; group < GROUPS; group++)
            acc[i][group][0] = acc[i][group][1] = acc[i][group][2] = acc[i][group][3] = 0.f;
#pragma unroll
    for (int i = 0; i < 2; i++) row_max[i][0] = row_max[i][1] = -1e30f, row_sum[i][0] = row_sum[i][1] = 0.f;
    float *warp_rows = (float*)(shared + W::WARP_ROWS_OFFSET), *factors = (float*)(shared + W::FACTORS_OFFSET);
    const int row0 = query_half * 32 + (lane >> 2);
    // The offsets of this lane's ldmatrix rows (the matrices are drawn in attention.cu): in q, in k, in P.
    const u32 q_offset = swizzled_offset<W::QK_ROW_BYTES>(query_half * 32 + (lane & 15), lane >> 4),
              k_offset = W::Q_BYTES
                       + swizzled_offset<W::QK_ROW_BYTES>(key_quarter * 32 + (lane & 7) + ((lane >> 4) << 3),
                                                          (lane >> 3) & 1),
              p_offset = W::P_OFFSET + swizzled_offset<256>(lane & 15, lane >> 4);
    int stage = 0;
    // Waits for the next piece. All warps have then finished with the stage that loader.next() fills.
    const auto wait = [&] {
        copy_async_wait<W::STAGES - 2>();
        __syncthreads();
    };
    const auto advance = [&] { stage = stage + 1 == W::STAGES ? 0 : stage + 1; };

    for (int key0 = 0; key0 < keys; key0 += TILE_KEYS) {
        float scores[2][4][4];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int group = 0; group < 4; group++)
                scores[i][group][0] = scores[i][group][1] = scores[i][group][2] = scores[i][group][3] = 0.f;
#pragma unroll 1
        for (int piece = 0; piece < W::QK_PIECES; piece++, advance()) {
            wait();
            const u32 from = shared_address + stage * W::STAGE_BYTES;
            // Two sets of fragments: the next k-step is read while this one is multiplied. k: b0, b1 of key group 2 j,
            // then of the next one.
            u32 q_fragments[2][2][4], k_fragments[2][2][4];
            const auto load_fragments = [&](int set, int k_step) {
#pragma unroll
                for (int i = 0; i < 2; i++)
                    load_matrix_x4(q_fragments[set][i],
                                   swizzled_step<W::QK_ROW_BYTES>(from + q_offset, k_step) + i * 16 * W::QK_ROW_BYTES);
#pragma unroll
                for (int j = 0; j < 2; j++)
                    load_matrix_x4(k_fragments[set][j],
                                   swizzled_step<W::QK_ROW_BYTES>(from + k_offset, k_step) + j * 16 * W::QK_ROW_BYTES);
            };
            load_fragments(0, 0);
            loader.next();
#pragma unroll
            for (int k_step = 0; k_step < W::QK_STEPS; k_step++) {
                if (k_step + 1 < W::QK_STEPS) load_fragments((k_step + 1) & 1, k_step + 1);
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                    for (int group = 0; group < 4; group++)
                        mma<SUMI_OPERANDS_BF16>(scores[i][group], q_fragments[k_step & 1][i],
                                                k_fragments[k_step & 1][group >> 1][group % 2 * 2],
                                                k_fragments[k_step & 1][group >> 1][group % 2 * 2 + 1]);
            }
        }
        // Only the last tile can be incomplete.
        if (key0 + TILE_KEYS > keys) {
#pragma unroll
            for (int group = 0; group < 4; group++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (key0 + key_quarter * 32 + group * 8 + (lane & 3) * 2 + (e & 1) >= keys)
                        scores[0][group][e] = scores[1][group][e] = __int_as_float(0xff800000); // -inf
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float lane_max = scores[i][0][half * 2];
#pragma unroll
                for (int group = 0; group < 4; group++)
                    lane_max = fmaxf(lane_max, fmaxf(scores[i][group][half * 2], scores[i][group][half * 2 + 1]));
                lane_max = fmaxf(lane_max, __shfl_xor_sync(~0u, lane_max, 1));
                lane_max = fmaxf(lane_max, __shfl_xor_sync(~0u, lane_max, 2));
                if ((lane & 3) == 0) warp_rows[key_quarter * TILE_QUERIES + row0 + i * 16 + half * 8] = lane_max;
            }
        __syncthreads(); // the maxima of all four warps of a row are written
        bool has_grown = false;
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = row0 + i * 16 + half * 8;
                float tile_max = warp_rows[row];
#pragma unroll
                for (int w = 1; w < 4; w++) tile_max = fmaxf(tile_max, warp_rows[w * TILE_QUERIES + row]);
                tile_max *= scale_log2;
                // Rescale only when a row's maximum grew by more than a factor of 2^8.
                const float new_max = tile_max > row_max[i][half] + 8.f ? tile_max : row_max[i][half],
                            factor = exp2_fast(row_max[i][half] - new_max);
                has_grown = has_grown || new_max != row_max[i][half];
                row_max[i][half] = new_max;
                row_sum[i][half] *= factor;
                if (key_quarter == 0 && (lane & 3) == 0) factors[row] = factor;
#pragma unroll
                for (int group = 0; group < 4; group++) {
                    const float p0 = exp2_fast(fmaf(scores[i][group][half * 2], scale_log2, -new_max)),
                                p1 = exp2_fast(fmaf(scores[i][group][half * 2 + 1], scale_log2, -new_max));
                    row_sum[i][half] += p0 + p1;
                    *(u32*)(shared + W::P_OFFSET + swizzled_offset<256>(row, key_quarter * 4 + group)
                            + (lane & 3) * 4) = pack_bf16(p0, p1);
                }
            }
        // P and the factors are complete, and whether a row's maximum grew.
        if (__syncthreads_or(has_grown)) {
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const float factor = factors[i * 16 + half * 8 + (lane >> 2)];
#pragma unroll
                    for (int group = 0; group < GROUPS; group++)
                        acc[i][group][half * 2] *= factor, acc[i][group][half * 2 + 1] *= factor;
                }
        }
#pragma unroll 1
        for (int piece = 0; piece < W::PV_PIECES; piece++, advance()) {
            wait();
            const u32 from = shared_address + stage * W::STAGE_BYTES;
            // v: b0, b1 of channel group 2 * pair, then of the next one. If the number of groups is odd, the last pair
            // reads its only group twice.
            constexpr int PAIRS = (GROUPS + 1) / 2;
            u32 p_fragments[4][4], v_fragments[2][4];
            const auto load_v = [&](int set, int k_step, int pair) {
                const int group = GROUPS % 2 && pair == PAIRS - 1 ? pair * 2 : pair * 2 + (lane >> 4);
                load_matrix_x4_transposed(
                    v_fragments[set],
                    from + swizzled_offset<PART * 2>(k_step * 16 + (lane & 15), warp * GROUPS + group));
            };
            load_v(0, 0, 0);
#pragma unroll
            for (int k_step = 0; k_step < W::PV_STEPS; k_step++) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    load_matrix_x4(p_fragments[i],
                                   swizzled_step<256>(shared_address + p_offset, piece * W::PV_STEPS + k_step)
                                       + i * 16 * 256);
                if (k_step == 0) loader.next();
#pragma unroll
                for (int pair = 0; pair < PAIRS; pair++) {
                    const int step = k_step * PAIRS + pair;
                    if (pair + 1 < PAIRS) load_v((step + 1) & 1, k_step, pair + 1);
                    else if (k_step + 1 < W::PV_STEPS) load_v((step + 1) & 1, k_step + 1, 0);
                    const u32(&b)[4] = v_fragments[step & 1];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        mma<SUMI_OPERANDS_BF16>(acc[i][pair * 2], p_fragments[i], b[0], b[1]);
                        if (pair * 2 + 1 < GROUPS)
                            mma<SUMI_OPERANDS_BF16>(acc[i][(pair * 2 + 1) % GROUPS], p_fragments[i], b[2], b[3]);
                    }
                }
            }
        }
    }
    // The sums of the four warps of a row meet in shared memory.
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            row_sum[i][half] += __shfl_xor_sync(~0u, row_sum[i][half], 1);
            row_sum[i][half] += __shfl_xor_sync(~0u, row_sum[i][half], 2);
            if ((lane & 3) == 0) warp_rows[key_quarter * TILE_QUERIES + row0 + i * 16 + half * 8] = row_sum[i][half];
        }
    __syncthreads(); // they are written
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = i * 16 + half * 8 + (lane >> 2), query = query0 + row;
            float sum = warp_rows[row];
#pragma unroll
            for (int w = 1; w < 4; w++) sum += warp_rows[w * TILE_QUERIES + row];
            const float inverse_sum = 1.f / sum;
            const bool is_query = query < sequence.queries;
            u16* out = (u16*)args.out
                     + (int64_t)(sequence.begin + row_of(sequence, is_query ? query : 0)) * args.out_pitch + head * DIM
                     + part0 + warp * GROUPS * 8;
#pragma unroll
            for (int group = 0; group < GROUPS; group += 4) {
                u32 words[4];
#pragma unroll
                for (int j = 0; j < 4; j++)
                    words[j] = group + j < GROUPS ? pack_bf16(acc[i][(group + j) % GROUPS][half * 2] * inverse_sum,
                                                              acc[i][(group + j) % GROUPS][half * 2 + 1] * inverse_sum)
                                                  : 0;
                quad_transpose(words[0], words[1], words[2], words[3], lane);
                if (is_query && group + (lane & 3) < GROUPS)
                    store16(out + (group + (lane & 3)) * 8, make_uint4(words[0], words[1], words[2], words[3]));
            }
        }
}

#define ATTENTION_WIDE(name, NAME, ...)                                                                                \
    static_assert(wide<__VA_ARGS__>::SHARED_BYTES == NAME, "attention.h");                                             \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ sumi_attention_args args)    \
    {                                                                                                                  \
        attention_wide<wide<__VA_ARGS__>>(args);                                                                       \
    }
ATTENTION_WIDE(sumi_attention_d384, SUMI_ATTENTION_WIDE_SHARED_BYTES, 384, 4, 3)
ATTENTION_WIDE(sumi_attention_d512, SUMI_ATTENTION_WIDE_SHARED_BYTES, 512, 4, 3)
// longer pieces, for 8.0 and 9.0
ATTENTION_WIDE(sumi_attention_d384_w, SUMI_ATTENTION_WIDE_W_SHARED_BYTES, 384, 8, 3)
ATTENTION_WIDE(sumi_attention_d512_w, SUMI_ATTENTION_WIDE_W_SHARED_BYTES, 512, 8, 3)
// in two parts
ATTENTION_WIDE(sumi_attention_d768, SUMI_ATTENTION_WIDE_SHARED_BYTES, 768, 4, 3, 2)
ATTENTION_WIDE(sumi_attention_d768_w, SUMI_ATTENTION_WIDE_W_SHARED_BYTES, 768, 8, 3, 2)
ATTENTION_WIDE(sumi_attention_d1152, SUMI_ATTENTION_WIDE_SHARED_BYTES, 1152, 4, 3, 2)
ATTENTION_WIDE(sumi_attention_d1152_w, SUMI_ATTENTION_WIDE_W_SHARED_BYTES, 1152, 8, 3, 2)
