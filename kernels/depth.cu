// Depth buffers as control pictures: distances, exact percentiles by radix select, greys, resize. Contracts: depth.h.
// A buffer of 1024 x 1024 is 4 MiB, which stay in the L2 cache between the passes, so distances are computed again in
// each pass and never stored. Multiplications and additions are written out, because a fused one would round otherwise
// than the CPU does.
#include "common.cuh"
#include "depth.h"

enum { STANDARD, REVERSED, OPENGL, DISTANCE }; // sumi_depth_kind
#define LEAST_DISTANCE 1e-30f

SUMI_DEVICE int shift_of(int digit) { return digit == 0 ? 20 : digit == 1 ? 10 : 0; }
SUMI_DEVICE int bits_of(int digit) { return digit == 0 ? 11 : 10; }

// The distance or its inverse. Comparisons are written so that NaN is far.
SUMI_DEVICE float value_of(const sumi_depth_kernel_args& args, float d)
{
    if (args.kind == DISTANCE) {
        if (!(d < args.far_plane)) return args.sky;
        const float z = d > LEAST_DISTANCE ? d : LEAST_DISTANCE;
        return args.inverse ? __fdiv_rn(1.0f, z) : z;
    }
    float near_weight, far_weight;
    if (args.kind == REVERSED) {
        near_weight = !(d > 0.0f) ? 0.0f : d < 1.0f ? d : 1.0f;
        far_weight = 1.0f - near_weight;
    } else if (args.kind == OPENGL) {
        const float ndc = !(d < 1.0f) ? 1.0f : d > -1.0f ? d : -1.0f;
        near_weight = 0.5f * (1.0f - ndc);
        far_weight = 0.5f * (1.0f + ndc);
    } else {
        far_weight = !(d < 1.0f) ? 1.0f : d > 0.0f ? d : 0.0f;
        near_weight = 1.0f - far_weight;
    }
    if (!(near_weight > 0.0f)) return args.sky;
    const float q = __fadd_rn(__fmul_rn(near_weight, args.inverse_near), __fmul_rn(far_weight, args.inverse_far));
    return args.inverse ? q : __fdiv_rn(1.0f, q);
}

// ---- Percentiles ----------------------------------------------------------------------------------------------------

// Neighbouring pixels often have the same digit, and additions of a warp to one counter run one after the other: the
// block's counters are in shared memory, where that takes a few cycles each.
extern "C" __global__ void __launch_bounds__(SUMI_DEPTH_THREADS)
    sumi_depth_count(const __grid_constant__ sumi_depth_kernel_args args)
{
    __shared__ uint32_t counts[SUMI_DEPTH_RANKS][SUMI_DEPTH_BINS];
    sumi_depth_state* state = (sumi_depth_state*)args.state;
    const int shift = shift_of(args.digit), above = shift + bits_of(args.digit), bins = 1 << bits_of(args.digit);
    for (int i = threadIdx.x; i < SUMI_DEPTH_RANKS * SUMI_DEPTH_BINS; i += SUMI_DEPTH_THREADS) (&counts[0][0])[i] = 0;
    uint32_t prefixes[SUMI_DEPTH_RANKS];
    bool counts_own[SUMI_DEPTH_RANKS];
#pragma unroll
    for (int k = 0; k < SUMI_DEPTH_RANKS; k++) {
        prefixes[k] = state->prefixes[k];
        counts_own[k] = state->owners[k] == (uint32_t)k;
    }
    __syncthreads();
    const int64_t count = (int64_t)args.from_width * args.from_height, begin = (int64_t)blockIdx.x * SUMI_DEPTH_COUNTED,
                  end = begin + SUMI_DEPTH_COUNTED < count ? begin + SUMI_DEPTH_COUNTED : count;
    for (int64_t i = begin + threadIdx.x; i < end; i += SUMI_DEPTH_THREADS) {
        const uint32_t bits = __float_as_uint(value_of(args, ((const float*)args.depth)[i]));
#pragma unroll
        for (int k = 0; k < SUMI_DEPTH_RANKS; k++) {
            if (counts_own[k] && bits >> above == prefixes[k]) atomicAdd(&counts[k][bits >> shift & (bins - 1)], 1u);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < SUMI_DEPTH_RANKS * bins; i += SUMI_DEPTH_THREADS) {
        const int k = i / bins, bin = i - k * bins;
        if (counts[k][bin] != 0) atomicAdd(&state->counts[args.digit][k][bin], counts[k][bin]);
    }
}

// Sky is infinite if it does not count.
SUMI_DEVICE void set_ranks(const sumi_depth_kernel_args& args, sumi_depth_state* state)
{
    const uint32_t all = (uint32_t)args.from_width * (uint32_t)args.from_height,
                   count = all - state->counts[0][0][0x7f800000u >> 20];
    state->is_empty = count == 0;
    for (int i = 0; i < 2 && count > 0; i++) { // white, black
        const double percent = args.inverse ? (i == 0 ? 99.0 : 1.0) : (i == 0 ? 2.0 : 85.0);
        const double place = percent / 100.0 * (double)(count - 1);
        const uint32_t first = (uint32_t)place;
        state->ranks[2 * i] = first;
        state->ranks[2 * i + 1] = first + 1 < count ? first + 1 : first;
        state->shares[i] = place - first;
    }
}

SUMI_DEVICE void set_range(sumi_depth_state* state, float white, float black)
{
    state->white = white;
    state->black = black;
    state->is_flat = white == black;
    state->scale = white == black ? 0.0f : __fdiv_rn(1.0f, white - black);
}

extern "C" __global__ void __launch_bounds__(32 * SUMI_DEPTH_RANKS)
    sumi_depth_rank(const __grid_constant__ sumi_depth_kernel_args args)
{
    sumi_depth_state* state = (sumi_depth_state*)args.state;
    const int k = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (args.digit == 0 && threadIdx.x == 0) set_ranks(args, state);
    __syncthreads();
    if (state->is_empty) { // nothing but sky: black, because every distance lies beyond 0
        if (threadIdx.x == 0) set_range(state, 0.0f, 0.0f);
        return;
    }
    // Each lane adds up its part of the counts; the lane in whose part the rank lies looks for the bin.
    const int bins = 1 << bits_of(args.digit), part = bins / 32;
    const uint32_t *counts = state->counts[args.digit][state->owners[k]] + lane * part, rank = state->ranks[k];
    uint32_t own = 0;
    for (int i = 0; i < part; i++) own += counts[i];
    uint32_t before = own;
#pragma unroll
    for (int step = 1; step < 32; step <<= 1) {
        const uint32_t other = __shfl_up_sync(~0u, before, step);
        if (lane >= step) before += other;
    }
    before -= own;
    if (rank >= before && rank - before < own) {
        uint32_t left = rank - before;
        int found = 0;
        while (left >= counts[found]) left -= counts[found++];
        state->ranks[k] = left;
        state->prefixes[k] = state->prefixes[k] << bits_of(args.digit) | (uint32_t)(lane * part + found);
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 0; i < SUMI_DEPTH_RANKS; i++) {
        uint32_t owner = 0;
        while (state->prefixes[owner] != state->prefixes[i]) owner++;
        state->owners[i] = owner;
    }
    if (args.digit + 1 < SUMI_DEPTH_DIGITS) return;
    float found[2];
    for (int i = 0; i < 2; i++) {
        const double first = __uint_as_float(state->prefixes[2 * i]),
                     second = __uint_as_float(state->prefixes[2 * i + 1]);
        found[i] = (float)__dadd_rn(first, __dmul_rn(state->shares[i], second - first));
    }
    set_range(state, found[0], found[1]);
}

// ---- Greys ----------------------------------------------------------------------------------------------------------

// A triangle filter around the middle of an output, as src/pictures/depth.c has it. Positions are in double, because a
// float has 7 digits for up to 32768 pixels.
struct window {
    int first, count;
    float offset, support; // of input `first` from the middle
    SUMI_DEVICE window(int i, int from, int to)
    {
        const double scale = (double)from / to, middle = (i + 0.5) * scale, reach = scale > 1.0 ? scale : 1.0;
        const int begin = (int)(middle - reach + 0.5), end = (int)(middle + reach + 0.5);
        first = begin > 0 ? begin : 0;
        count = (end < from ? end : from) - first;
        offset = (float)(first + 0.5 - middle);
        support = (float)reach;
    }
    SUMI_DEVICE float weight(int j) const { return fmaxf(1.0f - fabsf(offset + (float)j) / support, 0.0f); }
};

extern "C" __global__ void __launch_bounds__(SUMI_DEPTH_THREADS)
    sumi_depth_picture(const __grid_constant__ sumi_depth_kernel_args args)
{
    const sumi_depth_state* state = (const sumi_depth_state*)args.state;
    const int64_t i = (int64_t)blockIdx.x * SUMI_DEPTH_THREADS + threadIdx.x;
    if (i >= (int64_t)args.width * args.height) return;
    const float white = args.has_range ? args.white : state->white, black = args.has_range ? args.black : state->black,
                scale = args.has_range ? args.scale : state->scale;
    const bool is_flat = !args.has_range && state->is_flat;
    const int y = (int)(i / args.width), x = (int)(i - (int64_t)y * args.width);
    const window down(y, args.from_height, args.height), across(x, args.from_width, args.width);
    float sum = 0.0f, weights = 0.0f;
    for (int v = 0; v < down.count; v++) {
        const float row_weight = down.weight(v);
        if (row_weight == 0.0f) continue;
        const int from = down.first + v;
        const float* row =
            (const float*)args.depth + (int64_t)(args.bottom_up ? args.from_height - 1 - from : from) * args.from_width;
        for (int u = 0; u < across.count; u++) {
            const float weight = row_weight * across.weight(u);
            if (weight == 0.0f) continue;
            const float t = value_of(args, row[across.first + u]);
            const bool is_white = args.inverse ? t >= white && t > args.sky : t <= white;
            const float grey = is_flat ? (is_white ? 1.0f : 0.0f) : __fmul_rn(t - black, scale);
            sum += weight * (grey > 0.0f ? grey < 1.0f ? grey : 1.0f : 0.0f);
            weights += weight;
        }
    }
    const uint8_t byte = (uint8_t)__fadd_rn(__fmul_rn(255.0f, __fdiv_rn(sum, weights)), 0.5f);
    uint8_t* to = (uint8_t*)args.picture + 3 * i;
    to[0] = to[1] = to[2] = byte;
}
