// Element types of synthetic checkpoints: plain ones, fp8, and GGUF's blocks, filled with random numbers.
#ifndef SYNTHETIC_BLOCKS_H
#define SYNTHETIC_BLOCKS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct synthetic_type {
    const char* name;             // as options have it
    const char* safetensors_name; // NULL: GGUF alone has it
    uint32_t gguf;                // ggml's number
    int32_t block, block_bytes;   // elements and bytes of a block; 1 element for plain types
    // Of GGUF's blocks: where the half-precision factors lie, minimum_at -1 for none; how many times the scale the
    // minimum is; and the standard deviation of the values when every other byte is random and the scale is 1.
    int32_t scale_at, minimum_at;
    float minimum_per_scale, deviation;
} synthetic_type;

// "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k" to "q6_k", "iq4_nl", "iq4_xs", "fp8", "bf16", "f32"; NULL: none of them
const synthetic_type* synthetic_type_find(const char* name);
#define SYNTHETIC_TYPES "q8_0|q4_0|q4_1|q5_0|q5_1|q2_k|q3_k|q4_k|q5_k|q6_k|iq4_nl|iq4_xs|fp8"
// An e4m3 element is multiplied by this, which a file says beside each weight.
#define SYNTHETIC_FP8_SCALE (1.0f / 4096.0f)

// About normal, with a variance of 1. state is not 0.
float synthetic_normal(uint64_t* state);
// One element of "bf16" or "f32".
static inline void synthetic_put(const synthetic_type* type, unsigned char* into, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    const uint16_t half = (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
    if (type->block_bytes == 4) memcpy(into, &value, 4);
    else memcpy(into, &half, 2);
}
// Whole blocks of values with a mean of 0 and this standard deviation; bytes is a multiple of the block's.
void synthetic_fill(const synthetic_type* type, unsigned char* into, size_t bytes, float deviation, uint64_t* state);
#endif
