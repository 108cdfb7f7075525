// The pipeline of the portable GEMM: y = epilogue(x w^T), both operands row-major with k contiguous; bf16 or e4m3 with
// float accumulators, or int8 with int accumulators. conv.cu uses its main loop with a loader of its own.
//
//   A block computes a tile of BM x BN, each warp WM x WN of it. A k-block is RB bytes of k (64 or 128). cp.async fills
//   a ring buffer of ST stages in shared memory. A stage holds one k-block of BM rows of x, then of BN rows of w,
//   swizzled by at() of portable_sm80.cuh. ldmatrix reads fragments of 32 bytes of k (a k-step) into one of two sets of
//   registers, while the tensor cores multiply the fragments of the other set. portable_sm80.cuh draws the fragments.
//
//      global --cp.async--> stage 0..ST-1 --ldmatrix--> af, bf[2] --mma.sync--> acc --> epilogue --> global
#pragma once
#include "gemm_epilogue.cuh"
#include "portable_sm80.cuh"

// 128 bytes, passed by value: the beginning of sumi_gemm_portable_args (gemm.h).
struct sumi_gemm_args {
    const void *x, *w;
    u16* y;
    const u16* residual;
    const float *bias, *gate, *row_scale, *col_scale;
    // Split k: partial sums [tiles][split][BM * BN]; counters [tiles], zero before and after the launch.
    void* partial_sums;
    u32* arrivals;
    int m, n, k, ldx, ldw, ldy, ldr, group; // pitches in elements; group: tile rows walked together
    int split, reserved[3];                 // split: blocks that share a tile's k (grid.y)
};
struct sumi_gemm_any_epilogue_args {
    sumi_gemm_args gemm;
    sumi_gemm_epilogue epilogue;
};
static_assert(sizeof(sumi_gemm_args) == 128 && sizeof(sumi_gemm_any_epilogue_args) == sizeof(sumi_gemm_portable_args),
              "the launcher's struct");

// The constants of a kernel. OP: SUMI_OPERANDS_*. MT, NT: m16n8 accumulators of a warp in rows and columns. KS: k-steps
// of a k-block. CH: 16-byte chunks in a row of a stage. ES: bytes of an element. ROWS: rows that one cp.async of every
// thread fills. XC, WC: how often a thread copies 16 bytes of x and of w for a stage.
template <int BM_, int BN_, int BKB_, int ST_, int WM_, int WN_, int EPILOGUE_, int OP_ = 0, int SPLIT_ = 0,
          int MINB_ = 1>
struct sumi_ptile {
    enum {
        BM = BM_,
        BN = BN_,
        RB = BKB_,
        ST = ST_,
        WM = WM_,
        WN = WN_,
        EPILOGUE = EPILOGUE_,
        OP = OP_,
        SPLIT = SPLIT_,
        MINB = MINB_,
        WARPS = (BM / WM) * (BN / WN),
        THREADS = WARPS * 32,
        MT = WM / 16,
        NT = WN / 8,
        KS = RB / 32,
        CH = RB / 16,
        ES = OP == SUMI_OPERANDS_BF16 ? 2 : 1,
        ROWS = THREADS / CH,
        XC = BM / ROWS,
        WC = BN / ROWS,
        STAGE = (BM + BN) * RB,
        SMEM = ST * STAGE
    };
    typedef typename sumi_sum<OP>::type sum;
    static_assert(BM % ROWS == 0 && BN % ROWS == 0 && ROWS % 8 == 0 && NT % 2 == 0 && MT * NT <= 32 && KS % 2 == 0,
                  "tile");
};

// Copies k-blocks of both operands into stages. Rows past the end of x or w read the last row, and their results are
// dropped. Elements past the end of k are zero. xo, wo: offsets of the thread's rows, in 16-byte units.
template <class T> struct sumi_loader {
    const u8 *x, *w;
    u32 xo[T::XC], wo[T::WC], dst;
    int chunk, chunks;
    SUMI_DEVICE sumi_loader(const sumi_gemm_args& a, int m0, int n0, u32 smem, int kb0)
    {
        const int r = threadIdx.x / T::CH;
        chunk = threadIdx.x % T::CH;
        dst = smem + at<T::RB>(r, chunk);
        x = (const u8*)a.x;
        w = (const u8*)a.w;
        const int per = 16 / T::ES;
        chunks = (a.k + per - 1) / per;
#pragma unroll
        for (int i = 0; i < T::XC; i++) xo[i] = (u32)min(m0 + r + i * T::ROWS, a.m - 1) * (u32)(a.ldx / per) + chunk;
#pragma unroll
        for (int i = 0; i < T::WC; i++) wo[i] = (u32)min(n0 + r + i * T::ROWS, a.n - 1) * (u32)(a.ldw / per) + chunk;
        chunk += kb0 * T::CH;
        x += (u64)kb0 * T::RB;
        w += (u64)kb0 * T::RB;
    }
    SUMI_DEVICE void fetch(int stage)
    { // each call copies the next k-block
        const u32 d = dst + stage * T::STAGE;
        const int bytes = chunk < chunks ? 16 : 0;
#pragma unroll
        for (int i = 0; i < T::XC; i++) copy_async_16(d + i * T::ROWS * T::RB, x + ((u64)xo[i] << 4), bytes);
#pragma unroll
        for (int i = 0; i < T::WC; i++) copy_async_16(d + (T::BM + i * T::ROWS) * T::RB, w + ((u64)wo[i] << 4), bytes);
        chunk += T::CH;
        x += T::RB;
        w += T::RB;
    }
};

// acc = the product of `count` k-blocks, for the warp whose tile begins at row wm and column wn of the block's tile.
// All threads of the block call it.
template <class T>
SUMI_DEVICE void sumi_mainloop(sumi_loader<T>& load, typename T::sum (&acc)[T::MT][T::NT][4], u32 smem, int count,
                               int wm, int wn)
{
    const int l = threadIdx.x & 31;
    u32 af[2][T::MT][4], bf[2][T::NT / 2][4];
    // The row addresses that this lane gives ldmatrix, for k-step 0 of stage 0 (chunk 0 or 1 of a row):
    //   lanes             0..7    8..15   16..23  24..31
    //   x: row of 16      0..7    8..15   0..7    8..15
    //      chunk          0       0       1       1
    //      register       a0      a1      a2      a3
    //   w: row of 16      0..7    0..7    8..15   8..15
    //      chunk          0       1       0       1
    //      register       b0      b1      b0      b1          rows 0..7: accumulator group 2 j, rows 8..15: 2 j + 1
    const u32 pa = smem + at<T::RB>(wm + (l & 15), l >> 4),
              pb = smem + T::BM * T::RB + at<T::RB>(wn + (l & 7) + ((l >> 4) << 3), (l >> 3) & 1);
#pragma unroll
    for (int s = 0; s < T::ST - 1; s++) {
        if (s < count) load.fetch(s);
        copy_async_commit();
    }
#pragma unroll
    for (int i = 0; i < T::MT; i++)
#pragma unroll
        for (int j = 0; j < T::NT; j++) acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0;
    auto load_fragments = [&](int buf, u32 off, int t) {
#pragma unroll
        for (int i = 0; i < T::MT; i++) load_matrix_x4(af[buf][i], step<T::RB>(pa + off, t) + i * 16 * T::RB);
#pragma unroll
        for (int j = 0; j < T::NT / 2; j++) load_matrix_x4(bf[buf][j], step<T::RB>(pb + off, t) + j * 16 * T::RB);
    };
    auto products = [&](int buf) {
#pragma unroll
        for (int i = 0; i < T::MT; i++)
#pragma unroll
            for (int j = 0; j < T::NT; j++) {
                // Every second row of accumulators runs backwards, so that each product shares a fragment with the one
                // before.
                const int jj = i & 1 ? T::NT - 1 - j : j;
                mma<T::OP>(acc[i][jj], af[buf][i], bf[buf][jj / 2][jj % 2 * 2], bf[buf][jj / 2][jj % 2 * 2 + 1]);
            }
    };
    int rs = 0, ws = T::ST - 1; // the stages that are read and written
    // Fetches k-block kb + ST - 1. A group is committed even when there is nothing left to fetch, so that
    // copy_async_wait counts.
    auto next = [&](int kb) {
        if (kb + T::ST - 1 < count) load.fetch(ws);
        copy_async_commit();
        ws = ws + 1 == T::ST ? 0 : ws + 1;
    };
    copy_async_wait<T::ST - 2>();
    __syncthreads(); // stage 0 is complete
    load_fragments(0, 0, 0);
    for (int kb = 0; kb < count; kb++) {
#pragma unroll
        for (int t = 0; t < T::KS; t++) {
            // The next stage is complete after this barrier. All warps have also read the last fragments of the current
            // stage, so next() may overwrite it.
            if (t == T::KS - 1) {
                copy_async_wait<T::ST - 2>();
                __syncthreads();
                rs = rs + 1 == T::ST ? 0 : rs + 1;
                load_fragments((t + 1) & 1, rs * T::STAGE, 0);
            } else load_fragments((t + 1) & 1, rs * T::STAGE, t + 1);
            if (t == 0) next(kb);
            products(t & 1);
        }
    }
    copy_async_wait<0>(); // no copy is in flight: the caller may use the shared memory after its next barrier
}

// Finishes and stores the warp's tile, from row m0 and column n0 of the product on, with the epilogue T::EPILOGUE. It
// works on four groups of 8 columns at a time, transposed within quads so that each lane stores 16 bytes.
template <class T>
SUMI_DEVICE void sumi_epilogue(const sumi_gemm_args& a, typename T::sum (&acc)[T::MT][T::NT][4], int m0, int n0)
{
    // W: accumulator groups per output group; G: output groups per round
    constexpr int W = T::EPILOGUE & SUMI_EPILOGUE_SWIGLU ? 2 : 1, G = T::NT / W % 4 == 0 ? 4
                                                                    : T::NT / W % 2 == 0 ? 2
                                                                                         : 1;
    const int l = threadIdx.x & 31, q = l & 3;
#pragma unroll
    for (int g = 0; g < T::NT; g += G * W) {
        u32 r[T::MT][2][G];
        float b[G * W][2], ga[G * W][2], cs[G * W][2];
        (void)r;
        (void)b;
        (void)ga;
        (void)cs;
#pragma unroll
        for (int j = 0; j < G * W; j++) {
            const int c = n0 + (g + j) * 8 + q * 2;
            const bool ok = c < a.n;
            if (T::EPILOGUE & SUMI_EPILOGUE_BIAS) b[j][0] = ok ? a.bias[c] : 0.f, b[j][1] = ok ? a.bias[c + 1] : 0.f;
            if (T::EPILOGUE & SUMI_EPILOGUE_GATE) ga[j][0] = ok ? a.gate[c] : 0.f, ga[j][1] = ok ? a.gate[c + 1] : 0.f;
            if (T::EPILOGUE & SUMI_EPILOGUE_SCALE)
                cs[j][0] = ok ? a.col_scale[c] : 0.f, cs[j][1] = ok ? a.col_scale[c + 1] : 0.f;
        }
        long long rows[T::MT][2]; // the lane's rows of y, -1 past the end
#pragma unroll
        for (int i = 0; i < T::MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int m = m0 + i * 16 + h * 8 + (l >> 2);
                const long long p = m;
                rows[i][h] = m < a.m ? p : -1;
                if (T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL)
#pragma unroll
                    for (int j = 0; j < G; j++) {
                        const int c = n0 + (g + j) * 8 + q * 2;
                        r[i][h][j] = m < a.m && c < a.n ? *(const u32*)(a.residual + p * a.ldr + c) : 0u;
                    }
            }
#pragma unroll
        for (int i = 0; i < T::MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 o[G];
                const int m = m0 + i * 16 + h * 8 + (l >> 2);
                float rs = 1.f;
                if (T::EPILOGUE & SUMI_EPILOGUE_SCALE) rs = m < a.m ? a.row_scale[m] : 0.f;
#pragma unroll
                for (int j = 0; j < G; j++) {
                    float v[W][2];
#pragma unroll
                    for (int z = 0; z < W; z++)
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                            float s = (float)acc[i][g + j * W + z][h * 2 + e];
                            if (T::EPILOGUE & SUMI_EPILOGUE_SCALE) s *= rs * cs[j * W + z][e];
                            if (T::EPILOGUE & SUMI_EPILOGUE_BIAS) s += b[j * W + z][e];
                            if (T::EPILOGUE & SUMI_EPILOGUE_GELU) s = gelu_tanh(s);
                            if (T::EPILOGUE & SUMI_EPILOGUE_RESIDUAL) {
                                const float base = e ? bf16_high(r[i][h][j]) : bf16_low(r[i][h][j]);
                                s = T::EPILOGUE & SUMI_EPILOGUE_GATE ? fmaf(ga[j * W + z][e], s, base) : base + s;
                            }
                            v[z][e] = s;
                        }
                    o[j] = W == 2 ? pack_bf16(silu(v[0][0]) * v[W - 1][0], silu(v[0][1]) * v[W - 1][1])
                                  : pack_bf16(v[0][0], v[0][1]);
                }
                const int nout = a.n / W, c0 = n0 / W + g / W * 8;
                if (G == 4) {
                    quad_transpose(o[0], o[1 % G], o[2 % G], o[3 % G], l);
                    const int c = c0 + q * 8;
                    if (rows[i][h] >= 0 && c < nout)
                        *(uint4*)(a.y + rows[i][h] * a.ldy + c) = make_uint4(o[0], o[1 % G], o[2 % G], o[3 % G]);
                } else {
#pragma unroll
                    for (int j = 0; j < G; j++)
                        if (rows[i][h] >= 0 && c0 + j * 8 < nout)
                            *(u32*)(a.y + rows[i][h] * a.ldy + c0 + j * 8 + q * 2) = o[j];
                }
            }
    }
}

// The kernel. Tiles are numbered in groups of `group` tile rows: within a group all rows of a column come first, then
// the next column, so that the rows of x of a group stay in L2 while all of w is read.
template <class T>
SUMI_DEVICE void sumi_gemm_body(const sumi_gemm_args& a, const sumi_gemm_epilogue* epilogue = nullptr)
{
    extern __shared__ __align__(128) u8 shared[];
    const u32 smem = (u32)__cvta_generic_to_shared(shared);
    const int tm = (a.m + T::BM - 1) / T::BM, tn = (a.n + T::BN - 1) / T::BN, per = a.group * tn,
              first = blockIdx.x / per * a.group, high = min(a.group, tm - first), in = blockIdx.x % per;
    const int m0 = (first + in % high) * T::BM, n0 = in / high * T::BN;
    const int warp = threadIdx.x >> 5, wm = warp % (T::BM / T::WM) * T::WM, wn = warp / (T::BM / T::WM) * T::WN;
    int blocks = (a.k * T::ES + T::RB - 1) / T::RB, kb0 = 0;
    if (T::SPLIT) {
        const int s = blockIdx.y;
        kb0 = (int)((long long)blocks * s / a.split);
        blocks = (int)((long long)blocks * (s + 1) / a.split) - kb0;
    }
    typename T::sum acc[T::MT][T::NT][4];
    {
        sumi_loader<T> load(a, m0, n0, smem, kb0);
        sumi_mainloop<T>(load, acc, smem, blocks, wm, wn);
    }
    // Split k: every block writes its partial sum, and the block that arrives last at the tile's counter adds all of
    // them in the order of k. __stcg and __ldcg bypass L1, which is not coherent between multiprocessors.
    if constexpr (T::SPLIT != 0)
        if (a.split > 1) {
            typedef sumi_four<typename T::sum> four;
            typedef typename four::type vector;
            vector* p =
                (vector*)a.partial_sums + ((u64)blockIdx.x * a.split * (T::MT * T::NT)) * T::THREADS + threadIdx.x;
            const u64 pitch = (u64)(T::MT * T::NT) * T::THREADS;
#pragma unroll
            for (int i = 0; i < T::MT * T::NT; i++) {
                typename T::sum(&v)[4] = acc[i / T::NT][i % T::NT];
                __stcg(p + blockIdx.y * pitch + i * T::THREADS, four::of(v[0], v[1], v[2], v[3]));
            }
            __threadfence(); // this thread's part of the partial sum is visible to all blocks
            __syncthreads(); // every thread's part is; the stages in `shared` are no longer read
            u32* flag = (u32*)shared;
            if (threadIdx.x == 0) *flag = atomicAdd(a.arrivals + blockIdx.x, 1u);
            __syncthreads(); // the flag is written
            if (*flag != (u32)a.split - 1) return;
            __threadfence(); // no partial sum is read before the counter was
#pragma unroll
            for (int i = 0; i < T::MT * T::NT; i++)
                acc[i / T::NT][i % T::NT][0] = acc[i / T::NT][i % T::NT][1] = acc[i / T::NT][i % T::NT][2] =
                    acc[i / T::NT][i % T::NT][3] = 0;
#pragma unroll T::MT* T::NT <= 4 ? 4 : T::MT* T::NT <= 8 ? 2 : 1
            for (int s = 0; s < a.split; s++)
#pragma unroll
                for (int i = 0; i < T::MT * T::NT; i++) {
                    const vector v = __ldcg(p + s * pitch + i * T::THREADS);
                    typename T::sum(&d)[4] = acc[i / T::NT][i % T::NT];
                    d[0] += v.x;
                    d[1] += v.y;
                    d[2] += v.z;
                    d[3] += v.w;
                }
            if (threadIdx.x == 0) a.arrivals[blockIdx.x] = 0;
        }
    if constexpr ((T::EPILOGUE & SUMI_EPILOGUE_ANY) != 0)
        epilogue_tile<T::MT, T::NT, (T::EPILOGUE & SUMI_EPILOGUE_SWIGLU) != 0, T::OP != SUMI_OPERANDS_BF16>(
            *epilogue, a.m, a.n, m0 + wm, n0 + wn, [&](int i, int j, int e) { return (float)acc[i][j][e]; });
    else sumi_epilogue<T>(a, acc, m0 + wm, n0 + wn);
}
// Defines a kernel `name`; the arguments are those of sumi_ptile.
#define SUMI_GEMM_PORTABLE(name, ...)                                                                                  \
    namespace {                                                                                                        \
    typedef sumi_ptile<__VA_ARGS__> t_##name;                                                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(t_##name::THREADS, t_##name::MINB)                                    \
        name(const __grid_constant__ sumi_gemm_args a)                                                                 \
    {                                                                                                                  \
        sumi_gemm_body<t_##name>(a);                                                                                   \
    }
// The same for SUMI_EPILOGUE_ANY: the epilogue is read from the launch's sumi_gemm_epilogue.
#define SUMI_GEMM_PORTABLE_ANY(name, ...)                                                                              \
    namespace {                                                                                                        \
    typedef sumi_ptile<__VA_ARGS__> t_##name;                                                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(t_##name::THREADS, t_##name::MINB)                                    \
        name(const __grid_constant__ sumi_gemm_any_epilogue_args a)                                                    \
    {                                                                                                                  \
        sumi_gemm_body<t_##name>(a.gemm, &a.epilogue);                                                                 \
    }
