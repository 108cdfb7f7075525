// The RMS norm of q and k heads with rotary embedding, for norms.cu (to bf16) and rows_fp8.cu (to e4m3).
#pragma once
#include "rows.cuh"

// For each head of q and k, in place in the qkv matrix: x = rms(x) * w, then rotation by the angles of the row.
//   x [..][pitch] bf16, pitch = (q_heads + 2 kv_heads) dim   q_w, k_w [dim] float
//   rope [..][dim] float: (cos, sin) per pair
// A group of LANES lanes holds a head, 8 columns per lane. dim is a multiple of 8 up to 8 LANES (a multiple of 16 for
// halves):
//
//   lane l         columns 8 l .. 8 l + 7
//   pairs          (8 l, 8 l + 1), (8 l + 2, 8 l + 3) ...: all in the same lane
//   halves         (c, c + dim / 2): lane l < dim / 16 exchanges with lane l + dim / 16
//
// 2^heads_log2 groups process a row. Each group processes SUMI_QK_HEADS_AT_ONCE heads at a time, and the loads of its
// next heads are in flight meanwhile. These 550 instructions are executed even if there are fewer heads: with all 16
// groups, 32 heads of 96 columns used half of them, and 48 heads of 128 three quarters. heads_log2 is chosen so that
// most are used. The weights are in shared memory: in registers they would cost a block per multiprocessor. Rows are
// processed from the last to the first, see rows.cuh. Groups whose head or row is past the end compute with zeros,
// because shuffles need whole warps.
//
// TO_E4M3: a head is written as e4m3, into the first dim of its 2 dim bytes; the other bytes stay. attention_fp8_sm90.cu
// reads this. There are no scales: e4m3 is a float format, so its relative error is the same for all magnitudes from
// 2^-6 to 448, and the elements of a normed head are at most sqrt(dim) * |w|. A lane writes bytes that other lanes of its
// group read; all of them have read when the group has its sum of squares.
template <int LANES, bool IS_HALVES, bool TO_E4M3> SUMI_DEVICE void qk_norm_rope(const sumi_qk_norm_rope_args& args)
{
    constexpr int HEADS = SUMI_QK_HEADS_AT_ONCE, ANGLES = IS_HALVES ? 16 : 8; // (cos, sin) of 8 or 4 pairs
    __shared__ float4 weights[2][2][LANES]; // of q and k: the first and the second four columns of each lane
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const int groups_per_row = 1 << args.heads_log2, group_in_row = group & (groups_per_row - 1);
    const int rows_at_once = (SUMI_ROWS_THREADS / LANES) >> args.heads_log2, heads = args.q_heads + args.kv_heads;
    const bool is_lane_used = 8 * lane < args.dim;
    const int half_lanes = args.dim / 16; // lanes that hold the first half of a head
    const bool is_second = IS_HALVES && lane >= half_lanes;
    const int partner =
        (threadIdx.x & 31) - lane + (is_lane_used ? (is_second ? lane - half_lanes : lane + half_lanes) : lane);
    const float per_column = 1.0f / (float)args.dim;
    const int rows = args.row_end - args.row_begin, row_stride = (int)gridDim.x * rows_at_once;
    const int last_row = args.row_end - 1 - (group >> args.heads_log2); // this group's row while rows_done is 0
    const int head_stride = groups_per_row * args.dim; // elements from one head of the group to its next one
    bf16* const x = (bf16*)args.x.data + (int64_t)args.x_row * args.pitch + group_in_row * args.dim + 8 * lane;
    const float* const rope = args.rope == 0
                                ? nullptr
                                : (const float*)args.rope + (int64_t)args.rope_row * args.dim
                                      + (IS_HALVES ? 16 * (is_second ? lane - half_lanes : lane) : 8 * lane);

    int rows_done = (int)blockIdx.x * rows_at_once; // rows of the launch after those of this block
    int base_head = 0;                              // the first of the heads that the row's groups process together
    uint4 next[HEADS];                              // a lane's columns of the next heads
    float next_angles[ANGLES];
    const auto fetch = [&] {
        const int row = last_row - rows_done;
        const bool is_used = row >= args.row_begin && is_lane_used;
        const bf16* from = x + (int64_t)row * args.pitch + base_head * args.dim;
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            next[h] = make_uint4(0, 0, 0, 0);
            if (is_used && base_head + h * groups_per_row + group_in_row < heads)
                next[h] = *(const uint4*)(from + h * head_stride);
        }
        if (base_head != 0) return; // the row's angles are loaded already
#pragma unroll
        for (int i = 0; i < ANGLES; i++) next_angles[i] = i % 2 == 0 ? 1.0f : 0.0f;
        if (rope != nullptr && is_used) {
#pragma unroll
            for (int i = 0; i < ANGLES; i += 4) {
                const float4 v = *(const float4*)(rope + (int64_t)row * args.dim + i);
                next_angles[i] = v.x, next_angles[i + 1] = v.y, next_angles[i + 2] = v.z, next_angles[i + 3] = v.w;
            }
        }
    };
    if (rows_done < rows) fetch();
    for (int c = threadIdx.x; c < 16 * LANES; c += SUMI_ROWS_THREADS) {
        const int matrix = c / (8 * LANES), column = c % (8 * LANES);
        const float* w = (const float*)(matrix == 0 ? args.q_w : args.k_w);
        ((float*)&weights[matrix][column >> 2 & 1][column >> 3])[column & 3] =
            w != nullptr && column < args.dim ? w[column] : 1.0f;
    }
    __syncthreads();
    while (rows_done < rows) {
        const int row = last_row - rows_done, this_base_head = base_head;
        const bool is_used = row >= args.row_begin && is_lane_used;
        bf16* const to = x + (int64_t)row * args.pitch + base_head * args.dim;
        uint4 raw[HEADS];
        float angles[ANGLES];
#pragma unroll
        for (int h = 0; h < HEADS; h++) raw[h] = next[h];
#pragma unroll
        for (int i = 0; i < ANGLES; i++)
            angles[i] = IS_HALVES && i % 2 == 1 && !is_second ? -next_angles[i] : next_angles[i];
        base_head += HEADS * groups_per_row;
        if (base_head >= heads) base_head = 0, rows_done += row_stride;
        if (rows_done < rows) fetch();
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            const int head = this_base_head + h * groups_per_row + group_in_row;
            const bool is_q = head < args.q_heads;
            float v[8], squares = 0.0f;
            unpack8(raw[h], v);
#pragma unroll
            for (int i = 0; i < 8; i++) squares = fmaf(v[i], v[i], squares);
#pragma unroll
            for (int mask = LANES / 2; mask > 0; mask >>= 1) squares += __shfl_xor_sync(~0u, squares, mask);
            const float inverse_rms =
                (is_q ? args.q_w : args.k_w) != 0 ? rsqrtf(fmaf(squares, per_column, args.eps)) : 1.0f;
            const float4 low = weights[is_q ? 0 : 1][0][lane], high = weights[is_q ? 0 : 1][1][lane];
            const float w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] *= inverse_rms * w[i];
            if (IS_HALVES) {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float other = __shfl_sync(~0u, v[i], partner);
                    v[i] = v[i] * angles[2 * i] + other * angles[2 * i + 1];
                }
            } else {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float even = v[2 * i], odd = v[2 * i + 1];
                    v[2 * i] = even * angles[2 * i] - odd * angles[2 * i + 1];
                    v[2 * i + 1] = odd * angles[2 * i] + even * angles[2 * i + 1];
                }
            }
            // A branch on purpose: with a predicate the compiler overlaps the heads and spills registers.
            if (is_used && head < heads) {
                if (TO_E4M3) *(uint2*)((uint8_t*)(to + h * head_stride) - 8 * lane) = pack8_e4m3(v, 1.0f);
                else store8(to + h * head_stride, v);
            }
        }
    }
}
