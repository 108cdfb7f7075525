// Convolution of 3x3 (stride 1 or 2) or 1x1 on Hopper, NHWC bf16, as an implicit GEMM on the pipeline of gemm_sm90.cuh.
//
//   y[p, o] = bias[o] + sum over taps (r, s), channels c of x[p * stride + (r, s) - pad, c] * w[o][r][s][c]
//             (+ residual[p, o])
//   x [h][w][in], y and residual [h][w][out], w [out][3][3][in], all bf16; in and out multiples of 8; float sums.
//   Maps, grid and arguments: conv.h. y may be the residual.
//
// pad is 1. With stride 2 it is 0: then zeros are needed at the right and lower edge only. A strip of an image has real
// rows of x above and below it instead of zeros.
//
// A tile is a patch of 16 x 8 pixels. Its A operand for one tap and 64 channels is one 4-D TMA box {64 c, 16 x, 8 y, 1}
// of x: the patch, shifted by the tap. Outside the image TMA writes zeros, which is the padding. k goes through the
// taps, and for each tap through the channels. The two blocks of a cluster compute neighbouring patches and share the
// weights: each block loads half of them and multicasts this half to both. With stride 2 the map splits rows and
// columns into pairs, so every second pixel is a plain box again. Tap 2 is the first pixel of the next pair.
//
// Nearest upsampling by 2 followed by a 3x3 convolution equals four 2x2 convolutions of the small image, one per output
// parity (a, b). Taps that fall on the same small pixel are added into one weight beforehand. Output pixel (2y+a, 2x+b)
// reads small pixels (y+a-1 .. y+a, x+b-1 .. x+b). Weights [a*2+b][out][2][2][in].
//   rows:  a = 0: tap 0 <- w0, tap 1 <- w1 + w2       a = 1: tap 0 <- w0 + w1, tap 1 <- w2      (columns alike with b)
// The 5-D maps of output and residual {c, b, x, a, y} place the pixels of one parity two apart.
//
// Group sums for a GroupNorm of 32 groups (kernels with _stats): every warp writes the sums and sums of squares of its
// 64 pixels to stats[((patch * parities + parity) * 8 + warp) * 32 + group][2]. There are no atomics, so equal inputs
// give equal bits. Pixels outside the image count as 0. sumi_group_sums_conv (group_norm.cu) reads them.
//
// Bound by the tensor cores (and by the card's power limit). Three stages with a staging buffer for the whole tile beat
// four stages with half of it by 0-2 %. 16x16 patches for 128 columns were 1 % slower.
#include "conv.h"
#include "gemm_sm90.cuh"

// One step of a sum over lanes. It adds each of v[0 .. NV) over the two lanes that differ in bit B, and divides the
// values between them: the lane with bit B keeps the upper half, the other lane the lower half, in v[0 .. NV / 2).
// Steps for bits 16, 8, 4, 2 and 1 sum 32 values over the warp with 31 shuffles instead of 160. Lane l then has sum l.
template <int NV, int B> __device__ __forceinline__ void reduce_step(float* v, int lane)
{
#pragma unroll
    for (int k = 0; k < NV / 2; k++) {
        const bool up = lane & B;
        const float send = up ? v[k] : v[k + NV / 2], keep = up ? v[k + NV / 2] : v[k];
        v[k] = keep + __shfl_xor_sync(~0u, send, B);
    }
}

// GC: channels per group (out / 32); 0: no group sums. T: the tile (gemm_sm90.cuh).
template <class T, int GC>
__device__ __forceinline__ void conv(const sumi_tmap& mx, const sumi_tmap& mw, const sumi_tmap& my, const sumi_tmap& mr,
                                     const sumi_conv_sm90_args& ar)
{
    const u32 base = smem_base(), rank = cluster_rank();
    const int wg = uniform(threadIdx.x >> 7) - 1;
    const int tx = (ar.width + 15) / 16, ty = (ar.height + 7) / 8, tiles = tx * ty,
              tn = (ar.out_channels + T::BN - 1) / T::BN;
    const int chunks = (ar.in_channels + 63) / 64;
    // At least ST k-blocks, because of vecs_load. K-blocks past the last tap are zeros.
    const int kblocks = max(ar.kernel * ar.kernel * chunks, T::ST);
    int stage = 0;
    u32 phase = 0;
    barriers_init<T>(base);
// Of work item p: n0, first output channel; q, parity (pa, pb); tl and tile, patch (tl may be one past the last); x0,
// y0, the patch's first pixel. Columns and parities change fastest, so items that run at the same time read the same
// patch.
#define ITEM(p)                                                                                                        \
    const int n0 = (p) % tn * T::BN, q = (p) / tn % ar.parities, tl = (p) / tn / ar.parities * 2 + rank,               \
              tile = min(tl, tiles - 1), x0 = tile % tx * 16, y0 = tile / tx * 8, pa = q >> 1, pb = q & 1
    if (wg < 0) {
        SUMI_REGS_PRODUCER();
        if (uniform(threadIdx.x >> 5) == 0 && elect_one()) {
            const u32 full = base + T::OFF_BAR, empty = full + 8 * T::ST;
            int parity = 0;
            for (int p = ar.item_begin + (blockIdx.x >> 1); p < ar.item_end; p += gridDim.x >> 1, parity ^= 1) {
                ITEM(p);
                const int ox = ar.kernel == 2 ? pb - 1
                             : ar.kernel == 3 ? -1
                                              : 0,
                          oy = (ar.kernel == 2 ? pa - 1 : ox) + ar.above;
                const int row = q * ar.out_channels + n0 + rank * (T::BN / 2);
                for (int kb = 0, tap = 0, r = 0, s = 0, c = 0; kb < kblocks; kb++) {
                    const u32 a = base + stage * T::STAGE, b = a + T::A_BYTES, bar = full + 8 * stage;
                    mbarrier_wait(empty + 8 * stage, phase ^ 1);
                    if (kb == 0) {
                        const int cols = min(T::BN, ar.out_channels - n0);
                        mbarrier_expect(bar, T::STAGE + vecs_bytes<T>(cols, 0));
                        vecs_load<T>(base + T::OFF_VEC + parity * T::VEC_BYTES, bar, (const float*)ar.bias, nullptr,
                                     nullptr, nullptr, n0, cols, 0, 0);
                    } else mbarrier_expect(bar, T::STAGE);
                    // Past the last tap, both operands lie outside their maps and become zeros. Both, so that no
                    // infinity is multiplied by 0.
                    const int channel = r < ar.kernel ? c * 64 : ar.in_channels;
                    tma_load_2d_multicast(b + rank * (T::B_BYTES / 2), &mw, bar, tap * ar.in_channels + c * 64, row, 3);
                    if (ar.stride == 2) tma_load_5d(a, &mx, bar, channel, s & 1, x0 + (s >> 1), r & 1, y0 + (r >> 1));
                    else tma_load_4d(a, &mx, bar, channel, x0 + ox + s, y0 + oy + r, 0);
                    if (++c == chunks) {
                        c = 0;
                        tap++;
                        if (++s == ar.kernel) {
                            s = 0;
                            r++;
                        }
                    }
                    if (++stage == T::ST) {
                        stage = 0;
                        phase ^= 1;
                    }
                }
            }
        }
    } else {
        SUMI_REGS_CONSUMER();
        const int lane = threadIdx.x & 31, warp = uniform((threadIdx.x & 127) >> 5);
        int count = 0;
        float acc[T::WM][T::BN / 2];
        for (int p = ar.item_begin + (blockIdx.x >> 1); p < ar.item_end; p += gridDim.x >> 1, count++) {
            ITEM(p);
            const int yw = y0 + wg * 4;
            const bool idle = tl >= tiles;
            const int ys = idle ? 1 << 30 : yw; // a patch that is computed twice is stored once (see gemm_sm90.cuh)
            // Copies part ph of the residual's tile to this warpgroup's staging buffer.
            auto fetch = [&](int ph) {
                const u32 bar = base + T::OFF_BAR + 16 * T::ST + 8 * wg, stg = base + T::OFF_C + wg * T::STAGING;
                TMA_STORE_WAIT_READ();
                mbarrier_expect(bar, T::STAGING);
#pragma unroll
                for (int sl = 0; sl < T::SLABS; sl++)
                    tma_load_5d(stg + sl * T::SLAB_BYTES, &mr, bar, n0 + (ph * T::SLABS + sl) * T::SW, pb, x0, pa, yw);
            };
            mainloop<T>(acc, base, wg, kblocks, stage, phase, [&] {
                if ((T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) && warp == 0 && elect_one()) fetch(0);
            });
            // v: this lane's sums and sums of squares, in pairs, per group. GC = 4: a lane's two columns of an 8-column
            // block belong to one of the block's two groups, so v has one pair per block.
            constexpr int NV = GC == 0 ? 1 : GC == 16 ? T::BN / 8 : T::BN / 4;
            float v[NV];
#pragma unroll
            for (int k = 0; k < NV; k++) v[k] = 0.f;
            epilogue<T>(
                acc, base, wg, count & 1, count,
                [&](u32 src, int col) { tma_store_5d(&my, src, n0 + col, pb, x0, pa, ys); },
                [&](int i, int o, float* x) {
                    // The 16 rows of a warp in an m64 block are one image row of the patch. With r = lane >> 2, a
                    // lane has pixels r (x[0], x[1]) and r + 8 (x[2], x[3]), and of the 8-column block o the columns
                    // 2 (lane & 3) and + 1 (drawn in hopper.cuh).
                    if (GC) {
                        const bool in = yw + i * 4 + warp < ar.height;
                        const int px = x0 + (lane >> 2), k = GC == 16 ? o / 2 : o;
                        const float e0 = in && px < ar.width ? 1.f : 0.f, e1 = in && px + 8 < ar.width ? 1.f : 0.f;
                        v[2 * k] += e0 * (x[0] + x[1]) + e1 * (x[2] + x[3]);
                        v[2 * k + 1] += e0 * (x[0] * x[0] + x[1] * x[1]) + e1 * (x[2] * x[2] + x[3] * x[3]);
                    }
                },
                fetch);
            if (GC) {
                // Bits 4, 3 and 2 of the lane number select the pixels of the row, bits 1 and 0 the columns.
                reduce_step<NV, 16>(v, lane);
                reduce_step<NV / 2, 8>(v, lane);
                reduce_step<NV / 4, 4>(v, lane);
                float* out = (float*)ar.stats + (((size_t)tile * ar.parities + q) * 8 + wg * 4 + warp) * 64
                           + n0 / (GC ? GC : 1) * 2;
                if (GC == 4) { // bit 1 of the lane says which of the two groups of an 8-column block it has
                    reduce_step<NV / 8, 1>(v, lane);
                    const int o = (lane >> 4 & 1) * 8 + (lane >> 3 & 1) * 4 + (lane >> 2 & 1) * 2 + (lane & 1);
                    if (!idle) *(float2*)(out + (2 * o + (lane >> 1 & 1)) * 2) = make_float2(v[0], v[1]);
                } else {
                    reduce_step<NV / 8, 2>(v, lane);
                    reduce_step<NV / 16, 1>(v, lane);
                    if (!idle) {
                        if (NV == 64) *(float2*)(out + lane * 2) = make_float2(v[0], v[1]);
                        else out[lane] = v[0];
                    }
                }
            }
        }
        if (warp == 0 && elect_one()) TMA_STORE_WAIT();
    }
    cluster_sync();
}

#define SUMI_CONV_KERNEL(name, BN, ST, EPILOGUE, GC)                                                                   \
    static_assert(sumi_tile<1, BN, ST, 1, 64, EPILOGUE, 0>::SMEM == SUMI_CONV_SM90_N##BN##_SHARED, "conv.h");          \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)                                     \
        name(const __grid_constant__ sumi_tmap mx, const __grid_constant__ sumi_tmap mw,                               \
             const __grid_constant__ sumi_tmap my, const __grid_constant__ sumi_tmap mr,                               \
             const __grid_constant__ sumi_conv_sm90_args ar)                                                           \
    {                                                                                                                  \
        conv<sumi_tile<1, BN, ST, 1, 64, EPILOGUE, 0>, GC>(mx, mw, my, mr, ar);                                        \
    }

#define B SUMI_EPILOGUE_BIAS
#define R (SUMI_EPILOGUE_BIAS | SUMI_EPILOGUE_RESIDUAL)
//                                                 columns, stages, epilogue, channels per group
SUMI_CONV_KERNEL(sumi_conv_sm90_n256, 256, 3, B, 0)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_stats16, 256, 3, B, 16)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_stats8, 256, 3, B, 8)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_residual, 256, 3, R, 0)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_residual_stats16, 256, 3, R, 16)
SUMI_CONV_KERNEL(sumi_conv_sm90_n256_residual_stats8, 256, 3, R, 8)
SUMI_CONV_KERNEL(sumi_conv_sm90_n128, 128, 5, B, 0)
SUMI_CONV_KERNEL(sumi_conv_sm90_n128_stats4, 128, 5, B, 4)
SUMI_CONV_KERNEL(sumi_conv_sm90_n128_residual, 128, 5, R, 0)
SUMI_CONV_KERNEL(sumi_conv_sm90_n128_residual_stats4, 128, 5, R, 4)
