// y[m][n] = epilogue(x[m][k] w[n][k]^T) for m <= 8 (sumi_gemv_bf16_8) or m <= 16 (sumi_gemv_bf16_16): modulation, time
// embeddings. epilogue: sumi_gemm_epilogue in gemm.h.
//   x  [m][ldx] bf16, w [n][ldw] bf16, row-major, rows 16-byte aligned; k, ldx and ldw multiples of 8; any n
//   y  [m][ldy] bf16 or float; swiglu: y [m][n / 2], and a block's 16 rows of w are 8 gate rows and 8 up rows
//   grid (ceil(n / 16), split)      block 256      shared static, 4 KiB for each 8 rows of x
// Bound by reading w once: 3.2 TB/s of the 4.8 TB/s of an H200.
//
// The weights are the 16-row operand A of mma.m16n8k16, x is the 8-row operand B. Both go from global memory to
// registers without shared memory. The order of k does not matter to a product, as long as both operands have the same.
// So lane q of a quad loads 16 consecutive bytes, 8 elements, of each 32 elements of a row, which are fragments of two
// products:
//
//     k of a group of 32        0 .. 7 | 8 .. 15 | 16 .. 23 | 24 .. 31
//     held by lane of the quad  q = 0  | q = 1   | q = 2    | q = 3
//
//     the lane's 8 elements     0, 1      2, 3      4, 5      6, 7
//     first product             a0, b0    a2, b1
//     second product                                a0, b0    a2, b1        (a1 and a3: the same, of row r + 8 of w)
//
// Eight warps share the k of a block. Their sums are added through shared memory in a fixed order.
#include "gemm_epilogue.cuh"
#include "portable_sm80.cuh"
// Loads 16 bytes of w, or zeros. w is read once, so it is not kept in L1; L2 prefetches the 128 bytes around it, which
// the warp reads next.
SUMI_DEVICE uint4 stream16(const u16* p, bool ok)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    if (ok)
        asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
            : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
            : "l"(p));
    return v;
}
// Loads 16 bytes of x, or zeros. Every block reads x, so it may stay in L1.
SUMI_DEVICE uint4 plain16(const u16* p, bool ok) { return ok ? __ldg((const uint4*)p) : make_uint4(0, 0, 0, 0); }
// NB: groups of 8 rows of x. U: k-steps of 32 elements whose loads a warp has in flight.
template <int NB, int U> SUMI_DEVICE void gemv(const sumi_gemv_args& a)
{
    __shared__ float red[8][NB * 128]; // [warp][row of x][row of w]
    __shared__ u32 flag;
    const int t = threadIdx.x, warp = t >> 5, l = t & 31, r = l >> 2, q = l & 3, n0 = blockIdx.x * 16, chunks = a.k / 8,
              steps = (chunks + 3) / 4;
    const int s0 = (int)((long long)steps * blockIdx.y / a.split),
              s1 = (int)((long long)steps * (blockIdx.y + 1) / a.split);
    const u16 *w0 = (const u16*)a.w + (u64)min(n0 + r, a.n - 1) * a.ldw,
              *w1 = (const u16*)a.w + (u64)min(n0 + r + 8, a.n - 1) * a.ldw, *x[NB];
#pragma unroll
    for (int b = 0; b < NB; b++) x[b] = (const u16*)a.x + (u64)min(b * 8 + r, a.m - 1) * a.ldx;
    float acc[NB][4];
#pragma unroll
    for (int b = 0; b < NB; b++) acc[b][0] = acc[b][1] = acc[b][2] = acc[b][3] = 0.f;
    for (int s = s0 + warp * U; s < s1; s += 8 * U) {
        uint4 f0[U], f1[U], v[NB][U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int c = (s + u) * 4 + q;
            const bool ok = s + u < s1 && c < chunks;
            f0[u] = stream16(w0 + c * 8, ok);
            f1[u] = stream16(w1 + c * 8, ok);
        }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int b = 0; b < NB; b++) {
                const int c = (s + u) * 4 + q;
                v[b][u] = plain16(x[b] + c * 8, s + u < s1 && c < chunks);
            }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int b = 0; b < NB; b++) {
                const u32 a0[4] = {f0[u].x, f1[u].x, f0[u].y, f1[u].y}, a1[4] = {f0[u].z, f1[u].z, f0[u].w, f1[u].w};
                mma<0>(acc[b], a0, v[b][u].x, v[b][u].y);
                mma<0>(acc[b], a1, v[b][u].z, v[b][u].w);
            }
    }
#pragma unroll
    for (int b = 0; b < NB; b++)
#pragma unroll
        for (int e = 0; e < 4; e++) red[warp][(b * 8 + q * 2 + (e & 1)) * 16 + r + (e >> 1) * 8] = acc[b][e];
    __syncthreads(); // the sums of all warps are written
    float s = 0.f;
    if (t < NB * 128)
#pragma unroll
        for (int i = 0; i < 8; i++) s += red[i][t];
    // Split k: the block that arrives last adds the partial sums in the order of k. __stcg and __ldcg bypass L1, which
    // is not coherent between multiprocessors.
    if (a.split > 1) {
        float* p = (float*)a.partial_sums + (u64)blockIdx.x * a.split * NB * 128 + t;
        u32* arrivals = (u32*)a.arrivals + blockIdx.x;
        if (t < NB * 128) __stcg(p + blockIdx.y * NB * 128, s);
        __threadfence(); // this thread's partial sum is visible to all blocks
        __syncthreads(); // every thread's is
        if (t == 0) flag = atomicAdd(arrivals, 1u);
        __syncthreads(); // the flag is written
        if (flag != (u32)a.split - 1) return;
        __threadfence(); // no partial sum is read before the counter was
        s = 0.f;
        if (t < NB * 128)
            for (int i = 0; i < a.split; i++) s += __ldcg(p + i * NB * 128);
        if (t == 0) *arrivals = 0;
    }
    const int m = t >> 4, n = n0 + (t & 15); // for t < 128 NB: row m < 8 NB
    // swiglu: the up column of the same row, eight lanes further
    const float pair = __shfl_down_sync(~0u, s, 8);
    if (t >= NB * 128 || m >= a.m || n >= a.n) return;
    if (a.swiglu) {
        if ((t & 15) < 8) epilogue_one_swiglu(a.epilogue, m, n0 / 2 + (t & 7), s, pair);
    } else
        epilogue_one(a.epilogue, epilogue_activation_of(a.epilogue.activation), epilogue_gate_row(a.epilogue), m, n, s);
}
extern "C" __global__ void __launch_bounds__(256, 2) sumi_gemv_bf16_8(const __grid_constant__ sumi_gemv_args a)
{
    gemv<1, 4>(a);
}
extern "C" __global__ void __launch_bounds__(256, 2) sumi_gemv_bf16_16(const __grid_constant__ sumi_gemv_args a)
{
    gemv<2, 4>(a);
}
