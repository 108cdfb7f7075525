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
// Lane l (r = l >> 2, u = l & 3) of a warp holds, in the accumulators score[n] (8 keys) and acc[c][n] (8
// channels), this element e (drawn in portable_sm80.cuh, where u is q):
//
//     e             0                1                    2                3
//     query         row              row                  row + 8          row + 8               row = 16 rows16 + r
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

static constexpr int ROWS = 64, KEYS = 64, BUFFER = 64 * 128, STAGE = 2 * BUFFER, P_AT = 2 * STAGE,
                     MAX_AT = P_AT + BUFFER, SUM_AT = MAX_AT + 2 * ROWS * 4;
static_assert(SUM_AT + 2 * ROWS * 4 == SUMI_ATTENTION_ANY_SHARED_BYTES, "attention.h");

// Copies 64 tokens from token0 on x 64 channels from `channel` on, of the head at `from`, to the swizzled buffer at
// byte `to` of shared memory. Tokens from `count` on and channels from dim on become zeros.
SUMI_DEVICE void load_chunk(const sumi_attention_args& a, const sumi_attention_sequence& s, u8* shared, int to,
                            const u16* from, int token0, int count, int channel)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int c = i * 256 + threadIdx.x, r = c >> 3, x = c & 7, channel0 = channel + x * 8, token = token0 + r;
        const bool is_inside = token < count && channel0 < a.dim;
        const u16* p = is_inside ? from + (int64_t)row_of(s, token) * a.pitch + channel0 : from;
        const u32 at_byte = to + at<128>(r, x);
        if (a.is_aligned) {
            copy_async_16((u32)__cvta_generic_to_shared(shared) + at_byte, p, is_inside ? 16 : 0);
        } else {
            u32 w[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const u32 low = is_inside && channel0 + 2 * e < a.dim ? p[2 * e] : 0,
                          high = is_inside && channel0 + 2 * e + 1 < a.dim ? p[2 * e + 1] : 0;
                w[e] = low | high << 16;
            }
            *(uint4*)(shared + at_byte) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
}

template <int CHUNKS> SUMI_DEVICE void attention_any(const sumi_attention_args& a)
{
    extern __shared__ __align__(1024) u8 shared[];
    const u32 base = (u32)__cvta_generic_to_shared(shared);
    const int l = threadIdx.x & 31, rows16 = (threadIdx.x >> 5) & 3, half = threadIdx.x >> 7;
    const int tile = a.tile_begin + blockIdx.x;
    const sumi_attention_sequence& s = a.sequences[sequence_of(a, tile)];
    const int inside = tile - s.tile_end + s.row_tiles * a.heads, head = inside / s.row_tiles,
              q0 = s.first_query + (inside - head * s.row_tiles) * ROWS, kv_head = head / a.group;
    const u16* qkv = (const u16*)a.qkv + (int64_t)s.begin * a.pitch;
    const u16* q = qkv + a.q_column + head * a.dim;
    const u16* k = qkv + a.k_column + kv_head * a.dim;
    const u16* v = qkv + a.v_column + kv_head * a.dim;
    const int chunks = (a.dim + 63) >> 6;

    // The tiles of keys that at least one query of this tile sees. A causal query i sees keys (i - window, i]. With a
    // window and without causal masking, it sees keys (i - window, i + window).
    const int q_last = min(q0 + ROWS, s.queries) - 1;
    int key_begin = 0, key_end = s.keys;
    if (a.is_causal) key_end = min(key_end, q_last + 1);
    if (a.window > 0) {
        key_begin = max(0, q0 - a.window + 1);
        if (!a.is_causal) key_end = (int)min((int64_t)key_end, (int64_t)q_last + a.window);
    }
    const int j_begin = key_begin / KEYS, j_end = (key_end + KEYS - 1) / KEYS;

    float acc[CHUNKS][4][4], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int n = 0; n < 4; n++) acc[c][n][0] = acc[c][n][1] = acc[c][n][2] = acc[c][n][3] = 0.f;
    float* max_at = (float*)(shared + MAX_AT);
    float* sum_at = (float*)(shared + SUM_AT);
    const int row = rows16 * 16 + (l >> 2); // this thread's first query in the tile; its second one is row + 8
    const u32 a_at = at<128>(rows16 * 16 + (l & 15), l >> 4),
              k_at = at<128>((l & 7) + ((l >> 4) << 3), (l >> 3) & 1) + half * 32 * 128, v_at = at<128>(l & 15, l >> 4);

    int stage = 0; // byte offset of the pair of buffers in use: 0 or STAGE
    load_chunk(a, s, shared, stage, q, q0, s.queries, 0);
    load_chunk(a, s, shared, stage + BUFFER, k, j_begin * KEYS, s.keys, 0);
    copy_async_commit();
    for (int j = j_begin; j < j_end; j++) {
        float score[4][4];
#pragma unroll
        for (int n = 0; n < 4; n++) score[n][0] = score[n][1] = score[n][2] = score[n][3] = 0.f;
        for (int c = 0; c < chunks; c++) {
            copy_async_wait<0>();
            __syncthreads();
            const int other = stage ^ STAGE;
            if (c + 1 < chunks) {
                load_chunk(a, s, shared, other, q, q0, s.queries, (c + 1) * 64);
                load_chunk(a, s, shared, other + BUFFER, k, j * KEYS, s.keys, (c + 1) * 64);
            } else {
                load_chunk(a, s, shared, other + BUFFER, v, j * KEYS, s.keys, 0);
            }
            copy_async_commit();
            const u32 q_now = base + stage + a_at, k_now = base + stage + BUFFER + k_at;
#pragma unroll
            for (int t = 0; t < 4; t++) {
                u32 x[4];
                load_matrix_x4(x, step<128>(q_now, t));
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    u32 f[4];
                    load_matrix_x4(f, step<128>(k_now, t) + n * 16 * 128);
                    mma<0>(score[2 * n], x, f[0], f[1]);
                    mma<0>(score[2 * n + 1], x, f[2], f[3]);
                }
            }
            stage = other;
        }
        float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = j * KEYS + half * 32 + n * 8 + (l & 3) * 2 + (e & 1), query = q0 + row + (e >> 1) * 8;
                const bool is_seen = key < s.keys && !(a.is_causal && key > query)
                                  && !(a.window > 0 && (key <= query - a.window || key - a.window >= query));
                score[n][e] = is_seen ? score[n][e] * a.scale_log2 : -INFINITY;
                most[e >> 1] = fmaxf(most[e >> 1], score[n][e]);
            }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            most[h] = fmaxf(most[h], __shfl_xor_sync(~0u, most[h], 1));
            most[h] = fmaxf(most[h], __shfl_xor_sync(~0u, most[h], 2));
            if ((l & 3) == 0) max_at[half * ROWS + row + h * 8] = most[h];
        }
        __syncthreads(); // the row maxima of both halves are written
        float fix[2], shift[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float now = fmaxf(top[h], fmaxf(max_at[row + h * 8], max_at[ROWS + row + h * 8]));
            // a row without a key so far: the scores are -inf, and exp2(-inf - 0) is 0
            shift[h] = now == -INFINITY ? 0.f : now;
            fix[h] = ex2(top[h] - shift[h]);
            top[h] = now;
            sum[h] *= fix[h];
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const float e0 = ex2(score[n][0] - shift[0]), e1 = ex2(score[n][1] - shift[0]),
                        e2 = ex2(score[n][2] - shift[1]), e3 = ex2(score[n][3] - shift[1]);
            sum[0] += e0 + e1;
            sum[1] += e2 + e3;
            *(u32*)(shared + P_AT + at<128>(row, half * 4 + n) + (l & 3) * 4) = pack_bf16(e0, e1);
            *(u32*)(shared + P_AT + at<128>(row + 8, half * 4 + n) + (l & 3) * 4) = pack_bf16(e2, e3);
        }
        if (__any_sync(~0u, fix[0] != 1.f || fix[1] != 1.f)) {
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int n = 0; n < 4; n++)
                    acc[c][n][0] *= fix[0], acc[c][n][1] *= fix[0], acc[c][n][2] *= fix[1], acc[c][n][3] *= fix[1];
        }
        u32 p[4][4];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (c < chunks) {
                copy_async_wait<0>();
                __syncthreads(); // at the first chunk, P is complete too
                const int other = stage ^ STAGE;
                if (c + 1 < chunks) {
                    load_chunk(a, s, shared, other + BUFFER, v, j * KEYS, s.keys, (c + 1) * 64);
                } else if (j + 1 < j_end) {
                    load_chunk(a, s, shared, other, q, q0, s.queries, 0);
                    load_chunk(a, s, shared, other + BUFFER, k, (j + 1) * KEYS, s.keys, 0);
                }
                copy_async_commit();
                if (c == 0)
#pragma unroll
                    for (int t = 0; t < 4; t++) load_matrix_x4(p[t], step<128>(base + P_AT + a_at, t));
                const u32 v_now = base + stage + BUFFER + v_at;
#pragma unroll
                for (int t = 0; t < 4; t++)
#pragma unroll
                    for (int n = 0; n < 2; n++) {
                        u32 f[4];
                        load_matrix_x4_transposed(f, step<128>(v_now, half * 2 + n) + t * 16 * 128);
                        mma<0>(acc[c][2 * n], p[t], f[0], f[1]);
                        mma<0>(acc[c][2 * n + 1], p[t], f[2], f[3]);
                    }
                stage = other;
            }
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
        sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        if ((l & 3) == 0) sum_at[half * ROWS + row + h * 8] = sum[h];
    }
    __syncthreads(); // the sums of both halves are written
#pragma unroll
    for (int h = 0; h < 2; h++) {
        // A query that sees no key gets zeros, as in the CPU backend.
        const float total = sum_at[row + h * 8] + sum_at[ROWS + row + h * 8], scale = total == 0.f ? 0.f : 1.f / total;
        const int query = q0 + row + h * 8;
        const bool is_query = query < s.queries;
        u16* o = (u16*)a.out + (int64_t)(s.begin + row_of(s, is_query ? query : 0)) * a.out_pitch + head * a.dim;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            u32 w[4];
#pragma unroll
            for (int n = 0; n < 4; n++) w[n] = pack_bf16(acc[c][n][h * 2] * scale, acc[c][n][h * 2 + 1] * scale);
            if (a.is_aligned) {
                quad_transpose(w[0], w[1], w[2], w[3], l);
                const int channel = c * 64 + half * 32 + (l & 3) * 8;
                if (is_query && channel < a.dim) store16(o + channel, make_uint4(w[0], w[1], w[2], w[3]));
            } else {
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const int channel = c * 64 + half * 32 + n * 8 + (l & 3) * 2;
                    if (is_query && channel < a.dim) o[channel] = (u16)w[n];
                    if (is_query && channel + 1 < a.dim) o[channel + 1] = (u16)(w[n] >> 16);
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
