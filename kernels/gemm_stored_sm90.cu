// gemm_stored.cu for Hopper, up to a few hundred rows of x: sumi_gemm_stored_sm90_<type>_<rows>. The weights are wgmma's
// first operand, which may come from registers: each lane unpacks its own elements there, while the tensor cores work on
// the ones before. x is the second, in shared memory.
//
//   grid (blocks, ceil(m / rows)), blocks: any number      shared SUMI_GEMM_STORED_SM90_SHARED
//   block: two to four warpgroups that have 64 rows of w each, and one of which a lane fetches x by TMA
//
//   All the work of `rows` rows of x, tiles of 64 rows of w for each warpgroup in stages of 256 elements of k, is one
//   list: tile by tile, each along k. Every block takes an equal stretch of it, whatever the number of tiles is. What a
//   block does of a tile that it does not do alone goes to memory as float; the block that comes last adds the parts, in
//   the order of the list.
//
//     tile       0           1           2           3
//     stages     |-----------|-----------|-----------|
//     blocks     0       1       2       3       4
//
//   A warp brings the 16 rows of w that it unpacks itself (cp.async), so that nothing but x is waited for together.
#include "hopper.cuh"
#include "stored.cuh"
#include "stored_finish.cuh"

template <int TYPE, int ROWS_, int GROUPS_, int XS_, int WS_> struct stored_sm90_tile {
    enum {
        ROWS = ROWS_,
        XS = XS_,
        WS = WS_,
        WARPS = 4 * GROUPS_,
        COLS = 64 * GROUPS_,
        REGISTERS = GROUPS_ == 4 ? 112
                  : GROUPS_ == 3 ? 160
                                 : 240,
        BYTES = stored_layout<TYPE>::BYTES,
        IS_EVEN = BYTES % 16 == 0, // rows and their chunks begin at multiples of 16 bytes
        IS_WHOLE = TYPE >= STORED_q2_k && TYPE <= STORED_q6_k || TYPE == STORED_iq4_xs, // rows are chunks of 256
        PITCH = SUMI_GEMM_STORED_PITCH(BYTES),
        PIECES = SUMI_GEMM_STORED_NEED(BYTES) / 16,
        X_STAGE = ROWS * 128,
        W_STAGE = 16 * PITCH, // of a warp
        BARRIERS = XS * X_STAGE + WARPS * WS * W_STAGE
    };
};

// d[64 x N] += a[64 x 16] b[N x 16]^T: a in registers, b in shared memory.
template <int N> struct wgmma_registers;
#define STORED_D32(C, d) SUMI_D32(C, d, 0)
#define STORED_D64(C, d) SUMI_D64(C, d)
#define STORED_D128(C, d) SUMI_D128(C, d)
#define WGMMA(N, R, A0, A1, A2, A3, IB, IP)                                                                            \
    template <> struct wgmma_registers<N> {                                                                            \
        static __device__ __forceinline__ void mma(float (&d)[R], const u32 (&a)[4], u64 b, int acc)                   \
        {                                                                                                              \
            asm volatile("{.reg .pred p; setp.ne.b32 p,%" #IP ",0; wgmma.mma_async.sync.aligned.m64n" #N               \
                         "k16.f32.bf16.bf16 {" SUMI_R##R "},{%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "},%" #IB ",p,1,1,0;}"  \
                         : STORED_D##R("+f", d)                                                                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(acc));                              \
        }                                                                                                              \
    };
#define SUMI_R32                                                                                                       \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"  \
    "30,%31"
WGMMA(64, 32, 32, 33, 34, 35, 36, 37)
WGMMA(128, 64, 64, 65, 66, 67, 68, 69)
WGMMA(256, 128, 128, 129, 130, 131, 132, 133)

template <int TYPE, class T> SUMI_DEVICE void gemm_stored_sm90(const sumi_tmap& mx, const sumi_gemm_stored_args& a)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ float turned[T::WARPS][32][17];
    __shared__ uint32_t is_last;
    const u32 smem = smem_addr(shared), full = smem + T::BARRIERS, empty = full + 8 * T::XS;
    const int warp = uniform((int)threadIdx.x >> 5), lane = (int)threadIdx.x & 31;
    const int stages = (a.k + 255) / 256, tiles = (a.n + T::COLS - 1) / T::COLS, all = tiles * stages,
              m0 = (int)blockIdx.y * T::ROWS;
    const int begin = (int)((int64_t)all * blockIdx.x / gridDim.x),
              end = (int)((int64_t)all * (blockIdx.x + 1) / gridDim.x);
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::XS; i++) {
            mb_init(full + 8 * i, 1);
            mb_init(empty + 8 * i, T::WARPS);
        }
        FENCE_MBAR_INIT();
    }
    __syncthreads();

    if (warp >= T::WARPS) { // x; beyond the end of k are zeros
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (warp != T::WARPS || !elect_one()) return;
        int slot = 0, phase = 0;
        for (int at = begin; at < end; at++) {
            const int stage = at % stages;
            for (int b = 0; b < 4; b++) {
                mb_wait(empty + 8 * slot, phase ^ 1);
                mb_expect(full + 8 * slot, T::X_STAGE);
                tma_load_2d(smem + slot * T::X_STAGE, &mx, full + 8 * slot, stage * 256 + b * 64, m0);
                if (++slot == T::XS) slot = 0, phase ^= 1;
            }
        }
        return;
    }
    constexpr int registers = T::REGISTERS, threads = T::WARPS * 32, ahead = T::WS - 2;
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));

    const int r = lane >> 2, q = lane & 3;
    // Where row `in` of the warp's 16 of a tile begins, and its factor.
    const auto row_of = [&](int tile, int in, float* scale) {
        int row = min(tile * T::COLS + warp * 16 + in, a.n - 1);
        if (a.is_gated) row = (row >> 4) * 8 + (row & 7) + (row & 8 ? a.n / 2 : 0);
        int before = 0, part = 0;
        while (part < SUMI_GEMM_STORED_PARTS - 1 && row >= a.end[part]) before = a.end[part++];
        *scale = a.scale[part];
        return (const uint8_t*)a.from[part] + (int64_t)(row - before) * a.row_bytes;
    };
    // Two lanes bring a row.
    uint8_t* const ring = shared + T::XS * T::X_STAGE + warp * T::WS * T::W_STAGE;
    const u32 ring_smem = smem_addr(ring);
    int next = begin, next_slot = 0;
    const uint8_t* from = nullptr;
    float unused;
    const auto fetch = [&] {
        if (next < end) {
            const int stage = next % stages;
            if (stage == 0 || next == begin) from = row_of(next / stages, lane >> 1, &unused);
            const uint8_t* at = from + (int64_t)stage * T::BYTES;
            const int before = T::IS_EVEN ? 0 : (int)((uint64_t)at & 15u),
                      left = before + min(T::BYTES, a.row_bytes - stage * T::BYTES);
            at -= before;
            const u32 to = ring_smem + next_slot * T::W_STAGE + (lane >> 1) * T::PITCH;
#pragma unroll
            for (int i = 0; i < (T::PIECES + 1) / 2; i++) {
                const int piece = 2 * i + (lane & 1);
                if (piece * 16 < left)
                    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to + piece * 16),
                                 "l"(at + piece * 16)
                                 : "memory");
            }
            next++;
            next_slot = next_slot + 1 == T::WS ? 0 : next_slot + 1;
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll
    for (int i = 0; i < T::WS - 1; i++) fetch();

    float acc[T::ROWS / 2];
    int slot = 0, phase = 0, w_slot = 0, last_slot = -1; // last_slot: of x, whose products may not be done
    const auto leave = [&] {
        if (last_slot >= 0 && lane == 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + 8 * last_slot) : "memory");
    };
    for (int at = begin; at < end;) {
        const int tile = at / stages, first_stage = at % stages, last_stage = min(stages, first_stage + end - at);
        at += last_stage - first_stage;
        float scale[2];
        const u32 low[2] = {(u32)(uint64_t)row_of(tile, r, &scale[0]), (u32)(uint64_t)row_of(tile, r + 8, &scale[1])};
#pragma unroll
        for (int i = 0; i < T::ROWS / 2; i++) acc[i] = 0.0f;
#pragma unroll 1
        for (int stage = first_stage; stage < last_stage; stage++) {
            asm volatile("cp.async.wait_group %0;" ::"n"(ahead) : "memory");
            __syncwarp();
            const uint8_t* w = ring + w_slot * T::W_STAGE + r * T::PITCH;
            w_slot = w_slot + 1 == T::WS ? 0 : w_slot + 1;
            const u32 shift[2] = {T::IS_EVEN ? 0u : (low[0] + (u32)(stage * T::BYTES)) & 15u,
                                  T::IS_EVEN ? 0u : (low[1] + (u32)(stage * T::BYTES)) & 15u};
            const stored<TYPE, true> upper(w + shift[0], 2 * q), lower(w + 8 * T::PITCH + shift[1], 2 * q);
            fetch(); // over the stage before this one: all lanes are done with it
            u32 operands[2][4][4];
#pragma unroll
            for (int b = 0; b < 4; b++) {
                const bool is_there = T::IS_WHOLE || stage * 256 + b * 64 < a.k;
#pragma unroll
                for (int g = 0; g < 2; g++) {
                    uint4 u = stored_bf16(upper, 2 * b + g, scale[0]), v = stored_bf16(lower, 2 * b + g, scale[1]);
                    if (!is_there) u = v = make_uint4(0, 0, 0, 0); // what lies there may be no number
                    u32(&first)[4] = operands[b & 1][2 * g], (&second)[4] = operands[b & 1][2 * g + 1];
                    first[0] = u.x, first[1] = v.x, first[2] = u.y, first[3] = v.y;
                    second[0] = u.z, second[1] = v.z, second[2] = u.w, second[3] = v.w;
                }
                mb_wait(full + 8 * slot, phase);
                WG_FENCE();
                const u32 x = wg_desc_lo(smem + slot * T::X_STAGE);
#pragma unroll
                for (int p = 0; p < 4; p++)
                    wgmma_registers<T::ROWS>::mma(acc, operands[b & 1][p], wg_desc(x + p * 2), 1);
                WG_COMMIT();
                WG_WAIT(1);
                leave();
                last_slot = slot;
                if (++slot == T::XS) slot = 0, phase ^= 1;
            }
        }
        WG_WAIT(0);
        leave();
        last_slot = -1;

        // The end of a tile, or of what is done of it here.
        const bool is_whole = first_stage == 0 && last_stage == stages;
        bool finishes = is_whole;
        if (!is_whole) {
            // two places for each block: its first tile and its last
            constexpr int COUNT = T::ROWS / 8; // of 16 bytes, for each thread
            const auto place = [&](int block, int of) {
                const int first = (int)((int64_t)all * block / gridDim.x) / stages == of ? 0 : 1;
                return (float4*)a.parts + (((int64_t)blockIdx.y * gridDim.x + block) * 2 + first) * COUNT * threads
                     + threadIdx.x;
            };
            uint32_t* const arrivals = (uint32_t*)a.arrivals + (int64_t)blockIdx.y * tiles + tile;
            float4* const mine = place((int)blockIdx.x, tile);
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                if (m0 + 8 * i < a.m) // 16 bytes are of rows 8 i to 8 i + 7
                    __stcg(mine + i * threads, make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]));
            }
            // blocks that have a share of the tile
            const int first = (int)((((int64_t)tile * stages + 1) * gridDim.x - 1) / all),
                      last = (int)((((int64_t)tile + 1) * stages * gridDim.x - 1) / all);
            __threadfence();
            asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory");
            if (threadIdx.x == 0) is_last = atomicAdd(arrivals, 1u) == (uint32_t)(last - first);
            asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory");
            finishes = is_last != 0;
            if (finishes) {
                __threadfence();
#pragma unroll
                for (int i = 0; i < T::ROWS / 2; i++) acc[i] = 0.0f;
#pragma unroll T::ROWS <= 64 ? 2 : 1
                for (int block = first; block <= last; block++) {
                    const float4* its = place(block, tile);
#pragma unroll
                    for (int i = 0; i < COUNT; i++) {
                        const float4 v =
                            m0 + 8 * i < a.m ? __ldcg(its + i * threads) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                        acc[4 * i] += v.x, acc[4 * i + 1] += v.y, acc[4 * i + 2] += v.z, acc[4 * i + 3] += v.w;
                    }
                }
                if (threadIdx.x == 0) *arrivals = 0;
            }
            asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); // before is_last is written again
        }
        if (!finishes) continue;

        // 32 rows of x at a time, turned in the warp's own memory.
        const finish_activation act = finish_activation_of(a.swiglu ? 0 : a.finish.activation);
        const int outs = a.swiglu ? 8 : 16, step = 32 / outs, c = lane % outs, n = a.swiglu ? a.n / 2 : a.n,
                  n0 = (tile * T::COLS + warp * 16) / (a.swiglu ? 2 : 1);
        const stored_column column = stored_column_of(a.finish, finish_gate_row(a.finish), n, n0 + c, a.swiglu != 0);
#pragma unroll 1
        for (int part = 0; part < T::ROWS / 32 && m0 + part * 32 < a.m; part++) {
            // A loop cannot index registers, and unrolled it is several times the code.
#pragma unroll
            for (int k = 0; k < T::ROWS / 32; k++) {
                if (k != part) continue;
#pragma unroll
                for (int i = 0; i < 16; i++)
                    turned[warp][i / 4 * 8 + 2 * q + (i & 1)][r + (i >> 1 & 1) * 8] = acc[k * 16 + i];
            }
            __syncwarp();
#pragma unroll 1
            for (int row = lane / outs; row < 32 && n0 + c < n; row += 8 * step)
                stored_finish<8>(a.finish, act, column, a.m, m0 + part * 32 + row, step, [&](int i) {
                    const float* its = turned[warp][row + i * step];
                    return a.swiglu ? finish_swiglu(its[c], its[c + 8]) : its[c];
                });
            __syncwarp();
        }
    }
}

#define KERNEL(name, number, ROWS, GROUPS, XS, WS)                                                                     \
    extern "C" __global__ void __launch_bounds__(SUMI_GEMM_STORED_SM90_THREADS(GROUPS), 1)                             \
        sumi_gemm_stored_sm90_##name##_##ROWS(const __grid_constant__ sumi_tmap mx,                                    \
                                              const __grid_constant__ sumi_gemm_stored_args a)                         \
    {                                                                                                                  \
        gemm_stored_sm90<number, stored_sm90_tile<number, ROWS, GROUPS, XS, WS>>(mx, a);                               \
    }
#define TYPE(name, number, bytes)                                                                                      \
    KERNEL(name, number, 64, 4, 4, 2) KERNEL(name, number, 128, 3, 5, 2) KERNEL(name, number, 256, 2, 3, 2)
SUMI_STORED_TYPES(TYPE)
