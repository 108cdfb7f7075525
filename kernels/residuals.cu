// Differences and sums of token matrices, and how much a residual has changed, for step caching. Storage is bf16 or
// float, arithmetic float. Bound by bytes: every matrix is read and written once, with 16 bytes per thread where the
// width is a multiple of 8.
//   every kernel: block 256 (SUMI_ROWS_THREADS), static shared memory. Arguments: residuals.h. Any grid.
#include "residuals.h"
#include "rows.cuh"

// y = x + scale * y
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_add_rows(const __grid_constant__ sumi_add_rows_args args)
{
    const int64_t thread = (int64_t)blockIdx.x * SUMI_ROWS_THREADS + threadIdx.x,
                  threads = (int64_t)gridDim.x * SUMI_ROWS_THREADS;
    if (args.is_vector) {
        for (int64_t i = args.begin + 8 * thread; i < args.end; i += 8 * threads) {
            float x[8], y[8];
            load8((const bf16*)args.x.data + i, x);
            load8((const bf16*)args.y.data + i, y);
#pragma unroll
            for (int k = 0; k < 8; k++) y[k] = fmaf(args.scale, y[k], x[k]);
            store8((bf16*)args.y.data + i, y);
        }
    } else {
        for (int64_t i = args.begin + thread; i < args.end; i += threads)
            store_element(args.y.data, args.y.is_float, i,
                          fmaf(args.scale, load_element(args.y.data, args.y.is_float, i),
                               load_element(args.x.data, args.x.is_float, i)));
    }
}

// A block adds up one part at a time, in an order that depends on the size of the part only.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_residual_change(const __grid_constant__ sumi_residual_change_args args)
{
    __shared__ float warp_sums[32];
    for (int part = args.part_begin + (int)blockIdx.x; part < args.part_end; part += (int)gridDim.x) {
        const int64_t begin = part * args.part_size,
                      end = begin + args.part_size < args.count ? begin + args.part_size : args.count;
        float change = 0.0f, size = 0.0f;
        if (args.is_vector) {
            for (int64_t i = begin + 8 * (int)threadIdx.x; i < end; i += 8 * SUMI_ROWS_THREADS) {
                float x[8], before[8], kept[8];
                load8((const bf16*)args.x.data + i, x);
                load8((const bf16*)args.before.data + i, before);
                load8((const bf16*)args.kept.data + i, kept);
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    x[k] = __bfloat162float(__float2bfloat16_rn(x[k] - before[k]));
                    change += fabsf(x[k] - kept[k]);
                    size += fabsf(kept[k]);
                }
                store8((bf16*)args.kept.data + i, x);
            }
        } else {
            for (int64_t i = begin + (int)threadIdx.x; i < end; i += SUMI_ROWS_THREADS) {
                float residual = load_element(args.x.data, args.x.is_float, i)
                               - load_element(args.before.data, args.before.is_float, i);
                if (!args.kept.is_float) residual = __bfloat162float(__float2bfloat16_rn(residual));
                const float kept = load_element(args.kept.data, args.kept.is_float, i);
                change += fabsf(residual - kept);
                size += fabsf(kept);
                store_element(args.kept.data, args.kept.is_float, i, residual);
            }
        }
        change = block_sum(change, warp_sums);
        size = block_sum(size, warp_sums);
        if (threadIdx.x == 0) {
            ((float*)args.change)[2 * part] = change;
            ((float*)args.change)[2 * part + 1] = size;
        }
    }
}

// x += residual + f * change
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_add_residual(const __grid_constant__ sumi_add_residual_args args)
{
    const int64_t thread = (int64_t)blockIdx.x * SUMI_ROWS_THREADS + threadIdx.x,
                  threads = (int64_t)gridDim.x * SUMI_ROWS_THREADS;
    const float older = *(const float*)args.older_sigma, newer = *(const float*)args.newer_sigma,
                present = step_element(args.sigma, *(const int32_t*)args.counter, 0);
    const float factor = older > newer ? fminf((newer - present) / (older - newer), args.most) : 0.0f;
    if (args.is_vector) {
        for (int64_t i = args.begin + 8 * thread; i < args.end; i += 8 * threads) {
            float x[8], residual[8], change[8];
            load8((const bf16*)args.x.data + i, x);
            load8((const bf16*)args.residual.data + i, residual);
            load8((const bf16*)args.change.data + i, change);
#pragma unroll
            for (int k = 0; k < 8; k++) x[k] += fmaf(factor, change[k], residual[k]);
            store8((bf16*)args.x.data + i, x);
        }
    } else {
        for (int64_t i = args.begin + thread; i < args.end; i += threads)
            store_element(args.x.data, args.x.is_float, i,
                          load_element(args.x.data, args.x.is_float, i)
                              + fmaf(factor, load_element(args.change.data, args.change.is_float, i),
                                     load_element(args.residual.data, args.residual.is_float, i)));
    }
}
