// The products of gemm_stored.cu for Hopper, for up to a few hundred rows of x: sumi_gemm_stored_sm90_<type>_<rows>.
//   x, w, y  as in gemm_stored.cu; mx: a tensor map of x, boxes {64, rows}, 128-byte swizzle
//   grid     (blocks, ceil(m / rows)); blocks: any number, or a.cluster * ceil(n / columns of a tile) in clusters
//   block    SUMI_GEMM_STORED_SM90_THREADS: two or three warpgroups with 64 rows of w each, and one of which a single
//            thread copies x by TMA
//   shared   dynamic, SUMI_GEMM_STORED_SM90_SHARED; static, 2560 bytes per warp
// Bound by unpacking and by the tensor cores together (tests/bench.md has their cycles).
//
//   The weights are wgmma's first operand, which may come from registers: each lane unpacks its own elements there,
//   while the tensor cores multiply the ones before. x is the second operand, in shared memory. The sums
//   are distributed as hopper.cuh draws the accumulator, and the 64 rows of w in the same manner: warp i of a warpgroup
//   has rows 16 i .. 16 i + 15, and lane 4 r + q has rows r and r + 8 of these. Of each 16 elements of k the lane holds
//   elements 2 q, 2 q + 1, 2 q + 8, 2 q + 9.
//
//   A tile is COLS rows of w (64 for each warpgroup) and `rows` rows of x. Its work is a sequence of chunks: 256
//   elements of k each. All chunks of all tiles, tile by tile and each along k, form one list, and every block takes an
//   equal stretch of it, whatever the number of tiles is. A block that does only some chunks of a tile writes its
//   partial sum to memory as float. The block that arrives last at a tile's counter adds the partial sums in the order
//   of the list.
//
//     tile       0           1           2           3
//     chunks     |-----------|-----------|-----------|
//     blocks     0       1       2       3       4
//
//   With few tiles of many chunks there would be many partial sums for a tile, and one block would add all of them.
//   In that case the blocks of a cluster share the chunks of one tile instead (a.cluster > 1). Each block finishes some
//   of the rows of x: it receives the partial sums of these rows from the other blocks, through shared memory, and adds
//   them.
//
//   Each warp copies the 16 rows of w that it unpacks into a ring buffer of its own. So the warps of a block wait for
//   common data only for x.
#include "hopper.cuh"
#include "stored.cuh"
#include "stored_finish.cuh"

// The constants of a kernel. XS, WS: ring slots for x (k-blocks of 64 elements) and for w (chunks). REGISTERS: per
// thread of the unpacking warps; with the 24 of the TMA warpgroup they fit the 65536 of a multiprocessor. BYTES: of a
// row's chunk.
template <int TYPE, int ROWS_, int GROUPS_, int XS_> struct stored_sm90_tile {
    enum {
        ROWS = ROWS_,
        XS = XS_,
        WARPS = 4 * GROUPS_,
        COLS = 64 * GROUPS_,
        REGISTERS = GROUPS_ == 3 ? 160 : 240,
        BYTES = stored_layout<TYPE>::BYTES,
        WS = SUMI_GEMM_STORED_SM90_W_STAGES(BYTES, ROWS_, GROUPS_, XS_),
        IS_EVEN = BYTES % 16 == 0, // every row's chunks begin at multiples of 16 bytes
        IS_WHOLE = TYPE >= STORED_q2_k && TYPE <= STORED_q6_k || TYPE == STORED_iq4_xs, // a row has whole chunks only
        PITCH = SUMI_GEMM_STORED_SM90_PITCH(BYTES),
        X_STAGE = ROWS * 128,
        W_STAGE = 16 * PITCH, // bytes of a ring slot of one warp
        BARRIERS = XS * X_STAGE + WARPS * WS * W_STAGE
    };
};

// d[64 x N] = a[64 x 16] b[N x 16]^T + (acc ? d : 0), bf16: a in registers, b by its descriptor in shared memory.
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

// Stores v at the shared-memory address `address` of block `rank` of the cluster.
SUMI_DEVICE void st_cluster(u32 address, int rank, float4 v)
{
    asm volatile(
        "{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; st.shared::cluster.v4.f32 [r], {%2,%3,%4,%5};}" ::"r"(
            address),
        "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
        : "memory");
}

template <int TYPE, class T> SUMI_DEVICE void gemm_stored_sm90(const sumi_tmap& mx, const sumi_gemm_stored_args& a)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    // Each warp's [row of x][row of w]. The pitch of 20 floats avoids bank conflicts.
    __shared__ __align__(16) float turned[T::WARPS][32][20];
    __shared__ uint32_t is_last;
    const u32 smem = smem_addr(shared), full = smem + T::BARRIERS, empty = full + 8 * T::XS;
    const int warp = uniform((int)threadIdx.x >> 5), lane = (int)threadIdx.x & 31;
    // Barriers. full, empty: a ring slot of x is complete, or may be overwritten. w_full: this warp's ring slots of w
    // are complete. A warp needs no barrier to overwrite its own slots.
    const u32 w_full = empty + 8 * (T::XS + warp * T::WS);
    // stages: chunks of a tile. all: chunks of all tiles. begin, end: this block's chunks of the list.
    const int stages = (a.k + 255) / 256, tiles = (a.n + T::COLS - 1) / T::COLS, all = tiles * stages,
              m0 = (int)blockIdx.y * T::ROWS, blocks = (int)gridDim.x, block = (int)blockIdx.x;
    const bool is_clustered = a.cluster > 1;
    const int rank = is_clustered ? (int)cluster_rank() : 0, cluster_tile = is_clustered ? block / a.cluster : 0;
    const int begin = is_clustered ? cluster_tile * stages + stages * rank / a.cluster
                                   : (int)((int64_t)all * block / blocks),
              end = is_clustered ? cluster_tile * stages + stages * (rank + 1) / a.cluster
                                 : (int)((int64_t)all * (block + 1) / blocks);
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::XS; i++) {
            mb_init(full + 8 * i, 1);
            mb_init(empty + 8 * i, T::WARPS);
        }
        for (int i = 0; i < T::WARPS * T::WS; i++) mb_init(empty + 8 * (T::XS + i), 16);
        FENCE_MBAR_INIT();
    }
    __syncthreads(); // the barriers are initialised

    if (warp >= T::WARPS) { // copies x; TMA writes zeros beyond the end of k
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
    constexpr int registers = T::REGISTERS, threads = T::WARPS * 32;
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));

    const int r = lane >> 2, q = lane & 3;
    // The first byte of row `in` of the warp's 16 rows of a tile, and its scale. Rows beyond n read the last row.
    const auto row_of = [&](int tile, int in, float* scale) {
        int row = min(tile * T::COLS + warp * 16 + in, a.n - 1);
        if (a.is_gated) row = (row >> 4) * 8 + (row & 7) + (row & 8 ? a.n / 2 : 0);
        int before = 0, part = 0;
        while (part < SUMI_GEMM_STORED_PARTS - 1 && row >= a.end[part]) before = a.end[part++];
        *scale = a.scale[part];
        return (const uint8_t*)a.from[part] + (int64_t)(row - before) * a.row_bytes;
    };
    uint8_t* const ring = shared + T::XS * T::X_STAGE + warp * T::WS * T::W_STAGE;
    const u32 ring_smem = smem_addr(ring);
    if (!T::IS_WHOLE && a.k % 256 != 0) {
        // Beyond a row's end x is zero. w is then what the ring slot holds: weights of an earlier chunk, or these
        // zeros. It must be finite, because NaN and infinity times zero are NaN.
        for (int i = lane; i < T::WS * T::W_STAGE / 16; i += 32) *(uint4*)(ring + i * 16) = make_uint4(0, 0, 0, 0);
        FENCE_PROXY_ASYNC();
        __syncwarp();
    }
    // Copies the next chunk of the warp's 16 rows, one row for each of 16 lanes: all 16-byte units that the row's chunk
    // lies in. next, next_slot, next_stage: its place in the list, in the ring buffer and in the tile.
    int next = begin, next_slot = 0, next_stage = begin % stages;
    const uint8_t* from = nullptr;
    float unused;
    const auto fetch = [&] {
        if (next >= end) return;
        if (lane < 16) {
            if (next_stage == 0 || next == begin) from = row_of(next / stages, lane, &unused);
            const uint8_t* at = from + (int64_t)next_stage * T::BYTES;
            const int before = T::IS_EVEN ? 0 : (int)((uint64_t)at & 15u);
            const u32 bytes = (u32)(before + min(T::BYTES, a.row_bytes - next_stage * T::BYTES) + 15) / 16 * 16,
                      bar = w_full + 8 * next_slot;
            mb_expect(bar, bytes);
            bulk_load(ring_smem + next_slot * T::W_STAGE + lane * T::PITCH, at - before, bytes, bar);
        }
        next++;
        next_stage = next_stage + 1 == stages ? 0 : next_stage + 1;
        next_slot = next_slot + 1 == T::WS ? 0 : next_slot + 1;
    };
#pragma unroll
    for (int i = 0; i < T::WS - 1; i++) fetch();

    float acc[T::ROWS / 2];
    // The ring slots that are read next, and the parities of their barriers. last_slot: the slot of x whose products
    // may still be in flight, -1: none. leave() releases it once its products are done.
    int slot = 0, phase = 0, w_slot = 0, w_phase = 0, last_slot = -1;
    const auto leave = [&] {
        if (last_slot >= 0 && lane == 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + 8 * last_slot) : "memory");
    };
    for (int at = begin; at < end;) {
        const int tile = at / stages, first_stage = at % stages, last_stage = min(stages, first_stage + end - at);
        at += last_stage - first_stage;
        float scale[2];
        // Low address bits of the lane's two rows: with IS_EVEN false they say where a row begins in its first 16
        // bytes.
        const u32 low[2] = {(u32)(uint64_t)row_of(tile, r, &scale[0]), (u32)(uint64_t)row_of(tile, r + 8, &scale[1])};
#pragma unroll
        for (int i = 0; i < T::ROWS / 2; i++) acc[i] = 0.0f;
#pragma unroll 1
        for (int stage = first_stage; stage < last_stage; stage++) {
            mb_wait(w_full + 8 * w_slot, w_phase);
            __syncwarp();
            const uint8_t* w = ring + w_slot * T::W_STAGE + r * T::PITCH;
            if (++w_slot == T::WS) w_slot = 0, w_phase ^= 1;
            const u32 shift[2] = {T::IS_EVEN ? 0u : (low[0] + (u32)(stage * T::BYTES)) & 15u,
                                  T::IS_EVEN ? 0u : (low[1] + (u32)(stage * T::BYTES)) & 15u};
            const stored<TYPE, true> upper(w + shift[0], 2 * q), lower(w + 8 * T::PITCH + shift[1], 2 * q);
            fetch(); // overwrites the chunk before this one, which all lanes have read
            // Two sets of registers: wgmma reads one set while the lane unpacks into the other.
            u32 operands[2][4][4];
#pragma unroll
            for (int b = 0; b < 4; b++) {
#pragma unroll
                for (int g = 0; g < 2; g++) {
                    const uint4 u = stored_bf16(upper, 2 * b + g, scale[0]),
                                v = stored_bf16(lower, 2 * b + g, scale[1]);
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

        // The end of the block's share of a tile. The warp finishes up to 32 rows of x at a time, transposed through
        // its own memory `turned`: then a lane has two neighbouring columns of y, which are two rows of w.
        const finish_activation act = finish_activation_of(a.swiglu ? 0 : a.finish.activation);
        const int pairs = a.swiglu ? 4 : 8, step = 32 / pairs, c = lane % pairs * 2, n = a.swiglu ? a.n / 2 : a.n,
                  n0 = (tile * T::COLS + warp * 16) / (a.swiglu ? 2 : 1);
        const stored_columns columns = stored_columns_of(a.finish, finish_gate_row(a.finish), n, n0 + c, a.swiglu != 0);
        // Writes value i & 3 of the accumulator group of rows 8 at .. 8 at + 7 of x.
        const auto turn = [&](int i, int at, float value) {
            turned[warp][at * 8 + 2 * q + (i & 1)][r + (i >> 1 & 1) * 8] = value;
        };
        constexpr int COUNT = T::ROWS / 8; // float4 of a thread's sums; number i: rows 8 i .. 8 i + 7 of x
        const int most = (COUNT + a.cluster - 1) / a.cluster;
        int begin_count = 0, end_count = COUNT;
        if (is_clustered) { // block b finishes numbers COUNT b / cluster .. COUNT (b + 1) / cluster - 1
            begin_count = COUNT * rank / a.cluster, end_count = COUNT * (rank + 1) / a.cluster;
            cluster_sync(); // all blocks are done with their ring buffers, which the sums overwrite
            int to = 0, to_first = 0, to_next = COUNT / a.cluster;
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                if (i == to_next) to++, to_first = i, to_next = COUNT * (to + 1) / a.cluster;
                if (m0 + 8 * i < a.m)
                    st_cluster(smem + (((rank * most + i - to_first) * threads + (int)threadIdx.x) << 4), to,
                               make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]));
            }
            cluster_sync(); // all partial sums have arrived
        }

        const bool is_whole = is_clustered || (first_stage == 0 && last_stage == stages);
        bool finishes = is_whole;
        if (!is_whole) {
            // The partial sums of block `its`. Each block has memory for two: one for its first tile and one for its
            // last. It does all chunks of the tiles between them.
            const auto place = [&](int its) {
                const int first = (int)((int64_t)all * its / blocks) / stages == tile ? 0 : 1;
                return (float4*)a.parts + (((int64_t)blockIdx.y * blocks + its) * 2 + first) * COUNT * threads
                     + threadIdx.x;
            };
            uint32_t* const arrivals = (uint32_t*)a.arrivals + (int64_t)blockIdx.y * tiles + tile;
            float4* const mine = place(block);
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                if (m0 + 8 * i < a.m)
                    __stcg(mine + i * threads, make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]));
            }
            // The first and the last block that do chunks of the tile.
            const int first = (int)((((int64_t)tile * stages + 1) * blocks - 1) / all),
                      last = (int)((((int64_t)tile + 1) * stages * blocks - 1) / all);
            // Named barrier 1 holds the unpacking warps only: the TMA warpgroup has left the kernel or still copies.
            __threadfence(); // this thread's part of the partial sum is visible to all blocks
            asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); // every thread's part is
            if (threadIdx.x == 0) is_last = atomicAdd(arrivals, 1u) == (uint32_t)(last - first);
            asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); // is_last is written
            finishes = is_last != 0;
            if (finishes) {
                __threadfence(); // no partial sum is read before the counter was
#pragma unroll
                for (int i = 0; i < T::ROWS / 2; i++) acc[i] = 0.0f;
#pragma unroll T::ROWS <= 64 ? 2 : 1
                for (int with = first; with <= last; with++) {
                    const float4* its = place(with);
#pragma unroll
                    for (int i = 0; i < COUNT; i++) {
                        const float4 v =
                            m0 + 8 * i < a.m ? __ldcg(its + i * threads) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                        acc[4 * i] += v.x, acc[4 * i + 1] += v.y, acc[4 * i + 2] += v.z, acc[4 * i + 3] += v.w;
                    }
                }
                if (threadIdx.x == 0) *arrivals = 0;
            }
            asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); // all have read is_last
        }
        if (!finishes) continue;
#pragma unroll 1
        for (int i = begin_count; i < end_count && m0 + 8 * i < a.m; i += 4) {
            if (is_clustered) {
                for (int j = 0; j < 4 && i + j < end_count; j++) {
                    const float4* its = (const float4*)shared + (i + j - begin_count) * threads + threadIdx.x;
                    float4 sum = *its;
                    for (int b = 1; b < a.cluster; b++) {
                        const float4 v = its[b * most * threads];
                        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
                    }
                    turn(0, j, sum.x), turn(1, j, sum.y), turn(2, j, sum.z), turn(3, j, sum.w);
                }
            } else {
                // A loop that is not unrolled cannot index registers, and the unrolled outer loop is several times the
                // code. So this inner loop is unrolled and selects the registers by comparison.
#pragma unroll
                for (int k = 0; k < COUNT; k += 4) {
                    if (k != i) continue;
#pragma unroll
                    for (int j = 0; j < 16; j++) turn(j, j / 4, acc[4 * k + j]);
                }
            }
            __syncwarp(); // `turned` is written
            const int row = m0 + 8 * i, end_row = min(a.m, m0 + 8 * end_count);
#pragma unroll 1
            for (int line = lane / pairs; line < 32 && row + line < end_row && n0 + c < n; line += 4 * step)
                stored_finish<4>(a.finish, act, columns, n - n0 - c, end_row, row + line, step, [&](int j) {
                    const float* its = turned[warp][line + j * step] + c;
                    const float2 first = *(const float2*)its, second = *(const float2*)(its + (a.swiglu ? 8 : 0));
                    return a.swiglu ? make_float2(finish_swiglu(first.x, second.x), finish_swiglu(first.y, second.y))
                                    : first;
                });
            __syncwarp(); // `turned` is read and may be overwritten
        }
    }
}

#define KERNEL(name, number, ROWS, GROUPS, XS)                                                                         \
    extern "C" __global__ void __launch_bounds__(SUMI_GEMM_STORED_SM90_THREADS(GROUPS), 1)                             \
        sumi_gemm_stored_sm90_##name##_##ROWS(const __grid_constant__ sumi_tmap mx,                                    \
                                              const __grid_constant__ sumi_gemm_stored_args a)                         \
    {                                                                                                                  \
        gemm_stored_sm90<number, stored_sm90_tile<number, ROWS, GROUPS, XS>>(mx, a);                                   \
    }
#define TYPE(name, number, bytes)                                                                                      \
    KERNEL(name, number, 64, 3, 5) KERNEL(name, number, 128, 3, 5) KERNEL(name, number, 256, 2, 3)
SUMI_STORED_SM90_TYPES(TYPE)
