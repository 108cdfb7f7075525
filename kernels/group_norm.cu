// GroupNorm (Wu and He 2018) of an image in two launches: first the moments of each row block (the means and squared
// deviations of a number of rows), then (x - mean) * rstd * w + b, optionally with SiLU. Arguments and grids:
// group_norm.h.
//
//   x, y [rows][channels] bf16, x_pitch and y_pitch elements from row to row; a group is group_size = channels / groups
//   neighbouring channels
//   sums [row blocks][groups][2] float: mean, sum of squared deviations from it
//
// Squared deviations are always summed around a mean, never computed as x^2 - mean^2 (except from a convolution's group
// sums, in double). A thread reads chunks of 4 rows x 8 channels into registers, computes the mean of a chunk and then
// its deviations, and combines them with what it has (Chan, Golub & LeVeque 1979). The moments of threads, pieces and
// row blocks are combined in double, in an order that depends on the shape only. A row block is divided into pieces,
// one per thread block, so that the at most 64 row blocks fill a GPU. The piece that finishes last combines all pieces
// of its row block.
//
// Bound by bytes: x is read by each of the two launches, y is written once. The second launch goes through the image
// from its end, because the rows that the first launch read last are still in L2.
#include "common.cuh"
#include "group_norm.h"

// The mean of some values, and the sum of their squared deviations from it.
struct moments {
    double mean, m2;
};
// A number as an argument whose value is known when the kernel is compiled.
template <int N> struct constant {
    static constexpr int value = N;
};

// The sum over eight neighbouring lanes, in the same order in each.
SUMI_DEVICE double eight_lanes_sum(double v)
{
    v += __shfl_xor_sync(~0u, v, 1);
    v += __shfl_xor_sync(~0u, v, 2);
    v += __shfl_xor_sync(~0u, v, 4);
    return v;
}

// Combines entries 0 .. entry_count - 1 of one group. Eight neighbouring lanes share the work; all lanes of the warp
// must call it. entry(i, count, mean, m2) returns the number of values of entry i and their moments. total_count:
// values of all entries.
template <class Entry> SUMI_DEVICE moments combine_moments(int entry_count, double total_count, Entry&& entry)
{
    double sum = 0.0, total_m2 = 0.0;
    for (int i = threadIdx.x & 7; i < entry_count; i += 8) {
        float count, mean, m2;
        entry(i, count, mean, m2);
        sum += (double)count * (double)mean;
    }
    const double total_mean = eight_lanes_sum(sum) / total_count;
    for (int i = threadIdx.x & 7; i < entry_count; i += 8) {
        float count, mean, m2;
        entry(i, count, mean, m2);
        const double distance = (double)mean - total_mean;
        total_m2 += (double)m2 + (double)count * distance * distance;
    }
    return {total_mean, eight_lanes_sum(total_m2)};
}

// Calls body(group, is_valid) for all groups, with eight lanes per group. is_valid is false for the lanes past the last
// group; they must call body too, because it exchanges values between lanes.
template <class Body> SUMI_DEVICE void for_each_group(int groups, Body&& body)
{
    for (int first_group = 0; first_group < groups; first_group += SUMI_GROUP_THREADS / 8) {
        const int group = first_group + threadIdx.x / 8;
        body(group < groups ? group : groups - 1, group < groups);
    }
}

// The moments that one thread has so far: the number of values, the mean and the sum of squared deviations (m2) of each
// of the GROUPS groups in its eight channels.
template <int GROUPS> struct running_moments {
    float count, mean[GROUPS], m2[GROUPS];
    // Adds the values of ROWS rows, `row_stride` elements apart.
    template <int ROWS> SUMI_DEVICE void add(const bf16* x, int64_t row_stride)
    {
        constexpr int GROUP_SIZE = 8 / GROUPS; // channels of the group among the eight
        uint4 raw[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) raw[r] = *(const uint4*)(x + r * row_stride);
        auto value = [&](int r, int c) {
            const uint32_t word = c < 2 ? raw[r].x : c < 4 ? raw[r].y : c < 6 ? raw[r].z : raw[r].w;
            return __uint_as_float(c & 1 ? word & 0xffff0000u : word << 16);
        };
        // the new values' share of all values
        const float weight = __fdividef((float)(ROWS * GROUP_SIZE), count + (float)(ROWS * GROUP_SIZE));
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            float sum = 0.0f, new_m2 = 0.0f;
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < GROUP_SIZE; c++) sum += value(r, g * GROUP_SIZE + c);
            const float new_mean = sum * (1.0f / (ROWS * GROUP_SIZE));
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < GROUP_SIZE; c++) {
                    const float deviation = value(r, g * GROUP_SIZE + c) - new_mean;
                    new_m2 = fmaf(deviation, deviation, new_m2);
                }
            const float distance = new_mean - mean[g];
            mean[g] = fmaf(distance, weight, mean[g]);
            m2[g] += fmaf(distance * distance, count * weight, new_m2);
        }
        count += (float)(ROWS * GROUP_SIZE);
    }
};

// GROUPS: groups in eight channels. 1: a group is a multiple of eight channels. The threads of a block form a grid of
// thread_rows x thread_columns. A thread reads its eight channels of rows thread_row, thread_row + thread_rows and so
// on of the piece. Threads past the last whole row of the grid read nothing.
//
//   channels           0 .. 7            8 .. 15               ...   channels - 8 ..
//   thread_row 0       0                 1                     ...   thread_columns - 1
//   thread_row 1       thread_columns    thread_columns + 1    ...   2 thread_columns - 1
template <int GROUPS> SUMI_DEVICE void group_sums(const sumi_group_sums_args& args)
{
    __shared__ float thread_count[SUMI_GROUP_THREADS], thread_mean[GROUPS][SUMI_GROUP_THREADS],
        thread_m2[GROUPS][SUMI_GROUP_THREADS];
    __shared__ uint32_t arrived;
    const int thread_columns = args.channels / 8, thread_rows = SUMI_GROUP_THREADS / thread_columns,
              group_size = args.channels / args.groups;
    const int thread_column = threadIdx.x % thread_columns, thread_row = threadIdx.x / thread_columns,
              row_block = args.block_begin + blockIdx.y;
    const int block_end = min((row_block + 1) * args.block_rows, args.rows);
    const int piece_begin = row_block * args.block_rows + blockIdx.x * args.piece_rows,
              piece_end = min(piece_begin + args.piece_rows, block_end);
    running_moments<GROUPS> running;
    running.count = 0.0f;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) running.mean[g] = running.m2[g] = 0.0f;
    if (thread_row < thread_rows) {
        const int64_t stride = (int64_t)thread_rows * args.x_pitch;
        int row = piece_begin + thread_row;
        const bf16* x = (const bf16*)args.x + (int64_t)row * args.x_pitch + thread_column * 8;
        for (; row + 3 * thread_rows < piece_end; row += 4 * thread_rows, x += 4 * stride)
            running.template add<4>(x, stride);
        for (; row < piece_end; row += thread_rows, x += stride) running.template add<1>(x, stride);
    }
    thread_count[threadIdx.x] = running.count;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        thread_mean[g][threadIdx.x] = running.mean[g];
        thread_m2[g][threadIdx.x] = running.m2[g];
    }
    __syncthreads();
    float2* to = args.pieces > 1
                   ? (float2*)args.piece_moments + ((int64_t)row_block * args.pieces + blockIdx.x) * args.groups
                   : (float2*)args.sums + (int64_t)row_block * args.groups;
    const int columns_per_group = GROUPS == 1 ? group_size / 8 : 1; // thread columns that together hold one group
    for_each_group(args.groups, [&](int g, bool is_valid) {
        // Entry i is the thread in row i / columns_per_group of the grid and column i % columns_per_group of the group.
        const auto moments_of_thread = [&](int i, float& count, float& mean, float& m2) {
            const int thread = i / columns_per_group * thread_columns
                             + (GROUPS == 1 ? g * columns_per_group + i % columns_per_group : g / GROUPS);
            count = thread_count[thread];
            mean = thread_mean[g % GROUPS][thread];
            m2 = thread_m2[g % GROUPS][thread];
        };
        const moments combined = combine_moments(columns_per_group * thread_rows,
                                                 (double)(piece_end - piece_begin) * group_size, moments_of_thread);
        if (is_valid && (threadIdx.x & 7) == 0) to[g] = make_float2((float)combined.mean, (float)combined.m2);
    });
    if (args.pieces == 1) return;
    // The piece of a row block that arrives last combines all pieces, in order. Each piece fences between writing its
    // moments and its arrival; the last one fences between its arrival and reading them.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) arrived = atomicAdd((uint32_t*)args.arrivals + blockIdx.y, 1u);
    __syncthreads();
    if (arrived != (uint32_t)gridDim.x - 1) return;
    __threadfence();
    const float2* piece_moments = (const float2*)args.piece_moments + (int64_t)row_block * args.pieces * args.groups;
    // The last row block may have fewer pieces.
    const int block_begin = row_block * args.block_rows,
              pieces = (block_end - block_begin + args.piece_rows - 1) / args.piece_rows;
    for_each_group(args.groups, [&](int g, bool is_valid) {
        const auto moments_of_piece = [&](int i, float& count, float& mean, float& m2) {
            const float2 piece = __ldcg(piece_moments + (int64_t)i * args.groups + g);
            count = (float)(min(args.piece_rows, block_end - block_begin - i * args.piece_rows) * group_size);
            mean = piece.x;
            m2 = piece.y;
        };
        const moments combined =
            combine_moments(pieces, (double)(block_end - block_begin) * group_size, moments_of_piece);
        if (is_valid && (threadIdx.x & 7) == 0)
            ((float2*)args.sums)[(int64_t)row_block * args.groups + g] =
                make_float2((float)combined.mean, (float)combined.m2);
    });
    if (threadIdx.x == 0) ((uint32_t*)args.arrivals)[blockIdx.y] = 0;
}

extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_sums_1(const __grid_constant__ sumi_group_sums_args args)
{
    group_sums<1>(args);
}
extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_sums_2(const __grid_constant__ sumi_group_sums_args args)
{
    group_sums<2>(args);
}
extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_sums_4(const __grid_constant__ sumi_group_sums_args args)
{
    group_sums<4>(args);
}

// One group of one row block per thread block, for any size. It reads the values twice; the second time they come from
// a cache.
extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_sums_any(const __grid_constant__ sumi_group_sums_args args)
{
    __shared__ float shared[32];
    const int group_size = args.channels / args.groups, group = blockIdx.x, row_block = args.block_begin + blockIdx.y;
    const int first_row = row_block * args.block_rows, rows = min(args.block_rows, args.rows - first_row);
    const bf16* x = (const bf16*)args.x + (int64_t)first_row * args.x_pitch + group * group_size;
    const int64_t count = (int64_t)rows * group_size;
    float sum = 0.0f, m2 = 0.0f;
    for (int64_t i = threadIdx.x; i < count; i += SUMI_GROUP_THREADS)
        sum += __bfloat162float(x[i / group_size * args.x_pitch + i % group_size]);
    const float mean = block_sum(sum, shared) / (float)count;
    for (int64_t i = threadIdx.x; i < count; i += SUMI_GROUP_THREADS) {
        const float deviation = __bfloat162float(x[i / group_size * args.x_pitch + i % group_size]) - mean;
        m2 = fmaf(deviation, deviation, m2);
    }
    m2 = block_sum(m2, shared);
    if (threadIdx.x == 0) ((float2*)args.sums)[(int64_t)row_block * args.groups + group] = make_float2(mean, m2);
}

// Moments from the group sums of a convolution (conv_sums_sm90.cuh), in double. Entry i has 32 groups x (sum, sum of
// squares). A warp adds every eighth entry of the block's range of entries, and each of its lanes one group. The block
// that arrives last combines the partial sums of all blocks in order, and writes the input of sumi_group_norm.
extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_sums_conv(const __grid_constant__ sumi_group_conv_args args)
{
    constexpr int WARPS = SUMI_GROUP_THREADS / 32;
    __shared__ double warp_sums[WARPS][32][2];
    __shared__ uint32_t arrived;
    const int group = threadIdx.x & 31, warp = threadIdx.x >> 5;
    // Adds over the warps. Every thread gets the sums of its group.
    auto sum_over_warps = [&](double sum, double squares) {
        warp_sums[warp][group][0] = sum;
        warp_sums[warp][group][1] = squares;
        __syncthreads();
        sum = squares = 0.0;
        for (int i = 0; i < WARPS; i++) {
            sum += warp_sums[i][group][0];
            squares += warp_sums[i][group][1];
        }
        __syncthreads();
        return make_double2(sum, squares);
    };
    const int64_t first = args.entries * blockIdx.x / gridDim.x, end = args.entries * (blockIdx.x + 1) / gridDim.x;
    double sum = 0.0, squares = 0.0;
#pragma unroll 8
    for (int64_t i = first + warp; i < end; i += WARPS) {
        const float2 entry = ((const float2*)args.stats)[i * 32 + group];
        sum += (double)entry.x;
        squares += (double)entry.y;
    }
    double2 total = sum_over_warps(sum, squares);
    if (warp == 0) ((double2*)args.block_sums)[blockIdx.x * 32 + group] = total;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) arrived = atomicAdd((uint32_t*)args.arrivals, 1u);
    __syncthreads();
    if (arrived != gridDim.x - 1) return;
    __threadfence();
    sum = squares = 0.0;
    for (int i = warp; i < (int)gridDim.x; i += WARPS) {
        const double2 partial = __ldcg((const double2*)args.block_sums + i * 32 + group);
        sum += partial.x;
        squares += partial.y;
    }
    total = sum_over_warps(sum, squares);
    const double count = (double)args.rows * args.group_size, mean = total.x / count,
                 m2 = fmax(total.y - total.x * mean, 0.0);
    for (int row_block = warp; row_block < args.block_count; row_block += WARPS) {
        const int rows = min(args.block_rows, args.rows - row_block * args.block_rows);
        ((float2*)args.sums)[row_block * 32 + group] = make_float2((float)mean, (float)(m2 * rows / args.rows));
    }
    if (threadIdx.x == 0) *(uint32_t*)args.arrivals = 0;
}

// ---- GROUP_NORM -----------------------------------------------------------------------------------------------------
// SiLU with exp and a fast division. tanh.approx would be one instruction less, but its error of 2^-11 is relative to
// 1: for inputs below about -4 it is as large as the result.
SUMI_DEVICE float silu_exact(float v) { return __fdividef(v, 1.0f + __expf(-v)); }

// groups[g] = mean and rstd of group g. Every thread block combines the (at most 64) row blocks itself: meanwhile
// the other blocks of the multiprocessor load. With a launch of its own the combination would be waited for.
SUMI_DEVICE void combine_row_blocks(const sumi_group_norm_args& args, float2* groups)
{
    const int group_size = args.channels / args.groups;
    const double total_count = (double)args.all_rows * group_size;
    for_each_group(args.groups, [&](int g, bool is_valid) {
        const moments combined =
            combine_moments(args.block_count, total_count, [&](int i, float& count, float& mean, float& m2) {
                const float2 row_block = ((const float2*)args.sums)[(int64_t)i * args.groups + g];
                count = (float)min(args.block_rows, args.all_rows - i * args.block_rows) * (float)group_size;
                mean = row_block.x;
                m2 = row_block.y;
            });
        if (is_valid && (threadIdx.x & 7) == 0)
            groups[g] =
                make_float2((float)combined.mean, (float)(1.0 / sqrt(combined.m2 / total_count + (double)args.eps)));
    });
    __syncthreads();
}

// The rows of this thread block. Units are numbered from the end of the image.
SUMI_DEVICE void unit_rows(const sumi_group_norm_args& args, int& first, int& end)
{
    const int units = (args.rows + args.unit_rows - 1) / args.unit_rows,
              unit = units - 1 - (args.unit_begin + blockIdx.x); // counted from the first row
    first = unit * args.unit_rows;
    end = min(first + args.unit_rows, args.rows);
}

extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_norm(const __grid_constant__ sumi_group_norm_args args)
{
    extern __shared__ float2 groups[];
    combine_row_blocks(args, groups);
    const int thread_columns = args.channels / 8, thread_rows = SUMI_GROUP_THREADS / thread_columns, // as in group_sums
        group_size = args.channels / args.groups;
    const int channel = threadIdx.x % thread_columns * 8, thread_row = threadIdx.x / thread_columns;
    if (thread_row >= thread_rows) return;
    int row, end;
    unit_rows(args, row, end);
    float mean[8], factor[8], bias[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float2 mean_rstd = groups[(channel + i) / group_size];
        mean[i] = mean_rstd.x;
        factor[i] = args.weight ? mean_rstd.y * ((const float*)args.weight)[channel + i] : mean_rstd.y;
        bias[i] = args.bias ? ((const float*)args.bias)[channel + i] : 0.0f;
    }
    const int64_t x_stride = (int64_t)thread_rows * args.x_pitch, y_stride = (int64_t)thread_rows * args.y_pitch;
    row += thread_row;
    const bf16* x = (const bf16*)args.x + (int64_t)row * args.x_pitch + channel;
    bf16* y = (bf16*)args.y + (int64_t)row * args.y_pitch + channel;
    auto process_rows = [&](auto count) { // ROWS rows are in flight at a time
        constexpr int ROWS = decltype(count)::value;
        float v[ROWS][8];
#pragma unroll
        for (int r = 0; r < ROWS; r++) load8(x + r * x_stride, v[r]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v[r][i] = fmaf(v[r][i] - mean[i], factor[i], bias[i]);
                if (args.silu) v[r][i] = silu_exact(v[r][i]);
            }
            store8(y + r * y_stride, v[r]);
        }
        row += ROWS * thread_rows;
        x += ROWS * x_stride;
        y += ROWS * y_stride;
    };
    while (row + 3 * thread_rows < end) process_rows(constant<4>());
    while (row < end) process_rows(constant<1>());
}

extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_norm_any(const __grid_constant__ sumi_group_norm_args args)
{
    extern __shared__ float2 groups[];
    combine_row_blocks(args, groups);
    const int group_size = args.channels / args.groups;
    int first_row, end;
    unit_rows(args, first_row, end);
    for (int64_t i = (int64_t)first_row * args.channels + threadIdx.x; i < (int64_t)end * args.channels;
         i += SUMI_GROUP_THREADS) {
        const int channel = (int)(i % args.channels);
        const int64_t row = i / args.channels;
        const float2 mean_rstd = groups[channel / group_size];
        const float factor = args.weight ? mean_rstd.y * ((const float*)args.weight)[channel] : mean_rstd.y,
                    bias = args.bias ? ((const float*)args.bias)[channel] : 0.0f;
        float v =
            fmaf(__bfloat162float(((const bf16*)args.x)[row * args.x_pitch + channel]) - mean_rstd.x, factor, bias);
        if (args.silu) v = silu_exact(v);
        ((bf16*)args.y)[row * args.y_pitch + channel] = __float2bfloat16_rn(v);
    }
}
