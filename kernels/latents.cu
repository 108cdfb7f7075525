// Ops on latents (one row per channel plane, NCHW, always float): patches, noise, guidance, solver, preview, and both
// ends of the VAE. A latent is a few MB that stay in L2, and the kernels are short. So speed matters less than bits
// that equal the reference: products and sums are rounded one by one (__fmul_rn, __fadd_rn: the compiler may not
// contract them), like in PyTorch's elementwise kernels and the CPU backend.
//   every kernel: block 256 (SUMI_LATENTS_THREADS), static shared memory; arguments in latents.h. Any grid, unless the
//   kernel says otherwise.
#include "common.cuh"
#include "latents.h"

SUMI_DEVICE int64_t first_index() { return (int64_t)blockIdx.x * SUMI_LATENTS_THREADS + threadIdx.x; }
SUMI_DEVICE int64_t index_stride() { return (int64_t)gridDim.x * SUMI_LATENTS_THREADS; }
// a x + b y
SUMI_DEVICE float blend(float a, float x, float b, float y) { return __fadd_rn(__fmul_rn(a, x), __fmul_rn(b, y)); }

// ---- patchify, unpatchify -------------------------------------------------------------------------------------------
// Token (h, w), feature (2 ph + pw) * channels + c (by_channel: c * 4 + 2 ph + pw)  <->  latent[c][2 h + ph][2 w + pw]
//
//   pixels of a token          feature, / channels      by_channel, - 4 c
//   (ph, pw)   00  01          0   1                    0   1
//              10  11          2   3                    2   3
//
// A thread copies the four values of one token and channel. In patchify neighbouring threads have neighbouring
// channels, so they write neighbouring features. In unpatchify they have neighbouring tokens, so they write
// neighbouring pixels.
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_patchify(const __grid_constant__ sumi_patch_args a)
{
    const int columns = a.width / 2, tokens = a.height / 2 * columns, s = blockIdx.y;
    const int step = a.by_channel ? 1 : a.channels, channel_step = a.by_channel ? 4 : 1;
    const int64_t plane = (int64_t)a.height * a.width;
    const float* latent = (const float*)a.latents + a.latent[s] * plane * a.channels;
    for (int64_t i = first_index(); i < (int64_t)tokens * a.channels; i += index_stride()) {
        const int c = (int)(i % a.channels), t = (int)(i / a.channels);
        const float* pixel = latent + c * plane + (int64_t)(t / columns * 2) * a.width + t % columns * 2;
        // two aligned floats at a time: width and plane are even
        const float2 upper = *(const float2*)pixel, lower = *(const float2*)(pixel + a.width);
        const float v[4] = {upper.x, upper.y, lower.x, lower.y};
        const int64_t row = (int64_t)(a.row_begin[s] + t) * 4 * a.channels + c * channel_step;
#pragma unroll
        for (int f = 0; f < 4; f++) {
            if (a.rows_are_float) ((float*)a.rows)[row + f * step] = v[f];
            else ((bf16*)a.rows)[row + f * step] = __float2bfloat16(v[f]);
        }
    }
}

// latents = sign * rows. Sequence i writes latent latent[i].
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_unpatchify(const __grid_constant__ sumi_patch_args a)
{
    const int columns = a.width / 2, tokens = a.height / 2 * columns, s = blockIdx.y;
    const int step = a.by_channel ? 1 : a.channels, channel_step = a.by_channel ? 4 : 1;
    const int64_t plane = (int64_t)a.height * a.width;
    float* latent = (float*)a.latents + a.latent[s] * plane * a.channels;
    for (int64_t i = first_index(); i < (int64_t)tokens * a.channels; i += index_stride()) {
        const int c = (int)(i / tokens), t = (int)(i % tokens);
        const int64_t row = (int64_t)(a.row_begin[s] + t) * 4 * a.channels + c * channel_step;
        float v[4];
#pragma unroll
        for (int f = 0; f < 4; f++) {
            const int64_t at = row + f * step;
            v[f] = __fmul_rn(a.sign, a.rows_are_float ? ((const float*)a.rows)[at]
                                                      : __bfloat162float(((const bf16*)a.rows)[at]));
        }
        float* pixel = latent + c * plane + (int64_t)(t / columns * 2) * a.width + t % columns * 2;
        *(float2*)pixel = make_float2(v[0], v[1]);
        *(float2*)(pixel + a.width) = make_float2(v[2], v[3]);
    }
}

// ---- add_noise, solve -----------------------------------------------------------------------------------------------
// x = sigma * noise + (1 - sigma) * clean, for floats [begin, end).
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_add_noise(const __grid_constant__ sumi_add_noise_args a)
{
    const float sigma = step_at(a.sigma, *(const int32_t*)a.counter, 0);
    for (int64_t i = a.begin + first_index(); i < a.end; i += index_stride()) {
        ((float*)a.x)[i] = blend(sigma, ((const float*)a.noise)[i], __fsub_rn(1.0f, sigma), ((const float*)a.clean)[i]);
    }
}

// The sum of the terms whose factor is not 0. The others are not read into the sum: a state that the solver has never
// written may hold NaN.
SUMI_DEVICE float combine(const float (&factors)[4], const float (&values)[4])
{
    float sum = 0.0f;
    bool is_first = true;
#pragma unroll
    for (int t = 0; t < 4; t++) {
        if (factors[t] != 0.0f) {
            const float term = factors[t] == 1.0f ? values[t] : __fmul_rn(factors[t], values[t]);
            sum = is_first ? term : __fadd_rn(sum, term);
            is_first = false;
        }
    }
    return sum;
}

// One row of the solver table (src/sampling/solver.h) applied to x, y and h. The row's columns are cx cy cv ch hx hv hh
// keeps sigma blend_sigma guidance step. Inpainting, where blend_sigma >= 0: outside the mask, x becomes the clean
// latent with noise of that sigma. Every thread reads its values before it writes them, so the buffers may be the same.
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS) sumi_solve(const __grid_constant__ sumi_solve_args a)
{
    const int32_t counter = *(const int32_t*)a.counter;
    const float next[4] = {step_at(a.row, counter, 0), step_at(a.row, counter, 1), step_at(a.row, counter, 2),
                           step_at(a.row, counter, 3)};
    const float history[4] = {step_at(a.row, counter, 4), 0.0f, step_at(a.row, counter, 5), step_at(a.row, counter, 6)};
    const bool keeps = step_at(a.row, counter, 7) != 0.0f;
    const float sigma = step_at(a.row, counter, 9);
    const bool blends = a.mask != 0 && sigma >= 0.0f;
    for (int64_t plane = a.begin + (int64_t)blockIdx.y; plane < a.end; plane += gridDim.y) {
        for (int64_t i = first_index(); i < a.plane; i += index_stride()) {
            const int64_t at = plane * a.plane + i;
            const float values[4] = {((const float*)a.x)[at], a.y != 0 ? ((const float*)a.y)[at] : 0.0f,
                                     ((const float*)a.v)[at], a.h != 0 ? ((const float*)a.h)[at] : 0.0f};
            float x = combine(next, values);
            if (blends) {
                const float kept =
                    blend(sigma, ((const float*)a.noise)[at], __fsub_rn(1.0f, sigma), ((const float*)a.clean)[at]);
                const float mask = ((const float*)a.mask)[plane / a.channels * a.plane + i];
                x = blend(__fsub_rn(1.0f, mask), kept, mask, x);
            }
            if (a.h != 0) ((float*)a.h)[at] = combine(history, values);
            if (a.y != 0 && !keeps) ((float*)a.y)[at] = x;
            ((float*)a.out)[at] = x;
        }
    }
}

// ---- guide ----------------------------------------------------------------------------------------------------------
// positive + s (positive - negative), element i of two sequences.
SUMI_DEVICE float guided(const sumi_guide_args& a, int64_t positive, int64_t negative, float s, int64_t i)
{
    const float p = ((const float*)a.predictions)[positive + i];
    return __fadd_rn(p, __fmul_rn(s, __fsub_rn(p, ((const float*)a.predictions)[negative + i])));
}
// The sum over the block, always added in the same order, returned to every thread. All threads call it.
SUMI_DEVICE double block_sum_double(double v, double* shared)
{
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) v += __shfl_xor_sync(~0u, v, mask);
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
    __syncthreads();
    double sum = 0.0;
    for (int w = 0; w < SUMI_LATENTS_THREADS / 32; w++) sum += shared[w];
    __syncthreads();
    return sum;
}

// Squared lengths of the positive and of the guided prediction, as SUMI_GUIDE_BLOCKS partial sums per item.
//   grid (SUMI_GUIDE_BLOCKS, items)
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_guide_sums(const __grid_constant__ sumi_guide_args a)
{
    __shared__ double shared[SUMI_LATENTS_THREADS / 32];
    const float s = a.scale.table != 0 ? step_at(a.scale, *(const int32_t*)a.counter, 0) : 0.0f;
    const int k = blockIdx.y;
    if (a.negative[k] < 0 || s == 0.0f) return; // the same for the whole block; sumi_guide does not read the sums then
    const int64_t positive = a.positive[k] * a.count, negative = a.negative[k] * a.count;
    double before = 0.0, after = 0.0;
    for (int64_t i = first_index(); i < a.count; i += (int64_t)SUMI_GUIDE_BLOCKS * SUMI_LATENTS_THREADS) {
        const double p = ((const float*)a.predictions)[positive + i], g = guided(a, positive, negative, s, i);
        before += p * p;
        after += g * g;
    }
    before = block_sum_double(before, shared);
    after = block_sum_double(after, shared);
    if (threadIdx.x == 0) {
        double* to = (double*)a.sums + ((int64_t)(a.first_item + k) * SUMI_GUIDE_BLOCKS + blockIdx.x) * 2;
        to[0] = before;
        to[1] = after;
    }
}

// v = positive + s (positive - negative). limit > 0: v is shortened to at most `limit` times the length of positive. No
// negative sequence, or s = 0: v = positive.   grid (any, items)
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS) sumi_guide(const __grid_constant__ sumi_guide_args a)
{
    __shared__ float shrink;
    const float s = a.scale.table != 0 ? step_at(a.scale, *(const int32_t*)a.counter, 0) : 0.0f;
    const int k = blockIdx.y;
    const bool guides = a.negative[k] >= 0 && s != 0.0f;
    const int64_t positive = a.positive[k] * a.count, negative = a.negative[k] * a.count;
    float* v = (float*)a.v + (a.first_item + k) * a.count;
    if (threadIdx.x == 0) {
        shrink = 1.0f;
        if (guides && a.limit > 0.0f) {
            const double* sums = (const double*)a.sums + (int64_t)(a.first_item + k) * SUMI_GUIDE_BLOCKS * 2;
            double before = 0.0, after = 0.0;
            for (int b = 0; b < SUMI_GUIDE_BLOCKS; b++) before += sums[2 * b], after += sums[2 * b + 1];
            before = sqrt(before) * (double)a.limit;
            after = sqrt(after);
            if (after > before) shrink = (float)(before / after);
        }
    }
    __syncthreads();
    for (int64_t i = first_index(); i < a.count; i += index_stride())
        v[i] = guides ? __fmul_rn(guided(a, positive, negative, s, i), shrink)
                      : ((const float*)a.predictions)[positive + i];
}

// v = u |positive| / |u| for each token, with u = positive + s (positive - negative). A token is patch_size x
// patch_size pixels of every plane.   grid (any, items) A thread computes one token and reads it twice, in the order
// channels, rows, columns; neighbouring threads read neighbouring pixels. The sums are in double and in the order of
// the CPU backend. |u| = 0: v = 0.
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_guide_rescale(const __grid_constant__ sumi_guide_args a)
{
    const float s = a.scale.table != 0 ? step_at(a.scale, *(const int32_t*)a.counter, 0) : 0.0f;
    const int k = blockIdx.y, side = a.patch_size, columns = a.width / side;
    const bool guides = a.negative[k] >= 0 && s != 0.0f;
    const int64_t positive = a.positive[k] * a.count, negative = a.negative[k] * a.count;
    const float* p = (const float*)a.predictions + positive;
    float* v = (float*)a.v + (a.first_item + k) * a.count;
    for (int64_t t = first_index(); t < a.plane / (side * side); t += index_stride()) {
        const int64_t corner = t / columns * side * a.width + t % columns * side;
        const auto each_value = [&](const auto& visit) {
            for (int64_t plane = corner; plane < corner + a.count; plane += a.plane)
                for (int y = 0; y < side; y++)
                    for (int x = 0; x < side; x++) visit(plane + y * a.width + x);
        };
        float factor = 1.0f;
        if (guides) {
            double before = 0.0, after = 0.0;
            each_value([&](int64_t i) {
                const double was = p[i], is = guided(a, positive, negative, s, i);
                before = __dadd_rn(before, __dmul_rn(was, was));
                after = __dadd_rn(after, __dmul_rn(is, is));
            });
            factor = after > 0.0 ? (float)(sqrt(before) / sqrt(after)) : 0.0f;
        }
        each_value([&](int64_t i) { v[i] = guides ? __fmul_rn(guided(a, positive, negative, s, i), factor) : p[i]; });
    }
}

// ---- preview --------------------------------------------------------------------------------------------------------
// rgb = bias + (x - sigma v) factors
//   x, v [items * channels][plane]   rgb [items * 3][plane]   factors [channels][3]   grid (any, items)
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_preview(const __grid_constant__ sumi_preview_args a)
{
    const float sigma = step_at(a.sigma, *(const int32_t*)a.counter, 0);
    const int64_t item = a.first_item + blockIdx.y, first = item * a.channels * a.plane;
    for (int64_t i = first_index(); i < a.plane; i += index_stride()) {
        float red = a.bias[0], green = a.bias[1], blue = a.bias[2];
        for (int c = 0; c < a.channels; c++) {
            const int64_t at = first + (int64_t)c * a.plane + i;
            const float clean = __fsub_rn(((const float*)a.x)[at], __fmul_rn(sigma, ((const float*)a.v)[at]));
            red = __fadd_rn(red, __fmul_rn(clean, a.factors[3 * c]));
            green = __fadd_rn(green, __fmul_rn(clean, a.factors[3 * c + 1]));
            blue = __fadd_rn(blue, __fmul_rn(clean, a.factors[3 * c + 2]));
        }
        float* rgb = (float*)a.rgb + item * 3 * a.plane + i;
        rgb[0] = red;
        rgb[a.plane] = green;
        rgb[2 * (int64_t)a.plane] = blue;
    }
}

// ---- posterior, latent_in -------------------------------------------------------------------------------------------
// latents[c][i] = (mean + exp(logvar / 2) * eps - shift[c]) * scale[c]
//   moments [plane][2 channels]: mean, logvar, bf16 or float   eps, latents [channels][plane] float; eps optional
// Neighbouring threads have neighbouring pixels, so they write neighbouring floats. A pixel's moments are a few cache
// lines, which all its channels share.
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_posterior(const __grid_constant__ sumi_posterior_args a)
{
    const auto moment = [&](int64_t at) {
        return a.moments_are_float ? ((const float*)a.moments)[at] : __bfloat162float(((const bf16*)a.moments)[at]);
    };
    for (int64_t i = first_index(); i < (int64_t)a.plane * a.channels; i += index_stride()) {
        const int64_t c = i / a.plane, pixel = i % a.plane * 2 * a.channels;
        float z = moment(pixel + c);
        if (a.eps != 0) {
            const float log_variance = fminf(fmaxf(moment(pixel + a.channels + c), -30.0f), 20.0f);
            z = __fadd_rn(z, __fmul_rn(expf(0.5f * log_variance), ((const float*)a.eps)[i]));
        }
        ((float*)a.latents)[i] = __fmul_rn(__fsub_rn(z, a.statistics.shift[c]), a.statistics.scale[c]);
    }
}

// picture[r][c] = latents[c][y][x] / scale[c] + shift[c]   for rows r = [begin, end) of a tile, r = (y, x) in the tile
//   latents [channels][height * width] float, of item `counter`   picture [pixels][channels] bf16 or float
// A thread computes eight channels of one pixel. Neighbouring threads read neighbouring pixels of a plane, and each
// writes 16 bytes.
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_latent_in(const __grid_constant__ sumi_latent_in_args a)
{
    const int64_t plane = (int64_t)a.height * a.width, pixels = a.end - a.begin;
    const float* latents = (const float*)a.latents + (a.per_item ? *(const int32_t*)a.counter : 0) * plane * a.channels;
    const int eights = (a.channels + 7) / 8;
    for (int64_t i = first_index(); i < pixels * eights; i += index_stride()) {
        const int64_t r = a.begin + i % pixels;
        const int c0 = (int)(i / pixels) * 8;
        const float* from = latents + c0 * plane + (a.y + r / a.tile_width) * a.width + a.x + r % a.tile_width;
        float v[8];
#pragma unroll
        for (int c = 0; c < 8; c++) {
            v[c] = 0.0f;
            if (c0 + c < a.channels)
                v[c] = __fadd_rn(__fdiv_rn(from[c * plane], a.statistics.scale[c0 + c]), a.statistics.shift[c0 + c]);
        }
        if (!a.picture_is_float && a.channels % 8 == 0) {
            store8((bf16*)a.picture + r * a.channels + c0, v);
        } else {
            for (int c = 0; c < 8 && c0 + c < a.channels; c++) {
                if (a.picture_is_float) ((float*)a.picture)[r * a.channels + c0 + c] = v[c];
                else ((bf16*)a.picture)[r * a.channels + c0 + c] = __float2bfloat16(v[c]);
            }
        }
    }
}
