// Element types of checkpoint files and their conversion to float. Block types (GGUF) hold `block` elements in
// `block_bytes` bytes.
#ifndef SUMI_BASE_DTYPE_H
#define SUMI_BASE_DTYPE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sumi_dtype {
    SUMI_DTYPE_NONE,
    SUMI_DTYPE_F64,
    SUMI_DTYPE_F32,
    SUMI_DTYPE_F16,
    SUMI_DTYPE_BF16,
    SUMI_DTYPE_F8_E4M3,
    SUMI_DTYPE_F8_E5M2,
    SUMI_DTYPE_I64,
    SUMI_DTYPE_I32,
    SUMI_DTYPE_I16,
    SUMI_DTYPE_I8,
    SUMI_DTYPE_U64,
    SUMI_DTYPE_U32,
    SUMI_DTYPE_U16,
    SUMI_DTYPE_U8,
    SUMI_DTYPE_BOOL,
    SUMI_DTYPE_F8_E8M0, // a power of two: the scales of mxfp8
    // types of safetensors that only have a known size
    SUMI_DTYPE_F8_E4M3FNUZ,
    SUMI_DTYPE_F8_E5M2FNUZ,
    SUMI_DTYPE_F6_E2M3,
    SUMI_DTYPE_F6_E3M2,
    SUMI_DTYPE_F4,
    SUMI_DTYPE_C64,
    SUMI_DTYPE_UNKNOWN, // a name that safetensors may get later; a tensor's bytes say its size
    // types of GGUF that only have a known size
    SUMI_DTYPE_Q8_1,
    SUMI_DTYPE_Q8_K,
    SUMI_DTYPE_IQ2_XXS,
    SUMI_DTYPE_IQ2_XS,
    SUMI_DTYPE_IQ3_XXS,
    SUMI_DTYPE_IQ1_S,
    SUMI_DTYPE_IQ3_S,
    SUMI_DTYPE_IQ2_S,
    SUMI_DTYPE_IQ1_M,
    SUMI_DTYPE_TQ1_0,
    SUMI_DTYPE_TQ2_0,
    SUMI_DTYPE_MXFP4,
    SUMI_DTYPE_NVFP4,
    // Pairs of 4-bit codes, the first in the low bits. What a code means is beside the weight (base/decoding.h); as
    // numbers they are 0 to 15. No file has this type.
    SUMI_DTYPE_CODES4,
    SUMI_DTYPE_Q4_0,
    SUMI_DTYPE_Q4_1,
    SUMI_DTYPE_Q5_0,
    SUMI_DTYPE_Q5_1,
    SUMI_DTYPE_Q8_0,
    SUMI_DTYPE_Q2_K,
    SUMI_DTYPE_Q3_K,
    SUMI_DTYPE_Q4_K,
    SUMI_DTYPE_Q5_K,
    SUMI_DTYPE_Q6_K,
    SUMI_DTYPE_IQ4_NL,
    SUMI_DTYPE_IQ4_XS,
    SUMI_DTYPE_COUNT
} sumi_dtype;

typedef struct sumi_dtype_info {
    const char* name;
    int32_t block;
    int32_t block_bytes;
} sumi_dtype_info;
const sumi_dtype_info* sumi_dtype_get(sumi_dtype dtype); // never NULL; block is 1 for plain types

// Returns the bytes of `count` elements. count must be a multiple of the block, which the file readers check.
uint64_t sumi_dtype_bytes(sumi_dtype dtype, uint64_t count);
// True for the types that sumi_dtype_to_float accepts: the block types, the integers (by value), and the floating types,
// but not those that only have a known size.
bool sumi_dtype_is_number(sumi_dtype dtype);
// True for the types of GGUF that only have a known size.
bool sumi_dtype_is_foreign_block(sumi_dtype dtype);
// Converts count elements to float. Exact up to float's precision for every type. The source needs no alignment. For
// block types count is a multiple of the block.
void sumi_dtype_to_float(sumi_dtype dtype, const void* source, float* into, size_t count);

float sumi_bf16_to_float(uint16_t bits);
uint16_t sumi_float_to_bf16(float value); // rounds to nearest even; NaN becomes 0x7fc0
void sumi_floats_to_bf16(const float* source, uint16_t* into, size_t count); // source and into do not overlap
static inline bool sumi_bf16_is_finite(uint16_t value) { return (value & 0x7f80u) != 0x7f80u; }
float sumi_f16_to_float(uint16_t bits);
uint16_t sumi_float_to_f16(float value); // rounds to nearest even; NaN becomes a quiet NaN of the same sign
#endif
