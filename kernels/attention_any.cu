// softmax(q k^T * scale) v for every case that the other kernels do not support: any head dim, any alignment, causal,
// windows, sequences of one or two spans. With mma.sync, for compute capability 8.0 and newer: bf16, float sums, 41 KiB
// of shared memory. attention.h has the shapes and launches.
//
// A block computes 64 queries of one head. Its 8 warps are 4 query warps (16 queries each) x 2 column halves. All
// operands pass through two stages in shared memory, in chunks of 64 tokens x 64 channels:
//
//   for each tile of 64 keys
//       chunks of q and k -> S    each warp: 16 queries x 32 keys
//       softmax                   the two column halves exchange row maxima; P goes to shared memory
//       chunks of v -> O += P v   each warp: 16 queries x 32 of the chunk's 64 channels
//
// A lane (r = lane >> 2, u = lane & 3) holds, in the accumulators scores[group] (8 keys) and acc[chunk][group] (8
// channels), this element e (drawn in portable_sm80.cuh, where u is q):
//
//     e             0                1                    2                3
//     query         row              row                  row + 8          row + 8          row = 16 query_warp + r
//     column        first            first + 1            first            first + 1
//
//     first = 32 column_half + 8 group + 2 u, for channels + 64 chunk
//
// So registers hold only O: 16 floats per thread and chunk of channels, that is 128 for dim 512. Reading q again for
// every tile of keys is a third of the traffic (from L2), and lets 512 channels fit in the shared memory that 64
// channels need. The output of wider heads is cut into parts of 512 channels. A part is a tile, and computes the scores
// of its rows by itself. Channels past dim and tokens past the end are zeros in shared memory. There is one barrier per
// chunk. After it, the chunk has arrived, and all warps have finished with the other stage.
#include "attention_sequences.cuh"
#include "common.cuh"
#include "portable_sm80.cuh"

static constexpr int TILE_QUERIES = 64, TILE_KEYS = 64;
// Shared memory: two stages of two buffers (a chunk of q or nothing, then a chunk of k or v), P of the tile as bf16,
// and for each column half the maxima and the sums of the rows.
static constexpr int BUFFER_BYTES = 64 * 128, STAGE_BYTES = 2 * BUFFER_BYTES;
static constexpr int P_OFFSET = 2 * STAGE_BYTES, ROW_MAX_OFFSET = P_OFFSET + BUFFER_BYTES,
                     ROW_SUM_OFFSET = ROW_MAX_OFFSET + 2 * TILE_QUERIES * 4;
static_assert(ROW_SUM_OFFSET + 2 * TILE_QUERIES * 4 == SUMI_ATTENTION_ANY_SHARED_BYTES, "attention.h");

// Copies a chunk, 64 tokens from token0 on x 64 channels from channel0 on, of the head at `from` to the swizzled buffer
// at byte `to` of shared memory. kept: where the head begins in a row of kept keys or values, which the first tokens are;
// NULL: all tokens are rows at `from`. Tokens from token_end on and channels from args.dim on become zeros. A thread copies
// two units of 16 bytes (8 channels); a unit is called chunk in portable_sm80.cuh.
SUMI_DEVICE void load_chunk(const sumi_attention_args& args, const sumi_attention_sequence& sequence, u8* shared,
                            int to, const u16* from, const u16* kept, int token0, int token_end, int channel0)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int unit_in_chunk = i * 256 + threadIdx.x, row = unit_in_chunk >> 3, unit = unit_in_chunk & 7,
                  channel = channel0 + unit * 8, token = token0 + row;
        const bool is_inside = token < token_end && channel < args.dim;
        const bool is_kept = kept != nullptr && token < sequence.first_span_tokens;
        const u16* source = from;
        if (is_inside)
            source = (is_kept ? kept_row_of(args, sequence, kept, token)
                              : from + (int64_t)row_of(sequence, token) * args.pitch)
                   + channel;
        const u32 offset = to + swizzled_offset<128>(row, unit);
        if (args.is_aligned) {
            copy_async_16((u32)__cvta_generic_to_shared(shared) + offset, source, is_inside ? 16 : 0);
        } else {
            u32 words[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 low = is_inside && channel + 2 * j < args.dim ? source[2 * j] : 0,
                          high = is_inside && channel + 2 * j + 1 < args.dim ? source[2 * j + 1] : 0;
                words[j] = low | high << 16;
            }
            *(uint4*)(shared + offset) = make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
}

// CHUNKS: the largest number of chunks of 64 channels that a head may have, or, with HAS_PARTS, that a part has.
template <int CHUNKS, bool HAS_PARTS> SUMI_DEVICE void attention_any(const sumi_attention_args& args)
{
    extern __shared__ __align__(1024) u8 shared[];
    const u32 shared_address = (u32)__cvta_generic_to_shared(shared);
    const int lane = threadIdx.x & 31, query_warp = (threadIdx.x >> 5) & 3, column_half = threadIdx.x >> 7;
    const int tile = args.tile_begin + blockIdx.x;
    const sumi_attention_sequence& sequence = args.sequences[sequence_of(args, tile)];
    const int tile_in_sequence = tile - sequence.tile_end + sequence.row_tiles * args.heads,
              head = tile_in_sequence / sequence.row_tiles, row_tile = tile_in_sequence - head * sequence.row_tiles,
              kv_head = head / args.group;
    // The parts of the same rows follow one another. part0: the first channel of this one.
    const int parts = HAS_PARTS ? (args.dim + CHUNKS * 64 - 1) / (CHUNKS * 64) : 1,
              part0 = HAS_PARTS ? row_tile % parts * (CHUNKS * 64) : 0,
              query0 = sequence.first_query + row_tile / parts * TILE_QUERIES;
    const u16* qkv = (const u16*)args.qkv + (int64_t)sequence.begin * args.pitch;
    const u16* q = qkv + args.q_column + head * args.dim;
    const u16* k = qkv + args.k_column + kv_head * args.dim;
    const u16* v = qkv + args.v_column + kv_head * args.dim;
    const u16* kept_k = args.kept != 0 ? (const u16*)args.kept + kv_head * args.dim : nullptr;
    const u16* kept_v = args.kept != 0 ? kept_k + args.heads / args.group * args.dim : nullptr;
    const int chunks = (args.dim + 63) >> 6;                                       // of this head dim
    const int part_chunks = HAS_PARTS ? min(chunks - part0 / 64, CHUNKS) : chunks; // of v and of the output

    // The tiles of keys that at least one query of this tile sees. A causal query i sees keys (i - window, i]. With a
    // window and without causal masking, it sees keys (i - window, i + window).
    const int last_query = min(query0 + TILE_QUERIES, sequence.queries) - 1;
    int key_begin = 0, key_end = sequence.keys;
    if (args.is_causal) key_end = min(key_end, last_query + 1);
    if (args.window > 0) {
        key_begin = max(0, query0 - args.window + 1);
        if (!args.is_causal) key_end = (int)min((int64_t)key_end, (int64_t)last_query + args.window);
    }
    const int key_tile_begin = key_begin / TILE_KEYS, key_tile_end = (key_end + TILE_KEYS - 1) / TILE_KEYS;

    float acc[CHUNKS][4][4], row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {0.f, 0.f};
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
        for (int group = 0; group < 4; group++)
            acc[chunk][group][0] = acc[chunk][group][1] = acc[chunk][group][2] = acc[chunk][group][3] = 0.f;
    float* shared_max = (float*)(shared + ROW_MAX_OFFSET);
    float* shared_sum = (float*)(shared + ROW_SUM_OFFSET);
    const int row = query_warp * 16 + (lane >> 2); // this thread's first query in the tile; its second one is row + 8
    // The offsets of this lane's ldmatrix rows in a buffer (the matrices are drawn in attention.cu): of q and P, k, v.
    const u32 q_offset = swizzled_offset<128>(query_warp * 16 + (lane & 15), lane >> 4),
              k_offset =
                  swizzled_offset<128>((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1) + column_half * 32 * 128,
              v_offset = swizzled_offset<128>(lane & 15, lane >> 4);

    int stage = 0; // byte offset of the pair of buffers in use: 0 or STAGE_BYTES
    load_chunk(args, sequence, shared, stage, q, nullptr, query0, sequence.queries, 0);
    load_chunk(args, sequence, shared, stage + BUFFER_BYTES, k, kept_k, key_tile_begin * TILE_KEYS, sequence.keys, 0);
    copy_async_commit();
    for (int key_tile = key_tile_begin; key_tile < key_tile_end; key_tile++) {
        float scores[4][4];
#pragma unroll
        for (int group = 0; group < 4; group++)
            scores[group][0] = scores[group][1] = scores[group][2] = scores[group][3] = 0.f;
        for (int chunk = 0; chunk < chunks; chunk++) {
            copy_async_wait<0>();
            __syncthreads();
            const int next_stage = stage ^ STAGE_BYTES;
            if (chunk + 1 < chunks) {
                load_chunk(args, sequence, shared, next_stage, q, nullptr, query0, sequence.queries, (chunk + 1) * 64);
                load_chunk(args, sequence, shared, next_stage + BUFFER_BYTES, k, kept_k, key_tile * TILE_KEYS,
                           sequence.keys, (chunk + 1) * 64);
            } else {
                load_chunk(args, sequence, shared, next_stage + BUFFER_BYTES, v, kept_v, key_tile * TILE_KEYS,
                           sequence.keys, part0);
            }
            copy_async_commit();
            const u32 q_address = shared_address + stage + q_offset,
                      k_address = shared_address + stage + BUFFER_BYTES + k_offset;
#pragma unroll
            for (int k_step = 0; k_step < 4; k_step++) {
                u32 q_fragment[4];
                load_matrix_x4(q_fragment, swizzled_step<128>(q_address, k_step));
#pragma unroll
                for (int key_pair = 0; key_pair < 2; key_pair++) {
                    u32 k_fragments[4]; // b0, b1 of key group 2 * key_pair, then of the next one
                    load_matrix_x4(k_fragments, swizzled_step<128>(k_address, k_step) + key_pair * 16 * 128);
                    mma<SUMI_OPERANDS_BF16>(scores[2 * key_pair], q_fragment, k_fragments[0], k_fragments[1]);
                    mma<SUMI_OPERANDS_BF16>(scores[2 * key_pair + 1], q_fragment, k_fragments[2], k_fragments[3]);
                }
            }
            stage = next_stage;
        }
        float tile_max[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int group = 0; group < 4; group++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = key_tile * TILE_KEYS + column_half * 32 + group * 8 + (lane & 3) * 2 + (e & 1),
                          query = query0 + row + (e >> 1) * 8;
                const bool is_seen = key < sequence.keys && !(args.is_causal && key > query)
                                  && !(args.window > 0 && (key <= query - args.window || key - args.window >= query));
                scores[group][e] = is_seen ? scores[group][e] * args.scale_log2 : -INFINITY;
                tile_max[e >> 1] = fmaxf(tile_max[e >> 1], scores[group][e]);
            }
#pragma unroll
        for (int half = 0; half < 2; half++) { // of the 16 rows: row or row + 8
            tile_max[half] = fmaxf(tile_max[half], __shfl_xor_sync(~0u, tile_max[half], 1));
            tile_max[half] = fmaxf(tile_max[half], __shfl_xor_sync(~0u, tile_max[half], 2));
            if ((lane & 3) == 0) shared_max[column_half * TILE_QUERIES + row + half * 8] = tile_max[half];
        }
        __syncthreads(); // the row maxima of both column halves are written
        float rescale_factor[2], subtracted_max[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float new_max =
                fmaxf(row_max[half], fmaxf(shared_max[row + half * 8], shared_max[TILE_QUERIES + row + half * 8]));
            // a row without a key so far: the scores are -inf, and exp2(-inf - 0) is 0
            subtracted_max[half] = new_max == -INFINITY ? 0.f : new_max;
            rescale_factor[half] = exp2_fast(row_max[half] - subtracted_max[half]);
            row_max[half] = new_max;
            row_sum[half] *= rescale_factor[half];
        }
#pragma unroll
        for (int group = 0; group < 4; group++) {
            const float p0 = exp2_fast(scores[group][0] - subtracted_max[0]),
                        p1 = exp2_fast(scores[group][1] - subtracted_max[0]),
                        p2 = exp2_fast(scores[group][2] - subtracted_max[1]),
                        p3 = exp2_fast(scores[group][3] - subtracted_max[1]);
            row_sum[0] += p0 + p1;
            row_sum[1] += p2 + p3;
            // a row of P has 128 bytes, and 8 of its keys are one unit
            *(u32*)(shared + P_OFFSET + swizzled_offset<128>(row, column_half * 4 + group) + (lane & 3) * 4) =
                pack_bf16(p0, p1);
            *(u32*)(shared + P_OFFSET + swizzled_offset<128>(row + 8, column_half * 4 + group) + (lane & 3) * 4) =
                pack_bf16(p2, p3);
        }
        if (__any_sync(~0u, rescale_factor[0] != 1.f || rescale_factor[1] != 1.f)) {
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
                for (int group = 0; group < 4; group++)
                    acc[chunk][group][0] *= rescale_factor[0], acc[chunk][group][1] *= rescale_factor[0],
                        acc[chunk][group][2] *= rescale_factor[1], acc[chunk][group][3] *= rescale_factor[1];
        }
        u32 probabilities[4][4]; // A fragments of 16 queries x 16 keys
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            if (chunk < part_chunks) {
                copy_async_wait<0>();
                __syncthreads(); // at the first chunk, P is complete too
                const int next_stage = stage ^ STAGE_BYTES;
                if (chunk + 1 < part_chunks) {
                    load_chunk(args, sequence, shared, next_stage + BUFFER_BYTES, v, kept_v, key_tile * TILE_KEYS,
                               sequence.keys, part0 + (chunk + 1) * 64);
                } else if (key_tile + 1 < key_tile_end) {
                    load_chunk(args, sequence, shared, next_stage, q, nullptr, query0, sequence.queries, 0);
                    load_chunk(args, sequence, shared, next_stage + BUFFER_BYTES, k, kept_k, (key_tile + 1) * TILE_KEYS,
                               sequence.keys, 0);
                }
                copy_async_commit();
                if (chunk == 0)
#pragma unroll
                    for (int k_step = 0; k_step < 4; k_step++)
                        load_matrix_x4(probabilities[k_step],
                                       swizzled_step<128>(shared_address + P_OFFSET + q_offset, k_step));
                const u32 v_address = shared_address + stage + BUFFER_BYTES + v_offset;
#pragma unroll
                for (int k_step = 0; k_step < 4; k_step++)
#pragma unroll
                    for (int channel_pair = 0; channel_pair < 2; channel_pair++) {
                        u32 v_fragments[4]; // b0, b1 of channel group 2 * channel_pair, then of the next one
                        load_matrix_x4_transposed(v_fragments,
                                                  swizzled_step<128>(v_address, column_half * 2 + channel_pair)
                                                      + k_step * 16 * 128);
                        mma<SUMI_OPERANDS_BF16>(acc[chunk][2 * channel_pair], probabilities[k_step], v_fragments[0],
                                                v_fragments[1]);
                        mma<SUMI_OPERANDS_BF16>(acc[chunk][2 * channel_pair + 1], probabilities[k_step], v_fragments[2],
                                                v_fragments[3]);
                    }
                stage = next_stage;
            }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        row_sum[half] += __shfl_xor_sync(~0u, row_sum[half], 1);
        row_sum[half] += __shfl_xor_sync(~0u, row_sum[half], 2);
        if ((lane & 3) == 0) shared_sum[column_half * TILE_QUERIES + row + half * 8] = row_sum[half];
    }
    __syncthreads(); // the sums of both column halves are written
#pragma unroll
    for (int half = 0; half < 2; half++) {
        // Every query sees a key, so its sum is 0 only if all its scores are -infinity; it becomes 0 / 0, NaN.
        const float inverse_sum = 1.f / (shared_sum[row + half * 8] + shared_sum[TILE_QUERIES + row + half * 8]);
        const int query = query0 + row + half * 8;
        const bool is_query = query < sequence.queries;
        u16* out = (u16*)args.out + (int64_t)(sequence.begin + row_of(sequence, is_query ? query : 0)) * args.out_pitch
                 + head * args.dim;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            u32 words[4];
#pragma unroll
            for (int group = 0; group < 4; group++)
                words[group] =
                    pack_bf16(acc[chunk][group][half * 2] * inverse_sum, acc[chunk][group][half * 2 + 1] * inverse_sum);
            if (args.is_aligned) {
                quad_transpose(words[0], words[1], words[2], words[3], lane);
                const int channel = part0 + chunk * 64 + column_half * 32 + (lane & 3) * 8;
                if (is_query && channel < args.dim)
                    store16(out + channel, make_uint4(words[0], words[1], words[2], words[3]));
            } else {
#pragma unroll
                for (int group = 0; group < 4; group++) {
                    const int channel = part0 + chunk * 64 + column_half * 32 + group * 8 + (lane & 3) * 2;
                    if (is_query && channel < args.dim) out[channel] = (u16)words[group];
                    if (is_query && channel + 1 < args.dim) out[channel + 1] = (u16)(words[group] >> 16);
                }
            }
        }
    }
}

#define ATTENTION_KERNEL(NAME, CHUNKS, HAS_PARTS, MIN_BLOCKS)                                                          \
    extern "C" __global__ void __launch_bounds__(256, MIN_BLOCKS)                                                      \
        NAME(const __grid_constant__ sumi_attention_args args)                                                         \
    {                                                                                                                  \
        attention_any<CHUNKS, HAS_PARTS>(args);                                                                        \
    }
// MIN_BLOCKS: blocks that are to fit on a multiprocessor
ATTENTION_KERNEL(sumi_attention_any_c1, 1, false, 2)
ATTENTION_KERNEL(sumi_attention_any_c2, 2, false, 2)
ATTENTION_KERNEL(sumi_attention_any_c4, 4, false, 1)
ATTENTION_KERNEL(sumi_attention_any_c8, 8, false, 1)
ATTENTION_KERNEL(sumi_attention_any_parts, 8, true, 1)
