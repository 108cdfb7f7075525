// A vector of SUMI_LANES floats: 16 with AVX-512, 8 with AVX2, 4 in portable C (which compilers turn into SSE2 or
// NEON). Included only by the kernels_*.c files, after they have selected their instruction set. The operators + - * /
// work on the type itself (vector types of GCC and clang).
#ifndef SUMI_CPU_VECTOR_H
#define SUMI_CPU_VECTOR_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#if SUMI_LANES == 16
typedef __m512 vec;
static inline vec vec_load(const float* p) { return _mm512_loadu_ps(p); }
static inline void vec_store(float* p, vec v) { _mm512_storeu_ps(p, v); }
static inline vec vec_load_part(const float* p, int32_t count)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1u), p);
}
static inline void vec_store_part(float* p, vec v, int32_t count)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1u), v);
}
static inline vec vec_all(float x) { return _mm512_set1_ps(x); }
static inline vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
static inline vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); }
static inline vec vec_min(vec a, vec b) { return _mm512_min_ps(a, b); }
static inline vec vec_round(vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vec vec_times_power_of_two(vec a, vec n) { return _mm512_scalef_ps(a, n); }
static inline vec vec_zero_below(vec v, vec x, float limit)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_NLT_UQ), v);
}
static inline vec vec_from_bf16(const void* p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}
static inline vec vec_from_f16(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }

#elif SUMI_LANES == 8
typedef __m256 vec;
static inline vec vec_load(const float* p) { return _mm256_loadu_ps(p); }
static inline void vec_store(float* p, vec v) { _mm256_storeu_ps(p, v); }
static inline __m256i vec_mask(int32_t count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vec vec_load_part(const float* p, int32_t count) { return _mm256_maskload_ps(p, vec_mask(count)); }
static inline void vec_store_part(float* p, vec v, int32_t count) { _mm256_maskstore_ps(p, vec_mask(count), v); }
static inline vec vec_all(float x) { return _mm256_set1_ps(x); }
static inline vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
static inline vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); }
static inline vec vec_min(vec a, vec b) { return _mm256_min_ps(a, b); }
static inline vec vec_round(vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// a * 2^n for n in [-252, 254]: two factors, so that neither overflows the exponent field
static inline vec vec_times_power_of_two(vec a, vec n)
{
    __m256i i = _mm256_cvtps_epi32(n), exponent_1 = _mm256_srai_epi32(i, 1),
            exponent_2 = _mm256_sub_epi32(i, exponent_1), bias = _mm256_set1_epi32(127);
    return a * _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(exponent_1, bias), 23))
         * _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(exponent_2, bias), 23));
}
static inline vec vec_zero_below(vec v, vec x, float limit)
{
    return _mm256_and_ps(v, _mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_NLT_UQ));
}
static inline vec vec_from_bf16(const void* p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
}
static inline vec vec_from_f16(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }

#else
typedef float vec __attribute__((vector_size(16)));
typedef int32_t vec_int __attribute__((vector_size(16)));
static inline vec vec_load(const float* p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vec_store(float* p, vec v) { memcpy(p, &v, sizeof v); }
static inline vec vec_load_part(const float* p, int32_t count)
{
    float v[4] = {0};
    for (int32_t i = 0; i < count; i++) v[i] = p[i];
    return vec_load(v);
}
static inline void vec_store_part(float* p, vec v, int32_t count)
{
    for (int32_t i = 0; i < count; i++) p[i] = v[i];
}
static inline vec vec_all(float x) { return (vec){x, x, x, x}; }
static inline vec vec_choose(vec_int mask, vec a, vec b) { return (vec)(((vec_int)a & mask) | ((vec_int)b & ~mask)); }
static inline vec vec_fma(vec a, vec b, vec c) { return a * b + c; }
// b if either is NaN, as the x86 instruction
static inline vec vec_max(vec a, vec b) { return vec_choose(a > b, a, b); }
static inline vec vec_min(vec a, vec b) { return vec_choose(a < b, a, b); }
static inline vec vec_round(vec a)
{
    vec big = vec_all(12582912.0f); // 1.5 * 2^23: the sum has no fraction bits. Requires |a| < 2^22
    return (a + big) - big;
}
static inline vec vec_times_power_of_two(vec a, vec n)
{
    vec_int i = __builtin_convertvector(n, vec_int), exponent_1 = i >> 1, exponent_2 = i - exponent_1;
    return a * (vec)((exponent_1 + 127) << 23) * (vec)((exponent_2 + 127) << 23);
}
static inline vec vec_zero_below(vec v, vec x, float limit) { return (vec)((vec_int)v & ~(x < vec_all(limit))); }
#endif

static inline float vec_sum(vec v)
{
    float lanes[SUMI_LANES];
    vec_store(lanes, v);
    for (int32_t width = SUMI_LANES / 2; width > 0; width /= 2) {
        for (int32_t i = 0; i < width; i++) lanes[i] += lanes[i + width];
    }
    return lanes[0];
}
static inline float vec_largest(vec v)
{
    float lanes[SUMI_LANES];
    vec_store(lanes, v);
    float largest = lanes[0];
    for (int32_t i = 1; i < SUMI_LANES; i++) largest = lanes[i] > largest ? lanes[i] : largest;
    return largest;
}

// e^x to a relative error of 1e-7: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor series to r^7 (remainder 5e-9). Below -87.3
// the result is 0, above 88.7 infinite, so that 1 / (1 + e^x) becomes 0. NaN stays NaN.
static inline vec vec_exp(vec x)
{
    // with this order of operands both instructions pass NaN on
    vec clamped = vec_max(vec_all(-88.0f), vec_min(vec_all(89.0f), x));
    vec n = vec_round(clamped * vec_all(1.44269504f));
    // ln 2 in two summands; the first has 9 bits, so n times it is exact
    vec r = vec_fma(n, vec_all(-0.693359375f), clamped);
    r = vec_fma(n, vec_all(2.12194440e-4f), r);
    vec p = vec_all(1.0f / 5040.0f);
    p = vec_fma(p, r, vec_all(1.0f / 720.0f));
    p = vec_fma(p, r, vec_all(1.0f / 120.0f));
    p = vec_fma(p, r, vec_all(1.0f / 24.0f));
    p = vec_fma(p, r, vec_all(1.0f / 6.0f));
    p = vec_fma(p, r, vec_all(0.5f));
    p = vec_fma(p, r, vec_all(1.0f));
    p = vec_fma(p, r, vec_all(1.0f));
    return vec_zero_below(vec_times_power_of_two(p, n), x, -87.3f);
}
static inline vec vec_sigmoid(vec x) { return vec_all(1.0f) / (vec_all(1.0f) + vec_exp(vec_all(0.0f) - x)); }
#endif
