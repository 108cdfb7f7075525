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

// Copies 16 bytes from global memory to shared memory, asynchronously. bytes = 0 writes zeros and reads nothing. .cg
// bypasses L1, since the block keeps its copy in shared memory. L2::128B prefetches the surrounding 128 bytes into L2:
// neighbouring lanes and the next k-blocks read them.
SUMI_DEVICE void copy_async_16(u32 to, const void* from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
// copy_async_commit closes a group of copies. copy_async_wait<N> waits until at most N groups of this thread are in
// flight; a __syncthreads() after it makes the other threads' copies visible too.
SUMI_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> SUMI_DEVICE void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
SUMI_DEVICE void load_matrix_x4(u32 (&registers)[4], u32 row_address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(row_address)
                 : "memory");
}
// ldmatrix with each 8x8 matrix transposed.
SUMI_DEVICE void load_matrix_x4_transposed(u32 (&registers)[4], u32 row_address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(row_address)
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

// The swizzle of tiles in shared memory. A row has ROW_BYTES bytes (64, 128, 160, 192, 256 or 512), in 16-byte chunks.
// Chunk c of row r is stored at position c ^ swizzle_key(r) of the row, so that the 8 rows that one ldmatrix or one
// group of cp.async touches fall into different banks. For ROW_BYTES 128, 256 and 512 a row begins at bank 0, and the
// key permutes the chunks of each group of eight. For ROW_BYTES 64 and 192 two rows begin at different halves of the
// banks, and the key permutes groups of four. For ROW_BYTES 160 four rows begin at four different quarters of the
// banks, and the key permutes groups of two.
//
//     ROW_BYTES 128, position:    0 1 2 3 4 5 6 7
//     row 0          chunk        0 1 2 3 4 5 6 7
//     row 1                       1 0 3 2 5 4 7 6
//     row 2                       2 3 0 1 6 7 4 5
//     row 7                       7 6 5 4 3 2 1 0
template <int ROW_BYTES> SUMI_DEVICE int swizzle_key(int row)
{
    return ROW_BYTES % 64 ? (row >> 2) & 1 : ROW_BYTES % 128 ? (row >> 1) & 3 : row & 7;
}
// The byte offset of a chunk of a row in a tile.
template <int ROW_BYTES> SUMI_DEVICE u32 swizzled_offset(int row, int chunk)
{
    return row * ROW_BYTES + ((chunk ^ swizzle_key<ROW_BYTES>(row)) << 4);
}
// The address `steps` steps of 32 bytes (a k-step of mma.sync, two chunks) further in a row, given the address of chunk
// 0 or 1 of the row. Chunk c + 2 t is c ^ 2 t for these two, so a step within a group of chunks that the key permutes
// is an exclusive or, and the bytes of whole groups are added. Rows must begin at multiples of 64 bytes for ROW_BYTES
// 64 and 192, and of ROW_BYTES for 128, 256 and 512.
template <int ROW_BYTES> SUMI_DEVICE u32 swizzled_step(u32 address, int steps)
{
    if (ROW_BYTES % 64) return address + steps * 32;
    if (ROW_BYTES % 128) return (address ^ ((steps & 1) << 5)) + (steps >> 1) * 64;
    return address ^ (steps << 5);
}
