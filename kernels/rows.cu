// Ops that work row by row on token matrices: embedding, norms, rotary embedding, gating, tables of positions and
// times. Storage is bf16 or float, arithmetic float. All kernels are bound by bytes: each reads and writes its matrices
// once, with 16 bytes per thread where the width is a multiple of 8. The row of a step table (modulation) is found from
// the counter in device memory, so a launch captured in a graph is right for every step.
//   every kernel: block 256 (SUMI_ROWS_THREADS), static shared memory, but for sumi_norm_*_rows (rows.cuh).
//   Arguments: rows.h. Any grid, unless the kernel says otherwise.
#include "rows.cuh"
#include "stored.cuh"

// The first row and column of a thread of an elementwise kernel, with 2^lanes_log2 threads per row, and its strides.
struct row_place {
    int64_t row, stride;
    int lane, lanes;
};
SUMI_DEVICE row_place place_of(int lanes_log2, int64_t row_begin)
{
    const int rows = SUMI_ROWS_THREADS >> lanes_log2;
    return {row_begin + (int64_t)blockIdx.x * rows + (threadIdx.x >> lanes_log2), (int64_t)gridDim.x * rows,
            (int)(threadIdx.x & ((1u << lanes_log2) - 1)), 1 << lanes_log2};
}

// ---- embed_rows, fill_rows, copy_bytes, mean_rows -------------------------------------------------------------------
// y[r] = table[ids[r]] * scale + bias   ids [rows] int32   table [table_rows][pitch] bf16, or in pieces of piece_rows
// rows
//                                       bias [cols] float or none   y [rows][cols]
// An id outside the table gives a row of NaN. Nothing outside the table is read, and the image is reported as not
// finite instead of being wrong without notice.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_embed_rows(const __grid_constant__ sumi_embed_rows_args a)
{
    row_place p = place_of(a.lanes_log2, a.row_begin);
    for (; p.row < a.row_end; p.row += p.stride) {
        const int32_t id = ((const int32_t*)a.ids)[p.row];
        const bool is_known = id >= 0 && id < a.table_rows;
        const float scale = is_known ? a.scale : __int_as_float(0x7fffffff);
        const int row = is_known ? id : 0;
        const bf16* x = a.piece_rows == 0
                          ? (const bf16*)a.table + row * (int64_t)a.pitch
                          : ((const bf16* const*)a.table)[row / a.piece_rows] + row % a.piece_rows * (int64_t)a.pitch;
        const int64_t y = p.row * a.cols;
        if (a.is_vector) {
            for (int c = 8 * p.lane; c < a.cols; c += 8 * p.lanes) {
                float v[8];
                load8(x + c, v);
#pragma unroll
                for (int i = 0; i < 8; i++) v[i] *= scale;
                if (a.bias != 0) {
                    float bias[8];
                    load8_float((const float*)a.bias + c, bias);
#pragma unroll
                    for (int i = 0; i < 8; i++) v[i] += bias[i];
                }
                store8((bf16*)a.y.data + y + c, v);
            }
        } else {
            for (int c = p.lane; c < a.cols; c += p.lanes) {
                const float v = __bfloat162float(x[c]) * scale;
                store_element(a.y.data, a.y.is_float, y + c, a.bias != 0 ? v + ((const float*)a.bias)[c] : v);
            }
        }
    }
}

// The same for a table in the bytes of its file (stored). Its elements are rounded to bf16 first, like those of a table
// that is converted when it is loaded. There are few rows, so the type is chosen at run time.
template <int TYPE> SUMI_DEVICE uint4 embedded(const uint8_t* row, int c, float scale)
{
    const stored<TYPE> chunk(row + c / 256 * stored_layout<TYPE>::BYTES, c % 32);
    return stored_bf16(chunk, c % 256 / 32, scale);
}
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_embed_rows_stored(const __grid_constant__ sumi_embed_rows_args a)
{
    row_place p = place_of(a.lanes_log2, a.row_begin);
    for (; p.row < a.row_end; p.row += p.stride) {
        const int32_t id = ((const int32_t*)a.ids)[p.row];
        const bool is_known = id >= 0 && id < a.table_rows;
        const float scale = is_known ? a.scale : __int_as_float(0x7fffffff);
        const int row = is_known ? id : 0;
        const uint8_t* x = a.piece_rows == 0 ? (const uint8_t*)a.table + row * (int64_t)a.pitch
                                             : ((const uint8_t* const*)a.table)[row / a.piece_rows]
                                                   + row % a.piece_rows * (int64_t)a.pitch;
        for (int c = 8 * p.lane; c < a.cols; c += 8 * p.lanes) {
            uint4 packed = make_uint4(0, 0, 0, 0);
            switch (a.type) {
#define TYPE(name, number, bytes)                                                                                      \
    case number: packed = embedded<number>(x, c, a.type_scale); break;
                SUMI_STORED_TYPES(TYPE)
#undef TYPE
            }
            const uint32_t w[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float v = __uint_as_float(i % 2 == 0 ? w[i / 2] << 16 : w[i / 2] & 0xffff0000u) * scale;
                if (a.bias != 0) v += ((const float*)a.bias)[c + i];
                store_element(a.y.data, a.y.is_float, p.row * a.cols + c + i, v);
            }
        }
    }
}

// y[rows of the spans] = row   row [cols] float   grid (any, spans)
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_fill_rows(const __grid_constant__ sumi_fill_rows_args a)
{
    const int64_t begin = a.begin[blockIdx.y], end = begin + a.count[blockIdx.y];
    row_place p = place_of(a.lanes_log2, begin);
    for (; p.row < end; p.row += p.stride) {
        const int64_t y = p.row * a.cols;
        if (a.is_vector) {
            for (int c = 8 * p.lane; c < a.cols; c += 8 * p.lanes) {
                float v[8];
                load8_float((const float*)a.row + c, v);
                store8((bf16*)a.y.data + y + c, v);
            }
        } else {
            for (int c = p.lane; c < a.cols; c += p.lanes)
                store_element(a.y.data, a.y.is_float, y + c, ((const float*)a.row)[c]);
        }
    }
}

template <class T> SUMI_DEVICE void copy_as(const sumi_copy_bytes_args& a)
{
    const uint64_t at = (uint64_t)blockIdx.x * SUMI_ROWS_THREADS + threadIdx.x,
                   threads = (uint64_t)gridDim.x * SUMI_ROWS_THREADS, whole = a.bytes / sizeof(T);
    for (uint64_t i = at; i < whole; i += threads) ((T*)a.y)[i] = ((const T*)a.x)[i];
    for (uint64_t i = whole * sizeof(T) + at; i < a.bytes; i += threads) ((uint8_t*)a.y)[i] = ((const uint8_t*)a.x)[i];
}
// y[0 .. bytes) = x[0 .. bytes), in the widest units that both addresses allow. The ranges do not overlap.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_copy_bytes(const __grid_constant__ sumi_copy_bytes_args a)
{
    const uint64_t both = a.x | a.y;
    if ((both & 15) == 0) copy_as<uint4>(a);
    else if ((both & 3) == 0) copy_as<uint32_t>(a);
    else if ((both & 1) == 0) copy_as<uint16_t>(a);
    else copy_as<uint8_t>(a);
}

// y[y_row + s] = mean of the rows of x in span s   x [..][cols]   y [..][cols]   grid (any, spans) A block computes 32
// columns at a time, and a warp adds every eighth row of the span. The warps' sums are added in the order of the warps,
// so the order of all additions depends on the span's length only.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_mean_rows(const __grid_constant__ sumi_mean_rows_args a)
{
    constexpr int WARPS = SUMI_ROWS_THREADS / 32;
    __shared__ float sums[WARPS][32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, count = a.count[blockIdx.y];
    const int64_t first = a.begin[blockIdx.y], y = (int64_t)(a.y_row + (int)blockIdx.y) * a.cols;
    for (int base = 32 * (int)blockIdx.x; base < a.cols; base += 32 * (int)gridDim.x) {
        const int c = base + lane;
        float sum = 0.0f;
#pragma unroll 4
        for (int r = warp; c < a.cols && r < count; r += WARPS)
            sum += load_element(a.x.data, a.x.is_float, (first + r) * a.cols + c);
        sums[warp][lane] = sum;
        __syncthreads();
        if (warp == 0 && c < a.cols) {
#pragma unroll
            for (int w = 1; w < WARPS; w++) sum += sums[w][lane];
            store_element(a.y.data, a.y.is_float, y + c, sum / (float)count);
        }
        __syncthreads(); // the sums of the next 32 columns overwrite these
    }
}

// ---- activate, gated ------------------------------------------------------------------------------------------------
// an exp that overflows gives 1 / inf = 0
SUMI_DEVICE float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// The numbers are those of sumi_activation. The switch is outside the loop, because it is the same for all threads.
template <int N> SUMI_DEVICE void apply(int32_t activation, float (&v)[N])
{
    switch (activation) {
    case 1: // SiLU
#pragma unroll
        for (int i = 0; i < N; i++) v[i] *= sigmoid(v[i]);
        break;
    case 2: // GELU (tanh): (1 + tanh u) / 2 is the sigmoid of 2 u
#pragma unroll
        for (int i = 0; i < N; i++) v[i] *= sigmoid(v[i] * fmaf(v[i] * v[i], 0.044715f * 1.59576912f, 1.59576912f));
        break;
    case 3: // GELU (erf)
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = 0.5f * v[i] * (1.0f + erff(v[i] * 0.70710678f));
        break;
    case 4: // quick GELU
#pragma unroll
        for (int i = 0; i < N; i++) v[i] *= sigmoid(1.702f * v[i]);
        break;
    case 5:
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = tanhf(v[i]);
        break;
    default: break;
    }
}

// y[i] = act(x[i]) for elements [begin, end) of two matrices of the same shape, each bf16 or float. y may be x. With
// is_vector, begin is a multiple of 8.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_activate(const __grid_constant__ sumi_activate_args a)
{
    const int64_t at = (int64_t)blockIdx.x * SUMI_ROWS_THREADS + threadIdx.x,
                  threads = (int64_t)gridDim.x * SUMI_ROWS_THREADS;
    int64_t begin = a.begin;
    if (a.is_vector) {
        const int64_t chunks = (a.end - a.begin) >> 3;
        for (int64_t i = at; i < chunks; i += threads) {
            float v[8];
            load8((const bf16*)a.x.data + begin + 8 * i, v);
            apply(a.activation, v);
            store8((bf16*)a.y.data + begin + 8 * i, v);
        }
        begin += 8 * chunks;
    }
    for (int64_t i = begin + at; i < a.end; i += threads) {
        float v[1] = {load_element(a.x.data, a.x.is_float, i)};
        apply(a.activation, v);
        store_element(a.y.data, a.y.is_float, i, v[0]);
    }
}

// y[r, c] = act(x[r, c]) * x[r, cols + c]   x [rows][2 cols]   y [rows][cols] is_interleaved: the columns of x
// alternate in groups of eight: gate 0 .. 7, up 0 .. 7, gate 8 .. 15 and so on, as a product with a weight of
// FORM_GATED writes them.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS) sumi_gated(const __grid_constant__ sumi_gated_args a)
{
    row_place p = place_of(a.lanes_log2, a.row_begin);
    for (; p.row < a.row_end; p.row += p.stride) {
        const int64_t x = p.row * 2 * a.cols, y = p.row * a.cols;
        if (a.is_vector) {
            for (int c = 8 * p.lane; c < a.cols; c += 8 * p.lanes) {
                const bf16* gate = (const bf16*)a.x.data + x + (a.is_interleaved ? 2 * c : c);
                float v[8], up[8];
                load8(gate, v);
                load8(gate + (a.is_interleaved ? 8 : a.cols), up);
                apply(a.activation, v);
#pragma unroll
                for (int i = 0; i < 8; i++) v[i] *= up[i];
                store8((bf16*)a.y.data + y + c, v);
            }
        } else {
            for (int c = p.lane; c < a.cols; c += p.lanes) {
                const int64_t gate = x + (a.is_interleaved ? 2 * (c & ~7) + (c & 7) : c);
                float v[1] = {load_element(a.x.data, a.x.is_float, gate)};
                apply(a.activation, v);
                store_element(a.y.data, a.y.is_float, y + c,
                              v[0] * load_element(a.x.data, a.x.is_float, gate + (a.is_interleaved ? 8 : a.cols)));
            }
        }
    }
}

// ---- kronecker_add --------------------------------------------------------------------------------------------------
// y[y_row + r][column + i b + k] += gate * scale * sum over j of w[i, j] x[r c + j][k]
//   x [rows c][b]   y [..][ldy]   w [a][c] float
// A thread computes 8 rows of w times 8 columns of x (1 column where widths are not multiples of 8). For a w of 8 x 8,
// which is usual, x is read once, and each load is followed by 64 multiply-adds. The order of the sums depends on c
// only.
template <int COLS> SUMI_DEVICE void kronecker_add(const sumi_kronecker_add_args& a)
{
    constexpr int ROWS = 8;
    const int chunks = a.b / COLS, units = (a.a + ROWS - 1) / ROWS * chunks;
    const int32_t counter = *(const int32_t*)a.counter;
    row_place p = place_of(a.lanes_log2, a.row_begin);
    for (; p.row < a.row_end; p.row += p.stride) {
        const int64_t y = (a.y_row + p.row) * a.ldy;
        for (int unit = p.lane; unit < units; unit += p.lanes) {
            const int first = unit / chunks * ROWS, at = unit % chunks * COLS;
            int64_t x = p.row * a.c * a.b + at;
            float sum[ROWS][COLS] = {};
            for (int j = 0; j < a.c; j++, x += a.b) {
                float v[COLS];
                if constexpr (COLS == 8) load8((const bf16*)a.x.data + x, v);
                else v[0] = load_element(a.x.data, a.x.is_float, x);
#pragma unroll
                for (int i = 0; i < ROWS; i++) {
                    const float w = first + i < a.a ? ((const float*)a.w)[(first + i) * a.c + j] : 0.0f;
#pragma unroll
                    for (int k = 0; k < COLS; k++) sum[i][k] = fmaf(w, v[k], sum[i][k]);
                }
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                if (first + i >= a.a) break;
                const int in = (first + i) * a.b + at, column = a.column + in;
                const bool is_second = a.half != 0 && column >= a.half;
                const int own = column - (is_second ? a.half : 0);
                const int64_t to = y + (a.half == 0 ? column : own / 8 * 16 + (is_second ? 8 : 0) + own % 8);
                float gate[COLS], v[COLS];
#pragma unroll
                for (int k = 0; k < COLS; k++) gate[k] = 1.0f;
                if constexpr (COLS == 8) {
                    if (a.gate.table != 0) load8_step(a.gate, counter, in, gate);
                    load8((const bf16*)a.y.data + to, v);
                } else {
                    if (a.gate.table != 0) gate[0] = step_at(a.gate, counter, in);
                    v[0] = load_element(a.y.data, a.y.is_float, to);
                }
#pragma unroll
                for (int k = 0; k < COLS; k++) v[k] = fmaf(a.scale * gate[k], sum[i][k], v[k]);
                if constexpr (COLS == 8) store8((bf16*)a.y.data + to, v);
                else store_element(a.y.data, a.y.is_float, to, v[0]);
            }
        }
    }
}
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_kronecker_add(const __grid_constant__ sumi_kronecker_add_args a)
{
    kronecker_add<8>(a);
}
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_kronecker_add_any(const __grid_constant__ sumi_kronecker_add_args a)
{
    kronecker_add<1>(a);
}

// ---- norm_modulate, norm_gate_add -----------------------------------------------------------------------------------
// y[y_row + r] = norm(x[x_row + r]) * w * scale + shift
//   x, y [..][cols]   w [cols] float   scale, shift: rows of step tables   w, scale and shift are optional
// RMS norm or layer norm. sumi_norm_modulate_rows: bf16 in and out, cols a multiple of 8 up to SUMI_ROW_MOST_COLS.
// _any: all other cases.
SUMI_ROW_KERNEL(sumi_norm_modulate_rows, SUMI_NORM_LIMIT, 1, sumi_norm_modulate_args,
                norm_modulate<SUMI_OPERANDS_BF16>(args))
SUMI_ROW_KERNEL(sumi_norm_modulate_any, SUMI_ROWS_THREADS, 4, sumi_norm_modulate_args,
                norm_modulate_any<SUMI_OPERANDS_BF16>(args))

// y = silu(norm(x) * w), for pixels of an image. Rows have few columns, so a warp processes several. LANES lanes of a
// warp hold a row, each with CHUNKS chunks of 8 columns: chunk j of lane l is at column 8 (l + j LANES). A group of
// LANES lanes goes through rows with the grid's stride, and the loads of its next row are in flight while it reduces
// this one. y may be x. The order of the sums depends on the columns only.
template <int LANES> SUMI_DEVICE float group_sum(float v)
{
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) v += __shfl_xor_sync(~0u, v, mask);
    return v;
}
template <int LANES, int CHUNKS> SUMI_DEVICE void norm_silu(const sumi_norm_modulate_args& a)
{
    constexpr int GROUPS = SUMI_ROWS_THREADS / LANES;
    const int lane = threadIdx.x % LANES, chunks = a.cols >> 3;
    const int64_t stride = (int64_t)gridDim.x * GROUPS;
    const float per_column = 1.0f / (float)a.cols;
    int64_t r = a.row_end - 1 - (int64_t)blockIdx.x * GROUPS - threadIdx.x / LANES;
    const bf16* x = (const bf16*)a.x.data + (int64_t)a.x_row * a.cols;
    bf16* y = (bf16*)a.y.data + (int64_t)a.y_row * a.cols;
    uint4 raw[CHUNKS], next[CHUNKS];
    const auto load = [&](int64_t row) {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            const int chunk = lane + j * LANES;
            next[j] = make_uint4(0, 0, 0, 0);
            if (row >= a.row_begin && chunk < chunks) next[j] = ((const uint4*)(x + row * a.cols))[chunk];
        }
    };
    load(r);
    float factor[CHUNKS][8];
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        const int chunk = lane + j * LANES;
#pragma unroll
        for (int i = 0; i < 8; i++) factor[j][i] = 1.0f;
        if (a.w != 0 && chunk < chunks) load8_float((const float*)a.w + 8 * chunk, factor[j]);
#pragma unroll
        for (int i = 0; i < 8; i++) factor[j][i] += a.w != 0 && a.plus_one ? 1.0f : 0.0f;
    }
    // The groups of a warp have neighbouring rows. All of them go on while one has a row left, because shuffles need
    // all lanes.
    while (__any_sync(~0u, r >= a.row_begin)) {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) raw[j] = next[j];
        load(r - stride);
        float mean = 0.0f, squares = 0.0f, v[8];
        if (a.is_layer) {
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < CHUNKS; j++) {
                unpack8(raw[j], v); // chunks past the end are zeros
#pragma unroll
                for (int i = 0; i < 8; i++) sum += v[i];
            }
            mean = __fmul_rn(group_sum<LANES>(sum), per_column);
        }
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            unpack8(raw[j], v);
            if (lane + j * LANES < chunks) {
#pragma unroll
                for (int i = 0; i < 8; i++) squares = fmaf(v[i] - mean, v[i] - mean, squares);
            }
        }
        const float rstd = rsqrtf(fmaf(group_sum<LANES>(squares), per_column, a.eps));
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            const int chunk = lane + j * LANES;
            unpack8(raw[j], v);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v[i] = (v[i] - mean) * rstd * factor[j][i];
                v[i] *= sigmoid(v[i]);
            }
            if (r >= a.row_begin && chunk < chunks) store8(y + r * a.cols + 8 * chunk, v);
        }
        r -= stride;
    }
}
#define SUMI_NORM_SILU(COLS, BLOCKS, LANES, CHUNKS)                                                                    \
    extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS, BLOCKS)                                            \
        sumi_norm_silu_##COLS(const __grid_constant__ sumi_norm_modulate_args args)                                    \
    {                                                                                                                  \
        norm_silu<LANES, CHUNKS>(args);                                                                                \
    }
// sumi_norm_silu_<N>: bf16 in and out, cols a multiple of 8 up to N. _any: all other cases. Without scale and shift.
SUMI_NORM_SILU(128, 4, 16, 1)
SUMI_NORM_SILU(256, 4, 32, 1)
SUMI_NORM_SILU(512, 3, 32, 2)
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS, 4)
    sumi_norm_silu_any(const __grid_constant__ sumi_norm_modulate_args a)
{
    __shared__ __align__(16) float partial[2 * ROW_WARPS];
    row_block group(partial);
    for (int64_t r = a.row_begin + (int64_t)blockIdx.x; r < a.row_end; r += gridDim.x) {
        const int64_t x = (a.x_row + r) * a.cols, y = (a.y_row + r) * a.cols;
        float mean = 0.0f, squares = 0.0f;
        if (a.is_layer) {
            float sum = 0.0f;
            for (int c = threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS)
                sum += load_element(a.x.data, a.x.is_float, x + c);
            mean = group.sum(sum) / (float)a.cols;
        }
        for (int c = threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS) {
            const float d = load_element(a.x.data, a.x.is_float, x + c) - mean;
            squares = fmaf(d, d, squares);
        }
        const float rstd = 1.0f / sqrtf(group.sum(squares) / (float)a.cols + a.eps);
        for (int c = threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS) {
            float v = (load_element(a.x.data, a.x.is_float, x + c) - mean) * rstd;
            if (a.w != 0) v *= ((const float*)a.w)[c] + (a.plus_one ? 1.0f : 0.0f);
            store_element(a.y.data, a.y.is_float, y + c, v * sigmoid(v));
        }
    }
}

// x[x_row + r] += gate * (rms(b[b_row + r]) * w), in place   x, b [..][cols]
//   w [cols] float, gate: a row of a step table; both are optional. factor = w * gate.
// sumi_norm_gate_add_rows: bf16, cols a multiple of 8 up to SUMI_ROW_MOST_COLS. _any: all other cases.
SUMI_DEVICE void norm_gate_add(const sumi_norm_gate_add_args& a)
{
    extern __shared__ uint4 memory[];
    __shared__ __align__(16) float partial[2 * ROW_WARPS];
    row_block block(partial);
    const row_ring ring(memory, a.cols, 2);
    const int stride = (int)gridDim.x;
    bf16* x = (bf16*)a.x.data + (int64_t)a.x_row * a.cols + ring.column(0);
    const bf16* b = (const bf16*)a.b.data + (int64_t)a.b_row * a.cols + ring.column(0);
    const auto fetch = [&](int row, int stage) {
        if (row >= a.row_begin) {
            ring.fetch(b + (int64_t)row * a.cols, stage, 0);
            ring.fetch(x + (int64_t)row * a.cols, stage, 1);
        }
        ring.commit();
    };
    int r = a.row_end - 1 - (int)blockIdx.x;
#pragma unroll
    for (int s = 0; s < ROW_STAGES; s++) fetch(r - s * stride, s);
    const int32_t counter = counter_of(a.counter, a.gate.stride);
    float factor[ROW_CHUNKS][8], gate[ROW_CHUNKS][8];
    load_vector(a.w, ring, factor);
    load_steps(a.gate, counter, 1.0f, ring, gate);
    multiply(factor, 0.0f, gate);
    for (int stage = 0; r >= a.row_begin; r -= stride, stage = stage + 1 == ROW_STAGES ? 0 : stage + 1) {
        float branch[ROW_CHUNKS][8], v[ROW_CHUNKS][8];
        ring.wait();
        ring.read(stage, 0, branch);
        ring.read(stage, 1, v);
        gate_add_row<false>(a, block, ring, branch, factor, v, x + (int64_t)r * a.cols);
        fetch(r - ROW_STAGES * stride, stage);
    }
}
SUMI_ROW_KERNEL(sumi_norm_gate_add_rows, SUMI_NORM_LIMIT, 1, sumi_norm_gate_add_args, norm_gate_add(args))

// norm_gate_add and then norm_modulate (norm_pair in rows.cuh): bf16 in and out, cols a multiple of 8 up to
// SUMI_NORM_PAIR_MOST_COLS.
SUMI_ROW_KERNEL(sumi_norm_pair_rows, SUMI_NORM_LIMIT, 1, sumi_norm_pair_args, norm_pair<SUMI_OPERANDS_BF16>(args))

extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_norm_gate_add_any(const __grid_constant__ sumi_norm_gate_add_args a)
{
    __shared__ __align__(16) float partial[2 * ROW_WARPS];
    row_block group(partial);
    const int32_t counter = *(const int32_t*)a.counter;
    for (int64_t r = a.row_begin + (int64_t)blockIdx.x; r < a.row_end; r += gridDim.x) {
        const int64_t x = (a.x_row + r) * a.cols, b = (a.b_row + r) * a.cols;
        float squares = 0.0f;
        for (int c = threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS) {
            const float v = load_element(a.b.data, a.b.is_float, b + c);
            squares = fmaf(v, v, squares);
        }
        const float rms = 1.0f / sqrtf(group.sum(squares) / (float)a.cols + a.eps);
        for (int c = threadIdx.x; c < a.cols; c += SUMI_ROWS_THREADS) {
            float v = load_element(a.b.data, a.b.is_float, b + c) * rms;
            if (a.w != 0) v *= ((const float*)a.w)[c];
            if (a.gate.table != 0) v *= step_at(a.gate, counter, c);
            store_element(a.x.data, a.x.is_float, x + c, load_element(a.x.data, a.x.is_float, x + c) + v);
        }
    }
}

// ---- qk_norm_rope ---------------------------------------------------------------------------------------------------
// For each head of q and k, in place in the qkv matrix: x = rms(x) * w, then rotation by the angles of the row.
//   x [..][pitch] bf16, pitch = (q_heads + 2 kv_heads) dim   q_w, k_w [dim] float
//   rope [..][dim] float: (cos, sin) per pair
// A group of LANES lanes holds a head, 8 columns per lane. dim is a multiple of 8 up to 8 LANES (a multiple of 16 for
// halves):
//
//   lane l         columns 8 l .. 8 l + 7
//   pairs          (8 l, 8 l + 1), (8 l + 2, 8 l + 3) ...: all in the same lane
//   halves         (c, c + dim / 2): lane l < dim / 16 exchanges with lane l + dim / 16
//
// 2^heads_log2 groups process a row. Each group processes SUMI_QK_AHEAD heads at a time, and the loads of its next
// heads are in flight meanwhile. These 550 instructions are executed even if there are fewer heads: with all 16 groups,
// 32 heads of 96 columns used half of them, and 48 heads of 128 three quarters. heads_log2 is chosen so that most are
// used. The weights are in shared memory: in registers they would cost a block per multiprocessor. Rows are processed
// from the last to the first, see rows.cuh. Groups whose head or row is past the end compute with zeros, because
// shuffles need whole warps.
template <int LANES, bool IS_HALVES> SUMI_DEVICE void qk_norm_rope(const sumi_qk_norm_rope_args& a)
{
    constexpr int AHEAD = SUMI_QK_AHEAD, ANGLES = IS_HALVES ? 16 : 8; // heads at a time; (cos, sin) of 8 or 4 pairs
    __shared__ float4 weights[2][2][LANES]; // of q and k: the first and the second four columns of each lane
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const int head_step = 1 << a.heads_log2, first_head = group & (head_step - 1);
    const int rows_at_once = (SUMI_ROWS_THREADS / LANES) >> a.heads_log2, heads = a.q_heads + a.kv_heads;
    const bool is_lane_used = 8 * lane < a.dim;
    const int half_lanes = a.dim / 16; // halves: lane l < half_lanes exchanges with lane l + half_lanes
    const bool is_second = IS_HALVES && lane >= half_lanes;
    const int partner =
        (threadIdx.x & 31) - lane + (is_lane_used ? (is_second ? lane - half_lanes : lane + half_lanes) : lane);
    const float per_column = 1.0f / (float)a.dim;
    const int rows = a.row_end - a.row_begin, stride = (int)gridDim.x * rows_at_once;
    const int last = a.row_end - 1 - (group >> a.heads_log2); // this group's first row, when `place` is 0
    const int step = head_step * a.dim;                       // from one head of the group to its next one
    bf16* const x = (bf16*)a.x.data + (int64_t)a.x_row * a.pitch + first_head * a.dim + 8 * lane;
    const float* const rope = a.rope == 0 ? nullptr
                                          : (const float*)a.rope + (int64_t)a.rope_row * a.dim
                                                + (IS_HALVES ? 16 * (is_second ? lane - half_lanes : lane) : 8 * lane);

    int place = (int)blockIdx.x * rows_at_once; // rows of the launch that are done, counted from the last row
    int base = 0;                               // the head of group 0
    uint4 next[AHEAD];
    float next_angles[ANGLES];
    const auto fetch = [&] {
        const int r = last - place;
        const bool is_row = r >= a.row_begin && is_lane_used;
        const bf16* from = x + (int64_t)r * a.pitch + base * a.dim;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            next[u] = make_uint4(0, 0, 0, 0);
            if (is_row && base + u * head_step + first_head < heads) next[u] = *(const uint4*)(from + u * step);
        }
        if (base != 0) return; // the row's angles are loaded already
#pragma unroll
        for (int i = 0; i < ANGLES; i++) next_angles[i] = i % 2 == 0 ? 1.0f : 0.0f;
        if (rope != nullptr && is_row) {
#pragma unroll
            for (int i = 0; i < ANGLES; i += 4) {
                const float4 v = *(const float4*)(rope + (int64_t)r * a.dim + i);
                next_angles[i] = v.x, next_angles[i + 1] = v.y, next_angles[i + 2] = v.z, next_angles[i + 3] = v.w;
            }
        }
    };
    if (place < rows) fetch();
    for (int c = threadIdx.x; c < 16 * LANES; c += SUMI_ROWS_THREADS) {
        const int which = c / (8 * LANES), column = c % (8 * LANES);
        const float* w = (const float*)(which == 0 ? a.q_w : a.k_w);
        ((float*)&weights[which][column >> 2 & 1][column >> 3])[column & 3] =
            w != nullptr && column < a.dim ? w[column] : 1.0f;
    }
    __syncthreads();
    while (place < rows) {
        const int r = last - place, this_base = base;
        const bool is_row = r >= a.row_begin && is_lane_used;
        bf16* const to = x + (int64_t)r * a.pitch + base * a.dim;
        uint4 raw[AHEAD];
        float angles[ANGLES];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) raw[u] = next[u];
#pragma unroll
        for (int i = 0; i < ANGLES; i++)
            angles[i] = IS_HALVES && i % 2 == 1 && !is_second ? -next_angles[i] : next_angles[i];
        base += AHEAD * head_step;
        if (base >= heads) base = 0, place += stride;
        if (place < rows) fetch();
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int head = this_base + u * head_step + first_head;
            const bool is_q = head < a.q_heads;
            float v[8], squares = 0.0f;
            unpack8(raw[u], v);
#pragma unroll
            for (int i = 0; i < 8; i++) squares = fmaf(v[i], v[i], squares);
#pragma unroll
            for (int mask = LANES / 2; mask > 0; mask >>= 1) squares += __shfl_xor_sync(~0u, squares, mask);
            const float rms = (is_q ? a.q_w : a.k_w) != 0 ? rsqrtf(fmaf(squares, per_column, a.eps)) : 1.0f;
            const float4 low = weights[is_q ? 0 : 1][0][lane], high = weights[is_q ? 0 : 1][1][lane];
            const float w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] *= rms * w[i];
            if (IS_HALVES) {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float other = __shfl_sync(~0u, v[i], partner);
                    v[i] = v[i] * angles[2 * i] + other * angles[2 * i + 1];
                }
            } else {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float even = v[2 * i], odd = v[2 * i + 1];
                    v[2 * i] = even * angles[2 * i] - odd * angles[2 * i + 1];
                    v[2 * i + 1] = odd * angles[2 * i] + even * angles[2 * i + 1];
                }
            }
            // A branch on purpose: with a predicate the compiler overlaps the heads and spills registers.
            if (is_row && head < heads) store8(to + u * step, v);
        }
    }
}
#define QK_NORM_ROPE(LANES)                                                                                            \
    SUMI_ROW_KERNEL(sumi_qk_norm_rope_pairs_##LANES, SUMI_ROWS_THREADS, 3, sumi_qk_norm_rope_args,                     \
                    (qk_norm_rope<LANES, false>(args)))                                                                \
    SUMI_ROW_KERNEL(sumi_qk_norm_rope_halves_##LANES, SUMI_ROWS_THREADS, 2, sumi_qk_norm_rope_args,                    \
                    (qk_norm_rope<LANES, true>(args)))
QK_NORM_ROPE(4)
QK_NORM_ROPE(8)
QK_NORM_ROPE(16)
QK_NORM_ROPE(32)

// The same for any head size and element type: a warp per head. A lane has whole pairs (without rotation: single
// columns), so no element is overwritten before it is read.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_qk_norm_rope_any(const __grid_constant__ sumi_qk_norm_rope_args a)
{
    constexpr int WARPS = SUMI_ROWS_THREADS / 32;
    const int lane = threadIdx.x & 31, heads = a.q_heads + a.kv_heads, pairs = a.rope != 0 ? a.dim / 2 : 0;
    const int step = a.is_halves ? 1 : 2, other = a.is_halves ? a.dim / 2 : 1;
    for (int64_t r = a.row_begin + (int64_t)blockIdx.x; r < a.row_end; r += gridDim.x) {
        for (int head = threadIdx.x >> 5; head < heads; head += WARPS) {
            const int64_t x = (a.x_row + r) * a.pitch + (int64_t)head * a.dim;
            const float* w = (const float*)(head < a.q_heads ? a.q_w : a.k_w);
            float squares = 0.0f;
            for (int c = lane; c < a.dim; c += 32) {
                const float v = load_element(a.x.data, a.x.is_float, x + c);
                squares = fmaf(v, v, squares);
            }
            const float rms = w != nullptr ? 1.0f / sqrtf(warp_sum(squares) / (float)a.dim + a.eps) : 1.0f;
            __syncwarp(); // all lanes have read the head before a lane writes
            const auto normed = [&](int c) {
                return load_element(a.x.data, a.x.is_float, x + c) * rms * (w != nullptr ? w[c] : 1.0f);
            };
            for (int k = lane; k < pairs; k += 32) {
                const float c = ((const float*)a.rope)[(a.rope_row + r) * a.dim + 2 * k],
                            s = ((const float*)a.rope)[(a.rope_row + r) * a.dim + 2 * k + 1];
                const float u = normed(k * step), v = normed(k * step + other);
                store_element(a.x.data, a.x.is_float, x + k * step, u * c - v * s);
                store_element(a.x.data, a.x.is_float, x + k * step + other, v * c + u * s);
            }
            for (int c = 2 * pairs + lane; c < a.dim; c += 32) store_element(a.x.data, a.x.is_float, x + c, normed(c));
        }
    }
}

// ---- rope_table, time_embed, finish_modulation ----------------------------------------------------------------------
// y[r, 2 p], y[r, 2 p + 1] = cos, sin of float(position * frequency)
//   positions [rows][axes] int32   y [rows][cols] float
// The product is computed in double and rounded to float, as in the reference implementations. The frequencies come
// from pow() on the CPU. sincospi of a / pi is used instead of double sine and cosine of a: it reduces its argument
// exactly and needs no slow path through local memory. a * (1 / pi) is off by less than 1e-12 for angles in the
// thousands.
SUMI_DEVICE void cos_sin(float angle, float* cosine, float* sine)
{
    double s, c;
    sincospi((double)angle * 0.31830988618379067154, &s, &c);
    *cosine = (float)c;
    *sine = (float)s;
}
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_rope_table(const __grid_constant__ sumi_rope_table_args a)
{
    const int64_t count = (int64_t)(a.row_end - a.row_begin) * a.pair_count;
    for (int64_t i = (int64_t)blockIdx.x * SUMI_ROWS_THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * SUMI_ROWS_THREADS) {
        const int64_t r = a.row_begin + i / a.pair_count;
        const int k = (int)(i % a.pair_count);
        float cosine, sine;
        cos_sin((float)(((const int32_t*)a.positions)[r * a.axes + a.axis[k]] * a.frequency[k]), &cosine, &sine);
        float* y = (float*)a.y + r * a.cols + 2 * (a.pair_begin + k);
        y[0] = cosine;
        y[1] = sine;
    }
}

// times [rows] float   y [rows][width]: cosines and sines of times * scale * max_period^(-i / half) log_period =
// -log(max_period). Every step is rounded to float, as in the reference implementation: the argument reaches 1000, so
// the last bit of the frequency is visible in the result.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_time_embed(const __grid_constant__ sumi_time_embed_args a)
{
    const int half = a.width / 2;
    for (int64_t r = a.row_begin + (int64_t)blockIdx.x; r < a.row_end; r += gridDim.x) {
        const float u = __fmul_rn(((const float*)a.times)[r], a.scale);
        for (int i = threadIdx.x; i < half; i += SUMI_ROWS_THREADS) {
            const float frequency = (float)exp((double)__fdiv_rn(__fmul_rn(a.log_period, (float)i), (float)half));
            float cosine, sine;
            cos_sin(__fmul_rn(u, frequency), &cosine, &sine);
            store_element(a.y.data, a.y.is_float, r * a.width + (a.cos_first ? i : half + i), cosine);
            store_element(a.y.data, a.y.is_float, r * a.width + (a.cos_first ? half + i : i), sine);
        }
        if (threadIdx.x == 0 && a.width % 2 == 1)
            store_element(a.y.data, a.y.is_float, r * a.width + a.width - 1, 0.0f);
    }
}

// Converts rows of a modulation table [rows][cols] to factors and summands: each part of part_cols columns becomes 1 +
// v, tanh(v) or stays v. In place, or to separate rows, of which there are few: one per step of a section.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_finish_modulation(const __grid_constant__ sumi_finish_modulation_args a)
{
    const int64_t count = (int64_t)(a.row_end - a.row_begin) * a.cols, first = (int64_t)a.row_begin * a.cols,
                  from = ((int64_t)a.row_begin + a.x_row + (a.per_step ? *(const int32_t*)a.counter : 0)) * a.cols;
    for (int64_t i = (int64_t)blockIdx.x * SUMI_ROWS_THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * SUMI_ROWS_THREADS) {
        const int part = (int)(i % a.cols) / a.part_cols;
        const float v = load_element(a.x.data, a.x.is_float, from + i);
        const bool squashes = a.squashes >> part & 1, adds_one = a.adds_one >> part & 1;
        store_element(a.y.data, a.y.is_float, first + i, squashes ? tanhf(v) : adds_one ? 1.0f + v : v);
    }
}
