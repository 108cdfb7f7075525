// Arithmetic of sizes and counts. No function overflows if twice its result fits its type.
#ifndef SUMI_BASE_INTEGERS_H
#define SUMI_BASE_INTEGERS_H
#include <stdint.h>

static inline int32_t sumi_min_int(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t sumi_max_int(int32_t a, int32_t b) { return a > b ? a : b; }
static inline int64_t sumi_min_int64(int64_t a, int64_t b) { return a < b ? a : b; }

// Requires a >= 0 and b > 0. Rounds up.
static inline int32_t sumi_divide_up(int32_t a, int32_t b) { return (a + b - 1) / b; }
// Rounds value up to a multiple of `multiple`.
static inline int32_t sumi_round_up(int32_t value, int32_t multiple)
{
    return sumi_divide_up(value, multiple) * multiple;
}
static inline uint64_t sumi_align(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}
#endif
