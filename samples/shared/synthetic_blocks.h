// Element types of synthetic checkpoints (plain types, fp8 and GGUF's block types), and random values in these types.
#ifndef SYNTHETIC_BLOCKS_H
#define SYNTHETIC_BLOCKS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct synthetic_type {
    const char* name;             // as in options
    const char* safetensors_name; // NULL: only GGUF has this type
    uint32_t gguf;                // ggml's number of the type
    int32_t block, block_bytes;   // elements and bytes per block; 1 element for plain types
    // For GGUF's block types: byte offsets of the half-precision factors in a block, minimum_at -1 for none; the ratio
    // of the minimum's factor to the scale's; and the standard deviation of the values when all other bytes are random
    // and the scale is 1.
    int32_t scale_at, minimum_at;
    float minimum_per_scale, deviation;
} synthetic_type;

// "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k" to "q6_k", "iq4_nl", "iq4_xs", "fp8", "bf16", "f32"; NULL: none of
// them
const synthetic_type* synthetic_type_find(const char* name);
#define SYNTHETIC_TYPES "q8_0|q4_0|q4_1|q5_0|q5_1|q2_k|q3_k|q4_k|q5_k|q6_k|iq4_nl|iq4_xs|fp8"
// The value of an fp8 weight is its e4m3 element times this scale, which the file stores beside each weight.
#define SYNTHETIC_FP8_SCALE (1.0f / 4096.0f)

// Returns a number from an approximately normal distribution with variance 1. *state must not be 0.
float synthetic_normal(uint64_t* state);
// Writes one element of type "bf16" or "f32".
static inline void synthetic_put(const synthetic_type* type, unsigned char* into, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    const uint16_t half = (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
    if (type->block_bytes == 4) memcpy(into, &value, 4);
    else memcpy(into, &half, 2);
}
// Writes whole blocks of values with mean 0 and standard deviation `deviation`; `bytes` is a multiple of the block
// size.
void synthetic_fill(const synthetic_type* type, unsigned char* into, size_t bytes, float deviation, uint64_t* state);
#endif
