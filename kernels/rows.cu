// Ops that work row by row on token matrices: embedding, norms, rotary embedding, gating, tables of positions and
// times. Storage is bf16 or float, arithmetic float. All kernels are bound by bytes: each reads and writes its matrices
// once, with 16 bytes per thread where the width is a multiple of 8. The row of a step table (modulation) is found from
// the counter in device memory, so a launch captured in a graph is right for every step.
//   every kernel: block 256 (SUMI_ROWS_THREADS), static shared memory, but for sumi_norm_*_rows (rows.cuh).
//   Arguments: rows.h. Any grid, unless the kernel says otherwise.
#include "rows.cuh"
#include "stored.cuh"

// A thread of an elementwise kernel, with 2^lanes_log2 threads per row: its first row, the rows from there to its next
// one, its number among the threads of the row, and their number.
struct elementwise_thread {
    int64_t row, row_stride;
    int lane, lanes;
};
SUMI_DEVICE elementwise_thread elementwise_thread_of(int lanes_log2, int64_t row_begin)
{
    const int rows = SUMI_ROWS_THREADS >> lanes_log2;
    return {row_begin + (int64_t)blockIdx.x * rows + (threadIdx.x >> lanes_log2), (int64_t)gridDim.x * rows,
            (int)(threadIdx.x & ((1u << lanes_log2) - 1)), 1 << lanes_log2};
}

// ---- embed_rows, fill_rows, copy_bytes, mean_rows -------------------------------------------------------------------
// y[r] = table[ids[r]] * scale + bias
//   ids [rows] int32   table [table_rows][pitch] bf16, or in pieces of piece_rows rows
//   bias [cols] float or none   y [rows][cols]
// An id outside the table gives a row of NaN. Nothing outside the table is read, and the image is reported as not
// finite instead of being wrong without notice.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_embed_rows(const __grid_constant__ sumi_embed_rows_args args)
{
    elementwise_thread thread = elementwise_thread_of(args.lanes_log2, args.row_begin);
    for (; thread.row < args.row_end; thread.row += thread.row_stride) {
        const int32_t id = ((const int32_t*)args.ids)[thread.row];
        const bool is_known = id >= 0 && id < args.table_rows;
        const float scale = is_known ? args.scale : __int_as_float(0x7fffffff);
        const int row = is_known ? id : 0;
        const bf16* x = args.piece_rows == 0 ? (const bf16*)args.table + row * (int64_t)args.pitch
                                             : ((const bf16* const*)args.table)[row / args.piece_rows]
                                                   + row % args.piece_rows * (int64_t)args.pitch;
        const int64_t y_index = thread.row * args.cols;
        if (args.is_vector) {
            for (int c = 8 * thread.lane; c < args.cols; c += 8 * thread.lanes) {
                float v[8];
                load8(x + c, v);
#pragma unroll
                for (int i = 0; i < 8; i++) v[i] *= scale;
                if (args.bias != 0) {
                    float bias[8];
                    load8_float((const float*)args.bias + c, bias);
#pragma unroll
                    for (int i = 0; i < 8; i++) v[i] += bias[i];
                }
                store8((bf16*)args.y.data + y_index + c, v);
            }
        } else {
            for (int c = thread.lane; c < args.cols; c += thread.lanes) {
                const float v = __bfloat162float(x[c]) * scale;
                store_element(args.y.data, args.y.is_float, y_index + c,
                              args.bias != 0 ? v + ((const float*)args.bias)[c] : v);
            }
        }
    }
}

// Elements c .. c + 7 of a row in bf16. They are in group c % 256 / 32 of chunk c / 256, from element c % 32 of the
// group on (stored.cuh: a chunk is 256 elements, a group 32).
template <int TYPE> SUMI_DEVICE uint4 load8_stored(const uint8_t* row, int c, float scale)
{
    const stored<TYPE> chunk(row + c / 256 * stored_layout<TYPE>::BYTES, c % 32);
    return stored_bf16(chunk, c % 256 / 32, scale);
}
// sumi_embed_rows for a table in the bytes of its file (stored). Its elements are rounded to bf16 first, like those of
// a table that is converted when it is loaded. There are few rows, so the type is chosen at run time.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_embed_rows_stored(const __grid_constant__ sumi_embed_rows_args args)
{
    elementwise_thread thread = elementwise_thread_of(args.lanes_log2, args.row_begin);
    for (; thread.row < args.row_end; thread.row += thread.row_stride) {
        const int32_t id = ((const int32_t*)args.ids)[thread.row];
        const bool is_known = id >= 0 && id < args.table_rows;
        const float scale = is_known ? args.scale : __int_as_float(0x7fffffff);
        const int row = is_known ? id : 0;
        const uint8_t* x = args.piece_rows == 0 ? (const uint8_t*)args.table + row * (int64_t)args.pitch
                                                : ((const uint8_t* const*)args.table)[row / args.piece_rows]
                                                      + row % args.piece_rows * (int64_t)args.pitch;
        for (int c = 8 * thread.lane; c < args.cols; c += 8 * thread.lanes) {
            uint4 packed = make_uint4(0, 0, 0, 0);
            switch (args.type) {
#define TYPE(name, number, bytes)                                                                                      \
    case number: packed = load8_stored<number>(x, c, args.type_scale); break;
                SUMI_STORED_TYPES(TYPE)
#undef TYPE
            }
            const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float v = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u) * scale;
                if (args.bias != 0) v += ((const float*)args.bias)[c + i];
                store_element(args.y.data, args.y.is_float, thread.row * args.cols + c + i, v);
            }
        }
    }
}

// y[rows of the spans] = row   row [cols] float   grid (any, spans)
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_fill_rows(const __grid_constant__ sumi_fill_rows_args args)
{
    const int64_t begin = args.begin[blockIdx.y], end = begin + args.count[blockIdx.y];
    elementwise_thread thread = elementwise_thread_of(args.lanes_log2, begin);
    for (; thread.row < end; thread.row += thread.row_stride) {
        const int64_t y_index = thread.row * args.cols;
        if (args.is_vector) {
            for (int c = 8 * thread.lane; c < args.cols; c += 8 * thread.lanes) {
                float v[8];
                load8_float((const float*)args.row + c, v);
                store8((bf16*)args.y.data + y_index + c, v);
            }
        } else {
            for (int c = thread.lane; c < args.cols; c += thread.lanes)
                store_element(args.y.data, args.y.is_float, y_index + c, ((const float*)args.row)[c]);
        }
    }
}

template <class T> SUMI_DEVICE void copy_as(const sumi_copy_bytes_args& args)
{
    const uint64_t thread = (uint64_t)blockIdx.x * SUMI_ROWS_THREADS + threadIdx.x,
                   threads = (uint64_t)gridDim.x * SUMI_ROWS_THREADS, units = args.bytes / sizeof(T);
    for (uint64_t i = thread; i < units; i += threads) ((T*)args.y)[i] = ((const T*)args.x)[i];
    for (uint64_t i = units * sizeof(T) + thread; i < args.bytes; i += threads)
        ((uint8_t*)args.y)[i] = ((const uint8_t*)args.x)[i];
}
// y[0 .. bytes) = x[0 .. bytes), in the widest units that both addresses allow. The ranges do not overlap.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_copy_bytes(const __grid_constant__ sumi_copy_bytes_args args)
{
    const uint64_t addresses = args.x | args.y;
    if ((addresses & 15) == 0) copy_as<uint4>(args);
    else if ((addresses & 3) == 0) copy_as<uint32_t>(args);
    else if ((addresses & 1) == 0) copy_as<uint16_t>(args);
    else copy_as<uint8_t>(args);
}

// y[y_row + s] = mean of the rows of x in span s   x [..][cols]   y [..][cols]   grid (any, spans)
// A block computes 32 columns at a time, and a warp adds every eighth row of the span. The warps' sums are added in the
// order of the warps, so the order of all additions depends on the span's length only.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_mean_rows(const __grid_constant__ sumi_mean_rows_args args)
{
    constexpr int WARPS = SUMI_ROWS_THREADS / 32;
    __shared__ float sums[WARPS][32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, count = args.count[blockIdx.y];
    const int64_t first_row = args.begin[blockIdx.y], y_index = (int64_t)(args.y_row + (int)blockIdx.y) * args.cols;
    for (int first_column = 32 * (int)blockIdx.x; first_column < args.cols; first_column += 32 * (int)gridDim.x) {
        const int c = first_column + lane;
        float sum = 0.0f;
#pragma unroll 4
        for (int row = warp; c < args.cols && row < count; row += WARPS)
            sum += load_element(args.x.data, args.x.is_float, (first_row + row) * args.cols + c);
        sums[warp][lane] = sum;
        __syncthreads();
        if (warp == 0 && c < args.cols) {
#pragma unroll
            for (int w = 1; w < WARPS; w++) sum += sums[w][lane];
            store_element(args.y.data, args.y.is_float, y_index + c, sum / (float)count);
        }
        __syncthreads(); // the sums of the next 32 columns overwrite these
    }
}

// ---- activate, gated ------------------------------------------------------------------------------------------------
// an exp that overflows gives 1 / inf = 0
SUMI_DEVICE float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// The numbers are those of sumi_activation. The switch is outside the loop, because it is the same for all threads.
template <int N> SUMI_DEVICE void apply_activation(int32_t activation, float (&v)[N])
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
    sumi_activate(const __grid_constant__ sumi_activate_args args)
{
    const int64_t thread = (int64_t)blockIdx.x * SUMI_ROWS_THREADS + threadIdx.x,
                  threads = (int64_t)gridDim.x * SUMI_ROWS_THREADS;
    int64_t begin = args.begin;
    if (args.is_vector) {
        const int64_t chunks = (args.end - args.begin) >> 3;
        for (int64_t i = thread; i < chunks; i += threads) {
            float v[8];
            load8((const bf16*)args.x.data + begin + 8 * i, v);
            apply_activation(args.activation, v);
            store8((bf16*)args.y.data + begin + 8 * i, v);
        }
        begin += 8 * chunks;
    }
    for (int64_t i = begin + thread; i < args.end; i += threads) {
        float v[1] = {load_element(args.x.data, args.x.is_float, i)};
        apply_activation(args.activation, v);
        store_element(args.y.data, args.y.is_float, i, v[0]);
    }
}

// y[r, c] = act(x[r, c]) * x[r, cols + c]   x [rows][2 cols]   y [rows][cols]
// is_interleaved: the columns of x alternate in groups of eight: gate 0 .. 7, up 0 .. 7, gate 8 .. 15 and so on, as a
// product with a weight of FORM_GATED writes them.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS) sumi_gated(const __grid_constant__ sumi_gated_args args)
{
    elementwise_thread thread = elementwise_thread_of(args.lanes_log2, args.row_begin);
    for (; thread.row < args.row_end; thread.row += thread.row_stride) {
        const int64_t x_index = thread.row * 2 * args.cols, y_index = thread.row * args.cols;
        if (args.is_vector) {
            for (int c = 8 * thread.lane; c < args.cols; c += 8 * thread.lanes) {
                const bf16* gate = (const bf16*)args.x.data + x_index + (args.is_interleaved ? 2 * c : c);
                float v[8], up[8];
                load8(gate, v);
                load8(gate + (args.is_interleaved ? 8 : args.cols), up);
                apply_activation(args.activation, v);
#pragma unroll
                for (int i = 0; i < 8; i++) v[i] *= up[i];
                store8((bf16*)args.y.data + y_index + c, v);
            }
        } else {
            for (int c = thread.lane; c < args.cols; c += thread.lanes) {
                const int64_t gate_index = x_index + (args.is_interleaved ? 2 * (c & ~7) + (c & 7) : c);
                float v[1] = {load_element(args.x.data, args.x.is_float, gate_index)};
                apply_activation(args.activation, v);
                store_element(args.y.data, args.y.is_float, y_index + c,
                              v[0]
                                  * load_element(args.x.data, args.x.is_float,
                                                 gate_index + (args.is_interleaved ? 8 : args.cols)));
            }
        }
    }
}

// ---- kronecker_add --------------------------------------------------------------------------------------------------
// y[y_row + r][column + i x_cols + k] += gate * scale * sum over j of w[i, j] x[r w_cols + j][k]
//   x [rows * w_cols][x_cols]   y [..][ldy]   w [w_rows][w_cols] float
// A thread computes 8 rows of w times 8 columns of x (1 column where widths are not multiples of 8). For a w of 8 x 8,
// which is usual, x is read once, and each load is followed by 64 multiply-adds. The order of the sums depends on
// w_cols only.
template <int COLS> SUMI_DEVICE void kronecker_add(const sumi_kronecker_add_args& args)
{
    constexpr int ROWS = 8;
    const int chunks = args.x_cols / COLS, units = (args.w_rows + ROWS - 1) / ROWS * chunks;
    const int32_t counter = *(const int32_t*)args.counter;
    elementwise_thread thread = elementwise_thread_of(args.lanes_log2, args.row_begin);
    for (; thread.row < args.row_end; thread.row += thread.row_stride) {
        const int64_t y_index = (args.y_row + thread.row) * args.ldy;
        for (int unit = thread.lane; unit < units; unit += thread.lanes) {
            const int w_row = unit / chunks * ROWS, x_column = unit % chunks * COLS; // the first of the thread's
            int64_t x_index = thread.row * args.w_cols * args.x_cols + x_column;
            float sum[ROWS][COLS] = {};
            for (int j = 0; j < args.w_cols; j++, x_index += args.x_cols) {
                float v[COLS];
                if constexpr (COLS == 8) load8((const bf16*)args.x.data + x_index, v);
                else v[0] = load_element(args.x.data, args.x.is_float, x_index);
#pragma unroll
                for (int i = 0; i < ROWS; i++) {
                    const float w =
                        w_row + i < args.w_rows ? ((const float*)args.w)[(w_row + i) * args.w_cols + j] : 0.0f;
#pragma unroll
                    for (int k = 0; k < COLS; k++) sum[i][k] = fmaf(w, v[k], sum[i][k]);
                }
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                if (w_row + i >= args.w_rows) break;
                const int out_column = (w_row + i) * args.x_cols + x_column, column = args.column + out_column;
                // Interleaved y: eight columns of the first half, eight of the second half, and so on.
                const bool is_second = args.half != 0 && column >= args.half;
                const int half_column = column - (is_second ? args.half : 0);
                const int64_t y_element =
                    y_index + (args.half == 0 ? column : half_column / 8 * 16 + (is_second ? 8 : 0) + half_column % 8);
                float gate[COLS], v[COLS];
#pragma unroll
                for (int k = 0; k < COLS; k++) gate[k] = 1.0f;
                if constexpr (COLS == 8) {
                    if (args.gate.table != 0) load8_step(args.gate, counter, out_column, gate);
                    load8((const bf16*)args.y.data + y_element, v);
                } else {
                    if (args.gate.table != 0) gate[0] = step_at(args.gate, counter, out_column);
                    v[0] = load_element(args.y.data, args.y.is_float, y_element);
                }
#pragma unroll
                for (int k = 0; k < COLS; k++) v[k] = fmaf(args.scale * gate[k], sum[i][k], v[k]);
                if constexpr (COLS == 8) store8((bf16*)args.y.data + y_element, v);
                else store_element(args.y.data, args.y.is_float, y_element, v[0]);
            }
        }
    }
}
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_kronecker_add(const __grid_constant__ sumi_kronecker_add_args args)
{
    kronecker_add<8>(args);
}
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_kronecker_add_any(const __grid_constant__ sumi_kronecker_add_args args)
{
    kronecker_add<1>(args);
}

// ---- norm_modulate, norm_gate_add -----------------------------------------------------------------------------------
// y[y_row + r] = norm(x[x_row + r]) * w * scale + shift
//   x, y [..][cols]   w [cols] float   scale, shift: rows of step tables   w, scale and shift are optional
// RMS norm or layer norm. sumi_norm_modulate_rows: bf16 in and out, cols a multiple of 8 up to SUMI_ROW_MAX_COLS.
// _any: all other cases.
SUMI_ROW_KERNEL(sumi_norm_modulate_rows, SUMI_NORM_LIMIT, 1, sumi_norm_modulate_args,
                norm_modulate<SUMI_OPERANDS_BF16>(args))
SUMI_ROW_KERNEL(sumi_norm_modulate_any, SUMI_ROWS_THREADS, 4, sumi_norm_modulate_args,
                norm_modulate_any<SUMI_OPERANDS_BF16>(args))

// y = silu(norm(x) * w), for pixels of an image. Rows have few columns, so a warp processes several. LANES lanes of a
// warp hold a row, each with CHUNKS chunks of 8 columns: chunk j of a lane begins at column 8 (lane + j LANES). A group
// of LANES lanes goes through rows with the grid's stride, and the loads of its next row are in flight while it reduces
// this one. y may be x. The order of the sums depends on the columns only.
template <int LANES> SUMI_DEVICE float group_sum(float v)
{
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) v += __shfl_xor_sync(~0u, v, mask);
    return v;
}
template <int LANES, int CHUNKS> SUMI_DEVICE void norm_silu(const sumi_norm_modulate_args& args)
{
    constexpr int GROUPS = SUMI_ROWS_THREADS / LANES;
    const int lane = threadIdx.x % LANES, chunks = args.cols >> 3;
    const int64_t row_stride = (int64_t)gridDim.x * GROUPS;
    const float per_column = 1.0f / (float)args.cols;
    int64_t row = args.row_end - 1 - (int64_t)blockIdx.x * GROUPS - threadIdx.x / LANES;
    const bf16* x = (const bf16*)args.x.data + (int64_t)args.x_row * args.cols;
    bf16* y = (bf16*)args.y.data + (int64_t)args.y_row * args.cols;
    uint4 raw[CHUNKS], next[CHUNKS]; // the chunks of this row and of the next one
    const auto load_next = [&](int64_t next_row) {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            const int chunk = lane + j * LANES;
            next[j] = make_uint4(0, 0, 0, 0);
            if (next_row >= args.row_begin && chunk < chunks)
                next[j] = ((const uint4*)(x + next_row * args.cols))[chunk];
        }
    };
    load_next(row);
    float factor[CHUNKS][8];
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        const int chunk = lane + j * LANES;
#pragma unroll
        for (int i = 0; i < 8; i++) factor[j][i] = 1.0f;
        if (args.w != 0 && chunk < chunks) load8_float((const float*)args.w + 8 * chunk, factor[j]);
#pragma unroll
        for (int i = 0; i < 8; i++) factor[j][i] += args.w != 0 && args.plus_one ? 1.0f : 0.0f;
    }
    // The groups of a warp have neighbouring rows. All of them go on while one has a row left, because shuffles need
    // all lanes.
    while (__any_sync(~0u, row >= args.row_begin)) {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) raw[j] = next[j];
        load_next(row - row_stride);
        float mean = 0.0f, squares = 0.0f, v[8];
        if (args.is_layer) {
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
        const float rstd = rsqrtf(fmaf(group_sum<LANES>(squares), per_column, args.eps));
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            const int chunk = lane + j * LANES;
            unpack8(raw[j], v);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v[i] = (v[i] - mean) * rstd * factor[j][i];
                v[i] *= sigmoid(v[i]);
            }
            if (row >= args.row_begin && chunk < chunks) store8(y + row * args.cols + 8 * chunk, v);
        }
        row -= row_stride;
    }
}
#define SUMI_NORM_SILU(MAX_COLS, MIN_BLOCKS, LANES, CHUNKS)                                                            \
    extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS, MIN_BLOCKS)                                        \
        sumi_norm_silu_##MAX_COLS(const __grid_constant__ sumi_norm_modulate_args args)                                \
    {                                                                                                                  \
        norm_silu<LANES, CHUNKS>(args);                                                                                \
    }
// sumi_norm_silu_<N>: bf16 in and out, cols a multiple of 8 up to N. _any: all other cases. Without scale and shift.
SUMI_NORM_SILU(128, 4, 16, 1)
SUMI_NORM_SILU(256, 4, 32, 1)
SUMI_NORM_SILU(512, 3, 32, 2)
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS, 4)
    sumi_norm_silu_any(const __grid_constant__ sumi_norm_modulate_args args)
{
    __shared__ __align__(16) float warp_results[2 * ROW_MAX_WARPS];
    row_reduction reduction(warp_results);
    for (int64_t row = args.row_begin + (int64_t)blockIdx.x; row < args.row_end; row += gridDim.x) {
        const int64_t x_index = (args.x_row + row) * args.cols, y_index = (args.y_row + row) * args.cols;
        float mean = 0.0f, squares = 0.0f;
        if (args.is_layer) {
            float sum = 0.0f;
            for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS)
                sum += load_element(args.x.data, args.x.is_float, x_index + c);
            mean = reduction.sum(sum) / (float)args.cols;
        }
        for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS) {
            const float deviation = load_element(args.x.data, args.x.is_float, x_index + c) - mean;
            squares = fmaf(deviation, deviation, squares);
        }
        const float rstd = 1.0f / sqrtf(reduction.sum(squares) / (float)args.cols + args.eps);
        for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS) {
            float v = (load_element(args.x.data, args.x.is_float, x_index + c) - mean) * rstd;
            if (args.w != 0) v *= ((const float*)args.w)[c] + (args.plus_one ? 1.0f : 0.0f);
            store_element(args.y.data, args.y.is_float, y_index + c, v * sigmoid(v));
        }
    }
}

// x[x_row + r] += gate * (rms(b[b_row + r]) * w), in place   x, b [..][cols]
//   w [cols] float, gate: a row of a step table; both are optional. factor = w * gate.
// sumi_norm_gate_add_rows: bf16, cols a multiple of 8 up to SUMI_ROW_MAX_COLS. _any: all other cases.
SUMI_DEVICE void norm_gate_add(const sumi_norm_gate_add_args& args)
{
    extern __shared__ uint4 memory[];
    __shared__ __align__(16) float warp_results[2 * ROW_MAX_WARPS];
    row_reduction reduction(warp_results);
    const row_ring ring(memory, args.cols, 2);
    const int row_stride = (int)gridDim.x;
    bf16* x = (bf16*)args.x.data + (int64_t)args.x_row * args.cols + ring.column(0);
    const bf16* b = (const bf16*)args.b.data + (int64_t)args.b_row * args.cols + ring.column(0);
    const auto fetch = [&](int row, int stage) {
        if (row >= args.row_begin) {
            ring.fetch(b + (int64_t)row * args.cols, stage, 0);
            ring.fetch(x + (int64_t)row * args.cols, stage, 1);
        }
        ring.commit();
    };
    int row = args.row_end - 1 - (int)blockIdx.x;
#pragma unroll
    for (int stage = 0; stage < ROW_STAGES; stage++) fetch(row - stage * row_stride, stage);
    const int32_t counter = read_counter(args.counter, args.gate.stride);
    float factor[ROW_CHUNKS][8], gate[ROW_CHUNKS][8];
    load_vector(args.w, ring, factor);
    load_step_row(args.gate, counter, 1.0f, ring, gate);
    add_and_multiply(factor, 0.0f, gate);
    for (int stage = 0; row >= args.row_begin; row -= row_stride, stage = stage + 1 == ROW_STAGES ? 0 : stage + 1) {
        float branch[ROW_CHUNKS][8], v[ROW_CHUNKS][8];
        ring.wait();
        ring.read(stage, 0, branch);
        ring.read(stage, 1, v);
        gate_add_row<false>(args, reduction, ring, branch, factor, v, x + (int64_t)row * args.cols);
        fetch(row - ROW_STAGES * row_stride, stage);
    }
}
SUMI_ROW_KERNEL(sumi_norm_gate_add_rows, SUMI_NORM_LIMIT, 1, sumi_norm_gate_add_args, norm_gate_add(args))

// norm_gate_add and then norm_modulate (norm_pair in rows.cuh): bf16 in and out, cols a multiple of 8 up to
// SUMI_NORM_PAIR_MAX_COLS.
SUMI_ROW_KERNEL(sumi_norm_pair_rows, SUMI_NORM_LIMIT, 1, sumi_norm_pair_args, norm_pair<SUMI_OPERANDS_BF16>(args))

extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_norm_gate_add_any(const __grid_constant__ sumi_norm_gate_add_args args)
{
    __shared__ __align__(16) float warp_results[2 * ROW_MAX_WARPS];
    row_reduction reduction(warp_results);
    const int32_t counter = *(const int32_t*)args.counter;
    for (int64_t row = args.row_begin + (int64_t)blockIdx.x; row < args.row_end; row += gridDim.x) {
        const int64_t x_index = (args.x_row + row) * args.cols, b_index = (args.b_row + row) * args.cols;
        float squares = 0.0f;
        for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS) {
            const float v = load_element(args.b.data, args.b.is_float, b_index + c);
            squares = fmaf(v, v, squares);
        }
        const float rms = 1.0f / sqrtf(reduction.sum(squares) / (float)args.cols + args.eps);
        for (int c = threadIdx.x; c < args.cols; c += SUMI_ROWS_THREADS) {
            float v = load_element(args.b.data, args.b.is_float, b_index + c) * rms;
            if (args.w != 0) v *= ((const float*)args.w)[c];
            if (args.gate.table != 0) v *= step_at(args.gate, counter, c);
            store_element(args.x.data, args.x.is_float, x_index + c,
                          load_element(args.x.data, args.x.is_float, x_index + c) + v);
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
// 2^heads_log2 groups process a row. Each group processes SUMI_QK_HEADS_AT_ONCE heads at a time, and the loads of its
// next heads are in flight meanwhile. These 550 instructions are executed even if there are fewer heads: with all 16
// groups, 32 heads of 96 columns used half of them, and 48 heads of 128 three quarters. heads_log2 is chosen so that
// most are used. The weights are in shared memory: in registers they would cost a block per multiprocessor. Rows are
// processed from the last to the first, see rows.cuh. Groups whose head or row is past the end compute with zeros,
// because shuffles need whole warps.
template <int LANES, bool IS_HALVES> SUMI_DEVICE void qk_norm_rope(const sumi_qk_norm_rope_args& args)
{
    constexpr int HEADS = SUMI_QK_HEADS_AT_ONCE, ANGLES = IS_HALVES ? 16 : 8; // (cos, sin) of 8 or 4 pairs
    __shared__ float4 weights[2][2][LANES]; // of q and k: the first and the second four columns of each lane
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const int head_step = 1 << args.heads_log2, first_head = group & (head_step - 1);
    const int rows_at_once = (SUMI_ROWS_THREADS / LANES) >> args.heads_log2, heads = args.q_heads + args.kv_heads;
    const bool is_lane_used = 8 * lane < args.dim;
    const int half_lanes = args.dim / 16; // lanes that hold the first half of a head
    const bool is_second = IS_HALVES && lane >= half_lanes;
    const int partner =
        (threadIdx.x & 31) - lane + (is_lane_used ? (is_second ? lane - half_lanes : lane + half_lanes) : lane);
    const float per_column = 1.0f / (float)args.dim;
    const int rows = args.row_end - args.row_begin, row_stride = (int)gridDim.x * rows_at_once;
    const int last_row = args.row_end - 1 - (group >> args.heads_log2); // this group's row while rows_done is 0
    const int head_stride = head_step * args.dim; // elements from one head of the group to its next one
    bf16* const x = (bf16*)args.x.data + (int64_t)args.x_row * args.pitch + first_head * args.dim + 8 * lane;
    const float* const rope = args.rope == 0
                                ? nullptr
                                : (const float*)args.rope + (int64_t)args.rope_row * args.dim
                                      + (IS_HALVES ? 16 * (is_second ? lane - half_lanes : lane) : 8 * lane);

    int rows_done = (int)blockIdx.x * rows_at_once; // rows of the launch after those of this block
    int base_head = 0;                              // the head of group 0
    uint4 next[HEADS];                              // a lane's columns of the next heads
    float next_angles[ANGLES];
    const auto fetch = [&] {
        const int row = last_row - rows_done;
        const bool is_used = row >= args.row_begin && is_lane_used;
        const bf16* from = x + (int64_t)row * args.pitch + base_head * args.dim;
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            next[h] = make_uint4(0, 0, 0, 0);
            if (is_used && base_head + h * head_step + first_head < heads)
                next[h] = *(const uint4*)(from + h * head_stride);
        }
        if (base_head != 0) return; // the row's angles are loaded already
#pragma unroll
        for (int i = 0; i < ANGLES; i++) next_angles[i] = i % 2 == 0 ? 1.0f : 0.0f;
        if (rope != nullptr && is_used) {
#pragma unroll
            for (int i = 0; i < ANGLES; i += 4) {
                const float4 v = *(const float4*)(rope + (int64_t)row * args.dim + i);
                next_angles[i] = v.x, next_angles[i + 1] = v.y, next_angles[i + 2] = v.z, next_angles[i + 3] = v.w;
            }
        }
    };
    if (rows_done < rows) fetch();
    for (int c = threadIdx.x; c < 16 * LANES; c += SUMI_ROWS_THREADS) {
        const int matrix = c / (8 * LANES), column = c % (8 * LANES);
        const float* w = (const float*)(matrix == 0 ? args.q_w : args.k_w);
        ((float*)&weights[matrix][column >> 2 & 1][column >> 3])[column & 3] =
            w != nullptr && column < args.dim ? w[column] : 1.0f;
    }
    __syncthreads();
    while (rows_done < rows) {
        const int row = last_row - rows_done, this_base_head = base_head;
        const bool is_used = row >= args.row_begin && is_lane_used;
        bf16* const to = x + (int64_t)row * args.pitch + base_head * args.dim;
        uint4 raw[HEADS];
        float angles[ANGLES];
#pragma unroll
        for (int h = 0; h < HEADS; h++) raw[h] = next[h];
#pragma unroll
        for (int i = 0; i < ANGLES; i++)
            angles[i] = IS_HALVES && i % 2 == 1 && !is_second ? -next_angles[i] : next_angles[i];
        base_head += HEADS * head_step;
        if (base_head >= heads) base_head = 0, rows_done += row_stride;
        if (rows_done < rows) fetch();
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            const int head = this_base_head + h * head_step + first_head;
            const bool is_q = head < args.q_heads;
            float v[8], squares = 0.0f;
            unpack8(raw[h], v);
#pragma unroll
            for (int i = 0; i < 8; i++) squares = fmaf(v[i], v[i], squares);
#pragma unroll
            for (int mask = LANES / 2; mask > 0; mask >>= 1) squares += __shfl_xor_sync(~0u, squares, mask);
            const float rms = (is_q ? args.q_w : args.k_w) != 0 ? rsqrtf(fmaf(squares, per_column, args.eps)) : 1.0f;
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
            if (is_used && head < heads) store8(to + h * head_stride, v);
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
    sumi_qk_norm_rope_any(const __grid_constant__ sumi_qk_norm_rope_args args)
{
    constexpr int WARPS = SUMI_ROWS_THREADS / 32;
    const int lane = threadIdx.x & 31, heads = args.q_heads + args.kv_heads, pairs = args.rope != 0 ? args.dim / 2 : 0;
    const int pair_stride = args.is_halves ? 1 : 2, partner_offset = args.is_halves ? args.dim / 2 : 1; // in columns
    for (int64_t row = args.row_begin + (int64_t)blockIdx.x; row < args.row_end; row += gridDim.x) {
        for (int head = threadIdx.x >> 5; head < heads; head += WARPS) {
            const int64_t x_index = (args.x_row + row) * args.pitch + (int64_t)head * args.dim;
            const float* w = (const float*)(head < args.q_heads ? args.q_w : args.k_w);
            float squares = 0.0f;
            for (int c = lane; c < args.dim; c += 32) {
                const float v = load_element(args.x.data, args.x.is_float, x_index + c);
                squares = fmaf(v, v, squares);
            }
            const float rms = w != nullptr ? 1.0f / sqrtf(warp_sum(squares) / (float)args.dim + args.eps) : 1.0f;
            __syncwarp(); // all lanes have read the head before a lane writes
            const auto normed = [&](int c) {
                return load_element(args.x.data, args.x.is_float, x_index + c) * rms * (w != nullptr ? w[c] : 1.0f);
            };
            for (int k = lane; k < pairs; k += 32) {
                const float cosine = ((const float*)args.rope)[(args.rope_row + row) * args.dim + 2 * k],
                            sine = ((const float*)args.rope)[(args.rope_row + row) * args.dim + 2 * k + 1];
                const float first = normed(k * pair_stride), second = normed(k * pair_stride + partner_offset);
                store_element(args.x.data, args.x.is_float, x_index + k * pair_stride, first * cosine - second * sine);
                store_element(args.x.data, args.x.is_float, x_index + k * pair_stride + partner_offset,
                              second * cosine + first * sine);
            }
            for (int c = 2 * pairs + lane; c < args.dim; c += 32)
                store_element(args.x.data, args.x.is_float, x_index + c, normed(c));
        }
    }
}

// ---- rope_table, time_embed, finish_modulation ----------------------------------------------------------------------
// y[r, 2 (pair_begin + k)] and the element after it = cos and sin of float(positions[r, axis[k]] * frequency[k])
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
    sumi_rope_table(const __grid_constant__ sumi_rope_table_args args)
{
    const int64_t count = (int64_t)(args.row_end - args.row_begin) * args.pair_count;
    for (int64_t i = (int64_t)blockIdx.x * SUMI_ROWS_THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * SUMI_ROWS_THREADS) {
        const int64_t row = args.row_begin + i / args.pair_count;
        const int k = (int)(i % args.pair_count); // the pair
        float cosine, sine;
        cos_sin((float)(((const int32_t*)args.positions)[row * args.axes + args.axis[k]] * args.frequency[k]), &cosine,
                &sine);
        float* y = (float*)args.y + row * args.cols + 2 * (args.pair_begin + k);
        y[0] = cosine;
        y[1] = sine;
    }
}

// times [rows] float   y [rows][width]: cosines and sines of times * scale * max_period^(-i / half)
// log_period = -log(max_period). Every step is rounded to float, as in the reference implementation: the argument
// reaches 1000, so the last bit of the frequency is visible in the result.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_time_embed(const __grid_constant__ sumi_time_embed_args args)
{
    const int half = args.width / 2;
    for (int64_t row = args.row_begin + (int64_t)blockIdx.x; row < args.row_end; row += gridDim.x) {
        const float time = __fmul_rn(((const float*)args.times)[row], args.scale);
        for (int i = threadIdx.x; i < half; i += SUMI_ROWS_THREADS) {
            const float frequency = (float)exp((double)__fdiv_rn(__fmul_rn(args.log_period, (float)i), (float)half));
            float cosine, sine;
            cos_sin(__fmul_rn(time, frequency), &cosine, &sine);
            store_element(args.y.data, args.y.is_float, row * args.width + (args.cos_first ? i : half + i), cosine);
            store_element(args.y.data, args.y.is_float, row * args.width + (args.cos_first ? half + i : i), sine);
        }
        if (threadIdx.x == 0 && args.width % 2 == 1)
            store_element(args.y.data, args.y.is_float, row * args.width + args.width - 1, 0.0f);
    }
}

// Converts rows of a modulation table [rows][cols] to factors and summands: each vector of vector_cols columns
// becomes 1 + v, tanh(v) or stays v. In place, or to separate rows, of which there are few: one per step of a section.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_finish_modulation(const __grid_constant__ sumi_finish_modulation_args args)
{
    const int64_t count = (int64_t)(args.row_end - args.row_begin) * args.cols,
                  y_index = (int64_t)args.row_begin * args.cols,
                  x_index = ((int64_t)args.row_begin + args.x_row + (args.per_step ? *(const int32_t*)args.counter : 0))
                          * args.cols;
    for (int64_t i = (int64_t)blockIdx.x * SUMI_ROWS_THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * SUMI_ROWS_THREADS) {
        const int vector = (int)(i % args.cols) / args.vector_cols;
        const float v = load_element(args.x.data, args.x.is_float, x_index + i);
        const bool squashes = args.squashes >> vector & 1, adds_one = args.adds_one >> vector & 1;
        store_element(args.y.data, args.y.is_float, y_index + i, squashes ? tanhf(v) : adds_one ? 1.0f + v : v);
    }
}
