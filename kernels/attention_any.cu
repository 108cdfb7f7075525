// softmax(q k^T * scale) v for every case that the other kernels do not support: any head dim up to 512, any alignment,
// causal, windows, sequences of one or two spans. With mma.sync, for compute capability 8.0 and newer: bf16, float
// sums, 41 KiB of shared memory. attention.h has the shapes and launches.
//
// A block computes 64 queries of one head. Its 8 warps are 4 groups of 16 queries x 2 halves. All operands pass through
// two buffers, in chunks of 64 tokens x 64 channels:
//
//   for each tile of 64 keys
//       chunks of q and k -> S    each warp: 16 queries x 32 keys
//       softmax                   the two halves exchange row maxima; P goes to shared memory
//       chunks of v -> O += P v   each warp: 16 queries x 32 of the chunk's 64 channels
//
// A lane (r = lane >> 2, u = lane & 3) of a warp holds, in the accumulators scores[n] (8 keys) and acc[c][n] (8
// channels), this element e (drawn in portable_sm80.cuh, where u is q):
//
//     e             0                1                    2                3
//     query         row              row                  row + 8          row + 8               row = 16 row_group + r
//     column        first            first + 1            first            first + 1
//
//     first = 32 half + 8 n + 2 u, for channels + 64 c
//
// So registers hold only O: 16 floats per thread and chunk of channels, that is 128 for dim 512. Reading q again for
// every tile of keys is a third of the traffic (from L2), and lets 512 channels fit in the shared memory that 64
// channels need. Channels past dim and tokens past the end are zeros in shared memory. There is one barrier per chunk.
// After it, the chunk has arrived, and all warps have finished with the other buffer.
#include "attention_sequences.cuh"
#include "common.cuh"
#include "portable_sm80.cuh"

static constexpr int TILE_QUERIES = 64, TILE_KEYS = 64, BUFFER_BYTES = 64 * 128, STAGE_BYTES = 2 * BUFFER_BYTES,
                     P_OFFSET = 2 * STAGE_BYTES, MAX_OFFSET = P_OFFSET + BUFFER_BYTES,
                     SUM_OFFSET = MAX_OFFSET + 2 * TILE_QUERIES * 4;
static_assert(SUM_OFFSET + 2 * TILE_QUERIES * 4 == SUMI_ATTENTION_ANY_SHARED_BYTES, "attention.h");

// Copies 64 tokens from token0 on x 64 channels from `channel` on, of the head at `from`, to the swizzled buffer at
// byte `to` of shared memory. Tokens from `count` on and channels from dim on become zeros.
SUMI_DEVICE void load_chunk(const sumi_attention_args& args, const sumi_attention_sequence& sequence, u8* shared,
                            int to, const u16* from, int token0, int count, int channel)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int c = i * 256 + threadIdx.x, r = c >> 3, x = c & 7, channel0 = channel + x * 8, token = token0 + r;
        const bool is_inside = token < count && channel0 < args.dim;
        const u16* source = is_inside ? from + (int64_t)row_of(sequence, token) * args.pitch + channel0 : from;
        const u32 offset = to + swizzled_offset<128>(r, x);
        if (args.is_aligned) {
            copy_async_16((u32)__cvta_generic_to_shared(shared) + offset, source, is_inside ? 16 : 0);
        } else {
            u32 w[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const u32 low = is_inside && channel0 + 2 * e < args.dim ? source[2 * e] : 0,
                          high = is_inside && channel0 + 2 * e + 1 < args.dim ? source[2 * e + 1] : 0;
                w[e] = low | high << 16;
            }
            *(uint4*)(shared + offset) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

template <int CHUNKS> SUMI_DEVICE void attention_any(const sumi_attention_args& args)
{
    extern __shared__ __align__(1024) u8 shared[];
    const u32 base = (u32)__cvta_generic_to_shared(shared);
    const int lane = threadIdx.x & 31, row_group = (threadIdx.x >> 5) & 3, half = threadIdx.x >> 7;
    const int tile = args.tile_begin + blockIdx.x;
    const sumi_attention_sequence& sequence = args.sequences[sequence_of(args, tile)];
    const int inside = tile - sequence.tile_end + sequence.row_tiles * args.heads, head = inside / sequence.row_tiles,
              first_query = sequence.first_query + (inside - head * sequence.row_tiles) * TILE_QUERIES,
              kv_head = head / args.group;
    const u16* qkv = (const u16*)args.qkv + (int64_t)sequence.begin * args.pitch;
    const u16* q = qkv + args.q_column + head * args.dim;
    const u16* k = qkv + args.k_column + kv_head * args.dim;
    const u16* v = qkv + args.v_column + kv_head * args.dim;
    const int chunks = (args.dim + 63) >> 6;

    // The tiles of keys that at least one query of this tile sees. A causal query i sees keys (i - window, i]. With a
    // window and without causal masking, it sees keys (i - window, i + window).
    const int last_query = min(first_query + TILE_QUERIES, sequence.queries) - 1;
    int key_begin = 0, key_end = sequence.keys;
    if (args.is_causal) key_end = min(key_end, last_query + 1);
    if (args.window > 0) {
        key_begin = max(0, first_query - args.window + 1);
        if (!args.is_causal) key_end = (int)min((int64_t)key_end, (int64_t)last_query + args.window);
    }
    const int key_tile_begin = key_begin / TILE_KEYS, key_tile_end = (key_end + TILE_KEYS - 1) / TILE_KEYS;

    float acc[CHUNKS][4][4], row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {0.f, 0.f};
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int n = 0; n < 4; n++) acc[c][n][0] = acc[c][n][1] = acc[c][n][2] = acc[c][n][3] = 0.f;
    float* shared_max = (float*)(shared + MAX_OFFSET);
    float* shared_sums = (float*)(shared + SUM_OFFSET);
    const int row = row_group * 16 + (lane >> 2); // this thread's first query in the tile; its second one is row + 8
    const u32 q_offset = swizzled_offset<128>(row_group * 16 + (lane & 15), lane >> 4),
              k_offset = swizzled_offset<128>((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1) + half * 32 * 128,
              v_offset = swizzled_offset<128>(lane & 15, lane >> 4);

    int stage = 0; // byte offset of the pair of buffers in use: 0 or STAGE_BYTES
    load_chunk(args, sequence, shared, stage, q, first_query, sequence.queries, 0);
    load_chunk(args, sequence, shared, stage + BUFFER_BYTES, k, key_tile_begin * TILE_KEYS, sequence.keys, 0);
    copy_async_commit();
    for (int key_tile = key_tile_begin; key_tile < key_tile_end; key_tile++) {
        float scores[4][4];
#pragma unroll
        for (int n = 0; n < 4; n++) scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0.f;
        for (int c = 0; c < chunks; c++) {
            copy_async_wait<0>();
            __syncthreads();
            const int other = stage ^ STAGE_BYTES;
            if (c + 1 < chunks) {
                load_chunk(args, sequence, shared, other, q, first_query, sequence.queries, (c + 1) * 64);
                load_chunk(args, sequence, shared, other + BUFFER_BYTES, k, key_tile * TILE_KEYS, sequence.keys,
                           (c + 1) * 64);
            } else {
                load_chunk(args, sequence, shared, other + BUFFER_BYTES, v, key_tile * TILE_KEYS, sequence.keys, 0);
            }
            copy_async_commit();
            const u32 q_address = base + stage + q_offset, k_address = base + stage + BUFFER_BYTES + k_offset;
#pragma unroll
            for (int t = 0; t < 4; t++) {
                u32 q_fragment[4];
                load_matrix_x4(q_fragment, swizzled_step<128>(q_address, t));
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    u32 fragment[4];
                    load_matrix_x4(fragment, swizzled_step<128>(k_address, t) + n * 16 * 128);
                    mma<SUMI_OPERANDS_BF16>(scores[2 * n], q_fragment, fragment[0], fragment[1]);
                    mma<SUMI_OPERANDS_BF16>(scores[2 * n + 1], q_fragment, fragment[2], fragment[3]);
                }
            }
            stage = other;
        }
        float tile_max[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = key_tile * TILE_KEYS + half * 32 + n * 8 + (lane & 3) * 2 + (e & 1),
                          query = first_query + row + (e >> 1) * 8;
                const bool is_seen = key < sequence.keys && !(args.is_causal && key > query)
                                  && !(args.window > 0 && (key <= query - args.window || key - args.window >= query));
                scores[n][e] = is_seen ? scores[n][e] * args.scale_log2 : -INFINITY;
                tile_max[e >> 1] = fmaxf(tile_max[e >> 1], scores[n][e]);
            }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            tile_max[h] = fmaxf(tile_max[h], __shfl_xor_sync(~0u, tile_max[h], 1));
            tile_max[h] = fmaxf(tile_max[h], __shfl_xor_sync(~0u, tile_max[h], 2));
            if ((lane & 3) == 0) shared_max[half * TILE_QUERIES + row + h * 8] = tile_max[h];
        }
        __syncthreads(); // the row maxima of both halves are written
        float rescale[2], subtracted[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float now = fmaxf(row_max[h], fmaxf(shared_max[row + h * 8], shared_max[TILE_QUERIES + row + h * 8]));
            // a row without a key so far: the scores are -inf, and exp2(-inf - 0) is 0
            subtracted[h] = now == -INFINITY ? 0.f : now;
            rescale[h] = exp2_fast(row_max[h] - subtracted[h]);
            row_max[h] = now;
            row_sum[h] *= rescale[h];
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const float e0 = exp2_fast(scores[n][0] - subtracted[0]), e1 = exp2_fast(scores[n][1] - subtracted[0]),
                        e2 = exp2_fast(scores[n][2] - subtracted[1]), e3 = exp2_fast(scores[n][3] - subtracted[1]);
            row_sum[0] += e0 + e1;
            row_sum[1] += e2 + e3;
            *(u32*)(shared + P_OFFSET + swizzled_offset<128>(row, half * 4 + n) + (lane & 3) * 4) = pack_bf16(e0, e1);
            *(u32*)(shared + P_OFFSET + swizzled_offset<128>(row + 8, half * 4 + n) + (lane & 3) * 4) =
                pack_bf16(e2, e3);
        }
        if (__any_sync(~0u, rescale[0] != 1.f || rescale[1] != 1.f)) {
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int n = 0; n < 4; n++)
                    acc[c][n][0] *= rescale[0], acc[c][n][1] *= rescale[0], acc[c][n][2] *= rescale[1],
                        acc[c][n][3] *= rescale[1];
        }
        u32 probabilities[4][4];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (c < chunks) {
                copy_async_wait<0>();
                __syncthreads(); // at the first chunk, P is complete too
                const int other = stage ^ STAGE_BYTES;
                if (c + 1 < chunks) {
                    load_chunk(args, sequence, shared, other + BUFFER_BYTES, v, key_tile * TILE_KEYS, sequence.keys,
                               (c + 1) * 64);
                } else if (key_tile + 1 < key_tile_end) {
                    load_chunk(args, sequence, shared, other, q, first_query, sequence.queries, 0);
                    load_chunk(args, sequence, shared, other + BUFFER_BYTES, k, (key_tile + 1) * TILE_KEYS,
                               sequence.keys, 0);
                }
                copy_async_commit();
                if (c == 0)
#pragma unroll
                    for (int t = 0; t < 4; t++)
                        load_matrix_x4(probabilities[t], swizzled_step<128>(base + P_OFFSET + q_offset, t));
                const u32 v_address = base + stage + BUFFER_BYTES + v_offset;
#pragma unroll
                for (int t = 0; t < 4; t++)
#pragma unroll
                    for (int n = 0; n < 2; n++) {
                        u32 fragment[4];
                        load_matrix_x4_transposed(fragment, swizzled_step<128>(v_address, half * 2 + n) + t * 16 * 128);
                        mma<SUMI_OPERANDS_BF16>(acc[c][2 * n], probabilities[t], fragment[0], fragment[1]);
                        mma<SUMI_OPERANDS_BF16>(acc[c][2 * n + 1], probabilities[t], fragment[2], fragment[3]);
                    }
                stage = other;
            }
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        row_sum[h] += __shfl_xor_sync(~0u, row_sum[h], 1);
        row_sum[h] += __shfl_xor_sync(~0u, row_sum[h], 2);
        if ((lane & 3) == 0) shared_sums[half * TILE_QUERIES + row + h * 8] = row_sum[h];
    }
    __syncthreads(); // the sums of both halves are written
#pragma unroll
    for (int h = 0; h < 2; h++) {
        // A query that sees no key gets zeros, as in the CPU backend.
        const float total = shared_sums[row + h * 8] + shared_sums[TILE_QUERIES + row + h * 8],
                    scale = total == 0.f ? 0.f : 1.f / total;
        const int query = first_query + row + h * 8;
        const bool is_query = query < sequence.queries;
        u16* out = (u16*)args.out + (int64_t)(sequence.begin + row_of(sequence, is_query ? query : 0)) * args.out_pitch
                 + head * args.dim;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            u32 w[4];
#pragma unroll
            for (int n = 0; n < 4; n++) w[n] = pack_bf16(acc[c][n][h * 2] * scale, acc[c][n][h * 2 + 1] * scale);
            if (args.is_aligned) {
                quad_transpose(w[0], w[1], w[2], w[3], lane);
                const int channel = c * 64 + half * 32 + (lane & 3) * 8;
                if (is_query && channel < args.dim) store16(out + channel, make_uint4(w[0], w[1], w[2], w[3]));
            } else {
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const int channel = c * 64 + half * 32 + n * 8 + (lane & 3) * 2;
                    if (is_query && channel < args.dim) out[channel] = (u16)w[n];
                    if (is_query && channel + 1 < args.dim) out[channel + 1] = (u16)(w[n] >> 16);
                }
            }
        }
    }
}

#define ATTENTION_KERNEL(CHUNKS, BLOCKS)                                                                               \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                                          \
        sumi_attention_any_c##CHUNKS(const __grid_constant__ sumi_attention_args args)                                 \
    {                                                                                                                  \
        attention_any<CHUNKS>(args);                                                                                   \
    }
ATTENTION_KERNEL(1, 2)
ATTENTION_KERNEL(2, 2)
ATTENTION_KERNEL(4, 1)
ATTENTION_KERNEL(8, 1)
