// softmax(q k^T * scale) v by mma.sync, for 8.0 and newer: bf16, float sums, head dims 64, 80, 96, 128, 256, grouped
// heads, optionally causal, sequences of one or two spans whose queries may begin later than their keys. attention.h
// has shapes and launches. There is no e4m3 attention yet.
//
// A block takes NW * MT * 16 queries of one head and walks the keys from the last tile of BN down, so that only the
// first tiles need masks. K and V go through two buffers each by cp.async, with one barrier per tile. Two m16 tiles
// per warp share every K and V fragment, the main gain. QR of the HD / 16 fragments of q stay in registers, the others
// in shared memory. Sums and output share a row maximum that is renewed only when a score exceeds it by 2^8 or more:
// nothing is approximated, and the common path has no shuffles. Tokens are found by index (row_of), so tiles run across
// the two spans and only the end of the sequence is masked. Rows past the end are written to shared memory as zeros,
// never read: what lies there may be anything, and 0 * NaN is NaN.
//
// Heads of 256 have few rows to share out (a prompt of 512 tokens and 8 heads are 64 tiles of 64), so a tile has 32
// queries and its keys are split: KW warps take the same queries, each BN / KW keys of every tile, with maxima, sums
// and outputs of their own. They are joined through shared memory at the end, always in the same order.
//
// Which one: d128_40k where two blocks share 100 KiB of shared memory (8.6, 8.9, 12.0), m1 for few tiles; d128 and w8
// where there is more (8.0, 9.0 without wgmma). d80_m1 is for windows of up to 64 rows, whose keys are one tile;
// d256_k4 is for devices whose blocks may have 144 KiB.
//
// Masked scores are -inf and the first maximum -1e30: with -1e30 for both, fma(s, c, -m c) is inf in rows of a causal
// tile that see no key yet, by the rounding of 1e30 c. Tried and slower: 16 queries per warp with fragments
// double-buffered, keys 16 at a time, single buffers, q as two register fragments with 64 keys (spills).
#include "attention_sequences.cuh"
#include "common.cuh"
#include "portable_sm80.cuh"

enum { WHOLE, CAUSAL, EITHER }; // which keys a query sees; EITHER: as the arguments say

template <int HD, int BN, int NW, int KW, int MT, int QR, int SEES>
SUMI_DEV void attention(const sumi_attention_args& a)
{
    constexpr int ROW_BYTES = HD * 2, CHUNKS = ROW_BYTES / 16, ROWS = NW * MT * 16, THREADS = NW * KW * 32;
    constexpr int WN = BN / KW; // a warp's keys of a tile
    constexpr int KT = HD / 16, NT = WN / 8, DT = HD / 8, TILE = BN * ROW_BYTES;
    constexpr bool SHARES_Q = QR < KT;
    constexpr int Q_BYTES = SHARES_Q ? (KT - QR) * 32 : ROW_BYTES; // of a row of q in shared memory
    constexpr bool STAGES_BESIDE = ROWS <= 2 * BN; // q passes through the second buffers while the first ones fill
    constexpr int CHAINS = MT * NT <= 2 ? 2 : 1;   // so few products q k^T: alternate sums, or they wait for each other
    static_assert(KW == 1 || (MT == 1 && !QR), "joining the parts");
    extern __shared__ __align__(1024) u8 shared[];
    // q, then twice a tile of k and one of v
    const u32 sq = (u32)__cvta_generic_to_shared(shared), sk = sq + (SHARES_Q ? ROWS * Q_BYTES : 0), sv = sk + TILE;
    const int warp = KW == 1 ? threadIdx.x >> 5 : (threadIdx.x >> 5) % NW, part = KW == 1 ? 0 : threadIdx.x / (32 * NW),
              l = threadIdx.x & 31;
    const bool causal = SEES == EITHER ? a.is_causal != 0 : SEES == CAUSAL;
    const int tile = a.tile_begin + blockIdx.x;
    const sumi_attention_sequence& s_ = a.sequences[sequence_of(a, tile)];
    const int inside = tile - s_.tile_end + s_.row_tiles * a.heads, head = inside / s_.row_tiles,
              row_tile = inside - head * s_.row_tiles;
    // causal: the rows with most keys first
    const int q0 = s_.first_query + (causal ? s_.row_tiles - 1 - row_tile : row_tile) * ROWS, kv_head = head / a.group;
    const u16* qkv = (const u16*)a.qkv + (int64_t)s_.begin * a.pitch;
    const u16* q = qkv + a.q_column + head * HD;
    const u16* k = qkv + a.k_column + kv_head * HD;
    const u16* v = qkv + a.v_column + kv_head * HD;
    // `rows` tokens from row0 on, zeros from `count` on
    auto copy = [&](u32 to, const u16* from, int row0, int count, int rows) {
#pragma unroll
        for (int i = 0; i < (rows * CHUNKS + THREADS - 1) / THREADS; i++) {
            const int c = i * THREADS + threadIdx.x, r = c / CHUNKS, x = c - r * CHUNKS;
            if (rows * CHUNKS % THREADS == 0 || c < rows * CHUNKS)
                cp16(to + at<ROW_BYTES>(r, x), from + (int64_t)row_of(s_, min(row0 + r, count - 1)) * a.pitch + x * 8,
                     row0 + r < count ? 16 : 0);
        }
    };
    const int keys = causal ? min(s_.keys, q0 + ROWS) : s_.keys, last = (keys - 1) / BN;
    auto load_keys = [&](int b, int j) {
        copy(sk + b * 2 * TILE, k, j * BN, s_.keys, BN);
        copy(sv + b * 2 * TILE, v, j * BN, s_.keys, BN);
        cp_commit();
    };
    u32 qf[MT][QR ? QR : 1][4];
    if (SHARES_Q && QR) // the columns of q that stay in shared memory
        for (int c = threadIdx.x; c < ROWS * Q_BYTES / 16; c += THREADS) {
            const int r = c / (Q_BYTES / 16), x = c - r * (Q_BYTES / 16);
            cp16(sq + at<Q_BYTES>(r, x),
                 q + (int64_t)row_of(s_, min(q0 + r, s_.queries - 1)) * a.pitch + QR * 16 + x * 8,
                 q0 + r < s_.queries ? 16 : 0);
        }
    if (QR) { // the others pass through the memory of k and v into registers
        static_assert(!QR || ROWS <= 4 * BN, "staging q");
        const u32 stage = sk + (STAGES_BESIDE ? 2 * TILE : 0);
        copy(stage, q, q0, s_.queries, ROWS);
        cp_commit();
        if (STAGES_BESIDE) {
            load_keys(0, last);
            cp_wait<1>();
        } else {
            cp_wait<0>();
        }
        __syncthreads();
        const u32 p = stage + at<ROW_BYTES>(warp * MT * 16 + (l & 15), l >> 4);
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int t = 0; t < QR; t++) ldm4(qf[i][t], step<ROW_BYTES>(p, t) + i * 16 * ROW_BYTES);
        // q is read before k and v overwrite it: beside them, the barrier of the first tile sees to that
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
    const u32 pk = part * WN * ROW_BYTES + at<ROW_BYTES>((l & 7) + ((l >> 4) << 3), (l >> 3) & 1),
              pv = part * WN * ROW_BYTES + at<ROW_BYTES>(l & 15, l >> 4);
    const float c = a.scale_log2, jump = 8.f / c;
    for (int j = last; j >= 0; j--) {
        const int b = (last - j) & 1;
        const u32 kt = sk + b * 2 * TILE + pk, vt = sv + b * 2 * TILE + pv;
        cp_wait<0>();
        __syncthreads(); // this tile (and with the first one q) landed, and everyone has left the other buffers
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
                if (t >= QR) ldm4(qt[i], step<Q_BYTES>(pq, t - QR) + i * 16 * Q_BYTES);
#pragma unroll
            for (int n = 0; n < NT / 2; n++) {
                u32 f[4];
                ldm4(f, step<ROW_BYTES>(kt, t) + n * 16 * ROW_BYTES);
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
                p[i][n / 2][n % 2 * 2] = pack2(e0, e1);
                p[i][n / 2][n % 2 * 2 + 1] = pack2(e2, e3);
            }
        }
#pragma unroll
        for (int n = 0; n < NT / 2; n++)
#pragma unroll
            for (int d = 0; d < DT / 2; d++) {
                u32 f[4];
                ldm4t(f, step<ROW_BYTES>(vt, d) + n * 16 * ROW_BYTES);
#pragma unroll
                for (int i = 0; i < MT; i++) {
                    mma<SUMI_OPERANDS_BF16>(acc[i][2 * d], p[i][n], f[0], f[1]);
                    mma<SUMI_OPERANDS_BF16>(acc[i][2 * d + 1], p[i][n], f[2], f[3]);
                }
            }
    }
    // What a warp writes: its rows' 8-channel columns [part * OT, (part + 1) * OT), all of them unless keys are split.
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
        // The parts lie over k and v, a column of 32 x 16 bytes after the other; their maxima and sums over q.
        static_assert(NW * KW * DT * 512 <= 4 * TILE && NW * KW * 512 <= ROWS * Q_BYTES && DT % KW == 0, "parts");
        const int first = SHARES_Q ? ROWS * Q_BYTES : 0;
        float4* parts = (float4*)(shared + first) + l;
        float4* states = (float4*)shared + l;
        __syncthreads(); // everyone has left q, k and v
        states[(part * NW + warp) * 32] = make_float4(mx[0][0], mx[0][1], sum[0][0], sum[0][1]);
#pragma unroll
        for (int d = 0; d < DT; d++)
            parts[((part * NW + warp) * DT + d) * 32] =
                make_float4(acc[0][d][0], acc[0][d][1], acc[0][d][2], acc[0][d][3]);
        __syncthreads(); // all parts are there
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
            x = 1.f / x; // every query sees a key
            const int row = q0 + (warp * MT + i) * 16 + h * 8 + (l >> 2);
#pragma unroll
            for (int d = 0; d < OT; d += 4) {
                u32 w[4];
#pragma unroll
                for (int e = 0; e < 4; e++)
                    w[e] = d + e < OT ? pack2(out[i][d + e < OT ? d + e : 0][h * 2] * x,
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
