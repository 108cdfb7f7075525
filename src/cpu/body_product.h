// The inner loops of the matrix product, written with vector.h. Included only by kernels_*.c, which define
// SUMI_TILE_ROWS and SUMI_TILE_VECTORS before. For each k of the depth: 2 loads of B, one broadcast of A per row, rows
// x 2 multiply-adds into registers.
//
//              tile_cols = SUMI_TILE_VECTORS vectors
//        B     [ b0 | b1 ]
//   A  a(r,k)  [ acc(r,0) | acc(r,1) ]
//
// Registers: 14 x 2 accumulators + 2 of B + 1 broadcast = 31 of AVX-512's 32; AVX2 has 16 for 6 x 2 accumulators, SSE
// 16 for 4 x 2.
#ifndef SUMI_CPU_BODY_PRODUCT_H
#define SUMI_CPU_BODY_PRODUCT_H
#include "base/dtype.h"
#include "cpu/kernels.h"
#include "cpu/vector.h"

#define TILE_COLS (SUMI_TILE_VECTORS * SUMI_LANES)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

static ALWAYS_INLINE void tile_rows(const int32_t rows, const int32_t vectors, int32_t depth, const float* a,
                                    const float* b, float* c, ptrdiff_t c_stride, bool first)
{
    vec acc[SUMI_TILE_ROWS][SUMI_TILE_VECTORS];
    UNROLL
    for (int32_t r = 0; r < rows; r++) {
        UNROLL
        for (int32_t v = 0; v < vectors; v++)
            acc[r][v] = first ? vec_all(0.0f) : vec_load(c + r * c_stride + v * SUMI_LANES);
    }
    for (int32_t k = 0; k < depth; k++) {
        vec columns[SUMI_TILE_VECTORS];
        UNROLL
        for (int32_t v = 0; v < vectors; v++) columns[v] = vec_load(b + v * SUMI_LANES);
        UNROLL
        for (int32_t r = 0; r < rows; r++) {
            vec value = vec_all(a[r * SUMI_CPU_A_STRIDE]);
            UNROLL
            for (int32_t v = 0; v < vectors; v++) acc[r][v] = vec_fma(value, columns[v], acc[r][v]);
        }
        a += 1;
        b += TILE_COLS;
    }
    UNROLL
    for (int32_t r = 0; r < rows; r++) {
        UNROLL
        for (int32_t v = 0; v < vectors; v++) vec_store(c + r * c_stride + v * SUMI_LANES, acc[r][v]);
    }
}

// One specialisation for each number of rows, so that a tile with fewer rows does no wasted work.
static ALWAYS_INLINE void tile_by_height(int32_t rows, const int32_t vectors, int32_t depth, const float* a,
                                         const float* b, float* c, ptrdiff_t c_stride, bool first)
{
    switch (rows) {
    case 1: tile_rows(1, vectors, depth, a, b, c, c_stride, first); break;
    case 2: tile_rows(2, vectors, depth, a, b, c, c_stride, first); break;
    case 3: tile_rows(3, vectors, depth, a, b, c, c_stride, first); break;
    case 4: tile_rows(4, vectors, depth, a, b, c, c_stride, first); break;
#if SUMI_TILE_ROWS > 4
    case 5: tile_rows(5, vectors, depth, a, b, c, c_stride, first); break;
    case 6: tile_rows(6, vectors, depth, a, b, c, c_stride, first); break;
#endif
#if SUMI_TILE_ROWS > 6
    case 7: tile_rows(7, vectors, depth, a, b, c, c_stride, first); break;
    case 8: tile_rows(8, vectors, depth, a, b, c, c_stride, first); break;
    case 9: tile_rows(9, vectors, depth, a, b, c, c_stride, first); break;
    case 10: tile_rows(10, vectors, depth, a, b, c, c_stride, first); break;
    case 11: tile_rows(11, vectors, depth, a, b, c, c_stride, first); break;
    case 12: tile_rows(12, vectors, depth, a, b, c, c_stride, first); break;
    case 13: tile_rows(13, vectors, depth, a, b, c, c_stride, first); break;
    case 14: tile_rows(14, vectors, depth, a, b, c, c_stride, first); break;
#endif
    default: break;
    }
}

static void product_tile(int32_t rows, int32_t depth, const float* a, const float* b, float* c, ptrdiff_t c_stride,
                         bool first)
{
    tile_by_height(rows, SUMI_TILE_VECTORS, depth, a, b, c, c_stride, first);
}

// Computes only the first half of the columns, for a panel with no more: the full tile would waste half of the work.
static void product_half_tile(int32_t rows, int32_t depth, const float* a, const float* b, float* c, ptrdiff_t c_stride,
                              bool first)
{
    tile_by_height(rows, SUMI_TILE_VECTORS / 2, depth, a, b, c, c_stride, first);
}

// ---- Packing: SUMI_LANES rows x SUMI_LANES of the depth are loaded as vectors and transposed in registers ----------
#if SUMI_LANES == 16
static ALWAYS_INLINE void transpose(vec v[16])
{
    __m512 t[16];
    UNROLL
    for (int32_t i = 0; i < 16; i += 4) { // 4 x 4 transposes inside the 128-bit lanes
        __m512 a = _mm512_unpacklo_ps(v[i], v[i + 1]), b = _mm512_unpackhi_ps(v[i], v[i + 1]);
        __m512 c = _mm512_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    UNROLL
    for (int32_t i = 0; i < 4; i++) { // then a 4 x 4 transpose of the 128-bit lanes
        __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x44), b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xee);
        __m512 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x44), d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xee);
        v[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        v[i + 4] = _mm512_shuffle_f32x4(a, c, 0xdd);
        v[i + 8] = _mm512_shuffle_f32x4(b, d, 0x88);
        v[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}
#elif SUMI_LANES == 8
static ALWAYS_INLINE void transpose(vec v[8])
{
    __m256 t[8];
    UNROLL
    for (int32_t i = 0; i < 8; i += 4) {
        __m256 a = _mm256_unpacklo_ps(v[i], v[i + 1]), b = _mm256_unpackhi_ps(v[i], v[i + 1]);
        __m256 c = _mm256_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm256_unpackhi_ps(v[i + 2], v[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    UNROLL
    for (int32_t i = 0; i < 4; i++) {
        v[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}
#else
static ALWAYS_INLINE void transpose(vec v[4])
{
    vec t[4];
    for (int32_t i = 0; i < 4; i++) { t[i] = (vec){v[0][i], v[1][i], v[2][i], v[3][i]}; }
    for (int32_t i = 0; i < 4; i++) v[i] = t[i];
}
#endif

typedef enum source_type { SOURCE_F32, SOURCE_F16, SOURCE_BF16 } source_type;
static ALWAYS_INLINE float source_element(source_type type, const void* row, int32_t k)
{
    const unsigned char* bytes = row;
    if (type == SOURCE_F32) {
        float value;
        memcpy(&value, bytes + 4 * (size_t)k, 4);
        return value;
    }
    uint16_t bits;
    memcpy(&bits, bytes + 2 * (size_t)k, 2);
    return type == SOURCE_F16 ? sumi_f16_to_float(bits) : sumi_bf16_to_float(bits);
}
static ALWAYS_INLINE vec source_vector(source_type type, const void* row, int32_t k)
{
    const unsigned char* bytes = row;
    if (type == SOURCE_F32) {
        vec v;
        memcpy(&v, bytes + 4 * (size_t)k, sizeof v);
        return v;
    }
#if SUMI_LANES > 4
    return type == SOURCE_F16 ? vec_from_f16(bytes + 2 * (size_t)k) : vec_from_bf16(bytes + 2 * (size_t)k);
#else
    float lanes[SUMI_LANES];
    for (int32_t i = 0; i < SUMI_LANES; i++) lanes[i] = source_element(type, row, k + i);
    return vec_load(lanes);
#endif
}
static ALWAYS_INLINE vec source_part(source_type type, const void* row, int32_t k, int32_t count)
{
    float lanes[SUMI_LANES] = {0};
    for (int32_t i = 0; i < count; i++) lanes[i] = source_element(type, row, k + i);
    return vec_load(lanes);
}

static ALWAYS_INLINE void pack(source_type type, float* panel, const void* const* rows, int32_t count, int32_t depth)
{
    for (int32_t column = 0; column < TILE_COLS; column += SUMI_LANES) {
        int32_t k = 0;
        for (; k + SUMI_LANES <= depth; k += SUMI_LANES) {
            vec v[SUMI_LANES];
            UNROLL
            for (int32_t i = 0; i < SUMI_LANES; i++)
                v[i] = column + i < count ? source_vector(type, rows[column + i], k) : vec_all(0.0f);
            transpose(v);
            UNROLL
            for (int32_t i = 0; i < SUMI_LANES; i++) vec_store(panel + (size_t)(k + i) * TILE_COLS + column, v[i]);
        }
        for (; k < depth; k++) {
            for (int32_t i = 0; i < SUMI_LANES; i++) {
                panel[(size_t)k * TILE_COLS + column + i] =
                    column + i < count ? source_element(type, rows[column + i], k) : 0.0f;
            }
        }
    }
}
static void product_pack_f32(float* panel, const void* const* rows, int32_t count, int32_t depth)
{
    pack(SOURCE_F32, panel, rows, count, depth);
}
static void product_pack_f16(float* panel, const void* const* rows, int32_t count, int32_t depth)
{
    pack(SOURCE_F16, panel, rows, count, depth);
}
static void product_pack_bf16(float* panel, const void* const* rows, int32_t count, int32_t depth)
{
    pack(SOURCE_BF16, panel, rows, count, depth);
}

// ---- Few rows: W is read once, directly from the file's memory, and not packed -------------------------------------
static ALWAYS_INLINE void dot_rows(source_type type, const float* x, ptrdiff_t x_stride, const int32_t rows,
                                   const void* w, int32_t depth, float* y, ptrdiff_t y_stride)
{
    vec sums[4][2];
    UNROLL
    for (int32_t r = 0; r < rows; r++) sums[r][0] = sums[r][1] = vec_all(0.0f);
    int32_t k = 0;
    for (; k + 2 * SUMI_LANES <= depth; k += 2 * SUMI_LANES) {
        vec w0 = source_vector(type, w, k), w1 = source_vector(type, w, k + SUMI_LANES);
        UNROLL
        for (int32_t r = 0; r < rows; r++) {
            sums[r][0] = vec_fma(vec_load(x + r * x_stride + k), w0, sums[r][0]);
            sums[r][1] = vec_fma(vec_load(x + r * x_stride + k + SUMI_LANES), w1, sums[r][1]);
        }
    }
    for (; k < depth; k += SUMI_LANES) {
        int32_t lane_count = depth - k < SUMI_LANES ? depth - k : SUMI_LANES;
        vec w0 = source_part(type, w, k, lane_count);
        UNROLL
        for (int32_t r = 0; r < rows; r++)
            sums[r][0] = vec_fma(vec_load_part(x + r * x_stride + k, lane_count), w0, sums[r][0]);
    }
    UNROLL
    for (int32_t r = 0; r < rows; r++) y[r * y_stride] = vec_sum(sums[r][0] + sums[r][1]);
}
static ALWAYS_INLINE void dot(source_type type, const float* x, ptrdiff_t x_stride, int32_t rows, const void* w,
                              int32_t depth, float* y, ptrdiff_t y_stride)
{
    switch (rows) {
    case 1: dot_rows(type, x, x_stride, 1, w, depth, y, y_stride); break;
    case 2: dot_rows(type, x, x_stride, 2, w, depth, y, y_stride); break;
    case 3: dot_rows(type, x, x_stride, 3, w, depth, y, y_stride); break;
    default: dot_rows(type, x, x_stride, 4, w, depth, y, y_stride); break;
    }
}
static void product_dot_f32(const float* x, ptrdiff_t xs, int32_t rows, const void* w, int32_t depth, float* y,
                            ptrdiff_t ys)
{
    dot(SOURCE_F32, x, xs, rows, w, depth, y, ys);
}
static void product_dot_f16(const float* x, ptrdiff_t xs, int32_t rows, const void* w, int32_t depth, float* y,
                            ptrdiff_t ys)
{
    dot(SOURCE_F16, x, xs, rows, w, depth, y, ys);
}
static void product_dot_bf16(const float* x, ptrdiff_t xs, int32_t rows, const void* w, int32_t depth, float* y,
                             ptrdiff_t ys)
{
    dot(SOURCE_BF16, x, xs, rows, w, depth, y, ys);
}

#define SUMI_CPU_KERNEL_TABLE(table_name)                                                                              \
    {                                                                                                                  \
        table_name, SUMI_TILE_ROWS, TILE_COLS, product_tile, product_half_tile, product_pack_f32, product_pack_f16,    \
            product_pack_bf16, product_dot_f32, product_dot_f16, product_dot_bf16, rows_finish, rows_activate,         \
            rows_gated, rows_sum, rows_sum_squares, rows_normalise, rows_gate_add, rows_rotate, rows_channel_sums,     \
            rows_channel_norm, rows_softmax, rows_scale                                                                \
    }
#endif
