// Ops that work row by row on token matrices: embedding, spans of rows, activations and gating, adapters' Kronecker
// products, tables of rotary angles and times. norms.cu has the norms. Storage is bf16 or float, arithmetic float. All
// kernels are bound by bytes: each reads and writes its matrices once, with 16 bytes per thread where the width is a
// multiple of 8. The row of a step table (modulation) is found from the counter in device memory, so a launch captured
// in a graph is right for every step.
//   every kernel: block 256 (SUMI_ROWS_THREADS), static shared memory. Arguments: rows.h. Any grid, unless the kernel
//   says otherwise.
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

// ---- embed_rows, fill_rows, copy_bytes, copy_columns, mean_rows -----------------------------------------------------
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

// y[r] = sum over t of factors[r][t] * table[ids[r][t]], in this order, with one rounding at the end
//   ids, factors [rows][terms] int32, float   table as in sumi_embed_rows
// The rows of the table are read as often as rows of y need them: the table of a vision tower's positions, 5 MB in
// bf16, stays in L2.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_mix_rows(const __grid_constant__ sumi_embed_rows_args args)
{
    elementwise_thread thread = elementwise_thread_of(args.lanes_log2, args.row_begin);
    const int step = args.is_vector ? 8 : 1;
    for (; thread.row < args.row_end; thread.row += thread.row_stride) {
        for (int c = step * thread.lane; c < args.cols; c += step * thread.lanes) {
            float sum[8] = {0};
            for (int64_t t = thread.row * args.terms; t < (thread.row + 1) * args.terms; t++) {
                const int32_t id = ((const int32_t*)args.ids)[t];
                const bool is_known = id >= 0 && id < args.table_rows;
                const float factor = is_known ? ((const float*)args.factors)[t] : __int_as_float(0x7fffffff);
                const int row = is_known ? id : 0;
                const bf16* x = args.piece_rows == 0 ? (const bf16*)args.table + row * (int64_t)args.pitch
                                                     : ((const bf16* const*)args.table)[row / args.piece_rows]
                                                           + row % args.piece_rows * (int64_t)args.pitch;
                if (args.is_vector) {
                    float v[8];
                    load8(x + c, v);
#pragma unroll
                    for (int i = 0; i < 8; i++) sum[i] = fmaf(factor, v[i], sum[i]);
                } else {
                    sum[0] = fmaf(factor, __bfloat162float(x[c]), sum[0]);
                }
            }
            const int64_t y_index = thread.row * args.cols + c;
            if (args.is_vector) store8((bf16*)args.y.data + y_index, sum);
            else store_element(args.y.data, args.y.is_float, y_index, sum[0]);
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

// y[rows of the spans] = row   row [cols] float; 0: zeros   grid (any, spans)
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_fill_rows(const __grid_constant__ sumi_fill_rows_args args)
{
    const int64_t begin = args.begin[blockIdx.y], end = begin + args.count[blockIdx.y];
    elementwise_thread thread = elementwise_thread_of(args.lanes_log2, begin);
    for (; thread.row < end; thread.row += thread.row_stride) {
        const int64_t y_index = thread.row * args.cols;
        if (args.is_vector) {
            for (int c = 8 * thread.lane; c < args.cols; c += 8 * thread.lanes) {
                float v[8] = {};
                if (args.row != 0) load8_float((const float*)args.row + c, v);
                store8((bf16*)args.y.data + y_index + c, v);
            }
        } else {
            for (int c = thread.lane; c < args.cols; c += thread.lanes)
                store_element(args.y.data, args.y.is_float, y_index + c,
                              args.row != 0 ? ((const float*)args.row)[c] : 0.0f);
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

template <class T> SUMI_DEVICE void copy_columns_as(const sumi_copy_columns_args& args)
{
    elementwise_thread thread = elementwise_thread_of(args.lanes_log2, 0);
    for (; thread.row < args.rows; thread.row += thread.row_stride) {
        const T* x = (const T*)(args.x + thread.row * args.x_pitch);
        T* y = (T*)(args.y + thread.row * args.y_pitch);
        for (int64_t i = thread.lane; i < args.row_bytes / (int)sizeof(T); i += thread.lanes) y[i] = x[i];
    }
}
// y[r][0 .. row_bytes) = x[r][0 .. row_bytes), in the widest units of which both matrices have whole numbers. x and y
// may have more columns, which are not read or written. The matrices do not overlap.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS)
    sumi_copy_columns(const __grid_constant__ sumi_copy_columns_args args)
{
    const uint64_t bytes = args.x | args.y | (uint64_t)args.row_bytes | (uint64_t)args.x_pitch | (uint64_t)args.y_pitch;
    if ((bytes & 15) == 0) copy_columns_as<uint4>(args);
    else if ((bytes & 3) == 0) copy_columns_as<uint32_t>(args);
    else if ((bytes & 1) == 0) copy_columns_as<uint16_t>(args);
    else copy_columns_as<uint8_t>(args);
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

// y[r, c] = act(x[r, c]) * x[r, cols + c]   x [rows][2 cols]   y [rows][ldy], of which cols are written
// is_interleaved: the columns of x alternate in groups of eight: gate 0 .. 7, up 0 .. 7, gate 8 .. 15 and so on, as a
// product with a weight of FORM_GATED writes them.
extern "C" __global__ void __launch_bounds__(SUMI_ROWS_THREADS) sumi_gated(const __grid_constant__ sumi_gated_args args)
{
    elementwise_thread thread = elementwise_thread_of(args.lanes_log2, args.row_begin);
    for (; thread.row < args.row_end; thread.row += thread.row_stride) {
        const int64_t x_index = thread.row * 2 * args.cols, y_index = thread.row * args.ldy;
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
                    if (args.gate.table != 0) gate[0] = step_element(args.gate, counter, out_column);
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
