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
// products (in the code r is lane_row and q lane_in_quad):
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
SUMI_DEVICE uint4 load_streamed_16(const u16* from, bool exists)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    if (exists)
        asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
            : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
            : "l"(from));
    return v;
}
// Loads 16 bytes of x, or zeros. Every block reads x, so it may stay in L1.
SUMI_DEVICE uint4 load_cached_16(const u16* from, bool exists)
{
    return exists ? __ldg((const uint4*)from) : make_uint4(0, 0, 0, 0);
}
// X_GROUPS: groups of 8 rows of x. STEPS_IN_FLIGHT: k-steps of 32 elements whose loads a warp has in flight.
template <int X_GROUPS, int STEPS_IN_FLIGHT> SUMI_DEVICE void gemv(const sumi_gemv_args& args)
{
    __shared__ float warp_sums[8][X_GROUPS * 128]; // [warp][row of x * 16 + row of w]
    __shared__ u32 arrived_before;
    const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31, lane_row = lane >> 2,
              lane_in_quad = lane & 3, n0 = blockIdx.x * 16, chunks = args.k / 8, k_steps = (chunks + 3) / 4;
    const int step_begin = (int)((long long)k_steps * blockIdx.y / args.split),
              step_end = (int)((long long)k_steps * (blockIdx.y + 1) / args.split);
    const u16 *w_upper = (const u16*)args.w + (u64)min(n0 + lane_row, args.n - 1) * args.ldw,
              *w_lower = (const u16*)args.w + (u64)min(n0 + lane_row + 8, args.n - 1) * args.ldw, *x[X_GROUPS];
#pragma unroll
    for (int j = 0; j < X_GROUPS; j++) x[j] = (const u16*)args.x + (u64)min(j * 8 + lane_row, args.m - 1) * args.ldx;
    float acc[X_GROUPS][4];
#pragma unroll
    for (int j = 0; j < X_GROUPS; j++) acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0.f;
    for (int k_step = step_begin + warp * STEPS_IN_FLIGHT; k_step < step_end; k_step += 8 * STEPS_IN_FLIGHT) {
        uint4 upper[STEPS_IN_FLIGHT], lower[STEPS_IN_FLIGHT], x_chunk[X_GROUPS][STEPS_IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < STEPS_IN_FLIGHT; i++) {
            const int chunk = (k_step + i) * 4 + lane_in_quad; // of 8 elements of k
            const bool exists = k_step + i < step_end && chunk < chunks;
            upper[i] = load_streamed_16(w_upper + chunk * 8, exists);
            lower[i] = load_streamed_16(w_lower + chunk * 8, exists);
        }
#pragma unroll
        for (int i = 0; i < STEPS_IN_FLIGHT; i++)
#pragma unroll
            for (int j = 0; j < X_GROUPS; j++) {
                const int chunk = (k_step + i) * 4 + lane_in_quad;
                x_chunk[j][i] = load_cached_16(x[j] + chunk * 8, k_step + i < step_end && chunk < chunks);
            }
#pragma unroll
        for (int i = 0; i < STEPS_IN_FLIGHT; i++)
#pragma unroll
            for (int j = 0; j < X_GROUPS; j++) {
                const u32 a_first[4] = {upper[i].x, lower[i].x, upper[i].y, lower[i].y},
                          a_second[4] = {upper[i].z, lower[i].z, upper[i].w, lower[i].w};
                mma<SUMI_OPERANDS_BF16>(acc[j], a_first, x_chunk[j][i].x, x_chunk[j][i].y);
                mma<SUMI_OPERANDS_BF16>(acc[j], a_second, x_chunk[j][i].z, x_chunk[j][i].w);
            }
    }
    // acc[j][e] is the sum of row lane_row (e < 2) or lane_row + 8 of w, and of row lane_in_quad * 2 + e % 2 of group j
    // of x.
#pragma unroll
    for (int j = 0; j < X_GROUPS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            warp_sums[warp][(j * 8 + lane_in_quad * 2 + (e & 1)) * 16 + lane_row + (e >> 1) * 8] = acc[j][e];
    __syncthreads(); // the sums of all warps are written
    float sum = 0.f;
    if (thread < X_GROUPS * 128)
#pragma unroll
        for (int i = 0; i < 8; i++) sum += warp_sums[i][thread];
    // Split k: the block that arrives last adds the partial sums in the order of k. __stcg and __ldcg bypass L1, which
    // is not coherent between multiprocessors.
    if (args.split > 1) {
        // float [block of n][range of k][row of x * 16 + row of w]
        float* partial_sums = (float*)args.partial_sums + (u64)blockIdx.x * args.split * X_GROUPS * 128 + thread;
        u32* arrivals = (u32*)args.arrivals + blockIdx.x;
        if (thread < X_GROUPS * 128) __stcg(partial_sums + blockIdx.y * X_GROUPS * 128, sum);
        __threadfence(); // this thread's partial sum is visible to all blocks
        __syncthreads(); // every thread's is
        if (thread == 0) arrived_before = atomicAdd(arrivals, 1u);
        __syncthreads(); // arrived_before is written
        if (arrived_before != (u32)args.split - 1) return;
        __threadfence(); // no partial sum is read before the counter was
        sum = 0.f;
        if (thread < X_GROUPS * 128)
            for (int i = 0; i < args.split; i++) sum += __ldcg(partial_sums + i * X_GROUPS * 128);
        if (thread == 0) *arrivals = 0;
    }
    const int m = thread >> 4, n = n0 + (thread & 15); // for thread < 128 X_GROUPS: row m < 8 X_GROUPS
    // swiglu: the up column of the same row, eight lanes further
    const float up = __shfl_down_sync(~0u, sum, 8);
    if (thread >= X_GROUPS * 128 || m >= args.m || n >= args.n) return;
    if (args.swiglu) {
        if ((thread & 15) < 8) epilogue_element_swiglu(args.epilogue, m, n0 / 2 + (thread & 7), sum, up);
    } else
        epilogue_element(args.epilogue, epilogue_activation_of(args.epilogue.activation),
                         epilogue_gate_row(args.epilogue), m, n, sum);
}
extern "C" __global__ void __launch_bounds__(256, 2) sumi_gemv_bf16_8(const __grid_constant__ sumi_gemv_args args)
{
    gemv<1, 4>(args);
}
extern "C" __global__ void __launch_bounds__(256, 2) sumi_gemv_bf16_16(const __grid_constant__ sumi_gemv_args args)
{
    gemv<2, 4>(args);
}
