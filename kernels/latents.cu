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
// Patches of one pixel: token (h, w), feature c  <->  latent[c][h][w]
//
//   pixels of a token          feature, / channels      by_channel, - 4 c
//   (ph, pw)   00  01          0   1                    0   1
//              10  11          2   3                    2   3
//
// A thread copies the values of one token and channel: four, or one. In patchify neighbouring threads have neighbouring
// channels, so they write neighbouring features. In unpatchify they have neighbouring tokens, so they write
// neighbouring pixels.
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_patchify(const __grid_constant__ sumi_patch_args args)
{
    const int columns = args.width / args.patch, tokens = args.height / args.patch * columns, sequence = blockIdx.y;
    // features from pixel to pixel and from channel to channel of a token
    const int pixel_stride = args.by_channel ? 1 : args.channels, channel_stride = args.by_channel ? 4 : 1;
    const int64_t plane = (int64_t)args.height * args.width;
    const float* latent = (const float*)args.latents + args.latent[sequence] * plane * args.channels;
    if (args.patch == 1) {
        for (int64_t i = first_index(); i < (int64_t)tokens * args.channels; i += index_stride()) {
            const float v = latent[i % args.channels * plane + i / args.channels];
            const int64_t index = (int64_t)args.row_begin[sequence] * args.channels + i;
            if (args.rows_are_float) ((float*)args.rows)[index] = v;
            else ((bf16*)args.rows)[index] = __float2bfloat16(v);
        }
        return;
    }
    for (int64_t i = first_index(); i < (int64_t)tokens * args.channels; i += index_stride()) {
        const int c = (int)(i % args.channels), token = (int)(i / args.channels);
        const float* pixel = latent + c * plane + (int64_t)(token / columns * 2) * args.width + token % columns * 2;
        // two aligned floats at a time: width and plane are even
        const float2 upper = *(const float2*)pixel, lower = *(const float2*)(pixel + args.width);
        const float v[4] = {upper.x, upper.y, lower.x, lower.y};
        const int64_t first_feature =
            (int64_t)(args.row_begin[sequence] + token) * 4 * args.channels + c * channel_stride;
#pragma unroll
        for (int f = 0; f < 4; f++) {
            if (args.rows_are_float) ((float*)args.rows)[first_feature + f * pixel_stride] = v[f];
            else ((bf16*)args.rows)[first_feature + f * pixel_stride] = __float2bfloat16(v[f]);
        }
    }
}

// latents = sign * rows. Sequence i writes latent latent[i].
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_unpatchify(const __grid_constant__ sumi_patch_args args)
{
    const int columns = args.width / args.patch, tokens = args.height / args.patch * columns, sequence = blockIdx.y;
    // features from pixel to pixel and from channel to channel of a token
    const int pixel_stride = args.by_channel ? 1 : args.channels, channel_stride = args.by_channel ? 4 : 1;
    const int64_t plane = (int64_t)args.height * args.width;
    float* latent = (float*)args.latents + args.latent[sequence] * plane * args.channels;
    if (args.patch == 1) {
        for (int64_t i = first_index(); i < (int64_t)tokens * args.channels; i += index_stride()) {
            const int64_t index = (args.row_begin[sequence] + i % tokens) * args.channels + i / tokens;
            latent[i] = __fmul_rn(args.sign, args.rows_are_float ? ((const float*)args.rows)[index]
                                                                 : __bfloat162float(((const bf16*)args.rows)[index]));
        }
        return;
    }
    for (int64_t i = first_index(); i < (int64_t)tokens * args.channels; i += index_stride()) {
        const int c = (int)(i / tokens), token = (int)(i % tokens);
        const int64_t first_feature =
            (int64_t)(args.row_begin[sequence] + token) * 4 * args.channels + c * channel_stride;
        float v[4];
#pragma unroll
        for (int f = 0; f < 4; f++) {
            const int64_t index = first_feature + f * pixel_stride;
            v[f] = __fmul_rn(args.sign, args.rows_are_float ? ((const float*)args.rows)[index]
                                                            : __bfloat162float(((const bf16*)args.rows)[index]));
        }
        float* pixel = latent + c * plane + (int64_t)(token / columns * 2) * args.width + token % columns * 2;
        *(float2*)pixel = make_float2(v[0], v[1]);
        *(float2*)(pixel + args.width) = make_float2(v[2], v[3]);
    }
}

// ---- add_noise, solve -----------------------------------------------------------------------------------------------
// x = sigma * noise + (1 - sigma) * clean, for floats [begin, end).
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_add_noise(const __grid_constant__ sumi_add_noise_args args)
{
    const float sigma = step_element(args.sigma, *(const int32_t*)args.counter, 0);
    for (int64_t i = args.begin + first_index(); i < args.end; i += index_stride()) {
        ((float*)args.x)[i] =
            blend(sigma, ((const float*)args.noise)[i], __fsub_rn(1.0f, sigma), ((const float*)args.clean)[i]);
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

// One row of the solver table (src/sampling/solver.h) applied to x, y and h. The row's columns:
//
//   0 .. 3     cx cy cv ch    the new x is cx x + cy y + cv v + ch h
//   4 .. 6     hx hv hh       the new h is hx x + hv v + hh h
//   7          keeps          not 0: y stays; otherwise it becomes the new x
//   8 .. 11    sigma, blend_sigma, guidance, step; of these, only blend_sigma is read here
//
// Inpainting, where blend_sigma >= 0: outside the mask, x becomes the clean latent with noise of that sigma. Every
// thread reads its values before it writes them, so the buffers may be the same.
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_solve(const __grid_constant__ sumi_solve_args args)
{
    const int32_t counter = *(const int32_t*)args.counter;
    const float x_factors[4] = {step_element(args.row, counter, 0), step_element(args.row, counter, 1),
                                step_element(args.row, counter, 2), step_element(args.row, counter, 3)};
    const float h_factors[4] = {step_element(args.row, counter, 4), 0.0f, step_element(args.row, counter, 5),
                                step_element(args.row, counter, 6)};
    const bool keeps_y = step_element(args.row, counter, 7) != 0.0f;
    const float blend_sigma = step_element(args.row, counter, 9);
    const bool blends = args.mask != 0 && blend_sigma >= 0.0f;
    for (int64_t plane = args.begin + (int64_t)blockIdx.y; plane < args.end; plane += gridDim.y) {
        for (int64_t i = first_index(); i < args.plane; i += index_stride()) {
            const int64_t index = plane * args.plane + i;
            const float values[4] = {((const float*)args.x)[index], args.y != 0 ? ((const float*)args.y)[index] : 0.0f,
                                     ((const float*)args.v)[index], args.h != 0 ? ((const float*)args.h)[index] : 0.0f};
            float x = combine(x_factors, values);
            if (blends) {
                const float noisy_clean = blend(blend_sigma, ((const float*)args.noise)[index],
                                                __fsub_rn(1.0f, blend_sigma), ((const float*)args.clean)[index]);
                const float mask = ((const float*)args.mask)[plane / args.channels * args.plane + i];
                x = blend(__fsub_rn(1.0f, mask), noisy_clean, mask, x);
            }
            if (args.h != 0) ((float*)args.h)[index] = combine(h_factors, values);
            if (args.y != 0 && !keeps_y) ((float*)args.y)[index] = x;
            ((float*)args.out)[index] = x;
        }
    }
}

// ---- guide ----------------------------------------------------------------------------------------------------------
// positive + scale (positive - negative) for element i of the two sequences that begin at these indices.
SUMI_DEVICE float guided_prediction(const sumi_guide_args& args, int64_t positive, int64_t negative, float scale,
                                    int64_t i)
{
    const float positive_value = ((const float*)args.predictions)[positive + i];
    return __fadd_rn(positive_value,
                     __fmul_rn(scale, __fsub_rn(positive_value, ((const float*)args.predictions)[negative + i])));
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
    sumi_guide_sums(const __grid_constant__ sumi_guide_args args)
{
    __shared__ double shared[SUMI_LATENTS_THREADS / 32];
    const float scale = args.scale.table != 0 ? step_element(args.scale, *(const int32_t*)args.counter, 0) : 0.0f;
    const int item = blockIdx.y; // of this launch
    // The same for the whole block. sumi_guide does not read the sums then.
    if (args.negative[item] < 0 || scale == 0.0f) return;
    const int64_t positive = args.positive[item] * args.count, negative = args.negative[item] * args.count;
    double positive_squares = 0.0, guided_squares = 0.0;
    for (int64_t i = first_index(); i < args.count; i += (int64_t)SUMI_GUIDE_BLOCKS * SUMI_LATENTS_THREADS) {
        const double positive_value = ((const float*)args.predictions)[positive + i],
                     guided_value = guided_prediction(args, positive, negative, scale, i);
        positive_squares += positive_value * positive_value;
        guided_squares += guided_value * guided_value;
    }
    positive_squares = block_sum_double(positive_squares, shared);
    guided_squares = block_sum_double(guided_squares, shared);
    if (threadIdx.x == 0) {
        double* to = (double*)args.sums + ((int64_t)(args.first_item + item) * SUMI_GUIDE_BLOCKS + blockIdx.x) * 2;
        to[0] = positive_squares;
        to[1] = guided_squares;
    }
}

// v = positive + scale (positive - negative). limit > 0: v is shortened to at most `limit` times the length of
// positive. No negative sequence, or scale = 0: v = positive.   grid (any, items)
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_guide(const __grid_constant__ sumi_guide_args args)
{
    __shared__ float shortening; // factor of the guided prediction, at most 1
    const float scale = args.scale.table != 0 ? step_element(args.scale, *(const int32_t*)args.counter, 0) : 0.0f;
    const int item = blockIdx.y; // of this launch
    const bool guides = args.negative[item] >= 0 && scale != 0.0f;
    const int64_t positive = args.positive[item] * args.count, negative = args.negative[item] * args.count;
    float* v = (float*)args.v + (args.first_item + item) * args.count;
    if (threadIdx.x == 0) {
        shortening = 1.0f;
        if (guides && args.limit > 0.0f) {
            const double* sums = (const double*)args.sums + (int64_t)(args.first_item + item) * SUMI_GUIDE_BLOCKS * 2;
            double positive_squares = 0.0, guided_squares = 0.0;
            for (int b = 0; b < SUMI_GUIDE_BLOCKS; b++)
                positive_squares += sums[2 * b], guided_squares += sums[2 * b + 1];
            const double max_length = sqrt(positive_squares) * (double)args.limit;
            const double length = sqrt(guided_squares);
            if (length > max_length) shortening = (float)(max_length / length);
        }
    }
    __syncthreads();
    for (int64_t i = first_index(); i < args.count; i += index_stride())
        v[i] = guides ? __fmul_rn(guided_prediction(args, positive, negative, scale, i), shortening)
                      : ((const float*)args.predictions)[positive + i];
}

// v = u |positive| / |u| for each token, with u = positive + scale (positive - negative). |u| = 0: v = 0. A token is
// patch_size x patch_size pixels of every plane.   grid (any, items)
// A thread computes one token and reads it twice, in the order channels, rows, columns; neighbouring threads read
// neighbouring pixels. The sums are in double and in the order of the CPU backend.
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_guide_rescale(const __grid_constant__ sumi_guide_args args)
{
    const float scale = args.scale.table != 0 ? step_element(args.scale, *(const int32_t*)args.counter, 0) : 0.0f;
    const int item = blockIdx.y; // of this launch
    const int patch_size = args.patch_size, columns = args.width / patch_size;
    const bool guides = args.negative[item] >= 0 && scale != 0.0f;
    const int64_t positive = args.positive[item] * args.count, negative = args.negative[item] * args.count;
    const float* positive_values = (const float*)args.predictions + positive;
    float* v = (float*)args.v + (args.first_item + item) * args.count;
    for (int64_t token = first_index(); token < args.plane / (patch_size * patch_size); token += index_stride()) {
        const int64_t corner = token / columns * patch_size * args.width + token % columns * patch_size;
        const auto each_value = [&](const auto& visit) {
            for (int64_t plane = corner; plane < corner + args.count; plane += args.plane)
                for (int y = 0; y < patch_size; y++)
                    for (int x = 0; x < patch_size; x++) visit(plane + y * args.width + x);
        };
        float factor = 1.0f;
        if (guides) {
            double positive_squares = 0.0, guided_squares = 0.0;
            each_value([&](int64_t i) {
                const double positive_value = positive_values[i],
                             guided_value = guided_prediction(args, positive, negative, scale, i);
                positive_squares = __dadd_rn(positive_squares, __dmul_rn(positive_value, positive_value));
                guided_squares = __dadd_rn(guided_squares, __dmul_rn(guided_value, guided_value));
            });
            factor = guided_squares > 0.0 ? (float)(sqrt(positive_squares) / sqrt(guided_squares)) : 0.0f;
        }
        each_value([&](int64_t i) {
            v[i] =
                guides ? __fmul_rn(guided_prediction(args, positive, negative, scale, i), factor) : positive_values[i];
        });
    }
}

// ---- packed latents -------------------------------------------------------------------------------------------------
// Where a latent has the values of a pixel of its picture; see PREVIEW in src/plan/ops.h.
struct packed_place {
    int64_t at;   // in the plane of a channel
    int channel;  // of the picture's channel 0
    int channels; // from one channel of the picture to the next
};
SUMI_DEVICE packed_place place_of(const sumi_packed& packed, int64_t pixel)
{
    if (packed.side == 1) return {pixel, 0, 1};
    const int y = (int)(pixel / packed.width), x = (int)(pixel % packed.width);
    return {(int64_t)(y / 2) * (packed.width / 2) + x / 2, y % 2 * 2 + x % 2, 4};
}

// ---- preview --------------------------------------------------------------------------------------------------------
// rgb = bias + (x - sigma v) factors
//   rgb [items * 3][plane]   factors [channels][3]   x, v: items * channels * plane values, packed   grid (any, items)
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_preview(const __grid_constant__ sumi_preview_args args)
{
    const float sigma = step_element(args.sigma, *(const int32_t*)args.counter, 0);
    const int64_t item = args.first_item + blockIdx.y, item_index = item * args.channels * args.plane;
    for (int64_t i = first_index(); i < args.plane; i += index_stride()) {
        float red = args.bias[0], green = args.bias[1], blue = args.bias[2];
        const packed_place place = place_of(args.packed, i);
        // A plane of the latents is plane / place.channels, so the planes of a channel of the picture are one plane.
        const int64_t first = item_index + place.channel * (int64_t)(args.plane / place.channels) + place.at;
        for (int c = 0; c < args.channels; c++) {
            const int64_t index = first + (int64_t)c * args.plane;
            const float clean =
                __fsub_rn(((const float*)args.x)[index], __fmul_rn(sigma, ((const float*)args.v)[index]));
            red = __fadd_rn(red, __fmul_rn(clean, args.factors[3 * c]));
            green = __fadd_rn(green, __fmul_rn(clean, args.factors[3 * c + 1]));
            blue = __fadd_rn(blue, __fmul_rn(clean, args.factors[3 * c + 2]));
        }
        float* rgb = (float*)args.rgb + item * 3 * args.plane + i;
        rgb[0] = red;
        rgb[args.plane] = green;
        rgb[2 * (int64_t)args.plane] = blue;
    }
}

// ---- posterior, latent_in -------------------------------------------------------------------------------------------
// latents[k][i] = (mean + exp(logvar / 2) * eps - shift[k]) * scale[k]
//   moments [pixels][2 channels]: mean, logvar, bf16 or float   eps, latents [channels * side^2][plane] float; eps
//   optional
// Neighbouring threads have neighbouring places in a plane, so they write neighbouring floats. A pixel's moments are a
// few cache lines, which all its channels share.
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_posterior(const __grid_constant__ sumi_posterior_args args)
{
    const auto moment = [&](int64_t index) {
        return args.moments_are_float ? ((const float*)args.moments)[index]
                                      : __bfloat162float(((const bf16*)args.moments)[index]);
    };
    const int side = args.packed.side, area = side * side;
    for (int64_t i = first_index(); i < (int64_t)args.plane * args.channels * area; i += index_stride()) {
        const int64_t k = i / args.plane, c = k / area;
        int64_t pixel = i % args.plane;
        if (side == 2) {
            const int columns = args.packed.width / 2, row = (int)(pixel / columns), column = (int)(pixel % columns);
            pixel = (int64_t)(row * 2 + (int)(k / 2 % 2)) * args.packed.width + column * 2 + (int)(k % 2);
        }
        const int64_t first_moment = pixel * 2 * args.channels;
        float z = moment(first_moment + c);
        if (args.eps != 0) {
            float log_variance = moment(first_moment + args.channels + c); // fmaxf would make -30 of NaN
            log_variance = log_variance < -30.0f ? -30.0f : log_variance > 20.0f ? 20.0f : log_variance;
            z = __fadd_rn(z, __fmul_rn(expf(0.5f * log_variance), ((const float*)args.eps)[i]));
        }
        ((float*)args.latents)[i] = __fmul_rn(__fsub_rn(z, args.statistics.shift[k]), args.statistics.scale[k]);
    }
}

// picture[r][c] = z / scale[k] + shift[k]   for rows r = [begin, end) of a tile, r = (y, x) in the tile
//   latents: channels * height * width floats, packed, of item `counter`; z and k: of channel c at (y, x)
//   picture [pixels][channels] bf16 or float
// A thread computes eight channels of one pixel. Neighbouring threads read neighbouring pixels of a plane, or the same
// ones of two planes, and each writes 16 bytes.
extern "C" __global__ void __launch_bounds__(SUMI_LATENTS_THREADS)
    sumi_latent_in(const __grid_constant__ sumi_latent_in_args args)
{
    const int64_t plane = (int64_t)args.height * args.width, pixels = args.end - args.begin;
    const float* latents =
        (const float*)args.latents + (args.per_item ? *(const int32_t*)args.counter : 0) * plane * args.channels;
    const int chunks = (args.channels + 7) / 8; // of eight channels
    for (int64_t i = first_index(); i < pixels * chunks; i += index_stride()) {
        const int64_t pixel = args.begin + i % pixels;
        const int first_channel = (int)(i / pixels) * 8;
        const packed_place place =
            place_of(args.packed, (args.y + pixel / args.tile_width) * args.width + args.x + pixel % args.tile_width);
        // A plane of the latents is plane / place.channels, so the planes of a channel of the picture are one plane.
        const float* from = latents + first_channel * plane + place.channel * (plane / place.channels) + place.at;
        float v[8];
#pragma unroll
        for (int c = 0; c < 8; c++) {
            v[c] = 0.0f;
            const int k = (first_channel + c) * place.channels + place.channel;
            if (first_channel + c < args.channels)
                v[c] = __fadd_rn(__fdiv_rn(from[c * plane], args.statistics.scale[k]), args.statistics.shift[k]);
        }
        if (!args.picture_is_float && args.channels % 8 == 0) {
            store8((bf16*)args.picture + pixel * args.channels + first_channel, v);
        } else {
            for (int c = 0; c < 8 && first_channel + c < args.channels; c++) {
                if (args.picture_is_float) ((float*)args.picture)[pixel * args.channels + first_channel + c] = v[c];
                else ((bf16*)args.picture)[pixel * args.channels + first_channel + c] = __float2bfloat16(v[c]);
            }
        }
    }
}
