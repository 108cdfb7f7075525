// GroupNorm (Wu and He 2018) of an image in two launches: first the moments of each row block (the means and squared
// deviations of a number of rows), then (x - mean) * rstd * w + b, optionally with SiLU. Arguments and grids:
// group_norm.h.
//
//   x, y [rows][channels] bf16, x_pitch and y_pitch elements from row to row; a group is `size` = channels / groups
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
// first one's reads are still in the L2 cache.
#include "common.cuh"
#include "group_norm.h"

// Mean and sum of squared deviations.
struct moments {
    double mean, deviation;
};
template <int N> struct number {
    static constexpr int value = N;
};

SUMI_DEVICE double sum8(double v) // the sum over eight neighbouring lanes, in the same order in each
{
    v += __shfl_xor_sync(~0u, v, 1);
    v += __shfl_xor_sync(~0u, v, 2);
    v += __shfl_xor_sync(~0u, v, 4);
    return v;
}

// Combines entries 0 .. entry_count - 1 of one group. Eight neighbouring lanes share the work; all lanes of the warp
// must call it. entry(i, n, mean, deviation) returns the number of values of entry i and their moments. count: values
// of all entries.
template <class Entry> SUMI_DEVICE moments join(int entry_count, double count, Entry&& entry)
{
    double sum = 0.0, deviation = 0.0;
    for (int i = threadIdx.x & 7; i < entry_count; i += 8) {
        float n, mean, m2;
        entry(i, n, mean, m2);
        sum += (double)n * (double)mean;
    }
    const double centre = sum8(sum) / count;
    for (int i = threadIdx.x & 7; i < entry_count; i += 8) {
        float n, mean, m2;
        entry(i, n, mean, m2);
        const double distance = (double)mean - centre;
        deviation += (double)m2 + (double)n * distance * distance;
    }
    return {centre, sum8(deviation)};
}

// Calls body(group, is_valid) for all groups, with eight lanes per group. is_valid is false for the lanes past the last
// group; they must call body too, because it exchanges values between lanes.
template <class Body> SUMI_DEVICE void over_groups(int groups, Body&& body)
{
    for (int first = 0; first < groups; first += SUMI_GROUP_THREADS / 8) {
        const int g = first + threadIdx.x / 8;
        body(g < groups ? g : groups - 1, g < groups);
    }
}

// The moments that one thread has so far: n values, mean and sum of squared deviations (m2) of each of the GROUPS
// groups in its eight channels.
template <int GROUPS> struct running {
    float n, mean[GROUPS], m2[GROUPS];
    // Adds the values of ROWS rows, `step` elements apart.
    template <int ROWS> SUMI_DEVICE void add(const bf16* x, int64_t step)
    {
        constexpr int SIZE = 8 / GROUPS;
        uint4 raw[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) raw[r] = *(const uint4*)(x + r * step);
        auto value = [&](int r, int c) {
            const uint32_t w = c < 2 ? raw[r].x : c < 4 ? raw[r].y : c < 6 ? raw[r].z : raw[r].w;
            return __uint_as_float(c & 1 ? w & 0xffff0000u : w << 16);
        };
        const float share = __fdividef((float)(ROWS * SIZE), n + (float)(ROWS * SIZE));
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            float sum = 0.0f, squares = 0.0f;
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < SIZE; c++) sum += value(r, g * SIZE + c);
            const float centre = sum * (1.0f / (ROWS * SIZE));
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < SIZE; c++) {
                    const float d = value(r, g * SIZE + c) - centre;
                    squares = fmaf(d, d, squares);
                }
            const float distance = centre - mean[g];
            mean[g] = fmaf(distance, share, mean[g]);
            m2[g] += fmaf(distance * distance, n * share, squares);
        }
        n += (float)(ROWS * SIZE);
    }
};

// GROUPS: groups in eight channels. 1: a group is a multiple of eight channels. Thread t reads channels 8 * (t %
// columns) .. + 7 of rows t / columns, t / columns + lines, and so on.
template <int GROUPS> SUMI_DEVICE void group_sums(const sumi_group_sums_args& a)
{
    __shared__ float all_n[SUMI_GROUP_THREADS], all_mean[GROUPS][SUMI_GROUP_THREADS],
        all_m2[GROUPS][SUMI_GROUP_THREADS];
    __shared__ uint32_t arrived;
    const int columns = a.channels / 8, lines = SUMI_GROUP_THREADS / columns, size = a.channels / a.groups;
    const int column = threadIdx.x % columns, line = threadIdx.x / columns, block = a.block_begin + blockIdx.y;
    const int block_end = min((block + 1) * a.block_rows, a.rows);
    const int first = block * a.block_rows + blockIdx.x * a.piece_rows, end = min(first + a.piece_rows, block_end);
    running<GROUPS> own;
    own.n = 0.0f;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) own.mean[g] = own.m2[g] = 0.0f;
    if (line < lines) {
        const int64_t step = (int64_t)lines * a.x_pitch;
        int row = first + line;
        const bf16* x = (const bf16*)a.x + (int64_t)row * a.x_pitch + column * 8;
        for (; row + 3 * lines < end; row += 4 * lines, x += 4 * step) own.template add<4>(x, step);
        for (; row < end; row += lines, x += step) own.template add<1>(x, step);
    }
    all_n[threadIdx.x] = own.n;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        all_mean[g][threadIdx.x] = own.mean[g];
        all_m2[g][threadIdx.x] = own.m2[g];
    }
    __syncthreads();
    float2* to = a.pieces > 1 ? (float2*)a.parts + ((int64_t)block * a.pieces + blockIdx.x) * a.groups
                              : (float2*)a.sums + (int64_t)block * a.groups;
    const int wide = GROUPS == 1 ? size / 8 : 1; // columns of threads that together hold one group
    over_groups(a.groups, [&](int g, bool is_valid) {
        const moments m =
            join(wide * lines, (double)(end - first) * size, [&](int i, float& n, float& mean, float& m2) {
                const int t = i / wide * columns + (GROUPS == 1 ? g * wide + i % wide : g / GROUPS);
                n = all_n[t];
                mean = all_mean[g % GROUPS][t];
                m2 = all_m2[g % GROUPS][t];
            });
        if (is_valid && (threadIdx.x & 7) == 0) to[g] = make_float2((float)m.mean, (float)m.deviation);
    });
    if (a.pieces == 1) return;
    // The piece of a row block that arrives last combines all pieces, in order. Each piece fences between writing its
    // moments and its arrival; the last one fences between its arrival and reading them.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) arrived = atomicAdd((uint32_t*)a.arrivals + blockIdx.y, 1u);
    __syncthreads();
    if (arrived != (uint32_t)gridDim.x - 1) return;
    __threadfence();
    const float2* parts = (const float2*)a.parts + (int64_t)block * a.pieces * a.groups;
    // the last row block may have fewer pieces
    const int block_first = block * a.block_rows, filled = (block_end - block_first + a.piece_rows - 1) / a.piece_rows;
    over_groups(a.groups, [&](int g, bool is_valid) {
        const moments m =
            join(filled, (double)(block_end - block_first) * size, [&](int i, float& n, float& mean, float& m2) {
                const float2 part = __ldcg(parts + (int64_t)i * a.groups + g);
                n = (float)(min(a.piece_rows, block_end - block_first - i * a.piece_rows) * size);
                mean = part.x;
                m2 = part.y;
            });
        if (is_valid && (threadIdx.x & 7) == 0)
            ((float2*)a.sums)[(int64_t)block * a.groups + g] = make_float2((float)m.mean, (float)m.deviation);
    });
    if (threadIdx.x == 0) ((uint32_t*)a.arrivals)[blockIdx.y] = 0;
}

extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_sums_1(const __grid_constant__ sumi_group_sums_args a)
{
    group_sums<1>(a);
}
extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_sums_2(const __grid_constant__ sumi_group_sums_args a)
{
    group_sums<2>(a);
}
extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_sums_4(const __grid_constant__ sumi_group_sums_args a)
{
    group_sums<4>(a);
}

// One group of one row block per thread block, for any size. It reads the values twice; the second time they come from
// a cache.
extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_sums_any(const __grid_constant__ sumi_group_sums_args a)
{
    __shared__ float shared[32];
    const int size = a.channels / a.groups, g = blockIdx.x, block = a.block_begin + blockIdx.y;
    const int first = block * a.block_rows, rows = min(a.block_rows, a.rows - first);
    const bf16* x = (const bf16*)a.x + (int64_t)first * a.x_pitch + g * size;
    const int64_t count = (int64_t)rows * size;
    float sum = 0.0f, squares = 0.0f;
    for (int64_t i = threadIdx.x; i < count; i += SUMI_GROUP_THREADS)
        sum += __bfloat162float(x[i / size * a.x_pitch + i % size]);
    const float mean = block_sum(sum, shared) / (float)count;
    for (int64_t i = threadIdx.x; i < count; i += SUMI_GROUP_THREADS) {
        const float d = __bfloat162float(x[i / size * a.x_pitch + i % size]) - mean;
        squares = fmaf(d, d, squares);
    }
    squares = block_sum(squares, shared);
    if (threadIdx.x == 0) ((float2*)a.sums)[(int64_t)block * a.groups + g] = make_float2(mean, squares);
}

// Moments from the group sums of a convolution (conv_sm90.cu), in double. Entry i has 32 groups x (sum, sum of
// squares). Thread t of a block adds group t % 32 of entries t / 32, t / 32 + 8, and so on, of the block's range of
// entries. The block that arrives last combines the partial sums of all blocks in order, and writes the input of
// sumi_group_norm.
extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_sums_conv(const __grid_constant__ sumi_group_conv_args a)
{
    __shared__ double shared[SUMI_GROUP_THREADS / 32][32][2];
    __shared__ uint32_t arrived;
    const int g = threadIdx.x & 31, line = threadIdx.x >> 5;
    // combines the 8 threads of each group; every thread gets the sums of its group
    auto over_lines = [&](double sum, double squares) {
        shared[line][g][0] = sum;
        shared[line][g][1] = squares;
        __syncthreads();
        sum = squares = 0.0;
        for (int i = 0; i < SUMI_GROUP_THREADS / 32; i++) {
            sum += shared[i][g][0];
            squares += shared[i][g][1];
        }
        __syncthreads();
        return make_double2(sum, squares);
    };
    const int64_t first = a.entries * blockIdx.x / gridDim.x, end = a.entries * (blockIdx.x + 1) / gridDim.x;
    double sum = 0.0, squares = 0.0;
#pragma unroll 8
    for (int64_t i = first + line; i < end; i += SUMI_GROUP_THREADS / 32) {
        const float2 v = ((const float2*)a.stats)[i * 32 + g];
        sum += (double)v.x;
        squares += (double)v.y;
    }
    double2 total = over_lines(sum, squares);
    if (line == 0) ((double2*)a.parts)[blockIdx.x * 32 + g] = total;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) arrived = atomicAdd((uint32_t*)a.arrivals, 1u);
    __syncthreads();
    if (arrived != gridDim.x - 1) return;
    __threadfence();
    sum = squares = 0.0;
    for (int i = line; i < (int)gridDim.x; i += SUMI_GROUP_THREADS / 32) {
        const double2 v = __ldcg((const double2*)a.parts + i * 32 + g);
        sum += v.x;
        squares += v.y;
    }
    total = over_lines(sum, squares);
    const double count = (double)a.rows * a.size, mean = total.x / count,
                 deviation = fmax(total.y - total.x * mean, 0.0);
    for (int block = line; block < a.block_count; block += SUMI_GROUP_THREADS / 32) {
        const int rows = min(a.block_rows, a.rows - block * a.block_rows);
        ((float2*)a.sums)[block * 32 + g] = make_float2((float)mean, (float)(deviation * rows / a.rows));
    }
    if (threadIdx.x == 0) *(uint32_t*)a.arrivals = 0;
}

// ---- GROUP_NORM -----------------------------------------------------------------------------------------------------
// SiLU with exp and a fast division. tanh.approx would be one instruction less, but its error of 2^-11 is relative to
// 1: for inputs below about -4 it is as large as the result.
SUMI_DEVICE float silu_exact(float v) { return __fdividef(v, 1.0f + __expf(-v)); }

// shared[g] = mean and rstd of group g. Every thread block combines the (at most 64) row blocks itself: meanwhile the
// other blocks of the multiprocessor load. With a launch of its own the combination would be waited for.
SUMI_DEVICE void join_blocks(const sumi_group_norm_args& a, float2* shared)
{
    const int size = a.channels / a.groups;
    const double count = (double)a.all_rows * size;
    over_groups(a.groups, [&](int g, bool is_valid) {
        const moments m = join(a.block_count, count, [&](int i, float& n, float& mean, float& m2) {
            const float2 part = ((const float2*)a.sums)[(int64_t)i * a.groups + g];
            n = (float)min(a.block_rows, a.all_rows - i * a.block_rows) * (float)size;
            mean = part.x;
            m2 = part.y;
        });
        if (is_valid && (threadIdx.x & 7) == 0)
            shared[g] = make_float2((float)m.mean, (float)(1.0 / sqrt(m.deviation / count + (double)a.eps)));
    });
    __syncthreads();
}

// The rows of this thread block. Unit u is the u-th from the end.
SUMI_DEVICE void unit_rows(const sumi_group_norm_args& a, int& first, int& end)
{
    const int units = (a.rows + a.unit_rows - 1) / a.unit_rows, u = units - 1 - (a.unit_begin + blockIdx.x);
    first = u * a.unit_rows;
    end = min(first + a.unit_rows, a.rows);
}

extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_norm(const __grid_constant__ sumi_group_norm_args a)
{
    extern __shared__ float2 groups[];
    join_blocks(a, groups);
    const int columns = a.channels / 8, lines = SUMI_GROUP_THREADS / columns, size = a.channels / a.groups;
    const int c = threadIdx.x % columns * 8, line = threadIdx.x / columns;
    if (line >= lines) return;
    int row, end;
    unit_rows(a, row, end);
    float mean[8], factor[8], bias[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float2 g = groups[(c + i) / size];
        mean[i] = g.x;
        factor[i] = a.weight ? g.y * ((const float*)a.weight)[c + i] : g.y;
        bias[i] = a.bias ? ((const float*)a.bias)[c + i] : 0.0f;
    }
    const int64_t x_step = (int64_t)lines * a.x_pitch, y_step = (int64_t)lines * a.y_pitch;
    row += line;
    const bf16* x = (const bf16*)a.x + (int64_t)row * a.x_pitch + c;
    bf16* y = (bf16*)a.y + (int64_t)row * a.y_pitch + c;
    auto rows = [&](auto count) { // N rows are in flight at a time
        constexpr int N = decltype(count)::value;
        float v[N][8];
#pragma unroll
        for (int r = 0; r < N; r++) load8(x + r * x_step, v[r]);
#pragma unroll
        for (int r = 0; r < N; r++) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v[r][i] = fmaf(v[r][i] - mean[i], factor[i], bias[i]);
                if (a.silu) v[r][i] = silu_exact(v[r][i]);
            }
            store8(y + r * y_step, v[r]);
        }
        row += N * lines;
        x += N * x_step;
        y += N * y_step;
    };
    while (row + 3 * lines < end) rows(number<4>());
    while (row < end) rows(number<1>());
}

extern "C" __global__ void __launch_bounds__(SUMI_GROUP_THREADS)
    sumi_group_norm_any(const __grid_constant__ sumi_group_norm_args a)
{
    extern __shared__ float2 groups[];
    join_blocks(a, groups);
    const int size = a.channels / a.groups;
    int first, end;
    unit_rows(a, first, end);
    for (int64_t i = (int64_t)first * a.channels + threadIdx.x; i < (int64_t)end * a.channels;
         i += SUMI_GROUP_THREADS) {
        const int c = (int)(i % a.channels);
        const int64_t row = i / a.channels;
        const float2 g = groups[c / size];
        const float factor = a.weight ? g.y * ((const float*)a.weight)[c] : g.y,
                    bias = a.bias ? ((const float*)a.bias)[c] : 0.0f;
        float v = fmaf(__bfloat162float(((const bf16*)a.x)[row * a.x_pitch + c]) - g.x, factor, bias);
        if (a.silu) v = silu_exact(v);
        ((bf16*)a.y)[row * a.y_pitch + c] = __float2bfloat16_rn(v);
    }
}
