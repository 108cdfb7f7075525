// softmax(q k^T * scale) v with mma.sync, without the score matrix (FlashAttention-2, Dao 2023), for compute capability
// 8.0 and newer: bf16, float sums, head dims 64, 80, 96, 128 and 256, grouped-query heads, optionally causal, sequences
// of one or two spans whose queries may begin later than their keys. attention.h has the shapes and launches. There is
// no e4m3 attention yet.
//
// A block computes NW * MT * 16 queries of one head. It goes through the keys from the last tile of BN keys to the
// first, so only its first iterations need masks. K and V have two buffers each, filled by cp.async, and an iteration
// has one barrier. Every fragment of K and V is used for MT = 2 blocks of 16 queries per warp, which was the main gain.
// Of the HD / 16 fragments of q, QR stay in registers and the others in shared memory. Sums and output share one row
// maximum. It is updated only when a score exceeds it by a factor of 2^8 or more (lazy rescaling). This approximates
// nothing, and an iteration without an update exchanges nothing between lanes. The row of a token is looked up
// (row_of), so a tile may span both ranges of a sequence, and only the end of the sequence is masked. Rows past the end
// are written to shared memory as zeros and never read from global memory: the memory there may hold NaN, and 0 * NaN
// is NaN.
//
// Lanes and fragments (r = lane >> 2, u = lane & 3; the fragments are drawn in portable_sm80.cuh, where u is q):
//
//     S = q k^T     accumulator sums[i][n], 16 queries x 8 keys:      row r       keys 8 n + 2 u, + 1:   e = 0, 1
//                                                                     row r + 8                          e = 2, 3
//     P = exp2(S)   A fragment p[i][n / 2], 16 queries x 16 keys:     n even      rows r, r + 8:         a0, a1
//                                                                     n odd       rows r, r + 8:         a2, a3
//     O = P v       accumulator acc[i][d], 16 queries x 8 channels:   as S, with channels 8 d + 2 u, + 1
//
// The accumulator layout of S is thus the A layout of P, and P never leaves the registers of its lane. One ldmatrix.x4
// loads these four 8x8 matrices (the lanes 8 i .. 8 i + 7 address matrix i):
//
//     matrix            0                     1                     2                      3
//     q (A operand)     rows 0-7, ch 0-7      rows 8-15, ch 0-7     rows 0-7, ch 8-15      rows 8-15, ch 8-15
//     k (two B)         keys 0-7, ch 0-7      keys 0-7, ch 8-15     keys 8-15, ch 0-7      keys 8-15, ch 8-15
//     v (transposed)    keys 0-7, ch 0-7      keys 8-15, ch 0-7     keys 0-7, ch 8-15      keys 8-15, ch 8-15
//
// Head dim 256 has few tiles: a prompt of 512 tokens and 8 heads has only 64 tiles of 64 queries. So a tile has 32
// queries there, and its keys are divided: KW warps compute the same queries, each with BN / KW keys of every tile and
// with its own maxima, sums and outputs. At the end these partial results are combined through shared memory, always in
// the same order.
//
// When each kernel is used: d128_40k where two blocks share 100 KiB of shared memory (compute capability 8.6, 8.9,
// 12.0), the _m1 kernels where there are few tiles; d128 and d128_w8 where there is more shared memory (8.0, and 9.0
// without wgmma). d80_m1 is for windows of up to 64 rows, whose keys are one tile. d256_k4 is for devices whose blocks
// may have 144 KiB of shared memory.
//
// A masked score is -inf, and the initial maximum is -1e30. If both were -1e30, fma(s, c, -m c) would be inf in rows of
// a causal tile that see no key yet, because 1e30 c is rounded. Tried and slower: 16 queries per warp with
// double-buffered fragments, 16 keys at a time, single buffers, q as two register fragments with 64 keys (register
// spills).
#include "attention_sequences.cuh"
#include "common.cuh"
#include "portable_sm80.cuh"

enum { WHOLE, CAUSAL, EITHER }; // which keys a query sees: all; those up to its own position; or as args.is_causal says

// HD: head dim. BN: keys per tile. NW: warps along the queries. KW: warps along the keys. MT: blocks of 16 queries per
// warp. QR: fragments of q in registers.
template <int HD, int BN, int NW, int KW, int MT, int QR, int SEES>
SUMI_DEVICE void attention(const sumi_attention_args& a)
{
    constexpr int ROW_BYTES = HD * 2, CHUNKS = ROW_BYTES / 16, ROWS = NW * MT * 16, THREADS = NW * KW * 32;
    constexpr int WN = BN / KW; // keys of a tile that one warp computes
    // KT: k-steps of 16 channels. NT, DT: 8-column groups of S and of O. TILE: bytes of a tile of K or V.
    constexpr int KT = HD / 16, NT = WN / 8, DT = HD / 8, TILE = BN * ROW_BYTES;
    constexpr bool SHARES_Q = QR < KT;
    constexpr int Q_BYTES = SHARES_Q ? (KT - QR) * 32 : ROW_BYTES; // bytes per row of q in shared memory
    // q is copied through the second buffers of K and V while the first ones fill
    constexpr bool STAGES_BESIDE = ROWS <= 2 * BN;
    // with so few products per k-step, two alternating accumulators avoid waiting for the previous product
    constexpr int CHAINS = MT * NT <= 2 ? 2 : 1;
    static_assert(KW == 1 || (MT == 1 && !QR), "joining the parts");
    extern __shared__ __align__(1024) u8 shared[];
    // Shared memory: the fragments of q that are not in registers, then two buffers, each with a tile of K and a tile
    // of V.
    const u32 sq = (u32)__cvta_generic_to_shared(shared), sk = sq + (SHARES_Q ? ROWS * Q_BYTES : 0), sv = sk + TILE;
    const int warp = KW == 1 ? threadIdx.x >> 5 : (threadIdx.x >> 5) % NW, part = KW == 1 ? 0 : threadIdx.x / (32 * NW),
              l = threadIdx.x & 31;
    const bool causal = SEES == EITHER ? a.is_causal != 0 : SEES == CAUSAL;
    const int tile = a.tile_begin + blockIdx.x;
    const sumi_attention_sequence& s_ = a.sequences[sequence_of(a, tile)];
    const int inside = tile - s_.tile_end + s_.row_tiles * a.heads, head = inside / s_.row_tiles,
              row_tile = inside - head * s_.row_tiles;
    // Causal: the rows with the most keys come first, so that the longest tiles start early.
    const int q0 = s_.first_query + (causal ? s_.row_tiles - 1 - row_tile : row_tile) * ROWS, kv_head = head / a.group;
    const u16* qkv = (const u16*)a.qkv + (int64_t)s_.begin * a.pitch;
    const u16* q = qkv + a.q_column + head * HD;
    const u16* k = qkv + a.k_column + kv_head * HD;
    const u16* v = qkv + a.v_column + kv_head * HD;
    // Copies `rows` tokens from token row0 on to the tile at `to`; tokens from `count` on become zeros.
    auto copy = [&](u32 to, const u16* from, int row0, int count, int rows) {
#pragma unroll
        for (int i = 0; i < (rows * CHUNKS + THREADS - 1) / THREADS; i++) {
            const int c = i * THREADS + threadIdx.x, r = c / CHUNKS, x = c - r * CHUNKS;
            if (rows * CHUNKS % THREADS == 0 || c < rows * CHUNKS)
                copy_async_16(to + at<ROW_BYTES>(r, x),
                              from + (int64_t)row_of(s_, min(row0 + r, count - 1)) * a.pitch + x * 8,
                              row0 + r < count ? 16 : 0);
        }
    };
    const int keys = causal ? min(s_.keys, q0 + ROWS) : s_.keys, last = (keys - 1) / BN;
    // Copies tile j of K and V into buffer b.
    auto load_keys = [&](int b, int j) {
        copy(sk + b * 2 * TILE, k, j * BN, s_.keys, BN);
        copy(sv + b * 2 * TILE, v, j * BN, s_.keys, BN);
        copy_async_commit();
    };
    u32 qf[MT][QR ? QR : 1][4];
    if (SHARES_Q && QR) // the channels of q that stay in shared memory
        for (int c = threadIdx.x; c < ROWS * Q_BYTES / 16; c += THREADS) {
            const int r = c / (Q_BYTES / 16), x = c - r * (Q_BYTES / 16);
            copy_async_16(sq + at<Q_BYTES>(r, x),
                          q + (int64_t)row_of(s_, min(q0 + r, s_.queries - 1)) * a.pitch + QR * 16 + x * 8,
                          q0 + r < s_.queries ? 16 : 0);
        }
    if (QR) { // the other channels of q pass through the buffers of K and V into registers
        static_assert(!QR || ROWS <= 4 * BN, "staging q");
        const u32 stage = sk + (STAGES_BESIDE ? 2 * TILE : 0);
        copy(stage, q, q0, s_.queries, ROWS);
        copy_async_commit();
        if (STAGES_BESIDE) {
            load_keys(0, last);
            copy_async_wait<1>();
        } else {
            copy_async_wait<0>();
        }
        __syncthreads();
        const u32 p = stage + at<ROW_BYTES>(warp * MT * 16 + (l & 15), l >> 4);
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int t = 0; t < QR; t++) load_matrix_x4(qf[i][t], step<ROW_BYTES>(p, t) + i * 16 * ROW_BYTES);
        // All warps have read q before K and V overwrite it. With STAGES_BESIDE the barrier of the first iteration
        // ensures it.
        if (!STAGES_BESIDE) __syncthreads();
    } else {
        copy(sq, q, q0, s_.queries, ROWS);
    }
    if (!QR || !STAGES_BESIDE) load_keys(0, last);
    const u32 pq = sq + at<Q_BYTES>(warp * MT * 16 + (l & 15), l >> 4);
    float acc[MT][DT][4], mx[MT][2], sum[MT][2];
#pragma unroll
    for (int i = 0; i < MT; i++) {
        mx[i][0] = mx[i][1] = -1e30f;
        sum[i][0] = sum[i][1] = 0.f;
#pragma unroll
        for (int d = 0; d < DT; d++) acc[i][d][0] = acc[i][d][1] = acc[i][d][2] = acc[i][d][3] = 0.f;
    }
    // Shared-memory offsets of this lane for ldmatrix (drawn at the top): q, then K and V relative to their buffers.
    const u32 pk = part * WN * ROW_BYTES + at<ROW_BYTES>((l & 7) + ((l >> 4) << 3), (l >> 3) & 1),
              pv = part * WN * ROW_BYTES + at<ROW_BYTES>(l & 15, l >> 4);
    // c converts a score to a power of 2; a maximum is updated when it grows by more than `jump`, which is 8 as an
    // exponent.
    const float c = a.scale_log2, jump = 8.f / c;
    for (int j = last; j >= 0; j--) {
        const int b = (last - j) & 1;
        const u32 kt = sk + b * 2 * TILE + pk, vt = sv + b * 2 * TILE + pv;
        copy_async_wait<0>();
        // this tile has arrived (q too, in the first iteration), and all warps have finished with the other buffer
        __syncthreads();
        if (j > 0) load_keys(b ^ 1, j - 1);
        float sums[CHAINS][MT][NT][4];
        float(&s)[MT][NT][4] = sums[0];
#pragma unroll
        for (int h = 0; h < CHAINS; h++)
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int n = 0; n < NT; n++)
                    sums[h][i][n][0] = sums[h][i][n][1] = sums[h][i][n][2] = sums[h][i][n][3] = 0.f;
#pragma unroll
        for (int t = 0; t < KT; t++) {
            u32 qt[MT][4];
#pragma unroll
            for (int i = 0; i < MT; i++)
                if (t >= QR) load_matrix_x4(qt[i], step<Q_BYTES>(pq, t - QR) + i * 16 * Q_BYTES);
#pragma unroll
            for (int n = 0; n < NT / 2; n++) {
                u32 f[4];
                load_matrix_x4(f, step<ROW_BYTES>(kt, t) + n * 16 * ROW_BYTES);
#pragma unroll
                for (int i = 0; i < MT; i++) {
                    const u32(&x)[4] = t < QR ? qf[i][t < QR ? t : 0] : qt[i];
                    mma<SUMI_OPERANDS_BF16>(sums[t % CHAINS][i][2 * n], x, f[0], f[1]);
                    mma<SUMI_OPERANDS_BF16>(sums[t % CHAINS][i][2 * n + 1], x, f[2], f[3]);
                }
            }
        }
        if (CHAINS == 2)
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) s[i][n][e] += sums[CHAINS - 1][i][n][e];
        if ((j + 1) * BN > s_.keys || (causal && (j + 1) * BN > q0 + 1)) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const int key = j * BN + part * WN + n * 8 + (l & 3) * 2 + (e & 1),
                                  row = q0 + (warp * MT + i) * 16 + (l >> 2) + (e >> 1) * 8;
                        if (key >= s_.keys || (causal && key > row)) s[i][n][e] = __int_as_float(0xff800000);
                    }
        }
        float top[MT][2];
        bool grow = false;
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float x = s[i][0][h * 2];
#pragma unroll
                for (int n = 0; n < NT; n++) x = fmaxf(x, fmaxf(s[i][n][h * 2], s[i][n][h * 2 + 1]));
                top[i][h] = x;
                grow |= x > mx[i][h] + jump;
            }
        if (__any_sync(~0u, grow)) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float x = top[i][h];
                    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
                    x = fmaxf(x, __shfl_xor_sync(~0u, x, 2));
                    x = fmaxf(x, mx[i][h]);
                    const float f = ex2((mx[i][h] - x) * c);
                    mx[i][h] = x;
                    sum[i][h] *= f;
#pragma unroll
                    for (int d = 0; d < DT; d++) acc[i][d][h * 2] *= f, acc[i][d][h * 2 + 1] *= f;
                }
        }
        u32 p[MT][NT / 2][4];
#pragma unroll
        for (int i = 0; i < MT; i++) {
            const float z0 = mx[i][0] * c, z1 = mx[i][1] * c;
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const float e0 = ex2(fmaf(s[i][n][0], c, -z0)), e1 = ex2(fmaf(s[i][n][1], c, -z0)),
                            e2 = ex2(fmaf(s[i][n][2], c, -z1)), e3 = ex2(fmaf(s[i][n][3], c, -z1));
                sum[i][0] += e0 + e1;
                sum[i][1] += e2 + e3;
                p[i][n / 2][n % 2 * 2] = pack_bf16(e0, e1);
                p[i][n / 2][n % 2 * 2 + 1] = pack_bf16(e2, e3);
            }
        }
#pragma unroll
        for (int n = 0; n < NT / 2; n++)
#pragma unroll
            for (int d = 0; d < DT / 2; d++) {
                u32 f[4];
                load_matrix_x4_transposed(f, step<ROW_BYTES>(vt, d) + n * 16 * ROW_BYTES);
#pragma unroll
                for (int i = 0; i < MT; i++) {
                    mma<SUMI_OPERANDS_BF16>(acc[i][2 * d], p[i][n], f[0], f[1]);
                    mma<SUMI_OPERANDS_BF16>(acc[i][2 * d + 1], p[i][n], f[2], f[3]);
                }
            }
    }
    // Each warp writes 8-channel groups [part * OT, (part + 1) * OT) of its rows. With KW = 1 these are all groups.
    constexpr int OT = DT / KW;
    float out[MT][OT][4];
    if constexpr (KW == 1) {
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int d = 0; d < OT; d++)
#pragma unroll
                for (int e = 0; e < 4; e++) out[i][d][e] = acc[i][d][e];
    } else {
        // The partial outputs overwrite K and V in shared memory, as one array of 32 x 16 bytes per warp and 8-channel
        // group. The partial maxima and sums overwrite q.
        static_assert(NW * KW * DT * 512 <= 4 * TILE && NW * KW * 512 <= ROWS * Q_BYTES && DT % KW == 0, "parts");
        const int first = SHARES_Q ? ROWS * Q_BYTES : 0;
        float4* parts = (float4*)(shared + first) + l;
        float4* states = (float4*)shared + l;
        __syncthreads(); // all warps have finished reading q, k and v
        states[(part * NW + warp) * 32] = make_float4(mx[0][0], mx[0][1], sum[0][0], sum[0][1]);
#pragma unroll
        for (int d = 0; d < DT; d++)
            parts[((part * NW + warp) * DT + d) * 32] =
                make_float4(acc[0][d][0], acc[0][d][1], acc[0][d][2], acc[0][d][3]);
        __syncthreads(); // all partial results are written
        float4 state[KW];
#pragma unroll
        for (int p = 0; p < KW; p++) {
            state[p] = states[(p * NW + warp) * 32];
            mx[0][0] = fmaxf(mx[0][0], state[p].x);
            mx[0][1] = fmaxf(mx[0][1], state[p].y);
        }
        sum[0][0] = sum[0][1] = 0.f;
#pragma unroll
        for (int d = 0; d < OT; d++) out[0][d][0] = out[0][d][1] = out[0][d][2] = out[0][d][3] = 0.f;
#pragma unroll
        for (int p = 0; p < KW; p++) {
            const float f0 = ex2((state[p].x - mx[0][0]) * c), f1 = ex2((state[p].y - mx[0][1]) * c);
            sum[0][0] = fmaf(state[p].z, f0, sum[0][0]);
            sum[0][1] = fmaf(state[p].w, f1, sum[0][1]);
#pragma unroll
            for (int d = 0; d < OT; d++) {
                const float4 x = parts[((p * NW + warp) * DT + part * OT + d) * 32];
                out[0][d][0] = fmaf(x.x, f0, out[0][d][0]);
                out[0][d][1] = fmaf(x.y, f0, out[0][d][1]);
                out[0][d][2] = fmaf(x.z, f1, out[0][d][2]);
                out[0][d][3] = fmaf(x.w, f1, out[0][d][3]);
            }
        }
    }
    u16* o = (u16*)a.out + (int64_t)s_.begin * a.out_pitch + head * HD + part * OT * 8;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float x = sum[i][h];
            x += __shfl_xor_sync(~0u, x, 1);
            x += __shfl_xor_sync(~0u, x, 2);
            x = 1.f / x; // the sum is not 0: every query sees at least one key
            const int row = q0 + (warp * MT + i) * 16 + h * 8 + (l >> 2);
#pragma unroll
            for (int d = 0; d < OT; d += 4) {
                u32 w[4];
#pragma unroll
                for (int e = 0; e < 4; e++)
                    w[e] = d + e < OT ? pack_bf16(out[i][d + e < OT ? d + e : 0][h * 2] * x,
                                                  out[i][d + e < OT ? d + e : 0][h * 2 + 1] * x)
                                      : 0;
                quad_transpose(w[0], w[1], w[2], w[3], l);
                if (row < s_.queries && (d + 4 <= OT || d + (l & 3) < OT))
                    store16(o + (int64_t)row_of(s_, row) * a.out_pitch + (d + (l & 3)) * 8,
                            make_uint4(w[0], w[1], w[2], w[3]));
            }
        }
}

#define ATTENTION_KERNEL(NAME, HD, BN, NW, KW, MT, QR, SEES, BLOCKS)                                                   \
    extern "C" __global__ void __launch_bounds__(32 * NW * KW, BLOCKS)                                                 \
        NAME(const __grid_constant__ sumi_attention_args args)                                                         \
    {                                                                                                                  \
        attention<HD, BN, NW, KW, MT, QR, SEES>(args);                                                                 \
    }
//               name                        HD  BN NW KW MT QR sees  blocks per multiprocessor
ATTENTION_KERNEL(sumi_attention_d128, 128, 64, 4, 1, 2, 0, WHOLE, 2)
ATTENTION_KERNEL(sumi_attention_d128_w8, 128, 64, 8, 1, 2, 0, WHOLE, 1)
ATTENTION_KERNEL(sumi_attention_d128_40k, 128, 32, 4, 1, 2, 6, WHOLE, 2)
ATTENTION_KERNEL(sumi_attention_d128_m1, 128, 32, 4, 1, 1, 8, WHOLE, 3)
ATTENTION_KERNEL(sumi_attention_d128_causal, 128, 32, 4, 1, 2, 4, CAUSAL, 2)
ATTENTION_KERNEL(sumi_attention_d128_m1_causal, 128, 32, 4, 1, 1, 8, CAUSAL, 3)
ATTENTION_KERNEL(sumi_attention_d96, 96, 32, 4, 1, 2, 6, WHOLE, 2)
ATTENTION_KERNEL(sumi_attention_d96_causal, 96, 32, 4, 1, 2, 6, CAUSAL, 2)
ATTENTION_KERNEL(sumi_attention_d80, 80, 32, 4, 1, 2, 5, WHOLE, 2)
ATTENTION_KERNEL(sumi_attention_d80_m1, 80, 64, 4, 1, 1, 5, WHOLE, 3)
ATTENTION_KERNEL(sumi_attention_d64, 64, 64, 4, 1, 2, 4, WHOLE, 2)
ATTENTION_KERNEL(sumi_attention_d64_causal, 64, 64, 4, 1, 2, 4, CAUSAL, 2)
ATTENTION_KERNEL(sumi_attention_d256, 256, 32, 2, 2, 1, 0, EITHER, 1)
ATTENTION_KERNEL(sumi_attention_d256_k4, 256, 64, 2, 4, 1, 0, EITHER, 1)
