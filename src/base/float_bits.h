// Conversion between a float32 and its bits.
#ifndef SUMI_BASE_FLOAT_BITS_H
#define SUMI_BASE_FLOAT_BITS_H
#include <stdint.h>
#include <string.h>

static inline float sumi_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t sumi_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
#endif
