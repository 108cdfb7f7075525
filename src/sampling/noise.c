// Two generators (MT19937, Matsumoto and Nishimura 1998; Philox, Salmon et al. 2011) and the transform of Box and
// Muller 1958. They must give the numbers of PyTorch's generators, so the order of all operations matters and none may
// be "simplified".
//
//  CPU    MT19937 words -> 24-bit uniforms u -> groups of 16; elements j and j + 8 of a group are one Box-Muller pair:
//
//         u[0..7] (1 - u -> radius)   u[8..15] (2 pi u -> angle)
//           \ r cos t -> x[0..7]        \ r sin t -> x[8..15]
//
//         If n % 16 != 0, the last 16 values, finished ones included, are replaced by those of 16 new uniforms.
//
//  CUDA   Philox words of (seed, thread, draw). In a grid of T threads, thread s makes the values s, s + T, s + 2T,
//         s + 3T, and continues at s + 4T with its next draw.
//
// Which multiply-adds are rounded once (fmaf) and which twice is part of the algorithm: released PyTorch builds for x86
// were compiled so. No product here is an operand of a plain sum, so a compiler that contracts a * b + c changes
// nothing, and the code for AVX2 and AVX-512 gives the same bits as the portable code.
#include "sampling/noise.h"
#include "base/assert.h"
#include "base/dtype.h"
#include "base/numbers.h"
#include "base/platform.h"
#include <math.h>
#include <string.h>

#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__i386__))
#define SUMI_NOISE_LANES 1
#include <immintrin.h>
#define SUMI_AVX2 __attribute__((target("avx2,fma")))
#define SUMI_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))
#define SUMI_INTO_LANES __attribute__((always_inline)) // compiled once for the instructions of each caller
#else
#define SUMI_INTO_LANES
#endif

enum { MT_WORDS = 624, MT_SHIFT = 397, GROUP = 16, HALF = 8 };

// ---- MT19937 (Matsumoto and Nishimura 1998) -------------------------------------------------------------------------

void sumi_torch_cpu_seed(sumi_torch_cpu_generator* generator, uint64_t seed)
{
    memset(generator, 0, sizeof *generator);
    generator->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < MT_WORDS; i++) {
        uint32_t before = generator->state[i - 1];
        generator->state[i] = 1812433253u * (before ^ (before >> 30)) + i;
    }
    generator->next = MT_WORDS;
    generator->lanes = 1;
#ifdef SUMI_NOISE_LANES
    const sumi_cpu_features features = sumi_cpu_detect();
    generator->lanes = features.avx512 ? 16 : features.avx2_fma_f16c ? 8 : 1;
#endif
}

SUMI_INTO_LANES static inline uint32_t twist_one(uint32_t high, uint32_t low, uint32_t word)
{
    uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return word ^ (y >> 1) ^ ((0u - (y & 1u)) & 0x9908b0dfu);
}

// Three loops without a modulo, so that the compiler can vectorise them.
SUMI_INTO_LANES static inline void twist(uint32_t* s)
{
    enum { FIRST = MT_WORDS - MT_SHIFT };
    for (int i = 0; i < FIRST; i++) s[i] = twist_one(s[i], s[i + 1], s[i + MT_SHIFT]);
    for (int i = FIRST; i < MT_WORDS - 1; i++) s[i] = twist_one(s[i], s[i + 1], s[i - FIRST]);
    s[MT_WORDS - 1] = twist_one(s[MT_WORDS - 1], s[0], s[MT_SHIFT - 1]);
}

SUMI_INTO_LANES static inline uint32_t temper(uint32_t y)
{
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

SUMI_INTO_LANES static inline void make_uniforms(const uint32_t* words, float* into, size_t count)
{
    for (size_t i = 0; i < count; i++) into[i] = (float)(int32_t)(temper(words[i]) & 0xffffffu) * 0x1p-24f;
}

// ---- Box-Muller on a group of 16, portable --------------------------------------------------------------------------

// Cephes' polynomials, in the form and order of the 8-lane functions that PyTorch uses. The portable and the AVX2
// version share the constants.
static const float s_log_polynomial[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                                         -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                                         2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
static const float s_quarter_pi_parts[] = {-0.78515625f, -2.4187564849853515625e-4f, -3.77489497744594108e-8f};
static const float s_cos_polynomial[] = {2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f};
static const float s_sin_polynomial[] = {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f};
#define SQRT_HALF 0.707106781186547524f
#define LN2_HIGH 0.693359375f
#define LN2_LOW (-2.12194440e-4f)
#define FOUR_OVER_PI 1.27323954473516f
#define TWO_PI 6.283185307179586f

// x: normal, in (0, 1]
static float cephes_log(float x)
{
    uint32_t bits = sumi_bits_of_float(x);
    float exponent = (float)((int32_t)(bits >> 23) - 126);
    float mantissa = sumi_float_of_bits((bits & 0x007fffffu) | 0x3f000000u); // [0.5, 1)
    bool small = mantissa < SQRT_HALF;
    exponent -= small ? 1.0f : 0.0f;
    x = (mantissa - 1.0f) + (small ? mantissa : 0.0f);
    float z = x * x;
    float y = s_log_polynomial[0];
    for (int i = 1; i < 9; i++) y = sumi_fmaf(y, x, s_log_polynomial[i]);
    y = y * x;
    y = sumi_fmaf(y, z, exponent * LN2_LOW);
    y = sumi_fmaf(z, -0.5f, y);
    x = x + y;
    return sumi_fmaf(exponent, LN2_HIGH, x);
}

// x: in [0, 2 pi)
static void cephes_sincos(float x, float* out_sin, float* out_cos)
{
    int32_t octant = ((int32_t)(x * FOUR_OVER_PI) + 1) & ~1;
    float q = (float)octant;
    for (int i = 0; i < 3; i++) x = sumi_fmaf(q, s_quarter_pi_parts[i], x);
    float z = x * x;
    float c = sumi_fmaf(sumi_fmaf(s_cos_polynomial[0], z, s_cos_polynomial[1]), z, s_cos_polynomial[2]);
    c = c * z;
    c = sumi_fmaf(c, z, -(z * 0.5f));
    c = c + 1.0f;
    float s = sumi_fmaf(sumi_fmaf(s_sin_polynomial[0], z, s_sin_polynomial[1]), z, s_sin_polynomial[2]);
    s = s * z;
    s = sumi_fmaf(s, x, x);
    bool swap = (octant & 2) != 0;
    *out_sin = (swap ? c : s) * ((octant & 4) != 0 ? -1.0f : 1.0f);
    *out_cos = (swap ? s : c) * (((octant - 2) & 4) == 0 ? -1.0f : 1.0f);
}

static void twist_portable(uint32_t* s) { twist(s); }
static void make_uniforms_portable(const uint32_t* words, float* into, size_t count)
{
    make_uniforms(words, into, count);
}
static void box_muller_portable(float* x, size_t groups)
{
    for (; groups > 0; groups--, x += GROUP) {
        for (int j = 0; j < HALF; j++) {
            float s, c, u1 = 1.0f - x[j];
            cephes_sincos(TWO_PI * x[j + HALF], &s, &c);
            float radius = sqrtf(-2.0f * cephes_log(u1));
            x[j] = sumi_fmaf(radius, c, 0.0f); // the sum with 0 removes negative zeros, as in the reference
            x[j + HALF] = sumi_fmaf(radius, s, 0.0f);
        }
    }
}

// ---- Box-Muller with AVX2, eight pairs at once ----------------------------------------------------------------------

#ifdef SUMI_NOISE_LANES
SUMI_AVX2 static inline __m256 cephes_log_8(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256i bits = _mm256_castps_si256(x);
    __m256 exponent = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(126)));
    __m256 mantissa = _mm256_castsi256_ps(
        _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x007fffff)), _mm256_set1_epi32(0x3f000000)));
    __m256 small = _mm256_cmp_ps(mantissa, _mm256_set1_ps(SQRT_HALF), _CMP_LT_OQ);
    exponent = _mm256_sub_ps(exponent, _mm256_and_ps(small, one));
    x = _mm256_add_ps(_mm256_sub_ps(mantissa, one), _mm256_and_ps(small, mantissa));
    __m256 z = _mm256_mul_ps(x, x);
    __m256 y = _mm256_set1_ps(s_log_polynomial[0]);
    for (int i = 1; i < 9; i++) y = _mm256_fmadd_ps(y, x, _mm256_set1_ps(s_log_polynomial[i]));
    y = _mm256_mul_ps(y, x);
    y = _mm256_fmadd_ps(y, z, _mm256_mul_ps(exponent, _mm256_set1_ps(LN2_LOW)));
    y = _mm256_fmadd_ps(z, _mm256_set1_ps(-0.5f), y);
    x = _mm256_add_ps(x, y);
    return _mm256_fmadd_ps(exponent, _mm256_set1_ps(LN2_HIGH), x);
}

SUMI_AVX2 static inline void cephes_sincos_8(__m256 x, __m256* out_sin, __m256* out_cos)
{
    const __m256i two = _mm256_set1_epi32(2), four = _mm256_set1_epi32(4);
    __m256i octant = _mm256_cvttps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(FOUR_OVER_PI)));
    octant = _mm256_and_si256(_mm256_add_epi32(octant, _mm256_set1_epi32(1)), _mm256_set1_epi32(~1));
    __m256 q = _mm256_cvtepi32_ps(octant);
    for (int i = 0; i < 3; i++) x = _mm256_fmadd_ps(q, _mm256_set1_ps(s_quarter_pi_parts[i]), x);
    __m256 z = _mm256_mul_ps(x, x);
    __m256 c = _mm256_fmadd_ps(_mm256_set1_ps(s_cos_polynomial[0]), z, _mm256_set1_ps(s_cos_polynomial[1]));
    c = _mm256_mul_ps(_mm256_fmadd_ps(c, z, _mm256_set1_ps(s_cos_polynomial[2])), z);
    c = _mm256_fmsub_ps(c, z, _mm256_mul_ps(z, _mm256_set1_ps(0.5f)));
    c = _mm256_add_ps(c, _mm256_set1_ps(1.0f));
    __m256 s = _mm256_fmadd_ps(_mm256_set1_ps(s_sin_polynomial[0]), z, _mm256_set1_ps(s_sin_polynomial[1]));
    s = _mm256_mul_ps(_mm256_fmadd_ps(s, z, _mm256_set1_ps(s_sin_polynomial[2])), z);
    s = _mm256_fmadd_ps(s, x, x);
    __m256 swap = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(octant, two), two));
    // Moves bit 2 of the octant to the sign bit. The sine is negative if this bit of `octant` is set, the cosine if
    // this bit of `octant` - 2 is clear.
    __m256 sin_sign = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_and_si256(octant, four), 29));
    __m256 cos_sign =
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_andnot_si256(_mm256_sub_epi32(octant, two), four), 29));
    *out_sin = _mm256_xor_ps(_mm256_blendv_ps(s, c, swap), sin_sign);
    *out_cos = _mm256_xor_ps(_mm256_blendv_ps(c, s, swap), cos_sign);
}

SUMI_AVX2 static void twist_avx2(uint32_t* s) { twist(s); }
SUMI_AVX2 static void make_uniforms_avx2(const uint32_t* words, float* into, size_t count)
{
    make_uniforms(words, into, count);
}
SUMI_AVX2 static void box_muller_avx2(float* x, size_t groups)
{
    for (; groups > 0; groups--, x += GROUP) {
        __m256 s, c, u1 = _mm256_sub_ps(_mm256_set1_ps(1.0f), _mm256_loadu_ps(x));
        cephes_sincos_8(_mm256_mul_ps(_mm256_set1_ps(TWO_PI), _mm256_loadu_ps(x + HALF)), &s, &c);
        __m256 radius = _mm256_sqrt_ps(_mm256_mul_ps(_mm256_set1_ps(-2.0f), cephes_log_8(u1)));
        _mm256_storeu_ps(x, _mm256_fmadd_ps(radius, c, _mm256_setzero_ps()));
        _mm256_storeu_ps(x + HALF, _mm256_fmadd_ps(radius, s, _mm256_setzero_ps()));
    }
}

// ---- Box-Muller with AVX-512, sixteen pairs at once -----------------------------------------------------------------

SUMI_AVX512 static inline __m512 cephes_log_16(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512i bits = _mm512_castps_si512(x);
    __m512 exponent = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_srli_epi32(bits, 23), _mm512_set1_epi32(126)));
    const __m512 mantissa = _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_and_si512(bits, _mm512_set1_epi32(0x007fffff)), _mm512_set1_epi32(0x3f000000)));
    const __mmask16 small = _mm512_cmp_ps_mask(mantissa, _mm512_set1_ps(SQRT_HALF), _CMP_LT_OQ);
    exponent = _mm512_mask_sub_ps(exponent, small, exponent, one);
    x = _mm512_add_ps(_mm512_sub_ps(mantissa, one), _mm512_maskz_mov_ps(small, mantissa));
    const __m512 z = _mm512_mul_ps(x, x);
    __m512 y = _mm512_set1_ps(s_log_polynomial[0]);
    for (int i = 1; i < 9; i++) y = _mm512_fmadd_ps(y, x, _mm512_set1_ps(s_log_polynomial[i]));
    y = _mm512_mul_ps(y, x);
    y = _mm512_fmadd_ps(y, z, _mm512_mul_ps(exponent, _mm512_set1_ps(LN2_LOW)));
    y = _mm512_fmadd_ps(z, _mm512_set1_ps(-0.5f), y);
    x = _mm512_add_ps(x, y);
    return _mm512_fmadd_ps(exponent, _mm512_set1_ps(LN2_HIGH), x);
}

SUMI_AVX512 static inline void cephes_sincos_16(__m512 x, __m512* out_sin, __m512* out_cos)
{
    const __m512i two = _mm512_set1_epi32(2), four = _mm512_set1_epi32(4);
    __m512i octant = _mm512_cvttps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(FOUR_OVER_PI)));
    octant = _mm512_and_si512(_mm512_add_epi32(octant, _mm512_set1_epi32(1)), _mm512_set1_epi32(~1));
    const __m512 q = _mm512_cvtepi32_ps(octant);
    for (int i = 0; i < 3; i++) x = _mm512_fmadd_ps(q, _mm512_set1_ps(s_quarter_pi_parts[i]), x);
    const __m512 z = _mm512_mul_ps(x, x);
    __m512 c = _mm512_fmadd_ps(_mm512_set1_ps(s_cos_polynomial[0]), z, _mm512_set1_ps(s_cos_polynomial[1]));
    c = _mm512_mul_ps(_mm512_fmadd_ps(c, z, _mm512_set1_ps(s_cos_polynomial[2])), z);
    c = _mm512_fmsub_ps(c, z, _mm512_mul_ps(z, _mm512_set1_ps(0.5f)));
    c = _mm512_add_ps(c, _mm512_set1_ps(1.0f));
    __m512 s = _mm512_fmadd_ps(_mm512_set1_ps(s_sin_polynomial[0]), z, _mm512_set1_ps(s_sin_polynomial[1]));
    s = _mm512_mul_ps(_mm512_fmadd_ps(s, z, _mm512_set1_ps(s_sin_polynomial[2])), z);
    s = _mm512_fmadd_ps(s, x, x);
    const __mmask16 swap = _mm512_test_epi32_mask(octant, two);
    // as with eight lanes
    const __m512i sin_sign = _mm512_slli_epi32(_mm512_and_si512(octant, four), 29),
                  cos_sign = _mm512_slli_epi32(_mm512_andnot_si512(_mm512_sub_epi32(octant, two), four), 29);
    *out_sin = _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(_mm512_mask_blend_ps(swap, s, c)), sin_sign));
    *out_cos = _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(_mm512_mask_blend_ps(swap, c, s)), cos_sign));
}

SUMI_AVX512 static void twist_avx512(uint32_t* s) { twist(s); }
SUMI_AVX512 static void make_uniforms_avx512(const uint32_t* words, float* into, size_t count)
{
    make_uniforms(words, into, count);
}
SUMI_AVX512 static void box_muller_avx512(float* x, size_t groups)
{
    enum { FIRST_HALVES = 0x44, SECOND_HALVES = 0xee }; // of two groups
    for (; groups >= 2; groups -= 2, x += 2 * GROUP) {
        const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + GROUP);
        const __m512 u1 = _mm512_sub_ps(_mm512_set1_ps(1.0f), _mm512_shuffle_f32x4(a, b, FIRST_HALVES));
        __m512 s, c;
        cephes_sincos_16(_mm512_mul_ps(_mm512_set1_ps(TWO_PI), _mm512_shuffle_f32x4(a, b, SECOND_HALVES)), &s, &c);
        const __m512 radius = _mm512_sqrt_ps(_mm512_mul_ps(_mm512_set1_ps(-2.0f), cephes_log_16(u1)));
        c = _mm512_fmadd_ps(radius, c, _mm512_setzero_ps());
        s = _mm512_fmadd_ps(radius, s, _mm512_setzero_ps());
        _mm512_storeu_ps(x, _mm512_shuffle_f32x4(c, s, FIRST_HALVES));
        _mm512_storeu_ps(x + GROUP, _mm512_shuffle_f32x4(c, s, SECOND_HALVES));
    }
    box_muller_avx2(x, groups);
}
#endif

// ---- Code for the CPU that is there ---------------------------------------------------------------------------------

typedef struct noise_code {
    void (*twist)(uint32_t* state);
    void (*make_uniforms)(const uint32_t* words, float* into, size_t count);
    void (*box_muller)(float* x, size_t groups);
} noise_code;

static const noise_code* code_of(const sumi_torch_cpu_generator* generator)
{
    static const noise_code s_portable = {twist_portable, make_uniforms_portable, box_muller_portable};
#ifdef SUMI_NOISE_LANES
    static const noise_code s_avx2 = {twist_avx2, make_uniforms_avx2, box_muller_avx2},
                            s_avx512 = {twist_avx512, make_uniforms_avx512, box_muller_avx512};
    if (generator->lanes == 16) return &s_avx512;
    if (generator->lanes == 8) return &s_avx2;
#endif
    (void)generator;
    return &s_portable;
}

// Tests the range, so that a generator that was not seeded (all zero) or was damaged is not read outside its state.
static void twist_when_used_up(sumi_torch_cpu_generator* generator)
{
    if (generator->next < 0 || generator->next >= MT_WORDS) {
        code_of(generator)->twist(generator->state);
        generator->next = 0;
    }
}

static uint32_t next_word(sumi_torch_cpu_generator* generator)
{
    twist_when_used_up(generator);
    return temper(generator->state[generator->next++]);
}

static void uniforms(sumi_torch_cpu_generator* generator, float* into, size_t count)
{
    while (count > 0) {
        twist_when_used_up(generator);
        size_t available = (size_t)(MT_WORDS - generator->next);
        size_t n = count < available ? count : available;
        SUMI_ASSERT(n >= 1 && n <= MT_WORDS);
        code_of(generator)->make_uniforms(generator->state + generator->next, into, n);
        generator->next += (int32_t)n;
        into += n;
        count -= n;
    }
}

// ---- torch.randn on the CPU -----------------------------------------------------------------------------------------

static double uniform_53(sumi_torch_cpu_generator* generator)
{
    uint64_t high = next_word(generator);
    uint64_t word = (high << 32) | next_word(generator);
    return (double)(int64_t)(word & 0x1fffffffffffffu) * 0x1p-53;
}

// For calls of fewer than 16 values: one value at a time, in double. The second value of each pair is kept for the next
// such call.
static float draw_one(sumi_torch_cpu_generator* generator)
{
    if (generator->has_cached) {
        generator->has_cached = false;
        return (float)generator->cached;
    }
    double u1 = uniform_53(generator);
    double u2 = uniform_53(generator);
    double radius = sqrt(-2.0 * log1p(-u2));
    double angle = 2.0 * 3.14159265358979323846 * u1;
    generator->cached = radius * sin(angle);
    generator->has_cached = true;
    return (float)(radius * cos(angle));
}

void sumi_torch_cpu_randn(sumi_torch_cpu_generator* generator, float* into, size_t count)
{
    SUMI_ASSERT(count == 0 || into != NULL);
    if (count < GROUP) {
        for (size_t i = 0; i < count; i++) into[i] = draw_one(generator);
        return;
    }
    const noise_code* code = code_of(generator);
    uniforms(generator, into, count); // all values, because the uniforms of an unfinished last group are consumed too
    code->box_muller(into, count / GROUP);
    if (count % GROUP != 0) {
        uniforms(generator, into + count - GROUP, GROUP);
        code->box_muller(into + count - GROUP, 1);
    }
}

// As in float32, then rounded, with one difference: no uniforms are drawn for an unfinished last group.
void sumi_torch_cpu_randn_bf16(sumi_torch_cpu_generator* generator, uint16_t* into, size_t count)
{
    SUMI_ASSERT(count == 0 || into != NULL);
    if (count < GROUP) {
        for (size_t i = 0; i < count; i++) into[i] = sumi_float_to_bf16(draw_one(generator));
        return;
    }
    const noise_code* code = code_of(generator);
    float block[GROUP * 32];
    size_t grouped_count = count / GROUP * GROUP;
    for (size_t done = 0; done < grouped_count;) {
        size_t n = grouped_count - done < GROUP * 32 ? grouped_count - done : GROUP * 32;
        uniforms(generator, block, n);
        code->box_muller(block, n / GROUP);
        sumi_floats_to_bf16(block, into + done, n);
        done += n;
    }
    if (count != grouped_count) {
        uniforms(generator, block, GROUP);
        code->box_muller(block, 1);
        sumi_floats_to_bf16(block, into + count - GROUP, GROUP);
    }
}

// ---- torch.randn on a CUDA device -----------------------------------------------------------------------------------

enum { CUDA_BLOCK = 256 };

void sumi_torch_cuda_seed(sumi_torch_cuda_generator* generator, uint64_t seed, int32_t multiprocessors,
                          int32_t threads_per_multiprocessor)
{
    *generator = (sumi_torch_cuda_generator){
        .seed = seed, .multiprocessors = multiprocessors, .threads_per_multiprocessor = threads_per_multiprocessor};
}

// Philox4x32-10 (Salmon et al. 2011).
static void philox(uint64_t low, uint64_t high, uint64_t key, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32), c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

// cuRAND's logarithm as nvcc compiles it; the radius is sqrt(-2 ln u).
static float curand_radius(uint32_t word)
{
    static const uint32_t s_polynomial[] = {0xbe055027u, 0x3e1039f6u, 0xbdf8cdccu, 0x3e0f2955u, 0xbe2ad8b9u,
                                            0x3e4ced0bu, 0xbe7fff22u, 0x3eaaaa78u, 0xbf000000u};
    float u = sumi_fmaf((float)word, 0x1p-32f, 0x1p-33f);
    uint32_t exponent = (sumi_bits_of_float(u) - 0x3f2aaaabu) & 0xff800000u;
    float f = sumi_float_of_bits(sumi_bits_of_float(u) - exponent) - 1.0f;
    int32_t signed_exponent;
    memcpy(&signed_exponent, &exponent, sizeof signed_exponent);
    float k = (float)signed_exponent * 0x1p-23f;
    float p = sumi_float_of_bits(s_polynomial[0]);
    for (int i = 1; i < 9; i++) p = sumi_fmaf(p, f, sumi_float_of_bits(s_polynomial[i]));
    float logarithm = sumi_fmaf(k, 0x1.62e430p-1f, sumi_fmaf(p * f, f, f));
    return sqrtf(-2.0f * logarithm);
}

// sin.approx and cos.approx take their argument in turns: the hardware multiplies the angle by 1 / (2 pi), rounding
// toward zero, and looks up the fraction in a table. Computing this product in the same manner and then an exact sine
// comes within 8e-7 of every recorded value; an exact sine of the angle itself only within 1.14e-6.
static float turns_of(uint32_t word)
{
    float angle = sumi_fmaf((float)word, 0x1.921fb6p-30f, 0x1.921fb6p-31f); // 2 pi 2^-32, and half of it
    double exact = (double)angle * (double)0x1.45f306p-3f;                  // 24 x 24 bits: not rounded yet
    float turns = (float)exact;
    if ((double)turns > exact) turns = sumi_float_of_bits(sumi_bits_of_float(turns) - 1u);
    return turns;
}

// Values 0 and 2 of a thread are sines, 1 and 3 are cosines (in the CPU generator the order is the opposite).
static float curand_normal(const uint32_t words[4], int which)
{
    double angle = 6.283185307179586476925 * (double)turns_of(words[(which & 2) + 1]);
    return curand_radius(words[which & 2]) * (float)((which & 1) != 0 ? cos(angle) : sin(angle));
}

static size_t cuda_threads(const sumi_torch_cuda_generator* generator, size_t count)
{
    uint64_t per_multiprocessor = generator->threads_per_multiprocessor > CUDA_BLOCK
                                    ? (uint64_t)generator->threads_per_multiprocessor / CUDA_BLOCK
                                    : 1;
    uint64_t max_blocks =
        (generator->multiprocessors > 1 ? (uint64_t)generator->multiprocessors : 1) * per_multiprocessor;
    uint64_t blocks = count / CUDA_BLOCK + (count % CUDA_BLOCK != 0);
    return (size_t)((blocks < max_blocks ? blocks : max_blocks) * CUDA_BLOCK);
}

void sumi_torch_cuda_randn_range(const sumi_torch_cuda_generator* generator, float* into, size_t count, size_t first,
                                 size_t range_count)
{
    SUMI_ASSERT(first <= count && range_count <= count - first);
    SUMI_ASSERT(generator->offset % 4 == 0);
    const size_t threads = cuda_threads(generator, count);
    for (size_t i = 0; i < range_count; i++) { // Philox runs for each value: a tenth of the time of a sine
        const size_t row = (first + i) / threads, thread = (first + i) % threads;
        uint32_t words[4];
        philox(generator->offset / 4 + row / 4, thread, generator->seed, words);
        into[i] = curand_normal(words, (int)(row % 4));
    }
}

void sumi_torch_cuda_skip(sumi_torch_cuda_generator* generator, size_t count)
{
    SUMI_ASSERT(generator->offset % 4 == 0);
    if (count == 0) return;
    const uint64_t values_per_draw = 4 * (uint64_t)cuda_threads(generator, count);
    generator->offset += 4 * (count / values_per_draw + (count % values_per_draw != 0));
}
