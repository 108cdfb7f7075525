#include "synthetic_blocks.h"
#include <math.h>

// The standard deviations are computed for uniformly distributed bit fields. In Q4_K, for example, value = d * scale *
// code - dmin * minimum, with 6 bits for scale, 6 for minimum and 4 for code. Where a block has a minimum, the factor
// dmin is chosen so that the mean is 0. Where a block has no minimum and its codes are not centred at 0, the scales
// have both signs, which also makes the mean 0.
static const synthetic_type s_types[] = {
    {"bf16", "BF16", 30, 1, 2, -1, -1, 0.0f, 0.0f},       {"f32", "F32", 0, 1, 4, -1, -1, 0.0f, 0.0f},
    {"fp8", "F8_E4M3", 0, 1, 1, -1, -1, 0.0f, 0.0f},      {"q4_0", NULL, 2, 32, 18, 0, -1, 0.0f, 4.64f},
    {"q4_1", NULL, 3, 32, 20, 0, 2, -7.5f, 4.61f},        {"q5_0", NULL, 6, 32, 22, 0, -1, 0.0f, 9.25f},
    {"q5_1", NULL, 7, 32, 24, 0, 2, -15.5f, 9.23f},       {"q8_0", NULL, 8, 32, 34, 0, -1, 0.0f, 73.9f},
    {"q2_k", NULL, 10, 256, 84, 80, 82, 1.5f, 13.9f},     {"q3_k", NULL, 11, 256, 110, 108, -1, 0.0f, 43.3f},
    {"q4_k", NULL, 12, 256, 144, 0, 2, 7.5f, 258.0f},     {"q5_k", NULL, 13, 256, 176, 0, 2, 15.5f, 527.0f},
    {"q6_k", NULL, 14, 256, 210, 208, -1, 0.0f, 1366.0f}, {"iq4_nl", NULL, 20, 32, 18, 0, -1, 0.0f, 67.4f},
    {"iq4_xs", NULL, 23, 256, 136, 0, -1, 0.0f, 1246.0f}};

const synthetic_type* synthetic_type_find(const char* name)
{
    for (size_t i = 0; i < sizeof s_types / sizeof *s_types; i++) {
        if (strcmp(name, s_types[i].name) == 0) return &s_types[i];
    }
    return NULL;
}

static uint64_t draw(uint64_t* state) // xorshift64*
{
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return *state * 0x2545F4914F6CDD1Du;
}

float synthetic_normal(uint64_t* state)
{
    const uint64_t bits = draw(state);
    const int32_t sum = (int32_t)(bits & 0xFFFF) + (int32_t)(bits >> 16 & 0xFFFF) + (int32_t)(bits >> 32 & 0xFFFF)
                      + (int32_t)(bits >> 48) - 2 * 65535;
    return (float)sum * (1.7320508f / 65536.0f);
}

// Writes a value below 65504 in IEEE half precision, rounded toward zero.
static void put_half(unsigned char* into, float value)
{
    int exponent;
    const float fraction = frexpf(fabsf(value), &exponent); // 0.5 .. 1
    const uint32_t sign = value < 0.0f ? 0x8000u : 0u;
    const uint32_t bits = exponent >= -13 ? (uint32_t)(exponent + 14) << 10 | ((uint32_t)(fraction * 2048.0f) & 0x3FFu)
                                          : (uint32_t)ldexpf(fraction, exponent + 24); // subnormal: units of 2^-24
    const uint16_t half = (uint16_t)(sign | bits);
    memcpy(into, &half, 2);
}

// Converts a value below 448 to e4m3, rounded toward zero.
static unsigned char to_e4m3(float value)
{
    int exponent;
    const float fraction = frexpf(fabsf(value), &exponent);
    const uint32_t bits = exponent >= -5 ? (uint32_t)(exponent + 6) << 3 | ((uint32_t)(fraction * 16.0f) & 7u)
                                         : (uint32_t)ldexpf(fraction, exponent + 9); // subnormal: units of 2^-9
    return (unsigned char)((value < 0.0f ? 0x80u : 0u) | bits);
}

static void fill_blocks(const synthetic_type* type, unsigned char* into, size_t bytes, float deviation, uint64_t* state)
{
    for (size_t i = 0; i < bytes; i++) into[i] = (unsigned char)(draw(state) >> 56);
    for (size_t i = 0; i < bytes; i += (size_t)type->block_bytes) {
        const float size = deviation / type->deviation * (1.0f + 0.2f * synthetic_normal(state));
        const float scale = type->minimum_at < 0 && draw(state) >> 63 ? -size : size;
        put_half(into + i + type->scale_at, scale);
        if (type->minimum_at >= 0) put_half(into + i + type->minimum_at, scale * type->minimum_per_scale);
    }
}

void synthetic_fill(const synthetic_type* type, unsigned char* into, size_t bytes, float deviation, uint64_t* state)
{
    if (type->block > 1) {
        fill_blocks(type, into, bytes, deviation, state);
        return;
    }
    for (size_t i = 0; i < bytes; i += (size_t)type->block_bytes) {
        const float value = deviation * synthetic_normal(state);
        if (type->block_bytes == 1) into[i] = to_e4m3(value / SYNTHETIC_FP8_SCALE);
        else synthetic_put(type, into + i, value);
    }
}
