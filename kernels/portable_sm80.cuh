// PTX wrappers of the portable kernels (sm_80 and newer: ldmatrix, cp.async, mma.sync; e4m3 needs sm_89). Driver API
// only, no headers.
#pragma once
#include "operands.cuh"
#include "quads.cuh"
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef unsigned long long u64;
#define SUMI_DEV __device__ __forceinline__

// 16 bytes global -> shared; bytes = 0 writes zeros and reads nothing
SUMI_DEV void cp16(u32 d, const void* s, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(d), "l"(s), "r"(bytes) : "memory");
}
SUMI_DEV void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> SUMI_DEV void cp_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
SUMI_DEV void ldm4(u32 (&r)[4], u32 p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
}
SUMI_DEV void ldm4t(u32 (&r)[4], u32 p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(p)
                 : "memory");
}
// d[16][8] += a[16][32 bytes of k] b[8][32 bytes of k]^T
template <int OPERANDS> SUMI_DEV void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
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
template <int OPERANDS> SUMI_DEV void mma(int (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
SUMI_DEV float ex2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
SUMI_DEV float tanh_fast(float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
SUMI_DEV u32 pack2(float lo, float hi)
{
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
SUMI_DEV float lo2(u32 v) { return __uint_as_float(v << 16); }
SUMI_DEV float hi2(u32 v) { return __uint_as_float(v & 0xffff0000u); }
SUMI_DEV float gelu_tanh(float x)
{
    float h = 0.5f * x;
    return fmaf(h, tanh_fast(x * fmaf(0.0356774081f, x * x, 0.7978845608f)), h);
}
SUMI_DEV float silu(float x)
{
    float h = 0.5f * x;
    return fmaf(h, tanh_fast(h), h);
}

// Shared tiles: rows of RB bytes (64, 128, 160, 192, 256 or 512) in 16-byte chunks; chunk c of row r sits at
// c ^ key(r). Every 8 rows that an ldmatrix or a group of cp.async touch fall into different banks. RB 64 and 192 swap
// only within four chunks, RB 160 within two: four of its rows begin at four different quarters of the banks.
template <int RB> SUMI_DEV int swizzle_key(int row)
{
    return RB % 64 ? (row >> 2) & 1 : RB % 128 ? (row >> 1) & 3 : row & 7;
}
template <int RB> SUMI_DEV u32 at(int row, int c) { return row * RB + ((c ^ swizzle_key<RB>(row)) << 4); }
// Address of 32-byte step t, given the one of step 0 of the same row
template <int RB> SUMI_DEV u32 step(u32 a, int t)
{
    return RB % 64 ? a + t * 32 : RB % 128 ? (a ^ ((t & 1) << 5)) + (t >> 1) * 64 : a ^ (t << 5);
}
