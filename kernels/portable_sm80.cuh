// PTX instructions of the portable kernels (sm_80 and newer: ldmatrix, cp.async, mma.sync; e4m3 needs sm_89), and the
// swizzle of their tiles in shared memory. It includes no CUDA header.
//
// Fragments of mma.sync, D[16 x 8] += A[16 rows x 32 bytes of k] B[8 rows x 32 bytes of k]^T. lane = 4 r + q, with
// r = lane >> 2 = 0..7 and q = lane & 3 = 0..3. A register holds 4 bytes of k of one row: two bf16, or four e4m3 or
// int8.
//
//     A (a0..a3)        bytes of k   4 q .. 4 q + 3     16 + 4 q .. 16 + 4 q + 3
//                       row r        a0                 a2
//                       row r + 8    a1                 a3
//
//     B (b0, b1)        bytes of k   4 q .. 4 q + 3     16 + 4 q .. 16 + 4 q + 3
//                       row r        b0                 b1                                (row of B = column of D)
//
//     D (d0..d3)        columns      2 q, 2 q + 1
//                       row r        d0, d1
//                       row r + 8    d2, d3
//
//     so row r of D     columns      0   1   | 2   3   | 4   5   | 6   7
//                       in lane      4 r     | 4 r + 1 | 4 r + 2 | 4 r + 3
//
// ldmatrix.x4 (load_matrix_x4) reads four 8x8 matrices of 16-bit elements, that is 8 rows of 16 bytes each. Lanes 8 i
// .. 8 i + 7 give the row addresses of matrix i, and register i receives bytes 4 q .. 4 q + 3 of row r of matrix i.
#pragma once
#include "operands.cuh"
#include "quads.cuh"

// Copies 16 bytes from global memory `s` to shared memory `d`, asynchronously. bytes = 0 writes zeros and reads
// nothing. .cg bypasses L1, since the block keeps its copy in shared memory. L2::128B prefetches the surrounding 128
// bytes into L2: neighbouring lanes and the next k-blocks read them.
SUMI_DEVICE void copy_async_16(u32 d, const void* s, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(d), "l"(s), "r"(bytes) : "memory");
}
// copy_async_commit closes a group of copies. copy_async_wait<N> waits until at most N groups of this thread are in
// flight; a __syncthreads() after it makes the other threads' copies visible too.
SUMI_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> SUMI_DEVICE void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
SUMI_DEVICE void load_matrix_x4(u32 (&r)[4], u32 p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
}
// ldmatrix with each 8x8 matrix transposed.
SUMI_DEVICE void load_matrix_x4_transposed(u32 (&r)[4], u32 p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
}
// d[16][8] += a[16][32 bytes of k] b[8][32 bytes of k]^T; the fragments are drawn at the top of this file.
template <int OPERANDS> SUMI_DEVICE void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    if (OPERANDS == SUMI_OPERANDS_E4M3)
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <int OPERANDS> SUMI_DEVICE void mma(int (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// 2^x, approximate; subnormal numbers are flushed to zero.
SUMI_DEVICE float ex2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The swizzle of tiles in shared memory. A row has RB bytes (64, 128, 160, 192, 256 or 512), in 16-byte chunks. Chunk c
// of row r is stored at place c ^ swizzle_key(r) of the row, so that the 8 rows that one ldmatrix or one group of
// cp.async touches fall into different banks. For RB 128, 256 and 512 a row begins at bank 0, and the key permutes the
// chunks of each group of eight. For RB 64 and 192 two rows begin at different halves of the banks, and the key
// permutes groups of four. For RB 160 four rows begin at four different quarters of the banks, and the key permutes
// groups of two.
//
//     RB 128, place:    0 1 2 3 4 5 6 7
//     row 0   chunk     0 1 2 3 4 5 6 7
//     row 1             1 0 3 2 5 4 7 6
//     row 2             2 3 0 1 6 7 4 5
//     row 7             7 6 5 4 3 2 1 0
template <int RB> SUMI_DEVICE int swizzle_key(int row)
{
    return RB % 64 ? (row >> 2) & 1 : RB % 128 ? (row >> 1) & 3 : row & 7;
}
// The byte offset of chunk c of a row in a tile.
template <int RB> SUMI_DEVICE u32 at(int row, int c) { return row * RB + ((c ^ swizzle_key<RB>(row)) << 4); }
// The address of k-step t of a row (32 bytes, two chunks), given the address `a` of k-step 0 of the same row.
template <int RB> SUMI_DEVICE u32 step(u32 a, int t)
{
    return RB % 64 ? a + t * 32 : RB % 128 ? (a ^ ((t & 1) << 5)) + (t >> 1) * 64 : a ^ (t << 5);
}
